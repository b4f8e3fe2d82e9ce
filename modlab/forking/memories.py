"""What tensors lie in: one memory has many names (``.data``, ``.detach()``, a slice, a value of a state dict).

What is written by one of them is read by all. So a tape knows memories that depend on the weights, and each further name as a part of one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from modlab.compat import WeakStorage, inference, storage_again
from modlab.statistics.memory import PLAIN, is_there

WORD = 16
"""Bytes: where a memory begins at a multiple of it, a copy can have numbers of each dtype in the same places."""


class Part(NamedTuple):
    """How a tensor lies in its memory; `offset` in numbers of its dtype."""

    dtype: torch.dtype
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    trained: bool


def memory_of(tensor: Tensor) -> int:
    """The identity of what a tensor lies in, as long as that lives; 0 where it is not one plain memory."""
    if type(tensor) not in PLAIN:
        return 0
    try:
        return int(tensor.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):  # sparse, nested, a stand-in of torch.func
        return 0


def part_of(tensor: Tensor) -> Part | None:
    """How it lies in its memory; None where that does not tell what its numbers are."""
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
        return None
    size, stride = tuple(tensor.size()), tuple(tensor.stride())
    return Part(tensor.dtype, int(tensor.storage_offset()), size, stride, tensor.requires_grad and tensor.is_leaf)


def part_in(whole: Tensor, part: Part) -> Tensor:
    """The same part of another memory, of which a tensor is the whole."""
    with inference(False), torch.no_grad():
        made = torch.empty(0, dtype=part.dtype, device=whole.device)
        begins = whole.storage_offset() * whole.element_size() // part.dtype.itemsize
        made.set_(whole.untyped_storage(), begins + part.offset, part.size, part.stride)
    return made.requires_grad_(part.trained)


def is_whole(tensor: Tensor) -> bool:
    """Whether nothing else lies in its memory."""
    return part_of(tensor) is not None and not tensor.storage_offset() and tensor.untyped_storage().nbytes() == tensor.nbytes


def whole_of(tensor: Tensor) -> Tensor | None:
    """All of its memory, as bytes; None where a copy of it would not be like it."""
    storage = tensor.untyped_storage()
    if part_of(tensor) is None or not is_there(tensor) or storage.data_ptr() % WORD:
        return None
    return _bytes_of(storage)


def _bytes_of(storage: torch.UntypedStorage) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


class Memories:
    """The memories of which a numbered tensor is the whole."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[WeakStorage, int]] = {}  # while there is a weak reference, no other memory gets the identity
        self._adopted: set[int] = set()

    def of(self, tensor: Tensor) -> int | None:
        """The number of the whole in which a tensor lies; 0 where nothing stands for it in a fork, None where its memory is not known."""
        found = self._known.get(memory_of(tensor))
        return None if found is None else found[1]

    def lasts(self, memory: int) -> bool:
        """Whether what is written into it is not lost with who wrote it."""
        return memory in self._known

    def belong(self, tensor: Tensor, number: int) -> bool:
        """A tensor of the model has its memory, unless it shares it; whether the loop wrote into it before."""
        memory = memory_of(tensor)
        if not memory:
            return False
        adopted, shared = memory in self._adopted, self.is_of_the_model(tensor) and self._known[memory][1] != number
        self._known[memory] = WeakStorage(tensor.untyped_storage()), number * (is_whole(tensor) and not shared)
        self._adopted.discard(memory)
        return adopted

    def leave(self, tensor: Tensor) -> None:
        """It is the model's no more."""
        if self.is_of_the_model(tensor):
            del self._known[memory_of(tensor)]

    def move(self, tensor: Tensor, number: int) -> None:
        """A tensor of the model has another memory now."""
        self._known = {memory: one for memory, one in self._known.items() if one[1] != number}
        self.belong(tensor, number)

    def adopt(self, tensor: Tensor, number: int) -> None:
        """From now on its memory depends on the weights."""
        memory = memory_of(tensor)
        self._known[memory] = WeakStorage(tensor.untyped_storage()), number
        self._adopted.add(memory)

    def is_of_the_model(self, tensor: Tensor) -> bool:
        """Whether it lies in the memory of a tensor of the model."""
        memory = memory_of(tensor)
        return memory in self._known and memory not in self._adopted

    def let_go(self) -> None:
        """The model's tensors are told anew."""
        self._known = {memory: self._known[memory] for memory in self._adopted}

    def forget_gone(self) -> None:
        """Those that were adopted may be gone."""
        gone = [memory for memory in self._adopted if self._known[memory][0].expired()]
        for memory in gone:
            del self._known[memory]
        self._adopted.difference_update(gone)

    def numbers(self) -> set[int]:
        """Those of the wholes that were adopted."""
        return {self._known[memory][1] for memory in self._adopted}

    def adopted(self) -> Iterator[tuple[int, Tensor]]:
        """All numbers of those that were adopted and still live, each by the number of the whole."""
        for memory in self._adopted:
            weak, number = self._known[memory]
            storage = storage_again(weak)
            if number and storage is not None:
                yield number, _bytes_of(storage)
