"""An alert as a user holds it: with its sentence, and the trace of the step in which a NaN was born."""

from __future__ import annotations

from dataclasses import replace
from typing import Self

from modlab.records import watch
from modlab.records.finding import Finding
from modlab.records.trace import TraceRecord
from modlab.results.worded import FixGround, Worded


class Alert(Worded, watch.Alert):
    """Something that is wrong, or goes wrong, in a run; a finding that may be over again."""

    __slots__ = ()

    @classmethod
    def of(cls, finding: Finding, ground: FixGround | None = None) -> Self:
        """The same alert, with its words and its trace."""
        alert = super().of(finding, ground)
        if not isinstance(alert.trace, TraceRecord):
            return alert
        from modlab.results.trace import Trace  # loaded where something was traced: most runs have no NaN

        return super().of(replace(alert, trace=Trace.of(alert.trace)), ground)
