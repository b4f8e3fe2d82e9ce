"""A fork that changes nothing is the same training, bit for bit; the original never notices."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import random
import re
import warnings
from collections import OrderedDict, UserDict
from collections.abc import Callable, Iterator
from threading import Lock
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import prune

import modlab
from modlab import errors as modlab_errors
from modlab import format
from modlab.forking import fixes
from modlab.forking import keeper as keeping
from modlab.forking.futures import KeptGround
from modlab.records.finding import Finding, Remedy
from modlab.results import fork as fork_results
from modlab.results.fork import of_finding
from tests.watching.test_identity import RUNS, Run, photograph

LOOPS: dict[str, Callable[[], Run]] = {}
STEPS = 24


def loop(make: Callable[[], Run]) -> Callable[[], Run]:
    LOOPS[make.__name__] = make
    return make


def small(*more: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), *more, nn.Linear(8, 2))


def trained(
    model: nn.Module, loss: Callable[[], Tensor], optimizer: torch.optim.Optimizer, between: Callable[[int], Any] | None = None
) -> Run:
    """The usual loop; `between` is called behind each step."""

    def step(number: int) -> Tensor:
        optimizer.zero_grad()
        found = loss()
        found.backward()
        optimizer.step()
        if between is not None:
            between(number)
        return found

    return model, [optimizer], step


@loop
def by_hand() -> Run:
    model = small()

    def step(_: int) -> Tensor:
        loss: Tensor = model(torch.randn(8, 4)).square().mean()
        loss.backward()
        with torch.no_grad():
            for one in model.parameters():
                one -= 0.1 * one.grad
                one.grad = None
        return loss

    return model, [], step


@loop
def optimizer_not_given() -> Run:
    model, _, step = trained(model := small(), lambda: model(torch.randn(8, 4)).square().mean(), torch.optim.Adam(model.parameters()))
    return model, [], step


@loop
def two_calls_in_a_step() -> Run:
    model = small(nn.Dropout(0.2))

    def loss() -> Tensor:
        x = torch.randn(8, 4)
        one, other = (F.normalize(model(x + 0.1 * torch.randn_like(x))) for _ in range(2))
        return F.cross_entropy(one @ other.T / 0.1, torch.arange(8))

    return trained(model, loss, torch.optim.Adam(model.parameters(), lr=0.01))


@loop
def a_hidden_state_is_carried() -> Run:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.out = nn.GRUCell(4, 6), nn.Linear(6, 1)

        def forward(self, x: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
            hidden = self.cell(x, hidden)
            return self.out(hidden), hidden

    model = Recurrent()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hidden = torch.zeros(3, 6)

    def step(_: int) -> Tensor:
        nonlocal hidden
        optimizer.zero_grad()
        total: Any = 0
        for _ in range(3):
            out, hidden = model(torch.randn(3, 4), hidden)
            total = total + out.square().mean()
        total.backward()
        optimizer.step()
        hidden = hidden.detach()
        return total  # type: ignore[no-any-return]

    return model, [optimizer], step


class Centred(nn.Module):
    """Replaces its buffers in each forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.out = nn.Linear(4, 4), nn.Linear(4, 1)
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("last", None)

    def forward(self, x: Tensor) -> Tensor:
        h = self.body(x)
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * h.detach().mean(0)
            self.last = h.detach()
        return self.out((h - self.mean).tanh())


@loop
def buffers_that_a_forward_pass_replaces() -> Run:
    model = Centred()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    return trained(model, lambda: (model(torch.randn(8, 4)) - model.mean.mean()).square().mean(), optimizer)


@loop
def buffers_that_the_loop_replaces() -> Run:
    model = small(nn.BatchNorm1d(8))
    for name, given in (("centre", torch.zeros(2)), ("other", torch.ones(2)), ("steps", torch.zeros(())), ("none", None)):
        model.register_buffer(name, given)

    def loss() -> Tensor:
        out = model(torch.randn(8, 4) + model.steps / 100)
        model.steps = torch.tensor(float(torch.randint(5, ())))
        model.centre = 0.9 * model.centre + 0.1 * out.detach().mean(0)
        model.centre, model.other = model.other, model.centre
        model.centre.mul_(0.9)
        model[2].running_mean = model[2].running_mean.clone()
        return (out - model.centre).square().mean() + model.other.sum() ** 2

    def between(number: int) -> None:
        if number % 3 == 0:
            model.none = torch.ones(2) if number % 2 else None

    return trained(model, loss, torch.optim.Adam(model.parameters(), lr=0.05), between)


