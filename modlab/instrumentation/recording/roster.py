"""Who can appear in a trace: the modules of a model and their tensors, by identity."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import Module

from modlab.inspection import stores

FUSED = (nn.TransformerEncoder, nn.TransformerEncoderLayer, nn.MultiheadAttention)
_DISTRIBUTED = ("DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule")

STAGES = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


class Owned(NamedTuple):
    """A parameter, the module that owns it first, its dotted name, and the one that it has there."""

    path: str
    tensor: Tensor
    owner: Module
    name: str


class Roster:
    """The modules of a model in the order of ``named_modules()``, each under its first name. Holds them all."""

    def __init__(self, model: Module) -> None:
        self.modules: dict[str, Module] = {}
        self.paths: dict[int, str] = {}
        self.parameters: list[Owned] = []
        self.names: dict[int, str] = {}  # of parameters and buffers
        self.hooked: dict[str, Module] = {}  # modules with hooks of their own that run in a pass
        self.renewed: dict[str, Owned] = {}  # parameters that were put into the place of others since, and ran; by name
        self._buffers: list[Tensor] = []  # kept: one that the model drops must not leave its identity, and so its name, to another tensor
        self.ledgers: list[dict[int, Any]] = []  # by identity of a parameter: one that is not followed any more is struck out
        self._adopt("", model)

    def _adopt(self, start: str, module: Module) -> None:
        names = self.names
        for path, one in walk(start, module, self.paths):
            self.modules[path] = one
            self.paths[id(one)] = path
            held, prefix = stores.contents(one), f"{path}." if path else ""
            get = held.get
            if get("_forward_pre_hooks") or get("_forward_hooks") or get("_backward_pre_hooks") or get("_backward_hooks"):  # `STAGES`
                self.hooked[path] = one
            if parameters := held.get("_parameters"):
                for name, tensor in parameters.items():
                    if tensor is not None and id(tensor) not in names:
                        names[id(tensor)] = full = prefix + name
                        self.parameters.append(Owned(full, tensor, one, name))
            if buffers := held.get("_buffers"):
                for name, tensor in buffers.items():
                    if tensor is not None and id(tensor) not in names:
                        names[id(tensor)] = prefix + name
                        self._buffers.append(tensor)

    def path_of(self, module: Module, above: str | None) -> str | None:
        """Its path; one that was registered since, in the module at `above` that is running, joins the others."""
        found = self.paths.get(id(module))
        if found is None and above is not None:
            path = next((path for path, child in self._within(above) if child is module), None)
            if path is not None:
                self._adopt(path, module)
                return self.paths.get(id(module))
        return found

    def _within(self, above: str) -> Iterator[tuple[str, Module]]:
        """The children of a module, and those of lists and dicts among them: what it can call itself."""
        todo, met = [(above, self.modules[above])], set[int]()
        while todo:
            path, module = todo.pop()
            if id(module) in met:  # a list that holds itself
                continue
            met.add(id(module))
            for name, child in stores.named_children(module):
                if child is None:
                    continue
                full = f"{path}.{name}" if path else name
                yield full, child
                if getattr(type(child), "forward", None) is Module.forward:
                    todo.append((full, child))

    def renew(self, module: Module, name: str, tensor: Tensor) -> None:
        """Follow a parameter that was put into the place of another one since."""
        path = self.paths.get(id(module))
        if path is None:
            return
        full = f"{path}.{name}" if path else name
        last = self.renewed.get(full)
        if last is not None:  # a model that makes a new one in each pass is not to have all of them kept
            self.parameters = [one for one in self.parameters if one is not last]
            for ledger in (self.names, *self.ledgers):
                ledger.pop(id(last.tensor), None)
        self.renewed[full] = one = Owned(full, tensor, module, name)
        self.names[id(tensor)] = full
        self.parameters.append(one)

    def compiled(self) -> list[str]:
        """The paths of modules that a compiler has taken over."""
        wrappers = {cls for cls in self.classes() if _is_wrapper(cls)}
        return [
            path
            for path, module in self.modules.items()
            if type(module) in wrappers or stores.contents(module).get("_compiled_call_impl") is not None
        ]

    def classes(self) -> set[type]:
        """The classes of its modules."""
        return {type(module) for module in self.modules.values()}

    def distributed(self) -> bool:
        """Whether parts of it run in other processes too."""
        return any(base.__name__ in _DISTRIBUTED for cls in self.classes() for base in cls.__mro__)


def walk(start: str, root: Module, known: dict[int, str]) -> Iterator[tuple[str, Module]]:
    """Each module once, parents first."""
    seen: set[int] = set()
    stack = [(start, root)]
    while stack:
        path, module = stack.pop()
        if id(module) in seen or id(module) in known:
            continue
        seen.add(id(module))
        yield path, module
        children = stores.contents(module).get("_modules")
        if children:
            prefix = f"{path}." if path else ""
            stack += [(prefix + name, child) for name, child in children.items() if child is not None][::-1]


def is_compiled(module: Module) -> bool:
    """Whether ``torch.compile`` runs it: as a wrapper around it, or in its place."""
    return _is_wrapper(type(module)) or stores.contents(module).get("_compiled_call_impl") is not None


def _is_wrapper(cls: type) -> bool:
    return cls.__name__ == "OptimizedModule" and cls.__module__.startswith("torch._dynamo")


def is_fused(module: Module) -> bool:
    """Whether it may take a fast path that runs its parts as one: looking at the functions inside would prevent that."""
    return issubclass(type(module), FUSED)


def is_opaque(module: Module) -> str:
    """Why nothing inside a module's call can be seen, in a word; or nothing."""
    if issubclass(type(module), torch.jit.ScriptModule):
        return "scripted"
    return "compiled" if is_compiled(module) else ""


def opaque_kind(cls: type) -> str:
    """The same as far as the class tells."""
    return "scripted" if issubclass(cls, torch.jit.ScriptModule) else "compiled" if _is_wrapper(cls) else ""


def is_torchs(cls: type) -> bool:
    """Whether the functions inside are torch's own way of doing what the module's name says: ``F.linear`` in a ``Linear``."""
    return cls.__module__.startswith(("torch.nn.", "torch.ao.nn."))


def can_run(cls: type) -> bool:
    """Whether it can be called: lists and dicts of modules have no ``forward`` of their own."""
    return issubclass(cls, torch.jit.ScriptModule) or cls.forward is not Module.forward  # type: ignore[attr-defined]
