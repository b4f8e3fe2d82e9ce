"""Causality of a model that predicts what comes next: no position may see what follows it."""

from __future__ import annotations

from torch import Tensor

from modlab.diagnosing import batches, order, sequences
from modlab.diagnosing.outcomes import NotRunError, record
from modlab.diagnosing.sequences import Sequence
from modlab.diagnosing.trials import Bench
from modlab.records.finding import ExperimentRecord, Remedy

TOLERANCE = 1e-5
"""Difference, relative to the largest output, that counts as rounding."""


def causality(bench: Bench) -> ExperimentRecord:
    """Change what comes later: where the next token is predicted, no earlier output may move."""
    bench.evaluate()
    output = batches.copied(bench.steadily())
    for sequence in (*sequences.of(bench), *sequences.behind_channels(bench)):
        before = sequences.by_position(output, sequence)
        offset = sequences.offset(sequence, bench.target)
        inside = None if before is None or offset is None else sequences.moved_inside(bench, output, sequence)
        if before is not None and offset is not None and inside is not None:
            return _judged(bench, sequence, before, offset + inside)
    raise NotRunError("nothing is predicted")


def _judged(bench: Bench, sequence: Sequence, before: Tensor, offset: int) -> ExperimentRecord:
    late, middle, early = (_moves(bench, sequence, before, at) for at in (sequence.length - 1, sequence.length // 2, 0))
    pairs = [(at, t) for at, moved in ((sequence.length - 1, late), (sequence.length // 2, middle)) for t in moved if t < at]
    past = any(t > 0 for t in early) or any(t > sequence.length // 2 for t in middle)
    if offset == 0:
        if early[:1] != [0] or not _is_apart(bench, sequence, before):  # the model moves them itself, or its samples come second
            raise NotRunError("nothing is predicted")
        return _of_its_input(sequence, bool(pairs))
    if not pairs:
        return record("causality", "passed", "sees no future" if past else "sees its own token")
    changed, output = pairs[0]
    kind = "sees the future" if past or not order.attends(bench) else "mask turned around"
    return record("causality", "failed", kind, Remedy(kind), changed=changed, output=output, length=sequence.length)


def _of_its_input(sequence: Sequence, ahead: bool) -> ExperimentRecord:
    """Each position has to give its own token back."""
    if not sequence.is_tokens:
        raise NotRunError("nothing is predicted")
    kind = "targets not moved"
    return record("causality", "unclear" if ahead else "failed", kind, Remedy(kind), length=sequence.length, ahead=int(ahead))


def _is_apart(bench: Bench, sequence: Sequence, before: Tensor) -> bool:
    """Whether another first sample moves the output of none but that."""
    found = sequence.tensor.clone()
    found[0] = sequences.other_tokens(sequence)[0]
    after = sequences.by_position(bench.steadily(sequence.put(bench, found)), sequence)
    return after is not None and after.shape == before.shape and not _apart(before, after)[:, 1:].any()


def _moves(bench: Bench, sequence: Sequence, before: Tensor, at: int) -> list[int]:
    """The positions whose output moves when the input at one position is changed."""
    after = sequences.by_position(bench.steadily(sequence.put(bench, sequences.changed(sequence, at))), sequence)
    if after is None or after.shape != before.shape:
        raise NotRunError("nothing is predicted")
    return _apart(before, after).any(1).nonzero().flatten().tolist()


def _apart(before: Tensor, after: Tensor) -> Tensor:
    """Where two outputs differ, by position and sample."""
    apart = (after - before).abs().reshape(*before.shape[:2], -1).amax(2).T
    return apart > TOLERANCE * float(before.abs().max())
