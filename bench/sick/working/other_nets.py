"""More nets that learn: attention and losses by hand, cells in loops, several outputs, data sets behind loaders."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from bench.sick.cases import Change
from bench.sick.training import Batch, Training
from bench.sick.working.half import HALF

SGD, ADAM, ADAMW, RMS = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop


def loaded(loader: DataLoader[Any]) -> Callable[[int], Batch]:
    """Batches of a loader, epoch after epoch."""
    epoch: Iterator[Any] = iter(())

    def batch(_: int) -> Batch:
        nonlocal epoch
        found = next(epoch, None)
        if found is None:
            epoch = iter(loader)
            found = next(epoch)
        inputs, target = found
        return tuple(inputs) if isinstance(inputs, list) else inputs, target

    return batch


def optimized_by(kind: type[torch.optim.Optimizer], **options: Any) -> Change:
    """What gives a training another optimizer."""

    def change(training: Training) -> None:
        training.optimize = partial(kind, **options)
        training.use(training.model)

    return change


def fixed_numbers(*shape: int, seed: int = 7) -> Tensor:
    """The same numbers in each training."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# ---- tables ----------------------------------------------------------------------------------------


def cargo_data(count: int) -> tuple[dict[str, Tensor], Tensor]:
    numbers, kind = torch.randn(count, 4), torch.randint(6, (count,))
    slope = fixed_numbers(6)[kind]
    return {"numbers": numbers, "kind": kind}, slope * numbers[:, 0] + torch.sin(2 * numbers[:, 1]) + 0.5 * numbers[:, 2]


class Rows(Dataset[Any]):
    """A table, row by row."""

    def __init__(self, columns: dict[str, Tensor], target: Tensor) -> None:
        self.columns, self.target = columns, target

    def __len__(self) -> int:
        return len(self.target)

    def __getitem__(self, row: int) -> tuple[dict[str, Tensor], Tensor]:
        return {name: column[row] for name, column in self.columns.items()}, self.target[row]


class Residual(nn.Module):
    """Adds what a small net says of the normalized input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.silu(self.up(self.norm(x))))


class Cargo(nn.Module):
    """Numbers and a kind, which has an embedding."""

    def __init__(self, width: int = 24, numbers: int = 4, first_norm: bool = False) -> None:
        super().__init__()
        self.parts = nn.ModuleDict({"numbers": nn.Linear(numbers, width), "kind": nn.Embedding(6, width)})
        self.first = nn.BatchNorm1d(numbers) if first_norm else nn.Identity()
        self.blocks = nn.ModuleList(Residual(width) for _ in range(2))
        self.price = nn.Linear(width, 1)

    def forward(self, numbers: Tensor, kind: Tensor) -> Tensor:
        h = self.parts["numbers"](self.first(numbers)) + self.parts["kind"](kind)
        for block in self.blocks:
            h = block(h)
        return self.price(h).squeeze(-1)


def huber(output: Tensor, target: Tensor) -> Tensor:
    error = (output - target).abs()
    return torch.where(error < 1, 0.5 * error.square(), error - 0.5).mean()


@HALF.net("mlp")
def cargo() -> Training:
    """A number from a table with numbers and a kind."""

    def quality(net: nn.Module) -> float:
        columns, y = cargo_data(512)
        return (net(**columns) - y).square().mean().item()

    loader = DataLoader(Rows(*cargo_data(1500)), batch_size=50, shuffle=True)
    return Training(Cargo(), partial(ADAMW, lr=0.005), loaded(loader), huber, quality, steps=200)


def badges_data(count: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 8, 4)
    return x, (x.mean(1).abs() > 0.24).float()


class Mixer(nn.Module):
    """Mixes the patches, then the channels."""

    def __init__(self, patches: int = 8, channels: int = 4, outputs: int = 4, width: int = 32) -> None:
        super().__init__()
        self.across = nn.Sequential(nn.Linear(patches, width), nn.GELU(), nn.Linear(width, patches))
        self.along = nn.Sequential(nn.LayerNorm(channels), nn.Linear(channels, width), nn.GELU(), nn.Linear(width, channels))
        self.read = nn.Sequential(nn.Flatten(), nn.Linear(patches * channels, 48), nn.GELU(), nn.Linear(48, outputs))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.across(x.transpose(1, 2)).transpose(1, 2)
        return self.read(x + self.along(x))


def by_hand_bce(logits: Tensor, target: Tensor) -> Tensor:
    return -(target * F.logsigmoid(logits) + (1 - target) * F.logsigmoid(-logits)).mean()


@HALF.net("mlp")
def badges() -> Training:
    """Four yes-or-no labels of each sample, by a mixer."""

    def quality(net: nn.Module) -> float:
        x, label = badges_data(500)
        return ((net(x).sigmoid() > 0.5).float() != label).float().mean().item()

    return Training(Mixer(), partial(RMS, lr=0.003), lambda _: badges_data(64), by_hand_bce, quality, steps=300)


class Value(nn.Module):
    """What a state is worth."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(2, 32), nn.Linear(32, 32), nn.Linear(32, 1)

    def forward(self, state: Tensor) -> Tensor:
        return self.last(torch.tanh(self.second(torch.tanh(self.first(state)))))


