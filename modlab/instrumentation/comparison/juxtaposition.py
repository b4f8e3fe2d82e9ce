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
        started: list[int | None] = []  # where: calls that had ended by then
        known: list[tuple[Gap, Gap] | None] = []
        earliest: int | None = None
        for call in self.right.ended:
            gaps = self._gaps(call)
            known.append(gaps)
            inside = [place for place in started[call.entered :] if place is not None]
            place = None if gaps is None else self._place(call, gaps, known)
            if place is not None and inside and place >= min(inside):
                place = None
            started.append(place)
            if place is not None:
                self.starting.add(call.path)
                if earliest is None or place < earliest:
                    earliest, self.first = place, call.path
            if _apart(gaps and gaps[1]) and self.drift is None:
                self.drift = call.path

    def _place(self, call: Call, gaps: tuple[Gap, Gap], known: list[tuple[Gap, Gap] | None]) -> int | None:
        """Where a difference starts in a call, in calls that had ended by then; None if it does not start in its own code.

        Where rounding is expected, what one call inside passes on to the next is looked at: what is suddenly farther apart than
        all before it came about in between, in the code of the call itself.
        """
        here = len(known) - 1
        if not self._expects_rounding:
            return here if self._starts(call, *gaps) else None
        inputs, outputs = gaps
        if inputs.equal is None and self.first is not None:
            return None  # what went in cannot be compared: the difference may have come with it
        before = _apart(inputs)
        noise = self._noise(call.key)
        for k in self._direct(here):
            inner = known[k]
            if inner is None or before is None or not math.isfinite(before):
                return None
            taken = inner[0]
            if outputs.equal is False and taken.beyond(max(noise, self._noise(self.right.ended[k].key), taken.rounding, GROWTH * before)):
                return self.right.ended[k].entered
            before = max(before, _apart(taken), _apart(inner[1]))
        if before is None or not math.isfinite(before):
            return None
        return here if outputs.beyond(max(noise, outputs.rounding, GROWTH * before)) else None

    def _direct(self, place: int) -> list[int]:
        """The calls that a call made itself, in order, by their places among those that ended."""
        found = []
        k = place - 1
        while k >= self.right.ended[place].entered:
            found.append(k)
            k = self.right.ended[k].entered - 1
        return found[::-1]

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

    def _starts(self, call: Call, inputs: Gap, outputs: Gap) -> bool:
        """Whether outputs are apart, and inputs are not."""
        if inputs.equal is None and self.first is not None:
            return False  # as above
        return inputs.equal is not False and outputs.beyond(self._noise(call.key))

    def of_inputs(self, path: str) -> Gap | None:
        """Over all calls of a module; None if no call is on both sides."""
        return summed(self.inputs[path]) if path in self.inputs else None

    def of_outputs(self, path: str) -> Gap | None:
        """Over all calls of a module; None if no call is on both sides."""
        return summed(self.outputs[path]) if path in self.outputs else None


def _apart(gap: Gap | None) -> float:
    """The relative distance; 0 where none is known, ``inf`` where something differs that is no number."""
    if gap is None or gap.equal is not False:
        return 0.0
    return math.inf if gap.relative is None else gap.relative
