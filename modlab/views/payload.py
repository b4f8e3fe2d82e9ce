"""Records → what the page gets: JSON for trees and tables, and one buffer for arrays of numbers (schema 1).

Layout: 4 bytes (little endian) with the length of the JSON, the JSON, zero bytes up to a multiple of 8, the buffer.
The TypeScript side is ``js/src/payload.ts``; both are tested with the files of ``tests/fixtures``.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from modlab import format
from modlab.records.definition import Definition
from modlab.records.sharding import Unit
from modlab.records.state import MODEL, StateRecord, TableRecord, ValuesRecord
from modlab.records.structure import VARIABLE, Ghost, Link, Subtree, TensorEntry, TreeRecord
from modlab.views import facts, headline, numbers, sharding
from modlab.views.folding import fold

SCHEMA = 1
_ASKED = "values are read on request"
NO_VALUES = "Not read: the model is too large to include its values. Ask for one with state[path], or for all with state.widget()."
OF_FILE = "No weights of a file are read; modlab.state(path)['name'] reads this one."


class Arrays:
    """Named arrays, one after the other in a buffer."""

    def __init__(self) -> None:
        self.index: dict[str, dict[str, Any]] = {}
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, name: str, array: npt.NDArray[Any]) -> str:
        """Append `array`; returns its name."""
        data = np.ascontiguousarray(array)
        part = data.astype(data.dtype.newbyteorder("<"), copy=False).tobytes()
        self.index[name] = {"dtype": data.dtype.name, "shape": list(data.shape), "offset": self._size}
        part += bytes(-len(part) % 8)
        self._parts.append(part)
        self._size += len(part)
        return name

    def bytes(self) -> bytes:
        """The buffer."""
        return b"".join(self._parts)


def pack(content: dict[str, Any], arrays: Arrays) -> bytes:
    """One byte string of a payload and its arrays."""
    text = json.dumps({**content, "arrays": arrays.index}, ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode()
    return len(text).to_bytes(4, "little") + text + bytes(-(4 + len(text)) % 8) + arrays.bytes()


def of_tree(
    tree: TreeRecord, definitions: dict[Subtree, Definition], code: str, version: str, *, live: bool = False, limit: int | None = None
) -> bytes:
    """The payload of a tree view; with a limit, of so many distinct subtrees, those nearest to the root."""
    subtrees = nearest(tree, limit)
    number = {id(subtree): i for i, subtree in enumerate(subtrees)}
    entries: dict[TensorEntry, int] = {}
    classes: dict[Definition, int] = {}
    rows = []
    for subtree in subtrees:
        definition = definitions.get(subtree)
        rows.append(
            {
                **_subtree(subtree),
                "class": -1 if definition is None else classes.setdefault(definition, len(classes)),
                "tensors": [entries.setdefault(entry, len(entries)) for entry in subtree.tensors[:limit]],
                "runs": [
                    [_names(run.names), -1 if run.subtree is None else number[id(run.subtree)], _link(run.same_as)]
                    for run in subtree.runs
                    if run.subtree is None or id(run.subtree) in number
                ],
                "ghosts": [_ghost(ghost) for ghost in [*subtree.ghosts, *_left_out(subtree, number, limit)]],
            }
        )
    content = {
        **common("tree", headline.of_tree(tree), tree.fingerprint, code, version, _ASKED if live else "no values read", live, tree),
        "modules": tree.modules,
        "places": tree.places(),
        "subtrees": rows,
        "entries": [_entry(entry) for entry in entries],
        "classes": [_definition(definition) for definition in classes],
    }
    return pack(content, Arrays())


def nearest(tree: TreeRecord, limit: int | None) -> list[Subtree]:
    """The distinct subtrees of a tree, children before parents; with a limit, only so many, breadth first from the root."""
    subtrees = tree.subtrees()
    if limit is None or limit >= len(subtrees):
        return subtrees
    kept, queue = {id(tree.root)}, deque([tree.root])
    while queue:
        for run in queue.popleft().runs:
            if run.subtree is not None and id(run.subtree) not in kept and len(kept) < limit:
                kept.add(id(run.subtree))
                queue.append(run.subtree)
    return [subtree for subtree in subtrees if id(subtree) in kept]


def _left_out(subtree: Subtree, number: dict[int, int], limit: int | None) -> list[Ghost]:
    """A row that says what is not in this output."""
    missing = [(run.subtree, len(run.names)) for run in subtree.runs if run.subtree is not None and id(run.subtree) not in number]
    tensors, children = len(subtree.tensors[limit:]) if limit is not None else 0, sum(count for _, count in missing)
    counted = ((children, "more child", "more children"), (tensors, "more tensor", "more tensors"))
    what = " and ".join(format.plural(count, one, many) for count, one, many in counted if count)
    if not what:
        return []
    parameters = sum(below.totals.parameters * count for below, count in missing)
    return [Ghost("…", what, "left out", "tree.widget()  # has all", children, tensors, parameters, True)]


def of_table(table: TableRecord, model: str, code: str, version: str, *, live: bool = False, limit: int | None = None) -> bytes:
    """The payload of a state view; `model` is the fingerprint of the tree that it belongs to."""
    arrays = Arrays()
    nodes, signatures = fold(table.rows[:limit])
    left = len(table.rows) - (limit or len(table.rows))
    remarks = [f"the last {format.plural(left, 'row')} left out to keep this output small: state.widget() has all"] if left > 0 else []
    content = {
        **common("state", headline.of_table(table), model, code, version, _ASKED if live else _state_foot(table), live, table),
        "nodes": [
            {"type": n.type, "slots": [list(s) for s in n.slots], "runs": [[_names(names), i] for names, i in n.runs]} for n in nodes
        ],
        "signatures": [_signature(signature) for signature in signatures],
        "optimizer": bool(table.optimizers),
        "orphans": facts.capped(table.orphans),
        "remarks": [*facts.capped(table.remarks), *remarks],
        "summary": {
            "rows": len(table.rows),
            "saved": sum(row.in_state_dict for row in table.rows),
            "text": headline.counter(table),
        },
        "values": {**_plain(table.rows[:limit]), **{values.path: of_values(values, arrays) for values in table.values}},
        "valuesNote": "" if table.values else NO_VALUES if table.source == MODEL else OF_FILE,
    }
    return pack(content, arrays)


def _plain(rows: Sequence[StateRecord]) -> dict[str, Any]:
    """What stands in a file beside tensors, and is known from reading its frame."""
    blank = {"nan": 0, "inf": 0, "note": "", "bars": None, "grid": None}
    told = ((row.path, *row.value) for row in rows if row.kind == "value")
    return {path: {**blank, "title": path, "stats": [[kind if kind and value else "value", value or kind]]} for path, kind, value in told}


def of_measurement(values: ValuesRecord, code: str, version: str) -> bytes:
    """The payload of a measure view."""
    arrays = Arrays()
    body = of_values(values, arrays)
    return pack({**common("measure", headline.of_values(values), "", code, version, "", False), "values": {"": body}}, arrays)


def of_answer(values: ValuesRecord) -> bytes:
    """What the kernel answers when the page asks for one tensor."""
    arrays = Arrays()
    return pack({"values": of_values(values, arrays)}, arrays)


def common(
    view: str,
    sentence: tuple[str, str],
    model: str,
    code: str,
    version: str,
    foot: str,
    live: bool,
    root: TreeRecord | TableRecord | None = None,
) -> dict[str, Any]:
    """What every payload begins with."""
    return {
        "schema": SCHEMA,
        "version": version,
        "view": view,
        "headline": list(sentence),
        "model": model,
        "variable": VARIABLE if root is None else root.variable,
        "code": code,
        "foot": foot,
        "live": live,
        **({"scripted": True} if root is not None and root.scripted else {}),
    }


def _state_foot(table: TableRecord) -> str:
    if table.values:
        return f"values of {format.plural(len(table.values), 'tensor')} read"
    return "no weights read"


def _subtree(subtree: Subtree) -> dict[str, Any]:
    totals = subtree.totals
    return {
        "type": subtree.type,
        "category": subtree.category,
        "extra": subtree.extra,
        "training": subtree.training,
        "flags": list(subtree.flags),
        "own": totals.own_parameters,
        "total": totals.parameters,
        "trainable": totals.trainable,
        "buffers": totals.buffers,
        "bytes": totals.bytes,
        "ownText": format.count(totals.own_parameters),
        "totalText": format.count(totals.parameters),
        "bytesText": f"{sharding.size(totals.bytes, totals.bytes_here)}{headline.unreal(totals)}",
        "dtypes": list(totals.dtypes),
        "devices": list(totals.devices),
        "lazy": totals.lazy,
        "modules": totals.modules,
        **({"unit": _unit(subtree.unit)} if subtree.unit is not None else {}),
    }


def _unit(unit: Unit) -> dict[str, Any]:
    return {"name": sharding.unit_name(unit), "text": sharding.of_unit(unit)}


def _lies(entry: TensorEntry | StateRecord) -> dict[str, Any]:
    """How a tensor lies over the ranks, of one that does."""
    if entry.sharding is None:
        return {}
    here, placement = sharding.placed(entry.sharding, format.shape)
    return {"here": here, "placement": placement, "sharding": [list(pair) for pair in sharding.facts(entry.sharding)]}


def _entry(entry: TensorEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "kind": entry.kind,
        "shape": None if entry.shape is None else list(entry.shape),
        "shapeText": format.shape(entry.shape),
        "dtype": _dtype(entry),
        "device": entry.device,
        "count": entry.count,
        "countText": format.count(entry.count),
        "bytesText": sharding.size(entry.bytes, entry.bytes_here),
        "trainable": entry.trainable,
        "persistent": entry.persistent,
        "tied": _link(entry.tied),
        "note": entry.note,
        **_lies(entry),
    }


def _ghost(ghost: Ghost) -> dict[str, Any]:
    where, reason = facts.why_hidden(ghost)
    return {
        "name": ghost.name,
        "what": ghost.what,
        "where": where,
        "reason": reason,
        "fix": ghost.fix,
        "parameters": ghost.parameters,
        "parametersText": format.count(ghost.parameters),
        "harmless": ghost.harmless,
        **({"advice": ghost.advice} if ghost.advice else {}),
    }


def _definition(definition: Definition) -> dict[str, Any]:
    return {
        "name": definition.name,
        "where": definition.where,
        "signature": definition.signature,
        "doc": definition.doc,
        "code": definition.code,
        "codeNote": definition.code_note,
    }


def _signature(row: StateRecord) -> dict[str, Any]:
    return {
        "kind": row.kind,
        "shape": None if row.shape is None else list(row.shape),
        "shapeText": format.shape(row.shape),
        "dtype": _dtype(row),
        "device": row.device,
        "count": row.count,
        "countText": format.count(row.count),
        "bytes": row.bytes,
        "bytesText": sharding.size(row.bytes, row.bytes_here),
        "trainable": row.trainable,
        "trained": row.trained,
        "persistent": row.persistent,
        "saved": row.in_state_dict,
        "grad": row.grad,
        "tied": _absolute(row.tied),
        "note": facts.note(row),
        "mark": row.mark,
        "optimizer": [
            {"label": o.label, "lr": format.number(o.lr), "decay": format.number(o.weight_decay), "state": list(o.state)}
            for o in row.optimizers
        ],
        **_lies(row),
    }


def _dtype(entry: TensorEntry | StateRecord) -> str:
    short = format.dtype(entry.dtype)
    return f"{short}, computes in {format.dtype(entry.computes)}" if entry.computes else short


def of_values(values: ValuesRecord, arrays: Arrays, beside: Iterable[ValuesRecord] = ()) -> dict[str, Any]:
    """The values of one tensor; its numbers go to `arrays`. Histograms of those that stand `beside` it have the same axis."""
    stats, name = values.stats, f"{len(arrays.index)}"
    histogram = numbers.bars(stats, [other.stats for other in beside])
    note = ". ".join(part for part in (stats.note, values.note) if part)
    return {
        "title": values.path,
        "stats": [list(pair) for pair in numbers.statistics(stats)],
        "nan": stats.nan,
        "inf": stats.posinf + stats.neginf,
        "note": note,
        "bars": None
        if histogram is None
        else {
            "counts": arrays.add(f"bars {name}", np.array(histogram.counts, dtype=np.uint32)),
            "lo": histogram.alone or format.number(histogram.low),
            "hi": "" if histogram.alone else format.number(histogram.high),
            "low": histogram.low,
            "high": histogram.high,
            "note": histogram.note,
        },
        "grid": _grid(values, arrays, name),
    }


def _grid(values: ValuesRecord, arrays: Arrays, name: str) -> dict[str, Any] | None:
    matrix = values.matrix
    if matrix is None:
        return None
    with np.errstate(over="ignore"):  # what is too great for float32 is drawn as the greatest; its text is exact
        array = np.array(matrix.numbers, dtype=np.float64).astype(np.float32)
    rows = len(matrix.numbers)
    columns = len(matrix.numbers[0]) if rows else 0
    return {
        "array": arrays.add(f"grid {name}", array.reshape(rows, columns)),
        "slice": matrix.slice,
        "whole": not matrix.slice,
        "texts": numbers.cells(values) if rows <= numbers.WRITTEN and columns <= numbers.WRITTEN else None,
        "limit": numbers.limit(values.stats),
        "signed": numbers.signed(values.stats),
        "shapeText": format.shape(values.stats.shape),
    }


def _names(names: tuple[str, ...] | range) -> Any:
    return {"from": names.start, "to": names.stop - 1} if isinstance(names, range) else list(names)


def _link(link: Link | None) -> list[Any] | None:
    return None if link is None else [link.up, link.path]


def _absolute(path: str) -> list[Any] | None:
    return [0, path] if path else None
