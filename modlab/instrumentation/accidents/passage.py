"""The way through the code of a ``forward`` to the place where it stopped: which statements ran, with what, as far as that is certain.

What is certain is gone through as it ran: branches whose condition is known, each round of a loop over modules, methods of the
same module. What is not is gone through once, and noted as what may have run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from types import FunctionType
from typing import Any, NamedTuple

from torch.nn import Module

from modlab import format
from modlab.inspection import stores
from modlab.instrumentation.accidents import bodies, calls, rounds
from modlab.instrumentation.accidents.account import Source
from modlab.instrumentation.accidents.bodies import Body, Extent
from modlab.instrumentation.accidents.certainties import UNKNOWN, Scope, known, method_of, module_at, truth
from modlab.instrumentation.accidents.frames import Frame
from modlab.instrumentation.accidents.scene import shape_of
from modlab.instrumentation.accidents.widths import ELEMENTWISE

_FLATTENING = ("flatten", "view", "reshape")
_RESHAPING = ("squeeze_", "unsqueeze_", "transpose_", "t_", "swapaxes_", "swapdims_", "resize_", "resize_as_", "set_", "as_strided_")
_ROOMS = ("F", "torch", "functional")
_ASKED = ("device", "dtype", "ndim", "is_cuda", "requires_grad", "training")  # attributes that tell no size
_ROUNDS_OF = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_OPAQUE = (ast.Lambda, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.BoolOp, ast.NamedExpr)
_STAYING: tuple[type, ...] = (ast.Raise, ast.Return, ast.Break)  # what cannot have happened where a later round ran
_INNER = ("<listcomp>", "<genexpr>", "<setcomp>", "<dictcomp>")
_BY_NUMBER = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)
_MANY = 2  # uses of what nobody knows how often it is read
_LAST = 4  # rounds of a loop that are looked at, before the one that stopped
_STEPS = 1_500  # statements
_DEEP = 4  # methods within methods
_TEXT = 60  # characters of a condition


def follow(source: Source) -> None:
    """Go through the code of a module up to where it stopped."""
    own = [frame for frame in source.call.frames if frame.owner is source.call.module and not frame.is_torch and frame.is_function]
    first = next((frame for frame in own if frame.function == "forward"), own[0] if own else None)
    body = bodies.of_code(first.code) if first is not None else None
    if first is None or body is None:
        source.certain, source.within = False, True
        return
    walk = _Walk(source, source.call.frames[source.call.frames.index(first) + 1 :])
    scope = walk.entered(first, body, source.call.module)
    walk.arguments(scope)
    walk.run(scope)
    if not source.stopped:
        source.within = True
    for one in source.scopes:
        _after(source, one)
        for name, value in one.values.items() if one.frame is not None else ():
            source.settle(value, shape_of(one.frame.names.get(name)) if one.frame is not None else None)


class _Walk:
    """One way through the code of one call of a module.

    Attributes:
        source: what is found out.
        below: the frames further in, of functions that the code called.
        depth: how many methods that came to their end are around what is looked at.
        past: how many rounds that came to their end are.
        names: of modules whose names do not stand in the code.
    """

    def __init__(self, source: Source, below: list[Frame]) -> None:
        self.source = source
        self.below = [frame for frame in below if not frame.is_torch]
        self.depth = 0
        self.past = 0
        self.names: dict[int, str] = {}

    # ---- functions

    def entered(self, frame: Frame, body: Body, module: Module | None) -> Scope:
        """The scope of a function that did not come to its end."""
        scope = Scope(body, frame.code, module, frame.globals, frame, body.extent(frame.position()), self.source.shapes)
        self.source.scopes.append(scope)
        return scope

    def arguments(self, scope: Scope) -> None:
        """What ``forward`` was called with."""
        source, call, frame = self.source, self.source.call, scope.frame
        assert frame is not None
        positional, others = _parameters(scope.body, skip=1)
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

    def run(self, scope: Scope) -> int:
        """Go through a function; the value that it gave."""
        found: list[int] = []
        _Block(self, scope, found).go(scope.body.tree.body)
        return found[0] if len(found) == 1 and not self.source.stopped else self.source.value()

    def called(self, scope: Scope, node: ast.Call, numbers: dict[int | str, int]) -> int | None:
        """The value that a method of the module itself gave, gone through in its turn; None where it cannot be."""
        module = self.source.call.module
        method = _method(scope, node.func, module) if isinstance(node.func, ast.Attribute) and self.depth < _DEEP else None
        body = bodies.of_code(method.__code__) if method is not None else None
        if method is None or body is None or body.tree.decorator_list:
            return None
        inner = Scope(body, method.__code__, module, method.__globals__, None, None, self.source.shapes)
        if not self.passed(scope, inner, node, numbers):
            return None
        self.depth += 1
        given = self.run(inner)
        self.depth -= 1
        return given

    def passed(self, scope: Scope, inner: Scope, node: ast.Call, numbers: dict[int | str, int]) -> bool:
        """Give the arguments of a function what it was called with."""
        positional, others = _parameters(inner.body, skip=1 if inner.module is not None else 0)
        if any(isinstance(part, ast.Starred) for part in node.args) or "**" in numbers or len(node.args) > len(positional):
            return False
        parts: dict[str, tuple[int, ast.expr]] = {name: (numbers[i], node.args[i]) for i, name in enumerate(positional[: len(node.args)])}
        parts.update({k.arg: (numbers[k.arg], k.value) for k in node.keywords if k.arg is not None})
        defaults = _defaults(inner.body)
        for name in (*positional, *others):
            value, written = parts.get(name, (self.source.value(), defaults.get(name)))
            inner.values[name] = value
            thing = known(scope, written) if written is not None and (name in parts or isinstance(written, ast.Constant)) else UNKNOWN
            if thing is not UNKNOWN and type(thing) not in (list, dict, set):
                inner.known[name] = thing
        return True

    def entering(self, scope: Scope, node: ast.Call, numbers: dict[int | str, int]) -> bool:
        """Go on in a function that did not come to its end, if it is what was called here."""
        named = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""
        frame = self.below[0] if self.below else None
        if frame is None or frame.function != named or frame.is_torch:
            return False
        body, owner = bodies.of_code(frame.code), frame.owner
        if body is None or (owner is not None and owner is not self.source.call.module):
            return False
        self.below = self.below[1:]
        inner = Scope(body, frame.code, owner, frame.globals, frame, body.extent(frame.position()), self.source.shapes)
        if not self.passed(scope, inner, node, numbers):
            return False
        self.source.scopes.append(inner)
        self.run(inner)
        self.source.stopped = True
        return True


def _method(scope: Scope, node: ast.Attribute, module: Module) -> FunctionType | None:
    """The method of a user's class that ``self.name`` or ``super().name`` stands for."""
    cls = type(module)
    if _is_super(node.value):
        line = [(base, vars(base)[node.attr]) for base in cls.__mro__ if node.attr in vars(base)]
        codes = [getattr(found, "__code__", None) for _, found in line]
        place = codes.index(scope.code) + 1 if scope.code in codes else len(line)
        return method_of(line[place][0], node.attr) if place < len(line) else None
    if known(scope, node.value) is not module or node.attr in stores.contents(module):
        return None
    return method_of(cls, node.attr)


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _parameters(body: Body, skip: int) -> tuple[list[str], list[str]]:
    arguments = body.tree.args
    return [one.arg for one in (*arguments.posonlyargs, *arguments.args)][skip:], [one.arg for one in arguments.kwonlyargs]


