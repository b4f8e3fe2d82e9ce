"""A traceback → its frames, read without keeping them or changing what they hold."""

from __future__ import annotations

import ast
import linecache
import os
import sys
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from inspect import CO_OPTIMIZED
from itertools import islice
from types import CodeType, FrameType, TracebackType
from typing import Any, NamedTuple

import torch

from modlab import version
from modlab.inspection import stores
from modlab.inspection.definitions import place_of

FRAMES = 400  # a RecursionError has a thousand; the first and the last are read
_SNAPSHOTS = sys.version_info < (3, 13)  # until then a frame keeps a copy of its locals once it was asked for them
_LIBRARY = os.path.dirname(os.__file__) + os.sep  # of Python itself, and below it what is installed
_INSTALLED = ("site-packages", "dist-packages")
_TORCH = os.path.dirname(torch.__file__) + os.sep
_OURS = os.path.dirname(os.path.abspath(version.__file__)) + os.sep
_LESSONS = tuple(os.path.join(_OURS, name, "") for name in ("lessons", "course"))  # what a learner calls counts as the user's
_MACHINERY = ("IPython", "ipykernel", "asyncio", "concurrent", "_pytest", "pluggy")
_GENERATED = "<eval_with_key>"  # what torch.fx writes: the name holds a counter and a path

Position = tuple[int, int, int, int]


class _Whose(NamedTuple):
    """Whose code a file holds.

    Attributes:
        is_torch: torch's.
        is_layer: that of ``torch.nn``'s modules and functions, whose names a learner knows.
        is_ours: modlab's own.
        is_users: a user could change it: it is neither torch's, nor modlab's, nor that of the notebook's machinery.
        is_installed: it belongs to a library that was installed, which its user reads at best.
    """

    is_torch: bool
    is_layer: bool
    is_ours: bool
    is_users: bool
    is_installed: bool


@lru_cache(1024)
def whose(file: str) -> _Whose:
    """Whose code a file holds."""
    is_torch = file.startswith(_TORCH)
    inner = file[len(_TORCH) :].replace(os.sep, "/")
    is_layer = is_torch and inner.startswith("nn/") and not inner.startswith("nn/modules/module.py")
    is_ours = file.startswith(_OURS) and not file.startswith(_LESSONS)
    of_python = file.startswith(_LIBRARY) and not file[len(_LIBRARY) :].startswith(_INSTALLED)
    machinery = any(f"{os.sep}{name}{os.sep}" in file for name in _MACHINERY) and "ipykernel_" not in file
    is_users = not (is_torch or file.startswith(("<frozen", _GENERATED)) or is_ours or of_python or machinery)
    return _Whose(is_torch, is_layer, is_ours, is_users, any(f"{os.sep}{name}{os.sep}" in file for name in _INSTALLED))


