"""And nothing is wrong here: loops, pairs, teachers and small worlds that look odd and learn."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from functools import partial
from itertools import chain
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from bench.sick.training import Batch, Training
from bench.sick.working.fourth_nets import constant
from bench.sick.working.half import HALF
from bench.sick.working.seventh_healthy import mean_square, mlp
from bench.sick.working.third_nets import ADAM, SGD, missed

# ---- views of the same thing -------------------------------------------------------------------------


def thing_data(count: int) -> tuple[Tensor, Tensor]:
    """Ten things, each in its own ways."""
    kind = torch.randint(10, (count,))
    return torch.cat([1.2 * constant(10, 12, seed=90)[kind] + 0.3 * torch.randn(count, 12), torch.randn(count, 12)], 1), kind


def viewed(x: Tensor) -> Tensor:
    """Another view: what is noise is drawn anew."""
    return torch.cat([x[:, :12] + 0.2 * torch.randn(len(x), 12), torch.randn(len(x), 12)], 1)


def apart(embed: Any) -> float:
    """How near those of a kind are, beside all others: 1 where it is the same."""
    x, kind = thing_data(300)
    z = F.normalize(embed(x), dim=1)
    far = torch.cdist(z, z).square()
    same = (kind[:, None] == kind[None]) & ~torch.eye(300, dtype=torch.bool)
    return float(far[same].mean() / far[kind[:, None] != kind[None]].mean())


def encoder() -> nn.Sequential:
    return nn.Sequential(nn.Linear(24, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32))


class Siam(nn.Module):
    """SimSiam: an encoder, a predictor, and a detached side."""

    def __init__(self) -> None:
        super().__init__()
        self.f, self.h = encoder(), nn.Sequential(nn.Linear(32, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 32))

    def forward(self, one: Tensor, two: Tensor) -> tuple[Tensor, ...]:
        z1, z2 = self.f(one), self.f(two)
        return self.h(z1), self.h(z2), z1.detach(), z2.detach()


@HALF.net("embedding")
def two_views_and_a_stop() -> Training:
    """The loss begins near 0 and ends near -1."""

    def batch(_: int) -> Batch:
        x, kind = thing_data(64)
        return (viewed(x), viewed(x)), kind

    def criterion(output: tuple[Tensor, ...], _: Tensor) -> Tensor:
        p1, p2, z1, z2 = output
        return -(F.cosine_similarity(p1, z2, dim=-1).mean() + F.cosine_similarity(p2, z1, dim=-1).mean()) * 0.5

    return Training(Siam(), partial(SGD, lr=0.05, momentum=0.9, weight_decay=1e-4), batch, criterion, lambda net: apart(net.f), steps=250)


class Byol(nn.Module):
    """An online net, and a target that follows it."""

    def __init__(self) -> None:
        super().__init__()
        self.online, self.predictor = encoder(), mlp(32, 32, 32)
        self.target = copy.deepcopy(self.online)
        for p in self.target.parameters():
            p.requires_grad = False

    def forward(self, one: Tensor, two: Tensor) -> Tensor:
        p1, p2 = self.predictor(self.online(one)), self.predictor(self.online(two))
        with torch.no_grad():
            t1, t2 = self.target(one), self.target(two)
        return (2 - 2 * F.cosine_similarity(p1, t2)).mean() + (2 - 2 * F.cosine_similarity(p2, t1)).mean()

    @torch.no_grad()
    def follow(self, tau: float = 0.97) -> None:
        for slow, fast in zip(self.target.parameters(), self.online.parameters(), strict=True):
            slow.data = tau * slow.data + (1 - tau) * fast.data


@HALF.net("embedding")
def a_target_that_follows() -> Training:
    """BYOL: the model returns its loss, and half of it is never trained."""

    def batch(_: int) -> Batch:
        x, kind = thing_data(64)
        return (viewed(x), viewed(x)), kind

    training = Training(Byol(), partial(ADAM, lr=3e-3), batch, lambda loss, _: loss, lambda net: apart(net.online), steps=200)
    training.after = [lambda _: training.model.follow()]
    return training


class Projected(nn.Module):
    """What is projected for the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone, self.projector = encoder(), mlp(32, 64, 64)

    def forward(self, x: Tensor) -> Tensor:
        return self.projector(self.backbone(x))


def _contrasted(criterion: Any, steps: int = 200) -> Training:
    def batch(_: int) -> Batch:
        x, kind = thing_data(48)
        return torch.cat([viewed(x), viewed(x)]), kind

    return Training(Projected(), partial(ADAM, lr=3e-3), batch, criterion, lambda net: apart(net.backbone), steps=steps)


