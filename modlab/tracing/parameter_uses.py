"""Which parameters were taken by what: the ground on which it is said why one has no gradient."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.nn import Module, Parameter

from modlab.inspection import stores
from modlab.running.values import Leaf
from modlab.tracing.calls import Call
from modlab.tracing.trace_index import TraceIndex

_FAR = 10_000  # members of a list of tensors that are looked through


class ParameterUses:
    """What took a parameter or a buffer.

    Attributes:
        taken: by identity, the first event that took it (one with autograd on, if there is one).
        frozen: by identity, the first event that took it while its requires_grad was False.
        replaced: by identity of a module and name of a parameter, the first call in which a tensor that is none stood in its place.
        lost: by identity, of what was taken in nothing but events that raised, the event that took it and the one that raised.
    """

    def __init__(self, index: TraceIndex) -> None:
        self._names, self._index = index.names, index
        self._grad: dict[int, bool] = {}
        self.taken: dict[int, int] = {}
        self.frozen: dict[int, int] = {}
        self.lost: dict[int, tuple[int, int]] = {}
        self.replaced: dict[tuple[int, str], int] = {}
        index.ledgers += [self.taken, self.frozen, self.lost, self._grad]

    def by_module(self, call: Call, module: Module, held: dict[str, Any], given: Iterable[Leaf]) -> None:
        """A module, which holds `held`, is called with these leaves; one of torch's layers takes its own parameters as well."""
        names = self._names
        for _, thing, _ in given:
            if id(thing) in names:
                self._note(thing, call)
        for name, tensor in (held.get("_parameters") or {}).items():
            if id(tensor) in names:
                if call.quiet:
                    self._note(tensor, call)
            elif tensor is not None and not issubclass(type(tensor), Parameter):
                self.replaced.setdefault((id(module), name), call.index)
            elif tensor is not None and call.quiet:
                self._index.renew(module, name, tensor)
                self._note(tensor, call)

    def by_function(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A function is called with these arguments."""
        names = self._names
        for argument in (*args, *kwargs.values()) if kwargs else args:
            if id(argument) in names or (type(argument) is Parameter and self._is_new(argument, call)):
                self._note(argument, call)
            elif type(argument) in (list, tuple):
                for member in argument[:_FAR]:
                    if id(member) in names:
                        self._note(member, call)

    def give_up(self, begun: int, raised: int) -> None:
        """An event has raised: what was taken since it had begun was so in vain. It may be taken once more, if that is caught."""
        for key, use in list(self.taken.items()):
            if use >= begun:
                self.lost[key] = use, raised
                del self.taken[key]

    def first(self, key: int) -> int:
        """The event that took it, in vain or not; or -1."""
        return self.taken.get(key, self.lost.get(key, (-1, -1))[0])

    def _is_new(self, parameter: Parameter, call: Call) -> bool:
        """Whether an unknown parameter is one of the module that is running."""
        module = None if call.path is None else self._index.modules.get(call.path)
        held = {} if module is None else stores.contents(module).get("_parameters") or {}
        name = next((name for name, tensor in held.items() if tensor is parameter), None)
        if module is not None and name is not None:
            self._index.renew(module, name, parameter)
        return id(parameter) in self._names

    def _note(self, thing: Any, call: Call) -> None:
        key = id(thing)
        if not issubclass(type(thing), Tensor):
            return
        if key not in self.taken or (call.grad and not self._grad[key]):
            self.taken[key], self._grad[key] = call.index, call.grad
            self.lost.pop(key, None)
        if not thing.requires_grad:
            self.frozen.setdefault(key, call.index)
