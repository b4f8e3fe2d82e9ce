"""The difference of two tensors, or how far they are apart. Block by block, so that of two files of any size little is in memory."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, ParamSpec, TypeVar

import numpy as np
import torch
from torch import Tensor

from modlab.compat import without_autograd
from modlab.inspection.fingerprint import BLOCK, Raw, parts_of, whole
from modlab.records.finding import Fact, Finding
from modlab.statistics.contents import COMPUTED, as_array, blocks_of, numbers_of
from modlab.statistics.memory import NoValuesError, local, require_values
from modlab.statistics.wrappers import is_quantized, is_wrapper

P = ParamSpec("P")
T = TypeVar("T")

PLAIN = (Tensor, torch.nn.Parameter)
DENSE = 1 << 24
"""Elements up to which sparse tensors with different indices are made dense."""


class TensorDifference:
    """What two tensors of one shape have apart; the numbers of all blocks so far.

    Elements are compared by value: NaN equals NaN, 0.0 equals -0.0. Distances are taken in float64 (of whole numbers
    exactly, without overflow) between elements that are finite in both.
    """

    def __init__(self) -> None:
        self.changed = 0
        self.max_abs: float = 0
        self.distance = 0.0
        self.length = 0.0  # ‖before‖ over what is finite in both
        self.nan = [0, 0]
        self.inf = [0, 0]
        self.rewritten = 0  # elements of the same value in other bits: a sign of zero, a NaN
        self.note: Finding | None = None
        self.compared = True
        self.error = ""  # why not, if it could not be

    @property
    def relative(self) -> float:
        """‖after − before‖ / ‖before‖."""
        return self.distance / self.length if self.length else (math.inf if self.distance else 0.0)

    def refuse(self, why: str, **facts: Fact) -> TensorDifference:
        """There is nothing to compare; `why` is a key of `wording.differences.WHY_NOT`."""
        self.compared, self.note = False, Finding("not compared", facts={"why": why, **facts})
        return self

    def fail(self, error: str) -> TensorDifference:
        """They cannot be compared: this was raised, in one line."""
        self.error = error
        return self.refuse("error", error=error)

    def same(self, block: Raw) -> None:
        """Note a block that is the same on both sides."""
        if block.dtype.kind in "fc":
            total = block.sum()
            if not np.isfinite(total):
                self._count(0, block)
                self._count(1, block)

    def add(self, before: Raw, after: Raw) -> None:
        """Note a block of numbers, shape ``(n,)`` on both sides."""
        self._count(0, before)
        self._count(1, after)
        if before.dtype.kind in "iu" and after.dtype.kind in "iu":
            self._add_whole(before, after)
            return
        wide = np.complex128 if "c" in (before.dtype.kind, after.dtype.kind) else np.float64
        before, after = before.astype(wide), after.astype(wide)
        equal = before == after
        equal |= (before != before) & (after != after)
        self.changed += before.size - int(np.count_nonzero(equal))
        distance = np.abs(after - before)
        bad = ~(np.isfinite(before) & np.isfinite(after))
        if bad.any():
            distance[bad], before[bad] = 0, 0
        self.max_abs = max(self.max_abs, float(distance.max()))
        self._lengths(distance, before)

    def _add_whole(self, before: Raw, after: Raw) -> None:
        """Whole numbers, whose distance may fit no signed one: it is taken in uint64, where it wraps to the right one."""
        wide = np.uint64 if before.dtype.kind == after.dtype.kind == "u" else np.int64
        if {before.dtype, after.dtype} > {np.dtype(np.uint64)}:  # beside a signed one: as Python does it
            before, after = before.astype(object), after.astype(object)
            distance = np.abs(after - before)
        else:
            before, after = before.astype(wide), after.astype(wide)
            distance = np.maximum(before, after).view(np.uint64) - np.minimum(before, after).view(np.uint64)
        self.changed += int(np.count_nonzero(distance))
        self.max_abs = max(self.max_abs, int(distance.max()))
        self._lengths(distance.astype(np.float64), before.astype(np.float64))

    def _lengths(self, distance: Raw, before: Raw) -> None:
        self.distance = math.hypot(self.distance, _length(distance))
        self.length = math.hypot(self.length, _length(before))

    def lengthen(self, values: Raw) -> None:
        """Count a block that is the same on both sides in the length."""
        wide = values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)
        self.length = math.hypot(self.length, _length(wide[np.isfinite(wide)]))

    def _count(self, side: int, values: Raw) -> None:
        if values.dtype.kind in "fc":
            nan = int(np.count_nonzero(np.isnan(values)))
            self.nan[side] += nan
            self.inf[side] += values.size - nan - int(np.count_nonzero(np.isfinite(values)))


def _length(values: Raw) -> float:
    """The Euclidean norm of finite numbers; also of those whose squares would be too large or too small."""
    if not values.size:
        return 0.0
    sizes = np.abs(values)
    top = float(sizes.max())
    if not top:
        return 0.0
    if not 1e-140 < top < 1e140:
        return top * math.sqrt(float(np.square(sizes / top).sum())) if top < math.inf else math.inf
    return math.sqrt(float(np.square(sizes, out=sizes).sum()))


def contrast(before: Tensor, after: Tensor) -> TensorDifference:
    """Compare two tensors of the same shape; of any kind, on any device. What cannot be compared says why; nothing is raised."""
    return quietly(contrast_of_many, before, after)


def quietly(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call what compares tensors: there is no graph, no mode of the user's and no warning of numpy's meanwhile."""
    with np.errstate(all="ignore"):
        return without_autograd(work, *args, **kwargs)


