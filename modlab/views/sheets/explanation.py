"""An explanation as a sheet: the modules on the way as rows, the place of the error marked, the fix below."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from modlab import format
from modlab.records.explanation import ExplanationRecord, Step
from modlab.records.trace import Value
from modlab.views.sheets.layout import Block, Box, Cell, Column, Row, Sheet

COLUMNS = (Column("what happened", "flow", width=300, grows=2, yields=0),)
_OF_SHAPES = frozenset(
    {"product", "attention", "convolution", "norm", "loss", "broadcast", "join", "view", "index"}
)  # where a box is what does not fit
_SHOWN = 4  # inputs in one row


def of_explanation(record: ExplanationRecord) -> Sheet:
    """The sheet of one explanation."""
    return Sheet(
        "explain",
        record.sentence,
        COLUMNS,
        tuple(_row(step, name, record) for step, name in zip(record.steps, _names(record.steps), strict=True)),
        (*_fixes(record), *_patch(record), *_facts(record), *_place(record), *(Block(prose=remark) for remark in record.remarks)),
        title="module",
        foot="read from the traceback, after the fact",
        empty="" if record.fixes or record.facts else "The traceback passes through no module.",
    )


def _names(steps: tuple[Step, ...]) -> Iterator[str]:
    """How each row names its module: by the part of the dotted name that the nearest row above does not show."""
    above: list[str | None] = []  # of each depth, the path of the last row there
    for step in steps:
        del above[step.depth :]
        around = next((path for path in reversed(above) if path is not None), None)
        above += [None] * (step.depth - len(above)) + [step.path]
        if not step.path or around is None:
            yield step.name
        else:
            yield step.path.removeprefix(f"{around}.") if around else step.path


def _row(step: Step, name: str, record: ExplanationRecord) -> Row:
    return Row(
        path=step.path,
        name=name,
        kind=step.type if step.type != name else "",
        note=step.note,
        symbol=step.symbol,
        place=None if step.path is not None else "",
        mark="broken" if step.stopped else "",
        depth=step.depth,
        cells=(_happened(step, record),),
        details=tuple(_details(step, record)),
    )


def _weights(step: Step) -> Iterator[Box | str]:
    for value in _fitted(step):
        yield from (f", {value.name}", Box(value.shape or ()))


def _fitted(step: Step) -> list[Value]:
    """A failed module's own tensors, which its input had to fit."""
    return [value for value in step.tensors[:2] if value.shape is not None] if step.failed and step.said else []


def _happened(step: Step, record: ExplanationRecord) -> Cell:
    inputs = [value for value in step.inputs if value.shape is not None or value.text][:_SHOWN]
    if not step.stopped and step.outputs and step.certain:
        return _passed(inputs, step.outputs)
    if not step.stopped:
        end = step.said
    elif step.failed:
        end = f"✕ {step.said or record.error}"
    else:
        end = "✕ stopped inside"
    flow: list[Box | str] = []
    for value in inputs:
        if flow:
            flow.append(",")
        flow.append(_drawn(value, fits=not (step.failed and record.family in _OF_SHAPES)))
    flow += [*_weights(step), "→", end]
    words = ", ".join(_written(value) for value in inputs)
    if len(step.inputs) > len(inputs):
        words += ", …"
    own = ", ".join(f"{value.name} {_written(value)}" for value in _fitted(step))
    words = ", ".join(filter(None, (words, own)))
    return Cell(f"{words} → {end}" if words else end, flow=tuple(flow) if inputs else (end,), mark="broken" if step.stopped else "")


def _passed(inputs: list[Value], outputs: tuple[Value, ...]) -> Cell:
    """A call that finished, with its output."""
    flow = (*(_drawn(value, fits=True) for value in inputs), "→", *(_drawn(value, fits=True) for value in outputs))
    taken, given = (", ".join(map(_written, values)) for values in (inputs, outputs))
    return Cell(f"{taken or '…'} → {given}", flow=flow)


def _drawn(value: Value, fits: bool) -> Box | str:
    return value.text or value.kind if value.shape is None else Box(value.shape, fits)


def _written(value: Value) -> str:
    return value.text or value.kind if value.shape is None else str(value.shape)


def _details(step: Step, record: ExplanationRecord) -> Iterator[Block]:
    if step.line and (step.line, step.where) != (record.line, record.where):  # that one stands below the table
        yield Block(caption=f"stopped at {step.where}", code=step.line)
    for caption, values in (("inputs", step.inputs), ("own tensors", step.tensors), ("local names", step.locals)):
        if values:
            yield _table(caption, values)


_HEAD = ("name", "shape", "dtype", "device", "note")


@lru_cache(256)  # equal layers have equal tables
def _table(caption: str, values: tuple[Value, ...]) -> Block:
    rows = [(value.name or "input", *_facts_of(value)) for value in values]
    kept = [i for i in range(len(_HEAD)) if i == 0 or any(row[i] for row in rows)]
    return Block(caption, head=tuple(_HEAD[i] for i in kept), rows=tuple(tuple(row[i] for i in kept) for row in rows))


def _facts_of(value: Value) -> tuple[str, str, str, str]:
    if value.shape is None and not value.dtype:
        return value.text or value.kind, "", "", value.note
    shape = format.shape(value.shape) or value.note
    return shape, format.dtype(value.dtype), value.device, "requires grad" if value.requires_grad else ""


def _fixes(record: ExplanationRecord) -> Iterator[Block]:
    for number, fix in enumerate(record.fixes):
        yield Block("Fix" if number == 0 else "", fix.prose, fix.code, mark="fine" if number == 0 else "")


def _patch(record: ExplanationRecord) -> Iterator[Block]:
    if record.patch is not None:
        yield Block("Patch", record.patch.said, record.patch.diff, key="p")


def _facts(record: ExplanationRecord) -> Iterator[Block]:
    if record.facts:
        yield Block("Facts", rows=record.facts)


def _place(record: ExplanationRecord) -> Iterator[Block]:
    if record.line:
        yield Block(f"{'In' if record.where.startswith('a cell') else 'At'} {record.where}", code=record.line)
    named = record.family == "deepcopy" or (record.family == "meta" and record.steps)  # what is to blame is; others are not
    if record.locals and not named:
        yield _table("local names there", record.locals)
