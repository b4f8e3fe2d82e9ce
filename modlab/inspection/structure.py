"""A module → its folded tree, without ``named_*`` and without recursion.

A survey visits every module once, children before parents, and notes what is owned more than once. Then each module
becomes a key, made of what its row would say and of its children's keys; equal keys are one subtree.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor
from torch.nn import Module, ParameterDict, ParameterList

from modlab.errors import NotInitializedError
from modlab.inspection import entries, ghosts, marks, stores
from modlab.inspection.places import Places
from modlab.inspection.totals import Counts, Ledger
from modlab.records.structure import Ghost, Link, Run, Subtree, TensorEntry, Totals, TreeRecord, compact

EXTRA_LIMIT = 300
REMEMBERED = 4096  # subtrees of a class, or tensor entries, kept for the next call
UNNUMBERED = 8  # equal neighbours without numbers in their names are one row from here on: q, k and v stay apart

_Below = tuple[tuple[str, Subtree | None, Link | None], ...]
_contents = stores.contents
_PLAIN = frozenset(entries.PLAIN)
_STRIDED = torch.strided
_LISTING = (ParameterList, ParameterDict)  # their `extra_repr` lists the tensors, which the tree shows anyway
_SCALARS = frozenset({int, float, bool, str, type(None)})
_SPEAKABLE = _SCALARS | {tuple}
_NO_HOOKS: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())


def extract(model: Module) -> TreeRecord:
    """The folded tree of `model`. Reads no value and calls nothing of the model's but ``extra_repr``."""
    if not stores.initialized(model):
        raise NotInitializedError(stores.uninitialized_message(model))
    return Folder(Survey(model)).fold()


class Survey:
    """One walk over all modules: their order, and what is owned more than once."""

    def __init__(self, root: Module) -> None:
        self.root = root
        self.order: list[Module] = []  # each module once, children before parents
        self.aliased: set[int] = set()  # ids of modules with several places
        self.tied: set[int] = set()  # ids of tensors with several owners
        self._walk()

    def _walk(self) -> None:
        order, seen = self.order, {id(self.root)}
        owned = array("Q")  # eight bytes each, of tens of thousands
        stack = [(self.root, iter(_children(self.root)))]
        while stack:
            module, rest = stack[-1]
            for child in rest:
                if child is None:
                    continue
                key = id(child)
                if key in seen:
                    self.aliased.add(key)
                    continue
                seen.add(key)
                held = _contents(child)
                if held.get("_modules"):
                    stack.append((child, iter(_children(child))))
                    break
                order.append(child)
                _own(held, owned)
            else:
                stack.pop()
                order.append(module)
                _own(_contents(module), owned)
        del seen
        self.tied = _repeated(owned)


def _own(held: dict[str, Any], into: array[int]) -> None:
    for store in (held.get("_parameters"), held.get("_buffers")):
        if store:
            into.extend(map(id, store.values()))


def _repeated(keys: array[int]) -> set[int]:
    """The ids that occur twice; that of None does not count."""
    if len(set(keys)) == len(keys):
        return set()
    return {key for key, times in Counter(keys).items() if times > 1} - {id(None)}


def _children(module: Module) -> Iterable[Module | None]:
    found: Any = _contents(module).get("_modules")
    return found.values() if found else ()


_NOWHERE = Places(Module(), set(), set())  # of a model in which nothing is shared


class ClassFacts:
    """What all instances of a class have in common, and the subtrees of such instances that were met so far."""

    def __init__(self, cls: type) -> None:
        speaker: Any = getattr(cls, "extra_repr", None)
        self.speaks = speaker is not Module.extra_repr and not issubclass(cls, _LISTING)
        authors = (cls.__module__, getattr(speaker, "__module__", ""))
        self.foreign = not all(author.startswith("torch.nn.modules.") for author in authors)  # others than torch's may say anything
        self.name, self.origin = cls.__name__, cls.__module__
        self.category = marks.category(cls)
        self.marks = marks.of_class(cls)
        self.known: dict[Any, Subtree] = {}
        self.extras: dict[Any, tuple[str, object]] = {}  # the entries go with the text, to keep their ids


