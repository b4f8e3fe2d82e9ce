"""The graph of a loss: which criterion it is, what is multiplied, and which functions stand between it and the model's output.

Only names, shapes and saved tensors of autograd's nodes are read, before ``backward()`` frees them; a saved tensor that somebody packs by
hooks of their own (checkpoints, offloading) is left alone, for to unpack it would run these.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from modlab.records.clues import INFINITE, MOVES, RANGES, Function, Term
from modlab.running import bounds, composed_criteria, gains, operand_graph, pair_losses, written_criteria
from modlab.running.autograd_nodes import children, is_here, is_logistic, is_normalizing, name_of, number_of, saved, shape_of
from modlab.running.operand_graph import LAYOUT
from modlab.running.written_criteria import Compared
from modlab.statistics.memory import is_there

LOGARITHMS = frozenset(("Log", "Log1P", "Log2", "Log10"))

HUGE = 1e30
"""An exponential beyond which what is made of several of them becomes infinite."""

CHANCES, OPPOSITES = frozenset(("Sigmoid", "Softmax")), frozenset(("Rsub", "Sub"))
"""Functions whose result rounds to 0, or to 1, where it is sure; and those that make 1 - p of it."""

HIDDEN, FEW = 10.0, 8
"""Logarithm of a chance, below zero, that only a mask gives; and answers without which some that are hidden are no rule."""

DEEP = 96
"""Functions that are looked at, at most."""

FAINT = 1e-3
"""Size of weights of samples below which they make a loss small."""

UNIT = 1e-3
"""What the length of a vector may differ from 1 by."""

ENDING = 8
"""Of the model's own, those that are looked at."""

CRITERIA = {
    "NllLoss": "likelihood",
    "NllLoss2D": "likelihood",
    "MseLoss": "squared error",
    "L1Loss": "absolute error",
    "SmoothL1Loss": "smooth error",
    "HuberLoss": "smooth error",
    "BinaryCrossEntropy": "binary cross-entropy",
    "BinaryCrossEntropyWithLogits": "binary cross-entropy with logits",
    "KlDiv": "divergence",
    "Xlogy": "divergence",
    "CtcLoss": "alignment",
}
"""By the name of the function, without what autograd puts behind it."""

WRITTEN = {"Abs": "absolute error", "LinalgVectorNorm": "norm of the error", "Norm": "norm of the error"}
"""Criteria that are written out, by what is done with the difference; else it is squared."""

PARTS = frozenset(("Select", "Slice", "Narrow", "Split", "SplitWithSizes", "Unbind"))
"""Those that take a part by its place."""

PRODUCTS = ("Bmm", "Mm", "Mv", "Dot")
AFFINE = (*PRODUCTS, "Addmm", "Addmv", "Convolution", "Linear")
"""Functions that multiply and add up."""

PICKS = frozenset(("Gather", "Index"))
"""Functions that take some numbers out of many."""

ACTIVATIONS = frozenset(
    [
        "Softmax",
        "LogSoftmax",
        "Sigmoid",
        "Tanh",
        "Relu",
        "LeakyRelu",
        "Elu",
        "Gelu",
        "Silu",
        "Softplus",
        "Hardtanh",
        "Clamp",
        "ClampMin",
        "ClampMax",
        "Exp",
        "Abs",
        "Threshold",
        "Hardsigmoid",
        "LogSigmoid",
        "Norm",
        "LinalgVectorNorm",
        "Sign",
        "Round",
        "Floor",
        "Ceil",
    ]
)


class Found(NamedTuple):
    """A term, its node, the tensors that its criterion compares, where autograd has saved them, and the nodes of its functions.

    Of classes the output has them in its second dimension, and `ignored` is the one that a target has where it does not count.
    `passed` are the functions that picked or weighted its numbers on the way to the loss.
    """

    term: Term
    node: Any
    output: Tensor | None
    target: Tensor | None
    way: list[Any]
    ignored: int | None = None
    passed: tuple[Any, ...] = ()


class _Summand(NamedTuple):
    """A node with its factor, how it is reduced, and what picked or weighted its numbers on the way to the loss."""

    node: Any
    factor: float = 1.0
    reduction: str = ""
    passed: tuple[Any, ...] = ()


