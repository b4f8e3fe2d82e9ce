"""The verdict: from data to a falling loss, rung by rung; the first broken one is why the model does not learn."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor, nn

from modlab import format
from modlab.inspection import stores
from modlab.instrumentation.watching.alarms import HALF, NARROW, SAMPLES, dead
from modlab.records.watch import GRADIENT, Alert, Rung, ScalarRecord, Verdict, WatchRecord

if TYPE_CHECKING:
    from modlab.instrumentation.watching.cast import Member, Weight
    from modlab.instrumentation.watching.watcher import Watcher

LOG = "not seen: add w.log(loss=loss)"
LOST, LOST_OF_MANY = 0.1, 0.5
"""Share of a layer's units that must be dead before it counts as broken, and of a layer with more than `NARROW`; less is a reason
for care: that a few of many die is usual, and the others do their work."""

SOON = 3
"""Samples before which it is not said what the optimizer lacks: it is seen by then whether another one moves it."""

RISES, MUCH = 4, 0.1
"""A loss has risen when its last values lie so many standard errors above the first, and by that share of the first."""

FALLS = 2
"""Standard errors that the last values of a loss that falls lie below the first."""

FEW = 3
"""Names written out."""

_HELD_OUT = re.compile(r"(?:^|[^a-z])(?:val|valid|validation|test|eval|dev)(?:[^a-z]|$)")
_WHOLE = re.compile(r"train|total")
_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)


def climb(record: WatchRecord, watcher: Watcher) -> WatchRecord:
    """The record with its verdict."""
    losses = _losses(record)
    loss, several = losses[0] if len(losses) == 1 else None, [one.name for one in losses]
    rungs = (
        _data(record, watcher), _sensible(loss, several, watcher), _called(record, watcher), _graded(record, watcher),
        _owned(record, watcher), _moves(record, watcher), _enough(record, watcher), _falls(loss, several),
    )  # fmt: skip
    return replace(record, verdict=Verdict(rungs))


def _losses(record: WatchRecord) -> list[ScalarRecord]:
    """The curve that is the loss; several if nothing tells which of them is."""
    named = [one for one in record.scalars if "loss" in one.name.lower()]
    trained = [one for one in named if not _HELD_OUT.search(one.name.lower())]
    for some in (
        [one for one in trained if one.name.lower() == "loss"],
        [one for one in trained if _WHOLE.search(one.name.lower())],
        trained or named,
    ):
        if some:
            return some[:1] if some is not trained else some
    return []


def _data(record: WatchRecord, watcher: Watcher) -> Rung:
    name = "data arrives"
    bad = _alert(record, "nan", "inf")
    if bad is not None and bad.text.startswith("the batch"):
        return Rung(name, "broken", bad.text, bad.fix, bad.path)
    if (
        watcher.steps.passes
        or (record.steps and "" in watcher.cast.opaque)
        or any(member.called for member in watcher.cast.members.values())
    ):
        return Rung(name, "passed", format.plural(record.steps, "step"))
    if record.steps:
        return Rung(
            name, "careful", f"{format.plural(record.steps, 'step')}, and no call of the model in training mode was seen", "model.train()"
        )
    return Rung(name, "not seen", "no step yet")


def _sensible(loss: ScalarRecord | None, several: list[str], watcher: Watcher) -> Rung:
    name = "the loss is sensible"
    if loss is None or not loss.count:
        return Rung(name, "not seen", _unlogged(several))
    first = float(loss.mean[0]) if len(loss.mean) else math.nan
    if int(loss.bad.sum()) and not math.isfinite(first):
        return Rung(name, "broken", f"it is not finite from step {int(loss.first[0]):,} on", "", "")
    classes = watcher.classes()
    if classes > 1:
        uniform = math.log(classes)
        text = f"{format.number(first)} at first; a uniform guess among {classes:,} has {format.number(uniform)}"
        if first > 2 * uniform + 0.5:
            return Rung(name, "careful", text, "smaller weights in the last layer, or inputs scaled to about 1")
        return Rung(name, "passed", text)
    return Rung(name, "passed", f"{format.number(first)} at first")


def _called(record: WatchRecord, watcher: Watcher) -> Rung:
    name = "every module is called"
    if not record.samples:
        return Rung(name, "not seen", "no step was measured yet")
    silent = [member for member in watcher.cast.members.values() if not member.called and member.category != "container"]
    silent = [member for member in silent if not _hidden(member.path, watcher) and not isinstance(member.module(), _CONTAINERS)]
    weighty = [
        member.path
        for member in silent
        if any(_expected(weight, watcher) for weight in watcher.cast.weights if weight.owner() is member.module())
    ]
    called = sum(1 for member in watcher.cast.members.values() if member.called)
    if not called and watcher.cast.opaque:
        return Rung(name, "not seen", "compiled or scripted: its modules cannot be seen")
    if weighty and record.samples >= SAMPLES:
        return Rung(name, "careful", f"{_names(weighty)} never called", "", weighty[0])
    if silent:
        return Rung(name, "passed", f"but {_kinds(silent, watcher)}")
    return Rung(name, "passed", f"{called:,} of {called:,}")


def _kinds(silent: list[Member], watcher: Watcher) -> str:
    """Modules that were not called, by what that means for their parameters: a gradient tells that they were used by another way."""
    kinds: dict[str, list[str]] = {", without parameters": [], ", whose parameters are used without a call": [], " not called": []}
    bare, used, other = kinds.values()
    for member in silent:
        held = (stores.contents(module).get("_parameters") or {}).values() if (module := member.module()) is not None else ()
        weights = [watcher.cast.places.get(id(tensor)) for tensor in held if isinstance(tensor, Tensor)]
        (bare if not weights else used if any(weight is not None and weight.felt for weight in weights) else other).append(member.path)
    return "; ".join(_names(paths) + kind for kind, paths in kinds.items() if paths)


def _expected(weight: Weight, watcher: Watcher) -> bool:
    """Whether a parameter is to be trained, and nobody has used it: not by its own module's call, nor as attention uses its last layer."""
    return not weight.felt and weight.owned and weight.path not in watcher.alarms.elsewhere and weight.trainable


