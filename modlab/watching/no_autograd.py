"""What modlab computes beside a training: autograd is off meanwhile, and on again afterwards whatever interrupts it."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

from modlab.compat import dispatch_modes, set_grad, without_modes, without_torch_function

P = ParamSpec("P")
T = TypeVar("T")


def quietly(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call `work` without autograd, and without any mode or subclass of the user's being asked.

    Not by ``with torch.no_grad()``, whose ends are functions of Python: an interrupt that arrives inside of them leaves autograd off.
    Here nothing is called in between that could be interrupted.
    """
    was = torch.is_grad_enabled()
    try:
        set_grad(False)
        if dispatch_modes():
            with without_modes(), without_torch_function():
                return work(*args, **kwargs)
        with without_torch_function():
            return work(*args, **kwargs)
    finally:
        set_grad(was)
