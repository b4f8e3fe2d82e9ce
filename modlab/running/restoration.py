"""Restoration of everything in a model that a forward pass can change: saved once, compared and restored after each pass.

The modules run with their own tensors, since copies would be missed by other references to them (a recurrent layer keeps a list
of its weights). Bits are written back only where they differ, bypassing autograd, and the version counter is restored with them,
so that a graph the user holds stays valid.
"""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import is_dataclass
from operator import is_
from types import NoneType, SimpleNamespace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy

from modlab.compat import inference, set_grad, set_version, without_autograd
from modlab.inspection import stores
from modlab.inspection.fingerprint import fingerprint
from modlab.inspection.tensor_difference import equal_bits
from modlab.running.fsdp import FSDPUnits
from modlab.running.randomness import Private, Undo, is_private, named_in_code
from modlab.statistics.memory import NoValuesError, is_sharded, is_there, local, require_values

KEPT = 2 << 30
"""Bytes of parameters to copy; beyond that, only a fingerprint shows whether they changed. Buffers are always copied."""

_DICTS = (dict, OrderedDict, defaultdict, Counter)
_CONTAINERS = frozenset({*_DICTS, list, set, deque})
_PLAIN = frozenset({bool, int, float, str, NoneType})
_DEPTH = 3  # depth of containers inside containers in a module's own attributes
_OF_OPTIMIZER = 5  # its attributes; the state; of a parameter; LBFGS's lists; and one more
_LONG = 10_000  # maximum number of entries for a container to be searched for others

_ABSENT = object()


class Change(NamedTuple):
    """One tensor or plain attribute that has changed."""

    owner: Module
    name: str
    kind: str
    before: Any
    after: Any


class Restoration:
    """The state of modules when they were added.

    Args:
        kept: bytes of parameters to copy; `KEPT` by default. With 0 they are not even read.
    """

    def __init__(self, kept: float | None = None) -> None:
        self._modules: dict[int, _ModuleState] = {}
        self._tensors: dict[int, _TensorState] = {}
        self._containers: dict[int, _Container] = {}
        self._arrays: dict[int, _Array] = {}
        self.generators: dict[int, Private] = {}
        self._units = FSDPUnits()
        self._read: set[int] = set()  # ids of classes and functions already searched for generators
        self._left: float = KEPT if kept is None else kept
        self._blind = kept == 0

    def add(self, root: Module) -> None:
        """Save a module and all modules below it, including those it holds in plain lists; nothing is saved twice."""
        without_autograd(self._add, root)

    def _add(self, root: Module) -> None:
        todo = [root]
        while todo:
            for module in stores.modules(todo.pop()):
                if id(module) not in self._modules:
                    self._modules[id(module)] = _ModuleState(module)
                    todo.extend(self._attributes(module))

    def _attributes(self, module: Module) -> Iterator[Module]:
        """Save what one module holds; yields the modules that it holds unregistered."""
        self._units.add(module)
        for name, tensor in stores.named_tensors(module):
            self.add_tensor(tensor, spared=name in (stores.contents(module).get("_parameters") or ()))
        held = object.__getattribute__(module, "__dict__")
        self._containers[id(held)] = _Container(held)
        for name, generator in named_in_code(module, self._read):
            self.generators.setdefault(id(generator), Private(generator, f"the generator {name}"))
        author = _author(type(module))
        for name, thing in [*held.items()]:
            if type(thing) not in _PLAIN:
                yield from self._held(thing, _DEPTH if name != "_modules" else 0, author)

    def _held(self, thing: Any, depth: int, author: str) -> Iterator[Module]:
        if issubclass(type(thing), Tensor):
            self.add_tensor(thing)
        elif stores.is_module(thing):
            yield thing
        elif type(thing) in _CONTAINERS and id(thing) not in self._containers:
            self._containers[id(thing)] = _Container(thing)
            if depth and 0 < len(thing) <= _LONG:
                for part in [*(thing.values() if type(thing) in _DICTS else thing)]:
                    yield from self._held(part, depth - 1, author)
        elif (inside := _inside(thing, author)) is not None:
            if depth and id(inside) not in self._containers:
                yield from self._held(inside, depth, author)
        elif _is_array(thing):
            self._arrays.setdefault(id(thing), _Array(thing))
        else:
            self.add_arguments((thing,))

    def add_optimizer(self, optimizer: Any) -> None:
        """Save an optimizer's groups and its state, with the parameters that it holds."""
        held = object.__getattribute__(optimizer, "__dict__")
        without_autograd(lambda: deque(self._held(held, _OF_OPTIMIZER, _author(type(optimizer))), maxlen=0))

    def add_arguments(self, things: Iterable[Any]) -> None:
        """Save generators passed as arguments, which cannot be copied."""
        for thing in things:
            if is_private(thing) and id(thing) not in self.generators:
                self.generators[id(thing)] = Private(thing)

    def add_tensor(self, tensor: Tensor, *, spared: bool = False) -> None:
        """Save one tensor.

        Args:
            tensor: of any kind.
            spared: whether it may be too large to copy.
        """
        if id(tensor) in self._tensors or is_lazy(tensor):
            return
        state = self._tensors[id(tensor)] = _TensorState(tensor, calm=spared)
        if not spared or not self._blind:
            state.keep(copied=not spared or self._left > 0)
        state.take_gradient()  # after it is registered: an interrupt may arrive in between
        if spared:
            self._left -= state.bytes

    def changes(self) -> list[Change]:
        """Which of the modules' tensors and plain attributes have changed."""
        self._units.put_back()
        return without_autograd(lambda: [change for state in self._modules.values() for change in state.changes(self._tensors)])

    def is_touched(self) -> bool:
        """Whether anything that it restores, except gradients, is not as it was."""
        some: list[_State] = [*self._containers.values(), *self._modules.values(), *self._arrays.values(), *self._tensors.values()]
        return without_autograd(lambda: any([one.is_touched() for one in some]))

    def renew(self) -> None:
        """Restore everything except gradients, for the next pass.

        For parameters never seen to change, only the version counter is checked: large models have many bits. (Writes to ``.data``
        bypass that counter, so `changes` and `restore` read every bit.)
        """
        without_autograd(lambda: self._put_back([state.renew for state in self._tensors.values() if not state.rests()]))

    def restore(self) -> None:
        """Restore everything; a failure does not keep the rest from being restored, and is raised at the end."""
        without_autograd(self._put_back, [state.restore for state in self._tensors.values()])

    def _put_back(self, tensors: list[Undo]) -> None:
        troubles: list[Exception] = []
        others: list[_State] = [*self._containers.values(), *self._modules.values(), *self._arrays.values()]
        generators = [one.put_back for one in self.generators.values()]
        for undo in (self._units.put_back, *(state.restore for state in others), *tensors, *generators):
            try:
                undo()
            except Exception as error:  # noqa: BLE001 - restore all the others first
                troubles.append(error)
        if troubles:
            raise troubles[0]

    def lost(self) -> int:
        """How many parameters too large to copy were changed by the model itself, and stay changed."""
        return without_autograd(lambda: sum(state.lost() for state in self._tensors.values()))


