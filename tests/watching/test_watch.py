"""`modlab.watch` as a user meets it: what it says of training runs, how it ends, and that it leaves nothing."""

from __future__ import annotations

import copy
import dataclasses
import gc
import math
import pickle
import re
import threading
import weakref
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules import module as rooms
from torch.optim import optimizer as optimizers

import modlab
from modlab.errors import NotAModuleError, NotAnOptimizerError, NotFiniteError, NotInitializedError, QuestionError
from modlab.lessons.note import Net
from modlab.results.watch import Watch
from modlab.running import clock
from modlab.views.watch import html, pairs
from modlab.watching import view_snapshots
from modlab.watching.losses import RARELY, Losses
from modlab.watching.schedule import Schedule
from modlab.watching.watcher import watchers


def hooks() -> dict[str, int]:
    """How many global hooks there are of each kind."""
    stores = {name: held for room in (rooms, optimizers) for name, held in vars(room).items() if name.startswith("_global_")}
    return {name: len(held) for name, held in stores.items() if isinstance(held, dict)}


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    before, threads = hooks(), threading.active_count()
    yield
    assert hooks() == before
    assert threading.active_count() <= threads  # those of other tests may end meanwhile
    assert not [one for one in watchers]


def sgd(model: nn.Module, lr: float = 0.1) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=lr)


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Callable[[], Tensor],
    steps: int,
    *,
    loss: Callable[[Tensor], Tensor] = lambda out: out.square().mean(),
    zero: bool = True,
    log: bool = True,
    **options: Any,
) -> Watch:
    """A plain loop, every step of which is looked at unless told otherwise."""
    options.setdefault("budget", 1.0)
    with modlab.watch(model, optimizer, **options) as w:
        for _ in range(steps):
            if zero:
                optimizer.zero_grad()
            value = loss(model(batch()))
            value.backward()
            optimizer.step()
            if log:
                w.log(loss=value)
    return w


def kinds(w: Watch) -> set[str]:
    return {alert.kind for alert in w.alerts if not alert.over}


def check(w: Watch, name: str) -> Any:
    return next(one for one in w.verdict.checks if one.name == name)


