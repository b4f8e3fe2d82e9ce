"""The parts of which lessons are made: kinds of answers, cards, checks that survive anything, expected errors, modifications."""

import builtins
import decimal
import functools
import gc
import json
import linecache
import locale
import logging
import os
import random
import re
import signal
import sys
import threading
import time
import types
import warnings

import numpy
import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import modlab
from modlab.errors import ModlabError
from modlab.lessons import Lesson, answers, carrying, lookup, notebooks, settings
from modlab.lessons.cards import Card, CardRecord
from modlab.lessons.checking import evaluate, fail, judge, require_equal, untouched
from modlab.lessons.content import Mistake, Question, Task, Wrong
from modlab.lessons.expectation import Expectation, ExpectationError
from modlab.lessons.features import available
from modlab.lessons.isolation import isolated
from modlab.lessons.kinds import Choice, Name, Number, Order, Several, Shape, UnreadableError, YesNo
from modlab.lessons.modification import ModificationError


@pytest.fixture(autouse=True)
def nothing_said_before(monkeypatch):
    monkeypatch.setattr("modlab.lessons.lesson._SAID", {})


# ---- kinds ----------------------------------------------------------------------------------------

LETTERS = Choice("first", "second", "third")
PARTS = Order("loss", "forward", "backward", valid=lambda order: order.index("forward") < order.index("loss"))


@pytest.mark.parametrize(
    ("kind", "given", "read"),
    [
        (Number(), 3, 3),
        (Number(), 3.0, 3),
        (Number(), "1,234", 1234),
        (Number(), torch.tensor(2.5), 2.5),
        (Number(), "0,5", 0.5),
        (YesNo(), torch.tensor(True), True),
        (YesNo(), numpy.bool_(False), False),
        (Shape(), (numpy.int64(5), 3), (5, 3)),
        (LETTERS, "b)", "b"),
        (LETTERS, "b: second", "b"),
        (YesNo(), "Yes", True),
        (YesNo(), "n", False),
        (YesNo(), True, True),
        (Name(), " l1.weight ", "l1.weight"),
        (Name(), nn.ReLU, "ReLU"),
        (Shape(), (5, 3), (5, 3)),
        (Shape(), [5, 3], (5, 3)),
        (Shape(), torch.Size([5, 3]), (5, 3)),
        (Shape(), "(5, 3)", (5, 3)),
        (Shape(), 4, (4,)),
        (Shape(), (), ()),
        (LETTERS, "B", "b"),
        (LETTERS, "second", "b"),
        (Several("p", "q", "r"), "c a", ("a", "c")),
        (Several("p", "q", "r"), "ca", ("a", "c")),
        (Several("p", "q", "r"), ["r", "p"], ("a", "c")),
        (Several("p", "q", "r"), [], ()),
        (PARTS, "b, a, c", ("b", "a", "c")),
        (PARTS, "bac", ("b", "a", "c")),
        (PARTS, ["forward", "loss", "backward"], ("b", "a", "c")),
    ],
)
def test_an_answer_is_read_in_any_sensible_form(kind, given, read):
    assert kind.read(given) == read
    assert kind.same(kind.read(given), read)
    assert isinstance(kind.write(read), str)


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (Number(), "three"),
        (Number(), float("nan")),
        (Number(), "1,2,3"),
        (Number(), True),
        (Number(), torch.zeros(2)),
        (Number(), None),
        (YesNo(), "perhaps"),
        (YesNo(), 1),
        (Name(), 3),
        (Shape(), "wide"),
        (Shape(), (1.5, 2)),
        (Shape(), 2.0),
        (LETTERS, "d"),
        (LETTERS, 1),
        (Several("p", "q"), "a a"),
        (Several("p", "q"), 3),
        (PARTS, "b a"),
        (PARTS, "b a x"),
    ],
)
def test_what_is_no_answer_is_said_and_never_raises(kind, given):
    with pytest.raises(UnreadableError):
        kind.read(given)
    question = Question("q", "Which?", kind, kind.read("a") if kind.options and type(kind) is Choice else None, "Because.")
    said = answers.read(question, given)
    assert said.said is None
    card = answers.asked(said, "predict")
    assert "Which?" in card.strong


def test_every_valid_order_is_right():
    question = Question("q", "Order.", PARTS, ("b", "a", "c"), "Because.")
    assert answers.read(question, "b a c").right and answers.read(question, "c b a").right and answers.read(question, "b c a").right
    assert answers.read(question, "a b c").right is False


