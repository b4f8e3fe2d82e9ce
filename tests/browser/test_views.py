"""What a user does with a view, in a real JupyterLab: look, walk, search, select, reload, switch themes."""

import json
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Locator, expect

from tests.browser.jupyterlab import JupyterLab
from tests.patience import PAGE, until

SET_UP = "import torch, modlab\nfrom modlab.lessons.note import BigNet, DynamicNet, Net, StatefulModule\nnet = BigNet()"
STILL = "modlab.tree(net)"


def tree(lab: JupyterLab, cell: int) -> Locator:
    """The one tree of a cell's output (Playwright looks through shadow roots)."""
    return lab.cell(cell).get_by_role("tree")


def rows(lab: JupyterLab, cell: int) -> list[str]:
    return [row.split("\n")[0] for row in lab.cell(cell).get_by_role("treeitem").all_inner_texts()]


def active(lab: JupyterLab, cell: int) -> str:
    """The path of the selected module, as the detail beside the tree names it."""
    return lab.cell(cell).locator(".detail .path").inner_text().strip().lower()


def show(lab: JupyterLab, *cells: str) -> None:
    lab.open([SET_UP, *cells])
    lab.run_all()
    assert not lab.trouble()


def test_the_static_picture_makes_way_for_a_view_that_is_walked_by_keyboard(lab: JupyterLab) -> None:
    show(lab, STILL)
    view = tree(lab, 1)
    expect(view).to_be_visible()
    expect(lab.cell(1).locator(".modlab-static")).to_be_hidden()
    assert lab.cell(1).get_by_role("treeitem").count() == 5
    view.focus()
    for key, path in [
        ("ArrowDown", "l1"),
        ("ArrowDown", "net"),
        ("ArrowRight", "net.l0"),
        ("End", "net.l1"),
        ("ArrowLeft", "net"),
        ("Home", "(root)"),
        ("n", "net"),
        ("Enter", "net"),
    ]:
        lab.page.keyboard.press(key)
        expect(lab.cell(1).locator(".detail .path")).to_have_text(path)
    assert lab.cell(1).get_by_role("treeitem").count() == 3  # Enter closed `net`
    lab.page.keyboard.press("*")
    assert lab.cell(1).get_by_role("treeitem").count() == 5  # and * opens it and what stands beside it
    copied_and_deleted(lab)
    assert not lab.errors()


def copied_and_deleted(lab: JupyterLab) -> None:
    """The copy of a view is alive, and the view stays when the copy goes."""
    lab.page.evaluate(
        "() => { const nb = [...window.jupyterapp.shell.widgets('main')].find(w => w.isVisible).content;"
        " nb.deselectAll(); nb.activeCellIndex = 1; }"
    )
    lab.command("notebook:copy-cell")
    lab.command("notebook:paste-cell-below")
    expect(tree(lab, 2)).to_be_visible()
    tree(lab, 2).focus()
    lab.page.keyboard.press("End")
    expect(lab.cell(2).locator(".detail .path")).to_have_text("net.l1")
    lab.command("notebook:delete-cell")
    expect(tree(lab, 1)).to_be_visible()


def test_searching_by_keyboard(lab: JupyterLab) -> None:
    show(lab, "modlab.tree(torch.nn.Transformer(32, 4, 6, 6))")
    tree(lab, 1).focus()
    lab.page.keyboard.press("/")
    lab.page.keyboard.type("encoder.layers.4.linear2")
    expect(lab.cell(1).get_by_role("treeitem").filter(has_text="linear2").first).to_be_visible()
    assert "1 of" in lab.cell(1).locator(".count").inner_text()
    lab.page.keyboard.press("Escape")
    expect(lab.cell(1).get_by_role("treeitem").filter(has_text="decoder").first).to_be_visible()


