"""What is wrong with a training run is found at its place and said in words; and what happens to a watch harms no training."""

from __future__ import annotations

import ctypes
import gc
import math
import os
import re
import subprocess
import sys
import threading
import time
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules import module as rooms
from torch.optim import optimizer as optimizers

import modlab
from modlab.results.watch import Watch
from modlab.watching import nan_guard
from modlab.watching.units import Units
from modlab.watching.watcher import watchers
from tests.patience import until
from tests.ranks import run_ranks


def hooks() -> dict[str, int]:
    """How many global hooks there are of each kind."""
    stores = {name: held for room in (rooms, optimizers) for name, held in vars(room).items() if name.startswith("_global_")}
    return {name: len(held) for name, held in stores.items() if isinstance(held, dict)}


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    torch.manual_seed(0)
    before, threads = hooks(), threading.active_count()
    yield
    assert hooks() == before
    until(lambda: threading.active_count() <= threads, pause=0.01)  # a queue to worker processes has a thread that ends in its time
    assert not [one for one in watchers]


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    steps: int,
    loss: Callable[[int], Tensor] | None = None,
    before: Callable[[int], None] = lambda step: None,
    **options: Any,
) -> Watch:
    """A plain loop; `before` is called between the backward pass and the step."""
    with modlab.watch(model, optimizer, **{"budget": 1.0, **options}) as w:
        for step in range(steps):
            optimizer.zero_grad()
            value = model(torch.randn(8, 4)).square().mean() if loss is None else loss(step)
            value.backward()
            before(step)
            optimizer.step()
            w.log(loss=value)
    return w


def sgd(model: nn.Module, lr: float = 0.01) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=lr)


def check(w: Watch, name: str) -> Any:
    return next(one for one in w.verdict.checks if one.name == name)


def only(w: Watch, kind: str) -> Any:
    (found,) = (alert for alert in w.alerts if alert.kind == kind)
    return found


# ---- faults, each with its path and its sentence


def test_a_gradient_that_explodes_along_depth() -> None:
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(10)))
    with torch.no_grad():
        for layer in model:
            layer.weight.mul_(12)
    w = train(model, sgd(model, 1e-30), 20, lambda _: model(torch.randn(8, 8)).square().mean().sqrt())
    alert = only(w, "exploding")
    assert alert.path == "0"
    assert re.fullmatch(r"the gradient explodes along depth: \S+ at the first modules, \S+ at the last", alert.text)


def test_a_loss_that_becomes_infinite() -> None:
    model = nn.Linear(4, 1)
    w = train(model, sgd(model, 1.0), 60, lambda _: (model(torch.full((8, 4), 1e3)) ** 4).mean())
    assert w.alerts[0].kind in ("nan", "inf")
    assert w.verdict.broken is not None
    assert check(w, "the loss falls").state == "broken" and check(w, "the loss falls").text.startswith("its last value is ")
    assert check(w, "the loss is sensible").state == "broken" and w.verdict.broken == check(w, "the loss is sensible")


def test_a_weight_that_overflows() -> None:
    model = nn.Linear(4, 1)
    with torch.no_grad():
        model.weight.fill_(3e38)
    w = train(
        model, torch.optim.SGD(model.parameters(), lr=1e38, maximize=True), 4, lambda _: model(torch.full((8, 4), 1e-30)).mean() * 1e31
    )
    alert = w.alerts[0]
    assert (alert.kind, alert.path) == ("inf", "weight")
    assert alert.text.startswith("weight is the first with infinity") or "weight contains" in alert.text


def test_a_second_group_that_was_forgotten() -> None:
    model = nn.ModuleDict({"body": mlp(), "head": nn.Linear(1, 1)})
    optimizer = torch.optim.SGD([{"params": model["body"][0].parameters(), "lr": 0.01}, {"params": model["head"].parameters()}], lr=0.1)
    w = train(model, optimizer, 20, lambda _: model["head"](model["body"](torch.randn(8, 4))).square().mean())
    lost = {alert.path: alert for alert in w.alerts if alert.kind == "not owned"}
    assert lost.keys() == {"body.2.weight", "body.2.bias", "body.4.weight", "body.4.bias"}
    assert lost["body.2.weight"].text == "body.2.weight gets a gradient, but SGD does not hold it: it never moves"
    assert "add_param_group" in lost["body.2.weight"].fix
    assert w.verdict.broken == check(w, "the optimizer owns it")
    assert w.verdict.broken.text == "body.2.weight, body.2.bias, body.4.weight and 1 more not in SGD"


