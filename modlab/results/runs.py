"""Two watched runs side by side. Made by ``w.compare(other)``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from modlab.records.watch import Entry, WatchRecord
from modlab.results.rows import RowsResult
from modlab.views.sheets import runs
from modlab.views.sheets.layout import Sheet


class Runs(RowsResult):
    """How one run differs from another: losses, alerts, and each layer at the end."""

    kind: ClassVar[str] = "runs"
    code: ClassVar[str] = "w.compare(other)"

    def __init__(self, here: WatchRecord, there: WatchRecord, entries: Sequence[Entry]) -> None:
        super().__init__()
        self.record = here, there
        self._entries = entries

    @property
    def records(self) -> Sequence[Entry]:
        """The entries of the first run's history, then those of the second one's."""
        return self._entries

    def _sheet(self) -> Sheet:
        return runs.of_runs(*self.record)
