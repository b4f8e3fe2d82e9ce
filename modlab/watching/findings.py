"""What a watch has found beside the ladder, and what it did not look at: facts, without a sentence."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch.nn import Module

from modlab.records.finding import Evidence, Fact, Finding, FindingRecord, Fix
from modlab.records.watch import PARAMETER_GRADIENT, ScalarRecord, WatchRecord
from modlab.watching.cast import Cast, Weight
from modlab.watching.history import MOST
from modlab.watching.steps import Steps

LOST, LOST_OF_MANY, NARROW = 0.1, 0.5, 16
"""Share of a layer's units that must be dead before it counts as broken, and of a layer with more than `NARROW`; less is a reason
for care: that a few of many die is usual, and the others do their work."""

OFTEN = 0.01
"""Share of a loss's values that must be no numbers before it counts as broken, where the last one is finite."""

ROUNDING, COARSE = 256, 1e-2
"""A gradient is rounding alone when its norm is below so many times its dtype's precision of the norms beside it, and below that share."""

TINY = 1e-3
"""Share of the norm of the greatest gradient below which a parameter that stands still is not helped by a greater learning rate."""

LOOKS = 10
"""Looks that it takes to say that something never got a gradient."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a model in training, beside the record.

    Attributes:
        cast: the modules and parameters; `steps`: the optimizers that move these.
        elsewhere: parameters that something else moves.
        units: modules whose units are counted; `uncounted`: those whose units are not, and why.
        classes: among how many the loss chooses, 0 if that is not known.
        evaluated: looks at steps for which the model was called in evaluation mode alone.
        stepped: whether a step of the optimizer was measured.
        model: once the watch has ended, if it still exists.
        closed: whether it has ended.
        unregistered: searches for weights that PyTorch does not see.
    """

    cast: Cast
    steps: Steps
    elsewhere: set[str]
    units: Mapping[str, object]
    uncounted: Mapping[str, str]
    classes: int
    evaluated: int
    stepped: bool
    model: Module | None
    closed: bool
    unregistered: Callable[[], list[FindingRecord]]


def find(record: WatchRecord, known: Known, loss: ScalarRecord | None) -> tuple[Finding, ...]:
    """All of them, in no order."""
    return (
        *_curves(record, loss),
        *_dead(record),
        *_slices(known.cast),
        *_without_effect(record, known.cast),
        *_unseen(record, known, loss),
    )


# ---- numbers that are none


def not_finite(scalar: ScalarRecord, *, loss: bool) -> Finding | None:
    """How many of a curve's values were NaN or infinite, if any were."""
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
        (Fix("find the NaN"),) if broken else (),
    )


def _curves(record: WatchRecord, loss: ScalarRecord | None) -> Iterator[Finding]:
    for scalar in record.scalars:
        if scalar.kind == "norm":  # that a scaler skips such a step is usual; else the gradients tell
            continue
        found = not_finite(scalar, loss=loss is not None and scalar.name == loss.name)
        if found is not None:
            yield found


# ---- units and slices


def _dead(record: WatchRecord) -> Iterator[Finding]:
    """For each layer, its dead units: what the alerts say, one by one or together."""
    for units in record.units:
        mine = [alert for alert in record.alerts if alert.kind == "dead" and alert.path == units.path and not alert.over]
        if not mine:
            continue
        which = mine[0].units if mine[0].unit is None else tuple(alert.unit for alert in mine if alert.unit is not None)
        count = units.fired.shape[1]
        broken = len(which) / count > (LOST if count <= NARROW else LOST_OF_MANY)
        facts: dict[str, Fact] = {
            "dead": len(which),
            "units": count,
            "which": tuple(sorted(which)),
            "inputs": min(alert.inputs for alert in mine),
        }
        yield Finding(
            "dead units",
            units.path,
            facts,
            "broken" if broken else "careful",
            min(alert.step for alert in mine),
            (Evidence("units", units.path),),
            (Fix("keep units alive"),),
        )


def _slices(cast: Cast) -> Iterator[Finding]:
    """Of stacked weights, as experts have them, the slices that nothing ever reached."""
    for weight in cast.weights:
        felt = weight.slices
        if felt is None or weight.looks < LOOKS or felt.all() or not felt.any() or not weight.trainable:
            continue
        which = tuple(i for i, one in enumerate(felt.tolist()) if not one)
        facts: dict[str, Fact] = {"which": which, "slices": len(felt), "looks": weight.looks}
        evidence = (Evidence("series", weight.path, PARAMETER_GRADIENT),)
        yield Finding("slices without a gradient", weight.path, facts, "careful", None, evidence, (Fix("route tokens"),))


# ---- parameters without an effect


