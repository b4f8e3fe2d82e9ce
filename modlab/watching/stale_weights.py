"""Stale weights: what was computed from them before a step is used again after it, so the loss does not see where the step has led."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor

from modlab.running.autograd_nodes import children, name_of

CAST = "ToCopy"
"""The function by which autocast gives a weight fewer bits: once for each of its blocks."""


class StaleWeights:
    """Knows the functions right above parameters in the graphs of losses, and the versions of these when each was met first."""

    def __init__(self) -> None:
        self._above: dict[Any, list[int]] = {}

    def met(self, nodes: Iterable[Any], paths: dict[int, str]) -> Iterator[tuple[str, bool]]:
        """The parameters that have moved since a function above them was called, and whether that is a cast.

        Args:
            nodes: of the graph of a loss.
            paths: of the parameters, by identity.
        """
        for node in nodes:
            below = children(node)
            if not below or any(name_of(one) != "AccumulateGrad" for one in below):
                continue  # what takes something else, too, would keep that in memory
            weights = [one.variable for one in below]
            versions = [*map(_version, weights)]
            for weight, before, now in zip(weights, self._above.setdefault(node, versions), versions, strict=True):
                if before != now and id(weight) in paths:
                    yield paths[id(weight)], name_of(node) == CAST

    def forget(self) -> None:
        """Let go of the functions."""
        self._above = {}


def _version(tensor: Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version
