"""Bounds of outputs: those that a function sets, and what stands at one, whichever function that is."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from modlab.running.autograd_nodes import name_of, number_of, saved
from modlab.statistics.memory import is_there

AT, MOST = 0.1, 4096
"""Share of the outputs that stand at a bound; and numbers that are read."""

APART, FEW = 0.9, 8
"""Of those between, the share that differ, and how many there are."""

SLACK, BEYOND = 0.3, 0.1
"""Standard deviations of the targets by which one lies beyond a bound, and the share that does so."""

EDGE = 0.1
"""Standard deviations of the targets up to which an output stands at an end, and beyond which its targets lie on the other side."""

EVENLY = 0.8
"""Targets just beyond an end, as a part of those just within it, from which on they lie around it."""

SOME, MUCH = 0.05, 0.3
"""Parts of the targets' variance beyond the ends of a function: the first may be noise around an end, the second is none."""

SAVED = {"Clamp": ("min", "max"), "ClampMin": ("min", ""), "ClampMax": ("", "max"), "Hardtanh": ("min_val", "max_val")}
"""By the name of a function, under which names autograd has saved its ends."""


def of(node: Any) -> tuple[float, float]:
    """The ends between which a function holds what it takes, where they are numbers."""
    low, high = (number_of(saved(node, name)) if name else math.nan for name in SAVED.get(name_of(node), ("", "")))
    return -math.inf if math.isnan(low) else low, math.inf if math.isnan(high) else high


def upper(values: Tensor) -> float:
    """The largest number, if many stand there while the others differ, as they do behind a clamp; else NaN."""
    flat = values.detach().flatten()[:MOST]
    most, least = flat.max(), flat.min()
    between = flat[(flat < most) & (flat > least)]
    if float((flat == most).double().mean()) < AT or between.numel() < FEW:
        return math.nan
    return float(most) if float((between.sort().values.diff() > 0).double().mean()) > APART else math.nan


def are_beyond(targets: Tensor, bound: float) -> bool:
    """Whether many targets lie clearly above a bound."""
    some = targets.detach().flatten()[:MOST].to(torch.float64)
    return float((some > bound + SLACK * some.std()).double().mean()) > BEYOND


class Reach:
    """What targets ask for beyond the ends of a function that gives the outputs, over several batches."""

    def __init__(self) -> None:
        self._count = 0
        self._total = self._squares = 0.0
        self._lost, self._beyond, self._just, self._within = [0.0, 0.0], [0, 0], [0, 0], [0, 0]  # by end
        self._there, self._asked = [0, 0], [0.0, 0.0]  # how many outputs stand there, and what their targets lie beyond it in all

    def add(self, output: Tensor, targets: Tensor, ends: tuple[float, float]) -> None:
        """Take in a batch, if its numbers are there."""
        if not is_there(output) or not is_there(targets):
            return
        known = targets.isfinite() & output.isfinite()
        given, some = output[known].double(), targets[known].double()
        if not some.numel():
            return
        self._count += some.numel()
        self._total += float(some.sum())
        self._squares += float(some.square().sum())
        for place, (sign, end) in enumerate(zip((-1, 1), ends, strict=True)):
            over = sign * (some - end)
            self._lost[place] += float(over.clamp_min(0).square().sum())
            self._beyond[place] += int((over > 0).sum())
            usual = math.sqrt(self._lost[place] / max(self._beyond[place], 1))
            self._just[place] += int(((over > 0) & (over <= usual)).sum())
            self._within[place] += int(((over <= 0) & (over >= -usual)).sum())
            there = (given - end).abs() <= EDGE * self._deviation
            self._there[place] += int(there.sum())
            self._asked[place] += float(over[there].sum())

    @property
    def _deviation(self) -> float:
        return math.sqrt(max(self._squares / self._count - (self._total / self._count) ** 2, 1e-30))

    @property
    def is_short(self) -> bool:
        """Whether much of the targets' variance lies beyond, and is no noise around an end."""
        if not self._count:
            return False
        parts = [lost / self._count / self._deviation**2 for lost in self._lost]
        return sum(parts) > MUCH or sum(part for place, part in enumerate(parts) if not self._is_noise(place)) > SOME

    def _is_noise(self, place: int) -> bool:
        """Whether about as many targets lie just beyond an end as just within it, and outputs that stand there do so for both."""
        held = self._asked[place] > EDGE * self._deviation * self._there[place]
        return self._just[place] >= EVENLY * self._within[place] and not held
