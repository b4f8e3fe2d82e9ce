"""The explanation of a failed call: what did not fit, where, what was on the way there, and what mends it."""

from __future__ import annotations

from typing import Any

from modlab import format
from modlab.frozen import frozen
from modlab.records.finding import Evidence, Fact, Finding, Remedy
from modlab.records.trace import Value


@format.printed
@frozen
class Fix:
    """One way out: what to do, and the line that does it."""

    prose: str
    code: str = ""


@frozen
class Patch:
    """A fix in its place. ``str`` of it, or ``.diff``, can be given to ``git apply`` or ``patch -p1``.

    Attributes:
        diff: the unified diff of one file or cell.
        tried: whether the mended line was run, with the operands of the error or what stands in for them.
    """

    diff: str
    tried: bool = False

    @property
    def said(self) -> str:
        """Whether it was tried, in words."""
        return "tried: it runs" if self.tried else "not tried"

    def __str__(self) -> str:
        return f"{self.said}\n{self.diff}"


@frozen
class Step:
    """One module on the way to the place of the error, outermost first.

    Attributes:
        path: the dotted name; None where the module is not registered in the model that the traceback shows.
        name: the last part of the path, or how the module is reached ("layers[0]"), or its class.
        type: its class.
        symbol: the category of the class ("linear", "container", "own", ...).
        depth: how many of the modules listed are above it.
        inputs: what it was called with.
        outputs: what it gave, if it ran before the place of the error and that is known.
        tensors: its own parameters and buffers.
        locals: the tensors that stood in the local names of its code when it stopped.
        stopped: whether the error came out of it.
        failed: whether it is the innermost one of these.
        certain: of one that ended before the place of the error, whether it is certain that it ran.
        said: what happened there, in words ("(1×5) @ (4×4): inner sizes 5 ≠ 4"); "ran", or under which condition it did.
        note: what is special ("called through .forward: hooks are skipped").
        where: file and line of its code that was running ("net.py:12").
        line: that line.
    """

    path: str | None
    name: str
    type: str
    symbol: str
    depth: int = 0
    inputs: tuple[Value, ...] = ()
    outputs: tuple[Value, ...] = ()
    tensors: tuple[Value, ...] = ()
    locals: tuple[Value, ...] = ()
    stopped: bool = True
    failed: bool = False
    certain: bool = True
    said: str = ""
    note: str = ""
    where: str = ""
    line: str = ""

    def __repr__(self) -> str:
        place = self.name if self.path is None else self.path or "(root)"
        return format.printable(f"<{place}: {self.type}{f' {self.said}' if self.said else ''}>")


@format.printed
@frozen
class ExplanationRecord:
    """An error, explained.

    Attributes:
        error: the exception's class.
        message: what it said itself.
        family: which kind of mistake it is ("product", "dtype", ...); empty for an error that is not known.
        sentence: what did not fit and where, in two halves.
        steps: the modules on the way.
        facts: what was given and what was expected, as names and values.
        fixes: ways out, the likeliest first.
        patch: the first of them that was tried, else the first that has a certain place in the source; there.
        remarks: what else to know, and what could not be seen.
        where: file and line of the user's code.
        line: that line.
        locals: tensors in the local names there, if that is not a module's code.
    """

    error: str
    message: str
    family: str
    sentence: tuple[str, str]
    steps: tuple[Step, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    fixes: tuple[Fix, ...] = ()
    remarks: tuple[str, ...] = ()
    where: str = ""
    line: str = ""
    locals: tuple[Value, ...] = ()
    patch: Patch | None = None

    @property
    def finding(self) -> Finding:
        """The same as a finding: what was given and expected, and the tensors of the module that failed, are its facts."""
        at = next((step for step in self.steps if step.failed), None)
        facts: dict[str, Fact] = {"error": self.error, "given": tuple({"name": name, "value": value} for name, value in self.facts)}
        if at is not None:
            facts |= {"module": at.type, "inputs": tuple(map(_tensor, at.inputs)), "tensors": tuple(map(_tensor, at.tensors))}
        path = "" if at is None else at.path or ""
        evidence = (Evidence("module", path),) if at is not None and at.path is not None else ()
        fixes = tuple(Remedy(code=fix.code, advice=fix.prose) for fix in self.fixes)
        return Finding(self.family or "not known", path, facts, "broken", evidence=evidence, fixes=fixes)


def _tensor(value: Value) -> dict[str, Any]:
    """What a module took or has, as far as it is known."""
    told = {"name": value.name, "kind": value.kind, "shape": value.shape, "dtype": value.dtype, "device": value.device, "text": value.text}
    return {name: fact for name, fact in told.items() if fact not in ("", None)}
