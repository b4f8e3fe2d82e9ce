"""Expressions on the way through a function: which value each gives, what was called in it, and whether it failed."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

from torch.nn import Module

from modlab import format
from modlab.explaining import calls, rounds, source_code
from modlab.explaining.account import ForwardSource
from modlab.explaining.failure import shape_of
from modlab.explaining.frames import Frame
from modlab.explaining.shape_inference import ELEMENTWISE
from modlab.explaining.source_code import Body, extent_of, stored
from modlab.explaining.static_evaluation import UNKNOWN, Scope, is_super, known, method_of, module_at, truth
from modlab.inspection import stores

INNER = ("<listcomp>", "<genexpr>", "<setcomp>", "<dictcomp>")
MANY = 2  # uses of a value that is read an unknown number of times
LAST = 4  # loop rounds examined before the one that stopped
_TEXT = 60  # characters of a condition
_DEEP = 4  # maximum depth of methods within methods
_FLATTENING = ("flatten", "view", "reshape")
_RESHAPING = ("squeeze_", "unsqueeze_", "transpose_", "t_", "swapaxes_", "swapdims_", "resize_", "resize_as_", "set_", "as_strided_")
_ROOMS = ("F", "torch", "functional")
_ASKED = ("device", "dtype", "ndim", "is_cuda", "requires_grad", "training")  # attributes that do not reveal a size
_ROUNDS_OF = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_OPAQUE = (ast.Lambda, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.BoolOp, ast.NamedExpr)
_BY_NUMBER = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)


class Walk:
    """One way through the code of one call of a module.

    Attributes:
        source: what is found out.
        below: frames further in, of functions that the code called.
        depth: how many completed methods surround the code examined now.
        past: how many completed rounds do.
        names: of modules whose names are not in the code.
    """

    def __init__(self, source: ForwardSource, below: list[Frame]) -> None:
        self.source = source
        self.below = [frame for frame in below if not frame.is_torch]
        self.depth = 0
        self.past = 0
        self.names: dict[int, str] = {}


class Expressions:
    """The expressions of one function.

    Attributes:
        walk: the way through the whole call.
        scope: the function, and the current values of its names.
        source: what is found out.
    """

    def __init__(self, walk: Walk, scope: Scope) -> None:
        self.walk, self.scope = walk, scope
        self.source = walk.source

    def run(self, scope: Scope) -> int:
        """Go through another function; return the value that it returned."""
        raise NotImplementedError

    def value(self, node: ast.expr) -> int:
        """The number of an expression's value; records its calls on the way, but nothing after the point of failure."""
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
        """A conditional expression."""
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
        """``[head(x) for head in self.heads]``: each of its rounds."""
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
        """An expression that is not examined: its calls may have run."""
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

    # ---- calls: of a module, of one of torch's functions, of a method

    def call(self, node: ast.Call) -> int:
        """A call: of a module, of one of torch's functions, or of a method."""
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
            if module is None and not room and self.entering(node, numbers):
                return source.value()
            self.stop_at(node, numbers, exact=module is not None or source.inner is None)
            source.helped = module is None and not room and self.may_repeat(node.func)
            return source.value()
        return self.ended(node, module, room, method, numbers, parts)

    def is_line_of(self, node: ast.Call, module: Module | None) -> bool:
        """Whether this call failed, if only the line is known."""
        inner = self.source.inner
        return self.scope.stop is None and inner is not None and module is inner.module and self.is_at(node)

    def ended(
        self,
        node: ast.Call,
        module: Module | None,
        room: bool,
        method: bool,
        numbers: dict[int | str, int],
        parts: list[tuple[int | str, ast.expr]],
    ) -> int:
        """The value that a completed call returned."""
        source, scope = self.source, self.scope
        if module is None and not room:
            given = self.called(node, numbers)
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
        plain = all(isinstance(part, ast.Constant) or is_number(part) for _, part in parts[1:])
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
        """Whether it is a method of the module itself, defined by the user."""
        module = self.source.call.module
        own = known(self.scope, node.value) is module and method_of(type(module), node.attr) is not None
        return own or is_super(node.value)

    def stop_at(self, node: ast.Call, numbers: dict[int | str, int], exact: bool) -> None:
        """Record the arguments of the call that failed; `exact` means they are what the inner module received."""
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
        """Names in the expression of a callee are read an unknown number of times."""
        while isinstance(node, ast.Attribute):
            node = node.value
        self.closed(node)

    def name_of(self, node: ast.expr, module: Module) -> str:
        """The module's name in the model: as written, if that is a dotted name that starts at the model."""
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
            above = names[id(module)].rpartition(".")[0]
            around = calls.at(root, above)  # a loop visits its neighbors too
            for key, child in stores.named_children(around) if around is not None else ():
                names.setdefault(id(child), calls.join(above, key))
        return names[id(module)]

    # ---- functions that the code called

    def called(self, node: ast.Call, numbers: dict[int | str, int]) -> int | None:
        """The value that a method of the module itself returned, found by going through it; None if that is impossible."""
        module = self.source.call.module
        method = _method(self.scope, node.func, module) if isinstance(node.func, ast.Attribute) and self.walk.depth < _DEEP else None
        body = source_code.of_code(method.__code__) if method is not None else None
        if method is None or body is None or body.tree.decorator_list:
            return None
        inner = Scope(body, method.__code__, module, method.__globals__, None, None, self.source.shapes)
        if not self.passed(inner, node, numbers):
            return None
        self.walk.depth += 1
        given = self.run(inner)
        self.walk.depth -= 1
        return given

    def passed(self, inner: Scope, node: ast.Call, numbers: dict[int | str, int]) -> bool:
        """Bind a function's parameters to the call's arguments; return whether that worked."""
        positional, others = parameters(inner.body, skip=1 if inner.module is not None else 0)
        if any(isinstance(part, ast.Starred) for part in node.args) or "**" in numbers or len(node.args) > len(positional):
            return False
        parts: dict[str, tuple[int, ast.expr]] = {name: (numbers[i], node.args[i]) for i, name in enumerate(positional[: len(node.args)])}
        parts.update({k.arg: (numbers[k.arg], k.value) for k in node.keywords if k.arg is not None})
        defaults = _defaults(inner.body)
        for name in (*positional, *others):
            value, written = parts.get(name, (self.source.value(), defaults.get(name)))
            inner.values[name] = value
            thing = known(self.scope, written) if written is not None and (name in parts or isinstance(written, ast.Constant)) else UNKNOWN
            if thing is not UNKNOWN and type(thing) not in (list, dict, set):
                inner.known[name] = thing
        return True

    def entering(self, node: ast.Call, numbers: dict[int | str, int]) -> bool:
        """Continue inside a function that did not complete, if it is the one called here."""
        named = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""
        frame = self.walk.below[0] if self.walk.below else None
        if frame is None or frame.function != named or frame.is_torch:
            return False
        body, owner = source_code.of_code(frame.code), frame.owner
        if body is None or (owner is not None and owner is not self.source.call.module):
            return False
        self.walk.below = self.walk.below[1:]
        inner = Scope(body, frame.code, owner, frame.globals, frame, body.extent(frame.position()), self.source.shapes)
        if not self.passed(inner, node, numbers):
            return False
        self.source.scopes.append(inner)
        self.run(inner)
        self.source.stopped = True
        return True

    # ---- the place of the error

    def is_at(self, node: ast.stmt | ast.expr) -> bool:
        """Whether the failure is inside a node (on its lines, if the exact position is unknown)."""
        return not self.source.perhaps and not self.walk.past and self.scope.stopped_at(node)

    def within(self, node: ast.expr) -> bool:
        """Whether the failure is inside a comprehension, or in the comprehension's own frame."""
        scope, below = self.scope, self.walk.below
        if scope.frame is None or scope.stop is None or self.source.perhaps or self.walk.past:
            return False
        inner = scope.body.extent(below[0].position()) if below and below[0].function in INNER else None
        first, last = extent_of(node)
        return self.is_at(node) or (inner is not None and first <= inner[0] and inner[1] <= last)

    def met(self, node: ast.expr) -> bool:
        """Whether this expression is the one that failed."""
        source, scope = self.source, self.scope
        if source.stopped or source.perhaps or scope.frame is None or scope.stop is None or self.walk.past:
            return False
        return node.lineno == scope.stop[0][0] and extent_of(node) == scope.stop

    def runs_again(self, node: ast.AST, body: Iterable[ast.AST]) -> bool:
        """Whether each round of a loop calls the module that failed: its name does not depend on the loop variables."""
        inner = self.source.inner.module if self.source.inner is not None else None
        targets = stored(node)
        funcs = [part.func for one in body for part in ast.walk(one) if isinstance(part, ast.Call)]
        found = [func for func in funcs if inner is not None and module_at(self.scope, func) is inner]
        return any(not any(isinstance(name, ast.Name) and name.id in targets for name in ast.walk(func)) for func in found)

    # ---- what is not certain

    @contextmanager
    def doubted(self, nodes: Iterable[ast.AST], told: str) -> Iterator[None]:
        """Examine nodes that may or may not have run; afterwards the names have their old values."""
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
        """What follows may have run, under a condition; an outer condition takes precedence."""
        self.source.perhaps = self.source.perhaps or format.cut(told, _TEXT)

    # ---- names

    def assign(self, target: ast.expr, value: int, thing: Any) -> None:
        """Assign an expression's value to one or more names."""
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
        """Bind a loop's names to their values in one round."""
        self.forget(target)
        for name, thing in rounds.bound(target, member):
            if thing is not UNKNOWN:
                self.scope.known[name] = thing
                self.source.settle(self.scope.values[name], shape_of(thing))

    def forget(self, node: ast.AST) -> None:
        """Mark names as having a new, unknown value."""
        for name in stored(node):
            self.scope.values[name] = self.source.value()
            self.scope.known.pop(name, None)

    def closed(self, node: ast.AST) -> None:
        """Names in a node are read an unknown number of times."""
        values, uses = self.scope.values, self.source.uses
        for inner in (node,) if isinstance(node, (ast.Constant, ast.Name)) else ast.walk(node):
            if isinstance(inner, ast.Name) and inner.id in values:
                uses[values[inner.id]] += MANY