def worth_moves(state: Tensor) -> tuple[Tensor, Tensor]:
    """The next states, and the rewards as one column."""
    return 0.5 * state.roll(1, 1) + 0.3 * torch.randn_like(state), torch.sin(3 * state[:, :1])


def worth_step(training: Training, number: int) -> None:
    """A step of temporal differences."""
    state, _ = training.batch(number)
    after, reward = worth_moves(state)
    with torch.no_grad():
        target = reward + 0.6 * training.model(after)
    training.optimizer.zero_grad()
    training.criterion(training.model(state), target).backward()
    training.optimizer.step()


@HALF.net("mlp")
def worth() -> Training:
    """The value of states, by temporal differences."""

    def batch(_: int) -> Batch:
        state = 2 * torch.rand(64, 2) - 1
        return state, state

    def quality(net: nn.Module) -> float:
        first = 2 * torch.rand(100, 2) - 1
        state, total = first.repeat(40, 1), torch.zeros(4000, 1)
        for step in range(10):
            after, reward = worth_moves(state)
            total, state = total + 0.6**step * reward, after
        return F.mse_loss(net(first), total.view(40, 100, 1).mean(0)).item()

    return Training(Value(), partial(ADAM, lr=0.005), batch, F.smooth_l1_loss, quality, steps=300, step=worth_step)


def forager_reward(state: Tensor) -> Tensor:
    return torch.tanh(state @ fixed_numbers(5, 4))


@HALF.net("mlp")
def forager() -> Training:
    """REINFORCE: which of four places is best, by what one sees?"""

    def batch(_: int) -> Batch:
        state = torch.randn(96, 5)
        return state, forager_reward(state)

    def criterion(logits: Tensor, rewards: Tensor) -> Tensor:
        chances = torch.distributions.Categorical(logits=logits)
        chosen = chances.sample()
        got = rewards.gather(1, chosen[:, None]).squeeze(1)
        return -(chances.log_prob(chosen) * (got - got.mean())).mean()

    def quality(net: nn.Module) -> float:
        state = torch.randn(400, 5)
        rewards = forager_reward(state)
        got = rewards.gather(1, net(state).argmax(1, keepdim=True)).squeeze(1)
        return (rewards.max(1).values - got).mean().item()

    model = nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 4))
    return Training(model, partial(ADAM, lr=0.02), batch, criterion, quality, steps=250)


@HALF.net("mlp")
def apprentice() -> Training:
    """A student learns the chances that a teacher gives to ten classes."""
    first, second = fixed_numbers(6, 16), 1.5 * fixed_numbers(16, 10, seed=8)

    def teacher(x: Tensor) -> Tensor:
        return (torch.tanh(x @ first) @ second).softmax(1)

    def batch(_: int) -> Batch:
        x = torch.randn(64, 6)
        return x, teacher(x)

    def quality(net: nn.Module) -> float:
        x = torch.randn(400, 6)
        return (net(x).argmax(1) != teacher(x).argmax(1)).float().mean().item()

    def criterion(output: Tensor, chances: Tensor) -> Tensor:
        return F.kl_div(F.log_softmax(output, 1), chances, reduction="batchmean")

    model = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.LayerNorm(64), nn.Linear(64, 10))
    return Training(model, partial(ADAMW, lr=0.01), batch, criterion, quality, steps=200)


# ---- images and waves ------------------------------------------------------------------------------


def pulses_data(count: int) -> tuple[Tensor, Tensor]:
    label = torch.randint(5, (count,))
    time = torch.linspace(0, 6, 48) + 6 * torch.rand(count, 1)
    phase = time % 1.5 / 1.5
    square, saw, sine = (phase < 0.5).float() * 2 - 1, 2 * phase - 1, torch.sin(2 * math.pi * phase)
    spikes, fast = 4 * (phase < 0.1).float() - 0.4, torch.sin(6 * math.pi * phase)
    waves = torch.stack([square, saw, sine, spikes, fast])[label, torch.arange(count)]
    return (waves + 0.3 * torch.randn(count, 48)).unsqueeze(1), label


class Pulses(nn.Module):
    """Convolutions along one dimension, around which the input goes, too."""

    def __init__(self, channels: int = 16, outputs: int = 5, norm: bool = True) -> None:
        super().__init__()
        self.lift = nn.Conv1d(1, channels, 5, padding=2)
        self.layers = nn.ModuleList(nn.Conv1d(channels, channels, 5, padding=2) for _ in range(2))
        self.norms = nn.ModuleList(nn.GroupNorm(4, channels) if norm else nn.Identity() for _ in range(2))
        self.name = nn.Linear(channels, outputs)

    def forward(self, x: Tensor) -> Tensor:
        h = self.lift(x)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            h = h + F.gelu(norm(layer(h)))
        return self.name(h.square().mean(2).add(1e-6).sqrt())