class Hidden(nn.Module):
    """A plain list registers nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = [nn.Linear(4, 4), nn.Linear(4, 4)]
        self.last = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.last(x)


def test_modules_that_hide_in_a_list() -> None:
    """What is in it is called, and gets gradients, and nobody trains it: the verdict says what `diagnose` says."""
    model = Hidden()
    w = train(model, sgd(model), 20)
    broken = w.verdict.broken
    assert broken == check(w, "the optimizer owns it")
    assert broken.path == "layers" and broken.text.startswith("layers (2 Linear) are hidden in a list: they are not trained")
    assert "nn.ModuleList" in broken.fix
    assert check(w, "every module is called").text == "2 of 2"
    (found,) = (one for one in modlab.diagnose(model, sgd(model)).records if one.path == "layers")
    assert broken.text == f"{found.subject} {found.what}"


@pytest.mark.parametrize("why", ["owned", "unused", "frozen", "registered elsewhere"])
def test_modules_in_a_list_that_are_no_mistake(why: str) -> None:
    model = Hidden()
    if why == "owned":
        optimizer = torch.optim.SGD([*model.parameters(), *(p for layer in model.layers for p in layer.parameters())], lr=0.01)
    if why == "unused":
        model.forward = model.last.forward  # type: ignore[method-assign]
    if why == "frozen":
        for layer in model.layers:
            layer.requires_grad_(False)
    if why == "registered elsewhere":
        model.also = nn.ModuleList(model.layers)
    w = train(model, optimizer if why == "owned" else sgd(model), 20)
    assert w.verdict.broken is None and not w.alerts


def test_a_fourth_layer_of_which_nothing_comes_back() -> None:
    """Multiplied by zero: there is a gradient, and it is zero."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.silenced = nn.Linear(4, 1), nn.Linear(4, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x) + 0 * self.silenced(x)

    model = Model()
    w = train(model, sgd(model), 20)
    broken = w.verdict.broken
    assert broken == check(w, "every trained parameter gets a gradient") and broken.path == "silenced.weight"
    assert broken.text == "those of silenced.weight and silenced.bias are zero in all 20 looks"


def test_half_precision_overflows_for_good() -> None:
    """What comes out of the model is beyond float16: no scaler can help, and all steps are skipped."""
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    with torch.no_grad():
        model[2].weight.mul_(1e6)
    optimizer, scaler = sgd(model), torch.amp.GradScaler("cpu", init_scale=2.0**10)
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for _ in range(20):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = model(torch.randn(8, 4)).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            w.log(loss=loss)
    alert = w.alerts[0]
    assert alert.kind in ("nan", "inf") and alert.path == "2"
    assert w.verdict.broken is not None


