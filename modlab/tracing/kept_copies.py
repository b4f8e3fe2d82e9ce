"""Copies of tensors that are kept, for those who asked for them, and to say by how much something changed."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import torch
from torch import Tensor

from modlab.compat import is_transformed, without_autograd
from modlab.inspection.entries import PLAIN
from modlab.statistics.memory import arrived, copied, is_gone, is_sharded, is_there

_EXACT = frozenset({torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})


def detached(thing: Any) -> Any:
    """A nest with each tensor copied and cut off from the graph; what cannot be opened as it is.

    In the place of a tensor whose memory is gone stands one on meta: to read it raises, and does not end the process.
    """
    cls = type(thing)
    if issubclass(cls, Tensor):
        found = thing if is_sharded(thing) else arrived(thing)
        return copied(found) if not is_gone(found) else torch.empty(found.shape, dtype=found.dtype, device="meta")
    if issubclass(cls, dict):
        parts = {key: detached(part) for key, part in dict.items(thing)}
        twin = parts if cls is dict else copy.copy(thing)
        if twin is not parts:
            dict.update(twin, parts)
        return _with_fields(twin, parts) if dataclasses.is_dataclass(cls) else twin
    if cls in (list, tuple, set, frozenset):
        return cls(detached(part) for part in thing)
    if issubclass(cls, tuple) and hasattr(cls, "_make"):
        return cls._make(detached(part) for part in thing)
    if dataclasses.is_dataclass(cls):
        held = {field.name: detached(getattr(thing, field.name)) for field in dataclasses.fields(cls)}
        return _with_fields(copy.copy(thing), held)
    return thing


def _with_fields(thing: Any, fields: dict[Any, Any]) -> Any:
    for name, part in fields.items():
        if isinstance(name, str):
            object.__setattr__(thing, name, part)
    return thing


def comparable(thing: Any, most: int) -> bool:
    """Whether a copy of it can be compared with it later: a plain tensor with values, and not too large."""
    if type(thing) not in PLAIN or thing.is_nested or thing.is_quantized or thing.is_meta or thing.layout is not torch.strided:
        return False
    return not torch.nn.parameter.is_lazy(thing) and not is_transformed(thing) and 0 < thing.numel() <= most and is_there(thing)


def distance(before: Tensor, after: Tensor) -> float:
    """The largest difference of two tensors of one shape; NaN counts as equal to NaN."""
    return without_autograd(_distance, before.detach(), after.detach())


def _distance(old: Tensor, new: Tensor) -> float:
    if old.is_complex() or new.is_complex():
        apart = (new.to(torch.complex128) - old.to(torch.complex128)).abs()
    elif new.dtype in _EXACT and old.dtype in _EXACT:
        apart = (new.to(torch.int64) - old.to(torch.int64)).abs().double()
    else:
        old, new = old.to(torch.float64), new.to(torch.float64)
        apart = torch.where((new == old) | (new.isnan() & old.isnan()), 0.0, (new - old).abs())
    return float(apart.max())