def test_numbers_are_compared_as_far_as_one_says_them():
    assert Number().right(0.3333, 1 / 3) and not Number().right(0.33, 1 / 3)
    assert not Number().right(10_541, 10_540)
    assert Number(tolerance=0.1).right(0.35, 1 / 3)


QUESTION = Question("q", "How many?", Number(), 2, "Because.", wrong=(Wrong(3, "You counted the root.", belief=28),))


def test_a_usual_wrong_answer_gets_its_own_words():
    said = answers.read(QUESTION, 3)
    assert said.belief == 28
    card = answers.settled(said, "see")
    assert (card.mark, card.strong) == ("broken", "You answered 3; the answer is 2.")
    assert card.prose == ("You counted the root.",), "why it is not so says what is so: the second would say it again"
    assert answers.settled(said, "why").prose == ("You counted the root.", "Because.")
    assert answers.settled(answers.read(QUESTION, 7), "see").prose == ("Because.",)
    assert answers.settled(answers.read(QUESTION, 2), "see").mark == "fine"
    assert answers.settled(answers.read(QUESTION, ...), "see").mark == "open"


def test_before_the_answer_is_known_nothing_gives_it_away():
    for given in (..., 2, 3, "x"):
        card = answers.asked(answers.read(QUESTION, given), "predict")
        told = " ".join((card.strong, card.rest, *card.prose, card.foot))
        assert "Because" not in told and ("2" in told) == (given == 2)


def test_the_first_cell_run_again_forgets_no_answer():
    name = "numbers of MyLinear"
    first = Lesson("01_a_module")
    first.predict(name, 15)
    first.predict("call or forward", "perhaps")
    again = Lesson("01_a_module")
    assert "You answered 15: correct." in repr(again.see(None, name))
    again.predict(name, 12)
    assert "You answered 12; the answer is 15." in repr(Lesson("01_a_module").see(None, name))
    again.predict(name, ...)
    assert "You made no prediction." in repr(Lesson("01_a_module").see(None, name)), "an answer that was taken back stays so"
    assert Lesson("02_registration")._said == {}


# ---- pictures -------------------------------------------------------------------------------------


def test_a_picture_is_seen_with_its_words_and_only_once():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    lesson = Lesson("01_a_module")
    figure, axes = pyplot.subplots()
    shown = lesson.see(figure, alt='two <lines> that "part"')
    assert repr(shown) == 'picture: two <lines> that "part"'
    assert '<img alt="two &lt;lines&gt; that &quot;part&quot;" src="data:image/png;base64,' in shown.html()
    assert "background:#fff" in shown.html(), "its words are black: on a dark page it stands on a card of its own"
    assert pyplot.get_fignums() == [], "an open figure is shown once more by the notebook"
    with pytest.raises(ModlabError, match="needs words"):
        lesson.see(figure)
    axes.set_title("a line")
    assert repr(lesson.see(figure)) == "picture: a line"
    assert repr(lesson.see(modlab.tree(nn.Linear(2, 3)).figure())).startswith("picture: Parameters by module as boxes")


SEEN = {
    "a_buffers": "_buffers holds both kinds: 0 persistent, 1 not",
    "b_flag": "_is_full_backward_hook",
    "c_pre_hook": "_look (full backward pre-hook, changes nothing)",
    "d_constructor": "super().__init__()",
    "e_gradients": "4 gradients added",
    "f_decay": "4 of 4 tensors changed",
}


@pytest.mark.parametrize("name", SEEN)
@pytest.mark.parametrize("verdict", [True, False])
def test_the_court_answers_a_verdict_without_evidence_by_a_view(name, verdict):
    lookup.find("12b_six_claims")
    six_claims = sys.modules["modlab_lesson_12b_six_claims"]
    empty = f"\n    def {name}(Net):\n        return {verdict}\n"
    found = judge(six_claims.COURT, made(six_claims._court(**{name: empty}), six_claims.COURT))
    assert found.outcome == "not yet"
    text, html = found.evidence
    assert SEEN[name] in text
    assert html


# ---- cards ----------------------------------------------------------------------------------------


def test_a_card_says_the_same_in_text_and_html_and_escapes_what_it_is_given():
    steps, pairs = (("fine", "<i>step"),), (("got", "<x>\n\u202ey"),)
    card = Card(CardRecord("check", "<b>", "Not yet.", "a `code` word", "broken", steps, pairs, ("Why.",), "x = 1"))
    text, html = repr(card), card.html()
    for word in ("Not yet.", "code", "step", "Why.", "x = 1"):
        assert word in text and word in html
    assert "<b>" not in html.replace("<strong>", "") and "<i>step" not in html and "\u202e" not in html and "<code>code</code>" in html
    assert all(sign in text and sign in html for sign in "✕✓"), "colour is never the only sign"
    assert "<script" not in html


