"""Time slots of a history, and which steps each covers; when there are too many, each two become one."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import zip_longest

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
        self.spans: list[tuple[int, int]] = []  # the first and the last step of each: one list, which no interrupt leaves half made
        self.stride = 1
        self.held = 0  # samples in the last slot
        self.halvings = 0

    def twin(self, halve: Callable[[], None]) -> TimeSlots:
        """The same slots once more: what is put into them is not put into these."""
        made = TimeSlots(self.most, halve, self._each)
        made.spans = [*self.spans]
        made.stride, made.held, made.halvings = self.stride, self.held, self.halvings
        return made

    def __len__(self) -> int:
        return len(self.spans)

    def place(self, step: int) -> bool:
        """Make room for a sample of a step in the last slot; whether that is a new one."""
        if self.spans and self.held < min(self.stride, self._each):
            self.held += 1
            self.spans[-1] = self.spans[-1][0], step
            return False
        self.clear()
        self.spans.append((step, step))
        self.held = 1
        return True

    def clear(self) -> None:
        """Make neighbours one, if there is no slot left."""
        if len(self.spans) == self.most:
            self._halve()
            self.spans = [(first, last) for (first, _), (_, last) in zip(self.spans[::2], self.spans[1::2], strict=True)]
            self.stride *= 2
            self.halvings += 1

    def fill(self, steps: list[int]) -> int:
        """Put samples of some steps into the last slot; how many it took."""
        taken = min(len(steps), self.stride - self.held) if self.spans else 0
        if taken > 0:
            self.held += taken
            self.spans[-1] = self.spans[-1][0], steps[taken - 1]
        return max(taken, 0)

    def extend(self, steps: list[int]) -> int:
        """Put samples of some steps into new slots, as many as there are; how many these took."""
        steps = steps[: (self.most - len(self.spans)) * self.stride]
        self.spans += zip_longest(steps[:: self.stride], steps[self.stride - 1 :: self.stride], fillvalue=steps[-1])
        self.held = (len(steps) - 1) % self.stride + 1
        return len(steps)

    def bounds(self) -> tuple[Ints, Ints]:
        """The first and the last step of each slot."""
        first, last = np.array(self.spans, np.int64).reshape(-1, 2).T.copy()
        return first, last
