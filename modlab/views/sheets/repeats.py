"""Equal neighbouring blocks of rows as one, for the faces that are read from top to bottom: a trace of twelve blocks shows one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from modlab.views.sheets.layout import Cell, Row, Sheet

LONG = 60  # rows up to which all are written
PERIOD = 64  # neighbours that may repeat together
LEAST = 3  # rows that folding has to save
_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")  # a whole part of a dotted name


def folded(sheet: Sheet) -> Sheet:
    """The same view with equal neighbours written once, under the names of all.

    Equal are rows of the same words, shapes and marks, with equal rows below them, whose names count up or down in one place;
    whatever deviates in anything that a row shows stands apart. What differs from run to run is not compared.
    """
    return replace(sheet, rows=tuple(_Rows(sheet).written())) if len(sheet.rows) > LONG else sheet


class _Shift(NamedTuple):
    """In which two groups of rows differ: the parts of the path before the number, and the two numbers."""

    prefix: tuple[str, ...]
    old: int
    new: int


class _Run(NamedTuple):
    """Neighbours that repeat: where among their siblings, how many together, how often; the first shift, and the last number."""

    start: int
    period: int = 1
    times: int = 1
    shift: _Shift = _Shift((), 0, 0)
    last: int = 0


class _Rows:
    """Rows as a forest: of each where what is below it ends, and a number that is the same for equal ones."""

    def __init__(self, sheet: Sheet) -> None:
        self.rows = sheet.rows
        self._kept = [i for i, column in enumerate(sheet.columns) if not column.measured]
        self._ends = [0] * len(self.rows)
        self._keys = [0] * len(self.rows)
        known: dict[object, int] = {}
        right: list[int] = []  # rows further down that have no parent yet
        for i in reversed(range(len(self.rows))):
            below, end = [], i + 1
            while right and self.rows[right[-1]].depth > self.rows[i].depth:
                child = right.pop()
                below.append(self._keys[child])
                end = self._ends[child]
            right.append(i)
            self._ends[i] = end
            self._keys[i] = known.setdefault((self._said(self.rows[i]), *below), len(known))

    def _said(self, row: Row) -> object:
        cells = tuple((row.cells[i].text, row.cells[i].mark) for i in self._kept)
        names = tuple(None if name is None else _NUMBER.sub("#", name) for name in (row.path, row.name, row.place))
        return names, row.kind, row.note, row.symbol, row.mark, cells

    def written(self) -> Iterator[Row]:
        """The rows that stand for all, in order."""
        todo: list[Row | tuple[int, int]] = [(0, len(self.rows))]
        while todo:
            task = todo.pop()
            if isinstance(task, Row):
                yield task
                continue
            siblings = []
            place = task[0]
            while place < task[1]:
                siblings.append(place)
                place = self._ends[place]
            tasks = [task for run in self._runs(siblings) for task in self._tasks(siblings, run)]
            todo.extend(reversed(tasks))

    def _tasks(self, siblings: Sequence[int], run: _Run) -> Iterator[Row | tuple[int, int]]:
        """What is written of a run: rows, and the ranges below them."""
        group = siblings[run.start : run.start + run.period]
        for i in group:
            yield _named(self.rows[i], run) if run.times > 1 and run.period == 1 else self.rows[i]
            yield i + 1, self._ends[i]
        if run.times > 1 and run.period > 1:
            above, row = self._ends[group[-1]] - group[0], self.rows[group[0]]
            names = ".".join([*run.shift.prefix, str(run.shift.new)]) + f" ... {run.last}" * (run.times > 2)
            kind = f"{run.times - 1} x the {above} rows above" if run.times > 2 else f"like the {above} rows above"
            yield Row(".".join(run.shift.prefix), names, kind, place=names, depth=row.depth, cells=(Cell(),) * len(row.cells))

    def _runs(self, siblings: Sequence[int]) -> Iterator[_Run]:
        keys = [self._keys[i] for i in siblings]
        start = 0
        while start < len(keys):
            run = self._run(siblings, keys, start)
            yield run
            start += run.period * run.times

    def _run(self, siblings: Sequence[int], keys: Sequence[int], start: int) -> _Run:
        """The shortest repetition that begins here."""
        for period in range(1, min(PERIOD, (len(keys) - start) // 2) + 1):
            if keys[start] != keys[start + period]:
                continue
            here, size = start, self._ends[siblings[start + period - 1]] - siblings[start]
            first = shift = self._shift(siblings[here], siblings[here + period], size)
            last = 0
            while first is not None and shift is not None and keys[here : here + period] == keys[here + period : here + 2 * period]:
                if (shift.prefix, shift.new - shift.old) != (first.prefix, first.new - first.old):
                    break
                here, last = here + period, shift.new
                shift = self._shift(siblings[here], siblings[here + period], size) if here + period < len(keys) else None
            times = (here - start) // period + 1
            if first is not None and (times - 1) * size >= LEAST:
                return _Run(start, period, times, first, last)
        return _Run(start)

    def _shift(self, left: int, right: int, size: int) -> _Shift | None:
        """In which one number the names of two groups of rows differ; None if they do not, or in more."""
        found: _Shift | None = None
        for one, other in zip(self.rows[left : left + size], self.rows[right : right + size], strict=False):
            if one.path == other.path:
                continue
            old, new = (one.path or "").split("."), (other.path or "").split(".")
            apart = [place for place, (a, b) in enumerate(zip(old, new, strict=False)) if a != b]
            if len(old) != len(new) or len(apart) != 1 or not (old[apart[0]].isdigit() and new[apart[0]].isdigit()):
                return None
            shift = _Shift(tuple(old[: apart[0]]), int(old[apart[0]]), int(new[apart[0]]))
            if abs(shift.new - shift.old) != 1 or found not in (None, shift):
                return None
            found = shift
        return found


def _named(row: Row, run: _Run) -> Row:
    """The row that stands for a run, under the names of all."""
    parts = (row.path or "").split(".")
    place = len(run.shift.prefix)
    last = str(run.last) if place == len(parts) - 1 else ".".join([*parts[:place], str(run.last), *parts[place + 1 :]])
    return replace(row, name=f"{row.name} ... {last}", kind=f"{run.times} x {row.kind}", place=f"{row.path} ... {last}")
