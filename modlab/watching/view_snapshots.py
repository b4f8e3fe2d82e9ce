"""The pictures of a running watch: when there is a new one, and who is told. They are taken without effect on what is measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from modlab.running import clock
from modlab.running.guarded import tried
from modlab.watching.schedule import FAR

if TYPE_CHECKING:
    from modlab.watching.watcher import Watcher

EARLY = 20
"""Steps after which there is something to say, in any case."""

OFTEN = 0.1
"""Seconds between two pictures, at least."""


DEAR = 20
"""So many times what the last one took, at least: of a very large model it takes long."""


class ViewSnapshots:
    """Tells who shows a watch that there is something new.

    Args:
        watcher: the watch.

    Attributes:
        publish: is told; None if nobody looks.
    """

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self.publish: Callable[[], None] | None = None
        self._shown = 0.0
        self._lost, self._took = False, 0.0

    def next_step(self) -> int:
        """The step at which the next one is due."""
        step, pace = self._watcher.step, self._watcher.schedule.pace
        if self.publish is None or not pace:
            return FAR * FAR
        return EARLY if step < EARLY else step + max(1, int(OFTEN / pace))

    def show(self, now: float) -> None:
        """Have one made, if it is time and the budget has room."""
        watcher = self._watcher
        if self.publish is None or (now - self._shown < OFTEN and watcher.step != EARLY):
            return
        if not watcher.schedule.shows(now, now - self._shown) or now - self._shown < DEAR * self._took:
            return
        self._shown = now
        self.tell(self.publish)
        self._took = clock.now() - now
        if watcher.schedule.began:
            watcher.schedule.page.spend(clock.now() - now)

    def tell(self, who: Callable[[], None] | None) -> None:
        """Call what shows things; if that fails, nobody is told any more, and the training goes on."""
        trouble = "" if who is None else tried(who)
        if trouble:  # a comm may be closed, a queue full
            if not self._lost:
                self._watcher.say(f"the live view was lost at step {self._watcher.step:,}: {trouble}")
            self.publish, self._lost = None, True
