"""Trainings in other ways: patches with a class token, diffusion, teacher forcing, a pointer, two towers, a set with attention."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.sick.training import Batch, Training
from bench.sick.working.fourth_nets import constant, sliced
from bench.sick.working.half import HALF
from bench.sick.working.ninth_papers import far
from bench.sick.working.third_nets import ADAM, ADAMW, missed

# ---- patches: in which quarter is the spot? ------------------------------------------------------------


def spots(count: int, size: int = 16) -> tuple[Tensor, Tensor]:
    x = 0.4 * torch.randn(count, 1, size, size)
    row, col = torch.randint(0, size - 3, (count,)), torch.randint(0, size - 3, (count,))
    for n in range(count):
        x[n, 0, row[n] : row[n] + 3, col[n] : col[n] + 3] += 2
    return x, (row + 1 >= size // 2).long() * 2 + (col + 1 >= size // 2).long()


class ViT(nn.Module):
    def __init__(self, patch: int = 4, dim: int = 32, depth: int = 2, heads: int = 4, classes: int = 4) -> None:
        super().__init__()
        self.to_patch = nn.Conv2d(1, dim, patch, patch)
        self.cls_token = nn.Parameter(0.02 * torch.randn(1, 1, dim))
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, 17, dim))
        layer = nn.TransformerEncoderLayer(dim, heads, 2 * dim, 0.0, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, classes)

    def embed(self, x: Tensor) -> Tensor:
        x = self.to_patch(x).flatten(2).transpose(1, 2)
        return torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1) + self.pos_embed

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.encoder(self.embed(x)))[:, 0])


class ImageTrainer:
    def __init__(self, training: Training) -> None:
        self.model, self.optimizer, self.criterion = training.model, training.optimizer, training.criterion
        self.history: list[float] = []

    def train_step(self, images: Tensor, labels: Tensor) -> None:
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.criterion(self.model(images), labels)
        loss.backward()
        self.optimizer.step()
        self.history.append(loss.item())


@HALF.net("transformer")
def spots_by_patches() -> Training:
    def quality(net: nn.Module) -> float:
        x, y = spots(300)
        return missed(net(x), y)

    made: list[ImageTrainer] = []

    def step(training: Training, number: int) -> None:
        if not made:
            made.append(ImageTrainer(training))
        made[0].train_step(*training.batch(number))

    return Training(ViT(), partial(ADAMW, lr=2e-3), sliced(*spots(1600), 64), nn.CrossEntropyLoss(), quality, steps=150, step=step)


@HALF.fault("overwritten activation", spots_by_patches, also=("unused layers",))
def the_head_reads_the_class_token_of_before(training: Training) -> None:
    class Before(ViT):
        def forward(self, x: Tensor) -> Tensor:
            x = self.embed(x)
            self.tokens = self.encoder(x)
            cls = x[:, 0]
            return self.head(self.norm(cls))

    training.use(Before())


# ---- diffusion -------------------------------------------------------------------------------------------


def moons(count: int) -> Tensor:
    t, which = math.pi * torch.rand(count), torch.rand(count) < 0.5
    x, y = torch.where(which, t.cos(), 1 - t.cos()), torch.where(which, t.sin(), 0.5 - t.sin())
    return torch.stack([x - 0.5, y - 0.25], 1) * 1.4 + 0.08 * torch.randn(count, 2)


class TimeMLP(nn.Module):
    def __init__(self, steps: int = 40, hidden: int = 64) -> None:
        super().__init__()
        self.emb = nn.Embedding(steps, 16)
        self.net = nn.Sequential(nn.Linear(18, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, 2))

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self.net(torch.cat([x, self.emb(t)], 1))


class GaussianDiffusion:
    """Is no module: it holds the schedule."""

    def __init__(self, steps: int = 40) -> None:
        self.steps = steps
        self.betas = torch.linspace(1e-3, 0.2, steps)
        self.alphas = 1 - self.betas
        self.bar = self.alphas.cumprod(0)

    def q_sample(self, x0: Tensor, t: Tensor, noise: Tensor) -> Tensor:
        return self.bar[t].sqrt()[:, None] * x0 + (1 - self.bar[t]).sqrt()[:, None] * noise

    def predicted(self, model: nn.Module, x: Tensor, t: Tensor) -> Tensor:
        return model(x, t)

    def training_losses(self, model: nn.Module, x0: Tensor) -> Tensor:
        t, noise = torch.randint(0, self.steps, (len(x0),)), torch.randn_like(x0)
        return F.mse_loss(self.predicted(model, self.q_sample(x0, t, noise), t), noise)

    def sample(self, model: nn.Module, count: int) -> Tensor:
        x = torch.randn(count, 2)
        for i in reversed(range(self.steps)):
            x = (x - self.betas[i] / (1 - self.bar[i]).sqrt() * model(x, torch.full((count,), i))) / self.alphas[i].sqrt()
            if i:
                x = x + self.betas[i].sqrt() * torch.randn_like(x)
        return x


def of_diffusion(training: Training, diffusion: GaussianDiffusion) -> None:
    def step(training: Training, number: int) -> None:
        loss = diffusion.training_losses(training.model, training.batch(number)[0])
        training.optimizer.zero_grad()
        loss.backward()
        training.optimizer.step()

    training.step = step


@HALF.net("generative")
def moons_by_diffusion() -> Training:
    def quality(net: nn.Module) -> float:
        made = GaussianDiffusion().sample(net, 400)
        return min(far(made, moons(400)), 1.0) if made.isfinite().all() else 1.0

    def batch(_: int) -> Batch:
        return moons(128), torch.zeros(128)

    training = Training(TimeMLP(), partial(ADAM, lr=4e-3), batch, lambda out, _: out, quality, steps=350)
    of_diffusion(training, GaussianDiffusion())
    return training


@HALF.fault("noise level hidden", moons_by_diffusion)
def time_is_divided_by_all_steps_and_made_an_integer(training: Training) -> None:
    class Scaled(GaussianDiffusion):
        def predicted(self, model: nn.Module, x: Tensor, t: Tensor) -> Tensor:
            return model(x, (t / self.steps).long())

    of_diffusion(training, Scaled())


@HALF.fault("rate too high", moons_by_diffusion, also=("not finite by the rate",))
def the_rate_of_an_old_config(training: Training) -> None:
    training.optimize = partial(ADAM, lr=0.4)
    training.use(training.model)


# ---- teacher forcing -------------------------------------------------------------------------------------

PAD, SOS, EOS, WORDS = 0, 1, 2, 12


def sentences(count: int, longest: int = 6) -> tuple[Tensor, Tensor]:
    """Words, and each of them translated, in reverse order."""
    length = torch.randint(2, longest + 1, (count,))
    src, tgt = torch.zeros(count, longest, dtype=torch.long), torch.zeros(count, longest + 2, dtype=torch.long)
    for n, many in enumerate(length.tolist()):
        words = torch.randint(3, WORDS, (many,))
        src[n, :many] = words
        tgt[n, 0], tgt[n, many + 1] = SOS, EOS
        tgt[n, 1 : many + 1] = 3 + (words.flip(0) + 1) % (WORDS - 3)
    return src, tgt


class Seq2Seq(nn.Module):
    def __init__(self, hid: int = 64) -> None:
        super().__init__()
        self.src_embedding, self.tgt_embedding = nn.Embedding(WORDS, 24, padding_idx=PAD), nn.Embedding(WORDS, 24, padding_idx=PAD)
        self.encoder, self.decoder = nn.GRU(24, hid, batch_first=True), nn.GRU(24, hid, batch_first=True)
        self.fc_out = nn.Linear(hid, WORDS)

    def forced(self, tgt: Tensor) -> Tensor:
        return tgt[:, :-1]

    def encode(self, src: Tensor) -> Tensor:
        return self.encoder(self.src_embedding(src.flip(1)))[1]

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        output, _ = self.decoder(self.tgt_embedding(self.forced(tgt)), self.encode(src))
        return self.fc_out(output)

    def translate(self, src: Tensor, steps: int) -> Tensor:
        hidden, token, words = self.encode(src), torch.full((len(src), 1), SOS), []
        for _ in range(steps):
            output, hidden = self.decoder(self.tgt_embedding(token), hidden)
            token = self.fc_out(output).argmax(-1)
            words.append(token)
        return torch.cat(words, 1)


@HALF.net("recurrent")
def translation_by_teacher_forcing() -> Training:
    src, tgt = sentences(1500)
    criterion = nn.CrossEntropyLoss(ignore_index=PAD)

    def batch(_: int) -> Batch:
        rows = torch.randint(1500, (64,))
        return (src[rows], tgt[rows]), tgt[rows]

    def step(training: Training, number: int) -> None:
        inputs, tgt = training.batch(number)
        training.optimizer.zero_grad()
        output = training.model(*inputs)
        loss = criterion(output.reshape(-1, output.shape[-1]), tgt[:, 1:].reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(training.model.parameters(), 1.0)
        training.optimizer.step()

    def quality(net: Any) -> float:
        src, tgt = sentences(200)
        want = tgt[:, 1:]
        return (net.translate(src, want.shape[1]) != want)[want != PAD].float().mean().item()

    return Training(Seq2Seq(), partial(ADAM, lr=5e-3), batch, criterion, quality, steps=280, step=step)


@HALF.fault("targets not moved", translation_by_teacher_forcing, also=("sees the future", "leak"))
def the_decoder_is_fed_what_it_should_say(training: Training) -> None:
    class Fed(Seq2Seq):
        def forced(self, tgt: Tensor) -> Tensor:
            return tgt[:, 1:]

    training.use(Fed())


# ---- a pointer -------------------------------------------------------------------------------------------


def slots(count: int, most: int = 8) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor]:
    """Keys, some of which are there, a query, and which key it is for."""
    length, keys = torch.randint(3, most + 1, (count,)), torch.randn(count, most, 6)
    mask, label = torch.arange(most)[None] < length[:, None], (torch.rand(count) * length).long()
    query = keys[torch.arange(count), label] @ constant(6, 6, seed=1611) + 0.2 * torch.randn(count, 6)
    return (torch.where(mask[..., None], keys, 3 * torch.randn(count, most, 6)), query, mask), label


class PointerNet(nn.Module):
    def __init__(self, dim: int = 32) -> None:
        super().__init__()
        self.w1, self.w2, self.v = nn.Linear(6, dim), nn.Linear(6, dim), nn.Linear(dim, 1, bias=False)

    def score(self, keys: Tensor, query: Tensor) -> Tensor:
        return self.v(torch.tanh(self.w1(keys) + self.w2(query)[:, None])).squeeze(-1)

    def forward(self, keys: Tensor, query: Tensor, mask: Tensor) -> Tensor:
        return self.score(keys, query).masked_fill(~mask, -1e9)


@HALF.net("mlp")
def pointing_at_a_slot() -> Training:
    (keys, query, mask), label = slots(2000)

    def batch(_: int) -> Batch:
        rows = torch.randint(2000, (64,))
        return (keys[rows], query[rows], mask[rows]), label[rows]

    def quality(net: Any) -> float:
        (keys, query, mask), label = slots(400)
        return missed(net.score(keys, query).masked_fill(~mask, -1e9), label)

    return Training(PointerNet(), partial(ADAM, lr=1e-2), batch, nn.CrossEntropyLoss(), quality, steps=300)


@HALF.fault("mask turned around", pointing_at_a_slot)
def scores_are_filled_where_there_is_a_key(training: Training) -> None:
    class Turned(PointerNet):
        def forward(self, keys: Tensor, query: Tensor, mask: Tensor) -> Tensor:
            return self.score(keys, query).masked_fill(mask, -1e4)

    training.use(Turned())


# ---- two towers ------------------------------------------------------------------------------------------

USERS, ITEMS = 80, 60


class Tower(nn.Module):
    def __init__(self, count: int, dim: int = 16) -> None:
        super().__init__()
        self.emb, self.mlp = nn.Embedding(count, dim), nn.Sequential(nn.Linear(dim, 32), nn.ReLU(), nn.Linear(32, dim))
        nn.init.normal_(self.emb.weight, 0, 0.3)

    def forward(self, ids: Tensor) -> Tensor:
        return F.normalize(self.mlp(self.emb(ids)), dim=-1)


class TwoTower(nn.Module):
    """Its output is its loss: each user's item against those of the other users."""

    def __init__(self) -> None:
        super().__init__()
        self.user, self.item = Tower(USERS), Tower(ITEMS)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        return F.cross_entropy(self.user(user) @ self.item(item).T / 0.1, torch.arange(len(user)))