# ---- checks ---------------------------------------------------------------------------------------


def _doubles(answer):
    """it doubles"""
    got = answer(torch.ones(2))
    if isinstance(got, torch.Tensor) and torch.equal(got, torch.full((2,), 3.0)):
        fail(mistake="adds", expected=2, got=3)
    require_equal(got, torch.full((2,), 2.0), "It does not double.")


def _keeps(answer):
    """it keeps zero"""
    require_equal(answer(torch.zeros(1)), torch.zeros(1), "It does not keep zero.")


TASK = Task(
    "double",
    "Double it.",
    starter="def double(x):\n    ...",
    reference="def double(x):\n    return 2 * x",
    probes=(_doubles, _keeps),
    mistakes=(
        Mistake("adds", "def double(x):\n    return x + 2", "It adds."),
        Mistake("typo", "", "A typo.", error="name 'y' is not defined"),
    ),
    hints=("One.", "Two."),
)


def made(source, task=TASK):
    return evaluate(source, task.expression)


def test_a_check_has_three_outcomes():
    assert judge(TASK, ...).outcome == "not attempted"
    assert judge(TASK, made(TASK.starter)).outcome == "not attempted"
    assert judge(TASK, made(TASK.reference)).outcome == "correct" and judge(TASK, made(TASK.reference)).score == 1
    verdict = judge(TASK, made("def double(x):\n    return x + 2"))
    assert (verdict.outcome, verdict.mistake, verdict.expected, verdict.got) == ("not yet", "adds", "2", "3")
    assert judge(TASK, made("def double(x):\n    raise NotImplementedError()")).outcome == "not attempted", "a grader's stub"
    half = judge(TASK, made("def double(x):\n    return x + 1"))
    assert (half.outcome, half.score, half.steps) == ("not yet", 0.5, (("it doubles", True), ("it keeps zero", False)))


def test_a_starter_in_another_spelling_is_still_untouched():
    assert untouched(made("def double(x):\n    '''mine'''\n    ...  # later"), TASK)
    assert not untouched(made("def double(x):\n    return None or ..."), TASK)


def test_an_error_in_the_learners_code_names_its_own_line(monkeypatch):
    source = "def double(x):\n    z = 1\n    return y * z"
    monkeypatch.setitem(linecache.cache, "<lesson>", (len(source), None, source.splitlines(keepends=True), "<lesson>"))
    verdict = judge(TASK, made(source))
    assert (verdict.mistake, verdict.says[0]) == ("typo", "A typo.")
    assert "NameError in `return y * z` (line 3 of double)" in verdict.says[1]


def _several_lines(*arguments):
    raise ValueError("first line\n\tsecond line")


def test_an_error_of_several_lines_is_told_in_one():
    (says,) = judge(Task("f", "", "", "", (lambda answer: answer(),)), _several_lines).says
    assert says.endswith("first line second line")


def test_the_tour_does_not_tell_the_number_to_who_puts_a_guess_in_quotes():
    (count,) = lookup.find("00_tour").tasks
    told = str(Lesson("00_tour").check("count", "11"))
    assert "Not yet: text." in told
    assert all(written not in told for written in ("11689512", "11,689,512", "11_689_512")), count.reference


def test_a_judgement_grades_and_helps():
    lesson = Lesson("01_a_module")
    assert not lesson.check("Square")
    done = lesson.check("Square", type("Square", (nn.Module,), {"forward": lambda self, x: x**2}))
    assert done and done.score == 1 and done.outcome == "correct"
    bundle = done.bundle()
    kept = bundle["application/vnd.modlab.answer+json"]
    assert json.loads(json.dumps(kept)) == kept and kept["outcome"] == "correct"
    assert "Correct" in bundle["text/plain"] and "Correct" in bundle["text/html"]


def test_hints_come_one_by_one_and_the_solution_last():
    lesson = Lesson("01_a_module")
    assert "Not yet" in repr(lesson.solution("Affine"))
    assert [repr(lesson.hint("Affine")).split(":")[1].strip()[:6] for _ in range(4)] == ["1 of 3", "2 of 3", "3 of 3", "3 of 3"]
    assert "return input @ self.weight" in repr(lesson.solution("Affine"))
    again = Lesson("01_a_module")
    again.check("Affine", nn.Linear)
    assert "return input @ self.weight" in repr(again.solution("Affine")), "an attempt is enough"
    assert "1 of 3" in repr(again.check("Affine", nn.Linear).hint()) and "3 of 3" in repr(again.hint("Affine", 99))


