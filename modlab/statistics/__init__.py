"""A tensor's values in numbers, without a trace on the tensor; and the sum of two such results."""

from modlab.statistics.measurement import measure_tensor
from modlab.statistics.merging import merge

__all__ = ["measure_tensor", "merge"]