class Leaving(nn.Module):
    """Leaves tensors for the loss behind, in itself and in a part."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.part, self.out = nn.Linear(4, 4), Centred(), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.body(x)
        self.mean, self.part.aux = h.tanh(), h.square().mean()
        self.last = h.detach().mean()
        return self.out(self.mean + torch.randn_like(h) * 0.1) + self.part(h)


@loop
def losses_that_a_forward_pass_leaves_in_attributes() -> Run:
    model = Leaving()

    def loss() -> Tensor:
        out = model(torch.randn(8, 4))
        return (out - model.last).square().mean() + 0.1 * model.part.aux + model.mean.abs().mean()

    return trained(model, loss, torch.optim.Adam(model.parameters(), lr=0.05))


@loop
def hooks_on_gradients_draw() -> Run:
    model = small()
    model[0].weight.register_hook(lambda gradient: gradient + 0.1 * torch.randn_like(gradient))
    return trained(model, lambda: model(torch.randn(8, 4)).square().mean(), torch.optim.SGD(model.parameters(), lr=0.05))


@loop
def hooks_change_what_a_model_gives() -> Run:
    model = small()
    kept: list[Tensor] = []
    model[2].register_forward_hook(lambda module, given, out: out + 1)
    model.register_forward_hook(lambda module, given, out: out.sigmoid())
    model.register_forward_hook(lambda module, given, out: kept.append(out))
    model.register_forward_hook(lambda module, given, out: (out * torch.rand(1)).mul_(2))

    def loss() -> Tensor:
        out = model(torch.randn(8, 4))
        return (out - kept.pop()).square().mean() + out.mean()

    return trained(model, loss, torch.optim.SGD(model.parameters(), lr=0.05))


@loop
def gradients_zeroed_between_two_optimizers() -> Run:
    model = small()
    decaying = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)

    def decay(number: int) -> None:
        if number % 2:
            optimizer.zero_grad(set_to_none=False)
        else:
            for one in model.parameters():
                one.grad.mul_(0.0)  # type: ignore[union-attr]
        decaying.step()

    model, optimizers, step = trained(model, lambda: model(torch.randn(8, 4)).square().mean(), optimizer, decay)
    return model, [*optimizers, decaying], step


@loop
def a_scripted_model() -> Run:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated
        model = torch.jit.script(small(nn.BatchNorm1d(8)))
    return trained(model, lambda: model(torch.randn(8, 4)).square().mean(), torch.optim.SGD(model.parameters(), lr=0.05))


@loop
def a_teacher_that_averages() -> Run:
    model = small()
    teacher = copy.deepcopy(model).requires_grad_(False)

    def between(_: int) -> None:
        with torch.no_grad():
            for mine, theirs in zip(teacher.parameters(), model.parameters(), strict=True):
                mine.mul_(0.9).add_(theirs, alpha=0.1)

    def loss() -> Tensor:
        x = torch.randn(8, 4)
        with torch.no_grad():
            target = teacher(x) + 0.1
        return (model(x) - target).square().mean()

    return trained(model, loss, torch.optim.SGD(model.parameters(), lr=0.1), between)


@loop
def a_discriminator_beside() -> Run:
    maker, judge = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
    mine, theirs = torch.optim.Adam(maker.parameters(), 0.01), torch.optim.Adam(judge.parameters(), 0.01)

    def step(_: int) -> Tensor:
        fake = maker(torch.randn(8, 4))
        theirs.zero_grad()
        (judge(fake.detach()).mean() - judge(torch.randn(8, 4)).mean()).backward()
        theirs.step()
        mine.zero_grad()
        loss: Tensor = -judge(fake).mean()
        loss.backward()
        mine.step()
        return loss

    return maker, [mine], step


@loop
def a_loss_with_buffers() -> Run:
    model, criterion = small(), nn.Sequential(nn.BatchNorm1d(2, affine=False), nn.Dropout(0.1))
    weighed = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0]))
    target = torch.arange(8) % 2
    loss = lambda: weighed(criterion(model(torch.randn(8, 4))), target)  # noqa: E731
    return trained(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))


@loop
def a_frozen_judge() -> Run:
    model, judge = small(), nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)).requires_grad_(False).eval()
    return trained(model, lambda: judge(model(torch.randn(8, 4))).square().mean(), torch.optim.SGD(model.parameters(), lr=0.1))


@loop
def a_loss_with_weights_of_its_own() -> Run:
    class Weighed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.log_scale = nn.Parameter(torch.zeros(2))

        def forward(self, out: Tensor) -> Tensor:
            return (out.square().mean(0) * torch.exp(-self.log_scale) + self.log_scale).sum()

    model, criterion = small(), Weighed()
    optimizer = torch.optim.Adam([*model.parameters(), *criterion.parameters()], lr=0.01)
    return trained(model, lambda: criterion(model(torch.randn(8, 4))), optimizer)


@loop
def schedules_clipping_and_groups() -> Run:
    model = small()
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=STEPS + 1)  # lr and momentum
    model[2].requires_grad_(False)

    def step(number: int) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(torch.randn(8, 4)).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        nn.utils.clip_grad_value_(model.parameters(), 0.01)
        optimizer.step()
        if number < 10:
            schedule.step()
        if number == 10:
            model[2].requires_grad_(True)
            optimizer.add_param_group({"params": [*model[2].parameters()], "lr": 0.03})
        return loss

    return model, [optimizer], step


@loop
def a_learning_rate_in_a_tensor() -> Run:
    model = small()
    optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.01))
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    return trained(model, lambda: model(torch.randn(8, 4)).square().mean(), optimizer, lambda _: schedule.step())


@loop
def all_generators() -> Run:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.own, self.part = torch.Generator().manual_seed(3), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            if random.random() < 0.5:
                x = x * float(np.random.rand())
            return self.part(x) + torch.randn(2, generator=self.own)

    model = Odd()

    def loss() -> Tensor:
        out = model(torch.randn(8, 4))
        return F.dropout(out + torch.randn_like(out), 0.3).square().mean()

    return trained(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))


@loop
def a_buffer_for_all_batches() -> Run:
    model, room = small(), torch.empty(8, 4)

    def loss() -> Tensor:
        room.copy_(torch.randn(8, 4))
        return model(room).square().mean()

    return trained(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))


@loop
def slices_of_a_data_set() -> Run:
    data, model, place = torch.randn(400, 7)[:, 3:].contiguous(), small(), iter(range(0, 10_000, 7))

    def loss() -> Tensor:
        start = next(place) % 390
        return model(data[start : start + 7]).square().mean()

    return trained(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))


@loop
def validation_in_between() -> Run:
    model = small(nn.BatchNorm1d(8), nn.Dropout(0.5))
    seen = torch.zeros(())

    def between(number: int) -> None:
        if number % 5 == 4:
            model.eval()
            with torch.no_grad():
                for _ in range(4):
                    seen.add_(model(torch.randn(8, 4)).sum())
            model.train()

    return trained(model, lambda: model(torch.randn(8, 4)).square().mean(), torch.optim.SGD(model.parameters(), lr=0.1), between)


@loop
def weights_are_put_back() -> Run:
    model = small()
    best = copy.deepcopy(model.state_dict())

    def between(number: int) -> None:
        nonlocal best
        if number == 6:
            best = copy.deepcopy(model.state_dict())
        if number == 14:
            model.load_state_dict(best)

    return trained(model, lambda: model(torch.randn(8, 4)).square().mean(), torch.optim.Adam(model.parameters(), lr=0.01), between)


@loop
def sharpness_aware() -> Run:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(_: int) -> Tensor:
        x = torch.randn(8, 4)
        loss: Tensor = model(x).square().mean()
        loss.backward()
        with torch.no_grad():
            moved = [0.05 * one.grad / (one.grad.norm() + 1e-12) for one in model.parameters()]
            for one, by in zip(model.parameters(), moved, strict=True):
                one.add_(by)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        with torch.no_grad():
            for one, by in zip(model.parameters(), moved, strict=True):
                one.sub_(by)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return model, [optimizer], step


@loop
def gradient_penalty() -> Run:
    model = small()

    def loss() -> Tensor:
        x = torch.randn(8, 4, requires_grad=True)
        out = model(x)
        (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        return out.square().mean() + (slope.norm(dim=1) - 1).square().mean()

    return trained(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))


@loop
def gradients_are_edited() -> Run:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model[0].weight.register_hook(lambda gradient: gradient * 0.5)

    def step(_: int) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(torch.randn(8, 4)).square().mean()
        torch.autograd.backward([loss])
        for one in model.parameters():
            one.grad += 0.01 * torch.randn_like(one.grad)
        model[2].weight.grad = model[2].weight.grad.sign()
        optimizer.step()
        return loss

    return model, [optimizer], step


@loop
def settings_of_modules() -> Run:
    model = small(nn.Dropout(0.1))

    def between(number: int) -> None:
        model[2].p = 0.02 * number
        model.train(number % 3 > 0)

    return trained(model, lambda: model(torch.randn(8, 4)).square().mean(), torch.optim.SGD(model.parameters(), lr=0.1), between)


@loop
def one_autocast_around_two_calls() -> Run:
    model = small()

    def loss() -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(torch.randn(8, 4)).square().mean() + model(torch.randn(8, 4)).abs().mean()

    return trained(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))


@loop
def under_a_mode_of_the_user_s() -> Run:
    model = small()

    def loss() -> Tensor:
        with torch.device("cpu"):
            return model(torch.randn(8, 4)).square().mean()

    return trained(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))


@loop
def a_method_and_keyword_arguments() -> Run:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encode, self.decode = nn.Linear(4, 2), nn.Linear(2, 4)

        def loss(self, x: Tensor, scale: Tensor) -> Tensor:
            return F.mse_loss(input=self.decode(input=torch.relu(self.encode(x))), target=x) * scale

    model = Net()
    return trained(model, lambda: model.loss(torch.randn(8, 4), scale=torch.tensor(2.0)), torch.optim.SGD(model.parameters(), lr=0.1))


@loop
def a_branch_on_a_tensor() -> Run:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(_: int) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(torch.randn(8, 4)).square().mean()
        if loss < 0.2:
            loss = loss * 0.5
        loss.backward()
        optimizer.step()
        return loss

    return model, [optimizer], step


class Hidden(nn.Module):
    """Gives its output in a container, and takes such a one."""

    def __init__(self, put: Callable[[Tensor], Any], get: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self.first, self.last, self._put, self._get = nn.Linear(4, 8), nn.Linear(8, 2), put, get

    def forward(self, given: Any) -> Any:
        return self._put(self.first(given)) if isinstance(given, Tensor) else self.last(self._get(given))


@dataclasses.dataclass
class Data:
    hidden: Tensor


class Named(NamedTuple):
    hidden: Tensor


NESTS: dict[str, tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]] = {
    "a named tuple": (Named, lambda one: one.hidden),
    "a data class": (Data, lambda one: one.hidden),
    "an ordered dict": (lambda hidden: OrderedDict(hidden=hidden), lambda one: one["hidden"]),
    "a dict of the user's": (lambda hidden: UserDict(hidden=hidden), lambda one: one["hidden"]),
    "a name space": (lambda hidden: SimpleNamespace(hidden=hidden), lambda one: one.hidden),
    "a result of torch's": (lambda hidden: hidden.sort(1), lambda one: one.values),
    "a distribution": (lambda hidden: torch.distributions.Normal(hidden, 1.0), lambda one: one.loc),
    "deep": (lambda hidden: [{"a": (hidden, [hidden])}], lambda one: one[0]["a"][1][0]),
    "a hundred": (lambda hidden: [part for part in hidden.repeat(1, 10).unbind(1)], lambda one: torch.stack(one[72:], 1)),
}


def nested(name: str) -> Callable[[], Run]:
    def make() -> Run:
        model = Hidden(*NESTS[name])
        return trained(model, lambda: model(model(torch.randn(8, 4))).square().mean(), torch.optim.SGD(model.parameters(), lr=0.1))

    return make


LOOPS.update({name: nested(name) for name in NESTS})


@loop
def packed_sequences() -> Run:
    model = nn.GRU(4, 3, batch_first=True)
    loss = lambda: model(nn.utils.rnn.pack_sequence([torch.randn(5, 4), torch.randn(3, 4)]))[1].square().mean()  # noqa: E731
    return trained(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))


@loop
def lazy_modules() -> Run:
    model = nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.LazyLinear(2))
    return trained(model, lambda: model(torch.randn(8, 4)).square().mean(), torch.optim.SGD(model.parameters(), lr=0.1))


@loop
def nested_tensors() -> Run:
    model = small()

    def loss() -> Tensor:
        batch = torch.nested.nested_tensor([torch.randn(3, 4), torch.randn(5, 4)], layout=torch.jagged)
        return model(batch).values().square().mean()

    return trained(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))


def adversaries(known: Callable[[Any, Any], list[Any]]) -> Run:
    """Images are made once, for the discriminator, whose optimizer steps in between, and for the generator."""
    generator, judge = small(), nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    model = nn.ModuleDict({"generator": generator, "judge": judge})
    makes, judges = torch.optim.Adam(generator.parameters(), 1e-2), torch.optim.Adam(judge.parameters(), 1e-2)

    def step(_: int) -> Tensor:
        fake = generator(torch.randn(8, 4))
        judges.zero_grad()
        found = F.softplus(-judge(torch.randn(8, 2))).mean() + F.softplus(judge(fake.detach())).mean()
        found.backward()
        judges.step()
        makes.zero_grad()
        fooled = F.softplus(-judge(fake)).mean()
        fooled.backward()
        makes.step()
        return found

    return model, known(makes, judges), step


@loop
def a_judge_before_its_generator() -> Run:
    return adversaries(lambda makes, judges: [judges, makes])


@loop
def a_generator_before_its_judge() -> Run:
    return adversaries(lambda makes, judges: [makes, judges])


@loop
def adversaries_whose_optimizers_are_not_given() -> Run:
    return adversaries(lambda makes, judges: [])


@loop
def one_output_for_three_optimizers() -> Run:
    model = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 1), nn.Linear(4, 1)])
    body, *heads = model
    optimizers = [torch.optim.SGD(one.parameters(), 0.05) for one in (*heads, body)]

    def step(_: int) -> Tensor:
        features = torch.tanh(body(torch.randn(8, 4)))
        found = features.new_zeros(())
        for optimizer, head, given in zip(optimizers, [*heads, heads[0]], [features.detach(), features, features], strict=True):
            optimizer.zero_grad()
            found = (head(given) - 1).square().mean()
            found.backward(retain_graph=True)
            if optimizer is optimizers[1]:
                body.zero_grad()
            optimizer.step()
        return found

    return model, optimizers, step


@loop
def a_loss_with_arguments_by_name() -> Run:
    model, criterion = small(), nn.MSELoss()
    loss = lambda: criterion(input=model(torch.randn(8, 4)), target=torch.ones(8, 2))  # noqa: E731
    return trained(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))


@loop
def a_different_model_beside() -> Run:
    model, beside = small(), small()
    theirs = torch.optim.SGD(beside.parameters(), lr=0.1)

    def between(_: int) -> None:
        theirs.zero_grad()
        beside(torch.randn(8, 4)).square().mean().backward()
        theirs.step()

    return trained(model, lambda: model(torch.randn(8, 4)).square().mean(), torch.optim.SGD(model.parameters(), lr=0.1), between)


@loop
def a_forward_that_was_replaced() -> Run:
    model = small()
    forward, first = model.forward, model[0]
    model.forward = lambda x: forward(x) * 0.5  # type: ignore[method-assign]
    first.forward = lambda x: F.linear(x, first.weight * 2, first.bias)  # type: ignore[method-assign]
    return trained(model, lambda: model(torch.randn(8, 4)).square().mean(), torch.optim.SGD(model.parameters(), lr=0.1))


@loop
def hooks_that_refer_to_the_model() -> Run:
    model = small()
    model[0].register_forward_hook(lambda _, inputs, output: output + model[0].bias)
    model[0].weight.register_hook(lambda gradient: gradient + 0.1 * model[0].weight)
    model.register_full_backward_hook(lambda *_: None)
    return trained(model, lambda: model(torch.randn(8, 4, requires_grad=True)).square().mean(), torch.optim.SGD(model.parameters(), lr=0.1))


class Own(nn.Module):
    """Is copied in its own way, and holds a lock."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.lock = nn.Linear(4, 2), Lock()

    def forward(self, x: Tensor) -> Tensor:
        with self.lock:
            return self.layer(x)  # type: ignore[no-any-return]


