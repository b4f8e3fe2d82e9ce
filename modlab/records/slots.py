"""Slots of time that were sampled, two by two as one: what a long history, and a small output, are made with."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

COLUMNS = ("samples", "mean", "var", "low", "high", "zeros", "bad", "stuck")
"""Of each series in each slot: how many samples, mean, variance, least and greatest finite number; the share of zeros, the
number of NaN and infinities (the most in one sample), and, of updates, the share of elements that had a gradient and did not move."""


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


def _weighed(left: Floats, right: Floats, share: Floats) -> Floats:
    """What only one of the two has is taken as it is."""
    made: Floats = left + (right - left) * share
    return np.where(np.isnan(left), right, np.where(np.isnan(right), left, made))
