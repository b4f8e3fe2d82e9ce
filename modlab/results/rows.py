"""A result whose view is rows with columns and details: it describes itself as one sheet, and all faces follow."""

from __future__ import annotations

from typing import Any, ClassVar

from modlab.errors import ModlabError
from modlab.results.result import Result
from modlab.version import __version__
from modlab.views.sheets import text
from modlab.views.sheets.layout import Sheet

SHOWN = 4000
"""Rows that an output at rest may hold; the widget has all."""


class RowsResult(Result):
    """The faces of a sheet. A subclass has a `kind`, `records`, and makes its `_sheet`."""

    code: ClassVar[str] = ""
    """The call that makes this view, which a click copies."""

    def _sheet(self) -> Sheet:
        raise NotImplementedError

    def _fingerprint(self) -> str:
        """Of the model's structure, so that views on one page share a selection; empty where there is no one model."""
        return ""

    def _drawn(self) -> Sheet:
        """The sheet, made once for each record."""
        record = getattr(self, "record", None)
        if record is None:
            return self._sheet()
        known = self.__dict__.get("_known")
        if known is None or known[0] is not record:
            known = self._known = record, self._sheet()
        sheet: Sheet = known[1]
        return sheet

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_known"}

    def _sentence(self) -> tuple[str, str]:
        return self._drawn().sentence

    def _text(self) -> str:
        return text.of_sheet(self._drawn())

    def _static(self) -> str:
        from modlab.views.sheets import html  # as in `Result.html`

        return html.of_sheet(self._drawn())

    def _fitting_payload(self) -> bytes:
        from modlab.views import html

        return html.within_budget(lambda rows: self._payload(limit=rows), min(len(self._drawn().rows), SHOWN))

    def _payload(self, *, live: bool = False, limit: int | None = None) -> bytes:
        from modlab.views.sheets import payload

        return payload.of_sheet(self._drawn(), self._fingerprint(), self.code, __version__, live=live, limit=limit)

    def _answer(self, path: str) -> bytes:
        raise ModlabError(f"This view holds no values of {path!r}: modlab.state(model) has those of tensors.")
