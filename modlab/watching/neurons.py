"""The neurons and weights of a small net: its layers in order, and what they hold over time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from modlab.inspection import stores
from modlab.records.slots import Floats
from modlab.records.watch import ACTIVATION, GRADIENT, PARAMETER, Layer, NeuronsRecord
from modlab.watching.finiteness import is_plain
from modlab.watching.readback import Numbers
from modlab.watching.time_slots import TimeSlots

if TYPE_CHECKING:
    from modlab.watching.watch_index import WatchIndex, Weight

WIDE = 64
"""Units of a layer, and inputs of the first one."""

LAYERS = 6
SLOTS = 128

Flows = Mapping[tuple[str, str], Numbers]
"""What a sample saw of the layers, by role and path."""


class _Held:
    """One layer's numbers over time."""

    def __init__(self, path: str, weight: Weight, bias: Weight | float, units: int, inputs: int, turned: bool) -> None:
        self.path, self.weight, self.bias, self.turned = path, weight, bias, turned
        self.units, self.inputs = units, inputs
        # The last column is the bias: one tensor is one reading.
        self.table = np.zeros((SLOTS, units, inputs + 1), np.float32)
        self.activations, self.gradients = np.zeros((SLOTS, units), np.float32), np.zeros((SLOTS, units), np.float32)

    def matrix(self) -> Tensor | None:
        """The weights as they are now, units first; the last column is the bias."""
        now = self.weight.tensor()
        if now is None or not is_plain(now) or tuple(now.shape[:: -1 if self.turned else 1]) != (self.units, self.inputs):
            return None
        weights = now.data.float().T if self.turned else now.data.float()
        bias = self.bias if isinstance(self.bias, float) else self.bias.tensor()
        if isinstance(bias, Tensor) and bias.shape == (self.units,) and bias.device == weights.device and is_plain(bias):
            return torch.cat([weights, bias.data.float()[:, None]], dim=1)
        return torch.nn.functional.pad(weights, (0, 1), value=bias if isinstance(bias, float) else math.nan)

    @property
    def arrays(self) -> tuple[Floats, ...]:
        """All of them, slots first."""
        return self.table, self.activations, self.gradients


class Neurons:
    """The layers of a net that is small enough, or nothing."""

    def __init__(self) -> None:
        self._layers: list[_Held] = []
        self._paths: frozenset[str] = frozenset()
        self._now: frozenset[str] = frozenset()
        self._turn = -1
        self.slots = TimeSlots(SLOTS, self._halve, each=1)
        self.settled = False

    def begin(self) -> frozenset[str]:
        """A sample begins: the paths of the layers, if it is one that is kept; in a long run one for each slot is enough."""
        self._turn += 1
        self._now = self._paths if self._turn % self.slots.stride == 0 else frozenset()
        return self._now

    def settle(self, index: WatchIndex) -> None:
        """Find the layers, once the sizes of what goes in and out are known."""
        self.settled = True
        found: list[_Held] = []
        for member in index.members.values():
            module = member.module()
            if module is None or not member.called or isinstance(module, nn.Embedding):
                continue
            if len(found) > LAYERS:  # too many
                return
            held = stores.contents(module).get("_parameters") or {}
            matrices = [name for name, tensor in held.items() if isinstance(tensor, Tensor) and _is_matrix(tensor)]
            if len(matrices) == 1 and not stores.contents(module).get("_modules"):
                shape = tuple(held[matrices[0]].shape)
                inputs, units = member.sizes
                turned = not isinstance(module, nn.Linear) and shape == (inputs, units)
                if (turned or shape == (units, inputs)) and 0 < max(shape) <= WIDE:
                    weight = next((one for one in index.weights if one.owner() is module and one.name == matrices[0]), None)
                    if weight is not None:
                        found.append(_Held(member.path, weight, _bias_of(index, module, matrices[0], units), units, inputs, turned))
        chained = all(left.units == right.inputs for left, right in pairwise(found))
        if 1 < len(found) <= LAYERS and chained:
            self._layers = found
            self._paths = frozenset(one.path for one in found)

    def matrices(self) -> Iterator[tuple[str, Tensor]]:
        """By path the weights of each layer, units first, where this sample is one that is kept."""
        for layer in self._layers if self._now else ():
            matrix = layer.matrix()
            if matrix is not None:
                yield layer.path, matrix

    def add(self, step: int, flows: Flows) -> None:
        """Take in a sample: the activations, gradients and weights of the layers, by path."""
        if not self._layers or not all((ACTIVATION, layer.path) in flows for layer in self._layers):
            return
        self.slots.place(step)
        at = len(self.slots) - 1
        for layer in self._layers:
            matrix = flows.get((PARAMETER, layer.path))
            if matrix is not None:
                layer.table[at] = matrix
                layer.activations[at], layer.gradients[at] = flows[ACTIVATION, layer.path], flows.get((GRADIENT, layer.path), 0.0)

    def finish(self, step: int) -> None:
        """The weights as they are at the end; what flowed is what the last sample saw."""
        if not len(self.slots):
            return
        before = len(self.slots) - 1
        flows = [(layer.activations[before].copy(), layer.gradients[before].copy()) for layer in self._layers]
        self.slots.place(step)
        at = len(self.slots) - 1
        for layer, flow in zip(self._layers, flows, strict=True):
            layer.activations[at], layer.gradients[at] = flow
            matrix = layer.matrix()
            if matrix is not None:
                layer.table[at] = matrix.cpu().numpy()

    def record(self) -> NeuronsRecord | None:
        """What there is now."""
        used = len(self.slots)
        if not used:
            return None
        first, last = self.slots.bounds()
        return NeuronsRecord(first, last, tuple(_layer(one, used) for one in self._layers))

    def _halve(self) -> None:
        used = len(self.slots)
        for layer in self._layers:
            for array in layer.arrays:
                array[: used // 2] = (array[0:used:2] + array[1:used:2]) / 2


def _layer(held: _Held, used: int) -> Layer:
    weights, biases = held.table[:used, :, :-1].copy(), held.table[:used, :, -1].copy()
    return Layer(held.path, held.weight.path, weights, held.activations[:used].copy(), held.gradients[:used].copy(), biases)


def _bias_of(index: WatchIndex, module: nn.Module, matrix: str, units: int) -> Weight | float:
    """What is added to each unit: 0 where the module has no other parameter, NaN where it has anything but one number for each unit."""
    held = stores.contents(module).get("_parameters") or {}
    others = [name for name, tensor in held.items() if isinstance(tensor, Tensor) and name != matrix]
    if not others:
        return 0.0
    if len(others) > 1 or tuple(held[others[0]].shape) != (units,):
        return math.nan
    return next((one for one in index.weights if one.owner() is module and one.name == others[0]), math.nan)


def _is_matrix(tensor: Tensor) -> bool:
    return tensor.dim() == 2 and tensor.is_floating_point()


def by_unit(tensor: Tensor) -> Tensor:
    """The mean for each unit, over all inputs: shape ``(units,)``."""
    return tensor.detach().float().reshape(-1, tensor.shape[-1]).mean(dim=0)
