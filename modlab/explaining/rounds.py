"""What a loop iterates over, and the round in which it stopped."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import nn

from modlab.explaining.static_evaluation import UNKNOWN, Scope, known, members
from modlab.inspection import stores

_MOST = 10_000  # rounds


class Rounds(NamedTuple):
    """The items that a loop iterates over, in order.

    Attributes:
        members: the item of each round; `UNKNOWN` where it is not known.
        counted: whether there are exactly this many rounds, unless one leaves the loop.
    """

    members: list[Any]
    counted: bool


def of(scope: Scope, node: ast.expr) -> Rounds | None:
    """What a loop over an expression iterates over; None if unknown."""
    if isinstance(node, ast.Call):
        return _called(scope, node)
    found = members(known(scope, node))
    return None if found is None else Rounds(found, True)


def _called(scope: Scope, node: ast.Call) -> Rounds | None:
    name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr if isinstance(node.func, ast.Attribute) else ""
    if isinstance(node.func, ast.Attribute):
        return _of_dict(known(scope, node.func.value), name) if not node.args and not node.keywords else None
    if name in scope.globals or name in scope.body.written or any(isinstance(part, ast.Starred) for part in node.args):
        return None
    if name == "range":
        ends = [known(scope, part) for part in node.args]
        whole = 0 < len(ends) < 4 and all(type(end) is int for end in ends) and (len(ends) < 3 or ends[2] != 0)
        return Rounds(list(range(*ends)[:_MOST]), True) if whole and not node.keywords else None
    parts = [of(scope, part) for part in node.args]
    if name == "zip" and any(parts):
        return _zipped(parts)
    first = parts[0] if parts else None
    if first is None:
        return None
    if name == "enumerate":
        start = next((known(scope, part) for part in (*node.args[1:], *(k.value for k in node.keywords))), 0)
        return Rounds([(start + i, one) for i, one in enumerate(first.members)], first.counted) if type(start) is int else None
    if name == "reversed" and first.counted:
        return Rounds(first.members[::-1], True)
    return first if name in ("list", "tuple", "iter") and len(parts) == 1 else None


def _of_dict(thing: Any, way: str) -> Rounds | None:
    if way not in ("items", "values", "keys"):
        return None
    if type(thing) is dict:
        pairs = list(thing.items())
    elif type(thing) is nn.ModuleDict:
        pairs = list(stores.named_children(thing))
    else:
        return None
    return Rounds([pair if way == "items" else pair[way == "values"] for pair in pairs], True)


def _zipped(parts: list[Rounds | None]) -> Rounds:
    """As many rounds as the shortest part has, or at most that many if one is unknown."""
    length = min(len(part.members) for part in parts if part is not None)
    rows = [tuple(part.members[i] if part is not None else UNKNOWN for part in parts) for i in range(length)]
    return Rounds(rows, all(part is not None and part.counted for part in parts))


def bound(target: ast.expr, member: Any) -> list[tuple[str, Any]]:
    """The names of a target, each with its value in a round."""
    if isinstance(target, ast.Name):
        return [(target.id, member)]
    if not isinstance(target, (ast.Tuple, ast.List)):
        return []
    parts = None if member is UNKNOWN else members(member)
    if parts is None or len(parts) != len(target.elts) or any(isinstance(part, ast.Starred) for part in target.elts):
        parts = [UNKNOWN] * len(target.elts)
    return [pair for part, inner in zip(target.elts, parts, strict=True) for pair in bound(part, inner)]


def reached(rounds: Rounds, target: ast.expr, names: Mapping[str, Any], rewritten: frozenset[str]) -> list[int]:
    """The rounds that a loop may have been in, judged by its names; all of them if the names show nothing."""
    return [
        number
        for number, member in enumerate(rounds.members)
        if all(name in rewritten or name not in names or _is_same(thing, names[name]) for name, thing in bound(target, member))
    ]


def _is_same(thing: Any, now: Any) -> bool:
    if thing is UNKNOWN or thing is now:
        return True
    return type(thing) in (int, str, float) and type(thing) is type(now) and bool(thing == now)