class Root(nn.Module):
    """Finite forward, infinite backward: the slope of a root at zero."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sqrt(x * 0) if x.abs().max() > 1e3 else x


def test_a_nan_of_the_backward_pass_alone() -> None:
    model = nn.Sequential(nn.Linear(4, 8), Root(), nn.Linear(8, 1))
    w = train(model, sgd(model), 40, lambda step: model(torch.randn(8, 4) * (1e6 if step == 30 else 1)).square().mean(), on_nan="hold")
    alert = w.alerts[0]
    assert (alert.kind, alert.path, alert.step) == ("nan", "1", 30) or (alert.kind, alert.path, alert.step) == ("inf", "1", 30)
    assert "backward" in alert.text and "Sqrt" in alert.text
    assert alert.trace is not None


def test_a_nan_in_the_batch() -> None:
    model = mlp()

    def loss(step: int) -> Tensor:
        x = torch.randn(8, 4)
        if step == 25:
            x[3, 2] = math.nan
        return model(x).square().mean()

    w = train(model, sgd(model), 30, loss)
    alert = w.alerts[0]
    assert (alert.kind, alert.step) == ("nan", 25)
    assert alert.text.startswith("an input") or "batch" in alert.text
    assert w.verdict.broken == check(w, "data arrives")


@pytest.mark.parametrize("rarely", [1, nan_guard.RARELY])
@pytest.mark.parametrize("what", ["batches", "a batch", "the last batch", "the loss"])
def test_a_nan_between_two_samples(what: str, rarely: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget keeps hardly any step of so small a net; but the first gradient that is not finite is seen, or the steps that hold it."""
    monkeypatch.setattr(nan_guard, "RARELY", rarely)
    model, born = mlp(), 600
    steps = born + 1 if what == "the last batch" else born + 200

    def loss(step: int) -> Tensor:
        x = torch.randn(8, 4)
        if what != "the loss" and (step == born or (what == "batches" and step > born)):
            x[:, 2] = math.nan
        value = model(x).square().mean()
        return value * math.nan if what == "the loss" and step == born else value

    w = train(model, sgd(model), steps, loss, budget=0.001)
    (alert,) = (alert for alert in w.alerts if alert.kind in ("nan", "inf"))
    assert born <= alert.step < born + rarely
    held = re.search(
        r"the gradient of 0.bias was the first with NaN (?:at step|in one of the steps ([\d,]+) to) ([\d,]+), which w", alert.text
    )
    assert held and int(held[2]) == alert.step
    assert int(held[1] or held[2]) <= born
    assert rarely > 1 or held[1] is None  # where each step is looked at, it is told exactly
    if what == "batches":
        assert alert.text.startswith("the batch: input contains 8 NaN among 32 numbers, and 0.weight is already spoilt; ")
        assert alert.path == "input" and w.verdict.broken == check(w, "data arrives")
    else:
        assert alert.text.startswith(
            "0.weight contains NaN at the end; " if what == "the last batch" else "the weights: 0.weight contains "
        )
        assert alert.path == "0.weight" and 'on_nan="hold"' in alert.fix


class Named(nn.Module):
    """Takes its batch by name, and may change it."""

    def __init__(self, writes: bool) -> None:
        super().__init__()
        self.net, self.writes = mlp(), writes

    def forward(self, *, x: Tensor) -> Tensor:
        if self.writes:
            x[:] = x / x.abs().amin().mul(0)
        return self.net(x)


@pytest.mark.parametrize("writes", [False, True])
def test_nan_batches_by_name(writes: bool) -> None:
    """The batch is blamed where it is as it was made, and not where the model may have written into it."""
    model = Named(writes=False)

    def loss(step: int) -> Tensor:
        model.writes = writes and step >= 600
        x = torch.randn(8, 4) * (math.nan if step >= 600 and not writes else 1)
        return model(x=x).square().mean()

    w = train(model, sgd(model), 800, loss, budget=0.001)
    alert = next(alert for alert in w.alerts if alert.kind in ("nan", "inf"))
    assert alert.text.startswith("the weights: net.0.weight contains " if writes else "the batch: x contains 32 NaN among 32 numbers, and ")


class Careful(torch.optim.Optimizer):
    """Leaves out what is not finite."""

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for one in group["params"]:
                if torch.isfinite(one.grad).all():
                    one.data.sub_(one.grad, alpha=group["lr"])


def test_a_gradient_that_nobody_uses() -> None:
    """A glance between two samples sees it, and the next step, in which all is well, clears it of suspicion."""
    model = mlp()

    def loss(step: int) -> Tensor:
        return model(torch.randn(8, 4)).square().mean() * (math.nan if step % 50 == 40 else 1)

    w = train(model, Careful(model.parameters(), {"lr": 0.01}), 400, loss, budget=0.001)
    assert not {*range(40, 400, 50)} & {*w.record.sampled.tolist()}
    assert not w.alerts


