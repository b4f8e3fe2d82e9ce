"""Attention in the graph of a loss, whoever has written it: where the positions of a sequence look, and whether their order can count."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from torch import Tensor

from modlab.running.autograd_nodes import DEEP, children, is_here, name_of, number_of, saved, shape_of

LEAST = 3
"""Positions from which on rows of weights are those of a sequence."""

SOFTMAX = ("Softmax", "SafeSoftmax")
PRODUCTS = ("Bmm", "Mm", "Matmul")
ORDERED = ("Cat", "Cudnn", "MkldnnRnn", "Thnn", "Sin", "Cos")
"""Beginnings of the names of functions by which the order of positions can count."""


class Attention(NamedTuple):
    """One attention of a sequence to itself.

    Attributes:
        path: of the module that gave what comes of it; "" if that was not found.
        weights: shape ``(..., positions, positions)``, rows that add up to 1; None where a fused function has kept none.
        causal: whether a fused function was told to hide what comes later.
        mask: what a fused function was told to add, or to keep.
        along: the dimension along which they add up to 1, counted from the end.
        ordered: whether the order of the positions can count; None where other attention comes before it.
    """

    path: str
    weights: Tensor | None
    causal: bool
    mask: Tensor | None
    ordered: bool | None
    along: int = -1


def attentions(nodes: Iterable[tuple[Any, str]]) -> list[Attention]:
    """What attends to itself among the nodes of a graph, each with the path of the module that gave what comes of it."""
    return [_attention(node, path) for node, path in nodes if _is_attention(node)]


def over_samples(nodes: Iterable[tuple[Any, str]], samples: int, length: int) -> Iterator[str]:
    """The modules that gave what comes of a softmax over the samples of a batch; `length` is that of its sequences, 0 of others."""
    for node, path in nodes:
        shape = shape_of(node)
        if name_of(node) not in SOFTMAX or len(shape) < 2 or saved(node, "dim") not in (0, -len(shape)):
            continue
        if shape[0] == samples > 1 and shape[1] not in (1, samples) and length in (0, shape[1]):
            yield path


def _is_attention(node: Any) -> bool:
    name = name_of(node)
    if name.startswith("ScaledDotProduct"):
        query, key = saved(node, "query"), saved(node, "key")
        return isinstance(query, Tensor) and isinstance(key, Tensor) and query.shape[-2] == key.shape[-2] >= LEAST
    shape = shape_of(node)
    if name not in SOFTMAX or len(shape) < 3 or shape[-1] != shape[-2] or shape[-1] < LEAST:
        return False
    return _product(node) is not None


def _product(node: Any) -> Any:
    """The product of queries and keys that is the nearest below a softmax."""
    waiting = deque([(child, 0) for child in children(node)])
    while waiting:
        one, depth = waiting.popleft()
        if name_of(one) in PRODUCTS:
            return one
        waiting += [(child, depth + 1) for child in children(one)] if depth < 6 else []
    return None


def _attention(node: Any, path: str) -> Attention:
    if name_of(node).startswith("ScaledDotProduct"):
        mask = saved(node, "attn_mask")
        return Attention(
            path, None, bool(saved(node, "is_causal")), mask if isinstance(mask, Tensor) and is_here(mask) else None, _ordered(node, node)
        )
    result = saved(node, "result")
    there = isinstance(result, Tensor) and is_here(result)
    dim, many = saved(node, "dim"), len(shape_of(node))
    along = dim % many - many if isinstance(dim, int) else -1
    return Attention(path, result.detach() if there else None, False, None, _ordered(node, _product(node)), along)


def _ordered(top: Any, product: Any) -> bool | None:
    """Whether something between the leaves and this attention tells one position from another."""
    between = deque(children(top)) if top is not product else deque()
    while between:
        node = between.popleft()
        if node is product:
            continue
        if name_of(node) in ("Add", "Sub") and len(children(node)) > 1:  # a bias of the scores that is learnt
            return True
        between += children(node)
    met, waiting = {product}, deque(children(product))
    while waiting and len(met) < DEEP:
        node = waiting.popleft()
        if node in met:
            continue
        met.add(node)
        if _is_attention(node):
            return None
        if _tells(node):
            return True
        waiting += children(node)
    return False


def _is_bias(node: Any) -> bool:
    """Whether it is a parameter of one dimension, the same for all positions."""
    while name_of(node) in ("View", "Expand", "Unsqueeze", "ToCopy") and children(node):
        node = children(node)[0]
    return name_of(node) == "AccumulateGrad" and node.variable.dim() < 2


def _tells(node: Any) -> bool:
    name = name_of(node)
    if name in ("Add", "Sub"):
        return len(shape_of(node)) > 1 and not any(_is_bias(child) for child in children(node))
    if name == "Mul":  # by positions, and not by a number or by what dropout has drawn
        other = saved(node, "other")
        many = isinstance(other, Tensor) and other.numel() > 1 and math.isnan(number_of(other))
        return many and (not is_here(other) or not other.is_contiguous() or len(other.detach().flatten()[:4096].unique()) > 2)
    return name.startswith(ORDERED)