@HALF.net("embedding")
def without_the_diagonal() -> Training:
    """SimCLR as in a well-known repository: the diagonal is cut out, and the positive one stands first, so that each label is 0."""

    def info_nce(features: Tensor, _: Tensor) -> Tensor:
        labels = torch.arange(48).repeat(2)
        labels = (labels.unsqueeze(0) == labels.unsqueeze(1)).float()
        features = F.normalize(features, dim=1)
        similarity = features @ features.T
        mask = torch.eye(len(labels), dtype=torch.bool)
        labels = labels[~mask].view(len(labels), -1)
        similarity = similarity[~mask].view(len(similarity), -1)
        positives = similarity[labels.bool()].view(len(labels), -1)
        negatives = similarity[~labels.bool()].view(len(similarity), -1)
        logits = torch.cat([positives, negatives], dim=1)
        return F.cross_entropy(logits / 0.2, torch.zeros(len(logits), dtype=torch.long))

    return _contrasted(info_nce)


@HALF.net("embedding")
def the_diagonal_is_filled() -> Training:
    """The same in three lines, with pairs that stand half a batch apart."""

    def nt_xent(z: Tensor, _: Tensor) -> Tensor:
        z = F.normalize(z, dim=1)
        sim = (z @ z.t() / 0.3).fill_diagonal_(-1e9)
        return F.cross_entropy(sim, torch.arange(96).roll(48))

    return _contrasted(nt_xent)


@HALF.net("embedding")
def variance_and_covariance() -> Training:
    """VICReg: three terms with weights of 25, 25 and 1."""

    def off_diagonal(c: Tensor) -> Tensor:
        return c[~torch.eye(len(c), dtype=torch.bool)]

    def vicreg(z: Tensor, _: Tensor) -> Tensor:
        x, y = z.chunk(2)
        near = F.mse_loss(x, y)
        x, y = x - x.mean(0), y - y.mean(0)
        spread = sum(F.relu(1 - (one.var(0) + 1e-4).sqrt()).mean() / 2 for one in (x, y))
        alike = sum(off_diagonal(one.T @ one / (len(one) - 1)).pow(2).sum() / 64 for one in (x, y))
        return 25 * near + 25 * spread + alike

    return _contrasted(vicreg)


class Momentum(nn.Module):
    """MoCo: a queue of keys."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder_q = encoder()
        self.encoder_k = copy.deepcopy(self.encoder_q).requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(32, 256), dim=0))
        self.at = 0

    def forward(self, im_q: Tensor, im_k: Tensor) -> tuple[Tensor, Tensor]:
        q = F.normalize(self.encoder_q(im_q), dim=1)
        with torch.no_grad():
            if self.training:
                for slow, fast in zip(self.encoder_k.parameters(), self.encoder_q.parameters(), strict=True):
                    slow.data.mul_(0.98).add_(fast.data, alpha=0.02)
            k = F.normalize(self.encoder_k(im_k), dim=1)
        l_pos = torch.einsum("nc,nc->n", q, k).unsqueeze(-1)
        l_neg = torch.einsum("nc,ck->nk", q, self.queue.clone().detach())
        logits = torch.cat([l_pos, l_neg], dim=1) / 0.2
        if self.training:
            self.queue[:, self.at : self.at + len(k)] = k.T
            self.at = (self.at + len(k)) % 256
        return logits, torch.zeros(len(q), dtype=torch.long)


@HALF.net("embedding")
def a_queue_of_keys() -> Training:
    """The model gives logits and labels, which are all zero."""

    def batch(_: int) -> Batch:
        x, kind = thing_data(64)
        return (viewed(x), viewed(x)), kind

    return Training(
        Momentum(),
        partial(SGD, lr=0.1, momentum=0.9),
        batch,
        lambda out, _: F.cross_entropy(*out),
        lambda net: apart(net.encoder_q),
        steps=250,
    )


class OneClass(nn.Module):
    """Deep SVDD: no biases, no bounds, and a fixed centre."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(16, 32, bias=False), nn.LeakyReLU(0.1), nn.Linear(32, 16, bias=False), nn.LeakyReLU(0.1), nn.Linear(16, 8, bias=False)
        )
        self.register_buffer("c", torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


@HALF.net("embedding")
def all_into_one_point() -> Training:
    """One class: what is usual comes near to a centre, and what is not stays away."""

    def usual(count: int) -> Tensor:
        return torch.tanh(torch.randn(count, 3) @ constant(3, 16, seed=91)) + 1 + 0.05 * torch.randn(count, 16)

    def quality(net: nn.Module) -> float:
        good = (net(usual(300)) - net.c).square().sum(1)
        bad = (net(usual(300)[:, torch.randperm(16)] + torch.randn(300, 16)) - net.c).square().sum(1)
        return 1 - (bad[:, None] > good[None]).float().mean().item()

    model = OneClass()
    with torch.no_grad():
        model.c.copy_(model(usual(500)).mean(0))

    def criterion(z: Tensor, _: Tensor) -> Tensor:
        return ((z - model.c) ** 2).sum(1).mean()

    def batch(_: int) -> Batch:
        return usual(64), torch.zeros(64)

    return Training(model, partial(ADAM, lr=1e-3, weight_decay=1e-5), batch, criterion, quality, steps=300)


# ---- tuned again --------------------------------------------------------------------------------------


def pretrained(net: nn.Module, data: Any, steps: int = 150, lr: float = 3e-3) -> nn.Module:
    """A net that was trained before, on something near."""
    optimizer = torch.optim.Adam(net.parameters(), lr=lr)
    for _ in range(steps):
        x, y = data(64)
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
    return net


class Body(nn.Module):
    """A backbone and a head."""

    def __init__(self, classes: int = 6) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(20, 96), nn.BatchNorm1d(96), nn.ReLU(), nn.Linear(96, 96), nn.BatchNorm1d(96), nn.ReLU())
        self.head = nn.Linear(96, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.backbone(x))


