"""Nothing is wrong here: gradients that come from elsewhere, weights that are masked, drawn or averaged, layers that solve."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune
from torch.nn.utils.parametrizations import spectral_norm
from torch.optim import Optimizer

from bench.sick.training import Batch, Training
from bench.sick.working.eighth_healthy import bees, clothes, flowers, of_a_notebook, pretrained, wrong_share
from bench.sick.working.fourth_nets import constant
from bench.sick.working.half import HALF
from bench.sick.working.seventh_healthy import mean_square, mlp
from bench.sick.working.third_nets import ADAM, ADAMW, SGD, missed


def bumps(count: int) -> tuple[Tensor, Tensor]:
    """Three numbers, and a smooth function of them."""
    x = 2 * torch.rand(count, 3) - 1
    return x, (torch.sin(3 * x[:, :1]) + x[:, 1:2] * x[:, 2:]) + 0.1 * torch.randn(count, 1)


def far_from_bumps(net: nn.Module) -> float:
    x, y = bumps(400)
    return mean_square(net(x), y)


# ---- gradients from elsewhere ------------------------------------------------------------------------


@HALF.net("mlp")
def evolved_without_backward() -> Training:
    """Evolution strategies: pairs of noise, no backward at all; what they tell is written into .grad."""
    x, y = bumps(64)

    def step(training: Training, _: int) -> None:
        with torch.no_grad():
            flat = nn.utils.parameters_to_vector(training.model.parameters())
            noise = torch.randn(20, len(flat))
            told = torch.zeros_like(flat)
            for eps in noise:
                both = []
                for sign in (1, -1):
                    nn.utils.vector_to_parameters(flat + sign * 0.05 * eps, training.model.parameters())
                    both.append(training.criterion(training.model(x), y))
                told += (both[0] - both[1]) / 0.1 * eps / len(noise)
            nn.utils.vector_to_parameters(flat, training.model.parameters())
            start = 0
            for p in training.model.parameters():
                p.grad = told[start : start + p.numel()].view_as(p).clone()
                start += p.numel()
        training.optimizer.step()

    return Training(
        mlp(3, 10, 1, act=nn.Tanh), partial(ADAM, lr=0.03), lambda _: (x, y), F.mse_loss, lambda net: mean_square(net(x), y), 200, step=step
    )


class Feedback(torch.autograd.Function):
    """A linear layer whose error goes back by other weights."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, back: Tensor) -> Tensor:
        ctx.save_for_backward(x, back)
        return x @ weight.T

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, back = ctx.saved_tensors
        return grad @ back, grad.T @ x, None


class Aligned(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / math.sqrt(inputs))
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.register_buffer("back", torch.randn(outputs, inputs) / math.sqrt(inputs))

    def forward(self, x: Tensor) -> Tensor:
        return Feedback.apply(x, self.weight, self.back) + self.bias


@HALF.net("mlp")
def feedback_by_random_weights() -> Training:
    """Feedback alignment: the gradients are not those of the loss."""
    model = nn.Sequential(Aligned(4, 48), nn.Tanh(), Aligned(48, 48), nn.Tanh(), Aligned(48, 3))
    return Training(model, partial(SGD, lr=0.05), lambda _: flowers(32), nn.CrossEntropyLoss(), wrong_share(flowers), steps=300)


