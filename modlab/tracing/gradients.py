"""The gradients of modules' outputs and of some parameters, by hooks on the tensors that are taken off again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from weakref import ref

from torch import Tensor

from modlab.compat import tensor_hooks
from modlab.inspection import stores
from modlab.running.guarded import guarded
from modlab.running.tensor_hooks import TensorHooks
from modlab.tracing.backward import Backward
from modlab.tracing.event_log import EventLog
from modlab.tracing.tensor_ids import TensorIds, version_of
from modlab.tracing.trace_index import Owned, TraceIndex

WATCHED = 10_000  # outputs; torch 2.13 does not survive the freeing of a graph of which very many nodes have been looked at


class Gradients:
    """Records the gradient of each watched tensor when it arrives; of several modules that hand one tensor on, for each.

    Attributes:
        seen: whether any has arrived.
    """

    def __init__(self, log: EventLog, index: TraceIndex, tensor_ids: TensorIds, backward: Backward) -> None:
        self.ends = self._log = log
        self._index, self._tensor_ids, self._backward = index, tensor_ids, backward
        self._watched: dict[tuple[int, int], tuple[Callable[[], Tensor | None], list[int]]] = {}
        self._hooks = TensorHooks()
        self.seen = False

    def open(self) -> None:
        """Wait for those of parameters that a hook of the user's may meet, or take away.

        Of others it is enough to know at the end of a backward pass that they are there.
        """
        for one in self._index.parameters:
            if not (one.tensor.requires_grad and one.tensor.is_leaf):
                continue
            held = stores.contents(one.owner)
            if held.get("_backward_pre_hooks") or held.get("_backward_hooks") or tensor_hooks(one.tensor):
                self._hooks.add(one.tensor, partial(self._reached, one), partial(_itself, one.tensor))

    def watch(self, tensor: Tensor, event: int, name: str) -> None:
        """Wait for the gradient of an output; of a tensor that several modules hand on, one hook tells all."""
        key = id(tensor), version_of(tensor)
        found = self._watched.get(key)
        if found is not None and found[0]() is tensor:
            found[1].append(event)
            return
        if len(self._watched) >= WATCHED:
            self._log.remark(f"gradients of outputs are tracked only for the first {WATCHED:,} outputs")
            return
        events = [event]
        # of a parameter without a weak reference, which torch.utils.swap_tensors would refuse
        held: Callable[[], Tensor | None] = partial(_itself, tensor) if id(tensor) in self._tensor_ids.owned else ref(tensor)
        self._watched[key] = held, events
        self._hooks.add(tensor, partial(self._arrived, events, name), held)

    @guarded
    def _arrived(self, events: list[int], name: str, gradient: Tensor) -> None:
        self.seen = True
        if self._log.failed:
            return
        with self._log.aside() as now:
            for index in reversed(events):  # outer modules first, as they began
                source = self._log.calls[index]
                call = self._log.begin("gradient", source.path, source.name, now)
                call.call, call.inputs = source.call, self._tensor_ids.values([(name, gradient, None)])
                self._log.end(call, now)

    @guarded
    def _reached(self, one: Owned, gradient: Tensor) -> None:
        """The gradient of a parameter is about to be added to its ``.grad``."""
        self.seen = True
        if self._log.failed or not self._log.here():
            return
        with self._log.aside() as now:
            call = self._log.begin("gradient", self._index.paths.get(id(one.owner)), one.name, now)
            call.category, call.inputs = "parameter", self._tensor_ids.values([(f"{one.name}.grad", gradient, None)])
            if one.tensor.grad is not None:
                call.mark("is added")
            self._log.end(call, now)
            self._backward.meets(one, call)

    def close(self) -> None:
        """Take every hook off."""
        self._hooks.close()
        self._watched = {}


def _itself(tensor: Tensor) -> Tensor:
    return tensor
