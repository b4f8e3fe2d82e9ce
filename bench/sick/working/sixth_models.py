"""Faults of models and loops as they are copied from repositories: convolutions in time, norms, hooks, parametrizations, states, pairs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.optim.lr_scheduler import LinearLR, PolynomialLR, SequentialLR
from torch.utils.checkpoint import checkpoint

from bench.sick.changes import looped, loss_of
from bench.sick.training import Training, called
from bench.sick.working.fourth_nets import constant
from bench.sick.working.half import HALF
from bench.sick.working.third_nets import ADAM, missed

# ---- nets ------------------------------------------------------------------------------------------


def rapids_data(count: int, length: int = 24) -> tuple[Tensor, Tensor]:
    """Waves of several speeds, and the value that comes next."""
    speed, phase = 0.3 + 0.9 * torch.rand(count, 1), 6.28 * torch.rand(count, 1)
    wave = torch.sin(speed * torch.arange(length + 1) + phase)
    return wave[:, :-1].unsqueeze(1), wave[:, 1:]


class Chomp(nn.Module):
    """Takes off what the padding has added at the end."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        return x[:, :, : -self.size].contiguous()


class TemporalBlock(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, inputs: int, outputs: int, dilation: int, chomp: Callable[[int], nn.Module] = Chomp) -> None:
        super().__init__()
        pad = 2 * dilation
        self.net = nn.Sequential(
            nn.Conv1d(inputs, outputs, 3, padding=pad, dilation=dilation), chomp(pad), nn.ReLU(),
            nn.Conv1d(outputs, outputs, 3, padding=pad, dilation=dilation), chomp(pad), nn.ReLU(),
        )  # fmt: skip
        self.downsample = nn.Conv1d(inputs, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.net(x) + self.downsample(x))


class TCN(nn.Module):
    """A temporal convolutional network."""

    def __init__(self, chomp: Callable[[int], nn.Module] = Chomp) -> None:
        super().__init__()
        self.network = nn.Sequential(TemporalBlock(1, 24, 1, chomp), TemporalBlock(24, 24, 2, chomp))
        self.linear = nn.Linear(24, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.network(x).transpose(1, 2)).squeeze(-1)


@HALF.net("cnn")
def rapids() -> Training:
    """What comes next in a wave?"""

    def quality(net: nn.Module) -> float:
        x, y = rapids_data(200)
        return sum((net(x[:, :, :end])[:, -1] - y[:, end - 1]).square().mean().item() for end in (8, 13, 18)) / 3

    return Training(TCN(), partial(ADAM, lr=0.005), lambda _: rapids_data(32), F.mse_loss, quality, steps=200)


def sonnet_data(count: int, length: int = 14) -> tuple[Tensor, Tensor]:
    """Rows in which each token follows from the one three places before, by a fixed table."""
    table = torch.randperm(10, generator=torch.Generator().manual_seed(7))
    rows = [torch.randint(10, (count,)) for _ in range(3)]
    for _ in range(length - 2):
        rows.append(table[rows[-3]])
    x = torch.stack(rows, 1)
    return x[:, :-1], x[:, 1:]


class CausalSelfAttention(nn.Module):
    """As in a well-known small GPT, with two heads."""

    def __init__(self, width: int = 32, heads: int = 2, block: int = 32) -> None:
        super().__init__()
        self.c_attn, self.c_proj, self.n_head = nn.Linear(width, 3 * width), nn.Linear(width, width), heads
        self.register_buffer("bias", torch.tril(torch.ones(block, block)).view(1, 1, block, block))

    def shares(self, att: Tensor, seen: Tensor) -> Tensor:
        return F.softmax(att.masked_fill(seen == 0, float("-inf")), dim=-1)

    def forward(self, x: Tensor) -> Tensor:
        B, T, C = x.size()
        q, k, v = (one.view(B, T, self.n_head, -1).transpose(1, 2) for one in self.c_attn(x).split(C, dim=2))
        att = (q @ k.transpose(-2, -1)) * self.scale(C // self.n_head)
        y = self.shares(att, self.bias[:, :, :T, :T]) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))

    def scale(self, width: int) -> float:
        return float(width**-0.5)


class GPT(nn.Module):
    """One block."""

    def __init__(self, attention: Callable[[], nn.Module] = CausalSelfAttention) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(10, 32), nn.Embedding(32, 32)
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(32), attention(), nn.LayerNorm(32)
        self.mlp = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
        self.ln_f, self.lm_head = nn.LayerNorm(32), nn.Linear(32, 10, bias=False)

    def forward(self, idx: Tensor) -> Tensor:
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1)))
        x = x + self.attn(self.ln_1(x))
        x = x + self.mlp(self.ln_2(x))
        return self.lm_head(self.ln_f(x))


