"""``modlab.snapshot(model)``: the current state, to compare with or return to."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal
from weakref import ReferenceType, ref

import torch
from torch import Tensor
from torch.nn import Module

from modlab.errors import ModlabError
from modlab.inspection import checks, optimizers, structure
from modlab.inspection import snapshot as copying
from modlab.inspection.inventory import Inventory
from modlab.records.snapshot import SnapshotRecord
from modlab.results.rows import RowsResult
from modlab.results.tree import LISTED
from modlab.views.sheets import snapshot as sheets
from modlab.views.sheets.layout import Sheet

Optimizers = torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None


def snapshot(model: Module, optimizer: Optimizers = None, *, values: bool | Literal["cpu"] = True) -> Snapshot:
    """Keep the current state of a model, to compare with later or to return to.

    It keeps parameters, buffers (also those not in the state_dict), gradients, training flags, ``requires_grad``,
    the states of the random generators, and with an optimizer its state and hyper-parameters. The model is not changed
    or kept alive.

    Args:
        model: any ``nn.Module``.
        optimizer: one or several.
        values: True keeps a copy of each tensor on its own device (which doubles their memory; tied tensors are copied
            once); "cpu" keeps the copies in the CPU's memory; False keeps a fingerprint of 128 bits each (16 bytes), which shows
            whether a tensor changed but not by how much. With n changed tensors, the chance that one is missed is n × 2**-128.

    Returns:
        A `Snapshot`, for `modlab.diff`; ``snapshot.state_dict()`` can be loaded back.

    Raises:
        NotAModuleError: `model` is something else.
        NotAnOptimizerError: `optimizer` is.

    >>> from torch import nn
    >>> net = nn.Linear(2, 1)
    >>> weight = nn.init.zeros_(net.weight)
    >>> before = snapshot(net)
    >>> net.weight.data += 1
    >>> import modlab
    >>> modlab.diff(before, net)["weight"].max_abs
    1.0
    """
    given = optimizers.as_tuple(optimizer, "snapshot")
    checks.require_module(model, "snapshot")
    tree = structure.of_users(model)
    if tree.places() > LISTED:
        raise ModlabError(
            f"This model has {tree.places():,} module paths, too many to keep one by one.\n"
            f"  Use a part of it: modlab.snapshot(model.get_submodule('...'))"
        )
    if values not in (True, False, "cpu"):
        raise ModlabError(f"snapshot(values=...) got {values!r}, but takes True (copies), 'cpu' (copies there) or False (fingerprints).")
    found = copying.capture(model, given, values=bool(values), device="cpu" if values == "cpu" else None)
    return Snapshot(found, model, given, tree.fingerprint, bool(values))


class Snapshot(RowsResult):
    """The state of a model at one time. Made by `modlab.snapshot`."""

    kind: ClassVar[str] = "snapshot"
    code: ClassVar[str] = "modlab.snapshot(model)"

    def __init__(
        self, found: Inventory, model: Module, given: tuple[torch.optim.Optimizer, ...], fingerprint: str = "", values: bool = True
    ) -> None:
        super().__init__(model)
        self._found = found
        self._structure = fingerprint
        self._optimizers: tuple[ReferenceType[Any], ...] = tuple(map(ref, given))
        self.values = values

    @cached_property
    def records(self) -> Sequence[SnapshotRecord]:
        """One record for each thing that is kept."""
        return copying.records(self._found)

    def state_dict(self) -> OrderedDict[str, Tensor]:
        """Copies of what was kept, in the form ``model.load_state_dict`` takes; the snapshot itself does not change.

        Raises:
            SnapshotError: only fingerprints were kept, or a module (a quantized one) writes its part of the state_dict itself.
        """
        return copying.state_dict(self._found)

    def __len__(self) -> int:
        return len(self._found.entries)

    def __bool__(self) -> bool:
        return True

    def __getstate__(self) -> dict[str, Any]:
        """Pickled, it holds its copies, and no longer knows which objects they were."""
        from dataclasses import replace

        entries = [replace(entry, origin=None, spec=None) for entry in self._found.entries]
        return {**super().__getstate__(), "_optimizers": (), "_found": replace(self._found, entries=entries, model=None)}

    def _inventory(self) -> Inventory:
        """For a comparison."""
        return self._found

    def _is_of(self, model: Any) -> bool:
        return self._source is not None and self._source() is model

    def _living_optimizers(self) -> tuple[Any, ...]:
        alive = tuple(one() for one in self._optimizers)
        return alive if None not in alive else ()

    def _fingerprint(self) -> str:
        return self._structure

    def _sheet(self) -> Sheet:
        modes = self._found.modes or {}
        return sheets.of_snapshot(self._found.title, self.records, len(modes), sum(mode is True for mode in modes.values()), self.values)