def read(loss: Tensor, made: Mapping[Any, str]) -> list[Found]:
    """The summands of a loss, those with a criterion first.

    Args:
        loss: with a graph.
        made: the nodes that gave the outputs of modules, and the paths of these.
    """
    found = [_term(one, made) for one in _summands(loss.grad_fn, made)]
    return sorted(found, key=lambda one: (one.term.criterion in ("", "penalty"), one.term.criterion == "penalty"))


def _summands(node: Any, made: Mapping[Any, str]) -> Iterator[_Summand]:
    """What is added up in the end."""
    waiting: deque[_Summand] = deque([_Summand(node)])
    for _ in range(DEEP):
        if not waiting:
            return
        one = waiting.popleft()
        node, factor = one.node, one.factor
        name, below = name_of(node), children(node)
        if node in made or not below or name in CRITERIA:
            yield one
        elif name in ("Add", "Sub") and not _is_difference(node, one.reduction):
            alpha = number_of(saved(node, "alpha"))
            second = factor * (alpha if alpha == alpha else 1.0) * (-1 if name == "Sub" else 1)
            sides = [child for child, _ in node.next_functions]
            waiting += [
                one._replace(node=child, factor=side) for child, side in zip(sides, (factor, second), strict=False) if child is not None
            ]
        elif name in ("Rsub", "Neg"):
            waiting.append(one._replace(node=below[0], factor=-factor))
        elif name in ("Mul", "Div") and len(below) == 1:
            passed = (*one.passed, node) if name == "Mul" else one.passed
            waiting.append(one._replace(node=below[0], factor=_scaled(node, name, factor), passed=passed))
        elif name in ("Mean", "Sum"):
            waiting.append(_reduced(one, name.lower(), math.prod(shape_of(below[0])) / max(math.prod(shape_of(node)), 1)))
        elif name == "Where" and name_of(below[0]) == "CtcLoss":  # what is infinite is left out
            waiting.append(one._replace(node=below[0]))
        elif name in ("Stack", "Cat"):
            waiting += [one._replace(node=child) for child in below]
        elif name in LAYOUT or (name == "Sqrt" and not one.reduction):
            passed = (*one.passed, node) if name in PICKS else one.passed
            waiting.append(one._replace(node=below[0], passed=passed))
        else:
            yield one


def _reduced(summand: _Summand, reduction: str, many: float) -> _Summand:
    """With what is below, of which so many are added up or averaged: a mean of sums is a mean, many times as large."""
    below, before = children(summand.node)[0], summand.reduction
    if before in ("", reduction):
        return summand._replace(node=below, reduction=reduction)
    return summand._replace(node=below, factor=summand.factor * many if before == "mean" else summand.factor / many)


def _scaled(node: Any, name: str, factor: float) -> float:
    number = number_of(saved(node, "other"))
    if number != number or not number:
        return factor * _faint(node) if number != number else 0.0 if name == "Mul" else factor
    return factor * number if name == "Mul" else factor / number


def _faint(node: Any) -> float:
    """The greatest of the weights by which the numbers of a loss are multiplied, where each of them is tiny; else 1."""
    for side in ("self", "other") if name_of(node) == "Mul" else ():
        weight = saved(node, side)
        if not isinstance(weight, Tensor) or not weight.is_floating_point() or weight.requires_grad or not is_here(weight):
            continue
        if 1 < weight.numel() <= written_criteria.MANY:
            most = float(weight.abs().max())
            return most if 0 < most < FAINT else 1.0
    return 1.0


def _is_difference(node: Any, reduction: str) -> bool:
    """Whether a difference is that of outputs and targets, before it is squared, and not one of losses."""
    return bool(reduction) and len(shape_of(node)) > 0


class _Reading(NamedTuple):
    """What a term measures: a criterion, with its factor and reduction, and what it compares.

    Attributes:
        node: the term's function; `start`: that below which lies what is compared.
        path, at: the functions from there to the output of a module, and that output's own.
        output, target: the tensors that are compared, where autograd has saved them.
        ignored: a class that does not count.
    """

    criterion: str
    factor: float
    reduction: str
    node: Any
    start: Any
    path: list[Any]
    at: Any
    output: Tensor | None = None
    target: Tensor | None = None
    ignored: int | None = None


