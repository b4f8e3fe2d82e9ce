"""Answers by a click, by a bare letter or typed: what is kept, what is shown, and what comes back after a restart."""

import ast
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from torch import nn

import modlab
from modlab.errors import ModlabError
from modlab.lessons import Lesson, answers, kept_answers, lesson, notebooks, stills
from modlab.lessons.cards import MIME
from modlab.lessons.content import Content, Question, Task, Wrong
from modlab.lessons.kinds import Choice, Name, Number, Order, Several, Shape, YesNo
from modlab.lessons.typed import Typed, TypedAnswers

KINDS = {
    "number": Question("number", "How many?", Number(), 15, "Twelve and three.", wrong=(Wrong(12, "The weight alone."),)),
    "yes": Question("yes", "Is it?", YesNo(), True, "It is."),
    "name": Question("name", "Which?", Name(), "l1.weight", "That one."),
    "shape": Question("shape", "What shape?", Shape(), (2, 3), "So many."),
    "choice": Question("choice", "Why?", Choice("one", "two", "three"), "b", "Two it is."),
    "several": Question("several", "Which ones?", Several("one", "two", "three"), ("a", "c"), "These two."),
    "order": Question("order", "In which order?", Order("one", "two", "three"), ("b", "a", "c"), "So it goes."),
}
CONTENT = Content("mine", "Mine", "click", 5, predictions=(*KINDS.values(),), tasks=(Task("t", "Do.", "t = ...", "t = 1", ()),))


