"""The listener: one pair of global module hooks for everything that observes module calls. Nothing is added to any module."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import get_ident
from typing import Any, ParamSpec, TypeVar

import torch
from torch.nn import Module
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils.hooks import RemovableHandle

from modlab.compat import being_traced, forget_global_hook, global_hooks_with_kwargs
from modlab.running import recursion_limit
from modlab.running.guarded import afterwards

P = ParamSpec("P")
T = TypeVar("T")

Enter = Callable[[Module, tuple[Any, ...]], None]
Leave = Callable[[Module, tuple[Any, ...], dict[str, Any] | None, Any], None]


class GlobalHooks:
    """A pair of hooks on all modules that run before other global hooks and can be switched off and on.

    Switching keeps their ids: compiled code guards on the ids it saw, and would recompile for each new one.

    Args:
        before: passed to ``register_module_forward_pre_hook``.
        after: passed to ``register_module_forward_hook``.
        **how: further arguments to the latter.

    Attributes:
        handles, stores: for each hook, its handle and the dict of all hooks of its kind.
    """

    def __init__(self, before: Callable[..., None], after: Callable[..., None], **how: bool) -> None:
        self._hooks, self._how = (before, after), how
        self.handles: list[RemovableHandle] = []
        self.stores: list[OrderedDict[int, Any]] = []

    def open(self) -> None:
        """Register both, switched on."""
        before, after = self._hooks
        self.handles.append(register_module_forward_pre_hook(before))  # each handle is recorded as soon as it exists
        self.handles.append(register_module_forward_hook(after, **self._how))
        self.stores = [held for handle in self.handles if (held := handle.hooks_dict_ref()) is not None]
        self.on()

    def on(self, *, before: bool = True, after: bool = True) -> None:
        """Switch on one or both."""
        for wanted, held, handle, hook in zip((before, after), self.stores, self.handles, self._hooks, strict=False):
            if wanted:
                held[handle.id] = hook
                held.move_to_end(handle.id, last=False)

    def off(self) -> None:
        """Switch both off."""
        for held, handle in zip(self.stores, self.handles, strict=False):  # after an interrupt there may be fewer
            held.pop(handle.id, None)

    def is_on(self) -> bool:
        """Whether at least one of them is on."""
        return any(handle.id in held for held, handle in zip(self.stores, self.handles, strict=False))

    def close(self) -> None:
        """Remove both; all other hooks stay."""
        for handle in self.handles:
            handle.remove()
            global_hooks_with_kwargs.pop(handle.id, None)  # torch 2.13 forgets to remove it there
        for hook in self._hooks:  # an interrupt during registration leaves a hook without a handle
            forget_global_hook(hook)
        self.handles, self.stores = [], []


class Listener:
    """While open, calls `enter` for each module call, before any user hook, and `leave` with what ``forward`` returned.

    Calls in other threads, and calls that are being compiled or traced, are not reported.

    Args:
        enter: called with the module and its positional arguments; keyword arguments are known only at the end.
        leave: called with the module, its positional and keyword arguments, and the output. If the call raised, ``sys.exception()``
            is that exception, and both the output and the keyword arguments are None. Neither callback may raise.
        here: whether to report the current thread as well, if it is not the one that opened the listener.
        away: called with each module that is called in a thread that is not reported; must not raise either.
    """

    def __init__(
        self,
        enter: Enter | None = None,
        leave: Leave | None = None,
        here: Callable[[], bool] | None = None,
        away: Callable[[Module], None] | None = None,
    ) -> None:
        self._enter, self._leave, self._away = enter or _nothing, leave or _nothing, away
        self._hooks: GlobalHooks | None = None
        self._thread = 0
        self._here = here or bool

    def open(self) -> None:
        """Start listening in this thread."""
        self._thread = get_ident()
        recursion_limit.make(self)
        self._hooks = hooks = GlobalHooks(self._before, self._after, with_kwargs=True, always_call=True)
        hooks.open()
        for handle, held in zip(hooks.handles, hooks.stores, strict=True):
            _number(handle, min(0, *held) - 1)
            held.move_to_end(handle.id, last=False)

    def close(self) -> None:
        """Remove the hooks; all other hooks stay."""
        if self._hooks is not None:
            self._hooks.close()
        self._hooks = None
        recursion_limit.give_back(self)

    def during(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `work`, listening meanwhile."""

        def heard() -> T:
            self.open()
            return work(*args, **kwargs)

        return afterwards(self.close, heard)

    def alone(self) -> bool:
        """Whether there are no other global module hooks."""
        stores = self._hooks.stores if self._hooks is not None else ()
        return len(stores) == 2 and len(stores[0]) == 1 == len(stores[1])

    def _before(self, module: Module, args: tuple[Any, ...]) -> None:
        if torch.compiler.is_compiling() or being_traced():  # a compiler or tracer must not record our hooks
            return
        if get_ident() == self._thread or self._here():
            self._enter(module, args)
        elif self._away is not None:
            self._away(module)

    def _after(self, module: Module, args: tuple[Any, ...], *rest: Any) -> None:
        """`rest` is the keyword arguments and the output; after an exception torch omits the former."""
        if torch.compiler.is_compiling() or being_traced():
            return
        if get_ident() == self._thread or self._here():
            self._leave(module, args, rest[0] if len(rest) > 1 else None, rest[-1])


def _nothing(*_: Any) -> None:
    pass


def _number(handle: RemovableHandle, key: int) -> None:
    """Give a hook its previous id: code that torch compiled guards on it, and would recompile up to 8 times before torch gives up."""
    extra = [held for found in handle.extra_dict_ref or () if (held := found()) is not None]
    for store in (*extra, global_hooks_with_kwargs, handle.hooks_dict_ref() or {}):
        if handle.id in store:
            store[key] = store.pop(handle.id)
    handle.id = key
