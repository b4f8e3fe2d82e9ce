"""The headline of a watch, its conclusion in one sentence: the worst first, then whether the loss falls, then how it ended."""

from __future__ import annotations

from itertools import takewhile

import numpy as np

from modlab import format, wording
from modlab.records.finding import Finding
from modlab.records.watch import OF_UNITS, Alert, Check, ScalarRecord, WatchRecord, is_few_dead
from modlab.views import sharding
from modlab.views.watch import words

FALLS = "the loss falls"
_GOES = {
    "rises": "rises",
    "leaps": "leaps far above what a guess gives",
    "falls to chance": "falls, but not clearly below what a guess gives",
    "falls to a constant answer": "falls, but not clearly below what a constant answer gives",
}
_NAN = ("nan", "inf")
_NOT_LOOKED_AT = frozenset(("loss not seen", "hidden inside", "left out", "came later", "units not counted", "beyond the cap"))


def of_watch(record: WatchRecord) -> tuple[str, str]:
    """The sentence in two halves; the first is printed bold."""
    causes = [one for one in record.verdict.findings if is_cause(one)]
    if causes and (not record.error or record.state != "failed"):
        strong, more = _of_finding(causes)
        return strong, " ".join(filter(None, (*more, loss(record), _ending(record), _spread(record))))
    if not record.steps:
        return _nothing(record)
    if record.error and not _alerts(record) and record.verdict.broken is None:
        strong, why = _error(record)  # nothing is worse than that
        return strong, f"{why} {loss(record)}".strip()
    strong, facts, tells_loss = _worst(record)
    if not tells_loss:
        facts.append(loss(record))
    facts += [_ending(record), _spread(record)]
    return strong, " ".join(fact for fact in facts if fact)


def is_cause(finding: Finding) -> bool:
    """Whether the sentence is about it, or about one before it."""
    return finding.severity == "broken" and wording.is_cause(finding)


def _spread(record: WatchRecord) -> str:
    """Over which ranks the model lies, and which one this is."""
    return " ".join(f"{said[0].upper()}{said[1:]}." for said in sharding.spread(record.ranks))


def _nothing(record: WatchRecord) -> tuple[str, str]:
    title = words.said(record.title, words.LONG_NAME)
    if record.state in ("waiting", "running"):
        return "Waiting for the first step:", f"{title} has not made a training step yet."
    why = f" {_ending(record)}" if record.error else ""
    return "Nothing was seen:", f"no training step of {title} was seen.{why}"


def _worst(record: WatchRecord) -> tuple[str, list[str], bool]:
    """The bold half, what to say about it, and whether that already covers the loss."""
    alerts = _alerts(record)
    worst, broken = alerts[0] if alerts else None, record.verdict.broken
    found = [one for one in wording.told(record.verdict.findings) if not (is_few_dead(one) and record.verdict.misses_none)]
    if worst and worst.kind in OF_UNITS and not broken and words.mark(worst) != "broken" and found and wording.is_cause(found[0]):
        return *_of_finding(found), False  # a cause, before some units beside it
    if worst and (broken is None or worst.kind in _NAN or _explains(worst, broken)):
        return *_of_alert(worst, alerts, record), False
    if broken:
        return f"{wording.broken(broken)}:", _rest(broken), broken.name == FALLS
    if found and not (worst and words.mark(worst) == "broken" and found[0].severity != "broken"):
        return *_of_finding(found), False
    careful = next((check for check in record.verdict.checks if check.state == "careful"), None)
    title = words.said(record.title, words.LONG_NAME)
    if careful and careful.name == FALLS:
        return (
            f"The loss {_GOES.get(careful.kind, 'shows no trend beyond its noise')}:",
            [words.sentence(wording.said(careful) if careful.kind == "leaps" else wording.arrow(careful.facts))],
            True,
        )
    if careful:
        where = f", {words.place(careful.path)}" if careful.path else ""
        learns = any(check.name == FALLS and check.kind == "falls" for check in record.verdict.checks)
        strong = f"{title} learns, with one thing to look at:" if learns else f"One thing to look at in {title}:"
        return strong, [words.sentence(f"“{careful.name}”{where}: {wording.said(careful)}")], False
    return _well(record)


def _alerts(record: WatchRecord) -> list[Alert]:
    """Those that may be told, the worst first; none if all are of units that fire again, or of a few that nothing misses."""
    missed_none = record.verdict.misses_none
    told = [alert for alert in record.alerts if not (alert.over and (wording.ALERTS[alert.kind].refuted or alert.kind in OF_UNITS))]
    light = {id(alert) for alert in told if missed_none and alert.kind in OF_UNITS and words.mark(alert) != "broken"}
    return sorted(told, key=lambda alert: (id(alert) in light, words.rank(alert))) if len(light) < len(told) else []


def _of_finding(found: list[Finding]) -> tuple[str, list[str]]:
    """The worst one; the next one in passing."""
    strong, rest = wording.in_halves(found[0])
    more = [f"{len(found) - 1:,} more {'findings' if len(found) > 2 else 'finding'} below."] if len(found) > 1 else []
    return _bold(found[0], strong, rest), [words.sentence(rest), *more]


def _rest(check: Check) -> list[str]:
    said = wording.said(check)
    return [words.sentence(said)] if said else []


def _explains(alert: Alert, check: Check) -> bool:
    """Whether an alert says more exactly what a broken check says: about the same module, and just as bad."""
    owner = check.path.rpartition(".")[0]
    return words.mark(alert) == "broken" and bool(check.path) and alert.path in (check.path, owner)


