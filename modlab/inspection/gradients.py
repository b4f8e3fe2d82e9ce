"""Which parameters have a gradient: none, one that is zero everywhere, or one that is not."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from modlab.compat import is_leaf, without_autograd
from modlab.records.sharding import Sharding
from modlab.statistics.memory import is_there, local

NONE, ZERO, ZERO_HERE, PRESENT = "none", "zero", "zero here", "present"


def kinds(tensors: Sequence[Tensor | None]) -> list[str]:
    """One word for each tensor; nothing where there can be no gradient. On a GPU one copy answers for all."""
    return without_autograd(_kinds, tensors)


def _kinds(tensors: Sequence[Tensor | None]) -> list[str]:
    words = ["" if t is None else NONE if t.requires_grad and is_leaf(t) else "" for t in tensors]
    asked: dict[torch.device, list[tuple[int, Tensor]]] = {}
    for i, tensor in enumerate(tensors):
        grad = tensor.grad if tensor is not None and is_leaf(tensor) else None
        if grad is None:
            continue
        words[i] = PRESENT
        some = _any(local(grad))
        if some is not None:
            asked.setdefault(some.device, []).append((i, some))
    for answers in asked.values():
        for (i, _), some in zip(answers, torch.stack([some for _, some in answers]).tolist(), strict=True):
            words[i] = PRESENT if some else ZERO
    return words


def said(word: str, sharding: Sharding | None) -> str:
    """The same of a tensor that lies over several ranks: what is zero here may be none elsewhere."""
    return ZERO_HERE if word == ZERO and sharding is not None and not sharding.whole else word


def _any(grad: Tensor) -> Tensor | None:
    """Whether something in it is not zero, shape ``()``; None where that cannot be asked (no values, a layout that knows no ``!=``).

    Args:
        grad: what this rank holds of it; of a rank that holds nothing of it, nothing can be said.
    """
    if not grad.numel() or not is_there(grad):
        return None
    try:
        stored = grad._values() if grad.layout is torch.sparse_coo else grad.values() if grad.layout is not torch.strided else grad
        return (stored.detach() != 0).any()
    except (RuntimeError, NotImplementedError, TypeError):
        return None
