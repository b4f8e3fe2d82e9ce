"""Copies of tensors, for those who asked for them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def detached(thing: Any) -> Any:
    """A nest with each tensor copied and cut off from the graph; other things as they are."""
    cls = type(thing)
    if issubclass(cls, Tensor):
        return copied(thing)
    if cls in (list, tuple):
        return cls(detached(part) for part in thing)
    if issubclass(cls, tuple) and hasattr(cls, "_make"):
        return cls._make(detached(part) for part in thing)
    if cls is dict:
        return {key: detached(part) for key, part in thing.items()}
    return thing


def copied(tensor: Tensor) -> Tensor:
    """A copy without a history."""
    with torch.no_grad():
        return tensor.detach().clone()
