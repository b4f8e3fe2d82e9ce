"""The classic checks that run the model: everything is as before afterwards, also where one of them fails."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy

from modlab import format
from modlab.compat import without_torch_function
from modlab.diagnosing import (
    batch_leakage,
    batches,
    duplicates,
    gradient_flow,
    initial_loss,
    overfit_one_batch,
    repeated_passes,
    traced_pass,
)
from modlab.diagnosing.loss_arguments import Comparisons
from modlab.diagnosing.outcomes import TITLES, NotRunError, not_run
from modlab.diagnosing.trials import Bench
from modlab.explaining.explain import explain
from modlab.inspection.distributed import distribution_of
from modlab.inspection.findings.layer_families import BATCH_NORMS
from modlab.inspection.findings.subject import Subject
from modlab.records.finding import ExperimentRecord, FindingRecord
from modlab.running.guarded import steady_line, without_addresses
from modlab.statistics.memory import is_there

CHECKS: dict[str, Callable[[Bench], ExperimentRecord]] = {
    "gradients": gradient_flow.gradients,
    "leak": batch_leakage.leak,
    "first loss": initial_loss.first_loss,
    "repeat": repeated_passes.repeat,
    "round trip": duplicates.round_trip,
    "overfit": overfit_one_batch.overfit,
}


class Results(NamedTuple):
    """What came out."""

    experiments: tuple[ExperimentRecord, ...]
    findings: tuple[FindingRecord, ...] = ()
    notes: tuple[FindingRecord, ...] = ()


def run(subject: Subject, inputs: Any, target: Any, loss: Any) -> Results:
    """Make all checks, one after the other, each on the model as it is now."""
    bench = Bench(subject, inputs, target, loss)
    reason = _unfit(subject, bench.model)
    if reason:
        return Results(tuple(not_run(kind, reason) for kind in TITLES))
    first = _first_pass(bench)
    found: list[ExperimentRecord] = []
    for kind, check in CHECKS.items():
        if kind in first.skipped:
            found.append(not_run(kind, first.why))
        elif kind == "round trip" and (found[-1].outcome == "failed" or found[-1].cause == "random numbers"):
            found.append(not_run(kind, "two passes differ as it is"))
        else:
            found.append(_made(bench, kind, check))
    return Results(tuple(found), first.findings, (*first.notes, *_notes(bench)))


def _notes(bench: Bench) -> tuple[FindingRecord, ...]:
    """What is to be said of this batch."""
    first = next((tensor for tensor in batches.tensors(bench.inputs) if tensor.dim()), None)
    norm = next((site for site in bench.subject.sites if issubclass(type(site.module), BATCH_NORMS) and site.training), None)
    if first is None or norm is None or first.shape[0] != 1:
        return ()
    return (
        FindingRecord(
            norm.path,
            norm.path,
            "batch of one",
            "note",
            f"{norm.path or 'the model'} ({norm.type})",
            "is in training mode, and the batch has one sample: mean and variance are those of this sample alone",
            "In training each sample is then normalised by itself, and in eval mode by running statistics, which is another function.",
            "DataLoader(..., drop_last=True)",
            extent=norm.type if norm.path else "",
        ),
    )


def _unfit(subject: Subject, model: Module) -> str:
    """Why the model cannot be run at all; nothing where it can."""
    spread = distribution_of(model)
    if spread.communicates:
        return (
            f"its passes talk to other ranks ({', '.join(spread.kinds)} over {spread.world}), and how many a check makes depends on this "
            f"rank's own numbers: a rank that makes fewer leaves the others waiting. Diagnose the model before it is spread"
        )
    if any(is_lazy(held.tensor) for held in subject.tensors):
        return "a lazy parameter has no shape until the first forward pass: run the model once"
    with without_torch_function():
        if any(held.tensor.is_meta or type(held.tensor).__name__ == "FakeTensor" for held in subject.tensors):
            return "tensors on the meta device have no values"
    return ""


def _made(bench: Bench, kind: str, check: Callable[[Bench], ExperimentRecord]) -> ExperimentRecord:
    try:
        return bench.kept(lambda: check(bench))
    except (NotRunError, batch_leakage.UnfitError) as reason:
        return not_run(kind, str(reason))
    except Exception as error:  # noqa: BLE001 - the user's model may raise anything, and that is the result
        if type(error) is RuntimeError and _REENTRANT in str(error):
            return not_run(kind, "checkpoint(..., use_reentrant=True) gives gradients by backward() alone; use_reentrant=False, here too")
        site = bench.where(error)
        at = f" at {site.label}" if site is not None and site.path else ""
        path = site.path if site is not None else ""
        return ExperimentRecord(path, path, kind, TITLES[kind], "failed", f"stops{at} with {steady_line(error)}")


class FirstPass(NamedTuple):
    """What one pass with its loss showed, and which checks cannot be made after it, and why."""

    findings: tuple[FindingRecord, ...] = ()
    notes: tuple[FindingRecord, ...] = ()
    skipped: frozenset[str] = frozenset()
    why: str = ""


_ALL = frozenset(TITLES)
_REENTRANT = "torch.utils.checkpoint is incompatible with .grad()"  # of torch's words for it; training does not meet that
_OF_THE_LOSS = frozenset({"gradients", "first loss", "overfit"})
SAID = 3  # warnings
_PLACE = " (Triggered internally at "  # a line of torch's own sources
_BROADCAST = "Using a target size"  # how torch's warning of it begins


def _first_pass(bench: Bench) -> FirstPass:
    """What goes wrong already in one pass."""
    stage = "forward"
    said: list[tuple[str, str]] = []

    def first() -> tuple[Any, Comparisons, FindingRecord | None]:
        nonlocal stage
        with _listening("the forward pass", said):
            output = bench.output()
        stage = "loss"
        target = batches.copied(bench.target)
        comparisons = Comparisons([*batches.tensors(output)], [*batches.tensors(target)])
        with _listening("the loss", said), comparisons:
            value = bench.loss(output, target)
        return value, comparisons, _not_a_number(bench, output, value)

    try:
        value, comparisons, broken = bench.kept(first)
    except Exception as error:  # noqa: BLE001 - the user's model may raise anything, and that is the result
        return FirstPass(
            (_failed(bench, error, stage),), _warnings(said, ()), _ALL, "the forward pass fails" if stage == "forward" else "the loss fails"
        )
    notes = _warnings(said, comparisons.found)
    if not issubclass(type(value), Tensor) or value.numel() != 1:
        return FirstPass((_no_number(value),), notes, _ALL, "the loss fails")
    if broken is None:
        return FirstPass((*comparisons.found,), notes)
    everything = broken.subject == "the output"
    return FirstPass((broken, *comparisons.found), notes, _ALL if everything else _OF_THE_LOSS, f"{broken.subject} is {broken.kind}")


@contextmanager
def _listening(subject: str, said: list[tuple[str, str]]) -> Iterator[None]:
    """What is warned of meanwhile, also what torch says once in a process alone."""
    always = torch.is_warn_always_enabled()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.set_warn_always(True)
        try:
            yield
        finally:
            torch.set_warn_always(always)
            said += [(subject, str(one.message)) for one in caught]


def _warnings(said: list[tuple[str, str]], found: tuple[FindingRecord, ...] | list[FindingRecord]) -> tuple[FindingRecord, ...]:
    """A note for each warning; that of a broadcast is a finding already."""
    messages = dict.fromkeys(
        (stage, without_addresses(all_of_it).strip().partition("\n")[0].partition(_PLACE)[0]) for stage, all_of_it in said
    )
    new = [(stage, message) for stage, message in messages if message and not (found and message.startswith(_BROADCAST))]
    return tuple(
        FindingRecord("", "", "warning", "note", stage, f"warns: {format.cut(message, 200)}", message if len(message) > 200 else "")
        for stage, message in new[:SAID]
    )


def _not_a_number(bench: Bench, output: Any, value: Any) -> FindingRecord | None:
    """An output with NaN, or a loss that is NaN or infinite; and what makes it."""
    of_output = any(bool(tensor.isnan().any()) for tensor in batches.tensors(output) if _has_nan(tensor))
    lost = issubclass(type(value), Tensor) and value.numel() == 1 and is_there(value) and not math.isfinite(float(value.detach()))
    if not of_output and not lost:
        return None
    word = "NaN" if of_output or math.isnan(float(value.detach())) else "infinite"
    path, words, where = traced_pass.first_nan(bench) if word == "NaN" else ("", "", "")
    made = f": {words} makes the first{f' at {where}' if where else ''}" if words else ""
    inputs = any(bool(tensor.isnan().any()) for tensor in batches.tensors(bench.inputs) if _has_nan(tensor))
    made = ": the batch has NaN in it already" if inputs else made
    return FindingRecord(
        path,
        path,
        word,
        "broken",
        "the output" if of_output else "the loss",
        f"{'has NaN in it' if of_output else f'is {word}'}{made}",
        "A log or a square root meets what is not positive, a division meets 0, a number is too large for its type, or a weight is NaN "
        "already. What meets NaN is NaN, gradients too: one step with them ends the training.",
        advice="Look at what it takes: modlab.trace(model) shows the range of each tensor on the way." if made else "",
    )


def _has_nan(tensor: Tensor) -> bool:
    return (tensor.is_floating_point() or tensor.is_complex()) and not tensor.is_nested and tensor.layout is torch.strided


def _no_number(value: Any) -> FindingRecord:
    got = f"a tensor of shape {tuple(value.shape)}" if issubclass(type(value), Tensor) else f"a {type(value).__name__}"
    return FindingRecord(
        "",
        "",
        "loss fails",
        "broken",
        "the loss",
        f"gives {got}, and needs to give one number",
        "backward() starts from one number; losses of torch give it with reduction='mean' or 'sum'.",
        advice="Let the loss end with .mean(), or make it with reduction='mean'.",
    )


def _failed(bench: Bench, error: Exception, stage: str) -> FindingRecord:
    """The forward pass or the loss raises: where, what, and why as far as that is known."""
    site = bench.where(error) if stage == "forward" else None
    path = site.path if site is not None else ""
    found, _ = explain(error)
    known = " ".join(found.sentence) if found.family else ""
    fix = found.fixes[0] if found.fixes and known else None
    at = f" at {path} ({site.type})" if site is not None and path else ""
    return FindingRecord(
        path,
        path,
        f"{stage} fails",
        "broken",
        "the forward pass" if stage == "forward" else "the loss",
        f"stops{at} with {steady_line(error)}",
        " ".join(part for part in (without_addresses(known), _explanation(bench, error)) if part)
        or f"The {stage} was called with the batch that was given.",
        fix.code if fix is not None else "",
        advice=without_addresses(fix.prose) if fix is not None else "",
    )


def _explanation(bench: Bench, error: BaseException) -> str:
    if "Expected more than 1 value per channel" in str(error):
        return "BatchNorm in training mode takes mean and variance over the batch, and a batch of one has no variance: drop_last=True."
    return ""
