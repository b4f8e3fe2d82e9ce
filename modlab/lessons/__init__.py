"""The course's machinery: ``from modlab.lessons import Lesson``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from modlab.lessons.lesson import Lesson

__all__ = ["Lesson"]


def __getattr__(name: str) -> Any:
    if name != "Lesson":
        raise AttributeError(f"module 'modlab.lessons' has no attribute {name!r}")
    from modlab.lessons.lesson import Lesson

    return Lesson
