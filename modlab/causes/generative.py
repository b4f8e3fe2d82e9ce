"""Causes in generative models and embeddings."""

from __future__ import annotations

import math

from modlab.causes.cause_row import CauseRow, Facts
from modlab.causes.loss import ERRORS, SPENT
from modlab.causes.model import begins_too_small
from modlab.causes.symptoms import LONG, Symptoms
from modlab.records.clues import MOVES, LossClues, Term

SCALED = {"LogSoftmax", "Mul", "Div"} | MOVES
"""What stands between likenesses and a loss in which nothing was taken out of them."""

GROWN = 1.5
"""Times their deviation at first beyond which outputs do not become the same, whatever is not told apart."""

EVEN = 0.35, 0.65
"""Share of the triples of which the pair that is pulled is nearer, if nothing tells it from the other one."""

BY_CHANCE = 2.0
"""Standard errors by which pairs may differ that were drawn alike."""

SAME_NOISE = 0.2
"""Deviation of how noisy samples are, as a part of its mean, below which all have the same level, so that none is hidden."""

MANY = 10
"""Levels of which one alone is no choice."""

FAINT = 1e-3
"""Factor of the scores of attention that no width of heads explains."""

ROUNDED, NEARLY_ALL = 0.1, 0.85
"""By how much logarithms of shares may lie farther apart than scores, and the part of a constant answer's loss that is nearly all."""

AT_PRIOR, STUCK_AT_PRIOR = 0.05, 0.2
"""How far from 1 the variances of a latent are that is as if nothing had been put in; and where the loss does not get below that of a
constant answer, for an early stop finds them on their way."""

HALF = 0.5
"""Between the answers no and yes of a discriminator, which may be smoothed."""

USUAL = 20
"""What scores are multiplied with at most by a temperature of 0.05."""

ALIKE = 0.999
"""Entropy of shares of classes, as a part of that of even ones, from which on they ask for nothing."""


NEAR = 0.02
"""How far outputs are apart, as a part of their size, that have become the same."""

CLOSER, LEFT = 0.3, 0.35
"""How far directions are apart, as a part of their length, that come together instead of apart; and the part of their first deviation
that is left by then. Those that are learned begin as near to each other in a fresh network, and part."""


def _collapse(s: Symptoms) -> Facts | None:
    loss = s.loss
    if loss.term.criterion in ("cross-entropy", "likelihood") or s.target.std >= 0 or loss.looks < 3:
        return None
    if s.modules("derived") or not math.isnan(loss.away) or _are_few(s):
        return None  # an equation, which compares slopes and not samples; or a divergence from a prior, which is met by all; or no samples
    shrunk = loss.outputs.std < 0.15 * loss.first_outputs.std or (loss.term.paired and loss.varied[1] < 0.15 * loss.varied[0])
    if loss.term.criterion == "divergence" and not shrunk:
        return None  # from what a teacher says: a student's answers lie as near to each other as those
    compares = loss.term.paired or any(one.name in ("Div", "Mm", "Bmm") for one in loss.term.functions)
    even = len(loss.ranks) == 3 and abs(loss.ranks[0]) < BY_CHANCE and EVEN[0] < loss.ranks[1] < EVEN[1] and loss.ranks[2] > SPENT
    if even and not loss.varied[1] > GROWN * loss.varied[0]:
        return {"spread": loss.varied[1] / loss.varied[0] if loss.varied[0] > 0 else loss.spread, "nearly": False}
    if _come_together(s):
        return {"left": loss.varied[1] / loss.varied[0]}
    near = NEAR if s.start > 0 > s.last else 0.1  # of a density, as it were, which has no end
    if not compares or not (loss.spread < near or shrunk) or s.target.std == 0 or not s.fallen > 0.9:
        return None
    return {"spread": min(loss.outputs.std / loss.first_outputs.std, loss.varied[1] / loss.varied[0]) if shrunk else loss.spread}


