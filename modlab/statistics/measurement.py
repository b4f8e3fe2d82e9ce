"""The measurement of a tensor of any kind, its record, without a trace on the tensor, its graph, the random state or the user's modes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
import torch
from torch import Tensor

from modlab.compat import dispatch_modes, without_autograd, without_torch_function
from modlab.records.tensor import Histogram, TensorStats, Values
from modlab.statistics import accelerator, sharding
from modlab.statistics.contents import COMPUTED, OF_FLAT, Contents, arrays_of, contents_of, sizes_of
from modlab.statistics.memory import NoValuesError, is_there, local
from modlab.statistics.moments import BLOCK, NOTHING, Moments, combined, moments_of
from modlab.statistics.sampling import Sampler, joined, stride_of

_PLAIN = {Tensor, torch.nn.Parameter}


def measure_tensor(tensor: Tensor, *, histogram: bool = True) -> TensorStats:
    """Summarise one tensor in numbers.

    Args:
        tensor: shape ``(...)``, any dtype, device and layout; neither changed nor kept.
        histogram: count values by size too: all of up to 8,191, of more a stated sample of about 4,096.

    Returns:
        Statistics over the finite elements, in the tensor's own units; NaN and infinities are counted apart. What has no
        values (meta, fake, lazy, freed) has ``measured == False`` and a `note` that says why; nothing is raised.

    Cost: five passes over blocks of 2**17 elements, which stay in the cache: together 3 to 5 times one ``tensor.sum()``. Blocks
    that this would not measure exactly enough (far from zero, tiny, huge, not finite) are done again in float64.

    >>> measure_tensor(torch.tensor([1.0, 2.0, float("nan")])).nan
    1
    """
    with without_torch_function(), np.errstate(all="ignore"):
        values = _as_it_lies(tensor)
        if values is None:
            return without_autograd(_measure_any, tensor, histogram)
        moments = moments_of(values) if values.size <= BLOCK else _take_blocks(values)
        counted = _histogram(values[:: stride_of(values.size)], moments, values.size) if histogram else None
        return TensorStats(tuple(tensor.shape), _name(tensor), "cpu", values.size, *moments, counted)


def _as_it_lies(tensor: Tensor) -> Values | None:
    """The memory of a plain tensor without gaps, shape ``(n,)``; None if it is anything else.

    This is for speed alone: most tensors are of this kind, and small ones cost a few microseconds. ``.data`` is not seen by a dispatch
    mode, leaves the graph alone, and is cheaper than ``detach``.
    """
    if type(tensor) not in _PLAIN or tensor.dtype not in COMPUTED or tensor.layout is not torch.strided or tensor.is_nested:
        return None
    if dispatch_modes() or hasattr(tensor, OF_FLAT):
        return None
    try:
        if not is_there(tensor):
            return None
        array = np.from_dlpack(tensor.data)  # ``.numpy()`` would make the storage one that can never be resized again
    except (RuntimeError, TypeError, BufferError):  # what numpy cannot read: another device, layout, dtype, a lazy conjugate, vmap …
        return None
    return array.reshape(-1) if array.flags.c_contiguous else None


def _take_blocks(values: Values) -> Moments:
    return reduce(combined, (moments_of(values[start : start + BLOCK]) for start in range(0, values.size, BLOCK)))


def _measure_any(tensor: Tensor, histogram: bool) -> TensorStats:
    try:
        return _measure_contents(contents_of(tensor), _name(tensor), str(tensor.device), histogram)
    except NoValuesError as reason:
        note = str(reason)
    except Exception as error:  # noqa: BLE001 - a measurement must not end a training run: that and how it failed is said instead
        note = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    shape, count = sizes_of(local(tensor))
    lies, note = sharding.of_tensor(tensor), f"not measured: {note}"
    return TensorStats(shape, _name(tensor), str(tensor.device), count, note=note, measured=False, sharding=lies)


def _measure_contents(contents: Contents, dtype: str, device: str, histogram: bool) -> TensorStats:
    parts, times, implicit = contents.parts, contents.times, contents.implicit
    stored = sum(part.numel() for part in parts)
    sampler = Sampler(stored) if histogram else None
    take = accelerator.take if all(map(accelerator.can_measure, parts)) else _take
    moments, sample = take(parts, sampler)
    counted = _histogram(sample, moments, stored) if histogram else None
    if times > 1:
        moments, counted = moments * times, counted and counted * times
    if implicit:
        zeros = next(arrays_of(parts[0].new_zeros(1), 1))
        of_zeros = moments_of(zeros)
        if counted:
            share = implicit if counted.exact else round(implicit * counted.sampled / stored)
            counted += _histogram(zeros, of_zeros, 1) * share
        moments = combined(moments, of_zeros * implicit)
    known = (contents.note, True, contents.stored, contents.sharding)
    return TensorStats(contents.shape, dtype, device, stored * times + implicit, *moments, counted, *known)


def _take(parts: Sequence[Tensor], sampler: Sampler | None) -> tuple[Moments, Values]:
    """The moments of all parts, and the sampled values; on the CPU."""
    moments, samples = NOTHING, []
    for part in parts:
        for values in arrays_of(part, BLOCK):
            moments = combined(moments, moments_of(values))
            if sampler:  # a copy, for a view would keep the whole block, which may be a temporary one
                samples.append(sampler.take(values).copy())
    return moments, joined(samples)


def _histogram(sample: Values, moments: Moments, count: int) -> Histogram:
    all_finite, exact = moments.finite == count, sample.size == count
    return Histogram.count(sample, moments.min, moments.max, all_finite=all_finite, exact=exact)


def _name(tensor: Tensor) -> str:
    return str(tensor.dtype)[len("torch.") :]
