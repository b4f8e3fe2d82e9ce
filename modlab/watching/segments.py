"""Statistics of the stretches of one array, in which many tensors stand one after the other: by numpy here, by torch where it lies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from modlab.records.slots import COLUMNS, Floats
from modlab.records.tensor import TensorStats
from modlab.watching.readback import Numbers, exact, lengths

_NONE = np.float32(np.nan)
_MEAN, _HIGH, _BAD = (COLUMNS.index(name) for name in ("mean", "high", "bad"))
_APART, _TINY = 0.01, 1e-30  # share of the mean square that the variance is, and mean squares, below which float32 is too coarse
_COUNTED = 1 << 15  # elements up to which an int16 counts them

Flags = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.intp]
Doubles = npt.NDArray[np.float64]


def starts_of(sizes: Sequence[int]) -> Counts:
    """Where each stretch begins."""
    return np.array([0, *accumulate(sizes[:-1])], np.intp)


def columns_here(values: Floats, sizes: Sequence[int], room: Floats | None = None) -> tuple[Floats, Flags]:
    """Statistics of each stretch of `values`; what is not finite is counted and left out.

    Args:
        values: shape ``(sum(sizes),)``.
        sizes: of the stretches.
        room: to compute in, at least as long as `values`: memory that is there already costs no page faults.

    Returns:
        Shape ``(len(COLUMNS), n)``; and shape ``(n,)``, whether there is a NaN among what is not finite.
    """
    starts, counts = starts_of(sizes), np.array(sizes, np.intp)
    made = np.empty((len(COLUMNS), len(sizes)), np.float32)
    nan = np.zeros(len(sizes), bool)
    with np.errstate(all="ignore"):
        low, high = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
        bad: Any = 0
        finite, calm = counts, values
        if not math.isfinite(np.add.reduce(high - low)):
            good = np.isfinite(values)
            bad = np.add.reduceat(~good, starts, dtype=np.int64)
            nan = np.add.reduceat(np.isnan(values), starts, dtype=np.int64) > 0
            finite = counts - bad
            calm = np.where(good, values, np.float32(0))
            low = np.minimum.reduceat(np.where(good, values, np.inf), starts)
            high = np.maximum.reduceat(np.where(good, values, -np.inf), starts)
        varied = low < high
        room = np.empty_like(values) if room is None else room[: len(values)]
        mean, var = _moments(calm, starts, finite, varied, room)
        mean[~varied], var[~varied] = low[~varied], 0  # no rounding error shall give a constant a spread
        small = max(sizes) < _COUNTED
        none = np.equal(values, 0, out=room.view(np.bool_)[: len(values)]).view(np.int8)
        zeros = np.add.reduceat(none, starts, dtype=np.int16 if small else np.int32) / counts
        made[0], made[7] = 1, _NONE
        made[1], made[2], made[3], made[4], made[5], made[6] = mean, var, low, high, zeros, bad
        if finite is not counts:
            made[_MEAN : _HIGH + 1, finite == 0] = _NONE
    return made, nan


def _moments(values: Floats, starts: Counts, finite: Counts, varied: Flags, room: Floats) -> tuple[Doubles, Doubles]:
    """Mean and variance of each stretch, of which `varied` tells whether its numbers differ; in double precision where that is felt."""
    mean = np.add.reduceat(values, starts) / finite
    power = np.add.reduceat(np.multiply(values, values, out=room), starts) / finite
    var = power - mean * mean
    unsure = varied & ~((var > _APART * power) & (power > _TINY))  # also where either is beyond the range
    if unsure.any():
        ends = np.append(starts[1:], len(values))
        for i in np.flatnonzero(unsure).tolist():
            one = values[starts[i] : ends[i]].astype(np.float64)
            mean[i] = one.sum() / finite[i]
            var[i] = max(0.0, np.square(one, out=one).sum() / finite[i] - mean[i] * mean[i])
    return mean, var


def columns_there(values: Tensor, sizes: Sequence[int]) -> Tensor:
    """The same, computed where `values` lies and not waited for: shape ``(8, n)``, to be read by `columns_of`."""
    counts = lengths(sizes, values.device)

    def of(numbers: Tensor, how: str) -> Tensor:
        return torch.segment_reduce(numbers, how, lengths=counts, unsafe=True)  # unsafe: it does not wait to check the lengths

    good = values.isfinite()
    wide = torch.where(good, values, 0).to(exact(values.device))
    finite = of(good.to(wide.dtype), "sum")
    mean = of(wide, "sum") / finite
    away = (wide - torch.repeat_interleave(mean, counts, output_size=len(values))) * good
    var = of(away * away, "sum") / finite
    low, high = of(torch.where(good, values, torch.inf), "min"), of(torch.where(good, values, -torch.inf), "max")
    zeros, nan = of((values == 0).to(wide.dtype), "sum") / counts, of(values.isnan().to(wide.dtype), "sum")
    return torch.stack([mean, var, low.to(wide.dtype), high.to(wide.dtype), zeros, counts - finite, nan, finite])


def columns_of(read: Numbers) -> tuple[Floats, Flags]:
    """What was computed there, as it would be here."""
    made = np.empty((len(COLUMNS), read.shape[1]), np.float32)
    made[0], made[1:7], made[7] = 1, read[:6], _NONE
    made[_MEAN : _HIGH + 1, read[7] == 0] = _NONE
    return made, read[6] > 0


def column_of(stats: TensorStats) -> Floats:
    """Of one tensor that was measured alone: shape ``(len(COLUMNS), 1)``."""
    bad, var = stats.count - stats.finite, stats.m2 / stats.finite if stats.finite else _NONE
    with np.errstate(over="ignore"):
        column = np.array((1, stats.mean, var, stats.min, stats.max, stats.zeros / stats.count, bad, _NONE), np.float64)
        return column.astype(np.float32)[:, None]
