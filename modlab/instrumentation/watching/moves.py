"""What a step of the optimizer adds to each parameter, and how many elements have a gradient and do not move."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from modlab.instrumentation.watching.elements import comparable, selection
from modlab.records.slots import Floats


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
    """Copies before the step, differences after it; all parameters of a device and dtype in one array."""

    def __init__(self) -> None:
        self._held: dict[tuple[Any, Any], list[tuple[int, Tensor]]] = {}
        self._before: dict[tuple[Any, Any], tuple[Tensor, npt.NDArray[np.bool_]]] = {}

    def before(self, parameters: list[tuple[int, Tensor]]) -> None:
        """Take down the numbers of parameters, each with its place, and where their gradients are other than zero."""
        for place, parameter in parameters:
            if comparable(parameter):
                self._held.setdefault((parameter.device, parameter.dtype), []).append((place, parameter))
        for kind, held in self._held.items():
            felt = torch.cat([_felt(parameter) for _, parameter in held]) != 0
            self._before[kind] = torch.cat([selection(parameter) for _, parameter in held]), felt.cpu().numpy()

    def after(self) -> list[Move]:
        """What moved since."""
        found = []
        for kind, (before, felt) in self._before.items():
            held = self._held[kind]
            now = [selection(parameter) for _, parameter in held]
            sizes = np.array([len(one) for one in now])
            if int(sizes.sum()) != len(before):
                continue  # one was resized
            # in the parameters' own precision: what rounding swallowed did not move
            found += _moves(held, sizes, torch.cat(now).sub_(before).float().cpu().numpy(), felt)
        self._held, self._before = {}, {}
        return found


def _moves(held: list[tuple[int, Tensor]], sizes: npt.NDArray[Any], deltas: Floats, felt: npt.NDArray[np.bool_]) -> list[Move]:
    starts = np.concatenate(([0], np.cumsum(sizes)))
    moved = deltas != 0
    flags = (moved, felt, felt & ~moved)
    moves, feels, stays = (np.add.reduceat(some, starts[:-1], dtype=np.int64).tolist() for some in flags)
    ends = starts.tolist()
    return [
        Move(place, tensor.numel(), deltas[ends[i] : ends[i + 1]], stays[i] / feels[i] if feels[i] else np.nan, moves[i] > 0)
        for i, (place, tensor) in enumerate(held)
    ]


def _felt(parameter: Tensor) -> Tensor:
    """The gradient's numbers at the same places; zeros where there is none."""
    gradient = parameter.grad
    if gradient is not None and gradient.shape == parameter.shape and comparable(gradient):
        return selection(gradient)
    return torch.zeros(len(selection(parameter)), device=parameter.device)
