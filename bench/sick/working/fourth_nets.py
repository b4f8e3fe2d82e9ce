"""Nets of tables, small images, recordings, pairs, and a maker beside its judge, in the spellings of notebooks."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.sick.cases import Change
from bench.sick.training import Batch, Training
from bench.sick.working.half import HALF

Table = dict[str, Tensor]
"""A table: its columns by name."""


def constant(*shape: int, seed: int) -> Tensor:
    """The same numbers in each training."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def sliced(x: Tensor, y: Tensor, size: int, shuffle: bool = True) -> Callable[[int], Batch]:
    """Batches are slices of a permutation, drawn anew in each epoch."""
    order = torch.arange(len(x))

    def batch(number: int) -> Batch:
        nonlocal order
        start = number * size % (len(x) // size * size)
        if start == 0 and shuffle:
            order = torch.randperm(len(x))
        rows = order[start : start + size]
        return x[rows], y[rows]

    return batch


def stepped_by(kind: type[torch.optim.Optimizer], **options: float) -> Change:
    """What gives a training another optimizer."""

    def change(training: Training) -> None:
        training.optimize = partial(kind, **options)
        training.use(training.model)

    return change


# ---- tables ----------------------------------------------------------------------------------------

HOMES = {"area": (90.0, 30.0), "rooms": (3.5, 1.2), "year": (1975.0, 20.0), "distance": (12.0, 5.0), "floor": (2.5, 1.5)}
"""Mean and deviation of each column."""


def homes_table(count: int) -> Table:
    table = {name: mean + spread * torch.randn(count) for name, (mean, spread) in HOMES.items()}
    area, rooms, year, distance, floor = standard(table).unbind(1)
    table["price"] = area + 0.6 * torch.tanh(2 * rooms) * area + torch.sin(1.5 * year) - 0.7 * distance.abs() + 0.2 * floor
    return table


def standard(table: Table) -> Tensor:
    """The columns but the price, each as it should be."""
    return torch.stack([(table[name] - mean) / spread for name, (mean, spread) in HOMES.items()], 1)


def raw(table: Table) -> Tensor:
    return torch.stack([table[name] for name in HOMES], 1)


def homes_xy(count: int) -> tuple[Tensor, Tensor]:
    table = homes_table(count)
    return standard(table), table["price"].unsqueeze(1)


class Homes(nn.Module):
    """A small net for a table."""

    def __init__(self, inputs: int = 5, width: int = 48) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(inputs, width), nn.Linear(width, width), nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


def squared(output: Tensor, target: Tensor) -> Tensor:
    return ((output - target) ** 2).sum() / len(target)


def homes_quality(
    seen: Callable[[Table], Tensor] = standard, back: Callable[[Tensor], Tensor] = lambda y: y
) -> Callable[[nn.Module], float]:
    """The squared error of prices, where a net sees a table in a way, and what it says is turned back."""

    def quality(net: nn.Module) -> float:
        table = homes_table(500)
        return F.mse_loss(back(net(seen(table))), table["price"].unsqueeze(1)).item()

    return quality


@HALF.net("mlp")
def homes() -> Training:
    """What does a home cost?"""
    return Training(Homes(), partial(torch.optim.Adam, lr=0.005), sliced(*homes_xy(1600), 64), squared, homes_quality(), steps=250)


def leavers_data(count: int, share: float = 0.35) -> tuple[Tensor, Tensor]:
    """Numbers of customers, and who has left, as a column."""
    label = (torch.rand(count, 1) < share).float()
    x = torch.randn(count, 6)
    side = torch.sign(torch.randn(count, 1))
    x[:, :1] += 2.2 * side * label
    x[:, 1:2] += 1.5 * label - 0.4
    return x, label


class Leavers(nn.Module):
    """Says a logit, as a column; its loss is its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 32), nn.Linear(32, 32)])
        self.norm, self.out = nn.LayerNorm(32), nn.Linear(32, 1)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = F.silu(layer(x))
        return self.out(self.norm(x))

    def loss(self, output: Tensor, label: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(output, label)


def balanced(found: Tensor, label: Tensor) -> float:
    """The mean of the errors of both kinds."""
    found, label = found.flatten().bool(), label.flatten().bool()
    return ((~found[label]).float().mean() + found[~label].float().mean()).item() / 2


def leavers_quality(net: nn.Module) -> float:
    x, label = leavers_data(600)
    return balanced(net(x) > 0, label)


@HALF.net("mlp")
def leavers() -> Training:
    """Who leaves?"""
    model = Leavers()
    loss = model.loss
    batch = sliced(*leavers_data(2000), 50)
    return Training(model, partial(torch.optim.AdamW, lr=0.003, weight_decay=0.01), batch, loss, leavers_quality, steps=200)


SHARES = (0.05, 0.15, 0.3, 0.5)


def orchard_data(count: int, shares: tuple[float, ...] = (0.25,) * 4) -> tuple[Tensor, Tensor]:
    label = torch.multinomial(torch.tensor(shares), count, replacement=True)
    side = torch.randint(2, (count,))
    centre = 1.6 * constant(2, 4, 8, seed=3)
    return centre[side, label] + 0.7 * torch.randn(count, 8), label


class Orchard(nn.Module):
    """Two branches, which are added up."""

    def __init__(self, outputs: int = 4, inputs: int = 8) -> None:
        super().__init__()
        self.left = nn.Sequential(nn.Linear(inputs, 32), nn.ReLU())
        self.right = nn.Sequential(nn.Linear(inputs, 32), nn.Tanh())
        self.head = nn.Linear(32, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.left(x) + self.right(x))


def one_hot_entropy(output: Tensor, label: Tensor) -> Tensor:
    """The cross-entropy, by einsum."""
    return -torch.einsum("nc,nc->", F.one_hot(label, output.shape[1]).float(), output.log_softmax(1)) / len(label)


def orchard_quality(net: nn.Module) -> float:
    x, label = orchard_data(600)
    return (net(x).argmax(1) != label).float().mean().item()


@HALF.net("mlp")
def orchard() -> Training:
    """Which of four kinds?"""
    optimize = partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True)
    return Training(Orchard(), optimize, sliced(*orchard_data(1600), 40), one_hot_entropy, orchard_quality, steps=160)


def rainfall_data(count: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 4)
    rate = torch.exp(0.7 * x[:, 0] + 0.5 * torch.sin(2 * x[:, 1]) + 0.4 * x[:, 2] * x[:, 3].tanh() + 0.5).clamp(max=15)
    return x, torch.poisson(rate)


class Rainfall(nn.Module):
    """Says the logarithm of a rate."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).squeeze(-1)


def poisson(output: Tensor, count: Tensor) -> Tensor:
    return (output.exp() - count * output).mean()


def rainfall_quality(net: nn.Module) -> float:
    """How far the rate is from the true one, in logarithms."""
    x, _ = rainfall_data(500)
    rate = (0.7 * x[:, 0] + 0.5 * torch.sin(2 * x[:, 1]) + 0.4 * x[:, 2] * x[:, 3].tanh() + 0.5).clamp(max=math.log(15))
    return (net(x) - rate).square().mean().item()


@HALF.net("mlp")
def rainfall() -> Training:
    """How many drops? A regression of counts."""
    batch = sliced(*rainfall_data(3000), 100)
    return Training(Rainfall(), partial(torch.optim.Adam, lr=0.005), batch, poisson, rainfall_quality, steps=250)


def dunes_data(count: int) -> tuple[Tensor, Tensor]:
    x = 4 * torch.rand(count, 1) - 2
    return x, torch.sin(2 * x) + (0.1 + 0.2 * x.abs()) * torch.randn(count, 1)


class Dunes(nn.Module):
    """Says what is to be expected, and how sure it is."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(1, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh())
        self.mean, self.spread = nn.Linear(40, 1), nn.Linear(40, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.body(x)
        return self.mean(h), self.spread(h)


def gaussian(output: tuple[Tensor, Tensor], target: Tensor) -> Tensor:
    mean, logarithm = output
    return 0.5 * (logarithm + (target - mean) ** 2 * torch.exp(-logarithm)).mean()


def dunes_quality(net: nn.Module) -> float:
    x = torch.linspace(-2, 2, 200).unsqueeze(1)
    return F.mse_loss(net(x)[0], torch.sin(2 * x)).item()


@HALF.net("mlp")
def dunes() -> Training:
    """A curve, and how much it varies."""
    return Training(Dunes(), partial(torch.optim.Adam, lr=0.01), lambda _: dunes_data(80), gaussian, dunes_quality, steps=300)


def menu_data(count: int, dishes: int = 8) -> tuple[Tensor, Tensor]:
    """Dishes of guests, and how much each of them is liked."""
    x = torch.randn(count, dishes, 4)
    return x, 2 * torch.tanh(x[..., 0] * 1.5) + x[..., 1] * x[..., 2]


class Menu(nn.Module):
    """Scores each dish."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.score(x).squeeze(-1)


def listed(output: Tensor, liked: Tensor) -> Tensor:
    """ListNet: the chances of scores against the chances of what is liked."""
    return -(liked.softmax(1) * output.log_softmax(1)).sum(1).mean()


def menu_quality(net: nn.Module) -> float:
    x, liked = menu_data(300)
    return F.kl_div(net(x).log_softmax(1), liked.softmax(1), reduction="batchmean").item()


@HALF.net("mlp")
def menu() -> Training:
    """Which dishes come first?"""
    return Training(Menu(), partial(torch.optim.RMSprop, lr=0.003), lambda _: menu_data(48), listed, menu_quality, steps=250)


# ---- images and recordings -------------------------------------------------------------------------


def glyphs_data(count: int) -> tuple[Tensor, Tensor]:
    """Strokes at the top, bottom, left, right, and along the diagonals, as bytes."""
    label = torch.randint(6, (count,))
    shapes = torch.zeros(6, 12, 12)
    shapes[0, 1:3], shapes[1, 9:11], shapes[2, :, 1:3], shapes[3, :, 9:11] = 1, 1, 1, 1
    shapes[4], shapes[5] = torch.eye(12), torch.eye(12).flip(1)
    strength = 0.4 + 0.5 * torch.rand(count, 1, 1)
    image = shapes[label] * strength + 0.15 * torch.rand(count, 12, 12)
    return (255 * image.clamp(0, 1)).byte().unsqueeze(1), label


def seen(image: Tensor) -> Tensor:
    """Bytes as a net should see them."""
    return (image.float() / 255 - 0.2) / 0.25


class Glyphs(nn.Module):
    """Two convolutions, as in the first tutorial."""

    def __init__(self, outputs: int = 6) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.fc1, self.fc2 = nn.Linear(16 * 3 * 3, 32), nn.Linear(32, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


def glyphs_quality(look: Callable[[Tensor], Tensor] = seen) -> Callable[[nn.Module], float]:
    def quality(net: nn.Module) -> float:
        image, label = glyphs_data(400)
        return (net(look(image)).argmax(1) != label).float().mean().item()

    return quality


def glyphs_batches(image: Tensor, label: Tensor, look: Callable[[Tensor], Tensor] = seen, shuffle: bool = True) -> Callable[[int], Batch]:
    return sliced(look(image), label, 32, shuffle)


@HALF.net("cnn")
def glyphs() -> Training:
    """Which stroke?"""
    batch = glyphs_batches(*glyphs_data(960))
    return Training(Glyphs(), partial(torch.optim.SGD, lr=0.05, momentum=0.9), batch, nn.CrossEntropyLoss(), glyphs_quality(), steps=120)


def alarms_data(count: int) -> tuple[Tensor, Tensor]:
    """Recordings of four sensors, by time, and three alarms."""
    x = torch.randn(count, 20, 4)
    label = (torch.rand(count, 3) < 0.4).float()
    x[..., 0] += 1.5 * label[:, :1]
    x[..., 1] += 1.5 * label[:, 1:2] * torch.sin(torch.arange(20.0))
    x[..., 2] *= 1 + 1.5 * label[:, 2:]
    return x, label


class Alarms(nn.Module):
    """Convolutions over time."""

    def __init__(self, sensors: int = 4) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv1d(sensors, 24, 5, padding=2), nn.GroupNorm(3, 24), nn.ReLU())
        self.second = nn.Sequential(nn.Conv1d(24, 24, 3, padding=1), nn.GroupNorm(3, 24), nn.ReLU())
        self.head = nn.Linear(24, 3)

    def pooled(self, h: Tensor) -> Tensor:
        return h.mean(2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.pooled(self.second(self.first(x.transpose(1, 2)))))


def alarms_quality(look: Callable[[Tensor], Tensor] = lambda x: x) -> Callable[[nn.Module], float]:
    def quality(net: nn.Module) -> float:
        x, label = alarms_data(400)
        return ((net(look(x)) > 0).float() != label).float().mean().item()

    return quality


@HALF.net("cnn")
def alarms() -> Training:
    """Which alarms belong to a recording? Several may."""
    batch = sliced(*alarms_data(1600), 32)
    optimize = partial(torch.optim.NAdam, lr=0.004)
    return Training(Alarms(), optimize, batch, nn.BCEWithLogitsLoss(), alarms_quality(), steps=200)


# ---- autoencoders, a maker and its judge ------------------------------------------------------------


def gallery_data(count: int) -> Tensor:
    """Soft spots, from 0 to 1."""
    place, size = 2 + 8 * torch.rand(2, count, 1, 1), 1.2 + torch.rand(count, 1, 1)
    row, column = torch.arange(12.0).view(1, 12, 1), torch.arange(12.0).view(1, 1, 12)
    return torch.exp(-((row - place[0]) ** 2 + (column - place[1]) ** 2) / (2 * size**2)).unsqueeze(1)


class Gallery(nn.Module):
    """Strided convolutions to eight numbers, and back."""

    def __init__(self, last: nn.Module | None = None) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 12, 3, stride=2, padding=1), nn.LeakyReLU(0.1), nn.Conv2d(12, 24, 3, stride=2, padding=1), nn.LeakyReLU(0.1)
        )
        self.code, self.decode = nn.Linear(24 * 9, 8), nn.Linear(8, 24 * 9)
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(24, 12, 4, stride=2, padding=1), nn.LeakyReLU(0.1), nn.ConvTranspose2d(12, 1, 4, stride=2, padding=1)
        )
        self.last = last or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        code = self.code(self.encoder(x).flatten(1))
        return self.last(self.decoder(F.leaky_relu(self.decode(code), 0.1).view(-1, 24, 3, 3)))


