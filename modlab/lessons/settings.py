"""What is global in Python and torch and can be left changed: how each is read, and put back."""

from __future__ import annotations

import builtins
import decimal
import gc
import locale
import logging
import math
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import modlab
from modlab import compat
from modlab.frozen import frozen

_TIMERS = tuple(getattr(signal, name) for name in ("ITIMER_REAL", "ITIMER_VIRTUAL", "ITIMER_PROF") if hasattr(signal, name))
_AUTOCAST = ("cpu", "cuda", "mps", "xpu")


@frozen
class GlobalSetting:
    """One thing that is global.

    Attributes:
        name: what it is called in a sentence.
        get, put: read it, and put it back.
        told: whether a learner hears of it; else it is put back without a word, since libraries change it too.
    """

    name: str
    get: Callable[[], Any]
    put: Callable[[Any], Any]
    told: bool = True


# ---- torch ---------------------------------------------------------------------------------------


def _default_device() -> torch.device:
    try:
        return torch.get_default_device()
    except AttributeError:  # torch 2.6, once it was set to None
        return torch.device("cpu")


def _autocast() -> tuple[Any, ...]:
    depth = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    devices = tuple((kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in _AUTOCAST)
    return devices, torch.is_autocast_cache_enabled(), depth


def _put_autocast(before: tuple[Any, ...]) -> None:
    devices, cache, depth = before
    for kind, enabled, dtype in devices:
        torch.set_autocast_enabled(kind, enabled)
        torch.set_autocast_dtype(kind, dtype)
    torch.set_autocast_cache_enabled(cache)
    while _autocast()[2] > depth:
        torch.autocast_decrement_nesting()
    while _autocast()[2] < depth:
        torch.autocast_increment_nesting()
    if not depth:
        torch.clear_autocast_cache()


def _without_default(modes: list[Any]) -> list[Any]:
    """The modes of torch functions but the one that the default device is."""
    return [mode for mode in modes if type(mode).__name__ != "DeviceContext"]


def modes_as_they_were() -> Callable[[], None]:
    """What puts the stacks of modes back, of torch functions and of dispatch; and the default device."""
    functions, dispatched, device = compat.function_modes(), compat.dispatched_modes(), compat.default_device_mode()

    def put_back() -> None:
        now = compat.dispatched_modes()
        same = 0
        while same < min(len(now), len(dispatched)) and now[same] is dispatched[same]:
            same += 1
        for mode in reversed(now[same:]):
            compat.pop_dispatched_mode(mode)
        for mode in dispatched[same:]:
            compat.push_dispatched_mode(mode)
        for _ in compat.function_modes():
            compat.pop_function_mode()
        for mode in functions:
            compat.push_function_mode(mode)
        compat.set_default_device_mode(device)

    return put_back


def _flag(room: Any, name: str) -> GlobalSetting:
    return GlobalSetting(f"{room.__name__}.{name}", lambda: getattr(room, name), lambda value: setattr(room, name, value))


def _deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _attention() -> tuple[bool, ...]:
    cuda: Any = torch.backends.cuda
    return cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.math_sdp_enabled()


def _put_attention(before: tuple[bool, ...]) -> None:
    cuda: Any = torch.backends.cuda
    for put, on in zip((cuda.enable_flash_sdp, cuda.enable_mem_efficient_sdp, cuda.enable_math_sdp), before, strict=True):
        put(on)


def _flushes() -> bool:
    """Whether numbers that are very small count as 0: torch tells it by nothing but its results."""
    return not (torch.full((), 1e-40, dtype=torch.float32, device="cpu") * 1).item()


def _print_options() -> dict[str, Any]:
    return dict(vars(torch._tensor_str.PRINT_OPTS))


# ---- Python --------------------------------------------------------------------------------------


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it is gone
        return None


def _put_folder(before: str | None) -> None:
    if before is not None:
        os.chdir(before)


def _collecting(on: bool) -> None:
    (gc.enable if on else gc.disable)()


def _handlers() -> dict[int, Any]:
    return {number: signal.getsignal(number) for number in signal.valid_signals()}


def _put_handlers(before: dict[int, Any]) -> None:
    if threading.current_thread() is not threading.main_thread():
        return  # nowhere else can they be set, nor could they have been
    for number, handler in before.items():
        if handler is not None and signal.getsignal(number) is not handler and signal.getsignal(number) != handler:
            signal.signal(number, handler)


def _alarms() -> tuple[bool, ...]:
    return tuple(signal.getitimer(timer)[0] > 0 for timer in _TIMERS)


def _put_alarms(before: tuple[bool, ...]) -> None:
    for timer, runs in zip(_TIMERS, before, strict=True):
        if not runs:
            signal.setitimer(timer, 0)


def _blocked() -> set[Any]:
    return signal.pthread_sigmask(signal.SIG_BLOCK, ())


def _put_environment(before: tuple[Any, dict[str, str]]) -> None:
    os.environ, held = before
    for name in [name for name in os.environ if name not in held]:
        del os.environ[name]
    for name, value in held.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def _hooks() -> tuple[Any, ...]:
    return sys.excepthook, sys.displayhook, sys.unraisablehook, sys.breakpointhook, threading.excepthook, warnings.showwarning


def _put_hooks(before: tuple[Any, ...]) -> None:
    sys.excepthook, sys.displayhook, sys.unraisablehook, sys.breakpointhook, threading.excepthook, warnings.showwarning = before


def _put_numpy_printing(before: dict[str, Any]) -> None:
    np.set_printoptions(**{name: value for name, value in before.items() if name != "override_repr"})


def _logging() -> tuple[Any, ...]:
    return logging.root.level, logging.root.manager.disable, (*logging.root.handlers,)


def _put_logging(before: tuple[Any, ...]) -> None:
    logging.root.setLevel(before[0])
    logging.disable(before[1])
    logging.root.handlers[:] = before[2]


def _replace(held: list[Any], before: tuple[Any, ...]) -> None:
    held[:] = before


def _put_modules(before: dict[str, ModuleType]) -> None:
    """Those that were there; what was imported meanwhile stays."""
    sys.modules.update({name: module for name, module in before.items() if sys.modules.get(name) is not module})


def _umask() -> int:
    found = os.umask(0o077)
    os.umask(found)
    return found


_DECIMAL = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")


def _decimal() -> tuple[Any, ...]:
    return tuple(getattr(decimal.getcontext(), name) for name in _DECIMAL)


def _put_decimal(before: tuple[Any, ...]) -> None:
    for name, value in zip(_DECIMAL, before, strict=True):
        setattr(decimal.getcontext(), name, value)


def _streams() -> tuple[tuple[Any, tuple[Any, ...]], ...]:
    """The three, each with the ``write`` that somebody gave to this one alone."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return tuple((stream, tuple(value for name, value in getattr(stream, "__dict__", {}).items() if name == "write")) for stream in streams)


def _put_streams(before: tuple[tuple[Any, tuple[Any, ...]], ...]) -> None:
    sys.stdin, sys.stdout, sys.stderr = (stream for stream, _ in before)
    for stream, own in before:
        if own:
            (stream.write,) = own
        elif "write" in getattr(stream, "__dict__", {}):
            del stream.write


FIRST: tuple[GlobalSetting, ...] = (
    GlobalSetting("sys.modules", lambda: dict(sys.modules), _put_modules, told=False),
    GlobalSetting("sys.meta_path", lambda: (*sys.meta_path,), lambda before: _replace(sys.meta_path, before)),
    GlobalSetting("sys.settrace", sys.gettrace, sys.settrace),
    GlobalSetting("sys.setprofile", sys.getprofile, sys.setprofile),
    GlobalSetting("threading.settrace", threading.gettrace, lambda function: threading.settrace(function)),
    GlobalSetting("threading.setprofile", threading.getprofile, lambda function: threading.setprofile(function)),
)
"""What would see everything else being put back, or is needed for it."""
SETTINGS: tuple[GlobalSetting, ...] = (
    GlobalSetting("grad mode", torch.is_grad_enabled, torch.set_grad_enabled),
    GlobalSetting("inference mode", torch.is_inference_mode_enabled, lambda _: None),  # the guard around everything puts it back
    GlobalSetting("the default dtype", torch.get_default_dtype, torch.set_default_dtype),
    GlobalSetting("the default device", _default_device, lambda _: None),  # it goes with the modes of functions
    GlobalSetting("function modes", lambda: _without_default(compat.function_modes()), lambda _: None),
    GlobalSetting("dispatch modes", compat.dispatched_modes, lambda _: None),
    GlobalSetting("autocast", _autocast, _put_autocast),
    GlobalSetting("saved-tensor hooks", compat.saved_tensor_hooks, compat.set_saved_tensor_hooks),
    GlobalSetting(
        "deterministic algorithms",
        _deterministic,
        lambda both: torch.use_deterministic_algorithms(both[0], warn_only=both[1]),
    ),
    GlobalSetting(
        "anomaly detection",
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda both: torch.autograd.set_detect_anomaly(*both),
    ),
    GlobalSetting("the precision of matrix products", torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    GlobalSetting("the number of threads", torch.get_num_threads, torch.set_num_threads),
    GlobalSetting("the number of interop threads", torch.get_num_interop_threads, torch.set_num_interop_threads),
    GlobalSetting(
        "the sharing strategy of processes",
        torch.multiprocessing.get_sharing_strategy,
        torch.multiprocessing.set_sharing_strategy,
    ),
    GlobalSetting("torch's warnings", torch.is_warn_always_enabled, torch.set_warn_always),
    GlobalSetting("torch's print options", _print_options, lambda before: vars(torch._tensor_str.PRINT_OPTS).update(before)),
    GlobalSetting(
        "torch.__future__.overwrite_module_params_on_conversion",
        torch.__future__.get_overwrite_module_params_on_conversion,
        torch.__future__.set_overwrite_module_params_on_conversion,
    ),
    GlobalSetting(
        "torch.__future__.swap_module_params_on_conversion",
        torch.__future__.get_swap_module_params_on_conversion,
        torch.__future__.set_swap_module_params_on_conversion,
    ),
    *(_flag(torch.backends.cudnn, name) for name in ("enabled", "benchmark", "deterministic")),
    _flag(torch.utils.deterministic, "fill_uninitialized_memory"),
    GlobalSetting("the kinds of attention", _attention, _put_attention),
    GlobalSetting("torch.set_flush_denormal", _flushes, torch.set_flush_denormal),
    GlobalSetting("the working folder", _folder, _put_folder),
    GlobalSetting("the longest number as text", sys.get_int_max_str_digits, sys.set_int_max_str_digits),
    GlobalSetting("the recursion limit", sys.getrecursionlimit, sys.setrecursionlimit),
    GlobalSetting("the switch interval", sys.getswitchinterval, sys.setswitchinterval),
    GlobalSetting("umask", _umask, os.umask),
    GlobalSetting("the locale", lambda: locale.setlocale(locale.LC_ALL), lambda before: locale.setlocale(locale.LC_ALL, before)),
    GlobalSetting("decimal's context", _decimal, _put_decimal),
    GlobalSetting("garbage collection", gc.isenabled, _collecting),
    GlobalSetting("the thresholds of garbage collection", gc.get_threshold, lambda before: gc.set_threshold(*before)),
    GlobalSetting("garbage collection's debug flags", gc.get_debug, gc.set_debug),
    GlobalSetting("gc.callbacks", lambda: (*gc.callbacks,), lambda before: _replace(gc.callbacks, before), told=False),
    GlobalSetting("a signal's handler", _handlers, _put_handlers),
    GlobalSetting("an alarm", _alarms, _put_alarms),
    GlobalSetting("the blocked signals", _blocked, lambda before: signal.pthread_sigmask(signal.SIG_SETMASK, before)),
    GlobalSetting("Python's hooks for errors", _hooks, _put_hooks),
    GlobalSetting("NumPy's error handling", np.geterr, lambda before: np.seterr(**before)),
    GlobalSetting("NumPy's print options", np.get_printoptions, _put_numpy_printing),
    GlobalSetting("logging", _logging, _put_logging, told=False),
    GlobalSetting("the environment", lambda: (os.environ, dict(os.environ)), _put_environment, told=False),
    GlobalSetting("sys.path", lambda: (*sys.path,), lambda before: _replace(sys.path, before), told=False),
    GlobalSetting("warnings", lambda: (*warnings.filters,), lambda before: _replace(warnings.filters, before), told=False),  # type: ignore[arg-type]
    GlobalSetting("streams", _streams, _put_streams, told=False),
)


# ---- names that may be set to something else -------------------------------------------------------


def _counts(name: str, value: Any) -> bool:
    """Whether a name of torch's is a function or class of its own; torch.Storage goes with the default dtype."""
    return callable(value) and name[:1] != "_" and name != "Storage"


class Namespace:
    """A class or a module, whose names a learner's code may have set to something else.

    Args:
        thing: the class or module.
        only: put back functions and classes that were there, and nothing else: torch's own modules keep notes in theirs.
    """

    def __init__(self, thing: Any, *, only: bool = False) -> None:
        self._thing, self._only = thing, only
        self._before = {name: value for name, value in vars(thing).items() if not only or _counts(name, value)}

    def restore(self) -> Iterator[str]:
        """Put all names back; each that was another is told."""
        before, now = self._before, vars(self._thing)
        changed = [name for name, value in before.items() if now.get(name) is not value and not _is_torchs(name, now.get(name))]
        if not self._only:
            changed += [name for name, value in now.items() if name not in before and not _is_note(name, value)]
        for name in changed:
            if name in before:
                setattr(self._thing, name, before[name])
            else:
                delattr(self._thing, name)
            yield f"It changed {self._thing.__name__}.{name} for all code; it has been restored."


def _is_note(name: str, value: Any) -> bool:
    """Whether Python has put it there: a module that was imported meanwhile (torch.nn.attention), ``__slotnames__`` when one was copied."""
    return isinstance(value, ModuleType) or (name[:2] == "__" and not callable(value))


def _is_torchs(name: str, now: Any) -> bool:
    """Whether torch has put it there: its wrapper around an optimizer's step, or around a function or a constructor for its compiler."""
    written = (getattr(now, "__globals__", None) or {}).get("__name__", "")  # functools.wraps copies all else
    if written == "torch._dynamo.mutation_guard":  # it counts modules from the first compilation on, under names of its own
        return True
    return getattr(now, "__name__", "") == name and str(written).partition(".")[0] == "torch"


def namespaces() -> list[Namespace]:
    """Those that a check takes down: torch.nn as a whole, and the functions and classes of everything else that it or torch would call."""
    classes = dict.fromkeys([nn.Module, *(thing for thing in vars(nn).values() if isinstance(thing, type))])
    optimizers = dict.fromkeys(thing for thing in vars(torch.optim).values() if isinstance(thing, type))
    rooms = [
        torch,
        torch.autograd,
        torch.linalg,
        torch.fft,
        torch.special,
        torch.random,
        torch.optim,
        torch.optim.lr_scheduler,
        torch.utils.data,
        torch.nn.utils,
        torch.testing,
        np,
        np.random,
        builtins,
        math,
        os,
        random,
        time,
        modlab,
    ]
    whole = [F, nn, nn.init, *classes, torch.Tensor, torch.autograd.Function]
    return [*(Namespace(thing) for thing in whole), *(Namespace(room, only=True) for room in (*rooms, *optimizers))]
