"""Nets of sequences, patches, tables of embeddings and graphs, which learn."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.sick.training import Batch, Training
from bench.sick.working.half import HALF

SGD, ADAM, ADAMW = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW


def missed(output: Tensor, label: Tensor) -> float:
    """The share of wrong answers; a label below zero is none."""
    return (output.argmax(-1) != label)[label >= 0].float().mean().item()


def per_place(output: Tensor, label: Tensor) -> Tensor:
    return F.cross_entropy(output.flatten(0, 1), label.flatten(), ignore_index=-100)


# ---- a language of two strands ---------------------------------------------------------------------


def weave_data(count: int, length: int = 13, noise: float = 0.3) -> Tensor:
    """Each token follows from the one before the last, if it is not an error of print."""
    made = [torch.randint(10, (count,)) for _ in range(2)]
    for _ in range(length - 2):
        made.append(torch.where(torch.rand(count) < noise, torch.randint(10, (count,)), (3 * made[-2] + 1) % 10))
    return torch.stack(made, 1)


class Heads(nn.Module):
    """Attention of several heads, by hand."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.width = heads, width
        self.query, self.key, self.value, self.join = (nn.Linear(width, width) for _ in range(4))

    def split(self, x: Tensor) -> Tensor:
        return x.view(len(x), -1, self.heads, self.width // self.heads).transpose(1, 2)

    def weigh(self, scores: Tensor, hidden: Tensor | None) -> Tensor:
        if hidden is not None:
            scores = scores.masked_fill(hidden, -1e9)
        return F.softmax(scores, dim=-1)

    def forward(self, x: Tensor, hidden: Tensor | None = None) -> Tensor:
        query, key, value = (self.split(one(x)) for one in (self.query, self.key, self.value))
        scores = torch.einsum("bhqd,bhkd->bhqk", query, key) * (self.width // self.heads) ** -0.5
        mixed = torch.einsum("bhqk,bhkd->bhqd", self.weigh(scores, hidden), value)
        return self.join(mixed.transpose(1, 2).flatten(2))


class Step(nn.Module):
    """Attention and a small net, each behind a norm."""

    def __init__(self, attention: nn.Module, width: int = 32) -> None:
        super().__init__()
        self.attention = attention
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.net = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor, hidden: Tensor | None = None) -> Tensor:
        x = x + self.attention(self.norms[0](x), hidden)
        return x + self.net(self.norms[1](x))


class Weaver(nn.Module):
    """A language model with attention by hand."""

    def __init__(self, attention: nn.Module | None = None, depth: int = 1) -> None:
        super().__init__()
        self.tokens = nn.Embedding(10, 32)
        self.places = nn.Parameter(0.3 * torch.randn(16, 32))
        self.steps = nn.ModuleList([Step(attention or Heads()), *(Step(Heads()) for _ in range(depth - 1))])
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 10)

    def hidden(self, length: int) -> Tensor:
        return torch.ones(length, length, dtype=torch.bool).triu(1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.tokens(x) + self.places[: x.shape[1]]
        for step in self.steps:
            h = step(h, self.hidden(x.shape[1]))
        return self.head(self.norm(h))


class Singer(nn.Module):
    """A language model with a recurrent layer."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.recurrent, self.head = nn.Embedding(10, 24), nn.GRU(24, 48, batch_first=True), nn.Linear(48, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.recurrent(self.tokens(x))[0])


def weave_quality(net: nn.Module) -> float:
    """Each beginning is continued by one token."""
    x = weave_data(150)
    ends = [(net(x[:, :end])[:, -1], (3 * x[:, end - 2] + 1) % 10) for end in (4, 7, 9, 11)]
    return sum(missed(output, label) for output, label in ends) / len(ends)


def weave_batch(_: int) -> Batch:
    x = weave_data(32)
    return x[:, :-1], x[:, 1:]


@HALF.net("transformer")
def weave() -> Training:
    """A language model of two strands, with errors of print."""
    return Training(Weaver(), partial(ADAM, lr=0.005), weave_batch, per_place, weave_quality, steps=200)


@HALF.net("recurrent")
def two_strands() -> Training:
    """The same language, by a recurrent net."""
    return Training(Singer(), partial(ADAM, lr=0.01), weave_batch, per_place, weave_quality, steps=200)


# ---- a class of a row with padding -----------------------------------------------------------------


def stations_data(count: int, length: int = 10) -> tuple[Tensor, Tensor]:
    x = torch.randint(1, 7, (count, length))
    x[torch.arange(length) >= torch.randint(4, length, (count, 1))] = 0
    return x, x[:, 0] - 1


class Stations(nn.Module):
    """PyTorch's encoder, and a mean over what is no padding."""

    def __init__(self, depth: int = 1, batch_first: bool = True, vocabulary: int = 7) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, 32), nn.Embedding(200, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=batch_first, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(32, 6)

    def placed(self, x: Tensor) -> Tensor:
        return self.tokens(x) + self.places(torch.arange(x.shape[1]))

    def forward(self, x: Tensor) -> Tensor:
        padded = x == 0
        h = self.encoder(self.placed(x), src_key_padding_mask=padded)
        return self.head(h.masked_fill(padded.unsqueeze(2), 0).sum(1) / (~padded).sum(1, keepdim=True))


def stations_quality(net: nn.Module) -> float:
    x, label = stations_data(300)
    return missed(net(x), label)


@HALF.net("transformer")
def stations() -> Training:
    """Where does a journey begin? Rows with padding."""
    return Training(Stations(), partial(ADAMW, lr=0.005), lambda _: stations_data(48), F.cross_entropy, stations_quality, steps=150)


class Journal(nn.Module):
    """Reads a row in both directions by LSTMs, and what they say at their ends."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(7, 16)
        self.recurrent = nn.LSTM(16, 32, batch_first=True, bidirectional=True)
        self.head = nn.Linear(64, 6)

    def forward(self, x: Tensor) -> Tensor:
        out, _ = self.recurrent(self.tokens(x))
        return self.head(torch.cat([out[:, -1, :32], out[:, 0, 32:]], 1))


@HALF.net("recurrent")
def journal() -> Training:
    """Where does a journey begin? By LSTMs."""
    return Training(Journal(), partial(ADAM, lr=0.01), lambda _: stations_data(48), F.cross_entropy, stations_quality, steps=150)


# ---- from one sequence to another ------------------------------------------------------------------


def interpreter_data(count: int, length: int = 6) -> tuple[Tensor, Tensor]:
    """Turned around, and in other tokens; 0 is padding and the beginning."""
    source = torch.randint(1, 9, (count, length))
    return source, source.flip(1) * 2 % 9


class Interpreter(nn.Module):
    """PyTorch's whole transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(9, 32), nn.Parameter(0.5 * torch.randn(40, 32))
        self.inner = nn.Transformer(32, 4, 1, 1, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, 9)

    def placed(self, x: Tensor) -> Tensor:
        return self.tokens(x) + self.places[: x.shape[1]]

    def masks(self, length: int) -> dict[str, Tensor]:
        return {"tgt_mask": nn.Transformer.generate_square_subsequent_mask(length)}

    def forward(self, source: Tensor, given: Tensor) -> Tensor:
        return self.head(self.inner(self.placed(source), self.placed(given), **self.masks(given.shape[1])))


def begun(target: Tensor) -> Tensor:
    """What the decoder gets: the target, behind a sign for the beginning."""
    return F.pad(target[:, :-1], (1, 0))


def interpreter_batch(_: int) -> Batch:
    source, target = interpreter_data(48)
    return (source, begun(target)), target


def interpreter_quality(net: nn.Module) -> float:
    """Translated token by token."""
    source, target = interpreter_data(150)
    made = torch.zeros(150, 1, dtype=torch.long)
    for _ in range(target.shape[1]):
        made = torch.cat([made, net(source, made)[:, -1:].argmax(-1)], 1)
    return (made[:, 1:] != target).float().mean().item()


@HALF.net("transformer")
def interpreter() -> Training:
    """Translates six tokens."""
    return Training(Interpreter(), partial(ADAM, lr=0.004), interpreter_batch, per_place, interpreter_quality, steps=200)


# ---- patches ---------------------------------------------------------------------------------------


def mosaic_data(count: int) -> tuple[Tensor, Tensor]:
    """A cross lies in one of nine fields; a ring in another one."""
    cross = torch.tensor([[1.0, 0, 0, 1], [0, 1, 1, 0], [0, 1, 1, 0], [1, 0, 0, 1]])
    fields = 0.3 * torch.randn(count, 9, 4, 4)
    two = torch.rand(count, 9).argsort(1)[:, :2]
    rows = torch.arange(count)
    fields[rows, two[:, 0]] += 1.5 * cross
    fields[rows, two[:, 1]] += 1.5 * (1 - cross)
    return fields.view(count, 1, 3, 3, 4, 4).permute(0, 1, 2, 4, 3, 5).reshape(count, 1, 12, 12), two[:, 0]


class Mosaic(nn.Module):
    """A small vision transformer."""

    def __init__(self, batch_first: bool = True) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, 32, 4, stride=4)
        self.begin, self.places = nn.Parameter(torch.zeros(1, 1, 32)), nn.Parameter(0.3 * torch.randn(1, 10, 32))
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, activation="gelu", batch_first=batch_first)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(32, 9)

    def cut(self, x: Tensor) -> Tensor:
        return self.patches(x).flatten(2).transpose(1, 2)

    def placed(self, h: Tensor) -> Tensor:
        return torch.cat([self.begin.expand(len(h), 1, 32), h], 1) + self.places

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(self.placed(self.cut(x)))[:, 0])


