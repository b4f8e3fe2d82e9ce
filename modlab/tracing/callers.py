"""Callers: the line of the user's, and what lies between it and here. One walk up the frames tells all."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import lru_cache, partial
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, NamedTuple

import torch
from torch.autograd import function as autograd_function
from torch.nn import Module
from torch.nn.modules import activation, transformer
from torch.nn.modules import module as machinery
from torch.utils import hooks

from modlab import version
from modlab.inspection import stores
from modlab.inspection.callables import AT_WORK
from modlab.inspection.definitions import line_of
from modlab.inspection.stores import is_module
from modlab.tracing.wrapper_systems import system_of

_ROOT = os.path.dirname(version.__file__)
_HERE = tuple(os.path.join(_ROOT, name.rpartition(".")[2], "") for name in AT_WORK)
_GENERATED = "<eval_with_key>"  # by torch.fx: its lines are nobody's, and numbered anew in each process
_FOREIGN = (os.path.join(os.path.dirname(torch.__file__), ""), *_HERE, os.path.join(_ROOT, "results", ""), _GENERATED)
_SPREAD = tuple(os.path.join(os.path.dirname(torch.__file__), place) for place in ("distributed", os.path.join("nn", "parallel")))
_MACHINERY, _HOOKS, _AUTOGRAD = machinery.__file__, hooks.__file__, autograd_function.__file__
_FUSED = (transformer.TransformerEncoder, transformer.TransformerEncoderLayer, activation.MultiheadAttention)
_FUSED_CODES = frozenset(cls.forward.__code__ for cls in _FUSED)
_FAR = 60  # frames
_OURS, _CALLING, _HOOKING, _DIFFERENTIATING, _OTHERS, _USERS, _SPREADING = range(7)
UNKNOWN = -1


class Caller(NamedTuple):
    """What lies between a call and the module in whose ``forward`` it happens.

    Attributes:
        where: the innermost line outside torch and modlab, "model.py:12".
        direct: a module whose ``forward`` runs without having been called as a module; `called`: the line that did so.
        fused: whether such a ``forward`` may take a fused path, which is checked for where it is called from.
        in_function: whether it is inside a ``torch.autograd.Function``, which turns autograd off for a while.
        by_torch: whether it belongs to what torch puts around a module with backward hooks.
        within: the frame in which that module runs, by identity; 0 outside of any, `UNKNOWN` if it is too far away.
        own: the frame that runs the module of whose call a hook is asking, by identity; 0 elsewhere.
        keywords: the keyword arguments of that call, if they were asked for.
        system: FSDP or DDP, if it is their own doing around a module ("tensor parallel" likewise).
    """

    where: str = ""
    direct: Module | None = None
    fused: bool = False
    in_function: bool = False
    by_torch: bool = False
    within: int = 0
    own: int = 0
    keywords: dict[str, Any] | None = None
    called: str = ""
    system: str = ""


_caller: Callable[[tuple[Any, ...]], Caller] = partial(tuple.__new__, Caller)  # quicker than by name: one is made for each event


class Direct(NamedTuple):
    """An event that shows that some ``forward`` was called past its module, and the line that called it."""

    event: int
    where: str


class _Owners(dict[str, int]):
    """Whose code is in a file, by its name."""

    def __missing__(self, file: str) -> int:
        own = _SPREADING if file.startswith(_SPREAD) else _OTHERS
        self[file] = found = _OURS if file.startswith(_HERE) else own if file.startswith(_FOREIGN) else _USERS
        return found


_whose = _Owners({_MACHINERY: _CALLING, _HOOKS: _HOOKING, _AUTOGRAD: _DIFFERENTIATING})


def look(current: int, keywords: bool = False) -> Caller:
    """Look up the frames; `current` is the identity of the module that is running.

    The locals of a frame are read only where a ``forward`` was not called by torch: reading them keeps what they hold
    until the frame ends.
    """
    where, called, direct, fused, in_function, by_torch, first = "", "", None, False, False, False, True
    own, given, system = 0, None, ""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_FAR):
        if frame is None:
            break
        code = frame.f_code
        whose = _whose[code.co_filename]
        back = frame.f_back
        if first and whose <= _CALLING:  # a hook of ours, and the call that it was called in
            if not own and whose == _CALLING:
                own, given = id(frame), _keywords(frame) if keywords else None
            frame = back
            continue
        name = code.co_name
        if whose == _CALLING and name in ("inner", "_call_impl"):
            return _caller((where, direct, fused, in_function, by_torch, id(frame), own, given, called, "" if where else system))
        if whose == _DIFFERENTIATING:
            in_function = True
        elif first:
            by_torch, first = whose == _HOOKING, False
        if whose == _SPREADING and not (where or system):
            system = system_of(code)
        if not where and whose == _USERS:
            where = _place(code.co_filename, frame.f_lineno)
        if name == "forward" and code.co_argcount and (back is None or back.f_code.co_filename != _MACHINERY):  # not called by torch
            found: Any = frame.f_locals.get(code.co_varnames[0])
            if direct is None and is_module(found) and id(found) != current and _is_forward(code, found):
                direct, fused, called = found, code in _FUSED_CODES, ""
                frame = back
                continue
            if direct is not None and found is direct:  # its own forward calls that of its base class
                called = ""
                frame = back
                continue
            in_function = in_function or (not torch.is_grad_enabled() and _is_of_function(code, found))
        if direct is not None and not called and whose == _USERS:
            called = _place(code.co_filename, frame.f_lineno)
        frame = back
    return _caller((where, direct, fused, in_function, by_torch, 0 if frame is None else UNKNOWN, own, given, called, ""))


_place = lru_cache(maxsize=4096)(line_of)


def _is_forward(code: CodeType, module: Module) -> bool:
    """Whether that is the code of the module's ``forward``, and not of a function of the same name that takes a module."""
    held = stores.contents(module).get("forward")
    function: Any
    for function in (held, *(vars(cls).get("forward") for cls in type(module).__mro__)):
        while type(function) in (FunctionType, MethodType):
            if function.__code__ is code:
                return True
            function = function.__dict__.get("__wrapped__")
    return False