def test_keys_stay_in_the_view(lab: JupyterLab) -> None:
    """JupyterLab's command mode cuts a cell on x and deletes it on d d."""
    codes = [STILL, "modlab.state(net)", "modlab.tree(net).widget()", "modlab.state(net).widget()"]
    show(lab, *codes, "1 + 1")
    before = [(cell["type"], cell["source"]) for cell in sources(lab)]
    for cell, code in enumerate(codes, 1):
        lab.cell(cell).locator('[role="tree"], [role="grid"]').first.focus()
        for key in ("x", "d", "d", "a", "b", "m", "z", "*", "y", "Enter", "1", "/"):
            lab.page.keyboard.press(key)
        lab.page.keyboard.type("xddabmz/*")  # now in the search box
        lab.page.keyboard.press("Escape")  # which ends the search
        lab.page.keyboard.press("x")
        lab.page.wait_for_timeout(200)
        assert [(found["type"], found["source"]) for found in sources(lab)] == before, code
    lab.page.keyboard.press("Escape")  # leaves the view: the notebook hears the keys again
    assert lab.page.evaluate("document.activeElement.matches('.jp-Cell, .jp-Notebook')")
    lab.page.keyboard.press("x")
    until(lambda: len(sources(lab)) == len(before) - 1, PAGE)


def sources(lab: JupyterLab) -> list[dict[str, str]]:
    found: list[dict[str, str]] = lab.page.evaluate(
        "[...window.jupyterapp.shell.widgets('main')].find(w => w.isVisible).content.widgets"
        ".map(w => ({type: w.model.type, source: w.model.sharedModel.getSource()}))"
    )
    return found


def test_a_selection_is_shared_by_the_views_of_a_model(lab: JupyterLab) -> None:
    show(lab, STILL, "modlab.state(net)", "modlab.tree(DynamicNet(2))")
    lab.cell(1).get_by_role("treeitem").filter(has_text="l0").click()
    expect(lab.cell(2).locator('[role="row"].selected')).to_contain_text("net.l0.weight")
    lab.cell(2).get_by_role("row").filter(has_text="net.l1.bias").click()
    expect(lab.cell(1).locator(".detail .path")).to_have_text("net.l1")
    expect(lab.cell(3).locator(".detail .path")).to_have_text("(root)")  # another model: not concerned


def test_a_state_shows_values_and_its_widget_asks_the_kernel(lab: JupyterLab) -> None:
    show(lab, "net.net.l1.bias.data.fill_(float('nan'))\nmodlab.state(net)", "big = torch.nn.Linear(300, 200)\nmodlab.state(big).widget()")
    lab.cell(1).get_by_role("row").filter(has_text="net.l1.bias").click()
    expect(lab.cell(1).locator(".detail")).to_contain_text("NaN")
    lab.cell(1).get_by_role("row").filter(has_text="net.l1.weight").click()
    expect(lab.cell(1).locator(".detail")).to_contain_text("std")
    lab.cell(2).get_by_role("row").filter(has_text="weight").click()
    expect(lab.cell(2).locator(".detail")).to_contain_text("std")
    assert not lab.errors()


def test_reloaded_and_in_a_converted_page_a_view_is_alive(lab: JupyterLab, tmp_path: Path) -> None:
    """At rest a view needs no kernel and no comm, and no network either."""
    show(lab, STILL, "modlab.state(net)")
    (tmp_path / "saved.ipynb").write_text(json.dumps(lab.save()))
    lab.reopen()
    expect(tree(lab, 1)).to_be_visible()
    expect(lab.cell(2).get_by_role("grid")).to_be_visible()
    tree(lab, 1).focus()
    lab.page.keyboard.press("End")
    expect(lab.cell(1).locator(".detail .path")).to_have_text("net.l1")
    assert not lab.errors()
    for template in ("lab", "classic"):
        convert = [sys.executable, "-m", "nbconvert", "--to", "html", "--template", template, "--log-level", "ERROR", "saved.ipynb"]
        subprocess.run(convert, cwd=tmp_path, check=True)
        alive_offline(lab, tmp_path / "saved.html")


def brightness(colour: str) -> float:
    return sum(float(part) for part in colour.removeprefix("rgba(").removeprefix("rgb(").rstrip(")").split(",")[:3]) / 3


def is_below(one: Locator, other: Locator) -> bool:
    """Whether an element begins where another one has ended."""
    low, high = one.bounding_box(), other.bounding_box()
    return bool(low and high) and low["y"] >= high["y"] + high["height"] - 1


