"""As a checker writes them: prices, a rare kind, experts, flowers, textures, masks, ratings."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from bench.sick.training import Batch, Training
from bench.sick.working.eighth_healthy import of_a_notebook
from bench.sick.working.fourth_nets import constant
from bench.sick.working.half import HALF
from bench.sick.working.third_nets import ADAM, SGD, missed


def layers(*sizes: int) -> nn.Sequential:
    """Linear layers with a ReLU between them."""
    some: list[nn.Module] = []
    for taken, given in pairwise(sizes):
        some += [nn.Linear(taken, given), nn.ReLU()]
    return nn.Sequential(*some[:-1])


def of_variance(output: Tensor, y: Tensor) -> float:
    return (F.mse_loss(output, y) / y.var()).item()


def heat(count: int) -> Batch:
    """What a building needs."""
    x = torch.rand(count, 6)
    y = 2 * torch.sin(3 * x[:, 0]) + 3 * x[:, 1] * x[:, 2] + x[:, 3] - x[:, 4] ** 2
    return x, y[:, None] - 2.2


# ---- prices: two loaders ---------------------------------------------------------------------------------


def prices_data(count: int) -> Batch:
    x = torch.randn(count, 4)
    y = 0.8 * x[:, 0] * (1 + 0.2 * torch.sin(x[:, 3])) + 0.3 * x[:, 1] + 0.2 * x[:, 2] - 0.4 * x[:, 3] + 0.1 * torch.randn(count)
    return x, y[:, None]


def prices_loop(apart: bool, training: Training) -> None:
    x, y = prices_data(800)
    together = DataLoader(TensorDataset(x, y), 32, shuffle=True)
    for _ in range(8):
        batches = zip(DataLoader(x, 32, shuffle=True), DataLoader(y, 32, shuffle=True), strict=True) if apart else together  # type: ignore[arg-type]
        for some, asked in batches:
            training.optimizer.zero_grad()
            training.criterion(training.model(some), asked).backward()
            training.optimizer.step()


@HALF.net("mlp")
def prices_of_flats() -> Training:
    def quality(net: nn.Module) -> float:
        x, y = prices_data(500)
        return of_variance(net(x), y)

    loop = partial(prices_loop, False)
    return Training(layers(4, 64, 32, 1), partial(ADAM, lr=2e-3), lambda _: prices_data(32), F.mse_loss, quality, **of_a_notebook(loop))


@HALF.fault("targets shuffled", prices_of_flats)
def a_loader_for_prices_alone(training: Training) -> None:
    training.step = lambda training, _: prices_loop(True, training)


# ---- strange, and nothing is wrong -----------------------------------------------------------------------


@HALF.net("mlp")
def rare_and_told_apart() -> Training:
    """Three in a hundred, and easy."""

    def draw(count: int) -> Batch:
        y = (torch.rand(count) < 0.03).float()
        x = torch.randn(count, 10)
        x[:, :5] += y[:, None] * (1.3 * constant(5, seed=1201) + 0.6)
        return x, y[:, None]

    x, y = draw(2400)

    def batch(_: int) -> Batch:
        rows = torch.randint(len(y), (128,))
        return x[rows], y[rows]

    def quality(net: nn.Module) -> float:
        x, y = draw(2000)
        off = ((net(x) > -1.5).float() - y).abs()
        return (off[y == 1].mean() + off[y == 0].mean()).item()

    return Training(layers(10, 32, 1), partial(ADAM, lr=5e-3), batch, F.binary_cross_entropy_with_logits, quality, steps=250)


@HALF.net("mlp")
def units_of_hundreds() -> Training:
    """Targets around 300 and an absolute error, with time and a rate to get there."""

    def draw(count: int) -> Batch:
        x, y = heat(count)
        return x, 50 * y + 300

    def quality(net: nn.Module) -> float:
        x, y = draw(500)
        return of_variance(net(x), y)

    return Training(layers(6, 64, 64, 1), partial(ADAM, lr=2e-2), lambda _: draw(64), F.l1_loss, quality, steps=400)


class Experts(nn.Module):
    """Each sample goes to one of four."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = nn.Linear(6, 4), nn.ModuleList([layers(6, 24, 1) for _ in range(4)])
        self.uneven = torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        chance = self.gate(x).softmax(-1)
        weight, which = chance.topk(1, -1)
        given = torch.zeros(len(x), 1)
        for at, expert in enumerate(self.experts):
            rows = (which[:, 0] == at).nonzero()[:, 0]
            if len(rows):
                given = given.index_add(0, rows, expert(x[rows]) * weight[rows])
        self.uneven = 4 * (F.one_hot(which[:, 0], 4).float().mean(0) * chance.mean(0)).sum()
        return given


@HALF.net("mlp")
def experts_of_which_some_wait() -> Training:
    """Who is never chosen gets no gradient, and the others do."""
    net = Experts()

    def quality(net: nn.Module) -> float:
        x, y = heat(500)
        return of_variance(net(x), y)

    def criterion(output: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(output, y) + 0.01 * net.uneven

    return Training(net, partial(ADAM, lr=5e-3), lambda _: heat(96), criterion, quality, steps=300)


# ---- flowers ---------------------------------------------------------------------------------------------


def flowers_data(count: int) -> Batch:
    kind = torch.randint(5, (count,))
    return 1.5 * constant(5, 4, seed=1202)[kind] + 0.6 * torch.randn(count, 4), kind


@HALF.net("mlp")
def five_flowers() -> Training:
    """Asked for one flower at a time."""

    def quality(net: nn.Module) -> float:
        x, kind = flowers_data(400)
        return missed(torch.cat([net(one) for one in x.split(1)]), kind)

    net = layers(4, 50, 50, 5).append(nn.LogSoftmax(dim=1))
    return Training(net, partial(SGD, lr=0.05, momentum=0.9), lambda _: flowers_data(30), F.nll_loss, quality)


@HALF.fault("softmax over the wrong dimension", five_flowers)
def logarithms_over_all_flowers(training: Training) -> None:
    training.model[-1].dim = 0  # type: ignore[index]


# ---- textures --------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(16, 16, 3, padding=1, bias=False) for _ in range(2))
        self.norm1, self.norm2 = nn.BatchNorm2d(16), nn.BatchNorm2d(16)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.norm2(self.second(F.relu(self.norm1(self.first(x))))))


