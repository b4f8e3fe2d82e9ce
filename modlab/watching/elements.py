"""The elements of a tensor one after the other: all of them, or an even selection that is the same each time."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from modlab.compat import is_transformed
from modlab.statistics.memory import is_there

EXACT = 4096
"""Elements up to which all are compared; of a larger tensor an even selection of about so many (error of a norm ≤ 2.4 %)."""

PIECE = 64
"""Neighbours that are taken together: memory comes in lines."""


def selection(tensor: Tensor) -> Tensor:
    """All elements of a small tensor, about `EXACT` of a large one, the same ones each time; shape ``(n,)``."""
    plain = torch.view_as_real(tensor.data) if tensor.is_complex() else tensor.data
    if plain.numel() <= EXACT:
        return plain.reshape(-1)
    return spread(in_order(plain), PIECE, EXACT)


def spread(flat: Tensor, piece: int, wanted: int) -> Tensor:
    """About `wanted` elements in pieces that are evenly spread over a tensor of shape ``(n,)``, in a tensor of shape ``(m,)``.

    The step from piece to piece has no divisor in common with their number, hence none with the length of a row or the number of
    channels: each gets its share.
    """
    pieces = flat.numel() // piece
    step = next(step for step in range(max(1, pieces * piece // wanted), pieces + 2) if math.gcd(step, pieces) == 1)
    return flat[: pieces * piece].view(pieces, piece)[::step].reshape(-1)  # a copy: the pieces lie apart


def in_order(tensor: Tensor) -> Tensor:
    """The elements in the order in which they lie in memory, where that has no gaps; else a copy in order. Shape ``(n,)``."""
    if tensor.is_contiguous():
        return tensor.view(-1)
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    straight = tensor.permute(order)
    return straight.view(-1) if straight.is_contiguous() else tensor.reshape(-1)


def comparable(tensor: Tensor) -> bool:
    """Whether a tensor has numbers that can be compared one by one."""
    return (
        tensor.layout is torch.strided
        and (tensor.is_floating_point() or tensor.is_complex())
        and not tensor.is_conj()
        and tensor.numel() > 0
        and not tensor.is_meta
        and not tensor.is_nested
        and not is_transformed(tensor)
        and type(tensor).__torch_dispatch__ is Tensor.__torch_dispatch__
        and not torch.nn.parameter.is_lazy(tensor)
        and is_there(tensor)
    )
