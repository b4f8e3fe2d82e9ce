"""Calls of autograd's engine and of clipping, ``backward()`` and ``clip_grad_norm_``, and on what: torch has no hook for either.

Both end in a function of torch's own, under a name that is private to torch. While a watch is open a function of ours stands under that
name, tells, and calls torch's. The public functions stay the very objects that they were, however a user has imported them. Who has put
something else there meanwhile keeps it: what is left of ours below it passes on, and tells nobody.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol

import torch
import torch.nn.utils.clip_grad

from modlab.compat import lock_for_forks

INPUTS = 3
"""Place of what ``backward(inputs=…)`` is given, among what the engine gets behind the tensors."""


class EngineListener(Protocol):
    """Who is told, in the thread that calls and before torch does its work. What it raises comes out of the user's call."""

    def due(self) -> bool:
        """Whether it wants to be told now: asked each time, so it must be quick."""

    def backward_begins(self, tensors: Any, frame: FrameType) -> None:
        """Gradients are about to be accumulated, beginning with these tensors, by a call in this frame of torch's own."""

    def clips(self, parameters: Any, bound: Any, norm: Any) -> None:
        """Gradients of this total norm are about to be scaled to at most `bound`."""


_open: list[EngineListener] = []
_accumulates = _spreads = True
_lock = lock_for_forks()


class _Place:
    """A function of torch's own, in whose place one of ours stands for a while."""

    def __init__(self, room: str, name: str, tell: Callable[..., None]) -> None:
        self._room, self._name, self._tell = sys.modules.get(room), name, tell
        self._original: Any = None
        self._ours: Any = None

    def put(self) -> None:
        held = getattr(self._room, self._name, None)
        if held is None or held is self._ours:
            return
        tell, compiling = self._tell, torch.compiler.is_compiling

        @functools.wraps(held)
        def stand_in(*args: Any, **kwargs: Any) -> Any:
            if self._ours is stand_in and not compiling():
                tell(sys._getframe(1), *args, **kwargs)
            return held(*args, **kwargs)

        self._original, self._ours = held, stand_in
        setattr(self._room, self._name, stand_in)

    def take_away(self) -> None:
        if self._ours is not None and getattr(self._room, self._name, None) is self._ours:
            setattr(self._room, self._name, self._original)
        self._original = self._ours = None


def _backward(frame: FrameType, tensors: Any = (), *given: Any, accumulate_grad: bool = False, **__: Any) -> None:
    global _accumulates, _spreads
    _accumulates = accumulate_grad  # torch.autograd.grad does not
    _spreads = not (len(given) > INPUTS and given[INPUTS])
    if accumulate_grad:
        for one in (*_open,):
            if one.due():
                one.backward_begins(tensors, frame)


def _clip(_frame: FrameType, parameters: Any = (), max_norm: Any = None, total_norm: Any = None, *_: Any, **__: Any) -> None:
    for one in (*_open,):
        if one.due():
            one.clips(parameters, max_norm, total_norm)


_PLACES = (
    _Place("torch.autograd", "_engine_run_backward", _backward),
    _Place("torch.nn.utils.clip_grad", "_clip_grads_with_norm_", _clip),
)


def accumulates() -> bool:
    """Whether the pass that began last adds to what is in ``.grad``, as ``backward()`` does and `torch.autograd.grad` does not."""
    return _accumulates


def spreads() -> bool:
    """Whether the pass that began last gives gradients to all leaves, and not to chosen inputs alone."""
    return _spreads


def listen(listener: EngineListener) -> None:
    """Tell it from now on."""
    with _lock:
        if listener not in _open:
            _open.append(listener)
        for place in _PLACES:
            place.put()


def leave(listener: EngineListener) -> None:
    """Tell it no more; with the last one, what was there is there again. May be called again."""
    with _lock:
        if listener in _open:
            _open.remove(listener)
        if not _open:
            for place in _PLACES:
                place.take_away()
