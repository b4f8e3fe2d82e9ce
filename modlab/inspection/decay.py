"""Which change of a parameter has nothing to do with its gradient, since that is zero: weight decay alone, or momentum."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from modlab.compat import inference, set_grad
from modlab.inspection.fingerprint import BLOCK
from modlab.records.difference import DifferenceNote
from modlab.statistics.contents import as_array, blocks_of
from modlab.statistics.memory import is_there, number_of


class Cause(NamedTuple):
    """Of the elements that changed: how many by decay alone, and what is to be noted."""

    decayed: int = 0
    notes: tuple[DifferenceNote, ...] = ()


NOTHING = Cause()


class DecayTrace(NamedTuple):
    """What an optimizer that adds the decay to the gradient has kept of the two: a state of its own before and after the step."""

    name: str
    before: Tensor | None
    after: Tensor


_KEPT = {
    "Adam": "exp_avg",
    "NAdam": "exp_avg",
    "RAdam": "exp_avg",
    "Adamax": "exp_avg",
    "RMSprop": "square_avg",
    "Adadelta": "square_avg",
    "Adagrad": "sum",
}


def kept(group: dict[str, Any]) -> str:
    """The name of the state that tells which gradient a step saw, weight decay included; nothing where there is none."""
    return "" if group.get("decoupled_weight_decay") else _KEPT.get(str(group.get("optimizer")), "")


def cause(
    before: Tensor, after: Tensor, gradient: Tensor | None, group: dict[str, Any], momentum: Tensor | None, trace: DecayTrace | None = None
) -> Cause:
    """Why a parameter changed in one step, as far as that is certain.

    Source: ``torch.optim.SGD`` and ``AdamW``: where the gradient and the momentum are zero, both leave ``p * (1 - lr * decay)``
    (SGD by a factor more or less, see `_share`).

    Args:
        before: shape ``(...)``, floating.
        after: the same shape.
        gradient: as the step found it; None counts as zero.
        group: the hyper-parameters.
        momentum: SGD's buffer or Adam's average before the step.
        trace: of an optimizer that adds the decay to the gradient. Where it is what the decay alone makes of it, the gradient was
            zero, and so the decay is the cause, however far the step went.
    """
    rate, decay = _number(group.get("lr")), _number(group.get("weight_decay"))
    if not (rate and before.is_floating_point() and after.is_floating_point() and before.layout is torch.strided is after.layout):
        return NOTHING
    if momentum is not None and momentum.shape != before.shape:
        momentum = None
    if trace is not None and (trace.after.shape != before.shape or (trace.before is not None and trace.before.shape != before.shape)):
        trace = None
    scale = 1 - rate * decay * _share(group, momentum is not None)
    changed = decayed = coasted = 0
    with inference(False):
        set_grad(False)
        states = (gradient, momentum, *((trace.before, trace.after) if trace is not None else ()))
        if not all(one is None or is_there(one) for one in (before, after, *states)):
            return NOTHING
        for left, right, slope, speed, *seen in _blocks(before, after, *states):
            moved = left != right
            still = moved & (slope == 0)
            close = np.abs(right - left * scale) <= 2 * torch.finfo(before.dtype).eps * np.abs(left)
            if trace is not None:
                close |= _is_decay(decay * left, seen[0], seen[1], trace.name, group, torch.finfo(before.dtype).eps)
            changed += int(np.count_nonzero(moved))
            decayed += int(np.count_nonzero(still & (speed == 0) & close)) if decay else 0
            coasted += int(np.count_nonzero(still & (speed != 0)))
    by_decay = [_said("weight decay alone", decayed, changed)] if decayed else []
    if not coasted:
        return Cause(decayed, (DifferenceNote("", (*by_decay,)),) if by_decay else ())
    kind = "momentum and weight decay" if decay else "momentum"
    how = f"{kind} alone: its" if coasted == changed else f"{_said(f'{kind} alone', coasted, changed)}, where its"
    return Cause(decayed, (DifferenceNote(kind, (*by_decay, f"{how} gradient is zero")),))


def _is_decay(slope: Any, before: Any, after: Any, name: str, group: dict[str, Any], eps: float) -> Any:
    """Whether a state is what a gradient of the decay alone makes of it. Source: the formulas in the docstrings of ``torch.optim``."""
    betas = group.get("betas")
    if name == "exp_avg":
        share = _number(betas[0]) if isinstance(betas, (tuple, list)) else 0.0
        expected = share * before + (1 - share) * slope
    elif name == "square_avg":
        share = _number(group.get("alpha", group.get("rho")))
        expected = share * before + (1 - share) * slope**2
    else:
        expected = before + slope**2
    return (slope != 0) & (np.abs(after - expected) <= 8 * eps * np.abs(expected))


def _said(how: str, some: int, changed: int) -> str:
    return how if some == changed else f"{how} in {some:,} of {changed:,}"


def _share(group: dict[str, Any], running: bool) -> float:
    """How much of the decay SGD takes at once: dampening keeps some of it back, Nesterov's momentum takes more."""
    momentum = _number(group.get("momentum"))
    if not momentum:
        return 1.0
    kept = 1 - _number(group.get("dampening")) if running else 1.0
    return 1 + momentum * kept if group.get("nesterov") else kept


def _blocks(before: Tensor, after: Tensor, *states: Tensor | None) -> Iterator[tuple[Any, ...]]:
    aside = [None if one is None else blocks_of(_dense(one), BLOCK) for one in states]
    for left, right in zip(blocks_of(before, BLOCK), blocks_of(after, BLOCK), strict=True):
        more = [np.zeros(left.numel()) if one is None else _doubles(next(one)) for one in aside]
        if left.numel():
            yield _doubles(left), _doubles(right), *more


def _dense(tensor: Tensor) -> Tensor:
    return tensor if tensor.layout is torch.strided else tensor.to_dense()


def _doubles(block: Tensor) -> Any:
    return as_array(block.detach().cpu().to(torch.float64)).reshape(-1)


def _number(value: Any) -> float:
    if isinstance(value, Tensor):
        number = number_of(value)
        return number if number == number else 0.0
    return float(value) if isinstance(value, (int, float)) else 0.0
