"""Nothing is wrong here: images, texts and tables, trained as people do it every day, in their own notebooks."""

from __future__ import annotations

import copy
import io
import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR, CosineAnnealingWarmRestarts, OneCycleLR, StepLR
from torch.utils.data import DataLoader, TensorDataset

from bench.sick.training import Batch, Training
from bench.sick.working.fourth_nets import constant
from bench.sick.working.half import HALF
from bench.sick.working.seventh_healthy import mean_square, mlp
from bench.sick.working.third_nets import ADAM, ADAMW, SGD, missed


def of_a_notebook(loop: Callable[[Training], Any]) -> dict[str, Any]:
    """A loop that is written down as a whole, with its epochs, instead of a step of it."""
    return {"steps": 1, "step": lambda training, _: loop(training)}


# ---- images ------------------------------------------------------------------------------------------


def clothes(count: int, kinds: int = 5, noise: float = 0.5, seed: int = 801) -> tuple[Tensor, Tensor]:
    """Small grey pictures, each of a kind, a little shifted."""
    label = torch.randint(kinds, (count,))
    base = F.interpolate(constant(kinds, 1, 4, 4, seed=seed), size=12, mode="bilinear")
    x = base[label] + noise * torch.randn(count, 1, 12, 12)
    return torch.stack([torch.roll(one, int(torch.randint(-1, 2, ())), 2) for one in x]), label


def wrong_share(data: Callable[[int], tuple[Tensor, Tensor]], count: int = 300) -> Callable[[nn.Module], float]:
    def quality(net: nn.Module) -> float:
        x, label = data(count)
        return missed(net(x), label)

    return quality


class LeNet(nn.Module):
    def __init__(self, kinds: int = 5) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 16, 3)
        self.fc1 = nn.Linear(16 * 1 * 1, 40)
        self.fc2 = nn.Linear(40, 24)
        self.fc3 = nn.Linear(24, kinds)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


@HALF.net("cnn")
def the_first_tutorial() -> Training:
    """Two convolutions, three linear layers, momentum, batches of four: as in the sixty minutes."""
    train = DataLoader(TensorDataset(*clothes(900)), batch_size=4, shuffle=True)

    def loop(training: Training) -> None:
        for _ in range(3):
            for inputs, labels in train:
                training.optimizer.zero_grad()
                outputs = training.model(inputs)
                loss = training.criterion(outputs, labels)
                loss.backward()
                training.optimizer.step()

    return Training(
        LeNet(), partial(SGD, lr=0.01, momentum=0.9), lambda _: clothes(4), nn.CrossEntropyLoss(), wrong_share(clothes),
        **of_a_notebook(loop),
    )  # fmt: skip


class Dropped(nn.Module):
    """The net of the MNIST example."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 1)
        self.conv2 = nn.Conv2d(8, 16, 3, 1)
        self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
        self.fc1 = nn.Linear(256, 32)
        self.fc2 = nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = self.dropout1(F.max_pool2d(x, 2))
        x = self.dropout2(F.relu(self.fc1(torch.flatten(x, 1))))
        return F.log_softmax(self.fc2(x), dim=1)


@HALF.net("cnn")
def adadelta_of_the_example() -> Training:
    """Adadelta at a rate of one, which falls by three tenths after each epoch, and a test after each."""
    train = DataLoader(TensorDataset(*clothes(1000)), batch_size=32, shuffle=True)
    test = DataLoader(TensorDataset(*clothes(200)), batch_size=100)

    def loop(training: Training) -> None:
        model, optimizer = training.model, training.optimizer
        scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
        for _ in range(4):
            model.train()
            for data, target in train:
                optimizer.zero_grad()
                loss = F.nll_loss(model(data), target)
                loss.backward()
                optimizer.step()
            model.eval()
            test_loss = 0.0
            with torch.no_grad():
                for data, target in test:
                    test_loss += F.nll_loss(model(data), target, reduction="sum").item()
            scheduler.step()

    return Training(
        Dropped(), partial(torch.optim.Adadelta, lr=1.0), lambda _: clothes(32), F.nll_loss, wrong_share(clothes), **of_a_notebook(loop)
    )


class Trunk(nn.Module):
    """Blocks that have seen other pictures before, and a new head."""

    def __init__(self, kinds: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        )  # fmt: skip
        self.fc = nn.Linear(32 * 9, kinds)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.features(x).flatten(1))


def pretrained(kinds: int) -> Trunk:
    """Some steps with eight kinds of other clothes come before."""
    net = Trunk(8)
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(80):
        x, label = clothes(32, 8, seed=802)
        opt.zero_grad()
        F.cross_entropy(net(x), label).backward()
        opt.step()
    net.fc = nn.Linear(32 * 9, kinds)
    return net


bees = partial(clothes, kinds=3, noise=0.8, seed=803)


@HALF.net("cnn")
def ants_and_bees() -> Training:
    """The trunk is frozen, two hundred pictures, twelve epochs; the best weights by validation are put back at the end."""
    train, val = TensorDataset(*bees(200)), bees(100)
    model = pretrained(3)
    for param in model.features.parameters():
        param.requires_grad = False

    def loop(training: Training) -> None:
        net, optimizer = training.model, training.optimizer
        best, best_acc = copy.deepcopy(net.state_dict()), 0.0
        scheduler = StepLR(optimizer, step_size=7, gamma=0.1)
        for _ in range(12):
            net.train()
            for x, y in DataLoader(train, batch_size=16, shuffle=True):
                optimizer.zero_grad()
                loss = training.criterion(net(x), y)
                loss.backward()
                optimizer.step()
            scheduler.step()
            net.eval()
            with torch.no_grad():
                acc = (net(val[0]).argmax(1) == val[1]).float().mean().item()
            if acc > best_acc:
                best_acc, best = acc, copy.deepcopy(net.state_dict())
        net.load_state_dict(best)

    training = Training(
        model, partial(SGD, lr=0.005, momentum=0.9), lambda _: bees(16), nn.CrossEntropyLoss(), wrong_share(bees), **of_a_notebook(loop)
    )
    training.optimizer = SGD(model.fc.parameters(), lr=0.005, momentum=0.9)
    return training


@HALF.net("cnn")
def all_of_it_with_a_small_rate() -> Training:
    """What was trained before moves with a hundredth of the rate of the head."""
    model = pretrained(3)
    training = Training(model, partial(ADAM, lr=1e-3), lambda _: bees(32), nn.CrossEntropyLoss(), wrong_share(bees), steps=120)
    training.optimizer = ADAM([{"params": model.features.parameters(), "lr": 1e-5}, {"params": model.fc.parameters()}], lr=1e-3)
    training.schedulers = [CosineAnnealingLR(training.optimizer, T_max=120)]
    return training


class Stem(nn.Module):
    """A small residual net."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
                nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16),
            )
            for _ in range(2)
        )  # fmt: skip
        self.fc = nn.Linear(16 * 9, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.stem(x)))
        for block in self.blocks:
            x = F.relu(x + block(x))
        return self.fc(F.avg_pool2d(x, 4).flatten(1))


