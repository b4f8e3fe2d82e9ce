"""Nothing is wrong here: ways of repositories in which a rule for everyday nets does not hold."""

from __future__ import annotations

import copy
import math
import random
from collections import deque
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from bench.sick.training import Batch, Training
from bench.sick.working.eighth_healthy import of_a_notebook
from bench.sick.working.fourth_nets import constant
from bench.sick.working.half import HALF
from bench.sick.working.seventh_healthy import mean_square, mlp
from bench.sick.working.third_nets import ADAM, missed


class Rebuilt(nn.Module):
    """An autoencoder, and a judge of its codes."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder, self.judge = mlp(10, 32, 2), mlp(2, 32, 10), mlp(2, 32, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.encoder(x))


@HALF.net("generative")
def a_judge_of_codes_and_three_optimizers() -> Training:
    """One for encoder and decoder, one for the encoder that deceives, one for the judge."""

    def data(count: int) -> Tensor:
        return torch.randn(count, 2) @ constant(2, 10, seed=1301) + 0.05 * torch.randn(count, 10)

    def step(training: Training, _: int) -> None:
        net: Any = training.model
        deceive, judge = training.others
        x, bce, yes, no = data(64), F.binary_cross_entropy_with_logits, torch.ones(64, 1), torch.zeros(64, 1)
        training.optimizer.zero_grad()
        F.mse_loss(net(x), x).backward()
        training.optimizer.step()
        judge.zero_grad()
        d_loss = bce(net.judge(torch.randn(64, 2)), yes) + bce(net.judge(net.encoder(x).detach()), no)
        d_loss.backward()
        judge.step()
        deceive.zero_grad()
        g_loss = bce(net.judge(net.encoder(x)), yes)
        g_loss.backward()
        deceive.step()

    def quality(net: nn.Module) -> float:
        x = data(300)
        return mean_square(net(x), x)

    net = Rebuilt()
    training = Training(net, ADAM, lambda _: (x := data(64), x), F.mse_loss, quality, steps=250, step=step)
    training.optimizer = ADAM([*net.encoder.parameters(), *net.decoder.parameters()], lr=5e-3)
    training.others = (ADAM(net.encoder.parameters(), lr=5e-4), ADAM(net.judge.parameters(), lr=1e-3))
    return training


@HALF.net("mlp")
def some_measurements_are_missing() -> Training:
    """Two of five are NaN in the file, and the loss leaves them out."""
    weight = constant(8, 5, seed=1302)

    def data(count: int) -> Batch:
        x = torch.randn(count, 8)
        return x, torch.tanh(x @ weight)

    def batch(_: int) -> Batch:
        x, y = data(64)
        return x, torch.where(torch.rand_like(y) < 0.4, math.nan, y)

    def criterion(output: Tensor, y: Tensor) -> Tensor:
        known = ~torch.isnan(y)
        return ((output - torch.nan_to_num(y)) ** 2 * known).sum() / known.sum().clamp(min=1)

    def quality(net: nn.Module) -> float:
        x, y = data(300)
        return mean_square(net(x), y)

    return Training(mlp(8, 48, 5), partial(ADAM, lr=1e-2), batch, criterion, quality)


class Stacked(nn.Module):
    """An ensemble in one call: the weights of all in stacks, and a skeleton into which they are put."""

    def __init__(self, count: int = 3) -> None:
        super().__init__()
        nets = [mlp(4, 24, 1, act=nn.Tanh) for _ in range(count)]
        stacks, _ = stack_module_state(nets)  # type: ignore[arg-type]
        self.names = [*stacks]
        self.stacks = nn.ParameterList(nn.Parameter(one.detach().clone()) for one in stacks.values())
        self.skeleton = [copy.deepcopy(nets[0])]

    def forward(self, x: Tensor) -> Tensor:
        def one(weights: dict[str, Tensor]) -> Tensor:
            return functional_call(self.skeleton[0], weights, (x,))

        return vmap(one)(dict(zip(self.names, self.stacks, strict=True)))


def waves(count: int) -> Batch:
    x = torch.randn(count, 4)
    return x, torch.sin(2 * x[:, :1]) + x[:, 1:2] * x[:, 2:3] + 0.1 * torch.randn(count, 1)


@HALF.net("mlp")
def an_ensemble_in_one_call() -> Training:
    def quality(net: nn.Module) -> float:
        x, y = waves(300)
        return mean_square(net(x).mean(0), y)

    return Training(
        Stacked(), partial(ADAM, lr=1e-2), lambda _: waves(64), lambda out, y: (out - y).square().mean((1, 2)).sum(), quality, steps=250
    )


class Proxies(nn.Module):
    """Distances to one point for each kind."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.proxies = mlp(10, 48, 8), nn.Parameter(torch.randn(6, 8))

    def forward(self, x: Tensor) -> Tensor:
        return -(torch.cdist(F.normalize(self.body(x)) * 3, F.normalize(self.proxies) * 3) ** 2)