def _of_pytorch(summand: _Summand, made: Mapping[Any, str]) -> _Reading:
    """What a criterion of PyTorch's own measures."""
    node, factor, reduction, passed = summand
    target, kind, ignored = saved(node, "target"), saved(node, "reduction"), saved(node, "ignore_index")
    reduction = {1: "mean", 2: "sum"}.get(kind, reduction) if isinstance(kind, int) else reduction
    if ignored is not None and isinstance(target, Tensor) and not kind:  # the mean, and a mask, come after it
        target = written_criteria.masked(target, passed, ignored)
    criterion, (path, at) = CRITERIA[name_of(node)], _way(node, made)
    bend = number_of(saved(node, "delta"))
    factor = factor * bend if name_of(node) == "HuberLoss" and bend > 0 else factor  # so many times a smooth error that bends there
    if criterion == "alignment":
        return _Reading(criterion, factor, reduction, node, node, path, at, saved(node, "log_probs"))
    if criterion == "likelihood" and any(name_of(one) == "LogSoftmax" for one in path[:6]):
        criterion = "cross-entropy"
    return _Reading(criterion, factor, reduction, node, node, path, at, saved(node, "self"), target, ignored)


def _by_hand(summand: _Summand, made: Mapping[Any, str]) -> _Reading:
    """What a criterion that is written out measures; of another function, and of a penalty, what comes into it."""
    node, factor, reduction, passed = summand
    name, below = name_of(node), children(node)
    if below and name in ("Pow", "Abs", "Square", "Mul", "LinalgVectorNorm", "Norm") and name_of(below[0]) in ("Sub", "Rsub"):
        return _Reading(WRITTEN.get(name, "squared error"), factor, reduction, node, below[0], *_way(below[0], made))
    start, times = written_criteria.in_other_units(node)
    if start is not None:
        times = times if name == "Abs" else times**2
        return _Reading(WRITTEN.get(name, "squared error"), times * factor, reduction, node, start, *_way(start, made))
    pair = written_criteria.difference(node) if name == "Where" else None
    if pair is not None:
        return _Reading("smooth error", factor, reduction, *pair, *_way(pair[1], made))
    composed = composed_criteria.read(node)
    if composed is not None:
        path, at = _way(composed.start, made)
        return _Reading(
            composed.criterion, composed.sign * factor, reduction, node, composed.start, path, at, composed.output, composed.target
        )
    path, at = _way(node, made) if name != "AccumulateGrad" else ([], None)
    criterion, sign, (output, target) = _written(summand, path, is_output=node in made)
    read = _Reading(criterion, sign * factor, reduction, node, node, path, at, output, target)
    if criterion == "cross-entropy":
        reduction = "sum" if name in PRODUCTS else reduction
        if reduction == "mean" and output is not None and not any(name_of(one) in PICKS for one in (*passed, *path)):
            factor /= output.shape[1] if output.dim() > 1 else len(output)  # the mean over all classes, of which one counts
        return read._replace(factor=sign * factor, reduction=reduction, ignored=written_criteria.LEFT_OUT)
    if criterion.startswith("binary") and name == "Add":
        path, at = _way(start := children(below[0])[0], made)
        return read._replace(start=start, path=[one for one in path if name_of(one) not in ("Neg", "Rsub")], at=at)
    return read._replace(criterion="penalty") if at is None and not criterion and made and _is_penalty(node) else read


