"""Certain differences: whether two modules must compute something different from the same input, not whether they might."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import Module

from modlab.inspection import stores
from modlab.inspection.tensor_difference import equal_bits

_HOOKS = ("_forward_pre_hooks", "_forward_hooks")
_PLAIN = (bool, int, float, complex, str, type(None), torch.dtype, torch.device, torch.Size)


def differ(left: Module, right: Module) -> bool:
    """Whether the modules themselves differ in class, mode, hooks, tensors, plain attributes or child types; children are not compared."""
    if type(left) is not type(right):
        return True
    one, other = stores.contents(left), stores.contents(right)
    return _outside(one) != _outside(other) or _attributes(one) != _attributes(other) or _tensors_differ(left, right)


def _outside(held: dict[str, Any]) -> tuple[object, ...]:
    children = tuple((name, type(child)) for name, child in (held.get("_modules") or {}).items())
    return held.get("training"), children, *(len(held.get(name) or ()) for name in _HOOKS)


def _attributes(held: dict[str, Any]) -> dict[str, str]:
    """The plain attributes, which can be compared without running any of their code; tuples only if all items are plain."""
    return {name: repr(value) for name, value in held.items() if name not in stores.STANDARD and _is_plain(value)}


def _is_plain(value: Any) -> bool:
    return type(value) in _PLAIN or (type(value) is tuple and all(_is_plain(part) for part in value))


def _tensors_differ(left: Module, right: Module) -> bool:
    one, other = dict(stores.named_tensors(left)), dict(stores.named_tensors(right))
    if one.keys() != other.keys():
        return True
    return any(not _same(tensor, other[name]) for name, tensor in one.items())


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one is other:
        return True
    return one.dtype is other.dtype and one.shape == other.shape and bool(equal_bits(one, other))
