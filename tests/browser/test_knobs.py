"""A knob is moved while its cell trains, by keys and by mouse, and the loss answers."""

from __future__ import annotations

from playwright.sync_api import Locator, expect

from tests.browser.jupyterlab import JupyterLab
from tests.browser.test_accessibility import violations
from tests.browser.test_watch import at_rest, begin, click, steps, type_all_keys, view
from tests.patience import PATIENCE, until

SET_UP = """
import time, ipywidgets, torch, modlab
from torch import nn
torch.set_num_threads(1)
def made():
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.0), nn.Linear(16, 1))
    return net, torch.optim.SGD(net.parameters(), lr=1e-3)
def train(w, net, optimizer, go_on, mine=None):
    lr, p = w.knob("lr", 1e-5, 10, log=True), w.knob("p", 0, 0.9)
    if mine is not None:
        ipywidgets.jslink((mine, "value"), (p.widget(), "value"))
    x = torch.randn(64, 8)
    while go_on():
        net[2].p = p()
        loss = (net(x) - 2 * x[:, :1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
TRAIN = f"""
net, optimizer = made()
mine = ipywidgets.FloatText(0.0, description="mine", continuous_update=True)
display(mine)
until = time.monotonic() + {PATIENCE}
with modlab.watch(net, optimizer, budget=0.2) as w:
    train(w, net, optimizer, lambda: time.monotonic() < until, mine)
print("after:", w.record.state)
"""
AGAIN = """
again, optimizer = made()
with modlab.watch(again, optimizer) as other:
    other.replay(w.moves)
    train(other, again, optimizer, lambda: other.so_far[0] < w.record.steps)
same = [torch.equal(a.nan_to_num(7), b.nan_to_num(7)) for a, b in zip(net.parameters(), again.parameters())]
print("the same bits:", all(same), "the same moves:", w.moves == other.moves, "both moved:", {*w.knobs} == {one["knob"] for one in w.moves})
print("linked:", 0.75 in [one["value"] for one in w.moves])
"""


def handle(lab: JupyterLab, place: int) -> Locator:
    """What is moved of a slider."""
    return lab.cell(1).locator(".widget-slider").nth(place).get_by_role("slider")


def readout(lab: JupyterLab, place: int) -> float:
    return float(lab.cell(1).locator(".widget-slider .widget-readout").nth(place).inner_text())


def test_a_knob_is_turned_in_mid_cell_and_the_run_is_repeated(lab: JupyterLab) -> None:
    lab.open([SET_UP, TRAIN, AGAIN])
    lab.run_cell(0)
    begin(lab, 1)
    expect(lab.cell(1).locator(".widget-slider")).to_have_count(2)
    before = steps(lab, 1)
    until(lambda: steps(lab, 1) > before + 50)
    assert readout(lab, 0) == 0.001  # what nobody has moved stands where it stood

    handle(lab, 1).focus()  # dropout, by keys
    for _ in range(10):
        lab.page.keyboard.press("ArrowRight")
    until(lambda: readout(lab, 1) > 0)
    expect(handle(lab, 1)).to_have_css("outline-style", "solid")
    type_all_keys(lab)
    expect(handle(lab, 1)).to_be_focused()
    assert [cell["source"] for cell in lab.cells()] == [SET_UP, TRAIN, AGAIN]
    assert not view(lab, 1).get_by_text("Inf from step").count()

    lab.cell(1).locator(".widget-text input").fill("0.75")  # and by a control that is linked with it
    until(lambda: readout(lab, 1) == 0.75)
    assert violations(lab.page, ".jp-OutputArea:has(.modlab-steered) .modlab-steered") == []

    lr = handle(lab, 0)  # the learning rate, by mouse: it is dragged to the end
    lr.scroll_into_view_if_needed()
    box, track = lr.bounding_box(), lab.cell(1).locator(".widget-slider .noUi-base").first.bounding_box()
    assert box is not None and track is not None
    lab.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    lab.page.mouse.down()
    lab.page.mouse.move(track["x"] + track["width"] * 0.98, box["y"] + box["height"] / 2, steps=6)
    lab.page.mouse.up()
    expect(view(lab, 1).locator(".headline")).to_contain_text("NaN", timeout=PATIENCE * 1000)
    until(lambda: readout(lab, 0) > 5)

    click(lab, 1, "stop")
    lab.wait_until_done()
    lab.settle()
    assert "after: stopped" in lab.text(1)
    lab.run_cell(2)
    assert "the same bits: True the same moves: True both moved: True\nlinked: True" in lab.text(2)
    at_rest(lab, 1)
    assert lab.cell(1).locator(".widget-slider").count() == 0
    outputs = lab.save()["cells"][1]["outputs"]
    assert [sorted(one.get("data", {})) for one in outputs[1:]] == [["text/html", "text/plain"], []]
    assert "a knob, moved" in "".join(outputs[1]["data"]["text/html"])
    lab.reopen()
    at_rest(lab, 1)
    assert not lab.trouble()
    assert not lab.errors()


TREE = """
import ipywidgets, modlab
from torch import nn
net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1))
view, text, heard = modlab.tree(net).widget(), ipywidgets.Text(continuous_update=True), []
view.observe(lambda change: heard.append(change["new"]), "selected")
ipywidgets.jslink((view, "selected"), (text, "value"))
ipywidgets.VBox([text, view])
"""


def test_what_is_selected_is_linked_with_a_control_and_heard_in_python(lab: JupyterLab) -> None:
    lab.open([TREE, "print(heard, view.selected, view.headline == modlab.tree(net).headline)", "view.selected = '2'"])
    lab.run_cell(0)
    rows, field = lab.cell(0).get_by_role("treeitem"), lab.cell(0).locator(".widget-text input")
    expect(rows).to_have_count(4)

    def selected() -> str:
        return lab.cell(0).locator("[role=treeitem][aria-selected=true]").inner_text()

    def heard() -> str:  # the page may tell the kernel a moment after it has drawn: JupyterLab holds back what it sends a busy widget
        lab.run_cell(1)
        return lab.text(1)

    field.fill("1")
    until(lambda: "ReLU" in selected())
    until(lambda: "['1'] 1 True" in heard())
    lab.run_cell(2)
    expect(field).to_have_value("2")
    until(lambda: "3 → 1" in selected() or "Linear" in selected())
    rows.nth(1).click()
    expect(field).to_have_value("0")
    until(lambda: "['1', '2', '0'] 0 True" in heard())
    assert not lab.errors()
