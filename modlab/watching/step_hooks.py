"""Where a step of a training ends, and who is told of it.

A step ends when the optimizer has made it. Where none tells of itself (a scaler skipped it, it is compiled, the weights are changed by
hand) it ends when the next pass of the model begins.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from modlab.compat import graph_task, without_autograd
from modlab.running.guarded import Look, apart, guarded
from modlab.running.optimizer_hooks import OptimizerHooks
from modlab.statistics.memory import PLAIN, is_there, local
from modlab.watching.controls import Controls
from modlab.watching.knobs import Knobs
from modlab.watching.last_step import captured, is_unseen
from modlab.watching.losses import Losses
from modlab.watching.nan_guard import NaNGuard
from modlab.watching.readback import is_far
from modlab.watching.rewritten_weights import PART, Excursion, RewrittenWeights, are_same, are_scaled, has_left, probe
from modlab.watching.step_modes import StepModes
from modlab.watching.steps import Steps
from modlab.watching.watch_index import WatchIndex, Weight

UNTOLD = 5
"""Changes of the weights in a row of which an optimizer does not tell, that has told of a step before: from then on they are steps."""

DOUBTED = 3
"""The same, of an optimizer that has not told of any step; SAM takes the weights away once, or twice, and back."""

MANY = 65536
"""Numbers of a weight that are compared, until it is known whether anybody makes steps."""

LEFT = 1e-6
"""Part of a weight's size below which last digits alone are others."""


class SteppedWatch(Look, Protocol):
    """What is told of the steps that are looked at."""

    closed: bool

    @property
    def attends(self) -> bool:
        """Whether there is anything to do before the optimizer's step."""

    def step_begins(self, closure: bool, *, scaled: bool) -> None:
        """The optimizer is about to make its step."""

    def inner_step_begins(self) -> None:
        """Another optimizer is about to make a step inside of that one's."""

    def other_step_begins(self, optimizer: Any) -> None:
        """An optimizer is about to make a step that is not counted."""

    def other_step_ended(self, optimizer: Any) -> None:
        """It has made it."""

    def step_ended(self, *, stepped: bool) -> None:
        """The optimizer has made a step in which the watch wanted to be woken, or skipped it."""

    def step_over(self) -> None:
        """A step has ended that no optimizer told of."""


