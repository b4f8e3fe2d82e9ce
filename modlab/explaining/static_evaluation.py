"""Static evaluation: the certain value of an expression in a ``forward`` when it ran, found without calling anything.

It covers names assigned once, plain attributes that nothing writes, known sizes, and comparisons of plain values. Everything else
is unknown.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import CodeType, FunctionType, ModuleType
from typing import Any

from torch import Tensor, nn
from torch.nn import Module

from modlab.explaining import operands, source_code
from modlab.explaining.frames import Frame
from modlab.explaining.source_code import Body, Extent
from modlab.inspection import stores

UNKNOWN: Any = operands.MISSING
_PLAIN = (bool, int, float, str, type(None))
_LISTS = (list, tuple, dict, set, frozenset, range)
_LARGE = 2**40  # larger numbers are never sizes
_MEMBERS = 1_000


@dataclass(slots=True)
class Scope:
    """One function that is running, or has run: the values of its names at the point examined.

    Attributes:
        body: its source.
        code: its code.
        module: the module whose method it is; None for a plain function.
        globals: its global names.
        frame: the frame in which it stopped; None if it completed.
        stop: the position in the source where it stopped.
        values: the numbers of its names' values.
        known: what its names certainly hold.
        shapes: the shape of each value, or None if unknown.
    """

    body: Body
    code: CodeType
    module: Module | None
    globals: Mapping[str, Any]
    frame: Frame | None
    stop: Extent | None
    shapes: list[tuple[int, ...] | None]
    values: dict[str, int] = field(default_factory=dict)
    known: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        arguments = [*self.body.tree.args.posonlyargs, *self.body.tree.args.args]
        if arguments and self.module is not None:
            self.known[arguments[0].arg] = self.module

    def shape(self, node: ast.expr) -> tuple[int, ...] | None:
        """The shape of a name's value, or None."""
        return self.shapes[self.values[node.id]] if isinstance(node, ast.Name) and node.id in self.values else None

    def stopped_at(self, node: ast.stmt | ast.expr) -> bool:
        """Whether it stopped in a node (on its lines, if the exact position is unknown)."""
        if self.frame is None:
            return False
        line = self.frame.line - self.body.line + 1 if self.stop is None else self.stop[0][0]
        if not node.lineno <= line <= (node.end_lineno or node.lineno):  # nearly always
            return False
        first, last = source_code.extent_of(node)
        return self.stop is None or (first <= self.stop[0] and self.stop[1] <= last)


def module_at(scope: Scope | None, node: ast.expr) -> Module | None:
    """The module that an expression evaluates to, or None."""
    found = known(scope, node) if scope is not None else None
    return found if stores.is_module(found) else None


def known(scope: Scope, node: ast.AST) -> Any:
    """The value of an expression, or `UNKNOWN`."""
    ask = _ASKED.get(type(node))
    return ask(scope, node) if ask is not None else UNKNOWN


def truth(scope: Scope, node: ast.expr) -> bool | None:
    """Whether a condition held; None if uncertain."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = truth(scope, node.operand)
        return None if inner is None else not inner
    if isinstance(node, ast.BoolOp):
        parts = [truth(scope, part) for part in node.values]
        decides = isinstance(node.op, ast.Or)
        return decides if decides in parts else None if None in parts else not decides
    return _truthy(known(scope, node))


def _truthy(thing: Any) -> bool | None:
    kind = type(thing)
    if thing is UNKNOWN or issubclass(kind, Tensor):
        return None
    if kind in _PLAIN or kind in _LISTS:
        return bool(thing)
    if stores.is_module(thing):
        length = _length(thing)
        if length is not None:
            return length > 0
    return None if any(name in vars(base) for base in kind.__mro__ for name in ("__bool__", "__len__")) else True


def _length(thing: Any) -> int | None:
    if type(thing) in _LISTS or type(thing) is str:
        return len(thing)
    own = getattr(type(thing), "__len__", None) if stores.is_module(thing) else None
    return len(stores.named_children(thing)) if own is not None and own in _COUNTING else None


_COUNTING = tuple(cls.__len__ for cls in (nn.Sequential, nn.ModuleList, nn.ModuleDict))


def _named(scope: Scope, node: ast.Name) -> Any:
    name, body, frame = node.id, scope.body, scope.frame
    if name in scope.known:
        return _untouched(scope, name, scope.known[name])
    written = body.written.get(name, 0)
    if written > 1 or name in body.looped:
        return UNKNOWN
    if frame is not None and name in frame.names:
        return _untouched(scope, name, frame.names[name])
    return UNKNOWN if written else scope.globals.get(name, UNKNOWN)


def _untouched(scope: Scope, name: str, thing: Any) -> Any:
    """The value, or `UNKNOWN` for a list, dict or set whose contents may have changed."""
    return UNKNOWN if type(thing) in (list, dict, set) and name in scope.body.touched else thing


def _attribute(scope: Scope, node: ast.Attribute) -> Any:
    shape = scope.shape(node.value)
    if node.attr in ("shape", "ndim") and shape is not None:
        return shape if node.attr == "shape" else len(shape)
    owner = known(scope, node.value)
    if owner is UNKNOWN or issubclass(type(owner), Tensor):
        return UNKNOWN
    if type(owner) is ModuleType:
        return vars(owner).get(node.attr, UNKNOWN)
    if isinstance(owner, type) or _computed(type(owner), node.attr):
        return UNKNOWN
    found = operands.attribute(owner, node.attr)
    if found is UNKNOWN and stores.is_module(owner):
        found = next((vars(base)[node.attr] for base in type(owner).__mro__ if node.attr in vars(base)), UNKNOWN)
        return found if type(found) in _PLAIN and not _is_written(scope, node.attr) else UNKNOWN
    return found if (stores.is_module(found) and not _is_given(scope, node.attr)) or not _is_written(scope, node.attr) else UNKNOWN


def _computed(cls: type, name: str) -> bool:
    """Whether reading an attribute of a class's objects runs code: a property, or a ``__getattribute__``."""
    how: Any = cls.__getattribute__
    if how not in (object.__getattribute__, Module.__getattribute__):
        return True
    found = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
    return hasattr(type(found), "__set__") or hasattr(type(found), "__delete__")


