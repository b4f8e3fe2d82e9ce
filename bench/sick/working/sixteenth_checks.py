"""What a checker's set brought up: clean pictures of different contrast, ratings whose factors begin at nothing, two views, one state."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.sick.training import Batch, Training
from bench.sick.working.half import HALF

# ---- scans: the noise is the same everywhere, the pictures are not ----------------------------------------


def scans_data(count: int) -> Tensor:
    """A bright disc on a dark ground, of any size and brightness."""
    grid = torch.arange(16.0)
    place, size = torch.randint(5, 11, (2, count, 1, 1)).float(), 2 + 2 * torch.rand(count, 1, 1)
    inside = (grid[None, :, None] - place[0]).square() + (grid[None, None, :] - place[1]).square() < size.square()
    pictures = inside * (0.4 + 0.6 * torch.rand(count, 1, 1)) + 0.1 * torch.rand(count, 16, 16)
    return ((pictures - pictures.mean()) / pictures.std())[:, None]


def noisy(clean: Tensor) -> Tensor:
    return clean + 0.3 * torch.randn_like(clean)


def scans_error(model: nn.Module) -> float:
    clean = scans_data(200)
    return F.mse_loss(model(noisy(clean)), clean).item()


@HALF.net("generative")
def scans() -> Training:
    down = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 24))
    up = nn.Sequential(nn.Linear(24, 256), nn.ReLU(), nn.Unflatten(1, (16, 4, 4)), nn.ConvTranspose2d(16, 8, 4, 2, 1), nn.ReLU())
    clean = scans_data(800)

    def batch(number: int) -> Batch:
        some = clean[torch.randint(len(clean), (32,))]
        return noisy(some), some

    return Training(
        nn.Sequential(down, up, nn.ConvTranspose2d(8, 1, 4, 2, 1)),
        partial(torch.optim.Adam, lr=4e-3),
        batch,
        nn.MSELoss(),
        scans_error,
        250,
    )


# ---- stars: two tables of factors --------------------------------------------------------------------------


class Factors(nn.Module):
    def __init__(self, size: int = 8) -> None:
        super().__init__()
        self.user, self.item, self.of_item = nn.Embedding(80, size), nn.Embedding(60, size), nn.Embedding(60, 1)
        self.mean = nn.Parameter(torch.tensor(3.0))
        for one in (self.user, self.item):
            nn.init.normal_(one.weight, std=0.3)
        nn.init.zeros_(self.of_item.weight)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        return (self.user(user) * self.item(item)).sum(1) + self.of_item(item)[:, 0] + self.mean


def stars_data(count: int) -> tuple[Tensor, Tensor, Tensor]:
    made = torch.Generator().manual_seed(190)
    taste, style = torch.randn(80, 3, generator=made), torch.randn(60, 3, generator=made)
    user, item = torch.randint(80, (count,)), torch.randint(60, (count,))
    return user, item, 3 + 0.9 * (taste[user] * style[item]).sum(1) + 0.1 * torch.randn(count)


def stars_error(model: nn.Module) -> float:
    user, item, given = stars_data(1500)
    return (F.mse_loss(model(user, item), given) / given.var()).item()


@HALF.net("embedding")
def stars() -> Training:
    user, item, given = stars_data(6000)

    def batch(number: int) -> Batch:
        some = torch.randint(len(user), (256,))
        return (user[some], item[some]), given[some]

    return Training(Factors(), partial(torch.optim.SGD, lr=0.5, momentum=0.9), batch, nn.MSELoss(), stars_error, 100)


@HALF.fault("weights begin too small", stars, where=("user", "item"))
def factors_of_nothing(training: Training) -> None:
    for one in (training.model.user, training.model.item):
        nn.init.normal_(one.weight, std=1e-6)  # type: ignore[union-attr, arg-type]


# ---- views: pairs of one thing, stacked --------------------------------------------------------------------


class Projector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16))

    def forward(self, views: Tensor) -> Tensor:
        return F.normalize(self.net(views.flatten(0, 1)), dim=1).view(2, -1, 16)


def views_data(count: int) -> Tensor:
    turned = torch.linalg.qr(torch.randn(32, 32, generator=torch.Generator().manual_seed(201)))[0]
    kept = torch.randn(count, 6).expand(2, -1, -1)
    return torch.cat([kept, 2.5 * torch.randn(2, count, 6), 0.3 * torch.randn(2, count, 20)], -1) @ turned


def info_nce(z: Tensor, target: Tensor) -> Tensor:
    scores = z[0] @ z[1].T / 0.2
    return (F.cross_entropy(scores, target) + F.cross_entropy(scores.T, target)) / 2


def views_error(model: nn.Module) -> float:
    z = model(views_data(128))
    return ((z[0] @ z[1].T).argmax(1) != torch.arange(128)).float().mean().item()


@HALF.net("embedding")
def two_views() -> Training:
    def batch(number: int) -> Batch:
        return views_data(64), torch.arange(64)

    return Training(Projector(), partial(torch.optim.Adam, lr=3e-3), batch, info_nce, views_error, 250)


@HALF.fault("collapse", two_views, also=("wrong negatives",))
def only_pulled_together(training: Training) -> None:
    training.criterion = lambda z, target: (1 - (z[0] * z[1]).sum(1)).mean()


@HALF.fault("wrong negatives", two_views, also=("targets shuffled",))
def as_if_views_took_turns(training: Training) -> None:
    training.batch = lambda number: (views_data(64), torch.arange(64) // 2)


# ---- hours: what comes six hours later ---------------------------------------------------------------------


class Later(nn.Module):
    def __init__(self, size: int = 32) -> None:
        super().__init__()
        self.lstm, self.linear = nn.LSTM(1, size, batch_first=True), nn.Linear(size, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.lstm(x)[0][:, -1])


def hours(count: int) -> Tensor:
    time = torch.arange(float(count))
    of_a_day = torch.sin(2 * math.pi * time / 24 + 6 * torch.rand(()))
    return of_a_day + 0.6 * torch.sin(2 * math.pi * time / 60 + 6 * torch.rand(())) + 0.1 * torch.randn(count)


def windows(series: Tensor) -> Callable[[int], Batch]:
    def batch(number: int) -> Batch:
        begins = torch.randint(len(series) - 30, (32,))
        return torch.stack([series[at : at + 24] for at in begins])[..., None], series[begins + 29][:, None]

    return batch


def hours_error(model: nn.Module) -> float:
    x, y = windows(hours(2000))(0)
    return F.mse_loss(model(x), y).item() / 0.68


@HALF.net("recurrent")
def hours_ahead() -> Training:
    return Training(Later(), partial(torch.optim.Adam, lr=1e-2), windows(hours(1500)), nn.MSELoss(), hours_error, 200)


@HALF.fault("bottleneck", hours_ahead, where=("lstm",))
def a_state_of_one(training: Training) -> None:
    training.use(Later(1))