def gallery_batch(_: int) -> Batch:
    x = (gallery_data(48) - 0.1) / 0.2
    return x, x


def gallery_quality(net: nn.Module) -> float:
    x = (gallery_data(200) - 0.1) / 0.2
    return F.mse_loss(net(x), x).item()


@HALF.net("generative")
def gallery() -> Training:
    """Spots through eight numbers."""
    optimize = partial(torch.optim.Adam, lr=0.005)
    return Training(Gallery(), optimize, gallery_batch, lambda output, x: F.mse_loss(output, x), gallery_quality, steps=250)


class Sketches(nn.Module):
    """A variational autoencoder, in the spelling of the examples."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc21, self.fc22 = nn.Linear(144, 64), nn.Linear(64, 4), nn.Linear(64, 4)
        self.fc3, self.fc4 = nn.Linear(4, 64), nn.Linear(64, 144)

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = F.relu(self.fc1(x))
        return self.fc21(h), self.fc22(h)

    def decode(self, z: Tensor) -> Tensor:
        return self.fc4(F.relu(self.fc3(z)))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        mu, logvar = self.encode(x.view(-1, 144))
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar) if self.training else mu
        return {"logits": self.decode(z), "mu": mu, "logvar": logvar}


def kld(output: dict[str, Tensor]) -> Tensor:
    """Of each sample."""
    mu, logvar = output["mu"], output["logvar"]
    return -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1)


def missed(output: dict[str, Tensor], x: Tensor) -> Tensor:
    """Of each pixel."""
    return F.binary_cross_entropy_with_logits(output["logits"], x.view(-1, 144), reduction="none")


def vae_loss(output: dict[str, Tensor], x: Tensor) -> Tensor:
    return (missed(output, x).sum(1) + kld(output)).mean()


def sketches_quality(net: nn.Module) -> float:
    """How far the image is that is made of the mean of its code."""
    x = gallery_data(200).view(-1, 144)
    return F.mse_loss(net(x)["logits"].sigmoid(), x).item()


@HALF.net("generative")
def sketches() -> Training:
    """A variational autoencoder of spots."""

    def batch(_: int) -> Batch:
        x = gallery_data(64)
        return x, x

    return Training(Sketches(), partial(torch.optim.Adam, lr=0.005), batch, vae_loss, sketches_quality, steps=300)


CENTRES = torch.tensor([[2.0, 0], [0, 2], [-2, 0], [0, -2]])


class Mint(nn.Module):
    """Makes a point of a kind, and judges whether a point is a real one of its kind."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(3 + 4, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
        self.judge = nn.Sequential(nn.Linear(2 + 4, 32), nn.LeakyReLU(0.2), nn.Linear(32, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))

    def forward(self, kind: Tensor, noise: Tensor | None = None) -> Tensor:
        noise = torch.randn(len(kind), 3) if noise is None else noise
        return self.generator(torch.cat([noise, F.one_hot(kind, 4).float()], 1))

    def judged(self, point: Tensor, kind: Tensor) -> Tensor:
        return self.judge(torch.cat([point, F.one_hot(kind, 4).float()], 1))


