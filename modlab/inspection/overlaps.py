"""Overlaps of two tensors in one memory: ``nn.Parameter(w.t())``. What is one tensor under two names is tied, and not this."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from modlab.compat import without_torch_function
from modlab.statistics.memory import PLAIN, NoValuesError, require_values
from modlab.statistics.wrappers import is_wrapper


class _Span(NamedTuple):
    """Where a tensor lies in its memory, in bytes."""

    begin: int
    last: int  # the first byte of the last element
    end: int
    dense: bool  # without a gap


class Overlaps:
    """Tells of each parameter of a model whether it shares numbers with one that was met before."""

    def __init__(self) -> None:
        self._met: dict[int, tuple[Any, list[tuple[str, Tensor]]]] = {}  # by id: the memory, held so that its id stays its own

    def of(self, tensor: Tensor, path: str) -> str:
        """The path of the first such parameter; nothing where there is none, or where it is not certain.

        Args:
            tensor: met for the first time.
            path: its dotted name.
        """
        with without_torch_function():
            try:
                storage = tensor.untyped_storage()
            except (RuntimeError, NotImplementedError, TypeError, ValueError):  # sparse, lazy, …
                return ""
            others = self._met.setdefault(id(storage), (storage, []))[1]
            mine = _place(tensor) if others else None
            found = next((name for name, other in others if mine is not None and _share(mine, _place(other))), "")
            others.append((path, tensor))
        return found


def repeated(keys: Iterable[int]) -> set[int]:
    """Those that are there twice."""
    return {one for one, other in pairwise(sorted(keys)) if one == other}  # a set of tens of thousands would take several megabytes


def counted_again(tensors: list[Tensor]) -> int:
    """How many bytes a sum over tensors counts more than once, since several of them are views of one storage.

    Args:
        tensors: of a model; each counts once, however often it is there.
    """
    with without_torch_function():
        memories = [_memory(tensor) for tensor in tensors]
        shared = repeated(memories) - {0}
        held: dict[int, dict[int, Tensor]] = {memory: {} for memory in shared}
        for tensor, memory in zip(tensors, memories, strict=True) if shared else ():
            if memory in held:
                held[memory][id(tensor)] = tensor
        return sum(_excess([*some.values()]) for some in held.values() if len(some) > 1)


def _memory(tensor: Tensor) -> int:
    """Where its storage begins; 0 where it has none, or several, or is a wrapper around others."""
    try:
        return tensor.untyped_storage().data_ptr() if type(tensor) in PLAIN else 0
    except (RuntimeError, NotImplementedError):  # sparse, nested, …
        return 0


def _excess(tensors: list[Tensor]) -> int:
    """By how much the bytes of tensors in one storage exceed what they cover of it."""
    covered = reached = 0
    found = [(place, tensor.nbytes) for tensor in tensors if (place := _place(tensor)) is not None]
    for place, _ in sorted(found, key=lambda one: one[0].begin):
        covered += max(0, place.end - max(place.begin, reached))
        reached = max(reached, place.end)
    return max(0, sum(size for _, size in found) - covered)


def _share(one: _Span, other: _Span | None) -> bool:
    """Whether an element is certainly both's: the first or the last one of a tensor lies in another that has no gaps."""
    return other is not None and any(
        whole.dense and any(whole.begin <= byte < whole.end for byte in (part.begin, part.last))
        for whole, part in ((one, other), (other, one))
    )


def _place(tensor: Tensor) -> _Span | None:
    """Where a tensor lies; None for one that has no memory, or none that can be told (meta, fake, a shell around others)."""
    try:
        if is_wrapper(tensor) or tensor.is_nested or tensor.layout is not torch.strided:
            return None
        require_values(tensor)
        if not tensor.numel():
            return None
        size, begin = tensor.element_size(), int(tensor.storage_offset()) * tensor.element_size()
        steps = [(int(stride), int(length)) for stride, length in zip(tensor.stride(), tensor.size(), strict=True) if length > 1]
        last = begin + sum(stride * (length - 1) for stride, length in steps) * size
        return _Span(begin, last, last + size, _has_no_gap(steps))
    except (NoValuesError, RuntimeError, NotImplementedError, TypeError):
        return None


def _has_no_gap(steps: list[tuple[int, int]]) -> bool:
    reach = 1
    for stride, length in sorted(steps):
        if stride > reach:
            return False
        reach += stride * (length - 1)
    return True