def is_number(node: ast.expr) -> bool:
    """Whether an expression is a plain number."""
    node = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def _is_room(node: ast.Attribute) -> bool:
    """Whether an attribute is one of torch's functions, as users import them."""
    owner = node.value
    return (isinstance(owner, ast.Name) and owner.id in _ROOMS) or (isinstance(owner, ast.Attribute) and owner.attr in _ROOMS)


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return f"{_dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else ast.unparse(node)


def _parts_of(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    return [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]


def _broadcast(one: tuple[int, ...] | None, other: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """The shape of two tensors combined element by element, which are known to fit."""
    if one is None or other is None:
        return None
    length = max(len(one), len(other))
    pairs = zip((1,) * (length - len(one)) + one, (1,) * (length - len(other)) + other, strict=True)
    return tuple(right if left == 1 else left for left, right in pairs)


def _beside_number(node: ast.expr) -> int | None:
    """Which operand of an operation is changed element by element: the one next to a plain number; or None."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return 0
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, _BY_NUMBER):
        return None
    return 0 if is_number(node.right) else 1 if is_number(node.left) else None


def bracketed(node: ast.expr) -> str:
    """A condition as part of another one."""
    text = ast.unparse(node)
    return f"({text})" if isinstance(node, (ast.BoolOp, ast.Compare, ast.IfExp)) else text


def _method(scope: Scope, node: ast.Attribute, module: Module) -> FunctionType | None:
    """The method of a user's class that ``self.name`` or ``super().name`` refers to, or None."""
    cls = type(module)
    if is_super(node.value):
        line = [(base, vars(base)[node.attr]) for base in cls.__mro__ if node.attr in vars(base)]
        codes = [getattr(found, "__code__", None) for _, found in line]
        place = codes.index(scope.code) + 1 if scope.code in codes else len(line)
        return method_of(line[place][0], node.attr) if place < len(line) else None
    if known(scope, node.value) is not module or node.attr in stores.contents(module):
        return None
    return method_of(cls, node.attr)


def parameters(body: Body, skip: int) -> tuple[list[str], list[str]]:
    """The names of a function's parameters: those that can be passed by position, and the rest."""
    arguments = body.tree.args
    return [one.arg for one in (*arguments.posonlyargs, *arguments.args)][skip:], [one.arg for one in arguments.kwonlyargs]


def _defaults(body: Body) -> dict[str, ast.expr]:
    arguments = body.tree.args
    names = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
    pairs = zip(names[len(names) - len(arguments.defaults) :], arguments.defaults, strict=False)
    return {**dict(pairs), **{a.arg: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=False) if d is not None}}
