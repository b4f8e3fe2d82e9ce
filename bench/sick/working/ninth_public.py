"""Nothing is wrong here: loops as they stand in public repositories, around small nets of our own. Images and texts."""

from __future__ import annotations

import copy
import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, OneCycleLR, StepLR
from torch.utils.data import DataLoader, TensorDataset

from bench.sick.training import Batch, Training
from bench.sick.working.eighth_healthy import of_a_notebook, wrong_share
from bench.sick.working.fourth_nets import constant
from bench.sick.working.half import HALF
from bench.sick.working.third_nets import ADAM, ADAMW, SGD, missed

# ---- images ------------------------------------------------------------------------------------------


def strokes(count: int, kinds: int = 6, size: int = 10, noise: float = 0.15) -> tuple[Tensor, Tensor]:
    """White strokes on black, between 0 and 1, as a scanner gives them."""
    label = torch.randint(kinds, (count,))
    form = (F.interpolate(constant(kinds, 1, 5, 5, seed=901), size=size, mode="bilinear") > 0.3).float()
    shift = [(int(a), int(b)) for a, b in torch.randint(-1, 2, (count, 2))]
    x = torch.stack([torch.roll(form[k], s, (1, 2)) for k, s in zip(label, shift, strict=True)])
    return (x * (0.7 + 0.3 * torch.rand(count, 1, 1, 1)) + noise * torch.rand(count, 1, size, size)).clamp(0, 1), label


class Rows(nn.Module):
    """Reads an image row by row."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(input_size=10, hidden_size=48, batch_first=True)
        self.batchnorm = nn.BatchNorm1d(48)
        self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(48, 32), nn.Linear(32, 6)

    def forward(self, x: Tensor) -> Tensor:
        _, (h, _) = self.rnn(x.reshape(-1, 10, 10))
        x = self.dropout1(self.batchnorm(h[-1]))
        return F.log_softmax(self.fc2(self.dropout2(F.relu(self.fc1(x)))), dim=1)


@HALF.net("recurrent")
def rows_read_as_time() -> Training:
    """Adadelta at a tenth, a rate that falls after each epoch, a test in between whose losses are summed."""
    train, test = DataLoader(TensorDataset(*strokes(1500)), batch_size=32, shuffle=True), strokes(300)

    def loop(training: Training) -> None:
        scheduler = StepLR(training.optimizer, step_size=1, gamma=0.7)
        for epoch in range(6):
            training.model.train()
            for i, (x, y) in enumerate(train):
                training.optimizer.zero_grad()
                loss = F.nll_loss(training.model(x), y)
                loss.backward()
                training.optimizer.step()
                if i % 10 == 0:
                    print(f"Epoch {epoch} [{i}/{len(train)}] Loss: {loss.item():.6f}")
            training.model.eval()
            with torch.no_grad():
                print(F.nll_loss(training.model(test[0]), test[1], reduction="sum").item() / 300)
            scheduler.step()

    return Training(
        Rows(), partial(torch.optim.Adadelta, lr=1.0), lambda _: strokes(32), F.nll_loss, wrong_share(strokes), **of_a_notebook(loop)
    )


class Same(nn.Module):
    """Are they the same? A shared trunk, both vectors side by side, and a sigmoid."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(1, 12, 3, bias=False), nn.BatchNorm2d(12), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(192, 32)
        )
        self.fc = nn.Sequential(nn.Linear(64, 64), nn.ReLU(inplace=True), nn.Linear(64, 1))
        for m in self.fc:
            if isinstance(m, nn.Linear):
                nn.init.xavier_uniform_(m.weight)
                m.bias.data.fill_(0.01)

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        return torch.sigmoid(self.fc(torch.cat([self.trunk(one), self.trunk(other)], 1))).squeeze(1)


@HALF.net("cnn")
def two_of_the_same() -> Training:
    """Every second pair is of one kind; a sigmoid and BCELoss, Adadelta at a rate of one."""

    def pairs(count: int) -> Batch:
        x, label = strokes(2 * count, kinds=3)
        a, b = torch.arange(count), torch.arange(count, 2 * count)
        return (x[a], x[b]), (label[a] == label[b]).float()

    def quality(net: nn.Module) -> float:
        x, y = pairs(300)
        return F.binary_cross_entropy(net(*x), y).item()

    training = Training(Same(), partial(torch.optim.Adadelta, lr=1.0), lambda _: pairs(64), nn.BCELoss(), quality, steps=350)
    training.schedulers = [StepLR(training.optimizer, 50, gamma=0.7)]
    return training


