"""The difference that ``modlab.diff(before, after)`` gives: what changed between two states."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from modlab.errors import NotComparableError, PathNotFoundError, QuestionError, nearest
from modlab.inspection import checks, difference, inventory, optimizers, stores, structure, weights
from modlab.inspection.inventory import Inventory
from modlab.records.difference import KINDS, STATUSES, DifferenceRecord, DiffRecord
from modlab.results import question
from modlab.results.result import Result
from modlab.results.rows import RowsResult
from modlab.results.snapshot import Snapshot
from modlab.results.tree import LISTED
from modlab.results.worded import Worded
from modlab.views.findings import as_data
from modlab.views.sheets import difference as sheets
from modlab.views.sheets.layout import Sheet
from modlab.wording import differences

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def diff(before: Any, after: Any) -> Diff:
    """Compare two states: what changed and by how much, and what was added, removed, moved or renamed.

    Each side is a `modlab.snapshot`, a module, an optimizer (or several), a ``state_dict()`` or another mapping of tensors
    (also nested, as training checkpoints are), or a checkpoint file or folder of any format that `modlab.state` reads, in any
    mix. Nothing is changed; files are read one tensor at a time.

    Between a model and weights, it also says what ``load_state_dict`` would do. Values are compared as values: NaN equals
    NaN, and 0.0 equals -0.0 (a fingerprint sees their bits). Distances leave out what is not finite.

    Args:
        before: the state before.
        after: the state after; if `before` is a snapshot of this model and its optimizer, both are read now.

    Returns:
        A `Diff`: displays itself; ``diff.changed``, ``diff["net.l0.weight"].max_abs``, ``diff.find(status="renamed")``.

    Raises:
        NotComparableError: a side is none of these.
        CheckpointError: a file is not a checkpoint.

    >>> import modlab, torch
    >>> net = torch.nn.Linear(2, 1)
    >>> before = modlab.snapshot(net)
    >>> net = net.to(torch.float64)
    >>> [(r.path, r.status, r.dtype_after) for r in diff(before, net).changed]
    [('weight', 'retyped', 'float64'), ('bias', 'retyped', 'float64')]
    """
    model = after if stores.is_module(after) else before if stores.is_module(before) else None
    if before is after and not issubclass(type(before), (str, os.PathLike)) and _comparable(before):
        return Diff(_same(before), model)
    left, right = (_inventory(side, other) for side, other in ((before, after), (after, before)))
    tree = structure.of_users(model).fingerprint if model is not None else ""
    return Diff(difference.compare(left, right), model, tree, _code(before, after))


def _same(side: Any) -> DiffRecord:
    title = type(side).__name__
    return DiffRecord(title, title, "same", "same", (), same=True)


def _inventory(side: Any, other: Any) -> Inventory:
    """What one side holds."""
    if stores.is_module(side):
        if structure.of_users(side).places() > LISTED:
            raise NotComparableError(
                "This model has too many module paths to compare one by one.\n"
                "  Compare a part: modlab.diff(before, model.get_submodule('...'))"
            )
        mine = type(other) is Snapshot and other._is_of(side)
        weights_beside = issubclass(type(other), (str, os.PathLike, Mapping))  # which have the names of its state_dict()
        return inventory.of_module(side, other._living_optimizers() if mine else (), wrapped=weights_beside)
    if issubclass(type(side), Snapshot):
        found: Inventory = side._inventory()
        return replace(found)
    if issubclass(type(side), (str, os.PathLike)):
        return weights.of_file(os.fsdecode(side))
    if issubclass(type(side), Mapping):
        return weights.of_mapping(side)
    if _comparable(side):
        return inventory.of_optimizers(optimizers.as_tuple(side, "diff"))
    raise NotComparableError(f"modlab.diff() got {checks.described(side)}, but compares states.\n  {_advice(side)}")


def _comparable(side: Any) -> bool:
    """Whether it is a state of any kind."""
    known = issubclass(type(side), (Snapshot, str, os.PathLike, Mapping)) or stores.is_module(side)
    return known or (not issubclass(type(side), (Tensor, Result, type)) and side is not None and _optimizers(side))


def _optimizers(side: Any) -> bool:
    many = side if issubclass(type(side), (list, tuple)) else (side,)
    try:
        return bool(many) and all(hasattr(one, "param_groups") and hasattr(one, "state") for one in many)
    except Exception:  # noqa: BLE001 - a stranger's object may raise anything
        return False


def _advice(side: Any) -> str:
    if issubclass(type(side), Tensor):
        return "For two tensors: modlab.diff({'x': before}, {'x': after})"
    if issubclass(type(side), Result):
        return f"A {side.kind} holds no values. Before the change: before = modlab.snapshot(model); after it: modlab.diff(before, model)"
    if issubclass(type(side), (list, tuple)) or (hasattr(type(side), "__iter__") and hasattr(type(side), "__next__")):
        return "Values without names cannot be matched. Pass a module, or dict(model.named_parameters())."
    if issubclass(type(side), type):
        return f"Make an instance first: {side.__name__}(...)"
    return "Pass a modlab.snapshot(model), a module, an optimizer, a state_dict, or the path of a checkpoint file."


def _code(before: Any, after: Any) -> str:
    """The call that makes this view, with names that a reader understands."""

    def word(side: Any, name: str) -> str:
        if issubclass(type(side), (str, os.PathLike)):
            return repr(os.path.basename(os.fsdecode(side)))
        if issubclass(type(side), Snapshot):
            return name
        return "model" if stores.is_module(side) else "state_dict" if issubclass(type(side), Mapping) else "optimizer"

    left, right = word(before, "before"), word(after, "after")
    return f"modlab.diff({left}, {right})" if left != right else "modlab.diff(before, after)"


SCHEMA = 2
"""Of `Diff.to_dict`: in 1 a note was its names."""


_FIELDS = tuple(one.name for one in fields(DifferenceRecord))


class Difference(DifferenceRecord):
    """One thing before and after, with its words."""

    __slots__ = ()

    @classmethod
    def of(cls, record: DifferenceRecord) -> Difference:
        """The same row; its notes can be explained."""
        given = {name: getattr(record, name) for name in _FIELDS}
        given["notes"] = tuple(map(Worded.of, record.notes))
        return cls(**given)

    @property
    def note(self) -> str:
        """What else is known of it, in words."""
        return differences.note(self)

    @property
    def reason(self) -> str:
        """Why its values were not compared, as a part of a sentence; nothing where they were."""
        return differences.reason(self)


class Diff(RowsResult):
    """What differs between two states. Made by `modlab.diff`."""

    kind: ClassVar[str] = "diff"

    def __init__(self, record: DiffRecord, model: Any = None, structure_of: str = "", code: str = "modlab.diff(before, after)") -> None:
        super().__init__(model)
        self.record = record
        self.code = code  # type: ignore[misc]
        self._structure = structure_of

    @property
    def records(self) -> Sequence[Difference]:
        """One record for each tensor, setting and generator, in the order of the side after; then flags that changed."""
        return self._worded

    @property
    def changed(self) -> list[Difference]:
        """The records of all that changed: values, names, shapes, dtypes, devices, flags. Empty: nothing that was compared differs."""
        return [record for record in self.records if record.status not in ("unchanged", "not compared")]

    @property
    def not_compared(self) -> list[Difference]:
        """The records of what both sides have and whose values could not be compared; `note` says why."""
        return [record for record in self.records if record.status == "not compared" or record.uncompared]

    @cached_property
    def _worded(self) -> tuple[Difference, ...]:
        return tuple(map(Difference.of, self.record.records))

    @cached_property
    def _by_path(self) -> dict[str, Difference]:
        found = {record.renamed_from: record for record in reversed(self.records) if record.renamed_from}
        return {**found, **{record.path: record for record in reversed(self.records)}}

    @property
    def paths(self) -> list[str]:
        """The dotted names of all records, in order."""
        return [record.path for record in self.records]

    def __getitem__(self, path: str) -> Difference:
        """The record at a dotted name: "l0.weight", "l0.weight.grad", "l0.training", "l0.weight.exp_avg", "rng.cpu"; also the old name."""
        found = self._by_path.get(path) if isinstance(path, str) else None
        if found is None:
            names = list(self._by_path)
            close = nearest(str(path), names)
            hint = f"  Nearest: {', '.join(map(repr, close))}." if close else ""
            raise PathNotFoundError(f"This diff has no row {path!r}; a flag has one only if it changed.\n{hint}  All of them: .paths")
        return found

    def __contains__(self, path: object) -> bool:
        return isinstance(path, str) and path in self._by_path

    def __len__(self) -> int:
        return len(self.record.records)

    def __bool__(self) -> bool:
        return True

    def find(self, pattern: str = "*", *, status: str | Sequence[str] | None = None, kind: str | None = None) -> list[Difference]:
        """The records that match all that is asked.

        Args:
            pattern: a path with wildcards, ``"*.bias"``; ``*`` also matches dots.
            status: one of "unchanged", "changed", "added", "removed", "renamed", "reshaped", "retyped", "resharded",
                "moved", "not compared", or several.
            kind: "parameter", "buffer", "gradient", "flag", "optimizer state", "hyper-parameter", "RNG", ...
        """
        asked = question.Pattern(pattern)
        wanted = STATUSES if status is None else (status,) if isinstance(status, str) else tuple(status)
        unknown = [one for one in wanted if one not in STATUSES]
        if unknown:
            raise QuestionError(f"find(status=...) got {unknown[0]!r}, but takes one of: {', '.join(STATUSES)}.")
        if kind is not None and kind not in KINDS:
            raise QuestionError(f"find(kind=...) got {kind!r}, but takes one of: {', '.join(KINDS)}.")
        return [r for r in self.records if asked.fits(r.path) and r.status in wanted and (kind is None or r.kind == kind)]

    def to_dict(self) -> dict[str, Any]:
        """Plain data: ``schema``, ``kind``, ``headline`` and ``records``, whose ``notes`` are findings (docs/findings.md)."""
        return {**super().to_dict(), "schema": SCHEMA}

    def figure(self, *, ax: Axes | None = None) -> Figure:
        """How far each tensor is from what it was, as bars (relative L2), the largest first. Needs matplotlib."""
        from modlab.views import difference_figure

        return difference_figure.of_diff(self.record, ax=ax)

    def _row(self, record: Difference) -> dict[str, Any]:
        return {**asdict(record), "notes": list(map(as_data, record.notes)), "note": record.note, "reason": record.reason}

    def _fingerprint(self) -> str:
        return self._structure

    def _sheet(self) -> Sheet:
        return sheets.of_diff(self.record)