def test_all_units_of_a_layer_die_and_it_is_one_line() -> None:
    model = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 1))
    with torch.no_grad():
        model[0].bias[:40] = -100
    w = train(model, sgd(model, 1e-3), 30, lambda _: model(torch.randn(256, 4)).square().mean())
    alert = only(w, "dead")
    assert (alert.path, alert.unit, alert.step < 30) == ("0", None, True)
    assert re.fullmatch(
        r"40 of 64 units of layer 0 are dead: units 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, … are zero on all the last [\d,]+ inputs",
        alert.text,
    )
    assert next(one for one in w.findings if one.kind == "dead units").severity == "broken" and not w.verdict.ok


def test_a_few_dead_units_of_many_are_a_reason_for_care() -> None:
    model = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 1))
    with torch.no_grad():
        model[0].bias[[3, 17]] = -100
    w = train(model, sgd(model, 1e-3), 30, lambda _: model(torch.randn(256, 4)).square().mean())
    assert [(alert.kind, alert.path, alert.unit) for alert in w.alerts] == [("dead", "0", 3), ("dead", "0", 17)]
    assert w.verdict.broken is None
    finding = next(one for one in w.findings if one.kind == "dead units")
    assert (finding.severity, finding.facts["which"], finding.facts["units"]) == ("careful", (3, 17), 64)
    assert check(w, "it moves").state == "passed"


def test_a_unit_that_wakes_up_is_dead_no_longer() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    with torch.no_grad():
        model[0].bias[5] = -100

    def wake(step: int) -> None:
        if step == 20:
            with torch.no_grad():
                model[0].bias[5] = 1

    w = train(model, sgd(model, 1e-3), 40, lambda _: model(torch.randn(128, 4)).square().mean(), wake)
    alert = only(w, "dead")
    assert alert.unit == 5 and alert.over
    assert check(w, "it moves").state == "passed"


def test_a_unit_that_fires_rarely_is_not_dead() -> None:
    """Once in 400 inputs: pauses of a thousand and more are to be expected of it."""
    generator = torch.Generator().manual_seed(0)
    units = Units("l", "relu", 1, 2)
    from modlab.watching.alerts import dead

    found = 0
    for step in range(300):
        fires = torch.rand(100, 2, generator=generator) < torch.tensor([1 / 400, 0.0])
        units.see(fires.float(), step)
        units.feel(torch.zeros(100, 2))
        units.count_pending()
        gone = dead(units).tolist()
        assert gone in ([], [1])
        found += gone == [1]
    assert found > 280
    assert units.longest[0] > 1000  # or the test says nothing


def test_a_last_sigmoid_may_be_sure() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1), nn.Sigmoid())
    with torch.no_grad():
        model[2].weight.mul_(1000)
    assert not train(model, sgd(model, 1e-9), 20, lambda _: model(torch.randn(8, 4)).mean()).alerts


def test_nothing_is_said_too_early() -> None:
    """After one step with a learning rate of zero nothing is broken; after many it is."""
    model = mlp()
    assert check(train(model, sgd(model, 0.0), 1), "it moves").state == "not seen"
    assert check(train(model, sgd(model, 0.0), 10), "it moves").state == "broken"


def test_several_losses_of_which_none_is_the_loss() -> None:
    model = mlp()
    optimizer = sgd(model)
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for _ in range(30):
            optimizer.zero_grad()
            out = model(torch.randn(8, 4))
            loss_a, loss_b = out.square().mean(), out.abs().mean()
            loss_a.backward(retain_graph=True)
            loss_b.backward()
            optimizer.step()
            w.log(loss_a=loss_a, val_loss=1.0)
    assert check(w, "the loss falls").text == "which of loss_a and loss_b is the loss? w.log(loss=…) settles it"
    assert w.verdict.broken is None


def test_optimizers_of_which_nobody_told() -> None:
    """Each that holds a parameter is found as it makes its first step."""
    model = mlp()
    both = [torch.optim.SGD(model[0].parameters(), lr=0.01), torch.optim.SGD([*model[2].parameters(), *model[4].parameters()], lr=0.01)]
    with modlab.watch(model, budget=1.0) as w:
        for _ in range(20):
            for one in both:
                one.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
            for one in both:
                one.step()
    assert not w.alerts
    assert (check(w, "the optimizer owns it").state, check(w, "it moves").state) == ("passed", "passed")
    assert check(w, "the optimizer owns it").text == "6 of 6"


