"""What loops of public repositories do on purpose, beside what looks the same and is a fault."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab
from tests.causes.test_what_a_task_asks import kinds


def diagnosed(net: nn.Module, optimizer: object, batch: object, loss: object) -> list[str]:
    """What is certain, and the checks that failed."""
    found = modlab.diagnose(net, optimizer, batch=batch, loss=loss)
    return [one.kind for one in found.findings] + [one.kind for one in found.experiments if one.outcome == "failed"]


class Told(nn.Module):
    """An encoder that was trained before, of which the features are taken with or without autograd."""

    def __init__(self, shut: bool) -> None:
        super().__init__()
        self.encoder, self.head, self.shut = nn.Linear(6, 8), nn.Linear(8, 1), shut
        self.encoder(torch.randn(4, 6)).sum().backward()

    def forward(self, x: Tensor) -> Tensor:
        with torch.set_grad_enabled(not self.shut):
            features = self.encoder(x)
        return self.head(features.relu())


@pytest.mark.parametrize("shut", [True, False])
def test_a_gradient_that_was_left_from_before_is_none(shut):
    torch.manual_seed(0)
    net = Told(shut)
    optimizer = torch.optim.SGD(net.head.parameters(), lr=0.01)
    x = torch.randn(32, 6)
    with modlab.watch(net, optimizer) as w:
        for _ in range(40):
            optimizer.zero_grad()
            F.mse_loss(net(x), x[:, :1]).backward()
            optimizer.step()
    assert ("not in the optimizer" in [one.kind for one in w.findings]) is not shut
    assert bool([one for one in w.alerts if one.kind == "not owned"]) is not shut
    told = diagnosed(net, optimizer, (x, x[:, :1]), F.mse_loss)
    assert ("not in the optimizer" in told) is not shut
    assert "in no optimizer" not in told  # the cause has said so of the same parameters
    assert "without grad" not in told


@pytest.mark.parametrize("moved", [True, False])
def test_a_loss_that_falls_was_moved_by_hand(moved):
    torch.manual_seed(0)
    net = nn.Linear(6, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with modlab.watch(net, optimizer) as w:
        for _ in range(200):
            x = torch.randn(32, 6)
            optimizer.zero_grad()
            F.cross_entropy(net(x), torch.distributions.Categorical(logits=1.3 * x[:, :4]).sample()).backward()
            for p in net.parameters() if moved else ():
                p.data -= 0.1 * p.grad
    assert ("no step" in [one.kind for one in w.findings]) is not moved


@pytest.mark.parametrize("several", [True, False])
def test_how_far_a_sum_can_fall_is_not_known(several):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 16, bias=False), nn.Tanh(), nn.Linear(16, 2, bias=False))

    def criterion(out: Tensor, target: Tensor) -> Tensor:
        loss = F.mse_loss(out[:, 0], target)
        return loss + F.softplus(out[:, 1]).mean() if several else loss

    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    with modlab.watch(net, optimizer) as w:
        for _ in range(150):
            x = torch.randn(32, 6)
            optimizer.zero_grad()
            criterion(net(x), 3 * x[:, 0] + 1).backward()
            optimizer.step()
    assert ("no bias where needed" in [one.kind for one in w.findings]) is not several


@pytest.mark.parametrize("rate", [1e-6, 3e-3])
def test_a_rate_is_not_too_low_where_what_goes_backward_is_solved(rate):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer, ends = torch.optim.Adam(net.parameters(), lr=rate), torch.tensor([[0.0], [3.0]])
    with modlab.watch(net, optimizer, budget=1.0) as w:
        for _ in range(300):
            inside = net(3 * torch.rand(64, 1)).detach() - 3  # the equation, whose graph is lost
            optimizer.zero_grad()
            (inside.square().mean() + net(ends).square().mean()).backward()
            optimizer.step()
    assert ("rate too low" in [one.kind for one in w.findings]) is (rate < 1e-3)


@pytest.mark.parametrize("one_place", [True, False])
def test_what_brings_all_to_one_place_has_no_bias_on_purpose(one_place):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 16, bias=False), nn.LeakyReLU(0.1), nn.Linear(16, 4, bias=False))
    centre, optimizer = torch.tensor([0.3, 0.1, -0.2, 0.2]), torch.optim.Adam(net.parameters(), lr=1e-3)
    with modlab.watch(net, optimizer) as w:
        for _ in range(60):
            x = torch.randn(32, 6)
            optimizer.zero_grad()
            F.mse_loss(net(x), centre.expand(32, 4) + (0 if one_place else 0.1 * x[:, :1])).backward()
            optimizer.step()
    assert ("no bias where needed" in [one.kind for one in w.findings]) is not one_place


def test_a_loss_that_begins_at_zero_and_goes_both_ways_has_no_scale():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 4))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    with modlab.watch(net, optimizer) as w:
        for _ in range(40):
            x = torch.randn(24, 6)
            action = net(x).softmax(1).multinomial(1)
            old = net(x).log_softmax(1).gather(1, action).detach()
            reward = (action == 1).float()
            advantage = (reward - reward.mean()) / (reward.std() + 1e-4)
            for _ in range(3):
                loss = -((net(x).log_softmax(1).gather(1, action) - old).exp() * advantage).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    assert "rate too high" not in [one.kind for one in w.findings]


@pytest.mark.parametrize("bursts", [True, False])
def test_a_loss_that_goes_both_ways_has_its_size_from_how_far_it_goes(bursts):
    net = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    with modlab.watch(net, optimizer, budget=1.0) as w:
        for step in range(100):
            goes = 0.002 - 0.1 * math.sin(step / 8) + (0.001 * 1.15**step if bursts else 0.0)
            score = net(torch.randn(24, 6)).mean()
            optimizer.zero_grad()
            (score - score.detach() + goes).backward()
            optimizer.step()
    assert ("rate too high" in [one.kind for one in w.findings]) is bursts


class Machine(nn.Module):
    """A restricted Boltzmann machine, whose free energy is computed beside its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.W = nn.Parameter(0.1 * torch.randn(8, 6))

    def forward(self, v: Tensor) -> Tensor:
        return torch.sigmoid(torch.bernoulli(torch.sigmoid(v @ self.W.T)) @ self.W)

    def energy(self, v: Tensor) -> Tensor:
        return -F.softplus(F.linear(v, self.W)).sum(1).mean()


