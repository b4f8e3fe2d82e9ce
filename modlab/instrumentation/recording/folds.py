"""With ``fold=True``: which calls repeat one that is recorded already, so that they are only counted."""

from __future__ import annotations

from torch.nn import Module

from modlab.inspection import structure
from modlab.instrumentation.recording.calls import Call


class Folds:
    """Of equal subtrees that are called inside one event, the first stands for all.

    Attributes:
        alike: by path of a module whose call was only counted, the event that stands for it.
    """

    def __init__(self, model: Module) -> None:
        self._tree = structure.extract(model)
        self._first: dict[tuple[int, int], Call] = {}
        self._skipped, self._depth = 0, 0
        self.alike: dict[str, int] = {}

    @property
    def skipping(self) -> bool:
        """Whether a call that is only counted is running."""
        return self._depth > 0

    def counts(self, module: int, path: str | None, parent: Call | None) -> bool:
        """Whether a call that begins is one of these, or inside one."""
        if self._depth:
            self._depth += module == self._skipped
            return True
        first = self._first.get(self._key(path, parent))
        if first is None or path is None:
            return False
        first.times += 1
        self.alike[path] = first.index
        self._skipped, self._depth = module, 1
        return True

    def remember(self, call: Call, parent: Call | None) -> None:
        """Note a call that is recorded, to stand for its equals."""
        self._first[self._key(call.path, parent)] = call

    def ends(self, module: int) -> bool:
        """Whether the call that ends was only counted, or is inside one."""
        if not self._depth:
            return False
        self._depth -= module == self._skipped
        return True

    def abandon(self) -> None:
        """A call that was only counted was interrupted, and will not end."""
        self._depth = 0

    def _key(self, path: str | None, parent: Call | None) -> tuple[int, int]:
        found = None if path is None else self._tree.find(path)
        return -1 if parent is None else parent.index, id(path) if found is None else id(found.subtree)
