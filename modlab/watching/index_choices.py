"""Choices by an index: what a module gave only says which rows are taken, as that of an argmax does, and an index has no gradient."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from modlab.running.autograd_nodes import children, name_of, saved
from modlab.watching.pools import is_readable
from modlab.watching.readback import is_far

INDEX = {"Embedding": "indices", "Index": "indices", "IndexPut": "indices", "IndexSelect": "index", "Gather": "index"}
"""Functions that take rows by an index, and where they keep it."""

ROWS, LEAST = 64, 8
"""Rows that are kept of what a module gives, and so few that they say nothing."""

ALIKE = 0.95
"""Part of an index that is what an output chooses: of two that are as good, another one may have been taken."""

WIDE = 1 << 16
"""Numbers of a table whose rows are compared with what was given, at most."""


class IndexChoices:
    """Keeps how that begins which modules give in a look, and compares what the loss does not reach with each index in its graph."""

    def __init__(self) -> None:
        self._given: dict[str, tuple[Any, Tensor]] = {}

    def begin(self) -> None:
        """Nothing has been given yet."""
        self._given = {}

    def gave(self, path: str, output: Any) -> None:
        """A module without others in it gave this."""
        if not isinstance(output, Tensor) or output.grad_fn is None or not output.is_floating_point() or not is_readable(output):
            return
        if not is_far(output) and output.dim() in (2, 3, 4) and output.numel():
            self._given[path] = output.grad_fn, _rows(output.detach()).clone()

    def met(self, nodes: Collection[Any]) -> Iterator[tuple[Any, str]]:
        """Functions of a loss's graph that take rows by an index, and the module that chose these and that the graph does not reach."""
        lost = {path: rows for path, (node, rows) in self._given.items() if node not in nodes and len(rows) >= LEAST}
        for node in nodes if lost else ():
            index = _index(node)
            if index is None:
                continue
            tables = [one.variable.detach() for one in children(node) if name_of(one) == "AccumulateGrad"]
            for path, rows in lost.items():
                if any(_is_chosen(index, choice) for choice in _choices(rows, tables)):
                    yield node, path


def _rows(given: Tensor) -> Tensor:
    """The first rows: of a series one for each place, and of a picture one for each pixel."""
    return given[0].flatten(1).T[:ROWS] if given.dim() == 4 else given.flatten(0, -2)[:ROWS]


def _index(node: Any) -> Tensor | None:
    """What a function takes its rows by."""
    found = saved(node, INDEX[name_of(node)]) if name_of(node) in INDEX else None
    some = [one for one in (found if isinstance(found, tuple) else (found,)) if isinstance(one, Tensor)]
    known = len(some) == 1 and is_readable(some[0]) and not is_far(some[0])
    return some[0].flatten() if known else None


def _choices(rows: Tensor, tables: list[Tensor]) -> Iterator[Tensor]:
    """What rows of scores choose; and of a table, of which they choose the nearest."""
    if rows.shape[1] > 1:
        yield rows.argmax(1)
        yield rows.argmin(1)
    for table in tables:
        if table.dim() == 2 and table.shape[1] == rows.shape[1] and table.numel() <= WIDE:
            yield torch.cdist(rows.float(), table.float()).argmin(1)
            yield (F.normalize(rows.float(), dim=1) @ F.normalize(table.float(), dim=1).T).argmax(1)


def _is_chosen(index: Tensor, choice: Tensor) -> bool:
    """Whether an index is a choice, or those places, as a mask or as their numbers, at which one of several was chosen."""
    if bool((choice == choice[0]).all()):
        return False
    if index.dtype == torch.bool:
        mask = index[: len(choice)]
        return len(mask) == len(choice) and bool(mask.any()) and torch.equal(mask, choice == choice[mask.int().argmax()])
    if len(index) >= len(choice) and float((index[: len(choice)] == choice).float().mean()) >= ALIKE:
        return True
    places = index[index < len(choice)]
    return len(places) > 1 and torch.equal(places, (choice == choice[places[0]]).nonzero()[:, 0])
