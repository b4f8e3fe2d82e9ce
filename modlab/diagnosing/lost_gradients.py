"""Why gradients are lost, in a word: a cause that tells the ways apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from modlab.compat import tensor_hooks
from modlab.diagnosing import batches, graph_leaves
from modlab.diagnosing.duplicates import copied
from modlab.diagnosing.trials import Bench
from modlab.inspection.findings.subject import Held, ModuleSite
from modlab.records.trace import Reason
from modlab.running.listener import Listener

TURNED = 0.1
"""Cosine between a gradient with its hooks and the one without, below which the hooks have replaced it: clipping keeps it above."""
TINY = 1e-6
"""Part of the largest gradient below which one is what rounding leaves, and points anywhere: that of a bias in front of a norm."""
LARGE = 1e4
"""Times a loss whose gradients noise that is added to them does not turn, however small they have become."""
MUCH = 0.25
"""Fraction of the trained numbers: a part that large is not left out in passing."""

_CAUSES = {
    "no_grad": "without grad",
    "inference_mode": "without grad",
    "detached": "detached",
    "off the path": "unused layers",
    "not called": "unused layers",
    "not used": "unused layers",
}


def of_reason(reason: Reason) -> str:
    """The cause that a reason of the trace is; empty if it is none."""
    if reason.kind == "detached" and reason.facts.get("how") == "whole":
        return "no gradient through"
    return _CAUSES.get(reason.kind, "")


def of_reasons(reasons: Sequence[Reason]) -> str:
    """The first cause, those that no branch of a model explains before layers left out."""
    found = [cause for cause in map(of_reason, reasons) if cause]
    return next((cause for cause in found if cause != "unused layers"), found[0] if found else "")


def is_much(bench: Bench, lacking: Sequence[Held], trained: Sequence[Held], called: set[int]) -> bool:
    """Whether what is left out is much of what one optimizer trains, and is no expert, of which others were called."""
    if not bench.subject.optimizers or any(_is_expert(held.site, called) for held in lacking):
        return False
    for optimizer in bench.subject.optimizers:
        owned = {id(tensor) for group in optimizer.param_groups for tensor in group["params"]}
        ours = [held for held in trained if id(held.tensor) in owned]
        out = [held for held in lacking if id(held.tensor) in owned]
        if out and len(out) < len(ours) and _numbers(out) >= MUCH * _numbers(ours):
            return True
    return False


def are_aside(bench: Bench, lacking: Sequence[Held]) -> bool:
    """Whether no optimizer holds them, as those of an encoder under a linear probe: that they have no gradient may be meant."""
    owned = {id(tensor) for optimizer in bench.subject.optimizers for group in optimizer.param_groups for tensor in group["params"]}
    return bool(owned) and all(id(held.tensor) not in owned for held in lacking)


def _numbers(some: Sequence[Held]) -> int:
    return sum(held.tensor.numel() for held in some)


def _is_expert(site: ModuleSite, called: set[int]) -> bool:
    """Whether it lies in a list of modules of one class, another of which was called."""
    for one in site.above:
        if one.parent is not None and type(one.parent.module) is torch.nn.ModuleList:
            others = [child for child in one.parent.own("_modules").values() if type(child) is type(one.module)]
            if any(id(child) in called for child in others):
                return True
    return False


def flattened(value: Tensor, zero: Sequence[Held]) -> dict[int, str]:
    """Which of these parameters are reached from the loss only through a function whose gradient is zero everywhere, and its node."""
    free, all_of_them = graph_leaves.flat(value, past=False), graph_leaves.flat(value)
    return {id(held.tensor): node for held in zero if id(held.tensor) not in free and (node := all_of_them.get(id(held.tensor), ""))}


def flattening(bench: Bench, function: str) -> ModuleSite | None:
    """The innermost module whose output such a function has made; None if it is the forward of none."""
    found: list[Module] = []

    def note(module: Module, args: Any, kwargs: Any, output: Any) -> None:
        if any(tensor.grad_fn is not None and graph_leaves.flat_name(tensor.grad_fn) == function for tensor in batches.tensors(output)):
            found.append(module)

    Listener(leave=note).during(bench.output)
    return bench.subject.by_module.get(id(found[0])) if found else None


def replaced(bench: Bench, trained: Sequence[Held], grads: Sequence[Tensor | None]) -> list[Held]:
    """The parameters whose own hooks make something else of a gradient: zero, or what points elsewhere."""
    hooked = [(held, grad) for held, grad in zip(trained, grads, strict=True) if grad is not None and tensor_hooks(held.tensor)]
    if not hooked:
        return []
    try:
        other = copied(bench)
        value = bench.value(bench.output(other))
    except Exception:  # noqa: BLE001 - no copy, or the loss reads what only the model has
        return []
    names = dict(other.named_parameters())
    plain = [names.get(held.path) for held, _ in hooked]
    known = [one for one in plain if one is not None]
    if not value.requires_grad or not known:
        return []
    true = iter(torch.autograd.grad(value, known, allow_unused=True))
    pairs = [(held, grad, next(true)) for (held, grad), one in zip(hooked, plain, strict=True) if one is not None]
    most = max((float(own.norm()) for _, _, own in pairs if own is not None), default=0.0)
    turned = [(held, own) for held, grad, own in pairs if own is not None and is_turned(grad, own, TINY * most)]
    noisy = _drowned(bench, turned) if turned else []
    return [held for held, _ in turned if held not in noisy]


def _drowned(bench: Bench, turned: Sequence[tuple[Held, Tensor]]) -> list[Held]:
    """Those to whose gradient hooks add what they draw: it is there still, and shows as soon as it is large."""
    value, tensors = bench.value(bench.output()), [held.tensor for held, _ in turned]
    once, again, large = (torch.autograd.grad(k * value, tensors, retain_graph=True, allow_unused=True) for k in (1.0, 1.0, LARGE))
    found = []
    for (held, own), one, two, much in zip(turned, once, again, large, strict=True):
        drawn = one is not None and two is not None and not torch.equal(one, two)
        if drawn and much is not None and not is_turned(much, own, 0.0):
            found.append(held)
    return found


def is_turned(grad: Tensor, own: Tensor, noise: float) -> bool:
    """Whether a gradient points elsewhere than the own one, which has to be larger than noise to point anywhere."""
    if not float(own.norm()) > noise or grad.shape != own.shape:
        return False
    return float(torch.cosine_similarity(grad.flatten().double(), own.flatten().double(), 0)) < TURNED
