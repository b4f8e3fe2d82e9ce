"""Files that hold no weights at all, or not all of them: a web page, a pointer of Git LFS, a download that was cut off."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from modlab import format
from modlab.explaining.failure import Cause, Failure, Rule
from modlab.records.explanation import Fix

HEAD = 256  # bytes at the beginning that are looked at
_TEXT = 40  # characters of them that are told
_AGAIN = "Get the file again, and check what you got:"
_PRINTABLE = frozenset(range(0x20, 0x7F)) | {0x09, 0x0A, 0x0D}


class _Content(NamedTuple):
    """What a file holds by its first bytes: in words, and how to get the weights."""

    what: str
    fixes: tuple[Fix, ...]


def path_of(failure: Failure) -> str:
    """The file that was being read; nothing where it is not known."""
    for frame in reversed(failure.frames):
        for name in ("f", "filename"):
            given = frame.names.get(name)
            given = getattr(given, "name", given) if not isinstance(given, (str, bytes, os.PathLike)) else given
            if isinstance(given, (str, os.PathLike)) and os.path.isfile(given):
                return os.fspath(given)
    return ""


def written(path: str) -> str:
    """The path as code has it: a bare name, else the word ``path``, so that nothing of this machine is told."""
    return repr(path) if path and os.sep not in path and "/" not in path else "path"


def of_no_checkpoint(failure: Failure) -> Cause:
    """What is in a file that ``torch.load`` cannot take for a checkpoint."""
    path = path_of(failure)
    head = _head(path)
    found = _content(head, written(path)) if head is not None else None
    if found is None:
        look = f"print(open({written(path)}, 'rb').read(80))"
        return Cause("This is not a torch.save file.", "It begins with different bytes.", "", (), (Fix(_AGAIN, look),))
    return Cause(f"This is not a checkpoint: the file {found.what}.", "torch.load reads what torch.save wrote.", "", (), found.fixes)


def _head(path: str) -> bytes | None:
    if not path:
        return None
    try:
        with open(path, "rb") as file:
            return file.read(HEAD)
    except OSError:
        return None


def _content(head: bytes, path: str) -> _Content | None:
    look = (Fix(_AGAIN, f"print(open({path}, 'rb').read(80))"),)
    markup = head.lstrip().lower()
    if not head:
        return _Content("is empty", (Fix("Save or download it again: the file is empty."),))
    if head.startswith(b"version https://git-lfs"):
        return _Content("is a pointer of Git LFS, and the weights are not here yet", (Fix("Get what it points to:", "!git lfs pull"),))
    if markup.startswith((b"<!doctype html", b"<html")):
        return _Content(
            "is a web page (HTML)",
            (Fix("The address leads to a page, an error or a login, not to the file: use the link of the download itself."), *look),
        )
    if markup.startswith(b"<?xml"):
        return _Content("is XML, which servers send instead of a file they refuse", look)
    if head[8:10] == b'{"' and 0 < int.from_bytes(head[:8], "little") < 1 << 40:
        return _Content("is a safetensors file", (Fix("", f"import safetensors.torch\nsafetensors.torch.load_file({path})"),))
    if head.startswith(b"\x1f\x8b"):
        code = f"import gzip, io\nwith gzip.open({path}) as file:\n    torch.load(io.BytesIO(file.read()))"
        return _Content("is compressed (gzip)", (Fix("Unpack it first:", code),))
    for start, what in (
        (b"\x89HDF", "is HDF5, as Keras writes it"),
        (b"GGUF", "is GGUF, as llama.cpp reads it"),
        (b"\x93NUMPY", "is an array of numpy's: np.load reads it"),
    ):
        if head.startswith(start):
            return _Content(what, ())
    if _PRINTABLE.issuperset(head):
        begins = format.cut(" ".join(head.decode("ascii").split()), _TEXT)
        return _Content(f"contains text, and begins with {begins!r}", look)
    return None


def _not_read(failure: Failure, _: re.Match[str]) -> Cause | None:
    return of_no_checkpoint(failure) if _reads(failure) else None


def _reads(failure: Failure) -> bool:
    """Whether torch was reading a file."""
    return any(frame.is_torch and frame.code.co_filename.endswith("serialization.py") for frame in failure.frames)


def _cut_off(failure: Failure, _: re.Match[str]) -> Cause | None:
    if not _reads(failure):
        return None
    path = path_of(failure)
    head = _head(path)
    if head is not None and not head.startswith((b"PK", b"\x80")):
        return of_no_checkpoint(failure)
    size = (("size", format.size(os.path.getsize(path))),) if head is not None else ()
    return Cause(
        "The file is cut off: its end is missing.",
        "An interrupted download, a full disk, or an interrupted save.",
        "",
        size,
        (
            Fix(
                "Download or save it again. To keep a save from being cut off:",
                "torch.save(model.state_dict(), path + '.new')\nos.replace(path + '.new', path)",
            ),
        ),
    )


def _damaged(failure: Failure, match: re.Match[str]) -> Cause | None:
    """`OSError: Invalid argument` of the reader, where the archive has no end."""
    head = _head(path_of(failure))
    return _cut_off(failure, match) if head is not None and head.startswith(b"PK") else None


def _other_archive(failure: Failure, _: re.Match[str]) -> Cause | None:
    if not _reads(failure):
        return None
    return Cause(
        "This is not a checkpoint: the file is a zip archive of something else.",
        "torch.load reads what torch.save wrote.",
        "",
        (),
        (Fix("See what is in it:", f"import zipfile\nprint(zipfile.ZipFile({written(path_of(failure))}).namelist()[:9])"),),
    )


def _no_safetensors(failure: Failure, _: re.Match[str]) -> Cause | None:
    path = path_of(failure)
    head = _head(path)
    found = None if head is None else _content(head, written(path))
    if head is not None and head.startswith((b"PK", b"\x80")):
        found = _Content("is a torch.save file", (Fix("", f"torch.load({written(path)})"),))
    if found is None:
        return None
    return Cause(f"This is not a safetensors file: it {found.what}.", "", "", (), found.fixes)


_R = (RuntimeError,)
RULES = (
    Rule("file", (Exception,), r"^invalid load key, ", _not_read),
    Rule("file", (EOFError,), r"^(Ran out of input)?$", _not_read),
    Rule("file", _R, r"PytorchStreamReader failed (reading zip archive|locating file|reading file)", _cut_off),
    Rule("file", _R, r"^unexpected EOF, expected \d+ more bytes", _cut_off),
    Rule("file", (OSError,), r"Invalid argument", _damaged),
    Rule("file", _R, r"file in archive is not in a subdirectory", _other_archive),
    Rule("file", (Exception,), r"Error while deserializing header", _no_safetensors),
)