def gathered(output: Tensor, label: Tensor) -> Tensor:
    """The cross-entropy, by hand."""
    return -F.log_softmax(output, -1).gather(-1, label.unsqueeze(-1)).mean()


@HALF.net("cnn")
def ripples() -> Training:
    """What shape has a wave?"""

    def quality(net: nn.Module) -> float:
        x, label = pulses_data(300)
        return (net(x).argmax(1) != label).float().mean().item()

    loader = DataLoader(TensorDataset(*pulses_data(1200)), batch_size=32, shuffle=True)
    return Training(Pulses(), partial(torch.optim.NAdam, lr=0.005), loaded(loader), gathered, quality, steps=200)


def cells_data(count: int, size: int = 16) -> tuple[Tensor, Tensor]:
    """A disc and a square, of other brightness, and what each pixel belongs to."""
    row, column = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    (a, b), (c, d) = torch.randint(2, size - 2, (2, 2, count, 1, 1))
    disc = (row - a) ** 2 + (column - b) ** 2 <= 6
    square = ((row - c).abs() <= 2) & ((column - d).abs() <= 2) & ~disc
    label = disc.long() + 2 * square.long()
    return (disc.float() - square.float() + 0.6 * torch.randn(count, size, size)).unsqueeze(1), label


class Unet(nn.Module):
    """Down once, up once, and across."""

    def __init__(self, channels: int = 8, outputs: int = 3) -> None:
        super().__init__()
        self.outer = nn.Sequential(nn.Conv2d(1, channels, 3, padding=1), nn.GroupNorm(2, channels), nn.ReLU())
        self.inner = nn.Sequential(nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.GroupNorm(2, 2 * channels), nn.ReLU())
        self.up = nn.ConvTranspose2d(2 * channels, channels, 2, stride=2)
        self.paint = nn.Conv2d(2 * channels, outputs, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        outer = self.outer(x)
        inner = self.inner(F.max_pool2d(outer, 2))
        return self.paint(torch.cat([outer, self.up(inner)], 1))


def overlap(found: Tensor, label: Tensor, classes: tuple[int, ...] = (1, 2)) -> float:
    """What the classes miss of a perfect overlap."""
    shares = [((found == one) & (label == one)).sum() / ((found == one) | (label == one)).sum().clamp(min=1) for one in classes]
    return 1 - sum(share.item() for share in shares) / len(shares)


@HALF.net("cnn")
def cells() -> Training:
    """Segmentation: which pixels are of the disc, and which of the square?"""

    def quality(net: nn.Module) -> float:
        x, label = cells_data(100)
        return overlap(net(x).argmax(1), label)

    return Training(Unet(), partial(ADAMW, lr=0.01), lambda _: cells_data(16), F.cross_entropy, quality, steps=150)


def tides_data(count: int, length: int = 24) -> tuple[Tensor, Tensor]:
    speed, phase = 0.6 + torch.rand(count, 1), 6.28 * torch.rand(count, 1)
    wave = torch.sin(speed * torch.arange(length + 1) + phase).unsqueeze(2) + 0.02 * torch.randn(count, length + 1, 1)
    return wave[:, :-1], wave[:, 1:]


class Causal(nn.Module):
    """Convolutions that see the past alone."""

    def __init__(self, channels: int = 16, inputs: int = 1, outputs: int = 1) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv1d(inputs, channels, 3), nn.Conv1d(channels, channels, 3, dilation=2)])
        self.last = nn.Conv1d(channels, outputs, 1)

    def padded(self, x: Tensor, layer: nn.Module) -> Tensor:
        return F.pad(x, (2 * layer.dilation[0], 0))

    def forward(self, x: Tensor) -> Tensor:
        h = x.transpose(1, 2)
        for layer in self.layers:
            h = F.elu(layer(self.padded(h, layer)))
        return self.last(h).transpose(1, 2)


def mean_square(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).pow(2).mean()


def tides_quality(net: nn.Module) -> float:
    """Four values ahead, each made from those before."""
    x, _ = tides_data(100, 28)
    made = x[:, :20]
    for _ in range(3):
        made = torch.cat([made, net(made)[:, -1:]], 1)
    return (made[:, 20:23] - x[:, 20:23]).square().mean().item()


@HALF.net("cnn")
def sways() -> Training:
    """The next value of a wave, at each place."""
    return Training(Causal(), partial(ADAM, lr=0.01), lambda _: tides_data(24), mean_square, tides_quality, steps=250)


