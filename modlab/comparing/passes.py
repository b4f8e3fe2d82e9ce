"""Passes of a model, call by call: inputs and outputs, how far they are from an earlier pass, and which modules drew random numbers."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import Module, MultiheadAttention

from modlab.comparing.divergence import Gap, at_once, summed
from modlab.comparing.hook_probes import POST, PRE, HookProbes, ProbedOutput
from modlab.comparing.kept_outputs import Kept, KeptOutputs, seen
from modlab.inspection import marks, stores
from modlab.records.structure import ROOT
from modlab.records.tensor import TensorStats
from modlab.running.guarded import afterwards
from modlab.running.listener import Listener
from modlab.running.randomness import Meter, Private
from modlab.running.values import arguments, leaves
from modlab.statistics import measure_tensor
from modlab.statistics.memory import arrived

HISTOGRAMS = 1000
"""Maximum number of modules for which histograms are taken: each takes 16 kB."""

_HOLDERS = ("ModuleList", "ModuleDict", "ParameterList", "ParameterDict")

Key = tuple[str, int]
"""The path of a module, and the number of the call."""


@dataclass(slots=True, eq=False)
class PassCall:
    """One call of a module."""

    path: str
    number: int
    training: bool | None
    entered: int  # calls that had ended when this one began
    state: int  # of the random number generators, when the call began
    autograd: tuple[bool, bool] = (True, True)  # when it began: autograd's mode, and whether one of its own parameters requires grad
    drew: bool = False  # in this call, or in one inside it
    inputs: tuple[Kept, ...] = ()
    positional: int = 0  # number of positional inputs
    stages: list[tuple[ProbedOutput, tuple[Kept, ...]]] = field(default_factory=list)  # what its own hooks made of inputs and outputs
    made: tuple[Kept, ...] | None = None  # what its forward returned, if its own hooks run after it
    outputs: tuple[Kept, ...] = ()
    finished: bool = False
    came: Gap | None = None  # distance of its inputs from those of the reference, if requested
    gap: Gap | None = None  # the same for its outputs

    @property
    def key(self) -> Key:
        """The key of the same call in any pass."""
        return self.path, self.number

    @property
    def requires_grad(self) -> bool | None:
        """Whether any output tensor requires grad; None if there are no tensors."""
        flags = [kept.requires_grad for kept in self.outputs if kept.is_tensor]
        return any(flags) if flags else None


@dataclass(slots=True)
class Stranger:
    """A module that was called but is not registered in the model."""

    type: str
    training: bool | None


class Probe(Protocol):
    """Runs calls a second time. What it runs is not recorded as part of the pass."""

    def begin(self, key: Key, module: Module, args: tuple[Any, ...]) -> None:
        """A call begins."""

    def end(self, key: Key, module: Module, kwargs: dict[str, Any], output: Any) -> None:
        """The call has ended."""


class Pass:
    """Observes one run.

    Args:
        paths: of modules, by id.
        reference: an earlier pass; outputs are compared with it as they are produced. Without it, inputs and outputs are kept and
            measured, and draws from Python's and numpy's generators are recorded too.
        probe: is called for each call.
        stranger: is called with each module that is not in `paths`, before it runs.
        private: the model's own generators.
        hooked: modules whose own hooks are probed.
        sources: also compare inputs with those of the reference, so that `sources()` works.
    """

    def __init__(
        self,
        paths: dict[int, str],
        *,
        reference: Pass | None = None,
        probe: Probe | None = None,
        stranger: Callable[[Module], None] | None = None,
        private: Iterable[Private] = (),
        hooked: list[Module] | None = None,
        sources: bool = False,
    ) -> None:
        self.calls: dict[Key, PassCall] = {}
        self.ended: list[PassCall] = []  # calls that finished, in that order
        self.counts: Counter[str] = Counter()
        self.draws: defaultdict[str, set[str]] = defaultdict(set)
        self.drawing: dict[str, str] = {}  # module path → the first of its hooks that draws
        self.strangers: defaultdict[str, list[Stranger]] = defaultdict(list)
        self.stats: dict[str, TensorStats] = {}
        self.shelf, self.error = KeptOutputs() if reference is None and probe is None else None, ""
        self.raised: str | None = None  # path of the innermost module that the last exception propagated from
        self._error: BaseException | None = None  # only while the pass runs
        self._paths, self._reference, self._probe, self._stranger = paths, reference, probe, stranger
        self._busy, self._private, self._asks_sources = False, private, sources
        self._stack: list[PassCall | Stranger] = []
        self._owners: list[tuple[int, str]] = []  # id of each running module, and the path to which draws are attributed
        self._trouble: BaseException | None = None
        self._listener, self._hook_probes = Listener(self._enter, self._leave), HookProbes(hooked or [], self._look)

    def run(self, model: Module, *args: Any, **kwargs: Any) -> None:
        """Call the model and observe the call. Everything is removed afterwards, even after an interrupt."""
        try:
            afterwards(self._close, self._call, model, *args, **kwargs)
        except Exception as error:
            self._note_raised(error)
            raise
        finally:
            self._error = None

    def _call(self, model: Module, *args: Any, **kwargs: Any) -> None:
        self._meter = Meter(thorough=self.shelf is not None, private=self._private)
        self._hook_probes.open()
        self._listener.open()
        model(*args, **kwargs)

    def _close(self) -> None:
        self._listener.close()
        self._hook_probes.close()

    def check(self) -> None:
        """Raise any error that occurred in the observation itself, which did not disturb the model's run."""
        if self._trouble is not None:
            raise self._trouble

    def _enter(self, module: Module, args: tuple[Any, ...]) -> None:
        if self._trouble is None and not self._busy:
            try:
                self._begin(module, args)
            except Exception as error:  # noqa: BLE001 - the model's run goes on; the error is raised afterwards
                self._trouble = error

    def _leave(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None, output: Any) -> None:
        if self._trouble is None and not self._busy:
            try:
                self._return(module, kwargs, output)
            except Exception as error:  # noqa: BLE001 - as above
                self._trouble = error

    def _look(self, sight: ProbedOutput, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if self._trouble is None and not self._busy:
            try:
                self._staged(sight, module, args, kwargs, output)
            except Exception as error:  # noqa: BLE001 - as above
                self._trouble = error

    def _begin(self, module: Module, args: tuple[Any, ...]) -> None:
        self._note_draws()
        path, training = self._paths.get(id(module)), stores.mode(module)
        if path is None:
            if self._stranger is not None:
                self._stranger(module)
            above = self._owners[-1][1] if self._owners else ""
            stranger = Stranger(type(module).__name__, training)
            if stranger not in self.strangers[above]:
                self.strangers[above].append(stranger)
            self._stack.append(stranger)
            self._owners.append((id(module), above))
            return
        call = PassCall(path, self.counts[path], training, len(self.ended), self._meter.state, (torch.is_grad_enabled(), _trains(module)))
        self.counts[path] += 1
        if self.shelf is not None:
            call.inputs = self.shelf.all(arguments((), args))  # by position: two classes may name them differently
            call.positional = len(call.inputs)
        elif self._asks_sources and (earlier := self._earlier(call)) is not None:
            call.came = at_once(earlier.inputs[: earlier.positional], seen(arguments((), args)))
        self.calls[call.key] = call
        self._stack.append(call)
        self._owners.append((id(module), path))
        if self._probe is not None and not self._hook_probes.sees(module, PRE):
            self._probe.begin(call.key, module, args)

    def _staged(self, sight: ProbedOutput, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """One of the module's own hooks has run."""
        if self._note_draws():
            self.drawing.setdefault(self._paths.get(id(module), ""), f"{sight.kind} {sight.hook}")
        if not self._owners or self._owners[-1][0] != id(module):
            return
        call = self._stack[-1]
        if isinstance(call, Stranger):
            return
        if self.shelf is not None:
            call.stages.append((sight, self.shelf.all(arguments((), args, kwargs) if sight.kind == PRE else leaves(output))))
        if sight.last and sight.kind != PRE:
            self._end(module, kwargs, output)
        elif sight.last and self._probe is not None:
            self._probe.begin(call.key, module, args)

    def _return(self, module: Module, kwargs: dict[str, Any] | None, output: Any) -> None:
        """Its forward has returned or raised."""
        self._note_draws()
        if sys.exception() is not None and output is None and kwargs is None:
            self._note_raised(sys.exception())
            self._drop(module)
            return
        call = next((call for (key, _), call in zip(self._owners[::-1], self._stack[::-1], strict=True) if key == id(module)), None)
        if self._probe is not None and isinstance(call, PassCall):
            self._busy = True  # what the probe runs is not part of the pass
            try:
                self._probe.end(call.key, module, kwargs or {}, output)
            finally:
                self._busy = False
        if not self._hook_probes.sees(module, POST):
            self._end(module, kwargs, output)
        elif isinstance(call, PassCall) and self.shelf is not None:
            call.made = self.shelf.all(leaves(output))

    def _note_raised(self, error: BaseException | None) -> None:
        """Record where an exception came from: the innermost module it propagates out of counts."""
        if self.raised is None or self._error is not error:
            self.raised, self._error = self._owners[-1][1] if self._owners else "", error

    def _drop(self, module: Module) -> PassCall | Stranger | None:
        """Pop a call off the stack, along with any calls inside it that an exception ended unseen."""
        while self._owners and self._owners[-1][0] != id(module):
            self._owners.pop(), self._stack.pop()
        if not self._owners:
            return None
        self._owners.pop()
        return self._stack.pop()

    def _end(self, module: Module, kwargs: dict[str, Any] | None, output: Any) -> None:
        """The call has ended, including its own hooks."""
        call = self._drop(module)
        if isinstance(call, PassCall):
            self._finish(call, kwargs, output)

    def _earlier(self, call: PassCall) -> PassCall | None:
        """The same call of the reference, if it finished."""
        found = None if self._reference is None else self._reference.calls.get(call.key)
        return found if found is not None and found.finished else None

    def _finish(self, call: PassCall, kwargs: dict[str, Any] | None, output: Any) -> None:
        call.finished, call.drew = True, self._meter.state != call.state
        self.raised = None  # an exception from a module inside was caught
        self.ended.append(call)
        if self.shelf is not None:
            call.inputs += self.shelf.all(arguments((), (), kwargs))
            call.outputs = self.shelf.all(leaves(output))
            if call.number == 0:
                self._measure(call.path, output, histogram=len(self._paths) <= HISTOGRAMS)
        elif self._reference is not None:
            earlier = self._earlier(call)
            if call.came is not None and earlier is not None and len(earlier.inputs) > earlier.positional:
                call.came.add(at_once(earlier.inputs[earlier.positional :], seen(arguments((), (), kwargs))))
            self._compare(call, earlier, output)

    def _compare(self, call: PassCall, earlier: PassCall | None, output: Any) -> None:
        """Compare with the same call of the reference; measure statistics only if they are not known to be equal."""
        now = seen(leaves(output))
        call.outputs = tuple(replace(kept, values=None) for kept in now)
        if earlier is not None:
            call.gap = at_once(earlier.outputs, now)
        if call.number == 0 and self._reference is not None:
            if call.gap is not None and call.gap.equal is not False and call.path in self._reference.stats:
                self.stats[call.path] = self._reference.stats[call.path]
            else:
                self._measure(call.path, output, histogram=False)

    def _measure(self, path: str, output: Any, *, histogram: bool) -> None:
        for _, thing, _ in leaves(output):
            if issubclass(type(thing), Tensor):
                self.stats[path] = measure_tensor(arrived(thing), histogram=histogram)
                return

    def _note_draws(self) -> bool:
        """Attribute all draws since the last event to the running module."""
        names = self._meter.used()
        if names:
            self.draws[self._owners[-1][1] if self._owners else ""].update(names)
        return bool(names)

    def of(self, path: str) -> Iterator[PassCall]:
        """The calls of one module, in order."""
        for number in range(self.counts[path]):
            yield self.calls[path, number]

    def gap(self, path: str) -> Gap | None:
        """The distance of all calls of a module from those of the reference; None if there are none to compare."""
        found = [call.gap for call in self.of(path) if call.gap is not None]
        return summed(found) if found else None

    @property
    def drew(self) -> bool:
        """Whether any random number was drawn."""
        return any(self.draws.values())

    def first_apart(self) -> str | None:
        """The path of the first call to end with an output that differs from the reference's, or None."""
        return next((call.path for call in self.ended if call.gap is not None and call.gap.equal is False), None)

    def sources(self) -> list[str]:
        """Paths of the modules in whose own code this pass diverges from the reference.

        Their inputs agree, their outputs do not, and no module inside them is the cause.
        """
        found: list[str] = []
        started: list[bool] = []
        for call in self.ended:
            came = call.came is not None and call.came.equal is not False
            starts = came and call.gap is not None and call.gap.equal is False and not any(started[call.entered :])
            started.append(starts)
            if starts:
                found.append(call.path)
        return list(dict.fromkeys(found))

    def first_nan(self) -> str | None:
        """The path of the first call to end with NaN in its output, or None."""
        return next((c.path for c in self.ended if c.number == 0 and (stats := self.stats.get(c.path)) is not None and stats.nan), None)

    def parts_from(self, other: Pass) -> bool:
        """Whether this run differs from another: different outputs, different calls, or an exception."""
        return bool(self.error) or self.counts != other.counts or self.first_apart() is not None


def _trains(module: Module) -> bool:
    held = stores.contents(module).get("_parameters") or {}
    return any(parameter is not None and parameter.requires_grad for parameter in held.values())


def first_paths(model: Module) -> dict[int, tuple[str, Module]]:
    """Each module once, under its first name, in tree order."""
    found: dict[int, tuple[str, Module]] = {}
    stack: list[tuple[str, Module]] = [("", model)]
    while stack:
        path, module = stack.pop()
        if id(module) in found:
            continue
        found[id(module)] = path, module
        prefix = path + "." if path else ""
        stack.extend((prefix + name, child) for name, child in reversed(stores.named_children(module)) if child is not None)
    return found


class Uncounted(NamedTuple):
    """Why a module was not seen being called; `unseen` means that calls inside it cannot be observed at all."""

    text: str
    unseen: bool = False


def hidden_reason(path: str, module: Module, places: Collection[tuple[str, Module]], counts: Mapping[str, int]) -> Uncounted:
    """Why a module was not seen being called.

    Args:
        path: of the module that was not called.
        module: the module.
        places: all paths and modules.
        counts: how often each path was called.
    """
    by_path = dict(places)
    for above in _above(path):
        known = set(marks.of_class(type(by_path[above]))) & {"compiled", "scripted"} if above in by_path else set()
        if known:
            return Uncounted(f"runs inside {above or ROOT}, which is {known.pop()}: what happens there cannot be seen", unseen=True)
    if type(module).__name__ in _HOLDERS:
        return Uncounted("holds modules")
    prefix = path + "." if path else ""
    if any(count and one.startswith(prefix) and one != path for one, count in counts.items()):
        return Uncounted("not called itself; modules inside it are")
    above = path.rpartition(".")[0]
    if type(by_path.get(above)) is MultiheadAttention and counts[above]:
        return Uncounted(f"{above or ROOT} uses its weights without calling it")
    return Uncounted("not called in this pass")


def _above(path: str) -> Iterator[str]:
    while path:
        path = path.rpartition(".")[0]
        yield path
