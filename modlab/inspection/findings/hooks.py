"""Hooks that stand in one place twice: registered two times, or left by an earlier run of the same cell."""

from __future__ import annotations

from collections.abc import Iterator

from modlab.inspection import hooks
from modlab.inspection.findings.subject import Subject
from modlab.records.finding import FindingRecord
from modlab.records.hooks import HookRecord
from modlab.records.structure import ROOT


def doubled(subject: Subject) -> Iterator[FindingRecord]:
    """The same function twice on one module or tensor, and hooks that a later run of their cell has replaced."""
    told: set[tuple[str, str, str, str]] = set()
    for row in hooks.extract(subject.model).rows:
        if row.machinery or (row.times < 2 and not row.left):
            continue
        kind = "left-over hook" if row.left else "doubled hook"
        key = (row.path, row.kind, row.name, kind)
        if key not in told:
            told.add(key)
            yield _of(row, kind, _extent(subject, row.path))


def edited(subject: Subject) -> Iterator[FindingRecord]:
    """Lambdas that may be left over from a cell that was edited; which nothing can tell for certain."""
    for row in hooks.extract(subject.model).rows:
        if row.doubt and not row.machinery:
            yield FindingRecord(
                row.path,
                row.owner or "",
                "perhaps a left-over hook",
                "note",
                _label(row.path, _extent(subject, row.path)),
                f"has the {row.kind} hook {row.name}, and {row.doubt}",
                "If that is its cell, edited and run again, this one still runs beside the new one. If both are meant, all is well.",
                advice="If it is left over: modlab.hooks(model).remove([row for row in modlab.hooks(model) if row.doubt])",
                extent=_extent(subject, row.path),
            )


def _extent(subject: Subject, path: str) -> str:
    return next((site.extent for site in subject.sites if site.path == path), "")


def _label(path: str, extent: str) -> str:
    return f"{path} ({extent})" if extent else path or ROOT


def _of(row: HookRecord, kind: str, extent: str) -> FindingRecord:
    word = f"{row.kind} hook"
    if row.left:
        what = f"still has the {word} {row.name}: {row.left}"
        reason = "A hook stays until its handle's remove() is called. Running a cell again adds the new one, and the old one still runs."
    else:
        what = f"has the {word} {row.name} {'twice' if row.times == 2 else f'{row.times} times'}: each of them runs"
        reason = "Registering a function again adds it again; a cell that registers a hook does so each time it is run."
    where = f" It stands in {row.where}." if row.where else ""
    flag = "left" if row.left else "repeat"
    return FindingRecord(
        row.path,
        row.owner or "",
        kind,
        "careful",
        _label(row.path, extent),
        what,
        reason + where,
        f"modlab.hooks(model).remove([row for row in modlab.hooks(model) if row.{flag}])",
        extent=extent,
    )
