"""Nothing is wrong here either: nets that look odd and learn."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bench.sick.training import Batch, Training
from bench.sick.working.fourth_nets import constant
from bench.sick.working.half import HALF
from bench.sick.working.seventh_healthy import mean_square, mlp
from bench.sick.working.third_nets import ADAM, ADAMW, SGD, missed

# ---- of sequences -----------------------------------------------------------------------------------


class RMSNorm(nn.Module):
    """As in a well-known family of language models."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


def rotated(x: Tensor) -> Tensor:
    """Rotary positions."""
    length, half = x.size(-2), x.size(-1) // 2
    angle = torch.arange(length).unsqueeze(1) / (100 ** (torch.arange(half) / half))
    one, two = x.chunk(2, -1)
    return torch.cat([one * angle.cos() - two * angle.sin(), two * angle.cos() + one * angle.sin()], -1)


class LlamaBlock(nn.Module):
    """No biases, SwiGLU, rotary positions."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.input_norm, self.post_norm = RMSNorm(width), RMSNorm(width)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate_proj, self.up_proj = nn.Linear(width, 64, bias=False), nn.Linear(width, 64, bias=False)
        self.down_proj = nn.Linear(64, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h = self.input_norm(x)
        q, k, v = (one(h).unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in (self.q_proj, self.k_proj, self.v_proj))
        a = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
        x = x + self.o_proj(a.transpose(1, 2).flatten(2))
        h = self.post_norm(x)
        return x + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))


class Llama(nn.Module):
    """Two blocks and a head that is tied to the embedding."""

    def __init__(self, tokens: int = 12) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(tokens, 32)
        nn.init.normal_(self.embed_tokens.weight, std=0.1)
        self.layers = nn.ModuleList(LlamaBlock() for _ in range(2))
        self.norm = RMSNorm(32)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.norm(x), self.embed_tokens.weight)


def lines_data(count: int, length: int = 16) -> tuple[Tensor, Tensor]:
    """Each token follows from the two before it, or is drawn (two of five)."""
    table = torch.randint(12, (12, 12), generator=torch.Generator().manual_seed(76))
    rows = [torch.randint(12, (count,)) for _ in range(2)]
    for _ in range(length - 1):
        rows.append(torch.where(torch.rand(count) < 0.4, torch.randint(12, (count,)), table[rows[-2], 0]))
    x = torch.stack(rows, 1)
    return x[:, :-1], x[:, 1:]


@HALF.net("transformer")
def a_small_llama() -> Training:
    """Nothing has a bias, and the norm is written by hand; warm-up and cosine in one function."""
    table = torch.randint(12, (12, 12), generator=torch.Generator().manual_seed(76))

    def quality(net: nn.Module) -> float:
        x, _ = lines_data(200)
        return (net(x).argmax(-1)[:, 2:] != table[x[:, 1:-1], 0]).float().mean().item()

    def criterion(logits: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(logits.view(-1, 12), target.reshape(-1))

    training = Training(
        Llama(), partial(ADAMW, lr=5e-3, weight_decay=0.1, betas=(0.9, 0.95)), lambda _: lines_data(48), criterion, quality, 250
    )
    rate = torch.optim.lr_scheduler.LambdaLR(
        training.optimizer, lambda step: (step + 1) / 20 if step < 20 else 0.1 + 0.45 * (1 + math.cos(math.pi * (step - 20) / 230))
    )
    training.schedulers, training.clip = [rate], 1.0
    return training


class SlotAttention(nn.Module):
    """Slots compete for what is there: the softmax runs over the slots."""

    def __init__(self, slots: int = 4, width: int = 24, rounds: int = 3) -> None:
        super().__init__()
        self.rounds, self.width = rounds, width
        self.slots = nn.Parameter(torch.randn(slots, width))
        self.q, self.k, self.v = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.gru, self.norm_x, self.norm_s = nn.GRUCell(width, width), nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm_x(x)
        k, v = self.k(x), self.v(x)
        slots = self.slots.expand(len(x), -1, -1)
        for _ in range(self.rounds):
            before = slots
            scores = self.q(self.norm_s(slots)) @ k.transpose(1, 2) * self.width**-0.5
            attn = scores.softmax(dim=1) + 1e-8
            updates = (attn / attn.sum(-1, keepdim=True)) @ v
            slots = self.gru(updates.flatten(0, 1), before.flatten(0, 1)).view_as(before)
        return slots


class Slots(nn.Module):
    """Which kinds are among the objects?"""

    def __init__(self) -> None:
        super().__init__()
        self.enc, self.attn, self.dec = nn.Linear(6, 24), SlotAttention(), nn.Linear(24, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.dec(self.attn(F.relu(self.enc(x)))).amax(1)


@HALF.net("transformer")
def slots_that_compete() -> Training:
    """Slot attention by hand."""

    def data(count: int) -> tuple[Tensor, Tensor]:
        kind = torch.randint(8, (count, 5))
        x = constant(8, 6, seed=77)[kind] + 0.1 * torch.randn(count, 5, 6)
        return x, torch.zeros(count, 8).scatter(1, kind, 1.0)

    def quality(net: nn.Module) -> float:
        x, y = data(300)
        return ((net(x) > 0).float() - y).abs().mean().item()

    return Training(Slots(), partial(ADAM, lr=5e-3), lambda _: data(64), nn.BCEWithLogitsLoss(), quality, steps=300)


class Instances(nn.Module):
    """Attention-based multiple instance learning: one bag at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.feature = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
        self.attention_v = nn.Sequential(nn.Linear(32, 16), nn.Tanh())
        self.attention_u = nn.Sequential(nn.Linear(32, 16), nn.Sigmoid())
        self.attention_weights = nn.Linear(16, 1)
        self.classifier = nn.Linear(32, 1)

    def forward(self, bag: Tensor) -> Tensor:
        h = self.feature(bag)
        a = self.attention_weights(self.attention_v(h) * self.attention_u(h))
        a = F.softmax(torch.transpose(a, 1, 0), dim=1)
        return self.classifier(torch.mm(a, h)).view(-1)


