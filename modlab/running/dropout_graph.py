"""Dropout in a graph, by a module or by a function: how much of what comes it has set to zero."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor

from modlab.running.autograd_nodes import is_here, name_of, saved

MOST = 4096
"""Numbers of a noise that are read."""

BY_CHANCE = 5.0
"""Standard errors by which a share is not off by chance."""

NAMES = {"Mul": ("other", "self"), "NativeDropout": ("result1",)}
"""Functions that multiply by a noise, and under which name they save it."""


def dropped(nodes: Iterable[tuple[Any, str]]) -> Iterator[tuple[Any, str, float]]:
    """The functions that drop something, with the path of the module that takes it, and which share they drop.

    Dropout with probability p multiplies by 0 or by 1 / (1 - p), and that is how it is told from a mask.
    """
    for node, path in nodes:
        for name in NAMES.get(name_of(node), ()):
            share = _share(saved(node, name))
            if share is not None:
                yield node, path, share
                break


def _share(noise: Any) -> float | None:
    if not isinstance(noise, Tensor) or noise.requires_grad or noise.numel() < 8 or not is_here(noise) or not noise.is_contiguous():
        return None
    some = noise.detach().flatten()[:MOST].double()
    zeros = float((some == 0).double().mean())
    kept = some[some != 0]
    if not 0 < zeros < 1 or not len(kept) or float(kept.max()) != float(kept.min()):
        return None
    p = 1 - 1 / float(kept[0]) if float(kept[0]) > 1 else 0.0
    return p if p and math.isclose(p, zeros, abs_tol=_chance(p, len(some))) else None


def _chance(p: float, count: int) -> float:
    """How far the share of zeros of a noise may be from its chance."""
    return min(BY_CHANCE * math.sqrt(p * (1 - p) / count) + 1 / count, 0.2)
