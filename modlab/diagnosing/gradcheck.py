"""Gradcheck: gradients that come through an ``autograd.Function`` of the user's, beside the slope that finite differences find."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction

from modlab.diagnosing import duplicates
from modlab.diagnosing.backward_hooks import unhooked
from modlab.diagnosing.gradient_flow import groups
from modlab.diagnosing.outcomes import NotRunError, record
from modlab.diagnosing.trials import Bench, without_gradients
from modlab.inspection.findings.grouping import cover
from modlab.records.finding import ExperimentRecord, Outcome, Remedy
from modlab.running.autograd_nodes import walk
from modlab.running.randomness import states

SHARES = (1e-2, 3e-3, 1e-3)
"""Parts of the loss by which a step should change it: far above what float32 rounds, and several, for a slope is the same for all."""
ALIKE = 0.7
"""The least over the greatest of these slopes: a function that jumps has none."""
SEEN = 1e-4
"""Part of the loss below which a change is rounding."""
WITHIN = 0.05
"""Of a parameter's norm: a longer step says nothing of the slope here."""
OPPOSITE = -0.5
"""Slope over gradient, -1 where its sign is turned. Nearer 0 it may be one by chance, as of feedback by random weights."""
LIMIT_S = 5.0


def gradcheck(bench: Bench) -> ExperimentRecord:
    """Where a function has a backward of its own, no gradient that comes through it is the reverse of the slope."""
    put_back = states()
    with unhooked(bench):
        own = _functions(bench.value(bench.output()))
        if not own:
            raise NotRunError("no function of its own")
        other = duplicates.trained(bench)

        def loss() -> Tensor:
            put_back()
            value: Tensor = bench.value(bench.output(other))
            return value

        value, named = loss(), dict(other.named_parameters())
        if not torch.equal(value, loss()):
            raise NotRunError("drawn")
        trained = [held for held in bench.subject.trained if held.path in named]
        grads = torch.autograd.grad(value, [named[held.path] for held in trained], allow_unused=True)
        slopes = Slopes(lambda: float(without_gradients(loss)), float(value.detach()))
        turned = [
            held for held, grad in zip(trained, grads, strict=True) if grad is not None and slopes.is_opposite(named[held.path].data, grad)
        ]
    if not slopes.seen:
        raise NotRunError("no slope")
    if not turned:
        return record("gradcheck", "passed", "none reversed", seen=slopes.seen)
    group, kind = cover(turned, trained, "parameter")[0], "gradients overwritten"
    facts: dict[str, Any] = {"places": tuple(held.path for held in turned)} if len(turned) > 1 else {}
    facts |= {"turned": groups(turned, trained), "functions": own}
    outcome: Outcome = "failed" if bench.unlearned else "unclear"  # a gradient is reversed on purpose, too
    fix = Remedy(code=f"torch.autograd.gradcheck({own[0]}.apply, x.double().requires_grad_())  # x: a small input of it")
    return record("gradcheck", outcome, kind, fix, site=group.site, path=group.path, **facts)


def _functions(value: Tensor) -> tuple[str, ...]:
    """The names of the functions in its graph whose backward is written in Python, and not by PyTorch."""
    nodes: Iterator[Any] = (node for node, _ in walk(value.grad_fn, {}) if isinstance(node, BackwardCFunction))
    kinds = dict.fromkeys(getattr(node, "_forward_cls", torch.autograd.Function) for node in nodes)
    return tuple(one.__name__ for one in kinds if not one.__module__.startswith("torch."))


class Slopes:
    """Slopes of a loss along its gradients, by finite differences.

    Args:
        loss: computes it anew.
        now: its value.

    Attributes:
        seen: how many parameters have a slope that rounding does not hide.
    """

    def __init__(self, loss: Callable[[], float], now: float) -> None:
        self._loss, self._now, self._until = loss, abs(now), time.perf_counter() + LIMIT_S
        self.seen = 0

    def is_opposite(self, tensor: Tensor, grad: Tensor) -> bool:
        """Whether the loss falls along the gradient; False where that cannot be told, or no time is left."""
        ratios = [self._ratio(tensor, grad, share) for share in SHARES if time.perf_counter() < self._until]
        self.seen += any(map(math.isfinite, ratios))
        return len(ratios) == len(SHARES) and max(ratios) < OPPOSITE and max(ratios) < ALIKE * min(ratios)

    def _ratio(self, tensor: Tensor, grad: Tensor, share: float) -> float:
        """The slope over what the gradient says it is; NaN where rounding hides it."""
        length = float(grad.norm())
        if not math.isfinite(length) or not length:
            return math.nan
        step = min(share * self._now / length, WITHIN * (float(tensor.norm()) or 1.0))
        if not step * length > SEEN * self._now:
            return math.nan
        kept, way = tensor.clone(), grad / length
        tensor.add_(way, alpha=step)
        up = self._loss()
        tensor.copy_(kept).sub_(way, alpha=step)
        down = self._loss()
        tensor.copy_(kept)
        return (up - down) / (2 * step * length)