@HALF.net("transformer")
def mosaic() -> Training:
    """In which field is the cross?"""

    def quality(net: nn.Module) -> float:
        x, label = mosaic_data(300)
        return missed(net(x), label)

    return Training(Mosaic(), partial(ADAMW, lr=0.004), lambda _: mosaic_data(48), F.cross_entropy, quality, steps=200)


# ---- tags ------------------------------------------------------------------------------------------


def parade_data(count: int, length: int = 12) -> tuple[Tensor, Tensor]:
    """The tag of a place is what came two places before."""
    x = torch.randint(1, 7, (count, length))
    tag = F.pad(x[:, :-2] - 1, (2, 0), value=-100)
    padded = torch.arange(length) >= torch.randint(6, length + 1, (count, 1))
    return x.masked_fill(padded, 0), tag.masked_fill(padded, -100)


class Parade(nn.Module):
    """An LSTM's cell in a loop; a tag for each place."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.cell, self.head = nn.Embedding(7, 16), nn.LSTMCell(16, 48), nn.Linear(48, 6)

    def forward(self, x: Tensor) -> Tensor:
        state, said = (torch.zeros(len(x), 48), torch.zeros(len(x), 48)), []
        for token in self.tokens(x).unbind(1):
            state = self.cell(token, state)
            said.append(self.head(state[0]))
        return torch.stack(said, 1)


@HALF.net("recurrent")
def parade() -> Training:
    """Tags of each place, padded."""

    def quality(net: nn.Module) -> float:
        x, tag = parade_data(200)
        return missed(net(x), tag)

    return Training(Parade(), partial(ADAM, lr=0.01), lambda _: parade_data(32), per_place, quality, steps=200)


# ---- a series --------------------------------------------------------------------------------------


def reservoir_data(count: int, length: int = 20) -> tuple[Tensor, Tensor]:
    """What is in a basin with a leak?"""
    inflow = torch.randn(count, length, 1)
    level, levels = torch.zeros(count, 1), []
    for flow in inflow.unbind(1):
        level = 0.7 * level + flow
        levels.append(level)
    return inflow, torch.stack(levels, 1)


class Reservoir(nn.Module):
    """A state that fades, number by number, and a net that reads it."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.inward, self.fading = nn.Linear(1, width), nn.Parameter(torch.linspace(-2, 1, width))
        self.read = nn.Sequential(nn.Linear(width, 24), nn.SiLU(), nn.Linear(24, 1))

    def kept(self) -> Tensor:
        return torch.exp(-self.fading.exp())

    def forward(self, x: Tensor) -> Tensor:
        kept, h, states = self.kept(), torch.zeros(len(x), len(self.fading)), []
        for step in self.inward(x).unbind(1):
            h = kept * h + step
            states.append(h)
        return self.read(torch.stack(states, 1))


