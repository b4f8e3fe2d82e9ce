"""Views in a graph that tear samples or positions apart: ``reshape`` where axes should have been moved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise
from math import prod
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
    dimension, divides the next one, of both shapes together. Where they do not, numbers of different rows come into one. Where they
    do, because sizes are powers of two, it is told by sizes that come out in another order.
    """
    edges = sorted({*_edges(taken), *_edges(given)})
    if _is_second_made_first(samples, taken, given) or _is_swapped(samples, taken, given):
        return "samples"
    if 0 in edges or _is_relative_shift(taken, given):
        return ""
    if all(later % one == 0 for one, later in pairwise(edges)):
        return "axes" if _is_cut_twice(taken, given) or _is_cut_twice(given, taken) else ""
    if _has_moved(samples, taken, given):
        return "samples"
    if _is_permuted(taken, given):
        return "axes"
    return "positions" if taken[:1] == given[:1] == (samples,) and _has_moved(length, taken, given) else ""


def tears_data(taken: Shape, given: Shape, samples: int, length: int) -> str:
    """What a view of data does, in front of all layers: nobody means sizes in another order there."""
    many, others = ([size for size in shape if size != 1] for shape in (taken, given))
    if many != others and sorted(many) == sorted(others):
        return "axes" if taken[0] == given[0] else "samples"
    return tears(taken, given, samples, length)


def _has_moved(size: int, taken: Shape, given: Shape) -> bool:
    """Whether a dimension of this size goes into the view and comes out of it, with another number of entries in front of it."""
    ins, outs = ({edge for edge, one in zip(_edges(shape), shape, strict=False) if one == size} for shape in (taken, given))
    return size > 1 and bool(ins and outs) and ins.isdisjoint(outs)


def _is_second_made_first(samples: int, taken: Shape, given: Shape) -> bool:
    """Whether samples that stood second become the rows of a matrix, as of the states that a recurrent layer gives in each direction."""
    rows = len(given) == 2 and given[0] == samples > 1
    return rows and len(taken) > 2 and taken[1] == samples and taken[0] > 1 and taken[0] % samples != 0


def _is_swapped(samples: int, taken: Shape, given: Shape) -> bool:
    """Whether samples and what stands beside them come out the other way round, and all else stays."""
    first, second = taken[:2] if len(taken) > 2 else (1, 1)
    return 1 < first != second > 1 and samples in (first, second) and given == (second, first, *taken[2:])


def _is_permuted(taken: Shape, given: Shape) -> bool:
    """Whether the sizes of each sample are the same ones in another order: who writes that means to move axes."""
    return len(taken) == len(given) > 2 and taken[0] == given[0] and taken != given and sorted(taken) == sorted(given)


def _is_relative_shift(taken: Shape, given: Shape) -> bool:
    """Whether n and n + 1 change places: so relative positions are shifted, and this view is meant (Dai et al., Transformer-XL, 2019)."""
    return len(taken) > 2 and taken[:-2] == given[:-2] and taken[-2:] == given[:-3:-1] and taken[-1] == taken[-2] + 1


def _is_cut_twice(taken: Shape, given: Shape) -> bool:
    """Whether the sizes come out in another order, one of them perhaps as two, and more than one dimension is taken apart for that.

    Heads are split from one dimension alone, whatever the sizes are.
    """
    if len(taken) < 3 or taken[0] != given[0] or not _has_sizes_of(taken, given):
        return False
    edges = _edges(taken)
    return sum(any(one < edge < later for edge in _edges(given)) for one, later in pairwise(edges)) > 1


def _has_sizes_of(taken: Shape, given: Shape) -> bool:
    """Whether one shape has the sizes of another, in any order, and of one of them perhaps two factors."""
    gone, come = Counter(taken) - Counter(given), Counter(given) - Counter(taken)
    return gone == come or (gone.total() == 1 and come.total() == 2 and prod(gone) == prod(come.elements()))


def _edges(shape: Shape) -> list[int]:
    """How many entries stand in front of each dimension, and how many there are in all."""
    return [*accumulate(shape, mul, initial=1)]


def _takes(node: Any) -> Iterator[Shape]:
    """What goes into a view, and into each one in front of it where several stand in a row."""
    while name_of(node) in VIEWS:
        sizes = saved(node, "self_sym_sizes")
        yield tuple(int(size) for size in sizes) if isinstance(sizes, (tuple, list)) else ()
        node = next(iter(children(node)), None)
