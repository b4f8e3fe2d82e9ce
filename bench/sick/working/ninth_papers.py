"""Nothing is wrong here: loops as in repositories of papers, around small nets of our own. Generators, agents, physics, optimizers."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from bench.sick.training import Batch, Training
from bench.sick.working.eighth_healthy import of_a_notebook, wrong_share
from bench.sick.working.fourth_nets import constant
from bench.sick.working.half import HALF
from bench.sick.working.ninth_public import strokes
from bench.sick.working.seventh_healthy import mean_square, mlp
from bench.sick.working.third_nets import ADAM, ADAMW, SGD, missed

# ---- what makes new ones ------------------------------------------------------------------------------


def far(made: Tensor, real: Tensor) -> float:
    """The energy distance of two clouds."""

    def mean(a: Tensor, b: Tensor) -> Tensor:
        return torch.cdist(a, b).mean()

    return (2 * mean(made, real) - mean(made, made) - mean(real, real)).clamp(min=0).item()


def petals(count: int, kinds: int = 4) -> tuple[Tensor, Tensor]:
    """Small clouds around a circle, and which one."""
    kind = torch.randint(kinds, (count,))
    angle = 2 * math.pi * kind / kinds
    return torch.stack([angle.cos(), angle.sin()], 1) * 1.5 + 0.15 * torch.randn(count, 2), kind


@HALF.net("generative")
def bars_by_contrastive_divergence() -> Training:
    """A restricted Boltzmann machine: the difference of two free energies goes backward, and stays around zero."""

    def bars(count: int) -> Tensor:
        x = torch.zeros(count, 4, 4)
        row, flip = torch.randint(4, (count,)), torch.rand(count) < 0.5
        x[torch.arange(count), row] = 1
        return torch.where(flip.view(-1, 1, 1), x.mT, x).flatten(1)

    class Rbm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.W, self.v, self.h = nn.Parameter(0.05 * torch.randn(24, 16)), nn.Parameter(torch.zeros(16)), nn.Parameter(torch.zeros(24))

        def forward(self, v: Tensor, k: int = 1) -> Tensor:
            for _ in range(k):
                h = torch.bernoulli(torch.sigmoid(F.linear(v, self.W, self.h)))
                p = torch.sigmoid(F.linear(h, self.W.t(), self.v))
                v = torch.bernoulli(p)
            return v

        def free_energy(self, v: Tensor) -> Tensor:
            return (-v @ self.v - F.softplus(F.linear(v, self.W, self.h)).sum(1)).mean()

    data = TensorDataset(bars(1000))

    def loop(training: Training) -> None:
        for _ in range(12):
            losses = []
            for (v,) in DataLoader(data, batch_size=20, shuffle=True):
                made = training.model(v)
                loss = training.model.free_energy(v) - training.model.free_energy(made.detach())
                losses.append(loss.item())
                training.optimizer.zero_grad()
                loss.backward()
                training.optimizer.step()

    def quality(net: nn.Module) -> float:
        v = bars(400)
        return mean_square(torch.sigmoid(F.linear(torch.sigmoid(F.linear(v, net.W, net.h)), net.W.t(), net.v)), v)

    return Training(
        Rbm(), partial(SGD, lr=0.1), lambda _: (bars(20), torch.zeros(20, 16)), lambda out, _: out.mean(), quality, **of_a_notebook(loop)
    )


class Maker(nn.Module):
    """A generator that is told what to make, and what judges it."""

    def __init__(self, sigmoid: bool = False) -> None:
        super().__init__()
        self.label_g, self.label_d = nn.Embedding(4, 4), nn.Embedding(4, 4)
        self.g = nn.Sequential(
            nn.Linear(8, 32), nn.LeakyReLU(0.2, inplace=True), nn.Linear(32, 48), nn.BatchNorm1d(48, 0.8), nn.LeakyReLU(0.2, inplace=True),
            nn.Linear(48, 2),
        )  # fmt: skip
        self.d = nn.Sequential(
            nn.Linear(6, 48), nn.LeakyReLU(0.2, inplace=True), nn.Linear(48, 48), nn.Dropout(0.2), nn.LeakyReLU(0.2, inplace=True),
            nn.Linear(48, 1),
        )  # fmt: skip

    def forward(self, z: Tensor, kind: Tensor) -> Tensor:
        return 2 * self.g(torch.cat([self.label_g(kind), z], -1)).tanh()

    def judge(self, x: Tensor, kind: Tensor) -> Tensor:
        return self.d(torch.cat([x, self.label_d(kind)], -1))


@HALF.net("generative")
def told_what_to_make() -> Training:
    """A conditional generator and squared errors of what the judge says: ones and zeros, halves for the judge."""

    def step(training: Training, number: int) -> None:
        net, opt_g, opt_d = training.model, training.optimizer, training.others[0]
        real, kind = petals(64)
        valid, fake = torch.ones(64, 1), torch.zeros(64, 1)
        opt_g.zero_grad()
        asked = torch.randint(4, (64,))
        made = net(torch.randn(64, 4), asked)
        g_loss = F.mse_loss(net.judge(made, asked), valid)
        g_loss.backward()
        opt_g.step()
        opt_d.zero_grad()
        d_loss = (F.mse_loss(net.judge(real, kind), valid) + F.mse_loss(net.judge(made.detach(), asked), fake)) / 2
        d_loss.backward()
        opt_d.step()
        if number % 100 == 0:
            print(f"[D loss: {d_loss.item():f}] [G loss: {g_loss.item():f}]")

    def quality(net: nn.Module) -> float:
        real, kind = petals(400)
        return sum(far(net(torch.randn(100, 4), torch.full((100,), k)), real[kind == k]) for k in range(4)) / 4

    def batch(_: int) -> Batch:
        real, kind = petals(64)
        return (torch.randn(64, 4), kind), real

    model = Maker()
    training = Training(
        model, partial(ADAM, lr=1e-3), batch, nn.MSELoss(), quality, steps=700, step=step,
    )  # fmt: skip
    training.optimizer = ADAM([*model.g.parameters(), *model.label_g.parameters()], lr=2e-3, betas=(0.5, 0.999))
    training.others = (ADAM([*model.d.parameters(), *model.label_d.parameters()], lr=2e-3, betas=(0.5, 0.999)),)
    return training


@HALF.net("generative")
def from_one_picture_to_the_other() -> Training:
    """A hundred times the absolute error, and a judge of patches that sees both pictures."""

    def pictures(count: int) -> tuple[Tensor, Tensor]:
        x = F.interpolate(torch.randn(count, 1, 4, 4), size=12, mode="bilinear")
        return x.tanh(), torch.tanh(2 * x.abs()) * 2 - 1

    net = nn.ModuleDict({
        "g": nn.Sequential(
            nn.Conv2d(1, 16, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(16, 32, 3, 1, 1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 1, 3, 1, 1), nn.Tanh(),
        ),
        "d": nn.Sequential(nn.Conv2d(2, 16, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(16, 1, 3, 1, 1)),
    })  # fmt: skip
    for m in net.modules():
        if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
            nn.init.normal_(m.weight, 0.0, 0.02)
        elif isinstance(m, nn.BatchNorm2d):
            nn.init.normal_(m.weight, 1.0, 0.02)
            nn.init.constant_(m.bias, 0.0)
    bce = nn.BCEWithLogitsLoss()

    def step(training: Training, _: int) -> None:
        g, d = training.model["g"], training.model["d"]
        a, b = pictures(8)
        made = g(a)
        d.requires_grad_(True)
        training.others[0].zero_grad()
        no, yes = d(torch.cat([a, made.detach()], 1)), d(torch.cat([a, b], 1))
        loss_d = 0.5 * (bce(no, torch.zeros_like(no)) + bce(yes, torch.ones_like(yes)))
        loss_d.backward()
        training.others[0].step()
        d.requires_grad_(False)
        training.optimizer.zero_grad()
        no = d(torch.cat([a, made], 1))
        loss_g = bce(no, torch.ones_like(no)) + 100 * F.l1_loss(made, b)
        loss_g.backward()
        training.optimizer.step()

    def quality(net: nn.Module) -> float:
        a, b = pictures(60)
        return F.l1_loss(net["g"](a), b).item()

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.nets = net

        def __getitem__(self, name: str) -> nn.Module:
            return self.nets[name]

        def forward(self, x: Tensor) -> Tensor:
            return self.nets["g"](x)

    training = Training(Pair(), partial(ADAM, lr=2e-3), lambda _: pictures(8), nn.L1Loss(), quality, steps=350, step=step)
    training.optimizer = ADAM(net["g"].parameters(), lr=2e-3, betas=(0.5, 0.999))
    training.others = (ADAM(net["d"].parameters(), lr=2e-3, betas=(0.5, 0.999)),)
    return training


class Noised(nn.Module):
    """A diffusion that holds its net: called with clean points, it gives the loss."""

    def __init__(self, steps: int = 50) -> None:
        super().__init__()
        self.time, self.kind = nn.Embedding(steps, 16), nn.Embedding(5, 16)
        self.net = mlp(34, 96, 96, 2, act=nn.SiLU)
        betas = torch.linspace(1e-3, 0.15, steps)
        self.register_buffer("betas", betas)
        self.register_buffer("bar", (1 - betas).cumprod(0))

    def said(self, x: Tensor, t: Tensor, kind: Tensor) -> Tensor:
        return self.net(torch.cat([x, self.time(t), self.kind(kind)], 1))

    def forward(self, x: Tensor, kind: Tensor) -> Tensor:
        t = torch.randint(0, 50, (len(x),))
        kind = torch.where(torch.rand(len(x)) < 0.15, 4, kind)
        noise, bar = torch.randn_like(x), self.bar[t].unsqueeze(1)
        return F.mse_loss(self.said(bar.sqrt() * x + (1 - bar).sqrt() * noise, t, kind), noise)

    @torch.no_grad()
    def sample(self, kind: Tensor) -> Tensor:
        x = torch.randn(len(kind), 2)
        for i in reversed(range(50)):
            t = torch.full((len(kind),), i)
            eps = 1.5 * self.said(x, t, kind) - 0.5 * self.said(x, t, torch.full_like(kind, 4))
            x = (x - self.betas[i] / (1 - self.bar[i]).sqrt() * eps) / (1 - self.betas[i]).sqrt()
            x = x + (self.betas[i].sqrt() * torch.randn_like(x) if i else 0)
        return x


@HALF.net("generative")
def noise_is_foretold() -> Training:
    """The wrapper gives the loss, two batches a step, an average of the weights each ten steps, samples in between."""

    def loop(training: Training) -> None:
        ema = copy.deepcopy(training.model)
        for step in range(400):
            total = 0.0
            for _ in range(2):
                loss = training.model(*petals(64)) / 2
                total += loss.item()
                loss.backward()
            nn.utils.clip_grad_norm_(training.model.parameters(), 1.0)
            training.optimizer.step()
            training.optimizer.zero_grad()
            if step % 10 == 0:
                with torch.no_grad():
                    for slow, quick in zip(ema.parameters(), training.model.parameters(), strict=True):
                        slow.lerp_(quick, 0.1)
            if step % 150 == 149:
                ema.eval()
                ema.sample(torch.arange(4))

    def quality(net: nn.Module) -> float:
        real, kind = petals(200)
        return far(net.sample(kind), real) + far(net.sample(torch.zeros(50, dtype=torch.long)), real[kind == 0])

    return Training(
        Noised(), partial(ADAM, lr=3e-3, betas=(0.9, 0.99)), lambda _: (petals(64), torch.zeros(())), lambda out, _: out, quality,
        **of_a_notebook(loop),
    )  # fmt: skip


class MaskedConv(nn.Conv2d):
    """A convolution that sees what is above and to the left."""

    def __init__(self, kind: str, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        mask = torch.ones_like(self.weight)
        _, _, h, w = mask.shape
        mask[:, :, h // 2, w // 2 + (kind == "B") :] = 0
        mask[:, :, h // 2 + 1 :] = 0
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        self.weight.data *= self.mask
        return super().forward(x)


@HALF.net("generative")
def pixel_after_pixel() -> Training:
    """Masked weights are set to zero in each call; four levels of grey, a cross-entropy for each pixel of the input itself."""

    def pictures(count: int) -> tuple[Tensor, Tensor]:
        x, _ = strokes(count, kinds=3, size=8)
        level = (x * 3.99).long().squeeze(1)
        return level.unsqueeze(1) / 3.0, level

    net = nn.Sequential(
        MaskedConv("A", 1, 24, 7, 1, 3, bias=False), nn.BatchNorm2d(24), nn.ReLU(True), MaskedConv("B", 24, 24, 5, 1, 2, bias=False),
        nn.BatchNorm2d(24), nn.ReLU(True), nn.Conv2d(24, 4, 1),
    )  # fmt: skip

    def quality(net: nn.Module) -> float:
        x, y = pictures(100)
        return F.cross_entropy(net(x), y).item()

    return Training(net, partial(ADAM, lr=3e-3), lambda _: pictures(16), F.cross_entropy, quality, steps=200)


class MaskedLinear(nn.Linear):
    def __init__(self, mask: Tensor) -> None:
        super().__init__(mask.size(1), mask.size(0))
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.mask * self.weight, self.bias)


@HALF.net("generative")
def each_bit_from_those_before() -> Training:
    """Most of the first layer is masked away for good; the loss sums over bits."""
    rule = torch.randint(2, (12, 12), generator=torch.Generator().manual_seed(940)).tril(-1)

    def bits(count: int) -> tuple[Tensor, Tensor]:
        x = torch.zeros(count, 12, dtype=torch.long)
        for i in range(12):
            free = torch.rand(count) < (1.0 if i < 4 else 0.05)
            x[:, i] = torch.where(free, torch.randint(2, (count,)), x[:, max(i - 4, 0)] ^ x[:, i - 1] if rule[i].sum() % 2 else x[:, i - 2])
        return x.float(), x.float()

    degree = torch.arange(64) % 11
    net = nn.Sequential(
        MaskedLinear((degree.unsqueeze(1) >= torch.arange(12)).float()), nn.ReLU(),
        MaskedLinear((torch.arange(12).unsqueeze(1) > degree).float()),
    )  # fmt: skip

    def criterion(out: Tensor, x: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(out, x, reduction="none").sum(-1).mean()

    def quality(net: nn.Module) -> float:
        x, y = bits(400)
        return criterion(net(x), y).item()

    return Training(net, partial(ADAM, lr=1e-2, weight_decay=1e-5), lambda _: bits(100), criterion, quality, steps=250)


class Planar(nn.Module):
    def __init__(self, layers: int = 12) -> None:
        super().__init__()
        self.u, self.w = nn.Parameter(0.1 * torch.randn(layers, 2)), nn.Parameter(0.1 * torch.randn(layers, 2))
        self.b = nn.Parameter(torch.zeros(layers))

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        log_det = torch.zeros(len(z))
        for u, w, b in zip(self.u, self.w, self.b, strict=True):
            wu = w @ u
            u = u + (F.softplus(wu) - 1 - wu) * w / (w @ w + 1e-6)
            t = torch.tanh(z @ w + b)
            log_det = log_det + torch.log((1 + (1 - t**2) * (w @ u)).abs() + 1e-8)
            z = z + u * t.unsqueeze(1)
        return z, log_det


@HALF.net("generative")
def noise_bent_to_an_energy() -> Training:
    """No data at all: noise goes in, and what comes out should be likely under a formula; the loss may have any sign."""

    def energy(z: Tensor) -> Tensor:
        return 0.5 * ((z.norm(dim=1) - 2) / 0.4) ** 2 - torch.logsumexp(-0.5 * ((z[:, :1] - torch.tensor([[-2.0, 2.0]])) / 0.6) ** 2, 1)

    def criterion(out: tuple[Tensor, Tensor], _: Tensor) -> Tensor:
        return (energy(out[0]) - out[1]).mean()

    def quality(net: nn.Module) -> float:
        return criterion(net(torch.randn(500, 2)), torch.zeros(())).item()

    return Training(
        Planar(),
        partial(torch.optim.RMSprop, lr=5e-3, momentum=0.9),
        lambda _: (torch.randn(128, 2), torch.zeros(128)),
        criterion,
        quality,
        500,
    )


@HALF.net("mlp")
def sources_told_apart() -> Training:
    """One square matrix, minus the log of its determinant, and a density with long tails."""
    mix = torch.eye(4) + 0.6 * constant(4, 4, seed=941)

    def heard(count: int) -> Tensor:
        return torch.distributions.Laplace(0.0, 1.0).sample((count, 4)) @ mix.T

    class Apart(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.W = nn.Parameter(torch.eye(4) + 0.1 * torch.randn(4, 4))

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.W.T

    model = Apart()

    def criterion(s: Tensor, _: Tensor) -> Tensor:
        return torch.log(torch.cosh(1.5 * s)).sum(1).mean() - torch.linalg.slogdet(model.W)[1]

    def quality(net: nn.Module) -> float:
        """What of the others is still in each."""
        p = (net.W @ mix).abs()
        p = p / p.max(1, keepdim=True).values
        return (p.sum(1).mean() - 1).item()

    return Training(model, partial(ADAM, lr=0.02), lambda _: (heard(256), torch.zeros(256)), criterion, quality, steps=400)


@HALF.net("generative")
def clusters_that_sharpen_themselves() -> Training:
    """Codes are made by an autoencoder before; then each point's kind is pulled to a sharper target, made anew each twenty steps."""

    def cloud(count: int) -> tuple[Tensor, Tensor]:
        kind = torch.randint(4, (count,))
        return 2.2 * constant(4, 16, seed=942)[kind] / 2 + 0.9 * torch.randn(count, 16), kind

    x, kind = cloud(600)
    encoder, decoder = mlp(16, 48, 4), mlp(4, 48, 16)
    before = ADAM([*encoder.parameters(), *decoder.parameters()], lr=5e-3)
    for _ in range(200):
        some = x[torch.randint(600, (64,))]
        before.zero_grad()
        F.mse_loss(decoder(encoder(some)), some).backward()
        before.step()

    class Dec(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = encoder
            z = encoder(x).detach()
            chosen = [0]
            for _ in range(3):
                chosen.append(int(torch.cdist(z, z[chosen]).min(1).values.argmax()))
            self.centers = nn.Parameter(z[chosen] + 0.5 * torch.randn(4, 4))

        def forward(self, x: Tensor) -> Tensor:
            q = 1 / (1 + torch.cdist(self.encoder(x), self.centers) ** 2)
            return q / q.sum(1, keepdim=True)

    def sharper(q: Tensor) -> Tensor:
        weight = q**2 / q.sum(0)
        return weight / weight.sum(1, keepdim=True)

    def step(training: Training, number: int) -> None:
        if number % 20 == 0:
            with torch.no_grad():
                training.target = sharper(training.model(x))
        rows = torch.randint(600, (128,))
        loss = F.kl_div(training.model(x[rows]).log(), training.target[rows], reduction="batchmean")
        training.optimizer.zero_grad()
        loss.backward()
        training.optimizer.step()

    def quality(net: nn.Module) -> float:
        """How unsure it is of the kind."""
        return -(net(x).clamp(min=1e-9).log() * net(x)).sum(1).mean().item()

    return Training(
        Dec(), partial(SGD, lr=0.05, momentum=0.9), lambda _: (x[:128], F.one_hot(kind[:128], 4).float()),
        lambda q, y: F.kl_div(q.log(), y, reduction="batchmean"), quality, steps=300, step=step,
    )  # fmt: skip


# ---- agents ------------------------------------------------------------------------------------------


class Corridor:
    """Eight places in a row; the right end pays, each step costs a little."""

    def __init__(self, count: int) -> None:
        self.at = torch.randint(0, 7, (count,))

    def seen(self) -> Tensor:
        return F.one_hot(self.at, 8).float()

    def step(self, action: Tensor) -> tuple[Tensor, Tensor]:
        slip = torch.rand(len(self.at)) < 0.1
        self.at = (self.at + torch.where((action == 1) ^ slip, 1, -1)).clamp(0, 7)
        done = self.at == 7
        reward = torch.where(done, 1.0, -0.05)
        self.at = torch.where(done, torch.randint(0, 7, self.at.shape), self.at)
        return reward, done.float()


class Values(nn.Module):
    """A distribution over returns for each action."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("atoms", torch.linspace(-2, 1, 21))
        self.network = mlp(8, 48, 48, 2 * 21)

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x).view(-1, 2, 21).softmax(2)


@HALF.net("mlp")
def returns_as_a_distribution() -> Training:
    """Random first, then a memory: a target net is copied each twenty-five steps, and the loss is a cross-entropy of projected atoms."""
    target = Values()

    def loop(training: Training) -> None:
        net, world, memory = training.model, Corridor(8), []
        target.load_state_dict(net.state_dict())
        for i in range(500):
            state = world.seen()
            with torch.no_grad():
                greedy = (net(state) * net.atoms).sum(2).argmax(1)
            action = torch.where(torch.rand(8) < max(0.05, 1 - i / 200), torch.randint(2, (8,)), greedy)
            reward, done = world.step(action)
            memory += list(zip(state, action, reward, world.seen(), done, strict=True))
            if i < 40:
                continue
            s, a, r, s2, d = (torch.stack(part) for part in zip(*(memory[j] for j in torch.randint(len(memory), (48,))), strict=True))
            with torch.no_grad():
                p = target(s2)
                p = p[torch.arange(48), (p * net.atoms).sum(2).argmax(1)]
                b = ((r.unsqueeze(1) + 0.9 * net.atoms * (1 - d.unsqueeze(1))).clamp(-2, 1) + 2) / 0.15
                low, high = b.floor().clamp(0, 20), b.ceil().clamp(0, 20)
                goal = torch.zeros(48, 21).scatter_add_(1, low.long(), (high + (low == high).float() - b) * p)
                goal.scatter_add_(1, high.long(), (b - low) * p)
            said = net(s)[torch.arange(48), a]
            loss = (-(goal * said.clamp(1e-5, 1 - 1e-5).log()).sum(-1)).mean()
            training.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            training.optimizer.step()
            if i % 25 == 0:
                target.load_state_dict(net.state_dict())

    def quality(net: nn.Module) -> float:
        """How far the mean returns are from the right ones."""
        v = torch.zeros(8)
        for _ in range(60):
            q = [-0.05 + 0.9 * v[(torch.arange(8) + a).clamp(0, 7)] for a in (-1, 1)]
            q = [torch.where((torch.arange(8) + a).clamp(0, 7) == 7, 1.0, one) for a, one in zip((-1, 1), q, strict=True)]
            v = 0.9 * q[1] + 0.1 * q[0]
            v[7] = 0
        return mean_square((net(torch.eye(8))[:7] * net.atoms).sum(2)[:, 1], v[:7])

    return Training(
        Values(), partial(ADAM, lr=2e-3, eps=1e-4), lambda _: (torch.eye(8), torch.zeros(8, 2, 21).index_fill(2, torch.tensor([20]), 1.0)),
        lambda out, y: -(y * out.log()).sum(-1).mean(), quality, **of_a_notebook(loop),
    )  # fmt: skip


class Players(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Sequential(nn.Linear(8, 48), nn.Tanh())
        self.actor, self.critic = nn.Linear(48, 2), nn.Linear(48, 1)
        for layer, gain in ((self.shared[0], 2**0.5), (self.actor, 0.01), (self.critic, 1.0)):
            nn.init.orthogonal_(layer.weight, gain)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.shared(x)
        return self.actor(h), self.critic(h).squeeze(-1)


@HALF.net("mlp")
def five_steps_of_sixteen_worlds() -> Training:
    """Returns of five steps, advantages, half of the value's error, a hundredth of the entropy; RMSprop with a large epsilon."""
    world = Corridor(16)

    def step(training: Training, _: int) -> None:
        logs, values, rewards, dones, entropies = [], [], [], [], []
        for _ in range(5):
            logits, value = training.model(world.seen())
            dist = torch.distributions.Categorical(logits=logits)
            action = dist.sample()
            reward, done = world.step(action)
            for kept, one in zip(
                (logs, values, rewards, dones, entropies), (dist.log_prob(action), value, reward, done, dist.entropy()), strict=True
            ):
                kept.append(one)
        with torch.no_grad():
            ret = training.model(world.seen())[1]
        returns = []
        for reward, done in zip(reversed(rewards), reversed(dones), strict=True):
            ret = reward + 0.95 * ret * (1 - done)
            returns.insert(0, ret)
        advantage = torch.stack(returns) - torch.stack(values)
        policy = -(torch.stack(logs) * advantage.detach()).mean()
        loss = policy + 0.5 * advantage.pow(2).mean() - 0.01 * torch.stack(entropies).mean()
        training.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(training.model.parameters(), 0.5)
        training.optimizer.step()

    def quality(net: nn.Module) -> float:
        return net(torch.eye(8)[:7])[0].softmax(1)[:, 0].mean().item()

    return Training(
        Players(), partial(torch.optim.RMSprop, lr=5e-3, alpha=0.99, eps=1e-3), lambda _: (torch.eye(8), torch.linspace(0.5, 1, 8)),
        lambda out, y: F.mse_loss(out[1], y), quality, steps=250, step=step,
    )  # fmt: skip


class Speaker(nn.Module):
    """Writes tokens one after the other."""

    def __init__(self, words: int = 8) -> None:
        super().__init__()
        self.embed, self.rnn, self.head = nn.Embedding(words, 24), nn.GRU(24, 48, batch_first=True), nn.Linear(48, words)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(self.embed(x))[0])

    def log_prob(self, x: Tensor, prompt: int = 1) -> Tensor:
        logp = self(x[:, :-1]).log_softmax(-1).gather(-1, x[:, 1:].unsqueeze(-1)).squeeze(-1)
        return logp[:, prompt - 1 :].sum(1)

    @torch.no_grad()
    def write(self, x: Tensor, length: int) -> Tensor:
        for _ in range(length):
            x = torch.cat([x, torch.distributions.Categorical(logits=self(x)[:, -1]).sample().unsqueeze(1)], 1)
        return x


