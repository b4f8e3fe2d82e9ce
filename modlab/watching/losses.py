"""Losses, found by what ``backward()`` is called on, and kept apart by who calls it; with them learning rates and clipping.

The loss of a step is the sum of what ``backward()`` was called on at one place of the code before an optimizer made its next step, for
the gradient is that sum's. Of a closure that is evaluated several times in a step it is the first value; what a scaler multiplied it
by is divided out.
"""

from __future__ import annotations

import gc
import math
from dataclasses import replace
from threading import get_ident
from types import FrameType
from typing import Any, NamedTuple, Protocol
from weakref import ReferenceType, ref

import numpy as np
import torch
from torch import Tensor

from modlab.compat import graph_task, is_still_scaled, without_autograd
from modlab.inspection.entries import PLAIN
from modlab.records.loss import is_held_out
from modlab.records.watch import ScalarRecord
from modlab.running.autograd_nodes import leaf_among
from modlab.running.guarded import Look, timed
from modlab.statistics.memory import copied, is_there, local, number_of
from modlab.watching import engine_calls, loss_names
from modlab.watching.last_step import LastStep, run_aside
from modlab.watching.pools import is_readable
from modlab.watching.readback import is_far, numbers
from modlab.watching.scalars import Scalar, Scalars, entropy_of
from modlab.watching.schedule import Schedule
from modlab.watching.steps import Steps
from modlab.watching.watch_index import WatchIndex, Weight

EACH = 10e-6
"""Seconds, about, that it takes to take in a step's loss, until that is known."""

SHARE, RARELY = 0.15, 32
"""Of the budget, what that may take; where steps are so quick that each would take more, some are left out. And steps from one to the
next at most."""

PROBES = 2
"""Parameters by which is seen whether a backward pass was one through the model, once they are known to get gradients from there."""

ASKED = 1024
"""Parameters of which one of a very large model is asked that way; the next time others are."""

LEARNT = 16
"""Values after which what the last ones took is all that counts; fewer count for less."""

GRAPHS = 4
"""Graphs of a place that are asked whose loss it is."""

SMALL = 65536
"""Numbers of a gradient that is asked whether it is zero."""

TRIES = 3
"""Backward passes from a place whose like are asked of all parameters, before that is done in steps that are looked at alone."""

MOST = 32
"""Places that are kept apart; what comes from others counts with the last one."""

SCALERS = 5
"""Times that a scaler is searched for which has come in the place of one that is gone."""

LEAST_SCALE = 1e-30
"""Of a scaler, below which what it has multiplied cannot be told any more: after it was halved in each of a hundred steps."""

ROUNDS = 3
"""Steps in a row with the same number of backward passes, behind which one with fewer is what was left over."""

ALIKE = 3
"""Values under a name that are equal to those found, from which on the name is the loss's."""

LOSS, RATE, NORM, SCALE, MODE = "loss", "learning rate", "gradient norm", "loss scale", "training mode"

_METHOD = Tensor.backward.__code__

State = tuple[int, int, int]


class _Await(NamedTuple):
    """A value of which is not known yet whether it is one of the model's."""

    site: LossSite
    value: Any
    epoch: int
    step: int
    before: list[tuple[Weight, State]]
    arrived: int
    call: int
    anew: bool
    leaf: Weight | None
    strange: bool


