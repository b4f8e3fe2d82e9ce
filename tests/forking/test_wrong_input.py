"""What a change reaches that is not the copy, and what is no change at all: it is put back, or refused in words that help."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import modlab
from modlab import errors as modlab_errors
from modlab.records.finding import Finding
from tests.forking.test_forks import changed_by_hand, plain_run, small, trained, watched
from tests.watching.test_identity import Run


def of_adam() -> Run:
    model = small(nn.BatchNorm1d(8), nn.Dropout(0.2))
    model[0].scales = {"by": [1.0, 2.0]}  # type: ignore[assignment]
    return trained(model, lambda: model(torch.randn(8, 4)).square().mean(), torch.optim.Adam(model.parameters(), 0.01))


def to_none(model: Any, _: Any) -> None:
    for one in model.parameters():
        one.grad = torch.ones_like(one)


REACHED: dict[str, Callable[[Any, Any], Any]] = {
    "the state of the optimizer": lambda _, optimizer: optimizer.state.clear(),
    "a moment": lambda model, optimizer: optimizer.state[model[0].weight]["exp_avg"].zero_(),
    "a state that is loaded": lambda _, optimizer: optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict())),
    "a group": lambda _, optimizer: optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))]}),
    "frozen": lambda model, _: model[0].requires_grad_(False),
    "another dtype": lambda model, _: model.half(),
    "a module more": lambda model, _: model.append(nn.ReLU()),
    "another module": lambda model, _: model.__setitem__(1, nn.ReLU()),
    "another parameter": lambda model, _: setattr(model[0], "weight", nn.Parameter(torch.ones(8, 4))),
    "no parameter": lambda model, _: model[0].register_parameter("bias", None),
    "another buffer": lambda model, _: setattr(model[2], "running_mean", torch.ones(8)),
    "other memory": lambda model, _: setattr(model[0].weight, "data", torch.ones(8, 4)),
    "a hook": lambda model, _: model.register_forward_hook(lambda *_: None),
    "a hook on a gradient": lambda model, _: model[0].weight.register_hook(lambda gradient: 2 * gradient),
    "a second hook on a gradient": lambda model, _: model[4].weight.register_hook(lambda gradient: 2 * gradient),
    "gradients": to_none,
    "an attribute": lambda model, _: setattr(model[0], "factor", 3),
    "what an attribute holds": lambda model, _: model[0].scales["by"].append(3.0),
    "another class": lambda model, _: setattr(model[1], "__class__", nn.ReLU),
    "another forward": lambda model, _: setattr(model, "forward", torch.relu),
}


def photograph(model: Any, optimizer: Any) -> list[Any]:
    """All that a training is, in plain numbers and identities."""
    modules = [(id(one), type(one), {**vars(one)}, [*one._forward_hooks.values()]) for one in model.modules()]
    tensors = [
        (id(one), one.dtype, one.requires_grad, one.data_ptr(), one.tolist(), [*(one._backward_hooks or {}).values()])
        for one in (*model.parameters(), *model.buffers())
    ]
    gradients = [None if one.grad is None else one.grad.tolist() for one in model.parameters()]
    held = copy.deepcopy(optimizer.state_dict())
    moments = [[(name, torch.as_tensor(value).tolist()) for name, value in state.items()] for state in held["state"].values()]
    return [modules, tensors, gradients, held["param_groups"], moments, str(model[0].scales), [*map(id, optimizer.state)]]


@pytest.mark.parametrize("raises", [False, True], ids=["alone", "and it raises"])
@pytest.mark.parametrize("name", REACHED)
def test_what_a_change_does_to_the_original_is_put_back(name: str, raises: bool) -> None:
    w, model, (optimizer,), _ = watched(of_adam)
    model.get_submodule("4").weight.register_hook(lambda gradient: gradient)  # type: ignore[union-attr, operator]
    before = photograph(model, optimizer)

    def change(_: Any) -> None:
        REACHED[name](model, optimizer)
        if raises:
            raise KeyError("mine")

    said = (
        "raised KeyError: 'mine'\n  Model and optimizer of the training are as they were"
        if raises
        else "on the training itself, which is put"
    )
    with pytest.raises(modlab_errors.ForkError, match=said):
        w.fork(10, change)
    assert photograph(model, optimizer) == before
    assert w.fork(10).exact


def with_a_table() -> Run:
    model = small()
    model[0].table = np.ones(3)  # type: ignore[assignment]
    return trained(model, lambda: model(torch.randn(8, 4)).square().mean(), torch.optim.SGD(model.parameters(), 0.1))


def sealed(table: Any) -> None:
    table += 1
    table.flags.writeable = False


LOST: dict[str, tuple[Callable[[Any], Any], str]] = {
    "sealed": (sealed, "ValueError: assignment destination is read-only"),
    "resized": (lambda table: table.resize(5, refcheck=False), "something in it has changed its shape"),
}


@pytest.mark.parametrize("raises", [False, True], ids=["alone", "and it raises"])
@pytest.mark.parametrize("name", LOST)
def test_what_cannot_be_put_back_is_said(name: str, raises: bool) -> None:
    w, model, _, _ = watched(with_a_table)
    spoil, why = LOST[name]

    def change(_: Any) -> None:
        spoil(model.get_submodule("0").table)
        if raises:
            raise KeyError("mine")

    with pytest.raises(modlab_errors.ForkError, match=f"itself, and not all of it could be put back: {why}\n  Begin anew"):
        w.fork(10, change)


# ---- settings of optimizers, as PyTorch takes them


def spoilt(cls: Any, **settings: Any) -> str:
    """The oracle: what PyTorch says of settings, when an optimizer is made with them or goes on with them."""
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    try:
        cls([weight], **settings)
    except Exception as error:  # noqa: BLE001 - whatever it says
        return f"{type(error).__name__}: {error}"
    made = cls([weight])
    made.step()
    made.param_groups[0].update(settings)
    try:
        made.step()
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
    return ""


def with_optimizer(cls: Any) -> Callable[[], Run]:
    def make() -> Run:
        model = small(nn.Dropout(0.2))
        return trained(model, lambda: model(torch.randn(8, 4)).square().mean(), cls(model.parameters(), 0.01))

    return make


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a text": (torch.optim.Adam, {"betas": "x"}, "Adam does not take betas = 'x'"),
    "a number": (torch.optim.AdamW, {"betas": 0.9}, "AdamW does not take betas = 0.9"),
    "too large": (torch.optim.Adam, {"betas": (1.5, 0.9)}, r"Adam does not take betas = \(1.5, 0.9\)"),
    "a pair that needs another": (torch.optim.SGD, {"nesterov": True}, "SGD does not take nesterov = True"),
    "not in the middle": (torch.optim.Adam, {"amsgrad": True}, "an Adam that has made steps cannot go on with amsgrad = True"),
    "a mean of gradients": (torch.optim.RMSprop, {"centered": True}, "an RMSprop that has made steps cannot go on with centered = True"),
    "a buffer": (torch.optim.RMSprop, {"momentum": 0.9}, "an RMSprop that has made steps cannot go on with momentum = 0.9"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_pytorch_s_optimizer_does_not_take_is_refused_in_its_words(name: str) -> None:
    cls, change, said = REFUSED[name]
    w, *_ = watched(with_optimizer(cls))
    why = spoilt(cls, **change)
    with pytest.raises(modlab_errors.QuestionError, match=said) as caught:
        w.fork(10, change)
    assert why and f": {why}\n  " in str(caught.value)
    assert "Put a new one in its place: w.fork(step, lambda model" in str(caught.value) or "As it was: w.fork(step, {" in str(caught.value)


TAKEN: dict[str, tuple[Any, int, dict[str, Any]]] = {
    "both at once": (torch.optim.SGD, 10, {"nesterov": True, "momentum": 0.9}),
    "before its first step": (torch.optim.Adam, 0, {"amsgrad": True}),
    "other betas": (torch.optim.Adam, 10, {"betas": (0.5, 0.9)}),
    "one by one": (torch.optim.Adam, 10, {"foreach": False}),
    "upwards": (torch.optim.Adadelta, 10, {"maximize": True}),
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_pytorch_s_optimizer_takes_is_the_loop_with_it(name: str) -> None:
    cls, at, change = TAKEN[name]
    w, *_ = watched(with_optimizer(cls))
    fork = w.fork(at, change)
    by_hand = changed_by_hand(at, lambda _, optimizer: optimizer.param_groups[0].update(change), with_optimizer(cls))
    assert fork.exact and fork.losses == by_hand[fork.record.began :]


NOT_TAKEN: dict[str, tuple[dict[str, Any], str]] = {
    "a rate below 0": ({"lr": -1}, "got -1.0 as lr, but takes a number of at least 0 that is finite.\n  Write: w.fork(step, {'lr': 0.01})"),
    "no rate": (
        {"lr": float("nan")},
        "got nan as lr, but takes a number of at least 0 that is finite.\n  Write: w.fork(step, {'lr': 0.01})",
    ),
    "endless": (
        {"lr": float("inf")},
        "got inf as lr, but takes a number of at least 0 that is finite.\n  Write: w.fork(step, {'lr': 0.01})",
    ),
    "a text": ({"foreach": "no"}, "got 'no' as foreach, but takes True, False or None.\n  Write: w.fork(step, {'foreach': None})"),
    "a number": ({"maximize": 3}, "got 3 as maximize, but takes True or False.\n  Write: w.fork(step, {'maximize': False})"),
    "a mode": ({"training": "no"}, "got 'no' as training, but takes True (as train() does) or False (as eval() does).\n  Write"),
}


@pytest.mark.parametrize("name", NOT_TAKEN)
def test_what_is_no_value_of_a_setting_is_refused_with_one_that_is(name: str) -> None:
    change, said = NOT_TAKEN[name]
    w, *_ = watched(with_optimizer(torch.optim.Adam))
    with pytest.raises(modlab_errors.QuestionError) as caught:
        w.fork(10, change)
    assert said in str(caught.value)


def test_the_mode_is_that_of_all_modules() -> None:
    def make() -> Run:
        model, batches = small(nn.Dropout(0.3)), torch.Generator().manual_seed(0)  # dropout draws from another one
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        return trained(model, lambda: model(torch.randn(8, 4, generator=batches)).square().mean(), optimizer)

    w, *_ = watched(make)
    losses = changed_by_hand(10, lambda model, _: model.eval(), make)
    fork = w.fork(10, {"training": False})
    assert fork.losses == losses[fork.record.began :] != fork.original


# ---- what there is nothing of


def test_keep_none_keeps_nothing() -> None:
    w, *_ = watched(plain_run, keep=None)
    assert w.record.kept is None


def test_a_watch_around_nothing_says_so() -> None:
    w, *_ = watched(plain_run, steps=0)
    for step in (0, None, 5):
        with pytest.raises(modlab_errors.ForkError, match="No step of Sequential was made under this watch"):
            w.fork(step)


def test_a_fork_without_a_step_is_not_exact() -> None:
    def make() -> Run:
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def loss() -> Tensor:
            quick = {name: 0.9 * one for name, one in model.named_parameters()}
            found: Tensor = torch.func.functional_call(model, quick, (torch.randn(8, 4),)).square().mean()
            return found

        return trained(model, loss, optimizer)

    w, *_ = watched(make)
    fork = w.fork(0)
    assert not fork.exact and not fork.to_dict()["exact"] and fork.outcome == "not seen"
    assert "the loop called the model with other parameters (torch.func.functional_call): the fork ends there" in fork.headline


@pytest.mark.parametrize("given", [None, "x", (), 3], ids=["None", "a text", "several", "a number"])
def test_what_is_no_finding_is_refused(given: Any) -> None:
    w, *_ = watched(plain_run)
    with pytest.raises(modlab_errors.QuestionError, match=r"w.try_fix\(finding\) got .*, but takes one finding.\n  Write: w.findings"):
        w.try_fix(given)
    with pytest.raises(modlab_errors.QuestionError, match="but takes one finding"):
        modlab.diagnose(small()).try_fix(given)


@pytest.mark.parametrize("steps", [0, -1, 2.5, "x", None, True], ids=str)
def test_what_is_no_number_of_steps_is_refused(steps: Any) -> None:
    w, *_ = watched(plain_run)
    with pytest.raises(modlab_errors.QuestionError, match="takes a number of steps, 1 or more"):
        w.try_fix(Finding("rate too high"), steps)


# ---- fixes that need more


def test_a_fix_begins_at_the_last_state_before_the_step_that_its_finding_names() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    with modlab.watch(model, optimizer, budget=1.0, keep="good") as w:
        for number in range(100):
            if number == 70:
                optimizer.param_groups[0]["lr"] = 1e6
            x = torch.randn(8, 4)
            optimizer.zero_grad()
            (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
            optimizer.step()
    found = w.findings[0]
    assert found.kind == "not finite by the rate" and found.step is None and found.facts["step"] == 72
    fork = found.try_fix()
    assert fork.record.began == max(one for one in w.record.kept.states if one <= 72) == 64  # type: ignore[union-attr]
    assert fork.outcome == "better" and "not finite without the change" in fork.headline
    assert "original: NaN, Inf" in fork.html()  # the band is that of one of two curves


def test_a_rate_that_is_far_too_low_is_raised_as_far_as_it_takes() -> None:
    w, *_ = watched(lambda: plain_run(lr=1e-9), steps=100, budget=1.0)
    found = next(one for one in w.findings if one.kind == "rate too low")
    fork = found.try_fix()
    assert fork.outcome == "better" and fork.losses[-1] < 0.3 * fork.original[-1]


def test_a_traced_model_is_forked() -> None:
    def make() -> Run:
        inner = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that trace is deprecated
            model: Any = torch.jit.trace(inner, torch.randn(2, 4), check_trace=False)  # type: ignore[no-untyped-call]
        return trained(model, lambda: model(torch.randn(8, 4)).square().mean(), torch.optim.Adam(model.parameters(), 0.01))

    def faster(_: Any, optimizer: Any) -> None:
        optimizer.param_groups[0]["lr"] = 0.1

    w, *_ = watched(make)
    assert w.fork(0).exact
    losses = changed_by_hand(10, faster, make)
    fork = w.fork(10, {"lr": 0.1})
    assert fork.losses == losses[fork.record.began :]


def test_a_fork_inside_of_a_fork_is_refused() -> None:
    w, _, *_ = watched(of_adam, 20)
    asked = [0]

    def ask(*_: Any) -> None:
        asked[0] += 1
        w.fork(5, steps=2)

    with pytest.raises(modlab_errors.ForkError, match="inside of a fork"):
        w.fork(5, lambda model: model[1].register_forward_hook(ask))
    with pytest.raises(modlab_errors.ForkError, match="inside of a fork"):
        w.fork(5, lambda model: ask())
    assert asked == [2] and w.fork(5).exact


SHARED: dict[str, Callable[[Any, Any], Callable[[Any, Any], Any]]] = {
    "data": lambda net, _: lambda model, __: [setattr(p, "data", net.state_dict()[name]) for name, p in model.named_parameters()] and None,
    "a part": lambda net, _: lambda model, __: setattr(model[0].bias, "data", net[0].weight.detach()[:, 0]),
    "a parameter": lambda net, _: lambda model, __: setattr(model[0], "weight", net[0].weight),
    "a buffer": lambda net, _: lambda model, __: setattr(model[2], "running_mean", net[2].running_mean),
    "a module": lambda net, _: lambda model, __: model.__setitem__(4, net[4]),
    "a moment": lambda net, of: lambda model, mine: mine.state[model[0].weight].update(exp_avg=of.state[net[0].weight]["exp_avg"]),
}


@pytest.mark.parametrize("name", SHARED)
def test_a_change_that_shares_memory_with_the_training_is_refused(name: str) -> None:
    w, model, optimizers, _ = watched(of_adam, 20)
    before = photograph(model, optimizers[0])
    with pytest.raises(modlab_errors.ForkError, match=r"puts tensors of the training itself into the copy[^$]*\.clone\(\)"):
        w.fork(5, SHARED[name](model, optimizers[0]))
    assert str(photograph(model, optimizers[0])) == str(before) and w.fork(5).exact


def test_a_change_that_takes_a_copy_of_the_training_in_is_made() -> None:
    w, model, optimizers, _ = watched(of_adam, 20)
    best, before = model.state_dict(), photograph(model, optimizers[0])

    def change(model: Any) -> None:
        for name, one in model.named_parameters():
            one.data = best[name].clone()

    loaded = w.fork(5, lambda model: model.load_state_dict(best) and None)
    assert w.fork(5, change).record.steps == loaded.record.steps == 15 and str(photograph(model, optimizers[0])) == str(before)
