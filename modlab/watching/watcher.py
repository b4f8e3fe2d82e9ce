"""The engine of a watch: decides in which steps to look, and hands what was seen to those who judge and show it.

Between samples there is one hook, which each step of an optimizer calls: it adds one and compares (`Steps`).
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, ref

import numpy as np
from torch.nn import Module

from modlab import format
from modlab.compat import STAGE, dispatch_modes, function_mode_count, own_class, without_autograd, without_modes, without_torch_function
from modlab.errors import Stopped
from modlab.inspection.distributed import OF_PIPELINE, on_rank, rank, remarks_of
from modlab.records.watch import ACTIVATION, WatchRecord
from modlab.records.watched import Watched
from modlab.running import clock, compile_warning, recursion_limit
from modlab.running.guarded import apart, guarded, line_of, surely, tell, tried
from modlab.watching import engine_calls
from modlab.watching.alerts import Alerts
from modlab.watching.batched_statistics import BatchedStatistics, ScratchBuffer
from modlab.watching.clues import ClueCollector
from modlab.watching.controls import Controls
from modlab.watching.history import History
from modlab.watching.knobs import Knobs
from modlab.watching.last_step import LastPass
from modlab.watching.light_samples import LightSamples
from modlab.watching.losses import Losses
from modlab.watching.module_hooks import ModuleHooks
from modlab.watching.nan_guard import EACH, NaNGuard
from modlab.watching.neurons import Neurons
from modlab.watching.sample import Sample, Shared
from modlab.watching.scalars import PLANES, Scalars
from modlab.watching.schedule import DENSE, FIRST, Budget, Schedule
from modlab.watching.selection import Selection
from modlab.watching.step_hooks import StepHooks
from modlab.watching.steps import Steps
from modlab.watching.units import Units
from modlab.watching.unregistered import UnregisteredWeights
from modlab.watching.updates import MovedElsewhere
from modlab.watching.verdict import judged
from modlab.watching.view_snapshots import ViewSnapshots
from modlab.watching.watch_index import WatchIndex
from modlab.watching.watched import taken_down

if TYPE_CHECKING:
    from modlab.forking.keeper import Keeper

ENOUGH = 2_000
"""Inputs on which all units were counted, from which on counting gets the smaller part of the budget."""

LATE = 4
"""Samples whose numbers an accelerator may still owe; with more the oldest is waited for."""

PARTS = "parameters, their gradients and updates are this rank's part, and the loss is this rank's own: no other rank is asked"
UNJUDGED = "whether each slice of stacked weights gets a gradient, and each bias has an effect, is not judged of parameters in parts"
OWN = "activations and the loss are this rank's own: no other rank is asked"


watchers: WeakSet[Watcher] = WeakSet()
"""All that are open."""


def end_others(model: Module) -> int:
    """Close the watches of the same model; how many there were."""
    others = [other for other in watchers if other.model is model]
    for other in others:
        other.close("ended")
    return len(others)


class Unseen:
    """The watch of a model that modlab could not even begin to watch.

    Args:
        model: whose class it names.
        budget: the share that was allowed.
    """

    def __init__(self, model: Module, budget: float) -> None:
        self.record = WatchRecord(type(model).__name__, "", "failed", 0, 0, 0, np.zeros(0, np.int64), 0.0, 0.0, budget, History().record())

    def fail(self, error: Exception) -> None:
        """Say why, in one line."""
        self.record = replace(self.record, error=line_of(error))
        tell(f"modlab{on_rank()}: the watch could not start; training goes on. {self.record.error}")


class Watcher:
    """Watches one model.

    Args:
        model: whose modules and parameters; held weakly.
        optimizers: whose steps are the steps; none: the first that holds one of the model's parameters.
        budget: the share of the loop's time that it may take.
        on_nan: see `NaNGuard`.
        shadows: whether a compiled model is run once more to see its activations, see `Shadow`.
        only: patterns of what is looked at, see `Selection`; none: all.
        keep: whether states and a tape are kept, see `Keeper`.
        one_batch: whether the training has one batch on purpose.
    """

    def __init__(
        self,
        model: Module,
        optimizers: list[Any],
        budget: float,
        on_nan: str = "report",
        shadows: bool = False,
        only: Iterable[str] = (),
        keep: bool = False,
        one_batch: bool = False,
    ) -> None:
        self._model = ref(model)
        self.roots = {id(model)}  # and what a compiler made of it
        self._wrappers: list[Any] = []
        self.held: Module | None = None  # the model, where nobody else holds it
        self.title = own_class(type(model)).__name__
        self.index = WatchIndex(model, Selection(only))
        self.units: dict[str, Units] = {}
        self.neurons = Neurons()
        self.uncounted: dict[str, str] = {}  # modules whose units are not counted, and why
        self.scalars = Scalars(self.say)
        self.controls = Controls()
        self._one_batch = one_batch
        self.schedule = Schedule(budget)
        self.steps = Steps(self.index, optimizers)
        self.knobs = Knobs(self, lambda: self.steps.optimizers, self.say, lambda: not self.index.distribution.communicates)
        self.elsewhere = MovedElsewhere(self.index, self.steps)
        self.clues = ClueCollector(self.index, self.steps, self.say)
        self.alerts = Alerts(self.index, self.steps, self.elsewhere, self.units)
        self.losses = Losses(self, self.index, self.steps, self.schedule)
        self.modules = ModuleHooks(self._enter, self._leave, steady=bool(self.index.opaque))
        self.light = LightSamples(self, self.modules, self.steps)
        self.unregistered = UnregisteredWeights()
        self.snapshots = ViewSnapshots(self.steps, self.schedule, self.say)
        self.guard = NaNGuard(self, model, on_nan, self.index, self.steps, self.schedule, self.losses, self.alerts)
        self.tap = self.guard.tap
        self.step_hooks = StepHooks(self, self.index, self.steps, self.losses, self.guard, self.controls, self.knobs)
        self.keeper = self._keeper(model, optimizers) if keep else None
        self._shared = Shared(
            self.index,
            self.roots,
            self.modules,
            self.steps,
            self.units,
            self.uncounted,
            self.neurons,
            ScratchBuffer(),
            self.light,
            self.elsewhere,
            self.clues,
            {},
        )
        self.shadows = shadows and bool(self.index.opaque)
        self.lock = threading.RLock()
        self.ended: Callable[[], None] | None = None
        self.remarks: list[str] = []
        self.state, self.error = "waiting", ""
        self.closed, self._closing = True, False
        self.samples = 0
        self.hidden = False  # whether steps were made that nobody told of, and none that somebody did
        self.evaluated = 0  # looks at steps for which the model was called in evaluation mode alone
        self.stepped = False  # whether a step of the optimizer was measured
        self.last_sample = -1
        self.sampled: list[int] = []
        self._thinned = 1
        self._sample: Sample | None = None
        self._owed: list[Sample] = []  # samples whose numbers are on their way
        self._next_whole = self._next_light = 0
        self._loop_at_end = 0.0
        self._rested = 0.0  # when the last look ended
        self._first = 0.0  # seconds that the first samples took
        self._away = False  # in a fork of the process in which it began
        self._ending: tuple[str, str] | None = None  # the state, and the error, that it comes to

    def _keeper(self, model: Module, optimizers: list[Any]) -> Keeper:
        from modlab.forking.keeper import Keeper  # most watches keep nothing

        return Keeper(model, optimizers, lambda: self.steps.made, self.say)

    # ---- open and closed

    @property
    def ends(self) -> Watcher:
        """What an error of ours ends."""
        return self

    def open(self) -> None:
        """Begin to watch, with the next step."""
        self.closed = False
        model = self._model()
        if model is not None:
            self._model = ref(model, self._gone)
        compile_warning.silence(self)  # whoever compiles is told that these hooks see the wrapper as well
        recursion_limit.make(self)
        self.step_hooks.open()
        self.guard.open()
        self.modules.open()
        engine_calls.listen(self.losses)
        if self.keeper is not None:
            self.keeper.begin()
        self._sample = self._begin_sample()
        watchers.add(self)

    def forked(self) -> None:
        """This is a copy in another process: it takes its hooks off, and tells nobody; what it holds stays as it is."""
        self.lock, self._away = threading.RLock(), True
        self.ended = self.snapshots.publish = None
        parts = (self.knobs.leave, self.step_hooks.close, self.modules.close, self.tap.leave, self._stop_listening, self._give_back)
        for part in (*parts, self._keep_no_more):
            tried(part)
        self._end_all()

    @guarded
    def begin(self) -> None:
        """`open`, for who is not to meet an error of ours."""
        self.open()

    @guarded
    def end(self, state: str, error: str = "") -> None:
        """`close`, in the same way."""
        self.close(state, error)

    def close(self, state: str, error: str = "") -> None:
        """End it: every hook is taken off. Closing twice does nothing, unless the first time was interrupted."""
        if self.closed:
            return
        if self._ending is None:
            self._ending, self._loop_at_end = (state, error), self.schedule.loop(clock.now())
        self._closing = True
        surely(
            self,
            self._keep_no_more,
            self._stop_listening,
            self.step_hooks.close,
            self.knobs.close,
            self._drop_sample,
            self.light.end,
            self.guard.close,
            self.modules.close,
            self.tap.close,
            self._give_back,
            self._end_all,
        )
        if self.state != "failed":  # else who knows what that would meet
            trouble = tried(without_autograd, self._look_last)
            if trouble:  # a device that is gone
                self.say(f"the last look at the weights failed: {trouble}")
        self.snapshots.tell(self.ended)
        self.held = None

    def _end_all(self) -> None:
        watchers.discard(self)
        if self._ending is not None:
            self.state, self.error = self._ending
        self.closed = True

    def _drop_sample(self) -> None:
        sample = self._sample
        if sample is not None:
            sample.hooks.close()
            self._sample = None
            sample.detach()

    def _stop_listening(self) -> None:
        engine_calls.leave(self.losses)

    def _keep_no_more(self) -> None:
        if self.keeper is not None:
            self.keeper.close()

    def _give_back(self) -> None:
        recursion_limit.give_back(self)
        compile_warning.speak(self)

    def _look_last(self) -> None:
        """What the last sample was too early to see: the weights as they are now, and the last counts."""
        self.losses.finish()
        self.hidden = self.step_hooks.are_hidden()
        self._settle(wait=True)
        if self.step and self.last_sample < self.step - 1:
            self._read_weights(self.step - 1)
        self.alerts.units(max(self.step - 1, 0))
        self.alerts.weights_at_the_end(self.last_sample, self.guard.passed)

    @guarded
    def _gone(self, _: Any) -> None:
        """The model no longer exists."""
        if not self.closed and not self.step:
            self.say("the model is gone before its first step, so nothing was seen. Keep it in a variable as long as it trains")
        self.close("ended")

    @guarded
    def exits(self) -> None:
        """The process ends."""
        self.close("ended")

    def _read_weights(self, step: int) -> None:
        statistics = BatchedStatistics()
        for weight in self.index.weights:
            tensor = weight.tensor()
            if tensor is not None:
                statistics.add(weight.rows[:1], tensor)
        readings = statistics.readings()
        if readings is not None:
            self.index.history.take(step, readings)
        self.neurons.finish(step)

    @property
    def step(self) -> int:
        """Steps made so far."""
        return self.steps.made

    @property
    def model(self) -> Module | None:
        """The model, if it still exists."""
        return self._model()

    def fail(self, error: Exception) -> None:
        """Modlab itself failed: say so once, and let the training go on."""
        if self.closed and self._ending is not None:
            return
        if self._ending is None or self._ending[0] != "failed":  # once, whatever fails after it
            self._ending = "failed", line_of(error)
            self.tell(f"modlab{on_rank()}: the watch ended at step {self.step:,}; training goes on. {self._ending[1]}")
        if self.closed:  # it has not even begun
            self._end_all()
        elif not self._closing:
            self.close("failed")

    def say(self, text: str) -> None:
        """Something that the user should know, and that costs no training. Of several ranks the first one says it."""
        self.remarks.append(text)
        if not rank():
            self.tell(f"modlab: {text}")

    def tell(self, text: str) -> None:
        """Write it where the user reads."""
        tell(text)

    # ---- the hooks

    @property
    def attends(self) -> bool:
        """Whether there is anything to do before the optimizer's step."""
        return self.guard.standing or self._sample is not None

    @guarded
    def meets(self, wrapper: Module) -> None:
        """What ``torch.compile`` made of the model is called in its place: from now on as the model, whose inside is not seen."""
        member = next((one for one in self.index.members.values() if not one.path), None)  # the model, or what DDP wraps
        if member is None or id(wrapper) in self.roots:
            return
        number = id(wrapper)
        self.roots.add(number)
        self.index.members[number] = member
        self._wrappers.append(ref(wrapper, lambda _: self._forget(number)))
        if "" not in self.index.opaque:
            self.index.opaque = ("", *self.index.opaque)
            self.modules.stay()
            self.guard.stay()

    def _forget(self, wrapper: int) -> None:
        self.roots.discard(wrapper)
        self.index.members.pop(wrapper, None)

    @property
    def looks(self) -> bool:
        """Whether this step is looked at."""
        return self._sample is not None

    def see_loss(self, name: str, tensor: Any, scale: Any) -> None:
        """``backward()`` is about to be called on a loss."""
        self.clues.loss(name, tensor, self.step, scale, whole=self.looks)

    def wants_loss(self) -> bool:
        """Whether the loss of this step is read."""
        return self.looks or self.clues.wants_loss(self.step)

    @property
    def stands_by(self) -> bool:
        """Whether the gradients of this step are looked at."""
        return self.guard.standing

    @property
    def is_home(self) -> bool:
        """Whether this is the process in which the watch began, and not a fork of it."""
        return not self._away

    def step_begins(self, closure: bool, *, scaled: bool = False) -> None:
        """The optimizer is about to make its step; with a closure the gradients are computed in it. `scaled`: a scaler has judged them."""
        if self.guard.standing and not scaled:
            self.guard.look()
        if self._sample is not None:
            self._sample.step_begins(closure)

    def inner_step_begins(self) -> None:
        """Another optimizer is about to make a step inside of that one's."""
        if self._sample is not None:
            self._sample.inner_step_begins()

    def other_step_begins(self, optimizer: Any) -> None:
        """An optimizer is about to make a step that holds some of the parameters, and whose steps are not those that are counted."""
        if self._sample is not None:
            self._sample.other_begins(optimizer)

    def other_step_ended(self, optimizer: Any) -> None:
        """It has made it."""
        if self._sample is not None:
            self._sample.other_ended(optimizer)

    def step_ended(self, *, stepped: bool) -> None:
        """The optimizer has made a step that is looked at, or skipped it."""
        without_autograd(self._awake, stepped=stepped)
        if self.controls.attention:
            self._obey()

    def step_over(self) -> None:
        """A step has ended that no optimizer told of."""
        if self.step >= self.steps.wake:
            without_autograd(self._awake, stepped=False)
        else:
            self.guard.rest()

    def backward_ended(self) -> None:
        """A backward pass has ended whose step nobody will tell of."""
        if self._sample is not None:
            self._sample.backward_ended()

    def thrown_away(self) -> None:
        """Gradients that were not finite are there no more, and no step was made with them."""
        self.steps.skipped += 1
        if self._sample is not None:
            self._sample.thrown = True

    def pass_begins(self) -> None:
        """A training pass of the root begins."""
        self.step_hooks.pass_begins()

    @guarded
    def _enter(self, module: Module, args: tuple[Any, ...]) -> None:
        if self._sample is not None:
            self._sample.enter(module, args)
        elif self.light.on:
            self.light.enter(module, args)

    @guarded
    def _leave(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if self._sample is not None:
            self._sample.leave(module, args, kwargs, output)
        elif self.light.on:
            self.light.leave(module, output)

    # ---- what happens in the steps that are looked at

    def _awake(self, *, stepped: bool) -> None:
        with self.lock:  # a page may ask in another thread
            self._look(stepped=stepped)

    def _look(self, *, stepped: bool) -> None:
        start = clock.now()
        self.guard.pay()
        self.losses.settle()
        self.state = "running"
        sample = self._sample
        if sample is not None:
            self._end(sample, stepped=stepped)
            self._settle(wait=len(self._owed) > LATE)
            self._count_sample(sample.step)
            self._spend(self.schedule.whole, sample.seconds + self._called() + clock.now() - start, sample, start)
            self._next_whole = self._after(self.schedule.whole)
        elif self.light.on:
            self._end_light_samples()
            called = self._called() * self.light.steps(self.schedule.pace) / 2  # nearly always one of the pair is on
            self._spend(self.schedule.light, self.light.seconds + called + clock.now() - start)
            self._next_light = self._after(self.schedule.light)
        else:
            self._settle()
        self.guard.settle(self.schedule.pace, self.schedule.budget)
        self.guard.rest()
        self.snapshots.show(clock.now())
        self._look_later()
        self._rested = clock.now()

    def _called(self) -> float:
        """Seconds, about, that it takes torch in a step to call the hooks on modules."""
        return EACH * self.index.modules

    def _end(self, sample: Sample, *, stepped: bool) -> None:
        """Of a sample that an interrupt spoilt, nothing is kept."""
        try:
            if not sample.closing:
                sample.close(stepped=stepped, again=self._hidden_pass())
                self.evaluated += sample.in_evaluation
                self._owed.append(sample)
        finally:
            sample.detach()
            self._sample = None

    def _hidden_pass(self) -> tuple[Module, LastPass] | None:
        """The model and its last pass, where a compiler hides what is inside, and that must be seen."""
        model, passes = self.model if self.shadows else None, self.tap.passes
        return None if model is None or not passes else (model, passes[-1])

    def _begin_sample(self) -> Sample:
        """Look at the next step."""
        return Sample(self, self._shared, self.samples, alone=self.last_sample < self.step - 1)

    def _settle(self, *, wait: bool = False) -> None:
        """Take in the samples that are there; those of the CPU are at once. With `wait`, all of them."""
        while self._owed and (wait or self._owed[0].ready()):
            sample = self._owed.pop(0)
            with self.lock:
                sample.finish()
            self._judge(sample)
        if self.light.back.waiting and (wait or self.light.back.ready()):
            self.light.back.read()

    def _spend(self, budget: Budget, seconds: float, sample: Sample | None = None, start: float = 0.0) -> None:
        """Pay for a look, and learn how long the steps before it took; the first samples are free, and show what the next ones cost."""
        now = clock.now()
        schedule = self.schedule
        if schedule.began:
            budget.spend(seconds)
            schedule.tick(self.step, now)
            return
        if sample is None:
            return
        if self._rested:
            schedule.learn(start - self._rested - sample.hooked)
        self._first += seconds
        if self.samples >= DENSE or self._first > FIRST:
            schedule.counting = bool(self.units)
            schedule.share_out()
            schedule.begin(self.step, now, whole=seconds, light=self.light.steps(schedule.pace) * sample.counted)

    def _judge(self, sample: Sample) -> None:
        if not self.neurons.settled and sample.forwards:
            self.neurons.settle(self.index)
        self.neurons.add(sample.step, sample.flows)
        self.stepped |= sample.stepped
        self.alerts.look(sample)

    def _count_sample(self, step: int) -> None:
        self.samples += 1
        self.last_sample = step
        if self.samples % self._thinned == 0:
            self.sampled.append(step)
            if len(self.sampled) >= 4096:
                self.sampled, self._thinned = self.sampled[::2], 2 * self._thinned

    def _look_later(self) -> None:
        """Attach what the next step is watched with, or decide when to wake up again."""
        step, steps = self.step, self.steps
        if step >= self._next_whole:
            self.guard.on()
            self._sample = self._begin_sample()
            steps.wake = step + 1
        elif step >= self._next_light and self.schedule.began and self.light.begin():
            steps.wake = step + self.light.steps(self.schedule.pace)
        else:
            steps.wake = min(self._next_whole, max(self._next_light, step + 1), self.snapshots.next_step())
        if self._owed or self.light.back.waiting:
            steps.wake = step + 1 if not self.light.on else steps.wake

    def _after(self, budget: Budget) -> int:
        """The step at which a budget has room again."""
        schedule = self.schedule
        if not schedule.began or schedule.budget >= 1:
            return self.step
        return self.step + schedule.wait(budget, clock.now())

    def _end_light_samples(self) -> None:
        self.light.end()
        self.alerts.counts(self.step - 1)
        counted = min((units.seen for units in [*self.units.values()]), default=0)
        if self.schedule.counting and counted >= ENOUGH:
            self.schedule.counting = False
            self.schedule.share_out(clock.now())

    def _obey(self) -> None:
        """Pause, and stop, as the page asks."""
        start = clock.now()
        alone = not self.index.distribution.communicates
        if self.controls.paused:
            if not alone:
                self.controls.resume()
                self.say("the loop was not paused: the other ranks would wait for this one")
            self.snapshots.tell(self.snapshots.publish)
        self.controls.wait()
        self.schedule.pause(clock.now() - start)
        if self.controls.stop:
            self.close("stopped")
            if not alone:
                self.say("the watch ended, but the loop goes on: the other ranks would wait for this one")
                return
            raise Stopped(f"stopped at step {self.step:,}, as requested in the view")
        if self.controls.budget is not None:
            self.schedule.budget, self.controls.budget = self.controls.budget, None
            self.schedule.share_out(clock.now())

    # ---- what there is

    def classes(self) -> int:
        """Among how many classes the loss, a cross-entropy, chooses; 0 if it is none, or that cannot be seen."""
        row = self.index.history.find("", ACTIVATION)
        shape = self.index.history.series[row].shape if row >= 0 else ()
        entropy = self.losses.entropy or self.scalars.entropy
        if not entropy or len(shape) < 2 or row in self.index.history.parts:
            return 0
        return shape[1] if entropy == PLANES else shape[-1]

    @guarded
    def log(self, values: dict[str, Any]) -> None:
        """Add a point to each curve."""
        if function_mode_count() or dispatch_modes():
            self._log_apart(values)
        else:
            self._log(values)

    @apart
    def _log_apart(self, values: dict[str, Any]) -> None:
        self._log(values)

    def _log(self, values: dict[str, Any]) -> None:
        self.scalars.log(self.steps.made, values)
        if not (self.closed or self.losses.told.issuperset(values)):
            self.losses.compare(values)

    def _remarks(self) -> tuple[str, ...]:
        """What could not be seen."""
        found = [*self.remarks, *remarks_of(self.index.distribution)]
        if self.tap.is_stage and OF_PIPELINE[STAGE] not in found:
            found.append(OF_PIPELINE[STAGE])
        if self.index.distribution.sharded:
            empty = sum(weight.empty for weight in self.index.weights)
            found.append(UNJUDGED)
            found.append(PARTS + (f"; {format.plural(empty, 'parameter')} {'has' if empty == 1 else 'have'} none here" if empty else ""))
        elif self.index.distribution.communicates and self.index.distribution.world > 1:
            found.append(OWN)
        if self.hidden:
            found.append("the weights changed in steps that torch does not announce, as when one compiled function makes the whole step")
        if self.index.parts > 1:
            found.append(f"the model is very large: each look measures one of its {self.index.parts} parts, in turn")
        missed = max(self.steps.skipped, self.losses.skipped)
        if missed:
            skipped = f"at least {format.plural(missed, 'step')} {'was' if missed == 1 else 'were'} skipped"
            why = "the gradients overflowed, which a scaler expects" if self.losses.are_scaled else "their gradients were not finite"
            found.append(f"{skipped}: {why}")
        return (*found, *self.knobs.remarks())

    def shape_of_slots(self) -> tuple[Any, ...]:
        """Equal as long as slots were only added at the end: how often each part's were halved, and how many series there are."""
        parts = [self.index.history.slots, self.index.history.bin_slots, self.neurons.slots]
        parts += [curve.slots for curve in [*self.scalars.curves.values()]]
        parts += [units.slots for units in [*self.units.values()]]
        return (len(self.index.history.series), *self.losses.shape(), *self.knobs.shape(), *(part.halvings for part in parts))

    def record(self) -> WatchRecord:
        """All that was seen so far; to read it changes nothing."""
        with self.lock, without_torch_function(), without_modes():
            schedule = self.schedule
            self.index.own_more(self.steps.optimizers)  # the last look may be long ago
            self.alerts.look_at_owners()
            loop = schedule.loop(clock.now()) if not self.closed else self._loop_at_end
            curves = self.knobs.with_curves(self.losses.records(self.scalars))
            units = tuple(one.record() for one in [*self.units.values()])
            counted = max((one.seen for one in [*self.units.values()]), default=0)
            record = WatchRecord(
                self.title,
                self.steps.optimizer_name,
                self.state,
                self.step,
                self.samples,
                counted,
                np.array(self.sampled, np.int64),
                schedule.spent,
                loop,
                schedule.budget,
                self.index.history.record(),
                units,
                self.neurons.record(),
                curves,
                tuple(self.alerts.alerts),
                remarks=self._remarks(),
                error=self.error,
                modules=self.index.modules,
                paused=self.controls.paused and not self.closed,
                ranks=self.index.ranks,
                knobs=self.knobs.records(),
                kept=None if self.keeper is None else self.keeper.record(),
            )
        return judged(replace(record, watched=self._watched()))

    def _watched(self) -> Watched:
        """What a verdict rests on beside the numbers."""
        model, steps = self.model, self.steps
        return taken_down(
            self.index,
            steps,
            self.elsewhere.paths,
            self.uncounted,
            self.unregistered.findings(model, steps.optimizers) if steps.optimizer_name else (),
            model if self.closed else None,
            classes=self.classes(),
            evaluated=self.evaluated,
            stepped=self.stepped,
            is_stage=self.tap.is_stage,
            closed=self.closed,
            one_batch=self._one_batch,
            batch_kept=self.clues.kept is not None,
            clues=self.clues.record(
                self.losses.accepted(),
                (self.losses.scaled_steps, self.losses.scaled_clips, self.losses.new_scalers),
                self.step_hooks.rewritten.returned,
                self.losses.rootless,
                self.step_hooks.modes.clues(),
                self.step_hooks.rewritten.clues(),
                self.losses.thrown(),
                closed=self.closed or self._closing,
            ),
        )


def _in_a_child() -> None:
    for one in [*watchers]:
        one.forked()


@atexit.register
def _at_exit() -> None:
    """The process ends: watches end while torch is whole. One that ended with its model would make tensors when torch makes none."""
    for one in [*watchers]:
        one.exits()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_a_child)