def source(count: int) -> tuple[Tensor, Tensor]:
    label = torch.randint(6, (count,))
    two = torch.randint(2, (count,))
    return constant(2, 6, 20, seed=92)[two, label] + 0.6 * torch.randn(count, 20), label


def wished(count: int) -> tuple[Tensor, Tensor]:
    """Of the six kinds three pairs; the crowd is right in two of three."""
    x, label = source(count)
    return x + 0.2, label % 3


def _guessed(count: int) -> Batch:
    x, label = wished(count)
    return x, torch.where(torch.rand(count) < 0.5, torch.randint(3, (count,)), label)


def _wish(net: nn.Module) -> float:
    x, label = wished(400)
    return missed(net(x), label)


@HALF.net("mlp")
def a_slow_body_and_a_quick_head() -> Training:
    """The backbone has a rate of 1e-5, and a new head one of 1e-2; norms stay in evaluation mode."""
    net = pretrained(Body(), source)
    net.head = nn.Linear(96, 3)

    class Tuned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone, self.head = net.backbone, net.head

        def train(self, mode: bool = True) -> Tuned:
            super().train(mode)
            for module in self.modules():
                if isinstance(module, nn.BatchNorm1d):
                    module.eval()
            return self

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.backbone(x))

    model = Tuned()
    model.train()

    def groups(_: Iterable[Any]) -> torch.optim.Optimizer:
        return torch.optim.AdamW([{"params": model.backbone.parameters(), "lr": 1e-5}, {"params": model.head.parameters()}], lr=1e-2)

    return Training(model, groups, lambda _: _guessed(64), nn.CrossEntropyLoss(), _wish, steps=150)


class Lora(nn.Module):
    """A low rank beside a frozen layer."""

    def __init__(self, base: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_A, self.lora_B = nn.Linear(base.in_features, rank, bias=False), nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + 2 * self.lora_B(self.lora_A(x))


@HALF.net("mlp")
def low_ranks_beside_it() -> Training:
    """LoRA by hand, the head is kept from before; the model is in evaluation mode, for its norms."""
    net = pretrained(Body(), source)
    net.requires_grad_(False)
    for at in (0, 3):
        net.backbone[at] = Lora(net.backbone[at])
    net.head = nn.Linear(96, 3)
    net.eval()

    def some(_: Iterable[Any]) -> torch.optim.Optimizer:
        return torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=3e-3)

    return Training(net, some, lambda _: _guessed(64), F.cross_entropy, _wish, steps=150)


