"""Probes between a module's own hooks: what each of them gave, and what the call gives once all of them have run.

The listener sees what came in before any hook, and what ``forward`` returned. What the hooks make of it is seen by a hook that only
looks, behind each of them, for the length of one pass.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch.nn import Module
from torch.utils.hooks import RemovableHandle

from modlab.inspection.callables import describe, given

PRE, POST = "forward pre-hook", "forward hook"


class ProbedOutput(NamedTuple):
    """What stands behind one hook.

    Attributes:
        kind: `PRE` or `POST`.
        hook: which one, in words.
        last: no other hook of this kind comes after it.
    """

    kind: str
    hook: str
    last: bool


See = Callable[[ProbedOutput, Module, tuple[Any, ...], dict[str, Any], Any], None]


def hooked(modules: Iterable[Module]) -> list[Module]:
    """Those that have forward hooks or pre-hooks of their own, to be looked between."""
    return [module for module in modules if not issubclass(type(module), torch.jit.ScriptModule) and any(map(_hooks(module).get, _STORES))]


_STORES = {"_forward_pre_hooks": PRE, "_forward_hooks": POST}


def _hooks(module: Module) -> dict[str, Any]:
    held = object.__getattribute__(module, "__dict__")
    return {name: store for name in _STORES if type(store := held.get(name)) is OrderedDict}


class HookProbes:
    """The hooks that look.

    Args:
        modules: as `hooked` gives them.
        see: is told what was seen: module, arguments, and the output (None behind a pre-hook). Must not raise.
    """

    def __init__(self, modules: list[Module], see: See) -> None:
        self._modules, self._see = modules, see
        self._handles: list[RemovableHandle] = []
        self._seen: set[tuple[int, str]] = set()

    def sees(self, module: Module, kind: str) -> bool:
        """Whether it looks behind hooks of this kind of a module."""
        return (id(module), kind) in self._seen

    def open(self) -> None:
        """Behind each hook."""
        for module in self._modules:
            for name, store in _hooks(module).items():
                if store:
                    self._place(module, _STORES[name], store)

    def _place(self, module: Module, kind: str, store: OrderedDict[int, Any]) -> None:
        hooks = [*store.items()]
        for place, (key, hook) in enumerate(hooks):
            handle = self._behind(module, ProbedOutput(kind, _said(hook), place == len(hooks) - 1))
            self._handles.append(handle)
            store.move_to_end(key)
            store.move_to_end(handle.id)
        self._seen.add((id(module), kind))

    def _behind(self, module: Module, sight: ProbedOutput) -> RemovableHandle:
        see = self._see
        if sight.kind == PRE:

            def before(module: Module, args: Any, kwargs: Any) -> None:
                see(sight, module, args, kwargs, None)

            return Module.register_forward_pre_hook(module, before, with_kwargs=True)

        def after(module: Module, args: Any, kwargs: Any, output: Any) -> None:
            see(sight, module, args, kwargs, output)

        return Module.register_forward_hook(module, after, with_kwargs=True)

    def close(self) -> None:
        """Nothing of it is left."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._seen = [], set()


def _said(hook: Any) -> str:
    """Its name, and where it is written."""
    found = describe(given(hook)[0])
    return f"{found.function} ({found.where})" if found.where else found.function
