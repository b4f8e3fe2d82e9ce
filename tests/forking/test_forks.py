"""A fork that changes nothing is the same training, bit for bit; the original never notices."""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab
from modlab.forking import keeper as keeping
from tests.watching.test_identity import RUNS, Run, photograph

LOOPS: dict[str, Callable[[], Run]] = {}
STEPS = 24


def loop(make: Callable[[], Run]) -> Callable[[], Run]:
    LOOPS[make.__name__] = make
    return make


def small(*more: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), *more, nn.Linear(8, 2))


def trained(
    model: nn.Module, loss: Callable[[], Tensor], optimizer: torch.optim.Optimizer, between: Callable[[int], Any] | None = None
) -> Run:
    """The usual loop; `between` is called behind each step."""

    def step(number: int) -> Tensor:
        optimizer.zero_grad()
        found = loss()
        found.backward()
        optimizer.step()
        if between is not None:
            between(number)
        return found

    return model, [optimizer], step


@loop
def by_hand() -> Run:
    model = small()

    def step(_: int) -> Tensor:
        loss: Tensor = model(torch.randn(8, 4)).square().mean()
        loss.backward()
        with torch.no_grad():
            for one in model.parameters():
                one -= 0.1 * one.grad
                one.grad = None
        return loss

    return model, [], step


@loop
def optimizer_not_given() -> Run:
    model, _, step = trained(model := small(), lambda: model(torch.randn(8, 4)).square().mean(), torch.optim.Adam(model.parameters()))
    return model, [], step


@loop
def two_calls_in_a_step() -> Run:
    model = small(nn.Dropout(0.2))

    def loss() -> Tensor:
        x = torch.randn(8, 4)
        one, other = (F.normalize(model(x + 0.1 * torch.randn_like(x))) for _ in range(2))
        return F.cross_entropy(one @ other.T / 0.1, torch.arange(8))

    return trained(model, loss, torch.optim.Adam(model.parameters(), lr=0.01))


@loop
def a_hidden_state_is_carried() -> Run:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.out = nn.GRUCell(4, 6), nn.Linear(6, 1)

        def forward(self, x: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
            hidden = self.cell(x, hidden)
            return self.out(hidden), hidden

    model = Recurrent()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hidden = torch.zeros(3, 6)

    def step(_: int) -> Tensor:
        nonlocal hidden
        optimizer.zero_grad()
        total: Any = 0
        for _ in range(3):
            out, hidden = model(torch.randn(3, 4), hidden)
            total = total + out.square().mean()
        total.backward()
        optimizer.step()
        hidden = hidden.detach()
        return total  # type: ignore[no-any-return]

    return model, [optimizer], step


@loop
def a_teacher_that_averages() -> Run:
    model = small()
    teacher = copy.deepcopy(model).requires_grad_(False)

    def between(_: int) -> None:
        with torch.no_grad():
            for mine, theirs in zip(teacher.parameters(), model.parameters(), strict=True):
                mine.mul_(0.9).add_(theirs, alpha=0.1)

    def loss() -> Tensor:
        x = torch.randn(8, 4)
        with torch.no_grad():
            target = teacher(x) + 0.1
        return (model(x) - target).square().mean()

    return trained(model, loss, torch.optim.SGD(model.parameters(), lr=0.1), between)


@loop
def a_discriminator_beside() -> Run:
    maker, judge = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
    mine, theirs = torch.optim.Adam(maker.parameters(), 0.01), torch.optim.Adam(judge.parameters(), 0.01)

    def step(_: int) -> Tensor:
        fake = maker(torch.randn(8, 4))
        theirs.zero_grad()
        (judge(fake.detach()).mean() - judge(torch.randn(8, 4)).mean()).backward()
        theirs.step()
        mine.zero_grad()
        loss: Tensor = -judge(fake).mean()
        loss.backward()
        mine.step()
        return loss

    return maker, [mine], step


@loop
def a_loss_with_buffers() -> Run:
    model, criterion = small(), nn.Sequential(nn.BatchNorm1d(2, affine=False), nn.Dropout(0.1))
    weighed = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0]))
    target = torch.arange(8) % 2
    loss = lambda: weighed(criterion(model(torch.randn(8, 4))), target)  # noqa: E731
    return trained(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))


