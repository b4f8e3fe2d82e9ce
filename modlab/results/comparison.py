"""``modlab.compare(net)(x)``: train against eval; ``modlab.compare(left, right)(x)``: two models by path."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, ClassVar

from torch.nn import Module

from modlab.comparing import modes, pairs
from modlab.errors import PathNotFoundError, QuestionError, nearest
from modlab.inspection import checks
from modlab.inspection.distributed import unwrapped
from modlab.records.comparison import MODES, ComparisonRecord, ComparisonTable
from modlab.records.structure import ROOT
from modlab.records.tensor import TensorStats
from modlab.results import question
from modlab.results.rows import RowsResult
from modlab.views.sheets.comparison import of_comparison
from modlab.views.sheets.layout import Sheet


def compare(left: Module, right: Module | None = None, *, match: Mapping[str, str] | Callable[[str], str | None] | None = None) -> Comparer:
    """Compare a model's two modes, or two models, on one input: ``compare(net)(x)``, ``compare(left, right)(x)``.

    One model: the same input and random numbers in training and in eval mode, each with autograd as usual, under ``no_grad`` and
    under ``inference_mode``; if something is random or not repeatable, it runs again to tell that apart from a real difference. That
    takes six to eight passes, and a few more if two equal passes differ. Two models: one pass each (and one more, for the left one's
    own noise), in their current modes; modules are matched by path.

    A model that talks to other ranks (FSDP2, tensor parallel) makes six passes on each, and no repeats: **call it on all ranks**. A
    model inside ``DistributedDataParallel`` is run without it, only on this rank. FSDP1 is refused.

    Parameters, buffers, gradients, flags, attributes, random generators and your inputs are restored afterwards, even after an
    exception. Your hooks run in every pass.

    Args:
        left: the model.
        right: a second one, to compare it with; if its parameters need the input in a different dtype or on a different device,
            the input is converted.
        match: for two models whose paths differ: a dict from left path to right path, or a function from a left path to the right
            one (or to None). Anything it leaves out is matched by name; ``_orig_mod.`` and ``module.`` do not count.

    Returns:
        A function to call with the model's own arguments, which gives a `Comparison`.

    Raises:
        NotAModuleError: one of the two is something else.

    >>> import torch
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU())
    >>> compare(net)(torch.randn(8, 4)).first
    '1'
    >>> compare(net)
    nothing has run yet: modlab.compare(net)(x)
    """
    checks.require_module(left, "compare")
    if right is not None:
        checks.require_module(right, "compare")
    elif match is not None:
        raise QuestionError("match= needs two models.\n  Write: modlab.compare(left, right, match=...)(x)")
    return Comparer(left, right, match)


class Comparer:
    """Waits for the model's arguments. Made by `modlab.compare`."""

    def __init__(self, left: Module, right: Module | None, match: Any) -> None:
        self._left, self._right, self._match = left, right, match

    def __call__(self, *args: Any, **kwargs: Any) -> Comparison:
        """Run the comparison.

        Args:
            *args: the model's arguments; each pass gets copies.
            **kwargs: the same, by name.

        Raises:
            UnrepeatableInputError: a generator or an iterator is among the inputs.
            LazyModelError: a module has no shape yet.
            MatchError: `match` names something that does not exist.
        """
        if self._right is None:
            return Comparison(modes.of_model(self._left, args, kwargs), self._left)
        return Comparison(pairs.of_models(self._left, self._right, self._match, args, kwargs), self._left)

    def __repr__(self) -> str:
        return f"nothing has run yet: modlab.compare({'net' if self._right is None else 'left, right'})(x)"


class Comparison(RowsResult):
    """Two runs side by side. Made by `modlab.compare`."""

    kind: ClassVar[str] = "compare"

    def __init__(self, record: ComparisonTable, model: Module) -> None:
        super().__init__(model)
        self.record = record
        self._wrapped = unwrapped(model) is not model
        self.code = "modlab.compare(net)(x)" if record.sides == MODES else "modlab.compare(left, right)(x)"  # type: ignore[misc]

    @property
    def records(self) -> Sequence[ComparisonRecord]:
        """One for each module, in the order of the tree; then those that only the right model has."""
        return self.record.rows

    @property
    def first(self) -> str | None:
        """The path of the module where the difference starts; None if there is none, or if no single module is to blame."""
        return self.record.first

    @property
    def differs(self) -> bool:
        """Whether any module's output differs; for two models, by more than rounding."""
        return any(row.differs and not self._near(row) for row in self.records)

    def _near(self, row: ComparisonRecord) -> bool:
        return row.relative_l2 is not None and row.relative_l2 <= self.record.tolerance and not row.alone

    @property
    def paths(self) -> list[str]:
        """The dotted names of all rows."""
        return [row.path for row in self.records]

    @cached_property
    def _by_path(self) -> dict[str, ComparisonRecord]:
        return {row.path: row for row in reversed(self.records)}

    def __getitem__(self, path: str) -> ComparisonRecord:
        """The record of the module at a dotted name; ``""`` is the root."""
        if not isinstance(path, str):
            raise PathNotFoundError(f"comparison[...] takes a dotted name such as 'net.l0', and got {checks.described(path)}")
        name = "" if path == ROOT else path
        found = self._by_path.get(name)
        if found is None and self._wrapped:
            found = self._by_path.get(name.removeprefix("module").removeprefix("."))  # DDP's name for what it wraps
        if found is None:
            close = nearest(path, self.paths)
            hint = f"  Nearest: {', '.join(repr(one) for one in close)}." if close else ""
            raise PathNotFoundError(f"{self.record.title} has no module {path!r}.\n{hint}  All paths: comparison.paths")
        return found

    def __len__(self) -> int:
        return len(self.records)

    def __bool__(self) -> bool:
        return True

    def find(self, pattern: str = "*", *, type: type | str | None = None, differs: bool | None = None) -> list[ComparisonRecord]:
        """The modules that match all conditions.

        Args:
            pattern: a path with wildcards, ``"*.attn.*"``; ``*`` also matches dots.
            type: a class or the name of one, wildcards allowed.
            differs: True for modules whose outputs differ, False for those whose outputs are the same.
        """
        question.require_type(type)
        asked = question.Pattern(pattern)
        name = None if type is None else type if isinstance(type, str) else type.__name__
        return [
            row
            for row in self.records
            if asked.fits(row.path)
            and (name is None or fnmatchcase(row.type, name))
            and (differs is None or (row.equal is not None and row.differs is differs))
        ]

    def _row(self, record: ComparisonRecord) -> dict[str, Any]:
        found = {one.name: getattr(record, one.name) for one in fields(record) if one.name not in ("left", "right", "moved", "runs")}
        found |= {"moved": [asdict(move) for move in record.moved], "runs": [asdict(run) for run in record.runs]}
        return found | {side: _summary(stats) for side, stats in zip(("left", "right"), (record.left, record.right), strict=True)}

    def _sheet(self) -> Sheet:
        return of_comparison(self.record)


def _summary(stats: TensorStats | None) -> dict[str, Any] | None:
    if stats is None:
        return None
    return {name: getattr(stats, name) for name in ("shape", "dtype", "device", "count", "min", "max", "mean", "std", "l2", "note")}
