"""The flow of gradients: which parameters receive one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from modlab.diagnosing import lost_gradients, traced_pass
from modlab.diagnosing.outcomes import NotRunError, record
from modlab.diagnosing.trials import Bench
from modlab.inspection import stores
from modlab.inspection.findings.grouping import cover
from modlab.inspection.findings.subject import Held
from modlab.records.finding import ExperimentRecord, Fact, Outcome, Remedy
from modlab.records.trace import Reason
from modlab.running.randomness import Meter
from modlab.statistics import measure_tensor

PASSES = 12
"""Maximum number of passes for all parameters to be used, if random numbers decide which modules are called."""


def gradients(bench: Bench) -> ExperimentRecord:
    """Every trained parameter gets a gradient that is not all zeros, in evaluation mode or else in training mode."""
    found = _gradients(bench)
    if found.outcome == "passed" or stores.mode(bench.model):
        return found
    bench.model.train()  # a sample that is drawn there may be an argmax here
    try:
        return _gradients(bench)
    except (RuntimeError, ValueError):  # as batch norms raise it that get one sample
        return found


def _gradients(bench: Bench) -> ExperimentRecord:
    trained = [held for held in bench.subject.trained if held.tensor.is_leaf]
    if not trained:
        raise NotRunError("nothing to train")
    meter = Meter(thorough=True)
    value = bench.value(bench.output())
    if not value.requires_grad:
        return _nowhere(bench, trained)
    trained = [held for held in trained if held.tensor.requires_grad]  # forward itself may freeze some
    found = [*torch.autograd.grad(value, [held.tensor for held in trained], allow_unused=True)]
    passes = _again(bench, trained, found) if meter.used() else 1
    stats = [None if grad is None else measure_tensor(grad, histogram=False) for grad in found]
    pairs = [*zip(trained, stats, strict=True)]
    lacking = [held for held, one in pairs if one is None]
    why = traced_pass.reasons(bench) if lacking else {}
    lacking = [held for held in lacking if _kind(why, held) != "frozen"]  # those that forward itself freezes
    bad = [held for held, one in pairs if one is not None and one.nan + one.posinf + one.neginf > 0]
    zero = [held for held, one in pairs if one is not None and one.measured and one.count and one.zeros == one.count]
    counted = {"trained": trained, "none": lacking, "zero": zero, "not finite": bad}
    numbers: dict[str, Any] = {name: float(len(some)) for name, some in counted.items()}
    turned = lost_gradients.replaced(bench, trained, found)
    if turned:
        return _overwritten(trained, turned, numbers)
    if not (lacking or bad or zero):
        return record("gradients", "passed", "gradients arrive", parameters=len(trained), passes=passes, **numbers)
    flat = lost_gradients.flattened(value, zero)
    if flat and not bad:
        return _flattened(bench, trained, [held for held in zero if id(held.tensor) in flat], next(iter(flat.values())), numbers)
    much = bool(lacking) and lost_gradients.is_much(bench, lacking, trained, bench.called())
    return _of_gradients(trained, (lacking, bad, zero), why, numbers, much=much, all_aside=lost_gradients.are_aside(bench, lacking))


def _overwritten(trained: list[Held], turned: list[Held], numbers: dict[str, float]) -> ExperimentRecord:
    """Hooks on parameters make something useless of their gradients."""
    group, kind = cover(turned, trained, "parameter")[0], "gradients overwritten"
    facts: dict[str, Any] = {"places": tuple(held.path for held in turned)} if len(turned) > 1 else {}
    return record(
        "gradients", "failed", kind, Remedy(kind), site=group.site, path=group.path, turned=groups(turned, trained), **facts, **numbers
    )


def _flattened(bench: Bench, trained: list[Held], flat: list[Held], function: str, numbers: dict[str, float]) -> ExperimentRecord:
    """All ways from the loss to these parameters lead through a function without a slope."""
    group, begin = cover(flat, trained, "parameter")[0], lost_gradients.flattening(bench, function)
    facts: dict[str, Any] = {"places": tuple(held.path for held in flat)} if len(flat) > 1 else {}
    facts |= {"flat": groups(flat, trained), "function": function, "begin": "" if begin is None else begin.label}
    kind = "no gradient through"
    return record("gradients", "failed", kind, Remedy(kind), site=group.site, path=group.path, **facts, **numbers)


def _again(bench: Bench, trained: list[Held], found: list[Any]) -> int:
    """If chance decides what is called (stochastic depth), repeat until each parameter gets a gradient; return the number of passes."""
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
    kind = "no graph" if told is None else lost_gradients.of_reason(told) or "no graph"
    fix = Remedy("ask the trace") if told is None else _remedy(kind)
    facts: dict[str, Any] = {"reasons": _listed([told] if told is not None else []), "asked": trained[-1].path}
    return record("gradients", "failed", kind, fix, nowhere=1, **facts)


def _of_gradients(
    trained: list[Held],
    kinds: tuple[list[Held], list[Held], list[Held]],
    why: dict[str, Reason],
    numbers: dict[str, float],
    *,
    much: bool,
    all_aside: bool,
) -> ExperimentRecord:
    lacking, bad, zero = kinds
    worst = lacking or bad or zero
    group = cover(worst, trained, "parameter")[0]
    facts: dict[str, Any] = {name: groups(some, trained) for name, some in zip(WRONG, kinds, strict=True) if some}
    if len(worst) > 1:
        facts["places"] = tuple(held.path for held in worst)
    told = _told(lacking, why)
    facts |= {"left out": bool(lacking) and all(_kind(why, held) in _LEFT_OUT for held in lacking), "reasons": _listed(told)}
    cause = lost_gradients.of_reasons([why[held.path] for held in lacking if held.path in why])
    fixes = []
    if lacking:
        fixes.append(_remedy(cause) if told else Remedy("ask the trace"))
        facts["asked"] = lacking[0].path
    elif bad:
        fixes.append(Remedy(code="torch.autograd.set_detect_anomaly(True)  # the next backward() says where it came from"))
    lost = bool(lacking) and not facts["left out"] and not all_aside
    outcome: Outcome = "failed" if bad or much or lost else "unclear"
    kind = cause or "parameters without a good gradient"
    return record("gradients", outcome, kind, *fixes, site=group.site, path=group.path, **facts, **numbers)


def _remedy(cause: str) -> Remedy:
    """What a function without a gradient gives was detached by nobody."""
    return Remedy(cause if cause == "no gradient through" else "gradient lost")


def groups(some: Sequence[Held], trained: Sequence[Held]) -> tuple[dict[str, Fact], ...]:
    """Some of the trained parameters as facts, those of one module together."""
    return tuple({"path": group.path, **group.facts} for group in cover(some, trained, "parameter"))


def _listed(told: Sequence[Reason]) -> tuple[dict[str, Any], ...]:
    return tuple({"path": one.path, "kind": one.kind, "facts": dict(one.facts)} for one in told)


WRONG = ("without", "spoilt", "flat")
"""What may be wrong with a gradient: it is missing, contains non-finite values, or is all zeros."""

_LEFT_OUT = ("", "not called", "not used", "off the path", "cannot be seen")
"""Kinds of reasons that may change with a different batch, or are unknown."""

TOLD = 3  # reasons


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
