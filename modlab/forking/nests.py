"""Nests of arguments and results: the tensors in them, however deep, and the same nest with others in their places."""

from __future__ import annotations

import copy
import dataclasses
from collections import UserDict
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from torch import Tensor
from torch.distributions import Distribution

DEPTH = 8
"""Containers in each other that are opened: one may hold itself."""

_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes})
_BY_ATTRIBUTES = (UserDict, SimpleNamespace, Distribution)


class Nest:
    """Stands on the tape for a container of a class of its own: a packed sequence, what a model gives, a data class.

    Attributes:
        shell: one like it, without what it holds; parts: that.
    """

    __slots__ = ("parts", "shell")

    def __init__(self, thing: Any, parts: list[Any]) -> None:
        self.shell, self.parts = with_parts(thing, [None] * len(parts)), parts


def is_container(thing: Any) -> bool:
    """Whether it can be opened, and made anew with other contents."""
    cls = type(thing)
    if cls in _PLAIN or issubclass(cls, Tensor):
        return False
    return issubclass(cls, (tuple, list, dict, *_BY_ATTRIBUTES)) or (dataclasses.is_dataclass(cls) and hasattr(thing, "__dict__"))


def parts_of(thing: Any) -> list[Any]:
    """What a container holds; a model's output may hold a tensor as an item and as an attribute."""
    cls = type(thing)
    if issubclass(cls, (tuple, list)):
        return [*(tuple if issubclass(cls, tuple) else list).__iter__(thing)]
    items = [*dict.values(thing)] if issubclass(cls, dict) else []
    return [*items, *getattr(thing, "__dict__", {}).values()]


def with_parts(thing: Any, parts: list[Any]) -> Any:
    """A container like this one, with these instead of what it holds."""
    cls: Any = type(thing)
    if issubclass(cls, tuple):
        return cls._make(parts) if hasattr(cls, "_make") else cls(parts)
    made = copy.copy(thing) if issubclass(cls, (list, dict)) else cls.__new__(cls)
    if issubclass(cls, list):
        made[:] = parts
        return made
    keys = [*dict.keys(thing)] if issubclass(cls, dict) else []
    for key, part in zip(keys, parts, strict=False):
        dict.__setitem__(made, key, part)
    for name, part in zip([*getattr(thing, "__dict__", {})], parts[len(keys) :], strict=True):
        made.__dict__[name] = part
    return made


def tensors_in(thing: Any, depth: int = DEPTH) -> Iterator[Tensor]:
    """The tensors in a nest, in order."""
    if issubclass(type(thing), Tensor):
        yield thing
    elif depth and is_container(thing):
        for part in parts_of(thing):
            yield from tensors_in(part, depth - 1)
