"""Curves that a watch draws by itself: the loss scale, the model's mode, and what is told of data that is not trained on."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab


def small() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))


def curve(w: Any, name: str) -> Any:
    return next((one for one in w.record.scalars if one.name == name), None)


def noise(samples: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(samples, 4)
    return x, x.sum(1, keepdim=True) + torch.randn(samples, 1)


def test_each_fall_of_the_loss_scale_is_a_step_that_was_skipped() -> None:
    net, (x, y) = small(), noise(24)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
    scales = []
    with modlab.watch(net, optimizer, budget=1.0) as w:
        for step in range(60):
            optimizer.zero_grad()
            loss = F.mse_loss(net(x), y)
            loss = loss * 1e38 if step % 4 == 1 else loss
            scales.append(scaler.get_scale())
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    found = curve(w, "loss scale")
    assert found.kind == "scale" and found.mean.tolist() == scales and found.falls == sum(b < a for a, b in pairwise(scales))
    assert f"fell {found.falls} times: each time, at least one step was skipped" in str(w)
    finding = next(one for one in w.verdict.findings if one.kind == "steps skipped")
    assert finding.severity == "careful" and finding.facts["skipped"] == found.falls > 10


def test_a_few_skipped_steps_at_first_are_no_finding() -> None:
    net, (x, y) = small(), noise(24)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    with modlab.watch(net, optimizer, budget=1.0) as w:
        for _ in range(60):
            optimizer.zero_grad()
            scaler.scale(30 * F.mse_loss(net(x), y)).backward()
            scaler.step(optimizer)
            scaler.update()
    assert curve(w, "loss scale").falls and not any(one.kind == "steps skipped" for one in w.verdict.findings)


def test_the_mode_is_drawn_where_it_changes() -> None:
    net, (x, y) = small(), noise(24)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    with modlab.watch(net, optimizer, budget=1.0) as w:
        for step in range(40):
            net.train(step < 25)
            optimizer.zero_grad()
            F.mse_loss(net(x), y).backward()
            optimizer.step()
    found = curve(w, "training mode")
    assert found.kind == "mode" and found.mean.tolist() == [1.0] * 25 + [0.0] * 15 and found.falls == 1
    assert "turned to evaluation once, at last in evaluation" in str(w)


def test_the_mode_is_not_drawn_where_it_stays() -> None:
    net, (x, y) = small(), noise(24)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    with modlab.watch(net, optimizer, budget=1.0) as w:
        for _ in range(10):
            optimizer.zero_grad()
            F.mse_loss(net(x), y).backward()
            optimizer.step()
            net.eval()
            net(x)
            net.train()
    assert curve(w, "training mode") is None and curve(w, "loss scale") is None


def train(samples: int, steps: int) -> Any:
    net, (x, y), (other, wanted) = small(), noise(samples), noise(200)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    with modlab.watch(net, optimizer) as w:
        for step in range(steps):
            optimizer.zero_grad()
            F.mse_loss(net(x), y).backward()
            optimizer.step()
            if step % 20 == 19:
                net.eval()
                with torch.no_grad():
                    w.log(val_loss=F.mse_loss(net(other), wanted), test_accuracy=0.5)
                net.train()
    return w


def test_learning_by_heart_is_told_by_the_loss_on_other_data() -> None:
    w = train(20, 600)
    found = next(one for one in w.verdict.findings if one.kind == "by heart")
    values = curve(w, "val_loss")
    assert values.kind == "validation" and found.path == "val_loss"
    assert found.facts["least"] == min(values.mean.tolist()) and found.step == values.first[values.mean.argmin()]
    assert "it gets worse on other data while it gets better on its own: val_loss rose from" in str(w)


def test_with_enough_data_it_is_not_said() -> None:
    assert not any(one.kind == "by heart" for one in train(500, 300).verdict.findings)
