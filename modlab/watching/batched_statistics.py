"""Statistics of many tensors at once: they are joined and share each pass of numpy, so a small one costs a few microseconds.

Those of an accelerator are joined and measured there, and read back together.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from modlab.compat import dispatch_modes, is_transformed
from modlab.records.slots import COLUMNS, Floats
from modlab.records.watch import BINS
from modlab.statistics import measure_tensor
from modlab.statistics.memory import is_sharded, is_there, local, part_of
from modlab.watching import readback
from modlab.watching.elements import comparable, in_order, spread
from modlab.watching.readback import Numbers, ReadBack
from modlab.watching.segments import Flags, column_of, columns_here, columns_of, columns_there

BINNED = 512
"""Of a tensor's elements, about so many are counted in the histogram."""

BATCH = 1 << 17
"""Elements that are joined at most before they are measured: memory is bounded by that."""

LARGE, PART = 1 << 15, 1 << 13
"""Elements from which on so many, evenly spread, speak for all: the error of a mean is about 1.1 % of the std."""

PIECE = 64
"""Neighbours among them that are taken together."""

JOINED = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16})
"""What is joined, as float32."""

_LARGEST = float(np.finfo(np.float32).max)

_PLAIN = frozenset({Tensor, torch.nn.Parameter})
_SIGN, _HALVES = 1 << 9, (1 << 9) - 1  # of the top ten bits of a float32: the sign; eight of the exponent and one of the mantissa
_SHIFT = np.uint32(22)
_BIAS = 254  # the number of the half octave that begins at 1
_MIDDLE = BINS // 2
_NOT_FINITE = _HALVES - 1  # and above it
_TINY = 2  # the half octaves of zero, and of what has fewer digits
_LOW, _HIGH = (COLUMNS.index(name) for name in ("low", "high"))

Rows = Sequence[int]
Keys = npt.NDArray[Any]


class Readings(NamedTuple):
    """What a sample measured, in the order in which it met it.

    Attributes:
        rows: shape ``(n,)``: the numbers of the series.
        columns: shape ``(len(COLUMNS), n)``.
        nan: shape ``(n,)``: whether a NaN is among what is not finite.
        binned: of each reading the sign and half octave of some of its numbers, or None.
    """

    rows: npt.NDArray[np.intp]
    columns: Floats
    nan: Flags
    binned: list[Keys | None]

    def highest(self) -> npt.NDArray[np.int16]:
        """The half octave of the greatest magnitude of each; shape ``(n,)``."""
        with np.errstate(invalid="ignore"):
            greatest = np.fmax(np.abs(self.columns[_LOW]), np.abs(self.columns[_HIGH]))
        greatest[~np.isfinite(greatest)] = 0
        halves: npt.NDArray[np.int16] = ((greatest.view(np.uint32) >> _SHIFT) & np.uint32(_HALVES)).astype(np.int16)
        return halves - np.int16(_BIAS)


class ScratchBuffer:
    """Numbers of small tensors here, laid one after the other until they are measured. Its memory is used again by the next sample.

    Attributes:
        numbers: shape ``(BATCH,)``; `room`, of the same shape, is there to compute in.
        laid: of each tensor its turn, its series, and where its numbers end. It alone says what there is: an interrupt may come at
            any moment.
    """

    def __init__(self) -> None:
        self.numbers: Floats = np.empty(BATCH, np.float32)
        self.room: Floats = np.empty(BATCH, np.float32)
        self.laid: list[tuple[int, Rows, int]] = []

    @property
    def used(self) -> int:
        """How many numbers lie there."""
        return self.laid[-1][2] if self.laid else 0


