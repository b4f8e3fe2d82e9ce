"""Knobs on a running loop: their ranges, and each move with the step from which it held."""

from __future__ import annotations

from modlab import format
from modlab.frozen import frozen


@format.printed
@frozen
class KnobMove:
    """A knob was moved.

    Attributes:
        step: the first one with the new value, counted from 0: so many steps an optimizer had made before.
        knob: its name.
        value: from then on.
    """

    step: int
    knob: str
    value: float


@format.printed
@frozen
class KnobRecord:
    """One knob of a run.

    Attributes:
        name: "lr", "momentum" and "weight_decay" are the optimizers' own; the loop reads all others.
        low, high: the range.
        log: whether each part of its slider is a factor, and not a difference.
        start: its value at the beginning.
        value: its value now, or at the end.
        bound: whether it sets a value of the optimizers.
        read: whether the loop has ever asked for its value.
        moves: in order.
    """

    name: str
    low: float
    high: float
    log: bool
    start: float
    value: float
    bound: bool
    read: bool
    moves: tuple[KnobMove, ...] = ()
