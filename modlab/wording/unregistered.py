"""Unregistered modules and tensors, in English: why PyTorch does not see them, and what follows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Facts = Mapping[str, Any]

_LOST = "not trained, not moved, not saved"
WAYS = {
    "module": ("set without registering it", _LOST),
    "parameter": ("a Parameter set without registering it", _LOST),
    "tensor": ("a plain tensor attribute", _LOST),
    "computed": ("has a grad_fn", f"computed once from something else: {_LOST}"),
    "collection": ("in a Python {holder}", _LOST),
    "object": ("in an object of {holder}", _LOST),
    "anew": ("", "recomputed before each forward ({holder})"),
    "rest": ("", "not listed here one by one"),
    "left out": ("", "left out to keep this output small"),
}
"""By the way it is held: where that is, and what follows."""


def where(way: str, holder: str = "") -> str:
    """Where it is ("in a Python list"); empty where that goes without saying.

    Args:
        way: a key of `WAYS`.
        holder: the container's name or an object's class; for a tensor that is recomputed, what recomputes it ("pruning").
    """
    return WAYS[way][0].format(holder=holder)


def fate(way: str, holder: str = "", cut: int = 0) -> str:
    """What follows from that.

    Args:
        way: as above.
        holder: as above.
        cut: how many members were looked at, if there are more; 0 if all were.
    """
    more = f" … and more: only the first {cut:,} members were looked at" if cut else ""
    return WAYS[way][1].format(holder=holder) + more


def reason(way: str, holder: str = "", cut: int = 0) -> str:
    """Both, without a full stop.

    >>> reason("collection", "list")
    'in a Python list: not trained, not moved, not saved'
    """
    return ": ".join(filter(None, (where(way, holder), fate(way, holder, cut))))


def hidden(facts: Facts) -> str:
    """Where something is hidden, and what follows."""
    many = facts["hidden"] > 1
    place = "set without registering it" if facts["where"] == "past registration" else f"hidden {facts['where']}"
    return f"{'are' if many else 'is'} {place}{_FATES[facts['fate']](facts, many)}"


_FATES: Mapping[str, Callable[[Facts, bool], str]] = {
    "held": lambda facts, many: f": trained by {facts['optimizer']}, but not moved or saved",
    "left": lambda facts, many: ": not moved, not saved",
    "lost": lambda facts, many: f": {'they are' if many else 'it is'} not trained, moved or saved",
    "drops": lambda facts, many: ": eval() does not reach it, so it keeps dropping",
    "mode": lambda facts, many: ": train() and eval() do not reach it, and the tree does not show it",
}
