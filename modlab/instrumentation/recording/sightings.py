"""Tensors that a trace has met: which is which, and what was measured of each. None is kept alive."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any
from weakref import ref

import torch
from torch import Tensor

from modlab.inspection.entries import PLAIN
from modlab.inspection.values import layout
from modlab.instrumentation.values import Leaf, said
from modlab.records.tensor import TensorStats
from modlab.records.trace import Value
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
    return tuple(version_of(thing) for _, thing, _ in given if issubclass(type(thing), Tensor))


class Sightings:
    """Numbers tensors as they are met, and describes each once for as long as it does not change.

    Args:
        measured: whether values are measured, or shapes alone.
        owned: the names of parameters and buffers by identity; the values of large ones are not measured (a state table does that).
    """

    def __init__(self, measured: bool, owned: Mapping[int, str]) -> None:
        self.measured, self.owned = measured, owned
        self._met: dict[int, tuple[ref[Tensor], int, Value]] = {}  # by id: the tensor, its version then, what was said
        self._numbers: dict[int, int] = {}  # of parameters and buffers
        self._bases: dict[int, ref[Tensor]] = {}  # of views that were counted as new
        self._count = 0

    def values(self, leaves: Iterable[Leaf]) -> tuple[Value, ...]:
        """What is said of each leaf of a nest."""
        return tuple(self._value(*leaf) for leaf in leaves)

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

    def new_bytes(self, outputs: Iterable[Any], inputs: tuple[Value, ...], values: tuple[Value, ...]) -> int:
        """The bytes of those output tensors that are neither an input nor a view of a tensor that was met before."""
        before = {value.number for value in inputs}
        total = 0
        for thing, value in zip(outputs, values, strict=False):
            if not issubclass(type(thing), Tensor) or value.number in before:
                continue
            before.add(value.number)
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

    def _value(self, name: str, thing: Any, note: str) -> Value:
        if not issubclass(type(thing), Tensor):
            return Value(name, type(thing).__name__, text=said(thing), note=note)
        owner = self.owned.get(id(thing))
        return self._of_tensor(name, thing) if owner is None else self._of_owned(name, thing, owner)

    def _of_owned(self, name: str, tensor: Tensor, owner: str) -> Value:
        """A parameter or buffer: held elsewhere, so without a weak reference, which ``torch.utils.swap_tensors`` would refuse."""
        number = self._numbers.get(id(tensor))
        if number is None:
            self._count += 1
            number = self._numbers[id(tensor)] = self._count
        if torch.nn.parameter.is_lazy(tensor):
            return Value(name, type(tensor).__name__, None, _word(tensor.dtype), _word(tensor.device), note=f"is {owner}, lazy")
        small = tensor.layout is torch.strided and not tensor.is_nested and tensor.numel() <= OWNED
        return self._describe(name, tensor, number, self.measured and small, f"is {owner}")

    def _of_tensor(self, name: str, tensor: Tensor) -> Value:
        found, version = self._met.get(id(tensor)), version_of(tensor)
        if found is None or found[0]() is not tensor:
            self._count += 1
            number = self._count
        elif version == found[1] != -1:
            known = found[2]
            if known.name == name and known.requires_grad == tensor.requires_grad:
                return known
            return _renamed(known, name, tensor.requires_grad)
        else:
            number = found[2].number
        value = self._describe(name, tensor, number, self.measured)
        self._met[id(tensor)] = ref(tensor), version, value
        return value

    def _describe(self, name: str, tensor: Tensor, number: int, measured: bool, note: str = "") -> Value:
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
        return Value(
            name, cls.__name__, shape, _word(tensor.dtype), _word(tensor.device), tensor.requires_grad, number, stats, numbers, note=note
        )  # fmt: skip


@lru_cache(maxsize=64)
def _word(thing: torch.dtype | torch.device) -> str:
    return str(thing).removeprefix("torch.")


def _renamed(value: Value, name: str, requires_grad: bool) -> Value:
    """The same tensor in another place; ``dataclasses.replace`` takes several times as long, and this is asked thousands of times."""
    return Value(
        name, value.kind, value.shape, value.dtype, value.device, requires_grad, value.number, value.stats, value.numbers, "", value.note
    )  # fmt: skip


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
