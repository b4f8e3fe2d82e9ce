"""The verdict: from data to a falling loss, check by check; the first broken one is why the model does not learn."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from modlab.causes.symptoms import ALREADY, NEARLY_ALL, SERVED, Symptoms
from modlab.causes.table import causes
from modlab.records.finding import Fact, Finding, Remedy, Severity
from modlab.records.loss import losses
from modlab.records.watch import GRADIENT, PARAMETER_GRADIENT, Alert, Check, ScalarRecord, Verdict, WatchRecord
from modlab.records.watched import Watched, WatchedModule, WatchedParameter
from modlab.running.guarded import note
from modlab.watching.alerts import HALF, SAMPLES
from modlab.watching.findings import HANDFUL, NARROW, TINY, find, not_finite, unseen_loss, unseen_shifts

UNMEASURED, UNGRADED = "no step measured", "no gradient of the optimizer's"
TRAIN = Remedy(code="model.train()")

SOON = 3
"""Samples before which it is not said what the optimizer lacks: it is seen by then whether another one moves it."""

LEARNT = 0.8
"""Share of its first value, or of a constant answer's, by which a loss has to fall for dead units to be without consequence."""

LEARNT_WELL, SOME = 0.99, 4
"""The same of a layer of a few units most of which live, and how many: next to nothing is left that the others could have learned."""

FALLEN = 0.3
"""Or by which it has to fall for biases and scales of what is not called to be without consequence."""

RISES, MUCH = 4, 0.1
"""A loss rises when its last values lie so many standard errors above the first, and by that share of the first."""

RATES = ("rate too low", "rate runs out", "warmup never ends")
"""Causes that a larger learning rate mends."""

LOOKS = ("find the NaN", "look at the loss")
"""Advice to look for what a cause has named; what mends the place where a NaN was born is none of these."""

MOSTLY = 0.8
"""Share of a parameter's elements that do not move, beyond which its steps are next to nothing."""

LEAPS = 100
"""How many times its first values a loss may be without having risen, whatever its noise: what blows up jumps about as well."""

BURSTS, TWICE = 1e4, 2
"""Times its first values beyond which a loss has burst; and a cross-entropy when it has so often risen, and is worse by as much than a
uniform guess. Less than that is no fault for certain: of rewards that grow, and of one of two players, the loss rises."""

FALLS = 2
"""Standard errors that the last values of a loss that falls lie below the first."""

ORDERED, LATE = 3, 2.5
"""Or standard errors by which more pairs of its values fall than rise (Mann and Kendall), or the last quarter ranks below the rest: these
need no noise, and few values."""

NO_BETTER = 0.99
"""Part of the loss of a guess among all classes alike that is no better than it."""

NO_WORSE = 1.05
"""The same at which a loss begins, or stays for a third of the time, that is there: one from far above is on its way."""

PLATEAU = 200
"""Steps that such a loss may stand there before it falls on, as of a language model that knows how often each token comes."""

FAR, OFTEN = 10, 2
"""Times what a guess gives, and how often, beyond which a cross-entropy leaps, even if the last values are low."""

LEARNT_OUT = 1e-6
"""Part of the loss of a constant answer below which nothing is left to learn: what moves then is rounding."""

EARLY, PAIRED = 20, 128
"""Values of a loss from which on one that shows no trend has none; values of which all pairs are compared."""

_SEVERITIES: dict[str, Severity] = {"broken": "broken", "careful": "careful"}


def _check(name: str, state: str, kind: str, facts: Mapping[str, Fact] | None = None, *fixes: Remedy, path: str = "") -> Check:
    """One check, and what it saw: `kind` is one of `wording.CHECKS`."""
    return Check(kind, path, facts or {}, _SEVERITIES.get(state, "note"), fixes=fixes, name=name, state=state)


def _because(name: str, state: str, finding: Finding) -> Check:
    """A check that a finding answers."""
    one = finding
    return Check(one.kind, one.path, one.facts, _SEVERITIES.get(state, "note"), one.step, one.evidence, one.fixes, name, state)


def verdict(record: WatchRecord) -> Verdict:
    """The verdict of a record, from what stands in it alone."""
    return judged(record).verdict