# ---- recurrence by hand ----------------------------------------------------------------------------


class Swell(nn.Module):
    """A recurrent net of linear layers."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.width = width
        self.inward, self.onward, self.outward = nn.Linear(1, width), nn.Linear(width, width), nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        h, out = torch.zeros(len(x), self.width), []
        for step in range(x.shape[1]):
            h = torch.tanh(self.inward(x[:, step]) + self.onward(h))
            out.append(self.outward(h))
        return torch.stack(out, 1)


@HALF.net("recurrent")
def swell() -> Training:
    """The next value of a wave, by a recurrence of linear layers."""
    return Training(Swell(), partial(ADAM, lr=0.01), lambda _: tides_data(32, 16), mean_square, tides_quality, steps=250)


def latch_data(count: int, length: int = 9) -> tuple[Tensor, Tensor]:
    """Tokens; one of them, after the marker 6, is asked for."""
    tokens = torch.randint(6, (count, length))
    place = torch.randint(length - 2, (count,))
    rows = torch.arange(count)
    tokens[rows, place] = 6
    return tokens, tokens[rows, place + 1]


class Latch(nn.Module):
    """An LSTM cell, called token by token."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.tokens, self.cell, self.head = nn.Embedding(7, 12), nn.LSTMCell(12, width), nn.Linear(width, 6)
        self.width = width

    def start(self, count: int) -> tuple[Tensor, Tensor]:
        return torch.zeros(count, self.width), torch.zeros(count, self.width)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        h, c = self.start(len(x))
        for token in self.tokens(x).unbind(1):
            h, c = self.cell(token, (h, c))
        return {"logits": self.head(h), "state": h}


@HALF.net("recurrent")
def latch() -> Training:
    """Which token came after the marker?"""

    def quality(net: nn.Module) -> float:
        x, label = latch_data(300)
        return (net(x)["logits"].argmax(1) != label).float().mean().item()

    def criterion(output: dict[str, Tensor], label: Tensor) -> Tensor:
        return F.cross_entropy(output["logits"], label) + 1e-4 * output["state"].square().mean()

    return Training(Latch(), partial(ADAM, lr=0.02), lambda _: latch_data(64), criterion, quality, steps=350)


def courier_data(count: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Source and what the decoder gets; the target is the source turned around, each token one more. 6 begins."""
    source = torch.randint(6, (count, 4))
    target = (source.flip(1) + 1) % 6
    return (source, torch.cat([torch.full((count, 1), 6), target[:, :-1]], 1)), target


class Courier(nn.Module):
    """An encoder and a decoder, which is told the target up to the step before."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.tokens = nn.Embedding(7, 16)
        self.encoder, self.decoder = nn.GRU(16, width, batch_first=True), nn.GRUCell(16, width)
        self.head = nn.Linear(width, 6)

    def encoded(self, source: Tensor) -> Tensor:
        return self.encoder(self.tokens(source))[1][0]

    def forward(self, source: Tensor, given: Tensor) -> Tensor:
        state, out = self.encoded(source), []
        for token in self.tokens(given).unbind(1):
            state = self.decoder(token, state)
            out.append(self.head(state))
        return torch.stack(out, 1)


@HALF.net("recurrent")
def courier() -> Training:
    """Translation with teacher forcing."""

    def quality(net: nn.Module) -> float:
        (source, _), target = courier_data(200)
        given = torch.full((200, 1), 6)
        for _ in range(4):
            given = torch.cat([given, net(source, given)[:, -1:].argmax(2)], 1)
        return (given[:, 1:] != target).float().mean().item()

    return Training(Courier(), partial(ADAM, lr=0.01), lambda _: courier_data(64), gathered, quality, steps=400)


# ---- attention by hand -----------------------------------------------------------------------------


class Attention(nn.Module):
    """Several heads, by hand."""

    def __init__(self, width: int, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def split(self, x: Tensor) -> Tensor:
        return x.view(len(x), x.shape[1], self.heads, -1).transpose(1, 2)

    def weights(self, scores: Tensor, hidden: Tensor | None) -> Tensor:
        """What each place takes of each other; `hidden` is true where it must take nothing."""
        return (scores if hidden is None else scores.masked_fill(hidden, -1e9)).softmax(-1)

    def scores(self, x: Tensor) -> Tensor:
        query, key = self.split(self.query(x)), self.split(self.key(x))
        return query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])

    def merged(self, heads: Tensor) -> Tensor:
        return heads.transpose(1, 2).flatten(2)

    def forward(self, x: Tensor, hidden: Tensor | None = None) -> Tensor:
        return self.out(self.merged(self.weights(self.scores(x), hidden) @ self.split(self.value(x))))


class Block(nn.Module):
    """Attention, and a small net."""

    def __init__(self, width: int, attention: nn.Module | None = None) -> None:
        super().__init__()
        self.attention = attention or Attention(width)
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.net = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor, hidden: Tensor | None = None) -> Tensor:
        x = x + self.attention(self.before(x), hidden)
        return x + self.net(self.after(x))


