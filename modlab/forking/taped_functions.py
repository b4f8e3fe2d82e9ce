"""What kind of call a function of torch's is, for a tape: one that reads, gives, writes, draws random numbers, or decides a branch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from modlab.statistics.memory import copied

Function = Callable[..., Any]

QUIET, GIVES, WRITES, ENGINE, DECIDES, COPIES = range(6)
"""It is not taped; its output is; it changes its first argument; it runs autograd's engine; it decides a branch; it is a deep copy."""

_ATTRIBUTES = frozenset({"grad", "data", "T", "mT", "H", "mH", "real", "imag"})
_READS = frozenset(
    {  # numbers, sizes and kinds, and hooks, which a fork does not call
        "size",
        "dim",
        "numel",
        "nelement",
        "ndimension",
        "__len__",
        "stride",
        "is_floating_point",
        "is_complex",
        "is_signed",
        "is_contiguous",
        "get_device",
        "element_size",
        "data_ptr",
        "storage",
        "untyped_storage",
        "storage_offset",
        "item",
        "tolist",
        "numpy",
        "__float__",
        "__int__",
        "__index__",
        "__complex__",
        "__array__",
        "__hash__",
        "__repr__",
        "__format__",
        "__contains__",
        "__reduce_ex__",
        "__reduce__",
        "__setstate__",
        "__dlpack__",
        "__dlpack_device__",
        "register_hook",
        "register_post_accumulate_grad_hook",
        "is_pinned",
        "is_shared",
        "is_inference",
        "is_same_size",
        "is_set_to",
        "has_names",
        "_is_view",
        "result_type",
        "can_cast",
        "is_tensor",
        "is_storage",
        "__dir__",
        "__cuda_array_interface__",
        "is_conj",
        "is_neg",
        "is_coalesced",
        "dense_dim",
        "sparse_dim",
        "_nnz",
    }
)
_DECIDES = frozenset({"__bool__", "is_nonzero", "equal", "allclose"})
_ENGINE = frozenset({"backward", "grad"})
_WRITES = frozenset({"batch_norm", "instance_norm", "retain_grad", "__setitem__", "__delitem__"})
_DRAWS: tuple[str, ...] = (
    "drop",
    "rand",
    "normal",
    "bernoulli",
    "multinomial",
    "uniform",
    "gumbel",
    "rrelu",
    "poisson",
    "exponential",
    "cauchy",
)
_DRAWS += ("geometric", "attention", "dirichlet", "gamma", "binomial")

_kinds: dict[Function, int] = {}


def kind_of(function: Function) -> int:
    """One of the above."""
    try:
        found = _kinds.get(function)
    except TypeError:  # not hashable
        return _kind(function)
    if found is None:
        found = _kind(function)
        if str(getattr(function, "__module__", None) or "torch").startswith("torch"):
            _kinds[function] = found
    return found


def _kind(function: Function) -> int:
    name = str(getattr(function, "__name__", ""))
    if name in ("__get__", "__set__", "__delete__"):
        attribute = getattr(getattr(function, "__self__", None), "__name__", "")
        if name == "__get__":
            return GIVES if attribute in _ATTRIBUTES else QUIET
        return WRITES
    if name in _READS:
        return QUIET
    if name == "__deepcopy__":
        return COPIES
    if name in _DECIDES:
        return DECIDES
    if name in _ENGINE and getattr(function, "__module__", "") in ("torch.autograd", "torch._tensor"):
        return ENGINE
    return WRITES if name in _WRITES or writes(name) else GIVES


def writes(name: str) -> bool:
    """Whether a function of this name changes its first argument: ``add_``, ``__iadd__``."""
    return (name.endswith("_") and not name.endswith("__")) or (
        name.startswith("__i") and name.endswith("__") and name not in _NOT_IN_PLACE
    )


_NOT_IN_PLACE = frozenset({"__invert__", "__iter__", "__index__", "__int__", "__init__"})


def draws(function: Function) -> bool:
    """Whether it may draw random numbers."""
    return _draws_by_name(str(getattr(function, "__name__", "")))


@lru_cache(maxsize=4096)
def _draws_by_name(name: str) -> bool:
    return any(part in name for part in _DRAWS)


def moves(function: Function) -> bool:
    """Whether it gives its first argument another memory: ``p.data = …``, ``p.set_(…)``."""
    name = getattr(function, "__name__", "")
    return name == "set_" or (name == "__set__" and getattr(getattr(function, "__self__", None), "__name__", "") == "data")


def gives_gradient(function: Function) -> bool:
    """Whether it is ``tensor.grad``."""
    return getattr(function, "__name__", "") == "__get__" and getattr(getattr(function, "__self__", None), "__name__", "") == "grad"


def sets_gradient(function: Function) -> bool:
    """Whether it is ``tensor.grad = …``."""
    return getattr(function, "__name__", "") == "__set__" and getattr(getattr(function, "__self__", None), "__name__", "") == "grad"


def is_backward(function: Function) -> bool:
    """Whether gradients are accumulated: ``backward``, and not ``torch.autograd.grad``."""
    return getattr(function, "__name__", "") == "backward"


def copies(function: Any) -> bool:
    """Whether it gives a tensor with a memory of its own, and the same numbers."""
    return function is deep_copy or getattr(function, "__name__", "") == "clone"


def deep_copy(tensor: Tensor) -> Tensor:
    """What ``copy.deepcopy`` makes of a tensor, in a fork."""
    if tensor.is_leaf:
        return copy.deepcopy(tensor)
    return copied(tensor).requires_grad_(tensor.requires_grad)


def running_context() -> Any:
    """Whether autograd is on, and inference mode; and autocast of each kind of device, where it is on."""
    if not torch.is_autocast_enabled("cpu") and not torch.is_autocast_enabled("cuda") and not torch.is_autocast_enabled("xpu"):
        return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), ()
    casts = tuple((device, torch.get_autocast_dtype(device)) for device in ("cpu", "cuda", "xpu") if torch.is_autocast_enabled(device))
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), casts
