"""The loss finds itself: what ``backward()`` is called on, in the loops that people write; with learning rates and clipping."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

import modlab
from modlab.records.loss import losses, the_loss
from modlab.records.watch import ScalarRecord
from modlab.results.watch import Watch
from tests.sharded import fake_ranks

ENGINE = torch.autograd._engine_run_backward
X, Y = torch.randn(32, 6, generator=torch.Generator().manual_seed(0)), torch.arange(32) % 3
STEPS = 12
Seen = dict[str, list[float]]


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def curves(w: Watch, kind: str = "loss") -> dict[str, ScalarRecord]:
    return {one.name: one for one in w.record.scalars if one.kind == kind}


def plain(m: nn.Module, seen: Seen) -> None:
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    for _ in range(STEPS):
        o.zero_grad()
        loss = F.cross_entropy(m(X), Y)
        loss.backward()
        o.step()
        seen.setdefault("loss", []).append(loss.item())


def unnamed(m: nn.Module, seen: Seen) -> None:
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    for _ in range(STEPS):
        o.zero_grad()
        seen.setdefault("loss", []).append(F.cross_entropy(m(X), Y).item())
        F.cross_entropy(m(X), Y).backward()
        o.step()


def by_autograd(m: nn.Module, seen: Seen) -> None:
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    for _ in range(STEPS):
        o.zero_grad()
        loss = F.cross_entropy(m(X), Y)
        torch.autograd.backward([loss])
        o.step()
        seen.setdefault("loss", []).append(loss.item())


def divided(m: nn.Module, seen: Seen) -> None:
    """Four passes a step, each loss divided by four: their sum is the mean."""
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    for _ in range(STEPS):
        o.zero_grad()
        parts = []
        for x, y in zip(X.split(8), Y.split(8), strict=True):
            loss = F.cross_entropy(m(x), y)
            (loss / 4).backward()
            parts.append(loss.item() / 4)
        o.step()
        seen.setdefault("loss", []).append(sum(parts))


def scaled(m: nn.Module, seen: Seen) -> None:
    o, scaler = torch.optim.SGD(m.parameters(), lr=0.1), torch.amp.GradScaler("cpu")
    for _ in range(STEPS):
        o.zero_grad()
        loss = F.cross_entropy(m(X), Y)
        scaler.scale(loss).backward()
        scaler.step(o)
        scaler.update()
        seen.setdefault("loss", []).append(loss.item())


def penalty(m: nn.Module, seen: Seen) -> None:
    """`torch.autograd.grad` gives a penalty its gradient: that is no loss."""
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    for _ in range(STEPS):
        o.zero_grad()
        x = X.clone().requires_grad_()
        (slope,) = torch.autograd.grad(m(x).sum(), x, create_graph=True)
        loss = F.cross_entropy(m(X), Y) + 0.1 * slope.square().sum(1).mean()
        loss.backward()
        o.step()
        seen.setdefault("loss", []).append(loss.item())


def closure(m: nn.Module, seen: Seen) -> None:
    """Several evaluations a step: the first one is of the weights at its beginning."""
    o = torch.optim.LBFGS(m.parameters(), lr=0.1, max_iter=4)
    for _ in range(STEPS):
        first: list[float] = []

        def evaluate(first: list[float] = first) -> Tensor:
            o.zero_grad()
            loss = F.cross_entropy(m(X), Y)
            loss.backward()
            first.append(loss.item())
            return loss

        o.step(evaluate)  # type: ignore[no-untyped-call]
        seen.setdefault("loss", []).append(first[0])


def by_hand(m: nn.Module, seen: Seen) -> None:
    for _ in range(STEPS):
        loss = F.cross_entropy(m(X), Y)
        loss.backward()
        with torch.no_grad():
            for p in m.parameters():
                p -= 0.1 * p.grad  # type: ignore[operator]
                p.grad = None
        seen.setdefault("loss", []).append(loss.item())


def in_backward(m: nn.Module, seen: Seen) -> None:
    """Each parameter has its own optimizer, which steps as soon as its gradient is there."""
    own = {p: torch.optim.SGD([p], lr=0.1) for p in m.parameters()}

    def step(p: Tensor) -> None:
        own[p].step()  # type: ignore[index]
        own[p].zero_grad()  # type: ignore[index]

    for p in m.parameters():
        p.register_post_accumulate_grad_hook(step)
    for _ in range(STEPS):
        loss = F.cross_entropy(m(X), Y)
        loss.backward()
        seen.setdefault("loss", []).append(loss.item())


def two_tasks(m: nn.Module, seen: Seen) -> None:
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    for _ in range(STEPS):
        o.zero_grad()
        out = m(X)
        loss_class, loss_size = F.cross_entropy(out, Y), out.square().mean()
        loss_class.backward(retain_graph=True)
        loss_size.backward()
        o.step()
        seen.setdefault("loss_class", []).append(loss_class.item())
        seen.setdefault("loss_size", []).append(loss_size.item())


def handed_on(m: nn.Module, seen: Seen) -> None:
    """One function calls backward() for both."""
    o = torch.optim.SGD(m.parameters(), lr=0.1)

    class Engine:
        def backward(self, loss: Tensor, **options: Any) -> None:
            loss = loss / 1
            loss.backward(**options)

    engine = Engine()
    for _ in range(STEPS):
        o.zero_grad()
        out = m(X)
        loss_class, loss_size = F.cross_entropy(out, Y), out.square().mean()
        engine.backward(loss_class, retain_graph=True)
        engine.backward(loss_size)
        o.step()
        seen.setdefault("loss_class", []).append(loss_class.item())
        seen.setdefault("loss_size", []).append(loss_size.item())


def others_too(m: nn.Module, seen: Seen) -> None:
    """Another model is trained in turns, by the same line."""
    other = net()
    optimizers = {one: torch.optim.SGD(one.parameters(), lr=0.1) for one in (m, other)}
    for _ in range(STEPS):
        for one in (m, other):
            optimizers[one].zero_grad()
            loss = F.cross_entropy(one(X), Y) + (7.0 if one is other else 0.0)
            loss.backward()
            optimizers[one].step()
            if one is m:
                seen.setdefault("loss", []).append(loss.item())


def in_a_row(m: nn.Module, seen: Seen) -> None:
    """A second loop goes on where the first one ends: one curve."""
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    for _ in range(STEPS // 2):
        o.zero_grad()
        loss = F.cross_entropy(m(X), Y)
        loss.backward()
        o.step()
        seen.setdefault("loss", []).append(loss.item())
    for _ in range(STEPS // 2):
        o.zero_grad()
        loss = F.cross_entropy(m(X), Y)
        loss.backward()
        o.step()
        seen["loss"].append(loss.item())


LOOPS = [
    plain,
    unnamed,
    by_autograd,
    divided,
    scaled,
    penalty,
    closure,
    by_hand,
    in_backward,
    two_tasks,
    handed_on,
    others_too,
    in_a_row,
]


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
def test_the_loss_is_what_backward_is_called_on(loop: Callable[[nn.Module, Seen], None]) -> None:
    seen: Seen = {}
    model = net()
    with modlab.watch(model, budget=1.0) as w:
        loop(model, seen)
    assert not w.record.error
    found = curves(w)
    assert {name: pytest.approx(one.mean.tolist()) for name, one in found.items()} == seen
    assert {one.name for one in losses(w.record)} == set(seen)
    unwatched = net()
    loop(unwatched, {})
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), unwatched.parameters(), strict=True))
    assert torch.autograd._engine_run_backward is ENGINE


def test_of_an_undivided_loss_the_sum_is_shown_and_said() -> None:
    model = net()
    o = torch.optim.SGD(model.parameters(), lr=0.01)
    with modlab.watch(model, o, budget=1.0) as w:
        for _ in range(STEPS):
            o.zero_grad()
            for x, y in zip(X.split(8), Y.split(8), strict=True):
                F.cross_entropy(model(x), y).backward()
            o.step()
    (found,) = curves(w).values()
    assert found.count == STEPS and found.passes == 4
    assert 3 < found.mean[0] < 6  # a guess among 3 has 1.1
    assert "uniform" not in w.verdict.checks[1].text


def test_losses_that_are_made_where_they_are_handed_on_are_two_curves() -> None:
    model = net()
    seen: tuple[list[float], list[float]] = ([], [])
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (model[0], model[2])]

    def update(optimizer: torch.optim.Optimizer, loss: Tensor, kept: list[float]) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        kept.append(loss.item())

    with modlab.watch(model, budget=1.0) as w:
        for _ in range(STEPS):
            update(optimizers[0], F.cross_entropy(model(X), Y), seen[0])
            update(optimizers[1], model(X).square().mean(), seen[1])
    here = update.__code__.co_firstlineno
    assert {name: pytest.approx(one.mean.tolist()) for name, one in curves(w).items()} == {
        f"loss (line {here + 8})": seen[0],
        f"loss (line {here + 9})": seen[1],
    }


@pytest.mark.parametrize(
    ("log", "names"),
    [
        (lambda w, loss: w.log(loss=loss), {"loss"}),
        (lambda w, loss: w.log(train=loss.item()), {"train"}),
        (lambda w, loss: w.log(loss=2 * loss), {"loss", "loss (backward)"}),
        (lambda w, loss: w.log(accuracy=0.5), {"loss", "accuracy"}),
    ],
    ids=["same", "same by another name", "different", "something else"],
)
def test_a_logged_curve_that_is_the_loss_is_shown_once(log: Callable[[Watch, Tensor], None], names: set[str]) -> None:
    model = net()
    o = torch.optim.SGD(model.parameters(), lr=0.1)
    with modlab.watch(model, o, budget=1.0) as w:
        for _ in range(STEPS):
            o.zero_grad()
            loss = F.cross_entropy(model(X), Y)
            loss.backward()
            o.step()
            log(w, loss)
    assert {one.name for one in w.record.scalars if one.kind in ("loss", "logged")} == names
    found = the_loss(w.record)
    assert found is not None and found.kind == "loss" and found.mean[0] == pytest.approx(F.cross_entropy(net()(X), Y).item())


def test_rates_and_clipping_come_along() -> None:
    model = net()
    o = torch.optim.SGD([{"params": model[0].parameters(), "lr": 0.1}, {"params": model[2].parameters(), "lr": 0.5}])
    schedule = torch.optim.lr_scheduler.StepLR(o, 4, 0.1)
    norms, rates = [], []
    with modlab.watch(model, o, budget=1.0) as w:
        for _ in range(STEPS):
            o.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.3).item())
            rates.append([group["lr"] for group in o.param_groups])
            o.step()
            schedule.step()
    found = curves(w, "rate")
    assert {name: pytest.approx(one.mean.tolist()) for name, one in found.items()} == {
        "learning rate, group 0": [rate for rate, _ in rates],
        "learning rate, group 1": [rate for _, rate in rates],
    }
    (norm,) = curves(w, "norm").values()
    assert norm.mean.tolist() == pytest.approx(norms) and norm.bound == 0.3
    assert norm.beyond == sum(one > 0.3 for one in norms) > 0


@pytest.mark.parametrize(
    ("bounds", "said"),
    [((0.3,), True), ((10.0, 0.3), False), ((0.3, 10.0), False)],
    ids=["one", "then a smaller one", "then a greater one"],
)
def test_a_bound_is_said_of_finite_norms_that_all_had_it(bounds: tuple[float, ...], said: bool) -> None:
    model = net()
    o = torch.optim.SGD(model.parameters(), lr=0.1)
    norms = []
    with modlab.watch(model, o, budget=1.0) as w:
        for step in range(STEPS):
            o.zero_grad()
            F.cross_entropy(model(X), Y).backward()
            if step % 4 == 1:
                model[0].weight.grad.mul_(torch.inf)  # type: ignore[union-attr, operator]
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), bounds[step * len(bounds) // STEPS]).item())
            if step % 4 != 1:
                o.step()
    clipped = sum(0.3 < norm < float("inf") for norm in norms)
    assert 0 < clipped < sum(norm > 0.3 for norm in norms)
    assert (f"clipped to 0.3 in {clipped} of {STEPS}" in str(w)) is said and ("clipped to" in str(w)) is said


@pytest.mark.parametrize("main_first", [None, True, False], ids=["alone", "before another", "after another"])
def test_a_rate_belongs_to_the_step_that_was_made_at_it(main_first: bool | None) -> None:
    model = net()
    o, other = torch.optim.SGD(model[0].parameters(), lr=0.1), torch.optim.SGD(model[2].parameters(), lr=0.3)
    optimizers = [o] if main_first is None else [o, other]
    with modlab.watch(model, optimizers, budget=1.0) as w:
        for step in range(STEPS):
            if step == 5:
                o.param_groups[0]["lr"], other.param_groups[0]["lr"] = 0.01, 0.03
            for one in optimizers if main_first else optimizers[::-1]:
                one.zero_grad()
                F.cross_entropy(model(X), Y).backward()
                one.step()
    found = curves(w, "rate")
    assert len(found) == len(optimizers)
    for rate in found.values():
        assert rate.first.tolist() == [*range(STEPS)]
        assert rate.first[rate.mean < rate.mean[0]].tolist() == [*range(5, STEPS)]


def test_between_samples_it_is_taken_in_too() -> None:
    """Steps are left out where they are quick, and at most so many in a row."""
    model = net()
    o = torch.optim.SGD(model.parameters(), lr=0.1)
    with modlab.watch(model, o) as w:
        for _ in range(200):
            o.zero_grad()
            loss = F.cross_entropy(model(X), Y)
            loss.backward()
            o.step()
    (found,) = curves(w).values()
    assert found.count >= 20 and found.final == pytest.approx(loss.item(), rel=0.05)


def test_what_others_put_there_stays() -> None:
    model, called = net(), []

    def theirs(*args: Any, **kwargs: Any) -> Any:
        called.append(1)
        return ours(*args, **kwargs)

    w = modlab.watch(model, budget=1.0)
    ours = torch.autograd._engine_run_backward
    try:
        torch.autograd._engine_run_backward = theirs
        w.close()
        assert torch.autograd._engine_run_backward is theirs
        with modlab.watch(model, budget=1.0) as w:
            plain(model, {})
        assert torch.autograd._engine_run_backward is theirs and len(called) == STEPS
        assert curves(w)["loss"].count == STEPS
    finally:
        torch.autograd._engine_run_backward = ENGINE


# ---- losses that lie over ranks


@pytest.mark.parametrize("logs", [False, True], ids=["found", "logged"])
def test_of_a_loss_that_is_here_in_part_no_number_is_told(logs: bool, capfd: pytest.CaptureFixture[str]) -> None:
    """Each rank has a summand: it is no loss, and is told as none. What is whole on each rank is a number as any other."""
    plan = {"0": ColwiseParallel(use_local_output=False), "2": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)}
    with fake_ranks(2):
        mesh = init_device_mesh("cpu", (2,))
        m = parallelize_module(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)), mesh, plan)
        o = torch.optim.SGD(m.parameters(), lr=0.1)
        with modlab.watch(m, o, budget=1.0) as w:
            for _ in range(STEPS):
                o.zero_grad()
                loss = m(X).square().sum()
                assert loss.placements[0].is_partial()
                loss.backward()
                o.step()
                if logs:
                    w.log(loss=loss, whole=DTensor.from_local(torch.tensor(2.0), mesh, [Replicate()]))
    assert not curves(w) and the_loss(w.record) is None and w.record.steps == STEPS
    said = "w.log(loss=…) got a DTensor of which this rank's part of a sum is here, but needs loss.full_tensor(), on all ranks;"
    assert any(said in one for one in w.record.remarks) == logs and capfd.readouterr().err.count(said) == logs  # once, and not each step
    assert [one.facts["names"] for one in w.findings if one.kind == "loss not seen"] == [("whole",) if logs else ()]
    assert {name: (one.count, one.final) for name, one in curves(w, "logged").items()} == ({"whole": (STEPS, 2.0)} if logs else {})


@pytest.mark.parametrize("passes", [2, 3, 8])
def test_a_value_is_the_sum_of_all_passes_of_its_step_in_each_step_that_is_taken_in(passes: int) -> None:
    m, values = net(), list[float]()
    o = torch.optim.SGD(m.parameters(), lr=0.001)
    with modlab.watch(m, o) as w:
        for _ in range(100):
            o.zero_grad()
            for _ in range(passes):
                x = torch.randn(4, 6)
                loss = m(x).square().mean()
                loss.backward()
                values.append(loss.item())
            o.step()
    (curve,) = curves(w).values()
    assert curve.passes == passes and curve.count > 12
    for step, value in zip(curve.first.tolist(), curve.mean.tolist(), strict=True):
        assert value == pytest.approx(sum(values[passes * step : passes * (step + 1)]), rel=1e-5)
