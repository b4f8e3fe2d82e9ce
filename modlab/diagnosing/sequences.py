"""Sequences in a batch: inputs with one entry per position, outputs that belong to them, and targets that are found in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from modlab.diagnosing import batches
from modlab.diagnosing.outcomes import NotRunError
from modlab.diagnosing.trials import Bench
from modlab.running.values import mapped

IGNORED = -100
"""The target that torch's cross entropy leaves out."""
NEARLY = 0.9
"""Fraction of the positions at which the target has to be the next token: a text may be cut or joined elsewhere."""


class Sequence(NamedTuple):
    """An input with samples in dimension 0 and positions in dimension 1: tokens, or vectors of numbers.

    `given`: the input itself, where its positions come last, behind channels, as convolutions take them.
    """

    tensor: Tensor
    given: Tensor | None = None

    @property
    def samples(self) -> int:
        """How many samples it has."""
        return int(self.tensor.shape[0])

    @property
    def length(self) -> int:
        """How many positions it has."""
        return int(self.tensor.shape[1])

    @property
    def is_tokens(self) -> bool:
        """Whether its entries are whole numbers."""
        return not self.tensor.is_floating_point()

    def put(self, bench: Bench, changed: Tensor) -> Any:
        """The inputs with another tensor in its place."""
        if self.given is not None:
            return mapped(bench.inputs, lambda tensor: changed.transpose(1, 2).contiguous() if tensor is self.given else tensor)
        return mapped(bench.inputs, lambda tensor: changed if tensor is self.tensor else tensor)


def of(bench: Bench) -> Iterator[Sequence]:
    """The sequences among the inputs, of at least two samples and two positions."""
    for tensor in batches.tensors(bench.inputs):
        if tensor.is_nested or tensor.layout is not torch.strided or tensor.dtype is torch.bool or tensor.is_complex():
            continue
        if tensor.dim() == (3 if tensor.is_floating_point() else 2) and min(tensor.shape[:2]) > 1:
            yield Sequence(tensor)


def behind_channels(bench: Bench) -> Iterator[Sequence]:
    """The same of inputs whose positions come last."""
    for tensor in batches.tensors(bench.inputs):
        if tensor.is_nested or tensor.layout is not torch.strided or not tensor.is_floating_point():
            continue
        if tensor.dim() == 3 and min(tensor.shape[::2]) > 1:
            yield Sequence(tensor.transpose(1, 2), tensor)


def changed(sequence: Sequence, at: int) -> Tensor:
    """The same sequence with another entry at one position."""
    found = sequence.tensor.clone()
    found[:, at] = other_tokens(sequence)[:, at]
    return found


def require(bench: Bench) -> Sequence:
    """The first sequence.

    Raises:
        NotRunError: there is none.
    """
    found = next(of(bench), None)
    if found is None:
        raise NotRunError("no sequence")
    return found


def by_position(output: Any, sequence: Sequence) -> Tensor | None:
    """The first output with one entry per position, positions in dimension 1; None if there is none."""
    for tensor in batches.tensors(output):
        if not tensor.is_floating_point() or tensor.is_nested or tensor.dim() < 2 or tensor.shape[0] != sequence.samples:
            continue
        if tensor.shape[1] == sequence.length:
            return tensor
        if tensor.dim() == 3 and tensor.shape[2] == sequence.length:
            return tensor.transpose(1, 2)
    return None


def other_tokens(sequence: Sequence, spared: int | None = None) -> Tensor:
    """The same sequence with another entry at each position; tokens become the next one of those that occur in the batch."""
    tensor = sequence.tensor
    if not sequence.is_tokens:
        return tensor.roll(1, 0) + tensor.std()
    known = torch.unique(tensor)
    known = known if spared is None else known[known != spared]
    if len(known) < 2:
        raise NotRunError("one token")
    place = torch.searchsorted(known, tensor)
    other: Tensor = known[(place + 1) % len(known)]
    return other


def offset(sequence: Sequence, target: Any) -> int | None:
    """How far the target is moved against the sequence: 0 if it is the same, 1 if it is what comes next; None if it is neither."""
    labels = aligned(sequence, target)
    if labels is None or labels.is_floating_point() == sequence.is_tokens:
        return None
    one, two, label = sequence.tensor[:, :-1], sequence.tensor[:, 1:], labels[:, :-1]
    differs = ~_same(one, two) & (label != IGNORED if sequence.is_tokens else True)  # elsewhere both would fit
    if not bool(differs.any()):
        return None
    now, following = (float(_same(label, other)[differs].double().mean()) for other in (one, two))
    return 0 if now == 1 else 1 if following >= NEARLY else None


def aligned(sequence: Sequence, target: Any) -> Tensor | None:
    """The target with positions in dimension 1, or None."""
    if not issubclass(type(target), Tensor) or target.is_nested:
        return None
    shape = tuple(sequence.tensor.shape)
    if sequence.given is not None and target.shape == sequence.given.shape:
        return target.transpose(1, 2)  # type: ignore[no-any-return]
    if tuple(target.shape) == shape:
        return target  # type: ignore[no-any-return]
    if target.is_floating_point() and shape[2:] == (1,) and tuple(target.shape) == shape[:2]:
        return target.unsqueeze(2)  # type: ignore[no-any-return]
    return target.reshape(shape) if target.dim() == 1 and target.numel() == sequence.tensor.numel() else None


def _same(one: Tensor, other: Tensor) -> Tensor:
    """For each position, whether two sequences are the same there."""
    return one == other if one.dim() == 2 else torch.isclose(one, other, atol=1e-6).all(-1)


def moved_inside(bench: Bench, output: Any, sequence: Sequence) -> int | None:
    """How many positions later than an output the label lies that the loss compares it with; None if unknown.

    A loss may move the targets itself, as those of many language models do.
    """
    at = sequence.length // 2
    labels = aligned(sequence, bench.target)
    if labels is None:
        return None
    other = labels.clone()
    other[:, at] = other_tokens(Sequence(labels))[:, at] if sequence.is_tokens else labels[:, at] + 1
    laid = other.transpose(1, 2) if sequence.given is not None and bench.target.shape == sequence.given.shape else other
    grads = [_felt(bench, output, target, sequence) for target in (bench.target, laid.reshape(bench.target.shape))]
    if grads[0] is None or grads[1] is None:
        return None
    touched = ((grads[0] - grads[1]).abs() > 1e-7 * grads[0].abs().max()).transpose(0, 1).flatten(1).any(1).nonzero().flatten().tolist()
    return at - touched[0] if len(touched) == 1 else None


def _felt(bench: Bench, output: Any, target: Tensor, sequence: Sequence) -> Tensor | None:
    """The gradient of the loss with respect to the output."""
    with torch.enable_grad():
        asked = mapped(output, lambda tensor: tensor.detach().clone().requires_grad_(tensor.is_floating_point()))
        leaf = next((t for t in batches.tensors(asked) if by_position(t, sequence) is not None), None)
        if leaf is None:
            return None
        (grad,) = torch.autograd.grad(bench.loss(asked, batches.copied(target)), [leaf], allow_unused=True)
    return None if grad is None else by_position(grad, sequence)
