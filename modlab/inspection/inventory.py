"""The inventory of a side of a comparison, as one list of entries: of a module, an optimizer, a mapping, a file or a snapshot."""

from __future__ import annotations

import pickle
import random
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module

from modlab.compat import is_leaf, own_class, without_modes, without_torch_function
from modlab.inspection import distributed, entries, slots, stores
from modlab.inspection.fingerprint import Plain, digest_of, plain
from modlab.inspection.formats.nesting import items_of
from modlab.inspection.formats.stored import StoredTensor
from modlab.records.structure import TensorEntry
from modlab.statistics.memory import local

STATE, GRADIENT, OPTIMIZER, RNG, FLAG = "state", "gradient", "optimizer", "RNG", "flag"
"""The sections of an inventory: only those that both sides have are compared."""


class Key(NamedTuple):
    """By what an entry finds its counterpart."""

    section: str
    name: str


@dataclass(slots=True)
class InventoryEntry:
    """One thing.

    Attributes:
        facts: shape, dtype, device, bytes; for anything but a tensor, only a name.
        tensor: live, or a copy.
        digest: the fingerprint, where no copy was kept.
        plain: what is not a tensor.
        load: reads the tensor from its file.
        origin: the id of the tensor object, and what tells whether it still exists; of a snapshot.
        spec: of a copy of what this rank holds of a DTensor, how it was put on its mesh.
        saved: whether ``state_dict()`` has it.
        reserved_for: of a name without a tensor, "parameter" or "buffer".
        derived_by: of a tensor that is not registered, what computes it before each forward ("pruning").
        group: the hyper-parameters that treat it ("lr", ...), of a parameter that an optimizer holds.
    """

    key: Key
    path: str
    owner: str
    kind: str
    facts: TensorEntry
    tensor: Tensor | None = None
    digest: bytes | None = None
    plain: Plain | None = None
    load: Callable[[], Tensor] | None = None
    origin: Callable[[], Any] | None = None
    spec: Any = None
    saved: bool = False
    owner_type: str = ""
    tied: str = ""
    reserved_for: str = ""
    derived_by: str = ""
    group: dict[str, Any] | None = None

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor, with values or without."""
        return self.facts.kind == "tensor"

    def read(self) -> Tensor | None:
        """The tensor: live, copied, or read from its file now."""
        return self.load() if self.load is not None else self.tensor

    def part(self) -> Tensor | None:
        """The same; of a DTensor what this rank holds, since others would have to be asked for the rest."""
        tensor = self.read()
        return None if tensor is None else local(tensor)


@dataclass(slots=True)
class Inventory:
    """One side.

    Attributes:
        form: "module", "snapshot", "optimizer", "mapping" or "file".
        modes: the training flag of each module.
        versions: what ``state_dict()._metadata`` says of each module; None where it says nothing.
        part: where in a nested mapping the entries stand.
    """

    title: str
    form: str
    entries: list[InventoryEntry] = field(default_factory=list)
    modes: dict[str, Any] | None = None
    sections: set[str] = field(default_factory=set)
    remarks: list[str] = field(default_factory=list)
    versions: dict[str, Any] | None = None
    part: str = ""
    others: tuple[str, ...] = ()
    source: Any = None  # the live object; a snapshot and a file have none
    given: str = ""  # of a file: its path as the user gave it
    format: str = ""  # of a file: "torch", "safetensors", "shards", "gguf", "pt2" or "dcp"
    inner: str = ""  # of a folder that was given: the file in it that is read
    shards: str = ""  # of a sharded file: how the names of the shards end
    content: Any = None  # of a mapping, or of a file with shapes instead of values: what the keys stand for
    model: Callable[[], Any] | None = None  # of a snapshot: what gives the model that it was taken of, while that lives


def of_module(model: Module, given: tuple[torch.optim.Optimizer, ...] = (), *, wrapped: bool = False) -> Inventory:
    """A live model, with its gradients, flags, the random generators, and what its optimizers hold.

    Args:
        model: of one in DDP, what is inside is taken down, under the names that its user gave.
        given: its optimizers.
        wrapped: with DDP's names, which its ``state_dict()`` has.
    """
    source, model = model, model if wrapped else distributed.unwrapped(model)
    found = Inventory(own_class(type(model)).__name__, "module", source=source)
    walk = slots.SlotWalk(model)
    names: dict[int, str] = {}
    gradients: list[InventoryEntry] = []
    for slot in walk.collect():
        entry = _of_slot(slot)
        found.entries.append(entry)
        if slot.tensor is None:
            continue
        names.setdefault(id(slot.tensor), slot.record.path)
        if slot.record.kind in ("parameter", "attribute") and not slot.record.tied:
            gradients += _gradient(slot)
    places = list(slots.places(model))
    found.entries = _with_extras(found.entries, places)
    found.entries += gradients
    found.modes = {path: _mode(module) for path, module in places}
    found.versions = {path: {"version": getattr(type(module), "_version", 1)} for path, module in places}
    found.remarks = walk.remarks
    found.sections = {STATE, GRADIENT, FLAG, RNG}
    found.entries += generators()
    add_optimizers(found, given, names)
    return found


def _mode(module: Module) -> Any:
    """Its training flag; compiled and scripted modules do not keep it themselves."""
    held = stores.contents(module)
    return held["training"] if "training" in held else stores.mode(module)


def _of_slot(slot: slots.Slot) -> InventoryEntry:
    row = slot.record
    facts = TensorEntry(
        row.name,
        "tensor" if slot.tensor is not None else "",
        row.shape,
        row.dtype,
        row.device,
        row.count,
        row.bytes,
        row.trainable,
        row.persistent,
        None,
        row.note,
        row.computes,
        row.sharding,
    )
    key = Key(STATE, row.path)
    return InventoryEntry(
        key,
        row.path,
        row.owner,
        row.kind,
        facts,
        slot.tensor,
        saved=row.in_state_dict,
        owner_type=row.owner_type,
        tied=row.tied,
        reserved_for=slot.reserved_for,
        derived_by=row.holder if row.derived else "",
    )


def tensor_entry(key: Key, path: str, owner: str, kind: str, tensor: Tensor, *, saved: bool = False) -> InventoryEntry:
    """The entry of a tensor that no slot describes."""
    return InventoryEntry(key, path, owner, kind, entries.describe(path, "tensor", tensor), tensor, saved=saved)


def plain_entry(key: Key, path: str, owner: str, kind: str, value: Any, *, saved: bool = False) -> InventoryEntry:
    """The entry of something that is not a tensor."""
    return InventoryEntry(key, path, owner, kind, TensorEntry(path, "plain"), plain=plain(value), saved=saved)


def leaf(key: Key, path: str, owner: str, kind: str, value: Any, *, saved: bool = False) -> InventoryEntry:
    """The entry of either; an array of numpy's counts as a tensor, and one that lies in a file is read when it is compared."""
    if isinstance(value, StoredTensor):
        return InventoryEntry(key, path, owner, kind, value.facts(path), load=lambda: value.read(path), saved=saved)
    if type(value) is np.ndarray and value.dtype.kind in "biufc":
        with warnings.catch_warnings(), suppress(TypeError, ValueError):  # a dtype or a stride that torch has not
            warnings.simplefilter("ignore")  # that it may be read-only: nothing is written
            value = torch.from_numpy(value)
    make = tensor_entry if issubclass(type(value), Tensor) else plain_entry
    return make(key, path, owner, kind, value, saved=saved)


