"""What a teacher does with the course: copies that are renewed without loss, checks, reports, own lessons."""

import csv
import html
import json
import os
import random
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from modlab.__main__ import main
from modlab.errors import ModlabError
from modlab.lessons import class_report, classroom, copies, lookup, notebooks, self_test, template, validation
from modlab.lessons.beliefs import BELIEFS
from modlab.lessons.checking import MIME, fail, require_equal
from modlab.lessons.content import Content, Mistake, Question, Task, Wrong
from modlab.lessons.kinds import Number, Order
from scripts.notebooks import index
from tests import courses
from tests.patience import PATIENCE

A_MODULE = "01_a_module"


def notebook(*cells, **metadata):
    made = []
    for number, cell in enumerate(cells):
        kind = "markdown" if cell.startswith(("#", "*", "!", "<")) else "code"
        more = {"outputs": [], "execution_count": None} if kind == "code" else {}
        made.append({"cell_type": kind, "id": f"c{number}", "metadata": {}, "source": cell.splitlines(keepends=True)} | more)
    return {"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def save(content, file):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


def lesson_with(answers):
    """The notebook of lesson 01 with some answers put in, as a learner saves it."""
    content = courses.notebook_of(lookup.find(A_MODULE))
    for cell in content["cells"]:
        if cell["cell_type"] == "code":
            source = notebooks.source(cell)
            for name, value in answers.items():
                source = source.replace(f'("{name}", ...)', f'("{name}", {value!r})')
            cell["source"] = source.splitlines(keepends=True)
    return content


# ---- copies ---------------------------------------------------------------------------------------


def test_the_learners_copy_holds_no_answer(tmp_path):
    copies.copy(tmp_path, courses.NOTEBOOKS)
    for lesson in lookup.lessons():
        copied = notebooks.read(tmp_path / f"{lesson.name}.ipynb")
        assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in copied["cells"])
        assert all(one.value is ... for one in notebooks.given(copied))
        text = "\n".join(map(notebooks.source, copied["cells"]))
        for task in lesson.tasks:
            assert task.reference.strip() not in text.rpartition(f'lesson.check("{task.name}"')[0].rpartition("## Make")[2]


def test_a_copy_is_renewed_without_loss(tmp_path):
    course, theirs = tmp_path / "course", tmp_path / "theirs"
    old = notebook("# Title", 'lesson.predict("a", ...)', 'x = ...\nlesson.check("t", x)', "1 + 1")
    for name in ("untouched", "worked", "same"):
        save(old, course / f"{name}.ipynb")
    assert len(copies.copy(theirs, course).made) == 3
    work = notebooks.read(theirs / "worked.ipynb")
    work["cells"][1]["source"] = ['lesson.predict("a", 7)']
    work["cells"][2]["source"] = ["x = 3  # mine\n", 'lesson.check("t", x)']
    save(work, theirs / "worked.ipynb")
    before = (theirs / "worked.ipynb").read_bytes()

    new = notebook("# Title", "* A new sentence", 'lesson.predict("a", ...)', 'x = ...\nlesson.check("t", x)', "2 + 2")
    for name in ("untouched", "worked"):
        save(new, course / f"{name}.ipynb")
    copied = copies.copy(theirs, course)
    assert [file.name for file in copied.renewed] == ["untouched.ipynb"]
    assert sorted(file.name for file in copied.kept) == ["same.ipynb", "worked.ipynb"]
    assert [file.name for file in copied.beside] == ["worked.new.ipynb"]
    assert (theirs / "worked.ipynb").read_bytes() == before
    sources = [notebooks.source(cell) for cell in notebooks.read(theirs / "worked.new.ipynb")["cells"]]
    assert sources == ["# Title", "* A new sentence", 'lesson.predict("a", 7)', 'x = 3  # mine\nlesson.check("t", x)', "2 + 2"]
    assert [notebooks.source(cell) for cell in notebooks.read(theirs / "untouched.ipynb")["cells"]] == [
        notebooks.source(cell) for cell in new["cells"]
    ]
    assert copies.copy(theirs, course).renewed == []  # a second time nothing is left to do


