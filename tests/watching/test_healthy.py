"""Healthy training runs of many kinds: a watch raises no alert and breaks no check, however closely it looks."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import modlab
from modlab.results.watch import Watch
from tests.judgements import is_judged_alike
from tests.long import one_in

Optimizers = Any


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """The tensors are small: two threads wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@dataclass
class Run:
    """A training run.

    Attributes:
        watched: models by name, each with what is given as its optimizer.
        step: makes one step, and returns what is logged.
        steps: how many there are.
        careful: checks on which care is the truth.
    """

    watched: dict[str, tuple[nn.Module, Optimizers]]
    step: Callable[[int], dict[str, Any]]
    steps: int = 150
    careful: set[str] = field(default_factory=set)


RUNS: dict[str, Callable[[], Run]] = {}


def run(make: Callable[[], Run]) -> Callable[[], Run]:
    RUNS[make.__name__] = make
    return make


def one(model: nn.Module, optimizer: Optimizers, loss: Callable[[], Tensor], *, clip: float = 0, schedule: Any = None, **more: Any) -> Run:
    """The usual loop."""

    def step(_: int) -> dict[str, Any]:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        if schedule is not None:
            schedule.step()
        return {"loss": value}

    return Run({"": (model, optimizer)}, step, **more)


def blobs(count: int, classes: int, size: int, spread: float = 1.0) -> tuple[Tensor, Tensor]:
    """Points around as many centres as there are classes."""
    centres = 2 * torch.randn(classes, size)
    labels = torch.randint(classes, (count,))
    return centres[labels] + spread * torch.randn(count, size), labels


def batches(data: Tensor, labels: Tensor, size: int) -> Callable[[], tuple[Tensor, Tensor]]:
    def draw() -> tuple[Tensor, Tensor]:
        chosen = torch.randint(len(data), (size,))
        return data[chosen], labels[chosen]

    return draw


def classified(model: nn.Module, draw: Callable[[], tuple[Tensor, Tensor]]) -> Callable[[], Tensor]:
    def loss() -> Tensor:
        x, y = draw()
        return F.cross_entropy(model(x), y)

    return loss


def mlp(function: type[nn.Module], *sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for wide, next_ in itertools.pairwise(sizes):
        layers += [nn.Linear(wide, next_), function()]
    return nn.Sequential(*layers[:-1])


def images(count: int, classes: int = 4, size: int = 12) -> tuple[Tensor, Tensor]:
    """Bright squares, whose place is the class, and noise."""
    labels = torch.randint(classes, (count,))
    x = 0.3 * torch.randn(count, 1, size, size)
    half = size // 2
    for i, label in enumerate(labels.tolist()):
        top, left = (label // 2) * half, (label % 2) * half
        x[i, 0, top + 1 : top + half - 1, left + 1 : left + half - 1] += 1
    return x, labels


def adam(model: nn.Module, lr: float = 3e-3, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=lr, **options)


# ---- classifiers


@run
def mlp_relu() -> Run:
    model = mlp(nn.ReLU, 8, 32, 32, 4)
    return one(model, adam(model), classified(model, batches(*blobs(2000, 4, 8), 32)), steps=300)


@run
def mlp_gelu() -> Run:
    model = mlp(nn.GELU, 8, 32, 32, 4)
    return one(model, adam(model), classified(model, batches(*blobs(2000, 4, 8), 32)))


@run
def mlp_tanh_with_momentum() -> Run:
    model = mlp(nn.Tanh, 8, 32, 32, 4)
    return one(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), classified(model, batches(*blobs(2000, 4, 8), 32)))


@run
def wide_and_sparse() -> Run:
    """Hundreds of units for twenty classes: each of them comes to fire on few inputs, as it should."""
    model = mlp(nn.ReLU, 16, 512, 256, 20)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.1)
    return one(model, optimizer, classified(model, batches(*blobs(4000, 20, 16), 64)), steps=300)