def _term(summand: _Summand, made: Mapping[Any, str]) -> Found:
    read = (_of_pytorch if name_of(summand.node) in CRITERIA else _by_hand)(summand, made)
    node, at, path, passed = read.node, read.at, read.path, summand.passed
    name, (ends, layer) = name_of(node), _ending(at, made) if at is not None else ([], None)
    picks = ("Sub", *PICKS) if name_of(summand.node) == "Log" else ("Sub",)
    own = [node] if name in ("LogSoftmax", "Log") or is_normalizing(node) else []
    way = [*own, *(one for one in path if name_of(one) not in picks)]
    against_outputs = name_of(read.start) in ("Sub", "Rsub", *CRITERIA) and len(children(read.start)) == 2
    target = read.target if read.target is None or not read.target.requires_grad else None  # that is a second output
    compared = (
        tuple(read.output.shape) if read.output is not None and name != "Add" else shape_of(read.start if read.output is None else node)
    )
    giver, by_numbers = operand_graph.giver([*path, *ends]), not read.criterion or operand_graph.is_repeated(read.target)
    term = Term(
        read.criterion,
        name_of(summand.node),
        read.reduction,
        read.factor,
        tuple(map(_function, way)),
        tuple(map(_function, ends)),
        shape_of(at) if at is not None else (),
        compared,
        made.get(at),
        any(map(_is_square, path)),
        against_outputs
        or _is_of_two(read.start, made)
        or (not read.criterion and (_is_likeness(node, made) or pair_losses.is_distance(node, made))),
        _across(node, [*path, *ends], summand.passed) if read.criterion in ("cross-entropy", "likelihood") else -1,
        pair_losses.pushes(node, read.factor, made),
        pair_losses.is_of_positives(node, read.factor),
        _ends_of(target) if read.criterion.endswith("error") and target is not None else (math.nan, math.nan),
        gains.of(node, passed) or ("" if read.criterion else gains.of_sum(node)),
        layer,
        operand_graph.spread(read.start, path, at, compared, compares=bool(read.criterion), by_numbers=by_numbers),
        giver,
        _is_short(read, target, giver),
        operand_graph.is_met(path),
        at is not None and operand_graph.are_alone(path[0] if path else at),
    )
    return Found(term, node, read.output, target, way, read.ignored, passed)


def _ends_of(target: Tensor) -> tuple[float, float]:
    """Its least and its largest number, if it lies here."""
    if not is_there(target) or not is_here(target) or not target.numel() or target.is_complex():
        return math.nan, math.nan
    low, high = torch.aminmax(target.detach())
    return float(low), float(high)


def _is_short(read: _Reading, target: Tensor | None, giver: str) -> bool:
    """Whether the target of an error lies far beyond what a function can give, if it lies here and there is enough of it."""
    if target is None or read.output is None or giver not in RANGES or not read.criterion.endswith("error"):
        return False
    if read.output.shape != target.shape or target.numel() < FEW or target.is_complex() or not is_here(target):
        return False
    reach, each = bounds.Reach(), target.numel() // bounds.MOST | 1  # odd, so as not to keep to one column
    reach.add(read.output.detach().flatten()[::each], target.detach().flatten()[::each], RANGES[giver])
    return reach.is_short


def _written(summand: _Summand, path: list[Any], *, is_output: bool) -> tuple[str, int, Compared]:
    """A criterion that is written out, the sign with which it stands in a loss that is to become small, and what it compares."""
    node = summand.node
    name, below = name_of(node), children(node)
    if name == "LogSoftmax":  # by hand, or against shares of the classes
        dim = saved(node, "dim")
        compared = written_criteria.classes(saved(node, "result"), dim, summand.passed) if isinstance(dim, int) else Compared()
        return "cross-entropy", -1, compared
    softmax = next((one for one in path[:6] if name_of(one) == "Softmax"), None) if name == "Log" else None
    if softmax is not None and isinstance(dim := saved(softmax, "dim"), int):
        picks = [one for one in path[: path.index(softmax)] if name_of(one) in PICKS]
        result = saved(softmax, "result")
        logarithms = result.detach().log() if isinstance(result, Tensor) and result.numel() <= written_criteria.MANY else None
        return "cross-entropy", -1, written_criteria.classes(logarithms, dim, (*summand.passed, *picks))
    log_softmax = next((one for one in path[:8] if name_of(one) == "LogSoftmax"), None) if name in PRODUCTS else None
    if log_softmax is not None and math.prod(shape_of(node)) == 1 and isinstance(dim := saved(log_softmax, "dim"), int):
        compared = written_criteria.multiplied(saved(log_softmax, "result"), dim, node)  # as einsum does it
        return ("cross-entropy", -1, compared) if compared.target is not None else ("", 1, compared)
    if name == "Add" and len(below) == 2:
        criterion, sign, compared = written_criteria.binary(*below)
        return criterion, sign or 1, compared
    if name == "Sub" and (written_criteria.divergence(node) is not None or written_criteria.is_divergence(node, summand.passed)):
        return "divergence", 1, Compared()
    picked = is_output and {name_of(one) for one in summand.passed} <= PICKS and bool(summand.passed)  # not weighted, as by a reward
    return ("likelihood", -1, Compared()) if picked and summand.factor < 0 else ("", 1, Compared())