def test_a_copy_never_overwrites_what_it_does_not_know(tmp_path):
    course, theirs = tmp_path / "course", tmp_path / "theirs"
    save(notebook("1"), course / "a.ipynb")
    theirs.mkdir()
    (theirs / "a.ipynb").write_text("no notebook at all")
    assert [file.name for file in copies.copy(theirs, course).kept] == ["a.ipynb"]
    assert (theirs / "a.ipynb").read_text() == "no notebook at all"
    (theirs / "a.ipynb").write_text(json.dumps(notebook("2")))  # of unknown origin: it has no mark
    assert [file.name for file in copies.copy(theirs, course).kept] == ["a.ipynb"]
    assert notebooks.source(notebooks.read(theirs / "a.ipynb")["cells"][0]) == "2"


# ---- check ----------------------------------------------------------------------------------------


HALVES = {"nothing": 0, "a_byte": 1, "half": 0.5, "all_but_three": -3}


@pytest.mark.parametrize("size", HALVES.values(), ids=HALVES)
def test_half_a_copy_is_made_whole(tmp_path, size, capsys):
    save(notebook("print('höher')"), tmp_path / "course" / "a.ipynb")
    copies.copy(tmp_path / "whole", tmp_path / "course")
    whole = (tmp_path / "whole" / "a.ipynb").read_bytes()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.ipynb").write_bytes(whole[: int(len(whole) * size) if isinstance(size, float) else size])
    assert main(["lessons", "copy", str(tmp_path / "mine"), "--from", str(tmp_path / "course")]) == 0
    assert (tmp_path / "mine" / "a.ipynb").read_bytes() == whole and "half written" in capsys.readouterr().out


def test_half_a_notebook_of_somebodys_stays_and_a_fresh_one_lies_beside_it(tmp_path, capsys):
    save(notebook("1"), tmp_path / "course" / "a.ipynb")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.ipynb").write_text('{"cells": [{"cell_type": "code", "source": "my wo')
    assert main(["lessons", "copy", str(tmp_path / "mine"), "--from", str(tmp_path / "course")]) == 0
    assert "a.new.ipynb" in capsys.readouterr().out
    assert notebooks.read(tmp_path / "mine" / "a.new.ipynb")["cells"] and "my wo" in (tmp_path / "mine" / "a.ipynb").read_text()


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch, step):
    save(notebook("1"), tmp_path / "course" / "a.ipynb")
    copies.copy(tmp_path / "mine", tmp_path / "course")
    before = (tmp_path / "mine" / "a.ipynb").read_bytes()
    save(notebook("2"), tmp_path / "course" / "a.ipynb")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, full)
    with pytest.raises(OSError, match="No space"):
        copies.copy(tmp_path / "mine", tmp_path / "course")
    monkeypatch.undo()
    assert (tmp_path / "mine" / "a.ipynb").read_bytes() == before
    assert os.listdir(tmp_path / "mine") == ["a.ipynb"]
    assert [file.name for file in copies.copy(tmp_path / "mine", tmp_path / "course").renewed] == ["a.ipynb"]


def test_a_check_of_a_broken_notebook_names_cell_and_reason(tmp_path):
    content = notebook(
        "# Title\n\n### jumps",
        "1 + 1",
        'raise ValueError("on purpose")',
        "![](picture.png)",
        '<img src="x.png">',
        "object()",
        'lesson.predict("a", 3)',
        "plot()",
        "figure",
    )
    content["cells"][1]["outputs"] = [{"output_type": "execute_result", "execution_count": 1, "data": {"text/plain": "3"}, "metadata": {}}]
    content["cells"][1]["execution_count"] = 1
    address = {"output_type": "execute_result", "execution_count": 3, "data": {"text/plain": "<object at 0x7f0011223344>"}, "metadata": {}}
    content["cells"][5]["outputs"] = [address]
    content["cells"][5]["execution_count"] = 3
    for cell, metadata in ((7, {}), (8, {"image/png": {"alt": "a line"}})):
        picture = {"output_type": "display_data", "data": {"image/png": "aGk=", "text/plain": "<Figure>"}, "metadata": metadata}
        content["cells"][cell] |= {"outputs": [picture], "execution_count": 4}
    (report,) = validation.check(save(content, tmp_path / "broken.ipynb"))
    found = {(problem.cell, word) for problem in report.problems for word in WORDS if word in problem.says}
    assert found >= {
        (1, "heading"),
        (2, "differs"),
        (3, "ValueError: on purpose"),
        (4, "alt text"),
        (5, "alt text"),
        (6, "address"),
        (7, "answer"),
        (8, "alt text"),
    }
    assert (9, "alt text") not in found
    assert not report.passed and "cell 3" in str(report)


