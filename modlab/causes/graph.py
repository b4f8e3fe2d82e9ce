"""Causes in the graph: where no gradient comes, and why."""

from __future__ import annotations

import math

import numpy as np

from modlab.causes.cause_row import CauseRow, Facts
from modlab.causes.loop import SEVERAL
from modlab.causes.loss import ERRORS, LAYOUT
from modlab.causes.symptoms import Symptoms
from modlab.records.clues import ModuleClues

SERVES = 0.85
"""Part of the loss of a constant answer below which a model serves when the watch begins."""

STEPLIKE = frozenset(("Sign", "Round", "Floor", "Ceil", "Trunc", "Heaviside"))
"""Functions whose gradient is zero."""

CHOICES = frozenset(("Max", "Amax", "Gather"))
"""Functions that take one of the values of all moves."""

MOST = 0.7
"""Part of a model's numbers that explains that nothing is learned, where it is frozen as somebody drew it at random."""

PART, HALFWAY = 0.2, 0.6
"""Part of a model's numbers that is missed where it stays as it was drawn; and progress beyond which it is hardly missed."""

SHUT = 0.7
"""Progress beyond which the layers before a last one that stays as it was drawn have learned to do with it."""

LEARNT = 0.8
"""Way from a constant answer down to 0 after which what nothing uses explains nothing."""


def _hidden(s: Symptoms) -> Facts | None:
    some = s.watched.unregistered
    if some:
        return {**some[0].facts, "path": some[0].path}
    loose = [one for one in s.modules("loose") if not one.facts["registered"]]
    if not loose:
        return None
    return {"path": loose[0].path} if loose[0].path else {"held": False}


def _lost(s: Symptoms) -> tuple[str, ...]:
    """Parameters that should be trained, and never got a gradient."""
    if s.record.samples < 3 or s.progress > 0.9 or not (s.loop.backwards or s.loop.rootless or s.clues.reached):
        return ()  # without backward() nothing is known of the way back
    known = {one.path for one in s.watched.parameters if one.moved} | s.clues.reached  # moved by autograd.grad, say
    if len(s.loop.optimizers) > 1 and (len(s.clues.walks) < 2 or not all(s.clues.walks)):
        return ()  # a loss was not looked at
    lost = tuple(path for path in s.ungraded if path not in known)
    return () if s.modules("derived") and s.are_biases(lost) else lost  # a slope does not know what was added


def _left_out(s: Symptoms) -> Facts | None:
    lost = _lost(s)
    return {"path": lost[0], "places": lost} if s.are_biases(lost) and not s.progress > LEARNT else None


def _without_grad(s: Symptoms) -> Facts | None:
    lost = _run_without_grad(s, _lost(s))
    return {"path": lost[0], "places": lost} if lost else None


def _run_without_grad(s: Symptoms, paths: tuple[str, ...]) -> tuple[str, ...]:
    shut = {one.path for one in s.modules("ungraded")}
    return tuple(path for path in paths if any(_inside(path, above) for above in shut))


def _inside(path: str, module: str) -> bool:
    return not module or path == module or path.startswith(f"{module}.")


def _through(s: Symptoms) -> Facts | None:
    """A function without a gradient: its values are whole numbers."""
    lost = _lost(s)
    cut = next((one for one in s.modules("cut") if one.facts.get("whole")), None)
    if lost and cut is not None:
        return {"path": cut.path, "places": lost}
    if chooses := _chooser(s, lost):
        return {"path": chooses, "places": lost, "chooses": True}
    step = next(iter(s.modules("steplike")), None)
    last = next((one.name for one in (*s.loss.term.functions, *s.loss.term.ending) if one.name in STEPLIKE), None)
    behind = s.output_gradients.get(s.loss.term.source or "", np.ones(1))
    nothing = bool((behind[behind == behind] == 0).all()) or (s.flat and len(s.flat) == len(s.matrices))  # what comes is of a penalty
    if step is None and last is not None and nothing:
        return {"path": s.loss.term.source or "", "places": tuple(s.flat), "function": last, "behind": True}
    if step is not None and (lost or s.flat):
        return {"path": step.path, "places": tuple(lost or s.flat), "function": step.facts["function"]}
    if step is not None and (stopped := _stopped_before(s, step)):
        return {"path": step.path, "places": stopped, "function": step.facts["function"], "beside": True}
    felt = [path for path, row in s.gradients.items() if (row > 0).any()]
    own = next((one for one in s.modules("own function") if any(_inside(path, one.path) for path in felt)), None)
    return {"path": own.path, "places": tuple(s.flat), "own": own.facts["function"]} if own is not None and s.flat and not lost else None


