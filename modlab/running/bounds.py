"""Bounds of outputs: those that a function sets, and what stands at one, whichever function that is."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from modlab.running.autograd_nodes import name_of, number_of, saved

AT, MOST = 0.1, 4096
"""Share of the outputs that stand at a bound; and numbers that are read."""

APART, FEW = 0.9, 8
"""Of those between, the share that differ, and how many there are."""

SLACK, BEYOND = 0.3, 0.1
"""Standard deviations of the targets by which one lies beyond a bound, and the share that does so."""

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
