"""Numbers over time, in bounded memory: what the user logs, one curve for each name."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from modlab.compat import without_torch_function
from modlab.records.watch import ScalarRecord
from modlab.statistics.memory import PLAIN, absence, is_there, local, part_of
from modlab.watching.readback import is_far, numbers
from modlab.watching.time_slots import TimeSlots

SLOTS = 512
PENDING = 512
"""Values that wait to be taken into the curve: appending one costs a fraction of a microsecond."""

ROWS, PLANES = "NllLossBackward0", "NllLoss2DBackward0"
"""Cross-entropies by their function in the graph: of classes last, and of classes second with a plane behind."""

DEEP = 4
"""Functions that may stand between such a one and the loss."""

_CALM = frozenset({"MeanBackward0", "ToCopyBackward0", "SqueezeBackward0", "SqueezeBackward1", "ViewBackward0", "CloneBackward0"})
"""Functions that leave its size as it is."""

MOST = 64
"""Names."""


Doubles = npt.NDArray[np.float64]


class _TooManyError(Exception):
    """There is no room for one more curve."""


class _NoNumberError(Exception):
    """What was logged cannot be plotted."""


class Scalar:
    """One curve."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.pending: list[tuple[int, Any]] = []
        self.slots = TimeSlots(SLOTS, self._halve)
        self._sum, self._count, self._bad = np.zeros(SLOTS), np.zeros(SLOTS, np.int64), np.zeros(SLOTS, np.int64)
        self._low, self._high = np.full(SLOTS, math.nan), np.full(SLOTS, math.nan)
        self._held: tuple[tuple[npt.NDArray[Any], np.ufunc], ...] = (
            (self._sum, np.add),
            (self._count, np.add),
            (self._bad, np.add),
            (self._low, np.fmin),
            (self._high, np.fmax),
        )
        self.count, self.final = 0, math.nan
        self.nan = self.inf = 0
        self.falls = 0
        self.bad_step = -1  # the first one whose value is not finite
        self.bound, self.beyond = math.nan, 0  # of a norm: what is let through, if always as much, and how often it was more
        self.scaled = False  # whether its values were multiplied: an infinite one may be none
        self.early = False  # whether it is logged before the step to which it belongs
        self._settling = threading.Lock()

    def bound_by(self, bound: float) -> None:
        """The next value is let through up to this; where others had another bound, none is that of all."""
        if bound != self.bound:
            self.bound = math.nan if self.count or self.pending else bound

    def add(self, step: int, number: Any) -> None:
        """Append a value."""
        self.pending.append((step, number))
        if len(self.pending) >= PENDING:
            self.settle()

    def settle(self) -> None:
        """Take in what waits; what lies on an accelerator is fetched now."""
        with self._settling:  # a page may ask in another thread
            pending, self.pending = self.pending, []
            self._take(pending)

    def _twin(self) -> Scalar:
        """The same curve once more."""
        made = Scalar(self.name)
        made.slots = self.slots.twin(made._halve)
        for (mine, _), (theirs, _) in zip(self._held, made._held, strict=True):
            theirs[:] = mine
        made.bound, made.beyond, made.scaled, made.falls = self.bound, self.beyond, self.scaled, self.falls
        made.count, made.final, made.nan, made.inf, made.bad_step = self.count, self.final, self.nan, self.inf, self.bad_step
        return made

    def _take(self, pending: list[tuple[int, Any]]) -> None:
        if not pending:
            return
        steps = [step for step, _ in pending]
        found = [value for _, value in pending]
        late = [i for i, value in enumerate(found) if isinstance(value, Tensor)]
        for i, number in zip(late, numbers([found[i] for i in late]), strict=True):
            found[i] = number
        values = np.array(found, np.float64)
        if self.scaled:
            known = ~np.isinf(values)
            steps, values = [step for step, there in zip(steps, known, strict=True) if there], values[known]
            if not steps:
                return
        self.falls += int((values < np.concatenate(([self.final], values[:-1]))).sum())
        self.count, self.final = self.count + len(steps), float(values[-1])
        self.beyond += int(((values > self.bound) & np.isfinite(values)).sum())
        if not np.isfinite(values).all():
            self._count_bad(steps, values)
        slots, done = self.slots, 0
        while done < len(steps):
            at, taken = len(slots) - 1, slots.fill(steps[done:])
            if taken:
                self._add(at, values[done : done + taken], np.zeros(1, np.intp), known=True)
            else:
                slots.clear()
                at, stride = len(slots), slots.stride
                taken = slots.extend(steps[done:])
                self._add(at, values[done : done + taken], np.arange(0, taken, stride), known=False)
            done += taken

    def _count_bad(self, steps: list[int], values: Doubles) -> None:
        bad = np.flatnonzero(~np.isfinite(values))
        nan = int(np.isnan(values).sum())
        self.nan, self.inf = self.nan + nan, self.inf + len(bad) - nan
        if self.bad_step < 0 and len(bad):
            self.bad_step = steps[int(bad[0])]

    def _add(self, at: int, values: Doubles, starts: npt.NDArray[np.intp], *, known: bool) -> None:
        """Write stretches of values into the slots from `at` on; `known` if the first of them holds some already."""
        good = np.isfinite(values)
        with np.errstate(invalid="ignore", over="ignore"):
            calm = np.where(good, values, math.nan)
            found = (
                np.add.reduceat(np.where(good, values, 0.0), starts),
                np.add.reduceat(good, starts, dtype=np.int64),
                np.add.reduceat(~good, starts, dtype=np.int64),
                np.fmin.reduceat(calm, starts),
                np.fmax.reduceat(calm, starts),
            )
        for (held, join), new in zip(self._held, found, strict=True):
            held[at : at + len(starts)] = join(held[at : at + len(starts)], new) if known else new

    def record(self) -> ScalarRecord:
        """What there is now, with what waits, which goes on waiting: a sum must not depend on who asked for it when."""
        with self._settling:
            twin = self._twin()
            twin._take([*self.pending])
        return twin._frozen()

    def _frozen(self) -> ScalarRecord:
        used = len(self.slots)
        first, last = self.slots.bounds()
        with np.errstate(invalid="ignore", over="ignore"):  # what a float32 cannot hold is infinite
            mean = (self._sum[:used] / self._count[:used]).astype(np.float32)
            low, high = self._low[:used].astype(np.float32), self._high[:used].astype(np.float32)
        counts = self.count, self.final, self.nan, self.inf, self.bad_step
        bound, beyond, falls = self.bound, self.beyond, self.falls
        return ScalarRecord(self.name, first, last, mean, low, high, self._bad[:used], *counts, bound=bound, beyond=beyond, falls=falls)

    def _halve(self) -> None:
        used = len(self.slots)
        for held, join in self._held:
            held[: used // 2] = join(held[0:used:2], held[1:used:2])


class Scalars:
    """All curves, by name.

    Args:
        tell: told in a sentence, once for each name, of what is not a number; the training goes on.
    """

    def __init__(self, tell: Callable[[str], None] = lambda text: None) -> None:
        self.curves: dict[str, Scalar] = {}
        self.entropy = ""  # the function of the graph that made a logged loss, if that is a cross-entropy
        self._tell = tell
        self._refused: set[str] = set()

    def log(self, step: int, values: dict[str, Any]) -> None:
        """Append one value to each named curve.

        Args:
            step: how many were made: a value belongs to the last one, or to the next, where it is logged before that is made.
            values: numbers, or tensors with one element.
        """
        for name, value in values.items():
            try:
                number = value if type(value) is float else _number(name, value)
                curve = self.curves.get(name) or self._new(name, value, early=not step)
                curve.add(step if curve.early or not step else step - 1, number)
            except (_TooManyError, _NoNumberError) as error:
                self._refuse(name, error)

    def _refuse(self, name: str, error: Exception) -> None:
        """Say it: once for each name, and once for all that are too many."""
        key = "" if isinstance(error, _TooManyError) else name
        if key not in self._refused and len(self._refused) <= MOST:
            self._refused.add(key)
            self._tell(str(error))

    def _new(self, name: str, value: Any, *, early: bool) -> Scalar:
        if len(self.curves) >= MOST:
            raise _TooManyError(f"w.log({name}=…): {MOST} curves are kept, and that many exist already; others are left out")
        if "loss" in name.lower() and isinstance(value, Tensor):
            with without_torch_function():
                self.entropy = self.entropy or entropy_of(value.grad_fn)
        curve = self.curves[name] = Scalar(name)
        curve.early = early
        return curve


def entropy_of(function: Any) -> str:
    """The name of the negative log-likelihood that a loss is, or is the mean of."""
    for _ in range(DEEP):
        name = type(function).__name__
        if name in (ROWS, PLANES):
            return name if getattr(function, "_saved_reduction", 1) < 2 else ""  # a sum over the batch is no mean
        before = [one for one, _ in getattr(function, "next_functions", ()) if one is not None]
        if name not in _CALM or len(before) != 1:
            return ""
        function = before[0]
    return ""


def _number(name: str, value: Any) -> Any:
    """A number at once, or what will give it: asking an accelerator now would wait for it."""
    if type(value) in PLAIN:
        value = _element(name, value)
    elif isinstance(value, Tensor):
        if value.numel() == 1 and (part := part_of(value)):
            raise _NoNumberError(
                f"w.log({name}=…) got a DTensor of which {part} is here, but needs {name}.full_tensor(), on all ranks; it is left out"
            )
        with without_torch_function():
            value = _element(name, local(value))
    if type(value) is float or isinstance(value, Tensor):
        return value
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise _NoNumberError(
            f"w.log({name}=…) got {type(value).__name__}, but takes a number or a tensor with one element; it is left out"
        ) from None


def _element(name: str, value: Tensor) -> Any:
    """That of a tensor with one."""
    if value.numel() != 1:
        raise _NoNumberError(
            f"w.log({name}=…) got a tensor of shape {tuple(value.shape)}, but takes one number, such as {name}.mean(); it is left out"
        )
    if not is_there(value):
        raise _NoNumberError(f"w.log({name}=…) got a tensor without a value: {absence(value)}; it is left out")
    return value.detach().clone() if is_far(value) else value.item()
