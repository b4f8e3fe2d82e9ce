"""Rewritten weights: somebody else than the optimizer writes them between two steps. Are they the same old ones again and again?"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import torch
from torch import Tensor

from modlab.compat import without_autograd
from modlab.watching.pools import is_readable
from modlab.watching.watch_index import WatchIndex, Weight

PROBES, PART = 3, 32
"""Parameters that are compared, and numbers of each."""

DIGITS = 16
"""Times the last digit of a number that a step moves it at least, to be seen to move."""

UNKNOWN = -1
"""The version of a weight that has none."""

PATIENCE = 32
"""Times that weights are written between two steps, up to which they are compared: where they are clamped, it happens in each step."""


class RewrittenWeights:
    """Compares weights that were written between two steps with those that were written there the time before.

    It is asked in each step, and reads numbers only where the version of a weight says that somebody has written it.

    Args:
        index: the parameters.

    Attributes:
        returned: how often they were the same, bit for bit, though a step had moved them in between; `renewed`: how often they were others.
    """

    def __init__(self, index: WatchIndex) -> None:
        self._index = index
        self.returned = self.renewed = 0
        self._asked: Weight | None = None
        self._left = UNKNOWN
        self._written: list[Tensor] = []
        self._moved = self._fresh = False
        self._patience = PATIENCE

    def step_ended(self) -> None:
        """An optimizer has made a step: which version does it leave behind?"""
        if not self._patience:
            return
        self._left = self._version()
        if self._fresh:
            self._fresh, self._moved = False, has_moved(self._written, without_autograd(self._probes))

    def step_begins(self) -> None:
        """An optimizer is about to make a step."""
        if self._left == UNKNOWN or self._version() == self._left:
            return
        self._left = UNKNOWN
        self._patience -= 1
        now = without_autograd(self._probes)
        same = are_same(now, self._written)
        self.returned += self._moved and same
        self.renewed += bool(self._written) and not same
        self._written, self._moved, self._fresh = now, False, True

    def _version(self) -> int:
        """How often one weight has been written; who writes old weights writes them all."""
        if self._asked is None:
            self._asked = next(iter(self._owned()), None)
        tensor = self._asked.tensor() if self._asked is not None else None
        return UNKNOWN if tensor is None or tensor.is_inference() else tensor._version

    def _owned(self) -> Iterator[Weight]:
        return (weight for weight in self._index.weights if weight.trainable and weight.owned)

    def _probes(self) -> list[Tensor]:
        some = (tensor for weight in self._owned() if (tensor := weight.tensor()) is not None and is_readable(tensor))
        return [probe(one) for one in islice(some, PROBES)]


def probe(weight: Tensor) -> Tensor:
    """A copy of some of its numbers, from all over it."""
    return weight.detach().flatten()[:: max(1, weight.numel() // PART)].clone()


def has_moved(before: list[Tensor], after: list[Tensor]) -> bool:
    """Whether a step has moved such copies by more than their last digits: what flips one of these comes back by itself."""
    return len(before) == len(after) and any(map(_is_far_from, before, after))


def _is_far_from(before: Tensor, after: Tensor) -> bool:
    if before.shape != after.shape or not before.is_floating_point():
        return False
    return bool(((after - before).abs() > DIGITS * torch.finfo(before.dtype).eps * before.abs()).any())


def are_same(some: list[Tensor], others: list[Tensor]) -> bool:
    """Whether such copies are equal, number by number."""
    return len(some) == len(others) and all(map(torch.equal, some, others))