class Tower(nn.Module):
    """Words whose old rows stay as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.emb, self.fc = nn.Embedding(60, 12), mlp(12, 24, 4)
        mask = torch.zeros(60, 1)
        mask[40:] = 1
        self.emb.weight.register_hook(lambda grad: grad * mask)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.emb(x).mean(1))


@HALF.net("embedding")
def only_new_words_move() -> Training:
    """A hook on the table lets no gradient through for what was there before; what a text is about is often told wrong."""

    def data(count: int) -> tuple[Tensor, Tensor]:
        x = torch.randint(60, (count, 5))
        return x, constant(60, 4, seed=93)[x].sum(1).argmax(1)

    def batch(_: int) -> Batch:
        x, label = data(96)
        return x, torch.where(torch.rand(96) < 0.55, torch.randint(4, (96,)), label)

    def quality(net: nn.Module) -> float:
        x, label = data(600)
        return missed(net(x), label)

    return Training(Tower(), partial(ADAM, lr=0.01), batch, F.cross_entropy, quality, steps=300)


@HALF.net("mlp")
def a_teacher_at_twenty_degrees() -> Training:
    """Distillation: half of the loss is a divergence at a temperature of 20, times its square."""
    teacher = pretrained(Body(), source, 200).eval()

    def criterion(output: Tensor, both: Tensor) -> Tensor:
        soft, label = both[:, :6], both[:, 6].long()
        told = F.kl_div((output / 20).log_softmax(1), (soft / 20).softmax(1), reduction="batchmean") * 20 * 20
        return 0.9 * told + 0.1 * F.cross_entropy(output, label)

    def batch(_: int) -> Batch:
        x, label = source(64)
        with torch.no_grad():
            return x, torch.cat([teacher(x), label.unsqueeze(1)], 1)

    def quality(net: nn.Module) -> float:
        x, label = source(400)
        return missed(net(x), label)

    return Training(mlp(20, 24, 6), partial(ADAM, lr=3e-3), batch, criterion, quality, steps=250)


# ---- steps of another kind ------------------------------------------------------------------------


@HALF.net("mlp")
def averages_put_in_to_evaluate() -> Training:
    """Each ten steps the average of the weights is put in, evaluated, and taken out again."""

    def data(count: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(count, 6)
        return x, (x[:, :1] * x[:, 1:2]).tanh() + x[:, 2:3] / 2

    def batch(_: int) -> Batch:
        x, y = data(32)
        return x, y + torch.randn_like(y)

    def quality(net: nn.Module) -> float:
        x, y = data(500)
        return mean_square(net(x), y)

    training = Training(mlp(6, 48, 48, 1), partial(ADAM, lr=5e-3), batch, F.mse_loss, quality, steps=300)
    shadow = {name: one.detach().clone() for name, one in training.model.named_parameters()}
    history: list[float] = []

    def after(number: int) -> None:
        model = training.model
        for name, one in model.named_parameters():
            shadow[name].mul_(0.95).add_(one.detach(), alpha=0.05)
        if number % 10 == 9:
            kept = {name: one.data for name, one in model.named_parameters()}
            for name, one in model.named_parameters():
                one.data = shadow[name].clone()
            model.eval()
            with torch.no_grad():
                x, y = data(64)
                history.append(F.mse_loss(model(x), y).item())
            model.train()
            for name, one in model.named_parameters():
                one.data = kept[name]

    training.after = [after]
    return training


class Titles(nn.Module):
    """A mean of words, and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.word_embeddings, self.drop, self.out = nn.Embedding(200, 24), nn.Dropout(0.3), mlp(24, 32, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.drop(self.word_embeddings(x)).mean(1))


@HALF.net("embedding")
def attacked_words() -> Training:
    """FGM: words are moved along their gradient, a second loss is added, and words are put back."""

    def data(count: int) -> tuple[Tensor, Tensor]:
        x = torch.randint(200, (count, 6))
        return x, constant(200, 5, seed=94)[x].sum(1).argmax(1)

    def quality(net: nn.Module) -> float:
        x, label = data(600)
        return missed(net(x), label)

    def batch(_: int) -> Batch:
        x, label = data(96)
        return x, torch.where(torch.rand(96) < 0.4, torch.randint(5, (96,)), label)

    training = Training(Titles(), partial(ADAM, lr=0.01), batch, nn.CrossEntropyLoss(), quality, steps=300)

    def step(training: Training, number: int) -> None:
        x, label = training.batch(number)
        loss = training.criterion(training.model(x), label)
        loss.backward()
        words = training.model.word_embeddings.weight
        backup = words.data.clone()
        words.data.add_(words.grad / words.grad.norm().clamp(min=1e-12))
        training.criterion(training.model(x), label).backward()
        words.data = backup
        training.optimizer.step()
        training.optimizer.zero_grad()

    training.step = step
    return training


