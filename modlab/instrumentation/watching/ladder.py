"""The verdict: from data to a falling loss, rung by rung; the first broken one is why the model does not learn."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from torch import nn

from modlab import format
from modlab.instrumentation.watching.alarms import HALF
from modlab.records.watch import Alert, Rung, ScalarRecord, Verdict, WatchRecord

if TYPE_CHECKING:
    from modlab.instrumentation.watching.watcher import Watcher

LOG = "not seen: add w.log(loss=loss)"
WIDE = 0.1
"""Share of a layer's units that must be dead before it counts as broken; less is a reason for care."""

FEW = 3
"""Names written out."""

_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)


def climb(record: WatchRecord, watcher: Watcher) -> WatchRecord:
    """The record with its verdict."""
    loss = _loss(record)
    rungs = (
        _data(record, watcher), _sensible(loss, watcher), _called(record, watcher), _graded(record, watcher),
        _owned(record, watcher), _moves(record, watcher), _enough(record, watcher), _falls(loss),
    )  # fmt: skip
    return replace(record, verdict=Verdict(rungs))


def _loss(record: WatchRecord) -> ScalarRecord | None:
    named = [one for one in record.scalars if "loss" in one.name.lower()]
    return next((one for one in named if one.name == "loss"), named[0] if named else None)


def _data(record: WatchRecord, watcher: Watcher) -> Rung:
    name = "data arrives"
    bad = _alert(record, "nan", "inf")
    if bad is not None and bad.text.startswith("an input"):
        return Rung(name, "broken", bad.text, bad.fix, bad.path)
    if watcher.passes or (record.steps and "" in watcher.cast.opaque) or any(member.called for member in watcher.cast.members.values()):
        return Rung(name, "passed", format.plural(record.steps, "step"))
    if record.steps:
        return Rung(
            name, "careful", f"{format.plural(record.steps, 'step')}, and no call of the model in training mode was seen", "model.train()"
        )
    return Rung(name, "not seen", "no step yet")


def _sensible(loss: ScalarRecord | None, watcher: Watcher) -> Rung:
    name = "the loss is sensible"
    if loss is None or not loss.count:
        return Rung(name, "not seen", LOG)
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
    weighty = [member.path for member in silent if any(weight.owner() is member.module() for weight in watcher.cast.weights)]
    called = sum(1 for member in watcher.cast.members.values() if member.called)
    if not called and watcher.cast.opaque:
        return Rung(name, "not seen", "compiled or scripted: its modules cannot be seen")
    if weighty:
        return Rung(name, "careful", f"{_names(weighty)} never called", "", weighty[0])
    if silent:
        return Rung(name, "passed", f"but {_names([member.path for member in silent])}, without parameters")
    return Rung(name, "passed", f"{called:,} of {called:,}")


def _hidden(path: str, watcher: Watcher) -> bool:
    return any(path == above or path.startswith(f"{above}.") or not above for above in watcher.cast.opaque)


def _graded(record: WatchRecord, watcher: Watcher) -> Rung:
    name = "every trained parameter gets a gradient"
    trained = [weight for weight in watcher.cast.weights if weight.trainable]
    if not trained:
        return Rung(name, "broken", "no parameter requires a gradient", "model.requires_grad_(True)")
    felt = [weight for weight in trained if weight.felt]
    if not felt:
        state = "broken" if record.samples > 1 else "not seen"
        return Rung(name, state, "no gradient was seen in any step", "loss.backward()" if state == "broken" else "")
    lost = [weight.path for weight in trained if not weight.felt]
    if lost:
        return Rung(
            name, "broken", f"{_names(lost)} got none", f"modlab.trace(model), then trace.why({lost[0]!r}), names the reason", lost[0]
        )
    flat = [weight.path for weight in trained if not weight.graded]
    if flat and record.samples >= 3:
        return Rung(name, "broken", f"{_names(flat)}: it is zero in every step that was looked at", "", flat[0])
    return Rung(name, "passed", f"{len(felt):,} of {len(trained):,}")