def _of_training(symptoms: Symptoms, later: frozenset[str]) -> Verdict:
    """The checks and the findings."""
    record = symptoms.record
    found = losses(record)
    loss = found[0] if len(found) == 1 else None
    untold = unseen_loss(record, found or record.scalars)
    falls = _falls(loss, untold, symptoms)
    why = causes(symptoms, note) if symptoms.is_training else ()
    checks = (
        _data(record),
        _explained(_sensible(record, loss, untold), why),
        _called(record, later),
        _graded(symptoms, later),
        _owned(record),
        _moves(symptoms, falls),
        _explained(_enough(record, falls), why),
        _beside(why, falls, symptoms),
    )
    told = {(one.kind, one.path) for one in why}
    beside = (one for one in find(record, loss) if (one.kind, one.path) not in told)
    beside = (replace(one, fixes=()) if one.kind == "dead units" and _has_cause(why) else one for one in beside)
    beside = (replace(one, severity="careful") if one.kind == "dead units" and _is_served(one, symptoms) else one for one in beside)
    return Verdict(checks, (*why, *beside))


def _is_served(finding: Finding, symptoms: Symptoms) -> bool:
    """Whether the units that are left serve: the loss falls well by them, or says nothing by itself."""
    units, dead = int(finding.facts["units"]), int(finding.facts["dead"])  # type: ignore[arg-type]
    if units > NARROW and (symptoms.fallen > LEARNT or symptoms.progress > LEARNT):
        return True
    if 2 * dead < units >= SOME and (symptoms.fallen > LEARNT_WELL or symptoms.progress > LEARNT_WELL):
        return True
    if symptoms.has_baseline and symptoms.progress > LEARNT and _never_fired(finding, symptoms):
        return True
    falls = symptoms.progress > SERVED or (math.isnan(symptoms.progress) and symptoms.falls)  # how far it can is not known of each loss
    return units >= HANDFUL and dead < NEARLY_ALL * units and (falls or symptoms.plays)


def _never_fired(finding: Finding, symptoms: Symptoms) -> bool:
    """Whether the dead units of a layer were so from the first look on, so that all that was learnt was learnt without them."""
    some = next((one for one in symptoms.record.units if one.path == finding.path), None)
    which: list[int] = [*finding.facts["which"]]  # type: ignore[misc]
    return some is not None and bool((some.silent[which] >= some.inputs.sum()).all())


def _holding(alerts: Sequence[Alert], severity: Severity) -> tuple[str, ...]:
    """The kinds of alerts that still hold; of dead units a finding tells how many."""
    kinds = [alert.kind for alert in alerts if alert.severity == severity and not alert.over and alert.kind != "dead"]
    return tuple(dict.fromkeys(kinds))


def judged(record: WatchRecord) -> WatchRecord:
    """The record with its verdict, and its alerts as bad as that shows them to be."""
    symptoms = Symptoms(record)
    later = _came_later(symptoms)
    reached = _of_training(symptoms, later)
    few = {("dead", one.path) for one in reached.findings if one.kind == "dead units" and one.severity == "careful"}
    few |= {("no gradient", path) for path in _spared(symptoms)}
    some = (alert for alert in record.alerts if alert.kind != "no gradient" or alert.path not in later)
    alerts = tuple(replace(alert, severity="careful") if (alert.kind, alert.path) in few else alert for alert in some)
    broken, cares = _holding(alerts, "broken"), _holding(alerts, "careful")
    error = record.error if record.state != "failed" else ""
    return replace(record, alerts=alerts, verdict=replace(reached, alerts=broken, cares=cares, error=error))


def _spared(symptoms: Symptoms) -> frozenset[str]:
    """Parameters without a gradient that are no reason to worry: the loss falls well without them, or they are few and it falls.

    Or it is a slope that is trained, to which what is added makes no difference.

    They are met in no graph of a loss, so that nothing that was meant to reach them is cut off.
    """
    known = symptoms.watched
    lost = {one.path: one for one in known.parameters if _expected(one)}
    if symptoms.modules("derived") and symptoms.are_biases(lost):
        return frozenset(lost)
    falls = _progress(symptoms)
    if not lost or not known.clues.walks or not all(known.clues.walks) or not known.clues.reached.isdisjoint(lost) or not falls > FALLEN:
        return frozenset()
    called = {one.path for one in known.modules if one.called and one.path}
    small = all(one.dimensions < 2 and one.module not in called for one in lost.values())
    return frozenset(lost) if falls > LEARNT or small else frozenset()


