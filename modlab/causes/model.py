"""Causes in the model: how it begins, and what it is made of."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from modlab.causes.cause_row import CauseRow, Facts
from modlab.causes.sequence import reads_after_filling
from modlab.causes.symptoms import ROUNDED, STUCK, Symptoms
from modlab.records.watch import ACTIVATION, GRADIENT, PARAMETER

FADED = 0.1
"""What is left of the weights, below which it is they that take the gradient away, and not the depth."""

GONE, COMING = 1e-3, 3e-3
"""Part of the last layer's gradient below which that of the first one vanishes; and beyond which it has come at the last look."""

WITH_UNITS = frozenset(("linear", "conv", "norm"))
"""Categories of modules behind which an activation stands."""

FAINTER = 0.03
"""Part of the last layer's gradient below which that of the first one is faint where nothing is learned."""

GROWN = 5.0
"""Times what it was that a weight has become which began at zero, or next to it, where the deepest of others become some tenths larger."""

SURE = 4
"""Numbers of a weight that are not all that small by chance, as a single one may be."""

DROPPED = 0.9
"""A chance to drop from which on hardly anything is left; below it a wide layer may be served well."""

FALLEN = 1e-2
"""Part of the last layer's gradient that the first one's is at least where it does not vanish in between."""

HALVED = 0.5
"""Of its first value: a loss that has fallen by more learns."""

FALLS = 0.3
"""Progress with which a layer that gets no gradient is one of which the others have no need."""

SHUT, LIVES = 0.95, 0.8
"""Part of the units of a layer beyond which dead ones explain a loss, for a tenth of them may serve; and progress that needs none."""

MANY_CLASSES, A_WHILE = 10, 100
"""Classes that two numbers can hardly tell apart, and steps after which that shows."""

NEARLY_ALL_THE_WAY, ENOUGH, CENTRED = 0.95, 0.8, 0.25
"""Progress with numbers, and with classes, beyond which a model does well without a bias; and the mean of targets, as a part of their
deviation, that needs none."""

OFF_ZERO = 3.0
"""Deviations of their mean from zero beyond which numbers are no weights that multiply a signal, but logarithms of scales, say."""

NOTHING = 1e-3
"""Deviation of tables below which what is multiplied by them is next to nothing; a hundredth is a usual one."""

FAINT = 1e-3
"""Part of a signal that all layers together leave at first, where nothing is learned."""

MULTIPLIED, ABOVE = 40.0, 10.0
"""Times by which all layers together make a signal larger, and times a constant answer at which the loss then begins."""

HUGE = 30.0
"""Times what keeps the size of a signal that one matrix alone does not make good again."""

SLOW, QUICK, LEFT_OVER = 1e-3, 1e-2, 0.5
"""Momentum of a BatchNorm whose statistics hardly follow; and of one in which, after a run, so much is left of what it began with."""

USUAL = 30.0
"""Size of inputs and targets up to which they do not make a loss start at thousands."""


def _equal(s: Symptoms) -> Facts | None:
    equal = (one for one in s.modules("equal units") if one.path not in s.ungraded)  # without a gradient they could not part
    looked = (one for one in equal if one.facts["looks"] >= 3)  # rows of a table part by themselves, as each is looked up for others
    some = [one for one in looked if one.facts["of"] == "layer" or one.facts["zero"] or not one.facts["rows"]]
    if not some or s.progress > 0.8:
        return None
    first = some[0].facts
    return {"path": some[0].path, "places": tuple(one.path for one in some), **{name: first[name] for name in ("units", "zero", "rows")}}


def began_equal(s: Symptoms) -> bool:
    """Whether units that are all the same explain that nothing tells one answer from another."""
    return _equal(s) is not None


def began_zero(s: Symptoms) -> bool:
    """Whether weights of zeros explain whatever is zero after them, and the gradients before them."""
    return bool((_equal(s) or {}).get("zero"))


