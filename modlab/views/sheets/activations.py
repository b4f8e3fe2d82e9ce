"""What each module returned in one pass: shapes, ranges and zeros of its outputs, in order."""

from __future__ import annotations

from collections.abc import Iterator

from modlab import format
from modlab.records.state import ValuesRecord
from modlab.records.structure import ROOT
from modlab.records.tensor import TensorStats
from modlab.records.trace import Event, TraceRecord, Value
from modlab.views import numbers
from modlab.views.sheets.layout import Block, Cell, Column, Mark, Row, Sheet
from modlab.views.sheets.trace import boxed, first_not_finite
from modlab.wording import events
from modlab.wording.names import named

COLUMNS = (
    Column("output", "flow", 96, 1, 3),
    Column("mean", "number", 66, yields=2),
    Column("std", "number", 66, yields=4),
    Column("least", "number", 66, yields=6),
    Column("greatest", "number", 66, yields=5),
    Column("zero", "bar", 84, 1),
)
_EMPTY = (Cell(),) * (len(COLUMNS) - 1)


def of_trace(trace: TraceRecord) -> Sheet:
    """A row for each output of a module, or of a function of ``torch.nn.functional`` outside any module."""
    calls = [event for event in trace.events if _is_shown(event)]
    rows = [row for event in calls for row in _rows(event)]
    rows += [
        Row(one.path, one.path or ROOT, one.type, events.uncalled(one), one.category, mark="absent", cells=(Cell(), *_EMPTY))
        for one in trace.uncalled
    ]
    unmeasured = () if trace.measured else (Block("not measured", "The values of this pass were not read.", mark="careful"),)
    return Sheet(
        "activations",
        sentence(trace, calls),
        COLUMNS,
        tuple(rows),
        unmeasured,
        foot="what forward returned, in the last pass that was traced",
    )


def sentence(trace: TraceRecord, calls: list[Event]) -> tuple[str, str]:
    """What is not finite first, then what is all zero."""
    found = [(event, stats) for event in calls for stats in _stats(event)]
    odd = next((event for event, stats in found if stats.nan or stats.posinf + stats.neginf), None)
    bad = odd and (first_not_finite(trace.events) or odd)
    dead = list(dict.fromkeys(_place(event) for event, stats in found if stats.count == stats.zeros > 1))
    outputs = format.plural(len(found), "output")
    facts = [f"only zeros from {', '.join(dead[:3])}{', …' if len(dead) > 3 else ''}"] if dead else []
    widest = max(found, key=lambda one: one[1].std if one[1].finite else 0.0, default=None)
    if widest is not None and widest[1].finite:
        facts.append(f"{_place(widest[0])} spreads most, from {format.number(widest[1].min)} to {format.number(widest[1].max)}")
    if trace.error:
        facts.append(f"the pass ended with {trace.error}")
    rest = f"{'; '.join(facts)}." if facts else ""
    if bad is not None:
        return f"Not finite from {_place(bad)} on;", rest or f"{outputs} in all."
    return (
        (f"{format.clean(trace.title)}: {outputs}, all finite;", rest)
        if rest
        else (f"{format.clean(trace.title)}: {outputs}, all finite.", "")
    )


def _is_shown(event: Event) -> bool:
    if event.kind == "module":
        return event.path is not None and not event.error
    return event.kind == "function" and event.path is not None and event.name.startswith("F.") and not event.error


def _stats(event: Event) -> list[TensorStats]:
    return [value.stats for value in event.outputs if value.stats is not None and value.stats.measured]


def _place(event: Event) -> str:
    path = named(event.path or "")
    return path if event.kind == "module" else f"{event.name} in {path}"


def _rows(event: Event) -> Iterator[Row]:
    tensors = [value for value in event.outputs if value.shape is not None]
    for number, value in enumerate(tensors or event.outputs[:1]):
        is_first = number == 0
        notes = [f"call {event.call}"] if event.call > 1 and event.kind == "module" else []
        notes += [value.name] if value.name else []
        mark, said = _judged(value.stats)
        notes += [said] if said else []
        path = event.path or ""
        name = (path.rpartition(".")[2] or ROOT) if event.kind == "module" else event.name
        yield Row(
            event.path,
            name if is_first else "…",
            event.name if event.kind == "module" else "",
            ", ".join(notes),
            "function" if event.kind == "function" else event.category or "own",
            mark=mark,
            depth=event.depth,
            cells=_cells(value),
            details=tuple(_details(event, value)),
        )


def _judged(stats: TensorStats | None) -> tuple[Mark, str]:
    if stats is None or not stats.measured:
        return "", ""
    if stats.nan or stats.posinf + stats.neginf:
        parts = [f"{stats.nan:,} NaN"] if stats.nan else []
        return "broken", ", ".join([*parts, f"{stats.posinf + stats.neginf:,} Inf"] if stats.posinf + stats.neginf else parts)
    return ("careful", "only zeros") if stats.count == stats.zeros > 1 else ("", "")


def _cells(value: Value) -> tuple[Cell, ...]:
    if value.shape is None:
        return (Cell(value.text or value.kind, flow=(value.text or value.kind,), mark="absent"), *_EMPTY)
    box = Cell(str(value.shape), flow=(boxed(value),))
    stats = value.stats
    if stats is None or not stats.measured or not stats.count:
        return (box, *_EMPTY)
    share = stats.zeros / stats.count
    figures = [Cell(_short(number)) for number in (numbers.mean(stats), stats.std, stats.min, stats.max)] if stats.finite else [Cell()] * 4
    return (box, *figures, Cell(f"{100 * share:.0f} %", share))


def _details(event: Event, value: Value) -> Iterator[Block]:
    place = _place(event)
    if value.stats is None:
        yield Block(place, rows=(("shape", str(value.shape)),) if value.shape is not None else (), prose=value.note)
        return
    yield Block(place, value.note, values=(ValuesRecord(value.name or "output", value.stats, value.numbers, ""),))


def _short(number: float) -> str:
    """Three digits: a column of numbers is compared, not copied."""
    return f"{number:.3g}" if isinstance(number, float) else format.number(number)
