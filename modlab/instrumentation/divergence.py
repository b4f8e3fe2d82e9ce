"""How far two calls are apart, and the module where a difference starts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from modlab.inspection.contrast import contrast
from modlab.instrumentation.shelf import Kept, sample
from modlab.statistics import measure_tensor
from modlab.statistics.contents import sizes_of

ROUNDING = 8
"""Units in the last place, relative to the norm, up to which a difference counts as rounding (where rounding is expected)."""

GROWTH = 10
"""How many times as far apart as its inputs a module's outputs must be, to be where a difference starts, where rounding is
expected: what goes in is then never quite the same."""


@dataclass(slots=True)
class Gap:
    """The distance between what two calls took, or gave; over all tensors of all calls that were added.

    Attributes:
        equal: the same values; None where that is not known of all.
        compared: elements whose distance was taken.
    """

    equal: bool | None = None
    exact: bool = True  # to the bit
    sampled: bool = False
    max_abs: float | None = None
    changed: int = 0
    compared: int = 0
    notes: tuple[str, ...] = ()
    unit: float = 0.0  # the coarser dtype's last place, relative
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
        """Of the angle between both sides."""
        if not (self._finite and self._left and self._right) or self.max_abs is None:
            return None
        return max(-1.0, min(1.0, (self._left**2 + self._right**2 - self._distance**2) / (2 * self._left * self._right)))

    def beyond(self, noise: float) -> bool:
        """Whether the two sides are known to be farther apart than this relative distance."""
        if self.equal is not False:
            return False
        return noise == 0 or self.relative is None or self.relative > noise

    @property
    def rounding(self) -> float:
        """The relative distance that rounding alone explains."""
        return ROUNDING * self.unit

    def add(self, other: Gap) -> None:
        """Take in another one."""
        if other.equal is False or self.equal is False:
            self.equal = False
        elif self.equal is None:
            self.equal = other.equal
        self.exact, self.sampled = self.exact and other.exact, self.sampled or other.sampled
        if other.max_abs is not None:
            self.max_abs = max(self.max_abs or 0.0, other.max_abs)
        self.changed, self.compared = self.changed + other.changed, self.compared + other.compared
        self.notes = tuple(dict.fromkeys((*self.notes, *other.notes)))
        self.unit = max(self.unit, other.unit)
        self._distance = math.hypot(self._distance, other._distance)
        self._left, self._right = math.hypot(self._left, other._left), math.hypot(self._right, other._right)
        self._finite = self._finite and other._finite

    def differ(self, note: str) -> None:
        """Note a difference that is no number."""
        self.equal, self.exact = False, False
        self.notes = (*self.notes, note)


def between(left: Iterable[Kept], right: Iterable[Kept]) -> Gap:
    """Compare two nests leaf by leaf, by the names of the places."""
    total, theirs = Gap(), {kept.name: kept for kept in right}
    for kept in left:
        other = theirs.pop(kept.name, None)
        if other is None:
            total.differ(f"{kept.name or 'the output'} is on one side alone")
        else:
            total.add(_leaf(kept, other))
    for name in theirs:
        total.differ(f"{name or 'the output'} is on one side alone")
    return total


def _leaf(left: Kept, right: Kept) -> Gap:
    gap = Gap()
    if left.is_tensor and right.is_tensor:
        return _tensors(left, right)
    if left.digest is None or right.digest is None:
        gap.notes = tuple(filter(None, (f"{left.name} {left.note or right.note}".strip(),)))
    elif left.digest == right.digest:
        gap.equal = True
    else:
        gap.differ(f"{left.name or 'output'}: {left.text} and {right.text}")
    return gap


def _tensors(left: Kept, right: Kept) -> Gap:
    gap = Gap(sampled=left.values is None or right.values is None or left.stride > 1 or right.stride > 1)
    if left.digest is None or right.digest is None:
        gap.notes = (left.note or right.note,)
        return gap
    if left.text != right.text:
        gap.notes = (_unlike(left.text, right.text),)
    if left.digest == right.digest:
        gap.equal, gap.max_abs, gap.sampled = True, 0.0, False
        if left.values is not None:
            gap.compared = left.values.numel() * left.stride
            gap._left = gap._right = _norm(left)
        return gap
    gap.exact = False
    if left.values is None or right.values is None:
        gap.equal = False
        gap.notes += ("too large to be kept: only that it differs is known",)
        return gap
    return _measured(gap, left, right)


def _unlike(left: str, right: str) -> str:
    """Two shapes with their dtypes; where the shapes are the same, the dtypes alone."""
    (shape, _, dtype), (other_shape, _, other) = left.rpartition(" "), right.rpartition(" ")
    return f"{dtype} and {other}" if shape == other_shape else f"{left} and {right}"


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
        gap.notes += (found.note,)
        return gap
    gap.equal = found.changed == 0 and stride == 1
    gap.changed, gap.compared = found.changed * stride, one.numel() * stride
    gap._finite = found.nan[0] == found.nan[1] and found.inf[0] == found.inf[1] and not (found.changed and not found.distance)
    gap.max_abs = float(found.max_abs) if gap._finite else math.inf
    if not gap._finite:
        gap.notes += (f"NaN or infinite: {found.nan[0] + found.inf[0]:,} and {found.nan[1] + found.inf[1]:,} elements",)
    scale = math.sqrt(stride)
    gap._distance, gap._left, gap._right = found.distance * scale, found.length * scale, _length(other) * scale
    gap.unit = max(_unit(one), _unit(other))
    return gap


def _norm(kept: Kept) -> float:
    return 0.0 if kept.values is None else _length(kept.values) * math.sqrt(kept.stride)


def _length(values: torch.Tensor) -> float:
    found = measure_tensor(values, histogram=False).l2
    return found if math.isfinite(found) else 0.0


def _unit(tensor: torch.Tensor) -> float:
    """The last place of a floating dtype, relative to 1; of a quantized one what a step is at most."""
    if tensor.is_quantized:
        return 1 / 256
    return torch.finfo(tensor.dtype).eps if tensor.dtype.is_floating_point or tensor.dtype.is_complex else 0.0


@dataclass(frozen=True, slots=True)
class Link:
    """One call on both sides.

    Attributes:
        path: the module.
        inputs, outputs: how far the two are apart.
        first_inside: how many calls had ended when it began; the ones that ended after that and before it are inside it.
        noise: the relative distance of two passes of the same kind.
    """

    path: str
    inputs: Gap
    outputs: Gap
    first_inside: int
    noise: float = 0.0


def starts(links: list[Link], *, rounding: bool) -> list[bool]:
    """Of each call, in the order in which calls end: whether a difference starts in it, and in no call inside it.

    Args:
        links: what two runs have in common.
        rounding: whether results are expected to be the same to rounding only; else to the bit.
    """
    found: list[bool] = []
    for i, link in enumerate(links):
        here = _starts(link, rounding) and not any(found[link.first_inside : i])
        found.append(here)
    return found


def _starts(link: Link, rounding: bool) -> bool:
    if not rounding:
        return link.inputs.equal is not False and link.outputs.beyond(link.noise)
    before = link.inputs.relative if link.inputs.equal is False else 0.0
    if before is None or not math.isfinite(before):
        return False
    return link.outputs.beyond(max(link.outputs.rounding, GROWTH * before))
