"""Buffers that joined an autograd graph."""

from __future__ import annotations

from collections.abc import Iterator

from modlab.compat import grad_fn
from modlab.inspection.findings.subject import Held, Subject
from modlab.inspection.spelling import is_plain
from modlab.records.finding import FindingRecord


def buffers(subject: Subject) -> Iterator[FindingRecord]:
    """A buffer with a ``grad_fn`` keeps every pass alive that went into it."""
    for held in subject.buffers:
        if grad_fn(held.tensor) is not None:
            yield _with_graph(held)
        elif held.tensor.requires_grad:
            yield FindingRecord(
                held.path,
                held.site.path,
                "buffer with gradient",
                "careful",
                held.path,
                "is a buffer that requires a gradient: parameters() does not list it, so no optimizer gets it",
                "What is trained is a parameter; what is not requires no gradient.",
                f"{held.code}.requires_grad_(False)  # or nn.Parameter instead of register_buffer",
            )


def _with_graph(held: Held) -> FindingRecord:
    function = type(grad_fn(held.tensor)).__name__
    line = f"{held.code} = {held.code}.detach()" if is_plain(held.name) else ""
    return FindingRecord(
        held.path,
        held.site.path,
        "carries a graph",
        "broken",
        held.path,
        f"is a buffer with a graph behind it ({function}): it keeps what was computed for it alive",
        "It was given a value that depends on something that requires a gradient. If forward updates it from itself, the graph "
        "grows with every pass, and a second backward() goes through a graph that is freed already, and fails.",
        f"{line}  # now; and .detach() what forward puts into it" if line else "",
    )
