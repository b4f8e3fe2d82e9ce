"""Backward passes: which parameters got a gradient, and which ones it could have reached."""

from __future__ import annotations

from typing import Any
from weakref import ref

import torch
from torch import Tensor

from modlab.compat import without_autograd
from modlab.records.trace import EventFact
from modlab.running.values import leaves
from modlab.statistics.memory import is_there
from modlab.tracing.calls import Call, Seen, Sight
from modlab.tracing.graph import leaves_of
from modlab.tracing.tensor_ids import TensorIds, version_of
from modlab.tracing.trace_index import Owned, TraceIndex

_State = dict[int, tuple[ref[Tensor], int]]
_ROOTS = ("[0]", "tensors", "outputs")  # names of the arguments that a pass begins from


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
        kept: the number of passes that change ``.grad``.
        roots: numbers of the tensors that passes began from, by event; those that raised among them.
        added: identities of parameters whose last gradient was added to the one that was there.
        refused: by identity of a parameter, the event that was asked for its gradient and found none.
    """

    def __init__(self, index: TraceIndex, tensor_ids: TensorIds) -> None:
        self._index, self._tensor_ids = index, tensor_ids
        self._before = self._states()
        self.stale = frozenset(self._before)
        self.passes, self.raised, self.known, self.chosen = 0, -1, True, False
        self.arrived: dict[int, int] = {}
        self.reached: set[int] = set()
        self.returned: dict[int, int] = {}
        self.values: dict[str, Sight] = {}
        self.kept = 0
        self.roots: dict[int, tuple[Seen, ...]] = {}
        self.added: set[int] = set()
        self.refused: dict[int, int] = {}
        self._met: dict[int, tuple[Owned, Sight]] = {}  # gradients that were seen on their way, in this pass
        self._ended = self._before  # as the last pass left it; before the first nothing is known of what is in them
        self._full: frozenset[int] = frozenset()
        self._running = False
        index.ledgers += [self.arrived, self.returned, self.refused]

    def begins(self, call: Call) -> None:
        """Note what is there."""
        self._before, self._met, self._running = self._states(), {}, True
        self._full = frozenset(key for key in self._before if self._holds_something(key))
        self.roots[call.index] = tuple([seen for seen in call.inputs if seen.name.startswith(_ROOTS)])

    def _holds_something(self, key: int) -> bool:
        """Whether a gradient that is there is surely none that was set to zero."""
        held, version = self._before[key]
        then, gradient = self._ended.get(key), held()
        if self.passes and then is not None and then[0]() is gradient and then[1] == version:
            return True
        return self._tensor_ids.measured and gradient is not None and _is_nonzero(gradient)

    def meets(self, one: Owned, call: Call) -> None:
        """A gradient was seen on its way to a parameter."""
        self.arrived[id(one.tensor)] = call.index
        self._met[id(one.tensor)] = one, call.inputs[0].sight

    def here(self, one: Owned) -> bool | None:
        """Whether, in the pass that is running, a parameter has got its gradient; None where that cannot be known."""
        if not self._running:
            return None
        gradient, then = one.tensor.grad, self._before.get(id(one.tensor))
        if gradient is None:
            return False
        return then is None or then[0]() is not gradient or then[1] != version_of(gradient)

    def ends(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """Note what is new; `output` is what ``torch.autograd.grad`` gave."""
        self.passes, self._running = self.passes + 1, False
        before = self._before
        fresh = self._fresh(call.index)
        call.outputs = self._tensor_ids.values([(f"{one.path}.grad", gradient, None) for one, gradient in fresh], call.index)
        self.values.update((one.path, seen.sight) for (one, _), seen in zip(fresh, call.outputs, strict=True))
        self._note_sums(call, fresh, before, bool(kwargs.get("create_graph")))
        self._note_taken(call, {id(one.tensor) for one, _ in fresh})
        self._ended = self._before
        if call.name.endswith(".grad"):
            asked = args[1] if len(args) > 1 else kwargs.get("inputs")
            given = list(zip(leaves([asked]), leaves([output]), strict=False))
            self.returned.update({id(thing): call.index for (_, thing, _), (_, gradient, _) in given if gradient is not None})
            self.refused.update({id(thing): call.index for (_, thing, _), (_, gradient, _) in given if gradient is None})
            names = {id(one.tensor): f"{one.path}.grad" for one in self._index.parameters}
            back = [(names.get(id(thing), "gradient"), gradient, None) for (_, thing, _), (_, gradient, _) in given if gradient is not None]
            call.outputs = self._tensor_ids.values(back, call.index)
            call.mark("gives gradients back")
            return
        self.kept += 1
        if kwargs.get("inputs") is not None:
            self.chosen = True
            call.mark("inputs")
        if any(id(one.tensor) not in self.arrived for one in self._index.parameters):
            first = args[0] if args else kwargs.get("tensors")
            reached = leaves_of([root for _, root, _ in leaves(first) if issubclass(type(root), Tensor)])
            self.known = self.known and reached is not None
            self.reached |= reached or frozenset()

    def _note_sums(self, call: Call, fresh: list[tuple[Owned, Tensor]], before: _State, new: bool) -> None:
        """Which gradients were added to those that were there; `new`: the sum is a new tensor (create_graph=True)."""
        sums = 0
        for one, gradient in fresh:
            key, then = id(one.tensor), before.get(id(one.tensor))
            self.added.discard(key)
            if then is not None and key in self._full and (new or then[0]() is gradient):
                self.added.add(key)
                sums += 1
        if sums:
            call.mark("adds", gradients=sums)

    def _note_taken(self, call: Call, fresh: set[int]) -> None:
        """Which gradients came and were gone when the pass ended."""
        taken = [(one, sight) for key, (one, sight) in self._met.items() if key not in fresh and one.tensor.grad is None]
        for one, sight in taken:
            self.values[one.path] = sight
            call.outputs += (Seen(f"{one.path}.grad", sight._replace(note=EventFact("set to None"))),)
        self._met = {}

    def fails(self, call: Call) -> None:
        """A pass raised."""
        self.raised, self._running, self._met = call.index, False, {}

    def settle(self, gradients: bool) -> None:
        """What arrived without having been seen: a backward pass inside something compiled, or by a way of its own.

        Args:
            gradients: whether a gradient of some output was seen, which there can be in a backward pass alone.
        """
        if self._fresh(-1) or gradients:
            self.passes = max(self.passes, 1)

    def _fresh(self, event: int) -> list[tuple[Owned, Tensor]]:
        before, self._before = self._before, self._states()
        found = []
        for one in self._index.parameters:
            key = id(one.tensor)
            now, then = self._before.get(key), before.get(key)
            gradient = None if now is None else now[0]()
            if now is not None and gradient is not None and (then is None or then[0]() is not gradient or then[1] != now[1]):
                if event >= 0 or self.arrived.get(key, -1) < 0:  # after the last pass it may have been set to zero, or clipped
                    self.arrived[key] = event
                found.append((one, gradient))
        return found

    def _states(self) -> _State:
        """Of each parameter that has a gradient, which tensor that is and how often it was changed."""
        found = {}
        for one in self._index.parameters:
            gradient = one.tensor.grad if one.tensor.is_leaf else None
            if gradient is not None:
                found[id(one.tensor)] = ref(gradient), version_of(gradient)
        return found


def _is_nonzero(gradient: Tensor) -> bool:
    """Whether a plain gradient has a number in it that is not zero."""
    if type(gradient) is not Tensor or gradient.layout is not torch.strided or gradient.is_nested or not is_there(gradient):
        return False
    return without_autograd(lambda: bool(gradient.detach().any()))
