"""A change that brings parameters, or takes some away: what the loop does with all of them by itself is right, or the fork ends there."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from modlab import errors as modlab_errors
from tests.forking.test_forks import STEPS, changed_by_hand, small, trained, watched
from tests.long import one_in
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


def in_the_optimizer(model: Any, optimizer: Any) -> None:
    optimizer.add_param_group({"params": list(model.parameters())})


def unzeroed(foreign: bool, at: int = -1, work: Change | None = None, *, none: bool = True) -> Run:
    """The optimizer that zeroes has no gradient to zero: it holds another model's parameters, or what is frozen."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    other = nn.Linear(4, 4)
    optimizers = [torch.optim.Adam(other.parameters(), lr=0.1)]
    if not foreign:
        model[0].requires_grad_(False)
        optimizers = [torch.optim.Adam(one.parameters(), lr=0.1) for one in (model[0], model[2])]
    drawn = torch.Generator()

    def step(number: int) -> Tensor:
        assert other is not None  # the optimizer's
        if number == at and work is not None:
            work(model, optimizers[0])
        x = torch.randn(8, 4, generator=drawn)
        for one in optimizers:
            one.zero_grad(set_to_none=none)
        loss: Tensor = (model(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        for one in optimizers:
            one.step()
        return loss

    return model, list(optimizers), step


@pytest.mark.parametrize("at", [0, 7])
@pytest.mark.parametrize("none", [True, False])
@pytest.mark.parametrize("foreign", [True, False])
def test_a_zero_grad_that_has_nothing_to_zero_does_in_a_fork(foreign: bool, none: bool, at: int) -> None:
    work = in_the_optimizer if foreign else thawed
    w, *_ = watched(lambda: unzeroed(foreign, none=none))
    *_, losses = watched(lambda: unzeroed(foreign, at, work, none=none))
    fork = w.fork(at, work)
    assert fork.exact and fork.record.ended == "tape" and w.fork(at).exact
    assert fork.losses == losses[fork.record.began :]


@pytest.mark.parametrize(("handling", "name", "at"), one_in(3, product(HANDLED, CHANGE, (0, 7))))
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


class Half(nn.Module):
    """A parametrization."""

    def forward(self, weight: Tensor) -> Tensor:
        return weight / 2


def with_swapped_weights(model: Any) -> None:
    model[2].weight, model[4].weight = model[4].weight, model[2].weight


NAMED: dict[str, Callable[[Any], Any]] = {
    "parametrized": lambda model: nn.utils.parametrize.register_parametrization(model[4], "weight", Half()),
    "layers swapped": lambda model: model._modules.update({"2": model[4], "4": model[2]}),
    "weights swapped": with_swapped_weights,
    "untied": lambda model: setattr(model[4], "weight", nn.Parameter(model[2].weight.detach() / 2)),
}


def named(at: int = -1, work: Callable[[Any], Any] | None = None, *, by_name: bool = True, tied: bool = False) -> Run:
    model: Any = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    if tied:
        model[4].weight = model[2].weight
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    drawn = torch.Generator()

    def step(number: int) -> Tensor:
        if number == at and work is not None:
            work(model)
        optimizer.zero_grad()
        loss: Tensor = model(torch.randn(8, 4, generator=drawn)).square().mean()
        if by_name:
            loss = loss + 0.1 * model[4].weight.square().sum()
        loss.backward()
        optimizer.step()
        return loss

    return model, [optimizer], step


@pytest.mark.parametrize("name", NAMED)
def test_a_fork_ends_where_the_loop_reads_by_name_what_stands_elsewhere(name: str) -> None:
    tied = name == "untied"
    work = NAMED[name]
    w, *_ = watched(lambda: named(tied=tied))
    fork = w.fork(7, work)
    assert fork.record.ended == "taken" and not fork.record.steps
    w, *_ = watched(lambda: named(by_name=False, tied=tied))
    *_, losses = watched(lambda: named(7, work, by_name=False, tied=tied))
    fork = w.fork(7, work)
    assert fork.record.ended == "tape" and fork.losses == losses[fork.record.began :]


Zero = Callable[[Any, Any, int], Any]

ZEROED: dict[str, Zero] = {
    "never": lambda *_: None,
    "each second step": lambda _, optimizer, number: number % 2 and optimizer.zero_grad(),
    "to 0, each second step": lambda _, optimizer, number: number % 2 and optimizer.zero_grad(set_to_none=False),
    "by the model": lambda model, _, number: number % 2 and model.zero_grad(),
    "one by one": lambda model, _, number: number % 2 and [setattr(one, "grad", None) for one in model.parameters()],
    "deleted": lambda model, *_: [delattr(one, "grad") for one in model.parameters()],
    "its data": lambda model, *_: [one.grad.data.zero_() for one in model.parameters() if one.grad is not None],
}


def accumulating(zero: Zero, at: int = -1, work: Change | None = None, *, before: bool = False, handle: Handle = nothing) -> Run:
    model, (optimizer,), _ = loop(nothing)
    drawn = torch.Generator()

    def step(number: int) -> Tensor:
        if number == at and work is not None:
            work(model, optimizer)
        if before:
            zero(model, optimizer, number)
        x = torch.randn(8, 4, generator=drawn)
        loss: Tensor = (model(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        handle(model, optimizer)
        optimizer.step()
        if not before:
            zero(model, optimizer, number)
        return loss

    return model, [optimizer], step


@pytest.mark.parametrize(("zeroed", "name", "before"), one_in(3, product(ZEROED, ("thawed", "deeper"), (True, False))))
def test_gradients_of_what_joined_add_up_as_the_others_do(zeroed: str, name: str, before: bool) -> None:
    w, *_ = watched(lambda: accumulating(ZEROED[zeroed], before=before))
    *_, losses = watched(lambda: accumulating(ZEROED[zeroed], 7, CHANGE[name], before=before))
    fork = w.fork(7, CHANGE[name])
    assert fork.exact and fork.record.ended == "tape"
    assert fork.losses == losses[fork.record.began :]


def growing(where: str) -> Run:
    """In step 7 the loop gives the optimizer a group of parameters whose gradients have added up."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1).double())
    model[2].register_forward_pre_hook(lambda _, given: given[0].double())
    optimizer = torch.optim.SGD(model[2].parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)

    def step(number: int) -> Tensor:
        x = torch.randn(8, 4)
        for place in ("before zero_grad", "behind zero_grad"):
            if number == 7 and place == where:
                optimizer.add_param_group({"params": [*model[0].parameters()], "lr": 0.02})
            if place == "before zero_grad":
                optimizer.zero_grad()
        loss: Tensor = (model(x) - x.sum(1, keepdim=True)).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    return model, [optimizer], step


@pytest.mark.parametrize("at", [0, 7])
@pytest.mark.parametrize("where", ["before zero_grad", "behind zero_grad"])
def test_a_group_that_the_loop_adds_is_zeroed_and_unscaled_from_there_on(where: str, at: int) -> None:
    w, *_ = watched(lambda: growing(where))
    fork = w.fork(at, nothing)
    assert fork.exact and len(fork.losses) > 7 - at and fork.losses == fork.original


def held(optimizer: Any) -> list[Tensor]:
    return [one for group in optimizer.param_groups for one in group["params"]]


def emptied(parameters: Any) -> None:
    for one in parameters:
        one.grad = None


def weight_normed(model: Any, _: Any) -> None:
    nn.utils.parametrizations.weight_norm(model[2])


REPLACED: dict[str, Change] = {
    "weight norm": weight_normed,
    "another layer": lambda model, _: model.__setitem__(2, nn.Linear(8, 8)),
    "another name of its memory": lambda model, _: setattr(model[2], "weight", nn.Parameter(model[2].weight.data)),
    "no layer": lambda model, _: model.__setitem__(2, nn.Identity()),
}
THROWN: dict[str, Handle] = {
    "by the optimizer": lambda _, optimizer: optimizer.zero_grad(),
    "to 0 by the optimizer": lambda _, optimizer: optimizer.zero_grad(set_to_none=False),
    "by the model": lambda model, _: model.zero_grad(),
    "by hand, of the optimizer's": lambda _, optimizer: emptied(held(optimizer)),
    "by hand, of the model's": lambda model, _: emptied(model.parameters()),
    "never": nothing,
}
BOUND: dict[str, Handle] = {
    "not clipped": nothing,
    "clipped with the model's": lambda model, _: nn.utils.clip_grad_norm_(model.parameters(), 0.1),
    "clipped with the optimizer's": lambda _, optimizer: nn.utils.clip_grad_norm_(held(optimizer), 0.1),
}


@pytest.mark.parametrize(("thrown", "bound", "before"), one_in(3, product(THROWN, BOUND, (True, False))))
def test_what_an_optimizer_still_holds_is_zeroed_as_the_loop_does_it(thrown: str, bound: str, before: bool) -> None:
    """What a change has replaced may share a memory with what stands there now, and counts for the norm."""

    def training(at: int = -1, work: Change = nothing) -> Run:
        return accumulating(lambda *given: THROWN[thrown](*given[:2]), at, work, before=before, handle=BOUND[bound])

    w, *_ = watched(training)
    for name, work in REPLACED.items():
        *_, losses = watched(lambda work=work: training(7, work))  # type: ignore[misc]
        fork = w.fork(7, work)
        assert fork.losses == losses[fork.record.began :][: len(fork.losses)], name
        if bound == "not clipped" and thrown in ("by the optimizer", "by the model"):
            assert fork.exact and fork.record.ended == "tape", name


def adversarial(at: int = -1, work: Change | None = None) -> Run:
    model = nn.ModuleList([nn.Sequential(nn.Linear(4, 4)), nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))])
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.05) for one in reversed(model)]
    drawn = torch.Generator()

    def step(number: int) -> Tensor:
        if number == at and work is not None:
            work(model, optimizers)
        x = torch.randn(8, 4, generator=drawn)
        loss: Tensor = (model[1](x) - 1).square().mean() + model[1](model[0](x).detach()).square().mean()
        loss.backward()
        optimizers[0].step()
        optimizers[0].zero_grad()
        (model[1](model[0](x)) - 1).square().mean().backward()  # leaves gradients in what is not stepped
        optimizers[1].step()
        optimizers[1].zero_grad()
        return loss

    return model, optimizers, step


@pytest.mark.parametrize("part", [0, 1])
def test_what_joined_an_optimizer_is_zeroed_with_it(part: int) -> None:
    def work(model: Any, optimizers: Any) -> None:
        torch.manual_seed(3)
        model[part][0] = nn.Linear(*model[part][0].weight.T.shape)
        optimizers[1 - part].add_param_group({"params": list(model[part][0].parameters())})

    w, *_ = watched(adversarial)
    *_, losses = watched(lambda: adversarial(7, work))
    fork = w.fork(7, lambda model, optimizer: work(model, optimizer))
    assert fork.exact and fork.losses == losses[fork.record.began :]


def test_what_the_loop_itself_reads_is_told() -> None:
    def make() -> Run:
        model, (optimizer,), _ = loop(nothing)
        model.beta = 0.5

        def step(_: int) -> Tensor:
            optimizer.zero_grad()
            loss: Tensor = model(torch.randn(8, 4)).square().mean() * model.beta
            loss.backward()
            optimizer.step()
            return loss

        return model, [optimizer], step

    w, *_ = watched(make)
    told = "No loss differs by a bit"
    assert told in str(w.fork(7, {"beta": 5.0})) and told not in str(w.fork(7, {"lr": 0.3})) and told not in str(w.fork(7))


def in_two_phases(at: int = -1, work: Callable[[Any], Any] | None = None) -> Run:
    """From step 12 on another optimizer trains, which the loop makes then."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    held = [torch.optim.SGD(model.parameters(), lr=0.1)]

    def step(number: int) -> Tensor:
        if number == at and work is not None:
            work(held[0])
        if number == 12:
            held.append(torch.optim.Adam(model.parameters(), lr=0.01))  # type: ignore[arg-type]
        x = torch.randn(8, 4)
        held[-1].zero_grad()
        loss: Tensor = (model(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        held[-1].step()
        return loss

    return model, held[:1], step


def test_a_change_is_not_about_an_optimizer_that_comes_later() -> None:
    def faster(optimizer: Any) -> None:
        optimizer.param_groups[0]["lr"] = 0.2

    w, *_ = watched(in_two_phases)
    *_, losses = watched(lambda: in_two_phases(4, faster))
    for change in ({"lr": 0.2}, faster):
        fork = w.fork(4, change)  # type: ignore[arg-type]
        assert fork.exact and fork.losses[-11:] == losses[-11:]  # no step was announced before those
    with pytest.raises(modlab_errors.QuestionError, match="optimizer is a list here, for 2 optimizers train along: SGD and Adam"):
        w.fork(12, faster)
    assert w.fork(4, lambda model: torch.optim.SGD(model.parameters(), lr=0.2)).losses[-11:] == losses[-11:]


SCHEDULES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a cosine": (lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40), "moves as those of the others do"),
    "steps": (lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 7, 0.5), "moves as those of the others do"),
    "none": (lambda optimizer: SimpleNamespace(step=lambda: None), ""),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_group_that_a_change_adds_is_scheduled_as_by_hand(name: str) -> None:
    schedule, said = SCHEDULES[name]

    def add(model: Any, optimizer: Any) -> None:
        model[2].bias = nn.Parameter(torch.ones(2))
        optimizer.add_param_group({"params": [model[2].bias], "lr": 0.2})

    def make() -> Run:
        model = small()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        scheduled = schedule(optimizer)
        return trained(model, lambda: model(torch.randn(8, 4)).square().mean(), optimizer, lambda _: scheduled.step())

    w, *_ = watched(make)
    fork, by_hand = w.fork(5, add), changed_by_hand(5, add, make)
    assert fork.record.steps == STEPS - 5 and fork.losses[5:] == pytest.approx(by_hand[5:], rel=1e-5)
    assert said in str(fork) and ("that the change has added" in str(fork)) is bool(said)
