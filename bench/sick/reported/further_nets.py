"""Transformers, generative nets and embeddings that learn: twins of the reported half."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.sick.reported.half import HALF
from bench.sick.training import Batch, Training

ADAM, ADAMW, RMSPROP, ADAGRAD = torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.Adagrad


def wrong(output: Tensor, label: Tensor) -> float:
    """Which share is not the label."""
    return (output.argmax(-1) != label).float().mean().item()


# ---- transformer -----------------------------------------------------------------------------------


class Block(nn.Module):
    """Attention, then two linear layers, each behind a norm and beside a way around."""

    def __init__(self, width: int, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.first_norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        query, key, value = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.project(self.first_norm(x)).chunk(3, 2))
        seen = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.feed(self.second_norm(x))


class Singer(nn.Module):
    """A language model of eight notes; a block of its own making, and learned places."""

    def __init__(self, width: int = 32, depth: int = 1) -> None:
        super().__init__()
        self.notes = nn.Embedding(8, width)
        self.places = nn.Parameter(0.02 * torch.randn(16, width))
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.logits = nn.Linear(width, 8, bias=False)

    def embedded(self, x: Tensor) -> Tensor:
        return self.notes(x) + self.places[: x.shape[1]]

    def mask(self, length: int) -> Tensor | None:
        """True where a place may look."""
        return torch.ones(length, length, dtype=torch.bool).tril()

    def forward(self, x: Tensor) -> Tensor:
        h, mask = self.embedded(x), self.mask(x.shape[1])
        for block in self.blocks:
            h = block(h, mask)
        return self.logits(self.norm(h))


def refrain_data(count: int) -> Tensor:
    """Seven notes, sung twice."""
    return torch.randint(8, (count, 7)).repeat(1, 2)


def next_note_loss(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output.reshape(-1, output.shape[-1]), target.reshape(-1))


@HALF.net("transformer")
def refrain() -> Training:
    """A language model of songs that repeat their first seven notes."""

    def batch(_: int) -> Batch:
        song = refrain_data(24)
        return song[:, :-1], song[:, 1:]

    def quality(net: nn.Module) -> float:
        """It hears eight notes, and sings on."""
        song = refrain_data(100)
        sung = song[:, :8]
        for _ in range(6):
            sung = torch.cat([sung, net(sung)[:, -1:].argmax(-1)], 1)
        return (sung[:, 8:] != song[:, 8:]).float().mean().item()

    return Training(Singer(), partial(ADAMW, lr=5e-3), batch, next_note_loss, quality, steps=300)


START, END = 7, 8


def mirror_data(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Words of two to five letters; what the decoder is given; and the same backwards, ended by END. Padded with 0."""
    word = torch.randint(1, 7, (count, 5))
    length = torch.randint(2, 6, (count, 1))
    place = torch.arange(5)
    word = torch.where(place < length, word, 0)
    back = torch.where(place < length, word.gather(1, (length - 1 - place).clamp(min=0)), 0)
    target = torch.cat([back, torch.zeros(count, 1, dtype=torch.long)], 1).scatter(1, length, END)
    given = torch.cat([torch.full((count, 1), START), target[:, :-1]], 1)
    return word, torch.where(given == END, 0, given), target


