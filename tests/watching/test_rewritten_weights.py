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


def followed(every: int, part: float, by_data: bool = False) -> Callable[[nn.Module], Between]:
    """Slow weights go a part of the way to the quick ones, and take their place."""

    def make(net: nn.Module) -> Between:
        slow = [one.detach().clone() for one in net.parameters()]

        def between(number: int) -> None:
            if number % every != every - 1:
                return
            for mine, one in zip(slow, net.parameters(), strict=True):
                mine.add_(one.detach() - mine, alpha=part)
                if by_data:
                    one.data = mine.clone()
                else:
                    one.detach().copy_(mine)

        return between

    return make


def average_stays(net: nn.Module) -> Between:
    """An average of all steps takes the place of the weights for a validation, and stays there."""
    average = copy.deepcopy(net)

    def between(number: int) -> None:
        for mine, other in zip(average.parameters(), net.parameters(), strict=True):
            mine.detach().lerp_(other.detach(), 0.001)
        if number % 20 == 19:
            net.load_state_dict(average.state_dict())

    return between


@pytest.mark.parametrize(
    "make",
    [followed(5, 0.01), followed(7, 0.002), followed(5, 0.01, by_data=True), average_stays],
    ids=["slow", "slower", "data", "average"],
)
def test_weights_that_are_moved_back_nearly_all_the_way(make):
    w = watched(make, 240)
    (found,) = [one for one in w.findings if one.kind == "weights put back"]
    assert found.facts["times"] > 4 and found.facts["left"] < 0.05
    assert "moved them back between two steps, by 99" in w.headline


def begun_anew(every: int) -> Callable[[nn.Module], Between]:
    def make(net: nn.Module) -> Between:
        return lambda number: number % every == 0 and [one.reset_parameters() for one in net if isinstance(one, nn.Linear)]

    return make


def test_weights_that_begin_anew():
    w = watched(begun_anew(10), 240)
    (found,) = [one for one in w.findings if one.kind == "weights put back"]
    assert found.facts["times"] > 20 and found.facts["leap"] > 2
    assert w.headline.startswith("The weights begin anew again and again: at least") and "reset_parameters()" in str(w)


def masked(net: nn.Module) -> Between:
    """Most weights are pruned, and are taken away again after each few steps."""
    masks = [torch.rand_like(one.detach()) < 0.1 for one in net.parameters()]
    return lambda number: number % 5 or [one.detach().mul_(mask) for one, mask in zip(net.parameters(), masks, strict=True)]


def normalized(net: nn.Module) -> Between:
    return lambda number: number % 5 or [one.detach().div_(one.detach().norm()) for one in net.parameters()]


def hardly_clamped(net: nn.Module) -> Between:
    return lambda number: number % 5 or [one.detach().clamp_(-0.01, 0.01) for one in net.parameters()]


def quantized(net: nn.Module) -> Between:
    return lambda number: number % 5 or [one.detach().mul_(16).round_().div_(16) for one in net.parameters()]


def averaged_over_time(net: nn.Module) -> Between:
    """Once, at the end."""
    average = torch.optim.swa_utils.AveragedModel(net)

    def between(number: int) -> None:
        average.update_parameters(net)
        if number == 119:
            net.load_state_dict(average.module.state_dict())

    return between


@pytest.mark.parametrize("lr", [1e-3, 1e-2])
@pytest.mark.parametrize(
    "make", [followed(5, 0.5), followed(5, 0.1), masked, normalized, hardly_clamped, averaged_over_time, averaged, quantized]
)
def test_weights_that_are_written_for_another_reason(make, lr):
    assert not any(one.kind == "weights put back" for one in watched(make, 240, lr=lr).findings)


def test_folds_that_begin_anew_are_no_fault():
    assert not any(one.kind == "weights put back" for one in watched(begun_anew(100), 1000, lr=0.05).findings)


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