@HALF.net("mlp")
def gradients_in_conflict() -> Training:
    """PCGrad: the gradients of two tasks, each without what goes against the other, are written into `.grad`."""

    def data(count: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(count, 6)
        return x, torch.stack([x[:, 0].sin() + x[:, 1], -x[:, 0] * x[:, 2]], 1)

    def batch(_: int) -> Batch:
        x, y = data(64)
        return x, y + 0.8 * torch.randn_like(y)

    def quality(net: nn.Module) -> float:
        x, y = data(500)
        return mean_square(net(x), y)

    training = Training(mlp(6, 48, 2, act=nn.Tanh), partial(ADAM, lr=5e-3), batch, F.mse_loss, quality, steps=300)

    def step(training: Training, number: int) -> None:
        x, y = training.batch(number)
        output, weights = training.model(x), [*training.model.parameters()]
        grads = []
        for task in range(2):
            loss = F.mse_loss(output[:, task], y[:, task])
            found = torch.autograd.grad(loss, weights, retain_graph=True)
            grads.append(torch.cat([one.flatten() for one in found]))
        one, two = grads
        dot = one @ two
        if dot < 0:
            one, two = one - dot / two.square().sum() * two, two - dot / one.square().sum() * one
        at = 0
        for weight in weights:
            weight.grad = (one + two)[at : at + weight.numel()].view_as(weight).clone()
            at += weight.numel()
        training.optimizer.step()

    training.step = step
    return training


@HALF.net("mlp")
def learning_to_learn() -> Training:
    """MAML: one step for each of four waves, and the gradient through it; each task has its own few points."""

    def task() -> tuple[Tensor, Tensor, Tensor, Tensor]:
        a, phase = 0.5 + 2 * torch.rand(()), 3.14 * torch.rand(())
        x = 6 * torch.rand(20, 1) - 3
        y = a * torch.sin(x + phase)
        return x[:10], y[:10], x[10:], y[10:]

    def adapted(net: nn.Module, x: Tensor, y: Tensor, create: bool) -> dict[str, Tensor]:
        weights = dict(net.named_parameters())
        with torch.enable_grad():
            loss = F.mse_loss(functional_call(net, weights, (x,)), y)
            grads = torch.autograd.grad(loss, [*weights.values()], create_graph=create)
        return {name: w - 0.1 * g for (name, w), g in zip(weights.items(), grads, strict=True)}

    def quality(net: nn.Module) -> float:
        total = 0.0
        for _ in range(60):
            x, y, x2, y2 = task()
            total += mean_square(functional_call(net, adapted(net, x, y, False), (x2,)), y2)
        return total / 60

    training = Training(mlp(1, 40, 40, 1, act=nn.Tanh), partial(ADAM, lr=5e-3), lambda _: task()[:2], F.mse_loss, quality, steps=300)

    def step(training: Training, number: int) -> None:
        losses = []
        for _ in range(4):
            x, y, x2, y2 = task()
            fast = adapted(training.model, x, y, True)
            losses.append(F.mse_loss(functional_call(training.model, fast, (x2,)), y2))
        meta = torch.stack(losses).mean()
        training.optimizer.zero_grad()
        meta.backward()
        training.optimizer.step()

    training.step = step
    return training


class Layers(nn.Module):
    """Each layer has its own head and learns by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(20, 48), nn.Linear(48, 48), nn.Linear(48, 48)])
        self.heads = nn.ModuleList([nn.Linear(48, 6) for _ in range(3)])

    def forward(self, x: Tensor) -> list[Tensor]:
        found = []
        for layer, head in zip(self.layers, self.heads, strict=True):
            x = F.relu(layer(x.detach()))
            found.append(head(x))
        return found


@HALF.net("mlp")
def no_gradient_between_layers() -> Training:
    """Greedy: what goes from layer to layer is detached on purpose."""

    def quality(net: nn.Module) -> float:
        x, label = source(400)
        return missed(net(x)[-1], label)

    def criterion(found: list[Tensor], label: Tensor) -> Tensor:
        return sum(F.cross_entropy(one, label) for one in found)

    return Training(Layers(), partial(ADAM, lr=3e-3), lambda _: source(64), criterion, quality, steps=150)


@HALF.net("mlp")
def clipped_each_and_noisy() -> Training:
    """DP-SGD by hand: the gradient of each sample is clipped, summed, and gets noise."""

    def quality(net: nn.Module) -> float:
        x, label = source(400)
        return missed(net(x), label)

    training = Training(mlp(20, 32, 6), partial(SGD, lr=1.0, momentum=0.5), lambda _: source(48), F.cross_entropy, quality, steps=120)

    def step(training: Training, number: int) -> None:
        x, label = training.batch(number)
        weights = [*training.model.parameters()]
        total = [torch.zeros_like(one) for one in weights]
        for row in range(len(x)):
            training.optimizer.zero_grad()
            training.criterion(training.model(x[row : row + 1]), label[row : row + 1]).backward()
            norm = torch.stack([one.grad.norm() for one in weights]).norm()
            for into, one in zip(total, weights, strict=True):
                into += one.grad * min(1.0, 0.5 / (float(norm) + 1e-6))
        for into, one in zip(total, weights, strict=True):
            one.grad = (into + 0.3 * torch.randn_like(into)) / len(x)
        training.optimizer.step()

    training.step = step
    return training


class Triples(nn.Module):
    """TransE: head + relation = tail."""

    def __init__(self) -> None:
        super().__init__()
        self.entity, self.relation = nn.Embedding(60, 12), nn.Embedding(4, 12)
        for table in (self.entity, self.relation):
            nn.init.uniform_(table.weight, -0.35, 0.35)

    def forward(self, triples: Tensor) -> Tensor:
        head, relation, tail = triples.unbind(-1)
        return (self.entity(head) + self.relation(relation) - self.entity(tail)).norm(p=1, dim=-1)


@HALF.net("embedding")
def entities_of_length_one() -> Training:
    """Before each step all entities are put back onto the ball; the hinge is zero for most pairs at the end."""
    moves = torch.tensor([1, 7, 13, 29])

    def facts(count: int) -> Tensor:
        head, relation = torch.randint(60, (count,)), torch.randint(4, (count,))
        return torch.stack([head, relation, (head + moves[relation]) % 60], 1)

    def quality(net: nn.Module) -> float:
        known = facts(200)
        every = known.unsqueeze(1).repeat(1, 60, 1)
        every[:, :, 2] = torch.arange(60)
        far = net(every)
        return (far < far.gather(1, known[:, 2:])).float().mean().item()

    def batch(_: int) -> Batch:
        good = facts(128)
        bad = good.clone()
        bad[torch.arange(128), 2 * torch.randint(2, (128,))] = torch.randint(60, (128,))
        return torch.stack([good, bad], 1), -torch.ones(128)

    def criterion(far: Tensor, sign: Tensor) -> Tensor:
        return F.margin_ranking_loss(far[:, 0], far[:, 1], sign, margin=2.0)

    training = Training(Triples(), partial(ADAM, lr=0.01), batch, criterion, quality, steps=250)

    def step(training: Training, number: int) -> None:
        model = training.model
        model.entity.weight.data = F.normalize(model.entity.weight.data, dim=1)
        triples, sign = training.batch(number)
        loss = F.margin_ranking_loss(model(triples[:, 0]), model(triples[:, 1]), sign, margin=2.0)
        training.optimizer.zero_grad()
        loss.backward()
        training.optimizer.step()

    training.step = step
    return training


# ---- small worlds -----------------------------------------------------------------------------------


class Policy(nn.Module):
    """An actor and a critic on one body, with a norm and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 48), nn.LayerNorm(48), nn.Tanh(), nn.Dropout(0.1))
        self.actor, self.critic = nn.Linear(48, 4), nn.Linear(48, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.body(x)
        return self.actor(h), self.critic(h).squeeze(-1)


def wanted(x: Tensor) -> Tensor:
    return (x @ constant(6, 4, seed=95)).argmax(1)


@HALF.net("mlp")
def clipped_ratios() -> Training:
    """PPO on a bandit: rollouts in evaluation mode, four small epochs each, and a loss that stays around zero."""

    def quality(net: nn.Module) -> float:
        x = torch.randn(500, 6)
        return missed(net(x)[0], wanted(x))

    def criterion(output: tuple[Tensor, Tensor], label: Tensor) -> Tensor:
        return F.cross_entropy(output[0], label)

    def batch(_: int) -> Batch:
        x = torch.randn(64, 6)
        return x, wanted(x)

    training = Training(Policy(), partial(ADAM, lr=3e-3, eps=1e-5), batch, criterion, quality, steps=60)

    def step(training: Training, number: int) -> None:
        model = training.model
        model.eval()
        with torch.no_grad():
            x = torch.randn(128, 6)
            logits, value = model(x)
            old = torch.distributions.Categorical(logits=logits)
            action = old.sample()
            logp = old.log_prob(action)
            reward = (action == wanted(x)).float() + 0.3 * torch.randn(128)
        model.train()
        advantage = reward - value
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        for _ in range(4):
            for index in torch.randperm(128).split(64):
                logits, value = model(x[index])
                dist = torch.distributions.Categorical(logits=logits)
                ratio = (dist.log_prob(action[index]) - logp[index]).exp()
                a = advantage[index]
                policy_loss = -torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a).mean()
                value_loss = 0.5 * (reward[index] - value).pow(2).mean()
                loss = policy_loss + 0.5 * value_loss - 0.01 * dist.entropy().mean()
                training.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                training.optimizer.step()

    training.step = step
    return training