class Mirror(nn.Module):
    """An encoder and a decoder, as of `nn.Transformer`."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.source, self.sent = nn.Embedding(9, width, padding_idx=0), nn.Embedding(9, width, padding_idx=0)
        self.places = nn.Embedding(8, width)
        parts = {"nhead": 2, "dim_feedforward": 64, "dropout": 0.0, "activation": "gelu", "batch_first": True, "norm_first": True}
        encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, **parts), 1, nn.LayerNorm(width), enable_nested_tensor=False)
        self.core = nn.Transformer(width, num_decoder_layers=1, custom_encoder=encoder, **parts)
        self.logits = nn.Linear(width, 9)

    def placed(self, embedded: Tensor) -> Tensor:
        return embedded + self.places(torch.arange(embedded.shape[1]))

    def causal(self, length: int) -> Tensor | None:
        """True where a place must not look."""
        return torch.ones(length, length, dtype=torch.bool).triu(1)

    def forward(self, word: Tensor, given: Tensor) -> Tensor:
        padded = word == 0
        h = self.core(
            self.placed(self.source(word)),
            self.placed(self.sent(given)),
            tgt_mask=self.causal(given.shape[1]),
            src_key_padding_mask=padded,
            memory_key_padding_mask=padded,
        )
        return self.logits(h).log_softmax(-1)


def letters_loss(output: Tensor, target: Tensor) -> Tensor:
    return F.nll_loss(output.flatten(0, 1), target.flatten(), ignore_index=0)


@HALF.net("transformer")
def mirror() -> Training:
    """Words are read, and written backwards."""

    def batch(_: int) -> Batch:
        word, given, target = mirror_data(48)
        return (word, given), target

    def quality(net: nn.Module) -> float:
        """Letter by letter, each from those that it has written."""
        word, _given, target = mirror_data(150)
        written = torch.full((150, 1), START)
        for _ in range(target.shape[1]):
            written = torch.cat([written, net(word, written)[:, -1:].argmax(-1)], 1)
        return (written[:, 1:] != target)[target != 0].float().mean().item()

    return Training(Mirror(), partial(ADAM, lr=4e-3, betas=(0.9, 0.98)), batch, letters_loss, quality, steps=200)


SIGNS = torch.tensor(
    [
        [[1.0, 0, 0, 1], [0, 1, 1, 0], [0, 1, 1, 0], [1, 0, 0, 1]],
        [[0, 1, 1, 0], [1, 0, 0, 1], [1, 0, 0, 1], [0, 1, 1, 0]],
    ]
)


def signs_data(count: int) -> tuple[Tensor, Tensor]:
    """A cross or a ring in one of nine fields; noise in the others. Target: which field, which sign."""
    field, sign = torch.randint(9, (count,)), torch.randint(2, (count,))
    fields = 0.25 * torch.randn(count, 9, 4, 4)
    fields[torch.arange(count), field] += 1.5 * SIGNS[sign]
    images = fields.unflatten(1, (3, 3)).permute(0, 1, 3, 2, 4).reshape(count, 1, 12, 12)
    return images, torch.stack([field, sign], 1)


class Patches(nn.Module):
    """A vision transformer with two heads: where and what."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.cut = nn.Conv2d(1, width, 4, stride=4)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(0.1 * torch.randn(1, 10, width))
        self.blocks = nn.Sequential(Block(width, heads=3))
        self.where, self.what = nn.Linear(width, 9), nn.Linear(width, 2)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        patches = self.cut(images).flatten(2).transpose(1, 2)
        h = self.blocks(torch.cat([self.token.expand(len(images), -1, -1), patches], 1) + self.places)
        return {"where": self.where(h[:, 0]), "what": self.what(h[:, 0])}


def signs_loss(output: dict[str, Tensor], target: Tensor) -> Tensor:
    return F.cross_entropy(output["where"], target[:, 0]) + F.cross_entropy(output["what"], target[:, 1])


@HALF.net("transformer")
def signs() -> Training:
    """Where is the sign, and is it a cross or a ring? Epochs over 960 images."""
    images, target = signs_data(960)
    order = torch.randperm(960)

    def batch(number: int) -> Batch:
        nonlocal order
        if number % 30 == 0:
            order = torch.randperm(960)
        rows = order[number % 30 * 32 : number % 30 * 32 + 32]
        return images[rows], target[rows]

    def quality(net: nn.Module) -> float:
        x, y = signs_data(400)
        out = net(x)
        return (wrong(out["where"], y[:, 0]) + wrong(out["what"], y[:, 1])) / 2

    return Training(Patches(), partial(ADAMW, lr=3e-3, weight_decay=0.05), batch, signs_loss, quality, steps=180)


# ---- generative ------------------------------------------------------------------------------------

LEVELS = torch.linspace(0.1, 0.98, 8)
CORNERS = torch.tensor([[1.2, 0.4], [-0.4, 1.2], [-1.2, -0.4], [0.4, -1.2]])


def fog_data(count: int) -> tuple[dict[str, Tensor], Tensor]:
    """Points at four places, in noise of eight levels; target: the noise."""
    level, noise = torch.randint(8, (count,)), torch.randn(count, 2)
    share = LEVELS[level, None]
    clear = CORNERS[torch.randint(4, (count,))] + 0.05 * torch.randn(count, 2)
    return {"x": (1 - share.square()).sqrt() * clear + share * noise, "level": level}, noise


