"""The lineage of a tensor: what it was computed from, as far as the events tell, by the numbers of tensors in and out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from modlab.tracing import functions
from modlab.tracing.calls import Call, Seen
from modlab.tracing.hook_wrappers import FORWARD_PRE

_ARRAY = "ndarray"
_TELLING = 5  # characters from which on a number is more than a 0.0 that stands everywhere


class Lineage:
    """The events that led to some tensors.

    Args:
        calls: all events.
        roots: the tensors.

    Attributes:
        events: indices of the functions, hooks and modules that they came through.
        strange: something of theirs that nothing seen had made, and that has no graph, with the event in which it is met first.
    """

    def __init__(self, calls: Sequence[Call], roots: Iterable[Seen]) -> None:
        filled = {call.parent for call in calls if call.kind in ("module", "function")}
        self._prepared = {call.parent: call for call in calls if call.kind == "hook" and call.stage == FORWARD_PRE and call.outputs}
        makers: dict[int, list[Call]] = {}
        first: dict[int, tuple[Call, Seen]] = {}
        for call in calls:
            for seen in call.inputs:
                first.setdefault(seen.sight.number, (call, seen))
            for number in _made(call, call.index not in filled or call.popped):
                makers.setdefault(number, []).append(call)
        self.events: set[int] = set()
        self.strange: list[tuple[int, Seen]] = []
        self._loose: list[Seen] = []  # numbers and arrays that came out of no tensor
        self._follow([seen.sight.number for seen in roots], makers, first)

    def _follow(self, todo: list[int], makers: dict[int, list[Call]], first: dict[int, tuple[Call, Seen]]) -> None:
        met: set[int] = set()
        while todo:
            number = todo.pop()
            if number in met or not number:
                continue
            met.add(number)
            if number not in makers and number in first:
                call, seen = first[number]
                if call.parent >= 0 and call.kind != "hook" and not seen.requires_grad and not seen.sight.owner and _is_real(seen):
                    self.strange.append((call.index, seen))
            for call in makers.get(number, ()):
                if call.index not in self.events:
                    self.events.add(call.index)
                    self._loose += [seen for seen in call.inputs if seen.version is None]
                    if not call.name.endswith(functions.UNRELATED):
                        given = self._prepared[call.index].outputs if call.index in self._prepared else call.inputs
                        todo += [seen.sight.number for seen in given if seen.version is not None]

    def takes(self, call: Call) -> bool:
        """Whether a plain number or array that came out of an event went into one of these."""
        given = {(seen.sight.kind, seen.sight.text) for seen in self._loose if seen.sight.kind in ("float", "complex", _ARRAY)}
        given = {(kind, text) for kind, text in given if len(text) >= _TELLING}
        return any((seen.sight.kind, seen.sight.text) in given for seen in call.outputs)


def _is_real(seen: Seen) -> bool:
    dtype = seen.sight.dtype
    return isinstance(dtype, torch.dtype) and (dtype.is_floating_point or dtype.is_complex)


def _made(call: Call, whole: bool) -> list[int]:
    """The numbers of what an event computed; of a module only if what is inside of it is not told."""
    if call.kind not in ("function", "hook") and not (call.kind == "module" and whole):
        return []
    made = [seen.sight.number for seen in call.outputs if seen.version is not None]
    if call.kind == "function" and not made:  # x[...] = y
        made = [seen.sight.number for seen in call.inputs[:1]]
    return made
