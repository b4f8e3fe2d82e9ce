"""What a watch keeps for a fork: nothing that the loop did is lost where a state is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import modlab
from modlab.forking import keeper as keeping
from modlab.forking.futures import Futures, KeptGround
from modlab.results.fork import run
from tests.forking.test_forks import STEPS, small, watched
from tests.watching.test_identity import Run


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """States are kept every five steps."""
    monkeypatch.setattr(keeping, "GAP", 5)
    yield


# ---- settings that are changed just before a state is kept


def rate_of_dropout(at: int) -> Run:
    """Changed between the last call and the step, and put back after the next step."""
    model = small(nn.Dropout(0.5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(number: int) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(torch.randn(8, 4)).square().mean()
        loss.backward()
        model[2].p = 0.1 if number == at else 0.5  # type: ignore[assignment, union-attr]
        optimizer.step()
        return loss

    return model, [optimizer], step


def modes(at: int) -> Run:
    """The model is evaluated between the backward pass and the step."""
    model = small(nn.Dropout(0.5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(number: int) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(torch.randn(8, 4)).square().mean()
        loss.backward()
        if number == at:
            model.eval()
            model(torch.randn(8, 4)).mean().item()
            model.train()
        optimizer.step()
        return loss

    return model, [optimizer], step


def rate_of_another_optimizer(at: int) -> Run:
    """Its step is over when its rate is changed, and the step that is counted is not."""
    model = small()
    counted, other = (torch.optim.SGD(model[place].parameters(), lr=0.05) for place in (0, 2))  # type: ignore[union-attr]

    def step(number: int) -> Tensor:
        counted.zero_grad(), other.zero_grad()
        loss: Tensor = model(torch.randn(8, 4)).square().mean()
        loss.backward()
        other.step()
        if number == at:
            other.param_groups[0]["lr"] = 0.3
        counted.step()
        return loss

    return model, [counted, other], step


@pytest.mark.parametrize("make", [rate_of_dropout, modes, rate_of_another_optimizer])
@pytest.mark.parametrize("at", [3, 4, 5])
def test_what_is_set_before_a_step_is_on_the_tape(make: Callable[[int], Run], at: int) -> None:
    w, *_ = watched(lambda: make(at))
    assert 5 in w.record.kept.states
    for start in w.record.kept.states[:-1]:
        fork = w.fork(start)
        assert fork.exact and len(fork.losses) == STEPS - start


# ---- modules and optimizers that come and go


class Around(nn.Module):
    """A wrapper of the loop's."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return 2 * self.inner(x)


Between = Callable[[nn.Sequential, torch.optim.Optimizer, Tensor], Any]


def looked_at(model: nn.Sequential, _: Any, x: Tensor) -> None:
    with torch.no_grad():
        model[:2](x)


def diagnosed(model: nn.Sequential, optimizer: Any, x: Tensor) -> None:
    modlab.diagnose(model, optimizer, batch=(x, x[:, :2]), loss=nn.MSELoss())


KEPT_ALONG: dict[str, Between] = {
    "a slice": looked_at,
    "parts in a new module": lambda model, _, x: nn.Sequential(*[*model.children()][:-1], nn.ReLU())(x),
    "a wrapper": lambda model, _, x: Around(model)(x),
    "a diagnosis": diagnosed,
    "a comparison": lambda model, _, x: modlab.compare(model)(x),
}


