"""The statements of a function, gone through one after the other: which ran, as far as that is certain."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from modlab.instrumentation.accidents.bodies import extent_of
from modlab.instrumentation.accidents.callings import is_number
from modlab.instrumentation.accidents.certainties import UNKNOWN, Scope, known, truth
from modlab.instrumentation.accidents.footing import bracketed
from modlab.instrumentation.accidents.loops import Left, Loops, head, out_of_loop, possible_of

if TYPE_CHECKING:
    from modlab.instrumentation.accidents.passage import Walk

_STEPS = 1_500  # statements


class Statements(Loops):
    """The statements of one function; `results` are the values that it may have given."""

    def __init__(self, walk: Walk, scope: Scope) -> None:
        super().__init__(walk, scope)
        self.results: list[int] = []

    def go(self, body: list[ast.stmt]) -> Left | None:
        """Go through statements until the one that failed was met; how they were left, if they were."""
        source = self.source
        outer, perhaps = source.perhaps, None
        for statement in body:
            if source.stopped:
                break
            source.steps += 1
            if source.steps > _STEPS:
                raise RecursionError("too long to be gone through")
            here, ran = self.is_at(statement), len(source.ran)
            left = self.one(statement, here)
            if here and not source.stopped:  # it stands in what is not gone through
                source.stopped = source.within = True
                source.certain = False
                del source.ran[ran:]
            if left is not None and left.certain:
                source.perhaps = outer
                return left
            if left is not None:  # what follows ran, if this did not leave
                told = f"ran if not {bracketed(statement.test)}" if isinstance(statement, ast.If) else "may have run"
                self.doubt(told)
                source.certain, perhaps = False, left
        source.perhaps = outer
        return perhaps

    def one(self, statement: ast.stmt, here: bool) -> Left | None:
        """Go through one statement."""
        source, scope = self.source, self.scope
        if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return, ast.Assert)):
            if here and scope.stop is None:  # somewhere on these lines
                source.stopped = source.within = True
                return None
            self.statement(statement)
            return Left(ast.Return) if isinstance(statement, ast.Return) and not source.stopped else None
        if isinstance(statement, ast.If):
            return self.branch(statement, here)
        if isinstance(statement, ast.For):
            return self.loop(statement, here)
        if isinstance(statement, ast.With):
            for item in statement.items:
                self.value(item.context_expr)
                if item.optional_vars is not None:
                    self.forget(item.optional_vars)
            return self.go(statement.body)
        if isinstance(statement, (ast.Raise, ast.Break, ast.Continue)):
            return Left(type(statement))
        if isinstance(statement, (ast.Pass, ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal)):
            return None
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            self.closed(statement)
            self.forget(statement)
            return None
        return self.other(statement, here)

    def statement(self, statement: ast.stmt) -> None:
        """An assignment, or an expression alone."""
        source, scope = self.source, self.scope
        expression = statement.test if isinstance(statement, ast.Assert) else getattr(statement, "value", None)
        result = self.value(expression) if expression is not None else source.value()
        if isinstance(statement, ast.AugAssign):
            old = self.value(statement.target)
            if scope.frame is not None and scope.stop == extent_of(statement) and self.is_at(statement):
                source.taken[0] = old
                source.stopped = True
            result = source.value()
            if is_number(statement.value):
                source.same[result] = old
                source.settle(result, source.shapes[old])
        if source.stopped:
            return
        if isinstance(statement, ast.Return):
            self.results.append(result)
        thing = known(scope, expression) if expression is not None and not isinstance(statement, ast.AugAssign) else UNKNOWN
        for target in statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]:
            if target is not None:
                self.assign(target, result, thing)

    def branch(self, statement: ast.If, here: bool) -> Left | None:
        """A condition: the branch that was taken, where that is certain; else both, as what may have run."""
        source = self.source
        test = truth(self.scope, statement.test)
        self.value(statement.test)
        if source.stopped:
            return None
        if here:  # the branch in which the failed line stands was taken
            taken = next((block for block in (statement.body, statement.orelse) if any(map(self.is_at, block))), None)
            if taken is not None:
                self.go(taken)
            source.stopped = True
            return None
        if test is None and not source.perhaps:
            test = self.not_left(statement)
        if test is not None:
            return self.go(statement.body if test else statement.orelse)
        blocks = ((statement.body, ast.unparse(statement.test)), (statement.orelse, f"not {bracketed(statement.test)}"))
        lefts = [self.maybe(block, f"ran if {told}") for block, told in blocks]
        self.forget(statement)
        return possible_of(lefts)

    def not_left(self, statement: ast.If) -> bool | None:
        """Which way a condition went that would have left the code, which went on."""
        for block, way in ((statement.body, False), (statement.orelse, True)):
            if block and isinstance(block[-1], self.stays):
                self.closed(statement)
                return way
        return None

    def maybe(self, block: list[ast.stmt], told: str) -> Left | None:
        """Statements of which nobody knows whether they ran."""
        results = list(self.results)
        with self.doubted(block, told):
            left = self.go(block)
        if len(self.results) > len(results):
            self.results = [*results, self.source.value(), self.source.value()]  # it may have given something else
        return left

    def other(self, statement: ast.stmt, here: bool) -> Left | None:
        """Loops without a list, ``try``, ``match``: what stands in them may have run."""
        source = self.source
        blocks = [getattr(statement, name) for name in ("body", "orelse", "finalbody") if getattr(statement, name, None)]
        blocks += [part.body for name in ("handlers", "cases") for part in getattr(statement, name, ())]
        if here:
            source.certain = False
            self.closed(statement)
            around = isinstance(statement, ast.Try) and any(map(self.is_at, statement.body))
            if not around:
                self.forget(statement)
            inside = next((block for block in blocks if any(map(self.is_at, block))), None)
            if inside is not None and isinstance(statement, ast.While):
                self.perhaps_before(statement, inside)
            if inside is not None:
                self.go(inside)
            source.stopped = True
            if not around:
                source.within = True
                source.again = isinstance(statement, ast.While) and self.runs_again(statement, statement.body)
            return None
        lefts = [self.maybe(block, f"may have run: {head(statement)}") for block in blocks]
        source.certain = False
        self.closed(statement)
        self.forget(statement)
        return out_of_loop(possible_of(lefts)) if isinstance(statement, ast.While) else possible_of(lefts)
