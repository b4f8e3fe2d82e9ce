"""Clues: what a training shows of its loop, its batches, its loss and its optimizers beside the numbers of modules and parameters.

A watch collects them in its samples. `modlab.causes` reads them; everything is plain data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from modlab.frozen import frozen

UNKNOWN = float("nan")


VIEWS = frozenset(("View", "UnsafeView", "ReshapeAlias"))
"""Functions of autograd's graph, by name, that are views of another shape."""

SHAPES = VIEWS | {"Squeeze", "Unsqueeze", "Clone", "Alias", "ToCopy"}
"""Those that give the same numbers in the same order."""

MOVES = SHAPES | {"Transpose", "T", "Permute"}
"""Those that give the same numbers."""


RANGES = {
    "Relu": (0.0, math.inf),
    "Softplus": (0.0, math.inf),
    "Exp": (0.0, math.inf),
    "Abs": (0.0, math.inf),
    "Sigmoid": (0.0, 1.0),
    "Softmax": (0.0, 1.0),
    "Hardsigmoid": (0.0, 1.0),
    "Tanh": (-1.0, 1.0),
    "LogSoftmax": (-math.inf, 0.0),
    "LogSigmoid": (-math.inf, 0.0),
}
"""Of functions that have ends."""


@frozen
class Numbers:
    """The numbers of some tensors, pooled over the looks.

    Attributes:
        mean, std, low, high: of the finite ones.
        whole: whether all of them are whole numbers.
        distinct: how many different values there were in the largest look, if these are whole numbers; how many levels, if they are few.
    """

    mean: float = UNKNOWN
    std: float = UNKNOWN
    low: float = UNKNOWN
    high: float = UNKNOWN
    whole: bool = False
    distinct: int = 0


INFINITE = "infinite factor"
"""A risk of a loss: something in it is multiplied by infinity."""

FREE = (-math.inf, math.inf)
"""The ends of what has none."""


@frozen
class Function:
    """One function between the loss and the model's output, as autograd names it without "Backward0".

    Attributes:
        dim: of a softmax, along which it normalizes; else -1.
        number: by what a product or a quotient scales, 1 for a product of matrices that gives cosines; NaN where that is not one number.
        shape: of what it gives.
        ends: the least and the largest number that a clamp, or another one that is told them, lets through.
    """

    name: str
    dim: int = -1
    number: float = UNKNOWN
    shape: tuple[int, ...] = ()
    ends: tuple[float, float] = FREE


@frozen
class Term:
    """One summand of a loss.

    Attributes:
        criterion: "cross-entropy", "likelihood" (of what should be log-probabilities), "binary cross-entropy", the same "with logits",
            "squared error", "absolute error", "smooth error", "quantile error", "counts by logarithms", "counts by rates", "signs" (1 and
            -1), "alignment" (of frames and signs), "divergence"; "penalty" on parameters; "" for another function.
        node: as autograd names its function.
        reduction: "mean", "sum" or "".
        factor: by which constant it is multiplied, with its sign.
        functions: between it and the model's output, the nearest to the loss first.
        ending: the last functions of the model itself, the last one first.
        output: the shape of the model's output; `compared`: of what is compared with the target.
        source: the path of the module that gave the output, None if it was not found.
        squared: whether a product of something with itself is among the functions.
        paired: whether it compares two outputs, and none with a target.
        across: of a cross-entropy whose classes are picked along a different dimension from that of its softmax, the latter; else -1.
        pushes: of a loss of likenesses, what it does to those that belong together, and to the others: above 0 it makes them less.
        positives: whether one score alone, as large as it may be, makes it small.
        asked: the least and the largest target of an error.
        gain: what it measures that should become large: "overlap", "likeness", "clipped gain", "rewarded" or "restored"; "" else.
        layer: the path of the innermost module whose output is that of the model, but for an activation and how it is laid out.
        spread: the shape of what is repeated to that of what is compared; () where nothing is.
        giver: the function that decides between which ends lies what is compared: those that lay it out, or average it, come after it.
        short: of an error, whether much of what its target asks for lies beyond what that function gives.
        met: whether other numbers than the model's come into what is compared, as into a difference that is to vanish.
        alone: whether each score was given alone, and those of several options then stand side by side.
    """

    criterion: str = ""
    node: str = ""
    reduction: str = ""
    factor: float = 1.0
    functions: tuple[Function, ...] = ()
    ending: tuple[Function, ...] = ()
    output: tuple[int, ...] = ()
    compared: tuple[int, ...] = ()
    source: str | None = None
    squared: bool = False
    paired: bool = False
    across: int = -1
    pushes: tuple[float, ...] = ()
    positives: bool = False
    asked: tuple[float, float] = (UNKNOWN, UNKNOWN)
    gain: str = ""
    layer: str | None = None
    spread: tuple[int, ...] = ()
    giver: str = ""
    short: bool = False
    met: bool = False
    alone: bool = False


