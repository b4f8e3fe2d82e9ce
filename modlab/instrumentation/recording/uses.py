"""Which parameters were taken by what: the ground on which it is said why one has no gradient."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.nn import Module

from modlab.inspection import stores
from modlab.instrumentation.recording.calls import Call
from modlab.instrumentation.recording.roster import Roster
from modlab.instrumentation.values import Leaf

_FAR = 10_000  # members of a list of tensors that are looked through


class Uses:
    """What took a parameter or a buffer.

    Attributes:
        taken: by identity, the first event that took it (one with autograd on, if there is one).
        frozen: by identity, the first event that took it while its requires_grad was False.
    """

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._grad: dict[int, bool] = {}
        self.taken: dict[int, int] = {}
        self.frozen: dict[int, int] = {}

    def by_module(self, call: Call, module: Module, given: Iterable[Leaf]) -> None:
        """A module is called with these leaves; one of torch's layers takes its own parameters as well."""
        for _, thing, _ in given:
            self._note(thing, call)
        if call.quiet:
            for tensor in (stores.contents(module).get("_parameters") or {}).values():
                self._note(tensor, call)

    def by_function(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A function is called with these arguments."""
        for argument in (*args, *kwargs.values()):
            self._note(argument, call)
            if type(argument) in (list, tuple):
                for member in argument[:_FAR]:
                    self._note(member, call)

    def _note(self, thing: Any, call: Call) -> None:
        key = id(thing)
        if key not in self._roster.names or not issubclass(type(thing), Tensor):
            return
        if key not in self.taken or (call.grad and not self._grad[key]):
            self.taken[key], self._grad[key] = call.index, call.grad
        if not thing.requires_grad:
            self.frozen.setdefault(key, call.index)