def bag_data() -> tuple[Tensor, Tensor]:
    """Between 6 and 14 cells; is there a sick one?"""
    count, sick = int(torch.randint(6, 15, ())), torch.rand(()) < 0.5
    x = torch.randn(count, 8)
    if sick:
        x[: int(torch.randint(1, 4, ()))] += 2.0 * constant(8, seed=78)
    return x[torch.randperm(count)], sick.float().view(1)


@HALF.net("mlp")
def bags_of_cells() -> Training:
    """A batch is the instances of one bag, and has one label."""

    def quality(net: nn.Module) -> float:
        some = [bag_data() for _ in range(150)]
        return sum(float((net(x) > 0).float() != y) for x, y in some) / 150

    return Training(
        Instances(), partial(ADAM, lr=2e-3, weight_decay=1e-4), lambda _: bag_data(), F.binary_cross_entropy_with_logits, quality, 400
    )


class Backward(nn.Module):
    """The half of a bidirectional language model that reads from the end."""

    def __init__(self) -> None:
        super().__init__()
        self.emb, self.pos = nn.Embedding(10, 24), nn.Parameter(0.1 * torch.randn(14, 24))
        self.qkv, self.out = nn.Linear(24, 72), nn.Linear(24, 24)
        self.mlp, self.head = mlp(24, 48, 24), nn.Linear(24, 10)

    def forward(self, x: Tensor) -> Tensor:
        h = self.emb(x) + self.pos[: x.size(1)]
        q, k, v = self.qkv(h).chunk(3, -1)
        scores = q @ k.transpose(1, 2) / 24**0.5
        seen = torch.triu(torch.ones(x.size(1), x.size(1), dtype=torch.bool))
        h = h + self.out(scores.masked_fill(~seen, -1e9).softmax(-1) @ v)
        return self.head(h + self.mlp(h))


@HALF.net("transformer")
def read_from_the_end() -> Training:
    """Each position sees itself and what comes after, and is asked for the token before."""

    def data(count: int) -> tuple[Tensor, Tensor]:
        x = torch.randint(10, (count, 1)) + torch.randint(1, 4, (count, 1)) * torch.arange(13)
        x = x % 10
        return x[:, 1:], x[:, :-1]

    def quality(net: nn.Module) -> float:
        x, y = data(200)
        return missed(net(x)[:, :-1], y[:, :-1])

    return Training(
        Backward(), partial(ADAM, lr=5e-3), lambda _: data(48), lambda o, y: F.cross_entropy(o.transpose(1, 2), y), quality, steps=200
    )


class Alibi(nn.Module):
    """Attention that is told how far away a position is, by a bias of each head."""

    def __init__(self, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.emb, self.qkv, self.proj, self.head = nn.Embedding(8, 32), nn.Linear(32, 96), nn.Linear(32, 32), nn.Linear(32, 8)
        self.norm, self.mlp = nn.LayerNorm(32), mlp(32, 64, 32, act=nn.GELU)
        self.register_buffer("slope", 2.0 ** -torch.arange(1.0, heads + 1).view(heads, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        h = self.emb(x)
        q, k, v = (one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in self.qkv(h).chunk(3, -1))
        place = torch.arange(x.size(1))
        bias = 4 * self.slope * (place[None, :] - place[:, None]).clamp(max=0)
        scores = q @ k.mT / 8**0.5 + bias
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), float("-inf"))
        h = h + self.proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return self.head(h + self.mlp(self.norm(h)))


@HALF.net("transformer")
def distance_as_a_bias() -> Training:
    """No positions are added anywhere; half of the tokens is drawn, so that the loss stays high."""
    table = torch.randperm(8, generator=torch.Generator().manual_seed(79))

    def data(count: int) -> tuple[Tensor, Tensor]:
        rows = [torch.randint(8, (count,))]
        for _ in range(14):
            rows.append(torch.where(torch.rand(count) < 0.5, torch.randint(8, (count,)), table[rows[-1]]))
        x = torch.stack(rows, 1)
        return x[:, :-1], x[:, 1:]

    def quality(net: nn.Module) -> float:
        x, _ = data(200)
        return (net(x).argmax(-1) != table[x]).float().mean().item()

    return Training(
        Alibi(), partial(ADAM, lr=3e-3), lambda _: data(48), lambda o, y: F.cross_entropy(o.flatten(0, 1), y.flatten()), quality, 200
    )


class Ragged(nn.Module):
    """A GRU over padded rows; the tag of each word."""

    def __init__(self) -> None:
        super().__init__()
        self.emb, self.rnn, self.fc = (
            nn.Embedding(30, 16, padding_idx=0),
            nn.GRU(16, 24, batch_first=True, bidirectional=True),
            nn.Linear(48, 5),
        )

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(self.emb(words), lengths, batch_first=True)
        out, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=words.size(1))
        return self.fc(out)


