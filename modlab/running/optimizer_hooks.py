"""Hooks on the steps of all optimizers that can be added and removed at any time.

While torch iterates over its step hooks, none may be added or removed, in any thread: the user's ``optimizer.step()`` would raise.
So all watches and traces share one pair. It is added with the first of them and removed with the last, or, if some thread is
running such hooks at that moment, at a later call of any module. Whether it is registered is read from torch itself: an interrupt
may have lost a handle.
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
"""Maximum number of checks of what the other threads are doing, before the change is postponed."""

Hook = Callable[[Any, Any, Any], Any]

_open: list[OptimizerHooks] = []
_lock = compat.lock_for_forks()
_STEP = cast(FunctionType, Optimizer.profile_hook_step(lambda *_: None)).__code__  # torch's own wrapper, which calls the hooks and the step


class OptimizerHooks:
    """What one watch or trace wants called around each step of any optimizer, except compiled steps.

    Args:
        before: called before the step, with the optimizer and the step's arguments; it may return others in their place.
        after: called after the step.
    """

    def __init__(self, before: Hook, after: Hook) -> None:
        self.before, self.after = before, after

    def open(self) -> None:
        """Start."""
        with _lock:
            _open.append(self)
            sweep()

    def close(self) -> None:
        """Stop; calling it twice does nothing."""
        with _lock:
            if self in _open:
                _open.remove(self)
            sweep()


def are_open() -> bool:
    """Whether there is a watch or trace that is told of steps."""
    return bool(_open)


def sweep() -> None:
    """Register the pair if it is needed and remove it otherwise; postponed while a thread is running such hooks."""
    with _lock:
        changes = [change for hook, name in _PAIR for change in _changes(hook, compat.optimizer_hooks()[name])]
        if changes and not _made(changes):
            if not is_global_hook(_sweep_later):
                register_module_forward_pre_hook(_sweep_later)
            return
        forget_global_hook(_sweep_later)


def _made(changes: list[Callable[[], object]]) -> bool:
    """Make the changes, if no thread is running such hooks or started to while we checked."""
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
    """The changes that register or remove the hook as needed. Each is a single call into C, which no other thread can interrupt."""
    found = [key for key, one in [*held.items()] if one is hook]
    if not _open:
        return [partial(held.pop, key, None) for key in found]
    return [] if found else [partial(held.__setitem__, RemovableHandle(held).id, hook)]


def _sweep_later(module: Any, args: Any) -> None:
    if not torch.compiler.is_compiling():
        sweep()


def _before(optimizer: Any, args: Any, kwargs: Any) -> Any:
    if torch.compiler.is_compiling():  # otherwise a compiled step would recompile whenever our state changes
        return None
    others = None
    for one in (*_open,):
        if one in _open:  # another hook may have closed it
            others = one.before(optimizer, args, kwargs) or others
    return others


def _after(optimizer: Any, args: Any, kwargs: Any) -> None:
    if torch.compiler.is_compiling():
        return
    for one in (*_open,):
        if one in _open:
            one.after(optimizer, args, kwargs)


_PAIR: tuple[tuple[Hook, str], ...] = (_before, "_optimizer_pre_hooks"), (_after, "_optimizer_post_hooks")


def _is_among_hooks(frame: FrameType | None) -> bool:
    """Whether a thread is inside an optimizer's step, but not in the part that runs the step itself."""
    inner: FrameType | None = None
    while frame is not None:
        if frame.f_code is _STEP and (inner is None or inner.f_code is not _code_of(frame.f_locals.get("func"))):
            return True
        inner, frame = frame, frame.f_back
    return False


def _code_of(function: Any) -> CodeType | None:
    return function.__code__ if isinstance(function, FunctionType) else None
