"""Attention in the graph of a loss, whoever has written it: where the positions of a sequence look, and whether their order can count."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from torch import Tensor

from modlab.records.clues import MOVES
from modlab.running import kept_samples
from modlab.running.autograd_nodes import DEEP, children, is_here, name_of, number_of, saved, shape_of

LEAST = 3
"""Positions from which on rows of weights are those of a sequence."""

SOFTMAX = ("Softmax", "SafeSoftmax")
PRODUCTS = ("Bmm", "Mm", "Matmul")
ORDERED = ("Cat", "Cudnn", "MkldnnRnn", "Thnn", "Sin", "Cos")
"""Beginnings of the names of functions by which the order of positions can count."""

NEAR = 6
"""Functions between a place and the weights that make it."""

BEGINNINGS = ("Embedding", "Stack", "Cat", "Bmm", "Cudnn", "MkldnnRnn", "Thnn", "ScaledDotProduct", *SOFTMAX)
"""The same of those that put a sequence together: what stands in front of it is another sequence."""


class Attention(NamedTuple):
    """One attention of a sequence to itself.

    Attributes:
        path: of the module that gave what comes of it; "" if that was not found.
        weights: shape ``(..., positions, positions)``, rows that add up to 1; None where a fused function has kept none.
        causal: whether a fused function was told to hide what comes later.
        mask: what a fused function was told to add, or to keep.
        along: the dimension along which they add up to 1, counted from the end.
        ordered: whether the order of the positions can count; None where other attention comes before it.
        scale: by which numbers the scores are multiplied; 1 where that is not known.
        positions: how many there are.
    """

    path: str
    weights: Tensor | None
    causal: bool
    mask: Tensor | None
    ordered: bool | None
    along: int = -1
    scale: float = 1.0
    positions: int = 0


class Shares(NamedTuple):
    """A softmax other than the attention of a sequence to itself.

    Attributes:
        path: of the module that gave what comes of it.
        result, dim: what it gave, and the dimension along which that adds up to 1.
        summed: whether nothing is done with it but to add it up along that dimension.
        kept: whether what it gives of a sample, in the first dimension, goes on to the same sample.
    """

    path: str
    result: Tensor
    dim: int
    summed: bool = False
    kept: bool = False


def attentions(nodes: Iterable[tuple[Any, str]]) -> list[Attention]:
    """What attends to itself among the nodes of a graph, each with the path of the module that gave what comes of it.

    Weights that a checkpoint has packed are not told: where they look is not known.
    """
    some = [*nodes]
    again = {below for node, _ in some if name_of(node) == "Div" and len(children(node)) > 1 for below in _below(node)}
    found = [(node, _attention(node, path)) for node, path in some if _is_attention(node)]
    told = [(node, one) for node, one in found if one.weights is not None or name_of(node).startswith("ScaledDotProduct")]
    return [_normalized(one) if node in again else one for node, one in told]


def shares(nodes: Iterable[tuple[Any, str]]) -> list[Shares]:
    """Every other softmax among the nodes of a graph."""
    found: list[Shares] = []
    some = [*nodes]
    softmaxes = {node for node, _ in some if name_of(node) in SOFTMAX}
    takers: dict[Any, list[Any]] = {}
    for node, _ in some if softmaxes else ():
        for one in children(node):
            takers.setdefault(one, []).append(node)
    for node, path in some:
        result, dim = (saved(node, "result"), saved(node, "dim")) if name_of(node) in SOFTMAX and not _is_attention(node) else (None, None)
        if isinstance(result, Tensor) and isinstance(dim, int) and is_here(result) and result.dim() > 1:
            along, summed = dim % result.dim(), _is_summed(takers.get(node, []), dim, result.dim())
            found.append(Shares(path, result.detach(), along, summed, along == 0 and kept_samples.are_kept(node, takers)))
    return found


def _is_summed(takers: list[Any], dim: int, dimensions: int) -> bool:
    """Whether nothing takes a softmax but a sum along its own dimension."""
    dims = saved(takers[0], "dim") if len(takers) == 1 and name_of(takers[0]) == "Sum" else None
    along = dims[0] if isinstance(dims, tuple) and len(dims) == 1 else dims
    return isinstance(along, int) and along % dimensions == dim % dimensions


def _below(node: Any) -> list[Any]:
    """What is divided, and what it was before something was added to it or it was clamped."""
    first = children(node)[:1]
    return first + (children(first[0])[:1] if first and name_of(first[0]) in ("Add", "Clamp", "ClampMin") else [])


def _normalized(one: Attention) -> Attention:
    """Of weights that are divided once more: by what a row adds up to."""
    if one.weights is None:
        return one
    return one._replace(weights=one.weights / one.weights.sum(-1, keepdim=True).clamp_min(1e-12), along=-1)


def _is_attention(node: Any) -> bool:
    name = name_of(node)
    if name.startswith("ScaledDotProduct"):
        query, key = saved(node, "query"), saved(node, "key")
        square = isinstance(query, Tensor) and isinstance(key, Tensor) and query.shape[-2] == key.shape[-2] >= LEAST
        return square and not _is_across(node)
    shape = shape_of(node)
    if name not in SOFTMAX or len(shape) < 3 or shape[-1] != shape[-2] or shape[-1] < LEAST:
        return False
    product = _product(node)
    return product is not None and not _is_across(product)


def _is_across(product: Any) -> bool:
    """Whether queries and keys are seen to come of two sequences, as long as each other though they may be.

    What each position is made of by itself is followed down to what puts its sequence together. A parameter may be of both.
    """
    owners: dict[Any, int] = {}
    waiting, begins = deque((child, side) for side, child in enumerate(children(product)[:2])), set[int]()
    while waiting and len(owners) < DEEP:
        node, side = waiting.popleft()
        if owners.get(node, side) != side:
            return False
        if node in owners or not children(node):
            continue
        owners[node] = side
        if name_of(node).startswith(BEGINNINGS) and not _is_projection(node):
            begins.add(side)
        else:
            waiting += [(child, side) for child in children(node)]
    return not waiting and begins == {0, 1}


def _is_projection(node: Any) -> bool:
    """Whether it is a product with a parameter, as einsum makes it."""
    for one in children(node) if name_of(node) == "Bmm" else ():
        while name_of(one) in (*MOVES, "Expand") and children(one):
            one = children(one)[0]  # down to what was laid out anew
        if name_of(one) == "AccumulateGrad":
            return True
    return False


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
        mask = mask if isinstance(mask, Tensor) and is_here(mask) else None
        return Attention(path, None, bool(saved(node, "is_causal")), mask, _ordered(node, node), positions=shape_of(node)[-2])
    result = saved(node, "result")
    there = isinstance(result, Tensor) and is_here(result)
    dim, many = saved(node, "dim"), len(shape_of(node))
    along = dim % many - many if isinstance(dim, int) else -1
    return Attention(path, result.detach() if there else None, False, None, _ordered(node, _product(node)), along, _scale(node))


def _scale(node: Any) -> float:
    """By which numbers the scores are multiplied on their way from the product to the softmax; 1 where they are not multiplied alone."""
    scale, below = 1.0, children(node)
    while below and name_of(below[0]) not in PRODUCTS:
        if name_of(below[0]) == "Pow":
            return 1.0
        number = number_of(saved(below[0], "other"))
        if not math.isnan(number) and number > 0:
            scale *= number if name_of(below[0]) == "Mul" else 1 / number if name_of(below[0]) == "Div" else 1.0
        below = children(below[0])
    return scale


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
    met, waiting, tells = {product}, deque(children(product)), False
    while waiting and len(met) < DEEP:
        node = waiting.popleft()
        if node in met:
            continue
        met.add(node)
        if _is_attention(node):
            return None  # what is added behind it goes past it, as in each layer of a transformer
        tells = tells or _tells(node)
        waiting += children(node)
    return tells


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
    return name.startswith(ORDERED) or (name == "Convolution" and _overlaps(node)) or (name == "Stack" and _has_own_weights(node))


def _has_own_weights(stack: Any) -> bool:
    """Whether each place is made by weights of its own, as each column of a table is by its own embedding."""
    first = [{id(leaf) for leaf in _first_weights(one)} for one in children(stack)]
    return len(first) > 1 and all(first) and len(set[int]().union(*first)) == sum(map(len, first))


def _first_weights(node: Any) -> list[Any]:
    """The parameters that stand nearest to a result."""
    waiting = [node]
    for _ in range(NEAR):
        found = [one for one in waiting if name_of(one) == "AccumulateGrad"]
        if found:
            return found
        waiting = [child for one in waiting for child in children(one)]
    return []


def _overlaps(convolution: Any) -> bool:
    """Whether each place is made of its neighbours as well."""
    weight, stride = saved(convolution, "weight"), saved(convolution, "stride")
    return isinstance(weight, Tensor) and isinstance(stride, tuple) and any(map(int.__lt__, stride, weight.shape[2:]))
