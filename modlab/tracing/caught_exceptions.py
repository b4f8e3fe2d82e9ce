"""Exceptions that did not end the trace: which event raised, and who caught it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from modlab.records.structure import ROOT
from modlab.tracing.calls import Call


class CaughtException(NamedTuple):
    """An exception that was caught: the outermost event that it ended, and by whom; nothing where that was outside of the model."""

    call: Call
    by: str


def rescue(calls: Sequence[Call], raised: Call, ended: str, running: Collection[Call]) -> CaughtException | None:
    """Who caught what an event raised; None if nobody did, or where that is not known yet.

    Args:
        calls: all events.
        raised: one that raised.
        ended: the exception that ended the trace, or nothing if none did; something as long as that is not known.
        running: events that have not ended.
    """
    outer, above = raised, _above(calls, raised)
    while above is not None and above.error:
        outer, above = above, _above(calls, above)
    if above is not None:
        return None if above in running else CaughtException(outer, _name(above))
    if ended and not any(call.parent < 0 and call.index > outer.index for call in calls[outer.index + 1 :]):
        return None
    return CaughtException(outer, "")


def rescues(calls: Sequence[Call], ended: str, running: Collection[Call]) -> Iterator[CaughtException]:
    """All of a trace, one for each exception."""
    for call in calls:
        above = _above(calls, call) if call.error else None
        if call.error and (above is None or not above.error):
            found = rescue(calls, call, ended, running)
            if found is not None:
                yield found


def in_vain(calls: Sequence[Call]) -> dict[int, int]:
    """How often each module raised, by identity, of those that did nothing else."""
    found: dict[int, int] = {}
    well = {call.module for call in calls if call.kind == "module" and not call.error}
    for call in calls:
        if call.kind == "module" and call.module not in well:
            found[call.module] = found.get(call.module, 0) + 1
    return found


def _above(calls: Sequence[Call], call: Call) -> Call | None:
    """The event in whose code an exception comes up next: what a hook raises leaves the call that it is a stage of."""
    found = calls[call.parent] if call.parent >= 0 else None
    if call.kind == "hook" and found is not None and found.kind == "module" and not found.error:
        return calls[found.parent] if found.parent >= 0 else None
    return found


def _name(call: Call) -> str:
    return call.name if call.path is None or call.kind not in ("module", "function") else call.path or ROOT
