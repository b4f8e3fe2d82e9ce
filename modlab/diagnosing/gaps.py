"""Gaps: how far apart two passes are."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from modlab.inspection.tensor_difference import equal_bits, quietly
from modlab.statistics.memory import is_there

ROUNDING = 1e-5
"""Difference, relative to the largest output, that counts as rounding."""


def gap(one: Sequence[Tensor], other: Sequence[Tensor]) -> float | None:
    """The largest difference; None if they are equal bit for bit."""
    if len(one) != len(other):
        return math.inf
    worst: float | None = None
    for a, b in zip(one, other, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return math.inf
        if not (is_there(a) and is_there(b)) or quietly(equal_bits, a, b):  # without values nothing can differ
            continue
        apart = float((a.to(torch.float64) - b.to(torch.float64)).abs().max()) if not a.is_complex() else float((a - b).abs().max())
        worst = max(worst or 0.0, math.inf if math.isnan(apart) else apart)
    return worst


def scale(tensors: Sequence[Tensor]) -> float:
    """The largest magnitude, relative to which a difference may be rounding."""
    return max((float(t.abs().max()) for t in tensors if t.is_floating_point() and t.numel()), default=1.0) or 1.0
