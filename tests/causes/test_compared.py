"""What a criterion compares: its own operands, and not the model's output, where other functions stand between."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab

Loss = Callable[[nn.Module], Tensor]


def told(net: nn.Module, loss: Loss, steps: int = 120) -> list[str]:
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    with modlab.watch(net, optimizer) as w:
        for _ in range(steps):
            optimizer.zero_grad()
            loss(net).backward()
            optimizer.step()
    found = [one.kind for one in w.findings]
    return [*found, *(one.kind for one in w.diagnose().findings)]


def mlp(*sizes: int) -> nn.Sequential:
    return nn.Sequential(*[layer for pair in pairwise(sizes) for layer in (nn.Linear(*pair), nn.ReLU())][:-1])


def frozen(*sizes: int) -> nn.Sequential:
    return mlp(*sizes).requires_grad_(False)


def numbers(rows: int = 32) -> tuple[Tensor, Tensor]:
    x = torch.randn(rows, 8)
    return x, x[:, :1] - x[:, 1:2]


# ---- against each other


def a_column_and_a_row(output: Tensor, target: Tensor) -> Tensor:
    return F.mse_loss(output, target[:, 0])


SPREAD: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], bool]] = {
    "a column and a row": (a_column_and_a_row, True),
    "scaled by a row": (lambda o, t: F.mse_loss(o * torch.full((32,), 2.0), t), True),
    "a sum and a column": (lambda o, t: F.mse_loss(o.sum(1), t), True),
    "differences of pairs": (lambda o, t: F.mse_loss(o - o.T, t - t.T), False),
    "differences of pairs by hand": (lambda o, t: ((o - o.T) - (t - t.T)).square().mean(), False),
    "pairs drawn together": (lambda o, t: F.mse_loss(o, t) + 0.01 * (o - o.T).square().mean(), False),
    "along a time of as many places": (
        lambda o, t: F.mse_loss(o * torch.linspace(0, 1, 32), t * torch.linspace(0, 1, 32)),
        False,
    ),
    "along a time": (lambda o, t: F.mse_loss(o * torch.linspace(0, 1, 7), t * torch.linspace(0, 1, 7)), False),
}


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("name", SPREAD)
def test_each_with_each_may_be_meant(name: str) -> None:
    torch.manual_seed(0)
    criterion, wrong = SPREAD[name]

    def loss(net: nn.Module) -> Tensor:
        x, target = numbers()
        return criterion(net(x), target)

    assert ("broadcast" in told(mlp(8, 16, 1), loss)) is wrong


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("wrong", [True, False])
def test_what_a_frozen_net_makes_of_outputs_is_compared(*, wrong: bool) -> None:
    torch.manual_seed(0)
    seen = frozen(1, 8, 1 if wrong else 16)

    def loss(net: nn.Module) -> Tensor:
        x, target = numbers()
        asked = seen(target)
        return F.mse_loss(seen(net(x)), asked[:, 0] if wrong else asked)

    assert ("broadcast" in told(mlp(8, 16, 1), loss)) is wrong


@pytest.mark.parametrize("ends", ["nothing", "relu"])
def test_pictures_that_a_frozen_net_looks_at(ends: str) -> None:
    torch.manual_seed(0)
    seen = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1), *([nn.ReLU()] if ends == "relu" else []))
    seen.requires_grad_(False)
    net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))

    def loss(net: nn.Module) -> Tensor:
        clean = torch.randn(16, 1, 1, 1) + torch.randn(16, 1, 8, 1)
        return F.mse_loss(seen(net(clean + 0.3 * torch.randn(16, 1, 8, 8))), seen(clean.expand(16, 1, 8, 8)))

    assert not {"broadcast", "output cannot reach"} & {*told(net, loss)}


# ---- out of reach


class Code(nn.Module):
    """A code that is never below 0; behind it what of it is compared is up to the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.code, self.back = nn.Sequential(nn.Linear(8, 32), nn.ReLU()), nn.Parameter(0.1 * torch.randn(32, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.code(x)


REACH: dict[str, tuple[Callable[[Code, Tensor], Tensor], bool]] = {
    "the code": (lambda net, x: net(x)[:, :4], True),
    "averages of the code": (lambda net, x: net(x).view(len(x), 4, 8).mean(2), True),
    "sums of the code": (lambda net, x: net(x).view(len(x), 4, 8).sum(2), True),
    "a product": (lambda net, x: net(x) @ net.back, False),
    "parts of the code": (lambda net, x: torch.cat([net(x)[:, :2], net(x)[:, 2:4]], 1), True),
    "a part of the code beside others": (lambda net, x: torch.cat([net(x)[:, :2] @ torch.eye(2), net(x) @ net.back[:, :2]], 1), False),
    "differences": (lambda net, x: net(x)[:, :4] - net(x)[:, 4:8], False),
}


@pytest.mark.parametrize("name", REACH)
def test_what_is_made_of_a_code_may_be_of_either_sign(name: str) -> None:
    torch.manual_seed(0)
    made, wrong = REACH[name]

    def loss(net: nn.Module) -> Tensor:
        x, _ = numbers()
        return F.mse_loss(made(net, x), x[:, :4])  # type: ignore[arg-type]

    assert ("output cannot reach" in told(Code(), loss)) is wrong


@pytest.mark.parametrize("last", [True, False])
def test_an_activation_of_a_frozen_net_bounds_what_it_ends_in(*, last: bool) -> None:
    torch.manual_seed(0)
    judge = nn.Sequential(*frozen(4, 16, 4), *([nn.ReLU()] if last else []))

    def loss(net: nn.Module) -> Tensor:
        x, _ = numbers()
        return F.mse_loss(judge(net(x)), x[:, :4])

    assert ("output cannot reach" in told(mlp(8, 16, 4), loss)) is last


@pytest.mark.parametrize("noise", [0.1, 0.25])
@pytest.mark.parametrize("scaled", [True, False])
def test_noise_around_an_end_is_within_reach(noise: float, *, scaled: bool) -> None:
    torch.manual_seed(0)

    def loss(net: nn.Module) -> Tensor:
        bars = (torch.arange(36) % 6 == torch.randint(6, (32, 1))).float()
        x = bars + noise * torch.randn(32, 36)
        return F.mse_loss(net(x), (x - 0.17) / 0.37 if scaled else x)

    net = nn.Sequential(*mlp(36, 32, 36), nn.Sigmoid())
    assert ("output cannot reach" in told(net, loss, 250)) is scaled


TAILS: dict[str, tuple[nn.Module, Callable[[Tensor], Tensor], bool]] = {
    "tanh": (nn.Tanh(), lambda x: x[:, :4], True),
    "tanh of what is within": (nn.Tanh(), lambda x: 0.5 * x[:, :4], False),
    "sigmoid": (nn.Sigmoid(), lambda x: 0.5 + 0.5 * x[:, :4], True),
    "relu": (nn.ReLU(), lambda x: 1 + x[:, :4], True),
    "relu of few that are below": (nn.ReLU(), lambda x: 2 + x[:, :4], False),
}


@pytest.mark.parametrize("name", TAILS)
def test_targets_that_go_on_beyond_an_end(name: str) -> None:
    torch.manual_seed(0)
    last, asked, wrong = TAILS[name]

    def loss(net: nn.Module) -> Tensor:
        x, _ = numbers()
        return F.mse_loss(net(x), asked(x))

    assert ("output cannot reach" in told(nn.Sequential(*mlp(8, 32, 4), last), loss)) is wrong


# ---- targets that are all the same


VANISHES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], bool]] = {
    "a difference": (lambda o, t: F.mse_loss(o - t, torch.zeros(32, 1)), False),
    "a difference that is turned": (lambda o, t: F.huber_loss(t - o, torch.zeros(32, 1)), False),
    "a quotient": (lambda o, t: F.l1_loss(o / (t.abs() + 1), torch.ones(32, 1)), False),
    "the output": (lambda o, t: F.mse_loss(o, 0 * t), True),
    "the output in other units": (lambda o, t: F.mse_loss(2 * o, 0 * t), True),
    "a difference that is to be 3": (lambda o, t: F.mse_loss(o + 1, 0 * t + 3), True),
}


