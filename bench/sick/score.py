"""How an answer is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from bench.sick.cases import Case
from bench.sick.tools import Answer

Grade = Literal["first", "in three", "hinted", "symptom", "silent", "wrong", "quiet", "false alarm"]

SICK: tuple[Grade, ...] = ("first", "in three", "hinted", "symptom", "silent", "wrong")
"""The grades of a sick case, the best first."""
HEALTHY: tuple[Grade, ...] = ("quiet", "false alarm")
COUNTED = 2
"""So many causes of one finding count, and the second only with what settles it."""


def grade(case: Case, answer: Answer) -> Grade:
    """One answer to one case.

    - *first*: the first thing named has the cause among its two; *in three*: one of the first three has it.
    - *hinted*: the cause is named later, or among the notes.
    - *symptom*: something is said to be wrong, without any cause.
    - *silent*: nothing is said to be wrong.
    - *wrong*: causes are named, and none of them is right.
    """
    if not case.cause:
        return "false alarm" if answer.alarm or answer.named else "quiet"
    named = [set(one.causes[: COUNTED if one.settle else 1]) for one in answer.named]
    right = [bool(causes & set(case.causes)) for causes in named]
    if right[:1] == [True]:
        return "first"
    if any(right[1:3]):
        return "in three"
    if any(right) or set(answer.hints) & set(case.causes):
        return "hinted"
    if any(named):
        return "wrong"
    return "symptom" if answer.alarm else "silent"


def is_false(case: Case, answer: Answer) -> bool:
    """Whether a right cause is put into a wrong place: not in, nor at, one of the right ones."""
    right = (one for one in answer.named if one.path and case.where and set(one.causes) & set(case.causes))
    return any(not any(one.path == place or one.path.startswith(f"{place}.") for place in case.where) for one in right)


class Result(NamedTuple):
    """What an answer is worth.

    Attributes:
        said: the causes that it names, in order.
        false: whether something in it is not so.
    """

    grade: Grade
    said: str
    false: bool


def result(case: Case, answer: Answer) -> Result:
    """An answer, counted."""
    said = "; ".join(" or ".join(one.causes) for one in answer.named)
    return Result(grade(case, answer), said, is_false(case, answer))


def worst(results: Iterable[Result]) -> Result:
    """Of all seeds."""
    some = [*results]
    return max(some, key=lambda one: (*SICK, *HEALTHY).index(one.grade))._replace(false=any(one.false for one in some))


def shares(grades: Sequence[Grade]) -> dict[Grade, float]:
    """Of each grade, how many there are, as a part of the sick or of the healthy."""
    counts = Counter(grades)
    return {grade: counts[grade] / total for of in (SICK, HEALTHY) if (total := sum(counts[one] for one in of)) for grade in of}
