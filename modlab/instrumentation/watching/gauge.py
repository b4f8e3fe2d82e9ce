"""Many tensors measured at once: small ones are joined and share each pass of numpy, so one costs a few microseconds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from modlab.compat import dispatch_modes, is_functional, is_transformed
from modlab.instrumentation.watching.elements import comparable, in_order, spread
from modlab.records.slots import COLUMNS, Floats
from modlab.records.tensor import TensorStats
from modlab.records.watch import BINS
from modlab.statistics import measure_tensor

SMALL = 1 << 14
"""Elements up to which a tensor is put aside and measured with others."""

BINNED = 512
"""Of a small tensor's elements, about so many are counted in the histogram."""

BATCH = 1 << 17
"""Elements that are joined at most before they are measured: memory is bounded by that."""

LARGE, PART = 1 << 17, 1 << 14
"""Elements from which on so many, evenly spread, speak for all: the error of a mean is about 0.8 % of the std."""

PIECE = 256
"""Neighbours among them that are taken together."""

_JOINED = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16})
_PLAIN = frozenset({Tensor, torch.nn.Parameter})
_SIGN, _HALVES = 1 << 9, (1 << 9) - 1  # of the top ten bits of a float32: the sign; eight of the exponent and one of the mantissa
_SHIFT = np.uint32(22)
_BIAS = 254  # the number of the half octave that begins at 1
_MIDDLE = BINS // 2
_TINY = 2  # the half octaves of zero, and of what has fewer digits
_NONE = np.float32(np.nan)
_MEAN, _LOW, _HIGH, _BAD = (COLUMNS.index(name) for name in ("mean", "low", "high", "bad"))

Rows = Sequence[int]
Keys = npt.NDArray[Any]


class Readings(NamedTuple):
    """What a sample measured.

    Attributes:
        rows: shape ``(n,)``: the numbers of the series.
        columns: shape ``(len(COLUMNS), n)``.
        nan: shape ``(n,)``: whether a NaN is among what is not finite.
        highest: shape ``(n,)``: the half octave of the greatest magnitude.
        binned: of each reading the sign and half octave of some of its numbers, or None.
    """

    rows: npt.NDArray[np.intp]
    columns: Floats
    nan: npt.NDArray[np.bool_]
    highest: npt.NDArray[np.int64]
    binned: list[Keys | None]


class Gauge:
    """Takes tensors, and measures them when asked for the readings.

    Args:
        binned: whether to take histograms too.
    """

    def __init__(self, binned: bool = True) -> None:
        self._binned = binned
        self._rows: list[Rows] = []
        self._waiting: list[Tensor] = []
        self._values: list[Floats] = []
        self._sizes: list[int] = []  # of these two
        self._held = 0
        self._done: list[tuple[Floats, list[Keys | None], list[bool]]] = []  # columns, histograms and NaN of all before them
        self._large: list[tuple[Rows, TensorStats, Keys | None]] = []
        self.notes: dict[int, str] = {}

    def add(self, rows: Rows, tensor: Tensor, *, fleeting: bool = False) -> None:
        """Measure a tensor for one or several series; `fleeting` if its numbers may change before they are settled."""
        part = _part(tensor)
        if part is not tensor:
            self.notes.update(dict.fromkeys(rows, f"≈ from {part.numel():,} of its {tensor.numel():,} numbers"))
        if joinable(part):
            plain = part.data
            self._waiting.append(plain.clone() if fleeting and part is tensor else plain)
            self._rows.append(rows)
            self._sizes.append(plain.numel())
            self._held += plain.numel()
            if self._held >= BATCH:
                self._measure()
            return
        stats = measure_tensor(part, histogram=False)
        if stats.note:
            self.notes.update(dict.fromkeys(rows, stats.note))
        if stats.measured and stats.count:
            self._large.append((rows, stats, _sampled(part) if self._binned else None))

    def settle(self) -> None:
        """Read what was added up to now: afterwards the tensors may change."""
        if self._waiting:
            self._values.append(torch.cat([one.reshape(-1) for one in self._waiting]).to(torch.float32).numpy())
            self._waiting = []

    def _measure(self) -> None:
        """Measure what was joined up to now, and let it go."""
        self.settle()
        if not self._values:
            return
        values, sizes = np.concatenate(self._values), np.array(self._sizes, np.intp)
        columns = _columns(values, sizes)
        keys: list[Keys | None] = [*_keys(values, self._sizes)] if self._binned else [None] * len(sizes)
        self._done.append((columns, keys, _nans(values, sizes) if columns[_BAD].any() else [False] * len(sizes)))
        self._values, self._sizes, self._held = [], [], 0

    def readings(self) -> Readings | None:
        """All that was added; None if there was nothing."""
        self._measure()
        parts = [*self._done, *((_of_stats(stats), [keys], [stats.nan > 0]) for _, stats, keys in self._large)]
        if not parts:
            return None
        taken = [(row, i) for i, rows in enumerate([*self._rows, *(large[0] for large in self._large)]) for row in rows if row >= 0]
        order = [i for _, i in taken]
        columns = np.concatenate([part[0] for part in parts], axis=1)[:, order]
        keys = [key for part in parts for key in part[1]]
        nan = np.array([one for part in parts for one in part[2]], bool)
        rows = np.array([row for row, _ in taken], np.intp)
        return Readings(rows, columns, nan[order], _highest(columns), [keys[i] for i in order])


