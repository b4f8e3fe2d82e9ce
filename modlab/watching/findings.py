"""Findings of a watch beside the checks, and what it did not look at: facts, without a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from modlab.records.finding import Evidence, Fact, Finding, Remedy
from modlab.records.watch import PARAMETER_GRADIENT, ScalarRecord, WatchRecord
from modlab.records.watched import Watched, WatchedParameter
from modlab.watching.history import MOST
from modlab.watching.units import MOST as UNITS

HANDFUL, NARROW = 8, 16
"""Units of a layer below which each one counts, and of one that is not wide."""

LOST, LOST_OF_SOME, LOST_OF_MANY = 0.1, 0.3, 0.5
"""Share of a layer's units that must be dead before it counts as broken: of a few, of `NARROW` at most, of more. Less is a reason
for care: that a few of many die is usual, and the others do their work."""

OFTEN = 0.01
"""Share of a loss's values that must be no numbers before it counts as broken, where the last one is finite."""

TINY = 1e-3
"""Share of the norm of the greatest gradient below which a parameter that stands still is not helped by a greater learning rate."""

BIRTHPLACES = ("forward", "backward", "the loss", "the batch")
"""Where a NaN may be born; weights that hold one were spoilt by an earlier step."""

SKIPPED, NEARLY_ALL = 0.1, 0.9
"""Share of the steps that a gradient scaler may skip: it does so while it looks for its scale; and beyond which next to no step is made."""

GROWN, FEW = 1.2, 5
"""Times its least value that a loss on other data ends above it when the model learns by heart; and of how many values that is said."""

LOOKS = 10
"""Looks that it takes to say that something never got a gradient."""


def find(record: WatchRecord, loss: ScalarRecord | None) -> tuple[Finding, ...]:
    """All of them, in no order."""
    return (
        *_curves(record, loss),
        *_skipped(record),
        *_made_anew(record),
        *_by_heart(record, loss),
        *_dead(record),
        *_slices(record.watched),
        *_without_effect(record),
        *_unseen(record, loss),
    )


# ---- numbers that are none


def not_finite(record: WatchRecord, scalar: ScalarRecord, *, loss: bool) -> Finding | None:
    """How many of a curve's values were NaN or infinite, if any were; where the first was born is told by an alert, if that was seen."""
    bad = scalar.nan + scalar.inf
    if not bad:
        return None
    last = "nan" if scalar.final != scalar.final else "inf" if abs(scalar.final) == float("inf") else "finite"
    broken = loss and (last != "finite" or bad > OFTEN * scalar.count)
    return Finding(
        "loss not finite" if loss else "curve not finite",
        scalar.name,
        {"nan": scalar.nan, "inf": scalar.inf, "count": scalar.count, "last": last},
        "broken" if broken else "careful",
        scalar.bad_step,
        (Evidence("scalar", scalar.name),),
        _fixes(record, scalar) if broken else (),
    )


def _fixes(record: WatchRecord, scalar: ScalarRecord) -> tuple[Remedy, ...]:
    """What mends the place where it was born, if that was seen."""
    births = (one for one in record.alerts if one.facts.get("where") in BIRTHPLACES and one.step <= scalar.bad_step)
    born = next(births, None)
    return (Remedy("find the NaN"),) if born is None else born.fixes


def _curves(record: WatchRecord, loss: ScalarRecord | None) -> Iterator[Finding]:
    for scalar in record.scalars:
        if scalar.kind == "norm":  # that a scaler skips such a step is usual; else the gradients tell
            continue
        found = not_finite(record, scalar, loss=loss is not None and scalar.name == loss.name)
        if found is not None:
            yield found


def _skipped(record: WatchRecord) -> Iterator[Finding]:
    """Steps that a gradient scaler left out, where that is more than a search for its scale."""
    for scalar in record.scalars:
        if scalar.kind == "scale" and scalar.falls > max(LOOKS, SKIPPED * scalar.count):
            facts: dict[str, Fact] = {"skipped": scalar.falls, "first": float(scalar.high[0]), "last": scalar.final}
            endless = scalar.final < 1 and scalar.falls > NEARLY_ALL * scalar.count  # no scale is to blame for what overflows
            yield Finding(
                "steps skipped",
                "",
                facts,
                "broken" if endless else "careful",
                None,
                (Evidence("scalar", scalar.name),),
                (Remedy("no half"),),
            )


