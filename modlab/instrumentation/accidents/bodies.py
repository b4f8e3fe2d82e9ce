"""A function's code → its source as a tree, and where in it something stands."""

from __future__ import annotations

import ast
import linecache
from textwrap import dedent
from types import CodeType
from typing import NamedTuple
from weakref import WeakKeyDictionary

from modlab.instrumentation.accidents.frames import Frame, Position

_LONG = 400  # lines of a function that is read
_CLOSING = 6  # lines below the last one that runs, where its brackets may be closed


class Body(NamedTuple):
    """One function, parsed.

    Attributes:
        tree: its definition; lines are counted from the first one of its source, columns from its own indentation.
        line: the number of that first line in the file.
        column: the indentation.
    """

    tree: ast.FunctionDef
    line: int
    column: int

    def place(self, node: ast.expr | ast.stmt) -> Position:
        """Where a node stands in the file, as `Frame.position` tells it."""
        first, last = node.lineno, node.end_lineno or node.lineno
        end = node.end_col_offset or node.col_offset
        return first + self.line - 1, last + self.line - 1, node.col_offset + self.column, end + self.column


_known: WeakKeyDictionary[CodeType, tuple[str, Body | None]] = WeakKeyDictionary()  # equal code may stand in two files


def of_code(code: CodeType) -> Body | None:
    """The source of a function, if it can be had; looked for once."""
    file, body = _known.get(code, ("", None))
    if file != code.co_filename:
        file, body = _known[code] = code.co_filename, _read(code)
    return body


def _read(code: CodeType) -> Body | None:
    if code.co_name.startswith("<"):
        return None  # a cell, a file, a lambda
    source, first = linecache.getlines(code.co_filename), code.co_firstlineno
    last = max((line for _, _, line in code.co_lines() if line), default=first)
    if not 0 < first <= len(source) or last - first > _LONG:
        return None
    for end in range(last, last + _CLOSING):
        lines = source[first - 1 : end]
        try:
            tree = ast.parse(dedent("".join(lines)))
        except (SyntaxError, ValueError):
            continue
        found = tree.body[0] if tree.body else None
        column = len(lines[0].encode()) - len(lines[0].lstrip().encode())
        return Body(found, first, column) if isinstance(found, ast.FunctionDef) and found.name == code.co_name else None
    return None


def statement_of(frame: Frame) -> ast.stmt | None:
    """The innermost statement at which a frame stopped, of one line or of several."""
    position = frame.position()
    if position is None:
        return None
    body = of_code(frame.code)
    if body is not None:
        around = [node for node in ast.walk(body.tree) if isinstance(node, ast.stmt) and _holds(body.place(node), position)]
        return min(around, key=lambda node: _size(body.place(node)), default=None) if around[1:] else None
    first, last, start, end = position
    lines = linecache.getlines(frame.code.co_filename)[first - 1 : last]
    try:
        parsed = ast.parse(dedent("".join(lines)))
    except (SyntaxError, ValueError):
        return None
    shift = len(lines[0].encode()) - len(lines[0].lstrip().encode()) if lines else 0
    module = Body(ast.FunctionDef("", ast.arguments([], [], None, [], [], None, []), [], []), first, shift)
    inside = [node for node in ast.walk(parsed) if isinstance(node, ast.stmt) and _holds(module.place(node), (first, last, start, end))]
    return min(inside, key=lambda node: _size(module.place(node)), default=None)


def _holds(outer: Position, inner: Position) -> bool:
    return (outer[0], outer[2]) <= (inner[0], inner[2]) and (inner[1], inner[3]) <= (outer[1], outer[3])


def _size(place: Position) -> tuple[int, int]:
    return place[1] - place[0], place[3] - place[2]
