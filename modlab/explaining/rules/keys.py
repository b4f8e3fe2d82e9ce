"""What a batch or a tensor is asked for and does not hold: a key, an attribute, one number, one truth."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from difflib import SequenceMatcher
from typing import Any

from torch import Tensor

from modlab.explaining import operands, source_code, suspects
from modlab.explaining.failure import Cause, Failure, Rule, counted, described, shape_of
from modlab.explaining.frames import Frame
from modlab.inspection import stores
from modlab.records.explanation import Fix

_LISTED = 8
_NEAR = 0.6


# ---- keys --------------------------------------------------------------------------------------------------------------------


def _key(failure: Failure, _: re.Match[str]) -> Cause | None:
    frame = failure.inner
    node = frame.expression() if frame is not None and frame.is_users else None
    wanted = failure.error.args[0] if len(failure.error.args) == 1 else None
    if frame is None or not isinstance(node, ast.Subscript) or type(wanted) is not str:
        return None
    held = operands.follow(node.value, frame)
    if not _is_batch(failure, held) or operands.follow(node.slice, frame) != wanted or wanted in held:
        return None
    return _lacking(failure, frame, node, held, wanted, "a key")


def _attribute(failure: Failure, match: re.Match[str]) -> Cause | None:
    frame, wanted = failure.inner, match[1]
    node = frame.expression() if frame is not None and frame.is_users else None
    node = node.func if isinstance(node, ast.Call) else node
    if frame is None or not isinstance(node, ast.Attribute) or node.attr != wanted:
        return None
    held = operands.follow(node.value, frame)
    if not _is_batch(failure, held):
        return None
    if wanted not in held:
        return _lacking(failure, frame, node, held, wanted, "an attribute")
    name = ast.unparse(node.value)
    return Cause(
        f"{name} is a dict, and {wanted!r} is a key of it{failure.within}.",
        "A dict gives its values by key, not as attributes.",
        f"{wanted!r} is a key",
        (("keys", _listed(held)),),
        (Fix("Use the key:", source_code.rewritten(frame, node, _subscript(node.value, wanted))),),
    )


def _is_batch(failure: Failure, held: Any) -> bool:
    """Whether a dict has to do with a model: it holds tensors, or a module was running."""
    if type(held) is not dict or not held:
        return False
    return failure.root is not None or any(issubclass(type(value), Tensor) for value in held.values())


def _listed(held: Mapping[Any, Any]) -> str:
    return ", ".join(map(repr, list(held)[:_LISTED])) + (", …" if len(held) > _LISTED else "")


def _subscript(node: ast.expr, key: str) -> ast.expr:
    return ast.Subscript(node, ast.Constant(key), ast.Load())


def _lacking(failure: Failure, frame: Frame, node: ast.Subscript | ast.Attribute, held: dict[Any, Any], wanted: str, what: str) -> Cause:
    name = ast.unparse(node.value)
    ratios = sorted(((SequenceMatcher(None, wanted, key).ratio(), key) for key in held if type(key) is str), reverse=True)
    near = ratios[0][1] if ratios and ratios[0][0] >= _NEAR and (len(ratios) < 2 or ratios[1][0] < ratios[0][0]) else ""
    fix = Fix("Use one of them.")
    if near:
        fix = Fix(f"If {near!r} is what you meant:", source_code.rewritten(frame, node, _subscript(node.value, near)))
    return Cause(
        f"{name} has no {wanted!r}{failure.within}.",
        f"It is a dict with {_listed(held)}.",
        f"no {wanted!r}",
        (("asked for", repr(wanted)), *((f"{name}[{key!r}]", described(value)) for key, value in list(held.items())[:_LISTED])),
        (fix,),
    )


def _by_place(failure: Failure, match: re.Match[str]) -> Cause | None:
    """``batch['image']`` of a batch that is a list."""
    frame = failure.inner
    node = frame.expression() if frame is not None and frame.is_users else None
    if frame is None or not isinstance(node, ast.Subscript):
        return None
    held, key = operands.follow(node.value, frame), operands.follow(node.slice, frame)
    if type(held) not in (list, tuple) or type(key) is not str or not any(issubclass(type(part), Tensor) for part in held):
        return None
    name, kind = ast.unparse(node.value), type(held).__name__
    return Cause(
        f"{name} is a {kind} of {len(held)}, and has no {key!r}{failure.within}.",
        "Its parts have positions, not names.",
        f"{kind}, no dict",
        tuple((f"{name}[{i}]", described(part)) for i, part in enumerate(held[:_LISTED])),
        (Fix(f"Take it by position, as the dataset returns it: {name}[0] is the first."),),
    )


# ---- one number, one truth ---------------------------------------------------------------------------------------------------


def _number(failure: Failure, match: re.Match[str]) -> Cause | None:
    frame = failure.user
    node = frame.expression() if frame is not None and frame is failure.inner else None
    if frame is None or not isinstance(node, ast.Call):
        return None
    wrapped = ast.unparse(node.func)
    if isinstance(node.func, ast.Attribute) and node.func.attr == "item" and not node.args:
        inner, change = node.func.value, "{}.item()"
    elif wrapped in ("float", "int", "bool") and len(node.args) == 1:
        inner, change = node.args[0], f"{wrapped}({{}})"
    else:
        return None
    thing = operands.follow(inner, frame)
    shape = shape_of(thing)
    count = int(match[1]) if match.re.groups and match[1] else None
    if count is None and shape is not None:
        count = thing.numel()
    name = ast.unparse(inner)
    if count == 1:
        return None
    operand = name if isinstance(inner, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)) else f"({name})"
    module = suspects.assigned_from(frame, name) if name.isidentifier() else None
    kept = module is not None and stores.contents(module).get("reduction") == "none"
    more = f"{type(module).__name__} was made with reduction='none': it gives one loss for each element." if kept else ""
    words = f"It is {shape}." if shape is not None else ""
    reduced = source_code.rewritten(frame, node, ast.parse(change.format(f"{operand}.mean()"), mode="eval").body)
    numbers = "none" if count == 0 else counted(count, "number") if count is not None else "several numbers"
    return Cause(
        f"{wrapped.rpartition('.')[2]} reads one number, but {name} has {numbers}{failure.within}.",
        " ".join(filter(None, (words, more))),
        f"{numbers} ≠ 1",
        ((name, str(shape)),) if shape is not None else (),
        () if count == 0 else (Fix("Their mean is one number:", reduced), Fix("All of them, as a list:", f"{operand}.tolist()")),
    )


def _truth(failure: Failure, match: re.Match[str]) -> Cause | None:
    frame = failure.user
    node = frame.expression() if frame is not None and frame is failure.inner else None
    if frame is None or not isinstance(node, ast.expr):
        return None
    test = _tested(frame, node)
    if test is None:
        return None
    text = ast.unparse(test)
    whole = text if isinstance(test, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)) else f"({text})"
    shapes = [(one.text, str(shape_of(one.thing))) for one in operands.tensors(operands.of_frame(frame))]
    return Cause(
        f"{text} is a tensor of several booleans, but one is needed{failure.within}.",
        "Each number is compared separately.",
        "several truth values",
        tuple(shapes[:4]),
        (
            Fix("If one true value is enough:", f"{whole}.any()"),
            Fix("If all must be true:", f"{whole}.all()"),
            Fix("To choose for each number: torch.where(condition, a, b)."),
        ),
    )


def _tested(frame: Frame, node: ast.expr) -> ast.expr | None:
    """The condition of the statement, where it is one comparison or one name, and what failed."""
    statement = source_code.statement_of(frame)
    test = statement.test if isinstance(statement, (ast.If, ast.While, ast.Assert)) else None
    inner = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else test
    if inner is None or ast.dump(node) not in (ast.dump(inner), ast.dump(test) if test is not None else ""):
        return None
    if isinstance(inner, ast.Compare):
        single = len(inner.ops) == 1 and isinstance(inner.ops[0], (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq))
        return inner if single else None
    return inner if isinstance(inner, (ast.Name, ast.Attribute, ast.Subscript)) else None


RULES = (
    Rule("batch", (KeyError,), r"", _key),
    Rule("batch", (AttributeError,), r"^'dict' object has no attribute '(\w+)'", _attribute),
    Rule("batch", (TypeError,), r"^(?:list|tuple) indices must be integers or slices, not str", _by_place),
    Rule("several numbers", (RuntimeError, ValueError), r"a Tensor with (\d+) elements cannot be converted to Scalar", _number),
    Rule("several numbers", (ValueError, TypeError), r"^only (?:one|single).element tensors.* can be converted()", _number),
    Rule("several numbers", (RuntimeError,), r"^Boolean value of Tensor with more than one value is ambiguous", _truth),
)
