"""axe-core finds nothing on any kind of view, alive and without script, on a lesson, the tour and a class report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from modlab.lessons import lookup
from tests.browser import gallery
from tests.browser.jupyterlab import JupyterLab

ROOT = Path(__file__).resolve().parents[2]
AXE = ROOT / "js" / "node_modules" / "axe-core" / "axe.min.js"
SCHEMES = [("light", 1200), ("dark", 400)]
# Where `part` is null, the whole page; what a part stands in is not ours.
RUN = """async part => {
    const found = await axe.run(part ? {include: [[part]]} : document, {resultTypes: ["violations"]});
    if (!found.passes.length) return ["axe has looked at nothing"];
    return found.violations.flatMap(({id, nodes}) => nodes.map(node =>
        `${id}: ${node.target.flat(9).join(" ")}: ${(node.any[0] ?? node.all[0] ?? node.none[0])?.message}`));
}"""


def violations(page: Page, part: str | None = None) -> list[str]:
    """What axe finds, one line each."""
    if not AXE.exists():
        pytest.fail(f"{AXE.relative_to(ROOT)} is missing: run `npm ci` in js")
    if not page.evaluate("Boolean(globalThis.axe)"):
        page.evaluate(AXE.read_text(encoding="utf-8"))
    found: list[str] = page.evaluate(RUN, part)
    return found


def both_colours(page: Page, file: Path) -> list[str]:
    """What is found on a page, light and wide, and dark and narrow."""
    found = []
    for scheme, width in SCHEMES:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        page.goto(file.as_uri())
        expect(page.locator(".modlab-live")).to_have_count(page.locator("[data-modlab]:not([data-modlab=modify]) > script").count())
        found += [f"{scheme} {width}: {one}" for one in violations(page)]
    return found


@pytest.fixture
def page(lab_server: JupyterLab) -> Iterator[Page]:
    """A window of its own in the browser that runs anyway."""
    browser = lab_server.page.context.browser
    assert isinstance(browser, Browser)
    page = browser.new_page()
    yield page
    page.close()


@pytest.fixture(scope="module")
def views() -> list[str]:
    """Each kind of view and each kind of card."""
    return [*gallery.views().values(), *gallery.cards()]


@pytest.mark.parametrize("alive", [True, False], ids=["alive", "without script"])
def test_views_and_cards(page: Page, views: list[str], tmp_path: Path, alive: bool) -> None:
    file = tmp_path / "views.html"
    file.write_text(gallery.page(*views, alive=alive), encoding="utf-8")
    assert both_colours(page, file) == []


def test_the_tour(page: Page) -> None:
    assert both_colours(page, ROOT / "docs" / "tour.html") == []


def test_a_report(page: Page, tmp_path: Path) -> None:
    (tmp_path / "class").mkdir()
    file = tmp_path / "report.html"
    file.write_text(gallery.report(tmp_path / "class"), encoding="utf-8")
    assert both_colours(page, file) == []


OUTPUTS = ".jp-OutputArea-output"
LESSON = """import torch, modlab
from torch import nn
from modlab.lessons import Lesson
lesson = Lesson("01_a_module")
net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1))"""


def test_a_lesson_and_a_lab_in_jupyterlab(lab: JupyterLab) -> None:
    """JupyterLab's own parts are not ours."""
    content = lookup.find("01_a_module")
    question = content.predictions[0]
    asked = [f"lesson.predict({question.name!r}, ...)", f"lesson.see(modlab.tree(net), {question.name!r})"]
    task = f"lesson.check({content.tasks[0].name!r}, None)"
    lab.open([LESSON, *asked, task, 'lesson.modify("nn.Linear({n}, 1)", n=[1, 2])', "lab = modlab.lab(net)\nlab(torch.ones(2, 4))\nlab"])
    lab.run_all()
    assert not lab.trouble()
    for theme, width in (("Light", 1200), ("Dark", 800)):
        lab.set_viewport(width, 900)
        lab.set_theme(f"JupyterLab {theme}")
        assert violations(lab.page, OUTPUTS) == []
    lab.set_theme("JupyterLab Light")
    panels = lab.cell(5)
    panels.evaluate("cell => { cell.id = 'lab'; }")
    for tab in panels.get_by_role("tab").all():
        tab.click()
        lab.settle()
        assert violations(lab.page, f"#lab {OUTPUTS}") == [], tab.inner_text()