def _defaults(body: Body) -> dict[str, ast.expr]:
    arguments = body.tree.args
    names = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
    pairs = zip(names[len(names) - len(arguments.defaults) :], arguments.defaults, strict=False)
    return {**dict(pairs), **{a.arg: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=False) if d is not None}}


class _Left(NamedTuple):
    """How a block was left, and whether that is certain."""

    how: type
    certain: bool = True


class _Block:
    """Statements of one function, gone through one after the other."""

    def __init__(self, walk: _Walk, scope: Scope, results: list[int]) -> None:
        self.walk, self.scope, self.results = walk, scope, results
        self.source = walk.source
        self.stays: tuple[type, ...] = (ast.Raise,) if scope.frame is None else (ast.Raise, ast.Return)

    def go(self, body: list[ast.stmt]) -> _Left | None:
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
                told = f"ran if not {_bracketed(statement.test)}" if isinstance(statement, ast.If) else "may have run"
                source.perhaps = source.perhaps or _cut(told)
                source.certain, perhaps = False, left
        source.perhaps = outer
        return perhaps

    def is_at(self, node: ast.stmt | ast.expr) -> bool:
        """Whether what failed stands in a node (where its place is not known: on its lines)."""
        scope = self.scope
        if scope.frame is None or self.source.perhaps or self.walk.past:
            return False
        return _is_at(scope, scope.frame, node)

    def one(self, statement: ast.stmt, here: bool) -> _Left | None:
        """Go through one statement."""
        source, scope = self.source, self.scope
        if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return, ast.Assert)):
            if here and scope.stop is None:  # somewhere on these lines
                source.stopped = source.within = True
                return None
            self.statement(statement)
            return _Left(ast.Return) if isinstance(statement, ast.Return) and not source.stopped else None
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
            return _Left(type(statement))
        if isinstance(statement, (ast.Pass, ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal)):
            return None
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            self.closed(statement)
            self.forget(statement)
            return None
        return self.other(statement, here)

    def branch(self, statement: ast.If, here: bool) -> _Left | None:
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
        blocks = ((statement.body, ast.unparse(statement.test)), (statement.orelse, f"not {_bracketed(statement.test)}"))
        lefts = [self.maybe(block, f"ran if {told}") for block, told in blocks]
        self.forget(statement)
        return _possible(lefts)

    def not_left(self, statement: ast.If) -> bool | None:
        """Which way a condition went that would have left the code, which went on."""
        for block, way in ((statement.body, False), (statement.orelse, True)):
            if block and isinstance(block[-1], self.stays):
                self.closed(statement)
                return way
        return None

    def maybe(self, block: list[ast.stmt], told: str) -> _Left | None:
        """Statements of which nobody knows whether they ran."""
        source, scope = self.source, self.scope
        for statement in block:
            self.closed(statement)
        outer, values, held, ran = source.perhaps, dict(scope.values), dict(scope.known), len(source.ran)
        source.perhaps = outer or _cut(told)
        results = list(self.results)
        left = self.go(block)
        source.perhaps, scope.values, scope.known = outer, values, held
        if len(self.results) > len(results):
            self.results[:] = [*results, source.value(), source.value()]  # it may have given something else
        if len(source.ran) > ran:
            source.certain = False
        return left

    def other(self, statement: ast.stmt, here: bool) -> _Left | None:
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
        lefts = [self.maybe(block, f"may have run: {_head(statement)}") for block in blocks]
        source.certain = False
        self.closed(statement)
        self.forget(statement)
        return _out_of_loop(_possible(lefts)) if isinstance(statement, ast.While) else _possible(lefts)

    # ---- loops

    def loop(self, loop: ast.For, here: bool) -> _Left | None:
        """A loop: each round that ran, where it is known what it goes through."""
        source, scope = self.source, self.scope
        found = rounds.of(scope, loop.iter)
        self.value(loop.iter)
        inside = here and any(map(self.is_at, loop.body))
        if source.stopped or (here and not inside and not any(map(self.is_at, loop.orelse))):
            return None
        written = _stored(loop)
        for node in scope.body.read:  # read in each round, and not carried from one to the next
            if node.id in scope.values and node.id not in written and _is_within(loop, node):
                source.uses[scope.values[node.id]] += _MANY
        if found is None or (not inside and not found.counted) or (inside and scope.frame is None):
            return self.unknown_loop(loop, inside)
        possible = [len(found.members)]
        if inside and scope.frame is not None:
            possible = rounds.reached(found, loop.target, scope.frame.names, frozenset(_names(loop.body)))
        if not possible or source.perhaps:
            return self.unknown_loop(loop, inside)
        last = possible[0]
        source.skipped += max(last - _LAST, 0)
        if last > _LAST:
            self.forget(loop)
        left = self.rounds(loop, found.members[max(last - _LAST, 0) : last], inside)
        if not inside:
            if left is None:
                left = self.go(loop.orelse)
            return left
        if len(possible) > 1:  # a member that is in there more than once
            self.perhaps_before(loop, loop.body)
            source.certain, source.within = False, True
        self.bind(loop.target, found.members[last] if len(possible) == 1 else UNKNOWN)
        stays, self.stays = self.stays, (*_STAYING, ast.Continue)
        self.go(loop.body)
        self.stays, source.stopped = stays, True
        source.again = len(possible) > 1 or (last > 0 and self.runs_again(loop, loop.body))
        return None

    def rounds(self, loop: ast.For, members: list[Any], inside: bool) -> _Left | None:
        """Rounds that came to their end; how they left the loop."""
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
                source.perhaps, possible = source.perhaps or _cut(f"may have run: {_head(loop)}"), left
        self.walk.past -= 1
        self.stays, source.perhaps = stays, outer
        if possible is not None and not possible.certain:
            self.forget(loop)
        return _out_of_loop(possible)

    def bind(self, target: ast.expr, member: Any) -> None:
        """Give the names of a loop what they stand for in a round."""
        self.forget(target)
        for name, thing in rounds.bound(target, member):
            if thing is not UNKNOWN:
                self.scope.known[name] = thing
                self.source.settle(self.scope.values[name], shape_of(thing))

    def unknown_loop(self, loop: ast.For, inside: bool) -> _Left | None:
        """A loop of which nobody knows what it goes through, or in which round it stopped."""
        source = self.source
        source.certain = False
        self.closed(loop)
        self.forget(loop)
        if not inside:
            left = self.maybe(loop.body, f"may have run: {_head(loop)}")
            self.forget(loop)
            return _out_of_loop(_possible([left]))
        first = self.is_first(loop)
        if not first:
            self.perhaps_before(loop, loop.body)
        self.go(loop.body)
        source.stopped = source.within = True
        source.again = self.runs_again(loop, loop.body) and not first
        return None

    def perhaps_before(self, loop: ast.For | ast.While, body: list[ast.stmt]) -> None:
        """What may have run in rounds before the one that stopped."""
        self.maybe(body, f"may have run before: {_head(loop)}")
        self.forget(loop)

    def runs_again(self, node: ast.AST, body: Iterable[ast.AST]) -> bool:
        """Whether the module that failed is called in each round of a loop: it does not depend on what the loop goes through."""
        inner = self.source.inner.module if self.source.inner is not None else None
        targets = _stored(node)
        funcs = [part.func for one in body for part in ast.walk(one) if isinstance(part, ast.Call)]
        found = [func for func in funcs if inner is not None and module_at(self.scope, func) is inner]
        return any(not any(isinstance(name, ast.Name) and name.id in targets for name in ast.walk(func)) for func in found)

    def is_first(self, loop: ast.For) -> bool:
        """Whether a loop over something that is not known was in its first round, as its counter or its member shows."""
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

    # ---- expressions

    def statement(self, statement: ast.stmt) -> None:
        """An assignment, or an expression alone."""
        source, scope = self.source, self.scope
        expression = statement.test if isinstance(statement, ast.Assert) else getattr(statement, "value", None)
        result = self.value(expression) if expression is not None else source.value()
        if isinstance(statement, ast.AugAssign):
            old = self.value(statement.target)
            if scope.frame is not None and scope.stop == _extent(statement) and self.is_at(statement):
                source.taken[0] = old
                source.stopped = True
            result = source.value()
            if _is_number(statement.value):
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

    def forget(self, node: ast.AST) -> None:
        """Names that stand for something new, of which nothing is known."""
        for name in _stored(node):
            self.scope.values[name] = self.source.value()
            self.scope.known.pop(name, None)

    def closed(self, node: ast.AST) -> None:
        """What stands in a node is read, nobody knows how often."""
        values, uses = self.scope.values, self.source.uses
        for inner in (node,) if isinstance(node, (ast.Constant, ast.Name)) else ast.walk(node):
            if isinstance(inner, ast.Name) and inner.id in values:
                uses[values[inner.id]] += _MANY

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
        self.maybe([ast.Expr(node.body)], f"ran if {ast.unparse(node.test)}")
        self.maybe([ast.Expr(node.orelse)], f"ran if not {_bracketed(node.test)}")
        return source.value()

    def within(self, node: ast.expr) -> bool:
        """Whether what failed stands in an expression with rounds, or in the frame that these have of their own."""
        scope, below = self.scope, self.walk.below
        if scope.frame is None or scope.stop is None or self.source.perhaps or self.walk.past:
            return False
        inner = scope.body.extent(below[0].position()) if below and below[0].function in _INNER else None
        first, last = _extent(node)
        return self.is_at(node) or (inner is not None and first <= inner[0] and inner[1] <= last)

    def listed(self, node: Any) -> int:
        """``[head(x) for head in self.heads]``: each round of it."""
        source, scope, loop = self.source, self.scope, node.generators[0]
        element: ast.expr = node.value if isinstance(node, ast.DictComp) else node.elt
        found = rounds.of(scope, loop.iter)
        here = self.within(node)
        inner = next((frame for frame in self.walk.below if frame.function in _INNER), None) if here else None
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
        for member in found.members[max(last - _LAST, 0) : last]:
            self.bind(loop.target, member)
            gave.append(self.value(element))
        self.walk.past -= 1
        if here:
            source.skipped += max(last - _LAST, 0)
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
            self.maybe([ast.Expr(part) for part in parts], f"may have run: {ast.unparse(node)}")
        self.forget(node)
        return source.value()

    def met(self, node: ast.expr) -> bool:
        """Whether an expression is the one that failed."""
        source, scope = self.source, self.scope
        if source.stopped or source.perhaps or scope.frame is None or scope.stop is None or self.walk.past:
            return False
        return _extent(node) == scope.stop

    def call(self, node: ast.Call) -> int:
        """A call: of a module, of one of torch's functions, of a method."""
        source, scope = self.source, self.scope
        module = module_at(scope, node.func)
        room = isinstance(node.func, ast.Attribute) and _is_room(node.func)
        method = isinstance(node.func, ast.Attribute) and not room and module is None
        inside = ast.walk(node.func) if scope.stop is not None and self.is_at(node) else ()
        if any(self.met(part) for part in inside if isinstance(part, ast.expr)):
            source.stopped = source.within = True
            return source.value()
        parts: list[tuple[int | str, ast.expr]] = []
        if method and isinstance(node.func, ast.Attribute):
            parts.append((-1, node.func.value))
        parts += enumerate(node.args)
        parts += [(keyword.arg or "**", keyword.value) for keyword in node.keywords]
        if not method:
            self.read_by(node.func)
        numbers = {place: self.value(part) for place, part in parts}
        if source.stopped:
            return source.value()
        if self.met(node) or self.is_line_of(node, module):
            if module is None and not room and self.walk.entering(scope, node, numbers):
                return source.value()
            self.stop_at(node, numbers, exact=module is not None or source.inner is None)
            source.helped = module is None and not room and self.may_repeat(node.func)
            return source.value()
        return self.ended(node, module, room, method, numbers, parts)

    def is_line_of(self, node: ast.Call, module: Module | None) -> bool:
        """Whether a call is what failed, where no place is known."""
        inner = self.source.inner
        return self.scope.stop is None and inner is not None and module is inner.module and self.is_at(node)

    def ended(self, node: ast.Call, module: Module | None, room: bool, method: bool, numbers: dict[int | str, int],
              parts: list[tuple[int | str, ast.expr]]) -> int:  # fmt: skip
        """The value that a call gave which came to its end."""
        source, scope = self.source, self.scope
        if module is None and not room:
            given = self.walk.called(scope, node, numbers)
            if given is not None:
                return given
            if not (isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Call)):
                source.helpers.add(_dotted(node.func))
        taken = numbers.get(0, -1)
        if taken < 0:
            taken = source.value()
        if module is not None:
            return source.note(self.name_of(node.func, module), module, taken)
        if room or (method and isinstance(node.func, ast.Attribute) and self.is_own(node.func)):
            given = source.note(_dotted(node.func), None, taken)
        else:
            given = source.value()
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        plain = all(isinstance(part, ast.Constant) or _is_number(part) for _, part in parts[1:])
        if method and name in ELEMENTWISE and plain:
            source.same[given] = numbers[-1]
            source.settle(given, source.shapes[numbers[-1]])
        elif name in _FLATTENING:
            source.flat.add(given)
        elif method and name in _RESHAPING:
            for other in [other for other, value in scope.values.items() if value == numbers[-1]]:
                scope.values[other] = source.value()
        return given

    def is_own(self, node: ast.Attribute) -> bool:
        """Whether it is a method of the module itself, and the user's."""
        module = self.source.call.module
        own = known(self.scope, node.value) is module and method_of(type(module), node.attr) is not None
        return own or _is_super(node.value)

    def stop_at(self, node: ast.Call, numbers: dict[int | str, int], exact: bool) -> None:
        source = self.source
        starred = any(isinstance(argument, ast.Starred) for argument in node.args) or "**" in numbers
        source.taken = {} if starred else dict(numbers)
        source.stopped = True
        if exact and 0 in source.taken and source.inner is not None and source.inner.given:
            source.settle(source.taken[0], shape_of(source.inner.given[0]))

    def may_repeat(self, node: ast.expr) -> bool:
        """Whether the same function, or another method of the module, was called before."""
        name = _dotted(node)
        owner = name.rpartition(".")[0]
        own = isinstance(node, ast.Attribute) and self.is_own(node)
        return name in self.source.helpers or (own and any(one.rpartition(".")[0] == owner for one in self.source.helpers))

    def read_by(self, node: ast.expr) -> None:
        """What stands in the name of a function is read, nobody knows how often."""
        while isinstance(node, ast.Attribute):
            node = node.value
        self.closed(node)

    def name_of(self, node: ast.expr, module: Module) -> str:
        """How the model has a module: as it is written, where that is a dotted name from the model on."""
        parts: list[str] = []
        while isinstance(node, (ast.Attribute, ast.Subscript)):
            key = node.attr if isinstance(node, ast.Attribute) else known(self.scope, node.slice)
            if type(key) not in (str, int):
                break
            parts.insert(0, str(key))
            node = node.value
        path, root = ".".join(parts), self.source.call.module
        if isinstance(node, ast.Name) and path and known(self.scope, node) is root and calls.at(root, path) is module:
            return path
        names = self.walk.names
        if id(module) not in names:
            names[id(module)] = calls.path_to(root, module) or calls.in_attribute(root, module) or type(module).__name__
            around = calls.at(root, names[id(module)].rpartition(".")[0])  # a loop goes through its neighbours, too
            for key, child in stores.named_children(around) if around is not None else ():
                names.setdefault(id(child), calls.join(names[id(module)].rpartition(".")[0], key))
        return names[id(module)]


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
    return 0 if _is_number(node.right) else 1 if _is_number(node.left) else None


