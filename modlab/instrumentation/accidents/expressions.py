"""An expression on the way through a function: which value it gives, and what was called in it."""

from __future__ import annotations

import ast
from typing import Any

from modlab.instrumentation.accidents import rounds
from modlab.instrumentation.accidents.callings import Callings, is_number
from modlab.instrumentation.accidents.certainties import module_at, truth
from modlab.instrumentation.accidents.footing import INNER, LAST, bracketed

_ASKED = ("device", "dtype", "ndim", "is_cuda", "requires_grad", "training")  # attributes that tell no size
_ROUNDS_OF = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_OPAQUE = (ast.Lambda, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.BoolOp, ast.NamedExpr)
_BY_NUMBER = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)


class Expressions(Callings):
    """The expressions in one function."""

    def value(self, node: ast.expr) -> int:
        """The number of what an expression gives; its calls are noted on the way. Nothing is, once the place of the error was met."""
        source, scope = self.source, self.scope
        if source.stopped:
            return source.value()
        if isinstance(node, ast.Name):
            if node.id not in scope.values:
                scope.values[node.id] = source.value()
            source.uses[scope.values[node.id]] += 1
            return scope.values[node.id]
        if isinstance(node, ast.Constant) or (isinstance(node, ast.Attribute) and node.attr in _ASKED and isinstance(node.value, ast.Name)):
            return source.value()
        if isinstance(node, ast.Call):
            return self.call(node)
        if isinstance(node, ast.IfExp):
            return self.choice(node)
        if isinstance(node, _ROUNDS_OF) and len(node.generators) == 1 and (isinstance(node, ast.ListComp) or self.within(node)):
            return self.listed(node)
        if isinstance(node, (*_OPAQUE, ast.ListComp)):
            return self.opaque(node)
        numbers = [self.value(part) for part in _parts_of(node)]
        if self.met(node):
            source.taken.update(enumerate(numbers))
            source.stopped = True
        given = source.value()
        if isinstance(node, ast.Tuple):
            source.parts[given] = numbers
        if isinstance(node, ast.BinOp) and isinstance(node.op, _BY_NUMBER) and not source.stopped:
            source.settle(given, _broadcast(*(source.shapes[number] for number in numbers)))
        number = _beside_number(node)
        if number is not None and not source.stopped:
            source.same[given] = numbers[number]
            source.settle(given, source.shapes[numbers[number]])
        return given

    def choice(self, node: ast.IfExp) -> int:
        """One expression or another."""
        source = self.source
        test = truth(self.scope, node.test)
        self.value(node.test)
        for part in (node.body, node.orelse):
            if not source.stopped and self.is_at(part):
                return self.value(part)
        if test is not None and not source.stopped:
            return self.value(node.body if test else node.orelse)
        for part, told in ((node.body, ast.unparse(node.test)), (node.orelse, f"not {bracketed(node.test)}")):
            with self.doubted([part], f"ran if {told}"):
                self.value(part)
        return source.value()

    def listed(self, node: Any) -> int:
        """``[head(x) for head in self.heads]``: each round of it."""
        source, scope, loop = self.source, self.scope, node.generators[0]
        element: ast.expr = node.value if isinstance(node, ast.DictComp) else node.elt
        found = rounds.of(scope, loop.iter)
        here = self.within(node)
        inner = next((frame for frame in self.walk.below if frame.function in INNER), None) if here else None
        if found is None or not found.counted or loop.ifs or loop.is_async:
            return self.opaque(node)
        self.value(loop.iter)
        values, held = dict(scope.values), dict(scope.known)
        self.closed(node)
        last, possible = len(found.members), []
        if here and scope.frame is not None:
            names = inner.names if inner is not None else scope.frame.names
            possible = rounds.reached(found, loop.target, names, frozenset())
            last = possible[0] if possible else 0
        gave = []
        self.walk.past += 1
        for member in found.members[max(last - LAST, 0) : last]:
            self.bind(loop.target, member)
            gave.append(self.value(element))
        self.walk.past -= 1
        if here:
            source.skipped += max(last - LAST, 0)
            if possible:
                self.bind(loop.target, found.members[last])
                scope.stop = scope.body.extent(inner.position()) if inner is not None else scope.stop
                self.value(element)
            source.stopped = source.within = True
            source.again = len(possible) != 1 or (last > 0 and self.runs_again(loop.target, [element]))
            return source.value()
        scope.values, scope.known = values, held
        given = source.value()
        if len(gave) == len(found.members):
            source.parts[given] = gave
        return given

    def opaque(self, node: ast.expr) -> int:
        """What is not gone through: what it calls may have run."""
        source = self.source
        at = self.is_at(node) and self.scope.stop is not None
        self.closed(node)
        called = any(isinstance(inner, ast.Call) for inner in ast.walk(node)) and not isinstance(node, ast.Lambda)
        if called:
            source.certain = False
        if at:
            source.stopped = source.within = True
            source.again = isinstance(node, _ROUNDS_OF) and self.runs_again(node, [node])
        elif called:
            parts = [part for part in ast.walk(node) if isinstance(part, ast.Call) and module_at(self.scope, part.func) is not None]
            with self.doubted(parts, f"may have run: {ast.unparse(node)}"):
                for part in parts:
                    self.value(part)
        self.forget(node)
        return source.value()


def _parts_of(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    return [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]


def _broadcast(one: tuple[int, ...] | None, other: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """The shape of two tensors joined number by number, which fitted."""
    if one is None or other is None:
        return None
    length = max(len(one), len(other))
    pairs = zip((1,) * (length - len(one)) + one, (1,) * (length - len(other)) + other, strict=True)
    return tuple(right if left == 1 else left for left, right in pairs)


def _beside_number(node: ast.expr) -> int | None:
    """Which operand of an operation is changed number by number: that beside a plain number."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return 0
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, _BY_NUMBER):
        return None
    return 0 if is_number(node.right) else 1 if is_number(node.left) else None
