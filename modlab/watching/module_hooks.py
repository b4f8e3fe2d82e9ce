"""The global module hooks of a sample, which are off between samples; for a model with a compiled part they stay on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import Module

from modlab.running.listener import GlobalHooks

Enter = Callable[[Module, tuple[Any, ...]], None]
Leave = Callable[[Module, tuple[Any, ...], dict[str, Any], Any], None]


class ModuleHooks(GlobalHooks):
    """Calls `enter` before and `leave` after each call of any module, in front of other global hooks; nothing while a graph is captured.

    Args:
        enter: gets the module and its positional arguments.
        leave: gets these, its keyword arguments and what ``forward`` returned.
        steady: never switch off, until it is closed.
    """

    def __init__(self, enter: Enter, leave: Leave, *, steady: bool) -> None:
        self._steady = steady
        compiling = torch.compiler.is_compiling

        def before(module: Module, args: tuple[Any, ...]) -> None:
            if compiling():
                return
            enter(module, args)

        def after(module: Module, args: tuple[Any, ...], *rest: Any) -> None:
            if compiling() or len(rest) < 2:  # closed by another thread in the midst of the call: torch omits the keyword arguments
                return
            leave(module, args, *rest)

        super().__init__(before, after, with_kwargs=True)

    def open(self) -> None:
        """Register them, switched off unless they should stay on."""
        super().open()
        self.off()

    def stay(self) -> None:
        """From now on never switch off."""
        self._steady = True
        self.on()

    def off(self) -> None:
        """Switch off, unless they should stay on."""
        if not self._steady:
            super().off()