class Sharper(nn.Module):
    """Twice the size by a shuffle of channels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 24, 5, 1, 2), nn.Conv2d(24, 24, 3, 1, 1)
        self.conv3, self.conv4 = nn.Conv2d(24, 12, 3, 1, 1), nn.Conv2d(12, 4, 3, 1, 1)
        self.pixel_shuffle = nn.PixelShuffle(2)
        for conv in (self.conv1, self.conv2, self.conv3):
            nn.init.orthogonal_(conv.weight, nn.init.calculate_gain("relu"))
        nn.init.orthogonal_(self.conv4.weight)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv3(F.relu(self.conv2(F.relu(self.conv1(x))))))
        return self.pixel_shuffle(self.conv4(x))


@HALF.net("cnn")
def twice_as_sharp() -> Training:
    """Super resolution by a plain squared error of luminances; the ratio of signal to noise is printed."""

    def scenes(count: int) -> tuple[Tensor, Tensor]:
        x = F.interpolate(torch.rand(count, 1, 4, 4), size=16, mode="bicubic").clamp(0, 1)
        return F.avg_pool2d(x, 2), x

    def quality(net: nn.Module) -> float:
        x, y = scenes(100)
        return F.mse_loss(net(x), y).item()

    return Training(Sharper(), partial(ADAM, lr=1e-3), lambda _: scenes(4), nn.MSELoss(), quality, steps=250)


class Mixer(nn.Module):
    """Linear layers over places and over channels in turn."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 2, 2)
        self.blocks = nn.ModuleList(
            nn.ModuleList([
                nn.LayerNorm(width), nn.Sequential(nn.Linear(25, 32), nn.GELU(), nn.Linear(32, 25)),
                nn.LayerNorm(width), nn.Sequential(nn.Linear(width, 48), nn.GELU(), nn.Linear(48, width)),
            ])
            for _ in range(2)
        )  # fmt: skip
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 6))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).flatten(2).transpose(1, 2)
        for n1, token, n2, channel in self.blocks:
            x = x + token(n1(x).transpose(1, 2)).transpose(1, 2)
            x = x + channel(n2(x))
        return self.head(x.mean(1))


@HALF.net("cnn")
def patches_cut_from_others() -> Training:
    """CutMix in half of the batches, warm-up and a cosine as one function of the step, decay, smoothed labels."""

    def step(training: Training, _: int) -> None:
        x, y = strokes(48)
        other, lam = torch.randperm(48), 1.0
        if torch.rand(()) < 0.5:
            top, left, size = int(torch.randint(5, ())), int(torch.randint(5, ())), int(torch.randint(2, 6, ()))
            x = x.clone()
            x[:, :, top : top + size, left : left + size] = x[other, :, top : top + size, left : left + size]
            lam = 1 - size * size / 100
        out = training.model(x)
        loss = lam * training.criterion(out, y) + (1 - lam) * training.criterion(out, y[other])
        training.optimizer.zero_grad()
        loss.backward()
        training.optimizer.step()

    training = Training(
        Mixer(), partial(ADAMW, lr=4e-3, weight_decay=0.05), lambda _: strokes(48), nn.CrossEntropyLoss(label_smoothing=0.1),
        wrong_share(strokes), steps=220, step=step,
    )  # fmt: skip
    rate = LambdaLR(training.optimizer, lambda s: min((s + 1) / 20, 0.5 * (1 + math.cos(math.pi * min(s / 220, 1)))))
    training.schedulers = [rate]
    return training


@HALF.net("cnn")
def the_rate_is_looked_for_first() -> Training:
    """A sweep of the rate until the loss explodes, weights put back, then one cycle at the rate that was found."""
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 6),
    )  # fmt: skip

    def one(training: Training) -> float:
        x, y = strokes(48)
        training.optimizer.zero_grad()
        loss = training.criterion(training.model(x), y)
        loss.backward()
        training.optimizer.step()
        return loss.item()

    def loop(training: Training) -> None:
        kept = copy.deepcopy((training.model.state_dict(), training.optimizer.state_dict()))
        best = math.inf
        for i in range(80):
            for group in training.optimizer.param_groups:
                group["lr"] = 1e-6 * 10 ** (i / 10)
            loss = one(training)
            best = min(best, loss)
            if loss > 4 * best:
                break
        training.model.load_state_dict(kept[0])
        training.optimizer.load_state_dict(kept[1])
        scheduler = OneCycleLR(training.optimizer, max_lr=0.01, total_steps=200)
        for _ in range(200):
            one(training)
            scheduler.step()

    return Training(net, partial(ADAM, lr=1e-6), lambda _: strokes(48), nn.CrossEntropyLoss(), wrong_share(strokes), **of_a_notebook(loop))


