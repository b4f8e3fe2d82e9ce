"""Signatures: arguments that a layer's constructor, or a method of the user's, was not given."""

from __future__ import annotations

import ast
import inspect
import re
from typing import Any

from torch.nn import Module

from modlab.explaining import code_fixes, operands
from modlab.explaining.failure import Cause, Failure, Rule
from modlab.explaining.frames import Frame
from modlab.inspection import stores
from modlab.records.explanation import Fix


def _missing(failure: Failure, match: re.Match[str]) -> Cause | None:
    found = _called(failure, match[2])
    if found is None:
        return None
    call, function, kind = found
    lacking = re.findall(r"'(\w+)'", match[3])
    needed = code_fixes.parameters_of(function)
    needed = needed if kind else [*needed[1:]]
    if not lacking or not set(lacking) <= set(needed):
        return None
    name = f"nn.{kind}" if kind and _is_torchs(function) else kind or match[2]
    are = "is" if len(lacking) == 1 else "are"
    more = "".join(f"{', ' if i or call.args or call.keywords else ''}{one}=..." for i, one in enumerate(lacking))
    written = ast.unparse(call)
    return Cause(
        f"{name} takes {_listed(needed)}; {_listed(lacking)} {are} missing.",
        f"It was called as {written}." if len(written) < 100 else "",
        f"{_listed(lacking)} missing",
        (("takes", ", ".join(needed)),),
        (Fix("Pass what is missing:", f"{written[:-1]}{more})"),),
    )


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _is_torchs(cls: Any) -> bool:
    return isinstance(cls, type) and cls.__module__.startswith("torch.nn.modules.")


def _called(failure: Failure, name: str) -> tuple[ast.Call, Any, str] | None:
    """The call that failed; the class that it makes something of with its name, or the method."""
    frame = failure.inner
    call = frame.expression() if frame is not None and frame.is_users else None
    if frame is None or not isinstance(call, ast.Call):
        return None
    thing = operands.follow(call.func, frame)
    if name == "__init__":
        return (call, thing, thing.__name__) if isinstance(thing, type) and issubclass(thing, Module) else None
    method = _method(call.func, frame, name)
    return None if method is None else (call, method, "")


def _method(node: ast.expr, frame: Frame, name: str) -> Any:
    if not isinstance(node, ast.Attribute) or node.attr != name:
        return None
    owner = operands.follow(node.value, frame)
    if not stores.is_module(owner):
        return None
    found = next((vars(cls)[name] for cls in type(owner).__mro__ if name in vars(cls)), None)
    return found if inspect.isfunction(found) and not str(found.__module__).startswith("torch.") else None


RULES = (
    Rule("argument", (TypeError,), r"^([\w.<>]+\.)?(?!forward\b)(\w+)\(\) missing \d+ required positional arguments?: (.+)$", _missing),
)