def mint_data(count: int) -> tuple[Tensor, Tensor]:
    kind = torch.randint(4, (count,))
    return kind, CENTRES[kind] + torch.randn(count, 2) * torch.tensor([0.5, 0.3])


def mint_step(training: Training, number: int) -> None:
    """Least squares: real ones are to be 1, made ones 0."""
    kind, real = training.batch(number)
    net, (judges,) = training.model, training.others
    made = net(kind)
    judges.zero_grad()
    (0.5 * (net.judged(real, kind) - 1).square().mean() + 0.5 * net.judged(made.detach(), kind).square().mean()).backward()
    judges.step()
    training.optimizer.zero_grad()
    (0.5 * (net.judged(made, kind) - 1).square().mean()).backward()
    training.optimizer.step()


def energy(net: nn.Module) -> float:
    """The energy distance of points of each kind."""
    total = 0.0
    for kind in range(4):
        real = CENTRES[kind] + torch.randn(150, 2) * torch.tensor([0.5, 0.3])
        made = net(torch.full((150,), kind))
        total += (2 * torch.cdist(real, made).mean() - torch.cdist(real, real).mean() - torch.cdist(made, made).mean()).item()
    return total / 4


def mint_optimizers(training: Training, made: float = 0.003, judged: float = 0.003) -> None:
    training.optimizer = torch.optim.Adam(training.model.generator.parameters(), lr=made, betas=(0.5, 0.99))
    training.others = (torch.optim.Adam(training.model.judge.parameters(), lr=judged, betas=(0.5, 0.99)),)


