"""The card of ``finding.explain()``: what a finding rests on, what it means, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from modlab.records.finding import Finding
from modlab.results.rows import RowsResult
from modlab.views.findings import as_data
from modlab.views.sheets import card
from modlab.views.sheets.layout import Sheet
from modlab.wording import cards


class FindingCard(RowsResult):
    """One finding, explained. Made by ``.explain()`` of a finding, a check or an alert."""

    kind: ClassVar[str] = "finding"

    def __init__(self, finding: Finding) -> None:
        super().__init__()
        self.record = finding

    @property
    def records(self) -> Sequence[Finding]:
        """The finding itself."""
        return (self.record,)

    def _row(self, record: Finding) -> dict[str, Any]:
        return {**as_data(record), "reason": cards.means(record)}

    def _sheet(self) -> Sheet:
        return card.of_finding(self.record)
