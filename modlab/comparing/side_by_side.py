"""Two passes side by side: how far apart each module's inputs and outputs are, and where that starts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from modlab.comparing.divergence import Distances, Gap, summed
from modlab.comparing.hook_probes import PRE, ProbedOutput
from modlab.comparing.kept_outputs import Kept
from modlab.comparing.passes import Key, Pass, PassCall

GROWTH = 10
"""Where rounding is expected, inputs are never quite equal: a difference starts in a module only if its outputs are this many
times as far apart as its inputs.
"""

Noise = Callable[[Key], float]
_Stages = list[tuple[ProbedOutput, tuple[Kept, ...]]]


class SideBySide:
    """The calls that two passes have in common.

    Args:
        left: kept its inputs and outputs, as `right` did.
        right: determines the order of calls.
        pairs: path on the right → path on the left.
        rounding: whether results only have to agree up to rounding, rather than bit for bit.
        noise: for a call on the right, the relative distance by which two identical passes differ.
        differ: whether the modules at a path on the right and at its partner must compute something different from the same input.
    """

    def __init__(
        self,
        left: Pass,
        right: Pass,
        pairs: Mapping[str, str],
        *,
        rounding: bool = False,
        noise: Noise = lambda key: 0.0,
        differ: Callable[[str], bool] = lambda path: True,
    ) -> None:
        self.left, self.right = left, right
        self.rounding = 0.0  # relative distance that the coarsest dtype explains
        self.inputs: dict[str, list[Gap]] = {}
        self.outputs: dict[str, list[Gap]] = {}
        self.starting: set[str] = set()  # paths on the right
        self.by: dict[str, str] = {}  # for some of them: the hook that causes the difference, in words
        self.alone: dict[str, tuple[int, str]] = {}  # for some of them: what only one side (0 or 1) calls there
        self.switching: list[str] = []  # paths in whose own code it is decided whether an output requires grad
        self.first: str | None = None
        self.drift: str | None = None  # path of the first call whose output differs at all
        self.exact = True
        self._rights = {mine: theirs for theirs, mine in pairs.items()}
        self._pairs, self._expects_rounding, self._noise, self._differ = pairs, rounding, noise, differ
        self._distances = Distances()
        self._juxtapose()

    def _juxtapose(self) -> None:
        """Go through the calls as they ended: a difference starts in a call if it starts in no call inside it."""
        started: list[int | None] = []  # where each starts: how many calls had ended by then
        known: list[tuple[Gap, Gap] | None] = []
        switched: list[bool] = []
        earliest: int | None = None
        for call in self.right.ended:
            gaps = self._gaps(call)
            known.append(gaps)
            inside = [place for place in started[call.entered :] if place is not None]
            place = None if gaps is None else self._place(call, gaps, known)
            if place is not None and inside and place >= min(inside):
                place = None
            started.append(place)
            switched.append(self._switches(call, any(switched[call.entered :])))
            if place is not None:
                self._name(call)
                self.starting.add(call.path)
                if earliest is None or place < earliest:
                    earliest, self.first = place, call.path
            if _apart(gaps and gaps[1]) and self.drift is None:
                self.drift = call.path

    def _place(self, call: PassCall, gaps: tuple[Gap, Gap], known: list[tuple[Gap, Gap] | None]) -> int | None:
        """How many calls had ended where a difference starts in this call; None if it does not start in its own code.

        Where rounding is expected, this looks at what one call inside passes on to the next: a sudden jump in distance arose in between,
        in the code of the call itself. Any layer may amplify inputs that already differ, so then the two modules must differ too.
        """
        here = len(known) - 1
        if not self._expects_rounding:
            return here if self._starts(call, *gaps) else None
        inputs, outputs = gaps
        if inputs.equal is None and self.first is not None:
            return None  # the inputs cannot be compared: the difference may have come with them
        before = _apart(inputs)
        noise = self._noise(call.key)
        between = self._without_partner(call, here)
        for k in self._inside(1, here):
            inner, mine = known[k], self.right.ended[k]
            if self._earlier(mine) is None:
                continue  # only the right model calls it
            if inner is None or not math.isfinite(before):
                return None
            taken = inner[0]
            grown = taken.beyond(max(noise, self._noise(mine.key), taken.rounding, GROWTH * before))
            if outputs.equal is False and grown and (before <= taken.rounding or self._differ(call.path)):
                self._note_alone(call, between.get(mine.key))
                return mine.entered
            before = max(before, _apart(taken), _apart(inner[1]))
        if not math.isfinite(before) or not outputs.beyond(max(noise, outputs.rounding, GROWTH * before)):
            return None
        if before > outputs.rounding and not self._differ(call.path):
            return None
        self._note_alone(call, between.get(None))
        return here

    def _note_alone(self, call: PassCall, found: tuple[int, str] | None) -> None:
        if found is not None:
            self.alone.setdefault(call.path, found)

    def _without_partner(self, call: PassCall, here: int) -> dict[Key | None, tuple[int, str]]:
        """What only one side calls, keyed by the next inner call that both sides make; None if there is no such call after it."""
        earlier = self._earlier(call)
        if earlier is None:
            return {}
        found: dict[Key | None, tuple[int, str]] = {}
        shared = False  # whether both make some call, which the others precede or follow
        for side, one, place in ((0, self.left, self.left.ended.index(earlier)), (1, self.right, here)):
            following: Key | None = None
            for k in reversed(self._inside(side, place)):
                key = self._key(side, one.ended[k])
                if key is None:
                    found[following] = side, one.ended[k].path
                else:
                    following, shared = key, True
        return found if shared else {}

    def _key(self, side: int, call: PassCall) -> Key | None:
        """The key of this call on the right, if both sides make it."""
        path = (self._pairs if side else self._rights).get(call.path)
        other = None if path is None else (self.left if side else self.right).calls.get((path, call.number))
        return None if other is None or not other.finished else call.key if side else other.key

    def _inside(self, side: int, place: int) -> list[int]:
        """The calls that a call makes directly; one that only this side makes is replaced by those inside it that both make."""
        one, found = (self.left, self.right)[side], []
        for k in _direct(one, place):
            call = one.ended[k]
            wraps = self._key(side, call) is None and any(self._key(side, inner) for inner in one.ended[call.entered : k])
            found += self._inside(side, k) if wraps else [k]
        return found

    def _switches(self, call: PassCall, inside: bool) -> bool:
        """Whether this call, and none inside it, decides that an output requires grad on one side only."""
        earlier = self._earlier(call)
        if earlier is None or None in (earlier.requires_grad, call.requires_grad) or earlier.requires_grad is call.requires_grad:
            return False
        if earlier.autograd[1] is not call.autograd[1]:
            return True  # its own parameters are frozen on one side: no forward causes that
        flags = [any(kept.requires_grad for kept in one.inputs) for one in (earlier, call)]
        if inside or flags[0] is not flags[1] or earlier.autograd != call.autograd:
            return False
        if call.path not in self.switching:
            self.switching.append(call.path)
        return True

    def _name(self, call: PassCall) -> None:
        """Record which of its own hooks causes the difference that starts in a call, if one does."""
        earlier = self._earlier(call)
        if earlier is None or call.path in self.by or not (earlier.stages or call.stages):
            return
        for kind in (PRE, ""):
            sides = [[(s, kept) for s, kept in one.stages if (s.kind == PRE) is (kind == PRE)] for one in (earlier, call)]
            found = self._apart_behind(*sides) if len(sides[0]) == len(sides[1]) else self._alone(earlier, call, kind, sides)
            if found is not None:
                self.by[call.path] = f"{found.kind} {found.hook}"
                return
            made = [one.outputs if one.made is None else one.made for one in (earlier, call)]
            if self._distances.between(*made).beyond(self._noise(call.key)):
                return  # its forward causes it

    def _apart_behind(self, left: _Stages, right: _Stages) -> ProbedOutput | None:
        """The first hook after which the two sides differ, or None."""
        for (sight, one), (_, other) in zip(left, right, strict=True):
            gap = self._distances.between(one, other)
            if gap.beyond(gap.rounding if self._expects_rounding else 0.0):
                return sight
        return None

    def _alone(self, earlier: PassCall, call: PassCall, kind: str, sides: list[_Stages]) -> ProbedOutput | None:
        """If one side has more hooks than the other: the first one that changes something, or None."""
        for one, stages in zip((earlier, call), sides, strict=True):
            before = one.inputs if kind == PRE else one.outputs if one.made is None else one.made
            for sight, kept in stages:
                if self._distances.between(before, kept).equal is False:
                    return sight
                before = kept
        return None

    def _earlier(self, call: PassCall) -> PassCall | None:
        """The same call of the left pass, if it finished."""
        other = self._pairs.get(call.path)
        found = None if other is None else self.left.calls.get((other, call.number))
        return found if found is not None and found.finished else None

    def _gaps(self, call: PassCall) -> tuple[Gap, Gap] | None:
        """The gaps of the inputs and the outputs from those of the left pass; None if there is nothing to compare."""
        earlier = self._earlier(call)
        if earlier is None:
            return None
        inputs, outputs = (self._distances.between(*sides) for sides in ((earlier.inputs, call.inputs), (earlier.outputs, call.outputs)))
        self.inputs.setdefault(call.path, []).append(inputs)
        self.outputs.setdefault(call.path, []).append(outputs)
        if not outputs.coarse:
            self.rounding = max(self.rounding, outputs.rounding)
        self.exact = self.exact and (outputs.exact or outputs.equal is False)
        # Both draw, but from different positions in the stream, because something before them drew more: that is not their difference.
        return None if earlier.drew and call.drew and earlier.state != call.state else (inputs, outputs)

    def _starts(self, call: PassCall, inputs: Gap, outputs: Gap) -> bool:
        """Whether the outputs differ and the inputs do not."""
        if inputs.equal is None and self.first is not None:
            return False  # as above
        return inputs.equal is not False and outputs.beyond(self._noise(call.key))

    def of_inputs(self, path: str) -> Gap | None:
        """The gap over all calls of a module; None if the two sides share no call."""
        return summed(self.inputs[path]) if path in self.inputs else None

    def of_outputs(self, path: str) -> Gap | None:
        """The gap over all calls of a module; None if the two sides share no call."""
        return summed(self.outputs[path]) if path in self.outputs else None


def _direct(one: Pass, place: int) -> list[int]:
    """The calls that a call makes directly, in order, as indices of calls that ended."""
    found = []
    k = place - 1
    while k >= one.ended[place].entered:
        found.append(k)
        k = one.ended[k].entered - 1
    return found[::-1]


def _apart(gap: Gap | None) -> float:
    """The relative distance; 0 if unknown, ``inf`` if the difference is not a number."""
    if gap is None or gap.equal is not False:
        return 0.0
    return math.inf if gap.relative is None else gap.relative
