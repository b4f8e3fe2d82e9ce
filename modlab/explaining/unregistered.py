"""Unregistered parts of the modules on the way to an error: changes to the whole model do not reach them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

from modlab.explaining import code_fixes, suspects
from modlab.explaining.failure import Failure
from modlab.inspection import stores, unregistered
from modlab.records.explanation import Fix
from modlab.records.structure import Ghost


class UnregisteredPart(NamedTuple):
    """An attribute with modules or tensors that PyTorch does not see: its place, the class that has it, and what is known about it."""

    place: str
    owner: str
    ghost: Ghost

    @property
    def named(self) -> str:
        """``layers (list of 3 Linear)``."""
        return f"{self.place} ({self.ghost.what})"

    def fix(self, said: str) -> Fix:
        """The line that registers it, introduced by `said`."""
        where = f", at the end of {self.owner}'s constructor"
        return Fix(f"{said}{where}:", self.ghost.fix) if self.ghost.fix else Fix(f"{said}{where}: {self.ghost.advice}.")


def of_module(failure: Failure) -> UnregisteredPart | None:
    """Where the innermost module, or one that contains it, is held unregistered; or None."""
    for above, inner in pairwise(failure.calls):
        if inner.path is None and inner.module is not above.module:
            return _holding(failure, above.module, above.place, inner.module)
    return None


def of_tensor(failure: Failure, tensor: Any) -> UnregisteredPart | None:
    """Where the innermost module holds a tensor unregistered; or None."""
    call = failure.failing
    return None if call is None else _holding(failure, call.module, call.place, tensor)


def _holding(failure: Failure, holder: Any, place: str, thing: Any) -> UnregisteredPart | None:
    root = failure.root
    if root is None or code_fixes.is_torchs(holder):
        return None
    name = next(
        (
            name
            for name, value in stores.contents(holder).items()
            if name not in stores.STANDARD and any(hidden.thing is thing for hidden in unregistered.Members(value))
        ),
        None,
    )
    if name is None:
        return None
    finder = unregistered.Finder(module for _, module in suspects.walk(root.module))
    its = (ghost for ghost in finder.find(holder) if ghost.name == name and not ghost.harmless)
    found = next((ghost for ghost in its if ghost.fix or ghost.advice), None)
    return None if found is None else UnregisteredPart(f"{place}.{name}" if place else name, type(holder).__name__, found)
