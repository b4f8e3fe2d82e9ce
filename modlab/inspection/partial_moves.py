"""Partial moves to another dtype or device, and what they left where it was: what is not registered, and numbers that are no floats."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from modlab.inspection.inventory import InventoryEntry
from modlab.records.difference import TENSORS, DifferenceRecord
from modlab.records.finding import Finding

_REGISTERED = ("parameter", "buffer")
Pair = tuple[InventoryEntry | None, InventoryEntry | None]


def noted(rows: list[DifferenceRecord], pairs: list[Pair]) -> list[DifferenceRecord]:
    """The rows of one model before and after, with a note on each that a move of all around it left behind."""
    for fact, before, after in (("dtype", "dtype_before", "dtype_after"), ("device", "device_before", "device_after")):
        facts = [(getattr(row, before), getattr(row, after)) for row in rows]
        arrived = {now for row, (was, now) in zip(rows, facts, strict=True) if was and was != now and row.kind in _REGISTERED}
        scopes = _scopes(rows, facts, fact, arrived) if arrived else {}
        for i, (row, (was, now)) in enumerate(zip(rows, facts, strict=True)):
            if row.kind in TENSORS and row.status == "unchanged" and was and was == now and now not in arrived and _left(row, scopes):
                kind = "stayed on" if fact == "device" else "stayed"
                rows[i] = replace(row, notes=(*row.notes, Finding(kind, facts={fact: now, **_derived(pairs[i][1])})))
    return rows


def _scopes(rows: list[DifferenceRecord], facts: list[tuple[str, str]], fact: str, arrived: set[str]) -> dict[str, list[int]]:
    """Of each module path: how many registered tensors at and below it could move, and how many stayed."""
    scopes: dict[str, list[int]] = {}
    for row, (was, now) in zip(rows, facts, strict=True):
        if row.kind in _REGISTERED and was and now and (fact == "device" or _castable(was)):
            for path in _upwards(row.owner):
                tally = scopes.setdefault(path, [0, 0])
                tally[0] += 1
                tally[1] += was == now and now not in arrived
    return scopes


def _left(row: DifferenceRecord, scopes: dict[str, list[int]]) -> bool:
    """Whether all that could move moved, at and below the nearest module that has any."""
    return next((not scopes[path][1] for path in _upwards(row.owner) if path in scopes), False)


def _upwards(owner: str) -> Iterator[str]:
    while owner:
        yield owner
        owner = owner.rpartition(".")[0]
    yield ""


def _castable(name: str) -> bool:
    """Whether ``.to(dtype)`` converts it: floating point and complex numbers."""
    dtype = getattr(torch, name, None)
    return isinstance(dtype, torch.dtype) and (dtype.is_floating_point or dtype.is_complex)


def _derived(entry: InventoryEntry | None) -> dict[str, str]:
    """What computes it anew before the next forward, so that it does not matter."""
    return {"derived_by": entry.derived_by} if entry is not None and entry.derived_by else {}