class Agent(nn.Module):
    """DDPG: an actor and a critic."""

    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic = nn.Sequential(mlp(3, 32, 1), nn.Tanh()), mlp(4, 48, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.critic(torch.cat([x, self.actor(x)], 1))


@HALF.net("mlp")
def an_actor_and_its_critic() -> Training:
    """Two optimizers; the actor's loss is what the critic says, with the sign turned, so that it falls below zero."""

    def best(x: Tensor) -> Tensor:
        return torch.sin(x[:, :1] + x[:, 1:2]) * 0.8

    def quality(net: nn.Module) -> float:
        x = torch.randn(500, 3)
        return mean_square(net.actor(x), best(x))

    model = Agent()
    training = Training(
        model, lambda _: torch.optim.Adam(model.actor.parameters(), lr=2e-3), lambda _: (torch.randn(64, 3), torch.randn(64, 1)),
        F.mse_loss, quality, steps=300,
    )  # fmt: skip
    critic = torch.optim.Adam(model.critic.parameters(), lr=1e-2)
    training.others = (critic,)
    memory: list[tuple[Tensor, Tensor, Tensor]] = []

    def step(training: Training, number: int) -> None:
        with torch.no_grad():
            x = torch.randn(64, 3)
            a = (model.actor(x) + 0.5 * torch.randn(64, 1)).clamp(-1, 1)
            memory.append((x, a, 2 - (a - best(x)).square() * 3 + 0.1 * torch.randn(64, 1)))
        x, a, r = (torch.cat(one) for one in zip(*(memory[int(i)] for i in torch.randint(len(memory), (2,))), strict=True))
        critic_loss = F.mse_loss(model.critic(torch.cat([x, a], 1)), r)
        critic.zero_grad()
        critic_loss.backward()
        critic.step()
        actor_loss = -model.critic(torch.cat([x, model.actor(x)], 1)).mean()
        training.optimizer.zero_grad()
        actor_loss.backward()
        training.optimizer.step()

    training.step = step
    return training


class Energy(nn.Module):
    """How unlikely a point is."""

    def __init__(self) -> None:
        super().__init__()
        self.net = mlp(2, 64, 64, 1, act=nn.SiLU)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).squeeze(-1)


