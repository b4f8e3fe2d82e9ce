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
        below = "" if self.view is None else _picture(self.view)
        return "\n".join(part for part in (super().html() if self.cards else "", below) if part)

    def __repr__(self) -> str:
        return "\n\n".join(part for part in (super().__repr__(), "" if self.view is None else repr(self.view)) if part)


def _picture(view: Any) -> str:
    picture = getattr(view, "_repr_html_", None)
    return str(picture()) if picture is not None else f'<pre style="white-space:pre-wrap">{escape(repr(view))}</pre>'