@frozen
class LossClues:
    """What the graph of a loss says, in the looks at one place in the code.

    Attributes:
        name: of its curve.
        looks: how many there were.
        terms: of the last look, the first one being that with a criterion.
        outputs, targets: the numbers that the criterion compares; for a cross-entropy `outputs` are logarithms. `first_outputs` and
            `first_targets` are those of the first two looks.
        spread: how far the outputs of a sample are apart from another sample's, as a share of their own size, at the last look.
        baseline: the loss, times `factor`, of the best answer that does not look at the input.
        classes: of a cross-entropy; `shares`: of each class among the targets.
        within: how much of the targets' entropy, or variance, is within a batch; NaN where batches are small.
        ordered: in which share of the looks they were sorted.
        ignored: the share of targets that the criterion leaves out.
        weights: of each class, as given to the criterion; of a binary one, that of the positive ones.
        unnormalized: of a likelihood, how far the probabilities are from adding up to 1, as a logarithm; `along`: a dimension along which
            they do, -1 if there is none.
        value: of the loss, at the last look.
        away: how far the variances in it are from 1 at most, as of a latent whose divergence from the prior is a part of the loss.
        risks: what may be no number on the way to it: "log of zero", "log of a negative", "root of zero", "root of a negative",
            "division by zero", "overflow" and `INFINITE`; what may become that: "logarithm of a chance", "root of squares"; and "no log".
        varied: by how much the outputs of samples differ, at the first look and at the last.
        factors: those of the first term, at the first look and at the last.
        even: of targets that are shares of the classes, their entropy at least, as a part of that of even ones.
        ranks: of triples, by how many standard errors the pair that is pulled was farther apart than the other one in the first looks; in
            which share of them it is nearer in the last; and what is left of the margin.
        masked: how many of the classes each sample leaves out, by a score of minus infinity.
        diagonal: of a cross-entropy, whether each sample's class is its own number.
        floor: the loss, times `factor`, of an answer that is right in each sample.
        middle, typical: of an error that forgives outliers, the target in the middle, and how far from it half of them are at most.
        outliers: which part of the loss of a constant answer a few of these targets make, that are far off.
        goes: by how many standard errors outputs go with their targets, of what was seen before each step; 0 where that is not known.
        bounds: of an error, the least and the largest output that there can be, where many targets lie beyond; NaN where none do.
        chances: whether the scores that a softmax takes were chances already in each look.
        reach: the least and the greatest output of all looks; `pressed`: in how many of them many stood near 0 or 1, of scores of yes
            and no.
        gained: of what a constant answer loses of the very same targets, which part the answers of late looks do not lose; and by how
            many standard errors. Of classes, and of yes and no, without weights.
        short: of an error, whether much of what all its targets ask for lies beyond what the function gives that makes what is compared.
    """

    name: str = ""
    looks: int = 0
    terms: tuple[Term, ...] = ()
    outputs: Numbers = Numbers()
    targets: Numbers = Numbers()
    first_outputs: Numbers = Numbers()
    first_targets: Numbers = Numbers()
    spread: float = UNKNOWN
    baseline: float = UNKNOWN
    classes: int = 0
    shares: tuple[float, ...] = ()
    within: float = UNKNOWN
    ordered: float = 0.0
    ignored: float = 0.0
    weights: tuple[float, ...] = ()
    unnormalized: float = UNKNOWN
    along: int = -1
    risks: tuple[str, ...] = ()
    value: float = UNKNOWN
    away: float = UNKNOWN
    varied: tuple[float, float] = (UNKNOWN, UNKNOWN)
    factors: tuple[float, float] = (UNKNOWN, UNKNOWN)
    even: float = UNKNOWN
    ranks: tuple[float, ...] = ()
    diagonal: bool = False
    floor: float = 0.0
    goes: float = 0.0
    middle: float = UNKNOWN
    typical: float = UNKNOWN
    outliers: float = 0.0
    bounds: tuple[float, float] = (UNKNOWN, UNKNOWN)
    chances: bool = False
    reach: tuple[float, float] = (UNKNOWN, UNKNOWN)
    pressed: int = 0
    masked: int = 0
    gained: tuple[float, float] = (UNKNOWN, UNKNOWN)
    short: bool = False

    @property
    def term(self) -> Term:
        """The one with a criterion."""
        return self.terms[0] if self.terms else Term()

    @property
    def added(self) -> float:
        """How many numbers it adds up: one for each sample or token, if they are of classes or of sequences; 1 where it takes a mean."""
        term, shape = self.term, self.term.compared
        if term.reduction != "sum" or not shape:
            return 1.0
        if term.criterion == "alignment":  # frames, samples, signs
            return float(shape[1]) if len(shape) > 2 else 1.0
        many = math.prod(shape) / (shape[min(1, len(shape) - 1)] if term.criterion in ("cross-entropy", "likelihood") else 1)
        return many * (1 - self.ignored)


