"""How far the inputs or the outputs of two calls diverge."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from modlab.comparing.kept_outputs import Kept, same_bits, sample
from modlab.compat import without_autograd
from modlab.inspection.tensor_difference import contrast
from modlab.statistics import measure_tensor
from modlab.statistics.contents import sizes_of

ROUNDING = 8
"""Differences up to this many units in the last place, relative to the norm, count as rounding (where rounding is expected)."""

ROUNDED_ONCE = 2
"""The same for dtypes of 16 bits or less: sums are computed in float32, and only the result is rounded."""

QUANTIZED = 1 / 32
"""The same for quantized tensors: 8 of 256 steps."""


@dataclass(slots=True)
class Gap:
    """The distance between the inputs or the outputs of two calls, over all tensors of all calls added to it.

    Attributes:
        equal: whether all values are the same; None if that is not known for all of them.
        compared: number of elements compared.
        rounding: the relative distance that rounding alone explains, in the coarser of the two dtypes.
        coarse: whether one side is quantized.
        reason: why tensors could not be compared; also in `notes`.
        alone: leaves that only one side has: 0 for left or 1 for right, and the name.
    """

    equal: bool | None = None
    exact: bool = True  # bit for bit
    sampled: bool = False
    max_abs: float | None = None
    changed: int = 0
    compared: int = 0
    notes: tuple[str, ...] = ()
    reason: str = ""
    rounding: float = 0.0
    coarse: bool = False
    alone: tuple[tuple[int, str], ...] = ()
    _distance: float = 0.0
    _left: float = 0.0
    _right: float = 0.0
    _finite: bool = True

    @property
    def relative(self) -> float | None:
        """‖left − right‖ / ‖left‖."""
        if self.max_abs is None:
            return None
        if not self._finite:
            return math.inf
        return self._distance / self._left if self._left else (math.inf if self._distance else 0.0)

    @property
    def cosine(self) -> float | None:
        """The cosine of the angle between the two sides."""
        if not (self._finite and self._left and self._right) or self.max_abs is None:
            return None
        # 1 - (d² - (l - r)²) / 2lr: near 1 this keeps the digits that l² + r² - d² would lose.
        apart = self._distance**2 - (self._left - self._right) ** 2
        return max(-1.0, min(1.0, 1 - max(apart, 0.0) / (2 * self._left * self._right)))

    def beyond(self, noise: float) -> bool:
        """Whether the two sides are known to differ by more than this relative distance."""
        if self.equal is not False:
            return False
        return noise == 0 or self.relative is None or self.relative > noise or bool(self.alone)

    def add(self, other: Gap) -> None:
        """Merge another gap into this one."""
        if other.equal is False or self.equal is False:
            self.equal = False
        elif self.equal is None:
            self.equal = other.equal
        self.exact, self.sampled = self.exact and other.exact, self.sampled or other.sampled
        if other.max_abs is not None:
            self.max_abs = max(self.max_abs or 0.0, other.max_abs)
        self.changed, self.compared = self.changed + other.changed, self.compared + other.compared
        self.notes = tuple(dict.fromkeys((*self.notes, *other.notes)))
        self.reason = self.reason or other.reason
        self.rounding, self.coarse = max(self.rounding, other.rounding), self.coarse or other.coarse
        self.alone = tuple(dict.fromkeys((*self.alone, *other.alone)))
        self._distance = math.hypot(self._distance, other._distance)
        self._left, self._right = math.hypot(self._left, other._left), math.hypot(self._right, other._right)
        self._finite = self._finite and other._finite

    def lack(self, side: int, name: str) -> None:
        """Record a leaf that only one side has."""
        self.equal, self.exact = False, False
        self.alone = (*self.alone, (side, name))

    def refuse(self, reason: str) -> None:
        """Record why two tensors could not be compared."""
        self.reason = reason
        self.notes = (*self.notes, f"not compared: {reason}")

    def differ(self, note: str) -> None:
        """Record a difference that is not a number."""
        self.equal, self.exact = False, False
        self.notes = (*self.notes, note)


def summed(gaps: Iterable[Gap]) -> Gap:
    """The sum of all gaps."""
    total = Gap()
    for gap in gaps:
        total.add(gap)
    return total


class Distances:
    """Compares the inputs and outputs of two passes. A tensor that one module returns and the next one takes is measured once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], Gap] = {}
        self._lengths: dict[int, float] = {}

    def between(self, left: Sequence[Kept], right: Sequence[Kept]) -> Gap:
        """Compare two nests leaf by leaf, matched by name."""
        total = nests(left, right, self._tensors)
        if not left and not right:
            total.equal = True  # no inputs: nothing that could differ
        return total

    def _tensors(self, left: Kept, right: Kept) -> Gap:
        key = id(left.values), id(right.values)
        if left.values is None or right.values is None:
            return _tensors(left, right, self._length)
        if key not in self._known:
            self._known[key] = _tensors(left, right, self._length)
        return self._known[key]

    def _length(self, kept: Kept) -> float:
        """The norm. Caching by id is safe because the passes keep the tensors alive."""
        if kept.values is None:
            return 0.0
        if id(kept.values) not in self._lengths:
            self._lengths[id(kept.values)] = _length(kept.values)
        return self._lengths[id(kept.values)] * math.sqrt(kept.stride)


