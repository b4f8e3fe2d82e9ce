"""Tensors whose values are all the same: every face says which one it is, and none shows the width of a bin."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

import modlab
from modlab.statistics import measure_tensor
from modlab.views import numbers

NAN, INF = math.nan, math.inf
SAME = {
    "zeros": (torch.zeros(4), "all 0"),
    "minus zeros": (torch.tensor([-0.0, 0.0, -0.0]), "all 0"),
    "threes": (torch.full((3, 2), 3.0), "all 3"),
    "below zero": (torch.full((5,), -0.1), "all -0.1"),
    "one number": (torch.tensor(5.0), "5"),
    "whole": (torch.tensor([7, 7]), "all 7"),
    "true": (torch.tensor([True, True]), "all 1"),
    "half": (torch.full((2,), 0.5, dtype=torch.float16), "all 0.5"),
    "greatest": (torch.full((2,), torch.finfo(torch.float64).max, dtype=torch.float64), "all 1.798e+308"),
    "least": (torch.full((2,), 5e-324, dtype=torch.float64), "all 4.941e-324"),
    "many": (torch.zeros(20_000), "all 0"),
    "sparse": (torch.zeros(3, 3).to_sparse(), "all 0"),
    "with NaN": (torch.tensor([0.0, NAN, INF]), "all others 0"),
}


@pytest.mark.parametrize(("tensor", "words"), SAME.values(), ids=SAME)
def test_every_face_says_the_one_value(tensor: Tensor, words: str) -> None:
    result = modlab.measure(tensor)
    bars = numbers.bars(result.record.stats)
    assert bars is not None and bars.alone == words
    value, edges = float(result.record.stats.min), [bars.low + (bars.high - bars.low) * (at / len(bars.counts)) for at in range(10)]
    assert [low <= value <= high for low, high in pairwise(edges)] == [count > 0 for count in bars.counts]
    assert math.isfinite(bars.low) and bars.low < bars.high < math.inf
    assert sum(bars.counts) == result.record.stats.histogram.grid.counts.sum()
    assert f"{words}." in str(result).splitlines()[0]
    assert words in result.figure().axes[0].get_xlabel()
    assert "e-308" not in str(result) + result._repr_html_() or words.endswith("308")


@pytest.mark.parametrize("tensor", [torch.full((3,), NAN), torch.full((2,), -INF), torch.zeros(0), torch.tensor([], dtype=torch.bool)])
def test_without_a_finite_value_there_is_none(tensor: Tensor) -> None:
    stats = measure_tensor(tensor)
    assert numbers.bars(stats) is None and numbers.constant(stats) == ""


def test_beside_other_values_the_axis_is_shared() -> None:
    zeros, spread = measure_tensor(torch.zeros(4)), measure_tensor(torch.tensor([-1.0, 1.0]))
    bars = numbers.bars(zeros, [spread])
    assert bars is not None and not bars.alone and bars.low <= -1 and bars.high >= 1 and sum(bars.counts) == 4
    alone = numbers.bars(zeros, [zeros, measure_tensor(torch.zeros(9)), measure_tensor(torch.zeros(0))])
    assert alone is not None and alone.alone == "all 0"


def test_a_value_in_a_state_has_it_too() -> None:
    model = nn.Linear(3, 2)
    nn.init.zeros_(model.bias)
    assert "all 0." in str(modlab.state(model)["bias"]).splitlines()[0]
