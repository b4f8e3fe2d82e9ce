"""Layers that do something else in training: what dropout leaves, and what statistics a BatchNorm has of so many samples."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import Module

from modlab.compat import FunctionMode
from modlab.diagnosing import batches
from modlab.diagnosing.outcomes import NotRunError, record
from modlab.diagnosing.random_draws import DROPOUTS
from modlab.diagnosing.trials import Bench
from modlab.inspection.findings.layer_families import AVERAGING, BATCH_NORMS
from modlab.inspection.findings.subject import ModuleSite
from modlab.records.finding import ExperimentRecord, Remedy
from modlab.running.listener import Listener

MOST, MORE = 0.9, 0.8
"""Dropout of `MOST` takes nearly everything; above `MORE` it is worth a look."""
FEW = 4
"""With fewer values a channel, a mean and a variance say nothing."""
SLOW = 1e-3
"""Momentum below which running statistics follow in no training of thousands of steps."""
SETTLED, APART = 100, 3.0
"""After so many batches a mean that lies so many deviations from that of the batch does not follow."""


class LargestDropout(FunctionMode):
    """Observes one pass: the largest share that a dropout function takes."""

    def __init__(self) -> None:
        super().__init__()
        self.most: tuple[float, str] = (0.0, "")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the function unchanged, and look at its arguments."""
        kwargs = kwargs or {}
        if func in DROPOUTS:
            share = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
            training = kwargs.get("training", args[2] if len(args) > 2 else True)
            if training and isinstance(share, (int, float)):
                self.most = max(self.most, (float(share), DROPOUTS[func]))
        return func(*args, **kwargs)


def modes(bench: Bench) -> ExperimentRecord:
    """In training, dropout leaves enough, and each BatchNorm sees enough values and keeps up with them."""
    if not bench.subject.sites[0].training:
        raise NotRunError("not in training")
    norms: list[tuple[ModuleSite, Tensor]] = []
    dropped: list[tuple[float, ModuleSite]] = []
    seen = LargestDropout()

    def note(module: Module, args: tuple[Any, ...]) -> None:
        site, first = bench.subject.by_module.get(id(module)), next(batches.tensors(args), None)
        if site is not None and first is not None and site.training and issubclass(type(module), AVERAGING):
            norms.append((site, first.detach().clone()))
        if site is not None and site.training and isinstance(site.held.get("p"), float):
            dropped.append((site.held["p"], site))

    with seen:
        Listener(note).during(bench.steadily)
    if not norms and not seen.most[1]:
        raise NotRunError("not in training")
    return _dropped(seen, dropped) or _normalized(norms) or record("modes", "passed", "enough is left")


def _dropped(seen: LargestDropout, dropped: list[tuple[float, ModuleSite]]) -> ExperimentRecord | None:
    share, function = seen.most
    if share < MORE or share == 1:  # of 1, a note tells
        return None
    site = next((site for p, site in dropped if p == share), None)
    kind, label = "too much dropout", "" if site is None else site.label
    return record(
        "modes", "failed" if share >= MOST else "unclear", kind, Remedy(kind), site=site, share=share, function=function, label=label
    )


def _normalized(norms: list[tuple[ModuleSite, Tensor]]) -> ExperimentRecord | None:
    for site, tensor in norms:
        if not issubclass(type(site.module), BATCH_NORMS) or tensor.dim() < 2:
            continue
        values = tensor.numel() // int(tensor.shape[1])
        facts: dict[str, Any] = {"class": site.type, "values": values}
        if values < FEW:
            return record("modes", "failed", "batch norm of one", Remedy("batch norm of one"), site=site, **facts)
        found = _lagging(site, tensor.double(), facts)
        if found is not None:
            return found
    return None


def _lagging(site: ModuleSite, tensor: Tensor, facts: dict[str, Any]) -> ExperimentRecord | None:
    """Running statistics that are far from those of the batch, and do not follow."""
    mean, momentum = site.own("_buffers").get("running_mean"), site.held.get("momentum")
    if mean is None or momentum is None:
        return None
    flat = tensor.movedim(1, 0).flatten(1)
    apart = float(((flat.mean(1) - mean.double()).abs() / (flat.std(1) + 1e-12)).max())
    count = site.own("_buffers").get("num_batches_tracked")
    steps, kind = 0 if count is None else int(count), "batch norm statistics"
    facts |= {"momentum": float(momentum), "apart": apart, "steps": steps}
    if momentum < SLOW and apart > 0.5:
        return record("modes", "failed", kind, Remedy(code=f"{site.code}.momentum = 0.1"), site=site, **facts)
    if steps >= SETTLED and apart > APART and momentum < 1:
        return record("modes", "unclear", kind, Remedy(kind), site=site, **facts)
    return None
