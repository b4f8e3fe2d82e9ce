"""A row of the table of causes: what names a cause, and what tells it from its neighbours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from modlab.causes.symptoms import Symptoms
from modlab.frozen import frozen
from modlab.records.finding import Fact, Severity

Facts = Mapping[str, Fact]
LossState = Literal["wild", "leapt", "stuck"]
Test = Callable[[Symptoms], "Facts | None"]


@frozen
class CauseRow:
    """One way for a cause to show.

    Attributes:
        cause: its name, a key of `wording.causes.CAUSES`.
        test: the evidence as facts (``path``, where there is one place), or None where this does not speak.
        rival: the cause that looks most like it, where one line settles which it is; `settle`: a key of `wording.causes.SETTLES`.
        severity: of the finding.
        tier: where it stands: 0 for what the code certainly does, 1 for what the numbers show, 2 for what is left when nothing else is.
        unlike: what a loss may do that this does not explain, and where it comes behind all others: be "wild" (it burst, or came to NaN),
            have "leapt" (far up, and perhaps down again), or be "stuck".
        left: whether it is what is left where nothing surer has been found, and is not said beside that.
    """

    cause: str
    test: Test
    rival: str = ""
    settle: str = ""
    severity: Severity = "broken"
    tier: int = 0
    unlike: tuple[LossState, ...] = ()
    left: bool = False
