"""Causes in the optimizer: what it holds, and how far and where its steps go."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from modlab.causes.cause_row import CauseRow, Facts
from modlab.causes.data import OWN_LENGTH
from modlab.causes.loop import SEVERAL
from modlab.causes.model import begins_too_small
from modlab.causes.symptoms import STUCK, Symptoms
from modlab.records.clues import GroupClues, LossClues
from modlab.records.finding import Fact
from modlab.records.slots import Floats

MOST = 0.997
"""Momentum from which on it is that, and not the rate."""

SLOW, FAST = 1e-4, 0.3
"""Parts of a weight's norm that a step adds: below the first nothing is learnt in the steps of a usual training, beyond the second a step
is a leap."""

STUCK_SLOW = 3e-4
"""The same where a loss begins at what a guess gives and stays there."""

UNMOVED = 1e-4
"""Part of its norm that all steps of a run add to a weight at most, below which nothing is learned."""

WHOLE = 0.9
"""Part of a weight's norm from which a step replaces the weight."""

GROWN = 10.0
"""Times their norm at first to which steps that are too long take all weights, where the loss rises with them."""

HIGH = 5.0
"""Times where a loss began at which it stays in its second half, where it rose."""

MOVES = 0.01
"""Part of a weight's norm that a step adds at least where steps make a loss rise, or a first one goes far."""

LITTLE = 0.3
"""Progress that is little for weights that leap."""

MOVED = 2.0
"""Times their spread at first: targets that vary so much more do not come from a file."""

FALLEN = 0.3
"""Part of its first value by which a loss falls where no step leaps, though it stays near a constant answer: targets may be noise."""

NO_RATE = 1e-6
"""Part of the greatest rate with which no step of the second half changes anything, however far the first one has come."""

A_RUN, SHORT, NOWHERE = 60, 0.1, 2e-3
"""Steps that are meant to learn something; part of their norm that all steps add to weights at most, below which these are nearly what they
were; and the same as a number, of optimizers whose steps have the length of their rate."""

QUARTER = 0.25
"""Part of all steps, at their end, in which a rate of 0 is no end of a schedule."""

AT_CHANCE = 0.1
"""Part of what a guess gives by which a first loss differs from it."""

MANY = 8
"""Different rates of a warm-up that rises in each step, or nearly so, and not with each epoch."""

WARM = 0.5
"""Part of the rate that an optimizer was made with below which a warm-up is far from its end."""

LEVEL = 1.1
"""Times that a rate may change and be the same."""

APART = 3000.0
"""Times that the rate of a new head may be that of what was trained before."""

STUCK_APART, NOTHING = 1000.0, 0.02
"""The same where most numbers have the smaller rate, and nothing has been learned: so much progress is none."""

COUPLED = frozenset(("SGD", "ASGD", "Adam", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "Adagrad", "Adadelta"))
"""Optimizers of PyTorch's that add decay to the gradient."""

JUDGED = 3
"""Times that a judge is asked in each turn: of what is real, of what is made, and once more of the latter by who makes it."""

MANY_SHARED = 16
"""Parameters of two optimizers that are told at most."""

NEARLY = 0.98
"""Progress beyond which weight decay, whatever it pulls, keeps nothing from being learned."""

PULLS = 0.3
"""Part of a gradient, or of a step, that decay makes up where it holds the weights back."""

MUCH = 0.02
"""Part of the weights that is too much to lose in each step."""


def _another_models(s: Symptoms) -> Facts | None:
    holds = [one for one in s.groups if one.paths]
    if s.watched.passes and s.watched.feeds_others and not any(one.felt for one in s.watched.parameters):
        return None  # the model runs with other parameters in its place, which may be those that the optimizer holds
    if s.flat and all(one.dtype == "float16" for one in s.matrices):
        return None  # where gradients are zero, a copy with more digits that is stepped and put back stays what it was
    if not s.groups or holds or not any(one.trainable for one in s.watched.parameters) or any(s.changes(one.path) for one in s.matrices):
        return None
    return {"optimizer": s.groups[0].optimizer}