def tokens_loss(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))


@HALF.net("transformer")
def sonnet() -> Training:
    """A small GPT."""

    def quality(net: nn.Module) -> float:
        x, y = sonnet_data(200)
        return sum((net(x[:, :end])[:, -1].argmax(-1) != y[:, end - 1]).float().mean().item() for end in (6, 9, 12)) / 3

    return Training(GPT(), partial(ADAM, lr=0.01), lambda _: sonnet_data(48), tokens_loss, quality, steps=200)


def quarry_data(count: int) -> tuple[Tensor, Tensor]:
    """Readings of an instrument, as they come, of four kinds of rock."""
    label = torch.randint(4, (count,))
    middle = constant(2, 4, 10, seed=12)[torch.randint(2, (count,)), label]
    return 40 + 12 * (middle + 0.4 * torch.randn(count, 10)), label


class Residual(nn.Module):
    """A block with a way around it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.bn1, self.fc1 = nn.BatchNorm1d(width), nn.Linear(width, width)
        self.bn2, self.fc2 = nn.BatchNorm1d(width), nn.Linear(width, width)

    def branch(self, x: Tensor) -> Tensor:
        return self.fc2(F.relu(self.bn2(self.fc1(F.relu(self.bn1(x))))))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x)


class Quarry(nn.Module):
    """Residual blocks between two layers; what comes in is normalized."""

    def __init__(self, block: Callable[[int], nn.Module] = Residual) -> None:
        super().__init__()
        self.norm, self.stem = nn.BatchNorm1d(10), nn.Linear(10, 32)
        self.blocks = nn.Sequential(block(32), block(32))
        self.fc = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.blocks(self.stem(self.norm(x))))


@HALF.net("mlp")
def quarry() -> Training:
    """Which rock is it?"""

    def quality(net: nn.Module) -> float:
        x, label = quarry_data(400)
        return missed(net(x), label)

    return Training(
        Quarry(), partial(torch.optim.SGD, lr=0.05, momentum=0.9), lambda _: quarry_data(64), F.cross_entropy, quality, steps=150
    )


def gorge_data(count: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 3)
    return x, torch.stack([torch.sin(2 * x[:, 0]) + x[:, 1].abs(), x[:, 2].square() - x[:, 0] * x[:, 1]], 1)


def gorge_model(activation: Callable[[], nn.Module] = nn.ReLU, wrap: Callable[[nn.Module], nn.Module] = lambda one: one) -> nn.Module:
    """Three layers; `wrap` is put around each of them."""
    sizes = (3, 48, 48, 2)
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [wrap(nn.Linear(inputs, outputs)), activation()]
    return nn.Sequential(*layers[:-1])


def off(net: nn.Module, x: Tensor, y: Tensor) -> float:
    return (net(x) - y).square().mean().item()


@HALF.net("mlp")
def gorge() -> Training:
    """Two numbers of three."""
    return Training(
        gorge_model(), partial(ADAM, lr=0.005), lambda _: gorge_data(64), F.mse_loss, lambda net: off(net, *gorge_data(400)), steps=250
    )


def crew_data(count: int) -> tuple[Tensor, Tensor]:
    """Each of four regimes has a line of its own."""
    x = torch.randn(count, 6)
    regime = 2 * (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    return x, (constant(4, 6, seed=3)[regime] * x).sum(1, keepdim=True)


class Experts(nn.Module):
    """Experts, and a gate that shares the work out."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 4))
        self.experts = self.made()

    def made(self) -> Any:
        return nn.ModuleList([nn.Linear(6, 1) for _ in range(4)])

    def shares(self, x: Tensor) -> Tensor:
        return self.gate(x).softmax(1)

    def forward(self, x: Tensor) -> Tensor:
        said = torch.cat([expert(x) for expert in self.experts], 1)
        return (self.shares(x) * said).sum(1, keepdim=True)


@HALF.net("mlp")
def crew() -> Training:
    """A mixture of experts."""
    return Training(
        Experts(), partial(ADAM, lr=0.02), lambda _: crew_data(64), F.mse_loss, lambda net: off(net, *crew_data(400)), steps=250
    )


def diary_data(count: int, length: int = 9) -> tuple[Tensor, Tensor]:
    """What was the first sign, at the end of a row of others?"""
    x = torch.randint(4, 8, (count, length))
    x[:, 0] = torch.randint(4, (count,))
    return x, x[:, 0]


class Diary(nn.Module):
    """A cell by hand, word by word."""

    def __init__(self) -> None:
        super().__init__()
        self.word, self.cell, self.decode = nn.Embedding(8, 16), nn.GRUCell(16, 24), nn.Linear(24, 4)

    def carried(self, state: Tensor) -> Tensor:
        return state

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros(len(x), 24)
        for step in range(x.shape[1]):
            state = self.cell(self.word(x[:, step]), self.carried(state))
        return self.decode(state)