class Drawing(Own):
    def __deepcopy__(self, memo: Any) -> Drawing:
        made = Drawing()
        made.load_state_dict(self.state_dict())
        return made


@loop
def generators_in_the_code() -> Run:
    own, theirs, third = torch.Generator().manual_seed(3), np.random.default_rng(4), random.Random(5)

    class Odd(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * third.random() + torch.randn(2, generator=own) * float(theirs.normal())

    model = Odd(4, 2)

    def loss() -> Tensor:
        return model(torch.randn(8, 4)).square().mean() + torch.randn((), generator=own)

    return trained(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))


@loop
def a_lock() -> Run:
    model = Own()
    return trained(model, lambda: model(torch.randn(8, 4)).square().mean(), torch.optim.SGD(model.parameters(), lr=0.1))


@loop
def a_copy_of_its_own() -> Run:
    model = Drawing()
    return trained(model, lambda: model(torch.randn(8, 4)).square().mean(), torch.optim.Adam(model.parameters(), lr=0.1))


def watched(make: Callable[[], Run], steps: int = STEPS, **options: Any) -> tuple[Any, nn.Module, list[Any], list[float]]:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    model, optimizers, step = make()
    losses = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own words on what some of these do
        with modlab.watch(model, optimizers, **{"keep": "good", **options}) as w:
            for number in range(steps):
                losses.append(float(step(number)))
    return w, model, optimizers, losses


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """States are kept every five steps."""
    monkeypatch.setattr(keeping, "GAP", 5)
    yield


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.long] * (name == "resnet")) for name in (*RUNS, *LOOPS)])
def test_an_unchanged_fork_is_the_original(name: str) -> None:
    w, model, optimizers, _ = watched((RUNS | LOOPS)[name])
    kept = w.record.kept
    assert kept is not None and not kept.trouble and len(kept.states) > 1
    before = photograph(model), [copy.deepcopy(one.state_dict()) for one in optimizers]
    for start in kept.states[:-1]:
        fork = w.fork(start)
        assert fork.exact, (start, fork.headline)
        taped = kept.until[kept.states.index(start)] - start
        unended = name == "by_hand"  # of the last step nobody tells that it is over
        assert fork.record.ended == "tape" and taped - unended <= len(fork.losses) <= taped
    assert photograph(model) == before[0]
    assert str([one.state_dict() for one in optimizers]) == str(before[1])


def unhooked(photo: list[Any]) -> list[Any]:
    """A photograph with the number of hooks on each tensor, which are other functions in each run."""
    tensors, *rest = photo
    return [[(*facts, len(hooks or ())) for *facts, hooks in tensors], *rest]


@pytest.mark.parametrize("name", LOOPS)
def test_a_watch_that_keeps_is_the_same_run(name: str) -> None:
    _, one, _, losses = watched(LOOPS[name])
    _, other, _, without = watched(LOOPS[name], keep="")
    assert losses == without
    assert unhooked(photograph(one)) == unhooked(photograph(other))


def rarely_used() -> Run:
    """A tensor is kept from one step, and used three steps later."""
    model, bank = small(), [torch.zeros(2)]

    def loss() -> Tensor:
        out = model(torch.randn(8, 4))
        found: Tensor = (out - (bank[0] if not step % 3 else 0)).square().mean()
        if not step % 3:
            bank[0] = out.detach()[0]
        return found

    step = 0

    def count(number: int) -> None:
        nonlocal step
        step = number + 1

    return trained(model, loss, torch.optim.SGD(model.parameters(), lr=0.1), count)


def test_what_still_lives_stays_in_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "STATES", 2)
    w, *_ = watched(rarely_used)
    for start in w.record.kept.states:
        fork = w.fork(start)
        assert fork.exact and fork.record.ended == "tape", fork.headline


def prepared_ahead() -> Run:
    """The outputs of the next step are made before the step."""
    model, ahead = nn.Linear(4, 2), list[Tensor]()

    def loss() -> Tensor:
        ahead.append(model(torch.randn(8, 4)).square().mean())
        return ahead.pop(0) if len(ahead) > 1 else ahead[0] * 0

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(_: int) -> Tensor:
        optimizer.zero_grad()
        found = loss()
        found.backward(retain_graph=True)
        optimizer.step()
        return found

    return model, [optimizer], step


