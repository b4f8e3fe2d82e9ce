"""The verdict: from data to a falling loss, rung by rung; the first broken one is why the model does not learn."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from modlab import format, wording
from modlab.records.loss import losses
from modlab.records.watch import GRADIENT, PARAMETER_GRADIENT, Alert, Rung, ScalarRecord, Verdict, WatchRecord
from modlab.records.watched import Watched, WatchedModule, WatchedParameter
from modlab.watching.alerts import HALF, SAMPLES
from modlab.watching.findings import TINY, find, not_finite

LOG = "add w.log(loss=loss)"
NO_GRADIENT = "no parameter of the optimizer's was seen to have a gradient"

SOON = 3
"""Samples before which it is not said what the optimizer lacks: it is seen by then whether another one moves it."""

RISES, MUCH = 4, 0.1
"""A loss rises when its last values lie so many standard errors above the first, and by that share of the first."""

BURSTS, TWICE = 1e4, 2
"""Times its first values beyond which a loss has burst; and a cross-entropy when it has so often risen, and is worse by as much than a
uniform guess. Less than that is no fault for certain: of rewards that grow, and of one of two players, the loss rises."""

FALLS = 2
"""Standard errors that the last values of a loss that falls lie below the first."""

ORDERED = 3
"""Or standard errors by which more pairs of its values fall than rise (Mann and Kendall): it needs no noise, and few values."""

EARLY, PAIRED = 20, 128
"""Values of a loss from which on one that shows no trend has none; values of which all pairs are compared."""

BROKEN_ALERTS = frozenset(("nan", "inf", "not owned", "no gradient", "exploding"))
"""Kinds of alerts that mean that something is broken, besides dead units, of which a finding tells how many."""

FEW = 3
"""Names written out."""

_WHEN = ", after fully_shard: that puts other parameters into the place of those that were there"


def verdict(record: WatchRecord) -> Verdict:
    """The verdict of a record, from what stands in it alone."""
    found = losses(record)
    loss = found[0] if len(found) == 1 else None
    several = [one.name for one in found or record.scalars if one.kind in ("loss", "logged")]
    rungs = (
        _data(record),
        _sensible(record, loss, several),
        _called(record),
        _graded(record),
        _owned(record),
        _moves(record),
        _enough(record),
        _falls(loss, several, record.watched.classes),
    )
    broken = tuple(dict.fromkeys(alert.kind for alert in record.alerts if alert.kind in BROKEN_ALERTS and not alert.over))
    return Verdict(rungs, find(record, loss), broken)


def judged(record: WatchRecord) -> WatchRecord:
    """The record with its verdict."""
    reached = verdict(record)
    few = {one.path for one in reached.findings if one.kind == "dead units" and one.severity == "careful"}
    alerts = tuple(replace(alert, careful=True) if alert.kind == "dead" and alert.path in few else alert for alert in record.alerts)
    return replace(record, alerts=alerts, verdict=reached)


def _data(record: WatchRecord) -> Rung:
    name, known = "data arrives", record.watched
    bad = _alert(record, "nan", "inf")
    if bad is not None and bad.where == "the batch":
        return Rung(name, "broken", bad.text, bad.fix, bad.path)
    if known.evaluated and known.passes:
        looks = format.plural(record.samples, "look")
        return Rung(name, "careful", f"in {known.evaluated:,} of {looks} the model was called in evaluation mode alone", "model.train()")
    if known.passes or (record.steps and "" in known.opaque) or any(one.called for one in known.modules):
        return Rung(name, "passed", format.plural(record.steps, "step"))
    steps = format.plural(record.steps, "step")
    if record.steps and known.evaluated:
        return Rung(name, "careful", f"{steps}, and the model is called in evaluation mode alone", "model.train()")
    if record.steps:
        return Rung(name, "not seen", f"{steps}, and no call of the model itself: a compiled copy or functional_call may run in its place")
    return Rung(name, "not seen", "no step yet")


def _sensible(record: WatchRecord, loss: ScalarRecord | None, several: list[str]) -> Rung:
    name, known = "the loss is sensible", record.watched
    if loss is None or not loss.count:
        return Rung(name, "not seen", _unlogged(several))
    bad = not_finite(loss, loss=True)
    if bad is not None:
        return Rung(name, "broken" if bad.severity == "broken" else "careful", wording.said(bad), wording.fix(bad))
    classes = known.classes
    if classes < 2 or loss.passes > 1:
        return _finite(name, loss, record.steps if known.closed else int(loss.last[-1]) + 1)
    first, uniform = float(loss.mean[0]), math.log(classes)
    at = f"{loss.first[0]:,}" if loss.first[0] == loss.last[0] else f"{loss.first[0]:,} to {loss.last[0]:,}"
    facts = {"value": first, "uniform": uniform, "last": int(loss.last[0])}
    mean = "on average " * (loss.count > len(loss.mean))
    text = f"{format.rough(first)} {mean}in step{'s' * (' ' in at)} {at}; a uniform guess among {classes:,} has {format.number(uniform)}"
    if first > 2 * uniform + 0.5:
        return Rung(name, "careful", text, "smaller weights in the last layer, or inputs scaled to about 1", facts=facts)
    return Rung(name, "passed", text, facts=facts)


def _finite(name: str, loss: ScalarRecord, steps: int) -> Rung:
    """Every value is a number; and of how many steps there is none."""
    said = "its only value is finite" if loss.count == 1 else f"all {loss.count:,} values are finite"
    missed = steps - loss.count
    if loss.kind != "loss" or missed <= 0:
        return Rung(name, "passed", said)
    return Rung(name, "passed", f"{said}; in {missed:,} of {steps:,} steps none was seen", facts={"missed": missed, "steps": steps})


def _called(record: WatchRecord) -> Rung:
    name, known = "every module is called", record.watched
    if not record.samples:
        return Rung(name, "not seen", "no step was measured yet")
    silent = [one for one in known.modules if one.taken and not one.called and not one.container and not _hidden(one.path, known)]
    wanted = {one.module for one in known.parameters if _expected(one)}
    weighty = [one.path for one in silent if one.path in wanted]
    called = sum(1 for one in known.modules if one.called and one.taken)
    if not called and known.opaque:
        return Rung(name, "not seen", "compiled or scripted: its modules cannot be seen")
    if not called and not known.evaluated:
        return Rung(name, "not seen", "no call of the model itself was seen")
    if weighty and record.samples >= SAMPLES:
        return Rung(name, "careful", f"{_names(weighty)} never called", "", weighty[0])
    if silent:
        return Rung(name, "passed", f"but {_kinds(silent, known)}")
    return Rung(name, "passed", f"{called:,} of {called:,}")


def _kinds(silent: list[WatchedModule], known: Watched) -> str:
    """Modules that were not called, by what that means for their parameters: a gradient tells that they were used by another way."""
    kinds: dict[str, list[str]] = {", without parameters": [], ", whose parameters are used without a call": [], " not called": []}
    bare, used, other = kinds.values()
    felt = {one.path for one in known.parameters if one.felt}
    for one in silent:
        (bare if not one.holds else other if felt.isdisjoint(one.holds) else used).append(one.path)
    return "; ".join(_names(paths) + kind for kind, paths in kinds.items() if paths)


def _expected(one: WatchedParameter) -> bool:
    """Whether a parameter is to be trained, and nobody has used it: not by its own module's call, nor as attention uses its last layer."""
    return _lacks(one) and one.owned


