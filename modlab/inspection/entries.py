"""One registered tensor → its entry. Nothing is read but metadata."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import prod

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.parameter import is_lazy

from modlab.compat import without_torch_function
from modlab.records.sharding import Sharding
from modlab.records.structure import Link, TensorEntry
from modlab.statistics import sharding, wrappers
from modlab.statistics.contents import sizes_of
from modlab.statistics.memory import PACKED, is_sharded, local

PLAIN = (Parameter, Tensor)
LAZY = "lazy: no shape until the first forward pass"


def reserved(name: str, kind: str) -> TensorEntry:
    """A name registered as None: `kind` is "parameter" or "buffer"."""
    return TensorEntry(name, "reserved", trainable=False, persistent=False, note=f"reserved for a {kind}")


def describe(
    name: str, kind: str, tensor: Tensor, persistent: bool = True, tied: Link | None = None, lies: Sharding | None = None
) -> TensorEntry:
    """The entry of one parameter or buffer; a subclass of Tensor is not asked its opinion.

    Args:
        name: its own, without its owner's path.
        kind: "parameter", "buffer", …
        tensor: of any kind.
        persistent: whether ``state_dict()`` has it.
        tied: where it was met first.
        lies: how a parameter lies over the ranks that does not tell itself (FSDP1's).
    """
    with without_torch_function():
        return _describe(name, kind, tensor, persistent, tied, lies or sharding.of_tensor(tensor))


def _describe(name: str, kind: str, tensor: Tensor, persistent: bool, tied: Link | None, lies: Sharding | None) -> TensorEntry:
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
    if lies is not None:
        return _shared_out(name, kind, tensor, persistent, tied, lies)
    shape, count = sizes_of(tensor)
    dtype, size = _stored(tensor, count)
    computes = "" if dtype is tensor.dtype else dtype_name(tensor)
    return TensorEntry(
        name,
        kind,
        shape,
        _name(dtype),
        str(tensor.device),
        count,
        size,
        bool(tensor.requires_grad),
        persistent,
        tied,
        remark(tensor, shape),
        computes,
    )


def _shared_out(name: str, kind: str, tensor: Tensor, persistent: bool, tied: Link | None, lies: Sharding) -> TensorEntry:
    """The entry of a tensor that lies over several ranks: its shape and bytes are those of the whole."""
    part = local(tensor)
    dtype, here = _stored(part, lies.local_count)
    if here != lies.local_bytes:
        lies = replace(lies, local_bytes=here)
    count = prod(lies.shape)
    size = count * tensor.dtype.itemsize if dtype is tensor.dtype or not lies.local_count else round(here * count / lies.local_count)
    computes = "" if dtype is tensor.dtype else dtype_name(tensor)
    note = remark(part, lies.local_shape) if is_sharded(tensor) else ""
    return TensorEntry(
        name,
        kind,
        lies.shape,
        _name(dtype),
        str(tensor.device),
        count,
        size,
        bool(tensor.requires_grad),
        persistent,
        tied,
        note,
        computes,
        lies,
    )


def _stored(tensor: Tensor, count: int) -> tuple[torch.dtype, int]:
    """The dtype in which a tensor lies in memory, and its bytes: of torchao's weights those of the tensors inside."""
    if type(tensor) not in PLAIN and wrappers.is_wrapper(tensor):
        found = wrappers.stored(tensor)
        if found is not None and found.dtype is not None:
            return found.dtype, found.bytes
    return tensor.dtype, _bytes(tensor, count)


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
        return -(-count * tensor.element_size() // PACKED.get(tensor.dtype, 1))
    except (RuntimeError, NotImplementedError, TypeError):
        return count * tensor.dtype.itemsize


def remark(tensor: Tensor, shape: tuple[int, ...]) -> str:
    """What is special about a tensor, beside its shape and dtype; nothing for a plain one."""
    if tensor.is_nested:
        return "ragged: members differ in size"
    if -1 in shape:
        return "symbolic: a size that is not a number"
    if tensor.layout is not torch.strided:
        return str(tensor.layout).removeprefix("torch.")
    if tensor.is_quantized:
        return "quantized"
    return "" if type(tensor) in PLAIN else type(tensor).__name__