@HALF.net("recurrent")
def diary() -> Training:
    """The first sign is to be kept."""

    def quality(net: nn.Module) -> float:
        return missed(*((lambda x, label: (net(x), label))(*diary_data(400))))

    return Training(Diary(), partial(ADAM, lr=0.01), lambda _: diary_data(48), F.cross_entropy, quality, steps=200)


class Deep(nn.Module):
    """Two LSTMs on each other; the state of the upper one is read."""

    def __init__(self) -> None:
        super().__init__()
        self.word, self.lstm, self.decode = nn.Embedding(8, 16), nn.LSTM(16, 24, num_layers=2, batch_first=True), nn.Linear(24, 4)

    def forward(self, x: Tensor) -> Tensor:
        _, (h, _) = self.lstm(self.word(x))
        return self.decode(h[-1])


def pastry_data(count: int) -> Tensor:
    """Pictures of 16 numbers made of three patterns."""
    amounts = torch.rand(count, 6) * (torch.rand(count, 6) < 0.5)
    return amounts @ constant(6, 16, seed=8)


class Pastry(nn.Module):
    """An autoencoder of a sparse code."""

    def __init__(self, sparse: nn.Module | None = None) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 24))
        self.sparse = sparse or nn.Hardshrink(0.05)
        self.decoder = nn.Linear(24, 16)

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.sparse(self.encoder(x)))


@HALF.net("generative")
def pastry() -> Training:
    """A sparse autoencoder."""

    def batch(_: int) -> tuple[Tensor, Tensor]:
        x = pastry_data(64)
        return x, x

    return Training(
        Pastry(), partial(ADAM, lr=0.005), batch, F.mse_loss, lambda net: (lambda x: off(net, x, x))(pastry_data(300)), steps=200
    )


def postcards_data(count: int) -> tuple[Tensor, Tensor]:
    """A picture and a text of the same thing."""
    thing = torch.randn(count, 6)
    return torch.tanh(thing @ constant(6, 12, seed=1)), torch.tanh(thing @ constant(6, 10, seed=2))


class CLIP(nn.Module):
    """Two towers and a temperature that is learned."""

    def __init__(self) -> None:
        super().__init__()
        self.visual = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 16))
        self.textual = nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Linear(48, 16))
        self.logit_scale = nn.Parameter(torch.tensor(2.6593))

    def scaled(self, alike: Tensor) -> Tensor:
        return self.logit_scale.exp() * alike

    def forward(self, image: Tensor, text: Tensor) -> Tensor:
        left, right = self.visual(image), self.textual(text)
        left, right = left / left.norm(dim=1, keepdim=True), right / right.norm(dim=1, keepdim=True)
        return self.scaled(left @ right.t())


def clip_loss(logits: Tensor, _: Tensor) -> Tensor:
    labels = torch.arange(len(logits))
    return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2


@HALF.net("embedding")
def postcards() -> Training:
    """Which text belongs to which picture?"""

    def quality(net: nn.Module) -> float:
        logits = net(*postcards_data(100))
        return (logits.argmax(1) != torch.arange(100)).float().mean().item()

    return Training(CLIP(), partial(ADAM, lr=0.005), lambda _: (postcards_data(48), torch.arange(48)), clip_loss, quality, steps=200)


class Studio(nn.Module):
    """A generator and its discriminator."""

    def __init__(self) -> None:
        super().__init__()
        self.netG = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
        self.netD = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))

    def forward(self, z: Tensor) -> Tensor:
        return self.netG(z)


def studio_step(training: Training, _: int, *, real_label: float = 1.0, fake_label: float = 0.0) -> None:
    """As in the tutorial of DCGAN."""
    net: Any = training.model
    bce, (other,) = F.binary_cross_entropy_with_logits, training.others
    real = torch.tensor([2.0, -1.0]) + 0.4 * torch.randn(64, 2)
    other.zero_grad()
    made = net.netG(torch.randn(64, 4))
    said, doubted = net.netD(real), net.netD(made.detach())
    (bce(said, torch.full_like(said, real_label)) + bce(doubted, torch.full_like(doubted, fake_label))).backward()
    other.step()
    training.optimizer.zero_grad()
    said = net.netD(made)
    bce(said, torch.ones_like(said)).backward()
    training.optimizer.step()


@HALF.net("generative")
def studio() -> Training:
    """A small GAN."""

    def quality(net: nn.Module) -> float:
        made = net(torch.randn(400, 4))
        return ((made.mean(0) - torch.tensor([2.0, -1.0])).norm() + (made.std(0) - 0.4).norm()).item()

    training = Training(
        Studio(), lambda _: torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1),
        lambda _: (torch.randn(64, 4), torch.zeros(64, 2)), F.mse_loss, quality, steps=300,
    )  # fmt: skip
    held(training)
    training.step = studio_step
    return training