@pytest.mark.parametrize("penalty", [True, False])
def test_samples_that_meet_parameters_in_a_product_are_no_penalty(penalty):
    torch.manual_seed(0)
    net = Machine()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    patterns = torch.eye(6)[torch.randint(6, (5, 2))].sum(1)
    with modlab.watch(net, optimizer) as w:
        for _ in range(60):
            v = patterns[torch.randint(5, (20,))]
            made = net(v).detach()
            loss = net.W.square().sum() if penalty else net.energy(v) - net.energy(torch.bernoulli(made))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    told = [one.kind for one in w.findings]
    assert ("constant loss" in told) is penalty
    assert penalty or "few samples" not in told


@pytest.mark.parametrize("turns", [True, False])
def test_a_net_that_is_frozen_in_anothers_turn(turns):
    net = nn.ModuleDict({"maker": nn.Linear(3, 3), "judge": nn.Linear(3, 1)})
    net["judge"](net["maker"](torch.randn(4, 3))).sum().backward()
    net["judge"].requires_grad_(False)
    parts = [torch.optim.Adam(one.parameters()) for one in net.values()]
    told = [one.kind for one in modlab.diagnose(net, parts if turns else torch.optim.Adam(net.parameters())).findings]
    assert ("frozen, but moves" in told) is not turns


