"""Causes in the loop: what is called when, and what happens to the gradients on their way to the step."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from modlab.causes.cause_row import CauseRow, Facts
from modlab.causes.symptoms import FEW, LONG, Symptoms
from modlab.records.watch import ACTIVATION, GRADIENT, PARAMETER_GRADIENT
from modlab.records.watched import WatchedParameter

SEVERAL = 5
"""Backward passes, or looks, that it takes to say that something never happens."""

MANY = 50
"""Passes in training mode after which somebody who holds an optimizer must have meant to train."""

SCALED = 1024
"""Power of two from which on a factor of the loss is a scale that should keep 16-bit gradients above zero."""

LEAST_HALF = 6e-8
"""The least number above zero in float16."""

PASSES, HALF = 15, 0.45
"""Backward passes of which one may say how many are thrown away, and the part that is where no more than each second one is used."""

HOOKED = 16
"""Parameters with hooks that are known at most."""

MOSTLY = 0.7
"""Part of the looks that find a gradient of the step before, where it is not cleared before each step; it may be once in an epoch."""

TIMES = 3
"""Times that weights are moved back nearly all the way, which is no chance."""

FOLDS = 16
"""Times that a training which learns may begin anew on purpose, as a cross-validation does."""

LITTLE = 0.05
"""Part of what backward() brought: nobody keeps less than that on purpose, where each number is cut off."""

WELL = 0.8
"""Way down with which a part that is not trained is meant to wait."""

HELD_BY_32_BITS, HELD_BY_16_BITS = 1e-5, 0.1
"""Parts of a weight's norm that are far more than the least change of it that there is."""

USUAL_BOUND = 0.1
"""Of a gradient's norm, as people clip it: what it leaves nothing of is too large."""

SHORT = 0.15
"""Part of a gradient's norm that a bound leaves, below which it is what sets the length of each step."""

EPSILON = 1e-4
"""Part of a weight's norm that a step adds: below that it hardly moves."""


def _no_step(s: Symptoms) -> Facts | None:
    if s.record.steps or s.loop.looks < SEVERAL or s.loop.carried > s.loop.looks / 2 or _is_moved_otherwise(s) or _hand_scale(s):
        return None
    return {"backwards": s.loop.backwards}


def _is_well(s: Symptoms) -> bool:
    """Whether the loss has come so far that what looks wrong is perhaps meant."""
    return (s.fallen if math.isnan(s.progress) else s.progress) > WELL


def _sleeps(s: Symptoms) -> Facts | None:
    """Of several optimizers one that never steps, though what it holds has gradients."""
    name, held = s.loop.asleep
    still = [one for one in s.watched.parameters if one.path in held and one.trainable and not (one.elsewhere or one.moved)]
    felt = tuple(one.path for one in still if one.graded)
    if not felt or s.record.steps < MANY or _is_well(s):
        return None
    return {"path": felt[0], "places": felt, "optimizer": name, "steps": s.record.steps}


def _moves_nothing(s: Symptoms) -> Facts | None:
    """An optimizer of somebody's own whose steps leave all weights as they were, bit for bit, at a rate that should move them."""
    rate, held = s.rate[np.isfinite(s.rate)], [one for one in s.watched.parameters if one.owned and one.graded and one.stuck]
    moves = s.quickest > 0 or any(one.moved for one in s.watched.parameters)
    clipped = s.loop.left < LITTLE or (s.norm is not None and s.norm.beyond > 0)
    if moves or clipped or not len(rate) or not any(_should_move(s, one, float(rate.min())) for one in held):
        return None
    return {"still": s.group.optimizer, "steps": s.record.steps, "rate": s.group.rate, "norm": max(one.size for one in held)}


def _should_move(s: Symptoms, one: WatchedParameter, rate: float) -> bool:
    """Whether its gradient times the rate is far more than the least change that its dtype holds."""
    weight = s.weights.get(one.path, np.zeros(0))
    least = HELD_BY_16_BITS if one.dtype.endswith("16") else HELD_BY_32_BITS
    return math.isfinite(one.size) and rate * one.size > least * float(np.nanmax(weight, initial=0.0))


