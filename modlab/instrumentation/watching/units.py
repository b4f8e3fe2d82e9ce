"""Which units fire: how many inputs leave each one other than zero, after its activation function."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from modlab.compat import is_transformed
from modlab.instrumentation.watching.gauge import joinable
from modlab.instrumentation.watching.slots import Slots
from modlab.records.watch import UnitsRecord

MOST = 1024
"""Units of a module that are counted one by one."""

WINDOWS = 64
PENDING = 1 << 14
"""Numbers of small activations that are put aside before they are counted together."""

TOGETHER = 32
"""Activations counted together at most."""

SUSPECT = 100
"""Inputs in a row on which a unit is zero, from which on its gradient is looked at."""

DENSE = 32

SILENCING = frozenset({"ReluBackward0", "HardtanhBackward0", "HardswishBackward0", "ThresholdBackward0", "GluBackward0"})
"""Functions of the graph that give exact zeros; ``F.relu`` is one of them and no module."""

_SILENT_MODULES = (nn.ReLU, nn.ReLU6, nn.Hardtanh, nn.Threshold, nn.Hardswish)

_CHANNELS_FIRST = (
    nn.modules.conv._ConvNd,
    nn.modules.batchnorm._BatchNorm,
    nn.modules.instancenorm._InstanceNorm,
    nn.GroupNorm,
)


def is_silencing(module: Any) -> bool:
    """Whether a module gives exact zeros where a unit does not fire."""
    return isinstance(module, _SILENT_MODULES)


def is_silenced(function: Any) -> bool:
    """Whether a node of the graph is a function that does."""
    return type(function).__name__ in SILENCING


def axis_of(module: Any, dims: int) -> int:
    """Along which dimension the units of a module's output lie."""
    return 1 if isinstance(module, _CHANNELS_FIRST) and dims > 1 else dims - 1


class Units:
    """The units of one module.

    Args:
        path: of the module.
        read: where the activation is read.
        axis: of the units in the activation.
        count: of them.
    """

    def __init__(self, path: str, read: str, axis: int, count: int) -> None:
        self.path, self.read, self.axis, self.count = path, read, axis, count
        self.slots = Slots(WINDOWS, self._halve)
        self._inputs = np.zeros(WINDOWS, np.int64)
        self._fired = np.zeros((WINDOWS, count), np.int32)
        self.silent = np.zeros(count, np.int64)
        self.longest = np.zeros(count, np.int64)  # silence that ended
        self.flat = np.ones(count, bool)
        self.felt = 0  # gradients seen
        self.seen = 0
        self._pending: list[Tensor] = []
        self._pending_step = 0
        self._counting = threading.Lock()
        self._usual: torch.Size | None = None  # the shape of small activations

    def glance(self, activation: Tensor, step: int) -> None:
        """Take in an activation between two samples; as quickly as can be, for there are many."""
        if type(activation) is Tensor and activation.is_cpu and activation.shape == self._usual and not is_transformed(activation):
            self._put_aside(activation, step)
        elif activation.dim() > self.axis and activation.shape[self.axis] == self.count:
            self.see(activation, step)

    def see(self, activation: Tensor, step: int) -> None:
        """Take in one activation; small ones wait until there are some."""
        if joinable(activation):
            self._usual = activation.shape
            self._put_aside(activation, step)
            return
        fires = activation.detach() != 0
        self._take(self._by_unit(fires).to("cpu", torch.bool).numpy(), step)

    def _put_aside(self, activation: Tensor, step: int) -> None:
        self._pending.append(activation.data.clone())
        self._pending_step = step
        if len(self._pending) * activation.numel() >= PENDING or len(self._pending) >= TOGETHER:
            self.count_pending()

    def count_pending(self) -> None:
        """Count what was put aside; a page may ask for it in another thread."""
        with self._counting:
            pending, self._pending = self._pending, []
            if pending:
                self._count(pending)

    def _count(self, pending: list[Tensor]) -> None:
        if len({one.shape for one in pending}) == 1 and pending[0].dim() - 1 == self.axis:
            fires = torch.cat([one.reshape(-1, self.count) for one in pending]) != 0
            self._take(fires.numpy(), self._pending_step)
            return
        for one in pending:
            self._take(self._by_unit(one != 0).numpy(), self._pending_step)

    def feels(self) -> bool:
        """Whether gradients say anything: a unit has been silent long enough to be looked at."""
        return self.seen < DENSE or bool((self.silent > SUSPECT).any())

    def feel(self, gradient: Tensor) -> None:
        """Take in the gradient of the module's output: a unit that is dead has none."""
        axis = axis_like(gradient, self.count, self.axis)
        if axis is not None:
            self.felt += 1
            others = [dim for dim in range(gradient.dim()) if dim != axis]
            some = gradient.detach() != 0
            self.flat &= ~(some.any(dim=others) if others else some).cpu().numpy()

    def record(self) -> UnitsRecord:
        """What there is now."""
        self.count_pending()
        used = len(self.slots)
        first, last = self.slots.bounds()
        return UnitsRecord(
            self.path,
            self.read,
            first,
            last,
            self._inputs[:used].copy(),
            self._fired[:used].astype(np.int64),
            self.silent.copy(),
            self.flat.copy(),
        )

    def _by_unit(self, fires: Tensor) -> Tensor:
        """Shape ``(inputs, units)``: of a channel, whether it fires anywhere in an input's plane."""
        dims = fires.dim()
        if self.axis == dims - 1:
            return fires.reshape(-1, self.count)
        return fires.movedim(self.axis, 1).reshape(fires.shape[0], self.count, -1).any(dim=2)

    def _take(self, fires: npt.NDArray[np.bool_], step: int) -> None:
        inputs = len(fires)
        if not inputs:
            return
        if self.slots.place(step):
            self._inputs[len(self.slots) - 1] = 0
            self._fired[len(self.slots) - 1] = 0
        at = len(self.slots) - 1
        sums = fires.sum(axis=0)
        self._inputs[at] += inputs
        self._fired[at] += sums
        self.seen += inputs
        np.maximum(self.longest, self.silent, out=self.longest, where=sums > 0)
        since = np.where(sums > 0, fires[::-1].argmax(axis=0), self.silent + inputs)
        self.flat |= sums > 0  # a gradient that was zero counts only from the last time it fired
        self.silent = since.astype(np.int64)

    def _halve(self) -> None:
        used = len(self.slots)
        for held in (self._inputs, self._fired):
            held[: used // 2] = held[0:used:2] + held[1:used:2]


def axis_like(tensor: Tensor, count: int, axis: int) -> int | None:
    """The dimension of another tensor of the same module along which its units lie."""
    if tensor.dim() > axis and tensor.shape[axis] == count:
        return axis
    return tensor.dim() - 1 if tensor.dim() and tensor.shape[-1] == count else None
