"""A change that moves modules: what was moved is still itself, under another name, and what is new has the mode of what it stands in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.forking.test_forks import watched
from tests.watching.test_identity import Run

Change = Callable[[Any], None]

CHANGE: dict[str, Change] = {}


def change(make: Change) -> Change:
    CHANGE[make.__name__] = make
    return make


@change
def shorter(model: Any) -> None:
    del model[2]


@change
def longer(model: Any) -> None:
    model.insert(1, nn.Tanh())


@change
def wrapped(model: Any) -> None:
    model[3] = nn.Sequential(model[3], nn.Tanh())


@change
def twice_wrapped(model: Any) -> None:
    wrapped(model)
    model[3] = nn.Sequential(nn.Identity(), model[3])


@change
def swapped(model: Any) -> None:
    model[3], model[6] = model[6], model[3]


@change
def norm_first(model: Any) -> None:
    model[1], model[2] = model[2], model[1]


@change
def same_weights_in_another_layer(model: Any) -> None:
    layer: Any = nn.Linear(8, 8, bias=False)
    layer.weight = model[3].weight
    model[3] = nn.Sequential(nn.Identity(), layer)


@change
def without_a_layer(model: Any) -> None:
    del model[3:6]


@change
def another_norm(model: Any) -> None:
    model[4] = nn.Sequential(nn.BatchNorm1d(8, affine=False))


Handle = Callable[[Any, int], Any]
HANDLED: dict[str, Handle] = {
    "plain": lambda *_: None,
    "modes": lambda model, number: model.train(number % 4 != 3),
    "clipped": lambda model, _: nn.utils.clip_grad_norm_(model.parameters(), 0.5),
}


def loop(handle: Handle, at: int = -1, work: Change | None = None, *, none: bool = True) -> Run:
    middle = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 8)
    model = nn.Sequential(*middle, nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9, weight_decay=0.01)
    drawn = torch.Generator()

    def step(number: int) -> Tensor:
        if number == at and work is not None:
            work(model)
        x = torch.randn(8, 4, generator=drawn)
        optimizer.zero_grad(set_to_none=none)
        loss: Tensor = (model(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        handle(model, number)
        optimizer.step()
        return loss

    return model, [optimizer], step


@pytest.mark.parametrize("handling", HANDLED)
@pytest.mark.parametrize("name", CHANGE)
def test_a_fork_goes_on_as_by_hand(name: str, handling: str) -> None:
    none = handling != "plain"
    w, *_ = watched(lambda: loop(HANDLED[handling], none=none))
    *_, losses = watched(lambda: loop(HANDLED[handling], 6, CHANGE[name], none=none))
    fork = w.fork(6, CHANGE[name])
    assert fork.exact and fork.record.ended == "tape"
    assert fork.losses == losses[fork.record.began :]


def by_parts(at: int = -1, work: Change | None = None) -> Run:
    model: Any
    model, (optimizer,), _ = loop(HANDLED["plain"])

    def step(number: int) -> Tensor:
        if number == at and work is not None:
            work(model)
        optimizer.zero_grad()
        x = torch.ones(8, 4).cumsum(0).sin()
        for layer in model:
            x = layer(x)
        loss = x.square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, [optimizer], step


@pytest.mark.parametrize("name", ["wrapped", "twice_wrapped", "another_norm", "same_weights_in_another_layer"])
def test_what_stands_at_a_place_is_called_there(name: str) -> None:
    w, *_ = watched(by_parts)
    *_, losses = watched(lambda: by_parts(6, CHANGE[name]))
    fork = w.fork(6, CHANGE[name])
    assert fork.exact and fork.losses == losses[fork.record.began :]


@pytest.mark.parametrize("name", ["shorter", "longer", "swapped", "norm_first", "without_a_layer"])
def test_a_fork_ends_where_the_loop_calls_a_place_at_which_another_stands(name: str) -> None:
    w, *_ = watched(by_parts)
    fork = w.fork(6, CHANGE[name])
    assert fork.record.ended == "taken" and not fork.record.steps
    assert "not there with this change" in fork.headline
