"""The index of a sharded checkpoint: which file holds which tensor. The files lie beside it, and nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

from modlab import files, format
from modlab.errors import CheckpointError
from modlab.inspection.formats.safetensors import HEADER, parsed
from modlab.inspection.formats.stored import called

ENDING = ".index.json"


def shards_of(index: Path) -> dict[Path, set[str]]:
    """The files of a sharded checkpoint, each with the names of the tensors that the index says are in it.

    Raises:
        CheckpointError: it is no index, names files elsewhere, or some that are not there.
    """
    found = parsed(files.content(index, HEADER), f"{index.name} is not an index of a sharded checkpoint: it").get("weight_map")
    if not isinstance(found, dict):
        raise CheckpointError(f"{index.name} is not an index of a sharded checkpoint: it has no 'weight_map'.")
    shards: dict[str, set[str]] = {}
    for name, shard in found.items():
        if not isinstance(shard, str):
            kind = "null" if shard is None else f"a {type(shard).__name__}"
            raise CheckpointError(f"{index.name} is damaged: its 'weight_map' gives {kind} instead of a file name.")
        shards.setdefault(shard, set()).add(name)
    places = {name: beside(index.parent, name, index.name) for name in sorted(shards)}
    missing = [name for name, place in places.items() if not place.is_file()]
    if missing:
        named, gone = format.plural(len(shards), "file"), format.plural(len(missing), "is", "are").partition(" ")
        raise CheckpointError(f"{index.name} names {named}, but {gone[0]} {gone[2]} not beside it: {_some(missing)}")
    return {place: shards[name] for name, place in places.items()}


def _some(names: list[str]) -> str:
    return ", ".join(format.cut(format.clean(name), 80) for name in names[:3])


def beside(folder: Path, name: str, who: str, *, below: bool = False) -> Path:
    """The file of this name in a folder.

    Args:
        folder: where it must lie.
        name: as a file says it.
        who: the file that says it.
        below: it may also lie in a folder of that folder.

    Raises:
        CheckpointError: the name leads elsewhere; nothing is opened then.
    """
    parts = name.split("/") if below else [name]
    odd = any(part in ("", ".", "..") or "\\" in part or ":" in part or "/" in part for part in parts)
    if odd or not name.isprintable() or len(name) > 1000:
        raise _elsewhere(who, name)
    place, home = folder.joinpath(*parts), Path(os.path.realpath(folder))
    real = Path(os.path.realpath(place))
    if not real.is_relative_to(home) and real.parent != _blobs(home):
        raise _elsewhere(who, name)
    return place


def _blobs(home: Path) -> Path | None:
    """Where the Hugging Face cache keeps the files that its snapshots link to: ``models--x/snapshots/REVISION`` → ``models--x/blobs``."""
    if home.parent.name != "snapshots":
        return None
    blobs = home.parent.parent / "blobs"
    return blobs if blobs.is_dir() and not blobs.is_symlink() else None


def _elsewhere(who: str, name: str) -> CheckpointError:
    return CheckpointError(
        f"{who} names {called(name)}, but files of a checkpoint must be beside it, under a plain name: that one is not opened.\n"
        "  If you trust it, look at that file itself: modlab.state(path)"
    )
