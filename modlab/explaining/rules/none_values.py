"""None where something belongs: a forward without return, a hook that is None. And a dict where its members belong."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor
from torch.nn import Module

from modlab import format
from modlab.explaining import code_fixes, operands
from modlab.explaining.failure import Cause, Failure, Rule
from modlab.explaining.frames import Frame
from modlab.inspection import stores
from modlab.records.explanation import Fix

_HOOKS = {"_forward_pre_hooks": "forward pre-hook", "_forward_hooks": "forward hook"}
_REGISTER = {"_forward_pre_hooks": "register_forward_pre_hook", "_forward_hooks": "register_forward_hook"}


def _returned(failure: Failure, _: re.Match[str]) -> Cause | None:
    """A module was called within the expression, and its forward gives nothing back."""
    frame = failure.user
    expression = frame.expression() if frame is not None else None
    if frame is None or expression is None:
        return None
    for cls in _called(expression, frame):
        forward = code_fixes.forward_of(cls)
        if forward is None or any(_gives(node) for node in ast.walk(forward)):
            continue
        last = ast.unparse(forward.body[-1])
        code = f"return {last}" if isinstance(forward.body[-1], ast.Expr) else "return x"
        return Cause(
            f"{cls.__name__}'s forward gives None: it has no return.",
            "Its result is lost when it ends.",
            "None",
            (),
            (Fix(f"At the end of forward, in {cls.__name__}:", code if len(code) < 100 else "return x"),),
        )
    return None


def _gives(node: ast.AST) -> bool:
    return (isinstance(node, ast.Return) and node.value is not None) or isinstance(node, (ast.Yield, ast.YieldFrom, ast.Raise))


def _called(expression: ast.AST, frame: Frame) -> Iterator[type[Any]]:
    """The classes of the modules that are called within an expression, inner ones too: ``net(x)``, ``Net()(x)``."""
    for node in ast.walk(expression):
        if not isinstance(node, ast.Call):
            continue
        thing = operands.follow(node.func.func if isinstance(node.func, ast.Call) else node.func, frame)
        if isinstance(node.func, ast.Call):
            if isinstance(thing, type) and issubclass(thing, Module):
                yield thing
        elif stores.is_module(thing):
            yield type(thing)


def _no_gradient(failure: Failure, match: re.Match[str]) -> Cause | None:
    """``w.grad.zero_()`` of what has no gradient yet."""
    frame = failure.user
    expression = frame.expression() if frame is not None else None
    node = expression.value if isinstance(expression, ast.Attribute) else None
    tensor = operands.follow(node.value, frame) if isinstance(node, ast.Attribute) and node.attr == "grad" and frame is not None else None
    if not isinstance(node, ast.Attribute) or tensor is None or not issubclass(type(tensor), Tensor) or tensor.grad is not None:
        return None
    name = ast.unparse(node.value)
    if not tensor.requires_grad:
        return Cause(
            f"{name}.grad is None: {name} does not require a gradient.",
            "",
            "no gradient",
            (("attribute", match[1]),),
            (Fix("Before it is used:", f"{name}.requires_grad_()"),),
        )
    return Cause(
        f"{name}.grad is None: no backward has reached {name} since it was created, or since its gradient was cleared.",
        "zero_grad sets gradients to None, too." if match[1] != "zero_" else "",
        "no gradient",
        (("attribute", match[1]),),
        (Fix("Ask before:", f"if {name}.grad is not None: {failure.user.source}"),)
        if failure.user is not None and failure.user.source.startswith(f"{name}.grad.")
        else (Fix("Call backward on the loss first."),),
    )


def _hook(failure: Failure, _: re.Match[str]) -> Cause | None:
    """``register_forward_hook(None)``, which torch takes without a word."""
    call, inner = failure.failing, failure.inner
    if call is None or inner is None or not inner.is_torch or not inner.code.co_filename.endswith("module.py"):
        return None
    if "hook" not in inner.names or inner.names["hook"] is not None:
        return None
    held = stores.contents(call.module)
    store = next((name for name in _HOOKS if any(hook is None for hook in (held.get(name) or {}).values())), None)
    if store is None:
        return None
    root = code_fixes.name_of_root(failure)
    return Cause(
        f"A {_HOOKS[store]} of {call.label} is None, which cannot be called.",
        "torch accepts None when you register it, but fails when it runs.",
        "hook is None",
        (),
        (
            Fix("Remove it:", f"modlab.hooks({root}).remove(function='NoneType')"),
            Fix("And register the function itself, not its result:", f"{_REGISTER[store]}(hook)  # not hook(...)"),
        ),
    )


def _spread(failure: Failure, _: re.Match[str]) -> Cause | None:
    """``model(batch)`` with a dict whose keys are names of forward's arguments."""
    root = failure.root
    if root is None or root.args is None or len(root.args) != 1 or root.kwargs or not issubclass(type(root.args[0]), Mapping):
        return None
    try:
        parameters = list(inspect.signature(type(root.module).forward).parameters)[1:]
        keys = [key for key in root.args[0] if type(key) is str]
    except Exception:  # noqa: BLE001 - a mapping, or a class, with a mind of its own
        return None
    if not parameters or parameters[0] not in keys or not set(keys) <= set(parameters):
        return None
    call = failure.call_expression()
    name = ast.unparse(call.args[0]) if call is not None and call.args else "batch"
    code = f"{code_fixes.name_of_root(failure)}(**{name})"
    return Cause(
        f"{root.type} got {format.article(type(root.args[0]).__name__)} as {parameters[0]}, but its members are separate arguments.",
        f"It holds {', '.join(keys[:4])}.",
        f"{parameters[0]} is {format.article(type(root.args[0]).__name__)}",
        (("forward takes", ", ".join(parameters[:6])),),
        (Fix("Two stars pass each under its own name:", code),),
    )


FIRST = (
    Rule("argument", (AttributeError, TypeError, ValueError, KeyError, IndexError), r"", _spread),
    Rule("argument", (AttributeError, TypeError), r"NoneType", _returned),
    Rule("hook", (TypeError,), r"^'NoneType' object is not callable$", _hook),
    Rule("no gradient", (AttributeError,), r"^'NoneType' object has no attribute '(\w+)'", _no_gradient),
)
"""Asked before those that only tell that something is None."""
