"""A function's code → its source as a tree, and where in it something stands."""

from __future__ import annotations

import ast
import copy
import linecache
from collections import Counter
from collections.abc import Mapping
from textwrap import dedent
from types import CodeType
from typing import Any, NamedTuple
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
        written: how often each name is given something, arguments once.
        read: where names are read.
        assigned: the assignments.
    """

    tree: ast.FunctionDef
    line: int
    column: int
    written: Mapping[str, int] = {}
    read: tuple[ast.Name, ...] = ()
    assigned: tuple[ast.Assign, ...] = ()

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
        whole = isinstance(found, ast.FunctionDef) and found.name == code.co_name
        return _body(found, first, column) if whole and isinstance(found, ast.FunctionDef) else None
    return None


def _body(tree: ast.FunctionDef, first: int, column: int) -> Body:
    nodes = [*ast.walk(tree)]
    names = [node for node in nodes if isinstance(node, ast.Name)]
    written = Counter([*(one.id for one in names if not isinstance(one.ctx, ast.Load)), *(n.arg for n in nodes if isinstance(n, ast.arg))])
    read = tuple(one for one in names if isinstance(one.ctx, ast.Load))
    return Body(tree, first, column, written, read, tuple(node for node in nodes if isinstance(node, ast.Assign)))


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


def rewritten(frame: Frame, old: ast.AST, new: ast.expr) -> str:
    """The statement that failed with one part written in another way; the part alone where the statement is a long one."""
    statement = statement_of(frame)
    text = ast.unparse(new)
    if not isinstance(statement, (ast.Assign, ast.Return, ast.Expr, ast.AugAssign, ast.AnnAssign)):
        return text
    wanted = ast.dump(old)
    found = [node for node in ast.walk(statement) if ast.dump(node) == wanted]
    if len(found) != 1:
        return text
    changed = _Exchange(found[0], new).visit(copy.copy(statement))
    whole = ast.unparse(ast.fix_missing_locations(changed))
    return whole if len(whole) <= 100 and "\n" not in whole else text


class _Exchange(ast.NodeTransformer):
    """Puts one node in place of another one, in a copy."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def generic_visit(self, node: ast.AST) -> ast.AST:
        return super().generic_visit(copy.copy(node))

    def visit(self, node: ast.AST) -> Any:
        return self.new if node is self.old else super().visit(node)


def _holds(outer: Position, inner: Position) -> bool:
    return (outer[0], outer[2]) <= (inner[0], inner[2]) and (inner[1], inner[3]) <= (outer[1], outer[3])


def _size(place: Position) -> tuple[int, int]:
    return place[1] - place[0], place[3] - place[2]