WORDS = ("heading", "differs", "ValueError: on purpose", "alt text", "address", "answer")


def ran(content, cell, *outputs, count=1):
    """A cell as if somebody had run it."""
    content["cells"][cell] |= {"outputs": list(outputs), "execution_count": count}


def result(text):
    return {"output_type": "execute_result", "execution_count": 1, "data": {"text/plain": text}, "metadata": {}}


def test_a_value_that_a_semicolon_hides_is_hidden_in_a_check_too(tmp_path):
    content = notebook("# Title", "1 + 1;", "2 + 2;  # hidden; too", "%time print('x');", "3  # shown;")
    for cell, outputs in ((1, ()), (2, ()), (4, (result("3"),))):
        ran(content, cell, *outputs)
    problems = validation.check(save(content, tmp_path / "hushed.ipynb"))[0].problems
    assert problems == ()


def test_a_check_tells_what_differs_and_says_each_thing_once(tmp_path):
    content = notebook("# Title", "from IPython.display import display\ndisplay(1)\n2", "3")
    ran(content, 1, result("2"))
    ran(content, 2, result("3"), count=None)
    (report,) = validation.check(save(content, tmp_path / "broken.ipynb"))
    more, never = (problem.says.split("\n      ") for problem in report.problems)
    assert more == ["its output differs from the stored one", "stored: 2", "now   : 1", "now   : 2"]
    assert never == ["it has outputs but no execution count, so they are not compared"]


def test_a_kernel_that_dies_is_not_called_slow():
    assert "or its kernel died" in validation._failure(1, ["Timeout of 120 seconds exceeded while executing cell."]).says


def test_a_good_notebook_passes_and_what_is_no_notebook_is_said(tmp_path, capsys):
    content = notebook("# Title", "1 + 1")
    content["cells"][1]["outputs"] = [{"output_type": "execute_result", "execution_count": 1, "data": {"text/plain": "2"}, "metadata": {}}]
    content["cells"][1]["execution_count"] = 1
    save(content, tmp_path / "good.ipynb")
    assert main(["lessons", "check", str(tmp_path)]) == 0
    (tmp_path / "text.ipynb").write_text("hello")
    assert main(["lessons", "check", str(tmp_path)]) == 1
    assert "text.ipynb is not a notebook" in capsys.readouterr().out
    assert main(["lessons", "check", str(tmp_path / "missing")]) == 1
    assert "There is no notebook at" in capsys.readouterr().err


# ---- report ---------------------------------------------------------------------------------------


@pytest.fixture
def submissions(tmp_path):
    """Thirty learners: the first twelve take m.forward(x) for m(x), the next five leave it open; seven transpose the weight."""
    draw = random.Random(7)
    for number in range(30):
        said = {} if 12 <= number < 17 else {"call or forward": number < 12}
        said["numbers of MyLinear"] = draw.choice([12, 15, 2])
        content = lesson_with(said)
        kept = {"schema": 1, "lesson": A_MODULE, "task": "Affine", "score": 0.5}
        kept |= {"outcome": "not yet", "mistake": "transposed weight", "belief": 32} if number < 7 else {"outcome": "correct", "belief": 0}
        content["cells"][-5]["outputs"] = [{"output_type": "execute_result", "data": {MIME: kept, "text/plain": ""}, "metadata": {}}]
        save(content, tmp_path / "class" / f"learner{number:02}" / f"{A_MODULE}.ipynb")
    (tmp_path / "class" / "learner00" / "scratch.ipynb").write_text(json.dumps(notebook("1")))
    return tmp_path / "class"


