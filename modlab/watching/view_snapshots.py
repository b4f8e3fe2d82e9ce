"""The pictures of a running watch: when there is a new one, and who is told. They are taken without effect on what is measured."""

from __future__ import annotations

from collections.abc import Callable

from modlab.running import clock
from modlab.running.guarded import tried
from modlab.watching.schedule import FAR, Schedule
from modlab.watching.steps import Steps

EARLY = 20
"""Steps after which there is something to say, in any case."""

OFTEN = 0.1
"""Seconds between two pictures, at least."""


DEAR = 20
"""So many times what the last one took, at least: of a very large model it takes long."""


class ViewSnapshots:
    """Tells who shows a watch that there is something new.

    Args:
        steps: the steps so far.
        schedule: of the watch, with what is left for the page.
        say: tells the user that the view was lost.

    Attributes:
        publish: is told; None if nobody looks.
    """

    def __init__(self, steps: Steps, schedule: Schedule, say: Callable[[str], None]) -> None:
        self._steps, self._schedule, self._say = steps, schedule, say
        self.publish: Callable[[], None] | None = None
        self._shown, self._made = 0.0, 0  # when the last one was made, and of how many steps
        self._lost, self._took = False, (0.0, 0.0)

    def next_step(self) -> int:
        """The step at which the next one is due."""
        step, pace = self._steps.made, self._schedule.pace
        if self.publish is None or not pace:
            return FAR * FAR
        return EARLY if step < EARLY else step + max(1, int(OFTEN / pace))

    def show(self, now: float) -> None:
        """Have one made, if it is time and the budget has room."""
        schedule = self._schedule
        if self.publish is None or (now - self._shown < OFTEN and self._steps.made != EARLY):
            return
        # One alone may have waited for a busy machine, or have imported what it needs.
        if not schedule.shows(now, now - self._shown) or now - self._shown < DEAR * min(self._took):
            return
        self._make(now)
        took = clock.now() - now
        self._took = self._took[1], took
        if schedule.began:
            schedule.page.spend(took)

    def catch_up(self) -> None:
        """Have one made of the steps that the last one does not have: the loop rests, so it costs no step."""
        if self._steps.made > self._made:
            self._make(clock.now())

    def _make(self, now: float) -> None:
        self._shown, self._made = now, self._steps.made
        self.tell(self.publish)

    def tell(self, who: Callable[[], None] | None) -> None:
        """Call what shows things; if that fails, nobody is told any more, and the training goes on."""
        trouble = "" if who is None else tried(who)
        if trouble:  # a comm may be closed, a queue full
            if not self._lost:
                self._say(f"the live view was lost at step {self._steps.made:,}: {trouble}")
            self.publish, self._lost = None, True
