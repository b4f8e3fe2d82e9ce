"""Gains: what a summand of a loss measures that should become large, and so enters a loss with a minus."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from modlab.records.clues import MOVES
from modlab.running import composed_criteria, written_criteria
from modlab.running.autograd_nodes import children, is_here, is_normalizing, name_of, number_of, saved, shape_of

OVERLAP, LIKENESS, CLIPPED, REWARDED, RESTORED = "overlap", "likeness", "clipped gain", "rewarded", "restored"
"""Of an output with its mask (Dice, Jaccard); with a fixed direction (cosine); the lower one of a gain and of the same with its ratio
clipped (PPO); logarithms of chances that rewards weigh, none of which is below 0; and of what a sample is worth, errors with a minus."""

ERRORS = frozenset(
    ("MseLoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "BinaryCrossEntropy", "BinaryCrossEntropyWithLogits", "NllLoss", "NllLoss2D")
)
"""Criteria of which more is worse."""

NEAR = 10
"""Functions that are followed down, at most."""

UNIT = 1e-3
"""What the length of a direction may differ from 1 by."""


def of(node: Any, passed: Sequence[Any]) -> str:
    """Which gain a function gives; "" for any other.

    Args:
        node: of the graph of a loss.
        passed: the products between it and the loss.
    """
    name = name_of(node)
    if name == "Div" and _is_overlap(node):
        return OVERLAP
    if name == "Div" and _is_likeness(node, passed):
        return LIKENESS
    if name == "Minimum" and _is_clipped(node):
        return CLIPPED
    return REWARDED if (name == "LogSoftmax" or is_normalizing(node)) and _are_rewards(passed) else ""


def of_sum(node: Any) -> str:
    """The same of what is added up for each sample by itself, as an evidence lower bound is: in it errors have a minus, and none a plus."""
    signs, waiting = set[float](), [(node, 1.0)]
    for _ in range(4 * NEAR):
        if not waiting:
            break
        node, sign = waiting.pop(0)
        name, below = name_of(node), children(node)
        if error := _error(node):
            signs.add(sign * error)
        elif name == "Div" or (name == "Mul" and len(below) == 1):
            factor, above = _sign_of(node), below[0] if name == "Mul" else node.next_functions[0][0]
            if not factor:
                return ""
            waiting += [(above, sign * factor)] if above is not None else []
        elif name == "Sub":
            waiting += [(child, part) for (child, _), part in zip(node.next_functions, (sign, -sign), strict=False) if child is not None]
        elif name in ("Add", "Sum", "Mean", "Neg", "Rsub", *MOVES):
            waiting += [(child, -sign if name in ("Neg", "Rsub") else sign) for child in below]
    return RESTORED if signs == {-1.0} else ""


def _error(node: Any) -> int:
    """1 of a function that gives errors against constants, -1 of one that gives them with a minus, 0 of any other."""
    name, below = name_of(node), children(node)
    if name in ERRORS:
        return 1
    if name == "Add" and len(below) == 2:
        return written_criteria.binary(*below)[1]
    squared = name in ("Pow", "Abs") or (name == "Mul" and len({*below}) == 1 < len(below))
    return int(squared and bool(below) and name_of(below[0]) in ("Sub", "Rsub") and len(children(below[0])) == 1)


def _sign_of(product: Any) -> float:
    """Of what something is multiplied by, or divided by: one number, a mask, or what is above 0 and divides; 0 of any other."""
    other = saved(product, "other")
    if (number := number_of(other)) == number:
        return math.copysign(1.0, number) if number else 0.0
    some = other if name_of(product) == "Div" else _constant(product)
    if not isinstance(some, Tensor) or not is_here(some):
        return 0.0
    return float(bool((some > 0).all() if name_of(product) == "Div" else ((some == 0) | (some == 1)).all()))


def _constant(product: Any) -> Tensor | None:
    """What a product multiplies each number by, if that has no graph and lies here."""
    found = composed_criteria.fixed(product)
    return found if found is not None and found.dim() else None


def _sums(node: Any) -> Iterator[Any]:
    """What is summed up, or averaged, in some numbers: below what adds, and multiplies by, constants."""
    waiting = [node]
    for _ in range(NEAR):
        if not waiting:
            return
        one = waiting.pop(0)
        if name_of(one) in ("Sum", "Mean"):
            yield children(one)[0]
        elif name_of(one) in ("Add", "Sub", "Mul", "ClampMin"):
            waiting += children(one)


def _is_overlap(quotient: Any) -> bool:
    """Whether the sum of a product with a mask is divided by one in which the same numbers are added up."""
    sides = children(quotient)
    if len(sides) != 2:
        return False
    common = [one for one in _sums(sides[0]) if (mask := _constant(one)) is not None and bool(((mask == 0) | (mask == 1)).all())]
    total = [*_sums(sides[1])]
    return any(children(one)[0] in total for one in common) and not any(_constant(one) is None for one in _sums(sides[0]))


def _is_likeness(quotient: Any, passed: Sequence[Any]) -> bool:
    """Whether numbers are divided by their length, and then multiplied by a direction."""
    sides, shape = children(quotient), shape_of(quotient)
    if len(sides) != 2 or not any(_is_length(one) for one in sides):
        return False
    directions = [one for one in map(_constant, passed) if one is not None and one.shape == torch.Size(shape) and one.is_floating_point()]
    return any(bool(((one.norm(dim=-1) - 1).abs() < UNIT).all()) for one in directions)


def _is_length(node: Any) -> bool:
    for _ in range(NEAR):
        if node is None or name_of(node) in ("LinalgVectorNorm", "Norm", "Sqrt"):
            return node is not None
        node = next(iter(children(node)), None)
    return False


def _is_clipped(lower: Any) -> bool:
    """Whether it is the lower one of two products of the same constants, one of them with a ratio that is clipped."""
    sides = children(lower)
    weights = [_constant(one) for one in sides]
    if len(sides) != 2 or any(one is None for one in weights) or not torch.equal(*weights):  # type: ignore[arg-type]
        return False
    below = [children(one)[0] for one in sides]
    return any(name_of(one) in ("Clamp", "ClampMin", "ClampMax") and children(one)[0] is other for one, other in (below, below[::-1]))


def _are_rewards(passed: Sequence[Any]) -> bool:
    """Whether one logarithm of each sample is picked and weighed, by weights that differ, none below 0."""
    weights = [one for one in map(_constant, passed) if one is not None and one.is_floating_point()]
    is_picked = any(name_of(one) in ("Gather", "Index") for one in passed)
    return is_picked and any(bool((one >= 0).all()) and bool((one != one.flatten()[0]).any()) for one in weights)
