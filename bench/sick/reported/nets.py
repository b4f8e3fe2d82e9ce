"""Nets of the reported half that learn, each in a second: rows of numbers, images and signals, and sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.optim import SGD, Adagrad, Adam, AdamW, RMSprop
from torch.utils.data import DataLoader, Dataset, TensorDataset

from bench.sick.reported.half import HALF
from bench.sick.training import Batch, Training


def loaded(size: int, data: Dataset[Any]) -> Callable[[int], Batch]:
    """Batches of a loader that shuffles anew in each epoch."""
    loader: DataLoader[Any] = DataLoader(data, batch_size=size, shuffle=True, drop_last=True)
    epoch: Iterator[Any] = iter(())

    def batch(_: int) -> Batch:
        nonlocal epoch
        try:
            inputs, target = next(epoch)
        except StopIteration:
            epoch = iter(loader)
            inputs, target = next(epoch)
        return (tuple(inputs) if isinstance(inputs, list) else inputs), target

    return batch


def share(wrong: Tensor) -> float:
    """Which share is wrong."""
    return wrong.float().mean().item()


# ---- mlp -------------------------------------------------------------------------------------------


class Rows(Dataset[Any]):
    """Rows with names: a dict of inputs and a target."""

    def __init__(self, inputs: dict[str, Tensor], target: Tensor) -> None:
        self.inputs, self.target = inputs, target

    def __len__(self) -> int:
        return len(self.target)

    def __getitem__(self, row: int) -> tuple[dict[str, Tensor], Tensor]:
        return {name: column[row] for name, column in self.inputs.items()}, self.target[row]


def houses_data(count: int) -> tuple[dict[str, Tensor], Tensor]:
    numbers, district = torch.randn(count, 6), torch.randint(8, (count,))
    area, rooms, age = numbers[:, 0], numbers[:, 1], numbers[:, 2]
    price = area + 0.5 * area * rooms - 0.7 * age.abs() + 0.4 * (district - 3.5) + 0.5 * torch.sin(2 * numbers[:, 3])
    return {"numbers": numbers, "district": district}, price


class Residual(nn.Module):
    """Adds what two layers make of a normed input."""

    def __init__(self, width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.one, self.two = nn.Linear(width, width), nn.Linear(width, width)
        self.act = nn.GELU()
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.drop(self.two(self.act(self.one(self.norm(x)))))


class Houses(nn.Module):
    """What is a house worth? Numbers beside an embedding of its district."""

    def __init__(self, width: int = 32, dropout: float = 0.0) -> None:
        super().__init__()
        self.district = nn.Embedding(8, 4)
        self.stem = nn.Linear(10, width)
        self.blocks = nn.ModuleList(Residual(width, dropout) for _ in range(2))
        self.head = nn.Linear(width, 1)

    def forward(self, numbers: Tensor, district: Tensor) -> Tensor:
        x = self.stem(torch.cat([numbers, self.district(district)], 1))
        for block in self.blocks:
            x = block(x)
        return self.head(x).squeeze(1)


@HALF.net("mlp")
def houses() -> Training:
    """Prices, of a dict of inputs."""

    def quality(net: nn.Module) -> float:
        inputs, price = houses_data(512)
        return F.l1_loss(net(**inputs), price).item()

    return Training(Houses(), partial(AdamW, lr=3e-3), loaded(32, Rows(*houses_data(2048))), F.smooth_l1_loss, quality, steps=300)


def tags_data(count: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 8)
    return x, (x * x.roll(-1, 1) > 0)[:, ::2].float()


@HALF.net("mlp")
def tags() -> Training:
    """Four tags, each of which may be given or not."""
    net = nn.Sequential(nn.Linear(8, 64), nn.BatchNorm1d(64), nn.SiLU(), nn.Linear(64, 48), nn.SiLU(), nn.Linear(48, 4))

    def quality(net: nn.Module) -> float:
        x, given = tags_data(512)
        return share((net(x) > 0).float() != given)

    return Training(net, partial(RMSprop, lr=2e-3), lambda _: tags_data(64), F.binary_cross_entropy_with_logits, quality, steps=350)


def duration_truth(x: Tensor) -> tuple[Tensor, Tensor]:
    return 2 + x[:, :1] * x[:, 1:2] + x[:, 2:3].abs(), 0.1 + 0.4 * torch.sigmoid(3 * x[:, 3:])


def duration_data(count: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 4)
    mean, deviation = duration_truth(x)
    return x, mean + deviation * torch.randn(count, 1)


class Duration(nn.Module):
    """How long does it take, and how sure is that?"""

    def __init__(self, width: int = 40) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, width), nn.ELU(), nn.Linear(width, width), nn.ELU())
        self.mean = nn.Linear(width, 1)
        self.variance = nn.Sequential(nn.Linear(width, 1), nn.Softplus())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.body(x)
        return self.mean(h), self.variance(h) + 1e-3


def gaussian(output: tuple[Tensor, Tensor], target: Tensor) -> Tensor:
    return F.gaussian_nll_loss(output[0], target, output[1])


@HALF.net("mlp")
def duration() -> Training:
    """A mean and a variance, under the likelihood of a Gaussian."""

    def quality(net: nn.Module) -> float:
        x, _ = duration_data(512)
        mean, deviation = duration_truth(x)
        told, variance = net(x)
        return ((told - mean).abs().mean() + (variance.sqrt() - deviation).abs().mean()).item()

    return Training(Duration(), partial(Adam, lr=4e-3), lambda _: duration_data(128), gaussian, quality, steps=250)


def churn_data(count: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 10)
    score = x[:, 0] * x[:, 1] + x[:, 2] - 0.7 * x[:, 3].abs() + 0.5 * torch.relu(x[:, 4])
    return x, (score > 0.3).float().unsqueeze(1)


@HALF.net("mlp")
def churn() -> Training:
    """Who leaves? One logit; dropout, and small batches of a loader."""
    net = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))

    def quality(net: nn.Module) -> float:
        x, leaves = churn_data(800)
        return share((net(x) > 0).float() != leaves)

    data = TensorDataset(*churn_data(4000))
    return Training(net, partial(SGD, lr=0.1, momentum=0.8), loaded(16, data), F.binary_cross_entropy_with_logits, quality, steps=500)


def cluster_places() -> Tensor:
    """Two places for each of six classes, away from each other."""
    return 2.5 * F.normalize(torch.randn(12, 5), dim=1)


def cluster_data(count: int, places: Tensor) -> tuple[Tensor, Tensor]:
    which = torch.randint(12, (count,))
    return places[which] + 0.45 * torch.randn(count, 5), which % 6


@HALF.net("mlp")
def clusters() -> Training:
    """Six classes of two clusters each."""
    places = cluster_places()
    net = nn.Sequential(nn.Linear(5, 48), nn.ReLU(), nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 6))

    def quality(net: nn.Module) -> float:
        x, label = cluster_data(600, places)
        return share(net(x).argmax(1) != label)

    optimize = partial(SGD, lr=0.05, momentum=0.9, nesterov=True)
    return Training(net, optimize, lambda _: cluster_data(32, places), nn.CrossEntropyLoss(), quality, steps=200)


def arm_data(count: int) -> tuple[Tensor, Tensor]:
    """Angles of two joints; the place of the hand, and which third of the table it is in."""
    angle = (torch.rand(count, 2) * 2 - 1) * 2
    first, both = angle[:, 0], angle.sum(1)
    place = torch.stack([first.cos() + 0.8 * both.cos(), first.sin() + 0.8 * both.sin()], 1)
    third = (place[:, 1] > -0.5).float() + (place[:, 1] > 0.5).float()
    return angle, torch.cat([place, third[:, None]], 1)


class Arm(nn.Module):
    """Where is the hand of a robot? Two heads."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(2, width), nn.Softplus(), nn.Linear(width, width), nn.Softplus())
        self.place = nn.Linear(width, 2)
        self.third = nn.Linear(width, 3)

    def forward(self, angle: Tensor) -> dict[str, Tensor]:
        h = self.trunk(angle)
        return {"place": self.place(h), "third": self.third(h)}