def _of_alert(worst: Alert, alerts: list[Alert], record: WatchRecord) -> tuple[str, list[str]]:
    alike = [alert for alert in alerts if (alert.kind, alert.over) == (worst.kind, worst.over)]
    strong, rest = words.told(worst)
    if worst.kind in _NAN:
        begin = f"{words.kind(worst.kind)} {'at' if worst.over else 'from'} step {worst.step:,}{'' if worst.over else ' on'}"
        where = f", first in {words.place(worst.path)}" if worst.path else ""
        return f"{begin}{where}:", [words.sentence(words.replay(worst) or wording.said(worst)), _before(worst, record)]
    if len(alike) == 1:
        others = [alert for alert in alerts if alert.kind != worst.kind and not alert.over]
        return _bold(worst, strong, rest), [rest, _beside(others)]
    paths = list(dict.fromkeys(alert.path for alert in alike))
    if all(alert.unit is not None for alert in alike):
        where = words.place(paths[0]) if len(paths) == 1 else f"{len(paths):,} modules"
        first = f"unit {worst.unit} of {words.place(worst.path)} first"
        many = f"{len(alike):,} units of {where} {'were' if worst.over else 'are'} {worst.kind}:"
        return many, [f"{first}, {rest}" if rest else f"{first}."]
    return _bold(worst, f"{strong}, like {format.plural(len(alike) - 1, 'other')}", rest), [rest]


def _before(worst: Alert, record: WatchRecord) -> str:
    """The loss, if it was not finite while all modules still were: its own formula may overflow first."""
    bad = next((check for check in record.verdict.checks if check.kind == "loss not finite"), None)
    if bad is None or bad.step is None or not 0 <= bad.step < worst.step:
        return ""
    return f"Before that, at step {bad.step:,}, the loss was not finite."


def _bold(finding: Finding, strong: str, rest: str) -> str:
    return _capital(finding, f"{strong}:" if rest else f"{strong}.")


def _beside(others: list[Alert]) -> str:
    """The next alert, in passing."""
    if len(others) == 1:
        return f"{_capital(others[0], words.told(others[0])[0])}."
    return f"{len(others):,} more alerts." if others else ""


def _capital(finding: Finding, text: str) -> str:
    """``unit 1 of l0`` begins a sentence; a user's own name stays as it is."""
    return text if wording.begins_with_name(finding) else wording.capital(text)


def _well(record: WatchRecord) -> tuple[str, list[str], bool]:
    """Nothing was found, or only a few units that nothing misses: in how many looks, and what was not looked at."""
    checks, title = record.verdict.checks, words.said(record.title, words.LONG_NAME)
    if not checks or len(record.verdict.unseen) == len(checks):
        return f"{title} was watched for {format.plural(record.steps, 'step')}:", ["too few were measured for a verdict."], False
    so_far = " so far" if record.state == "running" else ""
    if record.samples < record.steps:
        looked = (
            f"{record.samples:,} of {format.plural(record.steps, 'step')} of {title} {'was' if record.samples == 1 else 'were'} measured."
        )
    else:
        looked = (
            f"each of the {format.plural(record.steps, 'step')} of {title} was measured." if record.steps > 1 else f"1 step of {title}."
        )
    judged = " in what could be judged" if {*record.verdict.unseen} - {FALLS, "the loss is sensible"} else ""
    few = any(alert.kind in OF_UNITS and not alert.over for alert in record.alerts) or any(map(is_few_dead, record.verdict.findings))
    beside = " apart from a few units that fire rarely or no more" if few else ""
    return f"No problem found{judged}{beside}{so_far}:", [looked, loss(record), _aside(record)], True


def _aside(record: WatchRecord) -> str:
    """What was not looked at, and what could not be judged."""
    said = [wording.said(one) for one in wording.sorted_by_rank(record.verdict.findings) if one.kind in _NOT_LOOKED_AT]
    told = {FALLS, "the loss is sensible"} if any(one.kind == "loss not seen" for one in record.verdict.findings) else set()
    unseen = [name for name in record.verdict.unseen if name not in told]
    if unseen:
        said.append(f"not judged: {wording.joined(f'“{name}”' for name in unseen)}")
    return words.sentence(f"{said[0][:1].upper()}{'; '.join(said)[1:]}") if said else ""


def loss(record: WatchRecord) -> str:
    """Whether it falls, in the numbers of the verdict."""
    check = next((check for check in record.verdict.checks if check.name == FALLS), None)
    if check is None or "last" not in check.facts:
        return ""
    if "first" not in check.facts:
        return f"The last value of the loss is {words.number(float(check.facts['last']))}."  # type: ignore[arg-type]
    return f"The loss {'falls' if check.kind == 'falls' else 'goes'} {wording.travelled(check.facts)}."


def extremes(scalar: ScalarRecord) -> tuple[float, float]:
    """The least and the greatest finite value."""
    low, high = (side[~np.isnan(side)] for side in (scalar.low, scalar.high))
    return (float(low.min()), float(high.max())) if len(low) and len(high) else (float("nan"), float("nan"))


def _ending(record: WatchRecord) -> str:
    if record.error:
        return " ".join(_error(record)).rstrip()
    after = f"after {format.plural(record.steps, 'step')}"
    return {"interrupted": f"Interrupted {after}.", "stopped": f"Stopped {after}."}.get(record.state, "")


def _error(record: WatchRecord) -> tuple[str, str]:
    """What ended it, the training's own error or one of the watch, and the first line of that."""
    why = "".join(takewhile(lambda sign: sign not in "\r\n", record.error.strip()))
    if record.state == "failed":
        return f"Not seen from step {record.steps:,} on:", f"the watch failed, but training went on. {words.sentence(why)}"
    return f"Step {record.steps:,} ended in an error:", words.sentence(why)
