"""Runs a lesson's notebook in this process, as it is or with answers put in."""

import ast
import contextlib
import io
import json
import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import torch

from modlab.lessons import lookup, notebooks
from modlab.lessons.content import Content

matplotlib.use("Agg")
NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
OPEN = re.compile(r'lesson\.(predict|why|recall)\("([^"]+)", \.\.\.\)')


def notebook_of(content: Content) -> dict[str, Any]:
    return json.loads((NOTEBOOKS / f"{content.name}.ipynb").read_text(encoding="utf-8"))


def answered(content: Content, source: str) -> str:
    """A cell with the right answers and the references put in."""
    questions = {question.name: question for question in content.questions}
    source = OPEN.sub(lambda match: f'lesson.{match[1]}("{match[2]}", {questions[match[2]].answer!r})', source)
    for task in content.tasks:
        if f'lesson.check("{task.name}", ' in source:
            source = source.replace(task.starter.strip(), task.reference.strip())
    return source


def run(content: Content, change: Callable[[str], str] = str) -> list[Any]:
    """Run all cells from top to bottom, show each cell's value in all its faces, and give these values."""
    names: dict[str, Any] = {"__name__": "__main__"}
    values = []
    folder = Path.cwd()
    os.chdir(NOTEBOOKS)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            for number, cell in enumerate(notebook_of(content)["cells"]):
                if cell["cell_type"] == "code":
                    values.append(run_cell(change(notebooks.source(cell)), names, f"<{content.name}, cell {number}>"))
    finally:
        os.chdir(folder)
    return values


def run_cell(source: str, names: dict[str, Any], place: str) -> Any:
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, place, "exec"), names)
    value = None if last is None else eval(compile(ast.Expression(last.value), place, "eval"), names)
    if value is not None:
        repr(value)
        for face in ("_repr_html_", "_repr_mimebundle_"):
            if hasattr(type(value), face):
                getattr(value, face)()
    return value


def lessons() -> list[Content]:
    """Those of the course that have a notebook."""
    return list(lookup.lessons())


def reseed() -> None:
    torch.manual_seed(0)
    random.seed(0)