def _lacks(one: WatchedParameter) -> bool:
    """Whether a parameter is to be trained, and neither has a gradient nor is moved by something else."""
    return one.trainable and not one.felt and not one.elsewhere


def _hidden(path: str, known: Watched) -> bool:
    return any(path == above or path.startswith(f"{above}.") or not above for above in known.opaque)


def _graded(record: WatchRecord) -> Rung:
    name, known = "every trained parameter gets a gradient", record.watched
    trained = [weight for weight in known.parameters if weight.trainable]
    if not trained and known.left[1]:
        return Rung(name, "not seen", "no parameter that only= takes requires a gradient")
    if not trained:
        return Rung(name, "broken", "no parameter requires a gradient", "model.requires_grad_(True)")
    felt = [weight for weight in trained if weight.felt]
    if not felt and _came_back(record):
        return Rung(name, "not seen", "gradients come back to the modules, and none is left on a parameter when the step is made")
    if not felt and known.feeds_others:
        return Rung(name, "not seen", "gradients go to parameters that are not this model's: functional_call may run it with others")
    if not felt:
        state = "broken" if record.samples > 1 else "not seen"
        return Rung(name, state, "no gradient was seen in any step", "loss.backward()" if state == "broken" else "")
    enough = record.samples >= SAMPLES
    lost = [weight.path for weight in trained if _expected(weight)]
    if lost and enough:
        fix = f"modlab.trace(model), then trace.why({lost[0]!r}), names the reason"
        return Rung(name, "broken", f"{_names(lost)} got none in any step that was looked at", fix, lost[0])
    flat = _measured(record, [weight for weight in felt if not weight.graded])
    if flat and enough:
        # of a bias or a scale, unlike a matrix, it may be zero for a good reason: a shift that the loss does not see
        first = next((weight for weight in flat if weight.dimensions > 1), flat[0])
        of = "that" if len(flat) == 1 else "those"
        text = f"{of} of {wording.joined(weight.path for weight in flat)} {'is' if len(flat) == 1 else 'are'} zero in all of "
        text += format.plural(min(weight.felt for weight in flat), "look")
        return Rung(name, "broken" if first.dimensions > 1 else "careful", text, "", first.path, {"kind": "zero gradient"})
    return Rung(name, "passed", f"{len(felt):,} of {len(trained):,}{_besides(trained)}")


