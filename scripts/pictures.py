"""Take the pictures of the README anew: the tree of a GPT-2 in a real JupyterLab, light and dark.

.venv/bin/python -m scripts.pictures
"""

from __future__ import annotations

import sys
from pathlib import Path

from scripts import find_chromium
from tests.browser.jupyterlab import JupyterLab

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
MODEL = """import modlab, torch
from transformers import GPT2Config, GPT2LMHeadModel
model = GPT2LMHeadModel(GPT2Config())
model.adapters = [torch.nn.Linear(48, 48) for _ in range(3)]"""


def main() -> None:
    """Write ``docs/images/tree-light.png`` and ``tree-dark.png``."""
    chromium = find_chromium.find()
    if chromium is None:
        sys.exit(find_chromium.MISSING)
    with JupyterLab(chromium, viewport=(1500, 1000)) as lab:
        lab.open([MODEL, "modlab.tree(model).widget()"])
        lab.run_all()
        view = lab.cell(1).locator(".modlab-view, .jp-OutputArea-output").last
        for name in ("attn", "c_attn"):
            row = lab.cell(1).get_by_role("treeitem").filter(has_text=name).first
            row.click()
            if name == "attn":
                lab.page.keyboard.press("ArrowRight")
        lab.cell(1).locator("aside").get_by_role("button", name="weight").first.click()
        lab.page.wait_for_timeout(1500)
        for theme in ("Light", "Dark"):
            lab.set_theme(f"JupyterLab {theme}")
            lab.page.wait_for_timeout(500)
            view.screenshot(path=IMAGES / f"tree-{theme.lower()}.png")


if __name__ == "__main__":
    main()
