"""Nets that learn, each in a second: the twins of the working half's sick trainings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.sick.training import Batch, Training
from bench.sick.working.half import HALF

SGD, ADAM = torch.optim.SGD, torch.optim.Adam


def drawn(size: int, inputs: Tensor, target: Tensor) -> Callable[[int], Batch]:
    """Batches of a data set, drawn at random."""

    def batch(_: int) -> Batch:
        rows = torch.randint(len(target), (size,))
        return inputs[rows], target[rows]

    return batch


def errors(output: Tensor, label: Tensor) -> float:
    """Which share of the classes is wrong."""
    return (output.argmax(-1) != label).float().mean().item()


# ---- mlp -------------------------------------------------------------------------------------------


def wave_data(count: int) -> tuple[Tensor, Tensor]:
    x = torch.rand(count, 2) * 4 - 2
    return x, torch.sin(2 * x[:, :1]) + 0.5 * x[:, 1:].square()


def wave_model(width: int = 32, depth: int = 2, activation: Callable[[], nn.Module] = nn.ReLU) -> nn.Sequential:
    inner = [layer for _ in range(depth - 1) for layer in (nn.Linear(width, width), activation())]
    return nn.Sequential(nn.Linear(2, width), activation(), *inner, nn.Linear(width, 1))


@HALF.net("mlp")
def wave() -> Training:
    """Regression of a smooth function of two numbers."""

    def quality(net: nn.Module) -> float:
        x, y = wave_data(512)
        return F.mse_loss(net(x), y).item()

    return Training(wave_model(), partial(SGD, lr=0.05, momentum=0.9), drawn(64, *wave_data(1024)), F.mse_loss, quality)


def spirals_data(count: int) -> tuple[Tensor, Tensor]:
    label = torch.randint(3, (count,))
    radius = torch.rand(count)
    angle = 2.5 * radius + label * 2.0944 + 0.1 * torch.randn(count)
    return torch.stack([radius * torch.cos(angle), radius * torch.sin(angle)], 1), label


def spirals_model(width: int = 48, depth: int = 2, activation: Callable[[], nn.Module] = nn.Tanh, classes: int = 3) -> nn.Sequential:
    inner = [layer for _ in range(depth - 1) for layer in (nn.Linear(width, width), activation())]
    return nn.Sequential(nn.Linear(2, width), activation(), *inner, nn.Linear(width, classes))


@HALF.net("mlp")
def spirals() -> Training:
    """Three classes that wind around each other."""

    def quality(net: nn.Module) -> float:
        x, label = spirals_data(512)
        return errors(net(x), label)

    return Training(spirals_model(), partial(ADAM, lr=0.01), lambda _: spirals_data(64), F.cross_entropy, quality)


# ---- cnn -------------------------------------------------------------------------------------------


def bars_data(count: int) -> tuple[Tensor, Tensor]:
    label = torch.randint(4, (count,))
    row, column = torch.meshgrid(torch.arange(8), torch.arange(8), indexing="ij")
    lines = torch.stack([row, column, (row + column) % 8, (row - column) % 8])[label]
    images = (lines == torch.randint(8, (count, 1, 1))).float()
    return (images + 0.3 * torch.randn(count, 8, 8)).unsqueeze(1), label


def bars_model(
    channels: int = 12, activation: Callable[[], nn.Module] = nn.ReLU, norm: Callable[[int], nn.Module] = nn.BatchNorm2d
) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1),
        norm(channels),
        activation(),
        nn.Conv2d(channels, 2 * channels, 3, padding=1),
        norm(2 * channels),
        activation(),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * channels, 4),
    )


@HALF.net("cnn")
def bars() -> Training:
    """Which way does the bar in a noisy image run?"""

    def quality(net: nn.Module) -> float:
        x, label = bars_data(400)
        return errors(net(x), label)

    return Training(bars_model(), partial(ADAM, lr=0.01), drawn(32, *bars_data(2000)), F.cross_entropy, quality, steps=150)


def dot_data(count: int) -> tuple[Tensor, Tensor]:
    place = torch.rand(count, 2) * 2 - 1
    grid = torch.linspace(-1, 1, 8)
    near = torch.exp(-((grid[None, :, None] - place[:, :1, None]) ** 2 + (grid[None, None] - place[:, 1:, None]) ** 2) / 0.1)
    return torch.stack([near, 0.2 * torch.randn(count, 8, 8)], 1), place


def dot_model(channels: int = 8, activation: Callable[[], nn.Module] = nn.ReLU) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(2, channels, 3, stride=2, padding=1),
        activation(),
        nn.Flatten(),
        nn.Linear(channels * 16, 32),
        activation(),
        nn.Linear(32, 2),
    )


@HALF.net("cnn")
def dot() -> Training:
    """Where is the dot? Two coordinates, of an image with a second channel of noise."""

    def quality(net: nn.Module) -> float:
        x, place = dot_data(400)
        return F.mse_loss(net(x), place).item()

    return Training(dot_model(), partial(SGD, lr=0.1, momentum=0.9), lambda _: dot_data(32), F.mse_loss, quality)


# ---- recurrent -------------------------------------------------------------------------------------


def marked_data(count: int, length: int = 8) -> tuple[Tensor, Tensor]:
    numbers = torch.rand(count, length)
    places = torch.stack([torch.randperm(length)[:2] for _ in range(count)])
    marks = torch.zeros(count, length).scatter_(1, places, 1.0)
    return torch.stack([numbers, marks], 2), (numbers * marks).sum(1, keepdim=True)


class Reader(nn.Module):
    """A recurrent layer and a head that reads its last output."""

    def __init__(self, recurrent: nn.Module, width: int, outputs: int, embedding: nn.Module | None = None) -> None:
        super().__init__()
        self.embedding = embedding or nn.Identity()
        self.recurrent = recurrent
        self.head = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        out, _ = self.recurrent(self.embedding(x))
        return self.head(out[:, -1])


@HALF.net("recurrent")
def marked() -> Training:
    """The sum of the two numbers that are marked in a sequence."""
    pool = marked_data(3000)

    def quality(net: nn.Module) -> float:
        x, y = marked_data(300)
        return F.mse_loss(net(x), y).item()

    model = Reader(nn.GRU(2, 24, batch_first=True), 24, 1)
    return Training(model, partial(ADAM, lr=0.02), drawn(64, *pool), F.mse_loss, quality, steps=300)


def recall_data(count: int, length: int = 8) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(1, 7, (count, length))
    return tokens, tokens[:, 1] - 1


@HALF.net("recurrent")
def recall() -> Training:
    """Which token came second? An LSTM over embeddings."""

    def quality(net: nn.Module) -> float:
        x, label = recall_data(300)
        return errors(net(x), label)

    model = Reader(nn.LSTM(12, 32, batch_first=True), 32, 6, nn.Embedding(7, 12))
    return Training(model, partial(ADAM, lr=0.02), lambda _: recall_data(64), F.cross_entropy, quality, steps=250)


# ---- transformer -----------------------------------------------------------------------------------


def counting_data(count: int, length: int = 10) -> tuple[Tensor, Tensor]:
    start, step = torch.randint(12, (count, 1)), torch.randint(1, 4, (count, 1))
    sequence = (start + step * torch.arange(length + 1)) % 12
    return sequence[:, :-1], sequence[:, 1:]


class Counter(nn.Module):
    """A small language model."""

    def __init__(self, causal: bool = True, positions: bool = True, width: int = 32) -> None:
        super().__init__()
        self.causal, self.positions = causal, positions
        self.tokens = nn.Embedding(12, width)
        self.places = nn.Embedding(10, width) if positions else None
        layer = nn.TransformerEncoderLayer(width, 2, 64, dropout=0.0, batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 12)

    def forward(self, x: Tensor) -> Tensor:
        h = self.tokens(x)
        if self.places is not None:
            h = h + self.places(torch.arange(x.shape[1]))
        mask = torch.full((x.shape[1], x.shape[1]), float("-inf")).triu(1) if self.causal else None
        return self.head(self.blocks(h, mask=mask))


def token_loss(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output.transpose(1, 2), target)


@HALF.net("transformer")
def counting() -> Training:
    """A language model of sequences that count in steps of one, two or three."""

    def quality(net: nn.Module) -> float:
        """The next token, made one after the other from the first two."""
        x, _target = counting_data(100)
        made = x[:, :2]
        for _ in range(4):
            made = torch.cat([made, net(made)[:, -1:].argmax(-1)], 1)
        return (made[:, 2:] != x[:, 2:6]).float().mean().item()

    return Training(Counter(), partial(ADAM, lr=0.003), lambda _: counting_data(32), token_loss, quality, steps=150)


def majority_data(count: int, length: int = 12) -> tuple[Tensor, Tensor]:
    kind = torch.randint(4, (count,))
    tokens = torch.randint(1, 5, (count, length))
    tokens = torch.where(torch.rand(count, length) < 0.35, kind[:, None] + 1, tokens)
    tokens[torch.arange(length) >= torch.randint(5, length + 1, (count, 1))] = 0
    return tokens, kind


class Majority(nn.Module):
    """A transformer that reads sequences of several lengths."""

    def __init__(self, padding_idx: int | None = 0, ignored: bool = True, width: int = 24) -> None:
        super().__init__()
        self.ignored = ignored
        self.tokens = nn.Embedding(5, width, padding_idx=padding_idx)
        self.block = nn.TransformerEncoderLayer(width, 2, 48, dropout=0.0, batch_first=True)
        self.head = nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        padded = x == 0
        h = self.block(self.tokens(x), src_key_padding_mask=padded if self.ignored else None)
        kept = (~padded).unsqueeze(2).float() if self.ignored else torch.ones(*x.shape, 1)
        return self.head((h * kept).sum(1) / kept.sum(1))


@HALF.net("transformer")
def majority() -> Training:
    """Which token is the most frequent one? Sequences are padded."""

    def quality(net: nn.Module) -> float:
        x, label = majority_data(400)
        return errors(net(x), label)

    return Training(Majority(), partial(ADAM, lr=0.005), lambda _: majority_data(64), F.cross_entropy, quality, steps=150)


# ---- generative ------------------------------------------------------------------------------------


def curves_data(count: int) -> Tensor:
    phase, height = torch.rand(count, 1) * 6.28, 0.5 + torch.rand(count, 1)
    return height * torch.sin(torch.linspace(0, 6.28, 24) + phase)


class Autoencoder(nn.Module):
    """Squeezes 24 numbers into a few and back."""

    def __init__(self, latent: int = 4, activation: Callable[[], nn.Module] = nn.ReLU, last: nn.Module | None = None) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(24, 32), activation(), nn.Linear(32, latent))
        self.decoder = nn.Sequential(nn.Linear(latent, 32), activation(), nn.Linear(32, 24), last or nn.Identity())

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.encoder(x))


@HALF.net("generative")
def curves() -> Training:
    """An autoencoder of curves."""

    def batch(_: int) -> Batch:
        x = curves_data(64)
        return x, x

    def quality(net: nn.Module) -> float:
        x = curves_data(400)
        return F.mse_loss(net(x), x).item()

    return Training(Autoencoder(), partial(ADAM, lr=0.005), batch, F.mse_loss, quality, steps=300)


class Variational(Autoencoder):
    """An autoencoder whose latent is drawn."""

    def __init__(self, latent: int = 3) -> None:
        super().__init__(2 * latent)
        self.decoder[0] = nn.Linear(latent, 32)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_variance = self.encoder(x).chunk(2, 1)
        drawn = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean) if self.training else mean
        return self.decoder(drawn), mean, log_variance


def elbo(output: tuple[Tensor, Tensor, Tensor], target: Tensor, weight: float = 0.02) -> Tensor:
    made, mean, log_variance = output
    divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(1).mean()
    return F.mse_loss(made, target) + weight * divergence


@HALF.net("generative")
def chances() -> Training:
    """A variational autoencoder of curves."""

    def batch(_: int) -> Batch:
        x = curves_data(64)
        return x, x

    def quality(net: nn.Module) -> float:
        x = curves_data(400)
        return F.mse_loss(net(x)[0], x).item()

    return Training(Variational(), partial(ADAM, lr=0.005), batch, elbo, quality, steps=300)


# ---- embedding -------------------------------------------------------------------------------------


class Ratings(nn.Module):
    """How a user likes an item: the product of two embeddings."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.users = nn.Embedding(30, width)
        self.items = nn.Embedding(40, width)
        self.bias = nn.Embedding(40, 1)
        nn.init.normal_(self.users.weight, std=0.3)
        nn.init.normal_(self.items.weight, std=0.3)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        return (self.users(user) * self.items(item)).sum(1) + self.bias(item).squeeze(1)


