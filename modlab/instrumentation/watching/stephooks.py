"""Hooks on the steps of all optimizers that can be taken off at any time.

While torch goes through its hooks of a step it does not bear that one of them is taken away (it raises in the user's
``optimizer.step()``). What is taken off then only falls silent, and goes with the next call of any module, where torch does bear it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

Hook = Callable[[Any, Any, Any], None]

_going = {True: 0, False: 0}  # how many of ours run now, after and before a step


class StepHook:
    """One hook, called before or after each step of any optimizer.

    Args:
        hook: gets the optimizer and the arguments of its step.
        after: after the step instead of before it.
    """

    def __init__(self, hook: Hook, *, after: bool) -> None:
        self._hook: Hook | None = hook
        self._after = after
        register = register_optimizer_step_post_hook if after else register_optimizer_step_pre_hook
        self._handle: RemovableHandle = register(self._called)
        self._sweeper: RemovableHandle | None = None
        self.lingers = True
        """Whether torch still has it."""

    def _called(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if torch.compiler.is_compiling():  # else a compiled step would compile anew whenever something of ours has changed
            return
        hook = self._hook
        if hook is None:
            return
        _going[self._after] += 1
        try:
            hook(optimizer, args, kwargs)
        finally:
            _going[self._after] -= 1

    def remove(self) -> None:
        """Take it off."""
        self._hook = None
        if not _going[self._after]:
            self.sweep()
        elif self._sweeper is None:
            self._sweeper = register_module_forward_pre_hook(lambda *_: self.sweep())

    def sweep(self) -> None:
        """Take it off at last: not inside of a step."""
        self._handle.remove()
        self.lingers = False
        if self._sweeper is not None:
            self._sweeper.remove()
            self._sweeper = None
