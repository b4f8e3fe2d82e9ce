"""Tensor hooks that can be removed without a trace, so that saving such a tensor gives no warning."""

from __future__ import annotations

from collections.abc import Callable
from weakref import ref

from torch import Tensor
from torch.utils.hooks import RemovableHandle

from modlab.compat import tensor_hooks

OF_MODULES = "BackwardHookFunction"
"""The function that torch puts around a module with backward hooks: it belongs to no model."""


def is_hooked(tensor: Tensor) -> bool:
    """Whether hooks hang on a tensor that are not those of `TensorHooks`."""
    return any(getattr(one, "__module__", "") != __name__ for _, held in tensor_hooks(tensor) for one in held.values())


class TensorHooks:
    """A set of hooks that wait for gradients."""

    def __init__(self) -> None:
        self._handles: list[RemovableHandle] = []
        self._coming: tuple[Tensor, Callable[[Tensor], None]] | None = None  # torch may hold the hook before we have its handle
        self._bare: list[Callable[[], Tensor | None]] = []  # tensors that had no hooks before: torch leaves an empty dict on them

    def __len__(self) -> int:
        return len(self._handles)

    def add(self, tensor: Tensor, hook: Callable[[Tensor], None], held: Callable[[], Tensor | None] | None = None) -> None:
        """Call `hook` with the gradient of a tensor when it arrives.

        Args:
            tensor: a tensor that requires grad.
            hook: what is called.
            held: returns the tensor later; a weak reference by default.
        """
        if tensor._backward_hooks is None:
            self._bare.append(held or ref(tensor))

        def told(gradient: Tensor | None) -> None:
            if gradient is not None:  # of several outputs of a function, one that no loss depends on gets none
                hook(gradient)

        told.__torch_unserializable__ = True  # type: ignore[attr-defined]
        self._coming = tensor, told
        self._handles.append(tensor.register_hook(told))  # type: ignore[no-untyped-call]
        self._coming = None

    def close(self) -> None:
        """Remove every hook."""
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
