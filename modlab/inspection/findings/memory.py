"""Parameters that are two and lie in one memory."""

from __future__ import annotations

from collections.abc import Iterator

from modlab.inspection.findings.subject import Held, Subject
from modlab.inspection.overlaps import Overlaps
from modlab.inspection.spelling import is_plain
from modlab.records.finding import FindingRecord


def shared(subject: Subject) -> Iterator[FindingRecord]:
    """Two parameters over one memory: each has a gradient of its own, and a step of one moves the other."""
    overlaps, by_path = Overlaps(), {held.path: held for held in subject.parameters}
    for held in subject.parameters:
        first = by_path.get(overlaps.of(held.tensor, held.path))
        if first is not None:
            yield _shared(first, held)


def _shared(first: Held, held: Held) -> FindingRecord:
    tie = f"{held.code} = {first.code}  # one parameter" if _alike(first, held) and is_plain(held.name) else ""
    apart = f"For two that are apart: nn.Parameter({held.code}.detach().clone())."
    one = "" if tie else f"For one, keep {first.path} alone, and make the other from it in forward, where it is used. "
    return FindingRecord(
        held.path,
        held.site.path,
        "two parameters share one memory",
        "careful",
        f"{first.path} and {held.path}",
        "are two parameters that share one memory: each has a gradient of its own, and a step of one changes both",
        "nn.Parameter(x) lies in the memory of x, and is a parameter of its own all the same. An optimizer moves the shared numbers "
        "twice; a copy of the model, or a move to another device or dtype, ends the sharing without a word.",
        tie,
        (first.path, held.path),
        advice=f"{one}{apart}",
    )


def _alike(one: Held, other: Held) -> bool:
    """Whether both are the same numbers in the same order."""
    a, b = one.tensor, other.tensor
    same = a.dtype is b.dtype and a.shape == b.shape and a.stride() == b.stride() and type(a) is type(b)
    return same and a.storage_offset() == b.storage_offset() and a.requires_grad is b.requires_grad