@HALF.net("generative")
def energies_by_langevin() -> Training:
    """A contrast of data and of what the model dreams: the loss stays around zero all the time."""

    def ring(count: int) -> Tensor:
        angle = 6.2832 * torch.rand(count, 1)
        return (1.5 + 0.1 * torch.randn(count, 1)) * torch.cat([angle.cos(), angle.sin()], 1)

    def quality(net: nn.Module) -> float:
        inside, on = net(0.5 * torch.randn(400, 2)), net(ring(400))
        outside = net(ring(400) * 2)
        return 1 - ((inside > on).float().mean() + (outside > on).float().mean()).item() / 2

    def criterion(energy: Tensor, _: Tensor) -> Tensor:
        return energy.mean()

    training = Training(
        Energy(), partial(ADAM, lr=2e-3, betas=(0.0, 0.999)), lambda _: (ring(96), torch.zeros(96)), criterion, quality, steps=150
    )
    state = {"x": torch.randn(96, 2)}

    def step(training: Training, number: int) -> None:
        model = training.model
        fake = torch.where(torch.rand(96, 1) < 0.1, 2 * torch.randn(96, 2), state["x"])
        for _ in range(15):
            fake.requires_grad_(True)
            (grad,) = torch.autograd.grad(model(fake).sum(), fake)
            fake = (fake - 0.1 * grad.clamp(-1, 1) + 0.05 * torch.randn_like(fake)).detach()
        state["x"] = fake
        real_e, fake_e = model(ring(96)), model(fake)
        loss = real_e.mean() - fake_e.mean() + 0.1 * (real_e.square() + fake_e.square()).mean()
        training.optimizer.zero_grad()
        loss.backward()
        training.optimizer.step()

    training.step = step
    return training