class Chain(nn.Module):
    """Three numbers of which no batch is learnt by heart."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.tensor([3.0, -3.0, 0.0]))

    def forward(self, x: Tensor) -> Tensor:
        return self.scores.log_softmax(0)[x]


@pytest.mark.parametrize("trained", [True, False])
def test_what_has_come_down_already_may_be_as_low_as_it_can(trained):
    torch.manual_seed(0)
    net = Chain()
    if not trained:
        net.scores.data = torch.tensor([0.7, 0.2, 0.1]).log()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    batch = torch.multinomial(torch.tensor([0.7, 0.2, 0.1]), 400, replacement=True), torch.zeros(400)

    def loss(out: Tensor, _: Tensor) -> Tensor:
        return -out.mean()

    with modlab.watch(net, optimizer) as w:
        for _ in range(200):
            optimizer.zero_grad()
            loss(net(batch[0]), batch[1]).backward()
            optimizer.step()
    overfit = next(one for one in w.diagnose(batch=batch, loss=loss).experiments if one.name == "overfit")
    assert (overfit.outcome == "failed") is not trained


class Reader(nn.Module):
    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.embed, self.rnn, self.out = nn.Embedding(9, 8), nn.GRU(8, 8, batch_first=batch_first), nn.Linear(8, 9)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.rnn(self.embed(x))[0]).flatten(0, 1)


@pytest.mark.parametrize("batch_first", [False, True])
def test_time_is_where_the_next_token_stands(batch_first):
    torch.manual_seed(0)

    def batch() -> tuple[Tensor, Tensor]:
        x = torch.randint(9, (8, 12)).T
        return x[:-1], x[1:].flatten()

    assert ("batch first mixed up" in kinds(Reader(batch_first), batch, F.cross_entropy)) is batch_first


class Tagger(nn.Module):
    """A batch of one: a sentence, or so many samples taken for one."""

    def __init__(self, tokens: bool) -> None:
        super().__init__()
        self.first = nn.Embedding(9, 8) if tokens else nn.Linear(3, 8)
        self.rnn, self.out = nn.LSTM(8, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.rnn(self.first(x).unsqueeze(1))[0].squeeze(1))


@pytest.mark.parametrize("tokens", [True, False])
def test_places_of_one_sentence_are_no_samples(tokens):
    torch.manual_seed(0)

    def batch() -> tuple[Tensor, Tensor]:
        return (torch.randint(9, (12,)) if tokens else torch.randn(12, 3)), torch.randint(4, (12,))

    net = Tagger(tokens)
    assert ("batch first mixed up" in kinds(net, batch, F.cross_entropy)) is not tokens
    told = diagnosed(net, torch.optim.SGD(net.parameters(), lr=0.1), batch(), F.cross_entropy)
    assert ("batch first mixed up" in told) is not tokens


@pytest.mark.parametrize("shared", [True, False])
def test_a_pixel_that_classes_share_does_not_tell_them(shared):
    torch.manual_seed(0)

    def batch() -> tuple[Tensor, Tensor]:
        label = torch.randint(4, (48,))
        x = torch.randn(48, 12)
        x[:, 3] = (label % 2 if shared else label) + 0.02 * torch.randn(48)
        return x, label

    assert ("leak" in kinds(nn.Linear(12, 4), batch, F.cross_entropy)) is not shared


@pytest.mark.parametrize("planned", [True, False])
def test_a_rate_that_goes_up_is_not_too_low(planned):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-6)
    if planned:
        torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=100, div_factor=1e4)
    x = torch.randn(32, 6)
    assert ("rate too low" in diagnosed(net, optimizer, (x, x[:, :1]), F.mse_loss)) is not planned


@pytest.mark.parametrize("rate", [5.0, 0.01])
def test_long_steps_reach_large_targets(rate):
    torch.manual_seed(0)
    net = nn.Linear(6, 1)
    x = torch.randn(32, 6)
    told = diagnosed(net, torch.optim.Adam(net.parameters(), lr=rate), (x, 180 + 30 * x[:, :1]), F.mse_loss)
    assert ("targets not scaled" in told) is (rate < 1)


def energy(net: nn.Module) -> Tensor:
    x = torch.rand(64, 1, requires_grad=True)
    u = net(x)
    slope = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
    return (0.5 * slope**2 - 8 * u).mean() + 100 * net(torch.tensor([[0.0], [1.0]])).square().mean()


def test_an_energy_compares_slopes_and_not_samples():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    with modlab.watch(net, optimizer) as w:
        for _ in range(150):
            optimizer.zero_grad()
            energy(net).backward()
            optimizer.step()
    assert "collapse" not in [one.kind for one in w.findings]


# ---- models that take the target, too, and give their loss


class Tags(nn.Module):
    """A tag for each token."""

    def __init__(self, pack) -> None:
        super().__init__()
        self.words, self.lstm, self.head, self.pack = nn.Embedding(20, 16), nn.LSTM(16, 16, batch_first=True), nn.Linear(16, 4), pack

    def forward(self, ids, labels=None):
        logits = self.head(self.lstm(self.words(ids))[0])
        return self.pack(F.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits)


class Pairs(Tags):
    """Two numbers for each row."""

    def forward(self, ids, labels=None):
        logits = self.head(self.lstm(self.words(ids))[0].mean(1))[:, :2]
        return self.pack(F.mse_loss(logits, labels), logits)


def tags() -> dict[str, Tensor]:
    ids = torch.randint(20, (16, 8))
    return {"ids": ids, "labels": ids % 4}


def means() -> dict[str, Tensor]:
    ids = torch.randint(20, (16, 8))
    return {"ids": ids, "labels": torch.stack([(ids < 5).float().mean(1), (ids > 9).float().mean(1)], 1)}


@pytest.mark.parametrize(("net", "batch"), [(Tags, tags), (Pairs, means)])
@pytest.mark.parametrize(
    ("pack", "loss_of"),
    [
        (lambda loss, logits: {"loss": loss, "logits": logits}, lambda out: out["loss"]),
        (lambda loss, logits: (loss, logits), lambda out: out[0]),
        (lambda loss, logits: loss, lambda out: out),
        (lambda loss, logits: SimpleNamespace(loss=loss, logits=logits), lambda out: out.loss),
    ],
    ids=["dict", "tuple", "the loss alone", "an object"],
)
def test_a_model_that_takes_the_target_and_gives_its_loss_has_no_leak(net, batch, pack, loss_of):
    torch.manual_seed(0)
    model = net(pack)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    with modlab.watch(model, optimizer) as w:
        for _ in range(60):
            optimizer.zero_grad()
            loss_of(model(**batch())).backward()
            optimizer.step()
    assert w.verdict.exit_code in (0, 3), w.headline
    assert "targets not moved" not in {one.kind for one in w.findings}
