"""More nets that learn: losses by hand, loops by hand, and models as people write them."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from bench.sick.training import Batch, Training
from bench.sick.working.half import HALF
from bench.sick.working.nets import drawn, errors

# ---- attention by hand -----------------------------------------------------------------------------


class Attention(nn.Module):
    """Several heads, by view and transpose."""

    def __init__(self, width: int, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def split(self, x: Tensor) -> Tensor:
        count, length, width = x.shape
        return x.view(count, length, self.heads, width // self.heads).transpose(1, 2)

    def weights(self, asked: Tensor, memory: Tensor) -> Tensor:
        q, k = self.split(self.query(asked)), self.split(self.key(memory))
        return (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(-1)

    def forward(self, asked: Tensor, memory: Tensor) -> Tensor:
        mixed = self.weights(asked, memory) @ self.split(self.value(memory))
        return self.out(mixed.transpose(1, 2).flatten(2))


class Lookup(nn.Module):
    """Finds the value of a key in a list of pairs."""

    def __init__(self, width: int = 32, attention: nn.Module | None = None) -> None:
        super().__init__()
        self.keys, self.values = nn.Embedding(8, width), nn.Embedding(6, width)
        self.attention = attention or Attention(width)
        self.norm = nn.LayerNorm(width)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.head = nn.Linear(width, 6)

    def forward(self, keys: Tensor, values: Tensor, asked: Tensor) -> Tensor:
        memory = self.keys(keys) + self.values(values)
        h = self.attention(self.keys(asked).unsqueeze(1), memory).squeeze(1)
        return self.head(h + self.feed(self.norm(h)))


def lookup_data(count: int) -> Batch:
    keys = torch.rand(count, 8).argsort(1)[:, :5]
    values = torch.randint(6, (count, 5))
    place = torch.randint(5, (count, 1))
    return (keys, values, keys.gather(1, place).squeeze(1)), values.gather(1, place).squeeze(1)


def negative_likelihood(output: Tensor, label: Tensor) -> Tensor:
    return -output.log_softmax(1).gather(1, label.unsqueeze(1)).mean()


@HALF.net("transformer")
def lookup() -> Training:
    """What value has the key? Attention from one query to five pairs."""

    def quality(net: nn.Module) -> float:
        inputs, label = lookup_data(400)
        return errors(net(*inputs), label)

    return Training(Lookup(), partial(torch.optim.Adam, lr=0.005), lambda _: lookup_data(64), negative_likelihood, quality, steps=250)


# ---- a language model by scaled_dot_product_attention ----------------------------------------------


class Block(nn.Module):
    """Norm, attention, norm, two layers; each added to what came in."""

    def __init__(self, width: int = 32, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.three = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def attend(self, x: Tensor) -> Tensor:
        q, k, v = (one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in self.three(x).chunk(3, -1))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.before(x))
        return x + self.feed(self.between(x))


class Speaker(nn.Module):
    """A language model that returns its logits in a dict."""

    def __init__(self, blocks: int = 2, width: int = 32) -> None:
        super().__init__()
        self.tokens = nn.Embedding(9, width)
        self.places = nn.Parameter(0.1 * torch.randn(11, width))
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 9)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        h = self.tokens(x) + self.places[: x.shape[1]]
        for block in self.blocks:
            h = block(h)
        return {"logits": self.head(self.norm(h))}


def chorus_data(count: int) -> Batch:
    """Three tokens, again and again."""
    line = torch.randint(9, (count, 3)).repeat(1, 4)
    return line[:, :-1], line[:, 1:]


def chorus_loss(output: dict[str, Tensor], target: Tensor) -> Tensor:
    return F.cross_entropy(output["logits"][:, 2:].flatten(0, 1), target[:, 2:].flatten())


@HALF.net("transformer")
def chorus() -> Training:
    """A language model of lines that repeat themselves."""

    def quality(net: nn.Module) -> float:
        x, _ = chorus_data(100)
        made = x[:, :3]
        for _ in range(6):
            made = torch.cat([made, net(made)["logits"][:, -1:].argmax(-1)], 1)
        return (made[:, 3:] != x[:, 3:9]).float().mean().item()

    optimize = partial(torch.optim.AdamW, lr=0.004, weight_decay=0.01)
    return Training(Speaker(), optimize, lambda _: chorus_data(48), chorus_loss, quality, steps=200)


# ---- recurrent nets by hand ------------------------------------------------------------------------


class Holder(nn.Module):
    """A GRUCell in a loop; an output at each step."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.cell = nn.GRUCell(2, width)
        self.head = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(len(x), self.cell.hidden_size)
        out = []
        for now in x.unbind(1):
            h = self.cell(now, h)
            out.append(self.head(h))
        return torch.stack(out, 1).squeeze(2)


