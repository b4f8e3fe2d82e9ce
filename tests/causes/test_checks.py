"""What a checker's trainings showed: what is not said of them any more, and what is told."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import modlab
from modlab.running import dropout_graph
from modlab.wording.causes import CAUSES
from modlab.wording.checks import CHECKS


def kinds(w: modlab.Watch) -> list[str]:
    return [one.kind for one in w.findings]


@pytest.mark.parametrize("p", [0.5, 0.9])
def test_a_noise_of_dropout_is_one_by_its_share_of_zeros(p):
    node = F.dropout(torch.ones(64, 64, requires_grad=True), p).grad_fn
    assert [share for *_, share in dropout_graph.dropped([(node, "")])] == [pytest.approx(p)]


def test_a_mask_whose_share_of_zeros_is_another_is_no_dropout():
    mask = 255 * (torch.arange(4096) % 8 == 0).float()
    node = (torch.ones(4096, requires_grad=True) * mask).grad_fn
    assert not [*dropout_graph.dropped([(node, "")])]


class Parts(nn.Module):
    """Is never called itself."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 1)


def test_a_part_that_is_called_once_a_step_is_no_recurrence():
    net = Parts()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with modlab.watch(net, optimizer) as w:
        for _ in range(30):
            loss = F.mse_loss(net.b(torch.relu(net.a(torch.zeros(16, 4)))), torch.randn(16, 1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert "state not kept" not in kinds(w)


class Chosen(nn.Module):
    """Takes rows to the first expert alone."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(4, 1) for _ in range(3)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.experts[0](x[torch.randperm(len(x))[:16]])


def test_an_expert_that_is_never_chosen_is_cut_off_from_nothing():
    net = Chosen()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with modlab.watch(net, optimizer) as w:
        for _ in range(30):
            loss = F.mse_loss(net(torch.randn(32, 4)), torch.randn(16, 1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert "detached" not in kinds(w)


@pytest.mark.parametrize("some", [False, True], ids=["all", "those with labels"])
def test_logarithms_over_samples_are_a_wrong_dimension_and_no_missing_logarithm(some):
    labelled = torch.arange(0, 32, 2) if some else torch.arange(32)
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 5), nn.LogSoftmax(0))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with modlab.watch(net, optimizer) as w:
        for _ in range(30):
            output = net(torch.randn(32, 4))
            loss = F.nll_loss(output[labelled] if some else output, torch.randint(5, (len(labelled),)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert "softmax over the wrong dimension" in kinds(w)
    assert "no log" not in kinds(w)


def test_a_likelihood_without_its_logarithm_has_no_wrong_sign_beside_it():
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    x = torch.randn(400, 4)
    with modlab.watch(net, optimizer) as w:
        for _ in range(100):
            loss = F.nll_loss(net(x)[::2], x.argmax(1)[::2])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert "no log" in kinds(w) and "wrong sign" not in kinds(w)


class Votes(nn.Module):
    """Tables without attention: of users one row alone is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.user, self.film = nn.Embedding(20, 4), nn.Embedding(30, 4)

    def forward(self, user: torch.Tensor, film: torch.Tensor) -> torch.Tensor:
        return (self.user(user // 20) * self.film(film)).sum(1)


def test_tables_without_attention_lack_no_positions():
    net = Votes()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    with modlab.watch(net, optimizer) as w:
        for _ in range(60):
            user, film = torch.randint(20, (64,)), torch.randint(30, (64,))
            loss = F.mse_loss(net(user, film), user.float() % 2 * 2 - 1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert kinds(w)[:1] == ["tokens unknown"]
    assert "no positions" not in kinds(w)


class Drops(nn.Module):
    """A recurrent layer with dropout between its layers, by torch's own code."""

    def __init__(self) -> None:
        super().__init__()
        self.r, self.out = nn.LSTM(4, 16, 2, dropout=0.97, batch_first=True), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.r(x)[0][:, -1])


def seen(net: nn.Module, lr: float, *shape: int) -> modlab.Watch:
    """A training on noise."""
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    with modlab.watch(net, optimizer, budget=1.0) as w:
        for _ in range(40):
            optimizer.zero_grad()
            F.cross_entropy(net(torch.randn(32, *shape)), torch.randint(0, 3, (32,))).backward()
            optimizer.step()
    return w


def test_dropout_of_a_recurrent_layer_has_the_layer_s_name():
    torch.manual_seed(0)
    w = seen(Drops(), 0.01, 5, 4)
    assert [one.text for one in w.findings if one.kind == "too much dropout"] == ["dropout takes nearly everything: r drops 97 %"]


def test_weights_that_mostly_stand_still_ask_for_care_where_the_loss_does_not_fall():
    torch.manual_seed(0)
    check = seen(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3)), 1e-7, 8).verdict.checks[6]
    assert (check.name, check.state) == ("by enough for its dtype", "careful")
    assert "do not move: their steps are lost to rounding" in check.text


def test_how_far_a_step_goes_is_said_in_plain_words():
    facts = {"pace": 1.1, "most": 1.0, "first": 1.0, "rate": 8.0, "last": 23.8, "by": -1, "told": 0.59, "together": 0.0}
    assert "a step changes a weight by as much as its size" in CAUSES["rate too high"].evidence(facts)  # type: ignore[operator]
    assert "leaps up and down" in CHECKS["no trend"](facts)
    said = CAUSES["targets shifted"].evidence(facts)  # type: ignore[operator]
    assert said == "the inputs tell 59 % of the targets one sample after their own, and 0 % of their own"


class Wiped(nn.Module):
    """A branch whose numbers are masked where they count, beside one that knows nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.branch, self.beside = nn.Embedding(10, 8), nn.Linear(4, 8)
        self.head = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        hidden = self.branch(x).masked_fill(torch.ones(len(x), 1, dtype=torch.bool), 0.0)
        return self.head(torch.cat((hidden, self.beside(noise)), 1))


def test_what_a_mask_throws_away_has_no_vanishing_gradient():
    torch.manual_seed(0)
    net, values = Wiped(), torch.linspace(-1, 1, 10)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    with modlab.watch(net, optimizer) as w:
        for _ in range(200):
            x = torch.randint(10, (32,))
            optimizer.zero_grad()
            F.mse_loss(net(x, torch.randn(32, 4)), values[x][:, None]).backward()
            optimizer.step()
    assert "overwritten activation" in kinds(w) and "vanishing gradient" not in kinds(w)


@pytest.mark.parametrize("flat", [nn.Hardsigmoid(), nn.ReLU6(), nn.Sigmoid(), nn.Hardtanh()], ids=lambda one: type(one).__name__)
def test_an_activation_at_its_flat_end_throws_nothing_away(flat):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), flat, nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
    with torch.no_grad():
        net[0].bias.fill_(4000.0)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    with modlab.watch(net, optimizer) as w:
        for _ in range(200):
            x = torch.randn(32, 4)
            optimizer.zero_grad()
            F.mse_loss(net(x), x.sum(1, keepdim=True)).backward()
            optimizer.step()
    assert "overwritten activation" not in kinds(w)
    assert "only zeros come back as the gradient" in str(w.verdict)
