"""Nothing is wrong here: loops as they stand in public repositories, around small nets of our own. Tables, series, graphs and tastes."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm
from torch.optim.lr_scheduler import OneCycleLR, ReduceLROnPlateau
from torch.utils.data import DataLoader, TensorDataset

from bench.sick.training import Batch, Training
from bench.sick.working.eighth_healthy import of_a_notebook
from bench.sick.working.fourth_nets import constant
from bench.sick.working.half import HALF
from bench.sick.working.seventh_healthy import mean_square, mlp
from bench.sick.working.third_nets import ADAM, ADAMW, SGD, missed

# ---- tables ------------------------------------------------------------------------------------------


class Wrapped(nn.Module):
    """A net and what is made of its output."""

    def __init__(self, net: nn.Module, last: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.net, self.last = net, last

    def forward(self, *x: Tensor) -> Tensor:
        return self.last(self.net(*x))


@HALF.net("mlp")
def from_scratch_with_sums() -> Training:
    """Softmax, loss and the step are written down; the loss of each row comes back, its sum goes backward, a step divides by the rows."""

    def shirts(count: int) -> tuple[Tensor, Tensor]:
        label = torch.randint(5, (count,))
        return (0.3 * constant(5, 30, seed=910)[label] + 0.4 * torch.rand(count, 30) + 0.2).clamp(0, 1), label

    class Scratch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.W, self.b = nn.Parameter(0.01 * torch.randn(30, 5)), nn.Parameter(torch.zeros(5))

        def forward(self, x: Tensor) -> Tensor:
            e = torch.exp(x.reshape(-1, 30) @ self.W + self.b)
            return e / e.sum(1, keepdim=True)

    def cross_entropy(y_hat: Tensor, y: Tensor) -> Tensor:
        return -torch.log(y_hat[range(len(y_hat)), y])

    train = DataLoader(TensorDataset(*shirts(1200)), batch_size=64, shuffle=True)

    def loop(training: Training) -> None:
        for _ in range(8):
            for x, y in train:
                loss = cross_entropy(training.model(x), y)
                loss.sum().backward()
                with torch.no_grad():
                    for param in training.model.parameters():
                        param -= 0.1 * param.grad / len(y)
                        param.grad.zero_()

    def quality(net: nn.Module) -> float:
        x, y = shirts(400)
        return missed(net(x), y)

    return Training(
        Scratch(), partial(SGD, lr=0.1), lambda _: shirts(64), lambda out, y: cross_entropy(out, y).mean(), quality, **of_a_notebook(loop)
    )


@HALF.net("mlp")
def a_rate_of_five_for_prices() -> Training:
    """One linear layer, prices in thousands, Adam at a rate of five; the error of logarithms is only looked at."""

    def homes(count: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(count, 24)
        x[:, 12:] = (x[:, 12:] > 0.8).float()
        return x, (180 + x @ (18 * constant(24, seed=911)) / 2 + 8 * torch.randn(count)).clamp(min=20).unsqueeze(1)

    train, valid = homes(500), homes(120)

    def log_rmse(net: nn.Module) -> float:
        clipped = torch.clamp(net(valid[0]), 1, float("inf"))
        return F.mse_loss(clipped.log(), valid[1].log()).sqrt().item()

    def loop(training: Training) -> None:
        history = []
        for _ in range(40):
            for x, y in DataLoader(TensorDataset(*train), batch_size=64, shuffle=True):
                training.optimizer.zero_grad()
                loss = training.criterion(training.model(x), y)
                loss.backward()
                training.optimizer.step()
            history.append(log_rmse(training.model))

    return Training(nn.Linear(24, 1), partial(ADAM, lr=5.0), lambda _: homes(64), nn.MSELoss(), log_rmse, **of_a_notebook(loop))


@HALF.net("mlp")
def a_margin_and_the_whole_data() -> Training:
    """Twenty lines of a tiny engine: a hinge, squares of all weights added, a rate that goes from one to a tenth."""

    def moons(count: int) -> tuple[Tensor, Tensor]:
        side = torch.randint(2, (count,))
        t = math.pi * torch.rand(count)
        x = torch.stack([t.cos() + side, (1 - 2 * side) * t.sin() + 0.5 * side], 1)
        return x + 0.1 * torch.randn(count, 2), 2.0 * side - 1

    x, y = moons(100)

    def loop(training: Training) -> None:
        for k in range(100):
            scores = training.model(x).squeeze(1)
            data_loss = (1 - y * scores).relu().mean()
            total = data_loss + 1e-4 * sum((p * p).sum() for p in training.model.parameters())
            training.model.zero_grad()
            total.backward()
            for p in training.model.parameters():
                p.data -= (1.0 - 0.9 * k / 100) * p.grad

    def quality(net: nn.Module) -> float:
        z, side = moons(300)
        return (net(z).squeeze(1).sign() != side).float().mean().item()

    return Training(
        mlp(2, 16, 16, 1), partial(SGD, lr=1.0), lambda _: (x, y), lambda out, y: (1 - y * out.squeeze(1)).relu().mean(), quality,
        **of_a_notebook(loop),
    )  # fmt: skip


@HALF.net("mlp")
def three_letters_make_a_fourth() -> Training:
    """Weights of all layers are made by hand with gains, the last layer begins a tenth as large, a tenth of the rate at the end."""
    follow = constant(3, 15, 15, seed=912) * 1.5

    def grams(count: int) -> tuple[Tensor, Tensor]:
        x = torch.randint(15, (count, 3))
        return x, torch.distributions.Categorical(logits=follow[torch.arange(3), x].sum(1)).sample()

    class Names(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.C = nn.Parameter(torch.randn(15, 8))
            self.W1, self.W2 = nn.Parameter(torch.randn(24, 64) * (5 / 3) / 24**0.5), nn.Parameter(torch.randn(64, 15) * 0.01)
            self.b2 = nn.Parameter(torch.zeros(15))
            self.gain, self.bias = nn.Parameter(torch.ones(1, 64)), nn.Parameter(torch.zeros(1, 64))
            self.register_buffer("mean_running", torch.zeros(1, 64))
            self.register_buffer("std_running", torch.ones(1, 64))

        def forward(self, x: Tensor) -> Tensor:
            h = self.C[x].view(len(x), -1) @ self.W1
            if self.training:
                mean, std = h.mean(0, keepdim=True), h.std(0, keepdim=True)
                with torch.no_grad():
                    self.mean_running.mul_(0.99).add_(0.01 * mean)
                    self.std_running.mul_(0.99).add_(0.01 * std)
            else:
                mean, std = self.mean_running, self.std_running
            return torch.tanh(self.gain * (h - mean) / std + self.bias) @ self.W2 + self.b2

    train = grams(4000)

    def loop(training: Training) -> None:
        lossi = []
        for i in range(900):
            ix = torch.randint(0, 4000, (32,))
            loss = F.cross_entropy(training.model(train[0][ix]), train[1][ix])
            for p in training.model.parameters():
                p.grad = None
            loss.backward()
            lr = 0.1 if i < 600 else 0.01
            for p in training.model.parameters():
                p.data += -lr * p.grad
            lossi.append(loss.log10().item())

    def quality(net: nn.Module) -> float:
        x, y = grams(1000)
        return F.cross_entropy(net(x), y).item() - 0.8

    return Training(Names(), partial(SGD, lr=0.1), lambda _: grams(32), F.cross_entropy, quality, **of_a_notebook(loop))


@HALF.net("embedding")
def wide_and_deep() -> Training:
    """Adagrad for the deep side, plain steps with a little L1 for the wide one, one loss of both."""
    effect, cross = constant(2, 25, seed=913), constant(25, 25, seed=914)

    def apps(count: int) -> tuple[Tensor, Tensor]:
        x = torch.randint(25, (count, 2))
        return x, effect[torch.arange(2), x].sum(1) + 1.5 * cross[x[:, 0] % 5, x[:, 1] % 5]

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide, self.emb = nn.Embedding(625, 1), nn.Embedding(50, 8)
            nn.init.zeros_(self.wide.weight)
            self.deep = mlp(16, 32, 16, 1)

        def forward(self, x: Tensor) -> Tensor:
            deep = self.deep(self.emb(x + torch.tensor([0, 25])).flatten(1))
            return (self.wide(x[:, 0] * 25 + x[:, 1]) + deep).squeeze(1)

    def batch(_: int) -> Batch:
        x, logit = apps(256)
        return x, torch.bernoulli(logit.sigmoid())

    def quality(net: nn.Module) -> float:
        x, logit = apps(1000)
        return (net(x).sigmoid() - logit.sigmoid()).square().mean().item()

    def step(training: Training, number: int) -> None:
        x, y = batch(number)
        for optimizer in training.optimizers:
            optimizer.zero_grad()
        loss = training.criterion(training.model(x), y) + 1e-5 * training.model.wide.weight.abs().sum()
        loss.backward()
        for optimizer in training.optimizers:
            optimizer.step()

    model = Net()
    training = Training(model, partial(ADAM, lr=0.05), batch, F.binary_cross_entropy_with_logits, quality, steps=300, step=step)
    training.optimizer = torch.optim.Adagrad([*model.emb.parameters(), *model.deep.parameters()], lr=0.05)
    training.others = (SGD(model.wide.parameters(), lr=0.5),)
    return training


@HALF.net("embedding")
def ratings_within_a_range() -> Training:
    """A product of two tables through a sigmoid that ends at five and a half; one cycle, decay, momentum that moves, too."""
    who, what = 0.9 * constant(40, 2, seed=915), constant(30, 2, seed=916)

    def ratings(count: int) -> Batch:
        u, i = torch.randint(40, (count,)), torch.randint(30, (count,))
        return (u, i), (3 + (who[u] * what[i]).sum(1) + 0.3 * torch.randn(count)).clamp(0.5, 5)

    class Dot(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.u, self.i, self.ub, self.ib = (nn.Embedding(n, w) for n, w in ((40, 6), (30, 6), (40, 1), (30, 1)))
            for table in (self.u, self.i, self.ub, self.ib):
                nn.init.trunc_normal_(table.weight, std=0.01)

        def forward(self, u: Tensor, i: Tensor) -> Tensor:
            return ((self.u(u) * self.i(i)).sum(1) + self.ub(u).squeeze(1) + self.ib(i).squeeze(1)).sigmoid() * 5.5

    def quality(net: nn.Module) -> float:
        x, y = ratings(800)
        return mean_square(net(*x), y)

    training = Training(Dot(), partial(ADAMW, lr=0.05, weight_decay=0.01), lambda _: ratings(64), nn.MSELoss(), quality, steps=400)
    training.schedulers = [OneCycleLR(training.optimizer, max_lr=0.05, total_steps=401, base_momentum=0.85)]
    return training


@HALF.net("embedding")
def two_towers() -> Training:
    """The other rows of the batch are the wrong answers; both vectors have length one, the temperature is fixed."""
    taste, kind = torch.randint(6, (80,), generator=torch.Generator().manual_seed(917)), torch.arange(60) % 6

    class Towers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.user = nn.Sequential(nn.Embedding(80, 16), nn.Linear(16, 16))
            self.item = nn.Sequential(nn.Embedding(60, 16), nn.Linear(16, 16))

        def forward(self, user: Tensor, item: Tensor) -> Tensor:
            return F.normalize(self.user(user), dim=-1) @ F.normalize(self.item(item), dim=-1).T / 0.1

    def batch(_: int) -> Batch:
        user = torch.randint(80, (64,))
        return (user, 6 * torch.randint(10, (64,)) + taste[user]), torch.arange(64)

    def quality(net: nn.Module) -> float:
        best = net(torch.arange(80), torch.arange(60)).topk(10, 1).indices
        return (kind[best] != taste.unsqueeze(1)).float().mean().item()

    return Training(Towers(), partial(torch.optim.Adagrad, lr=0.1), batch, F.cross_entropy, quality, steps=300)


@HALF.net("mlp")
def columns_swapped_with_other_rows() -> Training:
    """An autoencoder of a table: a seventh of the entries comes from other rows, wide layers, a rate that falls each epoch."""
    mix = constant(4, 20, seed=918)

    def table(count: int) -> Tensor:
        return torch.tanh(torch.randn(count, 4) @ mix) + 0.05 * torch.randn(count, 20)

    x = table(1500)

    def batch(_: int) -> Batch:
        rows = x[torch.randint(1500, (64,))]
        other = x[torch.randint(1500, (64, 20)), torch.arange(20)]
        return torch.where(torch.rand(64, 20) < 0.15, other, rows), rows

    def quality(net: nn.Module) -> float:
        rows = table(300)
        return mean_square(net(rows), rows)

    training = Training(mlp(20, 64, 64, 64, 20), partial(SGD, lr=0.05, momentum=0.9), batch, nn.MSELoss(), quality, steps=400)
    training.schedulers = [torch.optim.lr_scheduler.ExponentialLR(training.optimizer, 0.997)]
    return training


@HALF.net("mlp")
def a_hundred_rare_effects() -> Training:
    """Norm, dropout and weight-normed layers; one answer in fifty is yes, labels pulled in by a thousandth, one cycle."""
    rule = constant(30, 40, seed=919)

    def drugs(count: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(count, 30) * torch.linspace(0.2, 5, 30) + 2
        return x, (((x - 2) / torch.linspace(0.2, 5, 30)) @ rule / 30**0.5 > 2.05).float()

    net = nn.Sequential(
        nn.BatchNorm1d(30), nn.Dropout(0.1), weight_norm(nn.Linear(30, 96)), nn.ReLU(), nn.BatchNorm1d(96), nn.Dropout(0.2),
        weight_norm(nn.Linear(96, 40)),
    )  # fmt: skip

    def criterion(out: Tensor, y: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(out, y.clamp(0.001, 0.999))

    def quality(net: nn.Module) -> float:
        x, y = drugs(600)
        return F.binary_cross_entropy_with_logits(net(x), y).item()

    training = Training(net, partial(ADAM, lr=1e-2, weight_decay=1e-5), lambda _: drugs(128), criterion, quality, steps=300)
    training.schedulers = [OneCycleLR(training.optimizer, max_lr=1e-2, total_steps=301, pct_start=0.1, div_factor=1e3)]
    return training


@HALF.net("mlp")
def treated_or_not() -> Training:
    """Two heads, of which each row asks the one of its group; a third head tells the group itself."""

    def patients(count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x = torch.randn(count, 8)
        treated = (torch.rand(count) < (0.8 * x[:, 0]).sigmoid()).float()
        effect = 1 + x[:, 1].tanh()
        base = x[:, 0] + x[:, 2].abs()
        return x, treated, base + treated * effect + 0.5 * torch.randn(count), effect

    class Dragon(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(8, 48), nn.ELU(), nn.Linear(48, 48), nn.ELU())
            self.y0, self.y1, self.t = (nn.Sequential(nn.Linear(48, 24), nn.ELU(), nn.Linear(24, 1)) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            h = self.body(x)
            return torch.cat([self.y0(h), self.y1(h), self.t(h)], 1)

    def criterion(out: Tensor, told: Tensor) -> Tensor:
        y, t = told.unbind(1)
        factual = t * (y - out[:, 1]) ** 2 + (1 - t) * (y - out[:, 0]) ** 2
        return factual.mean() + F.binary_cross_entropy_with_logits(out[:, 2], t)

    def batch(_: int) -> Batch:
        x, t, y, _ = patients(128)
        return x, torch.stack([y, t], 1)

    def quality(net: nn.Module) -> float:
        x, _, _, effect = patients(600)
        out = net(x)
        return mean_square(out[:, 1] - out[:, 0], effect)

    return Training(Dragon(), partial(ADAM, lr=2e-3, weight_decay=1e-3), batch, criterion, quality, steps=350)


@HALF.net("mlp")
def what_the_old_policy_logged() -> Training:
    """Rewards of logged choices over their chances: the loss is minus what would have been won, and noisy."""
    best = constant(6, 4, seed=920)

    def logged(count: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(count, 6)
        action = torch.randint(4, (count,))
        reward = torch.bernoulli((1.5 * (x @ best)[torch.arange(count), action] - 1).sigmoid())
        return x, torch.stack([action.float(), reward, torch.full((count,), 0.25)], 1)

    def criterion(out: Tensor, told: Tensor) -> Tensor:
        action, reward, chance = told.unbind(1)
        ratio = out.softmax(1)[torch.arange(len(out)), action.long()] / chance
        return -(ratio.clamp(max=10) * (reward - 0.4)).mean()

    def quality(net: nn.Module) -> float:
        x = torch.randn(600, 6)
        return (net(x).argmax(1) != (x @ best).argmax(1)).float().mean().item()

    return Training(mlp(6, 32, 4), partial(ADAM, lr=5e-3), lambda _: logged(256), criterion, quality, steps=300)


@HALF.net("mlp")
def pages_in_order() -> Training:
    """One query a step: all pairs of its pages whose grades differ, a logistic loss of the difference of scores."""
    rule = constant(8, seed=921)

    def query(_: int = 0) -> tuple[Tensor, Tensor]:
        x = torch.randn(int(torch.randint(6, 14, ())), 8) + torch.randn(1, 8)
        score = (x - x.mean(0)) @ rule + 0.5 * torch.randn(len(x))
        return x, torch.bucketize(score, torch.tensor([-2.0, 0.0, 2.0, 4.0])).float()

    def criterion(score: Tensor, grade: Tensor) -> Tensor:
        score = score.squeeze(1)
        better = (grade.unsqueeze(1) > grade.unsqueeze(0)).float()
        return (better * F.softplus(score.unsqueeze(0) - score.unsqueeze(1))).sum() / better.sum().clamp(min=1)

    def quality(net: nn.Module) -> float:
        some = [query() for _ in range(60)]
        wrong = 0.0
        for x, grade in some:
            s, better = net(x).squeeze(1), grade.unsqueeze(1) > grade.unsqueeze(0)
            wrong += (s.unsqueeze(1) <= s.unsqueeze(0))[better].float().mean().item() if better.any() else 0.0
        return wrong / 60

    return Training(mlp(8, 32, 16, 1), partial(ADAM, lr=2e-3), query, criterion, quality, steps=300)


@HALF.net("mlp")
def how_sure_and_why() -> Training:
    """Four numbers for each answer: a level, and how much evidence there is for it; two losses of which one is a penalty."""

    def data(count: int) -> tuple[Tensor, Tensor]:
        x = 8 * torch.rand(count, 1) - 4
        return x, x**3 / 20 + 0.3 * torch.randn(count, 1)

    class Evidence(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = mlp(1, 64, 64, 4)

        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            mu, v, alpha, beta = self.net(x).split(1, 1)
            return mu, F.softplus(v) + 1e-4, F.softplus(alpha) + 1, F.softplus(beta) + 1e-4

    def criterion(out: tuple[Tensor, ...], y: Tensor) -> Tensor:
        mu, v, a, b = out
        omega = 2 * b * (1 + v)
        nll = 0.5 * torch.log(math.pi / v) - a * omega.log() + (a + 0.5) * torch.log((y - mu) ** 2 * v + omega)
        nll = nll + torch.lgamma(a) - torch.lgamma(a + 0.5)
        return (nll + 0.01 * (y - mu).abs() * (2 * v + a)).mean()

    def quality(net: nn.Module) -> float:
        x = 8 * torch.rand(400, 1) - 4
        return mean_square(net(x)[0], x**3 / 20)

    return Training(Evidence(), partial(ADAM, lr=5e-3), lambda _: data(128), criterion, quality, steps=400)


# ---- series ------------------------------------------------------------------------------------------


def seasons(count: int, length: int = 36) -> Tensor:
    """Sales of some shops: each its own level, a week, a little trend."""
    time = torch.arange(length) + torch.randint(7, (count, 1))
    level = torch.exp(1 + torch.randn(count, 1))
    return level * (1 + 0.5 * torch.sin(2 * math.pi * time / 7) + 0.01 * time) + 0.05 * level * torch.randn(count, length)


class Beats(nn.Module):
    """Blocks that take away what they explain, and add what they foresee."""

    def __init__(self, back: int = 28, ahead: int = 8) -> None:
        super().__init__()
        self.back = back
        self.blocks = nn.ModuleList(mlp(back, 48, 48, back + ahead) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        level = x.mean(1, keepdim=True)
        x, forecast = x / level, torch.zeros(())
        for block in self.blocks:
            theta = block(x)
            x, forecast = x - theta[:, : self.back], forecast + theta[:, self.back :]
        return forecast * level


@HALF.net("mlp")
def blocks_of_residuals() -> Training:
    """A symmetric percentage as the loss, a rate that falls where validation stands still."""

    def smape(out: Tensor, y: Tensor) -> Tensor:
        return 200 * ((out - y).abs() / (out.abs() + y.abs()).detach().clamp(min=1e-3)).mean()

    x = seasons(800)
    held = seasons(200)

    def loop(training: Training) -> None:
        scheduler = ReduceLROnPlateau(training.optimizer, factor=0.5, patience=2)
        for _ in range(12):
            training.model.train()
            for (rows,) in DataLoader(TensorDataset(x), batch_size=32, shuffle=True):
                training.optimizer.zero_grad()
                smape(training.model(rows[:, :28]), rows[:, 28:]).backward()
                training.optimizer.step()
            training.model.eval()
            with torch.no_grad():
                scheduler.step(smape(training.model(held[:, :28]), held[:, 28:]))

    def quality(net: nn.Module) -> float:
        return smape(net(held[:, :28]), held[:, 28:]).item()

    return Training(
        Beats(), partial(ADAM, lr=2e-3), lambda _: (x[:32, :28], x[:32, 28:]), smape, quality, **of_a_notebook(loop)
    )  # fmt: skip


class Likely(nn.Module):
    """What comes next as a normal distribution, in the size of each series."""

    def __init__(self) -> None:
        super().__init__()
        self.shop, self.lstm = nn.Embedding(1, 4), nn.LSTM(5, 32, 2, dropout=0.1, batch_first=True)
        self.mu, self.presigma = nn.Linear(32, 1), nn.Linear(32, 1)

    def forward(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        shop = self.shop(torch.zeros(x.shape, dtype=torch.long))
        h, _ = self.lstm(torch.cat([(x / v).unsqueeze(-1), shop], -1))
        return self.mu(h).squeeze(-1) * v, F.softplus(self.presigma(h)).squeeze(-1) * v + 1e-6


@HALF.net("recurrent")
def likely_sales() -> Training:
    """Minus the log of a normal density of sales as they are, each series divided by its mean inside the net."""

    def batch(_: int) -> Batch:
        x = seasons(48, 24)
        return (x[:, :-1], 1 + x.mean(1, keepdim=True)), x[:, 1:]

    def criterion(out: tuple[Tensor, Tensor], y: Tensor) -> Tensor:
        return -torch.distributions.Normal(*out).log_prob(y).mean()

    def quality(net: nn.Module) -> float:
        x, y = batch(0)
        return (net(*x)[0] - y).div(x[1]).square().mean().item()

    return Training(Likely(), partial(ADAM, lr=5e-3), batch, criterion, quality, steps=250)


class Causal(nn.Module):
    """Dilated convolutions that look back, weights as direction and length."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.convs = nn.ModuleList(weight_norm(nn.Conv1d(2 if not i else width, width, 3, dilation=2**i)) for i in range(4))
        self.dropout, self.linear = nn.Dropout(0.05), nn.Linear(width, 1)
        for conv in self.convs:
            nn.init.normal_(conv.parametrizations.weight.original1, 0, 0.1)

    def forward(self, x: Tensor) -> Tensor:
        for i, conv in enumerate(self.convs):
            y = self.dropout(F.relu(conv(F.pad(x, (2 * 2**i, 0)))))
            x = F.relu(y + x) if i else y
        return self.linear(x[:, :, -1])


