"""Ids of the tensors that a trace has met: which is which, and what was measured of each. None is kept alive."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from weakref import ref

import torch
from torch import Tensor

from modlab.compat import is_transformed
from modlab.inspection.entries import PLAIN
from modlab.inspection.values import layout
from modlab.records.tensor import TensorStats
from modlab.records.trace import EventFact
from modlab.running.values import Leaf, said
from modlab.statistics import measure_tensor
from modlab.statistics.contents import sizes_of
from modlab.statistics.sharding import of_tensor
from modlab.tracing.calls import Seen, Sight, quick_seen, quick_sight

WRITTEN = 64  # elements up to which a tensor's numbers are noted
RAW = EventFact("raw")
"""Of memory into which nothing has been written yet."""

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


Memory = tuple[float, int]
"""What tensors lie in, one for all views of it: the event in which it was first met as an output (-1: as an input), and its bytes."""


class TensorIds:
    """Numbers tensors as they are met, and describes each once for as long as it does not change.

    Args:
        measured: whether values are measured, or shapes alone.
        owned: the names of parameters and buffers by identity; the values of large ones are not measured (a state table does that).
    """

    def __init__(self, measured: bool, owned: Mapping[int, str]) -> None:
        self.measured, self.owned = measured, owned
        self._met: dict[int, tuple[ref[Tensor], int, Sight, Memory]] = {}  # by id: the tensor, its version then, what was said
        self._numbers: dict[int, int] = {}  # of parameters and buffers
        self._memories: dict[int, tuple[ref[torch.UntypedStorage], Memory]] = {}  # by id of the storage
        self._placed: set[int] = set()  # parameters and buffers of which it is known what they lie in
        self._count = 0
        self._raw = False  # whether any memory was met in which nothing had been written
        self.accelerated = False  # whether any tensor was met that lies on an accelerator whose memory is counted

    def values(self, leaves: Iterable[Leaf], born: float = -1, raw: bool = False) -> tuple[Seen, ...]:
        """What is said of each leaf of a nest.

        Args:
            leaves: of the nest.
            born: the event that these are outputs of.
            raw: they are memory as it was found, in which whatever stands means nothing until it is written.
        """
        found = []
        for name, thing, note in leaves:
            if issubclass(type(thing), Tensor):
                version = version_of(thing)
                found.append(quick_seen((name, self._sight(thing, version, born, raw), thing.requires_grad, version)))
            else:
                found.append(Seen(name, Sight(type(thing).__name__, text=said(thing), note=note)))
        return tuple(found)

    def knows(self, tensor: Tensor) -> bool:
        """Whether the tensor was met before."""
        found = self._met.get(id(tensor))
        return found is not None and found[0]() is tensor

    def number(self, tensor: Tensor) -> int:
        """The one that the tensor has; 0 if it was not met."""
        found = self._met.get(id(tensor))
        return found[2].number if found is not None and found[0]() is tensor else self._numbers.get(id(tensor), 0)

    def _measured(self, tensor: Tensor) -> TensorStats:
        """Statistics; of a view that only lays the same numbers out anew, those of the tensor that it is a view of."""
        base = tensor._base
        found = None if base is None else self._met.get(id(base))
        if base is not None and found is not None and found[0]() is base and found[1] == version_of(tensor) != -1:
            known = found[2].stats
            if known is not None and known.measured and _same_numbers(tensor, base):
                return replace(known, shape=tuple(tensor.shape))
        return measure_tensor(tensor, histogram=False)

    def _is_raw(self, base: Tensor | None) -> bool:
        """Whether what a tensor is a view of is memory in which nothing has been written yet."""
        found = None if base is None else self._met.get(id(base))
        return base is not None and found is not None and found[2].note is RAW and found[0]() is base and found[1] == version_of(base) != -1

    def new_bytes(self, outputs: list[Leaf], values: tuple[Seen, ...], since: float) -> int:
        """The bytes of memory that output tensors lie in, and that was not met before an event: no input, and no view of what was there."""
        if len(outputs) == 1:
            found = self._met.get(id(outputs[0][1])) if values[0].version is not None else None
            return found[3][1] if found is not None and found[3][0] >= since else 0
        counted: dict[int, int] = {}
        for (_, thing, _), seen in zip(outputs, values, strict=False):
            found = self._met.get(id(thing)) if seen.version is not None else None
            if found is not None and found[3][0] >= since:
                counted[id(found[3])] = found[3][1]
        return sum(counted.values())

    def _memory(self, tensor: Tensor, born: float) -> Memory:
        """The one that a tensor lies in; by the identity of the storage, since meta tensors have no address."""
        try:
            storage = tensor.untyped_storage()
            found = self._memories.get(id(storage))
            if found is not None and found[0]() is storage:
                return found[1]
            memory = (born, storage.nbytes())
            self._memories[id(storage)] = ref(storage), memory
        except (RuntimeError, NotImplementedError, TypeError, ValueError):  # sparse, transformed, …: it has none of its own
            return born, 0 if is_transformed(tensor) else _bytes(tensor)
        return memory

    def _sight(self, tensor: Tensor, version: int, born: float, raw: bool) -> Sight:
        key = id(tensor)
        if key in self.owned:
            return self._of_owned(tensor, self.owned[key])
        found = self._met.get(key)
        if found is None or found[0]() is not tensor:
            self._count += 1
            number, memory = self._count, self._memory(tensor, born)
        elif version == found[1] != -1:
            return found[2]
        else:
            number, memory = found[2].number, found[3]
        self._raw = self._raw or raw
        raw = raw or (self._raw and self._is_raw(tensor._base))
        sight = self._describe(tensor, number, self.measured and not raw, RAW if raw else None)
        self._met[key] = ref(tensor), version, sight, memory
        return sight

    def _of_owned(self, tensor: Tensor, owner: str) -> Sight:
        """A parameter or buffer: held elsewhere, so without a weak reference, which ``torch.utils.swap_tensors`` would refuse."""
        number = self._numbers.get(id(tensor))
        if number is None:
            self._count += 1
            number = self._numbers[id(tensor)] = self._count
        if torch.nn.parameter.is_lazy(tensor):
            return Sight(type(tensor).__name__, None, tensor.dtype, tensor.device, owner=owner)
        if id(tensor) not in self._placed:
            self._placed.add(id(tensor))
            self._memory(tensor, -1)
        small = tensor.layout is torch.strided and not tensor.is_nested and tensor.numel() <= OWNED
        return self._describe(tensor, number, self.measured and small, owner=owner)

    def _describe(self, tensor: Tensor, number: int, measured: bool, note: EventFact | None = None, owner: str = "") -> Sight:
        self.accelerated = self.accelerated or tensor.is_cuda
        stats = numbers = None
        if measured:
            stats = self._measured(tensor)
            if stats.measured and 0 < stats.count <= WRITTEN:
                numbers, _ = layout(tensor, WRITTEN, WRITTEN)
        cls = type(tensor)
        plain = cls in PLAIN and tensor.layout is torch.strided and not tensor.is_nested
        lies = None if plain else of_tensor(tensor)
        if lies is not None:  # the shape is that of the whole, the statistics are of this rank's part
            shape = lies.shape
        else:
            shape = stats.shape if stats is not None else tuple(tensor.shape) if plain else sizes_of(tensor)[0]
        return quick_sight((cls.__name__, shape, tensor.dtype, tensor.device, number, stats, numbers, "", note, lies, owner))


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
        return int(tensor.numel()) * tensor.element_size()
    except (RuntimeError, NotImplementedError, TypeError, ValueError):  # lazy, symbolic, ragged
        return 0
