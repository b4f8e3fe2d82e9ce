"""Composed criteria: those that autograd sees as several functions, PyTorch's own among them: of counts, of quantiles, and of signs."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from modlab.running.autograd_nodes import children, is_here, name_of, number_of, saved, shape_of

LOGARITHMS, RATES = "counts by logarithms", "counts by rates"
"""Criteria of counts, by what the output says."""

QUANTILES, SIGNS = "quantile error", "signs"

DEEP = 8
"""Functions that are looked at on the way from a criterion to what it compares."""


class Composed(NamedTuple):
    """A criterion, its sign in a loss that is to become small, the function below which the output lies, and what it compares.

    Of signs a target is 1 or -1, and 0 where neither side of the criterion takes it in.
    """

    criterion: str
    sign: float
    start: Any
    output: Tensor | None = None
    target: Tensor | None = None


def read(node: Any) -> Composed | None:
    """What a function and those below it measure together; None of others."""
    name, below = name_of(node), children(node)
    if name == "Add" and len(below) == 1 and name_of(below[0]) == "Sub":  # the part of a likelihood that does not depend on the output
        return _counts(below[0])
    if name == "Sub":
        return _counts(node)
    if name == "Maximum":
        return _quantile(node)
    return _likeness(node) if name == "Add" else _hinge(node)


def fixed(product: Any) -> Tensor | None:
    """By which tensor of constants something is multiplied."""
    if name_of(product) != "Mul" or len(children(product)) != 1:
        return None
    some = (saved(product, "self"), saved(product, "other"))
    return next((one.detach() for one in some if isinstance(one, Tensor) and not one.requires_grad and is_here(one)), None)


def _counts(node: Any) -> Composed | None:
    """Poisson's likelihood: ``exp(output) - target * output``, or ``output - target * log(output)``."""
    sides = children(node)
    if len(sides) != 2:
        return None
    sign = -1 if name_of(sides[0]) == "Mul" and name_of(sides[1]) != "Mul" else 1
    rate, product = sides[::sign]
    target = fixed(product)
    if target is None or target.numel() != math.prod(shape_of(node)) or target.dim() == 0 or bool((target < 0).any()):
        return None
    taken = children(product)[0]
    result = saved(rate, "result") if name_of(rate) == "Exp" else None
    if isinstance(result, Tensor) and children(rate)[:1] == [taken]:
        return Composed(LOGARITHMS, sign, rate, result.detach().log(), target)
    given = saved(taken, "self") if name_of(taken) == "Log" else None
    below = children(taken)
    if isinstance(given, Tensor) and below and rate in (below[0], *(children(below[0]) if name_of(below[0]) == "Add" else ())):
        return Composed(RATES, sign, taken, given.detach(), target)
    return None


def _quantile(node: Any) -> Composed | None:
    """The greater of ``q * error`` and ``(q - 1) * error``."""
    sides = children(node)
    if len(sides) != 2 or children(sides[0]) != children(sides[1]):
        return None
    first, second = (fixed(side) for side in sides)
    if first is None or second is None:
        return None
    error, apart = children(sides[0])[0], second - first
    opposite = bool((first * second <= 0).all())
    if name_of(error) not in ("Sub", "Rsub") or not opposite or not torch.allclose(apart.abs(), torch.ones_like(apart)):
        return None
    return Composed(QUANTILES, 1, error)


def error_of(node: Any) -> Tensor | None:
    """The difference of which a criterion of quantiles takes a part on each side."""
    one, other = saved(node, "self"), saved(node, "other")
    first, second = (fixed(side) for side in children(node))
    if not isinstance(one, Tensor) or not isinstance(other, Tensor) or not is_here(one) or first is None or second is None:
        return None
    error: Tensor = (other - one).detach() / (second - first)
    return error


def squared_of_bell(node: Any) -> Any:
    """The square in a bell curve's likelihood, of what its middle is off, divided by a spread that is learned; None of another."""
    waiting, met = [node], 0
    while waiting and met < 2 * DEEP:
        one, met = waiting.pop(0), met + 1
        name, below = name_of(one), children(one)
        if name in ("Div", "Mul") and len(below) == 2:
            top = below[0]
            while name_of(top) in ("Neg", "Mul", "Div") and len(children(top)) == 1:
                top = children(top)[0]
            taken = children(top)[:1] if name_of(top) == "Pow" and number_of(saved(top, "exponent")) == 2 else []
            if taken and name_of(taken[0]) in ("Sub", "Rsub") and len(children(taken[0])) == 1:
                return top
        waiting += below if name in ("Add", "Sub", "Neg", "Mul", "Div", "Mean", "Sum") else []
    return None


def _hinge(node: Any) -> Composed | None:
    """``relu(margin - target * output)``."""
    name, below = name_of(node), children(node)
    ends = (saved(node, "min"), saved(node, "max"))
    cut = name == "Relu" or (name in ("ClampMin", "Clamp") and number_of(ends[0]) == 0 and ends[1] is None)
    if not cut or len(below) != 1 or name_of(below[0]) not in ("Rsub", "Sub") or len(children(below[0])) != 1:
        return None
    if name_of(below[0]) == "Sub" and below[0].next_functions[0][0] is not None:
        return None
    product = children(below[0])[0]
    target = fixed(product)
    if target is None or target.numel() != math.prod(shape_of(node)) or target.numel() < 2 or bool((target == target.flatten()[0]).all()):
        return None
    signs = bool(((target == 1) | (target == 0) | (target == -1)).all())
    return Composed(SIGNS, 1, product, None, target) if signs else None


def _likeness(node: Any) -> Composed | None:
    """``where(target == 1, ..., 0) + where(target == -1, ..., 0)``, as of pairs by their cosine."""
    sides = children(node)
    chosen = [saved(one, "condition") for one in sides if name_of(one) == "Where" and len(children(one)) == 1]
    if len(sides) != 2 or len(chosen) != 2 or not all(isinstance(one, Tensor) and one.dim() == 1 and is_here(one) for one in chosen):
        return None
    same, other = (one.detach() for one in chosen)
    if bool((same & other).any()):
        return None
    meant = bool(same.all()) and not _is_of_two(sides[0])  # what all should be like, as a teacher's, is the target
    return Composed(SIGNS, 1, children(sides[0])[0], None, None if meant else same.float() - other.float())


def _is_of_two(likeness: Any) -> bool:
    """Whether both things whose likeness is taken are being trained."""
    for _ in range(DEEP):
        below = children(likeness)
        if name_of(likeness) == "Mul" or not below:
            return len(below) == 2
        likeness = below[0]
    return False
