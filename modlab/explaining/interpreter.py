"""An interpreter for the code of a ``forward`` up to the failure: which statements certainly ran, and with what values.

What is certain is followed as it ran: branches whose condition is known, each round of a loop over modules, methods of the same
module. Anything else is followed once, and recorded as what may have run.
"""

from __future__ import annotations

import ast
from typing import Any, NamedTuple

from modlab.explaining import rounds, source_code
from modlab.explaining.account import ForwardSource
from modlab.explaining.expressions import LAST, MANY, Expressions, Walk, bracketed, is_number, parameters
from modlab.explaining.failure import shape_of
from modlab.explaining.frames import Frame
from modlab.explaining.source_code import extent_of, is_within, stored
from modlab.explaining.static_evaluation import UNKNOWN, Scope, known, truth

_STEPS = 1_500  # maximum number of statements
_STAYING: tuple[type, ...] = (ast.Raise, ast.Return, ast.Break)  # these cannot have happened if a later round ran


def follow(source: ForwardSource) -> None:
    """Go through a module's code up to the failure."""
    own = [frame for frame in source.call.frames if frame.owner is source.call.module and not frame.is_torch and frame.is_function]
    first = next((frame for frame in own if frame.function == "forward"), own[0] if own else None)
    body = source_code.of_code(first.code) if first is not None else None
    if first is None or body is None:
        source.certain, source.within = False, True
        return
    walk = Walk(source, source.call.frames[source.call.frames.index(first) + 1 :])
    scope = Scope(body, first.code, source.call.module, first.globals, first, body.extent(first.position()), source.shapes)
    source.scopes.append(scope)
    _arguments(source, scope, first)
    Interpreter(walk, scope).go(body.tree.body)
    if not source.stopped:
        source.within = True
    for one in source.scopes:
        _after(source, one)
        for name, value in one.values.items() if one.frame is not None else ():
            source.settle(value, shape_of(one.frame.names.get(name)) if one.frame is not None else None)


class Left(NamedTuple):
    """How a block was left, and whether that is certain."""

    how: type
    certain: bool = True


class Interpreter(Expressions):
    """Goes through the statements of one function in order; `results` are the values it may have returned."""

    def __init__(self, walk: Walk, scope: Scope) -> None:
        super().__init__(walk, scope)
        self.stays: tuple[type, ...] = (ast.Raise,) if scope.frame is None else (ast.Raise, ast.Return)
        self.results: list[int] = []

    def run(self, scope: Scope) -> int:
        """Go through another function; return the value that it returned."""
        block = Interpreter(self.walk, scope)
        block.go(scope.body.tree.body)
        return block.results[0] if len(block.results) == 1 and not self.source.stopped else self.source.value()

    def go(self, body: list[ast.stmt]) -> Left | None:
        """Go through statements up to the one that failed; return how they were left, if they were."""
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
            if here and not source.stopped:  # it is inside something that is not examined
                source.stopped = source.within = True
                source.certain = False
                del source.ran[ran:]
            if left is not None and left.certain:
                source.perhaps = outer
                return left
            if left is not None:  # what follows ran only if this did not leave
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
        """An assignment, or a standalone expression."""
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
        """A condition: the branch that was taken, if that is certain; otherwise both, as what may have run."""
        source = self.source
        test = truth(self.scope, statement.test)
        self.value(statement.test)
        if source.stopped:
            return None
        if here:  # the branch with the failed line was taken
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
        """Which way a condition went if one branch would have left the code, which did continue; or None."""
        for block, way in ((statement.body, False), (statement.orelse, True)):
            if block and isinstance(block[-1], self.stays):
                self.closed(statement)
                return way
        return None

    def maybe(self, block: list[ast.stmt], told: str) -> Left | None:
        """Statements that may or may not have run."""
        results = list(self.results)
        with self.doubted(block, told):
            left = self.go(block)
        if len(self.results) > len(results):
            self.results = [*results, self.source.value(), self.source.value()]  # it may have returned something else
        return left

    def other(self, statement: ast.stmt, here: bool) -> Left | None:
        """``while``, ``try`` and ``match``: what they contain may have run."""
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

    # ---- loops

    def loop(self, loop: ast.For, here: bool) -> Left | None:
        """A loop: each round that ran, if the items are known."""
        source, scope = self.source, self.scope
        found = rounds.of(scope, loop.iter)
        self.value(loop.iter)
        inside = here and any(map(self.is_at, loop.body))
        if source.stopped or (here and not inside and not any(map(self.is_at, loop.orelse))):
            return None
        written = stored(loop)
        for node in scope.body.read:  # read in each round, not carried from one to the next
            if node.id in scope.values and node.id not in written and is_within(loop, node):
                source.uses[scope.values[node.id]] += MANY
        if found is None or (not inside and not found.counted) or (inside and scope.frame is None):
            return self.unknown_loop(loop, inside)
        possible = [len(found.members)]
        if inside and scope.frame is not None:
            possible = rounds.reached(found, loop.target, scope.frame.names, frozenset[str]().union(*map(stored, loop.body)))
        if not possible or source.perhaps:
            return self.unknown_loop(loop, inside)
        last = possible[0]
        source.skipped += max(last - LAST, 0)
        if last > LAST:
            self.forget(loop)
        left = self.rounds(loop, found.members[max(last - LAST, 0) : last], inside)
        if not inside:
            if left is None:
                left = self.go(loop.orelse)
            return left
        if len(possible) > 1:  # the member occurs more than once
            self.perhaps_before(loop, loop.body)
            source.certain, source.within = False, True
        self.bind(loop.target, found.members[last] if len(possible) == 1 else UNKNOWN)
        stays, self.stays = self.stays, (*_STAYING, ast.Continue)
        self.go(loop.body)
        self.stays, source.stopped = stays, True
        source.again = len(possible) > 1 or (last > 0 and self.runs_again(loop, loop.body))
        return None

    def rounds(self, loop: ast.For, members: list[Any], inside: bool) -> Left | None:
        """Completed rounds; how they left the loop."""
        source = self.source
        stays, self.stays = self.stays, _STAYING if inside else self.stays
        outer, possible = source.perhaps, None
        self.walk.past += 1
        for member in members:
            self.bind(loop.target, member)
            left = self.go(loop.body)
            if left is not None and left.certain and left.how is not ast.Continue:
                possible = None if left.how is ast.Break else left
                break
            if left is not None and not left.certain and left.how is not ast.Continue:  # there may be no further rounds
                self.doubt(f"may have run: {head(loop)}")
                possible = left
        self.walk.past -= 1
        self.stays, source.perhaps = stays, outer
        if possible is not None and not possible.certain:
            self.forget(loop)
        return out_of_loop(possible)

    def unknown_loop(self, loop: ast.For, inside: bool) -> Left | None:
        """A loop whose items, or the round in which it stopped, are unknown."""
        source = self.source
        source.certain = False
        self.closed(loop)
        self.forget(loop)
        if not inside:
            left = self.maybe(loop.body, f"may have run: {head(loop)}")
            self.forget(loop)
            return out_of_loop(possible_of([left]))
        first = self.is_first(loop)
        if not first:
            self.perhaps_before(loop, loop.body)
        self.go(loop.body)
        source.stopped = source.within = True
        source.again = self.runs_again(loop, loop.body) and not first
        return None

    def perhaps_before(self, loop: ast.For | ast.While, body: list[ast.stmt]) -> None:
        """What may have run in earlier rounds than the one that stopped."""
        self.maybe(body, f"may have run before: {head(loop)}")
        self.forget(loop)

    def is_first(self, loop: ast.For) -> bool:
        """Whether a loop over something unknown was in its first round, judged by its counter or its item."""
        assert self.scope.frame is not None
        names, iterated, target = self.scope.frame.names, loop.iter, loop.target
        start: object = 0
        if isinstance(iterated, ast.Call) and isinstance(iterated.func, ast.Name) and iterated.func.id in ("range", "enumerate"):
            if iterated.func.id == "enumerate":
                target = target.elts[0] if isinstance(target, ast.Tuple) and len(iterated.args) == 1 else ast.Constant(None)
            elif len(iterated.args) > 1:
                start = iterated.args[0].value if isinstance(iterated.args[0], ast.Constant) else None
            number = names.get(target.id) if isinstance(target, ast.Name) else None
            return type(number) is int and number == start
        listed = names.get(iterated.id) if isinstance(iterated, ast.Name) else None
        member = names.get(target.id) if isinstance(target, ast.Name) else None
        return isinstance(listed, (list, tuple)) and len(listed) > 0 and member is not None and listed[0] is member


