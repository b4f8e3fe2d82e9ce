"""Positions in a Sequential: which one failed, if it has the same module in several."""

from __future__ import annotations

from itertools import pairwise

from torch import nn

from modlab.explaining import calls
from modlab.explaining.calls import ModuleFrame
from modlab.explaining.earlier import keeping
from modlab.explaining.failure import Failure, shape_of
from modlab.inspection import stores


def settle(failure: Failure) -> None:
    """For a module that a Sequential has in several places, find the one that failed, as far as shapes prove it."""
    for above, call in pairwise(failure.calls):
        if len(call.places) > 1 and type(above.module) is nn.Sequential:
            _settle(above, call)
            calls.renamed(failure.calls, call)


def _settle(above: ModuleFrame, call: ModuleFrame) -> None:
    given = call.given[0] if call.given else None
    failed, shape = shape_of(given), shape_of(above.args[0]) if above.args else None
    possible: list[str] = []
    thing = above.args[0] if above.args else None  # as long as it is the Sequential's own input
    for name, child in stores.named_children(above.module):
        if name in call.places:
            if thing is not None and given is not thing:
                pass  # it got something else there
            elif failed is not None and shape == failed:
                call.places = (*possible, name)
                return
            elif shape is None:
                possible.append(name)
        shape = keeping(child, shape) if child is not None and shape is not None else None
        thing = None
    call.places = tuple(possible) or call.places
