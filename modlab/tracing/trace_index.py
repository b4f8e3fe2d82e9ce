"""The index of a trace: the modules of a model and their tensors, by identity."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn import Module

from modlab.inspection import stores
from modlab.inspection.index import ModuleIndex, Node, Swap, joined
from modlab.records.sharding import Ranks
from modlab.running.module_kinds import is_compilers_wrapper

STAGES = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


class Owned(NamedTuple):
    """A parameter, the module that owns it first, its dotted name, and the one that it has there.

    Attributes:
        swap: where a wrapper puts others into its place for a while.
    """

    path: str
    tensor: Tensor
    owner: Module
    name: str
    swap: Swap | None = None

    @property
    def keys(self) -> set[int]:
        """The identities under which it may be met."""
        return {id(self.tensor)} if self.swap is None else {id(self.tensor), *map(id, self.swap.forms())}


class TracedModule(Node):
    """A module, which is held."""

    __slots__ = ("module",)
    parent: TracedModule | None

    def __init__(self, module: Module, parent: Node | None, name: str) -> None:
        super().__init__(module, parent, name)
        self.module = module


class TraceIndex:
    """The modules of a model in the order of ``named_modules()``, each under its first name. Holds them all.

    Attributes:
        modules: by path; of a wrapper and what it wraps, which have the same, the latter.
        paths: by identity of a module.
        parameters: each once.
        names: by identity, of parameters and buffers; in FSDP of this rank's part and of the whole.
        hooked: modules with hooks of their own that run in a pass.
        renewed: parameters that were put into the place of others since, and ran; by name.
        ranks: over which the model lies.
        ledgers: by identity of a parameter: one that is not followed any more is struck out.
    """

    def __init__(self, model: Module) -> None:
        self.model = model
        self.modules: dict[str, Module] = {}
        self.paths: dict[int, str] = {}
        self.parameters: list[Owned] = []
        self.names: dict[int, str] = {}
        self.hooked: list[tuple[str, Module]] = []
        self.renewed: dict[str, Owned] = {}
        self._all = ModuleIndex(model, TracedModule)
        self.ranks: Ranks | None = None
        self._buffers: list[Tensor] = []  # kept: one that the model drops must not leave its identity, and so its name, to another tensor
        self.ledgers: list[dict[int, Any]] = []
        self._adopt(self._all.found)

    def _adopt(self, found: list[tuple[TracedModule, Module]]) -> None:
        names = self.names
        for node, one in found:
            path = self.paths[id(one)] = node.path
            self.modules[path] = one
            get = stores.contents(one).get
            if get("_forward_pre_hooks") or get("_forward_hooks") or get("_backward_pre_hooks") or get("_backward_hooks"):  # `STAGES`
                self.hooked.append((path, one))
        held = [*self._all.tensors(found)]
        if found is self._all.found:
            self.ranks = self._all.ranks(held)
        for placed in held:
            full = placed.path
            names[id(placed.tensor)] = full
            if placed.kind == "parameter":
                self.parameters.append(Owned(full, placed.tensor, placed.owner, placed.name, placed.swap))
                if placed.swap is not None:
                    names.update((id(form), full) for form in placed.swap.forms())
            else:
                self._buffers.append(placed.tensor)

    def path_of(self, module: Module, above: str | None) -> str | None:
        """Its path; one that was registered since, in the module at `above` that is running, joins the others."""
        found = self.paths.get(id(module))
        if found is None and above is not None:
            place = next(((node, name) for node, name, child in self._within(above) if child is module), None)
            if place is not None:
                self._adopt(self._all.adopt(module, *place))
                return self.paths.get(id(module))
        return found

    def _within(self, above: str) -> Iterator[tuple[TracedModule | None, str, Module]]:
        """The children of a module, and those of lists and dicts among them, with what they are in: what it can call itself."""
        todo, met = [(self.modules[above], self.node(self.modules[above]))], set[int]()
        while todo:
            module, node = todo.pop()
            if id(module) in met:  # a list that holds itself
                continue
            met.add(id(module))
            for name, child in stores.named_children(module):
                if child is None:
                    continue
                yield node, name, child
                if getattr(type(child), "forward", None) is Module.forward:
                    todo.append((child, self.node(child)))

    def node(self, module: Module) -> TracedModule | None:
        """Its place in the model; None if it has none."""
        return self._all.nodes.get(id(module))

    def renew(self, module: Module, name: str, tensor: Tensor) -> None:
        """Follow a parameter that was put into the place of another one since."""
        path = self.paths.get(id(module))
        if path is None:
            return
        full = joined(path, name)
        if (swap := self._all.swaps.get((id(module), name))) is not None and any(form is tensor for form in swap.forms()):
            self.names[id(tensor)] = full  # FSDP makes the whole parameter when it is first needed
            return
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
        wrappers = {cls for cls in self.classes() if is_compilers_wrapper(cls)}
        found = [
            node.path
            for node in self.nodes
            if type(node.module) in wrappers or stores.contents(node.module).get("_compiled_call_impl") is not None
        ]
        return list(dict.fromkeys(found))

    @property
    def nodes(self) -> Iterable[TracedModule]:
        """All modules in their places, wrappers among them."""
        return self._all.nodes.values()

    def classes(self) -> set[type]:
        """The classes of its modules."""
        return {type(node.module) for node in self.nodes}