def possible_of(lefts: list[Left | None]) -> Left | None:
    """How one of several blocks may have left; None for those that raise."""
    return next((Left(left.how, certain=False) for left in lefts if left is not None and left.how is not ast.Raise), None)


def out_of_loop(left: Left | None) -> Left | None:
    """What also leaves the code around a loop; None for break and continue."""
    return None if left is None or left.how in (ast.Break, ast.Continue) else left


def head(statement: ast.stmt) -> str:
    """The first line of a statement."""
    if isinstance(statement, ast.For):
        return f"for {ast.unparse(statement.target)} in {ast.unparse(statement.iter)}"
    if isinstance(statement, (ast.If, ast.While)):
        return f"{'if' if isinstance(statement, ast.If) else 'while'} {ast.unparse(statement.test)}"
    return ast.unparse(statement).partition("\n")[0].rstrip(":")


def _arguments(source: ForwardSource, scope: Scope, frame: Frame) -> None:
    """Bind the arguments that ``forward`` was called with."""
    call = source.call
    positional, others = parameters(scope.body, skip=1)
    called = frame.function == "forward" and call.args is not None
    given: dict[str, Any] = {**dict(zip(positional, call.args or (), strict=False)), **call.kwargs} if called else {}
    for name in (*positional, *others):
        unchanged = scope.body.written.get(name, 0) == 1 and name in frame.names
        thing = frame.names[name] if unchanged else given.get(name, UNKNOWN)
        scope.values[name] = source.value(shape_of(thing))
        if thing is not UNKNOWN:
            scope.known[name] = thing
        if called:
            source.inputs[scope.values[name]] = name


def _after(source: ForwardSource, scope: Scope) -> None:
    """Also count reads after the point of failure: a changed value would affect them too."""
    body, frame = scope.body, scope.frame
    if frame is None or not source.taken:
        return
    line, stop = frame.line - body.line + 1, scope.stop
    assigned = _assigned(scope)
    for node in body.read:
        if node.id not in scope.values:
            continue
        behind = node.lineno > line if stop is None else (node.lineno, node.col_offset) >= stop[1]
        if behind and (node.id not in assigned or is_within(assigned[node.id], node)):
            source.uses[scope.values[node.id]] += 1


def _assigned(scope: Scope) -> dict[str, ast.stmt]:
    """The names that the failed statement would have reassigned."""
    for statement in scope.body.assigned:
        if scope.stopped_at(statement):
            return {target.id: statement for target in statement.targets if isinstance(target, ast.Name)}
    return {}