def held(training: Training, both: bool = False, rate: float = 0.004) -> None:
    """An optimizer for each of the two."""
    net: Any = training.model
    training.optimizer = torch.optim.Adam(net.netG.parameters(), lr=0.004, betas=(0.5, 0.999))
    some = net.parameters() if both else net.netD.parameters()
    training.others = (torch.optim.Adam(some, lr=rate, betas=(0.5, 0.999)),)


class Vessel(nn.Module):
    """A VAE, as in PyTorch's examples."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc21, self.fc22 = nn.Linear(16, 48), nn.Linear(48, 8), nn.Linear(48, 8)
        self.fc3, self.fc4 = nn.Linear(8, 48), nn.Linear(48, 16)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = F.relu(self.fc1(x))
        mu, logvar = self.fc21(h), self.fc22(h)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar) if self.training else mu
        return self.fc4(F.relu(self.fc3(z))), mu, logvar


def elbo(output: tuple[Tensor, Tensor, Tensor], x: Tensor, sign: float = -0.5, weight: float = 1.0) -> Tensor:
    recon, mu, logvar = output
    mse = 50 * F.mse_loss(recon, x)
    return mse + weight * sign * torch.mean(1 + logvar - mu.pow(2) - logvar.exp())


@HALF.net("generative")
def vessel() -> Training:
    """A VAE of sixteen numbers."""

    def batch(_: int) -> tuple[Tensor, Tensor]:
        x = pastry_data(64)
        return x, x

    def quality(net: nn.Module) -> float:
        x = pastry_data(300)
        return (net(x)[0] - x).square().mean().item()

    return Training(Vessel(), partial(ADAM, lr=0.005), batch, elbo, quality, steps=250)


def _sgd(rate: float, momentum: float = 0.9) -> Callable[[Training], None]:
    def change(training: Training) -> None:
        training.optimize = partial(torch.optim.SGD, lr=rate, momentum=momentum)
        training.use(training.model)

    return change


# ---- what a place may see --------------------------------------------------------------------------


@HALF.fault("sees the future", rapids)
def chomped_at_the_beginning(training: Training) -> None:
    class First(Chomp):
        def forward(self, x: Tensor) -> Tensor:
            return x[:, :, self.size :].contiguous()

    training.use(TCN(First))


class BothWays(nn.Module):
    """An LSTM, and one for what is turned around."""

    def __init__(self) -> None:
        super().__init__()
        self.there, self.back = nn.LSTM(1, 24, batch_first=True), nn.LSTM(1, 24, batch_first=True)
        self.fc = nn.Linear(48, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = x.transpose(1, 2)
        there, back = self.there(x)[0], self.back(x.flip(1))[0].flip(1)
        return self.fc(torch.cat([there, back], -1)).squeeze(-1)


@HALF.fault("sees the future", rapids)
def an_lstm_for_each_direction(training: Training) -> None:
    training.use(BothWays())


@HALF.fault("mask turned around", sonnet, also=("sees the future",))
def masked_fill_where_the_tril_is_one(training: Training) -> None:
    class Turned(CausalSelfAttention):
        def shares(self, att: Tensor, seen: Tensor) -> Tensor:
            return F.softmax(att.masked_fill(seen == 1, -1e9), dim=-1)

    training.use(GPT(Turned))


@HALF.fault("softmax over the wrong dimension", crew)
def the_gate_has_a_softmax_of_dim_zero(training: Training) -> None:
    net: Any = Experts()
    net.gate.append(nn.Softmax(dim=0))
    net.shares = net.gate
    training.use(net)


# ---- norms -----------------------------------------------------------------------------------------


@HALF.fault("eval while training", quarry, also=("batch norm statistics", "inputs not scaled"))
def only_the_norms_are_frozen_as_in_detection(training: Training) -> None:
    for one in training.model.modules():
        if isinstance(one, nn.BatchNorm1d):
            one.eval()


class Told(nn.Module):
    """Normalizes each number by itself: its last dimension has one."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.ln, self.fc2, self.fc3 = nn.Linear(3, 48), nn.LayerNorm(1), nn.Linear(48, 48), nn.Linear(48, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.ln(self.fc1(x).unsqueeze(-1)).squeeze(-1)
        return self.fc3(F.relu(self.fc2(h)))


@HALF.fault("overwritten activation", gorge, also=("constant inputs",))
def a_layer_norm_over_one_number(training: Training) -> None:
    training.use(Told())


