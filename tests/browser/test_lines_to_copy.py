"""The line that a tree and a state offer beside each row runs, and gives the thing in the row: in any wrapper, under any name."""

import json
from typing import Any

from playwright.sync_api import Page

from tests.browser.jupyterlab import JupyterLab
from tests.ranks import run_ranks
from tests.views.test_lines_to_copy import made, wrong

NAMES = ("odd", "DDP of odd", "FSDP2", "scripted", "PEFT", "quantized")

VIEWS = ("tree", "state")
WALK = """async () => {
    const copied = [];
    Object.defineProperty(navigator, "clipboard", { value: { writeText: async (text) => void copied.push(text) } });
    const root = document.querySelector(".modlab-live").shadowRoot;
    const view = root.querySelector('[role="tree"], [role="grid"]');
    const press = (key) => view.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    const active = () => view.getAttribute("aria-activedescendant");
    const isClosed = () => root.getElementById(active())?.getAttribute("aria-expanded") === "false";
    const found = [];
    view.focus();
    press("Home");
    if (view.getAttribute("role") === "grid") press("ArrowDown");
    for (let before = null; before !== active(); press("ArrowDown")) {
        before = active();
        root.querySelector(".detail .get:last-of-type button").click();
        await new Promise((done) => setTimeout(done, 0));
        found.push([root.querySelector(".detail .path").textContent, copied.at(-1)]);
        if (view.getAttribute("role") === "tree") press("u");
        if (isClosed()) press("ArrowRight");
    }
    return found;
}"""


def pages(rank: int) -> dict[tuple[str, str], str]:
    import modlab

    models = {name: made(name) for name in NAMES}
    return {(name, view): getattr(modlab, view)(model).html() for name, model in models.items() for view in VIEWS}


def judged(rank: int, copied: dict[tuple[str, str], list[tuple[str, str]]]) -> list[Any]:
    """What is wrong with lines."""
    models = {name: made(name) for name in NAMES}
    return [
        (name, view, path, code, said)
        for (name, view), lines in copied.items()
        for path, code in lines
        if (said := wrong(models[name], view, path, code))
    ]


def test_each_line_gives_the_thing_beside_it(lab_server: JupyterLab) -> None:
    [outputs] = run_ranks(pages, 1)
    copied = {}
    for at, html in outputs.items():
        page: Page = lab_server.page.context.browser.new_page(viewport={"width": 1200, "height": 3000})
        page.set_content(html)
        page.wait_for_selector("[role=tree], [role=grid]")
        copied[at] = [tuple(one) for one in page.evaluate(WALK)]
        page.close()
    [failures] = run_ranks(judged, 1, copied)
    assert not failures, "\n".join(json.dumps(one) for one in failures)