class Flip(nn.Module):
    """Says something of each place."""

    def __init__(self, width: int = 32, attention: nn.Module | None = None) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(8, width), nn.Parameter(0.3 * torch.randn(8, width))
        self.blocks = nn.ModuleList([Block(width, attention)])
        self.head = nn.Linear(width, 8)

    def placed(self, x: Tensor) -> Tensor:
        return self.tokens(x) + self.places[: x.shape[1]]

    def forward(self, x: Tensor) -> Tensor:
        h = self.placed(x)
        for block in self.blocks:
            h = block(h)
        return self.head(h)


def flip_data(count: int) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(8, (count, 8))
    return tokens, tokens.flip(1)


@HALF.net("transformer")
def flip() -> Training:
    """Turn a sequence around: something is said of each place."""

    def quality(net: nn.Module) -> float:
        x, label = flip_data(100)
        return (net(x).argmax(2) != label).float().mean().item()

    def criterion(output: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(output.flatten(0, 1), label.flatten())

    return Training(Flip(), partial(ADAM, lr=0.005), lambda _: flip_data(32), criterion, quality, steps=250)


def echoes_data(count: int, length: int = 13) -> Tensor:
    return torch.randint(8, (count, 4)).repeat(1, length // 4 + 1)[:, :length]


class Echo(nn.Module):
    """A language model with PyTorch's own attention; it knows its loss."""

    def __init__(self, width: int = 32, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.tokens, self.places = nn.Embedding(8, width), nn.Embedding(16, width)
        self.norm, self.mixed, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.net = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, width))
        self.head = nn.Linear(width, 8)

    def attended(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, is_causal=True)

    def forward(self, x: Tensor) -> Tensor:
        count, length = x.shape
        h = self.tokens(x) + self.places.weight[:length]
        parts = self.mixed(self.norm(h)).view(count, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        h = h + self.out(self.attended(*parts).transpose(1, 2).reshape(count, length, -1))
        return self.head(h + self.net(h))

    def loss(self, tokens: Tensor) -> Tensor:
        return gathered(self(tokens[:, :-1]), tokens[:, 1:])


def echoes_step(training: Training, number: int) -> None:
    """The model knows its loss."""
    tokens, _ = training.batch(number)
    training.optimizer.zero_grad(set_to_none=True)
    training.model.loss(tokens).backward()
    training.optimizer.step()


@HALF.net("transformer")
def echoes() -> Training:
    """A language model of sequences that repeat after four tokens."""

    def batch(_: int) -> Batch:
        tokens = echoes_data(32)
        return tokens, tokens

    def quality(net: nn.Module) -> float:
        tokens = echoes_data(100)
        made = tokens[:, :4]
        for _ in range(4):
            made = torch.cat([made, net(made)[:, -1:].argmax(2)], 1)
        return (made[:, 4:] != tokens[:, 4:8]).float().mean().item()

    def criterion(output: Tensor, tokens: Tensor) -> Tensor:
        return gathered(output[:, :-1], tokens[:, 1:])

    return Training(Echo(), partial(ADAMW, lr=0.005), batch, criterion, quality, steps=250, step=echoes_step)


SAYINGS_VALUES = torch.tensor([0.0, 2, 2, 1, 1, -1, -1, -2, -2, 0, 0])


class Sayings(nn.Module):
    """Attention by hand over padded sequences, and their mean."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.tokens = nn.Embedding(11, width, padding_idx=0)
        self.block = Block(width)
        self.head = nn.Linear(width, 3)

    def hidden(self, x: Tensor) -> Tensor:
        return (x == 0)[:, None, None, :]

    def pooled(self, h: Tensor, x: Tensor) -> Tensor:
        kept = (x != 0).float().unsqueeze(2)
        return (h * kept).sum(1) / kept.sum(1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.pooled(self.block(self.tokens(x), self.hidden(x)), x))


def sayings_words(count: int) -> tuple[list[Tensor], Tensor]:
    said = [torch.randint(1, 11, (int(length),)) for length in torch.randint(2, 15, (count,))]
    return said, torch.stack([SAYINGS_VALUES[one].sum().sign().long() + 1 for one in said])


def sayings_data(count: int) -> tuple[Tensor, Tensor]:
    said, label = sayings_words(count)
    return nn.utils.rnn.pad_sequence(said, batch_first=True), label


@HALF.net("transformer")
def sayings() -> Training:
    """Is it kind, is it unkind, or neither? Sequences of all lengths."""

    def quality(net: nn.Module) -> float:
        x, label = sayings_data(300)
        return (net(x).argmax(1) != label).float().mean().item()

    said, label = sayings_words(1500)
    pairs = [*zip(said, label, strict=True)]

    def collate(rows: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        return nn.utils.rnn.pad_sequence([one for one, _ in rows], batch_first=True), torch.stack([one for _, one in rows])

    loader = DataLoader(pairs, batch_size=40, shuffle=True, collate_fn=collate)
    return Training(Sayings(), partial(ADAM, lr=0.005), loaded(loader), F.cross_entropy, quality, steps=250)


# ---- generative ------------------------------------------------------------------------------------

LEVELS = 40


def drift_data(count: int) -> Tensor:
    """Points around the four corners of a square, which are near each other."""
    return torch.randint(2, (count, 2)) * 1.3 - 0.65 + 0.75 * torch.randn(count, 2)


def drift_noisy(level: Tensor) -> tuple[Tensor, Tensor]:
    """Points with noise of these levels, and the noise."""
    share = torch.sigmoid(24 * (level.unsqueeze(1) + 0.5) / LEVELS - 12)
    noise = torch.randn(len(level), 2)
    return (1 - share).sqrt() * drift_data(len(level)) + share.sqrt() * noise, noise


class Denoiser(nn.Module):
    """Says what is noise, by the point and the level."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.lift, self.level = nn.Linear(2, width), nn.Linear(8, width)
        self.body = nn.Sequential(nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 2))

    def waves(self, level: Tensor) -> Tensor:
        angle = level.unsqueeze(1).float() / LEVELS * torch.tensor([1.0, 2, 4, 8])
        return torch.cat([angle.sin(), angle.cos()], 1)

    def forward(self, x: Tensor, level: Tensor) -> Tensor:
        return self.body(self.lift(x) + self.level(self.waves(level)))


@HALF.net("generative")
def drift() -> Training:
    """A diffusion model of points: it finds the noise."""

    def batch(_: int) -> Batch:
        level = torch.randint(LEVELS, (128,))
        noisy, noise = drift_noisy(level)
        return (noisy, level), noise

    def quality(net: nn.Module) -> float:
        level = torch.arange(LEVELS).repeat(25)
        noisy, noise = drift_noisy(level)
        return (net(noisy, level) - noise).square().mean().item()

    return Training(Denoiser(), partial(ADAM, lr=0.005), batch, mean_square, quality, steps=300)


class Forge(nn.Module):
    """Makes points, and a critic judges them."""

    def __init__(self) -> None:
        super().__init__()
        self.maker = nn.Sequential(nn.Linear(3, 24), nn.ReLU(), nn.Linear(24, 2))
        self.critic = nn.Sequential(nn.Linear(2, 24), nn.LeakyReLU(0.2), nn.Linear(24, 24), nn.LeakyReLU(0.2), nn.Linear(24, 1))

    def forward(self, like: Tensor) -> Tensor:
        return self.maker(torch.randn(len(like), 3))


def forge_data(count: int) -> Tensor:
    return torch.tensor([2.0, -1.0]) + torch.randn(count, 2) * torch.tensor([0.6, 0.3])


def forge_quality(net: nn.Module) -> float:
    """The distance between what is made and what is real, over their samples."""
    made, real = net(torch.empty(400, 2)), forge_data(400)
    return (2 * torch.cdist(made, real).mean() - torch.cdist(made, made).mean() - torch.cdist(real, real).mean()).item()


def forge_step(training: Training, number: int) -> None:
    """The hinge loss of both."""
    real, _ = training.batch(number)
    net, (critics,) = training.model, training.others
    made = net(real)
    critics.zero_grad()
    (F.relu(1 - net.critic(real)).mean() + F.relu(1 + net.critic(made.detach())).mean()).backward()
    critics.step()
    training.optimizer.zero_grad()
    (-net.critic(made).mean()).backward()
    training.optimizer.step()


@HALF.net("generative")
def forge() -> Training:
    """A GAN with a hinge loss, of points."""

    def batch(_: int) -> Batch:
        real = forge_data(64)
        return real, real

    net = Forge()
    optimize = partial(ADAM, lr=0.004, betas=(0.5, 0.99))
    training = Training(net, lambda _: optimize(net.maker.parameters()), batch, F.mse_loss, forge_quality, steps=400, step=forge_step)
    training.others = (optimize(net.critic.parameters()),)
    return training


def specks_data(count: int) -> Tensor:
    """Images of one round speck."""
    place, grid = torch.rand(count, 2) * 1.4 - 0.7, torch.linspace(-1, 1, 12)
    return torch.exp(-((grid[None, :, None] - place[:, :1, None]) ** 2 + (grid[None, None] - place[:, 1:, None]) ** 2) / 0.08).unsqueeze(1)


class Specks(nn.Module):
    """A variational autoencoder of images, which knows its loss."""

    def __init__(self, latent: int = 4) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 12, 3, 2, 1), nn.SiLU(), nn.Flatten(), nn.Linear(12 * 36, 64), nn.SiLU())
        self.mean, self.spread = nn.Linear(64, latent), nn.Linear(64, latent)
        self.up = nn.Sequential(nn.Linear(latent, 64), nn.SiLU(), nn.Linear(64, 144), nn.Unflatten(1, (1, 12, 12)))

    def drawn(self, mean: Tensor, spread: Tensor) -> Tensor:
        return mean + torch.randn_like(mean) * (0.5 * spread).exp() if self.training else mean

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = self.down(x)
        mean, spread = self.mean(h), self.spread(h)
        return self.up(self.drawn(mean, spread)), mean, spread


