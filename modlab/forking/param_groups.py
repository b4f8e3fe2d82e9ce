"""Parameter groups of optimizers: whether PyTorch takes other settings, told by a trial on one number."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import Parameter
from torch.optim import Optimizer

from modlab.inspection.optimizers import needs_closure
from modlab.running.guarded import line_of

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