@pytest.mark.parametrize(
    ("leave", "word"),
    [
        (lambda: torch.nn.modules.module.register_module_forward_pre_hook(lambda *_: None), "hook for all modules"),
        (lambda: register_optimizer_step_post_hook(lambda *_: None), "hook for all optimizers"),
        (lambda: torch.set_grad_enabled(False), "grad mode"),
        (lambda: torch.set_default_dtype(torch.float64), "default dtype"),
        (lambda: torch.set_default_device("meta"), "default device"),
        (lambda: torch.use_deterministic_algorithms(True), "deterministic"),
        (lambda: setattr(nn.Module, "__call__", lambda self: 3), "Module.__call__"),
        (lambda: setattr(nn.Module, "forward_twice", 1), "Module.forward_twice"),
        (lambda: setattr(nn.BatchNorm1d, "train", lambda self, mode=True: self), "BatchNorm1d.train"),
        (lambda: setattr(torch.nn.functional, "relu", abs), "torch.nn.functional.relu"),
    ],
)
def test_what_is_left_on_is_put_back_and_told(leave, word):
    call = nn.Module.__call__
    with isolated() as left:
        leave()
    assert len(left) == 1 and word in left[0]
    assert nn.Module.__call__ is call and not hasattr(nn.Module, "forward_twice")
    assert torch.is_grad_enabled() and torch.get_default_dtype() is torch.float32
    assert torch.ones(1).device.type == "cpu" and not torch.are_deterministic_algorithms_enabled()
    assert nn.Linear(1, 1)(torch.ones(1)).shape == (1,)


def test_a_part_of_torch_that_was_imported_meanwhile_stays():
    with isolated() as left:
        torch.nn.loaded_late = types.ModuleType("torch.nn.loaded_late")
    assert left == [] and "loaded_late" in vars(torch.nn)
    del torch.nn.loaded_late


def test_random_numbers_and_a_given_module_are_as_they_were():
    torch.manual_seed(5)
    random.seed(5)
    expected = torch.rand(2), random.random()
    torch.manual_seed(5)
    random.seed(5)
    model = nn.BatchNorm1d(2)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with isolated(model) as left:
        torch.rand(7), random.random()
        model(torch.randn(8, 2))
        model.eval()
        model.register_forward_hook(lambda *_: None)
        with torch.no_grad():
            model.weight.zero_()
    assert left == [] and model.training and not model._forward_hooks
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())
    assert torch.equal(torch.rand(2), expected[0]) and random.random() == expected[1]


def test_isolation_also_holds_when_something_is_raised():
    with pytest.raises(ZeroDivisionError), isolated() as left:
        torch.set_grad_enabled(False)
        warnings.simplefilter("ignore")
        raise ZeroDivisionError
    assert torch.is_grad_enabled() and left


# ---- errors that are meant ------------------------------------------------------------------------


def test_an_expected_error_is_shown(capsys):
    lesson = Lesson("01_a_module")
    with lesson.expect(TypeError, match="act") as raised:
        raise TypeError("missing: act")
    assert raised.message == "missing: act" and "missing: act" in capsys.readouterr().out
    assert not [value for value in vars(raised).values() if isinstance(value, BaseException)], "it holds on to no frame"


def test_an_expected_error_that_does_not_come_fails():
    with pytest.raises(ExpectationError, match="nothing was raised"), Expectation(TypeError):
        pass
    with pytest.raises(ExpectationError, match="says 'other'"), Expectation(TypeError, "act"):
        raise TypeError("other")
    with pytest.raises(ValueError, match="mine"), Expectation(TypeError):
        raise ValueError("mine")
    with pytest.raises(ModlabError, match="an exception class"):
        Expectation("TypeError")


# ---- modifications ----------------------------------------------------------------------------------------


def test_each_variant_shows_its_line_and_what_it_gives():
    width = 3
    turned = Lesson("01_a_module").modify("y = {a} + width\ny * {b}", a=[1, 2], b=[1.0, -1.0])
    assert width == 3
    assert [(one.code.splitlines()[-1], one.text) for one in turned.variants] == [
        ("y * 1.0", "4.0"),
        ("y * -1.0", "-4.0"),
        ("y * 1.0", "5.0"),
        ("y * -1.0", "-5.0"),
    ]
    html = turned.html()
    assert html.count("<details") == 4 and "data-settings" in html
    assert all(one.text in repr(turned) for one in turned.variants)
    assert "<script" not in re.sub(r"<!--modlab:live-->.*?<!--/modlab:live-->", "", html, flags=re.DOTALL)


