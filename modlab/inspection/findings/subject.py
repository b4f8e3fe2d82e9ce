"""The subject of the checks: the modules and tensors of a model, each once under its first name, and its optimizers."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, ModuleDict, ModuleList, Sequential
from torch.nn.parameter import is_lazy
from torch.optim.swa_utils import AveragedModel

from modlab.errors import NotInitializedError
from modlab.frozen import frozen
from modlab.inspection import stores, unregistered
from modlab.inspection.index import ModuleIndex, Node, joined
from modlab.inspection.optimizers import Ownership
from modlab.inspection.spelling import attribute
from modlab.records.finding import Evidence, Fact, Finding, Remedy, Severity
from modlab.records.structure import VARIABLE
from modlab.records.tensor import TensorStats
from modlab.statistics import measure_tensor


class ModuleSite(Node):
    """A module in its place, which is held."""

    __slots__ = ("averaged", "held", "module")
    parent: ModuleSite | None

    def __init__(self, module: Module, parent: ModuleSite | None, name: str) -> None:
        super().__init__(module, parent, name)
        self.module = module
        self.held: dict[str, Any] = stores.contents(module)
        self.averaged: bool = issubclass(type(module), AveragedModel) or (parent is not None and parent.averaged)

    @property
    def label(self) -> str:
        """How a sentence calls it: its path, with the class where that ends in a bare number."""
        return f"{self.path} ({self.type})" if self.is_numbered else self.path

    @property
    def is_numbered(self) -> bool:
        """Whether its path ends in a bare number, which says too little: a sentence adds the class."""
        return self.name.isdecimal() and self.parent is not None

    def finding(self, kind: str, severity: Severity, *fixes: Remedy, path: str | None = None, **facts: Fact) -> Finding:
        """Something about this module, or about what hangs on it under the dotted name `path`."""
        if path is None and self.is_numbered:
            facts["type"] = self.type
        return Finding(kind, self.path if path is None else path, facts, severity, evidence=(Evidence("module", self.path),), fixes=fixes)

    @property
    def training(self) -> bool | None:
        """The module's own flag; None where there is none."""
        flag = self.held.get("training")
        return flag if isinstance(flag, bool) else stores.mode(self.module)

    @property
    def type(self) -> str:
        """The name of its class."""
        return type(self.module).__name__

    @property
    def code(self) -> str:
        """What one writes to get at it, given ``model``."""
        code = VARIABLE
        for site in [*self.above][-2::-1]:
            above = type(site.parent.module) if site.parent is not None else Module
            if issubclass(above, (Sequential, ModuleList)) and site.name.isdecimal():
                code += f"[{site.name}]"
            elif issubclass(above, ModuleDict):
                code += f"[{site.name!r}]"
            else:
                code = attribute(code, site.name)
        return code

    def own(self, store: str) -> dict[str, Any]:
        """One of the module's stores; empty where it is missing."""
        found: Any = self.held.get(store)
        return {} if found is None else found if isinstance(found, dict) else dict(found.items())  # a scripted module's are no dicts


@frozen(eq=False)
class Held:
    """A registered tensor in its place."""

    site: ModuleSite
    name: str
    kind: str  # "parameter" or "buffer"
    tensor: Tensor

    @property
    def path(self) -> str:
        """The dotted name."""
        return joined(self.site.path, self.name)

    @property
    def code(self) -> str:
        """What one writes to get at it, given ``model``."""
        return attribute(self.site.code, self.name)

    def finding(self, kind: str, severity: Severity, *fixes: Remedy, **facts: Fact) -> Finding:
        """Something about this tensor."""
        return self.site.finding(kind, severity, *fixes, path=self.path, **facts)


class Subject:
    """A model and its optimizers, read once for all checks.

    Args:
        model: of the user's.
        optimizers: that step it.
        loss: a module of its own, which may have parameters, too.
    """

    def __init__(self, model: Module, optimizers: tuple[torch.optim.Optimizer, ...] = (), loss: Module | None = None) -> None:
        if not stores.initialized(model):
            raise NotInitializedError(stores.uninitialized_message(model))
        self.model, self.optimizers = model, optimizers
        self.of_loss = {} if loss is None else {name: one for name, one in loss.named_parameters() if not is_lazy(one)}
        self.index = ModuleIndex(model, ModuleSite)
        self.sites = [site for site, _ in self.index.found]
        self.tensors = [Held(one.node, one.name, one.kind, one.tensor) for one in self.index.tensors(self.index.found)]
        self.parameters = [held for held in self.tensors if held.kind == "parameter"]
        self.buffers = [held for held in self.tensors if held.kind == "buffer"]
        self.by_tensor = {id(held.tensor): held for held in self.tensors}  # of a sharded one this rank's part, as an optimizer has it
        self.labels = Ownership(optimizers).labels  # "AdamW #0", one a group
        self.names = tuple(dict.fromkeys(type(optimizer).__name__ for optimizer in optimizers))
        self._owned = {id(tensor) for optimizer in optimizers for group in optimizer.param_groups for tensor in group["params"]}
        self.trained = [held for held in self.parameters if held.tensor.requires_grad and not self._follows(held)]
        self._stats: dict[int, TensorStats] = {}

    @property
    def by_module(self) -> dict[int, ModuleSite]:
        """The site of each module, by identity."""
        return self.index.nodes

    @cached_property
    def finder(self) -> unregistered.Finder:
        """Tells hidden ones from attributes that point at what is registered."""
        return unregistered.Finder(site.module for site in self.sites)

    @cached_property
    def suspicious(self) -> list[ModuleSite]:
        """The modules whose attributes may hide something."""
        asked = unregistered.Suspicion()
        found = []
        for site in self.sites:
            _, attributes = stores.own_values(site.held)
            if attributes and asked(attributes, site.held):
                found.append(site)
        return found

    @cached_property
    def hidden(self) -> dict[int, str]:
        """The tensors that hang on modules unregistered, by identity: where."""
        return {
            id(tensor): f"{site.path}.{place}" if site.parent else place
            for site in self.suspicious
            for place, tensor, *_ in self.finder.tensors(site.module)
        }

    def owns(self, tensor: Tensor) -> bool:
        """Whether one of the optimizers has this very tensor."""
        return id(tensor) in self._owned

    def _follows(self, held: Held) -> bool:
        """Whether it is an average of weights that are trained elsewhere, and no optimizer should have it."""
        alone = self.sites[0].averaged and not self.optimizers  # then nothing is known of the others
        return held.site.averaged and not self.owns(held.tensor) and not alone

    def stats(self, held: Held) -> TensorStats:
        """The numbers of one tensor, measured once."""
        key = id(held.tensor)
        if key not in self._stats:
            self._stats[key] = measure_tensor(held.tensor, histogram=False)
        return self._stats[key]


def is_plain(tensor: Tensor) -> bool:
    """Whether it has a shape and numbers in the usual sense."""
    return not is_lazy(tensor) and not tensor.is_nested