def _hidden(path: str, watcher: Watcher) -> bool:
    return any(path == above or path.startswith(f"{above}.") or not above for above in watcher.cast.opaque)


def _graded(record: WatchRecord, watcher: Watcher) -> Rung:
    name = "every trained parameter gets a gradient"
    trained = [weight for weight in watcher.cast.weights if weight.trainable]
    if not trained:
        return Rung(name, "broken", "no parameter requires a gradient", "model.requires_grad_(True)")
    felt = [weight for weight in trained if weight.felt]
    if not felt and _came_back(record):
        return Rung(name, "not seen", "gradients come back to the modules, and none is left on a parameter when the step is made")
    if not felt:
        state = "broken" if record.samples > 1 else "not seen"
        return Rung(name, state, "no gradient was seen in any step", "loss.backward()" if state == "broken" else "")
    enough = record.samples >= SAMPLES
    lost = [weight.path for weight in trained if not weight.felt and weight.owned and weight.path not in watcher.alarms.elsewhere]
    if lost and enough:
        fix = f"modlab.trace(model), then trace.why({lost[0]!r}), names the reason"
        return Rung(name, "broken", f"{_names(lost)} got none in any step that was looked at", fix, lost[0])
    flat = [weight for weight in felt if not weight.graded and _measured(record, weight)]
    if flat and enough:
        first = next((weight for weight in flat if _is_matrix(weight)), flat[0])
        text = f"{_names([weight.path for weight in flat])}: it is zero in every step that was looked at"
        return Rung(name, "broken" if _is_matrix(first) else "careful", text, "", first.path)
    return Rung(name, "passed", f"{len(felt):,} of {len(trained):,}{_besides(trained, felt, watcher)}")


