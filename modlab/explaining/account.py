"""An account of what ran: the calls that the code of one ``forward`` shows up to a place, and the values between them."""

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
    """The calls of one ``forward`` up to a place, and what is known of the values between them.

    Attributes:
        call: the module whose ``forward`` it is.
        inner: the module at whose call it stopped; None if it stopped in its own code.
        ran: what ran before, or may have run.
        shapes: of each value, its shape where that is known.
        uses: of each value, how often it is read.
        same: values that are a different one with each number changed separately: of the same shape, whatever that is.
        flat: values that a flattening, view or reshape gave.
        parts: of values that are tuples, the values in them.
        inputs: the values of the arguments, by their names.
        taken: the values that the call at which it stopped got, by place and by name.
        scopes: the functions on the way to that call, each called by the one before.
        again: whether what was called may have run in an earlier round of a loop, with something else.
        helpers: functions and methods that were called before, and may have called any module.
        helped: whether it stopped in one of them, and one that may do the same was called before.
        certain: False if what an earlier statement did is not known.
        within: whether it stopped in a round that is not known, or where the way there is not.
        skipped: rounds of loops that were not looked at, before the next call: they are too many.
        perhaps: under which condition the calls that are looked at now ran; nothing where it is certain.
        steps: statements looked at.
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
        """The function whose code stopped."""
        return self.scopes[-1] if self.scopes else None

    @property
    def frame(self) -> Frame | None:
        """Its frame."""
        return self.scopes[-1].frame if self.scopes else None

    def value(self, shape: _Shape | None = None) -> int:
        """A new value, whose shape may be known."""
        self.shapes.append(shape)
        self.uses.append(0)
        return len(self.shapes) - 1

    def settle(self, value: int, shape: _Shape | None) -> None:
        """What else is found out about a value."""
        if self.shapes[value] is None:
            self.shapes[value] = shape

    def note(self, name: str, module: Module | None, taken: int) -> int:
        """One more call; the value that it gave."""
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
