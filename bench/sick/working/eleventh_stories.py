"""What people asked in threads and issues, rebuilt small: the net and the mistake in the poster's way of writing, and nothing copied."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.sick.changes import on_options
from bench.sick.training import Batch, Training
from bench.sick.working.eighth_healthy import of_a_notebook
from bench.sick.working.fourth_nets import constant
from bench.sick.working.half import HALF
from bench.sick.working.third_nets import ADAM, SGD, missed

# ---- two views in one batch: github.com/google-research/simclr/issues/141, github.com/HobbitLong/SupContrast/issues/45 ----


def views(count: int, noise: float = 0.5) -> Tensor:
    """Two noisy views of each sample, one half of the batch after the other."""
    base, code = constant(24, 8, seed=1148), torch.randn(count, 8)
    return torch.cat([code @ base.T / 3 + noise * torch.randn(count, 24) + 1.5 * torch.randn(count, 1) for _ in range(2)])


def nt_xent(scale: float, z: Tensor, which: Tensor) -> Tensor:
    one, other = F.normalize(z, dim=1).chunk(2)
    logits = one @ other.T * scale
    return (F.cross_entropy(logits, which) + F.cross_entropy(logits.T, which)) / 2


@HALF.net("embedding")
def views_in_one_batch() -> Training:
    """Scores are products of two halves of one output, and not of it with itself."""

    def quality(net: nn.Module) -> float:
        one, other = F.normalize(net(views(200)), dim=1).chunk(2)
        return missed(one @ other.T, torch.arange(200))

    net = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 16))
    return Training(net, partial(ADAM, lr=5e-3), lambda _: (views(64), torch.arange(64)), partial(nt_xent, 10.0), quality, steps=200)


@HALF.fault("temperature", views_in_one_batch)
def scores_are_multiplied_by_the_temperature(training: Training) -> None:
    training.criterion = partial(nt_xent, 0.07)


# ---- the first number is asked for at the end: the loss stays where it begins, and then falls -----------------------------


class Remembers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.fc = nn.LSTM(2, 24, batch_first=True), nn.Linear(24, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.rnn(x)[0][:, -1])


@HALF.net("recurrent")
def first_mark() -> Training:
    """A mark tells the answer at once, if it is remembered: no leak."""

    def marks(count: int) -> Batch:
        label = torch.randint(2, (count,))
        x = torch.stack([0.5 * torch.randn(count, 11), torch.zeros(count, 11)], 2)
        x[:, 0] = torch.stack([2.0 * label - 1, torch.ones(count)], 1)
        return x, label

    def quality(net: nn.Module) -> float:
        x, label = marks(400)
        return F.cross_entropy(net(x), label).item()

    return Training(Remembers(), partial(ADAM, lr=4e-3), lambda _: marks(64), F.cross_entropy, quality, steps=400)


# ---- a density whose loss falls at once and then has no end: github.com/mlberkeley/scae-pytorch/pull/4 ----------------------


class Bells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Sequential(nn.Linear(1, 32), nn.Tanh())
        self.share, self.mean, self.width = (nn.Linear(32, 3) for _ in range(3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = self.hidden(x)
        return F.log_softmax(self.share(h), 1), self.mean(h), self.width(h)


def density(output: tuple[Tensor, Tensor, Tensor], y: Tensor, safely: bool = True) -> Tensor:
    share, mean, width = output
    each = -0.5 * ((y - mean) / width.exp()) ** 2 - width - 0.919
    return -(torch.logsumexp(share + each, 1) if safely else torch.log((share.exp() * each.exp()).sum(1))).mean()


@HALF.net("generative")
def bells() -> Training:
    """Far away at first: what falls most in its first steps varies there most."""

    def batch(count: int) -> Batch:
        x = 4 * torch.rand(count, 1) - 2
        return x, (2.0 * torch.randint(2, (count, 1)) - 1) * (1 + x.abs()) * 8 + 0.1 * torch.randn(count, 1)

    def quality(net: nn.Module) -> float:
        x, y = batch(400)
        return density(net(x), y).item() + 1

    return Training(Bells(), partial(ADAM, lr=1e-2), lambda _: batch(64), density, quality, steps=300)


@HALF.fault("log of zero", bells, also=("overflow", "underflow"))
def exp_of_the_logarithm_before_the_sum(training: Training) -> None:
    training.criterion = partial(density, safely=False)


# ---- a table: a range test of the rate (github.com/davidtvs/pytorch-lr-finder) --------------------------------------------


def tumours_loop(ranged: bool, training: Training) -> None:
    x, y = training.batch(0)
    for number in range(60 if ranged else 0):
        for group in training.optimizer.param_groups:
            group["lr"] = 1e-5 * 1.27**number
        rows = torch.randint(1200, (40,))
        training.optimizer.zero_grad()
        training.criterion(training.model(x[rows]), y[rows]).backward()
        training.optimizer.step()
    for _ in range(8):
        for rows in torch.randperm(1200).split(40):
            training.optimizer.zero_grad()
            training.criterion(training.model(x[rows]), y[rows]).backward()
            training.optimizer.step()


@HALF.net("mlp")
def tumours() -> Training:
    """Benign or malignant."""
    mix = constant(30, seed=1103)

    def draw(count: int) -> Batch:
        x = torch.randn(count, 30)
        score = x @ mix / 5.5 + 0.5 * x[:, 0] * x[:, 1] + 0.2 * torch.randn(count)
        return x, (score > 0).float().unsqueeze(1)

    def quality(net: nn.Module) -> float:
        x, y = draw(600)
        return ((net(x) > 0).float() != y).float().mean().item()

    data = draw(1200)
    net = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    loop = of_a_notebook(partial(tumours_loop, False))
    return Training(net, partial(ADAM, lr=2e-3), lambda _: data, nn.BCEWithLogitsLoss(), quality, **loop)


@HALF.fault("rate too high", tumours, also=("not finite by the rate",))
def a_range_test_and_nothing_is_reset(training: Training) -> None:
    vars(training).update(of_a_notebook(partial(tumours_loop, True)))


# ---- one layer of weights in a parameter: forums.fast.ai/t/trouble-with-a-simple-cross-recognizer/58206 ---------------------


class Crosses(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer1 = nn.Parameter(torch.rand(10) - 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(torch.cat([x, torch.ones(len(x), 1)], 1) @ self.layer1)


@HALF.net("mlp")
def crosses() -> Training:
    """Is there an X in nine pixels? No parameter has two dimensions."""

    def draw(count: int) -> Batch:
        cross = torch.tensor([1.0, 0, 1, 0, 1, 0, 1, 0, 1])
        label = (torch.arange(count) % 2).float()
        x = torch.where(label[:, None] > 0, (cross + 0.15 * torch.randn(count, 9)).clamp(0, 1), torch.rand(count, 9))
        return x, label

    def quality(net: nn.Module) -> float:
        x, label = draw(300)
        return F.mse_loss(net(x), label).item()

    data = draw(300)
    return Training(Crosses(), partial(SGD, lr=2.0), lambda _: data, lambda y_hat, y: ((y_hat - y) ** 2).mean(), quality, steps=400)


@HALF.fault("rate too low", crosses)
def a_rate_of_a_millionth(training: Training) -> None:
    on_options(training, lr=1e-6)


# ---- cells and boxes: github.com/marvis/pytorch-yolo2/issues/151 ----------------------------------------------------------


class Boxes(nn.Module):
    def __init__(self, torn: bool = False) -> None:
        super().__init__()
        self.torn = torn
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.LeakyReLU(0.1), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.LeakyReLU(0.1), nn.MaxPool2d(2),
        )  # fmt: skip
        self.head = nn.Conv2d(32, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        out = self.head(self.body(x))
        return out.view(len(x), 4, 4, 5) if self.torn else out.permute(0, 2, 3, 1)


def scenes(count: int) -> Batch:
    """Two squares in each picture; for each cell whether one is there, its place in the cell and the logarithm of its size."""
    image, target = 0.15 * torch.randn(count, 1, 16, 16), torch.zeros(count, 4, 4, 5)
    row = torch.arange(16.0)
    for one in range(count):
        for _ in range(2):
            x, y = (2 + 12 * torch.rand(2)).tolist()
            size, at = 2 + 4 * torch.rand(()).item(), (int(y / 4), int(x / 4))
            if not target[one][at][0]:
                image[one, 0] += ((row - x).abs() < size / 2) * ((row - y).abs() < size / 2).unsqueeze(1)
                target[one][at] = torch.tensor([1, x / 4 - at[1], y / 4 - at[0], 2 * math.log(size / 4), 2 * math.log(size / 4)])
    return image, target


def boxes_loss(out: Tensor, target: Tensor) -> Tensor:
    there = target[..., 0]
    weight = there.unsqueeze(-1) / there.sum().clamp(min=1)
    sure = F.binary_cross_entropy_with_logits(out[..., 0], there, weight=there + 0.5 * (1 - there))
    place, size = (out[..., 1:3].sigmoid() - target[..., 1:3]) ** 2, (out[..., 3:] - target[..., 3:]) ** 2
    return sure + (place * weight).sum() + (size * weight).sum()


@HALF.net("cnn")
def grid_of_boxes() -> Training:
    def quality(net: nn.Module) -> float:
        x, target = scenes(60)
        out, there = net(x), target[..., 0]
        said = (out[..., 0] > 0).float()
        return (1 - 2 * (said * there).sum() / (said.sum() + there.sum() + 1e-6)).item()

    image, target = scenes(300)

    def batch(_: int) -> Batch:
        rows = torch.randint(300, (24,))
        return image[rows], target[rows]

    return Training(Boxes(), partial(ADAM, lr=4e-3), batch, boxes_loss, quality, steps=160)


@HALF.fault("wrong axes", grid_of_boxes)
def the_head_is_viewed_as_cells(training: Training) -> None:
    training.use(Boxes(torn=True))


# ---- the scores of a larger net: github.com/microsoft/ProDA/issues/20 ------------------------------------------------------


def softly(taken: Any, output: Tensor, said: Tensor) -> Tensor:
    return 25 * F.kl_div(taken(output / 5), said, log_target=True, reduction="batchmean")


@HALF.net("mlp")
def larger_net() -> Training:
    """Both sides of the divergence are logarithms."""
    mix = constant(16, 6, seed=1143)

    def draw(count: int) -> Batch:
        x = torch.randn(count, 16)
        return x, (x @ mix + 0.4 * x[:, :6] * x[:, 6:12]).argmax(1)

    large = nn.Sequential(nn.Linear(16, 96), nn.ReLU(), nn.Linear(96, 6))
    optimizer = ADAM(large.parameters(), lr=5e-3)
    for _ in range(120):
        x, label = draw(64)
        optimizer.zero_grad()
        F.cross_entropy(large(x), label).backward()
        optimizer.step()

    def soft(_: int) -> Batch:
        x, _ = draw(64)
        with torch.no_grad():
            return x, F.log_softmax(large(x) / 5, 1)

    def quality(net: nn.Module) -> float:
        x, _ = draw(500)
        return F.kl_div(net(x).log_softmax(1), large(x).softmax(1), reduction="batchmean").item()

    net = nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 6))
    return Training(net, partial(ADAM, lr=5e-3), soft, partial(softly, partial(F.log_softmax, dim=1)), quality, steps=250)


@HALF.fault("no log", larger_net)
def softmax_where_both_should_be_logarithms(training: Training) -> None:
    training.criterion = partial(softly, partial(F.softmax, dim=1))


# ---- a scaler, and gradients that nobody clears: github.com/PaddlePaddle/Paddle/issues/67895 --------------------------------


@HALF.net("mlp")
def scaled_down() -> Training:
    """The first scale is too large, so a few steps are left out."""
    mix, scaler = constant(12, 4, seed=1147), torch.amp.GradScaler("cpu", init_scale=2.0**22)

    def draw(count: int) -> Batch:
        x = torch.randn(count, 12)
        return x, (x @ mix).argmax(1)

    def step(training: Training, _: int) -> None:
        x, label = draw(64)
        with torch.autocast("cpu", torch.float16):
            loss = F.cross_entropy(training.model(x), label)
        if vars(training).get("clears", True):
            training.optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(training.optimizer)
        scaler.update()

    def quality(net: nn.Module) -> float:
        x, label = draw(400)
        return F.cross_entropy(net(x), label).item()

    net = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 4))
    return Training(net, partial(ADAM, lr=5e-3), lambda _: draw(64), F.cross_entropy, quality, steps=250, step=step)


@HALF.fault("no zero grad", scaled_down, also=("scaler misused", "overflow"))
def what_is_infinite_once_stays_so(training: Training) -> None:
    vars(training)["clears"] = False


# ---- letters of a line by CTC, the most asked: what is normalized ----------------------------------------------------------


class Lines(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.rnn = nn.Conv1d(6, 24, 3, padding=1), nn.GRU(24, 24, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(48, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.rnn(F.relu(self.conv(x.transpose(1, 2))).transpose(1, 2))[0])


def letters(count: int) -> Batch:
    """Four letters in a row, each some columns wide."""
    form, x, y = constant(5, 6, seed=1121), 0.3 * torch.randn(count, 20, 6), torch.randint(1, 5, (count, 4))
    for one in range(count):
        at = int(torch.randint(0, 3, ()))
        for letter in y[one]:
            wide = int(torch.randint(2, 4, ()))
            x[one, at : at + wide] += form[letter]
            at += wide + int(torch.randint(1, 3, ()))
    return x, y


def ctc(dim: int, output: Tensor, y: Tensor) -> Tensor:
    many = len(output)
    lengths = torch.full((many,), 20), torch.full((many,), 4)
    return F.ctc_loss(output.transpose(0, 1).log_softmax(dim), y, *lengths, zero_infinity=True)


@HALF.net("recurrent")
def lines_of_letters() -> Training:
    """At first there are only blanks."""
    data = letters(400)

    def batch(_: int) -> Batch:
        rows = torch.randint(400, (32,))
        return data[0][rows], data[1][rows]

    def quality(net: nn.Module) -> float:
        x, y = letters(100)
        return ctc(2, net(x), y).item()

    return Training(Lines(), partial(ADAM, lr=1e-2), batch, partial(ctc, 2), quality, steps=200)


@HALF.fault("softmax over the wrong dimension", lines_of_letters)
def logarithms_of_shares_of_the_batch(training: Training) -> None:
    training.criterion = partial(ctc, 1)


# ---- an actor and its critic: github.com/pytorch/rl/issues/1181 ------------------------------------------------------------


class Agent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 2), nn.Tanh())
        self.critic = nn.Sequential(nn.Linear(7, 48), nn.ReLU(), nn.Linear(48, 1))

    def forward(self, state: Tensor) -> Tensor:
        return self.actor(state)


@HALF.net("mlp")
def steering() -> Training:
    """The critic learns what an action is worth, the actor climbs it."""
    mix, agent = constant(5, 2, seed=1133), Agent()

    def step(training: Training, _: int) -> None:
        state, (critics,) = torch.randn(64, 5), training.others
        action = (agent.actor(state).detach() + 0.5 * torch.randn(64, 2)).clamp(-1, 1)
        worth = 1 - ((action - torch.tanh(state @ mix)) ** 2).sum(1, keepdim=True)
        critics.zero_grad()
        F.mse_loss(agent.critic(torch.cat([state, action], 1)), worth).backward()
        critics.step()
        action = agent.actor(state)
        if vars(training).get("cut"):
            action = action.detach()
        training.optimizer.zero_grad()
        (-agent.critic(torch.cat([state, action], 1)).mean()).backward()
        training.optimizer.step()

    def quality(net: nn.Module) -> float:
        state = torch.randn(400, 5)
        return F.mse_loss(net(state), torch.tanh(state @ mix)).item()

    training = Training(
        agent, partial(ADAM, lr=3e-3), lambda _: (torch.randn(64, 5), torch.zeros(64, 2)), F.mse_loss, quality, steps=500, step=step
    )
    training.optimizer, training.others = ADAM(agent.actor.parameters(), lr=3e-3), (ADAM(agent.critic.parameters(), lr=5e-3),)
    return training


@HALF.fault("detached", steering, where=("actor",))
def the_action_is_cut_off_before_the_critic(training: Training) -> None:
    vars(training)["cut"] = True


# ---- small graphs, added up over neighbours --------------------------------------------------------------------------------


class Molecules(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.out = nn.Linear(10, 48), nn.Linear(96, 48), nn.Linear(48, 1)

    def forward(self, x: Tensor, bonds: Tensor) -> Tensor:
        h = F.relu(self.first(torch.cat([x, bonds @ x], -1)))
        return self.out(F.relu(self.second(torch.cat([h, bonds @ h], -1))).mean(1))


@HALF.net("embedding")
def molecules() -> Training:
    """A ReLU by function stands between the layers."""

    def draw(count: int) -> Batch:
        x, bonds = torch.randn(count, 9, 5), (torch.rand(count, 9, 9) < 0.25).float().triu(1)
        bonds = bonds + bonds.transpose(1, 2)
        y = ((bonds @ x[..., :1]).squeeze(-1) * x[..., 1]).mean(1) + x[..., 2].abs().mean(1) - 0.8
        return (x, bonds), y.unsqueeze(1)

    def quality(net: nn.Module) -> float:
        inputs, y = draw(300)
        return F.mse_loss(net(*inputs), y).item()

    return Training(Molecules(), partial(ADAM, lr=5e-3), lambda _: draw(48), nn.MSELoss(), quality, steps=250)


@HALF.fault("rate too high", molecules, also=("not finite by the rate",))
def plain_steps_of_a_whole_gradient(training: Training) -> None:
    training.optimizer = SGD(training.model.parameters(), lr=1.0)