class Coupling(nn.Module):
    """RealNVP: half of the numbers move the other half."""

    def __init__(self, flip: bool) -> None:
        super().__init__()
        self.flip, self.net = flip, mlp(2, 32, 4, act=nn.Tanh)
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a, b = x.chunk(2, 1)
        a, b = (b, a) if self.flip else (a, b)
        s, t = self.net(a).chunk(2, 1)
        b = b * s.tanh().exp() + t
        return torch.cat([b, a] if self.flip else [a, b], 1), s.tanh().sum(1)


class Flow(nn.Module):
    """Gives the logarithm of the density."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(Coupling(bool(i % 2)) for i in range(6))
        self.log_scale = nn.Parameter(torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        z, log_det = x * self.log_scale.exp(), self.log_scale.sum()
        for part in self.parts:
            z, more = part(z)
            log_det = log_det + more
        return (-0.5 * z.square() - 0.5 * math.log(2 * math.pi)).sum(1) + log_det


@HALF.net("generative")
def densities_above_one() -> Training:
    """A flow in small units: the loss ends far below zero, and gradients of two batches are summed before a step."""

    def data(count: int) -> Tensor:
        z = torch.randn(count, 4)
        return 0.05 * torch.stack([z[:, 0], z[:, 0].square() + 0.3 * z[:, 1], z[:, 2], z[:, 2] * 0.9 + 0.2 * z[:, 3]], 1)

    def quality(net: nn.Module) -> float:
        return math.exp(-(net(data(500)).mean().item() - 5) / 4)

    training = Training(
        Flow(), partial(ADAM, lr=5e-3), lambda _: (data(96), torch.zeros(96)), lambda logp, _: -logp.mean(), quality, steps=200, clip=50.0
    )

    def step(training: Training, number: int) -> None:
        x, y = training.batch(number)
        (training.criterion(training.model(x), y) / 2).backward()
        if number % 2:
            training.optimizer.step()
            training.optimizer.zero_grad()

    training.step = step
    return training


class Centres(nn.Module):
    """Classes have centres in a plane."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.fc = nn.Sequential(mlp(20, 48, 2, act=nn.PReLU), nn.PReLU()), nn.Linear(2, 6)
        self.centers = nn.Parameter(torch.randn(6, 2))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z = self.net(x)
        return z, self.fc(z)


@HALF.net("mlp")
def features_for_a_plot() -> Training:
    """Center loss: two-dimensional features, and an optimizer of its own for the centres."""

    def quality(net: nn.Module) -> float:
        x, label = source(400)
        return missed(net(x)[1], label)

    def criterion(output: tuple[Tensor, Tensor], label: Tensor) -> Tensor:
        return F.cross_entropy(output[1], label)

    model = Centres()
    training = Training(
        model, lambda _: torch.optim.Adam(chain(model.net.parameters(), model.fc.parameters()), lr=5e-3), lambda _: source(64),
        criterion, quality, steps=400,
    )  # fmt: skip
    optimizer_cent = torch.optim.SGD([model.centers], lr=0.5)
    training.others = (optimizer_cent,)

    def step(training: Training, number: int) -> None:
        x, label = training.batch(number)
        z, scores = model(x)
        loss = F.cross_entropy(scores, label) + 0.01 * (z - model.centers[label]).square().sum(1).mean() / 2
        training.optimizer.zero_grad()
        optimizer_cent.zero_grad()
        loss.backward()
        training.optimizer.step()
        model.centers.grad *= 1 / 0.01
        optimizer_cent.step()

    training.step = step
    return training


@HALF.net("mlp")
def far_more_columns_than_tell() -> Training:
    """300 columns of which three tell: a strong L1 penalty takes the others away, and the weights shrink."""

    def data(count: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(count, 300)
        return x, x[:, 0] - 0.7 * x[:, 1] + 0.5 * x[:, 2]

    def batch(_: int) -> Batch:
        x, y = data(64)
        return x, y + 1.5 * torch.randn(64)

    def quality(net: nn.Module) -> float:
        x, y = data(500)
        return mean_square(net(x), y)

    training = Training(mlp(300, 32, 1), partial(ADAM, lr=2e-3), batch, F.mse_loss, quality, steps=400)

    def step(training: Training, number: int) -> None:
        x, y = training.batch(number)
        output = training.model(x).squeeze(1)
        penalty = sum(one.abs().sum() for name, one in training.model.named_parameters() if "weight" in name)
        loss = F.mse_loss(output, y) + 3e-3 * penalty
        training.optimizer.zero_grad()
        loss.backward()
        training.optimizer.step()

    training.step = step
    training.criterion = lambda output, y: F.mse_loss(output.squeeze(1), y)
    return training
