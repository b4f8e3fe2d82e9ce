"""What a step of the optimizer adds to each parameter, and how many elements have a gradient and do not move."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from modlab.compat import is_transformed
from modlab.records.slots import Floats
from modlab.statistics.contents import is_freed
from modlab.statistics.sampling import stride_of

EXACT = 4096
"""Elements up to which all are compared; of a larger parameter an even selection of about so many (error of the norm ≤ 2.4 %)."""


class Move(NamedTuple):
    """Of one parameter.

    Attributes:
        place: its number, as given to `Moves.before`.
        size: its elements; `deltas`: shape ``(n,)``, what was added to those that were compared.
        stuck: of those with a gradient, the share that did not move; NaN if none has one.
        moved: whether any did.
    """

    place: int
    size: int
    deltas: Floats
    stuck: float
    moved: bool


class Moves:
    """Copies before the step, differences after it."""

    def __init__(self) -> None:
        self._held: list[tuple[int, Tensor, Tensor, Tensor | None]] = []

    def before(self, place: int, parameter: Tensor) -> None:
        """Take down a parameter, and its gradient, which the step may change."""
        if not comparable(parameter):
            return
        gradient = parameter.grad
        usable = gradient is not None and comparable(gradient) and gradient.shape == parameter.shape
        felt = selection(gradient) != 0 if usable and gradient is not None else None
        self._held.append((place, parameter, selection(parameter).clone(), felt))

    def after(self) -> list[Move]:
        """What moved since."""
        held, self._held = self._held, []
        held = [one for one in held if comparable(one[1]) and len(one[2]) == len(selection(one[1]))]
        if not held:
            return []
        # in the parameters' own precision: what rounding swallowed did not move
        deltas = [selection(parameter) - old for _, parameter, old, _ in held]
        kept = [delta != 0 for delta in deltas]
        none = [torch.zeros_like(one) if felt is None else felt for one, (*_, felt) in zip(kept, held, strict=True)]
        numbers: Floats = _numbers([delta.float() for delta in deltas])
        flags: npt.NDArray[np.uint8] = _numbers(
            [one.to(torch.uint8) + 2 * felt.to(torch.uint8) for one, felt in zip(kept, none, strict=True)]
        )
        found, start = [], 0
        for (place, parameter, _, _), size in zip(held, map(len, deltas), strict=True):
            some = flags[start : start + size]
            felt, stuck = int(np.count_nonzero(some > 1)), int(np.count_nonzero(some == 2))
            share = stuck / felt if felt else np.nan
            found.append(Move(place, parameter.numel(), numbers[start : start + size], share, bool((some & 1).any())))
            start += size
        return found


def selection(tensor: Tensor) -> Tensor:
    """All elements of a small tensor, about `EXACT` of a large one, the same ones each time; shape ``(n,)``."""
    flat = tensor.data.reshape(-1) if tensor.is_contiguous() or tensor.numel() <= EXACT else _dense(tensor.data)
    stride = stride_of(flat.numel()) if flat.numel() > EXACT else 1
    return flat[::stride] if stride > 1 else flat


def _dense(tensor: Tensor) -> Tensor:
    """The elements in the order in which they lie in memory, where that has no gaps; else a copy in order."""
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    straight = tensor.permute(order)
    return straight.view(-1) if straight.is_contiguous() else tensor.reshape(-1)


def comparable(tensor: Tensor) -> bool:
    """Whether a tensor has numbers that can be compared one by one."""
    return (
        tensor.layout is torch.strided
        and not tensor.is_meta
        and not tensor.is_nested
        and not tensor.is_complex()
        and not is_transformed(tensor)
        and type(tensor).__torch_dispatch__ is Tensor.__torch_dispatch__
        and not torch.nn.parameter.is_lazy(tensor)
        and not is_freed(tensor)
        and tensor.numel() > 0
    )


def _numbers(tensors: list[Tensor]) -> Any:
    """All in one array, with one copy for each device."""
    if len({one.device for one in tensors}) > 1:
        tensors = [one.cpu() for one in tensors]
    return torch.cat(tensors).cpu().numpy()
