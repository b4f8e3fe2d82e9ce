"""A tape of the training: in each step, every call that depends on the weights, so that a copy of the model can be given the same calls.

What does not depend on the weights (how a batch is drawn, what is printed) is a constant on the tape. A call is taped if one of its
arguments depends on the weights: it is then given by a number (`Place`), and in a fork another tensor stands there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from operator import is_
from typing import Any
from weakref import ref

import torch
from torch import Tensor
from torch.nn import Parameter

from modlab.compat import WeakStorage, without_autograd
from modlab.forking.clipping import ClipCall
from modlab.forking.memories import Memories, is_whole, memory_of, part_in, part_of, whole_of
from modlab.forking.nests import DEPTH, Nest, is_container, parts_of, tensors_in
from modlab.forking.taped_functions import copies, running_context
from modlab.forking.zeroing import ZeroCall
from modlab.statistics.memory import NoValuesError, absence, is_gone, is_there
from modlab.tracing.tensor_ids import version_of

FUNCTION, CALL, BACKWARD, STEP, CHECK, GIVEN, SCALE, SET = "function", "call", "backward", "step", "check", "given", "scale", "set"
ZERO, FOREIGN = "zero", "foreign"
"""Kinds of entries: a function of torch, a call of a module, a backward pass, an optimizer's step, a branch that was taken, a tensor
that comes from outside and is changed or trained, a loss that a `GradScaler` multiplies, a buffer that the loop replaces, a
whole `zero_grad`, whatever it finds, and the step of an optimizer that holds nothing that depends on the weights."""

LACKING, CHANGED, EDITED, JOINED = "lacking", "changed", "edited", "joined"
"""Why a step cannot be made again: the weights got gradients past the tape; the loop itself changed the model's members, or what an
optimizer has in its state; somebody came who trains along."""

OVERHEAD = 500
"""Bytes, about, that an entry takes beside its tensors."""

ALIGNED = 64
"""Bytes: some kernels for matrices give other last digits where memory begins elsewhere."""


_NONE: dict[str, Any] = {}


class Place:
    """Stands on the tape for a tensor that depends on the weights."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class Constant:
    """A tensor that does not, held by reference; `version` tells whether it was changed in place later."""

    __slots__ = ("tensor", "version")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self.version = tensor, version_of(tensor)

    @property
    def changed(self) -> bool:
        """Whether it was changed in place since."""
        return version_of(self.tensor) != self.version


class GivenGenerator:
    """A generator that was given to a call, as it was then."""

    __slots__ = ("device", "state")

    def __init__(self, generator: torch.Generator) -> None:
        self.device, self.state = generator.device, generator.get_state()

    def again(self) -> torch.Generator:
        """One that draws the same numbers."""
        made = torch.Generator(self.device)
        made.set_state(self.state)
        return made


class TapeEntry:
    """One call.

    Attributes:
        kind: see above.
        what: a function; the name of a module (also of a `zero_grad`); the number of an optimizer; the module and the name of a buffer.
        args, kwargs: with `Place` and `Constant` for tensors.
        outputs: the number of each tensor in what it gave.
        writes: the numbers of those that it changes in place.
        context: autograd and autocast, see `running_context`.
        random: the states of torch's generators before it, if it drew from them; `others`: of the rest.
        value: of a check, what it gave; of a backward pass, a copy of what it began from; of a scaled loss, a copy of the loss.
        caller: the name of the function of torch's that called it, "" for code of the user's.
        line: of a backward pass, the line in the user's code.
        settings: before it, what the user set on modules, or in an optimizer's groups (of a `zero_grad`, if some came); None if nothing.
        closures: of a step with a closure, the entries of each time it was called.
        left: of a call, the numbers of tensors that stand in attributes behind it, each with the names of its module and its own.
        behind: whether it comes behind the optimizer's step, but before the loop's next round.
        clip: the call of clipping that it is a part of; zeroing: the call of `zero_grad`.
    """

    __slots__ = (
        "args",
        "behind",
        "caller",
        "clip",
        "closures",
        "context",
        "kind",
        "kwargs",
        "left",
        "line",
        "others",
        "outputs",
        "random",
        "settings",
        "value",
        "what",
        "writes",
        "zeroing",
    )

    def __init__(self, kind: str, what: Any, args: Any = (), kwargs: Any = None, context: Any = None) -> None:
        self.kind, self.what, self.args, self.kwargs, self.context = kind, what, args, kwargs or _NONE, context
        self.outputs: tuple[int, ...] = ()
        self.writes: tuple[int, ...] = ()
        self.random: list[Tensor] | None = None
        self.others: Any = None
        self.value: Any = None
        self.caller, self.line = "", 0
        self.settings: Any = None
        self.closures: list[list[TapeEntry]] = []
        self.left: tuple[tuple[int, str, str], ...] = ()
        self.clip: ClipCall | None = None
        self.zeroing: ZeroCall | None = None
        self.behind = False

    @property
    def lasts(self) -> bool:
        """Whether it has an effect beside its outputs and what it writes."""
        return self.kind in (BACKWARD, STEP, CHECK, SET, ZERO, FOREIGN) or self.settings is not None


