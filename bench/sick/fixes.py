"""Fixes, tried: does a fork with the fix of what modlab finds come where the training without the fault comes?

Each sick case is trained under ``modlab.watch(keep="good")``. Of the findings the first one is taken whose fix can be applied, and
`try_fix` runs to the end of the tape. Its loss, and that of the healthy twin after as many steps, is the mean of the last tenth.
Where the fault is a factor of the loss, its losses are divided by what the first one is of the twin's: the same batch, the same weights.
A fix counts as good if its loss is at most 10 % above the twin's; as nearly good if it makes at least 90 % of the twin's way down.
"""

from __future__ import annotations

import contextlib
import io
import math
import warnings
from dataclasses import dataclass
from typing import Any

import modlab
from bench import report
from bench.sick.cases import Case
from bench.sick.training import Training
from modlab.errors import ModlabError

NEAR = 0.1
"""Of the twin's loss, or of its way down."""

SCALED = ("loss too large", "loss too small")
"""Faults after which a loss is in another unit than the twin's."""

GOAL = 0.8


@dataclass(frozen=True)
class Tried:
    """What became of one case.

    Attributes:
        finding: the kind of what was found; fix: what was changed; "" if nothing could be tried, for the reason `why`.
        fork, original, twin: losses at the end; first: the twin's at the beginning.
    """

    name: str
    cause: str
    finding: str = ""
    fix: str = ""
    why: str = ""
    fork: float = math.nan
    original: float = math.nan
    twin: float = math.nan
    first: float = math.nan

    @property
    def good(self) -> bool:
        """Whether it ends within a tenth of the twin's loss, or below it."""
        return self.fork <= self.twin + NEAR * abs(self.twin)

    @property
    def nearly(self) -> bool:
        """Whether it makes nine tenths of the twin's way down."""
        return self.good or self.fork <= self.twin + NEAR * max(0.0, self.first - self.twin)

    @property
    def said(self) -> str:
        """In a line."""
        if not self.fix:
            return f"{'':12} {self.name} ({self.cause}): {self.why}"
        grade = "good" if self.good else "nearly" if self.nearly else "not good"
        losses = f"{self.original:.4g} → {self.fork:.4g}, twin {self.first:.4g} → {self.twin:.4g}"
        return f"{grade:12} {self.name} ({self.cause}): {self.finding}, {self.fix}: {losses}"


def tried(case: Case, seed: int) -> Tried:
    """Try what is found first in a sick training."""
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            return _tried(case, seed)
        except Exception as error:  # noqa: BLE001 - the other cases still have something to say
            return Tried(case.name, case.cause, why=f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")


def _tried(case: Case, seed: int) -> Tried:
    w = _watched(case.training(seed))
    fork, finding, why = None, None, "nothing was found"
    for one in [*w.findings, *w.alerts, *(check for check in w.verdict.checks if check.state == "broken")]:
        try:
            fork, finding = one.try_fix(10**6), one
            break
        except ModlabError as error:
            why = f"{one.kind}: {str(error).partition(chr(10))[0]}"
    if fork is None or finding is None:
        return Tried(case.name, case.cause, why=why)
    steps = fork.record.steps
    healthy = _watched(case.twin(seed))
    twin = healthy.fork(healthy.record.kept.states[0], steps=steps).original
    fix = str(next(iter(fork.record.facts.values()), ""))
    unit = fork.original[0] / twin[0] if case.cause in SCALED else 1.0
    ends = fork.record.last("fork") / unit, fork.record.last("original") / unit
    return Tried(case.name, case.cause, finding.kind, fix, "", *ends, _end(twin), _begin(twin))


def _watched(training: Training) -> Any:
    with contextlib.suppress(Exception), modlab.watch(training.model, training.optimizers, keep="good", budget=0.2) as w:
        training.run()
    return w


def _tenth(losses: list[float]) -> int:
    return max(1, len(losses) // 10)


def _end(losses: list[float]) -> float:
    some = losses[-_tenth(losses) :]
    return sum(some) / len(some)


def _begin(losses: list[float]) -> float:
    some = losses[: _tenth(losses)]
    return sum(some) / len(some)


def told(found: list[Tried], *, each: bool) -> None:
    """Print how many fixes were tried, and how many came where the twin comes."""
    some = [one for one in found if one.fix]
    if each:
        print("\n".join(one.said for one in found), end="\n\n")
    good, nearly = sum(one.good for one in some), sum(one.nearly for one in some)
    report.table(
        ("fix", "tried", "within 10 % of the twin's loss", "at least 90 % of its way"),
        [
            *((fix, *_row([one for one in some if one.fix == fix])) for fix in sorted({one.fix for one in some})),
            ("all", *_row(some)),
        ],
    )
    if some:
        shares = f"{good / len(some):.0%} are good, {nearly / len(some):.0%} nearly"
        report.note(f"{len(some)} of {len(found)} sick trainings had a fix that can be applied; {shares}.")
        report.note(f"Goal: {GOAL:.0%}.")


def _row(some: list[Tried]) -> tuple[str, ...]:
    return str(len(some)), str(sum(one.good for one in some)), str(sum(one.nearly for one in some))