class Fog(nn.Module):
    """Tells the noise in a point, and is told its level."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.level = nn.Embedding(8, width)
        self.enter = nn.Linear(2, width)
        self.body = nn.Sequential(nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.noise = nn.Linear(width, 2)

    def forward(self, x: Tensor, level: Tensor) -> Tensor:
        return self.noise(self.body(self.enter(x) + self.level(level)))


@HALF.net("generative")
def fog() -> Training:
    """A denoiser, as in a diffusion model."""

    def quality(net: nn.Module) -> float:
        inputs, noise = fog_data(800)
        return F.mse_loss(net(**inputs), noise).item()

    return Training(Fog(), partial(ADAM, lr=5e-3), lambda _: fog_data(256), F.mse_loss, quality, steps=500)


def tiles_data(count: int) -> Tensor:
    """A bright rectangle in 8 by 8 pixels."""
    low, size = torch.randint(0, 5, (count, 2)), torch.randint(2, 5, (count, 2))
    place = torch.arange(8)
    row, column = ((place >= low[:, [axis]]) & (place < (low + size)[:, [axis]]) for axis in (0, 1))
    return (row[:, None, :, None] & column[:, None, None, :]).float()


class Tiles(nn.Module):
    """A variational autoencoder of convolutions, by a latent of six."""

    def __init__(self, latent: int = 6, channels: int = 12) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, channels, 3, 2, 1), nn.ELU(), nn.Conv2d(channels, 2 * channels, 3, 2, 1), nn.ELU(), nn.Flatten()
        )
        self.mean, self.spread = nn.Linear(8 * channels, latent), nn.Linear(8 * channels, latent)
        self.decoder = nn.Sequential(
            nn.Linear(latent, 8 * channels),
            nn.ELU(),
            nn.Unflatten(1, (2 * channels, 2, 2)),
            nn.ConvTranspose2d(2 * channels, channels, 4, 2, 1),
            nn.ELU(),
            nn.ConvTranspose2d(channels, 1, 4, 2, 1),
        )

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = self.encoder(image)
        mean, log_variance = self.mean(h), self.spread(h).clamp(-8, 8)
        latent = mean + (0.5 * log_variance).exp() * torch.randn_like(mean) if self.training else mean
        return self.decoder(latent), mean, log_variance


def divergence(mean: Tensor, log_variance: Tensor) -> Tensor:
    """Of the latent from a normal one, for each sample."""
    return 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(1)


def tiles_loss(output: tuple[Tensor, Tensor, Tensor], target: Tensor, weight: float = 0.1) -> Tensor:
    made, mean, log_variance = output
    error = F.binary_cross_entropy_with_logits(made, target, reduction="none").flatten(1).sum(1)
    return (error + weight * divergence(mean, log_variance)).mean()


@HALF.net("generative")
def tiles() -> Training:
    """A variational autoencoder of images."""

    def batch(_: int) -> Batch:
        image = tiles_data(64)
        return image, image

    def quality(net: nn.Module) -> float:
        image = tiles_data(300)
        return F.mse_loss(net(image)[0].sigmoid(), image).item()

    return Training(Tiles(), partial(RMSPROP, lr=2e-3), batch, tiles_loss, quality, steps=250)


def ring_data(count: int) -> Tensor:
    """Points near a circle."""
    angle = 6.2832 * torch.rand(count)
    return (2 + 0.1 * torch.randn(count, 1)) * torch.stack([angle.cos(), angle.sin()], 1) + 1


def apart(some: Tensor, others: Tensor) -> Tensor:
    """The energy distance of two clouds of points: zero if they are alike."""
    return 2 * torch.cdist(some, others).mean() - torch.cdist(some, some).mean() - torch.cdist(others, others).mean()


class Forgers(nn.Module):
    """A generator of points, and a critic that tells them from real ones."""

    def __init__(self) -> None:
        super().__init__()
        self.forger = nn.Sequential(nn.Linear(4, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 2))
        self.critic = nn.Sequential(nn.Linear(2, 48), nn.LeakyReLU(0.2), nn.Linear(48, 48), nn.LeakyReLU(0.2), nn.Linear(48, 1))

    def forward(self, count: Tensor) -> Tensor:
        return self.forger(torch.randn(len(count), 4))


def hinge_step(training: Training, number: int) -> None:
    """The critic wants real points above one and forged ones below minus one; the forger wants them high."""
    real, _ = training.batch(number)
    net, (critics,) = training.model, training.others
    forged = net(real)
    critics.zero_grad()
    (F.relu(1 - net.critic(real)).mean() + F.relu(1 + net.critic(forged.detach())).mean()).backward()
    critics.step()
    training.optimizer.zero_grad()
    (-net.critic(forged).mean()).backward()
    training.optimizer.step()


@HALF.net("generative")
def ring() -> Training:
    """A GAN of points on a circle, with the hinge loss."""

    def batch(_: int) -> Batch:
        real = ring_data(64)
        return real, real

    def quality(net: nn.Module) -> float:
        return apart(net(torch.empty(500, 1)), ring_data(500)).item()

    net = Forgers()
    make = partial(ADAM, betas=(0.5, 0.99))
    training = Training(net, lambda _: make(net.forger.parameters(), lr=1e-3), batch, F.mse_loss, quality, steps=600, step=hinge_step)
    training.others = (make(net.critic.parameters(), lr=4e-3),)
    return training


# ---- embedding -------------------------------------------------------------------------------------


class Towers(nn.Module):
    """A picture and its caption, each in a tower of its own; with a scale that is learned."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.picture = nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.Linear(48, width))
        self.words = nn.Embedding(30, 24)
        self.caption = nn.Sequential(nn.LayerNorm(24), nn.Linear(24, width))
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, picture: Tensor, caption: Tensor) -> tuple[Tensor, Tensor]:
        seen, told = self.picture(picture), self.caption(self.words(caption).mean(1))
        return F.normalize(seen, dim=1) * self.scale.exp(), F.normalize(told, dim=1)


