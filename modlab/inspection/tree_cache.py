"""Whether a model still looks as it did when its tree was last made.

A cell is run again and again on the same small model. One flat list of everything that its tree is made of is read
in a fraction of the time of the tree; where it equals the last one, the last tree is right.
"""

from __future__ import annotations

import sys
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch.nn import Module

from modlab.inspection import classes, distributed_units, entries, stores, unregistered
from modlab.inspection.classes import ClassFacts
from modlab.inspection.distributed import FSDP2
from modlab.inspection.unregistered import Suspicion
from modlab.records.structure import TreeRecord
from modlab.statistics import sharding

LARGE = 1000  # modules, from which on the list would take more room than it is worth

_TRAINING, _PARAMETERS, _BUFFERS, _TRANSIENT, _CHILDREN = map(
    stores.IN_ORDER.index, ("training", "_parameters", "_buffers", "_non_persistent_buffers_set", "_modules")
)
_HOOKS = slice(stores.IN_ORDER.index(stores.HOOKS[0]), stores.IN_ORDER.index(stores.HOOKS[-1]) + 1)
_AUTHORS = slice(len(stores.IN_ORDER), None)
_PLAIN = frozenset(entries.PLAIN)
_STRIDED = torch.strided
_COMPILED, _TRACED = "_compiled_call_impl", "_actual_script_module"
_SCALARS = classes.SCALARS
_read = object.__getattribute__
_metadata = attrgetter("shape", "dtype", "device", "requires_grad")

Seen = list[Any]
"""Plain values only: numbers, words, types of torch's metadata, the ids of what is there more than once if an id comes twice."""


class _Last(NamedTuple):
    model: ref[Module]
    seen: Seen
    tree: TreeRecord


_last: dict[int, _Last] = {}
_large: dict[int, ref[Module]] = {}  # models that were too large before are not read for nothing again


def _forget(key: int, _: Any) -> None:
    _large.pop(key, None)


def recall(model: Module, seen: Seen) -> TreeRecord | None:
    """The last tree of this very model, if the model looked the same then."""
    last = _last.get(id(model))
    return last.tree if last is not None and last.model() is model and last.seen == seen else None


def remember(model: Module, seen: Seen, tree: TreeRecord) -> None:
    """Keep the tree for the next call, as long as the model is there."""
    key = id(model)
    _last[key] = _Last(ref(model, lambda _: _last.pop(key, None)), seen, tree)


def at(root: Module) -> Seen | None:
    """What can be seen; None where that does not fit into a list of plain values.

    So for what is large, has ghosts, is lazy, sparse, scripted or of a subclass of Tensor (but a DTensor). Lists of two
    models are equal only if their trees are. It is one loop without a call for each module: it must take no longer
    than ``repr(model)``.
    """
    if id(root) in _large:
        return None
    seen: Seen = []
    sharded: Any = getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)
    if sharded is not None:
        seen.append(sharding.this_rank())
    todo: list[Any] = [root]
    known = classes.known
    suspicious: Suspicion | None = None
    try:
        for module in todo:
            if module is None:
                seen.append(None)
                continue
            held = _read(module, "__dict__")
            values = [*held.values()]
            children, parameters, buffers, training = values[_CHILDREN], values[_PARAMETERS], values[_BUFFERS], values[_TRAINING]
            if children is not held["_modules"] or type(training) is not bool:
                return None
            if any(values[_HOOKS]):  # a hook has a number that no other ever gets
                for store in values[_HOOKS]:
                    if store and store is not True:
                        seen += store
            cls = type(module)
            facts = known.get(id(cls))
            if facts is None or facts.speaker() is not cls.extra_repr:
                facts = classes.facts_of(cls)
            seen += facts, id(module), training, len(parameters), len(buffers)
            if facts.wrapper:
                if facts.wrapper != FSDP2:
                    return None
                seen.append(distributed_units.seen_of(module))
            for name, tensor in parameters.items() if not buffers else chain(parameters.items(), buffers.items()):
                if type(tensor) in _PLAIN and tensor.layout is _STRIDED:
                    seen += name, id(tensor), _metadata(tensor)
                elif tensor is None:
                    seen += name, None
                elif type(tensor) is sharded and type(tensor._local_tensor) in _PLAIN:
                    seen += name, id(tensor), tensor._spec, tensor._local_tensor.shape, tensor.device, tensor.requires_grad
                else:
                    return None
            if values[_TRANSIENT]:
                seen.append(frozenset(values[_TRANSIENT]))
            attributes = values[_AUTHORS] if not facts.wrapper else distributed_units.authors_values(held, values[_AUTHORS])
            if attributes and not _SCALARS.issuperset(map(type, attributes)):
                suspicious = suspicious or Suspicion()
                said = _said(module, held, attributes, facts, suspicious)
                if said is None:
                    return None
                seen.append(said)
            elif facts.speaks:
                seen.append(classes.extra(module) if facts.foreign else (*attributes, *map(type, attributes)))
            if children:
                seen += children
                todo += children.values()
                if len(todo) > LARGE:  # also of what contains itself
                    _large[id(root)] = ref(root, partial(_forget, id(root)))
                    return None
    except (AttributeError, LookupError, RuntimeError, TypeError):  # never initialized, a store of another make, nested tensors
        return None
    return seen


def _said(module: Module, held: dict[str, Any], attributes: list[Any], facts: ClassFacts, suspicious: Suspicion) -> Any:
    """What a module's attributes, not all of them scalars, make of its row; None for ghosts, and for what a compiler leaves."""
    kinds = tuple(map(type, attributes))
    if _COMPILED in held or _TRACED in held:
        return None
    if not unregistered.BORING.issuperset(kinds) and suspicious(attributes, held):
        return None
    if facts.foreign or not facts.speaks:
        return classes.extra(module) if facts.speaks or "extra_repr" in held else ""
    spoken = classes.spoken(attributes, kinds)
    return classes.extra(module) if spoken is None else spoken
