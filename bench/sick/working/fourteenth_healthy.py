"""Nothing is wrong here: nets without biases, optimizers and losses of other kinds, time that stands first, physics between walls."""

from __future__ import annotations

import copy
import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.lr_scheduler import OneCycleLR

from bench.sick.training import Batch, Training
from bench.sick.working.eighth_healthy import blobs
from bench.sick.working.fourth_nets import constant
from bench.sick.working.half import HALF
from bench.sick.working.seventh_healthy import mean_square, mlp
from bench.sick.working.third_nets import ADAM, missed, per_place

# ---- without biases --------------------------------------------------------------------------------------


class Convolved(nn.Module):
    """As in the first paper on graph convolutions: dropout before each layer, and no bias."""

    def __init__(self, near: Tensor) -> None:
        super().__init__()
        root = near.sum(1).rsqrt()
        self.near: Tensor
        self.register_buffer("near", root[:, None] * near * root)
        self.w1, self.w2 = nn.Linear(16, 16, bias=False), nn.Linear(16, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.near @ self.w1(F.dropout(x, 0.5, self.training)))
        return F.log_softmax(self.near @ self.w2(F.dropout(x, 0.5, self.training)), 1)


@HALF.net("embedding")
def one_graph_and_thirty_labels() -> Training:
    group = torch.arange(150) % 3
    chance = torch.where(group[:, None] == group, 0.12, 0.01)
    near = (torch.rand(150, 150, generator=torch.Generator().manual_seed(1401)) < chance).float().triu(1)
    x = constant(150, 16, seed=1406) + 0.7 * F.one_hot(group, 16)

    def criterion(output: Tensor, label: Tensor) -> Tensor:
        return F.nll_loss(output[:30], label[:30])

    def quality(net: nn.Module) -> float:
        return missed(net(x)[30:], group[30:])

    return Training(
        Convolved(near + near.T + torch.eye(150)),
        partial(ADAM, lr=0.01, weight_decay=5e-4),
        lambda _: (x, group),
        criterion,
        quality,
        steps=200,
    )


def three_convolutions(bias: bool) -> nn.Sequential:
    first, second, third = (nn.Conv2d(*sizes, 3, padding=1, bias=bias) for sizes in ((1, 16), (16, 16), (16, 1)))
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), third)


@HALF.net("cnn")
def a_denoiser_that_scales_with_the_noise() -> Training:
    """Bias-free, after Mohan et al., 2020."""

    def data(count: int) -> Batch:
        mask = blobs(count, least=1.5, most=3.5)[1]
        noise = torch.randn_like(mask)
        clean = torch.where(mask > 0, 0.7 + 0.3 * noise, 0.5 * noise - 0.15)
        return clean + 0.7 * torch.randn_like(mask), clean

    def quality(net: nn.Module) -> float:
        x, y = data(100)
        return mean_square(net(x), y)

    return Training(three_convolutions(bias=False), partial(ADAM, lr=3e-3), lambda _: data(16), nn.MSELoss(), quality, steps=200)


# ---- other optimizers and losses -------------------------------------------------------------------------


@HALF.net("mlp")
def forty_patients_by_lbfgs() -> Training:
    """All of them are each batch, and the decay is written down in the loss."""
    weight = torch.tensor([1.0, -0.8, 0.5, 0.0, 0.0])
    x = torch.randn(40, 5)
    y = (x @ weight + 0.1 * torch.randn(40)).unsqueeze(1)

    def step(training: Training, number: int) -> None:
        x, y = training.batch(number)

        def closure() -> Any:
            training.optimizer.zero_grad()
            decay = torch.stack([one.square().sum() for one in training.model.parameters()]).sum()
            loss = F.mse_loss(training.model(x), y) + 1e-2 * decay
            loss.backward()
            return loss

        training.optimizer.step(closure)

    def quality(net: nn.Module) -> float:
        fresh = torch.randn(400, 5)
        return mean_square(net(fresh), (fresh @ weight).unsqueeze(1))

    lbfgs = partial(torch.optim.LBFGS, lr=0.5, max_iter=4, history_size=8, line_search_fn="strong_wolfe")
    return Training(mlp(5, 16, 1, act=nn.Tanh), lbfgs, lambda _: (x, y), F.mse_loss, quality, steps=30, step=step)