def numbers_in(thing: Any) -> Iterator[int]:
    """The numbers of the places in a nest."""
    for one in _standing(thing):
        if type(one) is Place:
            yield one.number


def constants_in(thing: Any) -> Iterator[Constant]:
    """The constants in a nest."""
    for one in _standing(thing):
        if type(one) is Constant:
            yield one


def _standing(thing: Any) -> Iterator[Any]:
    """What stands in a nest on the tape."""
    cls = type(thing)
    if cls in (list, tuple, dict, Nest):
        for part in thing.values() if cls is dict else thing.parts if cls is Nest else thing:
            yield from _standing(part)
    else:
        yield thing


class TapedStep:
    """The entries of one step; `until` is the number of the next one. Steps that nobody announces may be noticed two at a time.

    Attributes:
        lacks: why it cannot be made again, as a fork's end: something is not on the tape; "" if it can.
        other: where that is "changed", what the loop did to the model's members, and to which.
        first: the number of the first optimizer that was there.
    """

    __slots__ = ("entries", "first", "lacks", "number", "other", "until")

    def __init__(self, number: int, until: int, entries: list[TapeEntry], lacks: str = "", other: tuple[str, str] = ("", "")) -> None:
        self.number, self.until, self.entries, self.lacks, self.other = number, until, entries, lacks, other
        self.first = 0

    def constants(self) -> Iterator[Constant]:
        """The tensors that it holds."""
        for entry in flat(self.entries):
            yield from constants_in((entry.args, entry.kwargs))

    def states(self) -> int:
        """Bytes of its generators' states."""
        return sum(state.nbytes for entry in flat(self.entries) for state in entry.random or ())

    def losses(self) -> list[TapeEntry]:
        """Its backward passes."""
        return [entry for entry in flat(self.entries) if entry.kind == BACKWARD]

    def value_of(self, entry: TapeEntry) -> Tensor | None:
        """What a backward pass began from, without the factor of a scaler."""
        number = next(numbers_in(entry.args), 0)
        scaled = next((one for one in self.entries if one.kind == SCALE and number in one.outputs), entry)
        return scaled.value  # type: ignore[no-any-return]


def throws_away(entry: TapeEntry) -> bool:
    """Whether it takes gradients away, or makes them 0."""
    name = getattr(entry.what, "__name__", "")
    if name in ("__set__", "__delete__"):
        return is_of_gradient(entry) and (name == "__delete__" or entry.args[1] is None)
    return entry.kind == FUNCTION and name in ("zero_", "_foreach_zero_")


def is_of_gradient(entry: TapeEntry) -> bool:
    """Whether it gets or sets the gradient of a tensor."""
    return getattr(getattr(entry.what, "__self__", None), "__name__", "") == "grad"


def flat(entries: Iterable[TapeEntry]) -> Iterator[TapeEntry]:
    """All entries, those of closures behind their step."""
    for entry in entries:
        yield entry
        for part in entry.closures:
            yield from flat(part)


