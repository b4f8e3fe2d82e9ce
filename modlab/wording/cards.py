"""What a finding is based on and what it means, in English: the card that explains any finding."""

from __future__ import annotations

from collections.abc import Iterator

from modlab import format
from modlab.records.finding import Evidence, ExperimentRecord, Finding
from modlab.records.trace import Reason
from modlab.records.watch import Alert, Check
from modlab.wording import causes, differences, experiments, mistakes, reasons
from modlab.wording.alerts import ROLES
from modlab.wording.findings import said
from modlab.wording.names import capital, label, named

_NAN = (
    "NaN spreads: anything computed with it is NaN. Unless that step is skipped, the weights stay NaN and no later step repairs them. "
    "Usual causes: a log or a square root of a number that is not positive, a division by 0, a number too large for its dtype, or a "
    "batch that already contains NaN."
)
_UNGRADED = (
    "backward() gives a gradient only to what the loss was computed from. step() leaves a parameter without a gradient unchanged. "
    "It is not used, is cut off (detach, no_grad, a tensor turned into a number), or is meant for other batches."
)
_UNOWNED = "step() moves only what the optimizer was given: a gradient alone changes no weight."
_DEAD = (
    "A unit that is zero for every input passes no gradient on, and its own weights get none. It recovers only if "
    "the layers before it change, or if weight decay or momentum moves its weights. Usual causes: large steps, a bias that has "
    "become very negative, or weights that began like that."
)
_ROUNDED = (
    "A dtype has a limited number of digits: a step smaller than the gap to the next number is rounded away. bfloat16 has "
    "two to three decimal digits, float16 three to four."
)
_SHIFT = "Whatever is added here is subtracted again before the loss: the gradient is only rounding error, so nothing is learned here."
_UNSEEN = "What was not seen is not judged: it may or may not be fine."

REASONS = {
    # alerts
    "nan": _NAN,
    "inf": f"Infinity minus infinity, and infinity times 0, are NaN. {_NAN}",
    "not owned": _UNOWNED,
    "no gradient": _UNGRADED,
    "dead": _DEAD,
    "exploding": (
        "Each layer multiplies the gradient that passes through it. If that makes it larger each time, the first layers take steps that "
        "are far too large compared with the last ones."
    ),
    "vanishing": (
        "Each layer multiplies the gradient that passes through it. If that makes it smaller each time, the first layers hardly learn "
        "compared with the last ones."
    ),
    "rounding": _ROUNDED,
    "not zeroed": "backward() adds to .grad. Unless you accumulate gradients on purpose, each step uses those of all earlier steps too.",
    "saturated": (
        "Near its limits a sigmoid or a tanh is flat, so the layers before it get hardly any gradient. Its inputs are far from 0, often "
        "because of large weights or unscaled data."
    ),
    "starving": "A unit that rarely fires rarely learns: only the inputs it fires on give it a gradient.",
    # findings beside the checks
    "loss not finite": _NAN,
    "curve not finite": "It was logged that way; the loss may be unaffected.",
    "steps skipped": (
        "When a gradient is infinite or NaN, a gradient scaler skips the step and halves its scale. A few times at first are its search "
        "for a good scale; often is a sign that numbers outgrow float16."
    ),
    "optimizer made anew": "Adam's averages and SGD's momentum are kept in the optimizer: a new one has none.",
    "by heart": "The model goes on learning its batches, but what it learns no longer holds for data that it has not seen.",
    "slices without a gradient": "Each slice of such weights is a separate expert or head: one that is never chosen never learns.",
    "dead units": _DEAD,
    "cancelled": _SHIFT,
    "zero gradient": "A gradient of exactly zero moves nothing. If it is zero in the steps between the looks as well, the loss is the same "
    "whatever values this parameter has.",
    **dict.fromkeys(("loss not seen", "hidden inside", "left out", "came later", "units not counted", "beyond the cap"), _UNSEEN),
    "steps between looks": "To stay within its budget, a watch measures only some of the steps.",
    "steps beside": "A model may have several optimizers; steps are counted by one of them.",
}
"""By the `kind` of an alert, or of a finding outside the checks: what it means."""