def at_once(left: Sequence[Kept], right: Sequence[Kept]) -> Gap:
    """Compare a kept nest with a live one. If everything is equal, no norms are computed."""
    return nests(left, right, lambda one, other: _tensors(one, other, lambda _: 0.0))


def nests(left: Sequence[Kept], right: Sequence[Kept], tensors: Callable[[Kept, Kept], Gap]) -> Gap:
    """Compare all leaves of two nests; `tensors` compares two tensors."""
    total, theirs = Gap(), {kept.name: kept for kept in right}
    for kept in left:
        other = theirs.pop(kept.name, None)
        if other is None:
            total.lack(0, kept.name)
        else:
            total.add(tensors(kept, other) if kept.is_tensor and other.is_tensor else _plain(kept, other))
    for name in theirs:
        total.lack(1, name)
    return total


def _unread(left: Kept, right: Kept) -> str:
    """Why something that is not a tensor was not compared."""
    from modlab.wording import events  # deferred: most models return only tensors

    found = left.note or right.note
    return "not compared" if found is None else events.of_value(found)


def _plain(left: Kept, right: Kept) -> Gap:
    gap = Gap()
    if not (left.is_tensor or right.is_tensor) and (left.digest is None or right.digest is None):
        gap.notes = (f"{left.name} {_unread(left, right)}".strip(),)
    elif left.digest == right.digest and left.is_tensor is right.is_tensor:
        gap.equal = True
    else:
        gap.differ(f"{left.name or 'output'}: {left.text} and {right.text}")
    return gap


def _tensors(left: Kept, right: Kept, length: Callable[[Kept], float]) -> Gap:
    gap = Gap(sampled=left.whole is None or right.whole is None)
    if left.reason or right.reason:
        gap.refuse(left.reason or right.reason)
        return gap
    if (left.shape, left.dtype) != (right.shape, right.dtype):
        gap.notes = (f"{left.dtype} and {right.dtype}" if left.shape == right.shape else f"{left.text} and {right.text}",)
    elif same_bits(left, right):
        gap.equal, gap.max_abs, gap.sampled = True, 0.0, False
        if left.values is not None:
            gap.compared = left.values.numel() * left.stride
            gap._left = gap._right = length(left)
        return gap
    gap.exact = False
    if left.values is None or right.values is None:
        gap.equal = False
        gap.notes += ("too large to keep: it differs, but by how much is not known",)
        return gap
    return _measured(gap, left, right)


def _measured(gap: Gap, left: Kept, right: Kept) -> Gap:
    stride = max(left.stride, right.stride)
    one, other = (
        kept.values if kept.stride == stride else sample(kept.values, stride) for kept in (left, right) if kept.values is not None
    )
    if one is None or other is None or sizes_of(one)[0] != sizes_of(other)[0]:
        gap.equal = False
        return gap
    found = contrast(one, other)
    if not found.compared:
        gap.refuse(found.error)
        return gap
    gap.equal = found.changed == 0 and stride == 1
    gap.changed, gap.compared = found.changed * stride, one.numel() * stride
    gap._finite = not (found.changed and any((*found.nan, *found.inf)) and without_autograd(_finite_elsewhere, one, other))
    gap.max_abs = float(found.max_abs) if gap._finite else math.inf
    if not gap._finite:
        gap.notes += (f"NaN or infinite: {found.nan[0] + found.inf[0]:,} and {found.nan[1] + found.inf[1]:,} elements",)
    scale = math.sqrt(stride)
    gap._distance, gap._left, gap._right = found.distance * scale, found.length * scale, _length(other) * scale
    gap.rounding, gap.coarse = max(_rounding(one), _rounding(other)), one.is_quantized or other.is_quantized
    return gap


def _finite_elsewhere(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether an element is NaN or infinite on one side and has a different value on the other."""
    try:
        left, right = (t.detach().cpu().double() if t.is_floating_point() else t.detach().cpu() for t in (one, other))
        same = (left == right) | (left.isnan() & right.isnan())
        return bool((~same & ~(left.isfinite() & right.isfinite())).any())
    except (RuntimeError, NotImplementedError, TypeError):  # sparse, nested: cannot be compared element by element
        return True


def _length(values: torch.Tensor) -> float:
    found = measure_tensor(values, histogram=False).l2
    return found if math.isfinite(found) else 0.0


def _rounding(tensor: torch.Tensor) -> float:
    """The relative distance that rounding alone explains, for the output of one module."""
    if tensor.is_quantized:
        return QUANTIZED
    if not (tensor.dtype.is_floating_point or tensor.dtype.is_complex):
        return 0.0
    return torch.finfo(tensor.dtype).eps * (ROUNDING if tensor.element_size() > 2 else ROUNDED_ONCE)
