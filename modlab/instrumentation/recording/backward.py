"""Backward passes: which parameters got a gradient, and which ones it could have reached."""

from __future__ import annotations

from typing import Any
from weakref import ref

from torch import Tensor

from modlab.instrumentation.recording.calls import Call, Sight
from modlab.instrumentation.recording.graph import leaves_of
from modlab.instrumentation.recording.roster import Roster
from modlab.instrumentation.recording.sightings import Sightings, version_of
from modlab.instrumentation.values import leaves

_State = dict[int, tuple[ref[Tensor], int]]


class Backward:
    """Compares the gradients of the parameters before and after.

    Attributes:
        passes: the number of backward passes.
        arrived: by identity of a parameter, the last event that gave it a gradient; -1 where that was not seen.
        reached: the identities of the leaves that the graph of some loss led to; `known` if all of it could be walked.
        chosen: whether a pass asked for the gradients of some parameters alone.
        returned: by identity of a parameter, the event that gave its gradient back without keeping it.
        raised: the event of a pass that raised, or -1.
        values: by path of a parameter, its gradient as it was when it arrived.
        stale: identities of parameters that had a gradient when the trace began.
    """

    def __init__(self, roster: Roster, sightings: Sightings) -> None:
        self._roster, self._sightings = roster, sightings
        self._before = self._states()
        self.stale = frozenset(self._before)
        self.passes, self.raised, self.known, self.chosen = 0, -1, True, False
        self.arrived: dict[int, int] = {}
        self.reached: set[int] = set()
        self.returned: dict[int, int] = {}
        self.values: dict[str, Sight] = {}

    def begins(self) -> None:
        """Note what is there."""
        self._before = self._states()

    def ends(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """Note what is new; `output` is what ``torch.autograd.grad`` gave."""
        self.passes += 1
        fresh = self._fresh(call.index)
        call.outputs = self._sightings.values((f"{path}.grad", gradient, "") for path, gradient in fresh)
        self.values.update((path, seen.sight) for (path, _), seen in zip(fresh, call.outputs, strict=True))
        if call.name.endswith(".grad"):
            asked = args[1] if len(args) > 1 else kwargs.get("inputs")
            given = zip(leaves([asked]), leaves([output]), strict=False)
            self.returned.update({id(thing): call.index for (_, thing, _), (_, gradient, _) in given if gradient is not None})
            call.marks.append("gives gradients back; changes no .grad")
            return
        if kwargs.get("inputs") is not None:
            self.chosen = True
            call.marks.append("for some tensors alone (inputs=)")
        if any(id(one.tensor) not in self.arrived for one in self._roster.parameters):
            first = args[0] if args else kwargs.get("tensors")
            reached = leaves_of([root for _, root, _ in leaves(first) if issubclass(type(root), Tensor)])
            self.known = self.known and reached is not None
            self.reached |= reached or frozenset()

    def settle(self, gradients: bool) -> None:
        """What arrived without having been seen: a backward pass inside something compiled, or by a way of its own.

        Args:
            gradients: whether a gradient of some output was seen, which there can be in a backward pass alone.
        """
        if self._fresh(-1) or gradients:
            self.passes = max(self.passes, 1)

    def _fresh(self, event: int) -> list[tuple[str, Tensor]]:
        before, self._before = self._before, self._states()
        found = []
        for one in self._roster.parameters:
            key = id(one.tensor)
            now, then = self._before.get(key), before.get(key)
            gradient = None if now is None else now[0]()
            if now is not None and gradient is not None and (then is None or then[0]() is not gradient or then[1] != now[1]):
                self.arrived[key] = event
                found.append((one.path, gradient))
        return found

    def _states(self) -> _State:
        """Of each parameter that has a gradient, which tensor that is and how often it was changed."""
        found = {}
        for one in self._roster.parameters:
            gradient = one.tensor.grad if one.tensor.is_leaf else None
            if gradient is not None:
                found[id(one.tensor)] = ref(gradient), version_of(gradient)
        return found
