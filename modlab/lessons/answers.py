"""Answers: what was answered, and what to say about it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from modlab.frozen import frozen
from modlab.lessons.cards import CardRecord
from modlab.lessons.content import Question, Wrong
from modlab.lessons.kinds import QuestionKind, UnreadableError
from modlab.lessons.typed import Typed


@frozen
class Answer:
    """An answer to a question, as it was read.

    Attributes:
        question: which one.
        said: what the learner says; None where there is nothing yet, or nothing that can be read.
        trouble: what is wanted, where it cannot be read.
        clicked: whether it came by a click, and not from the cell.
    """

    question: Question
    said: Any = None
    trouble: str = ""
    clicked: bool = False

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

    @property
    def spelled(self) -> Any:
        """The answer as JSON can keep it, and as its kind reads it: of options their texts, for letters change with an edition."""
        texts = dict(self.question.kind.options)
        if not texts or self.said is None:
            return list(self.said) if isinstance(self.said, tuple) else self.said
        return texts[self.said] if isinstance(self.said, str) else [texts[letter] for letter in self.said]


def read(question: Question, given: Any, *, clicked: bool = False) -> Answer:
    """What a learner gave in the place of ``...``; nothing that is given makes this fail."""
    if given is ... or given is None:
        return Answer(question)
    try:
        return Answer(question, question.kind.read(_meant(question.kind, given)), clicked=clicked)
    except UnreadableError as error:
        return Answer(question, trouble=str(error))
    except Exception:  # noqa: BLE001 - an odd object in the place of an answer
        return Answer(question, trouble=question.kind.form)


def _meant(kind: QuestionKind, given: Any) -> Any:
    """A bare letter or ``yes`` means itself, whatever variable has that name; else what Python makes of it counts, else its text."""
    if type(given) in (list, tuple):
        return [_meant(kind, one) for one in given]
    if not isinstance(given, Typed):
        return given
    words = {*getattr(kind, "words", ()), *dict(kind.options)}
    named = re.findall(r"\w+", given.text.lower())
    return given.text if given.value is None or (named and words.issuperset(named)) else given.value


def asked(answer: Answer, label: str) -> CardRecord:
    """Before the right answer is known: what is said so far."""
    question, kind = answer.question, answer.question.kind
    if answer.said is not None:
        return _of(answer, label, f"You say {kind.write(answer.said)}.", "Go on and see.", steps=_chosen(answer))
    options = tuple(("", f"`{letter}` {text}") for letter, text in kind.options)
    foot = f"Not answered yet: replace `...` with {kind.form}. The cells below run either way."
    if answer.trouble:
        foot = f"That is not a valid answer: write {answer.trouble}."
    return _of(answer, label, question.asks, mark="careful" if answer.trouble else "open", steps=options, foot=foot)


def _chosen(answer: Answer) -> tuple[tuple[str, str], ...]:
    """The options that were chosen, so that no one has to look up what ``b`` was."""
    texts = dict(answer.question.kind.options)
    return tuple(("", f"`{letter}` {texts[letter]}") for letter in answer.said) if texts else ()


def settled(answer: Answer, label: str, *, far: bool = False) -> CardRecord:
    """When the right answer can be seen: what was said beside what is so, and why; and the question again, where it stands far above."""
    found = _settled(answer, label)
    return replace(found, asks=answer.question.asks) if far else found


def _settled(answer: Answer, label: str) -> CardRecord:
    question, kind = answer.question, answer.question.kind
    truth, lines = kind.write(question.answer), kind.lines(answer.said, question.answer)
    if answer.right is None:
        rest = "Your answer could not be read." if answer.trouble else "You made no prediction." if label == "see" else ""
        return _of(answer, label, f"The answer is {truth}.", rest, mark="open", steps=lines, prose=(question.because,))
    said = kind.write(answer.said)
    if answer.right:
        strong = f"You answered {said}: correct." if said == truth or lines else f"You answered {said}: correct. It is {truth}."
        return _of(answer, label, strong, mark="fine", steps=lines, prose=(question.because,))
    strong = f"You answered {said}; the answer is {truth}."
    if answer.wrong is None:
        return _of(answer, label, strong, mark="broken", steps=lines, prose=(question.because,))
    # Why it is not so says what is so, but for a reason: there the right one needs its own words.
    prose = (answer.wrong.because, *((question.because,) if label == "why" else ()))
    return _of(answer, label, strong, mark="broken", steps=lines, prose=prose)


def _of(answer: Answer, label: str, strong: str, rest: str = "", **more: Any) -> CardRecord:
    kind = answer.question.kind
    about = {
        "question": answer.question.name,
        "kind": type(kind).__name__.lower(),
        "said": "" if answer.said is None else kind.write(answer.said),
        "by": "click" if answer.clicked else "cell",
    }
    return CardRecord(label, answer.question.name, strong, rest, about=tuple(about.items()), **more)
