"""Compatibility with torch's private names that modlab borrows: probed here, once, each with what stands in where a torch lacks it.

``docs/borrowed.md`` lists them, and the stores of ``nn.Module``, whose room is ``inspection/stores.py``. They are plain
aliases: some are asked for every small tensor, where a call more would be felt.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from threading import RLock, get_ident
from types import FrameType, GeneratorType
from typing import Any, ParamSpec, TypeVar

import torch
from torch import overrides
from torch.multiprocessing import reductions

try:
    from torch.utils import _python_dispatch
except ImportError:
    _python_dispatch = None  # type: ignore[assignment]


P = ParamSpec("P")
T = TypeVar("T")


def _no(_: object) -> bool:
    return False


def _nothing(_: object) -> None:
    return None


def _set_grad(enabled: bool) -> None:
    torch.set_grad_enabled(enabled)


without_torch_function: Callable[[], AbstractContextManager[Any]] = getattr(torch._C, "DisableTorchFunction", nullcontext)
"""A context in which neither a ``TorchFunctionMode`` nor a subclass's ``__torch_function__`` is asked."""

with_torch_function: Callable[[], AbstractContextManager[Any]] = getattr(torch._C, "_EnableTorchFunction", nullcontext)
"""A context inside of that one, in which they are asked again."""

set_grad: Callable[[bool], None] = getattr(torch._C, "_set_grad_enabled", _set_grad)
"""``torch.set_grad_enabled`` as a function of C, at whose beginning no interrupt arrives."""

inference: Callable[[bool], AbstractContextManager[Any]] = getattr(torch._C, "_InferenceMode", torch.inference_mode)
"""``torch.inference_mode`` as a context of C, at whose beginning and end no interrupt arrives.

What `set_grad` sets inside of it ends with it, as at the end of ``torch.no_grad()``, whose own lines an interrupt may hit: then autograd
stays off.
"""


def torch_function_as_now() -> AbstractContextManager[Any]:
    """A context whose end, which is a function of C and may come more than once, has ``__torch_function__`` asked as it is now."""
    found = without_torch_function()
    with found:  # which notes what was on before
        return found


dispatch_modes: Callable[[], int] = getattr(torch._C, "_len_torch_dispatch_stack", int)
"""How many ``TorchDispatchMode``\\ s are active."""

_without_modes: Callable[[], AbstractContextManager[Any]] = getattr(_python_dispatch, "_disable_current_modes", nullcontext)
_NO_MODES = nullcontext()


def without_modes() -> AbstractContextManager[Any]:
    """A context in which no ``TorchDispatchMode`` of the user's sees what modlab computes; torch's is dear, so only where there is any."""
    return _without_modes() if dispatch_modes() else _NO_MODES


