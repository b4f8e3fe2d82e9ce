"""Moments: sums, extrema and counts of a block of numbers, and of two sets of numbers together."""

from __future__ import annotations

import math
import threading
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from modlab.records.tensor import Values

BLOCK = 1 << 17
"""Elements looked at together: few enough to stay in the cache for the passes that follow the first."""

SMALL = 4096
"""Up to here two passes in float64 cost no more than the quick way."""

ROW = 2048
"""float32 values added up in float32, before float64 takes over."""

_ONES = {kind: np.ones(SMALL, kind) for kind in "fd"}


class _Scratch(threading.local):
    """Memory for a block's temporary arrays, kept by each thread: fresh pages for every block can cost more than the arithmetic."""

    def __init__(self) -> None:
        self.doubles = np.empty(BLOCK)
        self.flags = np.empty(BLOCK, bool)


_scratch = _Scratch()


class Moments(NamedTuple):
    """The numbers of a `TensorStats`, in its order."""

    finite: int
    min: float
    max: float
    sum: float
    m2: float
    zeros: int
    nan: int = 0
    posinf: int = 0
    neginf: int = 0

    def __mul__(self, times: int) -> Moments:  # type: ignore[override]
        """Of the same values, each so many times."""
        finite, low, high, total, m2, *counts = self
        return Moments(finite * times, low, high, total * times, m2 * times, *(count * times for count in counts))


NOTHING = Moments(0, math.nan, math.nan, 0.0, 0.0, 0)


def moments_of(values: Values) -> Moments:
    """The moments of at most `BLOCK` numbers.

    Args:
        values: shape ``(n,)``; float32, float64 or whole numbers; numpy's warnings are off.
    """
    if values.size > SMALL and values.dtype.char in _ONES:
        quick = _one_pass(values)
        if quick is not None:
            return quick
    elif not values.size:
        return NOTHING
    doubles = _doubles(values)
    total = _sum(doubles)
    if not -math.inf < total < math.inf:  # NaN, infinities, or an overflow
        return _of_finite(values)
    return _two_passes(values, doubles, total)


def _doubles(values: Values) -> npt.NDArray[np.float64]:
    """A copy in float64, good until the next one is made."""
    if values.size <= SMALL:
        return values.astype(np.float64)
    doubles = _scratch.doubles[: values.size]
    np.copyto(doubles, values)
    return doubles


def _one_pass(values: Values) -> Moments | None:
    """The quick way, in the values' own precision; None where that is not enough.

    `square - total * mean` keeps its digits while the mean is within five standard deviations of zero; a sum of squares that
    has underflowed, has overflowed or has met a NaN fails the comparison as well. Error of std on N(0, 1): 1e-8.
    """
    size = values.size
    total, square = _sums(values)
    m2 = square - total * (total / size)
    if not square < math.inf:
        return None
    low, high = float(values.min()), float(values.max())
    if low == high:
        return _constant(size, low)
    if not (square > 1e-30 and m2 > 0.04 * square):
        return None
    # A comparison with 0 is vectorised in numpy; `count_nonzero` of floats, and torch's comparison, are not.
    zeros = int(np.count_nonzero(np.equal(values, 0, out=_scratch.flags[:size]))) if low <= 0 <= high else 0
    return Moments(size, low, high, total, m2, zeros)


def _sums(values: Values) -> tuple[float, float]:
    """The sum and the sum of squares: within a row in the values' own precision, whose error grows with the length; rows in float64."""
    size, ones = values.size, _ONES[values.dtype.char]
    whole = size - size % ROW
    rows, rest = values[:whole].reshape(-1, ROW), values[whole:]
    totals, squares = rows.dot(ones[:ROW]), np.matmul(rows[:, None, :], rows[:, :, None])
    # Python adds 64 numbers sooner than numpy has begun to.
    return sum(totals.tolist(), float(rest.dot(ones[: size - whole]))), sum(squares.ravel().tolist(), float(rest.dot(rest)))


def _sum(doubles: npt.NDArray[np.float64], *, squared: bool = False) -> float:
    """The sum, or the sum of squares; a long ``dot`` would wake further BLAS threads, which spin beside the training."""
    if doubles.size <= SMALL:
        return float(doubles.dot(doubles if squared else _ONES["d"][: doubles.size]))
    return float((np.square(doubles, out=doubles) if squared else doubles).sum())


def _two_passes(values: Values, doubles: npt.NDArray[np.float64], total: float) -> Moments:
    """The careful way, in float64 about the mean; `values` are finite, and `doubles` is a copy of them that is used up."""
    size = values.size
    number = float if values.dtype.kind == "f" else int
    low, high = number(values.min()), number(values.max())
    if low == high:
        return _constant(size, low)
    zeros = size - int(np.count_nonzero(values)) if low <= 0 <= high else 0
    doubles -= total / size
    return Moments(size, low, high, total, _sum(doubles, squared=True), zeros)


def _constant(size: int, value: float) -> Moments:
    """A rounding error must not give a constant a spread."""
    return Moments(size, value, value, float(value) * size, 0.0, 0 if value else size)


def _of_finite(values: Values) -> Moments:
    finite = values[np.isfinite(values)]
    moments = NOTHING
    if finite.size:
        doubles = _doubles(finite)
        moments = _two_passes(finite, doubles, float(doubles.sum()))
    posinf, neginf = (int(np.count_nonzero(values == infinity)) for infinity in (math.inf, -math.inf))
    return moments._replace(nan=values.size - finite.size - posinf - neginf, posinf=posinf, neginf=neginf)


def combined(left: Moments, right: Moments) -> Moments:
    """The moments of two sets of values together.

    Source: Chan, Golub & LeVeque, "Algorithms for computing the sample variance", The American Statistician 37 (1983), (2.1).
    """
    if not (left.finite and right.finite):
        most = left if left.finite else right
        return Moments(*most[:6], *map(int.__add__, left[6:], right[6:]))
    finite = left.finite + right.finite
    apart = left.sum / left.finite - right.sum / right.finite
    return Moments(
        finite,
        min(left.min, right.min),
        max(left.max, right.max),
        left.sum + right.sum,
        left.m2 + right.m2 + apart * apart * (left.finite * right.finite / finite),
        left.zeros + right.zeros,
        left.nan + right.nan,
        left.posinf + right.posinf,
        left.neginf + right.neginf,
    )
