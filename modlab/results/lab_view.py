"""The widget of a lab: it asks for a panel when it is opened, and is told what is new."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType, ref

from modlab.results.widget import View
from modlab.version import __version__
from modlab.views.watch import payload

if TYPE_CHECKING:
    from modlab.results.lab import Lab
    from modlab.results.watch import Watch

_ASK = "panel "


class LabView(View):
    """One page's view of a lab.

    Args:
        lab: whose panels it shows.
    """

    def __init__(self, lab: Lab) -> None:
        super().__init__(lab)
        self._lab = lab
        self._greeted = False
        self._sent: tuple[ReferenceType[Watch], Any, payload.Marks] | None = None

    def tell(self, stale: Sequence[str]) -> None:
        """Say which panels have something new; a page that is gone hears nothing, and the user's cell goes on."""
        with suppress(Exception):
            self.send({"action": "update"}, [self._lab.face(stale)])

    def push(self, watch: Watch) -> None:
        """Send what a watch has seen since; all of it where the page has nothing, or where the slots were renumbered."""
        if not self._greeted:
            return
        try:
            record, shape = watch.record, watch.shape_of_slots()
            sent = self._sent if watch.running else None
            since = sent[2] if sent is not None and sent[0]() is watch and sent[1] == shape else None
            packed = payload.of_watch(record, watch.code, __version__, self._lab._print, live=watch.running, since=since)
            self._sent = ref(watch), shape, payload.Marks.open_ends(record)
            self.send({"action": "update"}, [packed])
        except Exception:  # noqa: BLE001 - the watch has its own view, and the training goes on
            self._sent = None

    def _answer(self, content: dict[str, Any]) -> bytes:
        action = str(content.get("action"))
        if action.startswith(_ASK):
            return self._lab.panel(action[len(_ASK) :], anew=content.get("anew") is True)
        if action == "hello":
            self._greeted, self._sent = True, None
        return super()._answer(content)
