"""Loose weights: where those are that take part in a loss, and that neither the model nor an optimizer knew when the training began."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor
from torch.nn import Module

DEEP = 3
"""Lists, dicts and objects inside each other that are looked into."""


def places(model: Module, weights: list[Tensor]) -> Iterator[tuple[str, bool]]:
    """The path of each weight that is found in the model, and whether it is a registered parameter by now."""
    wanted = {id(one) for one in weights}
    for path, parameter in model.named_parameters():
        if id(parameter) in wanted:
            wanted.discard(id(parameter))
            yield path, True
    for path, module in model.named_modules():
        for name, thing in vars(module).items():
            if wanted and not name.startswith("_"):
                for _ in _among(thing, wanted, DEEP):
                    yield f"{path}.{name}" if path else name, False


def _among(thing: Any, wanted: set[int], deep: int) -> Iterator[Tensor]:
    """The weights inside of an attribute."""
    if id(thing) in wanted:
        wanted.discard(id(thing))
        yield thing
    elif deep and isinstance(thing, (list, tuple)):
        for one in thing:
            yield from _among(one, wanted, deep - 1)
    elif deep and isinstance(thing, dict):
        for one in thing.values():
            yield from _among(one, wanted, deep - 1)
    elif deep and isinstance(thing, Module):
        for one in thing.parameters():
            yield from _among(one, wanted, deep - 1)