def test_a_report_counts_who_holds_what_of_who_was_asked(submissions):
    report = classroom.read(submissions)
    assert (report.learners, report.notebooks) == (30, 30)
    assert (len(report.counts[33].held), len(report.counts[33].asked)) == (12, 25)
    assert (len(report.counts[32].held), len(report.counts[32].asked)) == (7, 30)
    assert [*report.reasons] == ["learner00/scratch.ipynb"]
    assert report.headline.startswith("12 of 25 believe")
    assert "learner" not in report.html().replace("30 learners", "") and "learner03" in report.html(names=True)
    assert "learner0" not in report.text().replace("learner00/scratch", "")


def test_a_report_of_answers_that_show_nothing_says_so():
    def entry(learner, **more):
        return class_report.LearnerEntry(learner, A_MODULE, "question", "q", "right", "7", **more)

    report = class_report.ClassReport((entry("a"), entry("b")), 2)
    assert report.headline == f"2 learners: no answer has been given that could show one of the {len(BELIEFS)} misconceptions."
    assert not report.unasked
    report = class_report.ClassReport((entry("a", could=frozenset({3})), entry("b")), 2)
    assert report.headline == "2 learners: of the 1 misconception that an answer could show, none was seen."
    rest = len(BELIEFS) - 1
    assert len(report.unasked) == rest and f"{rest} more of the {len(BELIEFS)}" in report.text()
    assert all(says in html.unescape(report.html()) for says in report.unasked), "a misconception has its name, not its number"


def test_a_report_counts_each_question_and_task(submissions):
    rows = {row.name: row for row in classroom.read(submissions).rows}
    assert (rows["call or forward"].right, rows["call or forward"].wrong, rows["call or forward"].open) == (13, 12, 5)
    assert rows["call or forward"].commonest == "yes (12)"
    assert (rows["Affine"].kind, rows["Affine"].right, rows["Affine"].wrong, rows["Affine"].open) == ("task", 23, 7, 0)
    assert rows["Affine"].commonest == "transposed weight (7)" and rows["Square"].open == 30


def test_below_five_learners_there_is_no_share(tmp_path):
    for number in range(5):
        save(lesson_with({"call or forward": True}), tmp_path / f"l{number}" / f"{A_MODULE}.ipynb")
        assert ('class="bar"' in classroom.read(tmp_path).html()) == (number == 4)


def test_the_table_has_names_only_when_asked_and_no_formula(submissions, tmp_path, capsys):
    save(lesson_with({"names of MyLinear": "=1+1"}), submissions / "=cmd" / f"{A_MODULE}.ipynb")
    for options in ([], ["--names"]):
        out = tmp_path / "class.csv"
        arguments = ["lessons", "report", str(submissions), "--out", str(tmp_path / "p.html"), "--csv", str(out), *options]
        assert main(arguments) == 0
        table = list(csv.DictReader(out.read_text().splitlines()))
        assert len(table) == 31 * (len(classroom.lookup.find(A_MODULE).questions) + 2)
        who = {row["learner"] for row in table}
        assert who == ({f"learner{number:02}" for number in range(30)} | {"'=cmd"} if options else {str(n) for n in range(1, 32)})
        wrong = [row for row in table if row["name"] == "Affine" and row["outcome"] == "wrong"]
        assert len(wrong) == 7 and {row["answer"] for row in wrong} == {"transposed weight"}
        assert {row["misconception"] for row in wrong} == {BELIEFS[32].says}
    assert "The table:" in capsys.readouterr().out


OWN = """
from modlab.lessons.beliefs import Belief
from modlab.lessons.content import Content, Question, Wrong
from modlab.lessons.kinds import Choice
LESSON = Content("own", "Own", "say", 5,
    predictions=(Question("q", "Which?", Choice("one", "two"), "a", "One.", wrong=(Wrong("b", "No.", belief=101),)),),
    beliefs={101: Belief("Two is one.", "It is not.", "own", "1 == 2")})
"""


