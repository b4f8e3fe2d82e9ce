"""A watch while its cell trains, in a real JupyterLab: look, pause, step, stop, interrupt, reload, save, reopen."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.jupyterlab import JupyterLab
from tests.browser.test_views import sources
from tests.patience import PATIENCE, until

SET_UP = """
import gc, time, torch, modlab
from torch import nn
from modlab.lessons.note import Net
torch.manual_seed(63)
torch.set_num_threads(1)    # two beside a browser on two cores wait for each other
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, weight_decay=1e-2, momentum=0.9)
deep = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(32, 32), nn.ReLU())], nn.Linear(32, 1))
"""
TRAIN = """
until = time.monotonic() + {seconds}
with modlab.watch(net, optimizer, budget={budget}) as w:
    while time.monotonic() < until:
        loss = torch.abs(net(torch.randn(4)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        w.log(loss=loss)
print("after:", w.record.state)
"""
DEEP = """
until = time.monotonic() + {seconds}
slow = torch.optim.AdamW(deep.parameters(), lr=1e-3)
with modlab.watch(deep, slow, budget={budget}) as w:
    while time.monotonic() < until:
        loss = deep(torch.randn(8, 32)).square().mean()
        slow.zero_grad()
        loss.backward()
        slow.step()
        w.log(loss=loss)
print("after:", w.record.state)
"""


def train(seconds: float, cell: str = TRAIN, budget: float = 0.2) -> str:
    """A cell; the budget is large, so that there are pictures enough on a machine that is busy."""
    return cell.format(seconds=seconds, budget=budget)


def view(lab: JupyterLab, cell: int) -> Locator:
    """The live view of a cell's output."""
    return lab.cell(cell).locator(".modlab-live")


def steps(lab: JupyterLab, cell: int) -> int:
    """How many steps the view says it has seen."""
    found = re.search(r"([\d,]+) steps?", view(lab, cell).locator(".foot bdi").inner_text())
    return int(found[1].replace(",", "")) if found else 0


def cursor(lab: JupyterLab, cell: int) -> int:
    return int(view(lab, cell).get_by_role("slider", name="step").get_attribute("aria-valuenow") or -1)


def pixels(lab: JupyterLab, cell: int) -> list[str]:
    """What the canvases that are seen show, each as a hash."""
    shown = view(lab, cell).locator("canvas:visible").evaluate_all("all => all.map(one => one.toDataURL())")
    return [hashlib.sha1(one.encode()).hexdigest() for one in shown]


def click(lab: JupyterLab, cell: int, word: str) -> None:
    view(lab, cell).get_by_role("button", name=re.compile(rf"\b{word}$")).click()


def begin(lab: JupyterLab, cell: int, at_least: int = 20) -> None:
    """Run a cell, and wait until its view is there and moves."""
    lab.run_cell(cell, wait=False)
    expect(view(lab, cell).locator(".foot bdi")).to_contain_text("step")
    until(lambda: steps(lab, cell) >= at_least)


def set_up(lab: JupyterLab, *cells: str) -> None:
    lab.open([SET_UP, *cells])
    lab.run_cell(0)


def test_a_learner_watches_steers_and_keeps_it(lab: JupyterLab, tmp_path: Path) -> None:
    set_up(lab, train(PATIENCE), "w.alerts", "1 + 1")
    begin(lab, 1)

    before, drawn = steps(lab, 1), pixels(lab, 1)
    until(lambda: steps(lab, 1) > before + 20)
    assert len(drawn) >= 4
    until(lambda: all(one != other for one, other in zip(drawn, pixels(lab, 1), strict=False)))  # none stands still

    click(lab, 1, "pause")
    expect(view(lab, 1).get_by_role("button", name="resume")).to_be_visible()
    paused = settled(lab, 1)
    time.sleep(0.5)
    assert steps(lab, 1) == paused
    click(lab, 1, "step")
    until(lambda: steps(lab, 1) == paused + 1)
    view(lab, 1).get_by_role("slider", name="step").focus()
    lab.page.keyboard.press(".")
    until(lambda: steps(lab, 1) == paused + 2)

    newest = cursor(lab, 1)
    drawn = pixels(lab, 1)
    lab.page.keyboard.press("ArrowLeft")
    until(lambda: cursor(lab, 1) < newest)
    lab.page.keyboard.press("Home")
    until(lambda: cursor(lab, 1) == 0)
    assert pixels(lab, 1) != drawn
    type_all_keys(lab)

    view(lab, 1).get_by_role("combobox", name="budget").select_option("0.25")
    click(lab, 1, "resume")
    until(lambda: steps(lab, 1) > paused + 20)
    assert "budget 25\N{NO-BREAK SPACE}%" in view(lab, 1).locator(".foot bdi").inner_text()
    assert cursor(lab, 1) == 0  # who looks back is left alone
    view(lab, 1).get_by_role("slider", name="step").focus()
    lab.page.keyboard.press("f")
    until(lambda: cursor(lab, 1) > paused)

    expect(view(lab, 1).get_by_role("group", name="alerts")).to_contain_text("dead", timeout=PATIENCE * 1000)
    click(lab, 1, "stop")
    lab.wait_until_done()
    lab.settle()
    assert "after: stopped" in lab.text(1)
    written = (SET_UP, train(PATIENCE), "w.alerts", "1 + 1")
    assert [(cell["type"], cell["source"]) for cell in sources(lab)] == [("code", one) for one in written]

    lab.run_cell(2)
    assert "unit 1 of l0 is dead" in lab.text(2)
    at_rest(lab, 1)
    pointing_reads(lab, 1)
    outputs = lab.save()["cells"][1]["outputs"]
    assert [sorted(one.get("data", {})) for one in outputs] == [["text/html", "text/plain"], []]
    assert len(json.dumps(outputs)) <= 500_000
    lab.reopen()
    at_rest(lab, 1)
    assert not lab.trouble()
    assert not lab.errors()


def settled(lab: JupyterLab, cell: int) -> int:
    """The number of steps when it stands still."""
    last = [-1]

    def stands() -> bool:
        time.sleep(0.2)
        last.append(steps(lab, cell))
        return last[-1] == last[-2]

    until(stands)
    return last[-1]


def type_all_keys(lab: JupyterLab) -> None:
    """JupyterLab's command mode cuts a cell on x and deletes it on d d."""
    for key in ("x", "d", "d", "a", "b", "m", "z", "/", "*", "y", "1", "Enter"):
        lab.page.keyboard.press(key)


def pointing_reads(lab: JupyterLab, cell: int) -> None:
    """The step under the pointer has its numbers beside every curve; the cursor stays."""
    figures, before = view(lab, cell).locator(".scalar .figures").first, cursor(lab, cell)
    seen = figures.inner_text()
    plot = view(lab, cell).locator(".series canvas")
    plot.scroll_into_view_if_needed()
    plot.hover(position={"x": 145, "y": 30})
    until(lambda: figures.inner_text() != seen)
    assert cursor(lab, cell) == before
    lab.page.mouse.move(2, 2)
    until(lambda: figures.inner_text() == seen)


def at_rest(lab: JupyterLab, cell: int) -> None:
    """The view needs no kernel, has no buttons to steer with, and its cursor goes back by keys."""
    axis = view(lab, cell).get_by_role("slider", name="step")
    expect(axis).to_be_visible()
    assert view(lab, cell).get_by_role("button", name="stop").count() == 0
    axis.press("Home")  # each key by itself: after an interrupt JupyterLab may take the focus once more
    until(lambda: cursor(lab, cell) == 0)
    axis.press("End")
    until(lambda: cursor(lab, cell) > 0)
    last = cursor(lab, cell)
    axis.press("ArrowLeft")
    until(lambda: cursor(lab, cell) < last)


LEFT = """
import ipywidgets
from torch.nn.modules import module
from torch.optim import optimizer as steps
gc.collect()
hooks = [module._global_forward_hooks, module._global_forward_pre_hooks]
hooks += [steps._global_optimizer_pre_hooks, steps._global_optimizer_post_hooks]
watches = [one for one in gc.get_objects() if type(one) is modlab.results.watch.Watch]
print([len(one) for one in hooks], len(watches))
print("held by:", {id(one): sorted({type(holder).__name__ for holder in gc.get_referrers(one)}) for one in watches if one is not w})
del watches
"""


def interrupt(lab: JupyterLab, cell: int) -> None:
    """■: the kernel's status says nothing, since it answers messages while the cell runs."""
    lab.command("notebook:interrupt-kernel", wait=False)
    expect(lab.cell(cell).locator(".jp-InputPrompt")).not_to_have_text("[*]:")
    lab.settle()


def left(lab: JupyterLab) -> list[str]:
    """What is left of all watches but the last; asked once more where a thread that answers the page may hold one just then."""
    for _ in range(2):
        lab.run_cell(2)
        said = lab.text(2).strip().splitlines()
        if said[-1] == "held by: {}":
            break
    return said


def told_of_the_interrupt(outputs: list[dict[str, Any]]) -> bool:
    """After the view; where PyTorch stood at an instruction that has no line (1 time in 150), IPython prints it instead."""
    view, *others = outputs
    assert view["output_type"] == "display_data"
    if len(others) == 1:
        return others[0].get("ename") == "KeyboardInterrupt"
    printed = "".join("".join(one["text"]) for one in others)
    assert "Unexpected exception formatting exception" in printed, printed
    return "\nKeyboardInterrupt" in printed


DEAF = "import modlab.results.live\nmodlab.results.live.answer_while_the_cell_runs = lambda view: None"


def test_the_square_interrupts_and_a_second_run_leaves_nothing(lab: JupyterLab) -> None:
    set_up(lab, train(PATIENCE, DEEP), LEFT, DEAF)
    for deaf in (False, True):
        begin(lab, 1)  # where no question is answered, pictures come all the same
        if deaf:
            click(lab, 1, "pause")
            expect(view(lab, 1).get_by_role("status").filter(has_text="use ■ of the notebook")).to_be_visible()
        assert view(lab, 1).count() == 1
        interrupt(lab, 1)
        assert told_of_the_interrupt(lab.cells()[1]["outputs"])
        at_rest(lab, 1)
        assert left(lab) == ["[0, 0, 0, 0] 1", "held by: {}"]
        lab.run_cell(3)
    assert view(lab, 1).count() == 1
    assert not lab.trouble()
    assert not lab.errors()


PACED = """
import os
until, paces, last, gaps = time.monotonic() + 240, [], time.monotonic(), []
with modlab.watch(net, optimizer, budget=0.2) as w:
    while last < until and not os.path.exists("the page is back"):
        cpu = time.thread_time()
        for _ in range(50):
            net(torch.randn(4)).abs().backward()
            optimizer.step()
            optimizer.zero_grad()
            gaps.append((time.monotonic() - last, time.time()))
            last = time.monotonic()
        paces.append((50 / (time.thread_time() - cpu), time.time()))
"""
PACES = """
from statistics import median
times = {times}
found = [[value for value, at in paces if low <= at < high] for low, high in zip(times, times[1:])]
print([round(median(some)) for some in found], *(max(gap for gap, at in gaps if (at >= times[1]) == later) for later in (False, True)))
"""
BUSY = "new Promise(done => setTimeout(() => { const end = performance.now() + 1500; while (performance.now() < end); done(); }))"


@pytest.mark.alone  # it compares the steps of some seconds with those of others
def test_a_page_that_is_slow_gone_and_loaded_anew(lab: JupyterLab) -> None:
    """It never holds up the training, and when the cell ends the picture returns."""
    set_up(lab, PACED, "w", "")
    begin(lab, 1)
    times = [time.time()]
    time.sleep(1.5)
    times.append(time.time())
    lab.page.evaluate(BUSY)
    times.append(time.time())
    lab.command("docmanager:save", wait=False)
    lab.page.wait_for_function("window.__done === 'ok'")
    lab.page.goto("about:blank")
    time.sleep(2)
    times.append(time.time())
    lab.page.goto(f"{lab.address}/lab/tree/{lab.path}?reset&token={lab.token}", wait_until="commit")
    expect(lab.cell(1)).to_contain_text("Loading widget", timeout=PATIENCE * 1000)  # JupyterLab loads as slowly as the machine is busy
    (lab.root / "the page is back").touch()
    expect(view(lab, 1).get_by_role("slider", name="step")).to_be_visible(timeout=40_000)
    at_rest(lab, 1)
    lab.run_cell(2)
    at_rest(lab, 2)
    assert "text/html" in lab.save()["cells"][2]["outputs"][0]["data"]
    paced(lab, times)
    assert not lab.errors()


def paced(lab: JupyterLab, times: list[float]) -> None:
    """Steps per second of CPU time with the page at work, busy and gone; and no step waited for it."""
    lab.page.evaluate(
        "source => [...window.jupyterapp.shell.widgets('main')].find(w => w.isVisible)"
        ".content.widgets[3].model.sharedModel.setSource(source)",
        PACES.format(times=times),
    )
    lab.run_cell(3)
    found = re.fullmatch(r"\[(\d+), (\d+), (\d+)\] ([\d.]+) ([\d.]+)", lab.text(3).strip())
    assert found, lab.text(3)
    seen, busy, gone = (int(found[i]) for i in (1, 2, 3))
    assert min(gone, busy) >= 0.4 * seen  # a busy page, or test, on the other half of a core halves the pace by itself
    assert float(found[5]) < max(1.5, 3 * float(found[4]))  # on a busy machine a step waits for its turn, page or not


TWO = [
    "w = modlab.watch(evil, optimizer, budget=0.2)",
    "w.widget()",
    """
from pathlib import Path
until = time.monotonic() + 300
while time.monotonic() < until and not Path("enough").exists():
    optimizer.zero_grad()
    evil(torch.randn(4)).square().sum().backward()
    optimizer.step()
print(w.record.steps)
""",
    "w.close()",
]
EVIL = (
    SET_UP
    + """
class Evil(nn.Module):
    def __init__(self):
        super().__init__()
        self.add_module("<img src=x onerror=pwned=1>", nn.Linear(4, 3))
        self.add_module("</script><script>pwned=2</script>", nn.ReLU())
        self.add_module("$x^2$ \\u202eabc", nn.Linear(3, 1))
    def forward(self, x):
        for one in self.children():
            x = one(x)
        return x
Evil.__name__ = "<img src=x onerror=window.pwned=3>"
evil = Evil()
optimizer = torch.optim.SGD(evil.parameters(), lr=0.01)
"""
)


def test_two_views_agree_whatever_the_names_are(lab: JupyterLab) -> None:
    lab.open([EVIL, *TWO])
    for cell in (0, 1, 2):
        lab.run_cell(cell)
    lab.run_cell(3, wait=False)
    until(lambda: steps(lab, 1) > 20)
    until(lambda: steps(lab, 2) > 20)
    click(lab, 2, "pause")
    until(lambda: view(lab, 1).get_by_role("button", name="resume").is_visible())
    settled(lab, 1)
    assert steps(lab, 1) == steps(lab, 2)
    click(lab, 1, "resume")
    (lab.root / "enough").touch()
    lab.wait_until_done()
    made = int(lab.text(3))
    until(lambda: steps(lab, 1) == steps(lab, 2) == made)  # the watch is open, and its cell has ended
    lab.run_cell(4)
    assert steps(lab, 1) == steps(lab, 2)
    assert view(lab, 2).get_by_role("button", name="stop").count() == 0
    assert lab.page.evaluate("window.pwned ?? null") is None
    for cell in (1, 2):
        assert view(lab, cell).locator("img, mjx-container, [onmouseover]").count() == 0
        expect(view(lab, cell).get_by_text("onerror").locator("visible=true").first).to_be_visible()
    themes_and_widths(lab, 1)
    assert not lab.errors()


# Titles that stand where a plot's values are written: left of it where it is wide, else above it.
COVERED = """all => all.filter(strip => {
    const [title, canvas] = [strip.querySelector('.title'), strip.querySelector('canvas')].map(one => one.getBoundingClientRect());
    return title.bottom > canvas.top + 2 && title.right > canvas.left + (canvas.width < 480 ? 30 : 90);
}).length"""


def themes_and_widths(lab: JupyterLab, cell: int) -> None:
    headline = view(lab, cell).locator(".headline")

    def seen() -> list[str]:
        return [headline.evaluate("e => getComputedStyle(e).color"), *pixels(lab, cell)]

    light = seen()
    lab.set_theme("JupyterLab Dark")
    until(lambda: all(one != other for one, other in zip(light, seen(), strict=True)))
    lab.cell(cell).locator(".modlab").evaluate("e => { e.style.width = '400px'; }")
    until(lambda: view(lab, cell).evaluate("e => e.scrollWidth - e.clientWidth") <= 1)
    plots = view(lab, cell).locator("canvas:visible").evaluate_all("all => all.map(one => one.getBoundingClientRect().width)")
    assert max(plots) <= 400
    for width in (400, 640, 700, 840, 880, 1000):
        lab.cell(cell).locator(".modlab").evaluate(f"e => {{ e.style.width = '{width}px'; }}")
        until(lambda: not view(lab, cell).locator(".strip:visible").evaluate_all(COVERED))


def test_executed_without_a_browser_the_file_holds_the_whole_run(tmp_path: Path) -> None:
    cells = [SET_UP, train(3)]
    notebook = {
        "cells": [
            {"cell_type": "code", "id": f"c{i}", "metadata": {}, "source": one, "outputs": [], "execution_count": None}
            for i, one in enumerate(cells)
        ],
        "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    (tmp_path / "run.ipynb").write_text(json.dumps(notebook))
    execute = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--inplace", "--log-level", "ERROR", "run.ipynb"]
    alone = {name: value for name, value in os.environ.items() if name != "JPY_SESSION_NAME"}  # it tells of a server of notebooks
    subprocess.run(execute, cwd=tmp_path, env=alone, check=True)
    saved = (tmp_path / "run.ipynb").read_text()
    outputs = json.loads(saved)["cells"][1]["outputs"]
    assert [sorted(one.get("data", {})) for one in outputs] == [["text/html", "text/plain"], []]
    assert "modlab-static" in "".join(outputs[0]["data"]["text/html"])
    assert "after: ended" in "".join(outputs[1]["text"])
    assert len(saved) <= 250_000  # the front end stands in it once, packed
