"""Sampling: which of many values a histogram rests on. Evenly spread, the same ones every time, without a random number."""

from __future__ import annotations

import itertools
import math
from typing import TypeVar

import numpy as np
from torch import Tensor

from modlab.records.tensor import Values

SAMPLE = 4096
"""About so many values make a sample; less than twice as many are all counted."""

Block = TypeVar("Block", Tensor, Values)


def stride_of(count: int) -> int:
    """The step from one sampled value to the next; 1 means all.

    It has no divisor in common with `count`, hence none with the length of a row: each column of a matrix gets its share. (A step
    of ``count // 4096`` through a matrix of 512 columns may look at one column alone, and its histogram be 87 % wrong.)
    """
    wanted = max(1, count // SAMPLE)
    near = (stride for away in itertools.count() for stride in (wanted - away, wanted + away) if 4 * stride >= wanted)
    return next(stride for stride in near if stride == 1 or math.gcd(stride, count) == 1)


class Sampler:
    """Takes every `stride`-th of `count` values, which come in blocks of shape ``(n,)``."""

    def __init__(self, count: int) -> None:
        self.stride = stride_of(count)
        self._skip = 0

    def take(self, block: Block) -> Block:
        """The sampled values of the next block, as a view."""
        taken = block[self._skip :: self.stride]
        self._skip = (self._skip - len(block)) % self.stride
        return taken


def joined(samples: list[Values]) -> Values:
    """All samples in one array."""
    return np.concatenate(samples) if samples else np.zeros(0, np.float32)