@HALF.net("mlp")
def very_wide_and_a_loss_in_millionths() -> Training:
    """Adam does not care."""
    weight = constant(10, 1, seed=1402) / 3

    def data(count: int) -> Batch:
        x = torch.randn(count, 10)
        return x, torch.tanh(x @ weight)

    def quality(net: nn.Module) -> float:
        x, y = data(500)
        return mean_square(net(x), y)

    return Training(
        mlp(10, 8192, 1), partial(ADAM, lr=2e-4, eps=1e-16), lambda _: data(64), lambda out, y: 1e-5 * F.mse_loss(out, y), quality
    )


@HALF.net("cnn")
def noise_to_noise_in_bfloat16() -> Training:
    """No clean picture is ever seen; the weights are in bfloat16, and copies of them in float32 are stepped."""

    def batch(_: int) -> Batch:
        mask = blobs(24, least=1.5, most=3.5)[1]
        return mask + 0.8 * torch.randn_like(mask), mask + 0.8 * torch.randn_like(mask)

    net = three_convolutions(bias=True).bfloat16()
    masters = [one.detach().float().requires_grad_() for one in net.parameters()]

    def step(training: Training, number: int) -> None:
        x, y = training.batch(number)
        loss = F.mse_loss(training.model(x.bfloat16()).float(), y)
        training.model.zero_grad()
        loss.backward()
        for master, one in zip(masters, training.model.parameters(), strict=True):
            assert one.grad is not None
            master.grad = one.grad.float()
        training.optimizer.step()
        with torch.no_grad():
            for master, one in zip(masters, training.model.parameters(), strict=True):
                one.copy_(master)

    def quality(net: nn.Module) -> float:
        mask = blobs(100, least=1.5, most=3.5)[1]
        return mean_square(net((mask + 0.8 * torch.randn_like(mask)).bfloat16()).float(), mask)

    return Training(net, lambda _: ADAM(masters, lr=4e-3), batch, F.mse_loss, quality, steps=120, step=step)


@HALF.net("mlp")
def a_sensor_with_a_robust_loss() -> Training:
    """One reading in twelve is hundreds off."""
    weight = constant(6, seed=1403)

    def truth(x: Tensor) -> Tensor:
        return (torch.sin(x[:, :3] @ weight[:3]) + x[:, 3:] @ weight[3:] / 2).unsqueeze(1)

    def batch(_: int) -> Batch:
        x = torch.randn(256, 6)
        y = truth(x) + 0.3 * torch.randn(256, 1)
        return x, torch.where(torch.rand(256, 1) < 0.08, y + 200 * torch.randn(256, 1), y)

    def quality(net: nn.Module) -> float:
        x = torch.randn(500, 6)
        return mean_square(net(x), truth(x))

    return Training(mlp(6, 32, 32, 1, act=nn.SiLU), partial(ADAM, lr=3e-3), batch, nn.HuberLoss(delta=0.5), quality, steps=300)


class SkipGram(nn.Module):
    def __init__(self, words: int = 200) -> None:
        super().__init__()
        self.u, self.v = nn.Embedding(words, 16), nn.Embedding(words, 16)
        nn.init.zeros_(self.v.weight)

    def forward(self, centre: Tensor, context: Tensor) -> Tensor:
        return (self.u(centre)[:, None] * self.v(context)).sum(-1)


