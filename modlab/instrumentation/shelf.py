"""What a pass gave, kept to be compared with another: whole up to a budget, beyond it as a sample with a fingerprint of all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from weakref import ReferenceType, ref

import torch
from torch import Tensor

from modlab.compat import without_modes, without_torch_function
from modlab.inspection.bits import digest_of, fingerprint
from modlab.instrumentation.values import Leaf, said
from modlab.statistics.contents import NoValuesError, require_values, sizes_of
from modlab.statistics.sampling import stride_of

WHOLE = 128 << 20
"""Bytes that one pass may keep of whole tensors; equal ones (what one module gives and the next one takes) are kept once."""

LARGE = 32 << 20
"""Bytes from which a single tensor is kept as a sample."""

SAMPLED = 32 << 20
"""Bytes of samples; beyond that, only the fingerprints are left, which tell what is equal and not by how much."""

_PLAIN = (type(None), bool, int, float, complex, str, bytes)


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """One leaf of what a call took or gave.

    Attributes:
        digest: of every bit; None where there are no values, or nothing to compare by.
        values: the tensor, or `stride`-th elements of it; None where it was not kept.
        stride: 1 for the whole tensor.
        text: shape and dtype, or what it is in words.
        note: why it is not compared.
    """

    name: str
    digest: bytes | None
    values: Tensor | None
    stride: int
    text: str
    is_tensor: bool
    requires_grad: bool = False
    note: str = ""


class Shelf:
    """The kept tensors of one pass.

    Args:
        whole: bytes for whole tensors; 0 keeps nothing: leaves are only looked at, while they are there.
    """

    def __init__(self, whole: int = WHOLE) -> None:
        self._keeps = whole > 0
        self._whole, self._sampled = whole, SAMPLED
        self._known: dict[bytes, tuple[Tensor, int]] = {}
        self._digests: dict[int, tuple[ReferenceType[Tensor], int | None, bytes]] = {}
        self.sampled = 0  # tensors that were not kept whole

    def all(self, leaves: Iterable[Leaf]) -> tuple[Kept, ...]:
        """Keep each leaf of a nest."""
        return tuple(self.keep(name, thing, reason) for name, thing, reason in leaves)

    def keep(self, name: str, thing: Any, reason: str) -> Kept:
        """Keep one leaf; never raises."""
        if not issubclass(type(thing), Tensor):
            digest = digest_of(f"{type(thing).__name__} {thing!r}".encode()) if type(thing) in _PLAIN and not reason else None
            return Kept(name, digest, None, 1, said(thing), False, note="" if digest else reason or "not compared")
        with torch.no_grad(), without_torch_function(), without_modes():
            try:
                return self._tensor(name, thing)
            except NoValuesError as error:
                return Kept(name, None, None, 1, _text(thing), True, thing.requires_grad, f"not compared: {error}")
            except Exception as error:  # noqa: BLE001 - a kind of tensor that we do not know must not end the pass
                return Kept(name, None, None, 1, type(thing).__name__, True, note=f"not compared: {type(error).__name__}")

    def _tensor(self, name: str, tensor: Tensor) -> Kept:
        require_values(tensor)
        digest = self._digest(tensor)
        values, stride = self._values(tensor, digest) if self._keeps else (tensor.detach(), 1)
        return Kept(name, digest, values, stride, _text(tensor), True, tensor.requires_grad)

    def _digest(self, tensor: Tensor) -> bytes:
        """The fingerprint; what was asked just before (of what a module gave, and the next one takes) is remembered."""
        version = None if tensor.is_inference() else tensor._version
        known = self._digests.get(id(tensor))
        if known is not None and known[0]() is tensor and version is not None and known[1] == version:
            return known[2]
        digest = fingerprint(tensor)
        if len(self._digests) > 10_000:
            self._digests.clear()
        self._digests[id(tensor)] = ref(tensor), version, digest
        return digest

    def _values(self, tensor: Tensor, digest: bytes) -> tuple[Tensor | None, int]:
        if digest not in self._known:
            made = self._copy(tensor)
            if made is None:
                return None, 1
            self._known[digest] = made
        return self._known[digest]

    def _copy(self, tensor: Tensor) -> tuple[Tensor, int] | None:
        size = tensor.numel() * tensor.element_size()
        if size <= min(self._whole, LARGE):
            self._whole -= size
            return tensor.detach().clone(), 1
        self.sampled += 1
        stride = stride_of(tensor.numel())
        some = sample(tensor, stride)
        if some is None or some.numel() * some.element_size() > self._sampled:
            return None
        self._sampled -= some.numel() * some.element_size()
        return some, stride


def sample(tensor: Tensor, stride: int) -> Tensor | None:
    """Every `stride`-th element, evenly spread and always the same ones; None of what cannot be cut so."""
    if stride == 1:
        return tensor.detach()
    if tensor.is_nested or tensor.is_quantized or tensor.layout is not torch.strided:
        return None
    return tensor.detach().reshape(-1)[::stride].clone()


def _text(tensor: Tensor) -> str:
    return f"{sizes_of(tensor)[0]} {str(tensor.dtype).removeprefix('torch.')}"