def divergence(mean: Tensor, spread: Tensor) -> Tensor:
    """For each sample, from the standard normal distribution."""
    return 0.5 * (mean.square() + spread.exp() - 1 - spread).sum(1)


def specks_loss(output: tuple[Tensor, Tensor, Tensor], x: Tensor, weight: float = 1.0) -> Tensor:
    logits, mean, spread = output
    missed = F.binary_cross_entropy_with_logits(logits, x, reduction="none").flatten(1).sum(1)
    return (missed + weight * divergence(mean, spread)).mean()


@HALF.net("generative")
def specks() -> Training:
    """A variational autoencoder of images."""

    def batch(_: int) -> Batch:
        x = specks_data(48)
        return x, x

    def quality(net: nn.Module) -> float:
        x = specks_data(200)
        return (net(x)[0].sigmoid() - x).square().mean().item()

    return Training(Specks(), partial(ADAM, lr=0.005), batch, specks_loss, quality, steps=300)


# ---- embeddings ------------------------------------------------------------------------------------


def kinship_data(count: int) -> Tensor:
    """Two views of each thing, the second ones behind the first ones."""
    turned = torch.linalg.qr(fixed_numbers(12, 12))[0]
    shared = torch.randn(count, 4).repeat(2, 1)
    return torch.cat([shared, 1.2 * torch.randn(2 * count, 8)], 1) @ turned


