"""A folder that ``torch.distributed.checkpoint`` (DCP) wrote: ``.metadata`` says what there is, and which file holds which part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from modlab import files, format
from modlab.errors import CheckpointError
from modlab.inspection.formats import torch_save
from modlab.inspection.formats.pickled import Made, PickleError, Reader
from modlab.inspection.formats.sharded import beside
from modlab.inspection.formats.stored import LARGEST, FileSource, PartSource, StoredTensor, called, damaged, sizes

METADATA = ".metadata"
_MOST = 500_000_000  # bytes of it that are read
_SMALL, _FEW = 10_000, 2_000  # bytes of a value that is read, and how many are


class StoredPlace(NamedTuple):
    """Where a part lies: the file, from which byte on, how many, and whether it was compressed or the like."""

    path: str
    first: int
    length: int
    transformed: bool


Part = tuple[tuple[int, ...], tuple[int, ...]]
"""Where a part begins in its tensor, and its sizes."""


def read(folder: Path, about: list[str], remarks: list[str]) -> tuple[dict[str, Any], dict[str, tuple[Any, ...]]]:
    """What the checkpoint holds by name, `StoredTensor` for tensors; and of names that were joined, the keys that they are made of.

    Raises:
        CheckpointError: ``.metadata`` is none, or says what cannot be.
    """
    what = f"{METADATA} in {format.clean(folder.name)}"
    try:
        held = Reader(files.content(folder / METADATA, _MOST)).load()
    except PickleError as error:
        raise CheckpointError(f"{what} cannot be read: {error}.\n  Save the checkpoint again: dcp.save(...)") from None
    entries = held.get("state_dict_metadata") if isinstance(held, Made) else None
    if not isinstance(entries, dict):
        raise CheckpointError(f"{what} is not from torch.distributed.checkpoint: it lists no entries.")
    places = _places(held.get("storage_data"))
    found: dict[str, Any] = {}
    values = 0
    for name, entry in entries.items():
        values += not _is_tensor(entry)
        found[_name(name)] = _entry(folder, _name(name), entry, places if _is_tensor(entry) or values <= _FEW else {}, what)
    used = {place.path for place in places.values()}
    tensors = sum(isinstance(value, StoredTensor) for value in found.values())
    about.append(f"Written by torch.distributed.checkpoint: {format.plural(tensors, 'tensor')} in {format.plural(len(used), 'file')}")
    missing = sorted(path for path in used if not beside(folder, path, METADATA, below=True).is_file())
    if missing:
        gone = format.plural(len(missing), "file is", "files are")
        remarks.append(f"{gone} missing, so their values cannot be read: {', '.join(map(called, missing[:3]))}")
    joined = held.get("planner_data")
    keys = {str(name): path for name, path in joined.items() if isinstance(path, tuple)} if isinstance(joined, dict) else {}
    return found, keys


def _name(given: Any) -> str:
    if not isinstance(given, str):
        raise damaged(METADATA, "a name in it is not a string")
    return given


def _is_tensor(entry: Any) -> bool:
    return isinstance(entry, Made) and entry.name.endswith("TensorStorageMetadata")


def _entry(folder: Path, name: str, entry: Any, places: dict[Any, StoredPlace], what: str) -> Any:
    if not _is_tensor(entry):
        return _value(folder, name, places)
    shape = sizes(entry.get("size"), what)
    dtype = _dtype(entry.get("properties"), what)
    parts = [*_parts(entry.get("chunks"), what)]
    count = 1
    for size in shape:
        count *= size
    one = getattr(torch, dtype).itemsize
    used = len({places[name, begin].path for begin, _ in parts if (name, begin) in places})
    note = "" if len(parts) < 2 else f"{len(parts)} parts in {format.plural(used, 'file')}" if used else f"{len(parts)} parts"
    return StoredTensor(shape, dtype, count * one, note, _loader(folder, name, shape, dtype, parts, places))


def _value(folder: Path, name: str, places: dict[Any, StoredPlace]) -> Any:
    """Anything but a tensor: read where it is small, since then it is a number or a word, and by the closed reader, too."""
    place = places.get((name, None))
    if place is not None and place.length <= _SMALL and not place.transformed:
        try:
            return torch_save.read(PartSource(FileSource(beside(folder, place.path, METADATA, below=True)), place.first, place.length))
        except (OSError, CheckpointError):
            pass
    return Made("a Python object, pickled")


def _dtype(properties: Any, what: str) -> str:
    state = properties.state if isinstance(properties, Made) else None
    dtype = state[0] if isinstance(state, tuple) and state else state.get("dtype") if isinstance(state, dict) else None
    if not isinstance(dtype, torch.dtype):
        raise damaged(what, "a tensor has a dtype that this torch does not know")
    return str(dtype).removeprefix("torch.")


def _parts(chunks: Any, what: str) -> Iterator[Part]:
    for chunk in chunks if isinstance(chunks, list) else ():
        if not isinstance(chunk, Made):
            raise damaged(what, "a part of a tensor is not described")
        begin, size = sizes(chunk.get("offsets"), what), sizes(chunk.get("sizes"), what)
        yield begin, size


def _places(given: Any) -> dict[Any, StoredPlace]:
    """File, first byte and length of each part, by the name of its tensor and where it begins there; and whether it was transformed."""
    found: dict[Any, StoredPlace] = {}
    for index, info in given.items() if isinstance(given, dict) else ():
        if not (isinstance(index, Made) and isinstance(info, Made)):
            continue
        path, first, length = (info.get(key) for key in ("relative_path", "offset", "length"))
        begin = index.get("offset")
        if not isinstance(path, str) or any(type(one) is not int or not 0 <= one <= LARGEST for one in (first, length)):
            raise damaged(METADATA, "a part has no position in a file")
        begin = tuple(begin) if isinstance(begin, (tuple, list)) else None
        found[index.get("fqn"), begin] = StoredPlace(path, first, length, bool(info.get("transform_descriptors")))
    return found


def _loader(
    folder: Path, name: str, shape: tuple[int, ...], dtype: str, parts: list[Part], places: dict[Any, StoredPlace]
) -> Callable[[], Tensor]:
    def load() -> Tensor:
        covered = 0
        whole = torch.empty(shape, dtype=getattr(torch, dtype))
        for begin, size in parts:
            part = _part(folder, name, places.get((name, begin)) or places.get((name, None)))
            if tuple(part.shape) != size or len(begin) != len(shape) or any(b + s > n for b, s, n in zip(begin, size, shape, strict=True)):
                raise damaged(folder.name, f"a part of {called(name)} has a different shape than {METADATA} says")
            whole[tuple(slice(b, b + s) for b, s in zip(begin, size, strict=True))] = part
            covered += part.numel()
        if covered < whole.numel():
            raise CheckpointError(f"Only {covered:,} of {whole.numel():,} numbers of {called(name)} are in this folder.")
        return whole

    return load


def _part(folder: Path, name: str, place: StoredPlace | None) -> Tensor:
    if place is None:
        raise damaged(folder.name, f"{METADATA} does not say where {called(name)} is")
    if place.transformed:
        raise CheckpointError(f"{called(name)} was written through a transform (compressed), which modlab does not undo.")
    file = beside(folder, place.path, METADATA, below=True)
    inner = torch_save.read(PartSource(FileSource(file), place.first, place.length))
    if not isinstance(inner, StoredTensor):
        raise damaged(folder.name, f"what is stored as {called(name)} is not a tensor")
    return inner.read(name)
