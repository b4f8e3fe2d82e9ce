"""The structure of a module, its folded tree, without ``named_*`` and without recursion.

One walk visits every module once. Each becomes a key, made of what its row would say and of its children's subtrees;
equal keys are one subtree. Only at the end is it known what is owned more than once: the modules that hold such
things, and those above them, are then folded once more.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from functools import cached_property
from itertools import chain, groupby, repeat
from operator import itemgetter
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor
from torch.nn import Module

from modlab.errors import NotInitializedError
from modlab.inspection import classes, distributed, distributed_units, entries, marks, stores, tree_cache, unregistered
from modlab.inspection.classes import ClassFacts
from modlab.inspection.overlaps import counted_again, repeated
from modlab.inspection.places import Places
from modlab.inspection.totals import Counts, Ledger
from modlab.records.sharding import Ranks, Sharding, together
from modlab.records.structure import Link, Run, Subtree, TensorEntry, Totals, TreeRecord, compact
from modlab.statistics import sharding
from modlab.statistics.memory import local

REMEMBERED = 4096  # tensor entries kept for the next call
UNNUMBERED = 8  # equal neighbours without numbers in their names are one row from here on: q, k and v stay apart

_Child = Subtree | None | tuple[Subtree | None, Link | None]  # a module, a reserved name, or a module under another name
_Below = tuple[Any, ...]  # name, _Child, name, _Child, …: half the objects of pairs
_Placed = list[tuple[str, Subtree | None, Link | None]]
_contents = stores.contents
_PLAIN = frozenset(entries.PLAIN)
_STRIDED = torch.strided
_NO_HOOKS: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())


def extract(model: Module) -> TreeRecord:
    """The folded tree of `model`. Reads no value and calls nothing of the model's but ``extra_repr``."""
    seen = tree_cache.at(model)
    tree = None if seen is None else tree_cache.recall(model, seen)
    if tree is not None:
        return tree
    if not stores.initialized(model):
        raise NotInitializedError(stores.uninitialized_message(model))
    tree = Folder(model).fold()
    if seen is not None:
        tree_cache.remember(model, seen, tree)
    return tree


def of_users(model: Module) -> TreeRecord:
    """The same under the names that the user gave: of a model in DDP, or in DataParallel, that of what is inside."""
    inner = distributed.unwrapped(model)
    if inner is model:
        return extract(model)
    kind = distributed_units.wrapper_of(type(model))
    tree, unit = extract(inner), distributed_units.unit_of(model, kind) if kind else None
    root = replace(tree.root, unit=unit)
    _class_of[root] = ref(type(inner))
    return replace(tree, root=root, ranks=_ranks(root), variable=distributed.variable_of(model))


_class_of: WeakKeyDictionary[Subtree, ref[type]] = WeakKeyDictionary()
_entries: dict[Any, TensorEntry] = {}


def class_of(subtree: Subtree) -> type | None:
    """The class of the modules that a subtree stands for, while it exists."""
    found = _class_of.get(subtree)
    return found() if found is not None else None


