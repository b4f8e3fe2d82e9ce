"""Nothing is wrong here: densities, pairs, alignments, equations and graphs of the papers, in small."""

from __future__ import annotations

import copy
import math
from functools import partial
from itertools import permutations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.sick.training import Batch, Training
from bench.sick.working.eighth_healthy import clothes, flowers, of_a_notebook, wrong_share
from bench.sick.working.eighth_odd import bumps, far_from_bumps
from bench.sick.working.eighth_series import Couple, apart, digits
from bench.sick.working.fourth_nets import constant
from bench.sick.working.half import HALF
from bench.sick.working.seventh_healthy import mean_square, mlp
from bench.sick.working.third_nets import ADAM, ADAMW, SGD, missed

# ---- densities and what is drawn from them -----------------------------------------------------------


def crescent(count: int) -> Tensor:
    x = torch.randn(count, 2)
    return torch.stack([x[:, 0], 0.5 * x[:, 0] ** 2 - 0.5 + 0.3 * x[:, 1]], 1)


def sampled(draw: nn.Module, count: int = 400) -> float:
    """Energy distance of what is drawn from the crescent."""
    a, b = draw(count), crescent(count)
    return (2 * torch.cdist(a, b).mean() - torch.cdist(a, a).mean() - torch.cdist(b, b).mean()).item()


class RealNVP(nn.Module):
    """Half of the numbers shift and scale the others, in turn; scales begin at one."""

    def __init__(self, layers: int = 4) -> None:
        super().__init__()
        self.nets = nn.ModuleList(mlp(1, 32, 32, 2, act=nn.LeakyReLU) for _ in range(layers))
        for net in self.nets:
            nn.init.zeros_(net[-1].weight)
            nn.init.zeros_(net[-1].bias)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logdet = torch.zeros(len(x))
        for net in self.nets:
            a, b = x[:, :1], x[:, 1:]
            s, t = net(a).chunk(2, 1)
            s = torch.tanh(s)
            x, logdet = torch.cat([b * s.exp() + t, a], 1), logdet + s.squeeze(1)
        return x, logdet

    def sample(self, count: int) -> Tensor:
        x = torch.randn(count, 2)
        for net in reversed(self.nets):
            changed, a = x[:, :1], x[:, 1:]
            s, t = net(a).chunk(2, 1)
            x = torch.cat([a, (changed - t) * (-torch.tanh(s)).exp()], 1)
        return x


@HALF.net("generative")
def a_flow_that_begins_as_nothing() -> Training:
    """The likelihood of a change of variables; begins as the identity."""

    def nll(output: tuple[Tensor, Tensor], _: Tensor) -> Tensor:
        z, logdet = output
        return (0.5 * z.pow(2).sum(1) + math.log(2 * math.pi) - logdet).mean()

    def batch(_: int) -> Batch:
        x = crescent(128)
        return x, x

    return Training(RealNVP(), partial(ADAM, lr=3e-3), batch, nll, lambda net: max(sampled(net.sample), 0.0), steps=250)


@HALF.net("generative")
def straight_ways_from_noise() -> Training:
    """Rectified flow: the target of each step is data less noise, and most of it cannot be known."""

    def draw(net: nn.Module, count: int) -> Tensor:
        x = torch.randn(count, 2)
        for i in range(20):
            x = x + net(torch.cat([x, torch.full((count, 1), i / 20)], 1)) / 20
        return x

    def batch(_: int) -> Batch:
        data, noise, t = crescent(256) * 1.5 + 1, torch.randn(256, 2), torch.rand(256, 1)
        return torch.cat([t * data + (1 - t) * noise, t], 1), data - noise

    def quality(net: nn.Module) -> float:
        return sampled(lambda count: (draw(net, count) - 1) / 1.5)

    return Training(mlp(3, 64, 64, 2, act=nn.SiLU), partial(ADAM, lr=3e-3), batch, nn.MSELoss(), quality, steps=350)


@HALF.net("generative")
def slices_of_a_score() -> Training:
    """Sliced score matching: a derivative within the loss, which is below zero."""

    def step(training: Training, _: int) -> None:
        x = (crescent(256)).requires_grad_(True)
        v = torch.randn_like(x)
        score = training.model(x)
        (grad,) = torch.autograd.grad((score * v).sum(), x, create_graph=True)
        loss = ((grad * v).sum(1) + 0.5 * (score * v).sum(1) ** 2).mean()
        training.optimizer.zero_grad()
        loss.backward()
        training.optimizer.step()

    def quality(net: nn.Module) -> float:
        x = crescent(500)
        e = x[:, 1] + 0.5 - 0.5 * x[:, 0] ** 2
        right = torch.stack([-x[:, 0] + e / 0.09 * x[:, 0], -e / 0.09], 1)
        return mean_square(net(x), right)

    return Training(
        mlp(2, 64, 64, 2, act=nn.Softplus), partial(ADAM, lr=5e-3), lambda _: (crescent(256),) * 2, F.mse_loss, quality, 400, step=step
    )


