"""The learner's copy of the notebooks: without outputs, so that no answer is visible before it is asked; renewed without loss."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from modlab.errors import ModlabError
from modlab.lessons import carrying, notebooks

MARK = "modlab"
"""In a copy's metadata: the fingerprint of what was handed out, by which untouched work is known."""


def course() -> Path:
    """The folder of the course in this checkout."""
    folder = Path(__file__).parents[2] / "notebooks"
    if not folder.is_dir():
        raise ModlabError(
            "The course is not beside this modlab: it was installed without its repository.\n"
            "  Clone the repository and run `make lab` there, or name the folder: python -m modlab lessons copy DIR --from NOTEBOOKS"
        )
    return folder


@dataclass(slots=True)
class Copied:
    """What became of each notebook.

    Attributes:
        made: new files.
        renewed: files that nobody had worked in, brought up to date.
        kept: files that stay as they were.
        beside: new editions of notebooks that somebody has worked in, with the answers carried over.
    """

    made: list[Path] = field(default_factory=list)
    renewed: list[Path] = field(default_factory=list)
    kept: list[Path] = field(default_factory=list)
    beside: list[Path] = field(default_factory=list)


def copy(target: Path, source: Path) -> Copied:
    """Copy every notebook of `source` into `target`, without outputs, and the files of own lessons beside them.

    What lies in `target` already is somebody's work and stays as it is. Of a notebook that the course has changed since, an
    untouched copy is renewed; beside one that was worked in, the new edition is laid under ``NAME.new.ipynb``, with the
    answers of the old one in it.
    """
    files = sorted(source.glob("*.ipynb"))
    if not files:
        raise ModlabError(f"There is no notebook in {source.name!r}, so there is nothing to copy.")
    if target.exists() and not target.is_dir():
        raise ModlabError(f"{target.name!r} is a file, and the copy needs a folder.")
    target.mkdir(parents=True, exist_ok=True)
    copied = Copied()
    for file in files:
        _copy(handed_out(notebooks.read(file)), target / file.name, copied)
    for file in sorted(source.glob("*.py")):
        if (source / f"{file.stem}.ipynb").exists() and not (target / file.name).exists():
            (target / file.name).write_bytes(file.read_bytes())  # the content of a teacher's own lesson
    return copied


def _copy(edition: dict[str, Any], file: Path, copied: Copied) -> None:
    if not file.exists():
        _write(edition, file)
        copied.made.append(file)
        return
    try:
        theirs = notebooks.read(file)
    except notebooks.NotebookError:
        copied.kept.append(file)  # whatever it is, it is not ours to overwrite
        return
    received = theirs.get("metadata", {}).get(MARK, {}).get("copied")
    if received == edition["metadata"][MARK]["copied"] or fingerprint(theirs) == edition["metadata"][MARK]["copied"]:
        copied.kept.append(file)
    elif received == fingerprint(theirs):
        _write(edition, file)
        copied.renewed.append(file)
    else:
        beside = file.with_suffix(".new.ipynb")
        copied.kept.append(file)
        if not beside.exists() or _untouched(beside):
            _write(carrying.carry(theirs, edition), beside, untouched=True)
            copied.beside.append(beside)


def _untouched(file: Path) -> bool:
    try:
        notebook = notebooks.read(file)
    except notebooks.NotebookError:
        return False
    return bool(notebook.get("metadata", {}).get(MARK, {}).get("copied") == fingerprint(notebook))


def handed_out(notebook: dict[str, Any]) -> dict[str, Any]:
    """A notebook as a learner gets it: no outputs, and the mark by which untouched work is known."""
    bare = without_outputs(notebook)
    return {**bare, "metadata": {**notebook.get("metadata", {}), MARK: {"copied": fingerprint(bare)}}}


def without_outputs(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook as it was before anything ran."""
    cells = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell = {**cell, "outputs": [], "execution_count": None}
        cells.append(cell)
    return {**notebook, "cells": cells}


def fingerprint(notebook: dict[str, Any]) -> str:
    """Of what its cells say; outputs and metadata do not count."""
    told = [[cell["cell_type"], notebooks.source(cell)] for cell in notebook["cells"]]
    return hashlib.sha256(json.dumps(told, ensure_ascii=False).encode()).hexdigest()[:16]


def _write(notebook: dict[str, Any], file: Path, *, untouched: bool = False) -> None:
    if untouched:
        notebook = {**notebook, "metadata": {**notebook["metadata"], MARK: {"copied": fingerprint(notebook)}}}
    file.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
