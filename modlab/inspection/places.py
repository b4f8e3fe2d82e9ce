"""Where what has several names has its first one."""

from __future__ import annotations

from torch.nn import Module

from modlab.inspection import stores
from modlab.records.structure import Link

LISTED = 8


class Places:
    """First paths, in the order of ``named_modules``: of shared tensors and modules, and of whatever may hold one."""

    def __init__(self, root: Module, tied: set[int], aliased: set[int]) -> None:
        self.tensors: dict[int, str] = {}
        self.modules: dict[int, str] = {}
        self.holders: dict[int, str] = {}
        self.ties: list[tuple[str, str]] = []  # (later name, first name) of the first few tensors that have several
        self.aliases: list[tuple[str, str]] = []  # the same of modules
        self.alias_root: dict[int, str] = {}  # of modules with several paths: the first path of the aliased one at or above
        self.touched: set[int] = set()  # modules that have something shared at or below them
        self._parents: dict[int, list[int]] = {}
        self._walk(root, tied, aliased)

    def _walk(self, root: Module, tied: set[int], aliased: set[int]) -> None:
        stack: list[tuple[str, Module, int, str | None]] = [("", root, 0, None)]
        while stack:
            path, module, parent, alias = stack.pop()
            key = id(module)
            if key in self.holders:
                _note(self.aliases, path, self.holders[key])
                self._parents[key].append(parent)
                self._touch(key)
                continue
            self.holders[key] = path
            self._parents[key] = [parent]
            if key in aliased:
                self.modules[key] = path
                alias = path if alias is None else alias
            if alias is not None:
                self.alias_root[key] = alias
                self._touch(key)
            prefix = path + "." if path else ""
            held = stores.contents(module)
            for store in (held.get("_parameters"), held.get("_buffers")):
                if not store or tied.isdisjoint(map(id, store.values())):
                    continue
                for name, tensor in store.items():
                    if id(tensor) in tied:
                        _note(self.ties, prefix + name, self.tensors.setdefault(id(tensor), prefix + name))
                        self._touch(key)
            children = held.get("_modules")
            if children:
                stack.extend([(prefix + name, child, key, alias) for name, child in reversed(children.items()) if child is not None])

    def _touch(self, key: int) -> None:
        """Mark a module and all above it."""
        todo = [key]
        while todo:
            here = todo.pop()
            self.touched.add(here)
            todo.extend(parent for parent in self._parents.get(here, ()) if parent not in self.touched)

    def tensor_link(self, holder: Module, name: str, key: int) -> Link | None:
        """How the tensor `name` of `holder` points at its first owner; None where this is the first, or the only one."""
        first = self.tensors.get(key)
        return None if first is None else self._link(holder, name, first)

    def module_link(self, holder: Module, name: str, key: int) -> Link | None:
        """The same for the child `name` of `holder`."""
        first = self.modules.get(key)
        return None if first is None else self._link(holder, name, first)

    def _link(self, holder: Module, name: str, first: str) -> Link | None:
        above = self.holders[id(holder)]
        place = f"{above}.{name}" if above else name
        if place == first:
            return None
        here, there = place.split("."), first.split(".") if first else []
        common = next((i for i, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), min(len(here), len(there)))
        root = self.alias_root.get(id(holder))
        if root and common < len(root.split(".")):
            return Link(0, first)  # the holder has several paths, from which a relative link would lead to several places
        return Link(len(here) - common, ".".join(there[common:]))


def _note(pairs: list[tuple[str, str]], later: str, first: str) -> None:
    if later != first and len(pairs) < LISTED:
        pairs.append((later, first))
