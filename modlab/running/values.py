"""What a call takes and gives, however it is nested → its leaves, each with the name of its place."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from types import MemberDescriptorType
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor
from torch.distributions import Distribution

from modlab.records.trace import EventFact

DEPTH = 8
LEAVES = 64
_TEXT = 60
_PLAIN = (type(None), bool, int, float, complex, str, bytes)

EMPTY, OPAQUE, USED_UP, DEEP = map(EventFact, ("empty", "not looked into", "used up", "deep"))
"""Why there is nothing inside of a leaf that is not a tensor."""

Leaf = tuple[str, Any, EventFact | None]
"""The name of a place, what is there, and, if that was not looked into, why."""


def leaves(thing: Any, name: str = "") -> list[Leaf]:
    """The leaves of a nest in order: tensors, and whatever cannot be opened. Nothing is consumed.

    Opens lists, tuples, named tuples (packed sequences among them), dicts, sets, dataclasses and distributions; of other
    containers their own code would have to be run.
    """
    if issubclass(type(thing), Tensor):  # nearly always
        return [(name, thing, None)]
    found = list(islice(_leaves(thing, name, DEPTH), LEAVES + 1))
    if len(found) > LEAVES:
        found[LEAVES] = f"{name}…", None, EventFact("more", {"most": LEAVES})
    return found


def _leaves(thing: Any, name: str, depth: int) -> Iterator[Leaf]:
    cls = type(thing)
    if issubclass(cls, Tensor) or cls in _PLAIN:
        yield name, thing, None
        return
    opened = _opener(cls)
    if opened is None:
        yield name, thing, USED_UP if hasattr(cls, "__next__") else OPAQUE
    elif depth == 0:
        yield name, thing, DEEP
    else:
        try:
            parts = opened(thing)
        except Exception as error:  # noqa: BLE001 - a container of the user's may raise anything
            yield name, thing, EventFact("raises", {"error": type(error).__name__})
            return
        if not parts:
            yield name, thing, EMPTY
        for place, part in parts:
            yield from _leaves(part, name + place, depth - 1)


_Parts = list[tuple[str, Any]]


_Opener = Callable[[Any], _Parts]
_openers: WeakKeyDictionary[type, _Opener | None] = WeakKeyDictionary()


def _opener(cls: type) -> _Opener | None:
    """How the members of an instance are had; None where they cannot be."""
    if cls not in _openers:
        _openers[cls] = _make_opener(cls)
    return _openers[cls]


def _make_opener(cls: type) -> _Opener | None:
    if issubclass(cls, Distribution):
        return _of_distribution
    if issubclass(cls, dict):
        return _of_fields if dataclasses.is_dataclass(cls) else _of_mapping
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return lambda thing: [(f".{field}", part) for field, part in zip(cls._fields, tuple.__iter__(thing), strict=False)]
    if issubclass(cls, (list, tuple)):
        base = list if issubclass(cls, list) else tuple
        return lambda thing: [(f"[{i}]", part) for i, part in enumerate(base.__iter__(thing))]
    if issubclass(cls, (set, frozenset)):
        return lambda thing: [(f"{{{i}}}", part) for i, part in enumerate(sorted(thing, key=lambda part: type(part).__name__))]
    if dataclasses.is_dataclass(cls):
        return _of_fields
    return None


def _of_mapping(thing: dict[Any, Any]) -> _Parts:
    return [(f"[{key!r}]" if type(key) in _PLAIN else f"[{type(key).__name__}]", part) for key, part in dict.items(thing)]


def _of_fields(thing: Any) -> _Parts:
    """A dataclass; of one that is a mapping too (as the outputs of many models are) what is set."""
    parts = [(f".{field.name}", _attribute(thing, field.name)) for field in dataclasses.fields(thing)]
    return [(place, part) for place, part in parts if part is not None] if issubclass(type(thing), dict) else parts


def _of_distribution(thing: Distribution) -> _Parts:
    held = vars(thing)
    constraints: Any = type(thing).arg_constraints
    return [(f".{name}", held[name]) for name in constraints if name in held]


def _attribute(thing: Any, name: str) -> Any:
    """A field as it is stored: a property of the user's in its place is not asked."""
    try:
        held: dict[str, Any] = object.__getattribute__(thing, "__dict__")
    except AttributeError:  # it has slots alone
        held = {}
    if name in held:
        return held[name]
    slot = inspect.getattr_static(type(thing), name, None)
    try:
        return slot.__get__(thing) if type(slot) is MemberDescriptorType else None
    except AttributeError:
        return None


def said(thing: Any) -> str:
    """Anything but a tensor, in words that are the same in each run."""
    cls = type(thing)
    if cls in _PLAIN:
        text = repr(thing)
        return text if len(text) <= _TEXT else f"{text[:_TEXT]}…"
    return cls.__name__


_signatures: WeakKeyDictionary[type, tuple[tuple[str, ...], int]] = WeakKeyDictionary()


def argument_names(cls: type) -> tuple[str, ...]:
    """The names of the positional arguments of a class's ``forward``; a starred one as ``*args``."""
    return _signature(cls)[0]


def positional_alone(cls: type) -> int:
    """With how many positional arguments a class's ``forward`` takes no keyword ones; -1 if it may always take some."""
    return _signature(cls)[1]


def _signature(cls: type) -> tuple[tuple[str, ...], int]:
    found = _signatures.get(cls)
    if found is None:
        found = _signatures[cls] = _read_signature(cls)
    return found


def _read_signature(cls: type) -> tuple[tuple[str, ...], int]:
    try:
        parameters = list(inspect.signature(cls.forward).parameters.values())[1:]  # type: ignore[attr-defined]
    except (TypeError, ValueError, AttributeError):
        return (), -1
    names = []
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            names.append(f"*{parameter.name}")
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
    plain = len(names) == len(parameters) and not any(name.startswith("*") for name in names)
    return tuple(names), len(names) if plain else -1


def arguments(names: tuple[str, ...], args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> list[Leaf]:
    """The leaves of a call's arguments, named as the signature names them."""
    found: list[Leaf] = []
    for name, argument in zip(_places(names, len(args)), args, strict=True):
        if issubclass(type(argument), Tensor):
            found.append((name, argument, None))
        else:
            found += leaves(argument, name)
    if kwargs:
        for name, argument in kwargs.items():
            found += leaves(argument, name)
    return found


@lru_cache(maxsize=1024)
def _places(names: tuple[str, ...], count: int) -> list[str]:
    """What so many positional arguments are called."""
    starred = len(names) - 1 if names and names[-1].startswith("*") else count
    named = [*names[:starred], *(f"[{i}]" for i in range(len(names), starred))][:count]
    return named + [f"{names[-1][1:]}[{i}]" for i in range(count - len(named))]
