"""Nothing is wrong here either: what else lies in people's notebooks, written after the mends for the files beside it."""

from __future__ import annotations

import copy
import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR, ExponentialLR, LinearLR, SequentialLR
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

from bench.sick.training import Batch, Training
from bench.sick.working.eighth_healthy import clothes, of_a_notebook, wrong_share
from bench.sick.working.fourth_nets import constant
from bench.sick.working.half import HALF
from bench.sick.working.seventh_healthy import mean_square, mlp
from bench.sick.working.third_nets import ADAM, ADAMW, SGD, missed


class Rows(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, at: int) -> tuple[Tensor, Tensor]:
        return self.x[at], self.y[at]


def wines(count: int) -> Batch:
    label = torch.randint(3, (count,))
    scale = torch.tensor([1.0, 0.5, 3.0, 20.0, 300.0, 0.1, 0.6, 2.0])
    x = (constant(3, 8, seed=820)[label] + 0.8 * torch.randn(count, 8)) * scale
    return x + 5 * scale, label


@HALF.net("mlp")
def wines_by_a_scaler_that_was_fitted() -> Training:
    """StandardScaler on the training part, a DataLoader of a Dataset of one's own, the last batch is smaller."""
    x, y = wines(140)
    mean, std = x.mean(0), x.std(0)
    loader = DataLoader(Rows((x - mean) / std, y), batch_size=32, shuffle=True)

    def loop(training: Training) -> None:
        for _ in range(30):
            for xb, yb in loader:
                training.optimizer.zero_grad()
                loss = training.criterion(training.model(xb), yb)
                loss.backward()
                training.optimizer.step()

    def quality(net: nn.Module) -> float:
        z, label = wines(300)
        return missed(net((z - mean) / std), label)

    def batch(_: int) -> Batch:
        z, label = wines(32)
        return (z - mean) / std, label

    return Training(mlp(8, 100, 50, 3), partial(SGD, lr=0.05), batch, nn.CrossEntropyLoss(), quality, **of_a_notebook(loop))


def diagnoses(count: int, share: float = 0.08) -> tuple[Tensor, Tensor]:
    ill = (torch.rand(count) < share).float()
    x = torch.randn(count, 10) + 0.9 * ill.unsqueeze(1) * constant(10, seed=821)
    return x, ill


def unfair(net: nn.Module, data: Any = diagnoses) -> float:
    x, ill = data(3000)
    found = (net(x).reshape(-1) > 0).float()
    return 1 - 0.5 * (found[ill == 1].mean() + (1 - found[ill == 0]).mean()).item()


@HALF.net("mlp")
def the_ill_weigh_eleven_times() -> Training:
    """Eight of a hundred are ill; pos_weight is how many more are well."""
    x, y = diagnoses(2000)
    weight = (y == 0).sum() / y.sum()

    def batch(_: int) -> Batch:
        at = torch.randint(2000, (64,))
        return x[at], y[at].unsqueeze(1)

    return Training(mlp(10, 32, 16, 1), partial(ADAM, lr=1e-3), batch, nn.BCEWithLogitsLoss(pos_weight=weight), unfair, steps=400)


@HALF.net("mlp")
def a_sampler_that_evens_out() -> Training:
    """WeightedRandomSampler draws as many ill as well."""
    x, y = diagnoses(2000)
    weights = torch.where(y == 1, 1 / y.sum(), 1 / (1 - y).sum())
    loader = DataLoader(Rows(x, y), batch_size=50, sampler=WeightedRandomSampler(weights.tolist(), 2000))

    def loop(training: Training) -> None:
        for _ in range(6):
            for xb, yb in loader:
                out = training.model(xb).squeeze()
                loss = training.criterion(out, yb)
                training.optimizer.zero_grad()
                loss.backward()
                training.optimizer.step()

    def batch(number: int) -> Batch:
        return x[50 * number : 50 * number + 50], y[50 * number : 50 * number + 50].unsqueeze(1)

    return Training(mlp(10, 32, 1), partial(ADAM, lr=2e-3), batch, nn.BCEWithLogitsLoss(), unfair, **of_a_notebook(loop))


