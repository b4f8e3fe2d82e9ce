"""Same answers for all samples: where these differ as a layer gives them, and no longer as the next one takes them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from modlab.running.values import leaves
from modlab.watching.pools import is_readable, kinds

LEAST = 4
"""Samples of a batch, and different numbers of one, that are not the same by chance, or at the limit of an activation."""

THERE = 1e-3
"""Samples differ if they are farther apart than this part of their size: what is nearer may be rounded away."""


class SameAnswers:
    """Follows samples through a model, from the look on that comes after one in which all got the same answer."""

    def __init__(self) -> None:
        self._follows = False
        self._samples = 0
        self._before: tuple[str, Tensor] | None = None  # the module that gave something last, and two samples of it
        self._lost = ""  # the last module to give samples that differ, if all that came after took the same for all

    def pass_by(self, path: str, args: Any, output: Any) -> None:
        """A module without others in it took and gave something."""
        if not self._follows:
            return
        taken, given = self._rows(args), self._rows(output)
        if taken is not None:
            self._compare(taken)
        self._before = (path, given[:2].detach().clone()) if given is not None else None  # later it may be overwritten

    def end(self, batch: Tensor, output: Any) -> str:
        """The model gave its answer: the path of what was lost on the way, "" if nothing was seen to be."""
        samples = len(batch) if batch.dim() else 0
        if self._samples != samples:
            self._samples, self._follows = samples, False
        answer = self._rows(output)
        same = answer is not None and samples >= LEAST and _are_same(answer)
        if same and self._follows and answer is not None:
            self._compare(answer)
        lost = self._lost if same and self._follows else ""
        self._follows = same and is_readable(batch) and not _are_same(batch)
        self._before, self._lost = None, ""
        return lost

    def _compare(self, taken: Tensor) -> None:
        if not _are_same(taken):
            self._lost = ""
        elif not self._lost and self._before is not None and _are_apart(self._before[1]) and kinds(taken[0].detach()).numel() >= LEAST:
            self._lost = self._before[0]

    def _rows(self, thing: Any) -> Tensor | None:
        """The first tensor of numbers that has a row for each sample."""
        for _, one, _ in leaves(thing)[:2]:
            if isinstance(one, Tensor) and one.is_floating_point() and one.dim() > 0 and len(one) == self._samples and is_readable(one):
                return one
        return None


def _are_same(rows: Tensor) -> bool:
    return len(rows) > 1 and torch.equal(rows[0], rows[1]) and bool((rows == rows[:1]).all())


def _are_apart(two: Tensor) -> bool:
    return bool((two[0] - two[1]).abs().max() > THERE * two.abs().max())