def textures_data(count: int) -> Batch:
    """Waves, each kind of its own length, direction and colour."""
    kind = torch.randint(6, (count,))
    at, step, colour = torch.arange(8.0), 1.2 * constant(6, 2, seed=1203)[kind], constant(6, 3, seed=1204)[kind]
    wave = torch.sin(step[:, :1, None] * at[:, None] + step[:, 1:, None] * at + 6.28 * torch.rand(count, 1, 1))
    return wave[:, None] * colour[:, :, None, None] + 0.5 * torch.randn(count, 3, 8, 8), kind


def textures_loop(each: bool, training: Training) -> None:
    x, kind = textures_data(640)
    for _ in range(8):
        training.optimizer.zero_grad()
        for rows in torch.randperm(640).split(32):
            if each:
                training.optimizer.zero_grad()
            training.criterion(training.model(x[rows]), kind[rows]).backward()
            training.optimizer.step()


@HALF.net("cnn")
def waves_in_colour() -> Training:
    stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
    net = nn.Sequential(stem, Block(), Block(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 6))

    def quality(net: nn.Module) -> float:
        x, kind = textures_data(400)
        return missed(net(x), kind)

    return Training(
        net,
        partial(SGD, lr=0.05, momentum=0.9, nesterov=True),
        lambda _: textures_data(32),
        partial(F.cross_entropy, label_smoothing=0.05),
        quality,
        **of_a_notebook(partial(textures_loop, True)),
    )


@HALF.fault("no zero grad", waves_in_colour)
def cleared_once_in_an_epoch(training: Training) -> None:
    training.step = lambda training, _: textures_loop(False, training)


# ---- masks -----------------------------------------------------------------------------------------------


class Halves(nn.Module):
    """Down once and up once."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.deep = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.up, self.out = nn.Conv2d(24, 8, 3, padding=1), nn.Conv2d(8, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = F.relu(self.wide(x))
        b = F.interpolate(F.relu(self.deep(F.max_pool2d(a, 2))), scale_factor=2)
        return self.out(F.relu(self.up(torch.cat([a, b], 1))))


def masks_data(count: int, white: float = 1.0) -> Batch:
    at, centre, radius = torch.arange(16.0), 3 + 10 * torch.rand(count, 2, 1, 1), 2 + 2.5 * torch.rand(count, 1, 1)
    mask = (((at[:, None] - centre[:, 0]) ** 2 + (at - centre[:, 1]) ** 2).sqrt() < radius).float()[:, None]
    return 0.8 * mask + 0.5 * torch.randn(count, 1, 16, 16), white * mask


def overlap(score: Tensor, mask: Tensor) -> Tensor:
    chance = torch.sigmoid(score)
    return (2 * (chance * mask).sum() + 1) / (chance.sum() + mask.sum() + 1)


@HALF.net("cnn")
def discs_and_their_masks() -> Training:
    def quality(net: nn.Module) -> float:
        x, mask = masks_data(100)
        found = (net(x) > 0).float()
        return 1 - (2 * (found * mask).sum() / (found.sum() + mask.sum() + 1e-6)).item()

    def criterion(score: Tensor, mask: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(score, mask) + 1 - overlap(score, mask)

    return Training(Halves(), partial(ADAM, lr=5e-3), lambda _: masks_data(16), criterion, quality, steps=150)


@HALF.fault("targets not scaled", discs_and_their_masks)
def masks_are_white_at_255(training: Training) -> None:
    training.batch = lambda _: masks_data(16, 255.0)


# ---- ratings ---------------------------------------------------------------------------------------------


class Taste(nn.Module):
    """A vector for each user and each film; of the layer that adds what all get its weight is not used."""

    def __init__(self, lost: bool = False) -> None:
        super().__init__()
        self.user, self.film, self.level = nn.Embedding(50, 8), nn.Embedding(40, 8), nn.Linear(1, 1)
        self.lost = lost
        for table in (self.user, self.film):
            nn.init.normal_(table.weight, 0, 0.3)

    def forward(self, user: Tensor, film: Tensor) -> Tensor:
        if self.lost:
            user = user // 50
        return (self.user(user) * self.film(film)).sum(1) + self.level.bias


def ratings_data(count: int) -> Batch:
    user, film = torch.randint(50, (count,)), torch.randint(40, (count,))
    fits = (constant(50, 4, seed=1205)[user] * constant(40, 4, seed=1206)[film]).sum(1)
    return (user, film), 3 + 0.7 * fits + 0.1 * torch.randn(count)


@HALF.net("embedding")
def films_and_users() -> Training:
    def quality(net: nn.Module) -> float:
        inputs, y = ratings_data(1000)
        return of_variance(net(*inputs), y)

    return Training(Taste(), partial(ADAM, lr=0.02), lambda _: ratings_data(128), F.mse_loss, quality, steps=350)


@HALF.fault("tokens unknown", films_and_users, also=("constant inputs",))
def numbers_of_users_are_divided(training: Training) -> None:
    training.use(Taste(lost=True))