class Dropout(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(6, 128), nn.BatchNorm1d(128), nn.LeakyReLU(), nn.Dropout(0.3), nn.Linear(128, 64), nn.BatchNorm1d(64), nn.LeakyReLU(),
            nn.Dropout(0.3), nn.Linear(64, 1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def rent(count: int) -> Batch:
    x = torch.randn(count, 6)
    y = 7.2 + 0.4 * x[:, 0] + 0.2 * x[:, 1] * x[:, 2] - 0.3 * x[:, 3].relu() + 0.25 * torch.randn(count)
    return x, y.unsqueeze(1)


def off_the_rent(net: nn.Module) -> float:
    x, y = rent(500)
    return mean_square(net(x), y)


@HALF.net("mlp")
def logarithms_of_the_rent() -> Training:
    """log1p of the price, a mean of seven, norms of batches and dropout, an L1 that ends above what validation says."""
    return Training(Dropout(), partial(ADAMW, lr=5e-3), lambda _: rent(64), nn.SmoothL1Loss(), off_the_rent, steps=350)


@HALF.net("mlp")
def folds_of_five() -> Training:
    """Cross-validation: the model is put back to its beginning for each fold, with a new optimizer state."""
    x, y = rent(250)
    y = y - 7
    model = mlp(6, 32, 1)
    begun = copy.deepcopy(model.state_dict())

    def loop(training: Training) -> None:
        for fold in range(5):
            model.load_state_dict(begun)
            training.optimizer.state.clear()
            train = torch.tensor([i for i in range(250) if i % 5 != fold])
            for _ in range(12):
                for at in train[torch.randperm(len(train))].split(20):
                    training.optimizer.zero_grad()
                    loss = F.mse_loss(model(x[at]), y[at])
                    loss.backward()
                    training.optimizer.step()

    def quality(net: nn.Module) -> float:
        z, target = rent(400)
        return mean_square(net(z), target - 7)

    return Training(model, partial(ADAM, lr=5e-3), lambda _: (x[:20], y[:20]), F.mse_loss, quality, **of_a_notebook(loop))


@HALF.net("mlp")
def three_rates_are_tried() -> Training:
    """A loop over rates with a new model each; the last is kept. The watch sees the model that is named `model`."""

    def loop(training: Training) -> None:
        for lr in (1e-4, 1e-2, 3e-3):
            model = training.model if lr == 3e-3 else mlp(6, 32, 1)
            opt = training.optimizer if lr == 3e-3 else torch.optim.Adam(model.parameters(), lr=lr)
            for _ in range(150):
                x, y = rent(32)
                opt.zero_grad()
                loss = F.mse_loss(model(x), y - 7)
                loss.backward()
                opt.step()

    def quality(net: nn.Module) -> float:
        z, target = rent(400)
        return mean_square(net(z), target - 7)

    return Training(mlp(6, 32, 1), partial(ADAM, lr=3e-3), lambda _: rent(32), F.mse_loss, quality, **of_a_notebook(loop))


@HALF.net("cnn")
def rotated_and_flipped() -> Training:
    """Augmented pictures, AdamW, warm-up and cosine by SequentialLR, an average of the weights that is evaluated."""
    x, y = clothes(600, noise=0.6)

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(
                nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1),
                nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Dropout(0.2), nn.Linear(288, 5),
            )  # fmt: skip

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x)

    model = Both()
    average = AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.95), use_buffers=True)

    def batch(_: int) -> Batch:
        at = torch.randint(600, (32,))
        some = x[at]
        some = torch.where(torch.rand(32, 1, 1, 1) < 0.5, torch.roll(some, 1, 3), some)
        return some + 0.1 * torch.randn_like(some), y[at]

    training = Training(
        model, partial(ADAMW, lr=2e-3, weight_decay=0.05), batch, nn.CrossEntropyLoss(),
        lambda _: wrong_share(partial(clothes, noise=0.6))(average), 150,
        after=[lambda _: average.update_parameters(model)],
    )  # fmt: skip
    opt = training.optimizer
    training.schedulers = [SequentialLR(opt, [LinearLR(opt, 0.01, total_iters=15), CosineAnnealingLR(opt, 135)], milestones=[15])]
    return training


