"""The time is dragged back in a live view, a rate is changed, and both losses are seen: paused, running, ended, without a kernel."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, expect

from tests.browser.jupyterlab import JupyterLab
from tests.browser.test_accessibility import violations
from tests.browser.test_watch import begin, click, steps, view
from tests.patience import PATIENCE, until

SET_UP = """
import time, torch, modlab
from torch import nn
torch.set_num_threads(1)
def made():
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1))
    return net, torch.optim.SGD(net.parameters(), lr=1e-3)
def train(net, optimizer, go_on):
    while go_on():
        x = torch.randn(64, 8)
        loss = (net(x) - 2 * x[:, :1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
TRAIN = f"""
net, optimizer = made()
until = time.monotonic() + {PATIENCE}
with modlab.watch(net, optimizer, budget=0.2, keep="good") as w:
    train(net, optimizer, lambda: time.monotonic() < until)
print("after:", w.record.state)
"""
AGAIN = """
again, optimizer = made()
with modlab.watch(again, optimizer, keep="good") as other:
    train(again, optimizer, lambda: other.so_far[0] < w.record.steps)
print("the same bits:", all(torch.equal(a, b) for a, b in zip(net.parameters(), again.parameters())))
for one in w.forks:
    print(one.exact, one.headline)
"""


def forks(lab: JupyterLab) -> Locator:
    return view(lab, 1).get_by_role("group", name="forks")


def ask(lab: JupyterLab) -> None:
    forks(lab).get_by_role("button", name="Fork", exact=True).click()


def outcome(lab: JupyterLab) -> str:
    """What became of the last fork."""
    return forks(lab).locator(".outcome").first.inner_text()


def wait_for(lab: JupyterLab, count: int) -> str:
    """The sentence about the last of so many forks, once it has ended."""
    expect(forks(lab).locator(".outcome")).to_have_count(count, timeout=PATIENCE * 1000)
    until(lambda: "The fork runs" not in outcome(lab))
    return outcome(lab)


def test_a_learner_drags_the_time_back_and_sees_both(lab: JupyterLab) -> None:
    lab.open([SET_UP, TRAIN, AGAIN])
    lab.run_cell(0)
    begin(lab, 1, 300)
    click(lab, 1, "pause")
    expect(forks(lab)).to_contain_text("runs while the training is paused")

    slider = forks(lab).get_by_role("slider", name="from")
    slider.focus()
    newest = slider.get_attribute("aria-valuetext")
    lab.page.keyboard.press("Home")
    expect(slider).to_have_attribute("aria-valuetext", "step 0")
    lab.page.keyboard.press("ArrowRight")
    until(lambda: slider.get_attribute("aria-valuetext") not in ("step 0", newest))
    chosen = str(slider.get_attribute("aria-valuetext"))
    rate = forks(lab).get_by_role("textbox", name="learning rate")
    expect(rate).to_have_value("0.001")

    for text, said in (("abc", "must be a number"), ("-1", "must not be negative")):
        rate.fill(text)
        ask(lab)
        expect(forks(lab).get_by_role("alert")).to_contain_text(said)
        expect(rate).to_have_attribute("aria-invalid", "true")
    assert violations(lab.page, ".jp-OutputArea:has(.modlab-live) .modlab-live") == []
    rate.fill("0.02")
    rate.press("Enter")
    before = steps(lab, 1)
    said = wait_for(lab, 1)
    found = r"(The fork does \w+|It makes (no|little|no clear) difference)"
    ended = rf"{found}: after [\d,]+ steps the loss is [\d.e-]+, and [\d.e-]+ without the change(, but [^(]+)?"
    assert re.match(rf"{ended} \(with lr = 0.02", said), said  # how many steps there were is the machine's pace
    expect(view(lab, 1).locator("[role=status]").last).to_have_text(said)  # it is read out
    expect(forks(lab).get_by_role("img")).to_have_attribute("aria-label", re.compile("the loss as it was and in the fork, with lr = 0.02"))
    assert "line-original" in forks(lab).locator(".figures").inner_html()
    assert steps(lab, 1) == before  # the training waits
    assert violations(lab.page, ".jp-OutputArea:has(.modlab-live) .modlab-live") == []

    click(lab, 1, "resume")
    expect(forks(lab)).to_contain_text("runs between the training's steps")
    forks(lab).get_by_role("combobox", name="setting").select_option("2.p")
    forks(lab).get_by_role("textbox", name="its value").fill("1.5")
    ask(lab)
    expect(forks(lab).get_by_role("alert")).to_contain_text("takes a probability between 0 and 1", timeout=PATIENCE * 1000)
    forks(lab).get_by_role("textbox", name="its value").fill("0.6")
    before = steps(lab, 1)
    ask(lab)
    until(lambda: "2.p = 0.6" in wait_for(lab, 2))
    assert steps(lab, 1) > before  # the training goes on

    click(lab, 1, "stop")
    lab.wait_until_done()
    lab.settle()
    assert "after: stopped" in lab.text(1)
    expect(forks(lab).get_by_role("slider", name="from")).to_be_visible()  # the picture at rest asks the kernel that is still there
    expect(forks(lab)).to_contain_text("runs while the kernel runs no cell")
    expect(forks(lab).get_by_role("slider", name="from")).to_have_attribute("aria-valuetext", chosen)  # though fewer are kept by now
    entered = {"learning rate": "0.02", "its value": "0.6"}  # it stays, although another view took the place
    for name, value in entered.items():
        expect(forks(lab).get_by_role("textbox", name=name)).to_have_value(value)
    forks(lab).get_by_role("textbox", name="learning rate").fill("0.5")
    ask(lab)
    said = wait_for(lab, 3)
    lab.run_cell(2)
    assert "the same bits: True" in lab.text(2)
    assert lab.text(2).count("\nTrue ") == 3  # the unchanged twins are the original, bit for bit
    assert f"True {said}" in lab.text(2)
    expect(forks(lab).get_by_role("textbox", name="learning rate")).to_have_value("0.5")
    expect(forks(lab).locator(".outcome").first).to_have_text(said)
    lab.save()
    lab.reopen()
    expect(forks(lab).get_by_role("img")).to_be_visible()
    assert not forks(lab).locator(".fork-form").is_visible()  # no dead controls
    assert "2.p = 0.6" in forks(lab).inner_text()
    assert outcome(lab) == said
    assert not lab.trouble()
    assert not lab.errors()


def test_a_fork_is_cancelled_and_what_was_made_stays(lab: JupyterLab) -> None:
    lab.open([SET_UP, TRAIN, "w.forks[-1].record.ended", "import time; time.sleep(1); w.widget()"])
    lab.run_cell(0)
    begin(lab, 1, 600)
    slider = forks(lab).get_by_role("slider", name="from")
    slider.focus()
    lab.page.keyboard.press("Home")
    ask(lab)
    expect(forks(lab).locator(".outcome")).to_have_count(1, timeout=PATIENCE * 1000)
    forks(lab).get_by_role("button", name="Cancel").click()
    wait_for(lab, 1)
    assert "It was cancelled there." in forks(lab).inner_text()
    assert forks(lab).get_by_role("button", name="Fork", exact=True).evaluate("e => e.getRootNode().activeElement === e")
    click(lab, 1, "stop")
    lab.wait_until_done()
    lab.settle()
    lab.run_cell(2)
    assert "cancelled" in lab.text(2)
    lab.run_cell(3)  # a view of a watch that has ended has the same
    expect(view(lab, 3).get_by_role("slider", name="from")).to_be_visible()
    assert not lab.errors()
