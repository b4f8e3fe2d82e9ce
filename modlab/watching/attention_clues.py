"""Clues of attention: how far the positions of a sequence look ahead and back, and whether they look at padding."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from modlab.running.attention_graph import Attention, Shares

MOST = 1 << 20
"""Weights that are looked at: of more, those of the first samples."""


def facts(attention: Attention, batch: list[Tensor]) -> dict[str, Any]:
    """What one attention shows; 1 stands for what weights without a preference give.

    Args:
        attention: of a sequence to itself.
        batch: the inputs of the model: tokens among them tell where padding is.

    Returns:
        ``positions``; ``along``: the dimension along which weights add up to 1; ``sharp``: the greatest weight of a row, in the middle;
        ``later`` and ``earlier``: the weight of the positions behind and before each one; ``ordered``; and ``padding`` and ``real``: the
        weight of both kinds of tokens, where sequences have different lengths.
    """
    known: dict[str, Any] = {"ordered": attention.ordered, "along": attention.along, "scale": attention.scale}
    told = attention.weights if attention.weights is not None else attention.mask
    if told is not None and told.shape[-1] ** 2 > 4 * MOST:
        return {**known, "positions": told.shape[-1]}
    weights = attention.weights if attention.weights is not None else _open(attention)
    if weights is None:
        return {**known, "positions": attention.positions, "later": 0.0 if attention.causal else 1.0, "earlier": 1.0}
    known["positions"] = weights.shape[-1]
    few = max(1, MOST // max(weights[0].numel(), 1)) if weights.dim() > 2 else 1
    some = weights[:few] if weights.dim() > 2 else weights
    if some.numel() > 4 * MOST:  # one sample alone has more: one head of it
        some = some.flatten(0, -3)[:1]
    rows = some.detach().double()
    if attention.along != -1 or not bool(rows.isfinite().all()):
        return known
    known["sharp"] = float(rows.amax(-1).median()) if attention.weights is not None else 0.0
    plane = rows.reshape(-1, *rows.shape[-2:]).mean(0)
    even = (len(plane) - 1) / 2
    known |= {"later": float(plane.triu(1).sum()) / even, "earlier": float(plane.tril(-1).sum()) / even}
    padded = _padded(rows, [one[: len(rows)] if weights.dim() == 4 and len(one) == len(weights) else one for one in batch if one.dim()])
    if padded is not None:
        known |= _weighed(rows.reshape(len(padded), -1, *rows.shape[-2:]).mean((1, 2)), padded)
    return known


def shared(one: Shares, batch: list[Tensor]) -> dict[str, Any]:
    """What another softmax shows: ``shape``, ``dim``, ``summed``, ``kept``, and the weight of ``padding`` and of ``real`` tokens."""
    known: dict[str, Any] = {"shape": tuple(one.result.shape), "dim": one.dim, "summed": one.summed, "kept": one.kept}
    weights = one.result.movedim(one.dim, -1)
    if one.dim == 0 or weights.numel() > MOST:
        return known
    rows = weights.double().reshape(len(weights), -1, 1, weights.shape[-1])
    padded = _padded(rows, [ids for ids in batch if len(ids.shape) == 2 and len(ids) == len(rows)])
    return known if padded is None else {**known, **_weighed(rows.mean((1, 2)), padded)}


def _weighed(there: Tensor, padded: Tensor) -> dict[str, float]:
    """The weight of padding and of the rest, by the weights of the positions that are looked at."""
    share, on_padding = float(padded.double().mean()), float((there * padded).sum() / there.sum())
    return {"padding": on_padding / share, "real": (1 - on_padding) / (1 - share)}


def _open(attention: Attention) -> Tensor | None:
    """The weights that a mask alone would give."""
    mask = attention.mask
    if mask is None:
        return None
    while mask.dim() > 2 and mask.numel() // mask.shape[-2] * mask.shape[-1] > MOST and len(mask) > 1:  # of many, the first
        mask = mask[: len(mask) // 2]
    mask = mask.expand(*mask.shape[:-2], mask.shape[-1], mask.shape[-1])  # of padding there may be one row for all positions
    scores = torch.zeros(mask.shape, dtype=torch.float64)
    scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask.detach()
    return scores.softmax(-1)


def _padded(rows: Tensor, batch: list[Tensor]) -> Tensor | None:
    """Where a batch of tokens is padded: at the ends of its sequences, all with the same token, if they have different lengths."""
    for ids in batch:
        if ids.dim() == 2 and ids.shape[1] + 1 == rows.shape[-1] and not ids.is_floating_point() and len(ids) > 1:
            ids = torch.cat([ids.new_full((len(ids), 1), -1), ids], 1)  # of what stands in front, for all of the sequence
        if ids.dim() == 2 and not ids.is_floating_point() and ids.shape[1] == rows.shape[-1] and rows.numel() % ids.numel() == 0:
            ends = (ids == ids[:, -1].mode().values).flip(1).cumprod(1).flip(1).bool()
            if bool(ends.any()) and bool(ends.sum(1).min() != ends.sum(1).max()) and rows[..., 0, 0].numel() % len(ids) == 0:
                return ends
    return None
