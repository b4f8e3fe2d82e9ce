"""What is known of the model in training, taken down as plain data: what a verdict rests on beside the numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Module

from modlab.inspection import stores
from modlab.records.finding import FindingRecord
from modlab.records.watched import Cancelled, Watched, WatchedModule, WatchedParameter
from modlab.watching.cast import Cast, Member, Weight
from modlab.watching.steps import Steps

ROUNDING, COARSE = 256, 1e-2
"""A gradient is rounding alone when its norm is below so many times its dtype's precision of the norms beside it, and below that share."""

_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)


def taken_down(
    cast: Cast,
    steps: Steps,
    elsewhere: set[str],
    uncounted: Mapping[str, str],
    unregistered: Iterable[FindingRecord],
    ended: Module | None,
    **seen: Any,
) -> Watched:
    """All of it.

    Args:
        cast: the modules and parameters.
        steps: the optimizers that move these.
        elsewhere: parameters that something else moves.
        uncounted: modules whose units are not counted, and why.
        unregistered: weights that PyTorch does not see.
        ended: the model, once the watch has ended, if it still exists.
        seen: the other fields of `Watched`.
    """
    late = () if ended is None else cast.late(ended)
    return Watched(
        tuple(_module(cast, member) for member in cast.members.values()),
        tuple(_parameters(cast, steps, elsewhere)),
        cast.left,
        cast.selection.patterns,
        cast.opaque,
        dict(uncounted),
        passes=steps.passes,
        rate=steps.learning_rate(),
        optimizer=steps.label,
        beside=steps.beside,
        feeds_others=not any(weight.trainable and weight.felt for weight in cast.weights) and _feeds_others(cast, steps),
        late=late,
        late_unowned=tuple(_late_unowned(cast, steps, ended)) if ended is not None and late else (),
        unregistered=tuple(unregistered),
        **seen,
    )


def _module(cast: Cast, member: Member) -> WatchedModule:
    module = member.module()
    container = member.category == "container" or isinstance(module, _CONTAINERS)
    holds = () if member.called or module is None else tuple(_held(cast, member, module))
    return WatchedModule(member.path, member.category, member.called, member.order, member.taken, container, holds)


def _held(cast: Cast, member: Member, module: Module) -> Iterator[str]:
    for name, tensor in (stores.contents(module).get("_parameters") or {}).items():
        if isinstance(tensor, Tensor):
            weight = cast.weight(tensor)
            yield weight.path if weight is not None else f"{member.path}.{name}".lstrip(".")


def _parameters(cast: Cast, steps: Steps, elsewhere: set[str]) -> Iterator[WatchedParameter]:
    rates = _rates(steps) if any(map(_is_still, cast.weights)) else {}
    for weight in cast.weights:
        tensor, owner, felt = weight.tensor(), _owner(cast, weight), weight.slices
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
            size_of(cast, weight),
            -1 if tensor is None else tensor.dim(),
            bool(weight.part),
            cancelled(cast, weight),
            0 if felt is None else len(felt),
            () if felt is None else tuple(i for i, one in enumerate(felt.tolist()) if not one),
            weight.looks,
            tuple(sorted(rates.get(id(tensor), ()))) if _is_still(weight) else (),
            weight.swap is not None,
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


def _feeds_others(cast: Cast, steps: Steps) -> bool:
    """Whether what the optimizers hold got gradients, and is not the model's."""
    held = (tensor for optimizer in steps.optimizers for group in optimizer.param_groups for tensor in group["params"])
    return any(tensor.grad is not None for tensor in held if not cast.knows(tensor))


def _late_unowned(cast: Cast, steps: Steps, model: Module) -> Iterator[str]:
    """Of the parameters that came into the model during the watch, those that no optimizer holds, and that have a gradient.

    It may be gone again: then one that stands where another had a gradient will have had one. A running mean of the weights has none.
    """
    felt = {weight.path for weight in cast.weights if weight.felt}
    for path, tensor in cast.late_weights(model).items():
        if (tensor.grad is not None or path in felt) and not steps.is_held(tensor):
            yield path


# ---- gradients of rounding


def cancelled(cast: Cast, weight: Weight) -> Cancelled | None:
    """Whether a bias has a gradient of rounding alone.

    A shift in front of a normalization, or of all keys of an attention, is taken out again: its gradient is zero but for rounding.
    """
    tensor = weight.tensor()
    if tensor is None or tensor.dim() > 1 or not weight.graded or not tensor.is_floating_point():
        return None
    mine = size_of(cast, weight)
    beside = [one for one in cast.siblings(weight) if one.graded] or [one for one in cast.weights if one.graded]
    other = max((one for one in beside if one is not weight), key=lambda one: size_of(cast, one), default=weight)
    theirs, back = size_of(cast, other), _arriving(cast, weight)
    share = min(ROUNDING * torch.finfo(tensor.dtype).eps, COARSE)
    # That of a weight is larger than that of its bias by the size of the inputs; what comes back to the module is not.
    spoilt = cast.history.spoilt((weight.rows[1], other.rows[1]))
    small = not spoilt and math.isfinite(theirs) and mine < share * theirs and (back is None or mine < share * back)
    return Cancelled(mine, theirs, other.path) if small else None


def _owner(cast: Cast, weight: Weight) -> Member | None:
    owner = weight.owner()
    return None if owner is None else cast.members.get(id(owner))


def _arriving(cast: Cast, weight: Weight) -> float | None:
    """The greatest norm of what came back to the output of a parameter's module; None where that was not seen."""
    member = _owner(cast, weight)
    if member is None or member.gradient < 0:
        return None
    history = cast.history
    return math.sqrt(history.greatest(member.gradient) * history.series[member.gradient].count)


def size_of(cast: Cast, weight: Weight) -> float:
    """The greatest norm that its gradient had in any sample."""
    tensor = weight.tensor()
    return 0.0 if tensor is None else math.sqrt(cast.history.greatest(weight.rows[1]) * tensor.numel())
