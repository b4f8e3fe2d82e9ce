"""Whether the samples of a batch see each other, as a check with a verdict."""

from __future__ import annotations

from modlab.inspection.findings.families import BATCH_NORMS
from modlab.inspection.findings.subject import Site
from modlab.instrumentation.experiments import leaks
from modlab.instrumentation.experiments.outcomes import record
from modlab.instrumentation.experiments.trials import Bench
from modlab.records.finding import ExperimentRecord
from modlab.records.structure import ROOT


def leak(bench: Bench) -> ExperimentRecord:
    """In eval mode the output of a sample depends on its own input alone (in training mode BatchNorm mixes them on purpose)."""
    bench.subject.model.eval()
    found = leaks.find(bench, 0)
    if found is None:
        return record("leak", "passed", "in eval mode each output depends on its own input alone")
    what = f"in eval mode output {found.output} depends on input {found.input}"
    norm = next((site for site in bench.subject.sites if _uses_batch(site)), None)
    if norm is not None:
        return record(
            "leak", "failed", what, f"{norm.path or ROOT} ({norm.type}) keeps no running statistics, so it takes those of the batch in "
            "eval mode too.", f"nn.{norm.type}(..., track_running_stats=True)", norm,
        )  # fmt: skip
    try:
        along = leaks.find(bench, 1)
    except leaks.UnfitError:
        along = found
    if along is None:
        return record(
            "leak", "unclear", f"{what} along dimension 0; along dimension 1 nothing mixes",
            "Sequence first (batch_first=False)? Then dimension 1 is the batch, and all is well. If dimension 0 is your batch, samples see "
            "each other.", "nn.TransformerEncoderLayer(..., batch_first=True)",
        )  # fmt: skip
    return record(
        "leak", "failed", what,
        "Something in forward mixes along dimension 0: a mean, a softmax, a view or an attention over the wrong dimension. What the model "
        "says of one sample then depends on its neighbours.",
        "x.view(x.size(0), -1)  # keep dimension 0; softmax(dim=-1), batch_first=True",
    )  # fmt: skip


def _uses_batch(site: Site) -> bool:
    return issubclass(type(site.module), BATCH_NORMS) and site.own("_buffers").get("running_mean") is None
