"""A finding as a user holds it: with its words."""

from __future__ import annotations

from dataclasses import fields
from typing import Self

from modlab import wording
from modlab.records.finding import Finding


class Worded(Finding):
    """What was found, with its words."""

    __slots__ = ()

    @classmethod
    def of(cls, finding: Finding) -> Self:
        """The same finding, with its words."""
        return cls(**{one.name: getattr(finding, one.name) for one in fields(finding)})

    @property
    def text(self) -> str:
        """The evidence as a sentence, or why it was not seen."""
        return wording.said(self)

    @property
    def fix(self) -> str:
        """Code or advice; nothing if there is none."""
        return wording.fix(self)
