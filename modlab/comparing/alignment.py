"""Align two models: match their modules as the user says, by name, and by structure where names do not match.

Structure is a module's class, the shapes of its parameters, and the structure of its children. The children of a Sequential
are named by index: inserting one renames all that follow, so they are matched as a sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from typing import NamedTuple

from torch import Tensor
from torch.nn import Module

from modlab.inspection import stores
from modlab.inspection.fingerprint import fingerprint
from modlab.statistics.memory import NoValuesError

LONG = 400
"""Maximum number of children (or leaves) to align as a sequence: the time grows with the square of it."""

_WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module")

Pair = tuple[str, str]
Places = Iterable[tuple[str, Module]]


class Alignment(NamedTuple):
    """The result of the alignment.

    Attributes:
        pairs: path on the right → path on the left.
        by_structure: the pairs that were matched by structure, as (left path, right path).
    """

    pairs: dict[str, str]
    by_structure: list[Pair]


def canonical(path: str, wrapped: bool) -> str:
    """The path without the parts that wrappers add (``torch.compile`` and FSDP; DDP and weight averaging if `wrapped`)."""
    parts = [part for part in path.split(".") if part not in _WRAPPERS]
    return ".".join(parts[1:] if wrapped and parts and parts[0] == "module" else parts)


def is_wrapped(paths: Iterable[str]) -> bool:
    """Whether the whole model is a single child named ``module``."""
    return {path.partition(".")[0] for path in paths} == {"", "module"}


def aligned(
    left: Places, right: Places, told: Mapping[str, str], called_left: Mapping[str, int], called_right: Mapping[str, int]
) -> Alignment:
    """Pair the modules of two models.

    Args:
        left: paths and modules of the left model.
        right: those of the right model.
        told: path on the left → path on the right, as the user says.
        called_left: how often each module was called. Of a wrapper and the module it wraps, the one seen being called counts; if
            both were, the inner one.
        called_right: the same for the right model.
    """
    ids: dict[tuple[object, ...], int] = {}
    trees = _Tree(left, called_left, told, ids), _Tree(right, called_right, told.values(), ids)
    found = _Pairing(*trees)
    found.descend("", "")
    for mine, theirs in told.items():
        found.descend(trees[0].name(mine), trees[1].name(theirs))
    found.flat()
    named = {trees[1].paths[b]: trees[0].paths[a] for a, b in found.pairs}
    return Alignment(
        {theirs: mine for mine, theirs in told.items()} | named, [(trees[0].paths[a], trees[1].paths[b]) for a, b in found.structural]
    )


class _Tree:
    """The modules of one model by name, without wrappers."""

    def __init__(self, places: Places, called: Mapping[str, int], told: Iterable[str], ids: dict[tuple[object, ...], int]) -> None:
        modules = self._modules = dict(places)
        self._numbers: dict[str, tuple[object, ...]] = {}
        self._wrapped = is_wrapped(modules)
        self.paths: dict[str, str] = {}
        self.children: dict[str, list[str]] = {}
        for path in modules:
            name = self.name(path)
            if name not in self.paths or called.get(path) or not called.get(self.paths[name]):
                self.paths[name] = path
        for name in self.paths:
            if name:
                self.children.setdefault(name.rpartition(".")[0], []).append(name)
        self.chosen = {self.name(path) for path in told}
        self.kinds = {name: type(modules[path]).__name__ for name, path in self.paths.items()}
        self.weighty: set[str] = set()  # with parameters of their own or in a module below
        self.structure: dict[str, int] = {}
        for name in sorted(self.paths, key=lambda name: -(name.count(".") + 1) if name else 0):
            self._sign(name, modules[self.paths[name]], ids)

    def _sign(self, name: str, module: Module, ids: dict[tuple[object, ...], int]) -> None:
        shapes = tuple((key, tuple(tensor.shape)) for key, tensor in stores.named_tensors(module) if not tensor.is_nested)
        inner = self.children.get(name, ())
        if shapes or any(one in self.weighty for one in inner):
            self.weighty.add(name)
        key = (self.kinds[name], shapes, tuple((one.rpartition(".")[2], self.structure[one]) for one in inner))
        self.structure[name] = ids.setdefault(key, len(ids))

    def name(self, path: str) -> str:
        """The path without wrappers."""
        return canonical(path, self._wrapped)

    def numbers(self, name: str) -> tuple[object, ...]:
        """Its structure, with fingerprints of all tensors in it and in the modules below it."""
        if name not in self._numbers:
            prints = [_print(tensor) for _, tensor in stores.named_tensors(self._modules[self.paths[name]])]
            self._numbers[name] = (self.structure[name], *prints, *(self.numbers(one) for one in self.children.get(name, ())))
        return self._numbers[name]

    def free(self, name: str) -> list[str]:
        """Its children, except those that the user matched."""
        return [one for one in self.children.get(name, ()) if one not in self.chosen]


def _print(tensor: Tensor) -> bytes:
    """The tensor's fingerprint; empty if it has no values."""
    try:
        return fingerprint(tensor)
    except (NoValuesError, RuntimeError, NotImplementedError, TypeError):
        return b""