@run
def dropout_and_decay() -> Run:
    model = nn.Sequential(
        nn.Linear(8, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 64), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(64, 4)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    return one(model, optimizer, classified(model, batches(*blobs(2000, 4, 8), 32)))


@run
def a_function_for_the_activation() -> Run:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.last = nn.Linear(8, 32), nn.Linear(32, 32), nn.Linear(32, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(F.relu(self.second(F.relu(self.first(x)))))

    model = Model()
    return one(model, adam(model), classified(model, batches(*blobs(2000, 4, 8), 16)), steps=300)


@run
def convolutions() -> Run:
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(144, 4),
    )
    return one(model, adam(model), classified(model, batches(*images(500), 16)), steps=100)


class Block(nn.Module):
    def __init__(self, wide: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(wide, wide, 3, padding=1, bias=False), nn.BatchNorm2d(wide)
        self.conv2, self.bn2 = nn.Conv2d(wide, wide, 3, padding=1, bias=False), nn.BatchNorm2d(wide)
        self.relu = nn.ReLU(inplace=True)  # one for both, as is usual
        nn.init.zeros_(self.bn2.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(x + self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))))


@run
def a_resnet() -> Run:
    """With residual branches that begin at zero, so that no gradient gets into them in the first step."""
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        *(Block(16) for _ in range(3)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 4),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    x, y = images(500)
    x = x + torch.linspace(0, 1, 4)[y, None, None, None]  # an average over the plane knows no places
    return one(model, optimizer, classified(model, batches(x, y, 16)), steps=60)


# ---- sequences


class Tokens(nn.Module):
    """A language model of a few thousand parameters."""

    def __init__(self, function: Callable[[Tensor], Tensor], layers: int = 2, wide: int = 32) -> None:
        super().__init__()
        self.embed, self.places = nn.Embedding(20, wide), nn.Embedding(12, wide)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(wide, 4, 4 * wide, 0.1, activation=function, batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.norm, self.head = nn.LayerNorm(wide), nn.Linear(wide, 20, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens) * 0.1 + self.places(torch.arange(tokens.shape[1]))
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=True)
        return self.head(self.norm(x)) * 0.3


def sequences(count: int = 16) -> Tensor:
    """Each token is the one before plus a step that the sequence keeps."""
    return (torch.randint(20, (count, 1)) + torch.randint(1, 3, (count, 1)) * torch.arange(12)) % 20


def spoken(model: nn.Module) -> Callable[[], Tensor]:
    def loss() -> Tensor:
        tokens = sequences()
        return F.cross_entropy(model(tokens[:, :-1]).transpose(1, 2), tokens[:, 1:])

    return loss


@run
def transformer_relu() -> Run:
    model = Tokens(F.relu)
    return one(model, torch.optim.AdamW(model.parameters(), lr=3e-3), spoken(model), steps=100)


@run
def transformer_gelu_with_warm_up_and_clipping() -> Run:
    model = Tokens(F.gelu)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(step / 20, 0.5 * (1 + math.cos(math.pi * step / 100))))
    return one(model, optimizer, spoken(model), clip=1.0, schedule=schedule, steps=100)


@run
def lstm_tagger() -> Run:
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.lstm, self.out = nn.Embedding(9, 8, padding_idx=0), nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 3)

        def forward(self, tokens: Tensor) -> Tensor:
            return self.out(self.lstm(self.embed(tokens))[0])

    model = Tagger()

    def loss() -> Tensor:
        tokens = torch.randint(9, (16, 8))
        return F.cross_entropy(model(tokens).flatten(0, 1), (tokens % 3).flatten(), reduction="mean")

    return one(model, adam(model, 0.01), loss, clip=1.0, steps=100)