def test_no_state_is_kept_in_the_middle_of_a_graph() -> None:
    w, *_ = watched(prepared_ahead)
    fork = w.fork(12)
    assert fork.exact and fork.record.began == 0 and fork.record.at == 12


def test_a_tensor_that_a_state_lacks_is_said_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "STATES", 2)
    monkeypatch.setattr(keeping.KeptState, "forget", lambda self, _: self.live.clear())
    w, *_ = watched(rarely_used)
    said = [str(w.fork(start)) for start in w.record.kept.states]
    assert any("uses a tensor that the kept state lacks" in one for one in said) and not any("KeyError" in one for one in said)


def plain_run(lr: float = 0.05, seed: int = 0) -> Run:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 1))
    data = torch.randn(64, 4)

    def loss() -> Tensor:
        rows = torch.randint(64, (16,))
        return F.mse_loss(model(data[rows]), data[rows].sum(1, keepdim=True))

    return trained(model, loss, torch.optim.SGD(model.parameters(), lr=lr, momentum=0.5))


def test_a_fork_ends_where_a_hook_collects_what_the_loss_is_made_of() -> None:
    def make() -> Run:
        model = small()
        seen: list[Tensor] = []
        model[0].register_forward_hook(lambda module, given, out: seen.append(out))

        def loss() -> Tensor:
            seen.clear()
            return model(torch.randn(8, 4)).square().mean() + seen[0].abs().mean()

        return trained(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))

    w, *_ = watched(make)
    fork = w.fork(0)
    assert fork.record.ended == "lacking" and "a hook that collects" in fork.headline


def changed_by_hand(at: int, change: Callable[[nn.Module, Any], Any], make: Callable[[], Run] = plain_run) -> list[float]:
    """The oracle: the loop itself, with the change in it."""
    torch.manual_seed(0)
    model, optimizers, step = make()
    losses = []
    for number in range(STEPS):
        if number == at:
            change(model, optimizers[0])
        losses.append(float(step(number)))
    return losses


def halve(model: nn.Module) -> None:
    with torch.no_grad():
        model[0].weight.mul_(0.5)  # type: ignore[index]


CHANGES: dict[str, tuple[Any, Callable[[Any, Any], Any]]] = {
    "learning rate": ({"lr": 0.2}, lambda _, optimizer: optimizer.param_groups[0].update(lr=0.2)),
    "dropout": ({"2.p": 0.6}, lambda model, _: setattr(model[2], "p", 0.6)),
    "weights": (halve, lambda model, _: halve(model)),
    "a module": (
        lambda model, optimizer: model.__setitem__(1, nn.Tanh()),
        lambda model, optimizer: model.__setitem__(1, nn.Tanh()),
    ),
    "frozen": (lambda model: model[0].requires_grad_(False), lambda model, _: model[0].requires_grad_(False)),
    "the optimizer's state": (lambda optimizer: optimizer.state.clear(), lambda _, optimizer: optimizer.state.clear()),
}


REPLACED = [buffers_that_a_forward_pass_replaces, buffers_that_the_loop_replaces, losses_that_a_forward_pass_leaves_in_attributes]


@pytest.mark.parametrize("make", REPLACED)
def test_what_is_replaced_is_that_of_the_fork(make: Callable[[], Run]) -> None:
    w, *_ = watched(make)
    fork = w.fork(7, {"lr": 0.2})
    losses = changed_by_hand(7, lambda _, optimizer: optimizer.param_groups[0].update(lr=0.2), make)
    assert fork.losses == losses[fork.record.began :][: len(fork.losses)] and len(fork.losses) > 10


@pytest.mark.parametrize("at", [0, 7, 10])
@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_fork_is_the_loop_with_that_change(name: str, at: int) -> None:
    w, model, _, losses = watched(plain_run)
    before = photograph(model)
    change, by_hand = CHANGES[name]
    fork = w.fork(at, change)
    assert fork.record.at == at and fork.exact
    assert fork.original == losses[fork.record.began :]
    assert fork.losses == changed_by_hand(at, by_hand)[fork.record.began :]
    assert photograph(model) == before


def unfrozen(model: nn.Module, _: Any = None) -> None:
    model.requires_grad_(True)


def joined(model: nn.Module, optimizer: Any) -> None:
    optimizer.add_param_group({"params": list(model[0].parameters())})  # type: ignore[index]


@pytest.mark.parametrize("change", [unfrozen, joined])
@pytest.mark.parametrize("none", [True, False])
def test_what_is_trained_since_the_change_takes_part_in_zero_grad(change: Callable[..., None], none: bool) -> None:
    def make(changed: bool) -> Run:
        model = small()
        model[0].requires_grad_(change is joined)
        optimizer = torch.optim.SGD((model[2] if change is joined else model).parameters(), lr=0.1)
        if changed:
            change(model, optimizer)

        def step(_: int) -> Tensor:
            optimizer.zero_grad(set_to_none=none)
            loss: Tensor = (model(torch.randn(8, 4)) - 1).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return model, [optimizer], step

    w, *_ = watched(lambda: make(False))
    *_, losses = watched(lambda: make(True))
    assert w.fork(0, change).losses == losses


def test_a_schedule_keeps_its_course_from_the_changed_rate_on() -> None:
    def make() -> Run:
        model, optimizers, step = plain_run()
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizers[0], 0.5)
        return model, optimizers, lambda number: (step(number), schedule.step())[0]

    w, *_ = watched(make)
    seen: list[float] = []

    def change(model: nn.Module, optimizer: Any) -> None:
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.param_groups[0]["lr"] *= 4
        optimizer.register_step_pre_hook(lambda one, *_: seen.append(one.param_groups[0]["lr"]))

    w.fork(5, change, steps=3)
    assert seen == [0.05 * 0.5**5, *(4 * 0.05 * 0.5**power for power in (5, 6, 7))]


def test_a_fork_while_it_runs_leaves_the_run_alone() -> None:
    def losses(forks: bool) -> list[Any]:
        torch.manual_seed(0)
        model, optimizers, step = plain_run()
        found: list[Any] = []
        with modlab.watch(model, optimizers, keep="good") as w:
            for number in range(STEPS):
                found.append(float(step(number)))
                if forks and number in (8, 15):
                    assert w.fork(3).exact
                    assert w.fork(3, {"lr": 1.0}).record.parts == 4
        return [*found, photograph(model)]

    assert losses(True) == losses(False)


def test_what_a_changed_fork_would_have_done_otherwise_is_said() -> None:
    w, *_ = watched(LOOPS["a_branch_on_a_tensor"])
    fork = w.fork(0, lambda model: model[0].weight.data.mul_(30))
    assert fork.record.ended == "branch" and "another way" in str(fork)


@pytest.mark.parametrize("name", ["closure", "sharpness_aware", "a_scaler_and_a_fused_optimizer", "gradients_are_edited"])
def test_the_loss_is_that_of_the_loop(name: str) -> None:
    w, *_, losses = watched((RUNS | LOOPS)[name])
    fork = w.fork(w.record.kept.states[1], {"lr": 1e-4})
    assert fork.original == pytest.approx(losses[-len(fork.original) :], rel=1e-3)


class Subclass(Tensor):
    """A class of tensors of the user's."""


def compiled(backend: Any) -> Run:
    model, loss = small(), torch.compile(lambda out: (out * out).mean(), backend=backend)
    return trained(model, lambda: loss(model(torch.randn(8, 4))), torch.optim.SGD(model.parameters(), lr=0.1))


def test_a_compiled_loss_is_compiled_as_it_was() -> None:
    graphs: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    *_, without = watched(lambda: compiled(backend), keep="")
    torch._dynamo.reset()
    w, *_, losses = watched(lambda: compiled(backend))
    assert losses == without and [len(one.graph.nodes) for one in graphs] == [4, 4]
    assert w.fork(5).exact


