"""The schedule of looks: the first steps densely, and then as often as a share of the loop's time allows."""

from __future__ import annotations

import math

DENSE = 10
"""Samples in a row at the beginning, which the budget does not count."""

FIRST = 0.5
"""Seconds that these may take together; once they have, the budget counts."""

ANYWAY = 1.0
"""Seconds without a picture, after which there is one whatever it costs (about a millisecond)."""

GUARDED = 0.5
"""Of the budget, what standing by for a NaN may take in every step; what it takes beyond that, where it was asked for, starves nobody."""

FAR = 1_000_000
"""Steps between two samples at most."""


class Budget:
    """A part of the budget: what it has spent, and when it can spend again.

    Args:
        share: of the loop's time.
    """

    def __init__(self, share: float) -> None:
        self.share, self.spent, self.last = share, 0.0, 0.0
        self._since, self._before = 0.0, 0.0  # when it got this share, and what had been spent then

    def refill(self, share: float, loop: float) -> None:
        """Give it another share, from now on: what was spent before is forgiven."""
        self.share, self._since, self._before = share, loop, self.spent

    def spend(self, seconds: float) -> None:
        """Note what something took; what the next one takes is not thought to be less by more than half of what it fell."""
        self.spent += seconds
        self.last = max(seconds, (self.last + seconds) / 2)

    def wait(self, loop: float, pace: float) -> int:
        """The steps until another such expense is covered; at least 1.

        Args:
            loop: seconds that the loop has taken so far.
            pace: seconds that a step takes.
        """
        if not self.share:
            return FAR
        missing = self._needed() - (loop - self._since)
        return max(1, min(FAR, math.ceil(missing / pace))) if missing > 0 and pace > 0 else 1

    def affords(self, loop: float) -> bool:
        """Whether another expense like the last one is covered now."""
        return self._needed() <= loop - self._since

    def _needed(self) -> float:
        """Seconds of the loop that cover what was spent, and another such expense."""
        return (self.spent - self._before + self.last) / self.share if self.share else math.inf


class Schedule:
    """The budget in three purses: whole samples, counts of units, and what is sent to the page.

    While units are counted for the first time they have the greater part.

    Args:
        budget: the share of the loop's time, as 0.02.

    Attributes:
        stood: seconds that it took to stand by for a NaN.
    """

    def __init__(self, budget: float) -> None:
        self.whole, self.light, self.page = Budget(0), Budget(0), Budget(0)
        self.budget = budget
        self.counting = True
        self.stood = 0.0
        self._origin: tuple[int, float] | None = None
        self._mark = (0, 0.0, 0.0)
        self.pace = 0.0
        self.share_out()

    def share_out(self, now: float | None = None) -> None:
        """Divide the budget, at the beginning or anew."""
        whole, light, page = (0.08, 0.84, 0.08) if self.counting else (0.52, 0.3, 0.18)
        loop = 0.0 if now is None else self.loop(now)
        for budget, part in ((self.whole, whole), (self.light, light), (self.page, page)):
            budget.refill(self.budget * part, loop)

    @property
    def spent(self) -> float:
        """Seconds, without the first samples."""
        return self.whole.spent + self.light.spent + self.page.spent + self.stood

    def learn(self, seconds: float) -> None:
        """One of the first steps, without what was done in it, took so long; the quickest of them tells, for the first ones warm up."""
        if seconds > 0:
            self.pace = min(self.pace, seconds) if self.pace else seconds

    def begin(self, step: int, now: float, *, whole: float = 0.0, light: float = 0.0) -> None:
        """From here on the budget counts.

        Args:
            step: the number of steps made.
            now: by the clock.
            whole: seconds that a whole sample takes, as far as is known.
            light: the same of counting units.
        """
        self._origin = step, now
        self._mark = step, now, 0.0
        self.whole.last, self.light.last = whole, light

    @property
    def began(self) -> bool:
        """Whether the first samples are over."""
        return self._origin is not None

    def wait(self, budget: Budget, now: float) -> int:
        """The steps until this budget, and the one of all parts together, cover its next expense; at least 1."""
        loop = self.loop(now)
        left = self.budget - min(self.stood / loop, GUARDED * self.budget) if loop > 0 else self.budget
        missing = (self.spent - self.stood + budget.last) / left - loop
        return max(budget.wait(loop, self.pace), math.ceil(missing / self.pace) if missing > 0 and self.pace > 0 else 1)

    def loop(self, now: float) -> float:
        """Seconds that the loop has taken since the budget counts."""
        return now - self._origin[1] if self._origin else 0.0

    def tick(self, step: int, now: float) -> None:
        """Learn how long a step takes without us, from the time since the last tick."""
        then, when, spent = self._mark
        if step > then:
            each = max((now - when - (self.spent - spent)) / (step - then), 1e-7)
            self.pace = each if not self.pace else 0.7 * self.pace + 0.3 * min(each, 4 * self.pace)
        self._mark = step, now, self.spent

    def shows(self, now: float, since: float) -> bool:
        """Whether the page may get a picture.

        Args:
            now: by the clock.
            since: seconds after the last one.
        """
        if not self.began or since >= ANYWAY:
            return True
        return self.page.affords(self.loop(now))

    def stand(self, seconds: float) -> None:
        """Note what it took to stand by."""
        if self.began:
            self.stood += seconds

    def pause(self, seconds: float) -> None:
        """Leave out the time in which the loop stood still."""
        if self._origin is not None:
            self._origin = self._origin[0], self._origin[1] + seconds
            then, when, spent = self._mark
            self._mark = then, when + seconds, spent