def _come_together(s: Symptoms) -> bool:
    """Whether the directions of all samples do, while the likeness of pairs, which has no share to fall by, is made larger."""
    loss = s.loss
    by_length = any(one.name == "Div" and math.isnan(one.number) for one in loss.term.functions)
    return by_length and s.last < min(0.0, s.start) and loss.spread < CLOSER and loss.varied[1] < LEFT * loss.varied[0]


def _are_few(s: Symptoms) -> bool:
    """Whether the rows that are compared are a few for many samples, as outputs and targets are whose correlation is the loss."""
    term = s.loss.term
    given = [*(one.shape for one in s.clues.inputs), term.output]
    return bool(term.compared) and any(4 * term.compared[0] <= shape[0] for shape in given if shape)


def _ignored(s: Symptoms) -> Facts | None:
    prior = STUCK_AT_PRIOR if s.is_stuck and s.made >= LONG else AT_PRIOR
    if not s.loss.away < prior or (s.has_baseline and s.progress > 0.5) or begins_too_small(s) is not None:
        return None
    return {"away": s.loss.away}


FOUND, FLAT, MOVED = 6.0, 0.1, 0.5
"""Standard errors by which scores go with the samples that they belong to, while the logarithms of their shares hardly differ, though
all steps together have gone so far, as a part of the weights' size: products would have grown by then, and divided cosines cannot."""

FIERCE, FAR_ABOVE = 1000.0, 10.0
"""Scores times more than the first are no temperature that anybody means, where the loss begins so many times above a guess's."""


def _temperature(s: Symptoms) -> Facts | None:
    loss = s.loss
    sharp = [one for one in s.modules("weights") if one.facts.get("begin", 0.0) > 0.99]
    if sharp and not s.progress > 0.3:  # what has learned so much may be sure
        return {
            "path": sharp[0].path,
            "sharp": sharp[0].facts["begin"],
            "rival": "weights begin too large",
            "settle": "scale of the weights",
        }
    faint = [one for one in s.modules("weights") if one.facts["scale"] < FAINT]
    if faint and not s.progress > 0.8:
        return {"path": faint[0].path, "temperature": 1 / faint[0].facts["scale"]}
    if loss.even > ALIKE and len(loss.terms) == 1 and not any(one.name in ("Mul", "Div") for one in loss.term.functions):
        return {"even": loss.even}
    scales = [
        one.number if one.name == "Mul" else 1 / one.number for one in loss.term.functions if one.name in ("Mul", "Div") and one.number > 0
    ]
    scale = math.prod(scales)
    if _is_held_down(s) and not (scales and 1 <= scale <= USUAL):
        return {"found": loss.goes, "deviation": loss.outputs.std}
    if loss.term.criterion not in ("cross-entropy", "divergence") or not scales:
        return None
    if _binds(loss, scale):
        return {"temperature": 1 / scale}
    if scale > FIERCE and s.start > FAR_ABOVE * s.passes * loss.baseline > 0:
        return {"temperature": 1 / scale}  # whatever is learned through it
    return {"temperature": 1 / scale} if (scale < 0.05 or scale > 300) and not loss.value < 0.5 * loss.baseline else None


def _is_held_down(s: Symptoms) -> bool:
    """Whether the right one of each row is told from the others, and no chance is said to be larger for that."""
    loss = s.loss
    found = loss.term.criterion == "cross-entropy" and loss.diagonal and loss.goes > FOUND
    return found and s.progress < 0.05 and loss.outputs.std < FLAT and s.pace * s.made > MOVED and s.made >= 5 * LONG


def _binds(loss: LossClues, scale: float) -> bool:
    """Whether scores are cosines times a number with which even the best ones leave nearly all of the loss."""
    behind = _behind_the_product(loss.term)
    product = loss.term.functions[len(behind) : len(behind) + 1]
    given = loss.term.functions[len(behind) + 1 :]  # what is multiplied: each by its length, which is no constant
    by_length = any(one.name == "Div" and math.isnan(one.number) for one in given)
    within = loss.outputs.high - loss.outputs.low <= 2 * scale * (1 + ROUNDED)
    if loss.classes < 3 or not (any(one.number == 1 for one in product) or (by_length and within)):
        return False
    return math.log1p((loss.classes - 1) * math.exp(-2 * scale)) > NEARLY_ALL * math.log(loss.classes)


