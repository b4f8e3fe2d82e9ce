"""The one index of a model: its modules and tensors, each once, under the first path that a user would write.

A module is known by its identity. A tensor is known by its *place*, a module and a name in it, where a wrapper puts other tensors there for
a while: ``fully_shard`` has the whole parameter stand in the place of this rank's part from before a forward pass to its end, and in the
root of a model often until the next step. What an optimizer steps is the part all the while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, NamedTuple, Self, TypeVar
from weakref import ref

import torch
from torch import Tensor
from torch.nn import Module

from modlab.compat import fsdp_parameters, swaps_parameters
from modlab.inspection import stores
from modlab.inspection.distributed_units import unit_of, wrapper_of
from modlab.records.sharding import Ranks, together
from modlab.statistics import sharding

_INNER = {
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "FullyShardedDataParallel": "_fsdp_wrapped_module",
    "ActivationWrapper": "_checkpoint_wrapped_module",
    "OptimizedModule": "_orig_mod",
    "_FabricModule": "_forward_module",
}
_STORES = ("_parameters", "parameter"), ("_buffers", "buffer")
_MAKERS = ("torch.", "lightning.", "lightning_fabric.")


def inner_name(cls: type) -> str:
    """The name under which a wrapper of torch's holds what it wraps, which no path shows; "" of a class that is none."""
    bases = (base for base in cls.__mro__ if base.__module__.startswith(_MAKERS))
    return next((_INNER[base.__name__] for base in bases if base.__name__ in _INNER), "")


def joined(path: str, name: str) -> str:
    """A name below a path."""
    return f"{path}.{name}" if path else name


class Node:
    """A module in its place. Its path is spelled out when it is asked for: those of 10,000 levels are long.

    Attributes:
        parent: the node above; None for the root.
        name: in it.
        shown: whether the name is a part of the path; not that of what a wrapper wraps.
        inner: of a wrapper, the name of what it wraps; else "".
    """

    __slots__ = ("_path", "inner", "name", "parent", "shown")

    inner: str

    def __init__(self, module: Module, parent: Node | None, name: str) -> None:
        self.parent, self.name = parent, name
        self.inner = ""
        self.shown = parent is not None and name != parent.inner
        self._path: str | None = "" if parent is None else None

    @property
    def path(self) -> str:
        """The dotted name, without the names of what wrappers wrap."""
        return self._path if self._path is not None else self._spelled()

    def _spelled(self) -> str:
        way: list[Node] = []
        here: Node = self
        while here._path is None and here.parent is not None:
            way.append(here)
            here = here.parent
        path = here._path or ""
        if len(way) == 1:  # nearly always; of a long way the paths between are not kept
            self._path = path = joined(path, self.name) if self.shown else path
            return path
        names = [one.name for one in reversed(way) if one.shown]
        self._path = path = ".".join([path, *names] if path else names)
        return path

    @property
    def above(self) -> Iterator[Self]:
        """This node and those above it, the root last."""
        here: Any = self
        while here is not None:
            yield here
            here = here.parent

    @property
    def registered(self) -> str:
        """The dotted name as torch has it, with which ``get_submodule`` finds it."""
        names = [one.name for one in self.above if one.parent is not None]
        return ".".join(reversed(names))


N = TypeVar("N", bound=Node)


class Placed(NamedTuple, Generic[N]):
    """A tensor under its first name.

    Attributes:
        node, owner: the module that has it; `name`: there.
        kind: "parameter" or "buffer".
        tensor: what stands there; where a wrapper puts others there for a while, what is trained.
        swap: the place, if a wrapper does so.
    """

    node: N
    owner: Module
    name: str
    kind: str
    tensor: Tensor
    swap: Swap | None

    @property
    def path(self) -> str:
        """The dotted name."""
        return joined(self.node.path, self.name)


