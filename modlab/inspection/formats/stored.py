"""A stored tensor as a file describes it, and the bytes that it would be read from."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import torch
from torch import Tensor

from modlab import files, format
from modlab.errors import CheckpointError
from modlab.frozen import frozen
from modlab.records.structure import TensorEntry

LARGEST = 2**63 - 1
"""The greatest number of elements or bytes that a tensor can have."""
_DIMENSIONS = 64
_SPARE = 1 << 20  # numbers that a tensor may show beyond those that it holds, as one that was expanded does


@dataclass(slots=True, eq=False)
class StoredTensor:
    """A tensor in a file.

    Attributes:
        shape: its sizes, checked.
        dtype: as ``"float32"``.
        bytes: of its values in the file.
        note: what is special about it.
        load: reads it; None where it cannot be read alone, and `note` says why.
        memory: equal for two names of one tensor; None where the file does not say.
    """

    shape: tuple[int, ...]
    dtype: str
    bytes: int
    note: str = ""
    load: Callable[[], Tensor] | None = None
    memory: tuple[Any, ...] | None = None

    @property
    def count(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    def facts(self, name: str) -> TensorEntry:
        """Its entry: it lies in the file, and would be read to the CPU."""
        return TensorEntry(name, "tensor", self.shape, self.dtype, "cpu", self.count, self.bytes, note=self.note)

    def read(self, name: str) -> Tensor:
        """Its values.

        Raises:
            CheckpointError: they cannot be read.
        """
        if self.load is None:
            raise CheckpointError(f"The values of {called(name)} cannot be read: {self.note or 'the file does not hold them'}.")
        try:
            return self.load()
        except CheckpointError as error:
            raise CheckpointError(f"The values of {called(name)} cannot be read: {error}" if name else str(error)) from None


def called(name: str) -> str:
    """A name out of a file, as it stands in an error."""
    return repr(format.cut(format.clean(name), 80))


def sizes(given: Any, what: str) -> tuple[int, ...]:
    """A shape out of a file: whole numbers that a tensor can have.

    Raises:
        CheckpointError: it is something else.
    """
    if not isinstance(given, (list, tuple)) or len(given) > _DIMENSIONS or any(type(size) is not int for size in given):
        raise damaged(what, "its shape is not a list of whole numbers")
    shape = tuple(given)
    if any(not 0 <= size <= LARGEST for size in shape) or prod(shape) > LARGEST:
        raise damaged(what, "its shape is impossible for a tensor")
    return shape


def dtype_of(given: Any, what: str, known: dict[str, str] | None = None) -> str:
    """The name of a dtype out of a file; also of one that this torch does not have."""
    if not isinstance(given, str) or not 0 < len(given) <= 100:
        raise damaged(what, "its dtype is not the name of one")
    return (known or {}).get(given) or given.lower()


def damaged(what: str, why: str) -> CheckpointError:
    """The error for what a file says and cannot be."""
    return CheckpointError(f"{what} is damaged: {why}.\n  Save or download it again.")


class ByteSource(Protocol):
    """Bytes, some of which are asked for."""

    name: str

    @property
    def size(self) -> int:
        """How many there are."""

    def read(self, first: int, count: int) -> bytearray:
        """Some of them; CheckpointError where they are not there."""


class FileSource:
    """A regular file, opened for each reading: it is never mapped, for a map of a file that shrinks kills the process."""

    def __init__(self, file: Path) -> None:
        self.file, self.name = file, format.clean(file.name)
        with files.opened(file) as stream:
            self._state = _state(stream)
        self.size = self._state[1]

    def read(self, first: int, count: int) -> bytearray:
        """Some of its bytes, of the file as it was when it was opened first."""
        if first < 0 or count < 0 or first + count > self.size:
            raise CheckpointError(f"{self.name} is cut off: the numbers are not there.\n  Save or download it again.")
        found = bytearray(count)
        with files.opened(self.file) as stream:
            stream.seek(first)
            whole = stream.readinto(found) == count  # type: ignore[attr-defined]
            if not whole or _state(stream) != self._state:
                raise CheckpointError(f"{self.name} changed while it was read.\n  Look again once it has been written.")
        return found


def _state(stream: BinaryIO) -> tuple[int, int, int]:
    """What changes as soon as a file is written, or another takes its place."""
    found = os.fstat(stream.fileno())
    return found.st_ino, found.st_size, found.st_mtime_ns


class PartSource:
    """A run of bytes of another source: a file inside a file."""

    def __init__(self, source: ByteSource, first: int, size: int) -> None:
        self.name, self.size = source.name, size
        self._source, self._first = source, first

    def read(self, first: int, count: int) -> bytearray:
        """Some of them."""
        if first < 0 or count < 0 or first + count > self.size:
            raise CheckpointError(f"{self.name} is cut off: the numbers are not there.\n  Save or download it again.")
        return self._source.read(self._first + first, count)


@frozen
class Layout:
    """Where in a file the numbers of one tensor lie: in bytes, and then as torch lays them out."""

    first: int
    size: int
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...] | None = None
    offset: int = 0
    swapped: bool = False


def loaded(source: ByteSource, where: Layout) -> Tensor:
    """The values of a tensor; only its own bytes are read.

    Raises:
        CheckpointError: they are not there, or this torch does not have its dtype.
    """
    dtype = getattr(torch, where.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise CheckpointError(f"Its dtype {where.dtype} is not known to this torch.")
    if not prod(where.shape):
        return torch.empty(where.shape, dtype=dtype)
    span = _span(where)
    if prod(where.shape) > 64 * span + _SPARE:
        raise CheckpointError(f"{source.name} claims {prod(where.shape):,} numbers for a tensor, but holds {span:,} of them.")
    if (where.offset + span) * dtype.itemsize > where.size:
        raise CheckpointError(f"{source.name} is damaged: a tensor reaches beyond the numbers that are there.")
    raw = source.read(where.first + where.offset * dtype.itemsize, span * dtype.itemsize)
    if where.swapped:
        parts = torch.frombuffer(raw, dtype=torch.uint8).reshape(-1, dtype.itemsize // (2 if dtype.is_complex else 1))
        raw = bytearray(parts.flip(1).contiguous().numpy().tobytes())
    flat = torch.frombuffer(raw, dtype=torch.uint8).view(dtype)
    return flat.reshape(where.shape) if where.stride is None else flat.as_strided(where.shape, where.stride)


def _span(where: Layout) -> int:
    """How many elements lie between the first one and the last one."""
    if where.stride is None:
        return prod(where.shape)
    return 1 + sum((size - 1) * step for size, step in zip(where.shape, where.stride, strict=True))
