"""Causes that lie in the model: norms apart, cells that are cut, bounds that nothing reaches, weights that nothing uses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import modlab
from modlab.causes.symptoms import Symptoms
from modlab.running.attention_graph import attentions
from modlab.running.autograd_nodes import walk
from tests.causes.test_sequences import kinds, trained


def values() -> tuple[tuple[Tensor], Tensor]:
    x = torch.randn(64, 4)
    return (x,), (3 * x).sin().sum(1, keepdim=True) + 3


def told(net: nn.Module) -> list[str]:
    return kinds(trained(net, values, F.mse_loss))


@pytest.mark.parametrize("apart", [True, False])
def test_norms_that_stay_in_evaluation_mode(apart):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
    if apart:
        net[1].eval()
    w = trained(net, values, F.mse_loss)
    assert ("eval while training" in kinds(w)) is apart
    assert ("1 stayed in evaluation mode" in w.headline) is apart


class OwnNorm(nn.Module):
    """A batch normalization that calls the function."""

    def __init__(self, width: int, training: bool | None, mean: float = 0.0) -> None:
        super().__init__()
        self.scale, self.shift, self.mode = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width)), training
        self.register_buffer("mean", torch.full((width,), mean))
        self.register_buffer("var", torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, self.mean, self.var, self.scale, self.shift, self.training if self.mode is None else self.mode)


@pytest.mark.parametrize(("training", "mean", "wrong"), [(False, 0.0, True), (False, 0.1, False), (True, 0.0, False), (None, 0.0, False)])
def test_norms_by_a_function_that_go_by_no_batch(training, mean, wrong):
    torch.manual_seed(0)
    w = trained(nn.Sequential(nn.Linear(4, 16), OwnNorm(16, training, mean), nn.ReLU(), nn.Linear(16, 1)), values, F.mse_loss)
    assert ("eval while training" in kinds(w)) is wrong
    assert ("a batch normalization in layer 1 went by running statistics of no batch" in w.headline) is wrong


@pytest.mark.parametrize(("bound", "wrong"), [(1000.0, True), (0.5, False)])
def test_bounds_that_nothing_reaches(bound, wrong):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.Hardtanh(-bound, bound), nn.Linear(16, 16), nn.Hardtanh(-bound, bound), nn.Linear(16, 1))
    assert ("no nonlinearity" in told(net)) is wrong


def test_a_bias_that_does_not_move_is_no_bound():
    """In 16 bits its steps are rounded away, and it is all that is left where the units before it are silent."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    for one in net.parameters():
        one.data.add_(1.0)
    net, x = net.bfloat16(), torch.randn(64, 4).bfloat16()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    with modlab.watch(net, optimizer) as w:
        for _ in range(60):
            optimizer.zero_grad()
            F.mse_loss(net(x), x.sum(1, keepdim=True)).backward()
            optimizer.step()
    assert "too few digits" in kinds(w)
    assert "output cannot reach" not in kinds(w)


