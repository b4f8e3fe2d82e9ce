"""Where findings become English: one table of kinds, for all faces."""

from modlab.wording.findings import fix, notes, rank, said, sentence, sorted_by_rank, title, told
from modlab.wording.kinds import KINDS, Kind
from modlab.wording.names import joined, named

__all__ = ["KINDS", "Kind", "fix", "joined", "named", "notes", "rank", "said", "sentence", "sorted_by_rank", "title", "told"]
