"""Numbers and places of a watch as words, the same in every face."""

from __future__ import annotations

import math

from modlab import format, wording
from modlab.records.structure import ROOT
from modlab.records.watch import Alert, Rung, ScalarRecord, Verdict, WatchRecord

LONG, LONG_NAME = 600, 120
"""Characters of a text and of a name that are written out."""

CURVES = "curves (at first, at last: averaged over a tenth of the values)"
"""What stands above the table of curves."""

SIGNS = {"passed": "✓", "broken": "✕", "careful": "⚠", "not seen": "○"}
SEVERITY = (
    "nan",
    "inf",
    "not owned",
    "no gradient",
    "dead",
    "exploding",
    "vanishing",
    "rounding",
    "not zeroed",
    "saturated",
    "starving",
)
"""The kinds of alerts, the worst first."""

_BROKEN = frozenset(SEVERITY[:6])
_WHOLE = frozenset(("vanishing", "exploding", "not zeroed"))
"""Kinds of which the sentence is about the whole model."""

_IS = {
    "nan": "is NaN",
    "inf": "is infinite",
    "not owned": "is not owned by the optimizer",
    "no gradient": "gets no gradient",
    "dead": "is dead",
    "exploding": "has an exploding gradient",
    "vanishing": "has a vanishing gradient",
    "rounding": "loses its steps to rounding",
    "not zeroed": "has a gradient that is never zeroed",
    "saturated": "is saturated",
    "starving": "is starving",
}
_WAS = {
    "nan": "was NaN",
    "inf": "was infinite",
    "not owned": "was not owned by the optimizer",
    "no gradient": "got no gradient",
    "dead": "was dead",
    "exploding": "had an exploding gradient",
    "vanishing": "had a vanishing gradient",
    "rounding": "lost its steps to rounding",
    "not zeroed": "had a gradient that was not zeroed",
    "saturated": "was saturated",
    "starving": "was starving",
}


def entries(verdict: Verdict) -> list[Rung]:
    """The ladder, and below it what was found beside it, in the same form."""
    told = wording.told(verdict.findings)
    return [*verdict.rungs, *(Rung(wording.title(one), one.severity, wording.said(one), wording.fix(one), one.path) for one in told)]


def remarks(record: WatchRecord) -> list[str]:
    """What could not be seen, what was not looked at, and what is good to know."""
    return [*record.remarks, *(wording.sentence(one) for one in wording.notes(record.verdict.findings))]


number = format.rough
share = format.share


def kind(name: str) -> str:
    """The kind of an alert as a word."""
    return {"nan": "NaN", "inf": "Inf"}.get(name, said(name, LONG_NAME))


def said(text: str, limit: int = LONG) -> str:
    """A text that comes from outside, on one line and not without end."""
    return format.cut(format.clean(text), limit)


def place(path: str, unit: int | None = None) -> str:
    """``l0``, ``unit 1 of l0``, ``(root)``."""
    name = said(path, LONG_NAME) or ROOT
    return name if unit is None else f"unit {unit} of {name}"


def what(alert: Alert) -> str:
    """The place and what is wrong with it: ``unit 1 of l0 is dead``."""
    said = (_WAS if alert.over else _IS).get(alert.kind)
    where = place(alert.path, alert.unit)
    return f"{where} {said}" if said else f"{where}: {kind(alert.kind)}"


def told(alert: Alert) -> tuple[str, str]:
    """What is wrong with what, and the evidence: the alert's own sentence, cut at its colon, where that names the place."""
    begin, _, rest = said(alert.text).strip().rstrip(".").partition(": ")
    named = alert.kind in _WHOLE or begin.startswith(place(alert.path, alert.unit)) or (alert.unit is None and alert.path in begin.split())
    if not begin:
        return what(alert), _basis(alert)
    if not named or alert.over:
        return what(alert), sentence(rest if named and rest else alert.text)
    return begin, sentence(rest)


def _basis(alert: Alert) -> str:
    """What it rests on."""
    seen = [format.plural(count, word) for count, word in ((alert.inputs, "input"), (alert.steps, "step")) if count]
    return f"seen on {' and '.join(seen)}." if seen else ""


def sentence(text: str) -> str:
    """With a full stop."""
    clean = said(text.strip())
    return clean if not clean or clean[-1] in ".!?:;" else f"{clean}."


def when(alert: Alert) -> str:
    """``step 12``, or from where to where."""
    begin = f"step {alert.step:,}"
    return f"{begin} to {alert.last:,}" if alert.over and alert.last > alert.step else begin


def of_curve(scalar: ScalarRecord) -> str:
    """What else there is to say of a curve: what is no number, of what it is the sum, and what was clipped."""
    facts = []
    if scalar.bad.any():
        facts.append(f"{int(scalar.bad.sum()):,} not finite")
    if scalar.passes > 1:
        passes = number(round(scalar.passes, 1))
        facts.append(f"each the sum of {passes} backward passes")
    if math.isfinite(scalar.bound):
        facts.append(f"clipped to {number(scalar.bound)} in {scalar.beyond:,} of {scalar.count:,}")
    return ", ".join(facts)


def mark(alert: Alert) -> str:
    """How bad it is: "broken" or "careful"."""
    return "broken" if alert.kind in _BROKEN and not (alert.over or alert.careful) else "careful"


def rank(alert: Alert) -> tuple[bool, int, int, int]:
    """Sorts the worst first: what still holds, then by kind, the earliest, the lowest unit."""
    kind = SEVERITY.index(alert.kind) if alert.kind in SEVERITY else len(SEVERITY)
    return alert.over, kind, alert.step, -1 if alert.unit is None else alert.unit


def replay(alert: Alert) -> str:
    """The headline of the step that was run again; nothing where there was none."""
    trace = alert.trace
    if trace is None:
        return ""
    return said(trace if isinstance(trace, str) else str(getattr(trace, "headline", "")))


def of_part(record: WatchRecord) -> str:
    """What stands behind the name of numbers that are about this rank's part alone: a norm of it is none of the whole."""
    return ", of this rank's part" if is_part(record) else ""


def is_part(record: WatchRecord) -> bool:
    """Whether this rank holds a part of the model alone."""
    return record.ranks is not None and record.ranks.parts > 1