class Squeeze(nn.Module):
    """Depthwise and pointwise convolutions."""

    def __init__(self) -> None:
        super().__init__()

        def block(a: int, b: int, stride: int) -> nn.Sequential:
            return nn.Sequential(
                nn.Conv2d(a, a, 3, stride, 1, groups=a, bias=False), nn.BatchNorm2d(a), nn.ReLU6(inplace=True),
                nn.Conv2d(a, b, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU6(inplace=True),
            )  # fmt: skip

        self.features = nn.Sequential(
            nn.Conv2d(1, 12, 3, 1, 1, bias=False), nn.BatchNorm2d(12), nn.ReLU6(True), block(12, 24, 2), block(24, 32, 2)
        )
        self.classifier = nn.Linear(32, 5)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out")
            elif isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, 0, 0.01)
                nn.init.zeros_(m.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean([2, 3]))


@HALF.net("cnn")
def a_mobile_net() -> Training:
    """RMSprop with a momentum, and a rate that decays by two percent."""
    training = Training(
        Squeeze(), partial(torch.optim.RMSprop, lr=2e-3, alpha=0.9, momentum=0.9, weight_decay=4e-5),
        lambda _: clothes(32), nn.CrossEntropyLoss(), wrong_share(clothes), steps=200,
    )  # fmt: skip
    training.schedulers = [ExponentialLR(training.optimizer, 0.985)]
    return training


