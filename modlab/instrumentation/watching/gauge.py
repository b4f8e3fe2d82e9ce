"""Many tensors measured at once: small ones are joined and share each pass of numpy, so one costs a microsecond or two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from modlab.compat import dispatch_modes, is_functional, is_transformed
from modlab.records.slots import COLUMNS, Floats
from modlab.records.tensor import TensorStats
from modlab.records.watch import BINS
from modlab.statistics import measure_tensor

SMALL = 1 << 13
"""Elements up to which a tensor is joined with others."""

BINNED = 512
"""Of a small tensor's elements, about so many are counted in the histogram."""

_JOINED = {torch.float32, torch.float64, torch.float16, torch.bfloat16}
_PLAIN = (Tensor, torch.nn.Parameter)
_SIGN, _HALVES = 1 << 9, (1 << 9) - 1  # of the top ten bits of a float32: the sign; eight of the exponent and one of the mantissa
_BIAS = 254  # the number of the half octave that begins at 1
_MIDDLE = BINS // 2
_NONE = np.float32(np.nan)
_BAD = COLUMNS.index("bad")


class Readings(NamedTuple):
    """What a sample measured.

    Attributes:
        rows: shape ``(n,)``: the numbers of the series.
        columns: shape ``(len(COLUMNS), n)``.
        highest: shape ``(n,)``: the half octave of the greatest magnitude.
        nan: shape ``(n,)``: whether a NaN is among what is not finite.
        binned: of each reading the sign and half octave of some of its numbers, of a large one the counts by these; or None.
    """

    rows: npt.NDArray[np.intp]
    columns: Floats
    highest: npt.NDArray[np.int64]
    binned: list[npt.NDArray[Any] | None]
    nan: npt.NDArray[np.bool_]

    def only(self, some: npt.NDArray[np.intp]) -> Readings:
        """Those at some places."""
        return Readings(self.rows[some], self.columns[:, some], self.highest[some], [self.binned[i] for i in some.tolist()], self.nan[some])


class Gauge:
    """Takes tensors, and measures them when asked for the readings."""

    def __init__(self) -> None:
        self._small: list[Tensor] = []
        self._small_rows: list[Sequence[int]] = []
        self._large: list[tuple[Sequence[int], TensorStats]] = []
        self.notes: dict[int, str] = {}

    def add(self, rows: Sequence[int], tensor: Tensor, *, fleeting: bool = False) -> None:
        """Measure a tensor for one or several series; `fleeting` if its numbers may change before the readings are asked for."""
        if not rows:
            return
        if joinable(tensor):
            plain = tensor.data
            self._small.append(plain.clone() if fleeting else plain)
            self._small_rows.append(rows)
            return
        stats = measure_tensor(tensor)
        if stats.note:
            self.notes.update(dict.fromkeys(rows, stats.note))
        if stats.measured and stats.count:
            self._large.append((rows, stats))

    def readings(self) -> Readings | None:
        """All that was added since the last time; None if there was nothing."""
        rows: list[int] = []
        nan: list[bool] = []
        columns: list[Floats] = []
        binned: list[npt.NDArray[Any] | None] = []
        if self._small:
            values, sizes = joined(self._small)
            measured, counts = _columns(values, sizes), _halves(values, sizes)
            holds_nan = _holds_nan(values, sizes) if measured[_BAD].any() else [False] * len(sizes)
            for i, some in enumerate(self._small_rows):
                rows.extend(some)
                binned.extend([counts[i]] * len(some))
                nan.extend([holds_nan[i]] * len(some))
            repeats = [len(some) for some in self._small_rows]
            columns.append(measured if max(repeats) == 1 else np.repeat(measured, repeats, axis=1))
        for some, stats in self._large:
            rows.extend(some)
            halves = None if stats.histogram is None else stats.histogram.counts.reshape(-1, 2).sum(axis=1)
            binned.extend([halves] * len(some))
            nan.extend([stats.nan > 0] * len(some))
            columns.append(np.repeat(_of_stats(stats), len(some), axis=1))
        self._small, self._small_rows, self._large = [], [], []
        if not rows:
            return None
        together = np.concatenate(columns, axis=1) if len(columns) > 1 else columns[0]
        return Readings(np.array(rows, np.intp), together, _highest(together), binned, np.array(nan, bool))


def joinable(tensor: Tensor) -> bool:
    """Whether a tensor's numbers can stand in one array with others'."""
    return (
        type(tensor) in _PLAIN
        and tensor.dtype in _JOINED
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and 0 < tensor.numel() <= SMALL
        and not tensor.is_nested
        and not is_functional(tensor)
        and not is_transformed(tensor)
        and not dispatch_modes()
    )


def joined(tensors: list[Tensor]) -> tuple[Floats, npt.NDArray[np.intp]]:
    """All numbers in one array of float32, one tensor after the other, and how many each has."""
    sizes = np.array([tensor.numel() for tensor in tensors], np.intp)
    values = torch.cat([tensor.reshape(-1) for tensor in tensors])
    return values.to(torch.float32).numpy(), sizes


