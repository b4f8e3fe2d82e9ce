"""All random generators that a forward pass may draw from: their states, and whether they were used."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch.nn import Module

from modlab.inspection import stores

OTHER = 0x0DDB1A5E
"""The seed for a second run with different random numbers; the same in every comparison."""

Undo = Callable[[], None]


def states() -> Undo:
    """A function that restores all generators: torch's on every device in use, Python's and numpy's."""
    own, numpy = random.getstate(), sys.modules.get("numpy")
    theirs = None if numpy is None else numpy.random.get_state()
    torchs = [(generator, generator.get_state()) for generator in generators()]

    def put_back() -> None:
        for generator, state in torchs:
            generator.set_state(state)
        random.setstate(own)
        if numpy is not None and theirs is not None:
            numpy.random.set_state(theirs)

    return put_back


def start_elsewhere() -> None:
    """Reseed every generator, so that it gives different numbers than before."""
    for generator in generators():
        generator.manual_seed(OTHER)
    random.seed(OTHER)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(OTHER)


class _Apple:
    """The generator of Apple devices, for which torch has no generator object."""

    device = torch.device("mps")
    get_state = staticmethod(torch.mps.get_rng_state)
    set_state = staticmethod(torch.mps.set_rng_state)
    manual_seed = staticmethod(torch.mps.manual_seed)


def generators() -> list[Any]:
    """The generators of the devices in use; an unused device is not initialized."""
    found: list[Any] = [torch.default_generator]
    for name in ("cuda", "xpu"):
        backend: Any = getattr(torch, name, None)
        if backend is not None and backend.is_available() and backend.is_initialized():
            found += backend.default_generators
    if torch.backends.mps.is_available():
        found.append(_Apple)
    return found


class Private:
    """A generator that a module holds, or that its code refers to: torch's, Python's or one of numpy's.

    Args:
        thing: the generator.
        name: how it is described to the user.
    """

    def __init__(self, thing: Any, name: str = "its own generator") -> None:
        self.name = name
        self._thing, self._before = thing, None
        self._before = self._state()

    def _state(self) -> Any:
        thing = self._thing
        if type(thing) is random.Random:
            return thing.getstate()
        return thing.bit_generator.state if hasattr(thing, "bit_generator") else thing.get_state()

    def read(self) -> Any:
        """A value that stays equal as long as nothing is drawn."""
        state = self._state()
        return (
            state.numpy().tobytes() if type(state) is torch.Tensor else state if type(state) is tuple and len(state) == 3 else repr(state)
        )

    def put_back(self) -> None:
        """Restore the state in which it was found."""
        thing = self._thing
        if type(thing) is random.Random and self._before is not None:
            thing.setstate(self._before)
        elif hasattr(thing, "bit_generator"):
            thing.bit_generator.state = self._before
        else:
            thing.set_state(self._before)

    def start_elsewhere(self) -> None:
        """Reseed it, so that it gives different numbers than before."""
        thing = self._thing
        if hasattr(thing, "bit_generator"):
            thing.bit_generator.state = type(thing.bit_generator)(OTHER).state
        else:
            (thing.manual_seed if type(thing) is torch.Generator else thing.seed)(OTHER)


def is_private(thing: Any) -> bool:
    """Whether a thing is a generator."""
    numpy = sys.modules.get("numpy")
    cls = type(thing)
    return cls in (torch.Generator, random.Random) or (numpy is not None and cls in (numpy.random.Generator, numpy.random.RandomState))


_DEPTH, _MOST = 3, 200  # depth of functions referring to functions, and how many of them are read


