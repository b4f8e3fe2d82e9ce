"""Whether the samples of a batch see each other, as a check with a verdict."""

from __future__ import annotations

import torch
from torch import Tensor

from modlab.inspection.findings.families import BATCH_NORMS
from modlab.inspection.findings.subject import Site
from modlab.instrumentation.experiments import leaks
from modlab.instrumentation.experiments.outcomes import record
from modlab.instrumentation.experiments.trials import Bench
from modlab.records.finding import ExperimentRecord
from modlab.records.structure import ROOT


def leak(bench: Bench) -> ExperimentRecord:
    """In eval mode the output of a sample depends on its own input alone (in training mode BatchNorm mixes them on purpose)."""
    bench.evaluate()
    found = leaks.find(bench, 0)
    if isinstance(found, leaks.Blindness):
        found = _with_other_weights(bench)
        if isinstance(found, leaks.Blindness):
            return _blind(bench) if leaks.sees_nothing(bench) else _the_same_here()
        if found is None:
            return record(
                "leak", "passed", "in eval mode each output depends on its own input alone, asked with other weights: with these it "
                "depends on no input of this batch", "A layer of zeros does this until it has learnt; so do units that are dead for this "
                "batch, or a step that all of it lies on one side of.",
            )  # fmt: skip
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
    if not isinstance(along, leaks.Leak):
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


NOISE = 0.1
"""Standard deviation of what is added to each weight, beside its own spread."""


def _with_other_weights(bench: Bench) -> leaks.Leak | leaks.Blindness | None:
    """The same where no weight is zero; what the user has is put back with all else."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for held in bench.subject.trained:
            tensor = held.tensor
            if tensor.is_floating_point() and tensor.layout is torch.strided and tensor.is_leaf and not tensor.is_nested:
                tensor.data = tensor.detach() + _noise(tensor, generator)
    bench.evaluate()
    return leaks.find(bench, 0)


def _noise(tensor: Tensor, generator: torch.Generator) -> Tensor:
    drawn = torch.randn(tensor.shape, generator=generator) * NOISE
    return drawn.to(tensor.device, tensor.dtype) * (1.0 + tensor.detach().abs().mean())


def _blind(bench: Bench) -> ExperimentRecord:
    """What comes out is the same whatever goes in."""
    try:
        module = leaks.loses(bench)
    except Exception:  # noqa: BLE001 - as below
        module = None
    site = None if module is None else bench.subject.by_module.get(id(module))
    end = f": what {site.label} gives does not depend on what it takes" if site is not None and site.path else ""
    return record(
        "leak", "failed", f"the output does not depend on the input{end}",
        "With the inputs of other samples the output is the same to the bit, and no gradient leads back to them; with other weights too.",
        site=site, advice="Look for what is multiplied by zero, replaced or computed of something else: modlab.trace(model) shows the way.",
    )  # fmt: skip


def _the_same_here() -> ExperimentRecord:
    return record(
        "leak", "unclear", "in this batch no output depends on its input",
        "Other inputs would make a difference, those of this batch do not: units that are dead for all of them, or a step that they lie on "
        "one side of.", advice="Scale the inputs to about 1; modlab.trace(model) shows where they are lost.",
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