def _scales(s: Symptoms) -> dict[str, float]:
    """The standard deviations of the matrices at first, as multiples of what their inputs ask for."""
    history, found = s.record.history, {}
    lookups = {one.module for one in s.matrices if s.category(one.module) == "embedding"}
    trained = {one.path: one.module for one in s.matrices}
    for row, one in enumerate(history.series):
        if (
            one.role != PARAMETER
            or one.path not in trained
            or trained[one.path] in lookups
            or len(one.shape) < 2
            or _is_direction(one.path)
        ):
            continue
        var, mean = history.columns["var"][:, row], history.columns["mean"][:, row]
        there = np.isfinite(var)
        if there.any():
            deviation, off = math.sqrt(float(var[there][0])), abs(float(mean[there][0]))
            scale = math.hypot(deviation, off) * math.sqrt(math.prod(one.shape[1:]))
            if scale < 1 or off <= OFF_ZERO * deviation:
                found[one.path] = scale
    return found


def _is_direction(path: str) -> bool:
    """Whether it is a direction of weight_norm, whose size does not count: the lengths stand beside it."""
    return path.endswith((".original1", "weight_v"))


def _tables(s: Symptoms) -> dict[str, float]:
    """The standard deviations of embeddings at first, which is 1 where PyTorch draws them."""
    lookups = {one.path for one in s.matrices if s.category(one.module) == "embedding"}
    found = {}
    for row, one in enumerate(s.record.history.series):
        var = s.record.history.columns["var"][:, row]
        if one.role == PARAMETER and one.path in lookups and np.isfinite(var).any():
            found[one.path] = math.sqrt(float(var[np.isfinite(var)][0]))
    return found


def _explodes(s: Symptoms) -> bool:
    """Whether a loss begins so far above that of a constant answer that signals must have grown, from inputs and targets of usual size."""
    usual = all(max(abs(one.numbers.low), abs(one.numbers.high)) < USUAL for one in s.inputs) and 1 / USUAL < s.target.std < USUAL
    again = [one for one in (*s.modules("cell"), *s.modules("recurrent"), *s.modules("linear")) if one.facts.get("calls", 1) >= 4]
    return s.loss.baseline > 0 and s.begins_wild and usual and not again and s.is_stuck


def _too_large(s: Symptoms) -> Facts | None:
    scales = _scales(s) | _tables(s)
    wild = [*scales] if _multiplies(s) else [path for path, scale in scales.items() if scale > 8]
    huge = any(scale > HUGE for scale in scales.values())
    if not wild and _explodes(s):
        return {"path": s.first_module, "start": s.start, "baseline": s.passes * s.loss.baseline}
    if not wild or (len(wild) < len(scales) / 2 and not huge):
        return None
    times, few = float(np.median([scales[path] for path in wild])), len(wild) < len(scales) / 2
    if s.progress > (0.3 if few else NEARLY_ALL_THE_WAY if times > HUGE and _is_saturated(s) else 0.8):
        return None
    return {"path": wild[0], "places": tuple(wild), "times": times}


def _multiplies(s: Symptoms) -> bool:
    """Whether each layer makes a signal larger, all of them by so much that the loss began far above a constant answer."""
    scales = [*_scales(s).values()]
    return len(scales) > 1 and min(scales) > 2 and math.prod(scales) > MULTIPLIED and s.start > ABOVE * s.passes * s.loss.baseline > 0


def _is_saturated(s: Symptoms) -> bool:
    """Whether an activation gives hardly anything but its limits, up to the end."""
    return any(one.kind == "saturated" and not one.over for one in s.record.alerts)


def begins_too_small(s: Symptoms) -> Facts | None:
    """Most weights are far smaller than their inputs ask for."""
    if s.has_adapters:  # one of two factors begins at zero on purpose
        return None
    scales = _scales(s)
    fades = len(scales) > 1 and math.prod(scales.values()) < FAINT and not any(one.category == "norm" for one in s.watched.modules)
    least = 0.1 if fades and s.is_stuck and s.made >= A_WHILE / 2 else 0.02
    if not scales:  # tables alone, as of factors that are multiplied: each gets its gradient through the others
        scales, least = {path: scale for path, scale in _tables(s).items() if scale > 0}, NOTHING
    tiny = [path for path, scale in scales.items() if 0 < scale < least and math.prod(s.shapes.get(path, (SURE,))) >= SURE]
    if not tiny or len(tiny) < len(scales) / 2 or s.progress > (0.9 if all(scales[path] < 1e-3 for path in tiny) else 0.6):
        return None
    return {"path": tiny[0], "places": tuple(tiny), "times": float(np.median([scales[path] for path in tiny]))}