def without_autograd(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call `work` without autograd and out of inference mode, and without any mode or subclass of the user's being asked.

    Not by ``with torch.no_grad()``, whose ends are functions of Python: an interrupt that arrives inside of them leaves autograd off.
    Here nothing is called in between that could be interrupted.
    """
    with inference(False), without_torch_function():
        set_grad(False)
        if not dispatch_modes():
            return work(*args, **kwargs)
        with without_modes():
            return work(*args, **kwargs)


function_mode_count: Callable[[], int] = getattr(torch._C, "_len_torch_function_stack", lambda: len(function_modes()))
"""How many ``TorchFunctionMode``\\ s are active."""

is_functional: Callable[[Any], bool] = getattr(torch, "_is_functional_tensor", _no)
"""Whether a tensor is a stand-in of functionalization, whose values are elsewhere."""

is_transformed: Callable[[Any], bool] = getattr(getattr(torch._C, "_functorch", None), "is_functorch_wrapped_tensor", _no)
"""Whether a tensor is a stand-in of ``torch.func`` (vmap, grad), which has no values of its own."""

_interpreter: Callable[[], Any] = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", lambda: None)
_dispatch_mode: Callable[[Any], Any] = getattr(torch._C, "_get_dispatch_mode", _nothing)
_STAND_INS = tuple(
    key
    for name in ("FAKE", "PROXY", "FUNCTIONAL")
    if (key := getattr(getattr(torch._C, "_TorchDispatchModeKey", None), name, None)) is not None
)


def is_simulated() -> bool:
    """Whether what is called now computes with stand-ins: under ``torch.func``, or a mode that has no values (FakeTensorMode)."""
    return _interpreter() is not None or (dispatch_modes() > 0 and any(_dispatch_mode(key) is not None for key in _STAND_INS))


global_hooks_with_kwargs: dict[int, bool] = getattr(torch.nn.modules.module, "_global_forward_hooks_with_kwargs", {})
"""Which global forward hooks get keyword arguments: torch leaves the entry of a removed one behind."""


def global_hooks() -> dict[str, Any]:
    """What torch keeps for hooks of all modules, under the names that a module has for its own (``_forward_hooks``, …)."""
    return _of_all(torch.nn.modules.module)


def optimizer_hooks() -> dict[str, Any]:
    """The hooks of all optimizers: ``_optimizer_pre_hooks``, ``_optimizer_post_hooks``."""
    return _of_all(sys.modules[torch.optim.Optimizer.__module__])


def forget_global_hook(hook: Callable[..., Any]) -> None:
    """Take a hook of all modules or optimizers away, and what torch notes of it elsewhere under the same number."""
    for tables in _tables_of_all():
        for name, held in tables.items():
            for key in [key for key, one in [*held.items()] if one is hook]:
                for other, noted in tables.items():
                    if other.startswith(f"{name}_"):
                        noted.pop(key, None)
                held.pop(key, None)  # at last: who is interrupted finds it again


def is_global_hook(hook: Callable[..., Any]) -> bool:
    """Whether torch calls it for all modules or optimizers."""
    return any(one is hook for tables in _tables_of_all() for held in tables.values() for one in [*held.values()])


def _tables_of_all() -> list[dict[str, dict[int, Any]]]:
    return [{name: held for name, held in hooks().items() if isinstance(held, dict)} for hooks in (global_hooks, optimizer_hooks)]


def other_threads() -> list[FrameType]:
    """Where they are. Nothing is collected meanwhile: up to Python 3.11 a collection in there may hang (gh-106883)."""
    collects = gc.isenabled()
    gc.disable()
    try:
        found = sys._current_frames()
    finally:
        if collects:
            gc.enable()
    found.pop(get_ident())  # a frame that holds itself is a circle
    return [*found.values()]


def lock_for_forks() -> Any:
    """An ``RLock`` that is free in a forked child: what held it is a thread that does not exist there."""
    lock: Any = RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lock._at_fork_reinit)
    return lock


def _of_all(room: Any) -> dict[str, Any]:
    start = "_global"
    return {name.removeprefix(start): value for name, value in vars(room).items() if name.startswith(f"{start}_")}


_TENSOR_HOOKS = tuple(
    (name, getattr(torch._C.TensorBase, name))
    for name in ("_backward_hooks", "_post_accumulate_grad_hooks")
    if hasattr(torch._C.TensorBase, name)
)


def tensor_hooks(tensor: torch.Tensor) -> list[tuple[str, dict[int, Any]]]:
    """The hooks that hang on a tensor itself, by store; no subclass of Tensor is asked."""
    with without_torch_function():
        return [(name, held) for name, store in _TENSOR_HOOKS if (held := store.__get__(tensor))]


def is_leaf(tensor: torch.Tensor) -> bool:
    """``tensor.is_leaf``, which raises for a view whose base was written over since (FSDP1's views of its flat parameter)."""
    try:
        return tensor.is_leaf
    except RuntimeError:
        return False


def grad_fn(tensor: torch.Tensor) -> Any:
    """``tensor.grad_fn``; None too where it raises, as `is_leaf` says."""
    try:
        return tensor.grad_fn
    except RuntimeError:
        return None


def given_hook(hook: Any) -> tuple[Any, bool]:
    """What was registered, of a load_state_dict pre-hook that torch has wrapped; and whether it gets the module."""
    if type(hook).__name__ != "_WrappedHook" or not type(hook).__module__.startswith("torch."):
        return hook, True
    held = object.__getattribute__(hook, "__dict__")
    return held.get("hook", hook), bool(held.get("with_module"))


push_function_mode: Callable[[Any], None] = overrides._push_mode
pop_function_mode: Callable[[], Any] = overrides._pop_mode
top_function_mode: Callable[[], Any] = overrides._get_current_function_mode
"""The stack of ``TorchFunctionMode``\\ s of this thread: a trace leaves it where the mode would change what runs."""

_takes_off = getattr(getattr(getattr(overrides, "_pop_mode_temporarily", None), "__wrapped__", None), "__code__", None)


def _have_back(mode: Any) -> None:
    """Have torch put a mode back now that it took off for the length of a call.

    It does so at the end of a generator. Where an interrupt kept the call from beginning, that is when the traceback is let go of: the mode
    would be back when nobody is there any more to take it off.
    """
    for holder in gc.get_referrers(mode):
        if type(holder) is GeneratorType and holder.gi_code is _takes_off:
            holder.close()


def leave_function_mode(mode: Any) -> None:
    """Take a mode off for good, wherever it is; those that were entered since and not left stay."""
    if not _is_among(mode, function_modes()):
        _have_back(mode)
    above: list[Any] = []
    try:
        while _is_among(mode, function_modes()):
            above.append(pop_function_mode())
    finally:
        for one in reversed(above):
            if one is not mode:
                push_function_mode(one)


def _is_among(mode: Any, some: list[Any]) -> bool:
    return any(one is mode for one in some)


class FunctionMode(overrides.TorchFunctionMode):
    """One of ours: its end takes off it, where torch's takes off whichever is the innermost."""

    def __exit__(self, *error: object) -> None:
        leave_function_mode(self)


def modes() -> tuple[list[Any], list[Any]]:
    """Each ``TorchFunctionMode`` and each ``TorchDispatchMode`` of this thread, the innermost last."""
    of_functions: Any = getattr(torch._C, "_get_function_stack_at", None)
    functions = [of_functions(i) for i in range(torch._C._len_torch_function_stack())] if of_functions else []
    return functions, list(getattr(_python_dispatch, "_get_current_dispatch_mode_stack", list)())


def restore_modes(before: tuple[list[Any], list[Any]]) -> None:
    """Make the modes of this thread what they were: an interrupt may have kept one of ours from leaving, or one from coming back."""
    functions, dispatch = modes()
    if [*map(id, functions)] != [*map(id, before[0])]:
        for mode in before[0]:
            _have_back(mode)
        for _ in function_modes():
            pop_function_mode()
        for mode in before[0]:
            push_function_mode(mode)
    if [*map(id, dispatch)] != [*map(id, before[1])]:
        for _ in dispatch:
            _python_dispatch._pop_mode()
        for mode in before[1]:
            _python_dispatch._push_mode(mode)


_CASTING = ("cpu", "cuda", "xpu")


def autocasts() -> tuple[Any, ...]:
    """What autocast is set to: how many blocks of it are open, whether it remembers casts, and each kind of device."""
    try:
        depth = torch.autocast_increment_nesting() - 1
    finally:
        torch.autocast_decrement_nesting()
    devices = tuple((one, torch.is_autocast_enabled(one), torch.get_autocast_dtype(one)) for one in _CASTING)
    return depth, torch.is_autocast_cache_enabled(), devices


def restore_autocasts(before: tuple[Any, ...]) -> None:
    """Make autocast what it was: an interrupt may have met its beginning or its end, which are functions of Python."""
    if (now := autocasts()) == before:
        return
    for _ in range(now[0] - before[0]):
        torch.autocast_decrement_nesting()
    if not before[0]:
        torch.clear_autocast_cache()
    torch.set_autocast_cache_enabled(before[1])
    for device, is_on, dtype in before[2]:
        torch.set_autocast_enabled(device, is_on)
        torch.set_autocast_dtype(device, dtype)


def function_modes() -> list[Any]:
    """The modes of torch functions that are active, the outermost first."""
    return list(getattr(overrides, "_get_current_function_mode_stack", list)())


def dispatched_modes() -> list[Any]:
    """The dispatch modes that are active, the outermost first."""
    return list(getattr(_python_dispatch, "_get_current_dispatch_mode_stack", list)())


def pop_dispatched_mode(mode: Any) -> None:
    """Leave the innermost ``TorchDispatchMode``, as torch leaves it: what its class makes of that is not asked."""
    _python_dispatch.TorchDispatchMode.__exit__(mode, None, None, None)  # type: ignore[no-untyped-call]


def push_dispatched_mode(mode: Any) -> None:
    """Enter one again."""
    _python_dispatch.TorchDispatchMode.__enter__(mode)  # type: ignore[no-untyped-call]


def default_device_mode() -> Any:
    """The mode that is the default device; None where none was set."""
    return getattr(getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None), "device_context", None)


def set_default_device_mode(mode: Any) -> None:
    """Note which mode is the default device, once the stack of modes is as it was."""
    held = getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None)
    if held is not None and default_device_mode() is not mode:
        held.device_context = mode


