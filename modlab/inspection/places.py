"""Places: where what has several names has its first one."""

from __future__ import annotations

from collections.abc import Iterable

from torch.nn import Module

from modlab.inspection import stores
from modlab.records.structure import Link

LISTED = 8


class Places:
    """First paths, in the order of ``named_modules``: of shared tensors and modules, and of what holds them.

    Args:
        parents: by identity, each module's first parent; None for the root.
        tied: the ids of tensors with several owners.
        owners: the modules that own such tensors, in that order.
        again: module, name and child wherever a child has been met before.
    """

    def __init__(
        self, parents: dict[int, Module | None], tied: set[int], owners: Iterable[Module], again: list[tuple[Module, str, Module]]
    ) -> None:
        self.tensors: dict[int, str] = {}
        self.modules: dict[int, str] = {}
        self.ties: list[tuple[str, str]] = []  # (later name, first name) of the first few tensors that have several
        self.aliases: list[tuple[str, str]] = []  # the same of modules
        self.alias_root: dict[int, str] = {}  # of modules with several paths: the first path of the aliased one at or above
        self.touched: set[int] = set()  # modules that have something shared at or below them
        self._parents = parents
        self._more: dict[int, list[Module]] = {}  # the parents of modules that have several, but the first
        self._names: dict[int, dict[int, str]] = {}  # of the children of a module, by identity; of several the first
        self._paths: dict[int, str] = {}
        self._alias(again)
        self._tie(owners, tied)

    def _alias(self, again: list[tuple[Module, str, Module]]) -> None:
        for parent, name, module in again:
            self._more.setdefault(id(module), []).append(parent)
            first = self.modules.setdefault(id(module), self.path(module))
            _note(self.aliases, _joined(self.path(parent), name), first)
        for _, _, module in again:
            if not self._within(module):
                self._mark(module)

    def _within(self, module: Module) -> bool:
        """Whether a module above this one, on its first path, has several paths itself."""
        parent = self._parents[id(module)]
        while parent is not None and id(parent) not in self.modules:
            parent = self._parents[id(parent)]
        return parent is not None

    def _mark(self, root: Module) -> None:
        """Mark a module with several paths, and what is below it."""
        todo = [root]
        while todo:
            module = todo.pop()
            if id(module) in self.alias_root:
                continue
            self.alias_root[id(module)] = self.modules[id(root)]
            self._touch(module)
            todo += [child for _, child in stores.named_children(module) if child is not None and self._parents[id(child)] is module]

    def _tie(self, owners: Iterable[Module], tied: set[int]) -> None:
        for owner in owners:
            path = self.path(owner)
            for store in ("_parameters", "_buffers"):
                for name, tensor in (stores.contents(owner).get(store) or {}).items():
                    if id(tensor) in tied:
                        here = _joined(path, name)
                        _note(self.ties, here, self.tensors.setdefault(id(tensor), here))
            self._touch(owner)

    def _touch(self, module: Module) -> None:
        """Mark a module and all above it."""
        todo: list[Module | None] = [module]
        while todo:
            here = todo.pop()
            if here is not None and id(here) not in self.touched:
                self.touched.add(id(here))
                todo += [self._parents[id(here)], *self._more.get(id(here), ())]

    def path(self, module: Module) -> str:
        """The first path of a module."""
        way = []  # up to where a path is known
        here: Module | None = module
        while here is not None and id(here) not in self._paths:
            way.append(here)
            here = self._parents[id(here)]
        for below in reversed(way):
            self._paths[id(below)] = _joined(self._paths[id(here)], self._name(here, below)) if here is not None else ""
            here = below
        return self._paths[id(module)]

    def _name(self, parent: Module, child: Module) -> str:
        names = self._names.get(id(parent))
        if names is None:
            names = self._names[id(parent)] = {id(child): name for name, child in reversed(stores.named_children(parent))}
        return names[id(child)]

    def tensor_link(self, holder: Module, name: str, key: int) -> Link | None:
        """How the tensor `name` of `holder` points at its first owner; None where this is the first, or the only one."""
        first = self.tensors.get(key)
        return None if first is None else self._link(holder, name, first)

    def module_link(self, holder: Module, name: str, key: int) -> Link | None:
        """The same for the child `name` of `holder`."""
        first = self.modules.get(key)
        return None if first is None else self._link(holder, name, first)

    def _link(self, holder: Module, name: str, first: str) -> Link | None:
        place = _joined(self.path(holder), name)
        if place == first:
            return None
        here, there = place.split("."), first.split(".") if first else []
        common = next((i for i, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), min(len(here), len(there)))
        root = self.alias_root.get(id(holder))
        if root and common < len(root.split(".")):
            return Link(0, first)  # the holder has several paths, from which a relative link would lead to several places
        return Link(len(here) - common, ".".join(there[common:]))


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _note(pairs: list[tuple[str, str]], later: str, first: str) -> None:
    if later != first and len(pairs) < LISTED:
        pairs.append((later, first))
