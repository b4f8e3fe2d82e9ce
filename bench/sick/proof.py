"""The proof that the sick are sick and the healthy learn, with each seed."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

from bench.sick.cases import SEEDS, Case
from bench.sick.training import Training

LEARNED = 0.6
"""What learns leaves at most so much of the quality that an untrained model has (less is better)."""
LOST = 0.3
"""What is sick misses at least so much of the way that its twin goes;"""
TIMES, LEAST = 3, 0.05
"""or it ends so many times as far from perfect as its twin, and misses at least so much of the way."""


@dataclass(frozen=True)
class Proof:
    """What became of a case with one seed; qualities, of which less is better.

    Attributes:
        before: of the twin, untrained.
        twin: of the twin, trained.
        after: of the case itself.
    """

    case: Case
    seed: int
    before: float
    twin: float
    after: float

    @property
    def objection(self) -> str:
        """Why this is not what it is meant to be; "" where it is."""
        if not self.twin <= LEARNED * self.before:
            who = "twin" if self.case.cause else "training"
            return f"the {who} does not learn: {self.before:.3g} before, {self.twin:.3g} after"
        if not self.case.cause:
            return ""
        if not self.is_sick:
            return f"it is not sick: {self.after:.3g}, where the twin has {self.twin:.3g} and had {self.before:.3g}"
        return ""

    @property
    def is_sick(self) -> bool:
        """Whether it is clearly worse than its twin."""
        return not math.isfinite(self.after) or self.lost >= LOST or (self.lost >= LEAST and self.after >= TIMES * self.twin)

    @property
    def lost(self) -> float:
        """How much of the twin's way was missed: 0 is all as there, 1 nothing learned."""
        return (self.after - self.twin) / (self.before - self.twin)


def prove(case: Case, seed: int) -> Proof:
    """Run the case and its twin."""
    before, after = _run(case.training(seed))
    twin = after
    if case.cause:
        before, twin = _run(case.twin(seed))
    return Proof(case, seed, before, twin, after)


def _run(training: Training) -> tuple[float, float]:
    before = training.measured()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        training.run()
    return before, training.measured()


def objections(case: Case) -> list[str]:
    """What is wrong with a case, over all seeds."""
    proofs = [prove(case, seed) for seed in SEEDS]
    return [f"{case.name}, seed {proof.seed} ({case.cause or 'healthy'}): {proof.objection}" for proof in proofs if proof.objection]
