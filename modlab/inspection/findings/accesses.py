"""Accesses: what the code of a module does with one of its attributes, its constructor apart."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from torch.nn import Module

from modlab.inspection import stores

_MAKING = ("__init__", "__setstate__", "__new__")
_READING = ("LOAD_ATTR", "LOAD_METHOD")


class Access(NamedTuple):
    """What all of them together do.

    Attributes:
        written: a method or hook assigns it.
        read: a method or hook reads it before it assigns it, and so what was there already.
    """

    written: bool
    read: bool


def access(module: Module, name: str) -> Access:
    """How the methods of its class and its hooks use an attribute."""
    found = [_first(code, name) for code in _codes(module)]
    return Access(any(written for written, _ in found), any(read for _, read in found))


def _codes(module: Module) -> Iterator[CodeType]:
    for cls in type(module).__mro__:
        if cls is Module:
            break
        yield from (thing.__code__ for key, thing in vars(cls).items() if type(thing) is FunctionType and key not in _MAKING)
    held = stores.contents(module)
    for store in stores.HOOKS:
        hooks: Any = held.get(store)
        for hook in [*hooks.values()] if issubclass(type(hooks), dict) else ():
            function = getattr(hook, "__func__", hook) if type(hook).__name__ == "method" else hook
            if type(function) is FunctionType:
                yield function.__code__


@lru_cache(maxsize=4096)
def _first(code: CodeType, name: str) -> Access:
    """Whether a function assigns the attribute, and whether it reads it before."""
    steps = [step.opname for step in dis.get_instructions(code) if step.argval == name and step.opname in ("STORE_ATTR", *_READING)]
    inner = [_first(const, name) for const in code.co_consts if type(const) is CodeType]
    written = "STORE_ATTR" in steps or any(one.written for one in inner)
    return Access(written, (bool(steps) and steps[0] in _READING) or (not steps and any(one.read for one in inner)))
