"""What a watch has found, in English: checks, causes, alerts, and what stands beside them."""

from __future__ import annotations

from modlab import format
from modlab.records.finding import Finding
from modlab.wording import causes
from modlab.wording.alerts import ALERTS, halves
from modlab.wording.checks import CHECKS
from modlab.wording.kinds import KINDS


def has_words(finding: Finding) -> bool:
    """Whether its words are here."""
    return finding.kind in CHECKS or finding.kind in ALERTS or finding.kind in KINDS or causes.is_cause(finding)


def said(finding: Finding) -> str:
    """The fact and its evidence, without a full stop; nothing where nothing was found."""
    if finding.kind in CHECKS:
        return format.clean(CHECKS[finding.kind](finding.facts))
    return ": ".join(filter(None, in_halves(finding))) if finding.kind else ""


def in_halves(finding: Finding) -> tuple[str, str]:
    """What is wrong with what, and the evidence; the evidence is empty where the sentence is not in two parts."""
    if finding.kind in ALERTS:
        return halves(finding)
    made = causes.halves(finding) if causes.is_cause(finding) else KINDS[finding.kind].words(finding)
    return (format.clean(made), "") if isinstance(made, str) else (format.clean(made[0]), format.clean(made[1]))
