"""A true copy of a model's state as it is now, or its fingerprints; and what is known of it later."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from modlab.compat import inference, set_grad, without_autograd
from modlab.errors import SnapshotError
from modlab.inspection.fingerprint import fingerprint
from modlab.inspection.inventory import RNG, STATE, Inventory, InventoryEntry, of_module
from modlab.records.snapshot import SnapshotRecord
from modlab.statistics.memory import NoValuesError, is_sharded, local, require_values


def capture(model: Module, given: tuple[torch.optim.Optimizer, ...], *, values: bool, device: str | None = None) -> Inventory:
    """The inventory of a model in which every tensor is a copy, each once, or a fingerprint of 128 bits."""
    found = of_module(model, given)
    found.form, found.source, found.model = "snapshot", None, weakref.ref(model)
    copies: dict[int, Tensor | bytes | str] = {}
    without_autograd(_keep_all, found.entries, copies, values, device)
    return found


def _keep_all(entries: list[InventoryEntry], copies: dict[int, Any], values: bool, device: str | None) -> None:
    for entry in entries:
        _keep(entry, copies, values, device)


def _keep(entry: InventoryEntry, copies: dict[int, Any], values: bool, device: str | None) -> None:
    tensor, entry.tensor = entry.tensor, None
    if tensor is None:
        return
    entry.spec = getattr(tensor, "_spec", None) if is_sharded(tensor) else None
    entry.origin = _reference(tensor) if entry.kind not in ("packed", "extra") else None
    kept = copies.get(id(tensor))
    if kept is None:
        kept = copies[id(tensor)] = _kept(tensor, values, device)
    if isinstance(kept, bytes):
        entry.digest = kept
    elif isinstance(kept, Tensor):
        entry.tensor = kept


def _reference(tensor: Tensor) -> Any:
    """Tells later whether it is the same object; nothing where a weak reference would keep ``.to()`` from swapping tensors."""
    if torch.__future__.get_swap_module_params_on_conversion() or hasattr(type(tensor), "__tensor_flatten__"):
        return None
    try:
        return weakref.ref(tensor)
    except TypeError:
        return None


def _kept(tensor: Tensor, values: bool, device: str | None) -> Tensor | bytes | str:
    """A copy, a fingerprint, or why there is neither."""
    try:
        tensor = local(tensor)  # of a DTensor what this rank holds
        require_values(tensor)
        if not values:
            return fingerprint(tensor)
        found = tensor.detach()
        return found.clone() if device is None or str(found.device) == device else found.to(device, copy=True)
    except NoValuesError as reason:
        return str(reason)
    except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def records(found: Inventory) -> tuple[SnapshotRecord, ...]:
    """A row for each thing that is kept; the training flags are not among them."""
    return tuple(map(_record, found.entries))


def _record(entry: InventoryEntry) -> SnapshotRecord:
    facts = entry.facts
    kept = "copy" if entry.tensor is not None else "fingerprint" if entry.digest or entry.key.section == RNG else ""
    digest = entry.digest or (entry.plain.digest if entry.plain and entry.key.section == RNG else None)
    value = entry.plain.text if entry.plain is not None else ""
    note = facts.note or ("no values" if entry.is_tensor and not kept else "")
    return SnapshotRecord(
        entry.path,
        entry.owner,
        entry.kind,
        facts.shape,
        facts.dtype,
        facts.device,
        facts.count,
        facts.bytes,
        kept or ("value" if value else ""),
        value,
        digest.hex() if digest else "",
        entry.tied,
        note,
        facts.sharding,
    )


def state_dict(found: Inventory) -> OrderedDict[str, Tensor]:
    """Copies of the copies, under the names and in the order of ``state_dict()``, with its metadata.

    Raises:
        SnapshotError: no values were kept, or a module writes its part of the state_dict itself.
    """
    saved = [entry for entry in found.entries if entry.saved and entry.key.section == STATE]
    odd = next(
        (e for e in saved if e.kind == "packed" or (e.kind == "extra" and not (e.is_tensor and e.path.endswith("_extra_state")))), None
    )
    if odd is not None:
        raise SnapshotError(
            f"This snapshot cannot give back a state_dict: {odd.owner or 'the model'} writes its part itself ({odd.path}).\n"
            f"  Before the change, write: saved = copy.deepcopy(model.state_dict())"
        )
    without = [entry.path for entry in saved if entry.tensor is None]
    if without:
        raise SnapshotError(
            f"This snapshot holds no values of {without[0]}{f' and {len(without) - 1} more' if len(without) > 1 else ''}.\n"
            f"  Nothing can be restored from fingerprints; take copies: modlab.snapshot(model)"
        )
    _require_mesh(saved)
    copies: dict[int, Tensor] = {}
    with inference(False):  # and modes are asked: a copy is of its tensor's class
        set_grad(False)
        content = OrderedDict((e.path, copies.setdefault(id(e.tensor), _back(e))) for e in saved)
    content._metadata = OrderedDict(found.versions or {})  # type: ignore[attr-defined]
    return content


def _require_mesh(saved: list[InventoryEntry]) -> None:
    """What lies over several ranks can be put there again where it is known how."""
    flat = next((e for e in saved if e.facts.sharding is not None and e.facts.sharding.form != "DTensor"), None)
    if flat is not None:
        raise SnapshotError(
            f"This snapshot cannot give back a state_dict: {flat.path} belongs to FSDP1, whose state_dict() asks all ranks.\n"
            f"  Before the change, on all ranks: saved = copy.deepcopy(model.state_dict())"
        )
    lost = next((e for e in saved if e.facts.sharding is not None and e.spec is None), None)
    if lost is not None:
        raise SnapshotError(
            f"This snapshot was pickled: it has what one rank held of {lost.path}, but no longer its mesh.\n"
            f"  Compare it on the same rank: modlab.diff(snapshot, model)"
        )


def _back(entry: InventoryEntry) -> Tensor:
    assert entry.tensor is not None
    copy = entry.tensor.clone()
    if str(copy.device) != entry.facts.device:
        copy = copy.to(entry.facts.device)
    return copy if entry.spec is None else _on_mesh(copy, entry.spec)


def _on_mesh(part: Tensor, spec: Any) -> Tensor:
    """The DTensor of which this rank holds `part`; the others are not asked."""
    from torch.distributed.tensor import DTensor

    made: Tensor = DTensor.from_local(part, spec.mesh, spec.placements, run_check=False, shape=spec.shape, stride=spec.stride)
    return made
