"""Every lesson: its answers are true, its references pass, its wrong answers are known by name, and its notebook agrees with it."""

import ast
import re

import pytest
import torch

from modlab.lessons import note, notebooks, self_test
from modlab.lessons.checking import Judgement, judge
from modlab.lessons.features import available
from modlab.lessons.kinds import Choice, Name, Number, Several
from modlab.lessons.seeing import SeenView
from tests import courses

LESSONS = courses.lessons()
QUESTIONS = [(lesson, question) for lesson in LESSONS for question in lesson.questions]
TASKS = [(lesson, task) for lesson in LESSONS for task in lesson.tasks if not task.needs or available(task.needs)]
SLOW = ("05_training_loop", "05b_dead_units", "near-zero-from-seed-63")  # ten thousand steps, some times; nbval compares what they end at
LINES, WORDS, BREATH = 15, 120, 25


def label(thing):
    return getattr(thing, "name", str(thing)).replace(" ", "-")


def each(things):
    return pytest.mark.parametrize(("lesson", "thing"), [at_leisure(*pair) for pair in things], ids=label)


def at_leisure(*things):
    """A case of a test, which is left out of `make test` where its last thing is slow."""
    return pytest.param(*things, marks=[pytest.mark.long] * (label(things[-1]) in SLOW))


lesson_by_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=label)


@each(QUESTIONS)
def test_the_answer_to_a_question_is_true_and_the_usual_wrong_ones_are_explained(lesson, thing):
    assert list(self_test.of_question(thing)) == []
    if type(thing.kind) is Choice:
        explained = {thing.kind.read(wrong.answer) for wrong in thing.wrong}
        unexplained = {letter for letter, _ in thing.kind.options} - {thing.answer} - explained
        assert not unexplained, f"the choices {unexplained} have no explanation"


@each(TASKS)
def test_a_starter_is_not_attempted_a_reference_is_correct_and_mistakes_are_known_by_name(lesson, thing):
    assert list(self_test.of_task(thing)) == []


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