class Folder:
    """Turns modules into subtrees.

    Each module is read anew, to a key; equal keys, also those of an earlier call, are one subtree. So where one module
    has changed, only it and those above it are folded anew.
    """

    def __init__(self, root: Module) -> None:
        self.root = root
        sharding.renew()
        self.tensors: list[Tensor] = []  # of all modules, in the order of `named_parameters`
        self.owners: list[Module] = []  # theirs, one for one
        self.again: list[tuple[Module, str, Module]] = []  # who holds, under which name, a module that had been met before
        self.classes: dict[int, ClassFacts] = {}  # by id: a metaclass may take the hash away
        self.suspicious = unregistered.Suspicion()
        self.fsdp1, self.flat = distributed_units.fsdp1(), distributed_units.Flat()
        self.places: Places | None = None  # from the second walk on
        self.touched: Container[int] = ()
        self.unshared: dict[int, Subtree] = {}  # id(module) → subtree, of untouched modules in touched ones
        self.shared: dict[int, Subtree] = {}  # the same of touched modules
        if len(_entries) > REMEMBERED:
            _entries.clear()

    def fold(self) -> TreeRecord:
        """The tree: one walk over all modules, and where something is shared a second one over those that it concerns."""
        parents: dict[int, Module | None] = {}
        tree = self._walk(parents)
        scripted = marks.is_scripted(self.root)
        tied, again = repeated(map(id, self.tensors)), counted_again(self.tensors)
        if not tied and not self.again:
            return TreeRecord(tree, len(parents), ranks=_ranks(tree), again=again, scripted=scripted)
        owners = {id(owner): owner for tensor, owner in zip(self.tensors, self.owners, strict=True) if id(tensor) in tied}
        self.places = places = Places(parents, tied, owners.values(), self.again)
        self.touched, self.ledger = places.touched, Ledger(places)
        self._keep_unshared(tree)
        tree = self._walk(dict.fromkeys(self.unshared))
        ties, aliases = tuple(places.ties), tuple(places.aliases)
        shared = len(places.tensors), ties, len(places.modules), aliases
        return TreeRecord(tree, len(parents), *shared, _ranks(tree), again, scripted=scripted)

    def _walk(self, met: dict[int, Module | None]) -> Subtree:
        """Read every module once, parents before children, and fold it once all below it are folded.

        Args:
            met: the ids of modules not to be walked into; each module that is comes in here, with its (first) parent.
        """
        module: Any = None
        held: dict[str, Any] = {}
        own: tuple[TensorEntry, ...] = ()
        rest: Any = iter((("", self.root),))
        below: list[Any] = []
        waiting: list[Any] = []  # for what is below them: an own stack, since a model may be deeper than Python's
        while True:
            for name, child in rest:
                if child is None:
                    below += name, None
                    continue
                if id(child) in met:
                    below += name, self._again(module, name, child)
                    continue
                met[id(child)] = module
                inside = _contents(child)
                if type(child) is self.fsdp1:
                    self.flat.add(child)
                tensors, children = self._tensors(child, inside), inside.get("_modules")
                if children:
                    waiting.append((name, module, held, own, rest, below))
                    module, held, own, rest, below = child, inside, tensors, iter(children.items()), []
                    break
                below += name, self._subtree(child, inside, tensors, ())
            else:
                if not waiting:
                    tree: Subtree = below[1]
                    return tree
                subtree = self._subtree(module, held, own, tuple(below))
                name, module, held, own, rest, below = waiting.pop()
                below += name, subtree

    def _again(self, holder: Module, name: str, module: Module) -> _Child:
        """What stands for a module that is not walked into here."""
        if self.places is None:
            self.again.append((holder, name, module))
            return None
        key = id(module)
        return self.unshared.get(key) or (self.shared.get(key), self.places.module_link(holder, name, key))

    def _keep_unshared(self, tree: Subtree) -> None:
        """Of the first walk's tree, keep what is right: that of modules with nothing shared in them."""
        todo = [(self.root, tree)]
        while todo:
            module, subtree = todo.pop()
            below = chain.from_iterable(repeat(run.subtree, len(run.names)) for run in subtree.runs)
            for (_, child), inner in zip(stores.named_children(module), below, strict=True):
                if child is None or inner is None:
                    continue
                if id(child) in self.touched:
                    todo.append((child, inner))
                else:
                    self.unshared[id(child)] = inner

    def _subtree(self, module: Module, held: dict[str, Any], own: tuple[TensorEntry, ...], below: _Below) -> Subtree:
        cls = type(module)
        facts = self.classes.get(id(cls))
        if facts is None:
            facts = self.classes[id(cls)] = classes.facts_of(cls)
        hooked, attributes = stores.own_values(held)
        if facts.wrapper:
            attributes = distributed_units.authors_values(held, attributes)
        training = held.get("training")
        if training is not True and training is not False:
            training = stores.mode(module)
        kinds = tuple(map(type, attributes))
        shared = id(module) in self.touched
        key = (
            training,
            tuple(map(id, own)),  # the subtree that is found or made under this key keeps them alive
            below,
            self._extra(module, facts, own, attributes, kinds) if facts.speaks or "extra_repr" in held else "",
            () if unregistered.BORING.issuperset(kinds) or not self.suspicious(attributes, held) else self.finder.find(module),
            marks.of_hooks(held) if hooked else _NO_HOOKS,
            "_compiled_call_impl" in held,
            distributed_units.unit_of(module, facts.wrapper) if facts.wrapper else None,
            self.ledger.enter(module, own, self.unshared) if shared else None,
        )
        subtree = facts.known.get(key)
        if subtree is None:
            subtree = facts.known[key] = _new(facts, own, key)
            _class_of[subtree] = ref(cls)
        if shared:
            self.shared[id(module)] = subtree
        return subtree

    def _extra(
        self, module: Module, facts: ClassFacts, own: tuple[TensorEntry, ...], attributes: list[Any], kinds: tuple[type, ...]
    ) -> str:
        """What ``extra_repr`` says; torch's own says nothing but a module's attributes, and is asked once for equal ones."""
        spoken = None if facts.foreign or not facts.speaks else classes.spoken(attributes, kinds)
        if spoken is None:
            return classes.extra(module)
        key = (*map(id, own), *spoken)
        known = facts.extras.get(key)
        if known is None:
            known = facts.extras[key] = classes.extra(module), own
        return known[0]

    def _tensors(self, module: Module, held: dict[str, Any]) -> tuple[TensorEntry, ...]:
        """The module's own entries; equal ones are one object."""
        parameters, buffers = held.get("_parameters"), held.get("_buffers")
        if not parameters and not buffers:
            return ()
        found: list[TensorEntry] = []
        if parameters:
            self._store(module, parameters, "parameter", (), found)
        if buffers:
            self._store(module, buffers, "buffer", held.get("_non_persistent_buffers_set") or (), found)
        return tuple(found)

    def _store(self, module: Module, store: Any, kind: str, transient: Any, found: list[TensorEntry]) -> None:
        places, flat = self.places, self.flat.tensors
        for name, tensor in store.items():
            lies = None
            try:
                plain = type(tensor) in _PLAIN and tensor.layout is _STRIDED
                key: Any = (name, kind, tensor.shape, tensor.dtype, tensor.device, tensor.requires_grad) if plain else None
            except RuntimeError:  # a nested tensor has no one shape
                key = None
            if flat and id(tensor) in flat:
                lies = flat[id(tensor)]
                key = (name, kind, tensor.dtype, tensor.device, tensor.requires_grad, lies)
            elif key is None:
                key = _key(name, kind, tensor)
            link = None
            if places is None:
                if tensor is not None:
                    self.tensors.append(tensor)
                    self.owners.append(module)
            elif id(tensor) in places.tensors:
                link = places.tensor_link(module, name, id(tensor))
                key = (key, link)
            if transient and name in transient:
                key = (key, "transient")
            entry = _entries.get(key)
            if entry is None:
                entry = _entries[key] = _entry(name, kind, tensor, name not in transient, link, lies)
            found.append(entry)

    @cached_property
    def finder(self) -> unregistered.Finder:
        """Knows what is registered anywhere in the model."""
        return unregistered.Finder(stores.modules(self.root))


