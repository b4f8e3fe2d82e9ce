"""Each operand of a criterion: what stands at its inputs, read from the functions between it and the model's output."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from modlab.records.clues import MOVES, RANGES
from modlab.running.autograd_nodes import children, name_of, number_of, saved, shape_of

LAYOUT = MOVES | {
    *("Select", "Slice", "Narrow", "Index", "IndexSelect", "MaskedSelect", "Gather"),  # some of the numbers
    *("Split", "SplitWithSizes", "Unbind", "Stack", "Cat", "Flatten", "Expand", "Repeat", "AsStrided", "Unfold"),
}
"""Functions that only lay numbers out anew."""

WITHIN = LAYOUT | {
    *("Mean", "AvgPool1D", "AvgPool2D", "AvgPool3D", "AdaptiveAvgPool2D", "AdaptiveAvgPool3D"),
    *("MaxPool2DWithIndices", "MaxPool3DWithIndices", "Max", "Amax", "Amin", "UpsampleNearest2D", "UpsampleBilinear2D"),
    *("Clamp", "ClampMin", "ClampMax", "Hardtanh"),
}
"""Functions that give nothing beyond what they take."""

SUMS = frozenset(("Add", "Sub", "Rsub"))
BY_NUMBERS = SUMS | {"Mul", "Div", "Where", "Maximum", "Minimum"}
"""Functions that take two things, number by number."""

TURNED = frozenset(("T", "Transpose", "Permute", "Unsqueeze"))
"""Those by which a column is made a row on purpose, so that each is set against each."""

SCORES = frozenset(("Addmm", "Mm", "Linear"))
"""Layers that take rows."""

LAYERS = SCORES | {"Convolution", "Addbmm", "Baddbmm", "Bmm"}
"""Layers, whose outputs have no ends."""

DEEP = 12
"""Functions that are looked at on the way to a layer."""


def spread(start: Any, path: Sequence[Any], at: Any, shape: Sequence[int], *, compares: bool, by_numbers: bool) -> tuple[int, ...]:
    """The shape of what is repeated until it has that of what is compared; nothing where a function gives as much by itself.

    Args:
        start: the function that compares.
        path: those between it and the model's output.
        at: that of the output.
        shape: of what is compared.
        compares: whether the first function takes outputs and targets.
        by_numbers: whether numbers from elsewhere may be what repeats it, and not along a dimension of the targets' own.
    """
    upper = start
    for lower in (*path, *(() if at is None else (at,))):
        small = shape_of(lower)
        if math.prod(small) != math.prod(shape):
            repeats = (
                (compares and upper is start and not _is_outer(start))
                or name_of(upper) == "Expand"
                or (by_numbers and _is_repeating(upper, small))
            )
            return small if repeats and 0 < math.prod(small) < math.prod(shape) else ()
        upper = lower
    return ()


def is_repeated(target: Any) -> bool:
    """Whether a target is repeated to the shape of what it is compared with, without a copy."""
    if not isinstance(target, Tensor) or target.is_nested or target.layout is not torch.strided:
        return False
    return any(size > 1 and not stride for size, stride in zip(target.shape, target.stride(), strict=True))


def _is_outer(node: Any) -> bool:
    """Whether a column and a row that are set against each other are both made of outputs, and the one was turned for that."""
    below = children(node)
    return len(below) == 2 and any(name_of(one) in TURNED for one in below)


def _is_repeating(node: Any, small: Sequence[int]) -> bool:
    """Whether each is set against each by numbers from elsewhere, of as many samples; a column against a row of outputs is meant so."""
    shape, below = shape_of(node), children(node)
    if name_of(node) not in BY_NUMBERS or shape != (math.prod(small),) * 2:
        return False
    return len(below) == 1 or any(shape_of(one) == shape for one in below)


def giver(nodes: Sequence[Any]) -> str:
    """The nearest function that decides between which ends its numbers lie; "" where none does.

    Args:
        nodes: the functions before a criterion, the nearest first, those of the model itself among them.
    """
    summed = False
    for node in nodes:
        name = name_of(node)
        if name == "Sum":
            summed = True  # of numbers above 0 it lies there, too
        elif name not in WITHIN or is_mixed(node):
            return "" if summed and RANGES.get(name, (0.0, 0.0))[1] < math.inf else name
    return ""


def is_mixed(node: Any) -> bool:
    """Whether what different functions gave is put side by side, as a mean beside a deviation: no single one of them gives it all."""
    return name_of(node) in ("Cat", "Stack") and len({name_of(one) for one in children(node)}) > 1


def is_met(path: Sequence[Any]) -> bool:
    """Whether other numbers are added to outputs, or multiplied with them, before they are compared, as where a difference is to vanish."""
    return any(name_of(one) in SUMS or (name_of(one) in ("Mul", "Div") and math.isnan(number_of(saved(one, "other")))) for one in path)


def are_alone(node: Any) -> bool:
    """Whether each score was given alone, by one layer with a single output, however many of them then stand side by side."""
    waiting, layers = [node], set[tuple[int, ...]]()
    for _ in range(DEEP):
        if not waiting:
            break
        one = waiting.pop()
        if name_of(one) in LAYOUT or name_of(one) == "LogSoftmax" or (name_of(one) in ("Mul", "Div") and not is_met([one])):
            waiting += children(one)
        elif name_of(one) not in SCORES or shape_of(one)[-1:] != (1,):
            return False
        else:
            layers.add(_leaves(one))
    return not waiting and len(layers) == 1 and layers != {()}


def _leaves(layer: Any) -> tuple[int, ...]:
    """The parameters of a layer, by which two calls of it are known as such."""
    below = [children(one)[0] if name_of(one) in MOVES and children(one) else one for one in children(layer)]
    return tuple(id(one.variable) for one in below if name_of(one) == "AccumulateGrad")
