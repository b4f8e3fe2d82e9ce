"""Hooks on the steps of all optimizers that can come and go at any time.

While torch goes through its hooks of a step it does not bear that one comes or goes, in whatever thread: it raises in the user's
``optimizer.step()``. So all watches and traces share one pair. It comes with the first of them and goes with the last, or, where a
thread is among such hooks then, with a later call of any module. Torch is asked whether it is there: a handle may have been lost to an
interrupt.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import CodeType, FrameType, FunctionType
from typing import Any, cast

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import Optimizer
from torch.utils.hooks import RemovableHandle

from modlab import compat
from modlab.compat import forget_global_hook, is_global_hook

TRIES = 100
"""Looks at what the other threads do, at most, before it is left for later."""

Hook = Callable[[Any, Any, Any], None]

_open: list[OptimizerHooks] = []
_lock = compat.lock_for_forks()
_STEP = cast(FunctionType, Optimizer.profile_hook_step(lambda *_: None)).__code__  # torch's, which calls the hooks and makes the step


class OptimizerHooks:
    """What one watch or trace wants to be told of each step of any optimizer; not of one that is compiled.

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
        changes = [change for hook, name in _PAIR for change in _changes(hook, compat.optimizer_hooks()[name])]
        if changes and not _made(changes):
            if not is_global_hook(_sweep_later):
                register_module_forward_pre_hook(_sweep_later)
            return
        forget_global_hook(_sweep_later)


def _made(changes: list[Callable[[], object]]) -> bool:
    """Make them if no thread is among such hooks, nor came to them while we looked."""
    for _ in range(TRIES):
        others = [(frame, frame.f_lasti) for frame in compat.other_threads()]
        if any(map(_is_among_hooks, [sys._getframe(), *(frame for frame, _ in others)])):
            return False
        if [(frame, frame.f_lasti) for frame in compat.other_threads()] == others:
            for change in changes:
                change()
            return True
    return False


def _changes(hook: Hook, held: dict[int, Hook]) -> list[Callable[[], object]]:
    """What there is to do, so that torch has a hook if anybody wants it. Each is one call into C, in which no other thread comes in."""
    found = [key for key, one in [*held.items()] if one is hook]
    if not _open:
        return [partial(held.pop, key, None) for key in found]
    return [] if found else [partial(held.__setitem__, RemovableHandle(held).id, hook)]


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


_PAIR: tuple[tuple[Hook, str], ...] = (_before, "_optimizer_pre_hooks"), (_after, "_optimizer_post_hooks")


def _is_among_hooks(frame: FrameType | None) -> bool:
    """Whether a thread that is there is inside of an optimizer's step, and not in that part of it that makes the step."""
    inner: FrameType | None = None
    while frame is not None:
        if frame.f_code is _STEP and (inner is None or inner.f_code is not _code_of(frame.f_locals.get("func"))):
            return True
        inner, frame = frame, frame.f_back
    return False


def _code_of(function: Any) -> CodeType | None:
    return function.__code__ if isinstance(function, FunctionType) else None
