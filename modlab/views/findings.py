"""A finding as plain data: facts, evidence and fixes, and the same in English. docs/findings.md describes it."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from modlab import wording
from modlab.records.explanation import ExplanationRecord
from modlab.records.finding import Finding

_HELD = frozenset(("trace",))
"""Fields that are no plain data."""
_COMMON = frozenset(one.name for one in fields(Finding))


def as_data(finding: Finding) -> dict[str, Any]:
    """What JSON takes: what every finding has, and what its own class adds."""
    own = {one.name: getattr(finding, one.name) for one in fields(finding) if one.name not in _COMMON | _HELD}
    return {**_facts(finding), "text": wording.said(finding), "fix": wording.fix(finding), **own}


def of_explanation(record: ExplanationRecord) -> dict[str, Any]:
    """The same of an explained error, whose rule made its sentence."""
    first = record.fixes[0] if record.fixes else None
    fix = "" if first is None else " ".join(filter(None, (first.prose, first.code)))
    return {**_facts(record.finding), "text": " ".join(filter(None, record.sentence)), "fix": fix}


def _facts(finding: Finding) -> dict[str, Any]:
    pairs = zip(finding.fixes, wording.fixes(finding), strict=True)
    return {
        "kind": finding.kind,
        "path": finding.path,
        "severity": finding.severity,
        "step": finding.step,
        "facts": dict(finding.facts),
        "evidence": [asdict(one) for one in finding.evidence],
        "fixes": [{"kind": one.kind, "code": code, "advice": advice} for one, (code, advice) in pairs],
    }
