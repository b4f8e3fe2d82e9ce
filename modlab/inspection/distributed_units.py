"""A module of torch.distributed → what FSDP or DDP makes of it, and of its parameters. No rank is asked."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
from torch.nn import Module

from modlab.compat import without_torch_function
from modlab.inspection import stores
from modlab.inspection.distributed import DDP, FSDP1, FSDP2, kind_of
from modlab.records.sharding import REPLICATED, SHARDED, Axis, Placement, Ranks, Sharding, Unit
from modlab.statistics.sharding import ranks_of

OWN = ("__composable_api", "_is_fsdp_managed_module", "_fsdp_use_orig_params")


def wrapper_of(cls: type) -> str:
    """Which wrapper of torch.distributed a class of modules is, or has been made by: "FSDP2", "FSDP1", "DDP", or nothing."""
    kind = kind_of(cls)
    return kind if kind in (FSDP2, FSDP1, DDP) else ""


def authors_values(held: dict[str, Any], values: list[Any]) -> list[Any]:
    """The attributes of a module of FSDP2 (given as its ``__dict__``) without what FSDP2 keeps there for itself."""
    own = [value for name, value in held.items() if name not in stores.STANDARD and not name.startswith(OWN)]
    return own if len(own) <= len(values) else values


def unit_of(module: Module, kind: str) -> Unit | None:
    """What a module of such a class is as a unit, as far as the wrapper tells."""
    with without_torch_function():
        try:
            return _UNITS[kind](module)
        except (AttributeError, LookupError, RuntimeError, TypeError, ValueError, AssertionError):  # private names of another torch
            return Unit(kind)


def seen_of(module: Any) -> tuple[Any, ...]:
    """What a unit of FSDP2 is made of, by identity: cheaper than the unit, and no other as long as the unit is no other."""
    state = module._get_fsdp_state()
    groups = state._fsdp_param_groups
    return state._mp_policy, groups and groups[0].mesh_info, groups and groups[0].post_forward_mesh_info


def mixed_precision(module: Any) -> Any:
    """The policy by which a unit of FSDP2 computes in another dtype; None where it has none, or is no unit."""
    if not hasattr(type(module), "_get_fsdp_state"):
        return None
    policy: Any = getattr(module._get_fsdp_state(), "_mp_policy", None)
    return policy if getattr(policy, "param_dtype", None) is not None else None


def _fsdp2(module: Any) -> Unit | None:
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:  # torch before 2.9 has one
        groups = [one for one in [getattr(state, "_fsdp_param_group", None)] if one is not None]
    policy, ranks, reshards = state._mp_policy, None, None
    if groups:
        info = groups[0].mesh_info
        cut = tuple(i == getattr(info, "shard_mesh_dim", None) for i in range(info.mesh.ndim))
        ranks, reshards = ranks_of(info.mesh, cut), getattr(groups[0], "post_forward_mesh_info", None) is not None
    key = id(ranks), policy.param_dtype, policy.reduce_dtype, policy.output_dtype, reshards  # the unit keeps `ranks` alive
    unit = _units.get(key)
    if unit is None:
        param, reduce, output = map(_dtype, key[1:4])
        unit = _units[key] = Unit("FSDP2", ranks, param, reduce, output, reshards)
    return unit


_units: dict[tuple[Any, ...], Unit] = {}
"""Those of FSDP2 that are equal are one: there may be thousands."""


def _fsdp1(module: Module) -> Unit:
    held = stores.contents(module)
    strategy = str(getattr(held.get("sharding_strategy"), "name", ""))
    policy = held.get("mixed_precision")
    reshards = strategy in ("FULL_SHARD", "HYBRID_SHARD") if strategy else None
    ranks = _of_group(held["process_group"], strategy != "NO_SHARD")
    return Unit("FSDP1", ranks, _dtype(getattr(policy, "param_dtype", None)), _dtype(getattr(policy, "reduce_dtype", None)), "", reshards)


def _ddp(module: Module) -> Unit | None:
    if hasattr(type(module), "_get_fsdp_state"):  # replicate, made of what fully_shard is made of
        unit = _fsdp2(module)
        return None if unit is None else replace(unit, kind="DDP", reshards=None)
    held = _stores_of_ddp(module)
    policy = held.get("mixed_precision")
    ranks = _of_group(held["process_group"], False)
    return Unit("DDP", ranks, _dtype(getattr(policy, "param_dtype", None)), _dtype(getattr(policy, "reduce_dtype", None)))


def _stores_of_ddp(module: Module) -> dict[str, Any]:
    """Those of a DDP, or of the one that ``replicate`` makes beside a module when that is called for the first time."""
    held = stores.contents(module)
    if "process_group" in held:
        return held
    states = next(value for name, value in held.items() if name.startswith("__composable_api_state_key"))
    state = next(one for one in states.values() if hasattr(one, "_init_kwargs"))
    if (made := getattr(state, "_ddp", None)) is not None:
        return stores.contents(made)
    given = state._init_kwargs
    mesh = given.get("device_mesh")
    return {"process_group": mesh.get_group() if mesh is not None else given.get("process_group") or torch.distributed.group.WORLD}


def _of_group(group: Any, cut: bool) -> Ranks:
    size, place = int(group.size()), int(group.rank())
    try:
        rank = int(sys.modules["torch.distributed"].get_rank())
    except (RuntimeError, ValueError):
        rank = place
    return Ranks((Axis("", size, place, cut),), rank)


_UNITS: dict[str, Callable[[Any], Unit | None]] = {FSDP2: _fsdp2, FSDP1: _fsdp1, DDP: _ddp}


def _dtype(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.") if isinstance(dtype, torch.dtype) else ""


def fsdp1() -> Any:
    """The class of FSDP1's units; None unless it has been imported, so that nothing else pays for the question."""
    return getattr(sys.modules.get("torch.distributed.fsdp.fully_sharded_data_parallel"), "FullyShardedDataParallel", None)


class Flat:
    """What FSDP1 has made of a model's parameters: one flat parameter for many, of which each rank holds a piece."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        self.tensors: dict[int, Sharding] = {}
        self.own: set[int] = set()  # the flat parameters, registered or not
        self.views: set[tuple[int, str]] = set()  # the module and the attribute that FSDP1 sets anew before each forward pass
        cls = fsdp1()
        for module in modules if cls is not None else ():
            if issubclass(type(module), cls):
                self.add(module)

    def add(self, module: Module) -> None:
        """Note what one unit of FSDP1 holds."""
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
            self.tensors[id(parameter)] = Sharding(tuple(shape), (here,), (placement,), ranks, here, here * size, "in a flat parameter")

    @staticmethod
    def _piece(flat: Any, ranks: Ranks, whole: int) -> int:
        """How many numbers of the whole are in this rank's piece; what pads it is none of them."""
        step = int(flat._sharded_size[0]) if ranks.parts > 1 else whole
        return min(step, whole - min((ranks.axes[0].coordinate or 0) * step, whole))
