"""The controls of a running loop, as the page asks for them: flags alone, set in another thread and read between two steps."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Controls:
    """Pause, one step, stop and the budget.

    Attributes:
        attention: whether anything is asked for: the one thing that is looked at in every step.
        work: is called between two steps, and again and again while the loop waits, as long as it says that there is more to do.
    """

    def __init__(self) -> None:
        self.attention = False
        self.paused = self.stop = False
        self.budget: float | None = None
        self.work: Callable[[], bool] | None = None
        self._go = threading.Event()

    def pause(self) -> None:
        """Wait after the next step."""
        self._go.clear()
        self.paused = self.attention = True

    def resume(self) -> None:
        """Go on."""
        self.paused = False
        self._go.set()

    def advance(self) -> None:
        """Make one step, and wait again."""
        self.paused = self.attention = True
        self._go.set()

    def end(self) -> None:
        """End the watch after the next step."""
        self.stop = self.attention = True
        self._go.set()

    def allow(self, budget: float) -> None:
        """Take another share of the loop's time."""
        self.budget = budget
        self.attention = True

    def work_on(self, work: Callable[[], bool]) -> None:
        """Have something done between the steps."""
        self.work = work
        self.attention = True

    def wait(self) -> None:
        """Return when the next step may be made. An interrupt of the kernel ends the waiting."""
        self._work()
        while self.paused and not self.stop and not self._go.wait(0 if self._work() else 0.1):
            pass
        self._go.clear()
        self.attention = self.paused or self.work is not None

    def _work(self) -> bool:
        """Do a piece of it; whether there is more."""
        work = self.work
        if work is None or self.stop:
            return False
        if not work() and self.work is work:
            self.work = None
        return self.work is not None
