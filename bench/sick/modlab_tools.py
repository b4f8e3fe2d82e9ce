"""What modlab's `watch` and `diagnose` say, read from the data of their results; no sentence is read."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator
from itertools import count
from typing import Any

import modlab
from bench.sick.causes import CAUSES
from bench.sick.tools import Answer, Make, Named
from bench.sick.training import Training
from modlab.running import clock

Found = dict[str, Any]
TICK = 1e-4
"""Seconds that pass for a watch each time it asks for the time."""

# What a kind names: the causes, the likeliest first, and what would settle it. A kind that is not here names no cause.
CHECKS: dict[str, tuple[tuple[str, ...], str]] = {
    "evaluation mode alone": (("eval while training",), ""),
    "never called": (("unused layers",), ""),
    "none trainable": (("frozen",), ""),
    "gradients taken away": (("zeroed before step",), ""),
    "parameters without a gradient": (("detached", "unused layers"), "modlab.trace(…).why(path)"),
    "no gradient seen": (("detached", "without grad"), "modlab.trace(…).why(path)"),
    "no optimizer": (("no step",), ""),
    "holds others": (("another models optimizer",), ""),
    "holds none": (("another models optimizer",), ""),
    "not held": (("not in the optimizer",), ""),
    "unregistered weights": (("hidden layers",), ""),
    "late parameters not held": (("not in the optimizer",), ""),
    "steps too small": (("too few digits",), ""),
}
ALERTS: dict[str, tuple[tuple[str, ...], str]] = {
    "not owned": (("not in the optimizer",), ""),
    "no gradient": (("detached", "unused layers"), "modlab.trace(…).why(path)"),
    "dead": (("dead units",), ""),
    "exploding": (("weights begin too large", "exploding recurrence"), "the weights' scale in modlab.state(model)"),
    "vanishing": (("vanishing gradient",), ""),
    "rounding": (("too few digits",), ""),
    "not zeroed": (("no zero grad",), ""),
    "saturated": (("weights begin too large", "inputs not scaled"), "modlab.measure(inputs)"),
}
MISTAKES: dict[str, tuple[tuple[str, ...], str]] = {
    "hidden": (("hidden layers",), ""),
    "no longer a parameter": (("hidden layers", "detached"), "modlab.tree(model)"),
    "should be a parameter": (("hidden layers",), ""),
    "in no optimizer": (("not in the optimizer",), ""),
    "replaced since": (("another models optimizer",), ""),
    "not of this model": (("another models optimizer",), ""),
    "held twice": (("two optimizers",), ""),
    "frozen, in an optimizer": (("frozen",), ""),
    "misspelt requires_grad": (("frozen",), ""),
    "plain switch": (("frozen",), ""),
    "learning rate 0": (("rate too low",), ""),
    "several learning rates": (("groups swapped",), ""),
    "all zero": (("all weights equal",), ""),
    "all zero, in a row": (("all weights equal",), ""),
    "wild scale": (("weights begin too large",), ""),
    "in evaluation mode": (("eval while training",), ""),
    "mixed modes": (("eval while training",), ""),
    "dropout 1": (("too much dropout",), ""),
    "nothing between": (("no nonlinearity",), ""),
    "batch of one": (("batch norm of one",), ""),
    "shapes differ in the loss": (("broadcast",), ""),
    "sigmoid twice": (("sigmoid twice",), ""),
    "two parameters share one memory": (("shared by mistake",), ""),
}
EXPERIMENTS: dict[str, tuple[tuple[str, ...], str]] = {
    "no graph": (("detached", "without grad"), "modlab.trace(…).why(path)"),
    "parameters without a good gradient": (("detached", "unused layers"), "modlab.trace(…).why(path)"),
    "samples mixed": (("wrong axes", "batch first mixed up"), "shapes in modlab.trace(model)(inputs)"),
    "blind": (("constant inputs",), ""),
    "blind to this batch": (("constant inputs",), ""),
    "softmax twice": (("softmax before cross entropy",), ""),
    "no log-probabilities": (("no log",), ""),
}
# Where a NaN was born, by the facts of the alert.
BIRTHS: dict[str, tuple[str, ...]] = {
    "the batch": ("not a number in data",),
    "the weights": ("not finite by the rate",),
}


def watch(make: Make) -> Answer:
    """`modlab.watch` at its defaults, around the run."""
    return _watched(make())[0]


def diagnose(make: Make) -> Answer:
    """`modlab.diagnose` on the training before its first step, with its first batch and its loss."""
    training = make()
    with _quiet():
        return _diagnosed(modlab.diagnose(training.model, training.optimizers, batch=training.batch(0), loss=training.criterion))


def modlab_answers(make: Make) -> dict[str, Answer]:
    """`modlab.watch` at its defaults around the run, `modlab.diagnose` before it, and both: `w.diagnose()` after it.

    The latter gets the batch and loss that the watch kept. Where it could keep none, it gets those of the training if they are what its
    loop uses; else the model is not run.
    """
    training = make()
    first, w = _watched(training)
    with _quiet():
        found = w.diagnose()
        if not found.record.batched and training.step is None:
            found = w.diagnose(batch=training.batch(0), loss=training.criterion)
        second = _diagnosed(found)
    text = f"{first.text}\n{second.text}"
    named = [*second.named]
    for one in first.named:
        _add(one, named)
    together = Answer(named, [*first.hints, *second.hints], first.alarm or second.alarm, text)
    return {"watch": first, "diagnose": diagnose(make), "both": together}


def _diagnosed(found: Any) -> Answer:
    named: list[Named] = []
    hints: list[Named] = []
    data, alarm = found.to_dict(), False
    for one in data["records"]:
        is_wrong = one.get("outcome") == "failed" or (one["severity"] == "broken" and "outcome" not in one)
        alarm |= is_wrong
        if one["kind"] in CAUSES:
            _add(_cause(one), named if is_wrong or "tier" in one["facts"] else hints)
        else:
            _count(one, EXPERIMENTS if "outcome" in one else MISTAKES, named if is_wrong else hints)
    return Answer(named, [cause for one in hints for cause in one.causes], alarm, str(data.get("headline", "")))


def _cause(found: Found) -> Named:
    facts = found["facts"]
    rival = (facts["rival"],) if facts.get("rival") else ()
    return Named((found["kind"], *rival), str(facts.get("settle", "")), found.get("path", ""))


def _watched(training: Training) -> tuple[Answer, Any]:
    with _quiet(), _fixed_pace(), modlab.watch(training.model, training.optimizers) as w:
        training.run()
    return said(w), w


def said(w: modlab.Watch) -> Answer:
    """What a watch says."""
    data = w.to_dict()
    named: list[Named] = []
    hints: list[Named] = []
    alarm = False
    for found in data["verdict"]["findings"]:
        if found["kind"] in CAUSES and "tier" in found["facts"]:
            _add(_cause(found), named)
    for check in data["verdict"]["checks"]:
        is_wrong = check["state"] == "broken"
        alarm |= is_wrong
        _count(check, CHECKS, named if is_wrong else hints)
    for alert in data["alerts"]:
        is_wrong = alert["severity"] == "broken" and not alert["over"]
        alarm |= is_wrong
        if alert["kind"] in ("nan", "inf"):
            born = BIRTHS.get(str(alert["facts"].get("where", "")), ())
            _add(Named(born, path=alert["path"]) if born else None, named)
        else:
            _count(alert, ALERTS, named if is_wrong else hints)
    for found in data["verdict"]["findings"]:
        alarm |= found["severity"] == "broken"
        _count(found, {"dead units": ALERTS["dead"]}, named if found["severity"] == "broken" else hints)
    return Answer(named, [cause for one in hints for cause in one.causes], alarm, w.headline)


def _count(found: Found, known: dict[str, tuple[tuple[str, ...], str]], into: list[Named]) -> None:
    causes, settle = CHECKS["gradients taken away"] if found["facts"].get("taken") else known.get(found["kind"], ((), ""))
    _add(Named(causes, settle, found.get("path", "")) if causes else None, into)


def _add(named: Named | None, into: list[Named]) -> None:
    """Each set of causes once: the same in three layers is one thing that is said."""
    if named is not None and all(named.causes != one.causes for one in into):
        into.append(named)


@contextlib.contextmanager
def _fixed_pace() -> Iterator[None]:
    """Which steps a watch looks at hangs on how long they take: by this clock they are the same ones on each machine, busy or not."""
    now, clock.now = clock.now, count(0.0, TICK).__next__
    try:
        yield
    finally:
        clock.now = now


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