# ---- harm


def trained(rank: int, watched: bool) -> tuple[list[float], list[list[float]], list[int]]:
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    torch.manual_seed(rank + 1)
    w = modlab.watch(model, optimizer, budget=1.0 if rank else 0.02, on_nan="hold") if watched else None
    losses = []
    for _ in range(25):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 4)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if w is not None and rank == 0:  # each has its own log, or none
            w.log(loss=loss)
    if w is not None:
        w.close()
        assert w.record.steps == 25 and not w.record.error and not w.alerts
    assert not any(hooks().values())
    return losses, [one.flatten().tolist() for one in model.state_dict().values()], torch.get_rng_state().tolist()


def test_two_ranks_do_not_disturb_each_other() -> None:
    assert run_ranks(trained, 2, False) == run_ranks(trained, 2, True)


class Numbers(torch.utils.data.Dataset[Tensor]):
    """Each worker runs the model it was forked with: what watches it in the parent does not watch it here."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def __len__(self) -> int:
        return 32

    def __getitem__(self, number: int) -> Tensor:
        seen = self.model(torch.full((1, 4), float(number)))  # in training mode, with gradients
        seen.sum().backward()
        torch.optim.SGD(self.model.parameters(), lr=0.1).step()
        return torch.full((4,), number / 32)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_workers_that_are_forked() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = sgd(model)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a forked process has no threads of the parent's
    try:
        with modlab.watch(model, optimizer, budget=1.0) as w:
            for _ in range(2):
                loader = torch.utils.data.DataLoader(Numbers(model), batch_size=8, num_workers=2, multiprocessing_context="fork")
                for batch in loader:
                    optimizer.zero_grad()
                    model(batch).square().mean().backward()
                    optimizer.step()
    finally:
        torch.set_num_threads(threads)
    assert (w.record.steps, w.record.samples) == (8, 8)
    assert not w.alerts and not w.record.error


def test_a_watch_of_a_worker_thread() -> None:
    """Two loops in two threads, each watched there."""
    found: dict[int, Watch] = {}

    def loop(number: int) -> None:
        model = mlp()
        found[number] = train(model, sgd(model), 30)

    workers = [threading.Thread(target=loop, args=(number,)) for number in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for w in found.values():
        assert (w.record.steps, w.record.error) == (30, "") and not w.alerts
        assert w.verdict.broken is None


class HeldStep:
    """The step of an optimizer in another thread, which waits in a hook of somebody's, `hold`, until it may go on."""

    def __init__(self) -> None:
        self.model = mlp()
        self.failures: list[RuntimeError] = []
        self._arrived, self._free = threading.Event(), threading.Event()
        self._worker = threading.Thread(target=self._step)

    def _step(self) -> None:
        try:
            sgd(self.model).step()
        except RuntimeError as error:
            self.failures.append(error)

    def hold(self, *_: Any) -> None:
        if threading.current_thread() is self._worker:
            self._arrived.set()
            self._free.wait(60)

    def begin(self) -> None:
        self._worker.start()
        assert self._arrived.wait(60)

    def end(self) -> None:
        self._free.set()
        self._worker.join()


