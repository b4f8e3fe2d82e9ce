"""Who can appear in a trace: the modules of a model and their tensors, by identity."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import Module

from modlab.inspection import stores

_FUSED = (nn.TransformerEncoder, nn.TransformerEncoderLayer, nn.MultiheadAttention)
_DISTRIBUTED = ("DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule")


class Owned(NamedTuple):
    """A parameter, the module that owns it first, and its dotted name."""

    path: str
    tensor: Tensor
    owner: Module


class Roster:
    """The modules of a model in the order of ``named_modules()``, each under its first name. Holds them all."""

    def __init__(self, model: Module) -> None:
        self.modules: dict[str, Module] = {}
        self.paths: dict[int, str] = {}
        self.parameters: list[Owned] = []
        self.names: dict[int, str] = {}  # of parameters and buffers
        self._adopt("", model)

    def _adopt(self, start: str, module: Module) -> None:
        for path, one in _walk(start, module, self.paths):
            self.modules[path] = one
            self.paths[id(one)] = path
            held = stores.contents(one)
            for store in ("_parameters", "_buffers"):
                for name, tensor in (held.get(store) or {}).items():
                    if tensor is None or id(tensor) in self.names:
                        continue
                    full = f"{path}.{name}" if path else name
                    self.names[id(tensor)] = full
                    if store == "_parameters":
                        self.parameters.append(Owned(full, tensor, one))

    def path_of(self, module: Module, above: str | None) -> str | None:
        """Its path; one that was registered since, in the module at `above` that is running, joins the others."""
        found = self.paths.get(id(module))
        if found is None and above is not None:
            for name, child in stores.named_children(self.modules[above]):
                if child is module:
                    self._adopt(f"{above}.{name}" if above else name, module)
                    return self.paths.get(id(module))
        return found

    def compiled(self) -> list[str]:
        """The paths of modules that a compiler has taken over."""
        return [path for path, module in self.modules.items() if is_compiled(module)]

    def distributed(self) -> bool:
        """Whether parts of it run in other processes too."""
        return any(base.__name__ in _DISTRIBUTED for module in self.modules.values() for base in type(module).__mro__)


def _walk(start: str, root: Module, known: dict[int, str]) -> Iterator[tuple[str, Module]]:
    """Each module once, parents first."""
    seen: set[int] = set()
    stack = [(start, root)]
    while stack:
        path, module = stack.pop()
        if id(module) in seen or id(module) in known:
            continue
        seen.add(id(module))
        yield path, module
        prefix = f"{path}." if path else ""
        children = [(prefix + name, child) for name, child in stores.named_children(module) if child is not None]
        stack.extend(reversed(children))


def is_compiled(module: Module) -> bool:
    """Whether ``torch.compile`` runs it: as a wrapper around it, or in its place."""
    cls = type(module)
    wrapped = cls.__name__ == "OptimizedModule" and cls.__module__.startswith("torch._dynamo")
    return wrapped or stores.contents(module).get("_compiled_call_impl") is not None


def is_fused(module: Module) -> bool:
    """Whether it may take a fast path that runs its parts as one: looking at the functions inside would prevent that."""
    return issubclass(type(module), _FUSED)


def is_opaque(module: Module) -> str:
    """Why nothing inside a module's call can be seen, in a word; or nothing."""
    if issubclass(type(module), torch.jit.ScriptModule):
        return "scripted"
    return "compiled" if is_compiled(module) else ""


def is_quiet(module: Module) -> bool:
    """Whether the functions inside are torch's own way of doing what the module's name says: ``F.linear`` in a ``Linear``."""
    return type(module).__module__.startswith(("torch.nn.", "torch.ao.nn.")) and not stores.contents(module).get("_modules")


def runs(module: Module) -> bool:
    """Whether it can be called: lists and dicts of modules have no ``forward`` of their own."""
    cls = type(module)
    return issubclass(cls, torch.jit.ScriptModule) or cls.forward is not Module.forward
