"""Moments taken on the device where a tensor lies: the numbers of all blocks come to the CPU in one copy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from modlab.records.tensor import Values
from modlab.statistics.contents import WHOLE, blocks_of, real_numbers
from modlab.statistics.moments import NOTHING, Moments, combined
from modlab.statistics.sampling import Sampler, joined

BLOCK = 1 << 20
"""Elements looked at together; a handful of temporary arrays in float64 then take less than 64 MB."""


def can_measure(part: Tensor) -> bool:
    """Whether the device of a part has what it takes: float64 (Apple's has not), and kernels for the dtype."""
    return part.is_cuda and part.dtype not in (torch.uint16, torch.uint32, torch.uint64)


def take(parts: Sequence[Tensor], sampler: Sampler | None) -> tuple[Moments, Values]:
    """The moments of all parts, and the sampled values.

    The CPU waits for the device once; for whole numbers once more, since float64 does not hold their extremes.
    """
    rows, samples, extremes = [], [], []
    for block in _blocks(parts):
        if block.dtype in WHOLE:
            extremes.append(torch.stack(block.aminmax()).long())
        doubles = block.double()
        rows.append(_row(doubles))
        if sampler:  # a copy, for a view would keep the whole block
            samples.append(sampler.take(doubles).clone())
    moments = NOTHING
    if not rows:
        return moments, joined([])
    numbers = torch.cat([*rows, *samples]).cpu()
    width = len(rows[0])
    for row in numbers[: width * len(rows)].view(-1, width).tolist():
        finite, low, high, total, m2, *counts = row
        if not finite:
            low = high = math.nan
        moments = combined(moments, Moments(int(finite), low, high, total, m2, *map(int, counts)))
    if extremes:
        both = torch.stack(extremes).cpu()
        moments = moments._replace(min=both[:, 0].min().item(), max=both[:, 1].max().item())
    return moments, numbers[width * len(rows) :].numpy()


def _blocks(parts: Sequence[Tensor]) -> Iterator[Tensor]:
    for part in parts:
        for block in blocks_of(part, BLOCK):
            if block.numel():
                yield real_numbers(block).reshape(-1)


def _row(values: Tensor) -> Tensor:
    """The fields of `Moments`, shape ``(9,)``, float64; two passes about the mean, and no question to the device."""
    good = values.isfinite()
    finite, total = good.sum(), values.where(good, 0.0).sum()
    distance = (values - total / finite).where(good, 0.0)
    return torch.stack(
        [
            finite.double(),
            values.where(good, math.inf).amin(),
            values.where(good, -math.inf).amax(),
            total,
            distance.square_().sum(),
            *((values == 0).sum().double(), values.isnan().sum().double()),
            *((values == infinity).sum().double() for infinity in (math.inf, -math.inf)),
        ]
    )
