"""A class → its docstring, the signature of ``forward``, file, line and code."""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import re
import sys
import textwrap
from types import CodeType
from weakref import WeakKeyDictionary

from torch.nn import Module

from modlab.records.definition import Definition

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
LINES = 60
DOC = 600

_known: WeakKeyDictionary[type, Definition] = WeakKeyDictionary()


def define(cls: type) -> Definition:
    """What can be said of the class without an instance; found once."""
    found = _known.get(cls)
    if found is None:
        found = _known[cls] = _define(cls)
    return found


def _define(cls: type) -> Definition:
    code = _code(cls)
    lines, first = _source(cls, code) if code else ([], 0)
    where = _where(code.co_filename, first) if code else ""
    text = textwrap.dedent("".join(lines[:LINES])).rstrip()
    note = f"the first {LINES} of {len(lines)} lines" if len(lines) > LINES else ""
    return Definition(cls.__name__, where, _signature(cls), _doc(cls), text, note)


def _code(cls: type) -> CodeType | None:
    """The code of a method that the class itself defines: it knows its file, which a class of a notebook does not."""
    own = {name: code for name, member in vars(cls).items() if (code := _undecorated(member)) is not None}
    return own.get("forward") or own.get("__init__") or next(iter(own.values()), None)


def _undecorated(member: object) -> CodeType | None:
    if not inspect.isfunction(member):
        return None
    try:
        code = getattr(inspect.unwrap(member), "__code__", None)
    except ValueError:  # a decorator that wraps itself
        return None
    return code if isinstance(code, CodeType) else None


def _source(cls: type, code: CodeType) -> tuple[list[str], int]:
    """The lines of the class statement around `code`, and the number of the first."""
    lines = linecache.getlines(code.co_filename)
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError, RecursionError):
        return [], code.co_firstlineno
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__ and node.lineno <= code.co_firstlineno <= (node.end_lineno or 0):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            return lines[first - 1 : node.end_lineno], first
    return [], code.co_firstlineno


def _where(file: str, line: int) -> str:
    """The file as an import would find it: no path of this machine, and no name that changes from run to run."""
    if "ipykernel_" in file or file.startswith(("<ipython-input", "<stdin>", "<string>")):
        return "a cell of this notebook"
    for root in sorted({os.path.abspath(p or ".") for p in sys.path}, key=len, reverse=True):
        if os.path.abspath(file).startswith(root + os.sep):
            return f"{os.path.relpath(file, root)}:{line}".replace(os.sep, "/")
    return f"{os.path.basename(file)}:{line}"


def _signature(cls: type) -> str:
    forward = getattr(cls, "forward", None)
    if forward is None or forward is getattr(Module, "forward", None):
        return ""
    try:
        signature = inspect.signature(forward)
    except (TypeError, ValueError):
        return ""
    bare = [p.replace(annotation=p.empty) for name, p in signature.parameters.items() if name != "self"]
    try:
        return _ADDRESS.sub("", f"forward{signature.replace(parameters=bare, return_annotation=signature.empty)}")
    except Exception:  # noqa: BLE001 - the repr of a default value is the user's code
        return f"forward({', '.join(p.name for p in bare)})"


def _doc(cls: type) -> str:
    """The class's own docstring (not that of ``nn.Module``), its first paragraphs."""
    text = vars(cls).get("__doc__")
    if not isinstance(text, str):
        return ""
    text = inspect.cleandoc(text).replace("``", "`")
    return text if len(text) <= DOC else text[:DOC].rsplit(" ", 1)[0] + " …"
