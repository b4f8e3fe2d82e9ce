"""A call on the way through a function: of a module, of one of torch's functions, of a method."""

from __future__ import annotations

import ast

from torch.nn import Module

from modlab.inspection import stores
from modlab.instrumentation.accidents import calls
from modlab.instrumentation.accidents.certainties import is_super, known, method_of, module_at
from modlab.instrumentation.accidents.footing import Footing
from modlab.instrumentation.accidents.scene import shape_of
from modlab.instrumentation.accidents.widths import ELEMENTWISE

_FLATTENING = ("flatten", "view", "reshape")
_RESHAPING = ("squeeze_", "unsqueeze_", "transpose_", "t_", "swapaxes_", "swapdims_", "resize_", "resize_as_", "set_", "as_strided_")
_ROOMS = ("F", "torch", "functional")


class Callings(Footing):
    """The calls in one function."""

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
        """Whether it is a method of the module itself, and the user's."""
        module = self.source.call.module
        own = known(self.scope, node.value) is module and method_of(type(module), node.attr) is not None
        return own or is_super(node.value)

    def stop_at(self, node: ast.Call, numbers: dict[int | str, int], exact: bool) -> None:
        """The call that failed: what it was given is what counts; `exact` if that is what the module inside got."""
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
            above = names[id(module)].rpartition(".")[0]
            around = calls.at(root, above)  # a loop goes through its neighbours, too
            for key, child in stores.named_children(around) if around is not None else ():
                names.setdefault(id(child), calls.join(above, key))
        return names[id(module)]


def is_number(node: ast.expr) -> bool:
    """Whether an expression is a plain number."""
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