def _across(node: Any, path: list[Any], passed: tuple[Any, ...]) -> int:
    """The dimension of a softmax by hand if the classes are picked along another one; else -1."""
    at = next((place for place, one in enumerate([node, *path][:7]) if name_of(one) in ("LogSoftmax", "Softmax")), None)
    if at is not None and name_of(node) == "NllLoss":
        return _flattened([node, *path][at], path[: at - 1], saved(node, "self"))
    if at is None or name_of(node) not in ("LogSoftmax", "Log"):
        return -1
    softmax = [node, *path][at]
    shape, dim = shape_of(softmax), saved(softmax, "dim")
    if not shape or not isinstance(dim, int):
        return -1
    dim %= len(shape)
    return dim if written_criteria.crossed(shape, dim, (*passed, *path[: max(at - 1, 0)])) else -1


def _flattened(softmax: Any, between: list[Any], rows: Any) -> int:
    """The dimension of a softmax of sequences that is not the last one, where they are then viewed as rows of classes; else -1."""
    shape, dim = shape_of(softmax), saved(softmax, "dim")
    views = bool(between) and all(name_of(one) in ("View", "UnsafeView", "ReshapeAlias", "Log") for one in between)
    if not views or not isinstance(dim, int) or not isinstance(rows, Tensor) or rows.shape[-1:] != shape[-1:] or len(shape) < 3:
        return -1
    return dim % len(shape) if dim % len(shape) != len(shape) - 1 else -1


def _is_square(node: Any) -> bool:
    """Whether a product of matrices is that of a matrix with itself, and not of two parts of it, as of two views in one batch."""
    if name_of(node) not in ("Mm", "Bmm", "Matmul"):
        return False
    sources = [_source(child, place) for child, place in node.next_functions]
    if len(sources) != 2 or sources[0].node is None or sources[0].node is not sources[1].node:
        return False
    return sources[0] == sources[1] or _are_alike(node)


def _are_alike(product: Any) -> bool:
    """Whether both sides of a product of matrices hold the same numbers, as two views of which one is a copy."""
    one, other = saved(product, "self"), saved(product, "mat2")
    if not isinstance(one, Tensor) or not isinstance(other, Tensor) or not is_here(one) or one.numel() > written_criteria.MANY:
        return False
    return one.shape == other.mT.shape and torch.equal(one.detach(), other.detach().mT)


def _is_likeness(node: Any, made: Mapping[Any, str]) -> bool:
    """Whether it multiplies two outputs, or two parts of one, number by number: what is added up then is how alike they are."""
    if name_of(node) != "Mul":
        return False
    sources = [_source(child, place, made) for child, place in node.next_functions]
    return len(sources) == 2 and all(one.node in made for one in sources) and sources[0] != sources[1]


def _is_of_two(node: Any, made: Mapping[Any, str]) -> bool:
    """Whether a criterion is asked of the difference of two outputs, as where one of a pair should be the higher one."""
    below = children(node)
    while len(below) == 1 and name_of(below[0]) in (*LAYOUT, "Mul", "Div"):
        below = children(below[0])
    if name_of(node) not in CRITERIA or len(below) != 1 or name_of(below[0]) != "Sub":
        return False
    sources = [_source(child, place, made) for child, place in below[0].next_functions]
    return len(sources) == 2 and all(one.node in made for one in sources) and sources[0] != sources[1]


class _Source(NamedTuple):
    """What was laid out anew, which of its results that is, and which parts were taken of it."""

    node: Any
    place: int
    parts: tuple[Any, ...]


def _source(node: Any, place: int, made: Collection[Any] = ()) -> _Source:
    parts: list[Any] = []
    while node is not None and node not in made and name_of(node) in LAYOUT and children(node):
        if name_of(node) not in MOVES:
            parts.append(_part(node, place))
        node, place = next((child, number) for child, number in node.next_functions if child is not None)
    return _Source(node, place, tuple(parts))


