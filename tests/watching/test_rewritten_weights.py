"""Weights that are written between two steps, the same ones or others."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import modlab

Between = Callable[[int], object]


def watched(make: Callable[[nn.Module], Between], steps: int = 120, lr: float = 1e-3) -> modlab.Watch:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer, between = torch.optim.Adam(net.parameters(), lr=lr), make(net)
    with modlab.watch(net, optimizer) as w:
        for number in range(steps):
            between(number)
            x = torch.randn(32, 4)
            optimizer.zero_grad()
            F.mse_loss(net(x), x.sum(1, keepdim=True)).backward()
            optimizer.step()
    return w


def loaded_each(every: int) -> Callable[[nn.Module], Between]:
    def make(net: nn.Module) -> Between:
        kept = copy.deepcopy(net.state_dict())
        return lambda number: number % every == 0 and net.load_state_dict(kept)

    return make


def averaged(net: nn.Module) -> Between:
    """An average of the weights takes their place every fifth step, and they come back."""
    average = copy.deepcopy(net)

    def between(number: int) -> None:
        if number % 5 == 0:
            own = copy.deepcopy(net.state_dict())
            net.load_state_dict(average.state_dict())
            net.load_state_dict(own)
        with torch.no_grad():
            for mine, other in zip(average.parameters(), net.parameters(), strict=True):
                mine.lerp_(other, 0.1)

    return between


def clamped(net: nn.Module) -> Between:
    return lambda _: [one.detach().clamp_(-1, 1) for one in net.parameters()]


def untouched(net: nn.Module) -> Between:
    return lambda _: None


@pytest.mark.parametrize("every", [3, 5, 20])
def test_the_same_weights_again_and_again(every):
    (found,) = [one for one in watched(loaded_each(every)).findings if one.kind == "weights put back"]
    assert found.facts["times"] == min(120 // every - 2, 31) and found.severity == "broken"


def by_data(net: nn.Module) -> Between:
    """As an average is taken back that was kept at the beginning; no version tells of what goes through `.data`."""
    kept = [one.detach().clone() for one in net.parameters()]

    def between(number: int) -> None:
        if number % 2:
            for one, old in zip(net.parameters(), kept, strict=True):
                one.data.copy_(old)

    return between


def test_the_same_weights_by_another_name_of_theirs():
    (found,) = [one for one in watched(by_data).findings if one.kind == "weights put back"]
    assert found.facts["times"] > 2 and found.severity == "broken"


@pytest.mark.parametrize("make", [averaged, clamped, untouched, loaded_each(100)])
def test_other_weights(make):
    assert not any(one.kind == "weights put back" for one in watched(make).findings)


def test_folds_that_begin_alike_are_no_fault():
    assert not any(one.kind == "weights put back" for one in watched(loaded_each(60), 600, lr=0.1).findings)


def test_last_digits_that_flip_come_back_by_themselves():
    """Of numbers around 1.5, one step adds one to their last digit, and the next one takes it away again."""
    net = nn.Linear(8, 4, bias=False)
    nn.init.uniform_(net.weight, 1.2, 1.8)
    optimizer = torch.optim.SGD(net.parameters(), lr=torch.finfo(torch.float32).eps)
    with modlab.watch(net, optimizer, budget=1.0) as w:
        for number in range(120):
            optimizer.zero_grad()
            (net(torch.ones(1, 8)).sum() * (-1) ** number).backward()
            optimizer.step()
    assert not any(one.kind == "weights put back" for one in w.findings)