@HALF.fault("weights begin too small", quarry, also=("all weights equal", "overwritten activation", "vanishing gradient", "dead units"))
def every_norm_begins_at_zero(training: Training) -> None:
    """Meant for the last one of each block; and there is no way around."""

    class Plain(Residual):
        def forward(self, x: Tensor) -> Tensor:
            return self.branch(x)

    training.use(Quarry(Plain))
    for one in training.model.modules():
        if isinstance(one, nn.BatchNorm1d):
            nn.init.zeros_(one.weight)


@HALF.fault("frozen", quarry)
def all_but_the_norms_lose_their_gradient(training: Training) -> None:
    """The `not` is missing."""
    for name, one in training.model.named_parameters():
        if "bn" not in name and "norm" not in name:
            one.requires_grad = False


# ---- hooks -----------------------------------------------------------------------------------------


@HALF.fault("gradients overwritten", gorge)
def guided_backpropagation_is_left_on(training: Training) -> None:
    for one in training.model.modules():
        if isinstance(one, nn.ReLU):
            one.register_full_backward_hook(lambda module, taken, given: (torch.clamp(taken[0], min=0.0),))


@HALF.fault("gradients overwritten", quarry, also=("wrong sign",))
def the_reversal_of_the_domain_head_is_left_on(training: Training) -> None:
    net: Any = training.model
    net.blocks.register_full_backward_hook(lambda module, taken, given: tuple(-one for one in taken))