def _is_number(node: ast.expr) -> bool:
    node = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def _is_room(node: ast.Attribute) -> bool:
    """Whether a name is one of torch's functions, as users import them."""
    owner = node.value
    return (isinstance(owner, ast.Name) and owner.id in _ROOMS) or (isinstance(owner, ast.Attribute) and owner.attr in _ROOMS)


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return f"{_dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else ast.unparse(node)


def _names(body: Iterable[ast.AST]) -> set[str]:
    return {name for statement in body for name in _stored(statement)}


def _stored(node: ast.AST) -> frozenset[str]:
    """The names that are given something in a node; found once."""
    known: frozenset[str] | None = getattr(node, "_stored", None)
    if known is None:
        known = frozenset(inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name) and not isinstance(inner.ctx, ast.Load))
        node._stored = known  # type: ignore[attr-defined]
    return known


def _possible(lefts: list[_Left | None]) -> _Left | None:
    """How one of several blocks may have left; none where an error would have been raised."""
    return next((_Left(left.how, certain=False) for left in lefts if left is not None and left.how is not ast.Raise), None)


def _out_of_loop(left: _Left | None) -> _Left | None:
    """What leaves a loop, and the code around it with it."""
    return None if left is None or left.how in (ast.Break, ast.Continue) else left


def _head(statement: ast.stmt) -> str:
    """The first line of a statement."""
    if isinstance(statement, ast.For):
        return f"for {ast.unparse(statement.target)} in {ast.unparse(statement.iter)}"
    if isinstance(statement, (ast.If, ast.While)):
        return f"{'if' if isinstance(statement, ast.If) else 'while'} {ast.unparse(statement.test)}"
    return ast.unparse(statement).partition("\n")[0].rstrip(":")