def with_others(between: Between, call: Callable[[nn.Sequential, Tensor], Tensor], at: Callable[[int], bool]) -> Run:
    model = small(nn.Dropout(0.2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(number: int) -> Tensor:
        x = torch.randn(8, 4)
        optimizer.zero_grad()
        loss = call(model, x).square().mean()
        loss.backward()
        optimizer.step()
        if at(number):
            between(model, optimizer, x)
        return loss

    return model, [optimizer], step


@pytest.mark.parametrize("name", KEPT_ALONG)
def test_a_module_made_of_the_model_s_own_parts_ends_nothing(name: str) -> None:
    w, *_ = watched(lambda: with_others(KEPT_ALONG[name], lambda model, x: model(x), lambda number: number in (7, 8)))
    assert w.record.kept.states == (0, 5, 10, 15, 20) and not w.record.kept.trouble
    assert all(fork.exact and len(fork.losses) == STEPS - start for start in (0, 5, 10, 15, 20) for fork in [w.fork(start)])


CALLS: dict[str, Callable[[nn.Sequential, Tensor], Tensor]] = {
    "in two parts": lambda model, x: model[-1](model[:-1](x)),
    "in a wrapper": lambda model, x: Around(model)(x),
    "with a new dropout": lambda model, x: nn.Sequential(model[:2], nn.Dropout(0.3), model[-1])(x),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_model_is_called_by_a_new_module_in_each_step(name: str) -> None:
    def make(rate: float = 0.1) -> Run:
        model, (optimizer,), step = with_others(lambda *_: None, CALLS[name], lambda _: False)

        def changed(number: int) -> Tensor:
            if number == 7:
                optimizer.param_groups[0]["lr"] = rate
            return step(number)

        return model, [optimizer], changed

    w, *_ = watched(make)
    *_, losses = watched(lambda: make(0.4), keep="")
    assert w.fork(0).exact and w.fork(0).record.steps == STEPS
    assert w.fork(7, {"lr": 0.4}).losses == losses[5:]


def probed(model: nn.Sequential, _: Any, x: Tensor) -> None:
    """A head is trained on what the model gives, and dropped."""
    head = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        head(model[:2](x).detach()).square().mean().backward()
        optimizer.step()


def test_a_probe_that_is_dropped_ends_the_states_before_it_alone() -> None:
    w, *_ = watched(lambda: with_others(probed, lambda model, x: model(x), lambda number: number == 7), steps=40)
    assert w.record.kept.states[0] == 0 and w.record.kept.states[-1] >= 30
    forks = [w.fork(start) for start in w.record.kept.states[:-1]]
    assert all(one.exact for one in forks)
    assert [one.record.ended for one in forks] == ["joined" if one.record.began < 8 else "tape" for one in forks]
    assert "a module or an optimizer came that trains along" in str(w.fork(5))


def test_an_optimizer_in_the_place_of_another_one() -> None:
    def make(rate: float = 0.01) -> Run:
        model = small(nn.Dropout(0.2))
        held = [torch.optim.SGD(model.parameters(), lr=0.1)]

        def step(number: int) -> Tensor:
            if number == 9:
                held[:] = [torch.optim.Adam(model.parameters(), lr=0.01)]  # type: ignore[list-item]
            if number == 17:
                held[0].param_groups[0]["lr"] = rate
            held[0].zero_grad()
            loss: Tensor = model(torch.randn(8, 4)).square().mean()
            loss.backward()
            held[0].step()
            return loss

        return model, held[:0], step

    w, *_ = watched(make)
    *_, losses = watched(lambda: make(0.05), keep="")
    assert not w.record.kept.trouble and max(w.record.kept.states) >= 15
    assert all(w.fork(start).exact for start in w.record.kept.states[:-1])
    fork = w.fork(17, {"lr": 0.05})
    assert fork.losses == losses[fork.record.began :] and fork.original != fork.losses


def test_where_each_step_brings_somebody_new_that_is_said() -> None:
    def make() -> Run:
        model = small()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(_: int) -> Tensor:
            optimizer.zero_grad()
            loss: Tensor = nn.Linear(2, 1)(model(torch.randn(8, 4))).square().mean()  # a new head each time
            loss.backward()
            optimizer.step()
            return loss

        return model, [optimizer], step

    w, *_ = watched(make)
    with pytest.raises(modlab.ModlabError, match="each of its steps brought a module or an optimizer that trains along"):
        w.fork()


# ---- several optimizers


def two_at_once(model: nn.Sequential, optimizers: list[Any], _: Any) -> Tensor:
    """One backward pass for both."""
    for one in optimizers:
        one.zero_grad()
    x = torch.randn(8, 4)
    loss: Tensor = (model(x) - x[:, :2]).square().mean()
    loss.backward()
    for one in optimizers:
        one.step()
    return loss


def two_by_turns(model: nn.Sequential, optimizers: list[Any], _: Any) -> Tensor:
    """One behind the other, each with a pass of its own."""
    losses = []
    for one in optimizers:
        x = torch.randn(8, 4)
        one.zero_grad()
        losses.append((model(x) - x[:, :2]).square().mean())
        losses[-1].backward()
        one.step()
    return losses[0 if optimizers[0].counted else -1]  # what a fork tells of


def the_second_one_rarely(model: nn.Sequential, optimizers: list[Any], number: int) -> Tensor:
    return two_by_turns(model, optimizers[: 1 + (number % 3 == 1)], number)


Several = Callable[[nn.Sequential, list[Any], int], Tensor]


def several(iteration: Several, counted: int, at: int = -1, changed: int = 0) -> Run:
    model = small(nn.Dropout(0.1))
    optimizers: list[Any] = [torch.optim.SGD(model[place].parameters(), lr=0.05, momentum=0.5) for place in (0, 3)]
    optimizers[0].counted = not counted

    def step(number: int) -> Tensor:
        if number == at:
            optimizers[changed].param_groups[0]["lr"] = 0.5
            with torch.no_grad():
                model[3].weight.mul_(0.5)  # type: ignore[operator, union-attr]
        return iteration(model, optimizers, number)

    return model, optimizers[counted:] + optimizers[:counted], step


def with_half(changed: int) -> Callable[[nn.Sequential, list[Any]], None]:
    def change(model: nn.Sequential, optimizer: list[Any]) -> None:
        optimizer[changed].param_groups[0]["lr"] = 0.5
        with torch.no_grad():
            model[3].weight.mul_(0.5)  # type: ignore[operator, union-attr]

    return change


ITERATIONS = [(two_at_once, 0), (two_at_once, 1), (two_by_turns, 0), (two_by_turns, 1), (the_second_one_rarely, 0)]
"""Each with the one whose steps are counted."""


@pytest.mark.parametrize("changed", [0, 1])
@pytest.mark.parametrize("at", [1, 7, 10, 13])
@pytest.mark.parametrize(("iteration", "counted"), ITERATIONS)
def test_a_change_comes_between_two_iterations(iteration: Several, at: int, changed: int, counted: int) -> None:
    w, *_ = watched(lambda: several(iteration, counted))
    *_, losses = watched(lambda: several(iteration, counted, at, changed), keep="")
    fork = w.fork(at, with_half(changed ^ counted))
    assert fork.exact and len(fork.losses) == STEPS - fork.record.began
    assert fork.losses == losses[fork.record.began :]


@pytest.mark.parametrize(("iteration", "counted"), ITERATIONS)
def test_the_twin_ends_where_the_original_does(iteration: Several, counted: int) -> None:
    w, model, optimizers, _ = watched(lambda: several(iteration, counted), steps=23)
    for start in w.record.kept.states[:-1]:
        futures = run(partial(Futures, KeptGround(w._keeper, start), start, None, None))
        things = futures.twin.things
        assert str(things.model.state_dict()) == str(model.state_dict())
        assert [str(one.state_dict()) for one in things.optimizers] == [str(one.state_dict()) for one in optimizers]


# ---- memory


class Owner:
    """Copies itself, without the memo."""

    def __init__(self, size: int) -> None:
        self.data = {"x": [torch.zeros(size)]}

    def __deepcopy__(self, memo: Any) -> Owner:
        return Owner(self.data["x"][0].numel())


class Shared(Owner):
    """A data set that the copies share."""

    def __deepcopy__(self, memo: Any) -> Shared:
        return self


BIG = 100_000
HELD: dict[str, tuple[Callable[[], Any], int]] = {
    "nothing": (lambda: None, 0),
    "a list of tensors": (lambda: [torch.zeros(BIG)], 4 * BIG),
    "a tensor and views of it": (lambda: [*torch.zeros(10, BIG // 10).unbind()], 4 * BIG),
    "an array in a dictionary": (lambda: {"x": ({"y": np.zeros(BIG, np.float32)},)}, 4 * BIG),
    "the same one twice": (lambda: [np.zeros(BIG, np.float32)] * 2, 4 * BIG),
    "a view of more": (lambda: torch.zeros(BIG)[:10], 4 * BIG),
    "an object": (lambda: SimpleNamespace(x=SimpleNamespace(y=torch.zeros(BIG))), 4 * BIG),
    "bytes": (lambda: [bytearray(4 * BIG)], 4 * BIG),
    "a copy of its own": (lambda: Owner(BIG), 4 * BIG),
    "a shared data set": (lambda: Shared(BIG), 0),
}


def holding(thing: Any, where: str) -> Run:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    (model[0] if where == "model" else optimizer).thing = thing

    def step(_: int) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(torch.randn(8, 4)).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, [optimizer], step


def sizes(make: Callable[[], Run]) -> list[int]:
    w, *_ = watched(make)
    return [one.bytes for one in w._keeper.states.values()]


@pytest.mark.parametrize("where", ["model", "optimizer"])
@pytest.mark.parametrize("name", HELD)
def test_all_that_a_state_holds_is_counted(name: str, where: str) -> None:
    make, size = HELD[name]
    without = sizes(lambda: holding(None, where))
    assert all(abs(one - other - size) <= 0.01 * size for one, other in zip(sizes(lambda: holding(make(), where)), without, strict=True))


def test_what_a_model_collects_bounds_the_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "STATES_ROOM", 5_000_000)

    def make() -> Run:
        model, optimizers, step = holding(replay := [], "model")
        return model, optimizers, lambda number: (replay.append(torch.zeros(10_000)), step(number))[1]

    w, *_ = watched(make, steps=60)
    kept = [one.bytes for one in w._keeper.states.values()]
    assert 2 < len(kept) < keeping.STATES and sum(kept) <= 5_000_000 and sum(kept) <= w.record.kept.bytes
    assert kept[-1] > 40_000 * w.record.kept.states[-1]


def test_sparse_gradients_count_what_they_hold() -> None:
    def make() -> Run:
        model = nn.Embedding(100_000, 4, sparse=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(_: int) -> Tensor:
            optimizer.zero_grad()
            loss: Tensor = model(torch.randint(9, (4,))).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return model, [optimizer], step

    assert all(one < 1.1 * 1_600_000 for one in sizes(make))


class Remembering(nn.Module):
    """It goes on from what it has given last."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.RNN(4, 8, batch_first=True), nn.Linear(8, 1)
        self.hidden: Any = None
        self.kind, self.doubled, self.shift = "plain", False, 0

    def forward(self, x: Tensor) -> Tensor:
        out, hidden = self.cell(x, self.hidden)
        self.hidden = hidden.detach()
        found = self.out(out.tanh() if self.kind == "tanh" else out) + self.shift
        return found * 2 if self.doubled else found


def zeroed(model: Remembering, number: int) -> None:
    if number % 4 == 0:
        model.hidden = torch.zeros(1, 3, 8)


SET: dict[str, tuple[Callable[[Any, int], Any], bool]] = {
    "None": (lambda model, number: setattr(model, "hidden", model.hidden if number % 4 else None), True),
    "a text": (lambda model, number: setattr(model, "kind", "tanh" if number % 3 else "plain"), True),
    "a flag": (lambda model, number: setattr(model, "doubled", number % 3 == 0), True),
    "a whole number": (lambda model, number: setattr(model, "shift", number), True),
    "a tensor": (zeroed, False),
}


@pytest.mark.parametrize("name", SET)
def test_what_the_loop_sets_on_a_model_is_repeated_or_named(name: str) -> None:
    put, is_repeated = SET[name]

    def make() -> Run:
        model = Remembering()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

        def step(number: int) -> Tensor:
            put(model, number)
            optimizer.zero_grad()
            loss: Tensor = model(torch.randn(3, 5, 4)).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return model, [optimizer], step

    w, *_ = watched(make)
    fork = w.fork(5)
    assert fork.exact is is_repeated and fork.record.steps == STEPS - 5
    assert ("perhaps hidden, which the loop sets on the model" in str(fork)) is not is_repeated