def _owned(record: WatchRecord, watcher: Watcher) -> Rung:
    name = "the optimizer owns it"
    if not record.optimizer:
        return Rung(name, "not seen", "no optimizer made a step")
    trained = [weight for weight in watcher.cast.weights if weight.trainable]
    lost = [weight.path for weight in trained if not weight.owned]
    if lost and len(lost) == len(trained):
        return Rung(
            name, "broken", f"{record.optimizer} holds none of the model's parameters", f"{record.optimizer}(model.parameters())", lost[0]
        )
    if lost:
        return Rung(name, "broken", f"{_names(lost)} not in {record.optimizer}", f"{record.optimizer}(model.parameters())", lost[0])
    return Rung(name, "passed", f"{len(trained):,} of {len(trained):,}")


def _moves(record: WatchRecord, watcher: Watcher) -> Rung:
    name = "it moves"
    owned = [weight for weight in watcher.cast.weights if weight.trainable and weight.owned and weight.felt]
    if not owned or not watcher.stepped:
        return Rung(name, "not seen", "no step of the optimizer was measured" if not watcher.stepped else "")
    rate = watcher.learning_rate()
    still = [weight.path for weight in owned if not weight.moved and (weight.dtype not in HALF or not rate)]
    if still:
        fix = "the learning rate is 0" if rate == 0 else "a greater learning rate"
        return Rung(name, "broken", f"{_names(still)} did not move in any step that was looked at", fix, still[0])
    dead = [alert for alert in record.alerts if alert.kind == "dead" and not alert.over]
    for path in dict.fromkeys(alert.path for alert in dead):
        mine = [alert for alert in dead if alert.path == path]
        units = watcher.units[path].count
        some = ", ".join(str(alert.unit) for alert in mine[:FEW]) + ("…" if len(mine) > FEW else "")
        text = f"{len(mine)} of {units} units of {path or 'the model'} ({some}) {'is' if len(mine) == 1 else 'are'} dead: zero on all of {mine[0].inputs:,} inputs"
        return Rung(name, "broken" if len(mine) > WIDE * units else "careful", text, mine[0].fix, path)
    return Rung(name, "passed", f"{len(owned):,} of {len(owned):,}")


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
    return Rung(
        name,
        "passed",
        f"at most {share:.0%} of the elements with a gradient stay ({worst.path})" if share > 0.01 else "all that have a gradient do",
    )


def _falls(loss: ScalarRecord | None) -> Rung:
    name = "the loss falls"
    if loss is None or not loss.count:
        return Rung(name, "not seen", LOG)
    if loss.count < 20:
        return Rung(name, "not seen", f"after {format.plural(loss.count, 'value')} it is too early to tell")
    mean = loss.mean[np.isfinite(loss.mean)]
    if int(loss.bad[-1]) or len(mean) < 2:
        return Rung(name, "broken", "it is not finite")
    part = max(1, len(mean) // 5)
    first, last = float(np.mean(mean[:part])), float(np.mean(mean[-part:]))
    noise = float(np.std(np.diff(mean))) / math.sqrt(part) if len(mean) > 2 else 0.0
    text = f"{format.number(first)} → {format.number(last)}"
    if last < first - 2 * noise:
        return Rung(name, "passed", text)
    return Rung(
        name,
        "broken" if last > first + 2 * noise else "careful",
        f"{text}, which is {'more' if last > first + 2 * noise else 'within its noise'}",
    )


def _alert(record: WatchRecord, *kinds: str) -> Alert | None:
    return next((alert for alert in record.alerts if alert.kind in kinds and not alert.over), None)


def _names(paths: list[str]) -> str:
    shown = ", ".join(path or "(root)" for path in paths[:FEW])
    return f"{shown} and {len(paths) - FEW:,} more" if len(paths) > FEW else shown
