"""Two tensors of different shapes: whether one is the other turned round, cut, or read in other rows."""

from __future__ import annotations

from torch import Tensor

from modlab.inspection.tensor_difference import equal_bits
from modlab.records.finding import Finding
from modlab.statistics.memory import is_there
from modlab.statistics.wrappers import is_wrapper


def likeness(before: Tensor, after: Tensor) -> Finding | None:
    """What became of the values; nothing where they are others.

    Args:
        before: any shape.
        after: another shape.
    """
    if is_wrapper(before) or is_wrapper(after) or not (is_there(before) and is_there(after)):
        return None
    if before.is_meta or after.is_meta or before.is_nested or after.is_nested or before.dtype is not after.dtype:
        return None
    if before.dim() == 2 == after.dim() and before.shape == after.shape[::-1] and equal_bits(before.t(), after):
        return Finding("transposed")
    if before.numel() == after.numel():
        return Finding("another shape") if equal_bits(before.reshape(-1), after.reshape(-1)) else None
    if before.dim() != after.dim() or not before.dim() or before.shape[1:] != after.shape[1:]:
        return None
    rows = min(len(before), len(after))
    if not rows or not equal_bits(before[:rows], after[:rows]):
        return None
    return Finding("rows kept", facts={"rows": rows, "more": len(after) - len(before)})