@HALF.net("cnn")
def mixup_and_one_cycle() -> Training:
    """Mixed pictures, smoothed labels, a rate that goes up and down: the loss stays high, as it should."""

    def step(training: Training, _: int) -> None:
        x, y = clothes(48)
        lam = float(torch.distributions.Beta(0.4, 0.4).sample())
        index = torch.randperm(len(x))
        pred = training.model(lam * x + (1 - lam) * x[index])
        loss = lam * training.criterion(pred, y) + (1 - lam) * training.criterion(pred, y[index])
        training.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        training.optimizer.step()

    training = Training(
        Stem(), partial(SGD, lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True), lambda _: clothes(48),
        nn.CrossEntropyLoss(label_smoothing=0.1), wrong_share(clothes), steps=120, step=step,
    )  # fmt: skip
    training.schedulers = [OneCycleLR(training.optimizer, max_lr=0.1, total_steps=121)]
    return training


@HALF.net("cnn")
def norms_of_four_pictures() -> Training:
    """The card holds four pictures at a time, and the net has norms of batches."""
    return Training(
        Stem(),
        partial(ADAM, lr=1e-3),
        lambda _: clothes(4, noise=0.3),
        nn.CrossEntropyLoss(),
        wrong_share(partial(clothes, noise=0.3)),
        400,
    )


@HALF.net("cnn")
def four_by_four_in_bfloat16() -> Training:
    """Accumulated over four batches, each divided by four, under autocast, clipped before the step."""

    def loop(training: Training) -> None:
        accum = 4
        training.optimizer.zero_grad()
        for i in range(240):
            x, y = clothes(16)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = training.criterion(training.model(x), y) / accum
            loss.backward()
            if (i + 1) % accum == 0:
                torch.nn.utils.clip_grad_norm_(training.model.parameters(), 1.0)
                training.optimizer.step()
                training.optimizer.zero_grad()

    return Training(
        Trunk(5), partial(ADAMW, lr=2e-3), lambda _: clothes(16), nn.CrossEntropyLoss(), wrong_share(clothes), **of_a_notebook(loop)
    )


@HALF.net("cnn")
def a_student_and_its_teacher() -> Training:
    """Softened answers at a temperature of four for seven tenths, labels for the rest."""
    teacher = pretrained(5)
    opt = torch.optim.Adam(teacher.parameters(), lr=2e-3)
    for _ in range(60):
        x, y = clothes(32)
        opt.zero_grad()
        F.cross_entropy(teacher(x), y).backward()
        opt.step()
    teacher.eval()
    heat, alpha = 4.0, 0.7
    ce, kl = nn.CrossEntropyLoss(), nn.KLDivLoss(reduction="batchmean")

    def step(training: Training, _: int) -> None:
        x, y = clothes(32)
        with torch.no_grad():
            soft = F.softmax(teacher(x) / heat, dim=1)
        out = training.model(x)
        loss = alpha * heat * heat * kl(F.log_softmax(out / heat, dim=1), soft) + (1 - alpha) * ce(out, y)
        training.optimizer.zero_grad()
        loss.backward()
        training.optimizer.step()

    return Training(LeNet(), partial(ADAM, lr=3e-3), lambda _: clothes(32), ce, wrong_share(clothes), steps=250, step=step)


# ---- pixels and boxes --------------------------------------------------------------------------------


