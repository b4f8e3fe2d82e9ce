"""What ``torch.save`` wrote, today's archive and the format of before torch 1.6: its tensors by the closed reader, none of them read."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from modlab.errors import CheckpointError
from modlab.inspection.formats.pickled import EndError, Made, Named, PickleError, Reader
from modlab.inspection.formats.stored import LARGEST, ByteSource, Layout, StoredTensor, damaged, loaded, sizes
from modlab.inspection.formats.zipped import Archive
from modlab.statistics.memory import PACKED

PICKLE = 300_000_000
"""Bytes of a pickle that is read: tensors lie outside of it."""
_MAGIC = 0x1950A86A20F9469CFC6C
_FIRST = 1 << 22  # bytes that are read at first of a file whose pickle is of unknown length
_STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexDoubleStorage": "complex128",
    "ComplexFloatStorage": "complex64",
    "QInt8Storage": "qint8",
    "QInt32Storage": "qint32",
    "QUInt8Storage": "quint8",
    "QUInt4x2Storage": "quint4x2",
    "QUInt2x4Storage": "quint2x4",
    "UntypedStorage": "uint8",
}
_PLAIN_CLASSES = ("torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer", "torch.Tensor", "torch._tensor.Tensor")
_SHARDED = ("torch.distributed.tensor.DTensor", "torch.distributed._tensor.api.DTensor", "torch.distributed.tensor._api.DTensor")
_INERT = ("torch.distributed.", "torch._C.", "torch.utils._pytree.")
"""Where classes come from that are passed over, and never made: the mesh of a DTensor."""
_BITS = {"qint8": torch.int8, "quint8": torch.uint8, "qint32": torch.int32}


class UnknownError(CheckpointError):
    """A file that holds what is more than tensors.

    Attributes:
        names: what reading it would call.
        content: what it is; none of it was called.
    """

    def __init__(self, names: list[str], content: Any) -> None:
        super().__init__("It holds more than tensors.")
        self.names, self.content = names, content


@dataclass(slots=True, eq=False)
class _Storage:
    """A run of numbers that tensors share."""

    key: str
    dtype: str
    count: int
    begin: int = 0


class Tensors:
    """Makes `StoredTensor` of what a pickle of torch's says; where the numbers lie is asked when one is read.

    Args:
        source: the file.
        where: the first byte and the number of bytes of a storage, by its key.
        swapped: the numbers are of the other byte order.
    """

    def __init__(self, source: ByteSource, where: Callable[[str], tuple[int, int]], swapped: bool = False) -> None:
        self.source, self._where, self._swapped = source, where, swapped
        self.storages: dict[str, _Storage] = {}
        self.unknown: dict[str, None] = {}  # classes of tensors that are not torch's own
        self.makers: dict[str, Callable[..., Any]] = {
            "torch._utils._rebuild_tensor": self._tensor,
            "torch._utils._rebuild_tensor_v2": self._tensor_2,
            "torch._utils._rebuild_tensor_v3": self._tensor_3,
            "torch._utils._rebuild_parameter": lambda data, *rest: data,
            "torch._utils._rebuild_parameter_with_state": lambda data, *rest: data,
            "torch._utils._rebuild_qtensor": self._quantized,
            "torch._utils._rebuild_sparse_tensor": self._sparse,
            "torch._utils._rebuild_meta_tensor_no_storage": self._meta,
            "torch._utils._rebuild_wrapper_subclass": self._wrapper,
            "torch._utils._rebuild_device_tensor_from_cpu_tensor": lambda data, *rest: data,
            "torch._tensor._rebuild_from_type_v2": self._of_type,
            "torch.nn.parameter.Parameter": lambda data=None, *rest: data,
        }

    # ---- storages ----

    def storage(self, given: Any) -> Any:
        """What a persistent id names."""
        if not isinstance(given, tuple) or len(given) < 5 or given[0] not in ("storage", b"storage") or type(given[1]) is not Named:
            if isinstance(given, tuple) and len(given) > 1 and given[0] in ("module", b"module"):
                return given[1]  # the class of a whole model, with its source beside it
            raise PickleError("it refers to something that is not a tensor's numbers")
        _, kind, key, _, count, *view = given
        dtype = _STORAGES.get(kind.name.rpartition(".")[2])
        if dtype is None or not isinstance(key, (str, int)) or type(count) is not int or not 0 <= count <= LARGEST:
            raise PickleError("it describes numbers in a way torch does not")
        found = self.storages.setdefault(str(key), _Storage(str(key), dtype, count))
        begin = view[0][1] if view and isinstance(view[0], tuple) and len(view[0]) == 3 else 0
        if type(begin) is not int or not 0 <= begin <= LARGEST:
            raise PickleError("it describes numbers in a way torch does not")
        return _Storage(found.key, dtype, found.count, begin)

    # ---- tensors ----

    def _stored(self, storage: Any, offset: Any, size: Any, stride: Any, dtype: str, note: str = "") -> StoredTensor:
        if type(storage) is not _Storage:
            raise PickleError("one of its tensors has no numbers")
        shape, steps = sizes(size, self.source.name), sizes(stride, self.source.name)
        if type(offset) is not int or not 0 <= offset <= LARGEST or len(steps) != len(shape):
            raise damaged(self.source.name, "one of its tensors has an impossible offset or stride")
        one = _itemsize(dtype)
        begin = offset + storage.begin * _itemsize(storage.dtype) // one

        def load() -> Tensor:
            first, held = self._where(storage.key)
            return loaded(self.source, Layout(first, held, dtype, shape, steps, begin, self._swapped))

        packed = PACKED.get(getattr(torch, dtype, None), 1)  # type: ignore[arg-type]
        return StoredTensor(shape, dtype, -(-_count(shape) * one // packed), note, load, (storage.key, begin, dtype, shape, steps))

    def _tensor(self, storage: Any, offset: Any, size: Any, stride: Any, *rest: Any) -> StoredTensor:
        return self._stored(storage, offset, size, stride, storage.dtype if type(storage) is _Storage else "")

    def _tensor_2(
        self, storage: Any, offset: Any, size: Any, stride: Any, grad: Any = None, hooks: Any = None, metadata: Any = None
    ) -> StoredTensor:
        return _flipped(self._tensor(storage, offset, size, stride), metadata)

    def _tensor_3(
        self, storage: Any, offset: Any, size: Any, stride: Any, grad: Any, hooks: Any, dtype: Any, metadata: Any = None
    ) -> StoredTensor:
        return _flipped(self._stored(storage, offset, size, stride, _dtype_named(dtype)), metadata)

    def _meta(self, dtype: Any, size: Any, stride: Any, grad: Any = None) -> StoredTensor:
        shape, name = sizes(size, self.source.name), _dtype_named(dtype)
        return StoredTensor(shape, name, _count(shape) * _itemsize(name), "on meta: it has no values")

    def _wrapper(self, cls: Any, dtype: Any, size: Any, *rest: Any) -> StoredTensor:
        shape, name = sizes(size, self.source.name), _dtype_named(dtype)
        short = cls.name.rpartition(".")[2] if type(cls) is Named else "a subclass"
        return StoredTensor(shape, name, _count(shape) * _itemsize(name), short)

    def _of_type(self, function: Any, cls: Any, arguments: Any, state: Any) -> Any:
        if type(function) is not Named or type(cls) is not Named or not isinstance(arguments, tuple):
            raise PickleError("it makes a tensor in a way torch does not")
        maker = self.makers.get(function.name)
        if maker is None:
            self.unknown[cls.name] = None
            return Made(cls.name, arguments, state)
        made = maker(*arguments)
        if cls.name in _PLAIN_CLASSES:
            return made
        local = next((part["_local_tensor"] for part in _dicts(state) if isinstance(part.get("_local_tensor"), StoredTensor)), None)
        if cls.name in _SHARDED and local is not None:
            part = "×".join(map(str, local.shape)) or "scalar"
            return StoredTensor(made.shape, made.dtype, local.bytes, f"DTensor: this file holds the {part} of one rank")
        self.unknown[cls.name] = None
        return Made(cls.name, (made,), state)

    def _quantized(self, storage: Any, offset: Any, size: Any, stride: Any, how: Any, *rest: Any) -> StoredTensor:
        if type(storage) is not _Storage or not isinstance(how, tuple) or not how or not isinstance(how[0], torch.qscheme):
            raise PickleError("it quantizes a tensor in a way torch does not")
        dtype = storage.dtype
        made = self._stored(storage, offset, size, stride, dtype, "quantized")
        bits = _BITS.get(dtype)
        if bits is None:
            made.load = None
            return made
        whole = self._stored(storage, offset, size, stride, str(bits).removeprefix("torch."))

        def load() -> Tensor:
            values = whole.read("")
            if how[0] == torch.per_tensor_affine:
                return torch._make_per_tensor_quantized_tensor(values, float(how[1]), int(how[2]))
            scales, zeros = (_vector(one) for one in how[1:3])
            axis = int(how[3])
            if not 0 <= axis < len(whole.shape) or len(scales) != whole.shape[axis] or len(zeros) != whole.shape[axis]:
                raise damaged(self.source.name, "the scales of a quantized tensor do not match it")
            return torch._make_per_channel_quantized_tensor(values, scales.double(), zeros.long(), axis)

        made.load = load
        return made

    def _sparse(self, layout: Any, parts: Any) -> StoredTensor:
        name = str(layout).removeprefix("torch.") if isinstance(layout, torch.layout) else ""
        if name not in ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc") or not isinstance(parts, tuple):
            raise PickleError("it makes a sparse tensor in a way torch does not")
        held = parts[:2] if name == "sparse_coo" else parts[:3]
        size = parts[len(held)] if len(parts) > len(held) else None
        if not all(isinstance(part, StoredTensor) for part in held):
            raise PickleError("a part of a sparse tensor is not a tensor")
        shape = sizes(size, self.source.name)

        def load() -> Tensor:
            values = [part.read("") for part in held]
            if name == "sparse_coo":
                return torch.sparse_coo_tensor(values[0], values[1], shape, check_invariants=True)
            return torch.sparse_compressed_tensor(values[0], values[1], values[2], shape, layout=layout, check_invariants=True)

        return StoredTensor(shape, held[-1].dtype, sum(part.bytes for part in held), name, load)


def _dicts(state: Any) -> list[dict[Any, Any]]:
    """The attributes of an object: a dict, or one for its ``__dict__`` and one for its slots."""
    return [part for part in (state if isinstance(state, tuple) else (state,)) if isinstance(part, dict)]


def _vector(given: Any) -> Tensor:
    """Scales or zero points: a tensor of the file's, or a list."""
    return given.read("") if isinstance(given, StoredTensor) else torch.tensor(given)


