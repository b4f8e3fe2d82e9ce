"""Lengths: which places of rows of tokens a model reads, where it is told how long they are: what stands behind the end is nothing."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from modlab.statistics.memory import is_there


def read(tokens: Tensor, padding: int, beside: Iterable[Tensor]) -> Tensor:
    """The places that count: all of them, but for those that a length or a mask leaves out.

    Args:
        tokens: in rows.
        padding: the token of an embedding that is none.
        beside: what else goes into the model.
    """
    for one in beside:
        if one is tokens or one.device != tokens.device or not is_there(one):
            continue
        if _are_lengths(one, tokens):
            return within(tokens, one)
        if one.shape == tokens.shape and bool(((one == 0) | (one == 1)).all()) and not bool((one == tokens).all()):
            return _open(one, tokens == padding) if one.dtype == torch.bool else one.bool()
    return torch.ones_like(tokens, dtype=torch.bool)


def within(tokens: Tensor, lengths: Tensor) -> Tensor:
    """The places up to the length of each row."""
    return torch.arange(tokens.shape[1], device=tokens.device) < lengths.to(tokens.device)[:, None]


def of_packed(packed: PackedSequence) -> Tensor:
    """The length of each row of a packed sequence, in the order in which the rows came."""
    sizes = packed.batch_sizes
    lengths = (torch.arange(int(sizes[0]))[:, None] < sizes).sum(1)
    order = packed.unsorted_indices
    return lengths if order is None else lengths[order.to(lengths.device)]


def _are_lengths(one: Tensor, tokens: Tensor) -> bool:
    """Whether it is a whole number a row, of at least 1 and of no more than there are places."""
    if one.dim() != 1 or len(one) != len(tokens) or one.is_floating_point() or one.is_complex() or one.dtype == torch.bool:
        return False
    return bool((one >= 1).all()) and bool((one <= tokens.shape[1]).all())


def _open(mask: Tensor, padding: Tensor) -> Tensor:
    """What a mask of truths leaves open, whichever of the two says so: less of it is padding. Where that tells nothing, all."""
    inside, outside = (float(padding[some].double().mean()) if bool(some.any()) else 1.0 for some in (mask, ~mask))
    return torch.ones_like(mask) if inside == outside else mask if inside < outside else ~mask


def between(real: Tensor, dim: int) -> Tensor:
    """Where something real comes before along a dimension, and something later."""
    return (real.cumsum(dim) > 0) & (real.flip(dim).cumsum(dim).flip(dim) > 0)