def note(seed: int, *, machine: Clock | None = None, steps: int = 10_000, **options: Any) -> tuple[Watch, Net]:
    """Section 3 of the note: steps that learn the zero function."""
    torch.manual_seed(seed)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, weight_decay=1e-2, momentum=0.9)
    with modlab.watch(net, optimizer, **options) as w:
        for _ in range(steps):
            loss = torch.abs(net(torch.randn(4)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            w.log(loss=loss)
            if machine is not None:
                machine.time += 0.4e-3
    return w, net


# ---- the note's training


def test_a_dead_unit_and_a_starving_one() -> None:
    w, net = note(63, budget=0.2)
    found = {(alert.kind, alert.path, alert.unit): alert for alert in w.alerts}
    assert found.keys() == {("dead", "l0", 1), ("starving", "l0", 2)}
    dead = found["dead", "l0", 1]
    assert dead.inputs >= 1000 and not dead.over
    assert net.l1.weight.tolist()[1] == pytest.approx([0.3722], abs=1e-4)  # moved by decay alone
    assert check(w, "it moves").state == "passed" and w.verdict.broken is None and not w.verdict.ok
    finding = next(one for one in w.findings if one.kind == "dead units")
    assert finding.path == "l0" and finding.severity == "broken" and finding.facts["which"] == (1,) and finding.facts["units"] == 3
    assert "Unit 1 of l0 is dead" in w.headline


def test_a_starving_unit_is_not_called_dead() -> None:
    w, _ = note(2, budget=0.2)
    assert [(alert.kind, alert.path, alert.unit) for alert in w.alerts] == [("starving", "l0", 0)]


@pytest.mark.parametrize("seed", [6, *(pytest.param(seed, marks=pytest.mark.long) for seed in (0, 1, 3))])
def test_healthy_seeds_raise_no_alert(seed: int) -> None:
    w, _ = note(seed, budget=0.2)
    assert not w.alerts
    assert w.verdict.broken is None
    assert check(w, "the loss falls").state == "passed"
    found = [("l0", (0, 1))] if seed == 6 else []  # those of seed 6 cancel
    assert [(pair.path, pair.units) for pair in pairs.of_watch(w.record)] == found
    line = "units 0 and 1 of l0 cancel: their incoming weights are parallel (cosine 1.000), so both see the same"
    assert (line in str(w)) == bool(found)
    page = html.of_watch(w.record)
    assert ("a bracket joins two that cancel" in page) == ("units 0 and 1 of l0 cancel</strong>" in page) == bool(found)


class Clock:
    """A machine on which every look at the clock takes 10 µs and every step 0.4 ms, however busy the real one is."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        self.time += 10e-6
        return self.time


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(clock, "now", made)
    return made


@pytest.mark.parametrize(
    ("seed", "expected"),
    [
        (63, {("dead", "l0", 1), ("starving", "l0", 2)}),
        (0, set()),
        pytest.param(2, {("starving", "l0", 0)}, marks=pytest.mark.long),
        *(pytest.param(seed, set(), marks=pytest.mark.long) for seed in (1, 3, 6)),
    ],
)
def test_the_default_budget_finds_the_same(seed: int, expected: set[Any], machine: Clock) -> None:
    w, _ = note(seed, machine=machine)
    assert {(alert.kind, alert.path, alert.unit) for alert in w.alerts} == expected
    assert w.record.samples < 1_000 and w.record.cost <= 0.0201  # the last look may take a little more than the one before


def test_a_loss_that_takes_long_is_taken_in_rarely(machine: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """How long it takes is learnt, too, where looks come so often that few losses are taken in between two of them."""
    take, taken = Losses._take, 0

    def slow(self: Losses, tensors: Any, frame: Any) -> None:
        nonlocal taken
        taken += 1
        machine.time += 0.4e-3
        take(self, tensors, frame)

    monkeypatch.setattr(Losses, "_take", slow)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    with modlab.watch(net, optimizer):
        for _ in range(1_000):
            optimizer.zero_grad()
            torch.abs(net(torch.randn(4))).backward()
            optimizer.step()
            machine.time += 3e-3
    assert taken < 4 * 1_000 / RARELY


def test_standing_by_is_counted(machine: Clock) -> None:
    """In each step the tap takes down three things, and all that a model of three modules costs beside."""
    w, _ = note(0, machine=machine, steps=2_000, on_nan="hold")
    assert w.record.seconds > (w.record.steps - 20) * (3 * 10e-6 + 3 * 2e-6)
    assert w.record.samples > 20  # nobody starves of what was asked for


# ---- reading has no effect


def numbers(w: Watch) -> list[Any]:
    """All that was measured, bit by bit."""
    record = w.record
    parts: list[Any] = [record.history, *record.units, record.neurons, *(record.neurons.layers if record.neurons else ()), *record.scalars]
    return [*map(_bits, parts), record.alerts, record.verdict, record.sampled.tolist(), str(w)]


def _bits(part: Any) -> list[Any]:
    found = [getattr(part, field.name) for field in dataclasses.fields(part)]
    found = [one for value in found for one in (value.values() if isinstance(value, dict) else [value])]
    return [one.tobytes() if isinstance(one, np.ndarray) else repr(one) for one in found if not isinstance(one, tuple)]


@pytest.mark.parametrize("net", ["note", "wide"])
def test_who_looks_changes_nothing(net: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With pictures after every step, and all asked for in the loop, the same alerts come in the same steps, and the same numbers."""

    def run(look: Callable[[Watch, int], object]) -> Watch:
        torch.manual_seed(63)
        model = Net() if net == "note" else wide()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, weight_decay=1e-2, momentum=0.9)
        with torch.no_grad():
            next(model.children()).bias[0] = -100  # dies at once
        with modlab.watch(model, optimizer, budget=1.0) as w:
            for step in range(60):
                loss = torch.abs(model(torch.randn(40, 4))).sum()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                w.log(loss=loss)
                look(w, step)
        return w

    blind, looked = run(lambda w, step: None), run(lambda w, step: (w.record, w.verdict, w.alerts) if step % 3 else None)
    assert blind.alerts
    assert numbers(blind) == numbers(looked)
    monkeypatch.setattr(view_snapshots, "OFTEN", 0.0)
    monkeypatch.setattr(Schedule, "shows", lambda *_: True)
    assert numbers(run(lambda w, step: None)) == numbers(blind)


# ---- what is logged


def test_what_cannot_be_logged_costs_no_training(capsys: pytest.CaptureFixture[str]) -> None:
    model = mlp()
    optimizer = sgd(model)
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for _ in range(10):
            optimizer.zero_grad()
            loss = model(torch.randn(8, 4)).square().mean()
            loss.backward()
            optimizer.step()
            w.log(loss=loss, outputs=torch.zeros(3), name="x", nothing=None, **{f"one{i}": 1.0 for i in range(80)})
    assert w.record.steps == 10 and not w.record.error
    logged = [one for one in w.record.scalars if one.kind in ("loss", "logged")]
    assert {one.count for one in logged} == {10} and len(logged) == 64
    told = [remark for remark in w.record.remarks if "w.log(" in remark]
    assert [remark.split("=")[0] for remark in told] == ["w.log(outputs", "w.log(name", "w.log(nothing", "w.log(one63"]
    assert all(capsys.readouterr().err.count(remark) == 1 for remark in told[:1])


# ---- the checks and the alerts


def regression(model: nn.Module, steps: int = 60, **options: Any) -> Watch:
    return train(model, options.pop("optimizer", None) or sgd(model), lambda: torch.randn(8, 4), steps, **options)


def wide() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 3), nn.ReLU(), nn.Linear(3, 1))


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))


