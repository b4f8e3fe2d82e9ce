"""In which mode the model is when a step ends: counted in each one, for few of them are looked at."""

from __future__ import annotations

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from modlab.records.clues import ModeClues
from modlab.watching.watch_index import WatchIndex


class StepModes:
    """Counts the steps made in either mode: two reads of attributes each.

    Args:
        index: the model, and its modules.
    """

    def __init__(self, index: WatchIndex) -> None:
        self._index = index
        self._trained = self._evaluated = 0
        self._since = -1
        self._places: tuple[str, ...] = ()

    def step_ended(self, step: int) -> None:
        """The step of this number has been made."""
        root = self._index.root
        if root is None:
            return
        if root.training:
            self._trained += 1
            return
        self._evaluated += 1
        if self._since < 0:
            self._since = step
            self._places = tuple(one.path for one in self._index.members.values() if _minds(one.module()))

    def clues(self) -> ModeClues:
        """What was counted."""
        return ModeClues(self._trained, self._evaluated, self._since, self._places)


def _minds(module: nn.Module | None) -> bool:
    """Whether a module does something else in evaluation, and is in evaluation mode."""
    if module is None or module.training:
        return False
    if isinstance(module, nn.RNNBase):
        return module.dropout > 0
    return module.p > 0 if isinstance(module, _DropoutNd) else isinstance(module, _BatchNorm) and module.track_running_stats