def _is_moved_otherwise(s: Symptoms) -> bool:
    """Whether weights come on without a step: moved by hand, for the loss falls; or put in, for copies are what is trained."""
    return s.learns or s.falls or not (s.loop.backwards or s.watched.passes)


def _never_enough(s: Symptoms) -> Facts | None:
    return {"backwards": s.loop.backwards} if _piles_up(s) and not _is_skipped(s) else None


def _piles_up(s: Symptoms) -> bool:
    """Whether gradients are carried from one backward pass to the next, and no step is taken."""
    return not s.record.steps and s.loop.looks >= SEVERAL and s.loop.carried > s.loop.looks / 2


def _is_skipped(s: Symptoms) -> bool:
    """Whether a scaler goes down all the time: it leaves out each step, for infinite gradients that are never cleared stay infinite."""
    return any(one.kind == "scale" and one.falls >= SEVERAL and one.falls > one.count / 2 for one in s.record.scalars)


def _never_trained(s: Symptoms) -> Facts | None:
    """Pass after pass of a model with an optimizer, each of which builds a graph, and neither backward() nor a step."""
    some = (
        s.loop.backwards
        or s.loop.rootless
        or s.record.steps
        or s.clues.reached
        or any(one.felt or one.moved for one in s.watched.parameters)
    )
    if some or not s.loop.optimizers or s.watched.passes < MANY:
        return None
    return {"steps": 0, "passes": s.watched.passes}


def _no_backward(s: Symptoms) -> Facts | None:
    if s.loop.backwards or s.loop.rootless or s.record.steps < SEVERAL or s.watched.passes < SEVERAL:
        return None
    seen = any(one.felt or one.moved for one in s.watched.parameters)  # by autograd.grad, say
    return None if seen else {"steps": s.record.steps, "passes": s.watched.passes}


def _no_zero_grad(s: Symptoms) -> Facts | None:
    stepwise = s.curve is None or s.curve.passes < 1.5
    if _piles_up(s) and _is_skipped(s):
        return {"looks": s.loop.looks}
    alerts = [one for one in s.record.alerts if one.kind == "not zeroed" and not one.over]
    parts = tuple(one.path for one in alerts if one.path)
    if parts:
        return None if _is_well(s) else {"looks": alerts[0].steps, "path": parts[0], "places": parts}
    if not s.record.steps or s.loop.looks < SEVERAL or s.loop.carried < MOSTLY * (s.loop.looks - 1):
        return None
    if not stepwise and not alerts:
        return None  # passes of one step add up on purpose
    if s.loop.passes > 1 and not alerts and s.loop.carried < s.loop.looks - s.loop.passes:
        return None  # of several in a step one begins without gradients, and the others add up on purpose
    if not s.loop.backwards:  # what goes backward is a loss of others, as of copies whose steps are written into .grad
        return None
    shows = bool(s.loss.term.criterion) or s.has_baseline  # else a loss that falls says little, as that of a policy
    several = {} if stepwise else {"several": True}
    by_hand = {} if s.loop.optimizers else {"by hand": True}
    return None if shows and _is_well(s) else {"looks": s.loop.looks, **several, **by_hand}


