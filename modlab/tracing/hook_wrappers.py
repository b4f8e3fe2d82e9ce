"""The user's hooks at work: for the length of a trace each is wrapped in its place, so that its doing can be seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from types import FunctionType, MethodType
from typing import Any, Protocol, cast

from torch.nn import Module

from modlab.compat import global_hooks
from modlab.inspection import stores
from modlab.inspection.callables import AT_WORK

FORWARD_PRE, FORWARD, BACKWARD_PRE, BACKWARD = "forward pre-hook", "forward hook", "full backward pre-hook", "backward hook"
LEGACY = "legacy backward hook"  # which sees what goes through the module's last operation
TENSOR, ACCUMULATED = "tensor hook", "post-accumulate-grad hook"
KINDS = {
    "_forward_pre_hooks": FORWARD_PRE,
    "_forward_hooks": FORWARD,
    "_backward_pre_hooks": BACKWARD_PRE,
    "_backward_hooks": BACKWARD,
}


class Observer(Protocol):
    """Who is told of a hook's run."""

    def stage(self, stage: HookWrapper, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run ``stage.original`` and look at what it does."""


class HookWrapper:
    """Stands in for one hook, and passes for it: gives everything on, and does nothing more once the trace has ended.

    Attributes:
        original: the user's hook.
        kind: a value of `KINDS`, or `LEGACY`.
        everywhere: whether it is a global hook, for all modules.
        tensor: of a hook on a tensor, what that is ("weight"); `path`: the module that it belongs to.
    """

    def __init__(
        self,
        original: Callable[..., Any],
        kind: str,
        observer: Observer,
        everywhere: bool = False,
        tensor: str = "",
        path: str | None = None,
    ) -> None:
        self.original, self.kind, self.everywhere, self.tensor, self.path = original, kind, everywhere, tensor, path
        self.observer: Observer | None = observer

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the hook."""
        observer = self.observer
        return self.original(*args, **kwargs) if observer is None else observer.stage(self, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """That of the hook: torch's utilities look for theirs by it (``remove_weight_norm``)."""
        return type(self.original)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A model that is copied or saved in mid-trace has its own hooks."""
        return cast, (None, self.original)


def is_ours(hook: Any) -> bool:
    """Whether it is of another trace, around this one, or of a watch."""
    if type(hook) is partial:
        hook = hook.func
    if type(hook) is MethodType:
        hook = hook.__func__
    return type(hook) is FunctionType and str(hook.__module__).startswith(AT_WORK)


def innermost(hook: Any) -> Any:
    """The user's hook behind a stage, or behind several."""
    while type(hook) is HookWrapper:
        hook = hook.original
    return hook


class HookWrappers:
    """Puts a `HookWrapper` into the place of each hook, and the hooks back."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._placed: list[tuple[dict[int, Any], int, HookWrapper]] = []

    def open(self, modules: Iterable[Module]) -> None:
        """Wrap the hooks of these modules and those for all modules; keys and order stay."""
        everywhere = global_hooks()
        self._wrap(everywhere, everywhere=True)
        for module in modules:
            self._wrap(stores.contents(module))

    def late(self, module: Module) -> bool:
        """Wrap the hooks that a module has got since; whether some of them run in the call that begins now, and cannot be seen in it."""
        return any(kind != FORWARD for kind in self._wrap(stores.contents(module)))

    def _wrap(self, held: dict[str, Any], everywhere: bool = False) -> list[str]:
        """Put a stage into the place of each hook that has none; what kinds these are."""
        found = []
        for name, kind in KINDS.items():
            store = held.get(name) or {}
            kind = LEGACY if kind == BACKWARD and held.get("_is_full_backward_hook") is False else kind
            for key, hook in list(store.items()):
                if is_ours(hook) or self._is_staged(hook):
                    continue
                stage = HookWrapper(hook, kind, self._observer, everywhere)
                self._placed.append((store, key, stage))
                store[key] = stage
                found.append(kind)
        return found

    def _is_staged(self, hook: Any) -> bool:
        while type(hook) is HookWrapper and hook.observer is not self._observer:
            hook = hook.original
        return type(hook) is HookWrapper

    def close(self, modules: Iterable[Module]) -> None:
        """Put back what is still there; a hook that was removed meanwhile stays removed.

        A store that was put into a module's place meanwhile, with stages in it, is found too.
        """
        for store, key, stage in reversed(self._placed):
            stage.observer = None
            if store.get(key) is stage:
                store[key] = active(stage)
        if self._placed:
            for module in modules:
                for name in KINDS:
                    store = stores.contents(module).get(name) or {}
                    for key, hook in list(store.items()):
                        if type(hook) is HookWrapper:
                            store[key] = active(hook)
        self._placed = []


def active(hook: Any) -> Any:
    """The hook, or the stage of a trace that still runs, behind stages that have ended."""
    while type(hook) is HookWrapper and hook.observer is None:
        hook = hook.original
    return hook
