"""Overfit one batch: a copy of the model learns it by heart."""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module

from modlab.diagnosing import batches, traced_pass
from modlab.diagnosing.duplicates import trained
from modlab.diagnosing.outcomes import NotRunError, record
from modlab.diagnosing.trials import Bench, without_gradients
from modlab.inspection import stores
from modlab.records.finding import ExperimentRecord, Remedy
from modlab.statistics.memory import is_gone

STEPS = 60
LIMIT_S = 20.0
LEARNT = 0.01
"""Fraction of the first loss at which a batch counts as learned, and training stops."""
TELLS_APART = 0.9
"""Fraction of the loss of a constant answer above which the model has not learned to distinguish samples."""
KNOWS = 0.7
"""Fraction of the loss of a constant answer below which a model that does not get better knows the batch already."""
ROUNDED = 1e-6
"""A loss below which nothing is left to learn, if it is not small by its units."""
RATES = (1e-2, 1e-1, 1e-3)
FURTHER = 1.5
"""How much further than without a step a loss has to fall, where random numbers move it: the least of sixty draws varies by a quarter."""


def overfit(bench: Bench) -> ExperimentRecord:
    """A copy learns the batch by heart; the model itself takes no step."""
    if bench.climbs:
        raise NotRunError("climbs")
    best: Learning | None = None
    for rate in RATES:
        now = bench.kept(lambda rate=rate: _learnt(bench, rate))  # type: ignore[misc]
        if best is None or not now.least >= best.least:
            best = now
        if math.isfinite(now.least) and _share(now.first, now.least) <= 0.5:
            break
    assert best is not None
    first, least, _, alike = best
    numbers: dict[str, Any] = {"first": first, "least": least, "steps": float(STEPS)}
    if not math.isfinite(first) or not math.isfinite(least):
        return record(
            "overfit", "failed", "loss becomes no number", Remedy("detect anomaly"), maker=now.made[0], where=now.made[1], **numbers
        )
    if abs(first) < ROUNDED and not _is_of_small_units(bench, first):
        return record("overfit", "passed", "loss is 0", **numbers)
    share = _share(first, least)
    if LEARNT < share < 1.0 and bench.kept(lambda: _falls_by_chance(bench, least)):
        return record("overfit", "unclear", "falls by chance", **numbers)
    if share <= 0.5:
        if alike is not None and alike >= TELLS_APART:
            fix = Remedy("trace the input")
            return record("overfit", "unclear", "learnt one answer", fix, **{**numbers, "of one answer": alike})
        percent = 0 if first <= 0 else 1 if share <= LEARNT else 10 if share <= 0.1 else 50
        return record("overfit", "passed", "learnt", percent=percent, **numbers)
    known = bench.kept(lambda: _same_for_all(bench, bench.model))
    falls = share < (0.99 if first > 0 else 1.0)  # a loss that may be negative has no known minimum, and may already be at it
    if known is not None and known < KNOWS:
        return record("overfit", "passed" if falls else "unclear", "knows it", **{**numbers, "of one answer": known}, falls=int(falls))
    if falls:
        return record("overfit", "unclear", "learns slowly", **numbers)
    bench.unlearned = True
    return record("overfit", "failed", "does not learn", Remedy(code="modlab.trace(model)  # where does the gradient end?"), **numbers)


def _is_of_small_units(bench: Bench, first: float) -> bool:
    """Whether one answer for all samples would make a loss that is small, too."""
    share = bench.kept(lambda: _same_for_all(bench, bench.model)) if first else None
    return share is not None and share > ROUNDED


def _share(first: float, least: float) -> float:
    """The remaining fraction of the first loss; for a negative one, its decrease is relative to its magnitude."""
    return least / first if first > 0 else 1.0 + (least - first) / (abs(first) or 1.0)


