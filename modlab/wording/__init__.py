"""Where findings become English: one table of kinds, for all views."""

from modlab.wording.alerts import ALERTS, halves, what
from modlab.wording.checks import CHECKS, broken, names_place
from modlab.wording.findings import (
    begins_with_name,
    fix,
    fix_and_settled,
    fix_parts,
    fixes,
    is_cause,
    notes,
    rank,
    said,
    sentence,
    sorted_by_rank,
    title,
    told,
)
from modlab.wording.kinds import KINDS, FindingKind
from modlab.wording.names import capital, joined, label, named
from modlab.wording.trends import arrow, travelled
from modlab.wording.watched import in_halves

__all__ = [
    "ALERTS",
    "CHECKS",
    "KINDS",
    "FindingKind",
    "arrow",
    "begins_with_name",
    "broken",
    "capital",
    "fix",
    "fix_and_settled",
    "fix_parts",
    "fixes",
    "halves",
    "in_halves",
    "is_cause",
    "joined",
    "label",
    "named",
    "names_place",
    "notes",
    "rank",
    "said",
    "sentence",
    "sorted_by_rank",
    "title",
    "told",
    "travelled",
    "what",
]