@loop
def a_frozen_judge() -> Run:
    model, judge = small(), nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)).requires_grad_(False).eval()
    return trained(model, lambda: judge(model(torch.randn(8, 4))).square().mean(), torch.optim.SGD(model.parameters(), lr=0.1))


@loop
def a_loss_with_weights_of_its_own() -> Run:
    class Weighed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.log_scale = nn.Parameter(torch.zeros(2))

        def forward(self, out: Tensor) -> Tensor:
            return (out.square().mean(0) * torch.exp(-self.log_scale) + self.log_scale).sum()

    model, criterion = small(), Weighed()
    optimizer = torch.optim.Adam([*model.parameters(), *criterion.parameters()], lr=0.01)
    return trained(model, lambda: criterion(model(torch.randn(8, 4))), optimizer)


@loop
def schedules_clipping_and_groups() -> Run:
    model = small()
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=STEPS + 1)  # lr and momentum
    model[2].requires_grad_(False)

    def step(number: int) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(torch.randn(8, 4)).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        nn.utils.clip_grad_value_(model.parameters(), 0.01)
        optimizer.step()
        if number < 10:
            schedule.step()
        if number == 10:
            model[2].requires_grad_(True)
            optimizer.add_param_group({"params": [*model[2].parameters()], "lr": 0.03})
        return loss

    return model, [optimizer], step


@loop
def a_learning_rate_in_a_tensor() -> Run:
    model = small()
    optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.01))
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    return trained(model, lambda: model(torch.randn(8, 4)).square().mean(), optimizer, lambda _: schedule.step())


@loop
def all_generators() -> Run:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.own, self.part = torch.Generator().manual_seed(3), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            if random.random() < 0.5:
                x = x * float(np.random.rand())
            return self.part(x) + torch.randn(2, generator=self.own)

    model = Odd()

    def loss() -> Tensor:
        out = model(torch.randn(8, 4))
        return F.dropout(out + torch.randn_like(out), 0.3).square().mean()

    return trained(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))


@loop
def a_buffer_for_all_batches() -> Run:
    model, room = small(), torch.empty(8, 4)

    def loss() -> Tensor:
        room.copy_(torch.randn(8, 4))
        return model(room).square().mean()

    return trained(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))


@loop
def slices_of_a_data_set() -> Run:
    data, model, place = torch.randn(400, 7)[:, 3:].contiguous(), small(), iter(range(0, 10_000, 7))

    def loss() -> Tensor:
        start = next(place) % 390
        return model(data[start : start + 7]).square().mean()

    return trained(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))


@loop
def validation_in_between() -> Run:
    model = small(nn.BatchNorm1d(8), nn.Dropout(0.5))
    seen = torch.zeros(())

    def between(number: int) -> None:
        if number % 5 == 4:
            model.eval()
            with torch.no_grad():
                for _ in range(4):
                    seen.add_(model(torch.randn(8, 4)).sum())
            model.train()

    return trained(model, lambda: model(torch.randn(8, 4)).square().mean(), torch.optim.SGD(model.parameters(), lr=0.1), between)


@loop
def weights_are_put_back() -> Run:
    model = small()
    best = copy.deepcopy(model.state_dict())

    def between(number: int) -> None:
        nonlocal best
        if number == 6:
            best = copy.deepcopy(model.state_dict())
        if number == 14:
            model.load_state_dict(best)

    return trained(model, lambda: model(torch.randn(8, 4)).square().mean(), torch.optim.Adam(model.parameters(), lr=0.01), between)


@loop
def sharpness_aware() -> Run:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(_: int) -> Tensor:
        x = torch.randn(8, 4)
        loss: Tensor = model(x).square().mean()
        loss.backward()
        with torch.no_grad():
            moved = [0.05 * one.grad / (one.grad.norm() + 1e-12) for one in model.parameters()]
            for one, by in zip(model.parameters(), moved, strict=True):
                one.add_(by)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        with torch.no_grad():
            for one, by in zip(model.parameters(), moved, strict=True):
                one.sub_(by)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return model, [optimizer], step


