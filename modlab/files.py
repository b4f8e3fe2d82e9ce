"""Files: only regular ones are read, at most so many bytes, and what is written is whole or not there at all."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def kind_of(mode: int) -> str:
    """What a path names that is not a file: "a folder", "a pipe" …; nothing of a regular file."""
    return "" if stat.S_ISREG(mode) else next((what for fits, what in _KINDS if fits(mode)), "something else")


def opened(path: str | os.PathLike[str]) -> BinaryIO:
    """A regular file, open to be read. A pipe or a device is refused, and not waited for.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0))
    try:
        kind = kind_of(os.fstat(number).st_mode)
        if kind:
            raise OSError(errno.EINVAL, f"It is {kind}, and not a file", os.fspath(path))
        return os.fdopen(number, "rb")
    except BaseException:
        os.close(number)
        raise


def content(path: str | os.PathLike[str], most: int) -> bytes:
    """All that is in a file.

    Raises:
        OSError: it cannot be read, is no regular file, or holds more than `most` bytes.
    """
    with opened(path) as stream:
        larger = os.fstat(stream.fileno()).st_size > most
        found = b"" if larger else stream.read(most + 1)
    if larger or len(found) > most:
        raise OSError(errno.EFBIG, f"It has more than {most:,} bytes", os.fspath(path))
    return found


def write(path: str | os.PathLike[str], text: str | bytes) -> None:
    """Write a file as a whole: first beside it, then in its place. Who is killed, or finds the disk full, leaves what was there.

    Raises:
        OSError: it cannot be written.
    """
    data = text.encode("utf-8") if isinstance(text, str) else text
    target = Path(os.path.realpath(path))  # of a link, the file that it names
    if target.exists() and kind_of(target.stat().st_mode):  # a pipe or /dev/stdout takes what it is given, a folder raises
        target.write_bytes(data)
        return
    beside = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.part")
    try:
        number = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0), 0o666)
        with os.fdopen(number, "wb") as stream:
            if target.exists():
                with suppress(OSError):  # somebody else's file
                    os.chmod(beside, stat.S_IMODE(target.stat().st_mode))
            stream.write(data)
            stream.flush()
            os.fsync(number)
        os.replace(beside, target)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(beside)
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error  # not the name of what lies beside it
        raise
