"""The widget, the live host: an anywidget that draws the same view and lets the page ask the kernel.

Nothing big stands in a synced trait (it would be written into saved notebooks): the page says hello and gets the payload
as a message. An error is an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol
from weakref import ref

import anywidget
from traitlets import Int, Unicode

from modlab.errors import GoneError, ModlabError
from modlab.views.html import static_file


class Shown(Protocol):
    """What a view shows: a result."""

    @property
    def headline(self) -> str:
        """The sentence at the top."""

    def html(self, *, bundle: bool = True) -> str:
        """The picture for hosts without a kernel."""

    def _payload(self, *, live: bool = False) -> bytes: ...

    def _answer(self, path: str) -> bytes: ...


class AskedWidget(anywidget.AnyWidget):
    """A widget whose page asks the kernel: each question has an ``id``, and an error is an answer."""

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self.on_msg(self._receive)

    def _receive(self, _: Any, content: Any, __: Any) -> None:
        """Answer one message of the page; whatever goes wrong is told there, never raised here."""
        if not isinstance(content, dict) or "id" not in content:
            return
        answer = {"id": content["id"], "ok": True}
        try:
            self.send(answer, [self._answer(content)])
        except ModlabError as error:
            self.send({**answer, "ok": False, "error": str(error)})
        except Exception as error:  # noqa: BLE001 - the page waits for an answer, and a traceback in a comm thread reaches nobody
            self.send({**answer, "ok": False, "error": f"{type(error).__name__}: {error}"})

    def _answer(self, content: dict[str, Any]) -> bytes:
        """What the page gets for a question."""
        raise NotImplementedError


class View(AskedWidget):
    """One result, displayed live.

    Its traits can be observed and linked, in Python (``view.observe(f, "selected")``, ``link``) and in the page (``jslink``).

    Args:
        result: what it shows.
        answer: asked first when the page asks for something; None is not an answer.

    Attributes:
        selected: the dotted name of the module that is selected; set it, and the view selects that.
        step: of a watch, the step of the cursor; -1 follows the newest one.
        headline: the sentence at the top.
    """

    _esm = static_file("live.js")
    selected = Unicode("").tag(sync=True)
    step = Int(-1).tag(sync=True)
    headline = Unicode("").tag(sync=True)

    def __init__(self, result: Shown, answer: Callable[[dict[str, Any]], bytes | None] = lambda content: None) -> None:
        super().__init__(headline=result.headline)
        self._held: Callable[[], Shown | None] = lambda: result
        self._asked = answer

    def let_go(self) -> None:
        """Keep what is shown alive no longer."""
        self._held = ref(self._result)

    @property
    def _result(self) -> Shown:
        result = self._held()
        if result is None:
            raise GoneError("What this view showed no longer exists: run its cell again.")
        return result

    def _answer(self, content: dict[str, Any]) -> bytes:
        answer = self._asked(content)
        if answer is not None:
            return answer
        action = content.get("action")
        if action == "hello":
            return self._result._payload(live=True)
        if action == "values":
            return self._result._answer(str(content.get("path")))
        raise ModlabError(f"the kernel does not know the action {action!r}")

    def __repr__(self) -> str:
        return repr(self._result)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """The widget, and beside it the static picture for hosts that have no kernel."""
        bundle = super()._repr_mimebundle_(**kwargs)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle or {}, {})
        return {**data, "text/plain": repr(self), "text/html": self._result.html(bundle=False)}, metadata
