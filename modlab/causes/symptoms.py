"""Symptoms of a training: what its record says of the loss, the gradients and the weights, as single numbers that the table asks for."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt

from modlab.records.clues import GroupClues, InputClues, LossClues, ModuleClues, Numbers, Term
from modlab.records.loss import losses
from modlab.records.slots import Floats
from modlab.records.watch import ACTIVATION, GRADIENT, PARAMETER, PARAMETER_GRADIENT, UPDATE, Alert, ScalarRecord, WatchRecord
from modlab.records.watched import WatchedParameter

STUCK, BURST = 0.15, 1.5
"""A loss is stuck when it has come by less than that share from the best constant answer towards 0; and it has burst beyond so many
times where it began and what that answer gives."""

WILD = 1e4
"""Times the loss of a constant answer at which none begins whose numbers are of usual size."""

ROUNDED, OF_CHANCES = 1e-9, 1e-6
"""What a constant answer leaves of targets that are all the same; and in a cross-entropy, where a chance is a little less than 1."""

OF_LOGARITHMS = 1e-3
"""How far from 1 the probabilities of a likelihood may add up, as a logarithm."""

OF_OUTLIERS = 0.8
"""Part of the loss of a constant answer that a few outliers make, beyond which no progress is seen: nothing tells these."""

SERVED, NEARLY_ALL = 0.4, 0.9
"""Progress with which the units that are left serve a loss, of which it need not be known how far it can fall; dead ones beyond which
none are left."""

FEW = 5
"""Values of a loss that say nothing about where it goes."""

EARLY, LONG = 10, 20
"""Steps after which numbers say something; and after which one may ask why a loss does not fall if nothing sure explains it."""

LEAPT = 100.0
"""Times what a loss began at beyond which it has been where no batch alone takes it."""

ALREADY = 0.1
"""Part of the loss of a constant answer below which a model has learned already."""

BLOWN_UP = 30.0
"""Times their norm at first to which no training takes all weights that is well."""

CLEARLY, A_TENTH = 4.0, 0.1
"""Standard errors, and part of its value, by which a loss has to be lower for it to be no chance."""


class Symptoms:
    """What a record says, by name.

    Args:
        record: of a watch.
    """

    def __init__(self, record: WatchRecord) -> None:
        self.record, self.watched = record, record.watched
        self.clues = record.watched.clues
        self.loop, self.groups, self.pairs = self.clues.loop, self.clues.groups, self.clues.pairs

    @cached_property
    def is_training(self) -> bool:
        """Whether this is one, or is meant to be: there is an optimizer, a step, or a loss that goes backward; or it ended in an error."""
        record, loop = self.record, self.loop
        return bool(record.optimizer or record.steps or loop.backwards or loop.rootless or self.clues.losses or record.error)

    @cached_property
    def made(self) -> int:
        """Steps, or losses, if there are several in a step, as a closure asks for them."""
        return max(self.record.steps, *(one.count for one in self.curves), 0)

    @cached_property
    def is_bystander(self) -> bool:
        """Whether it is another model that trains, with this one beside it, as one that follows does."""
        return self.watched.feeds_others and not self.watched.passes

    @cached_property
    def is_never_run(self) -> bool:
        """Whether nothing of the model is called, or gets a gradient."""
        known = self.watched
        used = known.passes or known.evaluated or known.opaque or any(one.called for one in known.modules)
        return not used and not any(one.felt or one.elsewhere for one in known.parameters)

    # ---- the loss

    @cached_property
    def curves(self) -> tuple[ScalarRecord, ...]:
        """What may be the loss; none where two play against each other, for then a loss says nothing by itself."""
        return () if self.plays else losses(self.record)

    @cached_property
    def plays(self) -> bool:
        """Whether several losses are stepped by optimizers of their own, as those of a generator and a discriminator."""
        return len(self.loop.optimizers) > 1 and len(self.clues.losses) > 1 and not self.loop.shared

    @cached_property
    def curve(self) -> ScalarRecord | None:
        """The loss, if it is one."""
        return self.curves[0] if len(self.curves) == 1 and self.curves[0].count else None

    @cached_property
    def loss(self) -> LossClues:
        """What the graph of the loss says: of several the one with a criterion."""
        some = sorted(self.clues.losses, key=lambda one: (not one.term.criterion, -one.looks))
        return some[0] if some else LossClues()

    @cached_property
    def values(self) -> npt.NDArray[np.float64]:
        """The finite values of the loss."""
        some = self.curve.mean if self.curve is not None else np.zeros(0)
        return np.asarray(some[np.isfinite(some)], np.float64)

    @cached_property
    def first(self) -> float:
        """The first values."""
        return self.curve.ends()[0] if self.curve is not None else math.nan

    @cached_property
    def last(self) -> float:
        """The last ones."""
        return self.curve.ends()[1] if self.curve is not None else math.nan

    @cached_property
    def start(self) -> float:
        """The very first value."""
        return float(self.values[0]) if len(self.values) else math.nan

    @cached_property
    def least(self) -> float:
        """The least value."""
        return float(self.values.min()) if len(self.values) else math.nan

    @cached_property
    def most(self) -> float:
        """The greatest finite value; NaN if there is none."""
        some = self.curve.high if self.curve is not None else np.zeros(0)
        return float(some[np.isfinite(some)].max(initial=-math.inf)) if len(self.values) else math.nan

    @cached_property
    def is_finite(self) -> bool:
        """Whether every value of the loss is a number."""
        return all(not one.nan + one.inf for one in losses(self.record))

    @cached_property
    def birth(self) -> Alert | None:
        """The first alert of what is not a number."""
        return next((one for one in self.record.alerts if one.kind in ("nan", "inf")), None)

    @cached_property
    def passes(self) -> float:
        """The backward passes that a value is the sum of, each with the loss that `loss` tells of."""
        return max(1.0, self.curve.passes) if self.curve is not None and len(self.clues.losses) == 1 else 1.0

    @cached_property
    def baseline(self) -> float:
        """The loss of the best answer that does not look at the input; where that is not known, the first one."""
        if not self.has_baseline:
            return self.start
        return self.passes * self.loss.baseline * sum(abs(one.factor) for one in self._parts) / abs(self._parts[0].factor)

    @cached_property
    def _parts(self) -> tuple[Term, ...]:
        """The terms that compare the same scores by the same criterion, as of two labels that are mixed."""
        first = self.loss.term
        mixed = first.criterion == "cross-entropy" and first.factor > 0 and bool(first.output)
        alike = [
            one
            for one in self.loss.terms[1:]
            if mixed and (one.criterion, one.source, one.output) == (first.criterion, first.source, first.output) and one.factor > 0
        ]
        return first, *alike

    @cached_property
    def has_baseline(self) -> bool:
        """Whether it is known: of a loss of one criterion."""
        beside = [one for one in self.loss.terms[1:] if one not in self._parts]
        if not self.loss.term.factor:
            return False
        if any(one.criterion not in ("", "penalty") or any(two.name == "LogSoftmax" for two in one.functions) for one in beside):
            return False  # several criteria, or smoothed labels
        known = self.start == self.start and self._rounded == ROUNDED
        return self.loss.baseline > (1e-12 * abs(self.start) if known else self._rounded)

    @cached_property
    def chance(self) -> float:
        """The loss of a guess among all classes alike, of a cross-entropy and nothing beside it, or of two, as in BPR's; NaN of another."""
        alone, term = bool(self.loss.terms) and len(self.clues.losses) == 1, self.loss.term
        if alone and len(self.loss.terms) == 1 and (term.node, term.reduction) == ("LogSigmoid", "mean") and term.factor < 0:
            return self.passes * -term.factor * math.log(2)
        alone &= self.loss.classes > 1
        known = "cross-entropy", *(["likelihood"] if self.loss.unnormalized < OF_LOGARITHMS else [])
        if not alone or any(one.criterion not in known or one.reduction != "mean" or one.factor <= 0 for one in self.loss.terms):
            return math.nan
        chance = self.passes * math.log(self.loss.classes) * sum(one.factor for one in self.loss.terms)
        return chance if self.passes * self.loss.floor < chance / 2 else math.nan  # shares that are nearly even ask for no more than that

    @cached_property
    def constant(self) -> float:
        """The loss of a constant answer, or of a guess; NaN where neither is known."""
        return self.baseline if self.has_baseline else self.chance

    @cached_property
    def begins_low(self) -> bool:
        """Whether little of that was left when the watch began: what little is left to learn brings little of a gradient."""
        return self.start < ALREADY * self.constant

    @cached_property
    def _rounded(self) -> float:
        return OF_CHANCES if "entropy" in self.loss.term.criterion else ROUNDED

    @cached_property
    def floor(self) -> float:
        """The loss of a perfect answer."""
        return self.passes * self.loss.floor if self.has_baseline else 0.0

    @cached_property
    def progress(self) -> float:
        """The way from the baseline to a perfect answer that the loss has gone; NaN where that is no way for it."""
        return self._way_to(self.last)

    @cached_property
    def hope(self) -> float:
        """The same of the second half of its values, less two standard errors: one batch may be a hard one."""
        half = self.values[len(self.values) // 2 :]
        return self._way_to(float(half.mean() - 2 * half.std() / math.sqrt(len(half)))) if len(half) else math.nan

    @cached_property
    def lately(self) -> float:
        """The same of the mean of the second half of its values."""
        half = self.values[len(self.values) // 2 :]
        return self._way_to(float(half.mean())) if len(half) else math.nan

    @cached_property
    def below(self) -> float:
        """By how many of its own standard errors the second half of its values lies below a constant answer; 0 where that is not known."""
        half = self.values[len(self.values) // 2 :]
        if len(half) < FEW or not self.has_baseline:
            return 0.0
        error = float(half.std(ddof=1)) / math.sqrt(len(half))
        return (self.baseline - float(half.mean())) / error if error > 0 else 0.0

    def _way_to(self, value: float) -> float:
        way = self.baseline - self.floor
        if self.loss.outliers > OF_OUTLIERS or not (self.baseline > 0 and way > 0) or not math.isfinite(value) or self.least < self.floor:
            return math.nan
        return 1 - (value - self.floor) / way

    @cached_property
    def fallen(self) -> float:
        """The share of its first value by which it fell."""
        return 1 - self.last / self.start if self.start > 0 and math.isfinite(self.last) else math.nan

    @cached_property
    def has_burst(self) -> bool:
        """Whether it ends as NaN or infinity, or far above where it began and what a constant answer gives; one hard batch is no end."""
        if self.curve is not None and not math.isfinite(self.curve.final):
            return True
        if not (self.start > 0 and self.last > BURST * self.high):
            return False
        return float(np.median(self.values[-max(FEW, len(self.values) // 4) :])) > self.high

    @cached_property
    def high(self) -> float:
        """What it is compared with where it rises: what it began at, and what a constant answer gives.

        One that goes both ways may begin near 0 by chance: how far it went below tells of its size.
        """
        return max(self.start, self.baseline, 0.0 if self.has_baseline else -self.least)

    @cached_property
    def is_wild(self) -> bool:
        """Whether it has burst, became NaN or infinite, or begins so far above a constant answer that only numbers that grow explain it."""
        return self.has_burst or not self.is_finite or self.begins_wild

    @cached_property
    def leap(self) -> float:
        """How many times what it is compared with it has been at most."""
        return self.most / self.high if self.high > 0 else 0.0

    @cached_property
    def has_leapt(self) -> bool:
        """Whether it has been where no hard batch takes it, though it may have come back."""
        return self.leap > LEAPT

    @cached_property
    def begins_wild(self) -> bool:
        """Whether it begins so far above a constant answer; of targets that are constant themselves that answer says nothing."""
        known = self.loss.baseline > self._rounded
        return self.start > 0 and self.start > WILD * (self.passes * self.loss.baseline if known else self.baseline)

    @cached_property
    def is_stuck(self) -> bool:
        """Whether it does not get below a constant answer."""
        return len(self.values) >= FEW and (self.progress < STUCK or self.has_burst)

    @cached_property
    def learns(self) -> bool:
        """Whether it falls well."""
        return self.progress > 0.5 or (math.isnan(self.progress) and self.fallen > 0.5)

    @cached_property
    def gains(self) -> bool:
        """Whether what goes backward is a gain, up which each step goes on purpose: a criterion with a minus, or none that is known.

        An error that is climbed has no end.
        """
        known = [one for one in self.loss.terms if one.criterion not in ("", "penalty")]
        if not self.groups or not all(one.maximize for one in self.groups) or any(one.factor > 0 for one in known):
            return False
        return bool(known) or not (self.has_leapt or not self.is_finite)

    @cached_property
    def trained(self) -> bool:
        """Whether all steps that were looked at were made in training mode."""
        return self.watched.passes > 0 and not self.loop.in_eval

    @cached_property
    def falls(self) -> bool:
        """Whether it is lower in its second half than in its first fifth, by more than its noise explains.

        What falls most in its first steps varies there for that reason: it is lower, too, if all of its second half is.
        """
        before, after = self.values[: max(len(self.values) // 5, FEW)], self.values[len(self.values) // 2 :]
        if len(after) < FEW:
            return False
        usual = float(np.median(before))
        if after.max() < usual - A_TENTH * abs(usual):
            return True
        gap, noise = float(before.mean() - after.mean()), math.sqrt(float(before.var()) / len(before) + float(after.var()) / len(after))
        return gap > CLEARLY * noise and gap > A_TENTH * abs(float(before.mean()))

    @cached_property
    def is_recurrent(self) -> bool:
        """Whether a layer carries a state from step to step."""
        return bool(self.modules("recurrent"))

    @cached_property
    def waits(self) -> bool:
        """Whether it stays at what a constant answer gives for its first quarter, and then falls well, where a state is carried.

        What tells the target has to be remembered before it tells anything; a column of a table is there at once.
        """
        early = self.values[: len(self.values) // 4]
        found = self.is_recurrent and self.has_baseline and len(early) >= FEW
        return found and self.progress > 0.5 and self._way_to(float(early.min())) < STUCK

    @cached_property
    def is_sick(self) -> bool:
        """Whether it is stuck, burst or no number."""
        return self.is_stuck or not self.is_finite

    def category(self, path: str | None) -> str:
        """Of a module, as in its tree."""
        return next((one.category for one in self.watched.modules if one.path == path), "")

    # ---- weights

    def _norms(self, role: str) -> dict[str, Floats]:
        history = self.record.history
        return {one.path: history.norm(row) for row, one in enumerate(history.series) if one.role == role}

    def row(self, column: str, role: str, path: str) -> Floats:
        """A column of one row of the history, by look."""
        history = self.record.history
        rows = [row for row, one in enumerate(history.series) if (one.role, one.path) == (role, path)]
        return history.columns[column][:, rows[0]] if rows else np.zeros(0, np.float32)

    @cached_property
    def gradients(self) -> dict[str, Floats]:
        """Norms of the gradients, by parameter."""
        return self._norms(PARAMETER_GRADIENT)

    @cached_property
    def weights(self) -> dict[str, Floats]:
        """Norms of the parameters."""
        return self._norms(PARAMETER)

    def changes(self, path: str) -> bool:
        """Whether the norm of a parameter became another one."""
        some = self.weights.get(path, np.zeros(0))
        some = some[np.isfinite(some)]
        return len(some) > 1 and float(some.min()) < float(some.max())

    @cached_property
    def updates(self) -> dict[str, Floats]:
        """Norms of what a step adds."""
        return self._norms(UPDATE)

    @cached_property
    def matrices(self) -> list[WatchedParameter]:
        """Parameters with several dimensions that should be trained."""
        return [one for one in self.watched.parameters if one.dimensions > 1 and one.trainable]

    @cached_property
    def is_half(self) -> bool:
        """Whether float16 computes some of the gradients, of which small ones are zero."""
        return "half" in self.loss.risks or any(one.dtype == "float16" for one in self.watched.parameters)

    @cached_property
    def paces(self) -> dict[str, float]:
        """By parameter, what a step adds as a share of its norm, in the middle of the looks."""
        found = {}
        for one in self.matrices or self._rows:
            update, weight = self.updates.get(one.path), self.weights.get(one.path)
            if update is None or weight is None:
                continue
            known = weight[np.isfinite(weight)]
            some = update[np.isfinite(update)]
            if len(some) and len(known) and known.max() > 0:
                found[one.path] = float(np.median(some) / np.median(known)) if np.median(known) > 0 else math.inf
        return found

    @cached_property
    def _rows(self) -> list[WatchedParameter]:
        """The largest parameters that should be trained, where none has several dimensions, and none that begins at zero."""
        sizes = {one.path: math.prod(self.shapes.get(one.path, ())) for one in self.watched.parameters if one.trainable}
        return [
            one
            for one in self.watched.parameters
            if sizes.get(one.path, 0) == max(sizes.values(), default=-1) and self.weights.get(one.path, np.zeros(1))[:1].all()
        ]

    @cached_property
    def pace(self) -> float:
        """The same of all: of the parameter in the middle."""
        return float(np.median([*self.paces.values()])) if self.paces else math.nan

    @cached_property
    def quickest(self) -> float:
        """The greatest."""
        return max(self.paces.values(), default=math.nan)

    @cached_property
    def leaps(self) -> dict[str, float]:
        """The same as a share of what they were at first, too: of weights that have become nothing, any step is a large part."""
        found = {}
        for path, pace in self.paces.items():
            known = self.weights[path]
            known = known[np.isfinite(known)]
            found[path] = pace * min(1.0, float(np.median(known) / known[0])) if known[0] > 0 and math.isfinite(pace) else pace
        return found

    @cached_property
    def last_pace(self) -> float:
        """The greatest part of its norm that a step added to a weight in the last look in which all were numbers."""
        found = []
        for one in self.matrices:
            update, weight = self.updates.get(one.path), self.weights.get(one.path)
            if update is not None and weight is not None and len(update) == len(weight):
                there = np.flatnonzero(np.isfinite(update) & np.isfinite(weight) & (weight > 0))
                found += [float(update[there[-1]] / weight[there[-1]])] if len(there) else []
        return max(found, default=math.nan)

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the parameters whose numbers are known."""
        return {one.path: tuple(one.shape) for one in self.record.history.series if one.role == PARAMETER}

    @cached_property
    def first_pace(self) -> float:
        """What the first step that was measured added to a matrix, as a share of its norm: of the matrix in the middle."""
        pairs = [(self.updates.get(one.path, np.zeros(0))[:1], self.weights.get(one.path, np.zeros(0))[:1]) for one in self.matrices]
        found = [float(update[0] / weight[0]) for update, weight in pairs if len(update) and len(weight) and weight[0] > 0]
        return float(np.median(found)) if found else math.nan

    @cached_property
    def has_adapters(self) -> bool:
        """Whether beside frozen matrices stand two narrow ones each, whose product has their shape: then they are frozen on purpose."""
        trained = {one.path: self.shapes.get(one.path, ()) for one in self.matrices}
        for one in self.watched.parameters:
            shape = self.shapes.get(one.path, ())
            if one.trainable or len(shape) != 2:
                continue
            around = (one.module or "").rpartition(".")[0]
            beside = [other for path, other in trained.items() if path.startswith(f"{around}.") and len(other) == 2]
            if any(low[0] < min(shape) and low[1] == shape[1] and (shape[0], low[0]) in beside for low in beside):
                return True
        return False

    @cached_property
    def is_blown_up(self) -> bool:
        """Whether the weights are many times as large as they were at first."""
        return self.resized() > BLOWN_UP

    def resized(self) -> float:
        """The norm of all weights at the end, as a share of what it was at first."""
        first = last = 0.0
        for one in self.matrices:
            norm = self.weights.get(one.path, np.zeros(0))
            norm = norm[np.isfinite(norm)]
            if len(norm) > 1:
                first, last = first + float(norm[0]) ** 2, last + float(norm[-1]) ** 2
        return math.sqrt(last / first) if first else math.nan

    def gradient(self, path: str) -> float:
        """The norm of a parameter's gradient, in the middle of the looks."""
        some = self.gradients.get(path, np.zeros(0))
        some = some[np.isfinite(some)]
        there = some[some > 0]  # where it is zero in some looks, what went backward there was another loss
        return float(np.median(there if len(there) else some)) if len(some) else math.nan

    def last_gradient(self, path: str) -> float:
        """The same at the last look at which there was one."""
        some = self.gradients.get(path, np.zeros(0))
        some = some[np.isfinite(some) & (some > 0)]
        return float(some[-1]) if len(some) else 0.0

    def zero_gradients(self, path: str) -> Floats:
        """Which share of a parameter's gradient was zero, by look."""
        some = self.row("zeros", PARAMETER_GRADIENT, path)
        return some[np.isfinite(some)]

    @cached_property
    def flow(self) -> list[tuple[str, float]]:
        """The norms of the matrices' gradients in the order of the modules' calls."""
        order = {one.path: one.order for one in self.watched.modules if one.called}
        some = [(order.get(one.module or "", 0), one.path) for one in self.matrices if one.path in self.gradients]
        return [(path, size) for _, path in sorted(some) if not math.isnan(size := self.gradient(path))]

    # ---- activations

    def activation(self, column: str) -> Iterator[tuple[str, float, float]]:
        """A column of the modules' outputs at the first and at the last look."""
        history = self.record.history
        for row, one in enumerate(history.series):
            if one.role == ACTIVATION:
                some = history.columns[column][:, row]
                some = some[np.isfinite(some)]
                if len(some):
                    yield one.path, float(some[0]), float(some[-1])

    @cached_property
    def output_gradients(self) -> dict[str, Floats]:
        """Norms of the gradients of the modules' outputs."""
        return self._norms(GRADIENT)

    # ---- optimizers

    @cached_property
    def rates(self) -> list[ScalarRecord]:
        """The curves of the learning rates."""
        return [one for one in self.record.scalars if one.kind == "rate" and one.count]

    @cached_property
    def rate(self) -> Floats:
        """The learning rate over time."""
        return self.rates[0].mean if self.rates else np.zeros(0, np.float32)

    def rate_at(self, step: int) -> float:
        """The learning rate at a step."""
        curve = self.rates[0]
        return float(curve.mean[max(int(np.searchsorted(curve.first, step, "right")) - 1, 0)])

    def rate_of_group_at(self, step: int) -> float:
        """The same of the largest group: where groups have their own, its last one; NaN where several optimizers move the same weights."""
        if self.loop.shared:
            return math.nan  # whose steps they were is not known
        return self.rate_at(step) if len(self.rates) == 1 else self.group.rate

    @cached_property
    def paced_rate(self) -> float:
        """The learning rate in the middle of the looks that `pace` is of; NaN where groups have their own, or it is not known."""
        updates = [some for some in self.updates.values() if len(some)]
        if len(self.rates) != 1 or not updates:
            return math.nan
        looked = self.record.history.first[np.isfinite(np.stack(updates)).any(0)]
        return float(np.median([self.rate_at(step) for step in looked])) if len(looked) else math.nan

    @cached_property
    def last_pace_of_all(self) -> float:
        """What a step of the last rate adds, as a step goes with its rate: most looks come early, where a rate may be on its way up."""
        grown = self.group.rate / self.paced_rate if self.paced_rate > 0 else math.nan
        return self.pace * max(grown, 1.0) if math.isfinite(grown) else self.pace

    @cached_property
    def is_turned_by_hand(self) -> bool:
        """Whether a knob has moved the learning rate."""
        return any(one.name == "lr" and one.moves for one in self.record.knobs)

    @cached_property
    def peak(self) -> int:
        """The first step of the loss's greatest finite value."""
        some = self.curve.high if self.curve is not None else np.zeros(0)
        return int(self.curve.first[np.where(np.isfinite(some), some, -np.inf).argmax()]) if self.curve is not None and len(some) else 0

    @cached_property
    def norm(self) -> ScalarRecord | None:
        """The norm before clipping."""
        return next((one for one in self.record.scalars if one.kind == "norm" and one.count), None)

    @cached_property
    def group(self) -> GroupClues:
        """The largest group of parameters."""
        return max(self.groups, key=lambda one: one.numbers, default=GroupClues())

    # ---- batches and modules

    @cached_property
    def inputs(self) -> list[InputClues]:
        """Floating-point inputs with several samples, but for targets, and for a state that the model gives back."""
        some = [one for one in self.clues.inputs if one.dtype.startswith(("float", "bfloat")) and one.shape]
        return [one for one in some if not (one.state or one.asked)]

    @cached_property
    def tokens(self) -> list[InputClues]:
        """Inputs of whole numbers, but for targets, and for the mask of ones and zeros that lies beside them."""
        some = [one for one in self.clues.inputs if one.dtype.startswith(("int", "uint")) and one.shape and not one.asked]
        told = {one.shape for one in some if not _is_mask(one)}
        return [one for one in some if not (_is_mask(one) and one.shape in told)]

    def modules(self, kind: str) -> list[ModuleClues]:
        """What is known about modules of a kind."""
        return [one for one in self.clues.modules if one.kind == kind]

    @cached_property
    def first_module(self) -> str:
        """The first module with parameters that is called."""
        owners = {one.module for one in self.watched.parameters}
        some = [one for one in self.watched.modules if one.called and one.path in owners]
        return min(some, key=lambda one: one.order).path if some else ""

    @cached_property
    def target(self) -> Numbers:
        """The targets of the loss."""
        return self.loss.targets

    @cached_property
    def ungraded(self) -> list[str]:
        """Parameters that should be trained and never had a gradient."""
        some = [one for one in self.watched.parameters if one.trainable and not one.felt and not one.elsewhere and one.owned]
        return [one.path for one in some if not self.changes(one.path)] if self.record.samples else []

    def are_biases(self, paths: Collection[str]) -> bool:
        """Whether these parameters are biases alone, beside weights that have a gradient."""
        felt = {one.module for one in self.watched.parameters if one.felt and one.dimensions > 1}
        biases = {one.path for one in self.watched.parameters if one.dimensions == 1 and one.module in felt}
        return bool(paths) and biases.issuperset(paths)

    @cached_property
    def flat(self) -> list[str]:
        """Parameters with several dimensions whose gradient was zero in each look."""
        return [one.path for one in self.matrices if one.is_flat]


def _is_mask(one: InputClues) -> bool:
    return one.numbers.low >= 0 and one.numbers.high <= 1
