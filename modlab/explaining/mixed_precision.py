"""Mixed precision: dtypes that clash because an FSDP2 unit computes in a different one.

Its ``mp_policy`` casts the weights for the computation; in memory they are unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from modlab.compat import own_class
from modlab.explaining import suspects
from modlab.explaining.calls import ModuleFrame
from modlab.explaining.failure import Failure
from modlab.inspection.distributed_units import mixed_precision
from modlab.records.explanation import Fix


def fix(failure: Failure, given: str, own: str) -> Fix | None:
    """The fix if a policy determined the dtype of the weights or of the input; None if none did."""
    inside = next((call for call in reversed(failure.calls) if mixed_precision(call.module) is not None), None)
    if inside is None or (policy := mixed_precision(inside.module)).param_dtype != _dtype(own):
        return _of_giver(failure, given, own)
    if not policy.cast_forward_inputs and _took(inside, given):
        said = f"Let {inside.label} cast its inputs with the mp_policy of its fully_shard:"
        return Fix(said, _written(policy, cast_forward_inputs=True))
    return Fix(
        f"Or let {failure.subject} cast its inputs: make it a separate unit, by fully_shard with the same mp_policy, before the whole."
    )


def _of_giver(failure: Failure, given: str, own: str) -> Fix | None:
    found = [(name, policy) for name, policy in _givers(failure) if (policy.output_dtype or policy.param_dtype) == _dtype(given)]
    if not found or _took(failure.calls[0], given):
        return None
    who = found[0][0] if len(found) == 1 else f"the unit before {failure.subject}"
    return Fix(f"Let {who} return {own}, with the mp_policy of its fully_shard:", _written(found[0][1], output_dtype=_dtype(own)))


def _took(call: ModuleFrame, dtype: str) -> bool:
    return any(thing.dtype == _dtype(dtype) for thing in (*(call.args or ()), *call.kwargs.values()) if issubclass(type(thing), Tensor))


def _givers(failure: Failure) -> Iterator[tuple[str, Any]]:
    """The units that may have run before: paths and policies."""
    on_the_way = {id(call.module) for call in failure.calls}
    for path, module in suspects.walk(failure.root.module) if failure.root is not None else ():
        if id(module) not in on_the_way and (policy := mixed_precision(module)) is not None:
            name = failure.calls[0].shown(path)
            yield f"{name} ({own_class(type(module)).__name__})" if name.isdigit() else name, policy


def _dtype(name: str) -> torch.dtype:
    return getattr(torch, name)  # type: ignore[no-any-return]


def _written(policy: Any, **changed: Any) -> str:
    """A policy as a user would write it: with the changes and any non-default values."""
    held = {one.name: getattr(policy, one.name) for one in fields(policy) if getattr(policy, one.name) != one.default}
    return f"{type(policy).__name__}({', '.join(f'{name}={value}' for name, value in {**held, **changed}.items())})"
