"""Causes in the data: what comes in, and what is asked for."""

from __future__ import annotations

import math
from itertools import pairwise

from modlab.causes.cause_row import CauseRow, Facts
from modlab.causes.symptoms import CLEARLY, Symptoms
from modlab.records.clues import Function, InputClues, Term
from modlab.records.watch import Alert

FAR, NEAR = 15.0, 1e-2
"""Standard deviations, and means, of inputs beyond which they are far from unit scale, and below which they vanish."""

FEW = 16
"""Samples up to which a whole data set is small enough to ask about: of toys in tutorials there are often some dozens."""

AGAIN = 2
"""Times that each was seen of those that are all there are: of many others some would be seen once, still."""

RARELY = 4
"""Times that a name must come in the pairs that are asked whether names tell the targets."""

OFTEN_IN_ONE = 0.5
"""Share of the samples of a batch that are different ones, below which it holds the same ones several times: of levels, which are no
measurements, no data set does that."""

GROWING = 0.94
"""Share of the samples that the first half of the looks should have had, drawn at random, below which more come all the time."""

SEVERAL = 4
"""Numbers of a sample with which some dozens of them are no curve, and are learned by heart."""

ODD = 50.0
"""Times that the spread of one feature may be that of another."""

SOME = 0.12
"""Part of the targets that is told by the inputs: below that perhaps nothing is."""

NOISY = 0.2
"""Progress that the last few batches of a loss may show by their noise, where it is less than `SOME` in its second half."""

PAIRS = 200
"""Pairs of inputs and targets that have to be looked at before it is said that they do not go together."""

WIDE = 8
"""Features of which one that tells the target is strange, whatever the unit."""

TINY = 1e-3
"""Size of the number in the middle below which inputs vanish though a few do not."""

SMALL, A_WHILE = 1e-2, 100
"""Deviation of targets that outputs of a usual size hide, and steps after which these should have become as small."""

ALIKE, STUCK = 1e-2, 0.1
"""Deviation of inputs, as a part of their mean, below which they hardly differ; and the progress of a loss that learns nothing of them."""

EACH_HAS_ALL = 0.9
"""Part of what targets differ by that they differ by within a batch, from which on their order in it does not count."""

HALF = 0.5
"""Of its first value: a loss that has not fallen by so much is kept up by something."""

WOVEN = 0.8
"""Progress of a loss up to which the channels of its images may be mixed."""

FELT = 0.9
"""Part of the loss that a frequent class has at most where the rare ones weigh more, so that they count."""

TOLD_APART = 0.6
"""Progress beyond which rare ones, where some are seen in each batch, are told from the others."""

SEEN_OFTEN = 0.99
"""Share of the most frequent class beyond which the rare ones are seen too seldom for that."""

SMALLER = 0.05
"""Deviation of inputs up to which they vanish where nothing is learned."""

NEARER, NEARLY_THERE = 0.6, 0.9
"""Progress with which the outputs have come to targets that are far from unit scale, and very far."""

EDGES = (0.1, 10.0)
"""Deviation of what the first layers take that is about that of unit scale."""

LABELS = 3
"""Questions about each sample that are labels, of which it has some."""

MANY = 8
"""Questions about each sample of which most are answered with no by their nature."""

SPREAD = 0.8
"""Deviation of whole numbers, as a part of that of even ones, below which they crowd in the middle, as counts and grades do."""

DENSE = 64
"""Numbers that are asked of one sample, as of a picture, which may be all there is."""

HALF_MIXED, HARDLY_MIXED = 0.5, 0.3
"""Part of what targets differ by, all looks together, that they differ by within a batch: less is found in batches that are not mixed. The
first is of classes."""

KINDS = 32
"""Different whole numbers up to which each is looked at by itself, where there is one a sample and nothing beside it."""

GOES, A_LITTLE = 3.0, 1.0
"""Standard errors beyond which outputs go with their targets, and perhaps do."""

