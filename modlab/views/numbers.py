"""The numbers of one tensor as they are written and drawn: every face takes them from here, so that all agree."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable

from modlab import format
from modlab.frozen import frozen
from modlab.records.state import ValuesRecord
from modlab.records.tensor import Histogram, TensorStats
from modlab.views import sharding

WRITTEN = 12  # rows and columns up to which a matrix is written out; above, it is a heat map
CORNER = 8  # rows and columns of a larger one that plain text shows
BARS = 40
_ROUNDING = 1e-6  # some times the distance of neighbouring float32 numbers near 1


@frozen
class Bars:
    """A histogram to draw: counts over equal bins from `low` to `high`; `alone` says it where all the values are one and the same."""

    counts: list[int]
    low: float
    high: float
    note: str
    alone: str = ""


def statistics(stats: TensorStats) -> list[tuple[str, str]]:
    """Names and values of the statistics, in reading order; of this rank's part of a tensor each says so."""
    if not stats.measured:
        return []
    pairs = _statistics(stats)
    return [(f"{name} {sharding.HERE}", value) for name, value in pairs] if stats.of_part else pairs


def mean(stats: TensorStats) -> float:
    """The mean as it is written: 0 where it is so small beside the largest number that rounding alone can have left it.

    Rounding leaves another one on each device and with each number of threads.
    """
    return 0.0 if abs(stats.mean) <= _ROUNDING * max(abs(stats.min), abs(stats.max)) else stats.mean


def _statistics(stats: TensorStats) -> list[tuple[str, str]]:
    pairs = [("mean", format.number(mean(stats)))]
    pairs += [(name, format.number(getattr(stats, name))) for name in ("std", "min", "max", "l2")]
    pairs.append(("zeros", f"{stats.zeros:,}" if not stats.count else f"{stats.zeros:,} ({100 * stats.zeros / stats.count:.0f} %)"))
    pairs.append(("NaN", f"{stats.nan:,}"))
    pairs.append(("Inf", f"{stats.posinf + stats.neginf:,}"))
    return pairs


def bars(stats: TensorStats, beside: Iterable[TensorStats] = ()) -> Bars | None:
    """The bars of a histogram; None where none was taken or no value is finite."""
    histogram = stats.histogram
    if histogram is None or not stats.finite:
        return None
    others = [other for other in beside if other.histogram is not None and other.finite]
    note = "" if histogram.exact else f"of {histogram.sampled:,} sampled values"
    if all((other.min, other.max) == (stats.min, stats.min) for other in (stats, *others)):
        return _one_bar(stats, histogram, note)
    counts, (low, high) = histogram.bars(BARS, [other.histogram for other in others if other.histogram is not None])
    return Bars(counts, low, high, note)


def _one_bar(stats: TensorStats, histogram: Histogram, note: str) -> Bars:
    """The only value in the middle, with room on both sides: its own bin is as narrow as a float64 can tell, and its ends say nothing."""
    value, greatest = float(stats.min), sys.float_info.max
    aside = abs(value) / 2 or 0.5
    low, high = max(value - aside, -greatest), min(value + aside, greatest)
    counts = [0] * 9
    counts[min(int(len(counts) * ((value - low) / (high - low))), len(counts) - 1)] = int(histogram.grid.counts.sum())
    return Bars(counts, low, high, note, constant(stats))


def constant(stats: TensorStats) -> str:
    """What all finite elements are, where they are all the same."""
    if not stats.finite or stats.min != stats.max:
        return ""
    value = format.number(stats.min + 0)  # no minus before a zero
    who = "" if stats.count == 1 else "all " if stats.finite == stats.count else "all others "
    return who + value


def signed(stats: TensorStats) -> bool:
    """Whether zero is the middle of the colour scale."""
    return not stats.measured or not stats.min >= 0


def limit(stats: TensorStats) -> float:
    """The largest magnitude of the finite values: both ends of the colour scale."""
    if not stats.finite:
        return 1.0
    return min(max(abs(float(stats.min)), abs(float(stats.max))), 3.4e38) or 1.0


def cells(values: ValuesRecord) -> list[str]:
    """The numbers of the matrix as text, row by row, all in one format."""
    matrix = values.matrix
    if matrix is None:
        return []
    numbers = [number for row in matrix.numbers for number in row]
    most = max((abs(number) for number in numbers if math.isfinite(number)), default=0.0)
    whole = values.stats.dtype.startswith(("int", "uint", "bool"))
    form = ".0f" if whole and most < 1e6 else _form(most)
    return [_cell(number, form) for number in numbers]


def _form(most: float) -> str:
    """As many decimals as the largest magnitude leaves room for; powers of ten where that is tiny or huge."""
    steps = ((0.01, ".1e"), (0.1, ".4f"), (100, ".2f"), (1_000, ".1f"), (10_000, ".0f"))
    return next((form for below, form in steps if most < below), ".1e")


def _cell(number: float, form: str) -> str:
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Inf" if number > 0 else "-Inf"
    return f"{number + 0:{form}}"  # no minus before a zero