def held_data(count: int, length: int = 10) -> Batch:
    value, flag = torch.randn(count, length), torch.rand(count, length) < 0.25
    flag[:, 0] = True
    last = torch.where(flag, torch.arange(length), 0).cummax(1).values
    return torch.stack([value, flag.float()], 2), value.gather(1, last)


def squares_per_sample(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).pow(2).sum() / target.numel()


@HALF.net("recurrent")
def held() -> Training:
    """Sample and hold: the value at the last flag, at each step."""

    def quality(net: nn.Module) -> float:
        x, y = held_data(300)
        return F.mse_loss(net(x), y).item()

    optimize = partial(torch.optim.RMSprop, lr=0.005)
    return Training(Holder(), optimize, lambda _: held_data(64), squares_per_sample, quality, steps=350)


class Elman(nn.Module):
    """A recurrent net of two linear layers."""

    def __init__(self, width: int = 24, squash: Callable[[Tensor], Tensor] = torch.tanh) -> None:
        super().__init__()
        self.squash = squash
        self.from_input, self.from_state = nn.Linear(2, width), nn.Linear(width, width)
        self.head = nn.Linear(width, 3)
        nn.init.orthogonal_(self.from_state.weight)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(len(x), self.from_state.in_features)
        for now in x.unbind(1):
            h = self.squash(self.from_input(now) + self.from_state(h))
        return self.head(h)


def opening_data(count: int, length: int = 12) -> Batch:
    label = torch.randint(3, (count,))
    x = 0.3 * torch.randn(count, length, 2)
    x[:, 0] += torch.stack([torch.cos(label * 2.0944), torch.sin(label * 2.0944)], 1)
    return x, label


@HALF.net("recurrent")
def opening() -> Training:
    """In which of three directions did it begin? Noise follows."""

    def quality(net: nn.Module) -> float:
        x, label = opening_data(400)
        return errors(net(x), label)

    return Training(Elman(), partial(torch.optim.Adam, lr=0.005), lambda _: opening_data(64), F.cross_entropy, quality, steps=250)