@pytest.fixture(params=[optimizers.register_optimizer_step_pre_hook, optimizers.register_optimizer_step_post_hook])
def register(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return request.param  # type: ignore[no-any-return]


def test_a_watch_that_ends_while_another_thread_makes_a_step(register: Callable[..., Any]) -> None:
    """The step is held between two hooks of others; torch does not bear that one of them goes meanwhile."""
    model, later, held, clean = mlp(), mlp(), HeldStep(), hooks()
    first = register(held.hold)
    w = train_on(model)
    last = register(lambda *_: None)
    held.begin()
    w.close()
    again = train_on(later)  # a new one meanwhile takes what is still there
    again.close()
    held.end()
    first.remove()
    last.remove()
    assert not held.failures
    held.model(torch.randn(1, 4))
    assert hooks() == clean
    assert (w.record.steps, again.record.steps) == (3, 3)


def test_a_watch_that_begins_while_another_thread_makes_a_step(register: Callable[..., Any]) -> None:
    """The first of all watches, while the step is held between two hooks of others; nor may one come then."""
    model, held = mlp(), HeldStep()
    handles = [register(held.hold), register(lambda *_: None)]
    clean = hooks()
    held.begin()
    optimizer = sgd(model)
    w = modlab.watch(model, optimizer, budget=1.0)
    held.end()
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    w.close()
    assert not held.failures
    assert w.record.steps == 3
    assert hooks() == clean
    for handle in handles:
        handle.remove()


def test_a_trace_that_begins_and_one_that_ends_while_another_thread_makes_a_step(register: Callable[..., Any]) -> None:
    model, clean = mlp(), hooks()
    for begins_there in (False, True):
        held = HeldStep()
        handles = [register(held.hold), register(lambda *_: None)]
        tracing = modlab.trace(model)
        if begins_there:
            held.begin()
        with tracing as t:
            if not begins_there:
                held.begin()
            else:
                held.end()
            model(torch.randn(8, 4)).sum().backward()
            if begins_there:
                sgd(model).step()
        if not begins_there:
            held.end()
        for handle in handles:
            handle.remove()
        assert not held.failures
        assert ("step" in {event.kind for event in t.record.events}) == begins_there
        model(torch.randn(8, 4))
        assert hooks() == clean


@pytest.mark.parametrize("look", ["watch", "trace"])
def test_looks_that_come_and_go_while_another_thread_trains(look: str) -> None:
    other, model, done = mlp(), mlp(), threading.Event()
    failures: list[RuntimeError] = []
    registers = (optimizers.register_optimizer_step_pre_hook, optimizers.register_optimizer_step_post_hook)
    held = [register(lambda *_: time.sleep(0.0002)) for register in registers for _ in range(3)]

    def loop() -> None:
        optimizer = sgd(other)
        try:
            while not done.is_set():
                other(torch.randn(8, 4)).square().mean().backward()
                optimizer.step()
        except RuntimeError as error:
            failures.append(error)

    worker = threading.Thread(target=loop)
    worker.start()
    for _ in range(100):
        with modlab.watch(model, sgd(model)) if look == "watch" else modlab.trace(model):
            pass
    done.set()
    worker.join()
    for handle in held:
        handle.remove()
    model(torch.randn(1, 4))
    assert not failures


def train_on(model: nn.Module) -> Watch:
    """Some steps under a watch that stays open."""
    optimizer = sgd(model)
    w = modlab.watch(model, optimizer, budget=1.0)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    return w


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, when it compiles first
@pytest.mark.parametrize("what", ["step", "optimizer"])
def test_compiled_parts_of_the_loop(what: str) -> None:
    def losses(watched: bool) -> list[float]:
        torch.compiler.reset()
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

        def forward(x: Tensor) -> Tensor:
            return model(x).square().mean()

        first = torch.compile(forward, backend="eager") if what == "step" else forward
        second = torch.compile(optimizer.step, backend="eager") if what == "optimizer" else optimizer.step
        w = modlab.watch(model, optimizer, budget=1.0) if watched else None
        seen = []
        for _ in range(15):
            optimizer.zero_grad()
            loss = first(torch.randn(8, 4))
            loss.backward()
            second()
            seen.append(loss.item())
        if w is not None:
            w.close()
            assert not w.record.error
            assert not w.alerts
            assert w.verdict.broken is None
        return seen

    assert losses(watched=True) == losses(watched=False)


class Interrupting(threading.Thread):
    """Interrupts the thread that made it, after some seconds; and again, as one presses ■ again, until it has `arrived`.

    For Python itself drops an interrupt that meets it in a finalizer, or in a callback of its garbage collector.
    """

    def __init__(self, moment: float) -> None:
        super().__init__(daemon=True)
        self._moment, self._thread, self._arrived = moment, threading.get_ident(), threading.Event()

    def run(self) -> None:
        wait = self._moment
        while not self._arrived.wait(wait):
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), ctypes.py_object(KeyboardInterrupt))
            wait = 5.0

    def arrived(self) -> None:
        self._arrived.set()
        self.join()


