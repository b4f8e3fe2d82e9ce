"""A mapping of tensors, or a checkpoint file, as a side of a comparison. Of a file, values are read when they are compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from modlab.errors import CheckpointError
from modlab.inspection import checkpoint
from modlab.inspection.formats.nesting import items_of
from modlab.inspection.formats.stored import StoredTensor
from modlab.inspection.inventory import OPTIMIZER, STATE, Inventory, InventoryEntry, Key, leaf, setting, states


def of_mapping(content: Mapping[Any, Any], title: str = "state_dict") -> Inventory:
    """A ``state_dict()``, an optimizer's, or a training checkpoint that holds several."""
    found = Inventory(title, "mapping", source=content)
    _fill(found, content)
    return found


def of_file(path: str) -> Inventory:
    """A checkpoint, of whatever format: a file, the index of several, or a folder.

    Raises:
        CheckpointError: it is none, or to read it would run code that is stored in it.
    """
    try:
        with checkpoint.explained(path):
            held = checkpoint.opened(path)
            found = Inventory(held.title, "file", given=path, format=held.format, inner=held.inner, shards=held.shards)
            if held.flat:
                _fill_flat(found, held)
            else:
                _fill(found, held.content)
            found.remarks = [*held.remarks, *found.remarks]
            return found
    except CheckpointError as error:
        message = (
            str(error).replace("modlab.state(path)", "modlab.diff(path, ...)").replace("modlab.state(model)", "modlab.diff(..., model)")
        )
        raise CheckpointError(message.replace("modlab.state()", "modlab.diff()")) from error.__cause__


def _fill_flat(found: Inventory, held: checkpoint.Checkpoint) -> None:
    """The entries of a file whose names are whole; one that DCP wrote has the states of optimizers under their names, too."""
    found.sections.add(STATE)
    for item in held.items():
        entry = leaf(Key(STATE, item.path), item.path, item.owner, "tensor", item.value, saved=True)
        if not entry.is_tensor:
            entry.kind = "value"
        if entry.is_tensor or held.parts:
            found.entries.append(entry)
    tensors = {held.parts[item.path] for item in held.items() if item.path in held.parts and isinstance(item.value, StoredTensor)}
    found.others = tuple(dict.fromkeys(part for part in held.parts.values() if part in tensors))


def _fill(found: Inventory, content: Any) -> None:
    """The entries of a mapping: the states of optimizers in it under the keys of optimizers, all else by its path."""
    found.sections.add(STATE)
    found.content = content
    versions = getattr(content, "_metadata", None)
    found.versions = dict(versions) if isinstance(versions, Mapping) else None
    parts = [key for key, value in content.items() if _is_optimizer_state(value)] if isinstance(content, Mapping) else []
    if _is_optimizer_state(content):
        _fill_optimizer(found, content, 0, "")
        found.sections = {OPTIMIZER}
        return
    for number, key in enumerate(parts):
        _fill_optimizer(found, content[key], number, f"{key}.")
    rest = {key: value for key, value in content.items() if key not in parts} if parts else content
    for item in items_of(rest, found.remarks):
        entry = leaf(Key(STATE, item.path), item.path, item.owner, "tensor", item.value, saved=True)
        if not entry.is_tensor:
            entry.kind = "value"
        found.entries.append(entry)
    if isinstance(content, Mapping):
        found.others = tuple(
            str(key) for key, value in content.items() if isinstance(value, Mapping) and key not in parts and _tensors_in(value)
        )


def _fill_optimizer(found: Inventory, content: Any, number: int, front: str) -> None:
    found.sections.add(OPTIMIZER)
    for i, group in enumerate(content["param_groups"]):
        for name, value in group.items() if isinstance(group, Mapping) else ():
            if name != "params":
                found.entries += setting(number, i, str(name), value, front)
    for index, state in content["state"].items():
        found.entries += states(number, index, state, front)


def _is_optimizer_state(value: Any) -> bool:
    if not isinstance(value, Mapping) or not {"state", "param_groups"} <= set(value):
        return False
    return isinstance(value["state"], Mapping) and isinstance(value["param_groups"], (list, tuple))


def _tensors_in(value: Mapping[Any, Any]) -> bool:
    return any(isinstance(one, (Tensor, StoredTensor)) for one in value.values())


def parts_of(found: Inventory) -> Iterator[tuple[str, list[InventoryEntry]]]:
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
    inner = next((value for key, value in found.content.items() if str(key) == part), None) if found.content is not None else None
    found.content = inner
    metadata = getattr(inner, "_metadata", None)
    found.versions = dict(metadata) if isinstance(metadata, Mapping) else None


def _overlap(part: str, its: list[InventoryEntry], wanted: set[str], tails: set[str]) -> tuple[int, int]:
    names = [entry.path[len(part) + 1 :] for entry in its]
    exact = sum(name in wanted for name in names)
    return exact, sum(name.rpartition(".")[2] in tails for name in names)
