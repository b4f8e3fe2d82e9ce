"""What a blind sweep of doses found unnamed: each fault, and the loops beside it that do the same on purpose."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab
from modlab.results.watch import Watch
from tests.causes.test_neighbours import kinds

SGD, ADAM = torch.optim.SGD, torch.optim.Adam
STEPS = 120


def net(width: int = 32, layers: int = 2) -> nn.Sequential:
    """A net of some layers, always the same."""
    torch.manual_seed(0)
    inner = [one for _ in range(layers - 1) for one in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(nn.Linear(10, width), nn.ReLU(), *inner, nn.Linear(width, 1))


def batch() -> tuple[Tensor, Tensor]:
    """Sixty-four rows, and what is to be found in them."""
    x = torch.randn(64, 10)
    return x, x[:, :1] * x[:, 1:2] + x[:, 2:5].sum(1, keepdim=True)


def error(model: nn.Module) -> Tensor:
    """The loss on a fresh batch."""
    x, y = batch()
    return F.mse_loss(model(x), y)


def run(model: nn.Module, *optimizers: torch.optim.Optimizer, steps: int = STEPS, turn: Callable[[int], None]) -> Watch:
    """Watch a loop."""
    with modlab.watch(model, *optimizers[:1], budget=1.0) as w:
        for step in range(steps):
            turn(step)
    return w


# ---- gradients that are taken away


@pytest.mark.parametrize("zero", [True, False], ids=["zero", "None"])
@pytest.mark.parametrize(("until", "layers"), [(0, 2), (STEPS // 2, 2), (STEPS, 2), (STEPS, 12)])
def test_gradients_of_some_parameters_that_are_gone_at_the_step(until: int, layers: int, zero: bool) -> None:
    """For half of the run they may be held back on purpose, as those of a last layer are."""
    model = net(layers=layers)
    optimizer = ADAM(model.parameters(), lr=0.003)

    def turn(step: int) -> None:
        optimizer.zero_grad()
        error(model).backward()
        for one in model[0].parameters():
            if step < until and one.grad is not None:
                one.grad = torch.zeros_like(one.grad) if zero else None
        optimizer.step()

    w = run(model, optimizer, turn=turn)
    told = until == STEPS
    assert (kinds(w)[:1] == ["zeroed before step"]) is told and bool(w.verdict.exit_code) is told
    if told:
        assert w.verdict.findings[0].facts["places"] == ("0.weight", "0.bias")
        assert "got no gradient" not in str(w) + str(w.verdict) and "got none" not in str(w.verdict)


def test_what_no_loss_reaches_has_not_been_taken_away() -> None:
    model = nn.ModuleDict({"net": net(), "rest": nn.Linear(3, 3)})
    optimizer = ADAM(model.parameters(), lr=0.003)

    def turn(step: int) -> None:
        optimizer.zero_grad()
        error(model["net"]).backward()
        optimizer.step()

    w = run(model, optimizer, turn=turn)
    assert "zeroed before step" not in kinds(w) and "got no gradient in any step" in str(w.verdict) + w.headline