def half_square(output: Tensor, target: Tensor) -> Tensor:
    return 0.5 * (output - target).square().mean()


@HALF.net("recurrent")
def reservoir() -> Training:
    """The level of a basin, by a diagonal recurrence."""

    def quality(net: nn.Module) -> float:
        x, y = reservoir_data(200)
        return (net(x) - y).square().mean().item()

    return Training(Reservoir(), partial(ADAM, lr=0.01), lambda _: reservoir_data(32), half_square, quality, steps=150)


# ---- tables of embeddings --------------------------------------------------------------------------


class Listeners(nn.Module):
    """Towers of listeners and songs."""

    def __init__(self) -> None:
        super().__init__()
        self.listeners, self.songs = nn.Embedding(40, 16), nn.Embedding(60, 16)
        self.left, self.right = nn.Linear(16, 16), nn.Linear(16, 16)
        self.fame = nn.Parameter(torch.zeros(60))

    def songs_of(self, song: Tensor) -> Tensor:
        return self.right(self.songs(song))

    def forward(self, listener: Tensor, song: Tensor) -> Tensor:
        return self.left(self.listeners(listener)) @ self.songs_of(song).T / 4 + self.fame[song]


def listeners_batch(_: int) -> Batch:
    """Listener and song are of one of six kinds; a few songs are heard by chance."""
    listener = torch.randint(40, (64,))
    liked = 10 * (listener % 6) + torch.randint(10, (64,))
    song = torch.where(torch.rand(64) < 0.1, torch.randint(60, (64,)), liked)
    return (listener, torch.arange(60)), song