def pretrained_speaker() -> Speaker:
    """Has learnt to go one up or one down."""
    net = Speaker()
    before = ADAM(net.parameters(), lr=5e-3)
    for _ in range(150):
        x = (torch.randint(8, (48, 1)) + torch.cat([torch.zeros(48, 1), torch.randint(2, (48, 5)) * 2 - 1], 1).cumsum(1).long()) % 8
        before.zero_grad()
        (-net.log_prob(x).mean()).backward()
        before.step()
    return net


def rises(x: Tensor) -> Tensor:
    """How many of the steps go up."""
    return ((x[:, 1:] - x[:, :-1]) % 8 == 1).float().mean(1)


@HALF.net("recurrent")
def preferred_without_a_reward() -> Training:
    """Pairs of a better and a worse text, a frozen copy as the reference: the loss begins at the log of two."""
    policy = pretrained_speaker()
    reference = copy.deepcopy(policy).eval().requires_grad_(False)

    def pairs(count: int) -> tuple[Tensor, Tensor]:
        start = torch.randint(8, (count, 1))
        a, b = reference.write(start, 5), reference.write(start, 5)
        better = (rises(a) > rises(b)).unsqueeze(1)
        keep = rises(a) != rises(b)
        return torch.where(better, a, b)[keep], torch.where(better, b, a)[keep]

    def step(training: Training, _: int) -> None:
        chosen, rejected = pairs(32)
        with torch.no_grad():
            ref = reference.log_prob(chosen) - reference.log_prob(rejected)
        pi = training.model.log_prob(chosen) - training.model.log_prob(rejected)
        losses = -F.logsigmoid(0.3 * (pi - ref))
        loss = losses.mean()
        training.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(training.model.parameters(), 1.0)
        training.optimizer.step()

    def batch(_: int) -> Batch:
        x = pairs(32)[0]
        return x[:, :-1], x[:, 1:]

    return Training(
        policy, partial(torch.optim.RMSprop, lr=5e-4), batch, lambda out, y: F.cross_entropy(out.flatten(0, 1), y.flatten()),
        lambda net: 1 - rises(net.write(torch.randint(8, (300, 1)), 5)).mean().item(), steps=150, step=step,
    )  # fmt: skip


