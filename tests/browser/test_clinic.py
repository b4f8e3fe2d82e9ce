"""The clinic's page, opened as a file: by keys alone, without a server, a kernel or the network; light, dark and narrow."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.jupyterlab import JupyterLab
from tests.browser.test_accessibility import violations

PAGE = Path(__file__).resolve().parents[2] / "docs" / "clinic.html"


@pytest.fixture(params=["light 1200", "dark 400"])
def clinic(request: pytest.FixtureRequest, lab_server: JupyterLab) -> Iterator[Page]:
    """In a context of its own, which keeps nothing."""
    scheme, width = request.param.split()
    browser = lab_server.page.context.browser
    page = browser.new_context(viewport={"width": int(width), "height": 900}, color_scheme=scheme).new_page()
    page.trouble = []  # what it complained of, and what it asked of others
    page.on("console", lambda message: page.trouble.append(message.text))
    page.on("pageerror", lambda error: page.trouble.append(str(error)))
    page.on("request", lambda asked: asked.url.startswith("file:") or page.trouble.append(asked.url[:80]))
    page.goto(f"{PAGE.as_uri()}#case-9")
    yield page
    assert page.trouble == []
    page.context.close()


def causes(page: Page, number: int) -> tuple[dict[str, str], dict[str, str]]:
    """The right cause of a case, and a wrong one."""
    found = json.loads(page.locator("#cases").text_content())[number - 1]["causes"]
    return next(one for one in found if one["right"]), next(one for one in found if not one["right"])


def reach(page: Page, name: str) -> None:
    """By the tab key alone, to the button of this name."""
    for _ in range(80):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent").startswith(name):
            return
    pytest.fail(f"the tab key does not come to {name}")


def test_keys_alone_solve_a_case(clinic: Page) -> None:
    right, wrong = causes(clinic, 9)
    expect(clinic.get_by_role("heading", name="Case 9")).to_be_focused()
    reach(clinic, "Steps")
    clinic.keyboard.press("Enter")
    expect(clinic.get_by_role("region", name="Steps: Change of each tensor")).to_contain_text("tokens.weight")
    reach(clinic, wrong["says"])
    clinic.keyboard.press("Enter")
    expect(clinic.locator(".wrong")).to_contain_text(wrong["why"])
    expect(clinic.locator(".wrong")).to_be_in_viewport(ratio=1)
    expect(clinic.get_by_role("status")).to_have_text(f"No. {wrong['why']}")
    clinic.get_by_role("heading", name="Case 9").focus()
    reach(clinic, right["says"])
    clinic.keyboard.press("Space")
    expect(clinic.locator(".end")).to_be_focused()
    expect(clinic.locator(".end")).to_contain_text("Solved: cause in 1 look, at try 2")
    expect(clinic.locator(".end")).to_contain_text(f"The cause: {right['says']}.")
    expect(clinic.locator(".end")).to_contain_text("modlab:")
    expect(clinic.locator("#score")).to_contain_text(
        "1 of 30 cases closed. You named 1 of them, 0 at the first try, with 1.0 looks on average"
    )
    expect(clinic.get_by_role("link", name="case 9, solved")).to_be_visible()
    reach(clinic, "Case 10")
    clinic.keyboard.press("Enter")
    expect(clinic.get_by_role("heading", name="Case 10")).to_be_focused()


def test_what_was_done_is_there_again(clinic: Page) -> None:
    right, _ = causes(clinic, 9)
    clinic.locator("[data-look=loss]").click()
    clinic.get_by_role("button", name=right["says"]).click()
    expect(clinic.locator(".end")).to_contain_text("Solved")  # on a busy machine a reload may come before the click has been heard
    clinic.reload()
    expect(clinic.locator(".end")).to_contain_text("Solved: cause in 1 look, at the first try")
    expect(clinic.locator("[data-opened=loss] svg")).to_have_count(1)
    clinic.get_by_role("button", name="Start this case again").click()
    expect(clinic.locator(".opened section")).to_have_count(0)


def test_the_answer_to_the_lowest_cause_comes_into_sight(clinic: Page) -> None:
    clinic.set_viewport_size({"width": clinic.viewport_size["width"], "height": 700})
    clinic.goto(f"{PAGE.as_uri()}#case-2")
    button = clinic.get_by_role("button", name="Depth with sigmoid or tanh")
    button.focus()
    clinic.keyboard.press("Enter")
    expect(clinic.locator(".wrong p")).to_be_in_viewport(ratio=1)
    clinic.evaluate("scrollTo(0, 0)")
    button.press("Enter")  # whoever asks again is shown it again
    expect(clinic.locator(".wrong p")).to_be_in_viewport(ratio=1)


@pytest.mark.parametrize("number", [1, 10, 14, 24, 25, 28])
def test_every_look_fits_and_axe_finds_nothing(clinic: Page, number: int) -> None:
    clinic.goto(f"{PAGE.as_uri()}#case-{number}")
    for look in clinic.locator(".look").all():
        look.click()
    expect(clinic.locator(".opened section")).to_have_count(12)
    clinic.get_by_role("button", name="Show the answer").click()
    assert clinic.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert violations(clinic) == []


def test_how_it_ended_stands_whole_and_inside_its_frame(clinic: Page) -> None:
    clinic.locator("[data-look=steps]").click()
    for cause in clinic.locator(".cause").all()[:4]:
        cause.click()
    if clinic.viewport_size["width"] == 1200:  # a column beside the looks, whose heading stays
        expect(clinic.get_by_role("heading", name="Name the cause")).to_be_in_viewport(ratio=1)
    if clinic.locator(".give-up").is_visible():
        clinic.locator(".give-up").click()
    assert clinic.evaluate("(({scrollHeight, clientHeight}) => scrollHeight - clientHeight)(document.querySelector('.naming'))") == 0
    frame, line = (clinic.locator(one).bounding_box() for one in (".end", ".end h3"))
    assert line["x"] - frame["x"] >= 12 and frame["x"] + frame["width"] - line["x"] - line["width"] >= 12
    expect(clinic.locator(".end h3")).to_be_in_viewport(ratio=1)


def test_there_is_a_way_to_the_causes_and_back(clinic: Page) -> None:
    for look in ("loss", "gradients", "layers", "steps"):
        clinic.locator(f"[data-look={look}]").click()
    heading = clinic.get_by_role("heading", name="Name the cause")
    if clinic.viewport_size["width"] == 400:  # they come after all looks, and a link at the lower edge leads there
        expect(heading).not_to_be_in_viewport()
        clinic.get_by_role("link", name="Name the cause").click()
        expect(heading).to_be_focused()
        expect(heading).to_be_in_viewport(ratio=1)
        clinic.get_by_role("link", name="Back to the looks").click()
        expect(clinic.get_by_role("heading", name="Buy a look")).to_be_in_viewport(ratio=1)
    clinic.get_by_role("heading", name="Case 9").focus()
    clinic.keyboard.press("Tab")
    expect(clinic.get_by_role("link", name="Skip to the causes")).to_be_focused()
    clinic.keyboard.press("Enter")
    expect(heading).to_be_focused()
    clinic.keyboard.press("Tab")
    if clinic.viewport_size["width"] == 400:
        clinic.keyboard.press("Tab")
    expect(clinic.locator(".cause").first).to_be_focused()


def test_a_table_shows_how_far_each_tensor_goes(clinic: Page) -> None:
    """At 1200 pixels whole; where it is narrower, it can be seen that there is more."""
    clinic.locator("[data-look=steps]").click()
    box = clinic.get_by_role("region", name="Steps: Change of each tensor")
    beyond = box.evaluate("one => one.scrollWidth - one.clientWidth")
    assert (beyond > 0) is (clinic.viewport_size["width"] == 400)
    assert box.evaluate("one => getComputedStyle(one).backgroundAttachment").startswith("local, local, scroll, scroll")
    caption, text = box.locator("caption .title"), box.bounding_box()
    box.evaluate("one => one.scrollBy({ left: 1000, behavior: 'instant' })")
    found = caption.bounding_box()  # it stays where it can be read
    assert text["x"] - 1 <= found["x"] and found["x"] + found["width"] <= text["x"] + text["width"] + 1
