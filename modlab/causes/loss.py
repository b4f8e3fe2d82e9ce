"""Causes in the loss: what it compares, and whether that can become small."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from modlab.causes.cause_row import CauseRow, Facts
from modlab.causes.data import SPREAD, beyond_chances
from modlab.causes.loop import SEVERAL, turned_by_hooks
from modlab.causes.model import began_equal, begins_too_small
from modlab.causes.symptoms import FEW, Symptoms
from modlab.records.clues import MOVES, RANGES, SHAPES, Term

LAYOUT = MOVES | {"Select", "Slice", "ToCopy"}
"""Functions that only lay numbers out anew, or take some of them."""

CHOICES = ("Index", "IndexSelect", "MaskedSelect")
"""Functions that take some samples, as those of a graph that have labels."""

CHANCES = ("binary cross-entropy", "binary cross-entropy with logits")
ONE_SIDED = ("Relu", "Softplus", "Exp", "Abs", "Norm", "LinalgVectorNorm")
"""Functions that give nothing below 0."""

ERRORS = ("squared error", "absolute error", "smooth error", "quantile error", "norm of the error")
ENDLESS = 30.0
"""Times its first size to which a loss, below zero, and the outputs have grown, where neither has an end."""

SEEN = 0.05
"""Loss of a constant answer above which none is too small."""

APART, PILED = 0.3, 3
"""How far scores between 0 and 1 are apart that a sigmoid may have given, and looks in which many of them stand at an end."""

SAME = 0.95
"""Share of the targets that are the next token, from which on that is what is asked for."""

FULL = 0.9
"""How far a state goes at least that would go further if it could."""

SPENT = 0.9
"""Part of a margin above which it is as if nothing had been learned of triples."""

SURE = 3.0
"""Standard errors beyond which what is pulled together was no nearer at first than what is pushed apart."""

CLEARLY = math.log(2)
"""By how much the logarithm of the mean count has to lie above what an output can be at least: half of the samples lie below it."""

REWARDED = "rewarded"
"""The gain of which only the user knows whether it is one: rewards weigh what was picked, or costs do."""

RESTORED = "restored"
"""The gain that is one beside a divergence from a prior: how like its input a model makes what it gives."""

DECAYS = 0.1
"""Weight decay beyond which a step may go where the loss does not ask it to."""

HARDLY, RESTS = 0.05, 2e-3
"""Part of its first value by which a loss has fallen that has gone nowhere, and by which one still moves that has come to rest."""

NOTHING = 0.05
"""Loss of a discriminator that is sure of nearly everything."""

ROUNDED = 1e-5
"""What is left of a loss of 0 by rounding."""

TINY, LITTLE_LEFT, IDLE = 1e-3, 0.02, 1e-4
"""A factor below which a loss hardly teaches, at the rates that are usual; the same where nothing is learned and steps come to less than
such a part of the weights."""

LOUD, UNDONE = 30.0, 2.0
"""Times a mean over all numbers that are compared, beyond which a loss is too large; and below which the loop has made up for that."""

RARE = 0.35
"""Share of the positive ones below which they are rare."""

UNSCALED = {"Adam", "AdamW", "NAdam", "RAdam", "Adamax", "RMSprop", "Adagrad"}
"""Optimizers whose steps are as large whatever the loss is multiplied by."""

CRITERIA = (*ERRORS, "cross-entropy", "likelihood", "binary cross-entropy", "binary cross-entropy with logits")

COUNTS = ("counts by logarithms", "counts by rates")
"""Criteria of counts, whose loss may be of either sign."""

WRAPPED = {"BinaryCrossEntropyWithLogits": "binary cross-entropy with logits", "NllLoss": "cross-entropy"}
"""Criteria that another function may be put around, as a focal loss does it."""


def _names(term: Term) -> list[str]:
    return [one.name for one in (*term.functions, *term.ending)]


def _criterion(term: Term) -> tuple[str, list[str]]:
    """The criterion, and what comes before it; also of one that is weighted by itself."""
    names = _names(term)
    at = next((place for place, name in enumerate(names) if name in WRAPPED), None)
    if term.criterion or at is None or (names[at] == "NllLoss" and "LogSoftmax" not in names[at:]):
        return term.criterion, names
    return WRAPPED[names[at]], names[at + 1 :]


def _twice(names: list[str], name: str) -> bool:
    """Whether a function is applied to its own result."""
    kept = [one for one in names if one not in LAYOUT]
    return any(one == other == name for one, other in pairwise(kept))


def _broadcast(s: Symptoms) -> Facts | None:
    terms = (*s.loss.terms, *(term for one in s.clues.losses for term in one.terms))
    return next((facts for term in terms if (facts := _is_spread(term)) is not None), None)


def _is_spread(term: Term) -> Facts | None:
    """The shapes, where more is compared than there are outputs."""
    each = term.criterion in ERRORS and not term.paired and term.compared == (*term.output[:1], *term.output[:1])  # sample with each sample
    if not term.spread or ("Unsqueeze" in _names(term) and not each):
        return None
    given = math.prod(term.spread)
    square = not term.criterion and not term.paired and term.compared == (given, given)  # a column against a row
    if not (term.criterion in ERRORS or term.node == "Add" or square):
        return None
    if len(term.compared) < 2 or math.prod(term.compared) < 2 * given:
        return None
    return {"output": term.spread, "compared": term.compared}


def _softmax_twice(s: Symptoms) -> Facts | None:
    term = s.loss.term
    criterion, names = _criterion(term)
    squashed = next((name for name in names if name in ("Softmax", "Sigmoid", "Tanh")), None)
    if _twice(names, "Softmax"):
        return {"path": term.source or "", "function": "Softmax"}
    if criterion == "cross-entropy" and s.loss.chances and squashed != "Softmax":
        return {"path": term.source or "", "function": ""}
    if criterion != "cross-entropy" or squashed is None or "Log" in names[: names.index(squashed)]:
        return None
    if squashed != "Softmax" and any(name not in LAYOUT for name in names[1 : names.index(squashed)]):
        return None  # scaled behind it, as logits may be
    return {"path": term.source or "", "function": squashed}


def _wrong_dimension(s: Symptoms) -> Facts | None:
    loss = s.loss
    across = [one for one in s.modules("weights") if one.facts["along"] != -1]
    if across:
        return {"along": across[0].facts["along"], "path": across[0].path, "attention": True}
    samples = next((one.shape[0] for one in s.clues.inputs if one.shape), 0)
    if any(not one.facts["batch_first"] and one.facts["shape"][:1] == (samples,) for one in s.modules("recurrent")):
        samples = 0  # it is the time that comes first
    own = samples > 1 and loss.term.output[:1] == (samples,)  # each sample has its own answer
    for one in s.modules("shares") if own else ():
        shape = one.facts["shape"]
        places = len(shape) > 2 == len(loss.term.output)  # of a sample: that it learns even so helps on no other batch
        alone = places or one.facts["kept"] or not s.progress > 0.9
        if one.facts["dim"] == 0 and shape.count(samples) == 1 and shape[0] == samples and alone:
            right = [dim for dim, size in enumerate(shape) if dim and size > 1]
            anywhere = {} if one.path else {"anywhere": True}  # in forward of the model itself, or in the loss
            return {"along": 0, "path": one.path, "samples": True, "right": right[0] if len(right) == 1 else -1, **anywhere}
    if samples and _is_over_samples(loss.term, samples):
        return {"along": 0, "path": loss.term.source or ""}
    if loss.term.across >= 0:
        return {"along": loss.term.across, "path": loss.term.source or ""}
    if _is_over_places(s):
        return {"along": 1, "path": loss.term.source or "", "turn": True}
    if not (loss.term.criterion in ("cross-entropy", "alignment") or _takes_logarithms(s)):
        return None
    if not loss.unnormalized > 1e-2 or loss.along < 0:
        return None
    return {"along": loss.along, "path": loss.term.source or ""}


def _is_over_samples(term: Term, samples: int) -> bool:
    """Whether the scores of each sample are a row, and each column of them is normalized; each sample against each is another matter."""
    first = next((one for one in (*term.functions, *term.ending) if one.name not in CHOICES), None)
    over = first is not None and first.name == "LogSoftmax" and first.dim == 0 and len(first.shape) == 2 and first.shape == term.output
    return over and first is not None and first.shape[0] == samples != first.shape[1] > 1


def _is_over_places(s: Symptoms) -> bool:
    """Whether a linear layer gives the classes of each place last, and those are normalized which lie before them and are as many."""
    term = s.loss.term
    names = [one.name for one in term.functions]
    at = names.index("LogSoftmax") if "LogSoftmax" in names else -1
    if term.criterion != "cross-entropy" or at < 0 or any(name not in SHAPES for name in names[at + 1 :]):
        return False
    shape, given = term.functions[at].shape, {one.path: one.facts["out"] for one in s.modules("linear")}
    last = s.category(term.source) == "linear" and given.get(term.source or "") == shape[-1]
    return last and term.functions[at].dim == 1 < len(shape) - 1 and shape[1] == shape[-1] > 1 and not s.progress > 0.9


def _takes_logarithms(s: Symptoms) -> bool:
    """Whether a criterion that expects logarithms gets those of a softmax, over whatever dimension."""
    return s.loss.term.criterion == "likelihood" and next((name for name in _names(s.loss.term) if name not in LAYOUT), "") == "LogSoftmax"


def _no_log(s: Symptoms) -> Facts | None:
    loss = s.loss
    if "logarithms as targets" in loss.risks:
        return {"path": loss.term.source or "", "of": "logarithms"}
    if "no log" in loss.risks and any(one.name == "LogSoftmax" for one in loss.term.functions):
        return {"path": loss.term.source or "", "of": "targets"}
    taken = [one.name for one in loss.term.functions if one.name != "Mul"]
    if loss.term.criterion == "divergence" and taken[:1] == ["Softmax"]:
        return {"path": loss.term.source or "", "of": "softmax"}
    if loss.term.criterion not in ("likelihood", "divergence", "alignment") or not loss.unnormalized > 5e-2:
        return None
    if loss.along >= 0 and (loss.term.criterion == "alignment" or _takes_logarithms(s)):
        return None
    if _is_over_samples(loss.term, loss.term.output[0] if loss.term.output else 0):
        return None
    return {"path": loss.term.source or ""}


def _sigmoid_twice(s: Symptoms) -> Facts | None:
    term = s.loss.term
    criterion, names = _criterion(term)
    again = (criterion.endswith("with logits") and "Sigmoid" in names) or _twice(names, "Sigmoid")
    if again:
        return {"path": term.source or ""}
    return {"path": term.source or "", "seen": True} if criterion.endswith("with logits") and _are_between(s) else None


def _are_between(s: Symptoms) -> bool:
    """Whether scores that began as even chances pile up at 0 or at 1, and never go beyond, as none would that is free to."""
    loss = s.loss
    low, high = loss.reach
    enough = 1 if s.is_stuck else PILED  # scores that are free to would get at least to where a constant answer is
    if loss.looks < FEW or not (low >= 0 and high <= 1 and high - low > APART) or loss.pressed < enough:
        return False
    one_sided = next((name for name in _names(loss.term) if name not in LAYOUT), "") in ONE_SIDED
    return not one_sided and abs(loss.first_outputs.mean - 0.5) < APART


def _one_logit(s: Symptoms) -> Facts | None:
    loss = s.loss
    one = loss.term.criterion in ("cross-entropy", "likelihood") and len(loss.term.compared) > 1 and loss.term.compared[1] == 1
    soft = any(one.name == "LogSoftmax" and one.shape and one.shape[one.dim] == 1 for one in loss.term.functions)
    single = any(one.name == "Softmax" and one.shape and one.shape[one.dim] == 1 for one in (*loss.term.functions, *loss.term.ending))
    return {"path": loss.term.source or ""} if one or soft or single else None


def _wrong_sign(s: Symptoms) -> Facts | None:
    climbing = [one for one in s.groups if one.maximize]
    others = [one for one in s.loss.terms if one.criterion in CRITERIA and one.factor > 0]
    counts = s.loss.term.criterion in COUNTS
    turned = (counts or s.loss.term.criterion in CRITERIA) and s.loss.term.factor < 0 and not others
    if beyond_chances(s) or s.gains:
        return None
    if turned and (counts or s.start <= 0) and len(s.clues.losses) == 1:
        return {"how": "negative"}
    if climbing and not turned and not s.learns and len(s.loop.optimizers) == 1:
        return {"how": "maximize"}
    hooks = turned_by_hooks(s)
    if hooks and not s.learns:
        return {"how": "hooks", "looks": hooks, "rival": "gradients overwritten", "settle": "without hooks"}
    loss, lowered = s.loss, [gain for gain in _lowered(s) if gain != REWARDED]
    aside = "likeness" in lowered and len(lowered) < len(loss.terms)  # beside other terms what is unlike may be pushed away
    if lowered and not aside:
        return {"how": lowered[0]}
    if squares := _endless_squares(s):
        return {"how": "squares", "weights": squares[0].criterion == "penalty"}
    if len(loss.term.pushes) == 2 and loss.term.pushes[0] > 0 > loss.term.pushes[1] and len(s.clues.losses) == 1:
        return {"how": "pushes"}
    if len(loss.ranks) == 3 and loss.ranks[0] > SURE and loss.ranks[2] > SPENT and len(loss.terms) == 1:
        return {"how": "ranks", "farther": loss.ranks[0]}
    if s.plays and _agree(s):
        return {"how": "agree", "most": max(one.ends()[1] for one in s.record.scalars if one.kind == "loss" and one.count)}
    last = s.last if math.isfinite(s.last) or not len(s.values) else float(s.values[-1])  # it may have come to its end
    grown, size = loss.outputs.std > ENDLESS * loss.first_outputs.std, max(abs(s.start), 1)
    endless = last < -ENDLESS * size and (grown or math.isnan(loss.outputs.std) or last < -(ENDLESS**2) * size)
    if endless and len(s.clues.losses) == 1 and len(s.loop.optimizers) == 1:
        return {"how": "falls", "last": last, "grown": grown}  # what is to become small has an end
    up, down = s.loop.climbs
    elsewhere = s.loop.edited[0]
    if elsewhere >= SEVERAL and s.loop.against < elsewhere / 2:
        return None  # what was stepped on is no slope of the loss, nor what is opposite to it
    pulled = climbing or any(one.decay > DECAYS for one in s.groups)  # then it is that which goes up
    # What swings around goes up each second time; and the first step of an optimizer, without any momentum, goes down.
    return {"how": "climbs", "up": up, "looks": up + down} if up >= 5 and not down and not s.learns and not pulled else None


def _endless_squares(s: Symptoms) -> list[Term]:
    """Squares, of weights or outputs, that enter with a minus what is otherwise an error, so that it is below zero, or no number."""
    errors = [one for one in s.loss.terms if one.criterion in CRITERIA and one.factor > 0]
    squares = [one for one in s.loss.terms if one.factor < 0 and one.node == "Pow" and one.criterion in ("", "penalty")]
    ends = s.last if s.is_finite else -math.inf
    alone = len(errors) + len(squares) == len(s.loss.terms) and len(s.clues.losses) == 1
    return squares if alone and errors and ends < 0 else []


def _lowered(s: Symptoms) -> list[str]:
    """What should become large, and stands without a minus in a loss that is to become small."""
    if any(one.maximize for one in s.groups) or len(s.clues.losses) > 1:
        return []
    known = [one.gain for one in s.loss.terms if one.gain and one.factor > 0]
    return [gain for gain in known if gain != RESTORED or not math.isnan(s.loss.away)]


def _unrewarded(s: Symptoms) -> Facts | None:
    """The same of the chances of what was picked, which weights that are costs should lower, and rewards should not."""
    return {"how": REWARDED} if {*_lowered(s)} == {REWARDED} and not s.learns else None


def _agree(s: Symptoms) -> bool:
    """Whether two losses that judge the same made things come to 0 together: who should deceive the other one helps it."""
    some = [one.ends()[1] for one in s.record.scalars if one.kind == "loss" and one.count > 4]
    judged = [one.term for one in s.clues.losses]
    same = {one.source for one in judged}
    return (
        len(some) == len(judged) == 2
        and all(0 <= one < NOTHING for one in some)
        and all(one.criterion in CHANCES and one.factor > 0 for one in judged)
        and len(same) == 1
    )


def _too_small(s: Symptoms) -> Facts | None:
    factor = abs(s.loss.term.factor)
    first, last = (abs(one) for one in s.loss.factors)
    if not s.loss.term.criterion:
        return None
    if last < TINY and last < TINY * first and len(s.clues.losses) == 1:  # it becomes less with time
        return {"factor": last, "pace": s.pace, "first": first, "added": 1.0, "bends": False}
    if s.has_baseline and s.loss.baseline > SEEN:
        return None  # the factor makes up for the units of the targets
    passes = max(1.0, s.curve.passes if s.curve is not None else 1.0)
    idle = s.is_stuck and s.pace < IDLE
    if not 0 < factor * (passes * s.loss.added if idle else 1) < (LITTLE_LEFT if idle else TINY) or s.learns:
        return None
    return {"factor": factor, "pace": s.pace, "added": s.loss.added, "bends": s.loss.term.node == "HuberLoss", "passes": passes}


def _summed(s: Symptoms) -> Facts | None:
    term = s.loss.term
    if not term.criterion or not term.compared or s.learns or not (s.is_sick or s.has_burst):
        return None
    if s.loop.optimizers and UNSCALED.issuperset(s.loop.optimizers):
        return None
    if begins_too_small(s) is not None:
        return None  # nothing passes such weights, whatever the loss
    summed = term.reduction == "sum" and abs(term.factor) >= 0.05
    size = abs(term.factor) * (math.prod(term.compared) if summed else 1)
    if size < LOUD or not math.isfinite(size):
        return None
    added = s.loss.added if summed else 1.0
    times = abs(term.factor) * added
    undone = 0 < s.loop.left * times < UNDONE  # the loop divides the gradients by it
    return None if undone else {"times": times, "added": added}


def _cannot_reach(s: Symptoms) -> Facts | None:
    return _cannot_reach_first(s) or next(
        filter(None, (_cannot_reach_errors(one, *one.asked, short=one.short) for one in s.loss.terms[1:])), None
    )


def _cannot_reach_first(s: Symptoms) -> Facts | None:
    term = s.loss.term
    if term.giver in RANGES and term.criterion == "counts by logarithms":
        return _cannot_reach_counts(s, term.giver)
    if term.criterion in CHANCES:
        return _cannot_reach_chances(s)
    if term.criterion not in ERRORS or not s.target.std >= 0:
        return None
    return _cannot_reach_errors(term, s.target.low, s.target.high, short=s.loss.short) or _is_a_state(s) or _has_bounds(s)


def _cannot_reach_errors(term: Term, least: float, largest: float, *, short: bool) -> Facts | None:
    """What is compared comes from a function that has ends, and much of what is asked for lies beyond."""
    if term.criterion not in ERRORS or term.giver not in RANGES or not short:
        return None
    return {"path": term.source or "", "function": term.giver, "low": least, "high": largest}


def _is_a_state(s: Symptoms) -> Facts | None:
    """The output is the state of a recurrent layer and stands at its ends, and targets lie beyond."""
    term, target, (low, high) = s.loss.term, s.target, s.loss.reach
    states = {one.path for one in (*s.modules("recurrent"), *s.modules("cell")) if one.facts["within"]}
    bare = term.layer in states and not term.ending and all(one.name in LAYOUT for one in term.functions)
    if not bare or not FULL < max(-low, high) <= 1 or not max(-target.low, target.high) > 1 + 0.3 * target.std:
        return None
    return {"path": term.layer or "", "function": "Tanh", "state": True, "low": target.low, "high": target.high}


def _has_bounds(s: Symptoms) -> Facts | None:
    """Many targets lie beyond a bound of the outputs, whichever function sets it."""
    bound = next((one for one in s.loss.bounds if not math.isnan(one)), None)
    if bound is None:
        return None
    side = "below" if bound == s.loss.bounds[0] else "above"
    return {"path": s.loss.term.source or "", "function": "", "bound": bound, "side": side, "low": s.target.low, "high": s.target.high}


def _cannot_reach_chances(s: Symptoms) -> Facts | None:
    """Scores that are never below 0, or never above, say yes, or no, to nothing."""
    term, target = s.loss.term, s.target
    names = [one for one in _names(term) if one not in LAYOUT]
    if names[:1] != [term.giver]:
        return None  # a difference of two such scores may be of either sign
    if term.criterion == "binary cross-entropy":
        if names[:1] != ["Sigmoid"]:
            return None
        names = names[1:]
    last = next((name for name in names if name != "Neg"), "")
    if last not in ONE_SIDED or names.index(last) > 1 or not (target.low == 0 and target.high == 1) or s.progress > 0.9:
        return None
    return {"path": term.source or "", "function": last, "low": target.low, "high": target.high, "turned": names[0] == "Neg"}


def _cannot_reach_counts(s: Symptoms, last: str) -> Facts | None:
    """The output is the logarithm of a rate: one that is not below 0 is of a rate of at least 1."""
    target, (low, high) = s.target, RANGES[last]
    if s.learns or not target.mean > 0:
        return None
    asked = math.log(target.mean)
    if not (asked < low + CLEARLY or asked > high or last == "Exp"):
        return None
    return {"path": s.loss.term.source or "", "function": last, "low": target.low, "high": target.high, "mean": target.mean}


def _class_numbers(s: Symptoms) -> Facts | None:
    target, term = s.target, s.loss.term
    if term.criterion not in ERRORS or not target.whole or s.progress > 0.95:
        return None
    if s.pairs.moved > SAME and s.tokens and not s.inputs and target.distinct > 2:
        return {"classes": target.distinct, "tokens": True}
    if not 3 <= target.distinct <= 20 or target.low:
        return None  # classes are counted from 0 on; grades from 1 to 5 are quantities
    single = not term.compared or len(term.compared) == 1 or term.compared[-1] == 1
    each = target.high - target.low == target.distinct - 1 or target.distinct <= 10
    even = math.sqrt(((target.high - target.low + 1) ** 2 - 1) / 12)
    return {"classes": target.distinct} if single and each and target.std > SPREAD * even else None


def _weights(s: Symptoms) -> Facts | None:
    loss = s.loss
    if loss.term.criterion.endswith("with logits") and loss.weights and _one_way(loss.weights):
        share, weight = s.target.mean, min(loss.weights, key=lambda one: abs(one - 1))  # the mildest, where each label has its own
        felt = weight * share / (weight * share + 1 - share) if 0 < share < 1 else math.nan
        if (share < RARE and weight < 0.5) or (share > 1 - RARE and weight > 2):  # the rare ones count even less
            return {"weight": weight, "share": share, "felt": felt}
        return {"weight": weight, "share": share, "felt": felt} if 0.1 < share < 0.9 and not 0.05 < felt < 0.95 else None
    if len(loss.weights) != len(loss.shares) or len(loss.shares) < 2 or not all(map(math.isfinite, loss.weights)):
        return None
    parts = [weight * share for weight, share in zip(loss.weights, loss.shares, strict=True)]
    most, even = max(parts) / max(sum(parts), 1e-30), max(loss.shares)
    commonest, rarest = loss.shares.index(even), min((share, at) for at, share in enumerate(loss.shares) if share)[1]
    turned = loss.weights[commonest] > 5 * loss.weights[rarest]
    if most < 0.9 or (even > 0.8 and not turned):
        return None
    return {"class": parts.index(max(parts)), "felt": most, "share": loss.shares[parts.index(max(parts))]}


def _one_way(weights: tuple[float, ...]) -> bool:
    """Whether weights of labels are the same, or all above 1, or all below it."""
    return len({*weights}) == 1 or min(weights) > 1 or max(weights) < 1


def _is_met(s: Symptoms) -> bool:
    """Whether an error is 0 because the output is what is asked for, and no mask or factor has made it so."""
    output, target = s.loss.outputs, s.target
    alike = output.std > 0 and (output.low, output.high, output.mean) == (target.low, target.high, target.mean)
    return alike and len(s.values) >= FEW and s.least == s.most == 0 and s.loss.term.criterion in ERRORS


def _constant(s: Symptoms) -> Facts | None:
    if s.loss.looks >= 5 and s.loss.terms and all(one.criterion == "penalty" for one in s.loss.terms):
        return {"value": s.last, "penalty": True}
    if _is_even(s):
        return {"value": s.last, "zero": True}
    if _is_met(s):
        return {"value": s.last, "equal": True}
    lost = _lacks_the_output(s)
    if lost:
        return {"value": s.last, "path": lost[0], "places": lost, "lacks": True}
    if (
        len(s.values) >= 5
        and max(abs(s.most), abs(s.least)) < ROUNDED * abs(s.loss.term.factor)
        and s.loss.term.criterion == "cross-entropy"
    ):
        return {"value": s.last, "level": True}  # of chances that add up to 1, whatever they are
    if s.is_half or s.loop.replaced or began_equal(s):
        return None  # it has no gradient for want of digits or of a difference, or had one that something else has taken the place of
    slopes = [some[some == some] for some in s.output_gradients.values()]
    slopes_of_outputs = any((some > 0).any() for some in slopes)
    if slopes_of_outputs and s.inputs and s.inputs[0].repeated > 0.9:
        return None  # of one batch alone those of the weights may add up to nothing, as where all is learned
    unit = min(1.0, abs(s.loss.term.factor)) if s.loss.term.criterion else 1.0
    same = len(s.values) >= 5 and s.most - s.least <= 1e-6 * max(abs(s.start), 1e-3 * unit)
    apart: Facts = {"rival": "wrong negatives", "settle": "own negatives"} if s.loss.term.paired else {}
    if same and s.loop.arrivals and s.record.steps and not s.ungraded and max(map(s.gradient, s.gradients), default=1.0) < 1e-6:
        return {"value": s.last, "level": True, **apart}
    if len(s.values) < 5 or s.ungraded or s.record.steps == 0 or s.loop.hooked:
        return None
    if slopes_of_outputs or not any(len(some) for some in slopes):
        return None
    return {"value": s.last, **apart}


def _lacks_the_output(s: Symptoms) -> tuple[str, ...]:
    """The parameters behind all that get a gradient, where a divergence from a prior is the only part of the loss that has one."""
    single = len(s.clues.losses) == 1 and s.loss.looks >= 5 and not math.isnan(s.loss.away)
    if not single or any(one.criterion not in ("", "penalty") for one in s.loss.terms) or len(s.loss.terms) > 1:
        return ()
    order = {one.path: one.order for one in s.watched.modules if one.called}
    felt = [order[one.module] for one in s.watched.parameters if one.felt and one.module in order]
    lost = [one for one in s.watched.parameters if one.path in s.ungraded and one.path not in s.clues.reached]
    behind = bool(felt) and all(one.module in order and order[one.module] > max(felt) for one in lost)
    return tuple(one.path for one in lost) if behind else ()


def _is_even(s: Symptoms) -> bool:
    """Whether the classes have a weight of 0, and what is left asks for the same share of each, as a label smoothing of 1 does it."""
    loss = s.loss
    gone = loss.term.criterion == "cross-entropy" and loss.factors == (0.0, 0.0) and len(s.clues.losses) == 1
    rest = [one for one in loss.terms[1:] if one.criterion != "penalty"]
    return gone and not s.falls and bool(rest) and all("LogSoftmax" in (one.node, *(two.name for two in one.functions)) for one in rest)


def _unsigned(s: Symptoms) -> Facts | None:
    """Labels of 0 where the criterion knows 1 and -1: they are in no part of it."""
    target, loss = s.target, s.loss
    if loss.term.criterion != "signs" or loss.looks < 3 or len(s.clues.losses) > 1 or (target.low, target.high) != (0, 1):
        return None
    return {"path": loss.term.source or "", "how": "zeros", "share": 1 - target.mean}


def _twins(s: Symptoms) -> Facts | None:
    """What should be told apart is the same."""
    twin = next((one for one in s.clues.inputs if one.twin), None)
    size, late = max(abs(s.start), 1e-3), s.values[len(s.values) // 2 :]
    still = len(s.values) >= FEW and abs(s.last - s.start) <= HARDLY * size and np.ptp(late) <= RESTS * size
    if twin is None or not still or s.loss.term.criterion or not s.loop.arrivals:
        return None
    return {"path": s.loss.term.source or "", "how": "twins", "one": twin.twin, "other": twin.name}


ROWS = (
    CauseRow("one logit", _one_logit),
    CauseRow("wrong negatives", _twins),
    CauseRow("wrong negatives", _unsigned),
    CauseRow("constant loss", _constant),
    CauseRow("broadcast", _broadcast),
    CauseRow("softmax over the wrong dimension", _wrong_dimension),
    CauseRow("softmax before cross entropy", _softmax_twice),
    CauseRow("no log", _no_log),
    CauseRow("sigmoid twice", _sigmoid_twice),
    CauseRow("output cannot reach", _cannot_reach),
    CauseRow("wrong sign", _wrong_sign),
    CauseRow("wrong sign", _unrewarded, severity="careful"),
    CauseRow("weights of classes", _weights),
    CauseRow("loss too small", _too_small, "rate too low", "scale the loss", tier=1, unlike=("wild",)),
    CauseRow("regression of classes", _class_numbers, tier=1, unlike=("wild",)),
    CauseRow("loss too large", _summed, "rate too high", "mean", tier=1),
)