def named_in_code(module: Module, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Generators outside a module that the code of its class, its attributes or its hooks refers to, each with its name.

    They are found in module globals, closures, default arguments or on the class. Nothing is called.

    Args:
        module: the module.
        seen: ids of classes and functions already read; new ones are added.
    """
    held = object.__getattribute__(module, "__dict__")
    todo: list[tuple[Any, int]] = [(hook, 0) for name in stores.HOOKS if held.get(name) for hook in [*held[name].values()]]
    todo += [(value, 0) for value in [*held.values()] if type(value) in (FunctionType, MethodType)]
    for base in type(module).__mro__:
        if base is Module or str(base.__module__).partition(".")[0] == "torch":
            break
        if id(base) in seen:
            continue
        seen.add(id(base))
        for name, value in [*vars(base).items()]:
            if is_private(value):
                yield name, value
            todo.append((value, 0))
    left = _MOST
    while todo and left:
        thing, depth = todo.pop()
        function = thing.__func__ if type(thing) in (MethodType, staticmethod, classmethod) else thing
        if type(function) is not FunctionType or id(function) in seen or _of_library(function):
            continue
        seen.add(id(function))
        left -= 1
        for name, value in _named(function):
            if is_private(value):
                yield name, value
            elif depth < _DEPTH:
                todo.append((value, depth + 1))


def in_code(modules: Iterable[Module]) -> list[Any]:
    """The generators outside of modules that their code refers to, each once."""
    seen: set[int] = set()
    return [*{id(thing): thing for module in modules for _, thing in named_in_code(module, seen)}.values()]


def referred(things: Iterable[Any]) -> list[Any]:
    """The generators that functions and objects refer to, as a loss or a loader of batches, each once."""
    found: dict[int, Any] = {}
    seen: set[int] = set()
    todo = [(thing, 0) for thing in things]
    while todo and len(seen) < _MOST:
        thing, depth = todo.pop()
        if is_private(thing):
            found[id(thing)] = thing
        elif depth <= _DEPTH and id(thing) not in seen:
            seen.add(id(thing))
            todo += [(part, depth + 1) for part in _parts(thing)]
    return [*found.values()]


def _parts(thing: Any) -> list[Any]:
    """What a function, or an object with its call, can refer to."""
    if type(thing) is partial:
        return [thing.func, *thing.args, *thing.keywords.values()]
    if type(thing) is MethodType:
        return [thing.__func__, thing.__self__]
    if type(thing) is FunctionType:
        return [] if _of_library(thing) else [part for _, part in _named(thing)]
    if isinstance(thing, type | ModuleType):
        return []
    held = getattr(thing, "__dict__", {})
    return [*held.values(), vars(type(thing)).get("__call__")]


def _of_library(function: FunctionType) -> bool:
    return str(function.__globals__.get("__name__", "")).partition(".")[0] in ("torch", "numpy", "random") and not function.__closure__


def _named(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function can refer to by name: globals, its closure, its default arguments."""
    room = function.__globals__
    yield from ((name, room[name]) for name in _names(function.__code__) if name in room)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not filled yet
            continue
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    defaults = function.__defaults__ or ()
    yield from zip(names[len(names) - len(defaults) :], defaults, strict=False)
    yield from (function.__kwdefaults__ or {}).items()


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for part in code.co_consts:
        if type(part) is CodeType:
            yield from _names(part)


class Meter:
    """Reports which generators were used since it was last read.

    Args:
        thorough: also read Python's and numpy's, which takes ten times as long as torch's (about 35 µs instead of 3).
        private: also read these.
    """

    def __init__(self, thorough: bool = False, private: Iterable[Private] = ()) -> None:
        self._readers: list[tuple[str, Callable[[], Any]]] = [(_name(one), _state_of(one)) for one in generators()]
        if thorough:
            self._readers.append(("Python's random", random.getstate))
            if "numpy" in sys.modules:
                self._readers.append(("numpy", _of_numpy))
            self._readers += [(one.name, one.read) for one in private]
        self._last = [read() for _, read in self._readers]
        self.state = hash(tuple(self._last))
        """The same number means the same state of all generators."""

    def used(self) -> list[str]:
        """Names of the generators used since the last call; nearly always empty."""
        now = [read() for _, read in self._readers]
        if now == self._last:
            return []
        names = [name for (name, _), before, after in zip(self._readers, self._last, now, strict=True) if before != after]
        self._last, self.state = now, hash(tuple(now))
        return names


def _name(generator: Any) -> str:
    kind = generator.device.type
    return "torch" if kind == "cpu" else f"torch on {kind}"


def _state_of(generator: Any) -> Callable[[], bytes]:
    """Reads the state, which is in CPU memory even for an accelerator's generator."""
    return lambda: generator.get_state().numpy().tobytes()


def _of_numpy() -> tuple[int, bytes]:
    state: Any = sys.modules["numpy"].random.get_state(legacy=True)
    return state[2], state[1][:8].tobytes()