def _gradient(slot: slots.Slot) -> Iterator[InventoryEntry]:
    """A leaf's gradient; of other tensors asking would warn."""
    tensor = slot.tensor
    assert tensor is not None
    with without_torch_function():
        grad = tensor.grad if is_leaf(tensor) else None
    if grad is not None:
        path = f"{slot.record.path}.grad"
        yield tensor_entry(Key(GRADIENT, slot.record.path), path, slot.record.owner, "gradient", grad)


def _with_extras(listed: list[InventoryEntry], places: list[tuple[str, Module]]) -> list[InventoryEntry]:
    """With what modules save by code of their own in place of what their rows say of it: a packed weight has a bias behind it."""
    special = {entry.owner for entry in listed if entry.kind in ("packed", "extra")}
    extras = {path: [*_written(path, module), *_extra_state(path, module)] for path, module in places if path in special}
    found: list[InventoryEntry] = []
    done: set[str] = set()
    for entry in listed:
        replaced = entry.kind in ("packed", "extra") and bool(extras[entry.owner])
        if not replaced:
            found.append(entry)
        elif entry.owner not in done:  # all of them at the place of the first
            found += extras[entry.owner]
            done.add(entry.owner)
    return found


def _written(path: str, module: Module) -> Iterator[InventoryEntry]:
    """What a module writes that is neither a parameter nor a buffer of its own."""
    if type(module)._save_to_state_dict is Module._save_to_state_dict:
        return
    prefix = path + "." if path else ""
    try:
        saved = slots.written(module, prefix)
    except Exception:  # noqa: BLE001 - the rows have said so already
        return
    held = stores.contents(module)
    own = {*held.get("_parameters", {}), *held.get("_buffers", {})}
    for key, value in saved.items():
        if key[len(prefix) :] not in own and key != f"{prefix}_extra_state":
            kind = "packed" if isinstance(value, tuple) else "extra"
            for item in items_of({key: value}):
                yield leaf(Key(STATE, item.path), item.path, path, kind, item.value, saved=True)


