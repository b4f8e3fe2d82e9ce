"""What was found: `Finding`, facts without sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from modlab import format
from modlab.frozen import frozen

Severity = Literal["broken", "careful", "note"]
Outcome = Literal["passed", "failed", "unclear", "not run"]
Fact = str | int | float | tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | tuple[Mapping[str, Any], ...]


@frozen
class Evidence:
    """Where the record shows it.

    Attributes:
        kind: "series", "scalar", "units", "alert", "module" (the one in the tree that it belongs to), or "pass"
            (one with the batch).
        path: of the module or parameter; of a scalar, its name.
        role: of a series, as in `records.watch.ROLES`.
    """

    kind: str
    path: str = ""
    role: str = ""


@frozen
class Remedy:
    """What mends it.

    Attributes:
        kind: a key of `wording.fixes.FIXES`, which has the advice; "" where the code says all.
        code: a line that can be copied; nothing if there is none.
        advice: of what only the finder knows, the advice itself.
    """

    kind: str = ""
    code: str = ""
    advice: str = ""


@frozen
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
    fixes: tuple[Remedy, ...] = ()

    @property
    def module(self) -> str:
        """The dotted name of the module that it belongs to."""
        return next((one.path for one in self.evidence if one.kind == "module"), self.path)

    @property
    def places(self) -> tuple[str, ...]:
        """All the dotted names that it is about, if there are several."""
        return self.facts.get("places", ())  # type: ignore[return-value]

    @property
    def certain(self) -> bool:
        """Whether it is a fact; a note may be."""
        return self.severity != "note"

    def __repr__(self) -> str:
        return format.printable(f"<{self.path or '(root)'}: {self.kind} ({self.severity})>")


@frozen(repr=False)
class ExperimentRecord(Finding):
    """What one check that runs the model gave.

    Attributes:
        kind: what was seen, or why it was not made.
        facts: floats are what was measured; their last digits may differ from machine to machine.
        name: of the check: "gradients", "leak", "first loss", "repeat", "round trip" or "overfit", which are always there; where they
            apply, "causality", "recurrence", "embeddings", "padding", "order", "inputs", "targets", "aim", "softmax", "modes",
            "symmetry" or "collapse".
        outcome: "passed", "failed", "unclear" (it depends on what was meant) or "not run".
    """

    name: str = ""
    outcome: Outcome = "not run"

    @property
    def numbers(self) -> tuple[tuple[str, float], ...]:
        """Names and values of what was measured."""
        return tuple((name, value) for name, value in self.facts.items() if isinstance(value, float))

    def __repr__(self) -> str:
        return format.printable(f"<{self.path or '(root)'}: {self.name} {self.outcome}>")


@format.printed
@frozen
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
    findings: tuple[Finding, ...] = ()
    notes: tuple[Finding, ...] = ()
    experiments: tuple[ExperimentRecord, ...] = ()
    optimizers: tuple[str, ...] = ()
    batched: bool = False
    remarks: tuple[str, ...] = ()
