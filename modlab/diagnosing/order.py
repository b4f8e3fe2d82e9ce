"""The order of a sequence: a model of attention alone does not see it, unless it is told of positions."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn import Module

from modlab.compat import FunctionMode
from modlab.diagnosing import batches, neighbours, sequences
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


def order(bench: Bench) -> ExperimentRecord:
    """The same tokens in another order are answered differently."""
    bench.evaluate()
    sequence = sequences.require(bench)
    site = _attention(bench)
    if site is None:
        raise NotRunError("no attention")
    turn = torch.randperm(sequence.length, generator=torch.Generator().manual_seed(0)).to(sequence.tensor.device)
    shape = sequence.tensor.shape[:2]
    turned = mapped(bench.inputs, lambda tensor: tensor[:, turn] if tensor.dim() > 1 and tensor.shape[:2] == shape else tensor)
    before, after = bench.steadily(), bench.steadily(turned)
    if not _same(before, after, sequence, turn):
        return record("order", "passed", "order counts")
    return _judged(bench, sequence, site)


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
        known = ours.isfinite() & theirs.isfinite()  # padding alone may make NaN of a softmax
        if not bool(known.any()):
            raise NotRunError("not a number")
        if float((ours - theirs)[known].abs().max()) > ROUNDING * float(ours[known].abs().max()):
            return False
    return True


def attends(bench: Bench) -> bool:
    """Whether something in the model attends: a module or function of torch's, or a softmax over positions by hand."""
    if _attention(bench) is not None:
        return True
    with torch.enable_grad():
        outputs = [one for one in batches.tensors(bench.output()) if one.grad_fn is not None]
    return any(attention_graph.attentions(walk(one.grad_fn, {})) for one in outputs)


class _Attentions(FunctionMode):
    """Observes whether the function of torch is called."""

    def __init__(self) -> None:
        super().__init__()
        self.called = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the function unchanged."""
        self.called = self.called or func is F.scaled_dot_product_attention
        return func(*args, **(kwargs or {}))


def _attention(bench: Bench) -> ModuleSite | None:
    """The first module of attention that a pass calls, the model itself for the function; None if there is none."""
    found: list[ModuleSite] = []

    def note(module: Module, args: Any) -> None:
        site = bench.subject.by_module.get(id(module))
        if site is not None and issubclass(type(module), (nn.MultiheadAttention, nn.TransformerEncoderLayer)):
            found.append(site)

    with _Attentions() as seen:
        Listener(note).during(bench.steadily)
    return found[0] if found else bench.subject.sites[0] if seen.called else None