@frozen
class InputClues:
    """One tensor that goes into the model, over the looks.

    Attributes:
        name: its place in the call.
        shape: at the last look; `dtype`.
        numbers: pooled; `features`: the least and the greatest standard deviation of a feature (the last dimension; of images the second).
        scales: between which standard deviations of their own numbers most samples are.
        same: in which share of the looks all samples of the batch were the same.
        repeated: in which share of the looks the whole batch was the one of the look before.
        rows, distinct: how many samples were seen, and how many different ones: in the first looks, and in later ones as long as these
            are few; `early`: which share of these the first half of the looks had.
        common: of whole numbers the share of the most frequent one, and `token` which that is.
        typical: the size of the number in the middle, of those that are not 0, at the last look.
        twin: the name of an earlier input that was the same in each look, or that repeats each of its numbers, or is repeated.
        bad: the first look in which it held NaN or infinity, -1 if none did. A mask of zeros and minus infinity is none.
        tells: of one number a sample, beside an input that is a noisy copy of the target, or of it and the noise: how much of their
            difference it tells, beyond what chance does.
        ends: which share of that token fills up the ends of rows, with nothing else behind it.
        woven: of images of a few channels, by how much a number is more like the one that is so many channels further than the next one;
            the least of all looks, less what chance does.
        state: whether it comes after another input, and was what the model gave besides its first output in the call before.
        asked: whether it comes after another input, and is the target of the loss.
        along: of rows of rows of numbers, how far neighbours along the second dimension are apart, as a part of how far those along the
            first one are: less than 1 where the second one is time.
        smooth: of images, how alike neighbouring numbers are at most, from 0 for noise to 1.
        apiece: which share of the samples of a batch are different ones, on average; `often`: which share is
            the one that is there most often.
        blank: whether each row of tokens has as many beside the most frequent one, which differ between rows: a few signs between blanks.
    """

    name: str = ""
    shape: tuple[int, ...] = ()
    dtype: str = ""
    numbers: Numbers = Numbers()
    features: tuple[float, float] = (UNKNOWN, UNKNOWN)
    scales: tuple[float, float] = (UNKNOWN, UNKNOWN)
    same: float = 0.0
    repeated: float = 0.0
    rows: int = 0
    distinct: int = 0
    early: float = UNKNOWN
    common: float = 0.0
    token: int = -1
    typical: float = UNKNOWN
    twin: str = ""
    bad: int = -1
    tells: float = UNKNOWN
    woven: float = UNKNOWN
    ends: float = 0.0
    state: bool = False
    asked: bool = False
    along: float = UNKNOWN
    blank: bool = False
    smooth: float = UNKNOWN
    apiece: float = UNKNOWN
    often: float = UNKNOWN

    @property
    def one_hot(self) -> bool:
        """Whether each row says which one of some it is, and nothing else: a token, a state, a node."""
        numbers, width = self.numbers, self.shape[-1] if len(self.shape) > 1 else 0
        return width > 2 and numbers.whole and (numbers.low, numbers.high) == (0, 1) and abs(numbers.mean * width - 1) < 1e-6