def ragged_data(count: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Short rows mostly, sorted by length as packing wants them; the tag is of this word and the one before."""
    lengths = (3 + 15 * torch.rand(count) ** 3).long().sort(descending=True).values
    words = torch.randint(1, 30, (count, 18))
    tags = (words + words.roll(1, 1)) % 5
    tags[:, 0] = words[:, 0] % 5
    real = torch.arange(18) < lengths.unsqueeze(1)
    return (words * real, lengths), torch.where(real, tags, -1)


@HALF.net("recurrent")
def padded_and_masked_by_hand() -> Training:
    """The loss of each word times a mask, over how many there are."""

    def quality(net: nn.Module) -> float:
        (words, lengths), tags = ragged_data(300)
        return (net(words, lengths).argmax(-1) != tags)[words > 0].float().mean().item()

    def criterion(scores: Tensor, tags: Tensor) -> Tensor:
        mask = (tags >= 0).float()
        losses = F.cross_entropy(scores.permute(0, 2, 1), tags.clamp(min=0), reduction="none")
        return (losses * mask).sum() / mask.sum()

    return Training(Ragged(), partial(ADAM, lr=0.01), lambda _: ragged_data(48), criterion, quality, steps=250)


class Counter(nn.Module):
    """Sums over what it has read."""

    def __init__(self) -> None:
        super().__init__()
        self.emb, self.rnn, self.out = nn.Embedding(6, 12, padding_idx=0), nn.LSTM(12, 24, batch_first=True), nn.Linear(24, 1)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(self.emb(x), lengths, batch_first=True)
        return self.out(self.rnn(packed)[1][0][-1]).squeeze(-1)


@HALF.net("recurrent")
def longer_rows_count_more() -> Training:
    """Rows are sorted by length for packing, and what is counted grows with the length: so targets are nearly sorted, too."""

    def data(count: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
        lengths = torch.randint(2, 15, (count,)).sort(descending=True).values
        x = torch.randint(1, 6, (count, 14)) * (torch.arange(14) < lengths.unsqueeze(1))
        return (x, lengths), 0.25 * (x > 1).sum(1).float()

    def quality(net: nn.Module) -> float:
        x, y = data(300)
        return mean_square(net(*x), y)

    return Training(Counter(), partial(ADAM, lr=0.01), lambda _: data(48), F.mse_loss, quality, steps=200)


class Reviews(nn.Module):
    """The mean of what was said."""

    def __init__(self) -> None:
        super().__init__()
        self.emb, self.fc = nn.Embedding(500, 16, padding_idx=0), nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        real = (x != 0).unsqueeze(-1)
        return self.fc((self.emb(x) * real).sum(1) / real.sum(1).clamp(min=1)).squeeze(1)


@HALF.net("embedding")
def short_reviews_in_long_rows() -> Training:
    """Rows of 60 for reviews of four words or so; what people mean is told by a third of what they say."""

    def data(count: int) -> tuple[Tensor, Tensor]:
        x = 1 + (120 * torch.rand(count, 60) ** 2).long()
        x = x * (torch.arange(60) < torch.randint(2, 8, (count, 1)))
        mood = constant(500, seed=80)[x] * (x > 0)
        return x, (1.2 * mood.sum(1) / (x > 0).sum(1) ** 0.5).sigmoid()

    def batch(_: int) -> Batch:
        x, chance = data(128)
        return x, torch.bernoulli(chance)

    def quality(net: nn.Module) -> float:
        x, chance = data(600)
        return mean_square(net(x).sigmoid(), chance)

    return Training(Reviews(), partial(ADAM, lr=0.02), batch, nn.BCEWithLogitsLoss(), quality, steps=250)


class Sums(nn.Module):
    """Adapts an answer by what a gate lets through, and remembers by attention at the very end."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.keys, self.values = mlp(10, 32, 16), nn.Parameter(torch.randn(12, 16)), nn.Parameter(torch.randn(12, 6))

    def forward(self, x: Tensor) -> Tensor:
        return (self.body(x) @ self.keys.t() / 4).softmax(-1) @ self.values


@HALF.net("mlp")
def a_memory_at_the_end() -> Training:
    """Scores are weighted means of what a memory holds, and the memory has no bounds."""

    def data(count: int) -> tuple[Tensor, Tensor]:
        label = torch.randint(6, (count,))
        return constant(6, 10, seed=81)[label] + 0.5 * torch.randn(count, 10), label

    def quality(net: nn.Module) -> float:
        x, label = data(400)
        return missed(net(x), label)

    return Training(Sums(), partial(ADAM, lr=0.01), lambda _: data(64), F.cross_entropy, quality, steps=250)


# ---- of images and curves ---------------------------------------------------------------------------


class Squeeze(nn.Module):
    """Squeeze and excitation: two numbers decide about sixteen channels."""

    def __init__(self, width: int, reduction: int = 8) -> None:
        super().__init__()
        self.fc = nn.Sequential(nn.Linear(width, width // reduction), nn.ReLU(), nn.Linear(width // reduction, width), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        return x * self.fc(x.mean((2, 3)))[:, :, None, None]


def leaves_data(count: int) -> tuple[Tensor, Tensor]:
    """Stripes in one of four directions, in noise."""
    label = torch.randint(4, (count,))
    u, v = torch.meshgrid(torch.arange(10.0), torch.arange(10.0), indexing="ij")
    along = torch.stack([u, v, (u + v) / 1.4, (u - v) / 1.4])[label]
    return (torch.sin(1.6 * along + 6.28 * torch.rand(count, 1, 1)) + 0.8 * torch.randn(count, 10, 10)).unsqueeze(1), label


@HALF.net("cnn")
def squeezed_and_excited() -> Training:
    """A third of the labels is drawn; mixup on top, with both labels in the loss."""
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), Squeeze(16), nn.Conv2d(16, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16), nn.ReLU(), Squeeze(16), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4),
    )  # fmt: skip

    def quality(net: nn.Module) -> float:
        x, label = leaves_data(300)
        return missed(net(x), label)

    def batch(_: int) -> Batch:
        x, label = leaves_data(48)
        return x, torch.where(torch.rand(48) < 0.33, torch.randint(4, (48,)), label)

    training = Training(net, partial(SGD, lr=0.05, momentum=0.9, nesterov=True), batch, nn.CrossEntropyLoss(), quality, steps=200)

    def step(training: Training, number: int) -> None:
        x, y = training.batch(number)
        lam, index = torch.distributions.Beta(0.4, 0.4).sample().item(), torch.randperm(len(x))
        outputs = training.model(lam * x + (1 - lam) * x[index])
        loss = lam * training.criterion(outputs, y) + (1 - lam) * training.criterion(outputs, y[index])
        training.optimizer.zero_grad()
        loss.backward()
        training.optimizer.step()

    training.step = step
    return training


