"""Which change of a parameter has nothing to do with its gradient, since that is zero: weight decay alone, or momentum."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from modlab.inspection.bits import BLOCK
from modlab.statistics.contents import as_array, blocks_of


class Cause(NamedTuple):
    """Of the elements that changed: how many by decay alone, and a note in words."""

    decayed: int = 0
    note: str = ""


NOTHING = Cause()


def cause(before: Tensor, after: Tensor, gradient: Tensor | None, group: dict[str, Any], momentum: Tensor | None) -> Cause:
    """Why a parameter changed in one step, as far as that is certain.

    Source: ``torch.optim.SGD`` and ``AdamW``: where the gradient and the momentum are zero, both leave ``p * (1 - lr * decay)``
    (SGD by a factor more or less, see `_share`).

    Args:
        before: shape ``(...)``, floating.
        after: the same shape.
        gradient: as the step found it; None counts as zero.
        group: the hyper-parameters.
        momentum: SGD's buffer or Adam's average before the step.
    """
    rate, decay = _number(group.get("lr")), _number(group.get("weight_decay"))
    if not (rate and before.is_floating_point() and after.is_floating_point() and before.layout is torch.strided is after.layout):
        return NOTHING
    if momentum is not None and momentum.shape != before.shape:
        momentum = None
    scale = 1 - rate * decay * _share(group, momentum is not None)
    changed = decayed = coasted = 0
    with torch.no_grad():
        for left, right, slope, speed in _blocks(before, after, gradient, momentum):
            moved = left != right
            still = moved & (slope == 0)
            close = np.abs(right - left * scale) <= 2 * torch.finfo(before.dtype).eps * np.abs(left)
            changed += int(np.count_nonzero(moved))
            decayed += int(np.count_nonzero(still & (speed == 0) & close)) if decay else 0
            coasted += int(np.count_nonzero(still & (speed != 0)))
    notes = [_said("weight decay alone", decayed, changed), ""]
    if coasted:
        how = f"momentum {'and weight decay ' if decay else ''}alone"
        notes[1] = f"{how}: its gradient is zero" if coasted == changed else f"{_said(how, coasted, changed)}, where its gradient is zero"
    return Cause(decayed, ", ".join(filter(None, notes)))


def _said(how: str, some: int, changed: int) -> str:
    return "" if not some else how if some == changed else f"{how} in {some:,} of {changed:,}"


def _share(group: dict[str, Any], running: bool) -> float:
    """How much of the decay SGD takes at once: dampening keeps some of it back, Nesterov's momentum takes more."""
    momentum = _number(group.get("momentum"))
    if not momentum:
        return 1.0
    kept = 1 - _number(group.get("dampening")) if running else 1.0
    return 1 + momentum * kept if group.get("nesterov") else kept


def _blocks(before: Tensor, after: Tensor, gradient: Tensor | None, momentum: Tensor | None) -> Iterator[tuple[Any, ...]]:
    aside = [None if one is None else blocks_of(_dense(one), BLOCK) for one in (gradient, momentum)]
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
        return float(value.detach().item()) if value.numel() == 1 and not value.is_meta else 0.0
    return float(value) if isinstance(value, (int, float)) else 0.0
