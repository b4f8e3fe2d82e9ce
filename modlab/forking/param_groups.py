"""Parameter groups of optimizers: whether PyTorch takes other settings, told by a trial on one number."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import Parameter
from torch.optim import Optimizer

from modlab.forking.module_settings import Group
from modlab.inspection.optimizers import needs_closure
from modlab.running.guarded import line_of
from modlab.statistics.memory import number_of

Settings = Mapping[str, Any]


def refusal(optimizer: Optimizer, params: list[Any], before: Settings, after: Settings) -> tuple[str, bool]:
    """Why an optimizer of PyTorch's own does not take other settings, in a line, and whether a new one would take them.

    It checks them when it is made; and what it makes in its first step, as `amsgrad` has it, an older one lacks. "" if it takes them, or
    if that cannot be told.
    """
    if not type(optimizer).__module__.startswith("torch.optim") or not params or _trouble(optimizer, params[0], before, before):
        return "", False
    if why := _trouble(optimizer, params[0], after, after):
        return why, False
    return (_trouble(optimizer, params[0], before, after) if optimizer.state else ""), True


class JoinedGroups:
    """Groups that a change has added to an optimizer: of their settings the tape knows nothing.

    Where the loop moves the rates of all others in one proportion, theirs follow, as most of PyTorch's schedulers would have it.

    Args:
        before: the settings of the groups that were there.
        count: how many were added behind them.

    Attributes:
        fate: what became of their rates: "scheduled", "alone" (the others' moved, but not in one proportion), or "" if none moved.
    """

    def __init__(self, before: Sequence[Settings], count: int) -> None:
        self._rates, self._count, self.fate = [_rate(one) for one in before], count, ""

    def among(self, groups: list[Group], held: Sequence[Settings]) -> list[Group]:
        """The loop's groups, and in their places the added ones, with the settings to put in."""
        known = len(self._rates)
        factor = self._moved([_rate(settings) for settings, _ in groups[:known]])
        added = held[known : known + self._count]
        own: list[Group] = [({"lr": _rate(one) * factor} if factor != 1 and "lr" in one else {}, ()) for one in added]
        return [*groups[:known], *own, *groups[known:]]

    def _moved(self, rates: list[float]) -> float:
        """By how much the rates of the others have moved; 1 if not at all, or not in one proportion."""
        before, self._rates = self._rates, rates
        factors = [now / old if old else math.inf for now, old in zip(rates, before, strict=True)]
        if all(factor == 1 for factor in factors) or rates == before:
            return 1.0
        is_one = all(math.isfinite(factor) and math.isclose(factor, factors[0], rel_tol=1e-6) for factor in factors)
        self.fate = "scheduled" if is_one and self.fate != "alone" else "alone"
        return factors[0] if is_one else 1.0


def _rate(settings: Settings) -> float:
    return number_of(settings.get("lr", 0.0))


def plain_step(optimizer: Optimizer) -> Callable[..., Any]:
    """The step of its class, past hooks on all optimizers: ours among them."""
    step: Any = type(optimizer).step
    plain: Callable[..., Any] = step.__wrapped__ if getattr(step, "hooked", False) else step
    return plain


def _trouble(optimizer: Optimizer, like: Any, first: Settings, then: Settings) -> str:
    """What comes of two steps of a new optimizer, the second one with other settings."""
    one = Parameter(torch.ones([1] * like.dim(), dtype=like.dtype, device=like.device))
    one.grad = torch.ones_like(one)
    known = inspect.signature(type(optimizer)).parameters
    kind: Any = type(optimizer)
    try:
        made = kind([one], **{name: value for name, value in first.items() if name in known and name != "params"})
        closure = [lambda: torch.ones(())] if needs_closure(made) else []
        for settings in (first, then):
            made.param_groups[0].update(settings)
            plain_step(made)(made, *closure)
    except Exception as error:  # noqa: BLE001 - whatever it raises is the answer
        return line_of(error)
    return ""