def _ranks(tree: Subtree) -> Ranks | None:
    """Those over which a model lies: of what its tensors say, and of what holds it as a whole."""
    held = tree.unit.ranks if tree.unit is not None else None
    return together([*tree.totals.ranks, *([held] if held is not None else [])])


def _entry(name: str, kind: str, tensor: Tensor | None, persistent: bool, tied: Link | None, lies: Sharding | None) -> TensorEntry:
    return entries.reserved(name, kind) if tensor is None else entries.describe(name, kind, tensor, persistent, tied, lies)


def _key(name: str, kind: str, tensor: Tensor | None) -> Any:
    """What an entry says of a tensor of another kind: of a DTensor a few facts, as there may be thousands."""
    if tensor is None:
        return name, kind, None
    lies = sharding.of_tensor(tensor)
    if lies is not None and type(local(tensor)) in _PLAIN:
        return name, kind, id(lies), tensor.dtype, tensor.device, tensor.requires_grad  # its entry keeps `lies` alive
    return name, kind, entries.describe(name, kind, tensor)


def _new(facts: ClassFacts, own: tuple[TensorEntry, ...], key: tuple[Any, ...]) -> Subtree:
    training, _, children, extra, hidden, (hook_marks, _), compiled, unit, counts = key
    below = _placed(children)
    totals = _totals(own, below, counts)
    flags = [*facts.marks, *hook_marks, *_tensor_flags(totals)]
    if compiled:
        flags.append("compiled")
    if any(name == "parametrizations" for name, _, _ in below):
        flags.append("parametrized")
    if training is None:
        flags.append("super().__init__() never called")
    unique = tuple(dict.fromkeys(flags))
    return Subtree(facts.name, facts.origin, facts.category, extra, training is not False, unique, own, _runs(below), hidden, totals, unit)


