"""Whether samples are kept apart behind a function: what it gives of one goes on to the same one, and is not added up over all."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from modlab.records.clues import VIEWS
from modlab.running.autograd_nodes import children, name_of, saved, shape_of

FAR = 8
"""Functions behind it that are looked at, at most."""

RESHAPED = VIEWS | {"Squeeze", "Unsqueeze"}
SUMS = frozenset(("Sum", "Mean"))
PRODUCTS = {"Mm": (0, 0), "Mv": (0, 0), "Bmm": (0, 1), "Addmm": (1, 0)}
"""Products of matrices: where the first factor is among what they take, and how many dimensions before it stay."""


def are_kept(node: Any, takers: Mapping[Any, Sequence[Any]]) -> bool:
    """Whether the first dimension of what a function gives outlives the first sum over another one.

    Args:
        node: the function.
        takers: by function, those that take what it gives.
    """
    dim = 0
    for _ in range(FAR):
        taker = next(iter(takers.get(node, ())), None)
        name = name_of(taker) if taker is not None else ""
        if taker is None or name in SUMS or name in PRODUCTS:
            return taker is not None and (_outlives_sum(taker, dim, shape_of(node)) if name in SUMS else _outlives(taker, node, dim))
        moved = _moved(taker, name, dim, shape_of(node))
        if moved is None:
            return False
        node, dim = taker, moved
    return False


def _outlives_sum(node: Any, dim: int, shape: Sequence[int]) -> bool:
    dims = saved(node, "dim")
    along = dims if isinstance(dims, tuple) else (dims,) if isinstance(dims, int) else ()
    return bool(along) and dim not in {one % len(shape) for one in along}


def _outlives(product: Any, factor: Any, dim: int) -> bool:
    """Whether a product of matrices keeps a dimension of a factor: the rows of the first one, the columns of the second one."""
    first, batched = PRODUCTS[name_of(product)]
    is_first = product.next_functions[first][0] is factor
    return dim < batched or dim == (batched if is_first else batched + 1)


def _moved(taker: Any, name: str, dim: int, shape: Sequence[int]) -> int | None:
    """Where a function that takes number by number, or lays out anew, puts a dimension; None where that is not known."""
    after = shape_of(taker)
    if name == "T" and len(shape) == 2:
        return 1 - dim
    if name == "Transpose":
        sides = [saved(taker, one) for one in ("dim0", "dim1")]
        one, other = (side % len(shape) if isinstance(side, int) else -1 for side in sides)
        return other if dim == one else one if dim == other else dim
    if name == "Permute":
        dims = [one % len(shape) for one in saved(taker, "dims") or ()]
        return dims.index(dim) if dim in dims else None
    if name in RESHAPED:
        before, size = math.prod(shape[:dim]), shape[dim]
        return next((place for place, one in enumerate(after) if one == size and math.prod(after[:place]) == before), None)
    place = dim + len(after) - len(shape)
    same = 0 <= place < len(after) and after[place] == shape[dim] and len(children(taker)) > 0
    return place if same and name in ("Mul", "Div", "Add", "Sub", "Clone", "ToCopy", "Expand", "NativeDropout", "Pow") else None
