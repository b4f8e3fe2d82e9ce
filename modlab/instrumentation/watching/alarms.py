"""What goes wrong, as soon as it is certain. Each alert states what it rests on; the thresholds stand here, in one place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from modlab import format
from modlab.instrumentation.watching.finiteness import is_plain, kind_of
from modlab.instrumentation.watching.gauge import Readings
from modlab.instrumentation.watching.units import Units
from modlab.records.slots import COLUMNS
from modlab.records.watch import ACTIVATION, GRADIENT, PARAMETER, PARAMETER_GRADIENT, UPDATE, Alert

if TYPE_CHECKING:
    from modlab.instrumentation.watching.cast import Weight
    from modlab.instrumentation.watching.sample import Sample
    from modlab.instrumentation.watching.watcher import Watcher

DEAD = 1_000
"""Inputs in a row on each of which a unit was zero, and its gradient too, before it is called dead."""

STARVING, FALLEN = 0.05, 3
"""A unit that fires on a smaller share of inputs than this, and so many times more rarely than at first, starves."""

WINDOW = 200
"""Inputs at least, at the beginning and at the end, that a starving unit is told from."""

MORE = 1.05
"""The counts are judged again when they have grown by so much."""

SURE = 2
"""Standard errors that a share must be away from its threshold."""

SAMPLES = 10
"""Samples in a row in which something must hold that one step says nothing about."""

VANISHED, EXPLODED = 1e-5, 1e4
"""The gradient at the first modules as a multiple of that at the last ones, beyond which it vanishes or explodes along depth."""

DEEP = 4
"""Modules with parameters from which on there is a depth."""

STUCK = 0.5
"""Share of elements with a gradient that do not move, in a 16-bit dtype; in others it must be nearly all, from the beginning."""

NEARLY_ALL = 0.95

SATURATED = 0.9
"""Share of a tanh's or sigmoid's outputs that lie within 2 % of its ends."""

HOLD = 'modlab.watch(..., on_nan="hold") keeps every step, and finds where it is born'
"""What helps where a step was not kept."""

HALF = ("bfloat16", "float16")
_BAD, _MEAN, _VAR, _STUCK = (COLUMNS.index(name) for name in ("bad", "mean", "var", "stuck"))
_ROLES = {
    ACTIVATION: "the output of {}", GRADIENT: "the gradient of {}'s output", PARAMETER: "{}",
    PARAMETER_GRADIENT: "the gradient of {}", UPDATE: "the update of {}",
}  # fmt: skip

Key = tuple[str, str, int | None]


class Alarms:
    """Looks at each sample, and keeps what it found; an alert is never lost, and says so when it is over.

    Args:
        watcher: whose samples they are.
    """

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._found: dict[Key, Alert] = {}
        self._running: dict[Key, int] = {}  # samples in a row
        self.skipped = 0
        self._counted = 0

    @property
    def alerts(self) -> list[Alert]:
        """In the order in which they came."""
        return [*self._found.values()]

    def look(self, sample: Sample) -> None:
        """Judge one sample."""
        readings = sample.readings
        if readings is not None:
            self._bad(sample, readings)
            self._depth(sample, readings)
            self._stuck(sample, readings)
        self._weights(sample)
        self._carry(sample)
        for path, share in sample.saturated.items():
            self._lasts(
                share > SATURATED, "saturated", path, sample.step,
                f"{share:.0%} of what {_name(path)} gives lies within 2 % of its ends: hardly any gradient passes",
                "smaller weights or inputs before it, or a normalization",
            )  # fmt: skip
        seen = sum(units.seen for units in self._watcher.units.values())
        if seen > MORE * self._counted:
            self.units(sample.step)

    def raise_(self, alert: Alert) -> None:
        """Add an alert, or renew the one that is known."""
        key = alert.kind, alert.path, alert.unit
        known = self._found.get(key)
        if known is None:
            self._found[key] = replace(alert, last=max(alert.last, alert.step))
        else:
            self._found[key] = replace(
                known, text=alert.text, steps=max(known.steps, alert.steps), inputs=max(known.inputs, alert.inputs),
                last=max(known.last, alert.last, alert.step), over=False, trace=known.trace or alert.trace,
            )  # fmt: skip

    def _over(self, key: Key) -> None:
        known = self._found.get(key)
        if known is not None and not known.over:
            self._found[key] = replace(known, over=True)

    def _lasts(self, holds: bool, kind: str, path: str, step: int, text: str, fix: str, samples: int = SAMPLES) -> None:
        """Raise an alert when something has held for some samples in a row."""
        key = kind, path, None
        self._running[key] = self._running.get(key, 0) + 1 if holds else 0
        if self._running[key] >= samples:
            self.raise_(Alert(kind, path, step, text, fix, steps=self._running[key]))
        elif not holds:
            self._over(key)

    # ---- numbers that are none

    def _bad(self, sample: Sample, readings: Readings) -> None:
        """The first place alone: whatever comes after it is not finite because of it."""
        bad = np.flatnonzero(readings.columns[_BAD] > 0)
        if not len(bad):
            return
        series = [self._watcher.cast.history.series[row] for row in readings.rows[bad].tolist()]
        if not any(one.role in (PARAMETER, PARAMETER_GRADIENT) or not one.path for one in series):
            return  # a mask may hold infinities on purpose; what counts is whether they come out
        if not sample.stepped and all(one.role in (GRADIENT, PARAMETER_GRADIENT) for one in series):
            return  # a scaler saw it, and skipped the step
        for kind, some in (("nan", readings.nan[bad]), ("inf", ~readings.nan[bad])):
            if some.any() and not any(alert.kind in ("nan", "inf") for alert in self._found.values()):
                at = int(np.flatnonzero(some)[0])
                one, count = series[at], int(readings.columns[_BAD, bad[at]])
                what = _ROLES[one.role].format(_name(one.path))
                word = "NaN" if kind == "nan" else "infinity"
                text = (
                    f"{what} holds {word} first: {format.plural(count, 'number')} of {one.count:,}, in the sample of step {sample.step:,}"
                )
                self.raise_(Alert(kind, one.path, sample.step, text, steps=1))

    def _since(self, sample: Sample) -> str:
        before = self._watcher.last_sample
        return "" if before >= sample.step - 1 else f"; the one before was at step {before:,}"

    def weights_at_the_end(self) -> None:
        """Whether the weights are still numbers, in case that a NaN came after the last sample."""
        if any(alert.kind in ("nan", "inf") for alert in self._found.values()):
            return
        for weight in self._watcher.cast.weights:
            tensor = weight.tensor()
            kind = kind_of(tensor.detach()) if tensor is not None and is_plain(tensor) else ""
            if kind:
                word = "NaN" if kind == "nan" else "infinity"
                text = f"{weight.path} holds {word} at the end, and did not at step {self._watcher.last_sample:,}, the last sample"
                self.raise_(Alert(kind, weight.path, max(self._watcher.step - 1, 0), text, HOLD))
                return

    # ---- units

    def units(self, step: int) -> None:
        """Judge the counts of units."""
        self._counted = sum(units.seen for units in self._watcher.units.values())
        for units in self._watcher.units.values():
            for unit in np.flatnonzero((units.silent >= DEAD) & units.flat).tolist():
                since = "" if units.silent[unit] == units.seen else f" in a row, and {_times(units, unit)} before"
                text = f"unit {unit} of {_name(units.path)} is dead: zero on all of {int(units.silent[unit]):,} inputs{since}"
                fix = "nn.LeakyReLU in its place, a smaller learning rate, or another seed, keeps units alive"
                self.raise_(Alert("dead", units.path, step, text, fix, unit, inputs=int(units.silent[unit])))
            for unit, before, after, inputs in starving(units):
                text = f"unit {unit} of {_name(units.path)} starves: it fires on {after:.1%} of the inputs, at first on {before:.0%}"
                self.raise_(
                    Alert("starving", units.path, step, text, "nn.LeakyReLU lets a unit that fires rarely learn", unit, inputs=inputs)
                )
        for key, alert in self._found.items():
            if key[0] == "dead" and alert.unit is not None and not alert.over:
                known = self._watcher.units.get(alert.path)
                if known is not None and known.silent[alert.unit] < DEAD:
                    self._over(key)

    # ---- gradients and steps

    def _weights(self, sample: Sample) -> None:
        cast = self._watcher.cast
        if not sample.backwards or not sample.stepped:
            return
        felt = any(weight.felt for weight in cast.weights)
        for weight in cast.weights:
            if not weight.trainable:
                continue
            none = felt and not weight.felt
            if none or self._found.get(("no gradient", weight.path, None)):
                self._lasts(
                    none, "no gradient", weight.path, sample.step,
                    f"{weight.path} got no gradient in any step that was looked at{self._why(weight)}",
                    f"modlab.trace(model), then trace.why({weight.path!r}), names the reason",
                )  # fmt: skip
            lost = self._watcher.optimizer_name and weight.felt and not weight.owned
            if lost:
                self._lasts(
                    True, "not owned", weight.path, sample.step,
                    f"{weight.path} gets a gradient, and {self._watcher.optimizer_name} does not hold it: it never moves",
                    "optimizer.add_param_group({'params': [...]}), or requires_grad_(False) if it is to stay as it is", 2,
                )  # fmt: skip

    def _why(self, weight: Weight) -> str:
        owner = weight.owner()
        member = None if owner is None else self._watcher.cast.members.get(id(owner))
        return ": its module was never called" if member is not None and not member.called else ""

    def _carry(self, sample: Sample) -> None:
        if sample.tasks:
            self._lasts(
                sample.carried, "not zeroed", "", sample.step,
                "gradients are never zeroed: each backward pass adds to those of all steps before",
                "optimizer.zero_grad() before loss.backward()", 3,
            )  # fmt: skip

    def _depth(self, sample: Sample, readings: Readings) -> None:
        """The gradient at the first modules against that at the last ones."""
        history, wanted = self._watcher.cast.history, self._watcher.cast.deep
        sizes: dict[str, float] = {}
        for i, row in enumerate(readings.rows.tolist()):
            one = history.series[row]
            if one.role == GRADIENT and one.path in wanted:
                mean, var = float(readings.columns[_MEAN, i]), float(readings.columns[_VAR, i])
                sizes[one.path] = float(np.sqrt(mean * mean + var))
        order = [path for path in wanted if path in sizes]
        if len(order) < DEEP:
            return
        third = max(1, len(order) // 3)
        first, last = (float(np.median([sizes[path] for path in some])) for some in (order[:third], order[-third:]))
        ratio = first / last if last > 0 else float("nan")
        for kind, holds in (("vanishing", ratio < VANISHED), ("exploding", ratio > EXPLODED)):
            text = (
                f"the gradient {'vanishes' if kind == 'vanishing' else 'explodes'} along depth: {format.number(first)} at the first modules, "
                f"{format.number(last)} at the last ones"
            )
            self._lasts(holds, kind, order[0], sample.step, text, "residual connections, a normalization, or another initialization")

    def _stuck(self, sample: Sample, readings: Readings) -> None:
        history, weights = self._watcher.cast.history, self._watcher.cast.weights
        shares = {
            row: float(readings.columns[_STUCK, i]) for i, row in enumerate(readings.rows.tolist()) if history.series[row].role == UPDATE
        }
        for weight in weights:
            share = shares.get(weight.rows[2])
            if share is None or share != share:
                continue
            half = weight.dtype in HALF
            weight.stuck = share if weight.stuck is None else 0.8 * weight.stuck + 0.2 * share
            weight.always_stuck &= share > NEARLY_ALL
            holds = share > STUCK if half and self._watcher.learning_rate() else weight.moved and weight.always_stuck
            if holds or ("rounding", weight.path, None) in self._found:
                self._lasts(
                    holds, "rounding", weight.path, sample.step,
                    f"{share:.0%} of the elements of {weight.path} ({weight.dtype}) have a gradient and do not move: "
                    "the step is lost to rounding",
                    "keep the weights in float32 (torch.autocast for the rest), or a greater learning rate",
                )  # fmt: skip


def starving(units: Units) -> Iterator[tuple[int, float, float, int]]:
    """Units that fire ever more rarely: number, share at first, share now, and the inputs that this rests on."""
    record = units.record()
    ends = _ends(record.inputs)
    if ends is None:
        return
    head, tail = ends
    early, late = int(record.inputs[:head].sum()), int(record.inputs[tail:].sum())
    first, last = record.fired[:head].sum(axis=0), record.fired[tail:].sum(axis=0)
    upper = last + SURE * np.sqrt(last + 1.0)
    lower = first - SURE * np.sqrt(first + 1.0)
    falls = (upper < STARVING * late) & (lower / early > FALLEN * last / late) & (units.silent < DEAD)
    for unit in np.flatnonzero(falls & (first > 0)).tolist():
        yield unit, first[unit] / early, last[unit] / late, early + late


def _ends(inputs: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> tuple[int, int] | None:
    """How many windows make the beginning, and where the end begins: a fifth of all inputs each, and `WINDOW` at least."""
    total = int(inputs.sum())
    wanted = max(WINDOW, total // 5)
    sums = np.cumsum(inputs)
    if total < 2.5 * wanted:
        return None
    head = int(np.searchsorted(sums, wanted)) + 1
    tail = int(np.searchsorted(sums, total - wanted, side="right"))
    return (head, tail) if head <= tail < len(inputs) else None


def _times(units: Units, unit: int) -> str:
    fired = int(units.record().fired[:, unit].sum())
    return f"{format.plural(fired, 'time')} other than zero"


def _name(path: str) -> str:
    return path or "the model"