def test_without_a_backward_pass_the_loss_is_not_seen() -> None:
    model = mlp()
    optimizer = sgd(model)
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for _ in range(60):
            gradients = torch.autograd.grad(model(torch.randn(8, 4)).square().mean(), [*model.parameters()])
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter.grad = gradient
            optimizer.step()
    assert [one.state for one in w.verdict.checks if "loss" in one.name] == ["not seen", "not seen"]
    assert "w.log(loss=loss)" in check(w, "the loss falls").text
    assert w.verdict.broken is None


def test_a_parameter_that_the_optimizer_lacks() -> None:
    model = mlp()
    w = regression(model, optimizer=torch.optim.SGD([*model[2].parameters(), *model[4].parameters()], lr=0.1))
    assert w.verdict.broken == check(w, "the optimizer owns it")
    assert {alert.path for alert in w.alerts if alert.kind == "not owned"} == {"0.weight", "0.bias"}


class Cut(nn.Module):
    """Two layers, of which one is cut off from the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(4, 1), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.used(x) + self.unused(x).detach()


def without_gradient(w: Watch) -> tuple[str, set[str]]:
    found = check(w, "every trained parameter gets a gradient")
    assert found.path == "unused.weight"
    return found.state, {alert.path for alert in w.alerts if alert.kind == "no gradient" and alert.severity == "broken"}


def test_a_parameter_without_a_gradient() -> None:
    model = Cut()
    w = regression(model, optimizer=sgd(model, 1e-5))
    assert without_gradient(w) == ("broken", {"unused.weight", "unused.bias"})
    assert w.verdict.broken == check(w, "every trained parameter gets a gradient")


def test_a_parameter_without_a_gradient_is_no_alarm_where_the_loss_falls_to_nothing_without_it() -> None:
    assert without_gradient(regression(Cut())) == ("careful", set())


def test_a_module_that_is_never_called() -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(4, 1), nn.Linear(4, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)

    w = regression(Half())
    called = check(w, "every module is called")
    assert called.state == "careful" and called.path == "unused"


def test_modules_whose_parameters_are_used_without_a_call() -> None:
    """Attention hands its last layer's tensors to a function: that layer has parameters, and they learn."""

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attn, self.head, self.idle = nn.MultiheadAttention(4, 2, batch_first=True), nn.Linear(4, 1), nn.ReLU()
            self.frozen = nn.Linear(4, 4).requires_grad_(False)
            self.tied = nn.Linear(4, 1, bias=False)
            self.tied.weight = self.head.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.attn(x, x, x)[0])

    model = Mixed()
    called = check(train(model, sgd(model), lambda: torch.randn(8, 3, 4), 12), "every module is called")
    assert called.state == "passed"
    assert (
        called.text == "all but idle, without parameters; attn.out_proj and tied, whose parameters are used without a call; "
        "frozen, not called in any training pass that was measured"
    )


def test_gradients_that_are_never_zeroed() -> None:
    w = regression(mlp(), optimizer=None, zero=False, steps=20)
    assert "not zeroed" in kinds(w)


def test_accumulation_is_no_forgotten_zero_grad() -> None:
    model = mlp()
    optimizer = sgd(model)
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for _ in range(20):
            optimizer.zero_grad()
            for _ in range(3):
                model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
    assert not w.alerts
    row = w.record.history.row("0", "activation")
    assert w.record.history.columns["samples"][0, row] == 3