_classes: WeakKeyDictionary[type, ClassFacts] = WeakKeyDictionary()  # weak: a class of a notebook can hold a model
_class_of: WeakKeyDictionary[Subtree, ref[type]] = WeakKeyDictionary()
_entries: dict[Any, TensorEntry] = {}


def class_of(subtree: Subtree) -> type | None:
    """The class of the modules that a subtree stands for, while it exists."""
    found = _class_of.get(subtree)
    return found() if found is not None else None


def _facts(cls: type) -> ClassFacts:
    try:
        facts = _classes.get(cls)
    except TypeError:  # a metaclass that takes the hash away: nothing is remembered of such a class
        return ClassFacts(cls)
    if facts is None or len(facts.known) > REMEMBERED or len(facts.extras) > REMEMBERED:
        facts = _classes[cls] = ClassFacts(cls)
    return facts


class Folder:
    """Turns surveyed modules into subtrees.

    Each module is read anew, to a key; equal keys, also those of an earlier call, are one subtree. So a tree that is
    shown again costs no more than its reading.
    """

    def __init__(self, survey: Survey) -> None:
        self.survey = survey
        shares = survey.aliased or survey.tied
        self.places = Places(survey.root, survey.tied, survey.aliased) if shares else _NOWHERE
        self.touched = self.places.touched
        self.ledger = Ledger(self.places)
        self.finder: ghosts.Finder | None = None
        self.suspicious = ghosts.Suspicion()
        self.aliases: dict[int, Subtree] = {}  # id(module) → subtree, of modules with several places
        self.classes: dict[type, ClassFacts] = {}
        if len(_entries) > REMEMBERED:
            _entries.clear()

    def fold(self) -> TreeRecord:
        """The tree of the surveyed model."""
        pending: list[Subtree] = []  # subtrees whose parent has not come yet
        for module in self.survey.order:
            pending.append(self._subtree(module, pending))
        places, modules = self.places, len(self.survey.order)
        if not self.touched:
            return TreeRecord(pending[0], modules)
        return TreeRecord(pending[0], modules, len(places.tensors), tuple(places.ties), len(places.modules), tuple(places.aliases))

    def _subtree(self, module: Module, pending: list[Subtree]) -> Subtree:
        held, cls = _contents(module), type(module)
        facts = self.classes.get(cls)
        if facts is None:
            facts = self.classes[cls] = _facts(cls)
        hooked, attributes = stores.own_values(held)
        children, own = held.get("_modules"), self._tensors(module, held)
        training = held.get("training")
        if training is not True and training is not False:
            training = stores.mode(module)
        below = self._below(module, children, pending) if children else ()
        kinds = tuple(map(type, attributes))
        key = (
            training,
            tuple(map(id, own)),  # the subtree that is found or made under this key keeps them alive
            below,
            self._extra(module, facts, own, attributes, kinds) if facts.speaks else "",
            () if ghosts.BORING.issuperset(kinds) or not self.suspicious(attributes, held) else self._ghosts(module),
            marks.of_hooks(held) if hooked else _NO_HOOKS,
            "_compiled_call_impl" in held,
            self.ledger.enter(module, own, children, below) if id(module) in self.touched else None,
        )
        subtree = facts.known.get(key)
        if subtree is None:
            subtree = facts.known[key] = _new(facts, own, key)
            _class_of[subtree] = ref(cls)
        if id(module) in self.survey.aliased:
            self.aliases[id(module)] = subtree
        return subtree

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
        places = self.places
        for name, tensor in store.items():
            try:
                plain = type(tensor) in _PLAIN and tensor.layout is _STRIDED
                key: Any = (name, kind, tensor.shape, tensor.dtype, tensor.device, tensor.requires_grad) if plain else None
            except RuntimeError:  # a nested tensor has no one shape
                key = None
            if key is None:
                key = (name, kind, None if tensor is None else entries.describe(name, kind, tensor))
            if id(tensor) in places.tensors:
                key = (key, places.tensor_link(module, name, id(tensor)))
            if transient and name in transient:
                key = (key, "transient")
            entry = _entries.get(key)
            if entry is None:
                entry = _entries[key] = self._entry(module, name, kind, tensor, name not in transient)
            found.append(entry)

    def _entry(self, module: Module, name: str, kind: str, tensor: Tensor | None, persistent: bool) -> TensorEntry:
        if tensor is None:
            return entries.reserved(name, kind)
        tied = self.places.tensor_link(module, name, id(tensor))
        return entries.describe(name, kind, tensor, persistent, tied)

    def _below(self, module: Module, children: Any, pending: list[Subtree]) -> _Below:
        """The children with their subtrees, last child first: theirs are the last that wait for a parent."""
        below: list[tuple[str, Subtree | None, Link | None]] = []
        aliased = self.survey.aliased
        for name, child in reversed(children.items()):
            if child is None:
                below.append((name, None, None))
                continue
            link = self.places.module_link(module, name, id(child)) if aliased and id(child) in aliased else None
            below.append((name, self.aliases.get(id(child)) if link else pending.pop(), link))
        return tuple(below)

    def _extra(
        self, module: Module, facts: ClassFacts, own: tuple[TensorEntry, ...], attributes: list[Any], kinds: tuple[type, ...]
    ) -> str:
        """What ``extra_repr`` says; torch's own says nothing but a module's attributes, and is asked once for equal ones."""
        if facts.foreign:
            return _extra(module)
        if not _SPEAKABLE.issuperset(kinds) or (tuple in kinds and not _all_scalars(attributes)):
            return _extra(module)  # a tensor, or an object of the user's: to remember it would keep it alive
        key = (*map(id, own), *attributes, *kinds)
        known = facts.extras.get(key)
        if known is None:
            known = facts.extras[key] = _extra(module), own
        return known[0]

    def _ghosts(self, module: Module) -> tuple[Ghost, ...]:
        if self.finder is None:
            self.finder = ghosts.Finder(self.survey.order)
        return self.finder.find(module)