CHECK_REASONS = {
    "data arrives": "Unless the model is called in training mode, nothing that follows can be judged.",
    "the loss is sensible": (
        "Training makes the loss smaller, so it must be a finite number in each step. A classifier that knows nothing starts near "
        "the loss of a uniform guess, log(classes); far above it, the model is confident and wrong."
    ),
    "every module is called": "A module that is not called does not affect the loss, so its parameters get no gradient.",
    "every trained parameter gets a gradient": _UNGRADED,
    "the optimizer owns it": _UNOWNED,
    "it moves": (
        "A parameter that has a gradient and is in an optimizer moves in each step, unless the learning rate or the gradient is 0, or the "
        "step is rounded away."
    ),
    "by enough for its dtype": _ROUNDED,
    "the loss falls": "If everything before it is fine, look at the learning rate, and check that the targets match the inputs.",
}
"""By the `name` of a check of a watch: what it is about."""


def means(finding: Finding) -> str:
    """What follows from it; empty where the sentence says it all."""
    if isinstance(finding, ExperimentRecord):
        return experiments.reason(finding)
    if causes.is_cause(finding) or finding.kind in mistakes.MISTAKES:
        return mistakes.reason(finding)
    if isinstance(finding, Reason):
        return reasons.MEANS[finding.kind]
    if finding.kind in differences.NOTES:
        return differences.NOTES[finding.kind].reason
    name = finding.name if isinstance(finding, Check) else str(finding.facts.get("check", ""))
    return REASONS.get(finding.kind, "") or CHECK_REASONS.get(name, "")


def headline(finding: Finding) -> tuple[str, str]:
    """How bad it is, and what was found; for a check, also what was checked."""
    if isinstance(finding, ExperimentRecord):
        return finding.outcome, f"{experiments.checked(finding).title}: {said(finding)}"
    if isinstance(finding, Check) and finding.name:
        return finding.state, f"{finding.name}: {said(finding)}"
    if isinstance(finding, Reason) or finding.kind in differences.NOTES:
        return finding.severity, f"{label(finding.path)}: {said(finding)}"
    return finding.severity, said(finding)


def rests_on(finding: Finding) -> str:
    """Where it was seen, in sentences."""
    return " ".join(f"{capital(part)}." for part in _sources(finding))


def _sources(finding: Finding) -> Iterator[str]:
    if isinstance(finding, ExperimentRecord):
        yield "a check that runs the model with the batch" if finding.outcome != "not run" else "nothing: the check was not run"
    elif (isinstance(finding, Check) and finding.name) or mistakes.is_check(finding):
        yield "a check of the watch's verdict"
    elif causes.is_cause(finding):
        yield _measured(finding)
    elif finding.kind in mistakes.MISTAKES and not any(one.kind == "pass" for one in finding.evidence):
        yield "what is in the model, which was read but not run"
    elif isinstance(finding, Reason):
        yield f"event {finding.event} of the trace (.records[{finding.event}])" if finding.event >= 0 else "the trace as a whole"
    elif finding.kind in differences.NOTES:
        yield "the two states, compared"
    yield from filter(None, map(_source, finding.evidence))
    if isinstance(finding, Alert):
        yield _seen(finding)
    elif finding.step is not None:
        yield f"first seen at step {finding.step:,}"


def _measured(cause: Finding) -> str:
    looks, steps = int(str(cause.facts.get("measured", 0))), int(str(cause.facts.get("made", 0)))
    if not (looks and steps):
        return "what was seen while the model ran on its batches"
    which = f"{looks:,} of {steps:,} steps" if looks < steps else "the only step" if steps == 1 else f"all {steps:,} steps"
    return f"what was measured in {which}: batches, the loss, gradients and weights"


def _source(evidence: Evidence) -> str:
    where = named(evidence.path)
    return {
        "series": f"{ROLES.get(evidence.role, '{}').format(where)}, in the steps that were measured",
        "scalar": f"the values of {where}",
        "units": f"how often each unit of {where} fires",
        "pass": "one pass with the batch and its loss",
    }.get(evidence.kind, "")


def _seen(alert: Alert) -> str:
    parts = [f"first seen at step {alert.step:,}"]
    parts += [f"last at step {alert.last:,}"] if alert.last > alert.step else []
    parts += [f"based on {format.plural(alert.steps, 'step')}"] if alert.steps else []
    parts += [f"and on {format.plural(alert.inputs, 'input')}"] if alert.inputs else []
    return ", ".join(parts)
