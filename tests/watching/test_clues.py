"""Clues: what a watch takes down of gradients, graphs and weights is what PyTorch says of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab
from modlab.records.clues import Clues
from modlab.running import guarded
from modlab.watching.clues import ClueCollector
from modlab.watching.loose_weights import places

STEPS = 12


def trained(
    model: nn.Module,
    *,
    loss: Callable[[nn.Module, Tensor, Tensor], Tensor] | None = None,
    before: Callable[[], object] = lambda: None,
    step: Callable[[], object] | None = None,
    rate: float = 0.01,
) -> Clues:
    """The clues of a short training; `before` comes between backward() and the step."""
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), rate)
    with modlab.watch(model, optimizer) as w:
        for _ in range(STEPS):
            x = torch.randn(16, 4)
            optimizer.zero_grad()
            (loss or squares)(model, x, x.sum(1, keepdim=True)).backward()
            before()
            (step or optimizer.step)()
    return w.record.watched.clues


def squares(model: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    return (model(x) - target).square().mean()


def net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def facts(clues: Clues, kind: str) -> dict[str, dict[str, object]]:
    return {one.path: dict(one.facts) for one in clues.modules if one.kind == kind}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("left", [1.0, 1e-3])
def test_what_is_left_of_gradients_at_the_step(left, dtype):
    model = net().to(dtype)
    change = lambda: [one.grad.mul_(left) for one in model.parameters()]  # noqa: E731
    loop = trained(model, loss=lambda model, x, y: squares(model, x.to(dtype), y.to(dtype)), before=change).loop
    assert loop.left == pytest.approx(left, rel=1e-5) and loop.edited[0] == 0


def test_numbers_are_read_more_rarely_the_longer_a_training_lasts():
    model, looks = net(), []
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for _ in range(600):
            x = torch.randn(4, 4)
            optimizer.zero_grad()
            squares(model, x, x.sum(1, keepdim=True)).backward()
            optimizer.step()
            looks.append(w.record.watched.clues.losses[0].looks)
    read = [step for step in range(1, 600) if looks[step] > looks[step - 1]]
    assert read[:9] == list(range(1, 10))  # the first ones in a row
    assert 15 < len(read) < 60 and read[-1] > 550


def test_gradients_that_are_turned_or_gone_are_no_clipped_ones():
    model = net()
    turned, true, gone = trained(model, before=lambda: [one.grad.normal_() for one in model.parameters()]).loop.edited
    assert turned > true and not gone
    turned, true, gone = trained(model, before=model.zero_grad).loop.edited
    assert gone >= 5 and not turned and not true
    clip = lambda: nn.utils.clip_grad_value_(model.parameters(), 1e-6)  # noqa: E731
    turned, true, gone = trained(model, before=clip).loop.edited
    assert true >= 5 and not turned and not gone


def test_steps_by_hand_go_down_or_up():
    for sign in (-1, 1):
        model = net()

        def step(model: nn.Module = model, sign: int = sign) -> None:
            with torch.no_grad():
                for one in model.parameters():
                    one += sign * 0.01 * one.grad

        up, down = trained(model, step=step).loop.climbs
        assert (up > 4 * down) if sign > 0 else (down > 4 * up)


class Loose(nn.Module):
    """Weights in a list, a layer made in the first call, and dropout by a function."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = [torch.randn(4, 8).requires_grad_()]
        self.last = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        if not hasattr(self, "late"):
            self.late = nn.Linear(8, 8)
        return self.last(F.dropout(self.late(x @ self.weights[0]), 0.9))


def test_weights_that_nobody_knows_and_dropout_by_a_function():
    clues = trained(Loose(), loss=squares)
    assert {path: one["registered"] for path, one in facts(clues, "loose").items()} == {
        "weights": False,
        "late.weight": True,
        "late.bias": True,
    }
    assert facts(clues, "dropped")[""]["p"] == pytest.approx(0.9, abs=1e-3)


def test_places_are_found_in_lists_dicts_and_hidden_modules():
    model = nn.Module()
    model.inside = {"a": [torch.ones(2).requires_grad_()], "b": nn.Linear(2, 2)}
    assert [*places(model, [model.inside["a"][0], model.inside["b"].weight])] == [("inside", False), ("inside", False)]


def test_what_a_loss_reaches_and_columns_that_stay_equal():
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2), nn.Linear(2, 1))
    with torch.no_grad():
        model[2].weight.copy_(torch.randn(2, 1).expand(2, 8))
        for one in model[0].parameters():
            one.fill_(0.1)
    clues = trained(model, loss=lambda model, x, target: (model[:3](x) - target).square().mean())
    assert clues.reached == {"0.weight", "0.bias", "2.weight", "2.bias"}
    equal = facts(clues, "equal units")
    assert {path: (one["rows"], one["units"]) for path, one in equal.items()} == {"0.weight": (True, 8), "2.weight": (False, 8)}


def test_a_batch_norm_that_counts_no_batch():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)).eval()
    assert trained(model).loop.uncounted == ("1",)
    assert trained(model.train()).loop.uncounted == ()


def test_an_error_of_the_clues_costs_the_clues_alone(monkeypatch):
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(ClueCollector, "_enter", broken)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with modlab.watch(model, optimizer) as w:
        for _ in range(STEPS):
            squares(model, torch.randn(16, 4), torch.ones(16, 1)).backward()
            optimizer.step()
            optimizer.zero_grad()
    told = [*guarded.swallowed]
    guarded.swallowed.clear()
    assert w.record.steps == STEPS and w.record.samples > 1 and not w.record.error
    assert len(told) == 1 and "ZeroDivisionError" in told[0]
    assert [one for one in w.record.remarks if "search for causes" in one] == ["the search for causes ended at step 0: ZeroDivisionError"]
