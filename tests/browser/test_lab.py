"""A lab in a real JupyterLab: its tabs by mouse and by keyboard, one selection, a run that fills it, a watch that it follows."""

from __future__ import annotations

from itertools import pairwise

from playwright.sync_api import Locator, expect

from tests.browser.jupyterlab import JupyterLab
from tests.browser.test_views import sources

SET_UP = """
import torch, modlab
from modlab.lessons.note import BigNet
torch.manual_seed(0)
net = BigNet()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
x = torch.randn(8, 5)
lab = modlab.lab(net, optimizer)
"""
TRAIN = """
import time
with modlab.watch(net, optimizer) as w:
    for step in range(200):
        optimizer.zero_grad(); net(x).square().mean().backward(); optimizer.step()
        time.sleep(0.01)
"""


def tab(lab: JupyterLab, title: str) -> Locator:
    return lab.cell(1).get_by_role("tab", name=title)


def panel(lab: JupyterLab) -> Locator:
    return lab.cell(1).get_by_role("tabpanel")


def test_a_lab_by_mouse_and_keyboard(lab: JupyterLab) -> None:
    lab.open([SET_UP, "lab", "lab(x);", TRAIN])
    lab.run_cell(0)
    lab.run_cell(1)
    before = [(cell["type"], cell["source"]) for cell in sources(lab)]
    expect(panel(lab).get_by_role("grid")).to_be_visible()  # the first tab

    lab.cell(1).get_by_role("treeitem").filter(has_text="l0").click()
    selected = panel(lab).locator('[aria-selected="true"]')
    expect(selected.first).to_contain_text("net.l0")

    for width in (400, 640, 720, 1000):
        lab.cell(1).locator(".modlab-live").evaluate(f"e => {{ e.style.width = '{width}px'; }}")
        rows = lab.cell(1).get_by_role("treeitem").evaluate_all("all => all.map(one => one.getBoundingClientRect().top)")
        assert [round(below - above) for above, below in pairwise(rows)] == [25] * 4  # each module has one line
    lab.cell(1).locator(".modlab-live").evaluate("e => { e.style.width = ''; }")

    tab(lab, "Trace").click()
    expect(panel(lab)).to_contain_text("Nothing has run in this lab yet.")
    lab.run_cell(2)
    expect(panel(lab).get_by_role("treegrid")).to_be_visible()
    expect(panel(lab)).to_contain_text("5 of 5 modules ran")
    expect(selected.first).to_contain_text("l0")  # what was selected before

    tab(lab, "Trace").focus()
    lab.page.keyboard.press("End")
    expect(tab(lab, "Source")).to_be_focused()
    expect(tab(lab, "Trace")).to_have_attribute("aria-selected", "true")
    for key in ("x", "d", "d", "a", "b", "m", "z", "*", "/"):
        lab.page.keyboard.press(key)
    lab.page.keyboard.press("Enter")
    expect(panel(lab)).to_contain_text("class MyLinear")
    lab.page.keyboard.press("ArrowLeft")
    lab.page.keyboard.press("ArrowLeft")
    lab.page.keyboard.press(" ")
    expect(panel(lab)).to_contain_text("The same in both modes")
    assert [(cell["type"], cell["source"]) for cell in sources(lab)] == before

    lab.run_cell(3, wait=False)
    tab(lab, "Gradients").click()  # the kernel is busy: what was pushed is shown
    slider = panel(lab).get_by_role("slider", name="step")
    expect(slider.first).to_be_visible()
    lab.wait_until_done()
    lab.settle()
    expect(panel(lab)).to_contain_text("200 steps")
    assert not lab.errors()


def test_a_saved_lab_says_what_it_needs(lab: JupyterLab) -> None:
    lab.open([SET_UP, "lab"])
    lab.run_all()
    (output,) = lab.save()["cells"][1]["outputs"]
    assert output["data"]["text/plain"][0].startswith("BigNet: 43 parameters in 5 modules")
    still = "".join(output["data"]["text/html"])
    assert "needs a running kernel" in still
    assert "net" in still
    assert "<script" not in still
