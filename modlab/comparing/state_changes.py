"""Changes that a pass makes to a model's state, in words."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from modlab import format
from modlab.compat import without_autograd
from modlab.inspection.tensor_difference import contrast
from modlab.records.comparison import Move
from modlab.running.restoration import Change
from modlab.running.values import said
from modlab.statistics import measure_tensor
from modlab.statistics.memory import local

WRITTEN = 4  # tensors up to this many elements are written out


def moves(changes: Iterable[Change], side: str) -> dict[int, list[Move]]:
    """The changes, by the id of the module that holds them."""
    found: dict[int, list[Move]] = {}
    for change in changes:
        found.setdefault(id(change.owner), []).append(_move(change, side))
    return found


def _move(change: Change, side: str) -> Move:
    before, after = (local(thing) if issubclass(type(thing), Tensor) else thing for thing in (change.before, change.after))
    distance = None
    if issubclass(type(before), Tensor) and issubclass(type(after), Tensor) and before.shape == after.shape:
        found = contrast(before, after)
        distance = float(found.max_abs) if found.compared else None
    return Move(change.name, change.kind, side, _words(before), _words(after, joined=True), distance)


def _words(thing: Any, *, joined: bool = False) -> str:
    return without_autograd(_tensor_words, thing, joined) if issubclass(type(thing), Tensor) else said(thing)


def _tensor_words(thing: Tensor, joined: bool) -> str:
    graph = ", in the autograd graph" if joined and thing.grad_fn is not None else ""
    stats = measure_tensor(thing, histogram=False)
    if not stats.measured:
        return stats.note
    if thing.layout is torch.strided and not thing.is_nested and thing.numel() <= WRITTEN and not thing.is_quantized:
        numbers = thing.detach().cpu().reshape(-1).tolist()
        text = ", ".join(short(number) for number in numbers)
        return (text if thing.dim() == 0 else f"[{text}]") + graph
    return f"{format.shape(stats.shape)}: {short(stats.mean)} ± {short(stats.std)}{graph}"


def short(number: Any) -> str:
    """The number with three significant digits."""
    if isinstance(number, float) and math.isfinite(number) and number:
        return format.number(float(f"{number:.3g}"))
    return format.number(number) if isinstance(number, (int, float)) else str(number)