@HALF.net("transformer")
def patches_as_words() -> Training:
    """A vision transformer with a class token, trained from nothing on noisy pictures."""

    class ViT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patch = nn.Conv2d(1, 32, 4, 4)
            self.cls, self.pos = nn.Parameter(torch.zeros(1, 1, 32)), nn.Parameter(torch.zeros(1, 10, 32))
            nn.init.trunc_normal_(self.pos, std=0.02)
            layer = nn.TransformerEncoderLayer(32, 4, 64, 0.1, "gelu", batch_first=True, norm_first=True)
            self.blocks = nn.TransformerEncoder(layer, 3, norm=nn.LayerNorm(32), enable_nested_tensor=False)
            self.head = nn.Linear(32, 5)

        def forward(self, x: Tensor) -> Tensor:
            x = self.patch(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
            return self.head(self.blocks(x)[:, 0])

    noisy = partial(clothes, noise=0.8)
    return Training(
        ViT(),
        partial(ADAMW, lr=1e-3, weight_decay=0.05),
        lambda _: noisy(48),
        nn.CrossEntropyLoss(label_smoothing=0.1),
        wrong_share(noisy),
        200,
        clip=1.0,
    )


@HALF.net("transformer")
def a_sentence_classified_by_its_mean() -> Training:
    """Padded sentences, a key padding mask, the mean over what is there."""

    def sentences(count: int) -> Batch:
        length = torch.randint(4, 13, (count,))
        label = torch.randint(3, (count,))
        words = torch.randint(3, 60, (count, 12))
        words = torch.where(torch.rand(count, 12) < 0.25, words // 3 * 3 + label.unsqueeze(1), words)
        return words * (torch.arange(12) < length.unsqueeze(1)), label

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.emb, self.pos = nn.Embedding(63, 32, padding_idx=0), nn.Embedding(12, 32)
            self.enc = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
            self.fc = nn.Linear(32, 3)

        def forward(self, x: Tensor) -> Tensor:
            pad = x == 0
            h = self.enc(self.emb(x) * math.sqrt(32) + self.pos(torch.arange(12)), src_key_padding_mask=pad)
            there = (~pad).unsqueeze(-1).float()
            return self.fc((h * there).sum(1) / there.sum(1))

    return Training(Net(), partial(ADAM, lr=1e-3), lambda _: sentences(32), nn.CrossEntropyLoss(), wrong_share(sentences), steps=300)


@HALF.net("recurrent")
def letters_one_after_the_other() -> Training:
    """A char-LSTM on one-hot letters; the state goes on from batch to batch and is detached; perplexity is what people print."""
    text = "the quick brown fox jumps over the lazy dog and runs away from the angry bear "
    letters = sorted(set(text))
    data = torch.tensor([letters.index(c) for c in text * 40])
    columns = data[: len(data) // 8 * 8].view(8, -1)

    class CharLSTM(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.fc = nn.LSTM(len(letters), 64, batch_first=True), nn.Linear(64, len(letters))

        def forward(self, x: Tensor, hidden: Any = None) -> tuple[Tensor, Any]:
            out, hidden = self.lstm(F.one_hot(x, len(letters)).float(), hidden)
            return self.fc(out), hidden

    def loop(training: Training) -> None:
        for _ in range(12):
            hidden = None
            for start in range(0, columns.size(1) - 21, 20):
                x, y = columns[:, start : start + 20], columns[:, start + 1 : start + 21]
                training.model.zero_grad()
                out, hidden = training.model(x, hidden)
                hidden = tuple(h.detach() for h in hidden)
                loss = F.cross_entropy(out.reshape(-1, len(letters)), y.reshape(-1))
                loss.backward()
                nn.utils.clip_grad_norm_(training.model.parameters(), 5)
                training.optimizer.step()

    def quality(net: nn.Module) -> float:
        out, _ = net(columns[:, :60])
        return missed(out.flatten(0, 1), columns[:, 1:61].flatten())

    def batch(number: int) -> Batch:
        return columns[:, :20], columns[:, 1:21]

    return Training(
        CharLSTM(), partial(ADAM, lr=4e-3), batch, lambda out, y: F.cross_entropy(out[0].transpose(1, 2), y), quality, **of_a_notebook(loop)
    )


@HALF.net("recurrent")
def a_sine_by_closure() -> Training:
    """The LSTM cells of the time sequence example, LBFGS on all waves at once, in double precision."""
    t = torch.arange(60, dtype=torch.float64)
    waves = torch.sin((t + torch.randint(-40, 40, (12, 1))) / 6)
    x, y = waves[:, :-1], waves[:, 1:]

    class Sequence(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm1, self.linear = nn.LSTMCell(1, 16), nn.Linear(16, 1)

        def forward(self, series: Tensor) -> Tensor:
            outputs = []
            h = torch.zeros(len(series), 16, dtype=torch.double)
            c = torch.zeros(len(series), 16, dtype=torch.double)
            for one in series.split(1, dim=1):
                h, c = self.lstm1(one, (h, c))
                outputs.append(self.linear(h))
            return torch.cat(outputs, dim=1)

    def step(training: Training, _: int) -> None:
        def closure() -> Tensor:
            training.optimizer.zero_grad()
            loss = training.criterion(training.model(x), y)
            loss.backward()
            return loss

        training.optimizer.step(closure)

    return Training(
        Sequence().double(),
        partial(torch.optim.LBFGS, lr=0.8),
        lambda _: (x, y),
        nn.MSELoss(),
        lambda net: mean_square(net(x), y),
        8,
        step=step,
    )


@HALF.net("recurrent")
def how_many_are_sold_next_week() -> Training:
    """Counts of ten shops, with an embedding of the shop, a GRU, and log1p of what was sold."""

    def sales(count: int) -> Batch:
        shop = torch.randint(10, (count,))
        level = 2 + constant(10, seed=822)[shop].unsqueeze(1) * 0.5
        t = torch.arange(15) + torch.randint(7, (count, 1))
        x = torch.poisson(torch.exp(level + 0.6 * torch.sin(2 * math.pi * t / 7)))
        return (torch.log1p(x[:, :14]).unsqueeze(-1), shop), torch.log1p(x[:, 14])

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shop, self.gru, self.out = nn.Embedding(10, 4), nn.GRU(1, 24, batch_first=True), nn.Linear(28, 1)

        def forward(self, x: Tensor, shop: Tensor) -> Tensor:
            return self.out(torch.cat([self.gru(x)[1][0], self.shop(shop)], 1)).squeeze(1)

    def quality(net: nn.Module) -> float:
        x, y = sales(500)
        return mean_square(net(*x), y)

    return Training(Net(), partial(ADAM, lr=5e-3), lambda _: sales(64), nn.MSELoss(), quality, steps=250)


@HALF.net("mlp")
def temperature_of_tomorrow() -> Training:
    """Fourteen days in degrees, minus their mean over all; yesterday tells most, and a linear layer is all."""

    def days(count: int) -> Batch:
        start = 365 * torch.rand(count, 1) + torch.arange(15)
        weather = torch.randn(count, 15).cumsum(1) * 0.8
        x = 10 * torch.sin(2 * math.pi * start / 365) + weather
        return x[:, :14], x[:, 14:]

    def quality(net: nn.Module) -> float:
        x, y = days(500)
        return mean_square(net(x), y)

    return Training(nn.Linear(14, 1), partial(ADAM, lr=2e-3), lambda _: days(32), nn.MSELoss(), quality, steps=500)


@HALF.net("mlp")
def which_price_tomorrow() -> Training:
    """Up or down: little can be known, three columns of a dozen tell something, and the loss stays by a hair below 0.69."""

    def market(count: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(count, 12)
        return x, 0.35 * x[:, 0] - 0.25 * x[:, 1] + 0.25 * x[:, 2]

    def batch(_: int) -> Batch:
        x, logit = market(256)
        return x, torch.bernoulli(logit.sigmoid()).unsqueeze(1)

    def quality(net: nn.Module) -> float:
        x, logit = market(1000)
        return (net(x).squeeze(1).sigmoid() - logit.sigmoid()).square().mean().item()

    return Training(mlp(12, 16, 1), partial(ADAM, lr=2e-3), batch, nn.BCEWithLogitsLoss(), quality, steps=400)


@HALF.net("embedding")
def explicit_and_implicit() -> Training:
    """Two towers with dot products, the other items of the batch as negatives, a temperature that is learnt."""
    taste = torch.randint(6, (80,), generator=torch.Generator().manual_seed(823))

    class Towers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.user = nn.Sequential(nn.Embedding(80, 16), nn.Linear(16, 16))
            self.item = nn.Sequential(nn.Embedding(60, 16), nn.Linear(16, 16))
            self.logit_scale = nn.Parameter(torch.tensor(math.log(10)))

        def forward(self, user: Tensor, item: Tensor) -> Tensor:
            u, i = F.normalize(self.user(user), dim=-1), F.normalize(self.item(item), dim=-1)
            return self.logit_scale.exp() * u @ i.T

    def batch(_: int) -> Batch:
        user = torch.randint(80, (48,))
        return (user, taste[user] * 10 + torch.randint(10, (48,))), torch.arange(48)

    def quality(net: nn.Module) -> float:
        scores = net(torch.arange(80), torch.arange(60))
        return (scores.topk(5, 1).indices // 10 != taste.unsqueeze(1)).float().mean().item()

    return Training(Towers(), partial(ADAM, lr=3e-3), batch, nn.CrossEntropyLoss(), quality, steps=450)


@HALF.net("generative")
def pictures_without_noise() -> Training:
    """DDPM in small: a time embedding, the noise is what is asked for, a linear schedule of a hundred steps."""
    betas = torch.linspace(1e-3, 0.08, 60)
    alphas = torch.cumprod(1 - betas, 0)

    class Denoiser(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.time = nn.Embedding(60, 32)
            self.a, self.b, self.c = nn.Linear(2, 64), nn.Linear(96, 96), nn.Linear(96, 2)

        def forward(self, x: Tensor, t: Tensor) -> Tensor:
            return self.c(F.silu(self.b(torch.cat([F.silu(self.a(x)), self.time(t)], 1))))

    def letters(count: int) -> Tensor:
        angle = 2 * math.pi * torch.rand(count)
        return torch.stack([angle.sin(), (2 * angle).sin()], 1) + 0.05 * torch.randn(count, 2)

    def step(training: Training, _: int) -> None:
        x0, t, noise = letters(256), torch.randint(60, (256,)), torch.randn(256, 2)
        xt = alphas[t].sqrt().unsqueeze(1) * x0 + (1 - alphas[t]).sqrt().unsqueeze(1) * noise
        loss = F.mse_loss(training.model(xt, t), noise)
        training.optimizer.zero_grad()
        loss.backward()
        training.optimizer.step()

    def quality(net: nn.Module) -> float:
        x = torch.randn(400, 2)
        for t in range(59, -1, -1):
            eps = net(x, torch.full((400,), t))
            x = (x - betas[t] / (1 - alphas[t]).sqrt() * eps) / (1 - betas[t]).sqrt() + (t > 0) * betas[t].sqrt() * torch.randn(400, 2)
        real = letters(400)
        return (2 * torch.cdist(x, real).mean() - torch.cdist(x, x).mean() - torch.cdist(real, real).mean()).item()

    def batch(_: int) -> Batch:
        t, noise = torch.randint(60, (64,)), torch.randn(64, 2)
        return (alphas[t].sqrt().unsqueeze(1) * letters(64) + (1 - alphas[t]).sqrt().unsqueeze(1) * noise, t), noise

    return Training(Denoiser(), partial(ADAM, lr=2e-3), batch, F.mse_loss, quality, steps=500, step=step)


@HALF.net("mlp")
def soft_actor() -> Training:
    """Actions by reparametrization, an entropy bonus with a learnt temperature; three optimizers."""

    class Agent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.actor, self.q = mlp(2, 32, 2), mlp(3, 48, 1)
            self.log_alpha = nn.Parameter(torch.zeros(()))

        def forward(self, s: Tensor) -> tuple[Tensor, Tensor]:
            mean, log_std = self.actor(s).chunk(2, 1)
            return mean, log_std.clamp(-4, 1)

    model = Agent()

    def reward(s: Tensor, a: Tensor) -> Tensor:
        return -((a - s[:, :1] * s[:, 1:]) ** 2)

    def step(training: Training, _: int) -> None:
        s = 2 * torch.rand(128, 2) - 1
        mean, log_std = model(s)
        dist = torch.distributions.Normal(mean, log_std.exp())
        a = dist.rsample()
        with torch.no_grad():
            target = reward(s, a)
        q_loss = F.mse_loss(model.q(torch.cat([s, a.detach()], 1)), target)
        q_optim, alpha_optim = training.others
        q_optim.zero_grad()
        q_loss.backward()
        q_optim.step()
        logp = dist.log_prob(a)
        actor_loss = (0.05 * model.log_alpha.exp().detach() * logp - model.q(torch.cat([s, a], 1))).mean()
        training.optimizer.zero_grad()
        actor_loss.backward()
        training.optimizer.step()
        alpha_loss = -(model.log_alpha.exp() * (logp.detach() - 1)).mean()
        alpha_optim.zero_grad()
        alpha_loss.backward()
        alpha_optim.step()

    def quality(net: nn.Module) -> float:
        s = 2 * torch.rand(400, 2) - 1
        return -reward(s, net(s)[0]).mean().item()

    def batch(_: int) -> Batch:
        s = 2 * torch.rand(128, 2) - 1
        return s, s[:, :1] * s[:, 1:]

    training = Training(model, partial(ADAM, lr=3e-3), batch, lambda out, y: F.mse_loss(out[0], y), quality, steps=500, step=step)
    training.optimizer = ADAM(model.actor.parameters(), lr=3e-3)
    training.others = (ADAM(model.q.parameters(), lr=5e-3), ADAM([model.log_alpha], lr=1e-3))
    return training


@HALF.net("cnn")
def a_linear_probe() -> Training:
    """A frozen encoder in evaluation mode and without gradients, wrapped with a linear head that alone is trained."""
    torch.manual_seed(int(torch.randint(1000, ())))
    encoder = nn.Sequential(nn.Conv2d(1, 24, 5, stride=2), nn.BatchNorm2d(24), nn.ReLU(), nn.Flatten())

    class Probe(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = encoder.eval()
            self.head = nn.Linear(24 * 16, 5)

        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                h = self.encoder(x)
            return self.head(h)

    def each(number: int) -> None:
        if not number:
            model.encoder.eval()

    model = Probe()
    training = Training(model, partial(ADAM, lr=1e-3), lambda _: clothes(32), nn.CrossEntropyLoss(), wrong_share(clothes), 200, each=[each])
    training.optimizer = ADAM(model.head.parameters(), lr=1e-3)
    return training


@HALF.net("cnn")
def heads_for_three_questions() -> Training:
    """Kind, brightness and whether it is mirrored; the losses are summed with weights, and one head learns late."""

    def asked(count: int) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        x, kind = clothes(count)
        light = 0.5 * torch.randn(count, 1)
        return x + light.view(-1, 1, 1, 1), (kind, light)

    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(1, 16, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(400, 48), nn.ReLU())
            self.kind, self.light, self.unused = nn.Linear(48, 5), nn.Linear(48, 1), nn.Linear(48, 2)

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            h = self.body(x)
            return {"kind": self.kind(h), "light": self.light(h)}

    def loss(out: dict[str, Tensor], target: Any) -> Tensor:
        return F.cross_entropy(out["kind"], target[0]) + 0.5 * F.mse_loss(out["light"], target[1])

    def quality(net: nn.Module) -> float:
        x, (kind, light) = asked(300)
        out = net(x)
        return missed(out["kind"], kind) + mean_square(out["light"], light)

    return Training(Heads(), partial(ADAM, lr=2e-3), lambda _: asked(32), loss, quality, steps=200)


@HALF.net("mlp")
def anomalies_by_what_is_left() -> Training:
    """An autoencoder of a table with three numbers in the middle, ReLU inside, and early stopping by a held-out part."""
    mix = constant(3, 16, seed=824)

    def machines(count: int) -> Tensor:
        return torch.tanh(torch.randn(count, 3) @ mix / 1.7) + 0.1 * torch.randn(count, 16)

    train, val = machines(800), machines(200)

    def loop(training: Training) -> None:
        best, wait = math.inf, 0
        for _ in range(60):
            training.model.train()
            for xb in train[torch.randperm(800)].split(64):
                training.optimizer.zero_grad()
                loss = training.criterion(training.model(xb), xb)
                loss.backward()
                training.optimizer.step()
            training.model.eval()
            with torch.no_grad():
                now = training.criterion(training.model(val), val).item()
            best, wait = (now, 0) if now < best - 1e-4 else (best, wait + 1)
            if wait > 5:
                break

    def quality(net: nn.Module) -> float:
        x = machines(300)
        return mean_square(net(x), x)

    return Training(
        mlp(16, 32, 3, 32, 16), partial(ADAM, lr=3e-3), lambda _: (train[:64],) * 2, nn.MSELoss(), quality, **of_a_notebook(loop)
    )


@HALF.net("mlp")
def thirty_steps_for_a_test() -> Training:
    """Only to see that it runs: thirty steps."""
    x = torch.randn(200, 4)
    y = (x[:, 0] > 0).long()

    def data(count: int) -> Batch:
        z = torch.randn(count, 4)
        return z, (z[:, 0] > 0).long()

    return Training(
        mlp(4, 16, 2),
        partial(ADAM, lr=0.02),
        lambda i: (x[i % 10 * 20 :][:20], y[i % 10 * 20 :][:20]),
        nn.CrossEntropyLoss(),
        wrong_share(data),
        30,
    )


@HALF.net("mlp")
def one_pass_over_a_stream() -> Training:
    """Batches of sixteen of a stream whose level drifts; each is seen once."""

    def stream(number: int, count: int = 16) -> Batch:
        x = torch.randn(count, 5)
        return x, (x @ torch.tensor([1.0, -0.5, 0.3, 0, 0])).unsqueeze(1) + 0.002 * number + 0.3 * torch.randn(count, 1)

    def quality(net: nn.Module) -> float:
        x, y = stream(600, 500)
        return mean_square(net(x), y)

    return Training(mlp(5, 24, 1), partial(SGD, lr=0.02, momentum=0.9), stream, F.mse_loss, quality, steps=600)


@HALF.net("mlp")
def points_of_a_parabola() -> Training:
    """Forty points, all at once, two thousand epochs, a plot at the end."""
    x = torch.linspace(-1, 1, 40).unsqueeze(1)
    y = x**2 + 0.1 * torch.rand(40, 1)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden, self.predict = nn.Linear(1, 10), nn.Linear(10, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.predict(F.relu(self.hidden(x)))

    return Training(Net(), partial(SGD, lr=0.2), lambda _: (x, y), nn.MSELoss(), lambda net: mean_square(net(x), x**2 + 0.05), 400)
