"""A finding in English: what it says, what it is called, what mends it."""

from __future__ import annotations

from collections.abc import Iterable

from modlab import format
from modlab.records.finding import Finding
from modlab.wording.fixes import FIXES
from modlab.wording.kinds import KINDS


def said(finding: Finding) -> str:
    """The fact and its evidence, without a full stop.

    >>> said(Finding("loss not finite", "loss", {"nan": 41, "inf": 0, "count": 300, "last": "finite"}, "broken", 12))
    '41 of 300 values of loss were NaN, first at step 12; the last one is finite'
    """
    return format.clean(KINDS[finding.kind].words(finding))


def sentence(finding: Finding) -> str:
    """The same, as a sentence."""
    text = said(finding)
    return f"{text[:1].upper()}{text[1:]}."


def title(finding: Finding) -> str:
    """What would hold if there were no such finding, in a few words."""
    return KINDS[finding.kind].title


def fix(finding: Finding) -> str:
    """Code or advice; nothing if there is none."""
    return next((one.code or FIXES[one.kind] for one in finding.fixes), "")


def rank(finding: Finding) -> tuple[int, int]:
    """Sorts the worst first."""
    return ("broken", "careful", "note").index(finding.severity), KINDS[finding.kind].rank


IN_LADDER = frozenset(("loss not finite", "loss not seen"))
"""Kinds that a rung of the ladder tells already."""


def told(findings: Iterable[Finding]) -> list[Finding]:
    """What stands below the ladder: all but notes and what a rung tells already, the worst first."""
    return sorted_by_rank(one for one in findings if one.severity != "note" and one.kind not in IN_LADDER)


def notes(findings: Iterable[Finding]) -> list[Finding]:
    """What is good to know, and what was not looked at."""
    return sorted_by_rank(one for one in findings if one.severity == "note" and one.kind not in IN_LADDER)


def sorted_by_rank(findings: Iterable[Finding]) -> list[Finding]:
    """The worst first; those alike in the order in which they came."""
    return sorted(findings, key=rank)
