"""The engine of a watch: counts steps, decides when to look, and hands what was seen to those who judge and show it.

Between samples there is one hook, which each step of an optimizer calls: it adds one and compares.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Callable
from time import perf_counter
from typing import Any, cast
from weakref import ReferenceType, WeakSet, ref

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module

from modlab.compat import without_torch_function
from modlab.errors import Stopped
from modlab.instrumentation.watching.alarms import Alarms
from modlab.instrumentation.watching.cast import Cast
from modlab.instrumentation.watching.controls import Controls
from modlab.instrumentation.watching.gauge import Gauge, shares
from modlab.instrumentation.watching.guard import Guard
from modlab.instrumentation.watching.ladder import climb
from modlab.instrumentation.watching.modulehooks import ModuleHooks
from modlab.instrumentation.watching.neurons import Neurons
from modlab.instrumentation.watching.roottap import Pass
from modlab.instrumentation.watching.sample import Sample, captured
from modlab.instrumentation.watching.scalars import PLANES, Scalars
from modlab.instrumentation.watching.schedule import DENSE, FAR, Purse, Schedule
from modlab.instrumentation.watching.stephooks import StepHook, at_work
from modlab.instrumentation.watching.units import Units
from modlab.records.watch import ACTIVATION, WatchRecord

ALL_UNITS = 16_384
"""Units that are counted one by one, in all modules together."""

ENOUGH = 2_000
"""Inputs on which all units were counted, from which on counting gets the smaller part of the budget."""

BURST = 16
"""Steps in a row in which units are counted: to attach costs as much as to count."""

EARLY = 20
"""Steps after which there is something to say, in any case."""

OFTEN = 0.1
"""Seconds between two pictures, at least."""

_TORCHS = r"Using `torch\.compile\(module\)` when there are global hooks"

watchers: WeakSet[Watcher] = WeakSet()
"""All that are open."""


class Watcher:
    """Watches one model.

    Args:
        model: whose modules and parameters; held weakly.
        optimizers: whose steps are the steps; none: the first that holds one of the model's parameters.
        budget: the share of the loop's time that it may take.
        on_nan: see `Guard`.
        shadows: whether a compiled model is run once more to see its activations, see `Shadow`.
    """

    def __init__(self, model: Module, optimizers: list[Any], budget: float, on_nan: str = "report", shadows: bool = False) -> None:
        self._model = ref(model, lambda _: self.close("ended"))
        self.root_id = id(model)
        self.title = type(model).__name__
        self.cast = Cast(model)
        self.units: dict[str, Units] = {}
        self.read_inputs: dict[int, Units] = {}
        self.read_outputs: dict[int, Units] = {}
        self._shared: set[int] = set()  # readers of several modules' units: one nn.ReLU after two layers
        self.neurons = Neurons()
        self.scalars = Scalars()
        self.controls = Controls()
        self.alarms = Alarms(self)
        self.schedule = Schedule(budget)
        self.lock = threading.RLock()
        self.publish: Callable[[], None] | None = None
        self.ended: Callable[[], None] | None = None
        self.remarks: list[str] = []
        self.state, self.error = "waiting", ""
        self.step = self.samples = self.passes = 0
        self.stepped = False  # whether a step of the optimizer was measured
        self.stepping = False  # whether one is being made
        self._loop_at_end = 0.0
        self.last_sample = -1
        self.sampled: list[int] = []
        self._thinned = 1
        self._optimizers: list[ReferenceType[Any]] = [ref(one) for one in optimizers]
        self.optimizer_name = type(optimizers[0]).__name__ if optimizers else ""
        self._main = id(optimizers[0]) if optimizers else 0
        self._sample: Sample | None = None
        self.modules = ModuleHooks(self._enter, self._leave, steady=bool(self.cast.opaque))
        self._light = False
        self._light_seconds = 0.0
        self._next_whole = self._next_light = 0
        self._wake = 0
        self._shown = 0.0
        self._pid = os.getpid()
        self._begins: StepHook | None = None
        self._steps: StepHook | None = None
        self._removed: list[StepHook] = []  # which may still have to be swept
        self._filter: Any = None
        self._guard = Guard(self, model, on_nan)
        self.shadows = shadows and bool(self.cast.opaque)
        self._versions: tuple[int, ...] = ()
        self._told = True  # whether the optimizer told of a step since the last pass

    # ---- open and closed

    def open(self) -> None:
        """Begin to watch, with the next step."""
        self._begins = StepHook(self._step_begins, after=False)
        self._steps = StepHook(self._step_ended, after=True)
        if self._optimizers:
            self.cast.own([one for one in (held() for held in self._optimizers) if one is not None])
        if self.cast.opaque:  # whom torch would tell that these hooks see the wrapper as well
            warnings.filterwarnings("ignore", _TORCHS, UserWarning)
            self._filter = warnings.filters[0]
        self._guard.open()
        self.modules.open()
        self._sample = Sample(self)
        self._wake = 1
        watchers.add(self)

    def close(self, state: str, error: str = "") -> None:
        """End it: every hook is taken off. Closing twice does nothing."""
        if self._steps is None:
            return
        self._loop_at_end = self.schedule.loop(perf_counter())
        self._removed = [one for one in (self._begins, self._steps) if one is not None]
        for one in self._removed:
            one.remove()
        self._begins = self._steps = None
        self.state, self.error = state, error
        watchers.discard(self)
        if self._sample is not None:
            self._sample.detach()
            self._sample = None
        self._lights_off()
        self.modules.close()
        self._guard.close()
        if self._filter in warnings.filters:
            cast(list[Any], warnings.filters).remove(self._filter)
        self._look_last()
        self._tell(self.ended)

    def _look_last(self) -> None:
        """What the last sample was too early to see: the weights as they are now, and the last counts."""
        try:
            if self.step and self.last_sample < self.step - 1:
                with torch.no_grad(), without_torch_function():
                    self._read_weights(self.step - 1)
            self.alarms.units(max(self.step - 1, 0))
            self.alarms.weights_at_the_end()
        except Exception as error:  # noqa: BLE001 - a kernel that is interrupted, a device that is gone
            self.remarks.append(f"the last look failed: {type(error).__name__}")

    def _read_weights(self, step: int) -> None:
        gauge = Gauge()
        for weight in self.cast.weights:
            tensor = weight.tensor()
            if tensor is not None:
                gauge.add(weight.rows[:1], tensor)
        readings, history = gauge.readings(), self.cast.history
        if readings is not None:
            history.add(step, readings.rows, readings.columns)
            history.add_bins(step, readings.rows, shares(readings, history.tops(readings.rows, readings.highest)))
        self.neurons.finish(step)

    def sweep(self) -> None:
        """Take off what could not be when the watch ended inside of a step."""
        for one in self._removed:
            one.sweep()
        self._removed = []

    @property
    def closed(self) -> bool:
        """Whether it has ended, or never began."""
        return self._steps is None

    @property
    def model(self) -> Module | None:
        """The model, if it still exists."""
        return self._model()

    def fail(self, error: Exception) -> None:
        """Modlab itself failed: say so once, and let the training go on."""
        if self.closed:
            return
        text = f"{type(error).__name__}: {error}".partition("\n")[0]
        self.close("failed", text)
        print(f"modlab: the watch ended at step {self.step:,}, the training goes on. {text}", file=sys.stderr)

    # ---- steps

    def is_ours(self, optimizer: Any) -> bool:
        """Whether a step of this optimizer ends a step of the training."""
        return id(optimizer) == self._main or self._adopts(optimizer)

    def _adopts(self, optimizer: Any) -> bool:
        """Take the first optimizer that holds one of the parameters, where none was given."""
        if self._main:
            return False
        if not any(id(tensor) in self.cast.places for group in optimizer.param_groups for tensor in group["params"]):
            return False
        self._main, self.optimizer_name = id(optimizer), type(optimizer).__name__
        self._optimizers = [ref(optimizer)]
        self.cast.own([optimizer])
        return True

    def _step_begins(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """The weights are still good."""
        guard, sample = self._guard, self._sample
        if not (guard.standing or sample is not None) or not self.is_ours(optimizer) or captured():
            return
        self.stepping = True  # a closure's passes belong to this step
        with at_work(after=False):
            if guard.standing:
                guard.look()
            if sample is not None:
                sample.step_begins(bool(args or kwargs.get("closure")))

    def _step_ended(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if id(optimizer) != self._main and not self._adopts(optimizer):
            return
        self.step += 1
        self._told = True
        if self.step < self._wake and not self.controls.attention:
            if self._guard.always:
                self._guard.rest()
                self.stepping = False
            return
        self.stepping = False
        if captured() or os.getpid() != self._pid:
            return
        with at_work(after=True):
            try:
                with torch.no_grad():
                    self._awake(stepped=True)
            except Exception as error:  # noqa: BLE001 - the training goes on
                self.fail(error)
            if self.controls.attention:
                self._obey()

    def _step_over(self, *, stepped: bool) -> None:
        """A step has ended that no optimizer told of."""
        self.step += 1
        if self.step >= self._wake:
            with torch.no_grad():
                self._awake(stepped=stepped)
        else:
            self._guard.rest()

    def pass_begins(self) -> None:
        """A training pass of the root begins. If the step before was never made by an optimizer, it ends here.

        A scaler skipped it, or there is none, and the weights were changed by hand.
        """
        self.passes += 1
        if self.closed or self.stepping or captured():
            return
        try:
            kept = self._guard.tap.passes
            versions = self._weight_versions()
            ended = bool(kept) and kept[-1].backwards and self._is_over(versions)
            if ended:
                self.alarms.skipped += bool(self._main) and versions == self._versions
                self._step_over(stepped=False)
            self._versions, self._told = versions, False
        except Exception as error:  # noqa: BLE001 - the training goes on
            self.fail(error)

    def _is_over(self, versions: tuple[int, ...]) -> bool:
        """Whether a backward pass ended a step: nobody makes steps that we see, they are compiled, or a scaler skipped this one."""
        if not self._main:
            return self.grads_gone() or versions != self._versions
        if versions != self._versions and not self._told:
            self._guard.unseen()
            return True
        return self._guard.spoilt and self.grads_gone()

    def backward_ended(self) -> None:
        """Where no step tells of itself, the gradients are read now."""
        if self._sample is not None:
            with torch.no_grad(), without_torch_function():
                self._sample.read_gradients()

    def passes_kept(self) -> list[Pass]:
        """The training passes of this step."""
        return self._guard.tap.passes

    def _weight_versions(self) -> tuple[int, ...]:
        """How often some weights have been changed in place."""
        some = (weight.tensor() for weight in self.cast.weights[:4])
        return tuple(-1 if one is None or one.is_inference() else one._version for one in some)

    def grads_gone(self) -> bool:
        """Whether what the last backward pass brought was thrown away: a step is over, though no optimizer made one."""
        for weight in self.cast.weights:
            tensor = weight.tensor()
            if tensor is not None and tensor.requires_grad and tensor.grad is not None:
                return not bool(tensor.grad.any())
        return True

    # ---- what happens in the steps that are looked at

    def _awake(self, *, stepped: bool) -> None:
        start = perf_counter()
        self.state = "running"
        sample, self._sample = self._sample, None
        if sample is not None:
            sample.close(stepped=stepped)
            self._judge(sample)
            self._count_sample(sample.step)
            self._guard.settle(self.schedule.pace, self.schedule.budget)
            self._spend(self.schedule.whole, sample.seconds + perf_counter() - start)
            self._next_whole = self._after(self.schedule.whole)
        elif self._light:
            self._lights_off()
            self._spend(self.schedule.light, self._light_seconds + perf_counter() - start)
            self._next_light = self._after(self.schedule.light)
        self._guard.rest()
        self._show(perf_counter())
        self._look_later()

    def _spend(self, purse: Purse, seconds: float) -> None:
        """Pay for a look, and learn how long the steps before it took; the first samples are free."""
        now = perf_counter()
        if self.schedule.began:
            purse.spend(seconds)
            self.schedule.tick(self.step, now)
        elif self.samples >= DENSE:
            self.schedule.counting = bool(self.units)
            self.schedule.share_out()
            self.schedule.begin(self.step, now)

    def _judge(self, sample: Sample) -> None:
        if not self.neurons.settled and sample.forwards:
            self.neurons.settle(self.cast)
        self.neurons.add(sample.step, sample.last)
        self.stepped |= sample.stepped
        self.alarms.look(sample)

    def _count_sample(self, step: int) -> None:
        self.samples += 1
        self.last_sample = step
        if self.samples % self._thinned == 0:
            self.sampled.append(step)
            if len(self.sampled) >= 4096:
                self.sampled, self._thinned = self.sampled[::2], 2 * self._thinned

    def _look_later(self) -> None:
        """Attach what the next step is to be looked at with, or decide when to wake up again."""
        step = self.step
        if step >= self._next_whole:
            self._guard.on()
            self._sample = Sample(self)
            self._wake = step + 1
        elif step >= self._next_light and self._lights_on():
            self._wake = step + BURST
        else:
            self._wake = min(self._next_whole, max(self._next_light, step + 1), self._next_picture())

    def _after(self, purse: Purse) -> int:
        """The step at which a purse has room again."""
        schedule = self.schedule
        if not schedule.began or schedule.budget >= 1:
            return self.step
        return self.step + schedule.wait(purse, perf_counter())

    def _next_picture(self) -> int:
        if self.publish is None or not self.schedule.pace:
            return FAR * FAR
        if self.step < EARLY:
            return EARLY
        return self.step + max(1, int(OFTEN / self.schedule.pace))

    # ---- light samples: units alone

    def _lights_on(self) -> bool:
        if not (self.schedule.began and (self.read_inputs or self.read_outputs)):
            return False
        start = perf_counter()
        self.modules.on(before=bool(self.read_inputs), after=bool(self.read_outputs))
        self._light = True
        self._light_seconds = perf_counter() - start
        return True

    def _lights_off(self) -> None:
        self._light = False
        self.modules.off()
        counted = min((units.seen for units in self.units.values()), default=0)
        if self.schedule.counting and counted >= ENOUGH:
            self.schedule.counting = False
            self.schedule.share_out(perf_counter())

    def _enter(self, module: Module, args: tuple[Any, ...]) -> None:
        if self._sample is not None:
            self._sample.enter(module, args)
        elif self._light:
            self._see_input(module, args)

    def _leave(self, module: Module, args: tuple[Any, ...], output: Any) -> None:
        if self._sample is not None:
            self._sample.leave(module, args, output)
        elif self._light:
            self._see_output(module, args, output)

    def _see_input(self, module: Module, args: tuple[Any, ...]) -> None:
        units = self.read_inputs.get(id(module))
        if units is not None and args and torch.is_grad_enabled() and module.training:
            self._see(units, args[0])

    def _see_output(self, module: Module, args: Any, output: Any) -> None:
        units = self.read_outputs.get(id(module))
        if units is not None and torch.is_grad_enabled() and module.training:
            self._see(units, output)

    def _see(self, units: Units, tensor: Any) -> None:
        start = perf_counter()
        try:
            if isinstance(tensor, Tensor) and not captured():
                units.glance(tensor, self.step)
        except Exception as error:  # noqa: BLE001 - the training goes on
            self.fail(error)
        finally:
            self._light_seconds += perf_counter() - start

    def reads(self, reader: Module, units: Units, *, output: bool) -> None:
        """Count units in light samples where this module takes or gives them; not where it does so for several others."""
        found = self.read_outputs if output else self.read_inputs
        if id(reader) in self._shared or id(reader) in found:
            self._shared.add(id(reader))
            found.pop(id(reader), None)
        else:
            found[id(reader)] = units

    def has_room(self, count: int) -> bool:
        """Whether so many more units can be counted one by one."""
        return sum(units.count for units in self.units.values()) + count <= ALL_UNITS

    # ---- the page, and what it asks for

    def _show(self, now: float) -> None:
        if self.publish is None or (now - self._shown < OFTEN and self.step != EARLY):
            return
        if not self.schedule.shows(now, now - self._shown):
            return
        self._shown = now
        self._tell(self.publish)
        if self.schedule.began:
            self.schedule.page.spend(perf_counter() - now)

    def _tell(self, who: Callable[[], None] | None) -> None:
        """Call what shows things; if that fails, nobody is told any more, and the training goes on."""
        if who is None:
            return
        try:
            who()
        except Exception as error:  # noqa: BLE001 - a comm may be closed, a queue full
            self.publish = None
            self.remarks.append(f"the live view was lost at step {self.step:,}: {type(error).__name__}")

    def _obey(self) -> None:
        """Pause, and stop, as the page asks."""
        start = perf_counter()
        if self.controls.paused:
            self._tell(self.publish)
        self.controls.wait()
        self.schedule.pause(perf_counter() - start)
        if self.controls.stop:
            self.close("stopped")
            raise Stopped(f"stopped at step {self.step:,}, as the view was asked to")
        if self.controls.budget is not None:
            self.schedule.budget, self.controls.budget = self.controls.budget, None
            self.schedule.share_out(perf_counter())

    @property
    def optimizers(self) -> list[Any]:
        """Those that are known, and still exist."""
        return [optimizer for optimizer in (one() for one in self._optimizers) if optimizer is not None]

    def learning_rate(self) -> float | None:
        """The greatest of the optimizers'; None if there is none."""
        rates = [group.get("lr") for optimizer in self.optimizers for group in optimizer.param_groups]
        return max((float(rate) for rate in rates if rate is not None), default=None)

    def classes(self) -> int:
        """Among how many classes the loss, a cross-entropy, chooses; 0 if it is none, or that cannot be seen."""
        row = self.cast.history.find("", ACTIVATION)
        shape = self.cast.history.series[row].shape if row >= 0 else ()
        if not self.scalars.entropy or len(shape) < 2:
            return 0
        return shape[1] if self.scalars.entropy == PLANES else shape[-1]

    def log(self, values: dict[str, Any]) -> None:
        """Add a point to each curve."""
        self.scalars.log(max(self.step - 1, 0), values)

    def _remarks(self) -> tuple[str, ...]:
        """What could not be seen."""
        found = [*self.remarks]
        if self.cast.opaque:
            hidden = ", ".join(path or "the model" for path in self.cast.opaque[:5])
            found.append(f"compiled or scripted, so that what happens inside is not seen: {hidden}")
        if self.alarms.skipped:
            found.append(f"{self.alarms.skipped} of the steps looked at were skipped: their gradients overflowed, as a scaler expects")
        return tuple(found)

    # ---- what there is

    def shape_of_slots(self) -> tuple[Any, ...]:
        """Equal as long as slots were only added at the end: how often each part's were halved, and how many series there are."""
        parts = [self.cast.history.slots, self.cast.history.bin_slots, self.neurons.slots]
        parts += [curve.slots for curve in self.scalars.curves.values()]
        parts += [units.slots for units in self.units.values()]
        return (len(self.cast.history.series), *(part.halvings for part in parts))

    def record(self) -> WatchRecord:
        """All that was seen so far."""
        with self.lock:
            schedule = self.schedule
            loop = schedule.loop(perf_counter()) if not self.closed else self._loop_at_end
            curves = tuple(curve.record() for curve in self.scalars.curves.values())
            units = tuple(one.record() for one in self.units.values())
            counted = max((one.seen for one in self.units.values()), default=0)
            record = WatchRecord(
                self.title, self.optimizer_name, self.state, self.step, self.samples, counted,
                np.array(self.sampled, np.int64), schedule.spent, loop, schedule.budget, self.cast.history.record(), units,
                self.neurons.record(), curves, tuple(self.alarms.alerts), remarks=self._remarks(), error=self.error,
                modules=len(self.cast.members), paused=self.controls.paused and not self.closed,
            )  # fmt: skip
        return climb(record, self)
