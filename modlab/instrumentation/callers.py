"""Which line of the user's called, and whether a ``forward`` on the way was called past its module."""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from types import FrameType
from typing import Any

import torch
from torch.nn import Module
from torch.nn.modules import module as machinery
from torch.utils import hooks

from modlab.inspection.definitions import place_of
from modlab.inspection.stores import is_module

_HERE = os.path.dirname(__file__)
_FOREIGN = tuple(place + os.sep for place in (os.path.dirname(torch.__file__), _HERE, os.path.join(os.path.dirname(_HERE), "results")))
_MACHINERY = machinery.__file__
_FAR = 60  # frames


_HOOKS = hooks.__file__


def by_torch_itself() -> bool:
    """Whether a function is called by what torch puts around a module with backward hooks."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (frame.f_code.co_filename.startswith(_HERE) or frame.f_code.co_name == "apply"):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename == _HOOKS


def line() -> str:
    """The innermost line outside torch and modlab, "model.py:12"."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_FAR):
        if frame is None:
            return ""
        if not frame.f_code.co_filename.startswith(_FOREIGN):
            return _place(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return ""


@lru_cache(maxsize=4096)
def _place(file: str, number: int) -> str:
    return place_of(file, number)


def direct_call(current: int) -> Module | None:
    """The module whose ``forward`` runs here without having been called as a module; `current` is the id of the one that was.

    The locals of a frame are read only where a ``forward`` was not called by torch: reading them keeps what they hold
    until the frame ends.
    """
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_FAR):
        if frame is None or frame.f_code.co_filename == _MACHINERY:
            return None
        if frame.f_code.co_name == "forward" and frame.f_code.co_argcount and not _called_by_torch(frame):
            found: Any = frame.f_locals.get(frame.f_code.co_varnames[0])
            if is_module(found) and id(found) != current:
                return found  # type: ignore[no-any-return]
        frame = frame.f_back
    return None


def _called_by_torch(frame: FrameType) -> bool:
    back = frame.f_back
    return back is not None and back.f_code.co_filename == _MACHINERY
