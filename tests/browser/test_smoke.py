from pathlib import Path

from tests.browser.jupyterlab import JupyterLab


def test_a_cell_runs(lab: JupyterLab) -> None:
    lab.open(["print(1 + 1)"])
    lab.run_all()
    assert lab.text(0) == "2\n"
    assert lab.output(0).inner_text().strip() == "2"
    assert (lab.trouble(), lab.errors(), lab.outside) == ([], [], [])


def test_a_saved_notebook_is_reopened_dark_and_narrow(lab: JupyterLab, tmp_path: Path) -> None:
    stored = {"output_type": "stream", "name": "stdout", "text": ["from elsewhere\n"]}
    lab.open(["print('from elsewhere')", "'seen'"], outputs={0: [stored]})
    lab.run_cell(1)
    assert lab.save()["cells"][1]["outputs"][0]["data"]["text/plain"] == ["'seen'"]
    lab.reopen()
    lab.set_theme("JupyterLab Dark")
    lab.set_viewport(400, 800)
    assert [lab.text(0), lab.text(1)] == ["from elsewhere\n", "'seen'"]
    assert lab.screenshot(tmp_path / "cell.png", 1).stat().st_size > 0
    assert (lab.trouble(), lab.errors()) == ([], [])