def _not_held(s: Symptoms) -> Facts | None:
    some = [one for one in s.watched.parameters if one.trainable and not one.owned and not one.elsewhere]
    late = [one.path for one in s.modules("loose") if one.facts["registered"]] + [*s.watched.thawed_unowned]
    if not s.groups or not any(one.paths for one in s.groups) or not (some or late):
        return None
    felt = [one.path for one in some if one.felt] or late
    several = {"several": True} if len(s.loop.optimizers) > 1 else {}
    return {"path": felt[0], "places": tuple(felt), "optimizer": s.group.optimizer, **several, **_former(s, felt)} if felt else None


def _former(s: Symptoms, places: list[str]) -> dict[str, Fact]:
    """What it holds in the place of these: others of the same shapes, which are not of this model, as of modules that were replaced."""
    asked = Counter(s.shapes.get(path, ()) for path in places)
    alike = bool(s.loop.strange) and asked <= Counter(s.loop.strange)
    return {"former": len(places), "rival": "another models optimizer", "settle": "made last"} if alike else {}


def _two(s: Symptoms) -> Facts | None:
    rises = any(one.ends()[1] > one.ends()[0] for one in s.curves) and len(s.loop.sharing) == len(s.loop.optimizers)  # no judge's doing
    worse = s.is_sick if len(s.curves) == 1 else rises
    if not s.loop.shared or len(s.loop.optimizers) < 2 or s.learns or s.watched.beside < s.record.steps / 2 or not worse:
        return None
    return {"path": s.loop.shared[0], "places": s.loop.shared, "optimizers": s.loop.sharing}


def _both_step(s: Symptoms) -> Facts | None:
    """Two that hold the same parameters, with one loss, and both make a step behind each of its backward passes."""
    steps, loop, trained = s.record.steps, s.loop, [one for one in s.watched.parameters if one.trainable and one.owned]
    same = len(loop.shared) >= min(MANY_SHARED, max(2, len(trained) / 2)) and len(loop.optimizers) == len(loop.sharing) == 2
    both = steps >= A_RUN and 0.9 * steps <= s.watched.beside <= steps + 1 and loop.backwards < 1.5 * steps
    if not same or not both or loop.exchanged or len(s.clues.losses) != 1 or len(s.curves) != 1:
        return None
    return {"path": loop.shared[0], "places": loop.shared, "optimizers": loop.sharing, "steps": s.watched.beside}


def _both_step_in_vain(s: Symptoms) -> Facts | None:
    return None if s.learns else _both_step(s)


def _of_both_players(s: Symptoms) -> Facts | None:
    """Of two who play against each other, each with an optimizer: what both hold, and the losses of both move."""
    two = len(s.loop.optimizers) == len(s.loop.sharing) == len(s.clues.losses) == 2  # a third may serve both on purpose
    if not s.loop.pulled or not two or s.watched.beside < s.record.steps / 2 or not _play(*s.clues.losses):
        return None
    return {"path": s.loop.pulled[0], "places": s.loop.pulled, "optimizers": s.loop.sharing}


def _play(one: LossClues, other: LossClues) -> bool:
    """Whether one of two losses asks a layer for both answers, as that of a judge does, and the other one asks it once."""
    asked = [Counter(term.source for term in loss.terms if term.criterion and term.source) for loss in (one, other)]
    return any(asked[0][source] + asked[1][source] == JUDGED for source in asked[0].keys() & asked[1].keys())


def _swapped(s: Symptoms) -> Facts | None:
    some = [one for one in s.groups if one.rate > 0 and one.numbers]
    if len({one.optimizer for one in some}) != 1 or len(some) < 2:
        return None
    slow, fast = min(some, key=lambda one: one.rate), max(some, key=lambda one: one.rate)
    whole = sum(one.numbers for one in some)
    apart = STUCK_APART if s.is_stuck and min(s.progress, s.lately) < NOTHING and slow.numbers > fast.numbers else APART
    ends = _stands_at_the_end(s, slow, fast)
    if fast.rate < apart * slow.rate or s.progress > (0.95 if ends else 0.8) or not (ends or slow.numbers >= fast.numbers / 4):
        return None
    return {
        "path": slow.paths[0] if slow.paths else "",
        "slow": slow.rate,
        "fast": fast.rate,
        "share": slow.numbers / whole,
        "rest": fast.numbers / whole,
    }


