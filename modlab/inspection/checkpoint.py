"""A checkpoint file → the rows of its table, from headers and metadata alone: no weight is read, no code of the file is run."""

from __future__ import annotations

import json
import os
import pickle
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from modlab.errors import CheckpointError, PathNotFoundError
from modlab.inspection import entries, values
from modlab.records.state import StateRecord, TableRecord, ValuesRecord

_DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32", "I16": "int16",
    "I8": "int8", "U8": "uint8", "U16": "uint16", "U32": "uint32", "U64": "uint64", "BOOL": "bool",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "C64": "complex64",
}  # fmt: skip
_HEADER_LIMIT = 100_000_000  # as safetensors itself has it
_ITSELF = object()  # stands where a container holds one that it is in


def read(path: str) -> TableRecord:
    """The table of a ``.safetensors`` file or its index, or of what ``torch.save`` wrote."""
    file = existing_file(path)
    if file.name.endswith(".index.json"):
        rows = [row for shard, its in shards_of(file).items() for row in _rows(shard) if row.path in its]
    else:
        rows = list(_rows(file))
    return TableRecord(file.name, tuple(_in_order(rows)), source=path)


def measure(path: str, name: str) -> ValuesRecord:
    """The values of one tensor of the file; nothing else is read."""
    file = existing_file(path)
    if file.name.endswith(".index.json"):
        file = next((shard for shard, its in shards_of(file).items() if name in its), file)
    if file.name.endswith(".index.json"):
        raise PathNotFoundError(f"{file.name} names no tensor {name!r}.")
    tensor = _safetensor(file, name) if file.suffix == ".safetensors" else _at(loaded(file, "cpu"), name)
    if tensor is None:
        row = None if file.suffix == ".safetensors" else next((row for row in _rows(file) if row.path == name), None)
        known = f": it is no tensor but {row.note}" if row is not None else ""
        raise PathNotFoundError(f"{file.name} holds no tensor {name!r}{known}.")
    return values.read(tensor, name)


def existing_file(path: str) -> Path:
    """The file of a path that a user gave."""
    file = Path(path)
    if not file.exists():  # a file that is really called "~" comes first
        file = Path(os.path.expanduser(path))
    if path and file.is_dir():
        inside = sorted(p.name for p in file.iterdir() if p.name.endswith((".safetensors", ".index.json", ".pt", ".pth", ".bin")))
        hint = f"  It has: {', '.join(inside[:5])}" if inside else "  It holds no checkpoint."
        raise CheckpointError(f"{(file.resolve().name or path)!r} is a folder, and modlab.state() needs a file.\n{hint}")
    if not file.is_file():
        near = sorted(p.name for p in file.parent.glob(f"*{file.suffix}"))[:5] if file.parent.is_dir() else []
        hint = f"  Beside it: {', '.join(near)}" if near else f"  The current folder is {Path.cwd().name!r}."
        raise CheckpointError(f"There is no file {str(path)!r}.\n{hint}")
    return file


def shards_of(index: Path) -> dict[Path, set[str]]:
    """The files of a sharded checkpoint, each with the names of the tensors that the index says are in it."""
    shards: dict[str, set[str]] = {}
    for name, shard in _weight_map(index).items():
        shards.setdefault(shard, set()).add(name)
    missing = [name for name in sorted(shards) if not (index.parent / name).is_file()]
    if missing:
        raise CheckpointError(
            f"{index.name} names {len(shards)} files, and {len(missing)} of them are not beside it: {', '.join(missing[:3])}"
        )
    return {index.parent / name: shards[name] for name in sorted(shards)}


def _weight_map(index: Path) -> dict[str, str]:
    try:
        found = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        names = [*found.values()]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{index.name} is no index of a sharded checkpoint: it has no 'weight_map'.") from error
    wrong = next((name for name in names if not isinstance(name, str)), None)
    if wrong is not None or None in names:
        raise CheckpointError(f"{index.name} is damaged: its 'weight_map' gives {wrong!r} where the name of a file belongs.")
    return dict(found)


def _rows(file: Path) -> Iterator[StateRecord]:
    if file.suffix == ".safetensors":
        for name, entry in header_of(file)[0].items():
            yield header_row(name, entry)
    else:
        for item in items_of(loaded(file, "meta")):
            yield _loaded_row(item)