class Translator(nn.Module):
    """An encoder, and a decoder that is told the right token before."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(6, 16), nn.Embedding(7, 16)
        self.encoder = nn.GRU(16, width, batch_first=True)
        self.decoder = nn.LSTMCell(16, width)
        self.head = nn.Linear(width, 6)

    def encode(self, source: Tensor) -> Tensor:
        return self.encoder(self.source(source))[1][0]

    def forward(self, source: Tensor, before: Tensor) -> Tensor:
        h = self.encode(source)
        c = torch.zeros_like(h)
        out = []
        for token in self.target(before).unbind(1):
            h, c = self.decoder(token, (h, c))
            out.append(self.head(h))
        return torch.stack(out, 1)


def backwards_data(count: int) -> Batch:
    source = torch.randint(6, (count, 4))
    target = source.flip(1)
    return (source, torch.cat([torch.full((count, 1), 6), target[:, :-1]], 1)), target


def flat_cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output.reshape(-1, output.shape[-1]), target.reshape(-1))


@HALF.net("recurrent")
def backwards() -> Training:
    """Say four tokens in reverse."""

    def quality(net: nn.Module) -> float:
        (source, before), target = backwards_data(200)
        made = before[:, :1]
        for _ in range(4):
            made = torch.cat([made, net(source, made)[:, -1:].argmax(-1)], 1)
        return (made[:, 1:] != target).float().mean().item()

    return Training(Translator(), partial(torch.optim.NAdam, lr=0.01), lambda _: backwards_data(64), flat_cross_entropy, quality, steps=250)


# ---- convolution nets ------------------------------------------------------------------------------


class Mapper(nn.Module):
    """A small U-net with GroupNorm."""

    def __init__(self, width: int = 12, groups: int = 3) -> None:
        super().__init__()
        self.first = self.stage(1, width, groups)
        self.second = self.stage(width, 2 * width, groups)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.last = self.stage(2 * width, width, groups)
        self.head = nn.Conv2d(width, 3, 1)

    @staticmethod
    def stage(inputs: int, outputs: int, groups: int) -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(groups, outputs), nn.SiLU())

    def forward(self, x: Tensor) -> Tensor:
        fine = self.first(x)
        coarse = self.second(F.max_pool2d(fine, 2))
        return self.head(self.last(torch.cat([fine, self.up(coarse)], 1)))


def fields_data(count: int, size: int = 12) -> Batch:
    """Wide and tall rectangles in noise; of each pixel, what it belongs to."""
    label = torch.randint(1, 3, (count, 1, 1))
    top, left = torch.randint(0, 7, (2, count, 1, 1))
    row, column = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    height, width = torch.where(label == 1, 2, 6), torch.where(label == 1, 6, 2)
    inside = (row >= top) & (row < top + height) & (column >= left) & (column < left + width)
    return (inside.float() + 0.3 * torch.randn(count, size, size)).unsqueeze(1), torch.where(inside, label, 0)


def overlap_missed(output: Tensor, target: Tensor) -> float:
    """One less the mean overlap of the two kinds."""
    said = output.argmax(1)
    kinds = [((said == kind) & (target == kind)).sum() / ((said == kind) | (target == kind)).sum().clamp(min=1) for kind in (1, 2)]
    return 1 - sum(kinds).item() / 2


@HALF.net("cnn")
def fields() -> Training:
    """Wide or tall? A class of each pixel."""

    def quality(net: nn.Module) -> float:
        x, label = fields_data(200)
        return overlap_missed(net(x), label)

    return Training(Mapper(), partial(torch.optim.NAdam, lr=0.01), lambda _: fields_data(24), negative_likelihood, quality, steps=150)


def tones_model(width: int = 16, norm: Callable[[int], nn.Module] = nn.BatchNorm1d, last: nn.Module | None = None) -> nn.Sequential:
    return nn.Sequential(
        norm(1),
        nn.Conv1d(1, width, 7, padding=3),
        norm(width),
        nn.ReLU(),
        nn.Conv1d(width, width, 5, padding=2, stride=2),
        norm(width),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        last or nn.Linear(width, 4),
    )


def tones_data(count: int, length: int = 32) -> Batch:
    """Counts of a sensor, around five hundred."""
    there = (torch.rand(count, 4) < 0.5).float()
    time = torch.arange(length) / length * 6.2832
    waves = torch.sin(time * torch.tensor([1.0, 3.0, 6.0, 11.0]).view(1, 4, 1) + 6.2832 * torch.rand(count, 4, 1))
    signal = (there.unsqueeze(2) * waves).sum(1, keepdim=True) + 0.2 * torch.randn(count, 1, length)
    return 500 + 80 * signal, there


def several_labels(output: Tensor, target: Tensor) -> Tensor:
    return -(target * F.logsigmoid(output) + (1 - target) * F.logsigmoid(-output)).mean()


@HALF.net("cnn")
def tones() -> Training:
    """Which of four tones are in a signal? Several labels."""

    def quality(net: nn.Module) -> float:
        x, there = tones_data(400)
        return ((net(x) > 0).float() != there).float().mean().item()

    optimize = partial(torch.optim.AdamW, lr=0.01, weight_decay=0.001)
    return Training(tones_model(), optimize, drawn(32, *tones_data(3000)), several_labels, quality, steps=200)


class Residual(nn.Module):
    """Two convolutions, added to what came in."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm_one, self.norm_two = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.norm_one(self.one(x)))
        return F.relu(x + self.norm_two(self.two(h)))