def _made_anew(record: WatchRecord) -> Iterator[Finding]:
    """An optimizer that remembers, made anew for nearly each step."""
    clues = record.watched.clues
    times, remembers = clues.loop.exchanged, any(group.momentum for group in clues.groups)
    if remembers and times >= max(LOOKS, NEARLY_ALL * record.steps):
        facts: dict[str, Fact] = {"times": times, "steps": record.steps, "optimizer": record.optimizer}
        yield Finding("optimizer made anew", "", facts, "careful", fixes=(Remedy("made once"),))


def _by_heart(record: WatchRecord, loss: ScalarRecord | None) -> Iterator[Finding]:
    """Losses on other data that rise again from their least, while the loss of the training goes on falling."""
    for scalar in record.scalars:
        if scalar.kind != "validation" or "loss" not in scalar.name.lower() or scalar.count < FEW or loss is None:
            continue
        mean = scalar.mean[np.isfinite(scalar.mean)]
        if len(mean) < FEW or mean.min() <= 0:
            continue
        at, noise = int(np.nanargmin(scalar.mean)), float(np.std(np.diff(mean[mean.argmin() :]))) if mean.argmin() < len(mean) - 2 else 0.0
        least, last, step = float(mean.min()), scalar.ends()[1], int(scalar.first[at])
        then, now = _value_at(loss, step), loss.ends()[1]
        if last > GROWN * least and last - least > 2 * noise and now < then:
            facts: dict[str, Fact] = {"least": least, "last": last, "then": then, "now": now}
            yield Finding("by heart", scalar.name, facts, "careful", step, (Evidence("scalar", scalar.name),), (Remedy("less by heart"),))


def _value_at(curve: ScalarRecord, step: int) -> float:
    return float(curve.mean[max(int(np.searchsorted(curve.first, step, "right")) - 1, 0)])


# ---- units and slices


def _dead(record: WatchRecord) -> Iterator[Finding]:
    """For each layer, its dead units: what the alerts say, one by one or together."""
    for units in record.units:
        mine = [alert for alert in record.alerts if alert.kind == "dead" and alert.path == units.path and not alert.over]
        if not mine:
            continue
        which = mine[0].units if mine[0].unit is None else tuple(alert.unit for alert in mine if alert.unit is not None)
        count = units.fired.shape[1]
        lost = LOST if count < HANDFUL else LOST_OF_SOME if count <= NARROW else LOST_OF_MANY
        facts: dict[str, Fact] = {
            "dead": len(which),
            "units": count,
            "which": tuple(sorted(which)),
            "inputs": min(alert.inputs for alert in mine),
        }
        until = int(units.last[-1])
        if until < record.steps - 1:
            facts["until"] = until
        yield Finding(
            "dead units",
            units.path,
            facts,
            "broken" if len(which) / count > lost else "careful",
            min(alert.step for alert in mine),
            (Evidence("units", units.path),),
            (Remedy("keep units alive"),),
        )


def _slices(watched: Watched) -> Iterator[Finding]:
    """Of stacked weights, as experts have them, the slices that nothing ever reached."""
    for one in watched.parameters:
        if not one.unfelt or one.looks < LOOKS or len(one.unfelt) == one.slices or not one.trainable:
            continue
        facts: dict[str, Fact] = {"which": one.unfelt, "slices": one.slices, "looks": one.looks}
        evidence = (Evidence("series", one.path, PARAMETER_GRADIENT),)
        yield Finding("slices without a gradient", one.path, facts, "careful", None, evidence, (Remedy("route tokens"),))


# ---- parameters without an effect