def _part(node: Any, place: int) -> Any:
    """Which part a function takes: by its place, where that is known; else what this one takes, and no other."""
    if name_of(node) not in PARTS:
        return node
    return (name_of(node), place, *(saved(node, name) for name in ("dim", "start", "end", "step", "index")))


def _is_penalty(node: Any) -> bool:
    """Whether nothing but parameters come into it, as into the sum of their squares, and no sample by way of a product with them."""
    waiting, leaves = deque([node]), 0
    for _ in range(DEEP):
        if not waiting:
            break
        one = waiting.popleft()
        below = children(one)
        if name_of(one) in AFFINE and len(below) < len(one.next_functions):
            return False
        leaves += not below and name_of(one) == "AccumulateGrad"
        waiting += below
    return leaves > 0 and not waiting


def _way(node: Any, made: Mapping[Any, str]) -> tuple[list[Any], Any]:
    """The functions between a node and the nearest output of a module, without both; and that output's own."""
    if node in made:
        return [], node
    before: dict[Any, Any] = {node: None}
    waiting = deque([node])
    while waiting and len(before) < DEEP:
        one = waiting.popleft()
        for child in children(one):
            if child in before:
                continue
            before[child] = one
            if child in made:
                way, step = [], one
                while step is not None and step is not node:
                    way.append(step)
                    step = before[step]
                return way[::-1] if node in made else [*way[::-1]], child
            waiting.append(child)
    return [], None


def _ending(node: Any, made: Mapping[Any, str]) -> tuple[list[Any], str | None]:
    """The model's last functions: as long as they only lay out anew, and the activation, if there is one; and the layer before them."""
    found, layer = [], made.get(node)
    for _ in range(ENDING):
        name, layer = _name(node), made.get(node, layer)
        if name in ACTIVATIONS:
            found.append(node)
        elif operand_graph.is_mixed(node) or (name not in LAYOUT and not (name == "Mul" and number_of(saved(node, "other")) == 1)):  # 1 / x
            break
        below = children(node)
        if not below:
            break
        node = below[0]
    return found, layer


def _is_of_directions(product: Any) -> bool:
    """Whether a product of matrices is one of vectors of length 1, so that it gives cosines."""
    sides = [(saved(product, "self"), 1), (saved(product, "mat2"), 0)]
    return all(
        isinstance(one, Tensor) and is_here(one) and bool(((one.detach().norm(dim=dim) - 1).abs() < UNIT).all()) for one, dim in sides
    )


def _name(node: Any) -> str:
    """The function's, also of one that is written out."""
    return "LogSoftmax" if is_normalizing(node) else "Sigmoid" if is_logistic(node) else name_of(node)


def _function(node: Any) -> Function:
    name = _name(node)
    dim = saved(node, "dim") if name in ("Softmax", "LogSoftmax") else None
    if dim is None and name == "LogSoftmax":
        dims = next((saved(one, "dim") for one in children(node) if name_of(one) == "Logsumexp"), None)
        dim = dims[0] if isinstance(dims, tuple) and len(dims) == 1 else None
    shape = shape_of(node)
    along = -1
    if isinstance(dim, int):
        along = dim % len(shape) if shape else dim
    number = number_of(saved(node, "other")) if name in ("Mul", "Div") else 1.0 if name == "Mm" and _is_of_directions(node) else math.nan
    return Function(name, along, number, shape, bounds.of(node))


# ---- numbers on the way


