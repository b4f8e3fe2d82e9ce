"""The contents of a tensor of any kind, as plain tensors; and these as blocks of numbers that numpy can read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from modlab.records.sharding import Sharding
from modlab.records.tensor import Values
from modlab.statistics import sharding, wrappers
from modlab.statistics.memory import is_sharded, local, require_values

PART = "this rank's part of a DTensor"
FLAT = "this rank's part of a flat parameter of FSDP1"
SUMMAND = "this rank's part of a DTensor: partial values, not yet combined across ranks"

OF_FLAT = "_unpadded_unsharded_size"
"""What FSDP1 notes at its flat parameters: the size of the whole."""

WHOLE = {getattr(torch, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)}
COMPUTED = WHOLE | {torch.float32, torch.float64}


class Contents(NamedTuple):
    """The values of one tensor.

    Attributes:
        shape: of the whole, with -1 for a ragged size.
        parts: strided tensors that hold all stored values.
        times: how often each of them occurs (an expanded tensor shows one value in many places).
        implicit: the number of zeros that are not stored.
        note: what one must know to read the statistics.
        stored: the dtype of what lies in memory, where the values are made of it.
        sharding: how a tensor lies of which this is one rank's part.
    """

    shape: tuple[int, ...]
    parts: Sequence[Tensor]
    times: int = 1
    implicit: int = 0
    note: str = ""
    stored: str = ""
    sharding: Sharding | None = None


def contents_of(tensor: Tensor) -> Contents:
    """Find the stored values of a tensor of any kind; nothing is made dense, and next to nothing copied.

    Raises:
        NoValuesError: there are none.
    """
    require_values(tensor)
    if is_sharded(tensor):  # to see the other parts, the ranks would have to talk to each other
        sharding.renew()
        part, lies = contents_of(local(tensor)), sharding.of_tensor(tensor)
        note = "" if lies is not None and lies.whole else SUMMAND if lies is not None and lies.partial else PART
        return part._replace(note="; ".join(filter(None, [note, part.note])), sharding=lies)
    shape, count = sizes_of(tensor)
    note = "magnitudes of complex numbers" if tensor.is_complex() else "dequantized values" if tensor.is_quantized else ""
    if hasattr(tensor, OF_FLAT) and count < getattr(tensor, OF_FLAT).numel():
        note = FLAT
    if tensor.is_nested:
        return Contents(shape, [part.detach() for part in tensor.unbind()], note=note)
    if type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__:
        inner = contents_of(wrappers.values_of(tensor))
        found = wrappers.stored(tensor)
        stored_as = "" if found is None or found.dtype is None else str(found.dtype).removeprefix("torch.")
        return inner._replace(note="; ".join(filter(None, ["dequantized values", inner.note])), stored=stored_as)
    if tensor.is_mkldnn:
        return Contents(shape, [tensor.to_dense().detach()], note=note)
    if tensor.is_quantized:  # flat, it would lose the scales of its channels
        return Contents(shape, [tensor.detach()], note=note)
    stored = tensor
    if tensor.layout is not torch.strided:
        stored = tensor.coalesce().values() if tensor.layout is torch.sparse_coo else tensor.values()
    values, times = _in_memory_order(stored.detach())
    return Contents(shape, [values], times, tensor.numel() - stored.numel(), note)


def numbers_of(tensor: Tensor) -> Tensor:
    """The tensor whose numbers are shown: of a DTensor this rank's part, of torchao's weights what they stand for.

    Raises:
        NoValuesError: there are none.
    """
    tensor = local(tensor)
    return wrappers.values_of(tensor) if wrappers.is_wrapper(tensor) else tensor


def _in_memory_order(tensor: Tensor) -> tuple[Tensor, int]:
    """The distinct elements, shape ``(n,)`` if their memory has no gaps, and how often each occurs."""
    times = 1
    for dim in reversed(range(tensor.dim())):
        if tensor.stride(dim) == 0 and tensor.size(dim) > 1:
            times *= tensor.size(dim)
            tensor = tensor.select(dim, 0)
    straight = tensor.permute(sorted(range(tensor.dim()), key=tensor.stride, reverse=True))
    return (straight.view(-1) if straight.is_contiguous() else tensor), times


def blocks_of(tensor: Tensor, size: int) -> Iterator[Tensor]:
    """Cut into views of at most `size` elements, along as few dimensions as that needs."""
    if tensor.numel() <= size:
        yield tensor
        return
    rows = size * tensor.size(0) // tensor.numel()
    for part in torch.split(tensor, rows) if rows else tensor.unbind():
        yield from blocks_of(part, size)


def real_numbers(block: Tensor) -> Tensor:
    """The block in a dtype that torch and numpy both calculate with."""
    if block.dtype in COMPUTED:
        return block
    if block.is_quantized:
        return block.dequantize()
    if block.is_complex():
        return block.to(torch.complex128).abs()  # in complex64 the squares may overflow
    if block.dtype is torch.bool:
        return block.view(torch.uint8)
    return block.float()  # bfloat16, float8, …


def arrays_of(part: Tensor, size: int) -> Iterator[Values]:
    """The numbers of a part in the CPU's memory, in arrays of at most `size`, shape ``(n,)``."""
    if part.dim() == 1 and part.is_cpu and part.dtype in COMPUTED and not part.is_neg():
        array = as_array(part)
        yield from (array[start : start + size] for start in range(0, len(array), size))
    else:
        yield from (as_array(real_numbers(block)).reshape(-1) for block in blocks_of(part, size))


def as_array(tensor: Tensor) -> Values:
    """The same memory where that is possible; ``.numpy()`` would make a storage one that can never be resized again (FSDP does)."""
    plain = tensor.is_cpu and not tensor.is_neg()
    array: Values = np.from_dlpack(tensor.detach()) if plain else tensor.numpy(force=True)
    return array


def sizes_of(tensor: Tensor) -> tuple[tuple[int, ...], int]:
    """The shape, with -1 for a ragged or symbolic size, and the number of elements, 0 if that is symbolic or unknown."""
    if torch.nn.parameter.is_lazy(tensor):
        return (), 0
    count = tensor.numel()
    try:
        shape = tuple(tensor.shape)
        known = all(type(size) is int for size in shape)
    except RuntimeError:  # a nested tensor
        known = False
    if not known:
        shape = tuple(_size(tensor, dim) for dim in range(tensor.dim()))
    return shape, count if isinstance(count, int) else 0


def _size(tensor: Tensor, dim: int) -> int:
    try:
        size = tensor.size(dim)
    except RuntimeError:  # a nested tensor of differing sizes
        return -1
    return size if isinstance(size, int) else -1  # a symbolic size: to ask for its value would change the graph
