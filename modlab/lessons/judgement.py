"""What `lesson.check` gives: correct, not yet or not attempted, with the reason and a view of the learner's own module."""

from __future__ import annotations

from typing import Any

from modlab.errors import ModlabError
from modlab.lessons.cards import Card, CardRecord
from modlab.lessons.content import Task
from modlab.lessons.judging import Outcome, Verdict

MIME = "application/vnd.modlab.answer+json"
"""What a notebook keeps of an answer for its teacher, beside what is shown."""


class Judgement(Card):
    """The outcome of a check; true when the answer is correct, so that `assert lesson.check(...)` grades it.

    Attributes:
        record: all of it, as plain words.
    """

    def __init__(self, lesson: str, task: Task, verdict: Verdict, helper: Helper) -> None:
        self.record, self._lesson, self._helper = verdict, lesson, helper
        super().__init__(_card(task, verdict), below=verdict.evidence)

    @property
    def outcome(self) -> Outcome:
        """``"correct"``, ``"not yet"``, ``"not attempted"``, or ``"not possible"`` where this torch lacks what the task is about."""
        return self.record.outcome

    @property
    def score(self) -> float:
        """The share of what was tried that held, 0 to 1."""
        return self.record.score

    def __bool__(self) -> bool:
        return self.record.outcome == "correct"

    def hint(self, number: int | None = None) -> Card:
        """The next hint, or the one with this number (from 1)."""
        return self._helper.hint(number)

    def solution(self) -> Card:
        """One good solution, once there was an attempt or all hints were read."""
        return self._helper.solution()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        record = self.record
        kept = {
            "schema": 1, "lesson": self._lesson, "task": record.task, "outcome": record.outcome, "score": round(record.score, 3),
            "mistake": record.mistake, "belief": record.belief,
        }  # fmt: skip
        return {"text/plain": repr(self), "text/html": self.html(), MIME: kept}


def _card(task: Task, verdict: Verdict) -> CardRecord:
    foot = f'`lesson.hint("{task.name}")` helps, `lesson.solution("{task.name}")` shows one way.' if task.hints else ""
    if verdict.outcome == "not possible":
        return CardRecord("check", task.name, "Not possible here.", " ".join(verdict.says), "open")
    if verdict.outcome == "not attempted":
        return CardRecord("check", task.name, "Not attempted yet.", task.asks, "open", foot=foot)
    steps = tuple(
        ("open" if held is None else "fine" if held else "broken", step + (" (not tried yet)" if held is None else ""))
        for step, held in verdict.steps
    )
    if verdict.outcome == "correct":
        return CardRecord("check", task.name, "Correct.", "", "fine", steps)
    strong = f"Not yet: {verdict.mistake}." if verdict.mistake else "Not yet."
    pairs = (("expected", verdict.expected), ("got", verdict.got)) if verdict.expected or verdict.got else ()
    return CardRecord("check", task.name, strong, "", "broken", steps, pairs, (*verdict.says, *verdict.left), foot=foot)


class Helper:
    """The hints of one task, step by step, and its solution at the end."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._seen = 0
        self.attempted = False

    def hint(self, number: int | None = None) -> Card:
        """The next one, or one by its number."""
        hints = self._task.hints
        if not hints:
            return Card(CardRecord("hint", self._task.name, "There is no hint for this task.", "", "open"))
        if number is None:
            number = min(self._seen + 1, len(hints))
        if not isinstance(number, int):
            raise ModlabError(f"A hint is asked for by its number, 1 to {len(hints)}, and not by {number!r}.")
        number = max(1, min(number, len(hints)))
        self._seen = max(self._seen, number)
        foot = "" if number < len(hints) else f'This was the last one: `lesson.solution("{self._task.name}")`.'
        return Card(CardRecord("hint", self._task.name, f"{number} of {len(hints)}:", hints[number - 1], foot=foot))

    def solution(self) -> Card:
        """The reference, when the learner has tried or has read the hints."""
        left = len(self._task.hints) - self._seen
        if left > 0 and not self.attempted:
            rest = f'Try it, or read the {left} hint{"s" if left > 1 else ""} first: `lesson.hint("{self._task.name}")`.'
            return Card(CardRecord("solution", self._task.name, "Not yet.", rest, "open"))
        return Card(CardRecord("solution", self._task.name, "One way of several:", code=self._task.reference.strip()))
