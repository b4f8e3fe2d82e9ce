"""Views in a graph that tear samples or positions apart: ``reshape`` where axes should have been moved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise
from operator import mul
from typing import Any, NamedTuple

from modlab.records.clues import VIEWS
from modlab.running.autograd_nodes import children, name_of, saved, shape_of

Shape = tuple[int, ...]


class Torn(NamedTuple):
    """One view that puts numbers of several samples, or positions, into one.

    Attributes:
        path: of the module that gave what comes of it; "" if that was not found.
        taken, given: the shapes before and after it.
        what: "samples", "positions" or "axes".
    """

    path: str
    taken: Shape
    given: Shape
    what: str


def torn(nodes: Iterable[tuple[Any, str]], samples: int, length: int) -> Iterator[Torn]:
    """The views that do so among the nodes of a graph.

    Args:
        nodes: each with the path of the module that gave what comes of it.
        samples: of the batch.
        length: of its sequences, 0 if they are none.
    """
    for node, path in nodes:
        if name_of(node) in VIEWS:
            given = shape_of(node)
            for taken in _takes(node):
                if what := tears(taken, given, samples, length):
                    yield Torn(path, taken, given, what)
                    break


def tears(taken: Shape, given: Shape, samples: int, length: int) -> str:
    """What a view from one shape to another mixes up; "" if nothing.

    A view may split dimensions and join neighbours. Then each of its edges, which is the number of entries that stand in front of a
    dimension, divides the next one, of both shapes together. Where they do not, numbers of different rows come into one.
    """
    before, after = _edges(taken), _edges(given)
    edges = sorted({*before, *after})
    if _is_second_made_first(samples, taken, given):
        return "samples"
    if 0 in edges or all(later % one == 0 for one, later in pairwise(edges)):
        return ""
    if _has_moved(samples, taken, given):
        return "samples"
    if _is_permuted(taken, given):
        return "axes"
    return "positions" if taken[:1] == given[:1] == (samples,) and _has_moved(length, taken, given) else ""


def _has_moved(size: int, taken: Shape, given: Shape) -> bool:
    """Whether a dimension of this size goes into the view and comes out of it, with another number of entries in front of it."""
    ins, outs = ({edge for edge, one in zip(_edges(shape), shape, strict=False) if one == size} for shape in (taken, given))
    return size > 1 and bool(ins and outs) and ins.isdisjoint(outs)


def _is_second_made_first(samples: int, taken: Shape, given: Shape) -> bool:
    """Whether samples that stood second become the rows of a matrix, as of the states that a recurrent layer gives in each direction."""
    rows = len(given) == 2 and given[0] == samples > 1
    return rows and len(taken) > 2 and taken[1] == samples and taken[0] > 1 and taken[0] % samples != 0


def _is_permuted(taken: Shape, given: Shape) -> bool:
    """Whether the sizes of each sample are the same ones in another order: who writes that means to move axes."""
    return len(taken) == len(given) > 2 and taken[0] == given[0] and taken != given and sorted(taken) == sorted(given)


def _edges(shape: Shape) -> list[int]:
    """How many entries stand in front of each dimension, and how many there are in all."""
    return [*accumulate(shape, mul, initial=1)]


def _takes(node: Any) -> Iterator[Shape]:
    """What goes into a view, and into each one in front of it where several stand in a row."""
    while name_of(node) in VIEWS:
        sizes = saved(node, "self_sym_sizes")
        yield tuple(int(size) for size in sizes) if isinstance(sizes, (tuple, list)) else ()
        node = next(iter(children(node)), None)
