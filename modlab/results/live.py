"""The widget of a running watch: it gets what is new, and its buttons work while the cell runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modlab.results.widget import View
from modlab.version import __version__
from modlab.views.watch import payload

if TYPE_CHECKING:
    from modlab.results.watch import Watch

_ASKED = ("pause", "resume", "step", "stop", "budget")


class LiveView(View):
    """A view that is pushed to.

    Args:
        watch: whose view it is.
    """

    def __init__(self, watch: Watch) -> None:
        super().__init__(watch)
        self._watch = watch
        self._sent: tuple[Any, payload.Marks] | None = None
        _answer_while_the_cell_runs(self)

    def push(self) -> None:
        """Send the slots that the page has not; all of them where their number changed otherwise."""
        record = self._watch.record
        shape = self._watch.shape_of_slots()
        since = self._sent[1] if self._sent is not None and self._sent[0] == shape else None
        packed = payload.of_watch(record, self._watch.code, __version__, live=True, since=since)
        self._sent = shape, payload.Marks.open_ends(record)
        self.send({"action": "update"}, [packed])

    def _answer(self, content: dict[str, Any]) -> bytes:
        """Set a flag, or give what there is; this may be another thread than the training's."""
        action = content.get("action")
        if action not in _ASKED:
            return super()._answer(content)
        self._watch.ask(action, content.get("budget"))
        return b""


def _answer_while_the_cell_runs(view: View) -> None:
    """Let the page's messages go to the thread that the page asked for, which is not the one that the cell keeps busy.

    ipykernel 7.4 answers where a comm last sent from, which is the running cell; before that, and from this line on, the front
    end chooses. See docs/borrowed.md.
    """
    comm: Any = getattr(view, "comm", None)
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = lambda data, default: default