def _extra_state(path: str, module: Module) -> Iterator[InventoryEntry]:
    """What ``get_extra_state()`` returns, which ``state_dict()`` asks for as well; by its parts, where it has any."""
    if type(module).get_extra_state is Module.get_extra_state:
        return
    here = f"{path}._extra_state" if path else "_extra_state"
    try:
        value = module.get_extra_state()
    except Exception:  # noqa: BLE001 - the user's code
        return
    for item in items_of({here: value}):
        yield leaf(Key(STATE, item.path), item.path, path, "extra", item.value, saved=True)


# ---- optimizers ----------------------------------------------------------------------------------------------------------


def of_optimizers(given: tuple[torch.optim.Optimizer, ...]) -> Inventory:
    """Optimizers alone: their parameters have numbers and no names, as in ``optimizer.state_dict()``."""
    found = Inventory(type(given[0]).__name__, "optimizer", source=given[0])
    add_optimizers(found, given, {})
    found.sections.add(OPTIMIZER)
    return found


def add_optimizers(found: Inventory, given: tuple[torch.optim.Optimizer, ...], names: dict[int, str]) -> None:
    """Groups and state of each, under the names of a model's parameters where these are known."""
    if not given:
        return
    found.sections.add(OPTIMIZER)
    by_path = {entry.path: entry for entry in found.entries if entry.key.section == STATE}
    for i, optimizer in enumerate(given):
        front = f"optimizers.{i}." if len(given) > 1 else "optimizer." if names else ""
        index = 0
        of_all = issubclass(type(optimizer), torch.optim.LBFGS)  # it keeps what it knows of all parameters with the first
        for number, group in enumerate(optimizer.param_groups):
            settings = {name: value for name, value in group.items() if name != "params"}
            for name, value in settings.items():
                found.entries += setting(i, number, name, value, front)
            for parameter in group["params"]:
                name = names.get(id(parameter), "")
                if name in by_path and by_path[name].group is None:
                    by_path[name].group = {**settings, "optimizer": type(optimizer).__name__}
                state = optimizer.state.get(parameter, {})
                found.entries += states(i, index, state, front, "" if of_all else name, None if of_all else by_path.get(name))
                index += 1


def setting(i: int, group: int, name: str, value: Any, front: str) -> Iterator[InventoryEntry]:
    """One hyper-parameter of one group."""
    path = f"{front}param_groups.{group}.{name}"
    yield leaf(Key(OPTIMIZER, f"{i}.param_groups.{group}.{name}"), path, "", "hyper-parameter", value)


def states(i: int, index: int, state: Any, front: str, name: str = "", holder: InventoryEntry | None = None) -> Iterator[InventoryEntry]:
    """What an optimizer remembers of one parameter."""
    if not isinstance(state, Mapping):
        return
    owner = holder.owner if holder is not None else ""
    for item in items_of(state):
        path = f"{name}.{item.path}" if name else f"{front}state.{index}.{item.path}"
        entry = leaf(Key(OPTIMIZER, f"{i}.state.{index}.{item.path}"), path, owner, "optimizer state", item.value)
        entry.owner_type = holder.owner_type if holder is not None else ""
        yield entry


# ---- random generators ---------------------------------------------------------------------------------------------------


def generators() -> list[InventoryEntry]:
    """The states of the random generators, by fingerprint; nothing is drawn, and no device is woken."""
    with without_modes():  # a mode of the user's would see that the state becomes a tensor
        found = [_generator("cpu", torch.get_rng_state().numpy().tobytes())]
        if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            found += [_generator(f"cuda.{i}", torch.cuda.get_rng_state(i).numpy().tobytes()) for i in range(torch.cuda.device_count())]
    kind, keys, *rest = np.random.get_state(legacy=True)
    numpy = str(kind).encode() + np.asarray(keys).tobytes() + repr(rest).encode()
    return [*found, _generator("python", pickle.dumps(random.getstate())), _generator("numpy", numpy)]


def _generator(name: str, state: bytes) -> InventoryEntry:
    entry = InventoryEntry(Key(RNG, name), f"rng.{name}", "", "RNG", TensorEntry(name, "plain"))
    entry.plain = Plain("", digest_of(state))
    return entry
