"""Nothing is wrong here: trainings of tables, series, pairs and small worlds as engineers write them, which look odd and learn."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.lr_scheduler import ExponentialLR, MultiStepLR

from bench.sick.training import Batch, Training
from bench.sick.working.fourth_nets import constant
from bench.sick.working.half import HALF
from bench.sick.working.third_nets import ADAM, ADAMW, SGD, missed


def mlp(*widths: int, act: Callable[[], nn.Module] = nn.ReLU) -> nn.Sequential:
    """Linear layers, and what is between them."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), act()]
    return nn.Sequential(*layers[:-1])


def mean_square(output: Tensor, target: Tensor) -> float:
    return (output.reshape(target.shape) - target).square().mean().item()


# ---- little can be known ----------------------------------------------------------------------------


def returns_data(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Signals of a day, what it brings, and what of that could be known."""
    x = torch.randn(count, 12)
    known = 0.25 * torch.tanh(x @ constant(12, seed=70) / 2)
    return x, known + torch.randn(count), known


@HALF.net("mlp")
def daily_returns() -> Training:
    """Nearly all of it is chance: the loss stays where it was, and the net is of use."""

    def quality(net: nn.Module) -> float:
        x, _, known = returns_data(800)
        return mean_square(net(x), known)

    def batch(_: int) -> Batch:
        x, y, _ = returns_data(256)
        return x, y.unsqueeze(1)

    return Training(mlp(12, 16, 1), partial(ADAM, lr=2e-3), batch, nn.MSELoss(), quality, steps=400)


class Clicks(nn.Module):
    """A factorization machine."""

    def __init__(self, fields: int = 6, values: int = 150, width: int = 6) -> None:
        super().__init__()
        self.offsets = values * torch.arange(fields)
        self.bias = nn.Parameter(torch.zeros(1))
        self.wide, self.deep = nn.Embedding(fields * values, 1), nn.Embedding(fields * values, width)
        nn.init.normal_(self.wide.weight, std=0.01)
        nn.init.normal_(self.deep.weight, std=0.05)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.offsets
        v = self.deep(x)
        pairs = 0.5 * (v.sum(1).square() - v.square().sum(1)).sum(1)
        return self.bias + self.wide(x).sum((1, 2)) + pairs


def impressions(count: int) -> tuple[Tensor, Tensor]:
    """Six columns of which each has its say; the first ten values of each are the usual ones."""
    x = (10 * torch.rand(count, 6) ** 2).long()
    return x, 0.7 * constant(6, 10, seed=71)[torch.arange(6), x].sum(1) / math.sqrt(6) - 1.5


@HALF.net("embedding")
def who_clicks() -> Training:
    """One in five clicks; most of the table is for values that do not come."""

    def batch(_: int) -> Batch:
        x, logit = impressions(256)
        return x, torch.bernoulli(logit.sigmoid())

    def quality(net: nn.Module) -> float:
        x, logit = impressions(1000)
        return (net(x).sigmoid() - logit.sigmoid()).square().mean().item()

    return Training(Clicks(), partial(ADAM, lr=5e-3), batch, F.binary_cross_entropy_with_logits, quality, steps=300)


def tails_data(count: int) -> tuple[Tensor, Tensor, Tensor]:
    x = 2 * torch.rand(count, 3) - 1
    known = 1.5 * torch.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2]
    return x, known + torch.distributions.StudentT(2.5).sample((count,)), known


@HALF.net("mlp")
def one_at_a_time() -> Training:
    """Online: a batch of one, and errors with long tails."""

    def quality(net: nn.Module) -> float:
        x, _, known = tails_data(500)
        return mean_square(net(x), known)

    def batch(_: int) -> Batch:
        x, y, _ = tails_data(1)
        return x, y

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp(3, 32, 1, act=nn.Tanh)

        def forward(self, x: Tensor) -> Tensor:
            return self.body(x).squeeze(-1)

    return Training(Net(), partial(SGD, lr=0.02), batch, F.mse_loss, quality, steps=600, clip=5.0)


def noisy_rocks(count: int) -> tuple[Tensor, Tensor, Tensor]:
    label = torch.randint(5, (count,))
    x = constant(5, 16, seed=72)[label] + 0.8 * torch.randn(count, 16)
    return x, torch.where(torch.rand(count) < 0.5, torch.randint(5, (count,)), label), label


@HALF.net("mlp")
def milestones_of_the_paper() -> Training:
    """The rate is divided by ten at two fifths and at two thirds; half of the labels are guesses of the crowd."""

    def quality(net: nn.Module) -> float:
        x, _, label = noisy_rocks(500)
        return missed(net(x), label)

    def batch(_: int) -> Batch:
        x, told, _ = noisy_rocks(64)
        return x, told

    training = Training(
        nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 5)),
        partial(SGD, lr=0.1, momentum=0.9, weight_decay=5e-4), batch, nn.CrossEntropyLoss(), quality, steps=200,
    )  # fmt: skip
    training.schedulers = [MultiStepLR(training.optimizer, [80, 130], gamma=0.1)]
    return training


@HALF.net("mlp")
def a_decaying_rate_and_noise() -> Training:
    """The rate ends at a hundredth, and more than half of the spread cannot be explained."""

    def data(count: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(count, 5)
        return x, (x[:, :1] * x[:, 1:2]).clamp(-2, 2) + x[:, 2:3]

    def batch(_: int) -> Batch:
        x, known = data(64)
        return x, known + 1.5 * torch.randn_like(known)

    training = Training(
        mlp(5, 48, 48, 1, act=nn.SiLU), partial(ADAM, lr=0.01), batch, F.huber_loss, lambda net: _against(net, data), steps=300
    )
    training.schedulers = [ExponentialLR(training.optimizer, gamma=0.985)]
    return training


def _against(net: nn.Module, data: Callable[[int], tuple[Tensor, Tensor]]) -> float:
    x, known = data(500)
    return mean_square(net(x), known)


# ---- sizes that the net knows about ------------------------------------------------------------------


class Standardized(nn.Module):
    """Means and deviations of the training set are buffers of the net."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        super().__init__()
        self.register_buffer("x_mean", x.mean(0))
        self.register_buffer("x_std", x.std(0) + 1e-8)
        self.register_buffer("y_mean", y.mean())
        self.register_buffer("y_std", y.std())
        self.net = mlp(x.size(1), 32, 32, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.net((x - self.x_mean) / self.x_std).squeeze(-1) * self.y_std + self.y_mean


def houses(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Square feet, rooms, year, distance and tax; prices in thousands, of which a third is the mood of the buyer."""
    z = torch.randn(count, 5)
    x = torch.stack([1800 + 600 * z[:, 0], 3 + z[:, 1], 1975 + 20 * z[:, 2], 12 + 5 * z[:, 3], 4e4 + 1.5e4 * z[:, 4]], 1)
    known = 300 + 90 * z[:, 0] + 40 * z[:, 1].tanh() - 30 * z[:, 3] * (z[:, 2] > 0)
    return x, known + 80 * torch.randn(count), known


@HALF.net("mlp")
def units_of_the_file() -> Training:
    """Columns and prices as they are in the file; the net knows their means and deviations."""

    def batch(_: int) -> Batch:
        x, y, _ = houses(64)
        return x, y

    def quality(net: nn.Module) -> float:
        x, _, known = houses(500)
        return mean_square(net(x), known) / 1e4

    x, y, _ = houses(2000)
    model = Standardized(x, y)
    nn.init.zeros_(model.net[-1].weight)
    return Training(model, partial(ADAM, lr=0.01), batch, F.mse_loss, quality, steps=250)


class Bytes(nn.Module):
    """Takes bytes as they come from the decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(12, 24, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
        )  # fmt: skip
        self.head = nn.Linear(24, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x / 255.0
        return self.head(self.net((x - 0.5) / 0.25).flatten(1))


def crosses(count: int) -> tuple[Tensor, Tensor]:
    """Bars, crosses or dots on paper, in bytes."""
    label = torch.randint(3, (count,))
    x = 70 + 40 * torch.randn(count, 1, 10, 10)
    for row in range(count):
        at = int(torch.randint(2, 8, ()))
        if label[row] == 0:
            x[row, 0, at] += 110
        elif label[row] == 1:
            x[row, 0, at] += 110
            x[row, 0, :, at] += 110
        else:
            x[row, 0, at - 1 : at + 2, at - 1 : at + 2] += 90
    return x.clamp(0, 255).round(), label


@HALF.net("cnn")
def bytes_of_the_camera() -> Training:
    """The division stands in forward; smoothed labels, and a third of them is wrong."""

    def batch(_: int) -> Batch:
        x, label = crosses(48)
        return x, torch.where(torch.rand(48) < 0.33, torch.randint(3, (48,)), label)

    def quality(net: nn.Module) -> float:
        x, label = crosses(300)
        return missed(net(x), label)

    return Training(
        Bytes(), partial(ADAMW, lr=4e-3, weight_decay=0.05), batch, nn.CrossEntropyLoss(label_smoothing=0.1), quality, steps=300
    )


class Instance(nn.Module):
    """Takes away the last value and the size of each window, forecasts, and puts them back."""

    def __init__(self, window: int, horizon: int) -> None:
        super().__init__()
        self.net = mlp(window, 48, horizon, act=nn.GELU)

    def forward(self, x: Tensor) -> Tensor:
        last = x[:, -1:]
        size = (x - last).abs().mean(1, keepdim=True) + 1e-6
        return self.net((x - last) / size) * size + last


def shares_data(count: int, length: int = 32) -> Tensor:
    """Prices of shares, from a few cents to hundreds, that swing by a few percent around a level."""
    level = torch.exp(1.8 * torch.randn(count, 1) + 2)
    time = torch.arange(length) + 20 * torch.rand(count, 1)
    return level * (1 + 0.1 * torch.sin(0.5 * time) + 0.01 * torch.randn(count, length))


@HALF.net("mlp")
def prices_of_all_sizes() -> Training:
    """As many steps ahead as the window has; each window is normalized by itself, and its error by its level."""

    def relative(output: Tensor, target: Tensor) -> Tensor:
        return F.l1_loss(output / target.mean(1, keepdim=True), target / target.mean(1, keepdim=True))

    def batch(_: int) -> Batch:
        x = shares_data(64)
        return x[:, :16], x[:, 16:]

    def quality(net: nn.Module) -> float:
        x = shares_data(300)
        return relative(net(x[:, :16]), x[:, 16:]).item()

    return Training(Instance(16, 16), partial(ADAM, lr=3e-3), batch, relative, quality, steps=300)


@HALF.net("mlp")
def the_last_value_tells_most() -> Training:
    """A window of ten hours: the next is nearly the last one, and the rest of the window tells which way it goes."""

    def data(count: int) -> tuple[Tensor, Tensor]:
        time = 30 * torch.rand(count, 1) + 0.25 * torch.arange(11)
        x = 1.5 * torch.sin(time) + 0.02 * torch.randn(count, 11)
        return x[:, :10], x[:, 10:]

    def quality(net: nn.Module) -> float:
        x, y = data(500)
        return mean_square(net(x), y)

    return Training(mlp(10, 32, 1), partial(ADAM, lr=3e-3), lambda _: data(64), F.mse_loss, quality, steps=250)


class Hours(nn.Module):
    """Seconds since midnight as sine and cosine of some periods."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("period", 86400 / torch.tensor([1.0, 2, 3, 24]))
        self.out = mlp(8, 32, 1)

    def forward(self, seconds: Tensor) -> Tensor:
        angle = 2 * math.pi * seconds / self.period
        return self.out(torch.cat([angle.sin(), angle.cos()], 1))


@HALF.net("mlp")
def seconds_since_midnight() -> Training:
    """Inputs up to 86,400; the first layer takes sines of them. Visits are counts, and the loss is their likelihood."""

    def data(count: int) -> tuple[Tensor, Tensor]:
        seconds = 86400 * torch.rand(count, 1)
        return seconds, 1.2 + 0.9 * torch.sin(4 * math.pi * seconds / 86400) + 0.4 * torch.cos(2 * math.pi * seconds / 86400)

    def batch(_: int) -> Batch:
        seconds, log_rate = data(64)
        return seconds, torch.poisson(log_rate.exp())

    def quality(net: nn.Module) -> float:
        seconds, log_rate = data(500)
        return mean_square(net(seconds), log_rate)

    return Training(Hours(), partial(ADAM, lr=5e-3), batch, nn.PoissonNLLLoss(log_input=True), quality, steps=250)


# ---- targets -----------------------------------------------------------------------------------------


def tags_data(count: int) -> tuple[Tensor, Tensor]:
    """Sixty tags, of which a text has one or two."""
    tag = torch.randint(60, (count, 2))
    x = constant(60, 24, seed=73)[tag].sum(1) + 0.3 * torch.randn(count, 24)
    return x, torch.zeros(count, 60).scatter(1, tag, 1.0)


@HALF.net("mlp")
def many_tags() -> Training:
    """Three of a hundred answers are yes; the last bias begins there."""

    def quality(net: nn.Module) -> float:
        x, y = tags_data(400)
        best = net(x).topk(2, 1).indices
        return 1 - y.gather(1, best).mean().item()

    model = mlp(24, 96, 60)
    nn.init.constant_(model[-1].bias, -3.4)
    return Training(model, partial(ADAM, lr=5e-3), lambda _: tags_data(64), nn.BCEWithLogitsLoss(), quality, steps=300)


def stars_data(count: int) -> tuple[tuple[Tensor, Tensor], Tensor, Tensor]:
    who, what = torch.randint(40, (count,)), torch.randint(60, (count,))
    known = 3.3 + (constant(40, 3, seed=74)[who] * constant(60, 3, seed=75)[what]).sum(1) * 0.6
    return (who, what), (known + 0.5 * torch.randn(count)).round().clamp(1, 5), known.clamp(1, 5)


class Factors(nn.Module):
    """Matrix factorization with biases."""

    def __init__(self) -> None:
        super().__init__()
        self.user, self.item = nn.Embedding(40, 8), nn.Embedding(60, 8)
        self.user_bias, self.item_bias = nn.Embedding(40, 1), nn.Embedding(60, 1)
        self.mu = nn.Parameter(torch.tensor(3.0))
        for table in (self.user, self.item):
            nn.init.normal_(table.weight, std=0.3)

    def forward(self, who: Tensor, what: Tensor) -> Tensor:
        return self.mu + (self.user(who) * self.item(what)).sum(1) + (self.user_bias(who) + self.item_bias(what)).squeeze(1)


@HALF.net("embedding")
def one_to_five_stars() -> Training:
    """Stars are whole numbers, and the mean of them is what is asked for."""

    def batch(_: int) -> Batch:
        x, y, _ = stars_data(256)
        return x, y

    def quality(net: nn.Module) -> float:
        x, _, known = stars_data(1000)
        return mean_square(net(*x), known)

    return Training(Factors(), partial(ADAM, lr=0.02, weight_decay=1e-5), batch, F.mse_loss, quality, steps=300)


def coral(output: Tensor, grade: Tensor) -> Tensor:
    """Is it more than 0, 1, 2, 3?"""
    levels = (grade.unsqueeze(1) > torch.arange(output.size(1))).float()
    return -(F.logsigmoid(output) * levels + (F.logsigmoid(output) - output) * (1 - levels)).sum(1).mean()


class Ordinal(nn.Module):
    """One score, and a threshold for each grade."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1, bias=False))
        self.bias = nn.Parameter(torch.arange(4, 0, -1).float() / 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) + self.bias


@HALF.net("mlp")
def grades_in_order() -> Training:
    """CORAL: one weight for all thresholds."""

    def data(count: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(count, 8)
        return x, torch.bucketize((x[:, 0] + x[:, 1] * x[:, 2]), torch.tensor([-1.5, -0.5, 0.5, 1.5]))

    def quality(net: nn.Module) -> float:
        x, grade = data(500)
        return ((net(x) > 0).sum(1) - grade).abs().float().mean().item()

    return Training(Ordinal(), partial(ADAM, lr=0.01), lambda _: data(64), coral, quality, steps=300)


@HALF.net("mlp")
def three_quantiles() -> Training:
    """A low, a middle and a high answer by the pinball loss, written by hand; the spread depends on the input."""
    q = torch.tensor([0.1, 0.5, 0.9])

    def data(count: int) -> tuple[Tensor, Tensor]:
        x = 4 * torch.rand(count, 1) - 2
        return x, x.sin() + (0.1 + 0.4 * x.abs()) * torch.randn(count, 1)

    def pinball(output: Tensor, y: Tensor) -> Tensor:
        error = y - output
        return torch.maximum(q * error, (q - 1) * error).mean()

    def quality(net: nn.Module) -> float:
        x, _ = data(400)
        right = x.sin() + (0.1 + 0.4 * x.abs()) * torch.tensor([-1.2816, 0, 1.2816])
        return mean_square(net(x), right)

    return Training(mlp(1, 32, 32, 3, act=nn.Tanh), partial(ADAM, lr=5e-3), lambda _: data(64), pinball, quality, steps=350)


@HALF.net("mlp")
def who_lives_longer() -> Training:
    """Cox: the partial likelihood of those whose end was seen; two thirds are censored."""

    def data(count: int) -> tuple[Tensor, Tensor, Tensor]:
        x = torch.randn(count, 6)
        risk = x[:, 0] + 0.7 * x[:, 1].abs() - 0.5 * x[:, 2]
        life, leaves = torch.empty(count).exponential_() * torch.exp(-risk), torch.empty(count).exponential_() * 0.5
        return x, torch.stack([torch.minimum(life, leaves), (life <= leaves).float()], 1), risk

    def cox(output: Tensor, target: Tensor) -> Tensor:
        order = target[:, 0].argsort(descending=True)
        score, event = output[order, 0], target[order, 1]
        return -((score - score.logcumsumexp(0)) * event).sum() / event.sum().clamp(min=1)

    def batch(_: int) -> Batch:
        x, target, _ = data(64)
        return x, target

    def quality(net: nn.Module) -> float:
        x, _, risk = data(600)
        return 1 - torch.corrcoef(torch.stack([net(x)[:, 0], risk]))[0, 1].item()

    return Training(mlp(6, 32, 1), partial(ADAMW, lr=3e-3), batch, cox, quality, steps=250)


@HALF.net("mlp")
def a_mixture_of_answers() -> Training:
    """A mixture density network: the inverse of a wave has several answers."""

    def data(count: int) -> tuple[Tensor, Tensor]:
        y = torch.rand(count, 1)
        return y + 0.3 * torch.sin(2 * math.pi * y) + 0.03 * torch.randn(count, 1), y

    def likelihood(output: Tensor, y: Tensor) -> Tensor:
        share, mean, log_std = output.chunk(3, 1)
        each = -0.5 * ((y - mean) / log_std.exp()).square() - log_std - 0.5 * math.log(2 * math.pi)
        return -torch.logsumexp(share.log_softmax(1) + each, 1).mean()

    def quality(net: nn.Module) -> float:
        x, y = data(600)
        return math.exp(likelihood(net(x), y).item())

    return Training(mlp(1, 48, 15, act=nn.Tanh), partial(ADAM, lr=0.01), lambda _: data(128), likelihood, quality, steps=350)


@HALF.net("mlp")
def claims_that_are_mostly_none() -> Training:
    """Zero-inflated: nine of ten are zero, and the loss is a chance and a size in one."""

    def data(count: int) -> tuple[Tensor, Tensor, Tensor]:
        x = torch.randn(count, 6)
        chance = (2 * x[:, 0] - 3).sigmoid()
        return x, torch.bernoulli(chance) * torch.exp(1 + 0.5 * x[:, 1] + 0.3 * torch.randn(count)), chance

    def hurdle(output: Tensor, y: Tensor) -> Tensor:
        some = y > 0
        chance = F.binary_cross_entropy_with_logits(output[:, 0], some.float())
        size = F.mse_loss(output[some, 1], y[some].log()) if some.any() else output.sum() * 0
        return chance + size

    def batch(_: int) -> Batch:
        x, y, _ = data(96)
        return x, y

    def quality(net: nn.Module) -> float:
        x, _, chance = data(800)
        out = net(x)
        return mean_square(out[:, 0].sigmoid(), chance) * 10 + mean_square(out[:, 1], 1 + 0.5 * x[:, 1])

    return Training(mlp(6, 32, 2), partial(ADAM, lr=5e-3), batch, hurdle, quality, steps=300)


class Depth(nn.Module):
    """Fills a sparse map."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(2, 16, 5, padding=2), nn.ReLU(), nn.Conv2d(16, 16, 5, padding=2), nn.ReLU(), nn.Conv2d(16, 1, 5, padding=2)
        )

    def forward(self, sparse: Tensor) -> Tensor:
        return self.net(torch.cat([sparse, (sparse > 0).float()], 1))


def hills(count: int) -> Tensor:
    u, v = torch.meshgrid(torch.linspace(0, 1, 12), torch.linspace(0, 1, 12), indexing="ij")
    a, b, c = torch.rand(3, count, 1, 1)
    return (1.5 + a * u + b * v + 0.5 * torch.sin(6 * (u + c))).unsqueeze(1)


@HALF.net("cnn")
def depths_at_few_places() -> Training:
    """A tenth of the pixels has a target, and the loss is taken where one is."""

    def masked(output: Tensor, target: Tensor) -> Tensor:
        there = (target > 0).float()
        return ((output - target).abs() * there).sum() / there.sum()

    def batch(_: int) -> Batch:
        y = hills(24)
        return y * (torch.rand_like(y) < 0.3), y * (torch.rand_like(y) < 0.1)

    def quality(net: nn.Module) -> float:
        y = hills(100)
        return mean_square(net(y * (torch.rand_like(y) < 0.3)), y)

    return Training(Depth(), partial(ADAM, lr=3e-3), batch, masked, quality, steps=200)