def two_losses(output: dict[str, Tensor], target: Tensor) -> Tensor:
    return F.mse_loss(output["place"], target[:, :2]) + 0.3 * F.cross_entropy(output["third"], target[:, 2].long())


@HALF.net("mlp")
def arm() -> Training:
    """A regression and a classification at once."""

    def quality(net: nn.Module) -> float:
        angle, target = arm_data(512)
        output = net(angle)
        return F.mse_loss(output["place"], target[:, :2]).item() + share(output["third"].argmax(1) != target[:, 2].long())

    return Training(Arm(), partial(Adam, lr=8e-3), loaded(50, TensorDataset(*arm_data(3000))), two_losses, quality, steps=300)


# ---- cnn -------------------------------------------------------------------------------------------


def shapes_data(count: int) -> tuple[Tensor, Tensor]:
    """Discs, frames, crosses and stripes in a colour of their own, on noise."""
    label = torch.randint(4, (count,))
    place = torch.randint(3, 7, (count, 2, 1, 1))
    row = torch.arange(10).view(1, 10, 1) - place[:, 0]
    column = torch.arange(10).view(1, 1, 10) - place[:, 1]
    far = torch.maximum(row.abs(), column.abs())
    near = far <= 2
    forms = [row.square() + column.square() <= 5, far == 2, near & ((row == 0) | (column == 0)), near & (row % 2 == 0)]
    drawn = torch.stack([form.expand(count, 10, 10) for form in forms], 1)[torch.arange(count), label]
    colour = 0.3 + torch.rand(count, 3, 1, 1)
    return drawn[:, None] * colour + 0.15 * torch.randn(count, 3, 10, 10), label


