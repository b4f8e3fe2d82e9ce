"""Rows of a state table → a folded trie of their paths: what repeats (equal blocks of a network) is stored once.

Forty-five thousand rows of a mixture of experts become a few hundred bytes; the page, and the text, unfold them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from itertools import groupby
from operator import attrgetter, itemgetter

from modlab.frozen import frozen
from modlab.records.state import StateRecord, TableRecord
from modlab.records.structure import Names, compact


@frozen
class FoldedRow:
    """What one module path holds: slots by name with the number of their signature, and runs of equal children."""

    type: str
    slots: tuple[tuple[str, int], ...]
    runs: tuple[tuple[Names, int], ...]


@dataclass(slots=True)
class _Subtree:
    type: str = ""
    slots: dict[str, int] = field(default_factory=dict)
    children: dict[str, _Subtree] = field(default_factory=dict)


_PLACE = ("path", "owner", "owner_type", "position")
_facts = attrgetter(*(f.name for f in fields(StateRecord) if f.name not in _PLACE))


def fold(rows: Iterable[StateRecord]) -> tuple[list[FoldedRow], list[StateRecord]]:
    """Nodes, children before parents and the root last; and of rows that differ in nothing but their place, the first.

    Two walks through the trie give the order of the rows back: what is in the state_dict, and then what is not.
    """
    root, signatures, known = _Subtree(), list[StateRecord](), dict[object, int]()
    for row in sorted(rows, key=attrgetter("position")):
        branch = root
        for part in row.owner.split(".") if row.owner else ():
            branch = branch.children.setdefault(part, _Subtree())
        branch.type = row.owner_type
        number = known.setdefault(_facts(row), len(signatures))
        if number == len(signatures):
            signatures.append(row)
        branch.slots[row.name] = number
    nodes: dict[FoldedRow, int] = {}
    _number(root, nodes)
    return list(nodes), signatures


def _number(root: _Subtree, nodes: dict[FoldedRow, int]) -> None:
    """Give equal branches one number, children first; with an own stack, since networks can be deep."""
    numbers: dict[int, int] = {}
    stack = [(root, iter(root.children.values()))]
    while stack:
        branch, rest = stack[-1]
        child = next(rest, None)
        if child is not None:
            stack.append((child, iter(child.children.values())))
            continue
        stack.pop()
        below = [(name, numbers[id(inner)]) for name, inner in branch.children.items()]
        node = FoldedRow(branch.type, tuple(branch.slots.items()), tuple(_runs(below)))
        if branch is root:
            nodes.pop(node, None)  # the root stands last, also where an equal branch stands below it
        numbers[id(branch)] = nodes.setdefault(node, len(nodes))


def _runs(below: list[tuple[str, int]]) -> Iterator[tuple[Names, int]]:
    """Equal neighbours are one run where their names are consecutive numbers; q, k and v stay apart."""
    for number, group in groupby(below, key=itemgetter(1)):
        names = compact([name for name, _ in group])
        if isinstance(names, range):
            yield names, number
        else:
            yield from (((name,), number) for name in names)


def unfold(table: TableRecord) -> list[tuple[str, int, StateRecord]]:
    """One line for each row that differs from its neighbours: its path, with a range where it stands for several."""
    nodes, signatures = fold(table.rows)
    lines: list[tuple[str, int, StateRecord]] = []
    stack = [(len(nodes) - 1, "", 1)]
    while stack:
        index, prefix, times = stack.pop()
        node = nodes[index]
        lines += [(prefix + name, times, signatures[i]) for name, i in node.slots]
        for names, child in reversed(node.runs):
            label = f"({names[0]}-{names[-1]})" if len(names) > 1 else str(names[0])
            stack.append((child, f"{prefix}{label}.", times * len(names)))
    return [line for line in lines if line[2].in_state_dict] + [line for line in lines if not line[2].in_state_dict]
