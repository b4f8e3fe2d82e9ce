"""All checks of a model at rest, in the order in which their findings are told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from modlab import format
from modlab.compat import without_torch_function
from modlab.inspection.findings import devices, graphs, hooks, memory, modes, optimizer, order, registration, values
from modlab.inspection.findings.grouping import pattern
from modlab.inspection.findings.subject import Subject
from modlab.records.finding import FindingRecord

Check = Callable[[Subject], Iterator[FindingRecord]]

FINDINGS: tuple[Check, ...] = (
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
NOTES: tuple[Check, ...] = (
    modes.mixed,
    modes.evaluating,
    hooks.edited,
    order.bias_before_norm,
    order.in_place_after_hook,
    order.nothing_between,
    values.wild_scales,
    modes.dropouts,
    optimizer.frozen_and_skipped,
    optimizer.strangers,
    optimizer.rates,
)
_RANK = {"broken": 0, "careful": 1, "note": 2}


SPELLED_OUT = 3
"""Notes of one kind that stand by themselves; more of them are one."""


def findings(subject: Subject) -> tuple[list[FindingRecord], list[FindingRecord], list[str]]:
    """What is certain (the worst first), what is only worth a look, and which checks could not be made."""
    found: list[FindingRecord] = []
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


def _alike(records: Iterable[FindingRecord]) -> list[FindingRecord]:
    """The same mistake in each of many equal blocks, mended by the same line, is one finding."""
    kinds: dict[tuple[str, ...], list[FindingRecord]] = {}
    for one in records:
        named = pattern(one.path)
        key = (one.kind, one.severity, one.what, one.fix, named, one.subject.replace(one.path, named, 1) if one.path else one.subject)
        kinds.setdefault(key, []).append(one)
    return [same[0] if len(same) == 1 else _one_of(same) for same in kinds.values()]


def _one_of(same: list[FindingRecord]) -> FindingRecord:
    first = same[0]
    places = tuple(dict.fromkeys(place for one in same for place in (one.places or (one.path,))))
    subject = first.subject.replace(first.path, pattern(first.path), 1) if first.path else first.subject
    return replace(first, subject=f"{subject} in {len(same):,} places", places=places)


def _folded(notes: Iterable[FindingRecord]) -> list[FindingRecord]:
    """Twenty notes of one kind are one note with twenty places."""
    kinds: dict[str, list[FindingRecord]] = {}
    for note in notes:
        kinds.setdefault(note.kind, []).append(note)
    found = []
    for same in kinds.values():
        if len(same) <= SPELLED_OUT:
            found += same
            continue
        places = tuple(dict.fromkeys(place for note in same for place in (note.places or (note.path,))))
        more = f"; and {format.plural(len(same) - 1, 'more place')} like it"
        found.append(replace(same[0], what=same[0].what + more, places=places))
    return found


def checks(subject: Subject) -> int:
    """How many kinds of mistakes are looked for; those about optimizers only where there is one."""
    about_optimizers = (optimizer.missing, optimizer.frozen_but_moved, optimizer.twice, devices.states)
    return len(FINDINGS) - (0 if subject.optimizers else len(about_optimizers))
