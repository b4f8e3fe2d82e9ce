"""A zipped archive, whose directory is read with care: how large it may be, and where an entry's bytes lie. Nothing is unpacked."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib

from modlab.errors import CheckpointError
from modlab.inspection.formats.stored import ByteSource, damaged

_DIRECTORY = 100_000_000
"""Bytes of a directory that is read: about a million entries."""
_END, _END_64, _LOCATOR = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"


class _Tail(io.RawIOBase):
    """A source as a file, of which zipfile reads the end."""

    def __init__(self, source: ByteSource) -> None:
        self._source, self._place = source, 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, place: int, whence: int = 0) -> int:
        self._place = place + (0, self._place, self._source.size)[whence]
        if self._place < 0:
            raise OSError("a position before the beginning")
        return self._place

    def tell(self) -> int:
        return self._place

    def read(self, count: int | None = -1) -> bytes:
        left = max(0, self._source.size - self._place)
        count = left if count is None or count < 0 else min(count, left)
        found = bytes(self._source.read(self._place, count)) if count else b""
        self._place += count
        return found


class Archive:
    """The entries of a zip archive.

    Raises:
        CheckpointError: it is damaged, or its directory is too large.
    """

    def __init__(self, source: ByteSource) -> None:
        self.source = source
        if _directory_size(source) > _DIRECTORY:
            raise CheckpointError(f"{source.name} has a directory of more than {_DIRECTORY:,} bytes, more than any checkpoint has.")
        try:
            with zipfile.ZipFile(_Tail(source)) as archive:
                self.entries = {entry.filename: entry for entry in archive.infolist()}
        except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error, OSError, OverflowError) as error:
            raise CheckpointError(
                f"{source.name} is a zip archive that is cut off or damaged: it has no directory at its end.\n"
                "  Was it written or downloaded completely? Save or download it again."
            ) from error

    def named(self, ending: str) -> str:
        """The first entry whose name is this, or ends so below the archive's one folder; "" where there is none."""
        return next((name for name in self.entries if name == ending or name.partition("/")[2] == ending), "")

    def where(self, name: str) -> tuple[int, int]:
        """Where an entry's bytes begin in the file, and how many there are.

        Raises:
            CheckpointError: it is not there, or packed.
        """
        entry = self.entries.get(name)
        if entry is None:
            raise damaged(self.source.name, "the numbers of a tensor are not in it")
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
            told = f"{self.source.name} holds its numbers compressed, which torch never does."
            raise CheckpointError(f"{told}\n  Load it with torch, and save it again.")
        head = self.source.read(entry.header_offset, 30)
        if head[:4] != b"PK\x03\x04":
            raise damaged(self.source.name, "its directory points to a position where no entry begins")
        return entry.header_offset + 30 + sum(struct.unpack("<HH", head[26:30])), entry.file_size

    def content(self, name: str, most: int) -> bytes:
        """All bytes of one entry, unpacked if need be.

        Raises:
            CheckpointError: it is not there, damaged, or larger than `most`.
        """
        entry = self.entries.get(name)
        if entry is None:
            raise damaged(self.source.name, "a part of it is missing")
        if entry.file_size > most or entry.compress_size > most:
            raise CheckpointError(
                f"{self.source.name} claims a table of contents of {entry.file_size:,} bytes, too many for any checkpoint."
            )
        if entry.compress_type == zipfile.ZIP_STORED and not entry.flag_bits & 1:
            first, size = self.where(name)
            return bytes(self.source.read(first, size))
        try:
            with zipfile.ZipFile(_Tail(self.source)) as archive, archive.open(entry) as stream:
                found = stream.read(most + 1)
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError, EOFError, zlib.error, RuntimeError, OverflowError) as error:
            raise damaged(self.source.name, "one of its entries cannot be unpacked") from error
        if len(found) > most:
            raise CheckpointError(f"{self.source.name} holds an entry that unpacks to more than {most:,} bytes.")
        return found


def _directory_size(source: ByteSource) -> int:
    """As the end of the archive says; 0 where it has no such end, which zipfile will say."""
    count = min(source.size, 65_557)
    tail = bytes(source.read(source.size - count, count))
    place = tail.rfind(_END)
    if place < 0 or place + 22 > len(tail):
        return 0
    size: int = struct.unpack_from("<I", tail, place + 12)[0]
    locator = place - 20
    if size == 0xFFFFFFFF and locator >= 0 and tail[locator : locator + 4] == _LOCATOR:
        where = struct.unpack_from("<Q", tail, locator + 8)[0]
        if where + 56 <= source.size:
            record = bytes(source.read(where, 56))
            size = struct.unpack_from("<Q", record, 40)[0] if record[:4] == _END_64 else size
    return size
