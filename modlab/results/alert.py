"""An alert as a user holds it: with its sentence, and the trace of the step in which a NaN was born."""

from __future__ import annotations

from dataclasses import fields

from modlab import wording
from modlab.records import watch
from modlab.records.trace import TraceRecord
from modlab.results.trace import Trace


class Alert(watch.Alert):
    """Something that is wrong, or goes wrong, in a run; a finding that may be over again."""

    __slots__ = ()

    @classmethod
    def of(cls, alert: watch.Alert) -> Alert:
        """The same alert, with its words and its trace."""
        held = {one.name: getattr(alert, one.name) for one in fields(alert)}
        return cls(**{**held, "trace": Trace.of(alert.trace) if isinstance(alert.trace, TraceRecord) else alert.trace})

    @property
    def text(self) -> str:
        """A sentence, with the evidence."""
        return wording.said(self)

    @property
    def fix(self) -> str:
        """Code or advice; nothing if there is none."""
        return wording.fix(self)