_saved: Any = getattr(torch._C, "_autograd", None)


def saved_tensor_hooks() -> list[Any]:
    """The pairs of hooks on tensors that autograd saves, the outermost first."""
    found: list[Any] = []
    if hasattr(_saved, "_top_saved_tensors_default_hooks"):
        while (top := _saved._top_saved_tensors_default_hooks(True)) is not None:
            found.insert(0, top)
            _saved._pop_saved_tensors_default_hooks()
        for pair in found:
            _saved._push_saved_tensors_default_hooks(*pair)
    return found


def set_saved_tensor_hooks(pairs: list[Any]) -> None:
    """These, and no others."""
    for _ in saved_tensor_hooks():
        _saved._pop_saved_tensors_default_hooks()
    for pair in pairs:
        _saved._push_saved_tensors_default_hooks(*pair)


graph_task: Callable[[], int] = getattr(torch._C, "_current_graph_task_id", lambda: -1)
"""The number of the backward pass that is running in this thread; -1 outside of one."""

_set_versions: Any = getattr(getattr(torch._C, "_autograd", None), "_unsafe_set_version_counter", None)


def set_version(tensor: torch.Tensor, version: int) -> bool:
    """Put a tensor's version counter back, once its bits are; whether this torch can do that.

    Else a graph that the user has at hand, and that saved the tensor, would refuse its backward pass.
    """
    if _set_versions is None:
        return False
    try:
        _set_versions((tensor,), (version,))
    except TypeError:  # torch before 2.6 takes one tensor and one number
        _set_versions(tensor, version)
    return True


