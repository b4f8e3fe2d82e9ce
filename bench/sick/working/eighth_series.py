"""Nothing is wrong here: series, pictures that are made and worlds that are explored, as people train them every day."""

from __future__ import annotations

import copy
import math
import random
from collections import deque
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from bench.sick.training import Batch, Training
from bench.sick.working.eighth_healthy import clothes, of_a_notebook
from bench.sick.working.half import HALF
from bench.sick.working.seventh_healthy import mean_square, mlp
from bench.sick.working.third_nets import ADAM, ADAMW, SGD

# ---- series ------------------------------------------------------------------------------------------


class AirModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(input_size=1, hidden_size=32, num_layers=1, batch_first=True)
        self.linear = nn.Linear(32, 1)

    def forward(self, x: Tensor) -> Tensor:
        x, _ = self.lstm(x)
        return self.linear(x[:, -1])


@HALF.net("recurrent")
def passengers_of_twelve_years() -> Training:
    """One short series between 0 and 1 by its least and most, windows of twelve months, all of them at once."""
    months = torch.arange(144.0)
    series = 100 + 2 * months + (20 + 0.3 * months) * torch.sin(2 * math.pi * months / 12) + 6 * torch.randn(144)
    scaled = (series - series.min()) / (series.max() - series.min())
    windows = scaled.unfold(0, 13, 1)
    x, y = windows[:, :12].unsqueeze(-1), windows[:, 12:]

    def quality(net: nn.Module) -> float:
        return mean_square(net(x), y)

    return Training(AirModel(), partial(ADAM, lr=0.01), lambda _: (x, y), nn.MSELoss(), quality, steps=200)


class Load(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(4, 32, num_layers=2, dropout=0.2, batch_first=True)
        self.head = nn.Linear(32, 6)

    def forward(self, x: Tensor) -> Tensor:
        _, h = self.gru(x)
        return self.head(h[-1])


@HALF.net("recurrent")
def power_of_the_next_hours() -> Training:
    """Four channels of two days, the next six hours, the mean absolute error; the rate halves when validation stands."""

    def days(count: int) -> Batch:
        start = 24 * torch.rand(count, 1) + torch.arange(42)
        load = torch.sin(2 * math.pi * start / 24) + 0.4 * torch.sin(4 * math.pi * start / 24) + 0.25 * torch.randn(count, 42)
        temp = 0.7 * torch.cos(2 * math.pi * start / 24) + 0.3 * torch.randn(count, 42)
        clock = torch.stack([torch.sin(2 * math.pi * start / 24), torch.cos(2 * math.pi * start / 24)], -1)
        x = torch.cat([load.unsqueeze(-1), temp.unsqueeze(-1), clock], -1)
        return x[:, :36], load[:, 36:]

    xv, yv = days(200)

    def loop(training: Training) -> None:
        scheduler = ReduceLROnPlateau(training.optimizer, patience=2, factor=0.5)
        for _ in range(10):
            training.model.train()
            for _ in range(20):
                x, y = days(32)
                training.optimizer.zero_grad()
                loss = training.criterion(training.model(x), y)
                loss.backward()
                nn.utils.clip_grad_norm_(training.model.parameters(), 1.0)
                training.optimizer.step()
            training.model.eval()
            with torch.no_grad():
                scheduler.step(training.criterion(training.model(xv), yv))

    def quality(net: nn.Module) -> float:
        x, y = days(300)
        return (net(x) - y).abs().mean().item()

    return Training(Load(), partial(ADAM, lr=5e-3), lambda _: days(32), nn.L1Loss(), quality, **of_a_notebook(loop))


class TCN(nn.Module):
    """Causal convolutions, dilated."""

    def __init__(self, inputs: int, width: int = 24) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv1d(inputs if i == 0 else width, width, 3, dilation=2**i) for i in range(4))
        self.head = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        for i, conv in enumerate(self.convs):
            h = F.relu(conv(F.pad(x, (2 * 2**i, 0))))
            x = h + x if h.shape == x.shape else h
        return self.head(x[:, :, -1])


@HALF.net("cnn")
def the_adding_problem() -> Training:
    """Two of thirty numbers are marked, and their sum is asked for: nothing happens for a while."""

    def rows(count: int) -> Batch:
        values, marks = torch.rand(count, 24), torch.zeros(count, 24)
        at = torch.rand(count, 24).topk(2, 1).indices
        marks.scatter_(1, at, 1.0)
        return torch.stack([values, marks], 1), (values * marks).sum(1, keepdim=True)

    def quality(net: nn.Module) -> float:
        x, y = rows(300)
        return mean_square(net(x), y)

    return Training(TCN(2), partial(ADAM, lr=4e-3), lambda _: rows(32), F.mse_loss, quality, steps=350, clip=1.0)


