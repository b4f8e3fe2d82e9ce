"""Carrying a learner's answers from an old copy of a lesson into its new edition."""

from __future__ import annotations

import re
from typing import Any

from modlab.lessons.notebooks import source

_QUESTION = re.compile(r'lesson\.(predict|why|recall)\(\s*(["\'])(?P<name>.+?)\2\s*,(?P<value>.*)\)\s*$', re.DOTALL)
_TASK = re.compile(r'lesson\.check\(\s*(["\'])(?P<name>.+?)\1')


def carry(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The new edition with what the learner wrote: answers by the question's name, and cells that end in the same check."""
    answers = {match["name"]: match["value"].strip() for match in _matches(old, _QUESTION)}
    cells = {match["name"]: match.string for match in _matches(old, _TASK)}
    return {**new, "cells": [_filled(cell, answers, cells) for cell in new["cells"]]}


def _matches(notebook: dict[str, Any], pattern: re.Pattern[str]) -> list[re.Match[str]]:
    found = (pattern.search(source(cell)) for cell in notebook["cells"] if cell["cell_type"] == "code")
    return [match for match in found if match is not None]


def _filled(cell: dict[str, Any], answers: dict[str, str], cells: dict[str, str]) -> dict[str, Any]:
    text = source(cell)
    if cell["cell_type"] != "code":
        return cell
    if (question := _QUESTION.search(text)) and answers.get(question["name"], "...") != "...":
        start, end = question.span("value")
        text = f"{text[:start]} {answers[question['name']]}{text[end:]}"
    elif (task := _TASK.search(text)) and task["name"] in cells:
        text = cells[task["name"]]
    return {**cell, "source": text.splitlines(keepends=True)}
