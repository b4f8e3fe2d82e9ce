"""A self-test of a lesson's own content: its answers are true, its references pass, and its mistakes are known by name.

The course's own tests stand on this, and so does `lessons check`: what it lets pass, a teacher's lesson may do too.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from modlab.format import cut
from modlab.lessons import answers, beliefs
from modlab.lessons.checking import CheckResult, evaluate, judge
from modlab.lessons.content import Content, Question, Task
from modlab.lessons.features import available
from modlab.lessons.isolation import isolated


def rehearse(content: Content) -> Iterator[str]:
    """What is wrong with a lesson's questions and tasks, in sentences; nothing when all is well."""
    for question in content.questions:
        yield from (f"question {question.name!r}: {told}" for told in of_question(question))
    for task in content.tasks:
        yield from (f"task {task.name!r}: {told}" for told in of_task(task))
    yield from _beliefs(content)


def _beliefs(content: Content) -> Iterator[str]:
    """Numbers that stand for no misconception, of modlab's or of the lesson's own."""
    yield from (
        f"belief {number} has a number reserved for modlab: use 101 or higher" for number in content.beliefs if number in beliefs.BELIEFS
    )
    known = {0, *beliefs.BELIEFS, *content.beliefs}
    shown = [(f"question {one.name!r}", {one.belief, *(wrong.belief for wrong in one.wrong)}) for one in content.questions]
    shown += [(f"task {task.name!r}", {mistake.belief for mistake in task.mistakes}) for task in content.tasks]
    yield from (f"{what}: it shows belief {number}, but no belief has that number" for what, numbers in shown for number in numbers - known)


def of_question(question: Question) -> Iterator[str]:
    """What is wrong with a question; its proof is asked where this torch has what it needs."""
    if not question.asks.strip() or not question.because.strip():
        yield "it asks nothing, or does not say why its answer is right"
    read = answers.read(question, question.answer)
    if read.said is None:
        yield f"its own answer {question.answer!r} is not valid ({question.kind.form})"
        return
    if read.said != question.answer:
        yield f"its answer {question.answer!r} is read as {read.said!r}: write that"
        return
    if read.right is not True:
        yield f"its own answer {question.answer!r} counts as wrong"
    yield from _wrong(question)
    if question.proof is not None and _possible(question):
        with isolated():
            torch.manual_seed(0)
            proved = question.proof()
        if not question.kind.right(question.kind.read(proved), read.said):
            yield f"its answer is {question.answer!r}, and its proof gives {proved!r}"


def _wrong(question: Question) -> Iterator[str]:
    explained: set[str] = set()
    for wrong in question.wrong:
        answer = answers.read(question, wrong.answer)
        if answer.right is not False:
            yield f"the wrong answer {wrong.answer!r} counts as right, or cannot be read"
        elif answer.wrong is not wrong:
            yield f"the wrong answer {wrong.answer!r} is listed twice"
        if not wrong.because.strip() or wrong.because in explained:
            yield f"the wrong answer {wrong.answer!r} has no explanation of its own"
        explained.add(wrong.because)


def of_task(task: Task) -> Iterator[str]:
    """What is wrong with a task; nothing is known of one that this torch has not the means for."""
    if not _possible(task):
        return
    for given, starter in (("an open answer", judge(task, ...)), ("its starter", _tried(task, task.starter))):
        if starter.outcome != "not attempted":
            yield f"{given} counts as {starter.outcome}"
    reference = _tried(task, task.reference)
    if reference.outcome != "correct":
        yield f"its reference is {reference.outcome}: {cut(' '.join(reference.says), 200)}"
    for mistake in task.mistakes:
        verdict = _tried(task, mistake.source)
        if verdict.outcome != "not yet" or verdict.mistake != mistake.name or mistake.says not in verdict.says:
            known = f"{verdict.outcome} ({verdict.mistake})" if verdict.mistake else verdict.outcome
            yield f"the mistake {mistake.name!r} is recognized as {known}: {cut(' '.join(verdict.says), 200)}"


def _possible(thing: Question | Task) -> bool:
    return not thing.needs or available(thing.needs)


def _tried(task: Task, source: str) -> CheckResult:
    return judge(task, evaluate(f"{task.given}\n{source}", task.expression))