def _author(cls: type) -> str:
    """The top-level package that defines a class."""
    return cls.__module__.partition(".")[0]


def _inside(thing: Any, author: str) -> dict[str, Any] | None:
    """The attributes of a plain object in which a model keeps state; None for anything else.

    That is a dataclass, a namespace, or an object whose class is from the same package as the module: others (files, loggers,
    threads) are not the model's to restore.
    """
    cls = type(thing)
    if issubclass(cls, type) or not (is_dataclass(cls) or cls is SimpleNamespace or _author(cls) == author):
        return None
    try:
        held = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return None
    return held if type(held) is dict else None


def _is_array(thing: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(thing) is numpy.ndarray and not thing.dtype.hasobject


class _Array:
    """The values of a numpy array."""

    def __init__(self, array: Any) -> None:
        self._array, self._before = array, array.copy()

    def is_touched(self) -> bool:
        return bool(self._array.shape != self._before.shape or self._array.tobytes() != self._before.tobytes())

    def restore(self) -> None:
        if self._array.shape == self._before.shape and self.is_touched():
            self._array[...] = self._before


class _State(Protocol):
    def is_touched(self) -> bool:
        """Whether it is not as it was."""

    def restore(self) -> None:
        """Restore it."""


class _Container:
    """A dict, list, set or deque: the same entries in the same order. Nothing is written if nothing changed."""

    __slots__ = ("_before", "_thing")

    def __init__(self, thing: Any) -> None:
        self._thing = thing
        self._before = self._entries()

    def _entries(self) -> list[Any]:
        """All entries; for a dict all keys, then all values."""
        thing = self._thing
        return [*thing, *thing.values()] if type(thing) in _DICTS else [*thing]

    def is_touched(self) -> bool:
        if not self._thing and not self._before:  # as for most hook dicts
            return False
        now = self._entries()
        return len(now) != len(self._before) or not all(map(is_, now, self._before))

    def restore(self) -> None:
        if not self.is_touched():
            return
        thing, before = self._thing, self._before
        thing.clear()
        if type(thing) in _DICTS:
            half = len(before) // 2
            thing.update(zip(before[:half], before[half:], strict=True))
        else:
            (thing.update if type(thing) is set else thing.extend)(before)


class _ModuleState:
    """A module's class, its attributes, and its mode if that is stored outside Python."""

    def __init__(self, module: Module) -> None:
        self.module, self._class = module, type(module)
        self._held = dict(object.__getattribute__(module, "__dict__"))
        self._own = {name: dict(held.items()) for name in ("_parameters", "_buffers") if (held := self._contents().get(name))}
        self._mode = None if "training" in self._held else stores.mode(module)

    def _contents(self) -> dict[str, Any]:
        return stores.contents(self.module)

    def is_touched(self) -> bool:
        """Its class, its mode, and its tensors where these are stored outside Python: the rest is in containers."""
        if type(self.module) is not self._class or (self._mode is not None and stores.mode(self.module) is not self._mode):
            return True
        return issubclass(self._class, torch.jit.ScriptModule) and any(map(self._is_replaced, self._own))

    def _is_replaced(self, store: str) -> bool:
        now = dict((self._contents().get(store) or {}).items())
        return any(now.get(name) is not tensor for name, tensor in self._own[store].items())

    def restore(self) -> None:
        if type(self.module) is not self._class:
            object.__setattr__(self.module, "__class__", self._class)
        if self._mode is not None and stores.mode(self.module) is not self._mode:
            self.module.training = self._mode
        if issubclass(type(self.module), torch.jit.ScriptModule):
            self._restore_scripted()

    def _restore_scripted(self) -> None:
        """A scripted module's buffers are stored outside Python, where `_Container` does not reach."""
        now = dict((self._contents().get("_buffers") or {}).items())
        for name, tensor in self._own.get("_buffers", {}).items():
            if now.get(name) is not tensor:
                setattr(self.module, name, tensor)

    def changes(self, tensors: dict[int, _TensorState]) -> Iterator[Change]:
        """Registered tensors first, then attributes set by its author."""
        now = self._contents()
        for kind, store in (("buffer", "_buffers"), ("parameter", "_parameters")):
            before, after = self._own.get(store, {}), dict((now.get(store) or {}).items())
            for name in [*before, *(name for name in after if name not in before)]:
                yield from self._tensor(kind, name, before.get(name), after.get(name), tensors)
        for name, value in self._held.items():
            if name not in stores.STANDARD and not stores.is_module(value):
                yield from self._attribute(name, value, now.get(name, _ABSENT), tensors)

    def _tensor(self, kind: str, name: str, before: Any, after: Any, tensors: dict[int, _TensorState]) -> Iterator[Change]:
        if (before is None and after is None) or (before is after and is_lazy(before)):
            return
        state = tensors.get(id(before))
        old = state.content() if state is not None else before
        if after is before and state is not None and not state.changed():
            return
        if after is None or before is None or (old is not None and not _same(old, after)):
            yield Change(self.module, name, kind, old, after)

    def _attribute(self, name: str, before: Any, after: Any, tensors: dict[int, _TensorState]) -> Iterator[Change]:
        if issubclass(type(before), Tensor) and issubclass(type(after), Tensor):
            yield from self._tensor("attribute", name, before, after, tensors)
        elif after is not before and not (type(before) is type(after) and type(before) in (int, float, str, bool) and before == after):
            yield Change(self.module, name, "attribute", before, None if after is _ABSENT else after)


def _same(before: Tensor, after: Tensor) -> bool:
    after = local(after)
    return before.dtype is after.dtype and equal_bits(before, after)


class _TensorState:
    """A tensor's bits, memory, version, gradient and flag; for a DTensor, the bits of this rank's shard."""

    def __init__(self, tensor: Tensor, *, calm: bool) -> None:
        self.tensor = tensor
        self.bytes = 0
        self._calm = calm  # a parameter never seen to change
        self._copy: Tensor | None = None
        self._print: bytes | None = None
        self._inference = tensor.is_inference()
        self._version = None if self._inference else tensor._version
        self._flag, self._leaf, self._class = tensor.requires_grad, tensor.is_leaf, type(tensor)
        self._own = not is_sharded(tensor)  # a sharded tensor never gets different memory: its owner keeps a pointer to it
        self._memory: Tensor = tensor.data if self._own else local(tensor)
        self._size = _bytes(self._memory)
        self._grad = tensor.grad if tensor.is_leaf else None

    def take_gradient(self) -> None:
        """Remove the gradient temporarily, so that a backward pass inside a forward does not add to it."""
        if self._grad is not None:
            self.tensor.grad = None

    def keep(self, *, copied: bool) -> None:
        """Keep a copy of its bits, or a fingerprint; nothing for a kind of tensor that has no values or cannot be copied."""
        with suppress(RuntimeError, NotImplementedError, TypeError, NoValuesError):
            require_values(self._memory)
            if copied:
                self._copy = self._memory.detach().clone()
                self.bytes = self._copy.numel() * self._copy.element_size()
            else:
                self._print = fingerprint(self._memory)

    def content(self) -> Tensor | None:
        """The tensor as it was, or None if it was not copied."""
        return self._copy

    def changed(self) -> bool:
        """Whether its bits or its memory have changed."""
        found = not self._in_place() or (self._copy is not None and not _readable_and_equal(self._now(), self._copy))
        self._calm = self._calm and not found
        return found

    def is_touched(self) -> bool:
        """Whether its bits, its memory, its kind or its flag are others."""
        tensor = self.tensor
        flagged = self._leaf and (tensor.requires_grad is not self._flag or not tensor.is_leaf)
        return flagged or type(tensor) is not self._class or self.changed()

    def rests(self) -> bool:
        """Whether it is a parameter that nothing seems to have touched. Writes to ``.data`` bypass the version counter."""
        tensor = self.tensor
        if not (self._calm and self._leaf and self._version is not None):
            return False
        asleep = tensor.grad is None and tensor.is_leaf and tensor.requires_grad is self._flag and type(tensor) is self._class
        return asleep and tensor._version == self._version and self._in_place() and _bytes(self._memory) == self._size

    def lost(self) -> bool:
        """Whether it changed and was not copied."""
        memory = self._now()
        return self._print is not None and is_there(memory) and fingerprint(memory) != self._print

    def _now(self) -> Tensor:
        """The memory to restore its bits to."""
        return self._memory if self._own else local(self.tensor)

    def _in_place(self) -> bool:
        """Whether the tensor still uses the same memory: a forward may assign ``weight.data``."""
        tensor, memory = self.tensor, self._memory
        if not self._own:
            return True
        try:
            return tensor.shape == memory.shape and tensor.stride() == memory.stride() and _storage(tensor) == _storage(memory)
        except (RuntimeError, NotImplementedError, TypeError):  # sparse, nested: no single storage
            return True

    def restore(self) -> None:
        """Restore everything, including the gradient."""
        try:
            self.renew()
        finally:
            if self._leaf and self.tensor.grad is not self._grad:
                with inference(self._inference):
                    set_grad(False)
                    self.tensor.grad = self._grad

    def renew(self) -> None:
        """Restore everything else, and clear the gradient."""
        tensor = self.tensor
        with inference(self._inference):
            set_grad(False)
            if type(tensor) is not self._class:
                object.__setattr__(tensor, "__class__", self._class)
            if not self._in_place():
                tensor.data = self._memory
            self._refill()
            if self._leaf and not tensor.is_leaf:
                tensor.detach_()  # it joined the graph of a pass
            if self._leaf and tensor.requires_grad is not self._flag:
                tensor.requires_grad_(self._flag)
            if self._leaf and tensor.grad is not None:
                tensor.grad = None
            if self._version is not None and tensor._version != self._version:
                set_version(tensor, self._version)

    def _refill(self) -> None:
        """Write the bits back if they differ, after reallocating memory that a pass has freed."""
        if self._copy is None:
            return
        memory = self._now()
        if _bytes(memory) < self._size and memory.shape == self._copy.shape:
            memory.untyped_storage().resize_(self._size)
        if is_there(memory) and memory.shape == self._copy.shape and not equal_bits(memory, self._copy):
            memory.copy_(self._copy)


def _bytes(memory: Tensor) -> int:
    """The size of a tensor's memory; 0 if it has no storage of its own."""
    try:
        return int(memory.untyped_storage().nbytes())
    except (RuntimeError, NotImplementedError, TypeError):  # sparse, nested
        return 0


def _storage(tensor: Tensor) -> tuple[Any, Any]:
    return tensor.untyped_storage()._cdata, tensor.storage_offset()


def _readable_and_equal(memory: Tensor, copy: Tensor) -> bool:
    """Whether they are equal; also true if there is nothing to read (meta tensors, freed memory) and so nothing to report."""
    return not is_there(memory) or equal_bits(memory, copy)
