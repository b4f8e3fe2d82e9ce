"""A finding in English: what it says, what it is called, how to fix it."""

from __future__ import annotations

from collections.abc import Iterable

from modlab import format
from modlab.records.finding import ExperimentRecord, Finding
from modlab.records.trace import Reason
from modlab.records.watch import Alert
from modlab.wording import causes, watched
from modlab.wording.alerts import ALERTS, halves
from modlab.wording.fixes import FIXES, INTRODUCING
from modlab.wording.kinds import KINDS
from modlab.wording.names import capital, filled, is_number


def said(finding: Finding) -> str:
    """The fact and its evidence, without a full stop.

    >>> said(Finding("loss not finite", "loss", {"nan": 41, "inf": 0, "count": 300, "last": "finite"}, "broken", 12))
    '41 of the 300 values of loss seen were NaN, first seen at step 12; the last one is finite'
    """
    if isinstance(finding, ExperimentRecord) or (finding.kind and not watched.has_words(finding)):
        return format.clean(_elsewhere(finding))
    return watched.said(finding)


def _elsewhere(finding: Finding) -> str:
    from modlab.wording import differences, experiments, mistakes, reasons  # what a watch needs none of

    if isinstance(finding, Reason):
        return reasons.said(finding)
    if isinstance(finding, ExperimentRecord):
        return experiments.sentence(finding)
    return differences.said(finding) if finding.kind in differences.NOTES else mistakes.sentence(finding)


def begins_with_name(finding: Finding) -> bool:
    """Whether the first half begins with a user's own name, which gets no capital."""
    if not isinstance(finding, Alert) or is_number(finding.path):
        return False
    if finding.over or not halves(finding)[0]:
        return finding.unit is None
    return ALERTS[finding.kind].named(finding.facts)


def sentence(finding: Finding) -> str:
    """The same, as a sentence."""
    return f"{capital(said(finding))}."


def title(finding: Finding) -> str:
    """What would be true without this finding, in a few words."""
    return "the cause" if causes.is_cause(finding) else KINDS[finding.kind].title


def fix(finding: Finding) -> str:
    """Code, advice or both, in words; empty if there is none."""
    code, advice = fix_parts(finding)
    if code and advice and is_cause(finding) and advice == causes.settled(finding):
        return f"{code}. {capital(advice)}"
    return f"{advice} {code}" if finding.fixes and finding.fixes[0].kind in INTRODUCING else ", ".join(filter(None, (code, advice)))


def fix_and_settled(finding: Finding) -> tuple[str, str]:
    """The same in two: what to do, and what settles whether it is this cause."""
    both, settled = fix(finding), causes.settled(finding) if is_cause(finding) else ""
    if not settled or not both.lower().endswith(settled.lower()):
        return both, ""
    return both[: -len(settled)].rstrip(" .,"), settled


def fix_parts(finding: Finding) -> tuple[str, str]:
    """The line to copy and the advice of the best fix."""
    return next(iter(fixes(finding)), ("", ""))


def fixes(finding: Finding) -> list[tuple[str, str]]:
    """The same of each fix."""
    return [
        causes.advice(finding)
        if one.kind == finding.kind and causes.is_cause(finding)
        else (one.code, one.advice or (filled(FIXES[one.kind], finding) if one.kind else ""))
        for one in finding.fixes
    ]


def is_cause(finding: Finding) -> bool:
    """Whether it says why a training does not learn."""
    return causes.is_cause(finding)


def rank(finding: Finding) -> tuple[int, int]:
    """Sorts the worst first."""
    return ("broken", "careful", "note").index(finding.severity), -1 if causes.is_cause(finding) else KINDS[finding.kind].rank


IN_LADDER = frozenset(("loss not finite", "loss not seen"))
"""Kinds that a check of the verdict already covers."""


def told(findings: Iterable[Finding]) -> list[Finding]:
    """What is shown below the checks: everything except notes and what a check already covers, worst first."""
    return sorted_by_rank(one for one in findings if one.severity != "note" and one.kind not in IN_LADDER)


def notes(findings: Iterable[Finding]) -> list[Finding]:
    """What is good to know, and what was not looked at."""
    return sorted_by_rank(one for one in findings if one.severity == "note" and one.kind not in IN_LADDER)


def sorted_by_rank(findings: Iterable[Finding]) -> list[Finding]:
    """Worst first; equals stay in their original order."""
    return sorted(findings, key=rank)
