"""The way through the code of a ``forward`` to the place where it stopped: which statements ran, with what, as far as that is certain.

What is certain is gone through as it ran: branches whose condition is known, each round of a loop over modules, methods of the
same module. What is not is gone through once, and noted as what may have run.
"""

from __future__ import annotations

import ast
from types import FunctionType
from typing import Any

from torch.nn import Module

from modlab.inspection import stores
from modlab.instrumentation.accidents import bodies
from modlab.instrumentation.accidents.account import Source
from modlab.instrumentation.accidents.bodies import Body, is_within
from modlab.instrumentation.accidents.certainties import UNKNOWN, Scope, is_super, known, method_of
from modlab.instrumentation.accidents.frames import Frame
from modlab.instrumentation.accidents.scene import shape_of
from modlab.instrumentation.accidents.statements import Statements

_DEEP = 4  # methods within methods


def follow(source: Source) -> None:
    """Go through the code of a module up to where it stopped."""
    own = [frame for frame in source.call.frames if frame.owner is source.call.module and not frame.is_torch and frame.is_function]
    first = next((frame for frame in own if frame.function == "forward"), own[0] if own else None)
    body = bodies.of_code(first.code) if first is not None else None
    if first is None or body is None:
        source.certain, source.within = False, True
        return
    walk = Walk(source, source.call.frames[source.call.frames.index(first) + 1 :])
    scope = walk.entered(first, body, source.call.module)
    walk.arguments(scope)
    walk.run(scope)
    if not source.stopped:
        source.within = True
    for one in source.scopes:
        _after(source, one)
        for name, value in one.values.items() if one.frame is not None else ():
            source.settle(value, shape_of(one.frame.names.get(name)) if one.frame is not None else None)


class Walk:
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
        block = Statements(self, scope)
        block.go(scope.body.tree.body)
        return block.results[0] if len(block.results) == 1 and not self.source.stopped else self.source.value()

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
    if is_super(node.value):
        line = [(base, vars(base)[node.attr]) for base in cls.__mro__ if node.attr in vars(base)]
        codes = [getattr(found, "__code__", None) for _, found in line]
        place = codes.index(scope.code) + 1 if scope.code in codes else len(line)
        return method_of(line[place][0], node.attr) if place < len(line) else None
    if known(scope, node.value) is not module or node.attr in stores.contents(module):
        return None
    return method_of(cls, node.attr)


def _parameters(body: Body, skip: int) -> tuple[list[str], list[str]]:
    arguments = body.tree.args
    return [one.arg for one in (*arguments.posonlyargs, *arguments.args)][skip:], [one.arg for one in arguments.kwonlyargs]


def _defaults(body: Body) -> dict[str, ast.expr]:
    arguments = body.tree.args
    names = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
    pairs = zip(names[len(names) - len(arguments.defaults) :], arguments.defaults, strict=False)
    return {**dict(pairs), **{a.arg: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=False) if d is not None}}


def _after(source: Source, scope: Scope) -> None:
    """Count what is read behind the place of the error, too: who changes it changes that."""
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
    """The names that the statement that failed would have written anew."""
    for statement in scope.body.assigned:
        if scope.stopped_at(statement):
            return {target.id: statement for target in statement.targets if isinstance(target, ast.Name)}
    return {}
