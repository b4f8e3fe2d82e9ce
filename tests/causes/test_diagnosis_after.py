"""`w.diagnose()` after a training that went well names nothing: what first steps show cannot be asked of a trained model."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab


def causes(found: Any) -> list[str]:
    return [one.kind for one in found.findings]


def pixels(samples: int = 64) -> tuple[Tensor, Tensor]:
    """Images of three kinds that a pixel each tells apart, as small drawings may be."""
    label = torch.randint(3, (samples,))
    return F.one_hot(label, 12).float() * 2 + 0.5 * torch.randn(samples, 12), label


def test_a_model_that_has_learnt_all_is_not_called_constant_or_leaking() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 3))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
    with modlab.watch(net, optimizer) as w:
        for _ in range(200):
            x, y = pixels()
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
    assert causes(w.diagnose()) == []
    assert causes(modlab.diagnose(net, optimizer, batch=pixels(), loss=F.cross_entropy)) == []


def test_the_scale_of_a_scaler_is_not_kept_with_the_loss() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    with modlab.watch(net, optimizer) as w:
        for _ in range(60):
            x = torch.randn(32, 4)
            optimizer.zero_grad()
            loss = F.mse_loss(net(x), x.sum(1, keepdim=True))
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    assert causes(w.diagnose()) == []


class Walker(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 1)

    def forward(self, parts: tuple[Tensor, Tensor]) -> Tensor:
        return self.body(torch.cat(parts, 1))


def test_a_model_that_takes_a_tuple_gets_it_whole() -> None:
    torch.manual_seed(0)
    net = Walker()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    with modlab.watch(net, optimizer) as w:
        for _ in range(60):
            x = torch.randn(32, 4)
            optimizer.zero_grad()
            F.mse_loss(net((x[:, :1], x[:, 1:])), x.sum(1, keepdim=True)).backward()
            optimizer.step()
    assert causes(w.diagnose()) == []


def test_optimizers_that_were_not_given_are_known_and_those_that_were_replaced_are_not() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    first, beside = torch.optim.SGD(net[0].parameters(), lr=0.02), torch.optim.Adam(net[2].parameters(), lr=0.01)
    with modlab.watch(net, first) as w:
        for step in range(60):
            if step == 20:
                second = torch.optim.SGD(net[0].parameters(), lr=0.01)
            steppers = [first if step < 20 else second, beside]
            x = torch.randn(32, 4)
            net.zero_grad()
            F.mse_loss(net(x), x.sum(1, keepdim=True)).backward()
            for one in steppers:
                one.step()
    assert causes(w.diagnose()) == []


def test_a_loss_of_tiny_units_that_falls_is_not_too_small_and_not_zero() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01, eps=1e-16)
    with modlab.watch(net, optimizer) as w:
        for _ in range(150):
            x = torch.randn(32, 4)
            optimizer.zero_grad()
            (1e-6 * F.mse_loss(net(x), x.sum(1, keepdim=True))).backward()
            optimizer.step()
    found = w.diagnose()
    assert causes(found) == [] and not any(one.outcome == "failed" for one in found.experiments)
    assert not any(one.what == "the loss is 0" for one in found.experiments)


@pytest.mark.parametrize("given", [True, False])
def test_an_optimizer_that_was_let_go_has_held_its_layer(given: bool) -> None:
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1)), torch.randn(64, 4)

    def train() -> tuple[Any, torch.optim.Optimizer]:
        both = torch.optim.Adam(net[0].parameters(), 0.01), torch.optim.SGD(net[2].parameters(), 0.01)
        with modlab.watch(net, both if given else None) as w:
            for _ in range(60):
                net.zero_grad()
                F.mse_loss(net(x), x.sum(1, keepdim=True)).backward()
                for one in both:
                    one.step()
        return w, both[0]

    w, left = train()
    gc.collect()
    assert left.param_groups and not [one for one in w.diagnose().findings if one.severity == "broken"]
    assert [one.path for one in modlab.diagnose(net, left).findings] == ["2"], "of the one that is left alone this is so"


class Players(nn.Module):
    """Two nets in one module, of which forward runs the one."""

    def __init__(self) -> None:
        super().__init__()
        self.maker = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
        self.judge = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.judge(x)


def test_what_another_pass_of_the_loop_trains_is_not_said_to_get_no_gradient() -> None:
    torch.manual_seed(0)
    net = Players()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)  # of both, as of two that are no foes
    with modlab.watch(net, optimizer) as w:
        for _ in range(60):
            optimizer.zero_grad()
            F.mse_loss(net(net.maker(torch.randn(32, 4))), torch.ones(32, 1)).backward()
            optimizer.step()
    x = torch.randn(32, 2)
    found = w.diagnose(batch=(x, x.sum(1, keepdim=True)), loss=F.mse_loss)
    (gradients,) = [one for one in found.experiments if one.name == "gradients"]
    assert gradients.outcome == "not run" and "elsewhere in the loop" in gradients.what
    assert "gets no gradient" not in str(found)
    alone = modlab.diagnose(net, optimizer, batch=(x, x[:, :1]), loss=F.mse_loss)
    assert next(one.outcome for one in alone.experiments) == "failed"