class Frame:
    """One level of a traceback: its code, whose that is, the line that ran, and its names."""

    def __init__(self, frame: FrameType, line: int, instruction: int) -> None:
        self.code: CodeType = frame.f_code
        self.line = line
        self.names: Mapping[str, Any] = _names(frame)
        self.globals: Mapping[str, Any] = frame.f_globals
        self._instruction = instruction
        self.is_torch, self.is_layer, self.is_ours, self.is_users, self.is_installed = whose(self.code.co_filename)
        self.is_installed = self.is_installed or self._is_generated

    @property
    def _is_generated(self) -> bool:
        """Whether a library made the code out of a text: the constructor of a dataclass, the guards of an exported model."""
        return self.code.co_filename == "<string>" and self.is_function and self.globals.get("__name__") != "__main__"

    @property
    def offset(self) -> int:
        """Where the code stopped, in bytes; -1 where that is not known."""
        return self._instruction

    @property
    def function(self) -> str:
        """The function's name."""
        return self.code.co_name

    @property
    def is_function(self) -> bool:
        """Whether its names are a function's own; those of a cell, a file and a class are not."""
        return bool(self.code.co_flags & CO_OPTIMIZED)

    @cached_property
    def owner(self) -> Any:
        """The module whose method this is, or None."""
        code = self.code
        first = code.co_varnames[0] if code.co_argcount else ""
        if first != "self" and "self" in code.co_freevars:  # a function inside a method
            first = "self"
        thing = self.names.get(first) if first else None
        if thing is None or not stores.is_module(thing):
            return None
        return thing if first == "self" or _is_method(type(thing), code) else None

    @property
    def where(self) -> str:
        """``net.py:12``, or that it is a cell."""
        file = self.code.co_filename
        return f"line {self.line} of what torch.fx generated" if file.startswith(_GENERATED) else place(file, self.line)

    @property
    def source(self) -> str:
        """The line that ran, if its source is there."""
        return linecache.getline(self.code.co_filename, self.line).strip()

    def lines(self) -> list[tuple[int, str]]:
        """The numbers and lines of the whole function (of a cell: of the cell) as far as they were reached."""
        last = max((line for _, _, line in self.code.co_lines() if line), default=self.line)
        source = linecache.getlines(self.code.co_filename)
        return [(n, source[n - 1]) for n in range(self.code.co_firstlineno or 1, min(last, len(source)) + 1)]

    def expression(self) -> ast.AST | None:
        """The very expression that failed, where Python knows it."""
        return self._expression

    @cached_property
    def _expression(self) -> ast.AST | None:
        text = self.segment()
        return _parsed(text) if text else None

    def position(self) -> Position | None:
        """Where the expression that failed stands: first and last line, first column and the one behind the last, in bytes."""
        return self._position

    @cached_property
    def _position(self) -> Position | None:
        if self._instruction < 0 or not hasattr(self.code, "co_positions"):
            return None
        first, last, start, end = next(islice(self.code.co_positions(), self._instruction // 2, None), (None,) * 4)
        return None if first is None or last is None or start is None or end is None else (first, last, start, end)

    def segment(self) -> str:
        """The source of the expression that failed; nothing where it is not known."""
        found = self.position()
        if found is None:
            return ""
        first, last, start, end = found
        lines = linecache.getlines(self.code.co_filename)[first - 1 : last]
        if not lines or len(lines) != last - first + 1:
            return ""
        raw = [line.encode("utf-8", "surrogatepass") for line in lines]
        raw[-1] = raw[-1][:end]
        raw[0] = raw[0][start:]
        return b"".join(raw).decode("utf-8", "replace")


@lru_cache(256)
def _parsed(text: str) -> ast.AST | None:
    for source, mode in ((f"({text}\n)", "eval"), (text, "exec")):
        try:
            tree: Any = ast.parse(source, mode=mode)
        except (SyntaxError, ValueError):
            continue
        return tree.body if mode == "eval" else (tree.body[0] if tree.body else None)
    return None


def place(file: str, line: int) -> str:
    """``net.py:12``, or that it is a cell."""
    return _place(file, line, tuple(sys.path))


@lru_cache(256)
def _place(file: str, line: int, _: tuple[str, ...]) -> str:
    return place_of(file, line)


def _names(frame: FrameType) -> Mapping[str, Any]:
    """The local names; of a cell or a file its globals, as they are."""
    names = frame.f_locals
    if not frame.f_code.co_flags & CO_OPTIMIZED:
        return names
    found = dict(names)
    if _SNAPSHOTS and isinstance(names, dict) and sys.getrefcount(names) <= 3:  # the frame, we, and the question: nobody else holds it
        names.clear()  # else a frame that still runs would keep alive what it deletes
    return found


def _is_method(cls: type, code: CodeType) -> bool:
    return any(getattr(vars(base).get(code.co_name), "__code__", None) is code for base in cls.__mro__)


def read(error: BaseException, within: list[Frame] | None = None) -> list[Frame]:
    """The frames of an exception, outermost first.

    Args:
        error: the exception.
        within: the frames of the one that it led to; those above the place where this one was caught are put in front.
    """
    traceback = error.__traceback__
    found = [Frame(*level) for level in _levels(traceback)]
    if within and found:
        same = next((i for i, frame in enumerate(within) if frame.code is found[0].code), 0)
        found = within[:same] + found
    return found


def _levels(traceback: TracebackType | None) -> Iterator[tuple[FrameType, int, int]]:
    levels = []
    while traceback is not None:
        levels.append((traceback.tb_frame, traceback.tb_lineno or 0, traceback.tb_lasti))
        traceback = traceback.tb_next
    return iter(levels if len(levels) <= FRAMES else levels[: FRAMES // 4] + levels[-(FRAMES - FRAMES // 4) :])