class Swap:
    """A place in which a wrapper puts other tensors for a while: ``fully_shard`` the whole parameter.

    Args:
        handle: torch's own record of the parameter, held weakly.
    """

    __slots__ = ("_handle",)

    def __init__(self, handle: Any) -> None:
        self._handle = ref(handle)

    def trained(self) -> Tensor | None:
        """What an optimizer steps: this rank's part."""
        found = getattr(self._handle(), "sharded_param", None)
        return found if isinstance(found, Tensor) else None

    def forms(self) -> Iterator[Tensor]:
        """All tensors that may stand there, the one that is trained first."""
        handle = self._handle()
        found = (getattr(handle, name, None) for name in ("sharded_param", "_unsharded_param", "_sharded_post_forward_param"))
        yield from (one for one in found if isinstance(one, Tensor))


class ModuleIndex(Generic[N]):
    """Each module of a model once, parents first, in the order of ``named_modules()``.

    Args:
        model: the root.
        node: makes what is kept of a module, from the module, the node above and the name there: it decides whether the module is held.

    Attributes:
        nodes: by identity of the module.
        swaps: by identity of a module and a name in it, the places where other tensors stand for a while.
    """

    def __init__(self, model: Module, node: Callable[[Module, Any, str], N]) -> None:
        self._make = node
        self.nodes: dict[int, N] = {}
        self.swaps: dict[tuple[int, str], Swap] = {}
        self._met: set[int] = set()  # tensors that have a place
        self.found = self.adopt(model)
        """The modules, each with its node, as they were met; a list that the caller may take away."""

    def adopt(self, module: Module, parent: N | None = None, name: str = "") -> list[tuple[N, Module]]:
        """Take in a module, and all below it that are not known yet."""
        nodes, make, found = self.nodes, self._make, list[tuple[N, Module]]()
        todo: list[tuple[Module, N | None, str]] = [(module, parent, name)]
        classes: dict[type, tuple[str, bool]] = {}
        while todo:
            one, above, called = todo.pop()
            if id(one) in nodes:
                continue
            nodes[id(one)] = node = make(one, above, called)
            found.append((node, one))
            cls = type(one)
            if cls not in classes:
                classes[cls] = inner_name(cls), swaps_parameters(cls)
            node.inner, swaps = classes[cls]
            if swaps:
                self._learn(one)
            children = stores.contents(one).get("_modules")
            if children:
                todo += [(child, node, below) for below, child in children.items() if child is not None][::-1]
        return found

    def ranks(self, held: Iterable[Placed[N]]) -> Ranks | None:
        """Those over which the model lies: of what its tensors say, and of the units of FSDP and DDP that are its wrapper or part of it."""
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return None
        lies = (sharding.of_tensor(one.tensor) for one in held)
        found = dict.fromkeys(one.ranks for one in lies if one is not None)
        kinds = {cls: wrapper_of(cls) for cls in {type(module) for _, module in self.found}}
        for _, module in self.found:
            unit = unit_of(module, kind) if (kind := kinds[type(module)]) else None
            if unit is not None and unit.ranks is not None:
                found[unit.ranks] = None
        return together(found)

    def _learn(self, module: Module) -> None:
        for owner, name, handle in fsdp_parameters(module):
            self.swaps[id(owner), name] = Swap(handle)

    def tensors(self, found: Iterable[tuple[N, Module]]) -> Iterator[Placed[N]]:
        """The parameters and buffers of modules, each once: under the name that is met first."""
        met, swaps = self._met, self.swaps
        for node, module in found:
            held = stores.contents(module)
            for store, kind in _STORES:
                tensors = held.get(store)
                if not tensors:
                    continue
                for name, tensor in tensors.items():
                    if tensor is None or id(tensor) in met:
                        continue
                    swap = swaps.get((id(module), name)) if swaps else None
                    if swap is None:
                        met.add(id(tensor))
                    else:
                        met.update(map(id, swap.forms()))
                        part = swap.trained()
                        tensor = tensor if part is None else part
                    yield Placed(node, module, name, kind, tensor, swap)
