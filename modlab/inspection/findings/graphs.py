"""Buffers that joined an autograd graph."""

from __future__ import annotations

from collections.abc import Iterator

from modlab.compat import grad_fn
from modlab.inspection.findings.subject import Held, Subject
from modlab.inspection.spelling import is_plain
from modlab.records.finding import Finding, Remedy


def buffers(subject: Subject) -> Iterator[Finding]:
    """A buffer with a ``grad_fn`` keeps every pass alive that went into it."""
    for held in subject.buffers:
        if grad_fn(held.tensor) is not None:
            yield _with_graph(held)
        elif held.tensor.requires_grad:
            fix = Remedy(code=f"{held.code}.requires_grad_(False)  # or nn.Parameter instead of register_buffer")
            yield held.finding("buffer with gradient", "careful", fix)


def _with_graph(held: Held) -> Finding:
    line = f"{held.code} = {held.code}.detach()  # now; and .detach() what forward puts into it"
    fixes = (Remedy(code=line),) if is_plain(held.name) else ()
    return held.finding("carries a graph", "broken", *fixes, function=type(grad_fn(held.tensor)).__name__)
