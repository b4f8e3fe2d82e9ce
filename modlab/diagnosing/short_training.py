"""A short training: a copy of the model and of its optimizers takes some steps on the batch, watched, and the table of causes is asked."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.nn import Module
from torch.optim import Optimizer

from modlab.causes.symptoms import Symptoms
from modlab.causes.table import causes
from modlab.diagnosing.duplicates import copied, exchanged, reads_the_model
from modlab.diagnosing.loss_arguments import A_PASS
from modlab.diagnosing.outcomes import NotRunError
from modlab.diagnosing.trials import Bench
from modlab.inspection.optimizers import step_all
from modlab.records.finding import Fact, Finding, Remedy
from modlab.records.watch import WatchRecord
from modlab.running.guarded import steady_line, without_addresses
from modlab.running.optimizer_hooks import are_open
from modlab.statistics.memory import deepcopied
from modlab.watching.last_step import unseen
from modlab.watching.watcher import Watcher

STEPS, SECONDS = 60, 10.0
"""Steps that it takes at most, and seconds."""

PLAIN = vars(torch.optim.SGD([torch.zeros(1)])).keys()
"""What every optimizer holds: one that holds nothing else is all there in its copy."""

ENOUGH = 8
"""Steps below which nothing is concluded."""

KNOWS = 0.8
"""Of the loss of a constant answer: below that a model has learned something, and small steps may be all that is left."""

AS_TRAINED = ("rate too low", "weights begin too large", "weights begin too small")
"""What is no cause in a model that has learned something."""


def short_training(bench: Bench, optimizers: Sequence[Optimizer]) -> tuple[Finding, ...]:
    """The causes that the training of a copy shows, the likeliest first; none where the model cannot be copied or trained.

    Args:
        bench: the model with its batch and loss.
        optimizers: that step it; without one there is nothing to see.
    """
    if not optimizers:
        return ()
    try:
        record = bench.kept(lambda: _trained(bench, optimizers))
    except StepError as failed:
        return _step_fails(failed)
    except Exception:  # noqa: BLE001 - the other checks say what is wrong with a pass
        return ()
    if record is None or record.steps < ENOUGH:
        return ()
    begin = Symptoms(record)
    if begin.begins_low:
        return ()  # it is trained: what shows in first steps cannot be seen any more
    planned = 0 < begin.group.rate < begin.group.initial / 2  # by a schedule, which steps in the loop alone
    left = AS_TRAINED if begin.start < KNOWS * begin.constant else ("rate too low",) if planned else ()
    found = [one for one in causes(begin) if one.kind not in left and not (one.facts.get("how") == "climbs" and _goes_on(optimizers))]
    return tuple(replace(one, facts={**one.facts, "copied": record.steps}) for one in found)


def _goes_on(optimizers: Sequence[Optimizer]) -> bool:
    """Whether they have made steps before, whose averages take the copy on, up or down the slope of this batch."""
    return any(one.state for one in optimizers)


class _Quiet(Watcher):
    """A watch that writes nothing: what it could not look at says nothing about the training of the user."""

    def tell(self, text: str) -> None:
        """Write nothing."""


def _trained(bench: Bench, optimizers: Sequence[Optimizer]) -> WatchRecord | None:
    model, steppers = _copies(bench, optimizers)
    watcher = _Quiet(model, [*steppers], 1.0, one_batch=True)
    watcher.begin()
    try:
        _train(bench, model, steppers)
    finally:
        watcher.end("ended")
    return None if watcher.error else watcher.record()


def _copies(bench: Bench, optimizers: Sequence[Optimizer]) -> tuple[Module, list[Any]]:
    """What is trained, and optimizers that hold its parameters: a copy, or the model with copies in their places if the loss reads it.

    Raises:
        NotRunError: the copied optimizers do not hold the parameters of the copy, as those of a scripted one.
    """
    memo: dict[int, Any] = {}
    with unseen():
        reads = reads_the_model(bench, copied(bench))
    if reads:
        if are_open():
            raise NotRunError("watched")  # it would see the steps of this training as those of the user's
        memo |= {**exchanged(bench), **{id(one): one for one in bench.model.modules()}}
        return bench.model, _steppers(optimizers, memo)
    model = deepcopied(bench.model, memo)
    steppers = _steppers(optimizers, memo)  # with the same memo, so that these hold the copy's parameters
    if _held(steppers, model) < _held(optimizers, bench.model):
        raise NotRunError("scripted copy")
    return model.train(bench.model.training), steppers


def _steppers(optimizers: Sequence[Optimizer], memo: dict[int, Any]) -> list[Any]:
    """Copies of the optimizers, with what they hold besides groups and state, which alone PyTorch copies: LBFGS has a list of its own."""
    steppers = deepcopied([*optimizers], memo)
    for one, other in zip(optimizers, steppers, strict=True):
        for name in vars(one).keys() - vars(other).keys():
            if not callable(vars(one)[name]):  # a scheduler puts a step in there, which is that of the optimizer itself
                vars(other)[name] = deepcopied(vars(one)[name], memo)
    return steppers


def _held(optimizers: Sequence[Any], model: Module) -> int:
    """How many of the model's parameters they hold."""
    own = {id(one) for one in model.parameters()}
    return len({id(one) for optimizer in optimizers for group in optimizer.param_groups for one in group["params"]} & own)


class StepError(Exception):
    """An optimizer's own step has failed, and not the loss or its gradients."""

    def __init__(self, optimizer: Any, error: Exception) -> None:
        super().__init__(steady_line(error))
        self.optimizer, self.error = optimizer, error


def _train(bench: Bench, model: Module, steppers: Sequence[Any]) -> None:
    computing = False

    def closure() -> Any:
        nonlocal computing
        computing = True
        for one in steppers:
            one.zero_grad()
        loss = bench.value(bench.output(model))
        loss.backward()
        computing = False
        return loss

    started = time.perf_counter()
    for _ in range(STEPS):
        try:
            step_all(steppers, closure)
        except Exception as error:
            if computing:
                raise
            raise StepError(_failing(error, steppers), error) from error
        if time.perf_counter() - started > SECONDS:
            return


def _failing(error: Exception, steppers: Sequence[Any]) -> Any:
    """The optimizer in whose code it was raised."""
    step, found = error.__traceback__, steppers[0]
    while step is not None:
        found = next((one for one in steppers if one is step.tb_frame.f_locals.get("self")), found)
        step = step.tb_next
    return found


def _step_fails(failed: StepError) -> tuple[Finding, ...]:
    """What is said of it: nothing where the copy of an optimizer of the user's may be to blame."""
    from modlab.explaining.explain import explain  # slow to import, and most steps can be made

    if not type(failed.optimizer).__module__.startswith("torch.optim.") and not vars(failed.optimizer).keys() <= PLAIN:
        return ()
    found, _ = explain(failed.error)
    facts: dict[str, Fact] = {"class": type(failed.optimizer).__name__, "error": str(failed)}
    fixes = tuple(Remedy(code=fix.code, advice=without_addresses(fix.prose)) for fix in found.fixes[:1] if found.family)
    return (Finding("step fails", "", facts, "broken", None, (A_PASS,), fixes),)
