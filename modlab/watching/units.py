"""Which units fire: how many inputs leave each one other than zero, after its activation function.

An input that gives NaN is not counted: it is not known whether a unit that gives NaN fires.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from modlab.compat import is_transformed
from modlab.records.watch import UnitsRecord
from modlab.running.autograd_nodes import name_of, rectifies
from modlab.statistics.memory import is_there
from modlab.watching import readback
from modlab.watching.batched_statistics import has_numbers
from modlab.watching.readback import Numbers, ReadBack
from modlab.watching.time_slots import TimeSlots

MOST = 1024
"""Units of a module that are counted one by one."""

WINDOWS = 64
PENDING = 1 << 14
"""Numbers of small activations that are put aside before they are counted together."""

TOGETHER = 128
"""Activations counted together at most."""

SUSPECT = 100
"""Inputs in a row on which a unit is zero, from which on its gradient is looked at."""

DENSE = 32

SILENCING = frozenset(("Hardswish", "Glu"))
"""Functions of the graph that give exact zeros, besides those that rectify; ``F.relu`` is one of these and no module."""

_SILENT_MODULES = (nn.ReLU, nn.ReLU6, nn.Hardtanh, nn.Threshold, nn.Hardswish)


def is_silencing(module: Any) -> bool:
    """Whether a module gives exact zeros where a unit does not fire."""
    return isinstance(module, _SILENT_MODULES)


def is_silenced(function: Any) -> bool:
    """Whether a node of the graph is a function that does."""
    return name_of(function) in SILENCING or rectifies(function)


class Units:
    """The units of one module.

    Args:
        path: of the module.
        read: where the activation is read.
        axis: of the units in the activation.
        count: of them.
        made: of the units in what the module returns, where that was laid out anew since.
    """

    def __init__(self, path: str, read: str, axis: int, count: int, made: int | None = None) -> None:
        self.path, self.read, self.axis, self.count = path, read, axis, count
        self.made = axis if made is None else made
        self.slots = TimeSlots(WINDOWS, self._halve)
        self._inputs = np.zeros(WINDOWS, np.int64)
        self._fired = np.zeros((WINDOWS, count), np.int32)
        self.fired, self.silent = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.longest = np.zeros(count, np.int64)  # silence that ended
        self.flat = np.ones(count, bool)
        self.felt = 0  # gradients seen
        self.seen = 0
        self._pending: list[Tensor] = []
        self._pending_step = 0
        self._counting = threading.Lock()
        self._usual: torch.Size | None = None  # the shape of small activations, and how many of them are counted together
        self._together = TOGETHER
        self._suspect = False

    def glance(self, activation: Tensor, step: int, back: ReadBack) -> None:
        """Take in an activation between two samples; as quickly as can be, for there are many."""
        if type(activation) is Tensor and activation.is_cpu and activation.shape == self._usual and not is_transformed(activation):
            if is_there(activation):
                self._put_aside(activation, step)
        elif activation.dim() > self.axis and activation.shape[self.axis] == self.count:
            self.see(activation, step, back)

    def see(self, activation: Tensor, step: int, back: ReadBack | None = None) -> None:
        """Take in one activation; small ones wait until there are some. `back` brings what is counted on an accelerator."""
        if not has_numbers(activation):
            return
        if activation.numel() <= PENDING and not readback.is_far(activation):
            if activation.shape != self._usual:
                self._usual, self._together = activation.shape, min(TOGETHER, -(-PENDING // activation.numel()))
            self._put_aside(activation, step)
            return
        numbers = self._by_unit(activation.detach())
        if back is not None and readback.is_far(activation):
            back.ask(_counted(_fires(numbers), _known(numbers)), partial(self._take, step))
        else:
            self._take_all(numbers, step)

    def _put_aside(self, activation: Tensor, step: int) -> None:
        self._pending.append(activation.data.clone())
        self._pending_step = step
        if len(self._pending) >= self._together:
            self.count_pending()

    def count_pending(self) -> None:
        """Count what was put aside."""
        with self._counting:
            pending, self._pending = self._pending, []
            if pending:
                self._count(pending)

    def _count(self, pending: list[Tensor]) -> None:
        if len({one.shape for one in pending}) == 1 and pending[0].dim() - 1 == self.axis:
            self._take_all(torch.stack(pending).view(-1, self.count), self._pending_step)
            return
        for one in pending:
            self._take_all(self._by_unit(one), self._pending_step)

    def feels(self) -> bool:
        """Whether gradients say anything: a unit has been silent long enough to be looked at."""
        return self.seen < DENSE or self._suspect

    def feel(self, gradient: Tensor, back: ReadBack | None = None) -> None:
        """Take in the gradient of the module's output: a unit that is dead has none."""
        axis = axis_like(gradient, self.count, self.made)
        if axis is None or not has_numbers(gradient):
            return
        self.felt += 1
        others = [dim for dim in range(gradient.dim()) if dim != axis]
        some = _any(gradient.detach(), others) if others else gradient.detach() != 0
        if back is not None and readback.is_far(gradient):
            back.ask(some, self._contradict)
        else:
            self._contradict(some.cpu().numpy())

    def _contradict(self, some: Numbers) -> None:
        self.flat &= some == 0

    def record(self) -> UnitsRecord:
        """What there is now, with what was put aside, which stays there; a page may ask for it in another thread."""
        with self._counting:
            twin = self._twin()
            if self._pending:
                twin._count(self._pending)
        used = len(twin.slots)
        first, last = twin.slots.bounds()
        fired = twin._fired[:used].astype(np.int64)
        return UnitsRecord(self.path, self.read, first, last, twin._inputs[:used], fired, twin.silent, twin.flat)

    def _twin(self) -> Units:
        """The same counts once more."""
        made = Units(self.path, self.read, self.axis, self.count, self.made)
        made.slots = self.slots.twin(made._halve)
        used = len(self.slots)
        made._inputs[:used], made._fired[:used] = self._inputs[:used], self._fired[:used]
        made.fired, made.silent, made.longest, made.flat = self.fired.copy(), self.silent, self.longest.copy(), self.flat.copy()
        made.seen, made._pending_step = self.seen, self._pending_step
        return made

    def _by_unit(self, activation: Tensor) -> Tensor:
        """The numbers of each unit, shape ``(inputs, units)``; of a channel ``(inputs, units, plane)``."""
        if self.axis == activation.dim() - 1:
            return activation.reshape(-1, self.count)
        return activation.movedim(self.axis, 1).reshape(activation.shape[0], self.count, -1)

    def _take_all(self, numbers: Tensor, step: int) -> None:
        if not len(numbers):
            return
        fires, known = (some.cpu().numpy() for some in (_fires(numbers), _known(numbers)))
        fires = fires if known.all() else fires[known]
        sums, inputs = fires.sum(axis=0), len(fires)
        latest = np.where(sums > 0, fires[::-1].argmax(axis=0), inputs) if inputs else sums
        self._take(step, np.stack([sums, latest, np.full_like(sums, inputs)]))

    def _take(self, step: int, counts: Numbers) -> None:
        """Add what `_counted` gives."""
        if self.slots.place(step):
            self._inputs[len(self.slots) - 1] = 0
            self._fired[len(self.slots) - 1] = 0
        at = len(self.slots) - 1
        sums, latest, known = counts.astype(np.int64)
        inputs = int(known[0])
        self._inputs[at] += inputs
        self._fired[at] += sums.astype(np.int32)
        self.fired += sums
        self.seen += inputs
        fires = sums > 0
        np.maximum(self.longest, self.silent, out=self.longest, where=fires)
        self.silent = np.where(fires, latest, self.silent + inputs)
        self.flat |= fires  # a gradient that was zero counts only from the last time it fired
        self._suspect = bool(self.silent.max() > SUSPECT)

    def _halve(self) -> None:
        used = len(self.slots)
        for held in (self._inputs, self._fired):
            held[: used // 2] = held[0:used:2] + held[1:used:2]


def _fires(numbers: Tensor) -> Tensor:
    """Whether each unit fires, shape ``(inputs, units)``: of a channel, whether it does so anywhere in an input's plane."""
    return numbers != 0 if numbers.dim() == 2 else _any(numbers, [2])


def _known(numbers: Tensor) -> Tensor:
    """Which inputs gave no NaN, shape ``(inputs,)``; of one that gave infinities of both signs nothing is known either."""
    return ~numbers.flatten(1).sum(dim=1).isnan()


def _counted(fires: Tensor, known: Tensor) -> Tensor:
    """For each unit, shape ``(3, units)``: on how many known inputs it fires, how many came after the last of these, and all of them."""
    fires = fires & known[:, None]
    back = known.flip(0).cumsum(dim=0)  # known inputs from the last one back
    latest = torch.where(fires.any(dim=0), back[fires.flip(0).to(torch.int8).argmax(dim=0)] - 1, back[-1])
    return torch.stack([fires.sum(dim=0), latest, back[-1].expand_as(latest)])


def _any(tensor: Tensor, dims: list[int]) -> Tensor:
    """Whether anything but zeros lies along some dimensions; of many numbers by extremes, which torch finds far more quickly."""
    if tensor.numel() <= PENDING:
        return (tensor != 0).any(dim=dims)
    return (tensor.amax(dim=dims) != 0) | (tensor.amin(dim=dims) != 0)


def axis_like(tensor: Tensor, count: int, axis: int) -> int | None:
    """The dimension of another tensor of the same module along which its units lie."""
    if tensor.dim() > axis and tensor.shape[axis] == count:
        return axis
    return tensor.dim() - 1 if tensor.dim() and tensor.shape[-1] == count else None
