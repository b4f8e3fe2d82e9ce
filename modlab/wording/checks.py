"""The checks of a watch's verdict, in English: what each saw, or why it was not judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from modlab import format
from modlab.records.finding import Finding
from modlab.records.watch import Check
from modlab.wording.names import FEW, all_named, begun, joined, named
from modlab.wording.trends import arrow

Facts = Mapping[str, Any]
_ZERO = "parameters with a zero gradient"

SOME = 5
"""Values of which a mean says something."""


def _steps(facts: Facts) -> str:
    return format.plural(facts["steps"], "step")


def _looks(facts: Facts) -> str:
    return format.plural(facts["looks"], "look")


def _untold(facts: Facts) -> str:
    """What to log, or to log under a different name."""
    names = facts["names"]
    if facts.get("in a test"):
        return "no value of the loss was seen"
    if not names:
        return "the last stage of the pipeline has it" if facts.get("is_stage") else "add w.log(loss=loss)"
    if len(names) > 1:
        return f"which of {joined(names)} is the loss? w.log(loss=…) settles it"
    return f"{names[0]} was logged, but may be something else: w.log(loss=…) settles it"


def _first_loss(facts: Facts) -> str:
    first, last = facts["steps"]
    at = f" {first:,}" if first == last else f"s {first:,} to {last:,}"
    mean = "on average " * facts["averaged"]
    uniform = f"a uniform guess among {facts['classes']:,} would give {format.number(facts['uniform'])}"
    return f"{format.rough(facts['value'])} {mean}in step{at}; {uniform}"


def _finite(facts: Facts) -> str:
    said = "its only value is finite" if facts["count"] == 1 else f"all {facts['count']:,} values are finite"
    return f"{said}; in {facts['missed']:,} of {facts['steps']:,} steps none was seen" if "missed" in facts else said


def _silent(facts: Facts) -> str:
    kinds = {
        "bare": ", without parameters",
        "used": ", whose parameters are used without a call",
        "other": ", not called in any training pass that was measured",
    }
    return f"all but {'; '.join(all_named(facts[kind]) + said for kind, said in kinds.items() if facts[kind])}"


def _zero(facts: Facts) -> str:
    paths = facts["paths"]
    of, are = ("that", "is") if len(paths) == 1 else ("those", "are")
    return f"{of} of {all_named(paths)} {are} zero in all {_looks(facts)}"


def _graded(facts: Facts) -> str:
    said = f"{facts['felt']:,} of {facts['trained']:,}"
    if facts["since"]:
        said += (
            f"; {facts['since']:,} more {'requires' if facts['since'] == 1 else 'require'} a gradient now, and did not when last looked at"
        )
    said += f"; {all_named(facts['aside'])}: in no optimizer either" if facts["aside"] else ""
    return f"{said}; {all_named(facts['moved'])} moved, but no gradient was seen" if facts["moved"] else said


def _unregistered(facts: Facts) -> str:
    from modlab.wording.unregistered import hidden  # most runs have none

    more = f"; and {format.plural(facts['more'], 'place')} more" if facts["more"] else ""
    return f"{facts['place']} ({facts['inside']}) {hidden(facts)}{more}"


def _nobody(facts: Facts) -> str:
    return "no optimizer holds" if facts.get("several") else f"{facts['optimizer']} does not hold"


def _lacking(facts: Facts) -> str:
    return f"{all_named(facts['paths'])} not in {'any optimizer' if facts.get('several') else facts['optimizer']}"


def _late(facts: Facts) -> str:
    paths = facts["paths"]
    them = "it" if len(paths) == 1 else "them"
    return f"{all_named(paths)} joined the model during the watch, but {_nobody(facts)} {them}"


def _thawed(facts: Facts) -> str:
    paths = facts["paths"]
    has, them = ("has", "it") if len(paths) == 1 else ("have", "them")
    return f"{all_named(paths)} {has} a gradient now, had none when last looked at, and {_nobody(facts)} {them}"


def _owned(facts: Facts) -> str:
    text = f"{facts['owned']:,} of {facts['trained']:,}"
    return f"{text}; {facts['others']:,} are moved by something else" if facts["others"] else text


def _still(facts: Facts) -> str:
    paths = facts["paths"]
    text = f"{all_named(paths)} did not move in any step that was measured"
    if facts["rate"] == "zero":
        whose = "" if facts["all"] else " of its group" if len(paths) == 1 else " of their group"
        return f"{text}: the learning rate{whose} is 0"
    return f"{text}: the norm of {'its gradient' if len(paths) == 1 else 'their gradients'} is at most {format.rough(facts['norm'])}"


def _moved(facts: Facts) -> str:
    aside = facts["trained"] - facts["moved"] - facts["rounded"]
    has, it = ("has", "it") if aside == 1 else ("have", "them")
    text = f"{facts['moved']:,} of {facts['trained']:,}"
    text += f"; the steps of {facts['rounded']:,} are lost to rounding" if facts["rounded"] else ""
    return f"{text}; {aside:,} {has} no gradient that could move {it}" if aside else text


def _enough(facts: Facts) -> str:
    share = facts["share"]
    if share <= 0.01:
        return "all that have a gradient do"
    if facts.get("stands"):
        return f"{format.share(share)} of the elements of {named(facts['parameter'])} do not move: their steps are lost to rounding"
    return f"at most {format.share(share)} of the elements with a gradient do not move ({named(facts['parameter'])})"


def _no_trend(facts: Facts) -> str:
    far = facts["last"] > 2 * facts["first"] > 0
    said = "it leaps up and down, by about as much as it has risen" if far else "no trend beyond its noise"
    few = f"; each tenth has only {facts['each']} values" if 1 < facts.get("each", 0) < SOME else ""
    return f"{arrow(facts)}: {said}{few}"


CHECKS: dict[str, Callable[[Facts], str]] = {
    # data arrives
    "no step yet": lambda facts: "no step yet",
    "steps made": _steps,
    "no call seen": lambda facts: f"{_steps(facts)}, but no call of the model itself: a compiled copy or functional_call may run instead",
    "evaluation mode alone": lambda facts: f"{_steps(facts)}, but the model is called only in evaluation mode",
    "evaluation mode": lambda facts: f"in {facts['evaluated']:,} of {_looks(facts)} the model was called only in evaluation mode",
    # the loss
    "loss not told": _untold,
    "first loss": _first_loss,
    "finite values": _finite,
    "last value not finite": lambda facts: f"its last value is {format.number(facts['last'])}",
    "falls": arrow,
    "falls to chance": lambda facts: (
        f"{arrow(facts)}: it has not come clearly below {format.rough(facts['chance'])}, which a guess among {facts['classes']:,} gives"
    ),
    "falls to a constant answer": lambda facts: (
        f"{arrow(facts)}: it has not come clearly below {format.rough(facts['constant'])}, which a constant answer gives"
    ),
    "no trend": _no_trend,
    "low already": lambda facts: (
        f"{arrow(facts)}: no trend, but it began at less than a tenth of what a constant answer gives, {format.rough(facts['constant'])}"
    ),
    "leaps": lambda facts: (
        f"{arrow(facts)}, but {facts['far']:,} of the last {facts['late']:,} values seen are more than ten times what a guess gives, "
        f"{format.rough(facts['uniform'])}"
    ),
    "rises": lambda facts: f"{arrow(facts)}: it rises",
    "negative values": lambda facts: f"{arrow(facts)}: not judged, because it has negative values, like the loss of a policy gradient",
    "climbed": lambda facts: f"{arrow(facts)}: not judged, because the optimizer climbs it (maximize=True)",
    "too early": lambda facts: (
        f"too few values to tell: {facts['count']:,} seen in {_steps(facts)}"
        if facts["count"] < facts["steps"]
        else f"too early to tell after {format.plural(facts['count'], 'value')}"
    ),
    # the run
    "ended in an error": lambda facts: f"ended in an error: {facts['error']}",
    # every module is called
    "no step measured yet": lambda facts: "no step has been measured yet",
    "modules not seen": lambda facts: "compiled or scripted: its modules cannot be seen",
    "no call of the model": lambda facts: "no call of the model itself was seen",
    "no training pass": lambda facts: "the model is called only in evaluation mode, and those calls are not looked at",
    "never called": lambda facts: f"{all_named(facts['paths'])} never called",
    "some not called": _silent,
    "all called": lambda facts: f"{facts['called']:,} of {facts['called']:,}",
    # every trained parameter gets a gradient
    "none of only": lambda facts: "no parameter selected by only= requires a gradient",
    "none trainable": lambda facts: "no parameter requires a gradient",
    "gradients taken away": lambda facts: "gradients reach the modules, but no parameter has one left when the optimizer steps",
    "gradients of others": lambda facts: "gradients go to parameters of something else: functional_call may run the model with them",
    "no gradient seen": lambda facts: "no gradient was seen in any step",
    "parameters without a gradient": lambda facts: (
        f"{all_named(facts['paths'])} {'had none left' if facts.get('taken') else 'got none'} in any step that was measured"
    ),
    _ZERO: _zero,
    "gradients": _graded,
    # the optimizer owns it
    "no optimizer": lambda facts: "no optimizer made a step",
    "holds others": lambda facts: (
        f"{facts['optimizer']} holds parameters that are not the model's, and those get the gradients: functional_call may use them"
    ),
    "holds none": lambda facts: f"{facts['optimizer']} holds none of the model's trainable parameters",
    "not held yet": lambda facts: f"{_lacking(facts)}: too early to tell whether something else moves them",
    "not held": _lacking,
    "unregistered weights": _unregistered,
    "late parameters not held": _late,
    "thawed parameters not held": _thawed,
    "owned": _owned,
    # it moves, and by enough
    "no step measured": lambda facts: "no step of the optimizer was measured",
    "no gradient of the optimizer's": lambda facts: "none of the optimizer's parameters was seen to have a gradient",
    "not moved yet": lambda facts: f"{all_named(facts['paths'])} not moved yet after {_looks(facts)}",
    "moves between looks": lambda facts: "nothing moved in the steps that were measured, but the loss falls: weights moved in others",
    "does not move": _still,
    "nothing left": lambda facts: (
        f"{all_named(facts['paths'])} did not move in any step that was measured, but nothing is left to learn: "
        f"the loss is {format.rough(facts['loss'])}"
    ),
    "moves": _moved,
    "not counted": lambda facts: "no weight was compared with itself before and after a step for which it had a gradient",
    "nothing moves": lambda facts: "none of the parameters with a gradient moves at all",
    "steps count": _enough,
}
"""By the `kind` of a check's finding; the others share the kind of an alert or of a finding, and its words."""