@pytest.mark.parametrize("name", VANISHES)
def test_a_difference_may_be_meant_to_vanish(name: str) -> None:
    torch.manual_seed(0)
    criterion, wrong = VANISHES[name]

    def loss(net: nn.Module) -> Tensor:
        x, target = numbers()
        return criterion(net(x), target)

    assert ("constant targets" in told(mlp(8, 16, 1), loss)) is wrong


OPTIONS: dict[str, tuple[Callable[[], nn.Module], Callable[[nn.Module, Tensor], Tensor], bool]] = {
    "a last dimension": (lambda: mlp(8, 16, 1), lambda net, x: net(x)[..., 0], False),
    "a view": (lambda: mlp(8, 16, 1), lambda net, x: net(x.flatten(0, 1)).view(32, 4), False),
    "one by one": (lambda: mlp(8, 16, 1), lambda net, x: torch.cat([net(x[:, i]) for i in range(4)], 1), False),
    "sharper": (lambda: mlp(8, 16, 1), lambda net, x: net(x).squeeze(2) / 0.5, False),
    "in the model": (lambda: nn.Sequential(mlp(8, 16, 1), nn.Flatten()), lambda net, x: net(x), False),
    "several heads": (
        lambda: nn.ModuleList(mlp(8, 16, 1) for _ in range(4)),
        lambda net, x: torch.cat([one(x[:, 0]) for one in net], 1),
        True,
    ),
    "classes": (lambda: mlp(8, 16, 4), lambda net, x: net(x[:, 0]), True),
    "biases": (lambda: nn.Sequential(mlp(8, 16, 1), nn.Flatten(), nn.Linear(4, 4)), lambda net, x: net(x), True),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_the_right_one_of_several_options_may_stand_first(name: str) -> None:
    torch.manual_seed(0)
    net, scores, wrong = OPTIONS[name]

    def loss(net: nn.Module) -> Tensor:
        options = torch.randn(32, 4, 8)
        options[:, 0] += 0.7
        return F.cross_entropy(scores(net, options), torch.zeros(32, dtype=torch.long))

    assert ("constant targets" in told(net(), loss)) is wrong


@pytest.mark.parametrize("teacher", [True, False])
def test_all_pairs_of_a_cosine_may_belong_together(*, teacher: bool) -> None:
    torch.manual_seed(0)
    other = frozen(8, 16, 6)

    def loss(net: nn.Module) -> Tensor:
        x, _ = numbers()
        beside = other(x) if teacher else net(x + 0.3 * torch.randn(32, 8))
        return F.cosine_embedding_loss(net(x), beside, torch.ones(32))

    assert ("constant targets" in told(mlp(8, 32, 6), loss)) is not teacher