LEARNED = 2.5
"""Standard errors below a constant answer, and beyond chance in how outputs go with their targets, by which a loss is being learned: the
pairs themselves, or by heart."""

WHITE = 0.1
"""How alike neighbours in images of noise are at most."""

BIG = 50.0
"""Targets of a regression beyond which their scale is one."""

ALL_AT_ONCE = ("lbfgs", "rprop")
"""Optimizers, by a part of their name, that compare the slopes of several steps, and so need one batch of all samples in each of them."""

OF_A_BELL = 1.4826
"""Standard deviation of numbers in a bell curve, as a multiple of the distance from the middle that half of them have at most."""

LIKENESSES, COLUMNS = frozenset(("Mm", "Bmm", "Cdist", "EuclideanDist")), ("Cat", "Stack", "Gather")
"""Functions that compare each with each, where a layer with a bias is none; and those that put some columns before others."""

LAYERS = frozenset(("Addmm", "Convolution"))
"""Functions of layers with a bias."""

OWN_LENGTH, SOON = frozenset(("Adam", "AdamW", "Adamax", "NAdam", "RAdam")), 100
"""Optimizers whose steps have the length of their rate, and steps within which these get far enough."""


def _not_a_number(s: Symptoms) -> Facts | None:
    born = _born_in_a_batch(s)
    if born is not None and not _is_left_out(s):
        return {"path": born.path, "step": born.step}
    bad = min((one.bad for one in s.clues.inputs if one.bad >= 0), default=-1)
    first = min((step for step in (*(one.bad_step for one in s.curves), s.birth.step if s.birth else -1) if step >= 0), default=-1)
    met = 0 <= bad <= first and not (s.curve is not None and math.isfinite(s.curve.final))  # else such batches are left out
    return {"path": ""} if met or "not a number in data" in s.loss.risks else None


def _skipped(s: Symptoms) -> Facts | None:
    """The same where no loss that was seen is NaN: a loop that skips such batches does not see how many there are."""
    born = _born_in_a_batch(s)
    if born is None or not _is_left_out(s):
        return None
    return {"path": born.path, "step": born.step, "bad": born.facts["bad"], "numbers": born.facts["numbers"], "left out": True}


def _born_in_a_batch(s: Symptoms) -> Alert | None:
    """The alert of what is not a number, if it came in with a batch."""
    return next((one for one in s.record.alerts if one.kind in ("nan", "inf") and one.facts.get("where") == "the batch"), None)


def _is_left_out(s: Symptoms) -> bool:
    """Whether a look has seen it in a batch, and all losses that went backward are numbers all the same."""
    born = _born_in_a_batch(s)
    return born is not None and born.facts.get("seen") == "sample" and s.is_finite and len(s.values) > 0


def _constant_targets(s: Symptoms) -> Facts | None:
    return None if s.fallen < HALF else _same_targets(s)


def _same_targets(s: Symptoms) -> Facts | None:
    """What all targets are, if they are the same: one answer suffices, so that it is not they that keep a loss high."""
    loss = s.loss
    several = len(s.clues.losses) > 1 or sum(bool(one.criterion) for one in loss.terms) > 1
    if several or len(s.loop.optimizers) > 1:  # a discriminator's are; both losses may go backward in one line
        return None
    if loss.classes < 2 and sum(one.criterion != "penalty" for one in loss.terms) > 1:  # one condition of several
        return None
    if s.modules("derived") or _is_one_sample(s):
        return None  # an equation, of which nothing should be left; or all that a single sample can show
    if loss.term.paired or any(one.name in LAYERS for one in loss.term.functions):
        return None  # one of two should be the higher one; or another network judges, and all that is made should please it
    sampled = loss.term.source is not None and s.category(loss.term.source) not in ("linear", "conv", "")  # the first of many, say
    if loss.classes > 1 and max(loss.shares, default=0.0) == 1.0 and not (sampled or _is_put_first(loss.term)):
        rival = "ordered batches" if loss.classes > 2 else "imbalance"
        return {"value": float(loss.shares.index(1.0)), "class": True, "rival": rival, "settle": "labels"}
    # as a difference should, or all of a quotient but 1
    vanishes = loss.term.met and loss.term.criterion.endswith("error") and s.target.mean in (0, 1)
    same = s.target.std == 0 and loss.looks > 2 and loss.term.criterion and not vanishes
    return {"value": s.target.mean, "class": False} if same else None


