"""The widget of a running watch: it gets what is new, and its buttons work while the cell runs."""

from __future__ import annotations

import os
from time import monotonic
from typing import TYPE_CHECKING, Any
from weakref import ref

from modlab.errors import QuestionError
from modlab.records.watch import WatchRecord
from modlab.results.widget import View
from modlab.version import __version__
from modlab.views.watch import payload

if TYPE_CHECKING:
    from modlab.results.watch import Watch

_ASKED = ("pause", "resume", "step", "stop", "budget")

LATE = 3.0
"""Seconds after which a click on an old picture is none any more: it waited behind the cell that it was meant for."""

GAP = 0.2
"""Seconds until all is sent again to a page of which nothing was heard; each time twice as many."""

_ENDED = "export default { render({ el }) { el.textContent = 'this watch has ended: w in a new cell shows it' } }"
"""A front end for a view that no page ever asked for: what executes a notebook would write the large one into the file."""


class LiveView(View):
    """A view that is pushed to.

    Args:
        watch: whose view it is.
    """

    def __init__(self, watch: Watch) -> None:
        super().__init__(watch)
        self._sent: tuple[Any, payload.Marks] | None = None
        self._heard = False
        self._whole_at, self._gap = 0.0, GAP
        self._pictures = (0.0, 0), (0.0, 0)  # when, and of how many steps: two of those sent, at least `LATE` apart
        _answer_while_the_cell_runs(self)

    def push(self, watch: Watch, record: WatchRecord, packed: dict[payload.Marks | None, bytes]) -> None:
        """Send the slots that the page has not; all of them where their number changed otherwise.

        Args:
            watch: whose views these are.
            record: what there is now.
            packed: what other views have been sent of it, by what they had.
        """
        now, shape = monotonic(), watch.shape_of_slots()
        since = self._sent[1] if self._sent is not None and self._sent[0] == shape else None
        if not self._heard and now >= self._whole_at:
            since = None  # it may have begun to listen only now, and its questions may wait behind the cell
            self._whole_at, self._gap = now + self._gap, 2 * self._gap
        if since not in packed:
            packed[since] = payload.of_watch(record, watch.code, __version__, live=True, since=since)
        self._sent = shape, payload.Marks.open_ends(record)
        if now - self._pictures[1][0] >= LATE:
            self._pictures = self._pictures[1], (now, record.steps)
        self.send({"action": "update"}, [packed[since]])

    def rest(self, watch: Watch) -> None:
        """The watch has ended, and its output stands without this: answer who asks late, and keep nothing alive for it."""
        self._held = ref(watch)
        if not self._heard and "JPY_SESSION_NAME" not in os.environ:  # no server of notebooks, so hardly a page that asks late
            self._esm = _ENDED

    def _answer(self, content: dict[str, Any]) -> bytes:
        """Set a flag, or give what there is; this may be another thread than the training's."""
        self._heard = True
        action = content.get("action")
        if action not in _ASKED:
            return super()._answer(content)
        if self._is_late(content.get("steps")):
            raise QuestionError("this click came when the cell had run on: click again while it runs, or use ■ of the notebook")
        self._result.ask(action, content.get("budget"))  # type: ignore[attr-defined]
        return b""

    def _is_late(self, steps: Any) -> bool:
        """Whether a picture of more steps was sent long ago. Two clocks are never compared."""
        now = monotonic()
        return isinstance(steps, int) and any(seen > steps and now - sent >= LATE for sent, seen in self._pictures)


def _answer_while_the_cell_runs(view: View) -> None:
    """Let the page's messages go to the thread that the page asked for, which is not the one that the cell keeps busy.

    ipykernel 7.4 answers where a comm last sent from, which is the running cell; before that, and from this line on, the front
    end chooses. See docs/borrowed.md.
    """
    comm: Any = getattr(view, "comm", None)
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = lambda data, default: default
