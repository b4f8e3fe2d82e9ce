"""A learner at work in a real JupyterLab: each question once wrong and once right by a click, kept over a restart; and each task."""

import itertools
import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from modlab.lessons import copies, lookup, notebooks
from modlab.lessons.content import Question, Task
from modlab.lessons.kinds import Order, YesNo
from tests import courses
from tests.browser.jupyterlab import JupyterLab
from tests.browser.test_lessons import numbered, rewrite

QUICK = ["01_a_module", "06_modes", "10_forward_hooks"]
NAMES = [pytest.param(one.name, marks=() if one.name in QUICK else pytest.mark.long) for one in courses.lessons()]


def wrong_answer(question: Question) -> object:
    """The likeliest wrong answer, or any other that is wrong."""
    kind = question.kind
    letters = [letter for letter, _ in kind.options]
    if isinstance(kind, Order):
        tried = itertools.permutations(letters)
    elif letters:
        tried = iter([*letters, ("a",), tuple(letters)])
    elif isinstance(kind, YesNo):
        tried = iter([True, False])
    else:
        tried = iter([wrong.answer for wrong in question.wrong] + [7.25, "nothing", (9, 9, 9)])
    return next(one for one in tried if _is_wrong(question, one))


def _is_wrong(question: Question, given: object) -> bool:
    try:
        return not question.kind.right(question.kind.read(given), question.answer)
    except Exception:  # noqa: BLE001 - of another kind
        return False


def click(card: Locator, question: Question, given: object) -> None:
    """Give an answer as a hand with a mouse does."""
    kind, answer = question.kind, question.kind.read(given)
    again = card.locator(".modlab-again")
    if again.count():
        again.click()
        expect(again).to_have_count(0)
    if isinstance(kind, Order):
        for place, letter in enumerate(answer):
            line = card.locator("li", has=card.page.locator(f"code:text-is('{letter}')")).first
            while (at := line.evaluate("line => [...line.parentElement.children].indexOf(line)")) > place:
                line.get_by_label(f"move {letter} up").click()
                assert line.evaluate("line => [...line.parentElement.children].indexOf(line)") == at - 1
        card.locator(".modlab-go").click()
    elif kind.options:
        for letter in answer:
            card.locator(".modlab-option", has=card.page.locator(f"code:text-is('{letter}')")).first.click()
        if card.locator(".modlab-go").count():
            card.locator(".modlab-go").click()
    elif isinstance(kind, YesNo):
        card.get_by_role("button", name=kind.write(answer), exact=True).click()
    else:
        card.locator("input").fill(str(answer))
        card.locator("input").press("Enter")


def solve(lab: JupyterLab, notebook: dict[str, object], task: Task) -> None:
    """Try a task by its commonest mistake, which is named, and then as it should be."""
    made = numbered(notebook, rf'lesson\.check\("{re.escape(task.name)}"')
    cell, mistake = notebooks.source(notebook["cells"][made]), task.mistakes[0]
    assert task.starter.strip() in cell
    card = lab.cell(made).locator(".modlab-card")
    for solution, said in ((mistake.source, f"Not yet: {mistake.name}."), (task.reference, "Correct.")):
        rewrite(lab, made, cell.replace(task.starter.strip(), solution.strip()))
        expect(card).to_contain_text(said)


@pytest.mark.parametrize("name", NAMES)
def test_a_lesson_is_answered_by_clicks_and_its_tasks_are_solved_wrongly_and_rightly(lab: JupyterLab, tmp_path: Path, name: str) -> None:
    content = lookup.find(name)
    copies.copy(tmp_path, courses.NOTEBOOKS)
    lab.open(tmp_path / f"{name}.ipynb")
    lab.run_all()
    notebook = notebooks.read(tmp_path / f"{name}.ipynb")
    for task in content.tasks:
        solve(lab, notebook, task)
    asked = {one.name: one for one in notebooks.given(notebook)}
    for question in content.questions:
        one = asked[question.name]
        write = question.kind.write
        lab.cell(one.cell).scroll_into_view_if_needed()
        card = lab.cell(one.cell).locator(".modlab-card")
        for given, mark in ((wrong_answer(question), "broken"), (question.answer, "fine")):
            click(card, question, given)
            said = write(question.kind.read(given))
            expect(card).to_have_attribute("data-said", said)
            if one.kind != "predict":
                expect(card).to_have_attribute("data-mark", mark)
                continue
            expect(card.locator(".modlab-said")).to_have_text(re.compile(r"^You say "))
            seen = f'.modlab-card[data-label=see][data-question="{question.name}"]'
            for place in range(one.cell, len(lab.cells())):
                if lab.cell(place).locator(seen).count():
                    expect(lab.cell(place).locator(seen)).to_have_attribute("data-mark", mark)
    assert not lab.trouble() and not lab.errors()

    lab.save()
    lab.shutdown_kernels()
    lab.reopen()
    lab.run_all()
    for question in content.questions:
        card = lab.cell(asked[question.name].cell).locator(".modlab-card")
        expect(card).to_have_attribute("data-said", question.kind.write(question.kind.read(question.answer)))


def test_escape_brings_an_answer_back_and_leads_out_of_its_card(lab: JupyterLab, tmp_path: Path) -> None:
    content = lookup.find("00_tour")
    copies.copy(tmp_path, courses.NOTEBOOKS)
    lab.open(tmp_path / "00_tour.ipynb")
    lab.run_all()
    asked = {one.name: one for one in notebooks.given(notebooks.read(tmp_path / "00_tour.ipynb"))}
    question = next(one for one in content.questions if asked[one.name].kind == "predict")
    cell = lab.cell(asked[question.name].cell)
    cell.scroll_into_view_if_needed()
    card, keyboard = cell.locator(".modlab-card"), lab.page.keyboard
    click(card, question, question.answer)
    said = question.kind.write(question.kind.read(question.answer))
    expect(card).to_have_attribute("data-said", said)
    card.locator(".modlab-again").press("Enter")
    expect(card).to_have_attribute("data-said", "")
    card.locator("button, input").first.focus()
    keyboard.press("Escape")
    expect(card).to_have_attribute("data-said", said)
    expect(card.locator(".modlab-said")).to_be_focused()
    keyboard.press("Escape")
    expect(cell).to_be_focused()