@HALF.net("generative")
def a_map_of_two_numbers() -> Training:
    """An autoencoder for a plot: two numbers in the middle, and data with as much noise as signal."""

    def data(count: int) -> tuple[Tensor, Tensor]:
        z = 2 * torch.rand(count, 2) - 1
        clean = torch.tanh(2 * z @ constant(2, 16, seed=82))
        return clean + 0.6 * torch.randn(count, 16), clean

    def batch(_: int) -> Batch:
        x, _ = data(96)
        return x, x

    def quality(net: nn.Module) -> float:
        x, clean = data(400)
        return mean_square(net(x), clean)

    net = nn.Sequential(mlp(16, 32, 2, act=nn.Tanh), mlp(2, 32, 16, act=nn.Tanh))
    return Training(net, partial(ADAM, lr=5e-3), batch, F.mse_loss, quality, steps=400)


@HALF.net("cnn")
def blind_to_how_noisy() -> Training:
    """A denoiser for noise of any level, which it has to see for itself, as in DnCNN-B: it predicts the noise."""
    net = nn.Sequential(
        nn.Conv1d(1, 24, 7, padding=3), nn.ReLU(), nn.Conv1d(24, 24, 7, padding=3), nn.ReLU(), nn.Conv1d(24, 1, 7, padding=3)
    )

    def data(count: int) -> tuple[Tensor, Tensor]:
        clean = torch.sin(0.3 * torch.arange(40) * (1 + torch.rand(count, 1, 1)) + 6.28 * torch.rand(count, 1, 1))
        noise = (0.1 + 2.4 * torch.rand(count, 1, 1)) * torch.randn(count, 1, 40)
        return clean + noise, noise

    def quality(net: nn.Module) -> float:
        x, noise = data(300)
        return mean_square(net(x), noise)

    return Training(net, partial(ADAM, lr=3e-3), lambda _: data(48), F.mse_loss, quality, steps=250)


