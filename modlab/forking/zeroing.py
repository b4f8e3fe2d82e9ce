"""`zero_grad`: a tape has its parts; a fork in which others have gradients makes the call as a whole."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch.nn import Module
from torch.optim import Optimizer

_TORCH = os.path.dirname(torch.__file__) + os.sep


class ZeroCall:
    """One call of torch's.

    Attributes:
        of: whose gradients are thrown away: the name of a module, or the number of an optimizer.
        is_taped: whether it has an entry of its own.
    """

    __slots__ = ("_set_to_none", "is_taped", "of")

    def __init__(self, of: str | int, set_to_none: bool) -> None:
        self.of, self._set_to_none, self.is_taped = of, set_to_none, False

    def again(self, thing: Module | Optimizer) -> None:
        """Throw away the gradients of this one."""
        throw_away: Callable[..., None] = Module.zero_grad if isinstance(thing, Module) else Optimizer.zero_grad
        throw_away(thing, self._set_to_none)


class ZeroCalls:
    """Tells of which call a function of torch's is a part.

    Args:
        name_of: the name of a module, or the number of an optimizer; None for one that the tape does not know.
    """

    def __init__(self, name_of: Callable[[Any], str | int | None]) -> None:
        self._name_of = name_of
        self._frame: FrameType | None = None
        self._call: ZeroCall | None = None

    def of(self, frame: FrameType) -> ZeroCall | None:
        """The call that is under way in a frame; None if it is none."""
        code = frame.f_code
        if code.co_name != "zero_grad" or not code.co_filename.startswith(_TORCH):
            self._frame = self._call = None
        elif frame is not self._frame:
            held = frame.f_locals
            name = self._name_of(held.get("self"))
            self._frame, self._call = frame, None if name is None else ZeroCall(name, bool(held.get("set_to_none", True)))
        return self._call
