"""What a watch has seen: statistics of every module and parameter on one time axis, units, scalars, alerts and the verdict.

All series share the same *slots*: stretches of steps, each with the samples that were taken in it. When there are too many,
neighbours are merged two by two, so a long run has wider slots, not more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from modlab import format
from modlab.frozen import frozen
from modlab.records.finding import Finding
from modlab.records.fork import ForkRecord, KeptRecord
from modlab.records.knobs import KnobRecord
from modlab.records.sharding import Ranks
from modlab.records.slots import Floats
from modlab.records.watched import Watched

Ints = npt.NDArray[np.int64]

ACTIVATION, GRADIENT, PARAMETER, PARAMETER_GRADIENT, UPDATE = ROLES = (
    "activation",
    "gradient",
    "parameter",
    "parameter gradient",
    "update",
)
"""What is measured: a module's output, the gradient of it; a parameter, its gradient, and what a step added to it."""

OF_UNITS = ("dead", "starving")
"""Kinds of alerts about single units."""

FEW_DEAD, SOMEWHAT = 1 / 6, 0.8
"""Share of the units of a layer up to which dead ones are few; and part of its first values below which a loss falls that misses none of
so few: one of samples that are told apart never comes near 0."""

WELL = 1 / 3
"""Share of its first value to which the loss of a net has fallen that learns well."""

BINS = 65
"""Of a histogram: 32 for negative numbers, falling in size; one about zero; 32 for positive ones, growing.

There are two in an octave: from 1 and from 1.5 times a power of two.
"""


