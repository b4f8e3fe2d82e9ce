"""What a finding rests on and what it means, in English: the card that explains any of them."""

from __future__ import annotations

from collections.abc import Iterator

from modlab import format
from modlab.records.finding import Evidence, ExperimentRecord, Finding
from modlab.records.trace import Reason
from modlab.records.watch import Alert, Check
from modlab.wording import differences, experiments, mistakes, reasons
from modlab.wording.alerts import ROLES
from modlab.wording.findings import said
from modlab.wording.names import named

_NAN = (
    "What meets NaN is NaN: unless that step is skipped it stands in the weights from then on, and no later step takes it out. A log or a "
    "square root meets what is not positive, a division meets 0, a number is too large for its dtype, or the batch holds NaN already."
)
_UNGRADED = (
    "backward() gives a gradient to what the loss was computed from, and to nothing else. Without one, step() leaves a parameter as it "
    "is: it is not used, cut off (detach, no_grad, a number made of a tensor), or meant for other batches."
)
_UNOWNED = "step() moves what the optimizer was given, and nothing else: a gradient alone changes no weight."
_DEAD = (
    "A unit that is zero for every input passes no gradient on, and gets none for its own weights: it comes back only if "
    "what is before it changes, or if weight decay or momentum moves its weights. Large steps, and a bias that has "
    "become very negative, bring it there."
)
_ROUNDED = (
    "A dtype has only so many digits: a step smaller than the distance to the next number it can hold is rounded away. bfloat16 has two "
    "to three decimal digits, float16 three to four."
)
_SHIFT = "Whatever is added here is taken out again before the loss: the gradient is zero but for rounding, and nothing is learnt in it."
_UNSEEN = "Nothing is said of what was not seen: neither that it is well nor that it is not."

REASONS = {
    # alerts
    "nan": _NAN,
    "inf": f"Infinity minus infinity, and infinity times 0, are NaN. {_NAN}",
    "not owned": _UNOWNED,
    "no gradient": _UNGRADED,
    "dead": _DEAD,
    "exploding": (
        "Each layer multiplies the gradient that passes through it. Where that makes it larger each time, the first layers take steps that "
        "are far too large beside the last ones."
    ),
    "vanishing": (
        "Each layer multiplies the gradient that passes through it. Where that makes it smaller each time, the first layers hardly learn "
        "beside the last ones."
    ),
    "rounding": _ROUNDED,
    "not zeroed": "backward() adds to .grad. Unless they are added up on purpose, each step is made of the gradients of all before it.",
    "saturated": (
        "Near its ends a sigmoid or a tanh is flat: what is before it gets hardly any gradient. Its inputs are far from 0, as large "
        "weights or unscaled data make them."
    ),
    "starving": "A unit that fires rarely learns rarely: only inputs that it fires on give it a gradient.",
    # findings beside the checks
    "loss not finite": _NAN,
    "curve not finite": "It was logged so; the loss need not be touched by it.",
    "slices without a gradient": "Each slice of such weights is a part of its own, an expert or a head: what is never chosen never learns.",
    "dead units": _DEAD,
    "cancelled": _SHIFT,
    "zero gradient": "A gradient of exactly zero in every look moves nothing: the loss is the same whatever stands in this parameter.",
    **dict.fromkeys(("loss not seen", "hidden inside", "left out", "came later", "units not counted", "beyond the cap"), _UNSEEN),
    "steps between looks": "To keep within its budget a watch measures some steps and not all.",
    "steps beside": "A model may have several optimizers; steps are counted by one of them.",
}
"""By the `kind` of an alert, or of a finding beside the checks: what it means."""

CHECK_REASONS = {
    "data arrives": "Without a call of the model in training mode, nothing that follows can be judged.",
    "the loss is sensible": (
        "The loss is what training makes smaller: it has to be a finite number in each step. A classifier that knows nothing starts near "
        "that of a uniform guess, log(classes); far above it, it is sure of what is wrong."
    ),
    "every module is called": "What is not called takes no part in the loss, so its parameters get no gradient.",
    "every trained parameter gets a gradient": _UNGRADED,
    "the optimizer owns it": _UNOWNED,
    "it moves": (
        "What has a gradient and is held by an optimizer moves in each step, unless the learning rate or the gradient is 0, or the step is "
        "rounded away."
    ),
    "by enough for its dtype": _ROUNDED,
    "the loss falls": "Where all before it is well, look at the learning rate, and at whether targets belong to inputs.",
}
"""By the `name` of a check of a watch: what it is about."""


