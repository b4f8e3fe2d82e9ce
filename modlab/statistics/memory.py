"""Whether a tensor's memory is there: asked before any operator of ours, for to read what is gone ends the process.

FSDP frees a parameter's memory between two uses and leaves its shape; a meta, fake or traced tensor never had any. Whoever copies,
compares, measures or puts back a tensor asks here first, once for a tensor and a moment, and not before each operator.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from modlab.compat import FunctionMode, inference, is_functional, is_transformed, set_grad, without_torch_function

T = TypeVar("T")

PLAIN = frozenset({Tensor, torch.nn.Parameter})

FREED = "its memory has been freed (FSDP does so between two uses)"
PART, SUMMAND = "this rank's part", "this rank's part of a sum"
COMING = "it is still arriving from other ranks"
_VIRTUAL = {
    "FakeTensor": "a fake tensor has no values",
    "FunctionalTensor": "a functional tensor in a graph being captured has no values of its own",
}
_SPARSE = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}

_sharded: WeakKeyDictionary[type, bool] = WeakKeyDictionary()
_dtensor: type | None = None  # the class itself, once it was met: there may be thousands


class NoValuesError(Exception):
    """There is nothing to measure in a tensor; the message is the reason, as a part of a sentence."""


PACKED = {torch.quint4x2: 2, torch.quint2x4: 4}
"""Dtypes of which a byte holds several numbers."""


def is_there(tensor: Tensor) -> bool:
    """Whether all memory that a tensor needs can be read; of a DTensor this rank's part. About a microsecond for a plain one."""
    if type(tensor) in PLAIN:
        try:
            storage = tensor.untyped_storage()
            if storage.data_ptr():  # else it is empty, on meta, functional, or freed
                if not tensor.is_contiguous():
                    return not _is_short(tensor)
                offset = tensor.storage_offset()
                return bool(storage.nbytes() >= tensor.nbytes + (offset and offset * tensor.element_size()))
        except (RuntimeError, NotImplementedError):  # sparse, nested, a stand-in of torch.func: they are asked otherwise
            pass
    return not absence(tensor)


def absence(tensor: Tensor) -> str:
    """Why the memory of a tensor cannot be read, as a part of a sentence; "" where it is there. No operator runs on a wrapper."""
    with without_torch_function():
        try:
            return _absence(tensor)
        except (RuntimeError, NotImplementedError, TypeError, ValueError, AttributeError) as error:
            return f"its memory cannot be accessed ({type(error).__name__})"


def require_values(tensor: Tensor) -> None:
    """Raise the reason, where a tensor has no values to read.

    Raises:
        NoValuesError: there are none, or reading them would change what runs.
    """
    if not is_there(tensor):
        raise NoValuesError(absence(tensor))
    if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
        raise NoValuesError("a CUDA graph is being captured, and the measurement would become part of it")


def number_of(value: Any) -> float:
    """What a number, or a tensor with one element, says; NaN where it says nothing (a learning rate may be a tensor)."""
    try:
        if not isinstance(value, Tensor):
            return float(value)
        part = local(value)
        return float(part.detach().item()) if part.numel() == 1 and is_there(part) else math.nan
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return math.nan


def is_gone(tensor: Tensor) -> bool:
    """Whether a tensor has had its memory taken away, or has not got it yet; a meta or fake one, which operators take, has not."""
    return not is_there(tensor) and absence(tensor) in (FREED, COMING)


def copied(tensor: Tensor) -> Tensor:
    """A copy without a history; of a DTensor one with a copy of this rank's part, made without an operator on the whole.

    Raises:
        NoValuesError: its memory is gone.
    """
    if is_gone(tensor):
        raise NoValuesError(absence(tensor))
    with inference(False):  # and a subclass is asked, for the copy is to be one of it
        set_grad(False)
        return _copied(tensor)


def _copied(tensor: Tensor) -> Tensor:
    if type(tensor) in PLAIN or not is_sharded(tensor):
        return tensor.detach().clone()
    with without_torch_function():
        _, context = tensor.__tensor_flatten__()  # type: ignore[attr-defined]
        inner = {"_local_tensor": local(tensor).detach().clone()}
        made: Tensor = type(tensor).__tensor_unflatten__(inner, context, tensor.size(), tensor.stride())  # type: ignore[attr-defined]
        return made


class _Copying(FunctionMode):
    """Refuses to copy what has no memory, however deep it lies in what is copied.

    Args:
        alone: no other mode and no subclass is asked.
    """

    def __init__(self, *, alone: bool) -> None:
        super().__init__()
        self._alone = alone

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in ("clone", "__deepcopy__", "__reduce_ex__"):
            for thing in args:
                if issubclass(type(thing), Tensor) and is_gone(thing):
                    raise NoValuesError(absence(thing))
        with without_torch_function() if self._alone else nullcontext():
            return func(*args, **(kwargs or {}))


