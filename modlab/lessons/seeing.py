"""A view with what had been predicted of it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from modlab.lessons.cards import Card, CardRecord


class Seen(Card):
    """Predictions beside what is, and the view that settles them.

    Attributes:
        view: what is shown.
    """

    def __init__(self, view: Any, cards: Sequence[CardRecord]) -> None:
        super().__init__(*cards)
        self.view = view

    def html(self) -> str:
        """The cards, then the view."""
        picture = getattr(self.view, "_repr_html_", None)
        below = "" if self.view is None else picture() if picture is not None else f"<pre>{escape(repr(self.view))}</pre>"
        return "\n".join(part for part in (super().html() if self.cards else "", below) if part)

    def __repr__(self) -> str:
        return "\n\n".join(part for part in (super().__repr__(), "" if self.view is None else repr(self.view)) if part)
