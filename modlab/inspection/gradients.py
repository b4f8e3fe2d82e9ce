"""Which parameters have a gradient: none, one that is zero everywhere, or one that is not."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from modlab.compat import without_modes, without_torch_function
from modlab.statistics.memory import is_there, local

NONE, ZERO, PRESENT = "none", "zero", "present"


def kinds(tensors: Sequence[Tensor | None]) -> list[str]:
    """One word for each tensor; nothing where there can be no gradient. On a GPU one copy answers for all."""
    with torch.no_grad(), without_torch_function(), without_modes():
        return _kinds(tensors)


def _kinds(tensors: Sequence[Tensor | None]) -> list[str]:
    words = ["" if t is None else NONE if t.requires_grad and t.is_leaf else "" for t in tensors]
    asked: dict[torch.device, list[tuple[int, Tensor]]] = {}
    for i, tensor in enumerate(tensors):
        grad = tensor.grad if tensor is not None and tensor.is_leaf else None
        if grad is None:
            continue
        words[i] = PRESENT
        some = _any(grad)
        if some is not None:
            asked.setdefault(some.device, []).append((i, some))
    for answers in asked.values():
        for (i, _), some in zip(answers, torch.stack([some for _, some in answers]).tolist(), strict=True):
            words[i] = PRESENT if some else ZERO
    return words


def _any(grad: Tensor) -> Tensor | None:
    """Whether something in it is not zero, shape ``()``; None where that cannot be asked (no memory, a layout that knows no ``!=``)."""
    grad = local(grad)  # of a DTensor this rank's part
    if not is_there(grad):
        return None
    try:
        stored = grad._values() if grad.layout is torch.sparse_coo else grad.values() if grad.layout is not torch.strided else grad
        return (stored.detach() != 0).any()
    except (RuntimeError, NotImplementedError, TypeError):
        return None