def test_a_lesson_of_ones_own_is_reported_with_beliefs_of_its_own(tmp_path, capsys):
    (tmp_path / "lessons").mkdir()
    (tmp_path / "lessons" / "own.py").write_text(OWN)
    for number, answer in enumerate("bba"):
        save(notebook('lesson = Lesson("own")', f'lesson.predict("q", {answer})'), tmp_path / "class" / f"l{number}" / "own.ipynb")
    assert classroom.read(tmp_path / "class", tmp_path / "lessons").headline == "2 of 3 believe: Two is one."
    assert list(self_test.rehearse(classroom.lookup.find("own"))) == []
    sys.modules.pop("modlab_lesson_own")
    assert main(["lessons", "report", str(tmp_path / "class"), "--out", str(tmp_path / "p.html")]) == 1, "nothing was read"
    assert "--lessons FOLDER" in capsys.readouterr().out


def test_an_error_in_a_teachers_file_has_its_line(tmp_path):
    for code, line in (("x = 1\n\n1 / 0\n", 3), ("x = 1\ndef (\n", 2), ("def f():\n    raise KeyError(3)\n\nf()\n", 2)):
        (tmp_path / "mine.py").write_text(code)
        with pytest.raises(ModlabError, match=f"mine.py cannot be read as a lesson, line {line}: "):
            classroom.lookup.find("mine", tmp_path)


def test_the_report_is_one_page(submissions, tmp_path, capsys):
    assert main(["lessons", "report", str(submissions), "--out", str(tmp_path / "page.html")]) == 0
    page, report = (tmp_path / "page.html").read_text(), classroom.read(submissions)
    assert page.count("<tr>") == 2 + len(report.rows) + len(report.believed)
    assert "12 of 25" in page and "12 of 25" in capsys.readouterr().out
    with pytest.raises(ModlabError, match="There is no notebook"):
        classroom.read(tmp_path / "nobody")


def test_a_report_runs_nothing_of_a_submission_and_survives_odd_ones(submissions):
    theirs = submissions / "learner01"
    save(notebook('lesson = Lesson("my_own")', 'lesson.predict("a", {[1]})'), theirs / "my_own.ipynb")
    (theirs / "my_own.py").write_text("raise SystemExit('it was run')")
    odd = {"output_type": "execute_result", "data": {MIME: {"task": ["x"], "outcome": "correct"}}}
    bad = lesson_with({"call or forward": True})
    bad["cells"][2]["outputs"] = [odd, "nothing"]
    save(bad, theirs / "odd.ipynb")
    report = classroom.read(submissions)
    assert set(report.reasons) == {"learner00/scratch.ipynb", "learner01/my_own.ipynb", "learner01/odd.ipynb"}


def deep(levels):
    return "[" * levels + "]" * levels


