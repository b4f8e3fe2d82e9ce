"""A device without hardware: "fake", to torch an accelerator of its own, whose memory lies on the CPU.

It finds what a lesson leaves behind where there is no GPU, for it is as strict as one:

- an operator whose tensors lie on two devices raises, as on CUDA (the same exceptions: copies, numbers without a dimension, indices),
- `numpy()` needs `cpu()` before it, and what is printed names its device,
- random numbers come from a generator of its own, so they are other numbers than the CPU's,
- sums and products are added up in another order (in twice the width), so the last digits differ.

Torch has a place for such a device (PrivateUse1), which is open to Python: each operator of a tensor there comes to `_fallback`, which runs
it on the same memory as the CPU sees it.

What it cannot is in `CANNOT`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.backend_registration import _DummyBackendModule, _DummyDeviceGuard, _setup_privateuseone_for_python_backend

NAME = "fake"
OTHER_SEED = 1_000_003  # the device's numbers under a seed are not the CPU's under it

CANNOT = {
    "11_backward_hooks": "an error that a hook raises in the backward pass ends the process: torch then asks the device, in Python",
    "14b_compiled": "the compiler traces the device's own Python",
    "16_mixed_precision": "it has no autocast",
}
"""Lessons whose proofs and tasks are not tried on the fake device."""

aten = torch.ops.aten
_HOST = torch.device("cpu")
_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
_library: Any = None
_generator = torch.Generator()

# What adds many numbers up: a GPU adds them in another order.
_SUMMED = {"mm", "addmm", "bmm", "baddbmm", "sum", "mean", "var", "std", "var_mean", "convolution", "native_layer_norm"}
# What takes tensors of two devices on CUDA too.
_BETWEEN = {"copy_", "_copy_from", "_copy_from_and_resize", "_to_copy", "index", "index_put_", "_index_put_impl_", "set_"}


class _Backend(_DummyBackendModule):
    """What `torch.fake` is."""

    def manual_seed_all(self, seed: int) -> None:
        _generator.manual_seed((seed + OTHER_SEED) % 2**63)

    def get_rng_state(self, device: Any = NAME) -> torch.Tensor:
        return _generator.get_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = NAME) -> None:
        _generator.set_state(state)

    def synchronize(self, device: Any = None) -> None:
        """Nothing is under way: what was asked for is done."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]


def install() -> torch.device:
    """Make the device known to torch: once, for the whole process. It is then `torch.accelerator`'s."""
    global _library
    if _library is None:
        _setup_privateuseone_for_python_backend(NAME, backend_module=_Backend(), device_guard=_DummyDeviceGuard())
        _library = torch.library.Library("_", "IMPL", "PrivateUse1")
        _library.fallback(_fallback)
        own = torch.library.Library("aten", "IMPL", "PrivateUse1")
        for name, kernel in _KERNELS.items():
            own.impl(name, kernel)
        _library.own = own
        torch.serialization.register_package(9, _written_as, _read_to)  # before the CPU's, whose number is 10
        torch.UntypedStorage.clone = _cloned
        _generator.manual_seed(OTHER_SEED)
    return torch.device(NAME, 0)


# ---- memory -----------------------------------------------------------------------------------------


def _storage(memory: torch.UntypedStorage) -> torch.UntypedStorage:
    """The device's storage over memory of the CPU, which lives as long as it does."""
    made = torch._C._construct_storage_from_data_pointer(memory.data_ptr(), torch.device(NAME, 0), memory.nbytes())
    made.memory = memory
    return made


def _laid(storage: torch.UntypedStorage, like: torch.Tensor) -> torch.Tensor:
    """A tensor of the device over its storage, laid out as one of the CPU."""
    made = torch._C._acc.create_empty_tensor([0], like.dtype)
    return _lay(made, storage, like)


