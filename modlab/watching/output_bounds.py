"""Bounds that hold the outputs of a training, while targets lie beyond them."""

from __future__ import annotations

import math

from torch import Tensor

from modlab.running import bounds

SEVERAL = 3
"""Looks in which outputs stand at the same bound: what a bias alone gives becomes another number with each step."""


class OutputBound:
    """The upper bound of outputs, or the lower one, over looks.

    Args:
        sign: -1 for the lower one.
    """

    def __init__(self, sign: int) -> None:
        self._sign, self._most, self._looks = sign, -math.inf, 0

    def add(self, output: Tensor, target: Tensor, ends: tuple[float, float]) -> None:
        """Take in the numbers of a look, and the ends of the last function, if it has some."""
        output, target = self._sign * output, self._sign * target
        end = max(self._sign * one for one in ends)
        most = float(output.max()) if end == math.inf else end
        if most > self._most:  # then what was there is no bound
            self._most, self._looks = most, 0
        if most == self._most:
            self._looks += most in (end, bounds.upper(output)) and bounds.are_beyond(target, most)

    @property
    def value(self) -> float:
        """It; NaN if there is none."""
        return self._sign * self._most if self._looks >= SEVERAL else math.nan
