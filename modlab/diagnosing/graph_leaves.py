"""The leaves of an autograd graph, and the flat functions on the way to them: those whose gradient is zero everywhere."""

from __future__ import annotations

from typing import Any

from torch import Tensor

FLAT = ("Round", "Sign", "Floor", "Ceil", "Trunc")
"""Autograd's names of these functions."""


def leaves(value: Tensor) -> set[int]:
    """The identities of the tensors that a gradient of this one is given to."""
    return set(flat(value))


def flat(value: Tensor, past: bool = True) -> dict[int, str]:
    """The leaves, by identity, each with the last flat function on a way to it; without those behind one, unless `past`."""
    found: dict[int, str] = {}
    todo: list[tuple[Any, str]] = [(value.grad_fn, "")]
    seen: set[Any] = set()
    while todo:
        node, last = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        name = flat_name(node)
        if name and not past:
            continue
        last = name or last
        if hasattr(node, "variable"):
            found[id(node.variable)] = last
        todo += [(after, last) for after, _ in node.next_functions]
    return found


def flat_name(node: Any) -> str:
    """The name of a node's function if it is flat: "round"."""
    name = node.name().partition("Backward")[0]
    return name.lower() if name in FLAT else ""