@HALF.net("embedding")
def ratings() -> Training:
    """Ratings of thirty users for forty items."""
    taste, kind = torch.randn(30, 3), torch.randn(40, 3)
    truth = taste @ kind.T / 1.7 + 0.5 * torch.randn(40)

    def batch(_: int) -> Batch:
        user, item = torch.randint(30, (128,)), torch.randint(40, (128,))
        return (user, item), truth[user, item] + 0.05 * torch.randn(128)

    def quality(net: nn.Module) -> float:
        user, item = torch.arange(30).repeat_interleave(40), torch.arange(40).repeat(30)
        return F.mse_loss(net(user, item), truth[user, item]).item()

    return Training(Ratings(), partial(ADAM, lr=0.03), batch, F.mse_loss, quality, steps=250)


class Views(nn.Module):
    """Embeds two views of the same thing side by side."""

    def __init__(self, width: int = 32, norm: bool = True) -> None:
        super().__init__()
        self.norm = norm
        self.encoder = nn.Sequential(nn.Linear(10, width), nn.ReLU(), nn.Linear(width, 8))

    def forward(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        ends = self.encoder(left), self.encoder(right)
        return (F.normalize(ends[0], dim=1), F.normalize(ends[1], dim=1)) if self.norm else ends


def info_nce(output: tuple[Tensor, Tensor], target: Tensor, temperature: float = 0.2) -> Tensor:
    return F.cross_entropy(output[0] @ output[1].T / temperature, target)


def views_data(count: int, mixing: Tensor) -> tuple[Tensor, Tensor]:
    """Three numbers that both views share; seven that only disturb, stronger."""
    shared = torch.randn(count, 3)
    left, right = (torch.cat([shared, 1.5 * torch.randn(count, 7)], 1) @ mixing for _ in range(2))
    return left, right


@HALF.net("embedding")
def views() -> Training:
    """A contrastive loss: which two views belong together?"""
    mixing = torch.linalg.qr(torch.randn(10, 10))[0]

    def batch(_: int) -> Batch:
        return views_data(64, mixing), torch.arange(64)

    def quality(net: nn.Module) -> float:
        left, right = net(*views_data(64, mixing))
        return errors(left @ right.T, torch.arange(64))

    return Training(Views(), partial(ADAM, lr=0.005), batch, info_nce, quality, steps=300)


# ---- further nets ----------------------------------------------------------------------------------


def inside_data(count: int) -> tuple[Tensor, Tensor]:
    x = torch.rand(count, 2) * 2 - 1
    return x, (x.square().sum(1, keepdim=True) < 0.6).float()


@HALF.net("mlp")
def inside() -> Training:
    """Is a point in the circle? One logit, under a binary cross-entropy."""
    model = nn.Sequential(nn.Linear(2, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 1))

    def quality(net: nn.Module) -> float:
        x, label = inside_data(500)
        return ((net(x) > 0).float() != label).float().mean().item()

    return Training(model, partial(ADAM, lr=0.01), drawn(64, *inside_data(2000)), F.binary_cross_entropy_with_logits, quality, steps=200)


class Basket(nn.Module):
    """The price of a basket, as the sum of what its items say."""

    def __init__(self, padding_idx: int | None = 0) -> None:
        super().__init__()
        self.items = nn.Embedding(21, 8, padding_idx=padding_idx)
        self.price = nn.Linear(8, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.price(self.items(x).sum(1))


@HALF.net("embedding")
def basket() -> Training:
    """What does a basket cost? Rows of items, padded with 0."""
    price = torch.rand(21, 1) * 2
    price[0] = 0
    price[3] = 3

    def batch(count: int) -> Batch:
        items = torch.randint(1, 21, (count, 6))
        items = torch.where(torch.rand(count, 6) < 0.2, 3, items)
        items[torch.arange(6) >= torch.randint(1, 7, (count, 1))] = 0
        return items, price[items].sum(1)

    def quality(net: nn.Module) -> float:
        x, y = batch(400)
        return F.mse_loss(net(x), y).item()

    return Training(Basket(), partial(ADAM, lr=0.03), lambda _: batch(64), F.mse_loss, quality, steps=250)


class Duel(nn.Module):
    """A generator and a discriminator of single numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
        self.discriminator = nn.Sequential(nn.Linear(1, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))

    def forward(self, count: Tensor) -> Tensor:
        return self.generator(torch.randn(len(count), 4))


def duel_step(training: Training, number: int) -> None:
    """One step of each."""
    real, _ = training.batch(number)
    net, bce = training.model, F.binary_cross_entropy_with_logits
    made = net(real)
    ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
    training.others[0].zero_grad()
    judged = bce(net.discriminator(real), ones) + bce(net.discriminator(made.detach()), zeros)
    judged.backward()
    training.others[0].step()
    training.optimizer.zero_grad()
    bce(net.discriminator(made), ones).backward()
    training.optimizer.step()


@HALF.net("generative")
def duel() -> Training:
    """A GAN that makes numbers around four."""

    def batch(_: int) -> Batch:
        real = 4 + 0.5 * torch.randn(64, 1)
        return real, real

    def quality(net: nn.Module) -> float:
        made = net(torch.empty(1000, 1))
        return ((made.mean() - 4).abs() + (made.std() - 0.5).abs()).item()

    net = Duel()
    training = Training(net, lambda _: ADAM(net.generator.parameters(), lr=0.005), batch, F.mse_loss, quality, steps=500, step=duel_step)
    training.others = (ADAM(net.discriminator.parameters(), lr=0.01),)
    return training
