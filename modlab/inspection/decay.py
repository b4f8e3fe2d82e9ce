"""Which change of a parameter is weight decay alone: its gradient is zero, and it shrank by lr × weight decay."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from modlab.inspection.bits import BLOCK
from modlab.statistics.contents import blocks_of


class Cause(NamedTuple):
    """Of the elements that changed: how many by decay alone, and a note in words."""

    decayed: int = 0
    note: str = ""


NOTHING = Cause()


def cause(before: Tensor, after: Tensor, gradient: Tensor | None, group: dict[str, Any], momentum: Tensor | None) -> Cause:
    """Why a parameter changed in one step, as far as that is certain.

    Source: ``torch.optim.SGD`` and ``AdamW``: where the gradient (and the momentum) is zero, both leave ``p * (1 - lr * decay)``.

    Args:
        before: shape ``(...)``, floating.
        after: the same shape.
        gradient: as the step found it; None counts as zero.
        group: the hyper-parameters.
        momentum: SGD's buffer before the step.
    """
    rate, decay = _number(group.get("lr")), _number(group.get("weight_decay"))
    if not (rate and before.is_floating_point() and after.is_floating_point() and before.layout is torch.strided is after.layout):
        return NOTHING
    changed = decayed = pushed = 0
    with torch.no_grad():
        for left, right, slope in _blocks(before, after, gradient):
            moved, still = left != right, slope == 0
            changed += int(np.count_nonzero(moved))
            pushed += int(np.count_nonzero(moved & ~still))
            close = np.abs(right - left * (1 - rate * decay)) <= 2 * torch.finfo(before.dtype).eps * np.abs(left)
            decayed += int(np.count_nonzero(moved & still & close)) if decay else 0
    if decayed:
        return Cause(decayed, "weight decay alone" if decayed == changed else f"weight decay alone in {decayed:,} of {changed:,}")
    if changed and not pushed and momentum is not None and bool((momentum != 0).any()):
        return Cause(0, f"momentum{' and weight decay' if decay else ' alone'}: its gradient is zero")
    return NOTHING


def _blocks(before: Tensor, after: Tensor, gradient: Tensor | None) -> Any:
    sides = [blocks_of(before, BLOCK), blocks_of(after, BLOCK)]
    if gradient is not None and gradient.layout is not torch.strided:
        gradient = gradient.to_dense()
    slopes = blocks_of(gradient, BLOCK) if gradient is not None else None
    for left, right in zip(*sides, strict=True):
        slope = _doubles(next(slopes)) if slopes is not None else np.zeros(left.numel())
        if left.numel():
            yield _doubles(left), _doubles(right), slope


def _doubles(block: Tensor) -> Any:
    return block.detach().cpu().to(torch.float64).numpy(force=True).reshape(-1)


def _number(value: Any) -> float:
    if isinstance(value, Tensor):
        return float(value.detach().item()) if value.numel() == 1 and not value.is_meta else 0.0
    return float(value) if isinstance(value, (int, float)) else 0.0
