"""Losses that are no number: by the learning rate, by one bad batch, by what stands in the loss."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab


def trained(batch: Callable[[int], tuple[Tensor, Tensor]], criterion: Callable[[Tensor, Tensor], Tensor], rate: float = 0.01) -> Any:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 4))
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    with modlab.watch(net, optimizer) as w:
        for step in range(60):
            inputs, target = batch(step)
            optimizer.zero_grad()
            criterion(net(inputs), target).backward()
            optimizer.step()
    return w


def labelled(step: int, classes: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(32, 6, generator=generator)
    return inputs, inputs[:, :4].argmax(1) % classes


def first(w: Any) -> Any:
    return next(one for one in w.verdict.findings if "tier" in one.facts)


def test_a_loss_that_falls_calmly_until_it_is_nan_is_not_the_rates_doing() -> None:
    def batch(step: int) -> tuple[Tensor, Tensor]:
        inputs, target = labelled(step)
        if step == 31:
            inputs[3, 2] = math.nan
        return inputs, target

    found = first(trained(batch, F.cross_entropy))
    assert (found.kind, found.facts.get("rival")) == ("not a number in data", "division by zero")


def test_a_first_step_that_made_a_loss_higher_is_forgotten_when_it_has_come_down() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    with modlab.watch(net, optimizer) as w:
        for step in range(60):
            inputs = torch.randn(32, 4)
            target = inputs.sum(1, keepdim=True)
            if step == 1:
                inputs, target = 1.5 * inputs, 2 * target  # a hard batch
            if step == 30:
                inputs[3, 1] = math.nan
            optimizer.zero_grad()
            F.mse_loss(net(inputs), target).backward()
            optimizer.step()
    assert first(w).kind == "not a number in data"


@pytest.mark.parametrize("climbs", [True, False])
def test_no_step_is_known_to_be_small_while_a_loss_climbs(climbs: bool) -> None:
    def batch(step: int) -> tuple[Tensor, Tensor]:
        inputs, target = labelled(step)
        if step == 31:
            inputs[3, 2] = math.nan
        return inputs, (target + 1) % 4 if climbs and step >= 20 else target

    w = trained(batch, F.cross_entropy)
    told = [one for one in w.verdict.findings if "calm" in one.facts]
    assert bool(told) is not climbs


@pytest.mark.parametrize("step", [0, 1, 3])
def test_infinity_in_a_batch_is_met_where_it_enters_though_the_loss_is_still_a_number(step: int) -> None:
    def batch(number: int) -> tuple[Tensor, Tensor]:
        inputs, target = labelled(number)
        if number == step:
            inputs[3, 2] = math.inf
        return inputs, target

    found = first(trained(batch, F.cross_entropy))
    assert found.kind == "not a number in data" and "calm" not in found.facts


def weights_by_counts(output: Tensor, target: Tensor) -> Tensor:
    weight = 1 / torch.bincount(target, minlength=4)
    return F.cross_entropy(output, target, weight=weight / weight.sum())


def divergence_from_one_hot(output: Tensor, target: Tensor) -> Tensor:
    wanted, said = F.one_hot(target, 4).float(), output.softmax(1)
    return (said * (said.log() - wanted.log())).sum(1).mean()


def shares_by_hand(output: Tensor, target: Tensor) -> Tensor:
    raised = torch.exp(200 * output)
    return ((raised / raised.sum(1, keepdim=True))[range(len(target)), target] - 1).square().mean()


@pytest.mark.parametrize(
    ("criterion", "cause"),
    [(weights_by_counts, "division by zero"), (divergence_from_one_hot, "log of zero"), (shares_by_hand, "overflow")],
)
def test_what_stands_in_the_loss_is_read_from_its_graph(criterion: Callable[[Tensor, Tensor], Tensor], cause: str) -> None:
    assert first(trained(lambda step: labelled(step, 3), criterion)).kind == cause


def root_of_squares_in_half(output: Tensor, target: Tensor) -> Tensor:
    error = (100 * (output - F.one_hot(target, 4))).to(torch.float16)
    return (error * error).sum().sqrt().float()


def test_an_infinite_loss_in_half_precision_overflows() -> None:
    assert first(trained(labelled, root_of_squares_in_half)).kind == "overflow"


def test_a_rate_that_bursts_is_named_as_before() -> None:
    found = first(trained(labelled, lambda output, target: F.mse_loss(output, F.one_hot(target, 4).float()), rate=1e30))
    assert found.kind in ("not finite by the rate", "rate too high")


def logarithms_apart(output: Tensor, target: Tensor) -> Tensor:
    return (output[:, 0].log() - (target + 1.0).log()).square().mean()


def roots_apart(output: Tensor, target: Tensor) -> Tensor:
    return (output[:, 0].sqrt() - target.float().sqrt()).square().mean()


@pytest.mark.parametrize(
    ("criterion", "kind", "says"),
    [
        (logarithms_apart, "log of zero", "a logarithm of a negative number: somewhere on the way to the loss"),
        (
            lambda output, target: logarithms_apart(output.relu(), target),
            "log of zero",
            "a logarithm of zero: somewhere on the way to the loss",
        ),
        (lambda output, target: (3 * output[:, 0]).log1p().sub(target).square().mean(), "log of zero", "a logarithm of a negative number"),
        (roots_apart, "root of zero", "a root of a negative number: somewhere on the way to the loss"),
        (lambda output, target: (output[:, 0] ** 1.5 - target).square().mean(), "root of zero", "a root of a negative number"),
    ],
)
def test_of_zero_and_of_a_negative_number_are_told_apart(criterion: Callable[[Tensor, Tensor], Tensor], kind: str, says: str) -> None:
    w = trained(labelled, criterion)
    assert first(w).kind == kind and says in str(w.verdict)


@pytest.mark.parametrize(
    ("inner", "kind", "says"),
    [
        (torch.log, "log of zero", "a logarithm of a negative number: torch.log in"),
        (torch.sqrt, "root of zero", "a root of a negative number: torch.sqrt in"),
        (lambda x: torch.where(x > 0, x / x.relu(), 0 * x), "division by zero", "a division by zero: x / y in"),
    ],
)
def test_so_are_they_inside_of_the_model(inner: Any, kind: str, says: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(4, 1)

        def forward(self, x: Tensor) -> Tensor:
            return inner(self.net(x))  # type: ignore[no-any-return]

    torch.manual_seed(0)
    net = Model()
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    with modlab.watch(net, optimizer) as w:
        for _ in range(20):
            x = torch.randn(32, 4)
            optimizer.zero_grad()
            (net(x) - x.sum(1, keepdim=True)).square().mean().backward()
            optimizer.step()
    assert first(w).kind == kind and says in str(w.verdict)


@pytest.mark.parametrize("epsilon", [0.0, 1e-7])
def test_a_logarithm_of_a_chance_to_which_nothing_is_added_is_known_before_it_is_infinite(epsilon: float) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    with modlab.watch(net, optimizer) as w:
        for step in range(300):
            x = torch.randn(40, 2) + 8 * (torch.arange(40)[:, None] % 2)
            target = (torch.arange(40) % 2).float()
            chance = torch.sigmoid(net(8 * x)).squeeze(1)
            loss = -(target * torch.log(chance + epsilon) + (1 - target) * torch.log(1 - chance + epsilon)).mean()
            if not epsilon and step == 200:
                loss = loss * math.nan
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert ("logarithm of a chance" in w.record.watched.clues.losses[0].risks) == (not epsilon)
    if not epsilon:
        assert first(w).kind == "log of zero"


@pytest.mark.parametrize("epsilon", [0.0, 1e-8])
@pytest.mark.parametrize("squares", [lambda x: (x**2).sum(1), lambda x: (x * x).mean(-1)])
def test_a_root_of_squares_to_which_nothing_is_added_is_known_before_it_is_zero(squares: Any, epsilon: float) -> None:
    torch.manual_seed(0)
    x = torch.randn(400, 8)
    net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    with modlab.watch(net, optimizer, budget=1.0) as w:
        for step in range(120):
            one = torch.randint(0, 400, (32,))
            other = (one + torch.randint(1, 400, (32,))) % 400
            same = (x[one, 0] > 0) == (x[other, 0] > 0)
            if step == 60:
                other[0] = one[0]
            apart = squares(net(x[one]) - net(x[other]))
            apart = (apart + epsilon if epsilon else apart).sqrt()
            loss = (same * apart**2 + ~same * F.relu(1 - apart) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert w.verdict.ok == bool(epsilon)
    if not epsilon:
        assert first(w).kind == "root of zero"


@pytest.mark.parametrize("classes", [1, 3])
def test_what_became_nan_in_the_last_step_is_told(classes: int) -> None:
    torch.manual_seed(0)
    net = nn.Linear(4, classes)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with modlab.watch(net, optimizer) as w:
        for step in range(301):
            x = torch.randn(16, 4)
            loss = F.cross_entropy(net(x), x[:, :3].argmax(1)) if classes > 1 else F.mse_loss(net(x), x[:, :1])
            optimizer.zero_grad()
            (loss * (math.nan if step == 300 else 1)).backward()
            optimizer.step()
    assert not w.verdict.ok
    check = next(one for one in w.verdict.checks if one.name == "the loss is sensible")
    assert check.state == "broken" and "NaN" in check.text


@pytest.mark.parametrize("at", [0, 12, 30])
@pytest.mark.parametrize("post", [True, False])
def test_a_hook_on_a_parameter_that_makes_its_gradient_nan(at: int, post: bool) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    weight, calls = net[0].weight, itertools.count()
    if post:
        weight.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", p.grad * math.nan if next(calls) >= at else p.grad))
    else:
        weight.register_hook(lambda g: g * math.nan if next(calls) >= at else g)
    optimizer, x = torch.optim.SGD(net.parameters(), 0.01), torch.randn(64, 4)
    with modlab.watch(net, optimizer) as w:
        for _ in range(40):
            optimizer.zero_grad()
            F.mse_loss(net(x), x.sum(1, keepdim=True)).backward()
            optimizer.step()
    first = next(one for one in w.findings if one.severity == "broken")
    assert (first.kind, first.path) == ("gradients overwritten", "0.weight")
    assert [(one.kind, one.path, one.step) for one in w.alerts] == [("nan", "0.weight", at)]


def test_a_line_that_makes_a_gradient_nan_is_neither_the_rate_nor_the_data() -> None:
    """And what a look has seen is not replaced by what was left of it a step later."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer, x = torch.optim.SGD(net.parameters(), 0.01), torch.randn(64, 4)
    with modlab.watch(net, optimizer) as w:
        for _ in range(20):
            optimizer.zero_grad()
            F.mse_loss(net(x), x.sum(1, keepdim=True)).backward()
            net[0].weight.grad.fill_(math.nan)
            optimizer.step()
    assert not {"not finite by the rate", "not a number in data"} & {one.kind for one in w.findings}
    assert [one.text for one in w.alerts] == ["the gradient of 0.weight is the first with NaN: 64 numbers of 64, in the sample of step 0"]


