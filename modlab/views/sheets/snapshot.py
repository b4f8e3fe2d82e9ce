"""The sheet of a snapshot: what is kept, one row for each kind, so that it is small for every model."""

from __future__ import annotations

from collections.abc import Sequence

from modlab import format
from modlab.records.snapshot import SnapshotRecord
from modlab.views import sharding
from modlab.views.sheets.layout import Block, Cell, Column, Row, Sheet

COLUMNS = (
    Column("entries", "number", 60, yields=0.6),
    Column("numbers", "number", 70, yields=0.8),
    Column("memory", "number", 70),
    Column("as", "words", 90, yields=2),
    Column("which", "code", 320, grows=3, yields=3),
)
_PLURAL = {
    "parameter": "parameters",
    "buffer": "buffers",
    "reserved": "reserved names",
    "packed": "packed weights",
    "extra": "extra state",
    "attribute": "tensors in attributes",
    "gradient": "gradients",
    "optimizer state": "optimizer state",
    "hyper-parameter": "hyper-parameters",
    "RNG": "random generators",
}
_SYMBOLS = {"gradient": "gradient", "optimizer state": "step", "hyper-parameter": "step", "RNG": "function"}
CHANCE = "Fingerprints have 128 bits: with n changed tensors, the chance that one is missed is about n × 2⁻¹²⁸ (3e-39 each)."


def of_snapshot(title: str, records: Sequence[SnapshotRecord], modules: int, training: int, values: bool) -> Sheet:
    """A row for each kind of thing."""
    rows = [_row(kind, [r for r in records if r.kind == kind]) for kind in _PLURAL if any(r.kind == kind for r in records)]
    flags = f"{training:,} of {format.plural(modules, 'module')} in training mode"
    rows.append(Row("", "training flags", symbol="store", place="training flags", cells=(Cell(f"{modules:,}"), *[Cell()] * 3, Cell(flags))))
    return Sheet("snapshot", _sentence(title, records, values), COLUMNS, tuple(rows), tuple(_notes(records, values)), title="kept")


def _sentence(title: str, records: Sequence[SnapshotRecord], values: bool) -> tuple[str, str]:
    tensors = [r for r in records if r.shape is not None and not r.tied]
    kept = [r for r in tensors if r.kept]
    what = "copy" if values else "fingerprint"
    many = what if len(kept) == 1 else {"copy": "copies", "fingerprint": "fingerprints"}[what]
    strong = f"{format.clean(title)}: {len(kept):,} {many} of {format.plural(len(tensors), 'tensor')};"
    facts = [sharding.size(sum(r.bytes for r in kept), sum(r.bytes_here for r in kept)) if values else "no values"]
    state = sum(r.kind == "optimizer state" for r in records)
    grads = sum(r.kind == "gradient" for r in records)
    facts.append(f"{format.plural(grads, 'gradient')}" if grads else "no gradient")
    if state:
        facts.append("the optimizer's state")
    return strong, ", ".join(facts) + "; compare it later: modlab.diff(snapshot, model)."


def _row(kind: str, its: list[SnapshotRecord]) -> Row:
    own = [r for r in its if not r.tied]
    count, size, here = (sum(getattr(r, name) for r in own) for name in ("count", "bytes", "bytes_here"))
    kept = sorted({r.kept for r in its if r.kept})
    names = ", ".join(format.clean(r.path) for r in its[:3]) + (", ..." if len(its) > 3 else "")
    if kind == "hyper-parameter":
        names = ", ".join(f"{format.clean(r.path.rpartition('.')[2])} {format.clean(r.value)}" for r in its[:4]) + (
            ", ..." if len(its) > 4 else ""
        )
    cells = (
        Cell(f"{len(its):,}"),
        Cell(f"{count:,}" if count else ""),
        Cell(sharding.size(size, here) if size else ""),
        Cell(", ".join(kept)),
        Cell(names),
    )
    return Row("", _PLURAL[kind], symbol=_SYMBOLS.get(kind, "tensor"), place=_PLURAL[kind], cells=cells)


def _notes(records: Sequence[SnapshotRecord], values: bool) -> list[Block]:
    notes = []
    without = [r for r in records if r.shape is not None and not r.kept]
    if without:
        names = ", ".join(r.path for r in without[:4]) + (", ..." if len(without) > 4 else "")
        reasons = ", ".join(sorted({"meta" if r.device == "meta" else r.note or "no values" for r in without}))
        notes.append(Block("without values", f"{names} ({reasons})", mark="careful"))
    if not values:
        notes.append(Block("chance", CHANCE))
    return notes
