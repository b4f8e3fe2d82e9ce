"""Readback of numbers that were computed where their tensors lie: joined, one copy a device, for which nobody waits.

All that a watch reads of an accelerator comes through `Copy`; what lies on the CPU is simply there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Numbers = npt.NDArray[Any]
Then = Callable[[Numbers], None]


def is_far(tensor: Tensor) -> bool:
    """Whether a tensor's numbers have to be copied to be read."""
    return not tensor.is_cpu


def exact(device: torch.device) -> torch.dtype:
    """The finest numbers that a device computes with."""
    return torch.float32 if device.type == "mps" else torch.float64


def sent(numbers: Tensor) -> tuple[Tensor, Any]:
    """Send numbers here: what will hold them, and the event after which it does; None if they are here now."""
    backend: Any = getattr(torch, numbers.device.type, None)
    if not numbers.is_cuda or backend is None:
        return numbers.cpu(), None
    here = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
    here.copy_(numbers, non_blocking=True)
    event = backend.Event()
    event.record(backend.current_stream(numbers.device))
    return here, event


class Copy:
    """Some numbers that are being copied.

    Args:
        numbers: one tensor, wherever it lies.
    """

    def __init__(self, numbers: Tensor) -> None:
        self._here, self._event = sent(numbers)

    def done(self) -> bool:
        """Whether they are here."""
        return self._event is None or bool(self._event.query())

    def wait(self) -> None:
        """Until they are."""
        if self._event is not None:
            self._event.synchronize()

    def numbers(self) -> Numbers:
        """Them; once they are here."""
        return self._here.numpy()


class ReadBack:
    """Questions to tensors, whose answers are read together."""

    def __init__(self) -> None:
        self._asked: dict[torch.device, list[tuple[Tensor, Then]]] = {}
        self._copies: list[tuple[Copy, list[tuple[torch.Size, Then]]]] = []

    def ask(self, answer: Tensor, then: Then) -> None:
        """Have `then` called with the numbers of a tensor, as an array of its shape: at once if it lies here, else when it was read."""
        if is_far(answer):
            self._asked.setdefault(answer.device, []).append((answer, then))
        else:
            then(answer.numpy())

    def send(self) -> None:
        """Send what was asked up to now: afterwards the tensors may change."""
        asked, self._asked = self._asked, {}
        for device, ones in asked.items():
            joined = torch.cat([answer.reshape(-1).to(exact(device)) for answer, _ in ones])
            self._copies.append((Copy(joined), [(answer.shape, then) for answer, then in ones]))

    @property
    def waiting(self) -> bool:
        """Whether anything was sent and not yet read."""
        return bool(self._copies)

    def ready(self) -> bool:
        """Whether reading would not wait."""
        return all(copy.done() for copy, _ in self._copies)

    def read(self) -> None:
        """Hand the numbers to who asked for them."""
        copies, self._copies = self._copies, []
        for copy, ones in copies:
            copy.wait()
            numbers, start = copy.numbers(), 0
            for shape, then in ones:
                then(numbers[start : start + shape.numel()].reshape(shape))
                start += shape.numel()


def numbers(tensors: Sequence[Tensor]) -> list[float]:
    """Of tensors with one element each; those of a device by one copy."""
    found: dict[int, float] = {}
    far: dict[torch.device, list[int]] = {}
    for i, tensor in enumerate(tensors):
        if is_far(tensor):
            far.setdefault(tensor.device, []).append(i)
        else:
            found[i] = tensor.item()
    for device, places in far.items():
        copy = Copy(torch.cat([tensors[i].reshape(-1).to(exact(device)) for i in places]))
        copy.wait()
        found.update(zip(places, copy.numbers().tolist(), strict=True))
    return [found[i] for i in range(len(tensors))]


def lengths(sizes: Sequence[int], device: torch.device) -> Tensor:
    """Sizes as a tensor on a device, without waiting for it."""
    if device.type == "cuda":
        return torch.tensor(sizes, pin_memory=True).to(device, non_blocking=True)
    return torch.from_numpy(np.array(sizes, np.int64)).to(device)
