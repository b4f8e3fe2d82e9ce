"""Causes that are read from softmaxes, states, pairs and levels of noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab
from modlab.records.clues import PairClues
from modlab.running import attention_graph
from modlab.running.autograd_nodes import walk
from modlab.watching.pairs import pair_clues


def trained(net: nn.Module, batch: Callable[[], tuple[Any, Tensor]], criterion: Callable[[Tensor, Tensor], Tensor]) -> modlab.Watch:
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    with modlab.watch(net, optimizer) as w:
        for _ in range(20):
            inputs, target = batch()
            optimizer.zero_grad()
            loss = criterion(net(*inputs), target)
            loss.backward()
            optimizer.step()
    return w


def kinds(w: modlab.Watch) -> list[str]:
    return [one.kind for one in w.findings]


class Denoiser(nn.Module):
    def __init__(self, hears: bool) -> None:
        super().__init__()
        self.net, self.level, self.hears = nn.Linear(6, 6), nn.Linear(1, 6), hears

    def forward(self, x: Tensor, level: Tensor) -> Tensor:
        return self.net(x) * self.level(level.unsqueeze(1) if self.hears else torch.ones(len(x), 1))


def noisy(right: bool) -> tuple[tuple[Tensor, Tensor], Tensor]:
    clean, level = torch.randn(64, 6), torch.rand(64) + 0.05
    return (clean + level.unsqueeze(1) * torch.randn(64, 6), level if right else level.flip(0)), clean


@pytest.mark.parametrize("right", [True, False])
def test_the_level_of_another_sample(right):
    torch.manual_seed(0)
    told = kinds(trained(Denoiser(hears=True), lambda: noisy(right), F.mse_loss))
    assert ("noise level hidden" in told) is not right


@pytest.mark.parametrize("hears", [True, False])
def test_a_level_that_changes_nothing(hears):
    torch.manual_seed(0)
    net = Denoiser(hears)
    found = modlab.diagnose(net, batch=noisy(right=True), loss=F.mse_loss).experiments
    assert [one.outcome for one in found if one.name == "told"] == ["passed" if hears else "failed"]


class Gate(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gate, self.experts, self.dim = nn.Linear(6, 4), nn.Linear(6, 4), dim

    def forward(self, x: Tensor) -> Tensor:
        return (self.gate(x).softmax(self.dim) * self.experts(x)).sum(1, keepdim=True)


@pytest.mark.parametrize("dim", [0, 1])
def test_a_gate_that_shares_out_samples(dim):
    torch.manual_seed(0)
    told = kinds(trained(Gate(dim), lambda: ((torch.randn(32, 6),), torch.randn(32, 1)), F.mse_loss))
    assert ("softmax over the wrong dimension" in told) is (dim == 0)


class Decoder(nn.Module):
    def __init__(self, keeps: bool) -> None:
        super().__init__()
        self.begin, self.cell, self.head, self.keeps = nn.Linear(4, 8), nn.GRUCell(4, 8), nn.Linear(8, 1), keeps

    def forward(self, x: Tensor) -> Tensor:
        state, said = self.begin(x[:, 0]), []
        for step in x.unbind(1):
            new = self.cell(step, state)
            state = new if self.keeps else state
            said.append(self.head(new))
        return torch.stack(said, 1)


@pytest.mark.parametrize("keeps", [True, False])
def test_a_cell_that_begins_each_time_with_the_same_state(keeps):
    torch.manual_seed(0)
    told = kinds(trained(Decoder(keeps), lambda: ((torch.randn(16, 5, 4),), torch.randn(16, 5, 1)), F.mse_loss))
    assert ("state not kept" in told) is not keeps


def test_what_is_divided_by_its_sum_adds_up_over_what_is_looked_at():
    query, key = (torch.randn(2, 5, 4, requires_grad=True) for _ in range(2))
    shared = (query @ key.transpose(1, 2) / 2).softmax(-2) + 1e-8
    again = shared / shared.sum(-1, keepdim=True)
    assert [one.along for one in attention_graph.attentions(walk(shared.sum().grad_fn, {}))] == [-2]
    assert [one.along for one in attention_graph.attentions(walk(again.sum().grad_fn, {}))] == [-1]


@pytest.mark.parametrize(("power", "scale"), [(-0.5, 0.25), (-5, 16.0**-5)])
def test_by_what_scores_are_multiplied(power, scale):
    query, key = (torch.randn(2, 5, 16, requires_grad=True) for _ in range(2))
    weights = (query @ key.transpose(1, 2) * 16**power).softmax(-1)
    (found,) = attention_graph.attentions(walk(weights.sum().grad_fn, {}))
    assert found.scale == pytest.approx(scale)


def test_targets_that_are_what_is_not_hidden():
    torch.manual_seed(0)
    tokens = torch.randint(10, (32, 12))
    asked = torch.rand(32, 12) < 0.2
    hidden = tokens.masked_fill(asked, 10)
    for left, is_open in ((asked, True), (~asked, False)):
        assert pair_clues([hidden], tokens.masked_fill(left, -100), 0, PairClues()).open is is_open


def test_rows_that_are_filled_up_along_the_samples():
    torch.manual_seed(0)
    tokens = torch.randint(1, 9, (24, 10)).masked_fill(torch.arange(10) >= torch.randint(4, 11, (24, 1)), 0)
    target = torch.randint(3, (24,))
    assert not pair_clues([tokens], target, 0, PairClues()).upright
    assert pair_clues([tokens.T.contiguous()], target[:10], 0, PairClues()).upright


def test_each_one_should_be_like_itself():
    torch.manual_seed(0)
    net = nn.Linear(6, 4)
    batch = lambda: ((torch.randn(32, 6),), torch.arange(32))  # noqa: E731
    hidden = torch.eye(32).roll(16, 0).bool()
    own = trained(net, batch, lambda ends, label: F.cross_entropy((ends @ ends.T).masked_fill(hidden, -1e4), label))
    assert "wrong negatives" in kinds(own)


class Follower(nn.Module):
    """A number for each place of a series."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.rnn, self.out = nn.GRU(1, 16, batch_first=batch_first), nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.rnn(x)[0])


@pytest.mark.parametrize(("batch_first", "time_first", "mixed"), [(False, False, True), (True, False, False), (False, True, False)])
def test_smooth_series_tell_which_dimension_is_time(batch_first, time_first, mixed):
    def batch() -> tuple[Any, Tensor]:
        x = torch.sin(torch.rand(24, 1, 1) * 6 + torch.arange(14.0)[:, None] * (0.3 + 0.3 * torch.rand(24, 1, 1)))
        y = 0.7 * x + 0.3 * x.cumsum(1) / 2
        return ((x.transpose(0, 1),), y.transpose(0, 1)) if time_first else ((x,), y)

    torch.manual_seed(0)
    net = Follower(batch_first)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    with modlab.watch(net, optimizer) as w:
        for _ in range(60):
            inputs, target = batch()
            optimizer.zero_grad()
            F.mse_loss(net(*inputs), target).backward()
            optimizer.step()
    assert ("batch first mixed up" in kinds(w)) is mixed
