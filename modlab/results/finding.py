"""Findings of a diagnosis, as a user holds them."""

from __future__ import annotations

from modlab.records.finding import ExperimentRecord
from modlab.results.worded import Worded
from modlab.wording import experiments, fix_parts, mistakes


class Mended(Worded):
    """What has a line of code that mends it, and advice beside that."""

    __slots__ = ()

    @property
    def fix(self) -> str:
        """Code that mends it, or nothing."""
        return fix_parts(self)[0]

    @property
    def advice(self) -> str:
        """What to do, in words, where no line of code says it all."""
        return fix_parts(self)[1]


class FoundMistake(Mended):
    """One thing that was found."""

    __slots__ = ()

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


class Experiment(Mended, ExperimentRecord):
    """What one check that runs the model gave."""

    __slots__ = ()

    @property
    def title(self) -> str:
        """What is checked, as a sentence that is true where it passes."""
        return experiments.checked(self).title

    @property
    def what(self) -> str:
        """What was seen, or why the check was not made."""
        return experiments.what(self)

    @property
    def reason(self) -> str:
        """What follows from it."""
        return experiments.reason(self)
