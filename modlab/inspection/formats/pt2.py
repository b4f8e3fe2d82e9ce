"""A ``.pt2`` archive of ``torch.export.save``, today's layout and the one of before torch 2.8: the weights beside the program."""

from __future__ import annotations

from typing import Any

from modlab.errors import CheckpointError
from modlab.inspection.formats import torch_save
from modlab.inspection.formats.safetensors import HEADER, parsed
from modlab.inspection.formats.stored import LARGEST, ByteSource, Layout, PartSource, StoredTensor, called, damaged, loaded, sizes
from modlab.inspection.formats.zipped import Archive

_WEIGHTS, _CONSTANTS = "weights_config.json", "constants_config.json"
_OLD = "serialized_exported_program.json"
# torch._export.serde.schema.ScalarType
_DTYPES = {
    1: ("uint8", 1),
    2: ("int8", 1),
    3: ("int16", 2),
    4: ("int32", 4),
    5: ("int64", 8),
    6: ("float16", 2),
    7: ("float32", 4),
    8: ("float64", 8),
    9: ("complex32", 4),
    10: ("complex64", 8),
    11: ("complex128", 16),
    12: ("bool", 1),
    13: ("bfloat16", 2),
    28: ("uint16", 2),
    29: ("float8_e4m3fn", 1),
    30: ("float8_e5m2", 1),
    31: ("float8_e4m3fnuz", 1),
    32: ("float8_e5m2fnuz", 1),
    33: ("float8_e8m0fnu", 1),
    34: ("uint32", 4),
    35: ("uint64", 8),
}


def looks_so(archive: Archive) -> bool:
    """Whether an archive is one of torch.export's."""
    return bool(archive.named("archive_format") or archive.named(_OLD)) and not archive.named("data.pkl")


def read(source: ByteSource, archive: Archive, about: list[str]) -> Any:
    """The weights, buffers and constants of the program, by name.

    Raises:
        CheckpointError: it says of them what cannot be.
    """
    about.append("A program of torch.export.save: its weights are listed. The program itself: torch.export.load(path)")
    if archive.named(_OLD):
        return _old(source, archive)
    found: dict[str, Any] = {}
    for name in archive.entries:
        for ending, folder in ((_WEIGHTS, "weights"), (_CONSTANTS, "constants")):
            if name.endswith(ending) and f"data/{folder}/" in name:
                found |= _listed(source, archive, name, about)
    if not found and not any(name.endswith((_WEIGHTS, _CONSTANTS)) for name in archive.entries):
        about.append("It lists no weights: they may be compiled into it")
    return found


def _listed(source: ByteSource, archive: Archive, name: str, about: list[str]) -> dict[str, Any]:
    config = parsed(archive.content(name, HEADER), f"{source.name} is damaged: a list of its weights").get("config")
    if not isinstance(config, dict):
        raise damaged(source.name, "a list of its weights has no entries")
    folder = name.rpartition("/")[0]
    return {key: _stored(source, archive, key, entry, folder) for key, entry in config.items()}


def _stored(source: ByteSource, archive: Archive, key: str, entry: Any, folder: str) -> Any:
    meta = entry.get("tensor_meta") if isinstance(entry, dict) else None
    path = entry.get("path_name") if isinstance(entry, dict) else None
    if not isinstance(meta, dict) or not isinstance(path, str):
        return "(no tensor)"
    what = f"{source.name}: {called(key)}"
    shape, stride = (sizes(_whole(meta.get(one)), what) for one in ("sizes", "strides"))
    (offset,) = _whole([meta.get("storage_offset", {"as_int": 0})])
    known = _DTYPES.get(meta.get("dtype", 0)) if type(meta.get("dtype")) is int else None
    if known is None or len(stride) != len(shape) or type(offset) is not int or not 0 <= offset <= LARGEST:
        raise damaged(what, "its dtype, stride or offset is invalid")
    count = 1
    for size in shape:
        count *= size
    dtype, one = known
    if entry.get("use_pickle"):
        return StoredTensor(shape, dtype, count * one, "pickled: its values are not read")

    def load() -> Any:
        first, held = archive.where(f"{folder}/{path}")
        return loaded(source, Layout(first, held, dtype, shape, stride, offset))

    return StoredTensor(shape, dtype, count * one, "" if entry.get("is_param", True) else "buffer", load)


def _whole(given: Any) -> list[Any]:
    """Numbers that are written as ``{"as_int": 3}``."""
    return [one.get("as_int") if isinstance(one, dict) else one for one in given] if isinstance(given, list) else [None]


def _old(source: ByteSource, archive: Archive) -> Any:
    found: dict[str, Any] = {}
    for part in ("serialized_state_dict", "serialized_constants"):
        name = archive.named(f"{part}.pt") or archive.named(f"{part}.json")
        if not name:
            continue
        inner = PartSource(source, *archive.where(name))
        if not inner.size:
            continue
        content = torch_save.read(inner)
        if not isinstance(content, dict):
            raise CheckpointError(f"{source.name} holds weights in an unknown form.\n  Load it: torch.export.load(path)")
        found |= content
    return found