class StepHooks:
    """Counts the steps, and wakes the watch in those that are looked at.

    Args:
        watch: that is told of them.
        index: the parameters, whose changes tell of steps that nobody tells of.
        steps: which they count.
        losses: judged before and after each step.
        guard: that stands by in some.
        controls: what the page asks for between two steps.
        knobs: which take hold there.

    Attributes:
        rewritten: the weights that others write between two steps.
        modes: in which mode the model is in each step.
    """

    def __init__(
        self, watch: SteppedWatch, index: WatchIndex, steps: Steps, losses: Losses, guard: NaNGuard, controls: Controls, knobs: Knobs
    ) -> None:
        self.ends = self._watch = watch
        self._index, self._steps, self._losses, self._guard, self._controls = index, steps, losses, guard, controls
        self._knobs = knobs
        self.rewritten, self.modes = RewrittenWeights(index), StepModes(index)
        self._hooks = OptimizerHooks(self._begins, self._ended)
        self._some: list[Weight] = []  # that are asked whether they have changed
        self._versions: tuple[int, ...] = ()
        self._begun: tuple[int, ...] = ()
        self._numbers: list[Tensor] = []
        self._patience, self._untold = 2, 0  # so often may the weights be changed, and were, since an optimizer told of a step
        self._excursion = Excursion()
        self._told = True  # whether the optimizer told of a step since the last pass

    def open(self) -> None:
        """Begin to count."""
        trained = [one for one in self._index.weights if one.trainable] or self._index.weights
        self._some = trained[:2] + trained[2:][-2:]
        self._begun = self._versions = self._weight_versions()
        self._numbers = without_autograd(self._weight_numbers)
        self._excursion.begin(without_autograd(self._many_numbers) if self._steps.optimizer_name else [])
        self._hooks.open()
        self._steps.open()

    def close(self) -> None:
        """Stop; may be called again, where the first time was interrupted."""
        self._hooks.close()

    # ---- told by an optimizer

    @guarded  # a replay runs the model as it is
    def _begins(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """The weights are still good."""
        if is_unseen():
            return
        watch, steps = self._watch, self._steps
        steps.enters(optimizer)
        if self._knobs.between and steps.counts(optimizer) and not captured():
            self._knobs.step_begins()
        if self._losses.awaiting and graph_task() == -1:
            self._losses.judged_with(optimizer)
        if captured():
            return
        if steps.holds(optimizer):
            self.rewritten.step_begins()
        if not watch.attends:
            return
        if not steps.are_of(optimizer):
            if steps.under_way:
                watch.inner_step_begins()
            elif steps.joins(optimizer):
                watch.other_step_begins(optimizer)
            return
        steps.begins(optimizer)
        watch.step_begins(_has_closure(optimizer, args, kwargs), scaled=_verdict(optimizer) is not None)

    @apart
    def _ended(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if is_unseen():
            return
        steps, guard, losses = self._steps, self._guard, self._losses
        if losses.awaiting and graph_task() == -1:
            losses.judged_with(optimizer)
        inner = steps.leaves(optimizer)
        if inner or not steps.are_of(optimizer):
            steps.others += 1
            if not inner and steps.holds(optimizer):
                steps.made_beside(optimizer)
                self.rewritten.step_ended()
                self._tells()
            if not steps.under_way:
                if losses.due():
                    losses.step_ended(optimizer, counted=False)
                self._watch.other_step_ended(optimizer)
            return
        if losses.due():
            losses.step_ended(optimizer, counted=True)
        self.modes.step_ended(steps.made)
        steps.ended()
        self.rewritten.step_ended()
        self._knobs.step_ended(steps.made)
        self._tells()
        wonders = not guard.standing and guard.wonders(steps.made - 1)
        if steps.made >= steps.wake or self._controls.attention:
            if not captured():
                verdict = _verdict(optimizer)
                skipped = verdict is not None and without_autograd(bool, verdict)
                steps.skipped += skipped
                self._watch.step_ended(stepped=not skipped)
        elif guard.standing:
            guard.rest()
        if wonders and not captured() and _verdict(optimizer) is None:
            guard.glance()

    def _tells(self) -> None:
        """A step was told of."""
        self._told, self._steps.heard, self._patience, self._untold = True, True, UNTOLD, 0
        if self._guard.hidden:
            self._guard.seen()

    # ---- told by nobody

    def pass_begins(self) -> None:
        """A training pass of the root begins. If the step before was never made by an optimizer, it ends here."""
        steps = self._steps
        steps.passes += 1
        if self._watch.closed or steps.under_way or captured():
            return
        kept = self._guard.tap.passes
        if self._are_lent():
            return
        versions = self._weight_versions()
        moved = versions != self._versions
        moved = self._are_written(known=moved) or moved
        now = without_autograd(self._many_numbers) if self._doubts() else []
        if now:
            moved = without_autograd(self._go_on, now)
        ended = bool(kept) and kept[-1].backwards and self._is_over(moved=moved)
        if ended:
            steps.skipped += bool(steps.optimizer_name) and not moved
            steps.made += self._untold or 1
            self._untold, self._patience = 0, 1
            self._knobs.step_over(steps.made)
            self._watch.step_over()
        if now and not self._untold:
            self._excursion.begin(now)
        self._versions, self._told = versions, False

    def _doubts(self) -> bool:
        """Whether there is an optimizer, and neither it nor anybody else has made a step so far."""
        return bool(self._steps.optimizer_name) and not (self._steps.heard or self._steps.made)

    def _go_on(self, now: list[Tensor]) -> bool:
        """Whether the weights went on since the last pass; not if they are back where they set out, or were only scaled."""
        last = self._excursion.last
        if self._excursion.is_back(now):
            self._untold = 0
            return False
        return has_left(last, now, LEFT) and not are_scaled(last, now)

    def _is_over(self, *, moved: bool) -> bool:
        """Whether a backward pass ended a step: nobody makes steps that we see, they are compiled, or a scaler skipped this one."""
        known = bool(self._steps.optimizer_name)
        if (moved or (not known and self._grads_gone())) and not self._told:
            self._steps.untold += not self._steps.heard
            self._untold += 1  # or the weights are moved for a while, as SAM moves them, or others take their place
            over = self._untold >= (DOUBTED if self._doubts() else self._patience)
            if over and known:
                self._guard.unseen()
            return over
        return known and self._guard.spoilt and self._grads_gone()

    def are_hidden(self) -> bool:
        """Whether the weights were changed, and no step was seen: a compiled function may make them whole."""
        seen = self._excursion.last and self._steps.passes > UNTOLD  # so many passes tell whether these were steps
        return not (self._steps.made or seen) and any(
            before not in (-1, now) for before, now in zip(self._begun, self._weight_versions(), strict=False)
        )

    def _are_lent(self) -> bool:
        """Whether others that were computed stand in the weights' place, as in a functional_call: such a pass tells nothing of steps."""
        return any(one is not None and not one.is_leaf for one in (weight.tensor() for weight in self._index.weights[:4]))

    def _are_written(self, *, known: bool) -> bool:
        """Whether somebody wrote numbers through `.data`, which no version counts; not asked once an optimizer tells of its steps.

        Args:
            known: whether it is known already that they have changed.
        """
        before, self._numbers = self._numbers, [] if known or self._steps.heard else without_autograd(self._weight_numbers)
        return bool(before and self._numbers) and not without_autograd(are_same, before, self._numbers)

    def _many_numbers(self) -> list[Tensor]:
        """Those that lie here: an accelerator would be waited for in each pass."""
        return self._weight_numbers(MANY, far=False)

    def _weight_numbers(self, part: int = PART, *, far: bool = True) -> list[Tensor]:
        tensors = (weight.tensor() for weight in self._some)
        some = (one for one in tensors if one is not None and type(one) in PLAIN and (far or not is_far(one)))
        known = (
            one for one in some if not (one.is_cuda and torch.cuda.is_current_stream_capturing())
        )  # it would become a part of the graph
        return [probe(one, part) for one in known if is_there(one) and one.layout is torch.strided]

    def _weight_versions(self) -> tuple[int, ...]:
        """How often some weights have been changed in place."""
        some = (weight.tensor() for weight in self._some)
        return tuple(-1 if one is None or is_lazy(one) or one.is_inference() else one._version for one in some)

    def _grads_gone(self) -> bool:
        """Whether what the last backward pass brought was thrown away: a step is over, though no optimizer made one."""
        for weight in self._index.weights:
            tensor = weight.tensor()
            if tensor is not None and tensor.requires_grad and tensor.grad is not None:
                return not bool(without_autograd(local(tensor.grad).any))
        return True


def _has_closure(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a step computes its gradients itself; torch hands the optimizer on as the first of its arguments."""
    return any(callable(given) and given is not optimizer for given in (*args, kwargs.get("closure")))


def _verdict(optimizer: Any) -> Tensor | None:
    """What a scaler found in the gradients of an optimizer that skips a step by itself, as fused ones do; None if there is no such."""
    found = vars(optimizer).get("found_inf")
    return found if isinstance(found, Tensor) else None
