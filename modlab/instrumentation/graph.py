"""The autograd graph, walked: which leaves a tensor was computed from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor

LIMIT = 200_000  # nodes


def leaves_of(tensors: Iterable[Tensor]) -> frozenset[int]:
    """The ids of the leaves that the gradient of `tensors` reaches."""
    found: set[int] = set()
    seen: set[Any] = set()
    stack: list[Any] = []
    for tensor in tensors:
        if tensor.grad_fn is not None:
            stack.append(tensor.grad_fn)
        elif tensor.requires_grad:
            found.add(id(tensor))
    while stack and len(seen) < LIMIT:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            found.add(id(leaf))
        stack.extend(below for below, _ in node.next_functions if below is not None)
    return frozenset(found)
