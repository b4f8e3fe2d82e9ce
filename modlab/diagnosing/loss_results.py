"""What a loss gives, or why it cannot: one real number with a way back is asked for, and the call that the user may have meant."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, cast

from torch import Tensor, nn

from modlab.diagnosing import batches
from modlab.diagnosing.loss_arguments import A_PASS, squeezed
from modlab.records.finding import Fact, Finding, Remedy

IGNORED = -100
"""The target that PyTorch's cross entropy leaves out, if nothing else is said."""


def not_one_number(value: Any) -> Finding | None:
    """What is wrong with a loss, if it is not a tensor of one real number."""
    if issubclass(type(value), Tensor):
        if value.numel() == 1 and not value.is_complex():
            return None
        facts: dict[str, Fact] = {"complex": 1} if value.numel() == 1 else {"shape": tuple(value.shape)}
        return _no_number(facts, Remedy("a real number" if value.numel() == 1 else "one number"))
    facts = {"class": type(value).__name__}
    if isinstance(value, (bool, int, float, complex)):
        return _no_number({**facts, "plain": 1}, Remedy("keep the tensor"))
    place = _first_place(value)
    return _no_number(facts, Remedy(code=f"loss=lambda output, target: loss(output, target){place}") if place else Remedy("one number"))


def _no_number(facts: dict[str, Fact], fix: Remedy) -> Finding:
    return Finding("loss is no number", "", facts, "broken", None, (A_PASS,), (fix,))


def _first_place(thing: Any) -> str:
    """How the first tensor in it is reached, in code; empty if it is none that holds tensors."""
    if issubclass(type(thing), Mapping):
        return next((f"[{key!r}]" for key, one in thing.items() if issubclass(type(one), Tensor)), "")
    if issubclass(type(thing), (tuple, list)):
        return next((f"[{place}]" for place, one in enumerate(thing) if issubclass(type(one), Tensor)), "")
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        names = (field.name for field in dataclasses.fields(thing))
        return next((f".{name}" for name in names if issubclass(type(getattr(thing, name, None)), Tensor)), "")
    return ""


def other_call(error: Exception, output: Any, target: Any) -> Remedy | None:
    """The call of the loss that may have been meant, where it was given what it does not take; None if that is not known."""
    if isinstance(error, (RuntimeError, ValueError)) and "size" in str(error).lower():
        code = same_shape(output, target)
        return Remedy("same shape", code) if code else None
    if not isinstance(error, (TypeError, AttributeError)):
        return None
    if "required positional argument" in str(error):
        several = issubclass(type(target), (tuple, list))
        return Remedy(code="loss=lambda output, target: loss(output, *target)") if several else Remedy("all arguments")
    if target is None and "NoneType" in str(error) and issubclass(type(output), Tensor):
        return Remedy(code="batch=(inputs, target)  # the target was None")
    place = _first_place(output)
    return Remedy(code=f"loss=lambda output, target: loss(output{place}, target)") if place else None


def same_shape(output: Any, target: Any) -> str:
    """The call with equal shapes, where one of them has a last dimension of 1 that the other has not."""
    if not (issubclass(type(output), Tensor) and issubclass(type(target), Tensor)):
        return ""
    return squeezed(tuple(output.shape), tuple(target.shape))


def ignored(loss: Any, target: Any) -> int | None:
    """What all targets are, if a cross entropy leaves all of them out: a mean over none is NaN."""
    if not batches.is_cross_entropy(loss) or not issubclass(type(target), Tensor) or target.is_floating_point() or not target.numel():
        return None
    number = int(cast(Any, loss).ignore_index) if isinstance(loss, nn.Module) else IGNORED
    return number if bool((target == number).all()) else None
