"""Symmetry of units: those that begin equal and get equal gradients stay copies of each other."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from modlab.diagnosing.outcomes import NotRunError, record
from modlab.diagnosing.trials import Bench
from modlab.inspection.findings.grouping import cover
from modlab.inspection.findings.subject import Held
from modlab.inspection.findings.values import is_weight
from modlab.records.finding import ExperimentRecord, Remedy

COPIES = 0.5
"""Fraction of a layer's units that are copies: fewer may be meant."""
ROUNDING = 1e-5
MOVES, STEP = 3, 1e-2
"""Steps after which weights of zero that are not stuck have a gradient, and how far the most moved weight of a layer goes in one."""


def symmetry(bench: Bench) -> ExperimentRecord:
    """No units of a layer are copies of each other, with equal weights and equal gradients."""
    weights = [held for held in bench.subject.trained if held.tensor.is_leaf and held.tensor.dim() > 1 and held.tensor.numel() > 1]
    weights = [held for held in weights if is_weight(held) or not bool(held.tensor.any())]
    suspects = [held for held in weights if _copies(held.tensor.detach())]
    if not weights:
        raise NotRunError("nothing to train")
    if not suspects:
        return record("symmetry", "passed", "units differ")
    grads = torch.autograd.grad(bench.value(bench.output()), [held.tensor for held in suspects], allow_unused=True)
    found = [held for held, grad in zip(suspects, grads, strict=True) if grad is not None and _stay(held, grad)]
    found = [held for held in found if bool(held.tensor.any())] + _asleep(bench, [held for held in found if not bool(held.tensor.any())])
    if not found:
        return record("symmetry", "passed", "units differ")
    group, kind = cover(found, weights, "weight")[0], "all weights equal"
    facts: dict[str, Any] = {"places": tuple(held.path for held in found)} if len(found) > 1 else {}
    facts |= {"units": int(found[0].tensor.shape[0]), "zero": int(not any(bool(held.tensor.any()) for held in found)), "layers": len(found)}
    fix = Remedy(code=f"nn.init.kaiming_uniform_({found[0].code}, a=5 ** 0.5)")
    return record("symmetry", "failed", kind, fix, site=group.site, path=group.path, **facts)


def _copies(weight: Tensor) -> bool:
    """Whether more than `COPIES` of its rows equal its first row."""
    rows = weight.flatten(1)
    return len(rows) > 1 and float((rows == rows[0]).all(1).double().mean()) > COPIES


def _stay(held: Held, grad: Tensor) -> bool:
    """Whether these rows have equal gradients as well; a weight of zeros is stuck if its gradient is zero."""
    if grad.layout is not torch.strided or not bool(grad.isfinite().all()):
        return False
    if not bool(held.tensor.any()):
        return not bool(grad.any()) or (not _is_embedding(held) and _equal(grad.flatten(1), held.tensor.detach().flatten(1)))
    return not _is_embedding(held) and bool(grad.any()) and _equal(grad.flatten(1), held.tensor.detach().flatten(1))


def _asleep(bench: Bench, zeros: list[Held]) -> list[Held]:
    """Those weights of zero that get no gradient even when others have moved: before a last layer of zeros they do, once it learns."""
    trained = [held.tensor for held in bench.subject.trained if held.tensor.is_leaf]
    for _ in range(MOVES if zeros else 0):
        grads = torch.autograd.grad(bench.value(bench.output()), trained, allow_unused=True)
        by_tensor = {id(tensor): grad for tensor, grad in zip(trained, grads, strict=True)}
        zeros = [held for held in zeros if (grad := by_tensor.get(id(held.tensor))) is not None and _stay(held, grad)]
        with torch.no_grad():
            for tensor, grad in zip(trained, grads, strict=True):
                if grad is not None and grad.layout is torch.strided and bool(grad.any()):
                    tensor.data = tensor.detach() - STEP * grad / grad.abs().max()
    return zeros


def _equal(grad: Tensor, rows: Tensor) -> bool:
    copies = grad[(rows == rows[0]).all(1)]
    return len(copies) > 1 and float((copies - copies[0]).abs().max()) <= ROUNDING * float(copies.abs().max())


def _is_embedding(held: Held) -> bool:
    """Whether its rows are tokens, which the batch may treat alike."""
    return issubclass(type(held.site.module), (torch.nn.Embedding, torch.nn.EmbeddingBag))
