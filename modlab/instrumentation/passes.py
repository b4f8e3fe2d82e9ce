"""One run of a model, call by call: what went in and out, how far that is from an earlier run, and who drew random numbers."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor
from torch.nn import Module

from modlab.inspection import stores
from modlab.instrumentation.divergence import Gap, between
from modlab.instrumentation.randomness import Meter
from modlab.instrumentation.shelf import Kept, Shelf
from modlab.instrumentation.taps import Taps
from modlab.instrumentation.values import arguments, leaves
from modlab.records.tensor import TensorStats
from modlab.statistics import measure_tensor

HISTOGRAMS = 1000
"""Modules up to which histograms are taken: one takes 16 kB."""

Key = tuple[str, int]
"""The path of a module, and which of its calls."""


@dataclass(slots=True)
class Call:
    """One call of a module."""

    path: str
    number: int
    training: bool | None
    entered: int  # calls that had ended when this one began
    state: int  # of the random generators when it began
    drew: bool = False  # in it, or in a call inside it
    inputs: tuple[Kept, ...] = ()
    outputs: tuple[Kept, ...] = ()
    finished: bool = False
    gap: Gap | None = None  # from the call of an earlier pass

    @property
    def key(self) -> Key:
        """What the same call has in another pass."""
        return self.path, self.number

    @property
    def requires_grad(self) -> bool | None:
        """Whether a tensor of the output requires grad; None if there is no tensor."""
        flags = [kept.requires_grad for kept in self.outputs if kept.is_tensor]
        return any(flags) if flags else None


@dataclass(slots=True)
class Stranger:
    """A module that was called and is not registered in the model."""

    type: str
    training: bool | None


class Probe(Protocol):
    """Runs calls a second time. What it runs is not seen as a part of the pass."""

    def begin(self, key: Key, args: tuple[Any, ...]) -> None:
        """A call begins."""

    def end(self, key: Key, module: Module, kwargs: dict[str, Any], output: Any) -> None:
        """It has ended."""


class Pass:
    """Looks at one run. Use it as a context manager around the call of the model.

    Args:
        paths: of modules, by id.
        shelf: keeps what calls take and give; None: only what they give is looked at, and not kept.
        reference: an earlier pass that kept it, from which the distance is taken.
        thorough: also note who draws from Python's and numpy's generators.
        probe: is told of each call.
        stranger: is told of modules that are not in `paths`, before they run.
    """

    def __init__(
        self,
        paths: dict[int, str],
        *,
        shelf: Shelf | None = None,
        reference: Pass | None = None,
        thorough: bool = False,
        probe: Probe | None = None,
        stranger: Callable[[Module], None] | None = None,
    ) -> None:
        self.calls: dict[Key, Call] = {}
        self.ended: list[Call] = []  # calls that came to their end, in that order
        self.counts: Counter[str] = Counter()
        self.draws: defaultdict[str, set[str]] = defaultdict(set)
        self.strangers: defaultdict[str, list[Stranger]] = defaultdict(list)
        self.stats: dict[str, TensorStats] = {}
        self.shelf, self.error = shelf, ""
        self._paths, self._reference, self._stranger = paths, reference, stranger
        self._looking = shelf or Shelf(0)
        self._thorough, self._probe, self._busy = thorough, probe, False
        self._stack: list[Call | Stranger] = []
        self._owners: list[tuple[int, str]] = []  # id of each running module, and the path that draws are put to
        self._trouble: BaseException | None = None
        self._taps = Taps(self._enter, self._leave)

    def __enter__(self) -> None:
        self._meter = Meter(self._thorough)
        self._taps.open()

    def __exit__(self, *_: object) -> None:
        self._taps.close()

    def check(self) -> None:
        """Raise what went wrong in the looking itself: the model's run was not disturbed by it."""
        if self._trouble is not None:
            raise self._trouble

    def _enter(self, module: Module, args: tuple[Any, ...]) -> None:
        if self._trouble is None and not self._busy:
            try:
                self._begin(module, args)
            except Exception as error:  # noqa: BLE001 - the model's run goes on; the trouble is told afterwards
                self._trouble = error

    def _leave(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None, output: Any) -> None:
        if self._trouble is None and not self._busy:
            try:
                self._end(module, kwargs, output)
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
        call = Call(path, self.counts[path], training, len(self.ended), self._meter.state)
        self.counts[path] += 1
        if self.shelf is not None:
            call.inputs = self.shelf.all(arguments((), args))  # by place: two classes may name them otherwise
        self.calls[call.key] = call
        self._stack.append(call)
        self._owners.append((id(module), path))
        if self._probe is not None:
            self._probe.begin(call.key, args)

    def _end(self, module: Module, kwargs: dict[str, Any] | None, output: Any) -> None:
        self._note_draws()
        while self._owners and self._owners[-1][0] != id(module):  # what an exception went through without a word
            self._owners.pop(), self._stack.pop()
        if not self._owners:
            return
        self._owners.pop()
        call = self._stack.pop()
        if isinstance(call, Stranger) or (sys.exception() is not None and output is None and kwargs is None):
            return
        self._finish(call, kwargs, output)
        if self._probe is not None:
            self._busy = True  # what the probe runs is not a part of the pass
            try:
                self._probe.end(call.key, module, kwargs or {}, output)
            finally:
                self._busy = False

    def _finish(self, call: Call, kwargs: dict[str, Any] | None, output: Any) -> None:
        call.finished, call.drew = True, self._meter.state != call.state
        if self.shelf is not None:
            call.inputs += self.shelf.all(arguments((), (), kwargs))
        if call.number == 0:
            self._measure(call.path, output)
        call.outputs = self._looking.all(leaves(output))
        self.ended.append(call)
        if self._reference is not None:
            earlier = self._reference.calls.get(call.key)
            if earlier is not None and earlier.finished:
                call.gap = between(earlier.outputs, call.outputs)
        if self.shelf is None:
            call.outputs = tuple(_without_values(kept) for kept in call.outputs)

    def _measure(self, path: str, output: Any) -> None:
        for _, thing, _ in leaves(output):
            if issubclass(type(thing), Tensor):
                self.stats[path] = measure_tensor(thing, histogram=self.shelf is not None and len(self._paths) <= HISTOGRAMS)
                return

    def _note_draws(self) -> None:
        """What was drawn since the last event was drawn by the module that is running."""
        for name in self._meter.used():
            self.draws[self._owners[-1][1] if self._owners else ""].add(name)

    def of(self, path: str) -> Iterator[Call]:
        """The calls of one module, in order."""
        for number in range(self.counts[path]):
            yield self.calls[path, number]

    def gap(self, path: str) -> Gap | None:
        """The distance of all calls of a module from those of the reference; None if there are none to compare."""
        found = [call.gap for call in self.of(path) if call.gap is not None]
        return summed(found) if found else None


def summed(gaps: list[Gap]) -> Gap:
    """All as one."""
    total = Gap()
    for gap in gaps:
        total.add(gap)
    return total


def _without_values(kept: Kept) -> Kept:
    return Kept(kept.name, kept.digest, None, kept.stride, kept.text, kept.is_tensor, kept.requires_grad, kept.note)


def first_paths(model: Module) -> dict[int, tuple[str, Module]]:
    """Each module once, under its first name, in the order of the tree."""
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