def _without_effect(record: WatchRecord) -> Iterator[Finding]:
    if record.samples < LOOKS:
        return
    for one in record.watched.parameters:
        if not (one.trainable and one.felt >= LOOKS) or one.part or one.cancelled is None:  # of a part of a bias, no norm is told
            continue
        evidence = (Evidence("series", one.path, PARAMETER_GRADIENT),)
        norm, sizes = _norm_after(record.watched, one), one.cancelled
        facts: dict[str, Fact] = {"gradient": sizes.gradient, "beside": sizes.beside, "other": sizes.other, "norm": norm}
        fixes = (Remedy("drop the bias"),) if norm and one.name == "bias" else ()
        yield Finding("cancelled", one.path, facts, "note", None, evidence, fixes)
    for one in unseen_shifts(record.watched):
        if one.felt >= LOOKS:
            evidence = (Evidence("series", one.path, PARAMETER_GRADIENT),)
            told: dict[str, Fact] = {
                "looks": one.felt,
                "norm": _norm_after(record.watched, one),
                "losses": len(record.watched.clues.losses),
            }
            yield Finding("zero gradient", one.path, told, "note", None, evidence)


def unseen_shifts(watched: Watched) -> list[WatchedParameter]:
    """Biases with a gradient of exactly zero beside a weight whose gradient is not: the loss does not see such a shift, as of a critic."""
    weights = [one.module for one in watched.parameters if one.graded and "bias" not in one.name and one.module is not None]
    graded = {module.partition(".parametrizations.")[0] for module in weights}
    biases = (one for one in watched.parameters if one.trainable and one.is_flat and "bias" in one.name and not one.part)
    return [one for one in biases if one.module in graded]


def _norm_after(watched: Watched, parameter: WatchedParameter) -> str:
    """The normalization that is called right after a parameter's module."""
    order = next((one.order for one in watched.modules if one.called and one.path == parameter.module), None)
    after = (one for one in watched.modules if order is not None and one.called and one.order == order + 1)
    return next((one.path for one in after if one.category == "norm"), "")


# ---- what was not looked at


def unseen_loss(record: WatchRecord, curves: Sequence[ScalarRecord]) -> dict[str, Fact]:
    """What is known where the loss is not: which curves may be it, and whether another rank has it."""
    stage: dict[str, Fact] = {"is_stage": True} if record.watched.is_stage else {}
    return {"names": tuple(one.name for one in curves if one.kind in ("loss", "logged")), **stage}


def _unseen(record: WatchRecord, loss: ScalarRecord | None) -> Iterator[Finding]:
    watched = record.watched
    if record.samples < record.steps:
        yield Finding("steps between looks", facts={"looks": record.samples, "steps": record.steps})
    if loss is None or not loss.count:
        yield Finding("loss not seen", facts=unseen_loss(record, record.scalars))
    if watched.beside:
        yield Finding("steps beside", facts={"optimizer": watched.optimizer, "steps": watched.beside})
    if watched.opaque:
        yield Finding("hidden inside", facts={"paths": watched.opaque})
    for why in dict.fromkeys(watched.uncounted.values()):
        paths = tuple(path for path, one in watched.uncounted.items() if one == why)
        yield Finding("units not counted", paths[0], {"paths": paths, "why": why, **({"most": UNITS} if why == "wide" else {})})
    if watched.late:
        yield Finding("came later", watched.late[0], {"paths": watched.late})
    modules, parameters = watched.left
    if modules or parameters:
        held = len(watched.parameters) + parameters
        facts: dict[str, Fact] = {"modules": record.modules, "left": modules, "parameters": held, "weights": parameters}
        yield Finding("left out", facts={**facts, "only": watched.only, "unread": _unread(record)})
    if len(record.history.series) >= MOST:
        yield Finding("beyond the cap", facts={"series": MOST})


def _unread(record: WatchRecord) -> tuple[str, ...]:
    """The modules with parameters whose units no watched activation function reads."""
    told = {*(one.path for one in record.units), *record.watched.uncounted}
    owners = {one.module for one in record.watched.parameters}
    return tuple(one.path for one in record.watched.modules if one.taken and one.called and one.path in owners and one.path not in told)
