"""Answers: what was said to a question, and what is to be said of it."""

from __future__ import annotations

from typing import Any

from modlab.frozen import frozen
from modlab.lessons.cards import CardRecord
from modlab.lessons.content import Question, Wrong
from modlab.lessons.kinds import UnreadableError


@frozen
class Answer:
    """An answer to a question, as it was read.

    Attributes:
        question: which one.
        said: what the learner says; None where there is nothing yet, or nothing that can be read.
        trouble: what is wanted, where it cannot be read.
    """

    question: Question
    said: Any = None
    trouble: str = ""

    @property
    def right(self) -> bool | None:
        """Whether it is right; None where nothing is said."""
        return None if self.said is None else self.question.kind.right(self.said, self.question.answer)

    @property
    def wrong(self) -> Wrong | None:
        """The usual wrong answer that it is, if it is one."""
        if self.right is not False:
            return None
        kind = self.question.kind
        return next((wrong for wrong in self.question.wrong if kind.same(self.said, kind.read(wrong.answer))), None)

    @property
    def belief(self) -> int:
        """The number of the misconception that it shows; 0 for none."""
        if self.right is not False:
            return 0
        return (self.wrong.belief if self.wrong else 0) or self.question.belief


def read(question: Question, given: Any) -> Answer:
    """What a learner gave in the place of ``...``; nothing that is given makes this fail."""
    if given is ... or given is None:
        return Answer(question)
    try:
        return Answer(question, question.kind.read(given))
    except UnreadableError as error:
        return Answer(question, trouble=str(error))
    except Exception:  # noqa: BLE001 - an odd object in the place of an answer
        return Answer(question, trouble=question.kind.form)


def asked(answer: Answer, label: str) -> CardRecord:
    """Before the answer is known: what is said so far."""
    question, kind = answer.question, answer.question.kind
    if answer.said is not None:
        return CardRecord(label, question.name, f"You say {kind.write(answer.said)}.", "Go on and see.")
    options = tuple(("", f"`{letter}` {text}") for letter, text in kind.options)
    foot = f"Not answered yet: replace `...` by {kind.form}. The cells below run all the same."
    if answer.trouble:
        foot = f"That is no answer here: write {answer.trouble}."
    return CardRecord(label, question.name, question.asks, "", "careful" if answer.trouble else "open", options, foot=foot)


def settled(answer: Answer, label: str) -> CardRecord:
    """When the answer is to be seen: what was said beside what is."""
    question, kind = answer.question, answer.question.kind
    truth, lines = kind.write(question.answer), kind.lines(answer.said, question.answer)
    if answer.right is None:
        rest = "Your answer could not be read." if answer.trouble else "You made no prediction."
        return CardRecord(label, question.name, f"It is {truth}.", rest, "open", lines, prose=(question.because,))
    said = kind.write(answer.said)
    if answer.right:
        strong = f"You said {said}, and so it is." if said == truth or lines else f"You said {said}, and that is right: {truth}."
        return CardRecord(label, question.name, strong, "", "fine", lines, prose=(question.because,))
    prose = ([answer.wrong.because] if answer.wrong else []) + [question.because]
    return CardRecord(label, question.name, f"You said {said}; it is {truth}.", "", "broken", lines, prose=tuple(prose))