def _came_later(symptoms: Symptoms) -> frozenset[str]:
    """Parameters that had no gradient in any look, as those of a second phase, and did move: one came between two looks."""
    return frozenset(one.path for one in symptoms.watched.parameters if _expected(one) and symptoms.changes(one.path))


def _progress(symptoms: Symptoms) -> float:
    """How far the loss has come, or by how much it fell where that is not known."""
    return symptoms.fallen if math.isnan(symptoms.progress) else symptoms.progress


def _falls_well(symptoms: Symptoms) -> bool:
    """Whether the loss has come on, and in order: a matrix without a gradient is then one that it can do without."""
    return _progress(symptoms) > FALLEN and _order(symptoms.values.astype(np.float64)) < -ORDERED


def _data(record: WatchRecord) -> Check:
    name, known = "data arrives", record.watched
    bad, facts = _alert(record, "nan", "inf"), {"steps": record.steps}
    if bad is not None and bad.facts["where"] == "the batch":
        return _because(name, "broken", bad)
    if not record.steps:
        return _check(name, "not seen", "no step yet")
    minded = known.clues.loop.modes.places
    if known.evaluated and known.passes and minded:
        return _check(name, "careful", "evaluation mode", {"evaluated": known.evaluated, "looks": record.samples}, TRAIN)
    if known.passes or "" in known.opaque or any(one.called for one in known.modules):
        return _check(name, "passed", "steps made", facts)
    if known.evaluated:
        return _check(name, "careful" if minded else "not seen", "evaluation mode alone", facts, *(TRAIN,) * bool(minded))
    return _check(name, "not seen", "no call seen", facts)


def _sensible(record: WatchRecord, loss: ScalarRecord | None, untold: dict[str, Fact]) -> Check:
    name, known = "the loss is sensible", record.watched
    if loss is None or not loss.count:
        return _check(name, "not seen", "loss not told", untold)
    bad = not_finite(record, loss, loss=True)
    if bad is not None:
        return _because(name, bad.severity, bad)
    unseen = _alert(record, "nan", "inf")  # in a step whose loss was not seen
    left_out = unseen is not None and unseen.facts["where"] == "the batch" and unseen.facts["seen"] == "sample"  # as all losses show
    if unseen is not None and unseen.severity == "broken" and not left_out:
        return _because(name, "broken", unseen)
    classes = _classes(known) - max((one.masked for one in known.clues.losses), default=0)
    if classes < 2 or loss.passes > 1:
        return _finite(name, loss, record.steps if known.closed else int(loss.last[-1]) + 1)
    first, uniform, at = float(loss.mean[0]), math.log(classes), (int(loss.first[0]), int(loss.last[0]))
    facts: dict[str, Fact] = {"value": first, "uniform": uniform, "classes": classes, "last": at[1], "steps": at}
    facts["averaged"] = loss.count > len(loss.mean)
    trained_before = known.clues.frozen > 2 * known.clues.fresh  # what was learned for something else, and may be far off here at first
    if first > 2 * uniform + 0.5 and not trained_before:
        return _check(name, "careful", "first loss", facts, Remedy("smaller last layer"))
    return _check(name, "passed", "first loss", facts)


def _classes(known: Watched) -> int:
    """Among how many the loss chooses, 0 if it is a sum: as its graph says, for they may be pairs of a batch; else the output's."""
    read = {one.classes for one in known.clues.losses if one.classes}
    return read.pop() if known.classes and len(read) == 1 else known.classes


def _finite(name: str, loss: ScalarRecord, steps: int) -> Check:
    """Every value is a number; and of how many steps there is none."""
    missed = steps - loss.count
    unseen: dict[str, Fact] = {"missed": missed, "steps": steps} if loss.kind == "loss" and missed > 0 else {}
    return _check(name, "passed", "finite values", {"count": loss.count, **unseen})


