"""What is known of the model in training, taken down as plain data: what a verdict rests on beside the numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from modlab.inspection import stores
from modlab.records.finding import Finding
from modlab.records.watched import Cancelled, Watched, WatchedModule, WatchedParameter
from modlab.watching.steps import Steps
from modlab.watching.watch_index import Member, WatchIndex, Weight

ROUNDING, COARSE = 256, 1e-2
"""A gradient is rounding alone when its norm is below so many times its dtype's precision of the norms beside it, and below that share."""


def taken_down(
    index: WatchIndex,
    steps: Steps,
    elsewhere: set[str],
    uncounted: Mapping[str, str],
    unregistered: Iterable[Finding],
    ended: Module | None,
    **seen: Any,
) -> Watched:
    """All of it.

    Args:
        index: the modules and parameters.
        steps: the optimizers that move these.
        elsewhere: parameters that something else moves.
        uncounted: modules whose units are not counted, and why.
        unregistered: weights that PyTorch does not see.
        ended: the model, once the watch has ended, if it still exists.
        seen: the other fields of `Watched`.
    """
    late = () if ended is None else index.late(ended)
    return Watched(
        tuple(_module(index, member) for member in index.members.values()),
        tuple(_parameters(index, steps, elsewhere)),
        index.left,
        index.selection.patterns,
        index.opaque,
        dict(uncounted),
        passes=steps.passes,
        rate=steps.learning_rate(),
        optimizer=steps.label,
        beside=steps.beside,
        feeds_others=not any(weight.trainable and weight.felt for weight in index.weights) and _feeds_others(index, steps),
        late=late,
        late_unowned=tuple(_late_unowned(index, steps, ended)) if ended is not None and late else (),
        thawed_unowned=tuple(_thawed_unowned(index, steps)) if ended is not None else (),
        unregistered=tuple(unregistered),
        **seen,
    )


def _module(index: WatchIndex, member: Member) -> WatchedModule:
    holds = () if member.called else tuple(_held(index, member))
    return WatchedModule(member.path, member.category, member.called, member.order, member.taken, member.container, holds)


def _held(index: WatchIndex, member: Member) -> Iterator[str]:
    module = member.module()
    for name, tensor in ({} if module is None else stores.contents(module).get("_parameters") or {}).items():
        if isinstance(tensor, Tensor):
            weight = index.weight(tensor)
            yield weight.path if weight is not None else f"{member.path}.{name}".lstrip(".")


def _parameters(index: WatchIndex, steps: Steps, elsewhere: set[str]) -> Iterator[WatchedParameter]:
    still = {weight for weight in index.weights if _is_still(weight)}
    gradients, rates = GradientNorms(index), _rates(steps) if still else {}
    for weight, (tensor, size) in gradients.greatest.items():
        owner, slices = _owner(index, weight), weight.slices
        yield WatchedParameter(
            weight.path,
            weight.name,
            None if owner is None else owner.path,
            weight.dtype,
            weight.trainable,
            weight.owned,
            weight.path in elsewhere,
            weight.met,
            weight.felt,
            weight.graded,
            weight.moved,
            weight.stuck,
            size,
            -1 if tensor is None else tensor.dim(),
            bool(weight.part),
            gradients.cancelled(weight),
            0 if slices is None else len(slices),
            () if slices is None else tuple(i for i, one in enumerate(slices.tolist()) if not one),
            weight.looks,
            tuple(sorted(rates.get(id(tensor), ()))) if weight in still else (),
            weight.swap is not None,
            tensor is not None and _is_thawed(weight, tensor),
        )


def _is_still(weight: Weight) -> bool:
    """Whether none of its numbers that has a gradient has ever moved; of a large embedding no such number may have been compared."""
    return not weight.moved and weight.stuck is not None


def _rates(steps: Steps) -> dict[int, set[float]]:
    """The learning rates of the groups that hold a tensor, by its identity."""
    found: dict[int, set[float]] = {}
    for group in (group for one in steps.optimizers for group in one.param_groups if group.get("lr") is not None):
        for tensor in group["params"]:
            found.setdefault(id(tensor), set()).add(float(group["lr"]))
    return found


def _feeds_others(index: WatchIndex, steps: Steps) -> bool:
    """Whether what the optimizers hold got gradients, and is not the model's."""
    held = (tensor for optimizer in steps.optimizers for group in optimizer.param_groups for tensor in group["params"])
    return any(tensor.grad is not None for tensor in held if not index.knows(tensor))


