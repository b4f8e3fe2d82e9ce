"""Numbers and places of a watch as words, the same in every view."""

from __future__ import annotations

import math
from collections.abc import Sequence

from modlab import format, wording
from modlab.records.finding import Finding
from modlab.records.watch import Alert, ScalarRecord, Verdict, WatchRecord

LONG, LONG_NAME = 600, 120
"""How many characters of a text and of a name are shown."""

SIGNS = {"passed": "✓", "broken": "✕", "careful": "⚠", "not seen": "○"}


THE_RUN = "the run"
"""What is named in place of a check, where the run ended in an error."""


def entries(verdict: Verdict) -> list[tuple[str, str, Finding]]:
    """The checks, below them what was found beside them, and the error it ended in: what is checked, its state, and what was found."""
    checks: list[tuple[str, str, Finding]] = [(check.name, check.state, check) for check in verdict.checks]
    ended = [Finding("ended in an error", "", {"error": verdict.error.strip().splitlines()[0]}, "careful")] if verdict.error.strip() else []
    found = [(wording.title(one), one.severity, one) for one in wording.told(verdict.findings)]
    return [*checks, *found, *((THE_RUN, "careful", one) for one in ended)]


def place_beside(finding: Finding) -> str:
    """Where it is, if its own sentence does not say that."""
    return wording.label(finding.path) if finding.path and not wording.names_place(finding) else ""


def remarks(record: WatchRecord) -> list[str]:
    """What could not be seen, what was not looked at, and what is good to know."""
    return [*record.remarks, *(wording.sentence(one) for one in wording.notes(record.verdict.findings))]


def moment(record: WatchRecord) -> list[str]:
    """What a picture at rest says of a training that goes on: nobody tells it how."""
    return ["a picture of this moment, which does not move on"] if record.state in ("waiting", "running") else []


number = format.rough
share = format.share


def kind(name: str) -> str:
    """The kind of an alert as a word."""
    return {"nan": "NaN", "inf": "Inf"}.get(name, name)


def said(text: str, limit: int = LONG) -> str:
    """Text from outside, on one line and cut to a limit."""
    return format.cut(format.clean(text), limit)


def place(path: str, unit: int | None = None) -> str:
    """``l0``, ``layer 1``, ``unit 1 of l0``, ``(root)``."""
    name = wording.named(path)
    return name if unit is None else f"unit {unit} of {name}"


def told(alert: Alert, others: int = 0) -> tuple[str, str]:
    """What is wrong with what, and the evidence; and how many more are like it."""
    (begin, rest), more = wording.halves(alert), like_it(others)
    if not begin or alert.over:
        return said(wording.what(alert)), sentence(f"{rest or begin}{more}")
    return (said(begin), sentence(f"{rest}{more}")) if rest else (said(f"{begin}{more}"), "")


def together(alerts: Sequence[Alert]) -> list[tuple[Alert, int]]:
    """Of alerts of one kind that began in the same step the first one, and how many are like it."""
    found: dict[tuple[object, ...], list[Alert]] = {}
    for place, alert in enumerate(alerts):
        alone = place if alert.trace is not None else -1
        found.setdefault((alert.kind, alert.step, alert.over, mark(alert), alone), []).append(alert)
    return [(same[0], len(same) - 1) for same in found.values()]


def listed(alerts: Sequence[Alert], most: int) -> tuple[list[tuple[Alert, int]], int]:
    """The worst of them in the order of their steps, those that are over behind those that hold; and how many are left out."""
    found = together(sorted(alerts, key=rank))
    shown = sorted(found[:most], key=lambda one: (one[0].over, one[0].step))
    return shown, sum(1 + others for _, others in found[most:])


def like_it(others: int) -> str:
    """What follows the first of them."""
    return f"; and {others:,} more like it" if others else ""


def sentence(text: str) -> str:
    """With a full stop."""
    clean = said(text.strip())
    return clean if not clean or clean[-1] in ".!?:;" else f"{clean}."


def when(alert: Alert) -> str:
    """``step 12``, or from where to where."""
    begin = f"step {alert.step:,}"
    return f"{begin} to {alert.last:,}" if alert.over and alert.last > alert.step else begin


def of_curves(scalars: Sequence[ScalarRecord]) -> str:
    """The line above the table of curves: what "at first" and "at last" mean."""
    averaged = {scalar.averaged for scalar in scalars}
    means = "averaged over a tenth of the values" if True in averaged else "the first and the last value"
    return f"curves (at first, at last: {means}{'; for short ones, the first and the last value' if len(averaged) > 1 else ''})"


def of_curve(scalar: ScalarRecord) -> str:
    """What else to say about a curve: values that are not finite, what it sums up, and what was clipped."""
    facts = []
    if scalar.bad.any():
        facts.append(f"{int(scalar.bad.sum()):,} not finite")
    passes = round(scalar.passes, 1)
    if passes > 1:
        facts.append(f"each the sum of {number(passes)} backward passes")
    if scalar.moved is not None:
        facts.append(f"a knob, moved {times(scalar.moved)}" if scalar.moved else "a knob, never moved")
    if math.isfinite(scalar.bound):
        facts.append(f"clipped to {number(scalar.bound)} in {scalar.beyond:,} of {scalar.count:,}")
    if scalar.kind == "scale" and scalar.falls:
        facts.append(f"fell {times(scalar.falls)}: each time, at least one step was skipped")
    if scalar.kind == "mode":
        facts.append(f"turned to evaluation {times(scalar.falls)}, at last in {'training' if scalar.final else 'evaluation'}")
    return ", ".join(facts)


def times(count: int) -> str:
    """``once``, ``12 times``."""
    return "once" if count == 1 else f"{count:,} times"


def mark(alert: Alert) -> str:
    """How bad it is: "broken" or "careful"."""
    return "broken" if alert.severity == "broken" and not alert.over else "careful"


def rank(alert: Alert) -> tuple[bool, int, int, int]:
    """Sorts the worst first: what still holds, then by kind, then the earliest, then the lowest unit."""
    return alert.over, [*wording.ALERTS].index(alert.kind), alert.step, -1 if alert.unit is None else alert.unit


def replay(alert: Alert) -> str:
    """The headline of the step that was run again; empty if there was none."""
    trace = alert.trace
    if trace is None:
        return ""
    return said(trace if isinstance(trace, str) else str(getattr(trace, "headline", "")))


def of_part(record: WatchRecord) -> str:
    """What follows the name of numbers that are only about this rank's part: its norm is not that of the whole."""
    return ", of this rank's part" if is_part(record) else ""


def is_part(record: WatchRecord) -> bool:
    """Whether this rank holds a part of the model alone."""
    return record.ranks is not None and record.ranks.parts > 1