def cancelled(cast: Cast, weight: Weight) -> tuple[float, float, str] | None:
    """If a bias has a gradient of rounding alone: its norm, that of another parameter beside it, and the name of that one.

    A shift in front of a normalization, or of all keys of an attention, is taken out again: its gradient is zero but for rounding.
    """
    tensor = weight.tensor()
    if tensor is None or tensor.dim() > 1 or not weight.graded or not tensor.is_floating_point():
        return None
    mine = size_of(cast, weight)
    beside = [one for one in cast.siblings(weight) if one.graded] or [one for one in cast.weights if one.graded]
    other = max((one for one in beside if one is not weight), key=lambda one: size_of(cast, one), default=weight)
    theirs, back = size_of(cast, other), _arriving(cast, weight)
    share = min(ROUNDING * torch.finfo(tensor.dtype).eps, COARSE)
    # That of a weight is larger than that of its bias by the size of the inputs; what comes back to the module is not.
    spoilt = cast.history.spoilt((weight.rows[1], other.rows[1]))
    small = not spoilt and math.isfinite(theirs) and mine < share * theirs and (back is None or mine < share * back)
    return (mine, theirs, other.path) if small else None


def _arriving(cast: Cast, weight: Weight) -> float | None:
    """The greatest norm of what came back to the output of a parameter's module; None where that was not seen."""
    owner = weight.owner()
    member = None if owner is None else cast.members.get(id(owner))
    if member is None or member.gradient < 0:
        return None
    history = cast.history
    return math.sqrt(history.greatest(member.gradient) * history.series[member.gradient].count)


def size_of(cast: Cast, weight: Weight) -> float:
    """The greatest norm that its gradient had in any sample."""
    tensor = weight.tensor()
    return 0.0 if tensor is None else math.sqrt(cast.history.greatest(weight.rows[1]) * tensor.numel())


def _without_effect(record: WatchRecord, cast: Cast) -> Iterator[Finding]:
    if record.samples < LOOKS:
        return
    for weight in cast.weights:
        if not (weight.trainable and weight.felt >= LOOKS) or weight.part:  # of a part of a bias, no norm is told
            continue
        evidence = (Evidence("series", weight.path, PARAMETER_GRADIENT),)
        sizes = cancelled(cast, weight)
        if sizes is not None:
            mine, theirs, other = sizes
            norm = _norm_after(cast, weight)
            facts: dict[str, Fact] = {"gradient": mine, "beside": theirs, "other": other, "norm": norm}
            fixes = (Fix("drop the bias"),) if norm and weight.name == "bias" else ()
            yield Finding("cancelled", weight.path, facts, "note", None, evidence, fixes)


def _norm_after(cast: Cast, weight: Weight) -> str:
    """The normalization that is called right after a parameter's module."""
    owner = weight.owner()
    member = None if owner is None else cast.members.get(id(owner))
    if member is None or not member.called:
        return ""
    after = (one for one in cast.members.values() if one.called and one.order == member.order + 1)
    return next((one.path for one in after if one.category == "norm"), "")


# ---- what was not looked at


def _unseen(record: WatchRecord, known: Known, loss: ScalarRecord | None) -> Iterator[Finding]:
    if record.samples < record.steps:
        yield Finding("steps between looks", facts={"looks": record.samples, "steps": record.steps})
    if loss is None or not loss.count:
        yield Finding("loss not seen", facts={"names": tuple(one.name for one in record.scalars if one.kind in ("loss", "logged"))})
    if known.steps.beside:
        yield Finding("steps beside", facts={"optimizer": known.steps.label, "steps": known.steps.beside})
    if known.cast.opaque:
        yield Finding("hidden inside", facts={"paths": known.cast.opaque})
    for why in dict.fromkeys(known.uncounted.values()):
        paths = tuple(path for path, one in known.uncounted.items() if one == why)
        yield Finding("units not counted", paths[0], {"paths": paths, "why": why})
    late = () if known.model is None else known.cast.late(known.model)
    if late:
        yield Finding("came later", late[0], {"paths": late})
    cast = known.cast
    modules, parameters = cast.left
    if modules or parameters:
        held = len(cast.weights) + parameters
        facts: dict[str, Fact] = {"modules": cast.modules, "left": modules, "parameters": held, "weights": parameters}
        yield Finding("left out", facts={**facts, "only": cast.selection.patterns, "unread": _unread(known)})
    if len(record.history.series) >= MOST:
        yield Finding("beyond the cap", facts={"series": MOST})


def _unread(known: Known) -> tuple[str, ...]:
    """The modules with parameters whose units nobody who is looked at reads after an activation function."""
    told = {*known.units, *known.uncounted}
    owners = {weight.owner() for weight in known.cast.weights}
    called = (one for one in known.cast.members.values() if one.taken and one.called and one.module() in owners)
    return tuple(one.path for one in called if one.path not in told)
