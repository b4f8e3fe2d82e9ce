"""The gradients of modules' outputs, by hooks on the tensors that are taken off again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import ref

from torch import Tensor
from torch.utils.hooks import RemovableHandle

from modlab.instrumentation.recording.sightings import Sightings, version_of
from modlab.instrumentation.recording.tape import Tape

WATCHED = 10_000  # outputs; torch 2.13 does not survive the freeing of a graph of which very many nodes have been looked at


class Gradients:
    """Records the gradient of each watched tensor when it arrives; of several modules that hand one tensor on, for each.

    Attributes:
        seen: whether any has arrived.
    """

    def __init__(self, tape: Tape, sightings: Sightings) -> None:
        self._tape, self._sightings = tape, sightings
        self._watched: dict[tuple[int, int], tuple[Callable[[], Tensor | None], list[int]]] = {}
        self._handles: list[RemovableHandle] = []
        self._bare: list[Callable[[], Tensor | None]] = []  # those that had no hook before: torch leaves an empty store on them
        self.seen = False

    def watch(self, tensor: Tensor, event: int, name: str) -> None:
        """Wait for the gradient of an output; of a tensor that several modules hand on, one hook tells all."""
        key = id(tensor), version_of(tensor)
        found = self._watched.get(key)
        if found is not None and found[0]() is tensor:
            found[1].append(event)
            return
        if len(self._watched) >= WATCHED:
            self._tape.remark(f"gradients of outputs are followed for the first {WATCHED:,} outputs")
            return
        events = [event]
        # of a parameter without a weak reference, which torch.utils.swap_tensors would refuse
        held: Callable[[], Tensor | None] = partial(_itself, tensor) if id(tensor) in self._sightings.owned else ref(tensor)
        self._watched[key] = held, events
        if tensor._backward_hooks is None:
            self._bare.append(held)
        hook = _unsaved(partial(self._arrived, events, name))
        self._handles.append(tensor.register_hook(hook))  # type: ignore[no-untyped-call]

    def _arrived(self, events: list[int], name: str, gradient: Tensor) -> None:
        self.seen = True
        if self._tape.failed:
            return
        with self._tape.aside() as now:
            for index in reversed(events):  # outer modules first, as they began
                source = self._tape.calls[index]
                call = self._tape.begin("gradient", source.path, source.name, now)
                call.call, call.inputs = source.call, self._sightings.values([(name, gradient, "")])
                self._tape.end(call, now)

    def close(self) -> None:
        """Take every hook off."""
        for handle in self._handles:
            handle.remove()
        for bare in self._bare:
            tensor = bare()
            if tensor is not None and not tensor._backward_hooks:
                tensor._backward_hooks = None
        self._handles, self._bare, self._watched = [], [], {}


def _itself(tensor: Tensor) -> Tensor:
    return tensor


def _unsaved(hook: Any) -> Any:
    """Without this mark torch would warn whoever saves the tensor meanwhile."""
    hook.__torch_unserializable__ = True
    return hook