def _bracketed(node: ast.expr) -> str:
    text = ast.unparse(node)
    return f"({text})" if isinstance(node, (ast.BoolOp, ast.Compare, ast.IfExp)) else text


def _cut(text: str) -> str:
    return format.cut(text, _TEXT)


def _after(source: Source, scope: Scope) -> None:
    """Count what is read behind the place of the error, too: who changes it changes that."""
    body, frame = scope.body, scope.frame
    if frame is None or not source.taken:
        return
    line, stop = frame.line - body.line + 1, scope.stop
    assigned = _assigned(scope, frame)
    for node in body.read:
        if node.id not in scope.values:
            continue
        behind = node.lineno > line if stop is None else (node.lineno, node.col_offset) >= stop[1]
        if behind and (node.id not in assigned or _is_within(assigned[node.id], node)):
            source.uses[scope.values[node.id]] += 1


def _assigned(scope: Scope, frame: Frame) -> dict[str, ast.stmt]:
    """The names that the statement that failed would have written anew."""
    for statement in scope.body.assigned:
        if _is_at(scope, frame, statement):
            return {target.id: statement for target in statement.targets if isinstance(target, ast.Name)}
    return {}


def _is_at(scope: Scope, frame: Frame, node: ast.stmt | ast.expr) -> bool:
    """Whether a frame stopped in a node (where its place is not known: on its lines)."""
    first, last = _extent(node)
    if scope.stop is None:
        return first[0] <= frame.line - scope.body.line + 1 <= last[0]
    return first <= scope.stop[0] and scope.stop[1] <= last


def _is_within(outer: ast.stmt, inner: ast.expr) -> bool:
    (first, last), (begin, end) = _extent(outer), _extent(inner)
    return first <= begin and end <= last


def _extent(node: ast.stmt | ast.expr) -> Extent:
    return (node.lineno, node.col_offset), (node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
