"""A lesson, as its notebook drives it: predict, see, why, modify, check, recall."""

from __future__ import annotations

import ast
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from modlab.lessons import answers, devices, kept_answers, live_watch, lookup, notebooks, progress, stills
from modlab.lessons.answers import Answer
from modlab.lessons.asking import AskingCard
from modlab.lessons.cards import Card, CardRecord
from modlab.lessons.checking import Helper, Judgement, judge
from modlab.lessons.content import Content, Question, Task
from modlab.lessons.drawing import Drawing
from modlab.lessons.expectation import Expectation
from modlab.lessons.features import available
from modlab.lessons.modification import Modification, modify
from modlab.lessons.review import missed
from modlab.lessons.seeing import SeenView
from modlab.lessons.typed import Typed, TypedAnswers
from modlab.results.live import notebook

_SAID: dict[str, dict[str, Answer]] = {}
"""What was said to each lesson since the kernel started: who runs the first cell again has not taken it back."""


def _again(content: Content) -> dict[str, Answer]:
    """The answers so far, read anew: a teacher may have edited the questions meanwhile."""
    known, said = {question.name: question for question in content.questions}, _SAID.setdefault(content.name, {})
    for name in tuple(said):
        answer = said.pop(name)
        if name in known:
            said[name] = answers.read(known[name], answer.said, clicked=answer.clicked)
    return said


FAR = 3
"""Cards between a prediction and what settles it, from which on the question is said again."""


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
        self._folder = Path.cwd()  # a cell may go elsewhere
        self._said = _again(self.content)
        self._clicked = kept_answers.read(self.content.name, self._folder)
        self._asked: dict[str, str] = {}
        self._seen: dict[tuple[str, ...], frozenset[str]] = {}  # which of them were asked far above
        self._turns, self._asked_at = 0, dict[str, int]()
        self._solved: set[str] = set()
        self._helpers = {task.name: Helper(task) for task in self.content.tasks}
        _come_alive(self)

    typed = Typed
    """What a notebook's cell hands over in place of an answer (`typed.TypedAnswers`)."""

    @property
    def device(self) -> torch.device:
        """Where the lesson computes: this machine's accelerator, else its CPU; the variable ``MODLAB_DEVICE`` overrides that."""
        return devices.current()

    def predict(self, name: str, *answer: Any) -> Card:
        """Say what will come, before it can be seen: by a click, or in place of the ``...``. An empty one holds nothing up.

        Args:
            name: of the question.
            answer: what you think; ``...`` is none. Letters may stand bare.
        """
        return self._ask("predict", name, answer)

    def see(self, view: Any, *names: str, alt: str = "") -> SeenView:
        """Show something, and above it what you predicted: "You answered 3; the answer is 2".

        Args:
            view: any result of modlab's, a figure of matplotlib's, or anything else that can be shown.
            names: of the predictions that it settles.
            alt: what a figure shows, in words, for people who cannot see it; its titles unless told.
        """
        self._turns += 1
        self._seen[names] = frozenset(name for name in names if self._turns - self._asked_at.get(name, -FAR) > FAR)
        cards = self._settled(names)
        return SeenView(view, cards, alt, lesson=self.content.name, place=self._place("see", *names))

    def why(self, name: str, *answer: Any) -> Card:
        """Choose the reason; each choice has its own explanation."""
        return self._ask("why", name, answer)

    def recall(self, name: str, *answer: Any) -> Card:
        """Remember something, from this lesson or an earlier one."""
        return self._ask("recall", name, answer)

    def _ask(self, label: str, name: str, given: tuple[Any, ...]) -> AskingCard:
        """The card of a question: with what stands in the cell, else with what was clicked."""
        question = self._question(name)
        said = answers.read(question, given[0] if len(given) == 1 else [*given] or ...)
        if said == Answer(question) and name in self._clicked:
            clicked = answers.read(question, self._clicked[name], clicked=True)
            said = clicked if clicked.said is not None else said
        self._said[name] = said
        self._asked[name] = label
        self._turns += 1
        self._asked_at[name] = self._turns
        return self._card(name)

    def _card(self, name: str, said: Answer | None = None) -> AskingCard:
        label = self._asked.get(name, "predict")
        return AskingCard(said or self._said[name], label, self.content.name, self._place(label, name))

    def _settled(self, names: tuple[str, ...]) -> list[CardRecord]:
        found = [self._said.get(name) or Answer(self._question(name)) for name in names]
        return [answers.settled(one, "see", far=one.question.name in self._seen[names]) for one in found]

    def _place(self, *words: str) -> str:
        return "-".join(("modlab", self.content.name, *words))

    def click(self, name: str, answer: Any) -> dict[str, Any]:
        """Take an answer that was clicked on the page: keep it, and renew the cards that show it.

        Args:
            name: of the question.
            answer: as JSON has it; None asks anew: what was answered counts until there is another answer.

        Returns:
            ``cards``, the HTML of each by label and question; or ``trouble``, where it is not an answer.
        """
        question = self._question(name)
        if answer is None:
            return {"cards": [self._card(name, Answer(question)).html()]}
        said = answers.read(question, answer, clicked=True)
        if said.trouble:
            return {"trouble": f"That is not a valid answer: write {said.trouble}."}
        self._said[name] = said
        self._asked.setdefault(name, "predict")
        self._clicked = {**self._clicked, name: said.spelled}
        kept = kept_answers.write(self.content.name, self._folder, self._clicked)
        seen = [names for names in self._seen if name in names]
        cards = [
            self._card(name),
            *(Card(*self._settled(names), lesson=self.content.name, place=self._place("see", *names)) for names in seen),
        ]
        for card in cards:
            card.renew()
        return {"cards": [card.html() for card in cards], "kept": kept}

    def draw(self, name: str) -> Drawing:
        """A drawing of the lesson's: boxes and arrows, and for people who cannot see it the same in words."""
        return lookup.named(name, self.content.drawings, "drawing", self.content.name)

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
        if verdict.outcome == "correct":
            self._solved.add(name)
        done = progress.sentence(self.content, self._said, self._solved)
        return Judgement(self.content.name, task, verdict, self._helpers[name], _own_code(), f"{done} done.")

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

    def modify(self, code: str, **settings: Iterable[Any]) -> Modification:
        """Try a line of code with other values: each setting shows the line that it stands for, and what the line gives.

        Args:
            code: one line (or some, of which the last is shown) with the settings in braces.
            settings: the values of each.

        >>> Lesson("01_a_module").modify("{a} + 1", a=[1, 2])
        1 + 1
          2
        <BLANKLINE>
        2 + 1
          3
        """
        return modify(code, dict(settings), sys._getframe(1).f_globals | sys._getframe(1).f_locals)

    def has(self, feature: str) -> bool:
        """Whether this torch has a feature (``"torch.ao.quantization"``); if not, that is said, and the lesson goes on."""
        if available(feature):
            return True
        print(f"This torch has no {feature}: the cells about it are skipped, the rest of the lesson runs.")
        return False

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Say how long a block took on this machine, to people alone: no two runs take the same time.

        Args:
            what: it does, as in ``10,000 rounds``.
        """
        begin = time.perf_counter()
        yield
        if _is_read():
            print(f"{what} took {time.perf_counter() - begin:.1f} s on this machine.")

    def rounds(self, alone: int, *, watched: int) -> int:
        """How many rounds a loop with a knob makes: more where a person looks on, who has to find the slider first.

        Args:
            alone: the number where no page has asked for something, as under nbval, and where the variable ``MODLAB_UNATTENDED`` is set.
            watched: the number for people.
        """
        return watched if _is_read() and not os.environ.get("MODLAB_UNATTENDED") else alone

    def missed(self, folder: str | Path = ".") -> Card:
        """The predictions that you missed so far, read from your own notebooks in this folder; nothing leaves the machine."""
        return missed(Path(folder), self.content, self._said)

    def progress(self) -> Card:
        """What you have answered and solved so far; `lesson` as a cell's last line shows it."""
        return Card(progress.card(self.content, self._said, self._solved))

    def _question(self, name: str) -> Question:
        return lookup.named(name, self.content.questions, "question", self.content.name)

    def _task(self, name: str) -> Task:
        return lookup.named(name, self.content.tasks, "task", self.content.name)

    def _repr_html_(self) -> str:
        return self.progress().html()

    def __repr__(self) -> str:
        return repr(self.progress())