def _new(facts: ClassFacts, own: tuple[TensorEntry, ...], key: tuple[Any, ...]) -> Subtree:
    training, _, below, extra, hidden, (hook_marks, _), compiled, counts = key
    below = below[::-1]
    totals = _totals(own, below, counts)
    flags = [*facts.marks, *hook_marks, *_tensor_flags(totals)]
    if compiled:
        flags.append("compiled")
    if any(name == "parametrizations" for name, _, _ in below):
        flags.append("parametrized")
    if training is None:
        flags.append("super().__init__() never called")
    unique = tuple(dict.fromkeys(flags))
    return Subtree(facts.name, facts.origin, facts.category, extra, training is not False, unique, own, _runs(below), hidden, totals)


def _totals(own: tuple[TensorEntry, ...], below: _Below, counts: Counts | None) -> Totals:
    parameters = trainable = buffers = size = lazy = 0
    modules = 1
    dtypes: dict[str, None] = {}
    devices: dict[str, None] = {}
    for entry in own:
        if entry.kind == "reserved":
            continue
        dtypes[entry.dtype] = devices[entry.device] = None
        size += entry.bytes
        lazy += entry.shape is None
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
            lazy += inner.lazy
            modules += inner.modules
            dtypes.update(dict.fromkeys(inner.dtypes))
            devices.update(dict.fromkeys(inner.devices))
    if counts is not None:
        parameters, trainable, buffers, size, lazy, modules = counts
    return Totals(alone, parameters, trainable, buffers, size, lazy, modules, tuple(dtypes), tuple(devices))


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


def _all_scalars(attributes: list[Any]) -> bool:
    return all(_SCALARS.issuperset(map(type, value)) for value in attributes if type(value) is tuple)


def _extra(module: Module) -> str:
    try:
        text: object = module.extra_repr()
    except Exception as error:  # noqa: BLE001 - whatever the user's code raises is a fact about the module, not a failure of the tree
        return f"extra_repr raised {type(error).__name__}"
    if not isinstance(text, str):
        return f"extra_repr returned {type(text).__name__}, not str"
    text = str.__str__(text)  # of a subclass, which may answer anything, the plain text
    return text if len(text) <= EXTRA_LIMIT else f"{text[:EXTRA_LIMIT]}… ({len(text):,} characters)"


def _runs(below: _Below) -> tuple[Run, ...]:
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