def contrast_of_many(before: Tensor, after: Tensor) -> TensorDifference:
    """`contrast` for one pair of thousands, where it is `quiet` already."""
    found = TensorDifference()
    try:
        return found if _small(found, before, after) else _any(found, before, after)
    except NoValuesError as reason:
        return found.fail(str(reason))
    except Exception as error:  # noqa: BLE001 - a comparison of thousands must not end because of one: it is said instead
        return found.fail(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")


def _small(found: TensorDifference, before: Tensor, after: Tensor) -> bool:
    """Two plain tensors that lie in one piece in the CPU's memory, as most do; this is for speed alone."""
    if not (type(before) in PLAIN and type(after) in PLAIN and before.dtype is after.dtype and before.dtype in COMPUTED):
        return False
    if not (before.is_cpu and after.is_cpu and 0 < before.numel() <= BLOCK and before.layout is torch.strided is after.layout):
        return False
    if before.is_nested or after.is_nested or not (before.is_contiguous() and after.is_contiguous()) or before.is_neg() or after.is_neg():
        return False
    require_values(before)
    require_values(after)
    left, right = as_array(before).reshape(-1), as_array(after).reshape(-1)
    bits = f"u{left.dtype.itemsize}"
    differ = int(np.count_nonzero(left.view(bits) != right.view(bits)))
    if not differ:
        found.same(left)
        return True
    found.add(left, right)
    found.rewritten += 0 if found.changed else differ
    return True


def _any(found: TensorDifference, before: Tensor, after: Tensor) -> TensorDifference:
    before, after = local(before), local(after)
    special = _special(before) or _special(after)
    with warnings.catch_warnings() if special else nullcontext():
        if special:
            warnings.simplefilter("ignore")  # torch tells of each first use of some sparse layouts
        for left, right in _pairs(before, after):
            _compare(found, left, right)
    if found.changed and (is_wrapper(before) or is_wrapper(after)):
        how = "dequantized" if _offers_values(before, after) else "tensors inside"
        found.note = Finding(how, facts={"type": type(after if is_wrapper(after) else before).__name__})
    return found


def _offers_values(before: Tensor, after: Tensor) -> bool:
    """Whether both are numbers, or shells that say which numbers they stand for."""
    return all(is_quantized(tensor) or not is_wrapper(tensor) for tensor in (before, after))


def equal_bits(before: Tensor, after: Tensor) -> bool:
    """Whether two tensors of the same kind and shape store the same bits; False where that cannot be asked."""
    try:
        left, right = parts_of(before), parts_of(after)
        return len(left) == len(right) and all(map(_equal, left, right))
    except Exception:  # noqa: BLE001 - then they are compared by value, which says why not
        return False


def _equal(before: Tensor, after: Tensor) -> bool:
    if before.shape != after.shape or before.dtype is not after.dtype:
        return False
    pairs = zip(blocks_of(before, BLOCK), blocks_of(after, BLOCK), strict=True)
    return all(_same_bits(left, right) for left, right in pairs if left.numel())


def _same_bits(left: Tensor, right: Tensor) -> bool:
    one, other = whole(left), whole(right)
    if one.device != other.device:
        one, other = one.cpu(), other.cpu()
    return bool(torch.equal(one, other))


def _pairs(before: Tensor, after: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Strided tensors of the same shapes, of which each element stands for one number of the whole."""
    simple = not (_special(before) or _special(after))
    if simple:
        require_values(before)
        require_values(after)
        yield before.detach(), after.detach()
    elif (is_wrapper(before) or is_wrapper(after)) and _offers_values(before, after):
        yield from _pairs(numbers_of(before), numbers_of(after))
    elif before.is_nested or after.is_nested or is_wrapper(before) or is_wrapper(after):
        left, right = parts_of(before), parts_of(after)
        if [part.shape for part in left] != [part.shape for part in right]:
            raise NoValuesError("their members differ in size or number")
        yield from zip(left, right, strict=True)
    else:
        require_values(before)
        require_values(after)
        yield _numbers(before, after)


def _special(tensor: Tensor) -> bool:
    return tensor.is_nested or tensor.is_quantized or tensor.layout is not torch.strided or is_wrapper(tensor)


def _numbers(before: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
    """Quantized and sparse tensors, as little unpacked as can be."""
    left, right = (t.detach().dequantize() if t.is_quantized else t.detach() for t in (before, after))
    if left.layout is right.layout and left.layout is not torch.strided and not left.is_mkldnn:
        (*places, values), (*others, theirs) = parts_of(left), parts_of(right)
        if all(map(_equal, places, others)):
            return values, theirs
    if left.numel() > DENSE and (left.layout is not torch.strided or right.layout is not torch.strided):
        raise NoValuesError("they hold values in different places, and are too large to make dense")
    left, right = (t if t.layout is torch.strided else t.to_dense() for t in (left, right))
    return left, right


def _compare(found: TensorDifference, before: Tensor, after: Tensor) -> None:
    same: set[int] = set()
    for i, (left, right) in enumerate(zip(blocks_of(before, BLOCK), blocks_of(after, BLOCK), strict=True)):
        if not left.numel():
            continue
        if left.dtype is right.dtype and _same_bits(left, right):
            found.same(_array(left))
            same.add(i)
            continue
        known = found.changed
        found.add(_array(left), _array(right))
        if found.changed == known and left.dtype is right.dtype:
            found.rewritten += int(np.count_nonzero(as_array(whole(left)) != as_array(whole(right))))
    if same and found.distance:  # only now it is known that the length of what is the same matters
        for i, left in enumerate(blocks_of(before, BLOCK)):
            if i in same:
                found.lengthen(_array(left))


def _array(block: Tensor) -> Any:
    """The numbers of a block as numpy calculates with them, shape ``(n,)``."""
    if block.is_complex():
        block = block.to(torch.complex128).resolve_conj()
    elif block.dtype is torch.bool:
        block = block.to(torch.uint8)
    elif block.dtype not in COMPUTED:
        block = block.float()
    return as_array(block).reshape(-1)