def _one_class(s: Symptoms) -> Facts | None:
    """The same of classes: a loss that leaps from one batch to another does so by those that were not seen."""
    facts = _same_targets(s)
    return facts if facts is not None and facts["class"] else None


def _is_put_first(term: Term) -> bool:
    """Whether scores are those of options, or likenesses of each sample to some of its own: the right one may stand before all others."""
    if term.alone:
        return True
    for place, one in enumerate(term.functions):
        behind = term.functions[place + 1 :]
        if one.name in COLUMNS and any(two.name in LIKENESSES or _is_of_both(two) for two in behind):
            return True
        if one.name == "Bmm" and one.shape[:1] == term.compared[:1] != (1,) and 1 in one.shape[1:]:
            return True  # by a matrix for each sample: by one that is the same for all, it is a layer
        if one.name == "Sum" and behind and _is_of_both(behind[0]):
            return True
    return term.squared and any(one.name == "Cat" for one in term.functions)


def _is_of_both(one: Function) -> bool:
    """Whether it multiplies by several numbers."""
    return one.name == "Mul" and math.isnan(one.number) and len(one.shape) > 1


def _is_one_sample(s: Symptoms) -> bool:
    """Whether there is one batch, again and again, and one answer in it."""
    one = _batch(s)
    return one is not None and one.repeated >= 0.9 and math.prod(s.loss.term.compared) == 1


def _ordered(s: Symptoms) -> Facts | None:
    if s.loss.within < 0.05 and s.loss.classes > 1 and max(s.loss.shares) < 1:
        return {"how": "alike", "share": s.loss.within}
    if not s.loss.classes and (s.has_burst or _is_of_returns(s)):  # targets that burst, or are guessed anew, differ from look to look
        return None
    if s.loss.within < (HALF_MIXED if s.loss.classes > 1 else HARDLY_MIXED):
        return {"how": "alike", "share": s.loss.within}
    sorted_ = s.loss.ordered > 0.6 and not s.loss.within > EACH_HAS_ALL
    return {"how": "sorted", "share": s.loss.ordered} if sorted_ else None


def _is_of_returns(s: Symptoms) -> bool:
    """Whether targets may be what actions bring: of the action that was taken one output is picked, or the loss has a part of its own."""
    picked = any(one.name in ("Gather", "Index") for one in s.loss.term.functions)
    return picked or any(not one.criterion for one in s.loss.terms)


def _imbalance(s: Symptoms) -> Facts | None:
    loss = s.loss
    most = max(loss.shares, default=0.0)
    if _felt(s) < FELT or _rare_are_told(s):
        return None
    if loss.classes > 1 and (0.97 if not s.progress < 0.2 else 0.93) < most < 1:
        return {"class": loss.shares.index(most), "share": most}
    target, asked = s.target, loss.term.compared
    if len(asked) == 2 and asked[1] >= MANY and s.progress > STUCK:
        return None
    one_question = not loss.classes and math.prod(asked[1:]) == 1
    if one_question and s.progress > TOLD_APART and 1 - SEEN_OFTEN < target.mean < SEEN_OFTEN:
        return None
    rare = 0.06 if s.progress < 0.2 else 0.04
    if loss.term.criterion.startswith("binary") and target.whole and (0 < target.mean < rare or 1 - rare < target.mean < 1):
        return {"class": int(target.mean > 0.5), "share": max(target.mean, 1 - target.mean)}
    return None


