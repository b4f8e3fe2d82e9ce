"""Alerts in English: what each kind says about its place, now and once it is over, and the evidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from modlab import format
from modlab.frozen import frozen
from modlab.records.finding import Finding
from modlab.records.watch import ACTIVATION, GRADIENT, PARAMETER, PARAMETER_GRADIENT, UPDATE, Alert
from modlab.wording.names import named

Facts = Mapping[str, Any]
Halves = tuple[str, str]
"""What is wrong with what (empty where the sentence does not begin with its place), and the evidence."""

SHOWN = 12
"""How many units of a layer are listed by number."""

ROLES = {
    ACTIVATION: "the output of {}",
    GRADIENT: "the gradient of {}'s output",
    PARAMETER: "{}",
    PARAMETER_GRADIENT: "the gradient of {}",
    UPDATE: "the update of {}",
}
_NUMBERS = {"nan": "NaN", "inf": "infinity"}


@frozen
class AlertKind:
    """One kind of alert.

    Attributes:
        now, over: what follows the name of the place.
        halves: the sentence in its two halves.
        refuted: whether it says "never", so that once it is over it was never true.
        named: whether the first half begins with the name of the place, given the facts.
    """

    now: str
    over: str
    halves: Callable[[Any], Halves]
    refuted: bool = False
    named: Callable[[Facts], bool] = lambda facts: False


def halves(alert: Finding) -> Halves:
    """What is wrong with what, if the sentence begins with that, and the evidence."""
    begin, rest = ALERTS[alert.kind].halves(alert)
    return format.clean(begin), format.clean(rest)


def what(alert: Alert) -> str:
    """The place and what is wrong with it: ``unit 1 of l0 is dead``."""
    kind, where = ALERTS[alert.kind], named(alert.path)
    place = where if alert.unit is None else f"unit {alert.unit} of {where}"
    return f"{place} {kind.over if alert.over else kind.now}"


def _place(path: str) -> str:
    return named(path) if path else "the model"


def _not_finite(alert: Alert) -> Halves:
    facts: Facts = alert.facts
    return _SEEN[facts["seen"]](alert, facts, _NUMBERS[alert.kind])


def _in_sample(alert: Alert, facts: Facts, word: str) -> Halves:
    who = "the batch" if facts["where"] == "the batch" else ROLES[facts["role"]].format(_place(alert.path))
    begin = f"{who} is the first with {word}"
    rest = f"{format.plural(facts['bad'], 'number')} of {facts['numbers']:,}, in the sample of step {alert.step:,}"
    return (begin, rest) if alert.path and facts["role"] != GRADIENT else ("", f"{begin}: {rest}")


def _at_the_end(alert: Alert, facts: Facts, word: str) -> Halves:
    begin = f"{named(alert.path)} contains {word} at the end"
    if "unkept" in facts:
        return f"{begin}; {_unkept(facts)}", ""
    return f"{begin}, and did not at step {facts['sampled']:,}, the last sample", ""


def _late(alert: Alert, facts: Facts, word: str) -> Halves:
    whose = f"of {named(alert.path)}" if alert.path else "of the outputs"
    text = f"the gradient {whose} was not finite at step {alert.step:,}, but that was read late"
    return (text, "") if alert.path else ("", text)


def _run_again(alert: Alert, facts: Facts, word: str) -> Halves:
    from modlab.wording import births  # most runs have none

    begin, rest = births.halves(alert.path, facts, word)
    end = births.doubted(facts)
    end += f"; {_unkept(facts)}" if "unkept" in facts else ""
    return (begin, f"{rest}{end}") if rest else (f"{begin}{end}", "")


_SEEN: Mapping[str, Callable[[Alert, Facts, str], Halves]] = {
    "sample": _in_sample,
    "end": _at_the_end,
    "late": _late,
    "again": _run_again,
}


def _unkept(facts: Facts) -> str:
    """About a step that was not kept: ``unkept`` is the parameter, with the first and the last step it may have been."""
    begin = f"the gradient of {named(facts['unkept'])} was the first with {_NUMBERS[facts['unkept kind']]}"
    first, last = facts["unkept steps"]
    if first == last:
        return f"{begin} at step {last:,}, which was not kept"
    return f"{begin} in one of the steps {first:,} to {last:,}, which were not kept"


def _dead(alert: Alert) -> Halves:
    facts: Facts = alert.facts
    inputs = facts["inputs"]
    if alert.unit is not None:
        row, since = (" in a row", f", after firing on {facts['fired']:,} before") if facts["fired"] else ("", "")
        until = f" up to step {alert.last:,}" if alert.last > alert.step and not alert.over else ""  # the alert names the first step
        return f"unit {alert.unit} of {_place(alert.path)} is dead", f"zero on all {inputs:,} inputs{row}{until}{since}"
    which, are = alert.units, "are" if len(alert.units) > 1 else "is"
    shown = ", ".join(map(str, which[:SHOWN])) + (", …" if len(which) > SHOWN else "")
    whom = f"units {shown} are" if len(which) > 1 else f"unit {shown} is"
    begin = f"{len(which):,} of {facts['units']:,} units of {_place(alert.path)} {are} dead"
    return begin, f"{whom} zero on all the last {inputs:,} inputs"


def _starving(alert: Alert) -> Halves:
    facts: Facts = alert.facts
    begin = f"unit {alert.unit} of {_place(alert.path)} starves"
    return begin, f"it fires on {format.share(facts['share'])} of the inputs, down from {format.share(facts['before'])} at first"


def _ungraded(alert: Alert) -> Halves:
    if alert.over:
        return f"{named(alert.path)} got no gradient in the first {format.plural(alert.steps, 'look')}", ""
    if alert.facts.get("taken"):
        return f"{named(alert.path)} has no gradient left in any step that was measured", "backward() brings it one"
    begin = f"{named(alert.path)} got no gradient in any step that was measured"
    return begin, "" if alert.facts["called"] else "its module was never called"


def _unowned(alert: Alert) -> Halves:
    if alert.over:
        looks = format.plural(alert.steps, "look")
        return f"{named(alert.path)} got a gradient in {looks} in a row, but no known optimizer held it", ""
    return f"{named(alert.path)} gets a gradient, but {alert.facts['optimizer']} does not hold it", "it never moves"


def _along_depth(verb: str) -> Callable[[Alert], Halves]:
    def words(alert: Alert) -> Halves:
        facts: Facts = alert.facts
        begin = f"the gradient {verb} along depth"
        return begin, f"{format.rough(facts['first'])} at the first modules, {format.rough(facts['last'])} at the last"

    return words


def _saturated(alert: Alert) -> Halves:
    facts: Facts = alert.facts
    text = (
        f"{format.share(facts['share'])} of the outputs of the activation function at {_place(alert.path)} are within 2 % of its limits, "
        "where hardly any gradient passes"
    )
    return (text, "") if alert.path else ("", text)


def _rounding(alert: Alert) -> Halves:
    facts: Facts = alert.facts
    whose = f"{format.share(facts['share'])} of the elements of {named(alert.path)} ({facts['dtype']})"
    return f"{whose} have a gradient but do not move", "the step is lost to rounding"


def _not_zeroed(alert: Alert) -> Halves:
    whose = f"gradients of {named(alert.path)}" if alert.path else "gradients"
    return f"{whose} are not zeroed", "each backward pass adds to those of the steps before"


def _begins_with_place(facts: Facts) -> bool:
    return facts["seen"] in ("end", "again") or facts.get("role") == PARAMETER


ALERTS: dict[str, AlertKind] = {
    "nan": AlertKind("is NaN", "was NaN", _not_finite, named=_begins_with_place),
    "inf": AlertKind("is infinite", "was infinite", _not_finite, named=_begins_with_place),
    "not owned": AlertKind("is not owned by the optimizer", "was not owned by the optimizer", _unowned, True, lambda facts: True),
    "no gradient": AlertKind("gets no gradient", "got no gradient", _ungraded, True, lambda facts: True),
    "dead": AlertKind("is dead", "was dead", _dead),
    "exploding": AlertKind("has an exploding gradient", "had an exploding gradient", _along_depth("explodes")),
    "vanishing": AlertKind("has a vanishing gradient", "had a vanishing gradient", _along_depth("vanishes")),
    "rounding": AlertKind("loses its steps to rounding", "lost its steps to rounding", _rounding),
    "not zeroed": AlertKind("has a gradient that is not zeroed", "had a gradient that was not zeroed", _not_zeroed),
    "saturated": AlertKind("is saturated", "was saturated", _saturated),
    "starving": AlertKind("is starving", "was starving", _starving),
}
"""By the `kind` of an alert, worst first."""