_engine: Any = getattr(getattr(torch.autograd, "Variable", None), "_execution_engine", None)


def after_backward(action: Callable[[], None]) -> bool:
    """From inside a backward pass: call `action` once when it has ended, before it returns; whether this torch can do that."""
    queue = getattr(_engine, "queue_callback", None)
    if queue is not None:
        queue(action)
    return queue is not None


class _HeldStorage:
    """Stands in for a weak reference: it keeps what it refers to."""

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self.storage = storage

    def expired(self) -> bool:
        """Whether it is gone."""
        return False


WeakStorage: Any = getattr(reductions, "StorageWeakRef", _HeldStorage)
"""A weak reference to the memory of tensors; as long as there is one, no other memory gets its identity."""


def storage_again(weak: Any) -> torch.UntypedStorage | None:
    """The memory that a weak reference is to; None if it is gone."""
    if isinstance(weak, _HeldStorage):
        return weak.storage
    found: torch.UntypedStorage | None = torch.UntypedStorage._new_with_weak_ptr(weak.cdata)
    return found


norms: tuple[type, ...] = tuple(
    getattr(getattr(torch.nn.modules, room, None), name)
    for room, name in (("batchnorm", "_NormBase"), ("instancenorm", "_InstanceNorm"))
    if hasattr(getattr(torch.nn.modules, room, None), name)
)
"""The bases of batch and instance norms, whose way to load a state_dict is the usual one but for files from before they counted batches."""