@dataclass(slots=True)
class _Branch:
    """What stands under one part of a dotted name."""

    rows: list[StateRecord] = field(default_factory=list)
    below: dict[str, _Branch] = field(default_factory=dict)


def _in_order(rows: Iterable[StateRecord]) -> Iterator[StateRecord]:
    """The rows with their positions: what a name owns itself, then what is below it, both as the file has them.

    The faces fold the rows into such a trie, so that this is the one order in which all of them can agree.
    """
    root = _Branch()
    for row in rows:
        branch = root
        for part in row.owner.split(".") if row.owner else ():
            branch = branch.below.setdefault(part, _Branch())
        branch.rows.append(row)
    position, stack = 0, [root]
    while stack:
        branch = stack.pop()
        for row in branch.rows:
            position += 1
            yield replace(row, position=position)
        stack.extend(reversed(branch.below.values()))


def header_of(file: Path) -> tuple[dict[str, Any], int]:
    """The header of a safetensors file, and where its data begins."""
    with file.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        if not 0 < size <= min(_HEADER_LIMIT, os.path.getsize(file)):
            raise CheckpointError(f"{file.name} is no safetensors file: its first eight bytes are no length of a header.")
        try:
            header = json.loads(stream.read(size))
            return {name: entry for name, entry in header.items() if name != "__metadata__"}, 8 + size
        except (ValueError, AttributeError, RecursionError) as error:
            raise CheckpointError(f"{file.name} is no safetensors file: its header is no JSON object.") from error


def header_row(name: str, entry: Any) -> StateRecord:
    """One row, from what the header of a safetensors file says of a tensor."""
    try:
        shape = tuple(map(int, entry["shape"]))
        begin, end = map(int, entry["data_offsets"])
        dtype = _DTYPES.get(entry["dtype"]) or entry["dtype"].lower()
        if min((begin, end - begin, *shape)) < 0:
            raise ValueError("a negative size")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"The header's entry {name!r} is damaged: it needs shape, dtype and data_offsets.") from error
    return _row(name, shape, dtype, "", prod(shape), end - begin, "")


def _safetensor(file: Path, name: str) -> Tensor | None:
    header, begin = header_of(file)
    if name not in header:
        return None
    row = header_row(name, header[name])
    dtype = getattr(torch, row.dtype, None)
    if dtype is None:
        raise CheckpointError(f"{name!r} has the dtype {row.dtype}, which this torch does not have.")
    first = begin + int(header[name]["data_offsets"][0])
    if not row.count:
        return torch.empty(row.shape or (), dtype=dtype)
    if row.count * dtype.itemsize != row.bytes or first + row.bytes > os.path.getsize(file):
        raise CheckpointError(f"{file.name} is damaged: the header promises {row.count:,} numbers of {name!r} that are not there.")
    raw = np.array(np.memmap(file, np.uint8, "r", offset=first, shape=(row.bytes,)))
    return torch.from_numpy(raw).view(dtype).reshape(row.shape or ())


def loaded(file: Path, device: str) -> Any:
    """What a file of torch's holds, without running code that is stored in it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of its own old ways, in which quantized weights are stored
            return _read(file, device)
    except Exception as error:
        raise CheckpointError(_unreadable(file, error)) from error


def _read(file: Path, device: str) -> Any:
    """Without its weights if that can be: "meta" holds no quantized tensor, and the format of before torch 1.6 has no place to map."""
    first: RuntimeError | None = None
    for how in ({"mmap": True}, {}):
        for where in dict.fromkeys((device, "cpu")):
            try:
                return torch.load(file, map_location=where, weights_only=True, **how)
            except RuntimeError as error:
                first = first or error
    assert first is not None
    raise first


def _unreadable(file: Path, error: Exception) -> str:
    """What the file is instead, as far as its first bytes and torch's complaint tell."""
    with file.open("rb") as stream:
        head = stream.read(64)
    if not head:
        return f"{file.name} is empty (0 bytes): was it written to the end?"
    if head.startswith(b"version https://git-lfs"):
        return f"{file.name} is a pointer of Git LFS, and not the checkpoint itself.\n  Fetch it: git lfs pull"
    if _is_text(head):
        return f"{file.name} is a text file and no checkpoint: it begins with {head[:24].decode('utf-8', 'ignore')!r}."
    if "TorchScript" in str(error):
        return (
            f"{file.name} is a TorchScript program, and no checkpoint.\n"
            f"  Load it: model = torch.jit.load({file.name!r}), then modlab.state(model)."
        )
    if isinstance(error, pickle.UnpicklingError):
        return _refused(file, str(error))
    return f"{file.name} cannot be read as a checkpoint: {str(error).splitlines()[0] if str(error) else type(error).__name__}"


