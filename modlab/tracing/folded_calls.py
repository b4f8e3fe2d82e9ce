"""With ``fold=True``: which calls repeat one that is recorded already, so that they are only counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import FunctionType, MethodType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module

from modlab.inspection import stores, structure
from modlab.inspection.index import ModuleIndex, Node
from modlab.tracing.calls import Call, Seen
from modlab.tracing.hook_wrappers import innermost
from modlab.tracing.trace_index import STAGES

_WIDE = 64  # members of a list among a module's attributes that are compared; of a longer one its identity is
_PLAIN = (type(None), bool, int, str, bytes, torch.dtype, torch.device, torch.Size)
_OWN = frozenset(vars(Module())) - {"training", *STAGES}  # the stores: what is in them is in the tree

_Fact = tuple[str, str, Any]
"""Of which module below, the name of an attribute, and what it holds."""


class _First(NamedTuple):
    """A call that is recorded, and may stand for others."""

    call: Call
    parts: tuple[str, ...]
    facts: list[_Fact]


class Counted(NamedTuple):
    """A call that is only counted, if it ends like the first one; else it is told."""

    first: Call
    call: Call
    differing: tuple[str, ...]


class FoldedCalls:
    """Of equal subtrees that are called inside one event, with inputs of one kind, the first stands for all.

    Equal are trees of equal rows with equal attributes; a number that is the module's own in its list may differ, and is named.

    Attributes:
        alike: by path of a module whose call was only counted, the event that stands for it.
    """

    def __init__(self, model: Module) -> None:
        self._tree = structure.extract(model)
        self._first: dict[object, list[_First]] = {}
        self._counted: Counted | None = None
        self._skipped, self._depth = 0, 0
        self.alike: dict[str, int] = {}

    @property
    def skipping(self) -> bool:
        """Whether a call that is only counted is running."""
        return self._depth > 0

    def inside(self, module: int) -> bool:
        """Whether a call that begins is inside one that is only counted."""
        self._depth += bool(self._depth) and module == self._skipped
        return self._depth > 0

    def counts(self, call: Call, module: Module) -> bool:
        """Whether a call that begins, of which the inputs are known, repeats one; else it may stand for others."""
        found = None if call.path is None else self._tree.find(call.path)
        if found is None or call.path is None:
            return False
        key = call.parent, id(found.subtree), call.grad, tuple([_kind(seen) for seen in call.inputs])
        facts, parts = list(_facts(module)), tuple(call.path.split("."))
        for first in self._first.get(key, ()):
            differing = _differing(first, facts, parts)
            if differing is not None:
                self._counted = Counted(first.call, call, differing)
                self._skipped, self._depth = id(module), 1
                return True
        self._first.setdefault(key, []).append(_First(call, parts, facts))
        return False

    def ends(self, module: int) -> Counted | None:
        """The call that ends, if it was only counted; None if it is inside of that."""
        self._depth -= module == self._skipped
        if self._depth:
            return None
        counted, self._counted = self._counted, None
        return counted

    def joins(self, counted: Counted, outputs: Sequence[Seen]) -> bool:
        """Whether it gave the same kind of outputs as the first: then it is one of those that that stands for."""
        first, call = counted.first, counted.call
        if first.error or [_kind(seen) for seen in first.outputs] != [_kind(seen) for seen in outputs]:
            return False
        first.times += 1
        if counted.differing:
            first.mark("differ", names=tuple(counted.differing))
        if call.path is not None:
            self.alike[call.path] = first.index
        return True

    def abandon(self) -> None:
        """A call that was only counted was interrupted, and will not end."""
        self._depth, self._counted = 0, None


def _kind(seen: Seen) -> object:
    """All that must be equal of two values: not the numbers, but whether they are numbers."""
    name, sight, requires_grad, _ = seen
    stats = sight.stats
    odd = stats is not None and stats.measured and (stats.nan > 0, stats.posinf + stats.neginf > 0)
    return name, sight.kind, sight.shape, sight.dtype, sight.device, requires_grad, sight.text, odd


def _differing(first: _First, facts: list[_Fact], parts: tuple[str, ...]) -> tuple[str, ...] | None:
    """The attributes that hold each module's own number; None if they differ in anything else."""
    if len(first.facts) != len(facts):
        return None
    found: dict[str, None] = {}
    for (path, name, one), (other_path, other_name, other) in zip(first.facts, facts, strict=True):
        if (path, name) != (other_path, other_name):
            return None
        if one != other:
            own = zip(first.parts, parts, strict=False)
            if type(one[1]) is not int or (str(one[1]), str(other[1])) not in own:
                return None
            found[name] = None
    return tuple(found)


def _facts(module: Module) -> Iterator[_Fact]:
    """The attributes and hooks of a module and those below it."""
    for node, one in ModuleIndex(module, Node).found:
        path = node.registered
        for name, thing in stores.contents(one).items():
            if name in STAGES:
                if thing:
                    yield path, name, ("hooks", tuple([_function(innermost(hook)) for hook in thing.values()]))
            elif name not in _OWN:
                yield path, name, _said(thing)


def _function(hook: Any) -> object:
    if type(hook) is MethodType:
        return id(hook.__func__)
    return id(hook) if type(hook) is FunctionType else type(hook)


def _said(thing: Any) -> tuple[Any, Any]:
    """What an attribute holds, to be compared without asking it: plain things by value, tensors by kind, others by identity."""
    cls = type(thing)
    if cls in _PLAIN:
        return cls, thing
    if cls in (float, complex):
        return cls, repr(thing)
    if cls in (list, tuple) and len(thing) <= _WIDE:
        return cls, tuple([_said(member) for member in thing])
    if issubclass(cls, Tensor):
        return cls, (tuple(thing.shape), thing.dtype) if thing.layout is torch.strided and not thing.is_nested else id(thing)
    return cls, id(thing)
