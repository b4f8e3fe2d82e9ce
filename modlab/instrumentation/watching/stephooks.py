"""Hooks on the steps of all optimizers that can be taken off at any time.

While torch goes through its hooks of a step it does not bear that one comes or goes, in whatever thread: it raises in the user's
``optimizer.step()``. So all watches share one pair. It is taken off with the last of them, or, where a thread is inside of a step then,
falls silent and goes with a later call of any module.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType, FunctionType
from typing import Any, cast

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

Hook = Callable[[Any, Any, Any], None]

_open: list[StepHooks] = []
_pair: list[RemovableHandle] = []
_sweeper: list[RemovableHandle] = []
_lock = threading.RLock()
_STEP = cast(FunctionType, Optimizer.profile_hook_step(lambda *_: None)).__code__  # torch's, which calls the hooks and makes the step


class StepHooks:
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
            for register, hook in ((register_optimizer_step_pre_hook, _before), (register_optimizer_step_post_hook, _after))[len(_pair) :]:
                _pair.append(register(hook))

    def close(self) -> None:
        """End; closing twice does nothing."""
        with _lock:
            if self in _open:
                _open.remove(self)
            sweep()
            if _pair and not _open and not _sweeper:
                _sweeper.append(register_module_forward_pre_hook(lambda *_: sweep()))


def sweep() -> None:
    """Take the pair off if nobody wants it and no thread is inside of a step."""
    with _lock:
        if _open or _stepping():
            return
        for held in (_pair, _sweeper):
            while held:
                held[-1].remove()
                held.pop()


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


def _stepping() -> bool:
    """Whether any thread is inside of an optimizer's step."""
    for frame in sys._current_frames().values():
        above: FrameType | None = frame
        while above is not None:
            if above.f_code is _STEP:
                return True
            above = above.f_back
    return False