def _called(record: WatchRecord, later: frozenset[str]) -> Check:
    name, known = "every module is called", record.watched
    if not record.samples:
        return _check(name, "not seen", "no step measured yet")
    silent = [one for one in known.modules if one.taken and not one.called and not one.container and not _hidden(one.path, known)]
    wanted = {one.module for one in known.parameters if _expected(one) and one.path not in later}
    weighty = [one.path for one in silent if one.path in wanted]
    called = sum(1 for one in known.modules if one.called and one.taken)
    if not called and known.opaque:
        return _check(name, "not seen", "modules not seen")
    if not called and not known.evaluated:
        return _check(name, "not seen", "no call of the model")
    if not called:
        return _check(name, "not seen", "no training pass")
    if weighty and record.samples >= SAMPLES:
        return _check(name, "careful", "never called", {"paths": tuple(weighty)}, path=weighty[0])
    if silent:
        return _check(name, "passed", "some not called", _kinds(silent, known))
    return _check(name, "passed", "all called", {"called": called})


def _kinds(silent: list[WatchedModule], known: Watched) -> dict[str, Fact]:
    """Modules that were not called, by what that means for their parameters: a gradient tells that they were used by another way."""
    kinds: dict[str, list[str]] = {"bare": [], "used": [], "other": []}
    felt = {one.path for one in known.parameters if one.felt}
    for one in silent:
        kinds["bare" if not one.holds else "other" if felt.isdisjoint(one.holds) else "used"].append(one.path)
    return {kind: tuple(paths) for kind, paths in kinds.items()}


def _expected(one: WatchedParameter) -> bool:
    """Whether a parameter should be trained but nothing has used it: not by its own module's call, nor as attention uses its last layer."""
    return _lacks(one) and one.owned


def _lacks(one: WatchedParameter) -> bool:
    """Whether a parameter should be trained, and neither has a gradient nor is moved by something else."""
    return one.trainable and not one.felt and not one.elsewhere


def _hidden(path: str, known: Watched) -> bool:
    return any(path == above or path.startswith(f"{above}.") or not above for above in known.opaque)


def _graded(symptoms: Symptoms, later: frozenset[str]) -> Check:
    name, record, known = "every trained parameter gets a gradient", symptoms.record, symptoms.watched
    trained = [weight for weight in known.parameters if weight.trainable]
    if not trained and known.left[1]:
        return _check(name, "not seen", "none of only")
    if not trained and not symptoms.is_training:
        return _check(name, "not seen", "no gradient seen")
    if not trained:
        return _check(name, "broken", "none trainable", None, Remedy(code="model.requires_grad_(True)"))
    felt = [weight for weight in trained if weight.felt]
    if not felt and _came_back(record):
        return _check(name, "not seen", "gradients taken away")
    if not felt and known.feeds_others:
        return _check(name, "not seen", "gradients of others")
    if not felt and record.samples > 1:
        loop = record.watched.clues.loop
        begun = loop.backwards or loop.rootless  # then it is not the call that is missing
        return _check(name, "broken", "no gradient seen", None, *(() if begun else (Remedy(code="loss.backward()"),)))
    if not felt:
        return _check(name, "not seen", "no gradient seen")
    enough = record.samples >= SAMPLES
    lost = tuple(weight.path for weight in trained if _expected(weight) and weight.path not in later)
    if lost and enough:
        state = "careful" if _spared(symptoms).issuperset(lost) else "broken"
        taken = all(path in known.clues.loop.taken for path in lost)  # then a trace, which ends before, has no answer
        some: dict[str, Fact] = {"paths": lost, **({"taken": True} if taken else {})}
        return _check(name, state, "parameters without a gradient", some, *(() if taken else (Remedy("ask why"),)), path=lost[0])
    unseen = unseen_shifts(known)
    flat = _measured(record, [weight for weight in felt if not weight.graded and weight not in unseen])
    if flat and enough:
        # of a bias or a scale, unlike a matrix, it may be zero for a good reason: a shift that the loss does not see
        first = next((weight for weight in flat if weight.dimensions > 1), flat[0])
        facts: dict[str, Fact] = {"paths": tuple(weight.path for weight in flat), "looks": min(weight.felt for weight in flat)}
        bad = first.dimensions > 1 and not _falls_well(symptoms)
        return _check(name, "broken" if bad else "careful", "parameters with a zero gradient", facts, path=first.path)
    return _check(name, "passed", "gradients", {"felt": len(felt), "trained": len(trained), **_besides(trained, known)})


