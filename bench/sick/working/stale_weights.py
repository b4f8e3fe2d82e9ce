"""Weights that move, and a forward pass that goes on with what was computed from them before."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.sick.training import Training, plain_step
from bench.sick.working.half import HALF
from bench.sick.working.nets import bars, counting, marked, spirals, wave


def _mixed() -> AbstractContextManager[object]:
    return torch.autocast("cpu", torch.bfloat16)


def _in_blocks(length: int) -> Callable[[Training], None]:
    """The steps of a training, in blocks of autocast: each of so many steps; 0: of all."""

    def change(training: Training) -> None:
        step, steps = training.step or plain_step, training.steps

        def whole(training: Training, _: int) -> None:
            for first in range(0, steps, length or steps):
                with _mixed():
                    for number in range(first, min(first + (length or steps), steps)):
                        step(training, number)

        training.step, training.steps = whole, 1

    return change


@HALF.fault("stale weights", spirals, bars, counting, twin=_in_blocks(1))
def one_autocast_around_the_loop(training: Training) -> None:
    _in_blocks(0)(training)


@HALF.fault("stale weights", wave, marked, twin=_in_blocks(1))
def one_autocast_around_each_epoch(training: Training) -> None:
    _in_blocks(50)(training)


@HALF.strange(spirals, bars, counting)
def autocast_around_all_of_a_step(training: Training) -> None:
    _in_blocks(1)(training)


class Tastes(nn.Module):
    """Users and things, each a point; who is near likes it."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.things = nn.Embedding(40, 8), nn.Embedding(60, 8)
        nn.init.normal_(self.users.weight, std=0.1)
        nn.init.normal_(self.things.weight, std=0.1)

    def points(self) -> Tensor:
        return torch.cat([self.users.weight, self.things.weight])

    def forward(self, user: Tensor, thing: Tensor, points: Tensor | None = None) -> Tensor:
        points = self.points() if points is None else points
        return (points[user] * points[40 + thing]).sum(1)


@HALF.net("embedding")
def tastes() -> Training:
    """Who likes what, by the product of two points; all points are put together first, as graph recommenders do."""
    fixed = torch.Generator().manual_seed(31)
    taste = torch.randn(40, 3, generator=fixed) @ torch.randn(3, 60, generator=fixed)

    def batch(_: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
        user, thing = torch.randint(40, (128,)), torch.randint(60, (128,))
        return (user, thing), (taste[user, thing] > 0).float()

    def quality(net: nn.Module) -> float:
        (user, thing), likes = batch(0)
        return float(((net(user, thing) > 0) != likes.bool()).float().mean())

    return Training(Tastes(), lambda some: torch.optim.Adam(some, lr=0.02), batch, F.binary_cross_entropy_with_logits, quality, steps=400)


@HALF.fault("stale weights", tastes)
def the_points_are_put_together_once(training: Training) -> None:
    points = training.model.points()

    def step(training: Training, number: int) -> None:
        (user, thing), likes = training.batch(number)
        training.optimizer.zero_grad()
        training.criterion(training.model(user, thing, points), likes).backward(retain_graph=True)
        training.optimizer.step()

    training.step = step
