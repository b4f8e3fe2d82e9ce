"""The classic checks that run the model: everything is as before afterwards, also where one of them fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn.parameter import is_lazy

from modlab.compat import without_torch_function
from modlab.inspection.findings.families import BATCH_NORMS
from modlab.inspection.findings.subject import Subject
from modlab.instrumentation.experiments import arrivals, batches, duplicates, guesses, leaks, neighbours, rehearsals, repeats
from modlab.instrumentation.experiments.outcomes import TITLES, NotRunError, not_run
from modlab.instrumentation.experiments.trials import Bench, line_of
from modlab.records.finding import ExperimentRecord, FindingRecord
from modlab.records.structure import ROOT

CHECKS: dict[str, Callable[[Bench], ExperimentRecord]] = {
    "gradients": arrivals.gradients,
    "leak": neighbours.leak,
    "first loss": guesses.first_loss,
    "repeat": repeats.repeat,
    "round trip": duplicates.round_trip,
    "overfit": rehearsals.overfit,
}


class Results(NamedTuple):
    """What came out."""

    experiments: tuple[ExperimentRecord, ...]
    findings: tuple[FindingRecord, ...] = ()
    notes: tuple[FindingRecord, ...] = ()


def run(subject: Subject, inputs: Any, target: Any, loss: Any) -> Results:
    """Make all checks, one after the other, each on the model as it is now."""
    reason = _unfit(subject)
    if reason:
        return Results(tuple(not_run(kind, reason) for kind in TITLES))
    bench = Bench(subject, inputs, target, loss)
    failed = _first_pass(bench)
    if failed is not None:
        return Results(tuple(not_run(kind, f"the {failed.kind.partition(' ')[0]} fails") for kind in TITLES), (failed,))
    found: list[ExperimentRecord] = []
    for kind, check in CHECKS.items():
        if kind == "round trip" and found[-1].outcome == "failed":
            found.append(not_run(kind, "two passes differ as it is"))
            continue
        found.append(_made(bench, kind, check))
    return Results(tuple(found), notes=_notes(bench))


def _notes(bench: Bench) -> tuple[FindingRecord, ...]:
    """What is to be said of this batch."""
    first = next((tensor for tensor in batches.tensors(bench.inputs) if tensor.dim()), None)
    norm = next((site for site in bench.subject.sites if issubclass(type(site.module), BATCH_NORMS) and site.training), None)
    if first is None or norm is None or first.shape[0] != 1:
        return ()
    return (
        FindingRecord(
            norm.path, norm.path, "batch of one", "note", norm.path or "the model",
            f"({norm.type}) is in training mode, and the batch has one sample: mean and variance are those of this sample alone",
            "In training each sample is then normalised by itself, and in eval mode by running statistics, which is another function.",
            "DataLoader(..., drop_last=True)",
        ),
    )  # fmt: skip


def _unfit(subject: Subject) -> str:
    """Why the model cannot be run at all; nothing where it can."""
    if any(is_lazy(held.tensor) for held in subject.tensors):
        return "a lazy parameter has no shape until the first forward pass: run the model once"
    with without_torch_function():
        if any(held.tensor.is_meta or type(held.tensor).__name__ == "FakeTensor" for held in subject.tensors):
            return "tensors on the meta device have no values"
    return ""


def _made(bench: Bench, kind: str, check: Callable[[Bench], ExperimentRecord]) -> ExperimentRecord:
    try:
        with bench.kept():
            return check(bench)
    except (NotRunError, leaks.UnfitError) as reason:
        return not_run(kind, str(reason))
    except Exception as error:  # noqa: BLE001 - the user's model may raise anything, and that is the result
        site = bench.where(error)
        at = f" in {site.path or ROOT}" if site is not None else ""
        path = site.path if site is not None else ""
        return ExperimentRecord(path, path, kind, TITLES[kind], "failed", f"raises{at} {line_of(error)}")


def _first_pass(bench: Bench) -> FindingRecord | None:
    """What goes wrong already in one pass; None if nothing does."""
    stage = "forward"
    try:
        with bench.kept():
            output = bench.output()
            stage = "loss"
            value = bench.value(output)
    except Exception as error:  # noqa: BLE001 - the user's model may raise anything, and that is the result
        site = bench.where(error)
        path = site.path if site is not None and stage == "forward" else ""
        return FindingRecord(
            path, path, f"{stage} fails", "broken", "the forward pass" if stage == "forward" else "the loss",
            f"raises{f' in {path or ROOT}' if stage == 'forward' else ''} {line_of(error)}",
            _explanation(bench, error) or f"The {stage} was called with the batch that was given.",
            _call(bench, stage),
        )  # fmt: skip
    if not issubclass(type(value), Tensor) or value.numel() != 1:
        got = f"a tensor of shape {tuple(value.shape)}" if issubclass(type(value), Tensor) else f"a {type(value).__name__}"
        return FindingRecord(
            "", "", "loss fails", "broken", "the loss", f"gives {got}, and needs to give one number",
            "backward() starts from one number; losses of torch give it with reduction='mean' or 'sum'.", "loss = nn.CrossEntropyLoss()",
        )  # fmt: skip
    return None


def _call(bench: Bench, stage: str) -> str:
    if stage == "loss":
        return "loss(output, target)"
    if type(bench.inputs) in (tuple, list):
        return "model(*inputs)"
    return "model(**inputs)" if type(bench.inputs) is dict else "model(inputs)"


def _explanation(bench: Bench, error: BaseException) -> str:
    if "Expected more than 1 value per channel" in str(error):
        return "BatchNorm in training mode takes mean and variance over the batch, and a batch of one has no variance: drop_last=True."
    return ""
