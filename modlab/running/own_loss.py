"""A loss that the model computes itself, as those of transformers do, and gives among its outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from inspect import Parameter, signature
from typing import Any

from torch import Tensor
from torch.nn import Module

from modlab.frozen import frozen
from modlab.records.clues import SHAPES
from modlab.running.autograd_nodes import children, name_of
from modlab.running.values import leaves

SCALED, STEPS = SHAPES | {"Mul", "Div"}, 4
"""What a loop does to a loss that it was given, and how often."""


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
    """The loss as what a model's output holds; None if it was made of something else."""
    given = {one.grad_fn: place for place, one in enumerate(_tensors(output)) if one.grad_fn is not None and one.numel() == 1}
    node: Any = loss.grad_fn
    for _ in range(STEPS):
        if node in given:
            own = float(_tensors(output)[given[node]].detach())
            scale = value / own if own else 1.0
            return OwnLoss(given[node], scale) if math.isfinite(scale) else None
        node = next(iter(children(node)), None) if name_of(node) in SCALED and len(children(node)) == 1 else None
    return None


def named_inputs(model: Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """The arguments of a call by their names in ``forward``; None where not all of them can be given by name."""
    try:
        bound = signature(model.forward).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return None
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind in (Parameter.VAR_POSITIONAL, Parameter.POSITIONAL_ONLY):
            return None
        named |= value if kind is Parameter.VAR_KEYWORD else {name: value}
    return named


def _tensors(output: Any) -> list[Tensor]:
    return [one for _, one, _ in leaves(output) if isinstance(one, Tensor)]
