"""The text face: records → lines that compare equal from run to run. No address, no time, no box drawing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice

from modlab import format
from modlab.records.structure import ROOT, ModuleRecord, TensorEntry, TreeRecord
from modlab.views import headline

ROWS = 200
_EXTRA = 100


def table(rows: Iterable[tuple[str, ...]], right: frozenset[int] = frozenset()) -> list[str]:
    """Lines with the columns aligned, those in `right` to the right; the last column is left ragged."""
    cells = list(rows)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    form = "  ".join(f"{{:{'>' if i in right else '<'}{w}}}" for i, w in enumerate(widths[:-1])) + "  {}"
    return [form.format(*row).rstrip() for row in cells]


@lru_cache(maxsize=32)
def of_tree(tree: TreeRecord) -> str:
    """The headline and one line for each module; equal neighbours share one."""
    mode = tree.root.training
    rows = [("path", "module", "parameters", "holds")]
    for record in islice(tree.rows(folded=True), ROWS):
        rows.extend(_module(record, mode))
    lines = [" ".join(headline.of_tree(tree)).rstrip(), *table(rows, frozenset({2}))]
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
        kind = f"{kind}({format.cut(format.clean(subtree.extra), _EXTRA)})"
    if record.count > 1:
        path, kind = f"{path} ... {format.clean(record.last.rpartition('.')[2])}", f"{record.count} x {kind}"
    totals = subtree.totals
    total = f"{totals.parameters:,}" if totals.parameters or not totals.lazy else "not yet"
    yield path, kind, total, "; ".join(_facts(record, mode))
    for ghost in subtree.ghosts:
        name = f"{record.path}.{ghost.name}" if record.path else ghost.name
        count = f"[{ghost.parameters:,}]" if ghost.parameters else ""
        yield f"? {format.clean(name)}", format.clean(ghost.what), count, format.clean(ghost.reason + (f"; fix: {ghost.fix}" if ghost.fix else ""))


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
