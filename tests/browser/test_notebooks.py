"""The course in a real JupyterLab: each notebook runs, and each of its views is there and alive (nbval would not miss one)."""

from pathlib import Path

import pytest

from modlab.lessons import copies
from tests.browser.jupyterlab import JupyterLab
from tests.browser.test_lessons import BY_KEYBOARD, TRAINS, every_view_is_alive

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
OFTEN = ("00_tour", "04_reaching_every_tensor", "08_save_load_repair", "12_inside_the_class", "15_two_processes")  # the rest is long


def cases() -> list[object]:
    """Of those that are run by keyboard, the tests of lessons ask the same."""
    rest = [one for one in NOTEBOOKS if one.stem not in (*BY_KEYBOARD, TRAINS)]
    return [pytest.param(one, id=one.stem, marks=() if one.stem in OFTEN else pytest.mark.long) for one in rest]


@pytest.mark.parametrize("notebook", cases())
def test_the_learners_copy_runs_and_every_view_is_alive(lab: JupyterLab, notebook: Path, tmp_path: Path) -> None:
    copies.copy(tmp_path, notebook.parent)
    lab.open(tmp_path / notebook.name)
    lab.run_all()
    every_view_is_alive(lab)


@pytest.mark.parametrize("notebook", NOTEBOOKS[::15], ids=lambda path: path.stem)  # their HTML is all of one make
def test_as_committed_it_shows_the_static_pictures(lab: JupyterLab, notebook: Path) -> None:
    lab.open(notebook)
    assert lab.page.locator(".modlab-static:visible").count() >= 3
    assert not lab.errors()
