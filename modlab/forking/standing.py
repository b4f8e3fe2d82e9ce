"""What stands where in a training: what the loop calls and reads by name is what stands there, whatever a change has moved."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from modlab.forking.kept_states import TrainedThings
from modlab.inspection import stores


class Standing:
    """Where modules and tensors stand.

    Attributes:
        modules: by each name at which a module is held: one that several hold is there several times.
        tensors: by the name of its module and its own.
    """

    def __init__(self, things: TrainedThings) -> None:
        named = things.modules()
        held = [(path, name, one) for path, module in named.items() for name, one in stores.named_children(module) if one is not None]
        self.modules: dict[str, Any] = named | {f"{path}.{name}" if path else name: one for path, name, one in held}
        self.tensors: dict[tuple[str, str], Tensor] = {
            (path, name): one for path, module in named.items() for name, one in stores.named_tensors(module)
        }

    def added(self, things: TrainedThings) -> set[str]:
        """At which names nothing stood."""
        return {*Standing(things).modules} - {*self.modules}

    def parted(self, things: TrainedThings) -> set[str]:
        """The names of modules that stood at several places, which do not all have the same module now."""
        names: dict[int, list[str]] = {}
        for path, one in self.modules.items():
            names.setdefault(id(one), []).append(path)
        now = Standing(things).modules
        return {path for paths in names.values() if len({id(now.get(path)) for path in paths}) > 1 for path in paths}