class Routed(nn.Module):
    """Of some experts a gate chooses one for each sample, and may also say by how much."""

    def __init__(self, how: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.gate, self.experts, self.how = nn.Linear(6, 3), nn.ModuleList(nn.Linear(6, 6) for _ in range(3)), how

    def forward(self, x: Tensor) -> Tensor:
        share, chosen = self.gate(x).softmax(1).max(1)
        given = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            mine = chosen == number
            mine = mine if self.how == "mask" else mine.nonzero()[:, 0]
            given[mine] = expert(x[mine])
        return given * share.unsqueeze(1) if self.how == "weighed" else given


class Quantized(nn.Module):
    """Each sample becomes the nearest row of a table, past which a gradient may go straight on."""

    def __init__(self, how: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encode, self.table, self.decode, self.how = nn.Linear(6, 3), nn.Embedding(8, 3), nn.Linear(3, 6), how

    def forward(self, x: Tensor) -> Tensor:
        z = self.encode(x)
        row = self.table(torch.cdist(z, self.table.weight).argmin(1))
        if self.how == "straight":
            row = z + (row - z).detach()
        return self.decode(z.detach() if self.how == "cut" else row)


@pytest.mark.parametrize(
    ("net", "cause"),
    [
        (Routed("mask"), "no gradient through"),
        (Routed("places"), "no gradient through"),
        (Routed("weighed"), ""),
        (Quantized("nearest"), "no gradient through"),
        (Quantized("straight"), ""),
        (Quantized("cut"), "detached"),
    ],
    ids=["mask", "places", "weighed", "nearest", "straight", "cut"],
)
def test_what_only_chooses_by_an_index_gets_no_gradient_through_it(net: nn.Module, cause: str) -> None:
    x = torch.randn(32, 6, generator=torch.Generator().manual_seed(0))
    found = {*kinds(trained(net, lambda: ((x,), x.flip(1)), F.mse_loss))} & {"no gradient through", "detached"}
    assert found == ({cause} if cause else set())


class Keeper(nn.Module):
    """A cell in a loop, whose state may come without its graph."""

    def __init__(self, cut: bool) -> None:
        super().__init__()
        self.cell, self.head, self.cut = nn.GRUCell(4, 8), nn.Linear(8, 1), cut

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros(len(x), 8)
        for step in x.unbind(1):
            state = self.cell(step, state.detach() if self.cut else state)
        return self.head(state)


@pytest.mark.parametrize("cut", [True, False])
def test_a_state_that_comes_without_its_graph(cut):
    torch.manual_seed(0)
    found = kinds(trained(Keeper(cut), lambda: ((torch.randn(16, 5, 4),), torch.randn(16, 1)), F.mse_loss))
    assert ("detached" in found, "state not kept" in found) == (cut, False)


class Called(nn.Module):
    """Its layers are called by functions."""

    def __init__(self, biased: bool) -> None:
        super().__init__()
        self.first, self.last, self.biased = nn.Linear(4, 16), nn.Linear(16, 1), biased

    def forward(self, x: Tensor) -> Tensor:
        bias = (self.first.bias, self.last.bias) if self.biased else (None, None)
        return F.linear(F.relu(F.linear(x, self.first.weight, bias[0])), self.last.weight, bias[1])


@pytest.mark.parametrize("biased", [True, False])
def test_biases_that_are_left_out(biased):
    torch.manual_seed(0)
    found = told(Called(biased))
    assert ("no bias where needed" in found, "detached" in found) == (not biased, False)


@pytest.mark.parametrize(("share", "wrong"), [(1.0, True), (0.1, False)])
def test_branches_that_let_the_signal_grow(share, wrong):
    class Tower(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(4, 32), nn.Linear(32, 1)
            self.blocks = nn.ModuleList([nn.Linear(32, 32) for _ in range(24)])
            for block in self.blocks:
                nn.init.kaiming_normal_(block.weight)

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            for block in self.blocks:
                x = x + share * block(x.relu())
            return self.last(x)

    torch.manual_seed(0)
    assert ("weights begin too large" in told(Tower())) is wrong


def test_what_a_checkpoint_has_packed_is_not_told():
    x = torch.randn(2, 6, 8, requires_grad=True)

    def attend(x: Tensor) -> Tensor:
        hidden = torch.ones(6, 6).triu(1).bool()
        return (x @ x.transpose(1, 2)).masked_fill(hidden, float("-inf")).softmax(-1) @ x

    assert len(attentions(walk(attend(x).sum().grad_fn, {}))) == 1
    assert attentions(walk(checkpoint(attend, x, use_reentrant=False).sum().grad_fn, {})) == []


class Waves(nn.Module):
    """A convolution along time; what it adds at the ends is cut off at one of them."""

    def __init__(self, first: bool) -> None:
        super().__init__()
        self.band, self.out, self.first = nn.Conv1d(1, 8, 3, padding=2), nn.Conv1d(8, 1, 1), first

    def forward(self, x: Tensor) -> Tensor:
        h = self.band(x)
        return self.out((h[:, :, 2:] if self.first else h[:, :, :-2]).relu()).squeeze(1)


@pytest.mark.parametrize("first", [True, False])
def test_a_convolution_is_cut_at_the_wrong_end(first):
    torch.manual_seed(0)
    wave = torch.sin(torch.arange(17.0) * (0.3 + torch.rand(8, 1)))
    result = modlab.diagnose(Waves(first), batch=(wave[:, None, :-1], wave[:, 1:]), loss=F.mse_loss)
    (found,) = [one.kind for one in result.experiments if one.name == "causality"]
    assert found == ("sees the future" if first else "sees no future")


def test_an_autoencoder_is_no_denoiser():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 1), nn.Linear(1, 8))

    def batch() -> tuple[tuple[Any], Tensor]:
        x = torch.randn(64, 8) * (0.1 + 2 * torch.rand(64, 1))
        return (x,), x

    assert "noise level hidden" not in kinds(trained(net, batch, F.mse_loss))


class Flow(nn.Module):
    """A field of velocities at a place and a time."""

    def __init__(self) -> None:
        super().__init__()
        self.time, self.net = nn.Linear(1, 16), nn.Sequential(nn.Linear(18, 32), nn.SiLU(), nn.Linear(32, 2))

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        given: Tensor = self.net(torch.cat([x, torch.tanh(self.time(t))], 1))
        return given


@pytest.mark.parametrize("told", [True, False])
def test_a_time_that_is_zero_for_all_samples(told):
    torch.manual_seed(0)

    def batch() -> tuple[tuple[Any, Any], Tensor]:
        noise, side, t = torch.randn(128, 2), 3 * torch.randint(0, 2, (128, 1)) - 1.5, torch.rand(128, 1)
        clean = side + 0.2 * torch.randn(128, 2)
        return ((1 - t) * noise + t * clean, t if told else torch.zeros_like(t)), clean - noise

    assert ("noise level hidden" in kinds(trained(Flow(), batch, F.mse_loss))) is not told


@pytest.mark.parametrize("levels", ["one", "of the clean ones", "its own"])
def test_levels_are_hidden_where_they_differ(levels):
    torch.manual_seed(0)

    def batch() -> tuple[tuple[Any], Tensor]:
        size, level = torch.rand(2, 64, 1)
        clean = torch.randn(64, 16) * (1 if levels == "its own" else 0.1 + 2 * size)
        noise = {"one": 0.3, "of the clean ones": 0.3 * clean.std(1, keepdim=True), "its own": 5 * level}[levels]
        return (clean + noise * torch.randn(64, 16),), clean

    net = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 16))
    assert ("noise level hidden" in kinds(trained(net, batch, F.mse_loss))) is (levels == "its own")