class Patches(nn.Module):
    """A transformer of patches of a series; torch's layers."""

    def __init__(self) -> None:
        super().__init__()
        self.inp, self.pos = nn.Linear(8, 32), nn.Parameter(torch.randn(1, 6, 32) * 0.02)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(6 * 32, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(self.inp(x.view(len(x), 6, 8)) + self.pos).flatten(1))


@HALF.net("transformer")
def patches_of_a_series() -> Training:
    """Cosine with warm-up, and a good part of the series is noise."""

    def waves(count: int) -> Batch:
        t = torch.arange(56) + 60 * torch.rand(count, 1)
        rate = 0.2 + 0.2 * torch.rand(count, 1)
        x = torch.sin(rate * t) + 0.5 * torch.randn(count, 56)
        return x[:, :48], x[:, 48:]

    def quality(net: nn.Module) -> float:
        x, y = waves(300)
        return mean_square(net(x), y) - 0.2

    training = Training(Patches(), partial(ADAMW, lr=2e-3), lambda _: waves(48), nn.MSELoss(), quality, steps=300, clip=1.0)
    warm = lambda step: min((step + 1) / 20, 0.5 * (1 + math.cos(math.pi * step / 300)))  # noqa: E731 - as it is written everywhere
    training.schedulers = [torch.optim.lr_scheduler.LambdaLR(training.optimizer, warm)]
    return training


@HALF.net("recurrent")
def what_is_odd_in_the_machine() -> Training:
    """An LSTM that writes down what it read, to know later what it cannot write down."""

    class Seq2(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enc, self.dec = nn.LSTM(3, 24, batch_first=True), nn.LSTM(24, 24, batch_first=True)
            self.out = nn.Linear(24, 3)

        def forward(self, x: Tensor) -> Tensor:
            _, (h, _) = self.enc(x)
            y, _ = self.dec(h[-1].unsqueeze(1).repeat(1, x.size(1), 1))
            return self.out(y)

    def sensors(count: int) -> Batch:
        phase = 6.3 * torch.rand(count, 1, 1)
        t = torch.arange(16).view(1, 16, 1) * 0.4
        size = 0.5 + torch.rand(count, 1, 1)
        x = size * torch.sin(t + phase + torch.tensor([0.0, 1.0, 2.0])) + 0.05 * torch.randn(count, 16, 3)
        return x, x

    def quality(net: nn.Module) -> float:
        x, _ = sensors(200)
        return mean_square(net(x), x)

    return Training(Seq2(), partial(ADAM, lr=0.01), lambda _: sensors(32), nn.MSELoss(), quality, steps=250)


# ---- what is made ------------------------------------------------------------------------------------


def digits(count: int) -> Tensor:
    """Pictures between 0 and 1."""
    x, _ = clothes(count, noise=0.3)
    return torch.sigmoid(2 * x)


class AutoEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(),
            nn.Linear(144, 10),
        )  # fmt: skip
        self.decoder = nn.Sequential(
            nn.Linear(10, 144), nn.ReLU(), nn.Unflatten(1, (16, 3, 3)), nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1), nn.ReLU(),
            nn.ConvTranspose2d(8, 1, 4, stride=2, padding=1), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.encoder(x))


@HALF.net("cnn")
def pictures_through_ten_numbers() -> Training:
    """A sigmoid at the end and a mean of squares, with noise put in."""

    def batch(_: int) -> Batch:
        x = digits(48)
        return (x + 0.1 * torch.randn_like(x)).clamp(0, 1), x

    def quality(net: nn.Module) -> float:
        x = digits(200)
        return mean_square(net(x), x)

    return Training(AutoEncoder(), partial(ADAM, lr=5e-3), batch, nn.MSELoss(), quality, steps=200)