def deepcopied(thing: T, memo: dict[int, Any] | None = None, *, alone: bool = False) -> T:
    """``copy.deepcopy``, which would end the process where a tensor inside has no memory. Not within `without_torch_function`.

    Functions that modules hold refer to the copies.

    Args:
        thing: of any kind.
        memo: copies that are there already, by the identity of what they are copies of.
        alone: ask no mode and no subclass of the user's.

    Raises:
        NoValuesError: one has none.
    """
    from modlab.statistics.closures import rebind  # most looks copy no model

    memo = {} if memo is None else memo
    with _Copying(alone=alone):
        made = copy.deepcopy(thing, memo)
    rebind(memo)
    return made


def local(tensor: Tensor) -> Tensor:
    """This rank's part of a DTensor, as it lies there; any other tensor as it is. Nothing is waited for, no rank is asked.

    No operator of ours ever sees a DTensor: many of them would talk to the other ranks, which may not be there to answer.
    """
    if type(tensor) in PLAIN or not is_sharded(tensor):
        return tensor
    part: Tensor = object.__getattribute__(tensor, "_local_tensor")
    if type(part) in PLAIN:
        return part
    return part.elem if _is_async(part) and part.completed else part  # type: ignore[attr-defined]


def arrived(tensor: Tensor) -> Tensor:
    """The local part, waited for where it is still on its way: only for who runs the model on all ranks, so that it does arrive."""
    part = local(tensor)
    if not _is_async(part):
        return part
    found: Tensor = part.elem if part.completed else part.wait()  # type: ignore[attr-defined]
    return found


def part_of(tensor: Tensor) -> str:
    """What this rank has of a tensor, in words: "" of one that is here whole."""
    if type(tensor) in PLAIN or not is_sharded(tensor):
        return ""
    placements = object.__getattribute__(tensor, "_spec").placements
    if any(one.is_partial() for one in placements):
        return SUMMAND
    return "" if all(one.is_replicate() for one in placements) else PART


def is_sharded(tensor: Tensor) -> bool:
    """Whether a tensor is a DTensor."""
    global _dtensor
    cls = type(tensor)
    if cls is _dtensor:
        return True
    found = _sharded.get(cls)
    if found is None:
        found = _sharded[cls] = any(base.__name__ == "DTensor" and base.__module__.startswith("torch.") for base in cls.__mro__)
    if found and cls.__name__ == "DTensor":
        _dtensor = cls
    return found


def _is_async(tensor: Tensor) -> bool:
    return type(tensor).__name__ == "AsyncCollectiveTensor"


def _absence(tensor: Tensor) -> str:
    if is_lazy(tensor):
        return "lazy, without a shape before the first forward pass"
    if reason := _VIRTUAL.get(type(tensor).__name__):
        return reason
    if is_sharded(tensor):
        return _absence(local(tensor))
    if _is_async(tensor) and not tensor.completed:  # type: ignore[attr-defined]
        return COMING
    if tensor.is_meta:
        return "a meta tensor has no values"
    if tensor.dtype in PACKED:
        return "its numbers are packed, several to a byte, and torch cannot read them one by one"
    if tensor._is_zerotensor():
        return ""  # zeros of forward-mode AD: operators know that no memory holds them
    if is_functional(tensor):
        return _VIRTUAL["FunctionalTensor"]
    if is_transformed(tensor):
        return "a function of torch.func (vmap, grad, …) is being traced, whose tensors show no values"
    for part in _parts(tensor):
        if reason := _absence(part):
            return reason
    if type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__ or tensor.layout is not torch.strided:
        return ""  # what it has is in its parts
    return FREED if _is_short(tensor) else ""


def _parts(tensor: Tensor) -> Iterator[Tensor]:
    """The tensors inside a wrapper, or of a sparse or a nested one."""
    if hasattr(type(tensor), "__tensor_flatten__"):  # torchao's weights, jagged tensors
        names, _ = tensor.__tensor_flatten__()  # type: ignore[attr-defined]
        yield from (part for name in names if isinstance(part := getattr(tensor, name), Tensor))
    elif tensor.layout in _SPARSE:
        yield from (getattr(tensor, name)() for name in _SPARSE[tensor.layout])


def _is_short(tensor: Tensor) -> bool:
    """Whether a strided tensor reaches beyond its memory, or there is none."""
    if not tensor.numel():
        return False
    storage = tensor.untyped_storage()
    if tensor.is_nested:  # its members lie in one memory
        return bool(storage.nbytes() < tensor.numel() * tensor.element_size())
    reach = sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True))
    needed = (int(tensor.storage_offset()) + reach + 1) * tensor.element_size()
    return bool(storage.nbytes() < needed) or not storage.data_ptr()
