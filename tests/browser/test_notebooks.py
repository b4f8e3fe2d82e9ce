"""The course in a real JupyterLab: each notebook runs, and each of its views is there and alive (nbval would not miss one)."""

from pathlib import Path

import pytest

from modlab.lessons import copies
from modlab.views.html import BEGIN
from tests.browser.jupyterlab import JupyterLab

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_learners_copy_runs_and_every_view_is_alive(lab: JupyterLab, notebook: Path, tmp_path: Path) -> None:
    copies.copy(tmp_path, notebook.parent)
    lab.open(tmp_path / notebook.name)
    lab.run_all()
    assert not lab.trouble()
    assert not lab.errors()
    shown = 0
    for index, cell in enumerate(lab.cells()):
        assert not [out for out in cell["outputs"] if out["output_type"] == "error"]
        html = "".join("".join(out.get("data", {}).get("text/html", "")) for out in cell["outputs"])
        knobs = html.count('data-modlab="modify"')
        views = html.count(BEGIN) - knobs
        live, turning = lab.cell(index).locator(".modlab-live"), lab.cell(index).locator(".modlab-turning")
        assert (live.count(), turning.count()) == (views, knobs), f"a view of cell {index} is not alive"
        assert live.locator('[role="tree"], [role="grid"], [role="treegrid"], [role="region"]').count() >= views
        shown += views
    assert shown >= 3


@pytest.mark.parametrize("notebook", NOTEBOOKS[::5], ids=lambda path: path.stem)    # their HTML is all of one make
def test_as_committed_it_shows_the_static_pictures(lab: JupyterLab, notebook: Path) -> None:
    lab.open(notebook)
    assert lab.page.locator(".modlab-static:visible").count() >= 3
    assert not lab.errors()