@HALF.net("embedding")
def items_for_users() -> Training:
    def batch(_: int) -> Batch:
        user = torch.randint(USERS, (40,))
        return (user, (user * 7 % 10 + 10 * torch.randint(6, (40,))) % ITEMS), torch.zeros(40)

    def quality(net: Any) -> float:
        user = torch.randint(USERS, (300,))
        top = (net.user(user) @ net.item(torch.arange(ITEMS)).T).topk(6, 1).indices
        return (top % 10 != (user * 7 % 10)[:, None]).float().mean().item()

    return Training(TwoTower(), partial(ADAM, lr=1e-2), batch, lambda loss, _: loss, quality, steps=250)


@HALF.fault("all weights equal", items_for_users)
def towers_begin_as_constants(training: Training) -> None:
    for parameter in training.model.parameters():
        nn.init.constant_(parameter, 0.1)


# ---- a set with attention --------------------------------------------------------------------------------


class SetNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.phi = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.att, self.rho = nn.Linear(32, 1), nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))

    def weights(self, h: Tensor) -> Tensor:
        return F.softmax(self.att(h), dim=1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.phi(x)
        return self.rho((self.weights(h) * h).sum(1))


def bags(count: int, size: int = 10) -> tuple[Tensor, Tensor]:
    """One of each set is marked: which way does it point?"""
    x = torch.randn(count, size, 3) * torch.tensor([1.0, 1.0, 0.1])
    rows, at = torch.arange(count), torch.randint(size, (count,))
    x[rows, at, 2] = 2.0
    way = x[rows, at, 0]
    return x, (way > 0.43).long() + (way > -0.43).long()


@HALF.net("mlp")
def the_marked_one_of_a_set() -> Training:
    def quality(net: nn.Module) -> float:
        x, y = bags(400)
        return missed(net(x), y)

    return Training(SetNet(), partial(ADAM, lr=5e-3), sliced(*bags(2000), 64), nn.CrossEntropyLoss(), quality, steps=250)


@HALF.fault("softmax over the wrong dimension", the_marked_one_of_a_set)
def attention_over_the_sets_of_a_batch(training: Training) -> None:
    class Over(SetNet):
        def weights(self, h: Tensor) -> Tensor:
            return F.softmax(self.att(h), dim=0)

    training.use(Over())
