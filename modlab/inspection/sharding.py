"""A tensor of torch.distributed → how it lies over the ranks; a module → whether it is a unit of FSDP or DDP. No rank is asked."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from modlab.compat import without_torch_function
from modlab.inspection import stores
from modlab.inspection.distributed import DDP, FSDP1, FSDP2, kind_of
from modlab.records.sharding import OTHER, PARTIAL, REPLICATED, SHARDED, Axis, Placement, Ranks, Sharding, Unit
from modlab.statistics.memory import is_sharded, local

REMEMBERED = 4096

_known: dict[Any, tuple[Sharding, Any]] = {}
"""By mesh, placements and shapes, of which a large model has a few; the mesh stands beside it, so that its id stays its own."""

_PLAIN = frozenset({Tensor, torch.nn.Parameter})


def of_tensor(tensor: Tensor) -> Sharding | None:
    """How a DTensor lies over its mesh; None of any other tensor, and of one that does not tell."""
    if type(tensor) in _PLAIN or not is_sharded(tensor):
        return None
    spec = getattr(tensor, "_spec", None)
    mesh, placements = getattr(spec, "mesh", None), getattr(spec, "placements", None)
    if mesh is None or placements is None:
        return None
    part = local(tensor)
    key = (id(mesh), placements, tensor.shape, part.shape, part.dtype)
    found = _known.get(key)
    if found is None:
        if len(_known) >= REMEMBERED:
            _known.clear()
        found = _known[key] = _sharding(tensor, part, mesh, placements), mesh
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
        return Sharding(shape, local_shape, placed, _ranks(mesh, cut), count, count * part.dtype.itemsize)


def _sizes(mesh: Any) -> tuple[tuple[int, ...], tuple[str, ...]]:
    sizes = tuple(map(int, mesh.shape))
    names = getattr(mesh, "mesh_dim_names", None) or ("",) * len(sizes)
    return sizes, tuple(map(str, names))


def _ranks(mesh: Any, cut: Sequence[bool]) -> Ranks:
    sizes, names = _sizes(mesh)
    place: Any = mesh.get_coordinate() or (None,) * len(sizes)
    axes = tuple(Axis(name, size, at, is_cut) for name, size, at, is_cut in zip(names, sizes, place, cut, strict=True))
    return Ranks(axes, _rank(mesh, place))


def _rank(mesh: Any, place: Any) -> int:
    try:
        return int(mesh.get_rank())
    except (RuntimeError, ValueError):  # the process group is gone, and the model still there
        return int(mesh.mesh[tuple(place)]) if None not in place else -1


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


def part_of(whole: Tensor, sharding: Sharding) -> Tensor | None:
    """Of a whole tensor, the part that this rank holds of one that lies so; None where that is not known.

    Each axis cuts as ``torch.chunk`` does: the first parts are as large as possible, and the last may be empty.
    """
    if sharding.partial or not sharding.ranks.here or any(placement.kind == OTHER for placement in sharding.placements):
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


# ---- modules -------------------------------------------------------------------------------------------------------------


def wrapper_of(cls: type) -> str:
    """Which wrapper of torch.distributed a class of modules is, or has been made by: "FSDP2", "FSDP1", "DDP", or nothing."""
    kind = kind_of(cls)
    return kind if kind in (FSDP2, FSDP1, DDP) else ""


def unit_of(module: Module, kind: str) -> Unit | None:
    """What a module of such a class is as a unit, as far as the wrapper tells."""
    with without_torch_function():
        try:
            return {FSDP2: _fsdp2, FSDP1: _fsdp1, DDP: _ddp}[kind](module)
        except (AttributeError, LookupError, RuntimeError, TypeError, ValueError, AssertionError):  # private names of another torch
            return Unit(kind)


def _fsdp2(module: Any) -> Unit | None:
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:  # torch before 2.9 has one
        groups = [one for one in [getattr(state, "_fsdp_param_group", None)] if one is not None]
    policy = state._mp_policy
    param, reduce, output = (_dtype(getattr(policy, f"{name}_dtype", None)) for name in ("param", "reduce", "output"))
    if not groups:
        return Unit("FSDP2", None, param, reduce, output)
    info = groups[0].mesh_info
    mesh = info.mesh
    cut = [i == getattr(info, "shard_mesh_dim", None) for i in range(mesh.ndim)]
    return Unit("FSDP2", _ranks(mesh, cut), param, reduce, output, getattr(groups[0], "post_forward_mesh_info", None) is not None)


def _fsdp1(module: Module) -> Unit:
    held = stores.contents(module)
    strategy = str(getattr(held.get("sharding_strategy"), "name", ""))
    policy = held.get("mixed_precision")
    reshards = strategy in ("FULL_SHARD", "HYBRID_SHARD") if strategy else None
    ranks = _of_group(held["process_group"], strategy != "NO_SHARD")
    return Unit(
        "FSDP1", ranks, _dtype(getattr(policy, "param_dtype", None)), _dtype(getattr(policy, "reduce_dtype", None)), "", reshards
    )


def _ddp(module: Module) -> Unit:
    held = stores.contents(module)
    policy = held.get("mixed_precision")
    ranks = _of_group(held["process_group"], False)
    return Unit("DDP", ranks, _dtype(getattr(policy, "param_dtype", None)), _dtype(getattr(policy, "reduce_dtype", None)))


def _of_group(group: Any, cut: bool) -> Ranks:
    size, place = int(group.size()), int(group.rank())
    try:
        rank = int(sys.modules["torch.distributed"].get_rank())
    except (RuntimeError, ValueError):
        rank = place
    return Ranks((Axis("", size, place, cut),), rank)


def _dtype(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.") if isinstance(dtype, torch.dtype) else ""


def has_wrappers() -> bool:
    """Whether FSDP1 can have made anything in this process; so that nobody else pays for the question."""
    return "torch.distributed.fsdp.fully_sharded_data_parallel" in sys.modules


class Flat:
    """What FSDP1 has made of a model's parameters: one flat parameter for many, of which each rank holds a piece."""

    def __init__(self, modules: Iterable[Module]) -> None:
        self.tensors: dict[int, Sharding] = {}
        self.own: set[int] = set()  # the flat parameters, registered or not
        self.views: set[tuple[int, str]] = set()  # the module and the attribute that FSDP1 sets anew before each forward pass
        if has_wrappers():
            for module in modules:
                if wrapper_of(type(module)) == "FSDP1":
                    self._unit(module)

    def _unit(self, module: Module) -> None:
        handle = stores.contents(module).get("_handle")
        flat = getattr(handle, "flat_param", None)
        unit = unit_of(module, "FSDP1")
        if flat is None or unit is None or unit.ranks is None:
            return
        try:
            self._read(flat, unit.ranks)
        except (AttributeError, RuntimeError, TypeError, ValueError):  # private names of another torch
            return

    def _read(self, flat: Any, ranks: Ranks) -> None:
        self.own.add(id(flat))
        placement = Placement(SHARDED if ranks.parts > 1 else REPLICATED, "", ranks.size, 0)
        whole, size = tuple(flat._unpadded_unsharded_size), flat.dtype.itemsize
        count = self._piece(flat, ranks, whole[0])
        if not flat._params:
            self.tensors[id(flat)] = Sharding(whole, (count,), (placement,), ranks, count, count * size, "flat parameter")
        for info in flat._param_infos:
            self.views.add((id(info.module), info.param_name))
        for parameter, shape, place in zip(flat._params or (), flat._shapes, flat._shard_param_infos or (), strict=False):
            here = int(getattr(place, "numel_in_shard", None) or 0)
            self.tensors[id(parameter)] = Sharding(
                tuple(shape), (here,), (placement,), ranks, here, here * size, "in a flat parameter"
            )

    @staticmethod
    def _piece(flat: Any, ranks: Ranks, whole: int) -> int:
        """How many numbers of the whole are in this rank's piece; what pads it is none of them."""
        step = int(flat._sharded_size[0]) if ranks.parts > 1 else whole
        return min(step, whole - min((ranks.axes[0].coordinate or 0) * step, whole))