@loop
def gradient_penalty() -> Run:
    model = small()

    def loss() -> Tensor:
        x = torch.randn(8, 4, requires_grad=True)
        out = model(x)
        (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        return out.square().mean() + (slope.norm(dim=1) - 1).square().mean()

    return trained(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))


@loop
def gradients_are_edited() -> Run:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model[0].weight.register_hook(lambda gradient: gradient * 0.5)

    def step(_: int) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(torch.randn(8, 4)).square().mean()
        torch.autograd.backward([loss])
        for one in model.parameters():
            one.grad += 0.01 * torch.randn_like(one.grad)
        model[2].weight.grad = model[2].weight.grad.sign()
        optimizer.step()
        return loss

    return model, [optimizer], step


@loop
def settings_of_modules() -> Run:
    model = small(nn.Dropout(0.1))

    def between(number: int) -> None:
        model[2].p = 0.02 * number
        model.train(number % 3 > 0)

    return trained(model, lambda: model(torch.randn(8, 4)).square().mean(), torch.optim.SGD(model.parameters(), lr=0.1), between)


@loop
def one_autocast_around_two_calls() -> Run:
    model = small()

    def loss() -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(torch.randn(8, 4)).square().mean() + model(torch.randn(8, 4)).abs().mean()

    return trained(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))


@loop
def under_a_mode_of_the_user_s() -> Run:
    model = small()

    def loss() -> Tensor:
        with torch.device("cpu"):
            return model(torch.randn(8, 4)).square().mean()

    return trained(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))


@loop
def a_method_and_keyword_arguments() -> Run:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encode, self.decode = nn.Linear(4, 2), nn.Linear(2, 4)

        def loss(self, x: Tensor, scale: Tensor) -> Tensor:
            return F.mse_loss(input=self.decode(input=torch.relu(self.encode(x))), target=x) * scale

    model = Net()
    return trained(model, lambda: model.loss(torch.randn(8, 4), scale=torch.tensor(2.0)), torch.optim.SGD(model.parameters(), lr=0.1))


@loop
def a_branch_on_a_tensor() -> Run:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(_: int) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(torch.randn(8, 4)).square().mean()
        if loss < 0.2:
            loss = loss * 0.5
        loss.backward()
        optimizer.step()
        return loss

    return model, [optimizer], step


def watched(make: Callable[[], Run], steps: int = STEPS, **options: Any) -> tuple[Any, nn.Module, list[Any], list[float]]:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    model, optimizers, step = make()
    losses = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own words on what some of these do
        with modlab.watch(model, optimizers, **{"keep": "good", **options}) as w:
            for number in range(steps):
                losses.append(float(step(number)))
    return w, model, optimizers, losses


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """States are kept every five steps."""
    monkeypatch.setattr(keeping, "GAP", 5)
    monkeypatch.setattr(keeping, "SHARE", 1e6)
    yield


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.long] * (name == "resnet")) for name in (*RUNS, *LOOPS)])
def test_an_unchanged_fork_is_the_original(name: str) -> None:
    w, model, optimizers, _ = watched((RUNS | LOOPS)[name])
    kept = w.record.kept
    assert kept is not None and not kept.trouble and len(kept.states) > 1
    before = photograph(model), [copy.deepcopy(one.state_dict()) for one in optimizers]
    for start in kept.states[:-1]:
        fork = w.fork(start)
        assert fork.exact, (start, fork.headline)
        assert fork.record.ended == "tape" and len(fork.losses) == kept.until[kept.states.index(start)] - start
    assert photograph(model) == before[0]
    assert str([one.state_dict() for one in optimizers]) == str(before[1])


@pytest.mark.parametrize("name", LOOPS)
def test_a_watch_that_keeps_is_the_same_run(name: str) -> None:
    _, one, _, losses = watched(LOOPS[name])
    _, other, _, without = watched(LOOPS[name], keep="")
    assert losses == without
    assert photograph(one) == photograph(other)
