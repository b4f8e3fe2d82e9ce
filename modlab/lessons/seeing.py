"""Seeing: a view with what had been predicted of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from html import escape
from typing import Any

from modlab import format
from modlab.errors import ModlabError
from modlab.lessons import stills
from modlab.lessons.cards import Card, CardRecord

_PLAIN = "margin:4px 0;white-space:pre-wrap;font-family:var(--jp-code-font-family,monospace);font-size:13px"


class WordlessError(ModlabError, ValueError):
    """A picture without words for people who cannot see it."""


class SeenView(Card):
    """Predictions beside what is so, and the view that settles them: two outputs of a cell.

    Attributes:
        view: what is shown.
        alt: what a figure shows, in words.
    """

    def __init__(self, view: Any, cards: Sequence[CardRecord], alt: str = "", *, lesson: str = "", place: str = "") -> None:
        super().__init__(*cards, lesson=lesson, place=place)
        self.view, self.alt = view, alt
        if hasattr(view, "savefig"):
            from modlab.views import figure

            self.alt = alt or getattr(view, "alt", "") or figure.titles(view)
            if not self.alt:
                raise WordlessError('A picture needs words for people who cannot see it: lesson.see(figure, alt="what it shows").')
            if (pyplot := sys.modules.get("matplotlib.pyplot")) is not None:
                pyplot.close(view)  # what is left open a notebook shows once more, and without the words

    def html(self) -> str:
        """The cards, then the view."""
        below = "" if self.view is None else self._picture()
        return "\n".join(part for part in (super().html() if self.cards else "", below) if part)

    def __repr__(self) -> str:
        below = "" if self.view is None else f"picture: {self.alt}" if self.alt else repr(self.view)
        return format.printable("\n\n".join(part for part in (super().__repr__(), below) if part))

    def _ipython_display_(self) -> None:
        from IPython.display import display

        if self.cards:
            super()._ipython_display_()
        if self.alt:
            data, metadata = stills.of_figure(self.view, self.alt)
            display(data, metadata=metadata, raw=True)  # type: ignore[no-untyped-call]
        elif self.view is not None:
            display(self.view)  # type: ignore[no-untyped-call]

    def _picture(self) -> str:
        if self.alt:
            from modlab.views import figure

            return figure.of_picture(self.view, self.alt)
        return stills.of(self.view) or f'<pre style="{_PLAIN}">{escape(repr(self.view))}</pre>'
