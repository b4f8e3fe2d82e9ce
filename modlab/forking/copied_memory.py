"""Copied memory: what copying a training takes, of tensors and other large things, however deep they lie in attributes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from modlab.forking.nests import DEPTH, is_container, parts_of
from modlab.forking.tape import nbytes

LARGE = 4096
"""Bytes from which on a thing of Python's or numpy's counts: an array, a long list."""

Memory = dict[int, int]
"""Bytes by the identity of what holds them: what is shared counts once."""


def memory_made(memo: dict[int, Any]) -> Memory:
    """What `copy.deepcopy` has made, by its memo; what a copy shares with its original is none of it.

    A `__deepcopy__` of the user's need not note what it makes: there it is searched for.
    """
    originals = {id(one): one for one in memo.get(id(memo), ())}  # which the memo keeps alive
    copies = [(originals.get(key), one) for key, one in memo.items() if key != id(memo) and one is not originals.get(key)]
    own = [(before, after) for before, after in copies if _copies_itself(after)]
    shared = memory_taken(part for before, _ in own for part in _inside(before))
    inside = memory_taken(part for _, after in own for part in _inside(after))
    return memory_taken(one for _, one in copies) | {key: size for key, size in inside.items() if key not in shared}


def memory_taken(things: Iterable[Any]) -> Memory:
    """The memory of these, without what they refer to; of tensors with their gradients."""
    found: Memory = {}
    for thing in things:
        if isinstance(thing, torch.UntypedStorage):
            found[int(thing._cdata)] = thing.nbytes()
        elif not issubclass(type(thing), Tensor):
            with suppress(Exception):  # a stranger's `__sizeof__` may raise anything
                size = sys.getsizeof(thing)
                found |= {id(thing): size} if size >= LARGE else {}
        elif not is_lazy(thing):
            for tensor in (thing, thing.grad) if thing.is_leaf and thing.grad is not None else (thing,):
                key, size = _memory(tensor)
                found[key] = size
    return found


def _memory(tensor: Tensor) -> tuple[int, int]:
    """A copy of a view has a copy of the whole memory."""
    try:
        storage = tensor.untyped_storage()
        return int(storage._cdata), storage.nbytes()
    except (RuntimeError, NotImplementedError, TypeError):  # sparse, nested
        return id(tensor), nbytes(tensor)


def _copies_itself(thing: Any) -> bool:
    cls = type(thing)
    return hasattr(cls, "__deepcopy__") and not issubclass(cls, Tensor) and not cls.__module__.startswith(("torch.", "numpy"))


def _inside(thing: Any) -> Iterator[Any]:
    for value in getattr(thing, "__dict__", {}).values():
        yield from _leaves(value, DEPTH)


def _leaves(thing: Any, depth: int) -> Iterator[Any]:
    yield thing
    if depth and is_container(thing):
        for part in parts_of(thing):
            yield from _leaves(part, depth - 1)
