"""A checkpoint, whatever its format → what it holds, and the rows of its table: no weight is read, no code of a file is run."""

from __future__ import annotations

import os
import pickle
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from modlab import files, format
from modlab.errors import CheckpointError, ModlabError, PathNotFoundError
from modlab.inspection import entries, values
from modlab.inspection.formats import dcp, folders, foreign, gguf, pt2, safetensors, sharded, torch_save
from modlab.inspection.formats.nesting import Item, described, flat_items_of, items_of, note
from modlab.inspection.formats.pickled import Made
from modlab.inspection.formats.stored import FileSource, StoredTensor, called
from modlab.inspection.formats.zipped import Archive
from modlab.records.state import StateRecord, TableRecord, ValuesRecord

_HEAD = 512
_LISTED = 10_000  # names of a folder that are looked at, where the one that was asked for is not among them


@dataclass(slots=True)
class Checkpoint:
    """What a file, or a folder of files, holds.

    Attributes:
        title: its name.
        content: what was saved, `StoredTensor` in place of each tensor.
        flat: the names are whole as they are, and stand for no nested dicts.
        parts: of a flat one whose names were joined, the first key of each name.
        format: "torch", "safetensors", "shards", "gguf", "pt2" or "dcp".
        inner: of a folder that was given, the file that is read.
        about: what was read.
        remarks: what is missing.
        shards: of a sharded one, how the names of its files end.
    """

    title: str
    content: Any
    flat: bool = False
    parts: dict[str, str] = field(default_factory=dict)
    format: str = "torch"
    inner: str = ""
    about: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    shards: str = ""

    def items(self) -> list[Item]:
        """Names and values, no more than so many."""
        return list((flat_items_of if self.flat else items_of)(self.content, self.remarks))


def read(path: str) -> TableRecord:
    """The table of a checkpoint.

    Raises:
        CheckpointError: it is none, or cannot be read.
    """
    with explained(path):
        found = opened(path)
        rows = tuple(_in_order(_rows(found.items())))
        return TableRecord(found.title, rows, source=path, remarks=(*found.about, *found.remarks))


def measure(path: str, name: str) -> ValuesRecord:
    """The values of one tensor; nothing else is read.

    Raises:
        PathNotFoundError: there is none of this name.
        CheckpointError: it cannot be read.
    """
    with explained(path):
        found = opened(path)
        item = next((item for item in found.items() if item.path == name), None)
        value = item.value if item is not None else None
        if isinstance(value, StoredTensor):
            value = value.read(name)
        if not isinstance(value, Tensor):
            known = f": it is not a tensor but {note(item.value)}" if item is not None else ""
            raise PathNotFoundError(f"{found.title} has no tensor {called(name)}{known}.")
        return values.read(value, name)


@contextmanager
def explained(path: str) -> Iterator[None]:
    """Whatever goes wrong with a file is a `CheckpointError`, which does not quote it."""
    name = format.cut(format.clean(Path(path).name or path), 100)
    try:
        yield
    except ModlabError:
        raise
    except OSError as error:
        raise CheckpointError(f"{name} cannot be read: {_lower(error.strerror or type(error).__name__)}.") from error
    except MemoryError:
        raise CheckpointError(f"{name} needs more memory than there is.") from None
    except Exception as error:  # noqa: BLE001 - a damaged file can be wrong in any way
        kind = type(error).__name__
        raise CheckpointError(f"{name} cannot be read: it is damaged ({kind}).\n  Save or download it again.") from None


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def opened(path: str) -> Checkpoint:
    """What a path holds; values are read when they are asked for."""
    given, about = existing(path), list[str]()
    place = folders.chosen(given, path, about) if given.is_dir() else given
    inner = place.name if place != given else ""
    found = _of_folder(place) if place.is_dir() else _sharded(place) if place.name.endswith(sharded.ENDING) else _of_file(place)
    title = f"{given.resolve().name}/{inner}" if inner else given.resolve().name if given.is_dir() else given.name
    return replace(found, title=title, inner=inner, about=[*about, *found.about])


def existing(path: str) -> Path:
    """The file or folder of a path that a user gave.

    Raises:
        CheckpointError: there is none, or it is neither.
    """
    if not path or "\0" in path:
        raise CheckpointError(f"There is no file {path[:60]!r}.\n  modlab.state() takes the path of a checkpoint.")
    place = Path(path)
    if not place.exists():  # a file that is really called "~" comes first
        place = Path(os.path.expanduser(path))
    if place.is_file() or place.is_dir():
        return place
    if place.exists():
        raise CheckpointError(f"{called(str(path))} is {files.kind_of(place.stat().st_mode)}, but modlab.state() reads files and folders.")
    near = sorted(p.name for p in islice(place.parent.iterdir(), _LISTED) if p.suffix == place.suffix)[:5] if place.parent.is_dir() else []
    hint = f"  Beside it: {', '.join(map(format.clean, near))}" if near else f"  The current folder is {_here()!r}."
    raise CheckpointError(f"There is no file {str(path)!r}.\n{hint}")


def _here() -> str:
    try:
        return Path.cwd().name
    except OSError:
        return "(gone)"


def _of_folder(folder: Path) -> Checkpoint:
    about, remarks = list[str](), list[str]()
    content, keys = dcp.read(folder, about, remarks)
    first = {name: str(key[0]) for name, key in keys.items() if len(key) > 1}
    return Checkpoint(folder.name, content, flat=True, parts=first, format="dcp", about=about, remarks=remarks)