@HALF.net("embedding")
def skip_grams_by_gradient_ascent() -> Training:
    """maximize=True: the log-likelihood is pushed up, on purpose. Half of the words never occur."""

    def data(count: int) -> Batch:
        topic, any_topic = torch.randint(10, (count, 1)), torch.randint(10, (count, 5))
        words = 20 * torch.cat([topic, topic, any_topic], 1) + torch.randint(10, (count, 7))
        return (words[:, 0], words[:, 1:]), torch.tensor([1.0, 0, 0, 0, 0, 0]).expand(count, 6)

    def criterion(output: Tensor, y: Tensor) -> Tensor:
        return (y * F.logsigmoid(output) + (1 - y) * F.logsigmoid(-output)).mean()

    def quality(net: nn.Module) -> float:
        scores = net(*data(2000)[0])
        return (scores[:, 1:] >= scores[:, :1]).float().mean().item()

    return Training(SkipGram(), partial(ADAM, lr=2e-2, maximize=True), lambda _: data(64), criterion, quality, steps=250)


# ---- sequences ---------------------------------------------------------------------------------------------


class Reversing(nn.Module):
    """Is told the answer while it trains, and tells a part of it to itself if `forcing` is below one."""

    def __init__(self, words: int = 8, width: int = 48) -> None:
        super().__init__()
        self.emb = nn.Embedding(words + 1, width)
        self.enc, self.dec = nn.GRU(width, width, batch_first=True), nn.GRU(width, width, batch_first=True)
        self.out, self.forcing, self.start = nn.Linear(width, words), 1.0, words

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        _, h = self.enc(self.emb(src))
        token = torch.full((len(src), 1), self.start)
        if self.training and self.forcing >= 1:
            return self.out(self.dec(self.emb(torch.cat([token, tgt[:, :-1]], 1)), h)[0])
        outs = []
        for i in range(tgt.shape[1]):
            o, h = self.dec(self.emb(token), h)
            outs.append(self.out(o))
            token = tgt[:, i : i + 1] if self.training and torch.rand(()) < self.forcing else outs[-1].argmax(-1)
        return torch.cat(outs, 1)


def reversals(length: int, count: int = 64) -> Batch:
    x = torch.randint(8, (count, length))
    return (x, x.flip(1)), x.flip(1)


@HALF.net("recurrent")
def reversed_with_the_answer_as_an_input() -> Training:
    def quality(net: nn.Module) -> float:
        inputs, y = reversals(4, 300)
        return missed(net(*inputs), y)

    return Training(Reversing(), partial(ADAM, lr=8e-3), lambda _: reversals(4), per_place, quality, steps=250, clip=1.0)


@HALF.strange(reversed_with_the_answer_as_an_input)
def scheduled_sampling(training: Training) -> None:
    net: Any = training.model

    def fade(number: int) -> None:
        net.forcing = max(0.5, 1 - number / 300)

    training.each.append(fade)


