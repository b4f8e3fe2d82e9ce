"""Losses of pairs: whether those that belong together are pulled, and the others pushed, read from the graph of a loss."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from modlab.records.clues import MOVES
from modlab.running.autograd_nodes import children, is_here, name_of, number_of, saved, shape_of

DEEP = 12
"""Functions that are looked at on the way from a loss to a likeness, or to a distance."""

HINGES = ("Relu", "ClampMin", "Softplus")
"""Functions that make a difference of distances a loss."""

LENGTHS = ("Norm", "LinalgVectorNorm", "Cdist", "EuclideanDist")
LIKENESS = ("Mm", "Bmm")
FEW = 4
"""Samples below which a square matrix says nothing."""


class Triples(NamedTuple):
    """Of triples: the distances that the loss pulls together, those that it pushes apart, and the margin."""

    pulled: Tensor
    pushed: Tensor
    margin: float


def pushes(node: Any, factor: float, made: Mapping[Any, str]) -> tuple[float, ...]:
    """What a loss does to the likeness of those that belong together, and to that of the others: above 0 it makes it less, below 0 more.

    Args:
        node: of the term, a cross-entropy or a logistic loss of a square matrix of likenesses.
        factor: of the term.
        made: the nodes that modules gave, whose products are layers and no likenesses.

    Returns:
        Nothing where it is another loss.
    """
    name, shape = name_of(node), shape_of(node)
    if name in ("LogSoftmax", "NllLoss"):
        sign, matrix = _down(node, made)
        return (-sign, sign) if sign and matrix is None else ()
    if name not in ("LogSigmoid", "Softplus") or len(shape) != 2 or not shape[0] == shape[1] >= FEW:
        return ()
    sign, matrix = _down(node, made)
    if not sign or matrix is None:
        return ()
    sign = math.copysign(sign, sign * factor)
    beside = ~torch.eye(len(matrix), dtype=torch.bool)
    return sign * float(matrix.diagonal().mean()), sign * float(matrix[beside].mean())


def _down(node: Any, made: Mapping[Any, str]) -> tuple[float, Tensor | None]:
    """The sign with which a likeness comes into a function, and a square matrix of signs that it is multiplied by; 0 if there is none."""
    sign, matrix = 1.0, None
    below = children(node)
    node = below[0] if below else None
    for _ in range(DEEP):
        name = name_of(node)
        if node is None or (name in LIKENESS and node in made):
            return 0.0, None
        if name in LIKENESS:
            return sign, matrix
        if name in ("Mul", "Div"):
            node, times, found = _factor(node)
            matrix = matrix if found is None else found
            sign *= times
        else:
            sides = [child for child, _ in node.next_functions]
            turned = name in ("Neg", "Rsub") or (name == "Sub" and sides[:1] == [None])
            known = turned or name in MOVES or name in ("Add", "Sub", "LogSoftmax")
            below = children(node)
            if not known or len(below) != 1:
                return 0.0, None
            sign, node = -sign if turned else sign, below[0]
    return 0.0, None


def _factor(node: Any) -> tuple[Any, float, Tensor | None]:
    """Below a product the node of what is multiplied by a number, or by a matrix of signs."""
    sides = [child for child, _ in node.next_functions]
    for side, name in zip(sides, ("other", "self"), strict=False):
        factor = saved(node, name)
        if side is None or factor is None:
            continue
        number = number_of(factor)
        if number == number and number:
            return side, math.copysign(1.0, number), None
        if isinstance(factor, Tensor) and _is_of_signs(factor):
            return side, 1.0, factor.detach()
    return None, 0.0, None


def _is_of_signs(factor: Tensor) -> bool:
    """Whether a square matrix has one number in its diagonal, and one beside it."""
    if factor.dim() != 2 or not factor.shape[0] == factor.shape[1] >= FEW or not is_here(factor):
        return False
    factor = factor.detach()
    beside = factor[~torch.eye(len(factor), dtype=torch.bool)]
    return bool((beside == beside[0]).all()) and bool((factor.diagonal() == factor[0, 0]).all()) and bool(factor[0, 0] != beside[0])


def is_of_positives(node: Any, factor: float) -> bool:
    """Whether a logistic loss becomes small by one score alone, a product of two things, as large as it may be."""
    name, below = name_of(node), children(node)
    if not below or (name, factor < 0) not in (("LogSigmoid", True), ("Softplus", False)):
        return False
    at, sign = below[0], 1 if name == "LogSigmoid" else -1
    for _ in range(DEEP):
        name, below = name_of(at), children(at)
        if name == "Neg":
            sign = -sign
        elif (name in ("Sum", "Mul") and len(below) == 2) or name in LIKENESS:
            return sign > 0 and (name == "Mul" or not _is_weight(at))
        elif name == "Add" and len(below) == 2:  # a bias beside it
            below = [one for one in below if name_of(one) in ("Sum", *LIKENESS)] or below[:0]
        elif name not in MOVES and name not in ("Sum", "Add", "Div"):
            return False
        if len(below) != 1:
            return False
        at = below[0]
    return False


def _is_weight(product: Any) -> bool:
    """Whether one side of a product of matrices is a parameter, as in a layer."""
    sides = [child for child, _ in product.next_functions]
    ends = [name_of(children(one)[0]) if one is not None and name_of(one) == "T" and children(one) else name_of(one) for one in sides]
    return "AccumulateGrad" in ends or None in sides


def ranks(node: Any, factor: float) -> Triples | None:
    """The distances of triples, where a loss makes the one smaller than the other; None where it is another loss.

    Triples that a loop has picked by their distances are left alone: of these the wrong one is often nearer at first.
    """
    if name_of(node) not in HINGES or factor < 0 or not children(node):
        return None
    difference = _below(children(node)[0], ("Sub",))
    sides = [child for child, _ in difference.next_functions] if difference is not None else []
    if len(sides) != 2 or None in sides:
        return None
    pulled, pushed = (_distances(one) for one in sides)
    given = saved(node, "result") if name_of(node) == "Relu" else saved(node, "self")
    if pulled is None or pushed is None or pulled.shape != pushed.shape or not isinstance(given, Tensor) or given.numel() != pulled.numel():
        return None
    given = given.detach().reshape(pulled.shape)
    above = given > 0
    margin = float((given - pulled + pushed)[above].median()) if bool(above.any()) else math.nan
    return Triples(pulled, pushed, margin)


def is_distance(node: Any, made: Mapping[Any, str]) -> bool:
    """Whether a term comes from the length of a difference of two outputs."""
    waiting, met = [node], 0
    while waiting and met < 2 * DEEP:
        one, met = waiting.pop(0), met + 1
        if name_of(one) in LENGTHS:
            below = _below(children(one)[0], ("Sub",)) if len(children(one)) == 1 else None
            if below is not None and len(children(below)) == 2:
                return True
        waiting += [child for child in children(one) if child not in made]
    return False


def _below(node: Any, names: tuple[str, ...]) -> Any:
    """The nearest of some functions, behind those that add a number or lay out anew."""
    for _ in range(DEEP):
        if name_of(node) in names:
            return node
        below = children(node)
        if len(below) != 1 or not (name_of(node) in MOVES or name_of(node) == "Add"):
            return None
        node = below[0]
    return None


def _distances(node: Any) -> Tensor | None:
    node = _below(node, ("Norm", "LinalgVectorNorm", "Sqrt", "Sum", "Mean"))
    if node is None:
        return None
    if name_of(node) in ("Norm", "LinalgVectorNorm", "Sqrt"):
        result = saved(node, "result")
        return result.detach().flatten() if isinstance(result, Tensor) and result.dim() and is_here(result) else None
    below = children(node)
    difference = saved(below[0], "self") if len(below) == 1 and name_of(below[0]) == "Pow" else None
    if not isinstance(difference, Tensor) or difference.dim() != 2 or len(shape_of(node)) != 1 or not is_here(difference):
        return None
    squares = difference.detach().square()
    return squares.sum(1) if name_of(node) == "Sum" else squares.mean(1)
