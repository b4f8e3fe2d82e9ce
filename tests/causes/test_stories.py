"""What threads and issues asked: what is told of their trainings, and what is not told of those that are well."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab
from modlab.causes.symptoms import Symptoms
from modlab.records.watch import WatchRecord
from modlab.running import loss_graph


def kinds(w: modlab.Watch) -> list[str]:
    return [one.kind for one in w.findings]


def of(values: list[float], baseline: float = 1.0) -> Symptoms:
    """Of a loss with these values."""
    s = Symptoms(_empty())
    known = {"values": np.asarray(values), "baseline": baseline, "has_baseline": True, "is_recurrent": True, "last": values[-1]}
    return type("Told", (Symptoms,), known)(s.record)


def _empty() -> WatchRecord:
    net = nn.Linear(2, 1)
    with modlab.watch(net, torch.optim.SGD(net.parameters(), lr=0.1)) as w:
        pass
    return w.record


PARTS: dict[str, tuple[Callable[[Tensor], tuple[Tensor, Tensor]], bool]] = {
    "itself": (lambda z: (z, z), True),
    "one half and the same half": (lambda z: (z[:8], z[:8]), True),
    "two halves": (lambda z: (z[:8], z[8:]), False),
    "two halves by chunk": (lambda z: (z.chunk(2)[0], z.chunk(2)[1]), False),
    "two halves by unbind": (lambda z: (z.view(2, 8, 4).unbind()[0], z.view(2, 8, 4).unbind()[1]), False),
    "two picks": (lambda z: (z[torch.arange(8)], z[torch.arange(8, 16)]), False),
}


@pytest.mark.parametrize("name", PARTS)
def test_two_parts_of_one_output_are_not_the_same(name):
    parts, same = PARTS[name]
    out = nn.Linear(3, 4)(torch.randn(16, 3))
    one, other = parts(F.normalize(out, dim=1))
    (found,) = loss_graph.read(F.cross_entropy(one @ other.T / 0.1, torch.arange(len(one))), {out.grad_fn: ""})
    assert found.term.squared is same


def test_two_halves_of_the_same_numbers_are_the_same():
    out = nn.Linear(3, 4)(torch.randn(8, 3).repeat(2, 1))
    (found,) = loss_graph.read(F.cross_entropy(out[:8] @ out[8:].T, torch.arange(8)), {out.grad_fn: ""})
    assert found.term.squared


def test_a_loss_of_alignment_is_one_with_infinite_values_left_out():
    out = nn.Linear(3, 5)(torch.randn(8, 2, 3))
    labels, lengths = torch.randint(1, 5, (2, 3)), (torch.full((2,), 8), torch.full((2,), 3))
    (found,) = loss_graph.read(F.ctc_loss(out.log_softmax(-1), labels, *lengths, zero_infinity=True), {out.grad_fn: ""})
    assert found.term.criterion == "alignment"


@pytest.mark.parametrize("shares", [True, False])
def test_a_divergence_of_logarithms_is_one_if_they_are_of_shares(shares):
    out = nn.Linear(3, 5)(torch.randn(8, 3))
    said = torch.randn(8, 5).log_softmax(1) if shares else torch.randn(8, 5)
    (found,) = loss_graph.read(F.kl_div(out.log_softmax(1), said, log_target=True, reduction="batchmean"), {out.grad_fn: ""})
    assert (found.term.criterion == "divergence") is shares


def test_a_loss_that_falls_at_once_has_fallen():
    steep = [118.0, 60.0, 30.0, 15.0, 9.0, 7.0, 6.0] + 28 * [4.1, 4.2]
    assert of(steep, 118.0).falls
    assert not of(36 * [1.0, 1.3]).falls
    assert not of([9.0] + 35 * [1.0, 1.3]).falls, "one value is no fall"


@pytest.mark.parametrize(("early", "waits"), [(1.0, True), (0.4, False)])
def test_a_loss_that_waits_before_it_falls(early, waits):
    assert of(10 * [early] + 30 * [0.05]).waits is waits


def test_what_is_infinite_stays_so_if_nobody_clears_it():
    torch.manual_seed(0)
    net = nn.Linear(4, 2)
    optimizer, scaler = torch.optim.Adam(net.parameters(), lr=0.01), torch.amp.GradScaler("cpu", init_scale=2.0**40)
    with modlab.watch(net, optimizer) as w:
        for _ in range(200):  # until the scale is nothing, by which nobody can divide
            with torch.autocast("cpu", torch.float16):
                loss = F.cross_entropy(net(torch.randn(16, 4)), torch.randint(2, (16,)))
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    assert scaler.get_scale() == 0 and "failed" not in w.headline
    assert "no zero grad" in kinds(w) and "never enough to step" not in kinds(w)


@pytest.mark.parametrize("rate", [1e-7, 0.1])
def test_a_rate_may_be_too_low_for_weights_in_a_row(rate):
    torch.manual_seed(0)
    net = nn.ParameterDict({"weight": nn.Parameter(torch.randn(6)), "bias": nn.Parameter(torch.zeros(()))})

    class Line(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.numbers = net

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.numbers["weight"] + self.numbers["bias"]

    line = Line()
    optimizer = torch.optim.SGD(line.parameters(), lr=rate)
    with modlab.watch(line, optimizer) as w:
        for _ in range(60):
            x = torch.randn(32, 6)
            optimizer.zero_grad()
            F.mse_loss(line(x), x.sum(1)).backward()
            optimizer.step()
    assert ("rate too low" in kinds(w)) is (rate < 1e-3)


def test_a_rate_that_rose_early_is_no_warm_up():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-5)
    with modlab.watch(net, optimizer) as w:
        for number in range(200):
            for group in optimizer.param_groups:
                group["lr"] = 1e-5 * 1.3 ** min(number, 50)
            x = torch.randn(32, 8)
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(net(x), (x[:, :1] > 0).float()).backward()
            optimizer.step()
    assert "warmup never ends" not in kinds(w)


class Adapted(nn.Module):
    """A frozen layer, and beside it two narrow matrices."""

    def __init__(self, adapters: bool) -> None:
        super().__init__()
        self.base = nn.Linear(16, 12).requires_grad_(False)
        self.down = nn.Parameter(torch.randn(2, 16) / 4 if adapters else torch.randn(16) / 4)
        self.up = nn.Parameter(torch.zeros(12, 2) if adapters else torch.zeros(12))

    def forward(self, x: Tensor) -> Tensor:
        beside = x @ self.down.T @ self.up.T if self.down.dim() > 1 else x @ self.down[:, None] * self.up
        return self.base(x) + beside


@pytest.mark.parametrize("adapters", [True, False])
def test_adapters_stand_beside_what_is_frozen(adapters):
    torch.manual_seed(0)
    net = nn.Sequential(Adapted(adapters), nn.Tanh(), Adapted(adapters))
    optimizer = torch.optim.Adam([one for one in net.parameters() if one.requires_grad], lr=1e-3)
    with modlab.watch(net, optimizer) as w:
        for _ in range(20):
            optimizer.zero_grad()
            F.cross_entropy(net[2](F.pad(net[1](net[0](torch.randn(8, 16))), (0, 4))), torch.randint(12, (8,))).backward()
            optimizer.step()
    assert Symptoms(w.record).has_adapters is adapters
    assert not (adapters and "frozen" in kinds(w))


def test_a_relu_by_function_leaves_nothing_of_what_is_below_zero():
    class Dead(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 1)
            nn.init.constant_(self.first.bias, -100.0)

        def forward(self, x: Tensor) -> Tensor:
            return self.second(F.relu(self.first(x)))

    torch.manual_seed(0)
    found = modlab.diagnose(Dead(), batch=(torch.randn(16, 4), torch.randn(16, 1)), loss=nn.MSELoss())
    assert next(one.kind for one in found.experiments if one.name == "collapse") == "dead units"


@pytest.mark.parametrize("trained_before", [True, False])
def test_biases_that_train_alone(trained_before):
    """Of a model that was trained that may be meant; of a fresh one too little can move, though its loss falls a little."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 4))
    x = torch.randn(512, 12)
    y = (x @ torch.randn(12, 4)).argmax(1)
    y[y == 1] = 0  # one class is the most frequent
    if trained_before:
        before = torch.optim.Adam(net.parameters(), lr=1e-2)
        for _ in range(200):
            before.zero_grad()
            F.cross_entropy(net(x), y.roll(1)).backward()
            before.step()
    for name, one in net.named_parameters():
        one.requires_grad_("bias" in name if trained_before else name == "4.bias")
    optimizer = torch.optim.Adam([one for one in net.parameters() if one.requires_grad], lr=1e-2)
    with modlab.watch(net, optimizer) as w:
        for _ in range(150):
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
    assert ("frozen" in kinds(w)) is not trained_before