def _zeroed(s: Symptoms) -> Facts | None:
    """Gradients flow in the backward pass, and none is left at the step."""
    trained = [one for one in s.watched.parameters if one.trainable]
    felt = [one for one in trained if one.felt] or trained
    turned, true, zeroed = s.loop.edited
    if s.loop.replaced >= SEVERAL or _is_well(s):
        return None  # not zeroed: something else stands in their place, or other parameters, which the loop puts there in each step
    if not felt or turned or true or (zeroed < SEVERAL and (s.loop.hooked or any(one.graded for one in felt))):
        return None
    steps = len(s.loop.optimizers) == 1 and not s.loop.asleep[0]
    decays = zeroed >= SEVERAL and s.group.decay > 0 and steps  # which moves weights without a gradient
    if any(one.moved for one in trained) and not decays:
        return None
    late = bool(s.clues.reached) and not s.loop.backwards and s.loop.rootless >= SEVERAL  # backward() comes after the step
    flows = zeroed >= SEVERAL or late or (not s.loop.arrivals and any(_flows(s, one.module) for one in felt))
    return {"path": felt[0].path, "parameters": len(felt)} if flows else None


def _wasted(s: Symptoms) -> Facts | None:
    """Several backward passes for each step, of which the last one alone is used, as it is: the others were cleared before."""
    some, scaled = s.loop.thrown, any(one.kind == "scale" for one in s.record.scalars)
    if s.record.steps < 2 or some.passes < PASSES or some.thrown < HALF * some.passes or not s.loop.arrivals:
        return None
    if some.others or s.loop.edited[0] or s.loop.left > 1.001 or (some.written and s.norm is None and not scaled):
        return None  # the loop has kept what was cleared, and puts it together
    if s.modules("derived"):
        return None  # they were made for a gradient of the input
    return {"thrown": some.thrown, "passes": some.passes}


def _wasted_in_vain(s: Symptoms) -> Facts | None:
    return None if _is_well(s) else _wasted(s)


def _zeroed_in_part(s: Symptoms) -> Facts | None:
    """Gradients of some parameters, which came and were gone at each step that was looked at, while others were there."""
    looks = s.loop.taken
    empty = [one for one in s.watched.parameters if one.trainable and not one.graded and one.dtype != "float16"]  # whose small ones are 0
    around = {one.module for one in empty if looks.get(one.path, 0) >= SEVERAL}
    lost = tuple(one.path for one in empty if one.module in around and (one.felt or one.path in looks))
    return {"path": lost[0], "places": lost, "looks": max(looks.get(path, 0) for path in lost)} if lost else None


def _zeroed_in_vain(s: Symptoms) -> Facts | None:
    return None if _is_well(s) else _zeroed_in_part(s)


def _flows(s: Symptoms, module: str | None) -> bool:
    """Whether the gradient of a module's output was other than zero."""
    some = s.output_gradients.get(module or "", None)
    return some is not None and bool((some[some == some] > 0).any())


def _overwritten_on_the_way(s: Symptoms) -> Facts | None:
    """By hooks on modules, or on tensors between them."""
    for one in s.record.alerts:
        if one.kind in ("nan", "inf") and one.facts.get("birth") == "hook":  # as the step has shown that was run again
            return {"path": one.path, "places": (one.path,), "into": one.kind}
        if one.kind in ("nan", "inf") and one.facts.get("alone") and one.path in s.loop.hooked:
            return {"path": one.path, "places": (one.path,), "alone": one.kind}
        if one.kind in ("nan", "inf") and one.facts.get("birth") == "elsewhere" and one.path in s.loop.hooked:
            return {"path": one.path, "places": (one.path,), "behind": one.kind}
    halved = _halved_by_hooks(s)
    if halved and s.is_stuck:
        return {"path": halved[0], "places": halved, "positive": True}
    emptied = _emptied_by_hooks(s)
    return {"path": emptied[0], "places": emptied, "emptied": True} if emptied and not _is_well(s) else None


def _erased(s: Symptoms) -> Facts | None:
    """Parameters with hooks, and they alone, have gradients of zeros in each look, though others come to what their modules give."""
    trained, hooked = [one for one in s.watched.parameters if one.trainable], s.loop.hooked
    flat = {one.path for one in trained if one.is_flat}
    empty = {one.path for one in s.modules("zero input")}
    felt = [one for one in trained if one.path in hooked and _flows(s, one.module) and one.module not in empty]
    if not felt or s.record.samples < SEVERAL or {one.path for one in felt} != {*hooked} or not flat.issuperset(hooked):
        return None
    others = flat.difference(hooked) if len(hooked) < HOOKED else ()
    return None if others or not any(one.graded for one in trained) else {"path": felt[0].path, "places": hooked, "erased": True}


