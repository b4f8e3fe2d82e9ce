"""The keeper: what ``watch(keep="good")`` keeps, copies of the training at a few good steps and a tape of what follows each.

Good is a step after which loss and weights are finite, and the loss is not worse than what it was lately. When there are too many
states, every second one goes; when the tape is too long, only the first steps after each state stay on it. So both span the run.

A step ends with the optimizer that is counted, and with those that come behind it in the same iteration.

A copy has no graph, so at a state none may be in use: where an iteration uses what it made before its counted step (a GAN's images, for
the discriminator and then for the generator), a step ends for the keeper with the last optimizer that such a gradient was for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple
from weakref import ReferenceType, ref

import torch
from torch import Tensor
from torch.nn import Module

from modlab.forking.kept_states import KeptState, NotCopiedError, TrainedThings, is_finite
from modlab.forking.module_settings import named_modules
from modlab.forking.recording import Recording
from modlab.forking.tape import CHANGED, EDITED, JOINED, OVERHEAD, PlaceNumbers, Tape, TapedStep
from modlab.inspection import stores
from modlab.inspection.optimizers import steppers
from modlab.records.fork import KeptRecord, KeptSetting
from modlab.running.guarded import apart, guarded, line_of
from modlab.running.randomness import in_code

STATES = 8
"""States that are kept at most."""

STATES_ROOM, TAPE_ROOM = 256 << 20, 256 << 20
"""Bytes of both; two states are kept however large they are."""

GAP = 16
"""Steps between two states at first; twice as many each time that every second state goes, so copies cost less and less of a run."""

LEVEL, SPREADS = 16, 3.0
"""Losses that make up its level, and how many of their standard deviations above it is worse."""

BURST = 10.0
"""Times the first loss by which a later one is above it where the weights are lost, though finite for a while."""

LEAST = 8
"""Steps that stay on the tape behind each state."""

AHEAD, BEHIND, APART = "ahead", "behind", "apart"
"""Where another optimizer makes its step in an iteration: before the one that is counted, behind it, or behind passes of its own."""


TORN, GONE = "torn", "gone"
"""Why no state is left, beside `JOINED`."""


class _Part(NamedTuple):
    """What another optimizer's step adds to the last step: where its entries begin there, and what that lacked before."""

    optimizer: int
    step: TapedStep
    begins: int
    before: str