@pytest.fixture
def mine(monkeypatch, tmp_path):
    """A lesson whose notebook lies in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("modlab.lessons.lookup.find", lambda *_: CONTENT)
    monkeypatch.setattr(lesson, "_SAID", {})
    return lambda: Lesson("mine")


def after_a_restart(monkeypatch):
    monkeypatch.setattr(lesson, "_SAID", {})


CLICKS = [
    ("number", "15", 15),
    ("number", " 1,000 ", 1000),
    ("yes", "no", False),
    ("name", "l2.weight", "l2.weight"),
    ("shape", "(2, 3)", (2, 3)),
    ("choice", "c", "c"),
    ("several", ["a", "b"], ("a", "b")),
    ("several", [], ()),
    ("order", ["b", "a", "c"], ("b", "a", "c")),
]


@pytest.mark.parametrize(("name", "clicked", "said"), CLICKS)
def test_a_click_answers_and_is_read_again_after_a_restart(mine, monkeypatch, name, clicked, said):
    first = mine()
    first.predict(name, ...)
    shown = first.click(name, clicked)
    assert shown["kept"] and len(shown["cards"]) == 1 and "You say" in shown["cards"][0]
    assert first._said[name].said == said
    after_a_restart(monkeypatch)
    card = mine().predict(name, ...)
    assert card.answer.said == said and card.answer.clicked and repr(card).startswith(f"predict ({name}): You say")
    kept = card.bundle()[MIME]
    assert (kept["question"], kept["right"]) == (name, card.answer.right)
    assert answers.read(KINDS[name], kept["said"]).said == said, "what a notebook keeps is read as the answer that it was"


def test_what_is_typed_comes_before_what_was_clicked(mine):
    one = mine()
    one.click("number", "12")
    assert one.predict("number", 15).answer == answers.Answer(KINDS["number"], 15)
    assert one.predict("number", ...).answer.said == 12
    assert 'data-by="click"' in one.predict("number", ...).html() and 'data-by="cell"' in one.predict("number", 3).html()


def test_an_answer_counts_until_there_is_another(mine, monkeypatch):
    """Somebody who looks at a question again has not lost what was said."""
    one = mine()
    one.click("choice", "a")
    assert "You say" not in one.click("choice", None)["cards"][0]
    assert one.predict("choice", ...).answer.said == "a"
    after_a_restart(monkeypatch)
    one = mine()
    assert one.predict("choice", ...).answer.said == "a"
    one.click("choice", "b")
    assert one.predict("choice", ...).answer.said == "b"


def test_a_click_that_is_no_answer_is_told_and_changes_nothing(mine):
    one = mine()
    one.click("number", "12")
    for odd in ("many", "", [], {"a": 1}, ["1", "2"]):
        assert one.click("number", odd) == {"trouble": "That is not a valid answer: write a number, such as 3 or 0.5."}
    assert one.predict("number", ...).answer.said == 12
    with pytest.raises(ModlabError, match="no question 'never'"):
        one.click("never", 1)


def test_a_click_renews_what_was_seen_already(mine):
    one = mine()
    one.predict("number", ...)
    assert "You made no prediction." in repr(one.see(7, "number", "yes"))
    card, seen = one.click("number", "12")["cards"]
    assert "You say 12." in card and "You answered 12; the answer is 15." in seen and "The weight alone." in seen
    assert "The answer is yes." in seen, "the card of the other prediction stands there as before"


def test_an_option_is_kept_by_its_text_for_letters_change(mine, monkeypatch, tmp_path):
    mine().click("choice", "b")
    assert json.loads((tmp_path / "mine.answers.json").read_text())["answers"] == {"choice": "two"}
    monkeypatch.setitem(KINDS, "choice", None)
    other = Question("choice", "Why?", Choice("two", "four"), "a", "Two it is.")
    assert answers.read(other, "two").said == "a" and answers.read(other, "three").said is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"answers": 3}', '{"answers": {"number": {"a": 1}}}', '{"answers": {"number": "many"}}']
)
def test_a_file_of_answers_that_cannot_be_read_is_no_answer(mine, tmp_path, text):
    (tmp_path / "mine.answers.json").write_text(text)
    assert mine().predict("number", ...).answer == answers.Answer(KINDS["number"])


def test_where_nothing_can_be_written_an_answer_lives_as_long_as_the_kernel(mine, tmp_path):
    one = mine()
    kept_answers.path("mine", tmp_path).mkdir()
    assert one.click("number", "12")["kept"] is False
    assert one.predict("number", ...).answer.said == 12


# ---- typed ----------------------------------------------------------------------------------------


TYPED = [
    ('lesson.predict("choice", b)', "b"),
    ('lesson.predict("choice", B)', "b"),
    ('lesson.predict("choice", x)', None),
    ('lesson.why("yes", no)', False),
    ('lesson.why("yes", maybe)', None),
    ('lesson.recall("several", c, a)', ("a", "c")),
    ('lesson.recall("several", [c, a])', ("a", "c")),
    ('lesson.predict("order", bac)', ("b", "a", "c")),
    ('lesson.predict("order", b, a, c)', ("b", "a", "c")),
    ('lesson.predict("number", 3 * 5)', 15),
    ('lesson.predict("number", x + 1)', 8),
    ('lesson.predict("number", -many)', None),
    ('lesson.predict("name", l1.weight)', "l1.weight"),
    ('lesson.predict("name", nn.ReLU)', "ReLU"),
    ('lesson.predict("shape", (2, size))', (2, 3)),
    ('lesson.predict("shape", (2, unknown))', None),
    ('lesson.predict("choice", ...)', None),
    ('lesson.predict("number", (n := 4))', 4),
]


@pytest.mark.parametrize(("line", "said"), TYPED)
def test_a_bare_letter_is_an_answer_and_no_name_stops_the_notebook(mine, line, said):
    names = {"lesson": mine(), "x": 7, "size": 3, "nn": nn, "a": "not the letter", "b": 1}
    tree = TypedAnswers(lambda: True).visit(ast.parse(line))
    exec(compile(tree, "<cell>", "exec"), names)
    (answer,) = names["lesson"]._said.values()
    assert answer.said == said
    assert (said is None) == (answer.trouble != "" or "..." in line)
    (given,) = notebooks.given({"cells": [{"cell_type": "code", "source": line}]})
    if "x +" not in line and ":=" not in line and "size" not in line:
        read = answers.read(answer.question, given.value).said
        assert read == said or answer.question.kind.same(read, said), "a report reads the cell as the lesson did"


def test_only_a_lessons_own_answers_are_touched():
    for line in ("trace.why(b)", 'lesson.see(b, "q")', "predict(b)", 'lesson.check("t", b)', 'lesson.predict("q", 3)', "lesson.predict(b)"):
        assert ast.dump(TypedAnswers(lambda: True).visit(ast.parse(line))) == ast.dump(ast.parse(line))
    line = 'lesson.predict("q", b)'
    assert ast.dump(TypedAnswers(lambda: False).visit(ast.parse(line))) == ast.dump(ast.parse(line))
    assert Typed("1 / 0", lambda: 1 / 0).value is None


# ---- what is shown --------------------------------------------------------------------------------


def test_a_question_that_stands_far_above_is_said_again(mine):
    one = mine()
    one.predict("shape", ...)
    assert "What shape?" not in repr(one.see(7, "shape"))
    for name in ("number", "yes", "name"):
        one.predict(name, ...)
    seen = one.see(7, "shape", "name")
    assert "What shape?" in repr(seen) and "What shape?" in seen.html() and "Which?" not in repr(seen)
    assert "What shape?" in one.click("shape", "(2, 3)")["cards"][-1], "also after a click"


def test_progress_is_what_a_lesson_shows_of_itself(mine):
    one = mine()
    assert "Mine: 0 of 7 questions, 0 of 1 task." in repr(one)
    one.click("choice", "b")
    one.predict("number", 3)
    assert one.check("t", 1).outcome == "correct"
    assert "Mine: 2 of 7 questions, 1 of 1 task." in repr(one) and "choice: you answered b" in repr(one)
    assert "2 of 7 questions, 1 of 1 task done." in repr(one.check("t", 1))


def test_a_still_is_a_view_without_script_and_the_same_each_time():
    model = nn.Linear(2, 3)
    one, two = stills.of(modlab.tree(model)), stills.of(modlab.tree(model))
    assert one == two and "<script" not in one
    key = one.split('data-key="')[1].split('"')[0]
    assert stills.SHOWN[key].headline == modlab.tree(model).headline
    for number in range(stills.KEPT + 5):
        stills.of(modlab.tree(nn.Linear(1, number + 1)))
    assert len(stills.SHOWN) == stills.KEPT and key not in stills.SHOWN


def test_a_picture_has_no_key_for_there_is_nothing_more_to_draw():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with modlab.watch(model, optimizer, keep="good") as w:
        for _ in range(6):
            optimizer.zero_grad()
            model(torch.randn(4, 2)).square().mean().backward()
            optimizer.step()
    still = stills.of(w.fork(2))
    assert "<img" in still and "data-key" not in still


NOTEBOOK = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.kernel = None
class Kernel: pass
shell.kernel = Kernel()
import torch
from torch import nn
import modlab
from modlab.lessons import Lesson, stills
shell.run_cell('''from modlab.lessons import Lesson
lesson = Lesson("01_a_module")''').raise_error()
assert shell.run_cell('lesson.predict("names of MyLinear", b)').error_in_exec is None
lesson = shell.user_ns["lesson"]
print(lesson._said["names of MyLinear"].said)
data, _ = shell.display_formatter.format(modlab.tree(nn.Linear(2, 3)))
print("<script" in data["text/html"], 'data-key="' in data["text/html"])
data, metadata = shell.display_formatter.format(modlab.tree(nn.Linear(2, 3)).figure())
print(sorted(data), metadata["image/png"]["alt"][:26])
"""


