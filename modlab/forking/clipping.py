"""Clipping by torch's own functions: a tape has its parts; a fork in which others have gradients makes the call as a whole."""

from __future__ import annotations

from types import FrameType
from typing import Any

import torch
from torch import Tensor

CLIP_FILE = "clip_grad.py"

_SETTINGS = {"clip_grad_norm_": ("max_norm", "norm_type", "error_if_nonfinite", "foreach"), "clip_grad_value_": ("clip_value", "foreach")}
"""Torch's functions, and what they take beside parameters."""


class ClipCall:
    """One call of torch's.

    Attributes:
        asked: the numbers of the parameters, in order, also of those that have no gradient.
        whole: whether nothing else was clipped, so that it can be made anew.
        norm: the number of the total norm, which it gives; 0 if it gives none.
    """

    __slots__ = ("_name", "_settings", "asked", "norm", "whole")

    def __init__(self, name: str, settings: dict[str, Any]) -> None:
        self._name, self._settings = name, settings
        self.asked: dict[int, None] = {}
        self.whole = not any(isinstance(one, Tensor) for one in settings.values())
        self.norm = 0

    def again(self, parameters: list[Tensor]) -> Any:
        """Clip the gradients of these."""
        return getattr(torch.nn.utils, self._name)(parameters, **self._settings)


def _is_clipping(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_code.co_filename.endswith(CLIP_FILE)


class ClipCalls:
    """Tells of which call a function of torch's is a part."""

    def __init__(self) -> None:
        self._frame: FrameType | None = None
        self._call: ClipCall | None = None

    def of(self, frame: FrameType | None) -> ClipCall | None:
        """The call that is under way in a frame and in those that called it; None if it is none, or one of a part."""
        outer = None
        while frame is not None and (_is_clipping(frame) or _is_clipping(frame.f_back)):  # a stand-in for a part of it may lie between
            if _is_clipping(frame) and frame.f_code.co_name in _SETTINGS:
                outer = frame
            frame = frame.f_back
        if outer is None:
            self._frame = self._call = None
        elif outer is not self._frame:
            name, held = outer.f_code.co_name, outer.f_locals
            self._frame, self._call = outer, ClipCall(name, {one: held[one] for one in _SETTINGS[name] if one in held})
        return self._call