def untold() -> Run:
    model = small()
    loss = lambda: model(torch.randn(8, 4)).as_subclass(Subclass).square().mean().as_subclass(Tensor)  # noqa: E731
    return trained(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return -gradients[0]


def a_function_of_autograd() -> Run:
    model = small()
    return trained(model, lambda: Reversed.apply(model(torch.randn(8, 4))).square().mean(), torch.optim.SGD(model.parameters(), lr=0.1))


@pytest.mark.parametrize(
    "make", [untold, a_function_of_autograd, lambda: compiled("aot_eager")], ids=["a subclass", "a function", "compiled"]
)
def test_gradients_that_come_past_the_tape_end_the_fork(make: Callable[[], Run]) -> None:
    w, *_ = watched(make)
    fork = w.fork(5)
    assert fork.exact if fork.losses else fork.record.ended == "lacking" and "does not see" in fork.headline


class ByName(nn.Module):
    """Reaches the model by another name."""

    model: nn.Module

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 2), nn.BatchNorm1d(2)

    def forward(self, x: Tensor) -> Tensor:
        return ByName.model.norm(ByName.model.layer(x))  # type: ignore[no-any-return,operator]


def test_a_model_that_reaches_itself_by_another_name_is_left_as_it_was() -> None:
    def make() -> Run:
        ByName.model = model = ByName()
        return trained(model, lambda: (model(torch.randn(8, 4)) - 1).square().mean(), torch.optim.SGD(model.parameters(), lr=0.1))

    w, model, *_ = watched(make)
    before = [(one.detach().clone(), one.grad, one.grad.clone()) for one in model.parameters()], copy.deepcopy(dict(model.named_buffers()))
    fork = w.fork(5, {"lr": 0.3})
    assert fork.record.ended == "original" and "reached the original" in fork.headline
    for one, (weight, gradient, numbers) in zip(model.parameters(), before[0], strict=True):
        assert one.equal(weight) and one.grad is gradient and gradient.equal(numbers)
    assert all(one.equal(before[1][name]) for name, one in model.named_buffers())


def grown(model: nn.Sequential, optimizer: Any) -> None:
    model.append(nn.Linear(2, 2))
    optimizer.add_param_group({"params": [*model[-1].parameters()]})


MEMBERS: dict[str, Callable[[Any, Any], Any]] = {
    "a layer more": grown,
    "another activation": lambda model, _: model.__setitem__(1, nn.ReLU()),
    "another weight": lambda model, _: prune.l1_unstructured(model[0], "weight", 0.5),
    "another forward": lambda model, _: setattr(model[1], "forward", torch.relu),
    "no bias": lambda model, _: model[0].register_parameter("bias", None),
    "a layer less": lambda model, _: model.__delitem__(1),
    "a buffer more": lambda model, _: model[1].register_buffer("more", torch.ones(1)),
}


DONE = {
    "a layer more": "put 3 into the model",
    "another activation": "put something else into the place of 1",
    "another weight": "put a module, a parameter or a buffer into the model, took one out",
    "another forward": "gave 1 another forward",
    "no bias": "took 0.bias out of the model",
    "a layer less": "took a module or a parameter out of the model",
    "a buffer more": "put a buffer into 1, or took one out",
}


@pytest.mark.parametrize("name", MEMBERS)
def test_a_fork_ends_where_the_loop_changes_the_model_s_members(name: str) -> None:
    def make() -> Run:
        model = small()
        model.register_buffer("scale", torch.ones(1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        change = lambda number: MEMBERS[name](model, optimizer) if number == 7 else None  # noqa: E731
        return trained(model, lambda: model(torch.randn(8, 4) * model.scale).square().mean(), optimizer, change)  # type: ignore[operator]

    w, *_ = watched(make)
    fork = w.fork(5)
    assert fork.exact and fork.record.ended == "changed" and len(fork.losses) in (2, 3) and f"the loop {DONE[name]}" in str(fork)
    states = [one for one in w.record.kept.states if 8 < one < 24]
    assert states and all(w.fork(one).exact for one in states)


def test_a_fork_without_a_step_begins_where_there_are_steps() -> None:
    w, *_ = watched(plain_run, 20)
    assert w.record.kept.states[-1] == 20
    fork = w.fork()
    assert fork.record.at == 15 and fork.exact and fork.losses


class Itself(nn.Linear):
    def __deepcopy__(self, memo: Any) -> Itself:
        return self


class Holding(nn.Linear):
    def __init__(self, thing: Any) -> None:
        super().__init__(4, 8)
        self.thing = thing


UNCOPIED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "a generator": (lambda: Holding(one for one in ()), r"0\.thing cannot be copied \(TypeError: .*outside of the model"),
    "gives itself": (lambda: Itself(4, 8), "__deepcopy__ of Itself gives the module itself"),
}


@pytest.mark.usefixtures("swallowed")
@pytest.mark.parametrize("name", UNCOPIED)
def test_what_cannot_be_copied_is_named(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    make, words = UNCOPIED[name]
    model = nn.Sequential(make(), nn.Linear(8, 2))
    run = trained(model, lambda: model(torch.randn(8, 4)).square().mean(), torch.optim.SGD(model.parameters(), lr=0.1))
    w, *_ = watched(lambda: run)
    with pytest.raises(modlab_errors.ForkError, match=words):
        w.fork()
    assert re.search(words, capfd.readouterr().err) and w.record.state == "ended"


def test_two_watches_at_once_are_two_forks() -> None:
    (one, mine, step), (other, theirs, other_step) = plain_run(), plain_run(seed=1)
    with modlab.watch(one, mine, keep="good") as w, modlab.watch(other, theirs, keep="good") as second:
        for number in range(8):
            step(number), other_step(number)
    assert w.fork(5).exact and second.fork(5).exact


def test_a_batch_that_changed_in_secret_is_noticed() -> None:
    data = torch.randn(8, 4)
    model = small()
    made = trained(model, lambda: model(data).square().mean(), torch.optim.SGD(model.parameters(), lr=0.1))
    w, *_ = watched(lambda: made)
    data.add_(1)
    assert w.fork(0).record.ended == "constant"


ANSWERS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "before the first": ({"step": -3}, modlab_errors.ForkError, "the first kept state is the one at step 0"),
    "after the last": ({"step": 99}, modlab_errors.ForkError, r"the run has 24 steps\.\n  Nearest: w\.fork\(step=23\)"),
    "just after the last": ({"step": 24}, modlab_errors.ForkError, "Step 24 was not made"),
    "no step": ({"step": "x"}, modlab_errors.QuestionError, "takes the number of a step"),
    "no change": ({"change": 3}, modlab_errors.QuestionError, "takes a function, or settings by name"),
    "no setting": ({"change": {"lrr": 1}}, modlab_errors.QuestionError, "Nearest: 'lr'"),
    "no setting of a module": ({"change": {"0.slope": 1.0}}, modlab_errors.QuestionError, r"0 \(Linear\) has no 'slope'"),
    "nothing to set": ({"change": {}}, modlab_errors.QuestionError, "got {}, but takes a function, or settings by name"),
    "a negative rate": ({"change": {"lr": -1}}, modlab_errors.QuestionError, "got -1.0 as lr, but takes a number of at least 0"),
    "a rate that is not a number": ({"change": {"lr": float("nan")}}, modlab_errors.QuestionError, "got nan as lr"),
    "a text as a number": ({"change": {"lr": "x"}}, modlab_errors.QuestionError, "takes a number"),
    "a truth as a number": ({"change": {"lr": True}}, modlab_errors.QuestionError, "got True as lr, but takes a number"),
    "two numbers": ({"change": {"lr": torch.ones(2)}}, modlab_errors.QuestionError, r"got tensor\(\[1., 1.\]\) as lr"),
    "no steps": ({"steps": 0}, modlab_errors.QuestionError, "takes a number of steps, 1 or more"),
    "other arguments": ({"change": lambda a, b, c: None}, modlab_errors.QuestionError, "takes a, b, c"),
    "it raises": ({"change": lambda model: 1 / 0}, modlab_errors.ForkError, "ZeroDivisionError: division by zero"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_bad_input_is_answered(name: str) -> None:
    w, *_ = watched(plain_run)
    given, kind, words = ANSWERS[name]
    with pytest.raises(kind, match=words):
        w.fork(**given)


def test_the_last_step_is_run_again() -> None:
    w, *_ = watched(plain_run)
    assert w.fork(23).headline == "The fork equals the original, bit for bit: 1 step from step 23 on gives the very same loss."


def test_without_keep_nothing_is_kept_and_nothing_runs() -> None:
    w, *_ = watched(plain_run, keep="")
    assert w.record.kept is None and "kept" not in str(w)
    with pytest.raises(modlab_errors.ForkError, match='keep="good"'):
        w.fork(3)
    with pytest.raises(modlab_errors.QuestionError, match="'good'"):
        modlab.watch(small(), keep="all")  # type: ignore[arg-type]
    assert not torch.overrides._get_current_function_mode_stack()


def test_memory_is_bounded_and_states_span_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "TAPE_ROOM", 500_000)
    w, *_ = watched(plain_run, steps=240)
    kept = w.record.kept
    assert 2 < len(kept.states) <= keeping.STATES and kept.states[0] == 0 and kept.states[-1] > 120
    assert kept.bytes < 600_000
    assert all(end - begin >= keeping.LEAST for begin, end in zip(kept.states[:-1], kept.until, strict=False))
    assert all(w.fork(start).exact for start in kept.states[:-1])
    assert format.size(kept.bytes) in str(w) and format.size(kept.bytes) in w.html()


def test_states_are_good_ones() -> None:
    def make() -> Run:
        model, optimizers, step = plain_run()

        def spoilt(number: int) -> Tensor:
            if number == 12:
                with torch.no_grad():
                    model[0].weight.fill_(float("nan"))
            return step(number)

        return model, optimizers, spoilt

    w, *_ = watched(make)
    assert max(w.record.kept.states) <= 12


def test_a_fork_has_faces(tmp_path: Any) -> None:
    w, *_ = watched(plain_run)
    fork = w.fork(10, {"lr": 1e-4}, steps=10)
    assert fork.record.steps == 10 and fork.outcome in ("worse", "better", "same")
    assert fork.headline in fork.html() or fork.headline.split(":")[0] in fork.html()
    assert "[data-modlab=fork]>.modlab-static{border:1px" in fork.html(bundle=False)  # a picture in a frame, as views have
    told = fork.to_dict()
    assert told["kind"] == "fork" and len(told["records"]) == len(fork.losses) and told["exact"]
    assert [row["fork"] for row in told["records"]] == fork.losses
    assert "lr = 1e+09" in str(w.fork(10, {"lr": 1e9}, steps=3))
    assert "lr = 0.0001" in str(fork) and "unchanged fork equals the original" in str(fork)
    assert fork.save(tmp_path / "fork.html").read_text().count("<img") == 1
    assert len(fork.figure().axes[0].lines) == 3
    assert pickle.loads(pickle.dumps(fork)).losses == fork.losses


# ---- fixes


def test_the_fix_of_a_watch_s_finding_is_tried() -> None:
    def make() -> Run:
        model, optimizers, _ = plain_run()
        data = torch.randn(64, 4)

        def step(_: int) -> Tensor:
            loss = F.mse_loss(model(data), data.sum(1, keepdim=True))
            loss.backward()  # gradients are never zeroed
            optimizers[0].step()
            return loss

        return model, optimizers, step

    w, model, *_ = watched(make)
    before = photograph(model)
    alert = next(one for one in w.alerts if one.kind == "not zeroed")
    fork = alert.try_fix(15)
    assert fork.outcome == "better" and fork.exact and "gradients zeroed" in fork.headline
    assert photograph(model) == before


DIAGNOSES: dict[str, Callable[[nn.Sequential], Any]] = {
    "not in the optimizer": lambda model: torch.optim.SGD(model[0].parameters(), lr=0.05),
    "learning rate 0": lambda model: torch.optim.SGD(model.parameters(), lr=0.0),
}


@pytest.mark.parametrize("kind", DIAGNOSES)
def test_the_fix_of_a_diagnosis_is_tried(kind: str) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = DIAGNOSES[kind](model)
    x = torch.randn(32, 4)
    found = modlab.diagnose(model, optimizer, batch=(x, x.sum(1, keepdim=True)), loss=nn.MSELoss())
    before = photograph(model)
    one = next(one for one in (*found.findings, *found.notes) if one.kind == kind)
    assert one.try_fix(30).outcome == "better"
    assert photograph(model) == before


def test_of_what_a_watch_has_seen_its_diagnosis_forks_the_kept_weights() -> None:
    torch.manual_seed(0)
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e4)
    with modlab.watch(model, optimizer, keep="good") as w:
        for _ in range(40):
            x = torch.randn(32, 4)
            optimizer.zero_grad()
            F.mse_loss(model(x), x[:, :2]).backward()
            optimizer.step()
    found = w.diagnose().findings[0]
    assert found.kind == "not finite by the rate" and not model[0].weight.isfinite().all()  # type: ignore[union-attr, operator]
    assert found.try_fix(20).losses == w.findings[0].try_fix(20).losses
    assert found.try_fix(20).outcome == "better"


def test_on_one_batch_gradients_are_zeroed_anyway() -> None:
    torch.manual_seed(0)
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x = torch.randn(32, 4)
    with modlab.watch(model, optimizer) as w:
        for _ in range(30):
            F.mse_loss(model(x), x[:, :2]).backward()
            optimizer.step()
    with pytest.raises(modlab_errors.ForkError, match=r'a loop of its own, which zeroes gradients(?s:.*)keep="good"'):
        next(one for one in w.alerts if one.kind == "not zeroed").try_fix(20)


def test_without_an_optimizer_it_says_how_a_fix_was_tried() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Softmax(1))
    batch = (torch.randn(32, 4), torch.randint(3, (32,)))
    found = next(one for one in modlab.diagnose(model, batch=batch, loss=nn.CrossEntropyLoss()).experiments if one.outcome == "failed")
    assert "by Adam with lr = 0.001, for no optimizer is known" in str(found.try_fix(30))