def _besides(trained: list[WatchedParameter]) -> str:
    """What of the others is to be said."""
    aside = [weight.path for weight in trained if _lacks(weight) and not weight.owned]
    moved = [weight.path for weight in trained if not weight.felt and weight.elsewhere]
    said = f"; {_names(aside)}: in no optimizer either" if aside else ""
    return f"{said}; {_names(moved)} moved without one that was seen" if moved else said


def _came_back(record: WatchRecord) -> bool:
    """Whether the gradient of any module's output was measured."""
    rows = [row for row, one in enumerate(record.history.series) if one.role == GRADIENT]
    return bool((record.history.columns["samples"][:, rows] > 0).any())


def _measured(record: WatchRecord, some: list[WatchedParameter]) -> list[WatchedParameter]:
    """Those whose gradients have numbers that can be seen: a sparse one has none."""
    rows = {one.path: row for row, one in enumerate(record.history.series) if one.role == PARAMETER_GRADIENT} if some else {}
    samples = record.history.columns["samples"]
    return [one for one in some if one.path in rows and bool((samples[:, rows[one.path]] > 0).any())]


def _owned(record: WatchRecord) -> Rung:
    name, known = "the optimizer owns it", record.watched
    if not record.optimizer:
        return Rung(name, "not seen", "no optimizer made a step")
    trained = [weight for weight in known.parameters if weight.trainable]
    lost = [weight.path for weight in trained if not weight.owned and not weight.elsewhere]
    held = [weight for weight in trained if weight.owned]
    if trained and len(lost) == len(trained) and not any(weight.felt for weight in trained) and known.feeds_others:
        text = f"{record.optimizer} holds other parameters than the model's, and those get the gradients: functional_call may use them"
        return Rung(name, "not seen", text)
    if trained and len(lost) == len(trained) and not known.left[1]:
        fix = f"{record.optimizer}(model.parameters()){_WHEN * any(weight.swapped for weight in trained)}"
        return Rung(name, "broken", f"{record.optimizer} holds none of the model's parameters", fix, lost[0])
    felt = [weight.path for weight in trained if weight.felt and weight.path in set(lost)]
    if felt and record.samples < SOON:
        return Rung(name, "not seen", f"{_names(felt)} not in {record.optimizer}: too early to tell whether something else moves them")
    if felt:
        return Rung(name, "broken", f"{_names(felt)} not in {record.optimizer}", f"{record.optimizer}(model.parameters())", felt[0])
    hidden = known.unregistered
    if hidden:
        more = f"; and {format.plural(len(hidden) - 1, 'place')} more" if len(hidden) > 1 else ""
        one = hidden[0]
        return Rung(name, "broken", f"{one.subject} {one.what}{more}", one.fix.replace("\n", "; "), one.path)
    late = known.late_unowned
    if late:
        text = f"{wording.joined(late)} came into the model during the watch, and {record.optimizer} does not hold {_them(late)}"
        return Rung(name, "broken", text, f"{record.optimizer}(model.parameters()), after the change", late[0])
    others = len(trained) - len(held) - len(lost)
    text = f"{len(held):,} of {len(trained):,}"
    return Rung(name, "passed", f"{text}; {others:,} are moved by something else" if others else text)


def _them(names: tuple[str, ...]) -> str:
    return "it" if len(names) == 1 else "them"


def _moves(record: WatchRecord) -> Rung:
    name, known = "it moves", record.watched
    owned = [weight for weight in known.parameters if weight.trainable and weight.owned and weight.felt and weight.met]
    if not owned or not known.stepped:
        return Rung(name, "not seen", "no step of the optimizer was measured" if not known.stepped else NO_GRADIENT)
    rate = known.rate
    still = [weight for weight in owned if _is_still(weight) and (weight.dtype not in HALF or not rate)]
    if still and record.samples < SAMPLES:
        names = wording.joined(weight.path for weight in still)
        return Rung(name, "not seen", f"{names} did not move yet, after {format.plural(record.samples, 'look')}")
    if still:
        return _stands(name, still, owned, rate)
    moved = sum(1 for weight in owned if weight.moved or weight.elsewhere)
    aside = len(owned) - moved
    rest = f"; {aside:,} {'has' if aside == 1 else 'have'} no gradient that could move {'it' if aside == 1 else 'them'}" if aside else ""
    return Rung(name, "passed", f"{moved:,} of {len(owned):,}{rest}")


