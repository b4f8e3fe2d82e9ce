"""A finding as a user holds it: with its words."""

from __future__ import annotations

from dataclasses import fields

from modlab.records import finding
from modlab.wording import experiments, fix_parts, mistakes


class Mistake(finding.Finding):
    """One thing that was found."""

    __slots__ = ()

    @classmethod
    def of(cls, found: finding.Finding) -> Mistake:
        """The same finding, with its words."""
        return cls(**{one.name: getattr(found, one.name) for one in fields(found)})

    @property
    def sentence(self) -> str:
        """What is wrong, in one clause."""
        return mistakes.sentence(self)

    @property
    def subject(self) -> str:
        """What the sentence is about, with numbers."""
        return mistakes.subject(self)

    @property
    def what(self) -> str:
        """The rest of the sentence."""
        return mistakes.what(self)

    @property
    def reason(self) -> str:
        """Why PyTorch lets it pass, and what follows."""
        return mistakes.reason(self)

    @property
    def fix(self) -> str:
        """Code that mends it, or nothing."""
        return fix_parts(self)[0]

    @property
    def advice(self) -> str:
        """What to do, in words, where no line of code says it all."""
        return fix_parts(self)[1]


class Experiment(finding.ExperimentRecord):
    """What one check that runs the model gave."""

    __slots__ = ()

    @classmethod
    def of(cls, found: finding.ExperimentRecord) -> Experiment:
        """The same, with its words."""
        return cls(**{one.name: getattr(found, one.name) for one in fields(found)})

    @property
    def title(self) -> str:
        """What is checked, as a sentence that is true where it passes."""
        return experiments.NAMES[self.name].title

    @property
    def what(self) -> str:
        """What was seen, or why the check was not made."""
        return experiments.what(self)

    @property
    def reason(self) -> str:
        """What follows from it."""
        return experiments.reason(self)

    @property
    def fix(self) -> str:
        """Code that mends it, or nothing."""
        return fix_parts(self)[0]

    @property
    def advice(self) -> str:
        """What to do, in words, where no line of code says it all."""
        return fix_parts(self)[1]