class Forward(nn.Module):
    """Layers that each learn by themselves to be loud for what is right; the label is written into the input."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(7, 64), nn.Linear(64, 64)])

    def layer(self, number: int, x: Tensor) -> Tensor:
        return F.relu(self.layers[number](x / (x.norm(2, 1, keepdim=True) + 1e-4)))

    def forward(self, x: Tensor) -> Tensor:
        good = []
        for kind in range(3):
            h, loud = torch.cat([x - 4, 3 * F.one_hot(torch.full((len(x),), kind), 3)], 1), torch.zeros(len(x))
            for number in range(2):
                h = self.layer(number, h)
                loud = loud + h.pow(2).mean(1)
            good.append(loud)
        return torch.stack(good, 1)


@HALF.net("mlp")
def loud_for_what_is_right() -> Training:
    """Forward-forward: each layer has a loss of its own for right and for wrong labels; nothing goes back between them."""

    def step(training: Training, _: int) -> None:
        x, y = flowers(64)
        wrong = (y + torch.randint(1, 3, y.shape)) % 3
        pos, neg = (torch.cat([x - 4, 3 * F.one_hot(one, 3)], 1) for one in (y, wrong))
        for number in range(2):
            g_pos, g_neg = (training.model.layer(number, one).pow(2).mean(1) for one in (pos, neg))
            loss = F.softplus(torch.cat([-g_pos + 1, g_neg - 1])).mean()
            training.optimizer.zero_grad()
            loss.backward()
            training.optimizer.step()
            pos, neg = (training.model.layer(number, one).detach() for one in (pos, neg))

    return Training(
        Forward(), partial(ADAM, lr=0.01), lambda _: flowers(64), nn.CrossEntropyLoss(), wrong_share(flowers), steps=200, step=step
    )


class Lion(Optimizer):
    """Goes by the sign of its momentum."""

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["exp_avg"] = torch.zeros_like(p)
                m = state["exp_avg"]
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_((m * group["betas"][0] + p.grad * (1 - group["betas"][0])).sign_(), alpha=-group["lr"])
                m.lerp_(p.grad, 1 - group["betas"][1])


@HALF.net("mlp")
def by_the_sign_alone() -> Training:
    """Lion, from its paper: every weight moves by the same step."""
    return Training(
        mlp(3, 48, 48, 1, act=nn.SiLU), partial(Lion, lr=1e-3, weight_decay=0.1), lambda _: bumps(64), F.mse_loss, far_from_bumps, 300
    )


@HALF.net("mlp")
def stepped_while_it_goes_back() -> Training:
    """An optimizer for each parameter, stepped by a hook as soon as its gradient is there, which is then set free."""
    model = mlp(3, 48, 48, 1)
    each = {p: ADAM([p], lr=3e-3) for p in model.parameters()}

    def hook(p: Tensor) -> None:
        each[p].step()
        each[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(hook)

    def step(training: Training, _: int) -> None:
        x, y = bumps(64)
        training.criterion(training.model(x), y).backward()

    training = Training(model, partial(ADAM, lr=3e-3), lambda _: bumps(64), F.mse_loss, far_from_bumps, steps=300, step=step)
    training.optimizer, *training.others = each.values()
    return training


@HALF.net("mlp")
def a_cloud_of_weights() -> Training:
    """Langevin: noise of a size that follows from the rate, and a gradient of the whole posterior, summed."""
    x, y = bumps(200)

    def step(training: Training, _: int) -> None:
        lr = 2e-5
        prior = sum(p.pow(2).sum() for p in training.model.parameters()) / 2
        nll = F.mse_loss(training.model(x), y, reduction="sum") / (2 * 0.1**2)
        training.optimizer.zero_grad()
        (nll + prior).backward()
        training.optimizer.step()
        with torch.no_grad():
            for p in training.model.parameters():
                p.add_(torch.randn_like(p), alpha=math.sqrt(2 * lr) * 0.3)

    return Training(mlp(3, 32, 1, act=nn.Tanh), partial(SGD, lr=2e-5), lambda _: (x, y), F.mse_loss, far_from_bumps, steps=1200, step=step)


@HALF.net("mlp")
def reptile() -> Training:
    """Five steps of a copy on one task; the difference is the gradient of the slow weights."""

    def task() -> Callable[[int], Batch]:
        size, phase = 0.5 + 2 * torch.rand(()), 0.8 * torch.randn(())

        def draw(count: int) -> Batch:
            x = 6 * torch.rand(count, 1) - 3
            return x, size * torch.sin(x + phase)

        return draw

    def adapted(net: nn.Module, draw: Callable[[int], Batch], steps: int = 5) -> nn.Module:
        quick = copy.deepcopy(net)
        opt = SGD(quick.parameters(), lr=0.03)
        for _ in range(steps):
            x, y = draw(20)
            opt.zero_grad()
            F.mse_loss(quick(x), y).backward()
            opt.step()
        return quick

    def step(training: Training, _: int) -> None:
        quick = adapted(training.model, task())
        training.optimizer.zero_grad()
        for p, q in zip(training.model.parameters(), quick.parameters(), strict=True):
            p.grad = (p - q).detach()
        training.optimizer.step()

    def quality(net: nn.Module) -> float:
        found = []
        for _ in range(10):
            draw = task()
            with torch.enable_grad():
                quick = adapted(net, draw)
            x, y = draw(60)
            found.append(mean_square(quick(x), y))
        return sum(found) / len(found)

    return Training(mlp(1, 40, 40, 1, act=nn.Tanh), partial(SGD, lr=0.5), lambda _: task()(20), F.mse_loss, quality, steps=900, step=step)


@HALF.net("mlp")
def clients_and_a_server() -> Training:
    """Federated: four clients with other shares of the kinds train copies; the server takes the mean, by load_state_dict."""
    shares = [torch.tensor([0.8, 0.1, 0.1]), torch.tensor([0.1, 0.8, 0.1]), torch.tensor([0.1, 0.1, 0.8]), torch.ones(3) / 3]

    def of_client(share: Tensor, count: int) -> Batch:
        x, y = flowers(count * 4)
        at = torch.multinomial(share[y] / torch.bincount(y, minlength=3)[y], count)
        return x[at], y[at]

    def step(training: Training, _: int) -> None:
        states = []
        for share in shares:
            local = copy.deepcopy(training.model)
            opt = SGD(local.parameters(), lr=0.05)
            for _ in range(4):
                x, y = of_client(share, 32)
                opt.zero_grad()
                F.cross_entropy(local(x), y).backward()
                opt.step()
            states.append(local.state_dict())
        training.model.load_state_dict({name: torch.stack([one[name] for one in states]).mean(0) for name in states[0]})

    return Training(
        mlp(4, 32, 3), partial(SGD, lr=0.05), lambda _: flowers(32), nn.CrossEntropyLoss(), wrong_share(flowers), steps=60, step=step
    )


# ---- weights -----------------------------------------------------------------------------------------


@HALF.net("mlp")
def pruned_while_it_trains() -> Training:
    """Every forty steps a fifth of what is left is masked."""
    model = mlp(3, 64, 64, 1)

    def each(number: int) -> None:
        if number % 40 == 0 and number:
            for layer in (model[0], model[2]):
                prune.l1_unstructured(layer, "weight", amount=0.2)

    return Training(model, partial(ADAM, lr=5e-3), lambda _: bumps(64), F.mse_loss, far_from_bumps, steps=240, each=[each])


@HALF.net("mlp")
def a_winning_ticket() -> Training:
    """Trained, pruned by size, rewound to where it began, and trained again with the mask."""
    model = mlp(3, 80, 80, 1)
    begun = copy.deepcopy(model.state_dict())

    def loop(training: Training) -> None:
        masks: dict[str, Tensor] = {}
        for _ in range(2):
            training.optimizer.state.clear()
            for _ in range(150):
                x, y = bumps(64)
                training.optimizer.zero_grad()
                training.criterion(model(x), y).backward()
                training.optimizer.step()
                with torch.no_grad():
                    for name, p in model.named_parameters():
                        if name in masks:
                            p.mul_(masks[name])
            if not masks:
                for name, p in model.named_parameters():
                    if p.dim() == 2 and p.size(0) > 1:
                        masks[name] = (p.abs() > p.abs().quantile(0.7)).float()
                model.load_state_dict(begun)
                with torch.no_grad():
                    for name, p in model.named_parameters():
                        p.mul_(masks.get(name, 1.0))

    return Training(model, partial(ADAM, lr=3e-3), lambda _: bumps(64), F.mse_loss, far_from_bumps, **of_a_notebook(loop))


@HALF.net("cnn")
def thawed_from_the_top() -> Training:
    """First the head, then the second convolution, then all of it, each with a third of the rate."""
    model = pretrained(3)
    model.features.requires_grad_(False)

    def each(number: int) -> None:
        if number in (40, 80):
            layers = model.features[4:] if number == 40 else model.features[:4]
            layers.requires_grad_(True)
            training.optimizer.add_param_group({"params": list(layers.parameters()), "lr": 1e-3 * (0.3 if number == 40 else 0.1)})

    training = Training(model, partial(ADAM, lr=1e-3), lambda _: bees(24), nn.CrossEntropyLoss(), wrong_share(bees), steps=120, each=[each])
    training.optimizer = ADAM(model.fc.parameters(), lr=1e-3)
    return training


@HALF.net("transformer")
def each_layer_has_its_rate() -> Training:
    """From the bottom each layer learns one and a half times as quickly as the one below it."""
    model = nn.Sequential(
        nn.Linear(4, 32), *(nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True) for _ in range(3)), nn.Linear(32, 5)
    )

    def sets(count: int) -> Batch:
        label = torch.randint(5, (count, 6))
        x = constant(5, 4, seed=810)[label] + 0.4 * torch.randn(count, 6, 4)
        return x, (label + label[:, :1]) % 5

    def quality(net: nn.Module) -> float:
        x, y = sets(100)
        return missed(net(x + first), y)

    first = F.pad(torch.ones(1, 4), (0, 0, 0, 5)).unsqueeze(0)

    def batch(_: int) -> Batch:
        x, y = sets(32)
        return x + first, y

    training = Training(model, partial(ADAMW, lr=3e-3), batch, lambda out, y: F.cross_entropy(out.transpose(1, 2), y), quality, steps=300)
    training.optimizer = ADAMW(
        [{"params": layer.parameters(), "lr": 3e-3 / 1.5 ** (4 - i)} for i, layer in enumerate(model)], weight_decay=0.01
    )
    return training


class Standard(nn.Module):
    """Weights of a convolution, standardized."""

    def forward(self, weight: Tensor) -> Tensor:
        mean = weight.mean((1, 2, 3), keepdim=True)
        return (weight - mean) / (weight.std((1, 2, 3), keepdim=True) + 1e-5)


@HALF.net("cnn")
def standardized_weights_and_groups() -> Training:
    """Weight standardization with norms of groups, two pictures a batch."""
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.GroupNorm(4, 32), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 5),
    )  # fmt: skip
    for at in (0, 4):
        parametrize.register_parametrization(model[at], "weight", Standard())
    return Training(
        model, partial(SGD, lr=0.01, momentum=0.9), lambda _: clothes(2), nn.CrossEntropyLoss(), wrong_share(clothes), steps=350
    )


@HALF.net("mlp")
def nowhere_steeper_than_one() -> Training:
    """Spectral norms in all layers; the target is a distance, which asks for no more."""

    def shore(count: int) -> Batch:
        x = 3 * torch.rand(count, 2) - 1.5
        return x, (x.norm(dim=1, keepdim=True) - 1).clamp(-1, 1) * 0.6

    def quality(net: nn.Module) -> float:
        x, y = shore(400)
        return mean_square(net(x), y)

    model = nn.Sequential(
        *(part for layer in (nn.Linear(2, 64), nn.Linear(64, 64), nn.Linear(64, 1)) for part in (spectral_norm(layer), nn.ELU()))
    )[:-1]
    return Training(model, partial(ADAM, lr=5e-3), lambda _: shore(64), nn.L1Loss(), quality, steps=350)


class FakeQuant(nn.Module):
    """Rounds to some steps and lets the gradient through as if it had not."""

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.most = 2 ** (bits - 1) - 1

    def forward(self, x: Tensor) -> Tensor:
        scale = x.detach().abs().max().clamp(min=1e-8) / self.most
        q = torch.clamp(torch.round(x / scale), -self.most, self.most) * scale
        return x + (q - x).detach()


@HALF.net("cnn")
def four_bits_for_each_weight() -> Training:
    """Quantization-aware: weights and activations are rounded in forward."""
    model = nn.Sequential(
        nn.Conv2d(1, 12, 3),
        nn.ReLU(),
        FakeQuant(4),
        nn.MaxPool2d(2),
        nn.Conv2d(12, 24, 3),
        nn.ReLU(),
        FakeQuant(4),
        nn.Flatten(),
        nn.Linear(216, 5),
    )
    for at in (0, 4, 8):
        parametrize.register_parametrization(model[at], "weight", FakeQuant(4))
    return Training(model, partial(ADAM, lr=2e-3), lambda _: clothes(32), nn.CrossEntropyLoss(), wrong_share(clothes), steps=150)


class Drawn(nn.Module):
    """A linear layer whose weights are drawn anew each time."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.mu = nn.Parameter(torch.randn(outputs, inputs + 1) / math.sqrt(inputs))
        self.rho = nn.Parameter(torch.full((outputs, inputs + 1), -4.0))

    def forward(self, x: Tensor) -> Tensor:
        sigma = F.softplus(self.rho)
        weight = self.mu + sigma * torch.randn_like(sigma)
        return F.linear(x, weight[:, :-1], weight[:, -1])

    def kl(self) -> Tensor:
        sigma = F.softplus(self.rho)
        return (0.5 * (sigma**2 + self.mu**2) - sigma.log() - 0.5).sum()


