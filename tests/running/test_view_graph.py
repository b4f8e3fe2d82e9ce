"""Views that tear samples or positions apart are told from those that split and join."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import modlab
from modlab.running.view_graph import tears


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
    ],
)
def test_what_a_view_mixes_up(taken, given, samples, length, what):
    assert tears(taken, given, samples, length) == what


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