class PlaceNumbers:
    """Numbers the tensors that depend on the weights.

    Those of the model are known by identity (a weak reference would forbid ``torch.utils.swap_tensors``), all others as long as they live.
    The model's buffers are held, for it may replace them, and what comes next would get their identities.

    Attributes:
        crossing: numbers of tensors that were used in a later step than they were made in.
        memories: what they lie in, of the model's and of what the loop writes into.
    """

    def __init__(self) -> None:
        self.memories = Memories()
        self._nameless: set[int] = set()  # numbers of what no tensor of a fork can stand for
        self._own: dict[int, int] = {}
        self._buffers: dict[int, Tensor] = {}
        self._owned: set[int] = set()
        self._met: dict[int, tuple[ref[Tensor], int]] = {}
        self._count = self._since = 0
        self.crossing: set[int] = set()

    def own(self, tensor: Tensor) -> int:
        """A tensor of the model."""
        number = self._own.get(id(tensor))
        if number is None:
            number = self._next()
            self._owned.add(number)
            self._take(tensor, number)
        return number

    def _take(self, tensor: Tensor, number: int) -> None:
        self._own[id(tensor)] = number
        if self.memories.belong(tensor, number):  # what has a number in it is met anew, as a part of this one
            memory = memory_of(tensor)
            there = {key: one[0]() for key, one in self._met.items()}
            self._met = {key: self._met[key] for key, one in there.items() if one is not None and memory_of(one) != memory}
        if not isinstance(tensor, Parameter):
            self._buffers[id(tensor)] = tensor

    def disown(self, identities: Collection[int]) -> None:
        """These are gone with the module that had them: others may have the identities now."""
        self._own = {key: number for key, number in self._own.items() if key not in identities}
        self._buffers = {key: one for key, one in self._buffers.items() if key not in identities}

    def keep_own(self, tensors: Iterable[Tensor]) -> None:
        """The model has these tensors now; others may have the identities of those that it had."""
        there = {id(one) for one in tensors}
        self.memories.let_go()
        self._own = {key: number for key, number in self._own.items() if key in there}
        self._buffers = {key: one for key, one in self._buffers.items() if key in there}
        for one in tensors:
            self.memories.belong(one, self.own(one))

    def replace(self, replaced: Iterable[tuple[int, str, str, Tensor | None]]) -> None:
        """Buffers take over the numbers of those, given by identity, in whose place they stand."""
        replaced = [*replaced]
        for old, *_ in replaced:
            if old in self._buffers:
                self.memories.leave(self._buffers[old])
        numbers = [(self._own.pop(old, 0), new) for old, _, _, new in replaced]
        for number, new in numbers:
            if number and new is not None:
                self._take(new, number)
        self._buffers = {key: one for key, one in self._buffers.items() if key in self._own}

    def let_go(self) -> None:
        """No more tensors come."""
        self._buffers = {}

    def is_own(self, number: int) -> bool:
        """Whether it is the number of one of the model's."""
        return number in self._owned

    def _next(self) -> int:
        self._count += 1
        return self._count

    def of(self, tensor: Any) -> int:
        """Its number; 0 if it does not depend on the weights."""
        key = id(tensor)
        number = self._own.get(key)
        if number is not None:
            return number
        found = self._met.get(key)
        return found[1] if found is not None and found[0]() is tensor else 0

    def knows(self, tensor: Tensor) -> bool:
        """Whether it, or what it lies in, depends on the weights."""
        return bool(self.of(tensor)) or self.memories.of(tensor) is not None

    def touch(self, things: Iterable[Any], depth: int = DEPTH) -> bool:
        """Whether any of these, or of what they hold, depends on the weights."""
        for thing in things:
            if issubclass(type(thing), Tensor):
                if self.knows(thing):
                    return True
            elif depth and is_container(thing) and self.touch(parts_of(thing), depth - 1):
                return True
        return False

    def meet(self, tensor: Tensor, number: int = 0) -> int:
        """The number of what a call gave; a given one, where it stands for another tensor."""
        known = self.of(tensor)
        if not known or number:
            known = number or self._next()
            self._met[id(tensor)] = ref(tensor), known
        return known

    def adopt(self, tensor: Tensor) -> tuple[int, Tensor | None]:
        """The number of all the memory of a tensor that is about to be changed, and that; None where no copy can stand for it."""
        memory = memory_of(tensor)
        whole = None if any(memory_of(one) == memory for one in self.alive().values()) else whole_of(tensor)
        number = 0 if whole is None else self._next()
        self.memories.adopt(tensor, number)
        return number, whole

    def move(self, tensor: Tensor) -> None:
        """It was given another memory."""
        number = self._own.get(id(tensor))
        if number is not None:
            self.memories.move(tensor, number)

    def meet_nameless(self, tensor: Tensor) -> int:
        """The number of a tensor in a fork, which has none: there is no value for it."""
        number = self.meet(tensor)
        self._nameless.add(number)
        return number

    def is_new(self, number: int) -> bool:
        """Whether it was met in this step."""
        return number > self._since

    def use(self, number: int) -> None:
        """It is an argument now."""
        if number <= self._since:
            self.crossing.add(number)

    def memory(self, tensor: Tensor, number: int) -> int:
        """What it lies in: views of one memory give the same."""
        try:
            return int(tensor.untyped_storage()._cdata)
        except (RuntimeError, NotImplementedError, TypeError, ValueError, AttributeError):  # sparse, a stand-in, lazy: none of its own
            return -number

    def is_old(self, number: int) -> bool:
        """Whether it was met before the step under way."""
        return number <= self._since and number not in self._owned

    @property
    def last(self) -> int:
        """The greatest number so far."""
        return self._count

    def alive(self) -> dict[int, Tensor]:
        """The tensors that are not the model's and still live, by number."""
        met = ((number, held()) for held, number in self._met.values() if number not in self._nameless)
        return {number: tensor for number, tensor in met if tensor is not None}

    def kept(self) -> dict[int, Tensor]:
        """What a state has beside the model: these, and memories that the loop writes into."""
        return {**dict(self.memories.adopted()), **self.alive()}

    def step_ended(self) -> None:
        """Forget those that are gone."""
        self._met = {key: one for key, one in self._met.items() if one[0]() is not None}
        self._nameless &= {number for _, number in self._met.values()}
        self._since = self._count