# ---- another optimizer


def scheduled(optimizer: Callable[[Any], Any] | None = None, lr: float = 0.01) -> Run:
    """A training whose optimizer is replaced before step 11, under a schedule that halves its rate each five steps."""
    torch.manual_seed(1)
    model = small()
    held = [torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)]

    def step(number: int) -> Tensor:
        if number == 10 and optimizer is not None:
            held[0] = optimizer(model.parameters())
        if number % 5 == 4:
            for group in held[0].param_groups:
                group["lr"] *= 0.5
        x = torch.randn(16, 4)
        held[0].zero_grad()
        loss = (model(x) - x[:, :2]).square().mean()
        loss.backward()
        held[0].step()
        return loss

    return model, [*held], step


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD, torch.optim.RMSprop, torch.optim.AdamW])
def test_a_returned_optimizer_takes_the_place_of_the_one(kind: Any) -> None:
    w, *_ = watched(scheduled)
    fork = w.fork(10, lambda model: kind(model.parameters(), lr=0.02))
    *_, losses = watched(lambda: scheduled(lambda parameters: kind(parameters, lr=0.02)))
    assert fork.losses == losses[fork.record.began : fork.record.began + len(fork.losses)] != fork.original


ORIGINALS: dict[str, Callable[[nn.Module, Any], Any]] = {
    "weights": lambda model, _: model[0].weight.data.zero_(),  # type: ignore[index, union-attr, operator]
    "a buffer": lambda model, _: model[2].running_mean.add_(1),  # type: ignore[index, union-attr, operator]
    "the learning rate": lambda _, optimizer: optimizer.param_groups[0].update(lr=5.0),
    "the mode": lambda model, _: model.eval(),
    "dropout": lambda model, _: setattr(model[3], "p", 0.7),  # type: ignore[index]
}


