"""A sandbox to run a model in: everything is restored afterwards, even if an error or an interrupt ends the run.

An interrupt (■ in a notebook, Ctrl-C) may arrive between any two steps of Python. Restoring always runs to completion, and the
interrupt propagates from there. Autograd's mode is set by C functions, on whose return no interrupt arrives.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy

from modlab import compat
from modlab.compat import inference, set_grad, without_modes, without_torch_function
from modlab.inspection import stores
from modlab.running.guarded import afterwards
from modlab.running.randomness import referred, states
from modlab.running.restoration import Restoration

AROUND: list[Callable[[], AbstractContextManager[None]]] = []
"""Entered around each run in a sandbox, which is nobody's training, by those who take down what is called; an end may come twice."""

T = TypeVar("T")
P = ParamSpec("P")


def under(grad: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call `work` in one of autograd's modes, whatever the outer mode is.

    Args:
        grad: "normal", "no_grad" or "inference_mode".
        work: the function to call.
        *args: its positional arguments.
        **kwargs: its keyword arguments.
    """
    was = torch.is_grad_enabled()
    with inference(grad == "inference_mode"):
        try:
            set_grad(grad == "normal")
            return work(*args, **kwargs)
        finally:
            set_grad(was)


class Sandbox:
    """What a pass of a model may change: the modules below some roots, all random generators, and global state.

    Anything else (files, other models, lists of the user's that a hook appends to) cannot be restored.

    Args:
        kept: bytes of parameters to copy, as in `Restoration`.

    Attributes:
        restoration: of the modules.
        restart: restores the random generators for the next pass.
    """

    def __init__(self, kept: float | None = None) -> None:
        self.restoration = Restoration(kept)
        self.restart = states()
        self._filters, self._showwarning = warnings.filters, warnings.showwarning
        self._always, self._stdout = torch.is_warn_always_enabled(), sys.stdout
        self._modes, self._functions = compat.modes(), compat.torch_function_as_now()
        self._casts = compat.autocasts()
        self._around: list[AbstractContextManager[None]] = []

    def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `work`, then restore everything."""
        was = torch.is_grad_enabled()
        try:
            try:
                return afterwards(self._put_back, self._within, partial(work, *args, **kwargs))
            finally:
                set_grad(was)
        finally:
            self._functions.__exit__(None, None, None)

    def _within(self, work: Callable[[], T]) -> T:
        for one in AROUND:
            self._around.append(one())  # before it is entered: an interrupt may arrive in between
            self._around[-1].__enter__()
        return work()

    def add(self, *roots: Module) -> None:
        """Save modules; only inside `run`, since their gradients are removed meanwhile."""
        for root in roots:
            self.restoration.add(root)

    def _put_back(self) -> None:
        if warnings.filters is not self._filters:
            warnings.filters = self._filters
            with warnings.catch_warnings():  # notifies code that caches which warnings were shown
                pass
        warnings.showwarning = self._showwarning
        torch.set_warn_always(self._always)
        sys.stdout = self._stdout
        compat.restore_modes(self._modes)
        compat.restore_autocasts(self._casts)
        try:
            self.restoration.restore()
        finally:
            self.restart()
            for one in reversed(self._around):
                one.__exit__(None, None, None)
            compat.restore_modes(self._modes)  # one of those ends may have been interrupted


def on_loan(work: Callable[[], T], *roots: Module, optimizers: Iterable[Any] = (), others: Iterable[Any] = ()) -> T:
    """Call `work` with autograd on, then restore the modules below `roots`, the optimizers, the random generators and global state.

    So are generators that `others` refer to: a loss, or a loader of batches.

    Anything else (files, other models, lists of the user's that a hook appends to) cannot be restored.
    """
    sandbox = Sandbox(kept=math.inf)

    def lent() -> T:
        sandbox.add(*roots)
        for one in optimizers:
            sandbox.restoration.add_optimizer(one)
        sandbox.restoration.add_arguments(referred(others))
        cut: dict[int, Tensor] = {}
        for root in roots:
            for module in stores.modules(root):
                _uncompile(module)
                _cut_off(module, cut)
        return work()

    return sandbox.run(under, "normal", lent)


def _uncompile(module: Module) -> None:
    """Run a module compiled with ``module.compile()`` as it was written: each mode and each size would trigger a recompile."""
    held = object.__getattribute__(module, "__dict__")
    if held.get("_compiled_call_impl") is not None:
        held["_compiled_call_impl"] = None  # restored with the dict


def _cut_off(module: Module, cut: dict[int, Tensor]) -> None:
    """Detach buffers that belong to a graph of the user's: a backward pass here would free that graph."""
    buffers = stores.contents(module).get("_buffers")
    if buffers is None or type(buffers) not in (dict, OrderedDict):
        return
    with without_torch_function(), without_modes():
        for name, tensor in [*buffers.items()]:
            if tensor is not None and not is_lazy(tensor) and tensor.grad_fn is not None:
                buffers[name] = cut.setdefault(id(tensor), tensor.detach())  # restored with the dict
