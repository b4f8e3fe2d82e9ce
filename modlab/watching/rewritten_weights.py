"""Rewritten weights: somebody else than the optimizer writes them between two steps. Are they the same old ones again and again?"""

from __future__ import annotations

import torch
from torch import Tensor

from modlab.watching.pools import is_readable
from modlab.watching.watch_index import WatchIndex

PROBES, PART = 3, 32
"""Parameters that are compared, and numbers of each."""

PATIENCE = 32
"""Times that weights are written between two steps, up to which they are compared: where they are clamped, it happens in each step."""


class RewrittenWeights:
    """Compares weights that were written between two steps with those that were written there the time before.

    It is asked in each step, and reads numbers only where the versions of the weights say that somebody has written them.

    Args:
        index: the parameters.

    Attributes:
        returned: how often they were the same, bit for bit, though a step had moved them in between.
    """

    def __init__(self, index: WatchIndex) -> None:
        self._index = index
        self.returned = 0
        self._left: tuple[int, ...] = ()
        self._written: list[Tensor] = []
        self._moved = self._fresh = False
        self._patience = PATIENCE

    def step_ended(self, versions: tuple[int, ...]) -> None:
        """An optimizer has made a step: the versions that it leaves behind."""
        self._left = versions
        if self._fresh:
            self._fresh, self._moved = False, not _same(self._probes(), self._written)

    def step_begins(self, versions: tuple[int, ...]) -> None:
        """An optimizer is about to make a step, on weights of these versions."""
        if not self._left or versions == self._left or not self._patience:
            return
        self._left = ()
        self._patience -= 1
        now = self._probes()
        self.returned += self._moved and _same(now, self._written)
        self._written, self._moved, self._fresh = now, False, True

    def _probes(self) -> list[Tensor]:
        tensors = (weight.tensor() for weight in self._index.weights if weight.trainable and weight.owned)
        some = (one for one in tensors if one is not None and is_readable(one))
        return [one.detach().flatten()[:PART].clone() for one, _ in zip(some, range(PROBES), strict=False)]


def _same(some: list[Tensor], others: list[Tensor]) -> bool:
    return len(some) == len(others) and all(map(torch.equal, some, others))
