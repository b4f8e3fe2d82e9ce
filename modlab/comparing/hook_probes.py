"""Probes between a module's own hooks: what each hook returned, and what the call returns after all of them have run.

The listener sees the inputs before any hook runs, and what ``forward`` returned. To see what the hooks make of them, an observing
hook is added after each hook for the duration of one pass.
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
    """Where an output was observed: after one hook.

    Attributes:
        kind: `PRE` or `POST`.
        hook: which hook, in words.
        last: whether it is the last hook of its kind.
    """

    kind: str
    hook: str
    last: bool


See = Callable[[ProbedOutput, Module, tuple[Any, ...], dict[str, Any], Any], None]


def hooked(modules: Iterable[Module]) -> list[Module]:
    """The modules that have forward hooks or pre-hooks of their own."""
    return [module for module in modules if not issubclass(type(module), torch.jit.ScriptModule) and any(map(_hooks(module).get, _STORES))]


_STORES = {"_forward_pre_hooks": PRE, "_forward_hooks": POST}


def _hooks(module: Module) -> dict[str, Any]:
    held = object.__getattribute__(module, "__dict__")
    return {name: store for name in _STORES if type(store := held.get(name)) is OrderedDict}


class HookProbes:
    """The observing hooks.

    Args:
        modules: as returned by `hooked`.
        see: called with the observation: module, arguments, and the output (None after a pre-hook). Must not raise.
    """

    def __init__(self, modules: list[Module], see: See) -> None:
        self._modules, self._see = modules, see
        self._handles: list[RemovableHandle] = []
        self._seen: set[tuple[int, str]] = set()

    def sees(self, module: Module, kind: str) -> bool:
        """Whether the module's hooks of this kind are observed."""
        return (id(module), kind) in self._seen

    def open(self) -> None:
        """Add a probe after each hook."""
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
        """Remove all probes."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._seen = [], set()


def _said(hook: Any) -> str:
    """The hook's name, and where it is defined."""
    found = describe(given(hook)[0])
    return f"{found.function} ({found.where})" if found.where else found.function
