"""Anything but a module is answered by a sentence that says what to do."""

from __future__ import annotations

import os
from typing import Any

from torch import Tensor
from torch.nn import Module

from modlab import format
from modlab.errors import NotAModuleError
from modlab.inspection import stores


def require_module(thing: Any, function: str, more: str = "") -> Module:
    """`thing`, if it is a module; else an error for what it is. `more` is what else a call of the function needs."""
    if stores.is_module(thing):
        found: Module = thing
        return found
    raise NotAModuleError(f"modlab.{function}() got {described(thing)}, but needs an nn.Module.\n  {_advice(thing, function, more)}")


def described(thing: Any) -> str:
    """What was given, in a few words: "the class Net itself", "a list"."""
    if issubclass(type(thing), type):
        return f"the class {thing.__name__} itself"
    if issubclass(type(thing), (str, os.PathLike)):
        return f"the {'text' if isinstance(thing, str) else 'path'} {os.fspath(thing)[:80]!r}"
    if thing is None:
        return "None"
    name = _attribute(thing, "__name__")
    kind = type(thing).__name__
    return f"the {kind} {name}" if callable(thing) and isinstance(name, str) else format.article(kind)


def _advice(thing: Any, function: str, more: str) -> str:
    cls = type(thing)  # asked instead of the thing, which may lie about its class, or raise
    if issubclass(cls, type) and issubclass(thing, Module):
        return f"Make an instance first: modlab.{function}({thing.__name__}(...){more})"
    if issubclass(cls, (str, os.PathLike)):
        return "For a checkpoint file: modlab.state(path). For a model: build it, load the file into it, and pass the model."
    if issubclass(cls, Tensor):
        return "For one tensor: modlab.measure(tensor)"
    if issubclass(cls, dict) and thing and all(issubclass(type(value), Tensor) for value in dict.values(thing)):
        return (
            "This looks like a state_dict: build the model, model.load_state_dict(...), and pass the model. For a file: modlab.state(path)"
        )
    if _attribute(thing, "param_groups") is not None:
        return f"An optimizer comes second: modlab.{'state' if function == 'tree' else function}(model{more or ', optimizer'})"
    if issubclass(cls, (list, tuple)) and thing and all(stores.is_module(part) for part in thing):
        return f"For several modules: modlab.{function}(nn.ModuleList(modules){more})"
    for name in ("module", "model", "network", "submod"):  # the last of a stage of a pipeline
        if stores.is_module(_attribute(thing, name)):
            return f"Its .{name} is one: modlab.{function}(it.{name}{more})"
    if issubclass(cls, type):
        return f"A {thing.__name__} is not a module. Pass an instance of a subclass of nn.Module."
    if callable(thing):
        return "A function has no parameters of its own. Pass the module it calls, or turn it into one: class Net(nn.Module): ..."
    return f"Pass the model itself: modlab.{function}(model{more})"


def _attribute(thing: Any, name: str) -> Any:
    try:
        return getattr(thing, name, None)
    except Exception:  # noqa: BLE001 - a property of a stranger's object may raise anything
        return None
