"""The numbers of one tensor, as every face writes them."""

import torch

from modlab.statistics.measurement import measure_tensor
from modlab.views import numbers


def test_a_mean_that_only_rounding_left_is_zero():
    column = torch.linspace(-1, 1, 1001, dtype=torch.float64)
    means = [dict(numbers.statistics(measure_tensor(column + mean)))["mean"] for mean in (3e-8, -3e-8, 3e-5)]
    assert means == ["0", "0", "3e-05"]


def test_a_small_mean_of_small_numbers_is_written():
    assert dict(numbers.statistics(measure_tensor(torch.tensor([1e-8, 5e-8]))))["mean"] == "3e-08"
