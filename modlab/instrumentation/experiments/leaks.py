"""Whether samples of a batch see each other: what one output changes by when another sample's input does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from modlab.instrumentation.experiments import batches
from modlab.instrumentation.experiments.trials import Bench

"""Samples whose outputs are asked: the first, the middle and the last one."""
TOLERANCE = 1e-5
"""Relative difference of outputs below which it is rounding; where gradients are asked nothing but zero is zero."""


class Leak(NamedTuple):
    """The output of one sample depends on the input of another."""

    output: int
    input: int


class UnfitError(Exception):
    """The question cannot be put to this batch; says why."""


def find(bench: Bench, dim: int) -> Leak | None:
    """A leak along one dimension of inputs and outputs, or None.

    Raises:
        UnfitError: fewer than two samples, or no output with one entry a sample.
    """
    first = next((tensor for tensor in batches.tensors(bench.inputs) if tensor.dim() > dim), None)
    if first is None:
        raise UnfitError("the inputs have no dimension for samples")
    samples = int(first.shape[dim])
    if samples < 2:
        raise UnfitError("it takes a batch of two samples or more")
    floating = any(_is_asked(tensor, dim, samples) for tensor in batches.tensors(bench.inputs))
    found = _by_gradient(bench, dim, samples) if floating else _by_exchange(bench, dim, samples)
    return found


def _is_asked(tensor: Tensor, dim: int, samples: int) -> bool:
    return tensor.is_floating_point() and tensor.dim() > dim and tensor.shape[dim] == samples


def _by_gradient(bench: Bench, dim: int, samples: int) -> Leak | None:
    asked: list[Tensor] = []

    def prepared(tensor: Tensor) -> Tensor:
        copy = tensor.detach().clone()
        if _is_asked(copy, dim, samples):
            asked.append(copy.requires_grad_())
            return copy * 1  # no leaf: a model may change its input in place
        return copy

    output = batches.call(bench.model, batches.mapped(bench.inputs, prepared))
    answers = [tensor for tensor in _answers(output, dim, samples) if tensor.requires_grad]
    if not answers:
        return _by_exchange(bench, dim, samples)
    for i in dict.fromkeys((0, samples // 2, samples - 1)):
        total = sum((_mixed(answer.select(dim, i)) for answer in answers), start=torch.zeros((), device=answers[0].device))
        grads: tuple[Tensor | None, ...] = torch.autograd.grad(total, asked, retain_graph=True, allow_unused=True)
        for grad in grads:
            if grad is None:
                continue
            by_sample = grad.movedim(dim, 0).reshape(samples, -1)
            touched = ((by_sample != 0) & by_sample.isfinite()).any(dim=1).tolist()
            other = next((j for j, reached in enumerate(touched) if reached and j != i), None)
            if other is not None:
                return Leak(i, other)
    return None


def _mixed(answer: Tensor) -> Tensor:
    """A sum with other weights for each number, so that nothing cancels (the probabilities of a sample add up to 1 anyway)."""
    weights = torch.arange(1, answer.numel() + 1, device=answer.device, dtype=torch.float32).cos().to(answer.dtype)
    return (answer.reshape(-1) * weights).sum().to(torch.float32)


def _answers(output: Any, dim: int, samples: int) -> list[Tensor]:
    found = [t for t in batches.tensors(output) if t.is_floating_point() and t.dim() > dim and t.shape[dim] == samples]
    if not found:
        raise UnfitError("no output has one entry for each sample")
    return found


def _by_exchange(bench: Bench, dim: int, samples: int) -> Leak | None:
    """One sample gets another one's input: the outputs of the others must stay."""
    before = _passed(bench, bench.inputs, dim, samples)
    for target, source in _exchanges(bench, dim, samples):
        changed = batches.mapped(bench.inputs, lambda tensor, t=target, s=source: _exchanged(tensor, dim, samples, t, s))  # type: ignore[misc]
        after = _passed(bench, changed, dim, samples)
        for one, other in zip(before, after, strict=True):
            scale = float(one.abs().max()) or 1.0
            moved = ((one - other).abs().movedim(dim, 0).reshape(samples, -1).amax(dim=1) > TOLERANCE * scale).tolist()
            hit = next((k for k, is_moved in enumerate(moved) if is_moved and k != target), None)
            if hit is not None:
                return Leak(hit, target)
    return None


def _exchanges(bench: Bench, dim: int, samples: int) -> Iterator[tuple[int, int]]:
    """Pairs of samples that differ: the last gets the first one's input, and so on."""
    found = 0
    for target, source in ((samples - 1, 0), (0, samples - 1), (samples // 2, 0)):
        pairs = [t for t in batches.tensors(bench.inputs) if t.dim() > dim and t.shape[dim] == samples]
        if target != source and any(not torch.equal(t.select(dim, target), t.select(dim, source)) for t in pairs):
            found += 1
            yield target, source
    if not found:
        raise UnfitError("all samples of the batch are equal")


def _exchanged(tensor: Tensor, dim: int, samples: int, target: int, source: int) -> Tensor:
    copy = tensor.detach().clone()
    if copy.dim() > dim and copy.shape[dim] == samples:
        copy.select(dim, target).copy_(copy.select(dim, source).clone())
    return copy


def _passed(bench: Bench, inputs: Any, dim: int, samples: int) -> list[Tensor]:
    """All passes draw the same random numbers: what differs is not chance."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]
    with torch.no_grad(), torch.random.fork_rng(devices=devices):
        output = batches.call(bench.model, batches.copied(inputs))
    return [answer.detach().to(torch.float64) for answer in _answers(output, dim, samples)]