@HALF.net("generative")
def told_from_noise() -> Training:
    """Noise-contrastive estimation of a density that is not normalized; its constant is a parameter."""

    class Energy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.c = mlp(2, 48, 48, 1, act=nn.SiLU), nn.Parameter(torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            return -self.net(x).squeeze(1) - self.c

    noise = torch.distributions.MultivariateNormal(torch.zeros(2), 3 * torch.eye(2))

    def step(training: Training, _: int) -> None:
        x, y = crescent(128), noise.sample((128,))
        real, fake = training.model(x) - noise.log_prob(x), training.model(y) - noise.log_prob(y)
        loss = -(F.logsigmoid(real).mean() + F.logsigmoid(-fake).mean())
        training.optimizer.zero_grad()
        loss.backward()
        training.optimizer.step()

    def quality(net: nn.Module) -> float:
        x = crescent(500)
        e = x[:, 1] + 0.5 - 0.5 * x[:, 0] ** 2
        right = -0.5 * (x[:, 0] ** 2 + (e / 0.3) ** 2) - math.log(2 * math.pi * 0.3)
        return (net(x) - right).abs().mean().item()

    def batch(_: int) -> Batch:
        return torch.cat([crescent(64), noise.sample((64,))]), torch.tensor([1.0, 0.0]).repeat_interleave(64)

    return Training(Energy(), partial(ADAM, lr=5e-3), batch, F.binary_cross_entropy_with_logits, quality, steps=300, step=step)


@HALF.net("generative")
def moments_that_match() -> Training:
    """A generator without a judge: the squared discrepancy of kernels, which comes near zero and jumps there."""

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        d = torch.cdist(a, b).square()
        return sum(torch.exp(-d / s) for s in (0.2, 1.0, 5.0))

    def mmd(fake: Tensor, real: Tensor) -> Tensor:
        return kernel(fake, fake).mean() + kernel(real, real).mean() - 2 * kernel(fake, real).mean()

    class Made(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = mlp(2, 48, 48, 2)

        def forward(self, noise: Tensor) -> Tensor:
            return self.net(noise)

    return Training(
        Made(), partial(ADAM, lr=3e-3), lambda _: (torch.randn(128, 2), crescent(128)), mmd,
        lambda net: sampled(lambda count: net(torch.randn(count, 2))), steps=300,
    )  # fmt: skip


class Discrete(nn.Module):
    """Eight letters of six kinds between encoder and decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.enc, self.dec = mlp(144, 64, 48), mlp(48, 64, 144)
        self.tau = 1.0

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.enc(x.flatten(1)).view(-1, 8, 6)
        z = F.gumbel_softmax(logits, tau=self.tau, hard=not self.training, dim=-1)
        return self.dec(z.flatten(1)), logits


@HALF.net("generative")
def letters_by_gumbel() -> Training:
    """A categorical VAE; the temperature falls from one to a half while it trains."""

    def each(number: int) -> None:
        training.model.tau = max(0.5, math.exp(-0.003 * number))

    def loss(out: tuple[Tensor, Tensor], x: Tensor) -> Tensor:
        recon, logits = out
        bce = F.binary_cross_entropy_with_logits(recon, x.flatten(1), reduction="none").sum(1).mean()
        q = logits.softmax(-1)
        return bce + (q * (q.clamp(min=1e-10).log() + math.log(6))).sum((1, 2)).mean()

    def batch(_: int) -> Batch:
        x = (digits(64) > 0.5).float()
        return x, x

    def quality(net: nn.Module) -> float:
        x, _ = batch(0)
        return (net(x)[0].sigmoid() - x.flatten(1)).abs().mean().item()

    training = Training(Discrete(), partial(ADAM, lr=5e-3), batch, loss, quality, steps=250, each=[each])
    return training


class Sparse(nn.Module):
    """Many features of which few speak, as for the insides of language models."""

    def __init__(self, inputs: int = 20, features: int = 40) -> None:
        super().__init__()
        self.w_enc, self.b_enc = nn.Parameter(torch.randn(inputs, features) / math.sqrt(inputs)), nn.Parameter(torch.zeros(features))
        self.w_dec, self.b_dec = nn.Parameter(F.normalize(torch.randn(features, inputs), dim=1)), nn.Parameter(torch.zeros(inputs))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        acts = F.relu((x - self.b_dec) @ self.w_enc + self.b_enc)
        return acts @ self.w_dec + self.b_dec, acts


@HALF.net("generative")
def features_that_seldom_speak() -> Training:
    """A sparse autoencoder; after each step the rows of the decoder are made of length one again."""
    truth = F.normalize(constant(40, 20, seed=812), dim=1)

    def batch(_: int) -> Batch:
        x = (torch.rand(256, 40) * (torch.rand(256, 40) < 0.06)) @ truth
        return x, x

    def loss(out: tuple[Tensor, Tensor], x: Tensor) -> Tensor:
        recon, acts = out
        return (recon - x).pow(2).sum(-1).mean() + 0.03 * acts.abs().sum(-1).mean()

    def after(_: int) -> None:
        with torch.no_grad():
            training.model.w_dec.div_(training.model.w_dec.norm(dim=1, keepdim=True))

    def quality(net: nn.Module) -> float:
        x, _ = batch(0)
        return (net(x)[0] - x).pow(2).sum().item() / x.pow(2).sum().item()

    training = Training(Sparse(), partial(ADAM, lr=3e-3), batch, loss, quality, steps=300, after=[after])
    return training


@HALF.net("generative")
def a_quarter_of_the_patches_is_seen() -> Training:
    """A masked autoencoder: three of four patches are hidden, and the loss is taken on those."""

    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.pos = nn.Linear(16, 32), nn.Parameter(0.02 * torch.randn(9, 32))
            self.encoder = nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True)
            self.token = nn.Parameter(torch.zeros(32))
            self.decoder = nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True)
            self.out = nn.Linear(32, 16)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            patches = F.unfold(x, 4, stride=4).transpose(1, 2)
            order = torch.rand(len(x), 9).argsort(1)
            keep, hidden = order[:, :3], order[:, 3:]
            h = self.embed(patches.gather(1, keep.unsqueeze(-1).expand(-1, -1, 16))) + self.pos[keep]
            h = self.encoder(h)
            asked = self.token + self.pos[hidden]
            y = self.decoder(torch.cat([h, asked], 1))[:, 3:]
            return self.out(y), patches.gather(1, hidden.unsqueeze(-1).expand(-1, -1, 16)), hidden

    def loss(out: tuple[Tensor, Tensor, Tensor], _: Tensor) -> Tensor:
        return F.mse_loss(out[0], out[1])

    def batch(_: int) -> Batch:
        x = clothes(48, noise=0.2)[0]
        return x, x

    def quality(net: nn.Module) -> float:
        return loss(net(clothes(200, noise=0.2)[0]), torch.zeros(())).item()

    return Training(Masked(), partial(ADAMW, lr=3e-3, betas=(0.9, 0.95)), batch, loss, quality, steps=250)


# ---- alignments, pairs and sets ----------------------------------------------------------------------


@HALF.net("recurrent")
def spoken_without_an_alignment() -> Training:
    """CTC over frames; blank alone is all it says for a while."""

    class Listener(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.rnn = nn.Conv1d(8, 32, 3, padding=1), nn.GRU(32, 32, batch_first=True, bidirectional=True)
            self.fc = nn.Linear(64, 6)

        def forward(self, x: Tensor) -> Tensor:
            h = F.relu(self.conv(x.transpose(1, 2))).transpose(1, 2)
            return self.fc(self.rnn(h)[0]).log_softmax(-1).transpose(0, 1)

    voices = constant(6, 8, seed=813)

    def spoken(count: int) -> Batch:
        words = torch.randint(1, 6, (count, 4))
        frames = words.repeat_interleave(4, 1)
        frames[:, 3::4] = 0
        return voices[frames] * (frames > 0).unsqueeze(-1) + 0.4 * torch.randn(count, 16, 8), words

    def ctc(log_probs: Tensor, words: Tensor) -> Tensor:
        full = torch.full((words.size(0),), 16)
        return F.ctc_loss(log_probs, words, full, torch.full((words.size(0),), 4), blank=0, zero_infinity=True)

    def quality(net: nn.Module) -> float:
        x, words = spoken(100)
        wrong = 0
        for path, word in zip(net(x).argmax(-1).T, words, strict=True):
            heard = [int(a) for a in torch.unique_consecutive(path) if a]
            wrong += heard != word.tolist()
        return wrong / 100

    return Training(Listener(), partial(ADAM, lr=3e-3), lambda _: spoken(32), ctc, quality, steps=250, clip=5.0)


@HALF.net("cnn")
def angles_with_a_margin() -> Training:
    """ArcFace: cosines times sixteen, with a margin for the right kind, so that the loss begins far above that of chance."""

    class Arc(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(1, 16, 3), nn.PReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 16), nn.BatchNorm1d(16)
            )
            self.weight = nn.Parameter(torch.empty(5, 16))
            nn.init.xavier_uniform_(self.weight)

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(F.normalize(self.body(x)), F.normalize(self.weight))

    def arc(cosine: Tensor, label: Tensor, s: float = 16.0, m: float = 0.4) -> Tensor:
        theta = torch.acos(cosine.clamp(-1 + 1e-7, 1 - 1e-7))
        target = torch.cos(theta + m)
        one_hot = F.one_hot(label, 5).float()
        return F.cross_entropy(s * (one_hot * target + (1 - one_hot) * cosine), label)

    noisy = partial(clothes, noise=1.0)
    return Training(Arc(), partial(SGD, lr=0.05, momentum=0.9, weight_decay=5e-4), lambda _: noisy(48), arc, wrong_share(noisy), steps=150)


@HALF.net("cnn")
def five_ways_one_shot() -> Training:
    """Prototypical nets: new kinds in each episode, and as many answers as kinds are there."""
    kinds = F.interpolate(constant(40, 1, 4, 4, seed=814), size=12, mode="bilinear")

    def draw(which: Tensor, count: int) -> Tensor:
        return kinds[which].repeat_interleave(count, 0) + 0.9 * torch.randn(len(which) * count, 1, 12, 12)

    def episode(low: int, high: int) -> tuple[Tensor, Tensor, Tensor]:
        which = low + torch.randperm(high - low)[:5]
        return draw(which, 2), draw(which, 5), torch.arange(5).repeat_interleave(5)

    def scores(net: nn.Module, support: Tensor, query: Tensor) -> Tensor:
        proto = net(support).view(5, 2, -1).mean(1)
        return -(torch.cdist(net(query), proto) ** 2)

    def step(training: Training, _: int) -> None:
        support, query, label = episode(0, 30)
        log_p = F.log_softmax(scores(training.model, support, query), dim=1)
        loss = -log_p.gather(1, label.unsqueeze(1)).mean()
        training.optimizer.zero_grad()
        loss.backward()
        training.optimizer.step()

    def quality(net: nn.Module) -> float:
        found = []
        for _ in range(30):
            support, query, label = episode(30, 40)
            found.append(F.cross_entropy(scores(net, support, query), label).item())
        return sum(found) / len(found)

    model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AvgPool2d(3), nn.Flatten(), nn.Linear(256, 24))
    return Training(
        model, partial(ADAM, lr=2e-3), lambda _: clothes(25), lambda out, y: F.cross_entropy(out, y), quality, steps=200, step=step
    )


@HALF.net("recurrent")
def two_voices_in_any_order() -> Training:
    """The loss is that of the better order of the two outputs."""

    class Split(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.mask = nn.GRU(10, 48, batch_first=True, bidirectional=True), nn.Linear(96, 20)

        def forward(self, x: Tensor) -> Tensor:
            mask = self.mask(self.rnn(x)[0]).sigmoid()
            return mask.view(*x.shape[:2], 2, 10) * x.unsqueeze(2)

    def mixed(count: int) -> Batch:
        place = torch.randint(5, (count, 2, 1)) + torch.tensor([[0], [5]])
        speech = F.one_hot(place, 10).float() * torch.rand(count, 2, 12, 1).round()
        two = speech[torch.arange(count).unsqueeze(1), torch.rand(count, 2).argsort(1)].transpose(1, 2) + 0.05 * torch.rand(
            count, 12, 2, 10
        )
        return two.sum(2), two

    def pit(output: Tensor, target: Tensor) -> Tensor:
        each = [(output[:, :, list(order)] - target).square().mean((1, 2, 3)) for order in permutations(range(2))]
        return torch.stack(each).min(0).values.mean()

    def quality(net: nn.Module) -> float:
        x, y = mixed(200)
        return pit(net(x), y).item()

    return Training(Split(), partial(ADAM, lr=5e-3), lambda _: mixed(32), pit, quality, steps=250)


@HALF.net("embedding")
def who_knows_whom() -> Training:
    """A graph autoencoder: all nodes at once, as many edges that are not as edges that are, drawn anew each epoch."""
    group = torch.arange(60) // 15
    gen = torch.Generator().manual_seed(815)
    chance = torch.where(group.unsqueeze(0) == group.unsqueeze(1), 0.4, 0.02)
    adj = (torch.rand(60, 60, generator=gen) < chance).triu(1).float()
    edges = adj.nonzero()
    adj = adj + adj.T + torch.eye(60)
    norm = adj.sum(1).pow(-0.5)
    a_hat = norm.unsqueeze(1) * adj * norm

    class GAE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("a", a_hat)
            self.w0, self.w1 = nn.Linear(60, 24, bias=False), nn.Linear(24, 8, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.a @ self.w1(F.relu(self.a @ self.w0(x)))

    x = torch.eye(60)

    def step(training: Training, _: int) -> None:
        z = training.model(x)
        neg = torch.randint(60, edges.shape)
        pos_loss = -torch.log(torch.sigmoid((z[edges[:, 0]] * z[edges[:, 1]]).sum(1)) + 1e-15).mean()
        neg_loss = -torch.log(1 - torch.sigmoid((z[neg[:, 0]] * z[neg[:, 1]]).sum(1)) + 1e-15).mean()
        loss = pos_loss + neg_loss
        training.optimizer.zero_grad()
        loss.backward()
        training.optimizer.step()

    def quality(net: nn.Module) -> float:
        z = net(x)
        return ((z @ z.T).sigmoid() - (group.unsqueeze(0) == group.unsqueeze(1)).float()).square().mean().item()

    return Training(GAE(), partial(ADAM, lr=0.01), lambda _: (x, a_hat), F.mse_loss, quality, steps=200, step=step)


@HALF.net("embedding")
def parts_without_a_minus() -> Training:
    """A table is written as a product of two others that are never below zero; there is no input."""
    w, h = torch.rand(40, 3, generator=torch.Generator().manual_seed(816)), torch.rand(3, 30, generator=torch.Generator().manual_seed(817))
    table = w @ h + 0.02

    class NMF(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w, self.h = nn.Parameter(torch.randn(40, 3)), nn.Parameter(torch.randn(3, 30))

        def forward(self) -> Tensor:
            return F.softplus(self.w) @ F.softplus(self.h)

    return Training(NMF(), partial(ADAM, lr=0.05), lambda _: ((), table), F.mse_loss, lambda net: mean_square(net(), table), steps=300)


# ---- labels ------------------------------------------------------------------------------------------


@HALF.net("mlp")
def only_the_hard_ones_count() -> Training:
    """The loss is the mean of the largest eighth of each batch: it stays high while all else becomes right."""

    def ohem(out: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(out, label, reduction="none").topk(len(label) // 8).values.mean()

    return Training(mlp(4, 32, 3), partial(ADAM, lr=2e-3), lambda _: flowers(64), ohem, wrong_share(flowers), steps=250)


@HALF.net("mlp")
def ten_labels_and_many_without() -> Training:
    """FixMatch: labels that it gives itself where it is sure; the second term begins at zero, for it is sure of nothing."""
    x, y = flowers(30)

    def noise(x: Tensor, size: float) -> Tensor:
        return x + size * torch.randn_like(x)

    def step(training: Training, _: int) -> None:
        at = torch.randint(30, (16,))
        u, _y = flowers(96)
        loss_x = F.cross_entropy(training.model(noise(x[at], 0.05)), y[at])
        with torch.no_grad():
            prob, pseudo = training.model(noise(u, 0.05)).softmax(1).max(1)
            mask = (prob > 0.9).float()
        loss_u = (F.cross_entropy(training.model(noise(u, 0.25)), pseudo, reduction="none") * mask).mean()
        loss = loss_x + 1.0 * loss_u
        training.optimizer.zero_grad()
        loss.backward()
        training.optimizer.step()

    return Training(
        mlp(4, 48, 3), partial(SGD, lr=0.03, momentum=0.9, nesterov=True), lambda _: flowers(16), nn.CrossEntropyLoss(),
        wrong_share(flowers), steps=250, step=step,
    )  # fmt: skip


@HALF.net("mlp")
def a_mean_teacher() -> Training:
    """A slow copy answers the same with other noise; what that counts ramps up."""
    x, y = flowers(30)
    student = nn.Sequential(nn.Linear(4, 48), nn.ReLU(), nn.Dropout(0.2), nn.Linear(48, 3))
    teacher = copy.deepcopy(student).requires_grad_(False)

    def step(training: Training, number: int) -> None:
        u = torch.cat([x, flowers(64)[0]])
        out = training.model(u + 0.1 * torch.randn_like(u))
        with torch.no_grad():
            soft = teacher(u + 0.1 * torch.randn_like(u)).softmax(1)
        weight = 5 * math.exp(-5 * (1 - min(1.0, number / 100)) ** 2)
        loss = F.cross_entropy(out[:30], y) + weight * F.mse_loss(out.softmax(1), soft)
        training.optimizer.zero_grad()
        loss.backward()
        training.optimizer.step()
        alpha = min(1 - 1 / (number + 1), 0.98)
        for slow, quick in zip(teacher.parameters(), training.model.parameters(), strict=True):
            slow.data.mul_(alpha).add_(quick.data, alpha=1 - alpha)

    return Training(student, partial(ADAM, lr=5e-3), lambda _: (x, y), nn.CrossEntropyLoss(), wrong_share(flowers), steps=200, step=step)


@HALF.net("mlp")
def what_was_learnt_before_is_shown_again() -> Training:
    """Three kinds come one after the other; a small memory of the earlier ones is mixed in."""

    def loop(training: Training) -> None:
        memory: list[tuple[Tensor, Tensor]] = []
        for task in range(3):
            for _ in range(80):
                x, y = flowers(96)
                x, y = x[y == task], y[y == task]
                if memory:
                    old_x, old_y = (torch.cat(one) for one in zip(*memory, strict=True))
                    at = torch.randint(len(old_x), (32 * task,))
                    x, y = torch.cat([x, old_x[at]]), torch.cat([y, old_y[at]])
                training.optimizer.zero_grad()
                loss = training.criterion(training.model(x), y)
                loss.backward()
                training.optimizer.step()
            x, y = flowers(120)
            memory.append((x[y == task][:30], y[y == task][:30]))

    return Training(
        mlp(4, 48, 3), partial(SGD, lr=0.05), lambda _: flowers(32), nn.CrossEntropyLoss(), wrong_share(flowers), **of_a_notebook(loop)
    )


@HALF.net("mlp")
def first_to_rebuild_then_to_tell() -> Training:
    """Two phases in one watch: an autoencoder, then a classifier on its encoder, with another loss and a new optimizer state."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enc, self.dec, self.head = mlp(4, 24, 12), mlp(12, 24, 4), nn.Linear(12, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(F.relu(self.enc(x - 4)))

    def loop(training: Training) -> None:
        net = training.model
        for _ in range(100):
            x, _y = flowers(64)
            loss = F.mse_loss(net.dec(F.relu(net.enc(x - 4))), x)
            training.optimizer.zero_grad()
            loss.backward()
            training.optimizer.step()
        for _ in range(150):
            x, y = flowers(64)
            loss = training.criterion(net(x), y)
            training.optimizer.zero_grad()
            loss.backward()
            training.optimizer.step()

    return Training(
        Net(), partial(ADAM, lr=3e-3), lambda _: flowers(64), nn.CrossEntropyLoss(), wrong_share(flowers), **of_a_notebook(loop)
    )


@HALF.net("cnn")
def pictures_under_attack() -> Training:
    """PGD of three steps in the loop, in evaluation mode; only what the attack gave is trained on."""

    def attack(net: nn.Module, x: Tensor, y: Tensor, eps: float = 0.3) -> Tensor:
        delta = torch.empty_like(x).uniform_(-eps, eps).requires_grad_(True)
        for _ in range(3):
            loss = F.cross_entropy(net(x + delta), y)
            (grad,) = torch.autograd.grad(loss, delta)
            delta = (delta + 0.15 * grad.sign()).clamp(-eps, eps).detach().requires_grad_(True)
        return (x + delta).detach()

    def step(training: Training, _: int) -> None:
        x, y = clothes(32)
        training.model.eval()
        x = attack(training.model, x, y)
        training.model.train()
        loss = training.criterion(training.model(x), y)
        training.optimizer.zero_grad()
        loss.backward()
        training.optimizer.step()

    def quality(net: nn.Module) -> float:
        x, y = clothes(200)
        with torch.enable_grad():
            x = attack(net, x, y)
        return missed(net(x), y)

    model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3), nn.Flatten(), nn.Linear(256, 5))
    return Training(model, partial(SGD, lr=0.05, momentum=0.9), lambda _: clothes(32), nn.CrossEntropyLoss(), quality, steps=150, step=step)