class Looker(nn.Module):
    """A residual net with two heads: what is it, and how bright?"""

    def __init__(self, width: int = 8, heads: nn.ModuleDict | None = None) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.blocks = nn.Sequential(Residual(width), nn.MaxPool2d(2), Residual(width))
        self.heads = heads or nn.ModuleDict({"kind": nn.Linear(width, 3), "light": nn.Linear(width, 1)})

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        h = self.blocks(self.stem(x)).mean((2, 3))
        return {name: head(h) for name, head in self.heads.items()}


def marks_data(count: int) -> Batch:
    """Crosses, squares and dots of some brightness; the target holds the kind and the brightness."""
    shapes = torch.tensor([[[0, 1, 0], [1, 1, 1], [0, 1, 0]], [[1, 1, 1], [1, 0, 1], [1, 1, 1]], [[0, 0, 0], [0, 1, 0], [0, 0, 0]]])
    kind, light = torch.randint(3, (count,)), 0.5 + torch.rand(count)
    images = 0.1 * torch.randn(count, 1, 10, 10)
    for number, (row, column) in enumerate(torch.randint(0, 8, (count, 2)).tolist()):
        images[number, 0, row : row + 3, column : column + 3] += 2 * light[number] * shapes[kind[number]]
    return images, torch.stack([kind.float(), light], 1)


def marks_loss(output: dict[str, Tensor], target: Tensor) -> Tensor:
    return F.cross_entropy(output["kind"], target[:, 0].long()) + F.mse_loss(output["light"].squeeze(1), target[:, 1])


def loaded(size: int, inputs: Tensor, target: Tensor) -> Callable[[int], Batch]:
    """Batches of a loader, epoch after epoch."""
    loader = DataLoader(TensorDataset(inputs, target), batch_size=size, shuffle=True, drop_last=True)

    def endless() -> Iterator[Any]:
        while True:
            yield from loader

    batches = endless()
    return lambda _: tuple(next(batches))


@HALF.net("cnn")
def marks() -> Training:
    """A mark in an image: its kind and its brightness."""

    def quality(net: nn.Module) -> float:
        x, target = marks_data(300)
        output = net(x)
        return errors(output["kind"], target[:, 0]) + F.l1_loss(output["light"].squeeze(1), target[:, 1]).item()

    optimize = partial(torch.optim.SGD, lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)
    return Training(Looker(), optimize, loaded(32, *marks_data(1200)), marks_loss, quality, steps=160)


# ---- further multi-layer nets ----------------------------------------------------------------------


