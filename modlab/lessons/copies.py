"""The learner's copy of the notebooks: without outputs, so that no answer is visible before it is asked; renewed without loss."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from modlab import files
from modlab.errors import ModlabError
from modlab.lessons import carrying, notebooks

MARK = "modlab"
"""In a copy's metadata: the fingerprint of what was handed out, by which untouched work is known."""


@dataclass(slots=True)
class Copied:
    """What became of each notebook.

    Attributes:
        made: new files.
        renewed: files that nobody had worked in, brought up to date.
        kept: files that stay as they were.
        beside: new editions of notebooks that somebody has worked in, with the answers carried over.
        mended: files that an earlier copy had written by half, and that are whole now.
        damaged: files that cannot be read as notebooks, left alone; beside each lies a fresh copy.
    """

    made: list[Path] = field(default_factory=list)
    renewed: list[Path] = field(default_factory=list)
    kept: list[Path] = field(default_factory=list)
    beside: list[Path] = field(default_factory=list)
    mended: list[Path] = field(default_factory=list)
    damaged: list[Path] = field(default_factory=list)


def copy(target: Path, source: Path) -> Copied:
    """Copy every notebook of `source` into `target`, without outputs, and the files of own lessons beside them.

    What lies in `target` already is somebody's work and stays as it is. Of a notebook that the course has changed since, an
    untouched copy is renewed; beside one that was worked in, the new edition is laid under ``NAME.new.ipynb``, with the
    answers of the old one in it.
    """
    found = sorted(source.glob("*.ipynb"))
    if not found:
        raise ModlabError(f"There is no notebook in {source.name!r}, so there is nothing to copy.")
    if target.exists() and not target.is_dir():
        raise ModlabError(f"{target.name!r} is a file, and the copy needs a folder.")
    target.mkdir(parents=True, exist_ok=True)
    copied = Copied()
    editions = {target / file.name: handed_out(notebooks.read(file)) for file in found}  # all are read before one is written
    for file, edition in editions.items():
        _copy(edition, file, copied)
    for file in sorted(source.glob("*.py")):
        if file.stem.isidentifier() and (source / f"{file.stem}.ipynb").exists():  # a teacher's own lesson; the course's hold the answers
            _copy_content(files.content(file, notebooks.LARGEST), target / file.name, copied)
    return copied


def _copy_content(content: bytes, file: Path, copied: Copied) -> None:
    if not os.path.lexists(file):
        files.write(file, content)
    elif _is_half(file, content):
        files.write(file, content)
        copied.mended.append(file)


def _copy(edition: dict[str, Any], file: Path, copied: Copied) -> None:
    beside = file.with_suffix(".new.ipynb")
    if not os.path.lexists(file):
        _write(edition, file)
        copied.made.append(file)
        return
    try:
        theirs = notebooks.read(file)
    except notebooks.NotebookError:
        if _is_half(file, text(edition)):
            _write(edition, file)
            copied.mended.append(file)
        else:
            copied.kept.append(file)  # whatever it is, it is not ours to overwrite
            if file.is_file() and (not os.path.lexists(beside) or _is_half(beside, text(edition)) or _untouched(beside)):
                _write(edition, beside)
                copied.damaged.append(file)
        return
    received = _received(theirs)
    if received == edition["metadata"][MARK]["copied"] or fingerprint(theirs) == edition["metadata"][MARK]["copied"]:
        copied.kept.append(file)
    elif received == fingerprint(theirs):
        _write(edition, file)
        copied.renewed.append(file)
    else:
        copied.kept.append(file)
        carried = _marked(carrying.carry(theirs, edition))
        if not os.path.lexists(beside) or _is_half(beside, text(carried)) or _untouched(beside):
            _write(carried, beside)
            copied.beside.append(beside)


def _untouched(file: Path) -> bool:
    try:
        notebook = notebooks.read(file)
    except notebooks.NotebookError:
        return False
    return _received(notebook) == fingerprint(notebook)


def _received(notebook: dict[str, Any]) -> str | None:
    """The fingerprint of what was handed out; None in a notebook that is no copy of ours."""
    mark = notebook.get("metadata", {}).get(MARK)
    found = mark.get("copied") if isinstance(mark, dict) else None
    return found if isinstance(found, str) else None


def _is_half(file: Path, whole: bytes) -> bool:
    """Whether a file holds the beginning of what belongs there, and nobody's work: what a copy that was killed left."""
    try:
        found = files.content(file, len(whole))
    except OSError:
        return False
    return len(found) < len(whole) and whole.startswith(found)


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
    return hashlib.sha256(json.dumps(told, ensure_ascii=False).encode(errors="surrogatepass")).hexdigest()[:16]


def _marked(notebook: dict[str, Any]) -> dict[str, Any]:
    return {**notebook, "metadata": {**notebook["metadata"], MARK: {"copied": fingerprint(notebook)}}}


def text(notebook: dict[str, Any]) -> bytes:
    """The bytes of its file."""
    try:
        return f"{json.dumps(notebook, indent=1, ensure_ascii=False)}\n".encode()
    except UnicodeEncodeError:  # half a pair of surrogates in somebody's cell
        return f"{json.dumps(notebook, indent=1)}\n".encode()


def _write(notebook: dict[str, Any], file: Path) -> None:
    files.write(file, text(notebook))