def names_place(finding: Finding) -> bool:
    """Whether a sentence names its place; otherwise the place is shown beside it."""
    if finding.kind == _ZERO:
        return finding.path in finding.facts["paths"][:FEW]  # type: ignore[index]
    return finding.kind != "holds none"


_AT = {
    "every module is called": "{} is never called",
    "every trained parameter gets a gradient": "{} gets no gradient",
    "the optimizer owns it": "{} is not owned by the optimizer",
    "it moves": "{} does not move",
    "by enough for its dtype": "{} moves by too little for its dtype",
}
_ALL = {
    "data arrives": "No data arrives",
    "the loss is sensible": "The loss is not sensible",
    "the loss falls": "The loss does not fall",
    "every module is called": "Not every module is called",
    "every trained parameter gets a gradient": "Not every trained parameter gets a gradient",
    "the optimizer owns it": "The optimizer does not own every trained parameter",
    "it moves": "Not every trained parameter moves",
    "by enough for its dtype": "The steps are too small for the dtype",
}


def broken(check: Check) -> str:
    """The statement of a check that does not hold, with its place if that is known."""
    if check.kind == _ZERO:
        return f"The gradient of {named(check.path)} is zero"
    if not check.path or check.name not in _AT:
        return _ALL[check.name]
    return _AT[check.name].format(begun(check.path))
