"""A lesson, as its notebook drives it: predict, see, why, modify, check, recall."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from modlab.lessons import answers, lookup
from modlab.lessons.answers import Answer
from modlab.lessons.cards import Card
from modlab.lessons.checking import Helper, Judgement, judge
from modlab.lessons.content import Content, Question, Task
from modlab.lessons.expectation import Expectation
from modlab.lessons.features import available
from modlab.lessons.modification import Modification, modify
from modlab.lessons.review import missed
from modlab.lessons.seeing import SeenView

_SAID: dict[str, dict[str, Answer]] = {}
"""What was said to each lesson since the kernel started: who runs the first cell again has not taken it back."""


def _again(content: Content) -> dict[str, Answer]:
    """The answers so far, read anew: a teacher may have edited the questions meanwhile."""
    known, said = {question.name: question for question in content.questions}, _SAID.setdefault(content.name, {})
    for name in tuple(said):
        answer = said.pop(name)
        if name in known:
            said[name] = answers.read(known[name], answer.said)
    return said


class Lesson:
    """The questions and tasks of one notebook. Made once more under the same name, it keeps what was said to it.

    Args:
        name: of the notebook, without its ending; a lesson of one's own lies in ``NAME.py`` beside it.

    Raises:
        LessonError: there is no such lesson.

    >>> lesson = Lesson("01_a_module")
    >>> lesson.predict("numbers of MyLinear", 12)
    predict (numbers of MyLinear): You say 12. Go on and see.
    """

    def __init__(self, name: str) -> None:
        self.content = lookup.find(name, Path())
        self._said = _again(self.content)
        self._helpers = {task.name: Helper(task) for task in self.content.tasks}

    def predict(self, name: str, answer: Any = ...) -> Card:
        """Say what will come, before it can be seen: replace the ``...``. An empty one holds nothing up.

        Args:
            name: of the question.
            answer: what you think; ``...`` is none.
        """
        said = self._said[name] = answers.read(self._question(name), answer)
        return Card(answers.asked(said, "predict"))

    def see(self, view: Any, *names: str, alt: str = "") -> SeenView:
        """Show something, and what had been predicted of it above it: "you said 3, it is 2".

        Args:
            view: any result of modlab's, a figure of matplotlib's, or anything else that can be shown.
            names: of the predictions that it settles.
            alt: what a figure shows, in words, for who cannot see it; its titles unless told.
        """
        found = [self._said.get(name) or Answer(self._question(name)) for name in names]
        return SeenView(view, [answers.settled(one, "see") for one in found], alt)

    def why(self, name: str, answer: Any = ...) -> Card:
        """Choose the reason; each choice has its own explanation."""
        return self._settle("why", name, answer)

    def recall(self, name: str, answer: Any = ...) -> Card:
        """Remember something, from this lesson or an earlier one."""
        return self._settle("recall", name, answer)

    def _settle(self, label: str, name: str, answer: Any) -> Card:
        said = self._said[name] = answers.read(self._question(name), answer)
        return Card(answers.asked(said, label) if said.said is None else answers.settled(said, label))

    def check(self, name: str, answer: Any = ...) -> Judgement:
        """Try what you made on fresh inputs: *correct*, *not yet* with the reason, or *not attempted*.

        Your code may raise, run without end (■ stops it) or leave things on: nothing of it outlives the check.

        Args:
            name: of the task.
            answer: your class, function or value.

        Returns:
            A judgement: true when correct, with `.score`, `.hint()` and `.solution()`.
        """
        task = self._task(name)
        verdict = judge(task, answer)
        self._helpers[name].attempted |= verdict.outcome != "not attempted"
        return Judgement(self.content.name, task, verdict, self._helpers[name])

    def hint(self, name: str, number: int | None = None) -> Card:
        """The next hint for a task, or one by its number."""
        self._task(name)
        return self._helpers[name].hint(number)

    def solution(self, name: str) -> Card:
        """One good solution of a task, after an attempt or all hints."""
        self._task(name)
        return self._helpers[name].solution()

    def expect(self, error: type[BaseException] | tuple[type[BaseException], ...], *, match: str = "") -> Expectation:
        """The block below must raise this error; it is shown as a part of the lesson.

        Args:
            error: a class of errors, or several.
            match: a pattern that its message must contain.

        Raises:
            ExpectationError: nothing was raised, or something with another message.
        """
        return Expectation(error, match)

    def modify(self, code: str, **knobs: Iterable[Any]) -> Modification:
        """Try a line of code with other values: each setting shows the line that it stands for, and what the line gives.

        Args:
            code: one line (or some, of which the last is shown) with the knobs in braces.
            knobs: the values of each.

        >>> Lesson("01_a_module").modify("{a} + 1", a=[1, 2])
        1 + 1
          2
        <BLANKLINE>
        2 + 1
          3
        """
        return modify(code, dict(knobs), sys._getframe(1).f_globals | sys._getframe(1).f_locals)

    def has(self, feature: str) -> bool:
        """Whether this torch has a feature (``"torch.ao.quantization"``); if not, that is said, and the lesson goes on."""
        if available(feature):
            return True
        print(f"This torch has no {feature}: the cells about it are skipped, the rest of the lesson runs.")
        return False

    def missed(self, folder: str | Path = ".") -> Card:
        """The predictions that you missed so far, read from your own notebooks in this folder; nothing leaves the machine."""
        return missed(Path(folder), self.content, self._said)

    def _question(self, name: str) -> Question:
        return lookup.named(name, self.content.questions, "question", self.content.name)

    def _task(self, name: str) -> Task:
        return lookup.named(name, self.content.tasks, "task", self.content.name)

    def __repr__(self) -> str:
        content = self.content
        return (
            f"<{content.name}: {content.title}, {content.minutes} minutes, {len(content.questions)} questions, {len(content.tasks)} tasks>"
        )