class Mixing(nn.Module):
    """Mixes the tokens, then the features."""

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.across = nn.Sequential(nn.Linear(tokens, 24), nn.GELU(), nn.Linear(24, tokens))
        self.within = nn.Sequential(nn.Linear(width, 48), nn.GELU(), nn.Linear(48, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.across(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.within(self.norms[1](x))


class Mixer(nn.Module):
    """A mixer of six tokens."""

    def __init__(self, blocks: int = 2, width: int = 24) -> None:
        super().__init__()
        self.embed = nn.Linear(4, width)
        self.blocks = nn.ModuleList(Mixing(6, width) for _ in range(blocks))
        self.head = nn.Linear(6 * width, 6)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        for block in self.blocks:
            h = block(h)
        return self.head(h.flatten(1))


def longest_data(count: int) -> Batch:
    x = torch.randn(count, 6, 4)
    return x, x.norm(dim=2).argmax(1)


@HALF.net("mlp")
def longest() -> Training:
    """Which of six vectors is the longest?"""

    def quality(net: nn.Module) -> float:
        x, label = longest_data(400)
        return errors(net(x), label)

    optimize = partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True)
    return Training(Mixer(), optimize, lambda _: longest_data(64), nn.CrossEntropyLoss(label_smoothing=0.02), quality, steps=220)


class Judge(nn.Module):
    """Scores two things, and says how much better the first is."""

    def __init__(self, width: int = 32, blocks: int = 2) -> None:
        super().__init__()
        self.first = nn.Linear(6, width)
        self.blocks = nn.ModuleList(
            nn.ModuleDict({"norm": nn.LayerNorm(width), "up": nn.Linear(width, 2 * width), "down": nn.Linear(2 * width, width)})
            for _ in range(blocks)
        )
        self.score = nn.Linear(width, 1)

    def scored(self, x: Tensor) -> Tensor:
        h = self.first(x)
        for block in self.blocks:
            h = h + block["down"](F.relu(block["up"](block["norm"](h))))
        return self.score(h).squeeze(1)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return self.scored(left) - self.scored(right)


def preferred_data(count: int) -> Batch:
    left, right = torch.randn(2, count, 6)

    def worth(x: Tensor) -> Tensor:
        return x[:, 0] * x[:, 1] + x[:, 2].abs() * 2 - x[:, 3].square()

    return (left, right), torch.where(worth(left) > worth(right), 1.0, -1.0)


def pair_loss(output: Tensor, target: Tensor) -> Tensor:
    return F.softplus(-target * output).mean()


@HALF.net("mlp")
def preferred() -> Training:
    """Which of two is better? Learned of pairs."""

    def quality(net: nn.Module) -> float:
        inputs, target = preferred_data(500)
        return (net(*inputs).sign() != target).float().mean().item()

    return Training(Judge(), partial(torch.optim.Adagrad, lr=0.05), lambda _: preferred_data(64), pair_loss, quality, steps=300)


class Grades(nn.Module):
    """One score, and four thresholds that it may pass."""

    def __init__(self, thresholds: bool = True, squash: Callable[[], nn.Module] = nn.ReLU) -> None:
        super().__init__()
        self.score = nn.Sequential(nn.Linear(5, 32), squash(), nn.Linear(32, 32), squash(), nn.Linear(32, 1, bias=False))
        self.thresholds = nn.Parameter(torch.zeros(4)) if thresholds else None

    def forward(self, x: Tensor) -> Tensor:
        score = self.score(x).expand(len(x), 4)
        return score if self.thresholds is None else score - self.thresholds


def grades_data(count: int) -> Batch:
    x = torch.randn(count, 5)
    worth = x[:, :1].abs() + x[:, 1:2] * x[:, 2:3] + 0.5 * x[:, 3:4]
    return x, (worth > torch.tensor([-0.5, 0.4, 1.2, 2.0])).float()


@HALF.net("mlp")
def grades() -> Training:
    """Five grades in order: how many thresholds are passed?"""

    def quality(net: nn.Module) -> float:
        x, passed = grades_data(500)
        return ((net(x) > 0).sum(1) - passed.sum(1)).abs().mean().item()

    optimize = partial(torch.optim.Adadelta, lr=1.0)
    return Training(Grades(), optimize, drawn(64, *grades_data(4000)), F.binary_cross_entropy_with_logits, quality, steps=300)


class Swing(nn.Module):
    """The motion of a pendulum, and how far it is from the law."""

    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(1, 24, bias=bias), nn.Tanh(), nn.Linear(24, 24, bias=bias), nn.Tanh(), nn.Linear(24, 1, bias=bias)
        )

    def forward(self, time: Tensor) -> Tensor:
        return self.body(time)

    def loss(self, time: Tensor) -> Tensor:
        time = time.requires_grad_()
        place = self(time)
        (speed,) = torch.autograd.grad(place.sum(), time, create_graph=True)
        (force,) = torch.autograd.grad(speed.sum(), time, create_graph=True)
        zero = torch.zeros(1, 1, requires_grad=True)
        start = self(zero)
        (first,) = torch.autograd.grad(start.sum(), zero, create_graph=True)
        return (force + place).square().mean() + 3 * (start - 1).square().mean() + 3 * first.square().mean()


def by_its_own_loss(training: Training, number: int) -> None:
    """A step by the loss that the model brings along."""
    time, _ = training.batch(number)
    training.optimizer.zero_grad()
    training.model.loss(time).backward()
    training.optimizer.step()


@HALF.net("mlp")
def swing() -> Training:
    """A pendulum, by its differential equation alone."""

    def batch(_: int) -> Batch:
        return 3 * torch.rand(48, 1), torch.zeros(48, 1)

    def quality(net: nn.Module) -> float:
        time = torch.linspace(0, 3, 100).unsqueeze(1)
        return F.mse_loss(net(time), torch.cos(time)).item()

    return Training(Swing(), partial(torch.optim.Adam, lr=0.01), batch, F.mse_loss, quality, steps=350, step=by_its_own_loss)


class Walker(nn.Module):
    """What each of four moves is worth, and an older copy of that."""

    def __init__(self) -> None:
        super().__init__()
        self.online = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 4))
        self.target = copy.deepcopy(self.online).requires_grad_(False)

    def forward(self, place: Tensor) -> Tensor:
        return self.online(F.one_hot(place, 16).float())

    def later(self, place: Tensor) -> Tensor:
        with torch.no_grad():
            return self.target(F.one_hot(place, 16).float()).max(1).values


