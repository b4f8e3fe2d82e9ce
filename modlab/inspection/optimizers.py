"""Which optimizer holds which parameter, and how it treats it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from modlab.compat import is_leaf
from modlab.errors import NotAnOptimizerError
from modlab.inspection.checks import described
from modlab.inspection.entries import dtype_name
from modlab.records.state import OptimizerEntry, StateRecord
from modlab.statistics.memory import number_of

DEEP = 4
"""Wrappers around wrappers."""


def as_tuple(optimizer: Any, function: str = "state") -> tuple[torch.optim.Optimizer, ...]:
    """One optimizer, a sequence of them, or None → a tuple; `function` is who asks, for the error."""
    if optimizer is None:
        return ()
    given = tuple(optimizer) if isinstance(optimizer, (list, tuple, set)) else (optimizer,)
    for one in given:
        if not _is_optimizer(one):
            raise NotAnOptimizerError(
                f"optimizer= got {described(one)}, but needs a torch.optim.Optimizer (or several in a list).\n"
                f"  Write: modlab.{function}(model, torch.optim.SGD(model.parameters(), lr=0.1))"
            )
    return given


def steppers(optimizers: tuple[Any, ...]) -> tuple[Any, ...]:
    """Those that make the steps and call hooks then: of a trainer's wrapper (accelerate, Fabric, Lightning) the optimizer inside."""
    found: dict[int, Any] = {}
    for optimizer in optimizers:
        for one in _inside(optimizer, DEEP) or [optimizer]:
            found[id(one)] = one
    return tuple(found.values())


def step_all(optimizers: Sequence[Any], closure: Callable[[], Any]) -> None:
    """One step of each.

    Args:
        optimizers: those that evaluate the loss themselves, as LBFGS does, are given the closure.
        closure: zeroes the gradients, computes the loss, and calls its ``backward()``; called here where nobody asks for it.
    """
    asking = [one for one in optimizers if needs_closure(one)]
    if not asking:
        closure()
    for one in optimizers:
        one.step(closure) if one in asking else one.step()


def needs_closure(optimizer: Any) -> bool:
    """Whether its step cannot be made without one."""
    asked = inspect.signature(optimizer.step).parameters.get("closure")
    return asked is not None and asked.default is inspect.Parameter.empty


def _inside(optimizer: Any, deep: int) -> list[Any]:
    """The optimizers with hooks that a wrapper holds, under whatever names, or itself if it has them."""
    if getattr(type(optimizer).step, "hooked", None) if hasattr(type(optimizer), "step") else False:
        return [optimizer]
    try:
        held = object.__getattribute__(optimizer, "__dict__")
    except AttributeError:
        return []
    things = [thing for value in [*held.values()] for thing in (value if isinstance(value, (list, tuple)) else (value,))]
    inner = [one for one in things if one is not optimizer and _is_optimizer(one)] if deep else []
    return [found for one in inner for found in _inside(one, deep - 1)]


def _is_optimizer(thing: Any) -> bool:
    try:
        return not isinstance(thing, type) and hasattr(thing, "param_groups") and hasattr(thing, "state")
    except Exception:  # noqa: BLE001 - a stranger's object may raise anything
        return False


class Ownership:
    """The parameters of some optimizers, by identity."""

    def __init__(self, optimizers: tuple[torch.optim.Optimizer, ...]) -> None:
        self.labels: tuple[str, ...] = ()
        self._entries: dict[int, list[OptimizerEntry]] = {}
        self._held: list[tuple[str, int, Tensor]] = []
        names = [type(optimizer).__name__ for optimizer in optimizers]
        for i, optimizer in enumerate(optimizers):
            name = names[i] if names.count(names[i]) == 1 else f"{names[i]} {names[: i + 1].count(names[i])}"
            for number, group in enumerate(optimizer.param_groups):
                self._group(f"{name} #{number}", optimizer, group)

    def _group(self, label: str, optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> None:
        self.labels += (label,)
        for i, parameter in enumerate(group["params"]):
            state = optimizer.state.get(parameter, {})
            entry = OptimizerEntry(label, number_of(group.get("lr")), number_of(group.get("weight_decay", 0.0)), _state(state))
            self._entries.setdefault(id(parameter), []).append(entry)
            self._held.append((label, i, parameter))

    def of(self, tensor: Tensor | None, record: StateRecord) -> dict[str, Any]:
        """The optimizer fields of a row."""
        if not self.labels or tensor is None:
            return {}
        entries = tuple(self._entries.get(id(tensor), ()))
        mark = ""
        if len(entries) > 1:
            mark = f"in {len(entries)} groups"
        elif not entries and record.kind in ("parameter", "attribute") and record.trainable and is_leaf(tensor):
            mark = "in no group"
        return {"optimizers": entries, "mark": mark}

    def orphans(self, model_tensors: set[int]) -> tuple[str, ...]:
        """What is held here and not by the model: a copy from before the model was rebuilt, another model's."""
        return tuple(
            f"{label}, params[{i}]: {tuple(tensor.shape)} {dtype_name(tensor)}"
            for label, i, tensor in self._held
            if id(tensor) not in model_tensors
        )


def _state(state: Any) -> tuple[str, ...]:
    if not isinstance(state, dict):
        return ()
    return tuple(
        f"{name} {tuple(value.shape)}" if isinstance(value, Tensor) and value.dim() else str(name) for name, value in state.items()
    )
