"""Nothing is wrong here: places that are pointed at, noise on purpose, a part that is frozen for good, and hooks inside a model."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

from bench.sick.training import Batch, Training
from bench.sick.working.fourth_nets import constant
from bench.sick.working.half import HALF
from bench.sick.working.third_nets import ADAM, missed

# ---- pointers --------------------------------------------------------------------------------------------


class Pointing(nn.Module):
    """After Vinyals et al., 2015. In training it goes on from the places that are right."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.enc = nn.LSTM(1, width, batch_first=True, bidirectional=True)
        self.dec = nn.LSTMCell(1, 2 * width)
        self.W1, self.W2 = nn.Linear(2 * width, width, bias=False), nn.Linear(2 * width, width, bias=False)
        self.v = nn.Linear(width, 1, bias=False)

    def forward(self, x: Tensor, order: Tensor | None = None) -> Tensor:
        seen, (h, c) = self.enc(x)
        h, c = h.transpose(0, 1).flatten(1), c.transpose(0, 1).flatten(1)
        given, out = torch.zeros(len(x), 1), []
        mask = torch.zeros(len(x), x.shape[1], dtype=torch.bool)
        for i in range(x.shape[1]):
            h, c = self.dec(given, (h, c))
            scores = self.v(torch.tanh(self.W1(seen) + self.W2(h)[:, None])).squeeze(2).masked_fill(mask, -math.inf)
            out.append(scores.log_softmax(1))
            place = scores.argmax(1) if order is None else order[:, i]
            mask = mask.scatter(1, place[:, None], True)
            given = x[torch.arange(len(x)), place]
        return torch.stack(out, 1)


@HALF.net("recurrent")
def sorted_by_pointers() -> Training:
    def data(count: int) -> Batch:
        x = torch.rand(count, 5, 1)
        return x, x.squeeze(2).argsort(1)

    def batch(_: int) -> Batch:
        x, order = data(64)
        return {"x": x, "order": order}, order

    def criterion(output: Tensor, order: Tensor) -> Tensor:
        return F.nll_loss(output.flatten(0, 1), order.flatten())

    def quality(net: nn.Module) -> float:
        x, order = data(200)
        return missed(net(x), order)

    return Training(Pointing(), partial(ADAM, lr=5e-3), batch, criterion, quality)


# ---- two views -------------------------------------------------------------------------------------------


def views(count: int) -> tuple[Tensor, Tensor]:
    """What both have is in six hidden numbers; each mixes them with noise of its own."""
    z, mix, clutter = torch.randn(count, 6), constant(6, 24, seed=1501), 0.7 * constant(6, 24, seed=1502)
    one, two = (z @ mix + torch.randn(count, 6) @ clutter for _ in range(2))
    return one, two


class TwoViews(nn.Module):
    """An encoder and a projector, the same for both."""

    def __init__(self, projector: nn.Module) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(24, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 16))
        self.projector = projector

    def forward(self, one: Tensor, two: Tensor) -> tuple[Tensor, Tensor]:
        return self.projector(self.backbone(one)), self.projector(self.backbone(two))


def strangers(embed: Callable[[Any, Tensor], Tensor]) -> Callable[[nn.Module], float]:
    """How often another sample's view is nearer than one's own."""

    def quality(net: nn.Module) -> float:
        one, two = (F.normalize(z - z.mean(0), dim=1) for z in (embed(net, x) for x in views(100)))
        return missed(one @ two.T, torch.arange(100))

    return quality


def variance_and_covariance(output: tuple[Tensor, Tensor], _: Tensor) -> Tensor:
    """After Bardes et al., 2022."""
    loss = 25 * F.mse_loss(*output)
    for z in output:
        loss = loss + 12.5 * F.relu(1 - (z.var(0) + 1e-4).sqrt()).mean()
        z = z - z.mean(0)
        shared = z.T @ z / (len(z) - 1)
        loss = loss + (shared - torch.diag(shared.diag())).square().sum() / z.shape[1]
    return loss


@HALF.net("embedding")
def two_views_of_six_numbers() -> Training:
    projector = nn.Sequential(nn.Linear(16, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 48))
    quality = strangers(lambda net, x: net.backbone(x))
    return Training(
        TwoViews(projector),
        partial(torch.optim.AdamW, lr=2e-3),
        lambda _: (views(128), torch.zeros(128)),
        variance_and_covariance,
        quality,
        steps=250,
    )