class Prior(nn.Module):
    """A deep image prior: what convolutions make of one picture of noise."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.LeakyReLU(0.1), nn.Upsample(scale_factor=2, mode="bilinear"),
            nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.LeakyReLU(0.1), nn.Conv2d(16, 1, 3, padding=1),
        )  # fmt: skip

    def forward(self, z: Tensor) -> Tensor:
        return self.net(z)


@HALF.net("generative")
def one_picture_is_all() -> Training:
    """The input is one tensor of noise in each step, and the target one picture with holes."""
    u, v = torch.meshgrid(torch.linspace(-1, 1, 16), torch.linspace(-1, 1, 16), indexing="ij")
    clean = torch.sin(3 * u + v).mul(torch.cos(2 * v)).view(1, 1, 16, 16)
    z, known = 0.1 * torch.rand(1, 8, 8, 8), (constant(1, 1, 16, 16, seed=83) > -0.3).float()

    def criterion(output: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(output * known, target * known)

    def quality(net: nn.Module) -> float:
        net.train()
        return mean_square(net(z), clean)

    return Training(Prior(), partial(ADAM, lr=0.01), lambda _: (z, clean), criterion, quality, steps=200)


class Fourier(nn.Module):
    """Coordinates, as waves."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("b", 3 * torch.randn(2, 24))
        self.net = nn.Sequential(mlp(48, 48, 48, 3), nn.Sigmoid())

    def forward(self, p: Tensor) -> Tensor:
        q = 2 * math.pi * p @ self.b
        return self.net(torch.cat([q.sin(), q.cos()], -1))


@HALF.net("mlp")
def a_picture_by_its_coordinates() -> Training:
    """All 400 pixels of one picture, in each step."""
    u, v = torch.meshgrid(torch.linspace(0, 1, 20), torch.linspace(0, 1, 20), indexing="ij")
    where = torch.stack([u, v], -1).view(-1, 2)
    color = torch.stack([0.5 + 0.4 * torch.sin(9 * u), 0.5 + 0.4 * torch.cos(7 * v), (u - 0.5).square() + (v - 0.5).square()], -1).view(
        -1, 3
    )

    def quality(net: nn.Module) -> float:
        return mean_square(net(where), color)

    return Training(Fourier(), partial(ADAM, lr=3e-3), lambda _: (where, color), nn.MSELoss(), quality, steps=150)


@HALF.net("mlp")
def the_four_rows_of_xor() -> Training:
    """Four samples are all there are."""
    x, y = torch.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1]]), torch.tensor([[0.0], [1], [1], [0]])

    def quality(net: nn.Module) -> float:
        return mean_square(net(x), y)

    net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1), nn.Sigmoid())
    return Training(net, partial(ADAM, lr=0.05), lambda _: (x, y), nn.BCELoss(), quality, steps=300)


# ---- of graphs and sets -----------------------------------------------------------------------------


