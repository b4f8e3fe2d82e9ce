"""A data set of a training's own: what comes of many drawn batches, and what is fed from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bench.sick.training import Training


def pool(training: Training, batches: int) -> tuple[Any, Tensor]:
    """The samples of so many batches."""
    drawn = [training.batch(number) for number in range(batches)]
    return joined([inputs for inputs, _ in drawn]), torch.cat([target for _, target in drawn])


def joined(parts: list[Any]) -> Any:
    """Inputs of several batches as those of one."""
    if isinstance(parts[0], dict):
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    if isinstance(parts[0], tuple):
        return tuple(torch.cat(some) for some in zip(*parts, strict=True))
    return torch.cat(parts)


def changed(inputs: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Inputs, each of which is changed."""
    if isinstance(inputs, dict):
        return {name: change(one) for name, one in inputs.items()}
    if isinstance(inputs, tuple):
        return tuple(change(one) for one in inputs)
    return change(inputs)


def rows(inputs: Any, which: Tensor) -> Any:
    """Some samples of inputs."""
    return changed(inputs, lambda one: one[which])


def fed(training: Training, inputs: Any, target: Tensor, size: int, shuffled: bool = True) -> None:
    """Go through a pool, epoch by epoch, in batches of a size."""
    count = len(target) // size
    order = torch.arange(len(target))

    def batch(number: int) -> tuple[Any, Tensor]:
        nonlocal order
        if shuffled and number % count == 0:
            order = torch.randperm(len(target))
        which = order[number % count * size : (number % count + 1) * size]
        return rows(inputs, which), target[which]

    training.batch = batch


def size(training: Training) -> int:
    """How many samples a batch has."""
    return len(training.batch(0)[1])


def seen_through(training: Training, change: Callable[[Any], Any]) -> None:
    """Change the inputs wherever the model gets them: in training and when it is judged."""
    batch, quality = training.batch, training.quality

    def both(number: int) -> tuple[Any, Tensor]:
        inputs, target = batch(number)
        return change(inputs), target

    training.batch = both
    training.quality = lambda net: quality(Changed(net, change))


class Changed:
    """A model that is judged on changed inputs."""

    def __init__(self, net: Any, change: Callable[[Any], Any]) -> None:
        self.net, self.change = net, change

    def __call__(self, *inputs: Tensor, **named: Tensor) -> Any:
        if named:
            return self.net(**self.change(named))
        return self.net(*self.change(inputs)) if len(inputs) > 1 else self.net(self.change(inputs[0]))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.net, name)
