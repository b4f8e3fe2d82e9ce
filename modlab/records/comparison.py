"""A comparison of two runs side by side: of one model in its two modes, or of two models; one record for each module."""

from __future__ import annotations

from modlab import format
from modlab.frozen import frozen
from modlab.records.structure import ROOT
from modlab.records.tensor import TensorStats

MODES = ("train", "eval")
GRADS = ("normal", "no_grad", "inference_mode")


@frozen
class RunRecord:
    """One module in one run of the model.

    Attributes:
        side: "train" or "eval"; of two models "left" or "right".
        grad: "normal" (autograd records), "no_grad" or "inference_mode"; "as it is" for two models.
        calls: how often the module was called.
        training: its own flag at the first call; None if it was not called.
        requires_grad: whether a tensor among its outputs requires grad; None if there is none.
        l2: the norm of the first tensor of its first output.
        max_abs: the greatest distance from the output of the same mode under normal autograd; None where that is not known.
        error: what the model raised in this run, one line.
    """

    side: str
    grad: str
    calls: int = 0
    training: bool | None = None
    requires_grad: bool | None = None
    l2: float | None = None
    max_abs: float | None = None
    error: str = ""


@format.printed
@frozen
class Move:
    """Something of a module's that a forward pass changed (and that was put back).

    Attributes:
        name: "running_mean".
        kind: "buffer", "parameter", "state" (a plain attribute on which the next pass in eval mode depends) or "attribute".
        side: the mode in which it moved.
        before, after: the value in words.
        max_abs: the greatest distance between the two; None where there is none.
    """

    name: str
    kind: str
    side: str
    before: str
    after: str
    max_abs: float | None = None


@frozen
class ComparisonRecord:
    """One module in two runs: train and eval mode, or two models.

    Attributes:
        path: the dotted name; of a module that only the right model has, its name there.
        other: its name in the right model, where that is another.
        type: the class; `other_type` that of the right model, where that is another.
        called_left, called_right: how often it was called; None where the model has no such module.
        max_abs: the greatest distance between two elements of the outputs of all calls, ``inf`` where only one of the two
            is finite; None where nothing could be compared.
        relative_l2: ‖left − right‖ / ‖left‖; ``inf`` where left is all zero.
        cosine: of the angle between the two outputs; None where one is zero or not finite.
        changed, count: elements that differ, and elements compared.
        equal: every output is the same (NaN equals NaN); None where that is not known.
        sampled: the outputs were too large to be kept: equality is of all elements, the distances are of a sample.
        alone: places that the output has on one side alone: 0 for the first or 1 for the second, and the name (``"['aux']"``).
        inputs_max_abs: the same of the inputs.
        inputs_equal: None where that is not known.
        starts_here: its inputs agree and its outputs do not, and no module inside is the reason.
        starts_by: what makes the difference that starts there, in words, if it is not its forward ("forward hook f (net.py:12)").
        alone_there: of two models, what one of them alone calls where the difference starts, in words.
        matched: of two models, how its partner was found: "told", "name" or "structure".
        random: sides in which the output depends on random numbers.
        drawn: sides in which the module itself draws random numbers, each with where from; `draws` has them in words ("eval: torch").
        unsteady: sides in which the output differs even with the same random numbers.
        unsteady_here: that starts in its own code.
        raises: sides in which an exception comes out of it, and out of no module inside.
        switches_grad: its own code decides by mode whether its output requires grad.
        acts_by_mode: its own training flag changes its output, what it draws or what it moves.
        ignores_mode: what belongs to training goes on in eval mode: random numbers, or state that moves.
        moved: buffers, parameters and attributes that a pass changed.
        holds_by_mode: ``train()`` and ``eval()`` themselves change what it holds.
        fused: in a pass without autograd, a fused path runs in its place.
        reason: why the output cannot be compared, where something says so.
        runs: the module in each run.
        left, right: statistics of the first tensor of the first output.
        notes: what else to know, in words.
    """

    path: str
    type: str
    category: str = "own"
    other: str = ""
    other_type: str = ""
    called_left: int | None = 0
    called_right: int | None = 0
    max_abs: float | None = None
    relative_l2: float | None = None
    cosine: float | None = None
    changed: int = 0
    count: int = 0
    equal: bool | None = None
    sampled: bool = False
    alone: tuple[tuple[int, str], ...] = ()
    inputs_max_abs: float | None = None
    inputs_equal: bool | None = None
    starts_here: bool = False
    starts_by: str = ""
    alone_there: str = ""
    matched: str = ""
    random: tuple[str, ...] = ()
    drawn: tuple[tuple[str, tuple[str, ...]], ...] = ()
    unsteady: tuple[str, ...] = ()
    unsteady_here: bool = False
    raises: tuple[str, ...] = ()
    switches_grad: bool = False
    acts_by_mode: bool = False
    ignores_mode: bool = False
    moved: tuple[Move, ...] = ()
    holds_by_mode: bool = False
    fused: bool = False
    reason: str = ""
    runs: tuple[RunRecord, ...] = ()
    left: TensorStats | None = None
    right: TensorStats | None = None
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        distance = "not compared" if self.max_abs is None else "equal" if self.equal else f"differs by up to {self.max_abs:.3g}"
        return format.printable(f"<{self.path or ROOT}: {self.type} {distance}{', starts here' if self.starts_here else ''}>")

    @property
    def differs(self) -> bool:
        """Whether an output is known to differ."""
        return self.equal is False

    @property
    def draws(self) -> tuple[str, ...]:
        """Sides in which the module itself draws random numbers, and from where: "eval: torch"."""
        return tuple(f"{side}: {', '.join(names)}" for side, names in self.drawn)

    def draws_in(self, side: str) -> bool:
        """Whether the module itself draws random numbers on a side."""
        return any(one == side for one, _ in self.drawn)

    @property
    def called(self) -> int:
        """Calls in both runs together."""
        return (self.called_left or 0) + (self.called_right or 0)


@frozen
class ComparisonTable:
    """A whole comparison.

    Attributes:
        title: the class of the model; of two, of the left one.
        other: the class of the right one; nothing where one model was compared with itself.
        sides: "train" and "eval", or "left" and "right".
        rows: in the order of the tree; then what only the right model has.
        runs: the whole model in each run.
        first: the path where the difference starts; None where there is none.
        drift: of two models, the path of the first module to end whose output differs at all, be it by rounding.
        nan: the path of the first module to end whose output holds NaN; None where there is none.
        whole: the path of the row that is about the whole model's output.
        tolerance: relative distance up to which two outputs count as the same; 0 means to the bit.
        exact: nothing was sampled, and what is equal is equal in every bit.
        remarks: what cannot be seen, and why; what was done to the inputs.
    """

    title: str
    sides: tuple[str, str]
    rows: tuple[ComparisonRecord, ...]
    runs: tuple[RunRecord, ...] = ()
    first: str | None = None
    drift: str | None = None
    nan: str | None = None
    whole: str = ""
    other: str = ""
    tolerance: float = 0.0
    exact: bool = True
    remarks: tuple[str, ...] = ()
