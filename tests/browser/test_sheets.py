"""The views of a module at work, in a real JupyterLab: each by mouse and by keyboard."""

from __future__ import annotations

from playwright.sync_api import Locator, expect

from tests.browser.jupyterlab import JupyterLab
from tests.browser.test_views import HOSTILE, is_below, sources
from tests.patience import PAGE, until

SET_UP = """
import copy, torch, modlab
from torch import nn
from modlab.lessons.note import BigNet, DynamicNet
torch.manual_seed(0)
net = BigNet()
def plus_one(module, args):
    return (args[0] + 1,)
net.net.l0.register_forward_pre_hook(plus_one)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.randn(5)
"""
STEP = "before = modlab.snapshot(net, optimizer)\nnet(x).abs().sum().backward()\noptimizer.step()"
BROKEN = """
broken = copy.deepcopy(net)
broken.net.l1 = nn.Linear(2, 1)
try:
    broken(x)
except RuntimeError as error:
    explanation = modlab.explain(error)
"""
VIEWS = {
    "trace": "modlab.trace(net)(x)",
    "explain": f"{BROKEN}\nexplanation",
    "hooks": "modlab.hooks(net)",
    "internals": "modlab.internals(net)",
    "diff": f"{STEP}\nmodlab.diff(before, net)",
    "compare": "modlab.compare(nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)))(torch.randn(8, 5))",
    "diagnose": "hidden = nn.Module()\nhidden.parts = [nn.Linear(2, 2)]\nmodlab.diagnose(hidden)",
}


def grid(lab: JupyterLab, cell: int) -> Locator:
    return lab.cell(cell).get_by_role("treegrid")


def selected(lab: JupyterLab, cell: int) -> Locator:
    return lab.cell(cell).locator('[role="row"][aria-selected="true"]')


def test_each_view_by_mouse_and_keyboard(lab: JupyterLab) -> None:
    lab.open([SET_UP, *VIEWS.values(), "1 + 1"])
    lab.run_all()
    assert not lab.trouble()
    before = [(cell["type"], cell["source"]) for cell in sources(lab)]
    for cell, name in enumerate(VIEWS, 1):
        expect(grid(lab, cell)).to_be_visible()
        expect(lab.cell(cell).locator(".modlab-static")).to_be_hidden()
        assert lab.cell(cell).locator("header").first.inner_text().lower().startswith(name)
        walk(lab, cell)
        harmless(lab, cell)
        assert [(found["type"], found["source"]) for found in sources(lab)] == before, f"{name}: keys reached the notebook"
    assert not lab.errors()
    lab.save()
    lab.reopen()
    for cell in range(1, len(VIEWS) + 1):
        expect(grid(lab, cell)).to_be_visible()  # at rest a view needs no kernel
    assert not lab.errors()


def walk(lab: JupyterLab, cell: int) -> None:
    """A click selects, arrows move, Home and End go to the ends."""
    rows = lab.cell(cell).get_by_role("row").filter(has=lab.page.locator("[role=gridcell]"))
    rows.last.click()
    expect(selected(lab, cell)).to_have_count(1)
    last = selected(lab, cell).inner_text()
    grid(lab, cell).focus()
    lab.page.keyboard.press("Home")
    first = selected(lab, cell).inner_text()
    lab.page.keyboard.press("ArrowDown")
    if rows.count() > 1:
        assert first != last
        assert selected(lab, cell).inner_text() != first
        lab.page.keyboard.press("End")
        assert selected(lab, cell).inner_text() == last


def harmless(lab: JupyterLab, cell: int) -> None:
    """JupyterLab's command mode cuts a cell on x and deletes it on d d; here they are letters."""
    grid(lab, cell).focus()
    for key in ("x", "d", "d", "a", "b", "m", "z", "*", "y", "Enter", "1", "/"):
        lab.page.keyboard.press(key)
    lab.page.keyboard.type("xddabmz/*")  # now in the search box
    lab.page.keyboard.press("Escape")
    lab.page.wait_for_timeout(50)