def _vanishing(s: Symptoms) -> Facts | None:
    flow = s.flow
    if reads_after_filling(s) is not None:
        return None
    if len(flow) < 4 or s.learns or s.has_burst or not s.is_finite or _dead(s) is not None:
        return None
    if s.plays:
        return None  # gradients of several losses, which are not on one way
    first, last = flow[0], flow[-1]
    if not (last[1] > 0 and first[1] < GONE * last[1]) or s.resized() < FADED:
        return None
    if s.last_gradient(first[0]) > COMING * s.last_gradient(last[0]) or any(_grows(s, path) for path, _ in flow[1:]):
        return None  # what stands after it began at zero
    if not first[1] and (len(s.loop.optimizers) > 1 or s.ungraded):  # what went backward was the loss of others, or goes past others, too
        return None
    if not first[1] and _thrown_away(s) is not None:
        return None
    return {"path": first[0], "last": last[0], "ratio": first[1] / last[1]}


def _fades(s: Symptoms) -> Facts | None:
    """Gradients that become less from each layer to the one before it, where after a while next to nothing has been learned."""
    sizes = [size for _, size in s.flow]
    if len(sizes) < 4 or s.made < A_WHILE or not s.is_stuck or not s.is_finite or s.has_burst or s.plays or s.ungraded:
        return None
    if not 0 < sizes[0] < FAINTER * sizes[-1] or any(one >= two for one, two in pairwise(sizes)):
        return None
    return {"path": s.flow[0][0], "last": s.flow[-1][0], "ratio": sizes[0] / sizes[-1]}


def _grows(s: Symptoms, path: str) -> bool:
    """Whether a weight is many times what it was, as one is that begins at zero and learns."""
    sizes = s.weights.get(path, np.zeros(0))
    sizes = sizes[np.isfinite(sizes)]
    return len(sizes) > 1 and float(sizes[0]) < float(sizes[-1]) / GROWN


def _nothing_comes(s: Symptoms) -> Facts | None:
    """Gradients that are zero in front of some that are not, where these become less on their way."""
    flat = _flat_in_front(s)
    return {"path": flat[0], "places": flat, "ratio": 0.0} if flat and not _is_thrown_away(s, flat) else None


def _thrown_away(s: Symptoms) -> Facts | None:
    """The same of tables, where nothing becomes less behind them: what they give is masked, or multiplied by zero."""
    flat = _flat_in_front(s)
    return {"path": flat[0], "places": flat, "behind": True} if flat and _is_thrown_away(s, flat) else None


def _is_thrown_away(s: Symptoms, flat: tuple[str, ...]) -> bool:
    """Whether tables alone have no gradient, and the first layer behind them has one like the last: no activation has shut in between."""
    owners = {one.path: one.module for one in s.matrices}
    rest = [size for _, size in s.flow if size > 0]
    return all(s.category(owners[path]) == "embedding" for path in flat) and len(rest) > 1 and rest[0] > FALLEN * rest[-1]


def _flat_in_front(s: Symptoms) -> tuple[str, ...]:
    """Gradients that are zero in front of some that are not, and not because zeros come in: then the bias beside them has one."""
    reached = {one.module for one in s.watched.parameters if one.dimensions == 1 and one.graded}
    flat = tuple(path for path in s.flat if path.rpartition(".")[0] not in reached)
    if (
        not flat
        or not any(one.graded for one in s.watched.parameters)
        or s.learns
        or s.progress > FALLS
        or s.loop.hooked
        or any("weight_hh" in path for path in flat)
        or began_zero(s)
    ):
        return ()
    return flat


def _dead(s: Symptoms) -> Facts | None:
    if s.has_burst or not s.is_finite or began_zero(s):
        return None
    found: list[tuple[float, Facts]] = []
    for units in s.record.units:
        count = units.fired.shape[1]
        seen = int(units.inputs.sum())
        which = np.flatnonzero(units.silent >= max(64, 0.4 * seen))
        silent = len(which)
        if count >= 4 and silent > SHUT * count and s.progress < LIVES and seen >= 64:
            since = int(units.silent[which].min())
            facts: Facts = {"path": units.path, "dead": silent, "units": count, "inputs": since, "which": tuple(which.tolist())}
            found.append((silent / count, {**facts, "never": since >= seen}))
    return max(found, key=lambda one: one[0], default=(0.0, None))[1]


