"""``@frozen``: ``@dataclass(frozen=True, slots=True)``, made in a quarter of the time.

`dataclasses` compiles six methods for each class, which takes most of a millisecond; a first call makes 25 to 90 classes of records.
Here only ``__init__`` is compiled, and all classes share the others. For `fields`, `replace`, `asdict`, `match`, pickle and copy they are
dataclasses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from functools import partial
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, NoReturn, dataclass_transform

_set = object.__setattr__


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: Any = None, /, *, eq: bool = True, repr: bool = True, weakref_slot: bool = False) -> Any:
    """A class of records: its annotations are fields, and nothing is assigned to them afterwards.

    Args:
        cls: the class; without one, this gives the decorator.
        eq: two of it are equal where their fields are; else where they are one object.
        repr: it shows its fields.
        weakref_slot: it can be referred to weakly.
    """
    if cls is None:
        return partial(frozen, eq=eq, repr=repr, weakref_slot=weakref_slot)
    own = {*vars(cls)}
    made = dataclass(init=False, repr=False, eq=False, slots=True, weakref_slot=weakref_slot)(cls)
    made.__init__ = _init(made)
    methods = _FIXED | (_equal(made) if eq else {}) | ({"__repr__": _repr} if repr else {})
    for name in methods.keys() - own:
        setattr(made, name, methods[name])
    return made


def _init(cls: Any) -> Callable[..., None]:
    scope: dict[str, Any] = {"set": _set, "MISSING": MISSING}
    given, lines = [], []
    for one in fields(cls):
        value = one.name
        if one.default is not MISSING:
            scope[f"_{one.name}"] = one.default
            given.append(f"{one.name}=_{one.name}")
        elif one.default_factory is not MISSING:
            scope[f"_{one.name}"] = one.default_factory
            given.append(f"{one.name}=MISSING")
            value = f"_{one.name}() if {one.name} is MISSING else {one.name}"
        else:
            given.append(one.name)
        lines.append(f" set(self, {one.name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    exec(f"def __init__(self, {', '.join(given)}):\n" + "\n".join(lines or [" pass"]), scope)
    init: Callable[..., None] = scope["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {one.name: one.type for one in fields(cls)} | {"return": None}
    return init


def _equal(cls: Any) -> dict[str, Callable[..., Any]]:
    names = [one.name for one in fields(cls)]
    values: Callable[[Any], Any] = attrgetter(*names) if len(names) > 1 else lambda self: tuple(getattr(self, name) for name in names)

    def __eq__(self: Any, other: object) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(values(self))

    return {"__eq__": __eq__, "__hash__": __hash__}


@recursive_repr()
def _repr(self: Any) -> str:
    return f"{type(self).__qualname__}({', '.join(f'{one.name}={getattr(self, one.name)!r}' for one in fields(self) if one.repr)})"


def _refuse(self: Any, name: str, *value: Any) -> NoReturn:
    raise FrozenInstanceError(f"cannot {'assign to' if value else 'delete'} field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for one, value in zip(fields(self), state, strict=True):
        _set(self, one.name, value)


_FIXED = {"__setattr__": _refuse, "__delattr__": _refuse, "__getstate__": _state, "__setstate__": _set_state}
