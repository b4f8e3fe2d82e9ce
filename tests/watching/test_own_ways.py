"""Loops that go other ways than the usual one: nothing is said of them that is not so."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab


def adversaries() -> tuple[nn.ModuleDict, list[torch.optim.Optimizer]]:
    torch.manual_seed(0)
    nets = {
        "made": nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 2)),
        "judge": nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1)),
    }
    return nn.ModuleDict(nets), [torch.optim.Adam(one.parameters(), 1e-3) for one in nets.values()]


def lines(nets: Any, optimizers: Any, loss: Any) -> None:
    makes, judges = optimizers
    real, made = torch.randn(32, 2) + 2, nets["made"](torch.randn(32, 2))
    judges.zero_grad()
    judged = loss(nets["judge"](real), 1) + loss(nets["judge"](made.detach()), 0)
    judged.backward()
    judges.step()
    makes.zero_grad()
    passed = loss(nets["judge"](made), 1)
    passed.backward()
    makes.step()


def helper(nets: Any, optimizers: Any, loss: Any) -> None:
    def update(optimizer: Any, one: Tensor) -> None:
        optimizer.zero_grad()
        one.backward()
        optimizer.step()

    makes, judges = optimizers
    real, noise = torch.randn(32, 2) + 2, torch.randn(32, 2)
    update(judges, loss(nets["judge"](real), 1) + loss(nets["judge"](nets["made"](noise).detach()), 0))
    update(makes, loss(nets["judge"](nets["made"](noise)), 1))


def chances(scores: Tensor, target: int) -> Tensor:
    return F.binary_cross_entropy_with_logits(scores, torch.full_like(scores, target))


def scores(given: Tensor, target: int) -> Tensor:
    return given.mean() * (1 - 2 * target)


@pytest.mark.parametrize("keep", ["", "good"])
@pytest.mark.parametrize("loss", [chances, scores])
@pytest.mark.parametrize("step", [lines, helper])
def test_two_adversaries_are_no_recurrence(step: Any, loss: Any, keep: Any) -> None:
    nets, optimizers = adversaries()
    with modlab.watch(nets, optimizers, **({"keep": keep} if keep else {})) as w:
        for _ in range(60):
            step(nets, optimizers, loss)
    assert not [one.kind for one in w.verdict.findings if one.severity == "broken"], w.headline
    if step is lines:
        assert {"judged", "passed"} <= {one.name for one in w.record.scalars}


def test_a_few_dead_units_of_a_judge_head_nothing() -> None:
    nets, optimizers = adversaries()
    nets["judge"][1] = nn.ReLU()  # type: ignore[index, operator]
    nets["judge"][0].bias.data[:3] = -50  # type: ignore[index, union-attr, operator]
    with modlab.watch(nets, optimizers, budget=1.0) as w:
        for _ in range(60):
            lines(nets, optimizers, chances)
    (found,) = (one for one in w.verdict.findings if one.kind == "dead units")
    assert found.severity == "careful" and w.verdict.ok and "dead" not in w.headline, w.headline


@pytest.mark.parametrize("clears", [False, True])
@pytest.mark.parametrize("how", ["set", "copied"])
def test_gradients_that_are_asked_for_add_to_nothing(how: str, clears: bool) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    with modlab.watch(net, optimizer) as w:
        for _ in range(60):
            x = torch.randn(32, 4)
            found = torch.autograd.grad(F.mse_loss(net(x), x.sum(1, keepdim=True)), [*net.parameters()])
            if clears:
                optimizer.zero_grad()
            for one, gradient in zip(net.parameters(), found, strict=True):
                if how == "set" or one.grad is None:
                    one.grad = gradient
                else:
                    one.grad.copy_(gradient)
            optimizer.step()
    assert w.verdict.ok and not w.alerts, w.headline


def test_a_penalty_on_gradients_hides_no_forgotten_zero_grad() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    with modlab.watch(net, optimizer) as w:
        for _ in range(60):
            x = torch.randn(32, 4)
            loss = F.mse_loss(net(x), x.sum(1, keepdim=True))
            slopes = torch.autograd.grad(loss, [*net.parameters()], create_graph=True)
            (loss + 1e-3 * sum(one.square().sum() for one in slopes)).backward()
            optimizer.step()
    assert "not zeroed" in [one.kind for one in w.alerts]


def regression(optimizer: torch.optim.Optimizer, net: nn.Module) -> None:
    x = torch.randn(32, 4)
    optimizer.zero_grad()
    F.mse_loss(net(x), x.sum(1, keepdim=True)).backward()
    optimizer.step()


@pytest.mark.parametrize("how", ["a group more", "another optimizer"])
def test_what_an_optimizer_takes_up_later_is_owned(how: str) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer: torch.optim.Optimizer = torch.optim.SGD(net[2].parameters(), lr=1e-2, momentum=0.9)
    with modlab.watch(net, optimizer) as w:
        for number in range(200):
            if number == 30 and how == "a group more":
                optimizer.add_param_group({"params": net[0].parameters()})
            elif number == 30:
                optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
            regression(optimizer, net)
            if number == 20:
                assert w.verdict.exit_code == 1 and "not hold" in w.headline
    assert w.verdict.ok, w.headline


def test_a_rate_that_was_zero_at_first_is_zero_no_more() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: float(step >= 10))
    with modlab.watch(net, optimizer) as w:
        for _ in range(400):
            regression(optimizer, net)
            schedule.step()
    assert w.verdict.ok, w.headline


def test_a_uniform_guess_is_among_the_pairs_of_a_batch() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    with modlab.watch(net, optimizer) as w:
        for _ in range(40):
            x = torch.randn(64, 6)
            one, other = (F.normalize(net(x + 0.1 * torch.randn_like(x))) for _ in range(2))
            optimizer.zero_grad()
            F.cross_entropy(one @ other.T / 0.5, torch.arange(64)).backward()
            optimizer.step()
    assert "among 64 would give 4.159" in str(w) and "among 8" not in str(w)


def test_no_rate_is_too_low_for_a_loss_that_is_constant() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 3), nn.Softmax(-1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with modlab.watch(net, optimizer) as w:
        for _ in range(40):
            optimizer.zero_grad()
            net(torch.randn(8, 4)).sum().backward()
            optimizer.step()
    kinds = [one.kind for one in w.verdict.findings]
    assert kinds[0] == "constant loss" and "rate too low" not in kinds


@pytest.mark.filterwarnings("error")
def test_numbers_beyond_float32_are_finite_in_a_net_of_doubles() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1)).double()
    optimizer = torch.optim.SGD(net.parameters(), lr=30)
    seen: list[bool] = []
    with modlab.watch(net, optimizer, budget=1.0) as w:
        for _ in range(23):
            x = torch.randn(64, 4, dtype=torch.float64)
            optimizer.zero_grad()
            loss = F.mse_loss(net(x), x.sum(1, keepdim=True))
            seen.append(bool(loss.isfinite()))
            loss.backward()
            optimizer.step()
    first = seen.index(False)
    assert max(w.record.scalars[0].mean[:first]) == torch.inf > 3.5e38  # the curve holds float32 ...
    assert (
        f"not finite, first seen at step {first}" in w.headline and "up to NaN" not in w.headline
    )  # ... and what is said goes by the numbers
    assert {alert.step for alert in w.alerts if alert.kind in ("nan", "inf")} == {first}
    assert str(w) and w.html() and w.diagnose().headline


def test_of_sparse_gradients_it_is_not_said_that_there_are_none() -> None:
    torch.manual_seed(0)
    words = nn.Embedding(50, 8, sparse=True)
    optimizer = torch.optim.SparseAdam(words.parameters(), lr=0.01)
    with modlab.watch(words, optimizer, budget=1.0) as w:
        for _ in range(60):
            optimizer.zero_grad()
            words(torch.randint(50, (16,))).square().mean().backward()
            optimizer.step()
    kinds = {one.name: one.kind for one in w.verdict.checks}
    assert kinds["by enough for its dtype"] == "not counted" and kinds["every trained parameter gets a gradient"] == "gradients"


def test_a_watch_that_has_ended_says_so_where_it_is_entered_again(capfd: pytest.CaptureFixture[str]) -> None:
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    with modlab.watch(net, optimizer) as w:
        regression(optimizer, net)
    assert "has ended" not in capfd.readouterr().err
    with w:
        regression(optimizer, net)
    assert "modlab: this watch has ended and sees no more steps" in capfd.readouterr().err and w.record.steps == 1