@frozen
class PairClues:
    """Inputs against targets.

    Attributes:
        equal: the share of targets that are the input in the same place; `moved`: that are the next one.
        beside: whether it is a second input of which that is so.
        feature: which feature of the input tells the target by itself, -1 if none does; `told`: how much of it; of how many `features`.
        padded: the share of targets that are padding.
        itself: whether that feature is the target, number by number, but for a little noise; or the classes have values of their own in it.
        others: how much the feature in the middle tells.
        zeros: the share of places where series of numbers are filled up with zeros to the end, from different places on, and their targets
            are all the same there.
        open: whether the targets are the tokens that were left, and those that are ignored stand at one token, within rows.
        unhidden: whether single tokens are asked for, between others that are ignored, and the input holds each of them.
        upright: whether tokens are filled up along the samples, and not along the positions.
        restored: the share of a target's numbers that are those of the input, where these are no series.
        back: the share of targets that are the input before them; `down`: that are the next one along the first dimension.
        further: the share of targets that are the input two places on.
        through: whether nothing stands between an input and the output in the same place that is narrower, or knows no places, and nothing
            hides a part of the input.
        fed: whether the model looks up, of tokens from the second one on, what is asked for in the same place.
        uneven: of inputs and targets of one shape, the deviation of how far they are apart in a sample, or of how far that is of the
            target, as a part of its mean and less what chance does: about 0 where all samples have the same noise.
        filled: whether those places alone are asked for that fill sequences up, and have one answer.
        column: of series, which number of each place is the target there, in each look; -1 if none is, less if that was not asked.
    """

    equal: float = 0.0
    moved: float = 0.0
    feature: int = -1
    told: float = 0.0
    features: int = 0
    padded: float = 0.0
    zeros: float = 0.0
    beside: bool = False
    itself: bool = False
    others: float = UNKNOWN
    open: bool = False
    unhidden: bool = False
    upright: bool = False
    through: bool = False
    restored: float = 0.0
    back: float = 0.0
    down: float = 0.0
    further: float = 0.0
    fed: bool = False
    uneven: float = UNKNOWN
    filled: bool = False
    column: int = -2


@frozen
class Relations:
    """How much of the targets the inputs tell without the model, of half of some pairs by the other half: 0 is nothing, 1 is all.

    Attributes:
        rows: how many pairs; 0 if it was not asked.
        together: as they came; `counted`: by how often each token comes, wherever, or by the numbers of a series
            in whatever order; `padding`: by how often that of the padding comes.
        before, after: each target that of the sample before, or after, it; `late`: that of the same place in the batch before.
        by, moved: of series in which each place has its target, by how many places further the input tells most of it, and how much;
            `placed`: how much the input in the same place does.
        axes, swapped: the inputs laid out as they were, if they were reshaped where axes should have been moved.
        places: of how many places of tokens it was asked how much these tell of their targets, with those beside them: `around`.
    """

    rows: int = 0
    together: float = 0.0
    counted: float = 0.0
    before: float = 0.0
    after: float = 0.0
    late: float = 0.0
    axes: float = 0.0
    swapped: float = 0.0
    padding: float = 0.0
    by: int = 0
    moved: float = 0.0
    placed: float = 0.0
    places: int = 0
    around: float = 0.0


