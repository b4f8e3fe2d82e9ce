"""Wrappers: tensors that are a shell around others (torchao's weights, jagged tensors): what is inside, and which values it stands for."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from modlab import format
from modlab.statistics.memory import NoValuesError, local, require_values

DEEP = 8  # shells in shells


class WrappedValues(NamedTuple):
    """What a shell keeps in memory.

    Attributes:
        dtype: of the largest tensor inside, as ``torch.int8``; None where nothing is inside.
        bytes: of all that is inside.
    """

    dtype: torch.dtype | None
    bytes: int


def is_wrapper(tensor: Tensor) -> bool:
    """Whether a tensor is a shell around others (a DTensor, torchao's weights)."""
    return hasattr(type(tensor), "__tensor_flatten__") and not tensor.is_nested


def has_own_memory(tensor: Tensor) -> bool:
    """Whether a tensor of a class with its own ``__torch_dispatch__`` lies in memory itself all the same."""
    try:
        storage = tensor.untyped_storage()
        return bool(storage.data_ptr()) and storage.nbytes() > 0
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        return False


def inside(tensor: Tensor) -> list[tuple[str, Tensor]]:
    """The tensors inside a shell by their names; nothing where its class does not tell, or raises."""
    try:
        names, _ = tensor.__tensor_flatten__()  # type: ignore[attr-defined]
        found = [(str(name), getattr(tensor, name)) for name in names]
    except Exception:  # noqa: BLE001 - a class of the user's may raise anything
        return []
    return [(name, part) for name, part in found if issubclass(type(part), Tensor)]


def stored(tensor: Tensor, depth: int = 0) -> WrappedValues | None:
    """What a shell keeps in memory, through shells in it; None where it does not tell."""
    parts = [local(part) for _, part in inside(tensor)] if depth < DEEP else []
    if not parts:
        return None
    total, largest = 0, (-1, tensor.dtype)
    for part in parts:
        inner = stored(part, depth + 1) if is_wrapper(part) else WrappedValues(part.dtype, part.numel() * part.dtype.itemsize)
        if inner is None or inner.dtype is None:
            return None
        total += inner.bytes
        largest = max(largest, (inner.bytes, inner.dtype), key=lambda one: one[0])
    return WrappedValues(largest[1], total)


def is_quantized(tensor: Tensor) -> bool:
    """Whether a shell offers the numbers that it stands for, by a ``dequantize()`` of its own."""
    return is_wrapper(tensor) and getattr(type(tensor), "dequantize", None) is not Tensor.dequantize


def values_of(tensor: Tensor) -> Tensor:
    """The numbers that a shell stands for, as a plain tensor of its shape.

    Raises:
        NoValuesError: it offers none; the message names the tensors inside it.
    """
    require_values(tensor)
    names = ", ".join(name for name, _ in inside(tensor)[:4])
    rest = f": measure the tensors inside it ({names})" if names else ", and does not show what is inside it"
    if not is_wrapper(tensor) and has_own_memory(tensor):
        raise NoValuesError(f"{_a(tensor)} computes with its own code (__torch_dispatch__), which modlab does not run")
    if not is_quantized(tensor):
        raise NoValuesError(f"{_a(tensor)} has no memory of its own{rest}")
    try:
        found = tensor.dequantize()
    except Exception as error:
        raise NoValuesError(f"the dequantize() of {_a(tensor)} raised {type(error).__name__}{rest}") from error
    if not issubclass(type(found), Tensor) or is_wrapper(found) or found.shape != tensor.shape:
        raise NoValuesError(f"the dequantize() of {_a(tensor)} did not return a plain tensor of its shape{rest}")
    return found.detach()


def _a(tensor: Tensor) -> str:
    name = type(tensor).__name__
    return format.article(name)
