"""Which parameters have a gradient: none, one that is zero everywhere, or one that is not."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

NONE, ZERO, PRESENT = "none", "zero", "present"


def kinds(tensors: Sequence[Tensor | None]) -> list[str]:
    """One word for each tensor; nothing where there can be no gradient. On a GPU one copy answers for all."""
    words = ["" if t is None else NONE if t.requires_grad and t.is_leaf else "" for t in tensors]
    asked: dict[torch.device, list[tuple[int, Tensor]]] = {}
    for i, tensor in enumerate(tensors):
        grad = tensor.grad if tensor is not None and tensor.is_leaf else None
        if grad is None:
            continue
        words[i] = PRESENT
        if grad.device.type != "meta":
            asked.setdefault(grad.device, []).append((i, grad))
    with torch.no_grad():
        for flags in asked.values():
            for (i, _), some in zip(flags, _any(flags), strict=True):
                words[i] = PRESENT if some else ZERO
    return words


def _any(flags: list[tuple[int, Tensor]]) -> list[bool]:
    found = [(_stored(grad) != 0).any() for _, grad in flags]
    return [bool(value) for value in torch.stack(found).tolist()]


def _stored(grad: Tensor) -> Tensor:
    """The values that are there, of a sparse gradient as well."""
    return grad._values() if grad.layout is torch.sparse_coo else grad.detach()
