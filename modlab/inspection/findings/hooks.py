"""Hooks that stand in one place twice: registered two times, or left by an earlier run of the same cell."""

from __future__ import annotations

from collections.abc import Iterator

from modlab.inspection import hooks
from modlab.inspection.findings.subject import Subject
from modlab.records.finding import Evidence, Fact, Finding, Remedy, Severity
from modlab.records.hooks import HookRecord


def doubled(subject: Subject) -> Iterator[Finding]:
    """The same function twice on one module or tensor, and hooks that a later run of their cell has replaced."""
    told: set[tuple[str, str, str, str]] = set()
    for row in hooks.extract(subject.model).rows:
        if row.machinery or (row.times < 2 and not row.left):
            continue
        kind = "left-over hook" if row.left else "doubled hook"
        key = (row.path, row.kind, row.name, kind)
        if key not in told:
            told.add(key)
            facts: dict[str, Fact] = {"left": row.left} if row.left else {"times": row.times}
            fix = Remedy(code=f"modlab.hooks(model).remove([row for row in modlab.hooks(model) if row.{'left' if row.left else 'repeat'}])")
            yield _finding(subject, row, kind, "careful", fix, where=row.where, **facts)


def edited(subject: Subject) -> Iterator[Finding]:
    """Lambdas that may be left over from a cell that was edited; which nothing can tell for certain."""
    for row in hooks.extract(subject.model).rows:
        if row.doubt and not row.machinery:
            fix = Remedy("if left over")
            yield _finding(subject, row, "perhaps a left-over hook", "note", fix, doubt=row.doubt)


def _finding(subject: Subject, row: HookRecord, kind: str, severity: Severity, fix: Remedy, **facts: Fact) -> Finding:
    site = next((site for site in subject.sites if site.path == row.path), None)
    held: dict[str, Fact] = {"type": site.type} if site is not None and site.is_numbered else {}
    where = (Evidence("module", row.owner or ""),)
    return Finding(kind, row.path, {"hook": row.kind, "function": row.name, **held, **facts}, severity, evidence=where, fixes=(fix,))
