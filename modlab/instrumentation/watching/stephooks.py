"""Hooks on the steps of all optimizers that can be taken off at any time.

While torch goes through its hooks of a step it does not bear that one of them is taken away (it raises in the user's
``optimizer.step()``). What is taken off then only falls silent, and goes with the next call of any module, where torch does bear it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

Hook = Callable[[Any, Any, Any], None]
P = ParamSpec("P")
T = TypeVar("T")

_going = {True: 0, False: 0}  # how many of ours are at work now, after and before a step


def at_work(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call what may take hooks off, from inside a hook that is called after a step."""
    return _at_work(True, work, *args, **kwargs)


def at_work_before(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The same, from inside one that is called before a step."""
    return _at_work(False, work, *args, **kwargs)


def _at_work(after: bool, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    _going[after] += 1
    try:
        return work(*args, **kwargs)
    finally:  # at once, and by no function of Python: an interrupt would find it half done
        _going[after] -= 1


class StepHook:
    """One hook, called before or after each step of any optimizer; not in a step that is compiled.

    Args:
        hook: gets the optimizer and the arguments of its step; what may take hooks off is done by `at_work`, or `at_work_before`.
        after: after the step instead of before it.
    """

    def __init__(self, hook: Hook, *, after: bool) -> None:
        self._after, self._silent = after, False
        compiling = torch.compiler.is_compiling

        def called(optimizer: Any, args: Any, kwargs: Any) -> None:
            if compiling() or self._silent:  # else a compiled step would compile anew whenever something of ours has changed
                return
            hook(optimizer, args, kwargs)

        register = register_optimizer_step_post_hook if after else register_optimizer_step_pre_hook
        self._handle: RemovableHandle = register(called)
        self._sweeper: RemovableHandle | None = None

    def remove(self) -> None:
        """Take it off."""
        self._silent = True
        if not _going[self._after]:
            self.sweep()
        elif self._sweeper is None:
            self._sweeper = register_module_forward_pre_hook(lambda *_: self.sweep())

    def sweep(self) -> None:
        """Take it off at last: not inside of a step."""
        self._handle.remove()
        if self._sweeper is not None:
            self._sweeper.remove()
            self._sweeper = None
