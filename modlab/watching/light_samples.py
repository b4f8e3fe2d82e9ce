"""Light samples between the whole ones: which units fire, and nothing else, so that many inputs are seen for little."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from modlab.running import clock
from modlab.running.guarded import Look, timed
from modlab.watching.last_step import run_aside
from modlab.watching.module_hooks import ModuleHooks
from modlab.watching.readback import ReadBack
from modlab.watching.steps import Steps
from modlab.watching.units import Units

BURST, LONGEST = 128, 0.02
"""Steps in a row in which units are counted, and the seconds that they take at most: to attach costs as much as to count in one."""


class LightSamples:
    """Counts units where a module gives or takes them, in some steps in a row.

    Args:
        ends: what an error of ours ends.
        modules: the hooks on modules, which are on while it counts.
        steps: the steps so far.

    Attributes:
        on: whether it counts now; `seconds`: what that took since it began.
        back: what an accelerator counted, on its way.
    """

    def __init__(self, ends: Look, modules: ModuleHooks, steps: Steps) -> None:
        self.ends, self._modules, self._steps = ends, modules, steps
        self._inputs: dict[int, Units] = {}
        self._outputs: dict[int, Units] = {}
        self._shared: set[int] = set()  # readers of several modules' units: one nn.ReLU after two layers
        self.on, self.seconds = False, 0.0
        self.back = ReadBack()

    def reads(self, reader: Module, units: Units, *, output: bool) -> None:
        """Count units where this module takes or gives them; not where it does so for several others."""
        found = self._outputs if output else self._inputs
        if id(reader) in self._shared or id(reader) in found:
            self._shared.add(id(reader))
            found.pop(id(reader), None)
        else:
            found[id(reader)] = units

    def steps(self, pace: float) -> int:
        """How many in a row, by the seconds that one takes."""
        return max(1, min(BURST, int(LONGEST / pace))) if pace else BURST

    def begin(self) -> bool:
        """Count from now on; False if there is nothing to count."""
        if not (self._inputs or self._outputs):
            return False
        start = clock.now()
        self.on = True
        self._modules.on(before=bool(self._inputs), after=bool(self._outputs))
        self.seconds = clock.now() - start
        return True

    def end(self) -> None:
        """Stop."""
        self.on = False
        self._modules.off()
        self.back.send()

    @timed
    def enter(self, module: Module, args: tuple[Any, ...]) -> None:
        """A module is called."""
        units = self._inputs.get(id(module))
        if units is not None and args and torch.is_grad_enabled() and module.training:
            self._see(units, args[0])

    @timed
    def leave(self, module: Module, output: Any) -> None:
        """Its forward has returned."""
        units = self._outputs.get(id(module))
        if units is not None and torch.is_grad_enabled() and module.training:
            self._see(units, output)

    def _see(self, units: Units, tensor: Any) -> None:
        if isinstance(tensor, Tensor) and not run_aside():
            units.glance(tensor, self._steps.made, self.back)