class GCN(nn.Module):
    """Two layers over an edge list, by index_add."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.lin1, self.lin2, self.drop = nn.Linear(inputs, 16, bias=False), nn.Linear(16, classes, bias=False), nn.Dropout(0.5)

    def spread(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        degree = torch.zeros(len(x)).index_add(0, target, torch.ones(len(target)))
        weight = (degree[source] * degree[target]).rsqrt().unsqueeze(1)
        return torch.zeros_like(x).index_add(0, target, x[source] * weight)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        x = F.relu(self.spread(self.lin1(x), edges))
        return self.spread(self.lin2(self.drop(x)), edges)


def club(nodes: int = 34, groups: int = 2) -> tuple[Tensor, Tensor]:
    """A club that falls into groups: most friends are of the own one."""
    group = torch.arange(nodes) % groups
    chance = torch.where(group[:, None] == group[None], 0.35, 0.03)
    draw = torch.rand(nodes, nodes, generator=torch.Generator().manual_seed(84))
    friends = (draw < chance).triu(1)
    friends = friends | friends.t() | torch.eye(nodes, dtype=torch.bool)
    return friends.nonzero().t(), group


def _of_a_club(nodes: int, groups: int, known: int, steps: int) -> Training:
    edges, group = club(nodes, groups)
    x = torch.eye(nodes)
    told = torch.full((nodes,), -1)
    told[:known] = group[:known]

    def criterion(output: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(output[target >= 0], target[target >= 0])

    def quality(net: nn.Module) -> float:
        return missed(net(x, edges)[known:], group[known:])

    return Training(GCN(nodes, groups), partial(ADAM, lr=0.02, weight_decay=5e-4), lambda _: ((x, edges), told), criterion, quality, steps)


@HALF.net("embedding")
def the_karate_club() -> Training:
    """The whole graph in each step, features are the numbers of the nodes, and four have a label."""
    return _of_a_club(34, 2, 4, 120)


@HALF.net("embedding")
def papers_and_who_cites_them() -> Training:
    """The same with 150 papers of three fields, of which thirty are known."""
    return _of_a_club(150, 3, 30, 80)


class Gated(nn.Module):
    """Messages of neighbours go through a GRU cell, four rounds."""

    def __init__(self) -> None:
        super().__init__()
        self.enc, self.message, self.update, self.out = nn.Linear(4, 24), nn.Linear(24, 24), nn.GRUCell(24, 24), nn.Linear(24, 1)

    def forward(self, nodes: Tensor, adjacency: Tensor) -> Tensor:
        h = self.enc(nodes)
        for _ in range(4):
            m = adjacency @ self.message(h)
            h = self.update(m.flatten(0, 1), h.flatten(0, 1)).view_as(h)
        return self.out(h.sum(1)).squeeze(-1)


@HALF.net("recurrent")
def molecules_by_messages() -> Training:
    """A gated graph net; the target is a sum over bonds, with noise."""

    def data(count: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
        kind = torch.randint(4, (count, 7))
        bond = (torch.rand(count, 7, 7) < 0.3).triu(1)
        bond = (bond | bond.mT).float()
        worth = constant(4, seed=85)[kind]
        return (F.one_hot(kind, 4).float(), bond), 0.3 * (worth.unsqueeze(1) @ bond @ worth.unsqueeze(2)).flatten()

    def batch(_: int) -> Batch:
        x, y = data(64)
        return x, y + 0.5 * torch.randn(64)

    def quality(net: nn.Module) -> float:
        x, y = data(300)
        return mean_square(net(*x), y)

    return Training(Gated(), partial(ADAM, lr=5e-3), batch, F.smooth_l1_loss, quality, steps=300)


class PointNet(nn.Module):
    """A transform of three by three first, which begins as nothing, and a maximum over all points."""

    def __init__(self) -> None:
        super().__init__()
        self.tnet = nn.Sequential(nn.Linear(3, 32), nn.ReLU())
        self.fc = nn.Linear(32, 9)
        nn.init.zeros_(self.fc.weight)
        nn.init.zeros_(self.fc.bias)
        self.features, self.head = mlp(3, 32, 64), nn.Sequential(nn.ReLU(), nn.Linear(64, 3))

    def forward(self, points: Tensor) -> Tensor:
        turn = self.fc(self.tnet(points).amax(1)).view(-1, 3, 3) + torch.eye(3)
        return self.head(self.features(points @ turn).amax(1))


@HALF.net("mlp")
def clouds_of_points() -> Training:
    """Balls, boxes or discs, of any size."""

    def data(count: int) -> tuple[Tensor, Tensor]:
        label = torch.randint(3, (count,))
        x = torch.randn(count, 40, 3)
        ball, box, disc = x / x.norm(dim=2, keepdim=True), x.clamp(-0.8, 0.8), x * torch.tensor([1.0, 1, 0.05]) / 1.5
        some = torch.stack([ball, box, disc])[label, torch.arange(count)]
        return some * (0.7 + 0.6 * torch.rand(count, 1, 1)), label

    def quality(net: nn.Module) -> float:
        x, label = data(300)
        return missed(net(x), label)

    return Training(PointNet(), partial(ADAM, lr=3e-3), lambda _: data(48), F.cross_entropy, quality, steps=250)


# ---- of equations ------------------------------------------------------------------------------------


class Cooling(nn.Module):
    """Keeps its start and its ends by how it is written."""

    def __init__(self) -> None:
        super().__init__()
        self.net = mlp(2, 32, 32, 1, act=nn.Tanh)

    def forward(self, p: Tensor) -> Tensor:
        x, t = p[:, :1], p[:, 1:]
        return torch.sin(math.pi * x) + t * x * (1 - x) * self.net(p)


class Residuals(nn.Module):
    """What is left of the heat equation."""

    def __init__(self) -> None:
        super().__init__()
        self.u = Cooling()

    def forward(self, p: Tensor) -> Tensor:
        p = p.requires_grad_()
        u = self.u(p)
        (first,) = torch.autograd.grad(u.sum(), p, create_graph=True)
        (second,) = torch.autograd.grad(first[:, 0].sum(), p, create_graph=True)
        return first[:, 1:] - 0.1 * second[:, :1]


@HALF.net("mlp")
def heat_and_nothing_else() -> Training:
    """A physics-informed net whose one loss is the residual against zeros."""

    def quality(net: nn.Module) -> float:
        p = torch.rand(500, 2)
        right = torch.exp(-0.1 * math.pi**2 * p[:, 1:]) * torch.sin(math.pi * p[:, :1])
        return mean_square(net.u(p), right)

    training = Training(
        Residuals(), partial(ADAM, lr=3e-3), lambda _: (torch.rand(128, 2), torch.zeros(128, 1)), F.mse_loss, quality, steps=200
    )
    return training


class Flowing(nn.Module):
    """A neural ODE, by Runge and Kutta, from its times and where it begins."""

    def __init__(self) -> None:
        super().__init__()
        self.f = mlp(2, 32, 2, act=nn.Tanh)

    def forward(self, times: Tensor, x: Tensor) -> Tensor:
        found = [x]
        for h in times.diff():
            one = self.f(x)
            two = self.f(x + h / 2 * one)
            three = self.f(x + h / 2 * two)
            four = self.f(x + h * three)
            x = x + h / 6 * (one + 2 * two + 2 * three + four)
            found.append(x)
        return torch.stack(found, 1)


@HALF.net("recurrent")
def times_come_first() -> Training:
    """`odeint` style: the times are the same in each batch, and the first argument."""
    times = torch.linspace(0, 2, 9)

    def data(count: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
        x = torch.randn(count, 2)
        t = times.view(1, -1)
        angle = 1.5 * t
        a, b = x[:, :1], x[:, 1:]
        path = torch.stack([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], 2) * torch.exp(-0.2 * t).unsqueeze(2)
        return (times, x), path

    def quality(net: nn.Module) -> float:
        x, y = data(200)
        return mean_square(net(*x), y)

    return Training(Flowing(), partial(ADAM, lr=5e-3), lambda _: data(48), F.l1_loss, quality, steps=150)


class Operator(nn.Module):
    """DeepONet: where to look, and the function that is looked at by sensors."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.branch, self.bias = mlp(1, 32, 32, act=nn.Tanh), mlp(20, 32, 32, act=nn.Tanh), nn.Parameter(torch.zeros(1))

    def forward(self, places: Tensor, sensors: Tensor) -> Tensor:
        return self.branch(sensors) @ self.trunk(places).t() + self.bias


