"""Parameters that are two, and lie in one memory: ``nn.Parameter(w.t())``. What is one parameter under two names is tied, and not this."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from modlab.compat import without_torch_function
from modlab.statistics.memory import NoValuesError, require_values
from modlab.statistics.wrappers import is_wrapper


class _Place(NamedTuple):
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


def _share(one: _Place, other: _Place | None) -> bool:
    """Whether an element is certainly both's: the first or the last one of a tensor lies in another that has no gaps."""
    return other is not None and any(
        whole.dense and any(whole.begin <= byte < whole.end for byte in (part.begin, part.last))
        for whole, part in ((one, other), (other, one))
    )


def _place(tensor: Tensor) -> _Place | None:
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
        return _Place(begin, last, last + size, _has_no_gap(steps))
    except (NoValuesError, RuntimeError, NotImplementedError, TypeError):
        return None


def _has_no_gap(steps: list[tuple[int, int]]) -> bool:
    reach = 1
    for stride, length in sorted(steps):
        if stride > reach:
            return False
        reach += stride * (length - 1)
    return True
