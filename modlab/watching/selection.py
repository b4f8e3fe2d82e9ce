"""Which modules and parameters a watch looks at, where it was given ``only=``."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase


class Selection:
    """Patterns of dotted names, as of files: ``*`` stands for anything, dots included. What is inside a module that fits is in it too.

    Args:
        patterns: none of them: all is in it.

    >>> some = Selection(["blocks.*.attn"])
    >>> some.takes("blocks.0.attn"), some.takes("blocks.0.attn.q.weight"), some.takes("blocks.0"), Selection([]).takes("")
    (True, True, False, True)
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = tuple(patterns)

    def takes(self, path: str) -> bool:
        """Whether a module or parameter of that name is in it."""
        if not self.patterns:
            return True
        parts = path.split(".")
        above = [".".join(parts[: i + 1]) for i in range(len(parts))]
        return any(one == pattern or fnmatchcase(one, pattern) for one in above for pattern in self.patterns)