def test_a_trace_and_a_tree_share_the_selection_and_narrow_the_details_go_below(lab: JupyterLab) -> None:
    lab.open([SET_UP, "modlab.tree(net)", VIEWS["trace"]])
    lab.run_all()
    lab.cell(1).get_by_role("treeitem").filter(has_text="l0").click()
    expect(selected(lab, 2)).to_contain_text("l0")
    lab.cell(2).get_by_role("row").filter(has_text="F.relu").click()
    expect(lab.cell(1).locator(".detail .path")).to_have_text("net")  # the module in whose forward it ran
    lab.cell(2).locator(".modlab").evaluate("e => { e.style.width = '400px'; }")
    until(lambda: is_below(lab.cell(2).locator(".detail"), grid(lab, 2)), PAGE)
    wide = lab.cell(2).locator(".modlab-live").evaluate("e => e.scrollWidth - e.clientWidth")
    assert wide <= 1


def test_a_search_finds_a_call_and_a_trace_that_raises_shows_what_had_happened(lab: JupyterLab) -> None:
    long = "modlab.trace(nn.Transformer(16, 2, 2, 2, batch_first=True))(torch.randn(1, 3, 16), torch.randn(1, 2, 16))"
    lab.open([SET_UP, long, "modlab.trace(DynamicNet(2))(torch.randn(5), 'relu')"])
    lab.run_all()
    expect(grid(lab, 2)).to_be_visible()
    expect(lab.cell(2)).to_contain_text("RuntimeError")
    grid(lab, 1).focus()
    lab.page.keyboard.press("/")
    lab.page.keyboard.type("encoder.layers.1.linear2")
    expect(lab.cell(1).get_by_role("row").filter(has_text="linear2").first).to_be_visible()
    lab.page.keyboard.press("Escape")
    expect(lab.cell(1).get_by_role("row").filter(has_text="Transformer").first).to_be_visible()


def test_an_error_is_explained_under_its_traceback(lab: JupyterLab) -> None:
    lab.open([SET_UP, "%load_ext modlab", "DynamicNet(2)(torch.randn(5), 'relu')", "{}['nothing of ours']", "%unload_ext modlab"])
    lab.run_all()
    expect(grid(lab, 2)).to_be_visible()
    expect(lab.cell(2)).to_contain_text("mat1 and mat2 shapes cannot be multiplied")  # torch's own words stay
    expect(lab.cell(2).locator("header").first).to_contain_text("linears.0")
    assert lab.cell(3).get_by_role("treegrid").count() == 0  # what modlab does not know it leaves alone
    assert not lab.errors()


def test_the_widget_is_the_same_view(lab: JupyterLab) -> None:
    lab.open([SET_UP, f"{VIEWS['trace']}.widget()", f"{VIEWS['hooks']}.widget()"])
    lab.run_all()
    for cell in (1, 2):
        expect(grid(lab, cell)).to_be_visible()
        walk(lab, cell)
    assert not lab.errors()


EVIL = """
def forward(self, x):
    return torch.relu(x)
Evil.forward = forward
def hook(module, args):
    return (args[0],)
hook.__name__ = hook.__qualname__ = "<img src=x onerror=window.pwned=7>"
evil.register_forward_pre_hook(hook)
after = modlab.snapshot(evil)
"""


def test_hostile_names_are_text(lab: JupyterLab) -> None:
    codes = [
        "modlab.trace(evil)(torch.ones(2))",
        "modlab.hooks(evil)",
        "modlab.internals(evil)",
        "modlab.diff(after, torch.nn.Linear(1, 1))",
        "modlab.compare(evil)(torch.ones(2))",
        "modlab.diagnose(evil)",
    ]
    lab.open([SET_UP, HOSTILE, EVIL, *codes])
    lab.run_all()
    assert not lab.trouble()
    lab.page.wait_for_timeout(200)
    assert lab.page.evaluate("window.pwned ?? null") is None
    for cell, code in enumerate(codes, 3):
        assert lab.cell(cell).locator("img, mjx-container, .MathJax, [onmouseover]").count() == 0, code