_PAGES: dict[str, Any] = {}
"""The live page of each lesson; one that is opened again replaces it."""


def _is_read() -> bool:
    """Whether a person looks on: a page has asked for something."""
    return any(page.is_read for page in _PAGES.values())


def _come_alive(lesson: Lesson) -> None:
    """In a notebook: let answers be typed bare, show views as stills, and let the page bring them to life."""
    shell = notebook()
    if shell is None:
        return
    for one in shell.ast_transformers:
        if isinstance(one, TypedAnswers):
            break
    else:
        shell.ast_transformers.append(TypedAnswers(lambda: isinstance(shell.user_ns.get(notebooks.LESSON), Lesson)))
    stills.offer(shell)
    live_watch.offer(_is_read)
    if stills.WHOLE:
        return
    with suppress(ImportError):  # without anywidget all can be read, and answers are typed
        from modlab.lessons.live_page import LivePage

        name = lesson.content.name
        read = name in _PAGES and _PAGES[name].is_read
        if name in _PAGES:
            _PAGES[name].close()
        _PAGES[name] = LivePage(name, lesson)
        _PAGES[name].is_read = read


def _own_code() -> str:
    """The code of the cell that asks for a check, without that line; "" where there is none."""
    shell = notebook()
    cell = shell.user_ns.get("In", [""])[-1] if shell is not None else ""
    try:
        tree = ast.parse(cell)
    except (SyntaxError, ValueError):
        return ""
    lines = cell.splitlines()
    for node in reversed(tree.body):
        calls = [part.func.attr for part in ast.walk(node) if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute)]
        if "check" in calls and not isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            del lines[node.lineno - 1 : node.end_lineno]
    return "\n".join(lines).strip()
