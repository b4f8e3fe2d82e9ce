"""Sharding in words that all faces share: how a tensor lies over the ranks, and what FSDP and DDP make of a module."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from modlab import format
from modlab.records.sharding import PARTIAL, REPLICATED, SHARDED, Axis, Placement, Ranks, Sharding, Unit
from modlab.records.structure import TensorEntry

PART, HERE = "this rank's part", "here"
"""What a number is called that is about what this rank holds: in a sentence, and in the head of a column."""

_SUMS = {"sum": "partial sums", "avg": "partial averages", "max": "partial maxima", "min": "partial minima", "product": "partial products"}


def placement(sharding: Sharding) -> str:
    """Axis by axis: "rows over dp, after rows over tp"; "columns over tp, replicated over dp"."""
    if sharding.form != "DTensor" and not sharding.whole:
        over = f"over {_ranks(sharding.ranks.size)}"
        return f"flat {over}" if sharding.form == "flat parameter" else f"in a flat parameter, {over}"
    said: list[str] = []
    done: set[int] = set()
    for i, one in enumerate(sharding.placements):
        if i not in done and one.kind != REPLICATED:
            said.append(_cut(sharding, one, done) if one.kind == SHARDED else _odd(one))
        done.add(i)
    same = [_axis(one) for one in sharding.placements if one.kind == REPLICATED]
    if same:
        said.append(f"replicated over {' and '.join(same)}")
    return ", ".join(said)


def _cut(sharding: Sharding, one: Placement, done: set[int]) -> str:
    """One dimension, over all axes that cut it, in the order in which they do."""
    mine = [i for i, other in enumerate(sharding.placements) if other.kind == SHARDED and other.dim == one.dim]
    done.update(mine)
    name = dimension(one.dim, len(sharding.shape))
    order = sorted((sharding.placements[i] for i in mine), key=lambda other: other.turn)
    if len(order) > 1 and order[0] is not one:  # FSDP2 over tensor parallelism
        before = " and ".join(_axis(other) for other in order if other is not one)
        return f"{name} over {_axis(one)}, after {name} over {before}"
    return f"{name} over {', then over '.join(map(_axis, order))}"


def _odd(one: Placement) -> str:
    if one.kind == PARTIAL:
        return f"{_SUMS.get(one.word, f'partial values ({format.clean(one.word)})')} over {_axis(one)}"
    return f"{format.clean(one.word)} over {_axis(one)}"


def _axis(one: Placement) -> str:
    return format.clean(one.axis) if one.axis else _ranks(one.size)


def _ranks(number: int) -> str:
    return format.plural(number, "rank")


def dimension(dim: int, dims: int) -> str:
    """A dimension as one calls it: rows and columns of a matrix, elements of a vector."""
    if dims == 1:
        return "elements"
    return ("rows", "columns")[dim] if dims == 2 and dim in (0, 1) else f"dimension {dim}"


def here(sharding: Sharding) -> str:
    """The shape of what this rank holds; nothing where that is the whole."""
    return "" if sharding.whole else str(sharding.local_shape)


def placed(sharding: Sharding | None, spelled: Callable[[tuple[int, ...]], str] = str) -> tuple[str, str]:
    """The shape of this rank's part, and how the tensor lies; nothing of one that lies on one process alone."""
    if sharding is None:
        return "", ""
    return "all" if sharding.whole else spelled(sharding.local_shape), placement(sharding)


def of_entry(entry: TensorEntry) -> str:
    """What stands behind a tensor's name and shape in a tree: "[(4, 8) here: rows over dp]"."""
    return "" if entry.sharding is None else bracket(entry.sharding)


def bracket(sharding: Sharding) -> str:
    """What stands behind a shape: "[(4, 8) here: rows over dp]"."""
    part = here(sharding)
    return f"[{f'{part} here: ' if part else ''}{placement(sharding)}]"


def facts(sharding: Sharding) -> Iterator[tuple[str, str]]:
    """Names and values, for a pane that has room."""
    ranks = sharding.ranks
    yield "shape", str(sharding.shape)
    if not sharding.whole:
        yield PART, f"{sharding.local_shape}{', nothing' if not sharding.local_count else ''}"
    yield "placement", placement(sharding)
    if mesh := axes(ranks):
        yield "mesh", mesh
    yield "this rank", place(ranks)
    if sharding.replicas > 1:
        yield "replicas", f"{_ranks(sharding.replicas)} hold the same {'tensor' if sharding.whole else 'part'}"


def axes(ranks: Ranks) -> str:
    """Names and sizes: "dp 2 × tp 2"; nothing where a process group is all there is."""
    return " × ".join(f"{format.clean(axis.name)} {axis.size:,}" for axis in ranks.axes) if all(a.name for a in ranks.axes) else ""


def place(ranks: Ranks) -> str:
    """Which rank this is, and where: "rank 3 (dp 1 of 2, tp 1 of 2)"."""
    rank = f"rank {ranks.rank:,}" if ranks.rank >= 0 else "a rank"
    if not ranks.here:
        return f"{rank}, which is not on this mesh"
    if len(ranks.axes) == 1 and ranks.axes[0].coordinate == ranks.rank:
        return rank
    return f"{rank} ({', '.join(map(_coordinate, ranks.axes))})"


def _coordinate(axis: Axis) -> str:
    return f"{format.clean(axis.name)} {axis.coordinate} of {axis.size:,}".strip()


def spread(ranks: Ranks | None) -> list[str]:
    """What a headline says of a model: "sharded over 2 ranks; this is rank 0"."""
    if ranks is None or ranks.size == 1:
        return []
    if ranks.parts == 1:
        return [f"replicated on {_ranks(ranks.size)}; this is {place(ranks)}"]
    copies = f" in {ranks.replicas:,} replicas" if ranks.replicas > 1 else ""
    return [f"sharded over {_ranks(ranks.parts)}{copies}; this is {place(ranks)}"]


def size(total: int, local: int) -> str:
    """Bytes of the whole, and those of them that are here."""
    return format.size(total) if total == local else f"{format.size(local)} here of {format.size(total)}"


_KINDS = {"FSDP2": "FSDP unit", "FSDP1": "FSDP1 unit", "DDP": "DDP"}


def of_unit(unit: Unit) -> str:
    """In words: "FSDP unit: parameters in bfloat16, gradients reduced in float32"."""
    words = ", ".join(f"{name} {value}" for name, value in unit_facts(unit))
    return f"{_KINDS[unit.kind]}: {words}" if words else _KINDS[unit.kind]


def unit_name(unit: Unit) -> str:
    """Its name alone: "FSDP unit"."""
    return _KINDS[unit.kind]


def unit_facts(unit: Unit) -> Iterator[tuple[str, str]]:
    """Its mixed precision."""
    dtypes = (("parameters in", unit.param_dtype), ("gradients reduced in", unit.reduce_dtype), ("outputs in", unit.output_dtype))
    yield from ((name, dtype) for name, dtype in dtypes if dtype)
