"""The sharding of a tensor of torch.distributed: how it lies over the ranks. No rank is asked."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any
from weakref import ref

import torch
from torch import Tensor

from modlab.compat import without_torch_function
from modlab.records.sharding import OTHER, PARTIAL, REPLICATED, SHARDED, Axis, Placement, Ranks, Sharding
from modlab.statistics.memory import PLAIN, is_sharded, local

REMEMBERED = 4096

_Lie = tuple[tuple[int, ...], tuple[str, ...], tuple[int | None, ...], int]
"""What modlab knows of a mesh: sizes and names of its axes, this rank's place, and the rank."""

_meshes: dict[int, tuple[_Lie, ref[Any]]] = {}
"""By the id of a mesh, of which FSDP2 makes many equal ones; a weak hold on it tells whether the id is still its own."""

_known: dict[Any, Sharding] = {}
"""By mesh, placements and shapes: tensors that lie alike have one record, so that equal layers fold."""

_last_rank = -1
_moved = False  # this process has been another rank before: a test, with a fake process group


def of_tensor(tensor: Tensor) -> Sharding | None:
    """How a DTensor lies over its mesh; None of any other tensor, and of one that does not tell."""
    if type(tensor) in PLAIN or not is_sharded(tensor):
        return None
    try:
        spec: Any = tensor._spec  # type: ignore[attr-defined]
        mesh, placements, part = spec.mesh, spec.placements, local(tensor)
    except AttributeError:  # of another torch
        return None
    seen = _meshes.get(id(mesh))
    lie = seen[0] if seen is not None and seen[1]() is mesh else _lie(mesh)
    key = (id(lie), id(_first(placements)), spec.shape, part.shape, part.dtype)
    found = _known.get(key)
    if found is None:
        if len(_known) >= REMEMBERED:
            _known.clear()
        found = _known[key] = _sharding(tensor, part, lie, placements)
    return found


_equal: dict[Any, Any] = {}
_firsts: dict[int, tuple[Any, Any]] = {}


def _first(placements: Any) -> Any:
    """The first of all placements that are equal, by identity where these were asked before: their hash is a function of Python."""
    known = _firsts.get(id(placements))
    if known is None or known[0] is not placements:
        if len(_firsts) >= REMEMBERED:
            _firsts.clear()
        known = _firsts[id(placements)] = placements, _equal.setdefault(placements, placements)
    return known[1]


_lies: dict[_Lie, _Lie] = {}


def _lie(mesh: Any) -> _Lie:
    """The one record of all meshes that are equal."""
    with without_torch_function():
        sizes = tuple(map(int, mesh.shape))
        names = tuple(map(str, getattr(mesh, "mesh_dim_names", None) or ("",) * len(sizes)))
        place, rank = tuple(_place(mesh, sizes)), this_rank()
        if rank < 0 and None not in place:  # the process group is gone, and the model still there
            rank = int(mesh.mesh[place])
    found: _Lie = (sizes, names, place, rank)
    found = _lies.setdefault(found, found)
    if len(_meshes) >= REMEMBERED:
        _meshes.clear()
    _meshes[id(mesh)] = found, ref(mesh)
    return found


def renew() -> None:
    """Forget what was known of the ranks, where this process has a different rank now, as in a test with a fake process group."""
    global _last_rank, _moved
    rank = this_rank()
    if rank != _last_rank:
        _moved |= _last_rank >= 0 <= rank
        _meshes.clear()
        _last_rank = rank if rank >= 0 else _last_rank


def _sharding(tensor: Tensor, part: Tensor, lie: _Lie, placements: Sequence[Any]) -> Sharding:
    with without_torch_function():
        sizes, names, _, _ = lie
        turns = _turns(placements, sizes)
        placed = tuple(_placement(one, name, size, turn) for one, name, size, turn in zip(placements, names, sizes, turns, strict=True))
        cut = tuple(one.kind != REPLICATED for one in placed)
        shape, local_shape = tuple(map(int, tensor.shape)), tuple(map(int, part.shape))
        count = prod(local_shape)
        return Sharding(shape, local_shape, placed, _ranks(lie, cut), count, count * part.dtype.itemsize)


def ranks_of(mesh: Any, cut: tuple[bool, ...]) -> Ranks:
    """The ranks of a mesh, and this one's place on it; `cut` says over which axes something is cut."""
    seen = _meshes.get(id(mesh))
    return _ranks(seen[0] if seen is not None and seen[1]() is mesh else _lie(mesh), cut)


@lru_cache(maxsize=REMEMBERED)
def _ranks(lie: _Lie, cut: tuple[bool, ...]) -> Ranks:
    sizes, names, place, rank = lie
    return Ranks(tuple(Axis(name, size, at, is_cut) for name, size, at, is_cut in zip(names, sizes, place, cut, strict=True)), rank)


def this_rank() -> int:
    """Of this process; -1 without a process group."""
    distributed: Any = torch.distributed
    return int(distributed.get_rank()) if distributed.is_available() and distributed.is_initialized() else -1


def _place(mesh: Any, sizes: tuple[int, ...]) -> Sequence[int | None]:
    """Where this rank is on a mesh.

    The mesh knows that from when it was made. Where this process has been another rank before, torch may hand out an equal mesh of
    that time, and what it knows is no longer so.
    """
    nowhere = (None,) * len(sizes)
    rank = this_rank()
    if rank < 0 or not _moved:
        return mesh.get_coordinate() or nowhere
    listed = mesh.mesh.flatten().tolist()
    if rank not in listed:
        return nowhere
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

    -1 if it says so of others: of which rows it holds nothing is known then.
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