@run
def a_bag_of_many_words() -> Run:
    """An embedding of which a step touches few rows: fewer than are compared."""
    model = nn.Sequential(nn.EmbeddingBag(50_000, 16, mode="mean"), nn.Linear(16, 2))
    words = torch.randint(50_000, (40, 2, 5)) // 997 * 997

    def loss() -> Tensor:
        chosen, label = torch.randint(40, (16,)), torch.randint(2, (16,))
        return F.cross_entropy(model(words[chosen, label]), label)

    return one(model, torch.optim.SGD(model.parameters(), lr=1.0), loss, steps=80)


@run
def sparse_gradients() -> Run:
    model = nn.Sequential(nn.EmbeddingBag(300, 8, sparse=True), nn.Linear(8, 2))
    both = [torch.optim.SparseAdam(model[0].parameters(), lr=0.01), adam(model[1], 0.01)]

    def step(_: int) -> dict[str, Any]:
        label = torch.randint(2, (16,))
        value = F.cross_entropy(model(torch.randint(150, (16, 4)) + 150 * label[:, None]), label)
        for optimizer in both:
            optimizer.zero_grad()
        value.backward()
        for optimizer in both:
            optimizer.step()
        return {"loss": value}

    return Run({"": (model, both)}, step)


# ---- regressions and what converges


@run
def a_regression_to_the_last_digit() -> Run:
    """The loss goes to 1e-13, where float32 ends."""
    model, truth = nn.Linear(4, 1), torch.randn(4, 1)

    def loss() -> Tensor:
        x = torch.randn(32, 4)
        return F.mse_loss(model(x), x @ truth)

    return one(model, torch.optim.SGD(model.parameters(), lr=0.1), loss, steps=800)


@run
def what_has_converged_goes_on() -> Run:
    """Noise that no model can learn, and a model that knows the rest already."""
    model = nn.Linear(4, 1)
    truth = model.weight.detach().clone()

    def loss() -> Tensor:
        x = torch.randn(32, 4)
        return F.mse_loss(model(x), x @ truth.T + model.bias.detach() + 0.3 * torch.randn(32, 1))

    return one(model, torch.optim.SGD(model.parameters(), lr=0.01), loss, steps=400, careful={"the loss falls"})


@run
def a_cosine_to_zero() -> Run:
    model = mlp(nn.Tanh, 1, 32, 32, 1)
    optimizer = adam(model, 0.01)

    def loss() -> Tensor:
        x = torch.rand(64, 1) * 4 - 2
        return F.mse_loss(model(x), torch.sin(2 * x))

    return one(model, optimizer, loss, schedule=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 300), steps=300)


@run
def with_a_closure() -> Run:
    model = mlp(nn.Tanh, 2, 16, 1)
    optimizer: Any = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)
    x = torch.randn(64, 2)
    y = x[:, :1] * x[:, 1:]

    def step(_: int) -> dict[str, Any]:
        def again() -> Tensor:
            optimizer.zero_grad()
            value = F.mse_loss(model(x), y)
            value.backward()
            return value

        return {"loss": optimizer.step(again)}

    return Run({"": (model, optimizer)}, step, steps=60)


# ---- what gives back what it is given


@run
def an_autoencoder() -> Run:
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8), nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 64), nn.Sigmoid()
    )

    def loss() -> Tensor:
        x = (torch.rand(32, 1, 8, 1) > 0.5).float().expand(32, 1, 8, 8)
        return F.binary_cross_entropy(model(x), x.flatten(1))  # becomes so sure that the sigmoid lies at its ends

    return one(model, adam(model, 0.01), loss, steps=300)


