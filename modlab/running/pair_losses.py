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

HINGES = ("Relu", "Clamp", "ClampMin", "Softplus")
"""Functions that make a difference of distances a loss."""

LENGTHS = ("Norm", "LinalgVectorNorm", "Cdist", "EuclideanDist")
RISING = (*LENGTHS, "Sum", "Mean", "Pow", "Abs", "Sqrt", "Add", "Clamp", "ClampMin")
"""Functions that give the more the farther apart what they take is."""

LIKENESS = ("Mm", "Bmm")
PICKS = ("Index", "IndexSelect", "Gather")
MANY = 16
"""Pairs among which there should be some that do not belong together."""

FEW = 4
"""Samples below which a square matrix says nothing."""


class Triples(NamedTuple):
    """Of triples: the distances that the loss pulls together, those that it pushes apart, and the margin.

    `drawn` are those that are made here of pairs, each of which belongs together or not.
    """

    pulled: Tensor
    pushed: Tensor
    margin: float
    drawn: bool = False


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
        sign = math.copysign(sign, sign * factor)
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
    """The sign with which a likeness comes into a function, and a square matrix of signs that it is multiplied by; 0 if there is none.

    A distance is a likeness with a minus.
    """
    sign, matrix = 1.0, None
    below = children(node)
    node = below[0] if below else None
    for _ in range(DEEP):
        name = name_of(node)
        if node is None or (name in LIKENESS and node in made):
            return 0.0, None
        if name in LIKENESS:
            return sign, matrix
        if _gives_all_distances(node):
            return -sign, matrix
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


def _gives_all_distances(node: Any) -> bool:
    """Whether a function gives how far each of some is from each of others, perhaps squared: the more alike two are, the less it is."""
    measured = False
    for _ in range(DEEP):
        name, below = name_of(node), children(node)
        if name in ("Cdist", "EuclideanDist") or _is_multiplied_out(node):
            return True
        if name in ("Sub", "Rsub"):  # of which none has yet been laid beside each of the others
            return measured and all(shape_of(one) != shape_of(node) for one in below)
        measured |= name in ("Pow", "Abs", "Mul", *LENGTHS)
        grows = name in (*RISING, *MOVES) or (name == "Mul" and len({*below}) == 1 < len(below))
        if not grows or not below or (name == "Pow" and not number_of(saved(node, "exponent")) > 0):
            return False
        node = below[0]
    return False


def _is_multiplied_out(node: Any) -> bool:
    """Whether products of each with each are taken from squares, as in a² + b² - 2ab."""
    below = children(node)
    if name_of(node) != "Sub" or len(below) != 2 or not _are_squares(below[0]):
        return False
    return _below(children(below[1])[0] if name_of(below[1]) == "Mul" and children(below[1]) else below[1], LIKENESS) is not None


def _are_squares(node: Any) -> bool:
    below = children(node)
    if name_of(node) == "Pow" or (name_of(node) == "Mul" and len({*below}) == 1 < len(below)):
        return True
    return name_of(node) in ("Sum", "Add", *MOVES) and bool(below) and all(map(_are_squares, below))


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
    """Whether a logistic loss becomes small by one score alone, a product of two things, as large as it may be; or no pair is pushed.

    A sum of such losses does so, too: what should have been pushed has the sign of what is pulled.
    """
    pair = _pairs(node)
    if pair is not None:
        return len(pair.same) >= MANY and bool(pair.same.all())
    if name_of(node) == "Add":
        sides = [_summed(one) for one in children(node)]
        return len(sides) == 2 and all(is_of_positives(one, factor) for one in sides)
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


def _summed(node: Any) -> Any:
    """What is summed up or only moved here."""
    for _ in range(DEEP):
        if name_of(node) not in ("Sum", "Mean", *MOVES) or len(children(node)) != 1:
            break
        node = children(node)[0]
    return node


def _is_weight(product: Any) -> bool:
    """Whether one side of a product of matrices is a parameter, as in a layer."""
    sides = [child for child, _ in product.next_functions]
    ends = [name_of(children(one)[0]) if one is not None and name_of(one) == "T" and children(one) else name_of(one) for one in sides]
    return "AccumulateGrad" in ends or None in sides