class _Pairing:
    """Pairs two trees from the root down."""

    def __init__(self, left: _Tree, right: _Tree) -> None:
        self._left, self._right = left, right
        self.pairs: list[Pair] = []
        self.structural: list[Pair] = []
        self._taken: tuple[set[str], set[str]] = (set(), set())

    def descend(self, left: str, right: str) -> None:
        """Pair two modules and what is below them."""
        todo = [(left, right)]
        while todo:
            mine, theirs = todo.pop()
            if mine not in self._left.chosen:
                self._pair(mine, theirs)
            todo.extend(self._children(mine, theirs))

    def _pair(self, mine: str, theirs: str) -> None:
        if mine not in self._taken[0] and theirs not in self._taken[1]:
            self.pairs.append((mine, theirs))
            self._taken[0].add(mine)
            self._taken[1].add(theirs)

    def _children(self, mine: str, theirs: str) -> list[Pair]:
        left, right = self._left.free(mine), self._right.free(theirs)
        by_last = {one.rpartition(".")[2]: one for one in right}
        named = [(one, by_last[last]) for one in left if (last := one.rpartition(".")[2]) in by_last]
        if self._worth(named)[0] == len(left) == len(right) or max(len(left), len(right)) > LONG:
            return named
        numbered = all(one.rpartition(".")[2].isdecimal() for one in (*left, *right))
        if not numbered:
            rest = [one for one in left if one not in dict(named)], [one for one in right if one not in {b for _, b in named}]
            more = [*self._sequence(*rest)]
            self.structural += more
            return named + more
        found = [*self._by_values(left, right)] if len(left) != len(right) else []
        if not found or self._equal(found) <= self._equal(named):
            found = [*self._sequence(left, right, weak=True)]
            if self._worth(found) <= self._worth(named):
                return named
        self.structural += [(a, b) for a, b in found if a.rpartition(".")[2] != b.rpartition(".")[2]]
        return found

    def _worth(self, pairs: list[Pair]) -> tuple[int, int]:
        """How many pairs have the same structure, and how many have the same class."""
        same = sum(self._left.structure[a] == self._right.structure[b] for a, b in pairs)
        return same, sum(self._left.kinds[a] == self._right.kinds[b] for a, b in pairs)

    def _equal(self, pairs: list[Pair]) -> int:
        """How many pairs hold the same values."""
        return sum(a in self._left.weighty and self._left.numbers(a) == self._right.numbers(b) for a, b in pairs)

    def _by_values(self, left: list[str], right: list[str]) -> Iterator[Pair]:
        """Pairs in order: first those that hold the same values, which distinguishes equal blocks, then the rest, as in `_sequence`."""
        a, b = [self._left.numbers(one) for one in left], [self._right.numbers(one) for one in right]
        for word, i, j, m, n in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
            if word == "equal":
                yield from zip(left[i:j], right[m:n], strict=True)
            else:
                yield from self._sequence(left[i:j], right[m:n], weak=True)

    def _sequence(self, left: list[str], right: list[str], *, weak: bool = False) -> Iterator[Pair]:
        """Pairs in order, of the same structure; if `weak`, also those of the same class in between, and then any of the same structure."""
        a, b = [self._left.structure[one] for one in left], [self._right.structure[one] for one in right]
        rest: tuple[list[str], list[str]] = ([], [])
        for word, i, j, m, n in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
            some, others = left[i:j], right[m:n]
            if word == "equal" and (weak or any(one in self._left.weighty for one in some)):
                yield from zip(some, others, strict=True)
                continue
            pairs = [*self._of_class(some, others)] if weak else []
            yield from pairs
            rest[0].extend(one for one in some if one not in dict(pairs))
            rest[1].extend(one for one in others if one not in {b for _, b in pairs})
        if weak:
            yield from self._moved(*rest)

    def _of_class(self, left: list[str], right: list[str]) -> Iterator[Pair]:
        kinds = [self._left.kinds[one] for one in left], [self._right.kinds[one] for one in right]
        for i, m, size in SequenceMatcher(None, *kinds, autojunk=False).get_matching_blocks():
            yield from zip(left[i : i + size], right[m : m + size], strict=True)

    def _moved(self, left: list[str], right: list[str]) -> Iterator[Pair]:
        """Modules of the same structure in a different order."""
        for one in left:
            found = next((other for other in right if self._left.structure[one] == self._right.structure[other]), None)
            if found is not None:
                right.remove(found)
                yield one, found

    def flat(self) -> None:
        """Pair leaves that are in different containers: in order, by structure alone."""
        left, right = ([*self._leaves(side)] for side in (0, 1))
        if left and right and max(len(left), len(right)) <= LONG:
            for one, other in self._sequence(left, right):
                self._pair(one, other)
                self.structural.append((one, other))

    def _leaves(self, side: int) -> Iterator[str]:
        tree = (self._left, self._right)[side]
        for name in tree.paths:
            if name and name not in tree.children and name not in self._taken[side] and name not in tree.chosen:
                yield name
