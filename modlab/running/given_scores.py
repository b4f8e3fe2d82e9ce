"""The scores that a softmax in a loss is given, where they can be read: the model's output, or the last product or quotient."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from modlab.records.clues import MOVES
from modlab.running.autograd_nodes import children, is_here, name_of, saved, shape_of

MANY = 1 << 20
"""Numbers up to which scores are looked at."""

ROUNDED = 1e-3
"""How far from 1 chances may add up."""


def are_chances(way: Iterable[Any], outputs: Iterable[Tensor]) -> bool | None:
    """Whether the scores add up to 1 over the classes and none is below 0; None where they are not known.

    Args:
        way: the functions between a loss and a model's output.
        outputs: what the model gave.
    """
    softmax = next((one for one in way if name_of(one) == "LogSoftmax"), None)
    dim, shape = (saved(softmax, "dim"), shape_of(softmax)) if softmax is not None else (None, ())
    classes = shape[dim] if isinstance(dim, int) and shape else 0
    scores = _taken(softmax, outputs) if classes > 1 else None
    if scores is None or not is_here(scores) or not 0 < scores.numel() <= MANY:
        return None
    dims = [place for place, size in enumerate(scores.shape) if size == classes]
    if not all(bool((some >= 0).all()) for some in (scores[:1], scores)):  # of raw scores the first sample mostly has one below 0
        return False
    return any(bool(((scores.sum(one) - 1).abs() < ROUNDED).all()) for one in dims)


def _taken(softmax: Any, outputs: Iterable[Tensor]) -> Tensor | None:
    """What it takes, perhaps laid out otherwise."""
    given = {one.grad_fn: one for one in outputs}
    node = next(iter(children(softmax)), None)
    while node is not None and node not in given and name_of(node) in MOVES:
        node = next(iter(children(node)), None)
    if node is None or node in given:
        return None if node is None else given[node].detach()
    first, second = saved(node, "self"), saved(node, "other")
    if name_of(node) not in ("Div", "Mul") or not isinstance(first, Tensor) or not isinstance(second, Tensor):
        return None
    return first.detach() / second.detach() if name_of(node) == "Div" else first.detach() * second.detach()
