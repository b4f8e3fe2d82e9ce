"""A checkpoint file → the rows of its table, from headers and metadata alone: no weight is read, no code of the file is run."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

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


def read(path: str) -> TableRecord:
    """The table of a ``.safetensors`` file or its index, or of what ``torch.save`` wrote."""
    file = _existing(path)
    if file.name.endswith(".index.json"):
        rows = [row for shard in _shards(file) for row in _rows(shard)]
    else:
        rows = list(_rows(file))
    return TableRecord(file.name, tuple(rows), source=path)


def measure(path: str, name: str) -> ValuesRecord:
    """The values of one tensor of the file; nothing else is read."""
    file = _existing(path)
    if file.name.endswith(".index.json"):
        file = next((shard for shard in _shards(file) if name in {row.path for row in _rows(shard)}), file)
    tensor = _safetensor(file, name) if file.suffix == ".safetensors" else _at(_load(file, "cpu"), name)
    if tensor is None:
        raise PathNotFoundError(f"{file.name} holds no tensor {name!r}.")
    return values.read(tensor, name)


def _existing(path: str) -> Path:
    file = Path(path)
    if path and file.is_dir():
        inside = sorted(p.name for p in file.iterdir() if p.name.endswith((".safetensors", ".index.json", ".pt", ".pth", ".bin")))
        hint = f"  It has: {', '.join(inside[:5])}" if inside else "  It holds no checkpoint."
        raise CheckpointError(f"{file.name!r} is a folder, and modlab.state() needs a file.\n{hint}")
    if not file.is_file():
        near = sorted(p.name for p in file.parent.glob(f"*{file.suffix}"))[:5] if file.parent.is_dir() else []
        hint = f"  Beside it: {', '.join(near)}" if near else f"  The current folder is {Path.cwd().name!r}."
        raise CheckpointError(f"There is no file {str(path)!r}.\n{hint}")
    return file


def _shards(index: Path) -> list[Path]:
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{index.name} is no index of a sharded checkpoint: it has no 'weight_map'.") from error
    missing = [name for name in names if not (index.parent / name).is_file()]
    if missing:
        raise CheckpointError(
            f"{index.name} names {len(names)} files, and {len(missing)} of them are not beside it: {', '.join(missing[:3])}"
        )
    return [index.parent / name for name in names]


def _rows(file: Path) -> Iterator[StateRecord]:
    if file.suffix == ".safetensors":
        for name, entry in _header(file)[0].items():
            yield _safe_row(name, entry)
    else:
        for name, value in _flat(_load(file, "meta")):
            yield _loaded_row(name, value)


def _header(file: Path) -> tuple[dict[str, Any], int]:
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


def _safe_row(name: str, entry: Any) -> StateRecord:
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
    header, begin = _header(file)
    if name not in header:
        return None
    row = _safe_row(name, header[name])
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


def _load(file: Path, device: str) -> Any:
    try:
        try:
            return torch.load(file, map_location=device, weights_only=True, mmap=True)
        except RuntimeError as error:
            if "mmap" not in str(error):
                raise
            return torch.load(file, map_location=device, weights_only=True)  # the format of before torch 1.6 has no place to map
    except pickle.UnpicklingError as error:
        raise CheckpointError(_refused(file, str(error))) from error
    except Exception as error:
        raise CheckpointError(
            f"{file.name} cannot be read as a checkpoint: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        ) from error


def _refused(file: Path, reason: str) -> str:
    found = [word for word in reason.replace("\n", " ").split(" ") if word.count(".") and word.startswith(("GLOBAL", "__main__"))]
    what = reason.partition("GLOBAL ")[2].split(" ")[0] or (found[0] if found else "something other than tensors")
    return (
        f"{file.name} holds more than tensors ({what}), and reading it would run code that is stored in it.\n"
        f"  If you trust its author: model = torch.load({file.name!r}, weights_only=False), then modlab.state(model).\n"
        f"  Better: save only the weights, torch.save(model.state_dict(), {file.name!r})."
    )


def _flat(content: Any) -> Iterator[tuple[str, Any]]:
    """Names and values, through nested dicts and lists: a training checkpoint holds a model, an optimizer, a step."""
    stack: list[tuple[str, Any]] = [("", content)]
    while stack:
        path, value = stack.pop()
        prefix = path + "." if path else ""
        if isinstance(value, Mapping) and (value or not path):
            stack.extend((f"{prefix}{name}", inner) for name, inner in reversed(list(value.items())))
        elif isinstance(value, (list, tuple)) and any(isinstance(inner, (Tensor, Mapping, list, tuple)) for inner in value):
            stack.extend((f"{prefix}{i}", inner) for i, inner in reversed(list(enumerate(value))))
        else:
            yield path or "(tensor)", value


def _loaded_row(name: str, value: Any) -> StateRecord:
    if not isinstance(value, Tensor):
        note = (
            f"{type(value).__name__} {value!r}"
            if isinstance(value, (int, float, bool, str)) and len(repr(value)) < 40
            else type(value).__name__
        )
        return StateRecord(name, "", "", "extra", True, note=note)
    entry = entries.describe(name, "tensor", value)
    return _row(name, entry.shape, entry.dtype, "", entry.count, entry.bytes, entry.note)


def _row(name: str, shape: tuple[int, ...] | None, dtype: str, device: str, count: int, size: int, note: str) -> StateRecord:
    owner = name.rpartition(".")[0]
    return StateRecord(name, owner, "", "tensor", True, shape, dtype, device, count, size, note=note)


def _at(content: Any, name: str) -> Tensor | None:
    return next((value for path, value in _flat(content) if path == name and isinstance(value, Tensor)), None)