ODD = {
    "400_digits": lambda f: save(lesson_with({"numbers of MyLinear": 10**400}), f),
    "400_digits_times": lambda f: f.write_text(json.dumps(said(f"{10**400} * 1.5"))),
    "product": lambda f: f.write_text(json.dumps(said("*".join(["9" * 400] * 40)))),
    "terms": lambda f: f.write_text(json.dumps(said("+".join(["1"] * 1000)))),
    "5000_digits": lambda f: f.write_text(json.dumps(said("9" * 5000))),
    "parentheses": lambda f: f.write_text(json.dumps(said("(" * 3000 + ")" * 3000))),
    "signs": lambda f: f.write_text(json.dumps(said("-" * 50_000 + "1"))),
    "null_byte": lambda f: f.write_text(json.dumps(said("1\0"))),
    "surrogate": lambda f: f.write_text(json.dumps(said("'\ud800'"))),
}
UNREADABLE = {
    "pipe": (os.mkfifo, "pipe"),
    "folder": (lambda f: f.mkdir(), "folder"),
    "loop": (lambda f: f.symlink_to(f), "symbolic links"),
    "nowhere": (lambda f: f.symlink_to("nobody"), "no such file"),
    "device": (lambda f: f.symlink_to("/dev/zero"), "device"),
    "empty": (lambda f: f.write_text(""), "it is empty"),
    "no_json": (lambda f: f.write_text("hello"), "not JSON"),
    "other_encoding": (lambda f: f.write_bytes('{"cells": ["é"]}'.encode("latin-1")), "not JSON"),
    "digits": (lambda f: f.write_text('{"cells": ' + "9" * 5000 + "}"), "not JSON"),
    "deep": (lambda f: f.write_text(deep(100_000)), "not JSON"),
    "list": (lambda f: f.write_text("[]"), "no list of cells"),
    "cells": (lambda f: f.write_text('{"cells": {"a": 1}}'), "no list of cells"),
    "null_source": (lambda f: f.write_text('{"cells": [{"cell_type": "code", "source": null}]}'), "cell 1"),
    "metadata": (lambda f: f.write_text('{"cells": [], "metadata": 3}'), "metadata"),
    "large": (lambda f: (f.touch(), os.truncate(f, 200_000_000)), "more than 100,000,000 bytes"),
    "no_lesson": (lambda f: f.write_text(json.dumps(notebook("1"))), "does not open a lesson"),
    "unknown": (lambda f: f.write_text(json.dumps(notebook('Lesson("../x/__init__")'))), "no lesson"),
    "package": (lambda f: f.write_text(json.dumps(notebook('Lesson("01___init__")'))), "no lesson"),
}


def said(value):
    return notebook(f'lesson = Lesson("{A_MODULE}")', f'lesson.predict("numbers of MyLinear", {value})')


@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
def test_an_odd_answer_does_not_end_the_report(submissions, make):
    make(submissions / "learner03" / "odd.ipynb")
    report = classroom.read(submissions)
    assert report.learners == 30 and report.notebooks in (30, 31) and "12 of 25" in report.html()


