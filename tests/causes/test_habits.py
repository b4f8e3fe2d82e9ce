"""What is written by habit: a hook with another name, gradients that take a way round, one layer in three places, a teacher beside."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab
from modlab import wording
from modlab.causes.symptoms import Symptoms
from modlab.records.finding import Finding
from modlab.running import loss_graph
from tests.causes.test_sequences import kinds, trained
from tests.causes.test_untrue import watched


def net(answers: int = 3) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, answers))


def values() -> tuple[tuple[Tensor], Tensor]:
    x = torch.randn(32, 6)
    return (x,), torch.stack([x[:, 0], x[:, 1] * x[:, 2], x[:, 3].sin()], 1)


@pytest.mark.parametrize(
    "share, said", [(1.0, "all of the model is frozen: all its numbers"), (0.7, "most of the model is frozen: 70 % of its")]
)
def test_how_much_of_a_model_is_frozen_is_told(share, said):
    assert wording.said(Finding("frozen", facts={"share": share, "tier": 0})).startswith(said)


def test_pass_after_pass_with_an_optimizer_that_is_never_asked():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with modlab.watch(model, optimizer) as w:
        for _ in range(60):
            F.mse_loss(model(*values()[0]), values()[1])
    assert kinds(w)[0] == "no backward"
    assert w.findings[0].facts["rival"] == "no step"


def test_passes_that_only_look_are_no_training():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with modlab.watch(model, optimizer) as w, torch.no_grad():
        for _ in range(60):
            model(*values()[0])
    assert "no backward" not in kinds(w)


@pytest.mark.parametrize(("part", "cause"), [(1e-9, "underflow"), (1.0, "gradients overwritten")])
def test_zeros_in_other_tensors_than_backward_has_left(part, cause):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with modlab.watch(model, optimizer) as w:
        for _ in range(60):
            (inputs, target), _zeroed = values(), optimizer.zero_grad()
            (F.mse_loss(model(*inputs), target) * part).backward()
            for one in model.parameters():
                one.grad = (one.grad / 1e4).half().float() if part < 1 else (one.grad / 100).int().float()
            optimizer.step()
    assert kinds(w)[0] == cause


class Heads(nn.Module):
    def __init__(self, heads: list[nn.Module]) -> None:
        super().__init__()
        self.body, self.heads = nn.Sequential(nn.Linear(6, 24), nn.ReLU()), nn.ModuleList(heads)

    def forward(self, x: Tensor) -> Tensor:
        h = self.body(x)
        return torch.cat([head(h) for head in self.heads], 1)


@pytest.mark.parametrize("wrong", [True, False])
def test_one_head_in_three_places_says_the_same_three_times(wrong):
    torch.manual_seed(0)
    heads = [nn.Linear(24, 1)] * 3 if wrong else [nn.Linear(24, 1) for _ in range(3)]
    assert ("shared by mistake" in kinds(trained(Heads(heads), values, F.mse_loss))) is wrong


@pytest.mark.parametrize(("order", "severity"), [((0, 0, 0, 0), "careful"), ((0, 1, 0, 1), ""), ((0, 1, 2, 3), "")])
def test_one_layer_at_places_that_follow_one_another_is_worth_a_look_where_it_learns(order, severity):
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(4)]
    model = nn.Sequential(*(layers[one] for one in order), nn.Linear(6, 3))
    x = torch.randn(64, 6)
    w = watched(model, lambda: F.mse_loss(model(x), x[:, :3] + 0.7 * x[:, 3:].sin()), 150, torch.optim.Adam(model.parameters(), 1e-2))
    found = next((one for one in w.verdict.findings if one.kind == "shared by mistake"), None)
    assert 0.6 < Symptoms(w.record).progress < 0.95
    assert (found.severity if found is not None else "") == severity


class Taught(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.teacher, self.student = net().requires_grad_(False), net()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            said = self.teacher(x)
        return self.student(x), said


def test_a_teacher_is_frozen_and_a_divergence_takes_logarithms():
    def of_chances(output: tuple[Tensor, Tensor], _: Tensor) -> Tensor:
        return F.kl_div(F.softmax(output[0], -1), F.softmax(output[1], -1), reduction="batchmean")

    told = kinds(trained(Taught(), values, of_chances))
    assert told[0] == "no log" and "frozen" not in told


def test_a_hyperbolic_cosine_of_what_is_large():
    far = torch.tensor([[1.0], [150.0]], requires_grad=True)
    assert loss_graph.risks(torch.log(torch.cosh(far)).mean()) == ("overflow",)
    assert loss_graph.risks(torch.log(torch.cosh(far / 100)).mean()) == ()


@pytest.mark.parametrize("turned", [False, True])
def test_an_error_in_other_units_is_one(turned):
    output, target = torch.randn(8, 2, requires_grad=True), torch.randn(8, 2)
    apart = target - output if turned else output - target
    term = loss_graph.read(((apart / 50) ** 2).mean(), {})[0].term
    assert term.criterion == "squared error"
    assert term.factor == pytest.approx(1 / 2500)


class Weighs(nn.Module):
    """Attention over five things."""

    def __init__(self, forgets: bool) -> None:
        super().__init__()
        self.score, self.last, self.forgets = nn.Linear(6, 24), nn.Linear(24, 3), forgets

    def forward(self, x: Tensor) -> Tensor:
        h = self.score(x).unflatten(-1, (6, 4))
        weights = h.softmax(-1)
        return self.last((weights if self.forgets else weights * h).sum(-1).repeat(1, 4))


@pytest.mark.parametrize("forgets", [True, False])
def test_weights_that_are_added_up_and_weigh_nothing(forgets):
    torch.manual_seed(0)
    told = kinds(trained(Weighs(forgets), values, F.mse_loss))
    assert ("overwritten activation" in told) is forgets


@pytest.mark.parametrize(("dtype", "first"), [(torch.bfloat16, "too few digits"), (torch.float32, "constant targets")])
def test_targets_that_are_all_the_same_do_not_keep_a_loss_high(dtype, first):
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5 if dtype is torch.bfloat16 else 1e-2)
    with modlab.watch(model, optimizer, budget=1) as w:
        for _ in range(80):
            optimizer.zero_grad()
            loss = F.mse_loss(model(torch.randn(32, 6).to(dtype)), torch.full((32, 1), 5.0, dtype=dtype))
            loss.backward()
            optimizer.step()
    found = kinds(w)
    assert found[0] == first, found
