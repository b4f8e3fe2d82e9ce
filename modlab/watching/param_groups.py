"""One value of all parameter groups: what a knob moves in the optimizers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.optim import SGD

from modlab.compat import without_autograd
from modlab.statistics.memory import is_there, local, number_of

LR, MOMENTUM, WEIGHT_DECAY = "lr", "momentum", "weight_decay"
BOUND = (LR, MOMENTUM, WEIGHT_DECAY)
"""Names of knobs that are values of an optimizer; Adam has its momentum as the first of ``betas``."""

_BETAS = "betas"


class GroupValue:
    """The same value in all groups of some optimizers: read as the greatest of them; when it is set, all keep their ratios.

    Args:
        name: one of `BOUND`.
        optimizers: those of now.

    Attributes:
        half_written: whether an interrupt came while they were set.
    """

    def __init__(self, name: str, optimizers: Callable[[], Sequence[Any]]) -> None:
        self.name, self._optimizers = name, optimizers
        self._base: list[float] = []  # what they held when somebody else had set them, whose ratios are kept
        self._set: list[float] = []  # what they hold since they were set here
        self.half_written = False

    @property
    def groups(self) -> list[tuple[Any, str]]:
        """The groups that have it, and under which name."""
        found = [group for optimizer in self._optimizers() for group in optimizer.param_groups]
        keys = (self.name, _BETAS) if self.name == MOMENTUM else (self.name,)  # as Adam has it
        return [(group, key) for group in found if (key := next((one for one in keys if group.get(one) is not None), ""))]

    @property
    def known(self) -> list[str]:
        """The optimizers, and what their groups have."""
        return [
            f"{type(one).__name__} has {', '.join(str(name) for name in one.param_groups[0] if name != 'params')}"
            for one in self._optimizers()
            if one.param_groups
        ]

    def objection(self, low: float, high: float) -> str:
        """Why an optimizer would fail in such a range; empty where none would."""
        for optimizer in self._optimizers() if self.name == MOMENTUM else ():
            name, group = type(optimizer).__name__, optimizer.param_groups[0]
            if group.get(MOMENTUM) is None and _BETAS in group and not 0 <= low < high < 1:
                return f"{name} has its momentum in betas, which must be at least 0 and less than 1"
            if MOMENTUM in group and not isinstance(optimizer, SGD) and (low <= 0 or not _number(group[MOMENTUM])):
                return f"{name} keeps what momentum needs only if it begins with some, so its momentum must stay greater than 0"
        return ""

    def read(self) -> float:
        """The greatest now; NaN where no group has it."""
        most, name = -math.inf, self.name
        for optimizer in self._optimizers():
            for group in optimizer.param_groups:
                held = group.get(name)
                if held is None and name == MOMENTUM:
                    held = group.get(_BETAS)
                value = held if type(held) is float else -math.inf if held is None else _number(held)
                if value > most:
                    most = value
        return most if most > -math.inf else math.nan

    def write(self, value: float) -> None:
        """Make it the greatest; the others keep the part of it that they had."""
        groups = self.groups
        held = [_number(group[key]) for group, key in groups]
        if held != self._set and not self.half_written:  # else rounding would add up, and zero would make all of them equal
            self._base = held
        most = max(self._base, default=0.0)
        self.half_written = True
        for (group, key), base in zip(groups, self._base, strict=True):
            _assign(group, key, _scaled(base, most, value))
        self._set = [_number(group[key]) for group, key in groups]
        self.half_written = False


def _scaled(base: float, most: float, value: float) -> float:
    """The part of `value` that `base` is of `most`: exactly `value` of the greatest, and exactly `base` where nothing changes."""
    if base == most or not (most > 0 and math.isfinite(most)):
        return value
    return base if value == most else base * value / most


def _number(held: Any) -> float:
    return number_of(held[0] if isinstance(held, (tuple, list)) else held)


def _assign(group: Any, key: str, value: float) -> None:
    """As a scheduler of torch's does it: a tensor stays the tensor that a captured or compiled step reads."""
    held = group[key]
    if isinstance(held, (tuple, list)):
        if isinstance(held[0], Tensor):
            _fill(held[0], value)
        else:
            group[key] = type(held)((value, *held[1:]))
    elif isinstance(held, Tensor):
        _fill(held, value)
    else:
        group[key] = value


def _fill(held: Tensor, value: float) -> None:
    if is_there(held):
        without_autograd(local(held).fill_, value)
