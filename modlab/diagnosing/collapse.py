"""Collapse: samples differ on their way in, and no longer on their way out; where the difference is lost."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import Module

from modlab.diagnosing import batches
from modlab.diagnosing.outcomes import NotRunError, record
from modlab.diagnosing.trials import Bench
from modlab.inspection.findings.layer_families import CONVOLUTIONS
from modlab.inspection.findings.subject import ModuleSite
from modlab.records.finding import ExperimentRecord, Outcome, Remedy
from modlab.running.listener import Listener
from modlab.running.values import mapped
from modlab.watching import axes
from modlab.watching.units import is_silenced

GONE = 1e-6
"""Samples are the same if they lie apart by less than this fraction of their size."""
THERE = 1e-3
"""They differ if they lie apart by more than this fraction."""
TINY = 1e-3
"""Weights are tiny if their spread, in units of 1 / sqrt(inputs), is below this."""
DEEP = 6
"""So many saturating activations make a net in which a signal vanishes."""
_RECTIFIERS = (nn.ReLU, nn.ReLU6, nn.Threshold, nn.Hardtanh)
_SATURATING = (nn.Sigmoid, nn.Tanh, nn.Hardsigmoid, nn.Softsign, nn.LogSigmoid)


class Size(NamedTuple):
    """How large the numbers of a tensor are, how far samples lie apart, relative to those that differ, and which is the greatest."""

    size: float
    share: float
    high: float = math.inf


class Passage(NamedTuple):
    """A call of a module."""

    site: ModuleSite
    took: Size
    gave: Size


def collapse(bench: Bench) -> ExperimentRecord:
    """Where samples differ, the outputs do."""
    bench.evaluate()
    first = next((tensor for tensor in batches.tensors(bench.inputs) if tensor.dim()), None)
    if first is None or first.shape[0] < 4 or not bool((first != first[:1]).any()):
        raise NotRunError("samples equal")
    passages, output = _passages(bench, int(first.shape[0]))
    ends = [_size(tensor, int(first.shape[0])) for tensor in batches.tensors(output)]
    sizes = [one for one in ends if one is not None]
    if not sizes:
        raise NotRunError("no entry for each sample")
    if any(one.share > GONE for one in sizes):
        return record("collapse", "passed", "outputs differ")
    above = {id(site.parent) for site in (one.site for one in passages)}
    return _told(bench, passages, [one for one in passages if id(one.site) not in above])


def _passages(bench: Bench, samples: int) -> tuple[list[Passage], Any]:
    found: list[Passage] = []

    def note(module: Module, args: Any, kwargs: Any, output: Any) -> None:
        site = bench.subject.by_module.get(id(module))
        took, gave = (next(filter(None, (_size(t, samples) for t in batches.tensors(one))), None) for one in ((args, kwargs), output))
        if site is not None and took is not None and gave is not None:
            found.append(Passage(site, took, gave))

    return found, Listener(leave=note).during(bench.steadily)


def _size(tensor: Tensor, samples: int) -> Size | None:
    if tensor.is_nested or tensor.layout is not torch.strided or not tensor.dim() or tensor.shape[0] != samples or not tensor.numel():
        return None
    rows = tensor.detach().double().flatten(1) if tensor.dim() > 1 else tensor.detach().double()[:, None]
    if not bool(rows.isfinite().any()):
        return None
    rows = torch.where(rows.isfinite(), rows, 0.0)  # a mask leaves minus infinity
    apart, largest = rows.amax(0) - rows.amin(0), rows.abs().amax(0)
    differing = largest[apart > 0]  # a mask of large numbers is the same in all samples
    share = float(apart.max() / differing.max()) if len(differing) else 0.0
    return Size(float(largest.max()), share, float(rows.max()))


def _told(bench: Bench, passages: list[Passage], inner: list[Passage]) -> ExperimentRecord:
    """The first step at which samples stop to differ, or the many on which the difference fades."""
    at, kind, within = _lost(bench, passages, inner)
    if kind == "a layer of zeros":
        return record("collapse", "unclear", kind, site=None if at is None else at.site)
    facts: dict[str, Any] = {"module": "" if at is None else at.site.label or "(root)", "within": within, "why": kind}
    if at is not None:
        facts |= {"took": at.took.size, "gave": at.gave.size}
    outcome: Outcome = "unclear" if kind == "collapse" else "failed"  # a graph or a set may be meant to have one answer
    return record("collapse", outcome, kind, Remedy(kind), site=None if at is None else at.site, **facts)


def _lost(bench: Bench, passages: list[Passage], inner: list[Passage]) -> tuple[Passage | None, str, bool]:
    """Where, why, and whether within a layer: else in what is done between two layers, or bit by bit."""
    before: Passage | None = None
    for one in inner:
        if one.took.share <= GONE and before is not None and before.gave.share > THERE:
            return before, _between(bench, before, one), False
        if (one.took.share > THERE and one.gave.share <= GONE) or (one.took.size > THERE and one.gave.size < GONE * one.took.size):
            return one, _of_layer(bench, one), True
        before = one
    if sum(issubclass(type(one.site.module), _SATURATING) for one in inner) >= DEEP:
        return None, "vanishing gradient", False
    if any(_scale(one.site.module) < TINY for one in inner):
        return None, "weights begin too small", False
    outer = next((one for one in passages if one.took.share > THERE and one.gave.share <= GONE), None)
    return outer, "collapse", True


def _between(bench: Bench, before: Passage, after: Passage) -> str:
    """What is done between two layers: a ReLU by function leaves nothing of what is nowhere above zero, or above a threshold."""
    if after.took.size:
        return "collapse"
    return "dead units" if before.gave.high <= 0 or _is_silenced(bench, after.site.module, given=False) else "overwritten activation"


def _is_silenced(bench: Bench, module: Module, *, given: bool) -> bool:
    """Whether what a module gives, or takes, is what a ReLU or its like left of what a layer gave, which was shifted at most."""
    functions: list[Any] = []

    def note(called: Module, args: Any, kwargs: Any, output: Any) -> None:
        if called is module:
            functions.extend(one.grad_fn for one in batches.tensors(output if given else (args, kwargs)))

    with torch.enable_grad():
        Listener(leave=note).during(bench.output)
    return any(one is not None and is_silenced(one) and any(map(axes.is_layer, axes.before(one))) for one in functions)


def _of_layer(bench: Bench, passage: Passage) -> str:
    module = passage.site.module
    if passage.gave.size == 0 and (issubclass(type(module), _RECTIFIERS) or _is_silenced(bench, module, given=True)):
        return "dead units"
    if issubclass(type(module), nn.RNNBase):
        return "vanishing gradient"
    scale = _scale(module)
    if scale == math.inf:
        return "overwritten activation"
    return "a layer of zeros" if not scale else "weights begin too small" if scale < TINY else "collapse"


def _scale(module: Module) -> float:
    """How large its weights are, in units of 1 / sqrt(inputs); infinite if it has none."""
    if not issubclass(type(module), (nn.Linear, nn.Embedding, *CONVOLUTIONS)):
        return math.inf
    weight = cast(Tensor, module.weight).detach().double()
    return float(weight.square().mean().sqrt()) * math.sqrt(weight[0].numel())


HEARD = 1e-3
"""What is told has no effect if the outputs move by less than this fraction of what they vary by."""


def told(bench: Bench) -> ExperimentRecord:
    """A denoiser that is told one number of each sample answers otherwise to another number."""
    bench.evaluate()
    first, *others = batches.tensors(bench.inputs)
    target = bench.target
    if not issubclass(type(target), Tensor) or first.shape != target.shape or bool((first == target).all()):
        raise NotRunError("no level")
    level = next((one for one in others if one.dim() == 1 and len(one) == len(first) and bool((one != one[0]).any())), None)
    if level is None:
        raise NotRunError("no level")
    before, after = (
        next((one for one in batches.tensors(bench.steadily(inputs)) if one.shape == first.shape), None)
        for inputs in (bench.inputs, mapped(bench.inputs, lambda tensor: tensor.sort().values.flip(0) if tensor is level else tensor))
    )
    if before is None or after is None or not bool(before.std() > 0):
        raise NotRunError("no level")
    moved = float((before - after).abs().max() / before.std())
    if moved > HEARD:
        return record("told", "passed", "hears the level")
    kind = "noise level hidden"
    return record("told", "failed", kind, Remedy(kind), moved=moved)
