"""A finding as a user holds it: with its words."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Self

from modlab import wording
from modlab.records.finding import Finding

if TYPE_CHECKING:
    from modlab.results.card import FindingCard


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

    def explain(self) -> FindingCard:
        """The evidence, what it means and what to do, as text and as a card in a notebook.

        >>> import modlab, torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout(0))
        >>> (found,) = modlab.diagnose(model).notes
        >>> print(found.explain())
        Note: 1 (Dropout) has p = 0 and drops nothing: it does what nn.Identity does.
        where: 1
        evidence: What is in the model, which was read but not run.
        means: p is the fraction that is dropped, not the fraction that is kept.
        what to do
          model[1].p = 0.1
        """
        from modlab.results.card import FindingCard  # what draws it is loaded when it is asked for

        return FindingCard(self)
