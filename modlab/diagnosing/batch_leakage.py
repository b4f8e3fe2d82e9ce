"""Leakage between the samples of a batch: how one sample's output changes when another sample's input does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import Module

from modlab.diagnosing import batches
from modlab.diagnosing.backward_hooks import unhooked
from modlab.diagnosing.outcomes import NotRunError, record
from modlab.diagnosing.trials import Bench
from modlab.inspection.findings.layer_families import BATCH_NORMS
from modlab.inspection.findings.subject import ModuleSite
from modlab.records.finding import ExperimentRecord, Remedy
from modlab.running.listener import Listener
from modlab.running.randomness import Meter
from modlab.running.values import mapped
from modlab.statistics.memory import copied, is_gone

TOLERANCE = 1e-5
"""Relative difference of outputs that counts as rounding; for gradients, only exact zeros count as zero."""

_READERS = (nn.RNNBase, nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)

_Rows = list[Tensor | None]


class Leak(NamedTuple):
    """The output of one sample depends on the input of another."""

    output: int
    input: int


class Blindness(NamedTuple):
    """No output was found to depend on any input."""


def find(bench: Bench, dim: int) -> Leak | Blindness | None:
    """A leak along one dimension of inputs and outputs, None if there is none, or `Blindness` if nothing depends on the inputs.

    Raises:
        NotRunError: fewer than two samples, or no output with one entry per sample.
    """
    first = next((tensor for tensor in batches.tensors(bench.inputs) if _has_rows(tensor, dim)), None)
    if first is None:
        raise NotRunError("no dimension for samples")
    samples = int(first.shape[dim])
    if samples < 2:
        raise NotRunError("one sample")
    if any(_is_asked(tensor, dim, samples) for tensor in batches.tensors(bench.inputs)):
        found = _by_gradient(bench, dim, samples)
        if not isinstance(found, Leak):
            return found
        with unhooked(bench):  # a gradient that a hook makes says nothing of what depends on what
            return _by_gradient(bench, dim, samples)
    return _by_exchange(bench, dim, samples)


def _has_rows(tensor: Tensor, dim: int, samples: int | None = None) -> bool:
    """Whether it is a dense tensor with a dimension for this many samples."""
    return not tensor.is_nested and tensor.layout is torch.strided and tensor.dim() > dim and samples in (None, tensor.shape[dim])


def _is_asked(tensor: Tensor, dim: int, samples: int) -> bool:
    return (tensor.is_floating_point() or tensor.is_complex()) and _has_rows(tensor, dim, samples)


def _by_gradient(bench: Bench, dim: int, samples: int) -> Leak | Blindness | None:
    asked: list[Tensor] = []

    def prepared(tensor: Tensor) -> Tensor:
        if is_gone(tensor):
            return tensor
        copy = copied(tensor)
        if _is_asked(copy, dim, samples):
            asked.append(copy.requires_grad_())
            return copy * 1  # not a leaf: a model may change its input in place
        return copy

    output = batches.call(bench.model, mapped(bench.inputs, prepared))
    answers = [tensor for tensor in _answers(output, dim, samples) if tensor.requires_grad]
    if not answers:
        return _by_exchange(bench, dim, samples)
    seen = _seen(answers, asked, dim, samples) or [*range(samples)]
    sees = False
    for i in dict.fromkeys((seen[0], seen[len(seen) // 2], seen[-1])):  # the first, middle and last sample
        total = sum((mixed(answer.select(dim, i)) for answer in answers), start=torch.zeros((), device=answers[0].device))
        grads: tuple[Tensor | None, ...] = torch.autograd.grad(total, asked, retain_graph=True, allow_unused=True)
        for grad in grads:
            if grad is None:
                continue
            by_sample = grad.movedim(dim, 0).reshape(samples, -1)
            sees = sees or bool((by_sample != 0).any())
            touched = ((by_sample != 0) & by_sample.isfinite()).any(dim=1).tolist()
            other = next((j for j, reached in enumerate(touched) if reached and j != i), None)
            if other is not None:
                return Leak(i, other)
    return None if sees else _by_exchange(bench, dim, samples)  # a step or rounding function has no gradient, but may depend on its input


def _seen(answers: list[Tensor], asked: list[Tensor], dim: int, samples: int) -> list[int]:
    """The samples on which something in the output depends: units may be dead for all others."""
    total = sum((mixed(answer) for answer in answers), start=torch.zeros((), device=answers[0].device))
    grads: tuple[Tensor | None, ...] = torch.autograd.grad(total, asked, retain_graph=True, allow_unused=True)
    rows = [(grad.movedim(dim, 0).reshape(samples, -1) != 0).any(1) for grad in grads if grad is not None]
    return torch.stack(rows).any(0).nonzero().flatten().tolist() if rows else []


def mixed(answer: Tensor) -> Tensor:
    """A sum with a different weight for each value, so that nothing cancels (a sample's probabilities always add up to 1)."""
    answer = torch.view_as_real(answer) if answer.is_complex() else answer
    weights = torch.arange(1, answer.numel() + 1, device=answer.device, dtype=torch.float32).cos().to(answer.dtype)
    return (answer.reshape(-1) * weights).sum().to(torch.float32)


def _answers(output: Any, dim: int, samples: int) -> list[Tensor]:
    found = [t for t in batches.tensors(output) if _is_asked(t, dim, samples)]
    if not found:
        raise NotRunError("no entry for each sample", samples=samples)
    return found


def _by_exchange(bench: Bench, dim: int, samples: int) -> Leak | Blindness | None:
    """Give one sample another's input: the outputs of all other samples must not change."""
    before, sees = _passed(bench, bench.inputs, dim, samples), False
    for target, source in _exchanges(bench, dim, samples):
        changed = mapped(bench.inputs, lambda tensor, t=target, s=source: _exchanged(tensor, dim, samples, t, s))  # type: ignore[misc]
        try:
            after = _passed(bench, changed, dim, samples)
        except Exception:  # noqa: BLE001 - the user's model may raise anything for inputs put together here
            after = []
        if [one.shape for one in before] != [other.shape for other in after]:  # sorted lengths, or lengths that determine the output's
            raise NotRunError("no exchange")
        for one, other in zip(before, after, strict=True):
            sees = sees or not torch.equal(one, other)
            scale = float(one.abs().max()) or 1.0
            moved = ((one - other).abs().movedim(dim, 0).reshape(samples, -1).amax(dim=1) > TOLERANCE * scale).tolist()
            hit = next((k for k, is_moved in enumerate(moved) if is_moved and k != target), None)
            if hit is not None:
                return Leak(hit, target)
    return None if sees or _is_seen(bench, before, dim, samples) else Blindness()


def _is_seen(bench: Bench, before: list[Tensor], dim: int, samples: int) -> bool:
    """Whether the outputs change with the order of the samples: then some of them do depend on their input."""
    turned = mapped(bench.inputs, lambda tensor: tensor.flip(dim) if _has_rows(tensor, dim, samples) else tensor)
    try:
        after = _passed(bench, turned, dim, samples)
    except Exception:  # noqa: BLE001 - as above
        return False
    return any(one.shape == other.shape and not torch.equal(one, other) for one, other in zip(before, after, strict=False))


def sees_nothing(bench: Bench) -> bool:
    """Whether completely different inputs also give bitwise the same output; False if the model cannot take them."""
    generator = torch.Generator().manual_seed(0)

    def other(tensor: Tensor, size: float) -> Tensor:
        if tensor.is_floating_point() and tensor.layout is torch.strided and not tensor.is_nested:
            return (torch.randn(tensor.shape, generator=generator) * size).to(tensor.device, tensor.dtype)
        return tensor.flip(0) if tensor.dim() else tensor

    outputs = []
    for size in (0.0, 1.0, 1e4):
        inputs = mapped(bench.inputs, lambda tensor, size=size: other(tensor, size))  # type: ignore[misc]
        try:
            outputs.append(_passed(bench, inputs, 0, int(next(t for t in batches.tensors(inputs) if t.dim()).shape[0])))
        except Exception:  # noqa: BLE001 - the user's model may raise anything for such inputs
            return False
    return all(torch.equal(one, two) for some in outputs[1:] for one, two in zip(outputs[0], some, strict=True))


def loses(bench: Bench) -> Module | None:
    """The first module to end whose inputs depend on the batch while its outputs do not; None if unknown."""
    first = next(tensor for tensor in batches.tensors(bench.inputs) if tensor.dim())
    changed = mapped(bench.inputs, lambda tensor: tensor.flip(0) if tensor.dim() and tensor.shape[0] == first.shape[0] else tensor)
    before, after = (_followed(bench, inputs, 0, int(first.shape[0])) for inputs in (bench.inputs, changed))
    for (module, took, gave), (other, took_then, gave_then) in zip(before, after, strict=False):
        if module is not other:
            return None
        if not _alike(took, took_then) and _alike(gave, gave_then):
            return module
    return None


def _alike(before: _Rows, after: _Rows) -> bool:
    return len(before) == len(after) and all(
        one is not None and other is not None and torch.equal(one, other) for one, other in zip(before, after, strict=True)
    )


def begins(bench: Bench, dim: int, leak: Leak) -> Module | None:
    """The innermost module in which the leak begins: of that sample its inputs do not change yet, its outputs do; None if unknown."""
    first = next(tensor for tensor in batches.tensors(bench.inputs) if _has_rows(tensor, dim))
    samples = int(first.shape[dim])
    source = next(
        (j for j in range(samples) if j != leak.input and not torch.equal(first.select(dim, j), first.select(dim, leak.input))), None
    )
    if source is None:
        return None
    changed = mapped(bench.inputs, lambda tensor: _exchanged(tensor, dim, samples, leak.input, source))
    before, after = (_followed(bench, inputs, dim, samples) for inputs in (bench.inputs, changed))
    for (module, took, gave), (other, took_then, gave_then) in zip(before, after, strict=False):
        if module is not other:
            return None
        if not _is_reached(took, took_then, leak) and _is_reached(gave, gave_then, leak):
            return module
    return None


def _followed(bench: Bench, inputs: Any, dim: int, samples: int) -> list[tuple[Module, _Rows, _Rows]]:
    """For each call of one pass, in the order they end: the module, and one number per sample for its inputs and its outputs."""
    found: list[tuple[Module, _Rows, _Rows]] = []

    def note(module: Module, args: Any, kwargs: Any, output: Any) -> None:
        took, gave = ([_by_sample(t, dim, samples) for t in batches.tensors(thing)] for thing in ([args, kwargs], output))
        found.append((module, took, gave))

    Listener(leave=note).during(bench.steadily, inputs)
    return found


def _by_sample(tensor: Tensor, dim: int, samples: int) -> Tensor | None:
    """One number per sample; a single one if the tensor has no dimension for samples."""
    if not tensor.is_floating_point() or tensor.layout is not torch.strided or tensor.is_nested:
        return None
    own = tensor.dim() > dim and tensor.shape[dim] == samples
    rows = (tensor.movedim(dim, 0).reshape(samples, -1) if own else tensor.reshape(1, -1)).double()
    return rows @ torch.arange(1, rows.shape[1] + 1, device=rows.device, dtype=rows.dtype).cos()


def _is_reached(before: _Rows, after: _Rows, leak: Leak) -> bool:
    """Whether the entry of the sample changed that the leak reaches, whose own input did not."""
    for one, other in zip(before, after, strict=False):
        if one is None or other is None or one.shape != other.shape or len(one) == 1:
            continue
        moved = (one - other).abs() > TOLERANCE * (float(one.abs().max()) or 1.0)
        if bool(moved[leak.output]):
            return True
    return False


def _exchanges(bench: Bench, dim: int, samples: int) -> Iterator[tuple[int, int]]:
    """Pairs of samples that differ: the last is replaced by the first, and so on."""
    found = 0
    for target, source in ((samples - 1, 0), (0, samples - 1), (samples // 2, 0)):
        pairs = [t for t in batches.tensors(bench.inputs) if _has_rows(t, dim, samples)]
        if target != source and any(not torch.equal(t.select(dim, target), t.select(dim, source)) for t in pairs):
            found += 1
            yield target, source
    if not found:
        raise NotRunError("samples equal")


def _exchanged(tensor: Tensor, dim: int, samples: int, target: int, source: int) -> Tensor:
    if is_gone(tensor):
        return tensor
    copy = copied(tensor)
    if _has_rows(copy, dim, samples):
        copy.select(dim, target).copy_(copy.select(dim, source).clone())
    return copy


def _passed(bench: Bench, inputs: Any, dim: int, samples: int) -> list[Tensor]:
    return [
        answer.detach().to(torch.complex128 if answer.is_complex() else torch.float64)
        for answer in _answers(bench.steadily(inputs), dim, samples)
    ]


# ---- as a check with an outcome


def leak(bench: Bench) -> ExperimentRecord:
    """In eval mode a sample's output depends only on its own input (in training mode BatchNorm mixes samples on purpose)."""
    bench.evaluate()
    found = find(bench, 0)
    if isinstance(found, Blindness):
        found = _with_other_weights(bench)
        if isinstance(found, Blindness):
            return _blind(bench) if sees_nothing(bench) else record("leak", "unclear", "blind to this batch", Remedy("scale, or trace"))
        if found is None:
            return record("leak", "passed", "apart, with other weights")
    if found is None:
        return record("leak", "passed", "apart")
    mixed: dict[str, Any] = {"output": found.output, "input": found.input}
    site = _begin(bench, found)
    norm = site if site is not None and _uses_batch(site) else next((one for one in bench.subject.sites if _uses_batch(one)), None)
    if norm is not None and site in (None, norm):
        fix = Remedy(code=f"nn.{norm.type}(..., track_running_stats=True)")
        return record("leak", "unclear", "takes the batch's statistics", fix, site=norm, **mixed, **{"class": norm.type})
    try:
        along = find(bench, 1)
    except NotRunError:
        along = found
    if not isinstance(along, Leak):
        reader = next((one.type for one in bench.subject.sites if issubclass(type(one.module), _READERS)), "TransformerEncoderLayer")
        return record("leak", "unclear", "mixes dimension 0 alone", Remedy(code=f"nn.{reader}(..., batch_first=True)"), **mixed)
    begin: dict[str, Any] = {} if site is None else {"begin": site.label}
    return record("leak", "unclear", "samples mixed", Remedy("keep dimension 0"), site=site, **mixed, **begin)


NOISE = 0.1
"""Standard deviation of the noise added to each weight, relative to 1 plus its mean magnitude."""


def _with_other_weights(bench: Bench) -> Leak | Blindness | None:
    """The same with weights that are not zero; the user's weights are restored with everything else."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for held in bench.subject.trained:
            tensor = held.tensor
            if tensor.is_floating_point() and tensor.layout is torch.strided and tensor.is_leaf and not tensor.is_nested:
                tensor.data = tensor.detach() + _noise(tensor, generator)
    bench.evaluate()
    return find(bench, 0)


def _noise(tensor: Tensor, generator: torch.Generator) -> Tensor:
    drawn = torch.randn(tensor.shape, generator=generator) * NOISE
    return drawn.to(tensor.device, tensor.dtype) * (1.0 + tensor.detach().abs().mean())


def _blind(bench: Bench) -> ExperimentRecord:
    """The output is the same for any input."""
    meter = Meter(thorough=True)
    bench.outputs()
    if meter.used():
        return record("leak", "unclear", "blind, but drawn")
    try:
        lost = loses(bench)
    except Exception:  # noqa: BLE001 - as below
        lost = None
    site = None if lost is None else bench.subject.by_module.get(id(lost))
    module: dict[str, Any] = {"module": site.label} if site is not None and site.path else {}
    return record("leak", "failed", "blind", Remedy("trace what is lost"), site=site, **module)


def _begin(bench: Bench, found: Leak) -> ModuleSite | None:
    """The module in which samples are mixed, or None if unknown."""
    try:
        module = begins(bench, 0, found)
    except Exception:  # noqa: BLE001 - the user's model may raise anything for other inputs; then only the location is missing
        return None
    return None if module is None else bench.subject.by_module.get(id(module))


def _uses_batch(site: ModuleSite) -> bool:
    return issubclass(type(site.module), BATCH_NORMS) and site.own("_buffers").get("running_mean") is None
