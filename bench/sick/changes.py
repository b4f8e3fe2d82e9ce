"""What faults are made of: parts of a training replaced, or something put around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from bench.sick.training import Training, called


def on_inputs(training: Training, change: Callable[[Any], Any]) -> None:
    """Change the inputs of each batch."""
    on_batch(training, lambda inputs, target: (change(inputs), target))


def on_target(training: Training, change: Callable[[Tensor], Tensor]) -> None:
    """Change the target of each batch."""
    on_batch(training, lambda inputs, target: (inputs, change(target)))


def on_batch(training: Training, change: Callable[[Any, Tensor], Any]) -> None:
    """Change each batch."""
    batch = training.batch
    training.batch = lambda number: change(*batch(number))


def on_loss(training: Training, change: Callable[[Tensor], Tensor]) -> None:
    """Change what the criterion returns."""
    criterion = training.criterion
    training.criterion = lambda output, target: change(criterion(output, target))


def on_output(training: Training, change: Callable[[Any], Any]) -> None:
    """Change what the criterion gets of the model."""
    criterion = training.criterion
    training.criterion = lambda output, target: criterion(change(output), target)


def on_options(training: Training, **options: Any) -> None:
    """Change what the optimizer was made with."""
    optimize = training.optimize
    training.optimize = lambda parameters: optimize(parameters, **options)
    training.use(training.model)


def looped(training: Training, step: Callable[[Any, Tensor, int], None]) -> None:
    """Give the training a loop of its own, which gets the batch and its number."""

    def one(training: Training, number: int) -> None:
        step(*training.batch(number), number)

    training.step = one


def loss_of(training: Training, inputs: Any, target: Tensor) -> Tensor:
    """The loss of the model as it is now."""
    return training.criterion(called(training.model, inputs), target)


def replaced(training: Training, kind: type[nn.Module], by: Callable[[nn.Module], nn.Module]) -> None:
    """Put something else where modules of a kind stand; the optimizer is made anew."""
    for module in [*training.model.modules()]:
        for name, child in [*module.named_children()]:
            if isinstance(child, kind):
                setattr(module, name, by(child))
    training.use(training.model)


def weights(training: Training) -> list[nn.Parameter]:
    """The parameters with two dimensions or more."""
    return [one for one in training.model.parameters() if one.dim() > 1]


def fixed(training: Training, count: int) -> None:
    """Draw the first rows of the first batch again and again."""
    inputs, target = training.batch(0)
    kept = inputs[:count].clone(), target[:count].clone()
    training.batch = lambda _: kept


class Lambda(nn.Module):
    """A function as a module, as users write it."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def sorted_by_class(training: Training, batches: int) -> None:
    """Draw so many batches, sort their samples by class, and go through them again and again."""
    drawn = [training.batch(number) for number in range(batches)]
    inputs, target = torch.cat([one[0] for one in drawn]), torch.cat([one[1] for one in drawn])
    order = target.argsort(stable=True)
    parts = [*zip(inputs[order].split(len(drawn[0][1])), target[order].split(len(drawn[0][1])), strict=True)]
    training.batch = lambda number: parts[number % batches]
