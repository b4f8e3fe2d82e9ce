"""Backward hooks: do they leave the gradients where they would be without them?"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from modlab.compat import FunctionMode
from modlab.diagnosing.gradient_flow import groups
from modlab.diagnosing.lost_gradients import TINY, is_turned
from modlab.diagnosing.outcomes import NotRunError, record
from modlab.diagnosing.trials import Bench
from modlab.inspection.findings.grouping import cover
from modlab.inspection.findings.subject import Held, ModuleSite
from modlab.records.finding import ExperimentRecord, Outcome, Remedy
from modlab.running.randomness import states

STORES = ("_backward_hooks", "_backward_pre_hooks")
"""Of a module."""


class _WithoutTensorHooks(FunctionMode):
    """Tensors take no hook that changes their gradient while it is on; `refused`: how many would have taken one."""

    def __init__(self) -> None:
        super().__init__()
        self.refused = 0

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.Tensor.register_hook:
            self.refused += 1
            return RemovableHandle(OrderedDict())
        return function(*args, **(kwargs or {}))


@contextmanager
def unhooked(bench: Bench) -> Iterator[_WithoutTensorHooks]:
    """Passes of the model in here get gradients as they are: no backward hook stands on a module, and none comes to a tensor."""
    away = [(site.held, name, site.held[name]) for site in _hooked(bench) for name in STORES if site.held.get(name)]
    for held, name, _ in away:
        held[name] = OrderedDict()
    try:
        with _WithoutTensorHooks() as mode:
            yield mode
    finally:
        for held, name, hooks in away:
            held[name] = hooks


def _hooked(bench: Bench) -> list[ModuleSite]:
    return [site for site in bench.subject.sites if type(site.held) is dict and any(site.held.get(name) for name in STORES)]


def hooks(bench: Bench) -> ExperimentRecord:
    """With the hooks on modules, and on tensors between them, gradients point where they do without."""
    trained = [held for held in bench.subject.trained if held.tensor.is_leaf]
    sites, put_back = _hooked(bench), states()
    with unhooked(bench) as mode:
        value = bench.value(bench.output())
    if not sites and not mode.refused:
        raise NotRunError("no hooks")
    put_back()
    true, given = _gradients(value, trained), _gradients(bench.value(bench.output()), trained)
    pairs = [(held, one, own) for held, one, own in zip(trained, given, true, strict=True) if own is not None]
    most = max((float(own.norm()) for _, _, own in pairs), default=0.0)
    turned = [held for held, one, own in pairs if one is None or is_turned(one, own, TINY * most)]
    if not turned:
        return record("hooks", "passed", "hooks keep gradients")
    group, kind = cover(turned, trained, "parameter")[0], "gradients overwritten"
    facts: dict[str, Any] = {"places": tuple(held.path for held in turned)} if len(turned) > 1 else {}
    facts |= {"turned": groups(turned, trained), "modules": tuple(site.label for site in sites), "tensors": mode.refused}
    outcome: Outcome = "failed" if bench.unlearned else "unclear"  # a gradient is reversed on purpose, too
    return record("hooks", outcome, kind, Remedy(kind), site=group.site, path=group.path, **facts)


def _gradients(value: Tensor, trained: Sequence[Held]) -> tuple[Tensor | None, ...]:
    return torch.autograd.grad(value, [held.tensor for held in trained], allow_unused=True)