@HALF.strange(reversed_with_the_answer_as_an_input)
def short_ones_first(training: Training) -> None:
    training.batch = lambda number: reversals(1 + min(3, number // 50))
    training.steps = 320


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.emb, self.rnn = nn.Embedding(12, 24), nn.GRU(24, 48)

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(self.emb(x))[1]


class Writer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.emb, self.rnn, self.out = nn.Embedding(12, 24), nn.GRU(24, 48), nn.Linear(48, 12)

    def forward(self, token: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        o, h = self.rnn(self.emb(token)[None], h)
        return self.out(o[0]), h


class Answering(nn.Module):
    """As in a tutorial of translation: the outputs are filled in word by word, and the first row of them stays zero."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = Reader(), Writer()

    def forward(self, src: Tensor, trg: Tensor, forcing: float = 0.5) -> Tensor:
        h = self.encoder(src)
        outputs, token = torch.zeros(*trg.shape, 12), trg[0]
        for t in range(1, len(trg)):
            outputs[t], h = self.decoder(token, h)
            token = trg[t] if torch.rand(()).item() < forcing else outputs[t].argmax(1)
        return outputs


@HALF.net("recurrent")
def filled_in_word_by_word_with_time_first() -> Training:
    def data(count: int) -> Batch:
        src = torch.randint(3, 12, (7, count))
        trg = torch.cat([torch.ones(1, count, dtype=torch.long), src.flip(0)])
        return (src, trg), trg

    def criterion(output: Tensor, trg: Tensor) -> Tensor:
        return F.cross_entropy(output[1:].reshape(-1, 12), trg[1:].reshape(-1))

    def quality(net: nn.Module) -> float:
        inputs, trg = data(200)
        return criterion(net(*inputs, 0.0), trg).item()

    return Training(Answering(), partial(ADAM, lr=4e-3), lambda _: data(48), criterion, quality, steps=300)


class Shifting(nn.Module):
    """Moves the words by one itself: its input is its target."""

    def __init__(self) -> None:
        super().__init__()
        self.emb, self.rnn, self.out = nn.Embedding(12, 24), nn.GRU(24, 48), nn.Linear(48, 12)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([torch.ones_like(x[:1]), x[:-1]])
        return self.out(self.rnn(self.emb(x))[0])


@HALF.net("recurrent")
def the_next_one_with_time_first() -> Training:
    def data(count: int) -> Tensor:
        return (torch.randint(2, 12, (1, count)) + torch.randint(1, 3, (1, count)) * torch.arange(10)[:, None]) % 12

    def quality(net: nn.Module) -> float:
        x = data(300)
        return per_place(net(x)[2:], x[2:]).item()

    return Training(Shifting(), partial(ADAM, lr=4e-3), lambda _: (x := data(48), x), per_place, quality)


# ---- made and told apart -----------------------------------------------------------------------------------


class Coupling(nn.Module):
    """One of two numbers scales and moves the other; at first not at all."""

    def __init__(self, flip: bool) -> None:
        super().__init__()
        last = nn.Linear(32, 2)
        self.flip, self.net = flip, nn.Sequential(nn.Linear(1, 32), nn.Tanh(), last)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a, b = x.flip(1).chunk(2, 1) if self.flip else x.chunk(2, 1)
        s, t = self.net(a).chunk(2, 1)
        s = 3 * torch.tanh(s)
        y = torch.cat([a, b * s.exp() + t], 1)
        return (y.flip(1) if self.flip else y), s[:, 0]


class Flow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Coupling(bool(i % 2)) for i in range(6))

    def forward(self, x: Tensor) -> Tensor:
        total = torch.zeros(len(x))
        for layer in self.layers:
            x, s = layer(x)
            total = total + s
        return total - 0.5 * x.square().sum(1) - math.log(2 * math.pi)


@HALF.net("generative")
def a_thin_crescent_by_one_cycle() -> Training:
    """The loss begins above zero and ends below."""

    def crescent(count: int) -> Tensor:
        along = torch.randn(count)
        return torch.stack([0.3 * along, 0.3 * along.square() - 0.2 + 0.02 * torch.randn(count)], 1)

    def quality(net: nn.Module) -> float:
        entropy = math.log(2 * math.pi * math.e * 0.3 * 0.02)
        return -net(crescent(800)).mean().item() - entropy

    def batch(_: int) -> Batch:
        return crescent(128), torch.zeros(())

    training = Training(Flow(), partial(ADAM, lr=5e-3), batch, lambda density, _: -density.mean(), quality, steps=250)
    training.schedulers = [OneCycleLR(training.optimizer, 6e-3, total_steps=251)]
    return training


class Slope(nn.Module):
    """The gradient of an energy, which is asked for in the forward pass: the last bias has no say in it."""

    def __init__(self) -> None:
        super().__init__()
        self.net = mlp(3, 64, 64, 1, act=nn.SiLU)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            energy = self.net(torch.cat([x, t], 1)).sum()
            return torch.autograd.grad(energy, x, create_graph=self.training)[0]


@HALF.net("generative")
def a_flow_down_an_energy() -> Training:
    """From noise to a ring; the loss has a floor far above zero."""

    def batch(_: int) -> Batch:
        angle, noise, t = 2 * math.pi * torch.rand(128), torch.randn(128, 2), torch.rand(128, 1)
        x = 2 * torch.stack([angle.cos(), angle.sin()], 1)
        return ((1 - t) * x + t * noise, t), noise - x

    def quality(net: nn.Module) -> float:
        x = torch.randn(500, 2)
        for i in range(20):
            x = x - net(x, torch.full((500, 1), 1 - i / 20)) / 20
        return (x.norm(dim=1) - 2).abs().mean().item()

    return Training(Slope(), partial(torch.optim.AdamW, lr=4e-3), batch, nn.MSELoss(), quality, steps=300)


class Embedded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = mlp(20, 64, 16)

    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return F.normalize(self.body(a), dim=1), F.normalize(self.body(b), dim=1)


@HALF.net("embedding")
def a_queue_and_a_slow_copy() -> Training:
    """Momentum contrast, where the loop holds the queue; the right answer is always the first."""

    def seen(z: Tensor) -> Tensor:
        return z @ constant(4, 20, seed=1404) + 0.3 * torch.randn(len(z), 20) + 2 * torch.randn(len(z), 4) @ constant(4, 20, seed=1405)

    def batch(_: int) -> Batch:
        z = torch.randn(64, 4)
        return (seen(z), seen(z)), torch.arange(64)

    net = Embedded()
    slow = copy.deepcopy(net).requires_grad_(False)
    queue = F.normalize(torch.randn(256, 16), dim=1)

    def step(training: Training, number: int) -> None:
        nonlocal queue
        net: Any = training.model
        (a, b), _ = training.batch(number)
        q = F.normalize(net.body(a), dim=1)
        with torch.no_grad():
            for old, new in zip(slow.parameters(), net.parameters(), strict=True):
                old.lerp_(new, 0.05)
            k = F.normalize(slow.body(b), dim=1)
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.T], 1) / 0.15
        loss = F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long))
        training.optimizer.zero_grad()
        loss.backward()
        training.optimizer.step()
        queue = torch.cat([k, queue])[:256]

    def quality(net: nn.Module) -> float:
        z = torch.randn(100, 4)
        a, b = net(seen(z), seen(z))
        return missed(a @ b.T, torch.arange(100))

    return Training(net, partial(ADAM, lr=3e-3), batch, F.cross_entropy, quality, step=step)


# ---- physics -------------------------------------------------------------------------------------------------


class Field(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = mlp(2, 40, 40, 1, act=nn.Tanh)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self.net(torch.cat([x, t], 1))


@HALF.net("mlp")
def heat_between_two_cold_walls() -> Training:
    """The equation inside, the beginning and both walls: four parts of the loss, and no data."""

    def slope(y: Tensor, x: Tensor) -> Tensor:
        return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]

    def step(training: Training, _: int) -> None:
        net, mse = training.model, nn.MSELoss()
        x, t = torch.rand(128, 1, requires_grad=True), torch.rand(128, 1, requires_grad=True)
        u = net(x, t)
        f = slope(u, t) - 0.1 * slope(slope(u, x), x)
        begin, zero = torch.rand(64, 1), torch.zeros(64, 1)
        loss_f = mse(f, torch.zeros_like(f))
        loss_i = mse(net(begin, zero), torch.sin(math.pi * begin))
        loss_b = mse(net(zero, torch.rand(64, 1)), zero) + mse(net(zero + 1, torch.rand(64, 1)), zero)
        (loss_f + loss_i + loss_b).backward()
        training.optimizer.step()
        training.optimizer.zero_grad()

    def quality(net: nn.Module) -> float:
        x, t = torch.rand(300, 1), torch.rand(300, 1)
        return mean_square(net(x, t), torch.exp(-0.1 * math.pi**2 * t) * torch.sin(math.pi * x))

    def batch(_: int) -> Batch:
        return (torch.rand(128, 1), torch.rand(128, 1)), torch.zeros(128, 1)

    return Training(Field(), partial(ADAM, lr=5e-3), batch, F.mse_loss, quality, steps=300, step=step)
