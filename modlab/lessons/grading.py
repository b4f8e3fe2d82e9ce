"""A lesson as an assignment for nbgrader: each check is a graded cell, whose points are the share of what the learner's code does right."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from modlab import files
from modlab.errors import ModlabError
from modlab.lessons import copies, notebooks

SCHEMA = 3  # of nbgrader's metadata
POINTS = 2.0


def write(file: Path, folder: Path, points: float = POINTS) -> Path:
    """Write a lesson's notebook as an assignment into nbgrader's `source/ASSIGNMENT`.

    Args:
        file: the lesson's notebook.
        folder: it lies here afterwards; contents of a lesson of one's own lie beside it.
        points: of each task.

    Returns:
        The new file.

    Raises:
        ModlabError: there is no task in it, or a file of that name is there.
    """
    made, there = assignment(notebooks.read(file), points), folder / file.name
    if there.exists():
        raise ModlabError(f"{there} is there already and stays unchanged: remove it, or name another folder.")
    folder.mkdir(parents=True, exist_ok=True)
    files.write(there, copies.text(made))
    contents = file.with_suffix(".py")
    if contents.stem.isidentifier() and contents.is_file():  # the course's hold the answers, and come with modlab
        files.write(folder / contents.name, files.content(contents, notebooks.LARGEST))
    return there


def assignment(notebook: dict[str, Any], points: float = POINTS) -> dict[str, Any]:
    """The notebook without outputs, with each check in a cell of its own that nbgrader grades.

    The learner's code stands in the cell above, which nbgrader leaves alone; the graded cell is locked.
    """
    cells: list[dict[str, Any]] = []
    for cell in copies.without_outputs(notebook)["cells"]:
        code, check = _parted(cell)
        if not check:
            cells.append(cell)
            continue
        cells += [{**cell, "source": code}] if code else []
        name = f"task-{sum('nbgrader' in one.get('metadata', {}) for one in cells) + 1}"
        source = f"verdict = {check}\ndisplay(verdict)\n{points:g} * verdict.score"
        cells.append({**cell, "id": name, "source": source, "metadata": {"nbgrader": _graded(name, points)}})
    if not any("nbgrader" in cell.get("metadata", {}) for cell in cells):
        raise ModlabError("There is no task in this notebook, so there is nothing to grade: a task ends with lesson.check(...).")
    return {**notebook, "cells": cells}


def _parted(cell: dict[str, Any]) -> tuple[str, str]:
    """A cell's code, and the check that is its last line; ("", "") where that is none."""
    source = notebooks.source(cell)
    if cell["cell_type"] != "code":
        return "", ""
    try:
        last = ast.parse(source).body[-1]
    except (SyntaxError, IndexError):
        return "", ""
    if not isinstance(last, ast.Expr) or not isinstance(last.value, ast.Call) or not isinstance(last.value.func, ast.Attribute):
        return "", ""
    asked = last.value.func
    if asked.attr != "check" or ast.unparse(asked.value) != notebooks.LESSON:
        return "", ""
    return "\n".join(source.splitlines()[: last.lineno - 1]).rstrip(), ast.unparse(last.value)


def _graded(name: str, points: float) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA,
        "cell_type": "code",
        "grade": True,
        "grade_id": name,
        "locked": True,
        "points": points,
        "solution": False,
        "task": False,
    }
