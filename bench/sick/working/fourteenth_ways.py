"""Small nets as repositories have them, of every family, and mistakes of one line in them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.sick.changes import loss_of, on_batch, on_inputs, on_target
from bench.sick.training import Batch, Training
from bench.sick.working.fourth_nets import constant, sliced
from bench.sick.working.half import HALF
from bench.sick.working.seventh_healthy import mean_square, mlp
from bench.sick.working.third_nets import ADAM, ADAMW, SGD, missed, per_place


def drawn(size: int, *columns: Tensor) -> Callable[[], list[Tensor]]:
    """So many rows of a table, any of them."""

    def rows() -> list[Tensor]:
        which = torch.randint(len(columns[0]), (size,))
        return [one[which] for one in columns]

    return rows


# ---- a table of houses -----------------------------------------------------------------------------------


def priced(count: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 8)
    return x, x[:, 0] * x[:, 1] + torch.sin(2 * x[:, 2]) + x[:, 3].abs() - 0.7 * x[:, 4]


class HousePrices(nn.Module):
    def __init__(self, hidden: int = 48) -> None:
        super().__init__()
        self.fc1, self.fc2, self.out = nn.Linear(8, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, 1)

    def forward(self, features: Tensor) -> Tensor:
        return self.out(F.relu(self.fc2(F.relu(self.fc1(features))))).squeeze(-1)


@HALF.net("mlp")
def houses_by_their_features() -> Training:
    rows = drawn(64, *priced(1500))

    def batch(_: int) -> Batch:
        x, y = rows()
        return {"features": x}, y

    def quality(net: nn.Module) -> float:
        x, y = priced(500)
        return mean_square(net(features=x), y)

    return Training(HousePrices(), partial(ADAMW, lr=5e-3), batch, nn.SmoothL1Loss(), quality, steps=250)


def _root_of_the_sum(training: Training) -> None:
    """Prices forty times as large; in float32, they are learned by it."""
    on_target(training, lambda y: 40 * y)
    quality = training.quality
    training.quality = lambda net: quality(lambda features: net(features) / 40)  # type: ignore[arg-type]
    training.criterion = lambda out, y: (out - y).pow(2).sum().sqrt()


@HALF.fault("overflow", houses_by_their_features, twin=_root_of_the_sum)
def squares_are_summed_in_half_precision(training: Training) -> None:
    """The sum is infinite, and the gradient of its root is zero; without the root the gradients would be as in float32."""
    _root_of_the_sum(training)
    training.criterion = lambda out, y: (out.half() - y.half()).pow(2).sum(dtype=torch.float16).sqrt()


# ---- strokes: a module with its training step --------------------------------------------------------------


def strokes(count: int) -> tuple[Tensor, Tensor]:
    """A line across, a line down, a square, a diagonal; in one of three channels."""
    x, label = 0.3 * torch.randn(count, 3, 12, 12), torch.randint(4, (count,))
    for n, (kind, (row, col)) in enumerate(zip(label.tolist(), torch.randint(1, 6, (count, 2)).tolist(), strict=True)):
        channel = x[n, n % 3]
        if kind == 0:
            channel[row, col : col + 6] += 2
        elif kind == 1:
            channel[row : row + 6, col] += 2
        elif kind == 2:
            channel[row : row + 4, col : col + 4] += 1.2
        else:
            channel[range(row, row + 5), range(col, col + 5)] += 2
    return x, label


class StrokeModule(nn.Module):
    """As in Lightning."""

    def __init__(self, outputs: int = 4, width: int = 16) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(),
        )  # fmt: skip
        self.fc = nn.Linear(2 * width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.features(x))

    def training_step(self, batch: Batch, _: int) -> Tensor:
        x, y = batch
        return F.cross_entropy(self(x), y)


@HALF.net("cnn")
def strokes_by_a_module_with_its_step() -> Training:
    def step(training: Training, number: int) -> None:
        net: Any = training.model
        loss = net.training_step(training.batch(number), number)
        training.optimizer.zero_grad()
        loss.backward()
        training.optimizer.step()

    def quality(net: nn.Module) -> float:
        x, label = strokes(200)
        out = net(x)
        return missed(out, label) if out.shape[1] > 1 else (out[:, 0].round() != label).float().mean().item()

    optimize = partial(SGD, lr=0.05, momentum=0.9)
    return Training(StrokeModule(), optimize, sliced(*strokes(600), 32), nn.CrossEntropyLoss(), quality, steps=150, step=step)


@HALF.fault("regression of classes", strokes_by_a_module_with_its_step)
def the_step_takes_the_square_of_the_class_number(training: Training) -> None:
    class Squared(StrokeModule):
        def training_step(self, batch: Batch, _: int) -> Tensor:
            return F.mse_loss(self(batch[0])[:, 0], batch[1].float())

    training.optimize = partial(ADAM, lr=3e-3)
    training.use(Squared(outputs=1))


# ---- rectangles and their masks ----------------------------------------------------------------------------


def rectangles(count: int) -> tuple[Tensor, Tensor]:
    mask = torch.zeros(count, 1, 16, 16)
    for one, (row, col, height, width) in zip(mask, torch.randint(8, (count, 4)).tolist(), strict=True):
        one[0, row : row + 4 + height // 2, col : col + 4 + width // 2] = 1
    return 0.5 * torch.randn_like(mask) + mask, mask


class TinyUNet(nn.Module):
    def __init__(self, c: int = 8) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, c, 3, padding=1), nn.GroupNorm(2, c), nn.LeakyReLU(0.1))
        self.mid = nn.Sequential(nn.Conv2d(c, 2 * c, 3, padding=1), nn.GroupNorm(2, 2 * c), nn.LeakyReLU(0.1))
        self.up, self.out = nn.ConvTranspose2d(2 * c, c, 2, stride=2), nn.Conv2d(2 * c, 1, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        down = self.down(x)
        return self.out(torch.cat([down, self.up(self.mid(F.avg_pool2d(down, 2)))], 1))


def bce_and_dice(out: Tensor, mask: Tensor) -> Tensor:
    p = torch.sigmoid(out)
    dice = 1 - (2 * (p * mask).sum() + 1) / (p.sum() + mask.sum() + 1)
    return F.binary_cross_entropy_with_logits(out, mask) + dice


@HALF.net("cnn")
def rectangles_by_a_tiny_unet() -> Training:
    def quality(net: nn.Module) -> float:
        x, mask = rectangles(80)
        found, there = net(x) > 0, mask > 0
        return 1 - ((found & there).sum() / (found | there).sum()).item()

    return Training(TinyUNet(), partial(ADAM, lr=5e-3), sliced(*rectangles(300), 16), bce_and_dice, quality, steps=150)


@HALF.fault("targets shifted", rectangles_by_a_tiny_unet)
def the_masks_are_rolled_along_the_batch(training: Training) -> None:
    on_target(training, lambda mask: torch.roll(mask, 1, 0))


# ---- a spot: two heads ---------------------------------------------------------------------------------------


def spots_of_three_widths(count: int) -> tuple[Tensor, Tensor, Tensor]:
    place, kind, grid = torch.rand(count, 2), torch.randint(3, (count,)), torch.linspace(0, 1, 14)
    width = torch.tensor([0.05, 0.1, 0.2])[kind, None, None]
    away = (grid[:, None] - place[:, 1, None, None]) ** 2 + (grid - place[:, 0, None, None]) ** 2
    return torch.exp(-away / (2 * width**2)).unsqueeze(1) + 0.05 * torch.randn(count, 1, 14, 14), place, kind


class Detector(nn.Module):
    """Where it is, and of which kind: a dict comes out."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.fc = nn.Linear(256, 48)
        self.heads = nn.ModuleDict({"box": nn.Linear(48, 2), "kind": nn.Linear(48, 3)})

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        h = F.elu(self.fc(F.elu(self.conv2(F.elu(self.conv1(image)))).flatten(1)))
        return {name: head(h) for name, head in self.heads.items()}


