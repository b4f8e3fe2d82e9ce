"""The definition of a class: its docstring, the signature of ``forward``, file, line and code."""

from __future__ import annotations

import inspect
import linecache
import os
import re
import sys
import textwrap
import tokenize
from types import CodeType
from weakref import WeakKeyDictionary

from torch.nn import Module

from modlab.records.definition import Definition

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_ROLE = re.compile(r":(?:[a-z]+:)+`~?")  # what Sphinx reads: :math:`y = xA^T + b`, :class:`~torch.Tensor`
CELL = "a cell of this notebook"
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
    where = place_of(code.co_filename, first) if code else ""
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
    """The lines of the class statement around `code`, and the number of the first; only this block is tokenised."""
    lines = linecache.getlines(code.co_filename)
    statement = re.compile(rf"\s*class\s+{re.escape(cls.__name__)}\b")
    for first in range(min(code.co_firstlineno, len(lines)) - 1, -1, -1):
        if statement.match(lines[first]):
            break
    else:
        return [], code.co_firstlineno
    try:
        block = inspect.getblock(lines[first:])
    except (SyntaxError, IndentationError, tokenize.TokenError):
        return [], first + 1
    decorators = 0
    while first > decorators and lines[first - decorators - 1].lstrip().startswith("@"):
        decorators += 1
    return [*lines[first - decorators : first], *_without_doc(block)], first - decorators + 1


def _without_doc(block: list[str]) -> list[str]:
    """The lines of a class with a long docstring shortened to a mark: it is shown apart, and would hide the code."""
    depth = 0
    for token in tokenize.generate_tokens(iter(block).__next__):
        depth += token.type == tokenize.INDENT
        if depth and token.type == tokenize.STRING:
            first, last = token.start[0] - 1, token.end[0]
            return [*block[:first], f'{block[first][: token.start[1]]}"""..."""\n', *block[last:]] if last - first > 3 else block
        if depth and token.type not in (tokenize.INDENT, tokenize.NL, tokenize.COMMENT):
            break
    return block


def is_cell(file: str) -> bool:
    """Whether code of this file name was typed into a notebook or an interpreter."""
    return "ipykernel_" in file or file.startswith(("<ipython-input", "<stdin>", "<string>"))


def place_of(file: str, line: int) -> str:
    """The file as an import would find it: no path of this machine, and no name that changes from run to run."""
    if is_cell(file):
        return CELL
    for root in sorted({os.path.abspath(p or ".") for p in sys.path}, key=len, reverse=True):
        if os.path.abspath(file).startswith(root + os.sep):
            return f"{os.path.relpath(file, root)}:{line}".replace(os.sep, "/")
    return f"{os.path.basename(file)}:{line}"


def line_of(file: str, line: int) -> str:
    """The same, with the line also in a cell."""
    return f"{CELL}, line {line}" if is_cell(file) else place_of(file, line)


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
    text = _ROLE.sub("`", inspect.cleandoc(text).replace("``", "`"))
    return text if len(text) <= DOC else text[:DOC].rsplit(" ", 1)[0] + " …"
