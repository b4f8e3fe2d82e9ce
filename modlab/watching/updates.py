"""What a step of the optimizer adds to each parameter, and how many elements have a gradient and do not move.

Of a DTensor: of this rank's part.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from modlab.statistics.memory import is_there, local
from modlab.watching.elements import EXACT, comparable, selection
from modlab.watching.readback import Numbers, ReadBack, exact, is_far, lengths
from modlab.watching.segments import starts_of
from modlab.watching.steps import Steps
from modlab.watching.watch_index import WatchIndex, Weight

Told = Callable[[int, float, bool], None]
"""Told of a parameter: its place; of the elements with a gradient, the share that did not move, NaN if none has one; whether any did."""


class UpdateGroup:
    """Parameters of one device and dtype, whose elements stand in one array.

    Attributes:
        places: their numbers, as given to `Updates.before`; `sizes`: the elements of each that are compared.
        before: shape ``(sum(sizes),)``: these elements, before the step; `gradients`: theirs, 0 where there is none.
        whole: whether these are all elements; `felt`: whether each parameter has a gradient.
    """

    def __init__(self, whole: bool) -> None:
        self.whole, self.felt = whole, True
        self.places: list[int] = []
        self.tensors: list[Tensor] = []
        self.sizes: list[int] = []
        self.before = self.gradients = torch.empty(0)

    def read(self) -> None:
        """Take down what there is."""
        some = [_gradient(tensor) for tensor in self.tensors]
        self.felt = all(one is not None for one in some)
        mine = [selection(local(tensor)) for tensor in self.tensors]
        self.sizes = [len(one) for one in mine]
        self.before = torch.cat(mine)
        self.gradients = torch.cat([torch.zeros_like(own) if one is None else selection(one) for one, own in zip(some, mine, strict=True)])

    def deltas(self) -> Tensor | None:
        """What was added since, shape ``(sum(sizes),)``; None if a parameter was resized, or its memory is gone."""
        if not all(map(is_there, self.tensors)):
            return None
        now = [selection(local(tensor)) for tensor in self.tensors]
        if [len(one) for one in now] != self.sizes:
            return None
        return torch.cat(now).sub_(self.before)  # in the parameters' own precision: what rounding swallowed did not move


class Updates:
    """Copies before the step, differences after it; all parameters of a device and dtype in one array."""

    def __init__(self) -> None:
        self._groups: list[UpdateGroup] = []

    def before(self, parameters: list[tuple[int, Tensor]]) -> list[UpdateGroup]:
        """Take down the numbers of parameters, each with its place, and of their gradients."""
        groups: dict[tuple[Any, ...], UpdateGroup] = {}
        for place, parameter in parameters:
            part = local(parameter)
            if comparable(part):
                whole = part.numel() <= EXACT
                kind = part.device, part.dtype, whole
                group = groups.get(kind) or groups.setdefault(kind, UpdateGroup(whole))
                group.places.append(place)
                group.tensors.append(parameter)
        self._groups = [*groups.values()]
        for group in self._groups:
            group.read()
        return self._groups

    def after(self, back: ReadBack, told: Told) -> list[tuple[UpdateGroup, Tensor]]:
        """What moved since, by groups; `told` is called for each parameter when that was read."""
        groups, self._groups = self._groups, []
        found = []
        for group in groups:
            deltas = group.deltas()
            if deltas is not None:
                _count(group, deltas != 0, group.gradients != 0, back, told)
                found.append((group, deltas))
        return found


class MovedElsewhere:
    """The parameters that something else moves than the optimizers that are known: each keeps a sum, which changes.

    Args:
        index: the parameters.
        steps: which know the optimizers.

    Attributes:
        paths: of those that were seen to move.
    """

    def __init__(self, index: WatchIndex, steps: Steps) -> None:
        self._index, self._steps = index, steps
        self.paths: set[str] = set()
        self._sums: dict[str, float] = {}  # of parameters that no step of the optimizer was seen to move

    def renew(self, present: list[tuple[int, Weight, Tensor]], back: ReadBack) -> None:
        """After a step: who is trained may have changed, and what our optimizer does not move another one may."""
        index = self._index
        doubtful = []
        if len(present) < len(index.weights):  # one was taken away
            for weight in index.weights:
                weight.trainable = False
        for _, weight, tensor in present:
            if index.is_new(weight, tensor):
                weight.begin_anew(tensor)
                self.paths.discard(weight.path)
                self._sums.pop(weight.path, None)
            weight.look(tensor)
            if weight.trainable and not (weight.felt and weight.owned and weight.moved):
                doubtful.append((weight, tensor))
        optimizers = self._steps.optimizers
        if optimizers and any(not weight.owned for weight, _ in doubtful):
            index.own(optimizers)
        for weight, tensor in doubtful:
            part = local(tensor)
            if weight.path not in self.paths and not weight.moved and comparable(part):
                back.ask(selection(part).to(exact(part.device)).sum(), partial(self._summed, weight.path))

    def _summed(self, path: str, read: Numbers) -> None:
        """If a sum has changed, something moves that parameter."""
        total = float(read)
        if path in self._sums and math.isfinite(total) and self._sums[path] != total:
            self.paths.add(path)
        self._sums[path] = total


def _count(group: UpdateGroup, moved: Tensor, felt: Tensor, back: ReadBack, told: Told) -> None:
    """Of each parameter, the elements that moved, that have a gradient, and that have one and stay."""

    def then(counts: Numbers) -> None:
        for place, moves, feels, stays in zip(group.places, *counts.astype(np.int64).tolist(), strict=True):
            told(place, stays / feels if feels else float("nan"), moves > 0)

    flags = torch.stack([moved, felt, felt & ~moved])
    if is_far(flags):
        counts = lengths(group.sizes, flags.device)
        back.ask(torch.stack([torch.segment_reduce(one.float(), "sum", lengths=counts, unsafe=True) for one in flags]), then)
    else:
        then(np.add.reduceat(flags.numpy(), starts_of(group.sizes), axis=1, dtype=np.int64))


def _gradient(parameter: Tensor) -> Tensor | None:
    if parameter.grad is None:
        return None
    gradient = local(parameter.grad)
    return gradient if gradient.shape == local(parameter).shape and comparable(gradient) else None
