"""The code of wrappers, FSDP and DDP, around a model's modules, in hooks and in their own ``forward``: one row for each.

Buffers that they gather into, copies and collectives are not the user's functions: they are not shown or measured.
"""

from __future__ import annotations

from modlab.records.trace import EventFact
from modlab.tracing.calls import Call
from modlab.tracing.event_log import EventLog


class WrapperCode:
    """The rows, by whose they are.

    Args:
        log: where they are written.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._rows: dict[str, Call] = {}

    def begins(self, system: str, now: float) -> Call:
        """Something of it begins: nothing that runs inside is told."""
        call = self._log.begin("hook", "", system, now)
        call.quiet = True
        return call

    def ends(self, call: Call, now: float, error: BaseException | None = None) -> None:
        """It has ended: it joins the row, or is it."""
        self._log.end(call, now, error)
        row = self._rows.setdefault(call.name, call)
        if row is not call and not call.error:
            row.seconds += call.seconds
            self._log.drop(call)
        row.facts = [EventFact("wrapper", {"system": call.name})]

    def meets(self, system: str, now: float) -> None:
        """A function of it was called."""
        if system not in self._rows:
            self.ends(self.begins(system, now), now)
