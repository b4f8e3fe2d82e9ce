"""Every kind of finding: how bad it usually is, and its words. A finding holds facts; no code reads a fact back out of these sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from modlab import format
from modlab.frozen import frozen
from modlab.records.finding import Finding, Severity
from modlab.wording.names import all_named, joined, named

Facts = Mapping[str, Any]
SHOWN = 6
"""How many units or slices are listed by number."""


@frozen
class FindingKind:
    """One kind of finding.

    Attributes:
        rank: among all kinds, worst first.
        severity: the usual one.
        title: what is true where there is no such finding, or what the note is about, in a few words.
        words: makes the sentence, without a full stop, or its two halves: what is wrong with what, and the evidence.
    """

    rank: int
    severity: Severity
    title: str
    words: Callable[[Finding], str | tuple[str, str]]


def _not_finite(finding: Finding) -> str:
    """``41 of the 300 values of loss seen were NaN, first seen at step 12; the last one is finite``."""
    facts: Facts = finding.facts
    nan, inf, count = facts["nan"], facts["inf"], facts["count"]
    what = "NaN or Inf" if nan and inf else "NaN" if nan else "Inf"
    were = f"{nan + inf:,} of the {count:,} values of {named(finding.path)} seen {'was' if nan + inf == 1 else 'were'} {what}"
    if count == 1:
        were = f"the only value of {named(finding.path)} seen was {what}"
    last = "" if facts["last"] == "finite" else f", {'including' if nan + inf > 1 else 'only'} the last one" if count > 1 else ""
    ends = "; the last one is finite" if facts["last"] == "finite" else ""
    return f"{were}, first seen at step {finding.step:,}{last}{ends}"


def _dead(finding: Finding) -> tuple[str, str]:
    facts: Facts = finding.facts
    dead, count, units = facts["dead"], facts["units"], facts["which"]
    shown = joined(units, SHOWN)
    which = f"unit {shown} is" if dead == 1 else f"units {shown} are"
    begin = f"{dead:,} of {format.plural(count, 'unit')} of {named(finding.path)} {'is' if dead == 1 else 'are'} dead"
    until = f" seen, up to step {facts['until']:,}" if "until" in facts else ""
    return begin, f"{which} zero on all the last {facts['inputs']:,} inputs{until}"


def _slices(finding: Finding) -> str:
    facts: Facts = finding.facts
    which = facts["which"]
    many = f"slices {joined(which, SHOWN)}" if len(which) > 1 else f"slice {which[0]}"
    return (
        f"{many} of {facts['slices']:,} of {named(finding.path)} got only zero gradients in {facts['looks']:,} looks; "
        "if they are experts, no token reached them"
    )


def _cancelled(finding: Finding) -> str:
    facts: Facts = finding.facts
    beside = f", against {format.rough(facts['beside'])} for {named(facts['other'])}"
    begin = f"the gradient of {named(finding.path)} is only rounding (norm {format.rough(facts['gradient'])}{beside}): "
    return f"{begin}{_why(facts)}"


def _no_slope(finding: Finding) -> str:
    facts: Facts = finding.facts
    looks = format.plural(facts["looks"], "look")
    return f"the gradient of {named(finding.path)} was exactly zero in all {looks}: {_why(facts)}"


def _why(facts: Facts) -> str:
    after = facts.get("norm", "")
    if after:
        return f"the normalization after it, {named(after)}, cancels any shift"
    if facts.get("losses", 1) > 1:
        return "of several losses the one that went backward there did not depend on it"
    return "the loss did not depend on it there"


def _between(finding: Finding) -> str:
    facts: Facts = finding.facts
    left = facts["steps"] - facts["looks"]
    return f"{left:,} of {format.plural(facts['steps'], 'step')} {'was' if left == 1 else 'were'} not measured"


def _beside(finding: Finding) -> str:
    facts: Facts = finding.facts
    made = f"{format.plural(facts['steps'], 'step')} of other optimizers of this model"
    return f"steps are counted by {facts['optimizer']}: {made} {'is' if facts['steps'] == 1 else 'are'} not counted"


def _hidden(finding: Finding) -> str:
    facts: Facts = finding.facts
    return f"compiled or scripted, so nothing inside is seen: {all_named(facts['paths'])}"


def _uncounted(finding: Finding) -> str:
    facts: Facts = finding.facts
    return f"units of {all_named(facts['paths'])} were not counted: {UNCOUNTED[facts['why']].format_map(facts)}"


UNCOUNTED = {
    "mixed": "channels and positions share one dimension",
    "unknown": "their dimension cannot be determined",
    "unbatched": "there is no batch dimension",
    "wide": "a module has more than {most:,}",
    "many": "there are too many in all",
}
"""By the fact "why"."""


def _beyond(finding: Finding) -> str:
    facts: Facts = finding.facts
    return f"only the first {facts['series']:,} series are kept: later parts of the model were not measured"


def _only(finding: Finding) -> str:
    facts: Facts = finding.facts
    patterns = facts["only"]
    left = f"{facts['left']:,} of {format.plural(facts['modules'], 'module')}"
    only = repr(patterns[0]) if len(patterns) == 1 else f"[{', '.join(map(repr, patterns))}]"
    said = f"left out by only={only}: {left} and {facts['weights']:,} of {format.plural(facts['parameters'], 'parameter')}"
    unread = all_named(facts["unread"])
    return f"{said}; units of {unread} were not counted, because the activation functions that read them are left out" if unread else said


def _late(finding: Finding) -> str:
    return f"joined the model during the watch, so not measured: {all_named(finding.facts['paths'])}"  # type: ignore[arg-type]


def _loss_unseen(finding: Finding) -> str:
    facts: Facts = finding.facts
    names = facts.get("names", ())
    if not names and facts.get("is_stage"):
        return "the loss was not seen here: the last stage of the pipeline has it"
    if not names:
        return "the loss was not seen: w.log(loss=loss) shows it"
    if len(names) == 1:
        return f"whether {named(names[0])} is the loss is not known: w.log(loss=…) settles it"
    return f"which of {joined(names)} is the loss is not known: w.log(loss=…) settles it"


def _skipped(finding: Finding) -> tuple[str, str]:
    facts: Facts = finding.facts
    scale = f"the loss scale went from {format.rough(facts['first'])} to {format.rough(facts['last'])}"
    return f"the gradient scaler skipped at least {format.plural(facts['skipped'], 'step')}", scale


def _made_anew(finding: Finding) -> tuple[str, str]:
    facts: Facts = finding.facts
    other = f"after {format.plural(facts['times'], 'step')} of {facts['steps']:,} another one came in its place"
    return f"{facts['optimizer']} is made anew for nearly each step", f"{other}, so its averages begin at zero each time"


def _by_heart(finding: Finding) -> tuple[str, str]:
    facts: Facts = finding.facts
    grown = f"{named(finding.path)} rose from {format.rough(facts['least'])} at step {finding.step:,} to {format.rough(facts['last'])}"
    fell = f"the training loss fell from {format.rough(facts['then'])} to {format.rough(facts['now'])}"
    return "it gets worse on other data while it gets better on its own", f"{grown}, while {fell}"


KINDS: dict[str, FindingKind] = {
    "loss not finite": FindingKind(0, "broken", "the loss is finite", _not_finite),
    "slices without a gradient": FindingKind(1, "careful", "every slice gets a gradient", _slices),
    "by heart": FindingKind(2, "careful", "what is learned holds for other data", _by_heart),
    "dead units": FindingKind(3, "broken", "its units fire", _dead),
    "curve not finite": FindingKind(4, "careful", "logged values are finite", _not_finite),
    "steps skipped": FindingKind(5, "careful", "few steps are skipped", _skipped),
    "optimizer made anew": FindingKind(6, "careful", "one optimizer makes the steps", _made_anew),
    "cancelled": FindingKind(10, "note", "has no effect", _cancelled),
    "zero gradient": FindingKind(11, "note", "has no effect", _no_slope),
    "loss not seen": FindingKind(20, "note", "the loss", _loss_unseen),
    "hidden inside": FindingKind(21, "note", "inside compiled parts", _hidden),
    "left out": FindingKind(22, "note", "what only= leaves out", _only),
    "came later": FindingKind(27, "note", "modules that came later", _late),
    "units not counted": FindingKind(23, "note", "units", _uncounted),
    "beyond the cap": FindingKind(24, "note", "later series", _beyond),
    "steps between looks": FindingKind(25, "note", "steps between looks", _between),
    "steps beside": FindingKind(26, "note", "steps of other optimizers", _beside),
}
"""By the `kind` of a finding."""
