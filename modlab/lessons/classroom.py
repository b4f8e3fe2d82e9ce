"""A classroom on one page: which of the 36 misconceptions its notebooks show, how many hold each, and the view that settles it."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from modlab import format
from modlab.errors import ModlabError
from modlab.format import plural
from modlab.lessons import answers, kept_answers, lookup, notebooks
from modlab.lessons.beliefs import BELIEFS
from modlab.lessons.content import Content


@dataclass(slots=True)
class Count:
    """Of one misconception: who was asked in a way that could show it, and who showed it."""

    asked: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)


@dataclass(slots=True)
class ClassReport:
    """What a class's notebooks show.

    Attributes:
        learners: how many.
        notebooks: how many lessons were read.
        counts: by the number of the misconception.
        skipped: files that could not be read, or are no lesson.
        reasons: of each of them.
    """

    learners: int
    notebooks: int
    counts: dict[int, Count]
    skipped: tuple[str, ...] = ()
    reasons: dict[str, str] = field(default_factory=dict)

    @property
    def rows(self) -> list[tuple[int, Count]]:
        """What anybody was asked for, the most frequent misconception first."""
        asked = [(number, count) for number, count in self.counts.items() if count.asked]
        return sorted(asked, key=lambda row: (-len(row[1].held) / len(row[1].asked), -len(row[1].held), row[0]))

    @property
    def headline(self) -> str:
        """One sentence, the most frequent misconception."""
        learners = plural(self.learners, "learner")
        if not self.rows:
            return f"{learners}: no answer has been given that could show one of the {len(BELIEFS)} misconceptions."
        number, count = self.rows[0]
        if not count.held:
            return f"{learners}: of the {plural(len(self.rows), 'misconception')} that an answer could show, none was seen."
        return f"{len(count.held)} of {len(count.asked)} believe: {BELIEFS[number].says}"

    @property
    def unasked(self) -> str:
        """What nobody was asked about, in a sentence; nothing where that is none, or all."""
        numbers = [str(number) for number in BELIEFS if not self.counts[number].asked]
        return f"Nobody has given an answer that could show {', '.join(numbers)} yet." if self.rows and numbers else ""

    def text(self, *, names: bool = False) -> str:
        """A table for the terminal; who holds what only when asked for."""
        lines = [self.headline, f"{plural(self.learners, 'learner')}, {plural(self.notebooks, 'notebook')}", ""]
        for number, count in self.rows:
            belief = BELIEFS[number]
            lines.append(f"{len(count.held):>3} of {len(count.asked):<3} {number:>2}  {belief.says}")
            if count.held:
                lines.append(f"            so it is: {belief.truth}  ({belief.lesson}: {belief.view})")
            if names and count.held:
                lines.append(f"            {', '.join(sorted(count.held))}")
        lines += ["", self.unasked] if self.unasked else []
        lines += [f"Not read: {name}: {reason}" for name, reason in self.reasons.items()]
        return "\n".join(lines)

    def html(self, *, names: bool = False) -> str:
        """One printable page."""
        rows = "\n".join(self._row(number, count, names) for number, count in self.rows)
        rest = f"<p>{self.unasked}</p>" if self.unasked else ""
        if self.skipped:
            rest += f"<p>{plural(len(self.skipped), 'file')} could not be read{', or is no lesson' if names else ''}.</p>"
            rest += "".join(f"<p>{escape(name)}: {escape(reason)}</p>" for name, reason in self.reasons.items()) if names else ""
        page = Template(files("modlab.lessons").joinpath("report.html").read_text(encoding="utf-8"))
        counted = {"learners": plural(self.learners, "learner"), "notebooks": plural(self.notebooks, "notebook")}
        return page.substitute(headline=escape(self.headline), rows=rows, rest=rest, **counted)

    def _row(self, number: int, count: Count, names: bool) -> str:
        belief, held, asked = BELIEFS[number], len(count.held), len(count.asked)
        who = f'<div class="who">{escape(", ".join(sorted(count.held)))}</div>' if names and held else ""
        bar = f'<div class="bar" role="img" aria-label="{held} of {asked}"><i style="width:{100 * held / asked:.0f}%"></i></div>'
        return (
            f'<tr><td class="n">{number}</td><td><b>{escape(belief.says)}</b><div>{escape(belief.truth)}</div>{who}</td>'
            f'<td class="n">{held} of {asked}</td><td>{bar}</td>'
            f"<td>{escape(belief.lesson)}<div><code>{escape(belief.view)}</code></div></td></tr>"
        )


def read(folder: Path, lessons: Path | None = None) -> ClassReport:
    """Read all notebooks below a folder: one folder a learner, or files that begin with the learner's name.

    No code of a submission is run.

    Args:
        folder: the submissions.
        lessons: where the contents of own lessons lie, which are run; unless told, only the course's are known.

    Raises:
        ModlabError: there is no notebook, or the contents of own lessons would come from among the submissions.
    """
    if lessons is not None and lessons.resolve().is_relative_to(folder.resolve()):
        raise ModlabError(
            f"The lessons in {str(lessons)!r} lie among the submissions, and their code would be run.\n"
            "  Keep the contents of your own lessons in a folder of your own: --lessons FOLDER"
        )
    found, skipped = _notebooks(folder)
    if not found and not (skipped and folder.is_dir()):
        raise ModlabError(f"There is no notebook below {str(folder)!r}: give the folder of the submissions.")
    counts: dict[int, Count] = defaultdict(Count)
    learners, number_read = set(), 0
    for file in found:
        try:
            notebook = notebooks.read(file)
            content = lookup.find(_lesson_of(notebook), lessons)
            signs = [*_signs(notebook, content, kept_answers.read(content.name, file.parent))]
        except Exception as error:  # noqa: BLE001 - one odd notebook does not end the report of a class
            skipped.append((_place(file, folder), _reason(error)))
            continue
        learner = _learner(file, folder, content)
        learners.add(learner)
        number_read += 1
        for number, held in signs:
            counts[number].asked.add(learner)
            if held:
                counts[number].held.add(learner)
    reasons = dict(sorted(skipped))
    return ClassReport(len(learners), number_read, {number: counts[number] for number in BELIEFS}, tuple(reasons), reasons)


def _notebooks(folder: Path) -> tuple[list[Path], list[tuple[str, str]]]:
    """All notebooks below, links to folders not followed; and the folders that cannot be opened."""
    closed: list[tuple[str, str]] = []

    def told(error: OSError) -> None:
        closed.append((_place(Path(error.filename or folder), folder), _reason(error)))

    found = []
    for here, folders, names in os.walk(folder, onerror=told):
        folders[:] = sorted(name for name in folders if name != ".ipynb_checkpoints")
        inside = (*names, *(name for name in folders if name.endswith(".ipynb")))
        found += [Path(here, name) for name in inside if name.endswith(".ipynb")]
    return sorted(found), closed


def _lesson_of(notebook: dict[str, Any]) -> str:
    name = notebooks.lesson_name(notebook)
    if not name:
        raise notebooks.NotebookError('it opens no lesson: no cell has Lesson("NAME").')
    return name


def _place(file: Path, folder: Path) -> str:
    return format.clean(str(file.relative_to(folder)))


def _reason(error: Exception) -> str:
    """Why a notebook was passed over, in one line."""
    if isinstance(error, lookup.LessonError):
        return f"{str(error).partition(chr(10))[0]} Its contents are looked for in the course, and in --lessons FOLDER"
    if isinstance(error, OSError):
        return (error.strerror or type(error).__name__).lower()
    return format.clean(str(error).partition("\n")[0] if isinstance(error, ModlabError) else f"it cannot be read ({type(error).__name__})")


def _learner(file: Path, folder: Path, content: Content) -> str:
    """The first folder below; of a file in none, its name without the lesson's."""
    parts = file.relative_to(folder).parts
    name = parts[0] if len(parts) > 1 else file.stem.replace(content.name, "").strip(" _-.") or file.stem
    return format.clean(name)


def _signs(notebook: dict[str, Any], content: Content, clicked: dict[str, Any]) -> Iterator[tuple[int, bool]]:
    """The misconceptions that an answer could have shown, and whether it did; what was left open tells nothing."""
    questions = {question.name: question for question in content.questions}
    for one in notebooks.answered(notebook, clicked):
        answer = answers.read(questions[one.name], one.value) if one.name in questions else None
        if answer is not None and answer.said is not None:
            could = {answer.question.belief, *(wrong.belief for wrong in answer.question.wrong)} - {0}
            yield from ((number, number == answer.belief) for number in could)
    tasks = {task.name: task for task in content.tasks}
    for check in notebooks.checked(notebook):
        task = tasks.get(str(check.get("task")))
        if task is not None and check.get("outcome") in ("correct", "not yet"):
            could = {mistake.belief for mistake in task.mistakes} - {0}
            yield from ((number, number == check.get("belief")) for number in could)
