"""Suspects in the user's own code: lines that change a tensor in place, cut the graph, or hide modules."""

from __future__ import annotations

import ast
import inspect
import linecache
import re
from collections.abc import Iterator
from textwrap import dedent

from torch.nn import Module

from modlab.explaining import code_fixes, operands, source_code
from modlab.explaining.calls import join
from modlab.explaining.failure import Failure
from modlab.explaining.frames import Frame
from modlab.inspection import stores
from modlab.inspection.definitions import place_of

MODULES = 5_000  # maximum number of a model's modules examined
FOUND = 6
LINES = 600  # maximum lines of a function or cell that is parsed

IN_PLACE = re.compile(
    r"(?:^|;)\s*[\w.\[\]]*[\w\])]\s*(?:\+|-|\*|/|//|@|\*\*|%|&|\|)=(?!=)|\.(?!requires_grad_|zero_grad)[a-z]\w*[a-z0-9]_\("
    r"|^\s*\w[\w.]*\[[^=\]]*\]\s*=[^=]|inplace\s*=\s*True"
)
DETACHED = re.compile(
    r"\.detach\(\)|\.item\(\)|\.data\b|\.numpy\(|\bno_grad\b|\binference_mode\b|\btorch\.tensor\(|set_grad_enabled\(False\)|\.argmax\("
    r"|requires_grad_?\s*[(=]\s*False"
)

Suspect = tuple[str, str]
"""A place in the code ("net.py:12") and its line; or a module's path and its class."""


def _of_code(code: object, pattern: re.Pattern[str], until: int | None = None) -> Iterator[Suspect]:
    name, first = getattr(code, "co_filename", ""), getattr(code, "co_firstlineno", 1) or 1
    last = max((line for _, _, line in code.co_lines() if line), default=first) if hasattr(code, "co_lines") else first
    source = linecache.getlines(name)
    for number in range(first, min(last if until is None else min(last, until), len(source)) + 1):
        line = source[number - 1].strip()
        if not line.startswith("#") and pattern.search(line):
            yield place_of(name, number), line


def lines(failure: Failure, pattern: re.Pattern[str]) -> list[Suspect]:
    """Matching lines in the functions of the traceback, up to where each stopped, and in the forwards of the models there."""
    found: dict[Suspect, None] = {}
    for frame in failure.frames:
        if frame.is_users:
            found.update(dict.fromkeys(_of_code(frame.code, pattern, frame.line)))
    for _, model in failure.models[:4]:
        for cls in _classes(model):
            forward = next((vars(base)["forward"] for base in cls.__mro__ if "forward" in vars(base)), None)
            if inspect.isfunction(forward):
                found.update(dict.fromkeys(_of_code(forward.__code__, pattern)))
    return list(found)[:FOUND]


def _classes(model: Module) -> list[type]:
    found: dict[type, None] = {}
    for _, module in walk(model):
        cls = type(module)
        if not cls.__module__.startswith("torch."):
            found.setdefault(cls)
    return list(found)


def walk(model: Module, limit: int = MODULES) -> Iterator[tuple[str, Module]]:
    """Paths and modules, each module once, at most `limit`."""
    stack, seen = [("", model)], {id(model)}
    while stack and limit:
        limit -= 1
        path, module = stack.pop()
        yield path, module
        for name, child in reversed(stores.named_children(module)):
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                stack.append((join(path, name), child))


def carried(frame: Frame) -> list[str]:
    """The names that a loop carries from round to round: in the running loop, read before they are written there."""
    lines = frame.lines()
    if not lines or len(lines) > LINES:
        return []
    try:
        tree = ast.parse(dedent("".join(line for _, line in lines)))
    except (SyntaxError, ValueError):
        return []
    line = frame.line - lines[0][0] + 1
    loops = [node for node in ast.walk(tree) if isinstance(node, (ast.For, ast.While)) and node.lineno <= line <= (node.end_lineno or 0)]
    if not loops:
        return []
    loop = max(loops, key=lambda one: one.lineno)
    written: set[str] = set()
    read: dict[str, None] = {}
    _order(loop.body, written if isinstance(loop, ast.While) else written | set(_names(loop.target, ast.Store)), written, read)
    return [name for name in read if name in written]


def _order(body: list[ast.stmt], known: set[str], written: set[str], read: dict[str, None]) -> None:
    for statement in body:
        inner = [part for name in ("body", "orelse", "finalbody") for part in getattr(statement, name, [])]
        if inner:
            _order(inner, known, written, read)
            continue
        loads = [*_names(statement, ast.Load), *(_names(statement.target, ast.Store) if isinstance(statement, ast.AugAssign) else ())]
        read.update(dict.fromkeys(name for name in loads if name not in written and name not in known))
        written.update(_names(statement, ast.Store))


def _names(node: ast.AST, context: type) -> list[str]:
    return [inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name) and isinstance(inner.ctx, context)]


def assigned_from(frame: Frame, name: str) -> Module | None:
    """The module whose call's result was last assigned to a name in a frame's code (``out = self.model(x).mean()``), or None."""
    value = source_code.last_given(frame, name)
    while isinstance(value, (ast.Call, ast.Subscript, ast.Attribute)) and (inner := _called_first(value)) is not None:
        value = inner
    return _of_call(value, frame)


def given_by(frame: Frame, name: str) -> Module | None:
    """The same, but only if the name holds the call's own result."""
    return _of_call(source_code.last_given(frame, name), frame)


def _called_first(node: ast.Call | ast.Subscript | ast.Attribute) -> ast.expr | None:
    """What is to the left of ``.mean()`` or ``[0]``, if it contains a call itself; or None."""
    left = node.func if isinstance(node, ast.Call) else node.value
    inner = left.value if isinstance(left, ast.Attribute) else left
    return inner if any(isinstance(part, ast.Call) for part in ast.walk(inner)) else None


def _of_call(value: ast.expr | None, frame: Frame) -> Module | None:
    module = operands.follow(value.func, frame) if isinstance(value, ast.Call) else None
    return module if stores.is_module(module) else None


def returns_nothing(cls: type) -> bool:
    """Whether a class's ``forward`` always returns None, judged by its source."""
    tree = code_fixes.forward_of(cls)
    if tree is None or isinstance(tree.body[-1], ast.Raise):
        return False
    return not any(
        isinstance(node, (ast.Yield, ast.YieldFrom)) or (isinstance(node, ast.Return) and node.value is not None) for node in ast.walk(tree)
    )


def in_place_modules(failure: Failure) -> list[Suspect]:
    """The modules of the models there that change their input in place."""
    found = [
        (join(name, path), type(module).__name__)
        for name, model in failure.models[:4]
        for path, module in walk(model)
        if stores.contents(module).get("inplace") is True
    ]
    return found[:FOUND]