class Tape:
    """What is taped of the step under way, and how its arguments are kept.

    Args:
        places: the numbers.

    Attributes:
        fresh: bytes of the constants that came since they were counted.
        lacks: what this step did that is not on the tape, as a fork's end: "lacking", "changed", "edited" or "joined"; "" if nothing.
        other: as in `TapedStep`.
        behind: whether what comes now belongs to the round whose step has ended.
        torn: the least number of a tensor that was made before this step and through which a gradient flowed in it; 0 if there is none.
    """

    def __init__(self, places: PlaceNumbers) -> None:
        self.places = places
        self.torn, self._reaches_back = 0, False
        self.entries: list[TapeEntry] = []
        self.fresh, self.lacks, self.other = 0, "", ("", "")
        self.behind = False
        self._held: dict[int, Constant] = {}  # by the tensor's identity; the constant keeps it
        self._lying: dict[int, list[Constant]] = {}  # the constants in a memory, which they keep
        self._lies: dict[int, int] = {}  # number → what it lies in
        self._reached: dict[int, ref[Tensor]] = {}  # leaves behind constants, by identity
        self._inner: dict[int, WeakStorage] = {}  # what lies inside of the model, where a hook saw it
        self._gradients: set[int] = set()  # what gradients that were asked for lie in
        self._bare: set[int] = set()  # numbers of what was made without autograd, in the step under way

    def encoded(self, thing: Any, depth: int = DEPTH) -> Any:
        """A nest of arguments for the tape."""
        cls = type(thing)
        if issubclass(cls, Tensor):
            return self._tensor(thing)
        if cls is torch.Generator:
            return GivenGenerator(thing)
        if not depth or not is_container(thing):
            return thing
        if cls in (list, tuple):
            return cls(self.encoded(part, depth - 1) for part in thing)
        if cls is dict:
            return {key: self.encoded(part, depth - 1) for key, part in thing.items()}
        parts = [self.encoded(part, depth - 1) for part in parts_of(thing)]
        return thing if all(map(is_, parts, parts_of(thing))) else Nest(thing, parts)

    def _tensor(self, tensor: Tensor) -> Place | Constant:
        number = self.places.of(tensor) or self._part(tensor)
        if not number and tensor.requires_grad and tensor.is_leaf:
            number = self.given(tensor)  # the user's own leaf, whose gradient is asked for
        if number:
            self.places.use(number)
            self._reaches_back = self._reaches_back or (tensor.grad_fn is not None and self.places.is_old(number))
            self.lacks = self.lacks or LACKING * (number in self._bare and tensor.grad_fn is not None)
            self._lie(tensor, number)
            return Place(number)
        if tensor.grad_fn is not None and self.reaches_weights((tensor,)):  # made where the tape did not see it
            self.lacks = self.lacks or LACKING
        if self._inner and memory_of(tensor) in self._inner:  # detached by a hook
            self.lacks = self.lacks or LACKING
        if tensor.grad_fn is not None:
            leaves = (getattr(node, "variable", None) for node in _nodes((tensor,)))
            self._reached.update((id(one), ref(one)) for one in leaves if type(one) is Tensor)
        found = self._held.get(id(tensor))
        if found is None or found.tensor is not tensor or found.changed:
            found = Constant(alike(tensor) if is_small_part(tensor) else tensor.detach() if tensor.requires_grad else tensor)
            self.fresh += nbytes(found.tensor)
            if found.tensor is tensor:
                self._held[id(tensor)] = found
            if (memory := memory_of(tensor)) and memory == memory_of(found.tensor):
                self._lying.setdefault(memory, []).append(found)
        return found

    def _part(self, tensor: Tensor) -> int:
        """The number of another name for what the tape knows; 0 if it is none."""
        whole = self.places.memories.of(tensor)
        if whole is None:
            return 0
        if tensor.grad_fn is not None and self.reaches_weights((tensor,)):  # it has a history by a name that the tape did not see
            self.lacks = self.lacks or LACKING
        part = part_of(tensor)
        if not whole or part is None:
            return self.places.meet_nameless(tensor)
        number = self.places.meet(tensor)
        self.places.use(whole)
        self._lie(tensor, whole)
        entry = TapeEntry(FUNCTION, part_in, (Place(whole), part), None, running_context())
        entry.outputs = (number,)
        self._add(entry)
        return number

    def adopt(self, tensor: Tensor) -> None:
        """It is about to be changed by what depends on the weights: from now on so does all that it lies in."""
        if not memory_of(tensor):
            self.given(tensor)
            return
        number, whole = self.places.adopt(tensor)
        if whole is not None:
            entry = TapeEntry(GIVEN, False, (Constant(alike(whole)),))
            entry.outputs = (number,)
            self.fresh += nbytes(whole)
            self._lie(whole, number)
            self._add(entry)

    def _add(self, entry: TapeEntry) -> None:
        entry.behind = self.behind
        self.entries.append(entry)

    def own(self, tensor: Tensor) -> None:
        """A tensor of a module that trains along from now on; what the loop made of it before is put into it."""
        known = self._tensor(tensor) if self.places.knows(tensor) else None
        number = self.places.own(tensor)
        if known is not None:
            entry = TapeEntry(FUNCTION, _put, (Place(number), known), None, running_context())
            entry.writes = (number,)
            self._lie(tensor, number)
            self._add(entry)

    def inner(self, tensors: Iterable[Tensor]) -> None:
        """A hook sees these inside of the model: what it takes out depends on the weights, by whichever name."""
        for one in tensors:
            if memory := memory_of(one):
                self._inner[memory] = WeakStorage(one.untyped_storage())

    @property
    def sees_inside(self) -> bool:
        """Whether something is known that a hook may have taken out."""
        return bool(self._inner)

    def pass_on(self, things: Any, result: Any) -> None:
        """So does what is computed with that."""
        if any(memory_of(one) in self._inner for one in tensors_in(things)):
            self.inner(tensors_in(result))

    def reaches_weights(self, things: Any) -> bool:
        """Whether gradients of what the tape has not seen reach the weights: it was computed in compiled code, or as a subclass."""
        return any(self.places.of(getattr(node, "variable", None)) for node in _nodes(things))

    def reaches(self, leaf: Any) -> bool:
        """Whether the gradient of the user's own leaf depends on the weights, by what the tape holds as a constant."""
        found = self._reached.get(id(leaf))
        return found is not None and found() is leaf

    def tear(self, things: Any) -> None:
        """A gradient flows from these: note whether it comes to what is older than this step, so maybe than a state."""
        if not self._reaches_back:
            return
        old = {one.grad_fn: number for number, one in self.places.alive().items() if one.grad_fn is not None and self.places.is_old(number)}
        found = [old[node] for node in _nodes(things) if node in old]
        self.torn = min([*found, *filter(None, [self.torn])], default=0)

    def given(self, tensor: Tensor) -> int:
        """From now on it depends on the weights; it is kept as it is now."""
        entry = TapeEntry(GIVEN, tensor.requires_grad and tensor.is_leaf, (Constant(alike(tensor)),))
        number = self.places.meet(tensor)
        if memory_of(tensor) and is_whole(tensor):
            self.places.memories.adopt(tensor, number)
        entry.outputs = (number,)
        self._lie(tensor, number)
        self._add(entry)
        return number

    def as_it_is(self, buffer: Tensor | None) -> Place | Constant | None:
        """What a fork puts in the place of a buffer: of the model's, so it may be written to later."""
        if buffer is None:
            return None
        return self._tensor(buffer) if self.places.of(buffer) else Constant(alike(buffer))

    def leave(self, entry: TapeEntry, attributes: Iterable[tuple[str, str, Tensor]]) -> None:
        """A call has left these in attributes of modules."""
        entry.left = tuple((self._meet(tensor), path, name) for path, name, tensor in attributes)

    def spare(self, things: Iterable[Any]) -> None:
        """These are about to be written over: what the tape holds of their memory is copied."""
        for thing in things:
            if issubclass(type(thing), Tensor):
                for found in self._lying.pop(memory_of(thing), []):
                    self._copy(found)
                if id(thing) in self._held:
                    self._copy(self._held[id(thing)])
            elif type(thing) in (list, tuple):
                self.spare(thing)

    def _copy(self, found: Constant) -> None:
        if self._held.get(id(found.tensor)) is found:
            del self._held[id(found.tensor)]
        if not found.changed:  # else it is too late
            found.tensor = alike(found.tensor)
            found.version = version_of(found.tensor)

    def _lie(self, tensor: Tensor, number: int) -> None:
        if number not in self._lies:
            self._lies[number] = self.places.memory(tensor, number)

    def end(self, entry: TapeEntry, result: Any) -> None:
        """A call gave this: number it."""
        entry.outputs = tuple(map(self._meet, tensors_in(result)))
        if copies(entry.what) and result.grad_fn is None and memory_of(result) and is_whole(result):
            self.places.memories.adopt(result, entry.outputs[0])  # a parameter may be its only name: `copy.deepcopy(model)` makes such
        if entry.kind == FUNCTION and is_of_gradient(entry):
            self._gradients.update(self._lies[one] for one in entry.outputs)

    def _meet(self, tensor: Tensor) -> int:
        number = self.places.meet(tensor)
        if not torch.is_grad_enabled():  # if it has a history later, an autograd function of the user's, or compiled code, has made it
            self._bare.add(number)
        self._lie(tensor, number)
        return number

    def has_passes(self) -> bool:
        """Whether there were backward passes in the step under way."""
        return any(entry.kind == BACKWARD for entry in flat(self.entries))

    def step_ended(self, number: int, until: int) -> TapedStep:
        """The step without what nothing came of: neither in the weights, nor in anything that still lives."""
        self.places.memories.forget_gone()
        needed = {self._lies.get(one, -one) for one in self.places.alive()}
        step = TapedStep(number, until, self._useful(self.entries, needed), self.lacks, self.other)
        self.entries, self._lies, self._gradients, self._bare, self.lacks, self.other = [], {}, set(), set(), "", ("", "")
        self.torn, self._reaches_back = 0, False
        self.places.step_ended()
        self._reached = {key: one for key, one in self._reached.items() if one() is not None}
        self._inner = {memory: one for memory, one in self._inner.items() if not one.expired()}
        return step

    def _useful(self, entries: list[TapeEntry], needed: set[int]) -> list[TapeEntry]:
        kept = []
        for entry in reversed(entries):
            if not (entry.lasts or self._is_needed(entry, needed)):
                continue
            kept.append(entry)
            for part in reversed(entry.closures):
                part[:] = self._useful(part, needed)
            needed.update(self._lies.get(one, -one) for one in numbers_in([entry.args, entry.kwargs]))
        kept.reverse()
        return kept

    def _is_needed(self, entry: TapeEntry, needed: set[int]) -> bool:
        if entry.kind == CALL and entry.value:  # in training mode it may change buffers
            return True
        written = [self._lies.get(one, -one) for one in entry.writes]
        if any(one in self._gradients for one in written):  # also of those that are gone, for a step was made
            return True
        if any(map(self.places.memories.lasts, written)):
            return True
        touched = (*entry.outputs, *entry.writes, *(number for number, _, _ in entry.left))
        return not self.places.memories.numbers().isdisjoint(entry.outputs) or any(
            self._lies.get(one, -one) in needed or self.places.is_own(one) for one in touched
        )

    def recount(self, steps: Iterable[TapedStep]) -> int:
        """Bytes that some steps hold, each tensor once; what they do not hold is let go of."""
        found = {id(one): one for step in steps for one in step.constants()}
        self._held = {key: one for key, one in self._held.items() if id(one) in found}
        lying = ((memory, [one for one in held if id(one) in found]) for memory, held in self._lying.items())
        self._lying = {memory: held for memory, held in lying if held}
        return sum(nbytes(one.tensor) for one in found.values())


