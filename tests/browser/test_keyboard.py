"""A lesson is worked through by keyboard alone: cells, questions of each kind, and a task."""

from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from modlab.lessons import copies, lookup, notebooks
from modlab.lessons.content import Question
from modlab.lessons.kinds import Order, YesNo
from tests import courses
from tests.browser.jupyterlab import IS_IDLE, PANEL, SELECT_CELL, JupyterLab
from tests.patience import until

WORKED = "01_a_module", "06_modes", "10_forward_hooks"
MOST_TABS = 60


def tab_into(lab: JupyterLab, card: Locator) -> None:
    """Press Tab until a control of the card has the focus."""
    for _ in range(MOST_TABS):
        lab.page.keyboard.press("Tab")
        if card.evaluate("card => card.contains(document.activeElement) && document.activeElement.matches('button, input')"):
            return
    raise AssertionError(f"{MOST_TABS} times Tab do not lead to the card")


def answer_by_keys(lab: JupyterLab, card: Locator, question: Question) -> None:
    """The right answer, from the card's first control."""
    keyboard, kind = lab.page.keyboard, question.kind
    answer = kind.read(question.answer)
    if isinstance(kind, Order):
        for place, letter in enumerate(answer):
            line = card.locator("li", has=lab.page.locator(f"code:text-is('{letter}')")).first
            line.get_by_label(f"move {letter} up").focus()
            while line.evaluate("line => [...line.parentElement.children].indexOf(line)") > place:
                keyboard.press("ArrowUp")
        press_until(lab, card.locator(".modlab-go"))
    elif kind.options:
        for letter in answer:
            keyboard.press(letter)
        if len(answer) > 1 or card.locator(".modlab-go").count():
            press_until(lab, card.locator(".modlab-go"))
    elif isinstance(kind, YesNo):
        press_until(lab, card.get_by_role("button", name=kind.write(answer), exact=True))
    else:
        keyboard.type(str(answer))
        keyboard.press("Enter")


STANDS = f"""([path, index]) => {{
    const notebook = {PANEL}.content;
    return notebook.activeCellIndex === index && notebook.node.contains(document.activeElement);
}}"""


def ran(lab: JupyterLab, index: int) -> None:
    """Wait until a cell has run; one of prose has at once."""
    until(lambda: (cell := lab.cells()[index])["type"] != "code" or (cell["execution_count"] is not None and idle(lab)))


def idle(lab: JupyterLab) -> bool:
    return bool(lab.page.evaluate(IS_IDLE, lab.path))


def press_until(lab: JupyterLab, button: Locator) -> None:
    """Tab on to a button, and press it."""
    for _ in range(MOST_TABS):
        if button.evaluate("button => button === document.activeElement"):
            lab.page.keyboard.press("Enter")
            return
        lab.page.keyboard.press("Tab")
    raise AssertionError("Tab does not lead to the button")


@pytest.mark.long
@pytest.mark.parametrize("name", WORKED)
def test_a_lesson_is_worked_through_without_a_mouse(lab: JupyterLab, tmp_path: Path, name: str) -> None:
    content = lookup.find(name)
    questions = {question.name: question for question in content.questions}
    copies.copy(tmp_path, courses.NOTEBOOKS)
    lab.open(tmp_path / f"{name}.ipynb")
    asked = {one.cell: one for one in notebooks.given(notebooks.read(tmp_path / f"{name}.ipynb"))}
    keyboard = lab.page.keyboard
    lab.page.evaluate(SELECT_CELL, [lab.path, 0])
    lab.page.evaluate(f"path => {PANEL}.content.activate()", lab.path)
    cells = lab.cells()
    for index, cell in enumerate(cells):
        until(lambda index=index: lab.page.evaluate(STANDS, [lab.path, index]))
        task = next((task for task in content.tasks if f'lesson.check("{task.name}", ' in cell["source"]), None)
        if task is not None:
            keyboard.press("Enter")
            keyboard.press("Control+a")
            keyboard.insert_text(courses.answered(content, cell["source"]))
        keyboard.press("Shift+Enter")
        ran(lab, index)
        if task is not None:
            expect(lab.cell(index).locator(".modlab-card").first).to_contain_text("Correct.")
        if index in asked:
            card = lab.cell(index).locator(".modlab-card")
            keyboard.press("ArrowUp")  # from the next cell back to this one
            tab_into(lab, card)
            question = questions[asked[index].name]
            answer_by_keys(lab, card, question)
            expect(card).to_have_attribute("data-said", question.kind.write(question.kind.read(question.answer)))
            lab.settle()
            until(lambda card=card: card.evaluate("card => card.contains(document.activeElement)"))  # where it says what came of it
            keyboard.press("Shift+Enter")  # and on
            ran(lab, index)
    assert all(mark != "broken" for mark in lab.page.locator(".modlab-card").evaluate_all("cards => cards.map(card => card.dataset.mark)"))
    assert not lab.trouble() and not lab.errors()
