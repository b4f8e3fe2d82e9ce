"""A mapping of tensors, or a checkpoint file, as a side of a comparison. Of a file, values are read when they are compared."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from modlab.errors import CheckpointError
from modlab.inspection import checkpoint
from modlab.inspection.inventory import OPTIMIZER, STATE, Entry, Inventory, Key, leaf, setting, states
from modlab.records.structure import TensorEntry

RESIDENT = 1 << 26
"""Bytes of a mapped file that may have been touched before it is mapped anew, which gives its pages back."""


def of_mapping(content: Mapping[Any, Any], title: str = "state_dict") -> Inventory:
    """A ``state_dict()``, an optimizer's, or a training checkpoint that holds several."""
    found = Inventory(title, "mapping", source=content)
    _fill(found, content, None)
    return found


def of_file(path: str) -> Inventory:
    """A ``.safetensors`` file, the index of a sharded one, or what ``torch.save`` wrote.

    Raises:
        CheckpointError: it is none, or to read it would run code that is stored in it.
    """
    try:
        file = checkpoint.existing_file(path)
        found = Inventory(file.name, "file", given=path)
        if file.name.endswith(".index.json"):
            for shard, names in checkpoint.shards_of(file).items():
                _fill_from(found, shard, names)
                found.shards = shard.suffix
            found.content, found.versions, found.others = None, None, ()  # those of the last shard tell nothing of the others
        else:
            _fill_from(found, file, None)
        return found
    except CheckpointError as error:
        message = (
            str(error).replace("modlab.state(path)", "modlab.diff(path, ...)").replace("modlab.state(model)", "modlab.diff(..., model)")
        )
        raise CheckpointError(message.replace("modlab.state()", "modlab.diff()")) from error
    except (OSError, ValueError) as error:  # a text that can be the name of no file, or a file that may not be read
        raise CheckpointError(f"modlab.diff() cannot read {path[:60]!r}: {getattr(error, 'strerror', None) or error}.") from error


def _fill_from(found: Inventory, file: Path, names: set[str] | None) -> None:
    if file.suffix == ".safetensors":
        header, begin = checkpoint.header_of(file)
        for name, entry in header.items():
            if names is None or name in names:
                found.entries.append(_safe_entry(file, name, entry, begin))
        found.sections.add(STATE)
        return
    archive = _Archive(file)
    _fill(found, archive.shapes, archive, names)


def _safe_entry(file: Path, name: str, entry: Any, begin: int) -> Entry:
    row = checkpoint.header_row(name, entry)
    facts = TensorEntry(name, "tensor", row.shape, row.dtype, "cpu", row.count, row.bytes)
    first = begin + int(entry["data_offsets"][0])
    load = _safe_loader(file, row.dtype, row.shape or (), first, row.bytes)
    return Entry(Key(STATE, name), name, row.owner, "tensor", facts, load=load, saved=True)


def _safe_loader(file: Path, dtype_name: str, shape: tuple[int, ...], first: int, size: int) -> Callable[[], Tensor]:
    def load() -> Tensor:
        dtype = getattr(torch, dtype_name, None)
        if not isinstance(dtype, torch.dtype):
            raise CheckpointError(f"its dtype {dtype_name} is not known to this torch")
        if not size:
            return torch.empty(shape, dtype=dtype)
        if first + size > os.path.getsize(file):
            raise CheckpointError(f"{file.name} is cut off: the numbers are not there")
        mapped = np.memmap(file, np.uint8, "c", offset=first, shape=(size,))  # "c": torch wants memory that it could write to
        return torch.from_numpy(mapped).view(dtype).reshape(shape)

    return load