class ResidualConvolution(nn.Module):
    """Adds what two convolutions make of an image."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.GroupNorm(4, channels)
        self.two = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.two(F.silu(self.norm(self.one(x))))


class Shapes(nn.Module):
    """Which shape is it?"""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.block = ResidualConvolution(channels)
        self.norm = nn.GroupNorm(4, channels)
        self.head = nn.Linear(channels, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.silu(self.stem(x))
        x = F.max_pool2d(F.silu(self.norm(self.block(x))), 2)
        return self.head(x.amax((2, 3)))


@HALF.net("cnn")
def shapes() -> Training:
    """Coloured shapes in images, by a residual net with groups for a norm."""

    def quality(net: nn.Module) -> float:
        x, label = shapes_data(400)
        return share(net(x).argmax(1) != label)

    return Training(Shapes(), partial(AdamW, lr=5e-3), lambda _: shapes_data(32), F.cross_entropy, quality, steps=200)


def pulses_data(count: int) -> tuple[Tensor, Tensor]:
    """Sines, saws, squares and bursts, of any phase."""
    label = torch.randint(4, (count,))
    time = torch.linspace(0, 3, 40) * (0.8 + 0.4 * torch.rand(count, 1)) + torch.rand(count, 1)
    sine = torch.sin(6.283 * time)
    waves = torch.stack([sine, 2 * (time % 1) - 1, sine.sign(), 1.5 * sine * torch.sin(1.5 * time).square()], 1)
    return (waves[torch.arange(count), label] + 0.2 * torch.randn(count, 40)).unsqueeze(1), label


class Pulses(nn.Module):
    """Which form has a signal?"""

    def __init__(self, channels: int = 12, momentum: float = 0.1) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv1d(1, channels, 5, padding=2), nn.BatchNorm1d(channels, momentum=momentum)
        self.conv2, self.bn2 = nn.Conv1d(channels, 24, 5, stride=2), nn.BatchNorm1d(24, momentum=momentum)
        self.pool = nn.AdaptiveAvgPool1d(4)
        self.fc = nn.Linear(96, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        return self.fc(self.pool(x).flatten(1))


@HALF.net("cnn")
def pulses() -> Training:
    """Signals, by convolutions along time."""

    def quality(net: nn.Module) -> float:
        x, label = pulses_data(400)
        return share(net(x).argmax(1) != label)

    data = TensorDataset(*pulses_data(1600))
    return Training(Pulses(), partial(SGD, lr=0.03, momentum=0.9, weight_decay=1e-4), loaded(24, data), F.cross_entropy, quality, steps=200)


def patches_data(count: int) -> tuple[Tensor, Tensor]:
    """A rough patch in an image; which points belong to it?"""
    start, size = torch.randint(0, 6, (count, 2, 1)), torch.randint(4, 8, (count, 2, 1))
    inside = (torch.arange(12) >= start) & (torch.arange(12) < start + size)
    mask = (inside[:, 0, :, None] & inside[:, 1, None, :]).float().unsqueeze(1)
    return torch.randn(count, 1, 12, 12) * (0.25 + 0.9 * mask), mask


class Patches(nn.Module):
    """Down, up again, and a way around."""

    def __init__(self, channels: int = 10) -> None:
        super().__init__()
        self.enter = nn.Sequential(nn.Conv2d(1, channels, 3, padding=1), nn.ELU())
        self.down = nn.Sequential(nn.Conv2d(channels, 16, 3, stride=2, padding=1), nn.ELU(), nn.Conv2d(16, 16, 3, padding=1), nn.ELU())
        self.up = nn.ConvTranspose2d(16, channels, 2, stride=2)
        self.out = nn.Conv2d(2 * channels, 1, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        wide = self.enter(x)
        return self.out(torch.cat([wide, F.elu(self.up(self.down(wide)))], 1))


@HALF.net("cnn")
def patches() -> Training:
    """Segmentation: a logit for each point of an image."""

    def quality(net: nn.Module) -> float:
        x, mask = patches_data(200)
        told = net(x) > 0
        return 1 - ((told & mask.bool()).sum() / (told | mask.bool()).sum()).item()

    return Training(Patches(), partial(Adam, lr=8e-3), lambda _: patches_data(16), nn.BCEWithLogitsLoss(), quality, steps=200)


# ---- recurrent -------------------------------------------------------------------------------------


def tides_data(count: int, length: int = 16) -> tuple[Tensor, Tensor]:
    """Waves of a pace of their own; the next value of each."""
    time = torch.arange(length + 1) * (0.3 + 0.6 * torch.rand(count, 1)) + 6.283 * torch.rand(count, 1)
    height = (torch.sin(time) + 0.05 * torch.randn(count, length + 1)).unsqueeze(2)
    return height[:, :-1], height[:, 1:]


class Tides(nn.Module):
    """What is the next value? An answer at each place of a sequence."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.rnn = nn.GRU(1, width, batch_first=True)
        self.out = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.rnn(x)
        return self.out(states)


