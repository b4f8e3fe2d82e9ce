"""Backward passes: which parameters got a gradient, and which ones it could have reached."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from modlab.instrumentation.calls import Call
from modlab.instrumentation.graph import leaves_of
from modlab.instrumentation.roster import Roster
from modlab.instrumentation.sightings import Sightings, version_of
from modlab.instrumentation.tape import Tape
from modlab.instrumentation.values import leaves

_State = tuple[int, int]


class Backward:
    """Compares the gradients of the parameters before and after.

    Attributes:
        passes: the number of backward passes.
        arrived: by identity of a parameter, the last event that gave it a gradient.
        reached: the identities of the leaves that some pass could reach.
        returned: by identity of a parameter, the event that gave its gradient back without keeping it.
    """

    def __init__(self, tape: Tape, roster: Roster, sightings: Sightings) -> None:
        self._tape, self._roster, self._sightings = tape, roster, sightings
        self._before = self._states()
        self.passes = 0
        self.arrived: dict[int, int] = {}
        self.reached: set[int] = set()
        self.returned: dict[int, int] = {}

    def begins(self) -> None:
        """Note what is there."""
        self._before = self._states()

    def ends(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note what is new."""
        self.passes += 1
        fresh = self._fresh(call.index)
        call.outputs = self._sightings.values((f"{path}.grad", gradient, "") for path, gradient in fresh)
        roots = [thing for _, thing, _ in leaves(args[0] if args else kwargs.get("tensors", kwargs.get("outputs")))]
        if call.name.endswith(".grad"):
            asked = leaves(args[1] if len(args) > 1 else kwargs.get("inputs"))
            self.returned.update({id(thing): call.index for _, thing, _ in asked if isinstance(thing, Tensor)})
            call.marks.append("gives gradients back; changes no .grad")
        if any(id(one.tensor) not in self.arrived for one in self._roster.parameters):
            self.reached |= leaves_of([root for root in roots if issubclass(type(root), Tensor)])

    def settle(self) -> None:
        """What arrived without having been seen: a backward pass inside something compiled, or by a way of its own."""
        if self._fresh(-1):
            self.passes += 1

    def _fresh(self, event: int) -> list[tuple[str, Tensor]]:
        now = self._states()
        fresh = [(one.path, one.tensor) for one in self._roster.parameters if now.get(id(one.tensor)) != self._before.get(id(one.tensor))]
        self._before = now
        found = []
        for path, parameter in fresh:
            if parameter.grad is not None:
                self.arrived[id(parameter)] = event
                found.append((path, parameter.grad))
        return found

    def _states(self) -> dict[int, _State]:
        """Of each parameter that has a gradient, which tensor that is and how often it was changed."""
        found = {}
        for one in self._roster.parameters:
            gradient = one.tensor.grad if one.tensor.is_leaf else None
            if gradient is not None:
                found[id(one.tensor)] = id(gradient), version_of(gradient)
        return found