def _erased_in_vain(s: Symptoms) -> Facts | None:
    return None if s.learns else _erased(s)


def _hooks_stand(s: Symptoms) -> Facts | None:
    """Hooks on the way, which a watch cannot ask for what they do, and a loss that does not fall."""
    places = tuple(sorted(_hooked(s)))
    return {"path": places[0], "places": places, "on the way": True} if places and s.is_stuck else None


def _overwritten(s: Symptoms) -> Facts | None:
    turned, true, zeroed = s.loop.edited
    if s.loop.replaced >= SEVERAL and not (turned or true) and not s.loop.brought < LEAST_HALF:
        return {"path": "", "places": (), "looks": s.loop.replaced, "zeros": True, "rival": "underflow", "settle": "before and after"}
    if zeroed >= SEVERAL and not (turned or true):
        return None  # they were there, and were taken away
    if turned_by_hooks(s):
        return None  # which climb the loss
    if s.progress > 0.9 or s.loop.decayed >= SEVERAL or _clipped(s) is not None:
        return None
    if not (_many_hooked(s) and not s.learns and s.made >= LONG) and (turned < SEVERAL or true > turned / SEVERAL):
        return None
    return {"path": s.loop.hooked[0] if s.loop.hooked else "", "places": s.loop.hooked, "looks": turned}


def _halved_by_hooks(s: Symptoms) -> tuple[str, ...]:
    """Activations with gradients below zero behind them, and with positive ones alone in front: hooks that stand there leave nothing else.

    What an activation multiplies gradients by has one sign.
    """
    hooked = {path for path in _hooked(s) if s.category(path) == "activation"}
    found = []
    for before, one in pairwise(_with_gradients(s)):
        low, high = s.row("low", GRADIENT, before), s.row("high", GRADIENT, before)
        behind = s.row("low", GRADIENT, one)
        if one in hooked and (behind < 0).sum() >= SEVERAL and (high > 0).sum() >= SEVERAL and not (low < 0).any():
            found.append(one)
    return tuple(found)


def _emptied_by_hooks(s: Symptoms) -> tuple[str, ...]:
    """Modules at which hooks stand, with gradients behind them and none but zero in front, though they gave more than zeros.

    What a hook on a tensor gives is seen in front of the module that made the tensor, one further on.
    """
    called, hooked = _with_gradients(s), _hooked(s)
    found = []
    for place, (before, one) in enumerate(pairwise(called)):
        front, behind = (np.maximum(s.row("high", GRADIENT, path), -s.row("low", GRADIENT, path)) for path in (before, one))
        both = np.isfinite(front) & np.isfinite(behind) if len(front) == len(behind) else np.zeros(len(front), bool)
        comes = both.sum() >= SEVERAL and not front[both].any() and bool((behind[both] > 0).all())
        gives = (s.row("high", ACTIVATION, one) > 0).sum() >= SEVERAL
        if comes and gives and hooked & {*called[place + 1 : place + 3]}:
            found.append(one if one in hooked else called[place + 2])
    return tuple(found)


def _hooked(s: Symptoms) -> set[str]:
    return {one.path for one in s.modules("backward hooks")}


def _with_gradients(s: Symptoms) -> list[str]:
    """The innermost modules to whose outputs gradients came, as they were called."""
    called = [one for one in s.watched.modules if one.called and one.path in s.output_gradients]
    above = {one.path.rpartition(".")[0] for one in called}
    return [one.path for one in sorted(called, key=lambda one: one.order) if one.path not in above]


