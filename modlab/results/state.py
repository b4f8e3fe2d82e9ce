"""``modlab.state(model)``: every parameter, buffer and reserved name, and what happens to it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch.nn import Module

from modlab.errors import ModlabError, PathNotFoundError, names_near
from modlab.inspection import checkpoint, checks, distributed, optimizers, slots, structure, values
from modlab.records.state import MODEL, StateRecord, TableRecord
from modlab.results import question
from modlab.results.measurement import Measurement
from modlab.results.result import Result
from modlab.results.tree import LISTED, answer
from modlab.version import __version__
from modlab.views import facts, headline, html, payload, text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CARRIED = 10_000
"""Elements up to which a model's values travel in the output itself; of larger models they are asked for."""
CARRIED_ROWS = 100
CARRIED_SIDE = 16


def state(
    model: Module | str | os.PathLike[str],
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
) -> State:
    """Show every parameter, buffer and reserved name of a model: is it trained, saved, moved, and which optimizer holds it?

    The rows follow the order of ``state_dict()``, then come those not in it: reserved names, non-persistent buffers, plain
    tensor attributes.

    Args:
        model: an ``nn.Module``, or the path of a checkpoint, read without its weights and without running code: a file from
            ``torch.save``, ``.safetensors``, the index of a sharded one, ``.gguf``, ``.pt2``, a Hugging Face folder, or one from
            ``torch.distributed.checkpoint``.
        optimizer: one or several; adds group, learning rate, weight decay and state, and marks parameters that are in no
            group or in two.

    Returns:
        A `State`: displays itself; ``state["net.l0.weight"]`` measures one tensor.

    Raises:
        NotAModuleError: `model` is neither.
        CheckpointError: the file cannot be read without running code stored in it, or is not a checkpoint.

    >>> from torch import nn
    >>> print(state(nn.BatchNorm1d(2, affine=False)).headline)
    BatchNorm1d: 3 of 5 entries are in the state_dict; weight and bias are reserved.
    """
    given = optimizers.as_tuple(optimizer)
    if isinstance(model, (str, os.PathLike)):
        if given:
            raise ModlabError(
                "A checkpoint file holds copies, but an optimizer holds the tensors of a live model: they have none in common.\n"
                "  Load the file into its model, and write: modlab.state(model, optimizer)"
            )
        return State(checkpoint.read(os.fsdecode(model)), None)
    checks.require_module(model, "state")
    tree = structure.of_users(model)
    if tree.places() > LISTED:
        raise ModlabError(
            f"This model has {tree.places():,} module paths, too many for a table of all its tensors.\n"
            f"  Look at its tree, modlab.tree(model), or at a part: modlab.state(model.get_submodule('...'))"
        )
    return State(slots.extract(model, given), model, tree.fingerprint)


class State(Result):
    """The state of a model or a checkpoint. Made by `modlab.state`."""

    kind: ClassVar[str] = "state"

    def __init__(self, record: TableRecord, model: Module | None, fingerprint: str = "") -> None:
        super().__init__(model)
        self._fingerprint = fingerprint
        self.record = record
        if model is not None and sum(row.count for row in record.rows) <= CARRIED and len(record.rows) <= CARRIED_ROWS:
            self.record = _with_values(record, model)

    @property
    def records(self) -> Sequence[StateRecord]:
        """One record for each row."""
        return self.record.rows

    @cached_property
    def _by_path(self) -> dict[str, StateRecord]:
        return {row.path: row for row in self.record.rows}

    @property
    def paths(self) -> list[str]:
        """The dotted names of all rows, in order."""
        return [row.path for row in self.record.rows]

    def __getitem__(self, path: str) -> Measurement:
        """Measure the tensor at a dotted name as it is now; only this tensor is read."""
        row = self._by_path.get(path) or self._by_path.get(distributed.users_path(path)) if isinstance(path, str) else None
        if row is None:
            raise self._unknown(path)
        if self.record.source != MODEL:
            return Measurement(checkpoint.measure(self.record.source, path), code=f"modlab.state(path)[{path!r}]")
        path = row.path
        tensor = slots.tensor_at(self._alive("reading values"), path)
        if tensor is None:
            raise PathNotFoundError(f"{path!r} is not a tensor: it is {row.kind}{f' ({row.note})' if row.note else ''}.")
        return Measurement(values.read(tensor, path, lies=row.sharding), code=f"modlab.state(model)[{path!r}]")

    def __contains__(self, path: object) -> bool:
        return isinstance(path, str) and (path in self._by_path or distributed.users_path(path) in self._by_path)

    def __len__(self) -> int:
        return len(self.record.rows)

    def __bool__(self) -> bool:
        return True

    def find(
        self,
        pattern: str = "*",
        *,
        kind: str | None = None,
        in_state_dict: bool | None = None,
        shape: question.Shape | None = None,
        trainable: bool | None = None,
    ) -> list[StateRecord]:
        """The rows that match all conditions.

        Args:
            pattern: a path with wildcards, ``"*.bias"``; ``*`` also matches dots.
            kind: "parameter", "buffer", "reserved", "packed", "extra", "attribute", "tensor" or "value".
            in_state_dict: only rows that are in it (True) or are not (False).
            shape: as in `Tree.find`: ``(None, 768)``, ``"3x768"``, or one size in any dimension.
            trainable: only tensors that require a gradient (True) or do not (False).
        """
        asked, sizes = question.Pattern(pattern), question.ShapeQuestion(shape)
        return [
            row
            for row in self.record.rows
            if asked.fits(row.path)
            and (kind is None or row.kind == kind)
            and (in_state_dict is None or row.in_state_dict is in_state_dict)
            and (shape is None or sizes.fits(row.shape))
            and (trainable is None or row.trainable is trainable)
        ]

    def figure(self, path: str | None = None, *, ax: Axes | None = None) -> Figure:
        """Bytes by tensor as bars, or with a path the values of that tensor. Needs matplotlib."""
        from modlab.views import figure

        if path is not None:
            return self[path].figure(ax=ax)
        return figure.of_table(self.record, ax=ax)

    def _unknown(self, path: object) -> PathNotFoundError:
        near = names_near(str(path), self._by_path)
        return PathNotFoundError(f"{self.record.title} has no tensor {path!r}.\n{near}  All of them: .paths")

    def _row(self, record: StateRecord) -> dict[str, Any]:
        return {**super()._row(record), "note": facts.note(record)}

    def _sentence(self) -> tuple[str, str]:
        return headline.of_table(self.record)

    def _text(self) -> str:
        return text.of_table(self.record)

    def _static(self) -> str:
        return html.of_table(self.record)

    def _fitting_payload(self) -> bytes:
        return html.within_budget(lambda rows: self._payload(limit=rows), len(self.record.rows))

    def _payload(self, *, live: bool = False, limit: int | None = None) -> bytes:
        code = "modlab.state(path)" if self.record.source != MODEL else "modlab.state(model)"
        if self.record.optimizers:
            code = "modlab.state(model, optimizer)"
        return payload.of_table(self.record, self._fingerprint, code, __version__, live=live, limit=limit)

    def _answer(self, path: str) -> bytes:
        if self.record.source != MODEL:
            return payload.of_answer(checkpoint.measure(self.record.source, path))
        return answer(self._alive("reading values"), path)


def _with_values(record: TableRecord, model: Module) -> TableRecord:
    found = [
        values.read(slot.tensor, slot.record.path, rows=CARRIED_SIDE, columns=CARRIED_SIDE)
        for slot in slots.collect(distributed.unwrapped(model))
        if slot.tensor is not None
    ]
    return replace(record, values=tuple(found))