@pytest.mark.parametrize(("make", "reason"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_is_no_notebook_is_listed_with_its_reason(submissions, make, reason):
    make(submissions / "learner03" / "odd.ipynb")
    report = classroom.read(submissions)
    assert reason in report.reasons["learner03/odd.ipynb"] and (report.learners, report.notebooks) == (30, 30)
    assert f"Not read: learner03/odd.ipynb: {report.reasons['learner03/odd.ipynb']}" in report.text()
    assert "learner03/odd" in report.html(names=True) and "learner03/odd" not in report.html()


def test_a_name_in_another_encoding_is_written_out(submissions, tmp_path, capsys):
    theirs = os.fsdecode(os.fsencode(submissions) + b"/M\xfcller")
    os.mkdir(theirs)
    save(lesson_with({"call or forward": True}), Path(theirs, f"{A_MODULE}.ipynb"))
    Path(theirs, "odd\udcff.ipynb").write_text("hello")
    assert main(["lessons", "report", str(submissions), "--names", "--out", str(tmp_path / "page.html")]) == 0
    assert "M\\udcfcller" in capsys.readouterr().out and "M\\udcfcller" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_folder_that_may_not_be_opened_is_listed(submissions, monkeypatch):
    listed = os.scandir

    def scandir(path):
        if str(path).endswith("learner04"):
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert classroom.read(submissions).reasons["learner04"] == "permission denied"


def test_own_lessons_come_from_an_explicit_folder_alone(submissions, tmp_path, monkeypatch):
    save(notebook('lesson = Lesson("own_one")', 'lesson.predict("numbers of a layer", 6)'), submissions / "learner01" / "own_one.ipynb")
    template.create("own_one", tmp_path / "mine")
    monkeypatch.chdir(tmp_path / "mine")
    assert "--lessons" in classroom.read(submissions).reasons["learner01/own_one.ipynb"]  # not even from the working folder
    assert classroom.read(submissions, tmp_path / "mine").notebooks == 31
    for among in (submissions, submissions / "learner01", submissions / "learner01" / ".." / "learner02"):
        with pytest.raises(ModlabError, match="are among the submissions"):
            classroom.read(submissions, among)


def test_in_a_folder_of_submissions_no_file_of_theirs_is_imported(submissions):
    for name in ("json", "html", "modlab_lesson_x", A_MODULE[3:], "string", "own_one"):
        (submissions / f"{name}.py").write_text("open('it_was_run', 'w')\nraise SystemExit(9)")
    save(notebook('lesson = Lesson("own_one")'), submissions / "own_one.ipynb")
    command = [sys.executable, "-P", "-m", "modlab", "lessons", "report", ".", "--out", "page.html"]
    done = subprocess.run(command, cwd=submissions, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0 and "12 of 25" in done.stdout, done.stderr
    assert not (submissions / "it_was_run").exists()


@pytest.mark.parametrize("name", ["torch", "class", "None", "json"])
def test_a_lesson_hides_no_module_of_pythons(tmp_path, name):
    with pytest.raises(ModlabError, match="means something to Python"):
        template.create(name, tmp_path)


def test_what_cannot_be_written_is_said_in_a_sentence(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    for arguments in (["copy", str(tmp_path / "file" / "sub")], ["new", "mine", "--in", str(tmp_path / "file")]):
        assert main(["lessons", *arguments]) == 1
        told = capsys.readouterr().err
        assert "Errno" not in told and ("cannot be used" in told or "needs a folder" in told)


def test_every_misconception_can_be_shown_by_some_lesson():
    shown = set()
    for lesson in lookup.lessons():
        shown |= {thing.belief for question in lesson.questions for thing in (question, *question.wrong)}
        shown |= {mistake.belief for task in lesson.tasks for mistake in task.mistakes}
    assert set(BELIEFS) == set(range(1, len(BELIEFS) + 1))
    assert set(BELIEFS) - shown == set()


def test_every_belief_names_a_lesson_of_the_course():
    names = {lesson.name for lesson in lookup.lessons()}
    assert {belief.lesson for belief in BELIEFS.values()} <= names


# ---- a lesson of one's own ------------------------------------------------------------------------


def test_a_new_lesson_works_as_it_is_and_is_never_overwritten(tmp_path, monkeypatch):
    made, content = template.create("my_lesson", tmp_path)
    (report,) = validation.check(made)
    assert report.passed, str(report)
    written = content.read_text()
    with pytest.raises(ModlabError, match="are there already"):
        template.create("my_lesson", tmp_path)
    assert content.read_text() == written
    with pytest.raises(ModlabError, match="cannot be the name of a lesson"):
        template.create("my lesson", tmp_path)


def test_a_new_lesson_shows_where_each_kind_of_question_goes(tmp_path):
    _, content = template.create("my_lesson", tmp_path)
    assert {"predictions=", "reasons=", "recalls=", "tasks="} <= set(re.findall(r"\w+=", content.read_text().partition("LESSON =")[2]))
    assert {"Choice(", "Several(", "Order(", "Number("} <= set(re.findall(r"\w+\(", content.read_text()))


def test_beside_a_lesson_of_that_name_it_says_what_is_there_and_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # as `python -m` does: so Python knows the name, too
    (tmp_path / "my_lesson.py").write_text("")
    with pytest.raises(ModlabError, match=r"my_lesson\.py is there already.*\n.*--in DIR"):
        template.create("my_lesson", tmp_path)
    template.create("my_lesson", tmp_path / "elsewhere")  # what the sentence advises
    (tmp_path / "my_lesson.ipynb").write_text("")
    with pytest.raises(ModlabError, match=r"my_lesson\.ipynb and my_lesson\.py are there already"):
        template.create("my_lesson", tmp_path)


def test_a_check_finds_a_wrong_answer_in_an_own_lesson(tmp_path):
    made, content = template.create("my_lesson", tmp_path)
    content.write_text(content.read_text().replace("    8,\n", "    9,\n").replace('mistake="adds two", ', ""))
    (report,) = validation.check(made)
    told = "\n".join(problem.says for problem in report.problems)
    assert "its answer is 9, and its proof gives 8" in told
    assert "the mistake 'adds two' is recognized as not yet" in told


QUESTION = Question("q", "How many?", Number(), 2, "Because.", wrong=(Wrong(3, "You counted the root.", belief=28),))
BROKEN = {
    "it asks nothing": replace(QUESTION, asks=" "),
    "is not valid": replace(QUESTION, answer="many"),
    "counts as wrong": replace(QUESTION, kind=Order("x", "y", valid=lambda order: False), answer=("a", "b"), wrong=()),
    "write that": replace(QUESTION, answer="2"),
    "counts as right": replace(QUESTION, wrong=(Wrong(2, "No."),)),
    "is listed twice": replace(QUESTION, wrong=(Wrong(3, "No."), Wrong(3, "Never."))),
    "no explanation of its own": replace(QUESTION, wrong=(Wrong(3, "No."), Wrong(4, "No."))),
    "no belief has that number": replace(QUESTION, belief=99),
    "its proof gives 3": replace(QUESTION, proof=lambda: 3),
}


@pytest.mark.parametrize("told", BROKEN)
def test_a_rehearsal_says_what_is_wrong_with_a_question(told):
    content = Content("mine", "Mine", "say", 5, predictions=(BROKEN[told],))
    (found,) = [one for one in self_test.rehearse(content) if told in one]
    assert found
    assert list(self_test.of_question(QUESTION)) == []


def _once(answer):
    """it is one"""
    require_equal(answer, 1, "It is not one.")


def _by_name(answer):
    """it is one"""
    if answer == 2:
        fail(mistake="two")
    _once(answer)


TASK = Task("n", "One.", starter="n = ...", reference="n = 1", probes=(_by_name,), mistakes=(Mistake("two", "n = 2", "It is two."),))
FAULTY = {
    "its starter counts as correct": replace(TASK, starter="n = 1"),
    "its reference is not yet": replace(TASK, reference="n = 4"),
    "the mistake 'two' is recognized as not yet: ": replace(TASK, probes=(_once,)),
    "the mistake 'two' is recognized as correct": replace(TASK, mistakes=(Mistake("two", "n = 1", "It is two."),)),
    "no belief has that number": replace(TASK, mistakes=(Mistake("two", "n = 2", "It is two.", belief=99),)),
}


@pytest.mark.parametrize("told", FAULTY)
def test_a_rehearsal_says_what_is_wrong_with_a_task(told):
    (found,) = [one for one in self_test.rehearse(Content("mine", "Mine", "say", 5, tasks=(FAULTY[told],))) if told in one]
    assert found
    assert list(self_test.of_task(TASK)) == []
    assert list(self_test.of_task(replace(FAULTY[told], needs="torch.of.tomorrow"))) == []


def test_a_proof_leaves_nothing_behind():
    def proof():
        torch.set_grad_enabled(False)
        return 2

    before = torch.get_rng_state()
    assert list(self_test.of_question(replace(QUESTION, proof=proof))) == []
    assert torch.is_grad_enabled() and torch.equal(torch.get_rng_state(), before)


def test_a_copy_takes_the_content_of_own_lessons_along(tmp_path):
    template.create("my_lesson", tmp_path / "mine")
    copies.copy(tmp_path / "class", tmp_path / "mine")
    assert sorted(file.name for file in (tmp_path / "class").iterdir()) == ["my_lesson.ipynb", "my_lesson.py"]


def test_the_index_of_the_course_is_fresh():
    assert (courses.NOTEBOOKS / "README.md").read_text(encoding="utf-8") == index(), "run `make notebooks`"


def test_the_list_names_all_lessons(capsys):
    assert main(["lessons", "list"]) == 0
    text = capsys.readouterr().out
    assert all(lesson.name in text and lesson.goal in text for lesson in lookup.lessons())


def test_a_lesson_of_another_name_is_said(tmp_path: Path):
    with pytest.raises(lookup.LessonError, match="Nearest: 01_a_module"):
        lookup.find("01_module")
    (tmp_path / "empty.py").write_text("x = 1")
    with pytest.raises(lookup.LessonError, match="contains no lesson"):
        lookup.find("empty", tmp_path)
    shutil.rmtree(tmp_path)
