"""A learner at work in a real JupyterLab: by keyboard alone she answers wrongly, looks, makes a mistake, mends it, and remembers."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from modlab.lessons import copies, lookup, notebooks
from tests import courses
from tests.browser.jupyterlab import JupyterLab
from tests.patience import PATIENCE, until

ACTIVE = "window.jupyterapp.shell.currentWidget.content.activeCellIndex"
BY_KEYBOARD = ["01_a_module"]
TRAINS = "05_training_loop"  # half a minute of CPU time: make test-long


def rewrite(lab: JupyterLab, cell: int, source: str) -> None:
    """Go to a cell with the arrow keys, write in it, and run it: what a hand without a mouse does."""
    page, prompt = lab.page, lab.cell(cell).locator(".jp-InputPrompt")
    ran = prompt.inner_text()
    page.keyboard.press("Escape")
    while (at := page.evaluate(ACTIVE)) != cell:
        page.keyboard.press("ArrowDown" if at < cell else "ArrowUp")
    page.keyboard.press("Enter")
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.insert_text(source)
    page.keyboard.press("Shift+Enter")
    expect(prompt).not_to_have_text(ran, timeout=PATIENCE * 1000)
    expect(prompt).to_have_text(re.compile(r"\[\d+\]:"), timeout=PATIENCE * 1000)
    lab.settle()


def numbered(notebook: dict[str, object], pattern: str) -> int:
    return next(i for i, cell in enumerate(notebook["cells"]) if cell["cell_type"] == "code" and re.search(pattern, notebooks.source(cell)))


def every_view_is_alive(lab: JupyterLab) -> None:
    """In a notebook that has run: no error, and each view that its outputs hold."""
    assert not lab.trouble()
    assert not lab.errors()
    shown = 0
    for index, cell in enumerate(lab.cells()):
        assert not [out for out in cell["outputs"] if out["output_type"] == "error"]
        html = "".join("".join(out.get("data", {}).get("text/html", "")) for out in cell["outputs"])
        views, settings = html.count("data-key="), html.count('data-modlab="modify"')
        expect(lab.cell(index).locator(".modlab-live")).to_have_count(views)
        expect(lab.cell(index).locator(".modlab-turning")).to_have_count(settings)
        live = lab.cell(index).locator(".modlab-live")
        assert live.locator('[role="tree"], [role="grid"], [role="treegrid"], [role="group"]').count() >= views
        shown += views
    assert shown


@pytest.mark.parametrize("name", [*BY_KEYBOARD, pytest.param(TRAINS, marks=pytest.mark.long)])
def test_a_lesson_by_keyboard_alone(lab: JupyterLab, tmp_path: Path, name: str) -> None:
    lesson = lookup.find(name)
    copies.copy(tmp_path, courses.NOTEBOOKS)
    lab.open(tmp_path / f"{name}.ipynb")
    lab.run_all()
    every_view_is_alive(lab)
    notebook = notebooks.read(tmp_path / f"{name}.ipynb")

    question = next(question for question in lesson.predictions if question.wrong)
    asked = numbered(notebook, rf'lesson\.predict\("{re.escape(question.name)}"')
    settled = numbered(notebook, rf'lesson\.see\(.*"{re.escape(question.name)}"')
    wrong, written = question.wrong[0], question.kind.write
    rewrite(lab, asked, f'lesson.predict("{question.name}", {wrong.answer!r})')
    expect(lab.cell(asked).locator(".modlab-card")).to_contain_text("You say")
    rewrite(lab, settled, notebooks.source(notebook["cells"][settled]))
    card = lab.cell(settled).locator(".modlab-card[data-mark=broken]").first
    expect(card).to_contain_text(f"You answered {written(question.kind.read(wrong.answer))}; the answer is {written(question.answer)}.")

    task = lesson.tasks[0]
    made = numbered(notebook, rf'lesson\.check\("{re.escape(task.name)}"')
    cell = notebooks.source(notebook["cells"][made])
    assert task.starter.strip() in cell
    mistake = task.mistakes[0]
    rewrite(lab, made, cell.replace(task.starter.strip(), mistake.source.strip()))
    expect(lab.cell(made).locator(".modlab-card")).to_contain_text(f"Not yet: {mistake.name}.")
    rewrite(lab, made, cell.replace(task.starter.strip(), task.reference.strip()))
    expect(lab.cell(made).locator(".modlab-card")).to_contain_text("Correct.")
    assert not lab.trouble()
    assert not lab.errors()


def test_settings_turn_by_keyboard_and_the_notebook_does_not_hear_them(lab: JupyterLab) -> None:
    code = 'lesson.modify("modlab.tree(nn.Linear({width}, {out}))", width=[1, 2, 3, 4, 5], out=[1, 2])'
    lab.open(["import modlab\nfrom torch import nn\nfrom modlab.lessons import Lesson\nlesson = Lesson('01_a_module')", code])
    lab.run_all()
    line = lab.cell(1).locator(".modlab-line")
    expect(line).to_have_text("modlab.tree(nn.Linear(1, 1))")
    lab.cell(1).get_by_role("slider", name="width").focus()
    for key in ("ArrowRight", "ArrowRight", "x", "d", "d", "a", "b"):
        lab.page.keyboard.press(key)
    expect(line).to_have_text("modlab.tree(nn.Linear(3, 1))")
    lab.page.keyboard.press("Tab")
    lab.page.keyboard.press("ArrowRight")
    expect(line).to_have_text("modlab.tree(nn.Linear(3, 2))")
    assert lab.cell(1).locator(".modlab-static > details:visible").count() == 1
    assert len(lab.cells()) == 2


def test_an_endless_loop_ends_by_the_square_tidily(lab: JupyterLab) -> None:
    square = "class Square(nn.Module):\n    def forward(self, x):\n        begun.touch()\n        while True:\n            pass"
    loop = f"{square}\n\nlesson.check('Square', Square)"
    first = "from pathlib import Path\nfrom torch import nn\nfrom modlab.lessons import Lesson\nlesson = Lesson('01_a_module')"
    lab.open([f"{first}\nbegun = Path('begun').resolve()", loop, "1 + 1"])
    lab.run_cell(0)
    lab.run_cell(1, wait=False)
    until((lab.root / "begun").exists)
    lab.command("notebook:interrupt-kernel", wait=False)
    expect(lab.cell(1).locator(".modlab-card")).to_contain_text("still running when you stopped it")
    lab.run_cell(2)
    assert lab.text(2).strip().endswith("2")


def test_what_was_expected_and_what_came_stand_one_below_the_other(lab: JupyterLab) -> None:
    """JupyterLab sets tables to the right, and breaks lines in the middle of a word."""
    lab.open(["from modlab.lessons import Lesson\nlesson = Lesson('00_tour')", "lesson.check('count', '11')"])
    lab.run_all()
    style = "nodes => nodes.map(node => [getComputedStyle(node).textAlign, getComputedStyle(node).wordBreak])"
    assert lab.cell(1).locator(".modlab-card td pre").evaluate_all(style) == [["left", "normal"]] * 2
