"""Seeing: a view with what had been predicted of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from html import escape
from typing import Any

from modlab import format
from modlab.errors import ModlabError
from modlab.lessons.cards import Card, CardRecord

_PLAIN = "margin:4px 0;white-space:pre-wrap;font-family:var(--jp-code-font-family,monospace);font-size:13px"


class WordlessError(ModlabError, ValueError):
    """A picture that says nothing to who cannot see it."""


class SeenView(Card):
    """Predictions beside what is, and the view that settles them.

    Attributes:
        view: what is shown.
        alt: what a figure shows, in words.
    """

    def __init__(self, view: Any, cards: Sequence[CardRecord], alt: str = "") -> None:
        super().__init__(*cards)
        self.view, self.alt = view, alt
        if hasattr(view, "savefig"):
            from modlab.views import figure

            self.alt = alt or getattr(view, "alt", "") or figure.titles(view)
            if not self.alt:
                raise WordlessError('A picture needs words for who cannot see it: lesson.see(figure, alt="what it shows").')
            if (pyplot := sys.modules.get("matplotlib.pyplot")) is not None:
                pyplot.close(view)  # what is left open a notebook shows once more, and without the words

    def html(self) -> str:
        """The cards, then the view."""
        below = "" if self.view is None else self._picture()
        return "\n".join(part for part in (super().html() if self.cards else "", below) if part)

    def __repr__(self) -> str:
        below = "" if self.view is None else f"picture: {self.alt}" if self.alt else repr(self.view)
        return format.printable("\n\n".join(part for part in (super().__repr__(), below) if part))

    def _picture(self) -> str:
        if self.alt:
            from modlab.views import figure

            return figure.of_picture(self.view, self.alt)
        picture = getattr(self.view, "_repr_html_", None)
        return str(picture()) if picture is not None else f'<pre style="{_PLAIN}">{escape(repr(self.view))}</pre>'