def _discriminator(s: Symptoms) -> Facts | None:
    """Two losses, one of which is near zero while the other one grows."""
    some = [one for one in s.record.scalars if one.kind == "loss" and one.count > 4]
    if len(some) < 2 or len(s.groups) < 2:
        return None
    if not any(map(_has_an_end, s.clues.losses)):  # a critic's loss has none
        return None
    flat = any(abs(one.value) < 0.02 and one.term.factor < 0 for one in s.clues.losses)  # the generator's
    if flat or _is_flat_minimax(s, [one.ends()[1] for one in some]):
        return {"path": "", "low": min(abs(one.value) for one in s.clues.losses), "high": max(one.value for one in s.clues.losses)}
    low, high = min(some, key=lambda one: one.ends()[1]), max(some, key=lambda one: one.ends()[1])
    if _is_of_the_judge(s, high.name) and not _is_of_the_judge(s, low.name):
        return None  # who should deceive it wins
    if 0 <= low.ends()[1] < 0.1 and (high.ends()[1] > 3 or high.ends()[1] < 0):
        return {"path": low.name, "low": low.ends()[1], "high": high.ends()[1]}
    return None


def _is_of_the_judge(s: Symptoms, name: str) -> bool:
    """Whether a loss asks for both answers, or for no: who should deceive the discriminator asks for yes alone."""
    loss = next((one for one in s.clues.losses if one.name == name or one.name.startswith(f"{name} (")), LossClues())
    judged = [one for one in loss.terms if one.criterion.startswith("binary") or one.node in ("Softplus", "LogSigmoid")]
    return len(judged) > 1 or (bool(judged) and loss.targets.low < HALF)


def _has_an_end(loss: LossClues) -> bool:
    """Whether it is a binary cross-entropy, or one side of it, as the softplus of a score."""
    return loss.term.criterion.startswith("binary") or (not loss.term.criterion and loss.term.node in ("Softplus", "LogSigmoid"))


def _is_flat_minimax(s: Symptoms, values: list[float]) -> bool:
    """Whether a discriminator is sure, and the other loss is a logarithm of what it leaves: both are 0, and that one has no slope."""
    others = [one.term for one in s.clues.losses if not one.term.criterion]
    logs = [one for one in others if "Log" in (one.node, *(two.name for two in one.functions))]
    return len(values) == len(s.clues.losses) == 2 and all(abs(one) < 0.02 for one in values) and len(others) == len(logs) == 1


def _itself(s: Symptoms) -> Facts | None:
    """Who should be told apart is the same, is not asked for, or there is nobody."""
    loss = s.loss
    if len(loss.term.pushes) == 2 and loss.term.pushes[0] < 0 == loss.term.pushes[1]:
        return {"path": loss.term.source or "", "how": "left out"}
    if loss.term.positives and len(s.clues.losses) == 1 and all(one.criterion == "penalty" for one in loss.terms[1:]):
        return {"path": loss.term.source or "", "how": "none"}
    if loss.term.criterion == "cross-entropy" and _finds_its_other(s):
        if max(loss.shares, default=0.0) == 1.0:
            return {"path": loss.term.source or "", "how": "one", "target": loss.shares.index(1.0)}
        same = next((one for one in s.clues.inputs if one.same > 0.9 and len(one.shape) > 1 and one.shape[0] == loss.classes), None)
        if same is not None:
            return {"path": loss.term.source or "", "how": "alike", "one": same.name}
    if loss.diagonal and loss.term.squared and loss.term.criterion == "cross-entropy":
        return {"path": loss.term.source or "", "how": "itself"}
    if (
        loss.term.criterion != "cross-entropy"
        or not loss.term.squared
        or any(one.name in ("MaskedFill", "Where", "Sub", "Add") for one in loss.term.functions)
        or not SCALED.issuperset(_behind_the_product(loss.term))
    ):
        return None
    return {"path": loss.term.source or ""}


def _behind_the_product(term: Term) -> list[str]:
    """What happens to products of two embeddings before they are compared."""
    names = [one.name for one in term.functions]
    return names[: next((place for place, name in enumerate(names) if name in ("Mm", "Bmm")), len(names))]