def nt_xent(ends: Tensor, _: Tensor, temperature: float = 0.2) -> Tensor:
    """The loss of SimCLR: each of 2 N views has one partner among 2 N - 1 others."""
    count = len(ends)
    alike = ends @ ends.T / temperature
    alike = alike.masked_fill(torch.eye(count, dtype=torch.bool), float("-inf"))
    return F.cross_entropy(alike, torch.arange(count).roll(count // 2))


class Unit(nn.Module):
    """Embeddings of length one."""

    def __init__(self, inputs: int = 12, outputs: int = 8) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(inputs, 48), nn.ReLU(), nn.Linear(48, outputs))

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(self.encoder(x), dim=-1)


def kinship_quality(net: nn.Module) -> float:
    first, second = net(kinship_data(48)).chunk(2)
    return ((first @ second.T).argmax(1) != torch.arange(48)).float().mean().item()


@HALF.net("embedding")
def kinship() -> Training:
    """SimCLR: find the other view of the same thing."""

    def batch(_: int) -> Batch:
        views = kinship_data(48)
        return views, torch.arange(96).roll(48)

    return Training(Unit(), partial(ADAM, lr=0.005), batch, nt_xent, kinship_quality, steps=250)


def covers_data(count: int) -> tuple[Tensor, Tensor]:
    """Images of a bright or dark pixel, and three tokens that say where it is, and which it is; no two alike."""
    number = torch.randperm(72)[:count]
    row, column, dark = number // 12, number // 2 % 6, number % 2
    images = 0.1 * torch.randn(count, 6, 6)
    images[torch.arange(count), row, column] += 2 - 4 * dark
    return images.unsqueeze(1), torch.stack([row, column + 6, dark + 12], 1)


class Covers(nn.Module):
    """Two towers, as in CLIP."""

    def __init__(self) -> None:
        super().__init__()
        self.towers = nn.ModuleDict(
            {
                "image": nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(12 * 36, 16)),
                "text": nn.Sequential(nn.Embedding(14, 16), nn.Flatten(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 16)),
            }
        )
        self.scale = nn.Parameter(torch.tensor(math.log(1 / 0.1)))

    def forward(self, image: Tensor, text: Tensor) -> Tensor:
        left, right = (F.normalize(self.towers[name](x), dim=1) for name, x in (("image", image), ("text", text)))
        return self.scale.exp() * left @ right.T


def both_ways(alike: Tensor, target: Tensor) -> Tensor:
    return (F.cross_entropy(alike, target) + F.cross_entropy(alike.T, target)) / 2


@HALF.net("embedding")
def covers() -> Training:
    """CLIP: which words belong to which image?"""

    def batch(_: int) -> Batch:
        return covers_data(36), torch.arange(36)

    def quality(net: nn.Module) -> float:
        return (net(*covers_data(72)).argmax(1) != torch.arange(72)).float().mean().item()

    return Training(Covers(), partial(ADAMW, lr=0.005), batch, both_ways, quality, steps=250)


