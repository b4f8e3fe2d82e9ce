"""The leaves of a call's inputs and outputs, however nested, each named by its position."""

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
from torch.nn import Module

from modlab.records.trace import EventFact

DEPTH = 8
LEAVES = 64
_TEXT = 60
_PLAIN = (type(None), bool, int, float, complex, str, bytes)

EMPTY, OPAQUE, USED_UP, DEEP = map(EventFact, ("empty", "not looked into", "used up", "deep"))
"""Why a leaf that is not a tensor has no contents."""

Leaf = tuple[str, Any, EventFact | None]
"""The name of the position, the value, and why it was not read, if so."""


def mapped(thing: Any, change: Callable[[Tensor], Tensor], depth: int = DEPTH) -> Any:
    """The same nest with each tensor replaced; anything but tensors, lists, tuples and dicts is kept as it is."""
    if issubclass(type(thing), Tensor):
        return change(thing)
    if depth == 0:
        return thing
    if type(thing) in (list, tuple):
        return type(thing)(mapped(part, change, depth - 1) for part in thing)
    if issubclass(type(thing), tuple) and hasattr(thing, "_fields"):
        return type(thing)(*(mapped(part, change, depth - 1) for part in thing))
    if type(thing) is dict:
        return {key: mapped(part, change, depth - 1) for key, part in thing.items()}
    return thing


def leaves(thing: Any, name: str = "") -> list[Leaf]:
    """The leaves of a nest in order: tensors, and whatever cannot be opened. Nothing is consumed.

    Opens lists, tuples, named tuples (including packed sequences), dicts, sets, dataclasses and distributions; other containers
    could only be opened by running their own code.
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
        except Exception as error:  # noqa: BLE001 - a user's container may raise anything
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
    """The function that returns an instance's members; None if there is none."""
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
    """The fields of a dataclass; only those that are set if it is also a mapping (as many model outputs are)."""
    parts = [(f".{field.name}", _attribute(thing, field.name)) for field in dataclasses.fields(thing)]
    return [(place, part) for place, part in parts if part is not None] if issubclass(type(thing), dict) else parts


def _of_distribution(thing: Distribution) -> _Parts:
    held = vars(thing)
    constraints: Any = type(thing).arg_constraints
    return [(f".{name}", held[name]) for name in constraints if name in held]


def _attribute(thing: Any, name: str) -> Any:
    """A field as stored, bypassing a user's property of the same name."""
    try:
        held: dict[str, Any] = object.__getattribute__(thing, "__dict__")
    except AttributeError:  # it has only slots
        held = {}
    if name in held:
        return held[name]
    slot = inspect.getattr_static(type(thing), name, None)
    try:
        return slot.__get__(thing) if type(slot) is MemberDescriptorType else None
    except AttributeError:
        return None


def said(thing: Any) -> str:
    """Anything but a tensor, in words that are the same in every run."""
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
    """The number of positional arguments that leaves no room for keyword arguments in a class's ``forward``; -1 if there is always room."""
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
    """The leaves of a call's arguments, named as in the signature."""
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
    """The names of this many positional arguments."""
    starred = len(names) - 1 if names and names[-1].startswith("*") else count
    named = [*names[:starred], *(f"[{i}]" for i in range(len(names), starred))][:count]
    return named + [f"{names[-1][1:]}[{i}]" for i in range(count - len(named))]


def named_inputs(model: Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """The arguments of a call by their names in ``forward``; None where not all of them can be given by name."""
    try:
        bound = inspect.signature(model.forward).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return None
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY):
            return None
        named |= value if kind is inspect.Parameter.VAR_KEYWORD else {name: value}
    return named
