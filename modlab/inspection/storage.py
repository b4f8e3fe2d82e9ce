"""Whether two live tensors lie in the same memory."""

from __future__ import annotations

import torch
from torch import Tensor

from modlab.compat import without_torch_function
from modlab.statistics.memory import NoValuesError, local, require_values
from modlab.statistics.wrappers import is_wrapper


def shares_memory(one: Tensor, other: Tensor) -> bool | None:
    """Whether some element of `one` is an element of `other`'s memory; None for tensors that have none (meta, fake, sparse).

    Both live at the same time, in real memory: only therefore an address tells them apart.
    """
    try:
        with without_torch_function():
            ours, theirs = _extent(local(one)), _extent(local(other))
    except (NoValuesError, RuntimeError, NotImplementedError, TypeError):
        return None
    if ours is None or theirs is None:
        return None
    return one.device == other.device and ours[0] < theirs[1] and theirs[0] < ours[1]


def _extent(tensor: Tensor) -> tuple[int, int] | None:
    """The first byte of a tensor and the one behind its last."""
    if is_wrapper(tensor) or tensor.is_nested or tensor.layout is not torch.strided:
        return None
    require_values(tensor)
    if not tensor.numel():
        return None
    begin: int = tensor.untyped_storage().data_ptr() + int(tensor.storage_offset()) * tensor.element_size()
    reach = sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True))
    return begin, begin + int((reach + 1) * tensor.element_size())
