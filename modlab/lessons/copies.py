"""The learner's copy of the notebooks: without outputs, so that no answer is visible before it is asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from modlab.errors import ModlabError


def course() -> Path:
    """The folder of the course in this checkout."""
    folder = Path(__file__).parents[2] / "notebooks"
    if not folder.is_dir():
        raise ModlabError(
            "The course is not beside this modlab: it was installed without its repository.\n"
            "  Clone the repository and run `make lab` there, or name the folder: python -m modlab lessons copy DIR --from NOTEBOOKS"
        )
    return folder


def copy(target: Path, source: Path) -> tuple[list[Path], list[Path]]:
    """Copy every notebook of `source` into `target`, without outputs.

    What lies in `target` already is somebody's work and stays as it is.

    Returns:
        The new files, and the ones that were there.
    """
    notebooks = sorted(source.glob("*.ipynb"))
    if not notebooks:
        raise ModlabError(f"There is no notebook in {source.name!r}, so there is nothing to copy.")
    if target.exists() and not target.is_dir():
        raise ModlabError(f"{target.name!r} is a file, and the copy needs a folder.")
    target.mkdir(parents=True, exist_ok=True)
    made, kept = [], []
    for notebook in notebooks:
        file = target / notebook.name
        if file.exists():
            kept.append(file)
            continue
        content = without_outputs(json.loads(notebook.read_text(encoding="utf-8")))
        file.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        made.append(file)
    return made, kept


def without_outputs(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook as it was before anything ran."""
    cells = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell = {**cell, "outputs": [], "execution_count": None}
        cells.append(cell)
    return {**notebook, "cells": cells}
