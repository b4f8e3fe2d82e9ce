"""Models that give their loss themselves, states that are carried, and other things of every day."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab
from modlab.causes.symptoms import Symptoms
from modlab.records.clues import PairClues
from modlab.running import loss_graph
from modlab.watching.pairs import pair_clues


def kinds(w: modlab.Watch) -> list[str]:
    return [one.kind for one in w.findings]


class Told(nn.Module):
    """As of transformers: a mask and labels go in, and the loss comes out."""

    def __init__(self, softmax: bool = False) -> None:
        super().__init__()
        self.word, self.head, self.softmax = nn.Embedding(9, 8), nn.Linear(8, 3), softmax

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor) -> SimpleNamespace:
        x = self.word(input_ids) * attention_mask.unsqueeze(-1)
        logits = self.head(x)
        logits = logits.softmax(-1) if self.softmax else logits
        return SimpleNamespace(loss=F.cross_entropy(logits.view(-1, 3), labels.view(-1)), logits=logits)


class Plain(Told):
    """The same, whose output is a dict, as modlab walks through it."""

    def forward(self, *args: Tensor, **named: Tensor) -> Any:
        return vars(super().forward(*args, **named))


def words(rows: int = 32) -> dict[str, Tensor]:
    """Nearly all of the mask is one, and most labels are ignored."""
    ids = torch.randint(2, 9, (rows, 10))
    mask = torch.ones_like(ids)
    mask[0, 8:] = 0
    labels = torch.where(torch.arange(10) < 1, torch.randint(3, ids.shape), -100)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def trained(net: nn.Module, batch: Any, steps: int = 40) -> modlab.Watch:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with modlab.watch(net, optimizer) as w:
        for _ in range(steps):
            optimizer.zero_grad()
            net(**batch())["loss"].backward()
            optimizer.step()
    return w


def test_a_mask_and_labels_are_no_tokens():
    torch.manual_seed(0)
    w = trained(Plain(), words)
    assert [one.name for one in Symptoms(w.record).tokens] == ["['input_ids']"]
    assert "tokens unknown" not in kinds(w)


def test_tokens_that_are_all_one_are_unknown_beside_a_mask():
    torch.manual_seed(0)
    w = trained(Plain(), lambda: {**words(), "input_ids": torch.ones(32, 10, dtype=torch.long)})
    assert "tokens unknown" in kinds(w)


@pytest.mark.parametrize("blanks", [True, False])
def test_a_sign_between_blanks_is_no_text_of_unknown_words(blanks):
    def signs() -> dict[str, Tensor]:
        known = torch.rand(32, 10).argsort(1) == 0 if blanks else torch.rand(32, 10) < 0.1
        return {**words(), "input_ids": torch.where(known, torch.randint(1, 4, (32, 10)), 4)}

    torch.manual_seed(0)
    assert ("tokens unknown" in kinds(trained(Plain(), signs))) is not blanks


def test_a_loss_that_the_model_gives_is_read_to_its_layers():
    torch.manual_seed(0)
    assert "softmax before cross entropy" in kinds(trained(Plain(softmax=True), words))
    (term,) = Symptoms(trained(Plain(), words).record).loss.terms
    assert (term.criterion, term.source) == ("cross-entropy", "head")


class Carried(nn.Module):
    def __init__(self, times: float) -> None:
        super().__init__()
        self.letter, self.rnn, self.out = nn.Embedding(6, 8), nn.RNN(8, 16, nonlinearity="relu", batch_first=True), nn.Linear(16, 6)
        nn.init.orthogonal_(self.rnn.weight_hh_l0, times)

    def forward(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        output, state = self.rnn(self.letter(x), state)
        return self.out(output), state


@pytest.mark.parametrize(("times", "explodes"), [(0.5, False), (3.0, True)])
def test_a_state_that_is_carried_is_no_input(times, explodes):
    torch.manual_seed(0)
    net = Carried(times)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    state = None
    with modlab.watch(net, optimizer) as w:
        for _ in range(40):
            x = torch.randint(6, (16, 21))
            optimizer.zero_grad()
            output, state = net(x[:, :-1], state if state is None else state.detach().clamp(max=1e8))
            F.cross_entropy(output.transpose(1, 2), x[:, 1:]).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
    assert Symptoms(w.record).inputs == []
    assert not {"inputs not scaled", "one huge feature"} & {*kinds(w)}
    assert ("exploding recurrence" in kinds(w)) is explodes


def test_an_input_of_the_shape_of_an_output_is_no_state():
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other, self.out = nn.Linear(6, 16), nn.Linear(3, 3), nn.Linear(19, 1)

        def forward(self, x: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
            z = self.other(c)
            return self.out(torch.cat([self.one(x).tanh(), z], 1)), z

    torch.manual_seed(0)
    net = Two()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-16)
    with modlab.watch(net, optimizer) as w:
        for _ in range(40):
            x = torch.randn(32, 6)
            optimizer.zero_grad()
            F.mse_loss(net(x, 5e4 + 2e4 * torch.randn(32, 3))[0], x[:, :1]).backward()
            optimizer.step()
    assert len(Symptoms(w.record).inputs) == 2
    assert "weights begin too large" not in kinds(w)


def test_evaluation_after_the_training_kept_nothing_from_learning():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    with modlab.watch(net, optimizer) as w:
        for _ in range(40):
            optimizer.zero_grad()
            F.cross_entropy(net(torch.randn(32, 6)), torch.randint(3, (32,))).backward()
            optimizer.step()
    net.eval()
    assert "eval while training" not in [one.kind for one in w.diagnose().findings]


class Messages(nn.Module):
    """A layer of a graph, whose bias is added beside the layer that has none; or nowhere."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.lin = nn.Linear(6, 6, bias=False)
        self.bias = nn.Parameter(torch.zeros(6)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        x = self.lin(x)
        return x if self.bias is None else x + self.bias


@pytest.mark.parametrize("bias", [True, False])
def test_a_bias_beside_a_layer_is_one(bias):
    torch.manual_seed(0)
    net = nn.Sequential(Messages(bias), nn.Tanh(), Messages(bias))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    with modlab.watch(net, optimizer) as w:
        for _ in range(60):
            x = torch.randn(32, 6)
            optimizer.zero_grad()
            F.mse_loss(net(x), torch.full((32, 6), 4.0) + x.flip(1)).backward()
            optimizer.step()
    assert ("no bias where needed" in kinds(w)) is not bias


class Pairs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Embedding(9, 4), nn.Embedding(9, 4)
        nn.init.zeros_(self.one.weight)
        nn.init.zeros_(self.other.weight)

    def forward(self, one: Tensor, other: Tensor) -> dict[str, Tensor]:
        score = (self.one(one) * self.other(other)).sum(1)
        return {"loss": F.binary_cross_entropy_with_logits(score, (one == other).float())}


def test_tables_of_zeros_stand_before_what_they_make_of_the_loss():
    torch.manual_seed(0)
    w = trained(Pairs(), lambda: {"one": torch.randint(9, (32,)), "other": torch.randint(9, (32,))})
    assert kinds(w)[0] == "all weights equal"
    assert "constant loss" not in kinds(w)


@pytest.mark.parametrize("clears", [True, False])
def test_a_policy_whose_loss_falls_may_have_gradients_that_add_up(clears):
    torch.manual_seed(0)
    net = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    with modlab.watch(net, optimizer) as w:
        for step in range(60):
            policy = torch.distributions.Categorical(logits=net(torch.randn(32, 4)))
            arm = policy.sample()
            if clears:
                optimizer.zero_grad()
            (-policy.log_prob(arm) * ((arm == 1).float() * 0.9**step)).mean().backward()
            optimizer.step()
    assert ("no zero grad" in kinds(w)) is not clears


def test_arguments_of_a_divergence_that_are_exchanged():
    said, output = torch.randn(8, 4).softmax(1), torch.randn(8, 4, requires_grad=True).log_softmax(1)
    assert loss_graph.risks(F.kl_div(said, output, reduction="batchmean")) == ("logarithms as targets",)
    assert loss_graph.risks(F.kl_div(output, said, reduction="batchmean")) == ()


@pytest.mark.parametrize(("sign", "all_near"), [(1, True), (-1, False)])
def test_a_sum_of_losses_without_one_that_pushes(sign, all_near):
    one, other, far = (torch.randn(16, 4, requires_grad=True) for _ in range(3))
    scores = torch.bmm(far.unsqueeze(0), one.T.unsqueeze(0)).squeeze(0)
    loss = -(F.logsigmoid((one * other).sum(1)) + F.logsigmoid(-scores if sign < 0 else scores).sum(1)).mean()
    assert loss_graph.read(loss, {})[0].term.positives is all_near


@pytest.mark.parametrize(("turned", "said"), [(True, True), (False, False)])
def test_weights_of_labels_of_their_own(turned, said):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
    weight = torch.tensor([8.0, 9.0, 10.0])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    with modlab.watch(net, optimizer) as w:
        for _ in range(60):
            x = torch.randn(64, 8)
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(net(x), (x[:, :3] > 1.3).float(), pos_weight=1 / weight if turned else weight).backward()
            optimizer.step()
    assert ("weights of classes" in kinds(w)) is said


def test_the_token_after_the_next():
    tokens = torch.randint(20, (8, 12))
    clues = pair_clues([tokens[:, :-2]], tokens[:, 2:], 0, PairClues())
    assert (clues.further, clues.moved < 0.5) == (1.0, True)


def test_an_answer_cannot_bring_more_than_all():
    """A squared share of the right ones is taken away, so one class pays for the other: that is no weight of a class."""
    net, x = nn.Linear(4, 2), torch.randn(64, 4)
    label = (torch.arange(64) % 4 > 0).long()

    def loss(output: Tensor, y: Tensor) -> Tensor:
        each = F.cross_entropy(output, y, reduction="none")
        return each[y == 1].mean() * 1.2 - 0.1 * each[y == 0].mean()

    found = modlab.diagnose(net, batch=(x, label), loss=loss)
    assert "weights of classes" not in [one.kind for one in found.experiments if one.outcome == "failed"]