@HALF.net("embedding")
def proxies_as_in_the_first_paper() -> Training:
    """The own proxy does not stand below the line, so that the loss goes far below zero."""

    def data(count: int) -> Batch:
        label = torch.randint(6, (count,))
        return constant(6, 10, seed=1303)[label] + 0.7 * torch.randn(count, 10), label

    def criterion(near: Tensor, label: Tensor) -> Tensor:
        own = F.one_hot(label, 6).bool()
        return (-near[own] + torch.logsumexp(near.masked_fill(own, -1e9), 1)).mean()

    def quality(net: nn.Module) -> float:
        x, label = data(300)
        return missed(net(x), label)

    net = Proxies()
    training = Training(net, ADAM, lambda _: data(64), criterion, quality)
    training.optimizer = ADAM([{"params": net.body.parameters(), "lr": 3e-3}, {"params": [net.proxies], "lr": 3e-2}])
    return training


class Dueling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.advantage, self.value = nn.Linear(9, 32), nn.Linear(32, 2), nn.Linear(32, 1)

    def forward(self, place: Tensor) -> Tensor:
        h = F.relu(self.body(place))
        advantage = self.advantage(h)
        return self.value(h) + advantage - advantage.mean(-1, keepdim=True)


class Walk:
    """To the right end, in twenty steps."""

    def __init__(self, choice: random.Random) -> None:
        self.place, self.time = choice.randint(1, 3), 0

    def seen(self) -> Tensor:
        return F.one_hot(torch.tensor(self.place), 9).float()

    def go(self, right: int) -> tuple[float, bool]:
        self.place, self.time = max(0, self.place + (1 if right else -1)), self.time + 1
        there = self.place == 8
        return (1.0 if there else -0.05), there or self.time >= 20


def _replay(training: Training, target: nn.Module, rows: list[tuple[Any, ...]]) -> None:
    before, act, reward, after, there = (
        torch.stack(one) if torch.is_tensor(one[0]) else torch.tensor(one) for one in zip(*rows, strict=True)
    )
    with torch.no_grad():
        best = training.model(after).argmax(1, keepdim=True)
        value = reward + 0.95 * (1 - there) * target(after).gather(1, best).squeeze(1)
    loss = F.smooth_l1_loss(training.model(before).gather(1, act.unsqueeze(1)).squeeze(1), value)
    training.optimizer.zero_grad()
    loss.backward()
    training.optimizer.step()


@HALF.net("mlp")
def values_that_grow_from_nothing() -> Training:
    """A dueling double DQN: the reward comes seldom, so that the loss begins small and rises with the values."""

    def loop(training: Training) -> None:
        choice, memory, target = random.Random(0), deque[tuple[Any, ...]](maxlen=1000), copy.deepcopy(training.model)
        made, curious = 0, 1.0
        for _ in range(60):
            world, done = Walk(choice), False
            while not done:
                before = world.seen()
                with torch.no_grad():
                    act = choice.randrange(2) if choice.random() < curious else int(training.model(before).argmax())
                reward, done = world.go(act)
                memory.append((before, act, reward, world.seen(), float(done and reward > 0)))
                if len(memory) >= 64:
                    _replay(training, target, choice.sample(list(memory), 32))
                made += 1
                if made % 50 == 0:
                    target.load_state_dict(training.model.state_dict())
            curious = max(0.05, curious * 0.93)

    def quality(net: nn.Module) -> float:
        left = 0.95 ** torch.arange(7, -1, -1)
        return float((net(torch.eye(9)[:8])[:, 1] - (2 * left - 1)).square().mean().sqrt())

    return Training(
        Dueling(),
        partial(ADAM, lr=3e-3),
        lambda _: (torch.eye(9), torch.ones(9).long()),
        F.cross_entropy,
        quality,
        **of_a_notebook(loop),
    )