def captions_loss(output: tuple[Tensor, Tensor], target: Tensor) -> Tensor:
    """Each picture finds its caption, and each caption its picture."""
    alike = output[0] @ output[1].T
    return (F.cross_entropy(alike, target) + F.cross_entropy(alike.T, target)) / 2


@HALF.net("embedding")
def captions() -> Training:
    """Which caption belongs to which picture? Each picture shows three of thirty things."""
    looks = torch.randn(30, 24) / 2

    def data(count: int) -> tuple[Tensor, Tensor]:
        things = torch.rand(count, 30).topk(3, 1).indices
        return looks[things].sum(1) + 0.3 * torch.randn(count, 24), things

    def quality(net: nn.Module) -> float:
        seen, told = net(*data(100))
        return wrong(seen @ told.T, torch.arange(100))

    return Training(Towers(), partial(ADAMW, lr=5e-3), lambda _: (data(40), torch.arange(40)), captions_loss, quality, steps=300)


class Kin(nn.Module):
    """Embeds three samples alike: an anchor, one of its kind and one of another."""

    def __init__(self, inputs: int = 16) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(inputs, 64), nn.Softplus(), nn.Linear(64, 6))

    def forward(self, *samples: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.embed(one) for one in samples)


def triplet_loss(output: tuple[Tensor, ...], target: Tensor) -> Tensor:
    return F.triplet_margin_loss(*output, margin=1.0)


@HALF.net("embedding")
def kin() -> Training:
    """Samples of one of twelve kinds come near each other."""
    kinds, turned = torch.randn(12, 4), torch.linalg.qr(torch.randn(16, 16))[0]

    def drawn(kind: Tensor) -> Tensor:
        return torch.cat([kinds[kind] + 0.2 * torch.randn(len(kind), 4), 2 * torch.randn(len(kind), 12)], 1) @ turned

    def batch(_: int) -> Batch:
        kind = torch.randint(12, (64,))
        other = (kind + torch.randint(1, 12, (64,))) % 12
        return (drawn(kind), drawn(kind), drawn(other)), kind

    def quality(net: nn.Module) -> float:
        """Of which kind is the nearest one?"""
        kind, asked = torch.arange(12).repeat(20), torch.arange(12).repeat(20)
        near = torch.cdist(net.embed(drawn(asked)), net.embed(drawn(kind))).argmin(1)
        return (kind[near] != asked).float().mean().item()

    return Training(Kin(), partial(ADAM, lr=5e-3), batch, triplet_loss, quality, steps=350)


class Topics(nn.Module):
    """Texts as bags of words; each has some of five topics."""

    def __init__(self, padding_idx: int | None = 0, width: int = 16) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(41, width, mode="mean", padding_idx=padding_idx)
        self.topics = nn.Linear(width, 5)

    def forward(self, text: Tensor) -> Tensor:
        return self.topics(self.words(text))


def topics_data(count: int) -> tuple[Tensor, Tensor]:
    """Words 1 to 5 stand for the topics, the others for none; padded with 0."""
    target = (torch.rand(count, 5) < 0.3).float()
    text = torch.randint(6, 41, (count, 12))
    text[:, :5] = torch.where(target > 0, torch.arange(1, 6), text[:, :5])
    text[:, 5:][torch.rand(count, 7) < 0.4] = 0
    return text, target


@HALF.net("embedding")
def topics() -> Training:
    """Which topics has a text? Several may be right."""
    texts, target = topics_data(1500)

    def batch(number: int) -> Batch:
        rows = torch.arange(number * 50, number * 50 + 50) % 1500
        return texts[rows], target[rows]

    def quality(net: nn.Module) -> float:
        text, topics = topics_data(400)
        return ((net(text) > 0).float() != topics).float().mean().item()

    return Training(Topics(), partial(ADAGRAD, lr=0.3), batch, F.binary_cross_entropy_with_logits, quality, steps=300)