def joinable(tensor: Tensor) -> bool:
    """Whether a tensor's numbers can stand in one array with others'."""
    return (
        type(tensor) in _PLAIN
        and tensor.dtype in _JOINED
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and 0 < tensor.numel() <= SMALL
        and not tensor.is_nested
        and not is_functional(tensor)
        and not is_transformed(tensor)
        and not dispatch_modes()
    )


def _columns(values: Floats, sizes: npt.NDArray[np.intp]) -> Floats:
    """Shape ``(len(COLUMNS), n)``, of each stretch of `values`; what is not finite is counted and left out."""
    starts = _starts(sizes)
    made = np.empty((len(COLUMNS), len(sizes)), np.float32)
    with np.errstate(all="ignore"):
        doubles = values.astype(np.float64)
        total = np.add.reduceat(doubles, starts)
        low, high = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
        bad: Any = 0
        finite = sizes
        if not np.isfinite(total.sum()):
            good = np.isfinite(values)
            bad = np.add.reduceat(~good, starts, dtype=np.int64)
            finite = sizes - bad
            doubles[~good] = 0
            total = np.add.reduceat(doubles, starts)
            low = np.minimum.reduceat(np.where(good, values, np.inf), starts)
            high = np.maximum.reduceat(np.where(good, values, -np.inf), starts)
        mean = total / finite
        np.multiply(doubles, doubles, out=doubles)
        var = np.add.reduceat(doubles, starts) / finite - mean * mean
        var[(low == high) | (var < 0)] = 0  # no rounding error shall give a constant a spread
        zeros = np.add.reduceat((values == 0).view(np.int8), starts, dtype=np.int32) / sizes
        made[0], made[7] = 1, _NONE
        made[1], made[2], made[3], made[4], made[5], made[6] = mean, var, low, high, zeros, bad
        if finite is not sizes:
            made[_MEAN : _HIGH + 1, finite == 0] = _NONE
    return made


def _of_stats(stats: TensorStats) -> Floats:
    bad, var = stats.count - stats.finite, stats.m2 / stats.finite if stats.finite else _NONE
    with np.errstate(over="ignore"):
        column = np.array((1, stats.mean, var, stats.min, stats.max, stats.zeros / stats.count, bad, _NONE), np.float64)
        return column.astype(np.float32)[:, None]


def _starts(sizes: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    starts = np.zeros(len(sizes), np.intp)
    np.cumsum(sizes[:-1], out=starts[1:])
    return starts


def _nans(values: Floats, sizes: npt.NDArray[np.intp]) -> list[bool]:
    """Whether each stretch holds a NaN."""
    return [bool(count) for count in np.add.reduceat(np.isnan(values), _starts(sizes), dtype=np.int64)]


def _keys(values: Floats, sizes: list[int]) -> Iterator[Keys]:
    """Of each stretch, the sign and half octave of its numbers; of a long one of an even selection."""
    keys, start = values.view(np.uint32) >> _SHIFT, 0
    for size in sizes:
        stride = max(1, size // BINNED) | 1  # odd: no column of a matrix with an even width is left out
        yield keys[start : start + size : stride].copy()  # else all of them would be kept
        start += size


def _part(tensor: Tensor) -> Tensor:
    """The tensor itself, or of a very large one a copy of an even selection, in pieces."""
    if tensor.numel() < LARGE or type(tensor) not in _PLAIN or not tensor.is_floating_point() or not comparable(tensor):
        return tensor
    return spread(in_order(tensor.data), PIECE, PART)


def _sampled(tensor: Tensor) -> Keys | None:
    """The sign and half octave of some numbers of a large tensor; None where they are not simply there."""
    if type(tensor) not in _PLAIN or not tensor.is_floating_point() or not comparable(tensor):
        return None
    flat = in_order(tensor.data)
    keys: Keys = flat[:: max(1, flat.numel() // BINNED) | 1].to(torch.float32).cpu().numpy().view(np.uint32) >> _SHIFT
    return keys


def _highest(columns: Floats) -> npt.NDArray[np.int64]:
    """The half octave of the greatest magnitude of each reading."""
    with np.errstate(invalid="ignore"):
        greatest = np.fmax(np.abs(columns[_LOW]), np.abs(columns[_HIGH]))
    greatest[~np.isfinite(greatest)] = 0
    found: npt.NDArray[np.int64] = ((greatest.view(np.uint32) >> _SHIFT) & np.uint32(_HALVES)).astype(np.int64) - _BIAS
    return found


def shares(readings: Readings, tops: npt.NDArray[np.int16]) -> Floats:
    """The readings' histograms, shape ``(n, BINS)``; each row that has one sums to 1.

    Args:
        readings: of which series `tops` speaks.
        tops: shape ``(n,)``: the half octaves in which the last bins begin.
    """
    made = np.zeros((len(readings.rows), BINS), np.float32)
    small = [(i, keys) for i, keys in enumerate(readings.binned) if keys is not None and len(keys)]
    if small:
        places = [i for i, _ in small]
        lengths = np.array([len(keys) for _, keys in small])
        keys = np.concatenate([keys for _, keys in small]).astype(np.int32)
        halves = keys & _HALVES
        away = np.repeat(tops[places].astype(np.int32) + _BIAS, lengths) - halves
        np.clip(away, 0, _MIDDLE, out=away)
        away[halves < _TINY] = _MIDDLE
        at = np.where(keys & _SIGN, away, BINS - 1 - away)
        at += np.repeat(np.arange(0, BINS * len(small), BINS, dtype=np.int32), lengths)
        counts = np.bincount(at, minlength=BINS * len(small)).reshape(len(small), BINS)
        made[places] = counts / lengths[:, None]
    return made