def _is_of_function(code: CodeType, first: Any) -> bool:
    """Whether that is the ``forward`` of a ``torch.autograd.Function``: newer torches call it from C, where no frame tells."""
    if isinstance(first, autograd_function.FunctionCtx):
        return True
    if is_module(first):
        return False
    classes = [autograd_function.Function]  # one with `setup_context` gets no context
    for cls in classes:
        if getattr(getattr(vars(cls).get("forward"), "__wrapped__", None), "__code__", None) is code:
            return True
        classes += cls.__subclasses__()
    return False


def keyword_arguments() -> dict[str, Any] | None:
    """Those of the module call whose hook this is: a global hook before ``forward`` is not told of them, nor one after an exception."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _whose[frame.f_code.co_filename] != _CALLING:
        frame = frame.f_back
    return None if frame is None else _keywords(frame)


def _keywords(frame: FrameType) -> dict[str, Any] | None:
    found = frame.f_locals.get("kwargs")
    return found if isinstance(found, dict) else None


def runs(identity: int, within: int = 0) -> bool:
    """Whether a frame is among those that run now: in `within` or further out, since a new one may have the identity of one that ended."""
    frame: FrameType | None = sys._getframe(1)
    while within and frame is not None and id(frame) != within:
        frame = frame.f_back
    while frame is not None:
        if id(frame) == identity:
            return True
        frame = frame.f_back
    return False


def called_by_engine() -> bool:
    """Whether autograd itself has called into Python, in a thread of its own: those of the user's begin in code that is not torch's."""
    frame: FrameType = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
    return _whose[frame.f_code.co_filename] != _USERS


def caller_of_hook() -> int:
    """The identity of the frame that runs an optimizer's step, of which this is a hook."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return 0 if frame is None else id(frame)