class LossSite:
    """One place in the code from which ``backward()`` is called.

    Attributes:
        name: of the variable; `line`, where it is made, or handed to the function that calls ``backward()``.
        repeats: how often it evaluated anew what another place had in the same step.
        ours, strange: how often a step of an optimizer of the model's, and of another one, was the next one made.
        inner: whether the gradients go to tensors that are none of the model's parameters, as where it is called by `functional_call`.
        asked: of its values, how many graphs were asked whether they end in the model; `ends`: what these said.
        zeroed: whether gradients that it brought were gone before anybody asked, as where no step is made.
        heard: backward passes in steps that were looked at; `thrown`: how many of these found that what the one before had brought was
            gone, with no step and no other change of the weights in between; `weights`: their versions at the last one.
    """

    def __init__(self, name: str, line: int, key: tuple[Any, ...]) -> None:
        self.name, self.line, self._key = name, line, key  # the key keeps its code alive, so that no other one has its identity
        self.curve = Scalar(LOSS)
        self.probes: list[Weight] = []
        self.scaler: ReferenceType[Any] | None = None
        self.tries = self.ours = self.strange = self.repeats = 0
        self.heard = self.thrown = 0
        self.weights: dict[int, int] = {}
        self.inner = self.zeroed = False
        self.asked, self.ends = 0, set[bool]()
        self.epoch = -1
        self._call = 0
        self.latest: Any = None  # the last value that was taken in
        self.total: Any = None  # of the step that is under way
        self.step = 0
        self.values = self.points = 0
        self.passes, self._usual, self._as_usual = 0, 0, 0  # of this step; of those before, and in how many in a row

    @property
    def label(self) -> str:
        """Name and line."""
        return f"{self.name} (line {self.line})"

    def add(self, value: Any, epoch: int, step: int, call: int, *, anew: bool) -> None:
        """Take in a value.

        Args:
            value: what ``backward()`` was called on.
            epoch: of the steps, when it went backward.
            step: how many of those that are counted.
            call: the number of the optimizer's call that evaluates it; 0 outside of one.
            anew: whether what its last value brought was thrown away.
        """
        self.latest = value
        again, self._call = call and call == self._call, call
        if epoch == self.epoch and self.total is not None and (again or not anew):
            if not again:
                self.total = self.total + value
                self.passes += 1
            return
        self.flush()
        self.epoch, self.step, self.total, self.passes = epoch, step, value, 1

    def flush(self) -> None:
        """The step is over: its sum is a point of the curve, but for what was left over for the last step of an epoch."""
        passes, self.passes = self.passes, 0
        if self.total is None:
            return
        if not (passes < self._usual and self._as_usual >= ROUNDS):
            self._as_usual = self._as_usual + 1 if passes == self._usual else 1
            self._usual = passes
            self.values += passes
            self.points += 1
            self.curve.add(self.step, self.total)
        self.total = None


class LossWatch(Look, Protocol):
    """What losses ask of the watch that they belong to."""

    closed: bool
    tap: LastStep

    @property
    def is_home(self) -> bool:
        """Whether this is the process in which it began."""

    @property
    def looks(self) -> bool:
        """Whether this step is looked at."""

    def see_loss(self, name: str, tensor: Tensor, scale: Tensor | None) -> None:
        """``backward()`` is about to be called on a loss."""

    def wants_loss(self) -> bool:
        """Whether the loss of this step is read."""

    @property
    def stands_by(self) -> bool:
        """Whether the gradients of this step are looked at."""