@pytest.mark.parametrize("factor", [math.inf, 1.0])
def test_a_loss_that_is_multiplied_by_infinity(factor: float) -> None:
    found = [
        one for one in trained(labelled, lambda output, target: F.cross_entropy(output, target) * factor).findings if "tier" in one.facts
    ]
    assert [one.kind for one in found] == ["division by zero"] * (factor > 1)
    assert all("has an infinite factor: something in it is multiplied by infinity" in one.text for one in found)


@pytest.mark.parametrize("cleans", [True, False])
@pytest.mark.parametrize("at", [0, 1])
def test_batches_with_nan_that_the_loop_leaves_out_are_named(at: int, cleans: bool) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 1))
    if cleans:
        net.insert(0, Cleaned())
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    with modlab.watch(net, optimizer) as w:
        for step in range(80):
            x = torch.randn(32, 6)
            x[3, 2] = math.nan if step % 4 == at else 0.5
            loss = F.mse_loss(net(x), x[:, 3:].sum(1, keepdim=True))
            if torch.isnan(loss):
                continue
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            w.log(loss=loss)
    named = [one.kind for one in w.findings if "tier" in one.facts]
    assert named == ([] if cleans else ["not a number in data"])
    assert cleans or w.alerts[0].text == f"the batch is the first with NaN: 1 number of 192, in the sample of step {at}"
    assert next(one for one in w.verdict.checks if one.name == "the loss is sensible").state == "passed"


class Cleaned(nn.Module):
    """Takes NaN for what is not known."""

    def forward(self, x: Tensor) -> Tensor:
        return x.nan_to_num()
