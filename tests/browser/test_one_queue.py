"""Messages in one queue, as in JupyterLab before 4.4 and with older kernels: the cells that were sent at once hold them up."""

import pytest
from playwright.sync_api import expect

from tests.browser.jupyterlab import JupyterLab

ONE_QUEUE = {"@jupyterlab/apputils-extension:kernels-settings": {"commsOverSubshells": "disabled"}}


@pytest.mark.long
def test_a_lessons_views_come_to_life_once_all_cells_have_run(lab: JupyterLab) -> None:
    cells = [
        'import time\nfrom torch import nn\nimport modlab\nfrom modlab.lessons import Lesson\nlesson = Lesson("00_tour")',
        "modlab.tree(nn.Linear(2, 1))",
        "modlab.state(nn.Linear(2, 1))",
        "time.sleep(12)",  # no question of a page that somebody waits for stays open that long
    ]
    with lab.with_settings(ONE_QUEUE):
        lab.open(cells)
        lab.run_all()
        for cell in (1, 2):
            expect(lab.cell(cell).locator(".modlab-live")).to_have_count(1)
        assert not lab.errors()