def _besides(trained: list[Weight], felt: list[Weight], watcher: Watcher) -> str:
    """What of the others is to be said."""
    aside = [weight.path for weight in trained if not weight.felt and not weight.owned and weight.path not in watcher.alarms.elsewhere]
    moved = [weight.path for weight in trained if not weight.felt and weight.path in watcher.alarms.elsewhere]
    said = f"; {_names(aside)}: in no optimizer either" if aside else ""
    return f"{said}; {_names(moved)} moved without one that was seen" if moved else said


def _came_back(record: WatchRecord) -> bool:
    """Whether the gradient of any module's output was measured."""
    rows = [row for row, one in enumerate(record.history.series) if one.role == GRADIENT]
    return bool((record.history.columns["samples"][:, rows] > 0).any())


def _measured(record: WatchRecord, weight: Weight) -> bool:
    """Whether its gradient has numbers that can be seen: a sparse one has not."""
    return bool((record.history.columns["samples"][:, weight.rows[1]] > 0).any())


def _is_matrix(weight: Weight) -> bool:
    """Rather than a bias or a scale, whose gradient may be zero for a good reason: a shift that the loss does not see."""
    tensor = weight.tensor()
    return tensor is not None and tensor.dim() > 1


def _owned(record: WatchRecord, watcher: Watcher) -> Rung:
    name = "the optimizer owns it"
    if not record.optimizer:
        return Rung(name, "not seen", "no optimizer made a step")
    trained = [weight for weight in watcher.cast.weights if weight.trainable]
    lost = [weight.path for weight in trained if not weight.owned and weight.path not in watcher.alarms.elsewhere]
    held = [weight for weight in trained if weight.owned]
    if trained and len(lost) == len(trained):
        return Rung(
            name, "broken", f"{record.optimizer} holds none of the model's parameters", f"{record.optimizer}(model.parameters())", lost[0]
        )
    felt = [weight.path for weight in trained if weight.felt and weight.path in set(lost)]
    if felt and record.samples < SOON:
        return Rung(name, "not seen", f"{_names(felt)} not in {record.optimizer}: too early to tell whether something else moves them")
    if felt:
        return Rung(name, "broken", f"{_names(felt)} not in {record.optimizer}", f"{record.optimizer}(model.parameters())", felt[0])
    hidden = watcher.hideouts.findings()
    if hidden:
        more = f"; and {format.plural(len(hidden) - 1, 'place')} more" if len(hidden) > 1 else ""
        one = hidden[0]
        return Rung(name, "broken", f"{one.subject} {one.what}{more}", one.fix.replace("\n", "; "), one.path)
    others = len(trained) - len(held) - len(lost)
    text = f"{len(held):,} of {len(trained):,}"
    return Rung(name, "passed", f"{text}; {others:,} are moved by something else" if others else text)


def _moves(record: WatchRecord, watcher: Watcher) -> Rung:
    name = "it moves"
    owned = [weight for weight in watcher.cast.weights if weight.trainable and weight.owned and weight.felt]
    if not owned or not watcher.stepped:
        return Rung(name, "not seen", "no step of the optimizer was measured" if not watcher.stepped else "")
    rate = watcher.steps.learning_rate()
    still = [weight.path for weight in owned if _is_still(weight, watcher) and (weight.dtype not in HALF or not rate)]
    if still and record.samples < SAMPLES:
        return Rung(name, "not seen", f"{_names(still)} did not move yet, after {format.plural(record.samples, 'step')}")
    if still:
        fix = "the learning rate is 0" if rate == 0 else "a greater learning rate"
        return Rung(name, "broken", f"{_names(still)} did not move in any step that was looked at", fix, still[0])
    return _alive(record, watcher) or Rung(name, "passed", f"{len(owned):,} of {len(owned):,}")