def _rare_are_told(s: Symptoms) -> bool:
    """Whether the answers are clearly better than a constant one on the very same targets; of labels, which are rare anyway, somewhat."""
    gained, errors = s.loss.gained
    asked = s.loss.term.compared
    part = 0.5 if not s.loss.classes and len(asked) == 2 and asked[1] >= LABELS else 1.0
    return gained > part * SOME and errors > part * CLEARLY


def _felt(s: Symptoms) -> float:
    """The part of the loss that the most frequent class has: as often as it comes, times its weight. NaN where that is not known."""
    weights, shares, mean = s.loss.weights, s.loss.shares, s.target.mean
    if len(weights) == len(shares) > 1:
        parts = [weight * share for weight, share in zip(weights, shares, strict=True)]
        return parts[shares.index(max(shares))] / sum(parts) if sum(parts) > 0 else math.nan
    if len({*weights}) != 1 or not 0 < mean < 1:
        return math.nan
    positive = weights[0] * mean / (weights[0] * mean + 1 - mean)
    return positive if mean > 0.5 else 1 - positive


def _batch(s: Symptoms) -> InputClues | None:
    return next((one for one in s.clues.inputs if one.shape), None)


def _same_batch(s: Symptoms) -> Facts | None:
    one = _batch(s)
    if one is None or len(one.shape) < 2 or one.repeated < 0.9 or one.same > 0.5 or s.record.steps < 20:
        return None
    if _is_all_there_is(s, one) or _takes_all_at_once(s) or any(two.repeated < 0.1 for two in _beside(s, one)):
        return None
    if one.distinct > (4 * FEW if math.prod(one.shape[1:]) >= SEVERAL and s.progress > 0.9 else FEW):
        return None
    time_first = any(
        not rnn.facts["batch_first"] and tuple(rnn.facts["shape"][:2]) == tuple(one.shape[:2]) for rnn in s.modules("recurrent")
    )
    return {"samples": one.shape[1] if time_first else one.distinct}  # of which a row holds one step of each


def _same_batch_that_serves(s: Symptoms) -> Facts | None:
    """The same where the loss falls well: a small set may be taken at once on purpose."""
    return _same_batch(s) if s.learns else None


def _beside(s: Symptoms, one: InputClues) -> list[InputClues]:
    """Other inputs that belong to a sample: a question may be one of a few, and what it is asked of another one each time."""
    return [two for two in s.clues.inputs if two is not one and len(two.shape) > 1 and two.shape[0] == one.shape[0] and not two.state]


def _is_all_there_is(s: Symptoms, one: InputClues) -> bool:
    """Whether there are no more samples to get: a table of zeros and ones, a picture, or nodes of a graph, some of which are asked for."""
    features, asked = math.prod(one.shape[1:]), s.loss.term.compared
    logical = one.numbers.whole and (one.numbers.low, one.numbers.high) in ((0, 1), (-1, 1)) and one.distinct == 2 ** min(features, 9)
    picture = one.distinct == 1 and math.prod(asked) >= DENSE
    nodes, beside = one.shape[0], [two for two in s.clues.inputs if two is not one]
    edges = any(two.shape == (nodes, nodes) or (two.dtype == "int64" and len(two.shape) == 2 == two.shape[0] != nodes) for two in beside)
    return logical or picture or edges or _asks_each_place(s, one) or (len(asked) > 0 and asked[0] < nodes == one.distinct)


def _takes_all_at_once(s: Symptoms) -> bool:
    """Whether the optimizer needs the same samples in each step."""
    return any(part in name.lower() for name in s.loop.optimizers for part in ALL_AT_ONCE)


def _asks_each_place(s: Symptoms, one: InputClues) -> bool:
    """Whether rows are series of which each place has its answer, and that is not what stands there: then a place is a sample."""
    asked = s.loss.term.compared
    return len(asked) > 1 and asked[1] >= FEW and asked[:2] == tuple(one.shape[:2]) and not s.pairs.restored > 0.5


