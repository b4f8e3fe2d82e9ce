"""Slots of time that were sampled, two by two as one: what a long history, and a small output, are made with."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

COLUMNS = ("samples", "mean", "var", "low", "high", "zeros", "bad", "stuck")
"""Of each series in each slot: how many samples, mean, variance, least and greatest finite number; the share of zeros, the
number of NaN and infinities (the most in one sample), and, of updates, the share of elements that had a gradient and did not move."""

_MEANS = [COLUMNS.index(name) for name in ("mean", "zeros", "stuck")]


def combined(left: Floats, right: Floats) -> Floats:
    """The columns of two slots as those of one: counts add, means are weighed by them, extremes stay.

    Args:
        left: shape ``(…, columns, series)``, in the order of `COLUMNS`; NaN, and 0 samples, where a series was not sampled.
        right: the same shape.

    Source of the variance: Chan, Golub & LeVeque (1983), as for the moments of two tensors.
    """
    made = np.empty_like(left)
    mine, theirs = left[..., 0, :], right[..., 0, :]
    total = mine + theirs
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(total > 0, theirs / total, 0)
        for name in ("mean", "var", "zeros", "stuck"):
            at = COLUMNS.index(name)
            made[..., at, :] = _weighed(left[..., at, :], right[..., at, :], share)
        apart = right[..., 1, :] - left[..., 1, :]
        made[..., 2, :] += np.nan_to_num(share * (1 - share) * apart * apart)
    made[..., 0, :] = total
    made[..., 3, :] = np.fmin(left[..., 3, :], right[..., 3, :])
    for at in (4, 6):
        made[..., at, :] = np.fmax(left[..., at, :], right[..., at, :])
    return made


def merged(many: Floats) -> Floats:
    """The columns of several slots as those of one.

    Args:
        many: shape ``(slots, columns, series)``.

    Returns:
        Shape ``(columns, series)``; what is NaN in some slots is that of the others.
    """
    made = np.empty(many.shape[1:], np.float32)
    counts = many[:, 0]
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        means = many[:, _MEANS]
        known = ~np.isnan(means)
        weights = counts[:, None] * known
        total = weights.sum(axis=0, dtype=np.float64)
        mean = np.multiply(means, weights, out=np.zeros_like(means), where=known).sum(axis=0, dtype=np.float64) / total
        away = many[:, 1] - mean[0]
        spread = np.multiply(many[:, 2] + away * away, counts, out=np.zeros_like(away), where=known[:, 0])
        made[2] = spread.sum(axis=0) / total[0]
    made[_MEANS] = mean
    made[0] = counts.sum(axis=0)
    made[3] = np.fmin.reduce(many[:, 3])
    made[4], made[6] = np.fmax.reduce(many[:, 4]), np.fmax.reduce(many[:, 6])
    return made


def _weighed(left: Floats, right: Floats, share: Floats) -> Floats:
    """What only one of the two has is taken as it is."""
    made: Floats = left + (right - left) * share
    return np.where(np.isnan(left), right, np.where(np.isnan(right), left, made))