class Shelf(nn.Module):
    """How a reader likes a book."""

    def __init__(self, readers: int = 12, books: int = 30, width: int = 6) -> None:
        super().__init__()
        self.readers, self.books = nn.Embedding(readers, width), nn.Embedding(books, width)
        for table in (self.readers, self.books):
            nn.init.normal_(table.weight, std=0.2)

    def liked(self, reader: Tensor, book: Tensor) -> Tensor:
        return torch.einsum("nw,nw->n", self.readers(reader), self.books(book))

    def forward(self, reader: Tensor, better: Tensor, worse: Tensor) -> tuple[Tensor, Tensor]:
        return self.liked(reader, better), self.liked(reader, worse)


def ranked(output: tuple[Tensor, Tensor], _: Tensor) -> Tensor:
    """BPR: what is liked better stands first."""
    return -F.logsigmoid(output[0] - output[1]).mean()


SHELF_TASTE = fixed_numbers(12, 3) @ fixed_numbers(30, 3, seed=9).T


def shelf_pairs(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Readers, what they like better, and what they like less."""
    reader, one, other = torch.randint(12, (count,)), torch.randint(30, (count,)), torch.randint(29, (count,))
    other = (one + 1 + other) % 30
    first = SHELF_TASTE[reader, one] > SHELF_TASTE[reader, other]
    return reader, torch.where(first, one, other), torch.where(first, other, one)


@HALF.net("embedding")
def shelf() -> Training:
    """Which of two books does a reader like better?"""

    def batch(_: int) -> Batch:
        return shelf_pairs(128), torch.ones(128)

    def quality(net: nn.Module) -> float:
        better, worse = net(*shelf_pairs(2000))
        return (better <= worse).float().mean().item()

    return Training(Shelf(), partial(torch.optim.Adagrad, lr=0.2), batch, ranked, quality, steps=250)


PEDIGREE = 1.5 * fixed_numbers(8, 12)


def pedigree_data(kind: Tensor) -> Tensor:
    """A sample of each kind; the first four numbers tell it, and the others disturb."""
    return torch.cat([PEDIGREE[kind, :4] + 0.4 * torch.randn(len(kind), 4), 3 * torch.randn(len(kind), 8)], 1)


def triplet(output: tuple[Tensor, Tensor, Tensor], _: Tensor, margin: float = 0.5) -> Tensor:
    anchor, same, other = output
    near, far = (anchor - same).square().sum(1), (anchor - other).square().sum(1)
    return F.relu(near - far + margin).mean()


class Triplets(Unit):
    """Embeds an anchor, one of its kind, and one of another."""

    def forward(self, *three: Tensor) -> tuple[Tensor, ...]:
        return tuple(super(Triplets, self).forward(one) for one in three)


@HALF.net("embedding")
def pedigree() -> Training:
    """Metric learning: those of a kind stand together."""

    def batch(_: int) -> Batch:
        kind = torch.randint(8, (64,))
        other = (kind + torch.randint(1, 8, (64,))) % 8
        return (pedigree_data(kind), pedigree_data(kind), pedigree_data(other)), torch.ones(64)

    def quality(net: nn.Module) -> float:
        kind = torch.arange(8).repeat(40)
        (ends,) = net(pedigree_data(kind))
        centres = torch.stack([ends[kind == one].mean(0) for one in range(8)])
        return (torch.cdist(ends, centres).argmin(1) != kind).float().mean().item()

    return Training(Triplets(), partial(ADAM, lr=0.005), batch, triplet, quality, steps=250)


class Bagged(nn.Module):
    """The sum of what words say."""

    def __init__(self, padding_idx: int | None = None) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(15, 6, mode="sum", padding_idx=padding_idx)
        self.says = nn.Linear(6, 1, bias=False)

    def forward(self, words: Tensor, starts: Tensor) -> Tensor:
        return self.says(self.words(words, starts))


def bagged_data(count: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Bags of words one behind the other, and where each begins; word 0 is the one that is said most."""
    lengths = torch.randint(2, 7, (count,))
    words = torch.where(torch.rand(int(lengths.sum())) < 0.3, 0, torch.randint(15, (int(lengths.sum()),)))
    worth = fixed_numbers(15)
    worth[0] = 1.5
    total = torch.stack([worth[part].sum() for part in words.split(lengths.tolist())])
    return (words, lengths.cumsum(0) - lengths), total.unsqueeze(1)


@HALF.net("embedding")
def bagged() -> Training:
    """A number for a bag of words."""

    def quality(net: nn.Module) -> float:
        inputs, y = bagged_data(300)
        return F.mse_loss(net(*inputs), y).item()

    return Training(Bagged(), partial(ADAM, lr=0.02), lambda _: bagged_data(64), F.mse_loss, quality, steps=250)
