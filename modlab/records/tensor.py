"""What one tensor's values are like: plain numbers, and counts over bins that add without an error."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from dataclasses import fields

import numpy as np
import numpy.typing as npt

from modlab.frozen import frozen
from modlab.records.sharding import Sharding

Counts = npt.NDArray[np.int64]
Values = npt.NDArray[np.generic]

BITS = 11
MOST_BINS = 128
# The least exponent of a bin's width: 2.0**1020 is still a float.
FINEST = -1020

_POSITIVE = (np.arange(1020, dtype=np.uint32) << 32 - BITS).view(np.float32).astype(np.float64)
_EDGES = np.concatenate(([-(2.0**128)], -_POSITIVE[:0:-1], _POSITIVE, [2.0**128]))
_EDGES.setflags(write=False)


@frozen(eq=False)
class Grid:
    """Counts over equal bins whose width is a power of two, and whose edges are multiples of it.

    Two neighbours make one bin of the next coarser grid, so grids over any two ranges add exactly. It is the finest such
    grid that covers the range in 128 bins; bins of whole numbers are at least 1 wide.

    Attributes:
        exponent: a bin is ``2.0**exponent`` wide, in the tensor's own units.
        first: the number of the first bin; bin ``k`` holds ``k * width <= value < (k + 1) * width``.
        counts: shape ``(bins,)``; no bin if there was no finite value.
    """

    exponent: int
    first: int
    counts: Counts

    def __post_init__(self) -> None:
        self.counts.setflags(write=False)

    @classmethod
    def count(cls, values: Values, low: float, high: float) -> Grid:
        """Count finite `values`, which lie between `low` and `high`; these are of type ``int`` if all are whole numbers."""
        exponent, first, bins = _fit(low, high)
        place = np.multiply(values, 2.0**-exponent, dtype=np.float64)
        np.floor(place, out=place)
        place -= first
        return cls(exponent, first, np.bincount(place.astype(np.intp), minlength=bins))

    @property
    def range(self) -> tuple[float, float]:
        """The lower edge of the first bin and the upper edge of the last one; NaN if there is no bin."""
        if not len(self.counts):
            return math.nan, math.nan
        return _edge(self.first, self.exponent), _edge(self.first + len(self.counts), self.exponent)

    @property
    def last(self) -> int:
        """The number of the last bin."""
        return self.first + len(self.counts) - 1

    def coarser(self, steps: int) -> Grid:
        """The same counts in bins ``2**steps`` times as wide."""
        return self._over(self.first >> steps, self.last >> steps, steps) if steps else self

    def _over(self, first: int, last: int, steps: int) -> Grid:
        """The same counts in the coarser bins `first` to `last`."""
        counts = np.zeros(last - first + 1, np.int64)
        np.add.at(counts, [((self.first + k) >> steps) - first for k in range(len(self.counts))], self.counts)
        return Grid(self.exponent + steps, first, counts)

    def __add__(self, other: Grid) -> Grid:
        if not (len(self.counts) and len(other.counts)):
            return self if len(self.counts) else other
        exponent = max(self.exponent, other.exponent)
        left, right = self.coarser(exponent - self.exponent), other.coarser(exponent - other.exponent)
        first, last = min(left.first, right.first), max(left.last, right.last)
        steps = _steps(first, last, MOST_BINS)
        left, right = (grid._over(first >> steps, last >> steps, steps) for grid in (left, right))
        return Grid(exponent + steps, left.first, left.counts + right.counts)

    def __mul__(self, times: int) -> Grid:
        return Grid(self.exponent, self.first, self.counts * times)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Grid):
            return NotImplemented
        return (self.exponent, self.first) == (other.exponent, other.first) and np.array_equal(self.counts, other.counts)


def _fit(low: float, high: float) -> tuple[int, int, int]:
    """The least exponent, and with it the first bin and the number of bins, that cover a range in 128 bins.

    The rule looks at the range alone, and a wider range never gets a finer grid: so a sum of grids is the grid of all values.
    """
    finest = 0 if isinstance(low, int) else FINEST
    low, high = float(low), float(high)
    greatest = max(-low, high)
    if greatest:
        finest = max(finest, math.frexp(greatest)[1] - 53)  # below that, a double has no digits
    span = high / MOST_BINS - low / MOST_BINS  # the difference itself may overflow
    exponent = max(finest, math.frexp(span)[1] - 1) if span else finest
    while True:
        first = math.floor(math.ldexp(low, -exponent))
        bins = math.floor(math.ldexp(high, -exponent)) - first + 1
        if bins <= MOST_BINS:
            return exponent, first, bins
        exponent += 1


def _steps(first: int, last: int, bins: int) -> int:
    """How often neighbours must be joined until the bins `first` to `last` are no more than `bins`."""
    steps = 0
    while (last >> steps) - (first >> steps) >= bins:
        steps += 1
    return steps


def _edge(number: int, exponent: int) -> float:
    try:
        return math.ldexp(number, exponent)
    except OverflowError:  # the bin of the greatest doubles ends at 2**1024
        return math.copysign(sys.float_info.max, number)


@frozen(eq=False)
class Histogram:
    """How often values of each size occur: over fixed bins, good for every scale, and over equal ones, good to draw.

    Attributes:
        counts: shape ``(2048,)``: values by the top 11 bits (sign, exponent, 2 bits of the mantissa) of the value as float32;
            four bins an octave, the same for every tensor. Bins 1020 to 1023 and 2044 to 2047 hold infinities and NaN.
        grid: the finite values over equal bins; its range covers *all* values, also those that a sample left out.
        sampled: the number of values it rests on.
        exact: these are all values, not a sample.
    """

    counts: Counts
    grid: Grid
    sampled: int
    exact: bool

    def __post_init__(self) -> None:
        self.counts.setflags(write=False)

    @classmethod
    def count(cls, values: Values, low: float, high: float, *, all_finite: bool, exact: bool) -> Histogram:
        """Count `values`, shape ``(n,)``, whose finite ones lie between `low` and `high` (NaN: there are none)."""
        bits = values.astype(np.float32, copy=False).view(np.uint32) >> 32 - BITS
        counts = np.bincount(bits, minlength=1 << BITS)
        if not all_finite:
            values = values[np.isfinite(values)]
        grid = Grid.count(values, low, high) if low == low else Grid(FINEST, 0, np.zeros(0, np.int64))
        return cls(counts, grid, len(bits), exact)

    @property
    def edges(self) -> npt.NDArray[np.float64]:
        """The bounds of the bins of `ordered`: shape ``(2041,)``, ascending from -2**128 to 2**128; 0 is the middle one."""
        return _EDGES

    @property
    def ordered(self) -> Counts:
        """`counts` of finite values from the least to the greatest: shape ``(2040,)``; −0 stands below 0."""
        return np.concatenate((self.counts[2043:1023:-1], self.counts[:1020]))

    @property
    def nonfinite(self) -> int:
        """How many of the sampled values are NaN or infinite (or too great for float32)."""
        return int(self.counts[1020:1024].sum() + self.counts[2044:].sum())

    def bars(self, most: int = 40, beside: Iterable[Histogram] = ()) -> tuple[list[int], tuple[float, float]]:
        """Counts of finite values over at most `most` equal bins (but at least 2), and the range from first to last edge.

        Histograms that stand `beside` it, and have finite values, share bins and range with it.

        No count is split or estimated: bins of the grid are joined two by two until they are few enough. The edges are
        multiples of a power of two, so the range is a little wider than from `min` to `max`.
        """
        whole = self.grid
        for other in beside:
            whole += other.grid
        whole = whole.coarser(_steps(whole.first, whole.last, max(most, 2)))
        own = self.grid.coarser(whole.exponent - self.grid.exponent)
        return own._over(whole.first, whole.last, 0).counts.tolist(), whole.range

    def __add__(self, other: Histogram) -> Histogram:
        return Histogram(self.counts + other.counts, self.grid + other.grid, self.sampled + other.sampled, self.exact and other.exact)

    def __mul__(self, times: int) -> Histogram:
        return Histogram(self.counts * times, self.grid * times, self.sampled * times, self.exact)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Histogram):
            return NotImplemented
        return (self.sampled, self.exact, self.grid) == (other.sampled, other.exact, other.grid) and np.array_equal(
            self.counts, other.counts
        )


@frozen(eq=False)
class TensorStats:
    """Statistics of one tensor, or of several merged into one; over the finite elements, in the tensor's own units.

    Attributes:
        shape: -1 stands for a ragged or symbolic size; ``()`` for a lazy tensor, which has no shape yet.
        dtype: as ``"float32"``; ``"mixed"`` after merging two.
        device: as ``"cuda:0"``; ``"mixed"`` after merging two.
        count: the number of elements.
        finite: the number of elements that the statistics are about. If `measured` is false, it and the counts below are 0.
        min: the least finite element, an ``int`` for whole numbers (exact, also of int64); NaN if no element is finite.
        max: the greatest.
        sum: in float64.
        m2: the sum of squared distances from the mean, in float64: what two records need to be merged.
        zeros: elements equal to 0, for a sparse tensor the implicit ones too.
        nan: elements that are not a number.
        posinf: elements that are +infinity.
        neginf: elements that are −infinity.
        histogram: None if it was not asked for, or if nothing was measured.
        note: what one must know to read the numbers ("magnitudes …", "not measured: …"), or nothing.
        measured: whether the values were seen; if not, `note` says why.
        stored: the dtype in which it lies in memory, where that is not `dtype` (torchao's weights, which are measured dequantized).
        sharding: of a tensor that lies over several ranks; everything else is about this rank's part then: `l2` is none of the whole.
    """

    shape: tuple[int, ...]
    dtype: str
    device: str
    count: int
    finite: int = 0
    min: float = math.nan
    max: float = math.nan
    sum: float = math.nan
    m2: float = math.nan
    zeros: int = 0
    nan: int = 0
    posinf: int = 0
    neginf: int = 0
    histogram: Histogram | None = None
    note: str = ""
    measured: bool = True
    stored: str = ""
    sharding: Sharding | None = None

    @property
    def of_part(self) -> bool:
        """Whether the numbers are those of this rank's part of a tensor, and not of the tensor."""
        return self.sharding is not None and not self.sharding.whole

    @property
    def mean(self) -> float:
        """The mean of the finite elements; NaN if there are none."""
        return self.sum / self.finite if self.finite else math.nan

    @property
    def std(self) -> float:
        """The population's standard deviation (divided by n, as ``x.std(correction=0)``); NaN if no element is finite."""
        return math.sqrt(self.m2 / self.finite) if self.finite else math.nan

    @property
    def l2(self) -> float:
        """The Euclidean norm of the finite elements; NaN if there are none."""
        return math.sqrt(self.m2 + self.sum * self.mean) if self.finite else math.nan

    def __eq__(self, other: object) -> bool:
        """Equal in every field; NaN equals NaN."""
        if not isinstance(other, TensorStats):
            return NotImplemented
        pairs = ((getattr(self, field.name), getattr(other, field.name)) for field in fields(self))
        return all(left == right or (left != left and right != right) for left, right in pairs)
