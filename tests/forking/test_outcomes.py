"""What came of a fork is judged against the noise that both of its futures share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import modlab
from modlab.records.fork import ForkRecord
from modlab.results.fork import Fork
from tests.forking.test_forks import small, trained, watched

FALL = np.linspace(2, 1, 300)
FAR = [2.0] * 90 + [0.9, 0.8, 5, 90, 80, 70, 90, 80, 70, 85]
LEAPS = (
    [4.8, 8.21, 7.5, 1.24, 0.958, 2.95, 5.37, 21, 15.7, 14.3, 2, 4.09],
    [4.8, 73, 36, 22, 3.09, 363, 106, 6.22, 5956, 2.1e6, 4.4e12, 7.2e32],
)
LOST = {"settings": "lr = 0.1", "trial": 20, "trials": ({"what": "some", "loss": np.inf}, {"what": "more", "loss": np.inf})}
NOISE = np.random.default_rng(0).normal(0, 0.5, 300)


def forked(original: Any, fork: Any, **facts: Any) -> Fork:
    """A fork whose losses part at once."""
    there = {"change": "settings", "facts": {"settings": "lr = 0.1"}, "parts": 10, "source": "kept", **facts}
    named = {"original": original, "twin": there.pop("twin", original), "fork": fork}
    curves = {name: np.asarray(curve, np.float64) for name, curve in named.items()}
    return Fork(ForkRecord("Net", there.pop("source"), 0, 0, **curves, **there))


SAID: dict[str, tuple[Fork, str, str]] = {
    "far lower": (forked(FALL, FALL - 0.5), "better", "lower one at 30 of the last 30 steps"),
    "far higher": (forked(FALL, FALL + 0.5), "worse", "higher one at 30 of the last 30 steps"),
    "noise of both": (forked(FALL + abs(NOISE), FALL + abs(NOISE) - 0.2), "better", "lower one at 30 of the last 30 steps"),
    "noise of one": (forked(FALL, FALL + 0.2 + NOISE), "unclear", "of the last 30 steps, the fork's loss is higher at only 16"),
    "one spike": (forked(FALL, [*FALL[:-1], 50.0]), "unclear", "of the last 30 steps, the fork's loss is higher at only 1"),
    "little": (forked(FALL, FALL * 0.97), "same", "It makes little difference: after 300 steps"),
    "nothing": (forked(FALL, FALL, parts=-1), "same", "It makes no difference: after 300 steps"),
    "few, all alike": (forked(FALL[:3], FALL[:3] / 2), "better", "lower one at 3 of the last 3 steps"),
    "few, not alike": (forked([1, 1, 2, 1, 1], [2, 2, 1, 2, 3]), "unclear", "of the last 5 steps, the fork's loss is higher at only 4"),
    "leaps that grow": (forked(*LEAPS), "worse", "higher one at 4 of the last 5 steps"),
    "far lower at most": (forked([4, 3, 5, 4, 2, 3.0], [3, 1, 0.9, 1.5, 2.5, 0.1]), "better", "lower one at 4 of the last 5 steps"),
    "one leap": (forked([4, 3, 5, 4, 2, 3.0], [4, 3, 5, 3, 2.5, 1e9]), "unclear", "higher at only 2"),
    "far apart, as the loss itself is": (forked([4, 0.1, 9, 0.2, 2, 0.3], [0.2, 2, 1, 1, 9, 4]), "unclear", "higher at only 4"),
    "the first one is the same": (forked([1, 1, 1, 1, 1], [1, 2, 9, 99, 1e9]), "worse", "higher one at 4 of the last 4 steps"),
    "far, at most steps": (
        forked([1.0] * 100, [2.0] * 90 + [0.9, 0.8, 5, 90, 80, 70, 90, 80, 70, 85]),
        "worse",
        "higher one at 8 of the last 10 steps",
    ),
    "one": (
        forked([2.0], [1.0]),
        "unclear",
        "too early to tell: after 1 step the loss is 1, and 2 without the change, but of so few steps",
    ),
    "one, and one before it acts": (forked([2.0, 2.0], [2.0, 1.0]), "unclear", "but of so few steps only 1 can be compared (with lr = 0.1"),
    "two, nearly alike": (forked([2.0, 2.0], [2.01, 2.01]), "unclear", "but of so few steps only 2 can be compared (with lr = 0.1"),
    "one, before it acts": (
        forked([2.0], [2.0], parts=-1),
        "not seen",
        "It is too early to tell: what changes a step shows in the loss of the next",
    ),
    "no loss": (forked([np.nan] * 30, [np.nan] * 30), "not seen", "There is no loss to compare: in 30 steps none was seen"),
    "beside the twin": (
        forked(FALL, FALL + 0.3, differs=20, twin=FALL - 0.2),
        "worse",
        "in the unchanged fork, which is not the original (with",
    ),
    "beside a twin that is far from the original": (
        forked(FALL, FALL - 0.5, differs=20, twin=FALL - 0.2),
        "better",
        "in the unchanged fork, which is not the original (with",
    ),
    "beside a twin that is as far": (
        forked(FALL, FALL - 0.5, differs=20, twin=FALL - 0.3),
        "not judged",
        "the unchanged fork is as far from the original as the change is from the unchanged fork, or farther. After 300 steps",
    ),
    "equal to a twin that is not the original": (
        forked(FALL, FALL - 0.3, differs=20, twin=FALL - 0.3),
        "same",
        "It makes little difference",
    ),
    "weights that are lost": (
        forked([np.inf] * 9, [np.inf] * 9, source="batch", parts=0, facts={**LOST, "first": 2.0}),
        "not finite",
        "None of them settles, so the smallest change was run.\n",
    ),
    "weights that were lost": (
        forked([np.inf] * 9, [np.inf] * 9, source="batch", parts=0, facts={**LOST, "first": 2.0}),
        "not finite",
        "The fork begins with a loss that is not finite, and the watch began with 2:",
    ),
    "not finite": (forked(FALL, [*FALL[:-1], np.nan]), "not finite", "within 300 steps it becomes NaN or infinite"),
    "negative": (
        forked(FALL - 1.5, FALL - 2, unjudged="negative values"),
        "not judged",
        "The fork is not judged: the loss has negative values",
    ),
    "several losses": (
        forked(FALL, FALL + 0.5, unjudged="several losses", facts={"settings": "lr = 0.1", "names": ("ld", "lg")}, line=9),
        "not judged",
        "which of ld and lg is the loss is not known. After 300 steps the loss of line 9 is",
    ),
    "several lines": (forked(FALL, FALL - 0.5, line=9), "better", "Of several losses, these are of the backward pass in line 9."),
    "turned around": (
        forked(-FALL, FALL - 9, unjudged="wrong sign"),
        "not judged",
        "the loss is turned around, so a lower one is not better",
    ),
    "negative, and no change": (forked(-FALL, -FALL, parts=-1, unjudged="negative values"), "same", "It makes no difference"),
    "negative, and NaN": (forked(-FALL, [*FALL[:-1], np.nan], unjudged="negative values"), "not finite", "it becomes NaN or infinite"),
    "finite again": (forked([*FALL[:-1], np.inf], FALL), "better", "and not finite without the change"),
}


@pytest.mark.parametrize("name", SAID)
def test_an_outcome_is_told_from_noise(name: str) -> None:
    fork, outcome, said = SAID[name]
    assert fork.outcome == outcome and said in str(fork)
    assert fork.headline.partition(": ")[2] in fork.html(bundle=False).replace("&#x27;", "'")
    assert ("averaged over the last tenth" in str(fork)) == (fork.record.steps >= 20)


def test_two_equal_trainings_seldom_differ_clearly() -> None:
    """Of futures that differ by chance alone, about one in twenty is called better or worse."""
    chance = np.random.default_rng(1)
    outcomes = [forked(*chance.exponential(1, (2, 1000))).outcome for _ in range(400)]
    assert 0 < sum(one in ("better", "worse") for one in outcomes) <= 40


def test_leaps_of_both_are_seldom_a_difference() -> None:
    """Few steps of losses that themselves leap by factors."""
    chance = np.random.default_rng(2)
    outcomes = [forked(*np.exp(chance.normal(0, 1, (2, 12)))).outcome for _ in range(400)]
    assert 0 < sum(one in ("better", "worse") for one in outcomes) <= 50


def test_a_watched_noise_is_no_difference() -> None:
    torch.manual_seed(0)
    net = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02)
    with modlab.watch(net, optimizer, keep="good") as w:
        for _ in range(120):
            optimizer.zero_grad()
            (net(torch.randn(2, 2)) - torch.randn(2, 1)).square().mean().backward()
            optimizer.step()
    assert w.fork(20, {"lr": 0.1}).outcome in ("unclear", "same") and w.fork(20, {"lr": 0.0}).outcome != "better"


def policy() -> tuple[nn.Module, Any]:
    net = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 3))

    def loss() -> torch.Tensor:
        states = torch.randn(64, 4)
        policy = torch.distributions.Categorical(logits=net(states))
        actions = policy.sample()
        reward = (states[:, :3].argmax(1) == actions).float()
        return -(policy.log_prob(actions) * (reward - reward.mean())).mean()

    return net, loss


def turned_around() -> tuple[nn.Module, Any]:
    net = nn.Linear(4, 2)
    return net, lambda: -nn.functional.mse_loss(net(x := torch.randn(16, 4)), x[:, :2])


@pytest.mark.parametrize(
    ("make", "why", "steps"), [(policy, "negative values", 200), (policy, "negative values", 60), (turned_around, "wrong sign", 200)]
)
def test_what_the_verdict_does_not_judge_no_fork_judges(make: Any, why: str, steps: int) -> None:
    torch.manual_seed(0)
    net, loss = make()
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    with modlab.watch(net, optimizer, keep="good") as w:
        for _ in range(steps):
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()
    fork = w.fork(32, {"lr": 2e-2}, steps=80)
    assert (fork.outcome, fork.record.unjudged) == ("not judged", why)
    assert ("does not act anew" in str(fork)) is (make is policy)


def test_of_several_losses_it_says_which_one_is_compared() -> None:
    torch.manual_seed(0)
    one, other = nn.Linear(2, 1), nn.Linear(2, 1)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.05) for each in (one, other)]
    first = []
    with modlab.watch(nn.ModuleList([one, other]), optimizers, keep="good") as w:
        for _ in range(60):
            x = torch.randn(8, 2)
            close = (one(x) - x[:, :1]).square().mean()
            optimizers[0].zero_grad()
            close.backward()
            optimizers[0].step()
            far = (other(x) - 3).square().mean()
            optimizers[1].zero_grad()
            far.backward()
            optimizers[1].step()
            first.append(close.item())
    fork = w.fork(32, {"lr": 0.2})
    assert fork.outcome == "not judged" and "which of close and far is the loss is not known" in fork.headline
    line = test_of_several_losses_it_says_which_one_is_compared.__code__.co_firstlineno + 10
    assert f"these are of the backward pass in line {line}." in str(fork)
    assert fork.original == pytest.approx(first[fork.record.began : fork.record.began + len(fork.original)])


class Asking(nn.Module):
    """A layer that asks for its mode."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 1.1 if self.training else x


