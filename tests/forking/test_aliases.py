"""What a loop writes by one name of a memory (``.data``, ``.detach()``, a slice) a fork reads by all others, as the loop does."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import modlab
from modlab.forking import keeper as keeping
from tests.forking.test_forks import small, trained, watched
from tests.watching.test_identity import Run

LOOPS: dict[str, Callable[[], Run]] = {}
STEPS = 24


def loop(make: Callable[[], Run]) -> Callable[[], Run]:
    LOOPS[make.__name__] = make
    return make


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """States are kept every five steps."""
    monkeypatch.setattr(keeping, "GAP", 5)
    yield


def taught(follow: Callable[[nn.Module, nn.Module], Callable[[int], Any]], *, frozen: bool = True, more: Any = ()) -> Run:
    """A model and a teacher of its kind; what `follow` gives is called behind each step."""
    model = small(*more)
    teacher = copy.deepcopy(model).requires_grad_(not frozen)

    def loss() -> Tensor:
        x = torch.randn(8, 4)
        with torch.no_grad():
            target = 0.9 * teacher(x) + 0.1
        return (model(x) - target - x.sum(1, keepdim=True)).square().mean()

    return trained(model, loss, torch.optim.SGD(model.parameters(), lr=0.02), follow(teacher, model))


def pairs(teacher: nn.Module, model: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(teacher.parameters(), model.parameters(), strict=True)


@loop
def by_identity() -> Run:
    def follow(teacher: nn.Module, model: nn.Module) -> Callable[[int], Any]:
        return lambda _: [mine.lerp_(theirs.detach(), 0.5) for mine, theirs in pairs(teacher, model)]

    return taught(follow)


@loop
def by_data() -> Run:
    def follow(teacher: nn.Module, model: nn.Module) -> Callable[[int], Any]:
        return lambda _: [mine.data.mul_(0.5).add_(theirs.data, alpha=0.5) for mine, theirs in pairs(teacher, model)]

    return taught(follow)


@loop
def by_data_set_anew() -> Run:
    def follow(teacher: nn.Module, model: nn.Module) -> Callable[[int], Any]:
        def between(_: int) -> None:
            for mine, theirs in pairs(teacher, model):
                mine.data = 0.5 * mine.data + 0.5 * theirs.data
                mine.data.mul_(0.99)

        return between

    return taught(follow)


@loop
def a_target_that_is_not_frozen() -> Run:
    def follow(teacher: nn.Module, model: nn.Module) -> Callable[[int], Any]:
        return lambda _: [mine.data.copy_(0.3 * theirs.data + 0.7 * mine.data) for mine, theirs in pairs(teacher, model)]

    return taught(follow, frozen=False)


@loop
def by_the_values_of_a_state_dict() -> Run:
    def follow(teacher: nn.Module, model: nn.Module) -> Callable[[int], Any]:
        def between(_: int) -> None:
            theirs = model.state_dict()
            for name, one in teacher.state_dict().items():
                if one.is_floating_point():
                    one.mul_(0.5).add_(theirs[name], alpha=0.5)

        return between

    return taught(follow, more=[nn.BatchNorm1d(8)])


@loop
def by_names_from_before_the_run() -> Run:
    def follow(teacher: nn.Module, model: nn.Module) -> Callable[[int], Any]:
        mine, theirs = teacher.state_dict(), [one.data for one in model.parameters()]

        def between(_: int) -> None:
            for one, other in zip(mine.values(), theirs, strict=True):
                one.mul_(0.5).add_(other, alpha=0.5)
                other.mul_(0.99)

        return between

    return taught(follow)


@loop
def an_averaged_model() -> Run:
    def follow(teacher: nn.Module, model: nn.Module) -> Callable[[int], Any]:
        return lambda _: averaged.update_parameters(model)

    model = small()
    averaged = torch.optim.swa_utils.AveragedModel(model, avg_fn=lambda mine, theirs, _: 0.5 * mine + 0.5 * theirs)

    def loss() -> Tensor:
        x = torch.randn(8, 4)
        return (model(x) - 0.9 * averaged(x).detach() - x.sum(1, keepdim=True)).square().mean()

    return trained(model, loss, torch.optim.SGD(model.parameters(), lr=0.02), follow(averaged, model))


@loop
def looking_ahead() -> Run:
    model = small()
    slow = [one.detach().clone() for one in model.parameters()]

    def between(number: int) -> None:
        if number % 3 == 2:
            for mine, one in zip(slow, model.parameters(), strict=True):
                mine.data.add_(one.data - mine.data, alpha=0.5)
                one.data.copy_(mine.data)

    return trained(model, lambda: (model(torch.randn(8, 4)) - 1).square().mean(), torch.optim.SGD(model.parameters(), lr=0.1), between)


def queued(write: Callable[[Tensor, int, Tensor], Any]) -> Callable[[], Run]:
    """A queue of what the model gave, as in MoCo."""

    def make() -> Run:
        model, queue = small(), torch.randn(32, 2)
        last: list[Tensor] = []

        def loss() -> Tensor:
            last[:] = [model(x := torch.randn(8, 4))]
            return (last[0].mean(0) - queue.mean(0)).square().mean() + (last[0].sum(1) - x.sum(1)).square().mean()

        def between(number: int) -> None:
            write(queue, number % 4 * 8, last[0].detach())

        return trained(model, loss, torch.optim.SGD(model.parameters(), lr=0.05), between)

    return make


def by_rows(queue: Tensor, begin: int, keys: Tensor) -> None:
    for row, key in zip(queue[begin : begin + 8].unbind(), keys.unbind(), strict=True):
        row.mul_(0.1).add_(key * 0.9)


LOOPS |= {
    "a queue by index": queued(lambda queue, begin, keys: queue.__setitem__(slice(begin, begin + 8), keys)),
    "a queue by a slice": queued(lambda queue, begin, keys: queue[begin : begin + 8].copy_(keys)),
    "a queue by narrow": queued(lambda queue, begin, keys: queue.narrow(0, begin, 8).copy_(keys)),
    "a queue by data": queued(lambda queue, begin, keys: queue.data.__setitem__(slice(begin, begin + 8), keys)),
    "a queue by unbind": queued(by_rows),
    "a queue turned around": queued(lambda queue, begin, keys: queue.t()[:, begin : begin + 8].copy_(keys.t())),
    "a queue as other numbers": queued(lambda queue, begin, keys: queue.view(torch.int32)[begin : begin + 8].copy_(keys.view(torch.int32))),
}


@loop
def names_that_outlive_a_state() -> Run:
    model = small()
    mean = torch.zeros(3, 2)
    rows = [*mean]
    kept: list[Tensor] = []

    def loss() -> Tensor:
        kept[:] = [*kept[-3:], out := model(x := torch.randn(8, 4))]
        for row, one in zip(rows, kept, strict=False):
            row.mul_(0.5).add_(one.detach().mean(0))
        return (out - mean.mean(0)).square().mean() + (out.sum(1) - x.sum(1)).square().mean()

    def between(_: int) -> None:
        kept[-1] = kept[-1].detach()
        kept[-1][:4].zero_()

    return trained(model, loss, torch.optim.SGD(model.parameters(), lr=0.05), between)


@loop
def momentum_by_hand() -> Run:
    model = small()
    speeds = [torch.zeros_like(one) for one in model.parameters()]

    def step(_: int) -> Tensor:
        loss: Tensor = (model(torch.randn(8, 4)) - 1).square().mean()
        loss.backward()
        for speed, one in zip(speeds, model.parameters(), strict=True):
            speed.data.mul_(0.5).add_(one.grad.data)  # type: ignore[union-attr]
            one.data.add_(speed.data, alpha=-0.01)
        optimizer.step()
        optimizer.zero_grad()
        for one in model.parameters():
            one.data.clamp_(-0.4, 0.4)
        return loss

    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    return model, [optimizer], step


@loop
def a_buffer_for_batches_and_its_memory() -> Run:
    model, batch = small(), torch.zeros(8, 4)

    def loss() -> Tensor:
        batch.data.normal_()
        return (model(batch) - batch[:, :2]).square().mean()

    def between(_: int) -> None:
        batch[4:].data.copy_(torch.rand(4, 4))

    return trained(model, loss, torch.optim.SGD(model.parameters(), lr=0.05), between)


@loop
def a_leaf_and_its_detached_name() -> Run:
    model, delta = small(), torch.zeros(2, requires_grad=True)
    plain = delta.detach()

    def loss() -> Tensor:
        return (model(torch.randn(8, 4)) + delta - 1).square().mean()

    def between(_: int) -> None:
        plain.sub_(delta.grad, alpha=0.1)  # type: ignore[union-attr]
        delta.grad = None

    return trained(model, loss, torch.optim.SGD(model.parameters(), lr=0.05), between)


def by_hand(at: int, make: Callable[[], Run]) -> list[float]:
    """The oracle: the loop itself, with another learning rate from a step on."""
    torch.manual_seed(0)
    _, optimizers, step = make()
    losses = []
    for number in range(STEPS):
        if number == at:
            optimizers[0].param_groups[0]["lr"] = 0.2
        losses.append(float(step(number)))
    return losses


@pytest.mark.parametrize("name", LOOPS)
def test_a_changed_fork_follows_what_is_written_by_another_name(name: str) -> None:
    w, *_ = watched(LOOPS[name], STEPS)
    kept = w.record.kept
    assert kept is not None and len(kept.states) > 2
    first = next(one for one in kept.states if w.fork(one).record.ended != "joined")  # a target that is trained may come later
    assert first <= 3
    for at in (first, first + 3, 7, 11, 16):
        fork = w.fork(at, {"lr": 0.2})
        assert fork.exact, fork.headline
        assert fork.losses == by_hand(at, LOOPS[name])[fork.record.began :], at


def test_a_part_of_a_memory_that_others_share_ends_the_fork() -> None:
    model = small()
    memory = torch.randn(60)
    teacher, names = copy.deepcopy(model).requires_grad_(False), []
    for one in teacher.parameters():
        names.append(memory[: one.numel()].view_as(one))
        one.data = names[-1]

    def loss() -> Tensor:
        x = torch.randn(8, 4)
        return (model(x) - teacher(x)).square().mean()

    def between(_: int) -> None:
        for mine, theirs in zip(names, model.parameters(), strict=True):
            mine.mul_(0.5).add_(theirs.detach(), alpha=0.5)

    made = trained(model, loss, torch.optim.SGD(model.parameters(), lr=0.05), between)
    w, *_ = watched(lambda: made)
    fork = w.fork(7)
    assert fork.record.ended == "old" and "shares the memory of others" in str(fork)


def test_the_gradient_of_a_leaf_behind_a_batch_ends_the_fork() -> None:
    model = small()

    def loss() -> Tensor:
        x, delta = torch.randn(8, 4), torch.zeros(8, 4, requires_grad=True)
        model(x + delta).square().mean().backward()
        delta.data.add_(delta.grad.sign(), alpha=0.1)  # type: ignore[union-attr]
        return (model(x + delta.detach()) - 1).square().mean()

    w, *_ = watched(lambda: trained(model, loss, torch.optim.SGD(model.parameters(), lr=0.05)))
    assert w.fork(5, {"lr": 0.2}).record.ended == "lacking"


EDITS: dict[str, Callable[[Any], Any]] = {
    "cleared": lambda optimizer: optimizer.state.clear(),
    "made 0": lambda optimizer: [state["exp_avg"].zero_() for state in optimizer.state.values()],
    "put in": lambda optimizer: [state.update(exp_avg=torch.zeros_like(state["exp_avg"])) for state in optimizer.state.values()],
    "loaded": lambda optimizer: optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict())),
}


@pytest.mark.parametrize("name", EDITS)
def test_a_fork_ends_where_the_loop_changes_an_optimizer_s_state(name: str) -> None:
    model = small()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    made = trained(
        model, lambda: (model(torch.randn(8, 4)) - 1).square().mean(), optimizer, lambda number: number == 7 and EDITS[name](optimizer)
    )
    w, *_ = watched(lambda: made)
    fork = w.fork(5)
    assert fork.exact and fork.record.ended == "edited" and len(fork.losses) == 3 and "Before step 8" in str(fork)
    later = w.fork(20)
    assert later.exact and later.record.ended == "tape", later.headline


def test_what_is_let_go_of_is_forgotten() -> None:
    model = small()
    kept: list[Tensor] = []

    def loss() -> Tensor:
        place = torch.empty(8, 2)
        place.data[:] = out = model(torch.randn(8, 4))
        kept[:] = [place]
        return (out - 1).square().mean()

    made = trained(model, loss, torch.optim.SGD(model.parameters(), lr=0.05))
    w, *_ = watched(lambda: made)
    assert isinstance(w, modlab.results.watch.Watch)
    assert len([*w._keeper.places.memories.adopted()]) == 1


@pytest.mark.parametrize("frozen", [False, True], ids=["trained", "frozen"])
def test_a_model_that_the_loop_copies_is_not_the_original_s(frozen: bool) -> None:
    """As the target of a DQN, copied anew every few steps and called without gradients: the fork makes that step with its own copy."""

    def train(watching: bool, change: int = -1) -> tuple[Any, list[float]]:
        torch.manual_seed(0)
        net = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(net.parameters(), 0.05)
        losses = []
        w = modlab.watch(net, optimizer, keep="good") if watching else None
        for step in range(30):
            if step == change:
                optimizer.param_groups[0]["lr"] = 0.2
            if step % 5 == 0:
                target = copy.deepcopy(net).requires_grad_(not frozen)
            x = torch.randn(8, 4)
            with torch.no_grad():
                wanted = 0.9 * target(x) + x.sum(1, keepdim=True)
            optimizer.zero_grad()
            loss = (net(x) - wanted).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        if w is not None:
            w.close()
        return w, losses

    w, _ = train(True)
    truth = train(False, change=3)[1]
    fork = w.fork(3, {"lr": 0.2})
    began, made = fork.record.began, len(fork.losses)
    assert fork.exact and fork.losses == truth[began : began + made], fork.headline
    assert began + made == 30
