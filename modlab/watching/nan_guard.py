"""What stands by for a NaN: the light tap that keeps a step, the check of its gradients, and the replay when it goes wrong."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol
from weakref import ref

from torch import Tensor, strided
from torch.nn import Module

from modlab import wording
from modlab.compat import dispatch_modes, without_torch_function
from modlab.errors import NotFiniteError
from modlab.records.finding import Fact
from modlab.records.watch import Alert
from modlab.running import clock
from modlab.running.guarded import Look, guarded
from modlab.statistics.memory import is_there, local
from modlab.watching.alerts import HOLD, Alerts, alert
from modlab.watching.finiteness import GradientCheck, NonFinite, is_finite
from modlab.watching.last_step import LastPass, LastStep
from modlab.watching.losses import Losses
from modlab.watching.schedule import GUARDED, Schedule
from modlab.watching.steps import Steps
from modlab.watching.watch_index import WatchIndex

if TYPE_CHECKING:
    from modlab.watching.nan_origin import Birth

EACH = 2e-6
"""Seconds that a pair of hooks costs each call of a module, beside what it takes itself: torch goes another way then."""

GLANCE, RARELY = 6e-6, 16
"""Seconds that a glance takes in a training: three times as many as where nothing else is done. And steps between two of them at most."""

GLANCED = 0.15
"""Of the budget, what light looks may take: where steps are so quick that one in each takes more, only some are looked at."""


class GuardedWatch(Look, Protocol):
    """What is told of the passes that the guard sees."""

    closed: bool

    def pass_begins(self) -> None:
        """A training pass of the root begins."""

    def meets(self, wrapper: Module) -> None:
        """What ``torch.compile`` made of the model is called in its place."""

    def backward_ended(self) -> None:
        """A backward pass has ended whose step nobody will tell of."""

    def thrown_away(self) -> None:
        """Gradients that were not finite are there no more, and no step was made with them."""


class NaNGuard:
    """Stands by in every step; where that costs too much, in those that are looked at, and one glance at a gradient tells of the others.

    Args:
        watch: that is told of the passes.
        model: whose passes they are; held weakly.
        on_nan: "report", "hold" (in every step, and wait for an accelerator), or "stop" (raise before the weights are spoilt).
        index: its parameters.
        steps: the steps so far.
        schedule: with what is left for this.
        losses: which wait for the end of a backward pass.
        alerts: that get what was found.

    Attributes:
        standing: whether it looks at the next step; `always`: whether at every one.
        passed: a step that it did not stand by in, and whose gradients were not finite.
        hidden: whether the optimizer's steps are seen by what they change alone.
        spoilt: whether the last backward pass brought gradients that are not finite.
    """

    def __init__(
        self,
        watch: GuardedWatch,
        model: Module,
        on_nan: str,
        index: WatchIndex,
        steps: Steps,
        schedule: Schedule,
        losses: Losses,
        alerts: Alerts,
    ) -> None:
        self.ends = self._watch = watch
        self._model, self._on_nan = ref(model), on_nan
        self._index, self._steps, self._schedule, self._losses, self._alerts = index, steps, schedule, losses, alerts
        self.tap = LastStep(model, watch, on_forward=watch.pass_begins, on_backward=self._backward_ended, on_wrapper=watch.meets)
        self._check: GradientCheck | None = None
        self.standing = self.found = self.hidden = self.spoilt = False
        self.passed: NonFinite | None = None
        self._narrow: Tensor | None = None  # whose gradient a glance asks
        self._every = 1  # of so many steps one is glanced at
        self._looked, self._next = -1, 0  # the last step that was looked at, and the next one that will be
        self._glances = 0  # not paid for yet
        self._paid = 0  # the step up to which it has been
        self._each = 0.0  # seconds of a step that it stands by in
        self._steady = bool(index.opaque)  # a compiler would compile anew
        self.always = self._asked

    @property
    def _asked(self) -> bool:
        """Whether it must stand by whatever that costs."""
        return self._steady or self._on_nan != "report" or not self._steps.optimizer_name

    def open(self) -> None:
        """Begin with the first step."""
        self.tap.open()
        self.on()

    def close(self) -> None:
        """Stop, and let go of everything."""
        self._next = 0
        self._look_last()
        self.tap.close()
        self.pay()
        self.standing = False
        self._check = self._narrow = None

    @guarded
    def _look_last(self) -> None:
        if not self.standing and self.wonders(self._steps.made - 1):
            self.passed = self._checking().glance(self._steps.made - 1, self._looked)

    def on(self) -> None:
        """Stand by in the next step."""
        self.tap.on()
        self.standing = True

    def rest(self) -> None:
        """The step is over: let it go, and rest unless every step must be seen."""
        self.tap.forget()
        self.spoilt, self.passed = False, None
        if self.standing:
            self._looked = self._steps.made - 1
        self.pay()
        if not self.always:
            self.tap.off()
            self.standing = False
            self._narrow = None if self.found else self._checking().narrow

    def pay(self) -> None:
        """For the light looks, and a step that it stood by in; not for the replay of a NaN, which comes once."""
        step, took = self._steps.made, 0.0
        if step == self._paid:
            return
        if self.standing:
            took = self.tap.seconds + EACH * self._index.modules
            self.tap.seconds = 0.0
            self._each = 0.8 * self._each + 0.2 * took if self._each else took
        self._schedule.stand(took + GLANCE * self._glances + self._losses.pay())
        self._paid, self._glances = step, 0

    def settle(self, pace: float, budget: float) -> None:
        """Decide whether every step can be seen, and how often to glance at one: by how long one takes."""
        self.always = self._asked or GUARDED * budget * pace >= self._each
        self._every = min(RARELY, math.ceil(GLANCE / (GLANCED * budget * pace))) if budget * pace > 0 else RARELY

    def stay(self) -> None:
        """A compiler is at work: what goes and comes would be compiled anew."""
        self._steady = self.always = True

    def unseen(self) -> None:
        """Steps are made that no hook is told of: from now on the passes must count them."""
        self._steady = self.always = self.hidden = True

    def seen(self) -> None:
        """They are, after all."""
        self._steady, self.hidden = bool(self._index.opaque), False

    def _backward_ended(self, one: LastPass) -> None:
        if self.hidden or not self._steps.optimizer_name:
            self._watch.backward_ended()
            self.look()
            return
        if self._losses.awaiting:  # they may be thrown away before anybody asks
            self._losses.judged_with(None)
        # a scaler skips the step of such gradients; those that are thrown away for another reason are none of a step's
        was, self.spoilt = self.spoilt, self._checking().spoilt()
        if was and not self.spoilt:
            self.tap.keep(one)
            self._watch.thrown_away()

    def look(self) -> None:
        """Look at the gradients of this step; what is wrong with them is searched for once."""
        if self.found:
            return
        finding = self._finding()
        if finding is None:
            return
        self.found = True
        self._report(finding)
        if self._on_nan == "stop":
            text = wording.said(self._alerts.alerts[-1])
            raise NotFiniteError(
                f"Step {finding.step:,} was not made, because its gradients are not finite: {text}.\n"
                f"  The weights are unchanged. What led here: w.alerts[-1].trace"
            )

    def wonders(self, step: int) -> bool:
        """Whether the gradient that a glance asks is not finite, as far as its sum tells. Asked in every step: it must be quick."""
        if step < self._next:
            return False
        self._next = step + self._every
        gradient = None if self._narrow is None or dispatch_modes() else self._narrow.grad
        if gradient is not None and type(gradient) is not Tensor:
            gradient = local(gradient)
        if type(gradient) is not Tensor or gradient.layout is not strided or not is_there(gradient):  # none, or of another kind now
            return False
        self._glances += 1
        with without_torch_function():
            if is_finite(gradient.sum().item()):
                self._looked = step
                return False
        return True

    def glance(self) -> None:
        """A step was made in which it rested: if its gradients were not finite, stand by in the next one, which may tell more."""
        steps = self._steps
        if self.found or self._watch.closed:
            return
        self.passed = self._checking().glance(steps.made - 1, self._looked)
        if self.passed is not None:
            self.on()
            steps.wake = steps.made + 1

    def _checking(self) -> GradientCheck:
        if self._check is None:
            weights = [(weight.path, weight.tensor()) for weight in self._index.weights]
            self._check = GradientCheck([(path, one) for path, one in weights if one is not None], hold=self._on_nan != "report")
        return self._check

    def _finding(self) -> NonFinite | None:
        check, start = self._checking(), clock.now()
        try:
            return check.look(self._steps.made, self.tap.passes) or check.ready()
        finally:
            self.tap.seconds += clock.now() - start

    def _report(self, finding: NonFinite) -> None:
        model = self._model()
        if model is None or finding.step != self._steps.made:
            self._alerts.raise_(alert(finding.kind, finding.path, finding.step, {"seen": "late", "where": ""}, HOLD, steps=1))
            return
        from modlab.watching.replay import birthplace  # a trace and a comparison: most runs need neither

        self.tap.hold()
        birth = birthplace(model, self.tap)
        if birth.where != "the weights" or not self._alerts.has_seen_before(finding.step):  # which the gradients of an earlier step spoilt
            self._alerts.raise_(_born(birth, finding, self.passed))


def _born(birth: Birth, finding: NonFinite, passed: NonFinite | None) -> Alert:
    """What the step that was run again tells; of a batch or weights that were spoilt before, since when."""
    kind, path = (birth.kind or finding.kind, birth.path) if birth.where else (finding.kind, finding.path)
    begun: dict[str, Fact] = {"begun": True} if birth.where == "the weights" and not finding.step else {}
    facts: dict[str, Fact] = {"seen": "again", "where": birth.where, **birth.facts, **begun}
    fixes, step = birth.fixes, finding.step
    if passed is not None and birth.where in ("the batch", "the weights"):
        facts, fixes, step = {**facts, **passed.facts}, fixes or (HOLD,), passed.step
    return alert(kind, path, step, facts, *fixes, steps=1, trace=birth.trace)