@HALF.net("recurrent")
def compared_within_a_group() -> Training:
    """Six texts for each beginning, their rewards normalized among them; the printed loss is about zero all the time."""
    policy = pretrained_speaker()
    reference = copy.deepcopy(policy).requires_grad_(False)

    def step(training: Training, _: int) -> None:
        texts = training.model.write(torch.randint(8, (12, 1)).repeat_interleave(6, 0), 5)
        reward = rises(texts).view(12, 6)
        advantage = ((reward - reward.mean(1, keepdim=True)) / (reward.std(1, keepdim=True) + 1e-4)).view(-1)
        with torch.no_grad():
            old, ref = training.model.log_prob(texts), reference.log_prob(texts)
        for _ in range(2):
            logp = training.model.log_prob(texts)
            ratio = (logp - old).exp()
            kl = (ref - logp).exp() - (ref - logp) - 1
            loss = -(torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage) - 0.01 * kl).mean()
            training.optimizer.zero_grad()
            loss.backward()
            training.optimizer.step()

    def batch(_: int) -> Batch:
        x = reference.write(torch.randint(8, (32, 1)), 5)
        return x[:, :-1], x[:, 1:]

    return Training(
        policy, partial(ADAMW, lr=2e-3), batch, lambda out, y: F.cross_entropy(out.flatten(0, 1), y.flatten()),
        lambda net: 1 - rises(net.write(torch.randint(8, (300, 1)), 5)).mean().item(), steps=60, step=step,
    )  # fmt: skip


