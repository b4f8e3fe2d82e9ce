"""What a copy of the model gives: one that loads the state_dict."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import Module

from modlab.inspection import stores
from modlab.inspection.findings.subject import Subject
from modlab.instrumentation.experiments import gaps
from modlab.instrumentation.experiments.outcomes import NotRunError, record
from modlab.instrumentation.experiments.trials import Bench, line_of
from modlab.records.finding import ExperimentRecord


def copied(bench: Bench) -> Module:
    """A copy of the model, hooks and all."""
    for site in bench.subject.sites:
        for name, value in site.held.items() if type(site.held) is dict else ():
            if issubclass(type(value), Tensor) and value.grad_fn is not None:
                site.held[name] = value.detach()  # what a utility computes before each pass; only leaves can be copied
    try:
        return copy.deepcopy(bench.model)
    except Exception as error:  # noqa: BLE001 - whatever is in the model may refuse in its own way
        raise NotRunError(f"the model cannot be copied: {line_of(error)}") from None


def round_trip(bench: Bench) -> ExperimentRecord:
    """A copy whose weights are all overwritten, and that loads the state_dict, gives the same output."""
    bench.model.eval()
    other = copied(bench)
    hidden = _overwrite(Subject(other))
    other.load_state_dict(bench.model.state_dict())
    one = bench.outputs()
    gap = gaps.gap(one, bench.outputs(other))
    if gap is None or gap <= gaps.ROUNDING * gaps.scale(one):
        return record("round trip", "passed", "equal bit by bit" if gap is None else "equal up to rounding")
    numbers = (("max_abs", gap),)
    if hidden:
        more = f" and {len(hidden) - 1} more" if len(hidden) > 1 else ""
        return record(
            "round trip", "failed", f"a copy that loads the state_dict differs: {hidden[0]}{more} is not in it",
            "A parameter that is not registered is not saved; the next time it starts with other numbers.", "list(model.state_dict())",
            path=hidden[0], places=tuple(hidden) if len(hidden) > 1 else (), numbers=numbers,
        )  # fmt: skip
    return record(
        "round trip", "failed", "a copy that loads the state_dict differs: what forward uses is not all in it, or not loaded from it",
        "A state_dict hook, or a _save_to_state_dict or _load_from_state_dict of its own, leaves something out.",
        "modlab.state(model)  # what is saved, and what is not", numbers=numbers,
    )  # fmt: skip


def _overwrite(subject: Subject) -> list[str]:
    """Other numbers in everything that is saved, and in hidden parameters, whose names are returned."""
    hidden = []
    with torch.no_grad():
        for site in subject.sites:
            transient = site.held.get("_non_persistent_buffers_set") or ()
            for name, tensor in stores.named_tensors(site.module):
                if name not in transient:
                    _other_numbers(tensor)
        for site in subject.suspicious:
            for place, tensor, _ in subject.finder.tensors(site.module):
                if issubclass(type(tensor), nn.Parameter):
                    _other_numbers(tensor)
                    hidden.append(f"{site.path}.{place}" if site.parent else place)
    return hidden


def _other_numbers(tensor: Tensor) -> None:
    if tensor.is_floating_point() and tensor.layout is torch.strided and not tensor.is_nested and not tensor.is_quantized:
        tensor.data = tensor.detach() * 0.5 + 0.25
