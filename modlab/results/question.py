"""The questions that ``find`` takes, of a tree and of a state table alike."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Any

from modlab.errors import QuestionError
from modlab.inspection.checks import described

Shape = tuple[int | None, ...] | list[int | None] | int | str


class Pattern:
    """A dotted name with wildcards; ``*`` matches dots too."""

    def __init__(self, pattern: Any) -> None:
        if not isinstance(pattern, str):
            raise QuestionError(
                f"find() got {described(pattern)} as its pattern, but needs a text such as '*.attn.*'.\n"
                f"  For classes and shapes: find(type=nn.Linear), find(shape=(3, 4))"
            )
        self.pattern = pattern

    def fits(self, name: str) -> bool:
        """Whether the whole name matches."""
        return fnmatchcase(name, self.pattern)


class ShapeQuestion:
    """A shape: ``(3, 4)``, ``(None, 4)`` for any size, ``"3x4"``, or one size that may stand anywhere."""

    def __init__(self, wanted: Shape | None) -> None:
        self.anywhere = wanted if isinstance(wanted, int) else None
        self.sizes: tuple[int | None, ...] | None = None
        if isinstance(wanted, str):
            parts = re.split(r"[x×,\s]+", wanted.strip("() "))
            if not all(part.isdecimal() or part in ("?", "*") for part in parts):
                raise _no_shape(wanted)
            self.sizes = tuple(int(part) if part.isdecimal() else None for part in parts)
        elif isinstance(wanted, (tuple, list)):
            if not all(size is None or isinstance(size, int) for size in wanted):
                raise _no_shape(wanted)
            self.sizes = tuple(wanted)
        elif wanted is not None and self.anywhere is None:
            raise _no_shape(wanted)

    def fits(self, shape: tuple[int, ...] | None) -> bool:
        """Whether a tensor's shape is asked for."""
        if self.sizes is None and self.anywhere is None:
            return True
        if shape is None:
            return False
        if self.sizes is None:
            return self.anywhere in shape
        return len(shape) == len(self.sizes) and all(want is None or size == want for size, want in zip(shape, self.sizes, strict=True))


def _no_shape(wanted: object) -> QuestionError:
    return QuestionError(f"find(shape=...) got {wanted!r}, but takes (3, 4), (None, 4) for any size, '3x4', or one size such as 768.")


def require_type(wanted: Any) -> None:
    """A class or the name of one."""
    if wanted is not None and not isinstance(wanted, (str, type)):
        hint = f"type={type(wanted).__name__}" if not isinstance(wanted, (list, tuple)) else "one class at a time"
        raise QuestionError(f"find(type=...) got {described(wanted)}, but takes a class or the name of one.\n  Write: {hint}")