@HALF.net("mlp")
def driven_through_its_own_physics() -> Training:
    """A controller is rolled out for thirty moments, and the distance at the end goes backward through all of them."""

    def drive(net: nn.Module, count: int = 32) -> Tensor:
        place, speed = 2 * torch.randn(count, 1), torch.randn(count, 1)
        cost = torch.zeros(count, 1)
        for _ in range(30):
            force = 3 * torch.tanh(net(torch.cat([place, speed], 1)))
            speed = speed + 0.1 * (force - 0.3 * speed)
            place = place + 0.1 * speed
            cost = cost + 0.001 * force**2
        return (place**2 + speed**2 + cost).mean()

    def step(training: Training, _: int) -> None:
        training.optimizer.zero_grad()
        loss = drive(training.model)
        loss.backward()
        training.optimizer.step()

    def batch(_: int) -> Batch:
        x = torch.randn(32, 2)
        return x, -x.sum(1, keepdim=True)

    return Training(
        mlp(2, 32, 1, act=nn.Tanh), partial(ADAM, lr=5e-3), batch, nn.MSELoss(), lambda net: drive(net, 200).item(), steps=150, step=step
    )


# ---- physics and places ------------------------------------------------------------------------------


@HALF.net("mlp")
def a_constant_of_nature_is_found() -> Training:
    """Measured temperatures, and an equation with an unknown number in it, which is a parameter: Adam first, LBFGS at the end."""
    x = torch.rand(150, 2)
    true = torch.exp(-0.3 * math.pi**2 * x[:, 1:]) * torch.sin(math.pi * x[:, :1])
    u = true + 0.01 * torch.randn(150, 1)

    class Pinn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = mlp(2, 24, 24, 1, act=nn.Tanh)
            self.lam = nn.Parameter(torch.tensor([0.0]))

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x)

        def residual(self, x: Tensor) -> Tensor:
            x = x.clone().requires_grad_(True)
            u = self.net(x)
            du = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
            return du[:, 1] - self.lam * torch.autograd.grad(du[:, 0].sum(), x, create_graph=True)[0][:, 0]

    def loss_of(net: nn.Module) -> Tensor:
        return F.mse_loss(net(x), u) + 0.1 * net.residual(x).square().mean()

    def loop(training: Training) -> None:
        for _ in range(500):
            training.optimizer.zero_grad()
            loss = loss_of(training.model)
            loss.backward()
            training.optimizer.step()
        second = training.others[0]

        def closure() -> Tensor:
            second.zero_grad()
            loss = loss_of(training.model)
            loss.backward()
            return loss

        second.step(closure)

    training = Training(
        Pinn(), partial(ADAM, lr=5e-3), lambda _: (x, u), nn.MSELoss(), lambda net: (net.lam - 0.3).abs().item(), **of_a_notebook(loop)
    )
    training.others = (torch.optim.LBFGS(training.model.parameters(), max_iter=150, line_search_fn="strong_wolfe"),)
    return training


