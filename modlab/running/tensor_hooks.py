"""Hooks on tensors that are taken off again, so that nothing of them is left, and nobody is warned who saves such a tensor."""

from __future__ import annotations

from collections.abc import Callable
from weakref import ref

from torch import Tensor
from torch.utils.hooks import RemovableHandle


class TensorHooks:
    """Some hooks that wait for gradients."""

    def __init__(self) -> None:
        self._handles: list[RemovableHandle] = []
        self._coming: tuple[Tensor, Callable[[Tensor], None]] | None = None  # torch may have it, and we no handle of it yet
        self._bare: list[Callable[[], Tensor | None]] = []  # those that had no hook before: torch leaves an empty store on them

    def __len__(self) -> int:
        return len(self._handles)

    def add(self, tensor: Tensor, hook: Callable[[Tensor], None], held: Callable[[], Tensor | None] | None = None) -> None:
        """Call `hook` with the gradient of a tensor when it arrives.

        Args:
            tensor: one that requires a gradient.
            hook: a callable that takes attributes, as functions and partial ones do.
            held: gives the tensor later; a weak reference unless told.
        """
        if tensor._backward_hooks is None:
            self._bare.append(held or ref(tensor))
        hook.__torch_unserializable__ = True  # type: ignore[attr-defined]
        self._coming = tensor, hook
        self._handles.append(tensor.register_hook(hook))  # type: ignore[no-untyped-call]
        self._coming = None

    def close(self) -> None:
        """Take every hook off."""
        if self._coming is not None:
            tried, hook = self._coming
            held = tried._backward_hooks or {}
            for key in [key for key, one in held.items() if one is hook]:
                del held[key]
        for handle in self._handles:
            handle.remove()
        for bare in self._bare:
            tensor = bare()
            if tensor is not None and not tensor._backward_hooks:
                tensor._backward_hooks = None
        self._handles, self._bare, self._coming = [], [], None
