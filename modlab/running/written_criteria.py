"""Criteria that are written out in a loop: what they compare, read from the functions that they are made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from modlab.running.autograd_nodes import children, is_here, name_of, number_of, saved

LEFT_OUT = -100
"""The class of a target that a mask leaves out, as PyTorch's own criteria have it."""


MANY = 1 << 22
"""Numbers up to which all of a tensor are looked at."""


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
    return _one_hot(shares, dim)


def multiplied(logarithms: Tensor | None, dim: int, product: Any) -> Compared:
    """The same, where a product with one-hot rows adds up what was picked."""
    if logarithms is None or not logarithms.is_cpu:
        return Compared()
    for name in ("self", "mat2", "tensor", "vec"):
        shares = saved(product, name)
        if isinstance(shares, Tensor) and not shares.requires_grad and shares.numel() == logarithms.numel():
            turned = shares.reshape(logarithms.shape[::-1]).permute(*range(logarithms.dim() - 1, -1, -1))  # einsum may lay them out so
            straight = _one_hot(shares.reshape(logarithms.shape), dim)
            target = straight if straight is not None else _one_hot(turned, dim)
            if target is not None:
                return Compared(logarithms.detach().movedim(dim, 1) if logarithms.dim() > 1 else logarithms.detach(), target)
    return Compared()


def _one_hot(shares: Tensor, dim: int) -> Tensor | None:
    """The classes of one-hot rows; None of others, and of very many."""
    if shares.numel() > MANY:
        return None
    certain = bool(((shares == 0) | (shares == 1)).all()) and bool((shares.sum(dim) == 1).all())
    return shares.argmax(dim) if certain else None


def _indexed(rest: Sequence[int], dim: int, indices: Any) -> Tensor | None:
    """Of ``logarithms[torch.arange(n), target]``."""
    if not isinstance(indices, (list, tuple)) or len(indices) <= dim or any(not isinstance(one, Tensor) for one in indices):
        return None
    target: Tensor = indices[dim]
    count = torch.Size(rest).numel()
    return target.reshape(-1) if target.dim() and target.numel() == count and target.dtype == torch.long else None


def crossed(shape: Sequence[int], dim: int, passed: Sequence[Any]) -> bool:
    """Whether classes are picked along a different dimension from that of a softmax."""
    return any(_picks_across(shape, dim, one) for one in passed)


def _picks_across(shape: Sequence[int], dim: int, node: Any) -> bool:
    name = name_of(node)
    if name == "Gather":
        index, along = saved(node, "index"), saved(node, "dim")
        if not isinstance(index, Tensor) or not isinstance(along, int) or index.dim() != len(shape):
            return False
        along %= len(shape)
        return along != dim and index.shape[along] == 1 and shape[along] > 1
    if name == "Index":
        indices = saved(node, "indices")
        if not isinstance(indices, (list, tuple)) or len(indices) <= dim or any(not isinstance(one, Tensor) for one in indices):
            return False
        each = [_is_each(one, size) for one, size in zip(indices, shape, strict=False)]
        return each[dim] and not all(each) and all(one.dtype == torch.long for one in indices)
    shares = saved(node, "other") if name == "Mul" else None
    if not isinstance(shares, Tensor) or shares.requires_grad or shares.shape != torch.Size(shape) or not shares.is_cpu:
        return False
    along = [place for place in range(len(shape)) if shape[place] > 1 and _one_hot(shares, place) is not None]
    return bool(along) and dim not in along


def _is_each(index: Tensor, size: int) -> bool:
    """Whether an index takes each row once, in order."""
    flat = index.reshape(-1)
    return flat.numel() == size > 1 and flat.is_cpu and bool((flat == torch.arange(size)).all())


def even(node: Any, passed: Sequence[Any], shape: Sequence[int], dim: int) -> float:
    """Of targets that are shares of classes, their entropy as a part of that of even ones; NaN of others."""
    given = [saved(one, name) for one in passed if name_of(one) == "Mul" for name in ("other", "self")]
    for shares in (saved(node, "target"), *given):
        if not isinstance(shares, Tensor) or shares.requires_grad or shares.shape != torch.Size(shape) or not shares.is_cpu:
            continue
        if shape[dim] < 2 or shares.numel() > MANY or not bool((shares >= 0).all()) or not bool(((shares.sum(dim) - 1).abs() < 1e-3).all()):
            continue
        entropy = -torch.xlogy(shares, shares).sum(dim).mean()
        return float(entropy) / math.log(shape[dim])
    return math.nan


def masked(target: Tensor, passed: Sequence[Any], left_out: int = LEFT_OUT) -> Tensor:
    """A target of classes, without those whose loss a mask multiplies by 0."""
    for one in passed:
        mask = saved(one, "other") if name_of(one) == "Mul" else None
        if isinstance(mask, Tensor) and mask.numel() == target.numel() > 1 and mask.is_cpu and not mask.requires_grad:
            closed = (mask == 0).reshape(target.shape)
            return target.masked_fill(closed, left_out) if bool(closed.any()) else target
    return target


