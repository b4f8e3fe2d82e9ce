"""Binder's environment, made anew from its two files: what they install is enough for the course to be copied and to run."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.test_minimal_install import ROOT, empty

PACKAGES = re.findall(r"^ +- (\w+)==", (ROOT / "binder" / "environment.yml").read_text(encoding="utf-8"), flags=re.M)
OWN = ("jupyterlab", "pip")  # which repo2docker brings
BUILDS = ("hatchling", "editables")  # which pip fetches to install modlab
SHIMS = {"jupyter": "jupyter", "jupyter-labextension": "jupyterlab.labextensions"}

MOST_MB = 1000  # what Binder guarantees

RUN = """
import sys, nbformat
from nbclient import NotebookClient
found = nbformat.read(sys.argv[1], 4)
NotebookClient(found, timeout=600, kernel_name="python3", resources={"metadata": {"path": sys.argv[2]}}).execute()
print("ran", len(found.cells), "cells")
"""

# As RUN, and the peak of the kernel with the processes that it starts, in MB: each page of memory counted once.
MEASURED = """
import os, sys, threading, time, nbformat
from pathlib import Path
from nbclient import NotebookClient

def below(parent):
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if int(place.joinpath("stat").read_text().rpartition(")")[2].split()[1]) == parent:
                yield int(place.name)
                yield from below(int(place.name))
        except OSError:
            pass

def memory(pid):
    try:
        return int(Path(f"/proc/{pid}/smaps_rollup").read_text().partition("Pss:")[2].split()[0]) // 1000
    except (OSError, IndexError):
        return 0

def watch():
    global peak
    while True:
        peak = max(peak, sum(map(memory, below(os.getpid()))))
        time.sleep(0.1)

peak = 0
threading.Thread(target=watch, daemon=True).start()
found = nbformat.read(sys.argv[1], 4)
NotebookClient(found, timeout=600, kernel_name="python3", resources={"metadata": {"path": sys.argv[2]}}).execute()
print("peak", peak)
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory) -> Path:
    """The folder of the repository, after binder/postBuild has run in it."""
    home = tmp_path_factory.mktemp("binder") / "home"
    shutil.copytree(ROOT, home, ignore=shutil.ignore_patterns(".*", "node_modules", "course", "tests", "bench", "__pycache__"))
    python = empty(home.parent / "env", *PACKAGES, *OWN, *BUILDS)
    for name, module in SHIMS.items():
        script = python.with_name(name)
        script.write_text(f'#!/bin/sh\nexec "{python}" -m {module} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
    run(home, "bash", "binder/postBuild")
    return home


def run(home: Path, *command: str | Path) -> str:
    """Run a command as in the image: its interpreter first, and nothing from the network."""
    bin_ = home.parent / "env" / "bin"
    own = {"PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}", "PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "HOME": str(home.parent)}
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "JUPYTER", "PIP_"))}
    done = subprocess.run(command, cwd=home, env=environment | own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_learner_s_copy_is_there_and_its_tour_runs(image: Path) -> None:
    course = image / "course"
    assert {file.name for file in course.iterdir()} == {file.name for file in (ROOT / "notebooks").glob("*.ipynb")}
    assert "ran" in run(image, "python", "-c", RUN, course / "00_tour.ipynb", course)


def test_nothing_but_its_own_is_seen(image: Path) -> None:
    code = "import importlib.util as u, modlab; print(u.find_spec('pytest'), u.find_spec('transformers'), modlab.__file__)"
    assert run(image, "python", "-c", code).split() == ["None", "None", str(image / "modlab" / "__init__.py")]


@pytest.mark.long
@pytest.mark.parametrize("name", [file.stem for file in sorted((ROOT / "notebooks").glob("*.ipynb"))])
def test_a_lesson_stays_below_what_binder_guarantees(image: Path, name: str) -> None:
    course = image / "course"
    peak = int(run(image, "python", "-c", MEASURED, course / f"{name}.ipynb", course).split("peak")[1])
    print(f"{name}: {peak} MB")
    assert peak < MOST_MB
