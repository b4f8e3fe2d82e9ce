"""Copies of the inputs for each pass, so that the user's stay unchanged and all passes start from the same values."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from modlab.compat import without_modes
from modlab.errors import UnrepeatableInputError
from modlab.inspection import stores
from modlab.running.randomness import is_private
from modlab.running.values import arguments
from modlab.statistics.memory import NoValuesError, copied, deepcopied

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_DEPTH = 8

Change = Callable[[Tensor], Tensor]


def require_repeatable(args: tuple[Any, ...], kwargs: Mapping[str, Any], passes: str) -> None:
    """Reject arguments that can be read only once.

    Raises:
        UnrepeatableInputError: a generator, an iterator or an open file is among the arguments.
    """
    for name, thing, _ in arguments((), args, kwargs):
        if hasattr(type(thing), "__next__"):
            place = f"Argument {name}" if name else "The argument"
            kind = type(thing).__name__
            raise UnrepeatableInputError(
                f"{place} is a {kind}, which can be read only once, but modlab.compare runs the model {passes}.\n"
                f"  Pass it all at once: list(...), or torch.stack(list(...))"
            )


class InputCopies:
    """Makes a set of arguments for each pass.

    Tensors are copied with their values, flags and strides; a tensor passed twice is still one tensor passed twice. Tensors of the
    model itself are passed on as they are, and so is anything that is not a tensor, list, tuple, dict, named tuple or dataclass
    and cannot be copied.

    Args:
        own: ids of tensors to pass on as they are.
        change: applied to each copy.
    """

    def __init__(self, own: frozenset[int] = frozenset(), change: Change | None = None) -> None:
        self._own, self._change = own, change
        self._made: dict[int, Any] = {}

    def __call__(self, thing: Any, depth: int = _DEPTH) -> Any:
        """The same nest with its tensors copied."""
        cls = type(thing)
        if cls in _PLAIN or depth == 0 or stores.is_module(thing):
            return thing
        if id(thing) not in self._made:
            self._made[id(thing)] = self._copied(thing, cls, depth)
        return self._made[id(thing)]

    def _copied(self, thing: Any, cls: type, depth: int) -> Any:
        if issubclass(cls, Tensor):
            return thing if id(thing) in self._own else self._tensor(thing)
        if cls in (list, tuple):
            return cls(self(part, depth - 1) for part in thing)
        if issubclass(cls, tuple) and hasattr(cls, "_make"):
            return cls(*(self(part, depth - 1) for part in tuple.__iter__(thing)))
        if cls is dict:
            return {key: self(part, depth - 1) for key, part in thing.items()}
        if dataclasses.is_dataclass(cls) and not issubclass(cls, Mapping):
            return self._dataclass(thing, depth)
        return thing if is_private(thing) else self._anything(thing)  # its state is restored instead

    def _dataclass(self, thing: Any, depth: int) -> Any:
        try:
            made = copy.copy(thing)
            for field in dataclasses.fields(thing):
                if hasattr(thing, field.name):
                    object.__setattr__(made, field.name, self(getattr(thing, field.name), depth - 1))
        except Exception:  # noqa: BLE001 - the user's class may do anything
            return thing
        return made

    def _anything(self, thing: Any) -> Any:
        """A deep copy of a cache or a batch with methods, or the object itself if it cannot be copied."""
        try:
            return deepcopied(thing)
        except Exception:  # noqa: BLE001 - what cannot be copied is passed on as it is
            return thing

    def _tensor(self, tensor: Tensor) -> Tensor:
        try:
            with without_modes():
                made = copied(tensor)
                if self._change is not None:
                    made = self._change(made)
        except (RuntimeError, NotImplementedError, TypeError, NoValuesError):  # a kind that cannot be copied, or has no memory
            return tensor
        if not tensor.requires_grad or not (made.dtype.is_floating_point or made.dtype.is_complex):
            return made
        with torch.inference_mode(False), torch.enable_grad():
            made.requires_grad_()
            return made if tensor.is_leaf else made.clone()  # a non-leaf may be changed in place, a leaf may not