def _finds_its_other(s: Symptoms) -> bool:
    """Whether each sample of a batch is a class, and scores are likenesses of two inputs."""
    loss, shape = s.loss, s.loss.term.compared
    if len(shape) != 2 or not shape[0] == shape[1] == loss.classes > 3 or len(s.clues.inputs) < 2:
        return False
    return all(one.shape[:1] == shape[:1] for one in s.clues.inputs[:2]) and not any(
        one.name in ("Cat", "Stack") for one in loss.term.functions
    )


def _made_in_vain(s: Symptoms) -> Facts | None:
    """All that one optimizer holds never had a gradient, beside another one that has its own loss."""
    if len(s.clues.walks) < 2 or not all(s.clues.walks) or _is_of_values(s):
        return None
    lost = set(s.ungraded) - s.clues.reached
    held = [group for group in s.groups if group.paths]
    zero = {one.path for one in s.watched.parameters if one.is_flat}
    for gone in (lost, zero):
        some = [group for group in held if gone.issuperset(group.paths)]
        if some and len(some) < len(held):
            return {"path": some[0].paths[0], "places": some[0].paths, "zero": gone is zero}
    return None


def _is_of_values(s: Symptoms) -> bool:
    """Whether the other loss learns numbers, as a critic learns what actions are worth, and does not tell two kinds apart."""
    return s.loss.term.criterion in ERRORS and s.target.std > 0 and not s.target.whole


def _level(s: Symptoms) -> Facts | None:
    """One input, as large as the target, whose samples have very different sizes."""
    told = [one for one in s.clues.inputs[1:] if len(one.shape) == 1 and one.same > 0.99 and one.distinct > 1]
    told += [one for one in s.clues.inputs[1:] if len(one.shape) == 2 and one.shape[1] == 1 and one.numbers.std == 0]
    if told and s.inputs and s.loss.term.compared == s.inputs[0].shape and s.progress < 0.8:
        return {"path": told[0].name}
    other = next((one for one in s.clues.inputs[1:] if one.tells < 0 and one.numbers.std > 0), None)
    if other is not None and s.progress < 0.8:
        return {"path": other.name, "other": True}
    one = s.inputs[0] if len(s.clues.inputs) == 1 and s.inputs else None
    if one is None or not s.loss.term.criterion.endswith("error") or s.progress > 0.8 or s.pairs.restored > 0.99:
        return None
    low, high = one.scales
    if s.loss.term.compared != one.shape or not high > 3 * low or s.pairs.uneven < SAME_NOISE:
        return None  # where the noise is as large in each sample, it is the clean ones that differ
    return {"low": low, "high": high}


def _one_level(s: Symptoms) -> Facts | None:
    """Whole numbers beside a batch that are one number alone, of the many for which there is a row of a table."""
    beside = s.clues.inputs[1:]
    denoises = bool(s.inputs) and s.loss.term.compared == s.inputs[0].shape and s.progress < 0.8 and not s.pairs.restored > 0.99
    if not denoises or len(beside) != 1 or len(beside[0].shape) != 1 or beside[0].dtype != "int64":
        return None
    tables = [one.facts for one in s.modules("embedding rows") if one.facts["rows"] >= MANY]
    one_row = [one for one in tables if one["seen"] == 1 and one["total"] >= 10 * one["rows"]]
    return {"path": beside[0].name} if len(one_row) == len(tables) > 0 else None


EARLY = (CauseRow("generator detached", _made_in_vain), CauseRow("noise level hidden", _one_level))
"""Before what else has no gradient, and before tokens that are all the same."""

ROWS = (
    CauseRow("wrong negatives", _itself, "collapse", "negatives"),
    CauseRow("collapse", _collapse, "wrong negatives", "negatives", tier=1),
    CauseRow("latent ignored", _ignored),
    CauseRow("temperature", _temperature, tier=1),
    CauseRow("discriminator wins", _discriminator, tier=1),
    CauseRow("noise level hidden", _level, tier=2, left=True),
)