class Losses:
    """Listens to what torch's engine is called for.

    Args:
        watch: that is on, or not.
        index: whose parameters get the gradients.
        steps: the steps so far, and whose they are.
        schedule: with what is left for this.

    Attributes:
        awaiting: values that are not judged yet.
        seconds: that it took, and that are not paid for yet.
        told: names under which something is logged that is compared with every site that had a value: no more need be asked.
    """

    def __init__(self, watch: LossWatch, index: WatchIndex, steps: Steps, schedule: Schedule) -> None:
        self.ends = self._watch = watch
        self._index, self._steps, self._schedule = index, steps, schedule
        self.sites: list[LossSite] = []
        self.awaiting: list[_Await] = []
        self.seconds = 0.0
        self.entropy = ""  # the function of the graph that made it, if it is a cross-entropy
        self._known: dict[tuple[Any, ...], LossSite] = {}
        self._heights: dict[tuple[int, int], int] = {}
        self._told_in = -1  # a step of which a backward pass was taken in
        self._fresh: list[LossSite] = []  # those with a value since the last step of any optimizer
        self._last: dict[str, LossSite] = {}  # by name, whose value came last
        self._apart: set[str] = set()  # names whose sites take turns
        self._rates: dict[tuple[int, int], Scalar] = {}
        self._early: dict[int, bool] = {}  # by optimizer: whether it began before the one whose steps are counted had made one
        self._norm, self._scale, self._mode = Scalar(NORM), Scalar(SCALE), Scalar(MODE)
        self._pairs: dict[tuple[str, int], list[tuple[Any, Any, Any]]] = {}
        self._same: dict[tuple[str, int], bool] = {}
        self.told: set[str] = set()
        self._bad_looks = 0  # at losses that are no numbers
        self.scaled_steps = self.scaled_clips = 0  # with gradients that a scaler has multiplied
        self.new_scalers = 0  # times that another one had come in the place of one
        self.rootless = 0  # backward passes from a tensor whose graph, if it has one, ends in no parameter of the model
        self._every, self._each, self._taken = 1, EACH, 0
        self._opener = get_ident()

    # ---- when

    def due(self) -> bool:
        """Whether this step is taken in: from its first backward pass on all of them, for a value is their sum."""
        made = self._steps.made
        return (
            self._every == 1 or made % self._every == 0 or made == self._told_in or 0 < self._bad_looks < LEARNT or self._watch.wants_loss()
        )

    def settle(self) -> None:
        """Decide in which steps, by how long one takes."""
        schedule = self._schedule
        room = SHARE * schedule.budget * schedule.pace
        self._every = min(RARELY, max(1, math.ceil(self._each / room))) if room > 0 else RARELY

    def pay(self) -> float:
        """Seconds that it took since it was asked last; from them it learns how long one takes."""
        seconds, taken = self.seconds, self._taken
        self.seconds, self._taken = 0.0, 0
        if taken:
            self._each += (seconds / taken - self._each) * min(1.0, taken / LEARNT)
        return seconds

    def _is_here(self) -> bool:
        """Whether this is the thread that trains the model: while another one runs a backward pass its gradients must not be touched."""
        return get_ident() == (self._watch.tap.thread or self._steps.thread or self._opener)

    # ---- told by torch

    @timed
    def backward_begins(self, tensors: Any, frame: FrameType) -> None:
        """Gradients are about to be accumulated."""
        watch = self._watch
        if watch.closed or graph_task() != -1 or not self._is_here() or run_aside() or not watch.is_home:
            return
        self._taken += 1
        self._told_in = self._steps.made
        self._take(tensors, frame)

    @timed
    def clips(self, parameters: Any, bound: Any, norm: Any) -> None:
        """Gradients are about to be clipped."""
        watch = self._watch
        if watch.closed or run_aside() or not watch.is_home:
            return
        some = [parameters] if isinstance(parameters, Tensor) else parameters if isinstance(parameters, (list, tuple)) else ()
        if any(self._index.knows(one) for one in some):
            value = _value(norm, None)
            if value is not None:
                self.scaled_clips += self._is_scaled()
                self._norm.bound_by(float(bound))
                self._norm.add(self._steps.made, value)

    def _take(self, tensors: Any, frame: FrameType) -> None:
        self.judge()
        steps = self._steps
        epoch = steps.epoch
        for place, tensor in enumerate(tensors if isinstance(tensors, (tuple, list)) else (tensors,)):
            if not isinstance(tensor, Tensor):
                continue
            if tensor.grad_fn is None:
                self.rootless += tensor.requires_grad and not self._index.knows(tensor)
                continue
            value = _value(tensor, None)
            if value is None:
                continue
            site = self._site(tensor, frame, place)
            scale = self._scale_at(site, tensor)
            if scale is not None:
                self._scale.add(steps.made, _value(scale, None))
                if not is_far(scale) and float(scale) < LEAST_SCALE:
                    continue
                value = _value(tensor, scale)
            anew = self._is_thrown_away(site, epoch)
            states = self._states(site)
            bad = not is_far(tensor) and not math.isfinite(value)
            if self._watch.wants_loss() or (bad and self._bad_looks < LEARNT):
                self._bad_looks += bad
                self._watch.see_loss(site.label, tensor, scale)
            root = self._index.root
            if root is not None:
                self._mode.add(steps.made, float(root.training))
            if states is not None:
                weights = {id(weight): state[2] for weight, state in states}
                site.heard += self._watch.looks
                site.thrown += bool(self._watch.looks and anew and not steps.call and weights and weights.items() <= site.weights.items())
                site.weights = weights
                ends = self._ends(site, tensor)
                self.awaiting.append(_Await(site, value, epoch, steps.made, states, self._watch.tap.arrived, steps.call, anew, *ends))

    def _scale_at(self, site: LossSite, tensor: Tensor) -> Tensor | None:
        """By what a scaler has multiplied a loss: the one of its place, or another one that has come in its stead."""
        if site.scaler is None:
            return None
        if site.scaler() is None:
            self.new_scalers += 1
            site.scaler = (_scaler(tensor) if self.new_scalers <= SCALERS else None) or site.scaler
        scaler = site.scaler()
        return _factor_of(tensor) if scaler is None else _scale_of(scaler)

    def _ends(self, site: LossSite, tensor: Tensor) -> tuple[Weight | None, bool]:
        """A parameter that its graph ends in; and whether it is another model's loss, while that of the watched one goes backward, too.

        Only the first values of a place are asked, unless one has come from elsewhere, or their effect cannot be seen.
        """
        if site.asked >= GRAPHS and False not in site.ends and not site.zeroed:
            return None, False
        leaf, sure = leaf_among(tensor.grad_fn, self._index.knows)
        site.asked += 1
        if leaf is not None or sure:
            site.ends.add(leaf is not None)
        weight = self._index.weight(leaf) if leaf is not None and engine_calls.spreads() else None
        return weight, leaf is None and sure and any(True in one.ends for one in self.sites)

    def _is_thrown_away(self, site: LossSite, epoch: int) -> bool:
        """Whether the gradients that a place brought since the last step are there no more: it begins anew.

        What another place brought: then this one evaluates the loss once more, elsewhere, as sharpness-aware minimization does.
        """
        own = False
        for one in self._fresh:
            if one.epoch == epoch and one.probes and all(map(_is_gone, one.probes)):
                own |= one is site
                site.repeats += one is not site
        return own

    def _states(self, site: LossSite) -> list[tuple[Weight, State]] | None:
        """What the gradients of some parameters are now; None if it is known that none will come."""
        some = site.probes
        if not some:
            if site.tries >= TRIES and not site.inner and not self._watch.looks:
                return None
            if not site.inner or site.tries < TRIES:
                weights = self._index.weights
                stride = -(-len(weights) // ASKED) or 1
                some = weights[site.tries % stride :: stride]
        return [(weight, state) for weight in some if (state := _state(weight)) is not None]

    # ---- whether it was one of the model's

    @timed
    def judged_with(self, optimizer: Any) -> None:
        """An optimizer is about to make a step, or has made it."""
        self.judge(optimizer)

    def judge(self, optimizer: Any = None) -> None:
        """A backward pass is over, and no gradient has been touched since: did any come to the model?

        Args:
            optimizer: who makes a step now, if that is why it is asked.
        """
        if not self._is_here():
            return
        awaiting, self.awaiting = self.awaiting, []
        for one in awaiting:
            self._judge(one)
        if optimizer is not None and self._fresh:
            fresh, self._fresh = self._fresh, []
            ours = self._steps.holds(optimizer)
            for site in fresh:
                site.ours += ours
                site.strange += not ours

    def _judge(self, one: _Await) -> None:
        site = one.site
        changes = (weight for weight, before in one.before if _is_changed(before, _state(weight)))
        first = None if one.strange else next(changes, None)  # others may write into these gradients meanwhile
        if first is not None:
            if not site.probes:
                changed = [first, *changes]
                site.probes = changed[:: max(1, math.ceil(len(changed) / PROBES))]
            site.inner = False
        elif one.leaf is not None and not self._steps.heard and _has_none(one.leaf):
            site.zeroed, site.probes = True, [one.leaf]
        elif self._watch.tap.arrived != one.arrived:
            site.inner, site.probes = True, []
            site.tries += 1
        elif not site.inner or self._watch.stands_by:
            site.tries += 1
            self.rootless += 1
            if self._watch.looks:
                site.probes = []  # others may be trained now
            return
        self._accept(one)

    def _accept(self, one: _Await) -> None:
        site = one.site
        last = self._last.get(site.name)
        if last is not site:
            if last is not None and self.sites.index(site) < self.sites.index(last):
                self._apart.add(site.name)
            self._last[site.name] = site
        if site not in self._fresh:
            self._fresh.append(site)
        if site.latest is None:
            self.told.clear()
        site.add(one.value, one.epoch, one.step, one.call, anew=one.anew)

    # ---- where it is called from

    def _site(self, tensor: Tensor, frame: FrameType | None, place: int) -> LossSite:
        frame, method = frame.f_back if frame is not None else None, False
        while frame is not None and frame.f_back is not None and _is_torchs(frame):
            method = frame.f_code is _METHOD
            frame = frame.f_back
        if frame is None:
            return self._known.get(()) or self._new((), LOSS, 0, tensor)
        near = id(frame.f_code), frame.f_lasti
        if near not in self._heights:
            self._heights[near] = loss_names.find(frame, place, method=method)[1] + 1
        key, codes = _way(frame, self._heights[near], place)
        site = self._known.get(key)
        if site is None:
            name, height = loss_names.find(frame, place, method=method)
            site = self._known[key] = self._new(codes, name or LOSS, _line(frame, height), tensor)
        return site

    def _new(self, key: tuple[Any, ...], name: str, line: int, tensor: Tensor) -> LossSite:
        if len(self.sites) >= MOST:
            return next((site for site in reversed(self.sites) if site.name == name), self.sites[-1])
        site = LossSite(name, line, key)
        site.scaler = _scaler(tensor)
        site.curve.scaled = site.scaler is not None
        function: Any = tensor.grad_fn
        if type(tensor) in PLAIN:  # else its classes may be spread over ranks
            self.entropy = self.entropy or entropy_of(function if site.scaler is None else function.next_functions[0][0])
        self.sites.append(site)
        return site

    # ---- learning rates

    @timed
    def step_ended(self, optimizer: Any, *, counted: bool) -> None:
        """An optimizer of the model's has made a step: at which rates?

        Args:
            optimizer: which one.
            counted: whether its steps are those that are counted: this one is not yet among those that were made.
        """
        steps = self._steps
        known = steps.optimizers
        place = next((i for i, one in enumerate(known) if one is optimizer), -1)
        if place < 0:
            return
        self.scaled_steps += self._is_scaled()
        first = known[0].param_groups[0].get("lr")
        early = self._early.setdefault(place, not steps.made) or counted
        for number, group in enumerate(optimizer.param_groups):
            rate, curve = group.get("lr"), self._rates.get((place, number))
            if rate is None:
                continue
            if curve is None:
                if (place or number) and (rate is first or isinstance(rate, Tensor) or rate == first or len(self._rates) >= MOST):
                    continue  # all as the first one, so far
                curve = self._rates[place, number] = Scalar(RATE)
            curve.add(steps.made if early else max(steps.made - 1, 0), _rate(rate))

    def _is_scaled(self) -> bool:
        """Whether the gradients are still those of a loss that a scaler has multiplied."""
        scalers = [scaler for site in self.sites if site.scaler is not None and (scaler := site.scaler()) is not None]
        return any(is_still_scaled(scaler, self._steps.optimizers) for scaler in scalers)

    # ---- what the user logs of it

    def compare(self, values: dict[str, Any]) -> None:
        """Whether what is logged under a name is what was found."""
        without_autograd(self._compare, values)

    def _compare(self, values: dict[str, Any]) -> None:
        steps = self._steps
        now = steps.epoch
        self.judge()
        for name, value in values.items():
            for number, site in enumerate(self.sites):
                key = name, number
                if key in self._same or site.latest is None or not now - 1 <= site.epoch <= now:
                    continue
                pairs = self._pairs.setdefault(key, [])
                if len(pairs) < ALIKE:
                    logged = copied(local(value)) if isinstance(value, Tensor) and is_there(value) else value
                    pairs.append((logged, site.latest, site.total if site.total is not None else site.latest))
                    if len(pairs) == ALIKE and not any(isinstance(one, Tensor) and is_far(one) for pair in pairs for one in pair):
                        self._decide(key)
            if all(self._is_compared((name, number)) for number, site in enumerate(self.sites) if site.latest is not None):
                self.told.add(name)

    def _is_compared(self, key: tuple[str, int]) -> bool:
        return key in self._same or len(self._pairs.get(key, ())) == ALIKE

    def _decide(self, key: tuple[str, int]) -> bool:
        pairs = self._pairs.get(key, [])
        alike = bool(pairs)
        for pair in pairs:
            try:
                logged, *found = (numbers([one])[0] if isinstance(one, Tensor) else float(one) for one in pair)
            except (TypeError, ValueError, RuntimeError):
                alike = False
                break
            alike = alike and any(math.isclose(logged, one, rel_tol=1e-6) or (logged != logged and one != one) for one in found)
        if len(pairs) >= ALIKE:
            self._same[key] = alike
            self._pairs.pop(key, None)
        return alike

    def finish(self) -> None:
        """The watch ends: what waits is judged, and steps that are under way are over."""
        self.judge()
        now = self._steps.epoch
        for site in self.sites:
            if site.epoch != now or (
                site.values <= site.points and site.passes <= 1
            ):  # else it is a part of the sum of a step that was not made
                site.flush()

    # ---- what there is

    def shape(self) -> tuple[Any, ...]:
        """Equal as long as curves only grew at their ends."""
        curves = [site.curve for site in self.sites] + [*self._rates.values(), self._norm, self._scale, self._mode]
        return (len(self.sites), len(self._rates), tuple(sorted(self._same.items())), *(curve.slots.halvings for curve in curves))

    def records(self, scalars: Scalars) -> tuple[ScalarRecord, ...]:
        """All curves: the losses, what else the user logged, the rates, and the norm."""
        found, taken = self._losses(scalars)
        logged = [_kept_apart(curve.record()) for name, curve in [*scalars.curves.items()] if name not in taken]
        rates = [curve.record() for _, curve in sorted(self._rates.items())]
        names = self._names_of_rates()
        rest = [replace(one, name=name, kind="rate") for one, name in zip(rates, names, strict=True)]
        norm, scale, mode = (
            replace(curve.record(), kind=kind) for curve, kind in ((self._norm, "norm"), (self._scale, "scale"), (self._mode, "mode"))
        )
        turns = mode.count > 0 and float(np.nanmin(mode.low)) < float(np.nanmax(mode.high))  # else the checks tell of it
        return (*found, *logged, *rest, *(one for one in (norm, scale) if one.count), *([mode] if turns else []))

    def _names_of_rates(self) -> list[str]:
        keys = sorted(self._rates)
        optimizers = self._steps.labels
        several = len({place for place, _ in keys}) > 1
        names = []
        for place, number in keys:
            whose = f", {optimizers[place]}" if several and place < len(optimizers) else ""
            group = f", group {number}" if any(one == place and other for one, other in keys) else ""
            names.append(f"{RATE}{whose}{group}")
        return names

    @property
    def are_scaled(self) -> bool:
        """Whether a gradient scaler was seen to multiply any of them."""
        return any(site.scaler is not None for site in self.sites)

    @property
    def skipped(self) -> int:
        """How many steps a scaler left out, at least: each time its scale falls."""
        return self._scale.falls

    def accepted(self) -> dict[str, int]:
        """The names of the losses of this model, and how many values each had."""
        found: dict[str, int] = {}
        for site in self.sites:
            if site.values or site.passes:
                found[site.label] = found.get(site.label, 0) + site.values + site.passes
        return found

    def thrown(self) -> tuple[int, int]:
        """Of the backward passes of the one place with a loss, how many brought what no step has used; and how many there were.

        Where there are several, what one brings may be asked for by another one alone. A scaler leaves out steps on purpose.
        """
        some = [site for site in self.sites if site.values or site.passes]
        return (max(some[0].thrown - self.skipped, 0), some[0].heard) if len(some) == 1 else (0, 0)

    def _losses(self, scalars: Scalars) -> tuple[list[ScalarRecord], set[str]]:
        """Those found, under the user's names where these are known, and which names these are."""
        groups = self._groups()
        found: list[ScalarRecord] = []
        taken: set[str] = set()
        for label, sites in groups:
            parts = [record for site in sites if (record := site.curve.record()).count]
            if not parts:
                continue
            joined = _joined(parts)
            points = sum(site.points for site in sites)
            passes = sum(site.values for site in sites) / points if points else 1.0
            name = next((one for one in scalars.curves if one not in taken and self._is_same(one, sites)), "")
            if name:
                taken.add(name)
                logged = scalars.curves[name].record()
                joined = logged if logged.count > joined.count else joined
            found.append(replace(joined, name=name or (LOSS if len(groups) == 1 else label), kind="loss", passes=passes))
        free = [one for one in scalars.curves if one not in taken]
        return [replace(one, name=f"{one.name} (backward)") if one.name in free else one for one in found], taken

    def _is_same(self, name: str, sites: list[LossSite]) -> bool:
        keys = [(name, self.sites.index(site)) for site in sites]
        return any(self._same[key] if key in self._same else self._decide(key) for key in keys)

    def _groups(self) -> list[tuple[str, list[LossSite]]]:
        """Sites by what they are called; those of one name are one curve unless they take turns."""
        some = [site for site in self.sites if site.points]
        if any(site.ours for site in some):
            some = [site for site in some if site.ours or not site.strange]
        some = [site for site in some if 2 * site.repeats < site.points] or some
        groups: dict[str, list[LossSite]] = {}
        for site in some:
            groups.setdefault(site.label if site.name in self._apart else site.name, []).append(site)
        return [*groups.items()]


def _joined(parts: list[ScalarRecord]) -> ScalarRecord:
    """One curve of several that came one after the other."""
    if len(parts) == 1:
        return parts[0]
    arrays: Any = {name: np.concatenate([getattr(one, name) for one in parts]) for name in ("first", "last", "mean", "low", "high", "bad")}
    return replace(parts[0], count=sum(one.count for one in parts), final=parts[-1].final, **arrays)


def _kept_apart(logged: ScalarRecord) -> ScalarRecord:
    """What is told of data that is not trained on, as such."""
    return replace(logged, kind="validation") if is_held_out(logged.name) else logged


def _value(tensor: Any, scale: Tensor | None) -> Any:
    """The number, or what will give it; None if it is not a number, or nothing that is there."""
    if not isinstance(tensor, Tensor):
        return float(tensor) if isinstance(tensor, (int, float)) else None
    tensor = _whole(tensor)
    if type(tensor) not in PLAIN or tensor.numel() != 1 or not is_there(tensor) or not tensor.is_floating_point():
        return None
    if not is_far(tensor):
        return tensor.item() if scale is None else tensor.item() / scale.item()
    if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
        return None
    found = tensor.detach().reshape(())
    return found.clone() if scale is None else found / scale.detach().reshape(())


def _whole(tensor: Tensor) -> Tensor:
    """What each rank has of a DTensor, where that is all of it."""
    placements = getattr(tensor, "placements", ())
    return local(tensor) if placements and all(one.is_replicate() for one in placements) else tensor


def _state(weight: Weight) -> State | None:
    """What changes when a gradient comes to a parameter, or when it is moved in the course of that."""
    tensor = weight.tensor()
    if tensor is None or not tensor.requires_grad:
        return None
    gradient = tensor.grad
    return (0, 0, _version(tensor)) if gradient is None else (id(gradient), _version(gradient), _version(tensor))


def _is_gone(weight: Weight) -> bool:
    """Whether a parameter has no gradient now, or one of zeros, where that is a matter of microseconds."""
    tensor = weight.tensor()
    gradient = None if tensor is None or not tensor.requires_grad else tensor.grad
    return gradient is None or (gradient.numel() <= SMALL and is_readable(gradient) and not bool(without_autograd(gradient.any)))


def _has_none(weight: Weight) -> bool:
    """Whether a parameter has no gradient now."""
    tensor = weight.tensor()
    return tensor is not None and tensor.grad is None


def _version(tensor: Tensor) -> int:
    if type(tensor) not in PLAIN:
        tensor = getattr(tensor, "_local_tensor", tensor)  # a DTensor's part, which is what changes
    try:
        return tensor._version
    except RuntimeError:  # of inference mode
        return -1


def _rate(rate: Any) -> Any:
    if type(rate) is float:
        return rate
    return copied(local(rate)) if isinstance(rate, Tensor) and is_there(rate) else number_of(rate)


def _is_changed(before: State, now: State | None) -> bool:
    return now is not None and now != before and (now[2] != before[2] or now[0] != 0)


def _way(frame: FrameType, height: int, place: int) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """By which calls the code came to a place, so many functions up; and their code, by whose identity these are known."""
    key, codes, here = [place], [], frame
    for _ in range(height + 1):
        code = here.f_code
        key += (id(code), here.f_lasti)
        codes.append(code)
        if here.f_back is None:
            break
        here = here.f_back
    return (*key,), (*codes,)


def _line(frame: FrameType, height: int) -> int:
    """Of the call by which the code came to a place, so many functions up."""
    for _ in range(height):
        frame = frame.f_back or frame
    return frame.f_lineno


def _is_torchs(frame: FrameType) -> bool:
    """Whether it is no code of the user's: torch's, or ours that stands between."""
    name = frame.f_globals.get("__name__", "")
    return isinstance(name, str) and (name == "torch" or name.startswith(("torch.", "modlab.forking.", "modlab.running.")))


def _scaler(tensor: Tensor) -> ReferenceType[Any] | None:
    """The scaler that multiplied a loss: among those that there are, the one with that factor. Asked once for each place."""
    factor = _factor_of(tensor)
    if factor is None:
        return None
    alike = None
    for thing in gc.get_objects():
        scale = _scale_of(thing)
        if scale is not None and scale.data_ptr() == factor.data_ptr():
            return ref(thing)
        if scale is not None and scale.item() == factor.item():
            alike = thing  # what was copied to another device
    return None if alike is None else ref(alike)


def _factor_of(loss: Tensor) -> Tensor | None:
    """The single number without a graph by which it is multiplied in the end."""
    function: Any = loss.grad_fn
    if type(function).__name__ != "MulBackward0" or function.next_functions[-1][0] is not None:
        return None
    factor = getattr(function, "_saved_other", None)
    return factor if isinstance(factor, Tensor) and factor.numel() == 1 else None


def _scale_of(scaler: Any) -> Tensor | None:
    """By what a scaler multiplies now; None if it does not."""
    if not issubclass(type(scaler), torch.amp.GradScaler):
        return None
    scale = getattr(scaler, "_scale", None)
    return scale if isinstance(scale, Tensor) else None
