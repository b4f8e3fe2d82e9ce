"""What a watch asks of a very large model is bounded: counted in tensors that it looks at, not in seconds."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import modlab
from modlab.watching import losses
from modlab.watching.watch_index import Weight
from modlab.watching.watcher import watchers

MODULES = 4_000


def test_a_loss_is_found_by_some_parameters_of_a_very_large_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first backward pass tells by which ones the next are known; not all 8,000 are asked for that."""
    asked, state = 0, losses._state

    def counted(weight: Any) -> Any:
        nonlocal asked
        asked += 1
        return state(weight)

    monkeypatch.setattr(losses, "_state", counted)
    parts = nn.ModuleList(nn.Linear(2, 2) for _ in range(MODULES))
    optimizer = torch.optim.SGD(parts.parameters(), lr=0.01)
    with modlab.watch(parts, optimizer, budget=1.0) as watched:
        for _ in range(2):
            optimizer.zero_grad()
            sum(part(torch.ones(1, 2)).square().mean() for part in parts).backward()  # type: ignore[union-attr]
            optimizer.step()
    assert 0 < asked < 3 * losses.ASKED
    assert [one.count for one in watched.record.scalars if one.kind == "loss"] == [2]


def test_a_record_asks_each_parameter_once_what_stands_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page in motion takes one every few seconds; biases, beside which nothing stands, once asked all others."""
    asked, tensor = 0, Weight.tensor

    def counted(weight: Weight) -> Any:
        nonlocal asked
        asked += 1
        return tensor(weight)

    parts = nn.Sequential(*(nn.RMSNorm(4) for _ in range(30)))
    optimizer = torch.optim.SGD(parts.parameters(), lr=0.01)
    with modlab.watch(parts, optimizer) as watched:
        for _ in range(2):
            optimizer.zero_grad()
            parts(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
        monkeypatch.setattr(Weight, "tensor", counted)
        assert len(watched.record.watched.parameters) == asked == 30
        monkeypatch.undo()


@pytest.mark.long
def test_the_first_samples_of_a_very_large_model_take_a_second_together() -> None:
    """20,000 parameters: by the watch's own clock, with room for a machine that is three times slower; once it took 32 s."""
    parts = nn.ModuleList(nn.Linear(2, 2) for _ in range(10_000))
    optimizer = torch.optim.SGD(parts.parameters(), lr=0.01)
    with modlab.watch(parts, optimizer):
        (watcher,) = watchers
        for _ in range(4):
            optimizer.zero_grad()
            sum(part(torch.ones(1, 2)).square().mean() for part in parts).backward()  # type: ignore[union-attr]
            optimizer.step()
        assert watcher.schedule.began, "the first samples are over"
        assert watcher._first < 1 * 3


def test_a_gradient_that_no_sample_has_looked_at_is_not_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modlab.watching.watch_index.WHOLE", 100)
    monkeypatch.setattr("modlab.watching.watch_index.PART", 50)
    torch.manual_seed(0)
    parts = nn.ModuleList(nn.Linear(2, 2) for _ in range(100))
    optimizer = torch.optim.SGD(parts.parameters(), lr=0.01)
    with modlab.watch(parts, optimizer) as w:
        for _ in range(3):
            optimizer.zero_grad()
            sum(part(torch.ones(1, 2)).square().mean() for part in parts).backward()  # type: ignore[union-attr]
            optimizer.step()
    known = w.record.watched.parameters
    assert any(one.felt and not one.met for one in known) and not any(one.is_flat for one in known)
