"""Which parameters a gradient arrives at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from modlab import format
from modlab.diagnosing import traced_pass
from modlab.diagnosing.outcomes import NotRunError, record
from modlab.diagnosing.trials import Bench
from modlab.inspection.findings.grouping import FindingGroup, cover
from modlab.inspection.findings.subject import Held
from modlab.records.finding import ExperimentRecord
from modlab.records.trace import Reason
from modlab.running.randomness import Meter
from modlab.statistics import measure_tensor

PASSES = 12
"""In how many passes a parameter may have its turn, where random numbers decide which module is called."""


def gradients(bench: Bench) -> ExperimentRecord:
    """Every trained parameter gets a gradient, and one that is not zero throughout."""
    trained = [held for held in bench.subject.trained if held.tensor.is_leaf]
    if not trained:
        raise NotRunError("no parameter requires a gradient")
    meter = Meter(thorough=True)
    value = bench.value(bench.output())
    if not value.requires_grad:
        return _nowhere(bench, trained)
    trained = [held for held in trained if held.tensor.requires_grad]  # forward itself may freeze
    found = [*torch.autograd.grad(value, [held.tensor for held in trained], allow_unused=True)]
    passes = _again(bench, trained, found) if meter.used() else 1
    stats = [None if grad is None else measure_tensor(grad, histogram=False) for grad in found]
    pairs = [*zip(trained, stats, strict=True)]
    lacking = [held for held, one in pairs if one is None]
    why = traced_pass.reasons(bench) if lacking else {}
    lacking = [held for held in lacking if _kind(why, held) != "frozen"]  # by forward itself
    bad = [held for held, one in pairs if one is not None and one.nan + one.posinf + one.neginf > 0]
    zero = [held for held, one in pairs if one is not None and one.measured and one.count and one.zeros == one.count]
    numbers = (("trained", float(len(trained))), ("none", float(len(lacking))), ("zero", float(len(zero))), ("not finite", float(len(bad))))
    if not (lacking or bad or zero):
        several = f", in one or more of {passes} passes: chance decides what is called" if passes > 1 else ""
        what = f"{'all' if len(trained) > 1 else 'the'} {format.plural(len(trained), 'parameter')}{several}"
        return record("gradients", "passed", what, numbers=numbers)
    return _of_gradients(trained, (lacking, bad, zero), why, numbers)


def _again(bench: Bench, trained: list[Held], found: list[Any]) -> int:
    """Where chance decides what is called, as in stochastic depth: more passes, until each parameter had its gradient; how many."""
    passes = 1
    while passes < PASSES and any(grad is None for grad in found):
        lacking = [i for i, grad in enumerate(found) if grad is None]
        value = bench.value(bench.output())
        passes += 1
        if value.requires_grad:
            for i, grad in zip(lacking, torch.autograd.grad(value, [trained[i].tensor for i in lacking], allow_unused=True), strict=True):
                found[i] = grad
    return passes


def _nowhere(bench: Bench, trained: list[Held]) -> ExperimentRecord:
    """The loss has no graph."""
    why = traced_pass.reasons(bench)
    told = next((why[held.path] for held in reversed(trained) if _kind(why, held) not in ("", "not called", "off the path")), None)
    reason = "The output was detached, computed under no_grad, turned into numbers (.item(), .numpy(), argmax), or does not depend on a "
    return record(
        "gradients",
        "failed",
        "no parameter gets a gradient: the loss has no grad_fn, so nothing leads back to them",
        f"{told.path}: {told.text}." if told is not None else f"{reason}trained parameter.",
        advice=_advice(told.kind) if told is not None else _TRACE.format(path=trained[-1].path),
    )


def _of_gradients(
    trained: list[Held], kinds: tuple[list[Held], list[Held], list[Held]], why: dict[str, Reason], numbers: tuple[tuple[str, float], ...]
) -> ExperimentRecord:
    lacking, bad, zero = kinds
    parts: list[tuple[Sequence[FindingGroup], str]] = []
    reasons: list[str] = []
    worst = lacking or bad or zero
    fix = advice = ""
    if lacking:
        groups = cover(lacking, trained, "parameter")
        parts.append((groups, f"{_get(groups)} no gradient"))
        told = _told(lacking, why)
        reasons += [f"{reason.path}: {reason.text}." for reason in told] or ["What it gives does not reach the loss."]
        advice = _advices(told) if told else _TRACE.format(path=lacking[0].path)
    if bad:
        groups = cover(bad, trained, "parameter")
        parts.append((groups, f"{_get(groups)} a gradient with NaN or Inf"))
        reasons.append("A log or a square root meets 0, a division meets 0, or float16 overflows; one step with it ends the training.")
        fix = "" if lacking else "torch.autograd.set_detect_anomaly(True)  # the next backward() says where it came from"
    if zero:
        groups = cover(zero, trained, "parameter")
        parts.append((groups, f"{_get(groups)} a gradient that is zero throughout"))
        reasons.append("Zero for this batch: dead units, a weight of zero behind it, or a mask. It may be otherwise for another batch.")
    worst_groups, first = parts[0]
    group = worst_groups[0]
    beside = group.beside(first) if len(worst_groups) == 1 else f"{_names(worst_groups)} {first}"
    whole = [f"{_names(its)} {said}" for its, said in parts]
    left_out = bool(lacking) and all(_kind(why, held) in _LEFT_OUT for held in lacking)
    if left_out:
        reasons.append("Meant for what only some batches use: a mask token, an expert, another branch.")
    return record(
        "gradients",
        "failed" if bad or (lacking and not left_out) else "unclear",
        "; ".join(whole),
        " ".join(reasons),
        fix,
        group.site,
        path=group.path,
        places=tuple(held.path for held in worst) if len(worst) > 1 else (),
        numbers=numbers,
        advice=advice,
        beside="; ".join([beside, *whole[1:]]),
    )


def _get(groups: Sequence[FindingGroup]) -> str:
    return "get" if len(groups) > 1 else groups[0].verb("gets", "get")


def _names(groups: Sequence[FindingGroup]) -> str:
    more = f" and {format.plural(len(groups) - 2, 'more place')}" if len(groups) > 2 else ""
    return " and ".join(group.words for group in groups[:2]) + more


_LEFT_OUT = ("", "not called", "not used", "off the path", "cannot be seen")
"""Kinds of reasons that may be otherwise with another batch, or are not known."""

TOLD = 3  # reasons
_TRACE = "modlab.trace(model) around a pass, its loss and backward(): t.why({path!r}) says where the gradient is lost."
_ADVICE = {
    "no_grad": "Take it out of `with torch.no_grad()` there.",
    "inference_mode": "Take it out of `with torch.inference_mode()` there.",
    "detached": "Leave the detach (or what makes plain numbers of it) away there.",
    "off the path": "Let what it gives go into the output, or leave it away.",
    "not called": "Call it in forward, or leave it away.",
    "not used": "Use it in forward, or leave it away.",
    ".forward called": "Call the module itself, not its .forward.",
}


def _advice(kind: str) -> str:
    return _ADVICE.get(kind, "")


def _advices(told: list[Reason]) -> str:
    """What to do in each case; with names, where there are several."""
    if len(told) == 1:
        return _advice(told[0].kind)
    return " ".join(f"{reason.path}: {_advice(reason.kind)}" for reason in told if _advice(reason.kind))


def _kind(why: dict[str, Reason], held: Held) -> str:
    return why[held.path].kind if held.path in why else ""


def _told(lacking: Sequence[Held], why: dict[str, Reason]) -> list[Reason]:
    """The first reason of each kind."""
    told: dict[str, Reason] = {}
    for held in lacking:
        reason = why.get(held.path)
        if reason is not None and reason.kind not in ("gradient", "zero"):
            told.setdefault(reason.kind, reason)
    return [*told.values()][:TOLD]