def test_settings_that_do_not_fit_are_said():
    lesson = Lesson("01_a_module")
    with pytest.raises(ModificationError, match="no blank"):
        lesson.modify("1 + 1", a=[1])
    with pytest.raises(ModificationError, match="variants together"):
        lesson.modify("{a}", a=range(100))
    with pytest.raises(ModificationError, match="expression"):
        lesson.modify("x = {a}", a=[1])


# ---- seeing, recalling ----------------------------------------------------------------------------


def test_a_view_carries_what_was_predicted_of_it():
    lesson = Lesson("01_a_module")
    lesson.predict("numbers of MyLinear", 12)
    model = nn.Linear(4, 3)
    seen = lesson.see(modlab.tree(model), "numbers of MyLinear")
    assert "You answered 12; the answer is 15." in repr(seen) and "You answered 12; the answer is 15." in seen.html()
    assert str(modlab.tree(model)) in repr(seen) and seen.view.total_parameters == 15
    assert "7" in repr(lesson.see(7)) and "7" in lesson.see(7).html()


def test_missed_answers_come_back_from_the_learners_own_notebooks(tmp_path):
    lesson = Lesson("01_a_module")
    assert "no answers yet" in repr(lesson.missed(tmp_path))
    wrong, right = 'lesson.predict("call or forward", True)', 'lesson.predict("a grad_fn", "yes")'
    cells = ['lesson = Lesson("01_a_module")', wrong, right, "half written ("]
    file = tmp_path / "01_a_module.ipynb"
    file.write_text(json.dumps({"cells": [{"cell_type": "code", "source": cell} for cell in cells], "metadata": {}}))
    (tmp_path / "other.ipynb").write_text("[]")
    again = " ".join(repr(lesson.missed(tmp_path)).split())
    assert "1 of 2 answers was wrong" in again and "Do `m(x)` and `m.forward(x)` still agree?" in again and "You answered yes" in again
    file.write_text(file.read_text().replace("True", "False"))
    assert "None of your 2 answers was wrong" in repr(lesson.missed(tmp_path))


def test_the_answers_of_a_notebook_are_read_without_running_it():
    cells = [
        'lesson.predict("a", ...)',
        'lesson.predict("b", (2, 3)); 1 / 0',
        "lesson.recall('c', yes)",
        'trace.why("l0.weight")',
        "%load_ext modlab",
        'lesson.why("d", 1 + x)',
        'lesson.predict("e", answer=4 * 3 - 1)',
        'lesson.predict("f", torch.Size([3]))',
        'lesson.predict("g", {[1]})',
        "x = " + "1 + " * 5000 + "1",
    ]
    found = notebooks.given({"cells": [{"cell_type": "code", "source": [cell]} for cell in cells]})
    assert [(one.cell, one.kind, one.name, one.value) for one in found] == [
        (0, "predict", "a", ...),
        (1, "predict", "b", (2, 3)),
        (2, "recall", "c", "yes"),
        (5, "why", "d", "1 + x"),
        (6, "predict", "e", 11),
        (7, "predict", "f", [3]),
        (8, "predict", "g", "{[1]}"),
    ]


def test_answers_are_carried_into_a_new_edition():
    def book(*cells):
        return {"cells": [{"cell_type": "code", "source": [cell]} for cell in cells], "metadata": {}}

    mine, left = 'lesson.predict("a", "x, (y)")', 'lesson.predict("open", ...)'
    old = book(mine, 'f = 3\nlesson.check("t", f)', 'lesson.predict("gone", 1)', left)
    new = book("import torch", 'lesson.predict("a", ...)', left, 'f = ...\nlesson.check("t", f)', 'lesson.check("u", g)')
    carried = ["".join(cell["source"]) for cell in carrying.carry(old, new)["cells"]]
    assert carried == ["import torch", mine, left, 'f = 3\nlesson.check("t", f)', 'lesson.check("u", g)']


def test_names_that_do_not_exist_are_answered_with_the_nearest():
    lesson = Lesson("01_a_module")
    with pytest.raises(lookup.LessonError, match="Nearest: 'a grad_fn'"):
        lesson.predict("grad_fn", 1)
    with pytest.raises(lookup.LessonError, match="no task 'Mylinear'"):
        lesson.check("Mylinear", 1)