def has_compiled() -> bool:
    """Whether ``torch.compile`` has compiled anything in this process: what runs inside of that calls no hook that Python sees."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None) or {}
    return bool((counters.get("frames") or {}).get("ok"))


being_traced: Callable[[], bool] = getattr(torch._C, "_is_tracing", getattr(torch.jit, "is_tracing", bool))
"""Whether ``torch.jit.trace`` is taking down what is called: it is asked at each of a trace's events, so without the function around it."""


_STAGE = "torch.distributed.pipelining.stage"
_ON_NOTHING = ("_forward_metadata_inference", "_shape_inference")  # 2.13 with autograd on, earlier ones without


REHEARSAL, STAGE = "rehearsal", "stage"


def pipeline_pass() -> str:
    """`STAGE` where a pipeline runs this pass; `REHEARSAL` where it does so on uninitialized memory, to learn shapes.

    That it does at its first step, and with autograd on: what is seen there is nobody's training.
    """
    stage = sys.modules.get(_STAGE)
    frame = None if stage is None else sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == stage.__file__:  # type: ignore[union-attr]
            if frame.f_code.co_name in _ON_NOTHING:
                return REHEARSAL
            if frame.f_code.co_name == "forward_one_chunk":
                return STAGE
        frame = frame.f_back
    return ""


def forced_eager() -> AbstractContextManager[Any]:
    """A context in which what was compiled runs as it was written; nothing where this torch has no such stance (before 2.6)."""
    stance = getattr(torch.compiler, "set_stance", None)
    return nullcontext() if stance is None else stance("force_eager")


def shape_at(node: Any) -> tuple[int, ...] | None:
    """The shape of what a function of the graph returned first; None where torch does not tell."""
    found = getattr(node, "_input_metadata", None)
    return tuple(found[0].shape) if found else None


def swaps_parameters(cls: type) -> bool:
    """Whether modules of this class are units of ``fully_shard``, which puts whole parameters into the place of parts for a while."""
    return any(base.__name__ == "FSDPModule" and base.__module__.startswith("torch.distributed.") for base in cls.__mro__)


def fsdp_parameters(module: Any) -> list[tuple[torch.nn.Module, str, Any]]:
    """Of a unit of ``fully_shard``: the module and the name of each parameter that it gathers, and torch's record of it.

    The record has the part (``sharded_param``) and, once there was one, the whole (``_unsharded_param``). Nothing where a torch has none.
    """
    try:
        state = type(module)._get_fsdp_state(module)
        groups = getattr(state, "_fsdp_param_groups", None)
        if groups is None:
            groups = [group] if (group := state._fsdp_param_group) is not None else []
        found = []
        for one in (one for group in groups for one in group.fsdp_params):
            info = one._module_info
            places = zip((info.module, *info.shared_modules), (info.param_name, *info.shared_param_names), strict=True)
            found += [(owner, name, one) for owner, name in places]
    except AttributeError:
        return []
    return found


def own_class(cls: type) -> type:
    """The class that its author wrote, where ``fully_shard`` or ``replicate`` has made one of it, with one of its own in front."""
    bases = cls.__bases__
    made = len(bases) == 2 and cls.__module__.startswith("torch.distributed.") and bases[0].__module__.startswith("torch.distributed.")
    return bases[1] if made and cls.__name__.endswith(bases[1].__name__) else cls


def is_still_scaled(scaler: Any, optimizers: list[Any]) -> bool:
    """Whether the gradients of optimizers are still multiplied by what a scaler has multiplied the loss by."""
    states = getattr(scaler, "_per_optimizer_states", None)
    if not isinstance(states, dict):
        return False
    mine = [one for one in optimizers if vars(one).get("grad_scale") is None]
    stages = [states[id(one)].get("stage") if id(one) in states else None for one in mine]
    return bool(stages) and all(stage is None or getattr(stage, "name", "") == "READY" for stage in stages)
