"""The autograd graph, walked: which leaves a tensor was computed from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor

LIMIT = 20_000  # nodes; torch 2.13 does not survive it when hundreds of thousands have been looked at and are freed


def is_attached(tensor: Tensor) -> bool:
    """Whether autograd knows how it was computed, or that it is a leaf: a view made under no_grad requires grad, and is neither."""
    if tensor.requires_grad and tensor.grad_fn is None:
        return tensor._base is None or not tensor._base.requires_grad
    return tensor.requires_grad


def leaves_of(tensors: Iterable[Tensor]) -> frozenset[int] | None:
    """The identities of the leaves that a gradient of `tensors` reaches; None if the graph is too large to be walked."""
    found: set[int] = set()
    seen: set[Any] = set()
    stack: list[Any] = []
    for tensor in tensors:
        if tensor.grad_fn is not None:
            stack.append(tensor.grad_fn)
        elif tensor.requires_grad:
            found.add(id(tensor))
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        if len(seen) >= LIMIT:
            return None
        seen.add(node)
        if type(node).__name__ == "AccumulateGrad":
            found.add(id(node.variable))
        stack.extend(below for below, _ in node.next_functions if below is not None)
    return frozenset(found)
