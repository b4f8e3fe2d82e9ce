"""Operations: the functions of torch that a model calls between its modules, and what they do to the graph."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from modlab.compat import is_transformed
from modlab.running.guarded import guarded
from modlab.running.values import Leaf, arguments, leaves
from modlab.tracing import callers, functions
from modlab.tracing.backward import Backward
from modlab.tracing.calls import Call
from modlab.tracing.event_log import EventLog, OffTheClock
from modlab.tracing.folded_calls import FoldedCalls
from modlab.tracing.functions import Functions
from modlab.tracing.graph import is_attached, leaves_of
from modlab.tracing.parameter_uses import ParameterUses
from modlab.tracing.tensor_hook_wrappers import TensorHookWrappers, is_registering
from modlab.tracing.tensor_ids import TensorIds, versions_of
from modlab.tracing.trace_index import TraceIndex
from modlab.tracing.wrapper_code import WrapperCode
from modlab.tracing.wrapper_systems import TENSOR_PARALLEL

LEAVING = 64  # events at which something left the graph, of which it is found out what that was computed from
CUT = "leaves the graph"
OFF = ("no_grad", "inference_mode")
_INNER = ("backward", "step", "function")


_Begun = tuple[Call, list[Leaf], list[Tensor]]
"""A function that runs, its arguments, and the tensors among them."""


class Leaving(NamedTuple):
    """Something left the graph: in which event, what it had been computed from, and how."""

    event: int
    sources: frozenset[int]
    how: str  # "detached", "no_grad", "inference_mode", "number" (a plain one), "whole" (numbers that carry no gradient)


class Operations:
    """Records functions that have to do with the model's tensors.

    Attributes:
        left: where something left the graph.
        exported: events in which numbers without a graph left torch, after something had left the graph.
        direct: by identity of a module whose ``forward`` was called past it, what shows it.
    """

    def __init__(
        self,
        log: EventLog,
        index: TraceIndex,
        tensor_ids: TensorIds,
        uses: ParameterUses,
        backward: Backward,
        folded: FoldedCalls | None,
        hooks: TensorHookWrappers,
        machinery: WrapperCode,
    ) -> None:
        self._hooks, self._machinery = hooks, machinery
        self.ends = self._log = log
        self._index, self._tensor_ids, self._uses = index, tensor_ids, uses
        self._backward, self._folded = backward, folded
        self.mode = Functions(self.run)
        self._fused = False
        self.left: list[Leaving] = []
        self.exported: list[int] = []
        self.direct: dict[int, callers.Direct] = {}

    def run(self, func: functions.Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function, and record it."""
        begun = self._called(func, args, kwargs)
        if begun is None:
            output = func(*args, **kwargs)
            if is_registering(func):
                self._registered(func, args, output)
            return output
        try:
            output = func(*args, **kwargs)
        except BaseException as error:
            self._raised(begun[0], error)
            raise
        self._returned(begun, args, kwargs, output)
        return output

    @guarded
    def _called(self, func: functions.Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Begun | None:
        if self._ignored():
            return None
        begun = None
        with OffTheClock(self._log) as now:
            begun = self._begin(func, args, kwargs, now)
        if self._fused:
            self._fused = False
            self.mode.silence(self._log.top)
            self._log.remark("a fused module was called through .forward: functions are not seen until the module around it ends")
        return begun

    @guarded
    def _registered(self, func: functions.Function, args: tuple[Any, ...], output: Any) -> None:
        if not self._ignored():
            with self._log.aside():
                self._hooks.registered(func, args[0] if args else None, output)

    @guarded
    def _raised(self, call: Call, error: BaseException) -> None:
        self._log.end(call, self._log.now(), error)
        self._uses.give_up(call.index, call.index)
        if call.kind == "backward":
            self._backward.fails(call)

    @guarded
    def _returned(self, begun: _Begun, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        call, given, tensors = begun
        with OffTheClock(self._log) as now:
            self._log.end(call, now)
            if call.kind == "backward":
                self._backward.ends(call, args, kwargs, output)
            else:
                self._finish(call, given, tensors, leaves(output))

    def _ignored(self) -> bool:
        log = self._log
        if log.failed or (self._folded is not None and self._folded.skipping):
            return True
        return bool(log.stack) and (log.stack[-1].quiet or log.stack[-1].kind in _INNER)

    def _begin(self, func: functions.Function, args: tuple[Any, ...], kwargs: dict[str, Any], now: float) -> _Begun | None:
        name, top = functions.name_of(func), self._log.top
        caller = callers.look(0 if top is None else top.module)
        if caller.fused:  # called past its module, which would have made room for it
            self._fused = True
            if caller.direct is not None and id(caller.direct) in self._index.paths:
                self.direct.setdefault(id(caller.direct), callers.Direct(0 if top is None else top.index, caller.called))
            return None
        if caller.system and caller.system != TENSOR_PARALLEL:
            self._machinery.meets(caller.system, now)
        if not name or caller.by_torch or caller.in_function or caller.system:
            return None
        given = arguments((), args, kwargs)
        tensors = _tensors(given)
        if name in functions.TAKEN_OUT and not any(tensor.requires_grad or self._is_loose(tensor) for tensor in tensors):
            return None
        made = self.left and kwargs.get("requires_grad") is True  # perhaps a loss, of a number that left the graph
        if top is None and not made and not any(tensor.requires_grad or self._tensor_ids.knows(tensor) for tensor in tensors):
            return None  # outside of the model, and with nothing of it
        backward = name in functions.BACKWARD
        call = self._log.begin("backward" if backward else "function", None if top is None or backward else top.path, name, now)
        call.inputs, call.where = self._tensor_ids.values(given), caller.where
        self._uses.by_function(call, args, kwargs)
        if caller.direct is not None and id(caller.direct) in self._index.paths:
            self.direct.setdefault(id(caller.direct), callers.Direct(call.index, caller.called))
            call.path = self._index.paths[id(caller.direct)]
            call.mark("past its module")
        if backward:
            self._backward.begins(call)
        if name in functions.CUT_IN_PLACE:
            self._leave(call, [tensor for tensor in tensors if tensor.requires_grad], "detached")
        return call, given, tensors

    def _finish(self, call: Call, before: list[Leaf], tensors: list[Tensor], after: list[Leaf]) -> None:
        changed = versions_of(before) != call.versions
        made = _tensors(after)
        if not made and not changed and call.name not in functions.TAKEN_OUT:
            self._log.drop(call)
            return
        call.outputs = self._tensor_ids.values(after, call.index, raw=call.name in functions.RAW)
        call.bytes = self._tensor_ids.new_bytes(after, call.outputs, call.index)
        if changed:
            call.mark("in place")
        self._note_leaving(call, tensors, made)

    def _note_leaving(self, call: Call, before: list[Tensor], after: list[Tensor]) -> None:
        """Say where something leaves the graph, and remember what it had been computed from."""
        attached = [tensor for tensor in before if is_attached(tensor)]
        if not attached and call.name in functions.TAKEN_OUT and len(self.exported) < LEAVING:
            self.exported.append(call.index)
        if not attached or call.name.endswith(functions.UNRELATED):
            return
        if any(map(is_attached, after)):
            if any(map(_is_whole, after)) and not any(map(_is_whole, before)):  # the indices beside the values
                self._leave(call, attached, "whole")
            return
        if any(is_transformed(tensor) for tensor in (*attached, *after)):
            self._log.remark("inside torch.vmap and torch.func, shapes are those of one sample, and what leaves the graph is not seen")
            return
        if not call.grad:
            above = self._log.top
            if self._log.grad if above is None else above.grad:  # else all of it is under no_grad, and that is said there
                self._leave(call, attached, call.off)
        elif not after:
            self._leave(call, attached, "number")
        elif not all(map(_is_whole, after)):
            self._leave(call, attached, "detached")
        else:
            self._leave(call, attached, "whole")

    def _is_loose(self, tensor: Tensor) -> bool:
        """Whether its numbers may have left the graph before."""
        return bool(self.left) and tensor.is_floating_point() and self._tensor_ids.knows(tensor)

    def _leave(self, call: Call, attached: list[Tensor], how: str) -> None:
        if how != "whole":  # whole numbers and truths never had a gradient: nothing is wrong with them
            call.mark(CUT, mode=how if how in OFF else "")
        if len(self.left) < LEAVING:
            sources = leaves_of(attached)
            if sources is not None:
                self.left.append(Leaving(call.index, sources, how))


def _is_whole(tensor: Tensor) -> bool:
    """Whether it holds whole numbers or truths, which carry no gradient."""
    return not (tensor.is_floating_point() or tensor.is_complex())


def _tensors(given: list[Leaf]) -> list[Tensor]:
    return [thing for _, thing, _ in given if issubclass(type(thing), Tensor)]
