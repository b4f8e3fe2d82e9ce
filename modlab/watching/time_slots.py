"""Which steps each slot of a history covers; when there are too many slots, each two become one."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from modlab.records.watch import Ints


class TimeSlots:
    """A bounded time axis: every slot but the last holds equally many samples, so it is evenly fine over the whole run.

    Args:
        most: slots, an even number.
        halve: told when neighbours become one, ``0, 1 → 0``, ``2, 3 → 1``, …: what is kept by slot must follow.
        each: samples that a new slot takes at most; who gives fewer than all samples looks at `stride` himself.
    """

    def __init__(self, most: int, halve: Callable[[], None], each: float = math.inf) -> None:
        self.most, self._halve, self._each = most, halve, each
        self.first: list[int] = []
        self.last: list[int] = []
        self.stride = 1
        self.held = 0  # samples in the last slot
        self.halvings = 0

    def twin(self, halve: Callable[[], None]) -> TimeSlots:
        """The same slots once more: what is put into them is not put into these."""
        made = TimeSlots(self.most, halve, self._each)
        made.first, made.last = [*self.first], [*self.last]
        made.stride, made.held, made.halvings = self.stride, self.held, self.halvings
        return made

    def __len__(self) -> int:
        return len(self.first)

    def place(self, step: int) -> bool:
        """Make room for a sample of a step in the last slot; whether that is a new one."""
        if self.first and self.held < min(self.stride, self._each):
            self.held += 1
            self.last[-1] = step
            return False
        self.clear()
        self.first.append(step)
        self.last.append(step)
        self.held = 1
        return True

    def clear(self) -> None:
        """Make neighbours one, if there is no slot left."""
        if len(self.first) == self.most:
            self._halve()
            self.first, self.last = self.first[::2], self.last[1::2]
            self.stride *= 2
            self.halvings += 1

    def fill(self, steps: list[int]) -> int:
        """Put samples of some steps into the last slot; how many it took."""
        taken = min(len(steps), self.stride - self.held) if self.first else 0
        if taken > 0:
            self.held += taken
            self.last[-1] = steps[taken - 1]
        return max(taken, 0)

    def extend(self, steps: list[int]) -> int:
        """Put samples of some steps into new slots, as many as there are; how many these took."""
        steps = steps[: (self.most - len(self.first)) * self.stride]
        self.first += steps[:: self.stride]
        self.last += steps[self.stride - 1 :: self.stride]
        self.held = (len(steps) - 1) % self.stride + 1
        if len(self.last) < len(self.first):
            self.last.append(steps[-1])
        return len(steps)

    def bounds(self) -> tuple[Ints, Ints]:
        """The first and the last step of each slot."""
        return np.array(self.first, np.int64), np.array(self.last, np.int64)