def test_features_are_asked_by_name(capsys):
    assert available("torch.nn.functional.relu") and available("torch")
    assert not available("torch.no_such.thing") and not available("no_package")
    lesson = Lesson("01_a_module")
    assert lesson.has("torch.jit") and not lesson.has("torch.never")
    assert "no torch.never" in capsys.readouterr().out
    task = Task("t", "Do.", "t = ...", "t = 1", (), needs="torch.never")
    assert judge(task, 1).outcome == "not possible"


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: Lesson(5), "name of its notebook"),
        (lambda: Lesson("01_a_module").hint("Affine", "a"), "by its number"),
        (lambda: Lesson("01_a_module").modify("{a}", a=5), "several values"),
        (lambda: Lesson("01_a_module").modify("{a} +", a=[5]), "not valid Python"),
        (lambda: Lesson("01_a_module").expect(TypeError, match="("), "must be a regular expression"),
    ],
)
def test_what_is_given_wrongly_is_answered_by_a_sentence(call, word):
    with pytest.raises(ModlabError, match=word):
        call()


def test_what_a_setting_raises_is_what_it_shows():
    turned = Lesson("01_a_module").modify("[1, 2][{i}]", i=[1, 2])
    assert [one.text for one in turned.variants] == ["2", "raises IndexError: list index out of range"]


def test_an_answer_that_could_not_be_read_is_not_called_missing():
    assert "could not be read" in answers.settled(answers.read(QUESTION, "many"), "see").rest
    near = answers.read(Question("q", "?", Number(), 0.8994, "So."), 0.9)
    assert answers.settled(near, "see").strong == "You answered 0.9: correct. It is 0.8994."


class _Own(BaseException):
    pass


def test_even_an_exception_that_is_no_error_is_told():
    def bad(x):
        raise _Own("mine")

    assert "mine" in judge(TASK, bad).says[0]
    assert judge(TASK, lambda x: (_ for _ in ()).throw(GeneratorExit)).outcome == "not yet"


def test_a_file_that_runs_away_is_no_lesson(tmp_path):
    for code in ("raise SystemExit(3)", "def (", "1 / 0"):
        (tmp_path / "mine.py").write_text(code)
        with pytest.raises(lookup.LessonError, match="cannot be read as a lesson"):
            lookup.find("mine", tmp_path)


ODD_OUTPUTS = [json.dumps({"cells": [{"cell_type": "code", "source": "", "outputs": odd}]}) for odd in (5, ["x"], [{"data": 5}])]
ODD_FILES = ["[]", "{}", '{"cells": [5]}', '{"cells": [{"cell_type": "code", "source": 3}]}', "no json", "[" * 100_000]


@pytest.mark.parametrize("content", ODD_FILES + ODD_OUTPUTS)
def test_what_is_no_notebook_is_said(tmp_path, content):
    (tmp_path / "odd.ipynb").write_text(content)
    with pytest.raises(notebooks.NotebookError, match=r"odd\.ipynb is not a notebook"):
        notebooks.read(tmp_path / "odd.ipynb")


# ---- everything that code can leave on ------------------------------------------------------------