def _flipped(made: StoredTensor, metadata: Any) -> StoredTensor:
    """A tensor whose conjugate or negative bit is set."""
    marks = [name for name in ("conj", "neg") if isinstance(metadata, dict) and metadata.get(name)]
    load = made.load
    if marks and load is not None:
        made.memory = None
        made.load = lambda: torch.conj_physical(load()) if marks == ["conj"] else -load() if marks == ["neg"] else -load().conj()
    return made


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _dtype_named(dtype: Any) -> str:
    if not isinstance(dtype, torch.dtype):
        raise PickleError("the dtype of one of its tensors is not known to this torch")
    return str(dtype).removeprefix("torch.")


def _itemsize(dtype: str) -> int:
    found = getattr(torch, dtype, None)
    return found.itemsize if isinstance(found, torch.dtype) else 1


# ---- the two formats ----


def read(source: ByteSource, archive: Archive | None = None) -> Any:
    """What ``torch.save`` wrote, with `StoredTensor` for each tensor.

    Raises:
        UnknownError: it holds more than tensors and plain values.
        CheckpointError: it is damaged.
    """
    try:
        if archive is None and bytes(source.read(0, min(4, source.size))) == b"PK\x03\x04":
            archive = Archive(source)
        return _of_archive(source, archive) if archive is not None else _of_stream(source)
    except PickleError as error:
        why = str(error)
        raise CheckpointError(f"{source.name} cannot be read as a checkpoint: {why}.\n  Save or download it again.") from None