@HALF.net("generative")
def mint() -> Training:
    """Points of four kinds, made and judged."""
    training = Training(
        Mint(),
        partial(torch.optim.Adam, lr=0.003),
        lambda _: mint_data(64),
        lambda output, target: (output - target).square().mean(),
        energy,
        steps=350,
        step=mint_step,
    )
    mint_optimizers(training)
    return training


def haze_shape() -> Tensor:
    """The covariance of clean signals: not far from one of all directions alike."""
    turned = torch.linalg.qr(constant(12, 12, seed=31)).Q
    return turned @ torch.diag(torch.linspace(0.3, 1.7, 12)) @ turned.t()


def haze_data(count: int) -> Tensor:
    """Signals of 12 values."""
    return torch.randn(count, 12) @ torch.linalg.cholesky(haze_shape()).t()


class Haze(nn.Module):
    """Says the clean signal; it is told how strong the noise is."""

    def __init__(self) -> None:
        super().__init__()
        self.inward, self.level = nn.Linear(12, 96), nn.Linear(8, 96)
        self.deeper, self.outward = nn.Linear(96, 96), nn.Linear(96, 12)
        self.shift = nn.Linear(8, 96)

    def told(self, sigma: Tensor) -> Tensor:
        return torch.sin(sigma.log().unsqueeze(1) * torch.arange(1.0, 9))

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        scale = (1 + sigma.square()).rsqrt().unsqueeze(1)
        told = self.told(sigma)
        h = F.silu(self.inward(x * scale) * (1 + self.level(told)))
        h = h + F.silu(self.deeper(h) * (1 + self.shift(told)))
        return self.outward(h)


