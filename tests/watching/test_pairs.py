"""Whether inputs and targets go together is seen in pairs of them, also where they are out of step in a known way."""

from __future__ import annotations

import pytest
import torch

from modlab.watching.pairs import Pairs

WAYS = {
    "together": lambda x, y: (x, y),
    "before": lambda x, y: (x, y.roll(1, 0)),
    "after": lambda x, y: (x, y.roll(-1, 0)),
    "axes": lambda x, y: (x.movedim(0, -1).reshape(x.shape), y),
}


@pytest.mark.parametrize("kind", ["numbers", "classes"])
@pytest.mark.parametrize("way", WAYS)
def test_the_way_is_found(way, kind):
    torch.manual_seed(0)
    pairs = Pairs()
    for _ in range(8):
        x = torch.randn(32, 3)
        y = x[:, :1] - 2 * x[:, 2:] if kind == "numbers" else (x[:, 0] + x[:, 1] > 0).long()
        pairs.add(*WAYS[way](x, y))
    told = pairs.relations()
    found = {name: getattr(told, name) for name in WAYS}
    assert max(found, key=found.__getitem__) == way and found[way] > 0.4
    assert all(value < 0.1 for name, value in found.items() if name != way)


def test_shuffled_targets_are_told_by_nothing():
    torch.manual_seed(0)
    pairs = Pairs()
    for _ in range(8):
        x = torch.randn(32, 3)
        pairs.add(x, x[torch.randperm(32), :1])
    told = pairs.relations()
    assert max(told.together, told.before, told.after, told.axes) < 0.1


def test_few_pairs_say_nothing():
    pairs = Pairs()
    pairs.add(torch.randn(8, 3), torch.randn(8, 1))
    assert pairs.relations().rows == 0
