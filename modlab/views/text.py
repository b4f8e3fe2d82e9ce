"""The text face: records → lines that compare equal from run to run. No address, no time, no box drawing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice

from modlab import format
from modlab.records.state import MODEL, OptimizerEntry, StateRecord, TableRecord, ValuesRecord
from modlab.records.structure import ROOT, ModuleRecord, TensorEntry, TreeRecord
from modlab.views import headline, numbers
from modlab.views.folding import unfold

ROWS = 200
_EXTRA = 64


def table_lines(rows: Iterable[tuple[str, ...]], right: frozenset[int] = frozenset()) -> list[str]:
    """Lines with the columns aligned, those in `right` to the right; the last column is left ragged."""
    cells = list(rows)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    form = "  ".join(f"{{:{'>' if i in right else '<'}{w}}}" for i, w in enumerate(widths[:-1])) + "  {}"
    return [form.format(*row).rstrip() for row in cells]


@lru_cache(maxsize=32)
def of_tree(tree: TreeRecord) -> str:
    """The headline and one line for each module; equal neighbours share one."""
    mode = tree.root.training
    rows: list[tuple[str, ...]] = [("path", "module", "parameters", "holds")]
    for record in islice(tree.rows(folded=True), ROWS):
        rows.extend(_module(record, mode))
    lines = [" ".join(headline.of_tree(tree)).rstrip(), *table_lines(rows, frozenset({2}))]
    left = tree.places(folded=True) - ROWS
    if left > 0:
        lines.append(f"... and {left:,} more rows: tree[path], tree.find(pattern), tree.records")
    return "\n".join(lines)


def _module(record: ModuleRecord, mode: bool) -> Iterator[tuple[str, ...]]:
    subtree = record.subtree
    path = format.clean(record.path) or ROOT
    if record.reserved:
        yield path, "None", "", "reserved"
        return
    kind = format.clean(subtree.type)
    if subtree.extra:
        kind = f"{kind}({_short(format.clean(subtree.extra))})"
    if record.count > 1:
        path, kind = f"{path} ... {format.clean(record.last.rpartition('.')[2])}", f"{record.count} x {kind}"
    totals = subtree.totals
    total = f"{totals.parameters:,}" if totals.parameters or not totals.lazy else "not yet"
    yield path, kind, total, "; ".join(_facts(record, mode))
    for ghost in subtree.ghosts:
        name = f"{record.path}.{ghost.name}" if record.path else ghost.name
        count = f"[{ghost.parameters:,}]" if ghost.parameters else ""
        yield (
            f"? {format.clean(name)}",
            format.clean(ghost.what),
            count,
            format.clean(ghost.reason + (f"; fix: {ghost.fix}" if ghost.fix else "")),
        )


def _short(extra: str) -> str:
    return extra if len(extra) <= _EXTRA else f"{extra[: _EXTRA - 4].rstrip()} ..."


def _facts(record: ModuleRecord, mode: bool) -> Iterator[str]:
    subtree = record.subtree
    if record.same_as is not None:
        yield f"same as {format.clean(record.same_as) or ROOT}"
    held = [_tensor(entry, record.path) for entry in subtree.tensors if entry.kind != "buffer"]
    if held:
        yield ", ".join(held)
    buffers = [_tensor(entry, record.path) for entry in subtree.tensors if entry.kind == "buffer"]
    if buffers:
        yield ("buffer " if len(buffers) == 1 else "buffers ") + ", ".join(buffers)
    if subtree.training != mode:
        yield "in training mode" if subtree.training else "in evaluation mode"
    if subtree.flags:
        yield ", ".join(subtree.flags)


def _tensor(entry: TensorEntry, path: str) -> str:
    name = format.clean(entry.name)
    if entry.kind == "reserved":
        return f"{name} None"
    text = f"{name} {entry.shape}" if entry.shape is not None else f"{name} not yet"
    if entry.tied is not None:
        text += f" = {format.clean(entry.tied.resolve(f'{path}.{entry.name}' if path else entry.name))}"
    if not entry.persistent:
        text += " not persistent"
    return text if entry.dtype == "float32" else f"{text} {entry.dtype}"


def of_table(table: TableRecord) -> str:
    """The headline and one line for each row; rows of equal blocks share one."""
    lines = unfold(table)
    head = ("path", "kind", "shape", "dtype", "device", "in state_dict", "trained", "gradient", "optimizer", "note")
    rows = [_row(path, times, row) for path, times, row in lines[:ROWS]]
    unused = (5, 6, 7, 8) if table.source != MODEL else () if table.optimizers else (8,)
    kept = [i for i in range(len(head)) if i not in unused]
    rows = [tuple(row[i] for i in kept) for row in (head, *rows)]
    text = [" ".join(headline.of_table(table)).rstrip(), *table_lines(rows)]
    if len(lines) > ROWS:
        text.append(f"... and {len(lines) - ROWS:,} more rows: state[path], state.find(pattern), state.records")
    text += [f"! {format.clean(orphan)}: held by the optimizer, not by the model" for orphan in table.orphans]
    text += [f"! {format.clean(remark)}" for remark in table.remarks]
    return "\n".join(text)


def _row(path: str, times: int, row: StateRecord) -> tuple[str, ...]:
    kind = row.kind if times == 1 else f"{times} x {row.kind}"
    shape = "" if row.shape is None else str(row.shape)
    trained = "" if row.kind in ("reserved", "extra") else "yes" if row.trainable else "no"
    saved = "yes" if row.in_state_dict else "no"
    owners = ", ".join(_owner(entry) for entry in row.optimizers)
    remarks = "; ".join(format.clean(note) for note in notes(row))
    return format.clean(path), kind, shape, format.clean(row.dtype), row.device, saved, trained, row.grad, owners, remarks


def _owner(entry: OptimizerEntry) -> str:
    text = f"{format.clean(entry.label)} lr {format.number(entry.lr)} decay {format.number(entry.weight_decay)}"
    return f"{text} keeps {', '.join(entry.state)}" if entry.state else text


def notes(row: StateRecord) -> Iterator[str]:
    """What is to be said of a row beyond its columns."""
    if row.mark:
        yield row.mark
    if row.kind == "buffer" and not row.persistent:
        yield "not persistent"
    if row.tied:
        yield f"same tensor as {row.tied}"
    if row.note:
        yield row.note


def of_values(values: ValuesRecord) -> str:
    """The headline, the statistics, and the numbers where they are few."""
    lines = [" ".join(headline.of_values(values)).rstrip()]
    pairs = numbers.statistics(values.stats)
    if pairs:
        lines.append("  ".join(f"{name} {value}" for name, value in pairs))
    lines += [note for note in (values.note,) if note]
    matrix = values.matrix
    if matrix and matrix.numbers and len(matrix.numbers) <= numbers.WRITTEN and len(matrix.numbers[0]) <= numbers.WRITTEN:
        cells, width = numbers.cells(values), len(matrix.numbers[0])
        wide = max(map(len, cells))
        if matrix.slice:
            lines.append(f"{matrix.slice} of {values.stats.shape}:")
        lines += ["  ".join(cell.rjust(wide) for cell in cells[i : i + width]) for i in range(0, len(cells), width)]
    return "\n".join(lines)
