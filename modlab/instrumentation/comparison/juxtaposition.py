"""Two passes side by side: how far each module's inputs and outputs are apart, and where that starts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from modlab.instrumentation.comparison.divergence import Distances, Gap, summed
from modlab.instrumentation.comparison.passes import Call, Key, Pass

GROWTH = 10
"""How many times as far apart as its inputs a module's outputs must be, to be where a difference starts, where rounding is
expected: what goes in is then never quite the same."""

Noise = Callable[[Key], float]


class Juxtaposition:
    """The calls that two passes have in common.

    Args:
        left: kept its inputs and outputs, as `right` did.
        right: the order of its calls counts.
        pairs: path on the right → path on the left.
        rounding: whether results are expected to be the same to rounding only, else to the bit.
        noise: relative distance by which two passes of the same kind differ, of a call on the right.
    """

    def __init__(
        self, left: Pass, right: Pass, pairs: Mapping[str, str], *, rounding: bool = False, noise: Noise = lambda key: 0.0
    ) -> None:
        self.left, self.right = left, right
        self.rounding = 0.0  # relative distance that the coarsest dtype explains
        self.inputs: dict[str, list[Gap]] = {}
        self.outputs: dict[str, list[Gap]] = {}
        self.starting: set[str] = set()  # paths on the right
        self.first: str | None = None
        self.drift: str | None = None  # the path of the first call whose output differs at all
        self.exact = True
        self._pairs, self._expects_rounding, self._noise = pairs, rounding, noise
        self._distances = Distances()
        self._juxtapose()

    def _juxtapose(self) -> None:
        """In the order in which calls end: in a call a difference starts, if it starts in no call inside it."""
        started: list[bool] = []
        apart: list[float] = []
        for call in self.right.ended:
            gaps = self._gaps(call)
            inside = slice(call.entered, None)
            here = gaps is not None and not any(started[inside]) and self._starts(call, *gaps, max(apart[inside], default=0.0))
            started.append(here)
            apart.append(0.0 if gaps is None or gaps[1].equal is not False else gaps[1].relative or 0.0)
            if here:
                self.starting.add(call.path)
                self.first = call.path if self.first is None else self.first
            if apart[-1] and self.drift is None:
                self.drift = call.path

    def _gaps(self, call: Call) -> tuple[Gap, Gap] | None:
        """Of inputs and outputs, between a call and the same one of the other pass; None if there is none."""
        other = self._pairs.get(call.path)
        earlier = None if other is None else self.left.calls.get((other, call.number))
        if earlier is None or not earlier.finished:
            return None
        inputs, outputs = (self._distances.between(*sides) for sides in ((earlier.inputs, call.inputs), (earlier.outputs, call.outputs)))
        self.inputs.setdefault(call.path, []).append(inputs)
        self.outputs.setdefault(call.path, []).append(outputs)
        if not outputs.coarse:
            self.rounding = max(self.rounding, outputs.rounding)
        self.exact = self.exact and (outputs.exact or outputs.equal is False)
        # Both draw, but from other places of the stream, because somebody before them drew more: that is no difference of theirs.
        return None if earlier.drew and call.drew and earlier.state != call.state else (inputs, outputs)

    def _starts(self, call: Call, inputs: Gap, outputs: Gap, inside: float) -> bool:
        """Whether outputs are apart, and inputs (and what was called inside, where rounding is expected) are not."""
        if inputs.equal is None and self.first is not None:
            return False  # what went in cannot be compared: the difference may have come with it
        noise = self._noise(call.key)
        if not self._expects_rounding:
            return inputs.equal is not False and outputs.beyond(noise)
        before = inputs.relative if inputs.equal is False else 0.0
        if before is None or not math.isfinite(before) or not math.isfinite(inside):
            return False
        return outputs.beyond(max(noise, outputs.rounding, GROWTH * max(before, inside)))

    def of_inputs(self, path: str) -> Gap | None:
        """Over all calls of a module; None if no call is on both sides."""
        return summed(self.inputs[path]) if path in self.inputs else None

    def of_outputs(self, path: str) -> Gap | None:
        """Over all calls of a module; None if no call is on both sides."""
        return summed(self.outputs[path]) if path in self.outputs else None
