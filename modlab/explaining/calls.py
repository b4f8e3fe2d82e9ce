"""Frames → the module calls that they belong to, and where each module is in the model."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.nn import Module

from modlab.compat import own_class
from modlab.explaining import operands
from modlab.explaining.frames import Frame
from modlab.inspection import stores
from modlab.inspection.distributed import unwrapped, users_path

SEARCHED = 60_000  # modules searched to find one
NEAR = 2_000  # tried first: it is nearly always a child or a grandchild
_CALLS = ("_wrapped_call_impl", "_call_impl")
_CONTAINERS = (list, tuple, dict)


class ModuleFrame:
    """One module's part of the traceback.

    Attributes:
        module: the module whose method ran.
        frames: its frames, and those of plain functions that it called.
        args, kwargs: the arguments of ``forward``; `args` is None if the module itself was not called.
        given: the positional arguments before any pre-hook.
        path: its dotted name; None if it is not registered in the model of the traceback.
        place: how to reach it, in words; its path if it has one.
        note: what is special about its place.
        places: all its names in the module above, if there are several and it is not known which one was called.
        read: what its source shows of earlier calls, once that was read.
        wrapped: whether the outermost call is that of DDP or DataParallel.
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self.frames: list[Frame] = []
        self.args: tuple[Any, ...] | None = None
        self.given: tuple[Any, ...] | None = None
        self.kwargs: Mapping[str, Any] = {}
        self.path: str | None = None
        self.place = ""
        self.note = ""
        self.places: tuple[str, ...] = ()
        self.read: Any = None
        self.wrapped = False

    @property
    def type(self) -> str:
        """The name of the class."""
        return own_class(type(self.module)).__name__

    @property
    def label(self) -> str:
        """The module's name in a sentence: its place, with the class if the place is just a number; otherwise its class."""
        first = place = self.shown(self.place)
        if len(self.places) > 1:
            place = " or ".join([first, *(join(first.rpartition(".")[0], name) for name in self.places[1:])])
        return f"{place} ({self.type})" if first.isdigit() else place or self.type

    def shown(self, path: str) -> str:
        """A dotted name as the user knows it: without the prefix that DDP adds."""
        return users_path(path) if self.wrapped else path

    @property
    def code_frame(self) -> Frame | None:
        """The innermost frame of this call in one of the module's own methods, not in the call machinery; None if there is none."""
        own = [frame for frame in self.frames if frame.owner is self.module and frame.function not in (*_CALLS, "inner")]
        return own[-1] if own else None

    def enter(self, frame: Frame) -> None:
        """Add one more frame to this call."""
        self.frames.append(frame)
        if frame.function not in (*_CALLS, "inner") or not frame.is_torch or frame.owner is not self.module:
            return
        args, kwargs = frame.names.get("args"), frame.names.get("kwargs")
        if type(args) is tuple and type(kwargs) is dict:
            self.args, self.kwargs = args, kwargs
            self.given = args if self.given is None else self.given


def of_frames(frames: list[Frame]) -> list[ModuleFrame]:
    """The module calls, outermost first, each with its place in the outermost module that holds it."""
    calls: list[ModuleFrame] = []
    for frame in frames:
        owner = frame.owner
        if owner is not None and frame.is_torch and frame.function == "call_wrapped":  # torch.fx's own way to call its GraphModule
            continue
        if owner is not None and (not calls or calls[-1].module is not owner or _begins(frame, calls[-1])):
            calls.append(ModuleFrame(owner))
        if calls:
            calls[-1].enter(frame)
    _place(calls)
    return calls


def _begins(frame: Frame, last: ModuleFrame) -> bool:
    """Whether a frame starts a new call of the same module; a method that calls ``self(x)`` does."""
    if not frame.is_torch or frame.function not in _CALLS:
        return False
    if last.args is None and all(one.is_torch and one.function == "__call__" for one in last.frames):
        return False  # a compiled module's own entry point
    return frame.function == _CALLS[0] or last.frames[-1].function != _CALLS[0]