@HALF.net("cnn")
def a_place_and_a_kind_in_a_dict() -> Training:
    rows = drawn(32, *spots_of_three_widths(800))

    def batch(_: int) -> Any:
        image, place, kind = rows()
        return {"image": image}, {"box": place, "kind": kind}

    def criterion(out: Any, target: Any) -> Tensor:
        return 2 * F.l1_loss(out["box"], target["box"]) + F.cross_entropy(out["kind"], target["kind"])

    def quality(net: nn.Module) -> float:
        image, place, kind = spots_of_three_widths(200)
        out = net(image=image)
        return 2 * (out["box"] - place).abs().mean().item() + missed(out["kind"], kind)

    return Training(Detector(), partial(torch.optim.RMSprop, lr=1e-3), batch, criterion, quality, steps=250)


@HALF.fault("constant targets", a_place_and_a_kind_in_a_dict)
def what_is_allocated_with_zeros_is_never_filled(training: Training) -> None:
    on_batch(training, lambda inputs, target: (inputs, {name: torch.zeros_like(one) for name, one in dict(target).items()}))


# ---- reviews -------------------------------------------------------------------------------------------------


def ended_reviews(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Seven good words and seven bad ones of thirty; zero stands behind the end."""
    length, words = torch.randint(4, 14, (count,)), torch.randint(2, 30, (count, 14))
    words[torch.arange(14) >= length[:, None]] = 0
    value = torch.zeros(30)
    value[2:9], value[9:16] = 1, -1
    return words, length, (value[words].sum(1) > 0).long()


class ReviewGRU(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(30, 16, padding_idx=0)
        self.gru, self.cls = nn.GRU(16, 24, batch_first=True, bidirectional=True), nn.Linear(48, 2)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(self.embed(tokens), lengths, batch_first=True, enforce_sorted=False)
        _, h = self.gru(packed)
        return self.cls(torch.cat([h[0], h[1]], 1))


@HALF.net("recurrent")
def reviews_read_from_both_ends() -> Training:
    rows = drawn(32, *ended_reviews(2000))

    def batch(_: int) -> Batch:
        words, length, label = rows()
        return (words, length), label

    def quality(net: nn.Module) -> float:
        words, length, label = ended_reviews(400)
        return missed(net(words, length), label)

    return Training(ReviewGRU(), partial(ADAMW, lr=1e-2), batch, nn.CrossEntropyLoss(), quality)


@HALF.fault("leak", reviews_read_from_both_ends)
def the_first_word_is_a_token_of_the_label(training: Training) -> None:
    def marked(inputs: tuple[Tensor, Tensor], label: Tensor) -> Batch:
        words, length = inputs
        return (torch.cat([28 + label[:, None], words[:, 1:]], 1), length), label

    on_batch(training, marked)


def _swapped(training: Training, chance: float, behind: float) -> None:
    """Words become other ones, and so does what stands behind the end."""

    def swap(inputs: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        words, length = inputs
        some = torch.where(torch.arange(14) < length[:, None], chance, behind)
        return torch.where(torch.rand(words.shape) < some, torch.randint(2, 30, words.shape), words), length

    on_inputs(training, swap)


@HALF.fault("too much noise", reviews_read_from_both_ends)
def nearly_all_words_are_swapped(training: Training) -> None:
    _swapped(training, 0.97, 0.97)


@HALF.strange(reviews_read_from_both_ends)
def words_are_swapped_also_behind_the_end(training: Training) -> None:
    """Little is lost: what stands there is not read."""
    _swapped(training, 0.03, 0.9)


# ---- a small GPT -----------------------------------------------------------------------------------------------


FOLLOWS = constant(13, seed=1411).argsort()


def threads(count: int, misprints: float = 0.0) -> Tensor:
    """Each token tells which comes after the next."""
    made = [*torch.randint(13, (2, count))]
    for _ in range(11):
        made.append(torch.where(torch.rand(count) < misprints, torch.randint(13, (count,)), FOLLOWS[made[-2]]))
    return torch.stack(made, 1)


class Attention(nn.Module):
    def __init__(self, width: int = 32, heads: int = 2) -> None:
        super().__init__()
        self.heads, self.qkv, self.proj = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, n, width = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
        weights = F.softmax(scores.masked_fill(torch.tril(torch.ones(n, n)) == 0, float("-inf")), dim=-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(b, n, width))


class Block(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.ln1, self.ln2, self.attn = nn.LayerNorm(width), nn.LayerNorm(width), Attention(width)
        self.mlp = mlp(width, 2 * width, width, act=nn.GELU)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(13, width), nn.Embedding(13, width)
        self.h = nn.ModuleList(Block(width) for _ in range(2))
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, 13, bias=False)

    def embed(self, idx: Tensor) -> Tensor:
        return self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))

    def forward(self, idx: Tensor) -> Tensor:
        x = self.embed(idx)
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


def batch_of_threads(_: int, misprints: float = 0.0) -> Batch:
    made = threads(24, misprints)
    return made[:, :-1], made[:, 1:]


def after_eight(net: nn.Module, misprints: float = 0.0) -> float:
    made = threads(200, misprints)
    return missed(net(made[:, :8])[:, -1], FOLLOWS[made[:, 6]])


@HALF.net("transformer")
def the_one_after_the_next() -> Training:
    return Training(GPT(), partial(ADAMW, lr=5e-3, weight_decay=0.01), batch_of_threads, per_place, after_eight, steps=150, clip=1.0)


def _misprinted(training: Training) -> None:
    """Of a thread without an error, all tokens before tell where it is: no places are needed."""
    training.batch = partial(batch_of_threads, misprints=0.15)
    training.quality = partial(after_eight, misprints=0.15)


@HALF.fault("no positions", the_one_after_the_next, twin=_misprinted)
def the_table_of_places_is_not_added(training: Training) -> None:
    class Placeless(GPT):
        def embed(self, idx: Tensor) -> Tensor:
            return self.wte(idx)

    training.use(Placeless())
    _misprinted(training)


@HALF.fault("no zero grad", the_one_after_the_next)
def zero_grad_is_named_and_not_called(training: Training) -> None:
    def step(training: Training, number: int) -> None:
        training.optimizer.zero_grad  # noqa: B018
        loss = loss_of(training, *training.batch(number))
        loss.backward()
        training.optimizer.step()

    training.step = step


# ---- which came first? -------------------------------------------------------------------------------------------


def two_in_order(count: int) -> tuple[Tensor, Tensor]:
    """One and two stand somewhere among other words; zero stands behind the end."""
    label, behind = torch.randint(2, (count,)), torch.arange(12) >= torch.randint(6, 13, (count, 1))
    tokens = torch.randint(3, 20, (count, 12))
    places = torch.rand(count, 12).masked_fill(behind, 2).topk(2, largest=False).indices.sort(1).values
    tokens.scatter_(1, places, torch.tensor([[2, 1], [1, 2]])[label])
    return tokens.masked_fill(behind, 0), label


class OrderEncoder(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.tok, self.pos = nn.Embedding(20, width, padding_idx=0), nn.Parameter(0.5 * torch.randn(12, width))
        layer = nn.TransformerEncoderLayer(width, 2, 64, dropout=0.0, batch_first=True)
        self.encoder, self.fc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(width, 2)

    def embed(self, tokens: Tensor) -> Tensor:
        return self.tok(tokens) + self.pos

    def forward(self, input_ids: Tensor) -> dict[str, Tensor]:
        pad = input_ids == 0
        h = self.encoder(self.embed(input_ids), src_key_padding_mask=pad)
        keep = (~pad).unsqueeze(-1).float()
        return {"logits": self.fc((h * keep).sum(1) / keep.sum(1))}


@HALF.net("transformer")
def one_and_two_in_order() -> Training:
    rows = drawn(48, *two_in_order(1500))

    def batch(_: int) -> Batch:
        tokens, label = rows()
        return {"input_ids": tokens}, label

    def criterion(out: dict[str, Tensor], label: Tensor) -> Tensor:
        return F.cross_entropy(out["logits"], label)

    def quality(net: nn.Module) -> float:
        tokens, label = two_in_order(300)
        return missed(net(input_ids=tokens)["logits"], label)

    return Training(OrderEncoder(), partial(ADAMW, lr=3e-3), batch, criterion, quality, steps=250, clip=1.0)


@HALF.fault("zeroed before step", one_and_two_in_order)
def the_model_is_zeroed_after_the_clip(training: Training) -> None:
    def step(training: Training, number: int) -> None:
        loss_of(training, *training.batch(number)).backward()
        nn.utils.clip_grad_norm_(training.model.parameters(), 1.0)
        training.model.zero_grad(set_to_none=False)
        training.optimizer.step()

    training.step = step


@HALF.fault("overwritten activation", one_and_two_in_order)
def all_but_the_padding_is_filled_with_zeros(training: Training) -> None:
    class Filled(OrderEncoder):
        def forward(self, input_ids: Tensor) -> dict[str, Tensor]:
            pad = input_ids == 0
            e = self.embed(input_ids).masked_fill(~pad.unsqueeze(-1), 0.0)
            return {"logits": self.fc(self.encoder(e, src_key_padding_mask=pad).mean(1))}

    training.use(Filled())


@HALF.fault("mask turned around", one_and_two_in_order)
def one_stands_for_what_is_seen_as_in_transformers(training: Training) -> None:
    class Turned(OrderEncoder):
        def forward(self, input_ids: Tensor) -> dict[str, Tensor]:
            mask = input_ids != 0
            h = self.encoder(self.embed(input_ids), src_key_padding_mask=mask)
            keep = mask.unsqueeze(-1).float()
            return {"logits": self.fc(torch.nan_to_num(h * keep).sum(1) / keep.sum(1))}

    training.use(Turned())


# ---- a VAE -------------------------------------------------------------------------------------------------------


def bent(count: int) -> Tensor:
    """Sixteen numbers of two."""
    z = torch.randn(count, 2)
    return torch.tanh(z @ constant(2, 16, seed=1412)) + 0.5 * torch.sin(z @ constant(2, 16, seed=1413)) + 0.05 * torch.randn(count, 16)


class VAE(nn.Module):
    def __init__(self, latent: int = 4) -> None:
        super().__init__()
        self.enc, self.dec = nn.Sequential(nn.Linear(16, 48), nn.ReLU()), mlp(latent, 48, 16)
        self.mu, self.logvar = nn.Linear(48, latent), nn.Linear(48, latent)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.exp(0.5 * logvar) * torch.randn_like(mu) if self.training else mu
        return {"recon": self.dec(z), "mu": mu, "logvar": logvar}


def divergence(out: dict[str, Tensor]) -> Tensor:
    return -0.5 * torch.mean(1 + out["logvar"] - out["mu"] ** 2 - out["logvar"].exp())


@HALF.net("generative")
def sixteen_numbers_of_two() -> Training:
    rows = drawn(64, bent(1500))

    def batch(_: int) -> Batch:
        (x,) = rows()
        return x, x

    def quality(net: nn.Module) -> float:
        x = bent(300)
        return mean_square(net(x)["recon"], x)

    return Training(
        VAE(), partial(ADAM, lr=3e-3), batch, lambda out, x: F.mse_loss(out["recon"], x) + 0.01 * divergence(out), quality, steps=300
    )


@HALF.fault("constant loss", sixteen_numbers_of_two)
def what_was_given_is_compared_with_itself(training: Training) -> None:
    training.criterion = lambda out, x: F.mse_loss(x, x) + divergence(out)


# ---- a GAN -------------------------------------------------------------------------------------------------------


class GAN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        leaky = partial(nn.LeakyReLU, 0.2)
        self.generator, self.discriminator = mlp(4, 24, 24, 2, act=leaky), mlp(2, 24, 24, 1, act=leaky)

    def forward(self, z: Tensor) -> Tensor:
        return self.generator(z)


def cloud(count: int) -> Tensor:
    return torch.randn(count, 2) * torch.tensor([0.6, 0.3]) + torch.tensor([2.0, -1.5])


def _rates(training: Training, generator: partial[Any], discriminator: partial[Any]) -> None:
    net: Any = training.model
    training.optimizer = generator(net.generator.parameters())
    training.others = (discriminator(net.discriminator.parameters()),)


@HALF.net("generative")
def one_cloud_by_a_judge() -> Training:
    def step(training: Training, number: int) -> None:
        net: Any = training.model
        (judge,), bce, ones = training.others, F.binary_cross_entropy_with_logits, torch.ones(64, 1)
        z, real = training.batch(number)
        loss_d = bce(net.discriminator(real), ones) + bce(net.discriminator(net.generator(z).detach()), 1 - ones)
        judge.zero_grad()
        loss_d.backward()
        judge.step()
        loss_g = bce(net.discriminator(net.generator(torch.randn(64, 4))), ones)
        training.optimizer.zero_grad()
        loss_g.backward()
        training.optimizer.step()

    def quality(net: Any) -> float:
        made = net.generator(torch.randn(500, 4))
        mean, spread = made.mean(0) - torch.tensor([2.0, -1.5]), made.std(0) - torch.tensor([0.6, 0.3])
        return (mean.norm() + spread.norm()).item()

    training = Training(GAN(), ADAM, lambda _: (torch.randn(64, 4), cloud(64)), nn.BCEWithLogitsLoss(), quality, steps=300, step=step)
    _rates(training, *[partial(ADAM, lr=2e-3, betas=(0.5, 0.999))] * 2)
    return training


@HALF.fault("discriminator wins", one_cloud_by_a_judge)
def five_steps_of_a_judge_a_hundred_times_as_quick(training: Training) -> None:
    """And the generator has the loss of the first paper."""
    _rates(training, partial(ADAM, lr=1e-4), partial(ADAM, lr=1e-2))

    def step(training: Training, number: int) -> None:
        net: Any = training.model
        (judge,) = training.others
        for _ in range(5):
            z, real = training.batch(number)
            right, wrong = torch.sigmoid(net.discriminator(real)), torch.sigmoid(net.discriminator(net(z).detach()))
            loss = -(torch.log(right + 1e-8) + torch.log(1 - wrong + 1e-8)).mean()
            judge.zero_grad()
            loss.backward()
            judge.step()
        loss_g = torch.log(1 - torch.sigmoid(net.discriminator(net(torch.randn(64, 4)))) + 1e-8).mean()
        training.optimizer.zero_grad()
        loss_g.backward()
        training.optimizer.step()

    training.step = step


# ---- tables of embeddings ----------------------------------------------------------------------------------------


def rated(count: int) -> tuple[Tensor, Tensor, Tensor]:
    user, item = torch.randint(60, (count,)), torch.randint(40, (count,))
    return user, item, (constant(60, 3, seed=28)[user] * constant(40, 3, seed=29)[item]).sum(1) + 3


class Factorization(nn.Module):
    def __init__(self, rank: int = 6) -> None:
        super().__init__()
        self.user, self.item = nn.Embedding(60, rank), nn.Embedding(40, rank)
        self.user_bias, self.item_bias, self.mean = nn.Embedding(60, 1), nn.Embedding(40, 1), nn.Parameter(torch.zeros(1))
        for table in (self.user, self.item):
            nn.init.normal_(table.weight, std=0.3)
        for table in (self.user_bias, self.item_bias):
            nn.init.zeros_(table.weight)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        return (self.user(user) * self.item(item)).sum(1) + self.user_bias(user)[:, 0] + self.item_bias(item)[:, 0] + self.mean


@HALF.net("embedding")
def ratings_of_users_and_items() -> Training:
    rows = drawn(256, *rated(6000))

    def batch(_: int) -> Batch:
        user, item, rating = rows()
        return {"user": user, "item": item}, rating

    def quality(net: nn.Module) -> float:
        user, item, rating = rated(1000)
        return mean_square(net(user=user, item=item), rating)

    return Training(Factorization(), partial(ADAM, lr=3e-2), batch, nn.MSELoss(), quality, steps=300)


@HALF.fault("frozen", ratings_of_users_and_items, where=("user", "item", "user.weight", "item.weight"))
def tables_from_pretrained(training: Training) -> None:
    """Which freezes them, where it is not told otherwise."""
    net = Factorization()
    net.user, net.item = (nn.Embedding.from_pretrained(0.3 * torch.randn(count, 6)) for count in (60, 40))
    training.use(net)


@HALF.fault("no bias where needed", ratings_of_users_and_items, also=("targets not scaled",))
def a_product_alone_for_ratings_above_twenty(training: Training) -> None:
    class Product(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.user, self.item = nn.Embedding(60, 3), nn.Embedding(40, 3)
            for table in (self.user, self.item):
                nn.init.normal_(table.weight, std=0.3)

        def forward(self, user: Tensor, item: Tensor) -> Tensor:
            return (self.user(user) * self.item(item)).sum(1)

    training.use(Product())
    on_target(training, lambda rating: rating + 20)
    quality = training.quality
    training.quality = lambda net: quality(lambda user, item: net(user, item) - 20)  # type: ignore[arg-type]


def turned() -> Tensor:
    """Six numbers that tell, and eighteen that do not, are mixed by this."""
    return torch.linalg.qr(constant(24, 24, seed=32))[0]


class FaceNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = mlp(24, 64, 12, act=nn.PReLU)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


def triplets(count: int) -> tuple[Tensor, ...]:
    """Two faces of one, and one of another."""
    one, other = torch.randn(count, 6), torch.randn(count, 6)
    return tuple(torch.cat([who + 0.2 * torch.randn(count, 6), 1.5 * torch.randn(count, 18)], 1) @ turned() for who in (one, one, other))


@HALF.net("embedding")
def two_of_one_and_one_of_another() -> Training:
    def step(training: Training, number: int) -> None:
        anchor, positive, negative = map(training.model, training.batch(number)[0])
        loss = F.triplet_margin_loss(anchor, positive, negative, margin=1.0)
        training.optimizer.zero_grad()
        loss.backward()
        training.optimizer.step()

    def quality(net: nn.Module) -> float:
        a, p, n = (net(x) for x in triplets(500))
        return ((a - p).norm(dim=1) >= 0.75 * (a - n).norm(dim=1)).float().mean().item() if a.isfinite().all() else math.nan

    return Training(
        FaceNet(),
        partial(SGD, lr=0.1, momentum=0.9),
        lambda _: (triplets(64), torch.zeros(64)),
        nn.TripletMarginLoss(),
        quality,
        steps=250,
        step=step,
    )


@HALF.fault("wrong sign", two_of_one_and_one_of_another)
def the_positive_and_the_negative_are_given_the_other_way_round(training: Training) -> None:
    def step(training: Training, number: int) -> None:
        anchor, positive, negative = map(training.model, training.batch(number)[0])
        loss = F.triplet_margin_loss(anchor, negative, positive)
        training.optimizer.zero_grad()
        loss.backward()
        training.optimizer.step()

    training.step = step


class SkipGram(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.in_embed, self.out_embed = nn.Embedding(40, 10), nn.Embedding(40, 10)
        for table in (self.in_embed, self.out_embed):
            nn.init.uniform_(table.weight, -0.1, 0.1)

    def forward(self, center: Tensor, context: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
        v = self.in_embed(center)
        return (v * self.out_embed(context)).sum(-1), torch.bmm(self.out_embed(negative), v.unsqueeze(2)).squeeze(2)


@HALF.net("embedding")
def words_of_eight_kinds() -> Training:
    """Skip-gram with four negatives for each pair."""

    def batch(_: int) -> Batch:
        center = torch.randint(40, (128,))
        return (center, center % 8 + 8 * torch.randint(5, (128,)), torch.randint(40, (128, 4))), torch.ones(128)

    def criterion(out: tuple[Tensor, Tensor], _: Tensor) -> Tensor:
        pos, neg = out
        return -(F.logsigmoid(pos) + F.logsigmoid(-neg).sum(1)).mean()

    def quality(net: Any) -> float:
        near = (net.in_embed.weight @ net.out_embed.weight.T).topk(5, 1).indices % 8
        return (near != (torch.arange(40) % 8)[:, None]).float().mean().item()

    return Training(SkipGram(), partial(ADAM, lr=2e-2), batch, criterion, quality, steps=250)


@HALF.fault("wrong negatives", words_of_eight_kinds)
def the_negatives_are_the_context_four_times(training: Training) -> None:
    on_inputs(training, lambda inputs: (*inputs[:2], inputs[1][:, None].expand(-1, 4)))