def _sharded(index: Path) -> Checkpoint:
    made = Checkpoint(index.name, {}, flat=True, format="shards")
    for shard, names in sharded.shards_of(index).items():
        found = _of_file(shard)
        items = [item for item in found.items() if item.path in names]
        made.content |= {item.path: item.value for item in items}
        made.remarks += [f"{shard.name}: {one}" for one in found.remarks]
        if len(items) < len(names):
            made.remarks.append(f"{shard.name} holds {len(items):,} of the {len(names):,} tensors that {index.name} says are in it")
        made.shards = shard.suffix
    return made


def _of_file(file: Path) -> Checkpoint:
    """The one place that recognises a format: by what the file begins with, and not by its name."""
    source, about, remarks = FileSource(file), list[str](), list[str]()
    head = bytes(source.read(0, min(_HEAD, source.size)))
    if head.startswith(gguf.MAGIC):
        return Checkpoint(source.name, gguf.read(source, about, remarks), flat=True, format="gguf", about=about, remarks=remarks)
    if head.startswith(b"PK\x03\x04"):
        return _of_archive(file, source, Archive(source))
    if file.suffix == ".safetensors" or safetensors.looks_so(head, source.size):
        return Checkpoint(source.name, _safetensors(source, head, remarks), flat=True, format="safetensors", remarks=remarks)
    other = foreign.by_head(source, head)
    if other is not None:
        raise foreign.refused(source, other)
    return _saved(file, source, None)


def _safetensors(source: FileSource, head: bytes, remarks: list[str]) -> dict[str, StoredTensor]:
    if not safetensors.looks_so(head, source.size) and (other := foreign.by_head(source, head)) is not None:
        raise foreign.refused(source, other._replace(what=f"is not a safetensors file: it {other.what}"))
    return safetensors.read(source, remarks)


def _of_archive(file: Path, source: FileSource, archive: Archive) -> Checkpoint:
    if pt2.looks_so(archive):
        about = list[str]()
        return Checkpoint(source.name, pt2.read(source, archive, about), flat=True, format="pt2", about=about)
    if not archive.named("data.pkl") or foreign.is_script(archive):
        raise foreign.refused(source, foreign.by_entries(archive))
    return _saved(file, source, archive)


def _saved(file: Path, source: FileSource, archive: Archive | None) -> Checkpoint:
    try:
        return Checkpoint(source.name, torch_save.read(source, archive))
    except torch_save.UnknownError as error:
        if not _trusted(error.names):
            raise CheckpointError(_refused(source.name, error)) from None
    about = "It holds classes that this session trusts (torch.serialization.add_safe_globals): torch itself has read it"
    return Checkpoint(source.name, _by_torch(file), about=[about])


def _trusted(names: list[str]) -> bool:
    """Whether torch was told, in this process, that all of these may be made."""
    given: list[Any] = getattr(torch.serialization, "get_safe_globals", list)()
    trusted = {one[1] if isinstance(one, tuple) else f"{one.__module__}.{one.__qualname__}" for one in given}
    return set(names) <= trusted


def _by_torch(file: Path) -> Any:
    """What torch makes of a file; it runs nothing but what the session trusts."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of its own old ways
            return torch.load(file, map_location="cpu", weights_only=True)
    except (RuntimeError, pickle.UnpicklingError) as error:
        kind = type(error).__name__
        raise CheckpointError(f"{file.name} cannot be read by torch.load, though its classes are trusted ({kind}).") from error


def _refused(name: str, error: torch_save.UnknownError) -> str:
    what = format.cut(format.clean(error.names[0]), 80)
    known: dict[str, Any] = getattr(torch._weights_only_unpickler, "_get_allowed_globals", dict)()
    if known.keys() >= set(error.names):
        return f"{name} holds something modlab does not read ({what}).\n  torch reads it, running no code in it: torch.load({name!r})"
    return (
        f"{name} holds more than tensors ({what}), and reading that can run code stored in the file.\n"
        f"  If you trust its author: {_loaded(name, error.content)}.\n"
        f"  Better: save only the weights, torch.save(model.state_dict(), {name!r})."
    )


def _loaded(name: str, content: Any) -> str:
    """The line that loads a file without a guard, and what looks at what comes out."""
    call = f"torch.load({name!r}, weights_only=False)"
    if isinstance(content, Made) and isinstance(content.get("_modules"), dict):
        return f"model = {call}, then modlab.state(model)"
    return f"held = {call}, then modlab.diff(held, model)" if isinstance(content, Mapping) else call


# ---- rows ----------------------------------------------------------------------------------------------------------------


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


def _rows(items: Iterable[Item]) -> Iterator[StateRecord]:
    first: dict[tuple[Any, ...], str] = {}
    for item in items:
        memory = item.value.memory if isinstance(item.value, StoredTensor) else None
        met = first.setdefault(memory, item.path) if memory is not None else item.path
        yield _row(item, "" if met == item.path else met)


def _row(item: Item, tied: str) -> StateRecord:
    value = item.value
    if not isinstance(value, (StoredTensor, Tensor)):
        return StateRecord(item.path, item.owner, "", "value", True, note=note(value), value=described(value))
    entry = value.facts(item.path) if isinstance(value, StoredTensor) else entries.describe(item.path, "tensor", value)
    return StateRecord(
        item.path,
        item.owner,
        "",
        "tensor",
        True,
        entry.shape,
        entry.dtype,
        "",
        entry.count,
        entry.bytes,
        tied=tied,
        note=entry.note,
        computes=entry.computes,
        sharding=entry.sharding,
    )
