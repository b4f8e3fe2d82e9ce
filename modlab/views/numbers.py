"""The numbers of one tensor as they are written and drawn: every face takes them from here, so that all agree."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from modlab import format
from modlab.records.state import ValuesRecord
from modlab.records.tensor import TensorStats

WRITTEN = 12  # rows and columns up to which a matrix is written out; above, it is a heat map
CORNER = 8  # rows and columns of a larger one that plain text shows
BARS = 40


@dataclass(frozen=True, slots=True)
class Bars:
    """A histogram to draw: counts over equal bins from `low` to `high`."""

    counts: list[int]
    low: float
    high: float
    note: str


def statistics(stats: TensorStats) -> list[tuple[str, str]]:
    """Names and values of the statistics, in reading order."""
    if not stats.measured:
        return []
    pairs = [(name, format.number(getattr(stats, name))) for name in ("mean", "std", "min", "max", "l2")]
    pairs.append(("zeros", f"{stats.zeros:,}" if not stats.count else f"{stats.zeros:,} ({100 * stats.zeros / stats.count:.0f} %)"))
    pairs.append(("NaN", f"{stats.nan:,}"))
    pairs.append(("Inf", f"{stats.posinf + stats.neginf:,}"))
    return pairs


def bars(stats: TensorStats, beside: Iterable[TensorStats] = ()) -> Bars | None:
    """The bars of a histogram; None where none was taken or no value is finite."""
    histogram = stats.histogram
    if histogram is None or not stats.finite:
        return None
    others = [other.histogram for other in beside if other.histogram is not None and other.finite]
    counts, (low, high) = histogram.bars(BARS, others)
    note = "" if histogram.exact else f"of {histogram.sampled:,} sampled values"
    return Bars(counts, low, high, note)


def signed(stats: TensorStats) -> bool:
    """Whether zero is the middle of the colour scale."""
    return not stats.measured or not stats.min >= 0


def limit(stats: TensorStats) -> float:
    """The largest magnitude of the finite values: both ends of the colour scale."""
    if not stats.finite:
        return 1.0
    return min(max(abs(float(stats.min)), abs(float(stats.max))), 3.4e38) or 1.0


def cells(values: ValuesRecord) -> list[str]:
    """The numbers of the matrix as text, row by row: three significant digits, whole numbers whole."""
    matrix = values.matrix
    if matrix is None:
        return []
    whole = values.stats.dtype.startswith(("int", "uint", "bool"))
    return [_cell(number, whole) for row in matrix.numbers for number in row]


def _cell(number: float, whole: bool) -> str:
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Inf" if number > 0 else "-Inf"
    if whole and abs(number) < 1e6:
        return str(int(number))
    if number and not 0.005 <= abs(number) < 10_000:
        return f"{number:.0e}"
    return f"{number:.2f}" if abs(number) < 100 else f"{number:.0f}"
