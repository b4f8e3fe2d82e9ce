"""Wrappers of hooks on tensors at work: those that parameters and inputs have, and those that any tensor gets while a trace runs.

What hangs on the nodes of the graph, or on tensors that were made before and are no inputs, cannot be seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from weakref import ref

from torch import Tensor
from torch.utils.hooks import RemovableHandle

from modlab.compat import tensor_hooks
from modlab.records.structure import ROOT
from modlab.running.values import Leaf
from modlab.tracing.calls import Call
from modlab.tracing.event_log import EventLog
from modlab.tracing.hook_wrappers import ACCUMULATED, TENSOR, HookWrapper, Observer, active, is_ours
from modlab.tracing.tensor_ids import TensorIds
from modlab.tracing.trace_index import Owned, TraceIndex

KINDS = {"_backward_hooks": TENSOR, "_post_accumulate_grad_hooks": ACCUMULATED}
_REGISTERING = tuple(
    (getattr(Tensor, name), kind)
    for name, kind in (("register_hook", TENSOR), ("register_post_accumulate_grad_hook", ACCUMULATED))
    if hasattr(Tensor, name)
)
_BACK = 200  # events among which it is looked for what made a tensor


class TensorHookWrappers:
    """Puts a `HookWrapper` into the place of each hook of a tensor, and the hooks back. No tensor is held."""

    def __init__(self, log: EventLog, index: TraceIndex, tensor_ids: TensorIds, observer: Observer) -> None:
        self._log, self._index, self._tensor_ids, self._observer = log, index, tensor_ids, observer
        self._placed: list[tuple[ref[dict[int, Any]], int]] = []

    def open(self, parameters: Iterable[Owned]) -> None:
        """Wrap the hooks of these parameters; keys and order stay."""
        for one in parameters:
            for name, store in tensor_hooks(one.tensor):
                for key in list(store):
                    self._wrap(store, key, KINDS[name], *self._of_parameter(one))

    def given(self, leaves: Iterable[Leaf], path: str) -> None:
        """The model is called with these: they may have hooks."""
        for name, thing, _ in leaves:
            if issubclass(type(thing), Tensor) and thing.requires_grad and id(thing) not in self._tensor_ids.owned:
                for store_name, store in tensor_hooks(thing):
                    for key in list(store):
                        self._wrap(store, key, KINDS[store_name], path, f"{name} of {path or ROOT}")

    def registered(self, function: Any, tensor: Any, handle: Any) -> None:
        """A tensor has got a hook."""
        store = handle.hooks_dict_ref() if type(handle) is RemovableHandle else None
        if store is None or handle.id not in store or not issubclass(type(tensor), Tensor):
            return
        one = next((one for one in self._index.parameters if one.tensor is tensor), None)
        place = self._of_output(tensor) if one is None else self._of_parameter(one)
        self._wrap(store, handle.id, next(kind for one, kind in _REGISTERING if one is function), *place)

    def _of_parameter(self, one: Owned) -> tuple[str | None, str]:
        return self._index.paths.get(id(one.owner)), one.name

    def _of_output(self, tensor: Tensor) -> tuple[str | None, str]:
        """The path of a module that gave a tensor, or in which it was made, and what it is there, in words."""
        number, maker = self._tensor_ids.number(tensor), None
        for call in reversed(self._log.calls[-_BACK:]):
            if number and call.kind in ("module", "function") and any(seen.sight.number == number for seen in call.outputs):
                if call.kind == "module":
                    maker = call
                    break
                maker = maker or call
        return (None, "") if maker is None else (maker.path, f"the output of {_name(maker)}")

    def _wrap(self, store: Any, key: int, kind: str, path: str | None, tensor: str) -> None:
        hook = store[key]
        if is_ours(hook) or (type(hook) is HookWrapper and hook.observer is self._observer):
            return
        store[key] = HookWrapper(hook, kind, self._observer, tensor=tensor, path=path)
        self._placed.append((ref(store), key))

    def close(self) -> None:
        """Put back what is still there; a hook that was removed meanwhile stays removed."""
        for held, key in reversed(self._placed):
            store = held()
            stage = None if store is None else store.get(key)
            if store is None or type(stage) is not HookWrapper:
                continue
            one: Any = stage
            while type(one) is HookWrapper:
                if one.observer is self._observer:
                    one.observer = None
                one = one.original
            store[key] = active(stage)
        self._placed = []


def is_registering(function: Any) -> bool:
    """Whether a function puts a hook on a tensor."""
    return any(function is one for one, _ in _REGISTERING)


def _name(call: Call) -> str:
    return call.name if call.kind == "function" or call.path is None else call.path or ROOT
