"""Every lesson: its answers are true, its references pass, its wrong answers are known by name, and its notebook agrees with it."""

import ast
import re

import pytest
import torch

from modlab.lessons import answers, beliefs, notebooks
from modlab.lessons.features import available
from modlab.lessons.judgement import Judgement
from modlab.lessons.judging import evaluate, judge
from modlab.lessons.kinds import Number
from modlab.lessons.seeing import Seen
from tests import courses

LESSONS = courses.lessons()
QUESTIONS = [(lesson, question) for lesson in LESSONS for question in lesson.questions]
TASKS = [(lesson, task) for lesson in LESSONS for task in lesson.tasks if not task.needs or available(task.needs)]
MISTAKES = [(lesson, task, mistake) for lesson, task in TASKS for mistake in task.mistakes]
LINES, WORDS = 15, 120


def label(thing):
    return getattr(thing, "name", str(thing)).replace(" ", "-")


def each(things):
    return pytest.mark.parametrize(
        [("lesson",), ("lesson", "thing"), ("lesson", "task", "mistake")][len(things[0]) - 1], things, ids=lambda one: label(one)
    )


def made(task, source):
    return evaluate(f"{task.given}\n{source}", task.expression)


lesson_by_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=label)


@each(QUESTIONS)
def test_the_answer_to_a_question_is_true(lesson, thing):
    kind = thing.kind
    answer = kind.read(thing.answer)
    assert answer == thing.answer, "give the answer in the form in which it is read"
    assert answers.read(thing, thing.answer).right is True
    assert thing.asks.strip() and thing.because.strip()
    if thing.proof is not None and (not thing.needs or available(thing.needs)):
        torch.manual_seed(0)
        assert kind.right(kind.read(thing.proof()), answer)


@each(QUESTIONS)
def test_a_usual_wrong_answer_is_wrong_and_has_its_own_explanation(lesson, thing):
    told = set()
    for wrong in thing.wrong:
        answer = answers.read(thing, wrong.answer)
        assert answer.right is False and answer.wrong is wrong and wrong.because.strip()
        assert answer.belief == 0 or answer.belief in beliefs.BELIEFS
        told.add(wrong.because)
    assert len(told) == len(thing.wrong)
    if thing.kind.options and type(thing.kind).__name__ == "Choice":
        explained = {thing.kind.read(wrong.answer) for wrong in thing.wrong}
        unexplained = {letter for letter, _ in thing.kind.options} - {thing.answer} - explained
        assert not unexplained, f"the choices {unexplained} have no explanation"


@each(TASKS)
def test_a_starter_is_not_attempted_and_a_reference_is_correct(lesson, thing):
    assert judge(thing, ...).outcome == "not attempted"
    assert judge(thing, made(thing, thing.starter)).outcome == "not attempted"
    verdict = judge(thing, made(thing, thing.reference))
    assert verdict.outcome == "correct", verdict


@each(MISTAKES)
def test_a_usual_mistake_is_known_by_name(lesson, task, mistake):
    verdict = judge(task, made(task, mistake.source))
    assert verdict.outcome == "not yet", verdict
    assert verdict.mistake == mistake.name, verdict
    assert mistake.says in verdict.says
    assert mistake.belief == 0 or mistake.belief in beliefs.BELIEFS


def _raises(*arguments, **options):
    raise ZeroDivisionError("on purpose")


def _recurses(*arguments, **options):
    return _recurses(*arguments, **options)


def _exits(*arguments, **options):
    raise SystemExit(3)


def _interrupted(*arguments, **options):
    raise KeyboardInterrupt


def _leaves(*arguments, **options):
    torch.nn.modules.module.register_module_forward_hook(lambda *_: None)
    torch.set_grad_enabled(False)
    torch.set_default_dtype(torch.float64)
    torch.rand(3)


class _Hostile:
    """Every question that it is asked raises."""

    __eq__ = __call__ = __iter__ = __len__ = __bool__ = __float__ = __repr__ = _raises
    __hash__ = object.__hash__


CALLS = [torch.nn.Linear, torch.nn.Linear(2, 2), torch.nn.Module, _raises, _recurses, _exits, _interrupted, _leaves]
ODD = [3, "text", [], torch.randn(2), object(), *CALLS, _Hostile()]


@each(TASKS)
@pytest.mark.parametrize("odd", ODD, ids=lambda odd: type(odd).__name__ + getattr(odd, "__name__", ""))
def test_a_check_survives_any_answer_and_puts_the_world_back(lesson, thing, odd):
    before = torch.get_rng_state(), torch.is_grad_enabled(), torch.get_default_dtype()
    verdict = judge(thing, odd)
    assert verdict.outcome == "not yet"
    assert verdict.says or verdict.left
    assert torch.equal(torch.get_rng_state(), before[0]) and (torch.is_grad_enabled(), torch.get_default_dtype()) == before[1:]
    assert not torch.nn.modules.module._global_forward_hooks


# ---- the notebook ---------------------------------------------------------------------------------


def plain(text):
    return re.sub(r"\s+", " ", text.replace("**", "").replace("\\", ""))


