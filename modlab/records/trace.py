"""What happened while a module ran: events in order, each with what went in and what came out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from modlab import format
from modlab.frozen import frozen
from modlab.records.finding import Fact, Finding
from modlab.records.sharding import Ranks, Sharding
from modlab.records.state import Matrix
from modlab.records.tensor import TensorStats


@frozen
class Value:
    """One leaf of what a call took or gave: a tensor, or what stands where one could be.

    Attributes:
        name: its place in the nest: "x", "[0]", "batch['mask']"; nothing for an output that is one tensor.
        kind: the type's name ("Tensor", "str", "NoneType").
        shape: of a tensor; -1 for a ragged size; None for what is none.
        number: the same number is the same tensor, within one trace; 0 for what is none.
        stats: if values were measured.
        numbers: of a small tensor, in rows and columns.
        text: what it is, in words, if it is not a tensor ("'relu'").
        note: what to know about it ("changed in place", "not looked into").
        sharding: of a tensor that lies over several ranks, how; `shape` is that of the whole, and `stats` are of this rank's part.
        owner: of a parameter or buffer of the model, its dotted name.
    """

    name: str
    kind: str = "Tensor"
    shape: tuple[int, ...] | None = None
    dtype: str = ""
    device: str = ""
    requires_grad: bool = False
    number: int = 0
    stats: TensorStats | None = None
    numbers: Matrix | None = None
    text: str = ""
    note: str = ""
    sharding: Sharding | None = None
    owner: str = ""

    def __repr__(self) -> str:
        return format.printable(f"<{self.name or 'value'}: {self.text or f'{self.dtype} {self.shape}'}>")


@frozen
class EventFact:
    """Something that is special about an event, or about a value in it: `wording.events` has the words for each kind."""

    kind: str
    facts: Mapping[str, Fact] = field(default_factory=dict)


@frozen
class Event:
    """One thing that happened.

    Attributes:
        index: its number, in the order in which events began.
        kind: "module" (a call), "function" (of torch, or a tensor's method), "hook" (one stage of a call; or a hook of a tensor: those
            that parameters and the model's inputs have, and that any tensor gets during the trace; none of a graph's nodes), "backward",
            "gradient" (of a module's output, or of a parameter that the user's hooks may meet), "step" (of an optimizer).
        path: the module called, or in whose ``forward`` it happened; None outside of the model.
        name: the class of a module, "F.relu", the name of a hook's function.
        call: of a module, the how-manieth call in this trace.
        parent: the index of the event inside which it happened, or -1; `depth` counts those.
        training: the module's mode at the call.
        inputs: for a hook what it saw, for a gradient the gradient of the output.
        outputs: for a hook what it made of that, for a backward the gradients of parameters.
        category: of a module, as in its tree ("linear", "own"); of a gradient "parameter" if it is one's.
        start: seconds after the trace's beginning.
        seconds: from begin to end, without what modlab itself took; `own_seconds` without the events inside.
        bytes: of new tensors among the outputs (views and tensors changed in place are none).
        memory: what the accelerator's allocator held more at the end than at the beginning; None where that is not known.
        where: the line that called it ("model.py:12").
        marks: what is special about it, in words; `facts` are the same as data, in the same order.
        error: the exception that ended it, one line.
        times: with ``fold=True``, how many equal calls this one stands for.
    """

    index: int
    kind: str
    path: str | None
    name: str
    call: int = 0
    parent: int = -1
    depth: int = 0
    training: bool | None = None
    inputs: tuple[Value, ...] = ()
    outputs: tuple[Value, ...] = ()
    seconds: float = 0.0
    own_seconds: float = 0.0
    bytes: int = 0
    memory: int | None = None
    where: str = ""
    marks: tuple[str, ...] = ()
    error: str = ""
    times: int = 1
    category: str = ""
    start: float = 0.0
    facts: tuple[EventFact, ...] = ()

    def fact(self, *kinds: str) -> EventFact | None:
        """The first one of these kinds."""
        return next((one for one in self.facts if one.kind in kinds), None)

    def __repr__(self) -> str:
        place = "" if self.path is None else f"{self.path or '(root)'}: "
        return format.printable(f"<{self.index} {place}{self.name}{f' raised {self.error}' if self.error else ''}>")


@frozen(repr=False)
class Reason(Finding):
    """Why a parameter has no gradient, or that it has one.

    Attributes:
        kind: a word or two: "gradient" (it has one), "zero", "frozen", "no_grad", "inference_mode", "detached", "off the path",
            "not called", ".forward called", "not used", "integer", "overwritten", "set to None", "not asked for",
            "raised" (all that used it did, and was caught), "stopped on the way", "no backward", "buffer", "not here",
            "cannot be seen".
        facts: ``case`` is a key of `wording.reasons.CASES`, which has the words.
        event: the number of the event that shows it, or -1.
        arrived: a gradient came, whatever became of it since.
    """

    event: int = -1
    arrived: bool = False


@format.printed
@frozen
class Uncalled:
    """A module of the model that did not run, or not so that it could be seen.

    Attributes:
        kind: why: "never called", "stopped before" (the pass ended first), ".forward called", "its tensor used" (by others), "inside a
            fused step", "its weights used" (by the module around it); or that it was not seen: "compiled", "inside compiled", "in another
            thread", "in what is compiled" (and no part of the model), "perhaps" (in a function that torch.compile runs).
        facts: the module around it, the line, the tensor and who used it: `wording.events` has the words for each kind.
    """

    path: str
    type: str
    category: str
    kind: str
    facts: Mapping[str, Fact] = field(default_factory=dict)


@frozen
class TraceRecord:
    """A whole trace.

    Attributes:
        title: the model's class.
        modules: how many modules can be called.
        uncalled: those that were not.
        reasons: one for each parameter.
        remarks: what could not be seen, and why.
        error: the exception that ended the trace, one line.
        measured: whether values were measured.
        explanation: why it ended so, in two halves of a sentence, if that is known; `fixes` are ways out, each in words and code.
        called: how many modules were; `hidden`: how many may have been without being seen.
        alike: with ``fold=True``, paths whose calls were only counted, each with the event that stands for them.
        cost: the seconds that modlab took, which are in no event.
        ranks: over which the model lies.
    """

    title: str
    modules: int
    events: tuple[Event, ...]
    uncalled: tuple[Uncalled, ...] = ()
    reasons: tuple[Reason, ...] = ()
    remarks: tuple[str, ...] = ()
    error: str = ""
    measured: bool = True
    cost: float = 0.0
    explanation: tuple[str, str] = ("", "")
    fixes: tuple[tuple[str, str], ...] = ()
    called: int = 0
    alike: tuple[tuple[str, int], ...] = ()
    hidden: int = 0
    ranks: Ranks | None = None