@pytest.mark.parametrize(("shut", "held", "told"), [(True, True, True), (True, False, False), (False, True, False)])
def test_a_new_head_that_is_frozen_with_what_was_trained_before(*, shut: bool, held: bool, told: bool) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 6)
    )

    def train(optimizer: torch.optim.Optimizer, classes: int) -> None:
        for _ in range(150):
            x = torch.randn(64, 16)
            optimizer.zero_grad()
            F.cross_entropy(net(x), x[:, :6].argmax(1) % classes).backward()
            optimizer.step()

    train(torch.optim.Adam(net.parameters(), 1e-2), 6)
    net[6] = nn.Linear(16, 3)
    for one in (net[0], net[3], *([net[6]] if shut else [])):
        one.requires_grad_(False)
    optimizer = torch.optim.SGD(net.parameters() if held else [one for one in net.parameters() if one.requires_grad], 0.02, momentum=0.9)
    with modlab.watch(net, optimizer) as w:
        train(optimizer, 3)
    assert ("the last layer is frozen as it was initialized" in str(w.verdict)) is told


@pytest.mark.parametrize(("before", "head", "swapped"), [(0.5, 1e-6, True), (1e-5, 0.01, False), (0.01, 1e-6, False)])
def test_a_new_head_with_the_rate_of_what_was_trained_before(before, head, swapped):
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 32), nn.Tanh())
    net = nn.Sequential(body, nn.Linear(32, 3))
    x = torch.randn(256, 16)
    y = (torch.tanh(x @ torch.randn(16, 8)) @ torch.randn(8, 3)).argmax(1)
    optimizer = torch.optim.Adam([{"params": [*body.parameters()], "lr": before}, {"params": [*net[1].parameters()], "lr": head}])
    with modlab.watch(net, optimizer) as w:
        for _ in range(150):
            of = torch.randint(256, (32,))
            optimizer.zero_grad()
            F.cross_entropy(net(x[of]), y[of]).backward()
            optimizer.step()
    assert ("groups swapped" in kinds(w)) is swapped