def _below_zero(s: Symptoms) -> Facts | None:
    """A layer of which all numbers are below zero, and to which no gradient comes though one comes further on: what stands between is shut.

    A ReLU that is called as a function has no units that are counted.
    """
    if not s.is_stuck or s.is_blown_up or _dead(s) is not None:
        return None
    layers = [one for one in s.watched.modules if one.called and one.category in WITH_UNITS]
    reached = False
    for one in sorted(layers, key=lambda one: one.order, reverse=True):
        most, zeros = (some[np.isfinite(some)] for some in (s.row("high", ACTIVATION, one.path), s.row("zeros", GRADIENT, one.path)))
        if min(len(most), len(zeros)) < SURE:
            continue
        if reached and (most < 0).all() and (zeros == 1).all():
            return {"path": one.path, "most": float(most.max()), "never": True}
        reached |= bool((zeros < 1).all())
    return None


def _comes_down(s: Symptoms) -> bool:
    """Whether it falls well, or, of a loss that begins below zero, at all: how far that could fall is not known."""
    return s.learns or (s.start <= 0 and s.falls)


def _linear(s: Symptoms) -> Facts | None:
    some = s.modules("linear")
    paths = {one.path for one in some}
    after = [one for one in some if one.facts["after"] in paths and one.facts["after"] != one.path]
    narrow = [
        one
        for one in after
        if one.facts["in"] < min(one.facts["out"], next(two.facts["in"] for two in some if two.path == one.facts["after"]))
    ]
    if not after or s.progress > 0.9 or len(narrow) == len(after):
        return None
    return (
        {"path": after[0].path, "after": after[0].facts["after"], "places": tuple(one.path for one in after)}
        if len(after) >= len(some) - 1 or (not _comes_down(s) and 2 * len(after) >= len(some) - 1)
        else None
    )


def _bottleneck(s: Symptoms) -> Facts | None:
    some = [one for one in s.modules("linear") if one.path != s.loss.term.source]
    if s.clues.frozen:  # adapters are narrow on purpose
        return None
    for one, following in pairwise([*some, *s.modules("linear")[-1:]]):
        taken, given = one.facts.get("taken", 0), one.facts.get("given", 99)
        crowded = s.loss.classes >= MANY_CLASSES and s.made >= A_WHILE and s.progress < 0.5
        narrow = (given == 1 and s.progress < 0.9) or (given == 2 and crowded)
        if narrow and taken >= 8 * given and following.facts.get("taken", 0) == given and following is not one:
            return {"path": one.path, "in": taken, "out": given}
    for one in s.modules("recurrent"):
        weighted = (*s.modules("linear"), *s.modules("recurrent"), *s.modules("cell"))
        if one.path == s.loss.term.layer or not any(_comes_after(s, two.path, one.path) for two in weighted):
            continue  # it gives what is asked for
        single = one.facts["out"] == 1 and any(
            two.facts["taken"] == 1 < two.facts["given"] or (two.facts["in"] == 1 and _comes_after(s, two.path, one.path))
            for two in s.modules("linear")
        )
        if ((one.facts["out"] <= 2 and one.facts["in"] >= 8) or single) and s.progress < 0.9:
            return {"path": one.path, "in": one.facts["in"], "out": one.facts["out"]}
    return None


def _comes_after(s: Symptoms, path: str, other: str) -> bool:
    """Whether a module is called after another one."""
    order = {one.path: one.order for one in s.watched.modules if one.called}
    return order.get(path, -1) > order.get(other, math.inf)


def _dropout(s: Symptoms) -> Facts | None:
    least = 0.8 if s.progress < STUCK else DROPPED
    some = [one for one in (*s.modules("dropout"), *s.modules("dropped")) if one.facts["p"] > least - 1e-6]
    return {"path": some[0].path, "p": some[0].facts["p"]} if some and not s.progress > 0.8 else None