def _same_for_all(bench: Bench, learnt: Module) -> float | None:
    """The loss of the trained copy, relative to that of one answer for all samples; None if that cannot be computed."""
    samples = next((int(tensor.shape[0]) for tensor in batches.tensors(bench.inputs) if tensor.dim() and not tensor.is_nested), 0)
    targets = [tensor for tensor in batches.tensors(bench.target) if tensor.dim() and not tensor.is_nested and len(tensor) == samples]
    if not any(bool((tensor != tensor[:1]).any()) for tensor in targets):
        return None  # no target per sample, or the same for all
    output = without_gradients(lambda: bench.output(learnt))
    if (
        not issubclass(type(output), Tensor)
        or is_gone(output)
        or not output.is_floating_point()
        or not output.dim()
        or output.shape[0] != samples
        or samples < 2
    ):
        return None
    output = output.detach()
    mean = output.mean(0, keepdim=True).expand_as(output).contiguous()
    if bool(torch.equal(output, mean)):
        return 1.0
    own, common = (without_gradients(lambda one=one: float(bench.value(one).detach())) for one in (output, mean))  # type: ignore[misc]
    if own == common:
        return None  # a loss that calls the model itself, and does not look at this output
    if float(output.min()) < 0 < float(output.max()):  # scores, which may be so large that their mean is a worse answer than none
        common = min(common, without_gradients(lambda: float(bench.value(torch.zeros_like(mean)).detach())))
    return own / common if math.isfinite(common) and common > 0 else None


class Learning(NamedTuple):
    """How far some steps have come.

    Attributes:
        first, least: the first loss, and the least one; the last one if that is NaN.
        made: what makes the loss NaN and where, if it does.
        alike: the loss relative to that of one answer for all samples, if the batch was learned but not by heart.
    """

    first: float
    least: float
    made: tuple[str, str] = ("", "")
    alike: float | None = None


def _falls_by_chance(bench: Bench, least: float) -> bool:
    """Whether as many passes without a step come as low: the random numbers of the model, as of its dropout, move the loss."""
    other = _in_training(bench)
    losses: list[float] = []
    started = time.perf_counter()
    while len(losses) <= STEPS and time.perf_counter() - started < LIMIT_S:
        losses.append(float(bench.value(bench.output(other)).detach()))
        if losses[-1] == losses[0] and len(losses) == 2:
            return False  # nothing is drawn
    mean = sum(losses) / len(losses)
    return least > mean - FURTHER * (mean - min(losses))


def _in_training(bench: Bench) -> Module:
    """A copy to train, in train mode."""
    other = trained(bench)
    if not stores.mode(other):
        other.train()
    return other


def _learnt(bench: Bench, rate: float) -> Learning:
    """How far `STEPS` steps of a copy come."""
    other = _in_training(bench)
    parameters = [p for p in other.parameters() if p.requires_grad]
    if not parameters:
        raise NotRunError("nothing to train")
    if any(p.dtype is torch.float16 for p in parameters):
        raise NotRunError("half precision")  # in it Adam divides by 0; who trains such a model steps copies
    if not all(p.is_leaf for p in parameters):
        raise NotRunError("scripted copy")
    optimizer = torch.optim.Adam(parameters, lr=rate)
    losses: list[float] = []
    started = time.perf_counter()
    for step in range(STEPS + 1):
        optimizer.zero_grad()
        value = bench.value(bench.output(other))
        losses.append(float(value.detach()))
        if not math.isfinite(losses[-1]) or step == STEPS or losses[0] == 0 or (losses[-1] <= LEARNT * losses[0] and losses[0] > 0):
            break
        if not value.requires_grad:
            raise NotRunError("no grad_fn")
        value.backward(inputs=parameters)  # but no tensor of the user's that the loss holds
        if all(parameter.grad is None for parameter in parameters):
            raise NotRunError("copy holds the model")
        for parameter in parameters:
            if parameter.grad is not None and parameter.grad.layout is torch.sparse_coo:  # Adam does not accept sparse gradients
                parameter.grad = parameter.grad.to_dense()
        optimizer.step()
        if time.perf_counter() - started > LIMIT_S:
            raise NotRunError("too slow", steps=STEPS)
    if math.isfinite(losses[-1]):
        half_known = LEARNT < _share(losses[0], min(losses)) <= 0.5
        return Learning(losses[0], min(losses), alike=_same_for_all(bench, other) if half_known else None)
    _, made, where = traced_pass.first_nan(bench, other) if math.isnan(losses[-1]) else ("", "", "")
    return Learning(losses[0], losses[-1], (made, where))