class _Mode(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class _Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


LEFT_ON = {
    "autocast": (lambda: torch.autocast("cpu").__enter__(), "autocast"),
    "autocast_dtype": (lambda: torch.set_autocast_dtype("cpu", torch.float16), "autocast"),
    "function_mode": (lambda: _Mode().__enter__(), "function modes"),
    "dispatch_mode": (lambda: _Dispatch().__enter__(), "dispatch modes"),
    "two_modes": (lambda: (_Dispatch().__enter__(), _Dispatch().__enter__()), "dispatch modes"),
    "saved_hooks": (lambda: torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x).__enter__(), "saved-tensor hooks"),
    "settrace": (lambda: sys.settrace(lambda *_: None), "sys.settrace"),
    "setprofile": (lambda: sys.setprofile(lambda *_: None), "sys.setprofile"),
    "threads_trace": (lambda: threading.settrace(lambda *_: None), "threading.settrace"),
    "threads_profile": (lambda: threading.setprofile(lambda *_: None), "threading.setprofile"),
    "gc": (gc.disable, "garbage collection"),
    "gc_threshold": (lambda: gc.set_threshold(5), "the thresholds of garbage collection"),
    "threads": (lambda: torch.set_num_threads(torch.get_num_threads() + 1), "number of threads"),
    "allclose": (lambda: setattr(torch, "allclose", lambda *_, **__: True), "torch.allclose"),
    "wrapped": (lambda: setattr(torch, "manual_seed", functools.wraps(torch.manual_seed)(lambda seed: None)), "torch.manual_seed"),
    "tensor": (lambda: setattr(torch.Tensor, "__eq__", lambda *_: True), "Tensor.__eq__"),
    "optimizer": (lambda: setattr(torch.optim.SGD, "step", lambda *_: None), "SGD.step"),
    "builtin": (lambda: setattr(builtins, "print", None), "builtins.print"),
    "modlab": (lambda: setattr(modlab, "tree", None), "modlab.tree"),
    "backward": (lambda: setattr(torch.autograd, "backward", None), "torch.autograd.backward"),
    "dtype": (lambda: torch.set_default_dtype(torch.float64), "default dtype"),
    "device": (lambda: torch.set_default_device("meta"), "default device"),
    "deterministic": (lambda: torch.use_deterministic_algorithms(True, warn_only=True), "deterministic"),
    "anomaly": (lambda: torch.autograd.set_detect_anomaly(True), "anomaly"),
    "precision": (lambda: torch.set_float32_matmul_precision("medium"), "precision"),
    "inference": (lambda: _KEPT.append(torch._C._InferenceMode(True)), "inference mode"),
    "folder": (lambda: os.chdir("/"), "working folder"),
    "signal": (lambda: signal.signal(signal.SIGUSR1, lambda *_: None), "signal"),
    "alarm": (lambda: signal.alarm(1000), "alarm"),
    "excepthook": (lambda: setattr(sys, "excepthook", print), "hooks for errors"),
    "printing": (lambda: torch.set_printoptions(precision=2), "print options"),
    "cudnn": (lambda: setattr(torch.backends.cudnn, "benchmark", True), "cudnn.benchmark"),
    "recursion": (lambda: sys.setrecursionlimit(sys.getrecursionlimit() + 7), "recursion limit"),
    "numpy": (lambda: numpy.seterr(all="raise"), "NumPy"),
    "environment": (lambda: os.environ.update(MODLAB_LEFT="1"), ""),
    "path": (lambda: sys.path.append("/nowhere"), ""),
    "filters": (lambda: warnings.simplefilter("ignore"), ""),
    "stdout": (lambda: setattr(sys, "stdout", None), ""),
    "logging": (lambda: logging.disable(50), ""),
    "umask": (lambda: os.umask(0o077), "umask"),
    "locale": (lambda: locale.setlocale(locale.LC_ALL, "C"), "locale"),
    "decimal": (lambda: setattr(decimal.getcontext(), "prec", 3), "decimal"),
    "switches": (lambda: sys.setswitchinterval(1), "switch interval"),
    "digits": (lambda: sys.set_int_max_str_digits(0), "longest number"),
    "attention": (lambda: torch.backends.cuda.enable_math_sdp(False), "kinds of attention"),
    "denormal": (lambda: torch.set_flush_denormal(True), "set_flush_denormal"),
    "sharing": (lambda: torch.multiprocessing.set_sharing_strategy("file_system"), "sharing strategy"),
    "importing": (lambda: sys.meta_path.clear(), "sys.meta_path"),
    "module_gone": (lambda: sys.modules.pop("json"), ""),
    "module_none": (lambda: sys.modules.update(torch=None), ""),
    "numpy_printing": (lambda: numpy.set_printoptions(precision=1), "NumPy's print options"),
    "os": (lambda: setattr(os, "getcwd", None), "os.getcwd"),
    "time": (lambda: setattr(time, "sleep", None), "time.sleep"),
    "environ": (lambda: setattr(os, "environ", {}), ""),
    "timer": (lambda: signal.setitimer(signal.ITIMER_VIRTUAL, 1000), "alarm"),
    "blocked": (lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1]), "signals"),
    "write": (lambda: setattr(sys.stdout, "write", None), ""),
    "breakpoint": (lambda: setattr(sys, "breakpointhook", None), "hooks"),
    "gc_debug": (lambda: gc.set_debug(gc.DEBUG_SAVEALL), "garbage collection's debug flags"),
}
if locale.setlocale(locale.LC_ALL) == "C":
    del LEFT_ON["locale"]
_KEPT: list[object] = []


def world():
    """All that could be left otherwise."""
    held = {setting.name: setting.get() for setting in (*settings.FIRST, *settings.SETTINGS) if setting.name != "sys.modules"}
    return held | {name: sys.modules.get(name) for name in ("torch", "json")} | {"write": callable(sys.stdout.write)}