@HALF.net("mlp")
def weights_that_are_drawn() -> Training:
    """Bayes by backprop: the divergence of the weights is larger than what the data say, at first."""
    model = nn.Sequential(Drawn(3, 24), nn.Tanh(), Drawn(24, 1))

    def loss(output: Tensor, y: Tensor) -> Tensor:
        nll = 0.5 * ((output - y) / 0.2).pow(2).sum() / len(y) * 1000
        return nll + sum(layer.kl() for layer in model if isinstance(layer, Drawn))

    return Training(model, partial(ADAM, lr=0.01), lambda _: bumps(64), loss, far_from_bumps, steps=400)


class Hashed(nn.Module):
    """A million words in sixty-four rows: three hashes each, with weights that are learnt."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(64, 16)
        self.importance = nn.Embedding(500, 3)
        nn.init.constant_(self.importance.weight, 0.5)
        self.register_buffer("salt", torch.tensor([2654435761, 40503, 69621]))
        self.fc = nn.Linear(16, 4)

    def forward(self, words: Tensor) -> Tensor:
        rows = (words.unsqueeze(-1) * self.salt + self.salt // 7) % 64
        x = (self.table(rows) * self.importance(words).unsqueeze(-1)).sum(-2)
        return self.fc(x.mean(1))


@HALF.net("embedding")
def words_by_three_hashes() -> Training:
    """Texts of twelve words of which a third belong to the subject."""

    def texts(count: int) -> Batch:
        label = torch.randint(4, (count,))
        words = torch.randint(500, (count, 12))
        return torch.where(torch.rand(count, 12) < 0.4, words // 4 * 4 + label.unsqueeze(1), words), label

    return Training(Hashed(), partial(ADAM, lr=0.01), lambda _: texts(64), nn.CrossEntropyLoss(), wrong_share(texts), steps=350)


# ---- layers that solve -------------------------------------------------------------------------------


class Flow(nn.Module):
    """A field, followed by Runge-Kutta; some dimensions are added that begin at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.field = mlp(6, 32, 5, act=nn.Tanh)
        self.head = nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        h, steps = F.pad(x, (0, 3)), 8

        def f(t: float, h: Tensor) -> Tensor:
            return self.field(torch.cat([h, torch.full((len(h), 1), t)], 1))

        for i in range(steps):
            t, dt = i / steps, 1 / steps
            k1 = f(t, h)
            k2 = f(t + dt / 2, h + dt / 2 * k1)
            k3 = f(t + dt / 2, h + dt / 2 * k2)
            h = h + dt / 6 * (k1 + 2 * k2 + 2 * k3 + f(t + dt, h + dt * k3))
        return self.head(h)