def _few(s: Symptoms) -> Facts | None:
    one = _batch(s)
    if one is None or len(one.shape) < 2 or one.repeated > 0.5 or one.same > 0.5 or one.common > 0.8 or one.rows < AGAIN * one.distinct:
        return None
    if math.prod(one.shape[1:]) < 2 or _is_all_there_is(s, one) or one.one_hot:  # points of a curve, say; rooms, or letters
        return None
    if _grows(one) or (_takes_all_at_once(s) and one.distinct <= one.shape[0]):
        return None
    if any(two.distinct > AGAIN * one.distinct for two in _beside(s, one)):
        return None
    if one.numbers.whole and 0 <= one.numbers.low < one.numbers.high <= 1 and s.loss.looks and not s.loss.term.criterion:
        return None  # patterns of yes and no, of which nothing is asked but how often they come
    many = one.dtype.startswith("float") and not one.numbers.distinct  # of whole numbers, or of levels, others are the same by chance
    if not many and one.apiece < OFTEN_IN_ONE:  # states of a small world, of which many players meet the same ones
        return None
    few = 3 * FEW if many else FEW if one.shape[-1] >= 8 else 12  # of short rows of tokens there may be no more
    return {"samples": one.distinct, "seen": one.rows} if one.distinct <= few else None


def _grows(one: InputClues) -> bool:
    """Whether new samples come in each look, as from a player whose games are kept."""
    return one.early < GROWING * (1 - math.exp(-one.rows / (2 * max(one.distinct, 1))))


def _constant_inputs(s: Symptoms) -> Facts | None:
    one = _batch(s)
    if one is None or not one.same > 0.9 or one.common > 0.8 or s.learns:  # what is asked for does not differ either, then
        return None
    return {"path": one.name, "value": one.numbers.mean}


def _mostly_constant(s: Symptoms) -> Facts | None:
    """Most samples of each batch are one and the same, though there are many others."""
    one = _batch(s)
    if one is None or not one.often > 0.5 or one.same > 0.9 or s.learns or not one.dtype.startswith("float"):
        return None
    if math.prod(one.shape[1:]) <= SEVERAL or one.shape[0] < FEW or one.one_hot:  # a state of a game, or one of a few corners
        return None
    return {"path": one.name, "share": one.often}


def _normalized(s: Symptoms) -> bool:
    """Whether the first layer with parameters is a normalization, or one takes a part of the batch; or the model scales it itself."""
    if s.category(s.first_module) == "norm" or s.modules("norm in front"):
        return True
    fronts = [one.facts for one in s.modules("front")]
    return bool(fronts) and all(EDGES[0] < one["std"] < EDGES[1] and abs(one["mean"]) < FAR for one in fronts)


def _huge(s: Symptoms) -> Facts | None:
    for one in s.inputs:
        low, high = one.features
        if one.shape[-1] > 1 and high > ODD * max(low, 1e-3) and high > 10 and not s.progress > 0.9 and not _normalized(s):
            return {"low": low, "high": high}
    return None


def _not_scaled(s: Symptoms) -> Facts | None:
    for one in s.inputs:
        numbers = one.numbers
        if (numbers.std > FAR or abs(numbers.mean) > FAR) and not s.progress > 0.9 and not _normalized(s):
            rival = "too much noise" if abs(numbers.mean) < numbers.std / 3 else "one huge feature"
            return {"mean": numbers.mean, "std": numbers.std, "rival": rival, "settle": "scale"}
    return None


def _still(s: Symptoms) -> Facts | None:
    """Inputs that differ by next to nothing of what they are, as those that were moved by the mean of another unit."""
    one = _batch(s)
    if one is None or one not in s.inputs or not s.progress < STUCK or _normalized(s):
        return None
    numbers = one.numbers
    if not 0 < numbers.std < ALIKE * abs(numbers.mean):
        return None
    return {"mean": numbers.mean, "std": numbers.std, "rival": "inputs vanish", "settle": "scale"}


