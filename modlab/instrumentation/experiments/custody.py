"""A model on loan: whatever an experiment does with it, everything is put back, also when it raises."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy

from modlab.compat import without_modes, without_torch_function
from modlab.inspection import stores
from modlab.instrumentation.sandbox import Sandbox, under

T = TypeVar("T")


def on_loan(work: Callable[[], T], *roots: Module) -> T:
    """Call `work` with autograd on, and put the modules below `roots`, the random generators and all that is global back.

    What lies outside of them (files, other models, lists of the user's that a hook appends to) cannot be put back.
    """
    sandbox = Sandbox(kept=math.inf)

    def lent() -> T:
        sandbox.add(*roots)
        cut: dict[int, Tensor] = {}
        for root in roots:
            for module in stores.modules(root):
                _uncompile(module)
                _cut_off(module, cut)
        return work()

    return sandbox.run(under, "normal", lent)


def _uncompile(module: Module) -> None:
    """A module of ``module.compile()`` runs as it was written: each mode and each size would be compiled anew."""
    held = object.__getattribute__(module, "__dict__")
    if held.get("_compiled_call_impl") is not None:
        held["_compiled_call_impl"] = None  # put back with the dict


def _cut_off(module: Module, cut: dict[int, Tensor]) -> None:
    """Buffers that hang on a graph of the user's are taken off it: a backward pass here would use that graph up."""
    buffers = stores.contents(module).get("_buffers")
    if buffers is None or type(buffers) not in (dict, OrderedDict):
        return
    with without_torch_function(), without_modes():
        for name, tensor in [*buffers.items()]:
            if tensor is not None and not is_lazy(tensor) and tensor.grad_fn is not None:
                buffers[name] = cut.setdefault(id(tensor), tensor.detach())  # put back with the dict