def _of_archive(source: ByteSource, archive: Archive) -> Any:
    name = archive.named("data.pkl")
    folder = name.removesuffix("data.pkl")
    order = archive.content(f"{folder}byteorder", 16) if f"{folder}byteorder" in archive.entries else b"little"
    tensors = Tensors(source, lambda key: archive.where(f"{folder}data/{key}"), swapped=order == b"big")
    reader = Reader(archive.content(name, PICKLE), 0, tensors.makers, tensors.storage)
    return _known(reader, tensors)


def _of_stream(source: ByteSource) -> Any:
    """A pickle of a magic number, three more, and then the numbers: how long they are is only known at their ends."""
    size = _FIRST
    while True:
        data = source.read(0, min(size, source.size, PICKLE))
        try:
            return _of_bytes(source, data)
        except EndError:
            if len(data) >= min(source.size, PICKLE):
                raise
            size *= 8


def _of_bytes(source: ByteSource, data: bytearray) -> Any:
    magic = Reader(data)
    if magic.load() != _MAGIC:
        raise PickleError("it is a pickle that torch.save did not write")
    system = Reader(data, magic.position)
    system.load()
    about = Reader(data, system.position)
    held = about.load()
    places: dict[str, tuple[int, int]] = {}

    def where(key: str) -> tuple[int, int]:
        if key not in places:
            raise damaged(source.name, "the numbers of a tensor are not in it")
        return places[key]

    swapped = isinstance(held, dict) and held.get("little_endian") is False
    tensors = Tensors(source, where, swapped)
    reader = Reader(data, about.position, tensors.makers, tensors.storage)
    content = _known(reader, tensors)
    keys = Reader(data, reader.position)
    listed = keys.load()
    place = keys.position
    for key in listed if isinstance(listed, list) else ():
        storage = tensors.storages.get(str(key))
        if storage is None or place + 8 > source.size:
            break
        count = struct.unpack("<q", source.read(place, 8))[0]
        length = count * _itemsize(storage.dtype)
        if count < 0 or length > source.size:
            break
        places[str(key)] = (place + 8, length)
        place += 8 + length
    return content


def _known(reader: Reader, tensors: Tensors) -> Any:
    content = reader.load()
    names = [name for name in (*reader.unknown, *tensors.unknown) if not name.startswith(_INERT)]
    if names:
        raise UnknownError(names, content)
    return content
