"""What goes wrong, as soon as it is certain. Each alert states what it rests on; the thresholds stand here, in one place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import takewhile
from typing import Any

import numpy as np
import numpy.typing as npt

from modlab.records.finding import Fact, Remedy
from modlab.records.slots import COLUMNS
from modlab.records.watch import ACTIVATION, GRADIENT, PARAMETER, PARAMETER_GRADIENT, Alert, UnitsRecord
from modlab.watching.batched_statistics import Readings
from modlab.watching.findings import TINY
from modlab.watching.finiteness import NonFinite, is_plain, kind_of
from modlab.watching.sample import Sample
from modlab.watching.steps import Steps
from modlab.watching.units import Units
from modlab.watching.updates import MovedElsewhere
from modlab.watching.watch_index import WatchIndex, Weight
from modlab.watching.watched import GradientNorms

DEAD = 1_000
"""Inputs in a row on each of which a unit was zero, and its gradient too, before it is called dead."""

NARROW = 16
"""Units of a layer in which each of them counts. In a wider one some always come to fire on few inputs: none is said to starve, and
one is called dead after as many more inputs as there are more units."""

PAUSE, RARE = 3, 10
"""A unit that has fired before is dead when it is silent for so many times its longest silence up to then, and for so many times
the inputs that it took, on the average, to fire once."""

SINGLY = 4
"""Dead units of a layer that are told one by one; with more there is one alert for the layer."""

STARVING, FALLEN = 0.05, 2
"""A unit that fires on a smaller share of inputs than this, and so many times more rarely than at first, starves."""

WINDOW = 200
"""Inputs at least, at the beginning and at the end, that a starving unit is told from."""

ENDS = 2.5
"""So many windows at least, that the end is apart from the beginning."""

MORE = 1.1
"""The counts are judged again when they have grown by so much."""

SURE = 3
"""Standard errors that a share must be away from its threshold."""

SAMPLES = 10
"""Samples in a row in which something must hold that one step says nothing about: a first learning rate may be 0, a branch begin
at zero, an expert not be asked, and another optimizer have its turn in every fifth step."""

PATIENCE = 10
"""So many times more, for a parameter of an optimizer whose steps are not those that are looked at."""

VANISHED, EXPLODED = 1e-5, 1e4
"""The norm of the gradient at the first modules as a multiple of that at the last ones, beyond which it vanishes or explodes along
depth. Not the size of its numbers: of a picture each has a small gradient, and of what it comes from a great one."""

NOTHING = 1e-30
"""A gradient at the last modules below which there is none, and nothing to compare with."""

DEEP = 4
"""Modules with parameters from which on there is a depth."""

STUCK = 0.5
"""Share of elements with a gradient that do not move, in a 16-bit dtype; in others it must be nearly all, from the beginning."""

NEARLY_ALL = 0.95

SATURATED, SATURATED_AT_FIRST = 0.9, 2 / 3
"""Share of a tanh's, hardtanh's or sigmoid's outputs that lie within 2 % of its ends, where modules with parameters follow (the last one
of a model that is sure lies there too). A layer may come to that by learning, up to three quarters; one that was never below the
second share did not learn it."""

ONE_END = 0.05
"""Share at either end below which a sigmoid may be a gate, which is open or shut on purpose."""

ALIVE, HOLD, SLOW, DATA = Remedy("keep units alive"), Remedy("find the NaN"), Remedy("larger steps"), Remedy("look at the data")
HELD = Remedy("or leave it", "optimizer.add_param_group({'params': [...]})")
"""What helps where units die, a step was not kept, the rate is too small, a batch holds NaN, and no optimizer holds a parameter."""

BROKEN = frozenset(("nan", "inf", "not owned", "no gradient", "dead", "exploding"))
"""Kinds that mean that something is broken; others are a reason for care."""

HALF = ("bfloat16", "float16")
_BAD, _MEAN, _VAR = (COLUMNS.index(name) for name in ("bad", "mean", "var"))
Key = tuple[str, str, int | None]


def alert(kind: str, path: str, step: int, facts: Mapping[str, Fact], *fixes: Remedy, **how: Any) -> Alert:
    """An alert as bad as its kind usually is.

    Args:
        kind: one of `wording.ALERTS`, which makes the sentence of the facts.
        path: of the module or parameter.
        step: at which it was seen.
        facts: what it rests on.
        fixes: what helps, the best first.
        how: the other fields of an `Alert`.
    """
    return Alert(kind, path, facts, "broken" if kind in BROKEN else "careful", step, fixes=fixes, **how)


class Alerts:
    """Looks at each sample, and keeps what it found; an alert is never lost, and says so when it is over.

    Args:
        index: the parameters.
        steps: which know who holds these; `elsewhere`: which know what else moves them.
        units: that are counted, by module.
    """

    def __init__(self, index: WatchIndex, steps: Steps, elsewhere: MovedElsewhere, units: Mapping[str, Units]) -> None:
        self._index, self._steps, self._elsewhere, self._units = index, steps, elsewhere, units
        self._found: dict[Key, Alert] = {}
        self._running: dict[Key, int] = {}  # samples in a row
        self._parts: set[str] = set()  # whose gradients alone were not zeroed, in some samples
        self._born_saturated: dict[str, bool] = {}  # whether it was so in each sample
        self._counted = 0

    @property
    def alerts(self) -> list[Alert]:
        """In the order in which they came."""
        return [*self._found.values()]

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._found)

    def look(self, sample: Sample) -> None:
        """Judge one sample."""
        readings = sample.readings
        if readings is not None:
            self._bad(sample, readings)
            self._depth(sample, readings)
            self._stuck(sample)
        self._weights(sample)
        self._carry(sample)
        self._saturation(sample)
        self.counts(sample.step)

    def _saturation(self, sample: Sample) -> None:
        """Values at the ends of a function; a gate may be open or shut for all, a unit that has learnt may be sure."""
        for path, (low, high, gate) in sample.saturated.items():
            share = 0.0 if gate and min(low, high) < ONE_END else low + high
            born = self._born_saturated[path] = share > SATURATED_AT_FIRST and self._born_saturated.get(path, True)
            self._lasts(
                (born or share > SATURATED) and self._is_inside(path),
                "saturated",
                path,
                sample.step,
                {"share": share},
                Remedy("make it smaller"),
            )

    def _is_inside(self, path: str) -> bool:
        """Whether modules with parameters come after a module."""
        orders = {member.path: member.order for member in self._index.members.values()}
        return any(orders[deep] > orders[path] for deep in self._index.deep)

    def raise_(self, new: Alert) -> None:
        """Add an alert, or renew the one that is known."""
        key = new.kind, new.path, new.unit
        known = self._found.get(key)
        if known is None:
            self._found[key] = replace(new, last=max(new.last, new.step))
        else:
            self._found[key] = replace(
                known,
                facts=new.facts,
                steps=max(known.steps, new.steps),
                inputs=max(known.inputs, new.inputs),
                last=max(known.last, new.last, new.step),
                over=False,
                trace=known.trace or new.trace,
                units=new.units,
            )

    def has_seen_before(self, step: int) -> bool:
        """Whether a sample of an earlier step held what is not finite."""
        return any(one.kind in ("nan", "inf") and one.facts.get("seen") == "sample" and one.step < step for one in self._found.values())

    def _over(self, key: Key) -> None:
        known = self._found.get(key)
        if known is not None and not known.over:
            self._found[key] = replace(known, over=True)

    def _lasts(
        self, holds: bool, kind: str, path: str, step: int, facts: Mapping[str, Fact], *fixes: Remedy, samples: int = SAMPLES
    ) -> None:
        """Raise an alert when something has held for some samples in a row."""
        key = kind, path, None
        self._running[key] = self._running.get(key, 0) + 1 if holds else 0
        if self._running[key] >= samples:
            self.raise_(alert(kind, path, step, facts, *fixes, steps=self._running[key]))
        elif not holds:
            self._over(key)

    # ---- numbers that are none

    def _bad(self, sample: Sample, readings: Readings) -> None:
        """The first place alone: whatever comes after it is not finite because of it."""
        bad = np.flatnonzero(readings.columns[_BAD] > 0)
        if not len(bad):
            self._healed(sample, readings)
            return
        still = {row for weight in self._index.weights if not weight.trainable for row in weight.rows}
        bad = np.array([i for i in bad.tolist() if int(readings.rows[i]) not in still], np.intp)  # a mask may be a parameter
        series = [self._index.history.series[row] for row in readings.rows[bad].tolist()]
        spoilt = [one.role in (PARAMETER, PARAMETER_GRADIENT) for one in series]
        if sample.thrown and not any(spoilt):
            return  # a scaler saw it, and the step that was made was another one
        spoilt += [not one.path and bool(nan) for one, nan in zip(series, readings.nan[bad], strict=True)]
        if not any(spoilt):
            return  # a mask may hold infinities on purpose, and scores be masked; what counts is whether the gradients suffer
        if not sample.stepped and all(one.role in (GRADIENT, PARAMETER_GRADIENT) for one in series):
            return  # a scaler saw it, and skipped the step
        for kind, some in (("nan", readings.nan[bad]), ("inf", ~readings.nan[bad])):
            if some.any() and not any(alert.kind in ("nan", "inf") for alert in self._found.values()):
                at = int(np.flatnonzero(some)[0])
                one, count = series[at], int(readings.columns[_BAD, bad[at]])
                facts: dict[str, Fact] = {"seen": "sample", "where": "", "role": one.role, "bad": count, "numbers": one.count}
                path, given = one.path, sample.shared.clues.spoilt(sample.step) if one.role == ACTIVATION else (0, 0)
                if given[0]:  # before any module took it
                    path, facts = "", {**facts, "where": "the batch", "bad": given[0], "numbers": given[1]}
                self.raise_(alert(kind, path, sample.step, facts, *(DATA,) * bool(given[0]), steps=1))

    def _healed(self, sample: Sample, readings: Readings) -> None:
        """All was finite in a step that was made, the parameters too: what held NaN before did not come to stay."""
        known = [key for key, alert in self._found.items() if alert.kind in ("nan", "inf") and not alert.over]
        series = self._index.history.series
        if known and sample.stepped and sample.whole and any(series[row].role == PARAMETER for row in readings.rows.tolist()):
            for key in known:
                self._over(key)

    def weights_at_the_end(self, last_sample: int, passed: NonFinite | None) -> None:
        """Whether the weights are still numbers, in case that a NaN came after the last sample.

        Args:
            last_sample: the step of that.
            passed: what is known of a step in which nobody looked for one.
        """
        if any(alert.kind in ("nan", "inf") for alert in self._found.values()):
            return
        for weight in self._index.weights:
            tensor = weight.tensor()
            kind = kind_of(tensor.detach()) if tensor is not None and is_plain(tensor) else ""
            if kind == "nan" or (kind and weight.trainable):
                facts: dict[str, Fact] = {"seen": "end", "where": "", "sampled": last_sample, **(passed.facts if passed else {})}
                self.raise_(alert(kind, weight.path, passed.step if passed else max(self._steps.made - 1, 0), facts, HOLD))
                return

    # ---- units

    def counts(self, step: int) -> None:
        """Judge the counts of units when they have grown enough, and there are as many as it takes."""
        seen = [units.seen for units in self._units.values()]
        if sum(seen) > MORE * self._counted and max(seen) >= ENDS * WINDOW:
            self.units(step)

    def units(self, step: int) -> None:
        """Judge the counts of units."""
        for units in self._units.values():
            units.count_pending()
        self._counted = sum(units.seen for units in self._units.values())
        for units in self._units.values():
            record = units.record()
            seen = min(step, int(record.last[-1])) if len(record.last) else step  # what they did in later steps is not known
            gone = dead(units).tolist()
            self._dead(units, gone, seen)
            if units.count <= NARROW:
                self._starving(units, record, gone, seen)

    def _dead(self, units: Units, gone: list[int], step: int) -> None:
        """One by one, or when they are many as one alert for the layer."""
        path, known = units.path, self._alerted("dead", units.path)
        if units.count > NARROW and (len(gone) > SINGLY or ("dead", path, None) in known):
            self._dead_together(units, gone, step)
            return
        for unit in gone:
            silent, fired = int(units.silent[unit]), int(units.fired[unit])
            self.raise_(alert("dead", path, step, {"inputs": silent, "fired": fired}, ALIVE, unit=unit, inputs=silent))
        for key in known:
            if key[2] not in gone:
                self._over(key)

    def _dead_together(self, units: Units, gone: list[int], step: int) -> None:
        path = units.path
        alone = [self._found.pop(key) for key in self._alerted("dead", path) if key[2] is not None]
        if not gone:
            self._over(("dead", path, None))
            return
        inputs = int(units.silent[gone].min())
        first = min([step, *(one.step for one in alone)])
        self.raise_(alert("dead", path, first, {"units": units.count, "inputs": inputs}, ALIVE, inputs=inputs, units=tuple(gone)))

    def _starving(self, units: Units, record: UnitsRecord, gone: list[int], step: int) -> None:
        now = {unit: rest for unit, *rest in starving(units, record) if unit not in gone}
        for unit, (before, after, inputs) in now.items():
            facts: dict[str, Fact] = {"share": float(after), "before": float(before)}
            self.raise_(alert("starving", units.path, step, facts, Remedy("let rare units learn"), unit=unit, inputs=int(inputs)))
        for key in self._alerted("starving", units.path):
            starved = key[2]
            if starved is not None and starved not in now and (starved in gone or _share(record, starved) > STARVING):
                self._over(key)

    def _alerted(self, kind: str, path: str) -> list[Key]:
        return [key for key in self._found if key[:2] == (kind, path)]

    # ---- gradients and steps

    def _weights(self, sample: Sample) -> None:
        index = self._index
        if not sample.backwards or not sample.stepped:
            return
        felt = any(weight.felt for weight in index.weights)
        others = self._held_by_others()
        for weight in index.weights:
            if not weight.trainable:
                continue
            # what no optimizer holds, and has no gradient, is not trained
            known = weight.owned and weight.path not in self._elsewhere.paths
            none = felt and not weight.felt and known
            if none or self._found.get(("no gradient", weight.path, None)):
                patience = PATIENCE if weight.path in others else 1
                taken = sample.shared.clues.is_taken(weight.path)  # then a trace, which ends before, has no answer
                self._lasts(
                    none,
                    "no gradient",
                    weight.path,
                    sample.step,
                    {"called": self._is_called(weight), **({"taken": True} if taken else {})},
                    *(() if taken else (Remedy("ask why"),)),
                    samples=SAMPLES * patience,
                )
            lost = bool(self._steps.optimizer_name and weight.felt) and not weight.owned and weight.path not in self._elsewhere.paths
            if lost or self._found.get(("not owned", weight.path, None)):
                self._lasts(
                    lost,
                    "not owned",
                    weight.path,
                    sample.step,
                    {"optimizer": self._steps.optimizer_name},
                    HELD,
                )

    def look_at_owners(self) -> None:
        """What an optimizer has taken up since is owned."""
        owned = {weight.path for weight in self._index.weights if weight.owned}
        for key in [*self._found]:
            if key[0] == "not owned" and key[1] in owned:
                self._over(key)

    def _held_by_others(self) -> set[str]:
        """Parameters of optimizers whose steps are not those that are counted."""
        others = [optimizer for optimizer in self._steps.optimizers if not self._steps.are_of(optimizer)]
        held = [tensor for optimizer in others for group in optimizer.param_groups for tensor in group["params"]]
        return {weight.path for weight in map(self._index.weight, held) if weight is not None}

    def _is_called(self, weight: Weight) -> bool:
        """Whether its module was ever called; True where that is not known."""
        owner = weight.owner()
        member = None if owner is None else self._index.members.get(id(owner))
        return member is None or member.called > 0

    def _carry(self, sample: Sample) -> None:
        if not (sample.accumulates and sample.stepped):  # what a backward pass brings, and nobody uses, may be thrown away later
            return
        self._carries(sample, "", holds=sample.carried)
        parts = set() if sample.carried else {_place_of(some) for some in sample.unzeroed}
        self._parts |= parts
        for path in self._parts:
            self._carries(sample, path, holds=path in parts)

    def _carries(self, sample: Sample, path: str, *, holds: bool) -> None:
        by_hand = {} if self._steps.optimizer_name else {"by hand": True}
        self._lasts(holds, "not zeroed", path, sample.step, by_hand, Remedy("zero the gradients"), samples=3)

    def _depth(self, sample: Sample, readings: Readings) -> None:
        """The gradient at the first modules against that at the last ones."""
        history, wanted = self._index.history, self._index.deep
        if len(wanted) < DEEP:
            return
        sizes: dict[str, float] = {}
        for i, row in enumerate(readings.rows.tolist()):
            one = history.series[row]
            if one.role == GRADIENT and one.path in wanted:
                mean, var = float(readings.columns[_MEAN, i]), float(readings.columns[_VAR, i])
                sizes[one.path] = float(np.sqrt((mean * mean + var) * one.count))
        order = [path for path in wanted if path in sizes]
        if len(order) < DEEP:
            return
        third = max(1, len(order) // 3)
        first, last = (float(np.median([sizes[path] for path in some])) for some in (order[:third], order[-third:]))
        ratio = first / last if last > NOTHING else float("nan")
        later = max(sizes[path] for path in order[len(order) // 2 :])  # one of several ends may be that from which a large gradient comes
        for kind, holds in (("vanishing", ratio < VANISHED), ("exploding", ratio > EXPLODED and first > later)):
            self._lasts(holds, kind, order[0], sample.step, {"first": first, "last": last}, Remedy("carry the gradient"))

    def _stuck(self, sample: Sample) -> None:
        gradients = GradientNorms(self._index)
        for weight in self._index.weights:
            share = sample.stuck.get(weight.rows[2])
            if share is None or share != share:
                continue
            half = weight.dtype in HALF
            weight.stuck = share if weight.stuck is None else 0.8 * weight.stuck + 0.2 * share
            weight.always_stuck &= share > NEARLY_ALL
            holds = share > STUCK if half and self._steps.learning_rate() else weight.moved and weight.always_stuck
            if holds and (gradients.cancelled(weight) is not None or weight.path in self._elsewhere.paths):
                continue  # what has a copy with more digits, as where that is stepped and copied back, loses no step
            if holds or ("rounding", weight.path, None) in self._found:
                self._lasts(
                    holds,
                    "rounding",
                    weight.path,
                    sample.step,
                    {"share": share, "dtype": weight.dtype},
                    *((Remedy("more bits"),) if half else _faster(weight, gradients)),
                )


def _faster(weight: Weight, gradients: GradientNorms) -> tuple[Remedy, ...]:
    """A greater learning rate, where that is what lacks: not where its gradient is next to nothing beside others."""
    return (SLOW,) if gradients.size(weight) > TINY * gradients.most else ()


def dead(units: Units) -> npt.NDArray[np.intp]:
    """The units that are dead, as far as can be told: silent for long, by their own measure too, and without a gradient."""
    fired = units.fired
    spacing = (units.seen - units.silent) / np.maximum(fired, 1)
    least = DEAD * max(1.0, units.count / NARROW)
    wanted = np.maximum(least, np.where(fired > 0, np.maximum(PAUSE * units.longest, RARE * spacing), 0))
    return np.flatnonzero((units.silent >= wanted) & units.flat & (units.felt > 0))


def starving(units: Units, record: UnitsRecord | None = None) -> Iterator[tuple[int, float, float, int]]:
    """Units that fire ever more rarely: number, share at first, share now, and the inputs that this rests on."""
    record = record or units.record()
    ends = _ends(record.inputs)
    if ends is None:
        return
    head, tail = ends
    early, late = int(record.inputs[:head].sum()), int(record.inputs[tail:].sum())
    first, last = record.fired[:head].sum(axis=0), record.fired[tail:].sum(axis=0)
    upper = last + np.sqrt(last + 1.0)  # one standard error: that it fell is what must be sure
    lower = first - SURE * np.sqrt(first + 1.0)
    falls = (upper < STARVING * late) & (lower / early > FALLEN * last / late) & (units.silent < DEAD)
    for unit in np.flatnonzero(falls & (first > 0)).tolist():
        yield unit, first[unit] / early, last[unit] / late, early + late


def _share(record: UnitsRecord, unit: int) -> float:
    """Of the last inputs, those on which a unit fires."""
    ends = _ends(record.inputs)
    tail = len(record.inputs) // 2 if ends is None else ends[1]
    return int(record.fired[tail:, unit].sum()) / max(int(record.inputs[tail:].sum()), 1)


def _ends(inputs: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> tuple[int, int] | None:
    """How many windows make the beginning, a fifth of all inputs, and where the end begins, a tenth of them; `WINDOW` each at least.

    The end is the shorter one: when enough is known, inputs are counted more rarely, and reach further back.
    """
    total = int(inputs.sum())
    early, late = max(WINDOW, total // 5), max(WINDOW, total // 10)
    if total < ENDS * early:
        return None
    sums = np.cumsum(inputs)
    head = int(np.searchsorted(sums, early)) + 1
    tail = int(np.searchsorted(sums, total - late, side="right"))
    return (head, tail) if head <= tail < len(inputs) else None


def _place_of(weights: list[Weight]) -> str:
    """What parameters lie in; the first of them, where that is the whole model."""
    owners = [weight.path.split(".")[:-1] for weight in weights]
    shared = takewhile(lambda names: len(set(names)) == 1, zip(*owners, strict=False))
    return ".".join(names[0] for names in shared) or weights[0].path