def _is_text(head: bytes) -> bool:
    """Whether the bytes are words: an archive begins with "PK" and control characters, a pickle with the byte 80."""
    return all(char.isprintable() or char.isspace() for char in head.decode("utf-8", "ignore")) and b"\x80" not in head[:1]


def _refused(file: Path, reason: str) -> str:
    found = [word for word in reason.replace("\n", " ").split(" ") if word.count(".") and word.startswith(("GLOBAL", "__main__"))]
    what = reason.partition("GLOBAL ")[2].split(" ")[0] or (found[0] if found else "something other than tensors")
    return (
        f"{file.name} holds more than tensors ({what}), and reading it would run code that is stored in it.\n"
        f"  If you trust its author: model = torch.load({file.name!r}, weights_only=False), then modlab.state(model).\n"
        f"  Better: save only the weights, torch.save(model.state_dict(), {file.name!r})."
    )


class _Item(NamedTuple):
    """One value of a loaded file."""

    path: str
    owner: str
    value: Any


def items_of(content: Any) -> Iterator[_Item]:
    """Names and values, through nested dicts and lists: a training checkpoint holds a model, an optimizer, a step."""
    above: set[int] = set()  # ids of the containers that the next value is in
    taken: set[str] = set()
    stack: list[tuple[str, Any, Any] | int] = [("", None, content)]  # a number: the container of that id ends
    while stack:
        step = stack.pop()
        if isinstance(step, int):
            above.discard(step)
            continue
        prefix, key, value = step
        inside = None if id(value) in above else _opened(value, top=key is None)
        if inside is None:
            yield _named(prefix, key, _ITSELF if id(value) in above else value, taken)
            continue
        above.add(id(value))
        stack.append(id(value))
        path = prefix if key is None else f"{prefix}{key}."
        stack.extend((path, name, inner) for name, inner in reversed(inside))


def _opened(value: Any, *, top: bool) -> list[tuple[Any, Any]] | None:
    """Keys and values of a container that is shown by its parts; None for all else."""
    if isinstance(value, Mapping) and (value or top):
        return list(value.items())
    if isinstance(value, (list, tuple)) and any(isinstance(inner, (Tensor, Mapping, list, tuple)) for inner in value):
        return list(enumerate(value))
    return None


def _named(prefix: str, key: Any, value: Any, taken: set[str]) -> _Item:
    """The value under a path that no other has: of ``{"a": {"b": x}, "a.b": y}`` the second is ``['a.b']``."""
    path = "(tensor)" if key is None else f"{prefix}{key}"
    owner, again = path.rpartition(".")[0], 1
    while path in taken:
        path, owner = f"{prefix}[{key!r}]" + f" ({again})" * (again > 1), prefix[:-1]
        again += 1
    taken.add(path)
    return _Item(path, owner, value)


def _loaded_row(item: _Item) -> StateRecord:
    if not isinstance(item.value, Tensor):
        return StateRecord(item.path, item.owner, "", "value", True, note=_note(item.value))
    entry = entries.describe(item.path, "tensor", item.value)
    row = _row(item.path, entry.shape, entry.dtype, "", entry.count, entry.bytes, entry.note)
    return replace(row, owner=item.owner, computes=entry.computes, sharding=entry.sharding)


def _note(value: Any) -> str:
    """What stands in a file beside tensors, in a word or two."""
    if value is _ITSELF:
        return "refers to itself"
    kind = type(value).__name__
    return f"{kind} {value!r}" if isinstance(value, (int, float, bool, str)) and len(repr(value)) < 40 else kind


def _row(name: str, shape: tuple[int, ...] | None, dtype: str, device: str, count: int, size: int, note: str) -> StateRecord:
    owner = name.rpartition(".")[0]
    return StateRecord(name, owner, "", "tensor", True, shape, dtype, device, count, size, note=note)


def _at(content: Any, name: str) -> Tensor | None:
    return next((item.value for item in items_of(content) if item.path == name and isinstance(item.value, Tensor)), None)
