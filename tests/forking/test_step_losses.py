"""Which loss is a step's: the one whose gradients the watched optimizer takes, whatever else is trained beside it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import modlab

STEPS = 60


def watched_critic(every: int, *, one_line: bool) -> tuple[Any, list[float], int]:
    """A GAN of which the watch is given the critic alone: the watch, the critic's losses, and the line of its backward pass."""
    torch.manual_seed(0)
    made, critic = nn.Linear(4, 2), nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
    makes, judges = torch.optim.Adam(made.parameters(), 1e-3), torch.optim.Adam(critic.parameters(), 1e-3)
    losses: list[float] = []

    def backward(loss: Any) -> None:
        loss.backward()

    with modlab.watch(critic, judges, keep="good") as w:
        for number in range(STEPS):
            loss = critic(made(torch.randn(16, 4)).detach()).square().mean() + (critic(torch.randn(16, 2) + 2) - 1).square().mean()
            judges.zero_grad()
            backward(loss) if one_line else loss.backward()
            judges.step()
            losses.append(loss.item())
            if number % every == 0:
                other = 10 + (critic(made(torch.randn(16, 4))) - 1).square().mean()
                makes.zero_grad()
                backward(other) if one_line else other.backward()
                makes.step()
    return w, losses, watched_critic.__code__.co_firstlineno + 14


@pytest.mark.parametrize("one_line", [False, True], ids=["two lines", "one line"])
@pytest.mark.parametrize("every", [1, 3])
def test_the_loss_is_that_of_the_watched_optimizer(every: int, one_line: bool) -> None:
    w, losses, line = watched_critic(every, one_line=one_line)
    fork = w.fork(20)
    assert fork.exact and fork.original == losses[16:]
    assert ("Of several losses" in str(fork)) is not one_line
    assert one_line or f"these are of the backward pass in line {line}." in str(fork)


@pytest.mark.parametrize("moves", [False, True], ids=["for nothing", "and evaluated anew"])
def test_gradients_that_are_thrown_away_are_of_the_loss_only_if_the_weights_moved(moves: bool) -> None:
    """As SAM does: it moves the weights by the gradients of the loss, and evaluates it there."""
    torch.manual_seed(0)
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    first, second = [], []
    with modlab.watch(net, optimizer, keep="good") as w:
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = net(torch.randn(8, 4)).square().mean()
            loss.backward()
            first.append(loss.item())
            if moves:
                with torch.no_grad():
                    net.weight.add_(0.01)
            optimizer.zero_grad()
            again = (net(torch.randn(8, 4)) - 1).square().mean()
            again.backward()
            second.append(again.item())
            if moves:
                with torch.no_grad():
                    net.weight.sub_(0.01)
            optimizer.step()
    fork = w.fork(20)
    assert fork.exact and fork.original == (first if moves else second)[16:]


PHASES: dict[str, Callable[[nn.Sequential], Any]] = {
    "the same parameters": lambda model: model.parameters(),
    "others": lambda model: model[0].parameters(),
}


def two_phases(name: str, at: int | None, *, is_watched: bool) -> tuple[Any, list[float]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    first = optimizer = torch.optim.Adam(model.parameters() if name == "the same parameters" else model[2].parameters(), 1e-2)
    losses = []
    w = modlab.watch(model, optimizer, keep="good") if is_watched else None
    for number in range(STEPS):
        if number == 25:
            optimizer = torch.optim.SGD(PHASES[name](model), 0.02, momentum=0.9)  # type: ignore[assignment]
        if number == at:
            optimizer.param_groups[0]["lr"] = 0.1
        x = torch.randn(16, 4)
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), x.sum(1, keepdim=True))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if w is not None:
        w.close()
    assert first.param_groups  # it is still there
    return w, losses


@pytest.mark.parametrize("name", PHASES)
def test_the_first_step_of_an_optimizer_that_came_in_the_place_of_another_is_a_step(name: str) -> None:
    w, losses = two_phases(name, None, is_watched=True)
    fork = w.fork(20)
    assert fork.exact and fork.original == losses[16:]

    def change(optimizer: Any) -> None:
        (optimizer[-1] if isinstance(optimizer, list) else optimizer).param_groups[0]["lr"] = 0.1

    for at in (26, 30):
        changed = w.fork(at, change)
        assert changed.exact and changed.losses == two_phases(name, at, is_watched=False)[1][changed.record.began :]


def with_a_teacher(at: int | None, *, is_watched: bool) -> tuple[Any, list[float]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer, teacher, losses = torch.optim.Adam(model.parameters(), 1e-2), copy.deepcopy(model).eval(), []
    w = modlab.watch(model, optimizer, keep="good") if is_watched else None
    for number in range(STEPS):
        if number == at:
            optimizer.param_groups[0]["lr"] = 0.05
        x = torch.randn(16, 4)
        with torch.no_grad():
            told = teacher(x).softmax(1)
        given = model(x)
        loss = F.cross_entropy(given, (x[:, 0] > 0).long()) + F.kl_div(given.log_softmax(1), told, reduction="batchmean")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if number % 15 == 14:
            teacher = copy.deepcopy(model).eval()
    if w is not None:
        w.close()
    return w, losses


def test_a_new_teacher_that_is_called_without_gradients_trains_nothing() -> None:
    w, losses = with_a_teacher(None, is_watched=True)
    for at in (5, 20, 40):
        fork, changed = w.fork(at), w.fork(at, {"lr": 0.05})
        assert fork.exact and fork.record.ended == "tape" and fork.original == losses[fork.record.began :]
        assert changed.exact and changed.losses == with_a_teacher(at, is_watched=False)[1][changed.record.began :]


def test_a_loss_behind_another_optimizer_s_step_is_seen_where_a_change_comes() -> None:
    """The probe's step comes first in each round: what is behind it belongs to the step that a change has to wait for."""
    torch.manual_seed(0)
    model, probe = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)), nn.Linear(3, 3)
    optimizer, other = torch.optim.Adam(model.parameters(), 1e-2), torch.optim.SGD(probe.parameters(), 0.1)
    with modlab.watch(model, optimizer, keep="good") as w:
        for number in range(STEPS):
            x = torch.randn(16, 4)
            given = model(x)
            with torch.no_grad():
                told = probe(given)
            loss = (given - told).square().mean()
            if number >= 30:
                other.zero_grad()
                F.cross_entropy(probe(given.detach()), (x[:, 0] > 0).long()).backward()
                other.step()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    fork = w.fork(40, {"lr": 0.05})
    assert fork.exact and all(one == one for one in fork.losses)