class Variational(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.mean, self.spread = nn.Sequential(nn.Linear(16, 32), nn.ReLU()), nn.Linear(32, 4), nn.Linear(32, 4)
        self.decoder = mlp(nn.ReLU, 4, 32, 16)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = self.encoder(x)
        mean, log = self.mean(hidden), self.spread(hidden)
        return self.decoder(mean + torch.randn_like(mean) * (0.5 * log).exp()), mean, log


@run
def a_vae() -> Run:
    model = Variational()
    basis = torch.randn(3, 16)

    def loss() -> Tensor:
        x = torch.randn(32, 3) @ basis
        again, mean, log = model(x)
        return F.mse_loss(again, x, reduction="none").sum(1).mean() - 0.5 * (1 + log - mean**2 - log.exp()).sum(1).mean()

    return one(model, adam(model), loss, steps=200)


@run
def a_decoder_that_grows() -> Run:
    """A latent vector becomes an image: each number of the output has a small gradient, and each of the latent's a great one."""
    up = partial(nn.ConvTranspose2d, kernel_size=4, stride=2, padding=1)
    model = nn.Sequential(
        nn.Linear(4, 64),
        nn.Unflatten(1, (16, 2, 2)),
        up(16, 16),
        nn.GELU(),
        up(16, 8),
        nn.GELU(),
        up(8, 8),
        nn.GELU(),
        up(8, 3),
        nn.GELU(),
        up(3, 3),
    )
    codes = torch.randn(8, 4)
    wanted = F.interpolate(torch.randn(8, 3, 4, 4), 64)
    return one(model, adam(model, 5e-3), lambda: F.mse_loss(model(codes), wanted), steps=40)


# ---- adversaries


def adversaries(watched: str, steps: int = 150) -> Run:
    generator, critic = (
        mlp(nn.ReLU, 4, 32, 32, 2),
        nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1)),
    )
    both = adam(generator, 1e-3, betas=(0.5, 0.9)), adam(critic, 1e-3, betas=(0.5, 0.9))
    whole = nn.ModuleDict({"generator": generator, "critic": critic})

    def step(_: int) -> dict[str, Any]:
        fake = generator(torch.randn(32, 4))
        real = torch.randn(32, 2) * 0.3 + torch.tensor([2.0, -1.0])
        both[1].zero_grad()
        critic_loss = F.softplus(-critic(real)).mean() + F.softplus(critic(fake.detach())).mean()
        critic_loss.backward()
        both[1].step()
        both[0].zero_grad()
        generator_loss = F.softplus(-critic(fake)).mean()
        generator_loss.backward()
        both[0].step()
        return {"generator_loss": generator_loss, "critic_loss": critic_loss}

    return Run(
        {
            "both": {"generator": (generator, both[0]), "critic": (critic, both[1])},
            "generator first": {"whole": (whole, [*both])},
            "critic first": {"whole": (whole, [both[1], both[0]])},
            "one known": {"whole": (whole, both[1])},
        }[watched],
        step,
        steps,
        careful={"the loss falls"} if watched == "both" else set(),  # one player's loss rises as the other one learns
    )


@run
def adversaries_each_by_itself() -> Run:
    return adversaries("both")


@run
def adversaries_as_one() -> Run:
    return adversaries("generator first")


@run
def adversaries_the_other_way() -> Run:
    return adversaries("critic first")


@run
def two_optimizers_of_which_one_is_told() -> Run:
    return adversaries("one known")


@run
def a_critic_that_steps_five_times() -> Run:
    """All gradients are zeroed at the top of the loop, and the generator has its turn in every fifth step."""
    generator, critic = mlp(nn.ReLU, 4, 32, 2), mlp(nn.Tanh, 2, 32, 1)
    whole = nn.ModuleDict({"critic": critic, "generator": generator})
    both = torch.optim.RMSprop(critic.parameters(), lr=1e-3), torch.optim.RMSprop(generator.parameters(), lr=1e-3)

    def step(number: int) -> dict[str, Any]:
        whole.zero_grad()
        fake = generator(torch.randn(32, 4))
        if number % 6 < 5:
            value = critic(fake.detach()).mean() - critic(torch.randn(32, 2) + 2).mean()
            value.backward()
            both[0].step()
            with torch.no_grad():
                for parameter in critic.parameters():
                    parameter.clamp_(-0.1, 0.1)
            return {"critic": value}
        value = -critic(fake).mean()
        value.backward()
        both[1].step()
        return {"generator": value}

    return Run({"": (whole, [*both])}, step, 180, careful={"every trained parameter gets a gradient"})  # a shift that the loss does not see