def _besides(trained: list[WatchedParameter], known: Watched) -> dict[str, Fact]:
    """What to say about the others."""
    aside = tuple(weight.path for weight in trained if _lacks(weight) and not weight.owned)
    since = sum(weight.thawed for weight in known.parameters)
    return {"aside": aside, "moved": tuple(weight.path for weight in trained if not weight.felt and weight.elsewhere), "since": since}


def _came_back(record: WatchRecord) -> bool:
    """Whether the gradient of any module's output was measured."""
    rows = [row for row, one in enumerate(record.history.series) if one.role == GRADIENT]
    return bool((record.history.columns["samples"][:, rows] > 0).any())


def _measured(record: WatchRecord, some: list[WatchedParameter]) -> list[WatchedParameter]:
    """Those whose gradients have numbers that can be seen: a sparse one has none."""
    rows = {one.path: row for row, one in enumerate(record.history.series) if one.role == PARAMETER_GRADIENT} if some else {}
    samples = record.history.columns["samples"]
    return [one for one in some if one.path in rows and bool((samples[:, rows[one.path]] > 0).any())]


def _owned(record: WatchRecord) -> Check:
    name, known = "the optimizer owns it", record.watched
    if not record.optimizer:
        return _check(name, "not seen", "no optimizer")
    several = len(known.clues.loop.optimizers) > 1
    whose: dict[str, Fact] = {"optimizer": record.optimizer, **({"several": True} if several else {})}
    anew = f"{record.optimizer}(model.parameters())"
    given = Remedy("nearest optimizer") if several else Remedy(code=anew)
    trained = [weight for weight in known.parameters if weight.trainable]
    lost = [weight.path for weight in trained if not weight.owned and not weight.elsewhere]
    if trained and len(lost) == len(trained) and not any(weight.felt for weight in trained) and known.feeds_others:
        return _check(name, "not seen", "holds others", whose)
    if trained and len(lost) == len(trained) and not known.left[1]:
        fix = Remedy("after sharding" if any(weight.swapped for weight in trained) else "", anew)
        return _check(name, "broken", "holds none", whose, fix, path=lost[0])
    felt = tuple(weight.path for weight in trained if weight.felt and weight.path in set(lost))
    if felt and record.samples < SOON:
        return _check(name, "not seen", "not held yet", {"paths": felt, **whose})
    if felt:
        return _check(name, "broken", "not held", {"paths": felt, **whose}, given, path=felt[0])
    if known.unregistered:
        return _unregistered(name, known.unregistered)
    late = known.late_unowned
    if late:
        fix = given if several else Remedy("after the change", anew)
        return _check(name, "broken", "late parameters not held", {"paths": late, **whose}, fix, path=late[0])
    thawed = known.thawed_unowned
    if thawed:
        return _check(name, "broken", "thawed parameters not held", {"paths": thawed, **whose}, given, path=thawed[0])
    held = sum(weight.owned for weight in trained)
    return _check(name, "passed", "owned", {"owned": held, "trained": len(trained), "others": len(trained) - held - len(lost)})


def _unregistered(name: str, found: tuple[Finding, ...]) -> Check:
    """Weights that PyTorch does not see: the first ones, and in how many places there are more."""
    one = found[0]
    facts: dict[str, Fact] = {**one.facts, "place": one.path, "more": len(found) - 1}
    fixes = [Remedy(code="; ".join(fix.code.splitlines())) for fix in one.fixes[:1] if fix.code]
    return _check(name, "broken", "unregistered weights", facts, *fixes, path=one.path)


def _moves(symptoms: Symptoms, falls: Check) -> Check:
    name, record, known = "it moves", symptoms.record, symptoms.watched
    owned = [weight for weight in known.parameters if weight.trainable and weight.owned and weight.felt and weight.met]
    if not owned or not known.stepped:
        return _check(name, "not seen", UNGRADED if known.stepped else UNMEASURED)
    rate = known.rate
    still = [weight for weight in owned if _is_still(weight, rate)]
    if len(still) == len(owned) and (falls.state == "passed" or falls.kind == "falls to chance"):
        return _check(name, "not seen", "moves between looks")
    if still and record.samples < SAMPLES:
        return _check(name, "not seen", "not moved yet", {"paths": tuple(weight.path for weight in still), "looks": record.samples})
    if still and symptoms.most < LEARNT_OUT * symptoms.constant:
        return _check(name, "not seen", "nothing left", {"paths": tuple(weight.path for weight in still), "loss": symptoms.last})
    if still:
        return _stands(name, still, owned, rate)
    moved = [weight.moved or weight.elsewhere for weight in owned]
    rounded = sum(weight.graded and not one and bool(weight.stuck) for weight, one in zip(owned, moved, strict=True))
    return _check(name, "passed", "moves", {"moved": sum(moved), "trained": len(owned), "rounded": rounded})