def _stands_at_the_end(s: Symptoms, slow: GroupClues, fast: GroupClues) -> bool:
    """Whether the last layers hardly move and those before them grow many times, as where a new head has the rate of what was trained."""
    owners, order = {one.path: one.module for one in s.watched.parameters}, {one.path: one.order for one in s.watched.modules if one.called}
    ends, rest = ([order.get(owners.get(path) or "", 0) for path in group.paths] for group in (slow, fast))
    behind = bool(ends and rest) and min(ends) > max(rest)
    return behind and max(s.paces.get(path, 0.0) for path in slow.paths) < SLOW and s.resized() > GROWN / 2


def _runs_out(s: Symptoms) -> Facts | None:
    rate = s.rate[np.isfinite(s.rate)]
    if len(rate) < 4 or s.is_turned_by_hand or not s.is_finite:
        return None
    if (since := _without_rate(s)) is not None:
        return {"most": float(rate.max()), "last": 0.0, "since": since}
    if math.isnan(s.group.initial) and len(np.unique(rate)) == 2:
        return None  # no schedule: another optimizer came, or somebody set it once
    most, curve = float(rate.max()), s.rates[0]
    middle = float(np.interp(s.record.steps / 2, curve.first[np.isfinite(curve.mean)], rate))  # the last look may be long before
    if s.progress > (0.7 if middle > NO_RATE * most else 0.95):
        return None
    if not (most > 0 and max(float(rate[-1]), middle) < 0.02 * most):
        return None
    last = float(rate[-1])
    if len(s.rates) == 1 and s.group.rate < last:  # it went on falling after the last look
        last = s.group.rate
    return {"most": most, "last": last}


def _without_rate(s: Symptoms) -> int | None:
    """The step by which the rate of all had become 0 for good, where a quarter of the run lies behind it and much was left to learn."""
    rate, first = s.rates[0].mean, s.rates[0].first
    idle = len(rate) - int(np.flatnonzero(rate)[-1]) - 1 if len(s.rates) == 1 and rate.any() else 0
    if idle < SEVERAL or s.record.steps - first[-idle] < QUARTER * s.record.steps or s.progress > 0.95:
        return None
    return int(first[-idle])


