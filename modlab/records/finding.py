"""What was found: `Finding`, facts without sentences; and, as long as a diagnosis still has its own, what that is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from modlab import format

Severity = Literal["broken", "careful", "note"]
Outcome = Literal["passed", "failed", "unclear", "not run"]
Fact = str | int | float | tuple[int, ...] | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where the record shows it.

    Attributes:
        kind: "series", "scalar", "units" or "alert".
        path: of the module or parameter; of a scalar, its name.
        role: of a series, as in `records.watch.ROLES`.
    """

    kind: str
    path: str = ""
    role: str = ""


@dataclass(frozen=True, slots=True)
class Fix:
    """What mends it.

    Attributes:
        kind: a key of `wording.fixes.FIXES`, which has the advice; "" where the code says all.
        code: a line that can be copied; nothing if there is none.
        advice: of what only the finder knows, the advice itself.
    """

    kind: str = ""
    code: str = ""
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong, worth care, or worth knowing: facts alone. `wording` turns them into sentences.

    Attributes:
        kind: a key of `wording.kinds.KINDS`, which has its rank and its words.
        path: the dotted name of what it is about, or the name of a curve; ``""`` is the whole model.
        facts: numbers and names: ``{"dead": 1, "units": 3, "inputs": 5272}``.
        severity: "broken" (it does not do what its author can have meant), "careful" (it may be meant), or "note" (it is good to know).
        step: at which it was first seen.
        evidence: where the record shows it.
        fixes: what mends it, the best first.
    """

    kind: str
    path: str = ""
    facts: Mapping[str, Fact] = field(default_factory=dict)
    severity: Severity = "note"
    step: int | None = None
    evidence: tuple[Evidence, ...] = ()
    fixes: tuple[Fix, ...] = ()

    def __repr__(self) -> str:
        return f"<{self.path or '(root)'}: {self.kind} ({self.severity})>"


@dataclass(frozen=True, slots=True)
class FindingRecord:
    """One thing that was found.

    Attributes:
        path: the dotted name of what it is about: a module, a tensor or an attribute; ``""`` is the whole model.
        module: the dotted name of the module that this belongs to.
        kind: what it is, in a few words ("hidden in a list", "in no optimizer").
        severity: "broken" (it does not do what its author can have meant), "careful" (certain too; it may be meant), or
            "note" (worth a look; asked for by ``diagnosis.notes``).
        subject: what the sentence is about, with numbers ("adapters (3 Linear)").
        what: the rest of the sentence ("are hidden in a list, so they do not train").
        reason: why PyTorch lets it pass, and what follows.
        fix: code, or nothing.
        advice: what to do, in words, where no line of code says it.
        places: all the dotted names, if there are several.
        extent: what stands in brackets behind the path, where `subject` is the path with that ("3 Linear").
    """

    path: str
    module: str
    kind: str
    severity: Severity
    subject: str
    what: str
    reason: str = ""
    fix: str = ""
    places: tuple[str, ...] = ()
    advice: str = ""
    extent: str = ""

    @property
    def certain(self) -> bool:
        """Whether it is a fact; a note may be."""
        return self.severity != "note"

    @property
    def sentence(self) -> str:
        """What is wrong, in one clause."""
        return f"{self.subject} {self.what}"

    def __repr__(self) -> str:
        return format.printable(f"<{self.path or '(root)'}: {self.kind} ({self.severity})>")


@dataclass(frozen=True, slots=True)
class ExperimentRecord:
    """What one check that runs the model gave.

    Attributes:
        path: where it shows; ``""`` is the whole model.
        module: the dotted name of the module that this belongs to.
        kind: a short name ("gradients", "leak", "first loss", "repeat", "round trip", "overfit").
        title: what is checked, as a sentence that is true where it passes.
        outcome: "passed", "failed", "unclear" (it depends on what was meant) or "not run" (`what` says why).
        what: what was seen.
        reason: what follows from it.
        fix: code, or nothing.
        advice: what to do, in words, where no line of code says it.
        places: all the dotted names that it is about, if there are several.
        numbers: names and values of what was measured; the last digits may differ from machine to machine.
        cause: of "repeat", what makes two passes differ: "random numbers" or "state"; nothing where it is neither, or not known.
        beside: what was seen, where the path stands beside it and need not be said again; nothing where that is `what`.
        names_path: whether `what` says where; else the path is put in front.
    """

    path: str
    module: str
    kind: str
    title: str
    outcome: Outcome
    what: str = ""
    reason: str = ""
    fix: str = ""
    places: tuple[str, ...] = ()
    numbers: tuple[tuple[str, float], ...] = ()
    advice: str = ""
    cause: str = ""
    beside: str = ""
    names_path: bool = True

    def __repr__(self) -> str:
        return format.printable(f"<{self.path or '(root)'}: {self.kind} {self.outcome}>")


@format.printed
@dataclass(frozen=True, slots=True)
class DiagnosisRecord:
    """A whole diagnosis.

    Attributes:
        title: the model's class.
        checks: how many kinds of mistakes were looked for.
        modules, parameters, buffers: how many of each were looked at, each once.
        optimizers: the labels of the parameter groups.
        batched: whether a batch and a loss were given.
        remarks: what could not be seen, and why.
    """

    title: str
    checks: int
    modules: int
    parameters: int
    buffers: int
    findings: tuple[FindingRecord, ...] = ()
    notes: tuple[FindingRecord, ...] = ()
    experiments: tuple[ExperimentRecord, ...] = ()
    optimizers: tuple[str, ...] = ()
    batched: bool = False
    remarks: tuple[str, ...] = ()