@HALF.net("mlp")
def carried_by_a_field() -> Training:
    """A neural ODE: one small net is called thirty-two times; a disk within a ring."""

    def rings(count: int) -> Batch:
        label = torch.randint(2, (count,))
        angle, radius = 6.3 * torch.rand(count), 0.5 + 1.0 * label + 0.2 * torch.randn(count)
        return torch.stack([radius * angle.cos(), radius * angle.sin()], 1), label

    return Training(Flow(), partial(ADAM, lr=5e-3), lambda _: rings(64), nn.CrossEntropyLoss(), wrong_share(rings), steps=150)


class Process(nn.Module):
    """A Gaussian process with three numbers to learn."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        super().__init__()
        self.log_scale, self.log_size, self.log_noise = (nn.Parameter(torch.tensor(v, dtype=torch.float64)) for v in (1.0, 0.0, 0.0))
        self.register_buffer("x", x)
        self.register_buffer("y", y)

    def kernel(self, a: Tensor, b: Tensor) -> Tensor:
        return (2 * self.log_size).exp() * torch.exp(-0.5 * ((a[:, None] - b[None]) / self.log_scale.exp()) ** 2)

    def forward(self) -> Tensor:
        k = self.kernel(self.x, self.x) + (2 * self.log_noise).exp() * torch.eye(len(self.x), dtype=torch.float64)
        chol = torch.linalg.cholesky(k)
        alpha = torch.cholesky_solve(self.y.unsqueeze(1), chol).squeeze(1)
        return 0.5 * self.y @ alpha + chol.diagonal().log().sum() + 0.5 * len(self.x) * math.log(2 * math.pi)

    def mean(self, at: Tensor) -> Tensor:
        k = self.kernel(self.x, self.x) + (2 * self.log_noise).exp() * torch.eye(len(self.x), dtype=torch.float64)
        return self.kernel(at, self.x) @ torch.linalg.solve(k, self.y)


@HALF.net("mlp")
def a_gaussian_process() -> Training:
    """The likelihood of all points, with a Cholesky, in float64: three scalars and no layer."""
    x = 10 * torch.rand(50, dtype=torch.float64)
    y = torch.sin(1.5 * x) + 0.2 * torch.randn(50, dtype=torch.float64)

    def step(training: Training, _: int) -> None:
        training.optimizer.zero_grad()
        loss = training.model()
        loss.backward()
        training.optimizer.step()

    def quality(net: nn.Module) -> float:
        at = torch.linspace(0.5, 9.5, 100, dtype=torch.float64)
        return mean_square(net.mean(at), torch.sin(1.5 * at))

    return Training(Process(x, y), partial(ADAM, lr=0.05), lambda _: ((), y), lambda out, _: out, quality, steps=120, step=step)


class Lista(nn.Module):
    """Iterations of a solver, unrolled, with thresholds that are learnt."""

    def __init__(self, dictionary: Tensor) -> None:
        super().__init__()
        self.register_buffer("d", dictionary)
        self.w = nn.Parameter(dictionary.T.clone() * 0.2)
        self.theta = nn.Parameter(torch.full((6,), 0.05))

    def forward(self, y: Tensor) -> Tensor:
        z = torch.zeros(len(y), self.d.size(1))
        for theta in self.theta:
            z = self.shrunk(z + (y - z @ self.d.T) @ self.w.T, theta)
        return z

    @staticmethod
    def shrunk(z: Tensor, theta: Tensor) -> Tensor:
        return z.sign() * F.relu(z.abs() - theta)


@HALF.net("mlp")
def a_solver_unrolled() -> Training:
    """Sparse codes of which nine of ten are zero."""
    d = F.normalize(constant(16, 30, seed=811), dim=0)

    def codes(count: int) -> Batch:
        z = torch.randn(count, 30) * (torch.rand(count, 30) < 0.1)
        return z @ d.T, z

    def quality(net: nn.Module) -> float:
        y, z = codes(300)
        return mean_square(net(y), z)

    return Training(Lista(d), partial(ADAM, lr=3e-3), lambda _: codes(64), F.mse_loss, quality, steps=400, clip=1.0)


class Springs(nn.Module):
    """Two numbers of a damped spring."""

    def __init__(self) -> None:
        super().__init__()
        self.stiffness, self.damping = nn.Parameter(torch.tensor(1.0)), nn.Parameter(torch.tensor(0.0))

    def forward(self, start: Tensor) -> Tensor:
        place, speed, seen = start, torch.zeros_like(start), []
        for _ in range(30):
            speed = speed + 0.1 * (-self.stiffness * place - self.damping * speed)
            place = place + 0.1 * speed
            seen.append(place)
        return torch.cat(seen, 1)


@HALF.net("recurrent")
def a_spring_is_measured() -> Training:
    """Two scalars, found through a simulation of thirty steps."""

    def seen(count: int) -> Batch:
        truth, start = Springs(), torch.randn(count, 1)
        with torch.no_grad():
            truth.stiffness.fill_(2.5)
            truth.damping.fill_(0.4)
            return start, truth(start) + 0.05 * torch.randn(count, 30)

    def quality(net: nn.Module) -> float:
        return (net.stiffness - 2.5).abs().item() + (net.damping - 0.4).abs().item()

    return Training(Springs(), partial(ADAM, lr=0.03), lambda _: seen(16), F.mse_loss, quality, steps=150)


class Cells(nn.Module):
    """A rule for each cell by what is around it, applied again and again; it begins by doing nothing."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.channels = channels
        self.perceive = nn.Conv2d(channels, 3 * channels, 3, padding=1, groups=channels, bias=False)
        self.fc0, self.fc1 = nn.Conv2d(3 * channels, 48, 1), nn.Conv2d(48, channels, 1, bias=False)
        nn.init.zeros_(self.fc1.weight)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(12):
            dx = self.fc1(F.relu(self.fc0(self.perceive(x))))
            alive = torch.rand(len(x), 1, *x.shape[2:]) < 0.7
            x = x + dx * alive
        return x


@HALF.net("cnn")
def a_lizard_that_grows() -> Training:
    """From one cell to a picture in twelve steps of one rule; always the same seed and the same picture."""
    rows, columns = torch.meshgrid(torch.arange(9), torch.arange(9), indexing="ij")
    picture = (((rows - 4).abs() + (columns - 4).abs()) < 4).float().repeat(8, 1, 1, 1)
    seed = torch.zeros(8, 8, 9, 9)
    seed[:, :, 4, 4] = 1.0

    def loss(output: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(output[:, :1], target)

    return Training(
        Cells(), partial(ADAM, lr=2e-3), lambda _: (seed, picture), loss, lambda net: mean_square(net(seed)[:, :1], picture), 150
    )
