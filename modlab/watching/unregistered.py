"""Unregistered weights, in lists and other places where PyTorch does not see them, that get gradients, and that no optimizer holds."""

from __future__ import annotations

from typing import Any
from weakref import ReferenceType, ref

from torch import Tensor
from torch.nn import Module, Parameter

from modlab.compat import without_torch_function
from modlab.inspection.findings.registration import hidden
from modlab.inspection.findings.subject import Subject
from modlab.records.finding import Finding


class UnregisteredWeights:
    """What `diagnose` says of them, once a gradient has shown that they take part."""

    def __init__(self) -> None:
        self._optimizers: tuple[int, ...] | None = None
        self._found: list[tuple[Finding, list[ReferenceType[Tensor]]]] = []

    def findings(self, model: Module | None, optimizers: list[Any]) -> list[Finding]:
        """Those of which a weight has a gradient now: nobody zeroes it, so it stays. Searched once for each set of optimizers."""
        if model is not None and self._optimizers != tuple(map(id, optimizers)):
            self._optimizers = tuple(map(id, optimizers))
            with without_torch_function():
                self._found = _search(Subject(model, tuple(optimizers)))
        return [finding for finding, weights in self._found if any(_felt(one()) for one in weights)]


def _search(subject: Subject) -> list[tuple[Finding, list[ReferenceType[Tensor]]]]:
    broken = [finding for finding in hidden(subject) if finding.severity == "broken" and finding.kind == "hidden"]
    found = []
    for finding in broken:
        site = next(site for site in subject.suspicious if site.path == finding.module)
        name = finding.path.removeprefix(f"{site.path}.") if site.path else finding.path
        weights: list[ReferenceType[Tensor]] = [
            ref(tensor)
            for place, tensor, *_ in subject.finder.tensors(site.module)
            if place.startswith(name) and isinstance(tensor, Parameter) and not subject.owns(tensor)
        ]
        found.append((finding, weights))
    return found


def _felt(weight: Tensor | None) -> bool:
    return weight is not None and weight.grad is not None