@lesson_by_lesson
def test_the_notebook_asks_what_the_content_answers(lesson):
    notebook = courses.notebook_of(lesson)
    cells = notebook["cells"]
    assert notebooks.lesson_name(notebook) == lesson.name
    assert notebooks.source(cells[0]).startswith(f"# {lesson.title}\n")
    given = notebooks.given(notebook)
    kinds = {question.name: kind for kind in ("predictions", "reasons", "recalls") for question in getattr(lesson, kind)}
    assert sorted(one.name for one in given) == sorted(kinds), "each question is asked once"
    questions = {question.name: question for question in lesson.questions}
    for one in given:
        assert one.kind == {"predictions": "predict", "reasons": "why", "recalls": "recall"}[kinds[one.name]]
        assert one.value is ..., f"{one.name} is answered in the notebook"
        assert notebooks.source(cells[one.cell]).strip() == f'lesson.{one.kind}("{one.name}", ...)', "a question has its cell for itself"
        text = next(notebooks.source(cell) for cell in cells[one.cell :: -1] if cell["cell_type"] == "markdown")
        assert plain(questions[one.name].asks) in plain(text)
        for letter, option in questions[one.name].kind.options:
            assert plain(f"- {letter}: {option}") in plain(text)


@lesson_by_lesson
def test_no_number_is_told_before_it_is_asked(lesson):
    """Of the learner's copy, which has no outputs: small numbers stand in many a sentence by chance, so the others are looked for."""
    cells = courses.notebook_of(lesson)["cells"]
    questions = {question.name: question for question in lesson.questions}
    for one in notebooks.given(courses.notebook_of(lesson)):
        question = questions[one.name]
        if isinstance(question.kind, Number) and (abs(question.answer) >= 20 or question.answer % 1):
            told = "\n".join(map(notebooks.source, cells[: one.cell + 1]))
            for written in {question.kind.write(question.answer), str(question.answer)}:
                assert not re.search(rf"(?<![\w.]){re.escape(written)}(?![\w])", told), f"{one.name}: {written} stands above"


@lesson_by_lesson
def test_it_ends_with_three_questions_and_one_from_before(lesson):
    if lesson.name != LESSONS[0].name:
        assert len(lesson.recalls) == 3
        assert any(re.search(r"[Ff]rom (lesson \d\d|the tour)", question.asks) for question in lesson.recalls)


@lesson_by_lesson
def test_the_notebook_offers_the_starters(lesson):
    sources = [notebooks.source(cell) for cell in courses.notebook_of(lesson)["cells"]]
    for task in lesson.tasks:
        checking = [source for source in sources if f'lesson.check("{task.name}", {task.expression})' in source]
        assert len(checking) == 1
        assert task.starter.strip() in checking[0]
        assert any(plain(task.asks) in plain(source) for source in sources)


@lesson_by_lesson
def test_an_open_task_breaks_no_cell_above_it(lesson):
    """Who runs all cells, and then goes back to one, must not meet the empty class of a task there under a name of the lesson."""
    used: set[str] = set()
    for cell in courses.notebook_of(lesson)["cells"]:
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse(notebooks.source(cell))
        if "lesson.check(" in notebooks.source(cell):
            made = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
            assert not made & used, f"give {made & used} another name in the task: cells above use it"
        used |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


@lesson_by_lesson
def test_every_prediction_is_settled_after_it_was_asked(lesson):
    asked, settled = set(), set()
    for cell in courses.notebook_of(lesson)["cells"]:
        source = notebooks.source(cell)
        if cell["cell_type"] == "code":
            asked |= {name for kind, name in courses.OPEN.findall(source) if kind == "predict"}
            for call in re.findall(r"lesson\.see\((.*)\)\s*$", source, re.DOTALL):
                names = {question.name for question in lesson.predictions if f'"{question.name}"' in call}
                assert names <= asked
                settled |= names
    assert settled == {question.name for question in lesson.predictions}


@lesson_by_lesson
def test_the_notebook_is_short_and_in_order(lesson):
    depth = 0
    for cell in courses.notebook_of(lesson)["cells"]:
        source = notebooks.source(cell)
        if cell["cell_type"] == "code":
            body = re.sub(r"\n*lesson\.check\(.*\)\s*$", "", source)
            assert len(body.strip().splitlines()) <= LINES, source
            continue
        assert len(source.split()) <= WORDS, source
        for heading in re.findall(r"^(#+) ", source, re.MULTILINE):
            assert len(heading) <= depth + 1, f"a heading jumps: {source}"
            depth = len(heading)
        assert not re.findall(r"!\[\]\(", source), "a picture without an alt text"


@lesson_by_lesson
def test_the_notebook_runs_unanswered(lesson):
    courses.reseed()
    values = courses.run(lesson)
    assert all(value.outcome in ("not attempted", "not possible") for value in values if isinstance(value, Judgement))
    assert all(card.mark == "open" for value in values if isinstance(value, Seen) for card in value.cards)


@lesson_by_lesson
def test_the_notebook_runs_with_the_right_answers(lesson):
    courses.reseed()
    values = courses.run(lesson, lambda source: courses.answered(lesson, source))
    judgements = [value for value in values if isinstance(value, Judgement)]
    assert len(judgements) == len(lesson.tasks)
    assert [one.record for one in judgements if one.outcome not in ("correct", "not possible")] == []
    assert all(card.mark == "fine" for value in values if isinstance(value, Seen) for card in value.cards)
