"""Pending events: a trace that has ended, before anybody has read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from modlab.records.trace import TraceRecord, Uncalled
from modlab.tracing.calls import Call
from modlab.tracing.reasons import Told, reason


@dataclass(frozen=True)
class PendingEvents:
    """All that makes a `TraceRecord`; nothing of the model. The records of events and values are made when they are asked for.

    Attributes:
        calls: the events; `origin` is the second at which the clock began.
        told: what makes the reasons.
        facts: further arguments of the record.
    """

    title: str
    modules: int
    calls: Sequence[Call]
    origin: float
    told: Sequence[Told]
    facts: dict[str, object] = field(default_factory=dict)
    uncalled: tuple[Uncalled, ...] = ()

    def record(self) -> TraceRecord:
        """The record."""
        events = tuple(call.freeze(self.origin) for call in self.calls)
        reasons = tuple(map(reason, self.told))
        return TraceRecord(self.title, self.modules, events, self.uncalled, reasons, **self.facts)  # type: ignore[arg-type]
