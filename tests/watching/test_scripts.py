"""Loops in which a step is not what it looks like: the same bits, as many steps as there are, and nothing said against them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, grad_and_value, vmap

import modlab
from modlab.results.watch import Watch

STEPS = 25

Step = Callable[[], Tensor | None]
Script = tuple[nn.Module, Any, Step]


def classifier() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


def batch() -> tuple[Tensor, Tensor]:
    x = torch.randn(32, 8)
    return x, x[:, :3].argmax(dim=1)


def sharpness_by_hand() -> Script:
    """SAM: up the slope, there a second gradient, back, and then the step."""
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step() -> Tensor:
        x, y = batch()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        moves = [0.05 * weight.grad for weight in model.parameters()]  # type: ignore[operator]
        with torch.no_grad():
            for weight, move in zip(model.parameters(), moves, strict=True):
                weight.add_(move)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        with torch.no_grad():
            for weight, move in zip(model.parameters(), moves, strict=True):
                weight.sub_(move)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return model, optimizer, step


class Sharpness(torch.optim.Optimizer):
    """The same as an optimizer with another one inside, which throws the gradients away when it is done."""

    def __init__(self, weights: Any, base: type[torch.optim.Optimizer], lr: float) -> None:
        super().__init__(weights, {"lr": lr})
        self.base = base(self.param_groups, lr=lr)  # type: ignore[call-arg]

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        weights = [weight for group in self.param_groups for weight in group["params"]]
        moves = [0.05 * weight.grad for weight in weights]
        for weight, move in zip(weights, moves, strict=True):
            weight.add_(move)
        self.zero_grad()
        with torch.enable_grad():
            loss = closure()
        for weight, move in zip(weights, moves, strict=True):
            weight.sub_(move)
        self.base.step()
        self.zero_grad()
        return loss


class SharpnessAlone(Sharpness):
    """With a step of its own."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        with torch.enable_grad():
            loss = closure()
        for group in self.param_groups:
            for weight in group["params"]:
                weight.sub_(group["lr"] * weight.grad)
        self.zero_grad()
        return loss


def _with_closure(kind: type[Sharpness]) -> Script:
    model = classifier()
    optimizer = kind(model.parameters(), torch.optim.SGD, 0.1)

    def step() -> Tensor:
        x, y = batch()

        def closure() -> Tensor:
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        closure()
        return optimizer.step(closure)

    return model, optimizer, step


def sharpness_as_an_optimizer() -> Script:
    return _with_closure(Sharpness)


def gradients_that_are_gone_after_the_step() -> Script:
    return _with_closure(SharpnessAlone)


def learning_to_learn() -> Script:
    """MAML: the second pass runs with weights that the first one led to."""
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def step() -> Tensor:
        x, y = batch()
        weights = dict(model.named_parameters())
        inner = F.cross_entropy(functional_call(model, weights, x), y)
        slopes = torch.autograd.grad(inner, tuple(weights.values()), create_graph=True)
        fast = {name: weight - 0.1 * slope for (name, weight), slope in zip(weights.items(), slopes, strict=True)}
        loss = F.cross_entropy(functional_call(model, fast, x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return model, optimizer, step


def _functional(per_sample: bool) -> Script:
    model = classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def value(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(model, weights, x), y)

    def of_one(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return value(weights, x[None], y[None])

    def step() -> Tensor | None:
        x, y = batch()
        weights = {name: weight.detach() for name, weight in model.named_parameters()}
        if per_sample:
            slopes = {name: many.mean(0) for name, many in vmap(grad(of_one), (None, 0, 0))(weights, x, y).items()}
            loss = None
        else:
            slopes, loss = grad_and_value(value)(weights, x, y)
        for name, weight in model.named_parameters():
            weight.grad = slopes[name]
        optimizer.step()
        return loss

    return model, optimizer, step


def gradients_by_a_function() -> Script:
    return _functional(per_sample=False)


def gradients_of_each_sample() -> Script:
    return _functional(per_sample=True)


SCRIPTS = (
    sharpness_by_hand,
    sharpness_as_an_optimizer,
    gradients_that_are_gone_after_the_step,
    learning_to_learn,
    gradients_by_a_function,
    gradients_of_each_sample,
)


def follow(make: Callable[[], Script], *, watched: bool, budget: float = 1.0) -> tuple[list[Tensor], Watch | None]:
    torch.manual_seed(0)
    model, optimizer, step = make()
    w = modlab.watch(model, optimizer, budget=budget) if watched else None
    with w or nullcontext():
        for _ in range(STEPS):
            loss = step()
            if w is not None and loss is not None:
                w.log(loss=loss)
    return [*(weight.detach().clone() for weight in model.parameters()), torch.get_rng_state()], w


@pytest.mark.parametrize("budget", [1.0, 0.02])
@pytest.mark.parametrize("make", SCRIPTS)
def test_a_step_is_a_step(make: Callable[[], Script], budget: float) -> None:
    plain, _ = follow(make, watched=False)
    seen, w = follow(make, watched=True, budget=budget)
    assert w is not None
    assert all(map(torch.equal, plain, seen))
    assert (w.record.steps, w.record.error, w.record.state) == (STEPS, "", "ended")
    assert not w.alerts
    assert w.verdict.broken is None


def test_a_pass_without_a_backward_is_told_from_gradients_that_are_gone() -> None:
    _, w = follow(gradients_that_are_gone_after_the_step, watched=True)
    assert w is not None
    check = next(one for one in w.verdict.checks if one.name == "every trained parameter gets a gradient")
    assert (check.state, check.fix) == ("not seen", "")


def test_an_optimizer_that_is_exchanged() -> None:
    """Nobody tells of the new one's steps: they are seen by what they change."""
    torch.manual_seed(0)
    model = classifier()
    optimizer: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for step in range(60):
            if step == 20:
                optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
            x, y = batch()
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    assert w.record.steps in (59, 60)
    assert w.verdict.broken is None and not w.alerts
