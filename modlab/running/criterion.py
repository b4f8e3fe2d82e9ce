"""The criterion of a loss as a function again, read from its graph: so that a loss that a loop computed can be computed once more.

What cannot be read is not guessed: the function is kept only where it gives the very value that was seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from modlab.frozen import frozen
from modlab.records.clues import SHAPES, Function
from modlab.running import composed_criteria
from modlab.running.autograd_nodes import children, dtype_of, name_of, saved
from modlab.running.loss_graph import Found
from modlab.running.values import leaves

Loss = Callable[[Tensor, Tensor], Tensor]

REDUCTIONS = {0: "none", 1: "mean", 2: "sum"}
CLOSE = 1e-5
"""Relative difference up to which two values of a loss are one."""

GIVEN = 8
"""Tensors of an output that are asked whether the loss is one of theirs."""

SCALED, STEPS = SHAPES | {"Mul", "Div"}, 4
"""What a loop does to a loss that it was given, and how often."""


def smoothing(found: list[Found]) -> float:
    """How much of a cross-entropy goes to all classes alike, if a loss is one of that kind: it has two terms then; else 0."""
    first, other = (found[0].term, found[1].term) if len(found) == 2 else (None, None)
    if first is None or other is None or first.node != "NllLoss" or other.node not in ("MaskedFill", "Sum") or other.criterion:
        return 0.0
    return 1 - first.factor if 0 < first.factor < 1 else 0.0


def rebuilt(found: Found, nodes: list[Any], output: Any, value: float, smoothed: float = 0.0) -> Callable[[Any, Tensor], Tensor] | None:
    """The loss as a function of the model's output and the target; None where it would not give this value.

    Args:
        found: the only term of the loss, or the first one of a cross-entropy that is smoothed.
        nodes: the functions between it and the output, the nearest to the loss first.
        output: of the model: a tensor, or several, of which one is compared.
        value: of the loss.
        smoothed: see `smoothing`.
    """
    if isinstance(output, Tensor):
        return _rebuilt(found, nodes, output, value, smoothed)
    for place, one in enumerate(_tensors(output)[:GIVEN]):
        loss = _rebuilt(found, nodes, one, value, smoothed) if one.requires_grad and one.dim() else None
        if loss is not None:
            return LossOfOne(place, loss)
    return None


def _rebuilt(found: Found, nodes: list[Any], output: Tensor, value: float, smoothed: float) -> Loss | None:
    criterion = _smoothed(found, smoothed) if smoothed else _criterion(found)
    if criterion is None or found.target is None or (found.term.met and found.term.criterion.endswith("error")):
        return None  # of what comes in on the way nothing is known
    steps = [_step(node, function) for node, function in zip(nodes, found.term.functions, strict=False)][::-1]
    if len(nodes) != len(found.term.functions) or any(step is None for step in steps):
        return None
    factor, target = 1.0 if smoothed else found.term.factor, found.target

    def loss(output: Tensor, target: Tensor) -> Tensor:
        for step in steps:
            output = step(output)  # type: ignore[misc]
        return factor * criterion(output, target)

    with torch.no_grad():
        try:
            again = float(loss(output.detach(), target))
        except (RuntimeError, ValueError, IndexError):
            return None
    return loss if math.isclose(again, value, rel_tol=CLOSE, abs_tol=1e-8) else None


def _criterion(found: Found) -> Loss | None:
    node, name = found.node, found.term.node
    kind = saved(node, "reduction")
    reduction = REDUCTIONS.get(kind, "mean") if isinstance(kind, int) else found.term.reduction
    weight, bend = saved(node, "weight"), saved(node, "delta")
    if name in ("NllLoss", "NllLoss2D"):
        ignore = saved(node, "ignore_index")
        return lambda output, target: F.nll_loss(output, target, weight, ignore_index=ignore, reduction=reduction)
    if name == "BinaryCrossEntropyWithLogits":
        positive = saved(node, "pos_weight")
        return lambda output, target: F.binary_cross_entropy_with_logits(output, target, weight, reduction=reduction, pos_weight=positive)
    if name == "SmoothL1Loss":
        beta = saved(node, "beta")
        return lambda output, target: F.smooth_l1_loss(output, target, reduction=reduction, beta=beta)
    if name == "HuberLoss":
        return lambda output, target: F.smooth_l1_loss(output, target, reduction=reduction, beta=bend)
    if found.term.criterion in (composed_criteria.LOGARITHMS, composed_criteria.RATES) and reduction in ("mean", "sum"):
        by_logarithm = found.term.criterion == composed_criteria.LOGARITHMS
        return lambda output, target: F.poisson_nll_loss(output, target, log_input=by_logarithm, eps=0.0, reduction=reduction)
    if name in ("LogSoftmax", "Log"):
        left_out = -100 if found.ignored is None else found.ignored
        dim = next((one.dim for one in found.term.functions if one.dim >= 0), 1)
        return lambda output, target: F.nll_loss(_in_rows(output, dim, target), target, ignore_index=left_out, reduction=reduction)
    if name in ("Pow", "Square", "Mul", "Abs") and found.term.criterion.endswith("error") and reduction:
        error = F.l1_loss if name == "Abs" else F.mse_loss
        return lambda output, target: error(output.reshape(target.shape), target, reduction=reduction)
    if name == "Add":
        return lambda output, target: _by_hand(output, target, reduction)
    plain: Any = {"MseLoss": F.mse_loss, "L1Loss": F.l1_loss, "BinaryCrossEntropy": F.binary_cross_entropy}.get(name)
    return None if plain is None else lambda output, target: plain(output, target, reduction=reduction)


def _by_hand(output: Tensor, target: Tensor, reduction: str) -> Tensor:
    """A binary cross-entropy as a loop writes it: of what is no chance it gives NaN, where PyTorch's raises an error."""
    each = -(target * output.log() + (1 - target) * torch.log1p(-output))
    return each.sum() if reduction == "sum" else each.mean() if reduction == "mean" else each