def ranks(node: Any, factor: float) -> Triples | None:
    """The distances of triples, where a loss makes the one smaller than the other; None where it is another loss.

    Triples that a loop has picked by their distances are left alone: of these the wrong one is often nearer at first.
    """
    pair = _pairs(node) if factor > 0 else None
    if pair is not None:
        near, far = pair.distances[pair.same], pair.distances[~pair.same]
        count = min(len(near), len(far))
        return Triples(near[:count], far[:count], pair.margin, drawn=True)
    if name_of(node) not in HINGES or factor < 0 or not children(node):
        return None
    difference = _below(children(node)[0], ("Sub",))
    sides = [child for child, _ in difference.next_functions] if difference is not None else []
    if len(sides) != 2 or None in sides:
        return None
    if all(map(_is_picked, sides)):
        return None
    pulled, pushed = (_distances(one) for one in sides)
    lack = saved(node, "result") if name_of(node) == "Relu" else saved(node, "self")
    if pulled is None or pushed is None or pulled.shape != pushed.shape or not isinstance(lack, Tensor) or lack.numel() != pulled.numel():
        return None
    given = lack.detach().reshape(pulled.shape)
    above = given > 0
    margin = float((given - pulled + pushed)[above].median()) if bool(above.any()) else math.nan
    return Triples(pulled, pushed, margin)


def _is_picked(node: Any) -> bool:
    """Whether a distance lies between outputs and others of the same batch, which an index has taken out."""
    length = _below(node, (*LENGTHS, "Sqrt"))
    difference = _below(children(length)[0], ("Sub",)) if length is not None and len(children(length)) == 1 else None
    if difference is None or len(children(difference)) != 2:
        return False
    one, other = children(difference)
    return any(name_of(taken) in PICKS and children(taken)[:1] == [given] for taken, given in ((one, other), (other, one)))


class _Pairs(NamedTuple):
    """The distances of pairs, which of them are pulled together, and the margin for the others."""

    distances: Tensor
    same: Tensor
    margin: float


def _pairs(node: Any) -> _Pairs | None:
    """Of a contrastive loss: a label times a distance, and what the label leaves times what a distance lacks of a margin."""
    sides = [_half(one) for one in children(node)] if name_of(node) == "Add" else []
    if len(sides) != 2:
        return None
    for near, far in (sides, sides[::-1]):
        if near is None or far is None or near[0].shape != far[0].shape or not bool((near[0] + far[0] == 1).all()):
            continue
        below = children(far[1])[0] if name_of(far[1]) == "Pow" and children(far[1]) else far[1]
        distances = saved(near[1], "self") if name_of(near[1]) == "Pow" else _distances(near[1])
        lack = saved(below, "result" if name_of(below) == "Relu" else "self") if name_of(below) in HINGES else None
        if not isinstance(distances, Tensor) or not isinstance(lack, Tensor) or not distances.shape == lack.shape == near[0].shape:
            continue
        if not is_here(distances) or not is_here(lack):
            continue
        distances, lack = distances.detach(), lack.detach()
        above = lack > 0
        return _Pairs(distances, near[0] > 0, float((lack + distances)[above].median()) if bool(above.any()) else math.nan)
    return None


def _half(node: Any) -> tuple[Tensor, Any] | None:
    """A row of zeros and ones, and what it is multiplied by."""
    for _ in range(DEEP):
        if name_of(node) not in ("Mul", "Div"):
            return None
        below, numbers = children(node), [number_of(saved(node, side)) for side in ("self", "other")]
        given = next((one for side in ("self", "other") if isinstance(one := saved(node, side), Tensor) and not one.requires_grad), None)
        if len(below) != 1:
            return None
        if given is not None and given.dim() == 1 and is_here(given) and bool(((given == 0) | (given == 1)).all()):
            return given.detach().float(), below[0]
        if all(number != number for number in numbers):
            return None
        node = below[0]
    return None


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


def gives_distances(node: Any) -> bool:
    """Whether a function gives how far two things are from each other, which is no score: what is alike has the smaller one."""
    return _below(node, (*LENGTHS, "Sqrt")) is not None or _distances(node) is not None


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