def _never_warm(s: Symptoms) -> Facts | None:
    rate, group = s.rate[np.isfinite(s.rate)], s.group
    if len(rate) < 3 or s.is_turned_by_hand or s.learns or not rate[-1] > rate[0] or rate[-1] < 0.9 * rate.max():
        return None
    if group.rate < 0.9 * rate[-1]:  # it came down behind the last look: a cycle
        return None
    if _has_arrived(s):
        return None
    if group.initial > 0 and group.rate <= 0.1 * group.initial and not _is_unit(s):
        return {"rate": group.rate, "aim": group.initial, "steps": s.record.steps}
    climbs = bool((np.diff(rate) >= 0).all()) and rate[-1] > 1.2 * s.rate_at(s.record.steps // 2) > 0
    return {"rate": group.rate, "steps": s.record.steps} if climbs and s.last_pace_of_all < 1e-3 else None


def _still_warms(s: Symptoms) -> Facts | None:
    """A rate that has climbed in each look, and has not come to half of what the optimizer was made with."""
    rate, group, steps = s.rate[np.isfinite(s.rate)], s.group, s.record.steps
    if steps < A_RUN or len(rate) < SEVERAL or s.is_turned_by_hand or s.learns or _is_unit(s):
        return None
    climbs = bool((np.diff(rate) > 0).all()) and group.rate >= rate[-1]
    return {"rate": group.rate, "aim": group.initial, "steps": steps} if climbs and group.rate <= WARM * group.initial else None


def _has_arrived(s: Symptoms) -> bool:
    """Whether a rate that rose in many small steps has not risen for a quarter of the run."""
    rate = s.rate[np.isfinite(s.rate)]
    return len(np.unique(rate)) > MANY and s.rate_at(s.record.steps * 3 // 4) >= s.group.rate > 0


def _is_unit(s: Symptoms) -> bool:
    """Whether what the optimizer was made with is what a schedule multiplies, and no goal: 1, or a rate of steps as large as weights."""
    return s.group.initial == 1 or s.last_pace_of_all * s.group.initial > WHOLE * s.group.rate


def _warms_anew(s: Symptoms) -> Facts | None:
    """A rate that climbs from step to step and is back where it began, again and again, as one that counts the batches of an epoch."""
    rate = s.rate[np.isfinite(s.rate)]
    begins = np.flatnonzero(rate <= rate[:1])
    if len(begins) <= SEVERAL or s.is_turned_by_hand or s.learns or not s.pace < SLOW:
        return None
    if begins[1] <= SEVERAL or not bool((np.diff(rate[: begins[1]]) > 0).all()):
        return None
    return {"rate": float(rate.max()), "begins": float(rate[0]), "looks": len(begins) - 1, "steps": s.record.steps}


def _momentum(s: Symptoms) -> Facts | None:
    if s.group.momentum < 0.99 or (s.learns if s.group.momentum < 0.998 else s.progress > 0.95):
        return None
    return {"momentum": s.group.momentum, "optimizer": s.group.optimizer}


def _outlasting(s: Symptoms) -> Facts | None:
    """Momentum with which a step remembers more steps than there were."""
    momentum, steps = s.group.momentum, s.record.steps
    if momentum < 0.99 or steps < A_RUN or (1 - momentum) * steps > 1 or s.progress > 0.9:
        return None
    return {"momentum": momentum, "optimizer": s.group.optimizer, "steps": steps}


def _decay(s: Symptoms) -> Facts | None:
    group = s.group
    penalty = next((abs(one.factor) for one in s.loss.terms if one.criterion == "penalty"), 0.0)
    if s.progress > 0.9:
        return None
    if s.loop.shrunk > MUCH:
        return {"part": s.loop.shrunk}
    if s.loop.decayed >= SEVERAL:
        return {"looks": s.loop.decayed}
    if max(group.decay, penalty) < 1e-3 or s.progress > 0.7 or s.learns:
        return None
    pulls = [pull for one in s.matrices if (pull := _pull(s, one.path)) == pull]
    stronger, shrunk = float(np.median(pulls)) if pulls and group.decay >= 1e-3 else 0.0, s.resized()
    if shrunk < 0.6 or stronger > 1:
        return {"decay": group.decay, "penalty": penalty, "shrunk": shrunk, "pull": stronger}
    return _held_back(s)


def _held_back(s: Symptoms) -> Facts | None:
    """Decay that is as much of the last steps as the loss is, where as a penalty it is more than the loss that is left."""
    if s.progress > NEARLY or not (_is_level(s) and s.group.rate > 0 if s.group.decoupled else s.group.optimizer in COUPLED):
        return None  # of a step, with a rate that changes, what it was is not known
    decay, pulls, costs = s.group.decay, [], 0.0
    for one in s.matrices:
        weight, gradient, update = (_last(some.get(one.path)) for some in (s.weights, s.gradients, s.updates))
        against = update / s.group.rate if s.group.decoupled else gradient
        if gradient > 0 and against > 0:
            costs += decay / 2 * weight**2
            pulls.append(decay * weight / against)
    pull = float(np.median(pulls)) if pulls else 0.0
    if not (pull > PULLS and costs > s.last > 0):
        return None
    known = np.stack([some for some in s.gradients.values() if len(some)])
    at = int(s.record.history.first[np.isfinite(known).any(0)][-1])
    return {"decay": decay, "held": pull, "at": at, **({} if s.group.decoupled else {"costs": costs, "loss": s.last})}


def _last(norms: Floats | None) -> float:
    """The one in the middle of the last few that are numbers."""
    some = norms[np.isfinite(norms)] if norms is not None else np.zeros(0)
    return float(np.median(some[-SEVERAL:])) if len(some) else math.nan


def _pull(s: Symptoms, path: str) -> float:
    """How hard decay pulled at a parameter at first, against the gradient of the loss; decoupled, against a step of Adam."""
    weight, gradient = (some.get(path, np.zeros(0)) for some in (s.weights, s.gradients))
    weight, gradient = weight[np.isfinite(weight)], gradient[np.isfinite(gradient)]
    if not len(weight) or not len(gradient):
        return math.nan
    if s.group.decoupled:
        count = next((one.count for one in s.record.history.series if one.path == path), 1)
        return s.group.decay * float(weight[0]) / math.sqrt(max(count, 1))
    if s.group.optimizer not in COUPLED:  # what decay means there is not known
        return math.nan
    return s.group.decay * float(weight[0]) / float(gradient[0]) if gradient[0] > 0 else math.nan


def _too_low(s: Symptoms) -> Facts | None:
    if s.group.initial > 0 and s.group.rate < s.group.initial / 2 and not _is_level(s):  # a schedule has it, and may raise it
        return None
    if s.has_burst or s.has_leapt or s.is_blown_up:
        return None  # steps are a small part of weights that have grown without bound
    if s.begins_low or (_is_level(s) and s.first_pace > MOVES):
        return None  # at the same rate it is gradients that have become next to nothing: what goes backward is solved, say
    slow = STUCK_SLOW if _stays_at_chance(s) else SLOW
    if (s.learns and not _has_hardly_moved(s)) or not s.pace < slow or not s.is_finite or s.quickest > 1e-2 or s.flat or s.loop.left < 1e-2:
        return None
    if not s.last_pace_of_all < slow:
        return None  # the steps that were looked at had a far smaller rate than later ones
    pulled = any(one.graded and one.owned for one in s.matrices or s.watched.parameters)
    if not s.pace and (s.quickest > 0 or not pulled or not s.group.paths):  # most of them stand for another reason
        return None
    return {"pace": s.pace, "rate": s.group.rate if math.isnan(s.paced_rate) else s.paced_rate}


def _too_short(s: Symptoms) -> Facts | None:
    """All steps of a run together come to a small part of the weights, and little was learned."""
    steps, calm = s.record.steps, s.is_finite and not (s.has_burst or s.has_leapt or s.flat) and _is_level(s)
    if steps < A_RUN or not calm or not s.has_baseline or s.progress > LITTLE or not s.group.rate > 0:
        return None
    if 0 < s.pace * steps < SHORT and s.quickest * steps < 2 * SHORT:
        return {"pace": s.pace, "rate": s.group.rate, "moved": s.pace * steps}
    if len(s.groups) == 1 and s.group.optimizer in OWN_LENGTH and s.group.rate * steps < NOWHERE:
        return {"pace": s.pace, "rate": s.group.rate, "reach": s.group.rate * steps}
    return None


def _has_hardly_moved(s: Symptoms) -> bool:
    """Whether all steps together cannot have brought any weight far: what a loss does then, it does by chance."""
    return _is_level(s) and 0 < s.quickest * s.record.steps < UNMOVED  # looks are many at first, where a rate may warm up


def _stays_at_chance(s: Symptoms) -> bool:
    """Whether the scores of classes begin as a guess does, and end as one: nothing was learned before."""
    return s.is_stuck and abs(s.start - s.chance) < AT_CHANCE * s.chance


def _is_level(s: Symptoms) -> bool:
    """Whether the rate was the same in all looks, so that no warm-up is on its way."""
    rate = s.rate[np.isfinite(s.rate)]
    return len(rate) > SEVERAL and bool(rate.max() <= LEVEL * rate.min())


def _has_something_to_move(s: Symptoms) -> bool:
    """Whether the optimizer holds parameters with a gradient, so that a rate could do anything."""
    return bool(s.group.paths) and any(one.graded and one.owned for one in s.watched.parameters)


def _zero(s: Symptoms) -> Facts | None:
    """A rate that is 0 in each step, where there is something to move."""
    rate = s.rate[np.isfinite(s.rate)]
    if not len(rate) or rate.any() or s.pace > 0 or s.learns or not _has_something_to_move(s):
        return None
    return {"pace": 0.0, "rate": 0.0}


def _too_high(s: Symptoms) -> Facts | None:
    if not s.is_finite or s.progress > 0.7 or s.flat or s.group.momentum >= MOST:  # what is no number is told as that
        return None
    if s.gains:
        return None  # it is meant to rise
    small = begins_too_small(s) is not None  # of so little much is a part
    far = [*s.leaps.values()]
    fell = s.fallen > FALLEN and not (s.has_baseline and s.is_stuck)  # to more than a constant answer
    leaps = bool(far) and (max(far) > FAST or float(np.median(far)) > FAST / 3) and not fell and not small
    burst = s.has_burst and (s.quickest > 0.05 or (s.last > 20 * s.high and not s.quickest < MOVES))
    if not (burst or _rose(s) or ((_leaped_away(s) or _jumped(s)) and not small) or (leaps and _gets_nowhere(s))):
        return None
    passes = s.curve.passes if s.curve is not None else 1.0
    by_hand = {} if s.groups else {"by hand": True}
    return {"pace": s.quickest, "rate": s.rate_of_group_at(s.peak - 1), "first": s.start, "most": s.most, "passes": passes, **by_hand}


def _leaped_away(s: Symptoms) -> bool:
    """Whether the weights have grown many times: by a first step larger than they, with the loss rising to twice, or for nothing."""
    rose = s.first_pace > 1 and s.resized() > GROWN and s.most > 2 * s.start > 0
    return rose or (s.is_blown_up and s.is_stuck and not s.falls)


def _jumped(s: Symptoms) -> bool:
    """Whether the first step was as large as the weights, the loss rose by half, and steps that stay large take it not half the way.

    Or it rose to twice, and ends where a constant answer is: that step may have silenced all units, and then no gradient is left.
    """
    if not s.first_pace > WHOLE or not s.has_baseline:
        return False
    stays = s.most > 1.5 * s.start > 0 and s.pace > FAST / 3 and not s.progress > 0.5
    return stays or (s.most > 2 * s.start > 0 and s.is_stuck)


def _gets_nowhere(s: Symptoms) -> bool:
    """Whether the loss is stuck, or hardly comes on while weights leap, by more than the noise of its batches."""
    little = s.pace > FAST / 3 and s.progress < (LITTLE if s.has_baseline else 0.1)
    grown = s.leap > 2 and s.resized() > 1.5  # the loss has been twice as high, and the weights are far from where they began
    return (s.hope < STUCK and (s.is_stuck or little)) or (little and grown)


def _rose(s: Symptoms) -> bool:
    """Whether the loss has been many times its first value, and more often than by a hard batch, and is still high."""
    if s.loss.targets.std > MOVED * s.loss.first_targets.std > 0:
        return False  # they come from the model itself, as values of what follows do, and a loss grows with them
    if not s.leap > 10 or not s.progress < 0.5:
        return False
    high = float(np.median(s.values[len(s.values) // 2 :])) > HIGH * s.high  # else batches differ so much
    return s.has_leapt or (s.hope < LITTLE and high and not s.quickest < MOVES)


HELD = (
    CauseRow("another models optimizer", _another_models),
    CauseRow("not in the optimizer", _not_held),
)
"""What it holds: before all that comes of it."""

ROWS = (
    CauseRow("two optimizers", _two),
    CauseRow("two optimizers", _of_both_players),
    CauseRow("two optimizers", _both_step_in_vain),
    CauseRow("two optimizers", _both_step, severity="careful"),
    CauseRow("groups swapped", _swapped, "rate too low", "one rate", tier=1),
    CauseRow("warmup never ends", _never_warm, "rate too low", "rates", tier=1),
    CauseRow("warmup never ends", _warms_anew, "rate too low", "rates", tier=1),
    CauseRow("rate runs out", _runs_out, "rate too low", "rates", tier=1),
    CauseRow("rate too low", _zero, tier=1),
    CauseRow("warmup never ends", _still_warms, "rate too low", "rates", severity="careful", tier=1),
    CauseRow("too much momentum", _momentum, "rate too high", "less momentum", tier=1),
    CauseRow("too much momentum", _outlasting, "rate too high", "less momentum", severity="careful", tier=1),
    CauseRow("too much decay", _decay, "rate too high", "no decay", tier=1),
    CauseRow("too much decay", _held_back, severity="careful", tier=1),
    CauseRow("rate too high", _too_high, "not finite by the rate", "smaller rate", tier=2),
    CauseRow("rate too low", _too_low, "weights begin too small", "larger rate", tier=2),
    CauseRow("rate too low", _too_short, severity="careful", tier=2, left=True),
)
