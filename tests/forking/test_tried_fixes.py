"""From where a fix is tried, with which dose, and whom it is given to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab
from modlab.forking.futures import KeptGround
from modlab.records.finding import Finding
from modlab.results.fork import of_finding
from modlab.results.watch import Watch

SEED, CENTRES = 2, torch.tensor([-2.5, 0.3, 1.2, 2.2, 4.1])


def classes() -> tuple[Tensor, Tensor]:
    drawn = torch.Generator().manual_seed(SEED)
    centres = 1.5 * torch.randn(5, 10, generator=drawn)
    y = torch.randint(5, (512,), generator=drawn)
    return centres[y] + torch.randn(512, 10, generator=drawn), y


def net(seed: int = 0, *middle: nn.Module) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(10, 32), nn.ReLU(), *middle, nn.Linear(32, 5))


def trained(model: nn.Module, optimizers: list[Any], steps: int = 150, loss: Callable[..., Tensor] = F.cross_entropy) -> Watch:
    x, y = classes()
    drawn = torch.Generator().manual_seed(5)
    with modlab.watch(model, optimizers, keep="good") as w:
        for _ in range(steps):
            rows = torch.randint(len(x), (32,), generator=drawn)
            for one in optimizers:
                one.zero_grad()
            loss(model(x[rows]), y[rows]).backward()
            for one in optimizers:
                one.step()
    return w


@pytest.mark.parametrize("rate", [14.0, 18.0])
def test_the_last_good_state_is_one_before_the_loss_burst(rate: float) -> None:
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    w = trained(model, [optimizer], 300, lambda out, y: F.l1_loss(out[:, 0], CENTRES[y]))
    assert w.findings[0].kind == "not finite by the rate"
    fork = w.findings[0].try_fix(50)
    assert fork.outcome == "better" and fork.losses[0] < 20 and fork.record.last() < fork.losses[0]


def test_a_dose_is_not_judged_by_a_few_values_that_are_small_by_chance() -> None:
    model = net()
    w = trained(model, [torch.optim.Adagrad(model.parameters(), lr=1e-6)])
    fork = w.findings[0].try_fix(150)
    assert fork.outcome == "better" and fork.record.last() < 0.1 and max(fork.losses[20:]) < 2


def test_parameters_are_given_to_the_optimizer_of_their_neighbours() -> None:
    def make() -> tuple[nn.Sequential, list[Any]]:
        torch.manual_seed(0)
        model = net(0, nn.Linear(32, 32), nn.ReLU())
        return model, [torch.optim.SGD(model[4].parameters(), lr=1e-3), torch.optim.Adam(model[2].parameters(), lr=1e-2)]

    model, optimizers = make()
    w = trained(model, optimizers)
    cause = w.findings[0]
    assert cause.kind == "not in the optimizer" and cause.fix.startswith("give what is missing to the optimizer that holds the layers")
    assert w.headline.startswith(
        "The optimizers do not hold all parameters: 0.weight and 0.bias have a gradient, and no optimizer holds them."
    )
    fork = cause.try_fix(100)

    model, optimizers = make()
    optimizers[1].add_param_group({"params": [*model[0].parameters()]})
    x, y = classes()
    drawn = torch.Generator().manual_seed(5)
    for number in range(100):
        rows = torch.randint(len(x), (32,), generator=drawn)
        loss = F.cross_entropy(model(x[rows]), y[rows])
        assert fork.losses[number] == loss.item()
        for one in optimizers:
            one.zero_grad()
        loss.backward()
        for one in optimizers:
            one.step()


def test_a_rate_is_tried_where_its_steps_have_killed_units() -> None:
    torch.manual_seed(2)
    x = torch.randn(256, 8)
    y = x[:, :3].argmax(1)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=8.0)
    with modlab.watch(model, optimizer, keep="good") as w:
        for _ in range(300):
            rows = torch.randint(256, (32,))
            optimizer.zero_grad()
            F.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    assert w.findings[0].kind == "rate too high" and w.findings[0].try_fix().outcome == "better"


def test_what_the_passes_of_a_step_are_divided_by_is_no_factor_of_the_loss() -> None:
    x, y = classes()
    ends = []
    for passes in (1, 4):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with modlab.watch(model, optimizer, keep="good") as w:
            for _ in range(60):
                optimizer.zero_grad()
                for rows in torch.arange(256).chunk(passes):
                    (1e-6 * F.cross_entropy(model(x[rows]), y[rows]) / passes).backward()
                optimizer.step()
        assert w.findings[0].kind == "loss too small"
        ends.append(w.findings[0].try_fix(60).record.last())
    assert ends[0] == pytest.approx(ends[1], rel=1e-3)


@pytest.mark.parametrize("bad", [30, None], ids=["a batch with a NaN", "steps that are too large"])
def test_of_a_batch_with_a_nan_no_dose_is_told_as_if_it_mattered(bad: int | None) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-2 if bad else 1e8)
    with modlab.watch(model, optimizer, keep="good") as w:
        for number in range(60):
            x = torch.randn(32, 4)
            target = x.sum(1, keepdim=True)
            x[3, 1] = float("nan") if number == bad else x[3, 1]
            optimizer.zero_grad()
            F.mse_loss(model(x), target).backward()
            optimizer.step()
    said = str(of_finding(Finding("rate too high"), KeptGround(w._keeper, 0), "Net", 0, 60))  # type: ignore[arg-type]
    assert ("With each of them the loss is not finite from step 30 on, just as without the change" in said) is bool(bad)
    assert ("smallest change" in said) is not bool(bad)
