"""What trainings written in other ways showed: a mask, a token, a level, a softmax, and what follows from something else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab
from modlab.running import loss_graph
from modlab.watching.pools import InputPool
from tests.causes.test_sequences import kinds, trained


def told(net: nn.Module, batch: Any, criterion: Any) -> list[str]:
    torch.manual_seed(0)
    return kinds(trained(net, batch, criterion))


@pytest.mark.parametrize(("hides", "found"), [("others", False), ("answers", True), ("a few answers", False)])
def test_a_mask_of_scores_that_hides_the_answers(hides, found):
    scores, label = torch.randn(16, 5, requires_grad=True), torch.arange(16) % 5
    mask = F.one_hot(label, 5).bool()
    mask = {"others": ~mask, "answers": mask, "a few answers": mask & (torch.arange(16) < 5)[:, None]}[hides]
    assert ("answers hidden" in loss_graph.risks(F.cross_entropy(scores.masked_fill(mask, -1e4), label))) is found


class Speaker(nn.Module):
    """A decoder that is fed tokens, of which the loop asks for those from the second one on."""

    def __init__(self, first: int) -> None:
        super().__init__()
        self.emb, self.rnn, self.out, self.first = nn.Embedding(9, 8), nn.GRU(8, 8, batch_first=True), nn.Linear(8, 9), first

    def forward(self, start: Tensor, tokens: Tensor) -> Tensor:
        fed = tokens[:, self.first : tokens.shape[1] - 1 + self.first]
        return self.out(self.rnn(self.emb(fed), start[None])[0])


@pytest.mark.parametrize("first", [0, 1])
def test_a_decoder_that_is_fed_what_it_should_say(first):
    def batch() -> tuple[Any, Tensor]:
        tokens = torch.randint(9, (16, 6))
        return (torch.randn(16, 8), tokens), tokens[:, 1:]

    found = told(Speaker(first), batch, lambda out, target: F.cross_entropy(out.flatten(0, 1), target.flatten()))
    assert ("targets not moved" in found) is bool(first)


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.level, self.net = nn.Embedding(20, 4), nn.Linear(10, 6)

    def forward(self, x: Tensor, level: Tensor) -> Tensor:
        return self.net(torch.cat([x, self.level(level)], 1))


@pytest.mark.parametrize("many", [True, False])
def test_one_level_of_all(many):
    def batch() -> tuple[Any, Tensor]:
        level, noise = torch.randint(20, (64,)), torch.randn(64, 6)
        return (torch.randn(64, 6) + 0.2 * level[:, None] * noise, level if many else 0 * level), noise

    assert (told(Denoiser(), batch, F.mse_loss)[:1] == ["noise level hidden"]) is not many


class Sets(nn.Module):
    """Attention over the places of a set, or over the sets of a batch, that learns in any case."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.score, self.out, self.dim = nn.Linear(3, 1), nn.Linear(3, 2), dim

    def forward(self, x: Tensor) -> Tensor:
        return self.out((self.score(x).softmax(self.dim) * x).sum(1)) + 20 * x[:, 0, :1] * torch.tensor([-1.0, 1.0])


@pytest.mark.parametrize("dim", [0, 1])
def test_a_softmax_over_the_samples_of_sets_that_are_learnt(dim):
    def batch() -> tuple[Any, Tensor]:
        x = torch.randn(32, 5, 3)
        return (x,), (x[:, 0, 0] > 0).long()

    assert ("softmax over the wrong dimension" in told(Sets(dim), batch, F.cross_entropy)) is (dim == 0)


