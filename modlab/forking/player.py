"""The player of a tape, to a copy of the training: every call is made again, with the copy's tensors in the places of the original's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor

from modlab.compat import inference, set_grad
from modlab.forking.clipping import ClipCall
from modlab.forking.kept_states import KeptState, scale_by
from modlab.forking.module_settings import Group, Setting, settings_of
from modlab.forking.nests import Nest, tensors_in, with_parts
from modlab.forking.others import above, covers, handled, is_idle, note_owner, thrown_away, trained, unscales
from modlab.forking.param_groups import JoinedGroups, plain_step
from modlab.forking.standing import Standing
from modlab.forking.tape import (
    BACKWARD,
    CALL,
    CHECK,
    FOREIGN,
    FUNCTION,
    GIVEN,
    SCALE,
    SET,
    STEP,
    ZERO,
    Constant,
    GivenGenerator,
    Place,
    TapedStep,
    TapeEntry,
    alike,
    flat,
    is_of_gradient,
    numbers_in,
)
from modlab.forking.taped_functions import gives_gradient
from modlab.forking.zeroing import ZeroCall
from modlab.inspection import stores
from modlab.inspection.tensor_difference import equal_bits
from modlab.running.guarded import afterwards
from modlab.running.randomness import Private, generators, in_code, states
from modlab.statistics.memory import is_there, number_of

NARROW = (torch.float16, torch.bfloat16)

_DEVICES = ("cpu", "cuda", "xpu")


class OtherBranchError(Exception):
    """The training would have gone another way here, of which the tape knows nothing."""


class LackingError(Exception):
    """A call takes a tensor that was made before the state, and is not in it."""


class TakenError(Exception):
    """A call takes what is not there with this change: a parameter, a gradient, an output."""


class BroughtError(Exception):
    """The loop does by itself what it may do to a parameter too, or to its gradient, that the change has brought."""


class ChangedConstantError(Exception):
    """A tensor on the tape was changed in place since."""


class Player:
    """A copy of the training that runs on from a kept state.

    Args:
        state: where it begins.
        crossing: numbers of tensors that are used in later steps than they are made in.

    Attributes:
        things: the copies.
        losses: of the last step: what each backward pass began from, without the factor of a scaler, by the identity of its entry.
        same: whether all of them so far were those on the tape, bit for bit.
        without_clipping: gradients are not clipped; clipping: what the bound is multiplied by.
        fresh_gradients: gradients are zeroed before each first backward pass of a step.
        training: modules stay in training mode whatever the loop sets.
        loss_factor: what a loss is multiplied by before its backward pass.
        wide: what the loop casts to 16 bits stays as wide as it is, and there is no autocast.
        zeroes: whether gradients are zeroed in each step anyway.
        joined_groups: groups of parameters that a change has added, by the number of their optimizer.
        clips, narrow: whether the loop clips gradients, and casts to 16 bits: read in `prepare`.
    """

    zeroes = False

    def __init__(self, state: KeptState, crossing: set[int]) -> None:
        self.things, self._numbers = state.again()
        self._kept = {*self._numbers} | crossing
        self._stands = {number: place for place, number in enumerate(self.things.numbers)}  # where an optimizer of the tape stands
        self._names, self._late = state.names, state.late
        self._modules = self.things.modules()  # by the names on the tape
        self._called = self._modules  # what stands where the tape calls one
        self._joined_modules: dict[str, list[Any]] = {}  # made by a change, by the name of what they stand for or in: its mode is theirs
        self._buffers: list[tuple[int, dict[str, Any], str]] = []
        self._find_buffers()
        self._hooks = {path: {*stores.contents(one)["_forward_hooks"]} for path, one in self._modules.items()}
        self._random = state.random
        self._private = in_code(self._modules.values())
        self.losses: dict[int, Tensor] = {}
        self._plain: dict[int, Tensor] = {}  # what a scaler has multiplied, by the number of the product
        self.same = True
        self.without_clipping, self.clipping = False, 1.0
        self.fresh_gradients = self.training = self.wide = self.clips = self.narrow = False
        self.loss_factor = 1.0
        self._ratios: dict[tuple[int, int, str], tuple[Any, Any]] = {}  # settings that were changed: before and after
        self._context: ExitStack | None = None
        self._inference: Any = None
        self._casts: Any = ()
        self._replaced: set[int] = set()  # optimizers in whose place another one stands
        self._made = 0  # entries of the step that comes, before a change
        self._is_changed = False
        self._trained: dict[int, str] = {}  # what was trained before, by number: in which module
        self._listed: list[int] = []  # the model's parameters before, in order
        self._brought: list[tuple[str, Tensor, int]] = []  # what is trained since: in which module, and its number, or 0
        self._unheld: set[int] = set()  # identities of what a change has made, and no optimizer holds
        self._taken: set[int] = set()  # numbers of what is not there with this change
        self._owners: dict[int, int] = {}  # whose gradient a number is, in the step under way
        self._whole: list[ClipCall | ZeroCall] = []  # calls that were made as a whole
        self._left: dict[int, Tensor] = {}  # what optimizers still hold, but no module since a change, by number
        self._joined: list[tuple[Tensor, set[int]]] = []  # trained since a change, and what is thrown away along with their gradients
        self._moved: set[str] = set()  # names of modules that stand elsewhere since a change
        self._wrapped: set[str] = set()  # of those that stand in another one there
        self._parted: set[str] = set()  # of those that stood at several places, which have several modules now
        self._displaced: set[int] = set()  # numbers of what stands elsewhere since
        self._added: set[str] = set()  # names at which nothing stood before
        self.joined_groups: dict[int, JoinedGroups] = {}  # that a change has added, by the number of their optimizer

    # ---- what is changed

    def prepare(self, step: TapedStep) -> None:
        """Set what the loop sets before this step, so that a change begins with what holds in it."""
        calls = [entry for entry in step.entries if entry.kind == CALL]
        steps = {self._stands[entry.what]: entry for entry in reversed(step.entries) if entry.kind == STEP}
        self.clips = any(entry.caller for entry in step.entries)
        self.narrow = any(dict(entry.context[2]) if entry.context else False for entry in step.entries) or any(map(_casts, step.entries))
        for call in calls[:1]:
            self._set(call.settings or ())
        early = {entry.what for entry in step.entries if entry.kind == ZERO and entry.settings is None}
        for number, entry in steps.items():
            if entry.settings is not None:
                optimizer = self.things.optimizers[number]
                there = len(optimizer.param_groups) if entry.what in early else None  # groups that come behind a `zero_grad` come later
                self._set_groups(number, optimizer, entry.settings[:there])

    def change(self, work: Callable[[], None], stepped: Collection[int] = ()) -> None:
        """Change the copies, and have what follows from that.

        Args:
            work: changes them. It does not see optimizers that come later.
            stepped: numbers of the optimizers that have made steps until the end of this one.
        """
        optimizers = [*self.things.optimizers]
        before = [[settings_of(group) for group in one.param_groups] for one in optimizers]
        held, names = {id(one) for one in self._stepped()}, {id(one): number for number, one in self._numbers.items()}
        were = [*trained(self.things)]  # held, so that no other gets one of their identities
        self._trained = {names[id(one)]: path for path, one in were if id(one) in names}
        self._listed = [names[id(one)] for one in self.things.model.parameters() if id(one) in names]
        standing = Standing(self.things)
        there = sum(number not in self._late or number in stepped for number in self.things.numbers) or len(optimizers)
        del self.things.optimizers[there:]
        try:
            with torch.enable_grad():
                work()
        finally:
            self.things.optimizers[there:there] = optimizers[there:]
        for number, optimizer in enumerate(self.things.optimizers):
            if optimizer is not optimizers[number]:
                self._replaced.add(number)
            elif (count := len(optimizer.param_groups) - len(before[number])) > 0:
                self.joined_groups[number] = JoinedGroups(before[number], count)
            for place, group in enumerate(optimizer.param_groups):
                old = before[number][place] if place < len(before[number]) else {}
                for name, value in settings_of(group).items():
                    if name in old and not _equal(old[name], value):
                        self._ratios[number, place, name] = old[name], value
        self._find_modules(standing)
        self._find_tensors()
        self._find_displaced(standing, names)
        self._find_buffers()
        self._find_joined(held, names)
        self._find_brought({id(one) for _, one in were})

    def _find_modules(self, standing: Standing) -> None:
        """What a change has moved is still itself; what it has made stands for what was there.

        By itself the loop calls what stands at a place; where that is one that stood elsewhere, or what stood at two places stands at one
        of them now, it is not known what it would call. Nor are the forward hooks left out that the tape has, where one of them is gone.
        """
        before, now = self._modules, self.things.modules()
        there, known = {id(one): path for path, one in now.items()}, {id(one) for one in before.values()}
        made = {path: one for path, one in now.items() if id(one) not in known}
        kept = {path: one for path, one in before.items() if id(one) in there}
        self._modules = made | kept
        elsewhere = {path for path, one in kept.items() if there[id(one)] != path}
        self._wrapped = {path for path in elsewhere if path in above(there[id(kept[path])])}
        self._moved = elsewhere - self._wrapped
        self._parted = standing.parted(self.things)
        found = {path: one for path, one in (kept | made).items() if path not in self._moved and self._parted.isdisjoint(above(path))}
        self._called = {path: one for path, one in found.items() if one is before.get(path) or not self._hooks.get(path)}
        for path, keys in self._hooks.items():
            if path in self._called and not keys <= {*stores.contents(self._called[path])["_forward_hooks"]}:
                del self._called[path]
        self._added = standing.added(self.things)
        for path, one in made.items():
            self._joined_modules.setdefault(next((place for place in above(path) if place in before), ""), []).append(one)

    def _find_tensors(self) -> None:
        """Those of the model that the tape has numbers for."""
        there = {id(one) for module in self.things.modules().values() for _, one in stores.named_tensors(module)}
        known = {id(one) for one in self._numbers.values()}
        held = {id(one) for one in self._stepped()}
        for number, (path, name) in self._names.items():
            if id(self._numbers.get(number)) in there:
                continue
            module = self._modules.get(path)
            one = None if module is None else dict(stores.named_tensors(module)).get(name)
            old = self._numbers.pop(number, None)
            if one is not None and id(one) not in known:
                self._numbers[number] = one
            elif old is not None:
                self._taken.add(number)
            if old is not None and id(old) in held:
                self._left[number] = old

    def _find_displaced(self, standing: Standing, names: dict[int, int]) -> None:
        """What the loop reads by name stands elsewhere now, or nowhere."""
        now = Standing(self.things).tensors
        for place, one in standing.tensors.items():
            number = names.get(id(one), 0)
            if number and (now.get(place) is not self._numbers.get(number) or not self._parted.isdisjoint(above(place[0]))):
                self._displaced.add(number)

    def _find_joined(self, before: set[int], names: dict[int, int]) -> None:
        """The tape met no gradients of theirs: they are thrown away along with those of the others in the same optimizer."""
        for optimizer in self.things.optimizers:
            held = [one for group in optimizer.param_groups for one in group["params"]]
            others = {names[id(one)] for one in held if id(one) in names} or {*self._trained}
            self._joined += [(one, others) for one in held if one.requires_grad and id(one) not in before]

    def _find_brought(self, before: set[int]) -> None:
        self._is_changed = True
        names = {id(one): number for number, one in self._numbers.items()}
        now = [(path, one, names.get(id(one), 0)) for path, one in trained(self.things)]
        self._unheld = {id(one) for _, one, _ in now} - before - {id(one) for one in self._stepped()}
        self._brought = [one for one in now if one[2] not in self._trained and id(one[1]) not in before]

    def _require_known(self, step: TapedStep) -> None:
        """Nothing was brought that the loop may handle as it handles all others, and what it reads by name is still there."""
        if self._added:
            called = {entry.what for entry in flat(step.entries) if entry.kind == CALL and type(entry.what) is str}
            beside = {path.rpartition(".")[0] for path in called if path and path not in self.things.beside}
            if any(path.rpartition(".")[0] in beside and called.isdisjoint(above(path)) for path in self._added):
                raise BroughtError if called <= {*self._called} else TakenError
        if self._brought or self._displaced:
            numbers = handled(flat(step.entries))
            if not self._displaced.isdisjoint(numbers):
                raise TakenError
            if any(number not in numbers and covers(numbers, self._trained, path) for path, _, number in self._brought):
                raise BroughtError

    def _find_buffers(self) -> None:
        places = [(number, self._modules.get(path), name) for number, (path, name) in self._names.items()]
        held = [(number, stores.contents(module)["_buffers"], name) for number, module, name in places if module is not None]
        self._buffers = [one for one in held if one[2] in one[1]]

    def _follow_buffers(self) -> None:
        """A forward pass may put others in their places."""
        for number, held, name in self._buffers:
            self._numbers[number] = held[name]

    def scale(self, optimizer: int, group: int, name: str, factor: float) -> None:
        """A setting of a parameter group keeps the loop's course, times a factor: also where it is 0 at first, as in a warm-up."""
        self._ratios[optimizer, group, name] = 1.0, factor

    def _stepped(self) -> list[Tensor]:
        """What is trained by the optimizers."""
        return [
            one for optimizer in self.things.optimizers for group in optimizer.param_groups for one in group["params"] if one.requires_grad
        ]

    # ---- steps

    def running(self, work: Callable[..., None], *args: Any) -> None:
        """Call `work` with its own random numbers; the user's are back behind it, whatever ends it."""
        undo, private, was = states(), [*map(Private, self._private)], torch.is_grad_enabled()

        def put_back() -> None:
            undo()
            for one in private:
                one.put_back()
            self._leave_context()
            set_grad(was)

        afterwards(put_back, self._with_own_numbers, work, *args)

    def _with_own_numbers(self, work: Callable[..., None], *args: Any) -> None:
        for generator, state in zip(generators(), self._random, strict=False):
            generator.set_state(state)
        try:
            work(*args)
        finally:
            self._random = [one.get_state() for one in generators()]

    def play(self, step: TapedStep) -> None:
        """Make one step.

        Raises:
            OtherBranchError: the loop would have gone another way.
            ChangedConstantError: a batch is not what it was.
            LackingError: it uses what is neither in the state nor on the tape.
            TakenError: it uses what is not there with the change.
            BroughtError: the loop may do the same to what the change has brought.
            Exception: what a call raises.
        """
        self.losses = self.losses if self._made else {}  # a pass may come behind a step
        self._plain, self._owners, self._whole = {}, {}, []
        self._require_known(step)
        stale = self._stepped() if self.fresh_gradients else []
        made, self._made = self._made, 0
        for entry in step.entries[made:]:
            if entry.kind in (BACKWARD, STEP):
                for one in stale:
                    one.grad = None
                stale = []
            self._play(entry)
        self._leave_context()
        self._numbers = {number: one for number, one in self._numbers.items() if number in self._kept}

    def play_behind(self, step: TapedStep) -> None:
        """Make what the loop does behind its last step in the same round, such as an average of the weights."""
        self.losses = {}
        behind = [*takewhile(lambda one: one.behind, step.entries)]
        for entry in behind:
            self._play(entry)
        self._leave_context()
        self._made = len(behind)

    def _play(self, entry: TapeEntry) -> Any:
        if entry.kind == FOREIGN:
            return None
        if entry.kind == GIVEN:
            (held,) = entry.args
            self._numbers[entry.outputs[0]] = alike(held.tensor).requires_grad_(entry.what)
            return None
        if entry.kind == SET:
            return self._replace(entry)
        if entry.clip is not None and self._clips_anew(entry.clip):
            return self._clip(entry)
        if entry.caller and self._is_skipped(entry):
            return None
        if entry.zeroing is not None and self._is_changed:
            if entry.kind == ZERO and entry.settings is not None:
                place = self._stands[entry.what]
                self._set_groups(place, self.things.optimizers[place], entry.settings)
            self._zero(entry.zeroing)
            if not gives_gradient(entry.what):
                return None
        if entry.kind == ZERO:
            return None
        if entry.settings is not None and entry.kind == CALL:
            self._set(entry.settings)
        if self._joined:
            self._throw_away(entry)
        if self._left:
            self._require_no_gradient(thrown_away(entry, self._owners))
        if self._is_changed:
            note_owner(entry, self._owners)
        if self._taken and is_idle(entry) and (lacking := {one for one in numbers_in(entry.args) if self._is_taken(one)}):
            return self._leave_out(entry, lacking)
        self._enter(entry.context)
        if entry.others is not None:
            entry.others()
        if entry.random is not None:
            for generator, state in zip(generators(), entry.random, strict=False):
                generator.set_state(state)
        if entry.kind == STEP:
            return self._step(entry)
        is_unscaled = self._is_changed and unscales(entry)
        args, kwargs = self._unscaled(entry.args) if is_unscaled else self._given(entry.args), self._given(entry.kwargs)
        if entry.caller and self.clipping != 1 and getattr(entry.what, "__name__", "") == "__rdiv__":
            args = (args[0], args[1] * self.clipping)
        return self._call(entry, args, kwargs)

    def _call(self, entry: TapeEntry, args: Any, kwargs: Any) -> Any:
        if entry.kind == BACKWARD:
            self._meet_loss(entry, args, kwargs)
            if self.loss_factor != 1 and args and isinstance(args[0], Tensor):
                args = (args[0] * self.loss_factor, *args[1:])
        what = entry.what
        if self.wide and _casts(entry):
            what, args, kwargs = Tensor.float, args[:1], {}
        result = self._run(what, args, kwargs) if type(what) is str else what(*args, **kwargs)
        if entry.kind == CHECK:
            if bool(result) != entry.value:
                raise OtherBranchError
            return None
        if entry.kind == CALL:
            self._follow_buffers()
            for number, path, name in entry.left:
                thing = stores.contents(self._modules[path]).get(name) if path in self._modules else None
                if isinstance(thing, Tensor):
                    self._numbers[number] = thing
        if entry.kind == SCALE:
            self._plain[entry.outputs[0]] = args[0]
        given = dict(zip(entry.outputs, tensors_in(result), strict=False))
        self._numbers.update(given)
        self._taken.update(one for one in entry.outputs if one not in given)
        return result

    # ---- gradients of others than the original's

    def _throw_away(self, entry: TapeEntry) -> None:
        """What joined loses its gradients where the others do."""
        numbers = thrown_away(entry, self._owners)
        for one, others in self._joined:
            if one.grad is not None and not others.isdisjoint(numbers):
                one.grad = None if is_of_gradient(entry) else torch.zeros_like(one.grad)

    def _is_taken(self, number: int) -> bool:
        return number in self._taken and number not in self._numbers

    def _require_no_gradient(self, numbers: Iterable[int]) -> None:
        """What only an optimizer holds is not met where the loop goes over the model; over which it goes, is not known."""
        if any(self._left[one].grad is not None for one in numbers if one in self._left):
            raise TakenError

    def _leave_out(self, entry: TapeEntry, lacking: set[int]) -> None:
        """What is not there has no gradient that could be thrown away."""
        self._taken.update(entry.outputs)
        for one in entry.args[:1]:
            parts = one if type(one) in (list, tuple) else []
            there = [self._given(part) for part in parts if lacking.isdisjoint(numbers_in(part))]
            if there:
                entry.what(there, *entry.args[1:])

    def _clips_anew(self, call: ClipCall) -> bool:
        """Whether the whole call is made, and not its parts: others may have gradients now."""
        return self._is_changed and call.whole and bool(call.asked) and not self.without_clipping and self.clipping == 1

    def _clip(self, entry: TapeEntry) -> None:
        call = entry.clip
        if call is None or self._is_made(call):
            return
        self._enter(entry.context)
        norm = call.again(self._clipped_by(call))
        if call.norm:
            self._numbers[call.norm] = norm

    def _is_made(self, call: ClipCall | ZeroCall) -> bool:
        """Whether the whole call was made with another part of it; else it is made with this one."""
        is_made = any(one is call for one in self._whole)
        if not is_made:
            self._whole.append(call)
        return is_made

    def _zero(self, call: ZeroCall) -> None:
        if not self._is_made(call):
            thing = self.things.optimizers[self._stands[call.of]] if isinstance(call.of, int) else self._called.get(call.of)
            if thing is None:
                raise TakenError
            call.again(thing)

    def _clipped_by(self, call: ClipCall) -> list[Tensor]:
        """Whose gradients are clipped: of those that a change has brought too, where all were that are in one module with them."""
        self._require_no_gradient(call.asked)
        asked = [self._numbers[one] for one in call.asked if one in self._numbers]
        there = {id(one) for one in asked}
        new = {id(one) for path, one, _ in self._brought if id(one) not in there and covers(call.asked.keys(), self._trained, path)}
        if not self._unheld.isdisjoint(there | new):
            raise BroughtError  # are the model's clipped, or the optimizer's?
        order: list[Tensor] = [one for one in self.things.model.parameters() if id(one) in there | new]
        if len(order) == len(there) + len(new) and [one for one in self._listed if one in call.asked] == [*call.asked]:
            return order
        if new:
            raise BroughtError
        return asked

    def _unscaled(self, given: Any) -> Any:
        """The gradients that a scaler unscales: all of its optimizer's."""
        owners = {id(one): one for number in numbers_in(given[:1]) if (one := self._numbers.get(self._owners.get(number, 0))) is not None}
        for optimizer in self.things.optimizers:
            held = {id(one): one for group in optimizer.param_groups for one in group["params"]}
            if not owners.keys().isdisjoint(held):
                kinds = {(one.device, one.dtype) for one in owners.values()}  # a scaler makes a call for each
                some = [one.grad for one in (held | owners).values() if (one.device, one.dtype) in kinds]
                return [one for one in some if one is not None], *self._given(given[1:])
        return self._given(given)

    def _run(self, path: str, args: Any, kwargs: Any) -> Any:
        """Call a module without the forward hooks that it had: they come behind the call that is taped, and what they call is taped too."""
        module = self._called.get(path)
        if module is None:
            raise TakenError
        hooks = stores.contents(module)["_forward_hooks"]
        aside = {key: hooks.pop(key) for key in [*hooks] if key in self._hooks.get(path, ())}
        try:
            return module(*args, **kwargs)
        finally:
            if aside:
                hooks.update(aside)
                for key in [key for key in hooks if key not in aside]:
                    hooks.move_to_end(key)

    def _replace(self, entry: TapeEntry) -> None:
        (path, name), (one,) = entry.what, entry.args
        if (module := self._modules.get(path)) is not None:
            stores.contents(module)["_buffers"][name] = alike(one.tensor) if type(one) is Constant else self._given(one)
            self._follow_buffers()

    def _is_skipped(self, entry: TapeEntry) -> bool:
        """Whether it is a part of clipping, which is left out."""
        return self.without_clipping and bool(entry.writes)

    def _meet_loss(self, entry: TapeEntry, args: Any, kwargs: Any) -> None:
        tensors = args[0] if args else kwargs.get("tensors")
        first = tensors[0] if type(tensors) in (list, tuple) else tensors
        if isinstance(first, Tensor) and is_there(first):
            plain = self._plain.get(next(numbers_in(entry.args), 0), first)
            self.losses.setdefault(id(entry), plain.detach().clone())
            if entry.value is not None and not (entry.value.shape == first.shape and equal_bits(entry.value, first.detach())):
                self.same = False

    def _given(self, thing: Any) -> Any:
        cls = type(thing)
        if cls is Place:
            if thing.number not in self._numbers:
                raise TakenError if self._is_taken(thing.number) else LackingError
            return self._numbers[thing.number]
        if cls is Constant:
            if thing.changed:
                raise ChangedConstantError
            return thing.tensor.float() if self.wide and thing.tensor.dtype in NARROW else thing.tensor
        if cls is GivenGenerator:
            return thing.again()
        if cls in (list, tuple):
            return cls(map(self._given, thing))
        if cls is dict:
            return {key: self._given(part) for key, part in thing.items()}
        return with_parts(thing.shell, [*map(self._given, thing.parts)]) if cls is Nest else thing

    # ---- optimizers

    def _step(self, entry: TapeEntry) -> Any:
        place = self._stands[entry.what]
        optimizer = self.things.optimizers[place]
        if entry.settings is not None:
            self._set_groups(place, optimizer, entry.settings)
        scale_by(optimizer, self._given(entry.args))
        args: tuple[Any, ...] = (self._closure(entry),) if entry.closures else ()
        given: tuple[Any, dict[str, Any]] = (optimizer, *args), {}
        for hook in [*optimizer._optimizer_step_pre_hooks.values()]:
            given = hook(optimizer, *given) or given
        result = plain_step(optimizer)(*given[0], **given[1])
        for hook in [*optimizer._optimizer_step_post_hooks.values()]:
            hook(optimizer, *given)
        return result

    def _closure(self, entry: TapeEntry) -> Callable[[], Any]:
        times = 0

        def closure() -> Any:
            nonlocal times
            part = entry.closures[min(times, len(entry.closures) - 1)]
            times += 1
            result, self._whole = None, []
            for one in part:
                result = self._play(one)
            self._enter(entry.context)
            return result

        return closure

    def _set_groups(self, number: int, optimizer: Any, groups: list[Group]) -> None:
        if number in self.joined_groups:
            groups = self.joined_groups[number].among(groups, optimizer.param_groups)
        for place, (settings, params) in enumerate(groups):
            if place >= len(optimizer.param_groups):
                added = [self._numbers[one] for one in params if one in self._numbers]
                held = {id(one) for group in optimizer.param_groups for one in group["params"]}
                if number in self._replaced and all(id(one) in held for one in added):
                    continue
                optimizer.add_param_group({**settings, "params": added})
            group = optimizer.param_groups[place]
            for name, value in settings.items():
                if number in self._replaced and name not in group:
                    continue  # a setting of the optimizer that stood there
                ratio = self._ratios.get((number, place, name))
                _assign(group, name, value if ratio is None else _scaled(value, *ratio))

    # ---- settings and contexts

    def _set(self, settings: tuple[Setting, ...]) -> None:
        for path, name, value in settings:
            if name == "training" and self.training:
                continue
            module = self._modules.get(path)
            is_of_all = name == "training" and ("", name, value) in settings  # as by `model.eval()`
            if (path in self._moved and not is_of_all) or (path in self._wrapped and name != "training"):
                raise TakenError  # another one stands where the loop sets it
            for one in (module, *self._joined_modules.get(path, ())) if name == "training" else (module,):
                if one is not None:
                    object.__getattribute__(one, "__dict__")[name] = value

    def _enter(self, context: Any) -> None:
        grad, inferred, casts = context
        casts = () if self.wide else casts
        if (
            inferred,
            casts,
        ) != self._casts or self._context is None:  # one autocast for neighbours: it remembers the weights that it has cast
            self._leave_context()
            self._casts, self._context, self._inference = (inferred, casts), ExitStack(), inference(inferred)
            wanted = dict(casts)
            for device in _DEVICES:
                if device in wanted:
                    self._context.enter_context(torch.autocast(device, dtype=wanted[device]))
                elif torch.is_autocast_enabled(device):
                    self._context.enter_context(torch.autocast(device, enabled=False))
            self._inference.__enter__()
        set_grad(grad)

    def _leave_context(self) -> None:
        if self._inference is not None:  # its end is a function of C, and may come more than once
            self._inference.__exit__(None, None, None)
        if self._context is not None:
            self._context.close()
        self._context, self._inference, self._casts = None, None, ()


def _casts(entry: TapeEntry) -> bool:
    """Whether it makes a tensor's numbers 16 bits wide."""
    name, given = getattr(entry.what, "__name__", ""), [*entry.args, *entry.kwargs.values()]
    return entry.kind == FUNCTION and (
        name in ("half", "bfloat16") or (name in ("to", "type") and any(one in NARROW for one in given[1:] if isinstance(one, torch.dtype)))
    )


def _scaled(value: Any, before: Any, after: Any) -> Any:
    """A setting of the loop's in a fork where it was changed: it keeps its course, from the changed value on."""
    numbers = [
        number_of(one) if isinstance(one, (int, float, Tensor)) and not isinstance(one, bool) else None for one in (value, before, after)
    ]
    if None in numbers or not numbers[1]:
        return after
    return numbers[0] * (numbers[2] / numbers[1])  # type: ignore[operator]


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        return number_of(one) == number_of(other)
    return bool(one == other)


def _assign(group: dict[str, Any], name: str, value: Any) -> None:
    held = group.get(name)
    if isinstance(held, Tensor):
        with torch.no_grad():
            held.fill_(number_of(value))
    else:
        group[name] = value
