"""Two passes side by side: how far each module's inputs and outputs are apart, and where that starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from modlab.instrumentation.divergence import Gap, Link, between, starts
from modlab.instrumentation.passes import Call, Key, Pass, summed

Noise = Callable[[Key], float]


class Juxtaposition:
    """The calls that two passes have in common.

    Args:
        left: kept its inputs and outputs, as `right` did.
        right: the order of its calls counts.
        pairs: path on the right → path on the left.
        rounding: whether results are expected to be the same to rounding only.
        noise: relative distance by which two passes of the same kind differ, of a call on the right.
    """

    def __init__(
        self, left: Pass, right: Pass, pairs: Mapping[str, str], *, rounding: bool = False, noise: Noise = lambda key: 0.0
    ) -> None:
        self.left, self.right = left, right
        self.rounding = 0.0  # relative distance that the coarsest dtype explains
        self._left_of = {path: left_path for path, left_path in pairs.items()}
        self.inputs: dict[str, list[Gap]] = {}
        self.outputs: dict[str, list[Gap]] = {}
        self.starting: set[str] = set()  # paths on the right
        self.first: str | None = None
        self.exact = True
        self._juxtapose(rounding, noise)

    def _juxtapose(self, rounding: bool, noise: Noise) -> None:
        links = [self._link(call, noise) for call in self.right.ended]
        for call, start in zip(self.right.ended, starts(links, rounding=rounding), strict=True):
            if start:
                self.starting.add(call.path)
                self.first = call.path if self.first is None else self.first

    def _link(self, call: Call, noise: Noise) -> Link:
        other = self._left_of.get(call.path)
        earlier = None if other is None else self.left.calls.get((other, call.number))
        if earlier is None or not earlier.finished:
            return Link(call.path, Gap(), Gap(), call.entered)
        inputs, outputs = between(earlier.inputs, call.inputs), between(earlier.outputs, call.outputs)
        self.inputs.setdefault(call.path, []).append(inputs)
        self.outputs.setdefault(call.path, []).append(outputs)
        self.rounding = max(self.rounding, outputs.rounding)
        self.exact = self.exact and (outputs.exact or outputs.equal is False)
        # Both draw, but from other places of the stream, because somebody before them drew more: that is no difference of theirs.
        astray = earlier.drew and call.drew and earlier.state != call.state
        return Link(call.path, inputs, Gap() if astray else outputs, call.entered, noise(call.key))

    def of_inputs(self, path: str) -> Gap | None:
        """Over all calls of a module; None if no call is on both sides."""
        return summed(self.inputs[path]) if path in self.inputs else None

    def of_outputs(self, path: str) -> Gap | None:
        """Over all calls of a module; None if no call is on both sides."""
        return summed(self.outputs[path]) if path in self.outputs else None