class Pixels(nn.Module):
    """A class for each pixel, and a second head on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.early = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.late = nn.Sequential(nn.Conv2d(16, 16, 3, padding=2, dilation=2), nn.BatchNorm2d(16), nn.ReLU())
        self.classifier, self.aux = nn.Conv2d(16, 3, 1), nn.Conv2d(16, 3, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        features = self.early(x)
        return {"out": self.classifier(self.late(features)), "aux": self.aux(features)}


@HALF.net("cnn")
def borders_are_ignored() -> Training:
    """Two losses, 255 for what nobody has labelled, ten times the rate for the second head, a polynomial schedule."""

    def scenes(count: int) -> tuple[Tensor, Tensor]:
        level = F.interpolate(torch.randn(count, 1, 4, 4), size=14, mode="bilinear")
        label = torch.bucketize(level.squeeze(1), torch.tensor([-0.4, 0.5]))
        edge = (F.max_pool2d(label.float().unsqueeze(1), 3, 1, 1) != label.unsqueeze(1)).squeeze(1)
        return level + 0.5 * torch.randn_like(level), label.masked_fill(edge, 255)

    def criterion(out: dict[str, Tensor], target: Tensor) -> Tensor:
        losses = {name: F.cross_entropy(x, target, ignore_index=255) for name, x in out.items()}
        return losses["out"] + 0.5 * losses["aux"]

    def quality(net: nn.Module) -> float:
        x, y = scenes(40)
        return (net(x)["out"].argmax(1) != y)[y != 255].float().mean().item()

    model = Pixels()
    training = Training(model, partial(SGD, lr=0.02), lambda _: scenes(8), criterion, quality, steps=150)
    training.optimizer = SGD(
        [
            {"params": [*model.early.parameters(), *model.late.parameters(), *model.classifier.parameters()]},
            {"params": model.aux.parameters(), "lr": 0.2},
        ],
        lr=0.02, momentum=0.9, weight_decay=1e-4,
    )  # fmt: skip
    training.schedulers = [LambdaLR(training.optimizer, lambda s: (1 - s / 151) ** 0.9)]
    return training


@HALF.net("cnn")
def joints_as_heatmaps() -> Training:
    """A small bump in a map of zeros for each joint, and a plain squared error: the loss is tiny from the start."""
    at = torch.arange(12.0)

    def people(count: int) -> tuple[Tensor, Tensor]:
        center = 2 + 8 * torch.rand(count, 2, 2)
        bump = [torch.exp(-((at - center[..., i : i + 1]) ** 2) / 2) for i in range(2)]
        maps = bump[0].unsqueeze(-1) * bump[1].unsqueeze(-2)
        return (maps[:, :1] - maps[:, 1:]) * 1.5 + 0.1 * torch.randn(count, 1, 12, 12), maps

    def quality(net: nn.Module) -> float:
        x, y = people(100)
        return (net(x).flatten(2).argmax(-1) != y.flatten(2).argmax(-1)).float().mean().item()

    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 2, 1)
    )  # fmt: skip
    for m in net:
        if isinstance(m, nn.Conv2d):
            nn.init.normal_(m.weight, std=0.02)
            nn.init.zeros_(m.bias)
    return Training(net, partial(ADAM, lr=3e-3), lambda _: people(16), nn.MSELoss(), quality, steps=300)


@HALF.net("cnn")
def a_grid_of_cells() -> Training:
    """One look: each cell tells whether there is something, where and how large; squared errors, five times and half."""

    def scenes(count: int) -> tuple[Tensor, Tensor]:
        cell = torch.randint(16, (count,))
        place, size = torch.rand(count, 2), 0.3 + 0.7 * torch.rand(count, 1)
        target = torch.zeros(count, 16, 4)
        target[torch.arange(count), cell] = torch.cat([torch.ones(count, 1), place, size], 1)
        center = torch.stack([cell // 4, cell % 4], 1) * 4 + 4 * place
        axis = torch.arange(16.0)
        dist = (axis.view(1, -1, 1) - center[:, :1, None]) ** 2 + (axis.view(1, 1, -1) - center[:, 1:, None]) ** 2
        return (2 * torch.exp(-dist / (6 * size.unsqueeze(2) ** 2)) + 0.2 * torch.randn(count, 16, 16)).unsqueeze(1), target

    def criterion(out: Tensor, target: Tensor) -> Tensor:
        there = target[..., 0] > 0
        coord = F.mse_loss(out[there][:, 1:3], target[there][:, 1:3], reduction="sum")
        size = F.mse_loss(out[there][:, 3].abs().sqrt(), target[there][:, 3].sqrt(), reduction="sum")
        obj = F.mse_loss(out[there][:, 0], target[there][:, 0], reduction="sum")
        noobj = F.mse_loss(out[~there][:, 0], target[~there][:, 0], reduction="sum")
        return (5 * (coord + size) + obj + 0.5 * noobj) / len(out)

    class Grid(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(
                nn.Conv2d(1, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.LeakyReLU(0.1), nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32),
                nn.LeakyReLU(0.1), nn.Conv2d(32, 4, 1),
            )  # fmt: skip

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x).flatten(2).transpose(1, 2)

    def quality(net: nn.Module) -> float:
        x, y = scenes(200)
        return criterion(net(x), y).item()

    return Training(Grid(), partial(ADAM, lr=3e-3, weight_decay=5e-4), lambda _: scenes(32), criterion, quality, steps=250)


@HALF.net("cnn")
def two_students_of_each_other() -> Training:
    """Two nets, an optimizer for each; each learns labels and what the other one says."""

    def one() -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(1, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(128, 32), nn.ReLU(), nn.Linear(32, 6))

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.nets = nn.ModuleList([one(), one()])

        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([net(x) for net in self.nets]).mean(0)

    def step(training: Training, _: int) -> None:
        x, y = strokes(32)
        outs = [net(x) for net in training.model.nets]
        for i, optimizer in enumerate(training.optimizers):
            other = F.softmax(outs[1 - i].detach(), 1)
            loss = F.cross_entropy(outs[i], y) + F.kl_div(F.log_softmax(outs[i], 1), other, reduction="batchmean")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    model = Both()
    training = Training(model, partial(ADAM, lr=3e-3), lambda _: strokes(32), nn.CrossEntropyLoss(), wrong_share(strokes), 200, step=step)
    training.optimizer, training.others = ADAM(model.nets[0].parameters(), lr=3e-3), (ADAM(model.nets[1].parameters(), lr=3e-3),)
    return training


class Spokesman(nn.Module):
    """A trunk that is not trained tells an image to a decoder of words."""

    def __init__(self, cnn: nn.Module) -> None:
        super().__init__()
        self.cnn = cnn
        self.linear, self.bn = nn.Linear(64, 24), nn.BatchNorm1d(24, momentum=0.01)
        self.embed, self.lstm, self.out = nn.Embedding(8, 24), nn.LSTM(24, 40, batch_first=True), nn.Linear(40, 8)

    def forward(self, images: Tensor, captions: Tensor) -> Tensor:
        with torch.no_grad():
            features = self.cnn(images).flatten(1)
        features = self.bn(self.linear(features)).unsqueeze(1)
        hidden, _ = self.lstm(torch.cat([features, self.embed(captions)], 1))
        return self.out(hidden)


@HALF.net("recurrent")
def images_told_in_words() -> Training:
    """The features come without gradient; the optimizer has decoder, linear layer and norm, and not the trunk."""
    cnn = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(2))
    head = nn.Sequential(cnn, nn.Flatten(), nn.Linear(64, 6))
    before = ADAM(head.parameters(), lr=1e-2)
    for _ in range(100):
        x, label = strokes(32)
        before.zero_grad()
        F.cross_entropy(head(x), label).backward()
        before.step()
    words = torch.randint(2, 8, (6, 4), generator=torch.Generator().manual_seed(902))

    def told(count: int) -> Batch:
        x, label = strokes(count)
        caption = torch.cat([words[label], torch.ones(count, 1, dtype=torch.long)], 1)
        return (x, caption[:, :-1]), caption

    def quality(net: nn.Module) -> float:
        x, y = told(200)
        return missed(net(*x), y)

    model = Spokesman(cnn)
    training = Training(
        model, partial(ADAM, lr=3e-3), lambda _: told(32), lambda out, y: F.cross_entropy(out.flatten(0, 1), y.flatten()), quality, 250
    )
    params = [p for part in (model.embed, model.lstm, model.out, model.linear, model.bn) for p in part.parameters()]
    training.optimizer = ADAM(params, lr=3e-3)
    return training


@HALF.net("cnn")
def centred_and_sharpened() -> Training:
    """No labels: a student says what a slow teacher says of another view; the teacher's answers are centred and sharpened."""

    def views(count: int) -> tuple[Tensor, Tensor]:
        x, _ = strokes(count, kinds=4, noise=0.0)
        return x + 0.2 * torch.randn_like(x), x * (0.6 + 0.8 * torch.rand(count, 1, 1, 1)) + 0.2 * torch.randn_like(x)

    net = nn.Sequential(nn.Conv2d(1, 16, 3, 2), nn.GELU(), nn.Flatten(), nn.Linear(256, 48), nn.GELU(), nn.Linear(48, 32))
    teacher = copy.deepcopy(net).requires_grad_(False)
    center = torch.zeros(1, 32)

    def loss_of(student: Tensor, target: Tensor) -> Tensor:
        return -(F.softmax((target - center) / 0.04, -1).detach() * F.log_softmax(student / 0.1, -1)).sum(-1).mean()

    def step(training: Training, _: int) -> None:
        one, other = views(64)
        s1, s2, t1, t2 = training.model(one), training.model(other), teacher(one), teacher(other)
        loss = (loss_of(s1, t2) + loss_of(s2, t1)) / 2
        training.optimizer.zero_grad()
        loss.backward()
        training.optimizer.step()
        with torch.no_grad():
            center.mul_(0.9).add_(0.1 * torch.cat([t1, t2]).mean(0))
            for slow, quick in zip(teacher.parameters(), training.model.parameters(), strict=True):
                slow.mul_(0.99).add_(0.01 * quick)

    def quality(net: nn.Module) -> float:
        """How near two views are, beside different images."""
        one, other = (F.normalize(F.softmax(net(x) / 0.1, -1), dim=-1) for x in views(100))
        near = (one * other).sum(-1).mean() - (one @ other.T).mean()
        return max(1 - near.item(), 1e-3)

    return Training(
        net, partial(ADAMW, lr=2e-3, weight_decay=0.04), lambda _: (views(64)[0], torch.zeros(64)),
        lambda out, _: loss_of(out, out), quality,
        steps=250, step=step,
    )  # fmt: skip


