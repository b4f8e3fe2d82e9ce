"""``modlab.measure(tensor)``: one tensor in readable numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from sys import getrefcount
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import ref

from torch import Tensor

from modlab.errors import NotATensorError
from modlab.inspection.values import layout
from modlab.records.state import ValuesRecord
from modlab.records.tensor import TensorStats
from modlab.results.result import Result
from modlab.statistics import measure_tensor
from modlab.version import __version__
from modlab.views import headline, html, payload, sharding, text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_TEMPORARY = 2  # references to an argument that was made in the call itself: the parameter's, and that of the question


def measure(tensor: Tensor, *, histogram: bool = True) -> Measurement:
    """Summarise one tensor: mean, standard deviation, extremes, zeros, NaN and infinities, and a histogram.

    Args:
        tensor: shape ``(...)``, any dtype, device and layout; not changed or kept.
        histogram: also count the values by size (of all elements, or of a stated sample).

    Returns:
        Statistics over the finite elements, in the tensor's own units; NaN and infinities are counted apart.

    Raises:
        NotATensorError: `tensor` is something else; the message says what, and what you may have meant.

    >>> import torch
    >>> measure(torch.tensor([1.0, 2.0, float("nan")])).nan
    1
    """
    if not isinstance(tensor, Tensor):
        raise NotATensorError(_advice(tensor))
    result = Measurement(measure_tensor(tensor, histogram=histogram), tensor=tensor)
    if getrefcount(tensor) <= _TEMPORARY:
        result.record  # noqa: B018 - nobody else holds it: its numbers are fetched now or never
    return result


class Measurement(Result):
    """What is in one tensor. Made by `modlab.measure` and ``modlab.state(model)[path]``."""

    kind: ClassVar[str] = "measure"

    def __init__(self, record: TensorStats | ValuesRecord, code: str = "modlab.measure(tensor)", tensor: Tensor | None = None) -> None:
        self._record, self._code = record, code
        self._source = None if tensor is None else ref(tensor)

    @property
    def record(self) -> ValuesRecord:
        """The statistics, and the numbers in rows and columns.

        The numbers are fetched on first use, if the tensor still exists and has not changed.
        """
        if not isinstance(self._record, ValuesRecord):
            self._record = self._with_numbers(self._record)
        return self._record

    def _with_numbers(self, stats: TensorStats) -> ValuesRecord:
        tensor = self._source() if self._source is not None else None
        if not stats.measured:
            return ValuesRecord("", stats)
        if tensor is None:
            return ValuesRecord("", stats, note="no grid: the tensor was not kept in a variable and is gone")
        if measure_tensor(tensor, histogram=False) != replace(stats, histogram=None):
            return ValuesRecord("", stats, note="no grid: the tensor has changed since it was measured")
        return ValuesRecord("", stats, *layout(tensor))

    @property
    def records(self) -> Sequence[ValuesRecord]:
        """The one record."""
        return (self.record,)

    def __getattr__(self, name: str) -> Any:
        """``mean``, ``std``, ``min``, ``max``, ``l2``, ``zeros``, ``nan``, …: whatever `TensorStats` has."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._record.stats if isinstance(self._record, ValuesRecord) else self._record, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(name for name in dir(TensorStats) if not name.startswith("_"))})

    def figure(self, *, ax: Axes | None = None) -> Figure:
        """The histogram, and the matrix beside it where there is one. Needs matplotlib."""
        from modlab.views import figure

        return figure.of_values(self.record, ax=ax)

    def _row(self, record: ValuesRecord) -> dict[str, Any]:
        stats = record.stats
        names = ("shape", "dtype", "device", "count", "min", "max", "mean", "std", "l2", "zeros", "nan", "posinf", "neginf", "note")
        row = {"path": record.path, **{name: _plain(getattr(stats, name)) for name in names}}
        lies = stats.sharding
        told = {"stored": stats.stored, "of": sharding.PART if stats.of_part else "the whole tensor"}
        return {**row, **told, "sharding": None if lies is None else {**asdict(lies), "placement": sharding.placement(lies)}}

    def _sentence(self) -> tuple[str, str]:
        return headline.of_values(self.record)

    def _text(self) -> str:
        return text.of_values(self.record)

    def _static(self) -> str:
        return html.of_values(self.record)

    def _payload(self, *, live: bool = False, limit: int | None = None) -> bytes:
        return payload.of_measurement(self.record, self._code, __version__)


def _plain(value: Any) -> Any:
    """None for what is not a number: JSON has no word for it."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _advice(thing: object) -> str:
    what = f"the class {thing.__name__}" if isinstance(thing, type) else f"a {type(thing).__name__}"
    if hasattr(thing, "state_dict") and hasattr(thing, "named_parameters"):
        return f"modlab.measure() got {what}, but needs one tensor.\n  For a model: modlab.state(model), or modlab.measure(model.weight)"
    if type(thing).__module__ == "numpy" or isinstance(thing, (int, float, list, tuple)):
        return f"modlab.measure() got {what}, but needs a tensor.\n  Write: modlab.measure(torch.as_tensor(...))"
    return f"modlab.measure() got {what}, but needs one tensor."
