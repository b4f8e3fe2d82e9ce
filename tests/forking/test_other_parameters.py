"""A change that brings parameters, or takes some away: what the loop does with all of them by itself is right, or the fork ends there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.forking.test_forks import watched
from tests.watching.test_identity import Run

Change = Callable[[Any, Any], None]
Handle = Callable[[Any, Any], Any]

CHANGE: dict[str, Change] = {}
HANDLED: dict[str, Handle] = {
    "clipped": lambda model, _: nn.utils.clip_grad_norm_(model.parameters(), 0.5),
    "clipped one by one": lambda model, _: nn.utils.clip_grad_norm_(model.parameters(), 0.5, foreach=False),
    "clipped where trained": lambda model, _: nn.utils.clip_grad_norm_([one for one in model.parameters() if one.requires_grad], 0.5),
    "clipped by value": lambda model, _: nn.utils.clip_grad_value_(model.parameters(), 0.05),
    "by its norm": lambda model, _: model[4].weight.grad.mul_(nn.utils.clip_grad_norm_(model.parameters(), 0.5)),
}
BY_HAND: dict[str, Handle] = {
    "scaled": lambda model, _: [one.grad.mul_(0.5) for one in model.parameters() if one.grad is not None],
    "decayed": lambda model, _: [one.data.mul_(0.99) for one in model.parameters() if one.requires_grad],
}


def change(make: Change) -> Change:
    CHANGE[make.__name__] = make
    return make


@change
def thawed(model: Any, _: Any = None) -> None:
    model[0].requires_grad_(True)


@change
def frozen(model: Any, _: Any = None) -> None:
    model[2].requires_grad_(False)


@change
def without_a_bias(model: Any, _: Any = None) -> None:
    model[2].bias = None


@change
def deeper(model: Any, optimizer: Any) -> None:
    torch.manual_seed(3)
    model[3] = nn.Sequential(nn.Tanh(), nn.Linear(8, 8), nn.Tanh())
    optimizer.add_param_group({"params": list(model[3].parameters())})


def loop(handle: Handle, at: int = -1, work: Change | None = None, *, scaled: bool = False, none: bool = True) -> Run:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    drawn = torch.Generator()
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, enabled=scaled)

    def step(number: int) -> Tensor:
        if number == at and work is not None:
            work(model, optimizer)
        x = torch.randn(8, 4, generator=drawn)
        optimizer.zero_grad(set_to_none=none)
        loss: Tensor = (model(x) - x.sum(1, keepdim=True)).square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        handle(model, optimizer)
        scaler.step(optimizer)
        scaler.update()
        return loss

    return model, [optimizer], step


def nothing(*_: Any) -> None:
    pass


@pytest.mark.parametrize("at", [0, 7])
@pytest.mark.parametrize("name", CHANGE)
@pytest.mark.parametrize("handling", HANDLED)
def test_what_torch_clips_is_clipped(handling: str, name: str, at: int) -> None:
    w, *_ = watched(lambda: loop(HANDLED[handling]))
    *_, losses = watched(lambda: loop(HANDLED[handling], at, CHANGE[name]))
    fork = w.fork(at, CHANGE[name])
    assert fork.exact and fork.record.ended == "tape"
    assert fork.losses == losses[fork.record.began :]


@pytest.mark.parametrize("name", CHANGE)
@pytest.mark.parametrize("none", [True, False])
def test_what_a_scaler_unscales_is_unscaled(name: str, none: bool) -> None:
    w, *_ = watched(lambda: loop(nothing, scaled=True, none=none))
    *_, losses = watched(lambda: loop(nothing, 7, CHANGE[name], scaled=True, none=none))
    fork = w.fork(7, CHANGE[name])
    assert fork.exact and fork.record.ended == "tape"
    assert fork.losses == losses[fork.record.began :]


ENDS = {("scaled", name): "taken" if name in ("frozen", "without_a_bias") else "brought" for name in CHANGE}
ENDS |= {("decayed", "thawed"): "brought", ("decayed", "deeper"): "brought", ("decayed", "without_a_bias"): "taken"}


@pytest.mark.parametrize("handling, name", ENDS)
def test_a_fork_ends_where_the_loop_may_handle_others(handling: str, name: str) -> None:
    w, *_ = watched(lambda: loop(BY_HAND[handling]))
    fork = w.fork(7, CHANGE[name])
    assert fork.record.ended == ENDS[handling, name] and not fork.record.steps
    assert ("brought: the fork ends" if ENDS[handling, name] == "brought" else "not there with this change") in fork.headline
    assert w.fork(7).exact and w.fork(7, {"lr": 0.2}).record.ended == "tape"


def test_what_is_done_to_one_parameter_is_not_done_to_others() -> None:
    def handle(model: Any, _: Any) -> None:
        model[2].weight.grad.mul_(0.5)
        [one.grad.norm().item() for one in model.parameters() if one.grad is not None]

    w, *_ = watched(lambda: loop(handle))
    for name in ("thawed", "deeper"):
        *_, losses = watched(lambda name=name: loop(handle, 7, CHANGE[name]))  # type: ignore[misc]
        fork = w.fork(7, CHANGE[name])
        assert fork.exact and fork.losses == losses[fork.record.began :]


def test_a_penalty_on_all_parameters_may_be_on_others() -> None:
    def make() -> Run:
        model, (optimizer,), _ = loop(nothing)

        def step(_: int) -> Tensor:
            optimizer.zero_grad()
            loss: Tensor = model(torch.randn(8, 4)).square().mean() + sum(one.square().sum() for one in model.parameters())
            loss.backward()
            optimizer.step()
            return loss

        return model, [optimizer], step

    w, *_ = watched(make)
    assert w.fork(7, deeper).record.ended == "brought"
    assert w.fork(7, without_a_bias).record.ended == "taken"
    assert w.fork(7, thawed).record.ended == "tape"