def levels(count: int) -> Tensor:
    return torch.exp(3.5 * torch.rand(count) - 2)


def haze_batch(_: int) -> Batch:
    clean, sigma = haze_data(96), levels(96)
    return (clean + sigma.unsqueeze(1) * torch.randn_like(clean), sigma), clean


def haze_criterion(output: Tensor, clean: Tensor) -> Tensor:
    return (output - clean).square().mean()


def haze_quality(net: nn.Module) -> float:
    """How far it is from the best estimate, which is Wiener's."""
    clean, sigma = haze_data(300), levels(300)
    noisy = clean + sigma.unsqueeze(1) * torch.randn_like(clean)
    shape = haze_shape()
    best = torch.linalg.solve(shape + torch.eye(12) * sigma.square().view(-1, 1, 1), noisy.unsqueeze(2)).squeeze(2) @ shape
    return (net(noisy, sigma) - best).square().mean().item()


@HALF.net("generative")
def haze() -> Training:
    """A denoiser of signals."""
    return Training(Haze(), partial(torch.optim.Adam, lr=0.004), haze_batch, haze_criterion, haze_quality, steps=300)


# ---- pairs -----------------------------------------------------------------------------------------


class Couples(nn.Module):
    """Two towers, and how sharp their likeness is."""

    def __init__(self) -> None:
        super().__init__()
        self.towers = nn.ModuleDict({side: nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Linear(48, 12)) for side in ("left", "right")})
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.2)))

    def forward(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        one, other = F.normalize(self.towers["left"](left), dim=1), F.normalize(self.towers["right"](right), dim=1)
        return one, other, self.scale()

    def scale(self) -> Tensor:
        return self.logit_scale.exp()


def couples_data(count: int) -> tuple[Tensor, Tensor]:
    soul = torch.randn(count, 5)
    sides = [torch.tanh(soul @ (0.7 * constant(5, 10, seed=seed))) + 0.1 * torch.randn(count, 10) for seed in (11, 12)]
    return sides[0], sides[1]


def clip_loss(output: tuple[Tensor, Tensor, Tensor], target: Tensor) -> Tensor:
    one, other, scale = output
    logits = scale * one @ other.t()
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target)) / 2


