"""A classroom: its notebooks are read, and nothing of them is run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from modlab import format
from modlab.errors import ModlabError
from modlab.lessons import answers, kept_answers, lookup, notebooks
from modlab.lessons.beliefs import BELIEFS
from modlab.lessons.class_report import ClassReport, LearnerEntry
from modlab.lessons.content import Content


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
            f"The lessons in {str(lessons)!r} are among the submissions, so their code would be run.\n"
            "  Keep the contents of your own lessons in a folder of your own: --lessons FOLDER"
        )
    found, skipped = _notebooks(folder)
    if not found and not (skipped and folder.is_dir()):
        raise ModlabError(f"There is no notebook below {str(folder)!r}: give the folder of the submissions.")
    entries, beliefs, number_read = list[LearnerEntry](), dict(BELIEFS), 0
    for file in found:
        try:
            notebook = notebooks.read(file)
            content = _content(notebook, lessons)
            learner = _learner(file, folder, content)
            theirs = [*_entries(notebook, content, kept_answers.read(content.name, file.parent), learner)]
        except Exception as error:  # noqa: BLE001 - one odd notebook does not end the report of a class
            skipped.append((_place(file, folder), _reason(error)))
            continue
        number_read += 1
        beliefs.update(content.beliefs)
        entries += theirs
    return ClassReport(tuple(entries), number_read, beliefs, dict(sorted(skipped)))


def _content(notebook: dict[str, Any], lessons: Path | None) -> Content:
    if not notebook["cells"]:
        raise notebooks.NotebookError("it is empty: it has no cells.")
    return lookup.find(_lesson_of(notebook), lessons)


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
        raise notebooks.NotebookError('it does not open a lesson: no cell has Lesson("NAME").')
    return name


def _place(file: Path, folder: Path) -> str:
    return format.clean(str(file.relative_to(folder)))


def _reason(error: Exception) -> str:
    """Why a notebook was passed over, in one line."""
    if isinstance(error, lookup.LessonError):
        return f"{str(error).partition(chr(10))[0]} Give the folder with its contents: --lessons FOLDER"
    if isinstance(error, OSError):
        return (error.strerror or type(error).__name__).lower()
    return format.clean(str(error).partition("\n")[0] if isinstance(error, ModlabError) else f"it cannot be read ({type(error).__name__})")


def _learner(file: Path, folder: Path, content: Content) -> str:
    """The first folder below; of a file in none, its name without the lesson's."""
    parts = file.relative_to(folder).parts
    name = parts[0] if len(parts) > 1 else file.stem.replace(content.name, "").strip(" _-.") or file.stem
    return format.clean(name)


def _entries(notebook: dict[str, Any], content: Content, clicked: dict[str, Any], learner: str) -> Iterator[LearnerEntry]:
    """What a learner did with each question and task of a lesson; what stands in the notebook twice counts as it stands last."""
    said = {one.name: one.value for one in notebooks.answered(notebook, clicked)}
    for question in content.questions:
        answer = answers.read(question, said.get(question.name, ...))
        outcome: Literal["right", "wrong", "open"] = "open" if answer.right is None else "right" if answer.right else "wrong"
        could = frozenset({question.belief, *(wrong.belief for wrong in question.wrong)} - {0}) if answer.right is not None else frozenset()
        words = "" if answer.said is None else question.kind.write(answer.said)
        yield LearnerEntry(learner, content.name, "question", question.name, outcome, words, answer.belief, could)
    checks = {str(check.get("task")): check for check in notebooks.checked(notebook)}
    for task in content.tasks:
        check = checks.get(task.name, {})
        outcome = _OUTCOMES.get(str(check.get("outcome")), "open")
        could = frozenset({mistake.belief for mistake in task.mistakes} - {0}) if outcome != "open" else frozenset()
        belief = check.get("belief") if outcome == "wrong" else 0
        shown = belief if isinstance(belief, int) and belief in could else 0
        yield LearnerEntry(learner, content.name, "task", task.name, outcome, str(check.get("mistake") or ""), shown, could)


_OUTCOMES: dict[str, Literal["right", "wrong"]] = {"correct": "right", "not yet": "wrong"}
