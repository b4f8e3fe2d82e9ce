"""Facts about a module or a row beyond its columns, in words that text and HTML share. Users' names come out clean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from modlab import format
from modlab.records.state import OptimizerEntry, StateRecord, TableRecord
from modlab.records.structure import ROOT, Ghost, ModuleRecord, TensorEntry
from modlab.views import sharding

TENSORS = 12  # that one row names
WARNINGS = 20  # that stand below one table


def of_module(record: ModuleRecord, mode: bool) -> Iterator[str]:
    """The facts about one row of a tree; `mode` is the root's training flag."""
    subtree = record.subtree
    if record.same_as is not None:
        yield f"same as {format.clean(record.same_as) or ROOT}"
    held = _listed([entry for entry in subtree.tensors if entry.kind != "buffer"], record.path)
    if held:
        yield held
    buffers = _listed([entry for entry in subtree.tensors if entry.kind == "buffer"], record.path)
    if buffers:
        yield ("buffers " if ", " in buffers else "buffer ") + buffers
    if subtree.training != mode:
        yield "in training mode" if subtree.training else "in evaluation mode"
    if subtree.unit is not None:
        yield sharding.of_unit(subtree.unit)
    if subtree.flags:
        yield ", ".join(subtree.flags)


def total(record: ModuleRecord) -> str:
    """The parameters of a row; for equal neighbours, those of one."""
    totals = record.subtree.totals
    if totals.lazy and not totals.parameters:
        return "not yet"
    return f"{totals.parameters:,} each" if record.count > 1 else f"{totals.parameters:,}"


def _listed(entries: Sequence[TensorEntry], path: str) -> str:
    words = [_tensor(entry, path) for entry in entries[:TENSORS]]
    if len(entries) > TENSORS:
        words.append(f"and {len(entries) - TENSORS:,} more")
    return ", ".join(words)


def _tensor(entry: TensorEntry, path: str) -> str:
    name = format.clean(entry.name)
    if entry.kind == "reserved":
        return f"{name} None"
    text = f"{name} {entry.shape}" if entry.shape is not None else f"{name} not yet"
    if entry.tied is not None:
        text += f" = {format.clean(entry.tied.resolve(f'{path}.{entry.name}' if path else entry.name))}"
    if not entry.persistent:
        text += " not persistent"
    if entry.dtype != "float32" or entry.computes:
        text += f" {dtype(entry)}"
    return f"{text} {sharding.of_entry(entry)}" if entry.sharding is not None else text


def dtype(entry: TensorEntry | StateRecord) -> str:
    """In which it lies in memory, and in which it computes: "float32"; "int8, computes in float32"."""
    name = format.clean(entry.dtype)
    return f"{name}, computes in {format.clean(entry.computes)}" if entry.computes else name


def of_ghost(ghost: Ghost) -> tuple[str, str, str, str, str]:
    """What it is, how many parameters it hides, why PyTorch does not see it, the line that mends it, and else what to do in words."""
    count = f"[{ghost.parameters:,}]" if ghost.parameters else ""
    reason = ": ".join(filter(None, why_hidden(ghost)))
    return format.clean(ghost.what), count, format.clean(reason), format.clean(ghost.fix), ghost.advice


def why_hidden(ghost: Ghost) -> tuple[str, str]:
    """Where it is, and what follows; either may be nothing."""
    from modlab.wording import unregistered  # most models hide nothing

    return unregistered.where(ghost.way, ghost.holder), unregistered.fate(ghost.way, ghost.holder, ghost.cut)


def note(row: StateRecord) -> str:
    """What is odd about a row; for something unregistered, how the module holds it."""
    if not row.way:
        return row.note
    from modlab.wording import unregistered

    return unregistered.reason(row.way, row.holder)


def of_row(row: StateRecord) -> Iterator[str]:
    """What to say about a row of a state table beyond its columns."""
    if row.mark:
        yield row.mark
    if row.kind == "buffer" and not row.persistent:
        yield "not persistent"
    if row.tied:
        yield f"same tensor as {format.clean(row.tied)}"
    if said := note(row):
        yield format.clean(said)


def owner(entry: OptimizerEntry) -> str:
    """How an optimizer treats a parameter."""
    text = f"{format.clean(entry.label)} lr {format.number(entry.lr)} decay {format.number(entry.weight_decay)}"
    return f"{text} keeps {', '.join(map(format.clean, entry.state))}" if entry.state else text


def warnings(table: TableRecord) -> list[str]:
    """What is shown below a state table: tensors that only the optimizer holds, and what cannot be known."""
    found = [f"{format.clean(orphan)}: held by the optimizer, not by the model" for orphan in table.orphans]
    return capped([*found, *map(format.clean, table.remarks)])


def capped(lines: Iterable[str]) -> list[str]:
    """The first lines, and how many are left out."""
    every = list(lines)
    more = len(every) - WARNINGS
    return [*every[:WARNINGS], f"... and {more:,} more"] if more > 0 else every
