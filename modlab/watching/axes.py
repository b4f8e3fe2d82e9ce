"""The axes of an activation along which its units lie: told from the module that made it, and from what the graph did since."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate
from operator import mul
from typing import Any

from torch import nn

from modlab.compat import shape_at

MIXED, UNKNOWN, UNBATCHED = "mixed", "unknown", "unbatched"
"""Why there is none: channels and places stand in one dimension, it cannot be told, there is no batch dimension."""

DEEP = 12
"""Functions of the graph that are followed back."""

_CHANNELS = (
    nn.modules.conv._ConvNd,
    nn.modules.batchnorm._BatchNorm,
    nn.modules.instancenorm._InstanceNorm,
    nn.GroupNorm,
)
_LAST = (nn.Linear, nn.Bilinear, nn.Embedding, nn.EmbeddingBag, nn.LayerNorm, nn.RNNBase, nn.MultiheadAttention)

_MADE_CHANNELS = frozenset({"ConvolutionBackward0", "NativeBatchNormBackward0", "CudnnBatchNormBackward0", "NativeGroupNormBackward0"})
_MADE_LAST = frozenset(
    {"AddmmBackward0", "MmBackward0", "MvBackward0", "EmbeddingBackward0", "NativeLayerNormBackward0", "LinearBackward0"}
)
_LAID_OUT = frozenset(
    {
        "ViewBackward0",
        "UnsafeViewBackward0",
        "ReshapeAliasBackward0",
        "SqueezeBackward0",
        "SqueezeBackward1",
        "SqueezeBackward2",
        "UnsqueezeBackward0",
    }
)
_MIXING = frozenset({"BmmBackward0", "IndexBackward0", "GatherBackward0", "AsStridedBackward0", "CatBackward0", "StackBackward0"})
_SHIFTING = frozenset({"AddBackward0", "SubBackward0", "RsubBackward1"})
_LEAF = "AccumulateGrad"

PASSING = (
    nn.Identity,
    nn.modules.dropout._DropoutNd,
    nn.modules.pooling._MaxPoolNd,
    nn.modules.pooling._AvgPoolNd,
    nn.modules.pooling._AdaptiveAvgPoolNd,
    nn.modules.pooling._AdaptiveMaxPoolNd,
    nn.Upsample,
    nn.modules.padding._ConstantPadNd,
    nn.modules.padding._ReflectionPadNd,
    nn.modules.padding._ReplicationPadNd,
)
"""Modules that hand on the units of whoever made their input."""

_KEEPING = _LAID_OUT | {"PermuteBackward0", "TransposeBackward0", "TBackward0", "CloneBackward0", "AliasBackward0"}

Owner = Callable[[Any], nn.Module | None]


def of_module(module: Any, dims: int) -> int | str | None:
    """The axis in what a module returns, or why there is none; None where its type does not tell."""
    if isinstance(module, nn.modules.conv._ConvNd):
        return 1 if dims == len(module.kernel_size) + 2 else UNBATCHED
    if isinstance(module, _CHANNELS):
        return 1 if dims > 1 else UNBATCHED
    return dims - 1 if isinstance(module, _LAST) else None


def keeps_numbers(node: Any) -> bool:
    """Whether a function of the graph only lays out anew what it gets."""
    return type(node).__name__ in _KEEPING


def is_layer(node: Any) -> bool:
    """Whether a function of the graph makes units, as a layer does."""
    return type(node).__name__ in _MADE_CHANNELS | _MADE_LAST


def computed(node: Any) -> Any:
    """What a function of the graph takes, where nothing else of that was computed: the rest are constants and parameters."""
    before = [one for one, _ in node.next_functions if one is not None and type(one).__name__ != _LEAF]
    return before[0] if len(before) == 1 else None


def before(node: Any) -> Iterator[Any]:
    """The functions from what this one takes back to a layer, which may lay out anew, or shift by a threshold, and do nothing else."""
    node = computed(node)
    for _ in range(DEEP):
        if node is None:
            return
        yield node
        if is_layer(node) or not (keeps_numbers(node) or type(node).__name__ in _SHIFTING):
            return
        node = computed(node)


def at(node: Any, owner: Owner, left: int = DEEP) -> int | str:
    """The axis in what a function of the graph returned, or why it is not known.

    Args:
        node: of the graph.
        owner: the module that returned what a node made, if one did.
        left: how many functions are still followed.
    """
    shape = shape_at(node)
    if shape is None or not left:
        return UNKNOWN
    module = owner(node)
    told = of_module(module, len(shape)) if module is not None else None
    if told is not None:
        return told
    name = type(node).__name__
    if name in _MADE_CHANNELS:
        return 1 if len(shape) > 1 else UNBATCHED
    if name in _MADE_LAST or len(shape) < 2:
        return len(shape) - 1
    before = next((one for one, _ in node.next_functions if one is not None and type(one).__name__ != _LEAF), None)
    if before is None or name in _MIXING:
        return len(shape) - 1 if len(shape) == 2 else UNKNOWN
    axis, was = at(before, owner, left - 1), shape_at(before)
    if isinstance(axis, str) or was is None:
        return axis if axis == MIXED or len(shape) > 2 else len(shape) - 1
    return _through(name, node, axis, was, shape)


def _through(name: str, node: Any, axis: int, was: tuple[int, ...], shape: tuple[int, ...]) -> int | str:
    """Where an axis lies behind a function."""
    if name == "PermuteBackward0":
        order = [dim % len(was) for dim in map(_signed, node._saved_dims)]
        return order.index(axis)
    if name in ("TransposeBackward0", "TBackward0"):
        one, other = (_signed(getattr(node, f"_saved_dim{i}", i)) % len(was) for i in (0, 1))
        return other if axis == one else one if axis == other else axis
    if name in _LAID_OUT:
        return _laid_out(axis, was, shape)
    if was == shape:
        return axis
    far = len(was) - axis  # numbers that are spread over more dimensions keep the last ones
    return len(shape) - far if len(shape) >= far and shape[len(shape) - far] == was[axis] else UNKNOWN


def _laid_out(axis: int, was: tuple[int, ...], shape: tuple[int, ...]) -> int | str:
    """The dimension with as many numbers before it, and of the same size."""
    before = [1, *accumulate(was, mul)][axis]
    for dim, passed in enumerate([1, *accumulate(shape, mul)][:-1]):
        if passed == before and shape[dim] == was[axis]:
            return dim
    return MIXED


def _signed(dim: int) -> int:
    """Torch keeps a negative dimension as an unsigned number."""
    return dim - (1 << 64) if dim >= 1 << 63 else dim