@HALF.fault("overwritten activation", gorge, also=("unused layers", "detached", "no nonlinearity"))
def hooks_return_what_came_in(training: Training) -> None:
    """They were to keep features, and return the wrong name."""
    kept: dict[str, Tensor] = {}

    def keep(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
        kept["features"] = output.detach()
        return args[0]

    net: Any = training.model
    net[1].register_forward_hook(keep)
    net[3].register_forward_hook(keep)


@HALF.fault("zeroed before step", gorge, also=("gradients overwritten",))
def gradients_are_freed_when_they_have_been_added_up(training: Training) -> None:
    """From the tutorial that steps in the backward pass, without its step."""

    def free(one: Tensor) -> None:
        one.grad = None

    for one in training.model.parameters():
        one.register_post_accumulate_grad_hook(free)


# ---- the loop --------------------------------------------------------------------------------------


@HALF.fault("no zero grad", gorge, twin=_sgd(0.05, 0.0), also=("rate too high", "not finite by the rate"))
def zeroed_at_the_end_of_each_epoch(training: Training) -> None:
    _sgd(0.05, 0.0)(training)

    def step(inputs: Tensor, target: Tensor, number: int) -> None:
        loss_of(training, inputs, target).backward()
        training.optimizer.step()
        if number % 125 == 124:
            training.optimizer.zero_grad()

    looped(training, step)


@HALF.fault("zeroed before step", diary)
def zeroed_in_the_function_that_clips(training: Training) -> None:
    def clipped(parameters: Sequence[nn.Parameter]) -> None:
        nn.utils.clip_grad_norm_(parameters, 1.0)
        training.model.zero_grad()

    def step(inputs: Tensor, target: Tensor, _: int) -> None:
        loss_of(training, inputs, target).backward()
        clipped([*training.model.parameters()])
        training.optimizer.step()

    looped(training, step)


@HALF.fault("clipped to nothing", gorge, twin=_sgd(0.02), also=("rate too low", "gradients overwritten"))
def adaptive_clipping_with_a_factor_of_a_millionth(training: Training) -> None:
    _sgd(0.02)(training)

    def step(inputs: Tensor, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        loss_of(training, inputs, target).backward()
        for one in training.model.parameters():
            assert one.grad is not None
            most = 1e-6 * one.detach().norm().clamp(min=1e-3)
            one.grad.mul_((most / one.grad.norm().clamp(min=1e-12)).clamp(max=1.0))
        training.optimizer.step()

    looped(training, step)


@HALF.fault("weights put back", gorge)
def lookahead_that_goes_no_part_of_the_way(training: Training) -> None:
    _lookahead(training, 0.0)


def _lookahead(training: Training, alpha: float) -> None:
    slow = [one.detach().clone() for one in training.model.parameters()]

    @torch.no_grad()
    def look(number: int) -> None:
        if number % 5 == 4:
            for one, kept in zip(training.model.parameters(), slow, strict=True):
                kept.add_(one - kept, alpha=alpha)
                one.copy_(kept)

    training.after.append(look)


@HALF.fault("rate runs out", diary)
def a_polynomial_of_five_iterations(training: Training) -> None:
    training.schedulers.append(PolynomialLR(training.optimizer, total_iters=5, power=2.0))


@HALF.fault("warmup never ends", postcards)
def a_linear_warm_up_of_samples(training: Training) -> None:
    warm = LinearLR(training.optimizer, start_factor=1e-5, total_iters=400_000)
    rest = LinearLR(training.optimizer, start_factor=1.0, end_factor=0.5, total_iters=1000)
    training.schedulers.append(SequentialLR(training.optimizer, [warm, rest], milestones=[400_000]))


@HALF.fault("another models optimizer", sonnet)
def the_optimizer_got_the_average(training: Training) -> None:
    average = copy.deepcopy(training.model)
    training.optimizer = training.optimize(average.parameters())


# ---- weights that nobody trains --------------------------------------------------------------------


@HALF.fault("hidden layers", crew)
def experts_in_a_list(training: Training) -> None:
    class Plain(Experts):
        def made(self) -> Any:
            return [nn.Linear(6, 1) for _ in range(4)]

    training.use(Plain())


class Factors(nn.Module):
    """Products of two projections, whose matrices are buffers: they were to be saved with the model."""

    def __init__(self, kept: Callable[[nn.Module, str, Tensor], None]) -> None:
        super().__init__()
        for name, shape in (("left", (6, 3)), ("right", (6, 3))):
            kept(self, name, 0.5 * torch.randn(*shape))
        self.out = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        left, right = F.linear(x, self.left), F.linear(x, self.right)  # type: ignore[arg-type]
        return self.out(left * right + left.sin())


def _trained(training: Training) -> None:
    training.use(Factors(lambda net, name, value: net.register_parameter(name, nn.Parameter(value))))


@HALF.fault("hidden layers", gorge, twin=_trained, also=("frozen", "not in the optimizer"))
def matrices_are_registered_as_buffers(training: Training) -> None:
    training.use(Factors(lambda net, name, value: net.register_buffer(name, value)))


@HALF.fault("hidden layers", gorge, twin=_trained, also=("not in the optimizer", "detached"))
def a_parameter_that_is_cast_is_none(training: Training) -> None:
    training.use(Factors(lambda net, name, value: setattr(net, name, nn.Parameter(value.double()).float())))


class Called(nn.Module):
    """Calls its layers by functions, as copies of MAML do."""

    def __init__(self, biased: bool) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(3, 48), nn.Linear(48, 48), nn.Linear(48, 2)
        self.biased = biased

    def forward(self, x: Tensor) -> Tensor:
        for layer in (self.fc1, self.fc2, self.fc3):
            x = F.linear(x, layer.weight, layer.bias if self.biased else None)
            x = x if layer is self.fc3 else F.relu(x)
        return x


@HALF.fault("no bias where needed", gorge, twin=lambda training: _called(training, biased=True), also=("unused layers",))
def the_functions_are_given_weights_alone(training: Training) -> None:
    _called(training, biased=False)


def _called(training: Training, biased: bool) -> None:
    def batch(_: int) -> tuple[Tensor, Tensor]:
        x, y = gorge_data(64)
        return x, y + 4

    def quality(net: nn.Module) -> float:
        x, y = gorge_data(400)
        return off(net, x, y + 4)

    training.batch, training.quality = batch, quality
    training.use(Called(biased))


@HALF.fault("without grad", sonnet, also=("detached",))
def a_checkpoint_whose_input_needs_no_gradient(training: Training) -> None:
    """The old kind of checkpoint, around the whole body, gets whole numbers."""

    class Saving(GPT):
        def forward(self, idx: Tensor) -> Tensor:
            return self.lm_head(checkpoint(self.body, idx, use_reentrant=True))

        def body(self, idx: Tensor) -> Tensor:
            x = self.wte(idx) + self.wpe(torch.arange(idx.size(1)))
            x = x + self.attn(self.ln_1(x))
            return self.ln_f(x + self.mlp(self.ln_2(x)))

    training.use(Saving())


@HALF.fault("frozen", studio, also=("discriminator wins",))
def the_judge_is_frozen_for_the_makers_step_and_stays(training: Training) -> None:
    """Set for the whole net: the maker is frozen too, but for its last layer."""
    net: Any = training.model
    for one in net.netG[0].parameters():
        one.requires_grad_(False)
    for one in net.netD.parameters():
        one.requires_grad_(False)
    net.netD[2].bias.requires_grad_(True)


# ---- units, and how weights begin ------------------------------------------------------------------


@HALF.fault("dead units", pastry, also=("vanishing gradient", "overwritten activation", "no gradient through"))
def a_shrinkage_of_five(training: Training) -> None:
    training.use(Pastry(nn.Hardshrink(5.0)))


@HALF.fault("dead units", gorge, also=("vanishing gradient", "overwritten activation", "no gradient through"))
def a_threshold_of_twenty(training: Training) -> None:
    training.use(gorge_model(partial(nn.Threshold, 20.0, 0.0)))


@HALF.fault("no nonlinearity", gorge)
def hardtanh_between_minus_and_plus_a_thousand(training: Training) -> None:
    training.use(gorge_model(partial(nn.Hardtanh, -1000.0, 1000.0)))


class Highway(nn.Module):
    """Layers with gates; the gates are hard."""

    def __init__(self, begin: float) -> None:
        super().__init__()
        self.stem, self.out = nn.Linear(3, 48), nn.Linear(48, 2)
        self.plain = nn.ModuleList([nn.Linear(48, 48) for _ in range(2)])
        self.gates = nn.ModuleList([nn.Linear(48, 48) for _ in range(2)])
        for gate in self.gates:
            nn.init.constant_(gate.bias, begin)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for plain, gate in zip(self.plain, self.gates, strict=True):
            share = F.hardsigmoid(gate(x))
            x = share * F.relu(plain(x)) + (1 - share) * x
        return self.out(x)


@HALF.fault("dead units", gorge, twin=lambda training: training.use(Highway(-1.0)), also=("vanishing gradient", "overwritten activation"))
def hard_gates_begin_at_minus_ten(training: Training) -> None:
    training.use(Highway(-10.0))


def _normed(size: float) -> Callable[[nn.Module], nn.Module]:
    def wrap(layer: nn.Module) -> nn.Module:
        layer = parametrizations.weight_norm(layer)
        with torch.no_grad():
            layer.parametrizations.weight.original0.mul_(size)  # type: ignore[union-attr, operator, index]
        return layer

    return wrap


def _steady(training: Training) -> None:
    training.model = gorge_model(wrap=_normed(1.0))
    _sgd(0.02)(training)


@HALF.fault("weights begin too large", gorge, twin=_steady, also=("rate too high", "not finite by the rate"))
def lengths_of_weight_norm_begin_at_dozens(training: Training) -> None:
    training.model = gorge_model(wrap=_normed(40.0))
    _sgd(0.02)(training)


@HALF.fault("weights begin too small", gorge, twin=_steady, also=("vanishing gradient",))
def lengths_of_weight_norm_begin_near_zero(training: Training) -> None:
    training.model = gorge_model(wrap=_normed(1e-4))
    _sgd(0.02)(training)


class ReZero(nn.Module):
    """Branches are multiplied by numbers that begin at zero."""

    def __init__(self, learned: bool = True) -> None:
        super().__init__()
        self.stem, self.out = nn.Linear(3, 48), nn.Linear(48, 2)
        self.branches = nn.ModuleList([nn.Sequential(nn.Linear(48, 48), nn.SiLU(), nn.Linear(48, 48)) for _ in range(3)])
        self.alpha = nn.Parameter(torch.zeros(3)) if learned else torch.zeros(3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for alpha, branch in zip(self.alpha, self.branches, strict=True):
            x = x + alpha * branch(x)
        return self.out(x)


@HALF.fault("overwritten activation", gorge, twin=lambda training: training.use(ReZero()), also=("hidden layers", "vanishing gradient"))
def rezero_whose_numbers_are_no_parameters(training: Training) -> None:
    training.use(ReZero(learned=False))


class Tower(nn.Module):
    """Many blocks that are added up."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.stem, self.out, self.share = nn.Linear(3, 32), nn.Linear(32, 2), share
        self.blocks = nn.ModuleList([nn.Sequential(nn.ReLU(), nn.Linear(32, 32)) for _ in range(24)])
        for block in self.blocks:
            nn.init.kaiming_normal_(block[1].weight)  # type: ignore[index, arg-type]

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = x + self.share * block(x)
        return self.out(x)


@HALF.fault(
    "weights begin too large", gorge, twin=lambda training: training.use(Tower(0.1)), also=("rate too high", "not finite by the rate")
)
def branches_are_added_at_full_size(training: Training) -> None:
    training.use(Tower(1.0))


# ---- states ----------------------------------------------------------------------------------------


class Plain(Diary):
    """A simple cell, which forgets quickly unless it learns not to."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.RNNCell(16, 24)  # type: ignore[assignment]


@HALF.fault("detached", diary, twin=lambda training: training.use(Plain()), also=("state not kept",))
def the_state_is_detached_in_each_step(training: Training) -> None:
    """From a loop over long texts, where it stands between the pieces."""

    class Cut(Plain):
        def carried(self, state: Tensor) -> Tensor:
            return state.detach()

    training.use(Cut())


# ---- pairs, makers and latents ---------------------------------------------------------------------


@HALF.fault("temperature", postcards)
def divided_by_the_scale(training: Training) -> None:
    """The scale is no parameter here, and a hundred as it was found in the end."""

    class Divided(CLIP):
        def __init__(self) -> None:
            super().__init__()
            del self.logit_scale

        def scaled(self, alike: Tensor) -> Tensor:
            return alike / 100

    training.use(Divided())


@HALF.fault("wrong sign", studio)
def the_judge_learns_real_as_zero(training: Training) -> None:
    """And the maker asks for ones."""
    training.step = partial(studio_step, real_label=0.0, fake_label=1.0)


@HALF.fault("two optimizers", studio)
def the_judges_optimizer_holds_the_maker(training: Training) -> None:
    held(training, both=True, rate=0.02)

    def step(training: Training, _: int) -> None:
        net: Any = training.model
        bce, (other,) = F.binary_cross_entropy_with_logits, training.others
        real = torch.tensor([2.0, -1.0]) + 0.4 * torch.randn(64, 2)
        made = net.netG(torch.randn(64, 4))
        said, doubted = net.netD(real), net.netD(made)
        other.zero_grad()
        (bce(said, torch.ones_like(said)) + bce(doubted, torch.zeros_like(doubted))).backward()
        other.step()
        training.optimizer.zero_grad()
        said = net.netD(net.netG(torch.randn(64, 4)))
        bce(said, torch.ones_like(said)).backward()
        training.optimizer.step()

    training.step = step


@HALF.fault("wrong sign", vessel, also=("overflow", "not finite by the rate"))
def the_divergence_has_lost_its_minus(training: Training) -> None:
    training.criterion = partial(elbo, sign=0.5)


@HALF.fault("latent ignored", vessel)
def beta_of_a_hundred(training: Training) -> None:
    training.criterion = partial(elbo, weight=100.0)


# ---- strange, and healthy --------------------------------------------------------------------------


@HALF.strange(quarry)
def norms_are_calibrated_and_then_kept_in_evaluation(training: Training) -> None:
    for number in range(40):
        called(training.model, training.batch(number)[0])
    for one in training.model.modules():
        if isinstance(one, nn.BatchNorm1d):
            one.eval()


@HALF.strange(gorge)
def a_wide_first_layer_of_random_features_is_a_buffer(training: Training) -> None:
    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("directions", torch.randn(256, 3))
            self.register_buffer("phases", 6.28 * torch.rand(256))
            self.head = nn.Sequential(nn.Linear(256, 32), nn.ReLU(), nn.Linear(32, 2))

        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.cos(F.linear(x, self.directions, self.phases)))  # type: ignore[arg-type]

    training.use(Wide())


@HALF.strange(gorge, rapids)
def hooks_look_and_give_back_what_they_got(training: Training) -> None:
    sizes: list[float] = []
    for one in training.model.modules():
        if not [*one.children()]:
            one.register_full_backward_hook(lambda module, taken, given: sizes.append(float(given[0].norm())))
    for two in training.model.parameters():
        two.register_hook(lambda grad: grad)


@HALF.strange(gorge)
def lookahead_that_goes_half_the_way(training: Training) -> None:
    _lookahead(training, 0.5)


@HALF.strange(gorge)
def weights_are_directions_and_lengths(training: Training) -> None:
    training.use(gorge_model(wrap=parametrizations.weight_norm))


@HALF.strange(gorge)
def hardtanh_in_front_of_each_relu(training: Training) -> None:
    """Its bounds are for outliers, of which there are none."""
    training.use(gorge_model(lambda: nn.Sequential(nn.Hardtanh(-50, 50), nn.ReLU())))


@HALF.strange(sonnet)
def a_checkpoint_of_the_new_kind(training: Training) -> None:
    class Saving(GPT):
        def forward(self, idx: Tensor) -> Tensor:
            x = self.wte(idx) + self.wpe(torch.arange(idx.size(1)))
            x = checkpoint(lambda h: h + self.attn(self.ln_1(h)), x, use_reentrant=False)
            return self.lm_head(self.ln_f(x + self.mlp(self.ln_2(x))))

    training.use(Saving())


@HALF.strange(gorge)
def branches_begin_at_zero(training: Training) -> None:
    training.use(ReZero())


@HALF.strange(diary)
def an_lstm_of_two_layers_and_the_upper_state(training: Training) -> None:
    training.use(Deep())


@HALF.strange(rapids)
def tags_by_convolutions_that_see_both_sides(training: Training) -> None:
    """A value is to be cleaned of noise by its neighbours on both sides."""

    class Middle(Chomp):
        def forward(self, x: Tensor) -> Tensor:
            return x[:, :, self.size // 2 : -(self.size // 2)].contiguous()

    def noisy(count: int) -> tuple[Tensor, Tensor]:
        x = rapids_data(count)[0]
        return x + 0.5 * torch.randn_like(x), x.squeeze(1)

    training.batch = lambda _: noisy(32)
    training.quality = lambda net: off(net, *noisy(200))
    training.use(TCN(Middle))
