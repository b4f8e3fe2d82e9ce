"""One pair of global module hooks that is switched on and off.

Switching keeps the hooks' numbers: a compiler that met them guards on those, and would compile anew at each new number. So for a
model with a compiled part they stay on.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import Module
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils.hooks import RemovableHandle

Enter = Callable[[Module, tuple[Any, ...]], None]
Leave = Callable[[Module, tuple[Any, ...], Any], None]


class ModuleHooks:
    """Calls `enter` before and `leave` after each call of any module, in front of other global hooks; nothing while a graph is captured.

    Args:
        enter: gets the module and its positional arguments.
        leave: gets these and what ``forward`` returned.
        steady: never switch off, until it is closed.
    """

    def __init__(self, enter: Enter, leave: Leave, *, steady: bool) -> None:
        self._steady = steady
        compiling = torch.compiler.is_compiling

        def before(module: Module, args: tuple[Any, ...]) -> None:
            if compiling():
                return
            enter(module, args)

        def after(module: Module, args: tuple[Any, ...], output: Any) -> None:
            if compiling():
                return
            leave(module, args, output)

        self._hooks = before, after
        self._handles: list[RemovableHandle] = []
        self._stores: list[OrderedDict[int, Any]] = []

    def open(self) -> None:
        """Register them, switched off unless they are to stay on."""
        before, after = self._hooks
        self._handles.append(register_module_forward_pre_hook(before))  # each is known as soon as it is there
        self._handles.append(register_module_forward_hook(after))
        for handle in self._handles:
            held = handle.hooks_dict_ref()
            if held is not None:
                self._stores.append(held)
        self.on() if self._steady else self.off()

    def on(self, *, before: bool = True, after: bool = True) -> None:
        """Switch on, both or one of them."""
        for wanted, held, handle, hook in zip((before, after), self._stores, self._handles, self._hooks, strict=False):
            if wanted:
                held[handle.id] = hook
                held.move_to_end(handle.id, last=False)

    def stay(self) -> None:
        """From now on never switch off."""
        self._steady = True
        self.on()

    def off(self) -> None:
        """Switch off."""
        if not self._steady:
            for held, handle in zip(self._stores, self._handles, strict=False):  # interrupted, there may be fewer
                held.pop(handle.id, None)

    def close(self) -> None:
        """Take them away."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._stores = [], []
