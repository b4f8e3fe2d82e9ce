"""The figures of a finding, which are its numbers: what each is called on the card that explains it."""

from __future__ import annotations

import math

from modlab import format
from modlab.records.finding import ExperimentRecord, Finding
from modlab.records.watch import Check
from modlab.wording.trends import of_its_size

STEP, RATE = "change of a weight in a step", "learning rate"

NAMES = {
    "pace": STEP,
    "rate": RATE,
    "aim": "learning rate that the optimizer was made with",
    "norm": "norm of the gradients",
    "momentum": "momentum",
    "decay": "weight decay",
    "backwards": "backward passes",
    "backward passes": "backward passes",
    "guess": "loss of a guess",
    "uniform": "loss of a uniform guess",
    "loss": "loss",
    "inputs": "inputs",
    "steps": "steps",
}
"""By the name of a fact: these mean the same whatever the finding is."""

_ENDS = {"first": "loss at first", "last": "loss at last"}
_BLEW = {"first": "loss at first", "most": "greatest loss"}
_SIZES = {"first": "gradient of the first modules", "last": "gradient of the last modules"}
_TAKEN = {"bound": "norm to which they are clipped"}

OWN: dict[str, dict[str, str]] = {
    # causes
    "rate too high": _BLEW,
    "not finite by the rate": _BLEW,
    "clipped to nothing": _TAKEN,
    # alerts and other findings of a watch
    "exploding": _SIZES,
    "vanishing": _SIZES,
    "nan": {"bad": "numbers that are not finite", "numbers": "numbers in all"},
    "inf": {"bad": "numbers that are not finite", "numbers": "numbers in all"},
    "starving": {"share": "inputs it fires on", "before": "inputs it fired on at first"},
    "rounding": {"share": "elements that do not move"},
    "dead units": {"dead": "dead units", "units": "units in all"},
    "steps skipped": {"skipped": "steps skipped", "first": "loss scale at first", "last": "loss scale at last"},
    "by heart": {
        "least": "least loss on other data",
        "last": "last loss on other data",
    },
    "steps between looks": {"looks": "steps that were measured"},
    # checks of a watch, by their name
    "the loss is sensible": {"value": "first loss"},
    "the loss falls": _ENDS,
    "every module is called": {"called": "modules that are called"},
    "every trained parameter gets a gradient": {"felt": "parameters with a gradient", "trained": "parameters that are trained"},
    "the optimizer owns it": {"owned": "parameters that it holds", "trained": "parameters that are trained"},
    "it moves": {"moved": "parameters that move", "trained": "parameters that are trained"},
    "by enough for its dtype": {"share": "elements that do not move, at most"},
    # checks of a diagnosis, by their name
    "gradients": {"trained": "parameters that are trained", "none": "of these without a gradient", "zero": "with a gradient of zero"},
    "overfit": {"first": "loss at first", "least": "least loss"},
    "aim": {"right": "loss of the right answer", "wrong": "loss of a wrong answer"},
}
"""By the kind of a finding, or the name of a check: what its own facts are called."""

SHARES = frozenset(("share", "before"))
"""Facts that are told in percent; so is `pace`, of the weight's size."""


def figures(finding: Finding) -> list[tuple[str, str]]:
    """The numbers in the sentence, each with what it is; those without words of their own are left out."""
    digits = 2 if isinstance(finding, ExperimentRecord) else 3  # further ones differ from machine to machine
    name = finding.name if isinstance(finding, (Check, ExperimentRecord)) else ""
    names = {**NAMES, **OWN.get(name, {}), **OWN.get(finding.kind, {})}
    facts = [(one, fact) for one, fact in finding.facts.items() if one in names and not isinstance(fact, bool)]
    return [(names[one], _figure(one, fact, digits)) for one, fact in facts if isinstance(fact, (int, float)) and math.isfinite(fact)]


def _figure(name: str, fact: float, digits: int) -> str:
    if isinstance(fact, int):
        return f"{fact:,}"
    if name in SHARES:
        return format.share(fact)
    if name == "pace" and fact >= 1:
        return of_its_size(fact)
    number = format.number(float(f"{100 * fact if name == 'pace' else fact:.{digits}g}"))
    return f"{number} % of its size" if name == "pace" else number