# ---- parts that stand still


@run
def a_frozen_backbone() -> Run:
    model = nn.Sequential(mlp(nn.ReLU, 8, 64, 32), nn.ReLU(), nn.Linear(32, 4))
    model[0].requires_grad_(False)
    return one(model, torch.optim.Adam(model[2].parameters(), lr=0.01), classified(model, batches(*blobs(2000, 4, 8), 32)))


@run
def frozen_after_the_watch_began() -> Run:
    """The backbone is frozen before the first step, and let go after fifty, when its parameters join the optimizer."""
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))
    optimizer = torch.optim.Adam(model[2].parameters(), lr=0.01)
    draw = batches(*blobs(2000, 4, 8), 32)

    def step(number: int) -> dict[str, Any]:
        if number == 0:
            model[0].requires_grad_(False)
        if number == 50:
            model[0].requires_grad_(True)
            optimizer.add_param_group({"params": [*model[0].parameters()]})
        optimizer.zero_grad()
        x, y = draw()
        value = F.cross_entropy(model(x), y)
        value.backward()
        optimizer.step()
        return {"loss": value}

    return Run({"": (model, optimizer)}, step)


@run
def a_student_and_its_teacher() -> Run:
    """The teacher follows the student by a running mean, gets no gradient, and is in no optimizer."""
    model = nn.ModuleDict({"student": mlp(nn.GELU, 8, 16, 4), "teacher": mlp(nn.GELU, 8, 16, 4)})
    optimizer = adam(model["student"])

    def step(_: int) -> dict[str, Any]:
        x = torch.randn(32, 8)
        with torch.no_grad():
            target = model["teacher"](x)
        optimizer.zero_grad()
        value = F.mse_loss(model["student"](x + 0.1 * torch.randn_like(x)), target)
        value.backward()
        optimizer.step()
        with torch.no_grad():
            for mean, parameter in zip(model["teacher"].parameters(), model["student"].parameters(), strict=True):
                mean.lerp_(parameter, 0.01)
        return {"loss": value}

    return Run({"": (model, optimizer)}, step)


class Adapted(nn.Module):
    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down, self.up = nn.Linear(layer.in_features, 4, bias=False), nn.Linear(4, layer.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + self.up(self.down(x))


@run
def an_adapter_that_begins_at_zero() -> Run:
    model = nn.Sequential(Adapted(nn.Linear(8, 32)), nn.ReLU(), Adapted(nn.Linear(32, 4)))
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, step / 20))
    return one(model, optimizer, classified(model, batches(*blobs(2000, 4, 8), 32)), schedule=schedule)


@run
def experts_of_which_one_is_chosen() -> Run:
    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.experts = nn.Linear(8, 6), nn.ModuleList(mlp(nn.GELU, 8, 16, 4) for _ in range(6))

        def forward(self, x: Tensor) -> Tensor:
            share, chosen = (self.gate(x) + torch.randn(len(x), 6)).softmax(-1).max(-1)  # noise, so that each is asked
            out = x.new_zeros(len(x), 4)
            for number, expert in enumerate(self.experts):
                mine = chosen == number
                if mine.any():
                    out = out.index_add(0, mine.nonzero()[:, 0], expert(x[mine]) * share[mine, None])
            return out

    model = Experts()
    return one(model, adam(model), classified(model, batches(*blobs(2000, 4, 8), 16)))


@run
def rates_of_their_own() -> Run:
    """Groups with rates of their own, and a norm that is written as a parametrization."""
    model = nn.Sequential(parametrizations.weight_norm(nn.Linear(8, 32)), nn.ReLU(), nn.Linear(32, 4))
    groups = [{"params": model[0].parameters(), "lr": 1e-5}, {"params": model[2].parameters()}]
    return one(model, torch.optim.Adam(groups, lr=0.01), classified(model, batches(*blobs(2000, 4, 8), 32)))


