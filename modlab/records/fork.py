"""A fork of a training: what was kept for one, and what came of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt

from modlab import format
from modlab.frozen import frozen
from modlab.records.finding import Fact

Losses = npt.NDArray[np.float64]
"""As the training computes them, whatever its dtype."""

FEW = 5
"""Steps that are compared at least."""

TWICE = 2.0
"""Times the other loss that one is typically, to be far from it whatever it leaps."""

TINY = 1e-9
"""The least standard error: losses that do not move have none."""

LEAP = 10.0
"""Times its first loss to which one goes up whose steps are too long to come to rest."""


@frozen
class KeptSetting:
    """A number that is set on a module, at each kept state.

    Attributes:
        name: the module's path and the attribute: "2.p".
        kind: the module's class.
        values: one for each kept state; NaN where it was none.
    """

    name: str
    kind: str
    values: tuple[float, ...]


@format.printed
@frozen
class KeptRecord:
    """What a watch keeps for a fork.

    Attributes:
        states: after how many steps the training was copied.
        until: for each of them, up to which step it can be run on.
        bytes: of all of it.
        trouble: why nothing more is kept; "" if it is.
        rates: for each state the learning rate of the first group of parameters; NaN if no optimizer was known.
        groups: how many groups of parameters the optimizers have.
        settings: numbers that are set on modules.
    """

    states: tuple[int, ...] = ()
    until: tuple[int, ...] = ()
    bytes: int = 0
    trouble: str = ""
    rates: tuple[float, ...] = ()
    groups: int = 0
    settings: tuple[KeptSetting, ...] = ()


@format.printed
@frozen(eq=False)
class ForkRecord:
    """A part of a training, run again from a kept state on, unchanged and changed.

    Attributes:
        title: the model's class.
        source: "kept" where a kept part of a training was run again, "batch" where a copy of the model trained on one batch.
        began: after how many steps the state was kept from which it was run; the step of the first entry of the curves.
        at: the step at which it was changed.
        original: shape ``(steps,)``: the loss as it was; NaN where there was none.
        twin: the same of the unchanged fork.
        fork: of the changed one; where nothing was changed it is the twin.
        change: what was changed: "" if nothing; "function", "settings" or the kind of a remedy.
        facts: about the change: names of settings, their values before and after; `rate`: that of Adam, where no optimizer is known;
            `mode`: which modes the copies of one batch have, where they are not the model's own training mode: "as the model", "as in its
            steps"; `first`: the first loss that a watch saw, where its present weights are forked; `lr`, `lr_before` and `lr_last`: of a
            fix, what the one learning rate of all groups became, was, and is at the end, if it moved; `trials`: doses of the change that
            were tried before, each with its loss in the last quarter of `trial` steps, where it was `lost`, and with its `lr`;
            `stuck`: the error in which the
            unchanged copy ends, which cannot run on the batch; `asked` and `kept`: the step that was
            asked for, where only so many steps were kept behind the state, and the fork begins there instead; `members` and `member`: where
            it ends as "changed", what the loop did to the model, as `wording.forks.MEMBERS` has it, and to which part;
            `steered`: the loop set learning rates otherwise than by a schedule that
            counts steps; `attributes`: names of those in which the loop put what a fork does not
            put there; `joined`: the rate of a group that the change has added was "scheduled" as those of the others were, or "alone".
        differs: the first step at which the unchanged fork was not the original bit for bit; -1 if it was.
        parts: the first step at which the changed fork's loss differs from the original's; -1 if none does.
        ended: why it ended: "steps" (as many as were asked for), "tape" (no more are kept), "branch" (the loop would have
            gone another way), "error", "constant" (a tensor that it was given was changed in place later), "lacking" (the next step
            is not whole on the tape), "old" (it uses what is not in the state: older, or a part of a shared memory), "taken" (what is not
            there with the change, or elsewhere), "brought" (the loop may handle what the change has brought), "changed" (the loop
            changed the model's members), "edited" (or an optimizer's state), "joined" (somebody trains along whom the state lacks),
            "original" (the model's code reached the original) or "cancelled"; "running" until then.
        error: of that, in one line.
        until: the step that it comes to if nothing ends it before.
        unjudged: why its loss does not say which future is the better one: "" if it does; "negative values", "several losses" (`facts` has
            their names), "wrong sign" (the loss is turned around), "climbed" (the optimizer makes it greater) or "modes" (one of
            the two is in training mode, the other in evaluation).
        line: of the backward pass whose loss this is, where several lines have one; 0 where one has.
    """

    title: str
    source: str
    began: int
    at: int
    original: Losses
    twin: Losses
    fork: Losses
    change: str = ""
    facts: Mapping[str, Fact] = field(default_factory=dict)
    differs: int = -1
    parts: int = -1
    ended: str = "steps"
    error: str = ""
    until: int = 0
    unjudged: str = ""
    line: int = 0

    @property
    def running(self) -> bool:
        """Whether it is still being made."""
        return self.ended == "running"

    @property
    def steps(self) -> int:
        """How many steps the fork made behind the change."""
        return max(0, len(self.fork) - (self.at - self.began))

    @property
    def exact(self) -> bool:
        """Whether steps were made, and the unchanged fork was the original bit for bit in each, as far as a loss tells."""
        return self.steps > 0 and self.differs < 0 and not self.is_lossless

    def last(self, which: str = "fork") -> float:
        """The mean of the last tenth of a curve behind the change, "original", "twin" or "fork"; NaN if something there is not finite."""
        some = self._last(which)
        return float(np.mean(some)) if len(some) and bool(np.isfinite(some).all()) else math.nan

    def lost(self, which: str = "fork") -> int:
        """The first step behind the change at which a curve is not finite; -1 if there is none."""
        begins = self.at - self.began
        bad = np.flatnonzero(~np.isfinite(getattr(self, which)[begins : len(self.fork)]))
        return self.at + int(bad[0]) if len(bad) else -1

    @property
    def settled(self) -> float:
        """The mean of the fork's losses in the last quarter behind the change; NaN if the second half is not finite, or still leaps.

        A few values at the end may be small by chance where steps are too long.
        """
        behind = self.fork[self.at - self.began :]
        half = behind[len(behind) // 2 :]
        leaps = len(half) > 0 and not float(np.max(half)) <= LEAP * abs(float(behind[0]))
        late = behind[3 * len(behind) // 4 :]
        return float(np.mean(late)) if len(late) and not leaps else math.nan

    @property
    def beside(self) -> str:
        """What the fork is compared with: "original", or "twin" where the two differ."""
        return "original" if self.exact else "twin"

    @property
    def is_drowned(self) -> bool:
        """Whether the unchanged fork, which is not the original, is as far from it at the end as the fork is from that, or farther."""
        if self.differs < 0:
            return False
        fork, twin, original = (self._last(which, FEW) for which in ("fork", "twin", "original"))
        some = np.isfinite(fork) & np.isfinite(twin) & np.isfinite(original)
        far, change = np.abs(twin - original)[some], np.abs(fork - twin)[some]
        return bool(len(far)) and 0 < float(change.mean()) <= float(far.mean())

    @property
    def is_lossless(self) -> bool:
        """Whether no loss was seen, or all were NaN."""
        return all(bool(np.isnan(curve).all()) for curve in (self.original, self.twin))

    @property
    def sides(self) -> tuple[int, int, int]:
        """Of the last tenth, or the last few steps: at how many the fork's loss is the lower, at how many the higher one, and of how many.

        Both futures see the same batches, so they can be compared step by step where the losses themselves are noisy.
        """
        fork, other = self._compared()
        return int((fork < other).sum()), int((fork > other).sum()), len(fork)

    @property
    def apart(self) -> float:
        """How far the losses of these steps are apart, in standard errors of the mean difference; of logarithms, where all are positive."""
        fork, other = self._compared()
        if len(fork) < FEW - 1 or not (np.isfinite(fork).all() and np.isfinite(other).all()):
            return 0.0
        differences = np.log(fork) - np.log(other) if min(fork.min(), other.min()) > 0 else fork - other
        error = float(differences.std(ddof=1)) / math.sqrt(len(differences))
        return float(differences.mean()) / error if error > 0 else 0.0

    @property
    def beyond(self) -> float:
        """The same in standard errors that the other losses' own spread makes: a fork that leaps does not hide behind its leaps.

        0 where the fork's are typically neither twice nor half of them, or not on that side at most of the steps.
        """
        fork, other = self._compared()
        behind = getattr(self, self.beside)[: len(self.fork)][self.at - self.began :]
        late = behind[-max(len(fork), len(behind) // 2) :]
        some = np.concatenate([fork, late])
        if len(fork) < FEW - 1 or not bool((np.isfinite(some) & (some > 0)).all()):
            return 0.0
        ratios = np.log(fork) - np.log(other)
        mean, error = float(ratios.mean()), float(np.log(late).std(ddof=1)) * math.sqrt(2 / len(fork))
        is_far = abs(mean) > math.log(TWICE) and 2 * int((ratios * mean > 0).sum()) > len(fork)
        return mean / max(error, TINY) if is_far else 0.0

    def _compared(self) -> tuple[Any, Any]:
        """The losses of the last steps, without that of the first step behind the change, if the change does not show in it yet."""
        fork, other = (self._last(which, FEW) for which in ("fork", self.beside))
        early = int(len(fork) == self.steps > 1 and fork[0] == other[0])
        return fork[early:], other[early:]

    def _last(self, which: str, least: int = 1) -> Losses:
        """The last tenth of a curve behind the change, and at least so many steps of it."""
        curve: Losses = getattr(self, which)[: len(self.fork)]
        behind = curve[self.at - self.began :]
        return behind[-max(least, len(behind) // 10) :]