def turned_by_hooks(s: Symptoms) -> int:
    """In how many looks hooks had turned gradients around: a bias adds up what comes to the output of its layer, and got its opposite."""
    layers = {f"{one.path}.bias": one.path for one in s.modules("linear") if one.path != s.loss.term.source and one.facts["calls"] == 1}
    pairs = [(s.row("mean", PARAMETER_GRADIENT, path), s.row("mean", GRADIENT, layers[path])) for path in s.loop.hooked if path in layers]
    products = np.concatenate([np.zeros(0), *(mine * its for mine, its in pairs if len(mine) == len(its))])
    signs = np.sign(products[np.isfinite(products)])
    return int((signs < 0).sum()) // len(pairs) if (signs < 0).sum() >= SEVERAL and (signs <= 0).all() else 0


def _many_hooked(s: Symptoms) -> bool:
    """Whether hooks change most gradients, or what they leave is nothing; a few rows may be kept as they are on purpose."""
    trained = [one for one in s.watched.parameters if one.trainable]
    hooked = s.loop.hooked
    return 0 < len(hooked) >= min(8, len(trained) / 2) or any(
        one.path in hooked and one.is_flat and (_flows(s, one.module) or one.module not in s.output_gradients) for one in trained
    )


def _put_back(s: Symptoms) -> Facts | None:
    if s.loop.rounded >= SEVERAL or s.loop.shared:
        return None  # what is rounded goes back by itself, and one of two optimizers may undo what the other does
    if s.loop.returned >= (FOLDS if s.learns else 2):
        return None if _stays_low(s) or _looks_ahead(s) else {"times": s.loop.returned}
    if s.loop.put_back >= 2 and s.loop.put_back > s.loop.kept:
        return {"looks": s.loop.put_back}
    return _moved_back(s) or _begun_anew(s)


def _looks_ahead(s: Symptoms) -> bool:
    """Whether about each second step stays, as where one is tried for the gradient that it leads to (Korpelevich's extragradient)."""
    return s.loop.written.renewed >= SEVERAL and 2 * s.loop.kept >= s.loop.put_back > 0


def _moved_back(s: Symptoms) -> Facts | None:
    """Nearly to where they had been, each time: as where an average that hardly moves takes their place."""
    written = s.loop.written
    if written.back < TIMES or written.back < MOSTLY * written.compared or len(s.values) < FEW or s.learns:
        return None
    return {"times": written.back, "left": written.left}


def _begun_anew(s: Symptoms) -> Facts | None:
    """As others altogether; what learns in between may be a fold of a cross-validation, or one start of several."""
    written, way = s.loop.written, s.baseline - s.floor
    learns = s.learns or s.least - s.floor < way / 2
    if written.anew < (FOLDS if learns else SEVERAL) or written.anew < MOSTLY * written.compared or len(s.values) < FEW:
        return None
    return {"times": written.anew, "leap": written.leap}