# ---- losses that are not the usual ones


@run
def contrast() -> Run:
    model = mlp(nn.ReLU, 8, 32, 8)

    def loss() -> Tensor:
        x = torch.randn(32, 8)
        left, right = (F.normalize(model(x + 0.1 * torch.randn_like(x)), dim=1) for _ in range(2))
        return F.cross_entropy(left @ right.T / 0.1, torch.arange(32))

    return one(model, adam(model), loss)


@run
def a_loss_that_is_a_sum() -> Run:
    """Of the batch: far above what one guess costs."""
    model = mlp(nn.ReLU, 8, 32, 4)
    draw = batches(*blobs(2000, 4, 8), 64)

    def loss() -> Tensor:
        x, y = draw()
        return F.cross_entropy(model(x), y, reduction="sum")

    return one(model, adam(model), loss)


@run
def a_likelihood_below_zero() -> Run:
    class Density(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean, self.log = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))

        def forward(self, x: Tensor) -> Tensor:
            return -torch.distributions.Normal(self.mean, self.log.exp()).log_prob(x).sum(-1)

    model = Density()
    return one(model, adam(model, 0.05), lambda: model(0.01 * torch.randn(64, 2) + 0.5).mean(), steps=200)


@run
def moves_that_are_not_allowed() -> Run:
    """A policy whose forbidden actions have a score of minus infinity, and a mask that is a parameter."""

    class Policy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp(nn.Tanh, 4, 16, 6)
            self.mask = nn.Parameter(torch.tensor([0.0, 0, 0, 0, -math.inf, -math.inf]), requires_grad=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.body(x) + self.mask

    model = Policy()

    def loss() -> Tensor:
        x = torch.randn(32, 4)
        return F.cross_entropy(model(x), x.argmax(1))

    return one(model, adam(model, 0.01), loss)


# ---- precisions, accumulation, evaluation


@run
def autocast_to_bfloat16() -> Run:
    model = mlp(nn.ReLU, 8, 64, 64, 4)
    inner = classified(model, batches(*blobs(2000, 4, 8), 32))

    def loss() -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return inner()

    return one(model, adam(model), loss)


@run
def a_scaler_that_skips() -> Run:
    model = mlp(nn.ReLU, 8, 32, 4)
    optimizer = adam(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=20)
    draw = batches(*blobs(2000, 4, 8), 32)

    def step(_: int) -> dict[str, Any]:
        optimizer.zero_grad()
        x, y = draw()
        with torch.autocast("cpu", dtype=torch.float16):
            value = F.cross_entropy(model(x), y)
        scaler.scale(value).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return {"loss": value}

    return Run({"": (model, optimizer)}, step)


@run
def accumulation() -> Run:
    model = mlp(nn.ReLU, 8, 32, 4)
    optimizer = adam(model)
    loss = classified(model, batches(*blobs(2000, 4, 8), 8))

    def step(_: int) -> dict[str, Any]:
        total = 0.0
        for _ in range(4):
            value = loss() / 4
            value.backward()
            total += value.item()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        return {"loss": total}

    return Run({"": (model, optimizer)}, step, 100)


@run
def validation_in_between() -> Run:
    """Batches of another kind go through the model in eval mode, and one in training mode without gradients."""
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 4))
    optimizer = adam(model)
    draw = batches(*blobs(2000, 4, 8), 32)

    def step(number: int) -> dict[str, Any]:
        model.train()
        optimizer.zero_grad()
        x, y = draw()
        value = F.cross_entropy(model(x), y)
        value.backward()
        optimizer.step()
        logged: dict[str, Any] = {"train_loss": value}
        if number % 10 == 9:
            model.eval()
            logged["val_loss"] = F.cross_entropy(model(-10 * x.abs()), y).item()  # no graph is kept, though none is forbidden
            with torch.no_grad():
                model.train()
                model(x)
        return logged

    return Run({"": (model, optimizer)}, step, 200)


