"""Parameters that are two and lie in one memory."""

from __future__ import annotations

from collections.abc import Iterator

from modlab.inspection.findings.subject import Held, Subject
from modlab.inspection.overlaps import Overlaps
from modlab.inspection.spelling import is_plain
from modlab.records.finding import Fact, Finding, Remedy


def shared(subject: Subject) -> Iterator[Finding]:
    """Two parameters over one memory: each has a gradient of its own, and a step of one moves the other."""
    overlaps, by_path = Overlaps(), {held.path: held for held in subject.parameters}
    for held in subject.parameters:
        first = by_path.get(overlaps.of(held.tensor, held.path))
        if first is not None:
            yield _shared(first, held)


def _shared(first: Held, held: Held) -> Finding:
    tie = f"{held.code} = {first.code}  # one parameter" if _alike(first, held) and is_plain(held.name) else ""
    apart = Remedy("keep apart" if tie else "keep one, or apart", tie)
    facts: dict[str, Fact] = {"other": first.path, "code": held.code, "places": (first.path, held.path)}
    return held.finding("two parameters share one memory", "careful", apart, **facts)


def _alike(one: Held, other: Held) -> bool:
    """Whether both are the same numbers in the same order."""
    a, b = one.tensor, other.tensor
    same = a.dtype is b.dtype and a.shape == b.shape and a.stride() == b.stride() and type(a) is type(b)
    return same and a.storage_offset() == b.storage_offset() and a.requires_grad is b.requires_grad