MODES: dict[str, tuple[Callable[[], nn.Module], Any, str]] = {
    "dropout": (lambda: nn.Dropout(0.3), {"training": False}, "not judged"),
    "a batch norm": (lambda: nn.BatchNorm1d(8), {"training": False}, "not judged"),
    "the dropout alone": (lambda: nn.Dropout(0.3), {"2.training": False}, "not judged"),
    "code that asks": (Asking, {"training": False}, "not judged"),
    "dropout of nothing": (lambda: nn.Dropout(0.0), {"training": False}, "same"),
    "nothing that asks": (nn.Tanh, {"training": False}, "same"),
    "a rate": (lambda: nn.Dropout(0.3), {"lr": 1e-9}, "worse"),
}


@pytest.mark.parametrize("name", MODES)
def test_losses_of_two_modes_are_not_judged(name: str) -> None:
    layer, change, outcome = MODES[name]

    def make() -> Any:
        model = small(layer())
        return trained(model, lambda: (model(torch.randn(8, 4)) - 9).square().mean(), torch.optim.SGD(model.parameters(), lr=0.05))

    w, *_ = watched(make)
    fork = w.fork(4, change)
    assert fork.outcome == outcome and ("in training mode and the other in evaluation" in fork.headline) is (outcome == "not judged")