def _chooser(s: Symptoms, lost: tuple[str, ...]) -> str:
    """The module of which an index alone is used, where it holds some of what is lost or is called after it; "" if there is none."""
    order = {one.path: one.order for one in s.watched.modules if one.called}
    owners = {one.path: one.module for one in s.watched.parameters}
    first = min((order.get(owners.get(path) or "", math.inf) for path in lost), default=math.inf)
    return next((one.path for one in s.modules("chooses") if first <= order.get(one.path, -1)), "")


def _detached(s: Symptoms) -> Facts | None:
    lost = _lost(s)
    cut = s.modules("cut")
    if not any(_was_called(s, path) for path in lost):
        return None  # what nobody calls is cut off from nothing: an expert that was never chosen, say
    if _run_without_grad(s, lost) == lost:
        return None  # which tells it
    if _replaced(s) is not None or _chooser(s, lost):
        return None
    if s.are_biases(lost) or (not cut and (not all(_was_called(s, path) for path in lost) or _is_passed_by(s, lost))):
        return None
    chosen: Facts = {"rival": "no gradient through", "settle": "why"} if _is_table_behind(s, lost) else {}
    return {"path": lost[0], "places": lost, "before": cut[0].path if cut else "", **chosen}


def _is_table_behind(s: Symptoms, lost: tuple[str, ...]) -> bool:
    """Whether rows of a table are taken after all that is lost: what chooses them, as an argmin, has no gradient."""
    order = {one.path: one.order for one in s.watched.modules if one.called}
    last = max((order[one.module] for one in s.watched.parameters if one.path in lost and one.module in order), default=math.inf)
    return any(one.category == "embedding" and one.called and one.order > last for one in s.watched.modules)


def _replaced(s: Symptoms) -> Facts | None:
    """A table whose rows nothing takes, though nothing is cut, where another one has a gradient: these stand in their place."""
    lost = _lost(s)
    owners = {one.path: one.module for one in s.watched.parameters}
    tables = bool(lost) and all(s.category(owners[path]) == "embedding" and _was_called(s, path) for path in lost)
    others = any(one.felt and s.category(one.module) == "embedding" for one in s.watched.parameters)
    return {"path": lost[0], "places": lost, "behind": True} if tables and others and not s.modules("cut") else None


def _wrong_side(s: Symptoms) -> Facts | None:
    """An error whose trained side is a reward and a part of what the next move is worth, and not the answer."""
    term = s.loss.term
    names = [one.name for one in term.functions if one.name not in LAYOUT]
    below = next((name for name in names[1:] if name != "Mul"), "")
    if term.criterion not in ERRORS or term.paired or names[:2] != ["Add", "Mul"] or below not in CHOICES or s.learns:
        return None
    return {"path": term.source or "", "places": (), "target": True}


def _rootless(s: Symptoms) -> Facts | None:
    """A loss that was made of numbers, and told to require a gradient so that backward() does not complain."""
    flows = (
        s.clues.reached or any(one.felt for one in s.watched.parameters) or any((some > 0).any() for some in s.output_gradients.values())
    )
    if s.loop.backwards or s.loop.rootless < SEVERAL or flows or not s.watched.passes:  # of copies of it, say
        return None
    return {"backwards": s.loop.rootless, "places": tuple(s.ungraded)}


def _cut_before_the_targets(s: Symptoms) -> Facts | None:
    """What such layers give is cut off before the rest."""
    for cut in s.modules("cut"):
        if stopped := _stopped_before(s, cut):
            return {"path": cut.path, "places": stopped, "beside": True}
    return None