class _Archive:
    """What ``torch.save`` wrote: at first its shapes alone, then mapped tensor by tensor."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.shapes = checkpoint.loaded(file, "meta")
        self._tensors: dict[str, Tensor] | None = None
        self._touched = 0
        self._limit = max(RESIDENT, os.path.getsize(file) // 16)

    def tensor(self, path: str) -> Tensor:
        """One tensor. The mapping is renewed now and then, so that the pages that have been read do not add up."""
        if self._tensors is None or self._touched > self._limit:
            self._tensors, self._touched = None, 0
            content = checkpoint.loaded(self.file, "cpu")
            self._tensors = {item.path: item.value for item in checkpoint.items_of(content) if isinstance(item.value, Tensor)}
        found = self._tensors[path]
        self._touched += found.numel() * found.element_size()
        return found

    def loader(self, path: str) -> Callable[[], Tensor]:
        """Reads one tensor later."""
        return lambda: self.tensor(path)


def _fill(found: Inventory, content: Any, archive: _Archive | None, names: set[str] | None = None) -> None:
    """The entries of a mapping: the states of optimizers in it under the keys of optimizers, all else by its path."""
    found.sections.add(STATE)
    found.content = content
    versions = getattr(content, "_metadata", None)
    found.versions = dict(versions) if isinstance(versions, Mapping) else None
    parts = [key for key, value in content.items() if _is_optimizer_state(value)] if isinstance(content, Mapping) else []
    if _is_optimizer_state(content):
        _fill_optimizer(found, content, 0, "", archive, "")
        found.sections = {OPTIMIZER}
        return
    for number, key in enumerate(parts):
        _fill_optimizer(found, content[key], number, f"{key}.", archive, f"{key}.")
    rest = {key: value for key, value in content.items() if key not in parts} if parts else content
    for item in checkpoint.items_of(rest):
        if names is not None and item.path not in names:
            continue
        entry = leaf(Key(STATE, item.path), item.path, item.owner, "tensor", item.value, saved=True)
        if not entry.is_tensor:
            entry.kind = "value"
        found.entries.append(_from_archive(entry, archive, item.path))
    if isinstance(content, Mapping):
        found.others = tuple(
            str(key) for key, value in content.items() if isinstance(value, Mapping) and key not in parts and _tensors_in(value)
        )


def _fill_optimizer(found: Inventory, content: Any, number: int, front: str, archive: _Archive | None, prefix: str) -> None:
    found.sections.add(OPTIMIZER)
    for i, group in enumerate(content["param_groups"]):
        for name, value in group.items() if isinstance(group, Mapping) else ():
            if name != "params":
                found.entries += [
                    _from_archive(e, archive, f"{prefix}param_groups.{i}.{name}") for e in setting(number, i, str(name), value, front)
                ]
    for index, state in content["state"].items():
        found.entries += [_from_archive(e, archive, f"{prefix}{e.key.name.partition('.')[2]}") for e in states(number, index, state, front)]


def _from_archive(entry: Entry, archive: _Archive | None, path: str) -> Entry:
    """An entry of a file was described without its values, on no device: it lies in the file, and is read to the CPU."""
    if archive is not None and entry.is_tensor:
        entry.load, entry.tensor, entry.facts = archive.loader(path), None, replace(entry.facts, device="cpu")
    return entry


def _is_optimizer_state(value: Any) -> bool:
    if not isinstance(value, Mapping) or not {"state", "param_groups"} <= set(value):
        return False
    return isinstance(value["state"], Mapping) and isinstance(value["param_groups"], (list, tuple))


def _tensors_in(value: Mapping[Any, Any]) -> bool:
    return any(isinstance(one, Tensor) for one in value.values())


def parts_of(found: Inventory) -> Iterator[tuple[str, list[Entry]]]:
    """The parts of a checkpoint that hold weights, each with its entries."""
    for name in found.others:
        yield name, [entry for entry in found.entries if entry.key.section == STATE and entry.path.startswith(name + ".")]


def choose(found: Inventory, wanted: set[str]) -> None:
    """Keep of a training checkpoint the part that holds the weights called `wanted`, under their own names."""
    if not found.others or any(entry.path in wanted for entry in found.entries):
        return
    tails = {name.rpartition(".")[2] for name in wanted}
    scored = [(_overlap(name, its, wanted, tails), -i, name, its) for i, (name, its) in enumerate(parts_of(found))]
    score, _, part, chosen = max(scored, key=lambda one: one[:2])
    if not sum(score):
        return
    kept = [entry for entry in found.entries if entry.key.section != STATE]
    for entry in chosen:
        entry.path = entry.path[len(part) + 1 :]
        entry.owner = entry.path.rpartition(".")[0]
        entry.key = Key(STATE, entry.path)
    found.entries = chosen + kept
    rest = [name for name in found.others if name != part]
    found.part, found.others = part, tuple(rest)
    inner = next((value for key, value in found.content.items() if str(key) == part), None)
    found.content = inner
    metadata = getattr(inner, "_metadata", None)
    found.versions = dict(metadata) if isinstance(metadata, Mapping) else None


def _overlap(part: str, its: list[Entry], wanted: set[str], tails: set[str]) -> tuple[int, int]:
    names = [entry.path[len(part) + 1 :] for entry in its]
    exact = sum(name in wanted for name in names)
    return exact, sum(name.rpartition(".")[2] in tails for name in names)
