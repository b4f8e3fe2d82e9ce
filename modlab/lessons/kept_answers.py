"""Kept answers: what was answered by a click stands in a small file beside the notebook, so that *restart, run all* finds it again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from modlab import files

ENDING = ".answers.json"
LARGEST = 1_000_000
"""Bytes of a file that is read."""


def path(lesson: str, folder: Path) -> Path:
    """The file of a lesson: ``01_a_module.answers.json``."""
    return folder / f"{lesson}{ENDING}"


def read(lesson: str, folder: Path) -> dict[str, Any]:
    """The answers by the questions' names; none where there is no file, or none that can be read."""
    try:
        found = json.loads(files.content(path(lesson, folder), LARGEST))
        kept = found["answers"]
        return {str(name): answer for name, answer in kept.items() if isinstance(answer, (str, int, float, list))}
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return {}


def write(lesson: str, folder: Path, answers: dict[str, Any]) -> bool:
    """Write them; whether that could be done."""
    text = json.dumps({"schema": 1, "lesson": lesson, "answers": answers}, indent=1, ensure_ascii=False)
    try:
        files.write(path(lesson, folder), text + "\n")
    except OSError:  # a folder in which nothing may be written: the answer lives as long as the kernel
        return False
    return True
