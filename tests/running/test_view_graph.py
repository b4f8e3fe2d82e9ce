"""Views that tear samples or positions apart are told from those that split and join."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import modlab
from modlab.running.view_graph import tears, tears_data


@pytest.mark.parametrize(
    ("taken", "given", "samples", "length", "what"),
    [
        ((10, 7, 4), (7, 10, 4), 10, 7, "samples"),
        ((7, 10, 4), (10, 28), 10, 0, "samples"),
        ((10, 3, 7, 4), (10, 7, 12), 10, 7, "positions"),
        ((10, 5, 4, 4), (10, 4, 4, 5), 10, 0, "axes"),
        ((10, 4, 3), (10, 3, 4), 10, 0, "axes"),
        ((10, 6, 4), (10, 3, 8), 10, 0, ""),
        ((10, 7, 12), (10, 7, 3, 4), 10, 7, ""),  # heads
        ((7, 10, 12), (7, 30, 4), 10, 7, ""),
        ((7, 4, 12), (7, 12, 4), 4, 7, ""),  # heads as wide as the batch is large
        ((10, 7, 12), (70, 12), 10, 7, ""),
        ((70, 12), (10, 7, 12), 10, 7, ""),
        ((10, 3, 8, 8), (10, 192), 10, 0, ""),
        ((10, 3, 8, 8), (10, 8, 24), 10, 0, ""),  # each sample keeps its numbers
        ((1, 7, 4), (7, 1, 4), 1, 7, ""),
        ((0, 7), (7, 0), 0, 7, ""),
        ((2, 32, 24), (32, 48), 32, 12, "samples"),  # the states of both directions
        ((1, 32, 24), (32, 24), 32, 12, ""),
        ((64, 32, 3), (32, 192), 32, 0, ""),  # 32 features of each
        ((32, 2, 24), (32, 48), 32, 12, ""),
        ((16, 32, 24), (32, 16, 24), 32, 16, "samples"),  # each edge divides the next one
        ((8, 12, 12, 3), (8, 3, 12, 12), 8, 0, "axes"),
        ((8, 16, 32), (8, 4, 16, 8), 8, 16, "axes"),  # heads in front of places
        ((8, 4, 16, 8), (8, 16, 32), 8, 16, "axes"),
        ((8, 64, 8, 8), (8, 8, 8, 64), 8, 0, ""),  # heads of a map
        ((8, 16, 32), (8, 16, 4, 8), 8, 16, ""),
        ((8, 4, 16, 17), (8, 4, 17, 16), 8, 16, ""),  # relative positions
    ],
)
def test_what_a_view_mixes_up(taken, given, samples, length, what):
    assert tears(taken, given, samples, length) == what


@pytest.mark.parametrize(
    ("taken", "given", "what"),
    [
        ((15, 30, 2), (30, 15, 2), "samples"),
        ((16, 32), (32, 16), "samples"),
        ((8, 64, 16), (8, 16, 64), "axes"),
        ((8, 1, 28), (8, 28, 1), ""),
        ((8, 784), (8, 1, 28, 28), ""),
        ((8, 28, 28), (8, 784), ""),
    ],
)
def test_data_are_not_viewed_with_their_sizes_in_another_order(taken, given, what):
    assert tears_data(taken, given, given[0], 0) == what


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("inside", [True, False])
def test_images_whose_channels_come_last_are_not_viewed_but_permuted(inside, right):
    def moved(x):
        return x.permute(0, 3, 1, 2) if right else x.reshape(len(x), 3, 8, 8)

    class Net(nn.Sequential):
        def forward(self, x):
            return super().forward(moved(x) if inside else x)

    torch.manual_seed(0)
    net = Net(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
    with modlab.watch(net, optimizer) as w:
        for _ in range(30):
            x = torch.randn(16, 8, 8, 3)
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x if inside else moved(x)), (x.sum((1, 2, 3)) > 0).long()).backward()
            optimizer.step()
    found = [one for one in w.verdict.findings if one.kind == "wrong axes"]
    assert bool(found) is not right
    if found:
        assert "(16, 8, 8, 3) was viewed as (16, 3, 8, 8)" in str(w)


class Series(nn.Module):
    """Takes series of 7 steps, and puts time in front, rightly or not."""

    def __init__(self, *, torn: bool) -> None:
        super().__init__()
        self.torn, self.embed, self.body, self.head = torn, nn.Linear(3, 5), nn.GRU(5, 8), nn.Linear(8, 2)

    def forward(self, x):
        x = self.embed(x)
        x = x.reshape(x.shape[1], x.shape[0], -1) if self.torn else x.transpose(0, 1)
        return self.head(self.body(x)[1][0])


@pytest.mark.parametrize("torn", [True, False])
def test_a_watch_tells_it_in_front_of_the_layer_that_takes_it(torn):
    torch.manual_seed(0)
    net = Series(torn=torn)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    with modlab.watch(net, optimizer) as w:
        for _ in range(40):
            x = torch.randn(16, 7, 3)
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x), (x.sum((1, 2)) > 0).long()).backward()
            optimizer.step()
    found = [one for one in w.verdict.findings if one.kind == "wrong axes"]
    assert bool(found) is torn
    if torn:
        assert "(16, 7, 5) was viewed as (7, 16, 5) in front of body, which mixes samples" in str(w)