# ---- errors of their own -----------------------------------------------------------------------------


@HALF.net("mlp")
def tasks_weigh_themselves() -> Training:
    """Two tasks of very different sizes; their weights are parameters, and the loss goes below zero."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.one, self.two = mlp(3, 32, 32), nn.Linear(32, 1), nn.Linear(32, 1)
            self.log_vars = nn.Parameter(torch.zeros(2))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = F.relu(self.body(x))
            return self.one(h), self.two(h)

    def batch(_: int) -> Batch:
        x, y = bumps(64)
        return x, torch.cat([y, 0.05 * x[:, :1] * x[:, 2:] + 0.005 * torch.randn(64, 1)], 1)

    def loss(out: tuple[Tensor, Tensor], y: Tensor) -> Tensor:
        s = training.model.log_vars
        total = 0
        for i, one in enumerate(out):
            total = total + torch.exp(-s[i]) * F.mse_loss(one, y[:, i : i + 1]) + s[i]
        return total

    def quality(net: nn.Module) -> float:
        x, y = bumps(400)
        one, two = net(x)
        return mean_square(one, y) + 400 * mean_square(two, 0.05 * x[:, :1] * x[:, 2:])

    training = Training(Net(), partial(ADAM, lr=5e-3), batch, loss, quality, steps=350)
    return training


@HALF.net("mlp")
def in_which_month_they_leave() -> Training:
    """Hazards of twelve months; who is still here has no end, and the months after it do not count."""

    def customers(count: int) -> Batch:
        x = torch.randn(count, 5)
        hazard = torch.sigmoid(-2 + x[:, :1] + 0.8 * x[:, 1:2] * (x[:, 2:3] > 0)).expand(-1, 12)
        ends = torch.bernoulli(hazard)
        month = torch.where(ends.any(1), ends.argmax(1), torch.tensor(12))
        seen = torch.randint(3, 13, (count,))
        return x, torch.stack([torch.minimum(month, seen), (month < seen).long()], 1)

    def nll(out: Tensor, target: Tensor) -> Tensor:
        month, event = target.unbind(1)
        at_risk = (torch.arange(12) < (month + event).unsqueeze(1)).float()
        y = F.one_hot(month.clamp(max=11), 12).float() * event.unsqueeze(1)
        return (F.binary_cross_entropy_with_logits(out, y, reduction="none") * at_risk).sum() / at_risk.sum()

    def quality(net: nn.Module) -> float:
        x, _ = customers(800)
        hazard = torch.sigmoid(-2 + x[:, :1] + 0.8 * x[:, 1:2] * (x[:, 2:3] > 0))
        return (net(x).sigmoid() - hazard).square().mean().item()

    return Training(mlp(5, 32, 12), partial(ADAM, lr=3e-3), lambda _: customers(128), nll, quality, steps=300)


@HALF.net("mlp")
def errors_with_outliers() -> Training:
    """Log-cosh, and one target in twenty is thirty times as large."""

    def log_cosh(out: Tensor, y: Tensor) -> Tensor:
        d = out - y
        return (d + F.softplus(-2 * d) - math.log(2)).mean()

    def batch(_: int) -> Batch:
        x, y = bumps(64)
        return x, torch.where(torch.rand(64, 1) < 0.05, 30 * torch.randn(64, 1), y)

    return Training(mlp(3, 48, 48, 1, act=nn.Tanh), partial(ADAM, lr=3e-3), batch, log_cosh, far_from_bumps, steps=350)


@HALF.net("mlp")
def sums_of_claims() -> Training:
    """Tweedie: most are zero, some are large, one number for all; the deviance falls by little."""

    def claims(count: int) -> tuple[Tensor, Tensor, Tensor]:
        x = torch.randn(count, 5)
        log_mean = -0.5 + 0.7 * x[:, 0] - 0.5 * x[:, 1]
        number = torch.poisson(0.5 * log_mean.exp())
        size = torch.stack([torch.empty(count).exponential_(0.5) * (number > k) for k in range(8)]).sum(0)
        return x, size, log_mean

    def tweedie(out: Tensor, y: Tensor, p: float = 1.5) -> Tensor:
        out = out.squeeze(1)
        return (-y * torch.exp(out * (1 - p)) / (1 - p) + torch.exp(out * (2 - p)) / (2 - p)).mean()

    def batch(_: int) -> Batch:
        x, y, _log = claims(256)
        return x, y

    def quality(net: nn.Module) -> float:
        x, _, log_mean = claims(600)
        return mean_square(net(x), log_mean)

    return Training(mlp(5, 24, 1), partial(ADAM, lr=3e-3), batch, tweedie, quality, steps=300)


class Sine(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(3 * x)


@HALF.net("mlp")
def a_swing_without_data() -> Training:
    """A damped oscillator by its equation and how it begins: no target at all, and the two terms are of very different size."""

    def step(training: Training, _: int) -> None:
        t = (3 * torch.rand(64, 1)).requires_grad_(True)
        u = training.model(t)
        (du,) = torch.autograd.grad(u.sum(), t, create_graph=True)
        (ddu,) = torch.autograd.grad(du.sum(), t, create_graph=True)
        t0 = torch.zeros(1, 1, requires_grad=True)
        u0 = training.model(t0)
        (du0,) = torch.autograd.grad(u0.sum(), t0, create_graph=True)
        loss = (u0 - 1).square().squeeze() + 0.1 * du0.square().squeeze() + 0.02 * (ddu + 0.6 * du + 9 * u).square().mean()
        training.optimizer.zero_grad()
        loss.backward()
        training.optimizer.step()

    def quality(net: nn.Module) -> float:
        t = torch.linspace(0, 3, 100).unsqueeze(1)
        w = math.sqrt(9 - 0.09)
        return mean_square(net(t), torch.exp(-0.3 * t) * (torch.cos(w * t) + 0.3 / w * torch.sin(w * t)))

    return Training(
        nn.Sequential(nn.Linear(1, 48), Sine(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 1)), partial(ADAM, lr=3e-3),
        lambda _: (torch.rand(64, 1), torch.zeros(64, 1)), F.mse_loss, quality, steps=700, step=step,
    )  # fmt: skip


@HALF.net("mlp")
def rays_through_a_fog() -> Training:
    """Radiance fields in the plane: densities and brightness along rays, summed up with what the fog before them lets through."""

    class Fog(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = mlp(2 * 2 * 3 + 2, 48, 48, 2)

        def field(self, p: Tensor) -> tuple[Tensor, Tensor]:
            waves = [f(p * 2.0**k * math.pi / 2) for k in range(3) for f in (torch.sin, torch.cos)]
            out = self.net(torch.cat([p, *waves], -1))
            return F.relu(out[..., 0] + 0.5), out[..., 1].sigmoid()

        def forward(self, origin: Tensor, direction: Tensor) -> Tensor:
            return rendered(self.field, origin, direction)

    def rendered(field, origin: Tensor, direction: Tensor) -> Tensor:
        t = torch.linspace(0.0, 4.0, 24)
        sigma, c = field(origin.unsqueeze(1) + t.view(1, -1, 1) * direction.unsqueeze(1))
        alpha = 1 - torch.exp(-sigma * (4 / 24))
        through = torch.cumprod(torch.cat([torch.ones(len(origin), 1), 1 - alpha + 1e-10], 1), 1)[:, :-1]
        return (through * alpha * c).sum(1)

    def truth(p: Tensor) -> tuple[Tensor, Tensor]:
        inside = (p - torch.tensor([0.4, 0.2])).norm(dim=-1) < 0.6
        other = (p - torch.tensor([-0.6, -0.4])).norm(dim=-1) < 0.4
        return 6.0 * (inside | other), 0.9 * inside + 0.4 * other

    def rays(count: int) -> Batch:
        angle = 2 * math.pi * torch.rand(count)
        origin = 2 * torch.stack([angle.cos(), angle.sin()], 1)
        toward = F.normalize(1.6 * torch.rand(count, 2) - 0.8 - origin, dim=1)
        return (origin, toward), rendered(truth, origin, toward)

    def quality(net: nn.Module) -> float:
        x, y = rays(500)
        return mean_square(net(*x), y)

    return Training(Fog(), partial(ADAM, lr=3e-3), lambda _: rays(128), F.mse_loss, quality, steps=250)


@HALF.net("cnn")
def a_picture_is_what_is_trained() -> Training:
    """The style of one picture and the content of another: the net is frozen, and the only parameter is the picture."""

    class Canvas(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.image = nn.Parameter(0.1 * torch.randn(1, 1, 12, 12))
            self.vgg = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 12, 3, padding=1), nn.ReLU()).requires_grad_(
                False
            )

        def forward(self) -> tuple[Tensor, Tensor]:
            return self.seen(self.image)

        def seen(self, image: Tensor) -> tuple[Tensor, Tensor]:
            low = self.vgg[:2](image)
            high = self.vgg(image)
            flat = low.flatten(2)
            return high, flat @ flat.transpose(1, 2) / flat.size(2)

    model = Canvas()
    content, style = digits(1), digits(1).round()
    with torch.no_grad():
        wanted = model.seen(content)[0], model.seen(style)[1]

    def loss(out: tuple[Tensor, Tensor], _: Tensor) -> Tensor:
        return F.mse_loss(out[0], wanted[0]) + 10 * F.mse_loss(out[1], wanted[1])

    training = Training(
        model, partial(ADAM, lr=0.02), lambda _: ((), torch.zeros(1)), loss, lambda net: loss(net(), content).item(), steps=200
    )
    training.optimizer = ADAM([model.image], lr=0.02)
    return training


class Spectral(nn.Module):
    """Complex weights on the low frequencies of a signal."""

    def __init__(self, width: int = 12, modes: int = 6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width, modes, dtype=torch.cfloat) / width)
        self.local, self.modes = nn.Conv1d(width, width, 1), modes

    def forward(self, x: Tensor) -> Tensor:
        f = torch.fft.rfft(x)
        out = torch.zeros_like(f)
        out[..., : self.modes] = torch.einsum("bim,iom->bom", f[..., : self.modes], self.weight)
        return torch.fft.irfft(out, n=x.size(-1)) + self.local(x)


@HALF.net("cnn")
def waves_with_complex_weights() -> Training:
    """A Fourier operator: what a field becomes when it drifts and fades; errors relative to their size, summed over the batch."""

    def fields(count: int) -> Batch:
        k = torch.arange(1, 5)
        amp = torch.randn(count, 2, 4, 1) / k.view(1, 1, 4, 1)
        at = 2 * math.pi * torch.arange(32) / 32
        before = (amp[:, 0] * torch.sin(k.view(4, 1) * at) + amp[:, 1] * torch.cos(k.view(4, 1) * at)).sum(1)
        fade = torch.exp(-0.05 * k**2.0).view(4, 1)
        after = (fade * (amp[:, 0] * torch.sin(k.view(4, 1) * (at - 1)) + amp[:, 1] * torch.cos(k.view(4, 1) * (at - 1)))).sum(1)
        return before.unsqueeze(1), after.unsqueeze(1)

    def relative(out: Tensor, y: Tensor) -> Tensor:
        return ((out - y).flatten(1).norm(dim=1) / y.flatten(1).norm(dim=1)).sum()

    def quality(net: nn.Module) -> float:
        x, y = fields(200)
        return relative(net(x), y).item() / 200

    model = nn.Sequential(nn.Conv1d(1, 12, 1), Spectral(), nn.GELU(), Spectral(), nn.Conv1d(12, 1, 1))
    return Training(model, partial(ADAM, lr=3e-3, weight_decay=1e-4), lambda _: fields(20), relative, quality, steps=250)


@HALF.net("generative")
def points_by_a_judge_with_hinges() -> Training:
    """A GAN with the hinge loss and spectral norms; the judge has two thirds of the rate times four."""
    make, judge = mlp(4, 48, 48, 2), mlp(2, 48, 48, 1)
    for at in (0, 2, 4):
        nn.utils.parametrizations.spectral_norm(judge[at])

    def step(training: Training, _: int) -> None:
        real, fake = crescent(96), make(torch.randn(96, 4))
        d_loss = F.relu(1 - judge(real)).mean() + F.relu(1 + judge(fake.detach())).mean()
        training.optimizer.zero_grad()
        d_loss.backward()
        training.optimizer.step()
        g_loss = -judge(fake).mean()
        training.others[0].zero_grad()
        g_loss.backward()
        training.others[0].step()

    training = Training(
        Couple(make, judge, (4,)), partial(ADAM, lr=2e-3), lambda _: (crescent(96), torch.ones(96)), lambda out, _: -out.mean(),
        lambda net: apart(net, crescent), steps=400, step=step,
    )  # fmt: skip
    training.optimizer = ADAM(judge.parameters(), lr=4e-3, betas=(0.0, 0.9))
    training.others = (ADAM(make.parameters(), lr=1e-3, betas=(0.0, 0.9)),)
    return training
