"""Hooks on the steps of all optimizers that can come and go at any time.

While torch goes through its hooks of a step it does not bear that one comes or goes, in whatever thread: it raises in the user's
``optimizer.step()``. So all watches share one pair. It comes with the first of them and goes with the last, or, where a thread is among
such hooks then, with a later call of any module.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType
from typing import Any, cast

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

Hook = Callable[[Any, Any, Any], None]

_open: list[OptimizerHooks] = []
_pair: list[RemovableHandle] = []
_sweeper: list[RemovableHandle] = []
_lock = threading.RLock()
_STEP = cast(FunctionType, Optimizer.profile_hook_step(lambda *_: None)).__code__  # torch's, which calls the hooks and makes the step


class OptimizerHooks:
    """What one watch wants to be told of each step of any optimizer; not of one that is compiled.

    Args:
        before: called before it, with the optimizer and the arguments of its step.
        after: called after it.
    """

    def __init__(self, before: Hook, after: Hook) -> None:
        self.before, self.after = before, after

    def open(self) -> None:
        """Begin."""
        with _lock:
            _open.append(self)
            sweep()

    def close(self) -> None:
        """End; closing twice does nothing."""
        with _lock:
            if self in _open:
                _open.remove(self)
            sweep()


def sweep() -> None:
    """Have the pair there if anybody wants it, and else gone; later, while a thread is among such hooks."""
    with _lock:
        if len(_pair) != (2 if _open else 0):
            if _is_among_hooks():
                if not _sweeper:
                    _sweeper.append(register_module_forward_pre_hook(_sweep_later))
                return
            if _open:
                for register, hook in _PAIR[len(_pair) :]:
                    _pair.append(register(hook))
            else:
                _take_off(_pair)
        _take_off(_sweeper)


def _take_off(held: list[RemovableHandle]) -> None:
    while held:
        held[-1].remove()
        held.pop()


def _sweep_later(module: Any, args: Any) -> None:
    if not torch.compiler.is_compiling():
        sweep()


def _before(optimizer: Any, args: Any, kwargs: Any) -> None:
    if torch.compiler.is_compiling():  # else a compiled step would compile anew whenever something of ours has changed
        return
    for one in (*_open,):
        if one in _open:  # another one's hook may have closed it
            one.before(optimizer, args, kwargs)


def _after(optimizer: Any, args: Any, kwargs: Any) -> None:
    if torch.compiler.is_compiling():
        return
    for one in (*_open,):
        if one in _open:
            one.after(optimizer, args, kwargs)


_PAIR = (register_optimizer_step_pre_hook, _before), (register_optimizer_step_post_hook, _after)


def _is_among_hooks() -> bool:
    """Whether any thread is inside of an optimizer's step, and not in that part of it that makes the step."""
    for frame in sys._current_frames().values():
        inner: FrameType | None = None
        above: FrameType | None = frame
        while above is not None:
            if above.f_code is _STEP and (inner is None or inner.f_code is not _code_of(above.f_locals.get("func"))):
                return True
            inner, above = above, above.f_back
    return False


def _code_of(function: Any) -> CodeType | None:
    return function.__code__ if isinstance(function, FunctionType) else None
