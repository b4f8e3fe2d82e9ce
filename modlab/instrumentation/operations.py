"""The functions of torch that a model calls between its modules, and what they do to the graph."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from modlab.instrumentation import callers, functions
from modlab.instrumentation.backward import Backward
from modlab.instrumentation.calls import Call
from modlab.instrumentation.folds import Folds
from modlab.instrumentation.graph import leaves_of
from modlab.instrumentation.roster import Roster
from modlab.instrumentation.sightings import Sightings, versions_of
from modlab.instrumentation.tape import Tape
from modlab.instrumentation.values import Leaf, arguments, leaves

LEAVING = 64  # events at which something left the graph, of which it is found out what that was computed from
_INNER = ("backward", "step", "function")


class Operations:
    """Records functions that have to do with the model's tensors.

    Attributes:
        used: by identity of a parameter, the first event that took it.
        left: events at which something left the graph, with the identities of the leaves it had been computed from.
        direct: by identity of a module whose ``forward`` was called past it, the event that shows it.
    """

    def __init__(self, tape: Tape, roster: Roster, sightings: Sightings, backward: Backward, folds: Folds | None) -> None:
        self._tape, self._roster, self._sightings, self._backward, self._folds = tape, roster, sightings, backward, folds
        self.used: dict[int, int] = {}
        self.left: list[tuple[int, frozenset[int]]] = []
        self.direct: dict[int, int] = {}

    def run(self, func: functions.Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function, and record it."""
        begun = None
        if not self._ignored():
            with self._tape.aside() as now:
                begun = self._begin(func, args, kwargs, now)
        if begun is None:
            return func(*args, **kwargs)
        call, given = begun
        try:
            output = func(*args, **kwargs)
        except BaseException as error:
            self._tape.end(call, self._tape.now(), error)
            raise
        with self._tape.aside() as now:
            self._tape.end(call, now)
            if call.kind == "backward":
                self._backward.ends(call, args, kwargs)
            else:
                self._finish(call, given, list(leaves(output)))
        return output

    def _ignored(self) -> bool:
        top = self._tape.top
        if self._tape.failed or (self._folds is not None and self._folds.skipping):
            return True
        return top is not None and (top.quiet or top.kind in _INNER)

    def _begin(self, func: functions.Function, args: tuple[Any, ...], kwargs: dict[str, Any], now: float) -> tuple[Call, list[Leaf]] | None:
        name = functions.name_of(func)
        if not name or callers.by_torch_itself():
            return None
        given = list(arguments((), args, kwargs))
        tensors = _tensors(given)
        top = self._tape.top
        if name in functions.TAKEN_OUT and not any(tensor.requires_grad for tensor in tensors):
            return None
        if top is None and not any(tensor.requires_grad or self._sightings.knows(tensor) for tensor in tensors):
            return None  # outside of the model, and with nothing of it
        backward = name in functions.BACKWARD
        call = self._tape.begin("backward" if backward else "function", None if top is None or backward else top.path, name, now)
        call.inputs, call.versions, call.where = self._sightings.values(given), versions_of(given), callers.line()
        for tensor in tensors:
            if id(tensor) in self._roster.names:
                self.used.setdefault(id(tensor), call.index)
        self._note_direct(call, 0 if top is None else top.module)
        if backward:
            self._backward.begins()
        return call, given

    def _note_direct(self, call: Call, current: int) -> None:
        module = callers.direct_call(current)
        if module is not None and id(module) in self._roster.paths:
            self.direct.setdefault(id(module), call.index)
            call.path = self._roster.paths[id(module)]
            call.marks.append("in a .forward that was called past its module: no hook ran")

    def _finish(self, call: Call, before: list[Leaf], after: list[Leaf]) -> None:
        changed = versions_of(before) != call.versions
        made = _tensors(after)
        if not made and not changed and call.name not in functions.TAKEN_OUT:
            self._tape.drop(call)
            return
        call.outputs = self._sightings.values(after)
        call.bytes = self._sightings.new_bytes((thing for _, thing, _ in after), call.inputs, call.outputs)
        if changed:
            call.marks.append("in place")
        self._note_leaving(call, _tensors(before), made)

    def _note_leaving(self, call: Call, before: list[Tensor], after: list[Tensor]) -> None:
        """Say where something leaves the graph, and remember what it had been computed from."""
        attached = [tensor for tensor in before if tensor.requires_grad]
        if not attached or call.name.endswith(functions.UNRELATED) or any(tensor.requires_grad for tensor in after):
            return
        if after and not any(tensor.is_floating_point() or tensor.is_complex() for tensor in after):
            return  # whole numbers and truths never had a gradient
        call.marks.append("leaves the graph" if call.grad else "leaves the graph, under no_grad")
        if len(self.left) < LEAVING:
            self.left.append((call.index, leaves_of(attached)))


def _tensors(given: list[Leaf]) -> list[Tensor]:
    return [thing for _, thing, _ in given if issubclass(type(thing), Tensor)]
