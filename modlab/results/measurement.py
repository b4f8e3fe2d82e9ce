"""``modlab.measure(tensor)``: one tensor in numbers that a person can read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from modlab.errors import NotATensorError
from modlab.records.state import ValuesRecord
from modlab.records.tensor import TensorStats
from modlab.results.result import Result
from modlab.statistics import measure_tensor
from modlab.version import __version__
from modlab.views import headline, html, payload, text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def measure(tensor: Tensor, *, histogram: bool = True) -> Measurement:
    """Summarise one tensor: mean, standard deviation, extremes, zeros, NaN and infinities, and a histogram.

    Args:
        tensor: shape ``(...)``, any dtype, device and layout; neither changed nor kept.
        histogram: count the values by size too (of all elements, or of a stated sample).

    Returns:
        Statistics over the finite elements, in the tensor's own units; NaN and infinities are counted apart.

    Raises:
        NotATensorError: `tensor` is something else; the message says what, and what was meant.

    >>> import torch
    >>> measure(torch.tensor([1.0, 2.0, float("nan")])).nan
    1
    """
    if not isinstance(tensor, Tensor):
        raise NotATensorError(_advice(tensor))
    return Measurement(measure_tensor(tensor, histogram=histogram))


class Measurement(Result):
    """What is in one tensor. Made by `modlab.measure` and ``modlab.state(model)[path]``."""

    kind: ClassVar[str] = "measure"

    def __init__(self, record: TensorStats | ValuesRecord, code: str = "modlab.measure(tensor)") -> None:
        self._record, self._code = record, code
        self._source = None

    @property
    def record(self) -> ValuesRecord:
        """The statistics, and the numbers in rows and columns where they were asked for."""
        return self._record if isinstance(self._record, ValuesRecord) else ValuesRecord("", self._record)

    @property
    def records(self) -> Sequence[ValuesRecord]:
        """The one record."""
        return (self.record,)

    def __getattr__(self, name: str) -> Any:
        """``mean``, ``std``, ``min``, ``max``, ``l2``, ``zeros``, ``nan``, …: whatever `TensorStats` has."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.record.stats, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(name for name in dir(TensorStats) if not name.startswith("_"))})

    def figure(self, *, ax: Axes | None = None) -> Figure:
        """The histogram, and the matrix beside it where there is one. Needs matplotlib."""
        from modlab.views import figure

        return figure.of_values(self.record, ax=ax)

    def _row(self, record: ValuesRecord) -> dict[str, Any]:
        stats = record.stats
        names = ("shape", "dtype", "device", "count", "min", "max", "mean", "std", "l2", "zeros", "nan", "posinf", "neginf", "note")
        return {"path": record.path, **{name: getattr(stats, name) for name in names}}

    def _sentence(self) -> tuple[str, str]:
        return headline.of_values(self.record)

    def _text(self) -> str:
        return text.of_values(self.record)

    def _static(self) -> str:
        return html.of_values(self.record)

    def _payload(self, *, live: bool = False) -> bytes:
        return payload.of_measurement(self.record, self._code, __version__)


def _advice(thing: object) -> str:
    what = f"the class {thing.__name__}" if isinstance(thing, type) else f"a {type(thing).__name__}"
    if hasattr(thing, "state_dict") and hasattr(thing, "named_parameters"):
        return f"modlab.measure() got {what}, and needs one tensor.\n  For a model: modlab.state(model), or modlab.measure(model.weight)"
    if type(thing).__module__ == "numpy" or isinstance(thing, (int, float, list, tuple)):
        return f"modlab.measure() got {what}, and needs a tensor.\n  Write: modlab.measure(torch.as_tensor(...))"
    return f"modlab.measure() got {what}, and needs one tensor."
