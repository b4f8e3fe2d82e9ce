"""``modlab.costs(model, profiler)``: the tree of a model with the time and memory of each module, from a profile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from torch.nn import Module

from modlab.errors import PathNotFoundError, nearest
from modlab.inspection import checks, profiles, structure
from modlab.records.costs import CostRecord, CostsRecord
from modlab.records.structure import ROOT
from modlab.results.rows import RowsResult
from modlab.views.sheets import costs as sheets
from modlab.views.sheets.layout import Sheet


def costs(model: Module, profiler: Any) -> Costs:
    """Show a profile on the tree of a model: parameters, calls, new memory and time of each module, as bars.

    A PyTorch profile names operations, but only those modules that you label: put ``record_function(name)`` around each call with
    two forward hooks, using the name from ``named_modules()`` ("(root)" for the model itself). The text and the stored picture leave
    out the times, which differ from run to run; the headline says which module takes the most if that is beyond doubt.

    Args:
        model: any module; it is not run.
        profiler: a finished ``torch.profiler.profile``, best with ``profile_memory=True``.

    Returns:
        A `Costs`: displays itself; ``costs["net.l0"].seconds``.

    Raises:
        NotAModuleError: `model` is something else.
        ProfileError: `profiler` is something else, has not run, or names no module of `model`.

    >>> import torch
    >>> from torch import nn
    >>> from torch.profiler import profile, record_function
    >>> net, x = nn.Sequential(nn.Linear(4, 3), nn.ReLU()), torch.ones(8, 4)
    >>> with profile(profile_memory=True) as profiler:
    ...     with record_function("0"):
    ...         y = net[0](x)
    >>> costs(net, profiler)["0"].bytes
    96
    """
    return Costs(checks.require_module(model, "costs"), profiler)


class Costs(RowsResult):
    """A tree with the cost of each module. Made by `modlab.costs`."""

    kind: ClassVar[str] = "costs"
    code: ClassVar[str] = "modlab.costs(model, profiler)"

    def __init__(self, model: Module, profiler: Any) -> None:
        super().__init__(model)
        self.record: CostsRecord = profiles.read(model, profiler)
        self._structure = structure.of_users(model).fingerprint

    @property
    def records(self) -> Sequence[CostRecord]:
        """One record for each module, parents first."""
        return self.record.rows

    def __getitem__(self, path: str) -> CostRecord:
        """The record of the module at a dotted name; ``""`` is the root."""
        found = next((row for row in self.record.rows if row.path == ("" if path == ROOT else path)), None)
        if found is None:
            close = nearest(str(path), [row.path for row in self.record.rows])
            hint = f"\n  Nearest: {', '.join(map(repr, close))}." if close else ""
            raise PathNotFoundError(f"{self.record.title} has no module {path!r}.{hint}")
        return found

    def __len__(self) -> int:
        return len(self.record.rows)

    def __bool__(self) -> bool:
        return True

    def _fingerprint(self) -> str:
        return self._structure

    def _sheet(self) -> Sheet:
        return sheets.of_costs(self.record)
