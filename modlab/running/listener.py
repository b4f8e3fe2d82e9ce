"""The listener: one pair of global module hooks, for all that see every call of a module. Nothing is put on a module."""

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
    """A pair of hooks on all modules, in front of other global ones, that can be switched off and on.

    Switching keeps their numbers: a compiler that met them guards on those, and would compile anew at each new number.

    Args:
        before: as ``register_module_forward_pre_hook`` takes it.
        after: as ``register_module_forward_hook`` takes it.
        **how: what that takes beside it.

    Attributes:
        handles, stores: of each the handle, and all hooks of its kind.
    """

    def __init__(self, before: Callable[..., None], after: Callable[..., None], **how: bool) -> None:
        self._hooks, self._how = (before, after), how
        self.handles: list[RemovableHandle] = []
        self.stores: list[OrderedDict[int, Any]] = []

    def open(self) -> None:
        """Register them, switched on."""
        before, after = self._hooks
        self.handles.append(register_module_forward_pre_hook(before))  # each is known as soon as it is there
        self.handles.append(register_module_forward_hook(after, **self._how))
        self.stores = [held for handle in self.handles if (held := handle.hooks_dict_ref()) is not None]
        self.on()

    def on(self, *, before: bool = True, after: bool = True) -> None:
        """Switch on, both or one of them."""
        for wanted, held, handle, hook in zip((before, after), self.stores, self.handles, self._hooks, strict=False):
            if wanted:
                held[handle.id] = hook
                held.move_to_end(handle.id, last=False)

    def off(self) -> None:
        """Switch off."""
        for held, handle in zip(self.stores, self.handles, strict=False):  # interrupted, there may be fewer
            held.pop(handle.id, None)

    def is_on(self) -> bool:
        """Whether one of them is."""
        return any(handle.id in held for held, handle in zip(self.stores, self.handles, strict=False))

    def close(self) -> None:
        """Take them away; what is left is what was there."""
        for handle in self.handles:
            handle.remove()
            global_hooks_with_kwargs.pop(handle.id, None)  # torch 2.13 forgets it there
        for hook in self._hooks:  # an interrupt in torch's registering leaves one of which there is no handle
            forget_global_hook(hook)
        self.handles, self.stores = [], []


class Listener:
    """While they are open, `enter` is told of each call before any hook of the user's, and `leave` what ``forward`` returned.

    Calls in other threads, and in a graph that is being compiled or traced, are not told.

    Args:
        enter: gets the module and its positional arguments; the keyword ones are known only at the end.
        leave: gets the module, both kinds of arguments and the output. If an exception came out, ``sys.exception()`` is
            it, the output is None, and the keyword arguments are None as well. Neither of the two may raise.
        here: whether a thread other than the one that opened them is reported as well.
        away: gets a module that is called in a thread that is not; must not raise either.
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
        """Begin to listen, in this thread."""
        self._thread = get_ident()
        recursion_limit.make(self)
        self._hooks = hooks = GlobalHooks(self._before, self._after, with_kwargs=True, always_call=True)
        hooks.open()
        for handle, held in zip(hooks.handles, hooks.stores, strict=True):
            _number(handle, min(0, *held) - 1)
            held.move_to_end(handle.id, last=False)

    def close(self) -> None:
        """Detach; what is left is what was there."""
        if self._hooks is not None:
            self._hooks.close()
        self._hooks = None
        recursion_limit.give_back(self)

    def during(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `work`, and listen meanwhile."""

        def heard() -> T:
            self.open()
            return work(*args, **kwargs)

        return afterwards(self.close, heard)

    def alone(self) -> bool:
        """Whether no other hook is there for all modules."""
        stores = self._hooks.stores if self._hooks is not None else ()
        return len(stores) == 2 and len(stores[0]) == 1 == len(stores[1])

    def _before(self, module: Module, args: tuple[Any, ...]) -> None:
        if torch.compiler.is_compiling() or being_traced():  # a compiler or tracer must not take down our hooks
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


def _nothing(*_: Any) -> None:
    pass


def _number(handle: RemovableHandle, key: int) -> None:
    """Give a hook the number that it had the last time: code that torch compiled guards on it, and compiles anew 8 times, then no more."""
    extra = [held for found in handle.extra_dict_ref or () if (held := found()) is not None]
    for store in (*extra, global_hooks_with_kwargs, handle.hooks_dict_ref() or {}):
        if handle.id in store:
            store[key] = store.pop(handle.id)
    handle.id = key
