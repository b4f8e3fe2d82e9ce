"""One registered tensor → its entry. Nothing is read but metadata."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.parameter import is_lazy

from modlab.records.structure import Link, TensorEntry

PLAIN = (Parameter, Tensor)


def reserved(name: str, kind: str) -> TensorEntry:
    """A name registered as None: `kind` is "parameter" or "buffer"."""
    return TensorEntry(name, "reserved", trainable=False, persistent=False, note=f"reserved for a {kind}")


def describe(name: str, kind: str, tensor: Tensor, persistent: bool = True, tied: Link | None = None) -> TensorEntry:
    """The entry of one parameter or buffer."""
    if is_lazy(tensor):
        return TensorEntry(
            name, kind, dtype=dtype_name(tensor), device=str(tensor.device), trainable=tensor.requires_grad,
            persistent=persistent, tied=tied, note="lazy: no shape until the first forward pass",
        )
    shape, note = _shape(tensor)
    count = prod(shape) if not tensor.is_nested else tensor.numel()
    return TensorEntry(
        name, kind, shape, dtype_name(tensor), str(tensor.device), count, _bytes(tensor, count),
        bool(tensor.requires_grad), persistent, tied, note or _note(tensor),
    )


def dtype_name(tensor: Tensor) -> str:
    """``float32`` for ``torch.float32``."""
    return str(tensor.dtype).removeprefix("torch.")


def _shape(tensor: Tensor) -> tuple[tuple[int, ...], str]:
    try:
        return tuple(int(n) for n in tensor.shape), ""
    except (RuntimeError, TypeError, ValueError):  # nested tensors have a size per member, symbolic sizes no number
        try:
            return tuple(tensor.size(0) if i == 0 else -1 for i in range(tensor.dim())), "ragged: members differ in size"
        except (RuntimeError, TypeError, ValueError):
            return (), "no plain shape"


def _bytes(tensor: Tensor, count: int) -> int:
    try:
        if tensor.layout is torch.sparse_coo:
            return sum(part.numel() * part.element_size() for part in (tensor._indices(), tensor._values()))
        if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
            return sum(p.numel() * p.element_size() for p in (tensor.crow_indices(), tensor.col_indices(), tensor.values()))
        return count * tensor.element_size()
    except (RuntimeError, NotImplementedError, TypeError):
        return count * tensor.dtype.itemsize


def _note(tensor: Tensor) -> str:
    if tensor.layout is not torch.strided:
        return str(tensor.layout).removeprefix("torch.")
    if tensor.is_quantized:
        return "quantized"
    return "" if type(tensor) in PLAIN else type(tensor).__name__