def seen(loss: Tensor) -> Tensor | None:
    """The nearest tensor of several samples that a function on the way to a loss has saved, where no criterion tells of one."""
    for node in _nearest(loss.grad_fn, DEEP // 4):
        for name in ("self", "result", "mat1", "x1"):
            one = saved(node, name)
            if isinstance(one, Tensor) and one.dim() > 1 and one.is_floating_point() and len(one) > 1:
                return one.detach()
    return None


def risks(loss: Tensor) -> tuple[str, ...]:
    """What makes a loss, or its gradient, no number: read where its functions have saved what they took; nothing of an accelerator."""
    found = {risk for node in _nearest(loss.grad_fn, DEEP) if (test := RISKS.get(name_of(node))) and (risk := test(node))}
    if INFINITE in found:
        logs = any(name_of(node) in LOGARITHMS for node in _nearest(loss.grad_fn, DEEP))
        found = (found - {INFINITE}) | {"log of zero"} if logs else found | {"division by zero"}
    return tuple(sorted(found))


def away_from_prior(loss: Tensor) -> float:
    """How far from 1 an exponential in a loss is at most, as the variance in a divergence from a normal one; NaN without one."""
    for node in _nearest(loss.grad_fn, DEEP // 2):
        if name_of(node) == "Exp" and not any(name_of(one) == "Sub" for one in children(node)):  # no ratio of two chances
            result = saved(node, "result")
            if isinstance(result, Tensor) and is_here(result) and result.dim() > 1 and result.numel() > 8:
                return float((result.detach() - 1).abs().max())
    return math.nan


def _nearest(node: Any, most: int) -> Iterator[Any]:
    met, waiting = {node}, deque([node])
    for _ in range(most):
        if not waiting:
            return
        node = waiting.popleft()
        yield node
        for child in children(node):
            if child not in met:
                met.add(child)
                waiting.append(child)


def _has(tensor: Any, test: Any) -> bool:
    return isinstance(tensor, Tensor) and is_here(tensor) and tensor.numel() > 0 and bool(test(tensor.detach()).any())


def _log(node: Any) -> str:
    taken = saved(node, "self")
    if _has(taken, lambda x: x <= 0):
        return "log of a negative" if _has(taken, lambda x: x < 0) else "log of zero"
    below, added = next(iter(children(node)), None), False
    while below is not None and name_of(below) in OPPOSITES | MOVES | {"Add"}:
        added |= name_of(below) == "Add"
        below = next(iter(children(below)), None)
    is_chance = name_of(below) in CHANCES and (not added or _is_nothing_added(taken, saved(below, "result")))
    return "logarithm of a chance" if is_chance else ""


def _log1p(node: Any) -> str:
    taken = saved(node, "self")
    if _has(taken, lambda x: x < -1):
        return "log of a negative"
    return "log of zero" if _has(taken, lambda x: x == -1) else ""


def _is_nothing_added(taken: Any, chance: Any) -> bool:
    """Whether a logarithm takes a chance, or what that lacks of 1, to the last digit: what was added is 0, or too small."""
    if not isinstance(taken, Tensor) or not isinstance(chance, Tensor) or taken.numel() != chance.numel() or not is_here(taken):
        return False
    taken, chance = taken.detach().flatten(), chance.detach().flatten()
    return torch.equal(taken, chance) or torch.equal(taken, 1 - chance)


def _root(node: Any) -> str:
    result = saved(node, "result")
    if _has(result, torch.isnan) and _is_finite_below(node):
        return "root of a negative"
    if _has(result, lambda x: x == 0):
        return "root of zero"
    below = next(iter(children(node)), None)
    while below is not None and name_of(below) in MOVES | {"Sum", "Mean"}:  # what is added keeps it from 0
        below = next(iter(children(below)), None)
    return "root of squares" if math.prod(shape_of(node)) > 1 and name_of(below) in ("Pow", "Mul", "Var") else ""


def _is_finite_below(node: Any) -> bool:
    """Whether all that the functions in front of one have saved is finite, so that it is the first that gives NaN."""
    return not any(
        _has(saved(one, name), lambda x: ~x.isfinite())
        for one in islice(_nearest(node, DEEP // 4), 1, None)
        for name in ("self", "other", "result")
    )


def _power(node: Any) -> str:
    exponent, base = number_of(saved(node, "exponent")), saved(node, "self")
    if exponent == exponent and not exponent.is_integer() and _has(base, lambda x: x < 0):
        return "root of a negative"
    if exponent == exponent and 0 < exponent < 1 and _has(base, lambda x: x == 0):
        return "root of zero"
    return "division by zero" if exponent < 0 and _has(saved(node, "self"), lambda x: x == 0) else ""


def _deviation(node: Any) -> str:
    return "root of zero" if _has(saved(node, "result"), lambda x: x == 0) else ""


def _quotient(node: Any) -> str:
    return "division by zero" if _has(saved(node, "other"), lambda x: x == 0) else ""


def _shares(node: Any) -> str:
    """A product with exponentials of shares: a divergence that was promised logarithms of them."""
    for name in ("self", "other"):
        given = saved(node, name)
        if not isinstance(given, Tensor) or given.requires_grad or given.dim() < 2 or not is_here(given) or not given.is_floating_point():
            continue
        if given.shape[-1] > 2 and given.numel() <= written_criteria.MANY and 1 <= float(given.min()) <= float(given.max()) < 2.72:
            totals = given.log().sum(-1)
            return "no log" if bool((totals - 1).abs().max() < 1e-3) else ""
    return ""


def _exponential(node: Any) -> str:
    return "overflow" if _has(saved(node, "result"), lambda x: x > HUGE) else ""


def _hyperbolic(node: Any) -> str:
    """The hyperbolic cosine or sine of a number whose exponential is too large."""
    return "overflow" if _has(saved(node, "self"), lambda x: x.abs().exp() > HUGE) else ""


def _product(node: Any) -> str:
    """Zero times infinity is NaN: what is infinite is a logarithm of a constant, or a quotient, which the graph does not have."""
    return INFINITE if any(_has(saved(node, side), torch.isinf) for side in ("self", "other")) else ""


def _logarithms(node: Any) -> str:
    """The targets of a divergence, of which it takes the logarithm itself."""
    return "logarithms as targets" if _has(saved(node, "other"), lambda x: x < 0) else ""


def _weighted(node: Any) -> str:
    return "division by zero" if _has(saved(node, "weight"), lambda x: ~x.isfinite()) else ""


def _hidden_answers(node: Any) -> str:
    """A mask of scores under a cross-entropy that hides the right ones: most classes that are asked for have no chance."""
    chances, target, ignored = (saved(node, name) for name in ("self", "target", "ignore_index"))
    if not (isinstance(chances, Tensor) and isinstance(target, Tensor)) or chances.dim() != 2 or not is_here(chances):
        return ""
    below = next(iter(children(node)), None)
    for _ in range(ENDING):
        if below is None or name_of(below) not in (LAYOUT - {"Stack"}) | {"LogSoftmax", "Mul", "Div"}:
            break
        below = next(iter(children(below)), None)
    mask = _mask(below)
    if mask is None or mask.numel() != chances.numel():
        return ""
    asked = (target != ignored).nonzero().flatten()
    hidden = mask.reshape(chances.shape)[asked, target[asked]] & (chances.detach()[asked, target[asked]] < -HIDDEN)
    return "answers hidden" if len(asked) >= FEW and float(hidden.double().mean()) > 0.5 else ""


def _mask(node: Any) -> Tensor | None:
    """What hides scores, or all that hide those of single steps which lie on one another."""
    if name_of(node) == "Stack":
        masks = [saved(one, "mask") for one in children(node) if name_of(one) == "MaskedFill"]
        some = [one for one in masks if isinstance(one, Tensor)]
        alike = len(some) == len([*children(node)]) and len({one.shape for one in some}) == 1
        return torch.stack(some, saved(node, "dim")) if alike else None
    mask = saved(node, "mask") if name_of(node) == "MaskedFill" else None
    return mask if isinstance(mask, Tensor) else None


def _cast(node: Any) -> str:
    given: Any = getattr(node, "_input_metadata", ())
    return "half" if given and str(given[0].dtype) == "torch.float16" else ""


RISKS = {
    "Log": _log,
    "Log1P": _log1p,
    "Log2": _log,
    "Log10": _log,
    "Sqrt": _root,
    "Rsqrt": lambda node: "division by zero" if _has(saved(node, "result"), lambda x: x.isinf()) else "",
    "Pow": _power,
    "Std": _deviation,
    "Div": _quotient,
    "Reciprocal": lambda node: "division by zero" if _has(saved(node, "result"), lambda x: x.isinf()) else "",
    "Exp": _exponential,
    "Cosh": _hyperbolic,
    "Sinh": _hyperbolic,
    "Mul": lambda node: _product(node) or _shares(node),
    "NllLoss": lambda node: _hidden_answers(node) or _weighted(node),
    "NllLoss2D": _weighted,
    "BinaryCrossEntropyWithLogits": _weighted,
    "ToCopy": _cast,
    "Xlogy": _logarithms,
}
"""By the name of a function."""
