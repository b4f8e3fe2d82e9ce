"""Where findings become English: one table of kinds, for all faces."""

from modlab.wording.findings import fix, rank, said, sentence, sorted_by_rank, title
from modlab.wording.kinds import KINDS, Kind
from modlab.wording.names import joined, named

__all__ = ["KINDS", "Kind", "fix", "joined", "named", "rank", "said", "sentence", "sorted_by_rank", "title"]