def _columns(values: Floats, sizes: npt.NDArray[np.intp]) -> Floats:
    """Shape ``(len(COLUMNS), n)``: of each stretch of the values."""
    starts = np.concatenate(([0], np.cumsum(sizes[:-1])))
    doubles = values.astype(np.float64)
    with np.errstate(all="ignore"):
        total = np.add.reduceat(doubles, starts)
        bad = np.zeros(len(sizes), np.int64)
        finite = sizes
        low, high = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
        if not np.isfinite(total.sum()):
            good = np.isfinite(values)
            bad = np.add.reduceat(~good, starts, dtype=np.int64)
            finite = sizes - bad
            doubles[~good] = 0
            total = np.add.reduceat(doubles, starts)
            low = np.minimum.reduceat(np.where(good, values, np.inf), starts)
            high = np.maximum.reduceat(np.where(good, values, -np.inf), starts)
        zeros = np.add.reduceat(values == 0, starts, dtype=np.int64)
        mean = total / finite
        np.multiply(doubles, doubles, out=doubles)
        var = np.maximum(np.add.reduceat(doubles, starts) / finite - mean * mean, 0)
        var[low == high] = 0  # no rounding error shall give a constant a spread
        made = np.array((np.ones(len(sizes)), mean, var, low, high, zeros / sizes, bad, np.full(len(sizes), _NONE)))
        made[1:5, finite == 0] = _NONE
        return made.astype(np.float32)


def _holds_nan(values: Floats, sizes: npt.NDArray[np.intp]) -> list[bool]:
    starts = np.concatenate(([0], np.cumsum(sizes[:-1])))
    return list(np.add.reduceat(np.isnan(values), starts, dtype=np.int64) > 0)


def _of_stats(stats: TensorStats) -> Floats:
    bad, var = stats.count - stats.finite, stats.m2 / stats.finite if stats.finite else _NONE
    with np.errstate(over="ignore"):
        column = np.array((1, stats.mean, var, stats.min, stats.max, stats.zeros / stats.count, bad, _NONE), np.float64)
        return column.astype(np.float32)[:, None]


def _halves(values: Floats, sizes: npt.NDArray[np.intp]) -> list[npt.NDArray[np.uint32]]:
    """Of each stretch, the numbers of the half octaves its values lie in, the sign above; of long ones of an even selection."""
    keys = values.view(np.uint32) >> np.uint32(22)
    found, start = [], 0
    for size in sizes.tolist():
        stride = max(1, size // BINNED) | 1  # odd: no column of a matrix with an even width is left out
        found.append(keys[start : start + size : stride])
        start += size
    return found


def _highest(columns: Floats) -> npt.NDArray[np.int64]:
    """The half octave of the greatest magnitude of each reading."""
    with np.errstate(invalid="ignore"):
        greatest = np.nan_to_num(np.fmax(np.abs(columns[3]), np.abs(columns[4])), nan=0.0, posinf=0.0).astype(np.float32)
    found: npt.NDArray[np.int64] = ((greatest.view(np.uint32) >> np.uint32(22)) & _HALVES).astype(np.int64) - _BIAS
    return found


def shares(readings: Readings, tops: npt.NDArray[np.int16]) -> Floats:
    """The readings' histograms, shape ``(n, BINS)``; each row that has one sums to 1.

    Args:
        readings: of which series `tops` speaks.
        tops: shape ``(n,)``: the half octaves in which the last bins begin.
    """
    made = np.zeros((len(readings.rows), BINS), np.float32)
    small = [i for i, keys in enumerate(readings.binned) if keys is not None and keys.dtype == np.uint32]
    if small:
        keys = np.concatenate([readings.binned[i] for i in small]).astype(np.int64)
        lengths = [len(readings.binned[i]) for i in small]  # type: ignore[arg-type]
        place = np.repeat(np.arange(len(small)), lengths)
        away = (np.repeat(tops[small].astype(np.int64), lengths) - ((keys & _HALVES) - _BIAS)).clip(0, _MIDDLE)
        at = np.where(keys & _SIGN, away, BINS - 1 - away) + BINS * place
        counts = np.bincount(at, minlength=BINS * len(small)).reshape(len(small), BINS)
        made[small] = counts / np.array(lengths)[:, None]
    for i, counted in enumerate(readings.binned):
        if counted is not None and counted.dtype != np.uint32:
            made[i] = _folded(counted, int(tops[i]))
    return made


def _folded(halves: npt.NDArray[Any], top: int) -> Floats:
    """Counts by sign and half octave, shape ``(1024,)``, in the bins of a series."""
    number = np.arange(_SIGN) - _BIAS
    away = (top - number).clip(0, _MIDDLE)
    inside = number < 256  # beyond are infinities and NaN
    bins = np.bincount(BINS - 1 - away[inside], weights=halves[:_SIGN][inside], minlength=BINS)
    bins += np.bincount(away[inside], weights=halves[_SIGN:][inside], minlength=BINS)
    total = bins.sum()
    return (bins / total if total else bins).astype(np.float32)