@pytest.mark.parametrize("name", ORIGINALS)
def test_a_change_of_the_original_is_put_back(name: str) -> None:
    def make() -> Run:
        model = small(nn.BatchNorm1d(8), nn.Dropout(0.2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return trained(model, lambda: model(torch.randn(8, 4)).square().mean(), optimizer)

    w, model, (optimizer,), _ = watched(make)

    def now() -> Any:
        held = [one.tolist() for one in model.state_dict().values()]
        return held, optimizer.param_groups[0]["lr"], [one.training for one in model.modules()], model[3].p  # type: ignore[index]

    before = now()
    with pytest.raises(modlab_errors.ForkError, match="acts on the training itself, which is put back"):
        w.fork(10, lambda _: (ORIGINALS[name](model, optimizer), None))
    assert now() == before


other = nn.Linear(2, 2)
VAIN: tuple[tuple[Any, str], ...] = (
    (lambda model: nn.Sequential(nn.Linear(4, 2)), "returned a Sequential, and a fork takes nothing but an optimizer"),
    (lambda model, optimizer: (model, torch.optim.SGD(model.parameters(), lr=1)), "returned a tuple, .*\n  Return one optimizer"),
    (lambda model: [torch.optim.Adam(model.parameters())], "returned a list"),
    (lambda model: torch.optim.Adam, "returned the class Adam"),
    (lambda model: torch.optim.LBFGS(model.parameters()), "returned an LBFGS, whose step.. needs a closure"),
    (lambda model: {"lr": 1e-3}, "returned a dict"),
    (lambda model: 3, "returned 3, and a fork takes nothing but an optimizer"),
    (lambda model: "lr=3", "returned 'lr=3', and a fork takes"),
    (nn.Linear(3, 3), "got a Linear, a module, but takes a function.*\n  Put it into the copy: def change"),
    (lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 3), "returned a StepLR"),
    (
        lambda model: torch.optim.SGD(other.parameters(), lr=1),
        "returned an SGD that holds no parameter of the fork.\n.*SGD.model.parameters",
    ),
)


def test_what_a_change_returns_in_vain_is_refused() -> None:
    w, *_ = watched(scheduled)
    for change, said in VAIN:
        with pytest.raises(modlab_errors.QuestionError, match=said):
            w.fork(10, change)
    assert w.fork(10, lambda model: model.train()).record.parts < 0
    assert w.fork(10, lambda model: model.pop(1)).record.parts >= 0
    assert w.fork(10, lambda optimizer: (None, optimizer.param_groups[0])).record.parts < 0

    def two() -> Run:
        model, (optimizer,), step = scheduled()
        other = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)
        return model, [optimizer, other], lambda number: (step(number), other.step())[0]

    w, *_ = watched(two)
    with pytest.raises(modlab_errors.QuestionError, match=r"returned an Adam, but this training has 2 optimizers.\n.*optimizer\[0\] = …"):
        w.fork(10, lambda model: torch.optim.Adam(model.parameters()))

    def swapped(model: nn.Module, optimizer: list[Any]) -> None:
        optimizer[0] = torch.optim.Adam(model.parameters())

    assert w.fork(10, swapped).record.parts >= 0


@pytest.mark.parametrize(("name", "meant"), [("learning_rate", "lr"), ("rate", "lr"), ("wd", "weight_decay"), ("decay", "weight_decay")])
def test_what_people_call_a_setting_leads_to_its_name(name: str, meant: str) -> None:
    w, *_ = watched(plain_run, 4)
    with pytest.raises(modlab_errors.QuestionError, match=f"no optimizer has '{name}', .*\n.*  Nearest: '{meant}'"):
        w.fork(2, {name: 0.1})


def test_why_a_fix_cannot_be_tried_is_said() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    (found,) = modlab.diagnose(model, optimizer).findings
    with pytest.raises(modlab_errors.ForkError, match="without a batch"):
        found.try_fix()
    with pytest.raises(modlab_errors.ForkError, match="from a file"):
        pickle.loads(pickle.dumps(found)).try_fix()
    with pytest.raises(modlab_errors.QuestionError, match="takes a number of steps, 1 or more"):
        found.try_fix(0)
    x = torch.randn(8, 4)
    given = modlab.diagnose(model, optimizer, batch=(x, x[:, :1]), loss=nn.MSELoss()).findings
    found = next(one for one in given if one.kind == "not in the optimizer")
    with torch.no_grad():
        model[1].weight.fill_(float("inf"))
    with pytest.raises(modlab_errors.ForkError, match="good weights were not kept"):
        found.try_fix()


@pytest.mark.parametrize("kind", [*fixes.OF_REMEDIES.values(), *fixes.OF_FINDINGS.values(), *fixes.OF_CODE.values()])
def test_each_row_of_the_table_names_a_change(kind: str) -> None:
    assert kind in fixes.CHANGES


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda w: pickle.loads(pickle.dumps(w)), lambda w: w["3"]])
def test_a_copy_of_a_watch_says_that_its_training_is_elsewhere(copied: Callable[[Any], Any]) -> None:
    w, *_ = watched(in_need)
    with pytest.raises(modlab_errors.ForkError, match="comes from a file, was copied, or is a part of another"):
        copied(w).fork(5)


def in_need() -> Run:
    """A training with something for each change."""
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.9), nn.Linear(8, 2), nn.Sigmoid())
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD([model[3].weight], lr=0.1, momentum=0.5, weight_decay=0.01)

    def step(_: int) -> Tensor:
        optimizer.zero_grad()
        loss = model(torch.randn(8, 4)).to(torch.bfloat16).float().square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        optimizer.step()
        return loss

    return model, [optimizer], step


@pytest.mark.parametrize("name", fixes.CHANGES)
def test_each_change_can_be_applied(name: str) -> None:
    w, model, *_ = watched(in_need)
    before = photograph(model)
    fork = of_finding(Finding("made up", facts={"times": 30.0}), KeptGround(w._keeper, 5), "Net", 5, 10, (name, ""))
    assert fork.record.steps == 10 and fork.exact and not fork.record.error, fork
    assert photograph(model) == before


ABOUT_NOTHING = (
    "no weight decay",
    "all parameters in the optimizer",
    "nothing frozen",
    "no clipping",
    "ten times the bound of clipping",
    "dropout of 0.1",
    "no dropout",
    "the loss without its factor",
    "float32",
    "no activation at the end",
)


@pytest.mark.parametrize("name", ABOUT_NOTHING)
def test_a_change_that_would_change_nothing_is_not_tried(name: str) -> None:
    def make() -> Run:
        net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        return trained(net, lambda: net(torch.randn(8, 4)).square().mean(), torch.optim.SGD(net.parameters(), lr=0.1))

    w, *_ = watched(make)
    with pytest.raises(modlab_errors.ForkError, match="finds nothing to change"):
        of_finding(Finding("made up"), KeptGround(w._keeper, 5), "Net", 5, 10, (name, ""))


def dying(at: int) -> Run:
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def step(number: int) -> Tensor:
        if number == at:
            nn.init.constant_(net[2].bias, -20.0)  # type: ignore[arg-type]
        x = torch.randn(32, 4)
        optimizer.zero_grad()
        loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return net, [optimizer], step


def test_units_that_were_dead_from_the_start_get_new_weights() -> None:
    w, model, *_ = watched(lambda: dying(0), steps=60)
    before = photograph(model)
    found = next(one for one in w.findings if one.kind == "dead units")
    fork = found.try_fix()
    assert fork.outcome == "better" and "with new initial weights" in fork.headline and "inputs seen" in str(w.verdict)
    assert photograph(model) == before


def test_units_that_died_are_told_with_the_inputs_since_and_their_fix_is_no_line_of_code() -> None:
    w, *_ = watched(lambda: dying(12), steps=60, budget=1.0)
    found = next(one for one in w.findings if one.kind == "dead units" and "tier" in one.facts)
    assert found.facts["inputs"] == 48 * 32 and not found.facts["never"]
    with pytest.raises(modlab_errors.ForkError, match=r"cannot be applied to a copy by itself: nn\.LeakyReLU"):
        found.try_fix()


def test_an_optimizer_that_climbs_is_turned_round_and_its_loss_is_judged() -> None:
    def make(*, climbs: bool) -> Run:
        net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))

        def loss() -> Tensor:
            x = torch.randn(8, 4)
            return (net(x) - x.sum(1, keepdim=True)).square().mean()

        return trained(net, loss, torch.optim.SGD(net.parameters(), lr=0.02, maximize=climbs))

    w, *_ = watched(lambda: make(climbs=True), steps=100)
    *_, losses = watched(lambda: make(climbs=False), steps=100)
    found = next(one for one in w.findings if one.kind == "wrong sign")
    fork = found.try_fix()
    assert fork.losses == losses[: len(fork.losses)] and fork.outcome == "better"
    assert "with maximize=False" in fork.headline and "remove maximize=True" in str(w.verdict)


def test_float32_leaves_out_what_the_loop_casts() -> None:
    def make(*, narrow: bool) -> Run:
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(_: int) -> Tensor:
            x = torch.randn(8, 4)
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=narrow):
                output = model(x)
            output = output.half() if narrow else output
            loss = (output - x.sum(1, keepdim=True)).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return model, [optimizer], step

    w, *_ = watched(lambda: make(narrow=True))
    fork = of_finding(Finding("underflow"), KeptGround(w._keeper, 0), "Net", 0, STEPS)  # type: ignore[arg-type]
    *_, wide = watched(lambda: make(narrow=False))
    assert fork.losses == wide[: len(fork.losses)] != fork.original


def test_the_fix_of_what_is_left_over_is_not_tried_beside_a_surer_cause() -> None:
    found = Finding("rate too low", facts={"tier": 2})
    sure = Finding("no step", facts={"tier": 0, "backwards": 9})
    fork_results.require_surest(found, [found])
    fork_results.require_surest(sure, [sure, found])
    fork_results.require_surest(Finding("dead units"), [sure])
    with pytest.raises(modlab_errors.ForkError, match="A surer cause was found"):
        fork_results.require_surest(found, [sure, found])


