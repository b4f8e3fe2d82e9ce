"""Which curve of a watch is the loss: one rule for the verdict, the headline, the figure and the page."""

from __future__ import annotations

import re

from modlab.records.watch import ScalarRecord, WatchRecord

_HELD_OUT = re.compile(r"(?:^|[^a-z])(?:val|valid|validation|test|eval|dev)(?:[^a-z]|$)")
_WHOLE = re.compile(r"train|total")


def is_held_out(name: str) -> bool:
    """Whether a curve of that name is of data that is not trained on.

    >>> [is_held_out(one) for one in ("val_loss", "loss/test", "evaluate", "latest")]
    [True, True, False, False]
    """
    return _HELD_OUT.search(name.lower()) is not None


def losses(record: WatchRecord) -> tuple[ScalarRecord, ...]:
    """The curve that is the loss; several if nothing tells which of them is.

    What ``backward()`` was called on is; of several such the one that the user logs as the loss. Where none was seen, the names tell. Of
    losses that optimizers of their own step none is the loss, whatever a variable is called.
    """
    found = [one for one in record.scalars if one.kind == "loss" and one.count]
    if len(found) == 1:
        return (found[0],)
    loop = record.watched.clues.loop
    apart = bool(found) and len(loop.optimizers) > 1 and not loop.shared
    kinds = ("logged", "validation") if apart else ("logged", "loss", "validation")
    named = [one for one in record.scalars if one.kind in kinds and "loss" in one.name.lower()]
    trained = [one for one in named if not is_held_out(one.name)]
    for some in (
        [one for one in trained if one.name.lower() == "loss"],
        [one for one in trained if _WHOLE.search(one.name.lower())],
    ):
        if some:
            return (some[0],)
    return tuple(found or trained or named)


def the_loss(record: WatchRecord) -> ScalarRecord | None:
    """The curve that is the loss, if there is one."""
    some = losses(record)
    return some[0] if len(some) == 1 else None