@HALF.net("cnn")
def two_numbers_that_are_marked() -> Training:
    """A temporal convolutional net finds the sum of the two marked ones, clipped at a half."""

    def sums(count: int) -> tuple[Tensor, Tensor]:
        x, mark = torch.rand(count, 1, 20), torch.zeros(count, 1, 20)
        mark[torch.arange(count), 0, torch.randint(10, (count,))] = 1
        mark[torch.arange(count), 0, torch.randint(10, 20, (count,))] = 1
        return torch.cat([x, mark], 1), (x * mark).sum(2)

    def quality(net: nn.Module) -> float:
        x, y = sums(400)
        return mean_square(net(x), y)

    return Training(Causal(), partial(ADAM, lr=4e-3), lambda _: sums(32), nn.MSELoss(), quality, steps=500, clip=0.5)


@HALF.net("cnn")
def words_from_the_raw_sound() -> Training:
    """Wide strides over the raw wave, norms, decay, a tenth of the rate at the end, a mean over what is left of time."""

    def sounds(count: int) -> tuple[Tensor, Tensor]:
        label = torch.randint(4, (count,))
        time = torch.arange(400) / 400
        pitch = torch.tensor([20.0, 33.0, 47.0, 71.0])[label].unsqueeze(1) * (0.95 + 0.1 * torch.rand(count, 1))
        wave = 0.1 * torch.sin(2 * math.pi * (pitch * time + torch.rand(count, 1))) * torch.exp(-2 * time)
        return (wave + 0.03 * torch.randn(count, 400)).unsqueeze(1), label

    class M5(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1, self.pool1 = nn.Conv1d(1, 16, 40, stride=4), nn.BatchNorm1d(16), nn.MaxPool1d(2)
            self.conv2, self.bn2, self.pool2 = nn.Conv1d(16, 32, 3), nn.BatchNorm1d(32), nn.MaxPool1d(2)
            self.fc1 = nn.Linear(32, 4)

        def forward(self, x: Tensor) -> Tensor:
            x = self.pool1(F.relu(self.bn1(self.conv1(x))))
            x = self.pool2(F.relu(self.bn2(self.conv2(x))))
            x = F.avg_pool1d(x, x.shape[-1]).permute(0, 2, 1)
            return F.log_softmax(self.fc1(x), dim=2).squeeze(1)

    def quality(net: nn.Module) -> float:
        x, y = sounds(300)
        return missed(net(x), y)

    training = Training(M5(), partial(ADAM, lr=0.01, weight_decay=1e-4), lambda _: sounds(32), F.nll_loss, quality, steps=150)
    training.schedulers = [torch.optim.lr_scheduler.StepLR(training.optimizer, 100, gamma=0.1)]
    return training


class Selective(nn.Module):
    """A state space whose steps depend on what is read, scanned in a loop."""

    def __init__(self, words: int = 10, width: int = 24, state: int = 6) -> None:
        super().__init__()
        self.embed, self.norm, self.in_proj = nn.Embedding(words, width), nn.LayerNorm(width), nn.Linear(width, 2 * width, bias=False)
        self.x_proj, self.dt = nn.Linear(width, 2 * state, bias=False), nn.Linear(width, width)
        self.A_log = nn.Parameter(torch.log(torch.arange(1.0, state + 1)).repeat(width, 1))
        self.D, self.out = nn.Parameter(torch.ones(width)), nn.Linear(width, width, bias=False)
        self.head = nn.Linear(width, words, bias=False)
        nn.init.constant_(self.dt.bias, -1.0)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        u, gate = self.in_proj(self.norm(x)).chunk(2, -1)
        u = F.silu(u)
        (b, c), dt = self.x_proj(u).chunk(2, -1), F.softplus(self.dt(u))
        h, out = torch.zeros(len(x), u.size(-1), b.size(-1)), []
        for t in range(x.size(1)):
            decay = torch.exp(-dt[:, t].unsqueeze(-1) * self.A_log.exp())
            h = decay * h + (dt[:, t] * u[:, t]).unsqueeze(-1) * b[:, t].unsqueeze(1)
            out.append((h * c[:, t].unsqueeze(1)).sum(-1))
        y = torch.stack(out, 1) + self.D * u
        return self.head(x + self.out(y * F.silu(gate)))


@HALF.net("recurrent")
def what_was_read_is_kept() -> Training:
    """The first token is asked for at each place behind it: places where nothing is asked are marked with -100."""

    def batch(_: int) -> Batch:
        x = torch.randint(1, 10, (48, 10))
        x[:, 4:] = torch.where(torch.rand(48, 6) < 0.5, 0, x[:, 4:])
        return x, torch.where(x == 0, x[:, :1], -100)

    def quality(net: nn.Module) -> float:
        x, y = batch(0)
        return missed(net(x).flatten(0, 1), y.flatten())

    return Training(
        Selective(), partial(ADAMW, lr=8e-3), batch, lambda out, y: F.cross_entropy(out.flatten(0, 1), y.flatten()), quality, 500, clip=1.0
    )


@HALF.net("recurrent")
def hidden_states_of_the_weather() -> Training:
    """A hidden Markov model by gradients: three tables, all ways summed, minus the log-likelihood of a sequence."""
    move = torch.tensor([[0.85, 0.1, 0.05], [0.1, 0.8, 0.1], [0.05, 0.15, 0.8]])
    show = torch.tensor([[0.7, 0.2, 0.05, 0.05, 0.0], [0.0, 0.1, 0.8, 0.1, 0.0], [0.05, 0.0, 0.05, 0.2, 0.7]])

    def days(count: int) -> Tensor:
        state = torch.randint(3, (count,))
        seen = []
        for _ in range(15):
            seen.append(torch.multinomial(show[state], 1).squeeze(1))
            state = torch.multinomial(move[state], 1).squeeze(1)
        return torch.stack(seen, 1)

    class Markov(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.start, self.move, self.show = (nn.Parameter(torch.randn(*size)) for size in ((3,), (3, 3), (3, 5)))

        def forward(self, x: Tensor) -> Tensor:
            show, move = self.show.log_softmax(1), self.move.log_softmax(1)
            alpha = self.start.log_softmax(0) + show[:, x[:, 0]].T
            for t in range(1, x.size(1)):
                alpha = torch.logsumexp(alpha.unsqueeze(2) + move, 1) + show[:, x[:, t]].T
            return torch.logsumexp(alpha, 1)

    def quality(net: nn.Module) -> float:
        return -net(days(300)).mean().item() - 17.5

    return Training(
        Markov(), partial(ADAM, lr=0.05), lambda _: (days(64), torch.zeros(64)), lambda out, _: -out.mean(), quality, steps=250
    )  # fmt: skip


# ---- graphs ------------------------------------------------------------------------------------------


def circles(seed: int, nodes: int = 90, kinds: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    """Who is in which circle, who knows whom, and weak marks of the circle."""
    kind = torch.arange(nodes) % kinds
    chance = torch.where(kind.unsqueeze(0) == kind.unsqueeze(1), 0.15, 0.015)
    draw = torch.rand(nodes, nodes, generator=torch.Generator().manual_seed(seed)).triu(1)
    adj = ((draw > 0) & (draw < chance)).float()
    return (
        adj + adj.T + torch.eye(nodes),
        F.one_hot(kind, kinds).float() @ constant(kinds, 24, seed=seed) + 2 * constant(nodes, 24, seed=seed + 1),
        kind,
    )


class Attends(nn.Module):
    """Attention over neighbours, with dropout of everything."""

    def __init__(self, inner: int, outer: int, heads: int) -> None:
        super().__init__()
        self.W, self.a = nn.Parameter(torch.empty(inner, heads * outer)), nn.Parameter(torch.empty(heads, 2 * outer, 1))
        nn.init.xavier_normal_(self.W)
        nn.init.xavier_normal_(self.a)
        self.heads, self.outer = heads, outer

    def forward(self, h: Tensor, adj: Tensor) -> Tensor:
        h = F.dropout(h, 0.4, self.training) @ self.W
        h = h.view(-1, self.heads, self.outer).permute(1, 0, 2)
        e = F.leaky_relu(h @ self.a[:, : self.outer] + (h @ self.a[:, self.outer :]).mT, 0.2)
        att = torch.where(adj > 0, e, -9e16).softmax(-1)
        return (F.dropout(att, 0.4, self.training) @ h).permute(1, 0, 2)


class Gat(nn.Module):
    def __init__(self, adj: Tensor) -> None:
        super().__init__()
        self.register_buffer("adj", adj)
        self.gat1, self.gat2 = Attends(24, 8, 4), Attends(32, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.elu(self.gat1(x, self.adj).flatten(1))
        return F.log_softmax(self.gat2(x, self.adj).mean(1), dim=1)


@HALF.net("embedding")
def twelve_of_ninety_are_labelled() -> Training:
    """The whole graph at each step, a loss of a few nodes, validation of others each ten steps."""
    adj, x, kind = circles(930)
    order = torch.randperm(90, generator=torch.Generator().manual_seed(931))
    train, val, test = order[:24], order[24:40], order[40:]

    def step(training: Training, number: int) -> None:
        training.model.train()
        training.optimizer.zero_grad()
        output = training.model(x)
        loss = F.nll_loss(output[train], kind[train])
        loss.backward()
        training.optimizer.step()
        if number % 10 == 0:
            training.model.eval()
            with torch.no_grad():
                print(number, missed(training.model(x)[val], kind[val]))

    return Training(
        Gat(adj), partial(ADAM, lr=5e-3, weight_decay=5e-4), lambda _: (x, kind), lambda out, y: F.nll_loss(out[train], y[train]),
        lambda net: missed(net(x)[test], kind[test]), steps=150, step=step,
    )  # fmt: skip


@HALF.net("generative")
def edges_from_vectors() -> Training:
    """A graph's own edges are the target, with a weight for the few that are there, and a divergence over the nodes squared."""
    adj, x, _ = circles(932)
    norm = adj.sum(1).rsqrt()
    hat = norm.unsqueeze(1) * adj * norm
    weight = (adj.numel() - adj.sum()) / adj.sum()

    class Vgae(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gc1, self.gc2, self.gc3 = nn.Linear(24, 32, bias=False), nn.Linear(32, 8, bias=False), nn.Linear(32, 8, bias=False)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            h = F.relu(hat @ self.gc1(x))
            mu, logvar = hat @ self.gc2(h), hat @ self.gc3(h)
            z = mu + torch.randn_like(mu) * (0.5 * logvar).exp() if self.training else mu
            return z @ z.T, mu, logvar

    def criterion(out: tuple[Tensor, Tensor, Tensor], y: Tensor) -> Tensor:
        logits, mu, logvar = out
        kld = -0.5 / len(mu) * (1 + logvar - mu**2 - logvar.exp()).sum(1).mean()
        return F.binary_cross_entropy_with_logits(logits, y, pos_weight=weight) + kld

    def quality(net: nn.Module) -> float:
        """How often a pair that does not know each other stands above one that does."""
        score, there = net(x)[0], adj > 0
        off = ~torch.eye(90, dtype=torch.bool)
        yes, no = score[there & off], score[~there]
        return (yes.unsqueeze(1) <= no.unsqueeze(0)).float().mean().item()

    return Training(Vgae(), partial(ADAM, lr=0.01), lambda _: (x, adj), criterion, quality, steps=200)


@HALF.net("embedding")
def counts_of_neighbours() -> Training:
    """Two tables and biases, logarithms of how often words meet, each pair weighted by its count."""
    topic = torch.arange(40) % 4
    count = torch.exp(1.5 + 2.0 * (topic.unsqueeze(0) == topic.unsqueeze(1)) + 0.5 * constant(40, 40, seed=933)).round() + 1

    class Glove(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wi, self.wj, self.bi, self.bj = (nn.Embedding(40, w) for w in (8, 8, 1, 1))
            for table in (self.wi, self.wj):
                table.weight.data.uniform_(-1, 1)
            for table in (self.bi, self.bj):
                table.weight.data.zero_()

        def forward(self, i: Tensor, j: Tensor) -> Tensor:
            return (self.wi(i) * self.wj(j)).sum(1) + self.bi(i).squeeze(1) + self.bj(j).squeeze(1)

    def batch(_: int) -> Batch:
        i, j = torch.randint(40, (2, 128))
        return (i, j), count[i, j]

    def criterion(out: Tensor, n: Tensor) -> Tensor:
        return ((n / 50).clamp(max=1) ** 0.75 * F.mse_loss(out, n.log(), reduction="none")).mean()

    def quality(net: nn.Module) -> float:
        i, j = torch.meshgrid(torch.arange(40), torch.arange(40), indexing="ij")
        return criterion(net(i.flatten(), j.flatten()), count.flatten()).item()

    return Training(Glove(), partial(torch.optim.Adagrad, lr=0.1), batch, criterion, quality, steps=300)


# ---- who holds the loop ------------------------------------------------------------------------------


class Trainer:
    """Holds the loop for those who do not want to write it: a sanity check first, a closure for each step, the best weights at the end."""

    def __init__(self, epochs: int, clip: float | None = None, patience: int = 5) -> None:
        self.epochs, self.clip, self.patience = epochs, clip, patience

    def fit(self, training: Training, train: Any, val: Any) -> None:
        model, optimizer = training.model, training.optimizer
        self.validate(training, val, batches=2)
        best, kept, bad = math.inf, copy.deepcopy(model.state_dict()), 0
        for _ in range(self.epochs):
            model.train()
            for batch in train:
                optimizer.step(partial(self.closure, training, batch))
            found = self.validate(training, val)
            best, kept, bad = (found, copy.deepcopy(model.state_dict()), 0) if found < best else (best, kept, bad + 1)
            if bad >= self.patience:
                break
        model.load_state_dict(kept)

    def closure(self, training: Training, batch: list[Tensor]) -> Tensor:
        x, y = batch
        loss = training.criterion(training.model(x), y)
        training.optimizer.zero_grad()
        loss.backward()
        if self.clip:
            nn.utils.clip_grad_norm_(training.model.parameters(), self.clip)
        return loss

    @torch.no_grad()
    def validate(self, training: Training, val: Any, batches: int | None = None) -> float:
        was = training.model.training
        training.model.eval()
        losses = [training.criterion(training.model(x), y).item() for x, y in list(val)[:batches]]
        training.model.train(was)
        return sum(losses) / len(losses)


@HALF.net("mlp")
def a_trainer_holds_the_loop() -> Training:
    """Everything happens in closures that a trainer hands to the optimizer."""

    def cars(count: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(count, 9)
        return x, (x[:, :3].prod(1, keepdim=True) + x[:, 3:4].abs() - 0.5 * x[:, 4:5]).clamp(-4, 4) + 0.1 * torch.randn(count, 1)

    train = DataLoader(TensorDataset(*cars(2500)), batch_size=64, shuffle=True)
    val = DataLoader(TensorDataset(*cars(400)), batch_size=200)

    def quality(net: nn.Module) -> float:
        x, y = cars(500)
        return mean_square(net(x), y)

    net = nn.Sequential(nn.Linear(9, 64), nn.SiLU(), nn.Dropout(0.05), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))
    return Training(
        net, partial(ADAMW, lr=5e-3), lambda _: cars(64), nn.SmoothL1Loss(), quality,
        **of_a_notebook(lambda training: Trainer(12, clip=1.0).fit(training, train, val)),
    )  # fmt: skip
