"""The catalogue of all checks of a model at rest, in the order in which their findings are told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from modlab.compat import without_torch_function
from modlab.inspection.findings import devices, graphs, hooks, memory, modes, optimizer, order, registration, values
from modlab.inspection.findings.grouping import pattern
from modlab.inspection.findings.subject import Subject
from modlab.records.finding import Fact, Finding

StaticCheck = Callable[[Subject], Iterator[Finding]]

FINDINGS: tuple[StaticCheck, ...] = (
    registration.uninitialized,
    registration.misspelt_constructors,
    registration.hidden,
    optimizer.missing,
    values.not_finite,
    graphs.buffers,
    memory.shared,
    registration.plain_switches,
    optimizer.frozen_but_moved,
    optimizer.twice,
    modes.frozen_norms,
    devices.mixed,
    devices.states,
    values.all_zero,
    hooks.doubled,
)
NOTES: tuple[StaticCheck, ...] = (
    modes.mixed,
    modes.evaluating,
    hooks.edited,
    order.bias_before_norm,
    order.in_place_after_hook,
    order.nothing_between,
    values.wild_scales,
    modes.dropouts,
    optimizer.of_the_loss,
    optimizer.frozen_and_skipped,
    optimizer.strangers,
    optimizer.rates,
)
_RANK = {"broken": 0, "careful": 1, "note": 2}


SPELLED_OUT = 3
"""Notes of one kind that stand by themselves; more of them are one."""


def findings(subject: Subject) -> tuple[list[Finding], list[Finding], list[str]]:
    """What is certain (the worst first), what is only worth a look, and which checks could not be made."""
    found: list[Finding] = []
    remarks: list[str] = []
    for check in (*FINDINGS, *NOTES):
        try:
            with without_torch_function():
                found += check(subject)
        except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:  # a kind of tensor that knows no such question
            name = check.__name__.replace("_", " ")
            remarks.append(f"{name}: not checked, {type(error).__name__}: {str(error).partition(chr(10))[0]}")
    found.sort(key=lambda record: _RANK[record.severity])
    certain = _alike(record for record in found if record.severity != "note")
    return certain, _folded(record for record in found if record.severity == "note"), remarks


def _alike(findings: Iterable[Finding]) -> list[Finding]:
    """The same mistake in each of many equal blocks, mended by the same line, is one finding."""
    kinds: dict[tuple[object, ...], list[Finding]] = {}
    for one in findings:
        key = (
            one.kind,
            one.severity,
            tuple((name, fact) for name, fact in one.facts.items() if name != "places"),
            one.fixes,
            pattern(one.path),
        )
        kinds.setdefault(key, []).append(one)
    return [same[0] if len(same) == 1 else _one_of(same, alike=len(same), pattern=pattern(same[0].path)) for same in kinds.values()]


def _one_of(same: list[Finding], **facts: Fact) -> Finding:
    places = tuple(dict.fromkeys(place for one in same for place in (one.places or (one.path,))))
    return replace(same[0], facts={**same[0].facts, **facts, "places": places})


def _folded(notes: Iterable[Finding]) -> list[Finding]:
    """Twenty notes of one kind are one note with twenty places."""
    kinds: dict[str, list[Finding]] = {}
    for note in notes:
        kinds.setdefault(note.kind, []).append(note)
    return [one for same in kinds.values() for one in (same if len(same) <= SPELLED_OUT else [_one_of(same, more=len(same) - 1)])]


def checks(subject: Subject) -> int:
    """How many kinds of mistakes are looked for; those about optimizers only where there is one."""
    about_optimizers = (optimizer.missing, optimizer.frozen_but_moved, optimizer.twice, devices.states)
    return len(FINDINGS) - (0 if subject.optimizers else len(about_optimizers))
