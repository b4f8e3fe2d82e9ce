"""An account of what ran: the calls in the source of one ``forward`` up to a point, and the values passed between them."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import nn
from torch.nn import Module

from modlab.explaining import shape_inference
from modlab.explaining.calls import ModuleFrame
from modlab.explaining.frames import Frame
from modlab.explaining.shape_inference import Ran
from modlab.explaining.static_evaluation import Scope

_Shape = tuple[int, ...]


@dataclass(slots=True)
class ForwardSource:
    """The calls of one ``forward`` up to a point, and what is known about the values passed between them.

    Attributes:
        call: the module whose ``forward`` it is.
        inner: the module whose call failed; None if the forward's own code failed.
        ran: what ran before, or may have run.
        shapes: the shape of each value, or None if unknown.
        uses: how often each value is read.
        same: value → the value it was computed from element by element, so both have the same shape.
        flat: values returned by a flatten, view or reshape.
        parts: for values that are tuples, the values in them.
        inputs: the values of the arguments, by name.
        taken: the arguments of the call that failed, by position and by name.
        scopes: the functions on the way to that call, each called by the one before.
        again: whether the callee may have run in an earlier round of a loop, with a different input.
        helpers: functions and methods called before, which may have called any module.
        helped: whether it failed in one of them, and one that may do the same was called before.
        certain: False if the effect of an earlier statement is unknown.
        within: whether it stopped in an unknown round of a loop, or on an unknown path.
        skipped: loop rounds before the next call that were not examined because there are too many.
        perhaps: the condition under which the calls examined now ran; empty if they certainly ran.
        steps: statements examined.
    """

    call: ModuleFrame
    inner: ModuleFrame | None
    ran: list[Ran] = field(default_factory=list)
    shapes: list[_Shape | None] = field(default_factory=list)
    uses: list[int] = field(default_factory=list)
    same: dict[int, int] = field(default_factory=dict)
    flat: set[int] = field(default_factory=set)
    parts: dict[int, list[int]] = field(default_factory=dict)
    inputs: dict[int, str] = field(default_factory=dict)
    taken: dict[int | str, int] = field(default_factory=dict)
    scopes: list[Scope] = field(default_factory=list)
    stopped: bool = False
    again: bool = False
    helpers: set[str] = field(default_factory=set)
    helped: bool = False
    certain: bool = True
    within: bool = False
    skipped: int = 0
    perhaps: str = ""
    steps: int = 0

    @property
    def scope(self) -> Scope | None:
        """The function whose code stopped, or None."""
        return self.scopes[-1] if self.scopes else None

    @property
    def frame(self) -> Frame | None:
        """The frame of that function, or None."""
        return self.scopes[-1].frame if self.scopes else None

    def value(self, shape: _Shape | None = None) -> int:
        """A new value, with its shape if known."""
        self.shapes.append(shape)
        self.uses.append(0)
        return len(self.shapes) - 1

    def settle(self, value: int, shape: _Shape | None) -> None:
        """Set the shape of a value, if it was unknown."""
        if self.shapes[value] is None:
            self.shapes[value] = shape

    def note(self, name: str, module: Module | None, taken: int) -> int:
        """Record one more call; return the value that it returned."""
        given = self.value()
        ran = Ran(name, module, taken, given, self.perhaps, self.skipped)
        self.skipped = 0
        self.ran.append(ran)
        if ran.hooked:
            return given
        if ran.free:
            self.same[given] = taken
        if type(module) is nn.Flatten:
            self.flat.add(given)
        known = self.shapes[taken]
        if known is not None:
            self.shapes[given] = known if ran.keeps else None if module is None else shape_inference.through(module, known)
        return given
