"""The order of a sequence: a model of attention alone does not see it, unless it is told of positions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn import Module

from modlab.compat import FunctionMode
from modlab.diagnosing import batches, duplicates, neighbours, sequences
from modlab.diagnosing.outcomes import NotRunError, record
from modlab.diagnosing.sequences import Sequence
from modlab.diagnosing.trials import Bench
from modlab.inspection.findings.subject import ModuleSite
from modlab.records.finding import ExperimentRecord, Remedy
from modlab.running import attention_graph
from modlab.running.autograd_nodes import walk
from modlab.running.listener import Listener
from modlab.running.values import mapped

ROUNDING = 1e-4
MOVED = 0.02
"""Deviation of what is added to weights."""
LEAST = 3
"""Squares that are no patches of an image yet."""


def order(bench: Bench) -> ExperimentRecord:
    """The same tokens in another order are answered differently, or the same patches of an image."""
    bench.evaluate()
    site, entries = _attention(bench)
    if site is None:
        raise NotRunError("no attention")
    sequence = next(sequences.of(bench), None)
    if sequence is None:
        return _of_patches(bench, site, entries)
    turn = torch.randperm(sequence.length, generator=torch.Generator().manual_seed(0)).to(sequence.tensor.device)
    shape = sequence.tensor.shape[:2]
    turned = mapped(bench.inputs, lambda tensor: tensor[:, turn] if tensor.dim() > 1 and tensor.shape[:2] == shape else tensor)
    if not all(_same(before, after, sequence, turn) for before, after in _passes(bench, turned)):
        return record("order", "passed", "order counts")
    return _judged(bench, sequence, site)


def _passes(bench: Bench, turned: Any) -> Iterator[tuple[Any, Any]]:
    """The outputs for the inputs, and for others; then both with other weights, for an embedding of positions may begin at zero."""
    yield bench.steadily(), bench.steadily(turned)
    generator = torch.Generator().manual_seed(0)
    for one in duplicates.exchanged(bench).values():
        if one.is_floating_point():
            one.data += MOVED * torch.randn(one.shape, generator=generator).to(one)
    yield bench.steadily(), bench.steadily(turned)


def _of_patches(bench: Bench, site: ModuleSite, entries: int) -> ExperimentRecord:
    """The same of an image that is cut into as many squares as attention gets entries; one of these may stand for the class."""
    image = next((one for one in batches.tensors(bench.inputs) if one.dim() == 4 and one.is_floating_point()), None)
    grid = None if image is None else _grid(image, entries) or _grid(image, entries - 1)
    if image is None or grid is None:
        raise NotRunError("no sequence")
    rows, columns = grid
    turn = torch.randperm(rows * columns, generator=torch.Generator().manual_seed(0)).to(image.device)
    samples, channels, height, width = image.shape
    squares = image.reshape(samples, channels, rows, height // rows, columns, width // columns).transpose(3, 4)
    turned = squares.flatten(2, 3)[:, :, turn].reshape(squares.shape).transpose(3, 4).reshape(image.shape)
    passes = _passes(bench, mapped(bench.inputs, lambda tensor: turned if tensor is image else tensor))
    pairs = (pair for before, after in passes for pair in zip(batches.tensors(before), batches.tensors(after), strict=True))
    if any(one.shape != other.shape or not _is_told(one) or not _is_near(one, other) for one, other in pairs):
        return record("order", "passed", "order counts")
    facts: dict[str, Any] = {"class": site.type, "length": len(turn), "needed": 0, "patches": True}
    return record("order", "unclear", "no positions", Remedy("no positions"), site=site, **facts)


def _grid(image: Tensor, number: int) -> tuple[int, int] | None:
    """How many rows and columns of squares an image of so many has; None where squares do not fill it."""
    height, width = image.shape[2:]
    side = math.isqrt(height * width // number) if number > LEAST else 0
    rows, columns = (height // side, width // side) if side else (0, 0)
    return (rows, columns) if rows * columns == number and (rows * side, columns * side) == (height, width) else None


def _is_told(output: Tensor) -> bool:
    """Whether samples get different outputs: else another order has nothing to change."""
    return output.is_floating_point() and float((output - output[:1]).abs().max()) > ROUNDING * float(output.abs().max())


def _is_near(one: Tensor, other: Tensor) -> bool:
    """Whether they are the same but for rounding, where both have numbers: padding alone may make NaN of a softmax."""
    known = one.isfinite() & other.isfinite()
    if not bool(known.any()):
        raise NotRunError("not a number")
    return float((one - other)[known].abs().max()) <= ROUNDING * float(one[known].abs().max())


def _judged(bench: Bench, sequence: Sequence, site: ModuleSite) -> ExperimentRecord:
    """Whether the order matters for the target: then it is missed."""
    kind, target = "no positions", bench.target
    counts = neighbours.of_order(sequence, target) if sequence.is_tokens and issubclass(type(target), Tensor) else None
    if counts is not None and not counts.needed:
        return record("order", "passed", "order does not matter", site=site)
    needed = counts is not None
    facts: dict[str, Any] = {"class": site.type, "length": sequence.length, "needed": int(needed)}
    if counts is not None:
        facts |= {"position": counts.position, "in order": counts.ordered, "unordered": counts.bag}
    return record("order", "failed" if needed else "unclear", kind, Remedy(kind), site=site, **facts)


def _same(before: Any, after: Any, sequence: Sequence, turn: Tensor) -> bool:
    """Whether all outputs are the same, those with one entry per position in the new order."""
    pairs = [*zip(batches.tensors(before), batches.tensors(after), strict=True)]
    if not pairs:
        raise NotRunError("no entry for each sample")
    for one, other in pairs:
        if not one.is_floating_point() or one.shape != other.shape:
            return False
        placed = sequences.by_position(one, sequence)
        ours, theirs = (one, other) if placed is None else (placed[:, turn], sequences.by_position(other, sequence))
        assert theirs is not None
        if not _is_near(ours, theirs):
            return False
    return True


def attends(bench: Bench) -> bool:
    """Whether something in the model attends: a module or function of torch's, or a softmax over positions by hand."""
    if _attention(bench)[0] is not None:
        return True
    with torch.enable_grad():
        outputs = [one for one in batches.tensors(bench.output()) if one.grad_fn is not None]
    return any(attention_graph.attentions(walk(one.grad_fn, {})) for one in outputs)


class _Attentions(FunctionMode):
    """Observes with how many entries the function of torch is called first; 0 if it is not."""

    def __init__(self) -> None:
        super().__init__()
        self.entries = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the function unchanged."""
        if func is F.scaled_dot_product_attention and args:
            self.entries = self.entries or int(args[0].shape[-2])
        return func(*args, **(kwargs or {}))


def _attention(bench: Bench) -> tuple[ModuleSite | None, int]:
    """The first module of attention that a pass calls, the model itself for the function, None if there is none; and its entries."""
    found: list[tuple[ModuleSite, int]] = []

    def note(module: Module, args: Any) -> None:
        site = bench.subject.by_module.get(id(module))
        if site is not None and args and issubclass(type(module), (nn.MultiheadAttention, nn.TransformerEncoderLayer)):
            attention: Any = module if isinstance(module, nn.MultiheadAttention) else module.self_attn
            found.append((site, int(args[0].shape[-2 if attention.batch_first else 0])))

    with _Attentions() as seen:
        Listener(note).during(bench.steadily)
    return found[0] if found else (bench.subject.sites[0] if seen.entries else None, seen.entries)