def test_another_rate_is_not_tried_behind_another_cause() -> None:
    other, rate = Finding("no step", facts={"tier": 1, "backwards": 9}), Finding("not finite by the rate", facts={"tier": 1})
    rises = Finding("rises", fixes=(Remedy("smaller steps"),))
    fork_results.require_surest(rate, [rate, other])
    fork_results.require_surest(rises, [rate])
    for one in (rate, rises):
        with pytest.raises(modlab_errors.ForkError, match="A surer cause was found"):
            fork_results.require_surest(one, [other, rate])


def test_a_rate_that_a_warm_up_begins_at_0_is_changed() -> None:
    def make(factor: float) -> Run:
        model, optimizers, step = plain_run()
        optimizers[0].param_groups[0]["lr"] *= factor
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizers[0], lambda number: number / 10)
        return model, optimizers, lambda number: (step(number), schedule.step())[0]

    w, *_ = watched(lambda: make(1.0))
    fork = of_finding(Finding("made up"), KeptGround(w._keeper, 0), "Net", 0, STEPS, ("ten times the learning rate", ""))  # type: ignore[arg-type]
    *_, higher = watched(lambda: make(10.0))
    assert fork.losses == pytest.approx(higher[: len(fork.losses)], nan_ok=True) and fork.losses != fork.original


def test_less_dropout_is_less_everywhere() -> None:
    def make(p: float) -> Run:
        model = nn.TransformerEncoderLayer(4, 2, 8, p, batch_first=True)
        return trained(model, lambda: model(torch.randn(8, 3, 4)).square().mean(), torch.optim.SGD(model.parameters(), lr=0.1))

    w, model_seen, *_ = watched(lambda: make(0.9))
    finding = Finding("too much dropout", "dropout1", {"p": 0.9})
    fork = of_finding(finding, KeptGround(w._keeper, 0), "Net", 0, STEPS, ("no dropout", ""))  # type: ignore[arg-type]
    assert fork.losses[0] != fork.original[0]
    held = [one for one in model_seen.modules() if getattr(one, "p", 0.0) or isinstance(getattr(one, "dropout", None), float)]
    assert len(held) == 4 and all(getattr(one, "p", getattr(one, "dropout", 0.0)) == 0.9 for one in held)
    torch.manual_seed(0)
    model = make(0.9)[0]
    for one in model.modules():
        if isinstance(one, nn.Dropout):
            one.p = 0.0
        if isinstance(one, nn.MultiheadAttention):
            one.dropout = 0.0
    assert fork.losses[0] == float(model(torch.randn(8, 3, 4)).square().mean())


def test_a_factor_that_changes_is_not_taken_out() -> None:
    w, *_ = watched(plain_run)
    finding = Finding("loss too small", facts={"factor": 1e-9, "first": 1.0})
    with pytest.raises(modlab_errors.ForkError, match="finds nothing to change"):
        of_finding(finding, KeptGround(w._keeper, 0), "Net", 0, 10)  # type: ignore[arg-type]


def test_standardized_inputs_are_cut_off_where_the_first_batch_told_too_little() -> None:
    model = nn.Sequential(nn.Linear(3, 1))
    model.register_forward_pre_hook(fixes._Standard(), with_kwargs=True)
    taken: list[Tensor] = []
    model[0].register_forward_pre_hook(lambda _, args: taken.append(args[0]))
    small = torch.stack([1e-9 * torch.randn(64), 5 + torch.randn(64), torch.full((64,), 7.0)], 1)
    model(small)
    model(small + torch.tensor([1.0, 0.0, 0.0]))
    assert torch.allclose(taken[0].std(0, correction=0), torch.tensor([1.0, 1.0, 0.0]), atol=1e-3)
    assert taken[1].abs().max() == fixes.FAR


def clipped(bound: float = 1e-4) -> Run:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def step(_: int) -> Tensor:
        x = torch.randn(32, 4)
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), x.sum(1, keepdim=True))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), bound)
        optimizer.step()
        return loss

    return model, [optimizer], step


def test_a_fork_without_clipping_is_the_loop_without_it() -> None:
    w, *_ = watched(clipped)
    fork = of_finding(Finding("clipped to nothing"), KeptGround(w._keeper, 0), "Net", 0, STEPS)  # type: ignore[arg-type]
    *_, without = watched(lambda: clipped(1e9))
    assert fork.losses == without[: len(fork.losses)] != fork.original


def test_of_doses_the_best_one_is_taken() -> None:
    w, *_ = watched(lambda: plain_run(lr=40.0))
    fork = of_finding(Finding("rate too high"), KeptGround(w._keeper, 0), "Net", 0, STEPS)  # type: ignore[arg-type]
    assert fork.record.facts["what"] == "a three-hundredth of the learning rate"  # between two powers of ten
    trials = {one["what"]: one["loss"] for one in fork.record.facts["trials"]}
    assert min(trials, key=trials.__getitem__) == fork.record.facts["what"] and len(trials) > 3
    assert f"lr = 0.133 ({format.number(min(trials.values()))})" in str(fork) and "lr = 4 (not finite)" in str(fork)
    assert "(with a three-hundredth of the learning rate: lr = 0.133, from" in fork.headline  # the value itself, too
    assert fork.record.facts["lr_before"] == 40
    assert fork.outcome == "better"


def test_a_rate_that_a_schedule_moves_is_that_at_the_change() -> None:
    def scheduled():
        model, optimizers, step = plain_run(lr=40.0)
        schedule = torch.optim.lr_scheduler.StepLR(optimizers[0], 1, 0.9)

        def and_schedule(at):
            loss = step(at)
            schedule.step()
            return loss

        return model, optimizers, and_schedule

    w, *_ = watched(scheduled)
    fork = of_finding(Finding("rate too high"), KeptGround(w._keeper, 0), "Net", 0, STEPS, ("a tenth of the learning rate", ""))  # type: ignore[arg-type]
    assert ": lr = 4 at first" in fork.headline


def test_a_rate_of_zero_becomes_one_and_not_ten_times_zero() -> None:
    assert fixes.fix_of(Finding("rate too low", facts={"rate": 0.0})) == ("a learning rate of 0.001", "")
    assert fixes.fix_of(Finding("rate too low", facts={"rate": 1e-9})) == ("ten times the learning rate", "")


def test_what_a_fix_is_not_about_is_said() -> None:
    w, *_ = watched(clipped)
    with pytest.raises(modlab_errors.ForkError, match="finds nothing to change"):
        of_finding(Finding("overflow", severity="broken"), KeptGround(w._keeper, 0), "Net", 0, STEPS)  # type: ignore[arg-type]


def test_parameters_that_join_an_optimizer_begin_each_step_without_a_gradient() -> None:
    def make(*, whole: bool) -> Run:
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        given = model.parameters() if whole else model[2].parameters()
        return trained(model, lambda: model(torch.ones(4, 4)).square().mean(), torch.optim.SGD(given, lr=0.05))

    w, *_ = watched(lambda: make(whole=False))
    fork = of_finding(Finding("not in the optimizer"), KeptGround(w._keeper, 0), "Net", 0, STEPS)  # type: ignore[arg-type]
    *_, whole = watched(lambda: make(whole=True))
    assert fork.losses == whole[: len(fork.losses)] != fork.original


def test_what_passed_has_nothing_to_fix() -> None:
    w, *_ = watched(plain_run)
    passed = next(one for one in w.verdict.checks if one.state == "passed")
    with pytest.raises(modlab_errors.ForkError, match="nothing to fix"):
        passed.try_fix()


def test_a_sparse_embedding_is_not_given_to_adam() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(50, 8, sparse=True), nn.Flatten(), nn.Linear(8, 1))
    optimizer, targets = torch.optim.Adam(net[2].parameters(), 5e-3), torch.randn(50)
    with modlab.watch(net, optimizer, keep="good") as w:
        for _ in range(30):
            rows = torch.randint(50, (64, 1))
            optimizer.zero_grad()
            F.mse_loss(net(rows), targets[rows]).backward()
            optimizer.step()
    found = next(one for one in w.verdict.findings if one.kind == "not in the optimizer")
    with pytest.raises(modlab_errors.ForkError, match=r"0\.weight gets sparse gradients, which Adam does not take(?s:.*)SparseAdam"):
        found.try_fix(10)
