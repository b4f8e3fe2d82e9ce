"""Stale weights: what was computed from them before a step is used again after it, so the loss does not see where the step has led."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from torch import Tensor

from modlab.running.autograd_nodes import children, name_of
from modlab.watching.pools import is_readable
from modlab.watching.rewritten_weights import are_same, probe

CAST = "ToCopy"
"""The function by which autocast gives a weight fewer bits: once for each of its blocks."""


class StaleWeights:
    """Knows the functions right above parameters in the graphs of losses, and the versions of these when each was met first."""

    def __init__(self) -> None:
        self._above: dict[Any, list[_Mark]] = {}

    def met(self, nodes: Iterable[Any], paths: dict[int, str], *, by_hand: bool) -> Iterator[tuple[str, bool]]:
        """The parameters that have moved since a function above them was called, and whether that is a cast.

        Args:
            nodes: of the graph of a loss.
            paths: of the parameters, by identity.
            by_hand: whether weights may be written through `.data`, which no version counts: then their numbers are asked, too.
        """
        for node in nodes:
            below = children(node)
            if not below or any(name_of(one) != "AccumulateGrad" for one in below):
                continue  # what takes something else, too, would keep that in memory
            weights = [one.variable for one in below]
            marks = [_mark(one, by_hand=by_hand) for one in weights]
            for weight, before, now in zip(weights, self._above.setdefault(node, marks), marks, strict=True):
                if _have_moved(before, now) and id(weight) in paths:
                    yield paths[id(weight)], name_of(node) == CAST

    def forget(self) -> None:
        """Let go of the functions."""
        self._above = {}


class _Mark(NamedTuple):
    """What tells that a weight has moved: its version, and some of its numbers."""

    version: int
    numbers: list[Tensor]


def _mark(tensor: Tensor, *, by_hand: bool) -> _Mark:
    version = -1 if tensor.is_inference() else tensor._version
    return _Mark(version, [probe(tensor)] if by_hand and is_readable(tensor) else [])


def _have_moved(before: _Mark, now: _Mark) -> bool:
    return before.version != now.version or bool(before.numbers and now.numbers and not are_same(before.numbers, now.numbers))
