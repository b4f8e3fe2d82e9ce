"""Out of memory: which module was running, what was asked for, and what the names on the way hold."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from modlab import format
from modlab.compat import without_torch_function
from modlab.explaining.failure import Cause, Failure, Rule
from modlab.records.explanation import Fix
from modlab.running import values

_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_WIDE = 1_000  # members of a list that is looked through
_MANY = 16  # tensors in one list: somebody collects them


def _out(failure: Failure, match: re.Match[str]) -> Cause:
    asked = _asked(failure.message)
    held = _by_module(failure)
    collected = _collected(failure)
    facts = [("asked for", format.size(asked))] if asked else []
    facts += [(name, words) for name, words in held[:8]]
    total = re.search(r"total capacity of ([\d.]+ \w+)", failure.message)
    if total:
        facts.append(("the device has", total[1]))
    batch = next(
        (
            shape[0]
            for call in failure.calls[:1]
            for thing in call.args or ()
            if issubclass(type(thing), Tensor) and (shape := tuple(thing.shape))
        ),
        None,
    )
    fixes = []
    if collected:
        name, number = collected
        facts.insert(0, (name, f"{number:,} tensors, each with its graph"))
        fixes.append(
            Fix(f"{name} keeps {number:,} tensors with everything they came from; keep only their numbers:", f"{name}.append(loss.item())")
        )
    if asked and asked > (1 << 42):
        fixes.append(Fix(f"{format.size(asked)} is more than any machine has: one of the sizes is not what you meant."))
    elif failure.calls and not any(frame.function == "backward" for frame in failure.frames) and not torch.is_grad_enabled():
        fixes.append(Fix("Smaller batches need less:", "DataLoader(..., batch_size=...)"))
    else:
        fixes.append(
            Fix(
                f"Half the batch needs about half the activations{f'; it is {batch} now' if batch else ''}:",
                "DataLoader(..., batch_size=...)",
            )
        )
        fixes.append(Fix("When not training, keep no activations:", "with torch.no_grad():"))
        fixes.append(Fix("Or recompute them in backward:", "x = torch.utils.checkpoint.checkpoint(self.block, x, use_reentrant=False)"))
    amount = f" for {format.size(asked)}" if asked else ""
    where = f" while {failure.subject} ran" if failure.calls else ""
    more = (
        f"{collected[0]} holds {collected[1]:,} graphs."
        if collected
        else f"The largest on the way: {held[0][0]}, {held[0][1]}."
        if held
        else ""
    )
    return Cause(f"There was no memory left{amount}{where}.", more, f"out of memory{amount}", tuple(facts), tuple(fixes))


def _asked(message: str) -> int:
    bytes_ = re.search(r"tried to allocate (\d+) bytes", message)
    if bytes_:
        return int(bytes_[1])
    found = re.search(r"[Tt]ried to allocate ([\d.]+) (bytes|[KMGT]iB)", message)
    return int(float(found[1]) * _UNITS[found[2]]) if found else 0


def _by_module(failure: Failure) -> list[tuple[str, str]]:
    """What the names of each module's code hold, the largest first; a tensor counts once, where it is met first."""
    seen: set[int] = set()
    sizes: list[tuple[int, str, str]] = []
    for call in failure.calls:
        things = [*(call.args or ()), *(thing for frame in call.frames for thing in frame.names.values() if not frame.is_torch)]
        own = list(_tensors(things, seen))
        if own:
            largest = max(own, key=_bytes)
            sizes.append(
                (
                    sum(map(_bytes, own)),
                    call.label,
                    f"{format.plural(len(own), 'tensor')}{'' if len(own) == 1 else ', the largest'} of shape {tuple(largest.shape)}",
                )
            )
    user = failure.user
    if user is not None and not any(user in call.frames for call in failure.calls):
        own = list(_tensors(list(user.names.values()), seen))
        if own:
            sizes.append((sum(map(_bytes, own)), "the calling code", format.plural(len(own), "tensor")))
    return [(name, f"{format.size(size)} in {words}") for size, name, words in sorted(sizes, key=lambda one: -one[0])]


def _tensors(things: Iterable[Any], seen: set[int]) -> Iterable[Tensor]:
    for thing in things:
        if not issubclass(type(thing), Tensor) and not (type(thing) in (list, tuple, dict) and len(thing) <= _WIDE):
            continue
        for _, leaf, _ in values.leaves(thing):
            if issubclass(type(leaf), Tensor) and id(leaf) not in seen:
                seen.add(id(leaf))
                yield leaf


def _bytes(tensor: Tensor) -> int:
    with without_torch_function():
        try:
            return tensor.numel() * tensor.element_size()
        except (RuntimeError, ValueError, TypeError):  # lazy and ragged ones
            return 0


def _collected(failure: Failure) -> tuple[str, int] | None:
    """A list of the user's that collects tensors with their graphs."""
    user = failure.user
    for name, thing in list(user.names.items()) if user is not None else ():
        if type(thing) is list and len(thing) >= _MANY and issubclass(type(thing[-1]), Tensor) and thing[-1].grad_fn is not None:
            return name, len(thing)
    return None


RULES = (
    Rule(
        "memory",
        (RuntimeError, MemoryError),
        r"out of memory\.? Tried to allocate|can't allocate memory|CUDA out of memory|MPS backend out of memory|CUBLAS_STATUS_ALLOC_FAILED",
        _out,
    ),
)