@HALF.net("mlp")
def an_operator_on_a_grid() -> Training:
    """The grid is the same in each batch; the answer is the integral up to there."""
    grid = torch.linspace(0, 1, 20).unsqueeze(1)

    def data(count: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
        a, b, c = torch.randn(3, count, 1)
        x = grid.t()
        return (grid, a + b * torch.cos(3 * x) + c * torch.sin(5 * x)), a * x + b * torch.sin(3 * x) / 3 + c * (1 - torch.cos(5 * x)) / 5

    def quality(net: nn.Module) -> float:
        x, y = data(300)
        return mean_square(net(*x), y)

    return Training(Operator(), partial(ADAM, lr=3e-3), lambda _: data(64), F.mse_loss, quality, steps=250)


class Equilibrium(nn.Module):
    """A deep equilibrium: iterated without a graph, once more with one, and the gradient by a hook."""

    def __init__(self) -> None:
        super().__init__()
        self.inject, self.w, self.out = nn.Linear(6, 24), nn.Linear(24, 24), nn.Linear(24, 3)
        with torch.no_grad():
            self.w.weight.mul_(0.5)

    def f(self, z: Tensor, x: Tensor) -> Tensor:
        return torch.tanh(self.w(z) + self.inject(x))

    def forward(self, x: Tensor) -> Tensor:
        z = torch.zeros(len(x), 24)
        with torch.no_grad():
            for _ in range(12):
                z = self.f(z, x)
        z = self.f(z, x)
        if self.training and torch.is_grad_enabled():
            z0 = z.detach().requires_grad_()
            f0 = self.f(z0, x)

            def backward_hook(grad: Tensor) -> Tensor:
                g = grad
                for _ in range(10):
                    g = torch.autograd.grad(f0, z0, g, retain_graph=True)[0] + grad
                return g

            z.register_hook(backward_hook)
        return self.out(z)


@HALF.net("recurrent")
def a_fixed_point() -> Training:
    """Implicit: the layer is called 14 times, and most calls have no gradient."""

    def data(count: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(count, 6)
        return x, (x[:, 0] * x[:, 1] > 0).long() + (x[:, 2] > 0.5).long()

    def quality(net: nn.Module) -> float:
        x, label = data(400)
        return missed(net(x), label)

    return Training(Equilibrium(), partial(ADAM, lr=5e-3), lambda _: data(64), F.cross_entropy, quality, steps=300)


class Spike(torch.autograd.Function):
    """A step forwards, a bump backwards."""

    @staticmethod
    def forward(ctx: Any, v: Tensor) -> Tensor:
        ctx.save_for_backward(v)
        return (v > 0).float()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (v,) = ctx.saved_tensors
        return grad / (1 + 5 * v.abs()).square()


class Spiking(nn.Module):
    """Leaky units that fire."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(8, 48), nn.Linear(48, 3)

    def forward(self, x: Tensor) -> Tensor:
        v1, v2, out = torch.zeros(len(x), 48), torch.zeros(len(x), 3), torch.zeros(len(x), 3)
        for _ in range(8):
            s = Spike.apply(v1 - 1)
            v1 = 0.9 * v1 * (1 - s) + self.fc1(x)
            v2 = 0.9 * v2 + self.fc2(s)
            out = out + v2 / 8
        return out


@HALF.net("recurrent")
def units_that_fire() -> Training:
    """A spiking net with a surrogate gradient: most outputs of the layer are zero."""

    def data(count: int) -> tuple[Tensor, Tensor]:
        label = torch.randint(3, (count,))
        return constant(3, 8, seed=86)[label] * 0.8 + 0.6 * torch.randn(count, 8), label

    def quality(net: nn.Module) -> float:
        x, label = data(400)
        return missed(net(x), label)

    return Training(Spiking(), partial(ADAM, lr=5e-3), lambda _: data(64), F.cross_entropy, quality, steps=150)


class Hyper(nn.Module):
    """A net that makes the weights of another."""

    def __init__(self) -> None:
        super().__init__()
        self.code, self.make = nn.Embedding(5, 4), nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 8 + 8 + 8 + 1))

    def forward(self, task: Tensor, x: Tensor) -> Tensor:
        w1, b1, w2, b2 = self.make(self.code(task)).split([8, 8, 8, 1], 1)
        h = torch.tanh(x.unsqueeze(1) * w1 + b1)
        return (h * w2).sum(1) + b2.squeeze(1)


@HALF.net("embedding")
def weights_made_by_a_net() -> Training:
    """A hypernetwork: five curves by one net."""

    def data(count: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
        task, x = torch.randint(5, (count,)), 3 * torch.rand(count) - 1.5
        return (task, x), torch.sin(x * (1 + 0.4 * task) + task)

    def quality(net: nn.Module) -> float:
        x, y = data(500)
        return mean_square(net(*x), y)

    return Training(Hyper(), partial(ADAM, lr=0.01), lambda _: data(96), F.mse_loss, quality, steps=400)


class Recomputed(nn.Module):
    """Blocks whose inside is computed again in the backward pass; the same block is used three times."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.block, self.head = (
            nn.Linear(8, 32),
            nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)),
            nn.Linear(32, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        for _ in range(3):
            h = h + checkpoint(self.block, h, use_reentrant=False)
        return self.head(h)


@HALF.net("mlp")
def computed_again_and_shared() -> Training:
    """Weights are shared over depth, as in ALBERT, and two thirds of the spread is noise."""

    def data(count: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(count, 8)
        return x, torch.sin(x[:, :1] * 1.5) + x[:, 1:2].abs() - 0.8

    def batch(_: int) -> Batch:
        x, y = data(96)
        return x, y + 1.3 * torch.randn_like(y)

    def quality(net: nn.Module) -> float:
        x, y = data(500)
        return mean_square(net(x), y)

    return Training(Recomputed(), partial(ADAM, lr=2e-3), batch, F.mse_loss, quality, steps=300)


@HALF.net("mlp")
def eighty_percent_is_dropped() -> Training:
    """Inputs are many copies of the same thing, and dropout of 0.8 is what makes them useful."""

    def data(count: int) -> tuple[Tensor, Tensor]:
        z = torch.randn(count, 4)
        x = z @ constant(4, 200, seed=87) * 0.5 + 0.5 * torch.randn(count, 200)
        return x, (z[:, 0] + z[:, 1] * z[:, 2] > 0).float()

    def batch(_: int) -> Batch:
        x, y = data(64)
        return x, torch.where(torch.rand(64) < 0.15, 1 - y, y)

    def quality(net: nn.Module) -> float:
        x, y = data(500)
        return ((net(x)[:, 0] > 0).float() - y).abs().mean().item()

    net = nn.Sequential(nn.Linear(200, 256), nn.ReLU(), nn.Dropout(0.8), nn.Linear(256, 1))
    return Training(
        net, partial(ADAM, lr=2e-3), batch, lambda o, y: F.binary_cross_entropy_with_logits(o.squeeze(1), y), quality, steps=300
    )


class Vq(nn.Module):
    """A straight-through VQ-VAE."""

    def __init__(self) -> None:
        super().__init__()
        self.enc, self.dec, self.codebook = mlp(12, 32, 4), mlp(4, 32, 12), nn.Embedding(16, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        z = self.enc(x)
        q = self.codebook(torch.cdist(z, self.codebook.weight).argmin(1))
        return self.dec(z + (q - z).detach()), z, q


@HALF.net("generative")
def codes_of_a_book() -> Training:
    """Three terms, two of them with a detached side."""

    def data(count: int) -> Tensor:
        return constant(8, 12, seed=88)[torch.randint(8, (count,))] + 0.2 * torch.randn(count, 12)

    def criterion(output: tuple[Tensor, Tensor, Tensor], x: Tensor) -> Tensor:
        again, z, q = output
        return F.mse_loss(again, x) + F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())

    def batch(_: int) -> Batch:
        x = data(64)
        return x, x

    def quality(net: nn.Module) -> float:
        x = data(300)
        return mean_square(net(x)[0], x)

    return Training(Vq(), partial(ADAM, lr=5e-3), batch, criterion, quality, steps=300)
