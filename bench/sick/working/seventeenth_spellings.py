"""Faults in unusual spellings: a softmax, a bound or a sigmoid by hand, a rounding that is scaled, a factor that is meant as a rate."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.sick.training import Batch, Training
from bench.sick.working.half import HALF

# ---- beats of a heart: a convolution over time -------------------------------------------------------------


class Beats(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        first = nn.Sequential(nn.Conv1d(1, 16, 7, padding=3), nn.ReLU(), nn.MaxPool1d(2))
        self.net = nn.Sequential(first, nn.Conv1d(16, 32, 5, padding=2), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, 5))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).log_softmax(-1)


def beats_data(count: int) -> tuple[Tensor, Tensor]:
    label = torch.randint(5, (count,))
    often = torch.tensor([2.0, 3.0, 5.0, 7.0, 9.0])[label][:, None]
    wave = torch.sin(2 * math.pi * (often * torch.linspace(0, 1, 48) + torch.rand(count, 1)))
    return (wave + 0.4 * torch.randn(count, 48))[:, None], label


def beats_error(model: nn.Module) -> float:
    x, label = beats_data(500)
    return (model(x).argmax(1) != label).float().mean().item()


@HALF.net("cnn")
def heart_beats() -> Training:
    return Training(Beats(), partial(torch.optim.Adam, lr=5e-3), lambda _: beats_data(32), F.nll_loss, beats_error, 200)


@HALF.fault("rate too low", heart_beats)
def the_lambda_gives_a_rate_and_not_a_factor(training: Training) -> None:
    training.schedulers = [torch.optim.lr_scheduler.LambdaLR(training.optimizer, lambda step: 5e-3 * 0.99 ** (step // 100))]


# ---- strokes: a variational autoencoder ---------------------------------------------------------------------


class Strokes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(24, 64), nn.ReLU())
        self.mu, self.logvar = nn.Linear(64, 4), nn.Linear(64, 4)
        self.dec = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 24))

    def code(self, mu: Tensor, logvar: Tensor) -> Tensor:
        return mu + torch.randn_like(mu) * (0.5 * logvar).exp() if self.training else mu

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h)
        return self.dec(self.code(mu, logvar)), mu, logvar


class RoundedStrokes(Strokes):
    def code(self, mu: Tensor, logvar: Tensor) -> Tensor:
        return torch.floor(mu * 2) / 2


def bound(out: tuple[Tensor, Tensor, Tensor], x: Tensor) -> Tensor:
    again, mu, logvar = out
    apart = -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(1).mean()
    return (again - x).square().sum(1).mean() + 0.02 * apart


@HALF.net("generative")
def strokes() -> Training:
    one, other = torch.randn(3, 24), torch.randn(3, 24)

    def data(count: int) -> Tensor:
        cause = torch.randn(count, 3)
        return torch.sin(cause @ one) + 0.2 * (cause @ other)

    def batch(number: int) -> Batch:
        x = data(64)
        return x, x

    def error(model: nn.Module) -> float:
        x = data(500)
        return (F.mse_loss(model(x)[0], x) / x.var()).item()

    return Training(Strokes(), partial(torch.optim.Adam, lr=3e-3), batch, bound, error, 350)


@HALF.fault("no gradient through", strokes)
def codes_are_rounded_to_halves(training: Training) -> None:
    training.use(RoundedStrokes())


# ---- two points and their noise: so few numbers hardly tell how noisy they are --------------------------------


class Corners(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.time, self.inp, self.mid, self.out = nn.Linear(1, 32), nn.Linear(2, 64), nn.Linear(96, 64), nn.Linear(64, 2)

    def forward(self, x: Tensor, level: Tensor) -> Tensor:
        waves = torch.sin(3 * self.time(level[:, None]))
        return self.out(F.silu(self.mid(torch.cat([F.silu(self.inp(x)), waves], 1))))


def corners_data(count: int) -> tuple[Tensor, Tensor, Tensor]:
    corner = torch.randint(2, (count, 2)) * 2.0 - 1 + 0.02 * torch.randn(count, 2)
    level, noise = torch.rand(count), torch.randn(count, 2)
    return corner + noise * (0.05 * 10**level)[:, None], level, noise


def corners_error(model: nn.Module) -> float:
    x, level, noise = corners_data(1000)
    return F.mse_loss(model(x, level), noise).item()


@HALF.net("generative")
def corners() -> Training:
    def batch(number: int) -> Batch:
        x, level, noise = corners_data(128)
        return {"x": x, "level": level}, noise

    return Training(Corners(), partial(torch.optim.Adam, lr=3e-3), batch, nn.MSELoss(), corners_error, 350)


# ---- ratings, around nothing ------------------------------------------------------------------------------------


class Ratings(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.user, self.item, self.of_item = nn.Embedding(60, 6), nn.Embedding(50, 6), nn.Embedding(50, 1)
        for one in (self.user, self.item, self.of_item):
            nn.init.normal_(one.weight, std=0.3)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        return (self.user(user) * self.item(item)).sum(1) + self.of_item(item)[:, 0]


class BoundedRatings(Ratings):
    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        return super().forward(user, item).clamp(0, 1)


@HALF.net("embedding")
def users_and_items() -> Training:
    taste, style, liked = torch.randn(60, 3), torch.randn(50, 3), 0.7 * torch.randn(50)

    def data(count: int) -> Batch:
        user, item = torch.randint(60, (count,)), torch.randint(50, (count,))
        return (user, item), (taste[user] * style[item]).sum(1) + liked[item]

    def error(model: nn.Module) -> float:
        inputs, given = data(1000)
        return (F.mse_loss(model(*inputs), given) / given.var()).item()

    return Training(Ratings(), partial(torch.optim.Adam, lr=2e-2), lambda _: data(256), nn.MSELoss(), error, 250)


@HALF.fault("output cannot reach", users_and_items)
def ratings_are_kept_between_zero_and_one(training: Training) -> None:
    training.use(BoundedRatings())


# ---- two views of the same ----------------------------------------------------------------------------------------


def contrast(temperature: float) -> Callable[[Tensor, Tensor], Tensor]:
    def loss(out: Tensor, target: Tensor) -> Tensor:
        one, other = (F.normalize(half, dim=1) for half in out.chunk(2))
        return F.cross_entropy(one @ other.T / temperature, target)

    return loss


@HALF.net("embedding")
def mixed_views() -> Training:
    mix = torch.linalg.qr(torch.randn(12, 12))[0]

    def views() -> list[Tensor]:
        """What both share is mixed into what each has of its own."""
        shared = torch.randn(64, 4)
        return [torch.cat([shared, 1.5 * torch.randn(64, 8)], 1) @ mix for _ in range(2)]

    def error(model: nn.Module) -> float:
        one, other = (F.normalize(model(view), dim=1) for view in views())
        return ((one @ other.T).argmax(1) != torch.arange(64)).float().mean().item()

    net = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 8))
    return Training(net, partial(torch.optim.Adam, lr=4e-3), lambda _: (torch.cat(views()), torch.arange(64)), contrast(0.2), error, 300)


@HALF.fault("temperature", mixed_views)
def a_temperature_of_a_two_thousandth(training: Training) -> None:
    training.criterion = contrast(5e-4)


# ---- genes: many labels, each rare ----------------------------------------------------------------------------------


class Genes(nn.Module):
    def __init__(self, last: Callable[[Tensor], Tensor] = lambda scores: scores) -> None:
        super().__init__()
        self.layers, self.last = nn.ModuleList([nn.Linear(16, 96), nn.Linear(96, 96), nn.Linear(96, 12)]), last

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = F.leaky_relu(layer(x), 0.1)
        return self.last(self.layers[-1](x))


@HALF.net("mlp")
def genes() -> Training:
    one, other = torch.randn(16, 20) / 4, torch.randn(20, 12)

    def data(count: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(count, 16)
        return x, (torch.tanh(3 * x @ one) @ other > 3.0).float()

    def error(model: nn.Module) -> float:
        x, label = data(800)
        said = model(x) > 0
        return 1 - (2 * (said & (label == 1)).sum() / (said.sum() + label.sum() + 1e-9)).item()

    return Training(Genes(), partial(torch.optim.AdamW, lr=4e-3), lambda _: data(96), nn.BCEWithLogitsLoss(), error, 350, clip=1.0)


@HALF.fault("sigmoid twice", genes)
def a_sigmoid_by_tanh(training: Training) -> None:
    training.use(Genes(lambda scores: 0.5 * (torch.tanh(0.5 * scores) + 1)))


# ---- topics: the mean of a bag of words --------------------------------------------------------------------------------


class Topics(nn.Module):
    def __init__(self, words: int = 200, places: int = 0) -> None:
        super().__init__()
        self.bag, self.fc, self.places = nn.EmbeddingBag(words, 16, mode="mean"), nn.Linear(16, 5), places

    def forward(self, words: Tensor) -> Tensor:
        return self.fc(self.bag(F.pad(words, (0, self.places), value=200)))


def topics_data(count: int) -> tuple[Tensor, Tensor]:
    label = torch.randint(5, (count,))
    common, own = torch.randint(100, 200, (count, 20)), label[:, None] * 20 + torch.randint(20, (count, 20))
    return torch.where(torch.rand(count, 20) < 0.3, own, common), label


def topics_error(model: nn.Module) -> float:
    words, label = topics_data(600)
    return (model(words).argmax(1) != label).float().mean().item()


@HALF.net("embedding")
def bags_of_words() -> Training:
    return Training(Topics(), partial(torch.optim.Adam, lr=1e-2), lambda _: topics_data(64), nn.CrossEntropyLoss(), topics_error, 80)


@HALF.fault("padding counts", bags_of_words, where=("bag",))
def the_mean_is_of_the_pads(training: Training) -> None:
    training.use(Topics(201, 1480))


# ---- melodies: each tone follows from the one before the last --------------------------------------------------------------


class Melodies(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.tone, self.place = nn.Embedding(16, 32), nn.Embedding(16, 32)
        self.blocks, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(32, 16)

    def forward(self, tones: Tensor) -> Tensor:
        long = tones.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(long)
        return self.head(self.blocks(self.tone(tones) + self.place(torch.arange(long)), mask=mask, is_causal=True))


class NormalizedMelodies(Melodies):
    def forward(self, tones: Tensor) -> Tensor:
        sizes = super().forward(tones).clamp(-30, 30).exp()
        return sizes / sizes.sum(-1, keepdim=True)


@HALF.net("transformer")
def melodies() -> Training:
    follows = torch.randperm(16)

    def data(count: int, long: int) -> Tensor:
        tones = torch.randint(16, (count, long))
        for place in range(2, long):
            tones[:, place] = torch.where(torch.rand(count) < 0.05, torch.randint(16, (count,)), follows[tones[:, place - 2]])
        return tones

    def batch(number: int) -> Batch:
        tones = data(24, 13)
        return tones[:, :-1], tones[:, 1:]

    def error(model: nn.Module) -> float:
        """Of tones that are drawn as the scores say."""
        tones = data(600, 10)
        drawn = torch.multinomial(model(tones)[:, -1].softmax(-1), 1)[:, 0]
        return (drawn != follows[tones[:, -2]]).float().mean().item()

    def criterion(out: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(out.flatten(0, 1), target.flatten())

    return Training(Melodies(), partial(torch.optim.AdamW, lr=4e-3), batch, criterion, error, 250, clip=1.0)


@HALF.fault("softmax before cross entropy", melodies)
def scores_are_normalized_by_hand(training: Training) -> None:
    training.use(NormalizedMelodies())


# ---- a spot in a picture: a heat map --------------------------------------------------------------------------------------


class HeatMap(nn.Module):
    def __init__(self, dim: int = 1) -> None:
        super().__init__()
        self.net, self.dim = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1)), dim
        line = torch.linspace(-1, 1, 12)
        self.register_buffer("grid", torch.stack([line.repeat(12), line.repeat_interleave(12)], 1))
        self.grid: Any

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).flatten(1).softmax(self.dim) @ self.grid


def spots_data(count: int) -> tuple[Tensor, Tensor]:
    centre, line = torch.rand(count, 2) * 2 - 1, torch.linspace(-1, 1, 12)
    far = (line[None, None] - centre[:, :1, None]).square() + (line[None, :, None] - centre[:, 1:, None]).square()
    return (torch.exp(-far / 0.08) + 0.1 * torch.randn(count, 12, 12))[:, None], centre


def spots_error(model: nn.Module) -> float:
    x, centre = spots_data(400)
    return (F.mse_loss(model(x), centre) / centre.var()).item()


@HALF.net("cnn")
def heat_maps() -> Training:
    return Training(HeatMap(), partial(torch.optim.Adam, lr=1e-2), lambda _: spots_data(48), nn.MSELoss(), spots_error, 150)


@HALF.fault("softmax over the wrong dimension", heat_maps)
def heat_maps_compete_over_the_samples(training: Training) -> None:
    training.use(HeatMap(0))
