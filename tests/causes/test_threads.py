"""What people ask on forums: a loss without a graph, a judge that is stepped often, chances that are never below a half, codes cut off."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Normal

import modlab
from modlab.causes import table
from modlab.running import loss_graph, pair_losses
from tests.causes.test_sequences import kinds, trained


def classes() -> tuple[tuple[Tensor], Tensor]:
    label = torch.randint(3, (48,))
    return (F.one_hot(label, 6).float() * 2 + 0.5 * torch.randn(48, 6),), label


def net(*last: nn.Module, answers: int = 3) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, answers), *last)


def of_numbers(output: Tensor, label: Tensor) -> Tensor:
    loss = F.mse_loss(output.argmax(1).float(), label.float())
    loss.requires_grad = True
    return loss


def of_a_new_tensor(output: Tensor, label: Tensor) -> Tensor:
    return 2 * torch.tensor(F.cross_entropy(output, label).item(), requires_grad=True)


@pytest.mark.parametrize("criterion", [of_numbers, of_a_new_tensor])
def test_a_loss_that_was_told_to_require_a_gradient_is_cut_off_and_has_a_backward(criterion):
    assert kinds(trained(net(), classes, criterion))[0] == "detached"


def test_a_backward_pass_that_is_missing_is_told_as_that():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with modlab.watch(model, optimizer) as w:
        for _ in range(20):
            optimizer.zero_grad()
            F.cross_entropy(model(*classes()[0]), classes()[1])
            optimizer.step()
    assert kinds(w)[0] == "no backward"


def test_a_backward_pass_after_the_step():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with modlab.watch(model, optimizer) as w:
        for _ in range(60):
            (x,), label = classes()
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), label)
            optimizer.step()
            loss.backward()
    assert kinds(w)[0] == "zeroed before step"


def test_gradients_that_another_loss_leaves_alone_do_not_add_up():
    torch.manual_seed(0)
    both = nn.ModuleDict({"maker": nn.Linear(3, 2), "judge": nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))})
    makes, judges = (torch.optim.SGD(one.parameters(), lr=0.01) for one in both.values())
    with modlab.watch(both, (makes, judges)) as w:
        for _ in range(40):
            for _again in range(10):
                judges.zero_grad()
                told, made = both["judge"](torch.randn(16, 2)), both["judge"](both["maker"](torch.randn(16, 3)).detach())
                F.binary_cross_entropy_with_logits(torch.cat([told, made]), torch.cat([torch.ones(16, 1), torch.zeros(16, 1)])).backward()
                judges.step()
            makes.zero_grad()
            F.binary_cross_entropy_with_logits(both["judge"](both["maker"](torch.randn(16, 3))), torch.ones(16, 1)).backward()
            makes.step()
    assert "no zero grad" not in kinds(w)


def test_logarithms_of_chances_are_what_a_likelihood_wants_after_a_training_too():
    model = net(nn.LogSoftmax(1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    with modlab.watch(model, optimizer) as w:
        for _ in range(150):
            (x,), label = classes()
            optimizer.zero_grad()
            F.nll_loss(model(x), label).backward()
            optimizer.step()
    assert [one.kind for one in w.diagnose().findings] == []


def yes_or_no() -> tuple[tuple[Tensor], Tensor]:
    (x,), label = classes()
    return (x,), (label == 0).float().unsqueeze(1)


@pytest.mark.parametrize(("last", "wrong"), [(nn.ReLU(), True), (nn.Identity(), False), (nn.LeakyReLU(0.1), False)])
def test_scores_that_are_never_below_0_say_no_to_nothing(last, wrong):
    assert ("output cannot reach" in kinds(trained(net(last, answers=1), yes_or_no, F.binary_cross_entropy_with_logits))) is wrong


class Coder(nn.Module):
    """An autoencoder that draws its code."""

    def __init__(self, cut: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder, self.decoder, self.cut = nn.Linear(6, 8), nn.Linear(4, 6), cut

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, spread = self.encoder(x).chunk(2, 1)
        drawn = Normal(mean, spread.exp())
        return self.decoder(drawn.sample() if self.cut else drawn.rsample()), mean, spread


def with_divergence(output: tuple[Tensor, Tensor, Tensor], x: Tensor) -> Tensor:
    given, mean, spread = output
    return F.mse_loss(given, x) + 0.01 * (mean.square() + (2 * spread).exp() - 2 * spread - 1).mean()


@pytest.mark.parametrize("cut", [True, False])
def test_a_code_that_is_drawn_without_a_graph(cut):
    def batch() -> tuple[tuple[Tensor], Tensor]:
        (x,), _ = classes()
        return (x,), x

    assert ("detached" in kinds(trained(Coder(cut), batch, with_divergence))) is cut


class Letters(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.rnn, self.head = nn.Embedding(7, 8), nn.GRU(8, 16, batch_first=True), nn.Linear(16, 7)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(self.table(x))[0])


@pytest.mark.parametrize("viewed", [True, False])
def test_classes_that_are_put_second_by_a_view(viewed):
    def criterion(output: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(output.reshape(len(output), 7, -1) if viewed else output.transpose(1, 2), target)

    def batch() -> tuple[tuple[Tensor], Tensor]:
        x = (torch.randint(7, (24, 1)) + torch.arange(11)) % 7
        return (x[:, :-1],), x[:, 1:]

    torch.manual_seed(0)
    assert ("wrong axes" in kinds(trained(Letters(), batch, criterion))) is viewed


def pairs(same: Tensor) -> Any:
    torch.manual_seed(0)
    near, far = torch.randn(64, 3, requires_grad=True), torch.randn(64, 3, requires_grad=True)
    distance = F.pairwise_distance(near, far)
    loss = (same * distance**2 + (1 - same) * torch.clamp(2 - distance, min=0) ** 2).mean()
    return distance, loss_graph.read(loss, {})[0]


def test_pairs_that_belong_together_and_those_that_do_not():
    same = (torch.arange(64) % 3 == 0).float()
    distance, found = pairs(same)
    ranks = pair_losses.ranks(found.node, 1.0)
    assert ranks is not None and ranks.drawn and ranks.margin == pytest.approx(2.0, abs=1e-5)
    assert torch.equal(ranks.pulled, distance[same > 0][: len(ranks.pulled)].detach())
    assert not found.term.positives
    assert pairs(torch.ones(64))[1].term.positives


def test_a_generator_without_gradients_comes_before_the_cut():
    names = [row.cause for row in table.ROWS]
    assert names.index("generator detached") < names.index("detached")
