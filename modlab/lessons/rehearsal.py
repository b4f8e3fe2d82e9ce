"""Tries a lesson's own content: its answers are true, its references pass, and its mistakes are known by name."""

from __future__ import annotations

from collections.abc import Iterator

from modlab.format import cut
from modlab.lessons import answers
from modlab.lessons.content import Content, Question, Task
from modlab.lessons.features import available
from modlab.lessons.judging import Verdict, evaluate, judge


def rehearse(content: Content) -> Iterator[str]:
    """What is wrong with a lesson's questions and tasks, in sentences; nothing when all is well."""
    for question in content.questions:
        yield from _question(question)
    for task in content.tasks:
        if not task.needs or available(task.needs):
            yield from _task(task)


def _question(question: Question) -> Iterator[str]:
    if answers.read(question, question.answer).right is not True:
        yield f"question {question.name!r}: its own answer {question.answer!r} is not one ({question.kind.form})"
        return
    for wrong in question.wrong:
        if answers.read(question, wrong.answer).right is not False:
            yield f"question {question.name!r}: the wrong answer {wrong.answer!r} counts as right, or cannot be read"
    if question.proof is not None and (not question.needs or available(question.needs)):
        proved = question.proof()
        if not question.kind.right(question.kind.read(proved), question.kind.read(question.answer)):
            yield f"question {question.name!r}: its answer is {question.answer!r}, and its proof gives {proved!r}"


def _task(task: Task) -> Iterator[str]:
    starter, reference = _tried(task, task.starter), _tried(task, task.reference)
    if starter.outcome != "not attempted":
        yield f"task {task.name!r}: its starter counts as {starter.outcome}"
    if reference.outcome != "correct":
        yield f"task {task.name!r}: its reference is {reference.outcome}: {cut(' '.join(reference.says), 200)}"
    for mistake in task.mistakes:
        verdict = _tried(task, mistake.source)
        if verdict.outcome != "not yet" or verdict.mistake != mistake.name:
            known = f"{verdict.outcome} ({verdict.mistake})" if verdict.mistake else verdict.outcome
            yield f"task {task.name!r}: the mistake {mistake.name!r} comes out as {known}: {cut(' '.join(verdict.says), 200)}"


def _tried(task: Task, source: str) -> Verdict:
    return judge(task, evaluate(f"{task.given}\n{source}", task.expression))