def test_a_notebook_takes_bare_letters_and_shows_stills(tmp_path):
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(NOTEBOOK)], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.stdout.splitlines()[-3:] == ["b", "False True", "['image/png', 'text/plain'] Parameters by module as bo"], done.stderr


def test_a_lessons_device_is_the_machines_unless_it_is_told(mine, monkeypatch):
    monkeypatch.delenv("MODLAB_DEVICE", raising=False)
    expected = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
    assert mine().device == expected
    monkeypatch.setenv("MODLAB_DEVICE", "meta")
    assert mine().device == torch.device("meta")
    assert Path.cwd() == mine()._folder


# ---- in a notebook that is handed in --------------------------------------------------------------


def test_what_was_clicked_is_read_from_the_card_and_from_the_file_beside_it(mine, tmp_path):
    card = mine()
    card.click("choice", "c")
    output = {"output_type": "display_data", "data": card.predict("choice", ...).bundle()}
    cells = [
        {"cell_type": "code", "source": 'lesson.predict("choice", ...)', "outputs": [output]},
        {"cell_type": "code", "source": 'lesson.predict("number", ...)'},
        {"cell_type": "code", "source": 'lesson.predict("yes", no)'},
    ]
    found = {one.name: one.value for one in notebooks.answered({"cells": cells}, {"number": 12, "choice": "one", "yes": True})}
    assert found == {"choice": "three", "number": 12, "yes": "no"}, "the cell, then its card, then the file"
    assert notebooks.checked({"cells": cells}) == []
