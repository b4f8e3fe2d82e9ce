"""What a case is made of: a training that can be run, and judged by what it is for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

Batch = tuple[Any, Tensor]


@dataclass
class Training:
    """A model, its data and its loop. What is not given is as in the first example of any tutorial; a fault replaces a part.

    Attributes:
        model: what is trained.
        optimize: makes the optimizer of some parameters.
        batch: the inputs (a tensor, a tuple of arguments, or a dict of them) and the target of a step, by its number.
        criterion: the loss, called with output and target.
        quality: how far a model is from what it is for, on fresh inputs and measured as it should be: 0 is perfect, less is better.
        steps: so many make it good.
        schedulers: stepped after each step.
        clip: the greatest norm of the gradients; none: not clipped.
        each: calls before a step, with its number.
        after: calls after a step, with its number.
        step: makes one step; a loop of its own, where a case has one.
        optimizer: what steps; made of all parameters.
        others: further optimizers that a tool is told of.
    """

    model: nn.Module
    optimize: Callable[[Any], Optimizer]
    batch: Callable[[int], Batch]
    criterion: Callable[[Any, Tensor], Tensor]
    quality: Callable[[nn.Module], float]
    steps: int = 200
    schedulers: list[Any] = field(default_factory=list)
    clip: float | None = None
    each: list[Callable[[int], Any]] = field(default_factory=list)
    after: list[Callable[[int], Any]] = field(default_factory=list)
    step: Callable[[Training, int], Any] | None = None
    optimizer: Optimizer = field(init=False)
    others: Sequence[Optimizer] = ()

    def __post_init__(self) -> None:
        self.optimizer = self.optimize(self.model.parameters())

    def use(self, model: nn.Module) -> None:
        """Train this model in place of the one at hand."""
        self.model = model
        self.optimizer = self.optimize(model.parameters())

    def run(self) -> None:
        """Train."""
        for number in range(self.steps):
            for call in self.each:
                call(number)
            (self.step or plain_step)(self, number)
            for call in self.after:
                call(number)
            for scheduler in self.schedulers:
                scheduler.step()

    @property
    def optimizers(self) -> Optimizer | tuple[Optimizer, ...]:
        """All of them, as a tool is told of them."""
        return (self.optimizer, *self.others) if self.others else self.optimizer

    def measured(self) -> float:
        """The quality now, without leaving a trace in the model or in the generators."""
        modes = [(module, module.training) for module in self.model.modules()]
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(12345)
            self.model.eval()
            try:
                return float(self.quality(self.model))
            finally:
                for module, mode in modes:
                    module.training = mode


def plain_step(training: Training, number: int) -> None:
    """The five lines of every tutorial."""
    inputs, target = training.batch(number)
    training.optimizer.zero_grad()
    loss = training.criterion(called(training.model, inputs), target)
    loss.backward()
    if training.clip is not None:
        nn.utils.clip_grad_norm_(training.model.parameters(), training.clip)
    training.optimizer.step()


def called(model: nn.Module, inputs: Any) -> Any:
    """The model's output for inputs of a batch."""
    if isinstance(inputs, tuple):
        return model(*inputs)
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(inputs)