@HALF.net("recurrent")
def tides() -> Training:
    """A forecast of waves, under the absolute error."""

    def quality(net: nn.Module) -> float:
        x, following = tides_data(256)
        return F.l1_loss(net(x)[:, 4:], following[:, 4:]).item()

    return Training(Tides(), partial(Adam, lr=6e-3), lambda _: tides_data(32), nn.L1Loss(), quality, steps=250)


def ranks_data(count: int, length: int = 7) -> tuple[Tensor, Tensor]:
    """Is the token behind smaller, equal or larger than the one before?"""
    tokens = torch.randint(1, 7, (count, length))
    around = F.pad(tokens, (1, 1))
    return tokens, (around[:, 2:] - around[:, :-2]).sign() + 1


class Ranks(nn.Module):
    """A tag for each token, by an LSTM that reads both ways."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 10)
        self.lstm = nn.LSTM(10, width, bidirectional=True, batch_first=True)
        self.tag = nn.Linear(2 * width, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.lstm(self.embed(tokens))
        return self.tag(states).transpose(1, 2)


@HALF.net("recurrent")
def ranks() -> Training:
    """Tagging, of a pool and with Adagrad."""
    tokens, tag = ranks_data(3000)

    def quality(net: nn.Module) -> float:
        x, right = ranks_data(300)
        return share(net(x).argmax(1) != right)

    return Training(Ranks(), partial(Adagrad, lr=0.08), loaded(40, TensorDataset(tokens, tag)), F.cross_entropy, quality, steps=250)


def reviews_data(count: int, length: int = 12) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Words that are good (1 to 6) or bad (7 to 12) among others; padded with 0."""
    words, lengths = torch.randint(1, 25, (count, length)), torch.randint(4, length + 1, (count,))
    words[torch.arange(length) >= lengths[:, None]] = 0
    score = ((words > 0) & (words <= 6)).sum(1) - ((words > 6) & (words <= 12)).sum(1)
    return (words, lengths), (score > 0).float()


class Reviews(nn.Module):
    """Is a review good? A packed sequence."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.words = nn.Embedding(25, 12, padding_idx=0)
        self.gru = nn.GRU(12, width, batch_first=True)
        self.drop = nn.Dropout(0.1)
        self.good = nn.Linear(width, 1)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(self.words(words), lengths, batch_first=True, enforce_sorted=False)
        _, last = self.gru(packed)
        return self.good(self.drop(last[-1])).squeeze(1)


@HALF.net("recurrent")
def reviews() -> Training:
    """Sequences of several lengths, and whether they are good."""

    def quality(net: nn.Module) -> float:
        inputs, good = reviews_data(500)
        return share((net(*inputs) > 0).float() != good)

    return Training(Reviews(), partial(Adam, lr=0.01), lambda _: reviews_data(64), F.binary_cross_entropy_with_logits, quality, steps=250)
