"""Closures of functions that a model holds: `copy.deepcopy` copies no functions, so in a copy they refer to the original."""

from __future__ import annotations

from functools import partial
from types import CellType, FunctionType, MethodType
from typing import Any

from torch.nn import Module

DEPTH = 5
"""Functions that refer to functions, and lists in each other, that are followed."""

Memo = dict[int, Any]
"""What each thing has become in a copy, by identity."""


def rebind(memo: Memo) -> None:
    """Have the functions that modules hold (a ``forward`` that was replaced, hooks) refer to the copies."""
    for made in [*memo.values()]:
        if issubclass(type(made), Module):
            held = object.__getattribute__(made, "__dict__")
            _rebind(held, memo)
            for value in held.values():
                if issubclass(type(value), dict):  # stores of hooks
                    _rebind(value, memo)


def _rebind(held: dict[Any, Any], memo: Memo) -> None:
    for name, value in held.items():
        if type(value) in (FunctionType, MethodType, partial):
            held[name] = rebound(value, memo)


def rebound(thing: Any, memo: Memo, depth: int = DEPTH) -> Any:
    """The same, with copies in the places of originals; what refers to no original is given back as it is."""
    if id(thing) in memo:
        return memo[id(thing)]
    cls = type(thing)
    if not depth:
        return thing
    if cls is FunctionType:
        return _function(thing, memo, depth - 1)
    if cls is MethodType:
        before = [thing.__func__, thing.__self__]
        after = _each(before, memo, depth - 1)
        return thing if _are_same(before, after) else MethodType(*after)
    if cls is partial:
        before = [thing.func, thing.args, thing.keywords]
        function, args, keywords = after = _each(before, memo, depth - 1)
        return thing if _are_same(before, after) else partial(function, *args, **keywords)
    if cls in (list, tuple):
        parts = _each([*thing], memo, depth - 1)
        return thing if _are_same([*thing], parts) else cls(parts)
    if cls is dict:
        parts = _each([*thing.values()], memo, depth - 1)
        return thing if _are_same([*thing.values()], parts) else dict(zip(thing, parts, strict=True))
    return thing


def _each(parts: list[Any], memo: Memo, depth: int) -> list[Any]:
    return [rebound(one, memo, depth) for one in parts]


def _are_same(before: list[Any], after: list[Any]) -> bool:
    return all(one is other for one, other in zip(before, after, strict=True))


def _function(thing: FunctionType, memo: Memo, depth: int) -> FunctionType:
    cells = [*(thing.__closure__ or ())]
    known = [_cell(one, memo, depth) for one in cells]
    before = [thing.__defaults__, thing.__kwdefaults__]
    defaults, by_name = after = _each(before, memo, depth)
    if _are_same(cells, known) and _are_same(before, after):
        return thing
    made = FunctionType(thing.__code__, thing.__globals__, thing.__name__, defaults, tuple(known) or None)
    made.__kwdefaults__ = by_name
    made.__dict__.update(thing.__dict__)
    return made


def _cell(cell: CellType, memo: Memo, depth: int) -> CellType:
    try:
        held = cell.cell_contents
    except ValueError:  # nothing in it yet
        return cell
    now = rebound(held, memo, depth)
    return cell if now is held else CellType(now)