def _is_given(scope: Scope, name: str) -> bool:
    """Whether the function itself assigns to an attribute of that name: ``self.l = ...``."""
    return any(isinstance(t, ast.Attribute) and t.attr == name for one in scope.body.assigned for t in one.targets)


def _is_written(scope: Scope, name: str) -> bool:
    """Whether the function, or a method of the module that it names, writes an attribute of that name."""
    touched = scope.body.touched
    if name in touched or "*" in touched:
        return True
    for method in scope.code.co_names if scope.module is not None else ():
        function = method_of(type(scope.module), method) if method != name else None
        if function is not None and name in function.__code__.co_names:
            body = source_code.of_code(function.__code__)
            if body is None or name in body.touched:
                return True
    return False


def method_of(cls: type, name: str) -> FunctionType | None:
    """A plain method of a user's class, as defined there; or None."""
    found = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
    return found if type(found) is FunctionType and not str(found.__module__).startswith("torch.") else None


def is_super(node: ast.expr) -> bool:
    """Whether an expression is ``super()``."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _subscript(scope: Scope, node: ast.Subscript) -> Any:
    owner = known(scope, node.value)
    if owner is UNKNOWN:
        return UNKNOWN
    if isinstance(node.slice, ast.Slice):
        ends = [None if part is None else known(scope, part) for part in (node.slice.lower, node.slice.upper, node.slice.step)]
        sequence = members(owner)
        if sequence is None or any(type(end) not in (int, type(None)) for end in ends) or ends[2] == 0:
            return UNKNOWN
        return tuple(sequence[slice(*ends)])
    return operands.member(owner, known(scope, node.slice))


def members(thing: Any) -> list[Any] | None:
    """The items that a loop iterates over, for lists, ranges, dicts and torch's containers; None for anything else."""
    if type(thing) in (list, tuple, range):
        return list(thing[:_MEMBERS])
    if stores.is_module(thing):
        way = getattr(type(thing), "__iter__", None)
        if way in (nn.Sequential.__iter__, nn.ModuleList.__iter__):
            return [child for _, child in stores.named_children(thing)]
        return [name for name, _ in stores.named_children(thing)] if way is nn.ModuleDict.__iter__ else None
    return list(thing) if type(thing) is dict else None


_COMPARED: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def _compared(scope: Scope, node: ast.Compare) -> Any:
    if len(node.ops) > 1:
        return UNKNOWN
    left, right, kind = known(scope, node.left), known(scope, node.comparators[0]), node.ops[0]
    if left is UNKNOWN or right is UNKNOWN:
        return UNKNOWN
    if isinstance(kind, (ast.Is, ast.IsNot)):
        return (left is right) is isinstance(kind, ast.Is)
    if isinstance(kind, (ast.In, ast.NotIn)):
        right = tuple(members(right) or ()) if issubclass(type(right), nn.ModuleDict) else right
        plain = type(right) in _LISTS and len(right) <= _MEMBERS and all(map(_is_plain, right))
        return (left in right) is isinstance(kind, ast.In) if plain and _is_plain(left) else UNKNOWN
    return _COMPARED[type(kind)](left, right) if _is_plain(left) and _is_plain(right) and _fit(kind, left, right) else UNKNOWN


def _is_plain(thing: Any) -> bool:
    return type(thing) in _PLAIN or (type(thing) is tuple and all(type(part) in _PLAIN for part in thing))


