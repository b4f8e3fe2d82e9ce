"""A function's code → its source as a tree, and positions in it."""

from __future__ import annotations

import ast
import copy
import linecache
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from textwrap import dedent
from types import CodeType
from typing import Any, NamedTuple, TypeGuard
from weakref import WeakKeyDictionary

from modlab.explaining.frames import Frame, Position

_LONG = 400  # maximum lines of a function that is read
_CLOSING = 6  # lines below the last one that runs, where brackets may be closed


Extent = tuple[tuple[int, int], tuple[int, int]]


class Body(NamedTuple):
    """One function, parsed.

    Attributes:
        tree: its definition; lines are counted from the first line of its source, columns from its own indentation.
        line: the number of that first line in the file.
        column: the indentation.
        written: how often each name is assigned; arguments count once.
        read: the places where names are read.
        assigned: the assignments.
        looped: the names assigned in loops, comprehensions and lambdas.
        touched: names and attributes that may be changed without being reassigned: ``x.append(1)``, ``self.n += 1``.
    """

    tree: ast.FunctionDef
    line: int
    column: int
    written: Mapping[str, int] = {}
    read: tuple[ast.Name, ...] = ()
    assigned: tuple[ast.Assign, ...] = ()
    looped: frozenset[str] = frozenset()
    touched: frozenset[str] = frozenset()

    def extent(self, place: Position | None) -> Extent | None:
        """A position in the file, converted to the tree's own: start and end, each as line and column."""
        if place is None:
            return None
        first, last, start, end = place
        return (first - self.line + 1, start - self.column), (last - self.line + 1, end - self.column)

    def place(self, node: ast.expr | ast.stmt) -> Position:
        """The position of a node in the file, as in `Frame.position`."""
        first, last = node.lineno, node.end_lineno or node.lineno
        end = node.end_col_offset or node.col_offset
        return first + self.line - 1, last + self.line - 1, node.col_offset + self.column, end + self.column


_known: WeakKeyDictionary[CodeType, tuple[str, Body | None]] = WeakKeyDictionary()  # equal code objects may come from two files


def of_code(code: CodeType) -> Body | None:
    """The source of a function, or None if it is unavailable; cached."""
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
    assigned = tuple(node for node in nodes if isinstance(node, ast.Assign))
    looped = frozenset(one.id for node in nodes if isinstance(node, _REPEATED) for one in ast.walk(node) if _is_written(one))
    return Body(tree, first, column, written, read, assigned, looped, frozenset(name for node in nodes for name in _touched(node)))


_REPEATED = (ast.For, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda, ast.AsyncFor)
_HARMLESS = frozenset({"items", "keys", "values", "get", "index", "count", "copy", "size", "dim", "numel", "view", "reshape", "format"})

_LOOKING = frozenset({"len", "enumerate", "zip", "reversed", "range", "sum", "isinstance", "list", "tuple", "print"})


def _is_written(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)


def _touched(node: ast.AST) -> Iterator[str]:
    """The names that a node may change without reassigning them."""
    if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
        yield node.attr
    elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
        yield from _last(node.value)
    elif isinstance(node, ast.AugAssign):
        yield from _last(node.target)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr not in _HARMLESS:
        yield from _last(node.func.value)
        if node.func.attr in ("train", "eval"):
            yield "training"
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("setattr", "delattr", "exec", "vars"):
        yield "*"
    if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in _LOOKING):
        yield from (part.id for part in node.args if isinstance(part, ast.Name))


def _last(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.Subscript):
        yield from _last(node.value)


def extent_of(node: ast.stmt | ast.expr) -> Extent:
    """The start and end of a node in its tree."""
    return (node.lineno, node.col_offset), (node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)


def is_within(outer: ast.stmt, inner: ast.expr) -> bool:
    """Whether a node is inside another one."""
    (first, last), (begin, end) = extent_of(outer), extent_of(inner)
    return first <= begin and end <= last


def stored(node: ast.AST) -> frozenset[str]:
    """The names assigned in a node; cached."""
    known: frozenset[str] | None = getattr(node, "_stored", None)
    if known is None:
        known = frozenset(inner.id for inner in ast.walk(node) if _is_written(inner))
        node._stored = known  # type: ignore[attr-defined]
    return known


def statement_of(frame: Frame) -> ast.stmt | None:
    """The innermost statement at which a frame stopped, on one or several lines; or None."""
    found = located(frame)
    return found[1] if found is not None else None