def _stopped_before(s: Symptoms, cut: ModuleClues) -> tuple[str, ...]:
    """Layers before it that only a divergence, or another part of the loss without targets, reaches."""
    order = {one.path: one.order for one in s.watched.modules if one.called}
    owners = {one.path: one.module for one in s.matrices}
    if cut.path not in order or len(s.loop.optimizers) != 1 or not s.has_baseline or not s.progress < 0.5:
        return ()
    return tuple(one.path for one in s.modules("beside") if order.get(owners.get(one.path) or "", 1e9) < order[cut.path])


def _state_cut(s: Symptoms) -> Facts | None:
    """A cell whose state arrives filled, and without the graph of the step before."""
    for one in s.modules("cell"):
        again = one.facts["again"] == one.facts["calls"] - 1  # the same one in each step
        if one.facts["calls"] >= 3 and one.facts["cut"] and one.facts["filled"] and not again and not s.progress > LEARNT:
            return {"path": one.path, "calls": one.facts["calls"]}
    return None


def _was_called(s: Symptoms, path: str) -> bool:
    owner = next((one.module for one in s.watched.parameters if one.path == path), None)
    return any(one.path == owner and one.called for one in s.watched.modules)


def _is_passed_by(s: Symptoms, lost: tuple[str, ...]) -> bool:
    """Whether gradients come to what is called before all that is lost, or takes the same as the first of it: so something goes past it."""
    order = {one.path: one.order for one in s.watched.modules if one.called}
    some = {order[one.module]: one.module for one in s.watched.parameters if one.path in lost and one.module in order}
    felt = {order[one.module]: one.module for one in s.watched.parameters if one.felt and one.trainable and one.module in order}
    if not some or not felt:
        return False
    taken = {one.path: (one.facts["mean"], one.facts["std"]) for one in s.modules("front")}
    first = taken.get(some[min(some)])
    return min(felt) < min(some) or (first is not None and any(taken.get(path) == first for path in felt.values()))


def _unused(s: Symptoms) -> Facts | None:
    lost = () if s.progress > LEARNT else _lost(s)
    matrices = {one.path for one in s.matrices}  # what is left out with a norm alone explains little, and so do a few numbers
    if s.modules("cut") or matrices.isdisjoint(lost) or all(math.prod(s.shapes.get(path, (math.inf,))) < 2 for path in lost):
        return None
    if s.is_never_run:
        return None  # it is another model that is trained
    return {"path": lost[0], "places": lost, "called": all(_was_called(s, path) for path in lost)}


def _zero_table(s: Symptoms) -> Facts | None:
    """The frozen matrix of a layer that holds zeros, so that it gives the same for any input."""
    layers = {one.path for one in s.watched.modules if one.called and one.category in ("embedding", "linear", "conv")}
    some = [one for one in s.watched.parameters if not one.trainable and one.dimensions > 1 and one.module in layers]
    zero = [one.path for one in some if len(norm := s.weights.get(one.path, ())) and not np.nan_to_num(norm).any()]
    return {"path": zero[0], "places": tuple(zero), "zero": True} if zero and s.is_stuck else None


def _frozen_at_the_end(s: Symptoms) -> Facts | None:
    """The layer whose scores are compared, as PyTorch drew it, though an optimizer holds it to train it: one that was put in too early."""
    last = [one for one in s.watched.parameters if one.module is not None and one.module == s.loss.term.source and one.dimensions > 1]
    shut = [one.path for one in last if one.path in s.clues.untaught and one.owned]
    if not shut or any(map(s.changes, shut)) or not s.progress < SHUT or _is_teacher(s) or s.has_adapters:
        return None
    return {"path": s.loss.term.source or "", "places": tuple(shut), "last": True}


def _frozen(s: Symptoms) -> Facts | None:
    if not _stays_frozen(s) or _serves_already(s):
        return None
    share, held = _frozen_share(s), _holds_frozen(s)
    alone = s.clues.fresh > 0.5 * s.clues.frozen and (not s.matrices or (held and _is_in_front(s)))
    if share >= MOST and s.clues.drawn > 0.5 * s.clues.frozen and s.is_stuck:
        return {"share": share, "held": held, "drawn": True, "rival": "targets shuffled", "settle": "pairs"}
    return {"share": share, "held": held} if share >= 0.3 and not (s.progress > 0.85 if alone else s.fallen > 0.1) else None