def _stands(name: str, still: list[WatchedParameter], owned: list[WatchedParameter], rate: float | None) -> Rung:
    """Parameters with a gradient that never move, and what can help: nothing is said to, where the gradient is next to nothing."""
    text = f"{wording.joined(weight.path for weight in still)} did not move in any step that was looked at"
    most, mine = (max(weight.size for weight in some) for some in (owned, still))
    if {one for weight in still for one in weight.rates} == {0.0}:
        whose = "" if rate == 0 else " of its group" if len(still) == 1 else " of their group"
        return Rung(name, "broken", f"{text}: the learning rate{whose} is 0", "a learning rate above 0", still[0].path)
    text += f": the norm of {'its gradient' if len(still) == 1 else 'their gradients'} is {format.rough(mine)} at most"
    fix = "a greater learning rate" if rate is not None and mine > TINY * most else ""
    return Rung(name, "broken", text, fix, still[0].path)


def _is_still(one: WatchedParameter) -> bool:
    """Whether none of its numbers that has a gradient has ever moved; of a large embedding no such number may have been compared."""
    return not one.moved and one.stuck is not None and not one.elsewhere and one.cancelled is None


def _enough(record: WatchRecord) -> Rung:
    name, known = "by enough for its dtype", record.watched
    measured = [weight for weight in known.parameters if weight.stuck is not None and weight.cancelled is None]
    if not measured:
        return Rung(name, "not seen", "no step of the optimizer was measured" if not known.stepped else NO_GRADIENT)
    alert = _alert(record, "rounding")
    if alert is not None:
        return Rung(name, "broken", alert.text, alert.fix, alert.path)
    worst = max(measured, key=lambda weight: weight.stuck or 0.0)
    share = worst.stuck or 0.0
    stays = f"at most {format.share(share)} of the elements with a gradient stay ({worst.path})"
    return Rung(name, "passed", stays if share > 0.01 else "all that have a gradient do")


def _unlogged(names: list[str]) -> str:
    """What is to be logged, or logged by another name."""
    if not names:
        return LOG
    return (
        f"which of {wording.joined(names, last='or')} is the loss? w.log(loss=…) tells"
        if len(names) > 1
        else (f"{names[0]} was logged, and may be something else: w.log(loss=…) tells")
    )


def _falls(loss: ScalarRecord | None, several: list[str], classes: int) -> Rung:
    name = "the loss falls"
    if loss is None or not loss.count:
        return Rung(name, "not seen", _unlogged(several))
    mean = loss.mean[np.isfinite(loss.mean)].astype(np.float64)
    first, last = loss.ends()
    if not math.isfinite(loss.final):
        text = f"its last value is {format.number(loss.final)}"
        return Rung(name, "broken", text, facts={"last": loss.final})
    facts = {"first": first, "last": last, "averaged": loss.averaged}
    text = wording.arrow(facts)
    part = max(1, len(mean) // 10)
    noise = float(np.std(np.diff(mean))) / math.sqrt(part) if len(mean) > 2 else 0.0
    if last < first and (_order(mean) < -ORDERED or (loss.count >= EARLY and last < first - FALLS * noise)):
        return Rung(name, "passed", text, facts=facts)
    if loss.count < EARLY:
        return Rung(name, "not seen", f"after {format.plural(loss.count, 'value')} it is too early to tell")
    if np.nanmin(loss.low) < 0:
        return Rung(name, "not seen", f"{text}: not judged, for it has negative values, as that of a policy gradient has", facts=facts)
    if last > first + max(RISES * noise, MUCH * abs(first)):
        uniform = math.log(classes) if classes > 1 and loss.passes <= 1 else math.inf
        burst = last > min(BURSTS * first, TWICE * max(first, uniform))
        fix = "a smaller learning rate, if it is meant to fall"
        return Rung(name, "broken" if burst else "careful", f"{text}: it rises", fix, facts=facts)
    return Rung(name, "careful", f"{text}: no trend beyond its noise", facts=facts)


def _order(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    """By how many standard errors more pairs of values rise than fall."""
    some = values[np.linspace(0, len(values) - 1, min(len(values), PAIRED)).astype(int)]
    count = len(some)
    rising = float(np.triu(np.sign(some[None, :] - some[:, None]), 1).sum())
    return rising / math.sqrt(count * (count - 1) * (2 * count + 5) / 18) if count > 1 else 0.0


def _alert(record: WatchRecord, *kinds: str) -> Alert | None:
    return next((alert for alert in record.alerts if alert.kind in kinds and not alert.over), None)


def _names(paths: list[str]) -> str:
    shown = ", ".join(path or "(root)" for path in paths[:FEW])
    return f"{shown} and {len(paths) - FEW:,} more" if len(paths) > FEW else shown
