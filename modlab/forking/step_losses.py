"""The losses that count in a step: of all backward passes those whose gradients the first optimizer takes."""

from __future__ import annotations

from modlab.forking.others import note_owner
from modlab.forking.tape import BACKWARD, FOREIGN, FUNCTION, STEP, TapedStep, TapeEntry, flat, throws_away


class _Since:
    """What has happened since a backward pass.

    Args:
        first: the number of the first optimizer.

    Attributes:
        stepped: numbers of the optimizers that have made a step; -1 of those that are strangers.
        moved: whether the loop itself has written something beside gradients, as SAM moves the weights before it evaluates anew.
    """

    def __init__(self, first: int) -> None:
        self._first, self._owners = first, dict[int, int]()
        self.begin()

    def begin(self) -> None:
        """There was none before."""
        self.stepped, self.moved = set[int](), False

    @property
    def is_over(self) -> bool:
        """Whether the first optimizer has made its step."""
        return self._first in self.stepped

    def see(self, entry: TapeEntry) -> None:
        """An entry behind it."""
        note_owner(entry, self._owners)
        if entry.kind in (STEP, FOREIGN):
            self.stepped.add(entry.what if entry.kind == STEP else -1)
        wrote = entry.kind == FUNCTION and not throws_away(entry) and any(one not in self._owners for one in entry.writes)
        self.moved = self.moved or wrote


def line_of_loss(step: TapedStep) -> int | None:
    """Where ``backward()`` is called for the first optimizer's step; the last one, where several are and none is an evaluation anew."""
    found, since, anew = None, _Since(step.first), False
    for entry in step.entries:
        if found is not None and throws_away(entry):
            found, anew = (None, False) if since.stepped else (found, since.moved)
        if found is None:
            since.begin()
        else:
            since.see(entry)
        if entry.kind == STEP and entry.what == step.first:
            inside = [one for part in entry.closures for one in part if one.kind == BACKWARD]
            if inside or found is not None:
                return inside[0].line if inside else found
        if entry.kind == BACKWARD:
            found = found if anew else entry.line
    return found


def losses_of(step: TapedStep, line: int | None) -> list[TapeEntry]:
    """The backward passes at a line that make up the loss of the step, for the gradient is that of their sum.

    Of a closure those of its first call; where the loop moves the weights, throws gradients away, and evaluates the loss anew, those
    before. Of several optimizers with losses of their own, and of gradients that are thrown away for nothing, those before the step of
    the first optimizer.
    """
    found: list[TapeEntry] = []
    since, stale = _Since(step.first), False  # whether their gradients are thrown away, if more passes come
    for entry in step.entries:
        if found and throws_away(entry):
            if since.is_over or (since.moved and not since.stepped):
                break
            found, stale = ([], False) if since.stepped else (found, True)
        if found:
            since.see(entry)
        else:
            since.begin()
        inside = [entry] if not entry.closures else [] if found else [*flat(entry.closures[0])]
        passes = [one for one in inside if one.kind == BACKWARD and line in (None, one.line)]
        if passes and since.is_over:
            break
        if passes and stale:
            found, stale = [], False
            since.begin()
        found += passes
    return found