def _stands(name: str, still: list[WatchedParameter], owned: list[WatchedParameter], rate: float | None) -> Check:
    """Parameters with a gradient that never move, and what can help: nothing is said to, where the gradient is next to nothing."""
    most, mine = (max(weight.size for weight in some) for some in (owned, still))
    facts: dict[str, Fact] = {"paths": tuple(weight.path for weight in still), "norm": mine, "rate": "", "all": rate == 0}
    if {one for weight in still for one in weight.rates} == {0.0}:
        return _check(name, "broken", "does not move", {**facts, "rate": "zero"}, Remedy("some learning rate"), path=still[0].path)
    fixes = (Remedy("any steps" if len(still) == len(owned) else "larger steps"),) if rate is not None and mine > TINY * most else ()
    return _check(name, "broken", "does not move", facts, *fixes, path=still[0].path)


def _is_still(one: WatchedParameter, rate: float | None) -> bool:
    """Whether none of its numbers that has a gradient has ever moved; of a large embedding no such number may have been compared.

    A 16-bit one may have lost its steps to rounding, if there is a rate: that is told of by itself.
    """
    stands = not one.moved and one.stuck is not None and not one.elsewhere and one.cancelled is None
    return stands and (one.dtype not in HALF or not rate)


def _enough(record: WatchRecord, falls: Check) -> Check:
    name, known = "by enough for its dtype", record.watched
    measured = [weight for weight in known.parameters if weight.stuck is not None and weight.cancelled is None and not weight.is_copy]
    if not measured and any(weight.owned and weight.felt for weight in known.parameters) and known.stepped:
        return _check(name, "not seen", "not counted")
    if not measured:
        return _check(name, "not seen", UNGRADED if known.stepped else UNMEASURED)
    alert = _alert(record, "rounding")
    if alert is not None:
        return _because(name, "broken", alert)
    measured = [weight for weight in measured if not _is_still(weight, known.rate)]
    if not measured:
        return _check(name, "not seen", "nothing moves")
    worst = max(measured, key=lambda weight: weight.stuck or 0.0)
    share = worst.stuck or 0.0
    # At the end of a schedule, where the rate has gone to 0, that is usual, and the loss has fallen.
    stands = share > MOSTLY and falls.state in ("careful", "broken")
    facts: dict[str, Fact] = {"share": share, "parameter": worst.path}
    return _check(name, "careful" if stands else "passed", "steps count", {**facts, "stands": True} if stands else facts)


def _has_cause(why: tuple[Finding, ...], apart: Collection[str] = ()) -> bool:
    """Whether a cause is named that is surely one, but for some kinds."""
    return any(one.severity == "broken" and one.kind not in apart for one in why)


def _explained(check: Check, why: tuple[Finding, ...]) -> Check:
    """A check without advice that a cause makes idle: no larger rate mends steps that something else makes small, and a NaN is found."""
    if check.kind == "rounding":
        return replace(check, fixes=()) if _has_cause(why, RATES) else check
    kept = tuple(one for one in check.fixes if one.kind not in LOOKS)
    return replace(check, fixes=kept) if check.state == "broken" and _has_cause(why) else check