def _few_values(s: Symptoms) -> Facts | None:
    some = [one for one in s.modules("norm") if one.facts["values"] < 4 or (one.facts["samples"] == 1 and s.progress < 0.5)]
    few = min(some, key=lambda one: float(one.facts["values"]), default=None)
    return {"path": few.path, **{name: few.facts[name] for name in ("values", "samples")}} if few is not None else None


def _hardly_enough_values(s: Symptoms) -> Facts | None:
    """The same of a few more, where little is learned."""
    some = [one for one in s.modules("norm") if 4 <= one.facts["values"] < 8] if s.progress < 0.3 else []
    return {"path": some[0].path, **{name: some[0].facts[name] for name in ("values", "samples")}} if some else None


def _statistics(s: Symptoms) -> Facts | None:
    for one in s.modules("norm"):
        facts = one.facts
        if facts.get("away", 0.0) <= 0.5:
            continue
        if 0 <= facts["momentum"] <= SLOW or (facts["momentum"] < QUICK and (1 - facts["momentum"]) ** s.record.steps > LEFT_OVER):
            return {"path": one.path, "momentum": facts["momentum"], "away": facts["away"]}
        if 0 < facts.get("tracked", 0) <= 2 and facts["step"] >= 5:
            return {"path": one.path, "tracked": facts["tracked"], "step": facts["step"], "away": facts["away"]}
    return _begun_anew(s)


def _begun_anew(s: Symptoms) -> Facts | None:
    """Statistics that batches have been taken into, and that are as at the beginning in the end."""
    some = [one for one in s.modules("norm") if one.path in s.loop.restarted and one.facts["looks"] >= 3 and one.facts["momentum"]]
    places = tuple(one.path for one in some)
    return {"path": places[0], "places": places, "looks": some[0].facts["looks"]} if some else None


def _no_bias(s: Symptoms) -> Facts | None:
    some = s.modules("linear")
    if len(some) < 2 or any(one.facts["bias"] for one in some) or s.modules("norm") or not s.is_finite:
        return None
    numbers = s.target.std > 0
    if s.progress > (NEARLY_ALL_THE_WAY if numbers else ENOUGH):
        return None
    if numbers and abs(s.target.mean) < CENTRED * s.target.std and abs(s.loss.outputs.mean) < CENTRED * s.target.std:
        return None  # nothing has to be shifted
    if any(one.trainable and one.dimensions == 1 for one in s.watched.parameters):
        return None  # a bias that is added beside a layer, as after the messages of a graph; or the scale of a norm
    if s.category(s.first_module) == "embedding" or any(one.one_hot for one in s.inputs[:1]):
        return None  # which can say anything, of each token
    if numbers and s.loss.baseline <= ROUNDED:
        return None  # all should be brought to one place, which a bias alone would do
    if sum(one.criterion != "penalty" for one in s.loss.terms) > 1 and s.fallen > HALVED:
        return None  # how far a sum of several could fall is not known
    term, gave = s.loss.term, [one.facts.get("given") for one in some]
    each, compared = (math.prod(shape[1:]) for shape in (term.output, term.compared))
    exact = s.learns and (each == 1 or (compared < each and any(one.name == "Mul" for one in term.functions)))
    if not any(one is None or (one == compared if exact else one % each == 0) for one in gave if each):
        return None  # no layer gave what is compared, but products of what they gave, as links of a graph are
    return {"path": some[0].path, "layers": len(some)}


def _nothing(s: Symptoms) -> Facts | None:
    """A module that gives zeros alone, or takes nothing else; or shares of which only the sum is taken, which is 1."""
    ones = [one for one in s.modules("shares") if one.facts.get("summed")]
    if ones and s.is_stuck:
        return {"path": ones[0].path, "places": (), "ones": True}
    if began_zero(s):
        return None
    zero = [path for path, first, last in s.activation("zeros") if path and first >= 0.9999 and last >= 0.9999]
    dead = {units.path for units in s.record.units}
    zero = [path for path in zero if path not in dead and s.category(path) != "activation"]
    shut = {path for path, _, last in s.activation("zeros") if last >= 0.9999}
    if any(one.path in shut for one in s.modules("recurrent")):
        return None
    fed = [
        one.path
        for one in s.modules("zero input")
        if one.facts["looks"] >= 3
        and one.path != s.first_module
        and not (one.facts.get("other") or one.facts.get("rectified") or one.facts.get("given"))  # what comes in as zeros is no value of it
        and one.facts["calls"] < 3  # else it is a state
        and s.category(one.facts.get("after")) != "activation"
    ]
    zero += fed
    if any(units.fired.size and not units.fired[-1].any() for units in s.record.units):  # a layer is dead: what it gives is its doing
        zero = []
    return {"path": zero[0], "places": tuple(zero)} if zero and not s.learns and not s.has_burst else None


