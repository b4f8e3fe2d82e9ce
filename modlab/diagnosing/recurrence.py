"""Recurrence and attention in the order they expect: which dimension is the batch, what is read of a sequence, and how states grow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import Module

from modlab.diagnosing import batches, sequences
from modlab.diagnosing.batch_leakage import mixed
from modlab.diagnosing.outcomes import NotRunError, record
from modlab.diagnosing.sequences import Sequence
from modlab.diagnosing.trials import Bench
from modlab.inspection.findings.subject import ModuleSite
from modlab.records.finding import ExperimentRecord, Remedy
from modlab.running.listener import Listener

GROWTH, FACTOR = 1e3, 1.5
"""A recurrence explodes if its states grow by more than `FACTOR` in each step, and by more than `GROWTH` over the sequence."""


class Reading(NamedTuple):
    """One call of a layer that reads a sequence."""

    site: ModuleSite
    shape: tuple[int, ...]
    output: Tensor | None
    state: bool

    @property
    def time(self) -> int:
        """The dimension that the layer takes for positions."""
        return 1 if batch_first(self.site.module) else 0


def batch_first(module: Module) -> bool:
    """Whether a layer takes dimension 0 for the batch."""
    return bool(getattr(getattr(module, "self_attn", module), "batch_first", False))


def recurrence(bench: Bench) -> ExperimentRecord:
    """Each layer reads along the positions, all of them, and its states stay bounded."""
    readings: list[Reading] = []
    output = Listener(leave=lambda *call: readings.extend(_reading(bench, *call))).during(bench.output)
    if not readings:
        raise NotRunError("no recurrent layer")
    found = _mixed_up(bench, readings) or _forgetful(output, readings) or _exploding(readings)
    return found or record("recurrence", "passed", "reads its sequence", layers=len({id(one.site) for one in readings}))


_READERS = (nn.RNNBase, nn.MultiheadAttention, nn.TransformerEncoderLayer)


def _reading(bench: Bench, module: Module, args: Any, kwargs: Any, output: Any) -> Iterator[Reading]:
    site = bench.subject.by_module.get(id(module))
    given = [tensor for tensor in batches.tensors((args, kwargs)) if tensor.dim()]
    if site is None or not issubclass(type(module), _READERS) or not given or given[0].dim() != 3:
        return
    state = len(args) > 1 or (kwargs or {}).get("hx") is not None
    yield Reading(site, tuple(given[0].shape), next(batches.tensors(output), None), state)


def _mixed_up(bench: Bench, readings: list[Reading]) -> ExperimentRecord | None:
    """The batch's samples lie in the dimension that a layer takes for positions."""
    target = next((tensor for tensor in batches.tensors(bench.target) if tensor.dim()), None)
    if target is None:
        return None
    for one in readings:
        batch, samples = one.shape[1 - one.time], int(target.shape[0])
        if tuple(target.shape[:2]) in (one.shape[:2], one.shape[1::-1]):
            if _predicted_along(bench) != 1 - one.time:
                continue
        elif batch == samples or one.shape[one.time] != samples or (batch == 1 and _is_sentence(bench)):
            continue
        facts: dict[str, Any] = {"class": one.site.type, "time": one.time, "shape": one.shape, "first": int(not one.time)}
        code = f"nn.{one.site.type}(..., batch_first={one.time == 0})"
        return record("recurrence", "failed", "batch first mixed up", Remedy(code=code), site=one.site, **facts)
    return None


def _is_sentence(bench: Bench) -> bool:
    """Whether the input is one row of tokens: then its places are no samples."""
    first = next(batches.tensors(bench.inputs), None)
    return first is not None and first.dim() == 1 and not first.is_floating_point()


def _predicted_along(bench: Bench) -> int | None:
    """The dimension along which the target is what comes next, if there is one."""
    for sequence in sequences.of(bench):
        turned = Sequence(sequence.tensor.transpose(0, 1))
        if sequences.offset(sequence, bench.target) == 1:
            return 1
        target = bench.target
        if issubclass(type(target), Tensor) and target.dim() > 1 and sequences.offset(turned, target.transpose(0, 1)) == 1:
            return 0
    return None


def _forgetful(output: Any, readings: list[Reading]) -> ExperimentRecord | None:
    """Only the first output of a layer is read, or each of its steps begins without a state."""
    recurrent = [one for one in readings if issubclass(type(one.site.module), nn.RNNBase)]
    steps: dict[int, list[Reading]] = {}
    for one in recurrent:
        steps.setdefault(id(one.site), []).append(one)
    for calls in steps.values():
        if len(calls) > 1 and not any(one.state for one in calls) and all(one.shape[one.time] == 1 for one in calls):
            kind = "state not kept"
            return record("recurrence", "failed", kind, Remedy(kind), site=calls[0].site, calls=len(calls))
    for one in recurrent:
        if len(steps[id(one.site)]) == 1 and one.shape[one.time] > 1 and not one.site.module.bidirectional and _reads_first(output, one):
            facts: dict[str, Any] = {"read": "out[:, 0]" if one.time else "out[0]", "length": one.shape[one.time]}
            fix = Remedy(code="out[:, -1]" if one.time else "out[-1]")
            return record("recurrence", "failed", "state not kept", fix, site=one.site, **facts)
    return None


def _reads_first(output: Any, one: Reading) -> bool:
    """Whether a gradient of the model's output reaches the layer's output at its first position, and at no other."""
    answers = [tensor for tensor in batches.tensors(output) if tensor.requires_grad]
    if one.output is None or one.output.dim() != 3 or not one.output.requires_grad or not answers:
        return False
    total = sum((mixed(answer) for answer in answers), start=torch.zeros((), device=answers[0].device))
    (grad,) = torch.autograd.grad(total, [one.output], retain_graph=True, allow_unused=True)
    return grad is not None and _positions(grad, one.time) == [0]


def _positions(grad: Tensor, time: int) -> list[int]:
    touched: list[int] = (grad != 0).movedim(time, 0).flatten(1).any(1).nonzero().flatten().tolist()
    return touched


def _exploding(readings: list[Reading]) -> ExperimentRecord | None:
    """A recurrence that saturates nowhere, and whose states grow from step to step."""
    for one in readings:
        module = one.site.module
        if issubclass(type(module), nn.RNN) and module.nonlinearity == "relu":
            factor = max(float(torch.linalg.eigvals(w.detach().double()).abs().max()) for w in _recurrent_weights(module))
            if factor > FACTOR and factor ** one.shape[one.time] > GROWTH:
                facts: dict[str, Any] = {"factor": factor, "growth": factor ** one.shape[one.time], "length": one.shape[one.time]}
                fix = Remedy("exploding recurrence", f"nn.init.orthogonal_({one.site.code}.weight_hh_l0)")
                return record("recurrence", "failed", "exploding recurrence", fix, site=one.site, **facts)
    return None


def _recurrent_weights(module: Module) -> list[Tensor]:
    return [weight for name, weight in module.named_parameters() if name.startswith("weight_hh")]