def _is_still(weight: Weight, watcher: Watcher) -> bool:
    """Whether none of its numbers that has a gradient has ever moved; of a large embedding no such number may have been compared."""
    return not weight.moved and weight.stuck is not None and weight.path not in watcher.alarms.elsewhere


def _alive(record: WatchRecord, watcher: Watcher) -> Rung | None:
    """The layer that lost the greatest part of its units, if any did."""
    worst: tuple[float, Rung] | None = None
    for path, units in watcher.units.items():
        mine = [alert for alert in record.alerts if alert.kind == "dead" and alert.path == path and not alert.over]
        if not mine:
            continue
        gone = len(dead(units)) if mine[0].unit is None else len(mine)
        share = gone / units.count
        if worst is None or share > worst[0]:
            broken = share > (LOST if units.count <= NARROW else LOST_OF_MANY)
            text = mine[0].text if len(mine) == 1 else _several(mine, units.count)
            worst = share, Rung("it moves", "broken" if broken else "careful", text, mine[0].fix, path)
    return None if worst is None else worst[1]


def _several(alerts: list[Alert], count: int) -> str:
    numbers = _names([str(alert.unit) for alert in alerts])
    least = min(alert.inputs for alert in alerts)
    return (
        f"{len(alerts)} of {count} units of {alerts[0].path or 'the model'} are dead: units {numbers} are zero on all of {least:,} inputs"
    )


def _enough(record: WatchRecord, watcher: Watcher) -> Rung:
    name = "by enough for its dtype"
    known = [weight for weight in watcher.cast.weights if weight.stuck is not None]
    if not known:
        return Rung(name, "not seen", "no step of the optimizer was measured" if not watcher.stepped else "")
    alert = _alert(record, "rounding")
    if alert is not None:
        return Rung(name, "broken", alert.text, alert.fix, alert.path)
    worst = max(known, key=lambda weight: weight.stuck or 0.0)
    share = worst.stuck or 0.0
    stays = f"at most {format.share(share)} of the elements with a gradient stay ({worst.path})"
    return Rung(name, "passed", stays if share > 0.01 else "all that have a gradient do")


def _unlogged(several: list[str]) -> str:
    """What is to be logged, or logged by another name."""
    if len(several) < 2:
        return LOG
    return f"not seen: which of {_names(several)} is to fall? w.log(loss=…) tells"


def _falls(loss: ScalarRecord | None, several: list[str]) -> Rung:
    name = "the loss falls"
    if loss is None or not loss.count:
        return Rung(name, "not seen", _unlogged(several))
    if loss.count < 20:
        return Rung(name, "not seen", f"after {format.plural(loss.count, 'value')} it is too early to tell")
    mean = loss.mean[np.isfinite(loss.mean)]
    if int(loss.bad[-1]) or len(mean) < 2:
        return Rung(name, "broken", "it is not finite")
    part = max(1, len(mean) // 5)
    first, last = float(np.mean(mean[:part])), float(np.mean(mean[-part:]))
    noise = float(np.std(np.diff(mean))) / math.sqrt(part) if len(mean) > 2 else 0.0
    text = f"{format.number(first)} → {format.number(last)}"
    if last < first - FALLS * noise:
        return Rung(name, "passed", text)
    if last > first + max(RISES * noise, MUCH * abs(first)):
        return Rung(name, "broken", f"{text}, which is more", "a smaller learning rate")
    return Rung(name, "careful", f"{text}, within its noise: it has converged, or learns nothing")


def _alert(record: WatchRecord, *kinds: str) -> Alert | None:
    return next((alert for alert in record.alerts if alert.kind in kinds and not alert.over), None)


def _names(paths: list[str]) -> str:
    shown = ", ".join(path or "(root)" for path in paths[:FEW])
    return f"{shown} and {len(paths) - FEW:,} more" if len(paths) > FEW else shown
