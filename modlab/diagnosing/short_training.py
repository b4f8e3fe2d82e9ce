"""A short training: a copy of the model and of its optimizers takes some steps on the batch, watched, and the table of causes is asked."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from torch.nn import Module
from torch.optim import Optimizer

from modlab.causes.symptoms import Symptoms
from modlab.causes.table import causes
from modlab.diagnosing.trials import Bench
from modlab.inspection.optimizers import step_all
from modlab.records.finding import Finding
from modlab.records.watch import WatchRecord
from modlab.statistics.memory import deepcopied
from modlab.watching.watcher import Watcher

STEPS, SECONDS = 60, 10.0
"""Steps that it takes at most, and seconds."""

ENOUGH = 8
"""Steps below which nothing is concluded."""

LEARNT = 0.1
"""Of the loss of a constant answer: a model that begins below it is trained already."""

KNOWS = 0.8
"""Of it: below that a model has learned something, and small steps may be all that is left."""


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
    except Exception:  # noqa: BLE001 - the other checks say what is wrong with a pass
        return ()
    if record is None or record.steps < ENOUGH:
        return ()
    begin = Symptoms(record)
    if begin.has_baseline and begin.start < LEARNT * begin.baseline:
        return ()  # it is trained: what shows in first steps cannot be seen any more
    knows = begin.has_baseline and begin.start < KNOWS * begin.baseline
    planned = 0 < begin.group.rate < begin.group.initial / 2  # by a schedule, which steps in the loop alone
    return tuple(one for one in causes(begin) if not ((knows or planned) and one.kind == "rate too low"))


def _trained(bench: Bench, optimizers: Sequence[Optimizer]) -> WatchRecord | None:
    model, steppers = _copies(bench, optimizers)
    watcher = Watcher(model, [*steppers], 1.0, one_batch=True)
    watcher.begin()
    try:
        _train(bench, model, steppers)
    finally:
        watcher.end("ended")
    return None if watcher.error else watcher.record()


def _copies(bench: Bench, optimizers: Sequence[Optimizer]) -> tuple[Module, list[Any]]:
    """The model and its optimizers, which hold the parameters of that copy."""
    model, steppers = deepcopied((bench.model, [*optimizers]))  # together, so that these hold the copy's parameters
    return model.train(bench.model.training), steppers


def _train(bench: Bench, model: Module, steppers: Sequence[Any]) -> None:
    def closure() -> Any:
        for one in steppers:
            one.zero_grad()
        loss = bench.value(bench.output(model))
        loss.backward()
        return loss

    started = time.perf_counter()
    for _ in range(STEPS):
        step_all(steppers, closure)
        if time.perf_counter() - started > SECONDS:
            return