def _view(owner: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A tensor over another's memory; of inference only where that is."""
    if torch.is_inference_mode_enabled() and not owner.is_inference():
        with torch.inference_mode(False):
            return _laid(owner.untyped_storage(), like)
    return _laid(owner.untyped_storage(), like)


def _lay(tensor: torch.Tensor, storage: torch.UntypedStorage, like: torch.Tensor) -> torch.Tensor:
    place = (storage, like.storage_offset(), like.shape, like.stride())
    return aten.set_.source_Storage_storage_offset.redispatch(_CPU, tensor, *place)


def _made(on_cpu: torch.Tensor) -> torch.Tensor:
    return _laid(_storage(on_cpu.untyped_storage()), on_cpu)


def _seen(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers as a tensor of the CPU."""
    memory = tensor.untyped_storage().memory
    seen = torch.empty(0, dtype=tensor.dtype)
    return seen.set_(memory, tensor.storage_offset(), tensor.shape, tensor.stride())


_clone = torch.UntypedStorage.clone


def _cloned(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """As `copy.deepcopy` does it; torch would ask the device for memory, and Python cannot give any."""
    return _storage(_clone(storage.memory)) if storage.device.type == NAME else _clone(storage)


def _written_as(storage: Any) -> str | None:
    return f"{NAME}:0" if storage.device.type == NAME else None


def _read_to(storage: torch.UntypedStorage, location: str) -> torch.UntypedStorage | None:
    return _storage(storage) if location.partition(":")[0] == NAME else None


# ---- operators --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Kind:
    """What decides how an operator is run; found once for each."""

    mixes: bool  # it takes tensors of two devices, as on CUDA
    pointwise: bool  # it takes a number without dimension from the CPU
    draws: bool
    widened: bool


@functools.cache
def _kind(op: Any) -> _Kind:
    name, arguments = op.overloadpacket.__name__, op._schema.arguments
    writes = any(one.is_out or (one.alias_info is not None and one.alias_info.is_write) for one in arguments)
    draws = any(one.name == "generator" for one in arguments)
    return _Kind(name in _BETWEEN, torch.Tag.pointwise in op.tags, draws, name in _SUMMED and not writes)


def _each(given: Any, change: Callable[[Any], Any]) -> Any:
    """The same, with each value in lists, tuples and dicts changed."""
    if isinstance(given, (list, tuple)):
        return type(given)([_each(one, change) for one in given])
    if isinstance(given, dict):
        return {name: _each(one, change) for name, one in given.items()}
    return change(given)


def _fallback(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Run an operator on the same memory as a tensor of the CPU, and give back tensors of the device."""
    kind = _kind(op)
    given: list[tuple[torch.Tensor, torch.Tensor]] = []  # as the CPU sees it, and itself

    def enter(one: Any) -> Any:
        if isinstance(one, torch.Tensor):
            if one.device.type == NAME:
                seen = _seen(one)
                given.append((seen, one))
                return seen
            if one.device.type != "cpu" or not (kind.mixes or (kind.pointwise and one.dim() == 0)):
                _refuse(one.device)
        return _HOST if isinstance(one, torch.device) and one.type == NAME else one

    def leave(one: Any) -> Any:
        if not isinstance(one, torch.Tensor):
            return one
        memory = one.untyped_storage()._cdata
        for seen, owner in given:
            if one is seen:
                return owner
            if seen.untyped_storage()._cdata == memory:
                return _view(owner, one)
        return _made(one)

    args, kwargs = _each(args, enter), _each(kwargs, enter)
    if kind.draws:
        kwargs["generator"] = _generator
    result = (_in_double if kind.widened else _as_it_is)(op, args, kwargs)
    for seen, one in given:  # `t_`, `resize_` and their like lay the tensor out anew
        if seen.shape != one.shape or seen.stride() != one.stride():
            _lay(one, _storage(seen.untyped_storage()), seen)
    return _each(result, leave)


def _as_it_is(op: Any, args: Any, kwargs: Any) -> Any:
    # `labels % 10` arrives as remainder.Tensor with a number, which that overload does not take: its packet finds the one that does.
    bare = any(isinstance(one, (int, float)) and str(of.type) == "Tensor" for one, of in zip(args, op._schema.arguments, strict=False))
    return (op.overloadpacket if bare else op)(*args, **kwargs)


def _in_double(op: Any, args: Any, kwargs: Any) -> Any:
    """Add up in twice the width, and round: the last digits are other ones than the CPU's."""
    if kwargs.get("dtype") is not None:
        return op(*args, **kwargs)

    def widen(one: Any) -> Any:
        return one.double() if isinstance(one, torch.Tensor) and one.dtype == torch.float32 else one

    def narrow(one: Any) -> Any:
        return one.float() if isinstance(one, torch.Tensor) and one.dtype == torch.float64 else one

    wide = _each((args, kwargs), widen)
    back = narrow if any(one.dtype == torch.float32 for one in _tensors((args, kwargs))) else lambda one: one
    return _each(op(*wide[0], **wide[1]), back)


def _tensors(given: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    _each(given, lambda one: found.append(one) if isinstance(one, torch.Tensor) else None)
    return found


def _refuse(device: torch.device) -> None:
    raise RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, {NAME}:0 and {device}!")


def _empty(size: Any, *, dtype: Any = None, memory_format: Any = None, **_: Any) -> Any:
    return _made(torch.empty(size, dtype=dtype, device="cpu", memory_format=memory_format or torch.contiguous_format))


def _empty_strided(size: Any, stride: Any, *, dtype: Any = None, **_: Any) -> Any:
    return _made(torch.empty_strided(size, stride, dtype=dtype, device="cpu"))


def _copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """Between the devices, and on the device."""
    there = _seen(target) if target.device.type == NAME else target
    there.copy_(_seen(source) if source.device.type == NAME else source)
    return target


def _set(tensor: torch.Tensor, storage: Any, *place: Any) -> torch.Tensor:
    place = place or (0, (storage.nbytes() // tensor.element_size(),), (1,))
    return aten.set_.source_Storage_storage_offset.redispatch(_CPU, tensor, storage, *place)


def _set_tensor(tensor: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    return _lay(tensor, source.untyped_storage(), source)


def _convolution(input: torch.Tensor, weight: torch.Tensor, bias: Any, *how: Any) -> torch.Tensor:
    return _fallback(aten.convolution.default, input, weight, bias, *how)


def _convolution_backward(grad: Any, input: Any, weight: Any, *how: Any) -> Any:
    *how, mask = how
    gradients = _fallback(aten.convolution_backward.default, grad, input, weight, [weight.shape[0]], *how, mask)
    return tuple(gradients)


_KERNELS: dict[str, Callable[..., Any]] = {
    "empty.memory_format": _empty,
    "empty_strided": _empty_strided,
    "_copy_from": _copy_from,
    "set_.source_Storage": _set,
    "set_.source_Storage_storage_offset": _set,
    "set_.source_Tensor": _set_tensor,
    "convolution_overrideable": _convolution,
    "convolution_backward_overrideable": _convolution_backward,
}
