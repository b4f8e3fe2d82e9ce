"""The current gradients of parameters, and those of outputs if a backward pass was traced."""

from __future__ import annotations

from collections.abc import Iterator

from modlab import format
from modlab.records.gradient import GradientRecord, GradientTable
from modlab.records.state import Matrix, ValuesRecord
from modlab.records.structure import ROOT
from modlab.records.tensor import TensorStats
from modlab.records.trace import Event, TraceRecord
from modlab.views import numbers, sharding
from modlab.views.sheets.layout import Block, Cell, Column, Mark, Row, Sheet
from modlab.wording import reasons

COLUMNS = (
    Column("shape", "code", 76, yields=3),
    Column("mean", "number", 66, yields=5),
    Column("std", "number", 66, yields=4),
    Column("L2", "number", 66, yields=0.8),
    Column("÷ weight", "number", 66, yields=2),
    Column("zero", "number", 52, yields=1),
)
_EMPTY = (Cell(),) * len(COLUMNS)
HOW = "with lab:\n    loss = loss_function(net(x), target)\n    loss.backward()"


def of_gradients(table: GradientTable, trace: TraceRecord | None) -> Sheet:
    """A row for each parameter, and one for each output whose gradient is in `trace`."""
    outputs = [event for event in trace.events if event.kind == "gradient" and event.category != "parameter"] if trace is not None else []
    whys = (
        {one.path: reasons.said(one) for one in trace.reasons}
        if trace is not None and any(e.kind == "backward" for e in trace.events)
        else {}
    )
    rows = [row for path in table.modules for row in _of_module(path, table, outputs, whys)]
    notes = []
    if not outputs:
        notes.append(Block("gradients of outputs", "Not shown: no backward pass was traced. To see them:", HOW, mark="absent"))
    foot = ".grad of each parameter, as it is now"
    return Sheet("gradients", sentence(table), COLUMNS, tuple(rows), tuple(notes), "gradient of", foot, "This model has no parameters.")


def sentence(table: GradientTable) -> tuple[str, str]:
    """Which parameters have none; of the rest, which are not finite or zero, and the largest and smallest."""
    asked = [row for row in table.rows if row.trainable]
    have = [(row, row.stats) for row in asked if row.stats is not None]
    if not asked:
        return f"{format.clean(table.title)}: no parameter is trained.", ""
    if not have:
        return "No parameter has a gradient:", "no backward pass has run, or gradients were zeroed since."
    bad = [row.path for row, stats in have if stats.nan or stats.posinf + stats.neginf]
    zero = [row.path for row, stats in have if stats.measured and stats.count and stats.zeros == stats.count]
    missing = [row.path for row in asked if row.stats is None]
    facts = [f"not finite: {_few(bad)}"] if bad else []
    facts += [f"none: {_few(missing)}"] if missing else []
    parts = any(stats.of_part for _, stats in have)
    facts += [f"zero {f'in {sharding.PART}' if parts else 'everywhere'}: {_few(zero)}"] if zero else []
    sized = sorted((stats.l2, row.path) for row, stats in have if stats.finite and stats.zeros < stats.count)
    if len(sized) > 1:
        (low, flat), (high, steep) = sized[0], sized[-1]
        here = f" of {sharding.PART}" if parts else ""
        facts.append(f"L2{here} from {format.number(low)} ({format.clean(flat)}) to {format.number(high)} ({format.clean(steep)})")
    many = format.plural(len(asked), "parameter")
    strong = f"{len(have):,} of {many} have a gradient" if missing else f"Every trained parameter has a gradient ({len(have):,})"
    if bad:
        strong = f"{len(bad):,} of {format.plural(len(have), 'gradient')} not finite"
        facts = [_few(bad), *facts[1:]]
    return f"{strong};" if facts else f"{strong}.", f"{'; '.join(facts)}." if facts else ""


def _few(paths: list[str]) -> str:
    return ", ".join(format.clean(path) for path in paths[:3]) + (f" and {len(paths) - 3:,} more" if len(paths) > 3 else "")


def _of_module(path: str, table: GradientTable, outputs: list[Event], whys: dict[str, str]) -> Iterator[Row]:
    for event in outputs:
        if event.path == path:
            yield from _of_output(event)
    for record in table.rows:
        if record.owner == path:
            yield _of_parameter(record, whys.get(record.path, ""))


def _of_output(event: Event) -> Iterator[Row]:
    path = event.path or ""
    note = f"call {event.call}" if event.call > 1 else ""
    for value in event.inputs:
        mark, said = _judged(value.stats)
        yield Row(
            path,
            path or ROOT,
            "output",
            ", ".join(filter(None, (note, said))),
            "gradient",
            mark=mark,
            cells=_cells(value.stats, None),
            details=() if value.stats is None else (_values(f"{path or ROOT}, its output", value.stats, value.numbers),),
        )


def _of_parameter(record: GradientRecord, reason: str) -> Row:
    stats = record.stats
    if stats is None:
        said = "frozen" if not record.trainable else "no gradient"
        detail = (Block(record.path, reason or "Its .grad is None."),)
        return Row(
            record.owner,
            record.path,
            "",
            said,
            "tensor",
            record.path,
            "absent" if not record.trainable else "careful",
            cells=_EMPTY,
            details=detail,
        )
    mark, said = _judged(stats)
    return Row(
        record.owner,
        record.path,
        "",
        said,
        "tensor",
        record.path,
        mark,
        cells=_cells(stats, record.relative),
        details=(_values(record.path, stats),),
    )


def _judged(stats: TensorStats | None) -> tuple[Mark, str]:
    if stats is None:
        return "", ""
    if not stats.measured:
        return "", stats.note
    if stats.nan or stats.posinf + stats.neginf:
        return "broken", "NaN" if stats.nan else "Inf"
    everywhere = f"zero in {sharding.PART}" if stats.of_part else "zero everywhere"
    return ("careful", everywhere) if stats.count and stats.zeros == stats.count else ("", "")


def _cells(stats: TensorStats | None, relative: float | None) -> tuple[Cell, ...]:
    if stats is None or not stats.measured or not stats.count:
        return _EMPTY if stats is None else (Cell(format.shape(stats.shape)), *_EMPTY[1:])
    here = f" {sharding.HERE}" if stats.of_part else ""
    figures = [Cell(f"{_short(number)}{here}") for number in (numbers.mean(stats), stats.std)] if stats.finite else [Cell(), Cell()]
    size = Cell(f"{_short(stats.l2)}{here}") if stats.finite else Cell()
    ratio = Cell("" if relative is None else f"{_short(relative)}{here}")
    return (Cell(format.shape(stats.shape)), *figures, size, ratio, Cell(f"{100 * stats.zeros / stats.count:.0f} %"))


def _values(place: str, stats: TensorStats, numbers: Matrix | None = None) -> Block:
    return Block(place, values=(ValuesRecord("gradient", stats, numbers, ""),))


def _short(number: float) -> str:
    """Three digits: a column of numbers is compared, not copied."""
    return f"{number:.3g}" if isinstance(number, float) else format.number(number)