def _put(tensor: Tensor, value: Tensor) -> None:
    with torch.no_grad():
        tensor.copy_(value)


def _nodes(things: Any) -> Iterator[Any]:
    """The nodes of the graph behind some tensors, each once."""
    todo = [one.grad_fn for one in tensors_in(things)]
    seen: set[Any] = set()
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        todo += [after for after, _ in node.next_functions]


def nbytes(tensor: Tensor) -> int:
    """Bytes of a tensor's own numbers."""
    try:
        if tensor.layout is torch.sparse_coo:
            return nbytes(tensor._indices()) + nbytes(tensor._values())
        return int(tensor.nbytes) if tensor.layout is torch.strided else int(tensor.element_size() * tensor.numel())
    except (RuntimeError, NotImplementedError):
        return 0


def is_small_part(tensor: Tensor) -> bool:
    """Whether it is a view of a much larger memory, which would be held with it."""
    try:
        return tensor.untyped_storage().nbytes() > 2 * tensor.nbytes and is_there(tensor)
    except (RuntimeError, NotImplementedError, TypeError):  # sparse, nested
        return False


def alike(tensor: Tensor) -> Tensor:
    """A copy without a history, whose memory begins as far from a multiple of 64 bytes: then the same kernels give the same numbers.

    Raises:
        NoValuesError: its memory is gone.
    """
    if is_gone(tensor):
        raise NoValuesError(absence(tensor))
    return without_autograd(_alike, tensor)


def _alike(tensor: Tensor) -> Tensor:
    plain = (
        tensor.layout is torch.strided and not tensor.is_quantized and not tensor.is_nested and type(tensor) in (Tensor, torch.nn.Parameter)
    )
    if not plain or tensor.device.type != "cpu" or not tensor.data_ptr() % ALIGNED or not tensor.is_contiguous():
        return tensor.detach().clone()
    size = tensor.element_size()
    room = tensor.new_empty(tensor.numel() + 2 * ALIGNED // size)
    off = (tensor.data_ptr() - room.data_ptr()) % ALIGNED
    if off % size:
        return tensor.detach().clone()
    made = room[off // size : off // size + tensor.numel()].view(tensor.shape)
    return made.copy_(tensor)
