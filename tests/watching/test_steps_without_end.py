"""A step that never ends, as where step() is forgotten or parameters are moved by hand: what a look keeps and costs is bounded."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab
from modlab.watching.clues import PASSES


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))


@pytest.mark.parametrize("goes_back", [True, False])
def test_what_comes_in_is_not_kept(goes_back):
    model, seen = net(), []
    with modlab.watch(model, torch.optim.SGD(model.parameters(), 0.1)):
        for _ in range(4 * PASSES):
            x = torch.randn(4, 6)
            loss = model(x).square().mean()
            if goes_back:
                loss.backward()
            seen.append(weakref.ref(x))
        del x, loss
        gc.collect()
        assert sum(one() is not None for one in seen) <= PASSES + 2


def test_passes_are_measured_up_to_a_number_and_the_step_after_them_is_seen():
    model = net()
    calls: list[int] = []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with modlab.watch(model, optimizer) as w:
        for count in (10 * PASSES, 1, 1, 1):
            for _ in range(count):
                model(torch.randn(4, 6)).square().mean().div(count).backward()
            optimizer.step()
            optimizer.zero_grad()
            calls.append(count)
    assert w.record.steps == w.record.samples == len(calls)
    assert all(one.moved for one in w.record.watched.parameters if one.path != "2.bias")


def test_parts_of_a_batch_are_paired_with_their_own_inputs():
    """Accumulation: the second loss of a step is of the second inputs."""
    model, weight = net(), torch.randn(6, 1, generator=torch.Generator().manual_seed(3))

    def part() -> tuple[Tensor, Tensor]:
        x = torch.randn(16, 6)
        return x, x @ weight

    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    with modlab.watch(model, optimizer) as w:
        for _ in range(60):
            optimizer.zero_grad()
            for x, y in (part() for _ in range(4)):
                F.mse_loss(model(x), y).div(4).backward()
            optimizer.step()
    relations = w.record.watched.clues.relations
    assert relations.rows and relations.together > 0.9
    assert "targets shuffled" not in {one.kind for one in w.findings}