def _smoothed(found: Found, smoothed: float) -> Loss:
    """Of logarithms of chances a logarithm of a softmax is the same."""
    weight, ignore = saved(found.node, "weight"), saved(found.node, "ignore_index")
    reduction = REDUCTIONS.get(saved(found.node, "reduction"), "mean")
    return lambda output, target: F.cross_entropy(
        output, target, weight, ignore_index=ignore, reduction=reduction, label_smoothing=smoothed
    )


def _in_rows(output: Tensor, dim: int, target: Tensor) -> Tensor:
    """With the classes in the second dimension, and one row for each target where these are one row."""
    classes = output.movedim(dim, 1) if output.dim() > 1 else output
    return classes.movedim(1, -1).flatten(0, -2) if target.dim() == 1 and classes.dim() > 2 else classes


def _step(node: Any, function: Function) -> Callable[[Tensor], Tensor] | None:
    """What one function does, whatever the number of samples; None for one that is not known."""
    name, shape = function.name, function.shape
    if name == "LogSoftmax":
        return lambda x: x.log_softmax(function.dim)
    if name == "Log":
        return torch.log
    if name == "Softmax":
        return lambda x: x.softmax(function.dim)
    if name in ("View", "UnsafeView", "ReshapeAlias") and shape:
        return lambda x: x.reshape(-1, *shape[1:])
    if name == "Transpose":
        first, second = saved(node, "dim0"), saved(node, "dim1")
        return lambda x: x.transpose(first, second)
    if name == "Select":
        dim, index = saved(node, "dim"), saved(node, "index")
        return lambda x: x.select(dim, index)
    if name == "Index":  # of the rows, or nodes of a graph, that count
        indices = saved(node, "indices")
        return (lambda x: x[indices]) if isinstance(indices, tuple) and all(isinstance(one, Tensor) for one in indices) else None
    if name == "Gather":
        dim, index = saved(node, "dim"), saved(node, "index")
        return (lambda x: x.gather(dim, index)) if isinstance(index, Tensor) else None
    if name == "ToCopy":
        dtype = dtype_of(node)
        return lambda x: x.to(dtype)
    if name in ("Squeeze", "Unsqueeze"):
        dim = saved(node, "dim")
        if not isinstance(dim, int):
            return None
        return (lambda x: x.squeeze(dim)) if name == "Squeeze" else (lambda x: x.unsqueeze(dim))
    unary = {"Sigmoid": torch.sigmoid, "Tanh": torch.tanh, "Relu": torch.relu, "Clone": torch.clone, "Alias": torch.clone}.get(name)
    return unary


@frozen
class LossOfOne:
    """The loss of one tensor among those that a model gives, as of the logits of one that gives its state as well.

    Attributes:
        place: which one it is.
        loss: of that tensor and the target.
    """

    place: int
    loss: Loss

    def __call__(self, output: Any, target: Tensor) -> Tensor:
        """The loss of an output."""
        return self.loss(_tensors(output)[self.place], target)


# ---- a loss that the model computes itself, as those of transformers do, and gives among its outputs


@frozen
class OwnLoss:
    """Takes the loss out of a model's output, whatever the target is.

    Attributes:
        place: which one of the output's tensors it is.
        scale: what the loop multiplies it by.
    """

    place: int
    scale: float

    def __call__(self, output: Any, target: Any) -> Tensor:
        """The loss of an output."""
        return self.scale * _tensors(output)[self.place]


def own_loss(loss: Tensor, output: Any, value: float) -> OwnLoss | None:
    """The loss as what a model's output holds; None if it was made of something else, or its value is not at hand."""
    if not math.isfinite(value):
        return None  # on another device: to ask there would wait for all that runs
    given = {one.grad_fn: place for place, one in enumerate(_tensors(output)) if one.grad_fn is not None and one.numel() == 1}
    node: Any = loss.grad_fn
    for _ in range(STEPS):
        if node in given:
            own = float(_tensors(output)[given[node]].detach())
            scale = value / own if own else 1.0
            return OwnLoss(given[node], scale) if math.isfinite(scale) else None
        node = next(iter(children(node)), None) if name_of(node) in SCALED and len(children(node)) == 1 else None
    return None


def _tensors(output: Any) -> list[Tensor]:
    return [one for _, one, _ in leaves(output) if isinstance(one, Tensor)]