@pytest.mark.parametrize(("leave", "word"), LEFT_ON.values(), ids=LEFT_ON)
def test_whatever_is_left_on_is_put_back(leave, word):
    before, functions = world(), (torch.allclose, torch.Tensor.__eq__, torch.optim.SGD.step, print, modlab.tree, torch.autograd.backward)
    with isolated() as left:
        leave()
    _KEPT.clear()
    assert world() == before
    assert functions == (torch.allclose, torch.Tensor.__eq__, torch.optim.SGD.step, print, modlab.tree, torch.autograd.backward)
    assert len(left) == (word != "") + (word == "inference mode") and word in " ".join(left)  # which also turns grad mode off


def test_all_of_it_at_once_and_an_error_too():
    before = world()
    leave = [do for name, (do, _) in LEFT_ON.items() if name not in ("builtin", "stdout", "tensor", "inference")]
    with pytest.raises(ZeroDivisionError), isolated() as left:
        for do in leave:
            do()
        raise ZeroDivisionError
    _KEPT.clear()
    assert world() == before and len(left) >= 24


def test_what_the_user_had_on_stays_on():
    with _Mode(), _Dispatch(), torch.autocast("cpu"), torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x), torch.no_grad():
        before = world()
        with isolated() as left:
            pass
        assert world() == before and left == []


def test_a_working_folder_that_is_gone_is_no_trouble(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    os.chdir(tmp_path / "here")
    (tmp_path / "here").rmdir()
    try:
        with isolated() as left:
            os.chdir("/")
        assert Lesson("01_a_module").check("Affine", 3).outcome == "not yet"
    finally:
        os.chdir(tmp_path)
    assert left == [] or "working folder" in left[0]


def test_a_folder_that_the_answer_removes_is_told(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with isolated() as left:
        os.chdir(tmp_path)
        (tmp_path / "here").rmdir()
    assert len(left) == 1 and "working folder" in left[0] and "could not be restored" in left[0]


def raising(*_, **__):
    raise OSError("never ask me")


def odd(**names):
    return type("Odd", (), {name: raising for name in names.get("methods", "").split()} | names.get("more", {}))()


class SilentError(Exception):
    __str__ = __repr__ = raising


class SilentlyFailing(nn.Module):
    def __init__(self, *_):
        raise SilentError


ODD_ANSWERS = {
    "str": lambda: odd(methods="__str__ __repr__"),
    "class": lambda: odd(more={"__class__": property(raising)}),
    "eq": lambda: odd(methods="__eq__ __ne__ __bool__ __len__", more={"__hash__": object.__hash__}),
    "getattr": lambda: odd(methods="__getattr__ __getattribute__ __dir__"),
    "call": lambda: odd(methods="__call__ __iter__ __format__"),
    "error": lambda: SilentlyFailing,
    "exit": lambda: lambda *_: sys.exit(3),
    "interrupt": lambda: type("I", (nn.Module,), {"__init__": lambda self, *_: signal.raise_signal(signal.SIGINT)}),
    "uninitialized": lambda: nn.Module.__new__(nn.Linear),
    "tensor": lambda: torch.ones(3).as_subclass(type("T", (torch.Tensor,), {"__repr__": raising, "__torch_function__": raising})),
    "odd_meta": lambda: type("Meta", (type,), dict.fromkeys(["__repr__", "__getattr__", "__instancecheck__"], raising))("X", (), {}),
    "deep": lambda: eval("[" * 90 + "]" * 90),
    "number": lambda: 10**5000,
    "surrogate": lambda: "\ud800",
}


@pytest.mark.parametrize("make", ODD_ANSWERS.values(), ids=ODD_ANSWERS)
@pytest.mark.parametrize("name", ["01_a_module", "00_tour", "07_state"])
def test_a_check_never_raises(make, name):
    lesson = Lesson(name)
    before = world()
    for task in lesson.content.tasks:
        judgement = lesson.check(task.name, make())
        assert judgement.outcome in ("not yet", "not attempted", "not possible")
        assert str(judgement) and judgement.html() and judgement.bundle()
    assert world() == before


def test_what_the_compiler_puts_on_the_class_of_modules_is_not_a_learners_doing(monkeypatch):
    from torch._dynamo import mutation_guard

    for name in ("__init__", "__setstate__"):
        monkeypatch.setattr(nn.Module, name, getattr(nn.Module, name))
    monkeypatch.delattr(nn.Module, "___needs_generation_tag_patch", raising=False)
    with isolated() as left:
        mutation_guard.install_generation_tagging_init()
    assert left == []
