"""Facts that hold of a module by its class alone, found out once for each class in a trace: they are asked for at every call."""

from __future__ import annotations

from typing import NamedTuple

from modlab.compat import own_class
from modlab.inspection import marks
from modlab.running import module_kinds
from modlab.running.values import argument_names, positional_alone


class ClassKind(NamedTuple):
    """A class of modules.

    Attributes:
        name: the class's.
        category: as in a tree ("linear", "own").
        names: of the positional arguments of its ``forward``.
        alone: with how many positional arguments it takes no keyword ones; -1 if it may always take some.
        torchs: the functions inside are torch's own way of doing what its name says, if it has no children.
        fused: it may take a fast path that runs its parts as one.
        opaque: why nothing inside a call can be seen, in a word; or nothing.
        runs: it can be called.
    """

    name: str
    category: str
    names: tuple[str, ...]
    alone: int
    torchs: bool
    fused: bool
    opaque: str
    runs: bool


class ClassKinds(dict[type, ClassKind]):
    """Those of a trace, by class."""

    def __missing__(self, cls: type) -> ClassKind:
        own = own_class(cls)
        found = self[cls] = ClassKind(
            own.__name__,
            marks.category(cls),
            argument_names(cls),
            positional_alone(cls),
            module_kinds.is_torchs(own),
            issubclass(cls, module_kinds.FUSED),
            module_kinds.opaque_kind(cls),
            module_kinds.can_run(cls),
        )
        return found
