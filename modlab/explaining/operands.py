"""The operands of the expression that failed. Nothing is called: only names, attributes and constant indices are followed."""

from __future__ import annotations

import ast
from itertools import combinations
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from modlab.explaining.frames import Frame
from modlab.inspection import stores

MISSING: Any = object()
_LONG = 60  # characters of an expression that can serve as a name
Sizes = tuple[int, ...]


class Operand(NamedTuple):
    """One operand of an expression: its source text and its value."""

    text: str
    thing: Any


def of_frame(frame: Frame) -> list[Operand]:
    """The operands of the expression at which a frame stopped: both sides, or a call's receiver and arguments."""
    expression = frame.expression()
    return [] if expression is None else [operand for node in _parts(expression) for operand in _followed(node, frame)]


def tensors(operands: list[Operand]) -> list[Operand]:
    """The operands that are tensors."""
    return [operand for operand in operands if issubclass(type(operand.thing), Tensor)]


def sides(frame: Frame | None) -> list[str]:
    """The source of both sides of an operation, or of a call on two tensors: ``a.add(b)``, ``torch.add(a, b)``; or empty."""
    expression = frame.expression() if frame is not None else None
    while isinstance(expression, (ast.Expr, ast.Assign, ast.AnnAssign, ast.Return)):
        expression = expression.value
    if frame is None or expression is None:
        return []
    parts = _sides_of_call(expression, frame) if isinstance(expression, ast.Call) else _parts(expression)
    texts = [ast.unparse(part) for part in parts if not isinstance(part, ast.Constant)]
    return texts if len(texts) == 2 and all(len(text) <= _LONG for text in texts) else []


def _sides_of_call(call: ast.Call, frame: Frame) -> list[ast.expr]:
    """Empty for a function that is not also a tensor method: what it combines is unknown."""
    if isinstance(call.func, ast.Attribute):
        name, owner = call.func.attr, follow(call.func.value, frame)
    else:
        name, owner = ast.unparse(call.func), torch
    if not hasattr(Tensor, name):
        return []
    if issubclass(type(owner), ModuleType):
        return call.args
    return _parts(call) if owner is MISSING or issubclass(type(owner), Tensor) else []


def conflict(pairs: list[tuple[str, Sizes]], sizes: tuple[int, int], place: int) -> list[tuple[str, Sizes]]:
    """Two tensors that cannot be broadcast, as torch's message says: those with these sizes in this dimension of the result."""
    for one, other in combinations(pairs, 2):
        most = max(len(one[1]), len(other[1]))
        found = [shape[place - most + len(shape)] if place >= most - len(shape) else 1 for _, shape in (one, other) if place < most]
        if tuple(found) in (sizes, sizes[::-1]):
            return [one, other]
    return []


def _parts(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Expr):
        return _parts(node.value)
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.AugAssign):
        return [node.target, node.value]
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.UnaryOp):
        return [node.operand]
    if isinstance(node, ast.Call):
        receiver = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        return [*receiver, *node.args, *(keyword.value for keyword in node.keywords)]
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.Return)):
        return _parts(node.value) if node.value is not None else []
    if isinstance(node, ast.Subscript):
        return [node.value, node.slice]
    return [node] if isinstance(node, ast.expr) else []


def _followed(node: ast.expr, frame: Frame) -> list[Operand]:
    if isinstance(node, (ast.List, ast.Tuple)):
        return [operand for element in node.elts for operand in _followed(element, frame)]
    if isinstance(node, ast.Starred):
        return _followed(node.value, frame)
    thing = follow(node, frame)
    if thing is MISSING:
        return []
    text = ast.unparse(node)
    if type(thing) in (list, tuple) and thing and all(issubclass(type(part), Tensor) for part in thing):
        return [Operand(f"{text}[{i}]", part) for i, part in enumerate(thing)]
    return [Operand(text, thing)]


def follow(node: ast.AST, frame: Frame) -> Any:
    """The value of an expression, or `MISSING` if it cannot be read without running code."""
    if isinstance(node, ast.Name):
        return frame.names.get(node.id, frame.globals.get(node.id, MISSING))
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Attribute):
        owner = follow(node.value, frame)
        return MISSING if owner is MISSING else attribute(owner, node.attr)
    if isinstance(node, ast.Subscript):
        return member(follow(node.value, frame), follow(node.slice, frame))
    return MISSING


def attribute(owner: Any, name: str) -> Any:
    """An attribute from an object's own store: no property, no ``__getattr__``."""
    if stores.is_module(owner):
        held = stores.contents(owner)
        for store in ("_parameters", "_buffers", "_modules"):
            found = held.get(store)
            if found and name in found:
                return found[name]
        return held.get(name, MISSING)
    if issubclass(type(owner), Tensor):
        return MISSING
    try:
        return object.__getattribute__(owner, "__dict__").get(name, MISSING)
    except AttributeError:
        return MISSING


def member(owner: Any, key: Any) -> Any:
    """The item of a list, dict or module container at an index."""
    if stores.is_module(owner):
        found = stores.contents(owner).get("_modules", {})
        members = list(found.values())
        if type(key) is int and -len(members) <= key < len(members):
            return members[key]
        return found.get(key, MISSING) if type(key) is str else MISSING
    if type(owner) in (list, tuple) and type(key) is int and -len(owner) <= key < len(owner):
        return owner[key]
    if type(owner) is dict and type(key) in (str, int):
        return owner.get(key, MISSING)
    return MISSING