def half_inverse(square: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(square)
    return vectors @ torch.diag(values.clamp(min=1e-6).rsqrt()) @ vectors.T


@HALF.strange(two_views_of_six_numbers)
def by_their_canonical_correlations(training: Training) -> None:
    """The loss is minus their sum; after Andrew et al., 2013."""
    training.use(TwoViews(nn.Linear(16, 6)))

    def criterion(output: tuple[Tensor, Tensor], _: Tensor) -> Tensor:
        one, two = (z - z.mean(0) for z in output)
        n, eye = len(one) - 1, 1e-3 * torch.eye(6)
        both = half_inverse(one.T @ one / n + eye) @ (one.T @ two / n) @ half_inverse(two.T @ two / n + eye)
        return -torch.linalg.svdvals(both).sum()

    training.criterion = criterion  # type: ignore[assignment]
    training.quality = strangers(lambda net, x: net.projector(net.backbone(x)))


# ---- noise on purpose ------------------------------------------------------------------------------------


class Blurred(nn.Module):
    """Weights are drawn; after Blundell et al., 2015, by local reparametrization."""

    def __init__(self, taken: int, given: int) -> None:
        super().__init__()
        self.mu = nn.Parameter(torch.randn(given, taken) / taken**0.5)
        self.rho = nn.Parameter(torch.full((given, taken), -4.0))
        self.bias = nn.Parameter(torch.zeros(given))
        self.kl = torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        sigma = F.softplus(self.rho)
        self.kl = (-sigma.log() + (sigma**2 + self.mu**2) / 2 - 0.5).sum()
        mean = F.linear(x, self.mu, self.bias)
        if not self.training:
            return mean
        return mean + F.linear(x**2, sigma**2).clamp(min=1e-12).sqrt() * torch.randn_like(mean)


@HALF.net("mlp")
def weights_with_a_blur_of_their_own() -> Training:
    layers = Blurred(10, 64), Blurred(64, 1)

    def data(count: int) -> Batch:
        x = torch.randn(count, 10)
        return x, torch.sin(x[:, :1] * 1.5) + x[:, 1:2] * x[:, 2:3]

    x, clean = data(1024)
    y = clean + 0.1 * torch.randn_like(clean)

    def batch(_: int) -> Batch:
        at = torch.randint(1024, (64,))
        return x[at], y[at]

    def criterion(output: Tensor, target: Tensor) -> Tensor:
        divergence = torch.stack([one.kl for one in layers]).sum()
        return (0.5 * ((output - target) / 0.1) ** 2).sum() + divergence * len(target) / 1024

    def quality(net: nn.Module) -> float:
        fresh, target = data(300)
        return float(((net(fresh) - target) ** 2).mean() / target.var())

    return Training(nn.Sequential(layers[0], nn.ReLU(), layers[1]), partial(ADAM, lr=5e-3), batch, criterion, quality, steps=300)


def stripes(count: int) -> Batch:
    """Of a direction, or checks."""
    label, size = torch.randint(4, (count,)), torch.arange(16.0)
    a, b = torch.meshgrid(size, size, indexing="ij")
    f, p = 0.8 + 0.7 * torch.rand(count, 1, 1), 6.28 * torch.rand(count, 1, 1)
    one, two, three = torch.sin(f * a + p), torch.sin(f * b + p), torch.sin(f * (a + b) * 0.7 + p)
    kinds = torch.stack([one, two, three, one * two], 1)
    return (kinds[torch.arange(count), label] + 0.4 * torch.randn(count, 16, 16))[:, None], label


class Striped(nn.Module):
    def __init__(self, saved: bool = False) -> None:
        super().__init__()
        self.saved = saved
        self.conv1, self.conv2 = nn.Conv2d(1, 12, 3, padding=1), nn.Conv2d(12, 24, 3, padding=1)
        self.fc = nn.Linear(24, 4)

    def forward(self, x: Tensor) -> Tensor:
        for conv in (self.conv1, self.conv2):
            block = partial(self.block, conv)
            x = checkpoint(block, x, use_reentrant=False) if self.saved else block(x)
        return self.fc(x.mean((2, 3)))

    @staticmethod
    def block(conv: nn.Module, x: Tensor) -> Tensor:
        return F.max_pool2d(F.relu(conv(x)), 2)


@HALF.net("cnn")
def stripes_and_checks() -> Training:
    def quality(net: nn.Module) -> float:
        x, label = stripes(200)
        return missed(net(x), label)

    return Training(Striped(), partial(ADAM, lr=5e-3), lambda _: stripes(32), F.cross_entropy, quality, steps=150)


@HALF.strange(stripes_and_checks)
def in_checkpoints_with_noise_on_the_gradients(training: Training) -> None:
    """Less and less of it, after Neelakantan et al., 2015."""
    training.use(Striped(saved=True))
    steps = [0]

    def noisy(gradient: Tensor) -> Tensor:
        return gradient + torch.randn_like(gradient) * 0.01 / (1 + steps[0]) ** 0.55

    for one in training.model.parameters():
        one.register_hook(noisy)
    training.after.append(lambda number: steps.__setitem__(0, number))


# ---- who likes what --------------------------------------------------------------------------------------


class Tastes(nn.Module):
    """By products of factors."""

    def __init__(self, users: int = 80, items: int = 60, width: int = 16) -> None:
        super().__init__()
        self.user_factors, self.item_factors = nn.Embedding(users, width), nn.Embedding(items, width)
        self.item_bias = nn.Embedding(items, 1)
        for table in (self.user_factors, self.item_factors):
            nn.init.normal_(table.weight, std=0.1)
        nn.init.zeros_(self.item_bias.weight)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        return (self.user_factors(user) * self.item_factors(item)).sum(-1) + self.item_bias(item).squeeze(-1)


LIKED = constant(80, 4, seed=1503) @ constant(4, 60, seed=1504) > 2


@HALF.net("embedding")
def liked_before_others() -> Training:
    """After Rendle et al., 2009."""
    pairs = LIKED.nonzero()

    def batch(_: int) -> Batch:
        user, item = pairs[torch.randint(len(pairs), (128,))].T
        other = torch.multinomial((~LIKED[user]).float(), 1).squeeze(1)
        return (torch.cat([user, user]), torch.cat([item, other])), torch.zeros(128)

    def criterion(output: Tensor, _: Tensor) -> Tensor:
        liked, other = output.chunk(2)
        return -F.logsigmoid(liked - other).mean()

    def quality(net: nn.Module) -> float:
        scores = net(*torch.meshgrid(torch.arange(80), torch.arange(60), indexing="ij"))
        rows = [(row[liked], row[~liked]) for row, liked in zip(scores, LIKED, strict=True) if bool(liked.any())]
        return 2 * sum((good[:, None] < bad).float().mean().item() for good, bad in rows) / len(rows)

    return Training(Tastes(), partial(ADAM, lr=0.02, weight_decay=1e-5), batch, criterion, quality)


@HALF.strange(liked_before_others)
def whole_rows_of_sixteen_users(training: Training) -> None:
    """What was not seen has a weight of a tenth."""

    def batch(_: int) -> Batch:
        user = torch.randint(80, (16,))
        return (user[:, None].expand(16, 60), torch.arange(60).expand(16, 60)), LIKED[user].float()

    def criterion(output: Tensor, target: Tensor) -> Tensor:
        return ((0.1 + 0.9 * target) * (output - target) ** 2).sum(1).mean()

    training.batch, training.criterion = batch, criterion


# ---- equilibrium -----------------------------------------------------------------------------------------


class Equilibrium(nn.Module):
    """After Bai et al., 2019: the slope of a fixed point, by a hook on it."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.inject, self.out = nn.Linear(8, width), nn.Linear(width, 1)
        self.w = parametrizations.spectral_norm(nn.Linear(width, width, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        u = self.inject(x)
        with torch.no_grad():
            z = torch.zeros_like(u)
            for _ in range(15):
                z = self.again(z, u)
        z = self.again(z, u)
        if self.training:
            begin = z.clone().detach().requires_grad_()
            then = self.again(begin, u)

            def back(gradient: Tensor) -> Tensor:
                total = gradient
                for _ in range(12):
                    total = torch.autograd.grad(then, begin, total, retain_graph=True)[0] + gradient
                return total

            z.register_hook(back)
        return self.out(z)

    def again(self, z: Tensor, u: Tensor) -> Tensor:
        return torch.tanh(0.9 * self.w(z) + u)


@HALF.net("mlp")
def an_equilibrium_by_its_hook() -> Training:
    def data(count: int) -> Batch:
        x = torch.randn(count, 8)
        return x, torch.sin(x[:, :1] + x[:, 1:2]) + 0.5 * x[:, 2:3] * x[:, 3:4]

    def quality(net: nn.Module) -> float:
        x, y = data(200)
        return float(((net(x) - y) ** 2).mean() / y.var())

    return Training(Equilibrium(), partial(ADAM, lr=5e-3), lambda _: data(64), F.mse_loss, quality)


# ---- temperature -----------------------------------------------------------------------------------------


def rings_told(count: int) -> Batch:
    x = torch.randn(count, 10)
    return x, (x[:, :3].square().sum(1) > 2.37).long()


def too_sure() -> nn.Module:
    """Knows two hundred samples by heart, of which some are labelled wrong."""
    net = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = ADAM(net.parameters(), lr=1e-2)
    x, label = rings_told(200)
    label = torch.where(torch.rand(200) < 0.15, 1 - label, label)
    for _ in range(150):
        optimizer.zero_grad()
        F.cross_entropy(net(x), label).backward()
        optimizer.step()
    return net.requires_grad_(False).eval()


class Tempered(nn.Module):
    """After Guo et al., 2017: one number is learned."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.temperature = net, nn.Parameter(torch.full((1,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x) / self.temperature


@HALF.net("mlp")
def one_temperature() -> Training:
    model = Tempered(too_sure())
    x, label = rings_told(600)

    def quality(net: nn.Module) -> float:
        fresh, truth = rings_told(600)
        return max(F.cross_entropy(net(fresh), truth).item() - 0.55, 0.0)

    return Training(model, lambda _: torch.optim.SGD([model.temperature], lr=0.1), lambda _: (x, label), F.cross_entropy, quality)
