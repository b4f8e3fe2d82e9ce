"""What stands in a notebook: its cells, and the answers that a learner gave in them. Nothing is run."""

from __future__ import annotations

import ast
import json
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from modlab import files, format
from modlab.errors import ModlabError
from modlab.frozen import frozen
from modlab.lessons.cards import MIME

LESSON = "lesson"
"""What a notebook calls its lesson; `trace.why(...)` asks somebody else."""
ASKING = ("predict", "why", "recall")


LARGEST = 100_000_000
"""Bytes of a notebook that is read; what is larger is none that a person has made."""
_LONG = 200_000  # characters of a cell that is searched for answers
_DEEP = 60  # terms of a sum, levels of a list
_WIDE = 2**200  # numbers above are nobody's answer


class NotebookError(ModlabError, ValueError):
    """A file that cannot be read as a notebook."""


@frozen
class GivenAnswer:
    """One line of a learner's that answers a question.

    Attributes:
        cell: number of the cell, from 0.
        kind: the method: predict, why or recall.
        name: of the question.
        value: what stands there; Ellipsis where it is still open.
    """

    cell: int
    kind: str
    name: str
    value: Any


def read(file: Path) -> dict[str, Any]:
    """A notebook's JSON.

    Raises:
        NotebookError: it is none.
    """
    name, text = format.clean(file.name), b""
    try:
        text = files.content(file, LARGEST)
        notebook = json.loads(text)
    except OSError as error:
        raise NotebookError(f"{name} cannot be read: {(error.strerror or type(error).__name__).lower()}.") from error
    except (ValueError, RecursionError, MemoryError) as error:
        what = "it is empty" if not text else "it is broken: it is not JSON"
        raise NotebookError(f"{name} is not a notebook: {what}.") from error
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        raise NotebookError(f"{name} is not a notebook: it has no list of cells.")
    if not isinstance(notebook.get("metadata", {}), dict):
        raise NotebookError(f"{name} is not a notebook: its metadata is no object.")
    for number, cell in enumerate(notebook["cells"], 1):
        if not _is_cell(cell):
            raise NotebookError(f"{name} is not a notebook: its cell {number} has no type, no source or odd outputs.")
    return notebook


def _is_cell(cell: Any) -> bool:
    if not isinstance(cell, dict) or cell.get("cell_type") not in ("code", "markdown", "raw"):
        return False
    text, outputs = cell.get("source"), cell.get("outputs", [])
    lines = isinstance(text, str) or (isinstance(text, list) and all(isinstance(line, str) for line in text))
    return lines and isinstance(outputs, list) and all(_is_output(output) for output in outputs)


def _is_output(output: Any) -> bool:
    return isinstance(output, dict) and isinstance(output.get("output_type"), str) and isinstance(output.get("data", {}), dict)


def source(cell: dict[str, Any]) -> str:
    """A cell's text."""
    return "".join(cell["source"])


def lesson_name(notebook: dict[str, Any]) -> str:
    """The lesson that a notebook opens with ``Lesson("...")``; "" where it is none."""
    for _, call in _calls(notebook):
        if isinstance(call.func, ast.Name) and call.func.id == "Lesson" and call.args:
            name = _value(call.args[0])
            return name if isinstance(name, str) else ""
    return ""


def given(notebook: dict[str, Any]) -> list[GivenAnswer]:
    """The answers to questions, in the order of the cells; a cell that is no Python is passed over."""
    found = []
    for number, call in _calls(notebook):
        method = _asked(call)
        if method in ASKING and call.args:
            name = _value(call.args[0])
            named = [keyword.value for keyword in call.keywords if keyword.arg == "answer"]
            answers = [_value(node) for node in (*call.args[1:], *named)]
            if isinstance(name, str):
                found.append(GivenAnswer(number, method, name, answers[0] if len(answers) == 1 else answers or ...))
    return found


def answered(notebook: dict[str, Any], clicked: Mapping[str, Any] = MappingProxyType({})) -> list[GivenAnswer]:
    """The same with what was answered by a click, where the cell is still open.

    Args:
        notebook: its JSON; the card of a clicked answer keeps it in its output.
        clicked: answers of the file beside it, for what was clicked after the notebook was saved.
    """
    kept = {**clicked, **{str(one["question"]): one.get("said") for one in _kept(notebook) if "question" in one}}
    return [replace(one, value=kept.get(one.name, ...)) if one.value is ... else one for one in given(notebook)]


def checked(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """What the checks said when the notebook was last run, as its outputs keep it."""
    return [one for one in _kept(notebook) if "task" in one]


def _kept(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        output["data"][MIME]
        for cell in notebook["cells"]
        for output in cell.get("outputs", [])
        if isinstance(output.get("data", {}).get(MIME), dict)
    ]


def _calls(notebook: dict[str, Any]) -> Iterator[tuple[int, ast.Call]]:
    for number, cell in enumerate(notebook["cells"]):
        text = source(cell) if cell["cell_type"] == "code" else ""
        if not text or len(text) > _LONG:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # "invalid escape sequence": the learner's own
                tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue  # a magic, or something half written
        yield from ((number, node) for node in ast.walk(tree) if isinstance(node, ast.Call))


def _asked(call: ast.Call) -> str:
    """The method of the lesson that is called; "" where it is another's."""
    match call.func:
        case ast.Attribute(value=ast.Name(id=name), attr=method) if name == LESSON:
            return method
    return ""


def _value(node: ast.expr, depth: int = 0) -> Any:
    """A literal, or a simple product or sum of some; a bare name stands for its text, anything else for what was written."""
    try:
        found = _simple(node, depth)
        return _written(node) if isinstance(found, int) and abs(found) > _WIDE else found
    except (ValueError, TypeError, SyntaxError, ArithmeticError, RecursionError, MemoryError):
        return _written(node)


def _simple(node: ast.expr, depth: int) -> Any:
    match node:
        case ast.Name(id=name):
            return name
        case ast.BinOp(left=left, op=ast.Mult() | ast.Add() | ast.Sub() as sign, right=right) if depth < _DEEP:
            one, other = _value(left, depth + 1), _value(right, depth + 1)
            if isinstance(one, int | float) and isinstance(other, int | float):
                return _SIGNS[type(sign)](one, other)
            return _written(node)
        case ast.BinOp():
            return _written(node)
        case ast.Call(func=ast.Attribute(attr="Size"), args=[sizes]) if depth < _DEEP:
            return _value(sizes, depth + 1)
    return ast.literal_eval(node)


def _written(node: ast.expr) -> str:
    try:
        return ast.unparse(node)
    except (ValueError, RecursionError, MemoryError):  # a number of too many digits, too many terms
        return "(too long to be read)"


_SIGNS: dict[type, Callable[[Any, Any], Any]] = {ast.Mult: operator.mul, ast.Add: operator.add, ast.Sub: operator.sub}