MOVES = torch.tensor([[-1, 0], [1, 0], [0, -1], [0, 1]])
PATIENCE = 0.8


def moved(place: Tensor, move: Tensor) -> Tensor:
    row, column = (torch.stack([place // 4, place % 4], 1) + MOVES[move]).clamp(0, 3).unbind(1)
    return 4 * row + column


def walk_data(count: int) -> Batch:
    """Where, which move, where then; and the reward for coming to the last corner."""
    place, move = torch.randint(15, (count,)), torch.randint(4, (count,))
    then = moved(place, move)
    return (place, move, then), (then == 15).float()


def true_worth() -> Tensor:
    place, move = torch.arange(15).repeat_interleave(4), torch.arange(4).repeat(15)
    then, worth = moved(place, move), torch.zeros(16, 4)
    for _ in range(60):
        value = worth.max(1).values
        worth[place, move] = torch.where(then == 15, torch.ones(60), PATIENCE * value[then])
    return worth[:15]


def walk_error(net: nn.Module, place: Tensor, move: Tensor, then: Tensor, reward: Tensor) -> Tensor:
    said = net(place).gather(1, move.unsqueeze(1)).squeeze(1)
    return F.smooth_l1_loss(said, reward + PATIENCE * (1 - reward) * net.later(then))


def walk_step(training: Training, number: int) -> None:
    """Learn of moves that were made; now and then the older copy follows."""
    (place, move, then), reward = training.batch(number)
    training.optimizer.zero_grad()
    walk_error(training.model, place, move, then, reward).backward()
    training.optimizer.step()
    if number % 8 == 0:
        training.model.target.load_state_dict(training.model.online.state_dict())


@HALF.net("mlp")
def walk() -> Training:
    """Q-learning in a small maze."""

    def quality(net: nn.Module) -> float:
        return (net(torch.arange(15)) - true_worth()).abs().mean().item()

    net = Walker()
    optimize = partial(torch.optim.Adam, lr=0.005)
    training = Training(net, optimize, lambda _: walk_data(64), F.smooth_l1_loss, quality, steps=300, step=walk_step)
    training.optimizer = optimize(net.online.parameters())
    return training


# ---- embeddings and tables -------------------------------------------------------------------------


class Table(nn.Module):
    """Numbers behind a BatchNorm, and kinds by their embeddings."""

    def __init__(self, width: int = 32, norm: Callable[[int], nn.Module] = nn.BatchNorm1d) -> None:
        super().__init__()
        self.norm = norm(3)
        self.kinds = nn.ModuleDict({"job": nn.Embedding(6, 6), "town": nn.Embedding(9, 6)})
        self.body = nn.Sequential(nn.Linear(15, width), nn.ELU(), nn.Linear(width, width), nn.ELU())
        self.head = nn.Linear(width, 1)

    def features(self, numbers: Tensor, job: Tensor, town: Tensor) -> Tensor:
        return torch.cat([self.norm(numbers), self.kinds["job"](job), self.kinds["town"](town)], 1)

    def forward(self, numbers: Tensor, job: Tensor, town: Tensor) -> Tensor:
        return self.head(self.body(self.features(numbers, job, town))).squeeze(1)


def loans_data(count: int) -> tuple[dict[str, Tensor], Tensor]:
    """Age, income and months; job and town."""
    z, job, town = torch.randn(count, 3), torch.randint(6, (count,)), torch.randint(9, (count,))
    risk = (job.float() - 2.5) / 2 * z[:, 0] + torch.where(town % 2 == 0, 1.0, -1.0) + 0.5 * z[:, 1] * z[:, 2]
    numbers = torch.tensor([45.0, 3000.0, 24.0]) + torch.tensor([12.0, 900.0, 8.0]) * z
    return {"numbers": numbers, "job": job, "town": town}, risk


@HALF.net("embedding")
def loans() -> Training:
    """The risk of a loan: numbers as they stand in the table, and kinds."""

    def quality(net: nn.Module) -> float:
        inputs, risk = loans_data(500)
        return min(2.5, F.mse_loss(net(**inputs), risk).item())

    optimize = partial(torch.optim.AdamW, lr=0.01, weight_decay=0.01)
    return Training(Table(), optimize, lambda _: loans_data(64), F.huber_loss, quality, steps=250)


class Factors(nn.Module):
    """A table with three sides, as a sum of products."""

    def __init__(self, rank: int = 4) -> None:
        super().__init__()
        self.sides = nn.ParameterList([nn.Parameter(0.5 * torch.randn(count, rank)) for count in (12, 10, 8)])

    def forward(self, places: Tensor) -> Tensor:
        one, two, three = (side[place] for side, place in zip(self.sides, places.unbind(1), strict=True))
        return torch.einsum("nr,nr,nr->n", one, two, three)


def mean_of_squares(output: Tensor, target: Tensor) -> Tensor:
    return ((output - target) ** 2).mean()


@HALF.net("embedding")
def triples() -> Training:
    """Who buys what when: a tensor of low rank."""
    truth = torch.einsum("ir,jr,kr->ijk", torch.randn(12, 2), torch.randn(10, 2), torch.randn(8, 2))

    def batch(_: int) -> Batch:
        places = torch.stack([torch.randint(count, (256,)) for count in (12, 10, 8)], 1)
        return places, truth[places[:, 0], places[:, 1], places[:, 2]]

    def quality(net: nn.Module) -> float:
        places = torch.cartesian_prod(torch.arange(12), torch.arange(10), torch.arange(8))
        return F.mse_loss(net(places), truth.flatten()).item()

    return Training(Factors(), partial(torch.optim.SGD, lr=0.5, momentum=0.9), batch, mean_of_squares, quality, steps=300)


# ---- a denoiser ------------------------------------------------------------------------------------


class Denoiser(nn.Module):
    """Says the noise in a point, by its level."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.level = nn.Sequential(nn.Linear(1, 16), nn.SiLU(), nn.Linear(16, 16))
        self.body = nn.Sequential(nn.Linear(18, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 2))

    def forward(self, x: Tensor, level: Tensor) -> Tensor:
        return self.body(torch.cat([x, self.level(level)], 1))


def hoop_data(count: int) -> Tensor:
    angle = 6.2832 * torch.rand(count, 1)
    return torch.cat([torch.cos(angle), torch.sin(angle)], 1)


def kept_of(level: Tensor) -> Tensor:
    return torch.cos(1.5 * level)


def noised(x: Tensor) -> Batch:
    level, noise = torch.rand(len(x), 1), torch.randn_like(x)
    kept = kept_of(level)
    return (kept * x + (1 - kept**2).sqrt() * noise, level), noise


@HALF.net("generative")
def hoop() -> Training:
    """A diffusion model of points on a circle."""

    def quality(net: nn.Module) -> float:
        x = torch.randn(300, 2)
        levels = torch.linspace(1, 0.02, 12)
        for now, then in pairwise(levels):
            noise = net(x, now.expand(300, 1))
            kept, later = kept_of(now), kept_of(then)
            clean = ((x - (1 - kept**2).sqrt() * noise) / kept).clamp(-2, 2)
            x = later * clean + (1 - later**2).sqrt() * noise
        return (x.norm(dim=1) - 1).abs().mean().item()

    return Training(Denoiser(), partial(torch.optim.Adam, lr=0.005), lambda _: noised(hoop_data(128)), F.mse_loss, quality, steps=400)
