"""The progress of a learner in one lesson, in a card."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from modlab.format import plural
from modlab.lessons.answers import Answer
from modlab.lessons.cards import CardRecord
from modlab.lessons.content import Content


def card(content: Content, said: Mapping[str, Answer], solved: Collection[str]) -> CardRecord:
    """What is answered and solved, and what is next."""
    questions = [(question.name, said.get(question.name)) for question in content.questions]
    steps = [*(_step(name, answer) for name, answer in questions)]
    steps += [("fine", f"task {task.name}: correct") if task.name in solved else ("open", f"task {task.name}") for task in content.tasks]
    rest = f"{content.minutes} minutes. Afterwards you can {content.goal}."
    return CardRecord("progress", content.name, f"{content.title}: {sentence(content, said, solved)}.", rest, "", tuple(steps))


def _step(name: str, answer: Answer | None) -> tuple[str, str]:
    if answer is None or answer.said is None:
        return "open", name
    return "", f"{name}: you answered {answer.question.kind.write(answer.said)}"


def sentence(content: Content, said: Mapping[str, Answer], solved: Collection[str]) -> str:
    """``7 of 10 questions, 1 of 2 tasks``."""
    answered = sum(answer.said is not None for answer in said.values())
    of_questions = f"{answered} of {plural(len(content.questions), 'question')}"
    done = sum(task.name in solved for task in content.tasks)
    return f"{of_questions}, {done} of {plural(len(content.tasks), 'task')}"