def _vanish(s: Symptoms) -> Facts | None:
    for one in s.inputs:
        numbers = one.numbers
        near = SMALLER if s.is_stuck else NEAR
        small = 0 < numbers.std < near or (0 < one.typical < TINY and max(abs(numbers.low), abs(numbers.high)) < FAR)
        if small and abs(numbers.mean) < near and not s.progress > 0.8 and not _normalized(s):
            return {"mean": numbers.mean, "std": numbers.std}
    return None


def beyond_chances(s: Symptoms) -> bool:
    """Whether targets of a binary cross-entropy of logits, which should be chances, lie beyond 0 and 1: that has no end."""
    return s.loss.term.criterion == "binary cross-entropy with logits" and (s.target.high > 1 or s.target.low < 0)


def gets_there(optimizer: str, rate: float, size: float) -> bool:
    """Whether steps that are as long as the learning rate, however large the gradient is, soon add up to a size."""
    return optimizer in OWN_LENGTH and SOON * rate > size


def _targets(s: Symptoms) -> Facts | None:
    target = s.target
    if beyond_chances(s):
        return {"mean": target.mean, "std": target.std, "low": target.low, "high": target.high}
    mean, std = target.mean, target.std
    if s.loss.typical > 0:  # of an error that forgives outliers: what the others are
        mean, std = s.loss.middle, s.loss.typical * OF_A_BELL
    if not s.loss.term.criterion.endswith("error"):
        return None
    if 0 < std < SMALL and s.loss.first_outputs.std > std / SMALL and s.progress < -1 and s.made >= A_WHILE:
        return {"mean": target.mean, "std": target.std, "outputs": s.loss.first_outputs.std}
    size = max(std, abs(mean))
    if not size > BIG or s.progress > (NEARLY_THERE if size > BIG * 20 else NEARER):
        return None
    if abs(s.loss.first_outputs.mean - mean) < std / 2 < abs(mean) / 2:
        return None  # the model begins there
    if gets_there(s.group.optimizer, s.group.rate, abs(mean)):
        return None
    return {"mean": target.mean, "std": target.std}


def _leak(s: Symptoms) -> Facts | None:
    pairs = s.pairs
    if _ordered(s) is not None:  # of batches of one class each, few classes have been seen together
        return None
    if s.waits:
        return None
    if pairs.column >= 0 and pairs.through:
        return {"feature": pairs.column, "features": pairs.features, "told": 1.0, "each": True}
    facts = {"feature": pairs.feature, "features": pairs.features, "told": pairs.told}
    alone = pairs.features >= 4 and not pairs.others > 0.5  # where others tell it too, it is no strange column
    ahead = alone or (1 - pairs.told) < (1 - pairs.others) / 2  # of a series with a level of its own each value tells as much
    if pairs.features >= WIDE and pairs.told > (0.97 if alone else 0.995) and ahead:  # or a season ago, in a series
        return facts
    classes = s.loss.classes
    exact = pairs.told > 0.999 if classes else pairs.itself
    in_order = classes > 2 and pairs.features >= WIDE and pairs.itself and pairs.told > 0.9
    return facts if alone and (exact or in_order) else None


def _same_place(s: Symptoms) -> Facts | None:
    """Of a series, where the model can pass on what stands in the same place."""
    itself = s.pairs.equal > 0.99 and not s.pairs.beside
    return {"share": s.pairs.equal, "beside": False} if itself and s.pairs.through and s.inputs and not s.tokens else None


def _noise(s: Symptoms) -> Facts | None:
    told = s.clues.relations
    if not _drowned(s) or max(told.together, told.counted) > SOME or _huge(s) is not None:
        return None
    for one in s.inputs:
        if one.numbers.std > 5 and abs(one.numbers.mean) < one.numbers.std / 3:
            return {"std": one.numbers.std, "pairs": told.rows}
        if abs(one.smooth) < WHITE and not _is_learned(s) and not one.numbers.distinct and told.rows >= PAIRS:
            return {"std": one.numbers.std, "pairs": told.rows, "white": True}
    return None


