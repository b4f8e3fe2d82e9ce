"""One function on the way: what its names stand for now, and whether the place of the error is met."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from modlab import format
from modlab.instrumentation.accidents import rounds
from modlab.instrumentation.accidents.bodies import extent_of, stored
from modlab.instrumentation.accidents.certainties import UNKNOWN, Scope, module_at
from modlab.instrumentation.accidents.scene import shape_of

if TYPE_CHECKING:
    from modlab.instrumentation.accidents.passage import Walk

INNER = ("<listcomp>", "<genexpr>", "<setcomp>", "<dictcomp>")
MANY = 2  # uses of what nobody knows how often it is read
LAST = 4  # rounds of a loop that are looked at, before the one that stopped
_TEXT = 60  # characters of a condition


class Footing:
    """Where the way through one function stands.

    Attributes:
        walk: the way through the whole call.
        scope: the function, and what its names stand for.
        source: what is found out.
    """

    def __init__(self, walk: Walk, scope: Scope) -> None:
        self.walk, self.scope = walk, scope
        self.source = walk.source

    def value(self, node: ast.expr) -> int:
        """The number of what an expression gives; its calls are noted on the way. Nothing is, once the place of the error was met."""
        raise NotImplementedError

    # ---- the place of the error

    def is_at(self, node: ast.stmt | ast.expr) -> bool:
        """Whether what failed stands in a node (where its place is not known: on its lines)."""
        return not self.source.perhaps and not self.walk.past and self.scope.stopped_at(node)

    def within(self, node: ast.expr) -> bool:
        """Whether what failed stands in an expression with rounds, or in the frame that these have of their own."""
        scope, below = self.scope, self.walk.below
        if scope.frame is None or scope.stop is None or self.source.perhaps or self.walk.past:
            return False
        inner = scope.body.extent(below[0].position()) if below and below[0].function in INNER else None
        first, last = extent_of(node)
        return self.is_at(node) or (inner is not None and first <= inner[0] and inner[1] <= last)

    def met(self, node: ast.expr) -> bool:
        """Whether an expression is the one that failed."""
        source, scope = self.source, self.scope
        if source.stopped or source.perhaps or scope.frame is None or scope.stop is None or self.walk.past:
            return False
        return node.lineno == scope.stop[0][0] and extent_of(node) == scope.stop

    def runs_again(self, node: ast.AST, body: Iterable[ast.AST]) -> bool:
        """Whether the module that failed is called in each round of a loop: it does not depend on what the loop goes through."""
        inner = self.source.inner.module if self.source.inner is not None else None
        targets = stored(node)
        funcs = [part.func for one in body for part in ast.walk(one) if isinstance(part, ast.Call)]
        found = [func for func in funcs if inner is not None and module_at(self.scope, func) is inner]
        return any(not any(isinstance(name, ast.Name) and name.id in targets for name in ast.walk(func)) for func in found)

    # ---- what is not certain

    @contextmanager
    def doubted(self, nodes: Iterable[ast.AST], told: str) -> Iterator[None]:
        """Nodes of which nobody knows whether they ran, while they are gone through; the names stand for what they did, afterwards."""
        source, scope = self.source, self.scope
        for node in nodes:
            self.closed(node)
        outer, values, held, ran = source.perhaps, dict(scope.values), dict(scope.known), len(source.ran)
        self.doubt(told)
        yield
        source.perhaps, scope.values, scope.known = outer, values, held
        if len(source.ran) > ran:
            source.certain = False

    def doubt(self, told: str) -> None:
        """What follows may have run, under a condition; an outer one comes first."""
        self.source.perhaps = self.source.perhaps or format.cut(told, _TEXT)

    # ---- names

    def assign(self, target: ast.expr, value: int, thing: Any) -> None:
        """Give a name, or several, what an expression gave."""
        source, scope = self.source, self.scope
        if isinstance(target, ast.Name):
            scope.values[target.id] = value
            scope.known.pop(target.id, None)
            if thing is not UNKNOWN and type(thing) not in (list, dict, set):
                scope.known[target.id] = thing
            return
        if isinstance(target, (ast.Tuple, ast.List)) and not any(isinstance(part, ast.Starred) for part in target.elts):
            values = source.parts.get(value, [])
            things = thing if type(thing) in (tuple, list) else ()
            for i, part in enumerate(target.elts):
                number = values[i] if len(values) == len(target.elts) else source.value()
                self.assign(part, number, things[i] if len(things) == len(target.elts) else UNKNOWN)
            return
        if isinstance(target, ast.Subscript):
            self.value(target.value)
        self.forget(target)

    def bind(self, target: ast.expr, member: Any) -> None:
        """Give the names of a loop what they stand for in a round."""
        self.forget(target)
        for name, thing in rounds.bound(target, member):
            if thing is not UNKNOWN:
                self.scope.known[name] = thing
                self.source.settle(self.scope.values[name], shape_of(thing))

    def forget(self, node: ast.AST) -> None:
        """Names that stand for something new, of which nothing is known."""
        for name in stored(node):
            self.scope.values[name] = self.source.value()
            self.scope.known.pop(name, None)

    def closed(self, node: ast.AST) -> None:
        """What stands in a node is read, nobody knows how often."""
        values, uses = self.scope.values, self.source.uses
        for inner in (node,) if isinstance(node, (ast.Constant, ast.Name)) else ast.walk(node):
            if isinstance(inner, ast.Name) and inner.id in values:
                uses[values[inner.id]] += MANY


def bracketed(node: ast.expr) -> str:
    """A condition as a part of another one."""
    text = ast.unparse(node)
    return f"({text})" if isinstance(node, (ast.BoolOp, ast.Compare, ast.IfExp)) else text