@frozen
class GroupClues:
    """One parameter group.

    Attributes:
        optimizer: its class.
        rate, initial: the learning rate at the end, and the one that a scheduler began with, or goes up to.
        momentum: or the first of ``betas``.
        decay: the weight decay; `decoupled`: it is not a part of the gradient.
        maximize: it climbs.
        numbers: how many it holds; `paths`: of the first few parameters.
        owned: how many of these belong to the model.
    """

    optimizer: str = ""
    rate: float = UNKNOWN
    initial: float = UNKNOWN
    momentum: float = 0.0
    decay: float = 0.0
    decoupled: bool = False
    maximize: bool = False
    numbers: int = 0
    paths: tuple[str, ...] = ()


@frozen
class ModeClues:
    """In which mode the model was when a step had been made.

    Attributes:
        trained, evaluated: how many steps were made in training mode, and in evaluation mode.
        since: the first step of the latter, -1 if there is none; `places`: dropout and batch norms that were in evaluation mode in it.
    """

    trained: int = 0
    evaluated: int = 0
    since: int = -1
    places: tuple[str, ...] = ()


@frozen
class WrittenClues:
    """What somebody else than the optimizer writes into the weights, between two steps and not in each.

    Attributes:
        compared: how often that was compared with what had been written the time before, and was different.
        back: of these, how often it was nearly the same; `left`: what was left of the way that the steps had taken, in the middle.
        anew: how often it had nothing to do with what was there; `leap`: how many times that way it was off, in the middle.
        renewed: how often others were written than the time before, whether compared or not.
    """

    compared: int = 0
    back: int = 0
    left: float = UNKNOWN
    anew: int = 0
    leap: float = UNKNOWN
    renewed: int = 0


@frozen
class ThrownClues:
    """Backward passes whose gradients no step has used.

    Attributes:
        thrown: of the one loss that there is, behind how many passes gradients were gone when the next one came, with no step in between.
        passes: how many of it were looked at.
        others, written: looks in which some gradients were other tensors at the step than backward() had left, or were written to.
    """

    thrown: int = 0
    passes: int = 0
    others: int = 0
    written: int = 0


@frozen
class LoopClues:
    """What the loop does.

    Attributes:
        backwards: calls of ``backward()`` that brought gradients to the model.
        looks: backward passes that were looked at; `carried`: of these, before how many there were gradients already.
        put_back: looks after which the weights were again what they had been before the step; `kept`: after which they were not.
        hooked: paths of parameters whose gradient a hook of the user's may change.
        edited: looks in which the gradients at the step pointed elsewhere than what backward() brought, or there, or were gone.
        left: how large they were at the step, as a share of what backward() brought, less what a scaler had multiplied.
        scaled_steps: steps made on gradients that a scaler has multiplied; `scaled_clips`: the same of clipping.
        new_scalers: how often the scaler of a loss was gone, and a new one in its place; `skipped`: steps that no optimizer made.
        shared: parameters that several optimizers hold; `optimizers`: the classes of all.
        in_eval: looks at a loss at which the model was in evaluation mode.
        twice: the paths of a module, or of a parameter of a list, that stands in several places.
        uncounted: batch norms that have not taken in a single batch.
        arrivals: looks in which gradients were seen as backward() left them.
        climbs: between how many looks the weights went up the slope, and down.
        rounded: looks after which the weights had no more digits than 16-bit numbers have, though a step had moved them.
        shrunk: by what part all weights became smaller between two steps, each time the same; 0 where they did not.
        decayed: looks in which the gradients at the step were those that backward() brought and a part of the weights.
        clamped: looks in which many numbers of the gradients had one size, the largest, at the step.
        returned: how often somebody wrote the same weights again between two steps.
        rootless: calls of ``backward()`` on a tensor whose graph, if it has one, ends in no parameter of the model.
        replaced: looks in which other tensors, of zeros, stood at the step where backward() had left gradients.
        brought: the greatest number that backward() brought in those.
        asleep: an optimizer that makes no step while others do, and the parameters that it alone holds.
        sharing: the classes of the optimizers that hold what is `shared`.
        against: of the looks in which gradients pointed elsewhere, in how many that was opposite to what backward() brought.
        modes: of all steps, not of the looks alone.
        passes: the most backward passes that were looked at in one step, of all losses.
        written: of all weights that somebody wrote, where that were not the same ones.
        restarted: batch norms that have taken in batches, and are trained, and whose statistics are as at the beginning in the end.
        exchanged: how often the optimizer was gone, and another one had come in its place.
        pulled: those of the `shared` that the graphs of several losses end in.
        taken: parameters whose gradient came, and was no more at the step, in several looks, while others were there; and in how many.
        thrown: of the passes between two steps.
        strange: the shapes of what the optimizers hold and the model does not, of a few hundred at most.
    """

    backwards: int = 0
    looks: int = 0
    carried: int = 0
    put_back: int = 0
    kept: int = 0
    hooked: tuple[str, ...] = ()
    edited: tuple[int, int, int] = (0, 0, 0)
    left: float = UNKNOWN
    scaled_steps: int = 0
    scaled_clips: int = 0
    new_scalers: int = 0
    skipped: int = 0
    shared: tuple[str, ...] = ()
    optimizers: tuple[str, ...] = ()
    in_eval: int = 0
    twice: tuple[str, ...] = ()
    uncounted: tuple[str, ...] = ()
    arrivals: int = 0
    climbs: tuple[int, int] = (0, 0)
    rounded: int = 0
    shrunk: float = 0.0
    decayed: int = 0
    clamped: int = 0
    returned: int = 0
    rootless: int = 0
    replaced: int = 0
    brought: float = UNKNOWN
    asleep: tuple[str, tuple[str, ...]] = ("", ())
    sharing: tuple[str, ...] = ()
    against: int = 0
    modes: ModeClues = ModeClues()
    passes: int = 0
    written: WrittenClues = WrittenClues()
    restarted: tuple[str, ...] = ()
    exchanged: int = 0
    pulled: tuple[str, ...] = ()
    taken: Mapping[str, int] = field(default_factory=dict)
    thrown: ThrownClues = ThrownClues()
    strange: tuple[tuple[int, ...], ...] = ()


