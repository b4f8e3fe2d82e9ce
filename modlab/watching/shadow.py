"""A shadow pass runs a compiled model once more for its activations: eagerly, after the step, on a part of the batch, without a trace."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from modlab.compat import forced_eager, without_torch_function
from modlab.running.listener import Listener
from modlab.running.sandbox import Sandbox, under
from modlab.running.values import leaves
from modlab.statistics.memory import is_gone
from modlab.watching.last_step import Autocast, LastPass, unseen

ROWS = 8
"""Inputs of the batch that are run."""

NOTE = "from a shadow forward of {} of the inputs, with the weights after the step"


class Shadow:
    """One such run.

    Args:
        see: called with each module, what it gave, and what to know about that.
    """

    def __init__(self, see: Callable[[Module, Any, str], None]) -> None:
        self._see = see
        self._note = ""

    def run(self, model: Module, one: LastPass) -> None:
        """Run the model on a part of what it was given, and put back all that this changes."""
        size = _batch(one)
        args, kwargs = _cut(one.args, size), _cut(one.kwargs, size)
        self._note = NOTE.format(f"{min(size, ROWS)} of {size}" if size else "all")
        sandbox = Sandbox(kept=0)
        sandbox.run(under, "no_grad", self._again, sandbox, model, args, kwargs, one.modes)

    def _again(self, sandbox: Sandbox, model: Module, args: Any, kwargs: Any, modes: list[Autocast]) -> None:
        sandbox.add(model)
        with ExitStack() as stack:
            stack.enter_context(forced_eager())
            stack.enter_context(unseen())
            for mode in modes:
                if mode.enabled:
                    stack.enter_context(torch.autocast(mode.device, mode.dtype, enabled=True, cache_enabled=False))
            Listener(leave=self._leave).during(model, *args, **kwargs)

    def _leave(self, module: Module, args: Any, kwargs: Any, output: Any) -> None:
        with without_torch_function():
            self._see(module, output, self._note)


def _batch(one: LastPass) -> int:
    """The size of the batch: the first dimension that all tensors with one share; 0 if they do not."""
    sizes = {leaf.shape[0] for thing in (one.args, one.kwargs) for _, leaf, _ in leaves(thing) if isinstance(leaf, Tensor) and leaf.dim()}
    return sizes.pop() if len(sizes) == 1 else 0


def _cut(thing: Any, size: int) -> Any:
    """The same nest with the first rows alone; what is of another kind is as it was."""
    if isinstance(thing, Tensor):
        if is_gone(thing):
            return thing
        return thing.detach()[:ROWS] if size > ROWS and thing.dim() and thing.shape[0] == size else thing.detach()
    if type(thing) in (tuple, list):
        return type(thing)(_cut(one, size) for one in thing)
    if type(thing) is dict:
        return {key: _cut(one, size) for key, one in thing.items()}
    return thing