class VAE(nn.Module):
    """As in the example."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc21, self.fc22 = nn.Linear(144, 64), nn.Linear(64, 6), nn.Linear(64, 6)
        self.fc3, self.fc4 = nn.Linear(6, 64), nn.Linear(64, 144)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = F.relu(self.fc1(x.view(-1, 144)))
        mu, logvar = self.fc21(h), self.fc22(h)
        z = mu + torch.exp(0.5 * logvar) * torch.randn_like(mu) if self.training else mu
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mu, logvar


@HALF.net("generative")
def a_divergence_that_warms_up() -> Training:
    """Sums over the batch, and beta goes from 0 to 1 in a hundred steps: the loss first falls, then rises."""

    def black_and_white(count: int) -> Tensor:
        return (digits(count) > 0.5).float()

    def step(training: Training, number: int) -> None:
        x = black_and_white(64)
        beta = min(1.0, number / 100)
        recon, mu, logvar = training.model(x)
        bce = F.binary_cross_entropy(recon, x.view(-1, 144), reduction="sum")
        kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        loss = bce + beta * kld
        training.optimizer.zero_grad()
        loss.backward()
        training.optimizer.step()

    def quality(net: nn.Module) -> float:
        x = black_and_white(200).view(-1, 144)
        return (net(x)[0] - x).abs().mean().item()

    def loss(out: tuple[Tensor, Tensor, Tensor], x: Tensor) -> Tensor:
        return F.binary_cross_entropy(out[0], x.view(-1, 144), reduction="sum")

    return Training(VAE(), partial(ADAM, lr=3e-3), lambda _: (black_and_white(64),) * 2, loss, quality, steps=300, step=step)


def dcgan_init(m: nn.Module) -> None:
    name = m.__class__.__name__
    if name.find("Conv") != -1:
        nn.init.normal_(m.weight.data, 0.0, 0.02)
    elif name.find("BatchNorm") != -1:
        nn.init.normal_(m.weight.data, 1.0, 0.02)
        nn.init.constant_(m.bias.data, 0)


class Couple(nn.Module):
    """A generator and a discriminator, so that one watch sees both."""

    def __init__(self, netG: nn.Module, netD: nn.Module, noise: tuple[int, ...]) -> None:
        super().__init__()
        self.netG, self.netD, self.noise = netG, netD, noise

    def forward(self, count: int) -> Tensor:
        return self.netG(torch.randn(count, *self.noise))


def apart(net: Couple, real: Callable[[int], Tensor], count: int = 300) -> float:
    """Energy distance of what is made from what is real."""
    a, b = net(count).flatten(1), real(count).flatten(1)
    return (2 * torch.cdist(a, b).mean() - torch.cdist(a, a).mean() - torch.cdist(b, b).mean()).item()


@HALF.net("generative")
def a_small_dcgan() -> Training:
    """Labels of one and zero, weights of two hundredths, two Adams with a beta of a half: as in the faces tutorial."""
    netG = nn.Sequential(
        nn.ConvTranspose2d(8, 32, 3, 1, 0, bias=False), nn.BatchNorm2d(32), nn.ReLU(True),
        nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(True),
        nn.ConvTranspose2d(16, 1, 4, 2, 1, bias=False), nn.Tanh(),
    )  # fmt: skip
    netD = nn.Sequential(
        nn.Conv2d(1, 16, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(16, 32, 4, 2, 1, bias=False), nn.BatchNorm2d(32), nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(32, 1, 3, 1, 0, bias=False), nn.Sigmoid(),
    )  # fmt: skip
    netG.apply(dcgan_init)
    netD.apply(dcgan_init)

    def real_images(count: int) -> Tensor:
        return digits(count) * 2 - 1

    def step(training: Training, _: int) -> None:
        netG, netD = training.model.netG, training.model.netD
        netD.zero_grad()
        real = real_images(32)
        label = torch.full((32,), 1.0)
        output = netD(real).view(-1)
        errD_real = training.criterion(output, label)
        errD_real.backward()
        fake = netG(torch.randn(32, 8, 1, 1))
        label.fill_(0.0)
        output = netD(fake.detach()).view(-1)
        errD_fake = training.criterion(output, label)
        errD_fake.backward()
        training.optimizer.step()
        netG.zero_grad()
        label.fill_(1.0)
        output = netD(fake).view(-1)
        errG = training.criterion(output, label)
        errG.backward()
        training.others[0].step()

    training = Training(
        Couple(netG, netD, (8, 1, 1)), partial(ADAM, lr=1e-3), lambda _: (real_images(32), torch.ones(32)), nn.BCELoss(),
        lambda net: apart(net, real_images), steps=150, step=step,
    )  # fmt: skip
    training.optimizer = ADAM(netD.parameters(), lr=2e-3, betas=(0.5, 0.999))
    training.others = (ADAM(netG.parameters(), lr=2e-3, betas=(0.5, 0.999)),)
    return training


@HALF.net("generative")
def five_steps_of_the_critic() -> Training:
    """WGAN with a penalty on the gradient: the critic steps five times as often, losses are below and above zero."""

    def ring(count: int) -> Tensor:
        angle = 2 * math.pi * torch.rand(count)
        return torch.stack([angle.cos(), angle.sin()], 1) * 2 + 0.1 * torch.randn(count, 2)

    netG, netD = mlp(2, 48, 48, 2), mlp(2, 48, 48, 1, act=partial(nn.LeakyReLU, 0.2))

    def step(training: Training, number: int) -> None:
        real = ring(64)
        fake = netG(torch.randn(64, 2)).detach()
        eps = torch.rand(64, 1)
        mixed = (eps * real + (1 - eps) * fake).requires_grad_(True)
        (grad,) = torch.autograd.grad(netD(mixed).sum(), mixed, create_graph=True)
        d_loss = netD(fake).mean() - netD(real).mean() + 10 * ((grad.norm(2, dim=1) - 1) ** 2).mean()
        training.optimizer.zero_grad()
        d_loss.backward()
        training.optimizer.step()
        if number % 5 == 0:
            g_loss = -netD(netG(torch.randn(64, 2))).mean()
            training.others[0].zero_grad()
            g_loss.backward()
            training.others[0].step()

    training = Training(
        Couple(netG, netD, (2,)), partial(ADAM, lr=2e-3), lambda _: (ring(64), torch.ones(64)), lambda out, _: -out.mean(),
        lambda net: apart(net, ring), steps=600, step=step,
    )  # fmt: skip
    training.optimizer = ADAM(netD.parameters(), lr=2e-3, betas=(0.0, 0.9))
    training.others = (ADAM(netG.parameters(), lr=2e-3, betas=(0.0, 0.9)),)
    return training


# ---- worlds ------------------------------------------------------------------------------------------


class Walk:
    """A corridor of seven rooms; a reward at its right end, a small price for each step."""

    rooms = 7

    def reset(self) -> Tensor:
        self.at, self.time = int(torch.randint(self.rooms - 1, ())), 0
        return self.seen()

    def seen(self) -> Tensor:
        return F.one_hot(torch.tensor(self.at), self.rooms).float()

    def step(self, action: int) -> tuple[Tensor, float, bool]:
        self.at, self.time = max(0, self.at + (1 if action == 1 else -1)), self.time + 1
        done = self.at == self.rooms - 1
        return self.seen(), 1.0 if done else -0.05, done or self.time >= 20


@HALF.net("mlp")
def dqn_with_a_memory() -> Training:
    """Replay, a target net that is copied now and then, epsilon that decays, smooth L1, gradients clamped."""
    policy, target = mlp(7, 32, 2), mlp(7, 32, 2)
    target.load_state_dict(policy.state_dict())

    def loop(training: Training) -> None:
        rng = random.Random(int(torch.randint(1000, ())))
        memory: deque[tuple[Tensor, int, float, Tensor, bool]] = deque(maxlen=500)
        env, steps = Walk(), 0
        for _ in range(60):
            state, done = env.reset(), False
            while not done:
                eps = 0.05 + 0.9 * math.exp(-steps / 150)
                with torch.no_grad():
                    action = rng.randrange(2) if rng.random() < eps else int(policy(state).argmax())
                after, reward, done = env.step(action)
                memory.append((state, action, reward, after, env.at == env.rooms - 1))
                state, steps = after, steps + 1
                if len(memory) < 32:
                    continue
                some = rng.sample(memory, 32)
                s, a, r, n, d = zip(*some, strict=True)
                q = policy(torch.stack(s)).gather(1, torch.tensor(a).unsqueeze(1)).squeeze(1)
                with torch.no_grad():
                    expected = torch.tensor(r) + 0.95 * target(torch.stack(n)).max(1).values * (1 - torch.tensor(d).float())
                loss = F.smooth_l1_loss(q, expected)
                training.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_value_(policy.parameters(), 100)
                training.optimizer.step()
                if steps % 25 == 0:
                    target.load_state_dict(policy.state_dict())

    def quality(net: nn.Module) -> float:
        right = torch.tensor([0.95**k - 0.05 * (1 - 0.95**k) / 0.05 for k in range(5, -1, -1)])
        return mean_square(net(torch.eye(7)[:-1]).max(1).values, right)

    def batch(_: int) -> Batch:
        return torch.eye(7), torch.tensor([[0.95**k - 0.1, 0.95**k] for k in range(6, -1, -1)])

    return Training(policy, partial(ADAMW, lr=3e-3), batch, nn.SmoothL1Loss(), quality, **of_a_notebook(loop))


@HALF.net("mlp")
def reinforce_with_returns_normalized() -> Training:
    """One episode a step; the loss is near zero in the mean and jumps about it."""

    class Policy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.affine1, self.dropout, self.affine2 = nn.Linear(7, 32), nn.Dropout(p=0.1), nn.Linear(32, 2)

        def forward(self, x: Tensor) -> Tensor:
            return F.softmax(self.affine2(F.relu(self.dropout(self.affine1(x)))), dim=-1)

    def loop(training: Training) -> None:
        env, eps = Walk(), 1e-8
        for _ in range(250):
            state, done = env.reset(), False
            rewards, log_probs = [], []
            while not done:
                m = torch.distributions.Categorical(training.model(state.unsqueeze(0)))
                action = m.sample()
                log_probs.append(m.log_prob(action))
                state, reward, done = env.step(int(action))
                rewards.append(reward)
            total, returns = 0.0, deque()
            for r in rewards[::-1]:
                total = r + 0.95 * total
                returns.appendleft(total)
            value = torch.tensor(returns)
            if len(value) > 1:
                value = (value - value.mean()) / (value.std() + eps)
            policy_loss = torch.cat([-log_prob * R for log_prob, R in zip(log_probs, value, strict=True)])
            training.optimizer.zero_grad()
            policy_loss.sum().backward()
            training.optimizer.step()

    def batch(_: int) -> Batch:
        return torch.eye(7), torch.randint(2, (7,))

    return Training(
        Policy(), partial(ADAM, lr=5e-3), batch, lambda p, a: F.nll_loss(p.log(), a),
        lambda net: net(torch.eye(7)[:-1])[:, 0].mean().item(), **of_a_notebook(loop),
    )  # fmt: skip


@HALF.net("mlp")
def ppo_of_one_file() -> Training:
    """Four epochs over each rollout, clipped ratios, a value and an entropy, all in one loss; the rate is annealed."""

    class Agent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.critic, self.actor = mlp(7, 32, 1, act=nn.Tanh), mlp(7, 32, 2, act=nn.Tanh)
            for net, gain in ((self.critic, 1.0), (self.actor, 0.01)):
                nn.init.orthogonal_(net[-1].weight, gain)
                nn.init.zeros_(net[-1].bias)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.actor(x), self.critic(x).squeeze(-1)

    def loop(training: Training) -> None:
        env, agent = Walk(), training.model
        state, updates = env.reset(), 25
        for update in range(updates):
            training.optimizer.param_groups[0]["lr"] = 5e-3 * (1 - update / updates)
            rows = []
            with torch.no_grad():
                for _ in range(64):
                    logits, value = agent(state)
                    dist = torch.distributions.Categorical(logits=logits)
                    action = dist.sample()
                    before = state
                    state, reward, done = env.step(int(action))
                    rows.append((before, action, dist.log_prob(action), value, reward, float(done)))
                    if done:
                        state = env.reset()
                obs, actions, logprobs, values = (torch.stack(one) for one in list(zip(*rows, strict=True))[:4])
                advantages, last = torch.zeros(64), 0.0
                following = float(agent(state)[1])
                for t in reversed(range(64)):
                    alive = 1 - rows[t][5]
                    delta = rows[t][4] + 0.95 * following * alive - float(values[t])
                    advantages[t] = last = delta + 0.95 * 0.9 * alive * last
                    following = float(values[t])
                returns = advantages + values
            for _ in range(4):
                for mb in torch.randperm(64).split(16):
                    logits, newvalue = agent(obs[mb])
                    dist = torch.distributions.Categorical(logits=logits)
                    ratio = (dist.log_prob(actions[mb]) - logprobs[mb]).exp()
                    adv = (advantages[mb] - advantages[mb].mean()) / (advantages[mb].std() + 1e-8)
                    pg_loss = torch.max(-adv * ratio, -adv * torch.clamp(ratio, 0.8, 1.2)).mean()
                    v_loss = 0.5 * ((newvalue - returns[mb]) ** 2).mean()
                    loss = pg_loss - 0.01 * dist.entropy().mean() + v_loss * 0.5
                    training.optimizer.zero_grad()
                    loss.backward()
                    nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                    training.optimizer.step()

    def batch(_: int) -> Batch:
        return torch.eye(7), torch.randint(2, (7,))

    return Training(
        Agent(), partial(ADAM, lr=5e-3, eps=1e-5), batch, lambda out, a: F.cross_entropy(out[0], a),
        lambda net: net(torch.eye(7)[:-1])[0].softmax(1)[:, 0].mean().item(), **of_a_notebook(loop),
    )  # fmt: skip


@HALF.net("mlp")
def an_arm_that_is_steered() -> Training:
    """DDPG: an actor, a critic, slow copies of both, noise on what is done."""

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.actor, self.critic = nn.Sequential(mlp(2, 32, 1), nn.Tanh()), mlp(3, 48, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.actor(x)

    model = Both()
    slow = copy.deepcopy(model)

    def moved(state: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        place = state[:, :1] + 0.5 * action
        return torch.cat([place, state[:, 1:]], 1), -(place - state[:, 1:]).square()

    def step(training: Training, _: int) -> None:
        state = 2 * torch.rand(64, 2) - 1
        with torch.no_grad():
            action = (model.actor(state) + 0.3 * torch.randn(64, 1)).clamp(-1, 1)
            after, reward = moved(state, action)
            target = reward + 0.6 * slow.critic(torch.cat([after, slow.actor(after)], 1))
        critic_loss = F.mse_loss(model.critic(torch.cat([state, action], 1)), target)
        training.others[0].zero_grad()
        critic_loss.backward()
        training.others[0].step()
        actor_loss = -model.critic(torch.cat([state, model.actor(state)], 1)).mean()
        training.optimizer.zero_grad()
        actor_loss.backward()
        training.optimizer.step()
        with torch.no_grad():
            for p, q in zip(slow.parameters(), model.parameters(), strict=True):
                p.mul_(0.98).add_(q, alpha=0.02)

    def quality(net: nn.Module) -> float:
        state = 2 * torch.rand(300, 2) - 1
        return moved(state, net(state))[1].mean().neg().item()

    training = Training(
        model, partial(ADAM, lr=1e-3), lambda _: (torch.rand(64, 2), torch.rand(64, 1)), F.mse_loss, quality, steps=400, step=step
    )
    training.optimizer = ADAM(model.actor.parameters(), lr=1e-3)
    training.others = (ADAM(model.critic.parameters(), lr=3e-3),)
    return training


@HALF.net("cnn")
def pairs_of_the_same_hand() -> Training:
    """Siamese: the contrastive loss with a margin of two, as often same as not."""

    class Siamese(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cnn = nn.Sequential(
                nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3), nn.Flatten(), nn.Linear(128, 32), nn.ReLU(), nn.Linear(32, 6)
            )

        def forward(self, one: Tensor, two: Tensor) -> tuple[Tensor, Tensor]:
            return self.cnn(one), self.cnn(two)

    def pairs(count: int) -> Batch:
        x, y = clothes(2 * count, noise=0.8)
        order = torch.where(torch.rand(count) < 0.4, (y[:count].unsqueeze(1) == y[count:]).float().argmax(1), torch.arange(count))
        other, label = x[count:][order], y[count:][order]
        return (x[:count], other), (label != y[:count]).float()

    def contrastive(output: tuple[Tensor, Tensor], label: Tensor) -> Tensor:
        distance = F.pairwise_distance(*output)
        return torch.mean((1 - label) * distance.pow(2) + label * torch.clamp(2.0 - distance, min=0.0).pow(2))

    def quality(net: nn.Module) -> float:
        x, label = pairs(300)
        return ((F.pairwise_distance(*net(*x)) > 1).float() != label).float().mean().item()

    return Training(Siamese(), partial(ADAM, lr=3e-3), lambda _: pairs(48), contrastive, quality, steps=200)


@HALF.net("mlp")
def a_long_run_of_logistic_regression() -> Training:
    """Five thousand steps of plain descent over the same table, and it comes by little at the end."""
    w = torch.tensor([1.0, -2.0, 0.5, 0.0, 1.5])
    x = torch.randn(400, 5)
    y = torch.bernoulli((x @ w - 0.5).sigmoid())

    class Logistic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(5, 1)

        def forward(self, x: Tensor) -> Tensor:
            return torch.sigmoid(self.linear(x)).squeeze()

    def quality(net: nn.Module) -> float:
        z = torch.randn(500, 5)
        return (net(z) - (z @ w - 0.5).sigmoid()).square().mean().item()

    return Training(Logistic(), partial(SGD, lr=0.1), lambda _: (x, y), nn.BCELoss(), quality, steps=4000)
