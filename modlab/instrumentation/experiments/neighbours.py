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
    site = _begin(bench, found)
    norm = site if site is not None and _uses_batch(site) else next((one for one in bench.subject.sites if _uses_batch(one)), None)
    if norm is not None and site in (None, norm):
        return record(
            "leak", "unclear", what, f"{norm.path or ROOT} ({norm.type}) keeps no running statistics, so it takes those of the batch in "
            "eval mode too. Meant, if batches are always like those of the training.", f"nn.{norm.type}(..., track_running_stats=True)",
            norm,
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
    start = "" if site is None else f", from {site.label or 'the forward of the model itself'} on"
    return record(
        "leak", "unclear", f"{what}{start}",
        "Meant where dimension 0 is no batch, or its entries are to see each other: the nodes of a graph, a set, a contrastive loss. Else "
        "something mixes along dimension 0: a mean, a softmax, a view or an attention over the wrong dimension.", site=site,
        advice="If each sample is to stand for itself: keep dimension 0 in each view, and give softmax and mean another dim.",
    )  # fmt: skip


def _begin(bench: Bench, found: leaks.Leak) -> Site | None:
    """The module in which samples are mixed, as far as that can be told."""
    try:
        module = leaks.begins(bench, 0, found)
    except Exception:  # noqa: BLE001 - the user's model may raise anything with another input; then only the place is missing
        return None
    return None if module is None else bench.subject.by_module.get(id(module))


def _uses_batch(site: Site) -> bool:
    return issubclass(type(site.module), BATCH_NORMS) and site.own("_buffers").get("running_mean") is None
