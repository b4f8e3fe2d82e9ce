"""What is written above the line that failed, by the user: the call that made an object, and that call with a changed argument."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from functools import lru_cache
from textwrap import dedent
from typing import Any, NamedTuple

from modlab.explaining import operands
from modlab.explaining.frames import Frame

_LINES = 2_000
_LONG = 120


class Written(NamedTuple):
    """One call in a statement of the user's."""

    statement: ast.stmt
    call: ast.Call

    def rewritten(self, new: ast.expr) -> str:
        """The statement with a different call in its place; empty if that is long."""
        return exchanged(self.statement, self.call, new)


def exchanged(statement: ast.AST, old: ast.AST, new: ast.AST) -> str:
    """A statement with one of its nodes replaced; empty if it is long, or a block."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef, ast.For, ast.While, ast.If, ast.With, ast.Try)):
        return ""
    nodes = [*ast.walk(statement)]
    if not any(node is old for node in nodes):  # from a different parse of the same lines
        wanted = ast.dump(old)
        alike = [node for node in nodes if type(node) is type(old) and ast.dump(node) == wanted]
        if len(alike) != 1:
            return ""
        old = alike[0]
    copied = copy.deepcopy(statement, {id(old): new})
    text = ast.unparse(ast.fix_missing_locations(copied))
    return text if len(text) <= _LONG and "\n" not in text else ""


def statements(frame: Frame) -> list[ast.stmt]:
    """The statements of a frame's function, cell or file up to and including the line that failed, in order."""
    lines = frame.lines()
    if not lines or len(lines) > _LINES:
        return []
    tree = _parsed("".join(line for _, line in lines))
    reached = frame.line - lines[0][0] + 1
    found = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and node.lineno <= reached] if tree is not None else []
    return sorted(found, key=lambda node: node.lineno)


@lru_cache(64)
def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(dedent(text))
    except (SyntaxError, ValueError):
        return None


def calls(frame: Frame, *names: str) -> list[Written]:
    """The calls of functions with these names (the last part of a dotted one), in order, each with its innermost statement."""
    found: dict[int, Written] = {}
    for statement in statements(frame):
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and name_of(node.func) in names:
                found[id(node)] = Written(statement, node)
    return list(found.values())


def name_of(node: ast.expr) -> str:
    """``compile`` for ``torch.compile``."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def value_of(frame: Frame, name: str) -> tuple[ast.stmt, ast.expr] | None:
    """The assignment that gave a name its value when the line failed, and its right side; or None."""
    for statement in reversed(statements(frame)):
        if isinstance(statement, ast.Assign) and statement.lineno != _own_line(frame):
            targets = statement.targets
            if len(targets) == 1 and isinstance(targets[0], ast.Name) and targets[0].id == name:
                return statement, statement.value
    return None


def _own_line(frame: Frame) -> int:
    lines = frame.lines()
    return frame.line - lines[0][0] + 1 if lines else -1


def with_word(call: ast.Call, name: str, value: ast.expr | None) -> ast.Call:
    """The call with one keyword set to a different value; added if it is missing, removed if the value is None."""
    words = [
        ast.keyword(word.arg, value) if word.arg == name and value is not None else word
        for word in call.keywords
        if word.arg != name or value is not None
    ]
    if value is not None and not any(word.arg == name for word in call.keywords):
        words.append(ast.keyword(name, value))
    return ast.Call(call.func, call.args, words)


def word(call: ast.Call, name: str) -> ast.expr | None:
    """The value of a keyword in a call, or None."""
    return next((one.value for one in call.keywords if one.arg == name), None)


def expression(frame: Frame | None) -> ast.expr | None:
    """The expression that failed in a frame, or None."""
    node = frame.expression() if frame is not None else None
    return node if isinstance(node, ast.expr) else getattr(node, "value", None) if isinstance(node, ast.stmt) else None


def named(frame: Frame, thing: Any) -> str:
    """The user's name for an object in a frame: the shortest that does not start with an underscore; empty if there is none."""
    names = [name for name, one in [*frame.names.items()] if one is thing and name.isidentifier() and not name.startswith("_")]
    return min(names, key=lambda name: (len(name), name), default="")


def modules(node: ast.AST, frame: Frame) -> Iterator[tuple[ast.Call, Any]]:
    """The calls within an expression, including inner ones, with the object called, where it is available."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call):
            thing = operands.follow(inner.func, frame)
            if thing is not operands.MISSING:
                yield inner, thing
