"""Typed answers: in a notebook, ``lesson.predict("busy units", b)`` is an answer, whether or not there is a variable ``b``."""

from __future__ import annotations

import ast
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from modlab.lessons.notebooks import ASKING, LESSON


class Typed:
    """An answer as it was typed.

    Attributes:
        text: what stands there.
        value: what Python makes of it; None where it makes nothing of it, as of a bare letter.
    """

    def __init__(self, text: str, evaluate: Callable[[], Any]) -> None:
        self.text = text
        self.value: Any = None
        with suppress(Exception):  # a guess must not stop "Run All"
            self.value = evaluate()


class TypedAnswers(ast.NodeTransformer):
    """Lets a lesson see each answer in a cell as it was typed, before Python evaluates it.

    Args:
        is_lesson: whether a cell's variable `lesson` is a lesson now.
    """

    def __init__(self, is_lesson: Callable[[], bool]) -> None:
        self._is_lesson = is_lesson

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Wrap the answers in ``lesson.predict(name, answer)``; literals mean the same either way."""
        self.generic_visit(node)
        match node.func:
            case ast.Attribute(value=ast.Name(id=name), attr=method) if name == LESSON and method in ASKING and self._is_lesson():
                node.args[1:] = [_wrapped(answer) for answer in node.args[1:]]
        return node


def _wrapped(answer: ast.expr) -> ast.expr:
    if isinstance(answer, (ast.Constant, ast.Starred)) or any(isinstance(part, _TIED) for part in ast.walk(answer)):
        return answer
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    typed = ast.Attribute(ast.Name(LESSON, ast.Load()), "typed", ast.Load())
    call = ast.Call(typed, [ast.Constant(ast.unparse(answer)), ast.Lambda(nothing, answer)], [])
    return ast.fix_missing_locations(ast.copy_location(call, answer))


_TIED = (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)
"""What means something else in a function of its own."""