@frozen
class ModuleClues:
    """Something about one module that the table asks for.

    Attributes:
        path: of it; `kind`: "dropout", "norm", "embedding", "attention", "weights" (of attention), "shares" (of another softmax),
            "recurrent", "cell", "linear", "filling" (what fills up the ends of an embedding's rows), "read" (whether its last place alone
            is taken, or the mean), "same for all" (the last to give samples that differ, where all get the same answer), "constant",
            "ungraded", "cut", "flat", "chooses" (the rows that a function in the loss's graph takes, and nothing else), "own function"
            (that gave its input), "backward hooks" (on it, on its input, or on what gave that), "front" (of numbers that nothing trained
            has given); of a parameter "stale" (what is computed from it is older than its last step); of the loss itself "derived" (by
            an input of the model, or another leaf).
        facts: numbers and names; "looks" in which it was seen, and "calls" in the last of these.
    """

    path: str
    kind: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@frozen
class Clues:
    """All of them.

    Attributes:
        losses: by the place in the code.
        inputs: in the order of the call.
        reached: the parameters that were met in the graphs of losses; `walks`: by the places of these losses, how many graphs were walked.
        parameters, frozen: how many numbers are in the model's parameters, and in those that should not be trained; `fresh`: how many of
            the latter are as PyTorch initializes them; `drawn`: how many are as if somebody drew them from a bell curve, of any width.
        untaught: the last parameters of those that `fresh` counts.
        modules: see `ModuleClues`.
    """

    losses: tuple[LossClues, ...] = ()
    inputs: tuple[InputClues, ...] = ()
    pairs: PairClues = PairClues()
    relations: Relations = Relations()
    groups: tuple[GroupClues, ...] = ()
    loop: LoopClues = LoopClues()
    modules: tuple[ModuleClues, ...] = ()
    reached: frozenset[str] = frozenset()
    walks: tuple[int, ...] = ()
    parameters: int = 0
    frozen: int = 0
    fresh: int = 0
    drawn: int = 0
    untaught: tuple[str, ...] = ()
