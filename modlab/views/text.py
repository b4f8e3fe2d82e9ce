"""The text face: records → lines that compare equal from run to run. No address, no time, no box drawing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice

from modlab import format
from modlab.records.state import MODEL, StateRecord, TableRecord, ValuesRecord
from modlab.records.structure import ROOT, ModuleRecord, TreeRecord
from modlab.views import facts, headline, numbers, sharding
from modlab.views.folding import unfold

ROWS = 200
_EXTRA = 64
WIDEST = 1_000  # characters of a cell that others are aligned with: a file may name a tensor by a million


def table_lines(rows: Iterable[tuple[str, ...]], right: frozenset[int] = frozenset()) -> list[str]:
    """Lines with the columns aligned, those in `right` to the right; the last column is left ragged."""
    cells = [(*(format.cut(cell, WIDEST) for cell in row[:-1]), row[-1]) for row in rows]
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
    if record.recursive:
        yield path, "", "", f"same as {format.clean(record.same_as or '') or ROOT}: the module contains itself"
        return
    kind = format.clean(subtree.type)
    if subtree.extra:
        kind = f"{kind}({_short(format.clean(subtree.extra))})"
    if record.count > 1:
        path, kind = f"{path} ... {format.clean(record.last.rpartition('.')[2])}", f"{record.count} x {kind}"
    yield path, kind, facts.total(record), "; ".join(facts.of_module(record, mode))
    for ghost in subtree.ghosts:
        name = f"{record.path}.{ghost.name}" if record.path else ghost.name
        what, count, reason, *remedy = facts.of_ghost(ghost)
        fix = "".join(remedy)
        yield f"? {format.clean(name)}", what, count, f"{reason}; fix: {fix}" if fix else reason


def _short(extra: str) -> str:
    return extra if len(extra) <= _EXTRA else f"{extra[: _EXTRA - 4].rstrip()} ..."


def of_table(table: TableRecord) -> str:
    """The headline and one line for each row; rows of equal blocks share one."""
    lines = unfold(table)
    head = ("path", "kind", "shape", "here", "placement", "dtype", "device", "in state_dict", "trained", "gradient", "optimizer", "note")
    rows = [_row(path, times, row) for path, times, row in lines[:ROWS]]
    unused = (7, 8, 9, 10) if table.source != MODEL else () if table.optimizers else (10,)
    kept = [i for i in range(len(head)) if i not in unused and (i not in (3, 4) or any(row[i] for row in rows))]
    rows = [tuple(row[i] for i in kept) for row in (head, *rows)]
    text = [" ".join(headline.of_table(table)).rstrip(), *table_lines(rows)]
    if len(lines) > ROWS:
        text.append(f"... and {len(lines) - ROWS:,} more rows: state[path], state.find(pattern), state.records")
    text += [f"! {warning}" for warning in facts.warnings(table)]
    return "\n".join(text)


def _row(path: str, times: int, row: StateRecord) -> tuple[str, ...]:
    kind = row.kind if times == 1 else f"{times} x {row.kind}"
    shape = "" if row.shape is None else str(row.shape)
    saved = "yes" if row.in_state_dict else "no"
    owners = ", ".join(map(facts.owner, row.optimizers))
    notes = "; ".join(facts.of_row(row))
    here, placed = sharding.placed(row.sharding)
    return format.clean(path), kind, shape, here, placed, facts.dtype(row), row.device, saved, row.trained, row.grad, owners, notes


def of_values(values: ValuesRecord) -> str:
    """The headline, the statistics, and the numbers where they are few."""
    lines = [" ".join(headline.of_values(values)).rstrip()]
    pairs = numbers.statistics(values.stats)
    if pairs:
        lines.append("  ".join(f"{name} {value}" for name, value in pairs))
    lines += [note for note in (values.stats.note if values.stats.measured else "", values.note) if note]
    lines += _numbers(values)
    return "\n".join(lines)


def _numbers(values: ValuesRecord) -> list[str]:
    """The matrix, or a stated corner of it where it is too large to be written out."""
    matrix = values.matrix
    if matrix is None or not matrix.numbers:
        return []
    cells, width = numbers.cells(values), len(matrix.numbers[0])
    rows = [cells[i : i + width] for i in range(0, len(cells), width)]
    if len(rows) <= numbers.WRITTEN and width <= numbers.WRITTEN:
        title = [f"{matrix.slice} of {values.stats.shape}:"] if matrix.slice else []
    else:
        rows = [row[: numbers.CORNER] for row in rows[: numbers.CORNER]]
        title = [f"the first {len(rows)} x {len(rows[0])} of {matrix.slice or 'all'}, {values.stats.shape}:"]
    wide = max(len(cell) for row in rows for cell in row)
    return [*title, *("  ".join(cell.rjust(wide) for cell in row) for row in rows)]