def _drowned(s: Symptoms) -> bool:
    """Whether the loss stays at what a constant answer gives though the weights move."""
    calm = s.last - s.floor < 1.6 * (s.baseline - s.floor) and s.most < 10 * max(s.start, s.baseline) and s.pace < 0.1
    stays = s.progress < SOME or (s.progress < NOISY and s.lately < SOME)
    return s.has_baseline and s.is_finite and stays and calm and s.pace > 1e-4 and math.isfinite(s.last)


def _is_learned(s: Symptoms) -> bool:
    """Whether the loss is below that of a constant answer by more than its noise: a little is known of the targets, perhaps by heart."""
    return s.below + max(s.loss.goes, 0.0) > LEARNED


def _shifted_along(s: Symptoms) -> Facts | None:
    """Each place has the target of another one, and the model looks at no other place."""
    told = s.clues.relations
    looks_around = any(s.modules(kind) for kind in ("recurrent", "cell", "attention", "weights", "shares"))
    looks_around |= any(one.category == "conv" and one.called for one in s.watched.modules)
    if looks_around or not _drowned(s) or told.moved < HALF or told.placed > told.moved / 5:
        return None
    return {"by": told.by, "told": told.moved, "together": told.placed, "along": True}


def _shifted(s: Symptoms) -> Facts | None:
    told = s.clues.relations
    moved = max(told.before, told.after, told.late)
    if not _drowned(s) or moved < SOME or told.together > moved / 2:
        return None
    late = {"late": True} if told.late == moved else {}
    return {"by": -1 if told.before > told.after else 1, "told": moved, "together": told.together, **late}


def _viewed(s: Symptoms) -> bool:
    """Whether classes of an output of many positions were put last, or second, by a view, which mixes them with the positions."""
    term = s.loss.term
    if term.criterion not in ("cross-entropy", "likelihood") or len(term.output) < 3 or len(term.compared) < 2:
        return False
    names = {one.name for one in term.functions}
    if not names & {"View", "UnsafeView"} or names & {"Permute", "Transpose", "T"}:
        return False
    if names & LIKENESSES or math.prod(term.output) != math.prod(term.compared):
        return False  # the output was not laid out anew: something was computed of it
    classes = term.compared[1]
    if len(term.compared) == 2:
        return term.output[1] == classes != term.output[-1]
    return term.output[-1] == classes != term.output[1] and term.compared[0] == term.output[0]


def _turned_and_viewed(s: Symptoms) -> tuple[int, ...]:
    """The shape of scores whose classes were turned away from the last dimension, and that were then viewed as rows of classes."""
    term = s.loss.term
    if term.criterion not in ("cross-entropy", "likelihood") or len(term.compared) != 2:
        return ()
    rows, classes = term.compared, term.compared[1]
    views = (two.shape for one, two in pairwise(term.functions) if one.name in ("View", "UnsafeView") and one.shape == rows)
    return next((shape for shape in views if len(shape) > 2 and classes in shape[1:-1] and shape[-1] != classes), ())


def _axes(s: Symptoms) -> Facts | None:
    if _viewed(s):
        return {"output": s.loss.term.output, "compared": s.loss.term.compared}
    if turned := _turned_and_viewed(s):
        return {"output": turned, "compared": s.loss.term.compared}
    one = _batch(s)
    if one is not None and one.woven > 0 and s.progress < WOVEN:
        return {"shape": one.shape, "channels": one.shape[1]}
    return moved_axes(s) if _drowned(s) or not s.is_finite else None


def moved_axes(s: Symptoms) -> Facts | None:
    """Inputs that tell the targets when laid out as they were before somebody reshaped them, and not as they are."""
    told = s.clues.relations
    moved = max(told.axes, told.swapped)
    return {"told": moved, "together": told.together} if moved > SOME and told.together < moved / 2 else None