def listeners_quality(net: nn.Module) -> float:
    """How many of ten songs are of another kind?"""
    best = net(torch.arange(40), torch.arange(60)).topk(10, 1).indices
    return (best // 10 != (torch.arange(40) % 6).unsqueeze(1)).float().mean().item()


@HALF.net("embedding")
def listeners() -> Training:
    """Who listens to which song?"""
    return Training(Listeners(), partial(ADAM, lr=0.01), listeners_batch, F.cross_entropy, listeners_quality, steps=200)


class Corpus(nn.Module):
    """Word2vec: a word, and what stands beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.beside = nn.Embedding(48, 12), nn.Embedding(48, 12)
        nn.init.normal_(self.beside.weight, std=0.1)

    def forward(self, word: Tensor, beside: Tensor) -> Tensor:
        return torch.einsum("nd,nkd->nk", self.words(word), self.beside(beside))


def corpus_batch(_: int) -> Batch:
    """The first of six is what stood there; the others are drawn."""
    word = torch.randint(48, (128,))
    same = (word // 8) * 8 + torch.randint(8, (128,))
    near = torch.where(torch.rand(128) < 0.1, torch.randint(48, (128,)), same)
    return (word, torch.cat([near.unsqueeze(1), torch.randint(48, (128, 5))], 1)), torch.tensor([1.0, 0, 0, 0, 0, 0]).expand(128, 6)


def negative_sampling(output: Tensor, real: Tensor) -> Tensor:
    return -(F.logsigmoid(output[:, 0]) + F.logsigmoid(-output[:, 1:]).sum(1)).mean()


def corpus_quality(net: nn.Module) -> float:
    """Is the next word of another topic?"""
    vectors = F.normalize(net.words.weight, dim=1)
    near = (vectors @ vectors.T - 2 * torch.eye(48)).topk(4, 1).indices
    return (near // 8 != torch.arange(48).unsqueeze(1) // 8).float().mean().item()


@HALF.net("embedding")
def corpus() -> Training:
    """Words of six topics."""
    return Training(Corpus(), partial(torch.optim.Adagrad, lr=0.3), corpus_batch, negative_sampling, corpus_quality, steps=250)


class Facts(nn.Module):
    """DistMult: somebody, a relation and somebody."""

    def __init__(self, padding_idx: int | None = None) -> None:
        super().__init__()
        self.people, self.relations = nn.Embedding(24, 24), nn.Embedding(3, 24, padding_idx=padding_idx)

    def forward(self, person: Tensor, relation: Tensor) -> Tensor:
        return (self.people(person) * self.relations(relation)) @ self.people.weight.T / 3


def facts_of(person: Tensor, relation: Tensor) -> Tensor:
    """Three relations which hold in both directions."""
    return torch.stack([23 - person, (person + 12) % 24, person ^ 1], 1).gather(1, relation.unsqueeze(1)).squeeze(1)


@HALF.net("embedding")
def facts() -> Training:
    """Who is whose what?"""

    def batch(_: int) -> Batch:
        person, relation = torch.randint(24, (64,)), torch.randint(3, (64,))
        return (person, relation), facts_of(person, relation)

    def quality(net: nn.Module) -> float:
        person, relation = torch.arange(24).repeat(3), torch.arange(3).repeat_interleave(24)
        return missed(net(person, relation), facts_of(person, relation))

    return Training(Facts(), partial(ADAM, lr=0.03), batch, F.cross_entropy, quality, steps=150)


# ---- graphs and pointers ---------------------------------------------------------------------------


def village_data(count: int = 60) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """People of three families, who see each other often; each is hard to tell by the looks."""
    label = torch.randint(3, (count,))
    chance = torch.where(label[:, None] == label, 0.3, 0.03)
    edges = (torch.rand(count, count) < chance).float().triu(1)
    looks = 0.8 * F.one_hot(label, 3) + torch.randn(count, 3)
    return (torch.cat([looks, torch.randn(count, 3)], 1), edges + edges.T + torch.eye(count)), label


class Village(nn.Module):
    """Each one hears the mean of the neighbours."""

    def __init__(self, depth: int = 2, width: int = 32) -> None:
        super().__init__()
        self.first = nn.Linear(6, width)
        self.hops = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.last = nn.Linear(width, 3)

    def heard(self, h: Tensor, edges: Tensor) -> Tensor:
        return edges @ h / edges.sum(1, keepdim=True)

    def forward(self, looks: Tensor, edges: Tensor) -> Tensor:
        h = F.relu(self.first(looks))
        for hop in self.hops:
            h = F.relu(hop(self.heard(h, edges)))
        return self.last(h)


@HALF.net("embedding")
def village() -> Training:
    """Of which family is each one in a graph?"""

    def quality(net: nn.Module) -> float:
        drawn = [village_data() for _ in range(6)]
        return sum(missed(net(*graph), label) for graph, label in drawn) / 6

    return Training(Village(), partial(ADAM, lr=0.01), lambda _: village_data(), F.cross_entropy, quality, steps=150)


def podium_data(count: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 7, 3)
    return x, (x[:, :, 0] + 0.5 * x[:, :, 1]).topk(3, 1).indices


class Podium(nn.Module):
    """A pointer net: points at one of the inputs, three times."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, width))
        self.cell, self.begin = nn.GRUCell(width, width), nn.Parameter(torch.zeros(width))
        self.left, self.right, self.score = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, 1)

    def hide(self, scores: Tensor, used: Tensor) -> Tensor:
        return scores.masked_fill(used, -20)

    def seen(self, x: Tensor) -> Tensor:
        return self.encoder(x)

    def forward(self, x: Tensor) -> Tensor:
        memory, said = self.seen(x), []
        h, given = memory.mean(1), self.begin.expand(len(x), -1)
        used = torch.zeros(x.shape[:2], dtype=torch.bool)
        for _ in range(3):
            h = self.cell(given, h)
            scores = self.hide(self.score(torch.tanh(self.left(memory) + self.right(h).unsqueeze(1))).squeeze(2), used)
            said.append(scores)
            chosen = F.one_hot(scores.argmax(1), 7)
            used, given = used | chosen.bool(), (chosen.unsqueeze(2) * memory).sum(1)
        return torch.stack(said, 1)


@HALF.net("recurrent")
def podium() -> Training:
    """Who is first, second and third?"""

    def quality(net: nn.Module) -> float:
        x, label = podium_data(300)
        return missed(net(x), label)

    return Training(Podium(), partial(ADAM, lr=0.01), lambda _: podium_data(64), per_place, quality, steps=200)
