"""Asking: the card of a question, on which a click answers it while the kernel runs."""

from __future__ import annotations

from typing import Any

from modlab.lessons import answers
from modlab.lessons.answers import Answer
from modlab.lessons.cards import MIME, Card


class AskingCard(Card):
    """A question, and what was said to it so far.

    Args:
        answer: to the question.
        label: predict, why or recall; a prediction is settled by what is seen, the others at once.
        lesson: whose question it is.
        place: of the card's output.
    """

    def __init__(self, answer: Answer, label: str, lesson: str, place: str) -> None:
        at_once = label != "predict" and answer.said is not None
        super().__init__(answers.settled(answer, label) if at_once else answers.asked(answer, label), lesson=lesson, place=place)
        self.answer = answer

    def _kept(self) -> dict[str, Any]:
        answer = self.answer
        if answer.said is None:
            return {}
        kept = {
            "schema": 1,
            "lesson": self._lesson,
            "question": answer.question.name,
            "said": answer.spelled,
            "right": answer.right,
            "belief": answer.belief,
        }
        return {MIME: kept}
