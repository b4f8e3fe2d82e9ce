"""What a diagnosis is made of: what is wrong or worth a look, and what the checks that run the model gave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["broken", "careful", "note"]
Outcome = Literal["passed", "failed", "unclear", "not run"]


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

    @property
    def certain(self) -> bool:
        """Whether it is a fact; a note may be."""
        return self.severity != "note"

    @property
    def sentence(self) -> str:
        """What is wrong, in one clause."""
        return f"{self.subject} {self.what}"

    def __repr__(self) -> str:
        return f"<{self.path or '(root)'}: {self.kind} ({self.severity})>"


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

    def __repr__(self) -> str:
        return f"<{self.path or '(root)'}: {self.kind} {self.outcome}>"


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