def means(finding: Finding) -> str:
    """What follows from it; nothing where the sentence says all."""
    if finding.kind in mistakes.MISTAKES:
        return mistakes.reason(finding)
    if isinstance(finding, ExperimentRecord):
        return experiments.reason(finding)
    if isinstance(finding, Reason):
        return reasons.MEANS[finding.kind]
    if finding.kind in differences.NOTES:
        return differences.NOTES[finding.kind].reason
    return REASONS.get(finding.kind, "") or (CHECK_REASONS.get(finding.name, "") if isinstance(finding, Check) else "")


def headline(finding: Finding) -> tuple[str, str]:
    """How bad it is, and what was found; of a check, what was checked too."""
    if isinstance(finding, ExperimentRecord):
        return finding.outcome, f"{experiments.NAMES[finding.name].title}: {said(finding)}"
    if isinstance(finding, Check) and finding.name:
        return finding.state, f"{finding.name}: {said(finding)}"
    if isinstance(finding, Reason) or finding.kind in differences.NOTES:
        return finding.severity, f"{named(finding.path)}: {said(finding)}"
    return finding.severity, said(finding)


def rests_on(finding: Finding) -> str:
    """Where it was seen, in sentences."""
    return " ".join(f"{part[:1].upper()}{part[1:]}." for part in _sources(finding))


def _sources(finding: Finding) -> Iterator[str]:
    if isinstance(finding, ExperimentRecord):
        yield "a check that runs the model with the batch" if finding.outcome != "not run" else "nothing: the check was not made"
    elif isinstance(finding, Check) and finding.name:
        yield "a check of the watch's verdict"
    elif finding.kind in mistakes.MISTAKES and not any(one.kind == "pass" for one in finding.evidence):
        yield "what stands in the model, which was read and not run"
    elif isinstance(finding, Reason):
        yield f"event {finding.event} of the trace (.records[{finding.event}])" if finding.event >= 0 else "the trace as a whole"
    elif finding.kind in differences.NOTES:
        yield "the two states, compared"
    yield from filter(None, map(_source, finding.evidence))
    if isinstance(finding, Alert):
        yield _seen(finding)
    elif finding.step is not None:
        yield f"first seen at step {finding.step:,}"


def _source(evidence: Evidence) -> str:
    where = named(evidence.path)
    return {
        "series": f"{ROLES.get(evidence.role, '{}').format(where)}, in the steps that were looked at",
        "scalar": f"the values of {where}",
        "units": f"how often each unit of {where} fires",
        "pass": "one pass with the batch and its loss",
    }.get(evidence.kind, "")


def _seen(alert: Alert) -> str:
    parts = [f"first seen at step {alert.step:,}"]
    parts += [f"last at step {alert.last:,}"] if alert.last > alert.step else []
    parts += [f"resting on {format.plural(alert.steps, 'step')}"] if alert.steps else []
    parts += [f"and on {format.plural(alert.inputs, 'input')}"] if alert.inputs else []
    return ", ".join(parts)


def figures(finding: Finding) -> list[tuple[str, str]]:
    """The numbers that the sentence is made of, by name."""
    digits = 2 if isinstance(finding, ExperimentRecord) else 3  # further ones differ from machine to machine
    facts = {name: fact for name, fact in finding.facts.items() if name not in _OF_PLACES and not isinstance(fact, bool)}
    return [(name, _figure(fact, digits)) for name, fact in facts.items() if isinstance(fact, (int, float))]


_OF_PLACES = frozenset(("count", "classes", "hidden", "alike", "more"))
"""Facts that say how many there are of what the finding is about."""


def _figure(fact: float, digits: int) -> str:
    return f"{fact:,}" if isinstance(fact, int) else format.number(float(f"{fact:.{digits}g}"))