@HALF.net("mlp")
def the_least_energy() -> Training:
    """The energy of a bent rope, drawn at other points in each step, and a hundred times what is off at the ends."""

    def energy(net: nn.Module) -> Tensor:
        x = torch.rand(200, 1, requires_grad=True)
        u = net(x)
        slope = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
        ends = net(torch.tensor([[0.0], [1.0]]))
        return (0.5 * slope**2 - 8 * u).mean() + 100 * ends.square().mean()

    def step(training: Training, number: int) -> None:
        loss = energy(training.model)
        training.optimizer.zero_grad()
        loss.backward()
        training.optimizer.step()
        if number == 300:
            training.optimizer.param_groups[0]["lr"] /= 5

    def quality(net: nn.Module) -> float:
        x = torch.rand(300, 1)
        return mean_square(net(x), 4 * x * (1 - x))

    return Training(
        mlp(1, 24, 24, 1, act=nn.Tanh), partial(ADAM, lr=5e-3), lambda _: (x := torch.rand(200, 1), 4 * x * (1 - x)), nn.MSELoss(), quality,
        steps=450, step=step,
    )  # fmt: skip


class Hashed(nn.Module):
    """Tables of tiny numbers at three grids, and a very small net behind."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes = (5, 9, 17)
        self.tables = nn.ModuleList(nn.Embedding(128, 2) for _ in self.sizes)
        for table in self.tables:
            nn.init.uniform_(table.weight, -1e-4, 1e-4)
        self.net = nn.Sequential(nn.Linear(6, 32, bias=False), nn.ReLU(), nn.Linear(32, 1, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        found = []
        for size, table in zip(self.sizes, self.tables, strict=True):
            at = x * (size - 1)
            low, part = at.floor().long().clamp(max=size - 2), (at - at.floor().clamp(max=size - 2)).unsqueeze(-1)
            total = torch.zeros(())
            for i in (0, 1):
                for j in (0, 1):
                    index = ((low[:, 0] + i) ^ ((low[:, 1] + j) * 31)) % 128
                    weight = (part[:, 0] if i else 1 - part[:, 0]) * (part[:, 1] if j else 1 - part[:, 1])
                    total = total + weight * table(index)
            found.append(total)
        return self.net(torch.cat(found, 1))


@HALF.net("embedding")
def a_picture_in_hashed_grids() -> Training:
    """A rate of a hundredth, an epsilon of 1e-15, tables that begin at a ten-thousandth."""

    def points(count: int) -> tuple[Tensor, Tensor]:
        x = torch.rand(count, 2)
        return x, torch.sin(9 * x[:, :1]) * torch.cos(7 * x[:, 1:]) + (x[:, :1] > 0.6).float()

    def quality(net: nn.Module) -> float:
        x, y = points(800)
        return mean_square(net(x), y)

    return Training(
        Hashed(),
        partial(ADAM, lr=0.01, betas=(0.9, 0.99), eps=1e-15),
        lambda _: points(256),
        lambda out, y: F.mse_loss(out, y),
        quality,
        300,
    )


@HALF.net("embedding")
def a_code_for_each_shape() -> Training:
    """No encoder: each shape has a code that is trained along, at another rate, with a penalty on its length; clamped distances."""
    radius = torch.linspace(0.3, 0.9, 12)

    def points(count: int) -> Batch:
        shape, x = torch.randint(12, (count,)), 2 * torch.rand(count, 2) - 1
        d = torch.where(shape % 2 == 0, x.norm(dim=1), x.abs().max(1).values) - radius[shape]
        return (shape, x), d

    class Sdf(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.codes = nn.Embedding(12, 6, max_norm=1.0)
            nn.init.normal_(self.codes.weight, 0.0, 1 / 6**0.5)
            self.net = nn.Sequential(
                nn.Linear(8, 64), nn.ReLU(), nn.Dropout(0.05), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1), nn.Tanh()
            )

        def forward(self, shape: Tensor, x: Tensor) -> Tensor:
            return self.net(torch.cat([self.codes(shape), x], 1)).squeeze(1)

    def clamped(out: Tensor, d: Tensor) -> Tensor:
        return F.l1_loss(out.clamp(-0.2, 0.2), d.clamp(-0.2, 0.2), reduction="sum") / len(out)

    def step(training: Training, number: int) -> None:
        x, d = points(256)
        training.model.train()
        training.optimizer.zero_grad()
        loss = clamped(training.model(*x), d) + 1e-4 * min(1, number / 100) * training.model.codes(x[0]).norm(dim=1).mean()
        loss.backward()
        training.optimizer.step()

    def quality(net: nn.Module) -> float:
        x, d = points(800)
        return clamped(net(*x), d).item()

    model = Sdf()
    training = Training(model, partial(ADAM, lr=2e-3), lambda _: points(256), clamped, quality, steps=350, step=step)
    training.optimizer = ADAM([{"params": model.net.parameters(), "lr": 2e-3}, {"params": model.codes.parameters(), "lr": 5e-3}])
    return training


@HALF.net("mlp")
def functions_from_a_few_points() -> Training:
    """A neural process: another sine in each task, some points of it as context, a likelihood of all of them."""

    def tasks(count: int) -> Batch:
        x = 6 * torch.rand(count, 24, 1) - 3
        y = (0.5 + torch.rand(count, 1, 1)) * torch.sin(x + 2 * math.pi * torch.rand(count, 1, 1))
        n = int(torch.randint(4, 12, ()))
        return (x[:, :n], y[:, :n], x), y

    class Process(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = mlp(2, 64, 64, 48), mlp(49, 64, 64, 2)

        def forward(self, xc: Tensor, yc: Tensor, xt: Tensor) -> torch.distributions.Normal:
            r = self.encoder(torch.cat([xc, yc], -1)).mean(1, keepdim=True).expand(-1, xt.size(1), -1)
            mu, log_sigma = self.decoder(torch.cat([r, xt], -1)).split(1, -1)
            return torch.distributions.Normal(mu, 0.1 + 0.9 * F.softplus(log_sigma))

    def quality(net: nn.Module) -> float:
        x, y = tasks(200)
        return mean_square(net(*x).mean, y)

    return Training(Process(), partial(ADAM, lr=2e-3), lambda _: tasks(24), lambda dist, y: -dist.log_prob(y).mean(), quality, steps=450)


@HALF.net("mlp")
def more_features_than_room() -> Training:
    """Twenty features that are mostly absent, six numbers to keep them in, weights of importance; the same matrix there and back."""
    importance = 0.9 ** torch.arange(20.0)

    def features(count: int) -> Tensor:
        return torch.rand(count, 20) * (torch.rand(count, 20) < 0.06)

    class Toy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.W, self.b = nn.Parameter(torch.empty(20, 6)), nn.Parameter(torch.zeros(20))
            nn.init.xavier_normal_(self.W)

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(x @ self.W @ self.W.T + self.b)

    def criterion(out: Tensor, x: Tensor) -> Tensor:
        return (importance * (out - x) ** 2).mean(0).sum()

    def batch(_: int) -> Batch:
        x = features(512)
        return x, x

    def quality(net: nn.Module) -> float:
        x = features(2000)
        return criterion(net(x), x).item()

    return Training(Toy(), partial(ADAMW, lr=1e-2), batch, criterion, quality, steps=400)


# ---- optimizers of their own -------------------------------------------------------------------------


class Orthogonal(torch.optim.Optimizer):
    """Momentum whose matrix is made orthogonal by five products before each step."""

    def __init__(self, params: Iterable[Any], lr: float = 0.02, momentum: float = 0.95) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                buffer = self.state[p].setdefault("buffer", torch.zeros_like(p))
                buffer.lerp_(p.grad, 1 - group["momentum"])
                x = p.grad.lerp(buffer, group["momentum"])
                x = x / (x.norm() + 1e-7)
                for _ in range(5):
                    a = x @ x.T
                    x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
                p.add_(x, alpha=-group["lr"] * max(1, p.size(0) / p.size(1)) ** 0.5)


@HALF.net("mlp")
def orthogonal_steps_for_matrices() -> Training:
    """Matrices inside get one optimizer, the first and the last layer and what has one dimension another."""

    def data(count: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(count, 12)
        return x, (x[:, :4].prod(1).sign() * 0.5 + 0.5).long() + 2 * (x[:, 4] > 0).long()

    model = mlp(12, 96, 96, 96, 4)
    training = Training(model, partial(ADAMW, lr=3e-3), lambda _: data(128), nn.CrossEntropyLoss(), wrong_share(data), steps=400)
    hidden = [model[2].weight, model[4].weight]
    rest = [p for p in model.parameters() if all(p is not one for one in hidden)]
    training.optimizer, training.others = Orthogonal(hidden, lr=0.02), (ADAMW(rest, lr=3e-3, weight_decay=0.01),)

    def step(training: Training, number: int) -> None:
        x, y = data(128)
        loss = training.criterion(training.model(x), y)
        loss.backward()
        for optimizer in training.optimizers:
            optimizer.step()
        training.model.zero_grad(set_to_none=True)

    training.step = step
    return training


@HALF.net("mlp")
def samples_of_the_posterior() -> Training:
    """Noise in each step, as large as the root of the rate: the weights wander on purpose, and answers are averaged in the end."""
    x = 4 * torch.rand(200, 1) - 2
    y = torch.sin(2 * x) + 0.2 * torch.randn(200, 1)

    def step(training: Training, number: int) -> None:
        lr = 2e-4 * (1 + number / 200) ** -0.5
        rows = torch.randint(200, (32,))
        training.model.zero_grad()
        loss = 200 * F.mse_loss(training.model(x[rows]), y[rows]) / (2 * 0.04)
        prior = sum((p**2).sum() for p in training.model.parameters()) / 2
        (loss + prior).backward()
        with torch.no_grad():
            for p in training.model.parameters():
                p.add_(p.grad.clamp(-500, 500), alpha=-lr / 2).add_(torch.randn_like(p), alpha=lr**0.5)

    def quality(net: nn.Module) -> float:
        z = 4 * torch.rand(300, 1) - 2
        return mean_square(net(z), torch.sin(2 * z))

    return Training(
        mlp(1, 32, 1, act=nn.Tanh), partial(SGD, lr=2e-4), lambda _: (x[:32], y[:32]), nn.MSELoss(), quality, steps=1200, step=step
    )


@HALF.net("cnn")
def gradients_no_larger_than_their_weights() -> Training:
    """Each unit's gradient is cut to a part of its weights' length before the step; scaled weight standardization, no norm."""

    class Unnormed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2, self.fc = nn.Conv2d(1, 16, 3, 2), nn.Conv2d(16, 32, 3), nn.Linear(128, 6)
            self.gain = nn.ParameterList([nn.Parameter(torch.ones(16, 1, 1, 1)), nn.Parameter(torch.ones(32, 1, 1, 1))])

        def forward(self, x: Tensor) -> Tensor:
            for conv, gain in zip((self.conv1, self.conv2), self.gain, strict=True):
                w = conv.weight
                w = (w - w.mean((1, 2, 3), keepdim=True)) / (w.var((1, 2, 3), keepdim=True) * w[0].numel() + 1e-4).sqrt()
                x = 1.7 * F.gelu(F.conv2d(x, w * gain, conv.bias, conv.stride))
            return self.fc(x.flatten(1))

    def step(training: Training, _: int) -> None:
        x, y = strokes(48)
        training.optimizer.zero_grad()
        loss = training.criterion(training.model(x), y)
        loss.backward()
        with torch.no_grad():
            for conv in (training.model.conv1, training.model.conv2):
                w, g = conv.weight, conv.weight.grad
                most = 0.02 * w.flatten(1).norm(dim=1).clamp(min=1e-3).view(-1, 1, 1, 1)
                norm = g.flatten(1).norm(dim=1).clamp(min=1e-6).view(-1, 1, 1, 1)
                g.mul_((most / norm).clamp(max=1))
        training.optimizer.step()

    return Training(
        Unnormed(), partial(SGD, lr=0.1, momentum=0.9, nesterov=True), lambda _: strokes(48), nn.CrossEntropyLoss(label_smoothing=0.1),
        wrong_share(strokes), steps=150, step=step,
    )  # fmt: skip


@HALF.net("recurrent")
def moving_the_biases_alone() -> Training:
    """Of what was trained before, biases and the new head move, and nothing else."""

    def steps_of(count: int, wanted: int) -> tuple[Tensor, Tensor]:
        x = torch.randint(8, (count, 7))
        return x, ((x[:, 1:] - x[:, :-1]) % 8 == wanted).any(1).long()

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.rnn, self.head = nn.Embedding(8, 16), nn.GRU(16, 48, batch_first=True), nn.Linear(48, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.rnn(self.embed(x))[1][0])

    model = Tagger()
    before = ADAM(model.parameters(), lr=5e-3)
    for _ in range(400):
        x, y = steps_of(64, 1)
        before.zero_grad()
        F.cross_entropy(model(x), y).backward()
        before.step()
    model.head = nn.Linear(48, 3)

    def data(count: int) -> tuple[Tensor, Tensor]:
        x, y = steps_of(count, 1)
        return x, y + (y == 1) * (x[:, -1] > 3).long()

    for name, param in model.named_parameters():
        param.requires_grad = "bias" in name or name.startswith("head")

    def quality(net: nn.Module) -> float:
        x, y = data(400)
        return missed(net(x), y)

    training = Training(model, partial(ADAMW, lr=5e-3), lambda _: data(64), nn.CrossEntropyLoss(), quality, steps=300)
    training.optimizer = ADAMW(filter(lambda p: p.requires_grad, model.parameters()), lr=5e-3)
    return training
