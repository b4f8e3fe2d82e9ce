"""One pair of global module hooks that sees every call of a module in this thread. Nothing is put on a module."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch
from torch.nn import Module
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils.hooks import RemovableHandle

from modlab.compat import being_traced, global_hooks_with_kwargs
from modlab.running import recursion_limit

Enter = Callable[[Module, tuple[Any, ...]], None]
Leave = Callable[[Module, tuple[Any, ...], dict[str, Any] | None, Any], None]


class Listener:
    """While they are open, `enter` is told of each call before any hook of the user's, and `leave` what ``forward`` returned.

    Calls in other threads, and in a graph that is being compiled or traced, are not told.

    Args:
        enter: gets the module and its positional arguments; the keyword ones are known at the end alone.
        leave: gets the module, both kinds of arguments and the output. If an exception came out, ``sys.exception()`` is
            it, the output is None, and the keyword arguments are None as well. Neither of the two may raise.
        here: whether another thread than the one that opened them is one to be told of as well.
        away: gets a module that is called in a thread that is not; must not raise either.
    """

    def __init__(
        self, enter: Enter, leave: Leave, here: Callable[[], bool] | None = None, away: Callable[[Module], None] | None = None
    ) -> None:
        self._enter, self._leave, self._away = enter, leave, away
        self._thread = 0
        self._here = here or bool
        self._handles: list[RemovableHandle] = []
        self._hooks: list[dict[int, Any]] = []  # all that there are for all modules

    def open(self) -> None:
        """Attach, in front of other global hooks, so that these can be seen at work."""
        self._thread = get_ident()
        recursion_limit.make(self)
        self._handles.append(register_module_forward_pre_hook(self._before))  # each is known as soon as it is there
        self._handles.append(register_module_forward_hook(self._after, with_kwargs=True, always_call=True))
        for handle in self._handles:
            hooks = handle.hooks_dict_ref()
            if hooks is not None:
                _number(handle, min(0, *hooks) - 1)
                hooks.move_to_end(handle.id, last=False)
                self._hooks.append(hooks)

    def close(self) -> None:
        """Detach; what is left is what was there."""
        for handle in self._handles:
            handle.remove()
            global_hooks_with_kwargs.pop(handle.id, None)  # torch 2.13 forgets it there
        self._handles, self._hooks = [], []
        recursion_limit.give_back(self)

    def alone(self) -> bool:
        """Whether no other hook is there for all modules."""
        return len(self._hooks) == 2 and len(self._hooks[0]) == 1 == len(self._hooks[1])

    def _before(self, module: Module, args: tuple[Any, ...]) -> None:
        if torch.compiler.is_compiling() or being_traced():  # a compiler or tracer must not take down the taps
            return
        if get_ident() == self._thread or self._here():
            self._enter(module, args)
        elif self._away is not None:
            self._away(module)

    def _after(self, module: Module, args: tuple[Any, ...], *rest: Any) -> None:
        """`rest` is keyword arguments and output; after an exception torch leaves the former out."""
        if torch.compiler.is_compiling() or being_traced():
            return
        if get_ident() == self._thread or self._here():
            self._leave(module, args, rest[0] if len(rest) > 1 else None, rest[-1])


def _number(handle: RemovableHandle, key: int) -> None:
    """Give a hook the number that it had the last time: code that torch compiled guards on it, and compiles anew 8 times, then no more."""
    extra = [held for found in handle.extra_dict_ref or () if (held := found()) is not None]
    for store in (*extra, global_hooks_with_kwargs, handle.hooks_dict_ref() or {}):
        if handle.id in store:
            store[key] = store.pop(handle.id)
    handle.id = key