def _frozen_as_drawn(s: Symptoms) -> Facts | None:
    """A part that is as it was initialized, though an optimizer holds it to train it, where much is left to learn."""
    share = _frozen_share(s)
    drawn = share >= PART and s.clues.fresh >= 0.5 * s.clues.frozen and s.progress < HALFWAY
    return {"share": share, "held": True, "fresh": True} if drawn and _holds_frozen(s) and _stays_frozen(s) else None


def _frozen_share(s: Symptoms) -> float:
    return s.clues.frozen / max(s.clues.parameters, 1)


def _holds_frozen(s: Symptoms) -> bool:
    """Whether an optimizer holds some of what is frozen."""
    return bool(s.record.optimizer) and any(not one.trainable and one.owned for one in s.watched.parameters)


def _stays_frozen(s: Symptoms) -> bool:
    """Whether what is frozen moves not, as a copy that follows does, and is no teacher, nor what adapters stand beside."""
    follows = any(s.changes(one.path) for one in s.watched.parameters if not one.trainable)
    return not (follows or _is_teacher(s) or s.has_adapters)


def _serves_already(s: Symptoms) -> bool:
    """Whether what is frozen was trained before, and the loss began below a constant answer: little is left to gain, as by a prompt."""
    return s.clues.fresh < 0.5 * s.clues.frozen and s.first < SERVES * s.constant


def _is_teacher(s: Symptoms) -> bool:
    """Whether all that is frozen runs without gradients beside what is trained, on the same inputs."""
    frozen = {one.module for one in s.watched.parameters if not one.trainable}
    shut = {one.path for one in s.modules("ungraded")}
    if not frozen or not shut.issuperset(frozen):
        return False
    fronts = {one.path: (one.facts["mean"], one.facts["std"]) for one in s.modules("front")}
    taken = {fronts[path] for path in fronts if path in frozen}
    return any(sizes in taken for path, sizes in fronts.items() if path not in frozen)


def _is_in_front(s: Symptoms) -> bool:
    """Whether what is frozen comes before all that is trained, and no adapter beside it."""
    order = {one.path: one.order for one in s.watched.modules if one.called}
    frozen = [order[one.module] for one in s.watched.parameters if not one.trainable and one.module in order]
    trained = [order[one.module] for one in s.watched.parameters if one.trainable and one.module in order]
    layers = s.modules("linear")
    rest = {one.path for one in s.watched.modules if any(two.module == one.path and two.trainable for two in s.watched.parameters)}
    taken = ({one.facts["after"] for one in layers if (one.path in rest) is trained_too} for trained_too in (True, False))
    beside = set.intersection(*taken) - {""}
    return bool(frozen) and bool(trained) and max(frozen) < min(trained) and not beside


ROWS = (
    CauseRow("detached", _rootless, "no gradient through", "graph of the loss"),
    CauseRow("hidden layers", _hidden),
    CauseRow("without grad", _without_grad),
    CauseRow("no gradient through", _through, "detached", "why"),
    CauseRow("detached", _state_cut),
    CauseRow("detached", _cut_before_the_targets, "no gradient through", "why"),
    CauseRow("detached", _detached, "unused layers", "why"),
    CauseRow("detached", _wrong_side),
    CauseRow("overwritten activation", _replaced, "detached", "why"),
    CauseRow("frozen", _zero_table),
    CauseRow("unused layers", _unused, "detached", "why", tier=2, unlike=("wild",)),
    CauseRow("no bias where needed", _left_out, tier=2, unlike=("wild",)),
    CauseRow("frozen", _frozen, tier=1, unlike=("wild",)),
    CauseRow("frozen", _frozen_at_the_end, tier=1, unlike=("wild",)),
    CauseRow("frozen", _frozen_as_drawn, severity="careful", tier=1, unlike=("wild",)),
)
