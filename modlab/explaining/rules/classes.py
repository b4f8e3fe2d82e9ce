"""A class taken for a model: ``Net(x)``, ``Net.forward(x)``."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from typing import Any

from torch import Tensor, nn
from torch.nn import Module

from modlab.explaining import code_fixes, operands, source_code
from modlab.explaining.failure import Cause, Failure, Rule
from modlab.explaining.frames import Frame
from modlab.records.explanation import Fix


def _class(frame: Frame) -> tuple[type, ast.Call] | None:
    """The class of modules that an expression calls, or has a method of called."""
    call = frame.expression()
    if not isinstance(call, ast.Call):
        return None
    node = call.func
    found = operands.follow(node, frame)
    if not isinstance(found, type) and isinstance(node, ast.Attribute):
        found = operands.follow(node.value, frame)
    if found is nn or not (isinstance(found, type) and issubclass(found, Module)):
        found = getattr(nn, node.attr, None) if isinstance(node, ast.Attribute) and operands.follow(node.value, frame) is nn else None
    return (found, call) if isinstance(found, type) and issubclass(found, Module) else None


def _made_first(frame: Frame | None, call: ast.Call, maker: str) -> str:
    """The statement with ``nn.MSELoss()(out, y)`` in it, where the constructor needs nothing."""
    if frame is None or "..." in maker:
        return ""
    made = ast.Call(ast.parse(maker, mode="eval").body, call.args, call.keywords)
    line = source_code.rewritten(frame, call, made)
    return line if line != ast.unparse(made) else ""


def _made_of_tensors(failure: Failure, _: re.Match[str]) -> Cause | None:
    """``Net(x)``: the constructor got the arguments meant for the model."""
    found = _constructed(failure)
    if found is None:
        return None
    frame, words = found
    made = _class(frame)
    if made is None:
        return None
    cls, call = made
    if re.search(r"Boolean|missing", failure.brief) and not cls.__module__.startswith("torch.nn."):
        return None  # a class of the user's may well take tensors
    written, name = ast.unparse(call.func), cls.__name__
    given = ", ".join(map(ast.unparse, call.args))
    maker = f"{written if '.' in written else name}({'...' if code_fixes.parameters(cls) else ''})"
    return Cause(
        f"{written}({given}) makes a new {name} instead of calling one: {words}.",
        f"A constructor takes sizes and options; the {name} it makes takes the tensors.",
        "",
        (("given to the constructor", given),),
        (Fix("Make it first, then call it:", _made_first(frame, call, maker) or f"model = {maker}\nmodel({given})"),),
    )


def _constructed(failure: Failure) -> tuple[Frame, str] | None:
    """The code that gave tensors to a constructor of modules, the outermost one; and what became of them."""
    for caller, frame in pairwise(failure.frames):
        if frame.function == "__init__" and frame.owner is not None and caller.is_users:
            names = frame.code.co_varnames[1 : frame.code.co_argcount]
            tensor = next((name for name in names if _is_plain(frame.names.get(name))), None)
            if tensor is not None:
                return caller, f"a tensor became its {tensor}"
    inner = failure.inner
    call = inner.expression() if inner is not None and inner.is_users else None
    if (
        inner is None
        or not isinstance(call, ast.Call)
        or not any(_is_plain(operands.follow(one, inner)) or _is_made(one) for one in call.args)
    ):
        return None
    return inner, "a tensor went to its constructor"


def _is_plain(thing: Any) -> bool:
    return issubclass(type(thing), Tensor) and not issubclass(type(thing), nn.Parameter)


def _is_made(node: ast.expr) -> bool:
    """Whether an argument is one of torch's functions that give a tensor."""
    return isinstance(node, ast.Call) and ast.unparse(node.func) in (
        "torch.randn",
        "torch.rand",
        "torch.zeros",
        "torch.ones",
        "torch.tensor",
    )


def _of_class(failure: Failure, match: re.Match[str]) -> Cause | None:
    """``Net.forward(x)`` and ``Net.parameters()``: a method of the class, called without a model."""
    frame = failure.inner
    found = _class(frame) if frame is not None and frame.is_users else None
    if found is None or not isinstance(found[1].func, ast.Attribute) or found[1].func.attr != match[1]:
        return None
    cls, call = found
    given = ", ".join(map(ast.unparse, call.args))
    written = f"model({given})" if match[1] == "forward" else f"model.{match[1]}({given})"
    needed = code_fixes.parameters(cls)
    return Cause(
        f"{ast.unparse(call.func)} is called on the class, not on a model.",
        f"Models are made from {cls.__name__}.",
        "",
        (("class", cls.__name__), ("method", match[1])),
        (Fix("Make one first:", f"model = {cls.__name__}({'...' if needed else ''})\n{written}"),),
    )


RULES = (
    Rule(
        "class called",
        (TypeError, RuntimeError, ValueError),
        r"__init__\(\) (?:takes (?:from )?1 |missing)|argument 'size'.*Tensor|Boolean value of Tensor|must be \w+, not Tensor",
        _made_of_tensors,
    ),
    Rule("class called", (TypeError,), r"\w+\.(\w+)\(\) missing \d+ required positional arguments?", _of_class),
)