def blobs(count: int, size: int = 16, least: float = 2.0, most: float = 5.0) -> tuple[Tensor, Tensor]:
    """Noisy pictures with a round thing in each, and where it is."""
    rows, columns = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    center = 3 + (size - 6) * torch.rand(2, count, 1, 1)
    radius = least + (most - least) * torch.rand(count, 1, 1)
    mask = (((rows - center[0]) ** 2 + (columns - center[1]) ** 2).sqrt() < radius).float().unsqueeze(1)
    return 1.2 * mask + 0.7 * torch.randn(count, 1, size, size), mask


class UNet(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()

        def double(inner: int, outer: int) -> nn.Sequential:
            return nn.Sequential(
                nn.Conv2d(inner, outer, 3, padding=1), nn.BatchNorm2d(outer), nn.ReLU(inplace=True),
                nn.Conv2d(outer, outer, 3, padding=1), nn.BatchNorm2d(outer), nn.ReLU(inplace=True),
            )  # fmt: skip

        self.inc, self.down, self.up1 = double(1, width), double(width, 2 * width), double(3 * width, width)
        self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
        self.outc = nn.Conv2d(width, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.inc(x)
        second = self.down(F.max_pool2d(first, 2))
        return self.outc(self.up1(torch.cat([first, self.up(second)], 1)))


def uncovered(data: Callable[[int], tuple[Tensor, Tensor]]) -> Callable[[nn.Module], float]:
    def quality(net: nn.Module) -> float:
        x, mask = data(60)
        found = (net(x) > 0).float()
        return 1 - (2 * (found * mask).sum() / (found.sum() + mask.sum() + 1e-6)).item()

    return quality


@HALF.net("cnn")
def cars_cut_out() -> Training:
    """A U-Net with cross-entropy and dice summed, RMSprop with momentum, gradients clipped at one."""

    def dice_loss(logits: Tensor, target: Tensor) -> Tensor:
        prob = torch.sigmoid(logits)
        inter = 2 * (prob * target).sum(dim=(-1, -2))
        sets = prob.sum(dim=(-1, -2)) + target.sum(dim=(-1, -2))
        return 1 - ((inter + 1e-6) / (sets + 1e-6)).mean()

    bce = nn.BCEWithLogitsLoss()
    return Training(
        UNet(), partial(torch.optim.RMSprop, lr=1e-3, weight_decay=1e-8, momentum=0.9), lambda _: blobs(8),
        lambda out, mask: bce(out, mask) + dice_loss(out, mask), uncovered(blobs), steps=80, clip=1.0,
    )  # fmt: skip


@HALF.net("cnn")
def small_spots_with_focal() -> Training:
    """Two of a hundred pixels are of a lesion: focal loss with alpha and gamma."""
    spots = partial(blobs, least=1.0, most=2.0)

    def focal(logits: Tensor, mask: Tensor, alpha: float = 0.75, gamma: float = 2.0) -> Tensor:
        ce = F.binary_cross_entropy_with_logits(logits, mask, reduction="none")
        p_t = torch.exp(-ce)
        alpha_t = alpha * mask + (1 - alpha) * (1 - mask)
        return (alpha_t * (1 - p_t) ** gamma * ce).mean()

    return Training(UNet(), partial(ADAM, lr=5e-3), lambda _: spots(16), focal, uncovered(spots), steps=180)


class Detector(nn.Module):
    """One trunk, a head for the kind and one for the box."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(),
            nn.Linear(32 * 16, 64), nn.ReLU(),
        )  # fmt: skip
        self.cls, self.box = nn.Linear(64, 3), nn.Linear(64, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.trunk(x)
        return self.cls(h), self.box(h).sigmoid()


def signs(count: int) -> tuple[Tensor, dict[str, Tensor]]:
    """A bright or a dark sign, or none; its box in shares of the picture."""
    label = torch.randint(3, (count,))
    x = 0.5 * torch.randn(count, 1, 16, 16)
    boxes = torch.zeros(count, 4)
    for i in range(count):
        w, h = torch.randint(4, 9, (2,)).tolist()
        left, top = int(torch.randint(0, 16 - w, ())), int(torch.randint(0, 16 - h, ()))
        if label[i]:
            x[i, 0, top : top + h, left : left + w] += 1.5 if label[i] == 1 else -1.5
        boxes[i] = torch.tensor([left, top, left + w, top + h]) / 16
    return x, {"labels": label, "boxes": boxes}


@HALF.net("cnn")
def a_kind_and_a_box() -> Training:
    """Two losses from one trunk; the box counts where there is one, and five times."""

    def step(training: Training, _: int) -> None:
        images, targets = signs(32)
        logits, boxes = training.model(images)
        there = targets["labels"] > 0
        loss_cls = F.cross_entropy(logits, targets["labels"])
        loss_box = F.smooth_l1_loss(boxes[there], targets["boxes"][there], beta=0.1)
        losses = loss_cls + 5.0 * loss_box
        training.optimizer.zero_grad()
        losses.backward()
        training.optimizer.step()

    def quality(net: nn.Module) -> float:
        x, targets = signs(200)
        logits, boxes = net(x)
        there = targets["labels"] > 0
        return missed(logits, targets["labels"]) + 2 * (boxes - targets["boxes"])[there].abs().mean().item()

    def batch(_: int) -> Batch:
        x, targets = signs(32)
        return x, targets["labels"]

    return Training(
        Detector(), partial(ADAM, lr=1e-3), batch, lambda out, label: F.cross_entropy(out[0], label), quality, steps=250, step=step
    )


# ---- texts -------------------------------------------------------------------------------------------


def news(count: int, words: int = 200, topics: int = 4) -> list[tuple[int, Tensor]]:
    """Texts of some length; every third word tells the topic."""
    found = []
    for label in torch.randint(topics, (count,)).tolist():
        length = int(torch.randint(6, 20, ()))
        text = torch.randint(words, (length,))
        told = torch.rand(length) < 0.3
        found.append((label, torch.where(told, text // topics * topics + label, text)))
    return found


class TextClassification(nn.Module):
    def __init__(self, words: int = 200, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(words, width, sparse=False)
        self.fc = nn.Linear(width, 4)
        self.init_weights()

    def init_weights(self) -> None:
        self.embedding.weight.data.uniform_(-0.5, 0.5)
        self.fc.weight.data.uniform_(-0.5, 0.5)
        self.fc.bias.data.zero_()

    def forward(self, text: Tensor, offsets: Tensor) -> Tensor:
        return self.fc(self.embedding(text, offsets))


def collated(some: list[tuple[int, Tensor]]) -> tuple[tuple[Tensor, Tensor], Tensor]:
    offsets = torch.tensor([0, *(len(text) for _, text in some)][:-1]).cumsum(0)
    return (torch.cat([text for _, text in some]), offsets), torch.tensor([label for label, _ in some])


@HALF.net("embedding")
def news_in_bags() -> Training:
    """A rate of five, gradients clipped at a tenth, one long row of words with offsets: as in the tutorial."""

    def quality(net: nn.Module) -> float:
        (text, offsets), label = collated(news(300))
        return missed(net(text, offsets), label)

    training = Training(
        TextClassification(), partial(SGD, lr=5.0), lambda _: collated(news(16)), nn.CrossEntropyLoss(), quality, steps=350, clip=0.1
    )
    training.schedulers = [StepLR(training.optimizer, 120, gamma=0.5)]
    return training


class CharRNN(nn.Module):
    """The RNN that the tutorial builds from scratch."""

    def __init__(self, letters: int = 12, hidden: int = 48, kinds: int = 3) -> None:
        super().__init__()
        self.hidden_size = hidden
        self.i2h, self.h2h, self.h2o = nn.Linear(letters, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, kinds)
        self.softmax = nn.LogSoftmax(dim=1)

    def forward(self, line: Tensor) -> Tensor:
        hidden = torch.zeros(1, self.hidden_size)
        for letter in line:
            hidden = torch.tanh(self.i2h(letter) + self.h2h(hidden))
        return self.softmax(self.h2o(hidden))


def surname() -> tuple[Tensor, Tensor]:
    """A name in letters, one hot, and where it comes from: by its last two letters mostly."""
    kind = int(torch.randint(3, ()))
    name = torch.randint(12, (int(torch.randint(4, 9, ())),))
    name[-2:] = 4 * kind + torch.randint(4, (2,))
    return F.one_hot(name, 12).float().unsqueeze(1), torch.tensor([kind])


@HALF.net("recurrent")
def one_surname_at_a_time() -> Training:
    """One name a step; the weights are moved by hand, and zeroed by hand."""

    def step(training: Training, _: int) -> None:
        line, category = surname()
        training.model.zero_grad()
        output = training.model(line)
        loss = F.nll_loss(output, category)
        loss.backward()
        for p in training.model.parameters():
            p.data.add_(p.grad.data, alpha=-0.02)

    def quality(net: nn.Module) -> float:
        some = [surname() for _ in range(100)]
        return sum(missed(net(line), kind) for line, kind in some) / len(some)

    return Training(CharRNN(), partial(SGD, lr=0.02), lambda _: surname(), F.nll_loss, quality, steps=900, step=step)


PLAY = "to be or not to be that is the question whether tis nobler in the mind to suffer the slings and arrows of fortune "


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = (one.view(b, t, self.heads, -1).transpose(1, 2) for one in self.qkv(self.ln1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, vocab: int, block_size: int = 24, width: int = 32) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(block_size, width)
        self.blocks = nn.Sequential(*(Block(width, 4) for _ in range(2)))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocab, bias=False)
        self.lm_head.weight = self.wte.weight
        self.apply(self._init_weights)

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1)))
        logits = self.lm_head(self.ln_f(self.blocks(x)))
        loss = None if targets is None else F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)
        return logits, loss


@HALF.net("transformer")
def a_gpt_of_letters() -> Training:
    """The loss comes from the model; decay for matrices alone, warm-up by hand, estimates of the loss between."""
    letters = sorted(set(PLAY))
    data = torch.tensor([letters.index(one) for one in PLAY * 8])

    def get_batch(count: int = 16) -> tuple[Tensor, Tensor]:
        at = torch.randint(len(data) - 25, (count,))
        return torch.stack([data[i : i + 24] for i in at]), torch.stack([data[i + 1 : i + 25] for i in at])

    def loop(training: Training) -> None:
        model, optimizer = training.model, training.optimizer
        for it in range(220):
            for group in optimizer.param_groups:
                group["lr"] = 3e-3 * min(1.0, (it + 1) / 20)
            if it % 50 == 0:
                model.eval()
                with torch.no_grad():
                    _ = torch.stack([model(*get_batch())[1] for _ in range(4)]).mean()
                model.train()
            _, loss = model(*get_batch())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

    def quality(net: nn.Module) -> float:
        x, y = get_batch(40)
        return net(x, y)[1].item()

    model = GPT(len(letters))
    training = Training(
        model, partial(ADAMW, lr=3e-3), lambda _: get_batch(), lambda out, y: F.cross_entropy(out[0].flatten(0, 1), y.flatten()), quality,
        **of_a_notebook(loop),
    )  # fmt: skip
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    training.optimizer = ADAMW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=3e-3, betas=(0.9, 0.95))
    return training


class EncoderRNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(14, 32)
        self.gru = nn.GRU(32, 48, batch_first=True)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.gru(self.dropout(self.embedding(x)))


class DecoderRNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(14, 32)
        self.gru = nn.GRU(32, 48, batch_first=True)
        self.out = nn.Linear(48, 14)

    def forward(self, token: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        output, hidden = self.gru(F.relu(self.embedding(token)), hidden)
        return self.out(output), hidden


@HALF.net("recurrent")
def translated_with_two_optimizers() -> Training:
    """An encoder and a decoder with an optimizer each; half of the time the decoder is fed what it should have said."""

    def pairs(count: int) -> tuple[Tensor, Tensor]:
        source = torch.randint(2, 12, (count, 5))
        return source, 2 + (source.flip(1) - 2 + 3) % 10

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = EncoderRNN(), DecoderRNN()

        def forward(self, source: Tensor, target: Tensor | None = None) -> Tensor:
            _, hidden = self.encoder(source)
            token = torch.zeros(len(source), 1, dtype=torch.long)
            outputs = []
            for i in range(5):
                output, hidden = self.decoder(token, hidden)
                outputs.append(output)
                token = target[:, i : i + 1] if target is not None else output.topk(1)[1].squeeze(-1).detach()
            return torch.cat(outputs, 1)

    def step(training: Training, _: int) -> None:
        source, target = pairs(48)
        training.optimizer.zero_grad()
        training.others[0].zero_grad()
        out = training.model(source, target if torch.rand(()) < 0.5 else None)
        loss = training.criterion(out, target)
        loss.backward()
        training.optimizer.step()
        training.others[0].step()

    def quality(net: nn.Module) -> float:
        source, target = pairs(100)
        return missed(net(source), target)

    model = Both()
    training = Training(
        model, partial(ADAM, lr=5e-3), lambda _: pairs(48), lambda out, y: F.cross_entropy(out.reshape(-1, 14), y.reshape(-1)), quality,
        steps=350, step=step,
    )  # fmt: skip
    training.optimizer = ADAM(model.encoder.parameters(), lr=5e-3)
    training.others = (ADAM(model.decoder.parameters(), lr=5e-3),)
    return training


@HALF.net("recurrent")
def packed_reviews() -> Training:
    """Reviews of all lengths, padded, packed and unpacked; the last state says whether it is a good one."""

    def reviews(count: int) -> Batch:
        length = torch.randint(3, 20, (count,)).sort(descending=True).values
        label = torch.randint(2, (count,))
        words = torch.randint(2, 40, (count, 20))
        words = torch.where(torch.rand(count, 20) < 0.25, 2 + label.unsqueeze(1) + 2 * torch.randint(5, (count, 20)), words)
        return (words * (torch.arange(20) < length.unsqueeze(1)), length), label.float()

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(40, 24, padding_idx=0)
            self.lstm = nn.LSTM(24, 24, batch_first=True, bidirectional=True)
            self.drop = nn.Dropout(0.3)
            self.fc = nn.Linear(48, 1)

        def forward(self, text: Tensor, lengths: Tensor) -> Tensor:
            packed = nn.utils.rnn.pack_padded_sequence(self.embed(text), lengths, batch_first=True)
            _, (hidden, _) = self.lstm(packed)
            return self.fc(self.drop(torch.cat((hidden[-2], hidden[-1]), dim=1))).squeeze(1)

    def quality(net: nn.Module) -> float:
        x, y = reviews(300)
        return ((net(*x) > 0).float() != y).float().mean().item()

    return Training(Net(), partial(ADAM, lr=5e-3), lambda _: reviews(32), nn.BCEWithLogitsLoss(), quality, steps=220)


@HALF.net("embedding")
def words_and_their_neighbours() -> Training:
    """Skip-gram with five negatives for each pair, two tables, and the log-sigmoids written out."""

    class SkipGram(nn.Module):
        def __init__(self, words: int = 60, width: int = 12) -> None:
            super().__init__()
            self.u, self.v = nn.Embedding(words, width), nn.Embedding(words, width)
            self.u.weight.data.uniform_(-0.5 / width, 0.5 / width)
            self.v.weight.data.zero_()

        def forward(self, center: Tensor, context: Tensor, negative: Tensor) -> Tensor:
            emb = self.u(center)
            score = (emb * self.v(context)).sum(1)
            neg = torch.bmm(self.v(negative), emb.unsqueeze(2)).squeeze(2)
            return -(F.logsigmoid(score) + F.logsigmoid(-neg).sum(1)).mean()

    def pairs(count: int) -> tuple[Tensor, Tensor, Tensor]:
        center = torch.randint(60, (count,))
        context = center // 10 * 10 + torch.randint(10, (count,))
        return center, context, torch.randint(60, (count, 5))

    def step(training: Training, _: int) -> None:
        training.optimizer.zero_grad()
        loss = training.model(*pairs(128))
        loss.backward()
        training.optimizer.step()

    def quality(net: nn.Module) -> float:
        scores = net.u.weight @ net.v.weight.T
        near = torch.arange(60) // 10
        return 1 - (near[scores.argmax(1)] == near).float().mean().item() + 1e-3

    return Training(
        SkipGram(), partial(ADAM, lr=0.02), lambda _: (pairs(128), torch.ones(128)), lambda out, _: out, quality, steps=250, step=step
    )


# ---- tables ------------------------------------------------------------------------------------------


@HALF.net("mlp")
def a_line_by_hand() -> Training:
    """Two times x and one, with noise: full batch, a hundred epochs, as everybody begins."""
    x = torch.rand(100, 1)
    y = 1 + 2 * x + 0.1 * torch.randn(100, 1)

    def quality(net: nn.Module) -> float:
        z = torch.rand(100, 1)
        return mean_square(net(z), 1 + 2 * z)

    return Training(nn.Linear(1, 1), partial(SGD, lr=0.1), lambda _: (x, y), nn.MSELoss(reduction="mean"), quality, steps=100)


@HALF.net("mlp")
def a_polynomial_of_the_third_order() -> Training:
    """Powers of x, summed errors of two thousand points, a rate of a millionth."""
    x = torch.linspace(-math.pi, math.pi, 2000)
    y, xx = torch.sin(x), x.unsqueeze(-1).pow(torch.tensor([1, 2, 3]))
    model = nn.Sequential(nn.Linear(3, 1), nn.Flatten(0, 1))

    def quality(net: nn.Module) -> float:
        return mean_square(net(xx), y)

    return Training(model, partial(SGD, lr=1e-6), lambda _: (xx, y), nn.MSELoss(reduction="sum"), quality, steps=2000)


@HALF.net("mlp")
def two_moons_in_sixty_steps() -> Training:
    """All points at once, a high rate, sixty epochs."""

    def moons(count: int) -> Batch:
        label = torch.randint(2, (count,))
        angle = math.pi * torch.rand(count)
        x = torch.where(label == 0, angle.cos(), 1 - angle.cos())
        y = torch.where(label == 0, angle.sin(), 0.5 - angle.sin())
        return torch.stack([x, y], 1) + 0.1 * torch.randn(count, 2), label

    x, y = moons(300)
    return Training(mlp(2, 32, 2), partial(SGD, lr=0.5, momentum=0.9), lambda _: (x, y), nn.CrossEntropyLoss(), wrong_share(moons), 60)


def flowers(count: int) -> Batch:
    label = torch.randint(3, (count,))
    return torch.tensor([5.8, 3.0, 3.7, 1.2]) + 0.9 * constant(3, 4, seed=804)[label] + 0.4 * torch.randn(count, 4), label


@HALF.net("mlp")
def flowers_in_centimetres() -> Training:
    """A hundred and fifty flowers as they were measured; twenty-five epochs of five batches."""
    x, y = flowers(150)
    loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)

    def loop(training: Training) -> None:
        for _, (xb, yb) in itertools.product(range(25), loader):
            loss = training.criterion(training.model(xb), yb)
            training.optimizer.zero_grad()
            loss.backward()
            training.optimizer.step()

    return Training(
        mlp(4, 16, 16, 3), partial(ADAM, lr=0.01), lambda _: flowers(32), nn.CrossEntropyLoss(), wrong_share(flowers), **of_a_notebook(loop)
    )


@HALF.net("mlp")
def miles_per_gallon() -> Training:
    """Columns are standardized, the target stays in its unit: the net has to find the level of twenty-three first."""

    def cars(count: int) -> Batch:
        x = torch.randn(count, 7)
        known = 23 - 5 * x[:, 0] + 2 * x[:, 1] * (x[:, 2] > 0) + 1.5 * x[:, 3].abs()
        return x, (known + 2.5 * torch.randn(count)).unsqueeze(1)

    x, y = cars(320)

    def batch(_: int) -> Batch:
        at = torch.randint(320, (32,))
        return x[at], y[at]

    def quality(net: nn.Module) -> float:
        z, target = cars(400)
        return mean_square(net(z), target)

    return Training(mlp(7, 64, 64, 1), partial(torch.optim.RMSprop, lr=1e-3), batch, nn.MSELoss(), quality, steps=500)


class Tabular(nn.Module):
    """Embeddings of what is a kind, a norm of what is a number, and two blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.embeds = nn.ModuleList(nn.Embedding(n, w) for n, w in ((12, 6), (7, 4), (30, 8)))
        self.emb_drop, self.bn_cont = nn.Dropout(0.04), nn.BatchNorm1d(3)
        self.layers = nn.Sequential(
            nn.Linear(21, 48), nn.ReLU(), nn.BatchNorm1d(48), nn.Dropout(0.1),
            nn.Linear(48, 24), nn.ReLU(), nn.BatchNorm1d(24), nn.Linear(24, 2),
        )  # fmt: skip

    def forward(self, cat: Tensor, cont: Tensor) -> Tensor:
        x = self.emb_drop(torch.cat([e(cat[:, i]) for i, e in enumerate(self.embeds)], 1))
        return self.layers(torch.cat([x, self.bn_cont(cont)], 1))


@HALF.net("mlp")
def who_pays_back() -> Training:
    """Categories and amounts in euros behind a norm; one in eight does not pay and weighs seven times as much."""

    def loans(count: int) -> Batch:
        cat = torch.stack([torch.randint(n, (count,)) for n in (12, 7, 30)], 1)
        z = torch.randn(count, 3)
        cont = torch.stack([35000 + 12000 * z[:, 0], 40 + 11 * z[:, 1], 0.3 + 0.1 * z[:, 2]], 1)
        logit = constant(12, seed=805)[cat[:, 0]] + constant(30, seed=806)[cat[:, 2]] - 1.2 * z[:, 0] + z[:, 2] - 3
        return (cat, cont), (torch.rand(count) < (1.5 * logit).sigmoid()).long()

    def quality(net: nn.Module) -> float:
        x, y = loans(1500)
        found = net(*x).argmax(1)
        return 1 - 0.5 * ((found[y == 1] == 1).float().mean() + (found[y == 0] == 0).float().mean()).item()

    training = Training(
        Tabular(), partial(ADAMW, lr=0.01, weight_decay=0.01), lambda _: loans(128),
        nn.CrossEntropyLoss(weight=torch.tensor([1.0, 7.0])), quality, steps=200,
    )  # fmt: skip
    training.schedulers = [OneCycleLR(training.optimizer, max_lr=0.01, total_steps=201)]
    return training


@HALF.net("embedding")
def two_of_a_hundred_click() -> Training:
    """Ads: two of a hundred are clicked, and nobody knows which before; the chance itself is what is wanted."""
    effect = constant(3, 20, seed=807)

    def ads(count: int) -> tuple[Tensor, Tensor]:
        x = torch.randint(20, (count, 3))
        return x, -4.6 + 1.1 * effect[torch.arange(3), x].sum(1) / math.sqrt(3)

    class Ctr(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.emb = nn.Embedding(60, 8)
            self.mlp = nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 1))

        def forward(self, x: Tensor) -> Tensor:
            return self.mlp(self.emb(x + torch.tensor([0, 20, 40])).flatten(1)).squeeze(1)

    def batch(_: int) -> Batch:
        x, logit = ads(512)
        return x, torch.bernoulli(logit.sigmoid())

    def quality(net: nn.Module) -> float:
        x, logit = ads(1000)
        return (net(x) - logit).square().mean().item()

    return Training(Ctr(), partial(ADAM, lr=2e-3), batch, nn.BCEWithLogitsLoss(), quality, steps=350)


@HALF.net("embedding")
def what_they_watched_next() -> Training:
    """Implicit feedback: for each film that was seen four that were not, drawn at random; users and films meet in a small net."""
    taste = torch.randint(4, (50,), generator=torch.Generator().manual_seed(808))

    def seen(count: int) -> Batch:
        user = torch.randint(50, (count,))
        liked = taste[user] * 10 + torch.randint(10, (count,))
        items = torch.cat([liked.unsqueeze(1), torch.randint(40, (count, 4))], 1)
        label = torch.zeros(count, 5)
        label[:, 0] = 1
        return (user.repeat_interleave(5), items.flatten()), label.flatten()

    class NCF(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.user, self.item = nn.Embedding(50, 16), nn.Embedding(40, 16)
            for one in (self.user, self.item):
                nn.init.normal_(one.weight, std=0.01)
            self.mlp = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
            self.out = nn.Linear(32, 1)

        def forward(self, user: Tensor, item: Tensor) -> Tensor:
            u, i = self.user(user), self.item(item)
            return self.out(torch.cat([u * i, self.mlp(torch.cat([u, i], 1))], 1)).squeeze(1)

    def quality(net: nn.Module) -> float:
        user = torch.arange(50)
        scores = net(user.repeat_interleave(40), torch.arange(40).repeat(50)).view(50, 40)
        return (scores.topk(5, 1).indices // 10 != taste.unsqueeze(1)).float().mean().item()

    return Training(NCF(), partial(ADAM, lr=5e-3), lambda _: seen(64), nn.BCEWithLogitsLoss(), quality, steps=300)


@HALF.net("embedding")
def ranked_by_pairs() -> Training:
    """BPR on tables with sparse gradients and SparseAdam."""
    taste = torch.randint(4, (50,), generator=torch.Generator().manual_seed(809))

    class MF(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.P, self.Q = nn.Embedding(50, 8, sparse=True), nn.Embedding(40, 8, sparse=True)
            for one in (self.P, self.Q):
                nn.init.normal_(one.weight, std=0.1)

        def forward(self, user: Tensor, positive: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
            p = self.P(user)
            return (p * self.Q(positive)).sum(1), (p * self.Q(negative)).sum(1)

    def batch(_: int) -> Batch:
        user = torch.randint(50, (128,))
        return (user, taste[user] * 10 + torch.randint(10, (128,)), torch.randint(40, (128,))), torch.ones(128)

    def bpr(output: tuple[Tensor, Tensor], _: Tensor) -> Tensor:
        positive, negative = output
        return -(positive - negative).sigmoid().log().mean()

    def quality(net: nn.Module) -> float:
        scores = net.P.weight @ net.Q.weight.T
        return (scores.topk(5, 1).indices // 10 != taste.unsqueeze(1)).float().mean().item()

    return Training(MF(), lambda some: torch.optim.SparseAdam(list(some), lr=0.02), batch, bpr, quality, steps=250)


@HALF.net("mlp")
def little_of_the_sales_is_known() -> Training:
    """A twentieth of the spread can be explained; early stopping puts the best weights back."""

    def sales(count: int) -> tuple[Tensor, Tensor, Tensor]:
        x = torch.randn(count, 8)
        known = 0.22 * (x[:, 0] + x[:, 1] * (x[:, 2] > 0)) / 1.2
        return x, (known + torch.randn(count)).unsqueeze(1), known

    x, y, _ = sales(6000)
    xv, yv, _ = sales(1500)

    def loop(training: Training) -> None:
        best, best_loss, patience = copy.deepcopy(training.model.state_dict()), math.inf, 0
        for _ in range(25):
            training.model.train()
            for xb, yb in DataLoader(TensorDataset(x, y), batch_size=256, shuffle=True):
                training.optimizer.zero_grad()
                training.criterion(training.model(xb), yb).backward()
                training.optimizer.step()
            training.model.eval()
            with torch.no_grad():
                val = training.criterion(training.model(xv), yv).item()
            if val < best_loss:
                best, best_loss, patience = copy.deepcopy(training.model.state_dict()), val, 0
            else:
                patience += 1
                if patience >= 4:
                    break
        training.model.load_state_dict(best)

    def quality(net: nn.Module) -> float:
        z, _, known = sales(800)
        return mean_square(net(z), known) * 10

    return Training(mlp(8, 24, 1), partial(ADAM, lr=2e-3), lambda _: sales(256)[:2], nn.MSELoss(), quality, **of_a_notebook(loop))


@HALF.net("mlp")
def restarts_of_the_cosine() -> Training:
    """The rate jumps back up three times."""
    training = Training(
        mlp(4, 48, 48, 3), partial(SGD, lr=0.1, momentum=0.9), lambda _: flowers(48), nn.CrossEntropyLoss(), wrong_share(flowers), steps=280
    )
    training.schedulers = [CosineAnnealingWarmRestarts(training.optimizer, T_0=40, T_mult=2)]
    return training


@HALF.net("mlp")
def saved_and_loaded_again() -> Training:
    """The kernel was restarted in the middle: model and optimizer come from the checkpoint."""

    def loop(training: Training) -> None:
        file = io.BytesIO()
        for step in range(240):
            x, y = flowers(32)
            loss = training.criterion(training.model(x), y)
            training.optimizer.zero_grad()
            loss.backward()
            training.optimizer.step()
            if step == 119:
                torch.save({"model": training.model.state_dict(), "optimizer": training.optimizer.state_dict()}, file)
                file.seek(0)
                state = torch.load(file)
                training.model.load_state_dict(state["model"])
                training.optimizer.load_state_dict(state["optimizer"])

    return Training(
        mlp(4, 32, 3, act=nn.Tanh),
        partial(ADAM, lr=5e-3),
        lambda _: flowers(32),
        nn.CrossEntropyLoss(),
        wrong_share(flowers),
        **of_a_notebook(loop),
    )


@HALF.net("mlp")
def twelve_rows_learnt_by_heart() -> Training:
    """To see that the net can: twelve rows, until nothing is wrong."""
    x, y = torch.randn(12, 20), torch.randint(4, (12,))
    return Training(mlp(20, 64, 4), partial(ADAM, lr=1e-3), lambda _: (x, y), nn.CrossEntropyLoss(), lambda net: missed(net(x), y), 200)


@HALF.net("cnn")
def one_batch_on_purpose() -> Training:
    """The first batch of the loader again and again, before the real training begins."""
    x, y = next(iter(DataLoader(TensorDataset(*clothes(400)), batch_size=32, shuffle=True)))

    def loop(training: Training) -> None:
        for _ in range(100):
            training.optimizer.zero_grad()
            loss = training.criterion(training.model(x), y)
            loss.backward()
            training.optimizer.step()

    return Training(
        LeNet(), partial(ADAM, lr=3e-3), lambda _: (x, y), nn.CrossEntropyLoss(), lambda net: missed(net(x), y), **of_a_notebook(loop)
    )


@HALF.net("mlp")
def in_double_precision() -> Training:
    """Four thousand small steps of a fit in float64."""
    x = torch.linspace(-3, 3, 200, dtype=torch.float64).unsqueeze(1)
    y = torch.sin(2 * x) * torch.exp(-0.2 * x**2)
    model = mlp(1, 32, 1, act=nn.Tanh).double()
    return Training(model, partial(ADAM, lr=3e-3), lambda _: (x, y), nn.MSELoss(), lambda net: mean_square(net(x), y), steps=2500)
