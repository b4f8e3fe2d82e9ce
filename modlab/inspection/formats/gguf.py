"""A ``.gguf`` file, as llama.cpp reads it: what its header says of tensors and of the model."""

from __future__ import annotations

import struct
from typing import Any

from modlab import format
from modlab.errors import CheckpointError
from modlab.inspection.formats.stored import ByteSource, Layout, StoredTensor, called, damaged, loaded, sizes

MAGIC = b"GGUF"
_STEP = 1 << 22  # bytes that are read at a time
_MOST = 400_000_000  # of a header
_TENSORS, _PAIRS, _LISTED = 1_000_000, 100_000, 20_000_000
_NAME = 10_000  # bytes of a name
# GGML's types: name, values in a block, bytes of a block; without a dtype of torch's they are quantized
_TYPES = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 36),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
}
_DTYPES = {
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F64": "float64",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
}
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_TEXT, _ARRAY = 8, 9


class _Header:
    """The bytes of the header, read in steps as they are needed."""

    def __init__(self, source: ByteSource) -> None:
        self.source, self.position = source, 0
        self._held, self._first = bytearray(), 0

    def take(self, count: int) -> bytes:
        """The next bytes."""
        start = self.position - self._first
        if start + count > len(self._held):
            if count > _STEP or self.position + count > min(self.source.size, _MOST):
                raise damaged(self.source.name, "its header continues beyond its end")
            self._first, start = self.position, 0
            self._held = self.source.read(self.position, min(_STEP, self.source.size - self.position))
        self.position += count
        return bytes(self._held[start : start + count])

    def skip(self, count: int) -> None:
        """Pass over some bytes."""
        if self.position + count > min(self.source.size, _MOST):
            raise damaged(self.source.name, "its header continues beyond its end")
        self.position += count
        if self.position > self._first + len(self._held):
            self._held, self._first = bytearray(), self.position

    def number(self, form: str) -> Any:
        """The next number."""
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def text(self, most: int = _NAME) -> str:
        """The next text; of a long one that it is long."""
        size = self.number("<Q")
        if size > most:
            self.skip(size)
            return f"({size:,} bytes of text)"
        return self.take(size).decode("utf-8", "replace")


def read(source: ByteSource, about: list[str], remarks: list[str]) -> dict[str, Any]:
    """What the file says of itself, by name, and then its tensors as `StoredTensor`.

    Raises:
        CheckpointError: it is damaged, or of a version that is not known.
    """
    header = _Header(source)
    header.take(4)
    version = header.number("<I")
    if version not in (2, 3):
        known = "for a machine of the other byte order" if version and version & 0xFFFF == 0 else f"of version {version}"
        told = f"{source.name} is a GGUF file {known}, but modlab reads versions 2 and 3."
        raise CheckpointError(f"{told}\n  Convert it again with llama.cpp.")
    tensors, pairs = header.number("<Q"), header.number("<Q")
    if tensors > _TENSORS or pairs > _PAIRS:
        raise damaged(source.name, f"it claims {tensors:,} tensors and {pairs:,} settings")
    found: dict[str, Any] = {}
    for _ in range(pairs):
        name = header.text()
        found[name] = _value(header, header.number("<I"))
    rows = [_described(header) for _ in range(tensors)]
    alignment = found.get("general.alignment", 32)
    if type(alignment) is not int or not 0 < alignment <= 1 << 20:
        raise damaged(source.name, "its alignment is not a number of bytes")
    begin = -(-header.position // alignment) * alignment
    last = begin
    for name, shape, kind, offset in rows:
        if name in found:
            raise damaged(source.name, f"it names {called(name)} twice")
        found[name] = made = _stored(source, shape, kind, begin + offset)
        last = max(last, begin + offset + made.bytes)
    if last > source.size:
        remarks.append(f"The file is cut off: {last:,} bytes are promised, but only {source.size:,} are there")
    kinds = sorted({value.dtype for value in found.values() if isinstance(value, StoredTensor)})
    about.append(f"A GGUF file of version {version}, as llama.cpp reads it: {', '.join(kinds)}; sizes are in PyTorch's order")
    return found


def _value(header: _Header, kind: int) -> Any:
    if kind in _SCALARS:
        return header.number(_SCALARS[kind])
    if kind == _TEXT:
        return header.text(1000)
    if kind != _ARRAY:
        raise damaged(header.source.name, "one of its settings has an unknown type")
    inner, count = header.number("<I"), header.number("<Q")
    if count > _LISTED:
        raise damaged(header.source.name, f"it claims a list of {count:,} values")
    if inner in _SCALARS:
        header.skip(count * struct.calcsize(_SCALARS[inner]))
    elif inner == _TEXT:
        for _ in range(count):
            header.skip(header.number("<Q"))
    else:
        raise damaged(header.source.name, "one of its lists has an unknown type")
    return f"({format.plural(count, 'value')})"


def _described(header: _Header) -> tuple[str, tuple[int, ...], int, int]:
    name = header.text()
    dimensions = header.number("<I")
    if dimensions > 8:
        raise damaged(header.source.name, f"{called(name)} has {dimensions:,} dimensions")
    shape = sizes([header.number("<Q") for _ in range(dimensions)][::-1], header.source.name)
    kind, offset = header.number("<I"), header.number("<Q")
    if offset >= 1 << 62:
        raise damaged(header.source.name, f"{called(name)} begins beyond the end of any file")
    return name, shape, kind, offset


def _stored(source: ByteSource, shape: tuple[int, ...], kind: int, first: int) -> StoredTensor:
    count = 1
    for size in shape:
        count *= size
    if kind not in _TYPES:
        return StoredTensor(shape, f"ggml type {kind}", 0, "a type that modlab does not know: its bytes are not counted")
    name, block, size = _TYPES[kind]
    length = -(-count // block) * size
    dtype = _DTYPES.get(name)
    if dtype is None:
        return StoredTensor(shape, name, length, f"quantized, {8 * size / block:.3g} bits per number: values are not read")
    where = Layout(first, length, dtype, shape)
    return StoredTensor(shape, dtype, length, "", lambda: loaded(source, where))