class Likeness(nn.Module):
    """The loss is inside: the rows of two tables against each other."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Embedding(12, 8), nn.Embedding(12, 8)
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, ids: Tensor) -> Tensor:
        one, other = F.normalize(self.first(self.a(ids)), dim=1), F.normalize(self.second(self.b(ids)), dim=1)
        return F.cross_entropy(one @ other.T / 0.1, torch.arange(len(ids)))


def test_what_begins_equal_has_a_loss_without_a_slope():
    net = Likeness()
    for one in net.parameters():
        nn.init.constant_(one, 0.1)
    found = told(net, lambda: ((torch.randperm(12),), torch.zeros(12)), lambda loss, _: loss)
    assert found[0] == "all weights equal" and "constant loss" not in found


class PassedBy(nn.Module):
    """The head reads what was there before the layers."""

    def __init__(self) -> None:
        super().__init__()
        self.front, self.token = nn.Linear(6, 8), nn.Parameter(torch.randn(1, 1, 8))
        self.places = nn.Parameter(0.02 * torch.randn(1, 4, 8))
        self.layers, self.head = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([self.token.expand(len(x), -1, -1), self.front(x)], 1) + self.places
        self.layers(x)
        return self.head(x[:, 0])


def test_a_gradient_that_goes_past_layers_does_not_vanish_in_them():
    found = told(PassedBy(), lambda: ((torch.randn(32, 3, 6),), torch.randint(3, (32,))), F.cross_entropy)
    assert found[0] == "unused layers" and "vanishing gradient" not in found[:1]


def test_a_loss_that_has_leapt_and_came_back_tells_of_the_rate_first():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 4))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.4)
    with modlab.watch(net, optimizer) as w:
        for _ in range(150):
            x, noise = torch.randn(64, 4), torch.randn(64, 4)
            optimizer.zero_grad()
            F.mse_loss(net(x + noise), noise).backward()
            optimizer.step()
    assert kinds(w)[0] == "rate too high"
    assert w.diagnose().findings[0].kind == "rate too high"


class Writer(nn.Module):
    """A language model with an attention of its own, whose table of places is added or forgotten."""

    def __init__(self, adds: bool, rows: int) -> None:
        super().__init__()
        self.adds = adds
        self.wte, self.wpe = nn.Embedding(7, 16), nn.Embedding(rows, 16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 7)

    def forward(self, tokens: Tensor) -> Tensor:
        h = self.wte(tokens)
        if self.adds:
            h = h + self.wpe(torch.arange(tokens.shape[1]))
        q, k, v = self.qkv(h).chunk(3, -1)
        later = torch.ones(tokens.shape[1], tokens.shape[1]).triu(1).bool()
        return self.out(h + (q @ k.mT / 4).masked_fill(later, -torch.inf).softmax(-1) @ v)


@pytest.mark.parametrize(("adds", "rows", "found"), [(False, 10, True), (True, 10, False), (False, 4, False)])
def test_places_that_are_not_added_though_the_loss_falls(adds, rows, found):
    def batch() -> tuple[Any, Tensor]:
        tokens = (torch.randint(7, (32, 1)) + torch.arange(9)) % 7
        return (tokens[:, :-1],), tokens[:, 1:]

    torch.manual_seed(0)
    net = Writer(adds, rows)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-2)
    with modlab.watch(net, optimizer) as w:
        for _ in range(60):
            inputs, target = batch()
            optimizer.zero_grad()
            F.cross_entropy(net(*inputs).flatten(0, 1), target.flatten()).backward()
            optimizer.step()
    assert ("no positions" in kinds(w)) is found


class Stepped(nn.Module):
    """Codes between two layers; of the loss, a penalty of theirs comes to what is before them in any case."""

    def __init__(self, code: Any) -> None:
        super().__init__()
        self.enc, self.dec, self.code = nn.Linear(6, 4), nn.Linear(4, 6), code

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.enc(x)
        return self.dec(self.code(h)), h


@pytest.mark.parametrize(
    ("code", "found"),
    [
        (lambda h: torch.floor(4 * h) / 4, True),
        (lambda h: -(h.sign() * 0.5 + 0.5), True),
        (lambda h: h.round().flatten(1) + 1, True),
        (lambda h: h + (h.round() - h).detach(), False),
        (lambda h: h / 4 + 1, False),
    ],
    ids=["floor", "sign", "round", "straight through", "scaled"],
)
def test_what_is_rounded_and_then_scaled_lets_no_gradient_through(code, found):
    fixed = torch.randn(16, 6)
    w = trained(Stepped(code), lambda: ((fixed,), fixed), lambda out, target: F.mse_loss(out[0], target) + 0.01 * out[1].square().mean())
    assert ("no gradient through" in kinds(w)) is found
    if found:
        cause = next(one for one in w.findings if one.kind == "no gradient through")
        assert (cause.path, cause.facts["places"]) == ("dec", ("enc.weight",))
        assert "of the part of the loss that knows the targets no gradient comes to enc.weight" in str(w.verdict)


@pytest.mark.parametrize(("factor", "found"), [(1e-3, True), (1.0, False)])
def test_a_schedule_that_holds_the_rate_low_for_good(factor, found):
    """A rate was returned where a factor is meant."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 5))
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: factor)
    with modlab.watch(net, optimizer) as w:
        for _ in range(60):
            label = torch.randint(5, (32,))
            optimizer.zero_grad()
            F.nll_loss(net(F.one_hot(label, 6).float()).log_softmax(1), label).backward()
            optimizer.step()
            schedule.step()
    assert ("rate too low" in kinds(w)) is found


