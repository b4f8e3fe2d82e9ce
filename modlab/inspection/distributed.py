"""How a model is spread over processes: facts alone, read from classes and stores. No rank is asked for anything."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module

from modlab.compat import REHEARSAL, STAGE, without_torch_function
from modlab.inspection import stores
from modlab.records.structure import VARIABLE
from modlab.statistics.memory import is_sharded

DDP, FSDP1, FSDP2, TP, PIPELINE, SYNC = "DDP", "FSDP1", "FSDP2", "TP", "pipeline", "SyncBatchNorm"

PREFIX = "module"
"""The name under which DDP, and DataParallel, hold the user's model."""

_AROUND = frozenset({"DistributedDataParallel", "DataParallel"})

_CLASSES = {
    "DistributedDataParallel": DDP,
    "FullyShardedDataParallel": FSDP1,
    "FSDPModule": FSDP2,
    "ReplicateModule": DDP,
    "DDP": DDP,
    "Pipe": PIPELINE,
    "SyncBatchNorm": SYNC,
}
_ORDER = (DDP, FSDP1, FSDP2, TP, PIPELINE, SYNC)


OF_PIPELINE = {
    STAGE: "this is one stage of a pipeline: the stages on other ranks are not seen",
    REHEARSAL: "a pipeline stage makes its first pass on uninitialized memory, only to learn shapes: it shows nothing",
}
"""By `compat.pipeline_pass`: what to say about such a pass."""

_UNSEEN = {
    FSDP1: "FSDP1 keeps parameters in flat ones: everything about parameters refers to this rank's flattened piece",
    TP: "in a layer split by tensor parallelism, activations are this rank's part, and units are counted and numbered within it",
    PIPELINE: OF_PIPELINE[STAGE],
}


class Distribution(NamedTuple):
    """How a model is spread over processes.

    Attributes:
        kinds: of "DDP", "FSDP1", "FSDP2", "TP", "pipeline", "SyncBatchNorm"; none for a model that runs in this process alone.
        rank: of this process; `world`: of how many.
        mesh: the axes of the mesh that its DTensors lie on, each with its size; an axis without a name is "".
        coordinate: of this process on these axes.
    """

    kinds: tuple[str, ...] = ()
    rank: int = 0
    world: int = 1
    mesh: tuple[tuple[str, int], ...] = ()
    coordinate: tuple[int, ...] = ()

    @property
    def communicates(self) -> bool:
        """Whether a pass of the model talks to other ranks: they must make the same passes, or this one waits for them."""
        return bool(self.kinds) and self.world > 1

    @property
    def sharded(self) -> bool:
        """Whether this rank holds a part of the parameters alone."""
        return not {FSDP1, FSDP2, TP}.isdisjoint(self.kinds)


_ALONE = Distribution()


def distribution_of(model: Module) -> Distribution:
    """How a model is spread over processes; one look at its classes and its parameters' types, and none without a process group."""
    distributed: Any = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return _ALONE
    kinds, meshes = set[str](), dict[int, Any]()
    classes = dict[type, str]()
    axes = 0  # the most over which fully_shard, or replicate, spreads a unit
    for module in stores.modules(model):
        cls = type(module)
        kind = classes.get(cls)
        if kind is None:
            kind = classes[cls] = kind_of(cls)
        if kind:
            kinds.add(kind)
        if kind and hasattr(cls, "_get_fsdp_state"):
            axes = max(axes, _axes(module))
        for _, tensor in stores.named_tensors(module):
            if is_sharded(tensor):
                mesh = _mesh(tensor)
                meshes.setdefault(id(mesh), mesh)
    widest: Any = max(meshes.values(), key=lambda mesh: int(mesh.ndim), default=None)
    if widest is not None and int(widest.ndim) > axes:
        kinds.add(TP)
    rank, world = int(distributed.get_rank()), int(distributed.get_world_size())
    return Distribution(tuple(kind for kind in _ORDER if kind in kinds), rank, world, *_place(widest))


def unwrapped(model: Module) -> Module:
    """The model that DDP, or DataParallel, has been put around, whose names are the user's; any other model itself."""
    around = any(base.__name__ in _AROUND and base.__module__.startswith("torch.") for base in type(model).__mro__)
    inner = stores.contents(model).get("_modules", {}).get(PREFIX) if around else None
    return inner if inner is not None else model


def variable_of(model: Module) -> str:
    """What one writes to get at the model whose names are the user's, given ``model``."""
    return VARIABLE if unwrapped(model) is model else f"{VARIABLE}.{PREFIX}"


def users_path(path: str) -> str:
    """A dotted name without the part that DDP puts before it."""
    return "" if path == PREFIX else path.removeprefix(f"{PREFIX}.")


def rank() -> int:
    """The number of this process; 0 where there is no process group."""
    distributed: Any = torch.distributed
    return int(distributed.get_rank()) if distributed.is_available() and distributed.is_initialized() else 0


def on_rank() -> str:
    """What follows our name in a line of any rank but the first: " (rank 1)"."""
    return f" (rank {found})" if (found := rank()) else ""


def remarks_of(found: Distribution) -> list[str]:
    """What a trace or a watch cannot show of a model that is spread so; a sentence each."""
    return [_UNSEEN[kind] for kind in found.kinds if kind in _UNSEEN]


def kind_of(cls: type) -> str:
    """What a class of modules of torch.distributed does, as one of the kinds; nothing for any other class."""
    for base in cls.__mro__:
        if base.__name__ in _CLASSES and base.__module__.startswith("torch."):
            return _CLASSES[base.__name__]
    return ""


def _mesh(tensor: Tensor) -> Any:
    with without_torch_function():
        return object.__getattribute__(tensor, "_spec").mesh


def _axes(module: Any) -> int:
    """Over how many axes of a mesh a unit is spread: one, or two where FSDP2 replicates too."""
    try:
        group = module._get_fsdp_state()._fsdp_param_group
        return 1 if group is None else int(group.mesh_info.mesh.ndim)
    except AttributeError:  # another torch
        return 1


def _place(mesh: Any) -> tuple[tuple[tuple[str, int], ...], tuple[int, ...]]:
    if mesh is None:
        return (), ()
    sizes = tuple(int(size) for size in mesh.mesh.shape)
    names = mesh.mesh_dim_names or ("",) * len(sizes)
    return tuple(zip(names, sizes, strict=True)), tuple(int(at) for at in mesh.get_coordinate() or ())
