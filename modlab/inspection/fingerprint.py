"""What a tensor of any kind stores, bit by bit: for fingerprints, and to tell at once what has not changed."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from modlab.compat import without_autograd
from modlab.statistics.contents import as_array, blocks_of
from modlab.statistics.memory import NoValuesError, local, require_values
from modlab.statistics.wrappers import inside, is_wrapper

BLOCK = 1 << 18
"""Elements looked at together; what is taken of two tensors at a time, and not more."""

WIDTH = 16
"""Bytes of a fingerprint: of n pairs of different values, one looks equal with a chance of about n × 2**-128."""

Raw = npt.NDArray[Any]

_WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_SPARSE = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}


class Plain(NamedTuple):
    """Anything but a tensor: its text, and by what it is compared (nothing where it cannot be)."""

    text: str
    digest: bytes | None


def parts_of(tensor: Tensor) -> list[Tensor]:
    """Strided tensors that hold all that is stored: values, and where they are.

    Raises:
        NoValuesError: there are none.
    """
    tensor = local(tensor)  # of a DTensor what this rank holds
    require_values(tensor)
    if is_wrapper(tensor):
        if not (held := inside(tensor)):
            raise NoValuesError(f"a {type(tensor).__name__} does not show what is inside it")
        return [part for _, inner in held for part in parts_of(inner)]
    tensor = tensor.detach()
    if tensor.is_nested:
        return list(tensor.unbind())
    if tensor.is_quantized:
        return [tensor.int_repr(), *_scales(tensor)]
    if tensor.layout is torch.sparse_coo:
        tensor = tensor.coalesce()
        return [tensor.indices(), tensor.values()]
    if tensor.layout in _SPARSE:
        return [*(getattr(tensor, name)() for name in _SPARSE[tensor.layout]), tensor.values()]
    return [tensor if tensor.layout is torch.strided else tensor.to_dense()]


def _scales(tensor: Tensor) -> tuple[Tensor, Tensor]:
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return torch.tensor([tensor.q_scale()], dtype=torch.float64), torch.tensor([tensor.q_zero_point()])
    return tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()


def raw(block: Tensor) -> Raw:
    """The bits of a strided tensor as whole numbers in the CPU's memory, shape ``(n,)``, in the order of its indices."""
    return as_array(whole(block))


def whole(block: Tensor) -> Tensor:
    """The bits as whole numbers on the tensor's own device, shape ``(n,)``."""
    block = block.detach().resolve_conj().resolve_neg()
    if block.is_complex():
        block = torch.view_as_real(block)
    return block.contiguous().view(-1).view(_WHOLE[block.element_size()])


def fingerprint(tensor: Tensor) -> bytes:
    """128 bits of shape, dtype, layout and every stored bit; read in blocks, so that next to nothing is copied.

    Raises:
        NoValuesError: there are no values.
    """
    return without_autograd(_digest, tensor)


def _digest(tensor: Tensor) -> bytes:
    state = blake2b(digest_size=WIDTH)
    for part in parts_of(tensor):
        state.update(f"{tuple(part.shape)} {part.dtype} ".encode())
        for array in _arrays(part):
            state.update(array.data)
    state.update(f"{tensor.layout} {tensor.dtype}".encode())
    return state.digest()


def _arrays(part: Tensor) -> Iterator[Raw]:
    for block in blocks_of(part, BLOCK):
        if block.numel():
            yield np.ascontiguousarray(raw(block))


_SIMPLE = {int, float, bool, complex, str, type(None)}


def plain(value: Any) -> Plain:
    """Anything but a tensor, so that two of them can be compared without asking either: a user's ``__eq__`` may lie or raise."""
    if type(value) in _SIMPLE:
        return Plain(_cut(repr(value)), digest_of(f"{type(value).__name__} {value!r}".encode()))
    if type(value) in (tuple, list) and all(type(one) in _SIMPLE for one in value):
        return Plain(_cut(repr(value)), digest_of(repr(value).encode()))
    try:
        stream = io.BytesIO()
        _Pickler(stream, protocol=4).dump(value)
        return Plain(_named(value), digest_of(stream.getvalue()))
    except Exception:  # noqa: BLE001 - what cannot be pickled raises whatever its author chose
        return Plain(_named(value), None)


class _Pickler(pickle.Pickler):
    """Writes fingerprints in the place of tensors, which would name their memory."""

    def reducer_override(self, obj: Any) -> Any:
        return (bytes, (fingerprint(obj),)) if issubclass(type(obj), Tensor) else NotImplemented


def digest_of(content: bytes) -> bytes:
    """128 bits of some bytes."""
    return blake2b(content, digest_size=WIDTH).digest()


def _named(value: Any) -> str:
    return str(value) if type(value) in (torch.dtype, torch.device) else type(value).__name__


def _cut(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."
