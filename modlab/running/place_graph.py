"""Which places of a sequence a graph takes of what a module gave: the last one alone, or the mean over all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from modlab.records.clues import MOVES
from modlab.running.autograd_nodes import children, name_of, saved

PASSES = MOVES | {"Slice", "Add"}
"""Functions behind which a place is still that place."""


POOLS = ("Mean", "Sum", "Max")
"""Functions that make one row of those of all places."""


class Takers:
    """What takes the results of functions of a graph.

    Args:
        nodes: of it, each with a path.
    """

    def __init__(self, nodes: Iterable[tuple[Any, str]]) -> None:
        self._by_node: dict[Any, list[Any]] = {}
        for node, _ in nodes:
            for one in children(node):
                self._by_node.setdefault(one, []).append(node)

    def of(self, node: Any, depth: int = 6) -> list[Any]:
        """The nearest ones that do more than to lay out anew, or to add something."""
        found = []
        for one in self._by_node.get(node, ()):
            found += self.of(one, depth - 1) if name_of(one) in PASSES and depth else [one]
        return found

    def take_last(self, node: Any, length: int) -> bool:
        """Whether nothing is taken but the last place of so many, or none at all, as where a layer gives its last state beside them."""
        return all(name_of(one) == "Select" and _is_last(one, length) for one in self.of(node))

    def average(self, node: Any, length: int) -> bool:
        """Whether all that takes it is a mean over so many places."""
        some = self.of(node)
        return bool(some) and all(name_of(one) == "Mean" and length in _reduced(one) for one in some)


def is_pooled(nodes: Iterable[tuple[Any, str]], length: int) -> bool:
    """Whether a graph goes over so many places by a mean, a sum or a maximum, and takes none of so many by itself."""
    pooled = False
    for node, _ in nodes:
        if name_of(node) == "Select" and length in _reduced(node):
            return False
        pooled |= name_of(node) in POOLS and length in _reduced(node)
    return pooled


def _is_last(node: Any, length: int) -> bool:
    index, sizes, dim = saved(node, "index"), saved(node, "self_sym_sizes"), saved(node, "dim")
    return sizes[dim] == length and index in (-1, length - 1) if isinstance(index, int) and isinstance(dim, int) and sizes else False


def _reduced(node: Any) -> list[int]:
    """The sizes of the dimensions over which it goes."""
    dims, sizes = saved(node, "dim"), saved(node, "self_sym_sizes")
    some = dims if isinstance(dims, tuple) else (dims,)
    return [int(sizes[dim]) for dim in some] if sizes and None not in some else []