def _place(calls: list[ModuleFrame]) -> None:
    wrapped = bool(calls) and unwrapped(calls[0].module) is not calls[0].module
    for i, call in enumerate(calls):
        call.wrapped = wrapped
        if i == 0:
            call.path = ""
            continue
        above = calls[i - 1]
        if call.module is above.module:
            call.path, call.place, call.note = above.path, above.place, above.note
            continue
        for holder in (above, calls[0]) if i > 1 else (above,):
            found = path_to(holder.module, call.module, NEAR)
            if found is None and holder is above:
                found = _as_written(above, call.module)
            if found is None:
                found = path_to(holder.module, call.module)
            if found is None:
                continue
            if holder is above:
                found = _among(above, call, found)
            call.path = None if holder.path is None else join(holder.path, found)
            call.place = join(holder.place, found)
            call.note = holder.note
            break
        else:
            hidden = in_attribute(above.module, call.module)
            call.place = join(above.place, hidden) if hidden else type(call.module).__name__
            call.note = "in a plain Python container: PyTorch does not see it" if hidden else "not a part of the model above"


def _among(above: ModuleFrame, call: ModuleFrame, found: str) -> str:
    """The name by which a child with several names was called; if that is unknown, all names are kept in `places`."""
    around, _, _ = found.rpartition(".")
    holder = at(above.module, around)
    names = [name for name, child in stores.named_children(holder) if child is call.module] if holder is not None else []
    if len(names) < 2:
        return found
    written = _as_written(above, call.module) if type(above.module) is not nn.Sequential else None
    if written is None:
        call.places = tuple(names)
    return written or found


def renamed(calls: list[ModuleFrame], call: ModuleFrame) -> None:
    """Set a call, and the calls inside it, to the first of its possible places."""
    old, place, name = call.path, call.place, call.places[0]
    new = join(place.rpartition(".")[0], name)
    for one in calls[calls.index(call) :]:
        if old is not None and one.path is not None and f"{one.path}.".startswith(f"{old}."):
            one.path = join(join(old.rpartition(".")[0], name), one.path[len(old) + 1 :])
        if f"{one.place}.".startswith(f"{place}."):
            one.place = join(new, one.place[len(place) + 1 :])
    call.places = call.places if len(call.places) > 1 else ()


def join(above: str, name: str) -> str:
    """Join two dotted names."""
    return f"{above}.{name}" if above and name else above or name


def _as_written(above: ModuleFrame, wanted: Module) -> str | None:
    """The dotted name of a module, read from the expression that called it: ``self.layers[59][3](x)``."""
    frame = above.code_frame
    expression = frame.expression() if frame is not None else None
    node = expression.func if isinstance(expression, ast.Call) else None
    parts: list[str] = []
    while isinstance(node, (ast.Attribute, ast.Subscript)) and frame is not None:
        key = node.attr if isinstance(node, ast.Attribute) else operands.follow(node.slice, frame)
        if type(key) not in (str, int):
            return None
        parts.insert(0, str(key))
        node = node.value
    path = ".".join(parts)
    return path if path and at(above.module, path) is wanted else None


def path_to(root: Module, wanted: Module, most: int = SEARCHED) -> str | None:
    """The shortest dotted name of a module below another, by identity; at most `most` modules are searched."""
    if root is wanted:
        return ""
    for name, child in stores.contents(root).get("_modules", {}).items():  # nearly always a child
        if child is wanted:
            return str(name)
    seen = {id(root)}
    queue: deque[tuple[str, Module]] = deque([("", root)])
    while queue and len(seen) < most:
        path, module = queue.popleft()
        prefix = path + "." if path else ""
        for name, child in stores.named_children(module):
            if child is wanted:
                return f"{prefix}{name}"
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                queue.append((f"{prefix}{name}", child))
    return None


def in_attribute(holder: Module, wanted: Module) -> str:
    """The expression for a module that another one holds unregistered: ``layers[0]``; empty if there is none."""
    for name, value in stores.contents(holder).items():
        if name in stores.STANDARD:
            continue
        if value is wanted:
            return str(name)
        if type(value) in _CONTAINERS:
            members = value.items() if type(value) is dict else enumerate(value)
            found = next((key for key, member in members if member is wanted), None)
            if found is not None:
                return f"{name}[{found!r}]"
    return ""


def at(root: Module, path: str) -> Module | None:
    """The module at a dotted name, read from the stores; None if there is none."""
    module: Module | None = root
    for part in path.split(".") if path else []:
        if module is None:
            return None
        module = stores.contents(module).get("_modules", {}).get(part)
    return module


def earlier(call: ModuleFrame, inner: ModuleFrame) -> list[tuple[str, Module]]:
    """The children that ran before `inner`, where that is certain: in a Sequential."""
    if type(call.module) is not nn.Sequential or inner.path is None or call.path is None:
        return []
    before: list[tuple[str, Module]] = []
    last = inner.path.rpartition(".")[2]
    for name, child in stores.named_children(call.module):
        if child is inner.module and name == last:
            return before
        if child is not None:
            before.append((name, child))
    return []
