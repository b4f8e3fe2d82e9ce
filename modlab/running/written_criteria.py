"""Criteria that are written out in a loop: what they compare, read from the functions that they are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from modlab.running.autograd_nodes import children, name_of, saved

LEFT_OUT = -100
"""The class of a target that a mask leaves out, as PyTorch's own criteria have it."""


class Compared(NamedTuple):
    """An output, with the classes in its second dimension, if there are classes; and the target."""

    output: Tensor | None = None
    target: Tensor | None = None


def classes(logarithms: Tensor | None, dim: int, passed: Sequence[Any]) -> Compared:
    """Of a cross-entropy: the logarithms of the probabilities, and the class that is picked of each.

    Args:
        logarithms: of shape ``(..., classes, ...)``; None where they are not known.
        dim: along which the classes lie.
        passed: the functions that picked some of them, the nearest to the loss first.
    """
    if logarithms is None or not logarithms.dim() or not logarithms.is_cpu:
        return Compared()
    logarithms, dim = logarithms.detach(), dim % logarithms.dim()
    target = next((found for one in reversed(passed) if (found := _picked(logarithms, dim, one)) is not None), None)
    if target is None:
        return Compared(logarithms.movedim(dim, 1) if logarithms.dim() > 1 else logarithms)
    output = logarithms.movedim(dim, 1)
    if target.dim() == 1 and output.dim() > 2:  # all positions in one row
        output = output.movedim(1, -1).reshape(-1, output.shape[1])
    return Compared(output, masked(target, passed))


def _picked(logarithms: Tensor, dim: int, node: Any) -> Tensor | None:
    name = name_of(node)
    rest = logarithms.shape[:dim] + logarithms.shape[dim + 1 :]
    if name == "Gather":
        index = saved(node, "index")
        if isinstance(index, Tensor) and index.dim() == logarithms.dim() and saved(node, "dim") % index.dim() == dim:
            return index.squeeze(dim) if index.shape[dim] == 1 and index.squeeze(dim).shape == rest else None
        return None
    if name == "Index":
        return _indexed(rest, dim, saved(node, "indices"))
    shares = saved(node, "other")
    if not isinstance(shares, Tensor) or shares.requires_grad or shares.shape != logarithms.shape:
        shares = saved(node, "self")
    if not isinstance(shares, Tensor) or shares.requires_grad or shares.shape != logarithms.shape:
        return None
    one_hot = bool(((shares == 0) | (shares == 1)).all()) and bool((shares.sum(dim) == 1).all())
    return shares.argmax(dim) if one_hot else None


def _indexed(rest: Sequence[int], dim: int, indices: Any) -> Tensor | None:
    """Of ``logarithms[torch.arange(n), target]``."""
    if not isinstance(indices, (list, tuple)) or len(indices) <= dim or any(not isinstance(one, Tensor) for one in indices):
        return None
    target: Tensor = indices[dim]
    count = torch.Size(rest).numel()
    return target.reshape(-1) if target.dim() and target.numel() == count and target.dtype == torch.long else None


def masked(target: Tensor, passed: Sequence[Any], left_out: int = LEFT_OUT) -> Tensor:
    """A target of classes, without those whose loss a mask multiplies by 0."""
    for one in passed:
        mask = saved(one, "other") if name_of(one) == "Mul" else None
        if isinstance(mask, Tensor) and mask.numel() == target.numel() > 1 and mask.is_cpu and not mask.requires_grad:
            closed = (mask == 0).reshape(target.shape)
            return target.masked_fill(closed, left_out) if bool(closed.any()) else target
    return target


def shares(left: Any, right: Any) -> Compared:
    """Of a binary cross-entropy, ``y * log(p) + (1 - y) * log(1 - p)``: p and y.

    Args:
        left: the function that gave the first product, and below it the logarithm.
        right: the same of the second.
    """
    sides = [_weighted(one) for one in (left, right)]
    if any(side is None for side in sides):
        return Compared()
    (first, target), (second, others) = sides  # type: ignore[misc]
    if target.shape != others.shape or first.shape != second.shape or not torch.allclose(target + others, torch.ones_like(target)):
        return Compared()
    probabilities = first if not _is_turned(left) else second
    return Compared(probabilities.detach(), target if not _is_turned(left) else others)


def _weighted(product: Any) -> tuple[Tensor, Tensor] | None:
    below = children(product)
    if name_of(product) != "Mul" or len(below) != 1 or name_of(below[0]) != "Log":
        return None
    taken = saved(below[0], "self")
    weight = next((one for name in ("other", "self") if isinstance(one := saved(product, name), Tensor) and not one.requires_grad), None)
    if not isinstance(taken, Tensor) or weight is None or not weight.is_cpu or not weight.is_floating_point():
        return None
    return taken, weight.detach()


def _is_turned(product: Any) -> bool:
    """Whether the logarithm is that of 1 - p: some way down there is a difference from a constant."""
    node = children(product)[0]
    for _ in range(4):
        below = children(node)
        if len(below) != 1:
            return False
        node = below[0]
        if name_of(node) == "Rsub":
            return True
        if name_of(node) in ("Sigmoid", "Softmax"):
            return False
    return False
