"""A change acts at the beginning of a round of the loop: what the loop does behind its step is done before."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import modlab
from modlab.forking.rounds import Round
from tests.forking.test_forks import small

STEPS = 24
Change = Callable[[nn.Module], None]


def halved(model: nn.Module) -> None:
    with torch.no_grad():
        for one in model.parameters():
            one.mul_(0.5)


def follow(teacher: nn.Module, model: nn.Module) -> None:
    with torch.no_grad():
        for mine, theirs in zip(teacher.parameters(), model.parameters(), strict=True):
            mine.mul_(0.5).add_(theirs, alpha=0.5)


def loss_of(model: nn.Module, teacher: nn.Module) -> Tensor:
    x = torch.randn(8, 4)
    with torch.no_grad():
        target = teacher(x)
    return (model(x) - 0.9 * target - x.sum(1, keepdim=True)).square().mean()


def in_one(model: nn.Module, optimizer: Any, round_begins: Callable[[int], None]) -> list[float]:
    teacher, losses = copy.deepcopy(model), []
    for number in range(STEPS):
        round_begins(number)
        optimizer.zero_grad()
        loss = loss_of(model, teacher)
        loss.backward()
        optimizer.step(), losses.append(float(loss.detach()))
        follow(teacher, model)
    return losses


def in_a_function(model: nn.Module, optimizer: Any, round_begins: Callable[[int], None]) -> list[float]:
    teacher, losses = copy.deepcopy(model), []

    def train_step() -> float:
        loss = loss_of(model, teacher)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    number = 0
    while number < STEPS:
        round_begins(number)
        losses.append(train_step())
        number += 1
        follow(teacher, model)
    return losses


def in_a_class(model: nn.Module, optimizer: Any, round_begins: Callable[[int], None]) -> list[float]:
    class Trainer:
        def __init__(self) -> None:
            self.teacher, self.losses = copy.deepcopy(model), list[float]()

        def behind(self) -> None:
            follow(self.teacher, model)

        def fit(self) -> list[float]:
            for number in range(STEPS):
                round_begins(number)
                self.one()
            return self.losses

        def one(self) -> None:
            optimizer.zero_grad()
            loss = loss_of(model, self.teacher)
            loss.backward()
            optimizer.step()
            self.losses.append(loss.item())
            self.behind()

    return Trainer().fit()


def before_the_pass(model: nn.Module, optimizer: Any, round_begins: Callable[[int], None]) -> list[float]:
    teacher, losses = copy.deepcopy(model), []
    for number in range(STEPS):
        round_begins(number)
        follow(teacher, model)
        loss = loss_of(model, teacher)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def by_a_helper(model: nn.Module, optimizer: Any, round_begins: Callable[[int], None]) -> list[float]:
    """What calls the step has ended when it is called for the average: it may be given the same frame."""
    teacher, losses = copy.deepcopy(model), []

    def call(work: Callable[[], Any]) -> Any:
        return work()

    for number in range(STEPS):
        round_begins(number)
        optimizer.zero_grad()
        loss = loss_of(model, teacher)
        call(loss.backward)
        call(optimizer.step)
        losses.append(loss.item())
        call(lambda: follow(teacher, model))
    return losses


def by_turns(model: nn.Module, optimizer: Any, round_begins: Callable[[int], None]) -> list[float]:
    """A generator and its caller."""
    teacher, losses = copy.deepcopy(model), []

    def steps() -> Any:
        for number in range(STEPS):
            round_begins(number)
            optimizer.zero_grad()
            loss = loss_of(model, teacher)
            loss.backward()
            optimizer.step()
            yield loss.item()
            follow(teacher, model)

    for loss in steps():
        losses.append(loss)
    return losses


def with_bounds(model: nn.Module, optimizer: Any, round_begins: Callable[[int], None]) -> list[float]:
    losses = []
    for number in range(STEPS):
        round_begins(number)
        optimizer.zero_grad()
        loss = loss_of(model, model)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for one in model.parameters():
                one.clamp_(-0.3, 0.3)
                one.add_(0.01)
        losses.append(loss.item())
    return losses


def run(loop: Any, at: int, change: Change, *, kept: bool) -> Any:
    torch.manual_seed(0)
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def round_begins(number: int) -> None:
        if number == at:
            change(model)

    if not kept:
        return loop(model, optimizer, round_begins)
    with modlab.watch(model, optimizer, keep="good") as w:
        loop(model, optimizer, lambda _: None)
    return w


@pytest.mark.parametrize("at", [5, 7, 16])
@pytest.mark.parametrize("loop", [in_one, in_a_function, in_a_class, by_a_helper, by_turns, before_the_pass, with_bounds])
def test_a_change_comes_between_two_rounds(loop: Any, at: int) -> None:
    w = run(loop, -1, halved, kept=True)
    fork = w.fork(at, halved)
    began = fork.record.began
    assert w.fork(at).exact
    assert len(fork.losses) > 3 and fork.losses == run(loop, at, halved, kept=False)[began : began + len(fork.losses)]


def looking_ahead(model: nn.Module, optimizer: Any, round_begins: Callable[[int], None]) -> list[float]:
    slow, losses = [one.data.clone() for one in model.parameters()], []
    for number in range(STEPS):
        round_begins(number)
        optimizer.zero_grad()
        loss = loss_of(model, model)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if number % 5 == 4:
            for mine, one in zip(slow, model.parameters(), strict=True):
                mine.add_(one.data - mine, alpha=0.5)
                one.data.copy_(mine)
    return losses


@pytest.mark.parametrize("at", [5, 10])
def test_what_is_written_for_the_first_time_is_of_the_round_too(at: int) -> None:
    w = run(looking_ahead, -1, halved, kept=True)
    fork = w.fork(at, halved)
    assert fork.exact and fork.losses == run(looking_ahead, at, halved, kept=False)[fork.record.began :]


def test_a_call_that_has_ended_is_not_taken_for_the_next_one() -> None:
    """Both may have one frame, as objects of Python's."""
    seen: list[Any] = []

    def call(work: Callable[[], Any]) -> Any:
        return work()

    for _ in range(20):
        call(lambda: seen.append(Round(sys._getframe(), ())))
        assert call(lambda: seen[-1].goes_on(sys._getframe()))
