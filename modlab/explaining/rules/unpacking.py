"""``B, C, H, W = x.shape``, of an x with another number of dimensions."""

from __future__ import annotations

import ast
import re

from torch import Tensor

from modlab import format
from modlab.explaining import operands, source_code, suspects
from modlab.explaining.failure import Cause, Failure, Rule, counted, shape_of
from modlab.explaining.frames import Frame
from modlab.records.explanation import Fix

_PARTING = ("split", "chunk", "unbind", "tensor_split")


def _unpacked(failure: Failure, match: re.Match[str]) -> Cause | None:
    frame = failure.inner
    line = _assignment(frame) if frame is not None and frame.is_users else None
    if frame is None or line is None or not isinstance(line.targets[0], (ast.Tuple, ast.List)):
        return None
    targets = line.targets[0].elts
    parted = _parted(line.value, [ast.unparse(target) for target in targets], int(match[1]))
    if parted is not None:
        return parted
    sized = _sized(line.value)
    tensor = operands.follow(sized if sized is not None else line.value, frame)
    shape = shape_of(tensor) if issubclass(type(tensor), Tensor) else None
    if shape is None or len(targets) != int(match[1]) or any(isinstance(target, ast.Starred) for target in targets):
        return None
    names = ", ".join(ast.unparse(target) for target in targets)
    if sized is None:
        return _rows(ast.unparse(line.value), names, len(targets), shape) if shape and shape[0] != len(targets) else None
    name = ast.unparse(sized)
    if len(shape) == len(targets):
        return None
    more: tuple[Fix, ...]
    if len(shape) == len(targets) - 1:
        more = (Fix("If the batch is missing, put it in front:", f"{name} = {name}.unsqueeze(0)"),)
    elif len(shape) > len(targets):
        more = (Fix("Take only the first sizes, or name them all:", f"{names} = {name}.shape[:{len(targets)}]"),)
    else:
        more = (Fix("Check its shape first:", f"print({name}.shape)"),)
    return Cause(
        f"{name} has {format.plural(len(shape), 'dimension')}, but its sizes are unpacked into {len(targets)}: {names}.",
        f"It is {shape}.",
        f"{format.plural(len(shape), 'dimension')} ≠ {len(targets)}",
        ((name, str(shape)), ("names", names)),
        more,
    )


def _parted(node: ast.expr, names: list[str], wanted: int) -> Cause | None:
    """``a, b = x.split(4)``, which gives a different number of parts."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in _PARTING:
        return None
    if len(names) != wanted or any(name.startswith("*") for name in names):
        return None
    text, more = ast.unparse(node), "split takes the size of a part, chunk their number." if node.func.attr in ("split", "chunk") else ""
    return Cause(
        f"{text} does not give {wanted} parts for the {wanted} names: {', '.join(names)}.",
        more,
        f"≠ {wanted} parts",
        (("names", ", ".join(names)),),
        (Fix("Check how many there are:", f"print(len({text}))"),),
    )


def _rows(name: str, names: str, wanted: int, shape: tuple[int, ...]) -> Cause:
    return Cause(
        f"{name} has {counted(shape[0], 'row')}, but they are unpacked into {wanted}: {names}.",
        f"It is {shape}; a tensor is unpacked by its rows.",
        f"{counted(shape[0], 'row')} ≠ {wanted}",
        ((name, str(shape)), ("names", names)),
        (Fix("For its sizes:", f"{names} = {name}.shape"),) if len(shape) == wanted else (),
    )


def _sized(node: ast.expr) -> ast.expr | None:
    """What is asked for its sizes: ``x.shape``, ``x.size()``."""
    if isinstance(node, ast.Attribute) and node.attr == "shape":
        return node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "size" and not node.args:
        return node.func.value
    return None


def _assignment(frame: Frame) -> ast.Assign | None:
    """The assignment among what stands in the line that failed."""
    segment = frame.segment()
    try:
        found = [one for one in ast.parse(frame.source).body if isinstance(one, ast.Assign)]
    except (SyntaxError, ValueError):
        return None
    fitting = [one for one in found if segment and segment.strip("()[] ") in ast.unparse(one.targets[0])] or found
    fitting = fitting if len(fitting) == 1 else [one for one in found if segment == frame.source]
    return fitting[0] if len(fitting) == 1 else None


def _of_tuple(failure: Failure, _: re.Match[str]) -> Cause | None:
    """``out[:, -1]`` or ``out.view(2)`` of what an LSTM gave, which is a tuple of several things."""
    frame = failure.user
    expression = frame.expression() if frame is not None else None
    if not isinstance(expression, (ast.Subscript, ast.Attribute)) or not hasattr(Tensor, getattr(expression, "attr", "shape")):
        return None
    node = expression.value
    thing = operands.follow(node, frame) if frame is not None else None
    module = suspects.given_by(frame, node.id) if isinstance(node, ast.Name) and frame is not None else None
    if frame is None or module is None or type(thing) is not tuple or not thing or shape_of(thing[0]) is None:
        return None
    name, kind = ast.unparse(node), type(module).__name__
    parts = ", ".join(str(shape_of(part)) if shape_of(part) is not None else type(part).__name__ for part in thing)
    part = ast.Subscript(node, ast.Constant(0), ast.Load())
    first: ast.expr = ast.Attribute(part, expression.attr, ast.Load()) if isinstance(expression, ast.Attribute) else part
    if isinstance(expression, ast.Subscript):
        first = ast.Subscript(part, expression.slice, ast.Load())
    return Cause(
        f"{name} is the output of {kind}: a tuple of {len(thing)}, not a tensor.",
        f"It contains {parts}.",
        f"tuple of {len(thing)} ≠ tensor",
        ((name, f"({parts})"),),
        (Fix("Take its first part:", source_code.rewritten(frame, expression, first)),),
    )


RULES = (
    Rule("unpacking", (ValueError,), r"(?:not enough|too many) values to unpack \(expected (\d+)", _unpacked),
    Rule("unpacking", (AttributeError,), r"^'tuple' object has no attribute '\w+'", _of_tuple),
    Rule("unpacking", (TypeError,), r"^tuple indices must be integers or slices, not tuple$", _of_tuple),
)
