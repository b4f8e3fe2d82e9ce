"""Inputs as the first layer gets them: numbers, the same for all samples, or on a scale on which nothing is learned."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import Module

from modlab.diagnosing import batches
from modlab.diagnosing.outcomes import NotRunError, record
from modlab.diagnosing.trials import Bench
from modlab.inspection.findings.layer_families import AVERAGING, CONVOLUTIONS
from modlab.inspection.findings.subject import ModuleSite
from modlab.records.finding import ExperimentRecord, Remedy
from modlab.running.listener import Listener

FAR, TOO_FAR = 20.0, 100.0
"""Root mean square of what the first layer gets: above the first it is worth a look, above the second it is wrong."""
NOTHING = 1e-2
"""Largest magnitude of what the first layer gets, below which it counts as nothing."""
HUGE = 0.999
"""Fraction of all squares that one feature may have."""
SAMPLES = 4
"""With fewer samples they may be the same by chance."""
NORMS = (*AVERAGING, nn.GroupNorm, nn.LayerNorm, *([nn.RMSNorm] if hasattr(nn, "RMSNorm") else []))
_WEIGHING = (nn.Linear, nn.RNNBase, *CONVOLUTIONS)


def inputs(bench: Bench) -> ExperimentRecord:
    """The inputs are numbers that differ from sample to sample, and about 1 in size where the first layer gets them."""
    given = [tensor for tensor in batches.tensors(bench.inputs) if tensor.dim() and tensor.layout is torch.strided and not tensor.is_nested]
    spoilt = _not_finite("input", given) or _not_finite("target", [*batches.tensors(bench.target)])
    missing = spoilt is not None and spoilt.facts["which"] == "target" and not spoilt.facts.get("inf")
    if spoilt is not None and not (missing and _leaves_them_out(bench)):
        return spoilt
    if not given or not given[0].numel():
        raise NotRunError("no dimension for samples")
    return _constant(bench, given) or _scaled(bench) or record("inputs", "passed", "inputs fit")


def _not_finite(which: str, tensors: list[Tensor]) -> ExperimentRecord | None:
    """NaN in the inputs or targets, or infinity in the targets or in part of a column (a mask holds infinities on purpose)."""
    for tensor in tensors:
        if not tensor.is_floating_point() or tensor.is_nested or tensor.layout is not torch.strided:
            continue
        nan, inf = int(tensor.isnan().sum()), int(tensor.isinf().sum())
        if nan or (inf and (which == "target" or inf <= 0.01 * tensor.numel())):
            kind = "not a number in data"
            return record("inputs", "failed", kind, Remedy(kind), which=which, nan=nan, inf=inf, count=tensor.numel())
    return None


def _leaves_them_out(bench: Bench) -> bool:
    """Whether loss and gradients are numbers all the same, as of measurements of which some are missing."""
    value = bench.value(bench.output())
    trained = [held.tensor for held in bench.subject.parameters if held.tensor.requires_grad]
    if not (issubclass(type(value), Tensor) and value.numel() == 1 and value.requires_grad and trained):
        return False
    grads = [grad for grad in torch.autograd.grad(value, trained, allow_unused=True) if grad is not None]
    return bool(value.isfinite()) and all(bool(grad.isfinite().all()) for grad in grads)


def _constant(bench: Bench, given: list[Tensor]) -> ExperimentRecord | None:
    samples = int(given[0].shape[0])
    rows = [tensor for tensor in given if tensor.shape[0] == samples]
    targets = [tensor for tensor in batches.tensors(bench.target) if tensor.dim() and tensor.shape[0] == samples]
    if samples < SAMPLES or any(bool((tensor != tensor[:1]).any()) for tensor in rows):
        return None
    if all(not tensor.is_floating_point() and bool((tensor == tensor.flatten()[0]).all()) for tensor in rows):
        return None  # one token, of which the check of embeddings tells
    kind, zeros = "constant inputs", int(not any(bool(tensor.any()) for tensor in rows))
    told_apart = any(bool((tensor != tensor[:1]).any()) for tensor in targets)
    return record("inputs", "failed" if told_apart else "unclear", kind, Remedy(kind), samples=samples, zeros=zeros, apart=int(told_apart))


def _scaled(bench: Bench) -> ExperimentRecord | None:
    """The scale of what the first layer with weights gets; a norm right behind it sets any scale to 1."""
    called: list[tuple[ModuleSite, Tensor]] = []

    def note(module: Module, args: tuple[Any, ...]) -> None:
        site = bench.subject.by_module.get(id(module))
        if site is not None and issubclass(type(module), (*_WEIGHING, *NORMS, nn.Embedding)) and len(called) < 2:
            called.extend((site, tensor.detach()) for tensor in [*batches.tensors(args)][:1])

    Listener(note).during(bench.steadily)
    if not called or not issubclass(type(called[0][0].module), _WEIGHING) or not called[0][1].is_floating_point():
        return None
    if len(called) > 1 and issubclass(type(called[1][0].module), NORMS):
        return None
    return _told(*called[0])


def _told(site: ModuleSite, tensor: Tensor) -> ExperimentRecord | None:
    size, largest = float(tensor.double().square().mean().sqrt()), float(tensor.abs().max())
    feature, share = _largest_feature(site.module, tensor.double())
    facts: dict[str, Any] = {"size": size, "largest": largest, "class": site.type}
    if share > HUGE and size > FAR:
        kind = "one huge feature"
        return record("inputs", "failed", kind, Remedy(kind), site=site, feature=feature, share=share, **facts)
    if size > FAR:
        kind = "inputs not scaled"
        return record("inputs", "failed" if size > TOO_FAR else "unclear", kind, Remedy(kind), site=site, **facts)
    if 0 < largest < NOTHING:
        return record("inputs", "failed", "inputs vanish", Remedy("inputs not scaled"), site=site, **facts)
    return None


def _largest_feature(module: Module, tensor: Tensor) -> tuple[int, float]:
    """The feature or channel with the largest numbers, and its share of all squares."""
    dim = 1 if issubclass(type(module), CONVOLUTIONS) and tensor.dim() == cast(Tensor, module.weight).dim() else -1
    squares = tensor.movedim(dim, 0).flatten(1).square().sum(1)
    if len(squares) < 2 or not float(squares.sum()):
        return 0, 0.0
    return int(squares.argmax()), float(squares.max() / squares.sum())