def located(frame: Frame) -> tuple[Body, ast.stmt] | None:
    """The same statement, with the `Body` that gives the positions of its parts in the file."""
    position = frame.position()
    if position is None:
        return None
    body = of_code(frame.code)
    if body is not None:
        around = [node for node in ast.walk(body.tree) if isinstance(node, ast.stmt) and _holds(body.place(node), position)]
        return (body, min(around, key=lambda node: _size(body.place(node)))) if around[1:] else None
    first, last, start, end = position
    lines = linecache.getlines(frame.code.co_filename)[first - 1 : last]
    parsed = _parsed(dedent("".join(lines)))
    if parsed is None:
        return None
    shift = len(lines[0].encode()) - len(lines[0].lstrip().encode()) if lines else 0
    module = _of_module(parsed, first, shift)
    inside = [node for node in ast.walk(parsed) if isinstance(node, ast.stmt) and _holds(module.place(node), (first, last, start, end))]
    return (module, min(inside, key=lambda node: _size(module.place(node)))) if inside else None


def last_given(frame: Frame, name: str) -> ast.expr | None:
    """The last value assigned to a name before the error, if every path there goes through that assignment; otherwise None."""
    position, body = frame.position(), of_code(frame.code) if frame.is_function else _of_file(frame.code.co_filename)
    if position is None or body is None or not name:
        return None
    chain = list[tuple[list[ast.stmt], ast.stmt]]()
    blocks = [body.tree.body]
    while found := next(((block, one) for block in blocks for one in block if _holds(body.place(one), position)), None):
        chain.append(found)
        blocks = _blocks(found[1])
    for block, around in reversed(chain):
        if _may_give(around, name):
            return None
        for before in reversed(block[: block.index(around)]):
            if name in stored(before):
                return _plainly_given(before)
    return None


def _may_give(around: ast.stmt, name: str) -> bool:
    """Whether a name may be reassigned on entering a statement: by an earlier round of a loop, ``with``, or ``:=``."""
    own: ast.AST | None = around
    if isinstance(around, (ast.Assign, ast.AnnAssign)):
        own = around.value
    elif isinstance(around, ast.If):
        own = around.test
    return own is not None and name in stored(own)


def _plainly_given(statement: ast.stmt) -> ast.expr | None:
    plain = isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name)
    return statement.value if plain and isinstance(statement, ast.Assign) else None


def _blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    own = [getattr(statement, name, None) or [] for name in ("body", "orelse", "finalbody")]
    return [*own, *(one.body for one in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())))]


def _of_module(parsed: ast.Module, line: int, column: int) -> Body:
    """Lines outside functions, as the body of one."""
    return Body(ast.FunctionDef("", ast.arguments([], [], None, [], [], None, []), parsed.body, []), line, column)


def _of_file(file: str) -> Body | None:
    """The body of a cell or a file."""
    parsed = _parsed("".join(linecache.getlines(file)))
    return None if parsed is None else _of_module(parsed, 1, 0)


def _parsed(text: str) -> ast.Module | None:
    """Parse some lines, including the head of an ``if`` or a loop without its body."""
    for whole in (text, f"{text.rstrip()} pass"):
        with suppress(SyntaxError, ValueError):
            return ast.parse(whole)
    return None


def rewritten(frame: Frame, old: ast.AST, new: ast.expr) -> str:
    """The failed statement with one part rewritten; only that part if the statement is long."""
    statement = statement_of(frame)
    text = ast.unparse(new)
    if not isinstance(statement, (ast.Assign, ast.Return, ast.Expr, ast.AugAssign, ast.AnnAssign)):
        return text
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Tuple):  # a line within a list or dict: ``f(x),``
        return text
    wanted = ast.dump(old)
    found = [node for node in ast.walk(statement) if ast.dump(node) == wanted]
    later = (part for node in ast.walk(statement) if isinstance(node, ast.Lambda) for part in ast.walk(node))
    if len(found) != 1 or any(part is found[0] for part in later):  # a statement that defines a function does not run it
        return text
    changed = _Exchange(found[0], new).visit(copy.copy(statement))
    whole = ast.unparse(ast.fix_missing_locations(changed))
    return whole if len(whole) <= 100 and "\n" not in whole else text


class _Exchange(ast.NodeTransformer):
    """Replaces a node with another one, in a copy."""

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
