"""Overwritten methods: ``net.train = False``, and then ``net.train()``."""

from __future__ import annotations

import ast
import inspect
import re
from typing import Any

from torch.nn import Module

from modlab.explaining import code_fixes, operands
from modlab.explaining.failure import Cause, Failure, Rule
from modlab.inspection import stores
from modlab.records.explanation import Fix


def _covered(failure: Failure, match: re.Match[str]) -> Cause | None:
    frame = failure.inner
    call = frame.expression() if frame is not None else None
    if frame is None or not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    name, module = call.func.attr, operands.follow(call.func.value, frame)
    if not stores.is_module(module) or not _is_method(module, name):
        return None
    value = stores.contents(module).get(name, frame)
    if type(value).__name__ != match[1] or callable(value):
        return None
    place = ast.unparse(call.func.value) if frame.is_users else code_fixes.name_of_module(failure, module)
    written = repr(value) if type(value) in (bool, int, float, str) else f"a {type(value).__name__}"
    mode = f"It does not change the mode: {place}.train(False) or {place}.eval() does." if name in ("train", "eval") else ""
    return Cause(
        f"{place}.{name} is {written}, no longer a method.",
        f"It was assigned. {mode}".strip(),
        f"{name} is {written}",
        ((f"{place}.{name}", written), ("expected", "the method")),
        (Fix("Delete it, and the method is back:", f"del {place}.{name}"),),
    )


def _is_method(module: Module, name: str) -> bool:
    held: Any = next((vars(base)[name] for base in type(module).__mro__ if name in vars(base)), None)
    return inspect.isfunction(held)


RULES = (Rule("covered method", (TypeError,), r"^'(\w+)' object is not callable", _covered),)