def binary(left: Any, right: Any) -> tuple[str, int, Compared]:
    """Of a binary cross-entropy, ``y * log(p) + (1 - y) * log(1 - p)``: its name, its sign, and what it compares.

    It may be written with the logarithm, the log-sigmoid or the softplus of logits.

    Args:
        left: the function that gave the first product, and below it the logarithm.
        right: the same of the second.
    """
    first, second = _weighted(left), _weighted(right)
    if first is None or second is None or first.name != second.name or first.turned == second.turned:
        return "", 0, Compared()
    plain, turned = (second, first) if first.turned else (first, second)
    if first.name == "Softplus":  # softplus(-x) is what the minus of log-sigmoid(x) is
        plain, turned = turned, plain
    if plain.weight.shape != turned.weight.shape or not torch.allclose(plain.weight + turned.weight, torch.ones_like(plain.weight)):
        return "", 0, Compared()
    logits = plain.taken if first.name != "Softplus" else turned.taken
    name = "binary cross-entropy" if first.name == "Log" else "binary cross-entropy with logits"
    return name, 1 if first.name == "Softplus" else -1, Compared(logits.detach(), plain.weight)


class _Weighted(NamedTuple):
    """One side: the function, what it took, whether that was turned around, and by what its result is multiplied."""

    name: str
    taken: Tensor
    turned: bool
    weight: Tensor


def _weighted(product: Any) -> _Weighted | None:
    below = children(product)
    if name_of(product) != "Mul" or len(below) != 1 or name_of(below[0]) not in ("Log", "LogSigmoid", "Softplus"):
        return None
    taken = saved(below[0], "self")
    weight = next((one for name in ("other", "self") if isinstance(one := saved(product, name), Tensor) and not one.requires_grad), None)
    if not isinstance(taken, Tensor) or weight is None or not weight.is_cpu or not weight.is_floating_point():
        return None
    return _Weighted(name_of(below[0]), taken, _is_turned(below[0]), weight.detach())


def _is_turned(logarithm: Any) -> bool:
    """Whether a logarithm is that of 1 - p, or takes the minus of the logits."""
    node = logarithm
    for _ in range(4):
        below = children(node)
        if len(below) != 1:
            return False
        node = below[0]
        if name_of(node) in ("Rsub", "Neg"):
            return True
        if name_of(node) in ("Sigmoid", "Softmax"):
            return False
    return False


def in_other_units(node: Any) -> tuple[Any, float]:
    """The difference of which a multiple is squared or made absolute, and by what it is multiplied; None where it is not that."""
    below = children(node)
    if not below or not (name_of(node) == "Abs" or (name_of(node) == "Pow" and number_of(saved(node, "exponent")) == 2)):
        return None, 1.0
    sides, number = children(below[0]), number_of(saved(below[0], "other"))
    if (
        name_of(below[0]) not in ("Mul", "Div")
        or len(sides) != 1
        or number != number
        or not number
        or name_of(sides[0]) not in ("Sub", "Rsub")
    ):
        return None, 1.0
    return sides[0], abs(number) if name_of(below[0]) == "Mul" else 1 / abs(number)


def difference(node: Any) -> tuple[Any, Any] | None:
    """The function that took the difference of output and target, and that difference, a few functions below another one."""
    waiting = [node]
    for _ in range(12):
        if not waiting:
            return None
        one = waiting.pop(0)
        for child in children(one):
            if name_of(child) in ("Sub", "Rsub") and name_of(one) in ("Abs", "Pow", "Square") and len(children(child)) == 1:
                return one, child
        waiting += children(one)
    return None


def divergence(node: Any) -> Tensor | None:
    """The target of a divergence of shares that add up to 1, ``target * log(target) - target * output``."""
    sides = [child for child, _ in node.next_functions]
    if name_of(node) != "Sub" or len(sides) != 2 or sides[0] is not None or sides[1] is None or name_of(sides[1]) != "Mul":
        return None
    for name in ("self", "other"):
        shares = saved(sides[1], name)
        if isinstance(shares, Tensor) and not shares.requires_grad and shares.is_cpu and shares.dim() > 1 and bool((shares >= 0).all()):
            return shares if torch.allclose(shares.sum(-1), torch.ones_like(shares.sum(-1)), atol=1e-3) else None
    return None


def is_divergence(node: Any, passed: Sequence[Any]) -> bool:
    """Whether it is one whose target is logarithms, ``exp(target) * (target - output)``: shares that add up to 1 weigh a difference."""
    sides = [child for child, _ in node.next_functions]
    if len(sides) != 2 or sides[0] is not None or sides[1] is None:
        return False
    for one in passed:
        for name in ("self", "other"):
            shares = saved(one, name) if name_of(one) == "Mul" else None
            if not isinstance(shares, Tensor) or shares.requires_grad or not is_here(shares) or shares.dim() < 2 or shares.shape[-1] < 2:
                continue
            totals = shares.detach().sum(-1)
            if bool((shares >= 0).all()) and torch.allclose(totals, torch.ones_like(totals), atol=1e-3):
                return True
    return False


def picked(output: Tensor, passed: Sequence[Any]) -> Compared:
    """Of a likelihood whose numbers were picked of a model's output without a logarithm: both, the classes in the second dimension."""
    for one in passed:
        index = saved(one, "index") if name_of(one) == "Gather" else None
        dim = saved(one, "dim") if isinstance(index, Tensor) else output.dim() - 1
        if isinstance(dim, int) and output.dim() > 1:
            target = _picked(output.detach(), dim % output.dim(), one)
            if target is not None and target.dim() == output.dim() - 1:
                return Compared(output.detach().movedim(dim % output.dim(), 1), target)
    return Compared()