def _one_for_all(s: Symptoms) -> Facts | None:
    """Samples that differ as a module gives them, and are the same where they are taken, up to the answer."""
    some = [one for one in s.modules("same for all") if one.facts["looks"] >= 3]
    if not some or not s.is_stuck or not s.is_finite or s.ungraded:  # what gets no gradient is unused
        return None
    return {"path": some[0].path, "places": (), "same": True}


def _normalized_away(s: Symptoms) -> Facts | None:
    """A norm of each number by itself: less its own mean, nothing is left of it."""
    alone = next((one for one in s.modules("own norm") if one.facts["values"] == 1 and one.facts["looks"] >= 3), None)
    return {"path": alone.path, "places": (), "normalized": True} if alone is not None and not s.learns else None


def _twice(s: Symptoms) -> Facts | None:
    some = s.loop.twice
    alike = next((one for one in s.modules("alike") if one.path in some and one.facts["looks"] >= 3), None)
    if alike is not None:
        return {"path": some[0], "places": some, "alike": True}
    return {"path": some[0], "places": some} if some and (s.progress < 0.6 or s.category(some[0]) == "norm") else None


def _repeated(s: Symptoms) -> Facts | None:
    """The same at places of a list that follow one another, as ``[layer] * n`` makes them; some share on purpose, and it may learn so."""
    some = s.loop.twice
    follow = len(some) > 1 and not s.progress > NEARLY_ALL_THE_WAY and all(_follow(*pair) for pair in pairwise(some))
    return {"path": some[0], "places": some, "perhaps": True} if follow else None


def _follow(path: str, other: str) -> bool:
    """Whether two paths differ in one number alone, by 1."""
    both = [(one, two) for one, two in zip(path.split("."), other.split("."), strict=False) if one != two]
    if path.count(".") != other.count(".") or len(both) != 1:
        return False
    one, two = both[0]
    return one.isdecimal() and two.isdecimal() and int(two) == int(one) + 1


ROWS = (
    CauseRow("all weights equal", _equal),
    CauseRow("overwritten activation", _nothing),
    CauseRow("overwritten activation", _one_for_all),
    CauseRow("overwritten activation", _normalized_away),
    CauseRow("batch norm of one", _few_values),
    CauseRow("batch norm of one", _hardly_enough_values, "rate too high", "smaller rate", severity="careful", tier=1),
    CauseRow("batch norm statistics", _statistics),
    CauseRow("too much dropout", _dropout),
    CauseRow("no nonlinearity", _linear, tier=1),
    CauseRow("weights begin too large", _too_large, "rate too high", "scale of the weights", tier=1),
    CauseRow("weights begin too small", begins_too_small, "vanishing gradient", "scale of the weights", tier=1),
    CauseRow("vanishing gradient", _vanishing, "dead units", "gradients", tier=1),
    CauseRow("dead units", _dead, "rate too high", "smaller rate", tier=1, unlike=("leapt",)),
    CauseRow("dead units", _below_zero, "overwritten activation", "why", tier=1),
    CauseRow("overwritten activation", _thrown_away, "detached", "why", tier=2),
    CauseRow("vanishing gradient", _nothing_comes, "detached", "why", tier=2),
    CauseRow("vanishing gradient", _fades, "rate too low", "larger rate", severity="careful", tier=2, left=True),
    CauseRow("shared by mistake", _twice, tier=2),
    CauseRow("shared by mistake", _repeated, severity="careful", tier=2),
    CauseRow("bottleneck", _bottleneck, tier=2),
    CauseRow("no bias where needed", _no_bias, tier=2),
)
