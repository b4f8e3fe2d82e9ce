"""A change that moves modules: what was moved is still itself, under another name, and what is new has the mode of what it stands in."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.forking.test_forks import watched
from tests.long import one_in
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


@pytest.mark.parametrize(("name", "handling"), one_in(3, product(CHANGE, HANDLED)))
def test_a_fork_goes_on_as_by_hand(name: str, handling: str) -> None:
    none = handling != "plain"
    w, *_ = watched(lambda: loop(HANDLED[handling], none=none))
    *_, losses = watched(lambda: loop(HANDLED[handling], 6, CHANGE[name], none=none))
    fork = w.fork(6, CHANGE[name])
    assert fork.exact and fork.record.ended == "tape"
    assert fork.losses == losses[fork.record.began :]


def one_by_one(model: Any, x: Tensor) -> Tensor:
    for layer in model:
        x = layer(x)
    return x


def in_slices(model: Any, x: Tensor) -> Tensor:
    return model[3:](model[:3](x))  # type: ignore[no-any-return]


def by_parts(at: int = -1, work: Change | None = None, call: Callable[[Any, Tensor], Tensor] = one_by_one) -> Run:
    model: Any
    model, (optimizer,), _ = loop(HANDLED["plain"])

    def step(number: int) -> Tensor:
        if number == at and work is not None:
            work(model)
        optimizer.zero_grad()
        x = torch.ones(8, 4).cumsum(0).sin()
        loss = call(model, x).square().mean()
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


@pytest.mark.parametrize("call", [one_by_one, in_slices])
@pytest.mark.parametrize("layer", [nn.Tanh(), 2])
def test_a_fork_ends_where_the_loop_may_call_a_layer_that_was_added(layer: Any, call: Callable[[Any, Tensor], Tensor]) -> None:
    def longer_by_one(model: Any) -> None:
        model.append(model[layer] if type(layer) is int else layer)

    w, *_ = watched(lambda: by_parts(call=call))
    assert w.fork(6, longer_by_one).record.ended == "brought"
    assert w.fork(6, CHANGE["wrapped"]).record.ended == "tape"


class Parts(nn.Module):
    """What the loops below call part by part."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.again = self.body
        self.norm = nn.BatchNorm1d(4)
        self.heads = nn.ModuleDict({"a": nn.Linear(4, 1)})

    def forward(self, x: Tensor) -> Any:
        return self.heads["a"](self.norm(self.body(x)))


Loss = Callable[[Any, Tensor], Any]


def parts(call: Loss, at: int = -1, work: Callable[[Any], Any] | None = None, set_up: Callable[[Any], Any] = id) -> Run:
    model = Parts()
    set_up(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    drawn = torch.Generator()

    def step(number: int) -> Tensor:
        if number == at and work is not None:
            work(model)
        if number == 9 and call is whole:
            model.norm.eval()
        optimizer.zero_grad()
        loss: Tensor = call(model, torch.randn(8, 4, generator=drawn))
        loss.backward()
        optimizer.step()
        return loss

    return model, [optimizer], step


def whole(model: Any, x: Tensor) -> Any:
    return model(x).square().mean()


def all_heads(model: Any, x: Tensor) -> Any:
    return sum((head(model.body(x)) - 1).square().mean() for head in model.heads.values())


def twice(model: Any, x: Tensor) -> Any:
    return (model.again(model.body(x)) - 1).square().mean()


def test_a_head_that_was_added_may_be_called_by_the_loop() -> None:
    w, *_ = watched(lambda: parts(all_heads))
    assert w.fork(6, lambda model: model.heads.update({"b": nn.Linear(4, 1)})).record.ended == "brought"
    assert w.fork(6, lambda model: setattr(model.heads["a"], "another", nn.Linear(1, 1))).record.ended == "tape"


def test_of_a_layer_that_was_called_by_two_names_each_may_be_another_one_now() -> None:
    w, *_ = watched(lambda: parts(twice))
    assert w.fork(6, lambda model: setattr(model, "again", nn.Linear(4, 4))).record.ended == "taken"
    w, *_ = watched(lambda: parts(whole))
    assert w.fork(6, lambda model: setattr(model, "again", nn.Linear(4, 4))).record.ended == "tape"


@pytest.mark.parametrize("moved", [True, False])
def test_what_the_loop_sets_by_name_it_sets_on_what_stands_there(moved: bool) -> None:
    def work(model: Any) -> None:
        model.norm, norm = nn.BatchNorm1d(4, affine=False), model.norm
        if moved:
            model.heads["a"] = nn.Sequential(norm, model.heads["a"])

    w, *_ = watched(lambda: parts(whole))
    *_, losses = watched(lambda: parts(whole, 6, work))
    fork = w.fork(6, work)
    assert fork.record.ended == ("taken" if moved else "tape") and fork.record.steps > 2
    assert fork.losses == losses[fork.record.began :][: len(fork.losses)]


HOOKED: dict[str, Callable[[Any], Any]] = {
    "removed": lambda model: model.body._forward_hooks.clear(),
    "wrapped": lambda model: setattr(model, "body", nn.Sequential(model.body)),
    "replaced": lambda model: setattr(model, "body", nn.Linear(4, 4)),
}


@pytest.mark.parametrize("name", HOOKED)
def test_what_a_forward_hook_did_stays_on_the_tape(name: str) -> None:
    def hook(model: Any) -> None:
        del model.again
        model.body.register_forward_hook(lambda _, __, output: output * 0.9)

    w, *_ = watched(lambda: parts(all_heads, set_up=hook))
    assert w.fork(6, HOOKED[name]).record.ended == "taken"
    assert w.fork(6, lambda model: nn.init.ones_(model.body.weight)).record.ended == "tape"
    w, *_ = watched(lambda: parts(whole, set_up=hook))
    *_, losses = watched(lambda: parts(whole, 6, HOOKED["removed"], hook))
    fork = w.fork(6, HOOKED["removed"])
    assert fork.record.ended == "tape" and fork.losses == losses[fork.record.began :]
