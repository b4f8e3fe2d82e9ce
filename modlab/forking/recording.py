"""Recording a tape: a mode for functions of torch between the modules, hooks on the outermost calls of modules and on optimizers' steps.

The mode is off inside of modules, backward passes and optimizers' steps, where it would turn fused paths off; it lies below all modes
of the user's, so that the end of theirs takes theirs off.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from threading import enumerate as threads
from threading import get_ident
from types import FrameType
from typing import Any, Protocol
from weakref import ReferenceType, WeakSet, ref

import torch
from torch import Tensor
from torch.nn import Module

from modlab import compat
from modlab.compat import FunctionMode, pop_function_mode, push_function_mode, top_function_mode
from modlab.forking import taped_functions as functions
from modlab.forking.clipping import CLIP_FILE, ClipCall, ClipCalls
from modlab.forking.kept_states import scaled_by
from modlab.forking.module_settings import GroupSettings, ModuleSettings, TensorAttributes
from modlab.forking.nests import tensors_in
from modlab.forking.rounds import Round
from modlab.forking.tape import (
    BACKWARD,
    CALL,
    CHANGED,
    CHECK,
    EDITED,
    FOREIGN,
    FUNCTION,
    LACKING,
    SCALE,
    SET,
    STEP,
    ZERO,
    Place,
    Tape,
    TapedStep,
    TapeEntry,
    alike,
    constants_in,
    numbers_in,
)
from modlab.forking.zeroing import ZeroCall, ZeroCalls
from modlab.inspection import stores
from modlab.running import guarded as guarding
from modlab.running.guarded import Look, guarded
from modlab.running.listener import GlobalHooks
from modlab.running.module_kinds import is_fused, is_opaque
from modlab.running.optimizer_hooks import OptimizerHooks
from modlab.running.randomness import Meter, Private, generators, states
from modlab.running.sandbox import AROUND
from modlab.statistics.memory import is_there
from modlab.tracing import callers

LOSS = 1 << 10
"""Numbers of what a backward pass began from that are kept, to tell whether a fork is the same training."""

WIDE = frozenset({"Python's random", "numpy"})
LEARNT = 20
"""Calls after which it is known whether these are used."""

_SCALER, _SCALES = "grad_scaler.py", ("scale", "apply_scale")
_FUNCTION = os.path.join("autograd", "function.py")
_HOOK = os.path.join("utils", "hooks.py")


class TapedWatch(Look, Protocol):
    """Whose training is taped."""

    def step_taped(self, optimizer: int = -1) -> None:
        """An optimizer, by its number, has made a step, or a pass begins (-1): was it the end of a step that is counted?"""

    def new_holder(self, thing: Any) -> bool | None:
        """An optimizer or a module takes part that was not known; whether what was kept can be completed."""


class _Mode(FunctionMode):
    """Hands each function of torch to `seen`."""

    def __init__(self, seen: Callable[..., Any]) -> None:
        self._seen = seen

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.compiler.is_compiling() or compat.being_traced():  # what is being captured must not have us in it
            return func(*args, **(kwargs or {}))
        return self._seen(func, args, kwargs or {})


class Aside:
    """A recording sees nothing of what is called inside. It is no generator, which an interrupt may leave to end at any time later.

    Args:
        recording: which one.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording, self._is_away = recording, False

    def __enter__(self) -> None:
        self._is_away = self._recording.can_look_away()
        if self._is_away:
            self._recording.look_away()

    def __exit__(self, *_: object) -> None:
        """May come more than once."""
        if self._is_away:
            self._recording.look_again()
        self._is_away = False