def test_a_learning_rate_of_zero_moves_nothing() -> None:
    model = mlp()
    w = regression(model, optimizer=sgd(model, 0.0))
    assert w.verdict.broken == check(w, "it moves")


def test_what_bfloat16_loses() -> None:
    model = mlp().to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.0)
    w = train(model, optimizer, lambda: torch.randn(8, 4, dtype=torch.bfloat16), 60)
    assert w.verdict.broken == check(w, "by enough for its dtype")
    assert "rounding" in kinds(w)
    history = w.record.history
    assert history.columns["stuck"][-1, history.row("2.weight", "update")] > 0.5


def test_a_saturated_activation() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    with torch.no_grad():
        model[0].weight.mul_(1000)
    w = regression(model, optimizer=sgd(model, 1e-3))
    assert [alert.path for alert in w.alerts if alert.kind == "saturated"] == ["1"]


def deep(function: Callable[[], nn.Module], std: float, wide: int = 64) -> nn.Sequential:
    """Four hidden layers whose weights were drawn with a spread."""
    sizes = [16, *[wide] * 4, 4]
    model = nn.Sequential(*(layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), function())))[:-1]
    for layer in model[::2]:
        nn.init.normal_(layer.weight, 0, std)
    return model


class ByFunction(nn.Module):
    """The same, where the activation functions are no modules."""

    def __init__(self, layers: nn.Sequential, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layers, self.function = nn.ModuleList(layers[::2]), function

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = self.function(layer(x))
        return self.layers[-1](x)


@pytest.mark.parametrize(
    ("model", "paths"),
    [
        (lambda: deep(nn.Tanh, 1.0), {"3", "5", "7"}),
        (lambda: deep(nn.Hardtanh, 1.0), {"1", "3", "5", "7"}),
        (lambda: deep(nn.Sigmoid, 3.0), {"1", "3", "5", "7"}),
        (lambda: ByFunction(deep(nn.Tanh, 1.0), torch.tanh), {"layers.1", "layers.2", "layers.3"}),
        (lambda: ByFunction(deep(nn.Sigmoid, 3.0), torch.sigmoid), {"layers.0", "layers.1", "layers.2", "layers.3"}),
        (lambda: deep(nn.Tanh, 0.125), set()),
        (lambda: deep(nn.Tanh, 0.5), set()),
    ],
)
def test_deep_nets_that_begin_saturated(model: Callable[[], nn.Module], paths: set[str]) -> None:
    torch.manual_seed(0)
    net = model()
    w = train(net, torch.optim.Adam(net.parameters(), 1e-3), lambda: torch.randn(64, 16), 30)
    assert {alert.path for alert in w.alerts if alert.kind == "saturated"} >= paths
    assert paths or not w.alerts


def test_a_gate_that_is_open_is_not_saturated() -> None:
    net = nn.Sequential(nn.Linear(16, 32), nn.Sigmoid(), nn.Linear(32, 4))
    nn.init.constant_(net[0].bias, 6.0)
    w = train(net, torch.optim.Adam(net.parameters(), 1e-3), lambda: torch.randn(64, 16), 30)
    assert "saturated" not in kinds(w)


def test_what_comes_to_the_ends_by_learning_is_not_saturated() -> None:
    """A share between both limits, which was below them at first."""
    net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
    grows = iter(range(1, 1000))
    w = train(net, sgd(net, 1e-4), lambda: torch.randn(64, 1) * min(30.0, next(grows)), 60)
    assert "saturated" not in kinds(w)


def test_shares_are_written_as_everywhere() -> None:
    net = deep(nn.Tanh, 1.0)
    w = train(net, torch.optim.Adam(net.parameters(), 1e-3), lambda: torch.randn(64, 16), 30)
    assert all(re.search(r"\d %", alert.text) and not re.search(r"\d%", alert.text) for alert in w.alerts if alert.kind == "saturated")


def test_a_gradient_that_vanishes_along_depth() -> None:
    model = nn.Sequential(*(layer for _ in range(12) for layer in (nn.Linear(8, 8), nn.Sigmoid())), nn.Linear(8, 1))
    with torch.no_grad():
        for layer in model[::2]:
            layer.weight.mul_(0.3)
    w = train(model, sgd(model, 1e-3), lambda: torch.randn(8, 8), 30)
    assert "vanishing" in kinds(w)


def test_a_loss_far_above_the_uniform_guess() -> None:
    model = nn.Sequential(nn.Linear(4, 10))
    with torch.no_grad():
        model[0].weight.mul_(100)
    target = torch.randint(10, (64,))
    w = train(model, sgd(model, 1e-4), lambda: torch.randn(64, 4), 10, loss=lambda out: F.cross_entropy(out, target))
    sensible = check(w, "the loss is sensible")
    assert sensible.state == "careful" and "10" in sensible.text and "2.30" in sensible.text


def test_a_loss_that_rises() -> None:
    model = nn.Linear(4, 1)
    w = train(model, torch.optim.SGD(model.parameters(), lr=0.01, maximize=True), lambda: torch.randn(64, 4), 100)
    falls = check(w, "the loss falls")
    assert w.verdict.ok and (falls.state, falls.kind) == ("not seen", "climbed")  # it is meant


def test_an_alert_that_no_longer_holds_says_so() -> None:
    model = mlp()
    optimizer = sgd(model, 1e-4)
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for step in range(30):
            if step >= 15:
                optimizer.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
    (alert,) = (alert for alert in w.alerts if alert.kind == "not zeroed")
    assert alert.over


# ---- NaN


class Mid(nn.Module):
    """Spoils a step with a large batch: the batch alone decides, so that a replay is the same."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.log(x * 0) if x.abs().max() > 1e3 else x


def spoilt(when: int) -> Callable[[], Tensor]:
    """Batches, of which one is large."""
    steps = iter(range(10**6))
    return lambda: torch.randn(8, 4) * (1e6 if next(steps) == when else 1)


@pytest.mark.parametrize("options", [{"on_nan": "hold"}, {"budget": 1.0}])
def test_where_a_nan_is_born(options: dict[str, Any]) -> None:
    model = nn.Sequential(nn.Linear(4, 8), Mid(), nn.Linear(8, 1))
    w = train(model, sgd(model, 0.01), spoilt(299), 320, **{"budget": 0.02, **options})
    alert = w.alerts[0]
    assert (alert.kind in ("nan", "inf"), alert.path, alert.step) == (True, "1", 299)
    assert "log" in alert.text
    assert alert.trace is not None and alert.trace["1"].path == "1"


def test_a_nan_between_two_samples_is_found_at_the_end() -> None:
    model = nn.Sequential(nn.Linear(4, 8), Mid(), nn.Linear(8, 1))
    w = train(model, sgd(model, 0.01), spoilt(60), 61, budget=1e-6)
    assert [alert.kind for alert in w.alerts] == ["nan"]


def test_stop_raises_before_the_weights_are_spoilt() -> None:
    model = nn.Sequential(nn.Linear(4, 8), Mid(), nn.Linear(8, 1))
    with pytest.raises(NotFiniteError, match="Step 19 was not made"):
        train(model, sgd(model, 0.01), spoilt(19), 40, on_nan="stop")
    assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())


def test_masks_with_infinities_are_no_alert() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.score, self.mask = nn.Linear(4, 4), nn.Identity()

        def forward(self, x: Tensor) -> Tensor:
            scores = self.mask(self.score(x).masked_fill(torch.eye(4, dtype=torch.bool)[:1], -math.inf))
            return scores.softmax(-1) @ torch.ones(4, 1)

    model = Masked()
    w = train(model, sgd(model), lambda: torch.randn(8, 4), 30)
    assert not w.alerts


# ---- how it is opened and closed


def test_it_ends_with_the_block_and_stays_readable() -> None:
    w = regression(mlp(), steps=20)
    assert w.record.state == "ended" and w.record.steps == 20 and w.record.samples == 20
    w.close()
    w.log(loss=1.0)  # after the end: nothing happens
    assert w.record.scalars[0].count == 20


def test_it_begins_at_the_call() -> None:
    model = mlp()
    optimizer = sgd(model)
    w = modlab.watch(model, optimizer, budget=1.0)
    model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
    assert w.record.state == "running" and w.record.steps == 1
    w.close()
    optimizer.step()
    assert w.record.steps == 1


def test_a_second_watch_closes_the_first() -> None:
    model = mlp()
    first = modlab.watch(model, sgd(model))
    second = modlab.watch(model, sgd(model))
    assert first.record.state == "ended" and second.record.state == "waiting"
    assert any("earlier watch" in remark for remark in second.record.remarks)
    other = modlab.watch(mlp())  # of another model: the second goes on
    assert second.record.state == "waiting"
    second.close()
    other.close()


def test_without_an_optimizer_the_first_that_holds_a_parameter_counts() -> None:
    model, other = mlp(), mlp()
    mine, theirs = sgd(model), sgd(other)
    with modlab.watch(model, budget=1.0) as w:
        for _ in range(15):
            for one, optimizer in ((other, theirs), (model, mine)):
                optimizer.zero_grad()
                one(torch.randn(8, 4)).square().mean().backward()
                optimizer.step()
    assert (w.record.steps, w.record.optimizer) == (15, "SGD")
    assert check(w, "it moves").state == "passed"


def test_weights_changed_by_hand_are_steps_too() -> None:
    model = mlp()
    with modlab.watch(model) as w:
        for _ in range(30):
            model(torch.randn(8, 4)).square().mean().backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.1 * parameter.grad
                    parameter.grad = None
    assert w.record.steps == 29  # the last one ends with the next pass
    assert check(w, "the optimizer owns it").state == "not seen"
    assert check(w, "it moves").state == "passed"
    history = w.record.history
    updates = history.columns["low"][:, history.row("4.weight", "update")]
    assert np.isfinite(updates).any() and (updates[np.isfinite(updates)] < 0).any()


@pytest.mark.parametrize("data", [False, True])
def test_a_parameter_forgotten_in_steps_by_hand_does_not_move(data: bool) -> None:
    """Also where ``.data`` is changed, which no version counts."""
    model = mlp()
    with modlab.watch(model, budget=1.0) as w:
        for _ in range(15):
            model(torch.randn(8, 4)).square().mean().backward()
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    if name != "2.weight":
                        (parameter.data if data else parameter).sub_(0.1 * parameter.grad)
            model.zero_grad()
    assert w.record.steps == 14
    assert check(w, "it moves").state == "broken"
    assert check(w, "it moves").path == "2.weight"


def test_where_nobody_steps_nothing_is_said_to_stand_still() -> None:
    model = mlp()
    with modlab.watch(model, budget=1.0) as w:
        for _ in range(15):
            model.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
    assert check(w, "it moves").state == "not seen"


def test_several_optimizers_own_together() -> None:
    model = mlp()
    both = [torch.optim.SGD(model[0].parameters(), lr=0.1), torch.optim.Adam([*model[2].parameters(), *model[4].parameters()])]
    with modlab.watch(model, both, budget=1.0) as w:
        for _ in range(12):
            for optimizer in both:
                optimizer.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
            for optimizer in reversed(both):
                optimizer.step()
    assert w.record.steps == 12
    assert check(w, "the optimizer owns it").state == "passed"
    assert not w.alerts


def test_evaluation_between_steps_is_no_step() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.Linear(4, 1))
    optimizer = sgd(model)
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for _ in range(12):
            model.train()
            optimizer.zero_grad()
            model(torch.ones(8, 4)).square().mean().backward()
            optimizer.step()
            model.eval()
            model(torch.full((8, 4), 1e6))
            with torch.no_grad():
                model.train()
                model(torch.full((8, 4), 1e6))
    history = w.record.history
    assert w.record.steps == 12
    assert history.columns["high"][:, history.row("0", "activation")].max() < 1e3


@pytest.mark.parametrize("bad", [lambda x: x, nn.Linear, "net", None])
def test_what_is_no_model_is_refused(bad: Any) -> None:
    with pytest.raises(NotAModuleError, match="watch"):
        modlab.watch(bad)


def test_bad_options_are_refused() -> None:
    model = mlp()
    for options in ({"budget": 0}, {"budget": 2}, {"budget": "x"}, {"on_nan": "explode"}, {"inside": "out"}):
        with pytest.raises(QuestionError, match=next(iter(options))):
            modlab.watch(model, **options)
    with pytest.raises(NotAnOptimizerError, match=r"modlab\.watch"):
        modlab.watch(model, model.parameters())

    class Forgot(nn.Module):
        def __init__(self) -> None:
            pass

    with pytest.raises(NotInitializedError):
        modlab.watch(Forgot())


# ---- faults


@pytest.mark.parametrize("where", ["forward", "loss", "interrupt"])
def test_the_users_exception_comes_out_as_it_is(where: str) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = sgd(model)
    error = {"forward": RuntimeError, "loss": ZeroDivisionError, "interrupt": KeyboardInterrupt}[where]
    with pytest.raises(error), modlab.watch(model, optimizer, budget=1.0) as w:
        for step in range(20):
            optimizer.zero_grad()
            out = model(torch.randn(8, 5 if where == "forward" and step == 13 else 4))
            if step == 13 and where == "loss":
                1 / 0  # noqa: B018
            if step == 13 and where == "interrupt":
                raise KeyboardInterrupt
            out.mean().backward()
            optimizer.step()
    assert w.record.steps == 13
    assert w.record.state == ("interrupted" if where == "interrupt" else "ended")


def test_an_error_of_modlabs_own_ends_the_watch_and_not_the_training(monkeypatch: pytest.MonkeyPatch, capsys: Any, swallowed: Any) -> None:
    from modlab.watching import sample

    calls = 0

    def broken(*_: Any, **__: Any) -> None:
        nonlocal calls
        calls += 1
        if calls > 30:
            raise ValueError("out of order")

    monkeypatch.setattr(sample.Sample, "_take", broken)
    model = mlp()
    w = regression(model, steps=20)
    assert w.record.state == "failed" and "out of order" in w.record.error
    assert capsys.readouterr().err.count("the watch ended at step") == 1


def test_a_view_that_is_lost_does_not_disturb(swallowed: Any) -> None:
    model = mlp()
    optimizer = sgd(model)
    w = modlab.watch(model, optimizer)

    def gone() -> None:
        raise OSError("comm closed")

    assert w._watcher is not None
    w._watcher.snapshots.publish = gone
    for _ in range(5):
        model(torch.randn(8, 4)).mean().backward()
        optimizer.step()
    assert w.record.state == "running"
    assert any("view was lost" in remark for remark in w.record.remarks)
    w.close()


def test_the_model_pickles_and_copies_meanwhile() -> None:
    model = mlp()
    optimizer = sgd(model)
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for _ in range(5):
            out = model(torch.randn(8, 4))
            twin, other = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
            twin(torch.randn(8, 4))
            other(torch.randn(8, 4))
            out.mean().backward()
            optimizer.step()
    assert w.record.steps == 5
    again = pickle.loads(pickle.dumps(w))
    assert str(again) == str(w)


def test_nothing_is_kept_alive() -> None:
    model = mlp()
    optimizer = sgd(model)
    outputs = []
    w = modlab.watch(model, optimizer, budget=1.0)
    for _ in range(12):
        optimizer.zero_grad()
        out = model(torch.randn(8, 4))
        outputs.append(weakref.ref(out))
        out.square().mean().backward()
        optimizer.step()
    del out
    gc.collect()
    assert not [one for one in outputs if one() is not None]
    gone = weakref.ref(model)
    del model, optimizer
    gc.collect()
    assert gone() is None
    assert w.record.state == "ended"
    assert w.record.steps == 12


def test_stopping_ends_the_block_quietly() -> None:
    model = mlp()
    optimizer = sgd(model)
    with modlab.watch(model, optimizer) as w:
        for step in range(100):
            optimizer.zero_grad()
            model(torch.randn(8, 4)).mean().backward()
            optimizer.step()
            if step == 10:
                w.ask("stop")
    assert w.record.state == "stopped" and w.record.steps == 12
    with pytest.raises(QuestionError, match="ended"):
        w.ask("pause")


def test_pause_and_single_steps() -> None:
    model = mlp()
    optimizer = sgd(model)
    reached: list[int] = []
    with modlab.watch(model, optimizer) as w:
        w.ask("pause")

        def press() -> None:
            for wanted in (1, 2, 3):
                while len(reached) < wanted:
                    pass
                w.ask("step")
            w.ask("resume")

        presser = threading.Thread(target=press)
        presser.start()
        for step in range(30):
            reached.append(step)
            optimizer.zero_grad()
            model(torch.randn(8, 4)).mean().backward()
            optimizer.step()
        presser.join()
    assert w.record.steps == 30


def test_a_loop_in_another_thread_is_seen() -> None:
    model = mlp()
    optimizer = sgd(model)
    with modlab.watch(model, optimizer, budget=1.0) as w:

        def loop() -> None:
            for _ in range(15):
                optimizer.zero_grad()
                model(torch.randn(8, 4)).square().mean().backward()
                optimizer.step()

        worker = threading.Thread(target=loop)
        worker.start()
        worker.join()
    assert w.record.steps == 15 and w.record.samples == 15
    assert check(w, "every module is called").state == "passed"


# ---- faces


def test_a_script_gets_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    regression(mlp(), steps=40)
    told = capsys.readouterr().err
    assert told.count("data arrives") == 1  # at the end, once
    assert "No problem found" in told


def test_faces_and_data() -> None:
    w = regression(mlp(), steps=30)
    assert w.history["path"].shape == w.history["mean"].shape
    assert w.to_dict()["kind"] == "watch" and len(w.to_dict()["records"]) == len(w.history["path"])
    assert str(w).startswith(w.headline)
    assert w.figure("gradients").axes and w.figure("loss").axes
    with pytest.raises(ValueError, match="gradients"):
        w.figure("gradient")


def test_one_part_of_it() -> None:
    w = regression(mlp(), steps=20)
    layer, weight = w["2"], w["2.weight"]
    assert {entry.path for entry in layer.records} == {"2", "2.weight", "2.bias"}
    assert {entry.role for entry in weight.records} == {"parameter", "parameter gradient", "update"}
    assert "2" in str(layer) and weight.html()
    with pytest.raises(modlab.ModlabError, match=r"Nearest: '2.weight'"):
        w["2.wieght"]


def test_two_runs_side_by_side() -> None:
    one, other = regression(mlp(), steps=30), regression(mlp(), steps=30, optimizer=None, zero=False)
    runs = one.compare(other)
    assert "not zeroed" in str(runs)
    assert "only there" in runs.headline
    assert len(runs.records) == len(one.records) + len(other.records)
    assert runs.html() and runs.to_dict()["kind"] == "runs"
    with pytest.raises(QuestionError, match="another watch"):
        one.compare(3)  # type: ignore[arg-type]


def test_a_tensor_that_several_modules_hand_on_is_told_of_each() -> None:
    w = regression(mlp(), steps=12)
    history = w.record.history
    for role in ("activation", "gradient"):
        inner, outer = (history.row(path, role) for path in ("4", ""))
        assert (history.norm(inner) == history.norm(outer)).all() and (history.norm(outer) > 0).all()


def ragged() -> Tensor:
    return torch.nested.nested_tensor([torch.randn(3, 4), torch.randn(5, 4)], layout=torch.jagged)


ODD: dict[str, tuple[Callable[[], nn.Module], Callable[[nn.Module], Tensor]]] = {
    "not initialized yet": (
        lambda: nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.LazyLinear(2)),
        lambda model: model(torch.randn(8, 4)).square().mean(),
    ),
    "nested tensors": (lambda: nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)), lambda model: model(ragged()).values().square().mean()),
    "an output of several that is not used": (lambda: Halves(), lambda model: model(torch.randn(8, 4)).square().mean()),
}


class Halves(nn.Module):
    """Uses the second of two outputs of one function: the first one's gradient does not arrive."""

    def __init__(self) -> None:
        super().__init__()
        self.two = Split()

    def forward(self, x: Tensor) -> Tensor:
        return self.two(x)[1]  # type: ignore[no-any-return]


class Split(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.layer(x).unbind(1)


@pytest.mark.parametrize("name", ODD)
def test_odd_tensors_end_no_watch(name: str) -> None:
    make, loss = ODD[name]
    torch.manual_seed(0)
    model = make()
    optimizer = sgd(model)
    with modlab.watch(model, optimizer) as w:
        for _ in range(10):
            optimizer.zero_grad()
            loss(model).backward()
            optimizer.step()
    assert w.record.state == "ended" and w.record.steps == 10 and w.verdict.ok


def test_a_model_that_is_gone_before_its_first_step_is_told(capfd):
    parts = nn.ModuleDict({"a": nn.Linear(2, 2)})
    w = modlab.watch(parts, torch.optim.SGD(parts.parameters(), lr=0.1))
    assert capfd.readouterr().err == ""
    del parts
    gc.collect()
    assert "gone before its first step" in capfd.readouterr().err and not w.verdict.ok


ENDS: dict[str, tuple[BaseException, str]] = {
    "a generator that nobody reads on": (GeneratorExit(), ""),
    "sys.exit()": (SystemExit(), ""),
    "sys.exit(0)": (SystemExit(0), ""),
    "sys.exit(1)": (SystemExit(1), "SystemExit: 1"),
    "sys.exit of a text": (SystemExit("no data"), "SystemExit: no data"),
}


@pytest.mark.parametrize("name", ENDS)
def test_an_end_that_is_none_of_an_error_is_told_as_an_end(name: str) -> None:
    error, said = ENDS[name]
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.raises(type(error)), modlab.watch(model, optimizer) as w:
        model(torch.ones(3, 2)).sum().backward()
        optimizer.step()
        raise error
    assert (w.record.state, w.record.error) == ("ended", said) and ("ended in an error" in w.headline) is bool(said)
