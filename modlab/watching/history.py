"""The history of a watch: the statistics of all series over time, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from modlab.records.slots import COLUMNS, Floats, combined, merged
from modlab.records.watch import BINS, HistoryRecord, Series
from modlab.statistics.memory import local, part_of
from modlab.watching.batched_statistics import Readings, shares
from modlab.watching.time_slots import TimeSlots

SLOTS = 256
"""Of the statistics, on any run."""

BIN_SLOTS = 64
"""Of the histograms."""

ROOM = 48 << 20
"""Bytes of both together; with very many series, there are fewer slots."""

LEAST, LEAST_BINS = 16, 4

AT_ONCE = 1 << 20
"""Bytes of both up to which they are taken at the beginning: a long run of a small net must take no more than a short one."""

WAITING = 16
"""Samples that wait to be merged together: a few calls of numpy for all, instead of for each."""

HEADROOM = 2
"""Half octaves above the first values that are kept for greater ones."""

MOST = 20_000
"""Series that are kept; of a larger model the first ones."""

_HALF = BINS // 2
_SERIES = 32
_UNSEEN = np.float32(np.nan)
_MEAN, _VAR, _BAD = (COLUMNS.index(name) for name in ("mean", "var", "bad"))


class History:
    """One array of statistics, slots × columns × series, and one of histograms.

    Args:
        slots: of the statistics.
        bin_slots: of the histograms.
        whole: take the memory for all slots at the beginning; else it grows as they are filled.
    """

    def __init__(self, slots: int = SLOTS, bin_slots: int = BIN_SLOTS, *, whole: bool = False) -> None:
        self._whole = whole
        self.series: list[Series] = []
        self._rows: dict[tuple[str, str], int] = {}
        self.slots, self.bin_slots = TimeSlots(slots, self._halve), TimeSlots(bin_slots, self._halve_bins, each=1)
        self._data = np.zeros((0, len(COLUMNS), 0), np.float32)
        self._bins = np.zeros((0, 0, BINS), np.float32)
        self._top = np.zeros(0, np.int16)
        self._known = np.zeros(0, bool)
        self._squares = np.zeros(0, np.float32)  # the greatest mean square of each series in any sample
        self._bad_step = np.zeros(0, np.int64)
        self._shapes: dict[int, torch.Size] = {}
        self.parts: set[int] = set()  # series of tensors that are on this rank in part
        self._turn = -1
        self._waiting: list[tuple[npt.NDArray[np.intp], Floats]] = []  # samples of the last slot that are not in it yet

    @classmethod
    def of(cls, series: int) -> History:
        """A history for about so many series, within `ROOM`."""
        each = ROOM // max(1, min(series, MOST)) // 2
        slots, bins = each // (4 * len(COLUMNS)) // 2 * 2, each // (4 * BINS) // 2 * 2
        slots, bins = min(SLOTS, max(LEAST, slots)), min(BIN_SLOTS, max(LEAST_BINS, bins))
        return cls(slots, bins, whole=4 * series * (slots * len(COLUMNS) + bins * BINS) <= AT_ONCE)

    def row(self, path: str, role: str, category: str = "own", note: str = "") -> int:
        """The number of a series, which is made at first sight; -1 if there are too many."""
        found = self._rows.get((path, role))
        if found is None:
            found = len(self._rows)
            if found >= MOST:
                return -1
            self.series[found:] = [Series(path, role, category=category, note=note)]
            self._make_room()
            self._rows[path, role] = found  # at last: an interrupt leaves no row without a series
        return found

    def find(self, path: str, role: str) -> int:
        """The number of a series, or -1 if there is none."""
        return self._rows.get((path, role), -1)

    def describe(self, row: int, tensor: Tensor | None) -> None:
        """Say what the tensor of a series looks like now; of a DTensor this rank's part, which is what is measured."""
        if tensor is not None:
            if part_of(tensor):
                self.parts.add(row)
            tensor = local(tensor)
        if row < 0 or tensor is None or tensor.shape == self._shapes.get(row):
            return
        shape, one = tensor.shape, self.series[row]
        known = self._shapes.get(row)
        self._shapes[row] = shape
        sizes = tuple(size if type(size) is int else -1 for size in shape)  # of a nested tensor one is no number
        if known is not None and len(known) == len(shape):
            sizes = tuple(new if new == old else -1 for new, old in zip(sizes, one.shape, strict=True))
        self.series[row] = replace(one, count=tensor.numel(), shape=sizes)

    def note(self, row: int, note: str) -> None:
        """Say what to know about a series."""
        if row >= 0 and self.series[row].note != note:
            self.series[row] = replace(self.series[row], note=note)

    def wants_bins(self) -> bool:
        """Whether a sample should take histograms: in a long run, one for each of their slots is enough."""
        self._turn += 1
        return self._turn % self.bin_slots.stride == 0

    def take(self, step: int, readings: Readings, *, binned: bool = True) -> None:
        """Take in all readings of a sample, with their histograms or without."""
        self.add(step, readings.rows, readings.columns)
        if binned:
            self.add_bins(step, readings.rows, shares(readings, self.tops(readings.rows, readings.highest())))

    def add(self, step: int, rows: npt.NDArray[np.intp], columns: Floats) -> None:
        """Take in the readings of a sample.

        Args:
            step: at which it was taken.
            rows: shape ``(n,)``, numbers of series; one may occur several times.
            columns: shape ``(len(COLUMNS), n)``.
        """
        if self.slots.held >= self.slots.stride:
            self._merge()
        if self.slots.place(step):
            self._make_room()
            slot = self._data[len(self.slots) - 1]
            slot[1:] = _UNSEEN
            slot[0] = 0
        self._waiting.append((rows, columns))
        with np.errstate(over="ignore", invalid="ignore"):
            self._squares[rows] = np.fmax(self._squares[rows], columns[_MEAN] ** 2 + columns[_VAR])
        bad = rows[columns[_BAD] > 0]
        if len(bad):
            self._bad_step[bad] = np.where(self._bad_step[bad] < 0, step, self._bad_step[bad])
        if len(self._waiting) >= WAITING:
            self._merge()

    def greatest(self) -> list[float]:
        """The greatest mean square that each series had in any sample; 0 where none was finite."""
        return self._squares.tolist()

    def spoilt(self, rows: Iterable[int]) -> bool:
        """Whether any of some series ever held what is not finite."""
        return any(row >= 0 and self._bad_step[row] >= 0 for row in rows)

    def _merge(self) -> None:
        """Put what waits into the last slot."""
        if self._waiting:
            self._make_room()
            self._data[len(self.slots) - 1] = self._last()
            self._waiting = []

    def _last(self) -> Floats:
        """The last slot with what waits, which itself stays as it is."""
        slot: Floats = self._data[len(self.slots) - 1].copy()
        alike: dict[bytes, list[tuple[npt.NDArray[np.intp], Floats]]] = {}
        for rows, columns in self._waiting:
            alike.setdefault(rows.tobytes(), []).append((rows, columns))
        for ones in alike.values():
            rows = ones[0][0]
            many = ones[0][1] if len(ones) == 1 else merged(np.stack([columns for _, columns in ones]))
            for some in _rounds(rows):
                there, new = rows[some], many[:, some]
                known = slot[:, there]
                slot[:, there] = merged(np.stack([known, new])) if known[0].any() else new
        return slot

    def tops(self, rows: npt.NDArray[np.intp], wanted: npt.NDArray[np.int16]) -> npt.NDArray[np.int16]:
        """Where the last bins of some series begin, raised so that the half octaves `wanted` of the greatest magnitudes fit."""
        new = ~self._known[rows]
        if new.any():
            self._top[rows[new]] = wanted[new] + HEADROOM
            self._known[rows] = True
        for i in np.flatnonzero(wanted > self._top[rows]):
            row = int(rows[i])
            self._raise(row, max(0, int(wanted[i]) + 1 - int(self._top[row])))
        return self._top[rows]

    def add_bins(self, step: int, rows: npt.NDArray[np.intp], shares: Floats) -> None:
        """Take in histograms: `shares` has shape ``(n, BINS)`` and sums to 1 in each row."""
        fresh = self.bin_slots.place(step)
        at = len(self.bin_slots) - 1
        self._make_room()
        slot = self._bins[at]
        if fresh:
            slot[:] = 0
        np.add.at(slot, rows, shares)

    def record(self) -> HistoryRecord:
        """What there is now; the arrays are copies, and nothing is merged for it."""
        used, bins = len(self.slots), len(self.bin_slots)
        rows = min(len(self.series), self._data.shape[2], self._bins.shape[1], len(self._top))  # another thread may be adding one
        columns = {name: self._data[:used, i, :rows].copy() for i, name in enumerate(COLUMNS)}
        if self._waiting:
            for column, values in zip(columns.values(), self._last(), strict=True):
                column[-1] = values[:rows]
        first, last = self.slots.bounds()
        bins_first, bins_last = self.bin_slots.bounds()
        return HistoryRecord(
            tuple(self.series[:rows]),
            first,
            last,
            columns,
            bins_first,
            bins_last,
            _bytes(self._bins[:bins, :rows]),
            self._top[:rows].copy(),
            self._bad_step[:rows].copy(),
        )

    def _make_room(self) -> None:
        """Grow the arrays to the series and slots in use."""
        series = self._data.shape[2]
        if len(self.series) > series:  # by a part of what there is: else very many series were copied at each new one
            series = -(-max(len(self.series), series + series // 8) // _SERIES) * _SERIES
        slots, bins = self.slots.most, self.bin_slots.most
        if not self._whole:
            slots = min(slots, 1 << max(4, len(self.slots) - 1).bit_length())
            bins = min(bins, 1 << max(4, len(self.bin_slots) - 1).bit_length())
        if self._data.shape[0] < slots or self._data.shape[2] < series:
            grown = np.full((max(slots, self._data.shape[0]), len(COLUMNS), series), _UNSEEN, np.float32)
            grown[:, 0] = 0
            grown[: self._data.shape[0], :, : self._data.shape[2]] = self._data
            self._data = grown
        if self._bins.shape[0] < bins or self._bins.shape[1] < series:
            grown = np.zeros((max(bins, self._bins.shape[0]), max(series, self._bins.shape[1]), BINS), np.float32)
            if self._whole:
                grown[:] = 0  # memory is taken when it is written
            grown[: self._bins.shape[0], : self._bins.shape[1]] = self._bins
            self._bins = grown
            more = grown.shape[1] - len(self._top)
            self._top, self._known = np.pad(self._top, (0, more)), np.pad(self._known, (0, more))
            self._squares = np.pad(self._squares, (0, more))
            self._bad_step = np.pad(self._bad_step, (0, more), constant_values=-1)

    def _halve(self) -> None:
        used = len(self.slots)
        self._data[: used // 2] = combined(self._data[0:used:2], self._data[1:used:2])

    def _halve_bins(self) -> None:
        used = len(self.bin_slots)
        self._bins[: used // 2] = self._bins[0:used:2] + self._bins[1:used:2]

    def _raise(self, row: int, by: int) -> None:
        """Move the bins of a series so that they reach further out; what is smallest joins the middle one."""
        self._top[row] += by
        bins = self._bins[:, row]
        old = bins.copy()
        by = min(by, _HALF)
        bins[:] = 0
        bins[:, by:_HALF] = old[:, : _HALF - by]
        bins[:, _HALF + 1 : BINS - by] = old[:, _HALF + 1 + by :]
        bins[:, _HALF] = old[:, _HALF - by : _HALF + 1 + by].sum(axis=1)


def _rounds(rows: npt.NDArray[np.intp]) -> list[npt.NDArray[np.intp]]:
    """Places such that no series occurs twice in one round; nearly always one round of all."""
    seen, counts = np.unique(rows, return_counts=True)
    if len(seen) == len(rows):
        return [np.arange(len(rows))]
    order = np.argsort(rows, kind="stable")
    turn = np.concatenate([np.arange(count) for count in counts])
    return [order[turn == k] for k in range(int(counts.max()))]


def _bytes(bins: Floats) -> npt.NDArray[np.uint8]:
    """Shares of 255; whatever holds anything is seen. Slot by slot, for what stays in the processor's cache is done far sooner."""
    made = np.empty(bins.shape, np.uint8)
    for slot, held in zip(made, bins, strict=True):
        totals = held.sum(axis=1, keepdims=True)
        totals[totals == 0] = 1
        parts = 255 * (held / totals)
        np.ceil(parts, out=parts)
        slot[:] = np.minimum(parts, 255, out=parts)
    return made
