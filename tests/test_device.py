"""The course computes on any device: each lesson takes its own from one line, and on a fake accelerator nothing is left behind."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from modlab.lessons import devices, notebooks
from modlab.lessons.lesson import Lesson
from tests import courses

ROOT = Path(__file__).resolve().parent.parent


ON_THE_CPU = {"15b_sharded": "*gloo* carries tensors on a CPU, so all of this lesson computes there."}
"""Lessons that compute on the CPU alone, and the sentence that says so."""


def test_a_lesson_that_computes_on_the_cpu_alone_says_so():
    for name, sentence in ON_THE_CPU.items():
        (lesson,) = [one for one in courses.lessons() if one.name == name]
        assert any(sentence in notebooks.source(cell) for cell in courses.notebook_of(lesson)["cells"])


@pytest.mark.parametrize("lesson", [one for one in courses.lessons() if one.name not in ON_THE_CPU], ids=lambda lesson: lesson.name)
def test_a_lesson_takes_its_device_from_one_line_and_uses_it(lesson):
    cells = courses.notebook_of(lesson)["cells"]
    code = [notebooks.source(cell) for cell in cells if cell["cell_type"] == "code"]
    assert "device = lesson.device" in code[0], "the first cell says it"
    used = [node for cell in code for node in ast.walk(ast.parse(cell)) if isinstance(node, ast.Name) and node.id == "device"]
    assert len(used) > 1, "and the lesson computes there"
    assert not any("cuda" in cell for cell in code), "no cell names a kind of accelerator"


def test_the_device_is_the_accelerator_the_cpu_or_what_the_variable_says(monkeypatch):
    monkeypatch.delenv(devices.VARIABLE, raising=False)
    there = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
    assert Lesson("01_a_module").device == there
    monkeypatch.setenv(devices.VARIABLE, "meta")
    assert Lesson("01_a_module").device == torch.device("meta")


def test_proofs_and_tasks_hold_on_the_fake_device():
    """In a process of its own: where it is installed, each test would find an accelerator. `make test-device` runs the cells too."""
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "tests/on_device.py")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout and "failed" not in done.stdout