class Keeper:
    """Keeps states and a tape of one training.

    Args:
        model: held weakly.
        optimizers: those that are known.
        steps: how many steps were made.
        say: tells the user something once.

    Attributes:
        states: by the number of steps before them; `tape`: by number, the steps that can be run again.
        pinned: the state from which someone is about to fork, by its number; None if there is none.
        trouble: why nothing more is kept, in one line.
        lost: why no state is left: "joined" (with each step somebody comes who trains along), "torn" (each uses graphs of the one
            before it) or "gone" (the model is); "" if none was taken.
    """

    def __init__(self, model: Module, optimizers: list[Any], steps: Callable[[], int], say: Callable[[str], None]) -> None:
        self._model, self._steps, self._say = ref(model), steps, say
        self.places = PlaceNumbers()
        self.recording = Recording(self, Tape(self.places))
        self._beside: dict[str, ReferenceType[Module]] = {}
        self._joined = 0  # how many modules beside there were
        for one in steppers(tuple(optimizers)):
            self.recording.add(one)
        self.states: dict[int, KeptState] = {}
        self.tape: dict[int, TapedStep] = {}
        self.pinned: int | None = None
        self.reach = 0  # steps that are kept behind each state; 0: all
        self.trouble = self.lost = ""
        self._began = self._step = self._next = 0
        self._taken: TapedStep | None = None  # the last step
        self._parts: list[_Part] = []  # what came behind it and belongs to it, as far as is known
        self._order: dict[int, str] = {}  # by the number of an optimizer that is not counted: where its step comes
        self._followed = False  # whether another one came behind the last step
        self._gap = GAP
        self._last = -1  # the optimizer with whose step an iteration ends; -1: with the step that is counted
        self._is_torn = False  # whether the step that comes next tells which one that is
        self._tape_bytes = self._changed = 0
        self._losses: list[Any] = []

    # ---- on and off

    @guarded
    def begin(self) -> None:
        """`open`, for who is not to meet an error of ours."""
        self.open()

    def open(self) -> None:
        """Begin to keep, with the state as it is."""
        self._began = self._step = self._next = self._steps()
        self.recording.open()
        self._keep()

    def close(self) -> None:
        """Keep nothing more; what was kept stays."""
        self.recording.close()
        self._losses = []

    @property
    def ends(self) -> Keeper:
        """What an error of ours ends: the keeping alone."""
        return self

    def fail(self, error: Exception) -> None:
        """Keep nothing more, and say why."""
        if not self.trouble:
            self.trouble = str(error) if isinstance(error, NotCopiedError) else line_of(error)
            self.recording.close()
            self._say(f"nothing is kept for a fork from step {self._step:,} on: {self.trouble}")

    # ---- told by the recording

    @apart
    def step_taped(self, optimizer: int = -1) -> None:
        """A step may have ended."""
        if self.recording.tape.torn:
            self._tear(self.recording.tape.torn)
        if self._is_torn and optimizer >= 0:
            self._last, self._is_torn = optimizer, False
        if self._last not in (-1, optimizer) and self._last not in self.recording.optimizers:
            self._last = -1
        made = self._steps()
        is_last = self._last in (-1, optimizer)
        if made == self._step:
            if self._comes_behind(optimizer):
                self._follow(optimizer, is_last)
            return
        if made == self._step + 1 and not is_last:
            return
        if made - self._step > 1:
            self._split(optimizer, made - self._step - 1)
        if self.recording.on:
            self._take(self.recording.take(self._step, made))
        self._step, self._parts = made, []
        waits, self._followed = self._followed, False
        self._end(is_last and not waits)

    def _comes_behind(self, optimizer: int) -> bool:
        """Whether the step that it has made belongs to the one that was counted before, and not to the next."""
        if optimizer < 0 or self.recording.is_inside or self._step == self._began:
            return False
        if not self.recording.on:
            return self._order.get(optimizer, AHEAD) != AHEAD
        passes = self.recording.tape.has_passes()
        if optimizer not in self._order:
            self._order[optimizer] = AHEAD if self.recording.is_early(optimizer) else APART if passes else BEHIND
        return self._order[optimizer] == APART or not passes

    def _split(self, optimizer: int, late: int) -> None:
        """An optimizer has come in the place of the one that was counted: so many of its steps were held for parts of the last one."""
        starts = [number for number, part in enumerate(self._parts) if part.optimizer == optimizer]
        if self._taken is None or not 0 < late <= len(starts):
            return
        begins = starts[-late:]
        first = self._parts[begins[0]]
        del self._taken.entries[first.begins :]
        self._taken.lacks = first.before
        if self.states.pop(self._step, None) is not None:  # it was kept behind the last part, which has another number now
            self._next = self._step
        for one, end in pairwise([*begins, len(self._parts)]):
            steps = [part.step for part in self._parts[one:end]]
            made = TapedStep(self._step, self._step + 1, [entry for step in steps for entry in step.entries])
            made.first, made.lacks = steps[0].first, next((step.lacks for step in steps if step.lacks), "")
            self.tape[made.number] = self._taken = made
            self._step += 1

    def _follow(self, optimizer: int, is_last: bool) -> None:
        """What came behind the last step belongs to it; a state that was kept between the two lies in the middle of an iteration."""
        if self.recording.on:
            more = self.recording.take(self._step, self._step)
            if self._taken is not None and self._taken.until == self._step:
                self._parts.append(_Part(optimizer, more, len(self._taken.entries), self._taken.lacks))
                self._taken.entries += more.entries
                self._taken.lacks, self._taken.other = self._taken.lacks or more.lacks, max(self._taken.other, more.other)
                self._count(self._taken, more)
        if self.states.pop(self._step, None) is not None:
            self._next = self._step
        self._followed = True
        self._end(is_last)

    def _end(self, is_whole: bool) -> None:
        """A step has ended, and if it is whole, an iteration: a state may be kept."""
        if self._step >= self._next and (is_whole or self._is_overdue()) and self._is_good():
            self._keep()
        if self._tape_bytes > TAPE_ROOM:
            self._thin_tape()
        self._rest()

    def _tear(self, number: int) -> None:
        """A gradient has flowed through a tensor that is older than this step: a state between the two lacks the graph."""
        self._is_torn, self.recording.tape.torn = True, 0
        whole = {step: one for step, one in self.states.items() if one.made < number}
        if len(whole) < len(self.states):
            self.states, self.lost = whole, TORN
            self._next = self._step + self._gap
            self._gap *= 2  # it may be so in each step, as where a batch is prepared one step ahead
            self._drop()

    def _take(self, step: TapedStep) -> None:
        losses = step.losses()
        if losses:
            self._losses = [*self._losses[1 - LEVEL :], step.value_of(losses[-1])]
        self.tape[step.number] = self._taken = step
        self._count(step, step)

    def _count(self, step: TapedStep, part: TapedStep) -> None:
        """A part of a step has come."""
        if step.lacks == JOINED and self.states.pop(step.number, None) is not None:  # nothing can be run from there
            self.lost = JOINED
        if part.lacks in (CHANGED, EDITED, JOINED) and self._changed < STATES:  # what was kept before ends here: a state soon
            self._changed += 1
            self._next = step.until
        tape = self.recording.tape
        self._tape_bytes += len(part.entries) * OVERHEAD + part.states() + tape.fresh
        tape.fresh = 0

    def new_holder(self, thing: Any) -> bool:
        """An optimizer or a module takes part that was not known: what was kept without it is completed, or ends with this step."""
        known = self._new_module(thing) if stores.is_module(thing) else self._new_optimizer(thing)
        if not known:
            self.recording.tape.lacks = JOINED
        return known

    def _new_optimizer(self, optimizer: Any) -> bool:
        number = self.recording.add(optimizer)
        return all([state.join(number, optimizer) for state in self.states.values()])

    def _new_module(self, module: Module) -> bool:
        if any(one() is module for one in self._beside.values()):  # no state was kept since it came
            return False
        self._joined += 1
        name = f"(beside {self._joined})"
        tensors = [*TrainedThings(Module(), [], {name: module}).tensors()]
        self._beside[name] = ref(module, partial(self._gone, name, frozenset(map(id, tensors))))
        trained = torch.is_grad_enabled() and any(one.requires_grad for one in tensors)  # a teacher is called without gradients
        shared = any(map(self.places.memories.is_of_the_model, tensors))
        if trained or shared or self.recording.tape.lacks == JOINED:
            return False
        self._join(name, module)
        return True

    def _gone(self, name: str, tensors: frozenset[int], _: Any) -> None:
        """A module beside is gone: others may get the identities of its parts."""
        self._beside.pop(name, None)
        self.places.disown(tensors)
        parts = {key for key, path in self.recording.members.items() if path == name or path.startswith(f"{name}.")}
        self.recording.members = {key: path for key, path in self.recording.members.items() if key not in parts}

    def _join(self, name: str, module: Module) -> None:
        """A module without parameters that are trained: before now it had no part in the training."""
        beside = TrainedThings(Module(), [], {name: module})
        for tensor in beside.tensors():
            self.recording.tape.own(tensor)
        for state in self.states.values():
            state.join_module(name, module, self.places)
        members = named_modules([(name, module)])
        self.recording.members |= {id(one): path for path, one in members.items()}

    # ---- states

    def things(self) -> TrainedThings | None:
        """The training itself, as far as it is there; None if the model is gone."""
        model, optimizers = self._model(), self.recording.optimizers
        if model is None:
            return None
        beside = {name: one for name, held in self._beside.items() if (one := held()) is not None}
        return TrainedThings(model, [*optimizers.values()], beside, optimizers)

    def _keep(self) -> None:
        things = self.things()
        if things is None:
            self.lost = GONE
            return
        self.places.keep_own([*things.tensors()])
        modules = things.modules()
        self.recording.members = {id(module): name for name, module in modules.items()}
        self.recording.settings.follow(modules)
        self.recording.attributes.follow(modules)
        self.recording.private = in_code(modules.values())
        for number, optimizer in self.recording.optimizers.items():
            self.recording.groups.follow(number, optimizer)
        self.states[self._step] = KeptState(self._step, things, self.places, self._level())
        self._thin_states()
        self._next = self._step + self._gap

    def _thin_states(self) -> None:
        while len(self.states) > 2 and (len(self.states) > STATES or sum(one.bytes for one in self.states.values()) > STATES_ROOM):
            self._halve_states()

    def _halve_states(self) -> None:
        """Every second state goes; the first, the last and the pinned one stay, where more than two can."""
        starts = [*self.states]
        kept = [one for place, one in enumerate(starts) if place % 2 == 0 or one in (starts[-1], self.pinned)]
        if len(kept) == len(starts):
            kept.pop(len(kept) // 2)
        self.states = {number: self.states[number] for number in kept}
        for one in self.states.values():
            one.forget(self.places)
        self._gap *= 2
        self._drop()

    def _is_good(self) -> bool:
        """Whether loss and weights are finite, and the loss is not worse than lately; overdue, finite is enough."""
        model = self._model()
        values = _numbers(self._losses)
        if model is None or not all(map(math.isfinite, values)) or not is_finite(model):
            return False
        if len(values) < 2 or self._is_overdue():
            return True
        mean, spread = _level(values[:-1])
        return values[-1] <= mean + SPREADS * spread + 1e-12

    def _is_overdue(self) -> bool:
        return self._step - self._next > 2 * self._gap

    def _level(self) -> tuple[float, float]:
        values = _numbers(self._losses)
        return _level(values) if values else (math.nan, math.nan)

    # ---- the tape

    def _thin_tape(self) -> None:
        """Keep fewer steps behind each state."""
        while True:
            self._drop()
            if self._tape_bytes <= TAPE_ROOM:
                return
            if self.reach == LEAST:
                if len(self.states) <= 2:
                    return
                self._halve_states()
                continue
            reach = (self.reach or len(self.tape) // max(1, len(self.states)) + 1) // 2
            self.reach = max(LEAST, reach)

    def _drop(self) -> None:
        """Let go of steps that lie behind no state, or too far."""
        if self.states:
            starts = [*self.states]
            first = starts[0]
            reach = self.reach or math.inf
            kept = [step for step in self.tape.values() if step.number >= first and any(0 <= step.number - one < reach for one in starts)]
            self.tape = {step.number: step for step in kept}
        steps = self.tape.values()
        states = sum(len(step.entries) * OVERHEAD + step.states() for step in steps)
        self._tape_bytes = states + self.recording.tape.recount(steps)

    def _rest(self) -> None:
        """See no more where the tape behind the last state is long enough, until the next one is due."""
        last = max(self.states, default=self._step)
        full = bool(self.reach) and self._step - last >= self.reach
        if full and self.recording.on and self.recording.optimizers:
            self.recording.rest()
        elif not full and not self.recording.on and not self.trouble:
            self.recording.resume()

    # ---- what there is

    def there(self) -> TrainedThings:
        """The training itself, as far as it is there."""
        some = [self._model(), *(one() for one in self._beside.values())]
        optimizers = [*self.recording.optimizers.values()]
        beside = {str(number): one for number, one in enumerate(some) if one is not None}
        return TrainedThings(Module(), optimizers, beside)

    def tensors(self) -> list[Tensor]:
        """The parameters and buffers of all that train along, as far as they are there."""
        return [*self.there().tensors()]

    def from_state(self, step: int) -> KeptState | None:
        """The last state at or before a step."""
        return self.states[max(found)] if (found := [one for one in self.states if one <= step]) else None

    def latest(self) -> int:
        """The last state with steps behind it."""
        return max((number for number, one in self.states.items() if any(self.after(one))), default=max(self.states))

    def sound(self) -> list[int]:
        """The states behind which the loss has not burst."""
        losses = {number: self._next_loss(one) for number, one in self.states.items()}
        first = losses[min(losses)]
        return [number for number, loss in losses.items() if not loss > first + BURST * abs(first)]

    def _next_loss(self, state: KeptState) -> float:
        step = next(self.after(state), None)
        losses = step.losses() if step is not None else []
        return next(iter(_numbers([step.value_of(losses[-1])])), math.nan) if step is not None and losses else math.nan

    def after(self, state: KeptState) -> Iterator[TapedStep]:
        """The steps that follow a state, as long as they are kept."""
        number = state.step
        while (step := self.tape.get(number)) is not None:
            yield step
            number = step.until

    def record(self) -> KeptRecord:
        """What is kept, and how much memory it takes."""
        states = tuple(sorted(self.states))
        until = tuple(max((step.until for step in self.after(self.states[one])), default=one) for one in states)
        kept = [self.states[one] for one in states]
        size = self._tape_bytes + sum(one.bytes for one in kept)
        rates = tuple(one.rate() for one in kept)
        groups = max((sum(len(each.param_groups) for each in one.things.optimizers) for one in kept), default=0)
        return KeptRecord(states, until, size, self.trouble, rates, groups, _settings(kept))


def _settings(kept: list[KeptState]) -> tuple[KeptSetting, ...]:
    """What is set on modules in the last state, and what it was in the others."""
    nothing = ("", math.nan)
    last = kept[-1].settings.items() if kept else ()
    return tuple(KeptSetting(name, kind, tuple(one.settings.get(name, nothing)[1] for one in kept)) for name, (kind, _) in last)


def _numbers(losses: list[Any]) -> list[float]:
    return [float(one.double().sum()) for one in losses if one is not None]


def _level(values: list[float]) -> tuple[float, float]:
    mean = sum(values) / len(values)
    return mean, math.hypot(*(one - mean for one in values)) / math.sqrt(len(values))
