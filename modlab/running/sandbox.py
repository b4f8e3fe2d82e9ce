"""A sandbox, in which a model is run: everything is as before afterwards, also when an error or an interrupt ends it or comes meanwhile.

An interrupt (■ in a notebook, Ctrl-C) may arrive between any two steps of Python. What is put back here is put back to the end,
and the interrupt goes on from there. Autograd's mode is set by functions of C, at whose ends none arrives.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy

from modlab import compat
from modlab.compat import inference, set_grad, without_modes, without_torch_function
from modlab.inspection import stores
from modlab.running.guarded import afterwards
from modlab.running.randomness import states
from modlab.running.restoration import Restoration

T = TypeVar("T")
P = ParamSpec("P")


def under(grad: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call `work` in one of autograd's modes, whatever the mode outside is.

    Args:
        grad: "normal", "no_grad" or "inference_mode".
        work: what is called.
        *args: its arguments.
        **kwargs: the same, by name.
    """
    was = torch.is_grad_enabled()
    with inference(grad == "inference_mode"):
        try:
            set_grad(grad == "normal")
            return work(*args, **kwargs)
        finally:
            set_grad(was)


class Sandbox:
    """What a pass of a model may change: the modules below some roots, all random generators, and what is global.

    What lies outside of that (files, other models, lists of the user's that a hook appends to) cannot be put back.

    Args:
        kept: bytes of parameters that are copied, as of a `Restoration`.

    Attributes:
        restoration: of the modules.
        restart: puts the random generators back, for the next pass.
    """

    def __init__(self, kept: float | None = None) -> None:
        self.restoration = Restoration(kept)
        self.restart = states()
        self._filters, self._showwarning = warnings.filters, warnings.showwarning
        self._always, self._stdout = torch.is_warn_always_enabled(), sys.stdout
        self._modes, self._functions = compat.modes(), compat.torch_function_as_now()

    def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `work`, and put everything back."""
        was = torch.is_grad_enabled()
        try:
            try:
                return afterwards(self._put_back, work, *args, **kwargs)
            finally:
                set_grad(was)
        finally:
            self._functions.__exit__(None, None, None)

    def add(self, *roots: Module) -> None:
        """Take down modules; only in what is run here, since gradients are taken away meanwhile."""
        for root in roots:
            self.restoration.add(root)

    def _put_back(self) -> None:
        if warnings.filters is not self._filters:
            warnings.filters = self._filters
            with warnings.catch_warnings():  # tells those who remember what was shown
                pass
        warnings.showwarning = self._showwarning
        torch.set_warn_always(self._always)
        sys.stdout = self._stdout
        compat.restore_modes(self._modes)
        try:
            self.restoration.restore()
        finally:
            self.restart()


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
