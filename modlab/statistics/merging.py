"""Two records as one: over batches, steps, ranks."""

from __future__ import annotations

from modlab.records.tensor import Histogram, TensorStats
from modlab.statistics.moments import NOTHING, Moments, combined


def merge(left: TensorStats, right: TensorStats) -> TensorStats:
    """The statistics of two tensors together, as if they were concatenated along the first dimension.

    Args:
        left: of a tensor of shape ``(m, ...)``.
        right: of a tensor of shape ``(n, ...)``. Where the other dimensions differ, the result's shape is ``(count,)``.

    Returns:
        Counts, extrema and histogram exactly; sums to the rounding of float64. A histogram is there if both have one, and
        samples count as they were drawn: it speaks for the whole where both were as large a part of their tensor.

    Source: Chan, Golub & LeVeque (1983), see `combined`.

    >>> import torch
    >>> from modlab.statistics import measure_tensor
    >>> merge(measure_tensor(torch.tensor([1.0, 2.0])), measure_tensor(torch.tensor([6.0]))).mean
    3.0
    """
    seen = [stats for stats in (left, right) if stats.measured]
    return TensorStats(
        _shape(left, right),
        left.dtype if left.dtype == right.dtype else "mixed",
        left.device if left.device == right.device else "mixed",
        left.count + right.count,
        *(combined(_moments(left), _moments(right)) if seen else _moments(left)),
        histogram=_histogram(seen),
        note=_note(left, right),
        measured=bool(seen),
    )


def _moments(stats: TensorStats) -> Moments:
    if not stats.measured:
        return NOTHING
    return Moments(stats.finite, stats.min, stats.max, stats.sum, stats.m2, stats.zeros, stats.nan, stats.posinf, stats.neginf)


def _histogram(seen: list[TensorStats]) -> Histogram | None:
    drawn = [stats.histogram for stats in seen if stats.histogram]
    if not drawn or len(drawn) < len(seen):
        return None
    return drawn[0] + drawn[1] if len(drawn) > 1 else drawn[0]


def _shape(left: TensorStats, right: TensorStats) -> tuple[int, ...]:
    if left.shape and right.shape and left.shape[1:] == right.shape[1:] and min(left.shape[0], right.shape[0]) >= 0:
        return (left.shape[0] + right.shape[0], *left.shape[1:])
    return (left.count + right.count,)


def _note(left: TensorStats, right: TensorStats) -> str:
    """Each remark once, however many records are merged."""
    notes = [left.note, right.note]
    if left.measured != right.measured:
        notes = [note if stats.measured else f"in part {note}" for stats, note in zip((left, right), notes, strict=True)]
    return "; ".join(filter(None, dict.fromkeys("; ".join(notes).split("; "))))
