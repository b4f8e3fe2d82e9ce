"""The live page of a lesson: while its kernel runs, a click answers a question, and stills become views.

A hidden widget, which leaves nothing in the notebook, looks for the lesson's cards and stills on the page, and asks the kernel
for what they need. Without it all can be read, and answers are typed.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

import traitlets

from modlab.errors import ModlabError
from modlab.lessons import stills
from modlab.results.live import answer_while_the_cell_runs
from modlab.results.widget import AskedWidget
from modlab.version import __version__
from modlab.views import html as views


class Clicked(Protocol):
    """What a click is told to: a lesson."""

    def click(self, name: str, answer: Any) -> dict[str, Any]:
        """Take the answer to a question; returns what the page shows now."""


class LivePage(AskedWidget):
    """The hidden widget of one lesson.

    Args:
        name: of the lesson.
        lesson: what a click is told to.

    Attributes:
        is_read: whether a page has asked for something: then somebody looks on.
    """

    _esm = views.static_file("lesson.js")
    lesson = traitlets.Unicode("").tag(sync=True)

    def __init__(self, name: str, lesson: Clicked) -> None:
        super().__init__(lesson=name)
        self._lesson = lesson
        self.is_read = False
        answer_while_the_cell_runs(self)

    def _answer(self, content: dict[str, Any]) -> bytes:
        self.is_read = True
        match content.get("action"):
            case "hello":
                return b""
            case "click":
                return _json(self._lesson.click(str(content.get("question")), content.get("answer")))
            case "view":
                return _view(str(content.get("key")))
            case "bundle" if (name := content.get("name")) in {"sheet", *views.BUNDLES.values()}:
                return views.static_file(f"{name}.js").encode()
            case "words":
                return _json([*stills.WORDS.items()])
        raise ModlabError(f"the kernel does not know what {str(content.get('action'))!r} asks for")


def _view(key: str) -> bytes:
    """What draws a view, in a line, and its payload."""
    result = stills.SHOWN.get(key)
    if result is None:
        raise ModlabError("this kernel did not show this view: run its cell again")
    front, bundle = views.front_end(result.kind, __version__)
    return _json({"front": front, "bundle": bundle}) + b"\n" + result._fitting_payload()


def _json(content: Any) -> bytes:
    return json.dumps(content).encode()
