"""Sums over a subtree in which each tensor and each module counts once, however many names it has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from torch.nn import Module

from modlab.inspection import stores
from modlab.inspection.places import Places
from modlab.records.structure import Subtree, TensorEntry


class Counts(NamedTuple):
    """Numbers that add up."""

    parameters: int = 0
    trainable: int = 0
    buffers: int = 0
    bytes: int = 0
    lazy: int = 0
    modules: int = 0
    bytes_here: int = 0


def of_entry(entry: TensorEntry) -> Counts:
    """What one tensor adds."""
    if entry.kind == "parameter":
        return Counts(entry.count, entry.count if entry.trainable else 0, 0, entry.bytes, int(entry.lazy), 0, entry.bytes_here)
    return Counts(0, 0, entry.count, entry.bytes, int(entry.lazy), 0, entry.bytes_here)


def of_subtree(subtree: Subtree) -> Counts:
    """What a child with nothing shared in it adds."""
    totals = subtree.totals
    return Counts(totals.parameters, totals.trainable, totals.buffers, totals.bytes, totals.lazy, totals.modules, totals.bytes_here)


def add(parts: Iterable[Counts]) -> Counts:
    """The sum of all."""
    columns = list(zip(*parts, strict=True))
    return Counts(*map(sum, columns)) if columns else Counts()


class Ledger:
    """The sums of a model that owns something twice.

    A module with something shared at or below it keeps two accounts: the sum over what has one place, which simply
    adds up, and by identity what has several, which is merged on the way up.
    """

    def __init__(self, places: Places) -> None:
        self.places = places
        self.single: dict[int, Counts] = {}
        self.shared: dict[int, dict[int, Counts]] = {}

    def enter(self, module: Module, own: tuple[TensorEntry, ...], unshared: dict[int, Subtree]) -> Counts:
        """Book one module, its children being booked already (one that contains itself adds nothing to itself).

        Args:
            module: the module, with something shared at or below it.
            own: its own entries.
            unshared: the subtrees of its other children, by identity.

        Returns:
            The sum.
        """
        everything = id(module) in self.places.alias_root
        shared: dict[int, Counts] = {}
        single: list[Counts] = []
        for _, child in stores.named_children(module):
            if id(child) in self.single:
                single.append(self.single[id(child)])
                for key, counts in self.shared[id(child)].items():
                    _book(shared, key, counts)
            elif id(child) in unshared:
                single.append(of_subtree(unshared[id(child)]))
        entry_of = {entry.name: entry for entry in own}
        for name, tensor in stores.named_tensors(module):
            if everything or id(tensor) in self.places.tensors:
                _book(shared, id(tensor), of_entry(entry_of[name]))
            else:
                single.append(of_entry(entry_of[name]))
        if everything:
            shared[id(module)] = Counts(modules=1)
        else:
            single.append(Counts(modules=1))
        self.single[id(module)], self.shared[id(module)] = add(single), shared
        return add([self.single[id(module)], *shared.values()])


def _book(shared: dict[int, Counts], key: int, counts: Counts) -> None:
    """Book a shared tensor; one that is a parameter here and a buffer there counts as a parameter."""
    if counts.parameters or key not in shared:
        shared[key] = counts
