"""One registered tensor → its entry. Nothing is read but metadata."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.parameter import is_lazy

from modlab.compat import without_torch_function
from modlab.records.structure import Link, TensorEntry
from modlab.statistics.contents import sizes_of

PLAIN = (Parameter, Tensor)
LAZY = "lazy: no shape until the first forward pass"


def reserved(name: str, kind: str) -> TensorEntry:
    """A name registered as None: `kind` is "parameter" or "buffer"."""
    return TensorEntry(name, "reserved", trainable=False, persistent=False, note=f"reserved for a {kind}")


def describe(name: str, kind: str, tensor: Tensor, persistent: bool = True, tied: Link | None = None) -> TensorEntry:
    """The entry of one parameter or buffer; a subclass of Tensor is not asked its opinion."""
    with without_torch_function():
        return _describe(name, kind, tensor, persistent, tied)


def _describe(name: str, kind: str, tensor: Tensor, persistent: bool, tied: Link | None) -> TensorEntry:
    if is_lazy(tensor):
        return TensorEntry(
            name,
            kind,
            dtype=dtype_name(tensor),
            device=str(tensor.device),
            trainable=tensor.requires_grad,
            persistent=persistent,
            tied=tied,
            note=LAZY,
        )
    shape, count = sizes_of(tensor)
    return TensorEntry(
        name, kind, shape, dtype_name(tensor), str(tensor.device), count, _bytes(tensor, count),
        bool(tensor.requires_grad), persistent, tied, remark(tensor, shape),
    )  # fmt: skip


def dtype_name(tensor: Tensor) -> str:
    """``float32`` for ``torch.float32``."""
    return _name(tensor.dtype)


@cache
def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _bytes(tensor: Tensor, count: int) -> int:
    try:
        if tensor.layout is torch.sparse_coo:
            return sum(part.numel() * part.element_size() for part in (tensor._indices(), tensor._values()))
        if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
            return sum(part.numel() * part.element_size() for part in (tensor.crow_indices(), tensor.col_indices(), tensor.values()))
        if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
            return sum(part.numel() * part.element_size() for part in (tensor.ccol_indices(), tensor.row_indices(), tensor.values()))
        return count * tensor.element_size()
    except (RuntimeError, NotImplementedError, TypeError):
        return count * tensor.dtype.itemsize


def remark(tensor: Tensor, shape: tuple[int, ...]) -> str:
    """What is special about a tensor, beside its shape and dtype; nothing for a plain one."""
    if tensor.is_nested:
        return "ragged: members differ in size"
    if -1 in shape:
        return "symbolic: a size that is no number"
    if tensor.layout is not torch.strided:
        return str(tensor.layout).removeprefix("torch.")
    if tensor.is_quantized:
        return "quantized"
    return "" if type(tensor) in PLAIN else type(tensor).__name__
