"""The outputs of a pass, kept for comparison: whole up to a budget, beyond it as a sample with a fingerprint of all bits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from weakref import ReferenceType, ref

import torch
from torch import Tensor

from modlab.compat import without_autograd
from modlab.frozen import frozen
from modlab.inspection.fingerprint import digest_of, fingerprint
from modlab.inspection.tensor_difference import equal_bits
from modlab.records.trace import EventFact
from modlab.running.values import EMPTY, Leaf, said
from modlab.statistics.contents import sizes_of
from modlab.statistics.memory import NoValuesError, arrived, require_values
from modlab.statistics.sampling import stride_of

WHOLE = 256 << 20
"""Bytes of whole tensors that one pass may keep; what one module returns and the next one takes is kept once."""

LARGE = 64 << 20
"""Tensors larger than this many bytes are kept as a sample."""

SAMPLED = 32 << 20
"""Bytes of samples; beyond that only fingerprints are kept, which show whether tensors are equal but not how far they differ."""

_PLAIN = (type(None), bool, int, float, complex, str, bytes)


@frozen(eq=False)
class Kept:
    """One leaf of a call's inputs or outputs.

    Attributes:
        values: the tensor, or every `stride`-th element of it; None if it was not kept.
        stride: 1 for the whole tensor.
        digest: of all bits, for a tensor not kept whole or a value that is not a tensor; None if there is nothing to compare.
        text: a description; for a tensor, its `shape` and `dtype`.
        reason: why a tensor has no values to compare.
        note: why something that is not a tensor cannot be compared.
    """

    name: str
    values: Tensor | None
    stride: int
    digest: bytes | None
    text: str
    is_tensor: bool
    requires_grad: bool = False
    reason: str = ""
    note: EventFact | None = None
    shape: str = ""
    dtype: str = ""

    @property
    def whole(self) -> Tensor | None:
        """The whole tensor, if it was kept."""
        return self.values if self.stride == 1 else None


class KeptOutputs:
    """The kept tensors of one pass."""

    def __init__(self) -> None:
        self._whole, self._sampled = WHOLE, SAMPLED
        self._kept: dict[int, tuple[ReferenceType[Tensor], int, _Content]] = {}
        self.sampled = 0  # tensors not kept whole

    def all(self, leaves: Iterable[Leaf]) -> tuple[Kept, ...]:
        """Keep each leaf of a nest."""
        return tuple(_leaf(*leaf, self._content) for leaf in leaves)

    def _content(self, tensor: Tensor) -> _Content:
        """What is kept of a tensor; reused if the same tensor was kept before and has not been written to since."""
        version = None if tensor.is_inference() else tensor._version
        known = self._kept.get(id(tensor))
        if known is not None and known[0]() is tensor and known[1] == version:
            return known[2]
        made = self._copy(tensor)
        if version is not None:
            self._kept[id(tensor)] = ref(tensor), version, made
        return made

    def _copy(self, tensor: Tensor) -> _Content:
        size = tensor.numel() * tensor.element_size()
        if size <= min(self._whole, LARGE):
            self._whole -= size
            return tensor.detach().clone(), 1, None
        self.sampled += 1
        stride, digest = stride_of(tensor.numel()), fingerprint(tensor)
        some = sample(tensor, stride)
        if some is None or some.numel() * some.element_size() > self._sampled:
            return None, stride, digest
        self._sampled -= some.numel() * some.element_size()
        return some, stride, digest


_Content = tuple[Tensor | None, int, bytes | None]


def seen(leaves: Iterable[Leaf]) -> tuple[Kept, ...]:
    """Each leaf of a nest, for immediate comparison: nothing is copied."""
    return tuple(_leaf(*leaf, lambda tensor: (tensor.detach(), 1, None)) for leaf in leaves)


def _leaf(name: str, thing: Any, unread: EventFact | None, content: Callable[[Tensor], _Content]) -> Kept:
    """One leaf; never raises."""
    if not issubclass(type(thing), Tensor):
        plain = type(thing) in _PLAIN and unread is None
        digest = digest_of(f"{type(thing).__name__} {thing!r}".encode()) if plain else digest_of(b"") if unread is EMPTY else None
        return Kept(name, None, 1, digest, said(thing), False, note=None if digest else unread)
    return without_autograd(_tensor, name, thing, content)


def _tensor(name: str, thing: Tensor, content: Callable[[Tensor], _Content]) -> Kept:
    try:
        part = arrived(thing)
        require_values(part)
        return Kept(name, *content(part), _text(thing), True, thing.requires_grad, shape=_shape(thing), dtype=_dtype(thing))
    except NoValuesError as error:
        return Kept(name, None, 1, None, _text(thing), True, thing.requires_grad, str(error))
    except Exception as error:  # noqa: BLE001 - an unknown kind of tensor must not end the pass
        return Kept(name, None, 1, None, type(thing).__name__, True, reason=type(error).__name__)


def sample(tensor: Tensor, stride: int) -> Tensor | None:
    """Every `stride`-th element, always the same ones; None if the tensor cannot be sampled."""
    if stride == 1:
        return tensor.detach()
    if tensor.is_nested or tensor.is_quantized or tensor.layout is not torch.strided:
        return None
    return tensor.detach().reshape(-1)[::stride].clone()


def same_bits(left: Kept, right: Kept) -> bool:
    """Whether two tensors of the same shape and dtype have the same bits."""
    one, other = left.whole, right.whole
    if one is None or other is None:
        return _digest(left) == _digest(right)
    if one is other:
        return True
    pair = _as_words(one), _as_words(other)
    return torch.equal(*pair) if pair[0] is not None and pair[1] is not None else equal_bits(one, other)  # type: ignore[arg-type]


def _as_words(tensor: Tensor) -> Tensor | None:
    """The bits of a plain tensor as 64-bit words, which are compared twice as fast; None for other tensors."""
    if type(tensor) is not Tensor or tensor.is_complex() or tensor.is_quantized or tensor.layout is not torch.strided:
        return None
    if tensor.is_nested or not tensor.is_contiguous() or tensor.is_neg() or tensor.device.type == "mps":
        return None
    size = tensor.element_size()
    if not tensor.numel() or tensor.numel() * size % 8 or tensor.storage_offset() * size % 8:
        return None
    return tensor.view(-1).view(torch.int64)


def _digest(kept: Kept) -> bytes | None:
    return fingerprint(kept.values) if kept.digest is None and kept.values is not None and kept.whole is not None else kept.digest


def _text(tensor: Tensor) -> str:
    return f"{_shape(tensor)} {_dtype(tensor)}"


def _shape(tensor: Tensor) -> str:
    return str(sizes_of(tensor)[0])


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
