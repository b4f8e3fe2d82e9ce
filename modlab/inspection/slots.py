"""The slots of a module, the rows of its state table: what ``state_dict()`` has, in its order, and then what it does not have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module

from modlab import compat
from modlab.compat import inference, set_grad
from modlab.errors import NotInitializedError
from modlab.inspection import distributed, distributed_units, entries, gradients, marks, stores, unregistered
from modlab.inspection.optimizers import Ownership
from modlab.inspection.overlaps import Overlaps
from modlab.records.sharding import Ranks, together
from modlab.records.state import StateRecord, TableRecord
from modlab.records.structure import ROOT, TensorEntry
from modlab.statistics import sharding

_STATE_HOOKS = ("_state_dict_hooks", "_state_dict_pre_hooks")


class Slot(NamedTuple):
    """A row and the tensor that it is about."""

    record: StateRecord
    tensor: Tensor | None
    reserved_for: str = ""  # of a name without a tensor: "parameter" or "buffer"


def extract(model: Module, optimizers: tuple[torch.optim.Optimizer, ...] = ()) -> TableRecord:
    """The state table of `model`, under the names that the user gave. Of values, it asks only whether a gradient is zero."""
    walk = SlotWalk(distributed.unwrapped(model))
    if walk.model is not model:
        around = "DDP" if distributed.kind_of(type(model)) else "DataParallel"
        said = f"{around} prefixes each of these names with {distributed.PREFIX!r} in its state_dict(); .module has them as shown here"
        walk.remarks.append(said)
    slots = walk.collect()
    ownership = Ownership(optimizers)
    rows = [slot.record for slot in slots]
    for i, grad in enumerate(gradients.kinds([slot.tensor for slot in slots])):
        grad, found = gradients.said(grad, rows[i].sharding), ownership.of(slots[i].tensor, rows[i])
        if found or grad != rows[i].grad:
            rows[i] = replace(rows[i], grad=grad, **found)
    held = {id(slot.tensor) for slot in slots if slot.tensor is not None}
    return TableRecord(
        compat.own_class(type(walk.model)).__name__,
        tuple(rows),
        ownership.labels,
        ownership.orphans(held),
        tuple(walk.remarks),
        ranks=_ranks(model, rows),
        variable=distributed.variable_of(model),
        scripted=marks.is_scripted(walk.model),
    )


def _ranks(model: Module, rows: list[StateRecord]) -> Ranks | None:
    """Those over which a model lies: of what its tensors say, and of what holds it as a whole."""
    kind = distributed_units.wrapper_of(type(model))
    unit = distributed_units.unit_of(model, kind) if kind else None
    found = {row.sharding.ranks: None for row in rows if row.sharding is not None}
    return together([*found, *([unit.ranks] if unit is not None and unit.ranks is not None else [])])


def collect(model: Module) -> list[Slot]:
    """Every slot of the model with its tensor: first those of the state_dict, in its order, then the others."""
    return SlotWalk(model).collect()


class SlotWalk:
    """Goes through the modules as ``state_dict()`` does: depth first, a module with two names twice."""

    def __init__(self, model: Module) -> None:
        if not stores.initialized(model):
            raise NotInitializedError(stores.uninitialized_message(model))
        self.model = model
        self.first: dict[int, str] = {}  # id(tensor) → the path where it was met first
        self.position = 0
        sharding.renew()
        self.flat = distributed_units.Flat(stores.modules(model) if distributed_units.fsdp1() is not None else ())
        self._overlaps = Overlaps()
        self.remarks: list[str] = []
        self._gathers = False  # a unit of FSDP1 was met
        self._finder: unregistered.Finder | None = None
        self._suspicious = unregistered.Suspicion()

    def collect(self) -> list[Slot]:
        """What is in the state_dict, then what is not."""
        within: list[str] = []
        slots = [slot for path, module in places(self.model, within) for slot in self.of_module(path, module)]
        self.remarks += [f"{path}: the module contains itself, so state_dict() would never end" for path in within]
        return [s for s in slots if s.record.in_state_dict] + [s for s in slots if not s.record.in_state_dict]

    def of_module(self, path: str, module: Module) -> Iterator[Slot]:
        """The slots of one module itself."""
        held = stores.contents(module)
        owned = list(self._registered(path, module, held))
        self._remark(path, module, held)
        stock = type(module)._save_to_state_dict is Module._save_to_state_dict
        if stock:
            yield from owned
            if type(module).get_extra_state is not Module.get_extra_state:
                note = "what get_extra_state() returns; not looked at"
                yield Slot(self._record(path, module, "_extra_state", "extra", True, note=note), None)
        else:
            yield from self._saved_otherwise(path, module, owned)
        _, attributes = stores.own_values(held)
        if attributes and self._suspicious(attributes, held):
            yield from self._hidden(path, module)

    def _remark(self, path: str, module: Module, held: dict[str, Any]) -> None:
        """Note who may change the state_dict in a way that only calling it would tell."""
        place = path or ROOT
        kind = distributed_units.wrapper_of(type(module))
        if kind == "FSDP1":
            if not self._gathers:
                said = "is an FSDP1 unit: its state_dict() asks all ranks and returns whole tensors under the names of the model inside"
                self.remarks.append(f"{place} {said}")
            self._gathers = True
            return
        if any(marks.machinery(hook) != marks.FSDP for name in _STATE_HOOKS for hook in (held.get(name) or {}).values()):
            self.remarks.append(f"{place} has a state_dict hook, which may change the keys: compare with list(model.state_dict())")
        if type(module).state_dict is not Module.state_dict:
            self.remarks.append(f"{place} has its own state_dict(), which may return other keys")

    def _registered(self, path: str, module: Module, held: dict[str, Any]) -> Iterator[Slot]:
        transient = held.get("_non_persistent_buffers_set") or ()
        for kind, store in (("parameter", held.get("_parameters")), ("buffer", held.get("_buffers"))):
            for name, tensor in store.items() if store else ():
                if tensor is None:
                    row = self._record(path, module, name, "reserved", False, note=f"reserved for a {kind}", persistent=False)
                    yield Slot(row, None, reserved_for=kind)
                    continue
                persistent = name not in transient
                entry = entries.describe(name, kind, tensor, persistent, lies=self.flat.tensors.get(id(tensor)))
                yield Slot(self._tensor(path, module, entry, tensor, persistent), tensor)

    def _saved_otherwise(self, path: str, module: Module, owned: list[Slot]) -> Iterator[Slot]:
        """A module that writes its part of the state_dict itself, as quantized ones do: it is asked for it."""
        prefix = path + "." if path else ""
        try:
            saved = written(module, prefix)
        except Exception as error:  # noqa: BLE001 - the user's code; what it would have saved is then not known
            note = f"its own _save_to_state_dict raised {type(error).__name__}"
            yield from (slot._replace(record=replace(slot.record, in_state_dict=False, note=note)) for slot in owned)
            return
        by_path = {slot.record.path: slot for slot in owned}
        for key, value in saved.items():
            known = by_path.pop(key, None)
            if known is not None:
                yield self._anew(known, True)
            else:
                yield self._packed(path, module, key[len(prefix) :], value)
        yield from (self._anew(slot, False) for slot in by_path.values())

    def _anew(self, slot: Slot, saved: bool) -> Slot:
        """A slot in the place where its module saves it."""
        self.position += 1
        return slot._replace(record=replace(slot.record, in_state_dict=saved, position=self.position))

    def _packed(self, path: str, module: Module, name: str, value: Any) -> Slot:
        if isinstance(value, tuple) and value and isinstance(value[0], Tensor):
            entry = entries.describe(name, "packed", value[0])
            bias = " with its bias" if len(value) > 1 and isinstance(value[1], Tensor) else ""
            note = f"packed weight{bias}: not a parameter, kept in the module's own format"
            return Slot(self._tensor(path, module, replace(entry, note=note), value[0], True), value[0])
        if isinstance(value, Tensor):
            return Slot(self._tensor(path, module, entries.describe(name, "extra", value), value, True), value)
        note = f"{type(value).__name__}, written by the module itself"
        return Slot(self._record(path, module, name, "extra", True, note=note), None)

    def _hidden(self, path: str, module: Module) -> Iterator[Slot]:
        if self._finder is None:
            self._finder = unregistered.Finder(m for _, m in places(self.model))
        for place, tensor, way, holder in self._finder.tensors(module):
            entry = replace(entries.describe(place, "attribute", tensor), persistent=False)
            yield Slot(replace(self._tensor(path, module, entry, tensor, False), way=way, holder=holder), tensor)

    def _tensor(self, path: str, module: Module, entry: TensorEntry, tensor: Tensor, saved: bool) -> StateRecord:
        here = f"{path}.{entry.name}" if path else entry.name
        first, note = self.first.setdefault(id(tensor), here), entry.note
        if entry.kind == "parameter" and first == here and (other := self._overlaps.of(tensor, here)):
            note = ", ".join(filter(None, (note, f"shares the memory of {other}, but is a separate parameter")))
        return self._record(
            path,
            module,
            entry.name,
            entry.kind,
            saved,
            shape=entry.shape,
            dtype=entry.dtype,
            device=entry.device,
            count=entry.count,
            bytes=entry.bytes,
            trainable=entry.trainable,
            persistent=entry.persistent,
            tied="" if first == here else first,
            note=note,
            grad=gradients.NONE if entry.trainable and compat.is_leaf(tensor) else "",
            computes=entry.computes,
            sharding=entry.sharding,
        )

    def _record(self, path: str, module: Module, name: str, kind: str, saved: bool, **facts: Any) -> StateRecord:
        self.position += 1
        here = f"{path}.{name}" if path else name
        return StateRecord(here, path, compat.own_class(type(module)).__name__, kind, saved, position=self.position, **facts)


def written(module: Module, prefix: str) -> dict[str, Any]:
    """What a module itself writes into a state_dict, whose code may raise anything."""
    saved: dict[str, Any] = {}
    with inference(False):
        set_grad(False)
        module._save_to_state_dict(saved, prefix, keep_vars=True)
    return saved


def places(model: Module, within: list[str] | None = None) -> Iterator[tuple[str, Module]]:
    """Paths and modules as ``named_modules(remove_duplicate=False)``.

    A module inside itself is not entered again; where that is goes to `within`.
    """
    above: set[int] = set()
    stack: list[tuple[str, Module] | int] = [("", model)]
    while stack:
        item = stack.pop()
        if isinstance(item, int):
            above.discard(item)
            continue
        path, module = item
        if id(module) in above:
            if within is not None:
                within.append(path)
            continue
        above.add(id(module))
        yield path, module
        stack.append(id(module))
        prefix = path + "." if path else ""
        stack.extend((prefix + name, child) for name, child in reversed(stores.named_children(module)) if child is not None)


def tensor_at(model: Module, path: str) -> Tensor | None:
    """The tensor of one row; None where the row has none or there is no such row. Only its module is looked into."""
    module = distributed.unwrapped(model)
    walk, owner, path = SlotWalk(module), "", path if module is model else distributed.users_path(path)
    while True:
        found = next((slot.tensor for slot in walk.of_module(owner, module) if slot.record.path == path), None)
        if found is not None:
            return found
        name = path[len(owner) + 1 if owner else 0 :].partition(".")[0]
        child = dict(stores.named_children(module)).get(name)
        if child is None:
            return None
        owner, module = f"{owner}.{name}" if owner else name, child