class Recording:
    """Tapes one training in the thread in which it was opened.

    Args:
        watch: whose it is.
        tape: where it goes.

    Attributes:
        members: the names of modules by identity: of the model, and of others that train along.
        settings, groups: what the user sets on modules and in optimizers; attributes: tensors that stand in modules.
        is_elsewhere: whether one of its optimizers made a step in another thread, which is not taped.
        private: generators outside of the model that its code refers to.
    """

    def __init__(self, watch: TapedWatch, tape: Tape) -> None:
        self.ends = self._watch = watch
        self.tape, self._places = tape, tape.places
        self.members: dict[int, str] = {}
        self._optimizers: dict[int, ReferenceType[Any]] = {}
        self._added = 0
        self._early: WeakSet[Any] = WeakSet()  # optimizers, known or not, that made a step before the first one was over
        self._is_first = True  # whether that is under way
        self.on = self.is_elsewhere = False
        self._thread = 0
        self._depth = 0  # of modules, steps and backward passes in each other
        self._outer: tuple[str, int, int] = "", 0, 0  # what the outermost one is: kind, identity, and the frame that runs it
        self._entry: TapeEntry | None = None
        self._mode = _Mode(self._seen)
        self._modules = GlobalHooks(self._enter, self._leave, with_kwargs=True, always_call=True)
        self._hooks = OptimizerHooks(self._step_begins, self._step_ended)
        self._closures: list[tuple[TapeEntry, list[TapeEntry]]] = []  # steps with a closure, and the entries before them
        self.private: list[Any] = []
        self._private: list[tuple[Private, Any]] = []  # as they were before the call under way
        self._clips, self._zeroings = ClipCalls(), ZeroCalls(self._name_of)
        self._round: Round | None = None  # the one under way, behind an optimizer's step
        self.settings, self.attributes = ModuleSettings(), TensorAttributes()
        self.groups = GroupSettings()
        self._strange: dict[int, tuple[ReferenceType[Module], bool]] = {}  # modules outside: whether a tensor depends on the weights
        self._is_transformed = False  # whether the model was called under torch.func in this step: what that gives is not taped
        self._learnt = 0
        self._wide, self._widely = True, False  # whether Python's and numpy's generators are asked as well, and were drawn from

    @property
    def optimizers(self) -> dict[int, Any]:
        """Those whose steps are taped, by number, as far as they are there."""
        return {number: one for number, held in self._optimizers.items() if (one := held()) is not None}

    @property
    def is_inside(self) -> bool:
        """Whether an optimizer makes a step, whose closure runs."""
        return bool(self._closures)

    def is_of_this_thread(self) -> bool:
        """Whether the training runs in the thread that asks, or in none any more."""
        return self._thread == get_ident() or all(one.ident != self._thread for one in threads())

    def is_early(self, number: int) -> bool:
        """Whether an optimizer made a step before the first one was over."""
        return self.optimizers.get(number) in self._early

    def add(self, optimizer: Any) -> int:
        """Tape its steps; the number that it gets."""
        self._optimizers = {number: held for number, held in self._optimizers.items() if held() is not None}
        self._optimizers[self._added] = ref(optimizer)
        self._added += 1
        return self._added - 1

    # ---- on and off

    def open(self) -> None:
        """Begin to see."""
        self._thread = get_ident()
        AROUND.append(self.aside)
        self._modules.open()
        for handle, held in zip(self._modules.handles, self._modules.stores, strict=True):
            held.move_to_end(handle.id)  # behind those that notice that a step has ended of which no optimizer tells
        self._hooks.open()
        self.on = True
        self._put_on()

    def close(self) -> None:
        """Take everything off; may be called again."""
        self.on = False
        if self.aside in AROUND:
            AROUND.remove(self.aside)
        self._places.let_go()
        self._hooks.close()
        self._modules.close()
        if get_ident() == self._thread:
            compat.leave_function_mode(self._mode)
        self._entry = None

    def rest(self) -> None:
        """See nothing for some steps."""
        self.on = False
        self._take_off()
        self._modules.off()

    def resume(self) -> None:
        """See again, from the next call on."""
        self._depth, self._entry = 0, None
        self.groups.rested()
        self.on = True
        self._modules.on()
        self._put_on()

    def aside(self) -> Aside:
        """See nothing of what is called inside, in this thread."""
        return Aside(self)

    def can_look_away(self) -> bool:
        """Whether it sees what is called here and now."""
        return self.on and get_ident() == self._thread and not self._depth

    def look_away(self) -> None:
        """See nothing for a while."""
        self._take_off()
        self._depth, self._outer = 1, ("aside", 0, 0)

    def look_again(self) -> None:
        """See again; may be called again."""
        self._depth = 0
        self._put_on()

    def _put_on(self) -> None:
        """The outermost of all modes."""
        if not self.on:
            return
        others = [pop_function_mode() for _ in range(compat.function_mode_count())]
        if not any(one is self._mode for one in others):
            others.append(self._mode)
        for one in reversed(others):
            push_function_mode(one)

    def _take_off(self) -> None:
        count = compat.function_mode_count()
        if count == 1 and top_function_mode() is self._mode:
            pop_function_mode()
        elif count:
            for one in reversed([pop_function_mode() for _ in range(count)]):
                if one is not self._mode:
                    push_function_mode(one)

    # ---- functions

    def _seen(self, function: Any, args: Any, kwargs: Any) -> Any:
        kind = functions.kind_of(function)
        if kind == functions.QUIET and not self._is_scaler_asking(function, args):
            return function(*args, **kwargs)
        entry = self._function_begins(function, kind, args, kwargs)
        if entry is None:
            result = function(*args, **kwargs)
            if self.tape.sees_inside:
                self._pass_on((args, kwargs), result)
            return result
        if kind != functions.ENGINE:
            result = function(*args, **kwargs)
        else:
            result = self._run_engine(function, args, kwargs)
        self._function_ended(entry, args, result)
        return result

    @guarded
    def _pass_on(self, things: Any, result: Any) -> None:
        if self.on and not self._depth:
            self.tape.pass_on(things, result)

    def _run_engine(self, function: Any, args: Any, kwargs: Any) -> Any:
        self._depth += 1
        try:
            return function(*args, **kwargs)
        finally:
            self._depth = max(0, self._depth - 1)

    def _is_scaler_asking(self, function: Any, args: Any) -> bool:
        """Whether a `GradScaler` decides whether to skip a step."""
        return getattr(function, "__name__", "") == "item" and _caller().f_code.co_filename.endswith(_SCALER) and self._places.touch(args)

    @guarded
    def _function_begins(self, function: Any, kind: int, args: Any, kwargs: Any) -> TapeEntry | None:
        if self._depth or not self.on:
            return None
        places = self._places
        if not places.touch(args) and not (kwargs and places.touch(kwargs.values())):
            if kind == functions.WRITES or "out" in kwargs:
                self.tape.spare((*args, *kwargs.values()))
            if functions.gives_gradient(function):
                self._asked_for_gradient(args[0])
            if kind == functions.ENGINE:
                self.tape.lacks = self.tape.lacks or LACKING * self.tape.reaches_weights((args, kwargs))
            return None
        if compat.graph_task() != -1 or compat.is_simulated() or torch.compiler.is_compiling():
            return None
        self._ask_round(sys._getframe(1))
        changed = args[0] if kind == functions.WRITES and args else kwargs.get("out")
        if kind == functions.WRITES and str(getattr(function, "__name__", "")).startswith("_amp"):
            changed = args  # they write into several
        if changed is not None:
            self._adopt(changed if type(changed) in (list, tuple) else (changed,))
        return self._function_entry(function, kind, args, kwargs, changed)

    def _asked_for_gradient(self, tensor: Tensor) -> None:
        """Of a tensor that is not known."""
        if self.tape.reaches(tensor):
            self.tape.lacks = self.tape.lacks or LACKING
        frame = _caller()
        if self._zeroings.of(frame) is not None:
            self._ask_round(frame)
            self._zeroing(frame)

    def _zeroing(self, frame: FrameType) -> ZeroCall | None:
        """The call of `zero_grad` under way; it has an entry of its own, for in a fork others may have gradients than these."""
        call = self._zeroings.of(frame)
        if call is not None and not call.is_taped:
            entry = TapeEntry(ZERO, call.of)
            entry.zeroing, entry.behind, call.is_taped = call, self.tape.behind, True
            if isinstance(call.of, int):
                entry.settings = self.groups.added(call.of, self.optimizers[call.of], self._places)
            self.tape.entries.append(entry)
        return call

    def _ask_round(self, frame: FrameType) -> None:
        if self._round is not None and not self._round.goes_on(frame):
            self._round = None
        self.tape.behind = self._round is not None

    def _function_entry(self, function: Any, kind: int, args: Any, kwargs: Any, changed: Any) -> TapeEntry:
        what = functions.deep_copy if kind == functions.COPIES else function
        given = args[:1] if kind == functions.COPIES else args
        encoded = self.tape.encoded
        entry = TapeEntry(FUNCTION, what, encoded(given), encoded(kwargs) if kwargs else None, functions.running_context())
        frame = _caller()
        name, file = frame.f_code.co_name, frame.f_code.co_filename
        entry.caller = name if file.endswith((CLIP_FILE, _HOOK)) else ""
        entry.clip, entry.zeroing = self._clips.of(frame), self._zeroing(frame)
        entry.behind = self.tape.behind
        if entry.clip is not None:
            self._note_clip(entry.clip, entry)
        if changed is not None:
            some = changed if type(changed) in (list, tuple) else (changed,)
            entry.writes = tuple(place.number for place in _flat(encoded(list(some))) if type(place) is Place)
        self.tape.lacks = self.tape.lacks or LACKING * self._comes_past(function, entry)
        if functions.draws(function) or kind == functions.ENGINE:  # hooks on gradients may draw
            self._draw(entry)
        if name in _SCALES and file.endswith(_SCALER) and "mul" in getattr(function, "__name__", "") and _is_loss(args[0]):
            entry.kind, entry.value = SCALE, alike(args[0])
        if kind == functions.ENGINE:
            self.tape.tear((args, kwargs))
        if kind == functions.ENGINE and functions.is_backward(function):
            self._backward(entry, args, kwargs)
        elif kind == functions.DECIDES or kind == functions.QUIET:
            entry.kind = CHECK
        return entry

    @staticmethod
    def _note_clip(call: ClipCall, entry: TapeEntry) -> None:
        if functions.gives_gradient(entry.what):
            call.asked.update(dict.fromkeys(numbers_in(entry.args)))
        elif any(True for _ in constants_in((entry.args, entry.kwargs))):
            call.whole = False  # gradients of strangers

    def _comes_past(self, function: Any, entry: TapeEntry) -> bool:
        """Whether it writes what was computed past the tape: a gradient of no history, or what torch.func may have given."""
        if not entry.writes or not (functions.sets_gradient(function) or self._is_transformed):
            return False
        return any(one.tensor.is_floating_point() and bool(one.tensor.any()) for one in constants_in((entry.args, entry.kwargs)))

    def _backward(self, entry: TapeEntry, args: Any, kwargs: Any) -> None:
        entry.kind, entry.line = BACKWARD, _line()
        tensors = args[0] if args else kwargs.get("tensors")
        first = tensors[0] if type(tensors) in (list, tuple) else tensors
        if _is_loss(first):
            entry.value = alike(first)

    def _adopt(self, things: Sequence[Any]) -> None:
        """These are about to be changed by what depends on the weights: from now on they do as well."""
        for thing in things:
            if type(thing) in (list, tuple):
                self._adopt(thing)
            elif issubclass(type(thing), Tensor) and not self._places.knows(thing):
                self.tape.spare((thing,))
                self.tape.adopt(thing)
                self._strange = {}

    @guarded
    def _function_ended(self, entry: TapeEntry, given: Any, result: Any) -> None:
        if entry.caller == "_apply_on_tensors":  # for a full backward hook a module's output is wrapped, in a fork as well
            self._places.meet(result, self._places.of(given[0]))
            return
        known = self._places.of(result)
        if known and self._places.is_new(known) and not entry.writes and entry.kind == FUNCTION:
            return  # what the tape has already: the same gradient, a tensor that was of that dtype before
        if entry.kind == CHECK:
            entry.value = bool(result)
        elif entry.kind != BACKWARD:
            self.tape.end(entry, result)
        if entry.clip is not None and "norm" in getattr(entry.what, "__name__", ""):
            entry.clip.norm = entry.outputs[0]
        if entry.writes and functions.moves(entry.what):
            self._places.move(given[0])
        self._drew(entry)
        self.tape.entries.append(entry)

    # ---- modules

    def _enter(self, module: Module, args: Any) -> None:
        if torch.compiler.is_compiling() or self._thread != get_ident():
            return
        if self._depth and not self._is_lost(module):
            self._depth += 1
            return
        if id(module) not in self.members and not any(True for _ in tensors_in(args)):
            return  # of another module with arguments by name, which are told at its end, the functions are taped
        self._depth, self._outer = 1, ("call", id(module), id(sys._getframe(1)))
        self._call_begins(module, args)

    def _is_lost(self, module: Module) -> bool:
        """Whether the outermost call has ended without our being told, by an interrupt."""
        kind, identity, frame = self._outer
        if kind != "call" or identity != id(module) or callers.runs(frame):
            return False
        self._take_off()
        self._entry = None
        return True

    @guarded
    def _call_begins(self, module: Module, args: Any) -> None:
        self._entry = None
        if compat.graph_task() != -1 or compat.is_simulated():
            self._is_transformed = self._is_transformed or id(module) in self.members
            return
        self._watch.step_taped()
        if not self.on:
            return
        if self._only_passes_on(module):
            self._depth = 0
            return
        self._take_off()
        self._round, self.tape.behind = None, False
        if id(module) not in self.members and not self._is_stranger(module, args):
            return
        name = self.members.get(id(module))
        training = bool(stores.contents(module).get("training", True))
        entry = TapeEntry(CALL, module if name is None else name, self.tape.encoded(args), None, functions.running_context())
        entry.value = training
        if name is not None:
            self._ask_members()
            entry.settings = self.settings.changes()
        self._draw(entry)
        self._entry = entry

    def _ask_members(self) -> None:
        """Buffers that the loop replaces are taped; a fork cannot repeat what else it puts into the model or takes out of it."""
        if (other := self.settings.other_members()) is not None:
            self.tape.other = self.tape.other if self.tape.lacks == CHANGED else other  # the first tells: it is put back after that
            self.tape.lacks = CHANGED
        replaced = self.settings.replaced()
        self.tape.entries += [TapeEntry(SET, (path, name), (self.tape.as_it_is(one),)) for _, path, name, one in replaced]
        self._places.replace(replaced)

    def _only_passes_on(self, module: Module) -> bool:
        """Whether it is not the model's, but all that it holds is (a slice, a wrapper): what it calls is taped, as in a loop."""
        if id(module) in self.members or is_opaque(module) or is_fused(module):
            return False
        inside = [*stores.modules(module)]
        strangers = [one for one in inside if id(one) not in self.members]
        return len(strangers) < len(inside) and not any(True for one in strangers for _ in stores.named_tensors(one))

    def _is_stranger(self, module: Module, args: Any) -> bool:
        """Whether the call of a module that is not the model's is taped: it depends on the weights, by what it gets or by what it holds."""
        touched = self._is_touched(module)
        if not touched and not self._places.touch(args):
            return False
        inside = [*stores.modules(module)]
        held = [tensor for one in inside for _, tensor in stores.named_tensors(one)]
        frozen = not any(tensor.requires_grad for tensor in held)
        if touched or not frozen or (held and any(map(stores.mode, inside))):  # else a fork may call it as it is
            return bool(self._watch.new_holder(module)) and id(module) in self.members
        return True

    def _is_touched(self, module: Module) -> bool:
        """Whether a tensor of a module that is not the model's depends on the weights, as those of a moving average do."""
        held, known = self._strange.get(id(module), (None, False))
        if held is None or held() is not module:
            known = any(
                self._places.knows(tensor) or (tensor.requires_grad and self._is_trained(tensor))
                for one in stores.modules(module)
                for _, tensor in stores.named_tensors(one)
            )
            self._strange[id(module)] = ref(module), known
        return known

    def _is_trained(self, tensor: Tensor) -> bool:
        """Whether an optimizer that trains the model holds it."""
        known = self.optimizers.values()
        return any(one is tensor for optimizer in known for group in optimizer.param_groups for one in group["params"])

    def _leave(self, module: Module, args: Any, *rest: Any) -> None:
        if torch.compiler.is_compiling() or self._thread != get_ident() or not self._depth:
            return
        self._depth -= 1
        if self._depth or self._outer[0] != "call":
            if self._entry is not None and self._outer[0] == "call":
                self._left_inside(module, args, *rest[1:])
            return
        entry, self._entry = self._entry, None
        if entry is not None and len(rest) > 1:  # after an exception there is one alone
            self._call_ended(entry, *rest)
        if compat.graph_task() == -1 and not compat.is_simulated():
            self._put_on()

    @guarded
    def _left_inside(self, module: Module, *things: Any) -> None:
        """A hook of the user's may take out what it sees inside of the model, where nothing is taped."""
        held = stores.contents(module)
        if held["_forward_hooks"] or held["_forward_pre_hooks"]:
            self.tape.inner(one for one in tensors_in(things) if one.grad_fn is not None)

    @guarded
    def _call_ended(self, entry: TapeEntry, kwargs: Any, output: Any) -> None:
        if kwargs:
            entry.kwargs = self.tape.encoded(kwargs)
        self._drew(entry)
        self.tape.end(entry, output)
        self.tape.entries.append(entry)
        if type(entry.what) is str:
            self.tape.leave(entry, self.attributes.now())
            self.settings.read()
            self._places.replace(self.settings.replaced())

    # ---- steps

    @guarded
    def _step_begins(self, optimizer: Any, args: Any, kwargs: Any) -> Any:
        if self._thread != get_ident() or compat.graph_task() != -1:
            return None
        if self._is_first:
            self._early.add(optimizer)
        if self._depth:
            if self._outer[:2] != (STEP, id(optimizer)):
                self._depth += 1
                return None
            self._depth = 0  # its last step raised
        if not self.on:
            return None
        number = self._number(optimizer)
        if number < 0:
            self.tape.entries.append(TapeEntry(FOREIGN, None))
            return None
        self._take_off()
        self.tape.behind = False
        self._ask_members()
        entry = TapeEntry(STEP, number, self.tape.encoded(scaled_by(optimizer)), None, functions.running_context())
        entry.settings = self.groups.changes(number, optimizer, self._places)
        if self.groups.has_other_state(number, optimizer):
            self.tape.lacks = self.tape.lacks or EDITED
        self._draw(entry)
        self._depth, self._outer, self._entry = 1, (STEP, id(optimizer), 0), None
        self._closures.append((entry, self.tape.entries))
        return self._with_closure(entry, args, kwargs)

    def _number(self, optimizer: Any) -> int:
        """Among those that are known; -1 of one that does not train along."""
        if (number := self._known(optimizer)) >= 0:
            return number
        if any(self._places.knows(tensor) for group in optimizer.param_groups for tensor in group["params"]):
            self._watch.new_holder(optimizer)
        return self._known(optimizer)

    def _known(self, optimizer: Any) -> int:
        return next((number for number, one in self.optimizers.items() if one is optimizer), -1)

    def _name_of(self, thing: Any) -> str | int | None:
        """Of a module or an optimizer, for the tape."""
        number = self._known(thing)
        return number if number >= 0 else self.members.get(id(thing))

    def _with_closure(self, entry: TapeEntry, args: Any, kwargs: Any) -> Any:
        """The arguments of a step; a closure among them is taped each time."""
        place = next((i for i, one in enumerate(args) if i and callable(one)), None)
        if place is not None:
            return (*args[:place], self._taped(entry, args[place]), *args[place + 1 :]), kwargs
        if callable(kwargs.get("closure")):
            return args, {**kwargs, "closure": self._taped(entry, kwargs["closure"])}
        return None

    def _taped(self, entry: TapeEntry, closure: Callable[[], Any]) -> Callable[[], Any]:
        def taped() -> Any:
            self._closure_begins(entry)
            try:
                result = closure()
            finally:
                self._closure_ended()
            self._closure_gave(entry, result)
            return result

        return taped

    @guarded
    def _closure_begins(self, entry: TapeEntry) -> None:
        if self.on:
            self.tape.entries = []
            entry.closures.append(self.tape.entries)
            self._depth = 0
            self._put_on()

    @guarded
    def _closure_ended(self) -> None:
        self._take_off()
        self._depth = 1
        self._outer = STEP, 0, 0

    @guarded
    def _closure_gave(self, entry: TapeEntry, result: Any) -> None:
        """What a closure returns is kept with its entries: the last one of them gives it."""
        if self.on and entry.closures:
            given = TapeEntry(FUNCTION, _same, self.tape.encoded((result,)), None, functions.running_context())
            given.settings = ()  # it lasts
            entry.closures[-1].append(given)

    @guarded
    def _step_ended(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._thread != get_ident() or compat.graph_task() != -1:
            self.is_elsewhere = self.is_elsewhere or (self._thread != get_ident() and self._known(optimizer) >= 0)
            return
        if not self.on:
            self._watch.step_taped(self._known(optimizer))
        if not self._depth:
            return
        self._depth -= 1
        if self._depth or not self._closures:
            return
        entry, self.tape.entries = self._closures.pop()
        self._drew(entry)
        self.tape.entries.append(entry)
        self.groups.read(entry.what, optimizer)
        self._round = Round(sys._getframe(1), _BETWEEN)
        self._watch.step_taped(entry.what)
        self._put_on()

    def take(self, step: int, until: int) -> TapedStep:
        """The step that has ended."""
        self._is_first = self._is_transformed = False
        self._clips, self._zeroings = ClipCalls(), ZeroCalls(self._name_of)
        made = self.tape.step_ended(step, until)
        made.first = min(self.optimizers, default=0)
        return made

    # ---- random numbers

    def _draw(self, entry: TapeEntry) -> None:
        """How the generators are before a call."""
        entry.random = [one.get_state() for one in generators()]
        if self._wide:
            entry.others = states(), Meter(thorough=True)
        self._private = [(held, held.read()) for held in map(Private, self.private)]

    def _drew(self, entry: TapeEntry) -> None:
        """A call that drew nothing keeps no states."""
        before = entry.random
        if before is not None and all(map(torch.equal, (one.get_state() for one in generators()), before)):
            entry.random = None
        if entry.others is not None:
            undo, meter = entry.others
            entry.others = None if WIDE.isdisjoint(meter.used()) else undo
            self._learnt += 1
            self._widely = self._widely or entry.others is not None
            self._wide = self._widely or self._learnt < LEARNT
        used = [held.put_back for held, before in self._private if held.read() != before]
        if used:
            entry.others = partial(_all, [*filter(None, [entry.others]), *used])


def _all(works: list[Callable[[], None]]) -> None:
    for work in works:
        work()


def _same(thing: Any) -> Any:
    return thing


def _is_loss(thing: Any) -> bool:
    """Whether it is a tensor of which a copy is kept."""
    return isinstance(thing, Tensor) and thing.numel() <= LOSS and is_there(thing)


def _flat(thing: Any) -> list[Any]:
    return [one for part in thing for one in _flat(part)] if type(thing) in (list, tuple) else [thing]


def _caller() -> FrameType:
    """The frame that called a function of torch which a mode has seen."""
    frame = sys._getframe(2)
    while frame.f_back is not None and (frame.f_code.co_filename in _OURS or frame.f_code.co_filename.endswith((_OVERRIDES, _FUNCTION))):
        frame = frame.f_back
    return frame


def _line() -> int:
    """The line of the user's that called, past files of torch's and ours."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_BETWEEN):
        frame = frame.f_back
    return frame.f_lineno


_OVERRIDES = "overrides.py"
_OURS = frozenset({__file__, guarding.__file__})
_BETWEEN = (os.path.dirname(torch.__file__) + os.sep, os.path.dirname(os.path.dirname(__file__)) + os.sep)
