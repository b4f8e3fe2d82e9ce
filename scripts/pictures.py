"""Take the pictures of the README anew in a real JupyterLab, light and dark: a watch, the tree of a GPT-2, and an error explained.

.venv/bin/python -m scripts.pictures [watch] [tree] [explain]
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from playwright.sync_api import Locator

from scripts import find_chromium
from tests.browser.jupyterlab import JupyterLab

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
MODEL = """import modlab, torch
from transformers import GPT2Config, GPT2LMHeadModel
model = GPT2LMHeadModel(GPT2Config())
model.adapters = [torch.nn.Linear(48, 48) for _ in range(3)]"""
BROKEN = """import modlab, torch
from modlab.lessons.note import BigNet, MyLinear
model = BigNet()
model.net.l0 = MyLinear(4, 2)
try:
    model(torch.randn(5))
except RuntimeError as error:
    explanation = modlab.explain(error)"""

TRAINED = """import modlab, torch
from modlab.lessons.note import Net
torch.manual_seed(63)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, weight_decay=1e-2, momentum=0.9)"""
LOOP = """with modlab.watch(net, optimizer, budget=0.1) as w:
    for step in range(10_000):
        loss = torch.abs(net(torch.randn(4)))
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        w.log(loss=loss)"""


def main() -> None:
    """Write ``docs/images/<name>-light.png`` and ``-dark.png`` for each name."""
    chromium = find_chromium.find()
    if chromium is None:
        sys.exit(find_chromium.MISSING)
    wanted = sys.argv[1:] or ["watch", "tree", "explain"]
    with JupyterLab(chromium, viewport=(1500, 1000)) as lab:
        for name in wanted:
            view = {"watch": watch, "tree": tree, "explain": explain}[name](lab)
            for theme in ("Light", "Dark"):
                lab.set_theme(f"JupyterLab {theme}")
                lab.page.wait_for_timeout(500)
                view.screenshot(path=IMAGES / f"{name}-{theme.lower()}.png")


def watch(lab: JupyterLab) -> Locator:
    """The whole run, at its end."""
    lab.set_viewport(1500, 1350)
    lab.open([TRAINED, LOOP])
    lab.run_all()
    lab.page.wait_for_timeout(1500)
    return lab.cell(1).locator(".jp-OutputArea-output").last


def tree(lab: JupyterLab) -> Locator:
    """The tree, with a layer and one of its tensors selected."""
    lab.open([MODEL, "modlab.tree(model).widget()"])
    lab.run_all()
    for name in ("attn", "c_attn"):
        row = lab.cell(1).get_by_role("treeitem").filter(has_text=name).first
        row.click()
        if name == "attn":
            lab.page.keyboard.press("ArrowRight")
    lab.cell(1).get_by_role("button", name=re.compile("^weight")).first.click()
    lab.page.wait_for_timeout(1500)
    return lab.cell(1).locator(".modlab-view, .jp-OutputArea-output").last


def explain(lab: JupyterLab) -> Locator:
    """The error, with the place where it stopped selected, as it is at first."""
    lab.open([BROKEN, "explanation"])
    lab.run_all()
    lab.page.wait_for_timeout(500)
    return lab.cell(1).locator(".jp-OutputArea-output").last


if __name__ == "__main__":
    main()