def _late_unowned(index: WatchIndex, steps: Steps, model: Module) -> Iterator[str]:
    """Of the parameters that came into the model during the watch, those that no optimizer holds, and that have a gradient.

    It may be gone again: then one that stands where another had a gradient will have had one. A running mean of the weights has none.
    """
    felt = {weight.path for weight in index.weights if weight.felt}
    for path, tensor in index.late_weights(model).items():
        if (tensor.grad is not None or path in felt) and not steps.is_held(tensor):
            yield path


def _is_thawed(weight: Weight, tensor: Tensor) -> bool:
    """Whether it requires a gradient now, and did not when it was looked at last."""
    return tensor.requires_grad and not weight.trainable and not weight.empty


def _thawed_unowned(index: WatchIndex, steps: Steps) -> Iterator[str]:
    for weight in index.weights:
        tensor = weight.tensor()
        if tensor is None or tensor.grad is None or weight.is_old(tensor.grad) or steps.is_held(tensor):
            continue
        if _is_thawed(weight, tensor) or (weight.trainable and weight.met and not weight.felt):  # since the last look, or the last step
            yield weight.path


def _owner(index: WatchIndex, weight: Weight) -> Member | None:
    owner = weight.owner()
    return None if owner is None else index.members.get(id(owner))


@cache
def _rounding(dtype: torch.dtype) -> float:
    """The share of the norms beside it below which a gradient is rounding alone."""
    return min(ROUNDING * torch.finfo(dtype).eps, COARSE)


class GradientNorms:
    """How large the gradients are: the greatest norm that each parameter's had in any sample; read once, when it is asked for."""

    def __init__(self, index: WatchIndex) -> None:
        self._index = index

    @cached_property
    def _squares(self) -> list[float]:
        return self._index.history.greatest()

    @cached_property
    def greatest(self) -> dict[Weight, tuple[Tensor | None, float]]:
        """Each parameter, what stands there, and the norm: 0 where nothing does."""
        squares = self._squares
        found: dict[Weight, tuple[Tensor | None, float]] = {}
        for weight in self._index.weights:
            tensor, row = weight.tensor(), weight.rows[1]
            found[weight] = tensor, 0.0 if tensor is None or row < 0 else math.sqrt(squares[row] * tensor.numel())
        return found

    def size(self, weight: Weight) -> float:
        """That of one parameter."""
        return self.greatest[weight][1]

    @cached_property
    def most(self) -> float:
        """That of all."""
        return max(size for _, size in self.greatest.values())

    def cancelled(self, weight: Weight) -> Cancelled | None:
        """Whether a bias has a gradient of rounding alone.

        A shift in front of a normalization, or of all keys of an attention, is taken out again: its gradient is zero but for rounding.
        """
        tensor, mine = self.greatest[weight]
        if mine >= self._coarse or tensor is None or not weight.graded or tensor.dim() > 1 or not tensor.is_floating_point():
            return None
        share = _rounding(tensor.dtype)
        if not mine < share * self.most:  # of nearly all: nothing beside it can be large enough
            return None
        other = max((one for one in self._index.siblings(weight) if one.graded), key=self.size, default=None) or self._largest
        theirs = self.size(other)
        if not mine < share * theirs < math.inf or self._index.history.spoilt((weight.rows[1], other.rows[1])):
            return None
        # That of a weight is larger than that of its bias by the size of the inputs; what comes back to the module is not.
        back = self._arriving(weight)
        return Cancelled(mine, theirs, other.path) if back is None or mine < share * back else None

    @cached_property
    def _coarse(self) -> float:
        """What is larger is of no dtype's rounding."""
        return COARSE * self.most

    @cached_property
    def _largest(self) -> Weight:
        """The parameter with the largest one, beside which one alone in its module stands."""
        return max((one for one in self._index.weights if one.graded), key=self.size)

    def _arriving(self, weight: Weight) -> float | None:
        """The greatest norm of what came back to the output of a parameter's module; None where that was not seen."""
        member = _owner(self._index, weight)
        if member is None or member.gradient < 0:
            return None
        return math.sqrt(self._squares[member.gradient] * self._index.history.series[member.gradient].count)
