"""A small net as units and weights: its layers in order, and what they hold over time."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor, nn

from modlab.inspection import stores
from modlab.instrumentation.watching.slots import Slots
from modlab.records.slots import Floats
from modlab.records.watch import Layer, NeuronsRecord

if TYPE_CHECKING:
    from modlab.instrumentation.watching.cast import Cast, Weight

WIDE = 64
"""Units of a layer, and inputs of the first one."""

LAYERS = 6
SLOTS = 128


class _Held:
    """One layer's numbers over time."""

    def __init__(self, path: str, weight: Weight, units: int, inputs: int, turned: bool) -> None:
        self.path, self.weight, self.turned = path, weight, turned
        self.weights = np.zeros((SLOTS, units, inputs), np.float32)
        self.activations, self.gradients = np.zeros((SLOTS, units), np.float32), np.zeros((SLOTS, units), np.float32)

    @property
    def arrays(self) -> tuple[Floats, ...]:
        """All of them, slots first."""
        return self.weights, self.activations, self.gradients


class Neurons:
    """The layers of a net that is small enough, or nothing."""

    def __init__(self) -> None:
        self._layers: list[_Held] = []
        self._paths: frozenset[str] = frozenset()
        self._now: frozenset[str] = frozenset()
        self._turn = -1
        self.slots = Slots(SLOTS, self._halve, each=1)
        self.settled = False

    def begin(self) -> None:
        """A sample begins: in a long run one for each slot is enough."""
        self._turn += 1
        self._now = self._paths if self._turn % self.slots.stride == 0 else frozenset()

    def wants(self, path: str) -> bool:
        """Whether a module is one of the layers, and this sample one that is kept."""
        return path in self._now

    def settle(self, cast: Cast) -> None:
        """Find the layers, once the sizes of what goes in and out are known."""
        self.settled = True
        found = []
        for member in cast.members.values():
            module = member.module()
            if module is None or not member.called or isinstance(module, nn.Embedding):
                continue
            held = stores.contents(module).get("_parameters") or {}
            matrices = [name for name, tensor in held.items() if isinstance(tensor, Tensor) and _is_matrix(tensor)]
            if len(matrices) == 1 and not stores.contents(module).get("_modules"):
                shape = tuple(held[matrices[0]].shape)
                inputs, units = member.sizes
                turned = not isinstance(module, nn.Linear) and shape == (inputs, units)
                if (turned or shape == (units, inputs)) and 0 < max(shape) <= WIDE:
                    weight = next((one for one in cast.weights if one.owner() is module and one.name == matrices[0]), None)
                    if weight is not None:
                        found.append(_Held(member.path, weight, units, inputs, turned))
        chained = all(left.weights.shape[1] == right.weights.shape[2] for left, right in pairwise(found))
        if 1 < len(found) <= LAYERS and chained:
            self._layers = found
            self._paths = frozenset(one.path for one in found)

    def add(self, step: int, last: dict[str, Tensor]) -> None:
        """Take in a sample: the activation and the gradient of each layer's output, by path."""
        if not self._layers or not all(layer.path in last for layer in self._layers):
            return
        self.slots.place(step)
        at = len(self.slots) - 1
        for layer in self._layers:
            matrix = layer.weight.tensor()
            if matrix is None or tuple(matrix.shape[:: -1 if layer.turned else 1]) != layer.weights.shape[1:]:
                continue
            now = matrix.data.float().cpu().numpy()
            numbers = now.T if layer.turned else now, _by_unit(last[layer.path]), _by_unit(last.get(f"{layer.path} gradient"))
            for array, number in zip(layer.arrays, numbers, strict=True):
                array[at] = number

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
            matrix = layer.weight.tensor()
            if matrix is not None and tuple(matrix.shape[:: -1 if layer.turned else 1]) == layer.weights.shape[1:]:
                now = matrix.data.float().cpu().numpy()
                layer.weights[at] = now.T if layer.turned else now

    def record(self) -> NeuronsRecord | None:
        """What there is now."""
        used = len(self.slots)
        if not used:
            return None
        first, last = self.slots.bounds()
        layers = (Layer(one.path, one.weight.path, *(array[:used].copy() for array in one.arrays)) for one in self._layers)
        return NeuronsRecord(first, last, tuple(layers))

    def _halve(self) -> None:
        used = len(self.slots)
        for layer in self._layers:
            for array in layer.arrays:
                array[: used // 2] = (array[0:used:2] + array[1:used:2]) / 2


def _is_matrix(tensor: Tensor) -> bool:
    return tensor.dim() == 2 and tensor.is_floating_point()


def _by_unit(tensor: Tensor | None) -> Floats | float:
    """The mean for each unit, over all inputs."""
    if tensor is None or not tensor.is_floating_point():
        return 0.0
    mean: Floats = tensor.float().reshape(-1, tensor.shape[-1]).mean(dim=0).cpu().numpy()
    return mean
