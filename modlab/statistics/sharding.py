"""A tensor of torch.distributed → how it lies over the ranks. No rank is asked."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any
from weakref import ref

import torch
from torch import Tensor

from modlab.compat import without_torch_function
from modlab.records.sharding import OTHER, PARTIAL, REPLICATED, SHARDED, Axis, Placement, Ranks, Sharding
from modlab.statistics.memory import PLAIN, is_sharded, local

REMEMBERED = 4096

_known: dict[Any, tuple[Sharding, ref[Any]]] = {}
"""By mesh, placements and shapes, of which a large model has a few; a weak hold on the mesh tells whether the id is still its own."""



def of_tensor(tensor: Tensor) -> Sharding | None:
    """How a DTensor lies over its mesh; None of any other tensor, and of one that does not tell."""
    if type(tensor) in PLAIN or not is_sharded(tensor):
        return None
    spec = getattr(tensor, "_spec", None)
    mesh, placements = getattr(spec, "mesh", None), getattr(spec, "placements", None)
    if mesh is None or placements is None:
        return None
    part = local(tensor)
    key = (id(mesh), _rank(), placements, tensor.shape, part.shape, part.dtype)
    found = _known.get(key)
    if found is None or found[1]() is not mesh:
        if len(_known) >= REMEMBERED:
            _known.clear()
        found = _known[key] = _sharding(tensor, part, mesh, placements), ref(mesh)
    return found[0]


def _sharding(tensor: Tensor, part: Tensor, mesh: Any, placements: Sequence[Any]) -> Sharding:
    with without_torch_function():
        sizes, names = _sizes(mesh)
        turns = _turns(placements, sizes)
        placed = tuple(
            _placement(one, name, size, turn) for one, name, size, turn in zip(placements, names, sizes, turns, strict=True)
        )  # fmt: skip
        cut = tuple(one.kind != REPLICATED for one in placed)
        shape, local_shape = tuple(map(int, tensor.shape)), tuple(map(int, part.shape))
        count = prod(local_shape)
        return Sharding(shape, local_shape, placed, ranks_of(mesh, cut), count, count * part.dtype.itemsize)


def _sizes(mesh: Any) -> tuple[tuple[int, ...], tuple[str, ...]]:
    sizes = tuple(map(int, mesh.shape))
    names = getattr(mesh, "mesh_dim_names", None) or ("",) * len(sizes)
    return sizes, tuple(map(str, names))


def ranks_of(mesh: Any, cut: Sequence[bool]) -> Ranks:
    """The ranks of a mesh, and this one's place on it; `cut` says over which axes something is cut."""
    sizes, names = _sizes(mesh)
    place = _place(mesh, sizes)
    axes = tuple(Axis(name, size, at, is_cut) for name, size, at, is_cut in zip(names, sizes, place, cut, strict=True))
    rank = _rank()
    if rank < 0 and None not in place:  # the process group is gone, and the model still there
        rank = int(mesh.mesh[tuple(place)])
    return Ranks(axes, rank)


def _rank() -> int:
    """Of this process; -1 without a process group."""
    distributed: Any = torch.distributed
    return int(distributed.get_rank()) if distributed.is_available() and distributed.is_initialized() else -1


def _place(mesh: Any, sizes: tuple[int, ...]) -> Sequence[int | None]:
    """Where this rank is on a mesh.

    The mesh itself knows that from when it was made; torch hands out equal ones of an earlier process group too, where there was one.
    """
    rank = _rank()
    try:
        listed = mesh.mesh.flatten().tolist()
    except (RuntimeError, AttributeError):  # under a mode in which tensors have no numbers
        listed = []
    if rank < 0 or not listed:
        return mesh.get_coordinate() or (None,) * len(sizes)
    if rank not in listed:
        return (None,) * len(sizes)
    at, place = listed.index(rank), list[int | None]()
    for size in reversed(sizes):
        place.insert(0, at % size)
        at //= size
    return place


def _placement(placement: Any, name: str, size: int, turn: int) -> Placement:
    kind = type(placement).__name__
    if kind == "Replicate":
        return Placement(REPLICATED, name, size)
    if kind in ("Shard", "_StridedShard") and turn >= 0:
        return Placement(SHARDED, name, size, int(placement.dim), turn)
    if kind == "Partial":
        return Placement(PARTIAL, name, size, word=str(getattr(placement, "reduce_op", "")))
    return Placement(OTHER, name, size, int(getattr(placement, "dim", -1)), word=str(placement))


def _turns(placements: Sequence[Any], sizes: Sequence[int]) -> list[int]:
    """When each axis cuts its dimension: from left to right, but for a strided shard, which cuts what those to its right have cut.

    -1 of one that says so of others than these: of which rows it holds nothing is known then.
    """
    turns = [0] * len(placements)
    for dim in {getattr(one, "dim", None) for one in placements} - {None}:
        mine = [i for i, one in enumerate(placements) if getattr(one, "dim", None) == dim]
        order: list[int] = []
        for i in reversed(mine):
            factor = int(getattr(placements[i], "split_factor", 1))
            later = prod(sizes[j] for j in mine if j > i)
            if type(placements[i]).__name__ == "_StridedShard" and factor != 1:
                order.append(i)
                turns[i] = 0 if factor == later else -1
            else:
                order.insert(0, i)
        for turn, i in enumerate(order):
            turns[i] = turn if turns[i] >= 0 else -1
    return turns


def same_parts(one: Sharding | None, other: Sharding | None) -> bool:
    """Whether a rank holds the same part of two tensors, whatever the axes of their meshes are called."""
    if one is None or other is None:
        return one is other
    return one == other or _parts(one) == _parts(other)


def _parts(lies: Sharding) -> Any:
    placed = [(one.kind, one.size, one.dim, one.turn, one.word) for one in lies.placements if one.size > 1]
    axes = [axis.coordinate for axis in lies.ranks.axes if axis.size > 1 and axis.cut]
    return lies.form, lies.shape, lies.local_shape, placed, axes


def part_of(whole: Tensor, sharding: Sharding) -> Tensor | None:
    """Of a whole tensor, the part that this rank holds of one that lies so; None where that is not known.

    Each axis cuts as ``torch.chunk`` does: the first parts are as large as possible, and the last may be empty.
    """
    if sharding.form != "DTensor" or sharding.partial or not sharding.ranks.here:
        return None
    if any(placement.kind == OTHER for placement in sharding.placements):
        return None
    cuts = [
        (placement.turn, placement.dim, placement.size, axis.coordinate)
        for placement, axis in zip(sharding.placements, sharding.ranks.axes, strict=True)
        if placement.kind == SHARDED
    ]
    for _, dim, size, at in sorted(cuts):
        assert at is not None
        full = whole.size(dim)
        step = -(-full // size)
        begin = min(at * step, full)
        whole = whole.narrow(dim, begin, min(step, full - begin))
    return whole if tuple(whole.shape) == sharding.local_shape else None