# ---- texts -------------------------------------------------------------------------------------------

TALE = "the cat sat on the mat and the dog sat on the log and the cat saw the dog and the dog saw the cat and then both ran "


class WordModel(nn.Module):
    """An LSTM of words with a tied decoder."""

    def __init__(self, words: int, width: int = 40) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.2)
        self.encoder, self.rnn = nn.Embedding(words, width), nn.LSTM(width, width, 2, dropout=0.2)
        self.decoder = nn.Linear(width, words)
        self.decoder.weight = self.encoder.weight
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, x: Tensor, hidden: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        output, hidden = self.rnn(self.drop(self.encoder(x)), hidden)
        return F.log_softmax(self.decoder(self.drop(output)).flatten(0, 1), dim=1), hidden


@HALF.net("recurrent")
def a_rate_of_ten_for_words() -> Training:
    """State carried on and cut, a clip at a quarter, weights moved by hand; a quarter of the rate where validation stands."""
    vocabulary = sorted(set(TALE.split()))
    corpus = torch.tensor([vocabulary.index(word) for word in TALE.split() * 60])
    source = corpus[: len(corpus) // 8 * 8].view(8, -1).t().contiguous()

    def fresh(count: int) -> tuple[Tensor, Tensor]:
        return torch.zeros(2, count, 40), torch.zeros(2, count, 40)

    def quality(net: nn.Module) -> float:
        out, _ = net(source[:60], fresh(8))
        return F.nll_loss(out, source[1:61].flatten()).item()

    def loop(training: Training) -> None:
        lr, best = 10.0, math.inf
        for _ in range(12):
            training.model.train()
            hidden = fresh(8)
            for i in range(0, len(source) - 1, 12):
                n = min(12, len(source) - 1 - i)
                training.model.zero_grad()
                hidden = tuple(one.detach() for one in hidden)
                output, hidden = training.model(source[i : i + n], hidden)
                loss = training.criterion(output, source[i + 1 : i + 1 + n].flatten())
                loss.backward()
                nn.utils.clip_grad_norm_(training.model.parameters(), 0.25)
                for p in training.model.parameters():
                    p.data.add_(p.grad, alpha=-lr)
            training.model.eval()
            with torch.no_grad():
                val = quality(training.model)
            if val < best:
                best = val
            else:
                lr /= 4

    training = Training(
        WordModel(len(vocabulary)), partial(SGD, lr=10.0), lambda _: ((source[:12], fresh(8)), source[1:13].flatten()),
        lambda out, y: F.nll_loss(out[0] if isinstance(out, tuple) else out, y), quality, **of_a_notebook(loop),
    )  # fmt: skip
    return training


class Letters(nn.Module):
    """Category, letter and state side by side; an output of them all once more."""

    def __init__(self) -> None:
        super().__init__()
        self.i2h, self.i2o, self.o2o = nn.Linear(3 + 10 + 40, 40), nn.Linear(3 + 10 + 40, 11), nn.Linear(51, 11)
        self.dropout, self.softmax = nn.Dropout(0.1), nn.LogSoftmax(dim=1)

    def forward(self, category: Tensor, letter: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        combined = torch.cat((category, letter, hidden), 1)
        hidden = self.i2h(combined)
        output = self.o2o(torch.cat((hidden, self.i2o(combined)), 1))
        return self.softmax(self.dropout(output)), hidden


@HALF.net("recurrent")
def names_written_letter_by_letter() -> Training:
    """One name a step; losses of its letters are summed, and parameters are moved by hand at a rate of five ten-thousandths."""
    chain = torch.stack([torch.randperm(10, generator=torch.Generator().manual_seed(s)) for s in (903, 904, 905)])

    def name() -> tuple[Tensor, list[int]]:
        kind, letters = int(torch.randint(3, ())), [int(torch.randint(10, ()))]
        for _ in range(int(torch.randint(3, 7, ()))):
            letters.append(int(chain[kind, letters[-1]]))
        return F.one_hot(torch.tensor([kind]), 3).float(), letters

    def loss_of(net: nn.Module, category: Tensor, letters: list[int]) -> Tensor:
        hidden, loss = torch.zeros(1, 40), torch.zeros(())
        for now, then in zip(letters, [*letters[1:], 10], strict=True):
            output, hidden = net(category, F.one_hot(torch.tensor([now]), 10).float(), hidden)
            loss = loss + F.nll_loss(output, torch.tensor([then]))
        return loss

    def step(training: Training, number: int) -> None:
        category, letters = name()
        training.model.zero_grad()
        loss = loss_of(training.model, category, letters)
        loss.backward()
        for p in training.model.parameters():
            p.data.add_(p.grad.data, alpha=-0.01)
        if number % 100 == 0:
            print(number, loss.item() / len(letters))

    def quality(net: nn.Module) -> float:
        some = [name() for _ in range(60)]
        return sum(loss_of(net, category, letters).item() / len(letters) for category, letters in some) / 60

    def batch(_: int) -> Batch:
        return (F.one_hot(torch.tensor([0]), 3).float(), F.one_hot(torch.tensor([1]), 10).float(), torch.zeros(1, 40)), chain[0, 1:2]

    return Training(Letters(), partial(SGD, lr=0.01), batch, lambda out, y: F.nll_loss(out[0], y), quality, steps=900, step=step)


class Translator(nn.Module):
    """torch's own transformer with masks made by hand."""

    def __init__(self, words: int = 14, width: int = 32) -> None:
        super().__init__()
        self.transformer = nn.Transformer(width, 4, 1, 1, 64, dropout=0.1, batch_first=True)
        self.generator = nn.Linear(width, words)
        self.src, self.tgt, self.place = nn.Embedding(words, width), nn.Embedding(words, width), nn.Embedding(12, width)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        n, place = tgt.size(1), self.place.weight
        mask = torch.triu(torch.ones(n, n, dtype=torch.bool), 1)
        out = self.transformer(
            self.src(src) * math.sqrt(32) + place[: src.size(1)], self.tgt(tgt) * math.sqrt(32) + place[:n], tgt_mask=mask,
            src_key_padding_mask=src == 1, tgt_key_padding_mask=tgt == 1, memory_key_padding_mask=src == 1,
        )  # fmt: skip
        return self.generator(out)


@HALF.net("transformer")
def sentences_of_another_language() -> Training:
    """Padding is 1 and ignored, the decoder is fed all but the last token and judged on all but the first."""

    def pairs(count: int) -> tuple[Tensor, Tensor]:
        length = torch.randint(3, 7, (count, 1))
        src = torch.randint(4, 14, (count, 6)).masked_fill(torch.arange(6) >= length, 1)
        said = torch.where(src == 1, src, 4 + (src - 4 + 3) % 10)
        tgt = torch.cat([torch.full((count, 1), 2), said, torch.ones(count, 1, dtype=torch.long)], 1)
        return src, tgt.scatter(1, length + 1, 3)

    def batch(_: int) -> Batch:
        src, tgt = pairs(48)
        return (src, tgt[:, :-1]), tgt[:, 1:]

    def criterion(logits: Tensor, tgt: Tensor) -> Tensor:
        return F.cross_entropy(logits.reshape(-1, 14), tgt.reshape(-1), ignore_index=1)

    def quality(net: nn.Module) -> float:
        src, tgt = pairs(100)
        return missed(net(src, tgt[:, :-1]), tgt[:, 1:].masked_fill(tgt[:, 1:] == 1, -1))

    return Training(Translator(), partial(ADAM, lr=2e-3, betas=(0.9, 0.98), eps=1e-9), batch, criterion, quality, steps=350)


class Crf(nn.Module):
    """A tagger whose tags depend on each other: all ways through a sentence are summed."""

    def __init__(self, words: int = 20, tags: int = 5) -> None:
        super().__init__()
        self.word_embeds, self.lstm = nn.Embedding(words, 10), nn.LSTM(10, 8, bidirectional=True)
        self.hidden2tag, self.transitions = nn.Linear(16, tags), nn.Parameter(torch.randn(tags, tags))
        self.transitions.data[3, :] = -10000
        self.transitions.data[:, 4] = -10000

    def feats(self, sentence: Tensor) -> Tensor:
        out, _ = self.lstm(self.word_embeds(sentence).unsqueeze(1))
        return self.hidden2tag(out.squeeze(1))

    def neg_log_likelihood(self, sentence: Tensor, tags: Tensor) -> Tensor:
        feats = self.feats(sentence)
        alpha = torch.full((5,), -10000.0).index_fill(0, torch.tensor([3]), 0.0)
        for feat in feats:
            alpha = torch.logsumexp(self.transitions + alpha, 1) + feat
        whole = torch.logsumexp(alpha + self.transitions[4], 0)
        path = torch.cat([torch.tensor([3]), tags])
        gold = (self.transitions[path[1:], path[:-1]] + feats[torch.arange(len(tags)), tags]).sum() + self.transitions[4, path[-1]]
        return whole - gold

    def forward(self, sentence: Tensor, tags: Tensor | None = None) -> Tensor:
        """The loss, or the best way."""
        if tags is not None:
            return self.neg_log_likelihood(sentence, tags)
        feats, back = self.feats(sentence), []
        score = torch.full((5,), -10000.0).index_fill(0, torch.tensor([3]), 0.0)
        for feat in feats:
            best = (self.transitions + score).max(1)
            back.append(best.indices)
            score = best.values + feat
        path = [int((score + self.transitions[4]).argmax())]
        for pointers in reversed(back):
            path.append(int(pointers[path[-1]]))
        return torch.tensor(path[-2::-1])


@HALF.net("recurrent")
def tags_by_way_of_a_field() -> Training:
    """One sentence a step, the model gives the loss itself, minus ten thousand for what may not follow."""

    def sentence() -> tuple[Tensor, Tensor]:
        words = torch.randint(20, (int(torch.randint(5, 9, ())),))
        begins = words < 7
        inside = torch.cat([torch.zeros(1, dtype=torch.bool), begins[:-1]]) & ~begins & (words % 2 == 0)
        return words, torch.where(begins, 0, torch.where(inside, 1, 2))

    def step(training: Training, _: int) -> None:
        training.model.zero_grad()
        loss = training.model.neg_log_likelihood(*sentence())
        loss.backward()
        training.optimizer.step()

    def quality(net: nn.Module) -> float:
        some = [sentence() for _ in range(60)]
        return sum((net(words) != tags).float().mean().item() for words, tags in some) / 60

    return Training(
        Crf(),
        partial(SGD, lr=0.03, weight_decay=1e-4),
        lambda _: (pair := sentence(), pair[1]),
        lambda out, _: out,
        quality,
        500,
        step=step,
    )


@HALF.net("embedding")
def the_next_word_from_two() -> Training:
    """Pairs of words and the next one, one at a time, seven epochs of the same text; the epoch's losses are kept in a list."""
    text = TALE.split()
    vocabulary = sorted(set(text))
    ids = torch.tensor([vocabulary.index(word) for word in text])

    class Grams(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embeddings = nn.Embedding(len(vocabulary), 10)
            self.linear1, self.linear2 = nn.Linear(20, 64), nn.Linear(64, len(vocabulary))

        def forward(self, x: Tensor) -> Tensor:
            return F.log_softmax(self.linear2(F.relu(self.linear1(self.embeddings(x).view(1, -1)))), dim=1)

    def loop(training: Training) -> None:
        losses = []
        for _ in range(30):
            total = 0.0
            for i in range(len(ids) - 2):
                training.model.zero_grad()
                loss = training.criterion(training.model(ids[i : i + 2]), ids[i + 2 : i + 3])
                loss.backward()
                training.optimizer.step()
                total += loss.item()
            losses.append(total)

    def quality(net: nn.Module) -> float:
        return sum(F.nll_loss(net(ids[i : i + 2]), ids[i + 2 : i + 3]).item() for i in range(len(ids) - 2)) / len(ids)

    return Training(Grams(), partial(SGD, lr=0.02), lambda i: (ids[:2], ids[2:3]), nn.NLLLoss(), quality, **of_a_notebook(loop))


class Entails(nn.Module):
    """Word vectors that stay as they are, a projection, one encoder for both sentences."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.projection = nn.Embedding(30, 20), nn.Linear(20, 32)
        self.embed.weight.data = constant(30, 20, seed=906)
        self.embed.weight.requires_grad = False
        self.rnn, self.dropout = nn.LSTM(32, 32, dropout=0.0, bidirectional=True), nn.Dropout(0.2)
        self.out = nn.Sequential(nn.Linear(256, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 3))

    def encode(self, x: Tensor) -> Tensor:
        _, (h, _) = self.rnn(F.relu(self.projection(self.embed(x))))
        return h.transpose(0, 1).reshape(x.size(1), -1)

    def forward(self, premise: Tensor, hypothesis: Tensor) -> Tensor:
        u, v = self.encode(premise), self.encode(hypothesis)
        return self.out(torch.cat([u, v, (u - v).abs(), u * v], 1))


@HALF.net("recurrent")
def what_follows_from_a_sentence() -> Training:
    """Words first, batch second; a look at held-out pairs every fifty steps, and the model goes back to train at each step."""

    def pairs(count: int) -> Batch:
        premise, hypothesis = torch.randint(30, (6, count)), torch.randint(30, (4, count))
        topic, label = torch.randint(2, (count,)), torch.randint(3, (count,))
        premise[2:4], hypothesis[:2] = 10 * topic + torch.randint(10, (count,)), 10 * ((topic + label) % 2) + torch.randint(10, (count,))
        premise[[0, 1, 4, 5]], hypothesis[2] = 20 + premise[[0, 1, 4, 5]] // 4, 20 + hypothesis[2] // 4
        hypothesis[3] = torch.where(label == 2, 29, 28)
        return (premise, hypothesis), label

    def loop(training: Training) -> None:
        for i in range(500):
            training.model.train()
            training.optimizer.zero_grad()
            x, y = pairs(64)
            answer = training.model(*x)
            loss = training.criterion(answer, y)
            loss.backward()
            training.optimizer.step()
            if i % 50 == 0:
                training.model.eval()
                x, y = pairs(64)
                print(training.criterion(training.model(*x), y).item())

    def quality(net: nn.Module) -> float:
        x, y = pairs(400)
        return missed(net(*x), y)

    training = Training(Entails(), partial(ADAM, lr=3e-3), lambda _: pairs(64), nn.CrossEntropyLoss(), quality, **of_a_notebook(loop))
    training.optimizer = ADAM([p for p in training.model.parameters() if p.requires_grad], lr=3e-3)
    return training


class Tuned(nn.Module):
    """Eight vectors in front of each text are all that learns; what is behind them is frozen."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.prompt = nn.Parameter(0.5 * torch.randn(8, 32))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x, self.prompt)


class Body(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.layer = nn.Embedding(24, 32), nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, 4)

    def forward(self, x: Tensor, prompt: Tensor | None = None) -> Tensor:
        x = self.embed(x)
        if prompt is not None:
            x = torch.cat([prompt.expand(len(x), -1, -1), x], 1)
        return self.head(self.layer(x).mean(1))


@HALF.net("transformer")
def a_prompt_is_all_that_learns() -> Training:
    """The body has learnt four topics before; a few vectors in front turn its answers to the topic beside."""

    def texts(count: int, turn: int = 1) -> tuple[Tensor, Tensor]:
        label = torch.randint(4, (count,))
        x = torch.randint(24, (count, 8))
        x = torch.where(torch.rand(count, 8) < 0.5, x // 4 * 4 + label.unsqueeze(1), x)
        return x, torch.where(label < 2, label, (label + turn) % 4 if turn else label)

    body = Body()
    before = ADAM(body.parameters(), lr=3e-3)
    for _ in range(150):
        x, y = texts(48, turn=0)
        before.zero_grad()
        F.cross_entropy(body(x), y).backward()
        before.step()
    body.requires_grad_(False)
    body.head.requires_grad_(True)
    data = partial(texts, turn=3)
    training = Training(
        Tuned(body), partial(ADAMW, lr=0.02), lambda _: data(48), nn.CrossEntropyLoss(), wrong_share(data), steps=250
    )  # fmt: skip
    training.optimizer = ADAMW([p for p in training.model.parameters() if p.requires_grad], lr=0.02)
    training.schedulers = [CosineAnnealingLR(training.optimizer, 250)]
    return training