def edge(number: int) -> float:
    """The lower end of a half octave: 1, 1.5, 2, 3, 4, 6, … from number 0 on.

    >>> [edge(number) for number in (-1, 0, 1, 2, 3)]
    [0.75, 1.0, 1.5, 2.0, 3.0]
    """
    return (1.5 if number % 2 else 1.0) * 2.0 ** (number // 2)


@frozen
class Series:
    """One line of the history.

    Attributes:
        path: of the module, or of the parameter.
        role: one of `ROLES`.
        count: the numbers in the tensor, at the last sample.
        shape: of it; -1 where it was not always the same.
        category: of the module, as in its tree ("linear", "own").
        note: what to know about it ("≈ from 4,096 of its numbers", "not measured: …").
    """

    path: str
    role: str
    count: int = 0
    shape: tuple[int, ...] = ()
    category: str = "own"
    note: str = ""


@format.printed
@frozen
class Entry:
    """One series in one slot, as a row of a table; the fields are those of `HistoryRecord`.

    Attributes:
        std, l2: standard deviation and Euclidean norm.
        ratio: of an update, its norm divided by the parameter's.
    """

    path: str
    role: str
    first: int
    last: int
    mean: float
    std: float
    low: float
    high: float
    l2: float
    zeros: float
    bad: float
    stuck: float
    ratio: float


@frozen(eq=False)
class HistoryRecord:
    """All series over time.

    Attributes:
        series: in the order in which modules were called first; parameters in the model's order.
        first: shape ``(slots,)``, the first step of each slot; `last`: the last one with a sample in it. Steps count from 0.
        columns: by the names of `slots.COLUMNS`, each of shape ``(slots, series)``; NaN where a series has no sample in a slot.
        bins_first, bins_last: the steps of the histograms' slots, which are fewer.
        bins: shape ``(histogram slots, series, BINS)``, the share of values in each bin, of 255.
        top: shape ``(series,)``: where a series' last bin begins, see `edge`; bin ``64 - k`` begins at ``edge(top - k)``.
        bad_step: shape ``(series,)``: the step of the first sample with a number that is not finite, -1 if there is none; or not kept.
    """

    series: tuple[Series, ...]
    first: Ints
    last: Ints
    columns: Mapping[str, Floats]
    bins_first: Ints
    bins_last: Ints
    bins: npt.NDArray[np.uint8]
    top: npt.NDArray[np.int16]
    bad_step: Ints | None = None

    def row(self, path: str, role: str) -> int:
        """The number of a series, or -1."""
        return next((i for i, one in enumerate(self.series) if one.path == path and one.role == role), -1)

    def norm(self, row: int) -> Floats:
        """The Euclidean norm of a series over time, from mean and variance: shape ``(slots,)``."""
        mean, var = self.columns["mean"][:, row], self.columns["var"][:, row]
        with np.errstate(over="ignore"):  # beyond the greatest number it is infinite
            norms: Floats = np.sqrt((var + mean * mean) * self.series[row].count)
        return norms


@frozen(eq=False)
class UnitsRecord:
    """How often each unit (channel) of a module fires: how many of the inputs seen leave it other than zero, after its activation.

    Attributes:
        path: of the module whose output the units are.
        read: where the activation was read ("the input of l1", "relu").
        first, last: shape ``(windows,)``, steps; `inputs`: how many inputs were seen in each window.
        fired: shape ``(windows, units)``.
        silent: shape ``(units,)``: the inputs seen in a row, up to the last one, on each of which the unit was zero.
        flat: shape ``(units,)``: whether each gradient seen meanwhile was zero as well.
    """

    path: str
    read: str
    first: Ints
    last: Ints
    inputs: Ints
    fired: Ints
    silent: Ints
    flat: npt.NDArray[np.bool_]


@frozen(eq=False)
class Layer:
    """One layer of a small net over time.

    Attributes:
        path: of the module; `weight`: of its weight.
        names: of what comes in; empty if that is the layer before.
        weights: shape ``(slots, units, inputs)``: how each input counts for each unit.
        activations, gradients: shape ``(slots, units)``: means, after the activation where there is one.
        biases: the same shape: what is added to each unit; NaN where that is not known.
    """

    path: str
    weight: str
    weights: Floats
    activations: Floats
    gradients: Floats
    biases: Floats | None = None


@frozen(eq=False)
class NeuronsRecord:
    """A small net as units and weights over time.

    Attributes:
        first, last: shape ``(slots,)``, steps.
        layers: in order; each layer's inputs are the units of the one before.
    """

    first: Ints
    last: Ints
    layers: tuple[Layer, ...]


@format.printed
@frozen(eq=False)
class ScalarRecord:
    """One number over time.

    Attributes:
        name: under which it was logged; "loss" for what was found, or the name that the user's code has for it.
        kind: "loss" for what ``backward()`` was called on, "rate" for a learning rate, "norm" for the gradient's norm before it is clipped,
            "scale" for what a gradient scaler multiplies the loss by, "mode" for the model's mode at each loss (1 in training, 0 in
            evaluation; only where it changes), "knob" for one that the user moves, "validation" for what is logged under such a name,
            "logged" for what else the user logs.
        first, last: shape ``(slots,)``, steps.
        mean, low, high: shape ``(slots,)``, of the finite values; NaN where there was none.
        bad: shape ``(slots,)``: how many were not finite.
        count: of all values; `final`: the last one.
        nan, inf: how many of all were NaN and infinite; `bad_step`: the step of the first of them, -1 if there is none.
        passes: of a loss, the backward passes that a value is the sum of, on the average: what a step's gradient is the gradient of.
        bound: of a norm, the one to which it is clipped, NaN if it changed; `beyond`: in how many of the values it was greater, and finite.
        moved: how often a knob moved it; None where there is none.
        falls: how often a value was below the one before it: of a loss scale, each time a step was skipped, or several.
    """

    name: str
    first: Ints
    last: Ints
    mean: Floats
    low: Floats
    high: Floats
    bad: Ints
    count: int
    final: float
    nan: int = 0
    inf: int = 0
    bad_step: int = -1
    kind: str = "logged"
    passes: float = 1.0
    bound: float = math.nan
    beyond: int = 0
    moved: int | None = None
    falls: int = 0

    def ends(self) -> tuple[float, float]:
        """The means of its first and of its last tenth: what every face calls "at first" and "at last"; NaN where nothing is finite."""
        some = self._tenth
        return _mean(self.mean[:some]), _mean(self.mean[-some:])

    @property
    def averaged(self) -> bool:
        """Whether these are means of several values, and not the first and the last one."""
        return self._tenth > 1 or self.count > len(self.mean)

    @property
    def _tenth(self) -> int:
        return max(1, len(self.mean) // 10)


@frozen(repr=False)
class Alert(Finding):
    """A finding of a run, which may be over again.

    Attributes:
        kind: "nan", "inf", "dead", "starving", "no gradient", "vanishing", "exploding", "not owned", "not zeroed", "saturated",
            "rounding".
        path: of the module or parameter.
        facts: what the sentence is made of; of a NaN "where" is the place of its birth: "forward", "backward", "the loss", "the batch",
            "the weights", or "" if that is not known, and "birth" what was seen there.
        step: at which it was first seen.
        unit: which unit of the module, or None; `units`: which ones, where an alert is about several.
        steps, inputs: how many it rests on.
        last: the step at which it was last seen to hold.
        over: it held once and does so no longer.
        trace: of the step in which a NaN was born, run again.
    """

    step: int = 0
    unit: int | None = None
    steps: int = 0
    inputs: int = 0
    last: int = -1
    over: bool = False
    trace: Any = None
    units: tuple[int, ...] = ()

    def __repr__(self) -> str:
        unit = "" if self.unit is None else f" unit {self.unit}"
        return format.printable(f"<{self.kind}: {self.path or '(root)'}{unit}, step {self.step:,}>")


@format.printed
@frozen
class Check(Finding):
    """One step from data to a falling loss, and what was found there.

    Attributes:
        kind: what was found, or why it was not seen; also that of an alert or a finding which answers it.
        name: "data arrives", "the loss is sensible", "every module is called", "every trained parameter gets a gradient",
            "the optimizer owns it", "it moves", "by enough for its dtype", "the loss falls".
        state: "passed", "broken", "careful" or "not seen".
    """

    name: str = ""
    state: str = "not seen"


@frozen
class Verdict:
    """From data to a falling loss: the first broken check is the reason why the model does not learn. And what was found beside it.

    Attributes:
        checks: in order.
        findings: what is wrong, and what is good to know, as facts.
        alerts: the kinds of alerts that still hold and mean that something is broken.
        cares: the kinds of those that still hold and ask for care.
        error: the error of the training's own in which the run ended, "" if in none.
    """

    checks: tuple[Check, ...]
    findings: tuple[Finding, ...] = ()
    alerts: tuple[str, ...] = ()
    cares: tuple[str, ...] = ()
    error: str = ""

    @property
    def broken(self) -> Check | None:
        """The first check that is broken, or None."""
        return next((check for check in self.checks if check.state == "broken"), None)

    @property
    def unseen(self) -> tuple[str, ...]:
        """The names of the checks that could not be judged."""
        return tuple(check.name for check in self.checks if check.state == "not seen")

    @property
    def ok(self) -> bool:
        """Whether training was seen and nothing is broken: no check, no finding, no alert that still holds.

        What could not be judged counts neither way, and `unseen` names it; where nothing at all was judged, it is False. What asks
        for care is no reason for False either.
        """
        return self.exit_code in (0, 2)

    @property
    def exit_code(self) -> int:
        """A number for ``sys.exit``: 0 nothing is wrong, 1 something is broken, 2 something asks for care, 3 nothing was seen.

        The worst counts, in the order 1, 3, 2, 0. As for `ok`, a check that could not be judged counts neither way, as long as one was.
        That the run ended in an error of its own asks for care. Notes do not count, nor do a few units that nothing misses.
        """
        found = {one.severity for one in (*self.checks, *self.findings) if not (self.misses_none and is_few_dead(one))}
        if self.alerts or "broken" in found:
            return 1
        if any(one.kind == "no step yet" for one in self.checks) or not any(map(_of_training, self.checks)):
            return 3
        cares = [kind for kind in self.cares if not (self.misses_none and kind in OF_UNITS)]
        return 2 if cares or self.error or "careful" in found else 0

    @property
    def misses_none(self) -> bool:
        """Whether nothing shows that a few units are missed: the loss falls well, or several play against each other."""
        check = next((one for one in self.checks if one.name == "the loss falls"), None)
        if check is None or check.kind == "loss not told":
            return check is not None and len(check.facts["names"]) > 1  # type: ignore[arg-type]
        first, last = (float(check.facts.get(name, math.nan)) for name in ("first", "last"))  # type: ignore[arg-type]
        return check.state == "passed" and last < (SOMEWHAT if self._has_most else WELL) * first

    @property
    def _has_most(self) -> bool:
        """Whether in each layer with dead units these are few beside those that live."""
        dead = [one for one in self.findings if one.kind == "dead units"]
        few = ("units" in one.facts and int(one.facts["dead"]) <= FEW_DEAD * int(one.facts["units"]) for one in dead)  # type: ignore[arg-type]
        return bool(dead) and all(few)


def is_few_dead(finding: Finding) -> bool:
    """Whether a finding tells of some dead units that leave enough others."""
    return finding.kind == "dead units" and finding.severity == "careful"


def _of_training(check: Check) -> bool:
    """Whether a check was judged by a training step: which optimizer holds what can be read without one."""
    return check.state in ("passed", "careful") and check.name != "the optimizer owns it"


SIGNS = {"passed": "ok", "broken": "BROKEN", "careful": "careful", "not seen": "not seen"}
"""Of a check's state, in text."""


@format.printed
@frozen(eq=False)
class WatchRecord:
    """All that a watch has seen.

    Attributes:
        title: the model's class; `optimizer`: the optimizer's, "" if none was seen.
        state: "waiting" (no step yet), "running", "ended", "stopped", "interrupted" or "failed"; `error`: of the last one, what failed.
        steps: steps seen; `samples`: how many of them were measured; `inputs`: how many inputs the light samples counted as well.
        sampled: shape ``(n,)``: steps at which samples were taken (at most some thousand of them, evenly thinned).
        seconds: what the watch took, standing by for a NaN included (partly by what that usually takes), its replay not; `loop`: what the
            loop took, in seconds, both without the first samples; `budget`: the share allowed.
        remarks: what could not be seen, and why.
        modules: how many the model has; `paused`: the loop waits, as the view was asked.
        ranks: over which the model lies: then what is said of a tensor is about this rank's part of it.
        knobs: what the user moves while it trains; their curves are among the scalars.
        watched: what is known of modules, parameters, optimizers and loss beside the numbers; the verdict rests on it.
        kept: what is kept for a fork; None where that was not asked for.
        forks: those that were made, the last ones at the end; one may still run. `refused`: why the last one that was asked for in the
            view could not be made, "" if it could.
    """

    title: str
    optimizer: str
    state: str
    steps: int
    samples: int
    inputs: int
    sampled: Ints
    seconds: float
    loop: float
    budget: float
    history: HistoryRecord
    units: tuple[UnitsRecord, ...] = ()
    neurons: NeuronsRecord | None = None
    scalars: tuple[ScalarRecord, ...] = ()
    alerts: tuple[Alert, ...] = ()
    verdict: Verdict = Verdict(())
    remarks: tuple[str, ...] = ()
    error: str = ""
    modules: int = 0
    paused: bool = False
    ranks: Ranks | None = None
    knobs: tuple[KnobRecord, ...] = ()
    watched: Watched = field(default_factory=Watched)
    kept: KeptRecord | None = None
    forks: tuple[ForkRecord, ...] = ()
    refused: str = ""

    @property
    def cost(self) -> float:
        """What the watch took, as a share of the loop's time."""
        return self.seconds / self.loop if self.loop else 0.0


def _mean(values: Floats) -> float:
    there = values[~np.isnan(values)]
    return float(there.mean(dtype=np.float64)) if len(there) else float("nan")


def part(record: WatchRecord, path: str) -> WatchRecord:
    """What a record says of one module, with its own parameters, or of one parameter."""
    history = record.history
    kept = [i for i, one in enumerate(history.series) if path in (one.path, _module(one))]
    columns = {name: column[:, kept] for name, column in history.columns.items()}
    series = tuple(history.series[i] for i in kept)
    since = None if history.bad_step is None else history.bad_step[kept]
    own = replace(history, series=series, columns=columns, bins=history.bins[:, kept], top=history.top[kept], bad_step=since)
    names = {path, *(one.path for one in series)}
    return replace(
        record,
        history=own,
        units=tuple(one for one in record.units if one.path == path),
        neurons=None,
        alerts=tuple(alert for alert in record.alerts if alert.path in names),
        scalars=(),
        verdict=Verdict(
            tuple(check for check in record.verdict.checks if check.path in names),
            tuple(one for one in record.verdict.findings if one.path in names),
        ),
    )


def _module(series: Series) -> str:
    return series.path if series.role in (ACTIVATION, GRADIENT) else series.path.rpartition(".")[0]