class Spoken(nn.Module):
    """A GRU that reads, and one that says, with a look back: time stands first, in all of it."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.reader = nn.Embedding(12, 24), nn.GRU(24, 48)
        self.score, self.speaker, self.out = nn.Linear(96, 1), nn.GRU(72, 48), nn.Linear(48, 12)

    def forward(self, x: Tensor, said: Tensor) -> Tensor:
        memory, state = self.reader(self.table(x))
        outputs = []
        for last in said:
            share = self.score(torch.cat([state.expand_as(memory), memory], 2)).softmax(0)
            context = (share * memory).sum(0, keepdim=True)
            output, state = self.speaker(torch.cat([self.table(last)[None], context], 2), state)
            outputs.append(self.out(output[0]))
        return torch.stack(outputs)


@HALF.net("recurrent")
def the_other_way_round_with_time_first() -> Training:
    def batch(_: int, count: int = 64) -> Batch:
        x = torch.randint(2, 12, (5, count))
        return (x, torch.cat([torch.zeros_like(x[:1]), x.flip(0)[:-1]])), x.flip(0)

    def quality(net: nn.Module) -> float:
        inputs, y = batch(0, 200)
        return missed(net(*inputs), y)

    return Training(
        Spoken(),
        partial(ADAM, lr=8e-3),
        batch,
        lambda out, y: F.cross_entropy(out.flatten(0, 1), y.flatten()),
        quality,
        steps=150,
        clip=1.0,
    )


class Level(nn.Module):
    """Mean and spread of a window are taken out before a line, and put back after it."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(24, 6)

    def forward(self, x: Tensor) -> Tensor:
        mean, spread = x.mean(1, keepdim=True), x.std(1, keepdim=True) + 1e-5
        return self.line((x - mean) / spread) * spread + mean


@HALF.net("mlp")
def each_shop_has_its_level() -> Training:
    """Sales of hundreds of which a week tells little: every day of a shop tells every other."""

    def data(count: int) -> Batch:
        wave = torch.sin(2 * math.pi * (torch.arange(30.0) + torch.randint(6, (count, 1))) / 6)
        sales = 100 * torch.randint(1, 9, (count, 1)) + 10 * wave + torch.randn(count, 30)
        return sales[:, :24], sales[:, 24:]

    def quality(net: nn.Module) -> float:
        x, y = data(300)
        return mean_square(net(x), y)

    return Training(Level(), partial(ADAM, lr=1e-2), lambda _: data(32), F.mse_loss, quality, steps=250)


class Links(nn.Module):
    """Two rounds among neighbours, without biases, as in the paper; a link is a product of what two nodes have become."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.mean, self.log = (nn.Linear(*sizes, bias=False) for sizes in ((8, 16), (16, 4), (16, 4)))
        self.divergence = torch.zeros(())

    def forward(self, x: Tensor, near: Tensor) -> Tensor:
        h = F.relu(near @ self.first(x))
        mean, log = near @ self.mean(h), near @ self.log(h)
        self.divergence = -0.5 / len(x) * (1 + 2 * log - mean**2 - (2 * log).exp()).sum(1).mean()
        z = mean + torch.randn_like(mean) * log.exp() if self.training else mean
        return z @ z.T


@HALF.net("embedding")
def links_of_a_variational_graph() -> Training:
    kind = torch.arange(40) % 3
    alike = kind.unsqueeze(1) == kind
    chance = torch.where(alike, 0.35, 0.05)
    link = (constant(40, 40, seed=1304) < torch.distributions.Normal(0.0, 1.0).icdf(chance)).float().triu(1)
    link = link + link.T + torch.eye(40)
    root = link.sum(1).rsqrt()
    inputs = (0.6 * constant(3, 8, seed=1305)[kind] + constant(40, 8, seed=1306), root.unsqueeze(1) * link * root)
    rare = (link.numel() - link.sum()) / link.sum()
    criterion = partial(F.binary_cross_entropy_with_logits, pos_weight=rare)

    def step(training: Training, _: int) -> None:
        net: Any = training.model
        loss = criterion(net(*inputs), link) + net.divergence
        training.optimizer.zero_grad()
        loss.backward()
        training.optimizer.step()

    def quality(net: nn.Module) -> float:
        said = net(*inputs)
        within, between = said[alike & ~torch.eye(40).bool()], said[~alike]
        return 1 - (within.unsqueeze(1) > between).float().mean().item()

    return Training(Links(), partial(ADAM, lr=1e-2), lambda _: (inputs, link), criterion, quality, steps=150, step=step)
