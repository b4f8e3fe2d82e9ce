"""The content of a lesson: questions with their usual wrong answers, tasks with starters, references and mistakes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from modlab.frozen import frozen
from modlab.lessons.beliefs import Belief
from modlab.lessons.drawing import Drawing
from modlab.lessons.kinds import QuestionKind

Probe = Callable[[Any], None]
"""One thing that an answer must do; its docstring says it in a few words. It returns, or raises `judging.NotYet`."""


@frozen
class Wrong:
    """A usual wrong answer to a question.

    Attributes:
        answer: as the question's kind reads it (a letter of a choice).
        because: why one may think so, and why it is not so.
        belief: the number of the misconception that it shows (`beliefs.py`); 0 for none of these.
    """

    answer: Any
    because: str
    belief: int = 0


@frozen
class Question:
    """Something to predict, to explain or to remember.

    Attributes:
        name: by which `lesson.predict` knows it; a few words, once in a lesson.
        asks: the question, word by word as in the notebook, in front of the cell that answers it.
        kind: how it is answered.
        answer: the right one.
        because: why it is right; one or two sentences.
        wrong: the usual wrong answers.
        belief: the misconception that any wrong answer shows.
        proof: computes the answer with torch; a test holds both to be equal.
        needs: a part of torch that it is about (``torch.jit``), where not every torch has it.
    """

    name: str
    asks: str
    kind: QuestionKind
    answer: Any
    because: str
    wrong: tuple[Wrong, ...] = ()
    belief: int = 0
    proof: Callable[[], Any] | None = None
    needs: str = ""


@frozen
class Mistake:
    """A usual wrong solution of a task.

    Attributes:
        name: in two to five words: ``transposed weight``.
        source: code that makes it, in place of the reference: the tests try it.
        says: what the learner is told.
        belief: the number of the misconception that it shows.
        error: where the code raises by itself, a pattern of the message by which it is known.
    """

    name: str
    source: str
    says: str
    belief: int = 0
    error: str = ""


@frozen
class Task:
    """Something to make.

    Attributes:
        name: by which `lesson.check` knows it.
        asks: the task in a sentence, as in the notebook.
        starter: the code that the notebook offers.
        reference: one good solution.
        probes: what it must do; the first that fails is shown.
        mistakes: the usual wrong solutions.
        hints: from a nudge to the idea.
        answer: the expression that is checked after the code ran; the task's name unless told.
        minutes: about how long it takes.
        needs: a part of torch that it is about, where not every torch has it.
        given: code of the notebook that the sources above build on (imports of torch, nn and F are there).
        matters: why it is worth knowing: one sentence, for who has solved it.
    """

    name: str
    asks: str
    starter: str
    reference: str
    probes: tuple[Probe, ...]
    mistakes: tuple[Mistake, ...] = ()
    hints: tuple[str, ...] = ()
    answer: str = ""
    minutes: int = 5
    needs: str = ""
    given: str = ""
    matters: str = ""

    @property
    def expression(self) -> str:
        """What stands in the notebook's call of `lesson.check`."""
        return self.answer or self.name


@frozen
class Content:
    """A lesson.

    Attributes:
        name: of its notebook, without the ending.
        title: as the notebook's heading.
        goal: what a learner can do after it.
        minutes: about how long it takes.
        after: names of lessons that it builds on.
        predictions: asked before something runs.
        reasons: asked after it ran: why?
        recalls: three at the end, one from an earlier lesson.
        tasks: what is made.
        drawings: for `lesson.draw`.
        beliefs: misconceptions of one's own, by numbers of one's own (from 101 on), for a class's report.
    """

    name: str
    title: str
    goal: str
    minutes: int
    after: tuple[str, ...] = ()
    predictions: tuple[Question, ...] = ()
    reasons: tuple[Question, ...] = ()
    recalls: tuple[Question, ...] = ()
    tasks: tuple[Task, ...] = ()
    drawings: tuple[Drawing, ...] = ()
    beliefs: Mapping[int, Belief] = field(default_factory=dict)

    @property
    def questions(self) -> tuple[Question, ...]:
        """All of them."""
        return (*self.predictions, *self.reasons, *self.recalls)
