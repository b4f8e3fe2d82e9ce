"""A review of what a learner missed so far, read from her own notebooks; nothing leaves the machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from modlab.format import plural
from modlab.lessons import answers, kept_answers, lookup, notebooks
from modlab.lessons.answers import Answer
from modlab.lessons.cards import Card, CardRecord
from modlab.lessons.content import Content


def missed(folder: Path, content: Content, said: Mapping[str, Answer]) -> Card:
    """The questions of all lessons up to this one that were answered wrongly, the newest first.

    Args:
        folder: with the learner's notebooks.
        content: the lesson that asks.
        said: its answers in this session, which the file may not hold yet.
    """
    saved = {(lesson, answer.question.name): answer for lesson, answer in _answers(folder) if lesson <= content.name}
    known = {**saved, **{(content.name, name): answer for name, answer in said.items()}}
    found = [(lesson, answer) for (lesson, _), answer in known.items() if answer.right is not None]
    wrong = [(lesson, answer) for lesson, answer in found if not answer.right]
    if not found:
        return Card(CardRecord("missed", content.name, "Nothing to repeat:", "your notebooks here hold no answers yet.", "open"))
    if not wrong:
        return Card(
            CardRecord(
                "missed",
                content.name,
                f"None of your {plural(len(found), 'answer')} was wrong." if len(found) > 1 else "Your answer was right.",
                "",
                "fine",
            )
        )
    first = CardRecord(
        "missed",
        content.name,
        f"{len(wrong)} of {plural(len(found), 'answer')} {'was' if len(wrong) == 1 else 'were'} wrong.",
        "Think each one through again, then change it in its notebook.",
        "careful",
    )
    return Card(first, *(_again(lesson, answer) for lesson, answer in wrong[::-1]))


def _again(lesson: str, answer: Answer) -> CardRecord:
    question = answer.question
    options = tuple(("", f"`{letter}` {text}") for letter, text in question.kind.options)
    said = f"You answered {question.kind.write(answer.said)}."
    return CardRecord("again", f"{lesson}: {question.name}", question.asks, "", "open", steps=options, prose=(said,))


def _answers(folder: Path) -> Iterator[tuple[str, Answer]]:
    for file in sorted(file for file in folder.glob("*.ipynb") if not file.name.endswith(".new.ipynb")):
        try:
            notebook = notebooks.read(file)
            questions = {question.name: question for question in lookup.find(notebooks.lesson_name(notebook)).questions}
        except (notebooks.NotebookError, lookup.LessonError):
            continue  # somebody's other notebook
        for one in notebooks.answered(notebook, kept_answers.read(notebooks.lesson_name(notebook), folder)):
            if one.name in questions:
                yield notebooks.lesson_name(notebook), answers.read(questions[one.name], one.value)