def couples_quality(net: nn.Module) -> float:
    """How often a right one is not found."""
    one, other, _ = net(*couples_data(100))
    return ((one @ other.t()).argmax(1) != torch.arange(100)).float().mean().item()


@HALF.net("embedding")
def couples() -> Training:
    """Who belongs to whom?"""
    optimize = partial(torch.optim.AdamW, lr=0.005, weight_decay=0.0)
    return Training(Couples(), optimize, lambda _: (couples_data(64), torch.arange(64)), clip_loss, couples_quality, steps=200)


WRITERS = 10


def letters_of(writer: Tensor) -> Tensor:
    """A letter of each writer: what is written is most of it."""
    hand, text = constant(WRITERS, 6, seed=21)[writer], torch.randn(len(writer), 6)
    return torch.cat([text, torch.tanh(text * hand) + 0.5 * hand + 0.1 * torch.randn(len(writer), 6)], 1)


class Letters(nn.Module):
    """One net for both letters."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))

    def forward(self, one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        return self.body(one), self.body(other)


def pair_loss(output: tuple[Tensor, Tensor], same: Tensor) -> Tensor:
    """Hadsell's: those of one hand come near, others go beyond the margin."""
    far = F.pairwise_distance(*output)
    return (same * far.pow(2) + (1 - same) * F.relu(2 - far).pow(2)).mean()


def letters_batch(_: int) -> Batch:
    one, other = torch.randint(WRITERS, (2, 96))
    other = torch.where(torch.rand(96) < 0.5, one, other)
    return (letters_of(one), letters_of(other)), (one == other).float()


def letters_quality(net: nn.Module) -> float:
    """How often the nearest of a letter of each writer is of another one."""
    writer = torch.randint(WRITERS, (400,))
    found, known = net(letters_of(writer), letters_of(torch.arange(WRITERS).repeat_interleave(20)))
    far = torch.cdist(found, known.view(WRITERS, 20, -1).mean(1))
    return (far.argmin(1) != writer).float().mean().item()


@HALF.net("embedding")
def letters() -> Training:
    """Are two letters of one hand?"""
    return Training(Letters(), partial(torch.optim.Adam, lr=0.003), letters_batch, pair_loss, letters_quality, steps=250)