def _totals(own: tuple[TensorEntry, ...], below: _Placed, counts: Counts | None) -> Totals:
    parameters = trainable = buffers = size = lazy = here = 0
    modules = 1
    dtypes: dict[str, None] = {}
    devices: dict[str, None] = {}
    ranks: dict[Ranks, None] = {}
    for entry in own:
        if entry.kind == "reserved":
            continue
        dtypes[entry.dtype] = devices[entry.device] = None
        size += entry.bytes
        here += entry.bytes_here
        lazy += entry.shape is None
        if entry.sharding is not None:
            ranks[entry.sharding.ranks] = None
        if entry.kind == "buffer":
            buffers += entry.count
        else:
            parameters += entry.count
            trainable += entry.count if entry.trainable else 0
    alone = parameters
    for _, subtree, _ in below:
        if subtree is not None:
            inner = subtree.totals
            parameters += inner.parameters
            trainable += inner.trainable
            buffers += inner.buffers
            size += inner.bytes
            here += inner.bytes_here
            lazy += inner.lazy
            modules += inner.modules
            dtypes.update(dict.fromkeys(inner.dtypes))
            devices.update(dict.fromkeys(inner.devices))
            if inner.ranks:
                ranks.update(dict.fromkeys(inner.ranks))
    if counts is not None:
        parameters, trainable, buffers, size, lazy, modules, here = counts
    return Totals(alone, parameters, trainable, buffers, size, lazy, modules, tuple(dtypes), tuple(devices), here, tuple(ranks))


def _tensor_flags(totals: Totals) -> list[str]:
    flags = []
    if totals.lazy:
        flags.append("lazy")
    if "meta" in totals.devices:
        flags.append("meta")
    if len(totals.devices) > 1:
        flags.append("several devices")
    if totals.parameters and totals.trainable < totals.parameters:
        flags.append("partly frozen" if totals.trainable else "frozen")
    return flags


def _placed(children: _Below) -> _Placed:
    """Name, subtree and link of each child."""
    placed: _Placed = []
    for name, child in zip(children[::2], children[1::2], strict=True):
        subtree, link = child if isinstance(child, tuple) else (child, None)
        placed.append((name, subtree, link))
    return placed


def _runs(below: _Placed) -> tuple[Run, ...]:
    runs: list[Run] = []
    for (subtree, link), group in groupby(below, key=itemgetter(1, 2)):
        names = [name for name, _, _ in group]
        for some in _numbered(names) if subtree is not None else [[name] for name in names]:
            runs.append(Run(compact(some), subtree, link))
    return tuple(runs)


def _numbered(names: list[str]) -> list[list[str]]:
    """Split the names of equal neighbours into runs that read well as one row: 0 … 11, block3 … block7."""
    if len(names) >= UNNUMBERED:
        return [names]
    stems = [name.rstrip("0123456789") for name in names]
    split = []
    for _, group in groupby(zip(names, stems, strict=True), key=lambda pair: pair[1] if pair[0] != pair[1] else pair):
        split.append([name for name, _ in group])
    return split
