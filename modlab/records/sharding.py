"""Sharding: how a tensor lies over the ranks of a process group, and what holds a module that lies so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import prod

from modlab.frozen import frozen

SHARDED, REPLICATED, PARTIAL, OTHER = "sharded", "replicated", "partial", "other"
"""What a placement is over one axis of a mesh; "other" is one that modlab does not know."""


@frozen
class Axis:
    """One axis of a mesh of ranks.

    Attributes:
        name: as in ``mesh_dim_names``; nothing where the mesh names none.
        coordinate: where this rank stands on it, from 0; None where it is on no place of this mesh.
        cut: whether a tensor is cut, or is a sum, over it; else each rank on it has the same.
    """

    name: str
    size: int
    coordinate: int | None = None
    cut: bool = False


@frozen
class Ranks:
    """The ranks over which a tensor lies, or a whole model; and this one.

    Attributes:
        axes: of the mesh; a process group without one has one axis without a name.
        rank: of this process.
    """

    axes: tuple[Axis, ...]
    rank: int

    @property
    def parts(self) -> int:
        """Into how many parts something is cut."""
        return prod(axis.size for axis in self.axes if axis.cut)

    @property
    def replicas(self) -> int:
        """How many ranks hold the same."""
        return prod(axis.size for axis in self.axes if not axis.cut)

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return prod(axis.size for axis in self.axes)

    @property
    def here(self) -> bool:
        """Whether this rank is one of them."""
        return all(axis.coordinate is not None for axis in self.axes)


@frozen
class Placement:
    """How a tensor lies over one axis of its mesh.

    Attributes:
        kind: "sharded", "replicated", "partial" or "other".
        axis: its name or, of a mesh without names, nothing.
        size: ranks on this axis.
        dim: of the tensor, where it is sharded.
        turn: when this axis cuts that dimension, from 0: FSDP2 cuts what tensor parallelism has cut already.
        word: of partial values, how they become one ("sum"); of others, what torch calls it.
    """

    kind: str
    axis: str
    size: int
    dim: int = -1
    turn: int = 0
    word: str = ""


@frozen
class Sharding:
    """A tensor of which each rank holds a part, or a copy.

    Attributes:
        shape: of the whole.
        local_shape: of what this rank holds; a size of 0 is normal, where there are more ranks than rows.
        form: "DTensor", or "flat parameter" (of FSDP1, in which several tensors lie end to end), or "in a flat parameter".
    """

    shape: tuple[int, ...]
    local_shape: tuple[int, ...]
    placements: tuple[Placement, ...]
    ranks: Ranks
    local_count: int = 0
    local_bytes: int = 0
    form: str = "DTensor"

    @property
    def whole(self) -> bool:
        """Whether what this rank holds is the whole tensor."""
        return all(placement.kind == REPLICATED or placement.size == 1 for placement in self.placements)

    @property
    def partial(self) -> bool:
        """Whether what this rank holds has to be added (or the like) to what others hold."""
        return any(placement.kind == PARTIAL and placement.size > 1 for placement in self.placements)

    @property
    def replicas(self) -> int:
        """How many ranks hold the same part."""
        return self.ranks.replicas


def together(many: Iterable[Ranks]) -> Ranks | None:
    """The ranks over which all of some tensors lie: axes of one name are one axis; of meshes without names, the largest stands for all."""
    named: dict[str, Axis] = {}
    bare: Ranks | None = None
    rank = 0
    for ranks in many:
        rank = ranks.rank
        if not all(axis.name for axis in ranks.axes):
            bare = _larger(bare, ranks)
            continue
        for axis in ranks.axes:
            known = named.get(axis.name)
            larger = axis if known is None or axis.size > known.size else known
            named[axis.name] = replace(larger, cut=axis.cut or (known is not None and known.cut))
    found = Ranks(tuple(named.values()), rank) if named else None
    return bare if found is None or (bare is not None and bare.size > found.size) else found


def _larger(one: Ranks | None, other: Ranks) -> Ranks:
    if one is None or other.size > one.size:
        return other
    cut = any(axis.cut for axis in (*one.axes, *other.axes))
    return replace(one, axes=tuple(replace(axis, cut=axis.cut or cut) for axis in one.axes)) if one.size == other.size else one


@frozen
class Unit:
    """A module that a wrapper of torch.distributed gathers, or keeps equal, as one.

    Attributes:
        kind: "FSDP2", "FSDP1" or "DDP".
        ranks: over which it lies; None before the wrapper knows.
        param_dtype, reduce_dtype, output_dtype: of mixed precision; nothing where none is set.
        reshards: whether its parameters are freed between forward and backward pass; None where there are none, or that is not known.
    """

    kind: str
    ranks: Ranks | None = None
    param_dtype: str = ""
    reduce_dtype: str = ""
    output_dtype: str = ""
    reshards: bool | None = None
