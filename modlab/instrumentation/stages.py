"""The user's hooks at work: for the length of a trace each is wrapped in its place, so that its doing can be seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from torch.nn import Module

from modlab.compat import global_hooks
from modlab.inspection import stores

FORWARD_PRE, FORWARD, BACKWARD_PRE, BACKWARD = "forward pre-hook", "forward hook", "full backward pre-hook", "backward hook"
KINDS = {
    "_forward_pre_hooks": FORWARD_PRE,
    "_forward_hooks": FORWARD,
    "_backward_pre_hooks": BACKWARD_PRE,
    "_backward_hooks": BACKWARD,
}


class Observer(Protocol):
    """Who is told of a hook's run."""

    def stage(self, stage: Stage, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run ``stage.original`` and look at what it does."""


class Stage:
    """Stands in for one hook; gives everything on to it, and does nothing more once the trace has ended.

    Attributes:
        original: the user's hook.
        kind: a value of `KINDS`.
        everywhere: whether it is a global hook, for all modules.
    """

    def __init__(self, original: Callable[..., Any], kind: str, observer: Observer, everywhere: bool = False) -> None:
        self.original, self.kind, self.everywhere = original, kind, everywhere
        self.observer: Observer | None = observer

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the hook."""
        observer = self.observer
        return self.original(*args, **kwargs) if observer is None else observer.stage(self, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)

    def __reduce__(self) -> Any:
        """A model that is copied or saved in mid-trace has its own hooks."""
        return _same, (self.original,)


def _same(hook: Any) -> Any:
    return hook


class Stages:
    """Puts a `Stage` into the place of each hook, and the hooks back."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._placed: list[tuple[dict[int, Any], int, Stage]] = []

    def open(self, modules: Iterable[Module]) -> None:
        """Wrap the hooks of these modules and those for all modules; keys and order stay."""
        everywhere = global_hooks()
        for name in KINDS:
            self._wrap(name, everywhere.get(name) or {}, everywhere=True)
        for module in modules:
            held = stores.contents(module)
            if stores.own_values(held)[0]:
                for name in KINDS:
                    self._wrap(name, held.get(name) or {})

    def _wrap(self, name: str, store: dict[int, Any], everywhere: bool = False) -> None:
        for key, hook in list(store.items()):
            stage = Stage(hook, KINDS[name], self._observer, everywhere)
            self._placed.append((store, key, stage))
            store[key] = stage

    def close(self) -> None:
        """Put back what is still there; a hook that was removed meanwhile stays removed."""
        for store, key, stage in reversed(self._placed):
            stage.observer = None
            found = store.get(key)
            if found is stage:
                store[key] = innermost(stage)
        self._placed = []


def innermost(hook: Any) -> Any:
    """The user's hook behind stages that have ended (of a trace that another one, now over, was opened in)."""
    hook = hook.original
    while type(hook) is Stage and hook.observer is None:
        hook = hook.original
    return hook
