"""What stands in the ``.grad`` of each parameter now."""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn import Module

from modlab.compat import is_leaf, without_modes, without_torch_function
from modlab.inspection import slots
from modlab.records.gradient import GradientRecord, GradientTable
from modlab.records.tensor import TensorStats
from modlab.statistics import measure_tensor


def extract(model: Module) -> GradientTable:
    """The gradients of all parameters; they are read and left as they are."""
    rows = [
        _row(slot.record.path, slot.record.owner, slot.tensor)
        for slot in slots.collect(model)
        if slot.record.kind == "parameter" and not slot.record.tied and slot.tensor is not None
    ]
    modules = tuple(dict.fromkeys(path for path, _ in slots.places(model)))
    return GradientTable(type(model).__name__, modules, tuple(rows))


def _row(path: str, owner: str, tensor: Tensor) -> GradientRecord:
    with without_torch_function(), without_modes():
        gradient = tensor.grad if is_leaf(tensor) else None
        trainable = tensor.requires_grad
    if gradient is None:
        return GradientRecord(path, owner, trainable)
    stats = measure_tensor(gradient)
    return GradientRecord(path, owner, trainable, stats, _relative(stats, measure_tensor(tensor, histogram=False)))


def _relative(gradient: TensorStats, weight: TensorStats) -> float | None:
    ratio = gradient.l2 / weight.l2 if weight.l2 > 0 else math.nan
    return ratio if math.isfinite(ratio) else None