def _are_names(s: Symptoms) -> bool:
    """Whether inputs are a few numbers that name things, as users and goods: one is no nearer to the next than to any other."""
    one, beside = _batch(s), [two for two in s.clues.inputs[1:] if not two.asked]
    if one is None or not one.dtype.startswith(("int", "uint")) or math.prod(one.shape[1:]) >= SEVERAL:
        return False
    return bool(beside) or math.prod(one.shape[1:]) > 1 or one.distinct > KINDS


def _come_too_rarely(s: Symptoms, pairs: int) -> bool:
    """Whether inputs are names of which each was seen too few times to tell what it stands for."""
    one = _batch(s)
    return one is not None and _are_names(s) and pairs < RARELY * one.distinct


def _shuffled(s: Symptoms) -> Facts | None:
    told = s.clues.relations
    loss = s.loss
    places = told.places if len(s.clues.inputs) == 1 else 0  # what comes in beside them may tell it
    pairs, most = told.rows or places, max(told.together, told.counted, told.around)
    if pairs < PAIRS or _come_too_rarely(s, told.rows) or most > SOME or loss.goes > (A_LITTLE if _are_names(s) else GOES):
        return None
    if len(loss.term.compared) == 2 and loss.term.compared[0] == loss.term.compared[1] == loss.classes and len(s.clues.inputs) == 2:
        chance = math.log(loss.classes) * sum(abs(one.factor) for one in loss.terms if one.criterion == "cross-entropy")
        stays = abs(s.last - chance) < 0.02 * chance and s.pace > 1e-4 and all(one.same < 0.5 for one in s.clues.inputs)
        return {"loss": s.last, "baseline": chance, "pairs": told.rows} if stays else None
    if not _drowned(s) or s.lately < -1:  # it was on its way there for most of the time
        return None
    if _is_learned(s):
        return None
    if s.loss.classes and s.loss.spread > 0.15:  # it has learnt to tell samples apart
        return None
    return {"loss": s.last, "baseline": s.baseline, "pairs": pairs}


ROWS = (
    CauseRow("not a number in data", _not_a_number, "division by zero", "batch"),
    CauseRow("not a number in data", _skipped, severity="careful"),
    CauseRow("constant targets", _constant_targets, "imbalance", "labels", unlike=("wild",)),
    CauseRow("constant inputs", _constant_inputs, unlike=("wild",)),
    CauseRow("constant inputs", _mostly_constant, severity="careful", tier=1),
    CauseRow("ordered batches", _ordered),
    CauseRow("imbalance", _imbalance, unlike=("wild",)),
    CauseRow("leak", _leak, unlike=("wild", "stuck")),
    CauseRow("targets not moved", _same_place, unlike=("wild",)),
    CauseRow("same batch", _same_batch_that_serves, "few samples", "batches", severity="note", unlike=("wild",)),
    CauseRow("same batch", _same_batch, "few samples", "batches", severity="careful", unlike=("wild",)),
    CauseRow("few samples", _few, "same batch", "batches", severity="careful", unlike=("wild",)),
    CauseRow("one huge feature", _huge, "inputs not scaled", "scale", tier=1),
    CauseRow("inputs not scaled", _not_scaled, "one huge feature", "scale", tier=1),
    CauseRow("inputs not scaled", _still, "inputs vanish", "scale", tier=1),
    CauseRow("inputs vanish", _vanish, tier=1),
    CauseRow("targets not scaled", _targets, "rate too high", "scale the targets", tier=1),
    CauseRow("targets shifted", _shifted, tier=1),
    CauseRow("targets shifted", _shifted_along, tier=1),
    CauseRow("wrong axes", _axes, tier=1),
    CauseRow("too much noise", _noise, "targets shuffled", "pairs", tier=2),
    CauseRow("targets shuffled", _shuffled, "too much noise", "pairs", tier=2, left=True),
    CauseRow("constant targets", _one_class, "imbalance", "labels", tier=2),
    CauseRow("constant targets", _same_targets, "imbalance", "labels", tier=2, unlike=("wild",)),
)