def _stays_low(s: Symptoms) -> bool:
    """Whether the loss stays far below where it began: steps that are thrown away, as in a search along a line, leave what was reached."""
    half = s.values[len(s.values) // 2 :]
    kept = s.loop.written.renewed >= SEVERAL  # steps in between, so that what is put back is not always the same
    return kept and _is_well(s) and len(half) >= SEVERAL and bool(half.max() < s.start / 2)


def _stale(s: Symptoms) -> Facts | None:
    """What was computed from weights before a step is used after it, more than once."""
    some = {one.path: one for one in s.modules("stale") if one.facts["looks"] > 1}
    if not some:
        return None
    places = tuple(one.path for one in s.watched.parameters if one.path in some)
    return {"path": places[0], "places": places, "cast": all(one.facts["cast"] for one in some.values())}


def _in_evaluation(s: Symptoms) -> Facts | None:
    if s.is_bystander:
        return None
    if s.loop.uncounted and not s.watched.passes and s.loop.in_eval >= SEVERAL and s.record.steps >= SEVERAL:
        return {"looks": s.loop.in_eval, "places": s.loop.uncounted}
    trained = {one.path for one in s.modules("norm")}
    apart = tuple(one.path for one in s.watched.modules if one.called and one.path in s.loop.uncounted and one.path not in trained)
    if apart and s.watched.passes and not s.loop.in_eval and s.record.steps >= SEVERAL and not s.learns:
        return {"looks": s.loop.looks, "places": apart, "alone": True}
    found = {one.path for one in s.modules("untaught norm") if one.facts["looks"] >= 3}.difference(s.loop.uncounted)
    untaught = tuple(one.path for one in s.watched.modules if one.path in found)
    if untaught and not s.loop.in_eval and s.record.steps >= SEVERAL and not s.learns:
        return {"looks": s.loop.looks, "places": untaught, "function": True}
    shut = {one.module for one in s.watched.parameters if not one.trainable} - {one.module for one in s.watched.parameters if one.trainable}
    norms = [one.path for one in s.watched.modules if one.category == "norm" and one.path not in shut]
    minded = norms or ([one.path for one in s.watched.modules if one.category == "dropout"] if not s.fallen > 0.2 else [])
    alone = s.watched.evaluated and not s.watched.passes
    if not minded or s.learns or not (alone or s.loop.in_eval >= max(3, 0.3 * s.loop.looks)):
        return None
    return {"looks": s.loop.in_eval or s.watched.evaluated, "places": tuple(minded)}


def _turned(s: Symptoms) -> Facts | None:
    """In training mode at first, and in evaluation mode for most of what follows: a validation has turned it, and nobody turned it back."""
    modes = s.loop.modes
    if s.is_bystander:
        return None
    rest = modes.trained + modes.evaluated - modes.since
    drawn = any(one.kind == "mode" for one in s.record.scalars)  # the mode differed at backward() as well, not just at the step
    if not modes.places or not modes.trained or not drawn or modes.evaluated < max(SEVERAL, rest / 2):
        return None
    told = {"steps": modes.trained + modes.evaluated, "since": modes.since, "throughout": modes.evaluated == rest}
    return {"evaluated": modes.evaluated, **told, "places": modes.places}


def _turned_early(s: Symptoms) -> Facts | None:
    """The same, so early that it may be why the loss does not fall."""
    falls = s.learns or s.fallen > 0.2
    return None if falls or s.loop.modes.evaluated <= s.loop.modes.trained else _turned(s)


def _clipped_hard(s: Symptoms) -> Facts | None:
    return None if _has_usual_bound(s) else _clipped(s)


def _clipped_as_usual(s: Symptoms) -> Facts | None:
    """Where a usual bound leaves nothing, gradients are far too large: what makes them so stands before it."""
    return _clipped(s) if _has_usual_bound(s) else None


def _has_usual_bound(s: Symptoms) -> bool:
    return s.norm is not None and USUAL_BOUND <= s.norm.bound < math.inf


def _clipped(s: Symptoms) -> Facts | None:
    norm = s.norm
    if s.learns or s.loop.scaled_steps:
        return None
    finite = 0 if norm is None else norm.count - norm.nan - norm.inf
    if norm is not None and math.isfinite(norm.bound) and norm.beyond and norm.beyond >= 0.9 * finite:
        first, middle = norm.ends()[0], float(np.nanmedian(norm.mean))
        if s.group.optimizer == "SGD" and norm.bound < min(USUAL_BOUND, SHORT * middle):  # others divide by the norm that is left
            return {"bound": norm.bound, "norm": middle, "pace": s.pace}
        always = norm.beyond == finite and s.pace < 10 * EPSILON
        if norm.bound > 1e-2 * first or not (s.pace < EPSILON or always or norm.bound < 1e-4 * first):
            return None
        return {"bound": norm.bound, "norm": middle, "pace": s.pace}
    if s.loop.left < 1e-2 and s.pace < 10 * EPSILON:
        return {"left": s.loop.left, "pace": s.pace}
    cut_off = s.loop.hooked or s.loop.left < LITTLE
    return {"clamped": s.loop.clamped} if cut_off and s.loop.clamped >= SEVERAL and s.pace < 1e-3 else None


def _hand_scale(s: Symptoms) -> float:
    """The power of two by which the loop multiplies its loss, as scalers do; 0 where it does not."""
    scale = abs(s.loss.term.factor) * s.loss.added if s.loss.term.criterion else 0.0
    return scale if scale >= SCALED and abs(math.log2(scale) - round(math.log2(scale))) < 1e-3 else 0.0


def _scaler(s: Symptoms) -> Facts | None:
    if not s.record.steps and s.loop.looks >= SEVERAL and _hand_scale(s):  # what looks at the gradients first never finds them right
        return {"scale": _hand_scale(s), "backwards": s.loop.backwards}
    if s.loop.new_scalers >= SEVERAL and s.loop.skipped >= max(SEVERAL, MOSTLY * s.record.steps):
        return {"skipped": s.loop.skipped}  # each begins with its largest scale, and is gone before it has found a lower one
    if s.loop.scaled_clips >= 3 or s.loop.scaled_steps >= 3:
        return {"clips": s.loop.scaled_clips, "steps": s.loop.scaled_steps}
    left = s.loop.left
    undone = 0.5 < left * abs(s.loss.term.factor) * s.loss.added < 2  # a factor of the loss, by which the loop divides the gradients
    if undone or not 0 < left < 1e-2 or s.learns or abs(math.log2(left) - round(math.log2(left))) > 1e-3:
        return None
    return {"left": left}  # divided by a power of two, as scalers have them


def _too_loud(s: Symptoms) -> Facts | None:
    if s.curve is None or s.curve.passes < 2 or not s.is_stuck or len(s.clues.losses) > 1:  # one of two that play does not fall
        return None
    term = s.loss.term
    divided = abs(term.factor) * s.curve.passes < 1.5 or 0 < s.loop.left * s.curve.passes < 1.5  # of the loss, or of the gradients
    return None if divided else {"passes": s.curve.passes}


ROWS = (
    CauseRow("no step", _no_step),
    CauseRow("no step", _sleeps),
    CauseRow("never enough to step", _never_enough, "no step", "step"),
    CauseRow("no backward", _no_backward),
    CauseRow("no backward", _never_trained, "no step", "step"),
    CauseRow("scaler misused", _scaler),
    CauseRow("gradients overwritten", _overwritten_on_the_way),
    CauseRow("gradients overwritten", _erased_in_vain),
    CauseRow("gradients overwritten", _erased, severity="careful"),
    CauseRow("gradients overwritten", _overwritten),
    CauseRow("zeroed before step", _zeroed),
    CauseRow("zeroed before step", _zeroed_in_vain),
    CauseRow("zeroed before step", _zeroed_in_part, severity="careful"),
    CauseRow("zeroed before step", _wasted_in_vain, "no step", "step"),
    CauseRow("zeroed before step", _wasted, "no step", "step", severity="careful"),
    CauseRow("weights put back", _put_back),
    CauseRow("stale weights", _stale),
    CauseRow("no zero grad", _no_zero_grad),
    CauseRow("eval while training", _turned_early),
    CauseRow("eval while training", _in_evaluation),
    CauseRow("eval while training", _turned, severity="careful", tier=2),
    CauseRow("clipped to nothing", _clipped_hard, tier=1),
    CauseRow("no step", _moves_nothing, tier=1),
    CauseRow("accumulated too loud", _too_loud, "rate too high", "divide", tier=1),
)

OF_LARGE_GRADIENTS = (CauseRow("clipped to nothing", _clipped_as_usual, tier=1),)
"""Behind the data."""

LATE = (CauseRow("gradients overwritten", _hooks_stand, "wrong sign", "hooks", severity="careful", tier=2, left=True),)
"""Behind all others."""
