"""Nodes of autograd's graph: their names, shapes, and what they have saved.

A saved tensor that somebody packs by hooks of their own (checkpoints, offloading) is left alone, for to unpack it would run these.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction

from modlab.statistics.memory import is_there

DEEP = 1500
"""Functions of a graph that are looked at, at most."""

RECTIFYING = frozenset(("Relu", "Threshold", "Hardtanh"))
"""Functions that give zero for all that is below a bound."""


def is_here(tensor: Tensor) -> bool:
    """Whether its numbers can be read without waiting for an accelerator."""
    return tensor.is_cpu


def name_of(node: Any) -> str:
    """``MseLoss`` for ``MseLossBackward0``."""
    return _without_end(type(node).__name__)


@lru_cache(maxsize=1024)  # asked of each function of each loss that is read
def _without_end(name: str) -> str:
    return name.partition("Backward")[0]


def saved(node: Any, name: str) -> Any:
    """What a node has saved under a name; None where there is nothing, or where it is packed."""
    raw = getattr(node, f"_raw_saved_{name}", None)
    if raw is not None and _is_packed(raw):
        return None
    try:
        found = getattr(node, f"_saved_{name}", None)
    except RuntimeError:  # changed in place, or freed
        return None
    if isinstance(found, Tensor) and not is_there(found):
        return None
    return tuple(_signed(one) for one in found) if isinstance(found, (tuple, list)) else _signed(found)


def _is_packed(raw: Any) -> bool:
    if isinstance(raw, (tuple, list)):
        return any(map(_is_packed, raw))
    return getattr(raw, "unpack_hook", None) is not None


def rectifies(node: Any) -> bool:
    """Whether a function gives zero for all beyond a bound: a clamp does where that is zero, and a maximum of numbers and a constant."""
    name = name_of(node)
    if name == "Maximum":
        return any(before is None for before, _ in node.next_functions)
    bounds = [saved(node, bound) for bound in ("min", "max")] if name.startswith("Clamp") else []
    return name in RECTIFYING or any(isinstance(one, (int, float)) and one == 0 for one in bounds)


def _signed(thing: Any) -> Any:
    """Autograd tells a negative number as one of 64 bits without a sign."""
    return thing - 2**64 if isinstance(thing, int) and thing >= 2**63 else thing


def shape_of(node: Any) -> tuple[int, ...]:
    """The shape of what a node gave."""
    metadata = getattr(node, "_input_metadata", ())
    try:
        return tuple(int(size) for size in metadata[0].shape) if metadata else ()
    except (RuntimeError, TypeError, AttributeError):  # of a nested tensor one size is no number
        return ()


def dtype_of(node: Any) -> torch.dtype | None:
    """The dtype of what a node gave."""
    metadata = getattr(node, "_input_metadata", ())
    return getattr(metadata[0], "dtype", None) if metadata else None


def number_of(thing: Any) -> float:
    """A constant factor, if it lies here and is one number."""
    if isinstance(thing, (int, float)):
        return float(thing)
    if isinstance(thing, Tensor) and thing.numel() == 1 and is_here(thing) and not thing.is_complex():
        return float(thing.detach())
    return math.nan


def children(node: Any) -> list[Any]:
    """The nodes whose results it took."""
    return [child for child, _ in node.next_functions if child is not None]


def leaf_among(start: Any, known: Callable[[Tensor], bool]) -> tuple[Tensor | None, bool]:
    """The first of these leaves that a graph ends in, and if it has none whether that is sure.

    It is not where the graph is too large to go through, or functions in Python may hold leaves of their own, as checkpoints do.
    """
    met, waiting, sure = {start}, [start], True
    for _ in range(DEEP):
        if not waiting:
            return None, sure
        node = waiting.pop()
        variable = getattr(node, "variable", None)
        if variable is not None and known(variable):
            return variable, True
        sure = sure and not isinstance(node, BackwardCFunction)
        below = [one for one in children(node) if one not in met]
        met.update(below)
        waiting += below
    return None, False


def walk(start: Any, made: Mapping[Any, str]) -> Iterator[tuple[Any, str]]:
    """Each node of a graph once, the nearest first, with the path of the module that gave what comes of it; "" if that was not found.

    Args:
        start: the node of the loss.
        made: the nodes that gave the outputs of modules, and the paths of these.
    """
    met, waiting = {start}, deque([(start, made.get(start, ""))])
    for _ in range(DEEP):
        if not waiting:
            return
        node, path = waiting.popleft()
        yield node, path
        for child in children(node):
            if child not in met:
                met.add(child)
                waiting.append((child, made.get(child, path)))


def is_normalizing(node: Any) -> bool:
    """Whether a log-softmax is written as the logits less the logarithm of their sum, as a distribution does it."""
    return name_of(node) == "Sub" and any(name_of(one) == "Logsumexp" for one in children(node))


def is_logistic(node: Any) -> bool:
    """Whether a sigmoid is written as ``1 / (1 + exp(-x))``, or as ``exp(x) / (1 + exp(x))``."""
    name, below = name_of(node), children(node)
    if (name, len(below)) not in (("Reciprocal", 1), ("Div", 2)) or name_of(below[-1]) != "Add":
        return False
    powers, result = children(below[-1]), saved(node, "result")
    if [name_of(one) for one in powers] != ["Exp"]:
        return False
    if name == "Div":
        return name_of(below[0]) == "Exp" and children(below[0]) == children(powers[0])
    return not (isinstance(result, Tensor) and is_here(result)) or bool((result <= 1).all())


def is_untaught_norm(node: Any) -> bool:
    """Whether a batch normalization does not go by its batch, but by running statistics that have taken in none."""
    if name_of(node) != "NativeBatchNorm" or saved(node, "training") is not False:
        return False
    mean, var = saved(node, "running_mean"), saved(node, "running_var")
    known = all(isinstance(one, Tensor) and is_here(one) for one in (mean, var))
    return known and bool((mean == 0).all()) and bool((var == 1).all())
