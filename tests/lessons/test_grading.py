"""A lesson as nbgrader grades it: right, wrong and unanswered submissions of two lessons get all, some and no points."""

import csv
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import nbformat
import pytest

from modlab.__main__ import main
from modlab.lessons import grading, lookup, notebooks
from modlab.lessons.checking import evaluate, judge
from tests import courses

ROOT = Path(__file__).resolve().parents[2]
VERSION = "0.9.6"
GRADED = ("01_a_module", "10_forward_hooks")


def half_right(task):
    """The usual mistake that passes most of the probes."""
    tried = {
        source: judge(task, evaluate(f"{task.given}\n{source}", task.expression)).score for source in (one.source for one in task.mistakes)
    }
    return max(tried, key=tried.__getitem__)


STUDENTS = {"right": lambda task: task.reference, "wrong": half_right, "unanswered": lambda task: task.starter}


def test_each_check_becomes_a_graded_cell_below_the_learner_s_code():
    content = lookup.find("01_a_module")
    made = grading.assignment(courses.notebook_of(content), points=3)
    nbformat.validate(nbformat.from_dict(made))
    graded = [number for number, cell in enumerate(made["cells"]) if "nbgrader" in cell["metadata"]]
    assert [made["cells"][number]["source"].splitlines()[0] for number in graded] == [
        f'verdict = lesson.check("{task.name}", {task.name})'.replace('"', "'") for task in content.tasks
    ]
    for number in graded:
        about, above = made["cells"][number]["metadata"]["nbgrader"], made["cells"][number - 1]
        assert about["grade"] and about["locked"] and not about["solution"] and about["points"] == 3
        assert "nbgrader" not in above["metadata"] and "lesson.check" not in notebooks.source(above)
    assert not any(cell.get("outputs") for cell in made["cells"]), "what is handed out shows no answer"


def test_the_command_writes_an_assignment_and_overwrites_none(tmp_path, capsys):
    arguments = ["lessons", "assignment", str(courses.NOTEBOOKS / "01_a_module.ipynb"), str(tmp_path / "source" / "first")]
    assert main(arguments) == 0
    written = tmp_path / "source" / "first" / "01_a_module.ipynb"
    before = written.read_bytes()
    assert "nbgrader generate_assignment first" in capsys.readouterr().out
    assert main(arguments) == 1 and written.read_bytes() == before
    assert "stays unchanged" in capsys.readouterr().err


def test_a_notebook_without_a_task_is_refused(tmp_path, capsys):
    file = tmp_path / "plain.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 + 1")]), file)
    assert main(["lessons", "assignment", str(file), str(tmp_path / "out")]) == 1
    assert "no task" in capsys.readouterr().err and not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def nbgrader(tmp_path_factory) -> Path:
    """nbgrader in an environment of its own, over this one's packages: beside JupyterLab it would add its panels to it."""
    home = tmp_path_factory.mktemp("nbgrader")
    venv.create(home, with_pip=True)
    [own] = home.glob("lib/python*/site-packages")
    ours = next(place for place in sys.path if place.endswith("site-packages"))
    (own / "ours.pth").write_text(f"{ours}\n{ROOT}\n", encoding="utf-8")
    pip = (home / "bin" / "python", "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt")
    subprocess.run([*pip, f"nbgrader=={VERSION}"], check=True)
    return home / "bin" / "nbgrader"


@pytest.mark.long
def test_nbgrader_gives_all_some_and_no_points(nbgrader, tmp_path):
    names = dict.fromkeys(GRADED)
    (tmp_path / "nbgrader_config.py").write_text("c = get_config()\nc.CourseDirectory.course_id = 'modlab'\n", encoding="utf-8")
    for name in names:
        grading.write(courses.NOTEBOOKS / f"{name}.ipynb", tmp_path / "source" / name)
        run(nbgrader, tmp_path, "generate_assignment", name)
        for student, answer in STUDENTS.items():
            hand_in(tmp_path, name, student, answer)
        run(nbgrader, tmp_path, "autograde", name)
    run(nbgrader, tmp_path, "export")
    with open(tmp_path / "grades.csv", encoding="utf-8") as file:
        scores = {
            (row["assignment"], row["student_id"]): (float(row["raw_score"]), float(row["max_score"])) for row in csv.DictReader(file)
        }
    for name in names:
        most = grading.POINTS * len(lookup.find(name).tasks)
        assert scores[name, "right"] == (most, most)
        assert 0 < scores[name, "wrong"][0] < most
        assert scores[name, "unanswered"] == (0, most)


def hand_in(course: Path, name: str, student: str, answer) -> None:
    """A learner's copy of the release, with an answer in the cell above each graded one."""
    notebook = nbformat.read(course / "release" / name / f"{name}.ipynb", 4)
    tasks = {task.name: task for task in lookup.find(name).tasks}
    for above, cell in zip(notebook.cells, notebook.cells[1:], strict=False):
        asked = re.search(r"lesson\.check\('(\w+)'", cell.source)
        if asked and "nbgrader" in cell.metadata:
            above.source = answer(tasks[asked.group(1)])
    there = course / "submitted" / student / name
    there.mkdir(parents=True)
    nbformat.write(notebook, there / f"{name}.ipynb")


def run(nbgrader: Path, folder: Path, *arguments: str) -> None:
    path = f"{nbgrader.parent}{os.pathsep}{os.environ['PATH']}"  # it calls alembic
    environment = {**os.environ, "PATH": path, "JUPYTER_PREFER_ENV_PATH": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([nbgrader, *arguments], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
