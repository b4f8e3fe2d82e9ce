"""The steps of optimizers: which parameters moved, and by how much."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from modlab.records.trace import EventFact
from modlab.running.guarded import guarded
from modlab.running.optimizer_hooks import OptimizerHooks
from modlab.statistics.memory import copied, is_there
from modlab.tracing import callers
from modlab.tracing.calls import Call, Seen
from modlab.tracing.event_log import EventLog
from modlab.tracing.functions import Functions
from modlab.tracing.kept_copies import comparable, distance
from modlab.tracing.tensor_ids import TensorIds, version_of
from modlab.tracing.trace_index import TraceIndex

SMALL = 4096  # elements up to which a parameter is copied, to say how far it moved

_State = dict[int, tuple[int, Tensor | None]]


class OptimizerSteps:
    """Records each step of any optimizer in this thread. Inside, functions are not watched: they are the optimizer's own."""

    def __init__(self, log: EventLog, index: TraceIndex, tensor_ids: TensorIds, functions: Functions) -> None:
        self.ends = self._log = log
        self._index, self._tensor_ids, self._functions = index, tensor_ids, functions
        self._before: dict[int, _State] = {}  # by event: an optimizer may call another one
        self._hooks: OptimizerHooks | None = None

    def open(self) -> None:
        """Begin to see."""
        self._hooks = OptimizerHooks(self._begins, self._ends)
        self._hooks.open()

    def close(self) -> None:
        """Stop."""
        if self._hooks is not None:
            self._hooks.close()
        self._hooks, self._before = None, {}  # no circle is left

    @guarded
    def _begins(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._log.failed or not self._log.here():
            return
        with self._log.aside() as now:
            call = self._log.begin("step", None, type(optimizer).__name__, now)
            call.module, call.where, call.frame = id(optimizer), callers.look(0).where, callers.caller_of_hook()
            self._before[call.index] = {id(one.tensor): (version_of(one.tensor), _copy(one.tensor)) for one in self._index.parameters}
            call.popped = self._functions.pause()

    @guarded
    def _ends(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        call = self._log.innermost("step", id(optimizer)) if self._log.here() else None
        if call is None or self._log.failed:
            return
        with self._log.aside() as now:
            self._log.end(call, now)
            if call.popped:
                self._functions.resume()
            before = self._before.pop(call.index)
            moved = [
                self._moved(one.path, one.tensor, *before[id(one.tensor)]) for one in self._index.parameters if id(one.tensor) in before
            ]
            written = [value for value in moved if value is not None]
            call.outputs = tuple(seen for seen, _ in written)
            self._mark(call, optimizer, sum(far != 0 for _, far in written))

    def _mark(self, call: Call, optimizer: Any, moved: int) -> None:
        known, mine = self._index.parameters, []
        if known and not moved:
            held = {id(tensor) for group in optimizer.param_groups for tensor in group["params"]}
            mine = [one.tensor for one in known if id(one.tensor) in held]
            if not mine:
                call.mark("holds none")
                return
        call.mark("moves", moved=moved, parameters=len(known), graded=not mine or any(tensor.grad is not None for tensor in mine))

    def _moved(self, path: str, tensor: Tensor, version: int, copy: Tensor | None) -> tuple[Seen, float | None] | None:
        """A parameter that was written, and how far it moved; None where that was not compared."""
        if version_of(tensor) == version:
            return None
        far = distance(copy, tensor) if copy is not None and copy.shape == tensor.shape and is_there(tensor) else None
        (seen,) = self._tensor_ids.values([(path, tensor, None)])
        return seen._replace(
            sight=seen.sight._replace(stats=None, numbers=None, note=EventFact("moved", {} if far is None else {"far": far}))
        ), far


def _copy(tensor: Tensor) -> Tensor | None:
    return copied(tensor) if comparable(tensor, SMALL) and tensor.is_cpu and tensor.is_floating_point() else None
