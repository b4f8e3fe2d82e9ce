"""Modules whose names are numbers: a sentence calls them layers, and whatever is a path stays as it is."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import modlab
from modlab.records.watch import Check
from modlab.results.watch import Watch
from modlab.wording import broken
from modlab.wording.names import begun


def trained(net: nn.Sequential, steps: int = 40) -> Watch:
    torch.manual_seed(0)
    inputs = torch.randn(64, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    with modlab.watch(net, optimizer, budget=1.0) as w:
        for _ in range(steps):
            optimizer.zero_grad()
            loss: Tensor = cross_entropy(net(inputs), inputs[:, :3].argmax(1))
            loss.backward()
            optimizer.step()
    return w


@pytest.fixture
def dead() -> Watch:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))
    nn.init.constant_(net[2].bias, -60.0)
    return trained(net)


def test_a_number_is_a_layer_in_sentences(dead: Watch) -> None:
    assert dead.headline.startswith("16 of 16 units of layer 2 are dead: ")
    assert "16 of 16 units of layer 2 are dead" in str(dead) and "16 of 16 units of layer 2 are dead" in dead.html()
    assert "units of 2" not in str(dead) + dead.html()


def test_a_path_stays_a_path(dead: Watch) -> None:
    found = dead.verdict.findings[0]
    assert found.path == "2" and dead.to_dict()["verdict"]["findings"][0]["path"] == "2"
    assert any(line.split()[:1] == ["2"] for line in str(dead).splitlines())


def test_layers_in_evaluation_mode_are_named_together() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Linear(16, 3))
    for module in net:
        module.eval()
    said = str(trained(net.eval(), 20))
    assert "which changes layers 1 and 4" in said


def test_a_sentence_that_begins_with_a_number_begins_with_a_layer() -> None:
    assert (begun("3"), begun("head"), begun("0.weight")) == ("Layer 3", "head", "0.weight")
    check = Check("never called", "3", {"paths": ("3",)}, "broken", name="every module is called", state="broken")
    assert broken(check) == "Layer 3 is never called"