@pytest.mark.parametrize(("temperature", "found"), [(5e-4, True), (0.1, False)])
def test_a_temperature_that_nobody_means(temperature, found):
    """Views are learnt through it all the same, to some part."""

    def loss(out: Tensor, target: Tensor) -> Tensor:
        one, other = (F.normalize(half, dim=1) for half in out.chunk(2))
        return F.cross_entropy(one @ other.T / temperature, target)

    def batch() -> tuple[Any, Tensor]:
        x = torch.randn(32, 6)
        return (torch.cat([x, x + 0.3 * torch.randn(32, 6)]),), torch.arange(32)

    assert ("temperature" in told(nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 8)), batch, loss)) is found


@pytest.mark.parametrize(("numbers", "right"), [(2, True), (16, True), (16, False)])
def test_how_noisy_two_numbers_are_is_a_matter_of_chance(numbers, right):
    """A level that is right may tell little there."""
    torch.manual_seed(0)
    pool = InputPool("level")
    for _ in range(10):
        clean, noise, level = torch.randn(128, numbers).sign(), torch.randn(128, numbers), torch.rand(128)
        pool.beside_noise(level if right else level.flip(0), clean + 0.05 * 10 ** level[:, None] * noise, noise)
    assert (pool.clues().tells > 0) is right


def test_where_all_is_learned_the_loss_still_depends_on_the_output():
    """Gradients of the weights that add up to nothing over all data."""
    torch.manual_seed(0)
    x = torch.randn(100, 3)
    y = torch.bernoulli((x @ torch.tensor([1.0, -2.0, 0.5])).sigmoid())
    net = nn.Sequential(nn.Linear(3, 1), nn.Sigmoid(), nn.Flatten(0))
    exact = torch.optim.LBFGS(net.parameters(), max_iter=200, tolerance_grad=1e-9, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        exact.zero_grad()
        loss = F.binary_cross_entropy(net(x), y)
        loss.backward()
        return loss

    exact.step(closure)
    found = modlab.diagnose(net, torch.optim.SGD(net.parameters(), 0.1), batch=(x, y), loss=nn.BCELoss())
    assert "constant loss" not in [one.kind for one in found.findings]


@pytest.mark.parametrize(("rate", "found"), [(1e-3, False), (30.0, True)])
def test_targets_of_which_some_are_far_off_are_no_rise(rate, found):
    """The first batch has none of these."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    with modlab.watch(net, optimizer) as w:
        for number in range(40):
            x, far = torch.randn(32, 3), 40 * torch.randn(32, 1) * (torch.rand(32, 1) < 0.05)
            error = net(x) - (x.sum(1, keepdim=True).sin() + (far if number else 0))
            optimizer.zero_grad()
            (error + F.softplus(-2 * error) - 0.693).mean().backward()
            optimizer.step()
    assert ("rate too high" in kinds(w)) is found
