"""Rewritten weights: somebody else than the optimizer writes them between two steps. Are they the same old ones again and again?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from modlab.compat import without_autograd
from modlab.inspection.entries import PLAIN
from modlab.records.clues import WrittenClues
from modlab.watching.pools import is_readable
from modlab.watching.watch_index import WatchIndex, Weight

PROBES, PART = 3, 32
"""Parameters that are compared, and numbers of each."""

DIGITS = 16
"""Times the last digit of a number that a step moves it at least, to be seen to move."""

UNKNOWN = -1, 0
"""The version of a weight that has none."""

STEPS = 4
"""Steps at least between two times that weights are written, for the way that these took to say anything."""

NEAR = 0.05
"""Part of that way that is left of it where the weights are back, though not bit for bit."""

FAR, OTHERS = 2.0, 0.5
"""Times that way, and part of the weights' size, beyond which those that are written have nothing to do with what was there."""

BACK = 0.05
"""Part of the farthest way that is left of it where weights are back."""

FEW = 8
"""Numbers that say nothing about all: whether they were multiplied by one, or are a few again and again."""

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
        self._since = self._gap = self._compared = 0  # steps since they were written, and between the last two times
        self._latest: list[Tensor] = []  # where steps have taken them since, when it was looked last
        self._near: list[float] = []
        self._far: list[float] = []

    def step_ended(self) -> None:
        """An optimizer has made a step: which version does it leave behind?"""
        if not self._patience:
            return
        self._left = self._version()
        if not self._written:
            return
        self._since += 1
        if self._since == self._gap or not self._since & (self._since - 1):  # to look each time would cost each time
            self._latest = without_autograd(self._probes)
        if self._fresh:
            self._fresh, self._moved = False, has_moved(self._written, self._latest)

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
        if self._moved and not same and self._since >= STEPS:
            without_autograd(self._compare, now)
        self._written, self._moved, self._fresh = now, False, not are_coarse(now)
        self._gap, self._since = self._since, 0

    def _compare(self, now: list[Tensor]) -> None:
        """How near to those that were written the time before, and how far from where steps have taken them?"""
        if not [one.shape for one in now] == [one.shape for one in self._written] == [one.shape for one in self._latest]:
            return
        here = _joined(now)
        kept = here != 0  # what a mask takes away is no weight any more
        here, before, there = here[kept], _joined(self._written)[kept], _joined(self._latest)[kept]
        way, size = float((there - before).norm()), min(float(here.norm()), float(there.norm()))
        if not way > 0:
            return
        self._compared += 1
        left, leap = float((here - before).norm()), float((here - there).norm())
        if left < NEAR * way:
            self._near.append(left / way)
        elif leap > FAR * way and leap > OTHERS * size:
            self._far.append(leap / way)

    def clues(self) -> WrittenClues:
        """What was seen."""
        left, leap = (float(np.median(some)) if some else math.nan for some in (self._near, self._far))
        return WrittenClues(self._compared, len(self._near), left, len(self._far), leap, self.renewed)

    def _version(self) -> tuple[int, int]:
        """How often one weight has been written; who writes old weights writes them all."""
        if self._asked is None:
            self._asked = next(iter(self._owned()), None)
        tensor = self._asked.tensor() if self._asked is not None else None
        if tensor is None or tensor.is_inference():
            return UNKNOWN
        plain = type(tensor) in PLAIN and tensor.is_cpu and tensor.layout is torch.strided
        return tensor._version, tensor.data_ptr() if plain else 0  # no version tells of other numbers that are put behind `.data`

    def _owned(self) -> Iterator[Weight]:
        return (weight for weight in self._index.weights if weight.trainable and weight.owned)

    def _probes(self) -> list[Tensor]:
        some = (tensor for weight in self._owned() if (tensor := weight.tensor()) is not None and is_readable(tensor))
        return [probe(one) for one in islice(some, PROBES)]


class Excursion:
    """Follows where weights go from pass to pass: for a while, as SAM and an average take them, or for good.

    Attributes:
        last: some of their numbers in the last pass.
    """

    def __init__(self) -> None:
        self.last: list[Tensor] = []
        self._origin: list[Tensor] = []
        self._far = 0.0

    def begin(self, now: list[Tensor]) -> None:
        """They set out from here."""
        self.last = self._origin = now
        self._far = 0.0

    def is_back(self, now: list[Tensor]) -> bool:
        """Whether they are where they set out, as far as the digits of a number tell, after they had left."""
        self.last, before = now, self.last
        way = distance(now, self._origin)
        back = way < BACK * self._far or (are_same(now, self._origin) and not are_same(now, before))
        self._far = max(self._far, way)
        return back


def _joined(some: list[Tensor]) -> Tensor:
    return torch.cat([one.double() for one in some])


def distance(some: list[Tensor], others: list[Tensor]) -> float:
    """From such copies to others; 0 where these are not of the same weights."""
    if [one.shape for one in some] != [one.shape for one in others]:
        return 0.0
    return math.sqrt(sum(float((_real(one) - _real(other)).square().sum()) for one, other in zip(some, others, strict=True)))


def has_left(before: list[Tensor], now: list[Tensor], part: float) -> bool:
    """Whether any of such copies has gone farther than this part of its size."""
    pairs = zip(before, now, strict=False)
    return len(before) != len(now) or any(
        distance([one], [other]) > part * distance([one], [torch.zeros_like(one)]) for one, other in pairs
    )


def are_scaled(before: list[Tensor], now: list[Tensor]) -> bool:
    """Whether all of such copies that are others now have been multiplied by one number, as a decay does."""
    pairs = [(_real(one), _real(other)) for one, other in zip(before, now, strict=False) if not torch.equal(one, other)]
    if sum(one.numel() for one, _ in pairs) < FEW or any(one.shape != other.shape for one, other in pairs):
        return False
    old, new = (torch.cat(some) for some in zip(*pairs, strict=True))
    times = float(old @ new / (old @ old)) if old.any() else 1.0
    return float((new - times * old).norm()) < 0.01 * abs(1 - times) * float(old.norm())


def _real(some: Tensor) -> Tensor:
    """In double precision; of complex numbers both parts."""
    return (torch.view_as_real(some) if some.is_complex() else some).double().flatten()


def probe(weight: Tensor, part: int = PART) -> Tensor:
    """A copy of some of its numbers, from all over it."""
    return weight.detach().flatten()[:: max(1, weight.numel() // part)].clone()


def has_moved(before: list[Tensor], after: list[Tensor]) -> bool:
    """Whether a step has moved such copies by more than their last digits: what flips one of these comes back by itself."""
    return len(before) == len(after) and any(map(_is_far_from, before, after))


def _is_far_from(before: Tensor, after: Tensor) -> bool:
    if before.shape != after.shape or not before.is_floating_point():
        return False
    return bool(((after - before).abs() > DIGITS * torch.finfo(before.dtype).eps * before.abs()).any())


def are_coarse(some: list[Tensor]) -> bool:
    """Whether such copies hold a few numbers again and again: what is clamped, or rounded, comes back to its bounds by itself."""
    large = [one.tolist() for one in some if one.numel() > FEW]
    return bool(large) and all(len(set(one)) < len(one) / 2 for one in large)


def are_same(some: list[Tensor], others: list[Tensor]) -> bool:
    """Whether such copies are equal, number by number."""
    return len(some) == len(others) and all(map(torch.equal, some, others))