def test_an_interrupt_at_any_moment() -> None:
    """The training sees a KeyboardInterrupt and nothing else, and afterwards nothing is left: no hook, no thread, no tensor."""
    clean = hooks()
    # each moment is drawn by the test's own generator; the interpreter checks between two instructions
    moments = torch.rand(50, generator=torch.Generator().manual_seed(0)).mul(0.03).tolist()
    torch.manual_seed(0)
    for number, moment in enumerate(moments):
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        optimizer = sgd(model)
        outputs: list[weakref.ref[Tensor]] = []
        timer = Interrupting(moment)
        with pytest.raises(KeyboardInterrupt), modlab.watch(model, optimizer, budget=1.0, on_nan="hold" if number % 2 else "report") as w:
            timer.start()
            for _ in range(10**6):
                optimizer.zero_grad()
                out = model(torch.randn(8, 4))
                outputs[-5:] = [*outputs[-4:], weakref.ref(out)]
                loss = out.square().mean()
                loss.backward()
                optimizer.step()
                w.log(loss=loss)
        timer.arrived()
        assert w.record.state == "interrupted", (number, w.record.state, w.record.error)
        assert hooks() == clean, number
        assert torch.is_grad_enabled(), number
        gone = weakref.ref(model)
        out = loss = None
        del model, optimizer
        gc.collect()
        assert gone() is None and not [one for one in outputs if one() is not None], number


# Python drops what meets it in a callback of its collector, of which hypothesis has one
@pytest.mark.filterwarnings("ignore:Exception ignored in. <function gc_cumulative_time:pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_without_a_block() -> None:
    """Watching began at a call; the cell is interrupted, trains on, and closes the watch: autograd was on all the time."""
    clean = hooks()
    moments = torch.rand(20, generator=torch.Generator().manual_seed(1)).mul(0.02).tolist()
    for number, moment in enumerate(moments):
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        optimizer = sgd(model)
        w = modlab.watch(model, optimizer, budget=1.0 if number % 4 else 0.02, on_nan="hold" if number % 2 else "report")

        def steps(count: int, model: nn.Module = model, optimizer: torch.optim.Optimizer = optimizer) -> None:
            for _ in range(count):
                optimizer.zero_grad()
                model(torch.randn(8, 4)).square().mean().backward()  # raises where autograd is off
                optimizer.step()

        timer = Interrupting(moment)
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            steps(10**6)
        timer.arrived()
        assert torch.is_grad_enabled(), number
        made = w.record.steps
        steps(30)
        assert not w.record.error and w.record.steps == made + 30, number
        assert w.record.state == "running" and not w.record.alerts
        w.close()
        assert hooks() == clean, number


def resident() -> int:
    """Bytes of this process that are in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


@pytest.mark.skipif("MODLAB_SLOW" not in os.environ, reason="takes minutes: MODLAB_SLOW=1")
def test_memory_stays_as_it_is_over_many_steps() -> None:
    flat(20_000, 200_000)


def test_memory_stays_as_it_is() -> None:
    flat(2_000, 8_000, traced=True)


def flat(first: int, last: int, *, traced: bool = False) -> None:
    model = nn.Linear(4, 1)
    optimizer = sgd(model)
    if traced:
        tracemalloc.start()
    used = {}
    try:
        with modlab.watch(model, optimizer) as w:
            for step in range(last + 1):
                optimizer.zero_grad()
                loss = model(torch.ones(4)).abs().sum()
                loss.backward()
                optimizer.step()
                w.log(loss=loss)
                if step in (first, last):
                    _ = w.record
                    gc.collect()
                    used[step] = tracemalloc.get_traced_memory()[0] if traced else resident()
    finally:
        tracemalloc.stop()
    assert used[last] - used[first] < 2**20


def test_a_process_that_ends_with_a_watch_ends_well_and_prints_the_verdict() -> None:
    """A model that goes with the interpreter ended its watch when torch makes no tensors any more, which ended the process."""
    code = """
import torch, modlab
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
w = modlab.watch(net, optimizer)
for _ in range(3):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(torch.randn(16, 8)), torch.randint(0, 3, (16,)))
    loss.backward()
    optimizer.step()
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "data arrives" in ended.stderr and "3 steps" in ended.stderr
