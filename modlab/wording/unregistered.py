"""Unregistered modules and tensors, in English: why PyTorch does not see them, and what becomes of them."""

from __future__ import annotations

_LOST = "not trained, not moved, not saved"
WAYS = {
    "module": ("set past registration", _LOST),
    "parameter": ("a Parameter set past registration", _LOST),
    "tensor": ("a plain tensor attribute", _LOST),
    "computed": ("has a grad_fn", f"computed once from something else: {_LOST}"),
    "collection": ("in a Python {holder}", _LOST),
    "object": ("in an object of {holder}", _LOST),
    "anew": ("", "computed before each forward ({holder})"),
    "rest": ("", "not listed here, one row for each"),
    "left out": ("", "left out of this output, to keep it small"),
}
"""By the way in which it hangs there: where that is, and what follows."""


def where(way: str, holder: str = "") -> str:
    """Where it is ("in a Python list"); nothing where that needs no saying.

    Args:
        way: a key of `WAYS`.
        holder: the container's name or an object's class; of what is computed anew, what does that ("pruning").
    """
    return WAYS[way][0].format(holder=holder)


def fate(way: str, holder: str = "", cut: int = 0) -> str:
    """What follows from that.

    Args:
        way: as above.
        holder: as above.
        cut: so many members were looked at, of more; 0 if all were.
    """
    more = f" … and more: only the first {cut:,} members were looked at" if cut else ""
    return WAYS[way][1].format(holder=holder) + more


def reason(way: str, holder: str = "", cut: int = 0) -> str:
    """Both, without a full stop.

    >>> reason("collection", "list")
    'in a Python list: not trained, not moved, not saved'
    """
    return ": ".join(filter(None, (where(way, holder), fate(way, holder, cut))))
