"""A tree with the cost of each module: parameters, calls, new memory, time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from modlab import format
from modlab.records.costs import CostRecord, CostsRecord
from modlab.records.structure import ROOT
from modlab.views.sheets.layout import Block, Cell, Column, Mark, Row, Sheet
from modlab.wording.names import named

CLEAR = 1.5  # times as much as the next: then another run says the same
COLUMNS = (
    Column("parameters", "bar", 84, yields=2),
    Column("calls", "number", 40, yields=4),
    Column("new memory", "bar", 84, yields=1),
    Column("time", "bar", 84, yields=3, measured=True),
    Column("own time", "bar", 84, yields=0, measured=True),
)


def of_costs(costs: CostsRecord) -> Sheet:
    """The view of a profile on its tree."""
    rows = tuple(_row(costs, row) for row in costs.rows)
    notes = _unmarked(costs)
    foot = f"{format.plural(sum(row.calls for row in costs.rows), 'labelled call')}; each call counts as the fastest of its module"
    return Sheet("costs", sentence(costs), COLUMNS, rows, tuple(notes), foot=foot)


def sentence(costs: CostsRecord) -> tuple[str, str]:
    """Which module costs most; for time, only where that is beyond doubt."""
    facts = [
        *_first(costs.rows, lambda row: row.own_seconds, "takes the most time", CLEAR),
        *_first(costs.rows, lambda row: row.own_bytes or 0, "makes the most new memory"),
        *_first(costs.rows, lambda row: row.own_parameters, "has the most parameters"),
    ]
    strong, *rest = facts or ["no module stands out"]
    return f"{format.clean(costs.title)}: {strong}{';' if rest else '.'}", f"{', '.join(rest)}." if rest else ""


def _first(rows: Sequence[CostRecord], much: Callable[[CostRecord], float], does: str, clear: float = 1.0) -> Iterator[str]:
    """The module with the most, if there is one."""
    most, *others = sorted(rows, key=much, reverse=True)
    following = much(others[0]) if others else 0.0
    if much(most) > following * clear and others:
        yield f"{named(most.path)} {does}"


def _row(costs: CostsRecord, row: CostRecord) -> Row:
    largest = max(one.bytes or 0 for one in costs.rows)  # memory is given back: what is inside may have taken more than the whole
    cells = (
        _bar(row.parameters, costs.rows[0].parameters, format.count),
        Cell(f"{row.calls:,}" if row.calls else ""),
        Cell() if row.bytes is None else _bar(row.bytes, largest, _size),
        _bar(row.seconds, max(one.seconds for one in costs.rows), format.seconds),
        _bar(row.own_seconds, max(one.own_seconds for one in costs.rows), format.seconds),
    )
    ran = row.calls or row.seconds
    note = "" if row.calls else "the sum of its children" if ran else "not in this profile"
    mark: Mark = "" if ran else "absent"
    name = row.name or ROOT
    return Row(row.path, name, row.type, note, row.category, mark=mark, depth=row.depth, cells=cells, details=tuple(_details(costs, row)))


def _bar(value: float, whole: float, written: Callable[[int], str] | Callable[[float], str]) -> Cell:
    return Cell(written(value), max(0.0, min(1.0, value / whole))) if value and whole > 0 else Cell()  # type: ignore[arg-type]


def _size(value: int) -> str:
    return f"-{format.size(-value)}" if value < 0 else format.size(value)


def _details(costs: CostsRecord, row: CostRecord) -> Iterator[Block]:
    facts = [("calls", f"{row.calls:,}" if row.calls else "none labelled"), ("parameters", f"{row.parameters:,}")]
    if row.bytes is not None:
        facts.append(("new memory", _size(row.bytes)))
    if row.own_bytes is not None:
        facts.append(("its own part", _size(row.own_bytes)))
    yield Block(row.path or ROOT, rows=tuple(facts))
    if row.calls:
        spent = f"{format.seconds(row.seconds)} ({costs.device}), {format.seconds(row.own_seconds)} of it its own"
        yield Block(rows=(("time", spent), ("a call", format.seconds(row.seconds / row.calls))), measured=True)


def _unmarked(costs: CostsRecord) -> list[Block]:
    absent = [row.path or ROOT for row in costs.rows if not row.calls and not row.seconds]
    if not absent:
        return []
    named = ", ".join(map(format.clean, absent[:3])) + (", ..." if len(absent) > 3 else "")
    return [Block("not in this profile", f"{named}: not called, or not labelled.", mark="absent")]