@pytest.mark.parametrize("hidden", [1, 8])
def test_a_state_of_one_number(hidden):
    class Forecaster(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.last = nn.LSTM(1, hidden, batch_first=True), nn.Linear(hidden, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.lstm(x)[0][:, -1])

    def batch() -> tuple[tuple[Tensor], Tensor]:
        wave = torch.sin(torch.arange(13.0) * 0.7 + 6 * torch.rand(32, 1))[..., None]
        return (wave[:, :-1],), wave[:, -1]

    assert ("bottleneck" in kinds(trained(Forecaster(), batch, F.mse_loss))) is (hidden == 1)


@pytest.mark.parametrize("deviation", [12.0, 0.3])
def test_weights_that_began_too_large_are_told_though_the_last_layer_learns(deviation):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    for one in (net[0], net[2]):
        nn.init.normal_(one.weight, std=deviation)
        nn.init.normal_(one.bias, std=deviation)
    t = torch.linspace(0, 4, 100)[:, None]
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    with modlab.watch(net, optimizer) as w:
        for _ in range(300):
            optimizer.zero_grad()
            F.mse_loss(net(t), (3 * t).cos()).backward()
            optimizer.step()
    assert deviation < 1 or Symptoms(w.record).progress > 0.8
    assert ("weights begin too large" in kinds(w)) is (deviation == 12)