def sentences(text):
    """What one says in one breath; code counts as a word."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return re.split(r"\n|(?<=[.?!:;])\s", re.sub(r"`[^`]*`", "code", text))


@lesson_by_lesson
def test_no_sentence_is_longer_than_a_breath(lesson):
    cells = courses.notebook_of(lesson)["cells"]
    told = [notebooks.source(cell) for cell in cells if cell["cell_type"] == "markdown"]
    for question in lesson.questions:
        told += [question.asks, question.because, *(wrong.because for wrong in question.wrong)]
    for task in lesson.tasks:
        told += [task.asks, *(mistake.says for mistake in task.mistakes), *task.hints]
    assert [sentence for text in told for sentence in sentences(text) if len(sentence.split()) > BREATH] == []


# ---- nothing is given away -------------------------------------------------------------------------


def words(text):
    return re.findall(r"\w+", text.lower())


def shown(cell):
    """What a code cell prints and shows as text; nothing where that may differ."""
    if cell["cell_type"] != "code" or "nbval-ignore-output" in cell["metadata"].get("tags", ()):
        return ""
    return "\n".join("".join(one.get("text", "")) + "".join(one.get("data", {}).get("text/plain", "")) for one in cell["outputs"])


def above(lesson, kinds=("predict", "why")):
    """Each question that is asked before it can be seen, with the prose, the headings and the outputs above it."""
    cells = courses.notebook_of(lesson)["cells"]
    questions = {question.name: question for question in lesson.questions}
    for one in notebooks.given(courses.notebook_of(lesson)):
        if one.kind in kinds:
            prose = [notebooks.source(cell) for cell in cells[: one.cell] if cell["cell_type"] == "markdown"]
            headings = [heading for text in prose for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)]
            options = re.compile(r"^- \w: .*$", re.MULTILINE)
            said = "\n".join(options.sub("", text) for text in prose)
            yield questions[one.name], headings, said, "\n".join(map(shown, cells[: one.cell]))


@lesson_by_lesson
def test_no_number_is_shown_by_a_cell_above_its_question(lesson):
    """Numbers below a hundred are met by chance."""
    for question, _, _, outputs in above(lesson):
        if isinstance(question.kind, Number) and (abs(question.answer) >= 100 or question.answer % 1):
            for written in {question.kind.write(question.answer), str(question.answer)}:
                assert not re.search(rf"(?<![\w.]){re.escape(written)}(?![\w])", outputs), f"{question.name}: {written} is shown above"


@lesson_by_lesson
def test_no_heading_gives_an_answer_away(lesson):
    for question, headings, _, _ in above(lesson):
        kind = question.kind
        for heading in headings:
            if type(kind) is Name and question.answer:
                assert question.answer not in re.findall(r"[\w.]+", heading), f"{question.name}: {heading}"
            elif type(kind) in (Choice, Several):
                right = {word for letter, text in kind.options if letter in question.answer for word in words(text)}
                wrong = {word for letter, text in kind.options if letter not in question.answer for word in words(text)}
                telling = {word for word in set(words(heading)) & (right ^ wrong) if len(word) >= LONG}
                assert len(telling & right) < 2 or telling & wrong, f"{question.name}: {telling} in {heading}"


@lesson_by_lesson
def test_no_sentence_above_a_question_explains_its_answer(lesson):
    """Five words in a row, most of them long, are no chance."""
    for question, _, said, outputs in above(lesson):
        told = f" {' '.join(words(said))} | {' '.join(words(outputs))} "
        explained = words(question.because)
        for i in range(len(explained) - 4):
            five = explained[i : i + 5]
            assert sum(len(word) >= LONG for word in five) < 3 or f" {' '.join(five)} " not in told, f"{question.name}: {' '.join(five)}"


LONG = 5  # letters of a word that tells something


@lesson_by_lesson
def test_a_module_of_the_note_is_shown_by_no_lesson_before_the_one_that_makes_it(lesson):
    names = [name for name, thing in vars(note).items() if isinstance(thing, type) and thing.__module__ == note.__name__]
    sources = "\n".join(notebooks.source(cell) for cell in courses.notebook_of(lesson)["cells"])
    for name in names:
        if re.search(rf"^class {name}\(", sources, re.MULTILINE):
            for earlier in LESSONS[: LESSONS.index(lesson)]:
                views = "\n".join(map(shown, courses.notebook_of(earlier)["cells"]))
                assert not re.search(rf"^{name}: ", views, re.MULTILINE), f"{earlier.name} shows a {name}"


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


@pytest.mark.long  # nbval runs the same cells and compares their text; here every value shows all its faces
@lesson_by_lesson
def test_the_notebook_runs_unanswered(lesson):
    courses.reseed()
    values = courses.run(lesson)
    assert all(value.outcome in ("not attempted", "not possible") for value in values if isinstance(value, Judgement))
    assert all(card.mark == "open" for value in values if isinstance(value, SeenView) for card in value.cards)


@pytest.mark.parametrize("lesson", [at_leisure(lesson) for lesson in LESSONS], ids=label)
def test_the_notebook_runs_with_the_right_answers(lesson):
    courses.reseed()
    values = courses.run(lesson, lambda source: courses.answered(lesson, source))
    judgements = [value for value in values if isinstance(value, Judgement)]
    assert len(judgements) == len(lesson.tasks)
    assert [one.record for one in judgements if one.outcome not in ("correct", "not possible")] == []
    assert all(card.mark == "fine" for value in values if isinstance(value, SeenView) for card in value.cards)


@lesson_by_lesson
def test_a_lesson_asks_and_takes_no_more_than_one_sitting_holds(lesson):
    asked = len(notebooks.given(courses.notebook_of(lesson)))
    assert asked <= 12, "a learner who answers more than a dozen times is tired before the tasks"
    assert lesson.minutes <= 35
    assert sum(task.minutes for task in lesson.tasks) <= lesson.minutes / 2, "the tasks alone take more than half of the time that it names"


@lesson_by_lesson
def test_who_has_solved_a_task_reads_why_it_matters(lesson):
    assert [task.name for task in lesson.tasks if not 30 < len(task.matters) < 140] == []


@lesson_by_lesson
def test_a_lesson_links_to_what_it_is_about(lesson):
    prose = [notebooks.source(cell) for cell in courses.notebook_of(lesson)["cells"] if cell["cell_type"] == "markdown"]
    links = re.findall(r"\]\((https?://[^)]+)\)", "\n".join(prose))
    assert any(link.startswith("https://docs.pytorch.org/docs/stable/") for link in links)
    assert all(link.startswith("https://") for link in links)
