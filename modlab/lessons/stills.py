"""Stills: views as pictures without script, each under a key by which a live page can ask for the view itself.

A still is the same in every run, so that a notebook compares equal wherever it is run.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections import OrderedDict
from typing import Any

from modlab.results.result import Result

KEPT = 100
"""Views and pictures that a page can ask about: the last ones."""

_NUMBERED = re.compile(r"\bIn \[\d+\]")
"""How a notebook counts a cell: otherwise in each run."""

WHOLE = False
"""Whether views carry their own script instead, as a page without a kernel needs them (`scripts/pages.py`)."""

SHOWN: OrderedDict[str, Result] = OrderedDict()
"""What was shown, by its key."""

WORDS: OrderedDict[str, str] = OrderedDict()
"""What a picture shows, by a piece of its base64; JupyterLab itself gives an image no words."""


def of(view: Any) -> str | None:
    """A view as HTML; None where it has no such face."""
    if isinstance(view, Result):
        return view.html() if WHOLE else _still(view)
    own = getattr(view, "_repr_html_", None)
    return None if own is None else own()


def _still(result: Result) -> str:
    picture = _NUMBERED.sub("a cell", result.html(bundle=False))
    if result._is_picture:
        return picture
    key = hashlib.sha256(picture.encode()).hexdigest()[:12]
    _remember(SHOWN, key, result)
    return picture.replace(' data-modlab="', f' data-key="{key}" data-modlab="', 1)


def of_figure(figure: Any, words: str) -> tuple[dict[str, str], dict[str, Any]]:
    """A figure of matplotlib's as an output: data and metadata, with words for who cannot see it."""
    from modlab.views.figure import png

    encoded = b64encode(png(figure)).decode("ascii")
    _remember(WORDS, encoded[-400:-100], words)
    return {"text/plain": f"picture: {words}", "image/png": encoded}, {"image/png": {"alt": words, "needs_background": "light"}}


def offer(shell: Any) -> None:
    """Let a notebook's cells show stills, also of views that a lesson was not asked to show."""
    html, bundle = shell.display_formatter.formatters["text/html"], shell.display_formatter.mimebundle_formatter
    html.for_type(Result, of)
    html.for_type_by_name("matplotlib.figure", "Figure", lambda figure: None)  # the next line has all its faces
    bundle.for_type_by_name("matplotlib.figure", "Figure", _described)


def _described(figure: Any, include: Any = None, exclude: Any = None) -> tuple[dict[str, str], dict[str, Any]] | None:
    """A figure that says what it shows; of another nothing, and it is shown as always."""
    from modlab.views.figure import titles

    words = getattr(figure, "alt", "") or titles(figure)
    return of_figure(figure, words) if words else None


def _remember(found: OrderedDict[str, Any], key: str, value: Any) -> None:
    found[key] = value
    found.move_to_end(key)
    while len(found) > KEPT:
        found.popitem(last=False)
