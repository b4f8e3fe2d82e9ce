"""Which change of a parameter has nothing to do with its gradient, since that is zero: weight decay alone, or momentum."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from modlab.inspection.fingerprint import BLOCK
from modlab.records.finding import Finding
from modlab.statistics.contents import as_array, blocks_of
from modlab.statistics.memory import is_there, number_of


class DecayCause(NamedTuple):
    """Of the elements that changed: how many by decay alone, and what to note."""

    decayed: int = 0
    notes: tuple[Finding, ...] = ()


NOTHING = DecayCause()


class DecayTrace(NamedTuple):
    """What an optimizer has kept of gradients, the weight decay included where it adds that to them: a state before and after the step."""

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
    before: Tensor,
    after: Tensor,
    gradient: Tensor | None,
    group: dict[str, Any],
    momentum: DecayTrace | None,
    trace: DecayTrace | None = None,
) -> DecayCause:
    """Why a parameter changed in one step, as far as that is certain.

    Source: ``torch.optim.SGD`` and ``AdamW``: where the gradient and the momentum are zero, both leave ``p * (1 - lr * decay)``
    (SGD by a factor more or less, see `_share`).

    Args:
        before: shape ``(...)``, floating.
        after: the same shape.
        gradient: what is left of the one that the step found. That it is zero, or None, proves little: many loops end by ``zero_grad()``.
        group: the hyper-parameters.
        momentum: SGD's buffer or Adam's average: one that is what it becomes without a gradient proves that there was none.
        trace: of an optimizer that adds the decay to the gradient. Where it is what the decay alone makes of it, the gradient was
            zero, and so the decay is the cause, however far the step went.
    """
    rate, decay = _number(group.get("lr")), _number(group.get("weight_decay"))
    if not (rate and before.is_floating_point() and after.is_floating_point() and before.layout is torch.strided is after.layout):
        return NOTHING
    momentum, trace = _fitting(momentum, before), _fitting(trace, before)
    scale = 1 - rate * decay * _share(group, momentum is not None and momentum.before is not None)
    changed = decayed = coasted = 0
    states = (gradient, *(one for held in (momentum, trace) for one in ((None, None) if held is None else (held.before, held.after))))
    if not all(one is None or is_there(one) for one in (before, after, *states)):
        return NOTHING
    eps = torch.finfo(before.dtype).eps
    for left, right, slope, speed, next_speed, *seen in _blocks(before, after, *states):
        moved = left != right
        still = moved & (slope == 0)
        close = np.abs(right - left * scale) <= 2 * eps * np.abs(left)
        if trace is not None:
            close |= _is_decay(decay * left, seen[0], seen[1], trace.name, group, eps)
        changed += int(np.count_nonzero(moved))
        decayed += int(np.count_nonzero(still & (speed == 0) & close)) if decay else 0
        coasted += int(np.count_nonzero(still & (speed != 0) & _is_coasting(left, speed, next_speed, group, eps)))
    if not coasted:
        return DecayCause(decayed, (Finding("weight decay", facts={"decayed": decayed, "changed": changed}),) if decayed else ())
    kind = "momentum and weight decay" if decay else "momentum"
    return DecayCause(decayed, (Finding(kind, facts={"coasted": coasted, "decayed": decayed, "changed": changed}),))


def _fitting(state: DecayTrace | None, parameter: Tensor) -> DecayTrace | None:
    held = () if state is None else (one for one in (state.before, state.after) if one is not None)
    return state if all(one.shape == parameter.shape for one in held) else None


def _is_coasting(weight: Any, before: Any, after: Any, group: dict[str, Any], eps: float) -> Any:
    """Whether SGD's buffer, or Adam's average, is what one step without a gradient makes of it. Source: as for `_is_decay`."""
    betas = group.get("betas")
    if isinstance(betas, (tuple, list)):
        share = _number(betas[0])
        added = (1 - share) * _number(group.get("weight_decay")) * weight if kept(group) else 0 * weight
    else:
        share = _number(group.get("momentum"))
        added = (1 - _number(group.get("dampening"))) * _number(group.get("weight_decay")) * weight
    return np.abs(after - (share * before + added)) <= 8 * eps * (np.abs(before) + np.abs(added))


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
