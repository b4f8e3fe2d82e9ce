"""Outputs and scores that are told by their numbers: held at a bound, or chances already."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab
from tests.causes.test_sequences import kinds

Way = Callable[[Tensor], Tensor]


class Behind(nn.Module):
    """A net with a function behind its last layer."""

    def __init__(self, last: Way, answers: int = 1, hidden: int = 16) -> None:
        super().__init__()
        self.net, self.last = nn.Sequential(nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, answers)), last

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.net(x))


def trained(
    net: nn.Module, batch: Callable[[], tuple[Tensor, Tensor]], criterion: Any, rate: float = 0.01, steps: int = 60
) -> modlab.Watch:
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    with modlab.watch(net, optimizer) as w:
        for _ in range(steps):
            x, target = batch()
            optimizer.zero_grad()
            criterion(net(x), target).backward()
            optimizer.step()
    return w


def values(times: float = 1.0, shift: float = 0.0) -> Callable[[], tuple[Tensor, Tensor]]:
    def batch() -> tuple[Tensor, Tensor]:
        x = torch.randn(64, 4)
        return x, shift + times * (x[:, :1] + 0.3 * torch.randn(64, 1))

    return batch


BOUNDS: dict[str, tuple[Way, float, float, bool]] = {
    "minimum": (lambda x: torch.minimum(x, torch.tensor(0.2)), 1.0, 0.0, True),
    "where": (lambda x: torch.where(x < -0.1, torch.full_like(x, -0.1), x), 1.0, 0.0, True),
    "hardtanh of its own ends": (nn.Hardtanh(0.0, 2.0), 1.0, 0.0, True),
    "relu6 of large targets": (nn.ReLU6(), 3.0, 6.0, True),
    "relu6 of targets within": (nn.ReLU6(), 0.5, 3.0, False),
    "a clamp of outliers": (lambda x: x.clamp(-2.5, 2.5), 1.0, 0.0, False),
    "nothing": (lambda x: x, 1.0, 0.0, False),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_targets_beyond_a_bound(name):
    last, times, shift, wrong = BOUNDS[name]
    torch.manual_seed(0)
    w = trained(Behind(last), values(times, shift), F.mse_loss)
    assert ("output cannot reach" in kinds(w)) is wrong


@pytest.mark.parametrize(("times", "wrong"), [(1, True), (9, False)])
def test_a_clamp_in_the_loss_and_one_that_is_scaled(times, wrong):
    def criterion(out: Tensor, target: Tensor) -> Tensor:
        held = out.clamp(-1, 1)
        return F.mse_loss(held if times == 1 else times * held, target)

    torch.manual_seed(0)
    assert ("output cannot reach" in kinds(trained(Behind(lambda x: x), values(2.0), criterion, steps=8))) is wrong


class Recurrent(nn.Module):
    """A layer that reads a series, and one that says what comes of it."""

    def __init__(self, last: nn.Module, part: int = 0, scale: float = 1.0) -> None:
        super().__init__()
        self.read, self.last, self.part, self.scale = nn.GRU(1, 16, batch_first=True), last, part, scale

    def forward(self, x: Tensor) -> Tensor:
        given = self.last(self.read(x)[0])
        given = given[self.part] if isinstance(given, tuple) else given
        given = given[0] if isinstance(given, tuple) else given
        place = given[:, -1, 0] if given.shape[:1] == x.shape[:1] else given[0, :, 0]
        return place if self.scale == 1 else self.scale * place


RECURRENT: dict[str, tuple[Callable[[], nn.Module], float, bool]] = {
    "gru": (lambda: Recurrent(nn.GRU(16, 1, batch_first=True)), 4.0, True),
    "lstm": (lambda: Recurrent(nn.LSTM(16, 1, batch_first=True)), 4.0, True),
    "last state": (lambda: Recurrent(nn.LSTM(16, 1, batch_first=True), part=1), 4.0, True),
    "scaled": (lambda: Recurrent(nn.GRU(16, 1, batch_first=True), scale=8.0), 4.0, False),
    "within": (lambda: Recurrent(nn.GRU(16, 1, batch_first=True)), 0.8, False),
    "projected": (lambda: Recurrent(nn.LSTM(16, 8, proj_size=1, batch_first=True)), 4.0, False),
    "linear": (lambda: Recurrent(nn.Linear(16, 1)), 4.0, False),
}


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("name", RECURRENT)
def test_a_state_that_is_the_forecast(name):
    make, size, wrong = RECURRENT[name]

    def batch() -> tuple[Tensor, Tensor]:
        wave = torch.sin(torch.arange(9.0) * 0.7 + 6 * torch.rand(32, 1))
        return wave[:, :-1, None], size * wave[:, -1]

    torch.manual_seed(0)
    w = trained(make(), batch, F.mse_loss, rate=0.02, steps=100)
    assert ("output cannot reach" in kinds(w)) is wrong
    assert "bottleneck" not in kinds(w)  # one number is asked for


def test_what_a_bias_alone_gives_is_no_bound():
    torch.manual_seed(0)
    w = trained(Behind(lambda x: x, hidden=1), values(), F.mse_loss)
    assert "output cannot reach" not in kinds(w)


@pytest.mark.parametrize(("last", "outcome"), [(lambda x: x.clamp(0, 0.5), "failed"), (lambda x: x.clamp(-2.5, 2.5), "passed")])
def test_a_clamp_is_tried_with_the_right_answer(last, outcome):
    torch.manual_seed(0)
    found = modlab.diagnose(Behind(last), batch=values()(), loss=F.mse_loss).experiments
    assert [one.outcome for one in found if one.name == "aim"] == [outcome]


def classes() -> tuple[Tensor, Tensor]:
    x = torch.randn(64, 4)
    return x, x[:, :3].argmax(1)


def by_hand(x: Tensor) -> Tensor:
    e = (x - x.detach().amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


SCORES: dict[str, tuple[Way, Any, bool]] = {
    "by hand": (by_hand, F.cross_entropy, True),
    "in the loss": (lambda x: x, lambda out, target: F.cross_entropy(by_hand(out), target), True),
    "times a reciprocal": (lambda x: x.exp() * x.exp().sum(1, keepdim=True).reciprocal(), F.cross_entropy, True),
    "shares of squares": (lambda x: F.normalize(x, dim=1).square(), F.cross_entropy, True),
    "logarithms": (lambda x: by_hand(x).log(), F.cross_entropy, False),
    "doubled": (lambda x: 9 * by_hand(x), F.cross_entropy, False),
    "raw": (lambda x: x, F.cross_entropy, False),
}


@pytest.mark.parametrize("name", SCORES)
def test_chances_in_a_cross_entropy(name):
    last, criterion, wrong = SCORES[name]
    torch.manual_seed(0)
    assert ("softmax before cross entropy" in kinds(trained(Behind(last, 3), classes, criterion))) is wrong


def yes_or_no() -> tuple[Tensor, Tensor]:
    x = torch.randn(64, 4)
    return x, torch.stack([x[:, 0] > 1, x[:, 1] > 0.5], 1).float()


CHANCES: dict[str, tuple[Way, bool]] = {
    "a quotient": (lambda x: 1 / (1 + (-x).exp()), True),
    "an arc": (lambda x: 0.5 + (3 * x).atan() / torch.pi, True),
    "a share": (lambda x: 0.5 + 0.5 * x / (x.square() + 0.01).sqrt(), True),
    "raw": (lambda x: x, False),
    "raw, from one half on": (lambda x: 0.5 + 0.05 * x, False),
    "raw, and slow": (lambda x: 0.5 + 1e-6 * x, False),
}


@pytest.mark.parametrize("name", CHANCES)
def test_chances_in_a_loss_that_takes_scores(name):
    last, wrong = CHANCES[name]
    torch.manual_seed(0)
    w = trained(Behind(last, 2), yes_or_no, F.binary_cross_entropy_with_logits, 0.05, 120)
    assert ("sigmoid twice" in kinds(w)) is wrong


@pytest.mark.parametrize("wrong", [True, False])
def test_chances_of_rare_answers_that_come_to_zero_late(wrong):
    torch.manual_seed(0)
    teacher = torch.randn(4, 8)

    def rare() -> tuple[Tensor, Tensor]:
        x = torch.randn(64, 4)
        return x, (x @ teacher > 3).float()

    w = trained(Behind(lambda x: 1 / (1 + (-x).exp()) if wrong else x, 8), rare, F.binary_cross_entropy_with_logits, 3e-3, 300)
    assert ("sigmoid twice" in kinds(w)) is wrong


@pytest.mark.parametrize(("times", "small"), [(1e-4, True), (1.0, False)])
def test_targets_that_are_far_smaller_than_the_outputs_begin(times, small):
    torch.manual_seed(0)
    w = trained(Behind(lambda x: x, 1), values(times), F.mse_loss, 1e-3, 200)
    assert ("targets not scaled" in kinds(w)) is small
    assert ("where that of the outputs began at" in str(w)) is small
