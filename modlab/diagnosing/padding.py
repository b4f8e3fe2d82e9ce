"""Padding at the end of sequences: it may count neither in what a model answers nor in its loss."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from modlab.diagnosing import batches, sequences
from modlab.diagnosing.embeddings import ends
from modlab.diagnosing.outcomes import NotRunError, record
from modlab.diagnosing.sequences import IGNORED, Sequence
from modlab.diagnosing.trials import Bench
from modlab.records.finding import ExperimentRecord, Outcome, Remedy
from modlab.running.values import mapped

TOLERANCE = 1e-4
"""Difference, relative to how far the outputs of samples lie apart, that counts as rounding."""
STRONG, MUCH = 0.5, 0.25
"""Padding surely counts if the outputs move by `STRONG` of how far they lie apart, and `MUCH` of all positions are padding."""


class Padded(NamedTuple):
    """A sequence with padding: the token, and how much of it ends each row."""

    sequence: Sequence
    token: int
    runs: Tensor


def padding(bench: Bench) -> ExperimentRecord:
    """Less padding, the same answer; and the loss leaves padded positions out."""
    bench.evaluate()
    padded = next(filter(None, map(_padded, sequences.of(bench))), None)
    if padded is None:
        raise NotRunError("no padding")
    output = batches.copied(bench.steadily())
    found = _alone(bench, padded, output) or _in_the_loss(bench, padded, output)
    if found is None and _is_left_out(bench, padded, output):
        return record("padding", "passed", "padding left out")
    return found or _shortened(bench, padded, output) or record("padding", "passed", "padding is ignored")


def _padded(sequence: Sequence) -> Padded | None:
    rows = sequence.tensor if sequence.is_tokens else (sequence.tensor != 0).any(-1).long()
    at_end = ends(rows) & (rows == int(rows[:, -1].mode().values))
    runs = at_end.flip(1).long().cumprod(1).sum(1)
    token = int(rows[:, -1].mode().values)
    if int(((runs > 1) & (runs < sequence.length)).sum()) < 2 or (not sequence.is_tokens and token != 0):
        return None
    return Padded(sequence, token, runs)


def _alone(bench: Bench, padded: Padded, output: Any) -> ExperimentRecord | None:
    """In padded samples no token counts."""
    sequence, rows = padded.sequence, padded.runs > 0
    rows = rows & (padded.runs < sequence.length)  # where no token is, none can count
    if not sequence.is_tokens or bool((padded.runs > 0).all()) or not bool(rows.any()):
        return None
    real = sequence.tensor != padded.token
    changed = torch.where(real, sequences.other_tokens(sequence, padded.token), sequence.tensor)
    before, after = (_by_sample(one, sequence) for one in (output, bench.steadily(sequence.put(bench, changed))))
    if before is None or after is None or before.shape != after.shape:
        return None
    moved = ((before - after).abs() > 1e-6 * before.abs().max()).flatten(1).any(1)
    if bool(moved[rows].any()) or not bool(moved[padded.runs == 0].any()):
        return None
    kind = "mask turned around"
    return record("padding", "failed", kind, Remedy(kind), rows=int(rows.sum()))


def _by_sample(output: Any, sequence: Sequence) -> Tensor | None:
    """The first output with one entry per sample."""
    found = (t for t in batches.tensors(output) if t.is_floating_point() and t.dim() and t.shape[0] == sequence.samples)
    return next(found, None)


def _in_the_loss(bench: Bench, padded: Padded, output: Any) -> ExperimentRecord | None:
    """The loss changes with what the model answers at padded positions."""
    sequence, labels = padded.sequence, sequences.aligned(padded.sequence, bench.target)
    answers = sequences.by_position(output, sequence)
    if labels is None or answers is None or not sequence.is_tokens or labels.is_floating_point():
        return None
    last = torch.arange(sequence.length, device=labels.device) >= sequence.length - padded.runs[:, None]
    spared = last & (labels == labels[:, -1].mode().values) & (labels != IGNORED)
    if not bool(spared.any()) or not bool((labels == IGNORED).sum() + spared.sum() < labels.numel()):
        return None
    losses = [float(bench.loss(output, batches.copied(bench.target))), _loss_shaken(bench, output, sequence, spared)]
    if abs(losses[0] - losses[1]) <= TOLERANCE * abs(losses[0]):
        return None
    share = float(spared.double().mean())
    return _counts("failed" if share > MUCH else "unclear", share, loss=losses[0], changed=losses[1])


def _is_left_out(bench: Bench, padded: Padded, output: Any) -> bool:
    """Whether each position has its own answer, and the loss leaves out those of the padding: what these do to others is learned, too."""
    sequence, answers = padded.sequence, sequences.by_position(output, padded.sequence)
    if answers is None or sequences.aligned(sequence, bench.target) is None or not sequence.is_tokens:
        return False
    last = torch.arange(sequence.length, device=answers.device) >= sequence.length - padded.runs.to(answers.device)[:, None]
    before = float(bench.loss(output, batches.copied(bench.target)))
    padding, others = (abs(_loss_shaken(bench, output, sequence, at) - before) for at in (last, ~last))
    return padding <= TOLERANCE * abs(before) < others


def _loss_shaken(bench: Bench, output: Any, sequence: Sequence, places: Tensor) -> float:
    """The loss with other answers at some places."""
    answers = sequences.by_position(output, sequence)
    assert answers is not None
    at = places.reshape(*places.shape, *[1] * (answers.dim() - 2))
    changed = mapped(output, lambda t: _shaken(t, at, sequence) if sequences.by_position(t, sequence) is not None else t)
    return float(bench.loss(changed, batches.copied(bench.target)))


def _shaken(tensor: Tensor, at: Tensor, sequence: Sequence) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(tensor.shape, generator=generator).to(tensor.device, tensor.dtype) * (tensor.std() + 1)
    noise_by_position = sequences.by_position(noise, sequence)
    assert noise_by_position is not None
    noise_by_position.mul_(at)  # a view of it
    return tensor + noise


def _counts(outcome: Outcome, share: float, **facts: Any) -> ExperimentRecord:
    kind = "padding counts"
    fix = Remedy("padding in the loss" if "loss" in facts else kind)
    return record("padding", outcome, kind, fix, share=share, **facts)


def _shortened(bench: Bench, padded: Padded, output: Any) -> ExperimentRecord | None:
    """With padding cut off, the answers are others."""
    sequence, runs = padded.sequence, padded.runs
    cut = int(runs[runs > 0].double().quantile(0.5, interpolation="lower"))
    rows, left = (runs >= cut).nonzero().flatten(), sequence.length - cut
    if len(rows) < 2 or not left:
        return None

    def shorter(tensor: Tensor) -> Tensor:
        if tensor.dim() > 1 and tensor.shape[:2] == sequence.tensor.shape[:2]:
            return tensor[rows, :left]
        return tensor[rows] if tensor.dim() and tensor.shape[0] == sequence.samples else tensor

    after = _by_sample(bench.steadily(mapped(bench.inputs, shorter)), Sequence(sequence.tensor[rows, :left]))
    before = _by_sample(output, sequence)
    if before is None or after is None:
        return None
    before = before[rows]
    if before.dim() > 1 and after.dim() > 1 and before.shape[1] == sequence.length and after.shape[1] == left:
        before = before[:, :left]
    if before.shape != after.shape:
        return None
    apart = float((before - after).square().mean().sqrt())
    spread = float((after - after.mean(0)).square().mean().sqrt())
    if apart <= TOLERANCE * spread + 1e-6 * float(after.abs().max()):
        return None
    share, moves = float(runs.double().mean()) / sequence.length, apart / (spread or 1.0)
    return _counts("failed" if moves > STRONG and share > MUCH else "unclear", share, moves=moves, cut=float(cut))