class _Pool:
    """Tensors of one accelerator that wait to be measured together."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, Rows]] = []  # each with its turn
        self.sizes: list[int] = []
        self.waiting: list[Tensor] = []
        self.values: list[Tensor] = []  # what was joined
        self.held = 0


class _Batch(NamedTuple):
    """Tensors that were measured: their series, statistics, and the keys of their histograms."""

    rows: list[tuple[int, Rows]]
    columns: Floats
    nan: Flags
    keys: list[Keys | None]


class BatchedStatistics:
    """Takes tensors, and measures them when asked for the readings.

    Args:
        binned: whether to take histograms too.
        back: brings what an accelerator measured; who gives one sends and reads it before asking for the readings.
        scratch: the memory in which small tensors are joined; nobody else makes use of it meanwhile.
    """

    def __init__(self, binned: bool = True, back: ReadBack | None = None, scratch: ScratchBuffer | None = None) -> None:
        self._binned = binned
        self._own = back is None
        self._back = back or ReadBack()
        self._scratch = scratch or ScratchBuffer()
        self._scratch.laid = []
        self._pools: dict[torch.device, _Pool] = {}
        self._done: list[_Batch] = []
        self._turn = 0
        self.notes: dict[int, str] = {}

    def add(self, rows: Rows, tensor: Tensor, *, fleeting: bool = False) -> None:
        """Measure a tensor for one or several series; `fleeting` if its numbers may change before they are settled."""
        if type(tensor) not in _PLAIN and is_sharded(tensor):
            part, tensor = part_of(tensor), local(tensor)
            self.notes.update(dict.fromkeys(rows, part))
        else:
            part = ""
        size = tensor.numel()
        some = tensor if size < LARGE else _part(tensor)
        if some is not tensor:
            size = some.numel()
            self.notes.update(dict.fromkeys(rows, evenly(size, tensor.numel(), part)))
        if not _is_plain(some, size):
            self._measure_alone(rows, some)
        elif readback.is_far(some):
            self._put(rows, some.data.clone() if fleeting and some is tensor else some.data, size)
        else:
            start, laid = self._lay(some.data, size)
            laid.append((self._turn, rows, start + size))
            self._turn += 1

    def join(self, rows: list[Rows], values: Tensor, sizes: list[int]) -> None:
        """Measure tensors that stand in one array already, of shape ``(sum(sizes),)``; it may not change any more."""
        size = len(values)
        if not readback.is_far(values) and size <= BATCH:
            start, laid = self._lay(values, size)
            laid += [(turn, some, start + end) for (turn, some), end in zip(self._turns(rows), accumulate(sizes), strict=True)]
            return
        if not readback.is_far(values):
            self._measure_here(self._turns(rows), narrowed(values).numpy(), sizes)
            return
        pool = self._pools.setdefault(values.device, _Pool())
        self._settle(pool)
        pool.rows += self._turns(rows)
        pool.sizes += sizes
        pool.values.append(narrowed(values))
        pool.held += size

    def _turns(self, rows: list[Rows]) -> list[tuple[int, Rows]]:
        start, self._turn = self._turn, self._turn + len(rows)
        return [(start + i, some) for i, some in enumerate(rows)]

    def _lay(self, values: Tensor, size: int) -> tuple[int, list[tuple[int, Rows, int]]]:
        """Copy numbers that lie here into the scratch buffer: where they begin, and the list that says whose they are."""
        scratch = self._scratch
        start = scratch.used
        if start + size > BATCH:
            self._clear()
            start = 0
        plain = values if values.dtype is torch.float32 and not values.is_neg() else narrowed(values).resolve_neg()
        scratch.numbers[start : start + size] = plain.numpy().ravel()
        return start, scratch.laid

    def _clear(self) -> None:
        """Measure what lies in the scratch buffer."""
        laid, self._scratch.laid = self._scratch.laid, []
        if laid:
            ends = [end for _, _, end in laid]
            sizes = [end - start for start, end in pairwise([0, *ends])]
            self._measure_here([(turn, rows) for turn, rows, _ in laid], self._scratch.numbers[: ends[-1]], sizes)

    def _measure_here(self, rows: list[tuple[int, Rows]], numbers: Floats, sizes: list[int]) -> None:
        columns, nan = columns_here(numbers, sizes, self._scratch.room if len(numbers) <= BATCH else None)
        self._done.append(_Batch(rows, columns, nan, _keys(numbers, sizes) if self._binned else [None] * len(sizes)))

    def _put(self, rows: Rows, tensor: Tensor, size: int) -> None:
        pool = self._pools.setdefault(tensor.device, _Pool())
        pool.rows += self._turns([rows])
        pool.waiting.append(tensor)
        pool.sizes.append(size)
        pool.held += size
        if pool.held >= BATCH:
            self._measure(pool)

    def _measure_alone(self, rows: Rows, tensor: Tensor) -> None:
        turns = self._turns([rows])
        stats = measure_tensor(tensor, histogram=False)
        if stats.note:
            self.notes.update(dict.fromkeys(rows, stats.note))
        if stats.measured and stats.count:
            keys = _sampled(tensor) if self._binned else None
            self._done.append(_Batch(turns, column_of(stats), np.array([stats.nan > 0]), [keys]))

    def settle(self) -> None:
        """Have what was added up to now copied, where it lies: afterwards the tensors may change."""
        for pool in self._pools.values():
            self._settle(pool)

    def _settle(self, pool: _Pool) -> None:
        if pool.waiting:
            pool.values.append(narrowed(torch.cat([one.reshape(-1) for one in pool.waiting])))
            pool.waiting = []

    def _measure(self, pool: _Pool) -> None:
        """Measure what was joined up to now, and let it go."""
        self._settle(pool)
        if not pool.values:
            return
        values = pool.values[0] if len(pool.values) == 1 else torch.cat(pool.values)
        rows, sizes = pool.rows, pool.sizes
        pool.rows, pool.sizes, pool.values, pool.held = [], [], [], 0
        self._ask(rows, values, sizes)

    def _ask(self, rows: list[tuple[int, Rows]], values: Tensor, sizes: list[int]) -> None:
        """Measure it where it lies."""
        strides = [_stride(size) for size in sizes]
        found: list[Floats] = []
        if self._binned:
            some = torch.cat([one[::stride] for one, stride in zip(torch.split(values, sizes), strides, strict=True)])
            self._back.ask(some, lambda read: found.append(read.astype(np.float32)))

        def then(read: Numbers) -> None:
            columns, nan = columns_of(read)
            keys: list[Keys | None] = [None] * len(sizes)
            if found:
                taken = [-(-size // stride) for size, stride in zip(sizes, strides, strict=True)]
                keys = [*np.split(found[0].view(np.uint32) >> _SHIFT, np.cumsum(taken)[:-1])]
            self._done.append(_Batch(rows, columns, nan, keys))

        self._back.ask(columns_there(values, sizes), then)

    def finish(self) -> None:
        """Measure all that was added: what is far is on its way then."""
        self._clear()
        for pool in self._pools.values():
            self._measure(pool)

    def readings(self) -> Readings | None:
        """All that was added; None if there was nothing."""
        self.finish()
        if self._own:
            self._back.send()
            self._back.read()
        if not self._done:
            return None
        if len(self._done) == 1:
            turns, columns, nan, keys = self._done[0]
            places: Sequence[int] = range(len(turns))
        else:
            turns = [turn for batch in self._done for turn in batch.rows]
            columns = np.concatenate([batch.columns for batch in self._done], axis=1)
            nan = np.concatenate([batch.nan for batch in self._done])
            keys = [key for batch in self._done for key in batch.keys]
            places = sorted(range(len(turns)), key=turns.__getitem__)
        order, rows = [], []
        for i in places:
            for row in turns[i][1]:
                if row >= 0:
                    order.append(i)
                    rows.append(row)
        return Readings(np.array(rows, np.intp), columns[:, order], nan[order], [keys[i] for i in order])


def evenly(size: int, of: int, part: str = "") -> str:
    """Of a series: how many numbers speak for all of a large tensor, or of a part of it."""
    return f"{part}{', ' * bool(part)}≈ from {size:,} of its {of:,} numbers"


def has_numbers(tensor: Tensor) -> bool:
    """Whether a tensor has numbers of its own, here or on an accelerator, which can be read: a stand-in has none."""
    return _is_plain(tensor, tensor.numel())


def _is_plain(tensor: Tensor, size: int) -> bool:
    return (
        type(tensor) in _PLAIN
        and tensor.dtype in JOINED
        and tensor.layout is torch.strided
        and size > 0
        and not tensor.is_nested
        and not is_transformed(tensor)
        and is_there(tensor)
        and not dispatch_modes()
    )


def _stride(size: int) -> int:
    """Of how many numbers one is counted in the histogram; odd: no column of a matrix with an even width is left out."""
    return max(1, size // BINNED) | 1


def narrowed(values: Tensor) -> Tensor:
    """As float32; a number that is too large for that is the largest one, for it is finite."""
    if values.dtype is torch.float64:
        values = torch.where(values.isinf(), values, values.clamp(-_LARGEST, _LARGEST))
    return values.to(torch.float32)


def _keys(values: Floats, sizes: list[int]) -> list[Keys | None]:
    """Of each stretch, the sign and half octave of its numbers; of a long one of an even selection."""
    some, start = [], 0
    for size in sizes:
        some.append(values[start : start + size : _stride(size)])
        start += size
    keys = np.concatenate(some).view(np.uint32) >> _SHIFT  # else all of them would be kept
    return [*np.split(keys, np.cumsum([len(one) for one in some])[:-1])]


def _part(tensor: Tensor) -> Tensor:
    """The tensor itself, or of a very large one a copy of an even selection, in pieces."""
    if type(tensor) not in _PLAIN or not tensor.is_floating_point() or not comparable(tensor):
        return tensor
    return spread(in_order(tensor.data), PIECE, PART)


def _sampled(tensor: Tensor) -> Keys | None:
    """The sign and half octave of some numbers of a large tensor; None where they are not simply there."""
    if type(tensor) not in _PLAIN or not tensor.is_floating_point() or not comparable(tensor):
        return None
    flat = in_order(tensor.data)
    keys: Keys = flat[:: _stride(flat.numel())].to(torch.float32).cpu().numpy().view(np.uint32) >> _SHIFT
    return keys


def shares(readings: Readings, tops: npt.NDArray[np.int16]) -> Floats:
    """The readings' histograms, shape ``(n, BINS)``; each row that has one sums to 1. What is not finite is in none.

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
        finite = halves < _NOT_FINITE
        away = np.repeat(tops[places].astype(np.int32) + _BIAS, lengths) - halves
        np.clip(away, 0, _MIDDLE, out=away)
        away[halves < _TINY] = _MIDDLE
        at = np.where(keys & _SIGN, away, BINS - 1 - away)
        at += np.repeat(np.arange(0, BINS * len(small), BINS, dtype=np.int32), lengths)
        counts = np.bincount(at[finite], minlength=BINS * len(small)).reshape(len(small), BINS)
        made[places] = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return made