def _fit(kind: ast.cmpop, left: Any, right: Any) -> bool:
    numbers = type(left) in (bool, int, float) and type(right) in (bool, int, float)
    return numbers or isinstance(kind, (ast.Eq, ast.NotEq)) or (type(left) is str and type(right) is str)


_COUNTED: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def _counted(scope: Scope, node: ast.BinOp) -> Any:
    count = _COUNTED.get(type(node.op))
    if count is None:
        return UNKNOWN
    left, right = known(scope, node.left), known(scope, node.right)
    if type(left) is not int or type(right) is not int or max(abs(left), abs(right)) > _LARGE:
        return UNKNOWN
    return count(left, right) if right or count in (operator.add, operator.sub, operator.mul) else UNKNOWN


def _negated(scope: Scope, node: ast.UnaryOp) -> Any:
    if isinstance(node.op, ast.Not):
        found = truth(scope, node)
        return UNKNOWN if found is None else found
    value = known(scope, node.operand)
    return -value if isinstance(node.op, ast.USub) and type(value) in (int, float) else UNKNOWN


def _either(scope: Scope, node: ast.BoolOp) -> Any:
    """The part of ``a or b`` that is its value, if each part before it is certain."""
    for part in node.values[:-1]:
        found = known(scope, part)
        held = _truthy(found)
        if held is None or held is isinstance(node.op, ast.Or):
            return UNKNOWN if held is None else found
    return known(scope, node.values[-1])


def _chosen(scope: Scope, node: ast.IfExp) -> Any:
    held = truth(scope, node.test)
    return UNKNOWN if held is None else known(scope, node.body if held else node.orelse)


def _text(scope: Scope, node: ast.JoinedStr) -> Any:
    words = []
    for part in node.values:
        plain = isinstance(part, ast.FormattedValue) and part.conversion == -1 and part.format_spec is None
        value = known(scope, part.value if isinstance(part, ast.FormattedValue) and plain else part)
        if type(value) not in (int, str):
            return UNKNOWN
        words.append(str(value))
    return "".join(words)


def _asked(scope: Scope, node: ast.Call) -> Any:
    """The result of one of the few functions that can be evaluated without running anything."""
    if isinstance(node.func, ast.Attribute):
        return _measured(scope, node.func, node.args)
    name = node.func.id if isinstance(node.func, ast.Name) and not node.keywords else ""
    if name not in _TELLING or name in scope.globals or name in scope.body.written:
        return UNKNOWN
    if name == "len" and len(node.args) == 1 and isinstance(node.args[0], ast.Name) and (shape := scope.shape(node.args[0])):
        return shape[0]
    given = [known(scope, part) for part in node.args]
    return UNKNOWN if not given or UNKNOWN in map(_sure, given) else _TELLING[name](given)


def _sure(thing: Any) -> Any:
    """Replaces anything but `UNKNOWN` with None, so that the user's objects are never compared."""
    return UNKNOWN if thing is UNKNOWN else None


def _measured(scope: Scope, node: ast.Attribute, given: list[ast.expr]) -> Any:
    shape = scope.shape(node.value)
    if node.attr not in ("size", "dim") or shape is None:
        return UNKNOWN
    if not given:
        return shape if node.attr == "size" else len(shape)
    return operands.member(shape, known(scope, given[0]))


def _len(given: list[Any]) -> Any:
    length = _length(given[0])
    return UNKNOWN if length is None else length


def _isinstance(given: list[Any]) -> Any:
    kinds = given[1] if len(given) == 2 and type(given[1]) is tuple else tuple(given[1:])
    plain = all(type(kind) is type or kind is Tensor for kind in kinds)
    return any(issubclass(type(given[0]), kind) for kind in kinds) if plain and kinds else UNKNOWN


def _hasattr(given: list[Any]) -> Any:
    named = len(given) == 2 and type(given[1]) is str and stores.is_module(given[0])
    return True if named and operands.attribute(given[0], given[1]) is not UNKNOWN else UNKNOWN


def _getattr(given: list[Any]) -> Any:
    return operands.attribute(given[0], given[1]) if stores.is_module(given[0]) and type(given[1]) is str else UNKNOWN


_TELLING: dict[str, Callable[[list[Any]], Any]] = {"len": _len, "isinstance": _isinstance, "hasattr": _hasattr, "getattr": _getattr}
_ASKED: dict[type, Callable[[Scope, Any], Any]] = {
    ast.Constant: lambda _, node: node.value,
    ast.Name: _named,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.Compare: _compared,
    ast.BinOp: _counted,
    ast.UnaryOp: _negated,
    ast.BoolOp: _either,
    ast.IfExp: _chosen,
    ast.JoinedStr: _text,
    ast.Call: _asked,
}
