"""Where the path from a loss back to trained parameters was cut, as proven by the code that computed it and by the live tensors."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from textwrap import dedent
from typing import NamedTuple

from torch import Tensor
from torch.nn import Module

from modlab.explaining import suspects, written
from modlab.explaining.frames import Frame
from modlab.inspection import stores
from modlab.inspection.definitions import place_of

_LONG = 600  # maximum lines of a function or cell that is read
_DEEP = 12  # maximum number of names followed
_SIZES = {"shape", "size", "numel", "dim", "ndim", "dtype", "device", "requires_grad", "grad", "training"}  # independent of the values
_CUTTING = ("detach", "item", "numpy", "tolist", "argmax", "argmin", "data", "tensor", "round", "sign")


class Detachment(NamedTuple):
    """The line at which the graph ends.

    Attributes:
        where: its file and line.
        line: its text.
        by: what cuts the graph there ("detach", "a comparison", "torch.no_grad"); empty if that is inside what the line calls.
        model: the trained model that the line calls, if nothing in the line itself cuts the graph.
    """

    where: str
    line: str
    by: str
    model: str


class _Code(NamedTuple):
    frame: Frame
    tree: ast.Module
    first: int
    around: dict[ast.AST, ast.AST]  # each node → the node that contains it


def of(frame: Frame | None) -> Detachment | None:
    """Where the graph of a loss ends, if the frame's line calls ``backward`` on it; None if that is uncertain."""
    code = _code(frame) if frame is not None else None
    here = _here(code) if code is not None else None
    if code is None or here is None:
        return None
    expression = code.frame.expression()
    while isinstance(expression, (ast.Expr, ast.Call)):
        if isinstance(expression, ast.Call) and isinstance(expression.func, ast.Attribute) and expression.func.attr == "backward":
            return _followed(code, expression.func.value, here, here, set())
        expression = expression.value if isinstance(expression, ast.Expr) else None
    return None


def _code(frame: Frame) -> _Code | None:
    lines = frame.lines()
    if not 0 < len(lines) <= _LONG:
        return None
    try:
        tree = ast.parse(dedent("".join(line for _, line in lines)))
    except (SyntaxError, ValueError):
        return None
    around = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    return _Code(frame, tree, lines[0][0], around)


def _here(code: _Code) -> ast.stmt | None:
    """The statement that failed; of several in one line, the one that calls ``backward``."""
    line = code.frame.line - code.first + 1
    found = [
        node
        for node in ast.walk(code.tree)
        if isinstance(node, ast.Expr) and node.lineno <= line <= (node.end_lineno or 0) and "backward" in ast.unparse(node)
    ]
    return found[0] if len(found) == 1 else None


def _followed(code: _Code, node: ast.expr, at: ast.stmt, here: ast.stmt, seen: set[str]) -> Detachment | None:
    """Trace an expression in a statement back; `here` is the statement that failed."""
    named = list(_names(code, node))
    trained = [name for name in named if _is_trained(code.frame.names.get(name)) and not _renewed(code, name, at, here)]
    if trained:
        return _told(code, node, at, trained)
    for name in named:
        thing = code.frame.names.get(name)
        if name in seen or not issubclass(type(thing), Tensor) or len(seen) > _DEEP:
            continue
        seen.add(name)
        statement = _assigned(code, name, at)
        if statement is None or (statement is not at and _renewed(code, name, statement, at)):
            continue
        found = _followed(code, statement.value, statement, here, seen)
        if found is not None:
            return found
    return None


def _names(code: _Code, node: ast.expr) -> Iterator[str]:
    """The names whose values an expression uses."""
    for inner in ast.walk(node):
        if not isinstance(inner, ast.Name):
            continue
        above = code.around.get(inner)
        length = isinstance(above, ast.Call) and isinstance(above.func, ast.Name) and above.func.id == "len"
        if not length and not (isinstance(above, ast.Attribute) and above.attr in _SIZES):
            yield inner.id


def _is_trained(thing: object) -> bool:
    if issubclass(type(thing), Tensor):
        return bool(thing.requires_grad)  # type: ignore[attr-defined]
    if not stores.is_module(thing):
        return False
    assert isinstance(thing, Module)
    return any(tensor.requires_grad for _, module in suspects.walk(thing) for _, tensor in stores.named_tensors(module))


def _writes(code: _Code, name: str) -> list[ast.AST]:
    return [node for node in ast.walk(code.tree) if isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load)]


def _place(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def _renewed(code: _Code, name: str, since: ast.AST, until: ast.AST) -> bool:
    """Whether a name may have been reassigned between two statements."""
    return any(_place(since) < _place(node) < _place(until) and _statement(code, node) is not since for node in _writes(code, name))


def _assigned(code: _Code, name: str, before: ast.stmt) -> ast.Assign | None:
    """The last statement before that assigns a name, if it certainly ran."""
    earlier = [node for node in _writes(code, name) if _place(node) < _place(before)]
    statement = _statement(code, max(earlier, key=_place)) if earlier else None
    if not isinstance(statement, ast.Assign):
        return None
    block = code.around.get(statement)
    while isinstance(block, ast.With):
        block = code.around.get(block)
    above: ast.AST | None = before
    while above is not None and above is not block:
        above = code.around.get(above)
    return statement if above is not None else None


def _statement(code: _Code, node: ast.AST) -> ast.AST | None:
    found: ast.AST | None = node
    while found is not None and not isinstance(found, ast.stmt):
        found = code.around.get(found)
    return found


def _told(code: _Code, node: ast.expr, at: ast.stmt, trained: list[str]) -> Detachment | None:
    by = _unrecorded(code, at) or next(
        (
            f"{'.' if isinstance(code.around.get(inner), ast.Call) else ''}{inner.attr}".lstrip(".")
            for inner in ast.walk(node)
            if isinstance(inner, ast.Attribute) and inner.attr in _CUTTING
        ),
        "",
    )
    if not by and any(isinstance(inner, ast.Compare) for inner in ast.walk(node)):
        by = "a comparison"
    called = [name for name in trained if stores.is_module(code.frame.names.get(name))]
    line = ast.unparse(at) if isinstance(at, (ast.Assign, ast.Expr)) else code.frame.source
    return Detachment(place_of(code.frame.code.co_filename, code.first + at.lineno - 1), line, by, called[0] if called and not by else "")


def _unrecorded(code: _Code, statement: ast.AST) -> str:
    above = code.around.get(statement)
    while above is not None:
        if isinstance(above, ast.With):
            for item in above.items:
                mode = item.context_expr.func if isinstance(item.context_expr, ast.Call) else item.context_expr
                if isinstance(mode, (ast.Name, ast.Attribute)) and written.name_of(mode) in ("no_grad", "inference_mode"):
                    return ast.unparse(mode)
        above = code.around.get(above)
    return ""
