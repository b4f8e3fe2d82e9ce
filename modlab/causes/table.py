"""The table: all causes, the surest first. What comes earlier in it explains what comes later."""

from __future__ import annotations

from collections.abc import Callable

from modlab.causes import data, generative, graph, loop, loss, model, numbers, optimizer, sequence
from modlab.causes.cause_row import CauseRow, Facts
from modlab.causes.symptoms import EARLY, LONG, Symptoms
from modlab.records.finding import Fact, Finding, Remedy

ROWS: tuple[CauseRow, ...] = tuple(
    sorted(
        (
            *loop.ROWS,
            *optimizer.HELD,
            *sequence.EARLY,
            *generative.EARLY,
            *graph.ROWS,
            *loss.ROWS,
            *sequence.ROWS,
            *data.ROWS,
            *loop.OF_LARGE_GRADIENTS,
            *model.ROWS,
            *numbers.ROWS,
            *generative.ROWS,
            *optimizer.ROWS,
            *loop.LATE,
        ),
        key=lambda row: row.tier,
    )
)

OF_MANY = frozenset(
    (
        "same batch",
        "few samples",
        "ordered batches",
        "constant targets",
        "targets shuffled",
        "targets shifted",
        "wrong axes",
        "too much noise",
        "imbalance",
    )
)
"""Causes that a training on one batch cannot show."""

CUT = frozenset(("detached", "no gradient through", "without grad"))
"""Causes by which no gradient comes back from a loss, or from its part that knows the targets."""

UNMOVED = frozenset(("another models optimizer", "not in the optimizer", "no step"))
"""Causes by which weights stay what they were at first."""

FOLLOWS = {
    "rate too low": frozenset(
        (
            "constant loss",
            "loss too small",
            "no zero grad",
            "zeroed before step",
            "clipped to nothing",
            "weights put back",
            "rate too high",
            "eval while training",
            "no step",
            "weights begin too small",
            "softmax before cross entropy",
        )
    ),
    "loss too small": frozenset(("constant loss",)),
    "constant loss": frozenset(("no gradient through",)),
    "too much decay": frozenset(("constant loss", "no gradient through")),
    "no step": frozenset(("zeroed before step", "weights put back", "gradients overwritten", "clipped to nothing")),
    "rate too high": frozenset(
        (
            "no zero grad",
            "broadcast",
            "ordered batches",
            "constant targets",
            "wrong sign",
            "gradients overwritten",
            "weights put back",
            "stale weights",
            "wrong negatives",
            "accumulated too loud",
            "loss too large",
        )
    ),
    "wrong sign": frozenset(("no log",)),
    "clipped to nothing": frozenset(("scaler misused",)),
    "too much noise": frozenset(("targets shifted", "constant inputs")),
    "discriminator wins": CUT | {"generator detached", "two optimizers"},
    "not a number in data": frozenset(("wrong sign", "log of zero", "root of zero", "division by zero", "overflow")),
    "not finite by the rate": frozenset(("underflow", "wrong sign", "gradients overwritten", "not a number in data")),
    "detached": frozenset(("no gradient through",)),
    "unused layers": CUT | {"overwritten activation"},
    "latent ignored": CUT | {"constant loss"},
    "all weights equal": UNMOVED,
    "vanishing gradient": CUT
    | UNMOVED
    | {
        "weights begin too small",
        "one huge feature",
        "eval while training",
        "dead units",
        "overwritten activation",
        "gradients overwritten",
    },
    "tokens unknown": frozenset(("noise level hidden",)),
    "overwritten activation": frozenset(("mask turned around", "frozen")),
    "frozen": frozenset(("no step",)),
}
"""What is no cause beside others.

Where no step moves the weights whatever its rate, or it is undone, or steps were too large before, the rate is not too low, nor where
gradients add up, what leaves little of a gradient stands in the way (layers in evaluation, weights of next to nothing, scores that are
squashed twice), or the loss is next to nothing; and a penalty that is all of a loss may be small. The step of an optimizer is not to blame
for what is undone, or zeroed, before it or after; and the rate is not too high where gradients or losses add up or gradients are none,
steps climb, are undone or are made of older weights, each batch is of one kind, each output is compared with each target, or samples that
differ have become equal. Numbers that are divided by 0, made by a hook or held by a batch are not finite at any rate; where the rate
explains that, no batch need hold any; and a loss that falls without end becomes infinite at any rate. Gradients that are still scaled are
large where they are clipped. A generator that gets no gradient is no match for anybody, nor is one that the other's optimizer moves. What
is cut off is used, tells nothing for that reason, and has no gradient that could vanish; weights of next to nothing, a feature that leaves
nothing of the others, norms in evaluation, dead units, zeros or hooks take it away. What never moves stays as equal, and as small, as it
began. What is thrown away was used. Inputs that tell the targets of others, or are one and the same, are no noise. Levels that are the
same are no tokens; and what a mask hides, or a frozen layer of zeros gives, is not overwritten. Where nothing is moved, what is frozen
explains nothing. A likelihood that takes no logarithm falls without end, whatever its sign.
"""

MOST = 3
"""Causes that are named: who needs more has no reason to believe the first."""


def _asked(row: CauseRow, symptoms: Symptoms, failed: Callable[[Exception], None] | None) -> Facts | None:
    try:
        return row.test(symptoms)
    except Exception as error:
        if failed is None:
            raise
        failed(error)
        return None


def _ranked(symptoms: Symptoms) -> list[CauseRow]:
    """The rows, and behind all others those that do not explain what the loss does."""
    does = {"wild": symptoms.is_wild, "leapt": symptoms.has_leapt, "stuck": symptoms.is_stuck}
    return sorted(ROWS, key=lambda row: any(does[one] for one in row.unlike))


def _is_too_early(row: CauseRow, s: Symptoms) -> bool:
    """Whether numbers are asked after a few steps, and the loss has done nothing yet that no batch explains."""
    if not row.tier or s.record.error or not s.is_finite or s.has_leapt or s.begins_wild:
        return False
    return s.made < (LONG if row.left else EARLY)


def _is_surer(finding: Finding, row: CauseRow) -> bool:
    return int(finding.facts["tier"]) < row.tier  # type: ignore[arg-type]


def causes(symptoms: Symptoms, failed: Callable[[Exception], None] | None = None) -> tuple[Finding, ...]:
    """The causes of which a record shows the evidence, the likeliest first.

    Args:
        symptoms: of the record of a watch.
        failed: is told of a row's own error, which costs that row alone; without it the error is raised.
    """
    found: list[Finding] = []
    looked: dict[str, Fact] = {"measured": symptoms.record.samples, "made": symptoms.record.steps}
    for row in _ranked(symptoms):
        if symptoms.watched.one_batch and row.cause in OF_MANY:
            continue
        if any(one.kind in FOLLOWS.get(row.cause, ()) for one in found):
            continue
        if row.left and any(_is_surer(one, row) for one in found):
            continue
        if _is_too_early(row, symptoms):
            continue
        facts = _asked(row, symptoms, failed)
        if facts is not None:
            told = {"tier": row.tier, **looked, **{name: value for name, value in facts.items() if name != "path"}}
            if row.rival:
                told = {"rival": row.rival, "settle": row.settle, **told}
            if all(row.cause != one.kind for one in found):
                found.append(Finding(row.cause, str(facts.get("path", "")), told, row.severity, fixes=(Remedy(row.cause),)))
    return tuple(found[:MOST])
