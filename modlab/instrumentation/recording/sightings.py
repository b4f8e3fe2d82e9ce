"""Tensors that a trace has met: which is which, and what was measured of each. None is kept alive."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from weakref import ref

import torch
from torch import Tensor

from modlab.inspection.entries import PLAIN
from modlab.inspection.values import layout
from modlab.instrumentation.recording.calls import Seen, Sight
from modlab.instrumentation.values import Leaf, said
from modlab.records.tensor import TensorStats
from modlab.statistics import measure_tensor
from modlab.statistics.contents import sizes_of

WRITTEN = 64  # elements up to which a tensor's numbers are noted
OWNED = 4096  # elements up to which a parameter or buffer is measured


def version_of(tensor: Tensor) -> int:
    """How often the tensor was changed in place; -1 where nobody counts (inference mode)."""
    try:
        return tensor._version
    except RuntimeError:
        return -1


def versions_of(given: Iterable[Leaf]) -> tuple[int, ...]:
    """The same of all tensors of a nest."""
    return tuple([version_of(thing) for _, thing, _ in given if issubclass(type(thing), Tensor)])


class Sightings:
    """Numbers tensors as they are met, and describes each once for as long as it does not change.

    Args:
        measured: whether values are measured, or shapes alone.
        owned: the names of parameters and buffers by identity; the values of large ones are not measured (a state table does that).
    """

    def __init__(self, measured: bool, owned: Mapping[int, str]) -> None:
        self.measured, self.owned = measured, owned
        self._met: dict[int, tuple[ref[Tensor], int, Sight]] = {}  # by id: the tensor, its version then, what was said
        self._numbers: dict[int, int] = {}  # of parameters and buffers
        self._bases: dict[int, ref[Tensor]] = {}  # of views that were counted as new
        self._count = 0

    def values(self, leaves: Iterable[Leaf]) -> tuple[Seen, ...]:
        """What is said of each leaf of a nest."""
        return tuple([self._value(*leaf) for leaf in leaves])

    def knows(self, tensor: Tensor) -> bool:
        """Whether the tensor was met before."""
        found = self._met.get(id(tensor))
        return found is not None and found[0]() is tensor

    def _measured(self, tensor: Tensor) -> TensorStats:
        """Statistics; of a view that only lays the same numbers out anew, those of the tensor that it is a view of."""
        base = tensor._base
        found = None if base is None else self._met.get(id(base))
        if base is not None and found is not None and found[0]() is base and found[1] == version_of(tensor) != -1:
            known = found[2].stats
            if known is not None and known.measured and _same_numbers(tensor, base):
                return replace(known, shape=tuple(tensor.shape))
        return measure_tensor(tensor, histogram=False)

    def new_bytes(self, outputs: list[Leaf], inputs: tuple[Seen, ...], values: tuple[Seen, ...]) -> int:
        """The bytes of those output tensors that are neither an input nor a view of a tensor that was met before."""
        before = [seen.sight.number for seen in inputs]
        total = 0
        for (_, thing, _), (_, sight, _, version) in zip(outputs, values, strict=False):
            if version is not None and sight.number not in before:
                before.append(sight.number)
                if self._is_new(thing):
                    total += _bytes(thing)
        return total

    def _is_new(self, tensor: Tensor) -> bool:
        """Whether it is no view, or the first one of what nobody else has met (a layer may give a view of what it computed)."""
        base = tensor._base
        if base is None:
            return True
        if id(base) in self.owned or self.knows(base):
            return False
        seen = self._bases.get(id(base))
        self._bases[id(base)] = ref(base)
        return seen is None or seen() is not base

    def _value(self, name: str, thing: Any, note: str) -> Seen:
        if not issubclass(type(thing), Tensor):
            return Seen(name, Sight(type(thing).__name__, text=said(thing), note=note))
        key, version, requires_grad = id(thing), version_of(thing), thing.requires_grad
        owner = self.owned.get(key)
        if owner is not None:
            return Seen(name, self._of_owned(thing, owner), requires_grad, version)
        found = self._met.get(key)
        if found is None or found[0]() is not thing:
            self._count += 1
            number = self._count
        elif version == found[1] != -1:
            return Seen(name, found[2], requires_grad, version)
        else:
            number = found[2].number
        sight = self._describe(thing, number, self.measured)
        self._met[key] = ref(thing), version, sight
        return Seen(name, sight, requires_grad, version)

    def _of_owned(self, tensor: Tensor, owner: str) -> Sight:
        """A parameter or buffer: held elsewhere, so without a weak reference, which ``torch.utils.swap_tensors`` would refuse."""
        number = self._numbers.get(id(tensor))
        if number is None:
            self._count += 1
            number = self._numbers[id(tensor)] = self._count
        if torch.nn.parameter.is_lazy(tensor):
            return Sight(type(tensor).__name__, None, tensor.dtype, tensor.device, note=f"is {owner}, lazy")
        small = tensor.layout is torch.strided and not tensor.is_nested and tensor.numel() <= OWNED
        return self._describe(tensor, number, self.measured and small, f"is {owner}")

    def _describe(self, tensor: Tensor, number: int, measured: bool, note: str = "") -> Sight:
        stats = numbers = None
        if measured:
            stats = self._measured(tensor)
            if not stats.measured:
                note = note or stats.note
            elif 0 < stats.count <= WRITTEN:
                numbers, _ = layout(tensor, WRITTEN, WRITTEN)
        cls = type(tensor)
        plain = cls in PLAIN and tensor.layout is torch.strided and not tensor.is_nested
        shape = stats.shape if stats is not None else tuple(tensor.shape) if plain else sizes_of(tensor)[0]
        return Sight(cls.__name__, shape, tensor.dtype, tensor.device, number, stats, numbers, "", note)


def _same_numbers(view: Tensor, base: Tensor) -> bool:
    """Whether a view holds each number of its base once: a reshaped or transposed one."""
    if not all(type(one) in PLAIN and one.layout is torch.strided and not one.is_nested for one in (view, base)):
        return False
    if view.dtype is not base.dtype or view.is_neg() or view.numel() != base.numel():
        return False
    return view.storage_offset() == base.storage_offset() and _dense(view) and _dense(base)


def _dense(tensor: Tensor) -> bool:
    """Whether the elements lie in memory without a gap and without sharing a place."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.size(), strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def _bytes(tensor: Tensor) -> int:
    try:
        return int(tensor.nbytes) if tensor.layout is torch.strided else int(tensor.numel()) * tensor.element_size()
    except (RuntimeError, NotImplementedError, TypeError, ValueError):  # lazy, symbolic, ragged
        return 0
