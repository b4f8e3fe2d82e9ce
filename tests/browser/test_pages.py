"""The tour's page, opened as a file: alive, without a server, a kernel or the network; light, dark and narrow."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from torch import nn

import modlab
from tests.browser.jupyterlab import JupyterLab

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tour.html"


@pytest.fixture(scope="module", params=["light 1200", "dark 400"])
def tour(request: pytest.FixtureRequest, lab_server: JupyterLab) -> Iterator[Page]:
    """In a window of its own of the browser that runs anyway: Playwright starts only once in a thread."""
    scheme, width = request.param.split()
    page = lab_server.page.context.browser.new_page(viewport={"width": int(width), "height": 900}, color_scheme=scheme)
    page.trouble = []  # what it complained of, and what it asked of others
    page.on("console", lambda message: page.trouble.append(message.text))
    page.on("pageerror", lambda error: page.trouble.append(str(error)))
    page.on("request", lambda asked: asked.url.startswith(("file:", "data:", "blob:")) or page.trouble.append(asked.url[:80]))
    page.goto(PAGE.as_uri())
    yield page
    page.close()


def test_every_view_is_alive_and_nothing_is_asked_of_the_network(tour: Page) -> None:
    views = tour.locator(".modlab-static")
    expect(tour.locator(".modlab-live")).to_have_count(views.count())
    assert views.count() >= 10
    for view in tour.locator(".modlab-live").all():
        assert view.locator('[role="tree"], [role="grid"], [role="treegrid"], [role="group"]').count() >= 1
    assert tour.trouble == []


def test_a_reader_answers_before_the_page_shows(tour: Page) -> None:
    seen = tour.locator("[data-label=see]")
    expect(seen.first).to_be_hidden()
    for question, answer in (("modules of Tower", "4"), ("numbers of Tower", "43")):
        tour.get_by_role("group", name=f"answer {question}").get_by_role("textbox").fill(answer)
        tour.keyboard.press("Enter")
    expect(seen.nth(0)).to_contain_text("You answered 4; the answer is 5.")
    expect(seen.nth(1)).to_contain_text("You answered 43: correct.")
    expect(seen.nth(2)).to_be_hidden()
    tour.get_by_role("button", name="Show everything").click()
    expect(seen.nth(2)).to_contain_text("The answer is no.")
    recall = tour.locator("[data-label=recall]")
    recall.get_by_role("button", name="modlab.state(net)").click()
    expect(recall).to_contain_text("You answered b; the answer is c.")
    assert tour.trouble == []


def test_a_view_answers_the_keys(tour: Page) -> None:
    view = tour.locator("[data-modlab=tree]").first
    root = view.get_by_role("treeitem").first
    root.click()
    tour.keyboard.press("ArrowDown")
    expect(view.locator("[role=treeitem][aria-selected=true]")).to_contain_text("stem")
    tour.keyboard.press("/")
    tour.keyboard.type("body.0")
    expect(view.get_by_role("treeitem").filter(has_text="15")).to_be_visible()


def test_the_page_fits_its_window(tour: Page) -> None:
    assert tour.evaluate("document.documentElement.scrollWidth <= innerWidth")
    expect(tour.get_by_role("link", name="Run it on Binder")).to_be_visible()


def test_a_fix_has_its_place_in_a_narrow_tree(lab_server: JupyterLab) -> None:
    """Beside it stands the beginning of the reason; all of it is in the detail."""

    class Listed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = [nn.Linear(3, 3)]

    page = lab_server.page.context.browser.new_page(viewport={"width": 450, "height": 900})
    page.set_content(modlab.tree(Listed())._repr_html_())
    fix = page.locator(".reason code")
    reason, code = page.locator(".reason > bdi").bounding_box(), fix.bounding_box()
    assert reason and code and reason["width"] >= 120 and code["width"] >= 170
    assert reason["x"] + reason["width"] <= code["x"] and code["x"] + code["width"] <= 450
    fix.locator("xpath=../..").click(position={"x": 60, "y": 10})
    expect(page.locator(".detail")).to_contain_text("self.layers = nn.ModuleList(self.layers)")
    page.close()