@run
def forty_layers() -> Run:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.down(F.relu(self.up(self.norm(x)))) / 4

    model = nn.Sequential(nn.Linear(8, 16), *(Residual() for _ in range(20)), nn.Linear(16, 4))
    return one(model, adam(model, 1e-3), classified(model, batches(*blobs(2000, 4, 8), 32)), steps=60)


@run
def one_example_at_a_time() -> Run:
    model = mlp(nn.ReLU, 4, 8, 1)
    truth = torch.randn(4)

    def loss() -> Tensor:
        x = torch.randn(4)
        return (model(x) - x @ truth).square().squeeze()

    return one(model, torch.optim.SGD(model.parameters(), lr=0.01), loss, steps=800)


def watched(make: Callable[[], Run], seed: int, **options: Any) -> tuple[Run, dict[str, Watch], Silence]:
    torch.manual_seed(seed)
    made = make()
    silence = Silence(made)
    with ExitStack() as stack:
        watches = {
            name: stack.enter_context(modlab.watch(model, optimizer, **options)) for name, (model, optimizer) in made.watched.items()
        }
        for number in range(made.steps):
            logged = made.step(number)
            for w in watches.values():
                w.log(**logged)
    return made, watches, silence


class Silence:
    """The test's own count: for how many inputs in a row each unit of each linear layer was not above zero, and was at most."""

    def __init__(self, made: Run) -> None:
        self.lasts: dict[tuple[str, str], Tensor] = {}
        self.longest: dict[tuple[str, str], Tensor] = {}
        for name, (model, _) in made.watched.items():
            for path, module in model.named_modules():
                if isinstance(module, nn.Linear):
                    module.register_forward_hook(partial(self._see, (name, path)))

    def _see(self, key: tuple[str, str], module: nn.Module, _: Any, output: Tensor) -> None:
        if not (module.training and torch.is_grad_enabled()):
            return
        fires = output.detach().reshape(-1, output.shape[-1]) > 0
        before = self.lasts.get(key, torch.zeros(output.shape[-1], dtype=torch.long))
        since = torch.where(fires.any(0), fires.flip(0).int().argmax(0), before + len(fires))
        self.lasts[key], self.longest[key] = since, torch.maximum(self.longest.get(key, before), since)

    def denies(self, name: str, alert: Any) -> bool:
        """Whether it knows better than an alert that says for how many inputs some units were silent."""
        text = alert.text.partition(": ")[2].partition(" zero on")[0]
        units = [alert.unit] if alert.unit is not None else [int(one) for one in re.findall(r"\d+", text)]
        known = (self.longest if alert.over else self.lasts)[name, alert.path]
        return not units or bool((known[units] < alert.inputs).any())


def wrong(made: Run, name: str, w: Watch, silence: Silence) -> Iterator[str]:
    """What is said against a healthy run."""
    dead = [alert for alert in w.alerts if alert.kind == "dead"]  # in a wide layer that is usual, if it is true
    yield from (f"{alert.kind}: {alert.text}" for alert in w.alerts if alert not in dead)
    for check in w.verdict.checks:
        if check.state == "broken" or (check.state == "careful" and check.name not in made.careful):
            if check.state == "careful" and check.name == "it moves" and dead:
                continue
            yield f"{check.state}: {check.name}: {check.text}"
    yield from (f"that is not so: {alert.text}" for alert in dead if silence.denies(name, alert))
    if w.record.error:
        yield w.record.error


@pytest.mark.parametrize(("name", "budget"), one_in(3, itertools.product(RUNS, (1.0, 0.02))))
def test_nothing_is_said_against_a_healthy_run(name: str, budget: float) -> None:
    made, watches, silence = watched(RUNS[name], 0, budget=budget)
    for key, w in watches.items():
        assert w.record.steps >= 0.8 * made.steps and not w.record.error
        assert not list(wrong(made, key, w, silence))
        assert is_judged_alike(w)
