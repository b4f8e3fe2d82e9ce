"""Where findings become English: one table of kinds, for all faces."""

from modlab.wording.findings import fix, notes, rank, said, sentence, sorted_by_rank, title, told
from modlab.wording.kinds import KINDS, FindingKind
from modlab.wording.names import joined, named
from modlab.wording.trends import arrow, travelled

__all__ = [
    "KINDS",
    "FindingKind",
    "arrow",
    "fix",
    "joined",
    "named",
    "notes",
    "rank",
    "said",
    "sentence",
    "sorted_by_rank",
    "title",
    "told",
    "travelled",
]
