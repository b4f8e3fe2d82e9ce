"""A ``.safetensors`` file: eight bytes of length, a header in JSON, the numbers."""

from __future__ import annotations

import json
from typing import Any

from modlab.errors import CheckpointError
from modlab.inspection.formats.stored import LARGEST, ByteSource, Layout, StoredTensor, called, damaged, dtype_of, loaded, sizes

_DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
    "BOOL": "bool",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "C64": "complex64",
}
_SIZES = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U8": 1,
    "U16": 2,
    "U32": 4,
    "U64": 8,
    "BOOL": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "F8_E8M0": 1,
    "C64": 8,
}
HEADER = 100_000_000
"""Bytes of a header, as safetensors itself limits it."""


def looks_so(head: bytes, size: int) -> bool:
    """Whether the first bytes of a file are the length of a header, and a brace."""
    return len(head) > 8 and head[8:9] == b"{" and 0 < int.from_bytes(head[:8], "little") <= min(HEADER, size - 8)


def read(source: ByteSource, remarks: list[str]) -> dict[str, StoredTensor]:
    """The tensors by name, in the order of the header.

    Raises:
        CheckpointError: it is no such file, or says of a tensor what cannot be.
    """
    header, begin = _header(source)
    found = {name: _stored(source, name, entry, begin) for name, entry in header.items() if name != "__metadata__"}
    last = _last(source, header)
    if begin + last > source.size:
        remarks.append(f"The file is cut off: {begin + last:,} bytes are promised, but only {source.size:,} are there")
    return found


def _header(source: ByteSource) -> tuple[dict[str, Any], int]:
    size = int.from_bytes(source.read(0, min(8, source.size)), "little")
    if not 0 < size <= min(HEADER, source.size - 8):
        raise CheckpointError(f"{source.name} is not a safetensors file: its first eight bytes are not a header length.")
    header = parsed(bytes(source.read(8, size)), f"{source.name} is not a safetensors file: its header")
    return header, 8 + size


def parsed(text: bytes, what: str) -> dict[str, Any]:
    """A JSON object, in which no name stands twice.

    Raises:
        CheckpointError: it is none.
    """
    try:
        found = json.loads(text, object_pairs_hook=lambda pairs: _once(pairs, what), parse_constant=_no_number)
    except CheckpointError:
        raise
    except (ValueError, RecursionError, MemoryError):
        raise CheckpointError(f"{what} is not a JSON object.") from None  # what json says may quote the file
    if not isinstance(found, dict):
        raise CheckpointError(f"{what} is not a JSON object.")
    return found


def _once(pairs: list[tuple[str, Any]], what: str) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise CheckpointError(f"{what} names {called(twice)} twice.")
    return found


def _no_number(constant: str) -> Any:
    raise ValueError(constant)


def _stored(source: ByteSource, name: str, entry: Any, begin: int) -> StoredTensor:
    what = f"The header's entry {called(name)}"
    if not isinstance(entry, dict) or not {"shape", "dtype", "data_offsets"} <= set(entry):
        raise CheckpointError(f"{what} is damaged: it needs shape, dtype and data_offsets.")
    shape, dtype = sizes(entry["shape"], what), dtype_of(entry["dtype"], what, _DTYPES)
    place = entry["data_offsets"]
    if not isinstance(place, list) or len(place) != 2 or any(type(one) is not int or not 0 <= one <= LARGEST for one in place):
        raise damaged(what, "its data_offsets are not two positions in the file")
    first, last = place
    one = _SIZES.get(entry["dtype"])
    count = 1
    for size in shape:
        count *= size
    if last < first:
        raise damaged(what, "it ends before it begins")
    if one is not None and count * one != last - first:
        return StoredTensor(
            shape, dtype, last - first, f"damaged: its shape and dtype need {count * one:,} bytes, but it has {last - first:,}"
        )
    where = Layout(begin + first, last - first, dtype, shape)
    if one is None:
        return StoredTensor(shape, dtype, last - first, f"a dtype that modlab does not read: {dtype}")
    return StoredTensor(shape, dtype, last - first, "", lambda: loaded(source, where))


def _last(source: ByteSource, header: dict[str, Any]) -> int:
    """Where the numbers end; that no two tensors share some."""
    places = sorted((*entry["data_offsets"], name) for name, entry in header.items() if name != "__metadata__")
    end = 0
    for first, last, name in places:
        if first < end and last > first:
            raise damaged(source.name, f"the numbers of {called(name)} overlap another tensor's")
        end = max(end, last)
    return end