def test_dark_and_narrow(lab: JupyterLab) -> None:
    show(lab, STILL)
    name = lab.cell(1).get_by_role("treeitem").first.locator("b, .name").first
    light = name.evaluate("e => getComputedStyle(e).color")
    lab.set_theme("JupyterLab Dark")
    assert brightness(light) < 100
    until(lambda: brightness(name.evaluate("e => getComputedStyle(e).color")) > 180, PAGE)
    lab.cell(1).locator(".modlab").evaluate("e => { e.style.width = '400px'; }")
    until(lambda: is_below(lab.cell(1).locator(".detail"), tree(lab, 1)), PAGE)
    left = tree(lab, 1).bounding_box()
    assert left and left["width"] <= 400
    wide = lab.cell(1).locator(".modlab-live").evaluate("e => e.scrollWidth - e.clientWidth")
    assert wide <= 1


HOSTILE = '''
class Evil(torch.nn.Module):
    """<img src=x onerror="window.pwned=1"> </script><script>window.pwned=2</script> $x^2$"""
    def __init__(self):
        super().__init__()
        self.register_parameter("<img src=x onerror=pwned=3>", torch.nn.Parameter(torch.ones(2)))
        self.add_module("</script><script>pwned=4</script>", torch.nn.ReLU())
        self.add_module("$x^2$ \\u202eabc", torch.nn.ReLU())
    def extra_repr(self):
        return "<b onmouseover=window.pwned=5>'\\"`" + "long " * 200_000
Evil.__name__ = "<img src=x onerror=window.pwned=6>"
evil = Evil()
'''


def test_hostile_names_are_text(lab: JupyterLab) -> None:
    codes = ["modlab.tree(evil)", "modlab.state(evil)", "modlab.tree(evil).widget()", "modlab.state(evil).widget()"]
    lab.open([SET_UP, HOSTILE, *codes])
    lab.run_all()
    lab.page.wait_for_timeout(300)
    assert lab.page.evaluate("window.pwned ?? null") is None
    for cell, code in enumerate(codes, 2):
        assert lab.cell(cell).locator("img, mjx-container, .MathJax, [onmouseover]").count() == 0, code
        expect(lab.cell(cell).get_by_text("<img src=x onerror=window.pwned=6>").locator("visible=true").first).to_be_visible()


def test_without_script_the_picture_stays(lab: JupyterLab, tmp_path: Path) -> None:
    """A notebook from somebody else is not trusted: its scripts do not run."""
    output = {"output_type": "display_data", "metadata": {}, "data": {"text/html": still_html(), "text/plain": "BigNet"}}
    lab.open([SET_UP, STILL], outputs={1: [output]})
    static = lab.cell(1).locator(".modlab-static")
    expect(static).to_be_visible()
    expect(static).to_contain_text("43 parameters in 5 modules")
    expect(static.get_by_text("MyLinear").first).to_be_visible()


def still_html() -> str:
    import modlab
    from modlab.lessons.note import BigNet

    return modlab.tree(BigNet()).html()


def alive_offline(lab: JupyterLab, file: Path) -> None:
    page = lab.page.context.new_page()
    try:
        page.goto(file.as_uri(), wait_until="domcontentloaded")  # MathJax's address is never reached
        expect(page.get_by_role("tree")).to_be_visible()
        page.get_by_role("tree").focus()
        page.keyboard.press("End")
        expect(page.locator(".detail .path").first).to_have_text("net.l1")
        expect(page.get_by_role("grid")).to_be_visible()
    finally:
        page.close()


def test_the_extension_shows_a_bare_module(lab: JupyterLab) -> None:
    lab.open([SET_UP, "%load_ext modlab", "net", "%unload_ext modlab", "net"])
    lab.run_all()
    expect(tree(lab, 2)).to_be_visible()
    assert lab.cell(4).get_by_role("tree").count() == 0
    assert "MyLinear()" in lab.text(4)


def test_a_large_model_opens_at_once(lab: JupyterLab) -> None:
    """More than twenty thousand modules: the rows are virtual, and a member of a run is found by its own name."""
    bench = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})"
    lab.open([SET_UP, f"{bench}\nfrom bench.deepseek import DeepSeek\nlarge = DeepSeek(layers=20)", "modlab.tree(large)"])
    lab.run_all()
    expect(tree(lab, 2)).to_be_visible()
    tree(lab, 2).focus()
    lab.page.keyboard.press("/")
    lab.page.keyboard.type("layers.17.mlp.experts.200.up_proj")
    expect(lab.cell(2).get_by_role("treeitem").filter(has_text="up_proj").first).to_be_visible()
    assert lab.cell(2).get_by_role("treeitem").count() < 200
    assert not lab.errors()