def _falls(loss: ScalarRecord | None, untold: dict[str, Fact], symptoms: Symptoms) -> Check:
    name, record, watched = "the loss falls", symptoms.record, symptoms.watched
    if loss is None or not loss.count:
        return _check(name, "not seen", "loss not told", untold)
    mean = loss.mean[np.isfinite(loss.mean)].astype(np.float64)
    first, last = loss.ends()
    if not math.isfinite(loss.final):
        return _check(name, "broken", "last value not finite", {"last": loss.final})
    beyond = math.inf if loss.inf and not loss.nan else math.nan
    ends = [one if math.isfinite(one) else beyond for one in (first, last)]
    facts: dict[str, Fact] = {"first": ends[0], "last": ends[1], "averaged": loss.averaged}
    facts |= {"values": loss.count} if loss.averaged and loss.count < record.steps else {}
    facts |= {"passes": loss.passes} if loss.passes > 1 else {}
    if symptoms.gains:
        return _check(name, "not seen", "climbed", facts)
    leaps = _leaps(mean, watched) if last < first and loss.passes <= 1 else None
    if leaps:
        return _check(name, "careful", "leaps", facts | leaps, Remedy("smaller steps"))
    part = max(1, len(mean) // 10)
    noise = float(np.std(np.diff(mean))) / math.sqrt(part) if len(mean) > 2 else 0.0
    ask = Remedy("ask the batch" if watched.batch_kept else "ask a batch")
    if last < first and (_order(mean) < -ORDERED or (loss.count >= EARLY and (last < first - FALLS * noise or _lateness(mean) < -LATE))):
        late = float(mean[-max(1, len(mean) // 3) :].mean()) if record.steps >= PLATEAU else math.inf
        near = min(first, float(mean[0]), late) < NO_WORSE * symptoms.chance
        if loss.count >= EARLY and last > NO_BETTER * symptoms.chance and near:
            chance: dict[str, Fact] = {"chance": symptoms.chance, "classes": max(symptoms.loss.classes, 2)}
            return _check(name, "careful", "falls to chance", facts | chance, ask)
        return _check(name, "passed", "falls", facts)
    if loss.count < EARLY:
        return _check(name, "not seen", "too early", {"count": loss.count, "steps": record.steps})
    if np.nanmin(loss.low) < 0 and not last > BURSTS * max(abs(first), -float(np.nanmin(loss.low)), 1):
        return _check(name, "not seen", "negative values", facts)
    if last > first + max(RISES * noise, MUCH * abs(first)) or last > LEAPS * abs(first) > 0:
        classes = _classes(watched)
        uniform = math.log(classes) if classes > 1 and loss.passes <= 1 else math.inf
        burst = last > min(BURSTS * first, TWICE * max(first, uniform))
        return _check(name, "broken" if burst else "careful", "rises", facts, Remedy("smaller steps"))
    if max(first, last) < ALREADY * symptoms.constant:
        return _check(name, "passed", "low already", facts | {"constant": symptoms.constant})
    return _check(name, "careful", "no trend", facts | {"each": part} if loss.averaged and loss.count == len(mean) else facts, ask)


def _beside(why: tuple[Finding, ...], falls: Check, symptoms: Symptoms) -> Check:
    """The check of a loss that falls, beside what is found to be wrong: down to a constant answer any comes, from where leaps took it."""
    if falls.kind == "falls" and symptoms.has_baseline and symptoms.is_stuck and any(one.severity == "broken" for one in why):
        return _check(falls.name, "careful", "falls to a constant answer", {**falls.facts, "constant": symptoms.baseline})
    return falls


def _leaps(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]], known: Watched) -> dict[str, Fact] | None:
    """How many values of a cross-entropy are far above a guess long after the beginning: then the last few are low by chance."""
    classes, late = _classes(known), values[len(values) // 3 :]
    uniform = math.log(classes) if classes > 1 else math.inf
    far = int((late > FAR * max(float(values[0]), uniform)).sum())
    return {"far": far, "late": len(late), "uniform": uniform} if far >= max(OFTEN, len(late) / 10) else None


def _order(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    """By how many standard errors more pairs of values rise than fall."""
    some = values[np.linspace(0, len(values) - 1, min(len(values), PAIRED)).astype(int)]
    count = len(some)
    rising = float(np.triu(np.sign(some[None, :] - some[:, None]), 1).sum())
    return rising / math.sqrt(count * (count - 1) * (2 * count + 5) / 18) if count > 1 else 0.0


def _lateness(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    """By how many standard errors the last quarter ranks above all before it (Mann and Whitney), whatever leaps lie between."""
    count, late = len(values), len(values) // 4
    ranks = values.argsort().argsort()[count - late :]
    return float(ranks.sum() - late * (count - 1) / 2) / math.sqrt(late * (count - late) * (count + 1) / 12) if late else 0.0


def _alert(record: WatchRecord, *kinds: str) -> Alert | None:
    return next((alert for alert in record.alerts if alert.kind in kinds and not alert.over), None)
